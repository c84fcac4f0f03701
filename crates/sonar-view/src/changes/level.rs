//! Figures of the machine and of servers that left their range, in words.

use std::borrow::Cow;

use sonar_core::changes::SeriesChange;
use sonar_core::history::{SeriesKey, SeriesSubject, metrics};

use crate::ftdc::units;

/// What rises or falls, where the title of a metric is not made for the beginning of a sentence.
const SUBJECTS: &[(&str, &str)] = &[
    ("cache.dirty", "dirty data in the cache"),
    ("cache.evicted_modified", "evicted modified pages"),
    ("cache.evicted_unmodified", "evicted unmodified pages"),
    ("cache.eviction_time", "time per second that operations spent evicting"),
    ("cache.pinned_ids", "the range of pinned transaction ids"),
    ("cache.read", "data read into the cache"),
    ("cache.updates", "cache used by updates"),
    ("cache.used", "cache in use"),
    ("cache.wait_time", "time per second that operations waited for cache"),
    ("cache.written", "data written from the cache"),
    ("cgroup.cpu_limit", "the number of processors that the control group allows"),
    ("cgroup.memory_bytes", "memory of the control group"),
    ("cgroup.memory_limit_hits_per_second", "hits of the control group's limit of memory"),
    ("cgroup.memory_used_percent", "the used share of the control group's memory"),
    ("cgroup.tasks_percent", "the used share of the control group's threads"),
    ("cgroup.throttled_percent", "time in which the control group stopped threads"),
    ("cgroup.throttled_periods_percent", "periods in which the control group stopped threads"),
    ("collection.size_bytes", "the size of documents"),
    ("connections.created", "new connections"),
    ("connections.open", "open connections"),
    ("connections.used", "the used share of possible connections"),
    ("cpu.busy_percent", "processor time in use on the machine"),
    ("cpu.iowait_percent", "time in which processors were idle while a thread waited for a disk"),
    ("cpu.processors", "the number of processors"),
    ("cpu.softirq_percent", "processor time in software interrupts"),
    ("cpu.steal_percent", "processor time taken by the hypervisor"),
    ("cpu.system_percent", "processor time in the kernel"),
    ("cpu.user_percent", "processor time in user code"),
    ("cursors.open", "open cursors"),
    ("cursors.timed_out", "cursors that timed out"),
    ("disk.busy", "the busy time of the busiest disk"),
    ("disk.busy_percent", "busy time"),
    ("disk.flush_wait_ms", "the mean time of a flush"),
    ("disk.flushes_per_second", "completed flushes"),
    ("disk.queue_length", "the mean number of requests in flight"),
    ("disk.read_bytes_per_second", "data read"),
    ("disk.read_wait_ms", "the mean time of a read"),
    ("disk.reads_per_second", "completed reads"),
    ("disk.space", "used space where the data is"),
    ("disk.write_wait_ms", "the mean time of a write"),
    ("disk.writes_per_second", "completed writes"),
    ("disk.written_bytes_per_second", "data written"),
    ("file_system.inodes_used_percent", "the used share of inodes"),
    ("file_system.used_bytes", "used space"),
    ("file_system.used_percent", "the used share of space"),
    ("handles.active", "active data handles"),
    ("interface.dropped_per_second", "dropped packets"),
    ("interface.errors_per_second", "packets with errors"),
    ("interface.packets_received_per_second", "received packets"),
    ("interface.packets_sent_per_second", "sent packets"),
    ("interface.received_bytes_per_second", "received data"),
    ("interface.sent_bytes_per_second", "sent data"),
    ("journal.bytes", "data written to the journal"),
    ("load.one_minute", "the load average of one minute"),
    ("log.unread_percent", "time in which the server's log could not be read"),
    ("member.lag_ms", "the replication lag"),
    ("member.state", "the number of the state"),
    ("memory.cache", "the cache's maximum as a share of usable memory"),
    ("memory.cached_bytes", "the page cache with its buffers"),
    ("memory.resident", "the server's share of usable memory"),
    ("memory.swap_in_per_second", "the rate of pages swapped in"),
    ("memory.swap_out_per_second", "the rate of pages swapped out"),
    ("memory.swapped", "the rate of pages swapped in and out"),
    ("memory.used", "used memory without page cache"),
    ("network.in", "received data"),
    ("network.out", "sent data"),
    ("network.retransmitted", "the rate of segments sent again"),
    ("pool.available", "idle connections to other servers"),
    ("pool.created", "new connections to other servers"),
    ("pool.in_use", "used connections to other servers"),
    ("pressure.io_full_percent", "time in which all threads waited for a disk"),
    ("process.anonymous_bytes", "memory for heap and stacks"),
    ("process.cpu_system_percent", "processor time in the kernel"),
    ("process.cpu_used_percent", "the used share of allowed processor time"),
    ("process.cpu_user_percent", "processor time in user code"),
    ("process.descriptors", "open file descriptors"),
    ("process.descriptors_percent", "the used share of allowed file descriptors"),
    ("process.major_faults_per_second", "page faults with a read from disk"),
    ("process.memory_bytes", "resident memory"),
    ("process.minor_faults_per_second", "page faults without a read from disk"),
    ("process.read_bytes_per_second", "data read from storage"),
    ("process.run_queue_percent", "waiting time for a processor"),
    ("process.swapped_bytes", "swapped memory"),
    ("process.switches_per_second", "context switches"),
    ("process.threads", "the number of threads"),
    ("process.written_bytes_per_second", "data written to storage"),
    ("processor.iowait", "time in which processors were idle while the disk worked"),
    ("processor.server", "processor time of the server"),
    ("processor.steal", "processor time taken by the hypervisor"),
    ("processor.system", "processor time in the kernel"),
    ("processor.user", "processor time in user code"),
    ("queries.docs_examined", "examined documents"),
    ("queries.docs_per_returned", "examined documents for each returned one"),
    ("queries.keys_per_returned", "examined keys for each returned document"),
    ("queues.lock", "operations queued for a lock per processor"),
    ("replication.flow_control", "time per second that writes waited for flow control"),
    ("replication.flow_control_lagged", "the flag of flow control"),
    ("sharding.refresh_wait", "time per second that operations waited for sharding data"),
    ("tcp.connections", "established TCP connections"),
    ("tcp.listen_overflows_per_second", "the rate of connections refused by a full listen queue"),
    ("tcp.retransmits_per_second", "the rate of TCP segments sent again"),
    ("threads.count", "the number"),
    ("threads.cpu_percent", "processor time"),
    ("threads.run_queue_percent", "waiting time for a processor"),
    ("tickets.read", "used read tickets"),
    ("tickets.write", "used write tickets"),
    ("transactions.aborted", "aborted transactions"),
    ("transactions.open", "open transactions"),
];

/// Name and unit of the metric of a series.
pub(crate) fn metric(series: &SeriesKey) -> (String, &'static str) {
    let found = metrics::find(&series.metric);
    let title = found.map_or(&*series.metric, |metric| metric.meaning);
    let of = if series.name.is_empty() { String::new() } else { format!("{}: ", series.name) };
    (format!("{of}{title}"), found.map_or("count", |metric| metric.unit.name()))
}

/// `completed reads on sda rose from 12/s to 480/s`.
pub(super) fn sentence(series: &SeriesChange) -> String {
    let (_, unit) = metric(&series.key);
    let word = if series.after > series.before { "rose" } else { "fell" };
    let show = |value| units::show(value, unit);
    format!("{} {word} from {} to {}", subject(&series.key), show(series.before), show(series.after))
}

/// What rises or falls, with what it belongs to.
fn subject(key: &SeriesKey) -> String {
    let named = SUBJECTS.iter().find(|(id, _)| **id == *key.metric).map(|(_, subject)| *subject);
    let title =
        || metrics::find(&key.metric).map_or(Cow::Borrowed(&*key.metric), |metric| metric.meaning.into());
    let what = named.map_or_else(title, Cow::Borrowed);
    let name = &key.name;
    match key.subject {
        SeriesSubject::Process if key.metric.starts_with("process.") => {
            format!("{what} of the server's process")
        }
        SeriesSubject::ThreadRole => format!("{what} of threads with the role {name}"),
        SeriesSubject::Member => format!("{what} of the member {name}"),
        SeriesSubject::Device | SeriesSubject::Interface | SeriesSubject::FileSystem => {
            format!("{what} on {name}")
        }
        _ if name.is_empty() => what.into_owned(),
        _ => format!("{what} of {name}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sonar_core::Endpoint;

    use super::*;

    /// The metrics whose titles begin a sentence as they are.
    const TITLES: &[&str] = &[
        "cache.application_eviction",
        "cache.history",
        "cache.page_read",
        "cache.pinned_time",
        "cgroup.memory_limit_bytes",
        "checkpoints.rate",
        "checkpoints.time",
        "collection.documents",
        "collection.reusable_bytes",
        "collection.storage_bytes",
        "collector.time",
        "disk.latency",
        "disk.latency_busy",
        "disk.queue",
        "errors.asserts",
        "errors.user_asserts",
        "file.device_read_bytes_per_second",
        "file.read_bytes_per_second",
        "file.read_ms",
        "file.reads_per_second",
        "file.write_ms",
        "file.writes_per_second",
        "file.written_bytes_per_second",
        "file_system.free_bytes",
        "index.size_bytes",
        "journal.sync",
        "latency.commands",
        "latency.reads",
        "latency.writes",
        "memory.available_bytes",
        "memory.direct_reclaim_per_second",
        "memory.dirty_bytes",
        "memory.fragmentation",
        "memory.huge_page_fallbacks_per_second",
        "memory.huge_page_faults_per_second",
        "memory.huge_pages_bytes",
        "memory.major_faults",
        "memory.major_faults_per_second",
        "memory.swap_used_bytes",
        "memory.total_bytes",
        "memory.writeback_bytes",
        "network.listen_overflows",
        "operations.commands",
        "operations.deletes",
        "operations.getmores",
        "operations.inserts",
        "operations.queries",
        "operations.ttl_deleted",
        "operations.updates",
        "pressure.cpu",
        "pressure.cpu_some_percent",
        "pressure.io",
        "pressure.io_some_percent",
        "pressure.memory",
        "pressure.memory_full_percent",
        "pressure.memory_some_percent",
        "queries.collection_scans",
        "queries.memory_sorts",
        "queries.write_conflicts",
        "queues.active",
        "queues.readers",
        "queues.writers",
        "replication.elections",
        "replication.lag",
        "replication.oplog_window",
        "sharding.stale_config",
        "tasks.blocked",
        "tasks.running",
        "tickets.read_queue",
        "tickets.write_queue",
    ];

    #[test]
    fn a_figure_begins_a_sentence_without_a_second_reading() {
        let mut all = BTreeSet::new();
        for found in metrics::all() {
            all.insert(found.name);
            let subject = subject(&found.key(Endpoint::default(), ""));
            // An addition between the subject and its verb.
            assert!(!subject.contains([',', ';', ':', '(']), "{}: {subject}", found.name);
        }
        let without: Vec<&str> =
            all.iter().filter(|name| !SUBJECTS.iter().any(|(id, _)| id == *name)).copied().collect();
        assert_eq!(without, TITLES);
        let unknown: Vec<_> = SUBJECTS.iter().filter(|(id, _)| !all.contains(id)).collect();
        assert_eq!(unknown, Vec::<&(&str, &str)>::new());
        assert!(SUBJECTS.is_sorted(), "{:?}", SUBJECTS.windows(2).find(|pair| pair[0] > pair[1]));
    }

    #[test]
    fn a_sentence_has_a_subject_a_verb_and_figures() {
        let of = |metric: &metrics::SeriesMetric, name: &str, before, after| {
            let (range, score) = ((0.0, 1.0), 1.0);
            let key = metric.key(Endpoint::default(), name);
            sentence(&SeriesChange { key, before, range, after, score, judged: None })
        };
        assert_eq!(
            of(&metrics::DISK_READS, "sda", 12.0, 480.0),
            "completed reads on sda rose from 12/s to 480/s"
        );
        assert_eq!(
            of(&metrics::PROCESS_MEMORY, "", 4e9, 1e9),
            "resident memory of the server's process fell from 4.00GB to 1.00GB"
        );
        assert_eq!(
            of(&metrics::THREADS_COUNT, "client", 3.0, 40.0),
            "the number of threads with the role client rose from 3 to 40"
        );
        assert_eq!(
            of(&metrics::CPU_BUSY, "", 20.0, 90.0),
            "processor time in use on the machine rose from 20.0 % to 90.0 %"
        );
    }
}
