//! The figures that experts look at first, and how they judge them.

use super::Metric::*;
use super::figure::{Figure, FigureGroup, FigureLimits, FigureUnit, LimitRule, SampleStep, over};

/// Worth a look if it lasts.
const fn lasting(amber: f64, red: f64, meaning: &'static str, source: &'static str) -> Option<FigureLimits> {
    Some(FigureLimits { amber, red, below: false, rule: LimitRule::Lasting, meaning, source })
}

/// Worth a look if it is too little for long.
const fn too_little(
    amber: f64,
    red: f64,
    meaning: &'static str,
    source: &'static str,
) -> Option<FigureLimits> {
    Some(FigureLimits { amber, red, below: true, rule: LimitRule::Lasting, meaning, source })
}

/// Judged by every moment.
const fn any(amber: f64, red: f64, meaning: &'static str, source: &'static str) -> Option<FigureLimits> {
    Some(FigureLimits { amber, red, below: false, rule: LimitRule::Any, meaning, source })
}

/// Never reached.
const NEVER: f64 = f64::INFINITY;

const EVICTION: &str = "WiredTiger's eviction targets and triggers (SERVER-64505)";
const SIMAGIX: &str = "keyhole's assessment of diagnostic data";

/// All figures, by group.
#[rustfmt::skip]
pub const FIGURES: &[Figure] = &[
    Figure { id: "operations.inserts", group: FigureGroup::Operations, title: "inserts", unit: FigureUnit::PerSecond,
        value: |step| step.rate(Inserts), limits: None },
    Figure { id: "operations.queries", group: FigureGroup::Operations, title: "queries", unit: FigureUnit::PerSecond,
        value: |step| step.rate(Queries), limits: None },
    Figure { id: "operations.updates", group: FigureGroup::Operations, title: "updates", unit: FigureUnit::PerSecond,
        value: |step| step.rate(Updates), limits: None },
    Figure { id: "operations.deletes", group: FigureGroup::Operations, title: "deletes", unit: FigureUnit::PerSecond,
        value: |step| step.rate(Deletes), limits: None },
    Figure { id: "operations.getmores", group: FigureGroup::Operations, title: "getMores", unit: FigureUnit::PerSecond,
        value: |step| step.rate(GetMores), limits: None },
    Figure { id: "operations.commands", group: FigureGroup::Operations, title: "commands", unit: FigureUnit::PerSecond,
        value: |step| step.rate(Commands), limits: None },
    Figure { id: "operations.ttl_deleted", group: FigureGroup::Operations, title: "documents deleted by TTL", unit: FigureUnit::PerSecond,
        value: |step| step.rate(TtlDeleted), limits: None },
    Figure { id: "transactions.open", group: FigureGroup::Operations, title: "transactions open", unit: FigureUnit::Count,
        value: |step| step.gauge(TransactionsOpen), limits: None },
    Figure { id: "transactions.aborted", group: FigureGroup::Operations, title: "transactions aborted", unit: FigureUnit::PerSecond,
        value: |step| step.rate(TransactionsAborted), limits: None },
    Figure { id: "sharding.stale_config", group: FigureGroup::Operations, title: "operations retried for stale sharding data",
        unit: FigureUnit::PerSecond, value: |step| step.rate(StaleConfigErrors), limits: None },
    Figure { id: "sharding.refresh_wait", group: FigureGroup::Operations,
        title: "time that operations waited for sharding data, per second", unit: FigureUnit::Milliseconds,
        value: |step| Some(step.rate(CatalogRefreshWait)? / 1e3), limits: None },

    Figure { id: "latency.reads", group: FigureGroup::Latency, title: "latency of reads", unit: FigureUnit::Milliseconds,
        value: |step| Some(step.per(ReadLatency, ReadOperations)? / 1e3),
        limits: lasting(20.0, 100.0, "reads are slow; see which queries with `mongosonar queries`", SIMAGIX) },
    Figure { id: "latency.writes", group: FigureGroup::Latency, title: "latency of writes", unit: FigureUnit::Milliseconds,
        value: |step| Some(step.per(WriteLatency, WriteOperations)? / 1e3),
        limits: lasting(20.0, 100.0, "writes are slow; see which with `mongosonar queries`", SIMAGIX) },
    Figure { id: "latency.commands", group: FigureGroup::Latency, title: "latency of commands", unit: FigureUnit::Milliseconds,
        value: |step| Some(step.per(CommandLatency, CommandOperations)? / 1e3),
        limits: lasting(20.0, 100.0, "commands are slow", SIMAGIX) },

    Figure { id: "queries.keys_per_returned", group: FigureGroup::Queries, title: "keys examined for each document returned",
        unit: FigureUnit::Ratio, value: |step| targeting(step, KeysExamined),
        limits: lasting(10.0, 100.0, "an index is missing or fits badly; `mongosonar logs report` names the queries",
            "Atlas alert \"Query Targeting\"; keyhole") },
    Figure { id: "queries.docs_per_returned", group: FigureGroup::Queries, title: "documents examined for each one returned",
        unit: FigureUnit::Ratio, value: |step| targeting(step, DocsExamined),
        limits: lasting(10.0, 100.0, "an index is missing or fits badly; `mongosonar logs report` names the queries",
            "Atlas alert \"Query Targeting\"; keyhole") },
    Figure { id: "queries.docs_examined", group: FigureGroup::Queries, title: "documents examined", unit: FigureUnit::PerSecond,
        value: |step| step.rate(DocsExamined),
        limits: lasting(1e5, 1e6, "queries read very many documents", "keyhole's diagnosis") },
    Figure { id: "queries.collection_scans", group: FigureGroup::Queries, title: "collection scans", unit: FigureUnit::PerSecond,
        value: |step| step.rate(CollectionScans), limits: None },
    Figure { id: "queries.memory_sorts", group: FigureGroup::Queries, title: "sorts in memory", unit: FigureUnit::PerSecond,
        value: |step| step.rate(MemorySorts),
        limits: lasting(20.0, 1e3, "queries sort without an index", "MongoDB manual, performance tuning; keyhole") },
    Figure { id: "queries.write_conflicts", group: FigureGroup::Queries, title: "write conflicts", unit: FigureUnit::PerSecond,
        value: |step| step.rate(WriteConflicts),
        limits: lasting(10.0, 100.0, "several writers change the same documents", SIMAGIX) },

    Figure { id: "cache.used", group: FigureGroup::Cache, title: "cache used", unit: FigureUnit::Percent,
        value: |step| step.percent(CacheBytes, CacheMaximum),
        limits: lasting(80.5, 95.0, "over 80 % eviction works, from 95 % operations must help it and wait", EVICTION) },
    Figure { id: "cache.dirty", group: FigureGroup::Cache, title: "cache dirty", unit: FigureUnit::Percent,
        value: |step| step.percent(CacheDirty, CacheMaximum),
        limits: lasting(5.5, 20.0, "eviction writes all the time; near 20 % the disk does not take the writes in time, and operations must help", EVICTION) },
    Figure { id: "cache.updates", group: FigureGroup::Cache, title: "cache used by updates", unit: FigureUnit::Percent,
        value: |step| step.percent(CacheUpdates, CacheMaximum),
        limits: lasting(2.75, 10.0, "many versions of documents are in the cache: long transactions or a burst of writes",
            EVICTION) },
    Figure { id: "cache.application_eviction", group: FigureGroup::Cache, title: "pages evicted by operations",
        unit: FigureUnit::PerSecond, value: |step| step.rate(EvictedByApplications),
        limits: lasting(1.0, 100.0, "operations do the work of eviction and wait for it: the cache is too small, or the disk \
            too slow", "Netdata's alert on eviction by application threads") },
    Figure { id: "cache.eviction_time", group: FigureGroup::Cache, title: "time that operations spent evicting, per second",
        unit: FigureUnit::Milliseconds, value: |step| Some(step.rate(EvictionTime)? / 1e3), limits: None },
    Figure { id: "cache.wait_time", group: FigureGroup::Cache, title: "time that operations waited for cache, per second",
        unit: FigureUnit::Milliseconds, value: |step| Some(step.rate(CacheWait)? / 1e3), limits: None },
    Figure { id: "cache.read", group: FigureGroup::Cache, title: "read into cache", unit: FigureUnit::BytesPerSecond,
        value: |step| step.rate(CacheRead), limits: None },
    Figure { id: "cache.written", group: FigureGroup::Cache, title: "written from cache", unit: FigureUnit::BytesPerSecond,
        value: |step| step.rate(CacheWritten), limits: None },
    Figure { id: "cache.page_read", group: FigureGroup::Cache, title: "time to read a page into cache", unit: FigureUnit::Milliseconds,
        value: |step| Some(step.per(PageReadTime, PageReads)? / 1e3), limits: None },
    Figure { id: "cache.history", group: FigureGroup::Cache, title: "history store on disk", unit: FigureUnit::Bytes,
        value: |step| step.gauge(HistoryOnDisk), limits: None },
    Figure { id: "cache.evicted_modified", group: FigureGroup::Cache, title: "modified pages evicted",
        unit: FigureUnit::PerSecond, value: |step| step.rate(EvictedModified), limits: None },
    Figure { id: "cache.evicted_unmodified", group: FigureGroup::Cache, title: "unmodified pages evicted",
        unit: FigureUnit::PerSecond, value: |step| step.rate(EvictedUnmodified), limits: None },
    Figure { id: "cache.pinned_time", group: FigureGroup::Cache, title: "time span of versions kept in cache",
        unit: FigureUnit::Milliseconds,
        value: |step| {
            let seconds = step.gauge(PinnedTimestamps)? / 4_294_967_296.0;
            // Right after a start there is no oldest timestamp yet, and the span begins in 1970.
            (seconds < 1e9).then_some(seconds * 1e3)
        },
        limits: None },
    Figure { id: "cache.pinned_ids", group: FigureGroup::Cache, title: "range of transaction ids pinned", unit: FigureUnit::Count,
        value: |step| step.gauge(PinnedIds), limits: None },

    Figure { id: "tickets.read", group: FigureGroup::Tickets, title: "read tickets used", unit: FigureUnit::Percent,
        value: |step| tickets(step, ReadTicketsOut, ReadTicketsTotal, ReadTicketQueue),
        limits: lasting(50.0, 90.0, "the storage engine is saturated; find what holds the tickets: disk, cache or scans",
            SIMAGIX) },
    Figure { id: "tickets.write", group: FigureGroup::Tickets, title: "write tickets used", unit: FigureUnit::Percent,
        value: |step| tickets(step, WriteTicketsOut, WriteTicketsTotal, WriteTicketQueue),
        limits: lasting(50.0, 90.0, "the storage engine is saturated; find what holds the tickets: disk, cache or scans",
            SIMAGIX) },
    Figure { id: "tickets.read_queue", group: FigureGroup::Tickets, title: "operations waiting for a read ticket",
        unit: FigureUnit::Count, value: |step| step.gauge(ReadTicketQueue),
        limits: lasting(1.0, 100.0, "reads queue for the storage engine", "MongoDB manual, WiredTiger; SERVER-95141") },
    Figure { id: "tickets.write_queue", group: FigureGroup::Tickets, title: "operations waiting for a write ticket",
        unit: FigureUnit::Count, value: |step| step.gauge(WriteTicketQueue),
        limits: lasting(1.0, 100.0, "writes queue for the storage engine", "MongoDB manual, WiredTiger; SERVER-95141") },
    Figure { id: "queues.lock", group: FigureGroup::Tickets, title: "operations queued for a lock, per processor",
        unit: FigureUnit::Ratio, value: |step| over(step.gauge(QueuedTotal)?, step.usable_processors()?),
        limits: lasting(1.0, 5.0, "clients wait for locks; look for what holds them: index builds, fsyncLock, DDL", SIMAGIX) },
    Figure { id: "queues.readers", group: FigureGroup::Tickets, title: "operations queued to read", unit: FigureUnit::Count,
        value: |step| step.gauge(QueuedReaders), limits: None },
    Figure { id: "queues.writers", group: FigureGroup::Tickets, title: "operations queued to write", unit: FigureUnit::Count,
        value: |step| step.gauge(QueuedWriters), limits: None },
    Figure { id: "queues.active", group: FigureGroup::Tickets, title: "active readers and writers", unit: FigureUnit::Count,
        value: |step| Some(step.gauge(ActiveReaders)? + step.gauge(ActiveWriters)?), limits: None },

    Figure { id: "checkpoints.time", group: FigureGroup::Checkpoints, title: "duration of the last checkpoint",
        unit: FigureUnit::Milliseconds, value: |step| step.gauge(CheckpointTime),
        limits: lasting(10_000.0, 30_000.0, "the disk is slow to take what was written; over 60 s there is no pause between \
            checkpoints", "Netdata's alert on the duration of checkpoints") },
    Figure { id: "checkpoints.rate", group: FigureGroup::Checkpoints, title: "checkpoints", unit: FigureUnit::PerSecond,
        value: |step| step.rate(Checkpoints), limits: None },
    Figure { id: "journal.sync", group: FigureGroup::Checkpoints, title: "time to sync the journal", unit: FigureUnit::Milliseconds,
        value: |step| Some(step.per(JournalSyncTime, JournalSyncs)? / 1e3), limits: None },
    Figure { id: "journal.bytes", group: FigureGroup::Checkpoints, title: "journal written", unit: FigureUnit::BytesPerSecond,
        value: |step| step.rate(JournalBytes), limits: None },
    Figure { id: "handles.active", group: FigureGroup::Checkpoints, title: "data handles active", unit: FigureUnit::Count,
        value: |step| step.gauge(DataHandles),
        limits: lasting(16_000.0, 20_000.0, "too many collections and indexes are in use", SIMAGIX) },

    Figure { id: "connections.open", group: FigureGroup::Connections, title: "connections open", unit: FigureUnit::Count,
        value: |step| step.gauge(Connections), limits: None },
    Figure { id: "connections.used", group: FigureGroup::Connections, title: "connections used of those possible",
        unit: FigureUnit::Percent,
        value: |step| over(100.0 * step.gauge(Connections)?, step.gauge(Connections)? + step.gauge(ConnectionsAvailable)?),
        limits: lasting(80.0, 95.0, "soon no client can connect", "Grafana's mixin for MongoDB") },
    Figure { id: "connections.created", group: FigureGroup::Connections, title: "connections opened", unit: FigureUnit::PerSecond,
        value: |step| step.rate(ConnectionsCreated),
        limits: lasting(5.0, 50.0, "clients connect again and again: a pool is missing or too small", SIMAGIX) },
    Figure { id: "pool.in_use", group: FigureGroup::Connections, title: "connections to other servers in use", unit: FigureUnit::Count,
        value: |step| step.gauge(PoolInUse), limits: None },
    Figure { id: "pool.available", group: FigureGroup::Connections, title: "connections to other servers idle", unit: FigureUnit::Count,
        value: |step| step.gauge(PoolAvailable), limits: None },
    Figure { id: "pool.created", group: FigureGroup::Connections, title: "connections to other servers opened",
        unit: FigureUnit::PerSecond, value: |step| step.rate(PoolCreated), limits: None },
    Figure { id: "cursors.open", group: FigureGroup::Connections, title: "cursors open", unit: FigureUnit::Count,
        value: |step| step.gauge(CursorsOpen),
        limits: lasting(10_000.0, 100_000.0, "applications do not close their cursors", "Grafana's mixin for MongoDB") },
    Figure { id: "cursors.timed_out", group: FigureGroup::Connections, title: "cursors timed out", unit: FigureUnit::PerSecond,
        value: |step| step.rate(CursorsTimedOut),
        limits: lasting(100.0 / 60.0, 1_000.0 / 60.0, "applications do not close their cursors", "awesome-prometheus-alerts") },

    Figure { id: "replication.lag", group: FigureGroup::Replication, title: "replication lag", unit: FigureUnit::Milliseconds,
        value: |step| step.now.replication_lag_ms().map(|lag| lag as f64),
        limits: lasting(5_000.0, 30_000.0, "a secondary does not keep up: reads from it are stale, majority writes wait",
            SIMAGIX) },
    Figure { id: "replication.oplog_window", group: FigureGroup::Replication, title: "time in the oplog",
        unit: FigureUnit::Milliseconds,
        value: |step| Some((step.gauge(LatestOptime)? - step.gauge(EarliestOptime)?) * 1e3),
        limits: too_little(86_400_000.0, 3_600_000.0,
            "a secondary that is away for longer must copy all data again; a new server has a short oplog too",
            "common practice; herjean7/prometheus-mongodb") },
    Figure { id: "replication.flow_control", group: FigureGroup::Replication,
        title: "time that writes waited for flow control, per second", unit: FigureUnit::Milliseconds,
        value: |step| Some(step.rate(FlowControlTime)? / 1e3),
        limits: lasting(100.0, 1_000.0, "the primary slows writes down because the majority lags", "keyhole; SERVER-112333") },
    Figure { id: "replication.flow_control_lagged", group: FigureGroup::Replication, title: "flow control engaged",
        unit: FigureUnit::Count, value: |step| step.gauge(FlowControlLagged),
        limits: lasting(1.0, NEVER, "the primary slows writes down because the majority lags", "MongoDB manual, flow control") },
    Figure { id: "replication.elections", group: FigureGroup::Replication, title: "elections called by the server",
        unit: FigureUnit::PerSecond,
        value: |step| {
            let calls = [ElectionTimeouts, ElectionStepUps, ElectionTakeovers, ElectionCatchUps];
            Some(step.growth_of(&calls)? / step.positive_seconds()?)
        },
        limits: None },

    Figure { id: "memory.used", group: FigureGroup::Memory, title: "memory used, page cache not counted", unit: FigureUnit::Percent,
        value: |step| {
            let cached = step.gauge(MemoryCached)? + step.gauge(MemoryBuffers).unwrap_or(0.0);
            let total = step.gauge(MemoryTotal)?;
            over(100.0 * (total - step.gauge(MemoryFree)? - cached), total)
        },
        limits: lasting(85.0, 95.0, "the machine is short of memory", "mongo-x-ray; keyhole") },
    Figure { id: "memory.resident", group: FigureGroup::Memory, title: "memory of the server, of usable memory",
        unit: FigureUnit::Percent,
        value: |step| over(100.0 * step.gauge(Resident)? * 1_024.0, step.usable_memory_kib()?),
        limits: lasting(70.0, 90.0, "little is left for the page cache and other processes; at the limit of a container \
            the kernel kills the server", SIMAGIX) },
    Figure { id: "memory.cache", group: FigureGroup::Memory, title: "maximum of the cache, of usable memory",
        unit: FigureUnit::Percent,
        value: |step| over(100.0 * step.gauge(CacheMaximum)? / 1_024.0, step.usable_memory_kib()?),
        limits: lasting(80.0, 95.0, "the cache leaves too little for connections, sorts and index builds: cacheSizeGB is too \
            large, or the server did not see the limit of its container (SERVER-60412)", "MongoDB manual, WiredTiger") },
    Figure { id: "memory.major_faults", group: FigureGroup::Memory, title: "major page faults", unit: FigureUnit::PerSecond,
        value: |step| step.rate(MajorFaults),
        limits: lasting(10.0, 100.0, "memory is short: code and data are read from the disk again", "ftdc-analyzer") },
    Figure { id: "memory.swapped", group: FigureGroup::Memory, title: "pages swapped in and out", unit: FigureUnit::PerSecond,
        value: |step| Some(step.growth_of(&[SwappedIn, SwappedOut])? / step.positive_seconds()?),
        limits: lasting(1.0, 100.0, "the machine swaps; MongoDB must not", "MongoDB production notes; ftdc-analyzer") },
    Figure { id: "memory.fragmentation", group: FigureGroup::Memory, title: "heap not in use by the server", unit: FigureUnit::Percent,
        value: |step| over(100.0 * (step.gauge(Heap)? - step.gauge(Allocated)?), step.gauge(Heap)?),
        limits: lasting(20.0, 50.0, "the allocator keeps memory that the server has freed", SIMAGIX) },

    Figure { id: "processor.user", group: FigureGroup::Processor, title: "processors in user code", unit: FigureUnit::Percent,
        value: |step| step.processor(&[CpuUser, CpuNice]),
        limits: lasting(85.0, 95.0, "the processors are the limit; the data does not say whether the server or other processes \
            use them", "mongo-x-ray") },
    Figure { id: "processor.system", group: FigureGroup::Processor, title: "processors in the kernel", unit: FigureUnit::Percent,
        value: |step| step.processor(&[CpuSystem, CpuIrq, CpuSoftIrq]),
        limits: lasting(20.0, 30.0, "the kernel works hard: many connections, swapping, or page cache pressure", "mongo-x-ray") },
    Figure { id: "processor.server", group: FigureGroup::Processor, title: "processors that the server uses",
        unit: FigureUnit::Percent,
        value: |step| {
            let used_us = step.growth_of(&[ServerUserTime, ServerSystemTime])?;
            over(100.0 * used_us / 1e6 / step.positive_seconds()?, step.usable_processors()?)
        },
        limits: lasting(85.0, 95.0, "the processors are the limit: see which queries cost most", "as mongo-x-ray judges all processors") },
    Figure { id: "processor.iowait", group: FigureGroup::Processor, title: "processors idle while the disk works",
        unit: FigureUnit::Percent, value: |step| step.processor(&[CpuIoWait]),
        limits: lasting(10.0, 20.0, "operations wait for the disk", "mongo-x-ray") },
    Figure { id: "processor.steal", group: FigureGroup::Processor, title: "processors taken by the hypervisor",
        unit: FigureUnit::Percent, value: |step| step.processor(&[CpuSteal]),
        limits: lasting(1.0, 10.0, "the host gives this machine less than it should: a burstable or oversold machine",
            "mongo-x-ray; practice with burstable machines") },
    Figure { id: "pressure.cpu", group: FigureGroup::Processor, title: "time in which something waited for a processor",
        unit: FigureUnit::Percent, value: |step| Some(step.rate(PressureCpu)? / 1e4), limits: None },

    Figure { id: "disk.busy", group: FigureGroup::Disk, title: "busiest disk", unit: FigureUnit::Percent,
        value: |step| {
            let ms = step.positive_seconds()? * 1e3;
            step.worst_disk(|disk| Some(100.0 * disk.busy_ms / ms))
        },
        limits: lasting(70.0, 90.0, "the disk is busy nearly all the time; a disk that serves requests in parallel can take \
            more, so look at its latency too", "keyhole; ftdc-analyzer") },
    Figure { id: "disk.queue", group: FigureGroup::Disk, title: "requests in the longest disk queue", unit: FigureUnit::Count,
        value: |step| {
            let ms = step.positive_seconds()? * 1e3;
            step.worst_disk(|disk| Some(disk.queued_ms / ms))
        },
        limits: None },
    Figure { id: "disk.latency", group: FigureGroup::Disk, title: "latency of the slowest disk", unit: FigureUnit::Milliseconds,
        value: |step| step.worst_disk(|disk| over(disk.time_ms, disk.operations)), limits: None },
    Figure { id: "disk.latency_busy", group: FigureGroup::Disk, title: "latency of a disk that is busy half of the time",
        unit: FigureUnit::Milliseconds,
        value: |step| {
            let ms = step.positive_seconds()? * 1e3;
            step.worst_disk(|disk| if disk.busy_ms >= 0.5 * ms { over(disk.time_ms, disk.operations) } else { None })
        },
        limits: lasting(10.0, 50.0, "reads and writes wait for the disk: it is too slow or has too much to do",
            "ftdc-analyzer") },
    Figure { id: "disk.space", group: FigureGroup::Disk, title: "space used where the data is", unit: FigureUnit::Percent,
        value: |step| step.now.mounts.iter()
            .filter_map(|mount| {
                let used = mount.capacity.saturating_sub(mount.free);
                over(100.0 * used as f64, mount.capacity as f64)
            })
            .reduce(f64::max),
        limits: lasting(80.0, 90.0, "the file system of the data fills up", "mongo-x-ray; Atlas") },
    Figure { id: "pressure.io", group: FigureGroup::Disk, title: "time in which something waited for the disk",
        unit: FigureUnit::Percent, value: |step| Some(step.rate(PressureIo)? / 1e4), limits: None },
    Figure { id: "pressure.memory", group: FigureGroup::Memory, title: "time in which something waited for memory",
        unit: FigureUnit::Percent, value: |step| Some(step.rate(PressureMemory)? / 1e4), limits: None },

    Figure { id: "network.in", group: FigureGroup::Network, title: "received", unit: FigureUnit::BytesPerSecond,
        value: |step| step.rate(BytesIn), limits: None },
    Figure { id: "network.out", group: FigureGroup::Network, title: "sent", unit: FigureUnit::BytesPerSecond,
        value: |step| step.rate(BytesOut), limits: None },
    Figure { id: "network.retransmitted", group: FigureGroup::Network, title: "segments sent again", unit: FigureUnit::PerSecond,
        value: |step| step.rate(Retransmitted), limits: None },
    Figure { id: "network.listen_overflows", group: FigureGroup::Network, title: "connections refused by a full queue",
        unit: FigureUnit::PerSecond, value: |step| step.rate(ListenOverflows), limits: None },

    Figure { id: "errors.asserts", group: FigureGroup::Errors, title: "asserts of the server", unit: FigureUnit::PerSecond,
        value: |step| Some(step.growth_of(&[RegularAsserts, MessageAsserts])? / step.positive_seconds()?),
        limits: any(f64::MIN_POSITIVE, NEVER, "the server found itself in a wrong state: read its log of that second",
            "Atlas alert \"Asserts\"") },
    Figure { id: "errors.user_asserts", group: FigureGroup::Errors, title: "errors returned to clients", unit: FigureUnit::PerSecond,
        value: |step| step.rate(UserAsserts), limits: None },

    Figure { id: "collector.time", group: FigureGroup::Collector, title: "time to collect a sample", unit: FigureUnit::Milliseconds,
        value: |step| Some(step.gauge(End)? - step.gauge(Start)?),
        limits: lasting(100.0, 1_000.0, "the server is too busy to look at itself in time", "SERVER-76723") },
];

/// Keys or documents examined for each document returned, if it is more than a few.
fn targeting(step: &SampleStep<'_>, examined: super::Metric) -> Option<f64> {
    let (rate, returned) = (step.rate(examined)?, step.growth(DocsReturned)?);
    if rate > 1_000.0 { over(step.growth(examined)?, returned) } else { None }
}

/// Per cent of tickets in use. A server that has a queue for them changes their number by itself: there the queue counts.
fn tickets(
    step: &SampleStep<'_>,
    out: super::Metric,
    total: super::Metric,
    queue: super::Metric,
) -> Option<f64> {
    match step.now.get(queue) {
        Some(_) => None,
        None => step.percent(out, total),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::internals::{Metric, ServerSample};

    /// A figure of two samples, two seconds apart, in which metrics have these values.
    fn value(id: &str, metrics: &[(Metric, i64, i64)]) -> Option<f64> {
        let [mut before, mut now] = [ServerSample::default(), ServerSample::default()];
        for &(metric, earlier, later) in metrics {
            before.set(metric, Some(earlier));
            now.set(metric, Some(later));
        }
        let figure = FIGURES.iter().find(|figure| figure.id == id).unwrap();
        (figure.value)(&SampleStep { before: Some(&before), now: &now, seconds: 2.0 })
    }

    #[test]
    fn the_span_of_versions_has_its_seconds_in_the_upper_half_and_does_not_begin_in_1970() {
        let of = |seconds: i64| value("cache.pinned_time", &[(PinnedTimestamps, 0, seconds << 32)]);
        assert_eq!(of(5), Some(5_000.0));
        assert_eq!(of(7 * 86_400), Some(604_800_000.0));
        assert_eq!(of(1_763_760_000), None, "the time since 1970, as of 2025");
    }

    #[test]
    fn elections_for_any_reason_count() {
        let metrics = [(ElectionTimeouts, 1, 2), (ElectionStepUps, 0, 1), (ElectionCatchUps, 3, 4)];
        assert_eq!(value("replication.elections", &metrics), Some(1.5));
        assert_eq!(value("replication.elections", &[]), None, "not a member of a replica set");
    }

    #[test]
    fn waiting_for_sharding_data_is_in_milliseconds_per_second() {
        assert_eq!(value("sharding.refresh_wait", &[(CatalogRefreshWait, 1_000, 9_000)]), Some(4.0));
    }

    #[test]
    fn a_disk_is_not_busier_than_its_requests_allow() {
        let sample = |[busy_ms, queued_ms, in_flight]: [i64; 3]| {
            let mut sample = ServerSample::default();
            sample.disks.push(crate::internals::DiskSample {
                name: "nvme0n1".into(),
                operations: busy_ms,
                time_ms: queued_ms,
                busy_ms,
                queued_ms,
                in_flight,
            });
            sample
        };
        let busy = |now: [i64; 3]| {
            let (before, now) = (sample([1_000, 5_000, 0]), sample(now));
            let figure = FIGURES.iter().find(|figure| figure.id == "disk.busy").unwrap();
            (figure.value)(&SampleStep { before: Some(&before), now: &now, seconds: 2.0 })
        };
        assert_eq!(busy([2_800, 5_040, 0]), Some(2.0), "40 ms of requests in 2 s");
        assert_eq!(busy([2_800, 5_040, 3]), Some(90.0), "some have not ended");
        assert_eq!(busy([2_800, 9_000, 0]), Some(90.0));
    }

    #[test]
    fn memory_and_processors_are_judged_by_what_the_server_may_use() {
        let [mut before, mut now] = [ServerSample::default(), ServerSample::default()];
        // 3,670 MiB of 64 GiB, and 3.8 s of processor time in 2 s on a machine of 64.
        let metrics = [
            (Resident, 3_670, 3_670),
            (MemoryTotal, 64 << 20, 64 << 20),
            (CacheMaximum, 33_822_867_456, 33_822_867_456),
            (Processors, 64, 64),
            (ServerUserTime, 1_000_000, 4_000_000),
            (ServerSystemTime, 1_000_000, 1_800_000),
            (QueuedTotal, 8, 8),
        ];
        for (metric, earlier, later) in metrics {
            before.set(metric, Some(earlier));
            now.set(metric, Some(later));
        }
        let value = |now: &ServerSample, id: &str| {
            let figure = FIGURES.iter().find(|figure| figure.id == id).unwrap();
            (figure.value)(&SampleStep { before: Some(&before), now, seconds: 2.0 }).unwrap()
        };
        let rounded = |now: &ServerSample| {
            ["memory.resident", "memory.cache", "processor.server"]
                .map(|id| (10.0 * value(now, id)).round() / 10.0)
        };
        assert_eq!(rounded(&now), [5.6, 49.2, 3.0]);
        now.bounds.memory_kib = Some(4 << 20);
        now.bounds.processors = Some(2);
        assert_eq!(rounded(&now), [89.6, 787.5, 95.0]);
        assert_eq!(value(&now, "queues.lock"), 4.0);
        // A server that says so in each sample.
        now.set(ProcessorsAvailable, Some(4));
        assert_eq!((value(&now, "processor.server"), value(&now, "queues.lock")), (47.5, 2.0));
    }

    #[test]
    fn ids_are_unique_and_limits_rise() {
        let mut ids = std::collections::HashSet::new();
        for figure in FIGURES {
            assert!(ids.insert(figure.id), "{}", figure.id);
            if let Some(limits) = figure.limits {
                assert!((limits.amber < limits.red) != limits.below, "{}", figure.id);
                assert!(!limits.meaning.is_empty() && !limits.source.is_empty(), "{}", figure.id);
            }
        }
    }
}
