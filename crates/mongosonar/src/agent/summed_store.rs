//! A store that knows what has been stored in it.

use std::path::Path;

use sonar_core::history::{Event, HistoryError, SourcePositions, StoreNotice};
use sonar_core::observation::{Assembler, AssemblyLimits, StoredCounts};
use sonar_core::{HistoryWindow, HistoryWriter};
use sonar_view::agent::AgentSummary;

/// A store, and what collectors have contributed to it.
pub struct SummedStore<S> {
    /// The store.
    pub history: S,
    contributed: AgentSummary,
}

impl<S: HistoryWriter> SummedStore<S> {
    /// Joins windows and stores them into `history`, whose folder is `folder`.
    pub fn assembler(history: S, folder: &Path, limits: AssemblyLimits) -> Assembler<Self> {
        let contributed = AgentSummary::new(folder.display().to_string());
        Assembler::new(Self { history, contributed }, limits)
    }
}

impl<S: HistoryWriter> HistoryWriter for SummedStore<S> {
    fn append_with(
        &mut self,
        window: &HistoryWindow,
        events: &[Event],
        positions: &SourcePositions,
    ) -> Result<(), HistoryError> {
        self.history.append_with(window, events, positions)?;
        self.contributed.add(window);
        Ok(())
    }

    fn positions(&self) -> SourcePositions {
        self.history.positions()
    }

    fn notices(&mut self) -> Vec<StoreNotice> {
        self.history.notices()
    }
}

/// What an agent has stored.
pub fn summary<S: HistoryWriter>(assembler: &Assembler<SummedStore<S>>) -> AgentSummary {
    let StoredCounts { windows, windows_lost, events, events_left_out, span } = *assembler.counts();
    let contributed = assembler.store().contributed.clone();
    let mut summary = AgentSummary { windows, windows_lost, events, events_left_out, ..contributed };
    summary.set_span(span);
    summary
}
