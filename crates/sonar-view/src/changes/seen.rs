//! What was seen of a span, and what was lost: both belong to what is said about it.

use std::collections::BTreeMap;

use sonar_core::history::{CollectorKind, HistoryWindow, metrics};
use sonar_core::{Coverage, Endpoint, Source};

use crate::kit::{Nanos, losses, plural, server_address};

/// The most losses that a sentence names.
const MAX_NAMED: usize = 3;

/// How much of a span was observed, and what was lost in it.
#[derive(Clone, Debug, Default)]
pub struct SeenSpan {
    windows: usize,
    observed_ns: [u64; CollectorKind::ALL.len()],
    coverage: Coverage,
    /// By server: how long its log could not be read, in nanoseconds.
    unread: BTreeMap<Endpoint, u64>,
}

impl SeenSpan {
    /// Adds a window that was observed.
    pub fn add(&mut self, window: &HistoryWindow) {
        self.windows += 1;
        for (mine, theirs) in self.observed_ns.iter_mut().zip(&window.observed_ns) {
            *mine = mine.saturating_add(*theirs);
        }
        self.coverage.add(&window.window.coverage);
        let observed = window.observed_ns(CollectorKind::Log);
        for key in window.series.keys().filter(|key| metrics::is_loss(key)) {
            let missed = observed - window.observed_of(CollectorKind::Log, key.server);
            *self.unread.entry(key.server).or_default() += missed;
        }
    }

    /// Adds what was seen of other windows.
    pub fn merge(&mut self, other: &Self) {
        self.windows += other.windows;
        for (mine, theirs) in self.observed_ns.iter_mut().zip(&other.observed_ns) {
            *mine = mine.saturating_add(*theirs);
        }
        self.coverage.add(&other.coverage);
        for (server, ns) in &other.unread {
            *self.unread.entry(*server).or_default() += ns;
        }
    }

    /// The number of windows.
    pub const fn windows(&self) -> usize {
        self.windows
    }

    /// What was lost, by name.
    pub(super) fn lost(&self) -> Vec<(&'static str, u64)> {
        self.coverage.losses().map(|(name, _, count)| (name, count)).collect()
    }

    /// What a reader of changes or of a comparison must know first, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let observes = |source| {
            CollectorKind::of(source).is_some_and(|collector| self.observed_ns[collector as usize] > 0)
        };
        if !Source::ALL.into_iter().any(observes) {
            notes.push("Queries were not observed: nothing is known of how they changed.".to_owned());
        }
        // Where the wire was observed, it shows the queries.
        if self.observed_ns[CollectorKind::Queries as usize] == 0 {
            let note = |(server, ns): (&Endpoint, &u64)| {
                let name = server_address(*server).unwrap_or_else(|| format!("on port {}", server.port));
                let time = Nanos(*ns);
                format!(
                    "The log of the server {name} could not be read for {time} of this time: nothing is known of its \
                     queries then."
                )
            };
            notes.extend(self.unread.iter().take(MAX_NAMED).map(note));
        }
        notes.extend(self.losses());
        notes
    }

    fn losses(&self) -> Option<String> {
        let mut parts = losses(&self.coverage);
        let hidden = parts.len().saturating_sub(MAX_NAMED);
        parts.truncate(MAX_NAMED);
        if hidden > 0 {
            parts.push(format!("and {} (see --json)", plural(hidden, "more kind")));
        }
        (!parts.is_empty()).then(|| {
            format!(
                "Lost in this time: {}. Figures of queries are too low by that, and what was seen only then may be \
                 missing.",
                parts.join("; ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sonar_core::Timestamp;
    use sonar_core::history::Resolution;

    fn seen(change: impl Fn(&mut HistoryWindow)) -> SeenSpan {
        let mut window = HistoryWindow::new(Timestamp::from_unix(100, 0), Resolution::TenSeconds);
        window.observe(CollectorKind::Machine, 10_000_000_000);
        change(&mut window);
        let mut seen = SeenSpan::default();
        seen.add(&window);
        seen
    }

    #[test]
    fn packets_that_were_dropped_are_mentioned_with_their_number() {
        let seen = seen(|window| {
            window.observe(CollectorKind::Queries, 10_000_000_000);
            (window.window.coverage.frames, window.window.coverage.kernel_drops) = (1_500_000, 500_000);
        });
        let notes = seen.notes();
        let [note] = notes.as_slice() else { panic!("{notes:?}") };
        assert!(note.contains("because the ring was full: 500,000 of 2,000,000 packets"), "{note}");
        assert_eq!(seen.lost(), [("kernel_drops", 500_000)]);
    }

    #[test]
    fn other_losses_are_named_in_words() {
        let seen = seen(|window| {
            window.observe(CollectorKind::Log, 10_000_000_000);
            (window.window.coverage.requests, window.window.coverage.requests_reply_lost) = (40, 3);
        });
        let note = seen.notes().concat();
        assert!(note.contains("requests whose reply was lost: 3 of 40 requests"), "{note}");
    }

    #[test]
    fn a_log_that_could_not_be_read_is_mentioned_where_nothing_else_shows_queries() {
        let unread = |window: &mut HistoryWindow| {
            window.observe(CollectorKind::Log, 10_000_000_000);
            window.miss_log(sonar_core::Endpoint::v4([0; 4], 27_018), 4_000_000_000);
        };
        let notes = seen(unread).notes();
        let [note] = notes.as_slice() else { panic!("{notes:?}") };
        assert!(
            note.starts_with("The log of the server on port 27018 could not be read for 4.00s of"),
            "{note}"
        );
        let with_wire = seen(|window| {
            unread(window);
            window.observe(CollectorKind::Queries, 10_000_000_000);
        });
        assert_eq!(with_wire.notes(), [""; 0]);
    }

    #[test]
    fn queries_that_were_not_observed_are_mentioned() {
        let notes = seen(|_| {}).notes();
        assert_eq!(notes, ["Queries were not observed: nothing is known of how they changed."]);
        assert!(seen(|window| window.observe(CollectorKind::Log, 1)).notes().is_empty());
    }
}
