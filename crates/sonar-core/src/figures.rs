//! The figures of a row: counts, sums and latencies. They only grow and merge; views derive rates, means and
//! quantiles from them.
//!
//! Merging is associative and commutative: figures of windows, threads, hosts and files can be merged in any
//! order. Figures that a source does not have stay unknown and are never zero.

mod known;

use std::borrow::Borrow;
use std::net::IpAddr;
use std::ops::AddAssign;
use std::sync::{Arc, LazyLock};

use crate::execution::{Execution, ExecutionTotals};
use crate::histogram::LatencyBucket;
use crate::sum::Sum;
use crate::words::cut;
use crate::{
    Application, Histogram, Identity, Operation, Outcome, Source, Timeline, Timestamp, TlsSuite, timeline,
};

/// The maximum number of distinct applications per row.
pub const MAX_APPS_PER_ROW: usize = 32;
/// The maximum number of distinct client addresses per row.
pub const MAX_CLIENTS_PER_ROW: usize = 32;
/// The maximum number of distinct error codes per row.
pub const MAX_ERROR_CODES: usize = 32;
/// The maximum number of distinct TLS versions and cipher suites per row.
pub const MAX_SUITES: usize = 8;
/// The maximum number of distinct plans per row.
pub const MAX_PLANS: usize = 16;
/// The maximum length of a plan summary in bytes; longer ones are cut.
pub const MAX_PLAN: usize = 512;

/// One operation as its source reports it.
#[derive(Copy, Clone, Debug)]
pub struct Record<'a> {
    /// The operation.
    pub op: &'a Operation<'a>,
    /// Its source.
    pub source: Source,
    /// How exactly its shape is known.
    pub identity: Identity,
    /// How the server executed it; `None` if the source cannot know.
    pub execution: Option<&'a Execution<'a>>,
    /// The number of operations that it represents: it counts this many times in every count and sum.
    pub weight: u64,
    /// The number of source entries (documents, lines) that it was assembled from.
    pub entries: u64,
    /// The bucket of its latency.
    bucket: LatencyBucket,
}

impl<'a> Record<'a> {
    /// An operation captured on the wire.
    #[inline]
    pub fn wire(op: &'a Operation<'a>) -> Self {
        Self::wire_in(op, Self::bucket_of(op))
    }

    /// The bucket of the latency of an operation.
    #[inline]
    pub(crate) fn bucket_of(op: &Operation<'_>) -> LatencyBucket {
        LatencyBucket::of(op.latency_ns.unwrap_or(0))
    }

    /// An operation captured on the wire, with the bucket of its latency.
    #[inline(always)]
    pub(crate) fn wire_in(op: &'a Operation<'a>, bucket: LatencyBucket) -> Self {
        Self {
            op,
            source: Source::Wire,
            identity: op.shape.identity(),
            execution: None,
            weight: 1,
            entries: 1,
            bucket,
        }
    }

    /// An operation from a profile or log, which state how the server executed it.
    #[inline]
    pub fn server(source: Source, op: &'a Operation<'a>, execution: &'a Execution<'a>) -> Self {
        Self { source, execution: Some(execution), weight: execution.weight(), ..Self::wire(op) }
    }

    /// Sets how exactly its shape is known, and the number of source entries.
    #[inline]
    pub fn read_as(self, identity: Identity, entries: u64) -> Self {
        Self { identity, entries, ..self }
    }

    /// Sets the number of operations that it represents.
    #[inline]
    pub fn weighing(self, weight: u64) -> Self {
        Self { weight, ..self }
    }

    /// The plan summary, cut to [`MAX_PLAN`] bytes; empty if there is none.
    pub(crate) fn plan(&self) -> &'a str {
        cut(self.execution.map_or("", |execution| execution.plan), MAX_PLAN)
    }

    /// The user that the server authenticated, cut to [`MAX_PLAN`] bytes; empty if there is none.
    pub(crate) fn user(&self) -> &'a str {
        cut(self.execution.map_or("", |execution| execution.user), MAX_PLAN)
    }

    /// The comment of its command, cut to [`MAX_PLAN`] bytes; empty if there is none.
    pub(crate) fn comment(&self) -> &'a str {
        cut(self.execution.map_or("", |execution| execution.comment), MAX_PLAN)
    }

    /// Its latency times its weight, in nanoseconds.
    fn latency_ns(&self) -> u64 {
        self.op.latency_ns.unwrap_or(0).saturating_mul(self.weight)
    }

    /// Its contribution to an application's or a client's share.
    #[inline]
    pub(crate) fn share(&self) -> Share {
        let failed = self.weight * u64::from(matches!(self.op.outcome, Outcome::Failed(_)));
        Share { calls: self.weight, failed, latency_ns: self.latency_ns() }
    }

    fn time_bucket(&self) -> timeline::TimeBucket {
        let examined =
            self.execution.and_then(|execution| execution.docs_examined.max(execution.keys_examined));
        timeline::TimeBucket {
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

/// Values by key, for at most `CAP` keys; all further ones are added to `other`.
///
/// The smallest keys stay, so that the result does not depend on the order of additions.
#[derive(Clone, Debug)]
pub struct Breakdown<K, V, const CAP: usize> {
    entries: Vec<(K, V)>,
    /// The sum of the keys that did not fit.
    pub other: V,
}

/// Ignores the order of the entries.
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
    /// Rebuilds a breakdown from saved entries, each of another key.
    pub fn from_parts(mut entries: Vec<(K, V)>, mut other: V) -> Self
    where
        K: Ord,
    {
        if entries.len() > CAP {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            entries.drain(CAP..).for_each(|(_, value)| other += value);
        }
        Self { entries, other }
    }

    /// Adds `value` to the value of `key`; `own` makes an owned key if it is new.
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

    /// Adds everything in `other`.
    pub fn merge(&mut self, other: &Self)
    where
        K: Ord + Clone,
    {
        other.entries.iter().for_each(|(key, value)| self.add(key, *value, || key.clone()));
        self.other += other.other;
    }

    /// Gives keys other names, where `name` has one; entries that then have the same key are added up.
    pub fn rename(&mut self, name: impl Fn(&K) -> Option<K>)
    where
        K: Ord,
    {
        if self.entries.iter().all(|(key, _)| name(key).is_none()) {
            return;
        }
        for (key, value) in std::mem::take(&mut self.entries) {
            let key = name(&key).unwrap_or(key);
            match self.entries.iter_mut().find(|(known, _)| *known == key) {
                Some((_, mine)) => *mine += value,
                None => self.entries.push((key, value)),
            }
        }
    }

    /// The entries, in order of first appearance.
    pub fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.entries.iter()
    }

    /// Heap memory in bytes, without that of the keys.
    pub fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<(K, V)>()
    }

    /// The number of distinct keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<K: Ord, V: AddAssign + Copy, const CAP: usize> Breakdown<Arc<K>, V, CAP> {
    /// Like [`add`](Self::add), but compares pointers first, because the key is usually the same allocation.
    #[inline(always)]
    pub fn add_shared(&mut self, key: &Arc<K>, value: V) {
        match self.entries.iter_mut().find(|(known, _)| Arc::ptr_eq(known, key)) {
            Some((_, mine)) => *mine += value,
            None => self.add(key, value, || key.clone()),
        }
    }
}

/// Errors by code (0: the source has no code).
pub type ErrorCounts = Breakdown<i32, u64, MAX_ERROR_CODES>;
/// TLS versions and cipher suites.
pub type Suites = Breakdown<TlsSuite, u64, MAX_SUITES>;
/// Applications of a row.
pub type Apps = Breakdown<Arc<Application>, Share, MAX_APPS_PER_ROW>;
/// Client addresses of a row.
pub type Clients = Breakdown<IpAddr, Share, MAX_CLIENTS_PER_ROW>;

/// Figures of one application or one client within a row.
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
    /// Number of those that sorted in memory.
    pub memory_sorts: u64,
}

impl AddAssign for PlanUse {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.memory_sorts += other.memory_sorts;
    }
}

/// How the server executed the operations of a row of a log or profile, which the wire does not show.
/// [`ServerEvidence`](crate::time_split::ServerEvidence) has the same totals of operations that were traced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerFigures {
    /// What it examined, waited for and used, and what stood out.
    pub totals: ExecutionTotals,
    /// The namespace that was read, if they named a view and the source says it. Not stored in a history.
    pub view_of: Option<Box<str>>,
    /// By plan summary of the server, cut to [`MAX_PLAN`] bytes.
    pub plans: Breakdown<Box<str>, PlanUse, MAX_PLANS>,
}

impl ServerFigures {
    #[inline]
    fn record(&mut self, execution: &Execution<'_>, weight: u64) {
        self.totals.record(execution, weight);
        if !execution.view_of.is_empty() && self.view_of.is_none() {
            self.view_of = Some(execution.view_of.into());
        }
        if !execution.plan.is_empty() {
            let memory_sorts = weight * u64::from(execution.flags.memory_sort);
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
        self.totals.merge(&other.totals);
        if self.view_of.is_none() {
            self.view_of.clone_from(&other.view_of);
        }
        self.plans.merge(&other.plans);
    }
}

/// Counts, sums and latencies of one row, or of all rows of one source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Operations that ended, with any outcome.
    pub calls: u64,
    /// Source entries (profile documents, lines) that they were read from, including statements that were joined
    /// to their command.
    pub entries: u64,
    /// Number of statements in them.
    pub statements: u64,
    /// Operations with at least one error.
    pub failed: u64,
    /// Operations that were never answered.
    pub unanswered: u64,
    /// Operations that asked for no answer.
    pub unacknowledged: u64,
    /// Operations whose outcome is unknown ([`Outcome::Unknown`]).
    pub outcome_unknown: u64,
    /// Errors by code.
    pub errors: ErrorCounts,
    /// Latencies: on the wire, from the last byte of the request to the first byte of the reply. For sources with
    /// whole milliseconds, 0 means "less than one millisecond".
    pub latency: Histogram,
    /// Sum of the times from the first to the last byte of replies, in nanoseconds (wire only).
    pub transfer_ns: u64,
    /// TCP payload of requests in bytes (wire only).
    pub request_bytes: u64,
    /// Size of replies in bytes; on the wire, their TCP payload.
    pub response_bytes: Sum,
    /// Documents returned.
    pub returned: Sum,
    /// Documents inserted, changed or deleted.
    pub affected: Sum,
    /// Operations on connections encrypted with TLS, over those of the wire. The history does not keep it: there it is
    /// unknown.
    pub tls: Sum,
    /// Operations on encrypted connections by version and cipher suite, where these are known. The history does not keep
    /// them.
    pub suites: Suites,
    /// End of the first operation whose time is known.
    pub first_seen: Timestamp,
    /// End of the last one.
    pub last_seen: Timestamp,
    /// How the server executed them; `None` if the source does not know.
    pub server: Option<Box<ServerFigures>>,
    /// Figures over time; `None` if not requested.
    pub timeline: Option<Box<Timeline>>,
}

impl Figures {
    /// Heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        let of_server = |server: &ServerFigures| {
            let plans: usize = server.plans.iter().map(|(plan, _)| plan.len()).sum();
            let view = server.view_of.as_ref().map_or(0, |view| view.len());
            size_of::<ServerFigures>() + server.plans.heap_bytes() + plans + view
        };
        let of_timeline = |timeline: &Timeline| size_of::<Timeline>() + timeline.heap_bytes();
        self.errors.heap_bytes()
            + self.latency.heap_bytes()
            + self.suites.heap_bytes()
            + self.server.as_deref().map_or(0, of_server)
            + self.timeline.as_deref().map_or(0, of_timeline)
    }

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
        self.tls.add((record.source == Source::Wire).then_some(u64::from(op.tls.is_some())), weight);
        if let Some(suite) = op.tls.filter(|suite| suite.is_known()) {
            self.suites.add(&suite, weight, || suite);
        }
        if let Some(execution) = record.execution {
            self.server_mut().record(execution, weight);
        }
    }

    /// Adds one operation to the timeline.
    #[inline]
    pub(crate) fn record_time(&mut self, record: &Record<'_>) {
        if record.op.end.is_known() {
            self.timeline_mut().add(record.op.end, record.time_bucket());
        }
    }

    fn see(&mut self, first: Timestamp, last: Timestamp) {
        // An unknown time, which is 0, is never the first one: it counts as the latest here.
        if first.unix_ns().wrapping_sub(1) < self.first_seen.unix_ns().wrapping_sub(1) {
            self.first_seen = first;
        }
        self.last_seen = self.last_seen.max(last);
    }

    /// Adds everything in `other`.
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
        self.tls.merge(other.tls);
        self.suites.merge(&other.suites);
        if let Some(server) = &other.server {
            self.server_mut().merge(server);
        }
        if let Some(timeline) = &other.timeline {
            self.timeline_mut().merge(timeline);
        }
    }

    /// How the server executed them; everything is unknown if the source does not know.
    pub fn server(&self) -> &ServerFigures {
        static UNKNOWN: LazyLock<ServerFigures> = LazyLock::new(ServerFigures::default);
        self.server.as_deref().unwrap_or(&UNKNOWN)
    }

    /// Mutable access to how the server executed them.
    pub fn server_mut(&mut self) -> &mut ServerFigures {
        self.server.get_or_insert_default()
    }

    /// Whether the source knows how the server executed them.
    pub fn knows_execution(&self) -> bool {
        self.server.is_some()
    }

    /// Figures over time; empty if not requested.
    pub fn timeline(&self) -> &Timeline {
        static NONE: LazyLock<Timeline> = LazyLock::new(Timeline::default);
        self.timeline.as_deref().unwrap_or(&NONE)
    }

    /// Mutable access to the figures over time.
    pub fn timeline_mut(&mut self) -> &mut Timeline {
        self.timeline.get_or_insert_default()
    }

    /// Number of errors of all codes.
    pub fn error_count(&self) -> u64 {
        self.errors.iter().map(|(_, count)| count).sum::<u64>() + self.errors.other
    }

    /// Documents examined (or keys examined, if more) per document returned; `None` if unknown or if none was
    /// returned.
    pub fn examined_per_returned(&self) -> Option<f64> {
        let sums = &self.server().totals.sums;
        let examined = sums.docs_examined.get().max(sums.keys_examined.get())?;
        let returned = self.returned.get().unwrap_or(0).max(self.affected.get().unwrap_or(0));
        (returned > 0).then(|| examined as f64 / returned as f64)
    }

    /// Every sum with its stable name, with the server's sums from `server`.
    pub(crate) fn sums_with(&self, server: &ServerFigures) -> Vec<(&'static str, Sum)> {
        let [keys, docs, rest @ ..] = server.totals.sums.iter();
        let own = [
            ("returned", self.returned),
            ("affected", self.affected),
            ("response_bytes", self.response_bytes),
        ];
        [keys, docs].into_iter().chain(own).chain(rest).collect()
    }

    /// Every sum of this source, with its stable name.
    pub fn sums(&self) -> Vec<(&'static str, Sum)> {
        self.sums_with(self.server())
    }

    /// Mutable access to the sum with this name.
    pub fn sum_mut(&mut self, name: &str) -> Option<&mut Sum> {
        match name {
            "returned" => Some(&mut self.returned),
            "affected" => Some(&mut self.affected),
            "response_bytes" => Some(&mut self.response_bytes),
            _ => self.server_mut().totals.sums.get_mut(name),
        }
    }
}
