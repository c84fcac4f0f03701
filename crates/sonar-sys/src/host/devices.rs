//! Block devices: their kind, members, queue settings and counters.
//!
//! Everything is read below a folder that stands for `/sys` or `/proc`, so trees of other machines work too. A tree
//! is not trusted: files are read up to a limit, names that lead elsewhere are left out, and members of members are
//! followed up to a limit.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use sonar_core::disk::DeviceCounters;
use sonar_core::disk::DiskCounters;

use super::text::small;

/// The most levels of devices that consist of devices.
const MOST_LEVELS: usize = 16;

/// A name that is one component of a path and nothing else.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains('/')
}

/// A block device or a partition of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name in `/sys`, for example `sda1`, `nvme0n1`, `dm-3`, `md0`.
    pub name: String,
    /// Major and minor number.
    pub number: (u32, u32),
    /// The disk that it is a partition of, if it is one.
    pub partition_of: Option<String>,
    /// The devices that it consists of.
    pub members: Vec<String>,
    /// 512-byte sectors.
    pub sectors: Option<u64>,
    /// Its kind.
    pub kind: DeviceKind,
}

/// The kind of a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A disk, or what the kernel considers one.
    Disk {
        /// The name that the device gives itself.
        model: Option<String>,
    },
    /// A partition.
    Partition,
    /// Device mapper: LVM, multipath, encryption.
    Mapper {
        /// Its name in `/dev/mapper`.
        name: String,
        /// `LVM-…`, `CRYPT-…`, `mpath-…` and the like.
        uuid: String,
    },
    /// Software RAID.
    Md {
        /// `raid0`, `raid5`, `raid10`, `linear` …
        level: String,
        /// Bytes of a chunk; 0 if the level has none.
        chunk_bytes: u64,
        /// Disks that it should have.
        disks: Option<u32>,
        /// Disks that are missing.
        degraded: Option<u32>,
        /// `idle`, `resync`, `recover`, `check` …
        action: Option<String>,
    },
    /// A file used as a device.
    Loop {
        /// The file.
        backing: Option<String>,
    },
}

/// Settings of the queue of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceQueue {
    /// The active scheduler, and all available ones.
    pub scheduler: Option<(String, Vec<String>)>,
    /// Whether the kernel considers it a rotating disk.
    pub rotational: Option<bool>,
    /// Readahead in KiB.
    pub read_ahead_kib: Option<u64>,
    /// Requests that the queue holds.
    pub requests: Option<u64>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
    /// Bytes of a logical and of a physical block.
    pub block_bytes: Option<(u64, u64)>,
    /// The smallest and the best size of a request in bytes, for a RAID chunk and stripe; 0 if there is none.
    pub io_bytes: Option<(u64, u64)>,
}

/// The block devices of a machine.
#[derive(Debug, Default)]
pub struct Devices {
    devices: BTreeMap<String, Device>,
    block: PathBuf,
}

impl Devices {
    /// Reads the devices below `sys_root`, which is `/sys` or a copy of it.
    ///
    /// # Errors
    /// There is no list of devices.
    pub(super) fn read(sys_root: &Path) -> io::Result<Self> {
        let block = sys_root.join("block");
        let mut devices = BTreeMap::new();
        for entry in fs::read_dir(&block)?.flatten().take(65_536) {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let dir = block.join(&name);
            let Some(device) = read_device(&dir, &name, None) else { continue };
            for part in fs::read_dir(&dir).into_iter().flatten().flatten().take(1_024) {
                let Ok(part_name) = part.file_name().into_string() else { continue };
                let part_dir = dir.join(&part_name);
                if part_dir.join("partition").exists() {
                    devices.extend(read_device(&part_dir, &part_name, Some(&name)).map(|d| (part_name, d)));
                }
            }
            devices.insert(name, device);
        }
        Ok(Self { devices, block })
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Device> {
        self.devices.values()
    }

    /// The device of this name; also its name in `/dev/mapper` or with `/dev/` before it.
    pub fn named(&self, name: &str) -> Option<&Device> {
        let short = name.strip_prefix("/dev/").unwrap_or(name);
        self.devices.get(short).or_else(|| {
            let mapped = short.strip_prefix("mapper/").unwrap_or(short);
            self.iter().find(|d| matches!(&d.kind, DeviceKind::Mapper { name, .. } if name == mapped))
        })
    }

    /// The device with this number.
    pub fn numbered(&self, major: u32, minor: u32) -> Option<&Device> {
        self.iter().find(|device| device.number == (major, minor))
    }

    /// The device of a mount: by its number, or by its source if the file system spreads over devices (btrfs).
    pub fn of_mount(&self, mount: &super::mounts::Mount) -> Option<&Device> {
        let (major, minor) = mount.device;
        self.numbered(major, minor).or_else(|| {
            (major == 0 && mount.source.starts_with("/dev/")).then(|| self.named(&mount.source))?
        })
    }

    /// The devices that `device` consists of, level by level, each once and without itself. A partition consists of
    /// its disk.
    pub fn below<'a>(&'a self, device: &'a Device) -> Vec<&'a Device> {
        let mut found: Vec<&Device> = Vec::new();
        let mut level = vec![device];
        for _ in 0..MOST_LEVELS {
            let mut next = Vec::new();
            for device in level {
                let names = device.members.iter().chain(&device.partition_of);
                for below in names.filter_map(|name| self.devices.get(name)) {
                    if !found.iter().any(|seen| seen.name == below.name) && below.name != device.name {
                        found.push(below);
                        next.push(below);
                    }
                }
            }
            if next.is_empty() {
                break;
            }
            level = next;
        }
        found
    }

    /// The disks at the bottom; the device itself if it is one.
    pub fn disks<'a>(&'a self, device: &'a Device) -> Vec<&'a Device> {
        let all = std::iter::once(device).chain(self.below(device));
        all.filter(|d| d.members.is_empty() && d.partition_of.is_none()).collect()
    }

    /// The disk whose queue serves `device`: itself, or the disk of the partition.
    pub fn whole<'a>(&'a self, device: &'a Device) -> &'a Device {
        device.partition_of.as_ref().and_then(|name| self.devices.get(name)).unwrap_or(device)
    }

    /// The settings of a queue.
    pub fn queue(&self, device: &Device) -> DeviceQueue {
        let dir = self.block.join(&self.whole(device).name).join("queue");
        let text = |name: &str| small(&dir.join(name));
        let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
        DeviceQueue {
            scheduler: text("scheduler").map(|text| {
                let all: Vec<String> =
                    text.split_whitespace().map(|s| s.trim_matches(['[', ']']).to_owned()).collect();
                let chosen = text.split_whitespace().find(|s| s.starts_with('['));
                (chosen.unwrap_or(&text).trim_matches(['[', ']']).to_owned(), all)
            }),
            rotational: number("rotational").map(|n| n != 0),
            read_ahead_kib: number("read_ahead_kb"),
            requests: number("nr_requests"),
            write_cache: text("write_cache"),
            block_bytes: number("logical_block_size").zip(number("physical_block_size")),
            io_bytes: number("minimum_io_size").zip(number("optimal_io_size")),
        }
    }
}

fn read_device(dir: &Path, name: &str, partition_of: Option<&str>) -> Option<Device> {
    let number = small(&dir.join("dev"))?;
    let (major, minor) = number.trim().split_once(':')?;
    let mut members: Vec<String> = fs::read_dir(dir.join("slaves"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_plain(name))
        .take(4_096)
        .collect();
    members.sort_unstable();
    let text = |file: &str| small(&dir.join(file)).map(|t| t.trim().to_owned()).filter(|t| !t.is_empty());
    let kind = if partition_of.is_some() {
        DeviceKind::Partition
    } else if let Some(mapped) = text("dm/name") {
        DeviceKind::Mapper { name: mapped, uuid: text("dm/uuid").unwrap_or_default() }
    } else if let Some(level) = text("md/level") {
        DeviceKind::Md {
            level,
            chunk_bytes: text("md/chunk_size").and_then(|n| n.parse().ok()).unwrap_or(0),
            disks: text("md/raid_disks").and_then(|n| n.split(' ').next()?.parse().ok()),
            degraded: text("md/degraded").and_then(|n| n.parse().ok()),
            action: text("md/sync_action"),
        }
    } else if name.starts_with("loop") {
        DeviceKind::Loop { backing: text("loop/backing_file") }
    } else {
        DeviceKind::Disk { model: text("device/model") }
    };
    Some(Device {
        name: name.to_owned(),
        number: (major.parse().ok()?, minor.parse().ok()?),
        partition_of: partition_of.map(str::to_owned),
        members,
        sectors: text("size").and_then(|n| n.parse().ok()),
        kind,
    })
}

/// The counters of every device, in the kernel's order, from `/proc/diskstats`.
///
/// # Errors
/// The file cannot be read.
pub(super) fn counters(proc_root: &Path) -> io::Result<Vec<DeviceCounters>> {
    let mut text = Vec::new();
    File::open(proc_root.join("diskstats"))?.take(16 << 20).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter_map(DiskCounters::parse);
    Ok(lines
        .map(|(number, name, counters)| DeviceCounters { number, name: name.to_owned(), counters })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::TempTree;

    fn names(devices: &[&Device]) -> Vec<String> {
        devices.iter().map(|device| device.name.clone()).collect()
    }

    #[test]
    fn a_volume_is_followed_down_to_its_disks() {
        let tree = TempTree::new(
            "stack",
            &[
                ("block/sda/dev", "8:0\n"),
                ("block/sda/size", "2048\n"),
                ("block/sda/device/model", "ROTOR 4000  \n"),
                ("block/sda/sda1/dev", "8:1\n"),
                ("block/sda/sda1/partition", "1\n"),
                ("block/sda/queue/scheduler", "none [mq-deadline] kyber\n"),
                ("block/sda/queue/rotational", "1\n"),
                ("block/sda/queue/read_ahead_kb", "128\n"),
                ("block/sdb/dev", "8:16\n"),
                ("block/sdb/queue/scheduler", "none\n"),
                ("block/md0/dev", "9:0\n"),
                ("block/md0/md/level", "raid0\n"),
                ("block/md0/md/chunk_size", "524288\n"),
                ("block/md0/md/raid_disks", "2\n"),
                ("block/md0/slaves/sda1", ""),
                ("block/md0/slaves/sdb", ""),
                ("block/dm-0/dev", "253:0\n"),
                ("block/dm-0/dm/name", "vg-data\n"),
                ("block/dm-0/dm/uuid", "LVM-abc\n"),
                ("block/dm-0/slaves/md0", ""),
                // A tree may be broken: a device may contain itself, or have no number.
                ("block/dm-1/dev", "253:1\n"),
                ("block/dm-1/slaves/dm-1", ""),
                ("block/bad/dev", "x"),
            ],
        );
        let devices = Devices::read(&tree.0).unwrap();
        let volume = devices.numbered(253, 0).unwrap();
        assert_eq!(names(&devices.below(volume)), ["md0", "sda1", "sdb", "sda"]);
        assert_eq!(names(&devices.disks(volume)), ["sdb", "sda"]);
        assert_eq!(devices.named("/dev/mapper/vg-data"), Some(volume));
        let part = devices.named("sda1").unwrap();
        assert_eq!((part.number, devices.whole(part).name.as_str()), ((8, 1), "sda"));
        let queue = devices.queue(part);
        assert_eq!(queue.scheduler.unwrap().0, "mq-deadline");
        assert_eq!((queue.rotational, queue.read_ahead_kib), (Some(true), Some(128)));
        assert_eq!(devices.queue(devices.named("sdb").unwrap()).scheduler.unwrap().0, "none");
        assert_eq!(devices.named("sda").unwrap().kind, DeviceKind::Disk { model: Some("ROTOR 4000".into()) });
        let looped = devices.named("dm-1").unwrap();
        assert!(devices.below(looped).is_empty());
        assert!(devices.named("bad").is_none() && Devices::read(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn broken_tables_have_no_counters() {
        let tree = TempTree::new("tables", &[("diskstats", "no\n")]);
        assert!(counters(&tree.0).unwrap().is_empty());
    }
}
