//! `queries` as JSON: one object per interval, and one for the summary at the end. The names are stable and
//! documented in `docs/queries.md`; what is not known is `null`.

use std::io::{self, Write};
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use sonar_core::figures::Share;
use sonar_core::operation::WaitingOperation;
use sonar_core::time_split::{FileTotal, REST, RowSplit, TimePart, WaitTotal};
use sonar_core::{Application, CommandType, Coverage};

use crate::kit::json::{name, write_object};
use crate::kit::{Hidden, HiddenObject, mean_ns, scaled};
use crate::queries::layout::suites_of;
use crate::queries::split::{longest_files, longest_waits, parts, share};
use crate::queries::{Grouping, ReportKey, ReportRow, ServerState, Silence, Stats, WindowReport};
use crate::why::ShownPart;

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
    write_object!(out, {
        "schema": SCHEMA,
        "kind": kind.name(),
        "start_ns": report.start.unix_ns(),
        "end_ns": report.end.unix_ns(),
        "observed_ns": report.elapsed_ns,
        "partial": report.is_partial,
        "sample": sample,
        "by": selection.by.name(),
        "classes": selection.classes.iter().map(|class| class.name()).collect::<Vec<_>>(),
        "role": selection.role.map(|role| role.name()),
        "totals": figures(&report.totals, sample, kind),
        "by_type": types.map(|types| map(types.map(|(kind, count)| (kind.name(), scaled(count, sample))))),
        "hidden": HiddenObject::parts(&report.hidden, sample),
        "empty_because": report.silence.as_ref().map(silence),
        "notes": report.notes,
        "servers": report.servers.iter().map(ServerState::json).collect::<Vec<_>>(),
        "coverage": coverage(report.coverage),
        "rows_total": report.rows_total,
        "rows": Rows(report, kind),
    })
}

/// Writes the end of operations one by one: how many were `shown`, what was left out, what was lost.
///
/// # Errors
/// Those of `out`.
pub fn end(shown: u64, rest: &LeftOutJson<'_>, out: impl Write) -> io::Result<()> {
    write_object!(out, {
        "schema": SCHEMA,
        "kind": ObjectKind::Summary.name(),
        "operations": shown,
        "hidden": HiddenObject::parts(rest.hidden, 1),
        "empty_because": rest.silence.map(silence),
        "notes": rest.notes,
        "coverage": coverage(rest.coverage),
    })
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

/// The rows, each built when it is written.
struct Rows<'a>(&'a WindowReport<'a>, ObjectKind);

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.rows.iter().map(|one| row(one, self.0, self.1)))
    }
}

fn map<K: Into<String>>(entries: impl IntoIterator<Item = (K, u64)>) -> Map<String, Value> {
    entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
}

fn coverage(coverage: &Coverage) -> Map<String, Value> {
    map(coverage.iter().map(|(name, _, value)| (name, value)))
}

fn silence(silence: &Silence) -> Value {
    json!({ "reason": silence.reason, "what": silence.what, "next": silence.next })
}

/// Adds the members of `more` to an object.
fn extend(object: &mut Map<String, Value>, more: Value) {
    if let Value::Object(more) = more {
        object.extend(more);
    }
}

/// The figures of a row or of the totals, counts scaled up from a sample.
fn figures(stats: &Stats<'_>, sample: u32, kind: ObjectKind) -> Value {
    let (figures, quantiles) = (&stats.figures, stats.quantiles);
    let times = |n| scaled(n, sample);
    let mut codes: Vec<(i32, u64)> = figures.errors.iter().copied().collect();
    codes.sort_unstable();
    let other = (figures.errors.other > 0).then(|| ("other".to_owned(), figures.errors.other));
    let errors = codes.into_iter().map(|(code, count)| (code.to_string(), count)).chain(other);
    let errors = figures.known_errors().map(|_| map(errors.map(|(code, count)| (code, times(count)))));
    let mut latency = json!({
        "p50": quantiles.p50,
        "p95": quantiles.p95,
        "p99": quantiles.p99,
        "p999": quantiles.p999,
        "max": quantiles.max,
        "sum": figures.known_latency_ns().map(times),
        "min": figures.latency.min_ns(),
        "count": times(figures.latency.count()),
        "mean": mean_ns(&figures.latency),
    });
    // Of an interval they would be most of it.
    if kind == ObjectKind::Summary {
        latency["zero"] = times(figures.latency.zero_count()).into();
        // OpenTelemetry's index (scale 5, seconds) and the count.
        latency["buckets"] =
            figures.latency.buckets().map(|(index, count)| json!([index, times(count)])).collect();
    }
    let seen = figures.calls > 0;
    json!({
        "calls": times(figures.calls),
        "calls_per_s": stats.rates.calls,
        "load": stats.rates.load,
        "statements": times(figures.statements),
        "errors": errors,
        "failed": figures.known_failed().map(times),
        "unanswered": times(figures.unanswered),
        "unacknowledged": times(figures.unacknowledged),
        "outcome_unknown": times(figures.outcome_unknown),
        "latency_ns": latency,
        "transfer_ns": figures.known_transfer_ns().map(times),
        "request_bytes": figures.known_request_bytes().map(times),
        "response_bytes": figures.known_response_bytes().map(times),
        "docs_returned": figures.returned.get().map(times),
        "docs_affected": figures.affected.get().map(times),
        "tls_operations": figures.tls.get().map(times),
        "tls_suites": map(suites_of(figures).into_iter().map(|(name, count)| (name, times(count)))),
        "in_flight": stats.in_flight.map(|waiting| times(waiting.count)),
        "oldest_in_flight_ns": stats.in_flight.and_then(|waiting| waiting.oldest_ns),
        "first_seen": seen.then(|| figures.first_seen.unix_ns()),
        "last_seen": seen.then(|| figures.last_seen.unix_ns()),
    })
}

fn row(row: &ReportRow<'_>, report: &WindowReport<'_>, kind: ObjectKind) -> Map<String, Value> {
    let mut object = Map::new();
    extend(&mut object, key(row, report));
    extend(&mut object, figures(&row.stats, report.sample, kind));
    let sum = |stats: &Stats<'_>| stats.figures.latency.sum_ns() as f64;
    let all = sum(&report.totals);
    let baseline = row.against.map(|against| {
        let before = |at: usize| against.shift.map(|shift| shift.quantiles[at].0);
        json!({
            "since": against.status.name(),
            "effect": against.shift.map(|shift| shift.effect),
            "p": against.shift.map(|shift| shift.p),
            "p50_ns": before(0),
            "p95_ns": before(1),
            "p99_ns": before(2),
        })
    });
    let is_known = row.stats.figures.known_latency_ns().is_some();
    let time_share = is_known.then(|| if all > 0.0 { sum(&row.stats) / all } else { 0.0 });
    extend(&mut object, json!({ "time_share": time_share, "baseline": baseline }));
    object.insert("split".to_owned(), row.split.as_deref().map_or(Value::Null, split));
    object.insert(
        "in_progress".to_owned(),
        row.in_progress.iter().filter_map(|one| in_progress(one)).collect(),
    );
    if let Some((apps, clients)) = row.apps().zip(row.clients()) {
        let (sample, figures) = (report.sample, &row.stats.figures);
        // What is not known of any operation of the row is not known of those of a caller.
        let (failed, latency_ns) = (figures.known_failed(), figures.known_latency_ns());
        let with_share = |mut caller: Value, share: Share| {
            caller["calls"] = scaled(share.calls, sample).into();
            caller["failed"] = failed.map(|_| scaled(share.failed, sample)).into();
            caller["latency_ns"] = latency_ns.map(|_| scaled(share.latency_ns, sample)).into();
            caller
        };
        let other = |share: Share| (share.calls > 0).then(|| with_share(json!({}), share));
        let (named_apps, addresses) = (apps.entries.into_iter(), clients.entries.into_iter());
        let callers = json!({
            "apps": named_apps.map(|(app, share)| with_share(self::app("name", app), share)).collect::<Value>(),
            "apps_other": other(apps.other),
            "clients": addresses.map(|(ip, share)| with_share(json!({ "address": ip }), share)).collect::<Value>(),
            "clients_other": other(clients.other),
        });
        extend(&mut object, callers);
    }
    object
}

/// Where the time of the operations that were traced went; not scaled.
fn split(split: &RowSplit) -> Value {
    let whole = split.total_ns();
    let part = |(part, ns): (ShownPart, u64)| json!({ "part": part, "ns": ns, "share": share(ns, whole) });
    let named = |name: &str| (name != REST).then(|| name.to_owned());
    let wait = |((part, class), total): (&(TimePart, Arc<str>), &WaitTotal)| json!({ "part": part.name(), "class": named(class), "waits": total.waits, "wait_ns": total.wait_ns });
    let file = |(name, total): (&Arc<str>, &FileTotal)| json!({ "name": named(name), "reads": total.reads, "bytes": total.bytes, "wait_ns": total.wait_ns });
    json!({
        "operations": split.operations,
        "total_ns": whole,
        "parts": parts(split).into_iter().map(part).collect::<Value>(),
        "waits": longest_waits(split).into_iter().map(wait).collect::<Value>(),
        "files": longest_files(split).into_iter().map(file).collect::<Value>(),
        "device_bytes": split.device_bytes,
    })
}

/// An operation in flight, with what its thread does.
fn in_progress(one: &WaitingOperation) -> Option<Value> {
    let now = one.now.as_deref()?;
    let blocker = now.blocker.as_ref().map(|blocker| {
        json!({ "thread": blocker.thread, "thread_name": blocker.thread_name, "wait_ns": blocker.wait_ns })
    });
    Some(json!({
        "client": one.client.to_string(),
        "request_id": one.request_id,
        "elapsed_ns": one.age_ns,
        "thread_name": now.thread_name,
        "doing": now.doing.name(),
        "doing_since_ns": now.since.unix_ns(),
        "doing_ns": now.doing_ns,
        "class": now.class.as_deref(),
        "file": now.file.as_deref(),
        "earlier_blocker": blocker,
    }))
}

/// An application, with its name as the member `key`.
fn app(key: &str, app: &Application) -> Value {
    json!({
        key: name(&app.name),
        "driver": name(&app.driver),
        "driver_version": name(&app.driver_version),
        "joined_late": app.joined_late,
    })
}

fn key(row: &ReportRow<'_>, report: &WindowReport<'_>) -> Value {
    match &row.key {
        ReportKey::Shape { key, shape } => {
            let ids = row.ordered_ids();
            let ordered_id = match (key.order.0, ids.as_slice()) {
                (0, [only]) => Some(*only),
                (0, _) => None,
                _ => Some(key.order),
            };
            json!({
                "shape_id": key.shape.to_string(),
                "ordered_id": ordered_id.map(|id| id.to_string()),
                "ordered_ids": ids.len(),
                "command": shape.command,
                "database": name(&shape.database),
                "collection": name(&shape.collection),
                "shape": report.selection.form.of(shape),
                "shape_cut": shape.cut,
                "statement_shapes": shape.statements.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "role": key.role.name(),
                "class": key.class.name(),
                "server": key.server.to_string(),
            })
        }
        ReportKey::Namespace { database, collection } => json!({
            "namespace": row.namespace().unwrap_or_default(),
            "database": name(database),
            "collection": name(collection),
        }),
        ReportKey::App(app) => {
            let mut object = self::app("app", app);
            object["other"] = false.into();
            object
        }
        ReportKey::Client(ip) => json!({ "client": ip, "other": false }),
        ReportKey::Other if report.selection.by == Grouping::App => {
            let mut object = app("app", &Application::default());
            object["other"] = true.into();
            object
        }
        ReportKey::Other => json!({ "client": null, "other": true }),
    }
}
