//! What a thread of a server is for, as far as its name shows.

/// The work of a thread of mongod, by the name that it gives itself.
///
/// The kernel keeps 15 bytes of a name (`/proc/PID/task/TID/comm`). A longer one mongod shortens itself to
/// its first seven bytes, a dot and its last seven: `WTCheckpointThread` is `WTCheck.tThread`. Both forms
/// are known, and one that was simply cut after 15 bytes.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ThreadRole {
    /// An index build's: from 4.2 on `IndexBuildsCoordinatorMongod-N`, on secondaries before that
    /// `repl index builder N`. On a primary before 4.2 a client's connection builds.
    IndexBuild,
    /// A client's connection: `connN`.
    Client,
    /// Takes checkpoints.
    Checkpoint,
    /// Flushes the journal.
    Journal,
    /// WiredTiger's own threads, eviction above all, which keep the name of the process.
    Engine,
    /// Fetches, applies or trims the oplog.
    Replication,
    /// Removes documents that have expired.
    Ttl,
    /// Moves chunks between shards, and removes what was moved.
    Migration,
    /// Collects diagnostics: `ftdc`.
    Diagnostics,
    /// Any other.
    Other,
}

/// How names begin, the longest first where one begins another; a trailing `#` stands for a number.
const BEGINNINGS: [(&str, ThreadRole); 45] = [
    ("conn#", ThreadRole::Client),
    ("IndexBuildsCoordinator", ThreadRole::IndexBuild),
    ("repl index builder", ThreadRole::IndexBuild),
    ("WTCheckpointThread", ThreadRole::Checkpoint),
    ("Checkpointer", ThreadRole::Checkpoint),
    ("WTJournalFlusher", ThreadRole::Journal),
    ("JournalFlusher", ThreadRole::Journal),
    ("WTIdleSessionSweeper", ThreadRole::Engine),
    ("ReplWriterWorker", ThreadRole::Replication),
    ("repl writer worker", ThreadRole::Replication),
    ("repl prefetch worker", ThreadRole::Replication),
    ("OplogApplier", ThreadRole::Replication),
    ("OplogWriter", ThreadRole::Replication),
    ("OplogFetcher", ThreadRole::Replication),
    ("OplogCapMaintainerThread", ThreadRole::Replication),
    ("OplogTruncaterThread", ThreadRole::Replication),
    ("WTOplogJournalThread", ThreadRole::Replication),
    ("WTOplogJournal", ThreadRole::Replication),
    ("WT RecordStoreThread", ThreadRole::Replication),
    ("ReplBatcher", ThreadRole::Replication),
    ("ReplCoordExtern", ThreadRole::Replication),
    ("ReplCoord", ThreadRole::Replication),
    ("ReplNetwork", ThreadRole::Replication),
    ("ReplExec", ThreadRole::Replication),
    ("replexec", ThreadRole::Replication),
    ("replication", ThreadRole::Replication),
    ("rsSync", ThreadRole::Replication),
    ("rsBackgroundSync", ThreadRole::Replication),
    ("BackgroundSync", ThreadRole::Replication),
    ("SyncSourceFeedback", ThreadRole::Replication),
    ("ApplyBatchFinalizer", ThreadRole::Replication),
    ("InitialSync", ThreadRole::Replication),
    ("NoopWriter", ThreadRole::Replication),
    ("TTLMonitor", ThreadRole::Ttl),
    ("migrateThread", ThreadRole::Migration),
    ("MoveChunk", ThreadRole::Migration),
    ("batchFetcher", ThreadRole::Migration),
    ("sessionCatalogMigration", ThreadRole::Migration),
    ("SessionCatalogMigration", ThreadRole::Migration),
    ("rangeDeleter", ThreadRole::Migration),
    ("range-deleter", ThreadRole::Migration),
    ("RangeDeleter", ThreadRole::Migration),
    ("CollectionRangeDeleter", ThreadRole::Migration),
    ("Collection Range Deleter", ThreadRole::Migration),
    ("ftdc", ThreadRole::Diagnostics),
];
/// Bytes that the kernel keeps of a name.
const KEPT: usize = 15;
/// Bytes that mongod leaves of either end of a longer one.
const END: usize = 7;

impl ThreadRole {
    /// From the name of a thread, whole or as the kernel shows it.
    pub fn of(name: &str) -> Self {
        if name == "mongod" {
            return Self::Engine;
        }
        let matched = BEGINNINGS.iter().find(|(beginning, _)| begins(name, beginning));
        matched.map_or(Self::Other, |(_, role)| *role)
    }

    /// The stable name in output; empty for [`ThreadRole::Other`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::IndexBuild => "index build",
            Self::Client => "client connection",
            Self::Checkpoint => "checkpoint",
            Self::Journal => "journal",
            Self::Engine => "engine",
            Self::Replication => "replication",
            Self::Ttl => "TTL",
            Self::Migration => "migration",
            Self::Diagnostics => "diagnostics",
            Self::Other => "",
        }
    }
}

fn begins(name: &str, beginning: &str) -> bool {
    if let Some(word) = beginning.strip_suffix('#') {
        let number = name.strip_prefix(word);
        return number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()));
    }
    if name.starts_with(beginning) {
        return true;
    }
    if name.len() != KEPT {
        return false;
    }
    // Cut by the kernel, or shortened by mongod. Whichever number ends the whole name, its first seven
    // bytes stay, and no two of the roles above begin alike.
    beginning.starts_with(name)
        || (name.as_bytes()[END] == b'.' && beginning.as_bytes().get(..END) == name.as_bytes().get(..END))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As mongod shortens a name before it hands it to the kernel.
    fn comm(name: &str) -> String {
        match name.len() {
            0..=KEPT => name.to_string(),
            length => format!("{}.{}", &name[..END], &name[length - END..]),
        }
    }

    #[test]
    fn names_that_real_servers_show_tell_their_work() {
        for (name, role) in [
            // As /proc, pstree and top of servers 4.0 to 4.4 show them.
            ("WTCheck.tThread", ThreadRole::Checkpoint),
            ("WTJourn.Flusher", ThreadRole::Journal),
            ("WTIdleS.Sweeper", ThreadRole::Engine),
            ("mongod", ThreadRole::Engine),
            ("ftdc", ThreadRole::Diagnostics),
            ("TTLMonitor", ThreadRole::Ttl),
            ("conn1", ThreadRole::Client),
            ("conn184467", ThreadRole::Client),
            ("clientcursormon", ThreadRole::Other),
            ("listener", ThreadRole::Other),
            ("Logical.Refresh", ThreadRole::Other),
            ("signalP.gThread", ThreadRole::Other),
            // Cut by the kernel.
            ("IndexBuildsCoor", ThreadRole::IndexBuild),
            ("WTCheckpointThr", ThreadRole::Checkpoint),
            // Other programs' names, and what is no name.
            ("connection", ThreadRole::Other),
            ("conn", ThreadRole::Other),
            ("conn1x", ThreadRole::Other),
            ("WTCheck", ThreadRole::Other),
            ("IndexBu.short", ThreadRole::Other),
            ("\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}", ThreadRole::Other),
            ("", ThreadRole::Other),
        ] {
            assert_eq!(ThreadRole::of(name), role, "{name}");
        }
    }

    /// What makes it enough to look at the first seven bytes of a name that was shortened.
    #[test]
    fn names_that_begin_alike_have_one_role() {
        for (a, role) in BEGINNINGS.iter().filter(|(name, _)| name.len() > END) {
            for (b, other) in BEGINNINGS.iter().filter(|(name, _)| name.len() > END) {
                assert!(a[..END] != b[..END] || role == other, "{a} and {b}");
            }
        }
    }

    #[test]
    fn a_name_that_was_shortened_tells_what_the_whole_one_does() {
        for (name, role) in [
            ("IndexBuildsCoordinatorMongod-0", ThreadRole::IndexBuild),
            ("IndexBuildsCoordinatorMongod-656", ThreadRole::IndexBuild),
            ("repl index builder 3", ThreadRole::IndexBuild),
            ("repl writer worker 12", ThreadRole::Replication),
            ("ReplWriterWorker-15", ThreadRole::Replication),
            ("ReplCoordExternNetwork", ThreadRole::Replication),
            ("OplogApplier-0", ThreadRole::Replication),
            ("OplogCapMaintainerThread-local.oplog.rs", ThreadRole::Replication),
            ("rsSync-0", ThreadRole::Replication),
            ("migrateThread", ThreadRole::Migration),
            ("range-deleter", ThreadRole::Migration),
            ("Collection-Range-Deleter-TaskExecutor", ThreadRole::Migration),
            ("WTCheckpointThread", ThreadRole::Checkpoint),
        ] {
            assert_eq!(ThreadRole::of(&comm(name)), role, "{}", comm(name));
        }
        assert_eq!(comm("IndexBuildsCoordinatorMongod-0"), "IndexBu.ongod-0");
        assert_eq!(comm("WTCheckpointThread"), "WTCheck.tThread");
    }
}
