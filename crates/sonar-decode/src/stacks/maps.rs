//! Reads `/proc/PID/maps`.

use std::ops::Range;

/// The most mappings of a process that are read.
const MAX_MAPPINGS: usize = 100_000;

/// A part of a file, or other memory, that a process may execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses.
    pub range: Range<u64>,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Number of the file's device, as the kernel writes it, and of its inode; inode 0 is no file.
    pub inode: (String, u64),
    /// The path as the process sees it; `[vdso]` and the like, or nothing, without a file. The kernel appends
    /// ` (deleted)`.
    pub path: String,
}

impl Mapping {
    /// The last part of the path, without ` (deleted)`.
    pub fn file_name(&self) -> &str {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        path.rsplit('/').next().unwrap_or(path)
    }
}

/// The mappings that may be executed, by address. Lines that cannot be read are left out.
pub fn executable(maps: &str) -> Vec<Mapping> {
    maps.lines().filter_map(mapping).take(MAX_MAPPINGS).collect()
}

fn mapping(line: &str) -> Option<Mapping> {
    // address permissions offset device inode path; the path may contain anything but a line feed.
    let mut rest = line;
    let mut next = || {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after;
        word
    };
    let (start, end) = next().split_once('-')?;
    let permissions = next();
    let (offset, device, inode) = (next(), next(), next());
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let range = hex(start)?..hex(end)?;
    if permissions.as_bytes().get(2) != Some(&b'x') || range.is_empty() {
        return None;
    }
    Some(Mapping {
        range,
        offset: hex(offset)?,
        inode: (device.to_owned(), inode.parse().ok()?),
        path: rest.trim_start().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_mappings_are_read_with_any_path() {
        let maps = "\
55d8a0a00000-55d8a0a01000 r--p 00000000 fe:01 131 /usr/bin/mongod
55d8a0a01000-55d8a0a05000 r-xp 00001000 fe:01 131                        /opt/a b/mongod (deleted)
7ffd3b5f0000-7ffd3b5f2000 r-xp 00000000 00:00 0                          [vdso]
7f0000000000-7f0000001000 rwxp 00000000 00:00 0 
garbage
5000-4000 r-xp 00000000 00:00 0
";
        let found = executable(maps);
        let names: Vec<_> = found.iter().map(|map| (map.file_name(), map.range.start, map.offset)).collect();
        assert_eq!(
            names,
            [
                ("mongod", 0x55d8_a0a0_1000, 0x1000),
                ("[vdso]", 0x7ffd_3b5f_0000, 0),
                ("", 0x7f00_0000_0000, 0)
            ]
        );
        assert_eq!(found[0].inode, ("fe:01".to_owned(), 131));
    }
}
