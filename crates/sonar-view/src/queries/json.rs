//! `queries` as JSON: one object per interval, and one for the summary at the end. The names are stable and
//! documented in `docs/queries.md`; what is not known is `null`.

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use sonar_core::figures::Share;
use sonar_core::operation::WaitingOperation;
use sonar_core::time_split::{OTHER, RowSplit};
use sonar_core::{Application, CommandType, Coverage, Endpoint, ShapeId};
use ts_rs::TS;

use super::server_state::ServerStateJson;
use crate::kit::json::{NamedCounts, Shown, line, name};
use crate::kit::{Hidden, HiddenObject, mean_ns, scaled, share};
use crate::queries::layout::suites_of;
use crate::queries::split::{longest_files, longest_waits, parts};
use crate::queries::{Grouping, ReportKey, ReportRow, Silence, Stats, WindowReport};
use crate::shown_part::ShownPart;

/// Version of the schema: it grows when a field changes its meaning or goes, not when one is added.
pub const SCHEMA: u32 = 1;

/// What an object covers.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ObjectKind {
    /// One interval.
    Interval,
    /// The whole capture.
    Summary,
}

impl ObjectKind {
    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interval => "interval",
            Self::Summary => "summary",
        }
    }
}

/// Writes a report as one line of JSON.
///
/// # Errors
/// Those of `out`.
pub fn report(report: &WindowReport<'_>, kind: ObjectKind, out: impl Write) -> io::Result<()> {
    let (sample, selection) = (report.sample, report.selection);
    let types = report.types.map(|types| CommandType::ALL.into_iter().zip(types));
    let document = QueriesDocument {
        schema: SCHEMA,
        kind: kind.name(),
        start_ns: report.start.unix_ns(),
        end_ns: report.end.unix_ns(),
        observed_ns: report.elapsed_ns,
        partial: report.is_partial,
        sample,
        by: selection.by.name(),
        classes: selection.classes.iter().map(|class| class.name()).collect(),
        role: selection.role.map(|role| role.name()),
        totals: QueryFiguresJson::new(&report.totals, sample, kind),
        by_type: types.map(|types| types.map(|(kind, count)| (kind.name(), scaled(count, sample))).collect()),
        hidden: HiddenObject::parts(&report.hidden, sample),
        empty_because: report.silence.as_ref(),
        notes: &report.notes,
        servers: report.servers.iter().map(ServerStateJson::from).collect(),
        coverage: coverage(report.coverage),
        rows_total: report.rows_total,
        rows: Rows(report, kind),
    };
    line(&document, out)
}

/// Writes the end of operations one by one: how many were `shown`, what was left out, what was lost.
///
/// # Errors
/// Those of `out`.
pub fn end(shown: u64, rest: &LeftOutJson<'_>, out: impl Write) -> io::Result<()> {
    let document = EachEndDocument {
        schema: SCHEMA,
        kind: ObjectKind::Summary.name(),
        operations: shown,
        hidden: HiddenObject::parts(rest.hidden, 1),
        empty_because: rest.silence,
        notes: rest.notes,
        coverage: coverage(rest.coverage),
    };
    line(&document, out)
}

/// What operations one by one do not show.
#[derive(Copy, Clone, Debug)]
pub struct LeftOutJson<'a> {
    /// What was left out on purpose.
    pub hidden: &'a Hidden,
    /// Why there was nothing.
    pub silence: Option<&'a Silence>,
    /// What was lost.
    pub coverage: &'a Coverage,
    /// What a reader must know about the input.
    pub notes: &'a [String],
}

/// What `queries` saw in an interval or in all. Counts are scaled up from a sample.
#[derive(Serialize, TS)]
pub(crate) struct QueriesDocument<'a> {
    schema: u32,
    #[ts(type = "\"interval\" | \"summary\"")]
    kind: &'static str,
    start_ns: u64,
    end_ns: u64,
    observed_ns: u64,
    partial: bool,
    sample: u32,
    by: &'static str,
    classes: Vec<&'static str>,
    role: Option<&'static str>,
    totals: QueryFiguresJson,
    by_type: Option<NamedCounts>,
    hidden: Vec<HiddenObject>,
    empty_because: Option<&'a Silence>,
    notes: &'a [String],
    servers: Vec<ServerStateJson<'a>>,
    coverage: NamedCounts,
    rows_total: usize,
    #[ts(as = "Vec<QueryRowJson<'a>>")]
    rows: Rows<'a>,
}

#[derive(Serialize)]
struct EachEndDocument<'a> {
    schema: u32,
    kind: &'static str,
    operations: u64,
    hidden: Vec<HiddenObject>,
    empty_because: Option<&'a Silence>,
    notes: &'a [String],
    coverage: NamedCounts,
}

/// The rows, each built when it is written.
struct Rows<'a>(&'a WindowReport<'a>, ObjectKind);

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.rows.iter().map(|row| QueryRowJson::new(row, self.0, self.1)))
    }
}

fn coverage(coverage: &Coverage) -> NamedCounts {
    coverage.iter().map(|(name, _, value)| (name, value)).collect()
}

/// The figures of a row or of the totals.
#[derive(Serialize, TS)]
struct QueryFiguresJson {
    calls: u64,
    calls_per_s: Option<f64>,
    load: Option<f64>,
    statements: u64,
    errors: Option<NamedCounts>,
    failed: Option<u64>,
    unanswered: u64,
    unacknowledged: u64,
    outcome_unknown: u64,
    latency_ns: QueryLatencyJson,
    transfer_ns: Option<u64>,
    request_bytes: Option<u64>,
    response_bytes: Option<u64>,
    docs_returned: Option<u64>,
    docs_affected: Option<u64>,
    tls_operations: Option<u64>,
    tls_suites: NamedCounts,
    in_flight: Option<u64>,
    oldest_in_flight_ns: Option<u64>,
    first_seen: Option<u64>,
    last_seen: Option<u64>,
}

#[derive(Serialize, TS)]
struct QueryLatencyJson {
    p50: Option<u64>,
    p95: Option<u64>,
    p99: Option<u64>,
    p999: Option<u64>,
    max: Option<u64>,
    sum: Option<u64>,
    min: Option<u64>,
    count: u64,
    mean: Option<f64>,
    /// Only in summaries, like `buckets`: both would be most of an interval's document.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    zero: Option<u64>,
    /// OpenTelemetry's index (scale 5, seconds) and the count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    buckets: Option<Vec<(i32, u64)>>,
}

impl QueryFiguresJson {
    fn new(stats: &Stats<'_>, sample: u32, kind: ObjectKind) -> Self {
        let (figures, quantiles) = (&stats.figures, stats.quantiles);
        let times = |n| scaled(n, sample);
        let mut codes: Vec<(i32, u64)> = figures.errors.iter().copied().collect();
        codes.sort_unstable();
        let other = (figures.errors.other > 0).then(|| ("other".to_owned(), figures.errors.other));
        let errors = codes.into_iter().map(|(code, count)| (code.to_string(), count)).chain(other);
        let is_summary = kind == ObjectKind::Summary;
        let buckets = || figures.latency.buckets().map(|(index, count)| (index, times(count))).collect();
        let seen = figures.calls > 0;
        Self {
            calls: times(figures.calls),
            calls_per_s: stats.rates.calls,
            load: stats.rates.load,
            statements: times(figures.statements),
            errors: figures
                .known_errors()
                .map(|_| errors.map(|(code, count)| (code, times(count))).collect()),
            failed: figures.known_failed().map(times),
            unanswered: times(figures.unanswered),
            unacknowledged: times(figures.unacknowledged),
            outcome_unknown: times(figures.outcome_unknown),
            latency_ns: QueryLatencyJson {
                p50: quantiles.p50,
                p95: quantiles.p95,
                p99: quantiles.p99,
                p999: quantiles.p999,
                max: quantiles.max,
                sum: figures.known_latency_ns().map(times),
                min: figures.latency.min_ns(),
                count: times(figures.latency.count()),
                mean: mean_ns(&figures.latency),
                zero: is_summary.then(|| times(figures.latency.zero_count())),
                buckets: is_summary.then(buckets),
            },
            transfer_ns: figures.known_transfer_ns().map(times),
            request_bytes: figures.known_request_bytes().map(times),
            response_bytes: figures.known_response_bytes().map(times),
            docs_returned: figures.returned.get().map(times),
            docs_affected: figures.affected.get().map(times),
            tls_operations: figures.tls.get().map(times),
            tls_suites: suites_of(figures).into_iter().map(|(name, count)| (name, times(count))).collect(),
            in_flight: stats.in_flight.map(|waiting| times(waiting.count)),
            oldest_in_flight_ns: stats.in_flight.and_then(|waiting| waiting.oldest_ns),
            first_seen: seen.then(|| figures.first_seen.unix_ns()),
            last_seen: seen.then(|| figures.last_seen.unix_ns()),
        }
    }
}

#[derive(Serialize, TS)]
struct QueryRowJson<'a> {
    #[serde(flatten)]
    key: QueryKeyJson<'a>,
    #[serde(flatten)]
    figures: QueryFiguresJson,
    time_share: Option<f64>,
    baseline: Option<QueryBaselineJson>,
    split: Option<RowSplitJson<'a>>,
    in_progress: Vec<WaitingOperationJson<'a>>,
    /// Only in rows by shape or namespace, like the next three.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    apps: Option<Vec<AppCallerJson<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    apps_other: Option<Option<CallerShareJson>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    clients: Option<Vec<ClientCallerJson>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    clients_other: Option<Option<CallerShareJson>>,
}

/// What a row is about.
#[derive(Serialize, TS)]
#[serde(untagged)]
enum QueryKeyJson<'a> {
    Shape(QueryShapeJson<'a>),
    Namespace(QueryNamespaceJson<'a>),
    App(QueryAppJson<'a>),
    Client(QueryClientJson),
}

#[derive(Serialize, TS)]
struct QueryShapeJson<'a> {
    shape_id: Shown<ShapeId>,
    /// Null if there are several.
    ordered_id: Option<Shown<ShapeId>>,
    ordered_ids: usize,
    command: &'a str,
    database: Option<&'a str>,
    collection: Option<&'a str>,
    shape: &'a str,
    shape_cut: bool,
    statement_shapes: Vec<Shown<ShapeId>>,
    role: &'static str,
    class: &'static str,
    server: Shown<Endpoint>,
}

#[derive(Serialize, TS)]
struct QueryNamespaceJson<'a> {
    namespace: String,
    database: Option<&'a str>,
    collection: Option<&'a str>,
}

#[derive(Serialize, TS)]
struct QueryAppJson<'a> {
    app: Option<&'a str>,
    #[serde(flatten)]
    driver: DriverJson<'a>,
    /// Whether it is all applications that had no row.
    other: bool,
}

#[derive(Serialize, TS)]
struct QueryClientJson {
    client: Option<IpAddr>,
    /// Whether it is all clients that had no row.
    other: bool,
}

#[derive(Default, Serialize, TS)]
struct DriverJson<'a> {
    driver: Option<&'a str>,
    driver_version: Option<&'a str>,
    joined_late: bool,
}

impl<'a> DriverJson<'a> {
    fn new(app: &'a Application) -> Self {
        Self {
            driver: name(&app.driver),
            driver_version: name(&app.driver_version),
            joined_late: app.joined_late,
        }
    }
}

#[derive(Serialize, TS)]
struct AppCallerJson<'a> {
    name: Option<&'a str>,
    #[serde(flatten)]
    driver: DriverJson<'a>,
    #[serde(flatten)]
    share: CallerShareJson,
}

#[derive(Serialize, TS)]
struct ClientCallerJson {
    address: IpAddr,
    #[serde(flatten)]
    share: CallerShareJson,
}

/// What is not known of any operation of the row is not known of those of a caller.
#[derive(Serialize, TS)]
struct CallerShareJson {
    calls: u64,
    failed: Option<u64>,
    latency_ns: Option<u64>,
}

#[derive(Serialize, TS)]
struct QueryBaselineJson {
    since: &'static str,
    effect: Option<f64>,
    p: Option<f64>,
    p50_ns: Option<u64>,
    p95_ns: Option<u64>,
    p99_ns: Option<u64>,
}

impl<'a> QueryRowJson<'a> {
    fn new(row: &'a ReportRow<'a>, report: &WindowReport<'_>, kind: ObjectKind) -> Self {
        let (sample, figures) = (report.sample, &row.stats.figures);
        let sum = |stats: &Stats<'_>| stats.figures.latency.sum_ns() as f64;
        let all = sum(&report.totals);
        let baseline = row.against.map(|against| {
            let before = |at: usize| against.shift.map(|shift| shift.quantiles[at].0);
            QueryBaselineJson {
                since: against.status.name(),
                effect: against.shift.map(|shift| shift.effect),
                p: against.shift.map(|shift| shift.p),
                p50_ns: before(0),
                p95_ns: before(1),
                p99_ns: before(2),
            }
        });
        let (failed, latency_ns) = (figures.known_failed(), figures.known_latency_ns());
        let share = |share: Share| CallerShareJson {
            calls: scaled(share.calls, sample),
            failed: failed.map(|_| scaled(share.failed, sample)),
            latency_ns: latency_ns.map(|_| scaled(share.latency_ns, sample)),
        };
        let other = |rest: Share| (rest.calls > 0).then(|| share(rest));
        let app = |(app, of): (&'a Arc<Application>, Share)| AppCallerJson {
            name: name(&app.name),
            driver: DriverJson::new(app),
            share: share(of),
        };
        let client =
            |(address, of): (&IpAddr, Share)| ClientCallerJson { address: *address, share: share(of) };
        let (apps, clients) = (row.apps(), row.clients());
        Self {
            key: QueryKeyJson::new(row, report),
            figures: QueryFiguresJson::new(&row.stats, sample, kind),
            time_share: latency_ns.map(|_| if all > 0.0 { sum(&row.stats) / all } else { 0.0 }),
            baseline,
            split: row.split.as_deref().map(RowSplitJson::new),
            in_progress: row.in_progress.iter().filter_map(|one| WaitingOperationJson::new(one)).collect(),
            apps_other: apps.as_ref().map(|apps| other(apps.other)),
            apps: apps.map(|apps| apps.entries.into_iter().map(app).collect()),
            clients_other: clients.as_ref().map(|clients| other(clients.other)),
            clients: clients.map(|clients| clients.entries.into_iter().map(client).collect()),
        }
    }
}

impl<'a> QueryKeyJson<'a> {
    fn new(row: &'a ReportRow<'a>, report: &WindowReport<'_>) -> Self {
        match &row.key {
            ReportKey::Shape { key, shape } => {
                let ids = row.ordered_ids();
                let ordered_id = match (key.order.0, ids.as_slice()) {
                    (0, [only]) => Some(*only),
                    (0, _) => None,
                    _ => Some(key.order),
                };
                Self::Shape(QueryShapeJson {
                    shape_id: Shown(key.shape),
                    ordered_id: ordered_id.map(Shown),
                    ordered_ids: ids.len(),
                    command: &shape.command,
                    database: name(&shape.database),
                    collection: name(&shape.collection),
                    shape: report.selection.form.of(shape),
                    shape_cut: shape.cut,
                    statement_shapes: shape.statements.iter().copied().map(Shown).collect(),
                    role: key.role.name(),
                    class: key.class.name(),
                    server: Shown(key.server),
                })
            }
            ReportKey::Namespace { database, collection } => Self::Namespace(QueryNamespaceJson {
                namespace: row.namespace().unwrap_or_default(),
                database: name(database),
                collection: name(collection),
            }),
            ReportKey::App(app) => {
                Self::App(QueryAppJson { app: name(&app.name), driver: DriverJson::new(app), other: false })
            }
            ReportKey::Client(ip) => Self::Client(QueryClientJson { client: Some(*ip), other: false }),
            ReportKey::Other if report.selection.by == Grouping::App => {
                Self::App(QueryAppJson { app: None, driver: DriverJson::default(), other: true })
            }
            ReportKey::Other => Self::Client(QueryClientJson { client: None, other: true }),
        }
    }
}

/// Where the time of the operations that were traced went; not scaled.
#[derive(Serialize, TS)]
struct RowSplitJson<'a> {
    operations: u64,
    total_ns: u64,
    /// The longest first; waits and files, too.
    parts: Vec<RowPartJson>,
    waits: Vec<RowWaitJson<'a>>,
    files: Vec<RowFileJson<'a>>,
    device_bytes: u64,
}

#[derive(Serialize, TS)]
struct RowPartJson {
    part: ShownPart,
    ns: u64,
    share: f64,
}

#[derive(Serialize, TS)]
struct RowWaitJson<'a> {
    part: &'static str,
    /// Null for all others.
    class: Option<&'a str>,
    waits: u64,
    wait_ns: u64,
}

#[derive(Serialize, TS)]
struct RowFileJson<'a> {
    /// Null for all others.
    name: Option<&'a str>,
    reads: u64,
    bytes: u64,
    wait_ns: u64,
}

impl<'a> RowSplitJson<'a> {
    fn new(split: &'a RowSplit) -> Self {
        let total_ns = split.total_ns();
        let part = |(part, ns)| RowPartJson { part, ns, share: share(ns, total_ns) };
        let named = |name: &'a str| (name != OTHER).then_some(name);
        let waits = longest_waits(split).into_iter().map(|((part, class), total)| RowWaitJson {
            part: part.name(),
            class: named(class),
            waits: total.waits,
            wait_ns: total.wait_ns,
        });
        let files = longest_files(split).into_iter().map(|(name, total)| RowFileJson {
            name: named(name),
            reads: total.reads,
            bytes: total.bytes,
            wait_ns: total.wait_ns,
        });
        Self {
            operations: split.operations,
            total_ns,
            parts: parts(split).into_iter().map(part).collect(),
            waits: waits.collect(),
            files: files.collect(),
            device_bytes: split.device_bytes,
        }
    }
}

/// An operation in flight, with what its thread does.
#[derive(Serialize, TS)]
struct WaitingOperationJson<'a> {
    client: Shown<Endpoint>,
    request_id: u32,
    elapsed_ns: u64,
    thread_name: &'a str,
    doing: &'static str,
    doing_since_ns: u64,
    doing_ns: u64,
    class: Option<&'a str>,
    file: Option<&'a str>,
    earlier_blocker: Option<EarlierBlockerJson<'a>>,
}

#[derive(Serialize, TS)]
struct EarlierBlockerJson<'a> {
    thread: u32,
    thread_name: Option<&'a str>,
    wait_ns: u64,
}

impl<'a> WaitingOperationJson<'a> {
    /// `None` if its thread was not seen.
    fn new(one: &'a WaitingOperation) -> Option<Self> {
        let now = one.now.as_deref()?;
        Some(Self {
            client: Shown(one.client),
            request_id: one.request_id,
            elapsed_ns: one.age_ns,
            thread_name: &now.thread_name,
            doing: now.doing.name(),
            doing_since_ns: now.since.unix_ns(),
            doing_ns: now.doing_ns,
            class: now.class.as_deref(),
            file: now.file.as_deref(),
            earlier_blocker: now.blocker.as_ref().map(|blocker| EarlierBlockerJson {
                thread: blocker.thread,
                thread_name: blocker.thread_name.as_deref(),
                wait_ns: blocker.wait_ns,
            }),
        })
    }
}
