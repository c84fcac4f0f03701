//! Paths in the mount namespaces of processes of this host.

use std::fs;
use std::path::{Path, PathBuf};

use super::maps;
use crate::ebpf::FileKey;

/// A path in the mount namespace of a process, as a path from here.
pub fn inside(process: u32, path: &Path) -> PathBuf {
    Path::new(&format!("/proc/{process}/root")).join(path.strip_prefix("/").unwrap_or(path))
}

/// Where the paths of a process begin, as seen from here: `/` if it has the same root folder and mount namespace as
/// this process, so that its files can be found after it has ended. Also `/` for a process that has ended already.
pub fn root(process: u32) -> PathBuf {
    let of = |process: &str, what: &str| fs::read_link(format!("/proc/{process}/{what}")).ok();
    let pid = process.to_string();
    let differs = |what| of(&pid, what).is_some_and(|there| Some(there) != of("self", what));
    if differs("ns/mnt") || differs("root") { inside(process, Path::new("/")) } else { PathBuf::from("/") }
}

/// The path of a file that is mapped into the memory of a process.
pub fn mapped_file(process: u32, key: FileKey) -> Option<PathBuf> {
    // address permissions offset major:minor inode path
    maps::lines(process).ok()?.map_while(Result::ok).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(3);
        let (major, minor) = fields.next()?.split_once(':')?;
        let inode: u64 = fields.next()?.parse().ok()?;
        let (major, minor) = (u64::from_str_radix(major, 16).ok()?, u64::from_str_radix(minor, 16).ok()?);
        let path = (inode == key.inode && major << 20 | minor == key.device).then(|| line.find('/'))??;
        Some(PathBuf::from(&line[path..]))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn our_own_program_is_mapped_into_us_and_our_root_is_the_root() {
        let own = std::process::id();
        let path = std::env::current_exe().unwrap();
        let found = fs::metadata(&path).unwrap();
        let key = FileKey { inode: found.ino(), device: FileKey::device_of_stat(found.dev()), generation: 0 };
        // On file systems with other device numbers than the kernel shows there is nothing to compare.
        assert!(mapped_file(own, key).is_none_or(|mapped| mapped == path));
        assert_eq!(mapped_file(own, FileKey { inode: 0, ..key }), None);
        assert_eq!(root(own), Path::new("/"));
        assert!(inside(own, Path::new("/proc")).is_dir());
    }
}
