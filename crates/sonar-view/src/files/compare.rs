//! Two recordings side by side: before and after, or one shard and another.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use sonar_core::files::{FilePattern, ReadChange, read_changes};

use super::json::RecordingJson;
use super::text::{FIGURES, figures, time_ns};
use super::{Recording, SCHEMA};
use crate::kit::{
    Count, Fitting, Grouped, Heading, Nanos, Ratio, TextTable, UNKNOWN, fit, mean_ns, or_unknown, plural,
};

/// The most columns of a file's name in a sentence.
const NAME_COLUMNS: usize = 60;

/// A file of one recording or of both, by its name.
struct FilePair<'a> {
    name: String,
    sides: [Option<&'a FilePattern>; 2],
    /// How its reads changed.
    change: ReadChange,
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
    let (names, patterns): (Vec<String>, Vec<_>) = found.into_iter().unzip();
    let changes = read_changes(sides.map(|side| side.analysis), &patterns);
    let pair = |((name, sides), change)| FilePair { name, sides, change };
    let mut pairs: Vec<_> = names.into_iter().zip(patterns).zip(changes).map(pair).collect();
    pairs.sort_by_key(|pair| {
        Reverse(pair.sides.iter().flatten().map(|side| time_ns(side)).fold(0, u64::saturating_add))
    });
    pairs
}

/// Both recordings by what changed between them.
struct RecordingComparison<'a> {
    /// As [`pairs`] orders them.
    pairs: Vec<FilePair<'a>>,
    /// From the first access to the last; 0 where that is not known.
    seconds: [f64; 2],
}

impl<'a> RecordingComparison<'a> {
    fn new(sides: [&'a Recording<'a>; 2]) -> Self {
        let seconds = |side: &Recording<'_>| {
            side.analysis.span().map_or(0.0, |(first, last)| last.since(first) as f64 / 1e9)
        };
        Self { pairs: pairs(sides), seconds: sides.map(seconds) }
    }

    /// How many files changed like this.
    fn count(&self, wants: impl Fn(ReadChange) -> bool) -> usize {
        self.pairs.iter().filter(|pair| pair.is_read() && wants(pair.change)).count()
    }

    /// How many files changed, and what most, in one sentence.
    fn answer(&self) -> String {
        if !self.pairs.iter().any(FilePair::is_read) {
            return "No file was read in either recording.".to_owned();
        }
        let changed = || self.pairs.iter().filter(|pair| pair.change.is_change());
        let moved = |pair: &FilePair<'_>| pair.moved(self.seconds);
        let largest = changed().max_by(|one, other| moved(one).total_cmp(&moved(other)));
        match (changed().count(), largest.and_then(|pair| pair.sentence(self.seconds))) {
            (_, None) => "Nothing changed beyond noise.".to_owned(),
            (1, Some(only)) => format!("1 file changed: {only}."),
            (count, Some(largest)) => {
                format!("{} changed; the largest: {largest}.", plural(Grouped(count as u64), "file"))
            }
        }
    }

    /// How many files did not change, and how many are not judged; `None` if each of those that were read did.
    fn others(&self) -> Option<String> {
        let of = |change| Grouped(self.count(|one| one == change) as u64);
        let (same, not_judged) = (of(ReadChange::Same), of(ReadChange::NotJudged));
        match (same.0, not_judged.0) {
            (0, 0) => None,
            (_, 0) => Some(format!("{same} unchanged within noise.")),
            (0, _) => Some(format!("{not_judged} not judged: too few reads.")),
            _ => Some(format!("{same} unchanged within noise; {not_judged} not judged: too few reads.")),
        }
    }
}

impl FilePair<'_> {
    /// Whether a recording has reads of it.
    fn is_read(&self) -> bool {
        self.sides.iter().flatten().any(|file| file.reads.count > 0)
    }

    /// How much the time in which threads waited for its reads changed, in seconds per second of recording.
    fn moved(&self, seconds: [f64; 2]) -> f64 {
        let [a, b] = [0, 1].map(|at: usize| {
            let time = self.sides[at].map_or(0.0, |file| time_ns(file) as f64 / 1e9);
            if seconds[at] > 0.0 { time / seconds[at] } else { 0.0 }
        });
        (b - a).abs()
    }

    /// What changed, as a sentence without its full stop; `None` if nothing did.
    fn sentence(&self, seconds: [f64; 2]) -> Option<String> {
        let name = fit(&self.name, NAME_COLUMNS);
        let reads = self.sides.map(|side| side.map_or(0, |file| file.reads.count));
        let [a, b] = [0, 1].map(|at: usize| reads[at] as f64 / seconds[at]);
        let rates = || format!("{}/s in A, {}/s in B", Count(a), Count(b));
        Some(match self.change {
            ReadChange::Slower => self.latency_sentence(&name, "slower"),
            ReadChange::Faster => self.latency_sentence(&name, "faster"),
            ReadChange::MoreReads => format!("{name} is read {} times as often ({})", times(b / a), rates()),
            ReadChange::FewerReads => {
                format!("{name} is read {} times less often ({})", times(a / b), rates())
            }
            ReadChange::New => format!("{name} is read in B only ({})", plural(Grouped(reads[1]), "read")),
            ReadChange::Gone => format!("{name} is read in A only ({})", plural(Grouped(reads[0]), "read")),
            ReadChange::Same | ReadChange::NotJudged => return None,
        })
    }

    /// With the first of the mean and some quantiles that moved the same way as most reads did.
    fn latency_sentence(&self, name: &str, way: &str) -> String {
        let [Some(a), Some(b)] = self.sides.map(|side| side.map(|file| file.reads.latency())) else {
            return format!("reads of {name} are {way}");
        };
        let quantile = |q| Some((a.quantile_ns(q)? as f64, b.quantile_ns(q)? as f64));
        let figures = [
            ("mean", mean_ns(&a).zip(mean_ns(&b))),
            ("p50", quantile(0.5)),
            ("p95", quantile(0.95)),
            ("p99", quantile(0.99)),
        ];
        let factor = |(a, b): (f64, f64)| if way == "slower" { b / a } else { a / b };
        let moved = figures.into_iter().find_map(|(what, figure)| {
            let (figure, factor) = (figure?, factor(figure?));
            (factor.is_finite() && factor > 1.0).then_some((what, figure, factor))
        });
        match moved {
            Some((what, (a, b), factor)) => format!(
                "reads of {name} are {} times {way} ({what} {} in A, {} in B)",
                times(factor),
                Nanos(a as u64),
                Nanos(b as u64)
            ),
            None => format!("reads of {name} are {way}"),
        }
    }
}

/// A factor for a sentence: `3.1`, `118`.
fn times(factor: f64) -> String {
    if factor < 9.95 { format!("{factor:.1}") } else { format!("{factor:.0}") }
}

/// Writes both as text: the answer, what the recordings are, and at most `limit` files.
///
/// # Errors
/// Those of `out`.
pub fn text<W: Write>(
    names: [&str; 2],
    sides: [&Recording<'_>; 2],
    limit: usize,
    out: &mut Fitting<W>,
) -> io::Result<()> {
    let comparison = RecordingComparison::new(sides);
    writeln!(out, "{}", comparison.answer())?;
    comparison.others().iter().try_for_each(|line| writeln!(out, "{line}"))?;
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
    let pairs = &comparison.pairs;
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
        let change = if pair.is_read() { format!(": {}", pair.change.name()) } else { String::new() };
        writeln!(out, "{}{change}", fit(&pair.name, 100))?;
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
    let comparison = RecordingComparison::new(sides);
    let file = |pair: &FilePair<'_>| {
        let of = |figure: &dyn Fn(&FilePattern) -> u64| {
            let [a, b] = pair.sides.map(|side| side.map(figure));
            let ratio = a.zip(b).filter(|(a, _)| *a > 0).map(|(a, b)| b as f64 / a as f64);
            FigureRatioJson { a, b, ratio }
        };
        FilePairJson {
            name: pair.name.clone(),
            change: pair.is_read().then(|| pair.change.name()),
            reads: of(&|file| file.reads.count),
            bytes: of(&|file| file.reads.given),
            read_ns: of(&time_ns),
        }
    };
    let document = IoComparisonDocument {
        schema: SCHEMA,
        kind: "io_compare",
        answer: comparison.answer(),
        changed: comparison.count(ReadChange::is_change),
        unchanged: comparison.count(|change| change == ReadChange::Same),
        not_judged: comparison.count(|change| change == ReadChange::NotJudged),
        a: RecordingJson::new(sides[0], limit),
        b: RecordingJson::new(sides[1], limit),
        files: comparison.pairs.iter().take(limit).map(file).collect(),
    };
    crate::kit::json::line(&document, out)
}

/// Two recordings, compared.
#[derive(Serialize)]
struct IoComparisonDocument<'a> {
    schema: u32,
    kind: &'static str,
    answer: String,
    changed: usize,
    unchanged: usize,
    not_judged: usize,
    a: RecordingJson<'a>,
    b: RecordingJson<'a>,
    files: Vec<FilePairJson>,
}

#[derive(Serialize)]
struct FilePairJson {
    name: String,
    /// Null if no recording has reads of it.
    change: Option<&'static str>,
    reads: FigureRatioJson,
    bytes: FigureRatioJson,
    read_ns: FigureRatioJson,
}

#[derive(Serialize)]
struct FigureRatioJson {
    a: Option<u64>,
    b: Option<u64>,
    ratio: Option<f64>,
}
