//! Times of a span in which nothing, or not everything, was observed.

use super::{CollectorKind, ObservedSpan, Span};
use crate::Timestamp;

/// A time that was not observed, or only in part.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct HistoryGap {
    /// When.
    pub span: Span,
    /// The collector that did not observe; `None` if none did.
    pub collector: Option<CollectorKind>,
    /// The share of the span that was observed nevertheless, 0 to 1: a window of an hour does not say which minutes are
    /// missing.
    pub observed: f64,
}

/// A window counts as observed from this share of its length on: collectors do not begin on its boundaries.
const MIN_SHARE: f64 = 0.9;

/// The shares of a window that each collector observed.
type Shares = [f64; CollectorKind::ALL.len()];

/// Finds the gaps of a span from its windows.
#[derive(Clone, Debug)]
pub struct GapFinder {
    span: Span,
    windows: Vec<(Span, Shares)>,
}

impl GapFinder {
    /// For the windows of `span`, which are added by time.
    pub const fn new(span: Span) -> Self {
        Self { span, windows: Vec::new() }
    }

    /// Adds a window.
    pub fn add(&mut self, window: &ObservedSpan) {
        let length = window.span.length_ns() as f64;
        let shares = window.observed_ns.map(|ns| ns as f64 / length);
        self.windows.push((window.span, shares));
    }

    /// The gaps by time: of all collectors, and of each one that observed something in the span.
    pub fn finish(self) -> Vec<HistoryGap> {
        let mut gaps = Vec::new();
        self.collect(&best, None, &mut gaps);
        for collector in CollectorKind::ALL {
            self.collect_own(collector, &mut gaps);
        }
        gaps.sort_by_key(|gap| gap.span.from);
        gaps
    }

    /// The gaps by time in what this collector observed. Those of all collectors have its own share, unless it observed
    /// nothing in the span.
    pub fn finish_of(self, collector: CollectorKind) -> Vec<HistoryGap> {
        let mut gaps = Vec::new();
        let has_observed = self.has_observed(collector);
        let share = |shares: &Shares| {
            let best = best(shares);
            if best < MIN_SHARE && has_observed { shares[collector as usize] } else { best }
        };
        self.collect(&share, None, &mut gaps);
        self.collect_own(collector, &mut gaps);
        gaps.sort_by_key(|gap| gap.span.from);
        gaps
    }

    fn has_observed(&self, collector: CollectorKind) -> bool {
        self.windows.iter().any(|(_, shares)| shares[collector as usize] > 0.0)
    }

    /// Adds the times in which this collector observed too little and another one did not, if it observed anything.
    fn collect_own(&self, collector: CollectorKind, gaps: &mut Vec<HistoryGap>) {
        if self.has_observed(collector) {
            // Where no collector observed more, the gap has been named.
            let behind =
                |shares: &Shares| if best(shares) < MIN_SHARE { 1.0 } else { shares[collector as usize] };
            let mut found = Vec::new();
            self.collect(&behind, Some(collector), &mut found);
            found.retain(|gap| !is_covered(gap, gaps));
            gaps.extend(found);
        }
    }

    /// Adds the times in which `share` is too small, or for which there is no window.
    fn collect(
        &self,
        share: &dyn Fn(&Shares) -> f64,
        collector: Option<CollectorKind>,
        gaps: &mut Vec<HistoryGap>,
    ) {
        let first = gaps.len();
        let mut add = |from: Timestamp, to: Timestamp, observed: f64| {
            if to <= from {
                return;
            }
            match gaps[first..].last_mut() {
                Some(last) if last.span.to == from => {
                    let [before, more] = [last.span.length_ns(), to.since(from)].map(|ns| ns as f64);
                    last.observed = (last.observed * before + observed * more) / (before + more);
                    last.span.to = to;
                }
                _ => gaps.push(HistoryGap { span: Span { from, to }, collector, observed }),
            }
        };
        let mut until = self.span.from;
        for (span, shares) in &self.windows {
            add(until, span.from.min(self.span.to), 0.0);
            let (from, to, share) = (span.from.max(until), span.to.min(self.span.to), share(shares));
            if share < MIN_SHARE {
                add(from, to, share);
            }
            until = until.max(to);
        }
        add(until, self.span.to, 0.0);
    }
}

/// The share of the collector that observed most.
fn best(shares: &Shares) -> f64 {
    shares.iter().copied().fold(0.0, f64::max)
}

/// Whether one of the gaps of all collectors covers this one.
fn is_covered(gap: &HistoryGap, gaps: &[HistoryGap]) -> bool {
    let covers = |one: &HistoryGap| one.span.from <= gap.span.from && one.span.to >= gap.span.to;
    gaps.iter().any(|one| one.collector.is_none() && covers(one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{HistoryWindow, Resolution};

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix(seconds, 0)
    }

    fn window(seconds: u64, collectors: &[CollectorKind]) -> HistoryWindow {
        let mut window = HistoryWindow::new(at(seconds), Resolution::TenSeconds);
        collectors.iter().for_each(|one| window.observe(*one, 10_000_000_000));
        window
    }

    fn gaps(windows: &[HistoryWindow]) -> Vec<(u64, u64, Option<CollectorKind>)> {
        let mut finder = GapFinder::new(Span { from: at(100), to: at(150) });
        windows.iter().for_each(|window| finder.add(&ObservedSpan::of(window)));
        let second = |at: Timestamp| at.unix_ns() / 1_000_000_000;
        finder
            .finish()
            .iter()
            .map(|gap| (second(gap.span.from), second(gap.span.to), gap.collector))
            .collect()
    }

    #[test]
    fn gaps_are_where_no_window_or_no_collector_is() {
        use CollectorKind::{Log, Queries};
        let both = [Queries, Log];
        let all: Vec<_> = (10..15).map(|at| window(at * 10, &both)).collect();
        assert_eq!(gaps(&all), []);
        assert_eq!(gaps(&[]), [(100, 150, None)]);
        let parts = [window(100, &both), window(120, &[Log]), window(130, &both), window(140, &[])];
        assert_eq!(gaps(&parts), [(110, 120, None), (110, 130, Some(Queries)), (140, 150, None)]);
    }

    #[test]
    fn a_window_that_was_observed_in_part_is_a_gap_with_its_share() {
        let mut hour = HistoryWindow::new(at(3_600), Resolution::Hour);
        hour.observe(CollectorKind::Queries, 3_600_000_000_000 * 3 / 4);
        let mut finder = GapFinder::new(Span { from: at(3_600), to: at(7_200) });
        finder.add(&ObservedSpan::of(&hour));
        let gaps = finder.finish();
        assert_eq!((gaps.len(), gaps[0].collector, gaps[0].observed), (1, None, 0.75));
    }

    #[test]
    fn where_none_observed_all_a_collector_has_its_own_share() {
        use CollectorKind::{Log, Machine, Queries};
        let mut window = HistoryWindow::new(at(100), Resolution::TenSeconds);
        window.observe(Queries, 3_000_000_000);
        window.observe(Machine, 4_000_000_000);
        let gap = |collector| {
            let mut finder = GapFinder::new(Span { from: at(100), to: at(110) });
            finder.add(&ObservedSpan::of(&window));
            let gaps = finder.finish_of(collector);
            assert_eq!((gaps.len(), gaps[0].collector), (1, None));
            gaps[0].observed
        };
        assert_eq!([Queries, Machine, Log].map(gap), [0.3, 0.4, 0.4]);
    }

    #[test]
    fn a_collector_that_never_observed_has_no_gap() {
        let all: Vec<_> = (10..15).map(|at| window(at * 10, &[CollectorKind::Internals])).collect();
        assert_eq!(gaps(&all), []);
    }
}
