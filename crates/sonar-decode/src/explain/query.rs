//! The query in a document of `explain`: its shape, and its parts with values masked.

use sonar_core::explain::{BoundWidth, IndexBound, MaskedText};
use sonar_core::{Execution, Identity, Operation, ShapeInfo};

use std::sync::Arc;

use super::tree::ExplainValue;
use crate::entry::{Entry, EntryContext, EntrySink, Op, OperationAssembler, ParsedEntry};
use crate::log::read_document;

/// Makes shapes of commands as a profile does.
#[derive(Default)]
pub(super) struct ShapeMaker {
    assembler: OperationAssembler,
    entry: Entry<()>,
    parsed: ParsedEntry,
}

/// A command as the shape builder understands it.
pub(super) struct ShapedCommand {
    pub(super) name: String,
    pub(super) shape: Arc<ShapeInfo>,
    pub(super) identity: Identity,
}

#[derive(Default)]
struct TakenShape(Option<ShapedCommand>);

impl EntrySink for TakenShape {
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, _: &Execution<'_>, _: u64) {
        self.0 = Some(ShapedCommand { name: op.command.to_owned(), shape: op.shape.clone(), identity });
    }
}

impl ShapeMaker {
    /// The shape of a command on `namespace`; `None` if it cannot be read.
    pub(super) fn command(&mut self, namespace: &str, command: &ExplainValue) -> Option<ShapedCommand> {
        let fields = [
            ("op".to_owned(), ExplainValue::Text("command".to_owned())),
            ("ns".to_owned(), ExplainValue::Text(namespace.to_owned())),
            ("command".to_owned(), command.clone()),
        ];
        let mut json = String::new();
        ExplainValue::Document(fields.into()).write_json(&mut json);
        self.entry.reset();
        read_document(json.as_bytes(), &mut self.entry).ok()?;
        if self.entry.fields.op == Op::None {
            return None;
        }
        self.parsed.take(&mut self.entry);
        let text = || {
            let mut entry = Entry::default();
            // It was readable before.
            let _ = read_document(json.as_bytes(), &mut entry);
            entry.into_shape()
        };
        let mut taken = TakenShape::default();
        self.assembler.add(&self.parsed, &EntryContext::default(), text, &mut taken);
        taken.0
    }

    /// The typed text of a filter and a sort: `{filter: {…}, sort: {…}}`.
    pub(super) fn filter_and_sort(&mut self, filter: &ExplainValue, sort: Option<&ExplainValue>) -> String {
        let mut fields = vec![
            ("find".to_owned(), ExplainValue::Text("c".to_owned())),
            ("filter".to_owned(), flat(filter)),
        ];
        fields.extend(sort.map(|sort| ("sort".to_owned(), sort.clone())));
        let shaped = self.command("d.c", &ExplainValue::Document(fields));
        shaped.map_or_else(String::new, |shaped| shaped.shape.typed.to_string())
    }

    /// A filter.
    pub(super) fn filter(&mut self, filter: &ExplainValue) -> MaskedText {
        let typed = self.filter_and_sort(filter, None);
        // A filter that matches everything is left out.
        let is_empty = filter.fields().is_empty() && typed == "{}";
        let masked = typed.strip_prefix("{filter: ").and_then(|rest| rest.strip_suffix('}'));
        let masked = if is_empty { "{}" } else { masked.unwrap_or("{…}") };
        MaskedText { masked: masked.to_owned(), values: filter.shown() }
    }

    /// What a stage of a pipeline says.
    pub(super) fn pipeline_stage(&mut self, name: &str, content: &ExplainValue) -> MaskedText {
        let stage = ExplainValue::Document(vec![(name.to_owned(), content.clone())]);
        let command = ExplainValue::Document(vec![
            ("aggregate".to_owned(), ExplainValue::Text("c".to_owned())),
            ("pipeline".to_owned(), ExplainValue::Array(vec![stage])),
        ]);
        let shaped = self.command("d.c", &command);
        let typed = shaped.map_or_else(String::new, |shaped| shaped.shape.typed.to_string());
        let masked = typed
            .strip_prefix("{pipeline: [{")
            .and_then(|rest| rest.strip_prefix(name)?.strip_prefix(": "))
            .and_then(|rest| rest.strip_suffix("}]}"));
        MaskedText { masked: masked.unwrap_or("{…}").to_owned(), values: content.shown() }
    }
}

/// A filter without the `$and` that the parser puts around conditions: `{$and: [{a: {$gt: 1}}, {a: {$lt: 5}}]}` is
/// `{a: {$gt: 1, $lt: 5}}`. If two conditions have the same operator, it stays as it is.
fn flat(filter: &ExplainValue) -> ExplainValue {
    let Some(("$and", ExplainValue::Array(parts))) = filter.first().filter(|_| filter.fields().len() == 1)
    else {
        return filter.clone();
    };
    let mut all: Vec<(String, ExplainValue)> = Vec::new();
    for (name, condition) in parts.iter().flat_map(ExplainValue::fields) {
        let known = all.iter_mut().find(|(known, _)| known == name).map(|(_, condition)| condition);
        match (known, condition) {
            (None, condition) => all.push((name.clone(), condition.clone())),
            (Some(ExplainValue::Document(known)), ExplainValue::Document(more)) => {
                let is_operator = |(key, _): &(String, ExplainValue)| key.starts_with('$');
                let repeats = more.iter().any(|(key, _)| known.iter().any(|(other, _)| other == key));
                if repeats || !known.iter().chain(more).all(is_operator) {
                    return filter.clone();
                }
                known.extend(more.iter().cloned());
            }
            _ => return filter.clone(),
        }
    }
    ExplainValue::Document(all)
}

/// Fields and directions as a log writes them: `{ a: 1, b: -1 }`.
pub(super) fn pattern(pattern: &ExplainValue) -> Option<String> {
    let fields = pattern.fields();
    let field = |(name, way): &(String, ExplainValue)| {
        let way = way.number().map_or_else(|| way.shown(), |number| format!("{number}"));
        format!("{name}: {way}")
    };
    let all: Vec<_> = fields.iter().map(field).collect();
    (!all.is_empty()).then(|| format!("{{ {} }}", all.join(", ")))
}

/// The bounds of an index scan.
pub(super) fn bounds(bounds: &ExplainValue) -> Vec<IndexBound> {
    let bound = |(field, intervals): &(String, ExplainValue)| {
        let intervals: Vec<_> = intervals.items().iter().filter_map(ExplainValue::text).collect();
        if intervals.is_empty() {
            return None;
        }
        let width = if intervals.iter().any(|interval| is_all(interval)) {
            BoundWidth::All
        } else if intervals.iter().all(|interval| is_point(interval)) {
            BoundWidth::Points(intervals.len())
        } else {
            BoundWidth::Ranges(intervals.len())
        };
        Some(IndexBound { field: field.clone(), width, values: intervals.join(", ") })
    };
    bounds.fields().iter().filter_map(bound).collect()
}

fn is_all(interval: &str) -> bool {
    matches!(interval, "[MinKey, MaxKey]" | "[MaxKey, MinKey]")
}

/// Whether both ends of an interval are included and the same: `[5, 5]`. The text does not say where the first value
/// ends, so the halves are compared.
fn is_point(interval: &str) -> bool {
    let Some(inside) = interval.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return false;
    };
    let Some(length) = inside.len().checked_sub(2).map(|length| length / 2) else { return false };
    matches!((inside.get(..length), inside.get(length..length + 2), inside.get(length + 2..)),
        (Some(first), Some(", "), Some(second)) if first == second)
}

#[cfg(test)]
mod tests {
    use super::super::tree::printed;
    use super::*;

    fn tree(text: &str) -> ExplainValue {
        printed(text.as_bytes()).unwrap().document
    }

    #[test]
    fn a_filter_of_the_planner_is_that_of_the_client() {
        let mut maker = ShapeMaker::default();
        let parsed = tree("{$and: [{status: {$eq: 'A'}}, {total: {$lt: 9}}, {total: {$gt: 1}}]}");
        let masked = maker.filter(&parsed);
        assert_eq!(masked.masked, "{status: ?string, total: {$gt: ?number, $lt: ?number}}");
        assert!(masked.values.contains("\"A\""));
        assert_eq!(
            maker.filter(&tree("{$or: [{a: {$eq: 1}}, {b: {$eq: 2}}]}")).masked,
            "{$or: [{a: ?number}, {b: ?number}]}"
        );
        assert_eq!(maker.filter(&tree("{}")).masked, "{}");
    }

    #[test]
    fn bounds_say_how_far_an_index_is_narrowed() {
        let bounds = bounds(&tree(
            r#"{a: ['["x, x", "x, x"]'], b: ['[1, 1]', '[2, 2]'], c: ['(5, inf]'], d: ['[MinKey, MaxKey]'], e: ['[1, 2]'], startKeyInclusive: true}"#,
        ));
        let widths: Vec<_> = bounds.iter().map(|bound| bound.width).collect();
        assert_eq!(
            widths,
            [
                BoundWidth::Points(1),
                BoundWidth::Points(2),
                BoundWidth::Ranges(1),
                BoundWidth::All,
                BoundWidth::Ranges(1)
            ]
        );
        assert_eq!(pattern(&tree("{a: 1, b: -1.0, c: 'hashed'}")).unwrap(), "{ a: 1, b: -1, c: \"hashed\" }");
    }
}
