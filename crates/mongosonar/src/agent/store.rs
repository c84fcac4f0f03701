//! Opens the store of an agent.

use std::path::Path;

use anyhow::{Context, Result};
use sonar_core::history::{Event, HistoryError, SourcePositions, StoreNotice};
use sonar_core::{HistoryWindow, HistoryWriter};
use sonar_store::{SqliteHistory, StoreSettings};
use sonar_sys::trust;

use super::memory::WINDOW_BYTES;
use super::settings::StoreTable;

/// Opens the store in `folder` for writing, and creates what is missing. A `durable` store loses no window that was
/// appended, even if the power fails.
///
/// # Errors
/// The folder cannot be created or used, other users can write to it, or another process does.
pub fn open(folder: &Path, table: &StoreTable, durable: bool) -> Result<SqliteHistory> {
    let cannot = || format!("cannot use the store {}", folder.display());
    trust::make_folder(folder).with_context(cannot)?;
    SqliteHistory::create(folder, settings(table, durable)).with_context(cannot)
}

/// The settings of a store.
pub fn settings(table: &StoreTable, durable: bool) -> StoreSettings {
    let max_bytes = table.max_size.0;
    // A replay is no service, and may take what it needs.
    let window_bytes = if durable { WINDOW_BYTES } else { usize::MAX };
    StoreSettings { days: table.days(), max_bytes, durable, window_bytes, ..StoreSettings::default() }
}

/// Where a running agent stores.
pub trait AgentStore: HistoryWriter {
    /// Changes what is kept.
    fn configure(&mut self, settings: StoreSettings);

    /// The bytes that it holds.
    fn memory(&self) -> usize;
}

impl AgentStore for SqliteHistory {
    fn configure(&mut self, settings: StoreSettings) {
        Self::configure(self, settings);
    }

    fn memory(&self) -> usize {
        Self::memory(self)
    }
}

impl HistoryWriter for Box<dyn AgentStore> {
    fn append_with(
        &mut self,
        window: &HistoryWindow,
        events: &[Event],
        positions: &SourcePositions,
    ) -> Result<(), HistoryError> {
        (**self).append_with(window, events, positions)
    }

    fn positions(&self) -> SourcePositions {
        (**self).positions()
    }

    fn notices(&mut self) -> Vec<StoreNotice> {
        (**self).notices()
    }
}
