//! `queries --at`, `--from` and `--to`: the same views of the history that an agent keeps.

use std::time::Duration;

use anyhow::Result;
use sonar_core::history::Span;
use sonar_view::kit::Zone;
use sonar_view::past::HistoryView;
use sonar_view::past::queries::{IntervalWidth, intervals, named_windows, whole};
use sonar_view::queries::{PacketOrigin, Selection};

use super::args::{ByArg, QueriesArgs};
use super::live::{PastViews, on_screen, show_past};
use super::output::QueriesOutput;
use crate::args::values::only_port;
use crate::args::when::WrittenEnds;
use crate::confinement::start_gate::StartGate;
use crate::exit::{OK, usage};
use crate::history::{HistorySteps, StoredHistory, between};

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
    let gap_note = history.operations_gap_note(span, &selection.zone)?;
    gap_note.iter().for_each(|note| output.note(note.clone()));
    if let Some(port) = server {
        output.note(format!("only the server at port {port}; what was lost is counted for all servers"));
    }
    if args.at.is_none() && on_screen(args) && args.interval.is_none() {
        let whole = whole(&history, span, &selection.zone)?;
        let views = PastViews {
            source: history.name(),
            // They go on from the ends of the span.
            steps: HistorySteps::start(&args.store, server, false, &StartGate::opened())?,
            whole: whole.clone(),
            notes: gap_note.into_iter().collect(),
        };
        show_past(args, selection, views)?;
        output.past_summary(whole)?;
        return Ok(OK);
    }
    if let Some(interval) = args.interval {
        show_intervals(&history, span, interval, &mut output)?;
    }
    output.past_summary(whole(&history, span, &selection.zone)?)?;
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
    match only_port(&args.port) {
        None => Err(usage!("the history shows all servers, or the one at a --port: give a single port")),
        port => Ok(port),
    }
}

/// What to show: `--from` and `--to`, or the window, minute or day that `--at` names.
fn span(args: &QueriesArgs, history: &HistoryView<'_>, zone: &Zone) -> Result<Span> {
    let Some(at) = args.at else {
        return between(history, WrittenEnds { from: args.from, to: args.to }, zone);
    };
    Ok(named_windows(at.in_zone(zone), at.precision_ns()))
}

/// Writes each interval of the span.
fn show_intervals(
    history: &HistoryView<'_>,
    span: Span,
    interval: Duration,
    output: &mut QueriesOutput,
) -> Result<()> {
    let Some(width) = u64::try_from(interval.as_nanos()).ok().and_then(IntervalWidth::new) else {
        return Err(usage!("the windows of the history are 10 s long: --interval must be 10s, 20s, 1m …"));
    };
    let mut written = Ok(());
    intervals(history, span, width, &mut |window| {
        if written.is_ok() {
            written = output.past_interval(window);
        }
    })?;
    Ok(written?)
}
