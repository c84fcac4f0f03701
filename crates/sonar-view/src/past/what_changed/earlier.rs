//! When applications that are new ran before: a moment is compared with some minutes, and the history knows more.

use sonar_core::changes::{ApplicationChange, ChangeKind, HistoryChange, ScanMoment, last_run};
use sonar_core::history::Span;
use sonar_core::{Endpoint, Timestamp};

use crate::past::{HistoryView, PastError, resolution};

const HOUR_NS: u64 = 3_600_000_000_000;
/// How far back is searched, in nanoseconds: as long as an agent remembers applications.
const REACH_NS: u64 = 30 * 24 * HOUR_NS;

/// An application that is new, or new again.
struct NewRun {
    server: Endpoint,
    name: Box<str>,
    since: Timestamp,
    /// When it was last seen before.
    last: Option<Timestamp>,
}

/// Says of each new application in these moments how long before it was last seen, if it was.
pub(super) fn with_earlier_runs(
    history: &HistoryView<'_>,
    moments: &mut [ScanMoment],
) -> Result<(), PastError> {
    let mut runs = Vec::new();
    visit_new(moments, &mut |server, since, app| {
        runs.push(NewRun { server, name: app.name.clone(), since, last: None });
    });
    // No window is longer than an hour: all that the one of the beginning may hide is within the hour before.
    for run in &mut runs {
        search(history, before(run.since, HOUR_NS), std::slice::from_mut(run))?;
    }
    if let Some(latest) = runs.iter().filter(|run| run.last.is_none()).map(|run| run.since).max() {
        let first = history.extent().from.max(before(latest, REACH_NS).from);
        let (mut to, mut length) = (before(latest, HOUR_NS).from, HOUR_NS);
        while to > first && runs.iter().any(|run| run.last.is_none()) {
            length = length.saturating_mul(2);
            let span = before(to, length);
            search(history, span, &mut runs)?;
            to = span.from;
        }
    }
    let mut runs = runs.into_iter();
    visit_new(moments, &mut |_, since, app| {
        let last = runs.next().and_then(|run| run.last);
        app.pause_ns = last.map(|last| since.since(last));
    });
    Ok(())
}

/// Visits the new applications of moments in an order that is always the same.
fn visit_new(moments: &mut [ScanMoment], visit: &mut dyn FnMut(Endpoint, Timestamp, &mut ApplicationChange)) {
    fn of(change: &mut HistoryChange, visit: &mut dyn FnMut(Endpoint, Timestamp, &mut ApplicationChange)) {
        match &mut change.what {
            ChangeKind::Application(app) if !app.has_ended && app.versions_before.is_empty() => {
                visit(change.server, change.since, app);
            }
            _ => {}
        }
        change.effects.iter_mut().for_each(|effect| of(effect, visit));
    }
    moments.iter_mut().flat_map(|moment| &mut moment.changes.changes).for_each(|change| of(change, visit));
}

/// Looks in a span for the last operations before each run that has none yet.
fn search(history: &HistoryView<'_>, span: Span, runs: &mut [NewRun]) -> Result<(), PastError> {
    let mut found: Vec<Option<Timestamp>> = vec![None; runs.len()];
    history.visit_operations(span, resolution(span), &mut |window| {
        for (run, found) in runs.iter().zip(&mut found).filter(|(run, _)| run.last.is_none()) {
            let last = last_run(&window, run.server, &run.name).filter(|last| *last < run.since);
            *found = last.max(*found);
        }
    })?;
    for (run, found) in runs.iter_mut().zip(found) {
        run.last = run.last.or(found);
    }
    Ok(())
}

/// So many nanoseconds before a point in time.
fn before(to: Timestamp, ns: u64) -> Span {
    Span { from: to.minus_ns(ns), to }
}
