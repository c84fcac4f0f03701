//! The identity of a query shape, and what is kept of it once.

use std::fmt;

/// Version of the shape rules; it seeds every id, so ids of different rules never meet.
pub const RULES_VERSION: u32 = 2;

/// Identity of a query shape: 64 bits, written as 16 hex digits. The same query has the same id on
/// every platform, however segments split its message and whichever source gave it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ShapeId(pub u64);

impl fmt::Display for ShapeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for ShapeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is kept of a shape, built once when it is first seen and shared from then on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShapeInfo {
    /// The id, over command, namespace and canonical shape.
    pub id: ShapeId,
    /// Command name as the server knows it: `find`, `update` …
    pub command: Box<str>,
    /// Database; empty where the message named none.
    pub database: Box<str>,
    /// Collection; empty for commands on a database or on the server.
    pub collection: Box<str>,
    /// Canonical text with typed placeholders, for example `{filter: {city: ?string}}`.
    pub typed: Box<str>,
    /// Canonical text with every value and direction masked, for example `{city: ?}`.
    pub plain: Box<str>,
    /// The text was cut at its budget; the id was not.
    pub cut: bool,
    /// For a command that held statements of several shapes: those shapes, sorted by id.
    pub statements: Box<[ShapeId]>,
}

impl ShapeInfo {
    /// What stands for all shapes that did not fit into a table.
    pub fn other() -> Self {
        Self { typed: "other".into(), plain: "other".into(), ..Self::default() }
    }

    /// `db.collection`, or the database alone.
    pub fn namespace(&self) -> String {
        namespace(&self.database, &self.collection)
    }

    /// Bytes that this holds on the heap, for memory budgets.
    pub fn heap_bytes(&self) -> usize {
        self.command.len()
            + self.database.len()
            + self.collection.len()
            + self.typed.len()
            + self.plain.len()
            + self.statements.len() * 8
    }
}

/// `db.collection`, or the database alone.
pub fn namespace(database: &str, collection: &str) -> String {
    if collection.is_empty() { database.to_owned() } else { format!("{database}.{collection}") }
}
