//! What a store of history can do.

use std::collections::BTreeMap;

use super::{CollectorKind, Event, HistoryError, HistoryWindow, Resolution};
use crate::Timestamp;

/// A span of time, from its start up to but not including its end.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Span {
    /// The start.
    pub from: Timestamp,
    /// The end.
    pub to: Timestamp,
}

impl Span {
    /// The length in nanoseconds; 0 if it ends before it starts.
    pub const fn length_ns(self) -> u64 {
        self.to.since(self.from)
    }

    /// Whether `at` lies in it.
    pub fn contains(self, at: Timestamp) -> bool {
        self.from <= at && at < self.to
    }
}

/// How long each collector observed a window.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ObservedSpan {
    /// The window.
    pub span: Span,
    /// In nanoseconds, in the order of [`CollectorKind::ALL`].
    pub observed_ns: [u64; CollectorKind::ALL.len()],
}

impl ObservedSpan {
    /// A window that nobody observed.
    pub const fn nothing(span: Span) -> Self {
        Self { span, observed_ns: [0; CollectorKind::ALL.len()] }
    }

    /// That of this window.
    pub fn of(history: &HistoryWindow) -> Self {
        let span = Span { from: history.window.start, to: history.window.end };
        Self { span, observed_ns: history.observed_ns }
    }

    /// Adds a part of the window: no collector observed longer than the window lasted.
    pub fn add(&mut self, observed_ns: &[u64; CollectorKind::ALL.len()]) {
        let most = self.span.length_ns();
        for (mine, ns) in self.observed_ns.iter_mut().zip(observed_ns) {
            *mine = mine.saturating_add(*ns).min(most);
        }
    }

    /// Whether any collector observed anything.
    pub fn is_observed(&self) -> bool {
        self.observed_ns.iter().any(|ns| *ns > 0)
    }
}

/// Something that a store did or could not do, for the agent to report and count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreNotice {
    /// A file is damaged, and was set aside under another name; the rest stays readable. Or the folder was deleted, and has
    /// been made again.
    Damaged(String),
    /// The disk is full: nothing is written until there is room again.
    Full(String),
    /// There is room again; this many calls of `append` failed.
    Recovered(u64),
    /// Windows of this resolution of this day (`2026-11-21`) were deleted to stay below the size cap.
    Shrunk(Resolution, String),
}

/// How far sources had been read, by their names. What a text says is up to its source.
pub type SourcePositions = BTreeMap<Box<str>, Box<str>>;

/// Reads windows and events that were stored. All times are since the Unix epoch.
pub trait HistoryReader {
    /// Everything within a span, merged from the coarsest windows that lie in it. Where only coarser windows are left
    /// than the span asks for, those that overlap it are included whole; the span of the result says so. `None` if
    /// nothing is stored there.
    ///
    /// # Errors
    /// The store cannot be read.
    fn read(&self, span: Span) -> Result<Option<HistoryWindow>, HistoryError> {
        let mut all: Option<HistoryWindow> = None;
        self.windows(span, Resolution::TenSeconds, &mut |window| match &mut all {
            Some(all) => all.merge(&window),
            None => all = Some(window),
        })?;
        Ok(all)
    }

    /// The windows of this resolution that overlap a span, by time; where there are none any more, coarser ones.
    ///
    /// # Errors
    /// The store cannot be read.
    fn windows(
        &self,
        span: Span,
        resolution: Resolution,
        visit: &mut dyn FnMut(HistoryWindow),
    ) -> Result<(), HistoryError>;

    /// How long each collector observed each of the same windows, without reading what is in them.
    ///
    /// # Errors
    /// The store cannot be read.
    fn observed(
        &self,
        span: Span,
        resolution: Resolution,
        visit: &mut dyn FnMut(ObservedSpan),
    ) -> Result<(), HistoryError> {
        self.windows(span, resolution, &mut |window| visit(ObservedSpan::of(&window)))
    }

    /// The events within a span, by time.
    ///
    /// # Errors
    /// The store cannot be read.
    fn events(&self, span: Span) -> Result<Vec<Event>, HistoryError>;

    /// Start of the first window and end of the last; `None` if nothing is stored.
    ///
    /// # Errors
    /// The store cannot be read.
    fn extent(&self) -> Result<Option<Span>, HistoryError>;
}

/// Stores windows and events. All times are since the Unix epoch.
pub trait HistoryWriter {
    /// Adds a window of 10 seconds, and events. What was stored of the same window before stays: figures are added.
    /// The windows of minutes and hours follow. All of it is stored, or nothing.
    ///
    /// # Errors
    /// Nothing can be stored; the window is lost, and the store remains usable.
    fn append(&mut self, window: &HistoryWindow, events: &[Event]) -> Result<(), HistoryError> {
        self.append_with(window, events, &SourcePositions::new())
    }

    /// The same, and the positions of sources: what was read before them is in this window or in those stored earlier.
    /// They are stored with the window, or neither is. A source that has none keeps its last one.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    fn append_with(
        &mut self,
        window: &HistoryWindow,
        events: &[Event],
        positions: &SourcePositions,
    ) -> Result<(), HistoryError>;

    /// The positions that were stored last when the store was opened for writing, and those stored since.
    fn positions(&self) -> SourcePositions;

    /// What happened since the last call.
    fn notices(&mut self) -> Vec<StoreNotice>;
}
