//! Checksums of the rows that are no windows: the texts that windows name by number, and events.
//!
//! SQLite notices damage of the structure of a file, but not of a letter within a text.

use std::fmt;

use rusqlite::types::{ToSqlOutput, Type, ValueRef};
use rusqlite::{Connection, Row, ToSql};

/// A table whose rows have a checksum of these columns.
#[derive(Debug)]
pub(crate) struct CheckedTable {
    pub name: &'static str,
    /// What the checksum is of. The first one, or the first few, identify the row.
    pub columns: &'static [&'static str],
}

pub(crate) const LAYOUTS: CheckedTable = CheckedTable { name: "layouts", columns: &["number", "names"] };
pub(crate) const SHAPES: CheckedTable = CheckedTable {
    name: "shapes",
    columns: &["number", "id", "command", "database", "collection", "typed", "plain", "cut", "statements"],
};
pub(crate) const ORDERS: CheckedTable = CheckedTable { name: "orders", columns: &["number", "id"] };
pub(crate) const APPLICATIONS: CheckedTable = CheckedTable {
    name: "applications",
    columns: &["number", "name", "driver", "driver_version", "joined_late"],
};
pub(crate) const TEXTS: CheckedTable = CheckedTable { name: "texts", columns: &["number", "text"] };
pub(crate) const SERIES: CheckedTable =
    CheckedTable { name: "series", columns: &["number", "subject", "server", "name", "metric"] };
/// Time and count of an event change when an equal one is added to it.
pub(crate) const EVENTS: CheckedTable =
    CheckedTable { name: "events", columns: &["slot", "kind", "server", "subject", "text"] };

/// How far sources had been read. The number grows with each window, over all files.
pub(crate) const POSITIONS: CheckedTable =
    CheckedTable { name: "positions", columns: &["name", "value", "number"] };

/// Events that wait to be delivered to the files of other days: see [`crate::outgoing`].
pub(crate) const OUTGOING: CheckedTable = CheckedTable {
    name: "outgoing",
    columns: &["batch", "place", "kind", "server", "subject", "text", "at", "count"],
};
/// The events of other files that have been received, as long as they may wait there.
pub(crate) const RECEIVED: CheckedTable = CheckedTable { name: "received", columns: &["batch", "place"] };

/// The tables whose rows blobs name by number.
pub(crate) const NUMBERED: [&CheckedTable; 6] = [&LAYOUTS, &SHAPES, &ORDERS, &APPLICATIONS, &TEXTS, &SERIES];

/// The column with the checksum. It is null in rows that an older program wrote.
pub(crate) const CHECKSUM: &str = "checksum";

/// The text of a row is not what was written.
#[derive(Debug)]
struct WrongChecksum(&'static str);

impl fmt::Display for WrongChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the checksum of a row of {} is wrong", self.0)
    }
}

impl std::error::Error for WrongChecksum {}

impl CheckedTable {
    /// The beginning of a query: the columns, the checksum (null where the file has none), and `more`.
    pub fn select(&self, has_checksums: bool, more: &str) -> String {
        let checksum = if has_checksums { CHECKSUM } else { "NULL" };
        format!("SELECT {}, {checksum}{more} FROM {}", self.columns.join(", "), self.name)
    }

    /// A row of [`select`](Self::select), if it is as it was written.
    ///
    /// # Errors
    /// It is not.
    pub fn verify(&self, row: &Row<'_>) -> rusqlite::Result<()> {
        let Some(expected) = row.get::<_, Option<u32>>(self.columns.len())? else { return Ok(()) };
        let mut checksum = 0;
        for column in 0..self.columns.len() {
            checksum = extended(checksum, row.get_ref(column)?);
        }
        if checksum == expected {
            return Ok(());
        }
        let wrong = Box::new(WrongChecksum(self.name));
        Err(rusqlite::Error::FromSqlConversionFailure(self.columns.len(), Type::Integer, wrong))
    }

    /// Adds a row of these values and `more` columns, in place of one with the same key.
    pub fn insert(
        &self,
        connection: &Connection,
        values: &[&dyn ToSql],
        more: &[(&str, &dyn ToSql)],
    ) -> rusqlite::Result<()> {
        let checksum = checksum_of(values)?;
        let columns: String = more.iter().map(|(name, _)| format!(", {name}")).collect();
        let places = vec!["?"; values.len() + 1 + more.len()].join(", ");
        let sql = format!(
            "INSERT OR REPLACE INTO {} ({}, {CHECKSUM}{columns}) VALUES ({places})",
            self.name,
            self.columns.join(", ")
        );
        let mut all = values.to_vec();
        all.push(&checksum);
        all.extend(more.iter().map(|(_, value)| *value));
        connection.prepare_cached(&sql)?.execute(&*all)?;
        Ok(())
    }
}

/// The checksum of a row with these values.
pub(crate) fn checksum_of(values: &[&dyn ToSql]) -> rusqlite::Result<u32> {
    values.iter().try_fold(0, |checksum, value| {
        Ok(match value.to_sql()? {
            ToSqlOutput::Borrowed(value) => extended(checksum, value),
            ToSqlOutput::Owned(value) => extended(checksum, ValueRef::from(&value)),
            _ => checksum,
        })
    })
}

/// A CRC-32C with one more value, whose type and length count too.
fn extended(checksum: u32, value: ValueRef<'_>) -> u32 {
    let number;
    let (kind, bytes): (u8, &[u8]) = match value {
        ValueRef::Null => (0, &[]),
        ValueRef::Integer(value) => {
            number = value.to_le_bytes();
            (1, &number)
        }
        ValueRef::Real(value) => {
            number = value.to_le_bytes();
            (2, &number)
        }
        ValueRef::Text(text) => (3, text),
        ValueRef::Blob(blob) => (4, blob),
    };
    let head = (bytes.len() as u64) << 8 | u64::from(kind);
    crc32c::crc32c_append(crc32c::crc32c_append(checksum, &head.to_le_bytes()), bytes)
}
