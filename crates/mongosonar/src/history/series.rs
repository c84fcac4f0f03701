//! `disk stat --from` and `io live --from`: series of the history as a table.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use sonar_view::kit::Fitting;
use sonar_view::kit::json::line;
use sonar_view::past::series;
use sonar_view::series::SeriesChoice;

use super::{StoreArgs, StoredHistory, between, zone};
use crate::args::when::{When, WrittenEnds, ZoneArgs, parse_time};
use crate::exit::OK;
use crate::report_output::print;
use crate::screen;

/// Rows without `--limit`.
const ROWS: usize = 20;

/// A span of the history instead of what happens now.
#[derive(Args, Debug, Default, Clone)]
pub struct PastArgs {
    /// Show the history that an agent keeps from this time on, instead of what happens now: 14:05, "yesterday 14:00", -2h
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "duration")]
    pub from: Option<When>,
    /// The same before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "duration")]
    pub to: Option<When>,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub zone: ZoneArgs,
}

impl PastArgs {
    /// Whether the history was asked for.
    pub const fn is_asked(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    /// Shows the means of series over the span, at most `limit` rows in text; returns the exit code.
    ///
    /// # Errors
    /// The history cannot be read, or has no such series.
    pub fn show(&self, choice: &SeriesChoice<'_>, limit: Option<usize>, json: bool) -> Result<u8> {
        let zone = zone(&self.zone);
        let stored = StoredHistory::open(&self.store)?;
        let history = stored.view()?;
        let span = between(&history, WrittenEnds { from: self.from, to: self.to }, &zone)?;
        let table = series::means(&history, span, choice, &zone)?;
        let text = |out: &mut dyn Write| -> Result<()> {
            let mut out = Fitting::new(out, screen::width());
            out.sentences(history.gap_note(series::collector(choice.subject()), span, &zone)?)?;
            table.text(&mut out, &zone, limit.unwrap_or(ROWS))?;
            Ok(out.flush()?)
        };
        print(json, |out| line(&table, out), text)?;
        Ok(OK)
    }
}
