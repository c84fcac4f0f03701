//! The figures of a row: counts, sums and latencies. They only grow and merge; views derive rates, means
//! and quantiles from them.
//!
//! Merging is associative and commutative: figures of windows, threads, hosts and files may be put together
//! in any order. What a source does not say stays unknown, and is never zero.

use std::borrow::Borrow;
use std::net::IpAddr;
use std::ops::AddAssign;
use std::sync::{Arc, LazyLock};

use crate::execution::{Execution, PlanFlags, ServerSums};
use crate::histogram::Bucket;
use crate::{Application, Histogram, Identity, Operation, Outcome, Source, Timeline, Timestamp, timeline};

/// The most applications told apart within one row.
pub const MAX_APPS_PER_ROW: usize = 32;
/// The most client addresses told apart within one row.
pub const MAX_CLIENTS_PER_ROW: usize = 32;
/// The most error codes told apart within one row.
pub const MAX_ERROR_CODES: usize = 32;
/// The most plans told apart within one row.
pub const MAX_PLANS: usize = 16;
/// The most bytes of a plan summary that are kept.
pub const MAX_PLAN: usize = 512;

/// One operation as a source gives it.
#[derive(Copy, Clone, Debug)]
pub struct Record<'a> {
    /// The operation.
    pub op: &'a Operation<'a>,
    /// Who saw it.
    pub source: Source,
    /// How exactly its shape is known.
    pub identity: Identity,
    /// How the server executed it; `None` where the source cannot know that.
    pub execution: Option<&'a Execution<'a>>,
    /// How many operations it stands for: every count and sum is taken so many times.
    pub weight: u64,
    /// From how many entries of its source (documents, lines) it was put together.
    pub entries: u64,
    /// The bucket of its latency.
    bucket: Bucket,
}

impl<'a> Record<'a> {
    /// An operation that was seen on the wire.
    #[inline]
    pub fn wire(op: &'a Operation<'a>) -> Self {
        let bucket = Bucket::of(op.latency_ns.unwrap_or(0));
        Self {
            op,
            source: Source::Wire,
            identity: Identity::Exact,
            execution: None,
            weight: 1,
            entries: 1,
            bucket,
        }
    }

    /// An operation of which a server wrote how it was executed.
    #[inline]
    pub fn server(source: Source, op: &'a Operation<'a>, execution: &'a Execution<'a>) -> Self {
        Self { source, execution: Some(execution), weight: execution.weight(), ..Self::wire(op) }
    }

    /// The same, of which its source says how exactly the shape is known, and from how many entries it was read.
    #[inline]
    pub fn read_as(self, identity: Identity, entries: u64) -> Self {
        Self { identity, entries, ..self }
    }

    /// The same, standing for `weight` operations.
    #[inline]
    pub fn weighing(self, weight: u64) -> Self {
        Self { weight, ..self }
    }

    /// The plan summary as it is kept; empty for none.
    pub(crate) fn plan(&self) -> &'a str {
        cut(self.execution.map_or("", |execution| execution.plan), MAX_PLAN)
    }

    /// Sum of the latencies of the operations that it stands for, in nanoseconds.
    fn latency_ns(&self) -> u64 {
        self.op.latency_ns.unwrap_or(0).saturating_mul(self.weight)
    }

    /// Its share in a row.
    #[inline]
    pub(crate) fn share(&self) -> Share {
        let failed = self.weight * u64::from(matches!(self.op.outcome, Outcome::Failed(_)));
        Share { calls: self.weight, failed, latency_ns: self.latency_ns() }
    }

    fn time_bucket(&self) -> timeline::Bucket {
        let examined =
            self.execution.and_then(|execution| execution.docs_examined.max(execution.keys_examined));
        timeline::Bucket {
            calls: self.weight,
            latency_ns: self.latency_ns(),
            examined: examined.unwrap_or(0).saturating_mul(self.weight),
            returned: self
                .op
                .docs_returned
                .max(self.op.docs_affected)
                .unwrap_or(0)
                .saturating_mul(self.weight),
        }
    }
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
    /// Adds what `weight` operations said; nothing where they did not.
    #[inline]
    pub(crate) fn add(&mut self, value: Option<u64>, weight: u64) {
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

/// Values by key, at most `CAP` of them; the rest together under `other`.
///
/// Of more keys than that the smallest stay, so that it does not matter in which order they come.
#[derive(Clone, Debug)]
pub struct Breakdown<K, V, const CAP: usize> {
    entries: Vec<(K, V)>,
    /// What did not fit.
    pub other: V,
}

/// The order in which the keys came makes no difference.
impl<K: PartialEq, V: PartialEq, const CAP: usize> PartialEq for Breakdown<K, V, CAP> {
    fn eq(&self, other: &Self) -> bool {
        self.entries.len() == other.entries.len()
            && self.other == other.other
            && self.entries.iter().all(|entry| other.entries.contains(entry))
    }
}

impl<K, V: Default, const CAP: usize> Default for Breakdown<K, V, CAP> {
    fn default() -> Self {
        Self { entries: Vec::new(), other: V::default() }
    }
}

impl<K, V: AddAssign + Copy, const CAP: usize> Breakdown<K, V, CAP> {
    /// Adds `value` to what `key` has; `own` makes the key where it is new.
    #[inline]
    pub fn add<Q: Ord + ?Sized>(&mut self, key: &Q, value: V, own: impl FnOnce() -> K)
    where
        K: Borrow<Q>,
    {
        match self.entries.iter_mut().find(|(known, _)| known.borrow() == key) {
            Some((_, mine)) => *mine += value,
            None => self.add_new(key, value, own),
        }
    }

    #[cold]
    fn add_new<Q: Ord + ?Sized>(&mut self, key: &Q, value: V, own: impl FnOnce() -> K)
    where
        K: Borrow<Q>,
    {
        if self.entries.len() < CAP {
            return self.entries.push((own(), value));
        }
        match self.entries.iter_mut().max_by(|a, b| a.0.borrow().cmp(b.0.borrow())) {
            Some(last) if *key < *last.0.borrow() => {
                let (_, gone) = std::mem::replace(last, (own(), value));
                self.other += gone;
            }
            _ => self.other += value,
        }
    }

    /// Adds all that `other` holds.
    pub fn merge(&mut self, other: &Self)
    where
        K: Ord + Clone,
    {
        other.entries.iter().for_each(|(key, value)| self.add(key, *value, || key.clone()));
        self.other += other.other;
    }

    /// The entries, in the order in which they were first seen.
    pub fn iter(&self) -> impl Iterator<Item = &(K, V)> {
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

impl<K: Ord, V: AddAssign + Copy, const CAP: usize> Breakdown<Arc<K>, V, CAP> {
    /// As [`add`](Self::add), for a key that is mostly the very one that is known: comparing addresses is cheaper.
    #[inline(always)]
    pub fn add_shared(&mut self, key: &Arc<K>, value: V) {
        match self.entries.iter_mut().find(|(known, _)| Arc::ptr_eq(known, key)) {
            Some((_, mine)) => *mine += value,
            None => self.add(key, value, || key.clone()),
        }
    }
}

/// Errors by code (0: the source gave none).
pub type Errors = Breakdown<i32, u64, MAX_ERROR_CODES>;
/// Applications of a row.
pub type Apps = Breakdown<Arc<Application>, Share, MAX_APPS_PER_ROW>;
/// Client addresses of a row.
pub type Clients = Breakdown<IpAddr, Share, MAX_CLIENTS_PER_ROW>;

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

impl AddAssign for Share {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.failed += other.failed;
        self.latency_ns = self.latency_ns.saturating_add(other.latency_ns);
    }
}

/// How often a plan was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanUse {
    /// Operations that used it; a bulk may have used several plans.
    pub calls: u64,
    /// Of them: sorted in memory.
    pub memory_sorts: u64,
}

impl AddAssign for PlanUse {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.memory_sorts += other.memory_sorts;
    }
}

/// How a server executed the operations of a row: what the wire cannot know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerFigures {
    /// What it examined, waited for and used.
    pub sums: ServerSums,
    /// Operations that scanned the whole collection.
    pub collection_scans: u64,
    /// Operations that sorted in memory.
    pub memory_sorts: u64,
    /// Operations that spilled to disk.
    pub used_disk: u64,
    /// Operations that were planned anew.
    pub replanned: u64,
    /// By plan summary as the server wrote it, cut to [`MAX_PLAN`] bytes.
    pub plans: Breakdown<Box<str>, PlanUse, MAX_PLANS>,
}

impl ServerFigures {
    #[inline]
    fn record(&mut self, execution: &Execution<'_>, weight: u64) {
        self.sums.record(execution, weight);
        let PlanFlags { collection_scan, memory_sort, used_disk, replanned, .. } = execution.flags;
        self.collection_scans += weight * u64::from(collection_scan);
        self.memory_sorts += weight * u64::from(memory_sort);
        self.used_disk += weight * u64::from(used_disk);
        self.replanned += weight * u64::from(replanned);
        if !execution.plan.is_empty() {
            let memory_sorts = weight * u64::from(memory_sort);
            self.add_plan(execution.plan, PlanUse { calls: weight, memory_sorts });
            let other = PlanUse { calls: weight, memory_sorts: 0 };
            execution.other_plans.iter().for_each(|plan| self.add_plan(plan, other));
        }
    }

    /// Adds operations of one plan.
    #[inline]
    pub fn add_plan(&mut self, summary: &str, used: PlanUse) {
        let summary = cut(summary, MAX_PLAN);
        self.plans.add(summary, used, || summary.into());
    }

    fn merge(&mut self, other: &Self) {
        self.sums.merge(&other.sums);
        self.collection_scans += other.collection_scans;
        self.memory_sorts += other.memory_sorts;
        self.used_disk += other.used_disk;
        self.replanned += other.replanned;
        self.plans.merge(&other.plans);
    }
}

/// Counts, sums and latencies of one row, or of all rows of one source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Operations that ended, whichever way.
    pub calls: u64,
    /// Entries of the source (profile documents, lines) that they were read from, statements joined to their
    /// command included.
    pub entries: u64,
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
    /// Errors by code.
    pub errors: Errors,
    /// How long they took: on the wire from the last byte of the request to the first byte of the reply. Of a
    /// source in whole milliseconds, 0 is "less than one".
    pub latency: Histogram,
    /// Sum of the time from the first to the last byte of replies, in nanoseconds; of the wire alone.
    pub transfer_ns: u64,
    /// Bytes of requests, TCP payload; of the wire alone.
    pub request_bytes: u64,
    /// Bytes of replies; on the wire TCP payload.
    pub response_bytes: Sum,
    /// Documents returned.
    pub returned: Sum,
    /// Documents inserted, changed or deleted.
    pub affected: Sum,
    /// End of the first operation.
    pub first_seen: Timestamp,
    /// End of the last operation.
    pub last_seen: Timestamp,
    /// How the server executed them; `None` where the source does not say.
    pub server: Option<Box<ServerFigures>>,
    /// Over time; `None` where that was not asked for.
    pub timeline: Option<Box<Timeline>>,
}

impl Figures {
    /// Adds one operation.
    #[inline(always)]
    pub(crate) fn record(&mut self, record: &Record<'_>) {
        let Record { op, weight, .. } = *record;
        self.see(op.end, op.end);
        self.calls += weight;
        self.entries += record.entries;
        self.statements += u64::from(op.statement_count) * weight;
        match op.outcome {
            Outcome::Ok | Outcome::InFlight => {}
            Outcome::Failed(errors) => {
                self.failed += weight;
                for &(code, count) in errors.codes {
                    self.errors.add(&code, u64::from(count) * weight, || code);
                }
            }
            Outcome::Unanswered => self.unanswered += weight,
            Outcome::Unacknowledged => self.unacknowledged += weight,
            Outcome::Unknown => self.outcome_unknown += weight,
        }
        if let Some(ns) = op.latency_ns {
            self.latency.record_in(ns, record.bucket, weight);
        }
        self.transfer_ns =
            self.transfer_ns.saturating_add(op.transfer_ns.unwrap_or(0).saturating_mul(weight));
        self.request_bytes += op.request_bytes * weight;
        self.response_bytes.add((op.response_bytes > 0).then_some(op.response_bytes), weight);
        self.returned.add(op.docs_returned, weight);
        self.affected.add(op.docs_affected, weight);
        if let Some(execution) = record.execution {
            self.server_mut().record(execution, weight);
        }
    }

    /// Adds one operation to the timeline.
    #[inline]
    pub(crate) fn record_time(&mut self, record: &Record<'_>) {
        self.timeline_mut().add(record.op.end, record.time_bucket());
    }

    fn see(&mut self, first: Timestamp, last: Timestamp) {
        if self.calls == 0 || first < self.first_seen {
            self.first_seen = first;
        }
        self.last_seen = self.last_seen.max(last);
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
        self.unanswered += other.unanswered;
        self.unacknowledged += other.unacknowledged;
        self.outcome_unknown += other.outcome_unknown;
        self.errors.merge(&other.errors);
        self.latency.merge(&other.latency);
        self.transfer_ns = self.transfer_ns.saturating_add(other.transfer_ns);
        self.request_bytes += other.request_bytes;
        self.response_bytes.merge(other.response_bytes);
        self.returned.merge(other.returned);
        self.affected.merge(other.affected);
        if let Some(server) = &other.server {
            self.server_mut().merge(server);
        }
        if let Some(timeline) = &other.timeline {
            self.timeline_mut().merge(timeline);
        }
    }

    /// How the server executed them; all of it unknown where the source does not say.
    pub fn server(&self) -> &ServerFigures {
        static UNKNOWN: LazyLock<ServerFigures> = LazyLock::new(ServerFigures::default);
        self.server.as_deref().unwrap_or(&UNKNOWN)
    }

    /// The same to be written to.
    pub fn server_mut(&mut self) -> &mut ServerFigures {
        self.server.get_or_insert_default()
    }

    /// Whether the source says how the server executed them.
    pub fn knows_execution(&self) -> bool {
        self.server.is_some()
    }

    /// Over time; empty where that was not asked for.
    pub fn timeline(&self) -> &Timeline {
        static NONE: LazyLock<Timeline> = LazyLock::new(Timeline::default);
        self.timeline.as_deref().unwrap_or(&NONE)
    }

    /// The same to be written to.
    pub fn timeline_mut(&mut self) -> &mut Timeline {
        self.timeline.get_or_insert_default()
    }

    /// Errors of all codes.
    pub fn error_count(&self) -> u64 {
        self.errors.iter().map(|(_, count)| count).sum::<u64>() + self.errors.other
    }

    /// Documents, or where that is more keys, examined for each document returned; `None` when it is not
    /// known, or none was returned.
    pub fn examined_per_returned(&self) -> Option<f64> {
        let sums = &self.server().sums;
        let examined = sums.docs_examined.get().max(sums.keys_examined.get())?;
        let returned = self.returned.get().unwrap_or(0).max(self.affected.get().unwrap_or(0));
        (returned > 0).then(|| examined as f64 / returned as f64)
    }

    /// Every sum with its stable name; `server` says how the operations were executed.
    pub(crate) fn sums_with(&self, server: &ServerFigures) -> Vec<(&'static str, Sum)> {
        let [keys, docs, rest @ ..] = server.sums.iter();
        let own = [
            ("returned", self.returned),
            ("affected", self.affected),
            ("response_bytes", self.response_bytes),
        ];
        [keys, docs].into_iter().chain(own).chain(rest).collect()
    }

    /// Every sum that the source itself knows, with its stable name.
    pub fn sums(&self) -> Vec<(&'static str, Sum)> {
        self.sums_with(self.server())
    }

    /// The sum of this name, to be written to.
    pub fn sum_mut(&mut self, name: &str) -> Option<&mut Sum> {
        match name {
            "returned" => Some(&mut self.returned),
            "affected" => Some(&mut self.affected),
            "response_bytes" => Some(&mut self.response_bytes),
            _ => self.server_mut().sums.get_mut(name),
        }
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
