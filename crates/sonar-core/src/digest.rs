//! One digest for every source: operations by shape, namespace, application or plan, with what the
//! server says of their execution beside what the wire knows.
//!
//! Figures here are *weighted*: an operation that stands for N others (a rate limit, a sample) counts N
//! times, and the number of entries that were read is kept beside it.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::quality::RandomState;

use crate::execution::{Execution, Identity, PlanFlags};
use crate::table::{MAX_APPS_PER_ROW, MAX_ERROR_CODES, Share, Shares};
use crate::timeline::{Bucket, Timeline};
use crate::{Application, Class, Histogram, Operation, Outcome, ShapeId, ShapeInfo, Timestamp};

/// The most rows; operations of further ones are counted in the row `other`.
pub const MAX_ROWS: usize = 10_000;
/// The most plans told apart within one row.
pub const MAX_PLANS: usize = 16;
/// The most bytes of a plan summary that are kept.
pub const MAX_PLAN: usize = 512;
/// The most single operations that are kept for a scatter plot.
pub const MAX_POINTS: usize = 100_000;

/// What makes a row.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum GroupBy {
    /// Class and query shape.
    #[default]
    Shape,
    /// As [`GroupBy::Shape`], and the order of keys as sent.
    Order,
    /// `db.collection`.
    Namespace,
    /// The client's application.
    App,
    /// Plan summary.
    Plan,
}

impl GroupBy {
    /// All of them, in the order of display.
    pub const ALL: [Self; 5] = [Self::Shape, Self::Order, Self::Namespace, Self::App, Self::Plan];

    /// The stable name in arguments and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shape => "shape",
            Self::Order => "order",
            Self::Namespace => "namespace",
            Self::App => "app",
            Self::Plan => "plan",
        }
    }

    /// From its stable name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// What a row stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    /// A shape, or where it is not known exactly, what is known of it.
    Shape {
        /// See [`Operation::class`].
        class: Class,
        /// How exactly the shape is known.
        identity: Identity,
        /// The shape.
        shape: Arc<ShapeInfo>,
        /// The ordered id, where rows are split by it; 0 otherwise.
        order: ShapeId,
    },
    /// `db.collection`, or a database.
    Namespace(Box<str>),
    /// An application.
    App(Arc<Application>),
    /// A plan summary; empty for none.
    Plan(Box<str>),
    /// All that did not fit.
    Other,
}

/// A sum over the operations of which it is known, and how many those are.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    /// The sum.
    pub total: u64,
    /// Operations that said it.
    pub known: u64,
}

impl Sum {
    #[inline]
    fn add(&mut self, value: Option<u64>, weight: u64) {
        if let Some(value) = value {
            self.total = self.total.saturating_add(value.saturating_mul(weight));
            self.known += weight;
        }
    }

    /// Adds another.
    pub fn merge(&mut self, other: Self) {
        self.total = self.total.saturating_add(other.total);
        self.known += other.known;
    }

    /// The sum; `None` when no operation said it.
    pub const fn get(self) -> Option<u64> {
        if self.known > 0 { Some(self.total) } else { None }
    }

    /// The mean over the operations that said it; `None` when none did.
    pub fn mean(self) -> Option<f64> {
        (self.known > 0).then(|| self.total as f64 / self.known as f64)
    }
}

/// A plan that was seen, and how often.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Plan summary as the server wrote it.
    pub summary: Box<str>,
    /// Operations.
    pub calls: u64,
    /// Of them: sorted in memory.
    pub memory_sorts: u64,
}

/// Counts and sums of one row, or of all.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Operations, weighted.
    pub calls: u64,
    /// Entries (profile documents, lines) that they were read from, statements joined to their command
    /// included.
    pub entries: u64,
    /// Statements, weighted.
    pub statements: u64,
    /// Operations with an error.
    pub failed: u64,
    /// Errors by code (0: the source gave none); at most [`MAX_ERROR_CODES`].
    pub errors: Vec<(i32, u64)>,
    /// Errors of further codes.
    pub errors_other: u64,
    /// How long they took. Of a source in whole milliseconds, 0 is "less than one".
    pub latency: Histogram,
    /// Index keys examined.
    pub keys_examined: Sum,
    /// Documents examined.
    pub docs_examined: Sum,
    /// Documents returned.
    pub returned: Sum,
    /// Documents inserted, changed or deleted.
    pub affected: Sum,
    /// Bytes of replies.
    pub response_bytes: Sum,
    /// Times they gave way.
    pub yields: Sum,
    /// Write conflicts.
    pub write_conflicts: Sum,
    /// Time of waiting for locks, in microseconds.
    pub lock_wait_us: Sum,
    /// Bytes that the storage engine read.
    pub storage_read_bytes: Sum,
    /// Time of that, in microseconds.
    pub storage_read_us: Sum,
    /// Bytes that the storage engine wrote.
    pub storage_written_bytes: Sum,
    /// Processor time in nanoseconds.
    pub cpu_ns: Sum,
    /// Time of planning in microseconds.
    pub planning_us: Sum,
    /// Time in the server's queues in microseconds.
    pub queued_us: Sum,
    /// Operations that scanned the whole collection.
    pub collection_scans: u64,
    /// Operations that sorted in memory.
    pub memory_sorts: u64,
    /// Operations that spilled to disk.
    pub used_disk: u64,
    /// Operations that were planned anew.
    pub replanned: u64,
    /// Plans, the first [`MAX_PLANS`] seen.
    pub plans: Vec<Plan>,
    /// Operations of further plans.
    pub plans_other: u64,
    /// End of the first operation.
    pub first_seen: Timestamp,
    /// End of the last one.
    pub last_seen: Timestamp,
    /// Over time.
    pub timeline: Timeline,
}

impl Tally {
    #[inline]
    fn record(&mut self, op: &Operation<'_>, execution: &Execution<'_>, entries: u64) {
        let weight = execution.weight();
        self.see(op.end, op.end);
        self.calls += weight;
        self.entries += entries;
        self.statements += u64::from(op.statement_count) * weight;
        if let Outcome::Failed(errors) = op.outcome {
            self.failed += weight;
            for &(code, count) in errors.codes {
                self.add_error(code, u64::from(count) * weight);
            }
        }
        if let Some(ns) = op.latency_ns {
            self.latency.record_many(ns, weight);
        }
        self.keys_examined.add(execution.keys_examined, weight);
        self.docs_examined.add(execution.docs_examined, weight);
        self.returned.add(op.docs_returned, weight);
        self.affected.add(op.docs_affected, weight);
        self.response_bytes.add((op.response_bytes > 0).then_some(op.response_bytes), weight);
        self.yields.add(execution.yields, weight);
        self.write_conflicts.add(execution.write_conflicts, weight);
        self.lock_wait_us.add(execution.lock_wait_us, weight);
        self.storage_read_bytes.add(execution.storage_read_bytes, weight);
        self.storage_read_us.add(execution.storage_read_us, weight);
        self.storage_written_bytes.add(execution.storage_written_bytes, weight);
        self.cpu_ns.add(execution.cpu_ns, weight);
        self.planning_us.add(execution.planning_us, weight);
        self.queued_us.add(execution.queued_us, weight);
        let PlanFlags { collection_scan, memory_sort, used_disk, replanned, .. } = execution.flags;
        self.collection_scans += weight * u64::from(collection_scan);
        self.memory_sorts += weight * u64::from(memory_sort);
        self.used_disk += weight * u64::from(used_disk);
        self.replanned += weight * u64::from(replanned);
        if !execution.plan.is_empty() {
            self.add_plan(execution.plan, weight, weight * u64::from(memory_sort));
        }
        self.timeline.add(op.end, bucket(op, execution));
    }

    fn see(&mut self, first: Timestamp, last: Timestamp) {
        if self.calls == 0 || first < self.first_seen {
            self.first_seen = first;
        }
        self.last_seen = self.last_seen.max(last);
    }

    /// Adds errors of one code.
    pub fn add_error(&mut self, code: i32, count: u64) {
        if let Some((_, seen)) = self.errors.iter_mut().find(|(known, _)| *known == code) {
            *seen += count;
        } else if self.errors.len() < MAX_ERROR_CODES {
            self.errors.push((code, count));
        } else {
            self.errors_other += count;
        }
    }

    /// Adds operations of one plan.
    #[inline]
    pub fn add_plan(&mut self, summary: &str, calls: u64, memory_sorts: u64) {
        let summary = cut(summary, MAX_PLAN);
        if let Some(plan) = self.plans.iter_mut().find(|plan| &*plan.summary == summary) {
            plan.calls += calls;
            plan.memory_sorts += memory_sorts;
        } else if self.plans.len() < MAX_PLANS {
            self.plans.push(Plan { summary: summary.into(), calls, memory_sorts });
        } else {
            self.plans_other += calls;
        }
    }

    /// Adds all that `other` holds.
    pub fn merge(&mut self, other: &Self) {
        if other.calls == 0 && other.entries == 0 {
            return;
        }
        self.see(other.first_seen, other.last_seen);
        self.calls += other.calls;
        self.entries += other.entries;
        self.statements += other.statements;
        self.failed += other.failed;
        other.errors.iter().for_each(|&(code, count)| self.add_error(code, count));
        self.errors_other += other.errors_other;
        self.latency.merge(&other.latency);
        for (mine, theirs) in self.sums_mut().into_iter().zip(other.sums()) {
            mine.merge(theirs.1);
        }
        self.collection_scans += other.collection_scans;
        self.memory_sorts += other.memory_sorts;
        self.used_disk += other.used_disk;
        self.replanned += other.replanned;
        other.plans.iter().for_each(|plan| self.add_plan(&plan.summary, plan.calls, plan.memory_sorts));
        self.plans_other += other.plans_other;
        self.timeline.merge(&other.timeline);
    }

    /// Errors of all codes.
    pub fn error_count(&self) -> u64 {
        self.errors.iter().map(|(_, count)| count).sum::<u64>() + self.errors_other
    }

    /// Documents, or where that is more keys, examined for each document returned; `None` when it is not
    /// known, or none was returned.
    pub fn examined_per_returned(&self) -> Option<f64> {
        let examined = self.docs_examined.get().max(self.keys_examined.get())?;
        let returned = self.returned.get().unwrap_or(0).max(self.affected.get().unwrap_or(0));
        (returned > 0).then(|| examined as f64 / returned as f64)
    }

    /// Every sum with its stable name.
    pub fn sums(&self) -> [(&'static str, Sum); 14] {
        [
            ("keys_examined", self.keys_examined),
            ("docs_examined", self.docs_examined),
            ("returned", self.returned),
            ("affected", self.affected),
            ("response_bytes", self.response_bytes),
            ("yields", self.yields),
            ("write_conflicts", self.write_conflicts),
            ("lock_wait_us", self.lock_wait_us),
            ("storage_read_bytes", self.storage_read_bytes),
            ("storage_read_us", self.storage_read_us),
            ("storage_written_bytes", self.storage_written_bytes),
            ("cpu_ns", self.cpu_ns),
            ("planning_us", self.planning_us),
            ("queued_us", self.queued_us),
        ]
    }

    /// The same to be written to, in the same order.
    pub fn sums_mut(&mut self) -> [&mut Sum; 14] {
        [
            &mut self.keys_examined,
            &mut self.docs_examined,
            &mut self.returned,
            &mut self.affected,
            &mut self.response_bytes,
            &mut self.yields,
            &mut self.write_conflicts,
            &mut self.lock_wait_us,
            &mut self.storage_read_bytes,
            &mut self.storage_read_us,
            &mut self.storage_written_bytes,
            &mut self.cpu_ns,
            &mut self.planning_us,
            &mut self.queued_us,
        ]
    }
}

fn bucket(op: &Operation<'_>, execution: &Execution<'_>) -> Bucket {
    let weight = execution.weight();
    let examined = execution.docs_examined.max(execution.keys_examined).unwrap_or(0);
    Bucket {
        calls: weight,
        latency_ns: op.latency_ns.unwrap_or(0).saturating_mul(weight),
        examined: examined.saturating_mul(weight),
    }
}

/// At most `bytes` bytes of `text`, cut between characters.
fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// One row.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What it stands for.
    pub subject: Subject,
    /// Its figures.
    pub tally: Tally,
    /// By application.
    pub apps: Shares<Arc<Application>>,
    /// The ordered ids seen, at most [`crate::table::MAX_ORDERED_IDS`].
    pub ordered_ids: Vec<ShapeId>,
    /// `queryHash` of the server, where every operation that gave one gave this.
    pub query_hash: Option<Box<str>>,
}

/// One operation, for a scatter plot.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Point {
    /// When it ended.
    pub end: Timestamp,
    /// How long it took, in nanoseconds.
    pub latency_ns: u64,
    /// Its row: an index into [`Digest::rows`].
    pub row: u32,
}

/// What a digest is made for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct DigestSettings {
    /// What makes a row.
    pub by: GroupBy,
    /// Whether single operations are kept for a scatter plot, at most [`MAX_POINTS`].
    pub points: bool,
}

/// Figures of all operations of one or several sources.
#[derive(Clone, Debug, Default)]
pub struct Digest {
    /// What it was made for.
    pub settings: DigestSettings,
    /// All operations.
    pub totals: Tally,
    rows: Vec<Entry>,
    index: HashMap<u64, u32, RandomState>,
    /// Operations in the row [`Subject::Other`], unweighted.
    pub folded: u64,
    /// A sample of single operations; every one, while there are no more than [`MAX_POINTS`].
    pub points: Vec<Point>,
    /// How many there were to choose from.
    pub points_seen: u64,
    random: u64,
}

impl Digest {
    /// An empty one.
    pub fn new(settings: DigestSettings) -> Self {
        Self { settings, random: 0x9e37_79b9_7f4a_7c15, ..Self::default() }
    }

    /// Adds one operation; `entries` is from how many entries of its source it was put together.
    #[inline]
    pub fn record(
        &mut self,
        op: &Operation<'_>,
        identity: Identity,
        execution: &Execution<'_>,
        entries: u64,
    ) {
        self.totals.record(op, execution, entries);
        let at = self.row_of(op, identity, execution);
        if let Some(row) = self.rows.get_mut(at as usize) {
            row.tally.record(op, execution, entries);
            if self.settings.by != GroupBy::App {
                let share = Share {
                    calls: execution.weight(),
                    failed: execution.weight() * u64::from(matches!(op.outcome, Outcome::Failed(_))),
                    latency_ns: op.latency_ns.unwrap_or(0).saturating_mul(execution.weight()),
                };
                let is_app = |known: &Arc<Application>| Arc::ptr_eq(known, op.app) || known == op.app;
                row.apps.add(is_app, || op.app.clone(), share, MAX_APPS_PER_ROW);
            }
            row.see(op.ordered_id, execution.query_hash);
        }
        if self.settings.points
            && let Some(latency_ns) = op.latency_ns
        {
            self.keep(Point { end: op.end, latency_ns, row: at });
        }
    }

    #[inline]
    fn row_of(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>) -> u32 {
        let hasher = |what: &dyn Fn(&mut std::hash::DefaultHasher)| {
            // Rows by text are few against operations, and their hash has no other use.
            let mut hasher = std::hash::DefaultHasher::new();
            what(&mut hasher);
            std::hash::Hasher::finish(&hasher)
        };
        let by = self.settings.by;
        let key = match by {
            GroupBy::Shape => op.shape.id.0 ^ ((op.class as u64) << 4 | identity as u64).wrapping_mul(SPREAD),
            GroupBy::Order => {
                op.shape.id.0.rotate_left(1)
                    ^ op.ordered_id.0
                    ^ ((op.class as u64) << 4 | identity as u64).wrapping_mul(SPREAD)
            }
            GroupBy::Namespace => hasher(&|hasher| {
                std::hash::Hash::hash(&(&op.shape.database, &op.shape.collection), hasher);
            }),
            GroupBy::App => hasher(&|hasher| std::hash::Hash::hash(op.app, hasher)),
            GroupBy::Plan => hasher(&|hasher| std::hash::Hash::hash(cut(execution.plan, MAX_PLAN), hasher)),
        };
        if let Some(&at) = self.index.get(&key) {
            return at;
        }
        if self.rows.len() >= MAX_ROWS {
            self.folded += 1;
            if let Some(&at) = self.index.get(&OTHER) {
                return at;
            }
            return self.insert(OTHER, Subject::Other);
        }
        let subject = match by {
            GroupBy::Shape | GroupBy::Order => Subject::Shape {
                class: op.class,
                identity,
                shape: op.shape.clone(),
                order: if by == GroupBy::Order { op.ordered_id } else { ShapeId(0) },
            },
            GroupBy::Namespace => Subject::Namespace(op.shape.namespace().into()),
            GroupBy::App => Subject::App(op.app.clone()),
            GroupBy::Plan => Subject::Plan(cut(execution.plan, MAX_PLAN).into()),
        };
        self.insert(key, subject)
    }

    fn insert(&mut self, key: u64, subject: Subject) -> u32 {
        let at = self.rows.len() as u32;
        self.rows.push(Entry {
            subject,
            tally: Tally::default(),
            apps: Shares::default(),
            ordered_ids: Vec::new(),
            query_hash: None,
        });
        self.index.insert(key, at);
        at
    }

    /// Reservoir sampling: each of the points seen is kept with the same chance.
    fn keep(&mut self, point: Point) {
        self.points_seen += 1;
        if self.points.len() < MAX_POINTS {
            self.points.push(point);
            return;
        }
        // xorshift64*: fixed, so that the same input gives the same page.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let at = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) % self.points_seen;
        if let Some(kept) = self.points.get_mut(at as usize) {
            *kept = point;
        }
    }

    /// The rows, in the order in which they were first seen.
    pub fn rows(&self) -> &[Entry] {
        &self.rows
    }

    /// Adds a row that was saved before. Rows are not joined with each other.
    pub fn restore(&mut self, entry: Entry) {
        if self.rows.len() < MAX_ROWS {
            self.totals.merge(&entry.tally);
            self.rows.push(entry);
        } else {
            self.folded += entry.tally.entries;
        }
    }
}

/// Key of the row of what did not fit.
const OTHER: u64 = 0;
/// Odd, with well spread bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Entry {
    #[inline]
    fn see(&mut self, order: ShapeId, query_hash: &str) {
        if !self.ordered_ids.contains(&order) && self.ordered_ids.len() < crate::table::MAX_ORDERED_IDS {
            self.ordered_ids.push(order);
        }
        if !query_hash.is_empty() {
            match &mut self.query_hash {
                None => self.query_hash = Some(query_hash.into()),
                Some(known) if known.is_empty() || **known == *query_hash => {}
                // Empty stands for several, and is told as none.
                Some(known) => *known = Box::default(),
            }
        }
    }
}
