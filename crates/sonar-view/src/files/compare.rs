//! Two recordings side by side: before and after, or one shard and another.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};
use sonar_core::files::FilePattern;

use super::json::document;
use super::text::{FIGURES, figures, time_ns};
use super::{Recording, SCHEMA};
use crate::kit::{Fitting, Grouped, Heading, Nanos, Ratio, TextTable, UNKNOWN, fit, or_unknown, plural};

/// A file of one recording or of both, by its name.
struct FilePair<'a> {
    name: String,
    sides: [Option<&'a FilePattern>; 2],
}

/// Files of both by name, those with the most time in reads first. Names from the servers come before paths, so that
/// a collection that was rewritten into another file is found again.
fn pairs<'a>(sides: [&'a Recording<'a>; 2]) -> Vec<FilePair<'a>> {
    let mut found: BTreeMap<String, [Option<&FilePattern>; 2]> = BTreeMap::new();
    for (at, side) in sides.into_iter().enumerate() {
        for (file, pattern) in side.analysis.files() {
            found.entry(side.name(file)).or_default()[at].get_or_insert(pattern);
        }
    }
    let mut pairs: Vec<_> = found.into_iter().map(|(name, sides)| FilePair { name, sides }).collect();
    pairs.sort_by_key(|pair| {
        Reverse(pair.sides.iter().flatten().map(|side| time_ns(side)).fold(0, u64::saturating_add))
    });
    pairs
}

/// Writes both as text, at most `limit` files.
///
/// # Errors
/// Those of `out`.
pub fn text<W: Write>(
    names: [&str; 2],
    sides: [&Recording<'_>; 2],
    limit: usize,
    out: &mut Fitting<W>,
) -> io::Result<()> {
    for (letter, (name, side)) in ["A", "B"].into_iter().zip(names.into_iter().zip(sides)) {
        let span = side.analysis.span().map(|(first, last)| Nanos(last.since(first)));
        writeln!(
            out,
            "{letter}: {} ({} in {}, {} lost)",
            fit(name, 80),
            plural(Grouped(side.analysis.accesses()), "access"),
            or_unknown(span),
            Grouped(side.losses.total()),
        )?;
        for line in side.verdict().1.iter().take(3) {
            writeln!(out, "   {line}")?;
        }
    }
    let pairs = pairs(sides);
    writeln!(out, "\nFiles, by time spent in reading them ({} of {})", pairs.len().min(limit), pairs.len())?;
    let mut table = TextTable::new(&[&[Heading::whole("", 0).wide(5)], &FIGURES[..]].concat());
    for pair in pairs.iter().take(limit) {
        for (letter, side) in ["  A", "  B"].into_iter().zip(pair.sides) {
            let cells = side.map_or_else(|| vec![UNKNOWN.to_owned()], |file| figures(file).to_vec());
            table.row(std::iter::once(letter.to_owned()).chain(cells));
        }
        if let [Some(a), Some(b)] = pair.sides {
            let times = |a: u64, b: u64| or_unknown((a > 0).then(|| Ratio(b as f64 / a as f64)));
            let ratios = [
                times(a.reads.count, b.reads.count),
                times(a.reads.given, b.reads.given),
                times(time_ns(a), time_ns(b)),
            ];
            table.row(std::iter::once("  B/A".to_owned()).chain(ratios));
        }
    }
    let laid = table.lay(out.width());
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
