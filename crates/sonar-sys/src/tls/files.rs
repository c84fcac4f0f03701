//! The files that a process executes.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::host::{maps, regular};

/// The most files of a process, and the most bytes of their paths: it maps what it likes.
const MAX_FILES: usize = 1_024;
const MAX_PATH_BYTES: usize = 256 << 10;

/// A file that is mapped into a process to be executed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MappedFile {
    /// Its path, as the process sees it.
    pub path: String,
    /// A path by which this process can open it, even if it was deleted. The process may map or rename another file to it
    /// at any time.
    reachable: PathBuf,
}

/// The files that a process has mapped to execute them, each once.
///
/// # Errors
/// The process has ended, or belongs to another user.
pub fn executed_files(process: u32) -> io::Result<Vec<MappedFile>> {
    files(process, maps::lines(process)?)
}

/// The files of these mappings.
fn files(process: u32, maps: impl Iterator<Item = io::Result<String>>) -> io::Result<Vec<MappedFile>> {
    let mut files: Vec<MappedFile> = Vec::new();
    let mut bytes = 0;
    for line in maps {
        let line = line?;
        // address permissions offset device inode path
        let mut fields = line.split_ascii_whitespace();
        let (Some(range), Some(permissions)) = (fields.next(), fields.next()) else { continue };
        let Some(path) = line.find('/').map(|at| &line[at..]) else { continue };
        if !permissions.contains('x') || files.iter().any(|known| known.path == path) {
            continue;
        }
        bytes += path.len();
        if files.len() >= MAX_FILES || bytes > MAX_PATH_BYTES {
            break;
        }
        let inode = fields.nth(2).and_then(|inode| inode.parse().ok());
        files.push(mapped_file(process, path, range, inode));
    }
    Ok(files)
}

/// A file that is mapped at `range`. If it cannot be reached, opening it tells why.
fn mapped_file(process: u32, path: &str, range: &str, inode: Option<u64>) -> MappedFile {
    // Leads to the file itself, whatever has become of its name, but takes `CAP_CHECKPOINT_RESTORE`.
    let by_range = PathBuf::from(format!("/proc/{process}/map_files/{range}"));
    let by_name = PathBuf::from(format!("/proc/{process}/root{path}"));
    let is_named = || std::fs::metadata(&by_name).is_ok_and(|found| Some(found.ino()) == inode);
    let reachable = if std::fs::metadata(&by_range).is_err() && is_named() { by_name } else { by_range };
    MappedFile { path: path.to_owned(), reachable }
}

impl MappedFile {
    /// Opens it. What is decided about it must be decided by the open file: its process chooses what its path leads to.
    ///
    /// # Errors
    /// Its process has ended, a privilege is missing, or it is not a regular file.
    pub fn open(&self) -> io::Result<File> {
        regular::open(&self.reachable)
    }

    /// Its name without folders.
    pub fn name(&self) -> &str {
        file_name(&self.path)
    }
}

/// The name of a mapped file without folders, by its path.
pub fn file_name(path: &str) -> &str {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_process_with_many_files_some_are_looked_at() {
        let of_paths = |length: usize| {
            let path = "x".repeat(length);
            let line = move |number: u32| {
                Ok(format!("{number:x}000-{number:x}fff r-xp 0 fe:01 {number} /{number:04}{path}"))
            };
            files(0, (0..5_000).map(line)).unwrap()
        };
        assert_eq!(of_paths(10).len(), MAX_FILES);
        let long = of_paths(4_000);
        assert!(!long.is_empty() && long.iter().map(|file| file.path.len()).sum::<usize>() <= MAX_PATH_BYTES);
        let own = executed_files(std::process::id()).unwrap();
        let program = std::env::current_exe().unwrap();
        assert!(own.iter().any(|file| file.path == program.to_str().unwrap()), "{own:?}");
    }
}
