//! `report --from --to` without files: everything about an incident, from the history that an agent keeps.

use std::io::{self, BufWriter, Write};

use anyhow::{Result, bail};
use sonar_core::Role;
use sonar_view::incident::{IncidentParts, IncidentReport};
use sonar_view::kit::Fitting;
use sonar_view::past::what_changed::{self, AskedChanges, AskedTime};
use sonar_view::queries::{Form, Selection};

use crate::digest::DigestArgs;
use crate::exit::{OK, usage};
use crate::history::{self, StoreArgs, StoredHistory, between};
use crate::timeline::{self, PARTS};
use crate::values::{ClassArg, ShapeArg};
use crate::when::WrittenEnds;
use crate::{outfile, page, screen};

/// Rows of queries on the page.
const ROWS: usize = 50;

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
    let Some(window) = history.read(span)? else {
        bail!(
            "nothing is stored between {} and {}",
            zone.show_seconds(span.from),
            zone.show_seconds(span.to)
        );
    };
    let selection = Selection {
        classes: ClassArg::classes(&args.class),
        role: Some(Role::Served),
        form: match args.shape {
            Some(ShapeArg::Plain) => Form::Plain,
            _ => Form::Typed,
        },
        text: args.filter.clone().unwrap_or_default(),
        limit: args.limit,
        zone: zone.clone(),
        ..Selection::default()
    };
    let asked = AskedChanges { when: AskedTime::Span(span), against: None };
    let parts = IncidentParts {
        changes: what_changed::report(&history, &asked, &zone)?,
        timeline: timeline::report(&history, span, PARTS, &zone)?,
        window: &window,
        selection: &Selection { limit: Some(selection.limit.unwrap_or(ROWS)), ..selection.clone() },
    };
    let whole = IncidentReport::new(span, parts, &zone)?;
    let mut out = BufWriter::new(io::stdout());
    if args.json {
        whole.json(&mut out)?;
    } else {
        let width = screen::width();
        let shown = IncidentReport {
            timeline: timeline::report(&history, span, sonar_view::timeline::chart_columns(width), &zone)?,
            ..whole.clone()
        };
        shown.text(&mut Fitting::new(&mut out, width), &window, &selection, &store.suffix())?;
    }
    out.flush()?;
    if let Some(path) = &args.html {
        outfile::write(path, |out| page::write(out, |out| whole.json(out)))?;
    }
    Ok(OK)
}
