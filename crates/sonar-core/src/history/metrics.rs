//! The names of all metrics in the history: one table, from which keys of series are made.
//!
//! A name is stable: it is stored, and programs use it. It ends with the unit where that is not obvious. The figures of
//! a server's internals are part of the table under their [`Figure::id`]; all other metrics are constants here.

use super::{SeriesKey, SeriesSubject};
use crate::Endpoint;
use crate::internals::{FIGURES, Figure, FigureUnit};

/// A metric of the history.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SeriesMetric {
    /// The stable name.
    pub name: &'static str,
    /// The unit of its values.
    pub unit: FigureUnit,
    /// What its series are about.
    pub subject: SeriesSubject,
    /// What it means, in a few words.
    pub meaning: &'static str,
}

impl SeriesMetric {
    /// The metric that a figure of a server's internals is stored as.
    pub const fn of_figure(figure: &Figure) -> Self {
        Self { name: figure.id, unit: figure.unit, subject: SeriesSubject::Server, meaning: figure.title }
    }

    /// The key of the series about `name` (a device, an interface …; empty if there is only one) of `server` (port 0
    /// if it is not about one).
    pub fn key(&self, server: Endpoint, name: &str) -> SeriesKey {
        SeriesKey { subject: self.subject, server, name: name.into(), metric: self.name.into() }
    }
}

/// All metrics: those of this table, then the figures of a server's internals.
pub fn all() -> impl Iterator<Item = SeriesMetric> {
    TABLE.iter().copied().chain(FIGURES.iter().map(SeriesMetric::of_figure))
}

/// Whether a series says what was not observed. No cap drops it: without it, a view would take silence for quiet.
pub fn is_loss(key: &SeriesKey) -> bool {
    *key.metric == *LOG_UNREAD.name
}

/// The metric with this name.
pub fn find(name: &str) -> Option<SeriesMetric> {
    all().find(|metric| metric.name == name)
}

macro_rules! metrics {
    ($($subject:ident { $($constant:ident: $name:literal, $unit:ident, $meaning:literal;)+ })+) => {
        $($(
            #[doc = concat!("`", $name, "`: ", $meaning, ".")]
            pub const $constant: SeriesMetric = SeriesMetric {
                name: $name,
                unit: FigureUnit::$unit,
                subject: SeriesSubject::$subject,
                meaning: $meaning,
            };
        )+)+

        /// All metrics except the figures of a server's internals, by subject.
        pub const TABLE: &[SeriesMetric] = &[$($($constant),+),+];
    };
}

metrics! {
    Machine {
        CPU_BUSY: "cpu.busy_percent", Percent, "all processors busy, time taken by the hypervisor included";
        CPU_USER: "cpu.user_percent", Percent, "all processors in user code";
        CPU_SYSTEM: "cpu.system_percent", Percent, "all processors in the kernel, interrupts included";
        CPU_SOFTIRQ: "cpu.softirq_percent", Percent, "all processors in software interrupts, mostly the network";
        CPU_IOWAIT: "cpu.iowait_percent", Percent, "all processors idle while a thread waits for a disk";
        CPU_STEAL: "cpu.steal_percent", Percent, "all processors taken by the hypervisor";
        CPU_COUNT: "cpu.processors", Count, "processors";
        LOAD: "load.one_minute", Ratio, "threads that ran, waited to run or waited for a disk, mean of a minute";
        TASKS_RUNNING: "tasks.running", Count, "threads that ran or waited to run";
        TASKS_BLOCKED: "tasks.blocked", Count, "threads that waited for a disk";
        PRESSURE_CPU: "pressure.cpu_some_percent", Percent, "time in which some thread waited for a processor";
        PRESSURE_MEMORY: "pressure.memory_some_percent", Percent, "time in which some thread waited for memory";
        PRESSURE_MEMORY_FULL: "pressure.memory_full_percent", Percent, "time in which all threads waited for memory";
        PRESSURE_IO: "pressure.io_some_percent", Percent, "time in which some thread waited for a disk";
        PRESSURE_IO_FULL: "pressure.io_full_percent", Percent, "time in which all threads waited for a disk";
        MEMORY_TOTAL: "memory.total_bytes", Bytes, "memory of the machine";
        MEMORY_AVAILABLE: "memory.available_bytes", Bytes, "memory that programs can get without swapping";
        MEMORY_CACHED: "memory.cached_bytes", Bytes, "page cache and buffers";
        MEMORY_DIRTY: "memory.dirty_bytes", Bytes, "page cache that is not on disk yet";
        MEMORY_WRITEBACK: "memory.writeback_bytes", Bytes, "page cache that is being written";
        MEMORY_HUGE: "memory.huge_pages_bytes", Bytes, "memory of programs in transparent huge pages";
        MEMORY_SWAP_USED: "memory.swap_used_bytes", Bytes, "memory that is swapped out";
        MEMORY_SWAP_IN: "memory.swap_in_per_second", PerSecond, "pages swapped in";
        MEMORY_SWAP_OUT: "memory.swap_out_per_second", PerSecond, "pages swapped out";
        MEMORY_MAJOR_FAULTS: "memory.major_faults_per_second", PerSecond, "page faults that read from a disk";
        MEMORY_DIRECT_RECLAIM: "memory.direct_reclaim_per_second", PerSecond,
            "allocations that had to free memory first";
        MEMORY_HUGE_FAULTS: "memory.huge_page_faults_per_second", PerSecond, "huge pages given to programs";
        MEMORY_HUGE_FALLBACKS: "memory.huge_page_fallbacks_per_second", PerSecond,
            "huge pages that could not be given for lack of contiguous memory";
        TCP_CONNECTIONS: "tcp.connections", Count, "TCP connections established";
        TCP_RETRANSMITS: "tcp.retransmits_per_second", PerSecond, "TCP segments sent again";
        TCP_LISTEN_OVERFLOWS: "tcp.listen_overflows_per_second", PerSecond,
            "connections refused because a listen queue was full";
    }
    Interface {
        NETWORK_RECEIVED: "interface.received_bytes_per_second", BytesPerSecond, "bytes received";
        NETWORK_SENT: "interface.sent_bytes_per_second", BytesPerSecond, "bytes sent";
        NETWORK_PACKETS_RECEIVED: "interface.packets_received_per_second", PerSecond, "packets received";
        NETWORK_PACKETS_SENT: "interface.packets_sent_per_second", PerSecond, "packets sent";
        NETWORK_DROPPED: "interface.dropped_per_second", PerSecond, "packets dropped, received and sent";
        NETWORK_ERRORS: "interface.errors_per_second", PerSecond, "packets with errors, received and sent";
    }
    Device {
        DISK_READS: "disk.reads_per_second", PerSecond, "reads completed";
        DISK_READ_BYTES: "disk.read_bytes_per_second", BytesPerSecond, "bytes read";
        DISK_READ_WAIT: "disk.read_wait_ms", Milliseconds, "mean time of a read, queueing included";
        DISK_WRITES: "disk.writes_per_second", PerSecond, "writes completed";
        DISK_WRITTEN_BYTES: "disk.written_bytes_per_second", BytesPerSecond, "bytes written";
        DISK_WRITE_WAIT: "disk.write_wait_ms", Milliseconds, "mean time of a write, queueing included";
        DISK_FLUSHES: "disk.flushes_per_second", PerSecond, "flushes completed";
        DISK_FLUSH_WAIT: "disk.flush_wait_ms", Milliseconds, "mean time of a flush";
        DISK_QUEUE: "disk.queue_length", Ratio, "requests in flight, mean";
        DISK_BUSY: "disk.busy_percent", Percent, "time with at least one request in flight";
    }
    FileSystem {
        FILE_SYSTEM_USED: "file_system.used_percent", Percent, "space used, of what users other than root can have";
        FILE_SYSTEM_USED_BYTES: "file_system.used_bytes", Bytes, "space used";
        FILE_SYSTEM_FREE_BYTES: "file_system.free_bytes", Bytes, "space that users other than root can still use";
        FILE_SYSTEM_INODES_USED: "file_system.inodes_used_percent", Percent, "inodes used";
    }
    Server {
        LOG_UNREAD: "log.unread_percent", Percent,
            "time in which the server's log could not be read while others were; no value means none";
    }
    Member {
        MEMBER_STATE: "member.state", Count, "state in the replica set by number: 1 is primary, 2 secondary";
        MEMBER_LAG: "member.lag_ms", Milliseconds, "how far what it has applied is behind the primary";
    }
    Process {
        PROCESS_CPU_USER: "process.cpu_user_percent", Percent, "processor time in user code, 100 is one processor";
        PROCESS_CPU_SYSTEM: "process.cpu_system_percent", Percent,
            "processor time in the kernel, 100 is one processor";
        PROCESS_CPU_USED: "process.cpu_used_percent", Percent,
            "processor time, of what its control group, its affinity and the machine allow";
        PROCESS_RUN_QUEUE: "process.run_queue_percent", Percent,
            "time that threads were ready and waited for a processor, 100 is one thread all the time";
        PROCESS_SWITCHES: "process.switches_per_second", PerSecond, "times that a thread was given a processor";
        PROCESS_MEMORY: "process.memory_bytes", Bytes, "memory in use (resident)";
        PROCESS_ANONYMOUS: "process.anonymous_bytes", Bytes, "memory in use that is not of files: heap and stacks";
        PROCESS_SWAPPED: "process.swapped_bytes", Bytes, "memory swapped out";
        PROCESS_MINOR_FAULTS: "process.minor_faults_per_second", PerSecond,
            "page faults that needed no disk";
        PROCESS_MAJOR_FAULTS: "process.major_faults_per_second", PerSecond, "page faults that read from a disk";
        PROCESS_READ: "process.read_bytes_per_second", BytesPerSecond, "bytes read from storage";
        PROCESS_WRITTEN: "process.written_bytes_per_second", BytesPerSecond, "bytes written to storage";
        PROCESS_DESCRIPTORS: "process.descriptors", Count, "open file descriptors";
        PROCESS_DESCRIPTORS_USED: "process.descriptors_percent", Percent,
            "open file descriptors, of the most that are allowed";
        PROCESS_THREADS: "process.threads", Count, "threads";
        CGROUP_CPU_LIMIT: "cgroup.cpu_limit", Ratio, "processors that the control group allows";
        CGROUP_THROTTLED: "cgroup.throttled_percent", Percent,
            "time that the control group stopped threads for lack of quota, 100 is all the time on one processor";
        CGROUP_THROTTLED_PERIODS: "cgroup.throttled_periods_percent", Percent,
            "periods in which the control group stopped threads for lack of quota";
        CGROUP_MEMORY: "cgroup.memory_bytes", Bytes, "memory of the control group, page cache included";
        CGROUP_MEMORY_LIMIT: "cgroup.memory_limit_bytes", Bytes, "memory that the control group allows";
        CGROUP_MEMORY_USED: "cgroup.memory_used_percent", Percent,
            "memory of the control group without page cache, of what it allows";
        CGROUP_LIMIT_HITS: "cgroup.memory_limit_hits_per_second", PerSecond,
            "times that the control group reached a limit of memory and had to free some";
        CGROUP_TASKS_USED: "cgroup.tasks_percent", Percent, "threads of the control group, of what it allows";
    }
    ThreadRole {
        THREADS_CPU: "threads.cpu_percent", Percent, "processor time of threads with this role, 100 is one processor";
        THREADS_RUN_QUEUE: "threads.run_queue_percent", Percent,
            "time that threads with this role were ready and waited for a processor";
        THREADS_COUNT: "threads.count", Count, "threads with this role";
    }
    Collection {
        COLLECTION_SIZE: "collection.size_bytes", Bytes, "size of all documents, uncompressed";
        COLLECTION_STORAGE: "collection.storage_bytes", Bytes, "size of the collection's file";
        COLLECTION_REUSABLE: "collection.reusable_bytes", Bytes, "space in the collection's file that can be reused";
        COLLECTION_DOCUMENTS: "collection.documents", Count, "documents";
    }
    Index {
        INDEX_SIZE: "index.size_bytes", Bytes, "size of the index's file";
    }
    File {
        FILE_READS: "file.reads_per_second", PerSecond, "reads of the file";
        FILE_READ_BYTES: "file.read_bytes_per_second", BytesPerSecond, "bytes read from the file";
        FILE_DEVICE_READ_BYTES: "file.device_read_bytes_per_second", BytesPerSecond,
            "bytes of the file read from the device";
        FILE_READ_TIME: "file.read_ms", Milliseconds, "mean time of a read of the file";
        FILE_WRITES: "file.writes_per_second", PerSecond, "writes to the file";
        FILE_WRITTEN_BYTES: "file.written_bytes_per_second", BytesPerSecond, "bytes written to the file";
        FILE_WRITE_TIME: "file.write_ms", Milliseconds, "mean time of a write to the file";
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn names_are_unique_and_can_be_stored_in_any_program() {
        let mut names = BTreeSet::new();
        for metric in all() {
            assert!(names.insert(metric.name), "{} is there twice", metric.name);
            let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_');
            let (group, rest) = metric.name.split_once('.').unwrap_or_default();
            assert!(!group.is_empty() && !rest.is_empty() && !rest.contains('.'), "{}", metric.name);
            assert!(metric.name.chars().all(allowed), "{}", metric.name);
            assert!(!metric.meaning.is_empty() && !metric.meaning.ends_with('.'), "{}", metric.name);
            assert_eq!(find(metric.name), Some(metric));
        }
        assert_eq!(find("cpu.user"), None);
    }

    #[test]
    fn the_end_of_a_name_says_its_unit() {
        for metric in TABLE {
            let unit = match metric.name {
                name if name.ends_with("_bytes_per_second") => FigureUnit::BytesPerSecond,
                name if name.ends_with("_per_second") => FigureUnit::PerSecond,
                name if name.ends_with("_bytes") => FigureUnit::Bytes,
                name if name.ends_with("_ms") => FigureUnit::Milliseconds,
                name if name.ends_with("_percent") => FigureUnit::Percent,
                _ => {
                    assert!(matches!(metric.unit, FigureUnit::Count | FigureUnit::Ratio), "{}", metric.name);
                    continue;
                }
            };
            assert_eq!(metric.unit, unit, "{}", metric.name);
        }
    }

    #[test]
    fn figures_of_a_server_are_metrics_under_their_id() {
        for figure in FIGURES {
            let metric = find(figure.id).unwrap();
            assert_eq!((metric.subject, metric.unit), (SeriesSubject::Server, figure.unit));
            let key = metric.key(Endpoint::v4([0; 4], 27_017), "");
            assert_eq!((&*key.metric, key.server.port), (figure.id, 27_017));
        }
    }

    /// Keys are made from the table: elsewhere only a store, which reads names that were written before, and tests may
    /// construct them.
    #[test]
    fn no_other_module_makes_up_names() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut folders: Vec<PathBuf> =
            crates.read_dir().unwrap().map(|entry| entry.unwrap().path().join("src")).collect();
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            for entry in folder.read_dir().into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let is_allowed = path.starts_with(crates.join("sonar-store"))
                    || path.starts_with(crates.join("sonar-core/src/history"))
                    || path.file_stem().is_some_and(|name| name == "tests");
                if is_allowed || path.extension().is_none_or(|end| end != "rs") {
                    continue;
                }
                files += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                let constructs = code.lines().any(|line| {
                    let found = line.find("SeriesKey {").map(|at| &line[..at]);
                    // `impl … for SeriesKey {` and patterns in `let` define nothing.
                    found.is_some_and(|before| !before.contains("impl ") && !before.contains("let "))
                });
                assert!(!constructs, "{} makes a SeriesKey without the table", path.display());
            }
        }
        assert!(files > 100, "only {files} files were searched");
    }
}
