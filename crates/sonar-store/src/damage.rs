//! Sets damaged files aside, and keeps what is whole in them.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, params, params_from_iter};
use sonar_core::Timestamp;
use sonar_core::history::Resolution;

use crate::checked_row::{CHECKSUM, CheckedTable, EVENTS, NUMBERED, OUTGOING, POSITIONS, RECEIVED};
use crate::day_file::{DayFile, beside, width};
use crate::day_writer::DayWriter;
use crate::format::decode;
use crate::lookup::{FoundNumbers, Interner};
use crate::plan::Slot;
use crate::schema::{WITH_CHECKSUMS, configure, version};
use crate::stored_window::StoredWindow;
use crate::utc_day::UtcDay;
use crate::{StoreError, StoreSettings};

/// Damaged files that are kept of one day; the oldest goes.
const MAX_KEPT: u32 = 3;

/// Renames the file of a day to `NAME.damaged-N`, and makes a new one from what can be read of it. Returns the new
/// name.
///
/// # Errors
/// The file cannot be renamed. That nothing can be read of it is no error.
pub(crate) fn set_aside(dir: &Path, day: UtcDay, settings: &StoreSettings) -> Result<PathBuf, StoreError> {
    let path = day.path(dir);
    let target = free_name(&path);
    // First the log: beside a new file of the same name, SQLite would take it for that of the new one.
    for suffix in ["-wal", ""] {
        let from = beside(&path, suffix);
        match fs::rename(&from, beside(&target, suffix)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::of_io("rename", from)(error));
            }
            _ => {}
        }
    }
    let _ = fs::remove_file(beside(&path, "-shm"));
    if let Ok(mut fresh) = DayWriter::open(dir, day, settings) {
        // If it fails, nothing can be read, or the disk is full; the old file still has everything.
        let _ = salvage(&target, &mut fresh);
    }
    Ok(target)
}

/// `NAME.damaged-N`; that of the highest N is used again when there are too many.
fn free_name(path: &Path) -> PathBuf {
    let name = |n| beside(path, &format!(".damaged-{n}"));
    let free = (1..MAX_KEPT).find(|n| !name(*n).exists());
    name(free.unwrap_or(MAX_KEPT))
}

/// Copies what can be read.
fn salvage(damaged: &Path, fresh: &mut DayWriter) -> Result<(), StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let sql = StoreError::of_sql(damaged);
    let old = Connection::open_with_flags(damaged, flags)
        .and_then(|old| configure(&old).map(|()| old))
        .map_err(sql)?;
    let has_checksums = version(&old, damaged)? >= WITH_CHECKSUMS;
    let old = DayFile {
        path: damaged.to_owned(),
        connection: old,
        has_checksums,
        window_bytes: fresh.file.window_bytes,
    };
    fresh.transaction(|fresh| {
        for table in NUMBERED {
            copy_table(&old, fresh, table);
        }
        for table in [&EVENTS, &POSITIONS, &OUTGOING, &RECEIVED] {
            copy_table(&old, fresh, table);
        }
        copy_windows(&old, fresh);
        Ok(())
    })
}

/// Copies the rows of a table that can be read, from its beginning and from its end up to where it is damaged.
fn copy_table(old: &DayFile, fresh: &DayWriter, table: &CheckedTable) {
    for direction in ["ASC", "DESC"] {
        // An error ends this direction: what follows cannot be read.
        let _ = copy_rows(old, &fresh.file.connection, table, direction);
    }
}

/// Copies the rows whose checksum is right.
fn copy_rows(
    old: &DayFile,
    fresh: &Connection,
    table: &CheckedTable,
    direction: &str,
) -> rusqlite::Result<()> {
    let CheckedTable { name, columns: [key, ..] } = table else { return Ok(()) };
    let more: Vec<String> = {
        let all = old.connection.prepare(&format!("SELECT * FROM {name}"))?;
        let is_more = |column: &&str| !table.columns.contains(column) && *column != CHECKSUM;
        all.column_names().filter(is_more).map(|column| format!(", {column}")).collect()
    };
    let sql = table.select(old.has_checksums, &more.concat());
    let mut query = old.connection.prepare(&format!("{sql} ORDER BY {key} {direction}"))?;
    let count = query.column_count();
    let places = vec!["?"; count].join(", ");
    let columns = table.columns.join(", ");
    let more = more.concat();
    let mut insert = fresh
        .prepare(&format!("INSERT OR REPLACE INTO {name} ({columns}, {CHECKSUM}{more}) VALUES ({places})"))?;
    let mut rows = query.query(())?;
    while let Some(row) = rows.next()? {
        if table.verify(row).is_ok() {
            let values =
                (0..count).map(|column| row.get(column)).collect::<rusqlite::Result<Vec<Value>>>()?;
            insert.execute(params_from_iter(values))?;
        }
    }
    Ok(())
}

/// Copies the windows whose checksum is right and whose names could be read. It does not need the index.
fn copy_windows(old: &DayFile, fresh: &DayWriter) {
    for direction in ["ASC", "DESC"] {
        let _ = copy_windows_in(old, fresh, direction);
    }
}

fn copy_windows_in(old: &DayFile, fresh: &DayWriter, direction: &str) -> rusqlite::Result<()> {
    let (interner, found) = <(Interner, FoundNumbers)>::default();
    let lookup = fresh.file.lookup(&interner, &found);
    let fresh = &fresh.file.connection;
    let sql = format!("SELECT width, start, data FROM windows NOT INDEXED ORDER BY rowid {direction}");
    let mut query = old.connection.prepare(&sql)?;
    let mut insert = fresh.prepare("INSERT OR IGNORE INTO windows (width, start, data) VALUES (?, ?, ?)")?;
    let mut rows = query.query(())?;
    while let Some(row) = rows.next()? {
        let (seconds, start, data): (i64, u64, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let Some(resolution) = Resolution::ALL.into_iter().find(|one| width(*one) == seconds) else {
            continue;
        };
        let slot = Slot::of(Timestamp::from_unix(start, 0), resolution);
        let mut part = StoredWindow::spanning(slot.span());
        if decode(&data, slot.span(), &lookup, &mut part).is_ok() {
            insert.execute(params![seconds, start as i64, data])?;
        }
    }
    Ok(())
}
