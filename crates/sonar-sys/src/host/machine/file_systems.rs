//! Space of the file systems that are on this machine's own disks.

use std::path::PathBuf;

use sonar_core::machine::{FileSystemReading, MachineReading};

use super::super::Host;
use super::super::mounts::Mount;

/// The most file systems of a reading.
const MAX_FILE_SYSTEMS: usize = 64;
/// Readings after which the mounts are read again.
const REFRESH: u64 = 6;

/// Types whose space is that of this machine's disks. Asking a network file system could take for ever.
const LOCAL: [&str; 12] = [
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs", "nilfs2", "overlay",
];

/// The file systems to read.
#[derive(Debug, Default)]
pub(super) struct FileSystems {
    readings: u64,
    /// Where they are mounted, as people know it and as it can be reached from here.
    points: Vec<(Box<str>, PathBuf)>,
    left_out: u64,
}

impl FileSystems {
    /// Adds the space of all file systems to a reading.
    pub fn read(&mut self, host: &Host, reading: &mut MachineReading) {
        if self.readings.is_multiple_of(REFRESH) {
            self.find(host);
        }
        self.readings += 1;
        reading.left_out += self.left_out;
        for (point, path) in &self.points {
            let Ok(found) = rustix::fs::statvfs(path.as_path()) else { continue };
            let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
            reading.file_systems.push(FileSystemReading {
                point: point.clone(),
                size: bytes(found.f_blocks),
                free: bytes(found.f_bfree),
                available: bytes(found.f_bavail),
                inodes: (found.f_files > 0).then_some((found.f_files, found.f_ffree)),
            });
        }
    }

    /// Finds each file system once, at its shortest mount point.
    fn find(&mut self, host: &Host) {
        let Ok(mut mounts) = host.mounts("self") else { return };
        mounts.retain(is_own);
        mounts.sort_by_key(|mount| mount.point.as_os_str().len());
        let mut devices = Vec::new();
        self.points.clear();
        self.left_out = 0;
        for mount in mounts {
            if devices.contains(&mount.device) {
                continue;
            }
            devices.push(mount.device);
            if self.points.len() >= MAX_FILE_SYSTEMS {
                self.left_out += 1;
                continue;
            }
            let point = mount.point.to_string_lossy();
            self.points.push((point.as_ref().into(), host.path(&point)));
        }
    }
}

/// Whether it can fill up a disk of this machine.
fn is_own(mount: &Mount) -> bool {
    // Layers of containers share the space of the file system below them, but a container sees only its own root.
    let is_container = mount.kind == "overlay" && mount.point.as_os_str() != "/";
    LOCAL.contains(&mount.kind.as_str()) && !mount.has("ro") && !is_container
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_file_systems_that_can_fill_up_a_disk_are_read() {
        let mount = |kind: &str, point: &str, options: &str| Mount {
            device: (8, 1),
            root: "/".into(),
            point: point.into(),
            kind: kind.to_owned(),
            source: "/dev/sda1".to_owned(),
            options: options.split(',').map(str::to_owned).collect(),
        };
        assert!(is_own(&mount("xfs", "/data", "rw,noatime")) && is_own(&mount("overlay", "/", "rw")));
        for (kind, point, options) in [
            ("nfs4", "/data", "rw"),
            ("fuse.sshfs", "/data", "rw"),
            ("tmpfs", "/run", "rw"),
            ("ext4", "/snap/core", "ro"),
            ("overlay", "/var/lib/docker/overlay2/x/merged", "rw"),
        ] {
            assert!(!is_own(&mount(kind, point, options)), "{kind}");
        }
    }
}
