//! Figures of the machine and of servers that moved because the load did are effects of what moved it.

use super::causes::is_end_of_server;
use super::change::{ChangeKind, HistoryChange, SeriesChange};
use super::machine;
use super::servers::CONNECTIONS;
use crate::files::ThreadRole;
use crate::history::{EventKind, SeriesKey, metrics};

/// A change moves the figures if it has this share of the time of all changes.
const MIN_SHARE: f64 = 0.5;

/// Hands the series that a change moved to that change, behind its other effects, and returns the rest of `context`.
pub(super) fn with_changes(changes: &mut [HistoryChange], context: Vec<HistoryChange>) -> Vec<HistoryChange> {
    let total: f64 = changes.iter().map(|change| change.cost_ns.abs()).sum();
    let is_large = |change: &HistoryChange| change.cost_ns.abs() >= MIN_SHARE * total;
    let mover = changes.iter().position(|change| load(change).is_some() && is_large(change));
    let mut rest = Vec::new();
    for one in context {
        let ChangeKind::Series(series) = &one.what else { continue };
        let is_told = changes.iter().any(|change| match &change.what {
            ChangeKind::Machine(what) => machine::is_about(what, change.server, &series.key),
            _ => false,
        });
        if is_told {
            continue;
        }
        // Who opened connections is known of those of a storm.
        let storm = changes.iter().position(|change| {
            is_of_connections(series)
                && is_storm(change)
                && is_about(change, &one)
                && series.after > series.before
        });
        let moved_by = |at: &usize| Some(*at) == storm || moves(&changes[*at], &one, series);
        match storm.or(mover).filter(moved_by) {
            Some(at) => changes[at].effects.push(one),
            None => rest.push(one),
        }
    }
    rest
}

/// Whether a change is one of the whole load of a server, upwards or not.
fn load(change: &HistoryChange) -> Option<bool> {
    match &change.what {
        ChangeKind::Application(app) if app.has_ended => Some(false),
        ChangeKind::Application(app) if app.versions_before.is_empty() => Some(true),
        ChangeKind::Event(events) if events.iter().any(|event| is_end_of_server(event.kind)) => Some(false),
        _ => None,
    }
}

/// Whether a series counts connections, or what serves them.
fn is_of_connections(series: &SeriesChange) -> bool {
    let SeriesKey { metric, name, .. } = &series.key;
    let is_of_clients = **metric == *metrics::THREADS_COUNT.name && **name == *ThreadRole::Client.name();
    is_of_clients || [CONNECTIONS, metrics::TCP_CONNECTIONS.name].contains(&&**metric)
}

fn is_storm(change: &HistoryChange) -> bool {
    matches!(&change.what, ChangeKind::Event(events)
        if events.iter().any(|event| event.kind == EventKind::ConnectionStorm))
}

/// Whether a series is of the server of a change, or of the machine.
fn is_about(change: &HistoryChange, one: &HistoryChange) -> bool {
    one.server == change.server || one.server.port == 0
}

fn moves(mover: &HistoryChange, one: &HistoryChange, series: &SeriesChange) -> bool {
    let is_free =
        [metrics::MEMORY_AVAILABLE.name, metrics::FILE_SYSTEM_FREE_BYTES.name].contains(&&*series.key.metric);
    let is_more = (series.after > series.before) != is_free;
    let is_near = is_about(mover, one);
    // What got worse is news, whatever it came with.
    let is_worse = series.judged.is_some_and(|(_, [before, after])| after > before);
    is_near && !is_worse && load(mover) == Some(is_more)
}
