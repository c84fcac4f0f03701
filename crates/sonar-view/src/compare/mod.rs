//! `compare`: two reports side by side: what is new, gone, or changed beyond noise.

use std::collections::HashMap;
use std::io::{self, Write};

use serde_json::{Value, json};
use sonar_core::compare::{
    MIN_EFFECT, MIN_FACTOR, Rate, Shift, dispersion, examined, growth, holm, rate, shift,
};
use sonar_core::{Digest, Figures, GroupBy, Row, Subject};

use crate::kit::{self, About, Count, Fitting, Nanos, Zone, ZoneObject, escape, plural};
use crate::logs::{Source, names};
use crate::queries::Form;

/// Version of the JSON schema: it grows when a field changes its meaning or goes, not when one is added.
const SCHEMA: u32 = 2;

/// How a row changed from A to B.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Change {
    /// Not in A.
    New,
    /// Slower than in A.
    Slower,
    /// No slower, but examines more for what it returns.
    Heavier,
    /// More calls per second.
    MoreCalls,
    /// Fewer calls per second.
    FewerCalls,
    /// Faster than in A.
    Faster,
    /// Not in B.
    Gone,
    /// Unchanged within noise.
    Same,
}

impl Change {
    /// Whether it makes the comparison fail: it is new, slower or heavier.
    pub const fn is_worse(self) -> bool {
        matches!(self, Self::New | Self::Slower | Self::Heavier)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Slower => "slower",
            Self::Heavier => "heavier",
            Self::MoreCalls => "more calls",
            Self::FewerCalls => "fewer calls",
            Self::Faster => "faster",
            Self::Gone => "gone",
            Self::Same => "same",
        }
    }
}

/// One row of both.
pub struct RowPair<'a> {
    /// In A.
    pub a: Option<&'a Row>,
    /// In B.
    pub b: Option<&'a Row>,
    /// How it changed.
    pub verdict: Change,
    /// Calls per second in both.
    pub rates: (Rate, Rate),
    /// Chance of these rates.
    pub rate_p: f64,
    /// How the latencies differ; `None` where there are too few.
    pub shift: Option<Shift>,
    /// Examined for each returned, in both.
    pub ratios: (Option<f64>, Option<f64>),
    /// Chance of these ratios; `None` where there is too little to tell by.
    pub ratio_p: Option<f64>,
    /// How documents examined per call grew within B.
    pub growth: Option<f64>,
}

impl RowPair<'_> {
    fn row(&self) -> Option<&Row> {
        self.b.or(self.a)
    }
}

/// Everything that two digests have.
pub struct DigestComparison<'a> {
    /// All rows, those that matter most first.
    pub pairs: Vec<RowPair<'a>>,
    /// The operations of both, taken together.
    pub totals: [&'a Figures; 2],
    /// Rows that only one of both has, where the other does not have all of its rows: nothing is known of them.
    pub not_compared: usize,
    /// What a row is.
    pub by: GroupBy,
    /// Whether latencies of both can be compared.
    pub same_clock: bool,
}

/// What one side of a comparison is.
#[derive(Clone, Debug)]
pub struct ComparedSide {
    /// What it is called: the path of its file.
    pub name: String,
    /// The host that it is of, where that is known.
    pub host: Option<String>,
    /// Where it came from.
    pub source: Source,
    /// In which zone its times are shown.
    pub zone: Zone,
}

/// The key of a row in the other digest.
fn key(row: &Row) -> String {
    match &row.subject {
        Subject::Shape { identity, shape, order } => {
            format!("{}{}{}{}", row.class.name(), identity.name(), shape.id, order)
        }
        _ => {
            let (_, namespace, text) = names(row, Form::Typed);
            format!("{namespace} {text}")
        }
    }
}

impl<'a> DigestComparison<'a> {
    /// Compares. Rows must be made by the same thing in both. `same_clock`: latencies of both are of one
    /// kind of source and may be set beside each other.
    /// `whole`: A and B have all of their rows; what one lacks is not new or gone otherwise.
    pub fn new(a: &'a Digest, b: &'a Digest, same_clock: bool, whole: [bool; 2]) -> Self {
        let in_b: HashMap<String, &Row> = b.rows().iter().map(|row| (key(row), row)).collect();
        let in_a: HashMap<String, &Row> = a.rows().iter().map(|row| (key(row), row)).collect();
        let both = a.rows().iter().map(|row| (Some(row), in_b.get(&key(row)).copied()));
        let new = b.rows().iter().filter(|row| !in_a.contains_key(&key(row))).map(|row| (None, Some(row)));
        let none = Figures::default();
        let (compared, unknown): (Vec<_>, Vec<_>) = both
            .chain(new)
            .partition(|(left, right)| (left.is_some() || whole[0]) && (right.is_some() || whole[1]));
        let mut pairs: Vec<RowPair<'a>> = compared
            .into_iter()
            .map(|(left, right)| {
                let ratio = |row: Option<&Row>| row?.examined_per_returned();
                let of = |row: Option<&'a Row>| row.map_or(&none, Row::figures);
                let rates = (rate(of(left), a.totals().timeline()), rate(of(right), b.totals().timeline()));
                let shift = left.zip(right).filter(|_| same_clock).and_then(|(left, right)| {
                    let (left, right) = (left.figures(), right.figures());
                    let more = dispersion(left.timeline(), &left.latency)
                        .max(dispersion(right.timeline(), &right.latency));
                    shift(&left.latency, &right.latency, more)
                });
                RowPair {
                    a: left,
                    b: right,
                    verdict: Change::Same,
                    rate_p: rates.0.p(rates.1),
                    rates,
                    shift,
                    ratios: (ratio(left), ratio(right)),
                    ratio_p: examined(of(left).timeline())
                        .zip(examined(of(right).timeline()))
                        .map(|(left, right)| left.p(right)),
                    growth: growth(of(right).timeline()),
                }
            })
            .collect();
        judge(&mut pairs);
        let weight = |pair: &RowPair<'_>| pair.row().map_or(0, |row| row.figures().latency.sum_ns());
        pairs.sort_by_key(|pair| (pair.verdict, std::cmp::Reverse(weight(pair)), pair.row().map(key)));
        Self {
            pairs,
            totals: [a.totals(), b.totals()],
            not_compared: unknown.len(),
            by: b.settings.by,
            same_clock,
        }
    }

    /// Whether something is new, slower or heavier.
    pub fn is_worse(&self) -> bool {
        self.pairs.iter().any(|pair| pair.verdict.is_worse())
    }
}

/// Judges all rows at once, so that the test corrects for their number.
fn judge(pairs: &mut [RowPair<'_>]) {
    let p: Vec<f64> = pairs
        .iter()
        .flat_map(|pair| [pair.rate_p, pair.shift.map_or(1.0, |shift| shift.p), pair.ratio_p.unwrap_or(1.0)])
        .collect();
    let stands = holm(&p);
    for (pair, stands) in pairs.iter_mut().zip(stands.as_chunks::<3>().0) {
        let [by_rate, by_latency, by_ratio] = *stands;
        let shift = pair.shift.filter(|shift| by_latency && shift.effect.abs() >= MIN_EFFECT);
        let heavier = match pair.ratios {
            (Some(a), Some(b)) => by_ratio && a > 0.0 && b / a >= MIN_FACTOR,
            _ => false,
        };
        let (a, b) = (pair.rates.0.per_second, pair.rates.1.per_second);
        pair.verdict = match (pair.a.is_some(), pair.b.is_some(), shift) {
            (false, true, _) if by_rate => Change::New,
            (true, false, _) if by_rate => Change::Gone,
            (_, _, Some(shift)) if shift.effect > 0.0 => Change::Slower,
            _ if heavier => Change::Heavier,
            (_, _, Some(_)) => Change::Faster,
            (true, true, None) if by_rate && b / a >= MIN_FACTOR => Change::MoreCalls,
            (true, true, None) if by_rate && a / b >= MIN_FACTOR => Change::FewerCalls,
            _ => Change::Same,
        };
    }
}

/// What a source is called in a sentence.
pub const fn kind(source: Source) -> &'static str {
    match source {
        Source::Wire => "capture",
        Source::Log => "log",
        Source::Profile => "profile",
    }
}

/// A line for each side: how many operations, from when to when, where from.
fn heads(comparison: &DigestComparison<'_>, sides: &[ComparedSide; 2]) -> [String; 2] {
    let head = |letter: char, side: &ComparedSide, totals: &Figures| {
        let ComparedSide { name, source, zone, .. } = side;
        format!(
            "{letter}: {} of a {}{}: {name}",
            plural(Count(totals.calls as f64), "operation"),
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

/// Rows that did not change, and of these the ones that only one of both has.
fn unchanged(comparison: &DigestComparison<'_>) -> (usize, usize) {
    let same = comparison.pairs.iter().filter(|pair| pair.verdict == Change::Same);
    let in_one = same.clone().filter(|pair| pair.a.is_none() || pair.b.is_none()).count();
    (same.count(), in_one)
}

/// How many rows changed, and how many did not.
fn outcome(comparison: &DigestComparison<'_>) -> String {
    let (same, few) = unchanged(comparison);
    let unknown = match comparison.not_compared {
        0 => String::new(),
        rows => format!("; {rows} not compared, as the other side does not have all of its rows"),
    };
    format!(
        "{} changed; {same} unchanged within noise{}{unknown}",
        comparison.pairs.len() - same,
        if few > 0 { format!(", {few} of them too rare to judge as new or gone") } else { String::new() }
    )
}

/// Writes it as text within `width` columns: what changed, and how many did not.
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
    for head in heads(comparison, sides) {
        writeln!(out, "{}", escape(&head))?;
    }
    let changed: Vec<_> = comparison.pairs.iter().filter(|pair| pair.verdict != Change::Same).collect();
    for pair in &changed {
        let Some(row) = pair.row() else { continue };
        let (command, namespace, text) = names(row, Form::Typed);
        let head = format!("{:<11} {command} {namespace}", pair.verdict.name());
        writeln!(out, "{}", escape(&head))?;
        writeln!(out, "            {}", escape(&text))?;
        writeln!(
            out,
            "            calls/s {} -> {}",
            Count(pair.rates.0.per_second),
            Count(pair.rates.1.per_second)
        )?;
        if let Some(shift) = pair.shift {
            let [p50, p95, p99] = shift.quantiles.map(|(a, b)| format!("{} -> {}", Nanos(a), Nanos(b)));
            writeln!(
                out,
                "            latency p50 {p50}  p95 {p95}  p99 {p99}  effect {:+.2}  p {:.2e}",
                shift.effect, shift.p
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
    writeln!(out, "{}", outcome(comparison))?;
    out.flush()
}

/// Writes it as one JSON object.
///
/// # Errors
/// Those of `out`.
pub fn json(comparison: &DigestComparison<'_>, sides: &[ComparedSide; 2], out: impl Write) -> io::Result<()> {
    let (unchanged, unchanged_in_one) = unchanged(comparison);
    let document = json!({
        "schema": SCHEMA,
        "kind": "comparison",
        "about": About::new(None, sides.each_ref().map(|side| side.name.clone()).into(), None),
        "sides": [side(&sides[0], comparison.totals[0]), side(&sides[1], comparison.totals[1])],
        "changed": comparison.pairs.len() - unchanged,
        "unchanged": unchanged,
        "unchanged_in_one": unchanged_in_one,
        "not_compared": comparison.not_compared,
        "by": comparison.by.name(),
        "latencies_compared": comparison.same_clock,
        "precision_ns": sides[0].source.precision_ns().max(sides[1].source.precision_ns()),
        "worse": comparison.is_worse(),
        "rows": comparison.pairs.iter().filter_map(row).collect::<Vec<_>>(),
    });
    kit::json::line(&document, out)
}

fn side(side: &ComparedSide, totals: &Figures) -> Value {
    json!({
        "name": side.name,
        "host": side.host,
        "source": side.source.name(),
        "calls": totals.calls,
        "first_seen": totals.first_seen.unix_ns(),
        "last_seen": totals.last_seen.unix_ns(),
        "zone": ZoneObject::new(&side.zone, [totals.first_seen, totals.last_seen]),
    })
}

fn row(pair: &RowPair<'_>) -> Option<Value> {
    let row = pair.row()?;
    let (command, namespace, text) = names(row, Form::Typed);
    let shape = match &row.subject {
        Subject::Shape { identity, shape, .. } => Some((shape.id.to_string(), identity.name())),
        _ => None,
    };
    let calls = |row: Option<&Row>| row.map_or(0, |row| row.figures().calls);
    let quantile = |at: usize| pair.shift.map(|shift| shift.quantiles[at]);
    Some(json!({
        "verdict": pair.verdict.name(),
        "in_a": pair.a.is_some(),
        "in_b": pair.b.is_some(),
        "shape_id": shape.as_ref().map(|(id, _)| id),
        "identity": shape.as_ref().map(|(_, identity)| identity),
        "class": shape.as_ref().map(|_| row.class.name()),
        "command": command,
        "namespace": namespace,
        "text": text,
        "calls": [calls(pair.a), calls(pair.b)],
        "calls_per_s": [pair.rates.0.per_second, pair.rates.1.per_second],
        "rate_p": pair.rate_p,
        "effect": pair.shift.map(|shift| shift.effect),
        "latency_p": pair.shift.map(|shift| shift.p),
        "p50_ns": quantile(0),
        "p95_ns": quantile(1),
        "p99_ns": quantile(2),
        "examined_per_returned": pair.ratios,
        "examined_p": pair.ratio_p,
        "growth": pair.growth,
    }))
}
