//! Pages that were loaded into the page cache, and how many of them were never read.

use super::extent::GranuleSet;

/// The pages of a file that were loaded into the page cache, by a read or by readahead. Loads and reads must be
/// recorded in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PageIns {
    /// Number of times that a page, or a folio of several pages, was loaded.
    pub count: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Bytes that were loaded again before anybody read them.
    again: u64,
    /// The part of the file that was loaded and not read since.
    unread: GranuleSet,
}

impl PageIns {
    pub(super) fn record(&mut self, offset: u64, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.again = self.again.saturating_add(self.unread.touch(offset, bytes));
    }

    pub(super) fn read(&mut self, offset: u64, bytes: u64) {
        self.unread.clear(offset, bytes);
    }

    /// Readahead waste: bytes that were loaded and not read before they were loaded again, or never read. For files
    /// over 4 GiB it is counted in larger granules; a partial read counts for the whole granule.
    pub fn wasted(&self) -> u64 {
        self.again.saturating_add(self.unread.bytes()).min(self.bytes)
    }

    /// Wasted share of the loaded bytes, 0 to 1; `None` if nothing was loaded.
    pub fn wasted_share(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.wasted() as f64 / self.bytes as f64)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.unread.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaded_pages_that_nobody_reads_are_waste() {
        const PAGE: u64 = 4_096;
        let mut pages = PageIns::default();
        assert_eq!((pages.wasted(), pages.wasted_share()), (0, None));
        // Eight pages are read ahead; the first two are read, one of them in part.
        pages.record(0, 8 * PAGE);
        pages.read(0, PAGE + 1);
        assert_eq!((pages.wasted(), pages.wasted_share()), (6 * PAGE, Some(0.75)));
        // Dropped and loaded again: both loads are waste until the page is read, then one is.
        pages.record(4 * PAGE, PAGE);
        assert_eq!(pages.wasted(), 7 * PAGE);
        pages.read(4 * PAGE, PAGE);
        assert_eq!(pages.wasted(), 6 * PAGE);
        // A page that was read, dropped and loaded again is waste again.
        pages.record(0, PAGE);
        assert_eq!((pages.wasted(), pages.count, pages.bytes), (7 * PAGE, 3, 10 * PAGE));
    }
}
