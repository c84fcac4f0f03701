//! How the history is read for one answer: not too much of it, and not for too long.

use std::cell::Cell;
use std::time::Instant;

use sonar_core::history::{
    Event, HistoryError, HistoryReader, HistoryWindow, ObservedSpan, Resolution, Span,
};

/// Why the history is not read on.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum ReadingStopped {
    #[error("the answer would read too many windows")]
    TooMuch,
    #[error("the answer takes too long")]
    Late,
}

/// A history of which so many windows are read, until a time.
pub(crate) struct BoundedReader<'a> {
    reader: &'a dyn HistoryReader,
    /// Nothing lies outside of it.
    extent: Option<Span>,
    left: Cell<u64>,
    until: Instant,
    stopped: Cell<Option<ReadingStopped>>,
}

impl<'a> BoundedReader<'a> {
    /// Reads at most this number of windows, and begins nothing after `until`.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn new(reader: &'a dyn HistoryReader, windows: u64, until: Instant) -> Result<Self, HistoryError> {
        let extent = reader.extent()?;
        Ok(Self { reader, extent, left: Cell::new(windows), until, stopped: Cell::default() })
    }

    /// Why it has not read on; `None` if it has.
    pub fn stopped(&self) -> Option<ReadingStopped> {
        self.stopped.get()
    }

    fn charge(&self, windows: u64) -> Result<(), HistoryError> {
        let stopped = if Instant::now() > self.until {
            ReadingStopped::Late
        } else if let Some(left) = self.left.get().checked_sub(windows) {
            self.left.set(left);
            return Ok(());
        } else {
            ReadingStopped::TooMuch
        };
        self.stopped.set(Some(stopped));
        Err(HistoryError::new(stopped))
    }

    /// The most windows of this resolution that a span has.
    fn windows_of(&self, span: Span, resolution: Resolution) -> u64 {
        let Some(extent) = self.extent else { return 0 };
        let stored = Span { from: span.from.max(extent.from), to: span.to.min(extent.to) };
        match stored.length_ns() {
            0 => 0,
            // It may begin and end within one.
            ns => ns / resolution.width_ns() + 2,
        }
    }
}

impl HistoryReader for BoundedReader<'_> {
    fn read(&self, span: Span) -> Result<Option<HistoryWindow>, HistoryError> {
        // At both ends, finer ones.
        let finer = Resolution::ALL.windows(2).map(|pair| 2 * pair[1].width_ns() / pair[0].width_ns());
        let hours = self.windows_of(span, Resolution::Hour);
        self.charge(if hours > 0 { hours + finer.sum::<u64>() } else { 0 })?;
        self.reader.read(span)
    }

    fn windows(
        &self,
        span: Span,
        resolution: Resolution,
        visit: &mut dyn FnMut(HistoryWindow),
    ) -> Result<(), HistoryError> {
        self.charge(self.windows_of(span, resolution))?;
        self.reader.windows(span, resolution, visit)
    }

    fn observed(
        &self,
        span: Span,
        resolution: Resolution,
        visit: &mut dyn FnMut(ObservedSpan),
    ) -> Result<(), HistoryError> {
        self.charge(self.windows_of(span, resolution))?;
        self.reader.observed(span, resolution, visit)
    }

    fn events(&self, span: Span) -> Result<Vec<Event>, HistoryError> {
        self.charge(0)?;
        self.reader.events(span)
    }

    fn extent(&self) -> Result<Option<Span>, HistoryError> {
        Ok(self.extent)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sonar_core::Timestamp;

    use super::*;

    /// A day without any window.
    struct EmptyDay;

    impl HistoryReader for EmptyDay {
        fn windows(
            &self,
            _: Span,
            _: Resolution,
            _: &mut dyn FnMut(HistoryWindow),
        ) -> Result<(), HistoryError> {
            Ok(())
        }

        fn events(&self, _: Span) -> Result<Vec<Event>, HistoryError> {
            Ok(Vec::new())
        }

        fn extent(&self) -> Result<Option<Span>, HistoryError> {
            Ok(Some(hours(0, 24)))
        }
    }

    fn hours(from: u64, to: u64) -> Span {
        let at = |hour| Timestamp::from_unix(1_699_999_200 + hour * 3_600, 0);
        Span { from: at(from), to: at(to) }
    }

    fn reader(windows: u64, until: Instant) -> BoundedReader<'static> {
        BoundedReader::new(&EmptyDay, windows, until).unwrap()
    }

    #[test]
    fn an_answer_that_would_read_too_much_is_stopped_before_it_does() {
        let later = Instant::now() + Duration::from_secs(3_600);
        let bounded = reader(100, later);
        let visit = |span, resolution| bounded.windows(span, resolution, &mut |_| {}).is_ok();
        assert!(visit(hours(0, 1), Resolution::Minute));
        assert!(visit(hours(30, 90_000), Resolution::TenSeconds), "nothing is stored there");
        assert_eq!(bounded.stopped(), None);
        assert!(!visit(hours(0, 1), Resolution::Minute));
        assert_eq!(bounded.stopped(), Some(ReadingStopped::TooMuch));
        // The whole day, and as much as finer windows at its ends.
        let bounded = reader(26 + 120 + 12, later);
        assert!(bounded.read(hours(0, 90_000)).is_ok());
        assert!(bounded.observed(hours(0, 1), Resolution::Hour, &mut |_| {}).is_err());
    }

    #[test]
    fn nothing_is_begun_too_late() {
        let bounded = reader(100, Instant::now() - Duration::from_millis(1));
        assert!(bounded.events(hours(0, 1)).is_err());
        assert_eq!(bounded.stopped(), Some(ReadingStopped::Late));
    }
}
