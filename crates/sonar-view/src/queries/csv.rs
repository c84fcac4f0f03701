//! CSV (RFC 4180): a heading once, then a line for each row of each interval. A figure that is not
//! known is an empty field.

use std::io::{self, Write};

use crate::kit::{CsvLine, scaled};
use crate::queries::split::parts;
use crate::queries::{Grouping, ReportKey, ReportRow, WindowReport};
use crate::shown_part::ShownPart;

/// The fields that name a row, by grouping.
const fn key_fields(by: Grouping) -> &'static [&'static str] {
    match by {
        Grouping::Shape | Grouping::Order => &[
            "shape_id",
            "ordered_id",
            "ordered_ids",
            "command",
            "database",
            "collection",
            "shape",
            "role",
            "class",
            "server",
        ],
        Grouping::Namespace => &["namespace"],
        Grouping::App => &["app", "driver", "driver_version"],
        Grouping::Client => &["client"],
    }
}

/// The fields that every row has after those that name it.
const FIGURE_FIELDS: [&str; 29] = [
    "calls",
    "statements",
    "errors",
    "errors_by_code",
    "failed",
    "unanswered",
    "unacknowledged",
    "outcome_unknown",
    "latency_ns_p50",
    "latency_ns_p95",
    "latency_ns_p99",
    "latency_ns_p999",
    "latency_ns_max",
    "latency_ns_sum",
    "latency_ns_min",
    "latency_ns_count",
    "transfer_ns",
    "request_bytes",
    "response_bytes",
    "docs_returned",
    "docs_affected",
    "apps",
    "clients",
    "in_flight",
    "oldest_in_flight_ns",
    "first_seen",
    "last_seen",
    "time_share",
    "since",
];

/// Writes the heading.
///
/// # Errors
/// Those of `out`.
pub fn heading(by: Grouping, mut out: impl Write) -> io::Result<()> {
    let mut line = CsvLine::default();
    ["kind", "start_ns", "end_ns", "sample"]
        .iter()
        .chain(key_fields(by))
        .chain(&FIGURE_FIELDS)
        .for_each(|field| line.text(field));
    ShownPart::all().for_each(|part| line.text(&format!("split_{}_ns", part.name())));
    line.text("split_operations");
    line.text("tls_operations");
    line.write(&mut out)
}

/// Writes the rows of a report, the same figures as [`crate::queries::json::report`] does.
///
/// # Errors
/// Those of `out`.
pub fn rows(
    report: &WindowReport<'_>,
    kind: crate::queries::json::ObjectKind,
    mut out: impl Write,
) -> io::Result<()> {
    let mut line = CsvLine::default();
    for row in &report.rows {
        line.text(kind.name());
        line.figure(Some(report.start.unix_ns()));
        line.figure(Some(report.end.unix_ns()));
        line.figure(Some(report.sample));
        key(&mut line, row, report);
        figures(&mut line, row, report.sample);
        let sum = |stats: &crate::queries::Stats<'_>| stats.figures.latency.sum_ns() as f64;
        let known = row.stats.figures.known_latency_ns();
        line.figure(known.map(|_| format!("{:.6}", sum(&row.stats) / sum(&report.totals).max(1.0))));
        line.figure(row.against.map(|against| against.status.name()));
        let parts = row.split.as_deref().map(parts);
        for part in ShownPart::all() {
            let ns = |parts: &Vec<_>| parts.iter().find(|(one, _)| *one == part).map_or(0, |(_, ns)| *ns);
            line.figure(parts.as_ref().map(ns));
        }
        line.figure(row.split.as_ref().map(|split| split.operations));
        line.figure(row.stats.figures.tls.get().map(|count| scaled(count, report.sample)));
        line.write(&mut out)?;
    }
    Ok(())
}

fn key(line: &mut CsvLine, row: &ReportRow<'_>, report: &WindowReport<'_>) {
    match &row.key {
        ReportKey::Shape { key, shape } => {
            let ids = row.ordered_ids();
            let order = if key.order.0 != 0 {
                Some(key.order)
            } else {
                ids.first().copied().filter(|_| ids.len() == 1)
            };
            line.figure(Some(key.shape));
            line.figure(order);
            line.figure(Some(ids.len()));
            for text in
                [&*shape.command, &*shape.database, &*shape.collection, report.selection.form.of(shape)]
            {
                line.text(text);
            }
            line.text(key.role.name());
            line.text(key.class.name());
            line.figure(Some(key.server));
        }
        ReportKey::Namespace { .. } => line.text(&row.namespace().unwrap_or_default()),
        ReportKey::App(app) => {
            for text in [&*app.label(), &*app.driver, &*app.driver_version] {
                line.text(text);
            }
        }
        ReportKey::Client(ip) => line.figure(Some(ip)),
        ReportKey::Other => {
            line.text("other");
            (1..key_fields(report.selection.by).len()).for_each(|_| line.text(""));
        }
    }
}

fn figures(line: &mut CsvLine, row: &ReportRow<'_>, sample: u32) {
    let (stats, figures) = (&row.stats, &row.stats.figures);
    let times = |n| Some(scaled(n, sample));
    line.figure(times(figures.calls));
    line.figure(times(figures.statements));
    line.figure(figures.known_errors().and_then(times));
    let mut codes: Vec<_> = figures.errors.iter().copied().collect();
    codes.sort_unstable();
    let code = |(code, count): &(i32, u64)| format!("{code}={}", scaled(*count, sample));
    line.text(&codes.iter().map(code).collect::<Vec<_>>().join(";"));
    line.figure(figures.known_failed().and_then(times));
    line.figure(times(figures.unanswered));
    line.figure(times(figures.unacknowledged));
    line.figure(times(figures.outcome_unknown));
    line.figure(stats.quantiles.p50);
    line.figure(stats.quantiles.p95);
    line.figure(stats.quantiles.p99);
    line.figure(stats.quantiles.p999);
    line.figure(stats.quantiles.max);
    line.figure(figures.known_latency_ns().and_then(times));
    line.figure(figures.latency.min_ns());
    line.figure(times(figures.latency.count()));
    line.figure(figures.known_transfer_ns().and_then(times));
    line.figure(figures.known_request_bytes().and_then(times));
    line.figure(figures.known_response_bytes().and_then(times));
    line.figure(figures.returned.get().and_then(times));
    line.figure(figures.affected.get().and_then(times));
    let calls = |name: String, calls: u64| format!("{name}={}", scaled(calls, sample));
    let list = |entries: Vec<String>| entries.join(";");
    line.text(&row.apps().map_or_else(String::new, |apps| {
        list(apps.entries.iter().map(|(app, share)| calls(app.label(), share.calls)).collect())
    }));
    line.text(&row.clients().map_or_else(String::new, |clients| {
        list(clients.entries.iter().map(|(ip, share)| calls(ip.to_string(), share.calls)).collect())
    }));
    line.figure(stats.in_flight.and_then(|waiting| times(waiting.count)));
    line.figure(stats.in_flight.and_then(|waiting| waiting.oldest_ns));
    let seen = |time: sonar_core::Timestamp| (figures.calls > 0).then(|| time.unix_ns());
    line.figure(seen(figures.first_seen));
    line.figure(seen(figures.last_seen));
}
