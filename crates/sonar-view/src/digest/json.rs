//! The digest as one JSON object, which [`saved`](super::saved) reads back. Names are stable; what is not
//! known is `null`.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use sonar_core::figures::{Figures, ServerFigures, Share};
use sonar_core::row::Observed;
use sonar_core::shape::RULES_VERSION;
use sonar_core::{Digest, Reading, Role, Row, RowTotals, Source, Subject, Sum};
use ts_rs::TS;

use super::index_hint::Suggestion;
use super::log_notices::{NoticesJson, known};
use super::remarks::RowRemark;
use super::{DigestView, IncompletePart, SourceSummary, mean_ns};
use crate::kit::HiddenObject;
use crate::kit::json::line;
use crate::kit::{About, ZoneObject};

/// Version of the schema: it grows when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// Writes the digest as one line.
///
/// # Errors
/// Those of `out`.
pub fn json(view: &DigestView<'_>, out: impl Write) -> io::Result<()> {
    let (digest, totals) = (view.digest, &view.totals.figures);
    let reading = |reading: &Reading| reading.iter().map(|(name, _, n)| (name, n)).collect();
    line(
        &DigestDocument {
            schema: SCHEMA,
            kind: "digest".to_owned(),
            shape_rules: RULES_VERSION,
            about: Some(view.about()),
            answer: super::answer::sentence(view),
            source: view.source.name().to_owned(),
            by: digest.settings.by.name().to_owned(),
            sources: view.summaries.iter().map(|summary| SourceObject::new(summary, view)).collect(),
            totals: FiguresObject::of_all(&view.totals),
            observed: ObservedJson::of(digest, view.source),
            reading: view.reading.map(reading),
            coverage: view.coverage.map(|coverage| coverage.iter().map(|(name, _, n)| (name, n)).collect()),
            notices: view.notices.map(NoticesJson::from),
            filtered: !view.filter.is_empty(),
            hidden: HiddenObject::parts(&view.left_out(), view.sample),
            indexes_known: view.indexes.is_some(),
            index_hints: super::index_hint::all(view)
                .iter()
                .map(|one| IndexHintJson::new(one, view))
                .collect(),
            remarks: super::remarks::remarks(view)
                .iter()
                .filter_map(|(row, one)| RemarkJson::new(row, *one, view))
                .collect(),
            notes: view.notes.clone(),
            lost: view.losses().into_iter().collect(),
            lost_in_words: view.losses_in_words(),
            incomplete: view.incomplete(),
            zone: ZoneObject::new(&view.zone, [totals.first_seen, totals.last_seen]),
            precision_ns: view.source.precision_ns(),
            points: digest.settings.points.then(|| points(view)),
            points_seen: digest.settings.points.then_some(digest.points_seen),
            rows_total: view.rows_total as u64,
            rows: {
                let wanted = super::index_hint::wanted_by_row(view);
                view.rows
                    .iter()
                    .map(|(at, row)| DigestRowJson {
                        index_hint: wanted.get(at).cloned(),
                        by_source: BySource::new(row, view),
                        ..DigestRowJson::new(row, view)
                    })
                    .collect()
            },
        },
        out,
    )
}

/// The version of the rules of files that do not state it.
const fn first_rules() -> u32 {
    1
}

/// A digest as it is saved.
#[derive(Serialize, Deserialize, Debug, TS)]
pub(crate) struct DigestDocument {
    pub schema: u32,
    #[ts(type = "\"digest\"")]
    pub kind: String,
    /// Version of the rules that the shape ids follow.
    #[serde(default = "first_rules")]
    pub shape_rules: u32,
    #[serde(default)]
    #[ts(as = "About")]
    pub about: Option<About>,
    /// What takes the time, in one sentence; null if no row took any.
    #[serde(skip_deserializing)]
    pub answer: Option<String>,
    #[ts(type = "\"log\" | \"profile\" | \"wire\"")]
    pub source: String,
    pub by: String,
    /// What was read of each source, where there are several; `totals` and rows then have latencies of the first
    /// that has them, and what the server says of execution.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceObject>,
    pub totals: FiguresObject,
    /// When the source was observed; null where no operation tells.
    #[serde(default)]
    pub observed: Option<ObservedJson>,
    #[serde(skip_deserializing)]
    pub reading: Option<BTreeMap<&'static str, u64>>,
    /// Counters of the wire.
    #[serde(skip_deserializing)]
    pub coverage: Option<BTreeMap<&'static str, u64>>,
    #[serde(skip_deserializing)]
    pub notices: Option<NoticesJson>,
    /// Rows were left out by a filter.
    #[serde(default)]
    pub filtered: bool,
    /// Operations that the report leaves out, by reason.
    #[serde(skip_deserializing)]
    pub hidden: Vec<HiddenObject>,
    /// Hints leave out what an index that exists serves.
    #[serde(skip_deserializing)]
    pub indexes_known: bool,
    /// Indexes that may help, each once.
    #[serde(skip_deserializing)]
    pub index_hints: Vec<IndexHintJson>,
    /// What else stands out about shapes.
    #[serde(skip_deserializing)]
    pub remarks: Vec<RemarkJson>,
    /// What a reader must know before the figures.
    #[serde(skip_deserializing)]
    pub notes: Vec<String>,
    /// What was not read in full, by reason.
    #[serde(skip_deserializing)]
    pub lost: BTreeMap<&'static str, u64>,
    /// The same in words, one loss each.
    #[serde(skip_deserializing)]
    pub lost_in_words: Vec<String>,
    /// What was not read although nothing of it was lost, and what is not known in full.
    #[serde(skip_deserializing)]
    pub incomplete: Vec<IncompletePart>,
    /// The zone in which people see its times.
    #[serde(skip_deserializing)]
    pub zone: ZoneObject,
    /// Durations are rounded down to a multiple of this, in nanoseconds.
    #[serde(skip_deserializing)]
    pub precision_ns: u64,
    /// Single operations, three numbers each: microseconds from the first operation to the end of this one,
    /// microseconds of latency, and the row (-1 where it is not listed). Null where no page was asked for.
    #[serde(skip_deserializing)]
    pub points: Option<Vec<i64>>,
    /// How many operations the points were chosen from.
    #[serde(skip_deserializing)]
    pub points_seen: Option<u64>,
    pub rows_total: u64,
    pub rows: Vec<DigestRowJson>,
}

/// The points as [`DigestDocument::points`] says.
fn points(view: &DigestView<'_>) -> Vec<i64> {
    let places: HashMap<u32, i64> =
        view.rows.iter().enumerate().map(|(place, (row, _))| (*row as u32, place as i64)).collect();
    let first = view.totals.figures.first_seen;
    let number = |micros: u64| i64::try_from(micros).unwrap_or(i64::MAX);
    view.digest
        .points
        .iter()
        .flat_map(|point| {
            let row = places.get(&point.row).copied().unwrap_or(-1);
            [number(point.end.since(first) / 1_000), number(point.latency_ns / 1_000), row]
        })
        .collect()
}

/// The time that rates are divided by, in nanoseconds since the Unix epoch.
#[derive(Serialize, Deserialize, Copy, Clone, Debug, TS)]
pub(crate) struct ObservedJson {
    pub start_ns: u64,
    pub end_ns: u64,
}

impl ObservedJson {
    fn of(digest: &Digest, source: Source) -> Option<Self> {
        let (start, end) = digest.observed_by(source).ends()?;
        Some(Self { start_ns: start.unix_ns(), end_ns: end.unix_ns() })
    }
}

/// What was read of one source.
#[derive(Serialize, Deserialize, Debug, TS)]
pub(crate) struct SourceObject {
    pub source: String,
    pub files: Vec<String>,
    /// Nanoseconds since the Unix epoch; null where it has no operations.
    pub first_seen: Option<u64>,
    pub last_seen: Option<u64>,
    /// Null where it has no operations.
    pub totals: Option<FiguresObject>,
    /// Counters that are not zero.
    pub counters: BTreeMap<String, u64>,
    /// Those of them that could not be shown in full.
    pub losses: BTreeMap<String, u64>,
    pub damaged: bool,
}

impl SourceObject {
    fn new(summary: &SourceSummary, view: &DigestView<'_>) -> Self {
        let figures = view.digest.total.observed_by(summary.source).map(|observed| &observed.figures);
        let counters =
            |all: &[(&'static str, u64)]| all.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        Self {
            source: summary.source.name().to_owned(),
            files: summary.files.clone(),
            first_seen: figures.and_then(|figures| known(figures.first_seen)),
            last_seen: figures.and_then(|figures| known(figures.last_seen)),
            totals: figures.map(FiguresObject::of),
            counters: counters(&summary.counters),
            losses: counters(&summary.losses),
            damaged: summary.damaged,
        }
    }
}

/// What each source knows about a row; null where it knows nothing.
#[derive(Serialize, Deserialize, Debug, Default, TS)]
pub(crate) struct BySource {
    pub wire: Option<WireObject>,
    pub profile: Option<FiguresObject>,
    pub log: Option<FiguresObject>,
}

impl BySource {
    /// `None` where there is one source alone.
    fn new(row: &Row, view: &DigestView<'_>) -> Option<Self> {
        let of = |source| row.observed_by(source).map(|observed| FiguresObject::of(&observed.figures));
        (!view.summaries.is_empty()).then(|| Self {
            wire: row.observed_by(Source::Wire).map(WireObject::new),
            profile: of(Source::Profile),
            log: of(Source::Log),
        })
    }

    /// The figures of one source.
    pub(super) fn of(&self, source: Source) -> Option<&FiguresObject> {
        match source {
            Source::Wire => self.wire.as_ref().map(|wire| &wire.figures),
            Source::Profile => self.profile.as_ref(),
            Source::Log => self.log.as_ref(),
        }
    }
}

/// What the wire alone knows, beside what every source says.
#[derive(Serialize, Deserialize, Debug, TS)]
pub(crate) struct WireObject {
    unanswered: u64,
    unacknowledged: u64,
    outcome_unknown: u64,
    /// Null where no reply was seen.
    transfer_ns: Option<u64>,
    request_bytes: u64,
    /// Operations in flight when the capture ended.
    in_flight: u64,
    oldest_in_flight_ns: Option<u64>,
    #[serde(flatten)]
    pub figures: FiguresObject,
}

impl WireObject {
    fn new(observed: &Observed) -> Self {
        let (figures, in_flight) = (&observed.figures, observed.in_flight);
        Self {
            unanswered: figures.unanswered,
            unacknowledged: figures.unacknowledged,
            outcome_unknown: figures.outcome_unknown,
            transfer_ns: figures.known_transfer_ns(),
            request_bytes: figures.request_bytes,
            in_flight: in_flight.count,
            oldest_in_flight_ns: (in_flight.count > 0).then_some(in_flight.oldest_ns),
            figures: FiguresObject::of(figures),
        }
    }
}

/// An index that may help, and the shapes that would use it, the one with the most time first.
#[derive(Serialize, Debug, TS)]
pub(crate) struct IndexHintJson {
    namespace: String,
    index: String,
    time_share: f64,
    shapes: Vec<HintedShapeJson>,
}

#[derive(Serialize, Debug, TS)]
struct HintedShapeJson {
    shape_id: String,
    command: String,
    shape: String,
    time_share: f64,
    examined_per_returned: Option<f64>,
    plan: String,
    memory_sorts: u64,
}

impl IndexHintJson {
    fn new(suggestion: &Suggestion<'_>, view: &DigestView<'_>) -> Self {
        let shape = |row: &&Row| {
            let Subject::Shape { shape, .. } = &row.subject else { return None };
            Some(HintedShapeJson {
                shape_id: shape.id.to_string(),
                command: shape.command.to_string(),
                shape: view.form.of(shape).to_owned(),
                time_share: view.share(row),
                examined_per_returned: row.examined_per_returned(),
                plan: super::main_plan(row).to_owned(),
                memory_sorts: row.server().totals.memory_sorts,
            })
        };
        Self {
            namespace: suggestion.hint.namespace.clone(),
            index: suggestion.hint.index.clone(),
            time_share: suggestion.share,
            shapes: suggestion.rows.iter().filter_map(shape).collect(),
        }
    }
}

/// What else stands out about a shape.
#[derive(Serialize, Debug, TS)]
pub(crate) struct RemarkJson {
    /// `skip`, `view` or `replanned`.
    kind: &'static str,
    shape_id: String,
    namespace: String,
    calls: u64,
    view_of: Option<String>,
    command: String,
    shape: String,
    time_share: f64,
    /// What stands out, and what to do.
    words: String,
}

impl RemarkJson {
    fn new(row: &Row, remark: RowRemark, view: &DigestView<'_>) -> Option<Self> {
        let Subject::Shape { shape, .. } = &row.subject else { return None };
        let calls = match remark {
            RowRemark::Skip | RowRemark::View => row.figures().calls,
            RowRemark::Replanned(calls) => calls,
        };
        Some(Self {
            kind: remark.name(),
            shape_id: shape.id.to_string(),
            namespace: shape.namespace(),
            calls,
            view_of: row.server().view_of.as_deref().map(str::to_owned),
            command: shape.command.to_string(),
            shape: view.form.of(shape).to_owned(),
            time_share: view.share(row),
            words: remark.words(row),
        })
    }
}

#[derive(Serialize, Deserialize, Default, Debug, TS)]
pub(crate) struct DigestRowJson {
    pub shape_id: Option<String>,
    pub ordered_ids: Vec<String>,
    pub identity: Option<String>,
    pub class: Option<String>,
    /// Only in rows of what a router sent, beside those of what clients sent to it. Pages have the note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(skip)]
    pub role: Option<String>,
    pub command: Option<String>,
    pub database: Option<String>,
    pub collection: Option<String>,
    pub shape: Option<String>,
    pub plain: Option<String>,
    pub shape_cut: Option<bool>,
    pub app: Option<String>,
    pub namespace: Option<String>,
    pub plan: Option<String>,
    /// Only in rows by client, like the next two in rows by user and by comment. Empty if the source does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub client: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub comment: Option<String>,
    pub query_hash: Option<String>,
    /// Only where the report has several sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub by_source: Option<BySource>,
    #[serde(default)]
    pub index_hint: Option<String>,
    /// Null if the latency of no operation is known.
    pub time_share: Option<f64>,
    pub apps: Vec<DigestAppJson>,
    #[serde(flatten)]
    pub figures: FiguresObject,
}

#[derive(Serialize, Deserialize, Debug, TS)]
pub(crate) struct DigestAppJson {
    pub name: String,
    pub calls: u64,
    /// Null where that of the row is.
    pub failed: Option<u64>,
    /// Null where the latency of no operation of the row is known.
    pub latency_ns: Option<u64>,
}

/// The applications of a row by name, whatever their drivers are.
fn applications(row: &Row) -> Vec<DigestAppJson> {
    let observed = row.observed();
    let mut named: Vec<(String, Share)> = Vec::new();
    for (app, share) in observed.apps.iter() {
        let name = app.label();
        match named.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += *share,
            None => named.push((name, *share)),
        }
    }
    let (failed, latency_ns) = (observed.figures.known_failed(), observed.figures.known_latency_ns());
    let object = |(name, share): (String, Share)| DigestAppJson {
        name,
        calls: share.calls,
        failed: failed.map(|_| share.failed),
        latency_ns: latency_ns.map(|_| share.latency_ns),
    };
    named.into_iter().map(object).collect()
}

impl DigestRowJson {
    fn new(row: &Row, view: &DigestView<'_>) -> Self {
        let mut object = Self {
            ordered_ids: row.ordered_ids.iter().map(ToString::to_string).collect(),
            query_hash: row.query_hash().map(str::to_owned),
            time_share: view.known_share(row),
            apps: applications(row),
            figures: FiguresObject::new(row),
            ..Self::default()
        };
        match &row.subject {
            Subject::Shape { identity, shape, .. } => {
                object.shape_id = Some(shape.id.to_string());
                object.identity = Some(identity.name().to_owned());
                object.class = Some(row.class.name().to_owned());
                object.role = (row.role == Role::Issued).then(|| row.role.name().to_owned());
                object.command = Some(shape.command.to_string());
                object.database = Some(shape.database.to_string());
                object.collection = Some(shape.collection.to_string());
                object.shape = Some(shape.typed.to_string());
                object.plain = Some(shape.plain.to_string());
                object.shape_cut = Some(shape.cut);
            }
            Subject::Namespace(database, collection) => {
                object.namespace = Some(sonar_core::shape::namespace(database, collection));
            }
            Subject::App(app) => object.app = Some(app.label()),
            Subject::Plan(plan) => object.plan = Some(plan.to_string()),
            Subject::Client(ip) if ip.is_unspecified() => object.client = Some(String::new()),
            Subject::Client(ip) => object.client = Some(ip.to_string()),
            Subject::User(user) => object.user = Some(user.to_string()),
            Subject::Comment(comment) => object.comment = Some(comment.to_string()),
            Subject::Other => {}
        }
        object
    }
}

#[derive(Serialize, Deserialize, Default, Debug, TS)]
pub(crate) struct FiguresObject {
    pub calls: u64,
    pub entries: u64,
    pub statements: u64,
    /// Null, as `errors` is, if the outcome of no operation is known.
    pub failed: Option<u64>,
    pub errors: Option<BTreeMap<String, u64>>,
    pub errors_other: u64,
    pub latency_ns: LatencyObject,
    /// Each sum, and of how many operations it is known.
    pub sums: BTreeMap<String, (u64, u64)>,
    pub examined_per_returned: Option<f64>,
    pub collection_scans: u64,
    pub memory_sorts: u64,
    pub used_disk: u64,
    pub replanned: u64,
    pub plans: Vec<PlanObject>,
    pub plans_other: u64,
    /// Nanoseconds since the Unix epoch; null where no time is known.
    pub first_seen: Option<u64>,
    pub last_seen: Option<u64>,
    pub timeline: TimelineObject,
}

#[derive(Serialize, Deserialize, Debug, TS)]
pub(crate) struct PlanObject {
    pub summary: String,
    pub calls: u64,
    pub memory_sorts: u64,
}

#[derive(Serialize, Deserialize, Default, Debug, TS)]
pub(crate) struct LatencyObject {
    pub count: u64,
    pub zero: u64,
    /// Null if the latency of no operation is known.
    pub sum: Option<u64>,
    pub min: Option<u64>,
    pub max: Option<u64>,
    pub mean: Option<f64>,
    pub p50: Option<u64>,
    pub p95: Option<u64>,
    pub p99: Option<u64>,
    /// OpenTelemetry's index (scale 5, seconds) and the count.
    pub buckets: Vec<(i32, u64)>,
}

#[derive(Serialize, Deserialize, Default, Debug, TS)]
pub(crate) struct TimelineObject {
    pub width_ns: u64,
    /// Begin, calls, sum of latencies in nanoseconds, documents or keys examined.
    pub buckets: Vec<(u64, u64, u64, u64)>,
    /// Documents returned or changed, of each bucket.
    #[serde(default)]
    pub returned: Vec<u64>,
}

impl FiguresObject {
    /// Those of a row: latencies of the source that knows them best, and what the server says of execution.
    fn new(row: &Row) -> Self {
        let ratio = row.examined_per_returned();
        Self::with(row.figures(), row.server(), row.sums(), ratio)
    }

    /// Those of all rows.
    fn of_all(totals: &RowTotals) -> Self {
        let ratio = totals.examined_per_returned();
        Self::with(&totals.figures, totals.server(), totals.sums(), ratio)
    }

    /// Those of one source.
    fn of(figures: &Figures) -> Self {
        Self::with(figures, figures.server(), figures.sums(), figures.examined_per_returned())
    }

    fn with(
        figures: &Figures,
        server: &ServerFigures,
        sums: Vec<(&'static str, Sum)>,
        examined_per_returned: Option<f64>,
    ) -> Self {
        let (latency, timeline) = (&figures.latency, figures.timeline());
        let errors = figures.errors.iter().map(|(code, count)| (code.to_string(), *count));
        Self {
            calls: figures.calls,
            entries: figures.entries,
            statements: figures.statements,
            failed: figures.known_failed(),
            errors: figures.known_errors().map(|_| errors.collect()),
            errors_other: figures.errors.other,
            latency_ns: LatencyObject {
                count: latency.count(),
                zero: latency.zero_count(),
                sum: figures.known_latency_ns(),
                min: latency.min_ns(),
                max: latency.max_ns(),
                mean: mean_ns(figures),
                p50: latency.quantile_ns(0.5),
                p95: latency.quantile_ns(0.95),
                p99: latency.quantile_ns(0.99),
                buckets: latency.buckets().collect(),
            },
            sums: sums
                .into_iter()
                .filter(|(_, sum)| sum.known > 0)
                .map(|(name, sum)| (name.to_owned(), (sum.total, sum.known)))
                .collect(),
            examined_per_returned,
            collection_scans: server.totals.collection_scans,
            memory_sorts: server.totals.memory_sorts,
            used_disk: server.totals.used_disk,
            replanned: server.totals.replanned,
            plans: server
                .plans
                .iter()
                .map(|(summary, used)| PlanObject {
                    summary: summary.to_string(),
                    calls: used.calls,
                    memory_sorts: used.memory_sorts,
                })
                .collect(),
            plans_other: server.plans.other.calls,
            first_seen: known(figures.first_seen),
            last_seen: known(figures.last_seen),
            timeline: TimelineObject {
                width_ns: timeline.width_ns(),
                buckets: timeline
                    .iter()
                    .filter(|(_, bucket)| bucket.calls > 0)
                    .map(|(start, bucket)| {
                        (start.unix_ns(), bucket.calls, bucket.latency_ns, bucket.examined)
                    })
                    .collect(),
                returned: timeline
                    .iter()
                    .filter(|(_, bucket)| bucket.calls > 0)
                    .map(|(_, bucket)| bucket.returned)
                    .collect(),
            },
        }
    }
}
