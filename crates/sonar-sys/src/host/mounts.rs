//! The file system of a path: `/proc/PID/mountinfo`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// One mount (proc_pid_mountinfo(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Number of the device as in `stat`: major, minor. Major 0 if there is no single device.
    pub device: (u32, u32),
    /// The folder of the file system that is mounted; not `/` for a part of it.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Type of the file system, for example `xfs`.
    pub kind: String,
    /// What is mounted, for example `/dev/sda1`.
    pub source: String,
    /// Options of this mount and of the file system, each one once.
    pub options: Vec<String>,
}

impl Mount {
    /// Whether the option is set.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|o| o == option)
    }

    /// Value of an option `name=value`.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }
}

/// The most bytes to read of a table; machines with very many containers have some megabytes.
const MOST_BYTES: u64 = 16 << 20;

/// Decodes `\040` and the like, as the kernel writes blanks.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 4).filter(|d| d.iter().all(|c| (b'0'..=b'7').contains(c)));
        match (bytes[at], digits) {
            (b'\\', Some(digits)) => {
                out.push(digits.iter().fold(0u8, |n, c| n.wrapping_mul(8).wrapping_add(c - b'0')));
                at += 4;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn parse(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(2);
    let (major, minor) = before.next()?.split_once(':')?;
    let root = before.next()?;
    let point = before.next()?;
    let own = before.next()?;
    let mut after = after.split(' ');
    let (kind, source) = (after.next()?, after.next()?);
    let mut options: Vec<String> = Vec::new();
    for option in own.split(',').chain(after.next().unwrap_or("").split(',')).filter(|o| !o.is_empty()) {
        if !options.iter().any(|o| o == option) {
            options.push(option.to_owned());
        }
    }
    Some(Mount {
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: PathBuf::from(unescape(root)),
        point: PathBuf::from(unescape(point)),
        kind: kind.to_owned(),
        source: unescape(source),
        options,
    })
}

/// Every mount that the process `pid` (or `self`) sees, in order.
///
/// # Errors
/// The table cannot be read.
pub(super) fn all(proc_root: &Path, pid: &str) -> io::Result<Vec<Mount>> {
    let mut text = Vec::new();
    File::open(proc_root.join(pid).join("mountinfo"))?.take(MOST_BYTES).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).lines().filter_map(parse).collect())
}

/// The mount of an absolute path: the longest one that leads to it, and of those the last, which covers the others.
pub fn of<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,errors=remount-ro
30 22 0:26 / /proc rw,nosuid - proc proc rw
41 22 253:3 / /var/lib/mongo\\040db rw,noatime shared:20 master:2 - xfs /dev/mapper/vg-data rw,attr2,sunit=128,swidth=256,noquota
42 22 8:17 / /var/lib rw - ext4 /dev/sdb1 rw
43 22 8:33 / /var/lib rw - ext4 /dev/sdc1 rw
broken line
";

    #[test]
    fn the_mount_of_a_path_is_the_one_that_covers_it() {
        let mounts: Vec<Mount> = TABLE.lines().filter_map(parse).collect();
        assert_eq!(mounts.len(), 5);
        let of = |path| of(&mounts, Path::new(path)).unwrap();
        let data = of("/var/lib/mongo db/journal");
        assert_eq!(
            (data.device, data.kind.as_str(), data.source.as_str()),
            ((253, 3), "xfs", "/dev/mapper/vg-data")
        );
        assert!(data.has("noatime") && !data.has("relatime"));
        assert_eq!((data.value("sunit"), data.value("swid")), (Some("128"), None));
        assert_eq!(of("/var/lib/mongodb").device, (8, 33));
        assert_eq!(of("/srv").device, (8, 2));
    }

    #[test]
    fn escapes_and_broken_escapes_are_read() {
        assert_eq!(unescape("a\\040b\\134c\\"), "a b\\c\\");
        assert_eq!(unescape("\\04"), "\\04");
        assert_eq!(unescape("\\999"), "\\999");
    }

    #[test]
    fn this_machine_has_a_root() {
        let mounts = all(Path::new("/proc"), "self").unwrap();
        assert!(of(&mounts, Path::new("/")).is_some());
        assert!(all(Path::new("/nonexistent"), "self").is_err());
    }
}
