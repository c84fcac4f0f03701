//! Finds the moments of change in a long span: each few windows are compared with those before them.

use std::collections::HashSet;

use super::{Change, ChangeInput, ChangeKind, Changes, MIN_WINDOWS, RECENT_WINDOWS, ShapeWay, find};
use crate::Endpoint;
use crate::history::{Event, HistoryWindow, Span};
use crate::internals::FigureVerdict;

/// How many windows before a moment it is compared with, at most.
pub const BASELINE_WINDOWS: usize = 60;
/// The maximum number of moments; the cheapest go first.
const MAX_MOMENTS: usize = 50;

/// A moment at which something changed.
#[derive(Clone, Debug)]
pub struct ScanMoment {
    /// The windows in which it began.
    pub span: Span,
    /// What changed.
    pub changes: Changes,
}

/// Reads windows by time and finds the moments of change among those from a point in time on.
#[derive(Debug)]
pub struct Scan<'a> {
    events: &'a [Event],
    alpha: f64,
    /// Windows of the baseline, and then of the block that is not complete yet.
    windows: Vec<HistoryWindow>,
    /// Where the block begins.
    block: usize,
    /// What changed in the last blocks: it goes on, and is not reported again.
    known: HashSet<ChangeId>,
    moments: Vec<ScanMoment>,
}

/// What makes two changes the same.
type ChangeId = (&'static str, Endpoint, String);

impl<'a> Scan<'a> {
    /// A scan whose false alarms have the probability `alpha` over all of `windows` windows together.
    pub fn new(events: &'a [Event], alpha: f64, windows: usize) -> Self {
        let blocks = windows.div_ceil(RECENT_WINDOWS - 1).max(1);
        Self {
            events,
            alpha: alpha / blocks as f64,
            windows: Vec::new(),
            block: 0,
            known: HashSet::new(),
            moments: Vec::new(),
        }
    }

    /// Adds a window of the time before the span, which is only compared with.
    pub fn push_before(&mut self, window: HistoryWindow) {
        self.windows.push(window);
        self.block = self.windows.len();
        self.forget();
    }

    /// Adds the next window.
    pub fn push(&mut self, window: HistoryWindow) {
        self.windows.push(window);
        if self.windows.len() - self.block >= RECENT_WINDOWS {
            self.compare();
        }
    }

    /// The moments of change, by time.
    pub fn finish(mut self) -> Vec<ScanMoment> {
        if self.windows.len() > self.block + 1 {
            self.compare();
        }
        self.join_repeated();
        let cost =
            |moment: &ScanMoment| moment.changes.changes.iter().map(|one| one.cost_ns.abs()).sum::<f64>();
        if self.moments.len() > MAX_MOMENTS {
            self.moments.sort_by(|a, b| cost(b).total_cmp(&cost(a)));
            self.moments.truncate(MAX_MOMENTS);
            self.moments.sort_by_key(|moment| moment.span.from);
        }
        self.moments
    }

    /// Removes a change from a moment if the next one has it too, with more effects.
    fn join_repeated(&mut self) {
        for at in 1..self.moments.len() {
            let (before, after) = self.moments.split_at_mut(at);
            let (Some(earlier), Some(later)) = (before.last_mut(), after.first()) else { continue };
            let later: HashSet<ChangeId> = later.changes.changes.iter().flat_map(ids).collect();
            earlier.changes.changes.retain(|one| !ids(one).iter().all(|id| later.contains(id)));
        }
        self.moments.retain(|moment| !moment.changes.is_empty());
    }

    fn compare(&mut self) {
        let (before, after) = self.windows.split_at(self.block);
        if before.len() >= MIN_WINDOWS {
            let input = ChangeInput { before, after, events: self.events, alpha: self.alpha };
            let mut changes = find(&input, None);
            let found: HashSet<_> = changes.changes.iter().flat_map(ids).collect();
            changes.changes.retain(|one| !ids(one).iter().all(|id| self.known.contains(id)));
            let is_bad = changes.context.iter().any(|one| match &one.what {
                ChangeKind::Series(series) => {
                    series.judged.is_some_and(|(_, [was, is])| is == FigureVerdict::Red && is > was)
                }
                _ => false,
            });
            self.known = found;
            if let (Some(first), Some(last)) = (after.first(), after.last())
                && (!changes.changes.is_empty() || is_bad)
            {
                let span = Span { from: first.window.start, to: last.window.end };
                self.moments.push(ScanMoment { span, changes });
            }
        }
        // The last window begins the next block too: what began late in it has too little evidence yet.
        self.block = self.windows.len() - usize::from(after.len() >= RECENT_WINDOWS);
        self.forget();
    }

    /// Forgets windows that are too old to compare with.
    fn forget(&mut self) {
        let old = self.block.saturating_sub(BASELINE_WINDOWS);
        self.windows.drain(..old);
        self.block -= old;
    }
}

/// The ids of a change and of its effects.
fn ids(change: &Change) -> Vec<ChangeId> {
    let effects = change.effects.iter().flat_map(ids);
    ids_of(&change.what, change.server).into_iter().chain(effects).collect()
}

fn ids_of(what: &ChangeKind, server: Endpoint) -> Vec<ChangeId> {
    let id = |text: String| (what.name(), server, text);
    match what {
        ChangeKind::Event(events) => events
            .iter()
            .map(|event| id(format!("{:?} {} {}", event.kind, event.subject, event.at.unix_ns())))
            .collect(),
        ChangeKind::Application(app) => vec![id(format!("{} {}", app.name, app.driver.1))],
        ChangeKind::Shape(shape) => {
            // What is new runs more often than before, too.
            let same = |way: &ShapeWay| if *way == ShapeWay::MoreOften { ShapeWay::New } else { *way };
            shape.ways.iter().map(|way| id(format!("{} {}", shape.shape.id, same(way).name()))).collect()
        }
        ChangeKind::Errors(errors) => vec![id(format!("{} {}", errors.code, errors.namespace))],
        ChangeKind::Growth(series) | ChangeKind::Series(series) => {
            vec![id(format!("{} {}", series.key.name, series.key.metric))]
        }
    }
}
