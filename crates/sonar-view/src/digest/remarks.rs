//! What a shape shows beside the index that it wants: a `$lookup` whose foreign collection has no index, documents that
//! are read only to be skipped, plans that were given up.
//!
//! Read from the typed text of the shape and from what the server counted. Where another cause is possible, nothing is
//! said.

use sonar_core::{Identity, Row, Subject};

use super::index_fields::{IndexHint, MIN_EXAMINED, MIN_RATIO, MIN_SHARE, delivers, entries, fields, inner};
use super::{DigestView, Form, names};
use crate::kit::{Count, UNKNOWN, or_unknown, plural};

/// Stages that examine nothing themselves, but for `$lookup`.
const KEEPING: [&str; 8] =
    ["$match", "$sort", "$lookup", "$unwind", "$project", "$addFields", "$set", "$unset"];
/// Operators that an index serves only in part, so that it is not known what was read for them.
const PARTLY_SERVED: [&str; 11] =
    ["$regex", "$exists", "$ne:", "$nin", "$not", "$all", "$elemMatch", "$expr", "$where", "$or", "$nor"];

/// What stands out about a row.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RowRemark {
    /// It skips documents that it reads.
    Skip,
    /// This many operations gave a cached plan up, and planned again.
    Replanned(u64),
    /// It names a view and wants an index, which belongs to the collection behind it.
    View,
}

impl RowRemark {
    /// The stable name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Replanned(_) => "replanned",
            Self::View => "view",
        }
    }

    /// What stands out about `row`, and what to do, without a full stop.
    pub fn words(self, row: &Row) -> String {
        let examined = || or_unknown(row.examined_per_returned().map(Count));
        match self {
            Self::Skip => format!(
                "{} examined for each returned although an index serves: it reads documents only to skip them; ask for the range behind the last one of the page before instead",
                examined(),
            ),
            Self::View => format!(
                "{} examined for each returned; {} is a view of {}, and indexes for it belong there (explain shows which part of the query reaches it)",
                examined(),
                names(row, Form::Typed).1,
                row.server().view_of.as_deref().unwrap_or(UNKNOWN),
            ),
            Self::Replanned(count) => format!(
                "{} of {} gave the cached plan up and planned again",
                Count(count as f64),
                plural(Count(row.figures().calls as f64), "call"),
            ),
        }
    }
}

/// What stands out about the rows of `view` that take at least [`MIN_SHARE`] of the time, the one with the most time
/// first.
pub fn remarks<'a>(view: &DigestView<'a>) -> Vec<(&'a Row, RowRemark)> {
    let mut all = Vec::new();
    for &(_, row) in view.matching.iter().filter(|(_, row)| view.share(row) >= MIN_SHARE) {
        if skips(row) {
            all.push((row, RowRemark::Skip));
        }
        if row.server().view_of.is_some() && wants_index(row) {
            all.push((row, RowRemark::View));
        }
        let replanned = row.server().totals.replanned;
        if replanned > 0 && matches!(row.subject, Subject::Shape { .. }) {
            all.push((row, RowRemark::Replanned(replanned)));
        }
    }
    all.sort_by(|a, b| view.share(b.0).total_cmp(&view.share(a.0)));
    all
}

/// Whether a row examines far more than it returns, or scans or sorts.
fn wants_index(row: &Row) -> bool {
    let server = row.server();
    let is_large = server.totals.sums.docs_examined.get().is_some_and(|examined| examined >= MIN_EXAMINED);
    let is_wasteful = row.examined_per_returned().is_none_or(|ratio| ratio >= MIN_RATIO);
    is_large && (is_wasteful || server.totals.memory_sorts > 0)
}

/// The typed text of a row whose shape is known, if it examined far more than it returned.
fn wasteful(row: &Row) -> Option<&str> {
    let Subject::Shape { identity: Identity::Exact, shape, .. } = &row.subject else { return None };
    // What the pipeline of a view does is not known.
    if row.server().view_of.is_some() {
        return None;
    }
    let sums = row.server().totals.sums;
    let examined = sums.docs_examined.get()?.max(sums.keys_examined.get().unwrap_or(0));
    let is_wasteful = row.examined_per_returned().is_some_and(|ratio| ratio >= MIN_RATIO);
    (is_wasteful && examined >= MIN_EXAMINED && !shape.cut).then_some(&*shape.typed)
}

/// Whether all plans of a row deliver exactly the documents that it asks for, in their order.
fn is_served(row: &Row, typed: &str) -> bool {
    let plans = &row.server().plans;
    let serves = |plan: &str| delivers(typed, plan);
    plans.iter().next().is_some() && plans.iter().all(|(plan, _)| serves(plan))
}

/// Whether documents were read only to be skipped: the query skips, and an index delivers what it asks for, so nothing
/// else explains what was examined.
fn skips(row: &Row) -> bool {
    let Some(typed) = wasteful(row) else { return false };
    let body = inner(typed).unwrap_or_default();
    let is_find = fields(body).iter().any(|(key, _)| *key == "skip");
    let stages = pipeline(typed).unwrap_or_default();
    let names: Vec<_> = stages.iter().map(|stage| name_of(stage)).collect();
    // Later stages would examine or drop documents too.
    let is_pipeline = names.contains(&"$skip")
        && names.iter().all(|name| matches!(*name, "$match" | "$sort" | "$skip" | "$limit" | "$project"));
    (is_find || is_pipeline)
        && !PARTLY_SERVED.iter().any(|operator| typed.contains(operator))
        && is_served(row, typed)
}

/// The stages of an aggregation.
fn pipeline(typed: &str) -> Option<Vec<&str>> {
    let rest = typed.strip_prefix("{pipeline: [")?;
    Some(entries(&rest[..rest.rfind(']')?]))
}

fn name_of(stage: &str) -> &str {
    stage.strip_prefix('{').and_then(|stage| stage.split(':').next()).unwrap_or_default()
}

/// The index that the foreign collection of a `$lookup` seems to lack. With an index, the foreign side examines a key
/// for each document; so documents examined without keys, beyond those of the collection itself, were read by the
/// `$lookup` without one.
pub fn foreign(row: &Row) -> Option<IndexHint> {
    let typed = wasteful(row)?;
    let Subject::Shape { shape, .. } = &row.subject else { return None };
    let stages = pipeline(typed)?;
    let count = |name: &str| stages.iter().filter(|stage| name_of(stage) == name).count();
    let is_filtered = stages.first().is_some_and(|stage| name_of(stage) == "$match");
    let has_only_known = stages.iter().all(|stage| KEEPING.contains(&name_of(stage)));
    if !has_only_known || count("$lookup") != 1 || count("$match") > usize::from(is_filtered) {
        return None;
    }
    let sums = row.server().totals.sums;
    let (documents, keys) = (sums.docs_examined.get()?, sums.keys_examined.get()?);
    let returned = documents.max(keys) as f64 / row.examined_per_returned()?;
    let own = if is_filtered {
        if PARTLY_SERVED.iter().any(|one| typed.contains(one)) || !is_served(row, typed) {
            return None;
        }
        0.0
    } else if count("$unwind") > 0 {
        // It drops documents without a match: how many the collection has is not known.
        return None;
    } else {
        returned
    };
    let without_key = documents.saturating_sub(keys) as f64 - own;
    if without_key < MIN_EXAMINED as f64 || without_key < MIN_RATIO * returned {
        return None;
    }
    let lookup = stages.iter().find(|stage| name_of(stage) == "$lookup")?;
    let content = lookup.strip_prefix("{$lookup: ")?.strip_suffix('}')?;
    let (mut from, mut field) = (None, None);
    for (key, value) in fields(inner(content)?) {
        let name = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\''));
        match key {
            "from" => from = name,
            "foreignField" => field = name,
            // What a pipeline on the foreign side needs is another question.
            "pipeline" | "let" => return None,
            _ => {}
        }
    }
    let (from, field) = (from?, field?);
    if field == "_id" || field.is_empty() || field.contains('<') {
        return None;
    }
    Some(IndexHint { namespace: format!("{}.{from}", shape.database), index: format!("{{{field}: 1}}") })
}
