//! A store for tests.

use std::fmt;

use sonar_core::history::{
    Event, HistoryError, HistoryReader, HistoryWriter, Resolution, SourcePositions, Span, StoreNotice,
};
use sonar_core::{HistoryWindow, Timestamp};

/// Keeps windows and events in memory.
#[derive(Default)]
pub struct MemoryStore {
    pub windows: Vec<HistoryWindow>,
    pub events: Vec<Event>,
    pub positions: SourcePositions,
    pub is_full: bool,
}

impl HistoryWriter for MemoryStore {
    fn append_with(
        &mut self,
        window: &HistoryWindow,
        events: &[Event],
        positions: &SourcePositions,
    ) -> Result<(), HistoryError> {
        if self.is_full {
            return Err(HistoryError::new(fmt::Error));
        }
        self.windows.push(window.clone());
        self.events.extend_from_slice(events);
        self.positions.extend(positions.clone());
        Ok(())
    }

    fn positions(&self) -> SourcePositions {
        self.positions.clone()
    }

    fn notices(&mut self) -> Vec<StoreNotice> {
        Vec::new()
    }
}

impl HistoryReader for MemoryStore {
    fn windows(
        &self,
        span: Span,
        _: Resolution,
        visit: &mut dyn FnMut(HistoryWindow),
    ) -> Result<(), HistoryError> {
        let overlaps =
            |window: &&HistoryWindow| window.window.start < span.to && window.window.end > span.from;
        self.windows.iter().filter(overlaps).cloned().for_each(visit);
        Ok(())
    }

    fn events(&self, span: Span) -> Result<Vec<Event>, HistoryError> {
        Ok(self.events.iter().filter(|event| span.contains(event.at)).cloned().collect())
    }

    fn extent(&self) -> Result<Option<Span>, HistoryError> {
        let time = |of: fn(&HistoryWindow) -> Timestamp| self.windows.iter().map(of);
        let from = time(|window| window.window.start).min();
        let to = time(|window| window.window.end).max();
        Ok(from.zip(to).map(|(from, to)| Span { from, to }))
    }
}
