//! What a store keeps, and how much of the disk it may use.

use sonar_core::history::Resolution;

/// Settings of a store.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StoreSettings {
    /// For how many days windows are kept, in the order of [`Resolution::ALL`]. Coarser windows are kept at least as
    /// long as finer ones.
    pub days: [u32; Resolution::ALL.len()],
    /// The maximum size of all files in bytes. If they are larger, the finest and oldest windows go first.
    pub max_bytes: u64,
    /// Bytes of the file system that stay free: with less room nothing is written. `None`: 5 % of it, at most 1 GB.
    pub min_free_bytes: Option<u64>,
    /// Whether a window is on the disk when it has been added. Without it a power failure loses the last minutes; a
    /// replay is faster.
    pub durable: bool,
    /// The most bytes of memory of a window that is put together: what exceeds it is counted under `other`, and loses
    /// nothing but its name; see [`HistoryWindow::limit`](sonar_core::HistoryWindow::limit). `usize::MAX`: no bound but
    /// those of the tables.
    pub window_bytes: usize,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            days: Resolution::ALL.map(Resolution::default_days),
            max_bytes: 2_000_000_000,
            min_free_bytes: None,
            durable: true,
            window_bytes: usize::MAX,
        }
    }
}

impl StoreSettings {
    /// For how many days windows of this resolution are kept.
    pub(crate) fn days_of(&self, resolution: Resolution) -> u64 {
        u64::from(self.days[..=resolution as usize].iter().copied().max().unwrap_or(0))
    }
}
