//! Finds in a file what blobs name by number.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, Row};
use sonar_core::history::{SeriesKey, SeriesSubject};
use sonar_core::operation::Application;
use sonar_core::{Endpoint, ShapeId, ShapeInfo};

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
    interner: &'a Interner,
    found: &'a FoundNumbers,
    failure: RefCell<Option<rusqlite::Error>>,
}

impl<'a> FileLookup<'a> {
    pub fn new(connection: &'a Connection, interner: &'a Interner, found: &'a FoundNumbers) -> Self {
        Self { connection, interner, found, failure: RefCell::default() }
    }

    /// The first error of SQLite, because of which something was not found.
    pub fn failure(&self) -> Option<rusqlite::Error> {
        self.failure.take()
    }

    fn find<T: Clone>(
        &self,
        found: &Found<T>,
        number: u32,
        (sql, read): (&str, impl FnOnce(&Row<'_>) -> rusqlite::Result<T>),
    ) -> Option<T> {
        if let Some(Some(known)) = found.borrow().get(number as usize) {
            return Some(known.clone());
        }
        if number > MAX_NUMBER {
            return None;
        }
        let query = || self.connection.prepare_cached(sql)?.query_row([number], read).optional();
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

impl NumberLookup for FileLookup<'_> {
    fn shape(&self, number: u32) -> Option<Arc<ShapeInfo>> {
        const SQL: &str =
            "SELECT id, command, database, collection, typed, plain, cut, statements FROM shapes
            WHERE number = ?";
        self.find(
            &self.found.shapes,
            number,
            (SQL, |row| {
                let statements: Vec<u8> = row.get(7)?;
                Ok(self.interner.shape(ShapeInfo {
                    id: ShapeId(row.get::<_, i64>(0)? as u64),
                    command: row.get(1)?,
                    database: row.get(2)?,
                    collection: row.get(3)?,
                    typed: row.get(4)?,
                    plain: row.get(5)?,
                    cut: row.get(6)?,
                    statements: statements
                        .as_chunks()
                        .0
                        .iter()
                        .map(|id| ShapeId(u64::from_le_bytes(*id)))
                        .collect(),
                }))
            }),
        )
    }

    fn order(&self, number: u32) -> Option<ShapeId> {
        const SQL: &str = "SELECT id FROM orders WHERE number = ?";
        self.find(&self.found.orders, number, (SQL, |row| Ok(ShapeId(row.get::<_, i64>(0)? as u64))))
    }

    fn application(&self, number: u32) -> Option<Arc<Application>> {
        const SQL: &str =
            "SELECT name, driver, driver_version, joined_late FROM applications WHERE number = ?";
        self.find(
            &self.found.applications,
            number,
            (SQL, |row| Ok(self.interner.application(application(row)?))),
        )
    }

    fn text(&self, number: u32) -> Option<Arc<str>> {
        const SQL: &str = "SELECT text FROM texts WHERE number = ?";
        self.find(&self.found.texts, number, (SQL, |row| row.get(0)))
    }

    fn series(&self, number: u32) -> Option<Arc<SeriesKey>> {
        const SQL: &str = "SELECT subject, server, name, metric FROM series WHERE number = ?";
        self.find(&self.found.series, number, (SQL, |row| series_key(row).map(Arc::new)))
    }

    fn layout(&self, number: u32) -> Option<Arc<Layout>> {
        const SQL: &str = "SELECT names FROM layouts WHERE number = ?";
        let read = |row: &Row<'_>| Ok(Arc::new(Layout::parse(&row.get::<_, Box<str>>(0)?)));
        self.find(&self.found.layouts, number, (SQL, read))
    }
}

/// An application from its columns: name, driver, driver_version, joined_late.
pub(crate) fn application(row: &Row<'_>) -> rusqlite::Result<Application> {
    let (name, driver) = (row.get(0)?, row.get(1)?);
    Ok(Application { name, driver, driver_version: row.get(2)?, joined_late: row.get(3)? })
}

/// The key of a series from its columns: subject, server, name, metric.
pub(crate) fn series_key(row: &Row<'_>) -> rusqlite::Result<SeriesKey> {
    let subject: Box<str> = row.get(0)?;
    Ok(SeriesKey {
        subject: SeriesSubject::from_name(&subject).ok_or(rusqlite::Error::InvalidQuery)?,
        server: endpoint(&row.get::<_, Box<str>>(1)?)?,
        name: row.get(2)?,
        metric: row.get(3)?,
    })
}

/// An endpoint as it is displayed.
pub(crate) fn endpoint(text: &str) -> rusqlite::Result<Endpoint> {
    let address: std::net::SocketAddr = text.parse().map_err(|_| rusqlite::Error::InvalidQuery)?;
    Ok(Endpoint::from(address))
}
