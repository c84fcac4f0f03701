//! What is known of a machine, and what a finding is.

use crate::machine::ControlGroup;

/// MongoDB's production notes.
pub const NOTES: &str = "https://www.mongodb.com/docs/manual/administration/production-notes/";
/// MongoDB's manual about the memory allocator.
pub const TCMALLOC: &str = "https://www.mongodb.com/docs/manual/administration/tcmalloc-performance/";
/// MongoDB's manual about resource limits.
pub const ULIMIT: &str = "https://www.mongodb.com/docs/manual/reference/ulimit/";
/// MongoDB's manual about huge pages, up to 7.0.
pub const HUGE_PAGES: &str = "https://www.mongodb.com/docs/v7.0/tutorial/transparent-huge-pages/";
/// The kernel documentation of software RAID.
pub const MD: &str = "https://docs.kernel.org/admin-guide/md.html";
/// xfs(5), about stripes.
pub const XFS: &str = "https://man7.org/linux/man-pages/man5/xfs.5.html";
/// ext4(5), about stripes.
pub const EXT4: &str = "https://man7.org/linux/man-pages/man5/ext4.5.html";
/// MongoDB's manual about WiredTiger's cache.
pub const WIREDTIGER: &str = "https://www.mongodb.com/docs/manual/core/wiredtiger/";
/// The kernel documentation of control groups.
pub const CGROUP: &str = "https://docs.kernel.org/admin-guide/cgroup-v2.html";
/// MongoDB's issue about limits of cgroup version 2.
pub const SERVER_60412: &str = "https://jira.mongodb.org/browse/SERVER-60412";
/// MongoDB's issue about kernels on which its allocator breaks.
pub const RSEQ_BREAK: &str = "https://jira.mongodb.org/browse/SERVER-121912";
/// WiredTiger's documentation of file systems.
pub const WT_FILES: &str = "https://source.wiredtiger.com/develop/filesystems.html";
/// The documentation of this command.
pub const OWN: &str = "docs/disk.md";

/// The grade of a finding.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// As it should be.
    Ok,
    /// It costs performance.
    Warning,
    /// It costs much performance, or risks data.
    Problem,
}

impl Grade {
    /// `ok`, `warning` or `problem`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// One line of the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckFinding {
    /// Stable name, for example `readahead`.
    pub name: &'static str,
    /// The grade.
    pub grade: Grade,
    /// What was found.
    pub found: String,
    /// Why it matters.
    pub why: &'static str,
    /// How to change it, if it should change: a command that destroys nothing, or the steps in words.
    pub remedy: Option<String>,
    /// The source of the recommendation: a URL or a file.
    pub document: &'static str,
}

/// A version of mongod: major, minor.
pub type Version = (u32, u32);

/// The file system of the data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSystem {
    /// Type, for example `xfs`.
    pub kind: String,
    /// Mount point.
    pub point: String,
    /// Mounted device or remote path.
    pub source: String,
    /// Mount options.
    pub options: Vec<String>,
    /// Total and free bytes; `None` if unknown.
    pub space: Option<(u64, u64)>,
}

impl FileSystem {
    pub(super) fn has(&self, option: &str) -> bool {
        self.options.iter().any(|o| o == option)
    }

    pub(super) fn value(&self, name: &str) -> Option<u64> {
        self.options.iter().find_map(|o| o.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
    }
}

/// A RAID array, or a volume over several devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskArray {
    /// Name of the device.
    pub name: String,
    /// `raid0`, `raid1`, `raid5`, `raid6`, `raid10` or `linear`; for a volume of the device mapper `striped` or
    /// `mapped`.
    pub level: String,
    /// Member devices.
    pub members: Vec<String>,
    /// Chunk size in bytes; 0 if it has no chunks.
    pub chunk_bytes: u64,
    /// Number of missing members.
    pub degraded: u32,
    /// Current action: `idle`, `resync`, `recover` …
    pub action: Option<String>,
}

impl DiskArray {
    /// Number of members with data in a stripe; `None` if unknown.
    pub(super) fn data_members(&self) -> Option<u64> {
        let n = self.members.len() as u64;
        match self.level.as_str() {
            "raid0" | "striped" => Some(n),
            "raid10" => Some(n / 2),
            "raid4" | "raid5" => n.checked_sub(1),
            "raid6" => n.checked_sub(2),
            _ => None,
        }
        .filter(|n| *n > 0)
    }
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Name of the disk.
    pub name: String,
    /// Model.
    pub model: Option<String>,
    /// Whether the kernel treats it as a rotating disk.
    pub rotational: Option<bool>,
    /// The active scheduler and the available ones.
    pub scheduler: Option<(String, Vec<String>)>,
    /// Whether it is a virtual disk or a network disk.
    pub is_virtual: bool,
}

/// The known facts about a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineFacts {
    /// Whether a mongod runs here.
    pub has_mongod: bool,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Version of mongod.
    pub version: Option<Version>,
    /// The source of the version, in words; `None` if the user gave it.
    pub version_source: Option<String>,
    /// The data directory.
    pub dbpath: Option<String>,
    /// File system of the data directory.
    pub file_system: Option<FileSystem>,
    /// Device of the file system, and its readahead in KiB.
    pub readahead: Option<(String, u64)>,
    /// Arrays and volumes between file system and disks, top first.
    pub arrays: Vec<DiskArray>,
    /// The disks.
    pub disks: Vec<Disk>,
    /// Transparent huge pages: `always`, `madvise`, `never`.
    pub huge_pages: Option<String>,
    /// Defragmentation for huge pages: `always`, `defer`, `defer+madvise`, `madvise`, `never`.
    pub huge_pages_defrag: Option<String>,
    /// `khugepaged/max_ptes_none`.
    pub max_ptes_none: Option<u64>,
    /// Whether mongod can have huge pages; `false` if it has opted out.
    pub process_huge_pages: Option<bool>,
    /// `GLIBC_TUNABLES` in mongod's environment, which may lack it; the outer `None` if the environment cannot be seen.
    pub glibc_tunables: Option<Option<String>>,
    /// Version of the glibc that mongod has loaded, if the name of its file has it.
    pub glibc: Option<Version>,
    /// `vm.overcommit_memory`.
    pub overcommit: Option<u64>,
    /// `vm.swappiness`.
    pub swappiness: Option<u64>,
    /// Swap space in KiB.
    pub swap_kib: Option<u64>,
    /// Number of NUMA nodes with memory.
    pub numa_nodes: Option<usize>,
    /// `vm.zone_reclaim_mode`.
    pub zone_reclaim: Option<u64>,
    /// Whether mongod's memory is interleaved over the NUMA nodes.
    pub interleaved: Option<bool>,
    /// `vm.max_map_count`.
    pub max_map_count: Option<u64>,
    /// Soft limits of mongod by their names in `/proc/PID/limits`; `None` is unlimited.
    pub limits: Vec<(String, Option<u64>)>,
    /// The maximum number of connections that was set.
    pub max_connections: Option<u64>,
    /// Memory of the machine in bytes.
    pub memory: Option<u64>,
    /// Processors of the machine.
    pub processors: Option<u32>,
    /// What mongod may use of the machine.
    pub bounds: Option<ProcessBounds>,
}

/// The name of a rule, why it matters, and the document it comes from.
pub(super) struct Rule(pub(super) &'static str, pub(super) &'static str, pub(super) &'static str);

impl Rule {
    pub(super) fn finds(self, grade: Grade, found: impl Into<String>) -> CheckFinding {
        let Self(name, why, document) = self;
        CheckFinding { name, grade, found: found.into(), why, remedy: None, document }
    }
}

impl CheckFinding {
    pub(super) fn remedy(self, command: impl Into<String>) -> Self {
        Self { remedy: Some(command.into()), ..self }
    }
}

/// The first three numbers of a release.
pub(super) fn numbers(release: &str) -> Option<(u32, u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    Some((
        parts.next()?.parse().ok()?,
        parts.next()?.parse().ok()?,
        parts.next().and_then(|p| p.parse().ok()).unwrap_or(0),
    ))
}

/// What the process of a server may use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessBounds {
    /// Memory that the server has in use (resident), in bytes.
    pub resident: Option<u64>,
    /// How many processors it may run on, by its affinity.
    pub allowed_processors: Option<u32>,
    /// Its control groups; `None` if they cannot be seen.
    pub group: Option<ControlGroup>,
    /// The folders of the groups that limit processors, memory and tasks.
    pub folders: [Option<String>; 3],
    /// Whether its memory is limited by version 2 of control groups.
    pub is_version_2: bool,
    /// The size of WiredTiger's cache that was set, in bytes.
    pub cache: Option<u64>,
}

impl ProcessBounds {
    /// ` (by FOLDER)` for the group that limits a resource.
    pub(super) fn by(&self, place: usize) -> String {
        self.folders[place].as_ref().map_or_else(String::new, |folder| format!(" (by {folder})"))
    }
}
