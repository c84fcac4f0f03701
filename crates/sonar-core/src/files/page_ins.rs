//! What was brought into the page cache, and how much of it for nothing.

use super::extent::Extent;

/// Pages of a file that were brought into the page cache, by a read or by readahead, in the order in which that
/// and reads came.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PageIns {
    /// Times that a page, or a folio of several, was brought in.
    pub count: u64,
    /// Bytes that they have.
    pub bytes: u64,
    /// Bytes that were brought in once more before anybody read them.
    again: u64,
    /// What was brought in and not read since.
    unread: Extent,
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

    /// Readahead waste: bytes that were brought in and not read before they were brought in again, or at all.
    /// Of a file over 4 GiB in whole granules, of which a read of a part counts for all.
    pub fn wasted(&self) -> u64 {
        self.again.saturating_add(self.unread.bytes()).min(self.bytes)
    }

    /// Of the bytes that were brought in: wasted, 0 to 1; `None` where there are none.
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
    fn what_nobody_reads_is_waste() {
        const PAGE: u64 = 4_096;
        let mut pages = PageIns::default();
        assert_eq!((pages.wasted(), pages.wasted_share()), (0, None));
        // Read ahead by eight pages; the first two are read, one of them in part.
        pages.record(0, 8 * PAGE);
        pages.read(0, PAGE + 1);
        assert_eq!((pages.wasted(), pages.wasted_share()), (6 * PAGE, Some(0.75)));
        // Dropped and brought in again: both for nothing until it is read, then one of them.
        pages.record(4 * PAGE, PAGE);
        assert_eq!(pages.wasted(), 7 * PAGE);
        pages.read(4 * PAGE, PAGE);
        assert_eq!(pages.wasted(), 6 * PAGE);
        // What was read, dropped and brought in again is waste once more.
        pages.record(0, PAGE);
        assert_eq!((pages.wasted(), pages.count, pages.bytes), (7 * PAGE, 3, 10 * PAGE));
    }
}
