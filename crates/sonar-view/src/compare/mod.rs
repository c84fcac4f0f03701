//! `compare`: two reports side by side: what is new, gone, or changed beyond noise.

mod json;
mod text;
mod verdict;

use std::collections::HashMap;

use sonar_core::history::Span;
use sonar_core::significance::{dispersion, examined, growth, rate, shift};
use sonar_core::{Digest, Figures, GroupBy, Row, Subject};

#[cfg(test)]
pub(crate) use self::json::ComparisonDocument;
pub use self::json::json;
pub use self::text::text;
use self::verdict::judge;
pub use self::verdict::{Change, LeastSeen, NotJudged, RowPair};
use crate::digest::{Source, names};
use crate::kit::Zone;
use crate::queries::Form;

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

impl DigestComparison<'_> {
    pub(super) fn count(&self, wants: impl Fn(&RowPair<'_>) -> bool) -> usize {
        self.pairs.iter().filter(|pair| wants(pair)).count()
    }

    pub(super) fn changed(&self) -> usize {
        self.count(|pair| pair.verdict.is_change())
    }

    pub(super) fn unchanged(&self) -> usize {
        self.count(|pair| pair.verdict == Change::Same)
    }

    pub(super) fn not_judged(&self, why: NotJudged) -> usize {
        self.count(|pair| pair.not_judged == Some(why))
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
