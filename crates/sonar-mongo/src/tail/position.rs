//! How far a collection was read, and what was missed.

use std::sync::Arc;

use bson::Bson;
use bson::raw::RawDocument;
use sonar_core::Timestamp;

/// Documents that were overwritten before they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The database.
    pub database: Arc<str>,
    /// End of the last operation before the gap.
    pub from: Option<Timestamp>,
    /// End of the first operation after the gap.
    pub to: Option<Timestamp>,
    /// How many, by record ids; `None` if those are not consecutive. Includes this program's own reads of
    /// `system.profile`, at most a few per second.
    pub documents: Option<u64>,
    /// How many, estimated from the rate before the gap.
    pub about: Option<u64>,
}

/// How far a collection was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Position {
    /// `host:port`, or empty.
    pub(super) address: String,
    /// UUID of the collection.
    pub(super) uuid: Option<Bson>,
    /// Record id of the last document that was read.
    pub(super) record: i64,
    /// The latest end of an operation that was read.
    pub(super) newest: Option<i64>,
    /// End of the first operation that was read.
    first: Option<i64>,
    /// Documents read.
    seen: u64,
    /// Record id of the first document that was read.
    first_record: i64,
    /// Operations that ended at this time or before were read on another server.
    pub(super) after: Option<i64>,
}

impl Position {
    /// Before the first document of a collection.
    pub(super) fn beginning(address: String, uuid: Option<Bson>) -> Self {
        Self { address, uuid, ..Self::default() }
    }

    /// Notes a document.
    pub(super) fn advance(&mut self, record: i64, ts: Option<i64>) {
        if self.seen == 0 {
            self.first_record = record;
            self.first = ts;
        }
        self.seen += 1;
        self.record = record;
        self.newest = self.newest.max(ts);
    }

    /// Whether record ids seem to be consecutive.
    fn counts(&self) -> bool {
        let ids = self.record.saturating_sub(self.first_record).unsigned_abs();
        self.seen > 1 && ids <= self.seen.saturating_mul(4).saturating_add(100)
    }

    /// How many documents come in `ms` milliseconds, at the rate so far.
    fn about(&self, ms: i64) -> Option<u64> {
        let span = self.newest?.saturating_sub(self.first?);
        (span > 0 && ms >= 0).then(|| (self.seen as f64 / span as f64 * ms as f64).round() as u64)
    }

    /// What was missed, if `record` at `ts` is the first document after a gap.
    pub(super) fn missed(&self, database: &Arc<str>, record: i64, ts: Option<i64>) -> Missed {
        let between = self.newest.zip(ts).map(|(from, to)| to.saturating_sub(from).max(0));
        let gap = record.saturating_sub(self.record).saturating_sub(1).max(0).unsigned_abs();
        Missed {
            database: database.clone(),
            from: self.newest.map(Timestamp::from_unix_ms),
            to: ts.map(Timestamp::from_unix_ms),
            documents: self.counts().then_some(gap),
            about: between.and_then(|ms| self.about(ms)),
        }
    }
}

/// Record id and time in milliseconds of a profile document.
pub(super) fn place_of(document: &RawDocument) -> (Option<i64>, Option<i64>) {
    let record = document.get_i64("$recordId").ok();
    let ts = document.get_datetime("ts").ok().map(bson::DateTime::timestamp_millis);
    (record, ts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(records: impl Iterator<Item = i64>) -> Position {
        let mut position = Position::default();
        for record in records {
            position.advance(record, Some(1_000 + record * 10));
        }
        position
    }

    #[test]
    fn consecutive_record_ids_give_the_exact_number_of_missed_documents() {
        let position = read(1..=100);
        let missed = position.missed(&Arc::from("shop"), 151, Some(2_510));
        assert_eq!(missed.documents, Some(50));
        // A hundred in 990 ms, and 510 ms without.
        assert_eq!(missed.about, Some(52));
        assert_eq!(missed.from, Some(Timestamp::from_unix(2, 0)));
        assert_eq!(missed.to, Some(Timestamp::from_unix(2, 510_000_000)));
    }

    #[test]
    fn other_record_ids_give_an_estimate_only() {
        let position = read((1..=100).map(|n| n * 4_294_967_296));
        let missed = position.missed(&Arc::from("shop"), i64::MAX, None);
        assert_eq!((missed.documents, missed.about), (None, None));
        assert!(!Position::default().counts());
    }

    #[test]
    fn a_document_without_a_place_is_no_reason_to_stop() {
        let bare = bson::rawdoc! { "op": "query" };
        assert_eq!(place_of(&bare), (None, None));
        let odd = bson::rawdoc! { "ts": "yesterday", "$recordId": 5 };
        assert_eq!(place_of(&odd), (None, None));
    }
}
