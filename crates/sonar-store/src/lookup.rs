//! Finds in a file what blobs name by number.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, Row};
use sonar_core::history::{SeriesKey, SeriesSubject};
use sonar_core::operation::Application;
use sonar_core::shape::UNKNOWN;
use sonar_core::{Endpoint, ShapeId, ShapeInfo};

use crate::checked_row::{APPLICATIONS, CheckedTable, LAYOUTS, ORDERS, SERIES, SHAPES, TEXTS};
use crate::format::{Layout, NumberLookup};

/// Larger numbers do not occur.
const MAX_NUMBER: u32 = 1 << 20;

/// Shapes and applications of several files, each once in memory, for several threads.
#[derive(Default, Debug)]
pub(crate) struct Interner {
    /// Also by whether their text is cut: which of two texts a window gets must not depend on who was first.
    shapes: Mutex<HashMap<(ShapeId, bool), Arc<ShapeInfo>>>,
    applications: Mutex<HashSet<Arc<Application>>>,
}

impl Interner {
    fn shape(&self, shape: ShapeInfo) -> Arc<ShapeInfo> {
        let mut shapes = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        shapes.entry((shape.id, shape.cut)).or_insert_with(|| Arc::new(shape)).clone()
    }

    fn application(&self, application: Application) -> Arc<Application> {
        let mut applications = self.applications.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = applications.get(&application) {
            return known.clone();
        }
        let new = Arc::new(application);
        applications.insert(new.clone());
        new
    }
}

/// What was found by its number.
type Found<T> = RefCell<Vec<Option<T>>>;

/// What was found in one file by its number, so that each is read once.
#[derive(Default)]
pub(crate) struct FoundNumbers {
    shapes: Found<Arc<ShapeInfo>>,
    orders: Found<ShapeId>,
    applications: Found<Arc<Application>>,
    texts: Found<Arc<str>>,
    series: Found<Arc<SeriesKey>>,
    layouts: Found<Arc<Layout>>,
}

/// The numbers of one file.
pub(crate) struct FileLookup<'a> {
    connection: &'a Connection,
    has_checksums: bool,
    interner: &'a Interner,
    found: &'a FoundNumbers,
    failure: RefCell<Option<rusqlite::Error>>,
}

/// Since this version of the shape rules, a `profile` that only asks for the level has another shape than one that sets it.
const PROFILE_LEVELS: u32 = 5;

impl<'a> FileLookup<'a> {
    pub fn new(
        connection: &'a Connection,
        has_checksums: bool,
        interner: &'a Interner,
        found: &'a FoundNumbers,
    ) -> Self {
        Self { connection, has_checksums, interner, found, failure: RefCell::default() }
    }

    /// The first error of SQLite during a lookup.
    pub fn failure(&self) -> Option<rusqlite::Error> {
        self.failure.take()
    }

    fn find<T: Clone>(
        &self,
        found: &Found<T>,
        number: u32,
        table: &CheckedTable,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Option<T> {
        if let Some(Some(known)) = found.borrow().get(number as usize) {
            return Some(known.clone());
        }
        if number > MAX_NUMBER {
            return None;
        }
        let query = || {
            let sql = table.select(self.has_checksums, "") + " WHERE number = ?";
            let verified = |row: &Row<'_>| table.verify(row).and_then(|()| read(row));
            self.connection.prepare_cached(&sql)?.query_row([number], verified).optional()
        };
        let value = query().unwrap_or_else(|error| {
            self.failure.borrow_mut().get_or_insert(error);
            None
        })?;
        let mut found = found.borrow_mut();
        if found.len() <= number as usize {
            found.resize(number as usize + 1, None);
        }
        found[number as usize] = Some(value.clone());
        Some(value)
    }
}

impl FileLookup<'_> {
    /// The version of the rules by which a shape was made; 0 in the files of programs that did not store it.
    fn rules_of(&self, number: u32) -> u32 {
        let query = self.connection.prepare_cached("SELECT rules FROM shapes WHERE number = ?");
        query.and_then(|mut query| query.query_row([number], |row| row.get(0))).unwrap_or(0)
    }
}

impl NumberLookup for FileLookup<'_> {
    fn shape(&self, number: u32) -> Option<Arc<ShapeInfo>> {
        let read = |row: &Row<'_>| {
            let statements: Vec<u8> = row.get("statements")?;
            let statements = statements.as_chunks().0;
            let (command, mut typed): (Box<str>, Box<str>) = (row.get("command")?, row.get("typed")?);
            if &*command == "profile" && &*typed == "{}" && self.rules_of(number) < PROFILE_LEVELS {
                typed = UNKNOWN.into();
            }
            Ok(self.interner.shape(ShapeInfo {
                id: ShapeId(row.get::<_, i64>("id")? as u64),
                command,
                database: row.get("database")?,
                collection: row.get("collection")?,
                typed,
                plain: row.get("plain")?,
                cut: row.get("cut")?,
                statements: statements.iter().map(|id| ShapeId(u64::from_le_bytes(*id))).collect(),
            }))
        };
        self.find(&self.found.shapes, number, &SHAPES, read)
    }

    fn order(&self, number: u32) -> Option<ShapeId> {
        let read = |row: &Row<'_>| Ok(ShapeId(row.get::<_, i64>("id")? as u64));
        self.find(&self.found.orders, number, &ORDERS, read)
    }

    fn application(&self, number: u32) -> Option<Arc<Application>> {
        let read = |row: &Row<'_>| Ok(self.interner.application(application(row)?));
        self.find(&self.found.applications, number, &APPLICATIONS, read)
    }

    fn text(&self, number: u32) -> Option<Arc<str>> {
        self.find(&self.found.texts, number, &TEXTS, |row| row.get("text"))
    }

    fn series(&self, number: u32) -> Option<Arc<SeriesKey>> {
        self.find(&self.found.series, number, &SERIES, |row| series_key(row).map(Arc::new))
    }

    fn layout(&self, number: u32) -> Option<Arc<Layout>> {
        let read = |row: &Row<'_>| Ok(Arc::new(Layout::parse(&row.get::<_, Box<str>>("names")?)));
        self.find(&self.found.layouts, number, &LAYOUTS, read)
    }
}

/// An application from its columns.
pub(crate) fn application(row: &Row<'_>) -> rusqlite::Result<Application> {
    Ok(Application {
        name: row.get("name")?,
        driver: row.get("driver")?,
        driver_version: row.get("driver_version")?,
        joined_late: row.get("joined_late")?,
    })
}

/// The key of a series from its columns.
pub(crate) fn series_key(row: &Row<'_>) -> rusqlite::Result<SeriesKey> {
    let subject: Box<str> = row.get("subject")?;
    Ok(SeriesKey {
        subject: SeriesSubject::from_name(&subject).ok_or(rusqlite::Error::InvalidQuery)?,
        server: endpoint(&row.get::<_, Box<str>>("server")?)?,
        name: row.get("name")?,
        metric: row.get("metric")?,
    })
}

/// An endpoint as it is displayed.
pub(crate) fn endpoint(text: &str) -> rusqlite::Result<Endpoint> {
    let address: std::net::SocketAddr = text.parse().map_err(|_| rusqlite::Error::InvalidQuery)?;
    Ok(Endpoint::from(address))
}
