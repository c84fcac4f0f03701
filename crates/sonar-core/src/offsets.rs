//! The UTC offsets of the times in a log, over the course of the log.

use crate::Timestamp;

/// The maximum number of spans.
pub const MAX_SPANS: usize = 256;

/// A part of a log whose times have the same offset.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct OffsetSpan {
    /// The earliest time with this offset.
    pub from: Timestamp,
    /// The latest time with this offset.
    pub to: Timestamp,
    /// Minutes east of UTC.
    pub minutes: i16,
}

/// The UTC offsets of a log. They change when daylight saving time begins or ends, and between the logs of
/// servers in different time zones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UtcOffsets {
    spans: Vec<OffsetSpan>,
    /// Index of the span that was extended last.
    current: usize,
    /// Number of times that were dropped because there are already [`MAX_SPANS`] spans.
    pub turned_away: u64,
}

impl UtcOffsets {
    /// Records that a line at `at` has an offset of `minutes` east of UTC.
    #[inline]
    pub fn record(&mut self, at: Timestamp, minutes: i16) {
        if let Some(span) = self.spans.get_mut(self.current)
            && span.minutes == minutes
        {
            span.from = span.from.min(at);
            span.to = span.to.max(at);
            return;
        }
        self.begin(at, minutes);
    }

    #[cold]
    fn begin(&mut self, at: Timestamp, minutes: i16) {
        if self.spans.len() >= MAX_SPANS {
            self.turned_away += 1;
            return;
        }
        self.current = self.spans.len();
        self.spans.push(OffsetSpan { from: at, to: at, minutes });
    }

    /// Minutes east of UTC at `at`, from the first span that contains it, otherwise from the nearest span. `None`
    /// if no line had an offset, as in logs of 2.4 and earlier.
    pub fn at(&self, at: Timestamp) -> Option<i16> {
        let distance = |span: &&OffsetSpan| span.from.since(at).max(at.since(span.to));
        self.spans.iter().min_by_key(distance).map(|span| span.minutes)
    }

    /// The spans, in order of reading.
    pub fn spans(&self) -> &[OffsetSpan] {
        &self.spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix(seconds, 0)
    }

    #[test]
    fn each_time_has_the_offset_of_the_lines_around_it() {
        let mut offsets = UtcOffsets::default();
        assert_eq!(offsets.at(at(5)), None);
        for (seconds, minutes) in [(100, 120), (200, 120), (300, 60), (400, 60)] {
            offsets.record(at(seconds), minutes);
        }
        let found = [0, 150, 240, 260, 350, 900].map(|seconds| offsets.at(at(seconds)).unwrap());
        assert_eq!(found, [120, 120, 120, 60, 60, 60]);
        assert_eq!(offsets.spans().len(), 2);
    }

    #[test]
    fn a_log_that_alternates_between_offsets_keeps_a_bounded_number_of_spans() {
        let mut offsets = UtcOffsets::default();
        for second in 0..1_000 {
            offsets.record(at(second), (second % 2) as i16 * 60);
        }
        assert_eq!((offsets.spans().len(), offsets.turned_away > 0), (MAX_SPANS, true));
    }
}
