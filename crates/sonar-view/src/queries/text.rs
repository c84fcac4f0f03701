//! Plain text: a table for each interval, and the summary at the end.

use std::io::{self, Write};

use sonar_core::time::NS_PER_S;
use sonar_core::{CommandType, Coverage, Timestamp};

use crate::kit::{self, Count, HiddenContext, Nanos, UNKNOWN, escape, or_unknown, plural, scaled, wrap};
use crate::queries::advice::{advice, snap_length};
use crate::queries::column::Column;
use crate::queries::layout::{Placed, place, push_cell};
use crate::queries::server_state::StateTime;
use crate::queries::{ReportKey, Selection, WindowReport};

/// Writes one interval: a line of totals, the rows, what is not shown, and what was lost. `width` is that
/// of the terminal; `None` leaves the last column as long as it is.
///
/// # Errors
/// Those of `out`.
pub fn interval(report: &WindowReport<'_>, width: Option<usize>, mut out: impl Write) -> io::Result<()> {
    let partial = match report.is_partial {
        true => format!("  (partial: {})", Nanos(report.length_ns)),
        false => String::new(),
    };
    writeln!(out, "{}{partial}  {}", clock(report), totals(report))?;
    servers(report, width, &mut out)?;
    rows(report, place(report, width), width, &mut out)?;
    paragraph(&coverage(report.coverage), width, &mut out)?;
    writeln!(out)
}

/// Writes the summary: the span, totals, the rows, what is not shown, and the coverage: one line where
/// nothing was lost or left out, else every counter that is not zero.
///
/// # Errors
/// Those of `out`.
pub fn summary(report: &WindowReport<'_>, width: Option<usize>, mut out: impl Write) -> io::Result<()> {
    let figures = &report.totals.figures;
    let zone = &report.selection.zone;
    if report.end == Timestamp::default() {
        // Without packets there is no time.
        writeln!(out, "Summary: no packets")?;
    } else {
        let (start, end) = (zone.show(report.start), zone.show(report.end));
        write!(out, "Summary of {}: {start} to {end}", Nanos(report.length_ns))?;
        match report.elapsed_ns {
            0 if report.length_ns > 1 && figures.calls > 0 => {
                writeln!(out, ", none of it observed: these operations come from a log")?;
            }
            0 if report.length_ns > 1 => writeln!(out, ", none of it observed")?,
            ns if ns > 0 && ns < report.length_ns => writeln!(out, ", of which {} were observed", Nanos(ns))?,
            _ => writeln!(out)?,
        }
    }
    report.notes.iter().try_for_each(|note| paragraph(&format!("  {note}"), width, &mut out))?;
    writeln!(out, "  {}", totals(report))?;
    let quantiles = report.totals.quantiles;
    let shown = |ns: Option<u64>| or_unknown(ns.map(Nanos));
    writeln!(
        out,
        "  latency  p50 {}  p95 {}  p99 {}  p99.9 {}  max {}",
        shown(quantiles.p50),
        shown(quantiles.p95),
        shown(quantiles.p99),
        shown(quantiles.p999),
        shown(quantiles.max)
    )?;
    if let Some(rates) = type_rates(report) {
        let rates = rates.map(|(name, rate)| format!("{name} {}{}/s", report.mark(), Count(rate)));
        write!(out, "  {}", rates.join("  "))?;
        if report.commands_unknown > 0 {
            let unknown = scaled(report.commands_unknown, report.sample);
            write!(out, "; {} of unknown command", plural(unknown, "operation"))?;
        }
        // By choice, or by a snap length.
        let is_cut = report.coverage.messages_snapped + report.coverage.messages_partial > 0;
        writeln!(out, "{}", if is_cut { "; at least, as messages are cut" } else { "" })?;
    }
    let ends = [
        ("failed", figures.failed),
        ("unanswered", figures.unanswered),
        ("unacknowledged", figures.unacknowledged),
        ("outcome not known", figures.outcome_unknown),
    ];
    write!(out, "  {}{}", report.mark(), plural(scaled(figures.calls, report.sample), "operation"))?;
    for (name, count) in ends.into_iter().filter(|(_, count)| *count > 0) {
        write!(out, ", {}{} {name}", report.mark(), scaled(count, report.sample))?;
    }
    writeln!(out, "{}", whatever(report))?;
    servers(report, width, &mut out)?;
    if report.sample > 1 {
        writeln!(out, "  One connection in {} was captured; figures marked ~ are scaled up.", report.sample)?;
    }
    writeln!(out)?;
    let mut placed = place(report, width);
    // After a run the number of calls matters more than their rate.
    for placed in placed.iter_mut().filter(|placed| placed.column == Column::Calls) {
        placed.column = Column::Count;
    }
    rows(report, placed, width, &mut out)?;
    writeln!(out)?;
    paragraph(&format!("Coverage: {}", coverage(report.coverage)), width, &mut out)?;
    if !is_whole(report.coverage) {
        for (name, meaning, count) in report.coverage.iter().filter(|(_, _, count)| *count > 0) {
            writeln!(out, "  {count:>14}  {name:<26} {meaning}")?;
        }
    }
    Ok(())
}

/// Operations per second by type of command, as `mongostat` counts them, scaled; `None` if they are not known.
pub(crate) fn type_rates(report: &WindowReport<'_>) -> Option<[(&'static str, f64); CommandType::ALL.len()]> {
    let types = report.types?;
    let observed_ns = Some(report.elapsed_ns).filter(|ns| *ns > 0)?;
    let per_second = f64::from(report.sample) * NS_PER_S as f64 / observed_ns as f64;
    Some(std::array::from_fn(|at| (CommandType::ALL[at].name(), types[at] as f64 * per_second)))
}

/// The end of the span, in the selected time zone.
pub(crate) fn clock(report: &WindowReport<'_>) -> String {
    report.selection.zone.show_seconds(report.end).to_string()
}

/// What to say beside totals, which include the operations that a filter leaves out.
fn whatever(report: &WindowReport<'_>) -> &'static str {
    let Selection { text, namespace, .. } = report.selection;
    if text.is_empty() && namespace.text().is_empty() { "" } else { ", before the filter" }
}

/// Totals in one line.
pub(crate) fn totals(report: &WindowReport<'_>) -> String {
    let (rates, mark) = (report.totals.rates, report.mark());
    let rate = |rate, unit| report.rate(rate, unit);
    let mut line = format!(
        "{}{}: {} queries per second  load {}  p99 {}  errors {}  in {}  out {}",
        report.selection.classes.label(),
        whatever(report),
        rate(rates.calls, ""),
        rate(rates.load, ""),
        or_unknown(report.totals.quantiles.p99.map(Nanos)),
        rate(rates.errors, "/s"),
        rate(rates.request_bytes, "B/s"),
        rate(rates.response_bytes, "B/s"),
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

/// What was lost, in one line: `nothing lost`, or each loss in words, the largest number first.
pub fn losses(coverage: &Coverage) -> String {
    let lost = kit::losses(coverage);
    if lost.is_empty() { "nothing lost".to_string() } else { format!("LOST: {}", lost.join(", ")) }
}

/// Whether nothing was lost or left out, and all that was read is known in full.
fn is_whole(coverage: &Coverage) -> bool {
    let mut others = coverage.unread().chain(coverage.skipped()).chain(coverage.in_part());
    coverage.losses().next().is_none() && others.next().is_none()
}

/// What was lost, what was not read, left out or known in part, and what was joined late, in one line. It says `nothing
/// lost` only if there is none of the first four.
pub fn coverage(coverage: &Coverage) -> String {
    let named = |label: &str, counters: Vec<(&'static str, &str, u64)>| {
        let list = kit::in_words(coverage, counters.into_iter());
        (!list.is_empty()).then(|| format!("{label}: {}", list.join(", ")))
    };
    let lost = is_whole(coverage) || coverage.losses().next().is_some();
    let lost = lost.then(|| losses(coverage));
    let unread = named("not read", coverage.unread().collect());
    let skipped = named("left out as asked", coverage.skipped().collect());
    let advice = advice(coverage);
    // The advice says of packets that a snap length cut where it cut them.
    let is_said = |name: &str| name.ends_with("_snapped") && snap_length(coverage).is_some();
    let in_part = named("known in part", coverage.in_part().filter(|(name, ..)| !is_said(name)).collect());
    // Where one direction is missing, most of the others follow from that.
    let is_cause = coverage.streams_one_way > 0 && snap_length(coverage).is_none();
    let (cause, advice) = if is_cause { (advice, None) } else { (None, advice) };
    let parts = [cause, lost, unread, skipped, in_part, joined_late(coverage), advice];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// What began before the capture. What connections joined late imply is not said again.
fn joined_late(coverage: &Coverage) -> Option<String> {
    const IMPLIED: [&str; 4] =
        ["replies_joined_late", "cursors_joined_late", "joined_late_bytes", "tls_joined_late"];
    let connections = coverage.streams_joined_late;
    let others = coverage
        .joined_late()
        .filter(|(name, ..)| *name != "streams_joined_late" && (connections == 0 || !IMPLIED.contains(name)));
    let late =
        (connections > 0).then(|| format!("{} joined late", plural(kit::Grouped(connections), "connection")));
    let parts: Vec<_> = late.into_iter().chain(kit::in_words(coverage, others)).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The state of each server at the end of the span, as far as it is known.
fn servers(report: &WindowReport<'_>, width: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    let lines = report.servers.iter().map(|server| server.line(StateTime::Past(report.end)));
    lines.into_iter().try_for_each(|line| paragraph(&format!("  {line}"), width, out))
}

/// Writes a text, broken at the width of the terminal.
fn paragraph(text: &str, width: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    let text = escape(text);
    match width {
        Some(width) => wrap(&text, width).iter().try_for_each(|line| writeln!(out, "{line}")),
        None => writeln!(out, "{text}"),
    }
}

fn rows(
    report: &WindowReport<'_>,
    mut placed: Vec<Placed>,
    width: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    let cells: Vec<Vec<String>> = report
        .rows
        .iter()
        .map(|row| placed.iter().map(|placed| placed.cell(row, report)).collect())
        .collect();
    if width.is_none() {
        // Nothing is cut: each column is as wide as its widest cell, the last one is not filled.
        for (at, placed) in placed.iter_mut().enumerate() {
            let widest = cells.iter().map(|row| kit::width(&escape(&row[at]))).max().unwrap_or(0);
            placed.width = placed.width.max(widest);
        }
        if let Some(last) = placed.last_mut() {
            last.width = usize::MAX;
        }
    }
    let heading = placed.iter().map(|placed| placed.title(report)).collect();
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
        paragraph(&format!("{UNKNOWN} {}", empty(report)), width, out)?;
    }
    if report.rows_total > report.rows.len() {
        let more = plural(report.rows_total - report.rows.len(), "more row");
        writeln!(out, "… and {more} (--limit {} shows all)", report.rows_total)?;
    }
    let twice = (report.named_twice > 0).then(|| {
        let operations = plural(scaled(report.named_twice, report.sample), "operation");
        format!("In two rows: {operations}, for which the log names another application than the wire")
    });
    let hidden = report.hidden.line(report.sample, HiddenContext::CommandLine);
    hidden
        .into_iter()
        .chain(twice)
        .chain(joined_late_hint(report))
        .try_for_each(|line| paragraph(&line, width, out))
}

/// Why applications have no name, and what may name them, if any has none because of it.
fn joined_late_hint(report: &WindowReport<'_>) -> Option<String> {
    let is_late =
        |key: &ReportKey<'_>| matches!(key, ReportKey::App(app) if app.name.is_empty() && app.joined_late);
    report.rows.iter().any(|row| is_late(&row.key)).then(|| {
        match report.is_stored {
            true => {
                "joined late: connections that were open before the agent saw them, and whose applications no log that it \
                 reads names (`mongosonar agent --status` says which logs it follows)"
            }
            false => {
                "joined late: connections that were open before the capture began; the server's log (--log FILE) or a \
                 running server (--uri URI) may name their applications"
            }
        }
        .to_owned()
    })
}

/// Why there is no row.
pub(crate) fn empty(report: &WindowReport<'_>) -> String {
    if let Some(silence) = &report.silence {
        return silence.text();
    }
    if report.hidden.operations() == 0 {
        return "No operations.".to_owned();
    }
    let role = report.selection.role.map_or_else(String::new, |role| format!(", role {role}"));
    let filtered = if report.selection.text.is_empty() { "" } else { ", that match the filter" };
    format!("No operations of class {}{role}{filtered}.", report.selection.classes.label())
}

/// What each column means, for `--help` and the live view's help.
pub fn legend() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    Column::ALL.into_iter().map(|column| (column.name(), column.title(), column.meaning()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_lost_is_said_only_if_nothing_was_left_out() {
        let read = Coverage { frames: 100, frames_decoded: 100, ..Coverage::default() };
        assert_eq!(coverage(&read), "nothing lost");
        assert_eq!(
            coverage(&Coverage { streams_joined_late: 2, ..read }),
            "nothing lost; 2 connections joined late"
        );
        const NOT_READ: &str = "not read: packets that are neither IPv4 nor IPv6: 3 of 100 packets, IP packets that \
                                carry no TCP: 12 of 100 packets";
        let other = Coverage { frames_not_ip: 3, frames_not_tcp: 12, ..read };
        assert_eq!(coverage(&other), NOT_READ);
        let asked = Coverage { frames_other_port: 5, ..read };
        assert_eq!(
            coverage(&asked),
            "left out as asked: TCP segments of ports that are not to be captured: 5 of 100 packets"
        );
        let lost = Coverage { gaps: 1, ..other };
        assert_eq!(coverage(&lost), format!("LOST: gaps: 1; {NOT_READ}"));
        let unfinished = Coverage { messages: 9, messages_unfinished: 1, ..read };
        assert_eq!(
            coverage(&unfinished),
            "known in part: messages that the end of the capture cut: 1 of 9 messages"
        );
        let cut =
            Coverage { frames_snapped: 3, frames_snapped_bytes: 3 * 96, segments_snapped: 3, ..unfinished };
        assert_eq!(
            coverage(&cut),
            "known in part: messages that the end of the capture cut: 1 of 9 messages; packets are cut at 96 bytes: \
             capture with -s 0"
        );
        let one_way = Coverage { segments_snapped: 3, streams: 2, streams_one_way: 2, ..read };
        let line = coverage(&one_way);
        assert!(line.contains("known in part: ") && line.contains("cut by a snap length"), "{line}");
        assert!(line.starts_with("only one direction of 2 of 2 connections"), "{line}");
        let line = coverage(&Coverage { requests_reply_lost: 9, ..one_way });
        assert!(line.starts_with("only one direction of 2") && line.contains("; LOST: "), "{line}");
        let late = Coverage { replies: 9, replies_joined_late: 1, streams_tls_joined_late: 2, ..read };
        const TLS: &str = "encrypted connections whose handshake was before the capture: 2";
        assert_eq!(
            coverage(&Coverage { streams: 3, streams_joined_late: 3, ..late }),
            format!("nothing lost; 3 connections joined late, {TLS} of 3 connections"),
            "replies to earlier requests are part of joining late"
        );
        assert_eq!(
            coverage(&late),
            format!(
                "nothing lost; {TLS}, replies to requests that were sent before the capture began: 1 of 9 replies"
            )
        );
    }

    /// Counters that say what was read, and how: they take nothing away from `nothing lost`.
    const HARMLESS: [(&str, &str); 32] = [
        (
            "resyncs",
            "what such a search skips is counted in resync_bytes, and what was lost before it in gap_bytes",
        ),
        ("frames", "all packets; later counters say what became of them"),
        ("frames_decoded", "packets that were read"),
        ("frames_snapped_bytes", "the length to which frames_snapped were cut"),
        ("frames_tunnelled", "packets that were read, inside a tunnel"),
        ("frames_twin_loopback", "the first copy was read"),
        ("frames_twin_interface", "the first copy was read"),
        ("frames_twin_nat", "the first copy was read"),
        ("segments_empty", "there is nothing to read"),
        ("segments_data", "segments that were read"),
        ("segments_duplicate", "the first copy was read"),
        (
            "segments_ignored",
            "their connections are counted: as encrypted, as another protocol, or as read in the process",
        ),
        ("segments_reordered", "segments that were read, in order"),
        ("streams", "all connections"),
        ("streams_proxied", "connections that were read"),
        ("streams_tls_read", "connections that were read, in the process of their server"),
        ("streams_tls_decrypted", "connections that were read, with a key log"),
        ("streams_tls_silent", "nothing but a handshake was sent"),
        ("streams_idle", "all that they sent was read; what they send later counts as joined late"),
        ("messages", "all messages; later counters say what became of them"),
        ("messages_decoded", "messages that were read"),
        ("checksums_verified", "messages that were read"),
        ("requests", "all requests; later counters say what became of them"),
        ("requests_answered", "operations with their outcome"),
        ("requests_unanswered", "operations with their outcome, which the summary names"),
        ("requests_in_flight", "operations with their outcome, which the summary names"),
        ("requests_unacknowledged", "operations with their outcome, which the summary names"),
        ("requests_folded", "part of the operation before them"),
        ("replies", "all replies; later counters say what became of them"),
        ("replies_paired", "replies that were read"),
        ("replies_exhaust", "replies that were read"),
        ("operations_late", "operations with all their figures, in a later window"),
    ];

    #[test]
    fn every_counter_is_named_unless_it_says_what_was_read() {
        let harmless = HARMLESS.map(|(name, _)| name);
        assert!(harmless.iter().all(|name| Coverage::NAMES.contains(name)));
        for (at, name) in Coverage::NAMES.iter().enumerate() {
            let mut values = [0; Coverage::COUNT];
            values[at] = 1_234_567;
            let alone = Coverage::from_values(values);
            let line = coverage(&alone);
            if harmless.contains(name) {
                assert_eq!(line, "nothing lost", "{name}");
                continue;
            }
            let is_late = alone.joined_late().next().is_some();
            assert_eq!(line.starts_with("nothing lost; "), is_late, "{name}: {line}");
            let is_advised = *name == "frames_snapped" && line.contains("capture with -s 0");
            assert!(is_advised || line.contains("1,234,567"), "{name} is not named: {line}");
        }
    }
}
