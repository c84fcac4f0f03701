//! `queries --at`, `--from` and `--to`: the same views of the history that an agent keeps.

use std::time::Duration;

use anyhow::{Result, bail};
use sonar_core::history::{Resolution, Span};
use sonar_core::{Timestamp, Window};
use sonar_view::kit::Zone;
use sonar_view::past::{HistoryView, whole_windows};
use sonar_view::queries::{PacketOrigin, Selection};

use super::args::{ByArg, QueriesArgs};
use super::live::{PastViews, on_screen, show_past};
use super::output::QueriesOutput;
use crate::exit::{OK, usage};
use crate::history::{HistorySteps, StoredHistory, between};
use crate::when::WrittenEnds;

/// Runs the command; returns the exit code.
pub fn run(args: &QueriesArgs, selection: &Selection) -> Result<u8> {
    if args.by == Some(ByArg::Order) {
        return Err(usage!("the history has no rows by order; there are: shape namespace app client"));
    }
    let server = server(args)?;
    let stored = StoredHistory::open(&args.store)?;
    let history = stored.view()?.of_server(server)?;
    let selection = &Selection { is_one_server: server.is_some(), ..selection.clone() };
    let span = span(args, &history, &selection.zone)?;
    let mut output = QueriesOutput::new(args, selection, PacketOrigin::History)?;
    let gap_note = history.gap_note(history.shows_operations(span)?, span, &selection.zone)?;
    gap_note.iter().for_each(|note| output.note(note.clone()));
    if let Some(port) = server {
        output.note(format!("only the server at port {port}; what was lost is counted for all servers"));
    }
    if args.at.is_none() && on_screen(args) && args.interval.is_none() {
        let whole = whole(&history, span, &selection.zone)?;
        let views = PastViews {
            source: history.name(),
            // They go on from the ends of the span.
            steps: HistorySteps::start(&args.store, server, false)?,
            whole: whole.clone(),
            notes: gap_note.into_iter().collect(),
        };
        show_past(args, selection, views)?;
        output.summary(&whole)?;
        return Ok(OK);
    }
    if let Some(interval) = args.interval {
        intervals(&history, span, interval, &mut output)?;
    }
    output.summary(&whole(&history, span, &selection.zone)?)?;
    Ok(OK)
}

/// The port of the server that is asked for.
fn server(args: &QueriesArgs) -> Result<Option<u16>> {
    if args.port.is_empty() {
        return Ok(None);
    }
    if let Some(by @ (ByArg::App | ByArg::Client)) = args.by {
        let by = if by == ByArg::App { "app" } else { "client" };
        return Err(usage!(
            "the history has rows by {by} for all servers together: leave out --port, or --by {by}"
        ));
    }
    match args.only_port() {
        None => Err(usage!("the history shows all servers, or the one at a --port: give a single port")),
        port => Ok(port),
    }
}

/// Everything within a span.
fn whole(history: &HistoryView<'_>, span: Span, zone: &Zone) -> Result<Window> {
    let Some(all) = history.read(span)? else {
        let at = |at| zone.show_seconds(at);
        bail!(
            "nothing is stored between {} and {}; the history in {} covers {} to {}",
            at(span.from),
            at(span.to),
            history.name(),
            at(history.extent().from),
            at(history.extent().to)
        );
    };
    Ok(all.window)
}

/// What to show: `--from` and `--to`, or the window, minute or day that `--at` names.
fn span(args: &QueriesArgs, history: &HistoryView<'_>, zone: &Zone) -> Result<Span> {
    let Some(at) = args.at else {
        return between(history, WrittenEnds { from: args.from, to: args.to }, zone);
    };
    let from = at.in_zone(zone);
    let named = Span { from, to: from.plus_ns(at.precision_ns().max(1)) };
    Ok(whole_windows(named, Resolution::TenSeconds))
}

/// Writes each interval of the span.
fn intervals(
    history: &HistoryView<'_>,
    span: Span,
    interval: Duration,
    output: &mut QueriesOutput,
) -> Result<()> {
    let width = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
    let least = Resolution::TenSeconds.width_ns();
    if width < least || width % least != 0 {
        return Err(usage!("the windows of the history are 10 s long: --interval must be 10s, 20s, 1m …"));
    }
    let fits = |one: &Resolution| width.is_multiple_of(one.width_ns());
    let resolution = Resolution::ALL.into_iter().rev().find(fits).unwrap_or(Resolution::TenSeconds);
    let mut open: Option<Window> = None;
    let mut failed = None;
    history.visit_operations(span, resolution, &mut |window| {
        let start: Timestamp = window.window.start.floor_to(width);
        match &mut open {
            Some(known) if known.start.floor_to(width) == start => known.merge(&window.window),
            other => {
                if let Some(ended) = other.replace(window.window)
                    && let Err(error) = output.interval(&ended)
                {
                    failed.get_or_insert(error);
                }
            }
        }
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    if let Some(last) = open {
        output.interval(&last)?;
    }
    Ok(())
}
