//! Compares the settings of a machine with MongoDB's production notes: facts in, findings out.
//!
//! Each rule is a function of the facts. An unknown fact gives no finding; it is listed as not visible. A rule
//! gives advice only if the machine offers a choice. No remedy destroys data: if another file system or array is
//! needed, the remedy describes the migration.

use crate::words::{binary_size, plural};

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
    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|o| o == option)
    }

    fn value(&self, name: &str) -> Option<u64> {
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
    fn data_members(&self) -> Option<u64> {
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
}

/// The name of a rule, why it matters, and the document it comes from.
struct Rule(&'static str, &'static str, &'static str);

impl Rule {
    fn finds(self, grade: Grade, found: impl Into<String>) -> CheckFinding {
        let Self(name, why, document) = self;
        CheckFinding { name, grade, found: found.into(), why, remedy: None, document }
    }
}

impl CheckFinding {
    fn remedy(self, command: impl Into<String>) -> Self {
        Self { remedy: Some(command.into()), ..self }
    }
}

/// All findings, in the order in which a person would check them.
pub fn findings(facts: &MachineFacts) -> Vec<CheckFinding> {
    let mut all = Vec::new();
    all.extend(kernel(facts));
    if let Some(fs) = &facts.file_system {
        all.push(file_system(fs));
        all.extend(network(fs));
        all.extend(atime(fs));
        all.extend(space(fs));
    }
    all.extend(facts.arrays.iter().flat_map(array));
    all.extend(stripe(facts));
    all.extend(readahead(facts));
    all.extend(facts.disks.iter().filter_map(scheduler));
    all.extend(facts.disks.iter().filter_map(rotational));
    all.extend(huge_pages(facts));
    all.extend(huge_pages_details(facts));
    all.extend(swappiness(facts));
    all.extend(numa(facts));
    all.extend(limits(facts));
    all.extend(map_count(facts));
    all
}

fn numbers(release: &str) -> Option<(u32, u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    Some((
        parts.next()?.parse().ok()?,
        parts.next()?.parse().ok()?,
        parts.next().and_then(|p| p.parse().ok()).unwrap_or(0),
    ))
}

fn kernel(facts: &MachineFacts) -> Option<CheckFinding> {
    const WHY: &str = "MongoDB requires Linux 2.6.36 or newer";
    let release = facts.kernel.as_ref()?;
    let old = numbers(release).is_some_and(|version| version < (2, 6, 36));
    let grade = if old { Grade::Problem } else { Grade::Ok };
    Some(Rule("kernel", WHY, NOTES).finds(grade, format!("Linux {release}")))
}

/// How to move data to another volume without losing a copy in the meantime.
const MIGRATION: &str = "move the data to a new volume with XFS and keep this one until that is done: in a replica set give \
                         one secondary at a time an empty dbPath there and let it sync from the others (initial sync); \
                         a standalone needs a tested backup, restored there";

fn file_system(fs: &FileSystem) -> CheckFinding {
    let found = format!("{} at {}", fs.kind, fs.point);
    let made = |grade, why| Rule("file-system", why, NOTES).finds(grade, found.clone());
    match fs.kind.as_str() {
        "xfs" => made(Grade::Ok, "XFS is what MongoDB recommends for WiredTiger's files"),
        "ext4" => made(
            Grade::Warning,
            "ext4 can stall around checkpoints, when its journal waits for much dirty data; XFS is strongly recommended",
        )
        .remedy(MIGRATION),
        "tmpfs" | "ramfs" => {
            made(Grade::Problem, "the data is in memory and lost at the next start").remedy(MIGRATION)
        }
        "overlay" | "aufs" => made(
            Grade::Problem,
            "the data is in the writable layer of a container: slow, and lost with the container; use a volume",
        )
        .remedy("docker run -v /data/of/host:/data/db … (or a persistent volume)"),
        "vboxsf" | "9p" | "fuse.vmhgfs-fuse" | "vfat" | "exfat" | "cifs" | "smb3" => made(
            Grade::Problem,
            "this file system cannot fsync a folder or map files as MongoDB needs; it is not supported",
        )
        .remedy(MIGRATION),
        "nfs" | "nfs4" => made(
            Grade::Warning,
            "a network file system is slower and needs certain options; a local XFS is recommended",
        )
        .remedy(MIGRATION),
        _ => made(
            Grade::Warning,
            "not a file system that MongoDB is tested on; XFS is strongly recommended",
        )
        .remedy(MIGRATION),
    }
}

fn network(fs: &FileSystem) -> Option<CheckFinding> {
    if !fs.kind.starts_with("nfs") {
        return None;
    }
    const WHY: &str = "without these options a lost connection causes I/O errors, and mongod terminates";
    // The kernel shows `hard`; `bg` and `nointr` are options of the mount command only.
    let missing: Vec<&str> = ["hard", "nolock", "noatime"]
        .into_iter()
        .filter(|o| !fs.has(o) && (*o != "nolock" || !fs.has("local_lock=all")))
        .collect();
    let options = "bg,hard,nolock,noatime,nointr";
    Some(if missing.is_empty() {
        Rule("nfs-options", WHY, NOTES).finds(Grade::Ok, "hard, nolock and noatime are set")
    } else {
        Rule("nfs-options", WHY, NOTES)
            .finds(Grade::Problem, format!("missing: {}", missing.join(", ")))
            .remedy(format!("in /etc/fstab: {} {} nfs {options} 0 0", fs.source, fs.point))
    })
}

fn atime(fs: &FileSystem) -> Option<CheckFinding> {
    const WHY: &str = "with access times, reading a file also writes its inode";
    // NFS has the finding `nfs-options`, ZFS has a property instead, and other file systems have no access times.
    if !matches!(fs.kind.as_str(), "xfs" | "ext2" | "ext3" | "ext4" | "btrfs" | "f2fs" | "jfs" | "reiserfs") {
        return None;
    }
    let remedy = format!("sudo mount -o remount,noatime {}   (and noatime in /etc/fstab)", fs.point);
    Some(if fs.has("noatime") {
        Rule("atime", WHY, NOTES).finds(Grade::Ok, "noatime")
    } else if fs.has("relatime") {
        Rule("atime", WHY, NOTES)
            .finds(Grade::Warning, "relatime: access times are written about once a day")
            .remedy(remedy)
    } else {
        Rule("atime", WHY, NOTES)
            .finds(Grade::Warning, "access times are written at each read")
            .remedy(remedy)
    })
}

fn space(fs: &FileSystem) -> Option<CheckFinding> {
    const WHY: &str = "mongod terminates when the disk is full, and a resync or compact needs free space";
    let (total, free) = fs.space.filter(|(total, _)| *total > 0)?;
    let share = 100.0 * free as f64 / total as f64;
    let grade = match share {
        ..5.0 => Grade::Problem,
        5.0..15.0 => Grade::Warning,
        _ => Grade::Ok,
    };
    let found = format!("{} of {} are free ({share:.0} %)", binary_size(free), binary_size(total));
    let made = Rule("free-space", WHY, OWN).finds(grade, found);
    Some(if grade == Grade::Ok {
        made
    } else {
        made.remedy(format!("du -xh --max-depth=2 {} | sort -h | tail", fs.point))
    })
}

fn array(array: &DiskArray) -> Vec<CheckFinding> {
    let chunk = if array.chunk_bytes > 0 {
        format!(", chunks of {} KiB", array.chunk_bytes >> 10)
    } else {
        String::new()
    };
    let found = format!("{}: {} of {}{chunk}", array.name, array.level, array.members.join(", "));
    let made = |grade, why, document| Rule("raid", why, document).finds(grade, found.clone());
    // An array of one disk has no stripes, and no higher risk than the disk alone.
    let is_spread = array.members.len() > 1;
    let mut all = vec![match array.level.as_str() {
        _ if !is_spread => made(Grade::Ok, "one disk, so its level does not matter", NOTES),
        "raid10" | "raid1" => made(Grade::Ok, "RAID 10 (or a mirror) is what MongoDB recommends", NOTES),
        "raid0" | "striped" | "linear" => made(
            Grade::Warning,
            "no redundancy: when one disk fails, all data of this member is lost; only replication protects it",
            NOTES,
        ),
        "raid4" | "raid5" | "raid6" => made(
            Grade::Warning,
            "each small write also reads and writes parity: RAID 5 and 6 do not perform well enough for MongoDB; \
             RAID 10 is recommended",
            NOTES,
        ),
        "mapped" => made(
            Grade::Warning,
            "a volume over several disks without a visible stripe: unless it is a mirror, losing one disk loses \
             all data, and one disk does all the work",
            OWN,
        )
        .remedy("sudo lvs -o name,segtype,stripes,stripe_size,devices"),
        _ => made(Grade::Ok, "no objection", NOTES),
    }];
    if array.degraded > 0 {
        let why = "one more failure may lose all data, and missing blocks have to be reconstructed";
        all.push(
            Rule("raid-degraded", why, MD)
                .finds(Grade::Problem, format!("{}: {} missing", array.name, array.degraded))
                .remedy(format!("cat /proc/mdstat; sudo mdadm --detail /dev/{}", array.name)),
        );
    }
    if let Some(action) = array.action.as_deref().filter(|a| !matches!(*a, "idle" | "frozen" | "none")) {
        let why = "the array's own reads and writes take bandwidth from MongoDB";
        all.push(
            Rule("raid-action", why, MD)
                .finds(Grade::Warning, format!("{}: {action}", array.name))
                .remedy("cat /proc/mdstat"),
        );
    }
    all
}

/// The file system should know the stripe of the array below it.
fn stripe(facts: &MachineFacts) -> Option<CheckFinding> {
    const WHY: &str =
        "a file system that knows the stripe spreads its structures over all disks and writes whole stripes";
    let fs = facts.file_system.as_ref()?;
    let is_striped = |a: &&DiskArray| a.members.len() > 1 && a.chunk_bytes > 0 && a.data_members().is_some();
    let array = facts.arrays.iter().find(is_striped)?;
    let data = array.data_members()?;
    let (chunk, width) = (array.chunk_bytes, array.chunk_bytes.saturating_mul(data));
    let made = |grade, found: String, document| Rule("stripe", WHY, document).finds(grade, found);
    match fs.kind.as_str() {
        "xfs" => {
            // Both mount options are in units of 512 bytes.
            let (unit, total) = (fs.value("sunit").unwrap_or(0) * 512, fs.value("swidth").unwrap_or(0) * 512);
            let wanted = format!("{} KiB and {} KiB", chunk >> 10, width >> 10);
            Some(if (unit, total) == (chunk, width) {
                made(Grade::Ok, format!("XFS knows chunk and stripe: {wanted}"), XFS)
            } else {
                let known = if total == 0 {
                    "nothing".to_owned()
                } else {
                    format!("{} KiB and {} KiB", unit >> 10, total >> 10)
                };
                made(
                    Grade::Warning,
                    format!("{} has chunk and stripe of {wanted}, XFS knows {known}", array.name),
                    XFS,
                )
                .remedy(format!(
                    "add sunit={},swidth={} to the mount options of {} in /etc/fstab; they take effect at the next mount",
                    chunk / 512,
                    width / 512,
                    fs.point
                ))
            })
        }
        "ext4" => {
            // In blocks of 4 KiB, except on very small file systems.
            let known = fs.value("stripe").unwrap_or(0) * 4096;
            Some(if known == width {
                made(Grade::Ok, format!("ext4 knows the stripe: {} KiB", width >> 10), EXT4)
            } else {
                let known = if known == 0 { "nothing".to_owned() } else { format!("{} KiB", known >> 10) };
                made(
                    Grade::Warning,
                    format!("{} has a stripe of {} KiB, ext4 knows {known}", array.name, width >> 10),
                    EXT4,
                )
                .remedy(format!(
                    "sudo tune2fs -E stride={},stripe_width={} {}",
                    chunk / 4096,
                    width / 4096,
                    fs.source
                ))
            })
        }
        _ => None,
    }
}

fn readahead(facts: &MachineFacts) -> Option<CheckFinding> {
    const WHY: &str = "WiredTiger reads at random: pages read ahead are wasted and displace cached ones";
    let (device, kib) = facts.readahead.as_ref()?;
    // blockdev counts in sectors of 512 bytes.
    let sectors = kib * 2;
    let found = format!("{device}: {kib} KiB ({sectors} sectors); 8 to 32 sectors are recommended");
    Some(match sectors {
        8..=32 => Rule("readahead", WHY, NOTES).finds(Grade::Ok, found),
        _ => Rule("readahead", WHY, NOTES).finds(Grade::Warning, found).remedy(format!(
            "sudo blockdev --setra 32 /dev/{device}   (and a udev rule to make it permanent)"
        )),
    })
}

fn scheduler(disk: &Disk) -> Option<CheckFinding> {
    const WHY: &str = "a fast or virtual disk orders requests itself, and a scheduler only delays them; a rotating disk \
                       needs mq-deadline";
    let (chosen, all) = disk.scheduler.as_ref()?;
    // The right scheduler depends on the kind of disk.
    if disk.rotational.is_none() && !disk.is_virtual {
        return None;
    }
    let rotating = disk.rotational == Some(true) && !disk.is_virtual;
    let good: &[&str] = if rotating {
        &["mq-deadline", "deadline"]
    } else if disk.is_virtual {
        // The notes allow kyber for mixed workloads in a guest.
        &["none", "noop", "kyber"]
    } else {
        &["none", "noop"]
    };
    let kind = match (disk.is_virtual, rotating) {
        (true, _) => "virtual",
        (_, true) => "rotating",
        _ => "solid-state",
    };
    let found = format!("{} ({kind}): {chosen}", disk.name);
    if good.contains(&chosen.as_str()) {
        return Some(Rule("scheduler", WHY, NOTES).finds(Grade::Ok, found));
    }
    Some(match good.iter().find(|name| all.iter().any(|a| a == **name)) {
        Some(name) => Rule("scheduler", WHY, NOTES).finds(Grade::Warning, found).remedy(format!(
            "echo {name} | sudo tee /sys/block/{}/queue/scheduler   (and a udev rule to make it permanent)",
            disk.name
        )),
        // There is no choice.
        None => Rule("scheduler", WHY, NOTES)
            .finds(Grade::Ok, format!("{found}; the kernel offers no better one")),
    })
}

fn rotational(disk: &Disk) -> Option<CheckFinding> {
    const WHY: &str =
        "a rotating disk does about 100 to 250 random reads per second, an SSD a hundred times as many";
    let rotating = disk.rotational?;
    let model = disk.model.as_ref().map_or_else(String::new, |model| format!(" ({model})"));
    let (grade, what) = match (rotating, disk.is_virtual) {
        (true, true) => {
            (Grade::Ok, "virtual, and marked as rotating, which does not describe the disk behind it")
        }
        (true, false) => (Grade::Warning, "rotating"),
        (false, _) => (Grade::Ok, "not rotating"),
    };
    Some(Rule("rotational", WHY, NOTES).finds(grade, format!("{}{model}: {what}", disk.name)))
}

fn huge_pages(facts: &MachineFacts) -> Option<CheckFinding> {
    let set = facts.huge_pages.as_ref()?;
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let fix = |to: &str| format!("echo {to} | sudo tee {path}   (and at boot)");
    let source = facts.version_source.as_ref().map_or_else(String::new, |source| format!(" (from {source})"));
    Some(match facts.version {
        Some((major, minor)) if major >= 8 => {
            let why =
                "from 8.0 on, the memory allocator of mongod works per CPU and benefits from huge pages";
            let found = format!("{set}, for mongod {major}.{minor}{source}");
            match set.as_str() {
                "always" => Rule("huge-pages", why, TCMALLOC).finds(Grade::Ok, found),
                _ => Rule("huge-pages", why, TCMALLOC).finds(Grade::Warning, found).remedy(fix("always")),
            }
        }
        Some((major, minor)) => {
            let why =
                "up to 7.0, huge pages make mongod use more memory and wait while the kernel assembles them";
            let found = format!("{set}, for mongod {major}.{minor}{source}");
            match set.as_str() {
                "never" => Rule("huge-pages", why, HUGE_PAGES).finds(Grade::Ok, found),
                "madvise" => {
                    Rule("huge-pages", why, HUGE_PAGES).finds(Grade::Warning, found).remedy(fix("never"))
                }
                _ => Rule("huge-pages", why, HUGE_PAGES).finds(Grade::Problem, found).remedy(fix("never")),
            }
        }
        None => {
            let why = "from mongod 8.0 on it should be always, up to 7.0 never";
            let found = format!("{set}; the version of mongod is unknown");
            Rule("huge-pages", why, TCMALLOC)
                .finds(Grade::Warning, found)
                .remedy("mongosonar disk check --mongod-version X.Y")
        }
    })
}

fn huge_pages_details(facts: &MachineFacts) -> Vec<CheckFinding> {
    if facts.version.is_none_or(|(major, _)| major < 8) {
        return Vec::new();
    }
    let mut all = Vec::new();
    if let Some(defrag) = &facts.huge_pages_defrag {
        let why = "mongod should not wait while the kernel assembles huge pages";
        let good = defrag == "defer+madvise";
        let made = Rule("huge-pages-defrag", why, TCMALLOC)
            .finds(if good { Grade::Ok } else { Grade::Warning }, defrag.clone());
        all.push(if good {
            made
        } else {
            made.remedy("echo defer+madvise | sudo tee /sys/kernel/mm/transparent_hugepage/defrag")
        });
    }
    if let Some(count) = facts.max_ptes_none {
        let why = "above 0, the kernel fills huge pages with memory that was not requested";
        let made = Rule("huge-pages-max-ptes-none", why, TCMALLOC)
            .finds(if count == 0 { Grade::Ok } else { Grade::Warning }, count.to_string());
        all.push(if count == 0 {
            made
        } else {
            made.remedy("echo 0 | sudo tee /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none")
        });
    }
    all
}

fn swappiness(facts: &MachineFacts) -> Option<CheckFinding> {
    const WHY: &str = "mongod's cache, once swapped out, is read back one page at a time";
    let value = facts.swappiness?;
    Some(match (value, facts.swap_kib) {
        (0 | 1, _) => Rule("swappiness", WHY, NOTES).finds(Grade::Ok, value.to_string()),
        (_, Some(0)) => {
            Rule("swappiness", WHY, NOTES).finds(Grade::Ok, format!("{value}, and there is no swap"))
        }
        _ => Rule("swappiness", WHY, NOTES)
            .finds(Grade::Warning, value.to_string())
            .remedy("sudo sysctl vm.swappiness=1   (and in /etc/sysctl.d)"),
    })
}

fn numa(facts: &MachineFacts) -> Vec<CheckFinding> {
    const WHY: &str = "memory from only one node makes that node swap while others have free memory";
    let Some(nodes) = facts.numa_nodes.filter(|nodes| *nodes > 0) else { return Vec::new() };
    if nodes == 1 {
        return vec![Rule("numa", WHY, NOTES).finds(Grade::Ok, "one node")];
    }
    let mut all = Vec::new();
    if let Some(interleaved) = facts.interleaved {
        all.push(if interleaved {
            Rule("numa", WHY, NOTES)
                .finds(Grade::Ok, format!("{nodes} nodes, mongod's memory is interleaved"))
        } else {
            Rule("numa", WHY, NOTES)
                .finds(Grade::Warning, format!("{nodes} nodes, mongod's memory is not interleaved"))
                .remedy("numactl --interleave=all mongod … (in its unit: ExecStart)")
        });
    } else if facts.has_mongod {
        all.push(
            Rule("numa", WHY, NOTES)
                .finds(
                    Grade::Warning,
                    format!("{nodes} nodes; whether mongod's memory is interleaved is unknown"),
                )
                .remedy("start mongod with numactl --interleave=all"),
        );
    }
    if let Some(mode) = facts.zone_reclaim {
        let why = "the kernel drops cached pages on one node while others have free memory";
        let grade = if mode == 0 { Grade::Ok } else { Grade::Warning };
        let made = Rule("zone-reclaim", why, NOTES).finds(grade, format!("vm.zone_reclaim_mode is {mode}"));
        all.push(if mode == 0 { made } else { made.remedy("sudo sysctl vm.zone_reclaim_mode=0") });
    }
    all
}

/// Names in `/proc/PID/limits`, recommended minimum (`None`: unlimited), and the setting in a systemd unit.
const LIMITS: [(&str, Option<u64>, &str); 6] = [
    ("Max open files", Some(64_000), "LimitNOFILE=64000"),
    ("Max processes", Some(64_000), "LimitNPROC=64000"),
    ("Max file size", None, "LimitFSIZE=infinity"),
    ("Max cpu time", None, "LimitCPU=infinity"),
    ("Max address space", None, "LimitAS=infinity"),
    ("Max resident set", None, "LimitRSS=infinity"),
];

fn limits(facts: &MachineFacts) -> Vec<CheckFinding> {
    if !facts.has_mongod {
        return Vec::new();
    }
    const WHY: &str =
        "each connection needs descriptors and a thread; at a limit, mongod refuses clients or terminates";
    let mut all = Vec::new();
    let mut good = Vec::new();
    for (name, least, unit) in LIMITS {
        let Some((_, set)) = facts.limits.iter().find(|(known, _)| known == name) else { continue };
        let enough = match (set, least) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(set), Some(least)) => *set >= least,
        };
        if enough {
            good.push(name);
            continue;
        }
        let wanted = least.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
        let found = format!("{name} of mongod: {}; at least {wanted} is recommended", set.unwrap_or(0));
        let grade = if name == "Max open files" { Grade::Problem } else { Grade::Warning };
        all.push(
            Rule("limits", WHY, ULIMIT)
                .finds(grade, found)
                .remedy(format!("sudo systemctl edit mongod   ([Service] {unit}), then restart it")),
        );
    }
    if all.is_empty() && !good.is_empty() {
        all.push(
            Rule("limits", WHY, ULIMIT)
                .finds(Grade::Ok, format!("of mongod: {} are high enough", good.join(", "))),
        );
    }
    all
}

fn map_count(facts: &MachineFacts) -> Option<CheckFinding> {
    const WHY: &str = "each connection has its own stack, which needs two mappings; mongod warns below twice its maximum of connections";
    let count = facts.max_map_count.filter(|_| facts.has_mongod)?;
    let open = facts.limits.iter().find(|(name, _)| name == "Max open files").and_then(|(_, set)| *set);
    // mongod uses four fifths of its descriptors for connections.
    let connections = open.unwrap_or(64_000).saturating_mul(4) / 5;
    let least = connections.saturating_mul(2);
    let found = format!("vm.max_map_count is {count}; {least} for {}", plural(connections, "connection"));
    Some(if count >= least {
        Rule("max-map-count", WHY, ULIMIT).finds(Grade::Ok, found)
    } else {
        Rule("max-map-count", WHY, ULIMIT)
            .finds(Grade::Warning, found)
            .remedy(format!("sudo sysctl vm.max_map_count={least}   (and in /etc/sysctl.d)"))
    })
}

#[cfg(test)]
mod tests;
