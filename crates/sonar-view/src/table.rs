//! Plain text: a table for each interval, and the summary at the end.

use std::io::{self, Write};

use sonar_core::Coverage;

use crate::column::{self, Column, Placed, place, push_cell};
use crate::model::Report;
use crate::text::escape;
use crate::units::{Count, Nanos, UNKNOWN, or_unknown};

/// Writes one interval: a line of totals, what was lost, and the rows. `width` is that of the
/// terminal; `None` leaves the last column as long as it is.
///
/// # Errors
/// Those of `out`.
pub fn interval(report: &Report<'_>, width: Option<usize>, mut out: impl Write) -> io::Result<()> {
    writeln!(out, "{}  {}", clock(report), totals(report))?;
    writeln!(out, "{}", losses(report.coverage))?;
    rows(report, place(report, width), width, &mut out)?;
    writeln!(out)
}

/// Writes the summary: the span, totals, every coverage counter that is not zero, and the rows.
///
/// # Errors
/// Those of `out`.
pub fn summary(report: &Report<'_>, width: Option<usize>, mut out: impl Write) -> io::Result<()> {
    let figures = &report.totals.figures;
    let zone = &report.selection.zone;
    let (start, end) = (zone.show(report.start), zone.show(report.end));
    writeln!(out, "Summary of {}: {start} to {end}", Nanos(report.elapsed_ns))?;
    writeln!(out, "  {}", totals(report))?;
    let quantiles = report.totals.quantiles;
    let shown = |ns: Option<u64>| or_unknown(ns.map(Nanos));
    writeln!(
        out,
        "  latency  p50 {}  p95 {}  p99 {}  max {}",
        shown(quantiles.p50),
        shown(quantiles.p95),
        shown(quantiles.p99),
        shown(quantiles.max)
    )?;
    let ends = [
        ("failed", figures.failed),
        ("unanswered", figures.unanswered),
        ("unacknowledged", figures.unacknowledged),
        ("outcome not known", figures.outcome_unknown),
    ];
    write!(out, "  {}{} operations", report.mark(), crate::model::scaled(figures.calls, report.sample))?;
    for (name, count) in ends.into_iter().filter(|(_, count)| *count > 0) {
        write!(out, ", {}{} {name}", report.mark(), crate::model::scaled(count, report.sample))?;
    }
    writeln!(out)?;
    if report.sample > 1 {
        writeln!(
            out,
            "  One connection in {} was kept; figures marked ~ are scaled up from it.",
            report.sample
        )?;
    }
    writeln!(out, "\nCoverage: {}", losses(report.coverage))?;
    for (name, meaning, count) in report.coverage.iter().filter(|(_, _, count)| *count > 0) {
        writeln!(out, "  {count:>14}  {name:<26} {meaning}")?;
    }
    writeln!(out)?;
    let mut placed = place(report, width);
    // Of a run that is over, how many is worth more than how many per second.
    for placed in placed.iter_mut().filter(|placed| placed.column == Column::Calls) {
        placed.column = Column::Count;
    }
    rows(report, placed, width, &mut out)
}

/// Time of the end of the span, in the zone that was asked for.
pub(crate) fn clock(report: &Report<'_>) -> String {
    report.selection.zone.show_seconds(report.end).to_string()
}

/// Totals in one line.
pub(crate) fn totals(report: &Report<'_>) -> String {
    let (rates, mark) = (report.totals.rates, report.mark());
    let mut line = format!(
        "{}: {mark}{} calls/s  load {mark}{}  p99 {}  errors {mark}{}/s  in {mark}{}B/s  out {mark}{}B/s",
        report.selection.classes.label(),
        Count(rates.calls),
        Count(rates.load),
        or_unknown(report.totals.quantiles.p99.map(Nanos)),
        Count(rates.errors),
        Count(rates.request_bytes),
        Count(rates.response_bytes),
    );
    if let Some(waiting) = report.longest_waiting {
        let count = report.totals.in_flight.map_or(0, |waiting| waiting.count);
        line.push_str(&format!(
            "  in flight {mark}{}, oldest {} {} {}",
            Count(count as f64 * f64::from(report.sample)),
            Nanos(waiting.oldest_ns),
            escape(&waiting.shape.command),
            escape(&waiting.shape.namespace()),
        ));
    }
    line
}

/// What was lost, in one line: `nothing lost`, or each counter.
pub fn losses(coverage: &Coverage) -> String {
    let lost: Vec<_> = coverage.losses().map(|(name, _, count)| format!("{name} {count}")).collect();
    if lost.is_empty() { "nothing lost".to_string() } else { format!("LOST: {}", lost.join(", ")) }
}

fn rows(
    report: &Report<'_>,
    mut placed: Vec<Placed>,
    width: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    let cells: Vec<Vec<String>> = report
        .rows
        .iter()
        .map(|row| placed.iter().map(|placed| placed.column.cell(row, report)).collect())
        .collect();
    if width.is_none() {
        // Nothing is cut: each column is as wide as its widest cell, the last one is not filled.
        for (at, placed) in placed.iter_mut().enumerate() {
            let widest = cells.iter().map(|row| crate::text::width(&escape(&row[at]))).max().unwrap_or(0);
            placed.width = placed.width.max(widest);
        }
        if let Some(last) = placed.last_mut() {
            last.width = usize::MAX;
        }
    }
    let heading = placed.iter().map(|placed| column::title(placed.column, report)).collect();
    for cells in std::iter::once(&heading).chain(&cells) {
        let mut line = String::new();
        for (placed, cell) in placed.iter().zip(cells) {
            if !line.is_empty() {
                line.push(' ');
            }
            push_cell(&mut line, *placed, cell);
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    if report.rows.is_empty() {
        writeln!(out, "{UNKNOWN} no operations")?;
    }
    if report.rows_total > report.rows.len() {
        writeln!(out, "… and {} more rows", report.rows_total - report.rows.len())?;
    }
    Ok(())
}

/// What each column means, for `--help` and the live view's help.
pub fn legend() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    Column::ALL.into_iter().map(|column| (column.name(), column.title(), column.meaning()))
}
