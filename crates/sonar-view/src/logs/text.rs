//! The digest as plain text.

use std::io::{self, Write};

use sonar_core::Sum;
use sonar_core::figures::Figures;
use sonar_core::{GroupBy, Notices, Row};

use super::{Source, View, main_plan, mean_ns, names, sparkline};
use crate::kit::{self, Count, Fitting, Head, Nanos, Reader, UNKNOWN, Zone, escape, or_unknown};

/// Writes the digest within `width` columns; `None` breaks and leaves out nothing.
///
/// # Errors
/// Those of `out`.
pub fn write(view: &View<'_>, width: Option<usize>, out: impl Write) -> io::Result<()> {
    let mut out = Fitting::new(out, width);
    for note in &view.notes {
        writeln!(out, "NOTE: {note}")?;
    }
    sources(view, &mut out)?;
    summary(view, &mut out)?;
    if let Some(line) = view.left_out().line(view.sample, Reader::CommandLine) {
        writeln!(out, "{line}")?;
    }
    if let Some(reading) = view.reading {
        counted(&view.losses(), "all of it was read", reading.iter(), &mut out)?;
    }
    if let Some(coverage) = view.coverage {
        counted(&view.losses(), "nothing lost", coverage.iter(), &mut out)?;
    }
    if let Some(notices) = view.notices {
        said(notices, &view.zone, &mut out)?;
    }
    rows(view, width, &mut out)?;
    hints(view, &mut out)?;
    out.flush()
}

/// What was read of each source, and what of it could not be shown.
fn sources(view: &View<'_>, out: &mut impl Write) -> io::Result<()> {
    for summary in view.summaries {
        let Some(observed) = view.digest.total.observed_by(summary.source) else {
            writeln!(
                out,
                "{:<8} no operations: {}",
                summary.source.name(),
                escape(&summary.files.join(", "))
            )?;
            continue;
        };
        let figures = &observed.figures;
        writeln!(
            out,
            "{:<8} {} operations, {} to {}, mean {}, p99 {}: {}",
            summary.source.name(),
            Count(figures.calls as f64),
            view.zone.show(figures.first_seen),
            view.zone.show(figures.last_seen),
            mean(summary.source, figures),
            quantile(summary.source, figures, 0.99),
            escape(&summary.files.join(", "))
        )?;
        let losses: Vec<_> = summary.losses.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let lost = if losses.is_empty() {
            "nothing lost".to_owned()
        } else {
            format!("NOT IN FULL: {}", losses.join(", "))
        };
        let cut = if summary.damaged { "; a file is cut or damaged" } else { "" };
        writeln!(out, "         {lost}{cut}")?;
    }
    if view.summaries.len() > 1 {
        writeln!(
            out,
            "Latencies and calls below are those of the {}, as far as it has the row.",
            view.source.name()
        )?;
        writeln!(out)?;
    }
    Ok(())
}

/// Indexes that would serve, each with the shapes that want it.
fn hints(view: &View<'_>, out: &mut impl Write) -> io::Result<()> {
    /// Shapes shown of each index; JSON has all.
    const SHOWN: usize = 5;
    let all = super::hint::all(view);
    if all.is_empty() {
        return Ok(());
    }
    let known = if view.indexes.is_some() { "; none that exists serves" } else { "" };
    writeln!(out, "\nIndexes that may help (equality, sort, range{known}; look before you build):")?;
    for one in all {
        let head =
            format!("{} {}: {:.1}% of the time", one.hint.namespace, one.hint.index, 100.0 * one.share);
        writeln!(out, "  {}", escape(&head))?;
        for row in one.rows.iter().take(SHOWN) {
            let (command, _, text) = names(row, view.form);
            let evidence = match row.examined_per_returned() {
                Some(ratio) => format!("{} examined for each returned", Count(ratio)),
                None => format!(
                    "{} examined a call",
                    or_unknown(row.server().sums.docs_examined.mean().map(Count))
                ),
            };
            let plan = main_plan(row);
            let line = format!(
                "{:.1}%, {evidence}, {}{}: {command} {text}",
                100.0 * view.share(row),
                if plan.is_empty() { UNKNOWN } else { plan },
                if row.server().memory_sorts > 0 { ", sorted in memory" } else { "" },
            );
            writeln!(out, "    {}", escape(&line))?;
        }
        if one.rows.len() > SHOWN {
            writeln!(out, "    … and {} more shapes", one.rows.len() - SHOWN)?;
        }
    }
    Ok(())
}

fn summary(view: &View<'_>, out: &mut impl Write) -> io::Result<()> {
    let (totals, server) = (view.digest.totals(), view.digest.total.server());
    if totals.calls == 0 {
        return writeln!(out, "No operations.");
    }
    let span = totals.last_seen.since(totals.first_seen);
    writeln!(
        out,
        "{} operations in {}: {} to {}",
        Count(totals.calls as f64),
        Nanos(span),
        view.zone.show(totals.first_seen),
        view.zone.show(totals.last_seen)
    )?;
    writeln!(
        out,
        "  time {}  mean {}  p50 {}  p95 {}  p99 {}  max {}",
        total(view.source, totals),
        mean(view.source, totals),
        quantile(view.source, totals, 0.5),
        quantile(view.source, totals, 0.95),
        quantile(view.source, totals, 0.99),
        quantile(view.source, totals, 1.0),
    )?;
    let known = |name: &str, total: Option<u64>| total.map(|n| format!("{name} {}", Count(n as f64)));
    let facts: Vec<_> = [
        known("keys examined", server.sums.keys_examined.get()),
        known("documents examined", server.sums.docs_examined.get()),
        known("returned", totals.returned.get()),
        known("affected", totals.affected.get()),
        (server.collection_scans > 0)
            .then(|| format!("collection scans {}", Count(server.collection_scans as f64))),
        (server.memory_sorts > 0).then(|| format!("sorts in memory {}", Count(server.memory_sorts as f64))),
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

fn counted(
    losses: &[(&'static str, u64)],
    none: &str,
    all: impl Iterator<Item = (&'static str, &'static str, u64)>,
    out: &mut impl Write,
) -> io::Result<()> {
    let lost: Vec<_> = losses.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let lost = if lost.is_empty() { none.to_owned() } else { format!("NOT IN FULL: {}", lost.join(", ")) };
    writeln!(out, "\nCoverage: {lost}")?;
    for (name, meaning, count) in all.filter(|(_, _, count)| *count > 0) {
        writeln!(out, "  {count:>14}  {name:<26} {meaning}")?;
    }
    Ok(())
}

fn said(notices: &Notices, zone: &Zone, out: &mut impl Write) -> io::Result<()> {
    /// Lines shown of each kind; JSON has all.
    const SHOWN: usize = 10;
    if notices.accepted + notices.ended > 0 {
        write!(out, "\nConnections: {} accepted, {} ended", notices.accepted, notices.ended)?;
        if let Some(open) = notices.most_open {
            write!(out, ", {open} open at most ({})", zone.show(notices.most_open_at))?;
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
            zone.show(start.at),
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
                zone.show(said.last)
            )?;
        }
        if all.len() > SHOWN {
            writeln!(out, "  … and {} more kinds", all.len() - SHOWN)?;
        }
    }
    Ok(())
}

/// A quantile as it can be said: below a millisecond is a bound.
pub fn quantile(source: Source, figures: &Figures, q: f64) -> String {
    or_unknown(figures.latency.quantile_ns(q).map(|ns| duration(source, ns)))
}

/// A duration as it can be said.
pub fn duration(source: Source, ns: u64) -> String {
    let precision = source.precision_ns();
    // The bound of a bucket is not a whole number of milliseconds; what is in it is.
    if ns < precision { "<1ms".to_owned() } else { Nanos(ns / precision * precision).to_string() }
}

/// A mean as it can be said: of durations rounded down it is a lower bound.
pub fn mean(source: Source, figures: &Figures) -> String {
    or_unknown(mean_ns(figures).map(|ns| match (source.precision_ns(), ns.round() as u64) {
        (1, ns) => Nanos(ns).to_string(),
        // Not one took a whole millisecond.
        (_, 0) => "<1ms".to_owned(),
        (_, ns) => format!("≥{}", Nanos(ns)),
    }))
}

/// The time of all together as it can be said.
fn total(source: Source, figures: &Figures) -> String {
    let precision = source.precision_ns();
    match u64::try_from(figures.latency.sum_ns()).unwrap_or(u64::MAX) {
        // Each took less than that.
        0 if precision > 1 && figures.calls > 0 => {
            format!("<{}", Nanos(figures.calls.saturating_mul(precision)))
        }
        ns => Nanos(ns).to_string(),
    }
}

/// The columns of figures, before those of text.
const FIGURES: [Head; 12] = [
    Head::figure("calls", 0),
    Head::figure("time", 0),
    Head::figure("mean", 4),
    Head::figure("p50", 7),
    Head::figure("p95", 6),
    Head::figure("p99", 1),
    Head::figure("max", 8),
    Head::figure("keys", 9),
    Head::figure("docs", 5),
    Head::figure("ret", 10),
    Head::figure("ex/ret", 3),
    Head::figure("err", 11),
];

fn rows(view: &View<'_>, width: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    const SPARK: usize = 12;
    let by = view.digest.settings.by;
    let by_shape = matches!(by, GroupBy::Shape | GroupBy::Order);
    let mut heads = FIGURES.to_vec();
    heads.extend([
        Head::figure("server", 12),
        Head::figure("locks", 13),
        Head::figure("profile", 12),
        Head::figure("log", 12),
    ]);
    heads.push(Head::text("over time", 12, SPARK));
    if by != GroupBy::Plan {
        heads.push(Head::text("plan", 2, 10));
    }
    if by_shape {
        heads.extend([
            Head::text("command", 0, 9),
            Head::text("namespace", 0, 12),
            Head::text("shape", 0, 20),
        ]);
    } else {
        heads.push(Head::text(by.name(), 0, 20));
    }
    let mut table: Vec<Vec<String>> = Vec::new();
    for (_, row) in &view.rows {
        let (figures, server) = (row.figures(), &row.server().sums);
        let source = row.sources().next().unwrap_or(view.source);
        let of_source = |source: Source| {
            or_unknown(row.observed_by(source).map(|observed| Count(observed.figures.calls as f64)))
        };
        let per_call = |sum: Sum| or_unknown(sum.mean().map(Count));
        let mut cells = vec![
            Count(figures.calls as f64).to_string(),
            format!("{:.1}%", 100.0 * view.share(row)),
            mean(source, figures),
            quantile(source, figures, 0.5),
            quantile(source, figures, 0.95),
            quantile(source, figures, 0.99),
            quantile(source, figures, 1.0),
            per_call(server.keys_examined),
            per_call(server.docs_examined),
            per_call(figures.returned),
            or_unknown(row.examined_per_returned().map(Count)),
            Count(figures.failed as f64).to_string(),
            or_unknown(row.executed().map(|(source, figures)| self::mean(source, figures))),
            or_unknown(server.lock_wait_us.mean().map(|us| Nanos((us * 1_000.0) as u64))),
            of_source(Source::Profile),
            of_source(Source::Log),
            sparkline(view, row, SPARK),
        ];
        if by != GroupBy::Plan {
            cells.push(plan(row));
        }
        let (command, namespace, text) = names(row, view.form);
        if by_shape {
            cells.extend([command, namespace, text]);
        } else {
            cells.push(if namespace.is_empty() { text } else { namespace });
        }
        table.push(cells);
    }
    // What this source says of no operation has no column.
    let server = view.digest.total.server();
    let is_said = |title: &str| match title {
        "keys" => server.sums.keys_examined.known > 0,
        "docs" => server.sums.docs_examined.known > 0,
        "ex/ret" => server.sums.keys_examined.known + server.sums.docs_examined.known > 0,
        "server" | "locks" => view.summaries.len() > 1,
        "profile" | "log" => {
            view.summaries.len() > 1 && view.summaries.iter().any(|summary| summary.source.name() == title)
        }
        "plan" => by == GroupBy::Plan || !server.plans.is_empty(),
        _ => true,
    };
    let kept: Vec<usize> = (0..heads.len()).filter(|&at| is_said(heads[at].title)).collect();
    let table: Vec<Vec<String>> =
        table.iter().map(|row| kept.iter().map(|&at| row[at].clone()).collect()).collect();
    let heads: Vec<Head> = kept.iter().map(|&at| heads[at]).collect();
    writeln!(out)?;
    kit::table(&heads, &table, width, out)?;
    if view.rows_total > view.rows.len() {
        writeln!(out, "… and {} more rows", view.rows_total - view.rows.len())?;
    }
    Ok(())
}

/// The plan of most operations, what stands out in it, and how many others there were.
fn plan(row: &Row) -> String {
    let server = row.server();
    let mut text = main_plan(row).to_owned();
    let others = server.plans.len().saturating_sub(1);
    if others > 0 {
        text.push_str(&format!(" +{others}"));
    }
    if server.memory_sorts > 0 {
        text.push_str(" SORT");
    }
    if server.used_disk > 0 {
        text.push_str(" DISK");
    }
    if text.is_empty() { UNKNOWN.to_owned() } else { text }
}
