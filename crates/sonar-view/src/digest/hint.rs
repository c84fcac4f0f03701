//! Which index would serve a shape that examines far more than it returns: fields compared for equality
//! first, then those of the sort, then ranges
//! (<https://www.mongodb.com/docs/manual/tutorial/equality-sort-range-guideline/>).
//!
//! Read from the typed text of the shape, so it knows what the shape knows: no values, and no how many
//! values a field has. It is a hint, with its evidence, and nothing that should be built unseen.

use sonar_core::Identity;
use sonar_core::digest::{Entry, Subject};

/// Examined for each document returned, from which on a hint is given.
pub const MIN_RATIO: f64 = 10.0;
/// Documents examined altogether, from which on a hint is given.
pub const MIN_EXAMINED: u64 = 1_000;

/// An index that would serve.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hint {
    /// Namespace.
    pub namespace: String,
    /// Fields and directions: `{city: 1, age: -1}`.
    pub index: String,
}

/// The hint for a row; `None` where none is called for, or the shape does not say enough.
pub fn of(row: &Entry) -> Option<Hint> {
    let Subject::Shape { identity: Identity::Exact, shape, .. } = &row.subject else { return None };
    let tally = &row.tally;
    let examined = tally.docs_examined.get()?.max(tally.keys_examined.get().unwrap_or(0));
    let wasteful = match tally.examined_per_returned() {
        Some(ratio) => ratio >= MIN_RATIO,
        // It returned nothing at all, or does not say: then a scan of the collection tells.
        None => tally.collection_scans > 0,
    };
    if shape.cut || examined < MIN_EXAMINED || !(wasteful || tally.memory_sorts > 0) {
        return None;
    }
    let wanted = wanted(&shape.typed)?;
    // An index that begins so is used already: what it cannot help is something else.
    let serves = |plan: &sonar_core::digest::Plan| {
        let fields =
            plan.summary.split_once("IXSCAN { ").map(|(_, rest)| rest.split(" }").next().unwrap_or(""));
        let fields: Vec<_> = fields
            .unwrap_or("")
            .split(", ")
            .filter_map(|field| field.split_once(": ").map(|(name, _)| name))
            .collect();
        wanted.len() <= fields.len() && wanted.iter().zip(&fields).all(|((name, _), field)| name == field)
    };
    let most = tally.plans.iter().max_by_key(|plan| plan.calls);
    if wanted.is_empty() || most.is_some_and(serves) {
        return None;
    }
    let fields: Vec<_> = wanted.iter().map(|(name, direction)| format!("{name}: {direction}")).collect();
    Some(Hint { namespace: shape.namespace(), index: format!("{{{}}}", fields.join(", ")) })
}

/// Fields and directions, in the order of an index. `None`: the shape has parts of which this knows
/// nothing, like `$or`.
fn wanted(typed: &str) -> Option<Vec<(String, i8)>> {
    let mut body = typed.strip_prefix('{')?.strip_suffix('}')?;
    let mut stages = Vec::new();
    if let Some(pipeline) = body.strip_prefix("pipeline: [") {
        // What stands at the front of a pipeline can use an index.
        stages = entries(&pipeline[..pipeline.rfind(']')?]);
        body = "";
    }
    let (mut filter, mut sort) = (None, None);
    for (key, value) in fields(body) {
        match key {
            "filter" | "query" | "q" => filter = Some(value),
            "sort" => sort = Some(value),
            _ => {}
        }
    }
    if let Some(first) = stages.first() {
        filter = first.strip_prefix("{$match: ").and_then(|rest| rest.strip_suffix('}'));
        let next = stages.get(usize::from(filter.is_some()));
        sort = next.and_then(|stage| stage.strip_prefix("{$sort: ")).and_then(|rest| rest.strip_suffix('}'));
    }
    let (mut equal, mut ranges) = (Vec::new(), Vec::new());
    for (key, value) in fields(inner(filter.unwrap_or("{}"))?) {
        if key.starts_with('$') || key.starts_with('"') || key.contains('<') {
            return None;
        }
        if let Some(condition) = value.strip_prefix('{') {
            let operator = condition.split(':').next().unwrap_or("");
            match operator {
                "$in" | "$eq" => equal.push(key),
                "$gt" | "$gte" | "$lt" | "$lte" | "$exists" | "$regex" => ranges.push(key),
                _ => {}
            }
        } else {
            equal.push(key);
        }
    }
    let mut index: Vec<(String, i8)> = equal.iter().map(|key| ((*key).to_owned(), 1)).collect();
    for (key, value) in fields(inner(sort.unwrap_or("{}"))?) {
        let direction = match value {
            "1" => 1,
            "-1" => -1,
            _ => return None,
        };
        if index.iter().all(|(known, _)| known != key) {
            index.push((key.to_owned(), direction));
        }
    }
    for key in ranges {
        if index.iter().all(|(known, _)| known != key) {
            index.push((key.to_owned(), 1));
        }
    }
    Some(index)
}

fn inner(document: &str) -> Option<&str> {
    document.strip_prefix('{')?.strip_suffix('}')
}

/// `key: value` of the inside of a document.
fn fields(body: &str) -> Vec<(&str, &str)> {
    entries(body).into_iter().filter_map(|entry| entry.split_once(": ")).collect()
}

/// What stands between the outer commas.
fn entries(body: &str) -> Vec<&str> {
    let (mut all, mut depth, mut begin, mut quote) = (Vec::new(), 0i32, 0, None);
    for (at, c) in body.char_indices() {
        match (quote, c) {
            (Some(end), _) if c == end => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '{' | '[' | '<') => depth += 1,
            (None, '}' | ']' | '>') => depth -= 1,
            (None, ',') if depth == 0 => {
                all.push(body[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    let last = body[begin..].trim();
    if !last.is_empty() {
        all.push(last);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equality_then_sort_then_range() {
        let index = |typed: &str| {
            wanted(typed)
                .map(|all| all.into_iter().map(|(name, way)| format!("{name} {way}")).collect::<Vec<_>>())
        };
        assert_eq!(
            index(
                "{filter: {age: {$gt: ?number}, city: ?string, tag: {$in: ?array<?string>}}, sort: {at: -1, city: 1}, limit: ?number}"
            ),
            Some(vec!["city 1".into(), "tag 1".into(), "at -1".into(), "age 1".into()])
        );
        assert_eq!(
            index("{pipeline: [{$match: {a: ?number}}, {$sort: {b: 1}}, {$group: {_id: '$c, d'}}]}"),
            Some(vec!["a 1".into(), "b 1".into()])
        );
        assert_eq!(index("{pipeline: [{$group: {_id: '$c'}}]}"), Some(vec![]));
        assert_eq!(index("{key: 'city', query: {age: {$lt: ?number}}}"), Some(vec!["age 1".into()]));
        assert_eq!(index("{q: {_id: ?number}, u: {$set: {a: ?number}}}"), Some(vec!["_id 1".into()]));
        assert_eq!(index("{filter: {$or: [{a: ?number}, {b: ?number}]}}"), None);
        assert_eq!(index("{filter: {a.<n>.b: ?number}}"), None);
    }
}
