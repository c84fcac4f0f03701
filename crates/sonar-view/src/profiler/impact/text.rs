//! `profiler impact` as text: tables, a chart, verdicts.

use std::io::{self, Write};

use sonar_core::impact::{BUCKET_NS, Cell, ImpactRun, LoadSlice, LongRun, Loss};
use sonar_core::time::NS_PER_S;

use super::verdict::{bottleneck, long_verdict, verdicts};
use super::{ImpactReport, Used, name};
use crate::kit::{
    Bytes, Count, Fitting, Heading, Nanos, Percent, TextTable, UNKNOWN, escape, or_unknown, plural, sparkline,
};

/// Columns of a chart in a terminal.
const CHART: usize = 60;

/// Writes the verdicts, the tables and the chart.
///
/// # Errors
/// Those of `out`.
pub fn text<W: Write>(report: &ImpactReport<'_>, out: &mut Fitting<W>) -> io::Result<()> {
    let (run, cells) = (report.run, report.run.cells());
    for line in verdicts(run) {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "{}\n", bottleneck(run, &cells))?;
    writeln!(out, "{}", title(report))?;
    writeln!(out)?;
    cost(run, &cells).write(out)?;
    writeln!(out)?;
    usage(run, &cells).write(out)?;
    writeln!(
        out,
        "\nThroughput over time (the slices of each level one after another; full height: the maximum of all)"
    )?;
    chart(run).write(out)?;
    out.flush()
}

fn title(report: &ImpactReport<'_>) -> String {
    let run = report.run;
    let slice = run.slices.first().map_or(0, |slice| slice.length_ns);
    let rounds = run.slices.iter().map(|slice| slice.round + 1).max().unwrap_or(0);
    format!(
        "Impact of profiling on {}: OLTP mix on {}, {} of {} for each level and number of clients, in alternation",
        escape(report.site.server),
        plural(report.documents, "document"),
        plural(rounds, "round"),
        Nanos(slice),
    )
}

/// Throughput and latency at each number of clients and each level.
fn cost(run: &ImpactRun, cells: &[Cell]) -> TextTable {
    let mut table = TextTable::new(&[
        Heading::whole("clients", 0),
        Heading::figure("level", 0),
        Heading::figure("ops/s", 0),
        Heading::figure("loss", 0),
        Heading::figure("sure", 4),
        Heading::figure("p50", 1),
        Heading::figure("p95", 3),
        Heading::figure("p99", 0),
        Heading::figure("max", 2),
        Heading::whole("", 0),
    ])
    .titled("sure", format!("{} sure", Percent(run.confidence)))
    .spaced();
    for cell in cells {
        let quantile = |q| or_unknown(cell.latency.quantile_ns(q).map(Nanos));
        let of_loss = |text: &dyn Fn(&Loss) -> String| cell.loss.as_ref().map_or_else(String::new, text);
        table.row([
            cell.clients.to_string(),
            name(run, cell.variant),
            Count(cell.throughput).to_string(),
            of_loss(&|loss| format!("{:.1}", Percent(loss.share))),
            of_loss(&|loss| format!("{:.1} to {:.1}", Percent(loss.low), Percent(loss.high))),
            quantile(0.5),
            quantile(0.95),
            quantile(0.99),
            or_unknown(cell.latency.max_ns().map(Nanos)),
            of_loss(&|loss| if loss.differs() { "different" } else { "no difference" }.to_owned()),
        ]);
    }
    table
}

/// What the server and its machine used meanwhile.
fn usage(run: &ImpactRun, cells: &[Cell]) -> TextTable {
    let mut table = TextTable::new(&[
        Heading::whole("clients", 0),
        Heading::figure("level", 0),
        Heading::figure("server cpu", 0),
        Heading::figure("load cpu", 3),
        Heading::figure("host cpu", 0),
        Heading::figure("disk", 0),
        Heading::figure("written/s", 2),
        Heading::figure("log/s", 4),
        Heading::figure("lock waits/s", 5),
        Heading::figure("lock wait/s", 1),
    ])
    .spaced();
    for cell in cells {
        let used = Used::of(run, &cell.used, cell.length_ns);
        let share = |share: Option<f64>| or_unknown(share.map(Percent));
        table.row([
            cell.clients.to_string(),
            name(run, cell.variant),
            share(used.server),
            share(used.load),
            share(used.host),
            share(used.disk),
            or_unknown(used.written.map(Bytes)),
            or_unknown(used.log.map(Bytes)),
            or_unknown(used.lock_waits.map(Count)),
            or_unknown(used.lock_wait_ns.map(|ns| Nanos(ns as u64))),
        ]);
    }
    table
}

fn chart(run: &ImpactRun) -> TextTable {
    let most = run.slices.iter().map(LoadSlice::throughput).fold(0.0, f64::max);
    let mut table =
        TextTable::new(&[Heading::whole("", 0), Heading::figure("", 0), Heading::whole("", 0)]).spaced();
    for clients in run.clients() {
        for variant in 0..run.variants.len() {
            let slices =
                run.slices.iter().filter(|slice| slice.clients == clients && slice.variant == variant);
            let series: Vec<f64> = slices.flat_map(rates).collect();
            table.row([clients.to_string(), name(run, variant), spark(&series, most)]);
        }
    }
    table
}

/// Operations a second in each bucket that was whole.
fn rates(slice: &LoadSlice) -> impl Iterator<Item = f64> + '_ {
    let whole = (slice.length_ns / BUCKET_NS) as usize;
    slice.buckets.iter().take(whole.max(1)).map(|count| *count as f64 * (NS_PER_S / BUCKET_NS) as f64)
}

/// A series in at most [`CHART`] characters.
fn spark(series: &[f64], most: f64) -> String {
    let per = series.len().div_ceil(CHART).max(1);
    sparkline(series.chunks(per).map(|part| part.iter().sum::<f64>() / part.len() as f64), most)
}

/// Writes what a long run showed: throughput over time, the moment of the wrap, before against after.
///
/// # Errors
/// Those of `out`.
pub fn long_text<W: Write>(server: &str, long: &LongRun, out: &mut Fitting<W>) -> io::Result<()> {
    writeln!(out, "{}", long_verdict(long))?;
    writeln!(
        out,
        "Long run on {}: level {}, {}, {} s",
        escape(server),
        long.variant.map_or_else(|| UNKNOWN.to_owned(), |variant| variant.to_string()),
        plural(long.clients, "client"),
        long.seconds.len(),
    )?;
    let series: Vec<f64> = long.seconds.iter().map(|n| *n as f64).collect();
    let most = series.iter().copied().fold(0.0, f64::max);
    writeln!(out, "{}  max {} ops/s", spark(&series, most), Count(most))?;
    if let (Some(ns), false) = (long.wrapped_ns, series.is_empty()) {
        let per = series.len().div_ceil(CHART).max(1);
        let column = (ns / NS_PER_S) as usize / per;
        writeln!(out, "{}^ system.profile wraps from here on", " ".repeat(column))?;
    }
    out.flush()
}
