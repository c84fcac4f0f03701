//! Reads FTDC, the `diagnostic.data` that every mongod and mongos writes about itself, usually once a second.
//!
//! A file is a row of BSON documents ([`documents`]). Most hold a [`Chunk`]: one whole sample, and for each of its
//! numbers the differences of up to some hundred later samples. Which numbers there are, and their names, is a
//! [`Schema`], which neighbouring chunks share.

mod chunk;
mod documents;
mod elements;
mod schema;
#[cfg(test)]
mod tests;

pub use chunk::{Chunk, ChunkError, Columns, MAX_UNPACKED, MAX_VALUES};
pub use documents::{Content, Document, DocumentError, MAX_DOCUMENT, document_length, parse};
pub use elements::{Element, Elements};
pub use schema::{Metric, MetricKind, Schema};
