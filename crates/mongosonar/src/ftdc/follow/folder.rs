//! The folder that a server writes its diagnostic data into.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use sonar_sys::host::regular;

use crate::follow::FileIdentity;

/// The most entries of the folder that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// A file of `diagnostic.data`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiagnosticFile {
    /// Its name, like `metrics.2026-11-21T21-22-47Z-00000`.
    pub name: String,
    /// Which file it is.
    pub identity: FileIdentity,
    /// Its size in bytes.
    pub size: u64,
    /// When it was last changed, in nanoseconds since 1970.
    pub modified_ns: i64,
}

/// A folder of diagnostic data. A process that may not open its files itself lets a helper do it.
pub trait DiagnosticFolder {
    /// The files whose names begin with `metrics.`, by name.
    ///
    /// # Errors
    /// The folder cannot be read.
    fn list(&mut self) -> io::Result<Vec<DiagnosticFile>>;

    /// Opens the file of this name.
    ///
    /// # Errors
    /// There is none, it is not a regular file, or it may not be opened.
    fn open(&mut self, name: &str) -> io::Result<File>;
}

/// A folder that may be read.
#[derive(Clone, Debug)]
pub struct DiagnosticPath(pub PathBuf);

impl DiagnosticFolder for DiagnosticPath {
    fn list(&mut self) -> io::Result<Vec<DiagnosticFile>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.0)?.take(MAX_ENTRIES) {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            // One that has just been removed is not there.
            let Ok(found) = entry.metadata() else { continue };
            if name.starts_with("metrics.") && found.is_file() {
                files.push(DiagnosticFile {
                    name,
                    identity: FileIdentity { device: found.dev(), inode: found.ino() },
                    size: found.len(),
                    modified_ns: found
                        .mtime()
                        .saturating_mul(1_000_000_000)
                        .saturating_add(found.mtime_nsec()),
                });
            }
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }

    fn open(&mut self, name: &str) -> io::Result<File> {
        regular::open(&self.0.join(name))
    }
}
