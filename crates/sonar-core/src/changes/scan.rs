//! Finds the moments of change in a long span: each few windows are compared with those before them.

use std::collections::HashSet;

use super::change::{ChangeKind, HistoryChange, HistoryChanges, ShapeWay};
use super::find::find;
use super::sides::{ChangeInput, ComparisonKind, MIN_WINDOWS, RECENT_WINDOWS};
use crate::history::{Event, HistoryWindow, Span, namespace_of};
use crate::internals::FigureVerdict;
use crate::{Endpoint, Timestamp};

/// How many windows before a moment it is compared with, at most.
pub const BASELINE_WINDOWS: usize = 60;
/// With more windows, every second one begins a block.
const MAX_FINE: usize = 400;
/// The maximum number of moments; the cheapest go first.
const MAX_MOMENTS: usize = 50;

/// A moment at which something changed.
#[derive(Clone, Debug)]
pub struct ScanMoment {
    /// The windows in which it began.
    pub span: Span,
    /// Over how long the costs of its changes were measured, in nanoseconds; at least as long as the span.
    pub measured_ns: u64,
    /// What changed.
    pub changes: HistoryChanges,
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
    /// How many windows the next block begins later.
    step: usize,
    /// What changed in the last blocks: it goes on, and is not reported again.
    known: HashSet<ChangeId>,
    moments: Vec<ScanMoment>,
    /// Whether any block had enough before it to be compared with.
    has_compared: bool,
}

/// What makes two changes the same.
pub(super) type ChangeId = (&'static str, Endpoint, String);

impl<'a> Scan<'a> {
    /// A scan whose false alarms have the probability `alpha` over all of `windows` windows together.
    pub fn new(events: &'a [Event], alpha: f64, windows: usize) -> Self {
        // What begins late in a block has little evidence there, so blocks overlap.
        let step = if windows <= MAX_FINE { 1 } else { RECENT_WINDOWS - 1 };
        let blocks = windows.div_ceil(step).max(1);
        Self {
            events,
            alpha: alpha / blocks as f64,
            windows: Vec::new(),
            block: 0,
            step,
            known: HashSet::new(),
            moments: Vec::new(),
            has_compared: false,
        }
    }

    /// Whether anything can be compared: the last block, which [`Self::finish`] compares, included.
    pub fn has_compared(&self) -> bool {
        self.has_compared || (self.block >= MIN_WINDOWS && self.windows.len() > self.block + self.step)
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
        if self.windows.len() > self.block + self.step {
            self.compare();
        }
        costliest(without_repetitions(self.moments))
    }

    fn compare(&mut self) {
        let (before, after) = self.windows.split_at(self.block);
        if before.len() >= MIN_WINDOWS {
            self.has_compared = true;
            let input = ChangeInput { before, after, later: &[], events: self.events, alpha: self.alpha };
            let mut changes = find(&input, ComparisonKind::Block);
            let found: HashSet<_> = changes.changes.iter().flat_map(ids).collect();
            changes.changes.retain(|one| !ids(one).iter().all(|id| self.known.contains(id)));
            let is_bad = has_problem(&changes);
            self.known = found;
            if let (Some(first), Some(last)) = (after.first(), after.last())
                && (!changes.changes.is_empty() || is_bad)
            {
                let span = Span { from: first.window.start, to: last.window.end };
                self.moments.push(ScanMoment { span, measured_ns: span.length_ns(), changes });
            }
        }
        self.block = (self.block + self.step).min(self.windows.len());
        self.forget();
    }

    /// Forgets windows that are too old to compare with.
    fn forget(&mut self) {
        let old = self.block.saturating_sub(BASELINE_WINDOWS);
        self.windows.drain(..old);
        self.block -= old;
    }
}

/// The costliest moments, by time: as many as a scan has at most.
pub fn costliest(mut moments: Vec<ScanMoment>) -> Vec<ScanMoment> {
    let cost = |moment: &ScanMoment| moment.changes.changes.iter().map(|one| one.cost_ns.abs()).sum::<f64>();
    if moments.len() > MAX_MOMENTS {
        moments.sort_by(|a, b| cost(b).total_cmp(&cost(a)));
        moments.truncate(MAX_MOMENTS);
        moments.sort_by_key(|moment| moment.span.from);
    }
    moments
}

/// Leaves a change that neighbouring moments have only where it costs most, and joins moments of the same span.
pub fn without_repetitions(moments: Vec<ScanMoment>) -> Vec<ScanMoment> {
    let mut all: Vec<ScanMoment> = Vec::new();
    for mut moment in moments {
        for earlier in all.iter_mut().rev().take(2 * RECENT_WINDOWS) {
            let is_near = earlier.span.to >= moment.span.from;
            let is_same = |one: &HistoryChange, other: &HistoryChange| {
                // An event has its time in its id; the same change of a shape may come again later.
                let may_be = is_near || matches!(one.what, ChangeKind::Event(_));
                let ids = ids_of(&one.what, one.server);
                may_be && ids_of(&other.what, other.server).iter().any(|id| ids.contains(id))
            };
            let costs = |change: &HistoryChange| change.cost_ns.abs();
            let is_better = |own: &HistoryChange, other: &HistoryChange| costs(other) > costs(own);
            let later = &moment.changes.changes;
            let list = &mut earlier.changes.changes;
            list.retain(|own| !later.iter().any(|other| is_same(own, other) && is_better(own, other)));
            moment.changes.changes.retain(|own| !list.iter().any(|other| is_same(own, other)));
        }
        match all.last_mut() {
            Some(last) if last.span == moment.span => {
                last.changes.changes.append(&mut moment.changes.changes);
            }
            _ => all.push(moment),
        }
    }
    // Without a change, a problem of the server counts once.
    let mut until = Timestamp::default();
    all.retain(|moment| {
        let is_new = moment.span.from > until;
        until = moment.span.to;
        !moment.changes.changes.is_empty() || (is_new && has_problem(&moment.changes))
    });
    all
}

/// Removes the changes of a moment that began in `window` and that `again` has, too: what was measured from that window on.
pub fn without_changes_of(moment: &mut ScanMoment, window: Span, again: &ScanMoment) {
    let told = again.changes.changes.iter();
    let told: HashSet<ChangeId> = told.flat_map(|change| ids_of(&change.what, change.server)).collect();
    let is_told = |change: &HistoryChange| {
        window.contains(change.since)
            && ids_of(&change.what, change.server).iter().any(|id| told.contains(id))
    };
    moment.changes.changes.retain(|change| !is_told(change));
}

/// Whether a judged figure of the server went over its red limit.
fn has_problem(changes: &HistoryChanges) -> bool {
    changes.context.iter().any(|one| match &one.what {
        ChangeKind::Series(series) => {
            series.judged.is_some_and(|(_, [was, is])| is == FigureVerdict::Red && is > was)
        }
        _ => false,
    })
}

/// The ids of a change and of its effects.
pub(super) fn ids(change: &HistoryChange) -> Vec<ChangeId> {
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
        ChangeKind::Application(app) => {
            let way = if app.has_ended { "ended" } else { &*app.driver.1 };
            vec![id(format!("{} {way}", app.name))]
        }
        ChangeKind::Shape(shape) => {
            // What is new runs more often than before, too.
            let same = |way: &ShapeWay| if *way == ShapeWay::MoreOften { ShapeWay::New } else { *way };
            shape.ways.iter().map(|way| id(format!("{} {}", shape.shape.id, same(way).name()))).collect()
        }
        ChangeKind::Errors(errors) => vec![id(format!("{} {}", errors.code, errors.namespace))],
        ChangeKind::Growth(growth) => vec![id(namespace_of(&growth.grown.key).into_owned())],
        ChangeKind::Server(change) => {
            let levels = change.levels.iter().map(|level| {
                let way = if level.after > level.before { "more" } else { "less" };
                id(format!("{} {way}", level.measure.name()))
            });
            let new = change.has_unusually_many_new_shapes.then(|| id("new shapes".to_owned()));
            levels.chain(new).collect()
        }
        ChangeKind::Machine(what) => vec![id(format!("{} {}", what.cause.name(), what.name))],
        ChangeKind::Series(series) => {
            vec![id(format!("{} {}", series.key.name, series.key.metric))]
        }
    }
}
