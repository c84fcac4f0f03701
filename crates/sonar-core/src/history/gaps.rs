//! Times of a span in which nothing, or not everything, was observed.

use super::{Collector, HistoryWindow, Span};

/// A time that was not observed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct HistoryGap {
    /// When.
    pub span: Span,
    /// The collector that did not observe; `None` if none did.
    pub collector: Option<Collector>,
}

/// A collector has a gap where it observed a smaller share of a window.
const MIN_SHARE: f64 = 0.5;

/// Finds the gaps of a span from its windows.
#[derive(Clone, Debug)]
pub struct GapFinder {
    span: Span,
    /// By window: its span, and which collectors observed it.
    windows: Vec<(Span, [bool; Collector::ALL.len()])>,
}

impl GapFinder {
    /// For the windows of `span`, which are added by time.
    pub const fn new(span: Span) -> Self {
        Self { span, windows: Vec::new() }
    }

    /// Adds a window.
    pub fn add(&mut self, window: &HistoryWindow) {
        let length = window.window.length_ns() as f64;
        let observed = Collector::ALL.map(|one| window.observed_ns(one) as f64 >= MIN_SHARE * length);
        self.windows.push((Span { from: window.window.start, to: window.window.end }, observed));
    }

    /// The gaps by time: of all collectors, and of each one that observed something in the span.
    pub fn finish(self) -> Vec<HistoryGap> {
        let mut gaps = Vec::new();
        let is_any = |observed: &[bool; Collector::ALL.len()]| observed.contains(&true);
        self.collect(is_any, None, &mut gaps);
        for collector in Collector::ALL {
            let at = collector as usize;
            if self.windows.iter().any(|(_, observed)| observed[at]) {
                // Where no collector observed, the gap has been named.
                let is_fine = |observed: &[bool; Collector::ALL.len()]| observed[at] || !is_any(observed);
                let mut own = Vec::new();
                self.collect(is_fine, Some(collector), &mut own);
                own.retain(|gap| !is_covered(gap, &gaps));
                gaps.extend(own);
            }
        }
        gaps.sort_by_key(|gap| gap.span.from);
        gaps
    }

    fn collect(
        &self,
        is_observed: impl Fn(&[bool; Collector::ALL.len()]) -> bool,
        collector: Option<Collector>,
        gaps: &mut Vec<HistoryGap>,
    ) {
        let mut until = self.span.from;
        let observed =
            self.windows.iter().filter(|(_, observed)| is_observed(observed)).map(|(span, _)| *span);
        let end = Span { from: self.span.to, to: self.span.to };
        for span in observed.chain([end]) {
            let from = span.from.min(self.span.to);
            if from > until {
                gaps.push(HistoryGap { span: Span { from: until, to: from }, collector });
            }
            until = until.max(span.to);
        }
    }
}

/// Whether one of the gaps of all collectors covers this one.
fn is_covered(gap: &HistoryGap, gaps: &[HistoryGap]) -> bool {
    let covers = |one: &HistoryGap| one.span.from <= gap.span.from && one.span.to >= gap.span.to;
    gaps.iter().any(|one| one.collector.is_none() && covers(one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;
    use crate::history::Resolution;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix(seconds, 0)
    }

    fn window(seconds: u64, collectors: &[Collector]) -> HistoryWindow {
        let mut window = HistoryWindow::new(at(seconds), Resolution::TenSeconds);
        collectors.iter().for_each(|one| window.observe(*one, 10_000_000_000));
        window
    }

    fn gaps(windows: &[HistoryWindow]) -> Vec<(u64, u64, Option<Collector>)> {
        let mut finder = GapFinder::new(Span { from: at(100), to: at(150) });
        windows.iter().for_each(|window| finder.add(window));
        let second = |at: Timestamp| at.unix_ns() / 1_000_000_000;
        finder
            .finish()
            .iter()
            .map(|gap| (second(gap.span.from), second(gap.span.to), gap.collector))
            .collect()
    }

    #[test]
    fn gaps_are_where_no_window_or_no_collector_is() {
        use Collector::{Log, Queries};
        let both = [Queries, Log];
        let all: Vec<_> = (10..15).map(|at| window(at * 10, &both)).collect();
        assert_eq!(gaps(&all), []);
        assert_eq!(gaps(&[]), [(100, 150, None)]);
        let parts = [window(100, &both), window(120, &[Log]), window(130, &both), window(140, &[])];
        assert_eq!(gaps(&parts), [(110, 120, None), (110, 130, Some(Queries)), (140, 150, None)]);
    }

    #[test]
    fn a_collector_that_never_observed_has_no_gap() {
        let all: Vec<_> = (10..15).map(|at| window(at * 10, &[Collector::Internals])).collect();
        assert_eq!(gaps(&all), []);
    }
}
