//! Which index would serve a shape that examines far more than it returns: fields compared for equality
//! first, then those of the sort, then ranges
//! (<https://www.mongodb.com/docs/manual/tutorial/equality-sort-range-guideline/>).
//!
//! Read from the typed text of the shape, so it knows what the shape knows: no values, and no how many
//! values a field has. It is a hint, with its evidence, and nothing that should be built unseen.

use std::collections::HashMap;

use sonar_core::{Identity, Row, Subject};

pub use super::index_fields::{IndexHint, MIN_EXAMINED, MIN_RATIO, MIN_SHARE, for_query};

use super::{DigestView, Indexes};

/// An index that would serve, and the rows that want it.
#[derive(Debug)]
pub struct Suggestion<'a> {
    /// The index.
    pub hint: IndexHint,
    /// The rows, the one with the most time first.
    pub rows: Vec<&'a Row>,
    /// Their indexes in the digest.
    numbers: Vec<usize>,
    /// Their share of the time of all operations, 0 to 1.
    pub share: f64,
}

/// Each index that would serve rows of `view` which take at least [`MIN_SHARE`] of the time, once; the one whose
/// rows take the most time first. Rows behind the limit count too.
pub fn all<'a>(view: &DigestView<'a>) -> Vec<Suggestion<'a>> {
    let mut suggestions: Vec<Suggestion<'a>> = Vec::new();
    let mut known: HashMap<(String, String), usize> = HashMap::new();
    let hints = |row| of(row, view.indexes).into_iter().chain(foreign_index(row, view.indexes));
    for (&(number, row), hint) in
        view.matching.iter().flat_map(|one| hints(one.1).map(move |hint| (one, hint)))
    {
        let at = *known.entry((hint.namespace.clone(), hint.index.clone())).or_insert_with(|| {
            suggestions.push(Suggestion { hint, rows: Vec::new(), numbers: Vec::new(), share: 0.0 });
            suggestions.len() - 1
        });
        suggestions[at].rows.push(row);
        suggestions[at].numbers.push(number);
        suggestions[at].share += view.share(row);
    }
    suggestions.retain(|one| one.share >= MIN_SHARE);
    suggestions.sort_by(|a, b| b.share.total_cmp(&a.share));
    for one in &mut suggestions {
        one.rows.sort_by_key(|row| std::cmp::Reverse(row.figures().latency.sum_ns()));
    }
    suggestions
}

/// The index that is suggested for each row on its own collection, by the row's index in the digest.
pub fn wanted_by_row(view: &DigestView<'_>) -> HashMap<usize, String> {
    let namespace = |row: &Row| match &row.subject {
        Subject::Shape { shape, .. } => shape.namespace(),
        _ => String::new(),
    };
    let own: HashMap<usize, String> =
        view.matching.iter().map(|(number, row)| (*number, namespace(row))).collect();
    let mut wanted = HashMap::new();
    for Suggestion { hint, numbers, .. } in all(view) {
        for number in numbers {
            if own.get(&number) == Some(&hint.namespace) {
                wanted.insert(number, hint.index.clone());
            }
        }
    }
    wanted
}

/// The index that the foreign collection of a `$lookup` seems to lack; `None` where one that exists serves.
fn foreign_index(row: &Row, indexes: Option<&Indexes>) -> Option<IndexHint> {
    let hint = super::remarks::foreign(row)?;
    let field = hint.index.strip_prefix('{')?.split(':').next()?;
    let serves = |index: &Vec<(String, i8)>| index.first().is_some_and(|(name, _)| name == field);
    let exists =
        indexes.and_then(|indexes| indexes.get(&hint.namespace)).is_some_and(|all| all.iter().any(serves));
    (!exists).then_some(hint)
}

/// The hint for a row; `None` where none is called for, where the shape does not say enough, or where one of
/// the `indexes` or an index of its plans serves already.
pub fn of(row: &Row, indexes: Option<&Indexes>) -> Option<IndexHint> {
    let Subject::Shape { identity: Identity::Exact, shape, .. } = &row.subject else { return None };
    let server = row.server();
    // A view has no indexes, and which fields its pipeline asks for is not known.
    if server.view_of.is_some() {
        return None;
    }
    let sums = &server.totals.sums;
    let examined = sums.docs_examined.get()?.max(sums.keys_examined.get().unwrap_or(0));
    let wasteful = match row.examined_per_returned() {
        Some(ratio) => ratio >= MIN_RATIO,
        // It returned nothing at all, or does not say: then a scan of the collection tells.
        None => server.totals.collection_scans > 0,
    };
    if shape.cut || examined < MIN_EXAMINED || !(wasteful || server.totals.memory_sorts > 0) {
        return None;
    }
    let plans: Vec<&str> = server.plans.iter().map(|(plan, _)| &**plan).collect();
    let existing = indexes.and_then(|indexes| indexes.get(&shape.namespace()));
    let index = for_query(&shape.typed, &plans, existing.map_or(&[], Vec::as_slice))?;
    Some(IndexHint { namespace: shape.namespace(), index })
}
