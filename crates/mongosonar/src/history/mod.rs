//! Opens the history that `mongosonar agent` keeps, for the commands that look back. What it says is found in
//! [`sonar_view::past`].

mod args;
mod series;
mod steps;

use anyhow::{Context, Result, bail};
use sonar_core::history::Span;
use sonar_store::SqliteHistory;
use sonar_view::kit::Zone;
use sonar_view::past::{HistoryView, PastError};

pub use self::args::{HistoryReportArgs, StoreArgs};
pub use self::series::PastArgs;
pub use self::steps::{HistorySteps, SteppedWindow};
use crate::args::when::{self, WrittenEnds, ZoneArgs};
pub use sonar_view::past::HistoryStep;

/// A history that is only read.
pub struct StoredHistory {
    store: SqliteHistory,
    /// The folder.
    name: String,
}

impl StoredHistory {
    /// Opens the history.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn open(args: &StoreArgs) -> Result<Self> {
        let folder = args.folder();
        let name = folder.display().to_string();
        if !folder.is_dir() {
            bail!(
                "there is no history in {name}: `sudo mongosonar agent` keeps one, and --store says where it is"
            );
        }
        let store =
            SqliteHistory::open(folder).with_context(|| format!("cannot read the history in {name}"))?;
        Ok(Self { store, name })
    }

    /// What it holds now.
    ///
    /// # Errors
    /// It cannot be read, or is empty.
    pub fn view(&self) -> Result<HistoryView<'_>, PastError> {
        HistoryView::new(&self.store, &self.name, when::now())
    }
}

/// The span that `--from` and `--to` ask for; the whole history without them.
///
/// # Errors
/// It ends before it begins, or is still to come.
pub fn between(history: &HistoryView<'_>, ends: WrittenEnds, zone: &Zone) -> Result<Span> {
    let span = ends.in_zone(zone, history.extent())?;
    if let Some(note) = ends.note(span, zone, when::now()) {
        eprintln!("mongosonar: {note}");
    }
    Ok(history.asked(span, zone)?)
}

/// The span that `--from` and `--to` ask for; the last hour without them.
///
/// # Errors
/// It ends before it begins, or is still to come.
pub fn last_hour_or(history: &HistoryView<'_>, ends: WrittenEnds, zone: &Zone) -> Result<Span> {
    if ends.are_open() { Ok(history.last_hour()) } else { between(history, ends, zone) }
}

/// The zone that was asked for, else that of this machine: people remember when something happened by its clock.
pub fn zone(args: &ZoneArgs) -> Zone {
    args.asked().unwrap_or_else(Zone::local)
}
