//! Which history to read.

use std::path::{Path, PathBuf};

use clap::Args;
use sonar_core::words::shell_quoted;

use crate::args::values::number;
use crate::args::when::ZoneArgs;
use crate::report_output::OutputArgs;

/// Where an agent keeps its history by default.
const DEFAULT_STORE: &str = "/var/lib/mongosonar";

/// Which history to read.
#[derive(Args, Debug, Default, Clone)]
pub struct StoreArgs {
    /// Folder of the agent's history [default: /var/lib/mongosonar]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
}

/// What a report on a history is about, and how it is shown.
#[derive(Args, Debug, Default, Clone)]
#[group(skip)]
pub struct HistoryReportArgs {
    /// Show only the server at this port, beside the machine [default: all servers]
    #[arg(short, long, value_name = "PORT", value_parser = number(1_u16..=65_535, 27_017))]
    pub port: Option<u16>,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub zone: ZoneArgs,
    #[command(flatten)]
    pub output: OutputArgs,
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
