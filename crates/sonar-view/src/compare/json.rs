//! The JSON document of a comparison.

use std::io::{self, Write};

use serde::Serialize;
use sonar_core::{Figures, Row, ShapeId, Subject};
use ts_rs::TS;

use super::verdict::{Change, NotJudged, RowPair};
use super::{ComparedSide, DigestComparison};
use crate::digest::names;
use crate::kit::json::Shown;
use crate::kit::{self, About, ZoneObject};
use crate::queries::Form;

/// Version of the JSON schema: it grows when a field changes its meaning or goes, not when one is added.
const SCHEMA: u32 = 3;

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
