//! `report --from --to` without files: everything about an incident, from the history that an agent keeps.

use std::io::{self, BufWriter, Write};

use anyhow::Result;
use sonar_core::Role;
use sonar_view::incident::IncidentReport;
use sonar_view::kit::Fitting;
use sonar_view::past::{PastIncident, timeline};
use sonar_view::queries::{Form, Selection};
use sonar_view::timeline::chart_columns;

use crate::args::values::{ClassArg, ShapeArg};
use crate::args::when::WrittenEnds;
use crate::digest::DigestArgs;
use crate::exit::{OK, usage};
use crate::history::{self, StoreArgs, StoredHistory, between};
use crate::{outfile, page, screen};

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
        form: match args.shape {
            Some(ShapeArg::Plain) => Form::Plain,
            _ => Form::Typed,
        },
        text: args.filter.clone().unwrap_or_default(),
        limit: args.limit,
        zone,
        ..Selection::default()
    };
    let PastIncident { window, report } = PastIncident::of(&history, span, &selection)?;
    let mut out = BufWriter::new(io::stdout());
    if args.json {
        report.json(&mut out)?;
    } else {
        let width = screen::width();
        let shown = IncidentReport {
            timeline: timeline::report(&history, span, chart_columns(width), &selection.zone)?,
            ..report.clone()
        };
        shown.text(&mut Fitting::new(&mut out, width), &window, &selection, &store.suffix())?;
    }
    out.flush()?;
    if let Some(path) = &args.html {
        outfile::write(path, |out| page::write(out, |out| report.json(out)))?;
    }
    Ok(OK)
}
