//! The document of a page for which there is no report.

use std::io::{self, Write};

use serde::Serialize;
use ts_rs::TS;

use crate::kit::json;

/// Version of the schema: it grows when a field changes its meaning or goes.
const SCHEMA: u32 = 1;

/// Why there is no report.
#[derive(Serialize, TS)]
pub(crate) struct ProblemDocument<'a> {
    /// Version of the schema.
    schema: u32,
    /// `problem`.
    #[ts(type = "\"problem\"")]
    kind: &'static str,
    /// Version of mongosonar.
    version: &'static str,
    /// What went wrong.
    words: &'a str,
}

/// Writes the document of a page that says why there is no report.
///
/// # Errors
/// Those of `out`.
pub fn page(words: &str, out: impl Write) -> io::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    json::line(&ProblemDocument { schema: SCHEMA, kind: "problem", version, words }, out)
}
