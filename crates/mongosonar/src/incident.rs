//! `report --from --to` without files: everything about an incident, from the history that an agent keeps.

use std::io::Write;

use anyhow::Result;
use sonar_core::Role;
use sonar_view::incident::IncidentReport;
use sonar_view::kit::Fitting;
use sonar_view::kit::json::line;
use sonar_view::past::{PastIncident, timeline};
use sonar_view::queries::Selection;
use sonar_view::timeline::chart_columns;

use crate::args::values::{ClassArg, ShapeArg};
use crate::args::when::WrittenEnds;
use crate::digest::DigestArgs;
use crate::exit::{OK, usage};
use crate::history::{self, StoreArgs, StoredHistory, between};
use crate::report_output::OutputArgs;
use crate::screen;

/// Runs the command; returns the exit code.
pub fn run(args: &DigestArgs, store: &StoreArgs) -> Result<u8> {
    if args.csv || args.by.is_some() || args.sort.is_some() {
        return Err(usage!(
            "--csv, --by and --sort are for reports of files; `mongosonar queries --from` has them"
        ));
    }
    let zone = history::zone(&args.zone);
    let stored = StoredHistory::open(store)?;
    let history = stored.view()?;
    let span = between(&history, WrittenEnds { from: args.from, to: args.to }, &zone)?;
    let selection = Selection {
        classes: ClassArg::classes(&args.class),
        role: Some(Role::Served),
        form: ShapeArg::form(args.shape),
        text: args.filter.clone().unwrap_or_default(),
        limit: args.limit,
        zone,
        ..Selection::default()
    };
    let PastIncident { window, report } = PastIncident::of(&history, span, &selection)?;
    let text = |out: &mut dyn Write| -> Result<()> {
        let width = screen::width();
        let shown = IncidentReport {
            timeline: timeline::report(&history, span, chart_columns(width), &selection.zone)?,
            ..report.clone()
        };
        Ok(shown.text(&mut Fitting::new(out, width), &window, &selection, &store.suffix())?)
    };
    let output = OutputArgs { json: args.json, html: args.html.clone() };
    output.write(|out| line(&report, out), text)?;
    Ok(OK)
}
