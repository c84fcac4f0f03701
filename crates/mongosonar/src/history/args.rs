//! Which history to read.

use std::path::{Path, PathBuf};

use clap::Args;
use sonar_core::words::shell_quoted;

/// Where an agent keeps its history by default.
const DEFAULT_STORE: &str = "/var/lib/mongosonar";

/// Which history to read.
#[derive(Args, Debug, Default, Clone)]
pub struct StoreArgs {
    /// Folder of the agent's history [default: /var/lib/mongosonar]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
}

impl StoreArgs {
    /// The folder.
    pub fn folder(&self) -> &Path {
        self.store.as_deref().unwrap_or(Path::new(DEFAULT_STORE))
    }

    /// What to append to a command that reads the same history.
    pub fn suffix(&self) -> String {
        let quoted = |store: &PathBuf| shell_quoted(&store.to_string_lossy());
        self.store.as_ref().map_or_else(String::new, |store| format!(" --store {}", quoted(store)))
    }
}
