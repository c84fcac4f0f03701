//! Two recordings side by side: before and after, or one shard and another.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};
use sonar_core::files::FilePattern;

use super::{Recording, SCHEMA, document, grouped, percent, score};
use crate::kit::{self, Count, Fitting, Head, Nanos, UNKNOWN, fit, or_unknown};

/// A file that is in one of them or in both, by its name.
struct Pair<'a> {
    name: String,
    sides: [Option<&'a FilePattern>; 2],
}

fn time_ns(pattern: &FilePattern) -> u64 {
    u64::try_from(pattern.reads.latency().sum_ns()).unwrap_or(u64::MAX)
}

/// Files of both by name, those on which most time was spent in reads first. Where the servers were asked
/// for names these are compared, so that a collection that was rewritten into another file is found again.
fn pairs<'a>(sides: [&'a Recording<'a>; 2]) -> Vec<Pair<'a>> {
    let mut found: BTreeMap<String, [Option<&FilePattern>; 2]> = BTreeMap::new();
    for (at, side) in sides.into_iter().enumerate() {
        for (file, pattern) in side.analysis.files() {
            found.entry(side.name(file)).or_default()[at].get_or_insert(pattern);
        }
    }
    let mut pairs: Vec<_> = found.into_iter().map(|(name, sides)| Pair { name, sides }).collect();
    pairs.sort_by_key(|pair| {
        Reverse(pair.sides.iter().flatten().map(|side| time_ns(side)).fold(0, u64::saturating_add))
    });
    pairs
}

/// Columns of the table.
const COLUMNS: [Head; 13] = [
    Head::text("     ", 0, 5),
    Head::figure("  reads", 0),
    Head::figure(" bytes", 1),
    Head::figure("  time", 0),
    Head::figure("   p50", 6),
    Head::figure("   p99", 3),
    Head::figure("cached", 2),
    Head::figure("  seq", 5),
    Head::figure("random", 4),
    Head::figure("amplif", 7),
    Head::figure("dev/B", 8),
    Head::figure(" writes", 10),
    Head::figure(" syncs", 11),
];

/// Writes both as text within the width that `out` keeps to, at most `limit` files.
///
/// # Errors
/// Those of `out`.
pub fn text<W: Write>(
    names: [&str; 2],
    sides: [&Recording<'_>; 2],
    limit: usize,
    mut out: Fitting<W>,
) -> io::Result<()> {
    for (letter, (name, side)) in ["A", "B"].into_iter().zip(names.into_iter().zip(sides)) {
        let span = side.analysis.span().map(|(first, last)| Nanos(last.since(first)));
        writeln!(
            out,
            "{letter}: {} ({} accesses in {}, {} lost)",
            fit(name, 80),
            grouped(side.analysis.accesses()),
            or_unknown(span),
            grouped(side.losses.total()),
        )?;
        for line in side.verdict().1.iter().take(3) {
            writeln!(out, "   {line}")?;
        }
    }
    let pairs = pairs(sides);
    writeln!(out, "\nFiles, by time spent in reading them ({} of {})", pairs.len().min(limit), pairs.len())?;
    let mut rows = Vec::new();
    for pair in pairs.iter().take(limit) {
        for (letter, side) in ["  A", "  B"].into_iter().zip(pair.sides) {
            let mut row = vec![letter.to_owned()];
            match side {
                Some(file) => row.extend(figures(file)),
                None => row.push(UNKNOWN.to_owned()),
            }
            rows.push(row);
        }
        if let [Some(a), Some(b)] = pair.sides {
            let times = |a: u64, b: u64| match a {
                0 => UNKNOWN.to_string(),
                a => format!("{:.2}", b as f64 / a as f64),
            };
            let ratios = [
                times(a.reads.count, b.reads.count),
                times(a.reads.given, b.reads.given),
                times(time_ns(a), time_ns(b)),
            ];
            rows.push(std::iter::once("  B/A".to_owned()).chain(ratios).collect());
        }
    }
    let laid = kit::lay(&COLUMNS, &rows, out.width());
    writeln!(out, "{}", laid.head)?;
    let mut lines = laid.rows.iter();
    for pair in pairs.iter().take(limit) {
        writeln!(out, "{}", fit(&pair.name, 100))?;
        let own = if pair.sides.iter().all(Option::is_some) { 3 } else { 2 };
        lines.by_ref().take(own).try_for_each(|line| writeln!(out, "{line}"))?;
    }
    laid.left_out.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    out.flush()
}

/// The cells of one side of a file.
fn figures(file: &FilePattern) -> [String; 12] {
    let (reads, latency) = (&file.reads, file.reads.latency());
    [
        Count(reads.count as f64).to_string(),
        Count(reads.given as f64).to_string(),
        Nanos(time_ns(file)).to_string(),
        or_unknown(latency.quantile_ns(0.5).map(Nanos)),
        or_unknown(latency.quantile_ns(0.99).map(Nanos)),
        percent(reads.cached_share()),
        percent(reads.distances.sequential_share()),
        score(reads.distances.randomness()),
        score(reads.amplification()),
        score(reads.device_per_byte()),
        Count(file.writes.as_ref().map_or(0, |flow| flow.count) as f64).to_string(),
        Count(file.syncs.count() as f64).to_string(),
    ]
}

/// Writes both reports as one line of JSON, with the ratios of each file that is in both.
///
/// # Errors
/// Those of `out`.
pub fn json(sides: [&Recording<'_>; 2], limit: usize, out: impl Write) -> io::Result<()> {
    let files: Vec<_> = pairs(sides)
        .iter()
        .take(limit)
        .map(|pair| {
            let of = |figure: &dyn Fn(&FilePattern) -> u64| -> Value {
                let [a, b] = pair.sides.map(|side| side.map(figure));
                let ratio = a.zip(b).filter(|(a, _)| *a > 0).map(|(a, b)| b as f64 / a as f64);
                json!({ "a": a, "b": b, "ratio": ratio })
            };
            json!({
                "name": pair.name,
                "reads": of(&|file| file.reads.count),
                "bytes": of(&|file| file.reads.given),
                "read_ns": of(&time_ns),
            })
        })
        .collect();
    let value = json!({
        "schema": SCHEMA,
        "kind": "io_compare",
        "a": document(sides[0], limit),
        "b": document(sides[1], limit),
        "files": files,
    });
    crate::kit::json::line(&value, out)
}
