//! The folder that a server writes its diagnostic data into.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sonar_core::files::naming::is_sample_file;
use sonar_core::observation::FileIdentity;

use crate::input::follow::{FileThread, PassedIdentity, file_identity};

/// A file of `diagnostic.data`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiagnosticFile {
    /// Its name, like `metrics.2026-11-21T21-22-47Z-00000`.
    pub name: String,
    /// Which file it is.
    #[serde(with = "PassedIdentity")]
    pub identity: FileIdentity,
    /// Its size in bytes.
    pub size: u64,
    /// When it was last changed, in nanoseconds since 1970.
    pub modified_ns: i64,
}

impl DiagnosticFile {
    /// Of the entries of a folder those that a server writes its samples into, by name.
    pub fn among(entries: impl IntoIterator<Item = (OsString, Metadata)>) -> Vec<Self> {
        let file = |(name, found): (OsString, Metadata)| {
            let name = name.into_string().ok().filter(|name| is_sample_file(name))?;
            let modified_ns = found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec());
            let identity = file_identity(&found);
            found.is_file().then_some(Self { name, identity, size: found.len(), modified_ns })
        };
        let mut files: Vec<Self> = entries.into_iter().filter_map(file).collect();
        files.sort_by(|a, b| a.name.cmp(&b.name));
        files
    }
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

    /// The thread that reads these files; `None` if whoever follows them may wait for their file system.
    fn thread(&self) -> Option<Arc<FileThread>> {
        None
    }
}
