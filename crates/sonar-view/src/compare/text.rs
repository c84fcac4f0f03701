//! A comparison as text.

use std::io::{self, Write};

use sonar_core::significance::{MIN_CALLS, MIN_FACTOR};
use sonar_core::{Figures, Row};

use super::verdict::{Change, LeastSeen, NotJudged};
use super::{ComparedSide, DigestComparison, kind};
use crate::digest::names;
use crate::kit::{Count, Fitting, Grouped, Nanos, escape, or_unknown, plural};
use crate::queries::Form;

/// The most rows that are not judged, but differ, that text shows.
const MAX_NOT_JUDGED: usize = 5;

/// A line for each side: how many operations, from when to when, where from.
fn heads(comparison: &DigestComparison<'_>, sides: &[ComparedSide; 2]) -> [String; 2] {
    let head = |letter: char, side: &ComparedSide, totals: &Figures| {
        let ComparedSide { name, source, history, zone, .. } = side;
        let operations = plural(Count(totals.calls as f64), "operation");
        if let Some(span) = history {
            let (from, to) = (zone.show_seconds(span.from), zone.show_seconds(span.to));
            return format!("{letter}: {operations} of the history from {from} to {to}: {name}");
        }
        format!(
            "{letter}: {operations} of a {}{}: {name}",
            kind(*source),
            match totals.first_seen.is_known() {
                true => format!(
                    " from {} to {}",
                    zone.show_seconds(totals.first_seen),
                    zone.show_seconds(totals.last_seen)
                ),
                false if totals.calls > 0 => ", times unknown".to_owned(),
                false => String::new(),
            },
        )
    };
    [head('A', &sides[0], comparison.totals[0]), head('B', &sides[1], comparison.totals[1])]
}

/// How many rows changed, how many did not, and how many are not judged.
fn outcome(comparison: &DigestComparison<'_>) -> String {
    let mut parts =
        vec![format!("{} changed", comparison.changed()), format!("{} unchanged", comparison.unchanged())];
    let few = comparison.not_judged(NotJudged::FewCalls);
    let (unknown, in_one) =
        (comparison.not_judged(NotJudged::FewLatencies), comparison.not_judged(NotJudged::OnlyInOne));
    let mut reasons = Vec::new();
    if few > 0 {
        reasons.push(format!("{few} with fewer than {MIN_CALLS} calls on a side"));
    }
    if unknown > 0 {
        reasons
            .push(format!("{unknown} whose latencies are known of fewer than {MIN_CALLS} calls on a side"));
    }
    if in_one > 0 {
        reasons.push(format!("{in_one} in one side only and too rare to be new or gone"));
    }
    let other = comparison.not_judged(NotJudged::OtherSource);
    if other > 0 {
        reasons.push(format!(
            "{other} counted by different sources: a log or a profile need not hold what is faster than slowms"
        ));
    }
    let (varies, in_part) =
        (comparison.not_judged(NotJudged::Varies), comparison.not_judged(NotJudged::InPart));
    if varies > 0 {
        reasons.push(format!("{varies} whose latency moved, but varies too much from second to second"));
    }
    if in_part > 0 {
        reasons.push(format!("{in_part} in one side only, where messages were read in part"));
    }
    if !reasons.is_empty() {
        let all = few + unknown + in_one + other + varies + in_part;
        parts.push(format!("{all} not judged ({})", reasons.join(", ")));
    }
    if comparison.not_compared > 0 {
        let rows = comparison.not_compared;
        parts.push(format!("{rows} not compared, as the other side does not have all of its rows"));
    }
    parts.join("; ")
}

/// From where on changes of the unchanged rows would have been seen.
fn sensitivity(comparison: &DigestComparison<'_>) -> Option<String> {
    let same = || comparison.pairs.iter().filter(|pair| pair.verdict == Change::Same);
    let range = |what: &str, of: fn(&LeastSeen) -> Option<f64>| {
        let known: Vec<f64> = same().filter_map(|pair| of(&pair.least)).collect();
        let (least, most) =
            (known.iter().copied().reduce(f64::min)?, known.iter().copied().reduce(f64::max)?);
        let blind = same().count() - known.len();
        let blind = if blind > 0 {
            format!(" (for {} no factor is known)", plural(blind, "row"))
        } else {
            String::new()
        };
        Some(match format!("{least:.2}") == format!("{most:.2}") {
            true => format!("{what} {least:.2} times as high{blind}"),
            false => format!("{what} {least:.2} to {most:.2} times as high, depending on the row{blind}"),
        })
    };
    let parts = [range("a latency", |least| least.latency), range("calls/s", |least| least.rate)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| {
        format!("The smallest changes of unchanged rows that would have been seen: {}.", parts.join("; "))
    })
}

/// Writes it as text within `width` columns: how many rows changed and how many did not, then both sides, then what changed.
///
/// # Errors
/// Those of `out`.
pub fn text(
    comparison: &DigestComparison<'_>,
    sides: &[ComparedSide; 2],
    width: Option<usize>,
    out: impl Write,
) -> io::Result<()> {
    let mut out = Fitting::new(out, width);
    for (letter, side) in ["A", "B"].into_iter().zip(sides) {
        side.notes.iter().try_for_each(|note| writeln!(out, "NOTE: {letter} {}", escape(note)))?;
    }
    writeln!(out, "{}", outcome(comparison))?;
    for head in heads(comparison, sides) {
        writeln!(out, "{}", escape(&head))?;
    }
    let changed = comparison.pairs.iter().filter(|pair| pair.verdict.is_change());
    let far = comparison.pairs.iter().filter(|pair| pair.is_worth_a_look());
    for pair in changed.chain(far.take(MAX_NOT_JUDGED)) {
        let Some(row) = pair.row() else { continue };
        let (command, namespace, text) = names(row, Form::Typed);
        let head = format!("{:<11} {command} {namespace}", pair.label());
        writeln!(out, "{}", escape(&head))?;
        writeln!(out, "            {}", escape(&text))?;
        writeln!(
            out,
            "            calls/s {} -> {}",
            or_unknown(pair.rates.0.known().map(Count)),
            or_unknown(pair.rates.1.known().map(Count))
        )?;
        if let Some(shift) = pair.shift {
            let [p50, p95, p99] = shift.quantiles.map(|(a, b)| format!("{} -> {}", Nanos(a), Nanos(b)));
            writeln!(
                out,
                "            latency p50 {p50}  p95 {p95}  p99 {p99}  effect {:+.2}  p {:.2e}",
                shift.effect, shift.p
            )?;
        }
        if let Some([a, b]) = pair.means().filter(|_| pair.not_judged.is_some()) {
            let of =
                if pair.not_judged == Some(NotJudged::FewLatencies) { "known latencies" } else { "calls" };
            let calls = |row: Option<&Row>| {
                Grouped(row.map_or(0, |row| match pair.not_judged {
                    Some(NotJudged::FewLatencies) => row.figures().latency.count(),
                    _ => row.figures().calls,
                }))
            };
            let why = match pair.not_judged {
                Some(NotJudged::Varies) => "it varies too much to tell from chance".to_owned(),
                _ => format!("fewer than {MIN_CALLS} on a side"),
            };
            writeln!(
                out,
                "            mean latency {} -> {}, of {} -> {} {of}: {why}",
                Nanos(a as u64),
                Nanos(b as u64),
                calls(pair.a),
                calls(pair.b)
            )?;
        }
        if let (Some(a), Some(b)) = pair.ratios {
            let p = pair.ratio_p.map_or_else(String::new, |p| format!("  p {p:.2e}"));
            writeln!(out, "            examined/returned {} -> {}{p}", Count(a), Count(b))?;
        }
        if let Some(growth) = pair.growth.filter(|growth| *growth >= MIN_FACTOR) {
            writeln!(
                out,
                "            examines more over time: {growth:.2} times as much in the second half"
            )?;
        }
    }
    sensitivity(comparison).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    out.flush()
}
