//! A bounded table of rows by subject, optimised for recording operations.

use std::cmp::Reverse;

use foldhash::quality::RandomState;
use hashbrown::HashTable;

use crate::figures::Record;
use crate::histogram::LatencyBucket;
use crate::known_drivers::KnownDrivers;
use crate::row::{Row, RowKeyRef, SubjectRef};
use crate::time_split::{RowSplit, WireOperation};
use crate::{Class, Endpoint, Operation, Role, ShapeId, Source};

/// The maximum number of rows of one table; further ones are counted under `other`.
pub const MAX_ROWS: usize = 10_000;
/// The maximum number of rows of a table by application or by client.
pub const MAX_GROUPS: usize = 4_096;
/// The maximum number of rows `other` in addition to the cap: one for each server, role and class.
pub const MAX_OTHER_ROWS: usize = 64;

/// What rows are grouped by.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum GroupBy {
    /// Class and query shape.
    #[default]
    Shape,
    /// Like [`GroupBy::Shape`], and by the order of keys as sent.
    Order,
    /// `db.collection`.
    Namespace,
    /// The client's application.
    App,
    /// The client's address.
    Client,
    /// Plan summary.
    Plan,
    /// The user that the server authenticated.
    User,
    /// The comment that the client gave its command.
    Comment,
}

impl GroupBy {
    /// The groupings of a digest, in display order.
    pub const DIGEST: [Self; 8] = [
        Self::Shape,
        Self::Order,
        Self::Namespace,
        Self::App,
        Self::Plan,
        Self::Client,
        Self::User,
        Self::Comment,
    ];

    /// The stable name in arguments and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shape => "shape",
            Self::Order => "order",
            Self::Namespace => "namespace",
            Self::App => "app",
            Self::Client => "client",
            Self::Plan => "plan",
            Self::User => "user",
            Self::Comment => "comment",
        }
    }

    /// Whether the names of its rows are values that clients chose, which are shown only if asked for.
    pub const fn shows_values(self) -> bool {
        matches!(self, Self::User | Self::Comment)
    }

    /// The grouping with this stable name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::DIGEST.into_iter().find(|one| one.name() == name)
    }
}

/// The purpose of a table.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum Purpose {
    /// One span of time of a capture: rows are split by server, role and class, and have clients.
    #[default]
    Window,
    /// All operations of one or several sources: rows by shape are split by role and class, and all rows have timelines.
    Digest,
}

/// Size of the cache of recent rows, which are found without hashing.
const RECENT: usize = 64;

/// A bounded table of rows.
#[derive(Clone, Debug)]
pub struct Table {
    /// What rows are grouped by.
    pub by: GroupBy,
    purpose: Purpose,
    rows: Vec<Row>,
    index: HashTable<u32>,
    hasher: RandomState,
    /// The index of the row found last for each quick hash modulo [`RECENT`].
    recent: [u32; RECENT],
    /// The most rows, without the rows `other`. It falls when the table has to save bytes.
    most: usize,
}

impl Table {
    fn new(by: GroupBy, purpose: Purpose) -> Self {
        Self {
            by,
            purpose,
            rows: Vec::new(),
            index: HashTable::new(),
            hasher: RandomState::default(),
            recent: [0; RECENT],
            most: if matches!(by, GroupBy::App | GroupBy::Client) { MAX_GROUPS } else { MAX_ROWS },
        }
    }

    /// An empty table for one span of time: rows are split by role and class, those by shape by server too.
    pub fn of_window(by: GroupBy) -> Self {
        Self::new(by, Purpose::Window)
    }

    /// An empty table for a digest: rows have timelines, and those by shape are split by role and class.
    pub fn of_digest(by: GroupBy) -> Self {
        Self::new(by, Purpose::Digest)
    }

    /// Adds one operation. Returns the index of its row, and whether the row is `other` because the table is full.
    #[inline]
    pub fn record(&mut self, record: &Record<'_>) -> (usize, bool) {
        let Record { op, identity, .. } = *record;
        let purpose = self.purpose;
        // `record_under` is inlined for each kind of subject, so that its checks become constant.
        match self.by {
            GroupBy::Shape => {
                self.record_under(record, purpose, SubjectRef::Shape(identity, op.shape, ShapeId(0)))
            }
            GroupBy::Order => {
                self.record_under(record, purpose, SubjectRef::Shape(identity, op.shape, op.ordered_id))
            }
            GroupBy::Namespace => {
                let subject = SubjectRef::Namespace(&op.shape.database, &op.shape.collection);
                self.record_under(record, purpose, subject)
            }
            GroupBy::App => self.record_under(record, purpose, SubjectRef::App(op.app)),
            GroupBy::Client => self.record_under(record, purpose, SubjectRef::Client(op.client.ip())),
            GroupBy::Plan => self.record_under(record, purpose, SubjectRef::Plan(record.plan())),
            GroupBy::User => self.record_under(record, purpose, SubjectRef::User(record.user())),
            GroupBy::Comment => self.record_under(record, purpose, SubjectRef::Comment(record.comment())),
        }
    }

    /// Like [`record`](Self::record), for an operation captured on the wire, with the bucket of its latency. It is
    /// compiled for what all of these have in common in the tables of windows, because captures spend their time here.
    pub(crate) fn record_wire(&mut self, op: &Operation<'_>, bucket: LatencyBucket) -> (usize, bool) {
        let record = &Record::wire_in(op, bucket);
        if self.purpose != Purpose::Window {
            return self.record(record);
        }
        let shape = |order| SubjectRef::Shape(record.identity, op.shape, order);
        match self.by {
            GroupBy::Shape => self.record_under(record, Purpose::Window, shape(ShapeId(0))),
            GroupBy::Order => self.record_under(record, Purpose::Window, shape(op.ordered_id)),
            GroupBy::App => self.record_under(record, Purpose::Window, SubjectRef::App(op.app)),
            GroupBy::Client => self.record_under(record, Purpose::Window, SubjectRef::Client(op.client.ip())),
            GroupBy::Namespace | GroupBy::Plan | GroupBy::User | GroupBy::Comment => self.record(record),
        }
    }

    /// `purpose` is that of this table.
    #[inline(always)]
    fn record_under(
        &mut self,
        record: &Record<'_>,
        purpose: Purpose,
        subject: SubjectRef<'_>,
    ) -> (usize, bool) {
        let is_shape = matches!(subject, SubjectRef::Shape(..));
        let mut key = RowKeyRef {
            server: Endpoint::default(),
            role: Role::default(),
            class: Class::default(),
            subject,
        };
        if is_shape || purpose == Purpose::Window {
            key.class = record.op.class;
            key.role = record.op.role;
        }
        if is_shape && purpose == Purpose::Window {
            key.server = record.op.server;
        }
        let slot = key.quick_hash() as usize % RECENT;
        let found = self.recent[slot] as usize;
        let (at, folded) = match self.rows.get(found) {
            Some(row) if key.matches(row) => (found, false),
            _ => {
                let (at, folded) = self.find_or_add(&key);
                self.recent[slot] = at as u32;
                (at, folded)
            }
        };
        let row = &mut self.rows[at];
        if is_shape || purpose == Purpose::Digest {
            row.add_ids(record);
        }
        let observed = row.record(record);
        if purpose == Purpose::Digest {
            observed.figures.record_time(record);
        }
        if is_shape || (purpose == Purpose::Digest && !matches!(subject, SubjectRef::App(_))) {
            let share = record.share();
            observed.apps.add_shared(record.op.app, share);
            if purpose == Purpose::Window {
                let ip = record.op.client.ip();
                observed.clients.add(&ip, share, || ip);
            }
        }
        (at, folded)
    }

    /// The split of an operation's row, added if missing, and whether that row is `other` because the table is full.
    /// `None` if the table is not that of a window by shape.
    pub fn split_of(&mut self, op: &WireOperation) -> Option<(&mut RowSplit, bool)> {
        let order = match (self.purpose, self.by) {
            (Purpose::Window, GroupBy::Shape) => ShapeId(0),
            (Purpose::Window, GroupBy::Order) => op.ordered_id,
            _ => return None,
        };
        let subject = SubjectRef::Shape(op.shape.identity(), &op.shape, order);
        let key = RowKeyRef { server: op.server, role: op.role, class: op.class, subject };
        let (at, folded) = self.find_or_add(&key);
        Some((self.rows[at].split.get_or_insert_default(), folded))
    }

    /// Adds a row to the row with the same subject. Returns its index, and whether it is `other`.
    pub fn add(&mut self, row: &Row) -> (usize, bool) {
        let (at, folded) = self.find_or_add(&row.key_ref());
        self.rows[at].merge(row);
        (at, folded)
    }

    /// Like [`add`](Self::add), without copying what is new.
    pub fn add_owned(&mut self, row: Row) -> (usize, bool) {
        let key = row.key_ref();
        if !key.is_other() && self.rows.len() < self.cap() {
            let hash = key.hash(&self.hasher);
            match self.position(hash, &key) {
                Some(at) => {
                    self.rows[at].absorb(row);
                    return (at, false);
                }
                None => return (self.push(hash, row), false),
            }
        }
        let (at, folded) = self.find_or_add(&key);
        self.rows[at].absorb(row);
        (at, folded)
    }

    /// Gives servers other names; rows that then have the same key are added up. Returns whether any name changed.
    pub fn rename_servers(&mut self, name: &mut dyn FnMut(Endpoint) -> Endpoint) -> bool {
        let names: Vec<Endpoint> = self.rows.iter().map(|row| name(row.server)).collect();
        if self.rows.iter().zip(&names).all(|(row, name)| row.server == *name) {
            return false;
        }
        let mut old = std::mem::replace(self, Self::new(self.by, self.purpose));
        self.most = old.most;
        for (mut row, name) in old.rows.drain(..).zip(names) {
            row.server = name;
            self.add_owned(row);
        }
        true
    }

    /// Replaces each application that is only a name by the one that has this name; rows that are then about the same one
    /// are added up.
    pub(crate) fn name_applications(&mut self, known: &KnownDrivers) {
        let mut is_changed = false;
        self.rows.iter_mut().for_each(|row| is_changed |= row.name_applications(known));
        if is_changed {
            let mut old = std::mem::replace(self, Self::new(self.by, self.purpose));
            self.most = old.most;
            for row in old.rows.drain(..) {
                self.add_owned(row);
            }
        }
    }

    /// Reserves capacity for `more` additional rows, up to the cap.
    pub fn reserve(&mut self, more: usize) {
        let more = more.min(self.cap().saturating_sub(self.rows.len()));
        let Self { rows, index, hasher, .. } = self;
        rows.reserve(more);
        index.reserve(more, |&at| rows[at as usize].key_ref().hash(hasher));
    }

    /// Adds all rows of `other`. Returns the number of operations that were counted under `other`.
    pub fn merge(&mut self, other: &Self) -> u64 {
        let folded = |row: &Row, folded: bool| if folded { row.figures().calls } else { 0 };
        other.rows.iter().map(|row| folded(row, self.add(row).1)).sum()
    }

    /// The index of the row with this key, which is added if missing. If the table is full: the index of the row
    /// `other` for the same server, role and class, and `true`. There are at most [`MAX_OTHER_ROWS`] such rows; the
    /// last one takes the rest.
    fn find_or_add(&mut self, key: &RowKeyRef<'_>) -> (usize, bool) {
        let (is_other, cap) = (key.is_other(), self.cap());
        if !is_other {
            if let Some(at) = self.find(key) {
                return (at, false);
            }
            if self.rows.len() < cap {
                return (self.insert(key), false);
            }
        }
        let other = RowKeyRef { subject: SubjectRef::Other, ..*key };
        let at = match self.find(&other) {
            Some(at) => at,
            None if self.rows.len() < cap + MAX_OTHER_ROWS => self.insert(&other),
            None => self.rows.len() - 1,
        };
        (at, !is_other)
    }

    /// The most rows, not counting those of the rest.
    fn cap(&self) -> usize {
        self.most
    }

    /// The bytes that it has allocated, without those of shapes and applications, which are shared.
    pub fn memory(&self) -> usize {
        let rows: usize = self.rows.iter().map(Row::heap_bytes).sum();
        rows + self.rows.capacity() * size_of::<Row>() + self.index.allocation_size()
    }

    /// If it takes more than `bytes`, adds rows to the row `other` of their server, role and class, those with the fewest
    /// operations first, and takes no new ones from now on. Returns the number of operations in them. It may still
    /// take more if the rows `other` do.
    pub fn limit(&mut self, bytes: usize) -> u64 {
        let mut folded = 0;
        let mut target = bytes;
        while self.memory() > bytes && self.rows.iter().any(|row| !row.key_ref().is_other()) {
            // Room for what comes next, so that it is not done again at once.
            target = target / 4 * 3;
            folded += self.fold(target);
        }
        folded
    }

    /// Keeps the rows with the most operations that take at most `bytes`, and the rows `other`, to which it adds all
    /// others. Returns the number of operations in those.
    fn fold(&mut self, bytes: usize) -> u64 {
        // What a row takes besides its heap: its place in the list and in the index, twice because lists have spare room.
        const PLACE: usize = 2 * size_of::<Row>() + 16;
        let mut rows = std::mem::take(&mut self.rows);
        // For equal counts, those that came first.
        rows.sort_by_key(|row| {
            let calls = Source::ALL.map(|source| row.observed_by(source).map_or(0, |one| one.figures.calls));
            (!row.key_ref().is_other(), Reverse(calls.into_iter().max()))
        });
        let (mut used, mut kept) = (0, 0);
        for row in &rows {
            used += PLACE + row.heap_bytes();
            if used > bytes && !row.key_ref().is_other() {
                break;
            }
            kept += 1;
        }
        let rest = rows.split_off(kept);
        let mut table = Self::new(self.by, self.purpose);
        table.reserve(kept);
        for row in rows {
            let hash = row.key_ref().hash(&table.hasher);
            table.push(hash, row);
        }
        table.most = kept;
        let mut folded = 0;
        for row in rest {
            folded += row.figures().calls;
            table.add_owned(row);
        }
        *self = table;
        folded
    }

    fn find(&self, key: &RowKeyRef<'_>) -> Option<usize> {
        self.position(key.hash(&self.hasher), key)
    }

    fn position(&self, hash: u64, key: &RowKeyRef<'_>) -> Option<usize> {
        self.index.find(hash, |&at| key.matches(&self.rows[at as usize])).map(|&at| at as usize)
    }

    fn insert(&mut self, key: &RowKeyRef<'_>) -> usize {
        self.push(key.hash(&self.hasher), Row::of_key(key))
    }

    /// Adds a row whose key has this hash.
    fn push(&mut self, hash: u64, row: Row) -> usize {
        let Self { rows, index, hasher, .. } = self;
        let at = rows.len();
        rows.push(row);
        index.insert_unique(hash, at as u32, |&at| rows[at as usize].key_ref().hash(hasher));
        at
    }

    /// The rows, in order of first appearance.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows, in order of first appearance.
    pub fn iter(&self) -> std::slice::Iter<'_, Row> {
        self.rows.iter()
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}
