//! `logs report`, `profiler report` and `report` as text.

use std::io::{self, Write};

use sonar_core::Sum;
use sonar_core::figures::Figures;
use sonar_core::{GroupBy, LogNotices, Row};

use super::{DigestView, Source, calls_over_time, main_plan, mean_ns, names};
use crate::kit::{
    Bytes, Count, Fitting, Heading, HiddenContext, Nanos, Percent, TextTable, UNKNOWN, Zone, escape,
    or_unknown, plural,
};
use crate::queries::text as queries_text;

/// Writes the report: the answer, what is wrong, the rows, and what was read.
///
/// # Errors
/// Those of `out`.
pub fn text<W: Write>(view: &DigestView<'_>, out: &mut Fitting<W>) -> io::Result<()> {
    if let Some(answer) = super::answer::sentence(view) {
        writeln!(out, "{}", escape(&answer))?;
    }
    for note in &view.notes {
        writeln!(out, "NOTE: {}", escape(note))?;
    }
    summary(view, out)?;
    hints(view, out)?;
    remarks(view, out)?;
    rows(view, out)?;
    if let Some(line) = view.left_out().line(view.sample, HiddenContext::CommandLine) {
        writeln!(out, "{line}")?;
    }
    sources(view, out)?;
    if let Some(reading) = view.reading {
        counted(&view.losses(), "all of it was read", reading.iter(), out)?;
    }
    if let Some(coverage) = view.coverage {
        counted(&view.losses(), &queries_text::coverage(coverage), coverage.iter(), out)?;
    }
    if let Some(notices) = view.notices {
        events(notices, &view.zone, out)?;
    }
    out.flush()
}

/// What was read of each source, and what was lost.
fn sources(view: &DigestView<'_>, out: &mut impl Write) -> io::Result<()> {
    if !view.summaries.is_empty() {
        writeln!(out)?;
    }
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
            "{:<8} {}, {}, mean {}, p99 {}: {}",
            summary.source.name(),
            plural(Count(figures.calls as f64), "operation"),
            span(view, figures),
            mean(summary.source, figures),
            quantile(summary.source, figures, 0.99),
            escape(&summary.files.join(", "))
        )?;
        let parts = [
            ("NOT IN FULL", &summary.losses_in_words),
            ("not read", &summary.unread),
            ("known in part", &summary.in_part),
        ];
        let parts = parts.into_iter().filter(|(_, list)| !list.is_empty());
        let parts: Vec<_> = parts.map(|(label, list)| format!("{label}: {}", list.join(", "))).collect();
        let lost = if parts.is_empty() { "nothing lost".to_owned() } else { parts.join("; ") };
        let cut = if summary.damaged { "; a file is cut or damaged" } else { "" };
        writeln!(out, "         {lost}{cut}")?;
    }
    if view.summaries.len() > 1 {
        writeln!(
            out,
            "Latencies and calls above are those of the {}, as far as it has the row; totals are the sums of the rows.",
            view.source.name()
        )?;
    }
    Ok(())
}

/// From the first operation to the last one, as far as their times are known.
fn span(view: &DigestView<'_>, figures: &Figures) -> String {
    match figures.first_seen.is_known() {
        true => format!("{} to {}", view.zone.show(figures.first_seen), view.zone.show(figures.last_seen)),
        false => "times unknown".to_owned(),
    }
}

/// Indexes that may help, each with the shapes that would use it.
fn hints(view: &DigestView<'_>, out: &mut impl Write) -> io::Result<()> {
    /// Indexes shown, and shapes of each; JSON has all.
    const SHOWN: usize = 5;
    let all = super::index_hint::all(view);
    if all.is_empty() {
        return Ok(());
    }
    let known = if view.indexes.is_some() { "; none that exists serves" } else { "" };
    writeln!(out, "\nIndexes that may help (equality, sort, range{known}; check before building):")?;
    for one in all.iter().take(SHOWN) {
        let head =
            format!("{} {}: {:.1} of the time", one.hint.namespace, one.hint.index, Percent(one.share));
        writeln!(out, "  {}", escape(&head))?;
        for row in one.rows.iter().take(SHOWN) {
            let (command, _, text) = names(row, view.form);
            let evidence = match row.examined_per_returned() {
                Some(ratio) => format!("{} examined for each returned", Count(ratio)),
                None => format!(
                    "{} examined a call",
                    or_unknown(row.server().totals.sums.docs_examined.mean().map(Count))
                ),
            };
            let plan = main_plan(row);
            let line = format!(
                "{:.1}, {evidence}, {}{}: {command} {text}",
                Percent(view.share(row)),
                if plan.is_empty() { UNKNOWN } else { plan },
                if row.server().totals.memory_sorts > 0 { ", sorted in memory" } else { "" },
            );
            writeln!(out, "    {}", escape(&line))?;
        }
        if one.rows.len() > SHOWN {
            writeln!(out, "    … and {}", plural(one.rows.len() - SHOWN, "more shape"))?;
        }
    }
    if all.len() > SHOWN {
        writeln!(out, "  … and {} (--json has all)", plural(all.len() - SHOWN, "more index"))?;
    }
    Ok(())
}

/// What stands out about shapes, beside the indexes that they want.
fn remarks(view: &DigestView<'_>, out: &mut impl Write) -> io::Result<()> {
    /// Remarks shown; JSON has all.
    const SHOWN: usize = 5;
    let all = super::remarks::remarks(view);
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nWhat else stands out:")?;
    for (row, remark) in all.iter().take(SHOWN) {
        let (command, namespace, text) = names(row, view.form);
        let what = remark.words(row);
        let line = format!("{:.1}, {what}: {command} {namespace} {text}", Percent(view.share(row)));
        writeln!(out, "  {}", escape(&line))?;
    }
    if all.len() > SHOWN {
        writeln!(out, "  … and {}", plural(all.len() - SHOWN, "more remark"))?;
    }
    Ok(())
}

fn summary(view: &DigestView<'_>, out: &mut impl Write) -> io::Result<()> {
    let (totals, server) = (&view.totals.figures, view.totals.server());
    if totals.calls == 0 {
        return writeln!(out, "No operations.");
    }
    let operations = plural(Count(totals.calls as f64), "operation");
    if totals.first_seen.is_known() {
        let length = Nanos(totals.last_seen.since(totals.first_seen));
        writeln!(out, "{operations} in {length}: {}", span(view, totals))?;
    } else {
        writeln!(out, "{operations}, {}", span(view, totals))?;
    }
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
        known("keys examined", server.totals.sums.keys_examined.get()),
        known("documents examined", server.totals.sums.docs_examined.get()),
        known("returned", totals.returned.get()),
        known("affected", totals.affected.get()),
        (server.totals.collection_scans > 0)
            .then(|| format!("collection scans {}", Count(server.totals.collection_scans as f64))),
        (server.totals.memory_sorts > 0)
            .then(|| format!("sorts in memory {}", Count(server.totals.memory_sorts as f64))),
        (totals.failed > 0).then(|| format!("failed {}", Count(totals.failed as f64))),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !facts.is_empty() {
        writeln!(out, "  {}", facts.join("  "))?;
    }
    waits(view, out)?;
    if view.source.precision_ns() > 1 {
        writeln!(
            out,
            "  Times are whole milliseconds, rounded down by the server: 0 is less than 1 ms, so means and quantiles are bounds."
        )?;
    }
    Ok(())
}

/// What operations waited for, as shares of the time of all, and what they spilled to disk.
fn waits(view: &DigestView<'_>, out: &mut impl Write) -> io::Result<()> {
    /// From this share of the time on, a wait is worth a word.
    const WORTH: f64 = 0.01;
    let sums = &view.totals.server().totals.sums;
    let time_ns = view.totals.executed().latency.sum_ns() as f64;
    let share = |ns: u64| (ns as f64 / time_ns.max(1.0)).min(1.0);
    let waits: Vec<_> = sums
        .waits()
        .iter()
        .filter(|wait| share(wait.total_ns) >= WORTH)
        .map(|wait| format!("{} {} ({:.1})", wait.words, Nanos(wait.total_ns), Percent(share(wait.total_ns))))
        .collect();
    if !waits.is_empty() {
        let whole = view.totals.figures.latency.sum_ns();
        let of = match view.totals.executed().latency.sum_ns() {
            known if known == whole => String::new(),
            known => {
                format!("; of {}, the time of the operations whose waits are known", Nanos(known as u64))
            }
        };
        writeln!(out, "  waited for: {}{of}", waits.join(", "))?;
    }
    if let Some(spills) = sums.spills.get().filter(|spills| *spills > 0) {
        let bytes = sums.spilled_bytes.get().map_or_else(String::new, |n| format!(", {}", Bytes(n as f64)));
        writeln!(out, "  spilled to disk: {}{bytes}", plural(Count(spills as f64), "time"))?;
    }
    Ok(())
}

/// What was lost, each counter with its meaning, and the other counters in one line.
fn counted(
    losses: &[(&'static str, u64)],
    none: &str,
    all: impl Iterator<Item = (&'static str, &'static str, u64)>,
    out: &mut impl Write,
) -> io::Result<()> {
    let lost: Vec<_> = losses.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let lost = if lost.is_empty() { none.to_owned() } else { format!("NOT IN FULL: {}", lost.join(", ")) };
    writeln!(out, "\nCoverage: {lost}")?;
    let is_loss = |name: &str| losses.iter().any(|(lost, _)| *lost == name);
    let (lost, others): (Vec<_>, Vec<_>) =
        all.filter(|(_, _, count)| *count > 0).partition(|(name, _, _)| is_loss(name));
    for (name, meaning, _) in lost {
        writeln!(out, "  {name}: {meaning}")?;
    }
    let others: Vec<_> = others.iter().map(|(name, _, count)| format!("{name} {count}")).collect();
    if !others.is_empty() {
        writeln!(out, "  {}", others.join("  "))?;
    }
    Ok(())
}

/// What a log tells beside operations: connections, starts, errors and warnings.
fn events(notices: &LogNotices, zone: &Zone, out: &mut impl Write) -> io::Result<()> {
    /// Lines shown of each kind; JSON has all.
    const SHOWN: usize = 10;
    if notices.accepted + notices.ended > 0 {
        write!(out, "\nConnections: {} accepted, {} ended", notices.accepted, notices.ended)?;
        if let Some(open) = notices.most_open {
            write!(out, ", max {open} open ({})", zone.show(notices.most_open_at))?;
        }
        writeln!(out)?;
        let mut clients: Vec<_> = notices.clients.iter().collect();
        clients.sort_by_key(|(app, count)| (std::cmp::Reverse(*count), app.label()));
        for (app, count) in clients.iter().take(SHOWN) {
            let driver = format!("{} {}", app.driver, app.driver_version);
            writeln!(out, "  {count:>8}  {}  {}", escape(&app.label()), escape(driver.trim()))?;
        }
        if clients.len() > SHOWN {
            writeln!(out, "  … and {}", plural(clients.len() - SHOWN, "more client"))?;
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
        writeln!(out, "… and {}", plural(notices.starts.len() - SHOWN, "more start"))?;
    }
    let slow = &notices.slow_replies;
    if slow.seen.count > 0 {
        let ms = |ms: u64| Nanos(ms.saturating_mul(1_000_000));
        writeln!(
            out,
            "\nSlow to send: {} in {}, the longest in {} (last {}): clients or the network took them slowly, not the server.",
            plural(Count(slow.seen.count as f64), "reply"),
            ms(slow.total_ms),
            ms(slow.longest_ms),
            zone.show(slow.seen.last)
        )?;
    }
    if !notices.messages.is_empty() {
        writeln!(out, "\nErrors and warnings:")?;
        let mut all: Vec<_> = notices.messages.iter().collect();
        all.sort_by_key(|(kind, seen)| (kind.severity, std::cmp::Reverse(seen.count)));
        for (kind, seen) in all.iter().take(SHOWN) {
            let id = kind.id.map_or_else(String::new, |id| format!("{id} "));
            writeln!(
                out,
                "  {:>8}  {:<7} {:<8} {id}{}  (last {})",
                seen.count,
                kind.severity.name(),
                escape(&kind.component),
                escape(&kind.text),
                zone.show(seen.last)
            )?;
        }
        if all.len() > SHOWN {
            writeln!(out, "  … and {}", plural(all.len() - SHOWN, "more kind"))?;
        }
    }
    Ok(())
}

/// A quantile, as precise as the source: below a millisecond it is a bound.
pub fn quantile(source: Source, figures: &Figures, q: f64) -> String {
    or_unknown(figures.latency.quantile_ns(q).map(|ns| duration(source, ns)))
}

/// A duration, as precise as the source.
pub fn duration(source: Source, ns: u64) -> String {
    let precision = source.precision_ns();
    // The bound of a bucket is not a whole number of milliseconds; what is in it is.
    if ns < precision { "<1ms".to_owned() } else { Nanos(ns / precision * precision).to_string() }
}

/// A mean; of durations that the source rounded down it is a lower bound.
pub fn mean(source: Source, figures: &Figures) -> String {
    or_unknown(mean_ns(figures).map(|ns| match (source.precision_ns(), ns.round() as u64) {
        (1, ns) => Nanos(ns).to_string(),
        // Not one took a whole millisecond.
        (_, 0) => "<1ms".to_owned(),
        (_, ns) => format!("≥{}", Nanos(ns)),
    }))
}

/// The time of all operations together.
fn total(source: Source, figures: &Figures) -> String {
    let precision = source.precision_ns();
    or_unknown(figures.known_latency_ns().map(|ns| match ns {
        // Each took less than that.
        0 if precision > 1 && figures.calls > 0 => {
            format!("<{}", Nanos(figures.calls.saturating_mul(precision)))
        }
        ns => Nanos(ns).to_string(),
    }))
}

fn rows<W: Write>(view: &DigestView<'_>, out: &mut Fitting<W>) -> io::Result<()> {
    const SPARK: usize = 12;
    if view.rows_total == 0 {
        if !view.filter.is_empty() && !view.digest.rows().is_empty() {
            writeln!(out, "\nNo row contains {}.", escape(&format!("{:?}", view.filter)))?;
        }
        return Ok(());
    }
    let by = view.digest.settings.by;
    let by_shape = matches!(by, GroupBy::Shape | GroupBy::Order);
    let mut headings = vec![
        Heading::figure("calls", 0),
        Heading::figure("time", 0),
        Heading::figure("mean", 4),
        Heading::figure("p50", 7),
        Heading::figure("p95", 6),
        Heading::figure("p99", 1),
        Heading::figure("max", 8),
        Heading::figure("keys", 9),
        Heading::figure("examined", 5),
        Heading::figure("ret", 10),
        Heading::figure("ex/ret", 3),
        Heading::figure("err", 11),
        Heading::figure("server", 12),
        Heading::figure("locks", 13),
        Heading::figure("profile", 12),
        Heading::figure("log", 12),
        Heading::text("waits", 3, 10),
        Heading::text("over time", 12, SPARK),
    ];
    let has_plan = by != GroupBy::Plan;
    headings.extend(has_plan.then_some(Heading::text("plan", 2, 10)));
    if by_shape {
        let shape = [("command", 9), ("namespace", 12), ("shape", 20)];
        headings.extend(shape.map(|(title, least)| Heading::text(title, 0, least)));
    } else {
        headings.push(Heading::text(by.name(), 0, 20));
    }
    let mut table = TextTable::new(&headings);
    for (_, row) in &view.rows {
        let (figures, server) = (row.figures(), &row.server().totals.sums);
        let source = row.sources().next().unwrap_or(view.source);
        let calls_in = |source: Source| {
            or_unknown(row.observed_by(source).map(|observed| Count(observed.figures.calls as f64)))
        };
        let per_call = |sum: Sum| or_unknown(sum.mean().map(Count));
        let cells = [
            Count(figures.calls as f64).to_string(),
            or_unknown(view.known_share(row).map(|share| format!("{:.1}", Percent(share)))),
            mean(source, figures),
            quantile(source, figures, 0.5),
            quantile(source, figures, 0.95),
            quantile(source, figures, 0.99),
            quantile(source, figures, 1.0),
            per_call(server.keys_examined),
            per_call(server.docs_examined),
            per_call(figures.returned),
            or_unknown(row.examined_per_returned().map(Count)),
            or_unknown(figures.known_failed().map(|failed| Count(failed as f64))),
            or_unknown(row.executed().map(|(source, figures)| self::mean(source, figures))),
            or_unknown(server.lock_wait_us.mean().map(|us| Nanos((us * 1_000.0) as u64))),
            calls_in(Source::Profile),
            calls_in(Source::Log),
            super::main_wait(row),
            calls_over_time(view, row, SPARK),
        ];
        let (command, namespace, text) = names(row, view.form);
        let name = if by_shape {
            vec![command, namespace, text]
        } else {
            vec![if namespace.is_empty() { text } else { namespace }]
        };
        table.row(cells.into_iter().chain(has_plan.then(|| plan(row))).chain(name));
    }
    // What this source knows of no operation has no column.
    let server = view.totals.server();
    let has_source = |name: &str| view.summaries.iter().any(|summary| summary.source.name() == name);
    table.keep(|title| match title {
        "keys" => server.totals.sums.keys_examined.known > 0,
        "examined" => server.totals.sums.docs_examined.known > 0,
        "ex/ret" => server.totals.sums.keys_examined.known + server.totals.sums.docs_examined.known > 0,
        "waits" => view.rows.iter().any(|(_, row)| !super::main_wait(row).is_empty()),
        "server" | "locks" => view.summaries.len() > 1,
        "profile" | "log" => view.summaries.len() > 1 && has_source(title),
        "plan" => by == GroupBy::Plan || !server.plans.is_empty(),
        _ => true,
    });
    writeln!(out)?;
    table.write(out)?;
    if view.rows_total > view.rows.len() {
        writeln!(out, "… and {}", plural(view.rows_total - view.rows.len(), "more row"))?;
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
    if server.totals.memory_sorts > 0 {
        text.push_str(" SORT");
    }
    if server.totals.used_disk > 0 || server.totals.sums.spills.get() > Some(0) {
        text.push_str(" DISK");
    }
    if text.is_empty() { UNKNOWN.to_owned() } else { text }
}
