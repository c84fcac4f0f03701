//! What the typed text of a shape asks of an index: fields compared for equality first, then those of the sort, then
//! ranges (<https://www.mongodb.com/docs/manual/tutorial/equality-sort-range-guideline/>).

use serde::Serialize;
use ts_rs::TS;

/// Examined for each document returned, from which on a hint is given.
pub const MIN_RATIO: f64 = sonar_core::explain::MIN_RATIO;
/// Documents examined altogether, from which on a hint is given.
pub const MIN_EXAMINED: u64 = sonar_core::explain::MIN_EXAMINED;

/// Share of the time of all operations that the shapes which want an index take together, from which on it is
/// suggested.
pub const MIN_SHARE: f64 = 0.01;

/// An index that would serve.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, TS)]
pub struct IndexHint {
    /// Namespace.
    pub namespace: String,
    /// Fields and directions: `{city: 1, age: -1}`.
    pub index: String,
}

/// The index that a query of this typed shape asks for: `{city: 1, age: -1}`. `None` where the shape does not say
/// enough, or where one of the `existing` indexes or an index of its `plans` serves already: what that one cannot help
/// is something else.
pub fn for_query(typed: &str, plans: &[&str], existing: &[Vec<(String, i8)>]) -> Option<String> {
    let wanted = wanted(typed)?;
    let is_used =
        |plan: &&str| looks_up_one(plan) || patterns(plan).iter().any(|index| wanted.is_served_by(index));
    let exists = existing.iter().any(|index| wanted.is_served_by(index));
    if wanted.is_empty() || exists || plans.iter().any(is_used) {
        return None;
    }
    let fields: Vec<_> =
        wanted.fields().into_iter().map(|(name, direction)| format!("{name}: {direction}")).collect();
    Some(format!("{{{}}}", fields.join(", ")))
}

/// Whether a plan delivers what a query of this typed shape asks for by an index.
pub(super) fn delivers(typed: &str, plan: &str) -> bool {
    let wanted = wanted(typed);
    wanted.is_some_and(|wanted| {
        looks_up_one(plan)
            || !wanted.is_empty() && patterns(plan).iter().any(|index| wanted.is_served_by(index))
    })
}

/// Whether a plan looks documents up by one key: by `_id`, or by the index that 8.0's express path chose.
fn looks_up_one(plan: &str) -> bool {
    plan.split(", ").any(|part| part.starts_with("IDHACK") || part.starts_with("EXPRESS"))
}

/// Fields and directions of each index in a plan summary, whichever stage uses it: `IXSCAN { a: 1 }`,
/// `COUNT_SCAN { a: 1 }`, `DISTINCT_SCAN { a: 1 }`.
fn patterns(plan: &str) -> Vec<Vec<(String, i8)>> {
    let field = |field: &str| {
        let (name, direction) = field.split_once(": ")?;
        Some((name.trim().to_owned(), if direction.starts_with('-') { -1 } else { 1 }))
    };
    let index = |part: &str| part.split(" }").next()?.split(", ").map(field).collect::<Option<Vec<_>>>();
    plan.split(" { ").skip(1).filter_map(index).collect()
}

/// What a shape asks of an index.
#[derive(Debug, Default, PartialEq, Eq)]
struct IndexFields {
    /// Fields compared for equality, in any order.
    equal: Vec<String>,
    /// Fields of the sort that are not among those.
    sort: Vec<(String, i8)>,
    /// Fields compared for more or less, which are not among either.
    ranges: Vec<String>,
}

impl IndexFields {
    fn is_empty(&self) -> bool {
        self.equal.is_empty() && self.sort.is_empty() && self.ranges.is_empty()
    }

    /// In the order of an index.
    fn fields(&self) -> Vec<(&str, i8)> {
        let ascending = |name| (str_of(name), 1);
        let sort = self.sort.iter().map(|(name, direction)| (name.as_str(), *direction));
        self.equal.iter().map(ascending).chain(sort).chain(self.ranges.iter().map(ascending)).collect()
    }

    /// Whether an index begins with the fields of equality in any order, then the sort in its directions or
    /// all of them reversed, then the ranges in any order.
    fn is_served_by(&self, index: &[(String, i8)]) -> bool {
        let (equal, sort) = (self.equal.len(), self.sort.len());
        let all = equal + sort + self.ranges.len();
        let Some(index) = index.get(..all) else { return false };
        let has = |part: &[(String, i8)], name: &String| part.iter().any(|(known, _)| known == name);
        let sorted = &index[equal..equal + sort];
        let same = |way: i8| self.sort.iter().zip(sorted).all(|(a, b)| a.0 == b.0 && a.1 == b.1 * way);
        self.equal.iter().all(|name| has(&index[..equal], name))
            && (same(1) || same(-1))
            && self.ranges.iter().all(|name| has(&index[equal + sort..], name))
    }
}

fn str_of(name: &String) -> &str {
    name
}

/// What a shape asks of an index. `None`: it has parts of which this knows nothing, like `$or`.
fn wanted(typed: &str) -> Option<IndexFields> {
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
    let mut wanted =
        IndexFields { equal: equal.iter().map(|key| (*key).to_owned()).collect(), ..IndexFields::default() };
    for (key, value) in fields(inner(sort.unwrap_or("{}"))?) {
        let direction = match value {
            "1" => 1,
            "-1" => -1,
            _ => return None,
        };
        let is_known =
            equal.contains(&key) || wanted.sort.iter().any(|(known, _): &(String, i8)| known == key);
        if !is_known {
            wanted.sort.push((key.to_owned(), direction));
        }
    }
    for key in ranges {
        let is_known = equal.contains(&key)
            || wanted.sort.iter().any(|(known, _)| known == key)
            || wanted.ranges.iter().any(|known| known == key);
        if !is_known {
            wanted.ranges.push(key.to_owned());
        }
    }
    Some(wanted)
}

pub(super) fn inner(document: &str) -> Option<&str> {
    document.strip_prefix('{')?.strip_suffix('}')
}

/// `key: value` of the inside of a document.
pub(super) fn fields(body: &str) -> Vec<(&str, &str)> {
    entries(body).into_iter().filter_map(|entry| entry.split_once(": ")).collect()
}

/// What stands between the outer commas.
pub(super) fn entries(body: &str) -> Vec<&str> {
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
            wanted(typed).map(|all| {
                all.fields().into_iter().map(|(name, way)| format!("{name} {way}")).collect::<Vec<_>>()
            })
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

    #[test]
    fn an_index_serves_in_any_order_of_equality_and_either_direction_of_the_sort() {
        let shape = "{filter: {a: ?number, b: ?string, c: {$gt: ?date}}, sort: {d: -1, e: 1}}";
        let serves = |index: &[(&str, i8)]| {
            let index: Vec<_> = index.iter().map(|(name, way)| ((*name).to_owned(), *way)).collect();
            wanted(shape).unwrap().is_served_by(&index)
        };
        assert!(serves(&[("a", 1), ("b", 1), ("d", -1), ("e", 1), ("c", 1)]));
        assert!(serves(&[("b", -1), ("a", 1), ("d", 1), ("e", -1), ("c", -1), ("z", 1)]));
        assert!(!serves(&[("a", 1), ("b", 1), ("d", 1), ("e", 1), ("c", 1)]), "one of the sort reversed");
        assert!(!serves(&[("a", 1), ("d", -1), ("e", 1), ("b", 1), ("c", 1)]), "the sort comes too early");
        assert!(!serves(&[("a", 1), ("b", 1)]), "too short");
        let ab = vec![("a".to_owned(), 1), ("b".to_owned(), -1)];
        assert_eq!(patterns("IXSCAN { a: 1, b: -1.0 }, COLLSCAN"), std::slice::from_ref(&ab));
        assert_eq!(patterns("COUNT_SCAN { c: 1 }, DISTINCT_SCAN { a: 1, b: -1 }")[1], ab);
        assert!(patterns("COLLSCAN").is_empty());
    }
}
