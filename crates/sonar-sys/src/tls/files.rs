//! The files that a process executes.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The most mappings of a process to look at.
const MAX_MAPPINGS: usize = 65_536;

/// A file that is mapped into a process to be executed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MappedFile {
    /// Its path, as the process sees it.
    pub path: String,
    /// A path by which this process can open it, even if it was deleted.
    pub reachable: PathBuf,
    /// Device and inode.
    pub id: (u64, u64),
}

/// The files that a process has mapped to execute them, each once.
///
/// # Errors
/// The process has ended, or belongs to another user.
pub fn executed_files(process: u32) -> io::Result<Vec<MappedFile>> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps"))?;
    let mut seen = BTreeSet::new();
    let mut files = Vec::new();
    for line in maps.lines().take(MAX_MAPPINGS) {
        // address permissions offset device inode path
        let mut fields = line.split_ascii_whitespace();
        let (Some(range), Some(permissions)) = (fields.next(), fields.next()) else { continue };
        let Some(path) = line.find('/').map(|at| &line[at..]) else { continue };
        if !permissions.contains('x') || !seen.insert(path) {
            continue;
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
    let id = |path: &PathBuf| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let named = || id(&by_name).filter(|(_, found)| Some(*found) == inode);
    let (reachable, id) = match id(&by_range) {
        Some(id) => (by_range, id),
        None => match named() {
            Some(id) => (by_name, id),
            None => (by_range, (0, 0)),
        },
    };
    MappedFile { path: path.to_owned(), reachable, id }
}

impl MappedFile {
    /// Opens it.
    ///
    /// # Errors
    /// Its process has ended, or a privilege is missing.
    pub fn open(&self) -> io::Result<File> {
        File::open(&self.reachable)
    }

    /// Its name without folders.
    pub fn name(&self) -> &str {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        path.rsplit('/').next().unwrap_or(path)
    }
}
