//! `compare`: two reports side by side: what is new, gone, or changed beyond noise.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;
use sonar_core::history::Span;
use sonar_core::significance::{
    ALPHA, MIN_CALLS, MIN_EFFECT, MIN_FACTOR, Rate, Sensitivity, Shift, dispersion, examined, growth, holm,
    least_more, least_slower, rate, shift,
};
use sonar_core::{Digest, Figures, GroupBy, Identity, Row, ShapeId, Subject};
use ts_rs::TS;

use crate::kit::json::Shown;
use crate::kit::{
    self, About, Count, Fitting, Grouped, Nanos, Zone, ZoneObject, escape, mean_ns, or_unknown, plural,
};
use crate::logs::{Source, names};
use crate::queries::Form;

/// Version of the JSON schema: it grows when a field changes its meaning or goes, not when one is added.
const SCHEMA: u32 = 3;
/// The most rows that are not judged, but differ, that text shows.
const MAX_NOT_JUDGED: usize = 5;
/// From this factor between means on, a row that is not judged is worth a look.
const WORTH_A_LOOK: f64 = 2.0;

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
    /// Unchanged: a change from [`RowPair::least`] on would have been seen.
    Same,
    /// Too little is known to say whether it changed; see [`RowPair::not_judged`].
    NotJudged,
}

/// Why a row is not judged.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NotJudged {
    /// Only one of both has it, and it is too rare for saying that it is new or gone.
    OnlyInOne,
    /// A side has fewer than [`MIN_CALLS`] operations.
    FewCalls,
    /// A side has enough operations, but knows the latency of fewer than [`MIN_CALLS`] of them.
    FewLatencies,
    /// Both sides are of different kinds of sources: a log or a profile need not hold what a capture does.
    OtherSource,
    /// The latency moved far enough to be seen, but varies so much from second to second that this may be chance.
    Varies,
    /// A capture of A or B has only a part of the messages, or the row is of commands that were read in part.
    InPart,
}

impl NotJudged {
    const fn name(self) -> &'static str {
        match self {
            Self::OnlyInOne => "only in one",
            Self::FewCalls => "few calls",
            Self::FewLatencies => "few latencies",
            Self::OtherSource => "other source",
            Self::Varies => "varies",
            Self::InPart => "in part",
        }
    }
}

/// The smallest changes of a row that would have been seen in nine of ten cases, as factors; `None` where none would have
/// been.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct LeastSeen {
    /// Of the latency.
    pub latency: Option<f64>,
    /// Of calls per second.
    pub rate: Option<f64>,
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
            Self::NotJudged => "not judged",
        }
    }

    /// Whether it is a difference.
    const fn is_change(self) -> bool {
        !matches!(self, Self::Same | Self::NotJudged)
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
    /// How its calls per second changed besides, if `verdict` is about something else.
    pub calls_change: Option<Change>,
    /// Calls per second in both.
    pub rates: (Rate, Rate),
    /// Whether one source counted the calls of both sides: only then something is new or gone, or has other rates.
    pub same_source: bool,
    /// Why it is not judged, if it is not.
    pub not_judged: Option<NotJudged>,
    /// What would have been seen.
    pub least: LeastSeen,
    /// Chance of these rates; 1 if they are of different sources.
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
    /// How much more latencies vary than those of independent operations, on the side where they do more.
    fn dispersion(&self) -> f64 {
        let of = |row: Option<&Row>| {
            row.map_or(1.0, |row| dispersion(row.figures().timeline(), &row.figures().latency))
        };
        of(self.a).max(of(self.b))
    }

    /// Means of the latency in A and in B, in nanoseconds, if both have any.
    fn means(&self) -> Option<[f64; 2]> {
        let mean = |row: &Row| mean_ns(&row.figures().latency);
        Some([mean(self.a?)?, mean(self.b?)?])
    }

    /// Whether it is not judged, but its latency or its number of calls differs by far.
    fn is_worth_a_look(&self) -> bool {
        let is_far = |[a, b]: [f64; 2]| a.max(b) > 0.0 && a.max(b) >= WORTH_A_LOOK * a.min(b);
        match self.not_judged {
            Some(NotJudged::Varies) => true,
            Some(NotJudged::FewCalls) => self.means().is_some_and(is_far),
            _ => false,
        }
    }

    /// Whether the latency moved from the smallest factor on that would have been seen, as a mean and for most
    /// operations; where no factor would have been, by far.
    fn has_moved(&self) -> bool {
        let (Some(shift), Some([a, b])) = (self.shift, self.means()) else { return false };
        let factor = if shift.effect > 0.0 { b / a } else { a / b };
        shift.effect.abs() >= MIN_EFFECT && factor >= self.least.latency.unwrap_or(WORTH_A_LOOK)
    }

    /// Whether it is of commands that were read in part.
    fn is_partial(&self) -> bool {
        let is_it = |row: &Row| matches!(row.subject, Subject::Shape { identity: Identity::Partial, .. });
        self.row().is_some_and(is_it)
    }

    /// Its verdict, and how its calls changed besides.
    fn label(&self) -> String {
        match self.calls_change {
            Some(calls) => format!("{}, {}", self.verdict.name(), calls.name()),
            None => self.verdict.name().to_owned(),
        }
    }

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
    /// The span of the history that it is; `None` if it is of a file.
    pub history: Option<Span>,
    /// In which zone its times are shown.
    pub zone: Zone,
    /// What must be known of it before its figures are believed: what stands behind its letter, a sentence each.
    pub notes: Vec<String>,
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
        Self::of(a, b, ComparedSources { same_clock, in_part: false }, whole)
    }

    /// The same of these sources.
    pub fn of(a: &'a Digest, b: &'a Digest, sources: ComparedSources, whole: [bool; 2]) -> Self {
        let ComparedSources { same_clock, in_part } = sources;
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
                let rated = |row: Option<&'a Row>, digest: &Digest| {
                    // A row that one source alone has counts by the time that this source was observed.
                    let sources = [row, left, right].into_iter().flatten().flat_map(Row::sources);
                    let observed = |source: &Source| digest.observed_by(*source).total_ns() > 0;
                    let source = sources.chain(digest.total.sources()).find(observed);
                    rate(of(row), &digest.observed_by(source.unwrap_or(Source::Wire)))
                };
                let rates = (rated(left, a), rated(right, b));
                let first = |row: Option<&'a Row>| row.and_then(|row| row.sources().next());
                let same_source = match (first(left), first(right)) {
                    (Some(left), Some(right)) => left == right,
                    (Some(source), None) => has_watched(b, source, same_clock),
                    (None, Some(source)) => has_watched(a, source, same_clock),
                    (None, None) => true,
                };
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
                    not_judged: None,
                    least: LeastSeen::default(),
                    calls_change: None,
                    rate_p: match (left.is_some(), right.is_some()) {
                        _ if !same_source || in_part => 1.0,
                        (true, false) => rates.0.p_of_all(rates.1),
                        (false, true) => rates.1.p_of_all(rates.0),
                        _ => rates.0.p(rates.1),
                    },
                    rates,
                    same_source,
                    shift,
                    ratios: (ratio(left), ratio(right)),
                    ratio_p: examined(of(left).timeline())
                        .zip(examined(of(right).timeline()))
                        .map(|(left, right)| left.p(right)),
                    growth: growth(of(right).timeline()),
                }
            })
            .collect();
        judge(&mut pairs, sources);
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

/// Whether `source` watched the operations of a digest, so that what it lacks was not there. `is_first`: the digest is of
/// the same source as the other one, also where it holds no operation.
fn has_watched(digest: &Digest, source: Source, is_first: bool) -> bool {
    digest.total.observed_by(source).is_some()
        || digest.observed_by(source).total_ns() > 0
        || (is_first && digest.total.sources().next().is_none())
}

/// What is known of the sources of both sides.
#[derive(Copy, Clone, Debug)]
pub struct ComparedSources {
    /// Latencies of both are of one kind of source and may be set beside each other.
    pub same_clock: bool,
    /// A capture has only a part of the messages: neither its shapes nor its numbers of calls are those of the workload.
    pub in_part: bool,
}

/// Judges all rows at once, so that the test corrects for their number.
fn judge(pairs: &mut [RowPair<'_>], sources: ComparedSources) {
    let ComparedSources { same_clock, in_part } = sources;
    let p: Vec<f64> = pairs
        .iter()
        .flat_map(|pair| [pair.rate_p, pair.shift.map_or(1.0, |shift| shift.p), pair.ratio_p.unwrap_or(1.0)])
        .collect();
    let stands = holm(&p);
    // What the smallest p value of all would have had to be.
    let alpha = ALPHA / p.len().max(1) as f64;
    for (pair, stands) in pairs.iter_mut().zip(stands.as_chunks::<3>().0) {
        let [by_rate, by_latency, by_ratio] = *stands;
        let shift = pair.shift.filter(|shift| by_latency && shift.effect.abs() >= MIN_EFFECT);
        let heavier = match pair.ratios {
            (Some(a), Some(b)) => by_ratio && a > 0.0 && b / a >= MIN_FACTOR,
            _ => false,
        };
        if pair.same_source && !in_part {
            pair.least.rate = least_more(pair.rates.0, pair.rates.1, alpha);
        }
        if let (Some(left), Some(right), Some(_)) = (pair.a, pair.b, pair.shift) {
            let dispersion = pair.dispersion();
            let (left, right) = (&left.figures().latency, &right.figures().latency);
            pair.least.latency = least_slower(left, right, Sensitivity { alpha, dispersion });
        }
        let (a, b) = (pair.rates.0.per_second, pair.rates.1.per_second);
        let calls_change = match (pair.a.is_some() && pair.b.is_some(), by_rate) {
            (true, true) if b / a >= MIN_FACTOR => Some(Change::MoreCalls),
            (true, true) if a / b >= MIN_FACTOR => Some(Change::FewerCalls),
            _ => None,
        };
        let is_in_one = pair.a.is_some() != pair.b.is_some();
        pair.verdict = match (pair.a.is_some(), pair.b.is_some(), shift) {
            _ if is_in_one && (in_part || pair.is_partial()) => {
                pair.not_judged = Some(NotJudged::InPart);
                Change::NotJudged
            }
            (false, true, _) if by_rate => Change::New,
            (true, false, _) if by_rate => Change::Gone,
            (_, _, Some(shift)) if shift.effect > 0.0 => Change::Slower,
            _ if heavier => Change::Heavier,
            (_, _, Some(_)) => Change::Faster,
            _ if let Some(calls) = calls_change => calls,
            (true, false, _) | (false, true, _) => {
                pair.not_judged = Some(match pair.same_source {
                    true => NotJudged::OnlyInOne,
                    false => NotJudged::OtherSource,
                });
                Change::NotJudged
            }
            _ if !pair.same_source && pair.ratio_p.is_none() => {
                pair.not_judged = Some(NotJudged::OtherSource);
                Change::NotJudged
            }
            _ if same_clock && pair.shift.is_none() => {
                let few = |row: Option<&Row>| row.is_some_and(|row| row.figures().calls < MIN_CALLS);
                pair.not_judged = Some(match few(pair.a) || few(pair.b) {
                    true => NotJudged::FewCalls,
                    false => NotJudged::FewLatencies,
                });
                Change::NotJudged
            }
            _ if pair.has_moved() => {
                pair.not_judged = Some(NotJudged::Varies);
                Change::NotJudged
            }
            _ => Change::Same,
        };
        if pair.verdict == Change::Slower || pair.verdict == Change::Heavier || pair.verdict == Change::Faster
        {
            pair.calls_change = calls_change;
        }
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

impl DigestComparison<'_> {
    fn count(&self, wants: impl Fn(&RowPair<'_>) -> bool) -> usize {
        self.pairs.iter().filter(|pair| wants(pair)).count()
    }

    fn changed(&self) -> usize {
        self.count(|pair| pair.verdict.is_change())
    }

    fn unchanged(&self) -> usize {
        self.count(|pair| pair.verdict == Change::Same)
    }

    fn not_judged(&self, why: NotJudged) -> usize {
        self.count(|pair| pair.not_judged == Some(why))
    }
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

/// Writes it as one JSON object.
///
/// # Errors
/// Those of `out`.
pub fn json(comparison: &DigestComparison<'_>, sides: &[ComparedSide; 2], out: impl Write) -> io::Result<()> {
    let reasons = [
        NotJudged::FewCalls,
        NotJudged::FewLatencies,
        NotJudged::OnlyInOne,
        NotJudged::OtherSource,
        NotJudged::Varies,
        NotJudged::InPart,
    ];
    let not_judged = reasons.map(|why| comparison.not_judged(why));
    let document = ComparisonDocument {
        schema: SCHEMA,
        kind: "comparison",
        about: About::of_sides(
            sides.each_ref().map(|side| side.host.as_deref()),
            sides.each_ref().map(|side| side.name.clone()).into(),
        ),
        sides: [
            ComparedSideJson::new(&sides[0], comparison.totals[0]),
            ComparedSideJson::new(&sides[1], comparison.totals[1]),
        ],
        changed: comparison.changed(),
        unchanged: comparison.unchanged(),
        not_judged: not_judged.iter().sum(),
        not_judged_few_latencies: not_judged[1],
        not_judged_in_one: not_judged[2],
        not_judged_other_source: not_judged[3],
        not_judged_varies: not_judged[4],
        not_judged_in_part: not_judged[5],
        not_compared: comparison.not_compared,
        by: comparison.by.name(),
        latencies_compared: comparison.same_clock,
        precision_ns: sides[0].source.precision_ns().max(sides[1].source.precision_ns()),
        worse: comparison.is_worse(),
        rows: comparison.pairs.iter().filter_map(RowPairJson::new).collect(),
    };
    kit::json::line(&document, out)
}

/// Two digests, compared row by row.
#[derive(Serialize, TS)]
pub(crate) struct ComparisonDocument<'a> {
    schema: u32,
    #[ts(type = "\"comparison\"")]
    kind: &'static str,
    about: About,
    /// A and B.
    sides: [ComparedSideJson<'a>; 2],
    /// Rows that changed.
    changed: usize,
    unchanged: usize,
    /// Rows of which too little is known, for any reason.
    not_judged: usize,
    not_judged_few_latencies: usize,
    not_judged_in_one: usize,
    not_judged_other_source: usize,
    /// Rows whose latency moved, but varies too much from second to second.
    not_judged_varies: usize,
    /// Rows of one side only, where messages of a capture, or these commands, were read in part.
    not_judged_in_part: usize,
    /// Rows that only one side has, where the other does not have all of its rows.
    not_compared: usize,
    by: &'static str,
    latencies_compared: bool,
    /// Durations are rounded down to a multiple of this, in nanoseconds.
    precision_ns: u64,
    worse: bool,
    rows: Vec<RowPairJson>,
}

#[derive(Serialize, TS)]
struct ComparedSideJson<'a> {
    name: &'a str,
    host: Option<&'a str>,
    source: &'static str,
    calls: u64,
    /// Nanoseconds since 1970.
    first_seen: u64,
    last_seen: u64,
    zone: ZoneObject,
    /// What must be known of it before its figures are believed.
    notes: &'a [String],
}

impl<'a> ComparedSideJson<'a> {
    fn new(side: &'a ComparedSide, totals: &Figures) -> Self {
        Self {
            name: &side.name,
            host: side.host.as_deref(),
            source: side.source.name(),
            calls: totals.calls,
            first_seen: totals.first_seen.unix_ns(),
            last_seen: totals.last_seen.unix_ns(),
            zone: ZoneObject::new(&side.zone, [totals.first_seen, totals.last_seen]),
            notes: &side.notes,
        }
    }
}

/// A row of both sides; pairs are of A and B.
#[derive(Serialize, TS)]
struct RowPairJson {
    verdict: &'static str,
    /// `more calls` or `fewer calls`, if they changed besides.
    calls_change: Option<&'static str>,
    /// Why it is not judged, if it is not.
    not_judged: Option<&'static str>,
    /// The smallest changes that would have been seen.
    least_latency_factor: Option<f64>,
    least_rate_factor: Option<f64>,
    mean_ns: Option<[u64; 2]>,
    in_a: bool,
    in_b: bool,
    shape_id: Option<Shown<ShapeId>>,
    identity: Option<&'static str>,
    class: Option<&'static str>,
    command: String,
    namespace: String,
    text: String,
    calls: [u64; 2],
    calls_per_s: [Option<f64>; 2],
    rate_p: f64,
    /// Cliff's delta of the latencies.
    effect: Option<f64>,
    latency_p: Option<f64>,
    p50_ns: Option<(u64, u64)>,
    p95_ns: Option<(u64, u64)>,
    p99_ns: Option<(u64, u64)>,
    examined_per_returned: (Option<f64>, Option<f64>),
    examined_p: Option<f64>,
    growth: Option<f64>,
}

impl RowPairJson {
    fn new(pair: &RowPair<'_>) -> Option<Self> {
        let row = pair.row()?;
        let (command, namespace, text) = names(row, Form::Typed);
        let (shape_id, identity) = match &row.subject {
            Subject::Shape { identity, shape, .. } => (Some(Shown(shape.id)), Some(identity.name())),
            _ => (None, None),
        };
        let calls = |row: Option<&Row>| row.map_or(0, |row| row.figures().calls);
        let quantile = |at: usize| pair.shift.map(|shift| shift.quantiles[at]);
        Some(Self {
            verdict: pair.verdict.name(),
            calls_change: pair.calls_change.map(Change::name),
            not_judged: pair.not_judged.map(NotJudged::name),
            least_latency_factor: pair.least.latency,
            least_rate_factor: pair.least.rate,
            mean_ns: pair.means().map(|means| means.map(|ns| ns as u64)),
            in_a: pair.a.is_some(),
            in_b: pair.b.is_some(),
            class: shape_id.is_some().then(|| row.class.name()),
            shape_id,
            identity,
            command,
            namespace,
            text,
            calls: [calls(pair.a), calls(pair.b)],
            calls_per_s: [pair.rates.0.known(), pair.rates.1.known()],
            rate_p: pair.rate_p,
            effect: pair.shift.map(|shift| shift.effect),
            latency_p: pair.shift.map(|shift| shift.p),
            p50_ns: quantile(0),
            p95_ns: quantile(1),
            p99_ns: quantile(2),
            examined_per_returned: pair.ratios,
            examined_p: pair.ratio_p,
            growth: pair.growth,
        })
    }
}
