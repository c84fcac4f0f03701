//! Which stored windows hold what is asked for.
//!
//! A stored minute or hour has everything of its parts; one that is not stored is the sum of its parts. The finer
//! windows of an hour are removed all at once, so that an hour either has all of its parts, or none of them.

use sonar_core::Timestamp;
use sonar_core::history::{Resolution, Span};

use crate::stored_window::span_of;

/// The place of a stored window.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Slot {
    pub resolution: Resolution,
    pub start: Timestamp,
}

impl Slot {
    pub fn of(at: Timestamp, resolution: Resolution) -> Self {
        Self { resolution, start: at.floor_to(resolution.width_ns()) }
    }

    pub fn span(self) -> Span {
        span_of(self.start, self.resolution)
    }
}

/// The stored windows of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct WindowIndex {
    /// Their starts, ascending, in the order of [`Resolution::ALL`].
    pub starts: [Vec<Timestamp>; Resolution::ALL.len()],
}

impl WindowIndex {
    /// The stored windows that together hold everything within a span, by time: the coarsest that lie in it, and
    /// those that overlap it where there are no finer ones.
    pub fn cover(&self, span: Span) -> Vec<Slot> {
        let mut found = Vec::new();
        for slot in self.slots(Resolution::Hour, span) {
            self.cover_slot(slot, span, &mut found);
        }
        found
    }

    fn cover_slot(&self, slot: Slot, span: Span, found: &mut Vec<Slot>) {
        let Span { from, to } = slot.span();
        let is_inside = span.from <= from && to <= span.to;
        if self.has(slot) && (is_inside || !self.has_finer(slot)) {
            found.push(slot);
        } else if let Some(finer) = finer(slot.resolution) {
            let part = Span { from: from.max(span.from), to: to.min(span.to) };
            for slot in self.slots(finer, part) {
                self.cover_slot(slot, span, found);
            }
        }
    }

    /// The windows of this resolution that overlap a span, by time, each with the stored ones that make it; where
    /// there are no such windows any more, coarser ones.
    pub fn windows(&self, span: Span, resolution: Resolution) -> Vec<(Slot, Vec<Slot>)> {
        let mut found = Vec::new();
        for slot in self.slots(Resolution::Hour, span) {
            self.windows_of(slot, span, resolution, &mut found);
        }
        found
    }

    fn windows_of(&self, slot: Slot, span: Span, resolution: Resolution, found: &mut Vec<(Slot, Vec<Slot>)>) {
        match finer(slot.resolution) {
            Some(finer) if slot.resolution > resolution && self.has_finer(slot) => {
                let Span { from, to } = slot.span();
                let part = Span { from: from.max(span.from), to: to.min(span.to) };
                self.slots(finer, part)
                    .into_iter()
                    .for_each(|slot| self.windows_of(slot, span, resolution, found));
            }
            _ => found.push((slot, self.cover(slot.span()))),
        }
    }

    /// The windows of minutes, or those of hours, that are not stored though their parts are.
    pub fn unmade(&self, resolution: Resolution) -> Vec<Slot> {
        let all = Span { from: Timestamp::default(), to: Timestamp::from_unix_ns(u64::MAX) };
        self.slots(resolution, all).into_iter().filter(|slot| !self.has(*slot)).collect()
    }

    /// Whether the windows of the resolution of `slot` were removed from its hour: there are only coarser ones.
    pub fn is_removed(&self, slot: Slot) -> bool {
        let hour = span_of(slot.start, Resolution::Hour);
        let (finer, coarser) = self.starts.split_at(slot.resolution as usize + 1);
        let any = |levels: &[Vec<Timestamp>]| levels.iter().any(|starts| !within(starts, hour).is_empty());
        !any(finer) && any(coarser)
    }

    fn has(&self, slot: Slot) -> bool {
        self.starts[slot.resolution as usize].binary_search(&slot.start).is_ok()
    }

    /// Whether any part of this window is stored by itself.
    fn has_finer(&self, slot: Slot) -> bool {
        let finer = &self.starts[..slot.resolution as usize];
        finer.iter().any(|starts| !within(starts, slot.span()).is_empty())
    }

    /// The windows of this resolution that overlap a span, as far as they are stored.
    fn slots(&self, resolution: Resolution, span: Span) -> Vec<Slot> {
        if span.to <= span.from {
            return Vec::new();
        }
        let from = Slot::of(span.from, resolution).start;
        let mut slots: Vec<Slot> = Vec::new();
        for starts in &self.starts[..=resolution as usize] {
            let mut of_level: Vec<_> = within(starts, Span { from, to: span.to })
                .iter()
                .map(|start| Slot::of(*start, resolution))
                .filter(|slot| slot.span().to > span.from)
                .collect();
            of_level.dedup();
            slots.append(&mut of_level);
        }
        slots.sort_unstable();
        slots.dedup();
        slots
    }
}

fn finer(resolution: Resolution) -> Option<Resolution> {
    Resolution::ALL.into_iter().find(|finer| finer.coarser() == Some(resolution))
}

/// The starts within a span.
fn within(starts: &[Timestamp], span: Span) -> &[Timestamp] {
    let from = starts.partition_point(|start| *start < span.from);
    let to = starts.partition_point(|start| *start < span.to);
    &starts[from..to.max(from)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix(seconds, 0)
    }

    fn span(from: u64, to: u64) -> Span {
        Span { from: at(from), to: at(to) }
    }

    fn index(tens: &[u64], minutes: &[u64], hours: &[u64]) -> WindowIndex {
        WindowIndex { starts: [tens, minutes, hours].map(|starts| starts.iter().map(|s| at(*s)).collect()) }
    }

    fn names(slots: &[Slot]) -> Vec<(&'static str, u64)> {
        slots.iter().map(|slot| (slot.resolution.name(), slot.start.unix_ns() / 1_000_000_000)).collect()
    }

    #[test]
    fn a_span_is_covered_by_the_coarsest_windows_inside() {
        let minutes: Vec<u64> = (0..120).map(|minute| minute * 60).collect();
        let tens: Vec<u64> = (0..720).map(|ten| ten * 10).collect();
        let all = index(&tens, &minutes, &[0, 3_600]);
        assert_eq!(names(&all.cover(span(0, 7_200))), [("1h", 0), ("1h", 3_600)]);
        let edges = names(&all.cover(span(3_530, 7_210)));
        assert_eq!(edges, [("10s", 3_530), ("1min", 3_540), ("1h", 3_600)]);
        assert_eq!(names(&all.cover(span(15, 25))), [("10s", 10), ("10s", 20)], "those that overlap");
        assert_eq!(all.cover(span(25, 25)), []);
    }

    #[test]
    fn where_fine_windows_are_gone_coarser_ones_take_their_place() {
        let hours_only = index(&[], &[], &[0, 3_600]);
        assert_eq!(names(&hours_only.cover(span(100, 200))), [("1h", 0)]);
        let with_minutes = index(&[], &[0, 60], &[0]);
        assert_eq!(names(&with_minutes.cover(span(30, 40))), [("1min", 0)]);
        assert_eq!(
            names(&with_minutes.cover(span(200, 300))),
            [],
            "the minutes of this hour say that there is nothing"
        );
        let windows = with_minutes.windows(span(30, 90), Resolution::TenSeconds);
        assert_eq!(
            windows.iter().map(|(slot, _)| names(&[*slot])[0]).collect::<Vec<_>>(),
            [("1min", 0), ("1min", 60)]
        );
        let windows = hours_only.windows(span(30, 90), Resolution::Minute);
        assert_eq!(windows.iter().map(|(slot, _)| names(&[*slot])[0]).collect::<Vec<_>>(), [("1h", 0)]);
    }

    #[test]
    fn what_is_not_stored_consists_of_its_parts() {
        let open = index(&[0, 10, 60, 70, 80], &[0], &[]);
        assert_eq!(names(&open.cover(span(0, 3_600))), [("1min", 0), ("10s", 60), ("10s", 70), ("10s", 80)]);
        let hours = open.windows(span(0, 3_600), Resolution::Hour);
        assert_eq!((hours.len(), names(&hours[0].1).len()), (1, 4));
        assert_eq!(names(&open.unmade(Resolution::Minute)), [("1min", 60)]);
        assert_eq!(names(&open.unmade(Resolution::Hour)), [("1h", 0)]);
    }
}
