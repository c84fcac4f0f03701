//! The state of servers, of the series of a window.

use std::collections::BTreeMap;

use super::metrics::{self, SeriesMetric};
use super::{HistoryWindow, SeriesKey, SeriesValue};
use crate::internals::{FIGURES, ServerGlance};
use crate::{Endpoint, Timestamp};

/// Figures that are older than this before the newest one of their server are no longer reported, in nanoseconds.
const STALE_NS: u64 = 30_000_000_000;

/// Puts a value into a glance.
type SetFigure = fn(&mut ServerGlance, f64);

/// Where each series goes.
fn setter(key: &SeriesKey) -> Option<SetFigure> {
    let setters: [(&str, SetFigure); 6] = [
        ("connections.open", |glance, value| glance.connections = Some(value as u64)),
        ("queues.readers", |glance, value| glance.queued_reads = Some(value as u64)),
        ("queues.writers", |glance, value| glance.queued_writes = Some(value as u64)),
        ("cache.used", |glance, value| glance.cache_used_percent = Some(value)),
        ("cache.dirty", |glance, value| glance.cache_dirty_percent = Some(value)),
        ("replication.lag", |glance, value| glance.lag_ms = Some(value as u64)),
    ];
    let of_figure = |id: &str| FIGURES.iter().find(|figure| figure.id == id).map(SeriesMetric::of_figure);
    let is_of = |metric: &SeriesMetric| (key.subject, &*key.metric) == (metric.subject, metric.name);
    if is_of(&metrics::PROCESS_MEMORY) {
        return Some(|glance, value| glance.resident_bytes = Some(value as u64));
    }
    let found = setters.into_iter().find(|(id, _)| of_figure(id).is_some_and(|metric| is_of(&metric)));
    found.map(|(_, set)| set)
}

impl HistoryWindow {
    /// The last state of each server within the window, as far as it has series of it.
    pub fn last_states(&self) -> BTreeMap<Endpoint, ServerGlance> {
        let figures = || {
            let known = self.series.iter().filter(|(key, value)| key.server.port != 0 && value.seconds > 0.0);
            known.filter_map(|(key, value)| Some((key.server, value, setter(key)?)))
        };
        let mut newest = BTreeMap::<Endpoint, Timestamp>::new();
        for (server, SeriesValue { last_at, .. }, _) in figures() {
            let at = newest.entry(server).or_default();
            *at = (*at).max(*last_at);
        }
        let mut states = BTreeMap::<Endpoint, ServerGlance>::new();
        for (server, value, set) in figures() {
            let at = newest.get(&server).copied().unwrap_or_default();
            if at.since(value.last_at) <= STALE_NS {
                let state =
                    states.entry(server).or_insert_with(|| ServerGlance { at, ..ServerGlance::default() });
                set(state, value.last.max(0.0));
            }
        }
        states
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Resolution, SeriesSubject};

    #[test]
    fn the_last_state_of_a_server_is_that_of_its_series() {
        let at = |second: u64| Timestamp::from_unix(1_000 + second, 0);
        let mut window = HistoryWindow::new(at(0), Resolution::Minute);
        let [one, other] = [27_017, 27_018].map(|port| Endpoint::v4([0; 4], port));
        let figure = |id: &str, server| {
            let figure = FIGURES.iter().find(|figure| figure.id == id).expect("a figure");
            SeriesMetric::of_figure(figure).key(server, "")
        };
        let memory = metrics::PROCESS_MEMORY.key(one, "");
        for (key, second, value) in [
            (figure("connections.open", one), 1, 900.0),
            (figure("connections.open", one), 55, 214.0),
            (figure("cache.used", one), 55, 78.2),
            (figure("cache.dirty", one), 55, 4.1),
            (figure("queues.readers", one), 54, 40.0),
            (figure("queues.readers", one), 55, 3.0),
            (figure("queues.writers", one), 55, 0.0),
            (figure("operations.queries", one), 58, 1.0),
            (memory, 50, 3e9),
            // It is no longer a member of a replica set.
            (figure("replication.lag", one), 20, 5_000.0),
            (figure("replication.lag", other), 20, 1_200.0),
            (metrics::THREADS_COUNT.key(other, "other"), 59, 7.0),
            (metrics::LOAD.key(Endpoint::default(), ""), 59, 1.0),
        ] {
            window.sample(&key, at(second), value, 1.0);
        }
        assert!(window.series.keys().any(|key| key.subject == SeriesSubject::Machine));
        let first = ServerGlance {
            at: at(55),
            connections: Some(214),
            queued_reads: Some(3),
            queued_writes: Some(0),
            cache_used_percent: Some(78.2),
            cache_dirty_percent: Some(4.1),
            resident_bytes: Some(3_000_000_000),
            ..ServerGlance::default()
        };
        let second = ServerGlance { at: at(20), lag_ms: Some(1_200), ..ServerGlance::default() };
        assert_eq!(window.last_states(), [(one, first), (other, second)].into());
        assert_eq!(HistoryWindow::new(at(0), Resolution::Minute).last_states(), BTreeMap::new());
    }
}
