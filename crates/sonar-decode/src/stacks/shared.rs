//! What the address spaces of several processes share: files that several of them have mapped, and the room for tables.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::image::Image;

/// The most bytes that the tables of all files may take unless the caller sets a lower limit.
const MAX_BYTES: usize = 1 << 30;

/// The room for the tables of one or several address spaces. Clones share it.
#[derive(Clone, Debug)]
pub struct TableBudget {
    most: usize,
    used: Arc<AtomicUsize>,
}

impl Default for TableBudget {
    fn default() -> Self {
        Self::new(MAX_BYTES)
    }
}

impl TableBudget {
    /// Room for so many bytes.
    pub fn new(most: usize) -> Self {
        Self { most, used: Arc::default() }
    }

    /// The bytes that there are in all.
    pub fn most(&self) -> usize {
        self.most
    }

    /// The bytes that are in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The bytes that are left.
    pub fn left(&self) -> usize {
        self.most.saturating_sub(self.used())
    }

    /// Takes so many bytes, if they are left.
    pub(super) fn take(&self, bytes: usize) -> Option<TakenBytes> {
        let add = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.most);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(TakenBytes { bytes, of: self.used.clone() })
    }
}

/// Bytes of a budget, until this is dropped.
#[derive(Debug)]
pub(super) struct TakenBytes {
    bytes: usize,
    of: Arc<AtomicUsize>,
}

impl Drop for TakenBytes {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A file with the room for its tables.
#[derive(Debug)]
pub struct SharedImage<R> {
    image: Mutex<Image<R>>,
    _taken: TakenBytes,
}

impl<R: std::io::Read + std::io::Seek> SharedImage<R> {
    /// Takes the room for its tables; `None` if there is not enough.
    pub(super) fn new(image: Image<R>, budget: &TableBudget) -> Option<Self> {
        let taken = budget.take(image.bytes())?;
        Some(Self { image: Mutex::new(image), _taken: taken })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Image<R>> {
        self.image.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
