//! The parts of an axis of time.

use std::ops::RangeInclusive;

use sonar_core::Timestamp;
use sonar_core::history::{HistoryWindow, Span};

/// A span in equal parts.
#[derive(Copy, Clone, Debug)]
pub struct TimeAxis {
    /// The span.
    pub span: Span,
    /// How many parts it has, at least 1.
    pub parts: usize,
}

impl TimeAxis {
    /// At most `columns` parts, none narrower than `width_ns`, the width of the windows in nanoseconds.
    pub fn new(span: Span, columns: usize, width_ns: u64) -> Self {
        let windows = usize::try_from(span.length_ns().div_ceil(width_ns.max(1))).unwrap_or(usize::MAX);
        Self { span, parts: windows.clamp(1, columns.max(1)) }
    }

    /// When a part begins.
    pub fn start(&self, part: usize) -> Timestamp {
        let offset = u128::from(self.span.length_ns()) * part as u128 / self.parts as u128;
        self.span.from.plus_ns(offset as u64)
    }

    fn place(&self, at: Timestamp) -> usize {
        let length = u128::from(self.span.length_ns().max(1));
        let offset = u128::from(at.since(self.span.from)) * self.parts as u128 / length;
        (offset as usize).min(self.parts - 1)
    }

    /// The parts for which a window counts: all that it covers if it is wider than one; `None` if it lies outside.
    pub fn places(&self, window: &HistoryWindow) -> Option<RangeInclusive<usize>> {
        let (from, to) = (window.window.start.max(self.span.from), window.window.end.min(self.span.to));
        if to <= from {
            return None;
        }
        let last = self.place(to.minus_ns(1));
        // A window at the border of two parts counts for the one that holds its middle.
        let middle = Timestamp::from_unix_ns(u64::midpoint(from.unix_ns(), to.unix_ns()));
        let first = self.place(from);
        Some(if last - first < 2 { self.place(middle)..=self.place(middle) } else { first..=last })
    }
}
