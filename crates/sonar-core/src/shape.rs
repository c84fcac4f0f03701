//! The id of a query shape, and the data that all its operations share.

use std::fmt;

use crate::Identity;

/// Version of the shape rules. It seeds every id, so ids of different versions are never equal.
pub const RULES_VERSION: u32 = 5;

/// Id of a query shape: 64 bits, written as 16 hex digits. The same query has the same id on every platform
/// and from every source, independent of how segments split its message.
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

/// The text of the shape of a command that no server is known to have: neither its namespace nor its body is known.
pub const UNKNOWN: &str = "?";
/// The text of a shape if only its command and namespace are known, as a capture cut the rest.
pub const PARTIAL: &str = "(partial)";

/// The data of a shape, built when the shape is first seen and shared from then on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShapeInfo {
    /// The id: a hash of command, namespace and canonical shape.
    pub id: ShapeId,
    /// The server's name of the command: `find`, `update` …
    pub command: Box<str>,
    /// Database; empty if the message has none.
    pub database: Box<str>,
    /// Collection; empty for commands on a database or on the server.
    pub collection: Box<str>,
    /// Canonical text with typed placeholders, for example `{filter: {city: ?string}}`.
    pub typed: Box<str>,
    /// Canonical text with every value and direction masked, for example `{city: ?}`.
    pub plain: Box<str>,
    /// The text was cut at its budget; the id is that of the whole shape.
    pub cut: bool,
    /// For a command with statements of several shapes: those shapes, sorted by id.
    pub statements: Box<[ShapeId]>,
}

impl ShapeInfo {
    /// The shape `other`, which represents all shapes that did not fit into a table.
    pub fn other() -> Self {
        Self { typed: "other".into(), plain: "other".into(), ..Self::default() }
    }

    /// How exactly the shape of a command that was read to its end is known: [`Identity::Partial`] if no server is known
    /// to have the command, so that calls with different queries may share the shape.
    #[inline]
    pub fn identity(&self) -> Identity {
        if &*self.typed == UNKNOWN { Identity::Partial } else { Identity::Exact }
    }

    /// `db.collection`, or the database alone.
    pub fn namespace(&self) -> String {
        namespace(&self.database, &self.collection)
    }

    /// Heap memory in bytes, for memory budgets.
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
