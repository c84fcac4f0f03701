//! Whose accesses are traced, and the paths of their files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use sonar_sys::io::FileKey;

/// The processes that were asked for, or each mongod of this machine.
pub fn wanted(asked: &[u32]) -> Result<Vec<u32>> {
    for process in asked {
        if !Path::new(&format!("/proc/{process}")).exists() {
            bail!("there is no process {process}");
        }
    }
    let processes = if asked.is_empty() { servers(Path::new("/proc"))? } else { asked.to_vec() };
    if processes.is_empty() {
        bail!("no mongod runs here: name a process with --pid");
    }
    Ok(processes)
}

/// The folder whose files were asked for, as the kernel calls it.
pub fn folder(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).with_context(|| format!("cannot look into {}", path.display()))
}

/// What Ctrl-C or SIGTERM sets.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot listen to signals")?;
    }
    Ok(stop)
}

/// Whether none of them is there any more.
pub fn gone(processes: &[u32]) -> bool {
    processes.iter().all(|process| !Path::new(&format!("/proc/{process}")).exists())
}

/// Ids of the processes called mongod.
fn servers(proc_root: &Path) -> Result<Vec<u32>> {
    let entries = fs::read_dir(proc_root).with_context(|| format!("cannot read {}", proc_root.display()))?;
    let mut found: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|process: &u32| {
            let name = fs::read_to_string(proc_root.join(process.to_string()).join("comm"));
            name.is_ok_and(|name| name.trim_end() == "mongod")
        })
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// The path of a file that a process uses, in the process's own mount namespace; its name alone where no
/// more can be found out.
pub fn path_of(key: FileKey, process: u32, fd: i32, name: &str) -> PathBuf {
    // The number may have been closed, or given to another file, since.
    let is_it = |link: &PathBuf| {
        let last = link.file_name().map(|last| last.to_string_lossy());
        name.is_empty() || last.is_some_and(|last| last.trim_end_matches(" (deleted)") == name)
    };
    let open = (fd >= 0).then(|| fs::read_link(format!("/proc/{process}/fd/{fd}")).ok()).flatten();
    open.filter(is_it)
        .or_else(|| mapped(key, process))
        .or_else(|| among_open(key, process))
        .unwrap_or_else(|| PathBuf::from(name))
}

/// The path of a file that is mapped into the process.
fn mapped(key: FileKey, process: u32) -> Option<PathBuf> {
    // address permissions offset major:minor inode path
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    maps.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(3);
        let (major, minor) = fields.next()?.split_once(':')?;
        let inode: u64 = fields.next()?.parse().ok()?;
        let (major, minor) = (u64::from_str_radix(major, 16).ok()?, u64::from_str_radix(minor, 16).ok()?);
        // The kernel's own encoding of a device: 20 bits of minor number.
        let path = (inode == key.inode && major << 20 | minor == key.device).then(|| line.find('/'))??;
        Some(PathBuf::from(&line[path..]))
    })
}

/// The path of a file that the process has open, whose number is not known.
fn among_open(key: FileKey, process: u32) -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let open = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    open.flatten().take(4_096).find_map(|entry| {
        let found = fs::metadata(entry.path()).ok()?;
        // Device numbers of overlays and subvolumes differ from the kernel's own, so the inode decides.
        (found.ino() == key.inode && found.is_file()).then(|| fs::read_link(entry.path()).ok())?
    })
}
