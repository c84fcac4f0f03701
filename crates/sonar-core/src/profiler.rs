//! The profiler's capped collection: how fast it fills and when it wraps.

use crate::time::NS_PER_S;
use crate::{ServerVersion, Timestamp};

/// Whether level 2 also writes every operation to the server's log. Servers before 4.4 do (measured with 4.0, not
/// with 4.2). From 4.4 on, the log gets operations slower than `slowms`, or those that match the filter, at every
/// level (source code of 4.4.6 and later; on Percona Server 4.4.6 `impact` measured 0 to 40 bytes per second at
/// level 2).
pub fn level_2_logs_all(version: ServerVersion) -> bool {
    version < ServerVersion::new(4, 4, 0) && version.is_known()
}

/// The fill state of a `system.profile` collection.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// Size in bytes at which it starts to overwrite; `None` if unknown.
    pub max_bytes: Option<u64>,
    /// Total size of its documents in bytes.
    pub size_bytes: u64,
    /// Number of documents.
    pub documents: u64,
    /// End of the operation in its first document.
    pub oldest: Option<Timestamp>,
    /// End of the operation in its last document.
    pub newest: Option<Timestamp>,
    /// Number of the latest documents that were read to determine the current rate.
    pub recent_documents: u64,
    /// End of the operation in the first of those.
    pub recent_since: Option<Timestamp>,
}

/// When a capped collection overwrites its oldest documents.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Wrap {
    /// It is empty, or its maximum size is unknown.
    Unknown,
    /// It is full: a document written now is overwritten after this time at the current rate.
    Full {
        /// Time in nanoseconds until everything is overwritten once.
        turn_ns: u64,
    },
    /// It will be full after this time at the current rate.
    In {
        /// Nanoseconds from now.
        ns: u64,
    },
}

impl Fill {
    /// Nanoseconds between its first and its last document; `None` if it is empty.
    pub fn span_ns(&self) -> Option<u64> {
        Some(self.newest?.since(self.oldest?))
    }

    /// Mean size of a document in bytes; `None` if it is empty.
    pub fn mean_bytes(&self) -> Option<f64> {
        (self.documents > 0).then(|| self.size_bytes as f64 / self.documents as f64)
    }

    /// Current rate in documents per second: the latest documents, divided by the time from the first of them
    /// to `now`, on the server's clock. The rate falls if nothing more is written. `None` if it is empty.
    pub fn rate(&self, now: Timestamp) -> Option<f64> {
        let since = self.recent_since?;
        // Times are whole milliseconds, so assume at least half of one.
        let ns = now.since(since).max(500_000);
        Some(self.recent_documents as f64 * NS_PER_S as f64 / ns as f64)
    }

    /// Whether new documents overwrite old ones. Documents differ in size, so a full collection may still have
    /// room for some. It counts as full if the free space is below four mean documents or 2 % of its size.
    pub fn is_full(&self) -> bool {
        match (self.max_bytes, self.mean_bytes()) {
            (Some(max), Some(mean)) => {
                let room = max.saturating_sub(self.size_bytes) as f64;
                room < (4.0 * mean).max(max as f64 / 50.0)
            }
            _ => false,
        }
    }

    /// When it wraps at the current rate.
    pub fn wrap(&self, now: Timestamp) -> Wrap {
        let (Some(max), Some(mean), Some(rate)) = (self.max_bytes, self.mean_bytes(), self.rate(now)) else {
            return Wrap::Unknown;
        };
        let time = |bytes: f64| (bytes / (rate * mean) * NS_PER_S as f64) as u64;
        if self.is_full() {
            Wrap::Full { turn_ns: time(max as f64) }
        } else {
            Wrap::In { ns: time(max as f64 - self.size_bytes as f64) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Option<Timestamp> {
        Some(Timestamp::from_unix(seconds, 0))
    }

    /// 1,000 documents of 500 bytes in a megabyte, the last 100 of them within ten seconds.
    fn half_full() -> Fill {
        Fill {
            max_bytes: Some(1_000_000),
            size_bytes: 500_000,
            documents: 1_000,
            oldest: at(1_000),
            newest: at(2_000),
            recent_documents: 100,
            recent_since: at(1_990),
        }
    }

    #[test]
    fn a_half_full_collection_wraps_after_its_second_half_is_written() {
        // Ten documents of 500 bytes per second: 500,000 bytes take 100 s.
        assert_eq!(half_full().wrap(Timestamp::from_unix(2_000, 0)), Wrap::In { ns: 100 * NS_PER_S });
        assert_eq!(half_full().span_ns(), Some(1_000 * NS_PER_S));
    }

    #[test]
    fn level_2_logs_all_on_old_servers_only() {
        for (version, all) in [("3.6.23", true), ("4.0.28", true), ("4.4.6", false), ("8.0.0", false)] {
            assert_eq!(level_2_logs_all(ServerVersion::parse(version)), all, "{version}");
        }
        assert!(!level_2_logs_all(ServerVersion::default()), "an unknown version");
    }

    #[test]
    fn the_rate_falls_while_nothing_is_written() {
        // Ninety more seconds without a document: a tenth of the rate, ten times as long.
        assert_eq!(half_full().wrap(Timestamp::from_unix(2_090, 0)), Wrap::In { ns: 1_000 * NS_PER_S });
    }

    #[test]
    fn a_full_collection_wraps_and_an_empty_one_is_unknown() {
        let full = Fill { size_bytes: 999_900, documents: 2_000, ..half_full() };
        let Wrap::Full { turn_ns } = full.wrap(Timestamp::from_unix(2_000, 0)) else { panic!("not full") };
        // 2,000 documents at ten per second.
        assert!((199..=201).contains(&(turn_ns / NS_PER_S)), "{turn_ns}");
        assert_eq!(Fill::default().wrap(Timestamp::from_unix(1, 0)), Wrap::Unknown);
        assert_eq!(Fill::default().span_ns(), None);
        let no_limit = Fill { max_bytes: None, ..half_full() };
        assert_eq!(no_limit.wrap(Timestamp::from_unix(2_000, 0)), Wrap::Unknown);
    }

    #[test]
    fn documents_of_the_current_millisecond_give_a_finite_rate() {
        let fill = Fill { recent_since: at(2_000), ..half_full() };
        assert!(fill.rate(Timestamp::from_unix(2_000, 0)).unwrap().is_finite());
        // The server's clock may have stepped back.
        assert!(fill.rate(Timestamp::from_unix(1_000, 0)).unwrap().is_finite());
    }
}
