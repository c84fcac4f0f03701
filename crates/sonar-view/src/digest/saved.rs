//! Reads a digest back that was written as JSON.

use std::sync::Arc;

use sonar_core::Sum;
use sonar_core::figures::{Figures, PlanUse};
use sonar_core::histogram::DurationSummary;
use sonar_core::row::MAX_ORDERED_IDS;
use sonar_core::timeline::TimeBucket;
use sonar_core::{
    Application, Class, Digest, DigestSettings, Endpoint, GroupBy, Histogram, Identity, ObservedParts, Row,
    ShapeId, ShapeInfo, Subject, Timestamp,
};

use super::Source;
use super::json::{DigestDocument, DigestRowJson, FiguresObject, ObservedJson, SCHEMA};

/// Why a text is not a saved digest.
#[derive(Debug)]
pub enum SavedError {
    /// Not JSON of that form.
    Json(serde_json::Error),
    /// Another schema, or not a digest at all.
    Schema(String),
    /// It contradicts itself in this row.
    Row(usize),
}

impl std::fmt::Display for SavedError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Json(error) => write!(f, "not a saved report: {error}"),
            Self::Schema(what) => write!(f, "{what}; this version reads kind digest, schema {SCHEMA}"),
            Self::Row(row) => write!(f, "row {row} of the saved report contradicts itself"),
        }
    }
}

impl std::error::Error for SavedError {}

/// Whether `bytes` begin like a saved digest.
pub fn looks_like(bytes: &[u8]) -> bool {
    bytes.starts_with(b"{\"schema\":")
        && bytes[..bytes.len().min(64)].windows(15).any(|w| w == b"\"kind\":\"digest\"")
}

/// A digest that was saved.
#[derive(Debug)]
pub struct SavedDigest {
    /// The digest.
    pub digest: Digest,
    /// The host that it is of, where that is known.
    pub host: Option<String>,
    /// What it is of.
    pub source: Source,
    /// No rows were left out of it when it was written.
    pub is_whole: bool,
    /// Version of the rules that its shape ids follow; `None` where its rows have none.
    pub shape_rules: Option<u32>,
}

/// Reads a saved digest.
///
/// # Errors
/// It is none, of another schema, or contradicts itself.
pub fn read(bytes: &[u8]) -> Result<SavedDigest, SavedError> {
    let saved: DigestDocument = serde_json::from_slice(bytes).map_err(SavedError::Json)?;
    if saved.kind != "digest" || saved.schema != SCHEMA {
        return Err(SavedError::Schema(format!("kind {:?}, schema {}", saved.kind, saved.schema)));
    }
    let by = GroupBy::from_name(&saved.by).ok_or_else(|| SavedError::Schema(format!("by {:?}", saved.by)))?;
    let source = Source::from_name(&saved.source)
        .ok_or_else(|| SavedError::Schema(format!("source {:?}", saved.source)))?;
    let is_whole = saved.rows_total == saved.rows.len() as u64 && !saved.filtered;
    let mut digest = Digest::new(DigestSettings { by, points: false });
    for (at, row) in saved.rows.into_iter().enumerate() {
        digest.restore(&entry(row, by, source).ok_or(SavedError::Row(at))?);
    }
    // Rows may have been left out by a limit; the totals were not.
    if saved.sources.is_empty() {
        *digest.totals_mut(source) = figures(&saved.totals, source).ok_or(SavedError::Row(0))?;
    }
    for object in &saved.sources {
        if let (Some(source), Some(totals)) = (Source::from_name(&object.source), &object.totals) {
            *digest.totals_mut(source) = figures(totals, source).ok_or(SavedError::Row(0))?;
        }
    }
    if let Some(ObservedJson { start_ns, end_ns }) = saved.observed {
        let [start, end] = [start_ns, end_ns].map(Timestamp::from_unix_ns);
        digest.observed[source as usize] = ObservedParts::between(start, end);
    }
    let has_ids = matches!(by, GroupBy::Shape | GroupBy::Order);
    let host = saved.about.and_then(|about| about.host);
    Ok(SavedDigest { digest, host, source, is_whole, shape_rules: has_ids.then_some(saved.shape_rules) })
}

fn id(text: &str) -> Option<ShapeId> {
    u64::from_str_radix(text, 16).ok().map(ShapeId)
}

fn entry(object: DigestRowJson, by: GroupBy, source: Source) -> Option<Row> {
    let figures = figures(&object.figures, source)?;
    let ordered_ids: Vec<_> =
        object.ordered_ids.iter().take(MAX_ORDERED_IDS).filter_map(|text| id(text)).collect();
    let boxed = |text: Option<String>| text.unwrap_or_default().into_boxed_str();
    let mut class = Class::default();
    let subject = match (by, &object.shape_id) {
        (GroupBy::Shape | GroupBy::Order, Some(shape_id)) => {
            class = Class::ALL.into_iter().find(|class| Some(class.name()) == object.class.as_deref())?;
            Subject::Shape {
                identity: Identity::from_name(object.identity.as_deref()?)?,
                shape: Arc::new(ShapeInfo {
                    id: id(shape_id)?,
                    command: boxed(object.command),
                    database: boxed(object.database),
                    collection: boxed(object.collection),
                    typed: boxed(object.shape),
                    plain: boxed(object.plain),
                    cut: object.shape_cut.unwrap_or(false),
                    statements: Box::default(),
                }),
                order: if by == GroupBy::Order { *ordered_ids.first()? } else { ShapeId(0) },
            }
        }
        (GroupBy::Namespace, _) if object.namespace.is_some() => {
            let namespace = object.namespace.unwrap_or_default();
            let (database, collection) = namespace.split_once('.').unwrap_or((&namespace, ""));
            Subject::Namespace(database.into(), collection.into())
        }
        (GroupBy::App, _) if object.app.is_some() => {
            Subject::App(Arc::new(Application { name: boxed(object.app), ..Application::default() }))
        }
        (GroupBy::Plan, _) if object.plan.is_some() => Subject::Plan(boxed(object.plan)),
        (GroupBy::Client, _) if object.client.is_some() => match object.client.as_deref() {
            Some("") => Subject::Client(Endpoint::default().ip()),
            client => Subject::Client(client?.parse().ok()?),
        },
        (GroupBy::User, _) if object.user.is_some() => Subject::User(boxed(object.user)),
        (GroupBy::Comment, _) if object.comment.is_some() => Subject::Comment(boxed(object.comment)),
        _ => Subject::Other,
    };
    let mut row = Row::new(subject, class);
    match &object.by_source {
        None => row.observed_by_mut(source).figures = figures,
        Some(all) => {
            for (source, object) in
                Source::ALL.into_iter().filter_map(|source| Some((source, all.of(source)?)))
            {
                row.observed_by_mut(source).figures = self::figures(object, source)?;
            }
        }
    }
    row.ordered_ids = ordered_ids;
    object.query_hash.iter().for_each(|hash| row.add_query_hash(hash));
    Some(row)
}

fn figures(object: &FiguresObject, source: Source) -> Option<Figures> {
    let latency = &object.latency_ns;
    let mut figures = Figures {
        calls: object.calls,
        entries: object.entries,
        statements: object.statements,
        failed: object.failed.unwrap_or(0),
        outcome_unknown: if object.errors.is_none() { object.calls } else { 0 },
        latency: Histogram::from_parts(
            latency.zero,
            &latency.buckets,
            DurationSummary {
                sum_ns: u128::from(latency.sum.unwrap_or(0)),
                min_ns: latency.min.unwrap_or(0),
                max_ns: latency.max.unwrap_or(0),
            },
        )?,
        first_seen: Timestamp::from_unix_ns(object.first_seen.unwrap_or(0)),
        last_seen: Timestamp::from_unix_ns(object.last_seen.unwrap_or(0)),
        ..Figures::default()
    };
    for (code, count) in object.errors.iter().flatten() {
        let code = code.parse().ok()?;
        figures.errors.add(&code, *count, || code);
    }
    figures.errors.other += object.errors_other;
    for (name, &(total, known)) in &object.sums {
        if let Some(sum) = figures.sum_mut(name) {
            *sum = Sum { total, known };
        }
    }
    if source != Source::Wire {
        let server = figures.server_mut();
        server.totals.collection_scans = object.collection_scans;
        server.totals.memory_sorts = object.memory_sorts;
        server.totals.used_disk = object.used_disk;
        server.totals.replanned = object.replanned;
        for plan in &object.plans {
            server.add_plan(&plan.summary, PlanUse { calls: plan.calls, memory_sorts: plan.memory_sorts });
        }
        server.plans.other.calls += object.plans_other;
    }
    for (at, &(start, calls, latency_ns, examined)) in object.timeline.buckets.iter().enumerate() {
        let returned = object.timeline.returned.get(at).copied().unwrap_or(0);
        let bucket = TimeBucket { calls, latency_ns, examined, returned };
        figures.timeline_mut().add(Timestamp::from_unix_ns(start), bucket);
    }
    Some(figures)
}
