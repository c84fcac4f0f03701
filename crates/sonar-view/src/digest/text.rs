//! The digest as plain text.

use std::io::{self, Write};

use sonar_core::digest::Tally;
use sonar_core::{GroupBy, Notices, Reading};

use super::{Source, View, main_plan, mean_ns, names, sparkline};
use crate::text::{escape, push_padded, width as wide};
use crate::units::{Count, Nanos, UNKNOWN, or_unknown};

/// Writes the digest; `width` is that of the terminal, `None` leaves the last column as long as it is.
///
/// # Errors
/// Those of `out`.
pub fn write(view: &View<'_>, width: Option<usize>, mut out: impl Write) -> io::Result<()> {
    summary(view, &mut out)?;
    if let Some(reading) = view.reading {
        coverage(reading, &mut out)?;
    }
    if let Some(notices) = view.notices {
        said(notices, &mut out)?;
    }
    rows(view, width, &mut out)?;
    hints(view, &mut out)
}

/// Indexes that would serve the rows shown, with what speaks for each.
fn hints(view: &View<'_>, out: &mut impl Write) -> io::Result<()> {
    let mut heading = false;
    for (_, row) in &view.rows {
        let Some(hint) = super::hint::of(row) else { continue };
        if !std::mem::replace(&mut heading, true) {
            writeln!(out, "\nIndexes that may help (equality, sort, range; look before you build):")?;
        }
        let tally = &row.tally;
        let (command, _, text) = names(row, view.form);
        let evidence = match tally.examined_per_returned() {
            Some(ratio) => format!("{} examined for each returned", Count(ratio)),
            None => format!("{} examined a call", or_unknown(tally.docs_examined.mean().map(Count))),
        };
        let plan = main_plan(tally);
        let line = format!(
            "{} {}: {} of the time, {evidence}, {}{}: {command} {text}",
            hint.namespace,
            hint.index,
            format_args!("{:.1}%", 100.0 * view.share(tally)),
            if plan.is_empty() { UNKNOWN } else { plan },
            if tally.memory_sorts > 0 { ", sorted in memory" } else { "" },
        );
        writeln!(out, "  {}", escape(&line))?;
    }
    Ok(())
}

fn summary(view: &View<'_>, out: &mut impl Write) -> io::Result<()> {
    let totals = &view.digest.totals;
    if totals.calls == 0 {
        return writeln!(out, "No operations.");
    }
    let span = totals.last_seen.since(totals.first_seen);
    writeln!(
        out,
        "{} operations in {}: {} to {}",
        Count(totals.calls as f64),
        Nanos(span),
        totals.first_seen,
        totals.last_seen
    )?;
    writeln!(
        out,
        "  time {}  mean {}  p50 {}  p95 {}  p99 {}  max {}",
        Nanos(u64::try_from(totals.latency.sum_ns()).unwrap_or(u64::MAX)),
        mean(view.source, totals),
        quantile(view.source, totals, 0.5),
        quantile(view.source, totals, 0.95),
        quantile(view.source, totals, 0.99),
        quantile(view.source, totals, 1.0),
    )?;
    let known = |name: &str, total: Option<u64>| total.map(|n| format!("{name} {}", Count(n as f64)));
    let facts: Vec<_> = [
        known("keys examined", totals.keys_examined.get()),
        known("documents examined", totals.docs_examined.get()),
        known("returned", totals.returned.get()),
        known("affected", totals.affected.get()),
        (totals.collection_scans > 0)
            .then(|| format!("collection scans {}", Count(totals.collection_scans as f64))),
        (totals.memory_sorts > 0).then(|| format!("sorts in memory {}", Count(totals.memory_sorts as f64))),
        (totals.failed > 0).then(|| format!("failed {}", Count(totals.failed as f64))),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !facts.is_empty() {
        writeln!(out, "  {}", facts.join("  "))?;
    }
    if view.source.precision_ns() > 1 {
        writeln!(
            out,
            "  Times are whole milliseconds, rounded down by the server: 0 is less than 1 ms, so means and quantiles are bounds."
        )?;
    }
    Ok(())
}

fn coverage(reading: &Reading, out: &mut impl Write) -> io::Result<()> {
    let lost: Vec<_> = reading.losses().map(|(name, _, count)| format!("{name} {count}")).collect();
    let lost = if lost.is_empty() {
        "all of it was read".to_owned()
    } else {
        format!("NOT IN FULL: {}", lost.join(", "))
    };
    writeln!(out, "\nCoverage: {lost}")?;
    for (name, meaning, count) in reading.iter().filter(|(_, _, count)| *count > 0) {
        writeln!(out, "  {count:>14}  {name:<24} {meaning}")?;
    }
    Ok(())
}

fn said(notices: &Notices, out: &mut impl Write) -> io::Result<()> {
    /// Lines shown of each kind; JSON has all.
    const SHOWN: usize = 10;
    if notices.accepted + notices.ended > 0 {
        write!(out, "\nConnections: {} accepted, {} ended", notices.accepted, notices.ended)?;
        if let Some(open) = notices.most_open {
            write!(out, ", {open} open at most ({})", notices.most_open_at)?;
        }
        writeln!(out)?;
        let mut clients: Vec<_> = notices.clients.iter().collect();
        clients.sort_by_key(|(app, count)| (std::cmp::Reverse(*count), app.label()));
        for (app, count) in clients.iter().take(SHOWN) {
            let driver = format!("{} {}", app.driver, app.driver_version);
            writeln!(out, "  {count:>8}  {}  {}", escape(&app.label()), escape(driver.trim()))?;
        }
        if clients.len() > SHOWN {
            writeln!(out, "  … and {} more clients", clients.len() - SHOWN)?;
        }
    }
    for start in notices.starts.iter().take(SHOWN) {
        let number = |name: &str, n: Option<u64>| n.map_or_else(String::new, |n| format!("  {name} {n}"));
        writeln!(
            out,
            "Start: {}  version {}{}{}  {}",
            start.at,
            if start.version.is_empty() { UNKNOWN.into() } else { escape(&start.version) },
            number("pid", start.pid.map(u64::from)),
            number("port", start.port.map(u64::from)),
            escape(&start.host),
        )?;
    }
    if notices.starts.len() > SHOWN {
        writeln!(out, "… and {} more starts", notices.starts.len() - SHOWN)?;
    }
    if !notices.messages.is_empty() {
        writeln!(out, "\nErrors and warnings:")?;
        let mut all: Vec<_> = notices.messages.iter().collect();
        all.sort_by_key(|(kind, said)| (kind.severity, std::cmp::Reverse(said.count)));
        for (kind, said) in all.iter().take(SHOWN) {
            let id = kind.id.map_or_else(String::new, |id| format!("{id} "));
            writeln!(
                out,
                "  {:>8}  {:<7} {:<8} {id}{}  (last {})",
                said.count,
                kind.severity.name(),
                escape(&kind.component),
                escape(&kind.text),
                said.last
            )?;
        }
        if all.len() > SHOWN {
            writeln!(out, "  … and {} more kinds", all.len() - SHOWN)?;
        }
    }
    Ok(())
}

/// A quantile as it can be said: below a millisecond is a bound.
pub fn quantile(source: Source, tally: &Tally, q: f64) -> String {
    or_unknown(tally.latency.quantile_ns(q).map(|ns| duration(source, ns)))
}

/// A duration as it can be said.
pub fn duration(source: Source, ns: u64) -> String {
    let precision = source.precision_ns();
    // The bound of a bucket is not a whole number of milliseconds; what is in it is.
    if ns < precision { "<1ms".to_owned() } else { Nanos(ns / precision * precision).to_string() }
}

fn mean(source: Source, tally: &Tally) -> String {
    or_unknown(mean_ns(tally).map(|ns| {
        let bound = if source.precision_ns() > 1 { "≥" } else { "" };
        format!("{bound}{}", Nanos(ns.round() as u64))
    }))
}

fn rows(view: &View<'_>, width: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    const SPARK: usize = 12;
    let by = view.digest.settings.by;
    let by_shape = matches!(by, GroupBy::Shape | GroupBy::Order);
    let mut titles = vec![
        "calls",
        "time",
        "mean",
        "p50",
        "p95",
        "p99",
        "max",
        "keys",
        "docs",
        "ret",
        "ex/ret",
        "err",
        "over time",
    ];
    if by != GroupBy::Plan {
        titles.push("plan");
    }
    if by_shape {
        titles.extend(["command", "namespace", "shape"]);
    } else {
        titles.push(by.name());
    }
    let mut table: Vec<Vec<String>> = vec![titles.iter().map(|title| (*title).to_owned()).collect()];
    for (_, row) in &view.rows {
        let tally = &row.tally;
        let per_call = |sum: sonar_core::digest::Sum| or_unknown(sum.mean().map(Count));
        let mut cells = vec![
            Count(tally.calls as f64).to_string(),
            format!("{:.1}%", 100.0 * view.share(tally)),
            mean(view.source, tally),
            quantile(view.source, tally, 0.5),
            quantile(view.source, tally, 0.95),
            quantile(view.source, tally, 0.99),
            quantile(view.source, tally, 1.0),
            per_call(tally.keys_examined),
            per_call(tally.docs_examined),
            per_call(tally.returned),
            or_unknown(tally.examined_per_returned().map(Count)),
            Count(tally.failed as f64).to_string(),
            sparkline(view, tally, SPARK),
        ];
        if by != GroupBy::Plan {
            cells.push(plan(tally));
        }
        let (command, namespace, text) = names(row, view.form);
        if by_shape {
            cells.extend([command, namespace, text]);
        } else {
            cells.push(if namespace.is_empty() { text } else { namespace });
        }
        table.push(cells);
    }
    const FIGURES: usize = 12;
    /// Columns that a name may have on a terminal.
    const MOST: usize = 28;
    let columns = titles.len();
    let mut widths: Vec<usize> =
        (0..columns).map(|at| table.iter().map(|row| wide(&escape(&row[at]))).max().unwrap_or(0)).collect();
    if let Some(width) = width {
        widths.iter_mut().skip(FIGURES + 1).for_each(|wide| *wide = (*wide).min(MOST));
        let used: usize = widths.iter().take(columns - 1).map(|wide| wide + 1).sum();
        widths[columns - 1] = width.saturating_sub(used).max(20);
    }
    writeln!(out)?;
    for row in &table {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            if at > 0 {
                line.push(' ');
            }
            if at + 1 == columns && width.is_none() {
                line.push_str(&escape(cell));
            } else {
                push_padded(&mut line, cell, widths[at], at < FIGURES);
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    if view.rows_total > view.rows.len() {
        writeln!(out, "… and {} more rows", view.rows_total - view.rows.len())?;
    }
    Ok(())
}

/// The plan of most operations, what stands out in it, and how many others there were.
fn plan(tally: &Tally) -> String {
    let mut text = main_plan(tally).to_owned();
    let others = tally.plans.len().saturating_sub(1);
    if others > 0 {
        text.push_str(&format!(" +{others}"));
    }
    if tally.memory_sorts > 0 {
        text.push_str(" SORT");
    }
    if tally.used_disk > 0 {
        text.push_str(" DISK");
    }
    if text.is_empty() { UNKNOWN.to_owned() } else { text }
}
