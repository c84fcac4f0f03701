//! What a server says of how it executed an operation: what the wire cannot know.

use crate::figures::Sum;

/// Which index access, or none, a plan summary names. Sources:
/// <https://www.mongodb.com/docs/manual/reference/database-profiler/> and the log's `planSummary`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct PlanFlags {
    /// The whole collection was scanned.
    pub collection_scan: bool,
    /// Results were sorted in memory (`hasSortStage`, `scanAndOrder`).
    pub memory_sort: bool,
    /// It spilled to disk (`usedDisk`).
    pub used_disk: bool,
    /// Several plans were tried (`fromMultiPlanner`).
    pub multi_planner: bool,
    /// A cached plan was thrown away (`replanned`).
    pub replanned: bool,
}

macro_rules! execution {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// How one operation was executed, as the profiler or the log of its server says. What the source does
        /// not say is `None`; the fields of [`Operation`](crate::Operation) hold what the wire knows too.
        #[derive(Copy, Clone, PartialEq, Debug, Default)]
        pub struct Execution<'a> {
            $($(#[doc = $doc])+ pub $name: Option<u64>,)+
            /// Plan summary, like `IXSCAN { a: 1 }`; empty when the source gave none.
            pub plan: &'a str,
            /// What else is said of the plan.
            pub flags: PlanFlags,
            /// Further plans, where it was put together of statements that had several; each once.
            pub other_plans: &'a [&'a str],
            /// `queryHash`, `planCacheShapeHash`; empty when the source gave none.
            pub query_hash: &'a str,
            /// `queryShapeHash` (8.0); empty when the source gave none.
            pub query_shape_hash: &'a str,
            /// How many operations this one stands for, where the source keeps only some of them: Percona's
            /// `rateLimit`, `sampleRate`. 0 counts as 1.
            pub weight: u32,
        }

        /// Sums of what [`Execution`] says of several operations.
        #[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
        pub struct ServerSums { $($(#[doc = $doc])+ pub $name: Sum,)+ }

        impl ServerSums {
            const COUNT: usize = [$(stringify!($name)),+].len();

            /// Each sum with its stable name.
            pub fn iter(&self) -> [(&'static str, Sum); Self::COUNT] {
                [$((stringify!($name), self.$name)),+]
            }

            /// The sum of this name.
            pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Sum> {
                $(if name == stringify!($name) { return Some(&mut self.$name); })+
                None
            }

            /// Adds what is said of one operation, which stands for `weight` of them.
            #[inline]
            pub(crate) fn record(&mut self, execution: &Execution<'_>, weight: u64) {
                $(self.$name.add(execution.$name, weight);)+
            }

            /// Adds all that `other` holds.
            pub(crate) fn merge(&mut self, other: &Self) { $(self.$name.merge(other.$name);)+ }
        }
    };
}

execution! {
    /// Index keys examined (`keysExamined`, `nscanned` before 3.2).
    keys_examined,
    /// Documents examined (`docsExamined`, `nscannedObjects` before 3.2).
    docs_examined,
    /// Times operations gave way to others (`numYield`).
    yields,
    /// Times a write met another one and was tried again.
    write_conflicts,
    /// Time spent waiting for locks, in microseconds: the sum of all `timeAcquiringMicros`.
    lock_wait_us,
    /// Bytes read from the storage engine's files into its cache (4.0.9).
    storage_read_bytes,
    /// Time of that, in microseconds.
    storage_read_us,
    /// Bytes written from its cache.
    storage_written_bytes,
    /// Processor time in nanoseconds (6.3, Linux).
    cpu_ns,
    /// Time of planning in microseconds (6.2).
    planning_us,
    /// Time in the server's queues, in microseconds (8.0).
    queued_us,
    /// Time of writing from the storage engine's cache, in microseconds.
    storage_write_us,
    /// Time spent waiting inside the storage engine (cache, schema lock, handle lock), in microseconds.
    storage_wait_us,
    /// Time of working, waits for locks and queues left out, in milliseconds (8.0).
    working_ms,
    /// Times a read met a prepared transaction and waited for it (4.2).
    prepare_read_conflicts,
    /// Time that writes were held back for secondaries to keep up (`flowControl`, 4.2), in microseconds.
    flow_control_us,
    /// Time of waiting for other servers: shards (`remoteOpWaitMillis`, 5.0), in microseconds.
    remote_wait_us,
    /// Time of waiting for the write concern (4.2), in microseconds.
    write_concern_us,
    /// Times a stage spilled to disk (`sortSpills` and its like, 8.1).
    spills,
    /// Bytes that stages spilled to disk (`sortSpilledBytes` and its like, 8.1).
    spilled_bytes,
}

impl Execution<'_> {
    /// How many operations this one stands for, 1 or more.
    pub const fn weight(&self) -> u64 {
        if self.weight == 0 { 1 } else { self.weight as u64 }
    }

    /// Whether any part of a plan summary is a scan of the whole collection.
    pub fn scans_collection(plan: &str) -> bool {
        plan.split(", ").any(|part| part == "COLLSCAN" || part.starts_with("COLLSCAN "))
    }
}

/// How exactly the identity of an operation's shape is known.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Identity {
    /// The shape and both ids are those of the wire.
    #[default]
    Exact,
    /// The source cut the command: the row is that of namespace, command and readable beginning.
    Partial,
    /// The text of the command has more than one reading: the row is that of namespace and command.
    Ambiguous,
    /// The source does not hold the statements of this command, or no command at all.
    Unsaid,
}

impl Identity {
    /// All of them, in the order of display.
    pub const ALL: [Self; 4] = [Self::Exact, Self::Partial, Self::Ambiguous, Self::Unsaid];

    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Partial => "partial",
            Self::Ambiguous => "ambiguous",
            Self::Unsaid => "unsaid",
        }
    }

    /// From its stable name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_scan_is_one_wherever_it_stands_in_the_plan() {
        assert!(Execution::scans_collection("COLLSCAN"));
        assert!(Execution::scans_collection("IXSCAN { a: 1 }, COLLSCAN"));
        assert!(!Execution::scans_collection("IXSCAN { COLLSCAN: 1 }"));
        assert!(!Execution::scans_collection(""));
    }
}
