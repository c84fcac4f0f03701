//! Why something could not be done.

use std::io;
use std::path::PathBuf;

use crate::format::BlobError;

/// Why the store could not do something, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such folder.
    #[error("there is no history in {}: start mongosonar agent, or name its folder with --store", .0.display())]
    Missing(PathBuf),
    /// Another process writes to it.
    #[error("{holder} writes to the history in {}: stop it, or name another folder with --store", dir.display())]
    Locked {
        /// The folder.
        dir: PathBuf,
        /// The process, by its id.
        holder: String,
    },
    /// It was opened for reading only.
    #[error("the history in {} is open for reading only", .0.display())]
    ReadOnly(PathBuf),
    /// A newer program wrote it.
    #[error("{} has format {version}, this program knows formats up to {newest}: update mongosonar", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        version: u32,
        /// The newest format that this program knows.
        newest: u32,
    },
    /// The file system has less room than the store leaves free.
    #[error("{} has {free} bytes of room left, less than the {floor} bytes that must stay free: make room there", dir.display())]
    NoRoom {
        /// The folder.
        dir: PathBuf,
        /// Bytes that can still be written.
        free: u64,
        /// Bytes that must stay free.
        floor: u64,
    },
    /// Its writer did not close a file, and SQLite may not make it whole.
    #[error("{} was not closed, and its folder cannot be written to: read it as its owner, or read a copy", .0.display())]
    NotClosed(PathBuf),
    /// A file is damaged.
    #[error("{} is damaged: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// In words.
        why: String,
    },
    /// A window is too large to be stored.
    #[error("a window cannot be stored in {}: {source}", path.display())]
    Unstorable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: BlobError,
    },
    /// A file or folder cannot be used.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried: a verb.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The database of a day cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
}

impl StoreError {
    /// From an error of SQLite about this file.
    pub(crate) fn of_sql(path: impl Into<PathBuf>) -> impl FnOnce(rusqlite::Error) -> Self {
        let path = path.into();
        move |source| {
            if is_damage(&source) {
                Self::Damaged { path, why: source.to_string() }
            } else {
                Self::Database { path, source }
            }
        }
    }

    /// From an error of the file system; `what` is a verb.
    pub(crate) fn of_io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }
}

/// Whether an error means that the content of a file is wrong, or cannot be read.
fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::{ErrorCode, ffi};
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => true,
            ErrorCode::SystemIoFailure => matches!(
                failure.extended_code,
                ffi::SQLITE_IOERR_READ | ffi::SQLITE_IOERR_SHORT_READ | ffi::SQLITE_IOERR_CORRUPTFS
            ),
            // A table or a column is missing.
            ErrorCode::Unknown => failure.extended_code == ffi::SQLITE_ERROR,
            _ => false,
        },
        // A value of another type, a row that is missing: not what this program wrote.
        _ => true,
    }
}
