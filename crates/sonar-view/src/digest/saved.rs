//! Reads a digest back that was written as JSON.

use std::sync::Arc;

use sonar_core::digest::{Entry, GroupBy, Subject, Tally};
use sonar_core::table::{MAX_ORDERED_IDS, Shares};
use sonar_core::timeline::Bucket;
use sonar_core::{
    Application, Class, Digest, DigestSettings, Histogram, Identity, ShapeId, ShapeInfo, Timestamp,
};

use super::Source;
use super::json::{RowObject, SCHEMA, Saved, TallyObject};

/// Why a text is no saved digest.
#[derive(Debug)]
pub enum Wrong {
    /// No JSON of that form.
    Json(serde_json::Error),
    /// Another schema, or not a digest at all.
    Schema(String),
    /// It contradicts itself in this row.
    Row(usize),
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Json(error) => write!(f, "no saved digest: {error}"),
            Self::Schema(what) => write!(f, "{what}; this version reads kind digest, schema {SCHEMA}"),
            Self::Row(row) => write!(f, "row {row} of the saved digest contradicts itself"),
        }
    }
}

impl std::error::Error for Wrong {}

/// Whether `bytes` begin like a saved digest.
pub fn looks_like(bytes: &[u8]) -> bool {
    bytes.starts_with(b"{\"schema\":")
        && bytes[..bytes.len().min(64)].windows(15).any(|w| w == b"\"kind\":\"digest\"")
}

/// A digest that was saved.
#[derive(Debug)]
pub struct Read {
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
pub fn read(bytes: &[u8]) -> Result<Read, Wrong> {
    let saved: Saved = serde_json::from_slice(bytes).map_err(Wrong::Json)?;
    if saved.kind != "digest" || saved.schema != SCHEMA {
        return Err(Wrong::Schema(format!("kind {:?}, schema {}", saved.kind, saved.schema)));
    }
    let by = GroupBy::from_name(&saved.by).ok_or_else(|| Wrong::Schema(format!("by {:?}", saved.by)))?;
    let source = Source::from_name(&saved.source)
        .ok_or_else(|| Wrong::Schema(format!("source {:?}", saved.source)))?;
    let is_whole = saved.rows_total == saved.rows.len() as u64 && !saved.filtered;
    let mut digest = Digest::new(DigestSettings { by, points: false });
    for (at, row) in saved.rows.into_iter().enumerate() {
        digest.restore(entry(row, by).ok_or(Wrong::Row(at))?);
    }
    // Rows may have been left out by a limit; the totals were not.
    digest.totals = tally(&saved.totals).ok_or(Wrong::Row(0))?;
    let has_ids = matches!(by, GroupBy::Shape | GroupBy::Order);
    let host = saved.about.and_then(|about| about.host);
    Ok(Read { digest, host, source, is_whole, shape_rules: has_ids.then_some(saved.shape_rules) })
}

fn id(text: &str) -> Option<ShapeId> {
    u64::from_str_radix(text, 16).ok().map(ShapeId)
}

fn entry(row: RowObject, by: GroupBy) -> Option<Entry> {
    let tally = tally(&row.tally)?;
    let ordered_ids: Vec<_> =
        row.ordered_ids.iter().take(MAX_ORDERED_IDS).filter_map(|text| id(text)).collect();
    let boxed = |text: Option<String>| text.unwrap_or_default().into_boxed_str();
    let subject = match (by, &row.shape_id) {
        (GroupBy::Shape | GroupBy::Order, Some(shape_id)) => Subject::Shape {
            class: Class::ALL.into_iter().find(|class| Some(class.name()) == row.class.as_deref())?,
            identity: Identity::from_name(row.identity.as_deref()?)?,
            shape: Arc::new(ShapeInfo {
                id: id(shape_id)?,
                command: boxed(row.command),
                database: boxed(row.database),
                collection: boxed(row.collection),
                typed: boxed(row.shape),
                plain: boxed(row.plain),
                cut: row.shape_cut.unwrap_or(false),
                statements: Box::default(),
            }),
            order: if by == GroupBy::Order { *ordered_ids.first()? } else { ShapeId(0) },
        },
        (GroupBy::Namespace, _) if row.namespace.is_some() => Subject::Namespace(boxed(row.namespace)),
        (GroupBy::App, _) if row.app.is_some() => {
            Subject::App(Arc::new(Application { name: boxed(row.app), ..Application::default() }))
        }
        (GroupBy::Plan, _) if row.plan.is_some() => Subject::Plan(boxed(row.plan)),
        _ => Subject::Other,
    };
    let query_hash = row.query_hash.map(String::into_boxed_str);
    Some(Entry { subject, tally, apps: Shares::default(), ordered_ids, query_hash })
}

fn tally(object: &TallyObject) -> Option<Tally> {
    let latency = &object.latency_ns;
    let mut tally = Tally {
        calls: object.calls,
        entries: object.entries,
        statements: object.statements,
        failed: object.failed,
        errors_other: object.errors_other,
        latency: Histogram::from_parts(
            latency.zero,
            &latency.buckets,
            u128::from(latency.sum),
            latency.min.unwrap_or(0),
            latency.max.unwrap_or(0),
        )?,
        collection_scans: object.collection_scans,
        memory_sorts: object.memory_sorts,
        used_disk: object.used_disk,
        replanned: object.replanned,
        plans_other: object.plans_other,
        first_seen: Timestamp::from_unix_ns(object.first_seen),
        last_seen: Timestamp::from_unix_ns(object.last_seen),
        ..Tally::default()
    };
    for (code, count) in &object.errors {
        tally.add_error(code.parse().ok()?, *count);
    }
    let names: Vec<_> = tally.sums().into_iter().map(|(name, _)| name).collect();
    for (sum, name) in tally.sums_mut().into_iter().zip(names) {
        if let Some(&(total, known)) = object.sums.get(name) {
            (sum.total, sum.known) = (total, known);
        }
    }
    object.plans.iter().for_each(|plan| tally.add_plan(&plan.summary, plan.calls, plan.memory_sorts));
    for (at, &(start, calls, latency_ns, examined)) in object.timeline.buckets.iter().enumerate() {
        let returned = object.timeline.returned.get(at).copied().unwrap_or(0);
        let bucket = Bucket { calls, latency_ns, examined, returned };
        tally.timeline.add(Timestamp::from_unix_ns(start), bucket);
    }
    Some(tally)
}
