//! Estimates how long an amount of reading takes on a tested disk.

/// Nanoseconds for `requests` at `per_second`, saturating; `None` if the rate is not a positive number.
pub fn duration_ns(requests: u64, per_second: f64) -> Option<u64> {
    // A cast of a float to an integer saturates.
    (per_second.is_finite() && per_second > 0.0).then(|| (requests as f64 / per_second * 1e9) as u64)
}

/// The documents to read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Number of documents.
    pub documents: u64,
    /// Size of a document on disk in bytes.
    pub document_bytes: u64,
    /// Size of one read of the test in bytes.
    pub record_bytes: u64,
}

impl Work {
    /// Number of random reads: each document is at another place and needs one read per record.
    pub fn random_reads(&self) -> u64 {
        self.documents.saturating_mul(self.document_bytes.div_ceil(self.record_bytes.max(1)).max(1))
    }

    /// Bytes to read in order.
    pub const fn bytes(&self) -> u64 {
        self.documents.saturating_mul(self.document_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_million_fetches_at_a_hundred_a_second_are_more_than_a_day() {
        let work = Work { documents: 100_000_000, document_bytes: 800, record_bytes: 4_096 };
        let ns = duration_ns(work.random_reads(), 100.0).unwrap();
        assert_eq!(ns, 1_000_000 * 1_000_000_000);
        assert!(ns > 24 * 3_600 * 1_000_000_000);
        assert_eq!(work.bytes(), 80_000_000_000);
    }

    #[test]
    fn large_documents_need_several_reads_and_bounds_hold() {
        let work = Work { documents: 10, document_bytes: 9_000, record_bytes: 4_096 };
        assert_eq!(work.random_reads(), 30);
        let huge = Work { documents: u64::MAX, document_bytes: u64::MAX, record_bytes: 0 };
        assert_eq!((huge.random_reads(), huge.bytes()), (u64::MAX, u64::MAX));
        assert_eq!(duration_ns(u64::MAX, 1e-9), Some(u64::MAX));
        assert_eq!((duration_ns(1, 0.0), duration_ns(1, f64::NAN)), (None, None));
    }
}
