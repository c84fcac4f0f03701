//! What rewriting a collection in another order takes, and whether it is worth it, from samples of its documents read in
//! both orders.

use std::time::Duration;

/// The minimum number of documents in a sample and in the collection.
pub const MIN_DOCUMENTS: u64 = 1_000;
/// A collection with fewer bytes on disk is small: it fits into any cache, so its order does not matter.
pub const SMALL_BYTES: u64 = 1 << 20;
/// Rewriting is worth it if reading in the requested order takes at least this many times as long.
pub const WORTH_FROM: f64 = 1.5;
/// A sample counts as read from the device if at least this share of its documents' size on disk was.
const READ_FROM: f64 = 0.5;

/// A sample of documents read in one order.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct SampleRead {
    /// Number of documents read.
    pub documents: u64,
    /// Time for reading them.
    pub time: Duration,
    /// Seconds per document in the fastest and in the slowest part of it.
    pub pace: (f64, f64),
    /// Bytes that the server read from its devices in that time, for any reason; `None` if unknown.
    pub device_bytes: Option<u64>,
}

/// What rewriting a collection takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RewriteEstimate {
    /// The collection: `database.collection`.
    pub namespace: String,
    /// Name of the index whose order it gets.
    pub index: String,
    /// The key of that index, as `{customer: 1}`.
    pub key: String,
    /// Documents.
    pub documents: u64,
    /// Their size as BSON, in bytes.
    pub bytes: u64,
    /// Bytes on the disk.
    pub storage_bytes: u64,
    /// Indexes to create again, without `_id`.
    pub indexes: usize,
    /// Bytes of all its indexes on the disk.
    pub index_bytes: u64,
    /// Bytes that are free on the server's file system; `None` if it does not report them.
    pub free_bytes: Option<u64>,
    /// A sample read in the order of the index.
    pub asked: SampleRead,
    /// A sample read in the collection's own order.
    pub own: SampleRead,
    /// Why writes during the run cannot be followed, in words; `None` if they can, by a change stream.
    pub unwatched: Option<String>,
    /// An index expires documents, which is a write too.
    pub expires: bool,
    /// Path of its file under the dbpath without `.wt`, if the server reports it.
    pub ident: Option<String>,
    /// Leftover of an interrupted run, in words.
    pub leftover: Option<String>,
}

/// Whether rewriting is worth it.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Worth {
    /// The collection is empty.
    Empty,
    /// It has fewer than [`MIN_DOCUMENTS`] or less than [`SMALL_BYTES`].
    Small,
    /// The bytes read from the device are unknown.
    NotMeasured,
    /// Too little of the samples came from the device: they measure memory.
    FromCache,
    /// Yes. Reading takes this many times as long as in the collection's own order: [`WORTH_FROM`] or more.
    Yes(f64),
    /// No. Reading takes this many times as long as in the collection's own order: less than [`WORTH_FROM`].
    No(f64),
}

impl RewriteEstimate {
    /// Bytes on the disk that it needs until the end, by the present size.
    pub const fn needed_bytes(&self) -> u64 {
        self.storage_bytes.saturating_add(self.index_bytes)
    }

    /// Whether that much is free; `None` if unknown.
    pub fn fits(&self) -> Option<bool> {
        self.free_bytes.map(|free| free > self.needed_bytes())
    }

    /// How often documents are read in addition to copying.
    pub const fn passes(&self) -> u32 {
        if self.unwatched.is_some() { 3 } else { 1 }
    }

    /// Time for all reading, at the fastest and at the slowest pace of the samples. Writing is not included: a sample
    /// that changes nothing cannot measure it.
    pub fn reading(&self) -> (Duration, Duration) {
        let (index, own) = (self.asked.pace, self.own.pace);
        let all = |index: f64, own: f64| {
            let seconds = self.documents as f64 * (index + own * f64::from(self.passes()));
            Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
        };
        (all(index.0, own.0), all(index.1, own.1))
    }

    /// Whether the samples show that it is worth it.
    pub fn worth(&self) -> Worth {
        let Self { asked, own, documents, storage_bytes: bytes, .. } = *self;
        if documents == 0 {
            return Worth::Empty;
        }
        if documents < MIN_DOCUMENTS || bytes < SMALL_BYTES {
            return Worth::Small;
        }
        if asked.documents.min(own.documents) < MIN_DOCUMENTS {
            return Worth::FromCache;
        }
        let each = bytes as f64 / documents as f64;
        let from_device = |sample: SampleRead| {
            sample.device_bytes.map(|read| read as f64 >= sample.documents as f64 * each * READ_FROM)
        };
        match (from_device(asked), from_device(own)) {
            (None, _) | (_, None) => return Worth::NotMeasured,
            (Some(true), Some(true)) => {}
            _ => return Worth::FromCache,
        }
        let times = asked.time.as_secs_f64() / own.time.as_secs_f64().max(1e-9);
        if times < WORTH_FROM { Worth::No(times) } else { Worth::Yes(times) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: u64 = 1 << 20;

    fn sample(documents: u64, millis: u64, device_bytes: Option<u64>) -> SampleRead {
        SampleRead { documents, time: Duration::from_millis(millis), device_bytes, ..SampleRead::default() }
    }

    fn worth(asked: &SampleRead, own: &SampleRead, documents: u64, bytes: u64) -> Worth {
        let (asked, own) = (*asked, *own);
        RewriteEstimate { asked, own, documents, storage_bytes: bytes, ..RewriteEstimate::default() }.worth()
    }

    /// 100,000 documents of 1 KiB: 2,000 of them take up 2,048,000 bytes.
    fn of_collection(asked: &SampleRead, own: &SampleRead) -> Worth {
        worth(asked, own, 100_000, 100_000 * 1_024)
    }

    #[test]
    fn both_samples_must_come_from_the_device() {
        let device = Some(2 * MEBIBYTE);
        let of = |asked, own| of_collection(&sample(2_000, 500, asked), &sample(2_000, 100, own));
        assert_eq!(of(device, device), Worth::Yes(5.0));
        assert_eq!(of(device, Some(0)), Worth::FromCache);
        assert_eq!(of(Some(0), device), Worth::FromCache);
        assert_eq!(of(Some(900_000), device), Worth::FromCache);
        assert_eq!(of(None, device), Worth::NotMeasured);
        assert_eq!(of(None, None), Worth::NotMeasured);
        let own = sample(2_000, 400, device);
        assert_eq!(of_collection(&sample(2_000, 500, device), &own), Worth::No(1.25));
    }

    #[test]
    fn empty_and_small_collections_never_get_advice() {
        let slow = sample(2_000, 9_000, Some(1 << 30));
        let quick = sample(2_000, 1, Some(1 << 30));
        assert_eq!(worth(&slow, &quick, 0, 4_096), Worth::Empty);
        assert_eq!(worth(&slow, &quick, 999, 1 << 30), Worth::Small);
        assert_eq!(worth(&slow, &quick, 100_000, MEBIBYTE - 1), Worth::Small);
        // Documents deleted in the meantime: the sample is smaller than expected.
        assert_eq!(of_collection(&sample(5, 900, Some(1 << 30)), &quick), Worth::FromCache);
    }
}
