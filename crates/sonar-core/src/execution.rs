//! How a server executed an operation, from its profiler or log. The wire does not show this.

use crate::sum::Sum;

/// Properties of a query plan. Sources: <https://www.mongodb.com/docs/manual/reference/database-profiler/>
/// and the log's `planSummary`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct PlanFlags {
    /// One of its plans scanned the whole collection.
    pub collection_scan: bool,
    /// It sorted results in memory (`hasSortStage`, `scanAndOrder`).
    pub memory_sort: bool,
    /// It spilled to disk (`usedDisk`).
    pub used_disk: bool,
    /// The server tried several plans (`fromMultiPlanner`).
    pub multi_planner: bool,
    /// The server discarded a cached plan (`replanned`).
    pub replanned: bool,
}

macro_rules! execution {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// How one operation was executed, from the server's profiler or log. Values that the source does not
        /// have are `None`. Values that the wire has too are in [`Operation`](crate::Operation).
        #[derive(Copy, Clone, PartialEq, Debug, Default)]
        pub struct Execution<'a> {
            $($(#[doc = $doc])+ pub $name: Option<u64>,)+
            /// Plan summary, for example `IXSCAN { a: 1 }`; empty if the source has none.
            pub plan: &'a str,
            /// The namespace that the operation read, if it named a view (`resolvedViews`, 5.0); else empty.
            pub view_of: &'a str,
            /// Other properties of the plan.
            pub flags: PlanFlags,
            /// The other distinct plans, if its statements had several.
            pub other_plans: &'a [&'a str],
            /// `queryHash` or `planCacheShapeHash`; empty if the source has none.
            pub query_hash: &'a str,
            /// `queryShapeHash` (8.0); empty if the source has none.
            pub query_shape_hash: &'a str,
            /// The user that the server authenticated, like `alice@admin`; empty if the source has none.
            pub user: &'a str,
            /// The comment that the client gave its command; empty if the source has none.
            pub comment: &'a str,
            /// The number of shards to which a router sent it (`nShards`); `None` of servers with data.
            pub shards: Option<u64>,
            /// A server sent it: a router, or another member of the replica set.
            pub is_from_server: bool,
            /// The number of operations that this one represents, if the source keeps only a sample of them
            /// (Percona's `rateLimit`, `sampleRate`). 0 counts as 1.
            pub weight: u32,
        }

        /// Sums of [`Execution`] values over several operations.
        #[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
        pub struct ServerSums { $($(#[doc = $doc])+ pub $name: Sum,)+ }

        impl ServerSums {
            /// The number of sums.
            pub const COUNT: usize = Self::NAMES.len();
            /// The stable names of the sums.
            pub const NAMES: &[&str] = &[$(stringify!($name)),+];

            /// The sums with these values, in the order of [`NAMES`](Self::NAMES).
            pub fn from_values(values: [Sum; Self::COUNT]) -> Self {
                let [$($name),+] = values;
                Self { $($name),+ }
            }

            /// Each sum with its stable name.
            pub fn iter(&self) -> [(&'static str, Sum); Self::COUNT] {
                [$((stringify!($name), self.$name)),+]
            }

            /// The sum with this name.
            pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Sum> {
                $(if name == stringify!($name) { return Some(&mut self.$name); })+
                None
            }

            /// Adds one operation, counted `weight` times.
            #[inline]
            pub(crate) fn record(&mut self, execution: &Execution<'_>, weight: u64) {
                $(self.$name.add(execution.$name, weight);)+
            }

            /// Adds everything in `other`.
            pub(crate) fn merge(&mut self, other: &Self) { $(self.$name.merge(other.$name);)+ }
        }
    };
}

execution! {
    /// Index keys examined (`keysExamined`, `nscanned` before 3.2).
    keys_examined,
    /// Documents examined (`docsExamined`, `nscannedObjects` before 3.2).
    docs_examined,
    /// Number of yields to other operations (`numYield`).
    yields,
    /// Number of times that a write conflicted with another one and was retried.
    write_conflicts,
    /// Time spent waiting for locks, in microseconds: the sum of all `timeAcquiringMicros`.
    lock_wait_us,
    /// Bytes read from files into the storage engine's cache (4.0.9).
    storage_read_bytes,
    /// Time for reading them, in microseconds.
    storage_read_us,
    /// Bytes written from the storage engine's cache.
    storage_written_bytes,
    /// Processor time in nanoseconds (6.3, Linux).
    cpu_ns,
    /// Planning time in microseconds (6.2).
    planning_us,
    /// Time in the server's queues, in microseconds (8.0).
    queued_us,
    /// Time for writing from the storage engine's cache, in microseconds.
    storage_write_us,
    /// Time spent waiting inside the storage engine (cache, schema lock, handle lock), in microseconds.
    storage_wait_us,
    /// Working time without waits for locks and queues, in milliseconds (8.0).
    working_ms,
    /// Number of times that a read waited for a prepared transaction (4.2).
    prepare_read_conflicts,
    /// Time that flow control delayed writes so that secondaries keep up (`flowControl`, 4.2), in microseconds.
    flow_control_us,
    /// Time spent waiting for shards (`remoteOpWaitMillis`, 5.0), in microseconds.
    remote_wait_us,
    /// Time spent waiting for the write concern (4.2), in microseconds.
    write_concern_us,
    /// Number of times that a stage spilled to disk (`sortSpills` and similar, 8.1).
    spills,
    /// Bytes that stages spilled to disk (`sortSpilledBytes` and similar, 8.1).
    spilled_bytes,
}

/// How a server executed several operations, as its profiler or log says.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ExecutionTotals {
    /// Sums of what it examined, waited for and used.
    pub sums: ServerSums,
    /// Operations that scanned the whole collection.
    pub collection_scans: u64,
    /// Operations that sorted in memory.
    pub memory_sorts: u64,
    /// Operations that used files for intermediate results.
    pub used_disk: u64,
    /// Operations whose cached plan was discarded.
    pub replanned: u64,
}

impl ExecutionTotals {
    /// Adds one operation, counted `weight` times.
    #[inline]
    pub(crate) fn record(&mut self, execution: &Execution<'_>, weight: u64) {
        self.sums.record(execution, weight);
        let PlanFlags { collection_scan, memory_sort, used_disk, replanned, .. } = execution.flags;
        self.collection_scans += weight * u64::from(collection_scan);
        self.memory_sorts += weight * u64::from(memory_sort);
        self.used_disk += weight * u64::from(used_disk);
        self.replanned += weight * u64::from(replanned);
    }

    /// Adds everything in `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.sums.merge(&other.sums);
        self.collection_scans += other.collection_scans;
        self.memory_sorts += other.memory_sorts;
        self.used_disk += other.used_disk;
        self.replanned += other.replanned;
    }
}

/// A reason for which operations waited.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ServerWait {
    /// The stable name of its sum.
    pub name: &'static str,
    /// What was waited for, in words.
    pub words: &'static str,
    /// How long all operations waited, in nanoseconds.
    pub total_ns: u64,
}

impl ServerSums {
    /// What operations waited for, the longest first; reasons that are unknown or 0 are left out.
    pub fn waits(&self) -> Vec<ServerWait> {
        let wait = |name, words, sum: Sum| {
            let total_ns = sum.get().unwrap_or(0).saturating_mul(1_000);
            ServerWait { name, words, total_ns }
        };
        let mut waits = vec![
            wait("write_concern_us", "write concern", self.write_concern_us),
            wait("remote_wait_us", "shards", self.remote_wait_us),
            wait("queued_us", "queues", self.queued_us),
            wait("lock_wait_us", "locks", self.lock_wait_us),
            wait("storage_wait_us", "storage engine", self.storage_wait_us),
            wait("flow_control_us", "flow control", self.flow_control_us),
        ];
        waits.retain(|wait| wait.total_ns > 0);
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.total_ns));
        waits
    }
}

impl Execution<'_> {
    /// The number of operations that this one represents, 1 or more.
    pub const fn weight(&self) -> u64 {
        if self.weight == 0 { 1 } else { self.weight as u64 }
    }

    /// Whether any part of a plan summary is a collection scan.
    pub fn scans_collection(plan: &str) -> bool {
        plan.split(", ").any(|part| part == "COLLSCAN" || part.starts_with("COLLSCAN "))
    }
}

/// How exactly the shape of an operation is known.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Identity {
    /// The shape and both ids are the same as on the wire.
    #[default]
    Exact,
    /// The source cut the command, or lost the types of its values: the row is identified by namespace, command and the
    /// readable beginning. Or no server is known to have the command, so that its namespace and body are not known.
    Partial,
    /// The text of the command is ambiguous: the row is identified by namespace and command.
    Ambiguous,
    /// The source lacks the statements of this command, or the command itself.
    Unknown,
}

impl Identity {
    /// All identities, in display order.
    pub const ALL: [Self; 4] = [Self::Exact, Self::Partial, Self::Ambiguous, Self::Unknown];

    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Partial => "partial",
            Self::Ambiguous => "ambiguous",
            Self::Unknown => "unsaid",
        }
    }

    /// The identity with this stable name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_scan_is_found_anywhere_in_the_plan() {
        assert!(Execution::scans_collection("COLLSCAN"));
        assert!(Execution::scans_collection("IXSCAN { a: 1 }, COLLSCAN"));
        assert!(!Execution::scans_collection("IXSCAN { COLLSCAN: 1 }"));
        assert!(!Execution::scans_collection(""));
    }
}
