//! Whether a configuration is valid.

use std::io::{self, Write};

use serde::Serialize;

use crate::kit::escape;

/// A configuration that was checked: the JSON document of `agent --check-config`.
#[derive(Clone, Debug, Serialize)]
pub struct CheckedConfiguration {
    schema: u32,
    kind: &'static str,
    file: Option<String>,
    valid: bool,
    problem: Option<String>,
}

impl CheckedConfiguration {
    /// Of the file with this name, if there is one; `problem` is what is wrong with it.
    pub fn new(file: Option<String>, problem: Option<String>) -> Self {
        Self { schema: 1, kind: "agent_config", file, valid: problem.is_none(), problem }
    }

    /// As text, of one that is valid; `place` is where a file would have been.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text(&self, place: &str, out: &mut impl Write) -> io::Result<()> {
        match &self.file {
            Some(file) => writeln!(out, "{}: valid", escape(file)),
            None => writeln!(out, "no configuration file ({place}); defaults are used"),
        }
    }
}
