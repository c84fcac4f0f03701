//! The database of one day, for writing.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, Row, ToSql, params};
use sonar_core::history::{Event, EventKind, Resolution, SourcePositions};
use sonar_core::operation::Application;
use sonar_core::shape::RULES_VERSION;
use sonar_core::{Endpoint, ShapeId, ShapeInfo, Timestamp};

use crate::checked_row::{
    APPLICATIONS, CheckedTable, LAYOUTS, ORDERS, POSITIONS, SERIES, SHAPES, TEXTS, checksum_of,
};
use crate::day_file::{DAY_WIDTH, DayFile, seconds, width};
use crate::dictionary::Dictionary;
use crate::format::{Layout, encode};
use crate::lookup::{application, series_key};
use crate::plan::Slot;
use crate::schema;
use crate::stored_window::StoredWindow;
use crate::utc_day::UtcDay;
use crate::{StoreError, StoreSettings};

/// How hard zstd tries.
const LEVEL: i32 = 3;
/// The maximum number of distinct events of a day; further ones are counted in one event.
const MAX_EVENTS: u64 = 200_000;
/// Stands for further events of the day of a file.
const TOO_MANY: &str = "further events of this day were not stored: there were too many";
/// Stands for further events that came with windows of the day of a file, but belong to other days.
pub(crate) const TOO_MANY_OF_OTHER_DAYS: &str =
    "further events of other days were not stored: there were too many";
/// Pages that are given back at once.
const PAGES: u32 = 1_000;

/// The file of a day that is written to.
pub(crate) struct DayWriter {
    pub day: UtcDay,
    pub file: DayFile,
    dictionary: Dictionary,
    /// Events in the file, plus the events that were merged into others since it was opened.
    events: u64,
}

impl DayWriter {
    /// Opens the file of a day, which is made if there is none, and upgraded if an older program made it.
    pub fn open(dir: &Path, day: UtcDay, settings: &StoreSettings) -> Result<Self, StoreError> {
        let path = day.path(dir);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(StoreError::of_io("create", &path)(error));
            }
            _ => {}
        }
        // No file elsewhere that somebody else has linked here. Links on the way to the folder are as its owner wants
        // them, but SQLite would refuse them too.
        let real = fs::canonicalize(dir).map(|dir| day.path(&dir)).map_err(StoreError::of_io("open", dir))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let mut connection = Connection::open_with_flags(&real, flags).map_err(StoreError::of_sql(&path))?;
        schema::prepare(&mut connection, &path, settings.durable)?;
        let mut writer = Self {
            day,
            file: DayFile { path, connection, has_checksums: true, window_bytes: settings.window_bytes },
            dictionary: Dictionary::default(),
            events: 0,
        };
        let loaded = writer.load_numbers();
        loaded.map_err(StoreError::of_sql(&writer.file.path))?;
        Ok(writer)
    }

    fn load_numbers(&mut self) -> rusqlite::Result<()> {
        let Self { file: DayFile { connection, .. }, dictionary, events, .. } = self;
        *events = connection.query_row("SELECT COUNT(*) FROM events", (), |row| row.get(0))?;
        let each = |table: &CheckedTable, load: &mut dyn FnMut(u32, &Row<'_>) -> rusqlite::Result<()>| {
            let mut query = connection.prepare(&table.select(true, ""))?;
            let mut rows = query.query(())?;
            while let Some(row) = rows.next()? {
                table.verify(row)?;
                load(row.get("number")?, row)?;
            }
            Ok::<_, rusqlite::Error>(())
        };
        let id = |row: &Row<'_>| Ok::<_, rusqlite::Error>(ShapeId(row.get::<_, i64>("id")? as u64));
        each(&SHAPES, &mut |number, row| {
            dictionary.load_shape(number, id(row)?, row.get("cut")?);
            Ok(())
        })?;
        each(&ORDERS, &mut |number, row| {
            dictionary.orders.load(number, id(row)?);
            Ok(())
        })?;
        each(&APPLICATIONS, &mut |number, row| {
            dictionary.applications.load(number, application(row)?.into());
            Ok(())
        })?;
        each(&TEXTS, &mut |number, row| {
            dictionary.texts.load(number, row.get("text")?);
            Ok(())
        })?;
        each(&SERIES, &mut |number, row| {
            dictionary.series.load(number, series_key(row)?);
            Ok(())
        })?;
        let names = Layout::current();
        let (mut known, mut last) = (None, 0);
        each(&LAYOUTS, &mut |number, row| {
            last = last.max(number);
            if row.get::<_, Box<str>>("names")?.as_ref() == names {
                known = Some(number);
            }
            Ok(())
        })?;
        dictionary.layout = known.unwrap_or(last + 1);
        if known.is_none() {
            LAYOUTS.insert(connection, &[&dictionary.layout, &names], &[])?;
        }
        Ok(())
    }

    /// Writes in one transaction: all of it, or nothing. After an error the file must be opened again.
    pub fn transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.execute("BEGIN IMMEDIATE")?;
        let written = work(self).and_then(|value| {
            self.add_numbers()?;
            self.execute("COMMIT")?;
            Ok(value)
        });
        if written.is_err() {
            // SQLite may have done it already; the next use opens the file anew.
            let _ = self.execute("ROLLBACK");
        }
        written
    }

    fn execute(&self, sql: &str) -> Result<(), StoreError> {
        self.file.connection.execute_batch(sql).map_err(StoreError::of_sql(&self.file.path))
    }

    /// Stores a window in place of what was stored of it.
    pub fn put(&mut self, part: &StoredWindow, resolution: Resolution) -> Result<(), StoreError> {
        self.put_as(part, width(resolution))
    }

    fn put_as(&mut self, part: &StoredWindow, width: i64) -> Result<(), StoreError> {
        let path = &self.file.path;
        let blob = encode(part, &mut self.dictionary, LEVEL)
            .map_err(|source| StoreError::Unstorable { path: path.clone(), source })?;
        let put = || {
            let sql = "INSERT OR REPLACE INTO windows (width, start, data) VALUES (?, ?, ?)";
            let mut insert = self.file.connection.prepare_cached(sql)?;
            insert.execute(params![width, seconds(part.window.window.start), blob])
        };
        put().map_err(StoreError::of_sql(path))?;
        Ok(())
    }

    /// Removes a stored window.
    pub fn remove(&self, slot: Slot) -> Result<(), StoreError> {
        let remove = || {
            let mut delete =
                self.file.connection.prepare_cached("DELETE FROM windows WHERE width = ? AND start = ?")?;
            delete.execute(params![width(slot.resolution), seconds(slot.start)])
        };
        remove().map_err(StoreError::of_sql(&self.file.path))?;
        Ok(())
    }

    /// Removes the window of the whole day, because there will be more of it.
    pub fn reopen_day(&self) -> Result<(), StoreError> {
        let remove = || {
            let mut delete = self.file.connection.prepare_cached("DELETE FROM windows WHERE width = ?")?;
            delete.execute([DAY_WIDTH])
        };
        remove().map_err(StoreError::of_sql(&self.file.path))?;
        Ok(())
    }

    /// Adds an event; equal ones within ten seconds become one.
    pub fn add_event(&mut self, event: &Event) -> Result<(), StoreError> {
        self.events += 1;
        self.try_add_event(event).map_err(StoreError::of_sql(&self.file.path))
    }

    fn try_add_event(&self, event: &Event) -> rusqlite::Result<()> {
        let connection = &self.file.connection;
        let left_out = self.left_out(TOO_MANY, event.count);
        let event = if self.events <= MAX_EVENTS { event } else { &left_out };
        let slot = seconds(Slot::of(event.at, Resolution::TenSeconds).start);
        let (kind, server) = (event.kind.name(), event.server.to_string());
        let checksum = checksum_of(&[&slot, &kind, &server, &event.subject, &event.text])?;
        let sql = "INSERT INTO events (slot, kind, server, subject, text, checksum, at, count)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT DO UPDATE SET at = MIN(at, excluded.at), count = count + excluded.count";
        connection.prepare_cached(sql)?.execute(params![
            slot,
            kind,
            server,
            event.subject,
            event.text,
            checksum,
            event.at.unix_ns() as i64,
            event.count.max(1) as i64,
        ])?;
        Ok(())
    }

    /// What stands for so many events that are not stored, and says so with this text.
    pub fn left_out(&self, text: &str, count: u64) -> Event {
        let at = self.day.span().from;
        let event = Event::new(at, EventKind::StoreProblem, Endpoint::default(), text).about("events");
        Event { count, ..event }
    }

    /// Stores how far sources had been read, with the number of these positions.
    pub fn put_positions(&self, positions: &SourcePositions, number: i64) -> Result<(), StoreError> {
        let put = || {
            for (name, value) in positions {
                POSITIONS.insert(&self.file.connection, &[name, value, &number], &[])?;
            }
            Ok(())
        };
        put().map_err(StoreError::of_sql(&self.file.path))
    }

    /// Stores the numbers that were given since the last time.
    fn add_numbers(&mut self) -> Result<(), StoreError> {
        self.try_add_numbers().map_err(StoreError::of_sql(&self.file.path))
    }

    fn try_add_numbers(&mut self) -> rusqlite::Result<()> {
        let Self { file: DayFile { connection, .. }, dictionary, .. } = self;
        for (number, shape) in dictionary.added_shapes.drain(..) {
            let ShapeInfo { command, database, collection, typed, plain, cut, .. } = &*shape;
            let statements: Vec<u8> = shape.statements.iter().flat_map(|id| id.0.to_le_bytes()).collect();
            let id = shape.id.0 as i64;
            let values: [&dyn ToSql; 9] =
                [&number, &id, command, database, collection, typed, plain, cut, &statements];
            SHAPES.insert(connection, &values, &[("rules", &RULES_VERSION)])?;
        }
        for (number, id) in dictionary.orders.added.drain(..) {
            ORDERS.insert(connection, &[&number, &(id.0 as i64)], &[])?;
        }
        for (number, app) in dictionary.applications.added.drain(..) {
            let Application { name, driver, driver_version, joined_late } = &*app;
            APPLICATIONS.insert(connection, &[&number, name, driver, driver_version, joined_late], &[])?;
        }
        for (number, text) in dictionary.texts.added.drain(..) {
            TEXTS.insert(connection, &[&number, &text], &[])?;
        }
        for (number, key) in dictionary.series.added.drain(..) {
            let (subject, server) = (key.subject.name(), key.server.to_string());
            SERIES.insert(connection, &[&number, &subject, &server, &key.name, &key.metric], &[])?;
        }
        Ok(())
    }

    /// Stores the minutes and hours that end by `until` and are not stored though their parts are, and then the day.
    pub fn complete(&mut self, until: Timestamp) -> Result<(), StoreError> {
        let day = self.day.span();
        for resolution in [Resolution::Minute, Resolution::Hour] {
            let index = self.file.index(day)?;
            let unmade: Vec<_> =
                index.unmade(resolution).into_iter().filter(|slot| slot.span().to <= until).collect();
            if unmade.is_empty() {
                continue;
            }
            self.transaction(|writer| {
                for slot in unmade {
                    if let Some(part) = writer.file.load(slot)? {
                        writer.put(&part, resolution)?;
                    }
                }
                Ok(())
            })?;
        }
        if until < day.to || self.has_day()? {
            return Ok(());
        }
        match self.file.load_all(day)? {
            Some(whole) => self.transaction(|writer| writer.put_as(&whole, DAY_WIDTH)),
            None => Ok(()),
        }
    }

    fn has_day(&self) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM windows WHERE width = ?)";
        let exists = self.file.connection.query_row(sql, [DAY_WIDTH], |row| row.get(0));
        exists.map_err(StoreError::of_sql(&self.file.path))
    }

    /// Removes the windows of this resolution that end by `until`, and gives their room back. Returns whether there
    /// were any.
    pub fn remove_windows(&mut self, resolution: Resolution, until: Timestamp) -> Result<bool, StoreError> {
        self.complete(until)?;
        let remove = || {
            let connection = &self.file.connection;
            let last = seconds(until) - width(resolution);
            let removed = connection.execute(
                "DELETE FROM windows WHERE width = ? AND start <= ?",
                params![width(resolution), last],
            )?;
            if removed > 0 {
                let mut pages: u32 = connection.query_row("PRAGMA freelist_count", (), |row| row.get(0))?;
                while pages > 0 {
                    // Each step gives a page back.
                    let mut vacuum = connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES})"))?;
                    let mut steps = vacuum.query(())?;
                    while steps.next()?.is_some() {}
                    pages = pages.saturating_sub(PAGES);
                }
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?;
            }
            Ok(removed > 0)
        };
        remove().map_err(StoreError::of_sql(&self.file.path))
    }

    /// Whether the whole file is as SQLite wrote it.
    pub fn check(&self) -> Result<(), StoreError> {
        let check =
            || self.file.connection.query_row("PRAGMA quick_check(1)", (), |row| row.get::<_, String>(0));
        match check().map_err(StoreError::of_sql(&self.file.path))?.as_str() {
            "ok" => Ok(()),
            why => Err(StoreError::Damaged { path: self.file.path.clone(), why: why.to_owned() }),
        }
    }
}

/// The events of a span by the day that they belong to.
pub(crate) fn by_day(events: &[Event]) -> std::collections::BTreeMap<UtcDay, Vec<&Event>> {
    let mut days = std::collections::BTreeMap::<_, Vec<_>>::new();
    for event in events {
        days.entry(UtcDay::of(event.at)).or_default().push(event);
    }
    days
}
