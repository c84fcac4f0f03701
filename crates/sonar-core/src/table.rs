//! Figures by row: by query shape, by application, by client.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::quality::RandomState;
use hashbrown::HashTable;

use crate::histogram::Bucket;
use crate::{
    Application, Class, Coverage, Endpoint, Histogram, Operation, Outcome, Role, ShapeId, ShapeInfo,
    Timestamp,
};

/// The most rows of one table; what comes after is counted under `other`.
pub const MAX_ROWS: usize = 10_000;
/// The rows `other` that a full table may have beside its cap, one for each server, role and class.
pub const MAX_OTHER_ROWS: usize = 64;
/// The most applications, or clients, of one table; what comes after is counted under `other`.
pub const MAX_GROUPS: usize = 4_096;
/// The most applications told apart within one row.
pub const MAX_APPS_PER_ROW: usize = 32;
/// The most client addresses told apart within one row.
pub const MAX_CLIENTS_PER_ROW: usize = 32;
/// The most error codes told apart within one row.
pub const MAX_ERROR_CODES: usize = 32;
/// The most ordered ids told apart within one row.
pub const MAX_ORDERED_IDS: usize = 8;

/// Counts, sums and latencies: raw figures, from which views derive rates and means.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Operations that ended, whichever way.
    pub calls: u64,
    /// Statements that they held.
    pub statements: u64,
    /// Operations with at least one error.
    pub failed: u64,
    /// Operations that were never answered.
    pub unanswered: u64,
    /// Operations that asked for no answer.
    pub unacknowledged: u64,
    /// Operations answered in a way that could not be read.
    pub outcome_unknown: u64,
    /// Errors by code (0: the server gave none); at most [`MAX_ERROR_CODES`] codes.
    pub errors: Vec<(i32, u64)>,
    /// Errors of further codes.
    pub errors_other: u64,
    /// Last byte of the request to first byte of the reply.
    pub latency: Histogram,
    /// Sum of the time from the first to the last byte of replies, in nanoseconds.
    pub transfer_ns: u64,
    /// Bytes of requests on the wire, TCP payload.
    pub request_bytes: u64,
    /// Bytes of replies on the wire, TCP payload.
    pub response_bytes: u64,
    /// Documents returned, over the operations of which that is known.
    pub docs_returned: u64,
    /// Operations of which the number of returned documents is known.
    pub docs_returned_known: u64,
    /// Documents inserted, changed or deleted, over the operations of which that is known.
    pub docs_affected: u64,
    /// Operations of which the number of affected documents is known.
    pub docs_affected_known: u64,
    /// End of the first operation.
    pub first_seen: Timestamp,
    /// End of the last operation.
    pub last_seen: Timestamp,
}

impl Figures {
    /// Adds one operation; `bucket` is that of its latency.
    #[inline]
    fn record(&mut self, op: &Operation<'_>, bucket: Bucket) {
        self.see(op.end, op.end);
        self.calls += 1;
        self.statements += u64::from(op.statement_count);
        match op.outcome {
            Outcome::Ok | Outcome::InFlight => {}
            Outcome::Failed(errors) => {
                self.failed += 1;
                for &(code, count) in errors.codes {
                    self.add_error(code, u64::from(count));
                }
            }
            Outcome::Unanswered => self.unanswered += 1,
            Outcome::Unacknowledged => self.unacknowledged += 1,
            Outcome::Unknown => self.outcome_unknown += 1,
        }
        if let Some(ns) = op.latency_ns {
            self.latency.record_in(ns, bucket);
        }
        self.transfer_ns = self.transfer_ns.saturating_add(op.transfer_ns.unwrap_or(0));
        self.request_bytes += op.request_bytes;
        self.response_bytes += op.response_bytes;
        if let Some(docs) = op.docs_returned {
            self.docs_returned = self.docs_returned.saturating_add(docs);
            self.docs_returned_known += 1;
        }
        if let Some(docs) = op.docs_affected {
            self.docs_affected = self.docs_affected.saturating_add(docs);
            self.docs_affected_known += 1;
        }
    }

    fn see(&mut self, first: Timestamp, last: Timestamp) {
        if self.calls == 0 || first < self.first_seen {
            self.first_seen = first;
        }
        self.last_seen = self.last_seen.max(last);
    }

    fn add_error(&mut self, code: i32, count: u64) {
        if let Some((_, seen)) = self.errors.iter_mut().find(|(known, _)| *known == code) {
            *seen += count;
        } else if self.errors.len() < MAX_ERROR_CODES {
            self.errors.push((code, count));
        } else {
            self.errors_other += count;
        }
    }

    /// Adds all that `other` holds.
    pub fn merge(&mut self, other: &Self) {
        if other.calls == 0 {
            return;
        }
        self.see(other.first_seen, other.last_seen);
        self.calls += other.calls;
        self.statements += other.statements;
        self.failed += other.failed;
        self.unanswered += other.unanswered;
        self.unacknowledged += other.unacknowledged;
        self.outcome_unknown += other.outcome_unknown;
        for &(code, count) in &other.errors {
            self.add_error(code, count);
        }
        self.errors_other += other.errors_other;
        self.latency.merge(&other.latency);
        self.transfer_ns = self.transfer_ns.saturating_add(other.transfer_ns);
        self.request_bytes += other.request_bytes;
        self.response_bytes += other.response_bytes;
        self.docs_returned = self.docs_returned.saturating_add(other.docs_returned);
        self.docs_returned_known += other.docs_returned_known;
        self.docs_affected = self.docs_affected.saturating_add(other.docs_affected);
        self.docs_affected_known += other.docs_affected_known;
    }

    /// Errors of all codes.
    pub fn error_count(&self) -> u64 {
        self.errors.iter().map(|(_, count)| count).sum::<u64>() + self.errors_other
    }

    /// Documents returned; `None` when that is known of no operation.
    pub fn docs_returned(&self) -> Option<u64> {
        (self.docs_returned_known > 0).then_some(self.docs_returned)
    }

    /// Documents affected; `None` when that is known of no operation.
    pub fn docs_affected(&self) -> Option<u64> {
        (self.docs_affected_known > 0).then_some(self.docs_affected)
    }
}

/// The few figures kept for each application and each client within a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Operations that ended.
    pub calls: u64,
    /// Operations with an error.
    pub failed: u64,
    /// Sum of latencies in nanoseconds.
    pub latency_ns: u64,
}

impl Share {
    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.failed += other.failed;
        self.latency_ns = self.latency_ns.saturating_add(other.latency_ns);
    }
}

/// Shares by some key, at most `cap` of them; the rest together under `other`.
#[derive(Clone, Debug)]
pub struct Shares<K> {
    entries: Vec<(K, Share)>,
    /// What did not fit.
    pub other: Share,
}

impl<K> Default for Shares<K> {
    fn default() -> Self {
        Self { entries: Vec::new(), other: Share::default() }
    }
}

impl<K: Clone> Shares<K> {
    /// Adds `share` to the entry for which `is` holds, or to `other` when there is no room for it.
    #[inline]
    pub(crate) fn add(&mut self, is: impl Fn(&K) -> bool, key: impl FnOnce() -> K, share: Share, cap: usize) {
        if let Some((_, mine)) = self.entries.iter_mut().find(|(known, _)| is(known)) {
            mine.add(share);
        } else if self.entries.len() < cap {
            self.entries.push((key(), share));
        } else {
            self.other.add(share);
        }
    }

    /// The entries, in the order in which they were first seen.
    pub fn iter(&self) -> impl Iterator<Item = &(K, Share)> {
        self.entries.iter()
    }

    /// How many are told apart.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// What makes a row of the table by shape.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct RowKey {
    /// The server that was asked.
    pub server: Endpoint,
    /// See [`Operation::role`].
    pub role: Role,
    /// See [`Operation::class`].
    pub class: Class,
    /// The shape; id 0 in the row `other`.
    pub shape: ShapeId,
    /// The ordered id, where rows are split by it; id 0 otherwise.
    pub order: ShapeId,
}

/// One row of the table by shape.
#[derive(Clone, Debug)]
pub struct Row {
    /// What makes it a row.
    pub key: RowKey,
    /// Its shape.
    pub shape: Arc<ShapeInfo>,
    /// The ordered ids seen, at most [`MAX_ORDERED_IDS`].
    pub ordered_ids: Vec<ShapeId>,
    /// Its figures.
    pub figures: Figures,
    /// By application.
    pub apps: Shares<Arc<Application>>,
    /// By client address.
    pub clients: Shares<IpAddr>,
}

impl Row {
    fn new(key: RowKey, shape: Arc<ShapeInfo>) -> Self {
        Self {
            key,
            shape,
            ordered_ids: Vec::new(),
            figures: Figures::default(),
            apps: Shares::default(),
            clients: Shares::default(),
        }
    }

    fn see_order(&mut self, id: ShapeId) {
        if !self.ordered_ids.contains(&id) && self.ordered_ids.len() < MAX_ORDERED_IDS {
            self.ordered_ids.push(id);
        }
    }
}

/// Rows that are found without a hash.
const RECENT: usize = 64;

/// A bounded map from a key to a row, with the key inside the row.
#[derive(Clone, Debug)]
struct Rows<R> {
    rows: Vec<R>,
    index: HashTable<u32>,
    hasher: RandomState,
    /// Where the row stands that was asked for last, of those whose cheap numbers fall together.
    recent: [u32; RECENT],
}

impl<R> Default for Rows<R> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            index: HashTable::new(),
            hasher: RandomState::default(),
            recent: [0; RECENT],
        }
    }
}

impl<R> Rows<R> {
    /// Where the row is for which `is` holds, if it was the last with such a `number`: any that is quickly
    /// made of its key.
    #[inline]
    fn recent(&self, number: u64, is: impl Fn(&R) -> bool) -> Option<usize> {
        let at = self.recent[number as usize % RECENT] as usize;
        self.rows.get(at).is_some_and(is).then_some(at)
    }

    fn note(&mut self, number: u64, at: usize) {
        self.recent[number as usize % RECENT] = at as u32;
    }

    /// Where the row with this hash is for which `is` holds.
    #[inline]
    fn find(&self, hash: u64, is: impl Fn(&R) -> bool) -> Option<usize> {
        self.index.find(hash, |&at| is(&self.rows[at as usize])).map(|&at| at as usize)
    }

    /// Adds a row whose key is not there yet; `hash` must be the one used for the lookup.
    fn insert(&mut self, row: R, hash: impl Fn(&RandomState, &R) -> u64) -> usize {
        let at = self.rows.len();
        let own = hash(&self.hasher, &row);
        self.rows.push(row);
        let Self { rows, index, hasher, .. } = self;
        index.insert_unique(own, at as u32, |&at| hash(hasher, &rows[at as usize]));
        at
    }
}

/// The table by shape.
#[derive(Clone, Debug, Default)]
pub struct ShapeTable {
    rows: Rows<Row>,
    /// Whether rows are split by the ordered id.
    pub split_by_order: bool,
}

impl ShapeTable {
    /// An empty table.
    pub fn new(split_by_order: bool) -> Self {
        Self { split_by_order, ..Self::default() }
    }

    /// Adds one operation; what did not fit is counted in `coverage`.
    #[inline]
    pub(crate) fn record(&mut self, op: &Operation<'_>, bucket: Bucket, coverage: &mut Coverage) {
        let key = RowKey {
            server: op.server,
            role: op.role,
            class: op.class,
            shape: op.shape.id,
            order: if self.split_by_order { op.ordered_id } else { ShapeId(0) },
        };
        let row = self.row(key, op.shape, 1, coverage);
        row.figures.record(op, bucket);
        row.see_order(op.ordered_id);
        let share = Share {
            calls: 1,
            failed: u64::from(matches!(op.outcome, Outcome::Failed(_))),
            latency_ns: op.latency_ns.unwrap_or(0),
        };
        let is_app = |known: &Arc<Application>| Arc::ptr_eq(known, op.app) || known == op.app;
        row.apps.add(is_app, || op.app.clone(), share, MAX_APPS_PER_ROW);
        let ip = op.client.ip();
        row.clients.add(|known| *known == ip, || ip, share, MAX_CLIENTS_PER_ROW);
    }

    /// Adds all rows of `other`; what did not fit is counted in `coverage`.
    pub fn merge(&mut self, other: &Self, coverage: &mut Coverage) {
        for theirs in other.iter() {
            let mine = self.row(theirs.key, &theirs.shape, theirs.figures.calls, coverage);
            mine.figures.merge(&theirs.figures);
            theirs.ordered_ids.iter().for_each(|&id| mine.see_order(id));
            for (app, share) in theirs.apps.iter() {
                mine.apps.add(|known| known == app, || app.clone(), *share, MAX_APPS_PER_ROW);
            }
            mine.apps.other.add(theirs.apps.other);
            for (ip, share) in theirs.clients.iter() {
                mine.clients.add(|known| known == ip, || *ip, *share, MAX_CLIENTS_PER_ROW);
            }
            mine.clients.other.add(theirs.clients.other);
        }
    }

    /// The row of `key`, or the row `other` of its server, role and class when the table is full.
    #[inline]
    fn row(&mut self, key: RowKey, shape: &Arc<ShapeInfo>, calls: u64, coverage: &mut Coverage) -> &mut Row {
        // Ids are hashes themselves.
        let number = (key.shape.0 ^ key.order.0).wrapping_add(u64::from(key.server.port));
        let at = match self.rows.recent(number, |row| row.key == key) {
            Some(at) => at,
            None => {
                let at = self.find_or_add(key, shape, calls, coverage);
                self.rows.note(number, at);
                at
            }
        };
        &mut self.rows.rows[at]
    }

    fn find_or_add(
        &mut self,
        key: RowKey,
        shape: &Arc<ShapeInfo>,
        calls: u64,
        coverage: &mut Coverage,
    ) -> usize {
        match self.find(&key) {
            Some(at) => at,
            None if self.rows.rows.len() < MAX_ROWS => {
                self.rows.insert(Row::new(key, shape.clone()), |hasher, row| hasher.hash_one(row.key))
            }
            None => {
                coverage.shapes_folded += calls;
                self.other(RowKey { shape: ShapeId(0), order: ShapeId(0), ..key })
            }
        }
    }

    /// The row `other` of a server, role and class. There are [`MAX_OTHER_ROWS`] beside the cap; after
    /// them all goes to the last of them.
    fn other(&mut self, key: RowKey) -> usize {
        match self.find(&key) {
            Some(at) => at,
            None if self.rows.rows.len() < MAX_ROWS + MAX_OTHER_ROWS => {
                let text: Box<str> = "other".into();
                let shape = ShapeInfo { typed: text.clone(), plain: text, ..ShapeInfo::default() };
                self.rows.insert(Row::new(key, Arc::new(shape)), |hasher, row| hasher.hash_one(row.key))
            }
            None => self.rows.rows.len() - 1,
        }
    }

    fn find(&self, key: &RowKey) -> Option<usize> {
        self.rows.find(self.rows.hasher.hash_one(key), |row| row.key == *key)
    }

    /// The row of `key`.
    pub fn get(&self, key: &RowKey) -> Option<&Row> {
        self.find(key).map(|at| &self.rows.rows[at])
    }

    /// The rows, in the order in which they were first seen.
    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows.rows.iter()
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.rows.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.rows.is_empty()
    }
}

/// What a row of a table by application or by client stands for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum GroupKey {
    /// Everything that did not fit.
    Other,
    /// An application.
    App(Arc<Application>),
    /// A client address.
    Client(IpAddr),
}

/// A [`GroupKey`] that is borrowed.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum GroupRef<'a> {
    Other,
    App(&'a Arc<Application>),
    Client(IpAddr),
}

impl GroupKey {
    fn borrow(&self) -> GroupRef<'_> {
        match self {
            Self::Other => GroupRef::Other,
            Self::App(app) => GroupRef::App(app),
            Self::Client(ip) => GroupRef::Client(*ip),
        }
    }
}

impl GroupRef<'_> {
    /// Mostly another one for another key.
    #[inline]
    fn number(self) -> u64 {
        match self {
            Self::Other => 0,
            // Applications lie apart in memory.
            Self::App(app) => (Arc::as_ptr(app) as u64 >> 4) ^ (Arc::as_ptr(app) as u64 >> 10),
            Self::Client(IpAddr::V4(ip)) => u64::from(ip.to_bits()),
            Self::Client(IpAddr::V6(ip)) => ip.to_bits() as u64,
        }
    }

    fn to_key(self) -> GroupKey {
        match self {
            Self::Other => GroupKey::Other,
            Self::App(app) => GroupKey::App(app.clone()),
            Self::Client(ip) => GroupKey::Client(ip),
        }
    }
}

/// One row of a table by application or by client.
#[derive(Clone, Debug)]
pub struct Group {
    /// See [`Operation::role`].
    pub role: Role,
    /// See [`Operation::class`].
    pub class: Class,
    /// Whose figures these are.
    pub key: GroupKey,
    /// The figures.
    pub figures: Figures,
}

impl Group {
    #[inline]
    fn is(&self, role: Role, class: Class, key: GroupRef<'_>) -> bool {
        self.role == role && self.class == class && self.key.borrow() == key
    }
}

/// A table by application or by client.
#[derive(Clone, Debug, Default)]
pub struct GroupTable {
    groups: Rows<Group>,
}

impl GroupTable {
    /// Adds one operation under `key`. Returns whether it had to go under `other`.
    #[inline]
    pub(crate) fn record(&mut self, key: GroupRef<'_>, op: &Operation<'_>, bucket: Bucket) -> bool {
        let (role, class) = (op.role, op.class);
        let number = key.number().wrapping_add(class as u64);
        let (at, folded) = match self.groups.recent(number, |group| group.is(role, class, key)) {
            Some(at) => (at, false),
            None => {
                let (at, folded) = self.find_or_add(role, class, key);
                self.groups.note(number, at);
                (at, folded)
            }
        };
        self.groups.rows[at].figures.record(op, bucket);
        folded
    }

    /// Adds all groups of `other`. Returns how many operations had to go under `other`.
    pub fn merge(&mut self, other: &Self) -> u64 {
        let mut calls_folded = 0;
        for theirs in other.iter() {
            let (at, folded) = self.find_or_add(theirs.role, theirs.class, theirs.key.borrow());
            self.groups.rows[at].figures.merge(&theirs.figures);
            calls_folded += if folded { theirs.figures.calls } else { 0 };
        }
        calls_folded
    }

    /// Where the group is, made where there is none and room for it; else the group `other`.
    fn find_or_add(&mut self, role: Role, class: Class, key: GroupRef<'_>) -> (usize, bool) {
        if let Some(at) = self.find(role, class, key) {
            return (at, false);
        }
        let folded = self.groups.rows.len() >= MAX_GROUPS;
        let key = if folded { GroupRef::Other } else { key };
        let at = self.find(role, class, key).unwrap_or_else(|| {
            let group = Group { role, class, key: key.to_key(), figures: Figures::default() };
            self.groups
                .insert(group, |hasher, group| hasher.hash_one((group.role, group.class, group.key.borrow())))
        });
        (at, folded)
    }

    fn find(&self, role: Role, class: Class, key: GroupRef<'_>) -> Option<usize> {
        let hash = self.groups.hasher.hash_one((role, class, key));
        self.groups.find(hash, |group| group.is(role, class, key))
    }

    /// The groups, in the order in which they were first seen.
    pub fn iter(&self) -> impl Iterator<Item = &Group> {
        self.groups.rows.iter()
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.groups.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.groups.rows.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation<'a>(shape: &'a Arc<ShapeInfo>, app: &'a Arc<Application>, client: u8) -> Operation<'a> {
        Operation {
            start: Timestamp::from_unix(1, 0),
            end: Timestamp::from_unix(1, 250),
            latency_ns: Some(250),
            transfer_ns: Some(0),
            client: Endpoint::v4([10, 0, 0, client], 40_000),
            server: Endpoint::v4([10, 0, 0, 1], 27017),
            role: Role::Served,
            class: Class::User,
            command: "find",
            shape,
            ordered_id: shape.id,
            statements: &[],
            statement_count: 1,
            app,
            opcode: crate::operation::Opcode::Msg,
            compressor: None,
            request_id: 7,
            cursor_id: None,
            request_bytes: 100,
            response_bytes: 40,
            docs_returned: Some(1),
            docs_matched: None,
            docs_affected: None,
            outcome: Outcome::Failed(crate::operation::ErrorCodes { codes: &[(11_000, 2)] }),
            values: None,
        }
    }

    fn shape(id: u64) -> Arc<ShapeInfo> {
        Arc::new(ShapeInfo { id: ShapeId(id), ..ShapeInfo::default() })
    }

    #[test]
    fn a_full_table_folds_into_other_and_counts_it() {
        let (mut table, mut coverage, app) = (ShapeTable::new(false), Coverage::default(), Arc::default());
        for id in 1..=MAX_ROWS as u64 + 5 {
            table.record(&operation(&shape(id), &app, 9), Bucket::of(250), &mut coverage);
        }
        table.record(&operation(&shape(1), &app, 9), Bucket::of(250), &mut coverage);
        assert_eq!((table.len(), coverage.shapes_folded), (MAX_ROWS + 1, 5));
        let other = table.iter().last().unwrap();
        assert_eq!((other.key.shape, other.figures.calls, other.figures.error_count()), (ShapeId(0), 5, 10));
        assert_eq!(table.iter().map(|row| row.figures.calls).sum::<u64>(), MAX_ROWS as u64 + 6);
    }

    #[test]
    fn merged_tables_are_the_table_of_all() {
        let (app, late) = (Arc::new(Application::default()), Arc::new(Application::late()));
        let mut coverage = Coverage::default();
        let (mut left, mut right) = (ShapeTable::new(false), ShapeTable::new(false));
        left.record(&operation(&shape(1), &app, 9), Bucket::of(250), &mut coverage);
        right.record(&operation(&shape(1), &late, 8), Bucket::of(250), &mut coverage);
        right.record(&operation(&shape(2), &app, 9), Bucket::of(250), &mut coverage);
        left.merge(&right, &mut coverage);
        assert_eq!(left.len(), 2);
        let row = left.iter().next().unwrap();
        assert_eq!((row.figures.calls, row.apps.len(), row.clients.len()), (2, 2, 2));
        assert_eq!(row.figures.errors, [(11_000, 4)]);
        assert_eq!(row.figures.docs_affected(), None);
        assert_eq!(coverage, Coverage::default());
    }

    #[test]
    fn rows_are_split_by_order_only_when_asked() {
        let (one, app, mut coverage) = (shape(1), Arc::default(), Coverage::default());
        for (split, rows) in [(false, 1), (true, 2)] {
            let mut table = ShapeTable::new(split);
            for order in [5, 6] {
                table.record(
                    &Operation { ordered_id: ShapeId(order), ..operation(&one, &app, 9) },
                    Bucket::of(250),
                    &mut coverage,
                );
            }
            assert_eq!(table.len(), rows);
        }
    }

    #[test]
    fn too_many_clients_go_under_other() {
        let (one, app, mut table) = (shape(1), Arc::default(), GroupTable::default());
        let mut folded = 0;
        for n in 0..MAX_GROUPS as u32 + 3 {
            let client = std::net::Ipv4Addr::from(n);
            let op = operation(&one, &app, 1);
            folded += u64::from(table.record(GroupRef::Client(client.into()), &op, Bucket::of(250)));
        }
        assert_eq!((table.len(), folded), (MAX_GROUPS + 1, 3));
    }
}
