//! The role of a server thread, derived from its name.

/// The role of a mongod thread, by the name that it gives itself.
///
/// The kernel keeps 15 bytes of a name (`/proc/PID/task/TID/comm`). mongod shortens a longer name to its first
/// seven bytes, a dot and its last seven: `WTCheckpointThread` becomes `WTCheck.tThread`. Full names, shortened
/// names and names cut after 15 bytes are recognised.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ThreadRole {
    /// An index build: `IndexBuildsCoordinatorMongod-N` from 4.2 on, `repl index builder N` on older secondaries.
    /// On a primary before 4.2, the thread of the client's connection builds the index.
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
    /// Moves chunks between shards, and deletes moved documents.
    Migration,
    /// Collects diagnostics: `ftdc`.
    Diagnostics,
    /// Any other thread.
    Other,
}

/// Beginnings of names. If one is a prefix of another, the longer one comes first. A trailing `#` is a number.
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
/// Length of a thread name in the kernel, in bytes.
const KEPT: usize = 15;
/// Bytes that mongod keeps of either end of a longer name.
const END: usize = 7;

impl ThreadRole {
    /// The role for a thread name: the full name, or the one that the kernel shows.
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
    // The name was cut by the kernel or shortened by mongod. Its first seven bytes remain, and no two of
    // the roles above share those.
    beginning.starts_with(name)
        || (name.as_bytes()[END] == b'.' && beginning.as_bytes().get(..END) == name.as_bytes().get(..END))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shortens a name as mongod does before it sets it.
    fn comm(name: &str) -> String {
        match name.len() {
            0..=KEPT => name.to_string(),
            length => format!("{}.{}", &name[..END], &name[length - END..]),
        }
    }

    #[test]
    fn names_on_real_servers_have_the_right_role() {
        for (name, role) in [
            // From /proc, pstree and top on servers 4.0 to 4.4.
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
            // Names of other programs, and invalid names.
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

    /// So the first seven bytes of a shortened name determine its role.
    #[test]
    fn names_with_the_same_beginning_have_the_same_role() {
        for (a, role) in BEGINNINGS.iter().filter(|(name, _)| name.len() > END) {
            for (b, other) in BEGINNINGS.iter().filter(|(name, _)| name.len() > END) {
                assert!(a[..END] != b[..END] || role == other, "{a} and {b}");
            }
        }
    }

    #[test]
    fn a_shortened_name_has_the_role_of_the_full_name() {
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
