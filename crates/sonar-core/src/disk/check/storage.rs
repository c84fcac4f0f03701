//! The rules about file systems, arrays and disks.

use super::facts::{
    CheckFinding, Disk, DiskArray, EXT4, FileSystem, Grade, MD, MachineFacts, NOTES, OWN, Rule, WT_FILES, XFS,
};
use crate::words::binary_size;

/// How to move data to another volume without losing a copy in the meantime.
const MIGRATION: &str = "move the data to a new volume with XFS and keep this one until that is done: in a replica set give \
                         one secondary at a time an empty dbPath there and let it sync from the others (initial sync); \
                         a standalone needs a tested backup, restored there";

/// What is known of a kind of file system, and how bad it is for the data of MongoDB. A kind of FUSE has the name of its
/// program after a dot.
fn judged(kind: &str) -> (Grade, &'static str, &'static str) {
    let problem = |why| (Grade::Problem, why, NOTES);
    let warning = |why| (Grade::Warning, why, NOTES);
    let remote = |why| (Grade::Warning, why, WT_FILES);
    match kind {
        "xfs" => (Grade::Ok, "XFS is what MongoDB recommends for WiredTiger's files", NOTES),
        "ext4" => warning(
            "ext4 can stall around checkpoints, when its journal waits for much dirty data; XFS is strongly recommended",
        ),
        "ext2" | "ext3" => warning("it allocates files block by block; XFS is strongly recommended"),
        "btrfs" | "bcachefs" => warning(
            "it writes each changed block to another place, which scatters files that are written at random; XFS is \
             strongly recommended",
        ),
        "zfs" => warning(
            "it writes each changed record to another place, and has a cache of its own beside WiredTiger's; XFS is \
             strongly recommended",
        ),
        "tmpfs" | "ramfs" => problem("the data is in memory and lost at the next start"),
        "overlay" | "aufs" | "fuse.fuse-overlayfs" => problem(
            "the data is in the writable layer of a container: slow, and lost with the container; use a volume",
        ),
        "vboxsf" | "9p" | "drvfs" | "fuse.vmhgfs-fuse" | "vmhgfs" | "vfat" | "exfat" | "cifs" | "smb3"
        | "smbfs" => problem(
            "this file system cannot fsync a folder or map files as MongoDB needs; it is not supported",
        ),
        "fuse.s3fs" | "fuse.gcsfuse" | "fuse.goofys" | "fuse.blobfuse2" | "fuse.sshfs" | "fuse.rclone" => {
            problem(
                "it keeps files elsewhere as a whole or without the order of writes that a database needs",
            )
        }
        "nfs" | "nfs4" => {
            remote("a network file system is slower and needs certain options; a local XFS is recommended")
        }
        "ceph" | "fuse.ceph" | "fuse.ceph-fuse" | "glusterfs" | "fuse.glusterfs" | "lustre" | "gpfs"
        | "beegfs" | "gfs2" | "ocfs2" | "orangefs" | "afs" => remote(
            "WiredTiger allows a file system of several machines if it behaves like a local one, but it is slower",
        ),
        "virtiofs" => warning(
            "a folder of the host, shared with this guest: each request goes through a process of the host; a virtual \
             disk with XFS is faster",
        ),
        kind if kind == "fuse" || kind == "fuseblk" || kind.starts_with("fuse.") => {
            warning("each request goes through a process; MongoDB is not tested on file systems of FUSE")
        }
        _ => warning("not a file system that MongoDB is tested on; XFS is strongly recommended"),
    }
}

pub(super) fn file_system(fs: &FileSystem) -> CheckFinding {
    let (grade, why, document) = judged(&fs.kind);
    let made = Rule("file-system", why, document).finds(grade, format!("{} at {}", fs.kind, fs.point));
    match fs.kind.as_str() {
        _ if grade == Grade::Ok => made,
        "overlay" | "aufs" | "fuse.fuse-overlayfs" => {
            made.remedy("docker run -v /data/of/host:/data/db … (or a persistent volume)")
        }
        _ => made.remedy(MIGRATION),
    }
}

/// Where readahead and scheduler of the data are set, if it is on no block device that can be seen; `None` for memory,
/// which has neither.
pub fn without_device(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "tmpfs" | "ramfs" => return None,
        "zfs" => {
            "ZFS reads ahead and orders requests itself (zfs_prefetch_disable, zfs_vdev_*); its disks: zpool status"
        }
        "overlay" | "aufs" | "fuse.fuse-overlayfs" => {
            "they are those of the disk below the container, on its host"
        }
        "virtiofs" | "9p" | "vboxsf" | "drvfs" | "fuse.vmhgfs-fuse" | "vmhgfs" => {
            "they are those of the host's disk"
        }
        kind if kind.starts_with("nfs") || matches!(kind, "cifs" | "smb3" | "smbfs") => {
            "they are those of the server"
        }
        "ceph" | "glusterfs" | "lustre" | "gpfs" | "beegfs" => {
            "they are those of the machines that keep the data"
        }
        kind if kind.starts_with("fuse") => "they are those of what its process keeps the data on",
        _ => "its block device cannot be seen",
    })
}

pub(super) fn network(fs: &FileSystem) -> Option<CheckFinding> {
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

pub(super) fn atime(fs: &FileSystem) -> Option<CheckFinding> {
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

pub(super) fn space(fs: &FileSystem) -> Option<CheckFinding> {
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

pub(super) fn array(array: &DiskArray) -> Vec<CheckFinding> {
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
pub(super) fn stripe(facts: &MachineFacts) -> Option<CheckFinding> {
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

pub(super) fn readahead(facts: &MachineFacts) -> Option<CheckFinding> {
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

pub(super) fn scheduler(disk: &Disk) -> Option<CheckFinding> {
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

pub(super) fn rotational(disk: &Disk) -> Option<CheckFinding> {
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
