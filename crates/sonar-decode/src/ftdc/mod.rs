//! Reads FTDC, the `diagnostic.data` that every mongod and mongos writes about itself, usually once a second.
//!
//! A file is a row of BSON documents ([`parse`]). Most hold a [`MetricChunk`]: one whole sample, and for each of its
//! numbers the differences of up to some hundred later samples. Which numbers there are, and their names, is a
//! [`Schema`], which neighbouring chunks share.

mod chunk;
mod description;
mod documents;
mod elements;
mod error;
mod layout;
mod schema;
mod status;
#[cfg(test)]
mod tests;

pub use chunk::{ChunkLimits, MAX_UNPACKED, MAX_VALUES, MetricChunk, MetricColumns};
pub use description::{describe, number_rule};
pub use documents::{DocumentContent, DocumentError, FtdcDocument, MAX_DOCUMENT, document_length, parse};
pub use elements::{Element, Elements, NumberRule};
pub use error::ChunkError;
pub use layout::{SampleReader, without_role};
pub use schema::{MetricKind, Schema, SchemaMetric};
pub use status::StatusReader;
