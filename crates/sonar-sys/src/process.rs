//! Processes by name, and what `/proc` says about each: arguments, limits, memory policy.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::devices::small;

/// Most bytes of a file of `/proc` that are read.
const MOST_BYTES: u64 = 1 << 20;

/// A running process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its short name (`comm`).
    pub name: String,
    /// Its arguments, its own name first; empty where they may not be read.
    pub arguments: Vec<String>,
    folder: PathBuf,
}

/// Processes with one of these short names, the lowest number first.
pub fn named(proc_root: &Path, names: &[&str]) -> Vec<Process> {
    let entries = fs::read_dir(proc_root).into_iter().flatten().flatten();
    let mut found: Vec<Process> = entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let folder = entry.path();
            let name = small(&folder.join("comm"))?;
            names.contains(&name.trim()).then(|| {
                let line = small(&folder.join("cmdline")).unwrap_or_default();
                let arguments = line.split('\0').filter(|word| !word.is_empty()).map(str::to_owned).collect();
                Process { pid, name: name.trim().to_owned(), arguments, folder }
            })
        })
        .collect();
    found.sort_by_key(|process| process.pid);
    found
}

impl Process {
    /// Value of an option, given as `--name value` or `--name=value`; one of several names.
    pub fn option(&self, names: &[&str]) -> Option<&str> {
        self.arguments.iter().enumerate().find_map(|(at, word)| {
            names.iter().find_map(|name| {
                let rest = word.strip_prefix(name)?;
                match rest.strip_prefix('=') {
                    Some(value) => Some(value),
                    None if rest.is_empty() => self.arguments.get(at + 1).map(String::as_str),
                    None => None,
                }
            })
        })
    }

    /// Its open files by number, with the path as the process sees it, or what else the kernel calls it
    /// (`socket:[5]`); those that may not be seen are left out.
    pub fn open_files(&self) -> Vec<(u32, PathBuf)> {
        let entries = fs::read_dir(self.folder.join("fd")).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries
            .filter_map(|entry| {
                Some((entry.file_name().to_str()?.parse().ok()?, fs::read_link(entry.path()).ok()?))
            })
            .collect();
        files.sort();
        files
    }

    /// Soft limits by name, as `/proc/PID/limits` has them; `None` is unlimited. An error of reading gives
    /// `None` for all.
    pub fn limits(&self) -> Option<Vec<(String, Option<u64>)>> {
        let text = small(&self.folder.join("limits"))?;
        // The columns are 26, 21, 21 and 10 wide: fs/proc/base.c.
        let limits = text.lines().skip(1).filter_map(|line| {
            let (name, rest) = line.split_at_checked(26)?;
            let soft = match rest.split_whitespace().next()? {
                "unlimited" => None,
                number => Some(number.parse().ok()?),
            };
            Some((name.trim().to_owned(), soft))
        });
        Some(limits.collect())
    }

    /// Whether its memory is spread over all NUMA nodes, by the policy of its mappings in
    /// `/proc/PID/numa_maps`; `None` where that may not be read.
    pub fn is_interleaved(&self) -> Option<bool> {
        let mut text = Vec::new();
        File::open(self.folder.join("numa_maps")).ok()?.take(MOST_BYTES).read_to_end(&mut text).ok()?;
        let text = String::from_utf8_lossy(&text);
        let mut policies = text.lines().filter_map(|line| line.split(' ').nth(1)).peekable();
        policies.peek()?;
        Some(policies.any(|policy| policy.starts_with("interleave")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max processes             95143                95143                processes 
Max open files            1024                 1048576              files     
broken
";

    #[test]
    fn a_process_is_found_with_its_arguments_and_limits() {
        let root = std::env::temp_dir().join(format!("sonar-sys-process-{}", std::process::id()));
        for (pid, comm, line) in [
            ("17", "mongod\n", "/usr/bin/mongod\0--dbpath=/data\0--port\x0027017\0"),
            ("18", "bash\n", "bash\0"),
            ("x", "mongod\n", ""),
        ] {
            fs::create_dir_all(root.join(pid)).unwrap();
            fs::write(root.join(pid).join("comm"), comm).unwrap();
            fs::write(root.join(pid).join("cmdline"), line).unwrap();
        }
        fs::write(root.join("17/limits"), LIMITS).unwrap();
        let found = named(&root, &["mongod"]);
        assert_eq!(found.iter().map(|p| p.pid).collect::<Vec<_>>(), [17]);
        let process = &found[0];
        assert_eq!(process.option(&["--dbpath"]), Some("/data"));
        assert_eq!((process.option(&["-p", "--port"]), process.option(&["--db"])), (Some("27017"), None));
        let limits = process.limits().unwrap();
        assert_eq!(limits.len(), 3);
        assert_eq!(
            (limits[0].clone(), limits[2].clone()),
            (("Max cpu time".into(), None), ("Max open files".into(), Some(1_024)))
        );
        assert_eq!(process.is_interleaved(), None);
        fs::write(root.join("17/numa_maps"), "00400000 interleave:0-1 file=/x\n").unwrap();
        assert_eq!(process.is_interleaved(), Some(true));
        fs::write(root.join("17/numa_maps"), "00400000 default file=/x\n").unwrap();
        assert_eq!(process.is_interleaved(), Some(false));
        fs::remove_dir_all(&root).unwrap();
    }
}
