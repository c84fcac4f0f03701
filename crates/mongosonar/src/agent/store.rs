//! Opens the store of an agent.

use std::path::Path;

use anyhow::{Context, Result};
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
