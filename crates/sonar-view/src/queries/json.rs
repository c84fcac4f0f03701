//! JSON: one object per interval, and one for the summary at the end. The names are stable and
//! documented in `docs/queries.md`; what is not known is `null`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::IpAddr;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use sonar_core::baseline::BaselineResult;
use sonar_core::figures::{Figures, Share};
use sonar_core::{Application, CommandType, Coverage};

use crate::kit::json::{line, name};
use crate::kit::{Hidden, HiddenObject};
use crate::queries::{Key, Report, Row, Silence, Stats, scaled};

/// Version of the schema: it grows when a field changes its meaning or goes, not when one is added.
pub const SCHEMA: u32 = 1;

/// What an object tells of.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One interval.
    Interval,
    /// The whole capture.
    Summary,
}

/// Writes a report as one line of JSON.
///
/// # Errors
/// Those of `out`.
pub fn report(report: &Report<'_>, kind: Kind, out: impl Write) -> io::Result<()> {
    let sample = report.sample;
    let selection = report.selection;
    line(
        &Object {
            schema: SCHEMA,
            kind,
            start_ns: report.start.unix_ns(),
            end_ns: report.end.unix_ns(),
            sample,
            by: selection.by.name(),
            classes: selection.classes.iter().map(|class| class.name()).collect(),
            role: selection.role.map(|role| role.name()),
            totals: Measures::new(&report.totals, sample, kind),
            by_type: ByType(&report.types, sample),
            hidden: HiddenObject::parts(&report.hidden, sample),
            empty_because: report.silence.as_ref().map(SilenceObject::new),
            coverage: Counters(report.coverage),
            rows_total: report.rows_total,
            rows: report.rows.iter().map(|row| RowObject::new(row, report, kind)).collect(),
        },
        out,
    )
}

/// Writes the end of operations one by one: how many were `shown`, what was left out, what was lost.
///
/// # Errors
/// Those of `out`.
pub fn end(shown: u64, rest: &Left<'_>, out: impl Write) -> io::Result<()> {
    line(
        &EndObject {
            schema: SCHEMA,
            kind: Kind::Summary,
            operations: shown,
            hidden: HiddenObject::parts(rest.hidden, 1),
            empty_because: rest.silence.map(SilenceObject::new),
            coverage: Counters(rest.coverage),
        },
        out,
    )
}

/// What operations one by one do not show.
#[derive(Copy, Clone, Debug)]
pub struct Left<'a> {
    /// What was left out on purpose.
    pub hidden: &'a Hidden,
    /// Why there was nothing.
    pub silence: Option<&'a Silence>,
    /// What was lost.
    pub coverage: &'a Coverage,
}

#[derive(Serialize)]
struct EndObject<'a> {
    schema: u32,
    kind: Kind,
    operations: u64,
    hidden: Vec<HiddenObject>,
    empty_because: Option<SilenceObject<'a>>,
    coverage: Counters<'a>,
}

#[derive(Serialize)]
struct Object<'a> {
    schema: u32,
    kind: Kind,
    start_ns: u64,
    end_ns: u64,
    sample: u32,
    by: &'static str,
    classes: Vec<&'static str>,
    role: Option<&'static str>,
    totals: Measures<'a>,
    by_type: ByType<'a>,
    hidden: Vec<HiddenObject>,
    empty_because: Option<SilenceObject<'a>>,
    coverage: Counters<'a>,
    rows_total: usize,
    rows: Vec<RowObject<'a>>,
}

/// Counts by type of command, and what to scale them by.
struct ByType<'a>(&'a [u64; CommandType::ALL.len()], u32);

impl Serialize for ByType<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (kind, count) in CommandType::ALL.into_iter().zip(self.0) {
            map.serialize_entry(kind.name(), &scaled(*count, self.1))?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct SilenceObject<'a> {
    reason: &'static str,
    what: &'a str,
    next: &'a str,
}

impl<'a> SilenceObject<'a> {
    fn new(silence: &'a Silence) -> Self {
        Self { reason: silence.reason, what: &silence.what, next: &silence.next }
    }
}

struct Counters<'a>(&'a Coverage);

impl Serialize for Counters<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, _, value) in self.0.iter() {
            map.serialize_entry(name, &value)?;
        }
        map.end()
    }
}

/// The figures of a row or of the totals, counts scaled up from a sample.
#[derive(Serialize)]
struct Measures<'a> {
    calls: u64,
    statements: u64,
    errors: Errors<'a>,
    failed: u64,
    unanswered: u64,
    unacknowledged: u64,
    outcome_unknown: u64,
    latency_ns: Latency,
    transfer_ns: u64,
    request_bytes: u64,
    response_bytes: u64,
    docs_returned: Option<u64>,
    docs_affected: Option<u64>,
    in_flight: Option<u64>,
    oldest_in_flight_ns: Option<u64>,
    first_seen: Option<u64>,
    last_seen: Option<u64>,
}

impl<'a> Measures<'a> {
    fn new(stats: &'a Stats<'_>, sample: u32, kind: Kind) -> Self {
        let figures: &Figures = &stats.figures;
        let times = |n| scaled(n, sample);
        let seen = figures.calls > 0;
        let sum = u64::try_from(figures.latency.sum_ns()).unwrap_or(u64::MAX);
        let quantiles = stats.quantiles;
        Self {
            calls: times(figures.calls),
            statements: times(figures.statements),
            errors: Errors { figures, sample },
            failed: times(figures.failed),
            unanswered: times(figures.unanswered),
            unacknowledged: times(figures.unacknowledged),
            outcome_unknown: times(figures.outcome_unknown),
            latency_ns: Latency {
                p50: quantiles.p50,
                p95: quantiles.p95,
                p99: quantiles.p99,
                p999: quantiles.p999,
                max: quantiles.max,
                sum: times(sum),
                min: figures.latency.min_ns(),
                count: times(figures.latency.count()),
                mean: crate::kit::mean_ns(&figures.latency),
                // Of an interval they would be most of it.
                zero: (kind == Kind::Summary).then(|| times(figures.latency.zero_count())),
                buckets: (kind == Kind::Summary)
                    .then(|| figures.latency.buckets().map(|(index, count)| (index, times(count))).collect()),
            },
            transfer_ns: times(figures.transfer_ns),
            request_bytes: times(figures.request_bytes),
            response_bytes: times(figures.response_bytes.total),
            docs_returned: figures.returned.get().map(times),
            docs_affected: figures.affected.get().map(times),
            in_flight: stats.in_flight.map(|waiting| times(waiting.count)),
            oldest_in_flight_ns: stats.in_flight.and_then(|waiting| waiting.oldest_ns),
            first_seen: seen.then(|| figures.first_seen.unix_ns()),
            last_seen: seen.then(|| figures.last_seen.unix_ns()),
        }
    }
}

struct Errors<'a> {
    figures: &'a Figures,
    sample: u32,
}

impl Serialize for Errors<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let by_code: BTreeMap<i32, u64> = self.figures.errors.iter().copied().collect();
        let mut map = serializer.serialize_map(None)?;
        for (code, count) in by_code {
            map.serialize_entry(&code, &scaled(count, self.sample))?;
        }
        if self.figures.errors.other > 0 {
            map.serialize_entry("other", &scaled(self.figures.errors.other, self.sample))?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct Latency {
    p50: Option<u64>,
    p95: Option<u64>,
    p99: Option<u64>,
    p999: Option<u64>,
    max: Option<u64>,
    sum: u64,
    min: Option<u64>,
    count: u64,
    mean: Option<f64>,
    /// Durations of 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    zero: Option<u64>,
    /// OpenTelemetry's index (scale 5, seconds) and the count.
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets: Option<Vec<(i32, u64)>>,
}

#[derive(Serialize)]
struct RowObject<'a> {
    #[serde(flatten)]
    key: KeyObject<'a>,
    #[serde(flatten)]
    measures: Measures<'a>,
    time_share: f64,
    baseline: Option<AgainstObject>,
    #[serde(flatten)]
    callers: Option<Callers<'a>>,
}

/// A row beside the baseline.
#[derive(Serialize)]
struct AgainstObject {
    since: &'static str,
    effect: Option<f64>,
    p: Option<f64>,
    p50_ns: Option<u64>,
    p95_ns: Option<u64>,
    p99_ns: Option<u64>,
}

impl AgainstObject {
    fn new(against: &BaselineResult) -> Self {
        let before = |at: usize| against.shift.map(|shift| shift.quantiles[at].0);
        Self {
            since: against.status.name(),
            effect: against.shift.map(|shift| shift.effect),
            p: against.shift.map(|shift| shift.p),
            p50_ns: before(0),
            p95_ns: before(1),
            p99_ns: before(2),
        }
    }
}

impl<'a> RowObject<'a> {
    fn new(row: &'a Row<'_>, report: &Report<'_>, kind: Kind) -> Self {
        let sample = report.sample;
        let callers = row.apps().zip(row.clients()).map(|(apps, clients)| {
            let left_over = |share: Share| (share.calls > 0).then(|| ShareObject::new(share, sample));
            let address = |ip: &IpAddr, share| ClientObject {
                address: ip.to_string(),
                share: ShareObject::new(share, sample),
            };
            Callers {
                apps: apps
                    .entries
                    .into_iter()
                    .map(|(app, share)| AppObject::new(app, share, sample))
                    .collect(),
                apps_other: left_over(apps.other),
                clients: clients.entries.into_iter().map(|(ip, share)| address(ip, share)).collect(),
                clients_other: left_over(clients.other),
            }
        });
        let sum = |stats: &Stats<'_>| stats.figures.latency.sum_ns() as f64;
        let all = sum(&report.totals);
        Self {
            key: KeyObject::new(row, report),
            measures: Measures::new(&row.stats, sample, kind),
            time_share: if all > 0.0 { sum(&row.stats) / all } else { 0.0 },
            baseline: row.against.as_ref().map(AgainstObject::new),
            callers,
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum KeyObject<'a> {
    Shape {
        shape_id: String,
        ordered_id: Option<String>,
        ordered_ids: usize,
        command: &'a str,
        database: Option<&'a str>,
        collection: Option<&'a str>,
        shape: &'a str,
        shape_cut: bool,
        statement_shapes: Vec<String>,
        role: &'static str,
        class: &'static str,
        server: String,
    },
    Namespace {
        namespace: String,
        database: Option<&'a str>,
        collection: Option<&'a str>,
    },
    App {
        app: Option<&'a str>,
        driver: Option<&'a str>,
        driver_version: Option<&'a str>,
        joined_late: bool,
        other: bool,
    },
    Client {
        client: Option<String>,
        other: bool,
    },
}

impl<'a> KeyObject<'a> {
    fn new(row: &'a Row<'_>, report: &Report<'_>) -> Self {
        match &row.key {
            Key::Shape { key, shape } => {
                let ids = row.ordered_ids();
                let ordered_id = match (key.order.0, ids.as_slice()) {
                    (0, [only]) => Some(*only),
                    (0, _) => None,
                    _ => Some(key.order),
                };
                Self::Shape {
                    shape_id: key.shape.to_string(),
                    ordered_id: ordered_id.map(|id| id.to_string()),
                    ordered_ids: ids.len(),
                    command: &shape.command,
                    database: name(&shape.database),
                    collection: name(&shape.collection),
                    shape: report.selection.form.of(shape),
                    shape_cut: shape.cut,
                    statement_shapes: shape.statements.iter().map(ToString::to_string).collect(),
                    role: key.role.name(),
                    class: key.class.name(),
                    server: key.server.to_string(),
                }
            }
            Key::Namespace { database, collection } => Self::Namespace {
                namespace: row.namespace().unwrap_or_default(),
                database: name(database),
                collection: name(collection),
            },
            Key::App(app) => Self::App {
                app: name(&app.name),
                driver: name(&app.driver),
                driver_version: name(&app.driver_version),
                joined_late: app.joined_late,
                other: false,
            },
            Key::Client(ip) => Self::Client { client: Some(ip.to_string()), other: false },
            Key::Other if report.selection.by == crate::queries::By::App => {
                Self::App { app: None, driver: None, driver_version: None, joined_late: false, other: true }
            }
            Key::Other => Self::Client { client: None, other: true },
        }
    }
}

#[derive(Serialize)]
struct Callers<'a> {
    apps: Vec<AppObject<'a>>,
    apps_other: Option<ShareObject>,
    clients: Vec<ClientObject>,
    clients_other: Option<ShareObject>,
}

#[derive(Serialize)]
struct AppObject<'a> {
    name: Option<&'a str>,
    driver: Option<&'a str>,
    driver_version: Option<&'a str>,
    joined_late: bool,
    #[serde(flatten)]
    share: ShareObject,
}

impl<'a> AppObject<'a> {
    fn new(app: &'a Application, share: Share, sample: u32) -> Self {
        Self {
            name: name(&app.name),
            driver: name(&app.driver),
            driver_version: name(&app.driver_version),
            joined_late: app.joined_late,
            share: ShareObject::new(share, sample),
        }
    }
}

#[derive(Serialize)]
struct ClientObject {
    address: String,
    #[serde(flatten)]
    share: ShareObject,
}

#[derive(Serialize)]
struct ShareObject {
    calls: u64,
    failed: u64,
    latency_ns: u64,
}

impl ShareObject {
    fn new(share: Share, sample: u32) -> Self {
        let times = |n| scaled(n, sample);
        Self { calls: times(share.calls), failed: times(share.failed), latency_ns: times(share.latency_ns) }
    }
}
