//! The database of one day.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row, params};
use rustix::fs::{Mode, OFlags};
use sonar_core::history::{Event, EventKind, Resolution, Span};
use sonar_core::time::NS_PER_S;
use sonar_core::{Endpoint, Timestamp};

use crate::StoreError;
use crate::checked_row::{EVENTS, POSITIONS};
use crate::format::{BlobError, ObservedNs, decode, decode_observed};
use crate::lookup::{FileLookup, FoundNumbers, Interner, endpoint};
use crate::plan::{Slot, WindowIndex};
use crate::schema;
use crate::stored_window::StoredWindow;

/// A file that is read: the methods that readers and the writer share.
pub(crate) struct DayFile {
    pub path: PathBuf,
    pub connection: Connection,
    /// Whether its rows have checksums: older versions have none.
    pub has_checksums: bool,
    /// See [`StoreSettings::window_bytes`](crate::StoreSettings).
    pub window_bytes: usize,
}

impl DayFile {
    /// Opens a file for reading; no file is changed. `None` if there is none.
    pub fn open(path: &Path) -> Result<Option<Self>, StoreError> {
        Self::open_after(path, || {})
    }

    /// The same; `before` is called between the look at the file and its opening.
    fn open_after(path: &Path, before: impl FnOnce()) -> Result<Option<Self>, StoreError> {
        let real = match path.canonicalize() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            result => result.map_err(StoreError::of_io("read", path))?,
        };
        for file in ["", "-wal", "-shm", "-journal"].map(|suffix| beside(&real, suffix)) {
            check_regular(&file).map_err(StoreError::of_io("read", &file))?;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&real, flags, Mode::empty()).map_err(io::Error::from);
        // It is closed again: closing it later would take its locks from SQLite.
        let checked = opened.and_then(|file| File::from(file).metadata());
        let checked = checked.map_err(StoreError::of_io("read", path))?;
        before();
        let connection = match open_to_read(&real, "") {
            // Without write permission SQLite cannot share a file. It need not: nobody else has it open.
            Err(_) if !has_log(&real) => open_to_read(&real, "?immutable=1"),
            result => result,
        };
        let connection = connection.map_err(|error| match error.sqlite_error_code() {
            Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly) => StoreError::NotClosed(path.to_owned()),
            _ => StoreError::of_sql(path)(error),
        })?;
        let version = schema::version(&connection, path)?;
        // SQLite opens a file by its name, of which somebody may have changed a part since the look.
        let found = match fs::symlink_metadata(&real) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            result => result.map_err(StoreError::of_io("read", path))?,
        };
        if (found.dev(), found.ino()) != (checked.dev(), checked.ino()) {
            let replaced = io::Error::new(ErrorKind::InvalidInput, "another file has taken its place");
            return Err(StoreError::of_io("read", path)(replaced));
        }
        match version {
            0 => Ok(None),
            version => {
                let has_checksums = version >= schema::WITH_CHECKSUMS;
                let window_bytes = usize::MAX;
                Ok(Some(Self { path: path.to_owned(), connection, has_checksums, window_bytes }))
            }
        }
    }

    /// What its blobs name by number.
    pub fn lookup<'a>(&'a self, interner: &'a Interner, found: &'a FoundNumbers) -> FileLookup<'a> {
        FileLookup::new(&self.connection, self.has_checksums, interner, found)
    }

    fn sql<T>(&self, result: rusqlite::Result<T>) -> Result<T, StoreError> {
        result.map_err(StoreError::of_sql(&self.path))
    }

    /// Which windows of the hours of a span are stored.
    pub fn index(&self, span: Span) -> Result<WindowIndex, StoreError> {
        let mut index = WindowIndex::default();
        // Whole hours: whether an hour has parts decides whether it stands for itself.
        let from = seconds(Slot::of(span.from, Resolution::Hour).start);
        let to = seconds(Slot::of(span.to, Resolution::Hour).span().to);
        for resolution in Resolution::ALL {
            let read = || {
                let sql =
                    "SELECT start FROM windows WHERE width = ? AND start BETWEEN ? AND ? ORDER BY start";
                let mut query = self.connection.prepare_cached(sql)?;
                let starts = query.query_map(params![width(resolution), from, to], |row| row.get(0))?;
                starts.map(|start| Ok(Timestamp::from_unix(start?, 0))).collect()
            };
            index.starts[resolution as usize] = self.sql(read())?;
        }
        Ok(index)
    }

    /// The blob of a stored window.
    pub fn blob(&self, slot: Slot) -> Result<Option<Vec<u8>>, StoreError> {
        let read = || {
            let mut query =
                self.connection.prepare_cached("SELECT data FROM windows WHERE width = ? AND start = ?")?;
            query.query_row(params![width(slot.resolution), seconds(slot.start)], |row| row.get(0)).optional()
        };
        self.sql(read())
    }

    /// Adds a stored window to `into`; false if it is not stored.
    pub fn read_into(
        &self,
        slot: Slot,
        lookup: &FileLookup<'_>,
        into: &mut StoredWindow,
    ) -> Result<bool, StoreError> {
        let Some(blob) = self.blob(slot)? else { return Ok(false) };
        self.decode_into(slot.span(), &blob, lookup, into)?;
        Ok(true)
    }

    /// How long each collector observed a stored window; `None` if it is not stored.
    pub fn observed(&self, slot: Slot, lookup: &FileLookup<'_>) -> Result<Option<ObservedNs>, StoreError> {
        let decoded = self.blob(slot)?.map(|blob| decode_observed(&blob, lookup)).transpose();
        decoded.map_err(|why| self.undecodable(why, lookup))
    }

    /// The window of the whole day and its span, if it is stored.
    pub fn whole_day(&self) -> Result<Option<(Span, Vec<u8>)>, StoreError> {
        let read = || {
            let sql =
                "SELECT start, (SELECT MAX(start) + 3600 FROM windows WHERE width = 3600), data FROM windows
                WHERE width = ?";
            let mut query = self.connection.prepare_cached(sql)?;
            let row = |row: &Row<'_>| {
                let [from, to] = [row.get(0)?, row.get(1)?].map(|seconds| Timestamp::from_unix(seconds, 0));
                Ok((Span { from, to }, row.get(2)?))
            };
            query.query_row([DAY_WIDTH], row).optional()
        };
        self.sql(read())
    }

    /// Adds a window of this span to `into`.
    pub fn decode_into(
        &self,
        span: Span,
        blob: &[u8],
        lookup: &FileLookup<'_>,
        into: &mut StoredWindow,
    ) -> Result<(), StoreError> {
        decode(blob, span, lookup, into).map_err(|why| self.undecodable(why, lookup))
    }

    fn undecodable(&self, why: BlobError, lookup: &FileLookup<'_>) -> StoreError {
        match lookup.failure() {
            Some(error) => StoreError::of_sql(&self.path)(error),
            None => StoreError::Damaged { path: self.path.clone(), why: why.to_string() },
        }
    }

    /// What is stored of a window, as itself or as its parts; `None` if nothing is.
    pub fn load(&self, slot: Slot) -> Result<Option<StoredWindow>, StoreError> {
        let mut parts = self.index(slot.span())?.cover(slot.span());
        parts.retain(|part| part.resolution <= slot.resolution);
        self.merged(slot.span(), &parts)
    }

    /// Everything that is stored; `None` if nothing is.
    pub fn load_all(&self, day: Span) -> Result<Option<StoredWindow>, StoreError> {
        let parts = self.index(day)?.cover(day);
        parts.first().map_or(Ok(None), |first| self.merged(first.span(), &parts))
    }

    fn merged(&self, span: Span, parts: &[Slot]) -> Result<Option<StoredWindow>, StoreError> {
        let (interner, found) = <(Interner, FoundNumbers)>::default();
        let lookup = self.lookup(&interner, &found);
        let mut merged = StoredWindow::spanning(span);
        let mut any = false;
        for part in parts {
            any |= self.read_into(*part, &lookup, &mut merged)?;
            merged.window.limit(self.window_bytes);
        }
        Ok(any.then_some(merged))
    }

    /// Adds the events within a span to `events`, by time, without those that are damaged.
    ///
    /// # Errors
    /// Some are.
    pub fn events(&self, span: Span, events: &mut Vec<Event>) -> Result<(), StoreError> {
        let mut found = Vec::new();
        let mut read = || {
            let sql = EVENTS.select(self.has_checksums, ", at, count") + " WHERE slot BETWEEN ? AND ?";
            let mut query = self.connection.prepare_cached(&sql)?;
            let slot = |at| seconds(Slot::of(at, Resolution::TenSeconds).start);
            let mut rows = query.query(params![slot(span.from), slot(span.to)])?;
            let mut damage = Ok(());
            while let Some(row) = rows.next()? {
                match EVENTS.verify(row).and_then(|()| event(row)) {
                    Ok(event) => found.extend(event),
                    Err(error) => damage = Err(error),
                }
            }
            damage
        };
        let read = self.sql(read());
        found.retain(|event| span.contains(event.at));
        found.sort();
        events.append(&mut found);
        read
    }

    /// Passes the positions of sources that can be read to `each`: name, value and number.
    pub fn positions(&self, mut each: impl FnMut(Box<str>, Box<str>, i64)) {
        let mut read = || {
            let mut query = self.connection.prepare(&POSITIONS.select(true, ""))?;
            let mut rows = query.query(())?;
            while let Some(row) = rows.next()? {
                if POSITIONS.verify(row).is_ok() {
                    each(row.get("name")?, row.get("value")?, row.get("number")?);
                }
            }
            Ok::<_, rusqlite::Error>(())
        };
        // Files of older versions have none, and without any a source only begins anew.
        let _ = read();
    }

    /// Start of the first window and end of the last.
    pub fn extent(&self) -> Result<Option<Span>, StoreError> {
        let mut extent: Option<Span> = None;
        for resolution in Resolution::ALL {
            let sql = "SELECT MIN(start), MAX(start) FROM windows WHERE width = ?";
            let read = || {
                let mut query = self.connection.prepare_cached(sql)?;
                query.query_row([width(resolution)], |row| {
                    Ok((row.get::<_, Option<u64>>(0)?, row.get::<_, Option<u64>>(1)?))
                })
            };
            if let (Some(first), Some(last)) = self.sql(read())? {
                let first = Slot::of(Timestamp::from_unix(first, 0), resolution).span();
                let last = Slot::of(Timestamp::from_unix(last, 0), resolution).span();
                let known = *extent.get_or_insert(Span { from: first.from, to: last.to });
                // A coarse window says less than the fine ones in it.
                let from = if first.to <= known.from { first.from } else { known.from };
                let to = if last.from >= known.to { last.to } else { known.to };
                extent = Some(Span { from, to });
            }
        }
        Ok(extent)
    }
}

/// An event from its columns; `None` if a newer program wrote it, which has other kinds.
pub(crate) fn event(row: &Row<'_>) -> rusqlite::Result<Option<Event>> {
    let kind: Box<str> = row.get("kind")?;
    let Some(kind) = EventKind::from_name(&kind) else { return Ok(None) };
    let at = Timestamp::from_unix_ns(row.get::<_, i64>("at")? as u64);
    let server: Endpoint = endpoint(&row.get::<_, Box<str>>("server")?)?;
    let count = row.get::<_, i64>("count")?.max(1) as u64;
    Ok(Some(Event { at, kind, server, subject: row.get("subject")?, text: row.get("text")?, count }))
}

/// Refuses a pipe, which would be waited for, and a device: to open one may start a watchdog or rewind a tape. Whoever owns
/// the folder of a store may put them there, or a link to them.
fn check_regular(file: &Path) -> io::Result<()> {
    match fs::symlink_metadata(file) {
        Ok(found) if !found.is_file() => Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file")),
        _ => Ok(()),
    }
}

/// Opens a file by a path without symbolic links, and follows none that takes the place of a part of it.
fn open_to_read(path: &Path, options: &str) -> rusqlite::Result<Connection> {
    let uri = format!("file:{}{options}", escaped(path));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(uri, flags)?;
    schema::configure(&connection)?;
    // The first read decides whether the file can be shared.
    connection.query_row("SELECT COUNT(*) FROM sqlite_master", (), |_| Ok(()))?;
    Ok(connection)
}

/// A path in a URI of SQLite.
fn escaped(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        if plain(*byte) {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("%{byte:02x}"));
        }
    }
    text
}

/// Whether there is a write-ahead log with content beside a database.
pub(crate) fn has_log(path: &Path) -> bool {
    fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0)
}

/// The file beside a database whose name ends with this.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The column `width` of the window of the whole day. It is stored when the day is over, for views of many days, and
/// removed when a window comes late.
pub(crate) const DAY_WIDTH: i64 = 86_400;

/// The column `width` of windows: seconds.
pub(crate) fn width(resolution: Resolution) -> i64 {
    (resolution.width_ns() / NS_PER_S) as i64
}

/// The columns `start` and `slot`: seconds since the epoch.
pub(crate) fn seconds(at: Timestamp) -> i64 {
    (at.unix_ns() / NS_PER_S) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_whose_folder_is_another_one_by_then_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let [store, other, aside] = ["store", "other", "aside"].map(|name| folder.path().join(name));
        for dir in [&store, &other] {
            fs::create_dir(dir).unwrap();
            let day = Connection::open(dir.join("2026-01-01.db")).unwrap();
            day.execute_batch("CREATE TABLE any (thing)").unwrap();
        }
        let day = store.join("2026-01-01.db");
        assert!(DayFile::open(&day).unwrap().is_none(), "it is no store");
        let opened = DayFile::open_after(&day, || {
            fs::rename(&store, &aside).unwrap();
            fs::rename(&other, &store).unwrap();
        });
        let error = opened.err().unwrap();
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("another file"), "{error}");
    }
}
