//! What was seen of a span, and what was lost: both belong to what is said about it.

use sonar_core::history::{Collector, HistoryWindow};
use sonar_core::{Coverage, Source};

use crate::kit::{Grouped, Percent, plural};

/// The most losses that a sentence names.
const MAX_NAMED: usize = 3;

/// How much of a span was observed, and what was lost in it.
#[derive(Clone, Debug, Default)]
pub struct SeenSpan {
    windows: usize,
    observed_ns: [u64; Collector::ALL.len()],
    coverage: Coverage,
}

impl SeenSpan {
    /// Adds a window that was observed.
    pub fn add(&mut self, window: &HistoryWindow) {
        self.windows += 1;
        for (mine, theirs) in self.observed_ns.iter_mut().zip(&window.observed_ns) {
            *mine = mine.saturating_add(*theirs);
        }
        self.coverage.add(&window.window.coverage);
    }

    /// The number of windows.
    pub const fn windows(&self) -> usize {
        self.windows
    }

    /// What was lost, by name.
    pub(super) fn lost(&self) -> Vec<(&'static str, u64)> {
        self.coverage.losses().map(|(name, _, count)| (name, count)).collect()
    }

    /// What a reader must know before the changes.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let observes =
            |source| Collector::of(source).is_some_and(|collector| self.observed_ns[collector as usize] > 0);
        if !Source::ALL.into_iter().any(observes) {
            notes.push("Queries were not observed: nothing is known of how they changed.".to_owned());
        }
        notes.extend(self.losses());
        notes
    }

    fn losses(&self) -> Option<String> {
        let drops = self.coverage.kernel_drops;
        let mut parts = Vec::new();
        if drops > 0 {
            let all = self.coverage.frames.saturating_add(drops);
            parts.push(format!(
                "the kernel dropped {} of {} ({:.1}) because the ring was full",
                Grouped(drops),
                plural(Grouped(all), "packet"),
                Percent(drops as f64 / all as f64)
            ));
        }
        // Freezes are those of the ring that dropped packets, and bytes those of gaps.
        const COUNTED_OTHERWISE: [&str; 4] = ["kernel_drops", "kernel_freezes", "gap_bytes", "resync_bytes"];
        let mut others: Vec<_> =
            self.coverage.losses().filter(|(name, ..)| !COUNTED_OTHERWISE.contains(name)).collect();
        others.sort_by_key(|(.., count)| std::cmp::Reverse(*count));
        let hidden = others.len().saturating_sub(MAX_NAMED);
        for (name, meaning, count) in others.into_iter().take(MAX_NAMED) {
            let meaning = meaning.split([':', ';', '.']).next().unwrap_or(name).trim();
            let mut letters = meaning.chars();
            let first = letters.next().map(|letter| letter.to_ascii_lowercase());
            let meaning: String = first.into_iter().chain(letters).collect();
            parts.push(format!("{} ({meaning})", Grouped(count)));
        }
        if hidden > 0 {
            parts.push(format!("and {} (see --json)", plural(hidden, "more kind")));
        }
        (!parts.is_empty()).then(|| {
            format!(
                "Lost in this time: {}. Figures of queries are too low by that, and what was seen only then may be \
                 missing.",
                parts.join(", ")
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
        window.observe(Collector::Machine, 10_000_000_000);
        change(&mut window);
        let mut seen = SeenSpan::default();
        seen.add(&window);
        seen
    }

    #[test]
    fn packets_that_were_dropped_are_mentioned_with_their_share() {
        let seen = seen(|window| {
            window.observe(Collector::Queries, 10_000_000_000);
            (window.window.coverage.frames, window.window.coverage.kernel_drops) = (1_500_000, 500_000);
        });
        let notes = seen.notes();
        let [note] = notes.as_slice() else { panic!("{notes:?}") };
        assert!(note.contains("dropped 500,000 of 2,000,000 packets (25.0%)"), "{note}");
        assert_eq!(seen.lost(), [("kernel_drops", 500_000)]);
    }

    #[test]
    fn other_losses_are_named_in_words() {
        let seen = seen(|window| {
            window.observe(Collector::Log, 10_000_000_000);
            window.window.coverage.requests_reply_lost = 3;
        });
        let note = seen.notes().concat();
        assert!(note.contains("3 (requests whose reply was lost)"), "{note}");
    }

    #[test]
    fn queries_that_were_not_observed_are_mentioned() {
        let notes = seen(|_| {}).notes();
        assert_eq!(notes, ["Queries were not observed: nothing is known of how they changed."]);
        assert!(seen(|window| window.observe(Collector::Log, 1)).notes().is_empty());
    }
}
