//! Where a document comes from: every JSON document that a page draws begins with it.

use serde::{Deserialize, Serialize};

/// Where a document comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The version of mongosonar that wrote it.
    pub version: String,
    /// The host that the figures are of; `None` where nothing says which.
    pub host: Option<String>,
    /// Files, servers or interfaces that were read, by name.
    pub sources: Vec<String>,
}

impl About {
    /// By this version.
    pub fn new(host: Option<String>, sources: Vec<String>) -> Self {
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), host, sources }
    }
}
