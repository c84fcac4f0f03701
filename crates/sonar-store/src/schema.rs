//! The tables of a day's file, and its versions.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior};

use crate::StoreError;

/// What makes each version out of the one before; the first makes an empty file. A change of the tables adds one.
pub(crate) const MIGRATIONS: &[&str] = &[
    "PRAGMA application_id = 0x4d534f4e;
    CREATE TABLE windows (width INTEGER NOT NULL, start INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (width, start));
    CREATE TABLE shapes (number INTEGER PRIMARY KEY, id INTEGER NOT NULL, command TEXT NOT NULL,
        database TEXT NOT NULL, collection TEXT NOT NULL, typed TEXT NOT NULL, plain TEXT NOT NULL,
        cut INTEGER NOT NULL, statements BLOB NOT NULL);
    CREATE TABLE orders (number INTEGER PRIMARY KEY, id INTEGER NOT NULL);
    CREATE TABLE applications (number INTEGER PRIMARY KEY, name TEXT NOT NULL, driver TEXT NOT NULL,
        driver_version TEXT NOT NULL, joined_late INTEGER NOT NULL);
    CREATE TABLE texts (number INTEGER PRIMARY KEY, text TEXT NOT NULL);
    CREATE TABLE series (number INTEGER PRIMARY KEY, subject TEXT NOT NULL, server TEXT NOT NULL,
        name TEXT NOT NULL, metric TEXT NOT NULL);
    CREATE TABLE layouts (number INTEGER PRIMARY KEY, names TEXT NOT NULL);
    CREATE TABLE events (slot INTEGER NOT NULL, kind TEXT NOT NULL, server TEXT NOT NULL, subject TEXT NOT NULL,
        text TEXT NOT NULL, at INTEGER NOT NULL, count INTEGER NOT NULL,
        PRIMARY KEY (slot, kind, server, subject, text)) WITHOUT ROWID;",
    "ALTER TABLE shapes ADD COLUMN rules INTEGER NOT NULL DEFAULT 2;",
    "ALTER TABLE layouts ADD COLUMN checksum INTEGER;
    ALTER TABLE shapes ADD COLUMN checksum INTEGER;
    ALTER TABLE orders ADD COLUMN checksum INTEGER;
    ALTER TABLE applications ADD COLUMN checksum INTEGER;
    ALTER TABLE texts ADD COLUMN checksum INTEGER;
    ALTER TABLE series ADD COLUMN checksum INTEGER;
    ALTER TABLE events ADD COLUMN checksum INTEGER;",
    // Windows may have the second version of their format. An older program refuses the file, not each window.
    "",
    // A row of the highest number counts: a window may be stored in the file of an earlier day than the one before it.
    "CREATE TABLE positions (name TEXT PRIMARY KEY, value TEXT NOT NULL, number INTEGER NOT NULL, checksum INTEGER)
        WITHOUT ROWID;",
    // Events of other days that wait to be delivered, and those that have been.
    "CREATE TABLE outgoing (batch INTEGER NOT NULL, place INTEGER NOT NULL, kind TEXT NOT NULL, server TEXT NOT NULL,
        subject TEXT NOT NULL, text TEXT NOT NULL, at INTEGER NOT NULL, count INTEGER NOT NULL, checksum INTEGER,
        PRIMARY KEY (batch, place)) WITHOUT ROWID;
    CREATE TABLE received (batch INTEGER NOT NULL, place INTEGER NOT NULL, checksum INTEGER,
        PRIMARY KEY (batch, place)) WITHOUT ROWID;",
];

/// The first version with checksums of rows.
pub(crate) const WITH_CHECKSUMS: u32 = 3;

/// Settings of every connection. A file is data of this machine, but nothing in it may do more than hold data.
pub(crate) fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_prepared_statement_cache_capacity(32);
    connection.execute_batch(
        "PRAGMA mmap_size = 0; PRAGMA cache_size = -2048; PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON;",
    )
}

/// Settings of a connection that writes, and the newest version of the tables.
pub(crate) fn prepare(connection: &mut Connection, path: &Path, durable: bool) -> Result<(), StoreError> {
    let synchronous = if durable { "FULL" } else { "NORMAL" };
    let settings = format!(
        "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous};
        PRAGMA journal_size_limit = 4194304; PRAGMA wal_autocheckpoint = 1000;"
    );
    configure(connection)
        .and_then(|()| connection.execute_batch(&settings))
        .map_err(StoreError::of_sql(path))?;
    migrate(connection, path)
}

/// Upgrades a file to the newest version, all or nothing.
fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let version = version(connection, path)?;
    if version as usize == MIGRATIONS.len() {
        return Ok(());
    }
    let mut upgrade = || {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for migration in &MIGRATIONS[version as usize..] {
            transaction.execute_batch(migration)?;
        }
        transaction.pragma_update(None, "user_version", MIGRATIONS.len() as u32)?;
        transaction.commit()
    };
    upgrade().map_err(StoreError::of_sql(path))
}

/// The version of a file; 0 if it is empty.
pub(crate) fn version(connection: &Connection, path: &Path) -> Result<u32, StoreError> {
    let newest = MIGRATIONS.len() as u32;
    let version: u32 = connection
        .query_row("PRAGMA user_version", (), |row| row.get(0))
        .map_err(StoreError::of_sql(path))?;
    if version > newest {
        return Err(StoreError::Newer { path: path.to_owned(), version, newest });
    }
    Ok(version)
}
