//! Events of other days than that of their window, on their way to the files of their days.
//!
//! The files of two days have no transaction in common. So such an event is first stored with its window, in a table of
//! that file. Then it is delivered: it is added to the file of its own day together with its number, and after that
//! removed from the first file. A writer that is killed in between delivers it again, and what has been received is left
//! out. At last the number is removed too.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, params};
use sonar_core::history::Event;

use crate::StoreError;
use crate::checked_row::{CheckedTable, OUTGOING, RECEIVED};
use crate::day_file::{DayFile, event};
use crate::day_writer::{DayWriter, TOO_MANY_OF_OTHER_DAYS};
use crate::utc_day::UtcDay;

/// The maximum number of events that wait in a file; further ones are counted in one event.
const MAX_WAITING: u32 = 10_000;

/// What identifies a waiting event in the files.
#[derive(Copy, Clone, Debug)]
pub(crate) struct WaitingKey {
    /// A random number of the window that it came with.
    batch: i64,
    /// Its place among the events of that window.
    place: i64,
}

/// An event that waits to be delivered.
#[derive(Debug)]
pub(crate) struct WaitingEvent {
    pub key: WaitingKey,
    pub event: Event,
}

/// The events that wait in a file.
#[derive(Default, Debug)]
pub(crate) struct Outgoing {
    /// By the days that they belong to.
    pub by_day: BTreeMap<UtcDay, Vec<WaitingEvent>>,
    /// Those that are damaged, or that a newer program wrote.
    pub unreadable: Vec<WaitingKey>,
    /// Why the last of those cannot be read.
    pub why: String,
}

impl DayFile {
    /// Whether events wait here for the files of other days.
    pub fn has_outgoing(&self) -> bool {
        let sql = "SELECT EXISTS (SELECT 1 FROM outgoing)";
        self.connection.query_row(sql, (), |row| row.get(0)).unwrap_or(false)
    }
}

impl DayWriter {
    /// Stores events of other days, to be delivered. Call it in the transaction of their window.
    pub fn send(&mut self, events: &[&Event]) -> Result<(), StoreError> {
        if events.is_empty() {
            return Ok(());
        }
        let connection = &self.file.connection;
        let send = || {
            let waiting: u32 = connection.query_row("SELECT COUNT(*) FROM outgoing", (), |row| row.get(0))?;
            let batch: i64 = connection.query_row("SELECT random()", (), |row| row.get(0))?;
            let room = events.len().min(MAX_WAITING.saturating_sub(waiting) as usize);
            let (kept, left_out) = events.split_at(room);
            for (place, event) in kept.iter().enumerate() {
                let (kind, server) = (event.kind.name(), event.server.to_string());
                let (at, count) = (event.at.unix_ns() as i64, event.count as i64);
                OUTGOING.insert(
                    connection,
                    &[&batch, &(place as i64), &kind, &server, &event.subject, &event.text, &at, &count],
                    &[],
                )?;
            }
            Ok(left_out.iter().map(|event| event.count.max(1)).sum::<u64>())
        };
        match send().map_err(StoreError::of_sql(&self.file.path))? {
            0 => Ok(()),
            left_out => self.add_event(&self.left_out(TOO_MANY_OF_OTHER_DAYS, left_out)),
        }
    }

    /// The events that wait.
    pub fn outgoing(&self) -> Result<Outgoing, StoreError> {
        let mut found = Outgoing::default();
        let mut read = || {
            let sql = OUTGOING.select(true, "") + " ORDER BY batch, place LIMIT ?";
            let mut query = self.file.connection.prepare_cached(&sql)?;
            let mut rows = query.query([MAX_WAITING])?;
            while let Some(row) = rows.next()? {
                let key = WaitingKey { batch: row.get("batch")?, place: row.get("place")? };
                let why = match OUTGOING.verify(row).and_then(|()| event(row)) {
                    Ok(Some(event)) => {
                        let day = UtcDay::of(event.at);
                        found.by_day.entry(day).or_default().push(WaitingEvent { key, event });
                        continue;
                    }
                    Ok(None) => "a newer program wrote them".to_owned(),
                    Err(error) => error.to_string(),
                };
                found.unreadable.push(key);
                found.why = why;
            }
            Ok(())
        };
        read().map_err(StoreError::of_sql(&self.file.path))?;
        Ok(found)
    }

    /// Adds the events that have not been received yet.
    pub fn receive(&mut self, events: &[WaitingEvent]) -> Result<(), StoreError> {
        for WaitingEvent { key: WaitingKey { batch, place }, event } in events {
            let connection = &self.file.connection;
            let receive = || {
                let sql = "SELECT 1 FROM received WHERE batch = ? AND place = ?";
                let mut query = connection.prepare_cached(sql)?;
                if query.query_row(params![batch, place], |_| Ok(())).optional()?.is_some() {
                    return Ok(false);
                }
                RECEIVED.insert(connection, &[batch, place], &[])?;
                Ok(true)
            };
            if receive().map_err(StoreError::of_sql(&self.file.path))? {
                self.add_event(event)?;
            }
        }
        Ok(())
    }

    /// Removes events that have been delivered, or never can be.
    pub fn forget(&self, keys: &[WaitingKey]) -> Result<(), StoreError> {
        self.delete(&OUTGOING, keys)
    }

    /// Removes the marks of events that have been received. Call it when they wait nowhere any more.
    pub fn forget_received(&self, keys: &[WaitingKey]) -> Result<(), StoreError> {
        self.delete(&RECEIVED, keys)
    }

    fn delete(&self, table: &CheckedTable, keys: &[WaitingKey]) -> Result<(), StoreError> {
        let delete = || {
            let sql = format!("DELETE FROM {} WHERE batch = ? AND place = ?", table.name);
            let mut delete = self.file.connection.prepare_cached(&sql)?;
            keys.iter().try_for_each(|key| delete.execute(params![key.batch, key.place]).map(drop))
        };
        delete().map_err(StoreError::of_sql(&self.file.path))
    }
}
