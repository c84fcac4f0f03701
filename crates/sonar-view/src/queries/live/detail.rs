//! The page of one row.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use sonar_core::figures::{Figures, Share};
use sonar_core::histogram::{Histogram, upper_bound_ns};
use sonar_core::operation::WaitingOperation;
use sonar_core::row::MAX_ORDERED_IDS;
use sonar_core::time_split::{OTHER, RowSplit, TimePart};
use sonar_core::{Endpoint, Window};

use super::App;
use super::history::{History, HistoryPoint, POINTS};
use super::palette::Palette;
use crate::kit::{
    Count, Nanos, UNKNOWN, escape, fit, or_unknown, plural, push_padded, share, sparkline, width, wrap,
};
use crate::queries::layout::{suites_of, tls_share};
use crate::queries::split::{SplitGroup, doing, longest_files, longest_waits, parts};
use crate::queries::{Callers, NamespaceFilter, ReportKey, ReportRow, Selection, WindowReport};

/// The most bars of the histogram.
const MAX_BARS: usize = 14;
/// The most applications, clients, error codes shown.
const MAX_LISTED: usize = 10;

pub(super) fn lines<'a>(app: &App, shown: Option<&Window>, identity: u64, columns: usize) -> Vec<Line<'a>> {
    let palette = Palette::new(app.settings.color);
    // The row stays open whatever the filters say.
    let selection = Selection {
        text: String::new(),
        namespace: NamespaceFilter::Any,
        limit: None,
        ..app.selection().clone()
    };
    let gone = || {
        vec![Line::styled(
            " This row has had no operations since the view last changed (Esc goes back).",
            palette.dim,
        )]
    };
    let Some((window, in_shown)) = app.observed.window_of(shown, &selection, identity) else { return gone() };
    let report = WindowReport::new(window, &selection);
    let Some(row) = report.rows.iter().find(|row| row.identity == identity) else { return gone() };

    let mut lines = vec![title(row, palette)];
    let span = match in_shown {
        true => app.observed.span(report.elapsed_ns, &selection.zone),
        false => "silent now; figures since start".to_string(),
    };
    lines.extend(fill(&span, figures(row, &report), columns, palette));
    lines.extend(texts(row, columns, palette));
    if let Some(split) = &row.split {
        lines.push(Line::default());
        lines.extend(split_lines(split, columns, palette));
    }
    if !row.in_progress.is_empty() {
        lines.push(Line::default());
        lines.extend(section("In flight now, the oldest first", in_progress(row), palette));
    }
    lines.push(Line::default());
    // It is that of the last minute, whatever window is shown.
    if app.past().is_none() {
        lines.extend(sparklines(row, app.observed.history.shown(), columns, palette));
        lines.push(Line::default());
    }

    let lists = [
        section("Applications", callers(row.apps(), |app| app.label(), row, &report), palette),
        section("Clients", callers(row.clients(), ToString::to_string, row, &report), palette),
        section("Errors", errors(&row.stats.figures, &report), palette),
    ]
    .concat();
    if columns >= 100 {
        let left = columns / 2;
        lines.extend(beside(histogram(&row.stats.figures.latency, left, palette), lists, left));
    } else {
        lines.extend(histogram(&row.stats.figures.latency, columns, palette));
        lines.push(Line::default());
        lines.extend(lists);
    }
    lines
}

/// Who served or issued operations.
fn who(server: Endpoint) -> String {
    match server.ip().is_unspecified() {
        true => format!("the server at port {}", server.port),
        false => server.to_string(),
    }
}

fn title<'a>(row: &ReportRow<'_>, palette: Palette) -> Line<'a> {
    let (name, rest) = match &row.key {
        ReportKey::Shape { key, shape } => (
            format!("{} {}", shape.command, shape.namespace()),
            format!("{} by {} · class {}", key.role, who(key.server), key.class),
        ),
        ReportKey::Namespace { .. } => (row.namespace().unwrap_or_default(), "namespace".to_string()),
        ReportKey::App(app) => (app.label(), format!("{} {}", app.driver, app.driver_version)),
        ReportKey::Client(ip) => (ip.to_string(), "client".to_string()),
        ReportKey::Other => ("other".to_string(), "what did not fit into the table".to_string()),
    };
    Line::from(vec![
        Span::styled(format!(" {}", escape(&name)), palette.strong),
        Span::styled(format!("   {}", escape(&rest)), palette.dim),
    ])
}

/// The figures of a row, with their names.
fn figures(row: &ReportRow<'_>, report: &WindowReport<'_>) -> Vec<(&'static str, String)> {
    let (stats, mark) = (&row.stats, report.mark());
    let (rates, figures) = (stats.rates, &stats.figures);
    let marked = |value: f64| format!("{mark}{}", Count(value));
    let scaled = |count: u64| marked(count as f64 * f64::from(report.sample));
    let shown = |ns: Option<u64>| or_unknown(ns.map(Nanos));
    let docs = |docs: Option<f64>| or_unknown(docs.map(Count));
    let mean = (figures.latency.count() > 0)
        .then(|| figures.latency.sum_ns() / u128::from(figures.latency.count()))
        .and_then(|ns| u64::try_from(ns).ok());
    let mut pairs = vec![
        ("calls", scaled(figures.calls)),
        ("calls/s", report.rate(rates.calls, "")),
        ("load", report.rate(rates.load, "")),
        ("statements", scaled(figures.statements)),
        ("p50", shown(stats.quantiles.p50)),
        ("p95", shown(stats.quantiles.p95)),
        ("p99", shown(stats.quantiles.p99)),
        ("p99.9", shown(stats.quantiles.p999)),
        ("max", shown(stats.quantiles.max)),
        ("mean", shown(mean)),
        ("in/s", report.rate(rates.request_bytes, "")),
        ("out/s", report.rate(rates.response_bytes, "")),
        ("returned/call", docs(rates.returned_per_call)),
        ("affected/call", docs(rates.affected_per_call)),
        ("failed", or_unknown(figures.known_failed().map(scaled))),
        ("unanswered", scaled(figures.unanswered)),
        ("unacknowledged", scaled(figures.unacknowledged)),
    ];
    if figures.outcome_unknown > 0 {
        pairs.push(("outcome not known", scaled(figures.outcome_unknown)));
    }
    if figures.tls.total > 0 {
        pairs.push(("over TLS", format!("{} ({})", scaled(figures.tls.total), tls_share(figures))));
        pairs.extend(
            suites_of(figures)
                .into_iter()
                .map(|(name, count)| ("of these", format!("{} {name}", scaled(count)))),
        );
    }
    if let Some(waiting) = stats.in_flight {
        pairs.push(("in flight", scaled(waiting.count)));
        pairs.push(("oldest", shown(waiting.oldest_ns)));
    }
    if let Some(against) = row.against {
        pairs.push(("since the baseline", against.status.name().to_string()));
        if let Some(shift) = against.shift {
            for (name, (then, _)) in ["p50 then", "p95 then", "p99 then"].into_iter().zip(shift.quantiles) {
                pairs.push((name, Nanos(then).to_string()));
            }
        }
    }
    pairs
}

/// Figures of a span with their names, as many in a line as fit.
fn fill<'a>(
    span: &str,
    figures: Vec<(&'static str, String)>,
    columns: usize,
    palette: Palette,
) -> Vec<Line<'a>> {
    let mut lines = vec![];
    let mut line = vec![Span::styled(format!(" {span}:"), palette.dim)];
    for (name, value) in figures {
        let used: usize = line.iter().map(Span::width).sum();
        if used + name.len() + width(&value) + 3 > columns && line.len() > 1 {
            lines.push(Line::from(std::mem::take(&mut line)));
        }
        line.push(Span::styled(format!(" {name} "), palette.dim));
        line.push(Span::styled(format!("{value} "), palette.strong));
    }
    lines.push(Line::from(line));
    lines
}

fn texts<'a>(row: &ReportRow<'_>, columns: usize, palette: Palette) -> Vec<Line<'a>> {
    let ReportKey::Shape { key, shape } = &row.key else { return Vec::new() };
    let ids = row.ordered_ids();
    let listed: Vec<_> = ids.iter().take(4).map(ToString::to_string).collect();
    let more = match ids.len() {
        MAX_ORDERED_IDS.. => " … and maybe more",
        5.. => " …",
        _ => "",
    };
    let mut lines =
        vec![labelled("shape id", &format!("{}  (y copies it)", key.shape), palette.plain, palette)];
    let mut add = |name: &str, text: &str| lines.extend(wrapped(name, text, columns, palette));
    add("ordered ids", &format!("{}: {}{more}", ids.len(), listed.join(" ")));
    for (name, text) in [("typed", &shape.typed), ("plain", &shape.plain)] {
        let cut = if shape.cut { "… (cut)" } else { "" };
        add(name, &format!("{}{cut}", escape(text)));
    }
    if !shape.statements.is_empty() {
        let ids: Vec<_> = shape.statements.iter().map(ToString::to_string).collect();
        add("statements", &ids.join(" "));
    }
    lines
}

/// Where the time went: parts, what long waits were for, files.
fn split_lines<'a>(split: &RowSplit, columns: usize, palette: Palette) -> Vec<Line<'a>> {
    let (whole, operations) = (split.total_ns(), split.operations.max(1));
    let each = |ns: u64| Nanos(ns / operations).to_string();
    let heading = format!(
        " Where the time went inside the server: {}, {} each",
        plural(split.operations, "operation"),
        each(whole)
    );
    let mut lines = vec![Line::styled(fit(&heading, columns), palette.accent)];
    let room = columns.saturating_sub(24).clamp(16, 52);
    for (part, ns) in parts(split) {
        let letter = SplitGroup::of(part).letter().to_string();
        let mut spans = vec![Span::raw("  ")];
        spans.extend(palette.split(&letter));
        let mut words = String::new();
        push_padded(&mut words, part.words(), room, false);
        spans.push(Span::styled(format!(" {words}"), palette.plain));
        spans.push(Span::styled(format!(" {:>6}", each(ns)), palette.strong));
        spans.push(Span::styled(format!(" {:>6.1}%", 100.0 * share(ns, whole)), palette.dim));
        lines.push(Line::from(spans));
    }
    let named = |name: &str| if name == OTHER { "(others)".to_owned() } else { escape(name).into_owned() };
    // The others are samples of a processor.
    let waits = longest_waits(split).into_iter().filter(|((part, _), _)| *part != TimePart::Cpu);
    let waits = waits.map(|((_, class), total)| {
        format!("{}  {}, {} in all", named(class), plural(total.waits, "wait"), Nanos(total.wait_ns))
    });
    lines.extend(section("What long waits were for", waits.collect(), palette));
    let files = longest_files(split).into_iter().map(|(name, total)| {
        let reads = plural(total.reads, "read");
        format!("{}  {reads} of {}B, waited {}", named(name), Count(total.bytes as f64), Nanos(total.wait_ns))
    });
    lines.extend(section("Files it waited for", files.collect(), palette));
    lines
}

/// What the threads of operations in flight do.
fn in_progress(row: &ReportRow<'_>) -> Vec<String> {
    let line = |one: &&WaitingOperation| {
        let now = one.now.as_deref()?;
        let (age, thread) = (Nanos(one.age_ns).to_string(), escape(&now.thread_name));
        Some(format!("{age:>6}  {thread}, client {}: {}", one.client, escape(&doing(now))))
    };
    row.in_progress.iter().filter_map(line).collect()
}

/// Columns of the names before wrapped texts; on a narrower screen the names stand on lines of their own.
const NAME_COLUMNS: usize = 14;
const NARROW: usize = 50;

/// An escaped text behind its name, on as many lines as it needs.
fn wrapped<'a>(name: &str, text: &str, columns: usize, palette: Palette) -> Vec<Line<'a>> {
    if columns < NARROW {
        let heading = Line::styled(format!(" {name}"), palette.dim);
        let lines = wrap(text, columns.saturating_sub(2)).into_iter();
        let lines = lines.map(|part| Line::styled(format!(" {part}"), palette.plain));
        return std::iter::once(heading).chain(lines).collect();
    }
    wrap(text, columns.saturating_sub(NAME_COLUMNS + 1))
        .into_iter()
        .enumerate()
        .map(|(at, part)| labelled(if at == 0 { name } else { "" }, &part, palette.plain, palette))
        .collect()
}

fn labelled<'a>(name: &str, text: &str, style: Style, palette: Palette) -> Line<'a> {
    Line::from(vec![
        Span::styled(format!(" {name:<12} "), palette.dim),
        Span::styled(text.to_string(), style),
    ])
}

fn sparklines<'a>(row: &ReportRow<'_>, history: &History, columns: usize, palette: Palette) -> Vec<Line<'a>> {
    if !matches!(row.key, ReportKey::Shape { .. }) {
        return Vec::new();
    }
    let Some(points) = history.of(row.identity) else {
        return vec![labelled(
            "history",
            "none: too many rows are tracked, or it has only been in flight",
            palette.dim,
            palette,
        )];
    };
    let fits = columns.saturating_sub(38).clamp(1, POINTS);
    let last = &points[points.len().saturating_sub(fits)..];
    type Kind = (&'static str, fn(&HistoryPoint) -> Option<f32>, fn(f32) -> String);
    let kinds: [Kind; 2] = [
        ("calls/s", |point| point.calls, |value| Count(f64::from(value)).to_string()),
        ("p99", |point| Some(point.p99_ns), |value| or_unknown((value > 0.0).then_some(Nanos(value as u64)))),
    ];
    kinds
        .into_iter()
        .map(|(name, of, show)| {
            let most = last.iter().filter_map(of).reduce(f32::max);
            let now = last.last().and_then(of);
            let of = |point: &HistoryPoint| {
                of(point).map_or_else(
                    || UNKNOWN.to_owned(),
                    |value| sparkline([value.into()], most.unwrap_or(0.0).into()),
                )
            };
            Line::from(vec![
                Span::styled(format!(" {name:<12} "), palette.dim),
                Span::styled(last.iter().map(of).collect::<String>(), palette.accent),
                Span::styled(format!(" {}", or_unknown(now.map(show))), palette.strong),
                Span::styled(format!(", max {}", or_unknown(most.map(show))), palette.dim),
            ])
        })
        .collect()
}

/// Buckets gathered to at most [`MAX_BARS`]: the upper bound of each in nanoseconds, and its count.
fn bars(latency: &Histogram) -> Vec<(u64, u64)> {
    let (first, last) = match (latency.buckets().next(), latency.buckets().last()) {
        (Some((first, _)), Some((last, _))) => (first, last),
        _ => (0, -1),
    };
    let mut bars: Vec<_> =
        (latency.zero_count() > 0).then(|| (0, latency.zero_count())).into_iter().collect();
    // Buckets per bar: a quarter of a power of two, a half, one, two, …
    let step = (3..)
        .map(|shift| 1 << shift)
        .find(|step: &i32| (last.div_euclid(*step) - first.div_euclid(*step)) < MAX_BARS as i32)
        .unwrap_or(i32::MAX);
    let begin = bars.len();
    for bar in first.div_euclid(step)..=last.div_euclid(step) {
        if last >= first {
            bars.push((upper_bound_ns((bar + 1).saturating_mul(step).saturating_sub(1)), 0));
        }
    }
    for (index, count) in latency.buckets() {
        let at = begin + (index.div_euclid(step) - first.div_euclid(step)) as usize;
        if let Some((_, sum)) = bars.get_mut(at) {
            *sum += count;
        }
    }
    bars
}

fn histogram<'a>(latency: &Histogram, columns: usize, palette: Palette) -> Vec<Line<'a>> {
    let mut lines = vec![Line::styled(" Latency", palette.accent)];
    let bars = bars(latency);
    let most = bars.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    let room = columns.saturating_sub(27).clamp(1, 60);
    for (upper, count) in bars {
        // In eighths of a column, so that a bar that holds anything is seen.
        const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
        let eighths = (count as f64 / most as f64 * room as f64 * 8.0).ceil() as usize;
        let percent = count as f64 * 100.0 / latency.count().max(1) as f64;
        lines.push(Line::from(vec![
            Span::styled(format!("  ≤ {:>6} ", Nanos(upper).to_string()), palette.plain),
            Span::styled(format!("{:>6} {percent:>5.1}% ", Count(count as f64).to_string()), palette.dim),
            Span::styled(format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8]), palette.accent),
        ]));
    }
    if lines.len() == 1 {
        lines.push(Line::styled("  nothing has been answered", palette.dim));
    }
    lines
}

fn section<'a>(name: &str, mut entries: Vec<String>, palette: Palette) -> Vec<Line<'a>> {
    if entries.is_empty() {
        return Vec::new();
    }
    let more = entries.len().saturating_sub(MAX_LISTED);
    entries.truncate(MAX_LISTED);
    if more > 0 {
        entries.push(format!("… and {more} more"));
    }
    let heading = Line::styled(format!(" {name}"), palette.accent);
    std::iter::once(heading)
        .chain(entries.into_iter().map(|entry| Line::styled(format!("  {entry}"), palette.plain)))
        .collect()
}

fn callers<K>(
    callers: Option<Callers<'_, K>>,
    name: impl Fn(&K) -> String,
    row: &ReportRow<'_>,
    report: &WindowReport<'_>,
) -> Vec<String> {
    let Some(callers) = callers else { return Vec::new() };
    let sample = f64::from(report.sample);
    let latency_ns = row.stats.figures.known_latency_ns();
    let line = |name: &str, share: Share| {
        let mean = latency_ns.and_then(|_| share.latency_ns.checked_div(share.calls));
        let failed = if share.failed > 0 {
            format!("  {} failed", Count(share.failed as f64 * sample))
        } else {
            String::new()
        };
        let mut text = String::new();
        push_padded(&mut text, name, 24, false);
        format!(
            "{text} {}{:>6} calls  mean {}{failed}",
            report.mark(),
            Count(share.calls as f64 * sample).to_string(),
            or_unknown(mean.map(Nanos))
        )
    };
    let other = (callers.other.calls > 0).then(|| line("other", callers.other));
    callers.entries.iter().map(|(key, share)| line(&name(key), *share)).chain(other).collect()
}

fn errors(figures: &Figures, report: &WindowReport<'_>) -> Vec<String> {
    let mut codes: Vec<_> = figures.errors.iter().copied().collect();
    codes.sort_by_key(|&(code, count)| (std::cmp::Reverse(count), code));
    let other = (figures.errors.other > 0).then_some(("other".to_string(), figures.errors.other));
    codes
        .into_iter()
        .map(|(code, count)| (format!("{code} {}", error_name(code)), count))
        .chain(other)
        .map(|(name, count)| {
            format!(
                "{} {}{:>6}",
                fit(&format!("{name:<28}"), 32),
                report.mark(),
                Count(count as f64 * f64::from(report.sample)).to_string()
            )
        })
        .collect()
}

/// The names of common codes, from the server's `error_codes.yml`.
const fn error_name(code: i32) -> &'static str {
    match code {
        0 => "(no code)",
        2 => "BadValue",
        6 => "HostUnreachable",
        9 => "FailedToParse",
        11 => "UserNotFound",
        13 => "Unauthorized",
        14 => "TypeMismatch",
        18 => "AuthenticationFailed",
        24 => "LockTimeout",
        26 => "NamespaceNotFound",
        27 => "IndexNotFound",
        43 => "CursorNotFound",
        48 => "NamespaceExists",
        50 => "MaxTimeMSExpired",
        59 => "CommandNotFound",
        64 => "WriteConcernFailed",
        66 => "ImmutableField",
        85 => "IndexOptionsConflict",
        86 => "IndexKeySpecsConflict",
        89 => "NetworkTimeout",
        91 => "ShutdownInProgress",
        112 => "WriteConflict",
        121 => "DocumentValidationFailure",
        189 => "PrimarySteppedDown",
        251 => "NoSuchTransaction",
        262 => "ExceededTimeLimit",
        10107 => "NotWritablePrimary",
        11000 => "DuplicateKey",
        11600 => "InterruptedAtShutdown",
        11601 => "Interrupted",
        13435 => "NotPrimaryNoSecondaryOk",
        13436 => "NotPrimaryOrSecondary",
        _ => "",
    }
}

/// Two columns of lines; the left one is `at` wide.
fn beside<'a>(left: Vec<Line<'a>>, right: Vec<Line<'a>>, at: usize) -> Vec<Line<'a>> {
    let rows = left.len().max(right.len());
    let (mut left, mut right) = (left.into_iter(), right.into_iter());
    (0..rows)
        .map(|_| {
            let mut line = left.next().unwrap_or_default();
            // Each span has its own style from its line.
            let style = line.style;
            line.spans.iter_mut().for_each(|span| span.style = style.patch(span.style));
            line.style = Style::new();
            line.spans.push(Span::raw(" ".repeat(at.saturating_sub(line.width()))));
            if let Some(right) = right.next() {
                let style = right.style;
                line.spans.extend(
                    right.spans.into_iter().map(|span| Span::styled(span.content, style.patch(span.style))),
                );
            }
            line
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_hold_every_duration_once_under_its_bound() {
        for values in
            [vec![], vec![0], vec![1_000], vec![0, 1, u64::MAX], (1..5_000).map(|n| n * 977).collect()]
        {
            let mut latency = Histogram::new();
            values.iter().for_each(|&ns| latency.record(ns));
            let bars = bars(&latency);
            assert!(bars.len() <= MAX_BARS + 1, "{bars:?}");
            assert_eq!(bars.iter().map(|(_, count)| count).sum::<u64>(), values.len() as u64);
            for (at, (upper, _)) in bars.iter().enumerate() {
                let below = bars[..=at].iter().map(|(_, count)| count).sum::<u64>();
                assert_eq!(values.iter().filter(|ns| *ns <= upper).count() as u64, below, "{upper}");
            }
        }
    }

    #[test]
    fn a_server_of_this_host_is_named_by_its_port() {
        assert_eq!(who(Endpoint::v4([0; 4], 27_601)), "the server at port 27601");
        assert_eq!(who(Endpoint::v4([10, 0, 0, 9], 27_601)), "10.0.0.9:27601");
    }
}
