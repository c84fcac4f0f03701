//! What was observed, and which part of it is shown: the last seconds, all since the start, or a window of the past.

use sonar_core::history::Span;
use sonar_core::time::NS_PER_S;
use sonar_core::{Timestamp, Window};

use super::history::History;
use super::pausable::Pausable;
use super::recent::RecentWindows;
use crate::kit::Zone;
use crate::queries::server_state::StateTime;
use crate::queries::{PastWindow, Selection, ServerState, WindowReport};

/// A window of the stored history.
#[derive(Debug)]
struct PastView {
    span: Span,
    /// `None` while it is drawn.
    window: Option<Window>,
    /// The state of the servers at its end.
    servers: Vec<ServerState>,
}

/// Intervals, histories of rows, and the state of the servers of this host.
#[derive(Debug)]
pub(super) struct ObservedWindows {
    recent: RecentWindows,
    /// Everything since the start, as it is shown.
    pub(super) total: Option<Window>,
    /// What arrived while paused: the total on screen stands still.
    pending: Option<Window>,
    pub(super) history: Pausable<History>,
    /// By port.
    pub(super) servers: Pausable<Vec<ServerState>>,
    /// Whether everything since the start is shown, unless a window of the past is.
    pub(super) since_start: bool,
    /// What is shown instead of what is live.
    past: Option<PastView>,
}

/// Adds a window to a sum.
fn add(sum: &mut Option<Window>, window: &Window) {
    match sum {
        Some(sum) => sum.merge(window),
        None => *sum = Some(window.clone()),
    }
}

impl ObservedWindows {
    /// Nothing yet.
    pub(super) fn new(recent: RecentWindows, history: History) -> Self {
        Self {
            recent,
            total: None,
            pending: None,
            history: Pausable::new(history),
            servers: Pausable::new(Vec::new()),
            since_start: false,
            past: None,
        }
    }

    /// Adds an interval that has ended.
    pub(super) fn window(&mut self, window: Window) {
        self.history.live.push(&window);
        let is_paused = self.is_paused();
        add(if is_paused { &mut self.pending } else { &mut self.total }, &window);
        self.recent.push(window);
        if !is_paused {
            self.recent.gather();
        }
    }

    /// Stands still, or goes on.
    pub(super) fn pause(&mut self) {
        let pauses = !self.is_paused();
        self.history.pause(pauses);
        self.servers.pause(pauses);
        if !pauses {
            self.add_pending();
            self.recent.gather();
        }
    }

    /// Whether it stands still.
    pub(super) fn is_paused(&self) -> bool {
        self.history.is_paused()
    }

    fn add_pending(&mut self) {
        match (&mut self.total, self.pending.take()) {
            (Some(total), Some(pending)) => total.merge(&pending),
            (total @ None, pending) => *total = pending,
            _ => {}
        }
    }

    /// Everything since the start; `None` before the first interval.
    pub(super) fn into_total(mut self) -> Option<Window> {
        self.add_pending();
        self.total
    }

    /// Shows a window of the past.
    pub(super) fn show_past(&mut self, PastWindow { window, servers }: PastWindow) {
        let span = Span { from: window.start, to: window.end };
        self.past = Some(PastView { span, window: Some(window), servers });
    }

    /// Shows what is live again.
    pub(super) fn show_now(&mut self) {
        self.past = None;
    }

    /// The span of the window of the past that is shown, if one is.
    pub(super) fn past(&self) -> Option<Span> {
        self.past.as_ref().map(|past| past.span)
    }

    /// What is shown.
    pub(super) fn shown(&self) -> Option<&Window> {
        match &self.past {
            Some(past) => past.window.as_ref(),
            None if self.since_start => self.total.as_ref(),
            None => self.recent.sum.as_ref(),
        }
    }

    /// Where the shown window is kept.
    pub(super) fn slot(&mut self) -> &mut Option<Window> {
        match &mut self.past {
            Some(past) => &mut past.window,
            None if self.since_start => &mut self.total,
            None => &mut self.recent.sum,
        }
    }

    /// The servers as they are shown, and the time to which their ages refer; operations are shown up to `end`.
    pub(super) fn servers(&self, end: Option<Timestamp>) -> (&[ServerState], StateTime) {
        match &self.past {
            Some(past) => (&past.servers, StateTime::Past(past.span.to)),
            None => (self.servers.shown(), StateTime::Now(end)),
        }
    }

    /// How far back the rows look.
    pub(super) fn span(&self, elapsed_ns: u64, zone: &Zone) -> String {
        if let Some(past) = self.past() {
            let clock = |at| zone.show_seconds(at).to_string();
            let to = clock(past.to);
            format!("{} to {}", clock(past.from), to.get(11..).unwrap_or(&to))
        } else if self.since_start {
            "since start".to_string()
        } else {
            format!("last {:.0} s", elapsed_ns as f64 / NS_PER_S as f64)
        }
    }

    /// The window that has the row, and whether it is the shown one.
    pub(super) fn window_of<'a>(
        &'a self,
        shown: Option<&'a Window>,
        selection: &Selection,
        identity: u64,
    ) -> Option<(&'a Window, bool)> {
        let has = |window: &Window| {
            WindowReport::new(window, selection).rows.iter().any(|row| row.identity == identity)
        };
        match shown {
            Some(window) if has(window) => Some((window, true)),
            _ if self.past.is_some() => None,
            _ => self.total.as_ref().filter(|total| has(total)).map(|total| (total, false)),
        }
    }
}
