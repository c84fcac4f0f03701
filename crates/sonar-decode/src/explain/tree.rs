//! A document of `explain` in memory, with the values of the query.

use std::fmt::Write as _;

use sonar_core::words::cut;

use crate::bson::{BsonValue, ElementKind, ElementStep, Fed, Key, Opened, Skimmer, Visitor};
use crate::syntax::{json, printed};

/// The most elements of a document that are kept.
const MAX_ELEMENTS: usize = 500_000;
/// The most bytes of a text with values.
const MAX_TEXT: usize = 16 << 10;

/// A value of a document.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExplainValue {
    Document(Vec<(String, ExplainValue)>),
    Array(Vec<ExplainValue>),
    Text(String),
    Integer(i64),
    Double(f64),
    Boolean(bool),
    /// Milliseconds since the Unix epoch.
    Date(i64),
    /// A value whose type alone is known.
    Other(ElementKind),
}

const NOTHING: &ExplainValue = &ExplainValue::Other(ElementKind::Undefined);

impl ExplainValue {
    /// The field of this name; an undefined value if there is none.
    pub(super) fn get(&self, name: &str) -> &Self {
        match self {
            Self::Document(fields) => {
                fields.iter().find(|(key, _)| key == name).map_or(NOTHING, |(_, value)| value)
            }
            _ => NOTHING,
        }
    }

    /// The first field, with its name.
    pub(super) fn first(&self) -> Option<(&str, &Self)> {
        self.fields().first().map(|(key, value)| (key.as_str(), value))
    }

    pub(super) fn fields(&self) -> &[(String, Self)] {
        match self {
            Self::Document(fields) => fields,
            _ => &[],
        }
    }

    pub(super) fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }

    pub(super) const fn is_document(&self) -> bool {
        matches!(self, Self::Document(_))
    }

    pub(super) const fn is_array(&self) -> bool {
        matches!(self, Self::Array(_))
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn string(&self) -> String {
        self.text().unwrap_or_default().to_owned()
    }

    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(number) => Some(*number as f64),
            Self::Double(number) if number.is_finite() => Some(*number),
            _ => None,
        }
    }

    pub(super) fn count(&self) -> Option<u64> {
        match self {
            Self::Integer(number) => u64::try_from(*number).ok(),
            Self::Double(number) if *number >= 0.0 && number.is_finite() => Some(*number as u64),
            _ => None,
        }
    }

    pub(super) fn flag(&self) -> Option<bool> {
        match self {
            Self::Boolean(flag) => Some(*flag),
            // Some fields were numbers in early versions.
            other => other.number().map(|number| number != 0.0),
        }
    }

    /// As extended JSON. Where only the type of a value is known, any value of that type stands for it.
    pub(super) fn write_json(&self, out: &mut String) {
        match self {
            Self::Document(fields) => {
                out.push('{');
                for (at, (key, value)) in fields.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    quote(key, out);
                    out.push(':');
                    value.write_json(out);
                }
                out.push('}');
            }
            Self::Array(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    item.write_json(out);
                }
                out.push(']');
            }
            Self::Text(text) => quote(text, out),
            Self::Integer(number) => push(out, format_args!("{number}")),
            Self::Double(number) if number.is_finite() => push(out, format_args!("{number:?}")),
            Self::Double(_) => out.push_str(r#"{"$numberDouble":"NaN"}"#),
            Self::Boolean(flag) => push(out, format_args!("{flag}")),
            Self::Date(ms) => push(out, format_args!(r#"{{"$date":{{"$numberLong":"{ms}"}}}}"#)),
            Self::Other(kind) => out.push_str(sample(*kind)),
        }
    }

    /// As a shell prints it, at most [`MAX_TEXT`] bytes.
    pub(super) fn shown(&self) -> String {
        let mut out = String::new();
        self.show(&mut out);
        if out.len() > MAX_TEXT {
            out.truncate(cut(&out, MAX_TEXT).len());
            out.push('…');
        }
        out
    }

    fn show(&self, out: &mut String) {
        // No more than the beginning is kept.
        if out.len() > MAX_TEXT {
            return;
        }
        match self {
            Self::Document(fields) => {
                out.push('{');
                for (at, (key, value)) in fields.iter().enumerate() {
                    push(out, format_args!("{}{key}: ", if at > 0 { ", " } else { "" }));
                    value.show(out);
                }
                out.push('}');
            }
            Self::Array(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    item.show(out);
                }
                out.push(']');
            }
            Self::Text(text) => quote(text, out),
            Self::Integer(number) => push(out, format_args!("{number}")),
            Self::Double(number) => push(out, format_args!("{number}")),
            Self::Boolean(flag) => push(out, format_args!("{flag}")),
            Self::Date(ms) => push(out, format_args!("Date({ms})")),
            Self::Other(kind) => out.push_str(name_of(*kind)),
        }
    }
}

fn push(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing into a string cannot fail.
    let _ = out.write_fmt(arguments);
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c < ' ' => push(out, format_args!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Any value of a type, in extended JSON.
const fn sample(kind: ElementKind) -> &'static str {
    match kind {
        ElementKind::String | ElementKind::Symbol => "\"\"",
        ElementKind::Binary => r#"{"$binary":{"base64":"","subType":"00"}}"#,
        ElementKind::ObjectId => r#"{"$oid":"000000000000000000000000"}"#,
        ElementKind::Regex => r#"{"$regularExpression":{"pattern":"","options":""}}"#,
        ElementKind::Timestamp => r#"{"$timestamp":{"t":0,"i":0}}"#,
        ElementKind::Decimal128 => r#"{"$numberDecimal":"0"}"#,
        ElementKind::MinKey => r#"{"$minKey":1}"#,
        ElementKind::MaxKey => r#"{"$maxKey":1}"#,
        ElementKind::JavaScript | ElementKind::JavaScriptWithScope => r#"{"$code":""}"#,
        ElementKind::Undefined => r#"{"$undefined":true}"#,
        _ => "null",
    }
}

/// How a value is shown if only its type is known.
const fn name_of(kind: ElementKind) -> &'static str {
    match kind {
        ElementKind::String | ElementKind::Symbol => "?string",
        ElementKind::Binary => "?binData",
        ElementKind::ObjectId => "?objectId",
        ElementKind::Regex => "?regex",
        ElementKind::Timestamp => "?timestamp",
        ElementKind::Decimal128 => "?number",
        ElementKind::MinKey => "MinKey",
        ElementKind::MaxKey => "MaxKey",
        ElementKind::JavaScript | ElementKind::JavaScriptWithScope => "?javascript",
        ElementKind::Undefined => "undefined",
        ElementKind::Null => "null",
        _ => "?",
    }
}

/// A document that was read.
pub(super) struct ReadTree {
    pub(super) document: ExplainValue,
    /// A shell left a part out, or it is beyond [`MAX_ELEMENTS`].
    pub(super) is_incomplete: bool,
}

/// Reads a document as JSON, or as a shell prints it. `None`: it cannot be read.
pub(super) fn printed(document: &[u8]) -> Option<ReadTree> {
    let mut text = Vec::new();
    printed::to_json(document, &mut text).ok()?;
    let mut builder = TreeBuilder::default();
    json::walk(&text, 0, &mut builder).ok()?;
    Some(builder.finish())
}

/// Reads a document as BSON. `None`: it cannot be read.
pub(super) fn bson(document: &[u8]) -> Option<ReadTree> {
    let mut builder = TreeBuilder::default();
    match Skimmer::new().feed(document, document.len() as u64, &mut builder) {
        Ok(Fed::Done(_)) => Some(builder.finish()),
        _ => None,
    }
}

struct OpenNode {
    key: String,
    node: ExplainValue,
}

struct TreeBuilder {
    /// The documents and arrays that are open, the outermost first.
    open: Vec<OpenNode>,
    elements: usize,
}

impl Default for TreeBuilder {
    fn default() -> Self {
        let root = OpenNode { key: String::new(), node: ExplainValue::Document(Vec::new()) };
        Self { open: vec![root], elements: 0 }
    }
}

impl TreeBuilder {
    fn add(&mut self, key: String, value: ExplainValue) {
        match self.open.last_mut().map(|open| &mut open.node) {
            Some(ExplainValue::Document(fields)) => fields.push((key, value)),
            Some(ExplainValue::Array(items)) => items.push(value),
            _ => {}
        }
    }

    /// Whether there is room for one more element.
    fn has_room(&mut self) -> bool {
        self.elements += 1;
        self.elements <= MAX_ELEMENTS
    }

    fn finish(mut self) -> ReadTree {
        while self.open.len() > 1 {
            self.close();
        }
        let document = self.open.pop().map_or(ExplainValue::Document(Vec::new()), |root| root.node);
        ReadTree { document, is_incomplete: self.elements > MAX_ELEMENTS }
    }
}

impl Visitor for TreeBuilder {
    fn element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
        if !self.has_room() {
            return ElementStep::Next;
        }
        let key = String::from_utf8_lossy(key.bytes).into_owned();
        let value = match value {
            BsonValue::Long => ExplainValue::Other(kind),
            BsonValue::Bytes(bytes) => scalar(kind, bytes),
        };
        self.add(key, value);
        ElementStep::Next
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        if !self.has_room() {
            return Opened::Skip;
        }
        let key = String::from_utf8_lossy(key.bytes).into_owned();
        let node = if array { ExplainValue::Array(Vec::new()) } else { ExplainValue::Document(Vec::new()) };
        self.open.push(OpenNode { key, node });
        Opened::Enter
    }

    fn close(&mut self) {
        if let Some(OpenNode { key, node }) = self.open.pop() {
            self.add(key, node);
        }
    }
}

fn scalar(kind: ElementKind, bytes: &[u8]) -> ExplainValue {
    match kind {
        ElementKind::String => ExplainValue::Text(String::from_utf8_lossy(bytes).into_owned()),
        ElementKind::Boolean => ExplainValue::Boolean(bytes.first().is_some_and(|byte| *byte != 0)),
        ElementKind::Int32 | ElementKind::Int64 => {
            crate::shape::integer(kind, bytes).map_or(ExplainValue::Other(kind), ExplainValue::Integer)
        }
        ElementKind::Double => {
            crate::shape::number(kind, bytes).map_or(ExplainValue::Other(kind), ExplainValue::Double)
        }
        ElementKind::DateTime => {
            let ms = bytes.first_chunk().map(|ms| i64::from_le_bytes(*ms));
            ms.map_or(ExplainValue::Other(kind), ExplainValue::Date)
        }
        _ => ExplainValue::Other(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_the_same_after_it_was_written_and_read_again() {
        let text = br#"{ a: 1, b: [ 'x"y', { c: -2.5 } ], d: ISODate("2026-05-01T10:00:00Z"), e: null, f: true, g: ObjectId('507f1f77bcf86cd799439011') }"#;
        let read = printed(text).unwrap();
        assert!(!read.is_incomplete);
        let mut json = String::new();
        read.document.write_json(&mut json);
        assert_eq!(printed(json.as_bytes()).unwrap().document, read.document, "{json}");
        assert_eq!(
            read.document.shown(),
            r#"{a: 1, b: ["x\"y", {c: -2.5}], d: Date(1777629600000), e: null, f: true, g: ?objectId}"#
        );
        assert_eq!(read.document.get("b").items()[1].get("c").number(), Some(-2.5));
        assert_eq!(read.document.get("absent").text(), None);
    }

    #[test]
    fn a_shown_text_is_bounded() {
        let long = ExplainValue::Array(vec![ExplainValue::Text("ä".repeat(100)); 1_000]);
        let shown = long.shown();
        assert!(shown.len() <= MAX_TEXT + 4 && shown.ends_with('…'));
    }
}
