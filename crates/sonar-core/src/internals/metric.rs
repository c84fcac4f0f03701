//! The metrics that figures are made of, and where each version of the server has them.

/// Defines [`Metric`]: a name, and the paths that it has or had, the newest last. Paths are those of `diagnostic.data`,
/// without the role that sharded servers of 8.0 and later put in front.
macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident: $($path:literal)|+;)*) => {
        /// A number that servers report of themselves. Names of the paths are the server's own.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)]
        pub enum Metric { $($(#[$doc])* $name,)* }

        impl Metric {
            /// All metrics, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Where versions of the server have it.
            pub const fn paths(self) -> &'static [&'static str] {
                match self { $(Self::$name => &[$($path),+],)* }
            }
        }
    };
}

impl Metric {
    /// How many metrics there are.
    pub const COUNT: usize = Self::ALL.len();
}

metrics! {
    Start: "start";
    End: "end";
    Pid: "serverStatus.pid";
    Uptime: "serverStatus.uptimeMillis";

    CacheBytes: "serverStatus.wiredTiger.cache.bytes currently in the cache";
    CacheMaximum: "serverStatus.wiredTiger.cache.maximum bytes configured";
    CacheDirty: "serverStatus.wiredTiger.cache.tracked dirty bytes in the cache";
    CacheUpdates: "serverStatus.wiredTiger.cache.bytes allocated for updates";
    CacheRead: "serverStatus.wiredTiger.cache.bytes read into cache";
    CacheWritten: "serverStatus.wiredTiger.cache.bytes written from cache";
    EvictedByApplications: "serverStatus.wiredTiger.cache.pages evicted by application threads"
        | "serverStatus.wiredTiger.cache.page evict attempts by application threads";
    EvictionTime: "serverStatus.wiredTiger.thread-yield.application thread time evicting (usecs)"
        | "serverStatus.wiredTiger.cache.application thread time evicting (usecs)";
    CacheWait: "serverStatus.wiredTiger.thread-yield.application thread time waiting for cache (usecs)";
    PageReadTime: "serverStatus.wiredTiger.cache.application threads page read from disk to cache time (usecs)";
    PageReads: "serverStatus.wiredTiger.cache.application threads page read from disk to cache count";
    HistoryOnDisk: "serverStatus.wiredTiger.cache.history store table on-disk size";
    EvictedModified: "serverStatus.wiredTiger.cache.modified pages evicted";
    EvictedUnmodified: "serverStatus.wiredTiger.cache.unmodified pages evicted";
    /// Seconds in the upper half, as in a timestamp.
    PinnedTimestamps: "serverStatus.wiredTiger.transaction.transaction range of timestamps currently pinned";
    TransactionsOpen: "serverStatus.transactions.currentOpen";
    TransactionsAborted: "serverStatus.transactions.totalAborted";
    ElectionTimeouts: "serverStatus.electionMetrics.electionTimeout.called";
    ElectionStepUps: "serverStatus.electionMetrics.stepUpCmd.called";
    ElectionTakeovers: "serverStatus.electionMetrics.priorityTakeover.called";
    ElectionCatchUps: "serverStatus.electionMetrics.catchUpTakeover.called";
    PoolInUse: "connPoolStats.totalInUse";
    PoolAvailable: "connPoolStats.totalAvailable";
    PoolCreated: "connPoolStats.totalCreated";
    StaleConfigErrors: "serverStatus.shardingStatistics.countStaleConfigErrors";
    CatalogRefreshWait: "serverStatus.shardingStatistics.catalogCache.totalRefreshWaitTimeMicros";
    PinnedIds: "serverStatus.wiredTiger.transaction.transaction range of IDs currently pinned";

    ReadTicketsOut: "serverStatus.wiredTiger.concurrentTransactions.read.out" | "serverStatus.queues.execution.read.out";
    ReadTicketsTotal: "serverStatus.wiredTiger.concurrentTransactions.read.totalTickets"
        | "serverStatus.queues.execution.read.totalTickets";
    WriteTicketsOut: "serverStatus.wiredTiger.concurrentTransactions.write.out"
        | "serverStatus.queues.execution.write.out";
    WriteTicketsTotal: "serverStatus.wiredTiger.concurrentTransactions.write.totalTickets"
        | "serverStatus.queues.execution.write.totalTickets";
    ReadTicketQueue: "serverStatus.wiredTiger.concurrentTransactions.read.normalPriority.queueLength"
        | "serverStatus.wiredTiger.concurrentTransactions.read.queueLength"
        | "serverStatus.queues.execution.read.normalPriority.queueLength";
    WriteTicketQueue: "serverStatus.wiredTiger.concurrentTransactions.write.normalPriority.queueLength"
        | "serverStatus.wiredTiger.concurrentTransactions.write.queueLength"
        | "serverStatus.queues.execution.write.normalPriority.queueLength";

    CheckpointTime: "serverStatus.wiredTiger.transaction.transaction checkpoint most recent time (msecs)"
        | "serverStatus.wiredTiger.checkpoint.most recent time (msecs)";
    Checkpoints: "serverStatus.wiredTiger.transaction.transaction checkpoints"
        | "serverStatus.wiredTiger.checkpoint.total succeed number of checkpoints";
    JournalSyncTime: "serverStatus.wiredTiger.log.log sync time duration (usecs)";
    JournalSyncs: "serverStatus.wiredTiger.log.log sync operations";
    JournalBytes: "serverStatus.wiredTiger.log.log bytes written";
    DataHandles: "serverStatus.wiredTiger.data-handle.connection data handles currently active";

    QueuedTotal: "serverStatus.globalLock.currentQueue.total";
    QueuedReaders: "serverStatus.globalLock.currentQueue.readers";
    QueuedWriters: "serverStatus.globalLock.currentQueue.writers";
    ActiveReaders: "serverStatus.globalLock.activeClients.readers";
    ActiveWriters: "serverStatus.globalLock.activeClients.writers";
    Connections: "serverStatus.connections.current";
    ConnectionsAvailable: "serverStatus.connections.available";
    ConnectionsCreated: "serverStatus.connections.totalCreated";
    Inserts: "serverStatus.opcounters.insert";
    Queries: "serverStatus.opcounters.query";
    Updates: "serverStatus.opcounters.update";
    Deletes: "serverStatus.opcounters.delete";
    GetMores: "serverStatus.opcounters.getmore";
    Commands: "serverStatus.opcounters.command";
    ReadLatency: "serverStatus.opLatencies.reads.latency";
    ReadOperations: "serverStatus.opLatencies.reads.ops";
    WriteLatency: "serverStatus.opLatencies.writes.latency";
    WriteOperations: "serverStatus.opLatencies.writes.ops";
    CommandLatency: "serverStatus.opLatencies.commands.latency";
    CommandOperations: "serverStatus.opLatencies.commands.ops";
    KeysExamined: "serverStatus.metrics.queryExecutor.scanned";
    DocsExamined: "serverStatus.metrics.queryExecutor.scannedObjects";
    DocsReturned: "serverStatus.metrics.document.returned";
    CollectionScans: "serverStatus.metrics.queryExecutor.collectionScans.total";
    MemorySorts: "serverStatus.metrics.operation.scanAndOrder";
    WriteConflicts: "serverStatus.metrics.operation.writeConflicts";
    CursorsOpen: "serverStatus.metrics.cursor.open.total";
    CursorsTimedOut: "serverStatus.metrics.cursor.timedOut";
    TtlDeleted: "serverStatus.metrics.ttl.deletedDocuments";

    LatestOptime: "serverStatus.oplog.latestOptime";
    EarliestOptime: "serverStatus.oplog.earliestOptime";
    FlowControlTime: "serverStatus.flowControl.timeAcquiringMicros";
    FlowControlLagged: "serverStatus.flowControl.isLagged";
    RegularAsserts: "serverStatus.asserts.regular";
    MessageAsserts: "serverStatus.asserts.msg";
    UserAsserts: "serverStatus.asserts.user";
    BytesIn: "serverStatus.network.bytesIn";
    BytesOut: "serverStatus.network.bytesOut";
    Resident: "serverStatus.mem.resident";
    Allocated: "serverStatus.tcmalloc.generic.current_allocated_bytes"
        | "serverStatus.tcmalloc.generic.bytes_in_use_by_app";
    Heap: "serverStatus.tcmalloc.generic.heap_size" | "serverStatus.tcmalloc.generic.physical_memory_used";

    CpuUser: "systemMetrics.cpu.user_ms";
    CpuNice: "systemMetrics.cpu.nice_ms";
    CpuSystem: "systemMetrics.cpu.system_ms";
    CpuIdle: "systemMetrics.cpu.idle_ms";
    CpuIoWait: "systemMetrics.cpu.iowait_ms";
    CpuIrq: "systemMetrics.cpu.irq_ms";
    CpuSoftIrq: "systemMetrics.cpu.softirq_ms";
    CpuSteal: "systemMetrics.cpu.steal_ms";
    Processors: "systemMetrics.cpu.num_cpus" | "systemMetrics.cpu.num_logical_cores";
    ProcessorsAvailable: "systemMetrics.cpu.num_cores_available_to_process";
    ServerUserTime: "serverStatus.extra_info.user_time_us";
    ServerSystemTime: "serverStatus.extra_info.system_time_us";
    MemoryTotal: "systemMetrics.memory.MemTotal_kb";
    MemoryFree: "systemMetrics.memory.MemFree_kb";
    MemoryCached: "systemMetrics.memory.Cached_kb";
    MemoryBuffers: "systemMetrics.memory.Buffers_kb";
    MajorFaults: "systemMetrics.vmstat.pgmajfault";
    SwappedIn: "systemMetrics.vmstat.pswpin";
    SwappedOut: "systemMetrics.vmstat.pswpout";
    Retransmitted: "systemMetrics.netstat.Tcp:RetransSegs";
    ListenOverflows: "systemMetrics.netstat.TcpExt:ListenOverflows";
    PressureCpu: "systemMetrics.pressure.cpu.some.totalMicros";
    PressureMemory: "systemMetrics.pressure.memory.some.totalMicros";
    PressureIo: "systemMetrics.pressure.io.some.totalMicros";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metric_has_its_number_and_paths_of_its_own() {
        let mut paths = std::collections::HashSet::new();
        for (number, metric) in Metric::ALL.iter().enumerate() {
            assert_eq!(*metric as usize, number);
            for path in metric.paths() {
                assert!(paths.insert(path), "{path}");
            }
        }
    }
}
