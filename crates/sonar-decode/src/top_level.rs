//! The fields of the outermost level of a document, which say what it is. Those further in may be a user's own.

use crate::bson::{BsonValue, ElementKind, ElementStep, Key, Opened, Skimmer, Visitor};

/// The most fields that are kept.
const MAX_FIELDS: usize = 400;
/// Longer names are nobody's that decides anything.
const MAX_NAME: usize = 64;

/// What a field holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum FieldContent {
    Document,
    Array,
    Scalar,
}

/// The names of the fields of a document, whole or cut, and whether they are documents or arrays.
#[derive(Clone, Debug, Default)]
pub struct TopFields {
    fields: Vec<(Box<[u8]>, FieldContent)>,
    /// Of the first document in the first batch of a cursor.
    batch: Vec<(Box<[u8]>, FieldContent)>,
}

impl TopFields {
    /// Of a document that a program or a shell printed, from its `{`.
    pub fn of_text(document: &[u8]) -> Self {
        let mut top = Self::default();
        for (name, value) in TextFields::new(document) {
            push(&mut top.fields, name, text_content(value));
        }
        if let Some(first) = text_batch(document).and_then(|batch| batch.get(1..)) {
            for (name, value) in TextFields::new(first.trim_ascii_start()) {
                push(&mut top.batch, name, text_content(value));
            }
        }
        top
    }

    /// Of a BSON document.
    pub fn of_bson(document: &[u8]) -> Self {
        let mut collected = BsonFields::default();
        // What comes before the damage, or the end of what is there, counts.
        let _ = Skimmer::new().feed(document, u64::from(crate::bson::MAX_DOCUMENT), &mut collected);
        collected.top
    }

    /// Whether there is a field of this name.
    pub fn has(&self, name: &str) -> bool {
        find(&self.fields, name).is_some()
    }

    /// Whether there is a document of this name.
    pub fn has_document(&self, name: &str) -> bool {
        find(&self.fields, name) == Some(FieldContent::Document)
    }

    /// Whether there is an array of this name.
    pub fn has_array(&self, name: &str) -> bool {
        find(&self.fields, name) == Some(FieldContent::Array)
    }

    /// Whether the first document in the first batch of a cursor has a field of this name.
    pub fn batch_has(&self, name: &str) -> bool {
        find(&self.batch, name).is_some()
    }
}

fn find(fields: &[(Box<[u8]>, FieldContent)], name: &str) -> Option<FieldContent> {
    fields.iter().find(|(field, _)| **field == *name.as_bytes()).map(|(_, content)| *content)
}

fn push(fields: &mut Vec<(Box<[u8]>, FieldContent)>, name: &[u8], content: FieldContent) {
    if fields.len() < MAX_FIELDS && name.len() <= MAX_NAME {
        fields.push((name.into(), content));
    }
}

fn text_content(value: &[u8]) -> FieldContent {
    match value.first() {
        Some(b'{') => FieldContent::Document,
        Some(b'[') => FieldContent::Array,
        _ => FieldContent::Scalar,
    }
}

/// The value of a field of the outermost level of a printed document, and all that follows it.
pub fn text_field<'a>(document: &'a [u8], name: &str) -> Option<&'a [u8]> {
    TextFields::new(document).find(|(field, _)| *field == name.as_bytes()).map(|(_, value)| value)
}

/// The first batch of a cursor in a printed document, and all that follows it.
pub fn text_batch(document: &[u8]) -> Option<&[u8]> {
    let batch = text_field(text_field(document, "cursor")?, "firstBatch")?;
    batch.starts_with(b"[").then_some(batch)
}

/// The fields of a printed document, each with its value and all that follows that.
struct TextFields<'a> {
    rest: &'a [u8],
}

impl<'a> TextFields<'a> {
    fn new(document: &'a [u8]) -> Self {
        Self { rest: document.strip_prefix(b"{").unwrap_or_default() }
    }
}

impl<'a> Iterator for TextFields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let is_between = |byte: &u8| byte.is_ascii_whitespace() || *byte == b',';
        let begin = self.rest.iter().position(|byte| !is_between(byte))?;
        let text = &self.rest[begin..];
        let (name, behind) = match text[0] {
            quote @ (b'"' | b'\'') => {
                let end = quoted_end(text, quote)?;
                (&text[1..end - 1], &text[end..])
            }
            b'}' => return None,
            _ => {
                let is_end = |byte: &u8| byte.is_ascii_whitespace() || matches!(*byte, b':' | b',' | b'}');
                let end = text.iter().position(is_end)?;
                text.split_at(end)
            }
        };
        let value = behind.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
        self.rest = behind_value(value).unwrap_or_default();
        Some((name, value))
    }
}

/// Where a text in quotes ends, behind its quote.
fn quoted_end(text: &[u8], quote: u8) -> Option<usize> {
    let mut at = 1;
    loop {
        at += memchr::memchr2(quote, b'\\', text.get(at..)?)?;
        if text[at] == quote {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// What follows a value; `None` if it does not end.
fn behind_value(text: &[u8]) -> Option<&[u8]> {
    let (mut at, mut depth, mut last) = (0, 0usize, b':');
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' | b'\'' | b'`' => at += quoted_end(&text[at..], *byte)? - 1,
            b'{' | b'[' | b'(' => depth += 1,
            b'}' | b']' | b')' | b',' if depth == 0 => return Some(&text[at..]),
            b'}' | b']' | b')' => depth -= 1,
            // A regular expression.
            b'/' if matches!(last, b':' | b'[' | b'(' | b',') => at += regex_end(&text[at..])? - 1,
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            last = *byte;
        }
        at += 1;
    }
    None
}

/// Where a regular expression ends, behind its slash.
fn regex_end(text: &[u8]) -> Option<usize> {
    let (mut at, mut in_class) = (1, false);
    loop {
        match text.get(at)? {
            b'\\' => at += 1,
            b'[' => in_class = true,
            b']' => in_class = false,
            b'/' if !in_class => return Some(at + 1),
            _ => {}
        }
        at += 1;
    }
}

/// Collects the fields of a BSON document.
#[derive(Default)]
struct BsonFields {
    top: TopFields,
    /// 0: the document; 1: its `cursor`; 2: the first batch of that; 3: a document of the batch.
    depth: u8,
}

impl BsonFields {
    fn take(&mut self, key: Key<'_>, content: FieldContent) {
        match self.depth {
            0 => push(&mut self.top.fields, key.bytes, content),
            3 => push(&mut self.top.batch, key.bytes, content),
            _ => {}
        }
    }
}

impl Visitor for BsonFields {
    fn element(&mut self, key: Key<'_>, _: ElementKind, _: BsonValue<'_>) -> ElementStep {
        self.take(key, FieldContent::Scalar);
        ElementStep::Next
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        self.take(key, if array { FieldContent::Array } else { FieldContent::Document });
        match (self.depth, key.bytes, array) {
            (0, b"cursor", false) | (1, b"firstBatch", true) | (2, b"0", false) => {
                self.depth += 1;
                Opened::Enter
            }
            _ => Opened::Skip,
        }
    }

    fn close(&mut self) {
        self.depth -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_outermost_level_counts() {
        let text = br#"{ op: 'query', "command" : { inprog: [ 1 ], r: /[/}"]\/,{/i, d: ISODate("}") }, list: [{ opid: 1 }], 'q\'s': "a}", last: 1 }"#;
        let top = TopFields::of_text(text);
        for name in ["op", "command", "list", "last"] {
            assert!(top.has(name), "{name}");
        }
        assert!(top.has_document("command") && top.has_array("list") && !top.has_array("command"));
        assert!(!top.has("inprog") && !top.has("opid") && !top.has("d"));
    }

    #[test]
    fn a_document_that_is_cut_has_what_comes_before() {
        let top = TopFields::of_text(b"{\"inprog\" : [ { \"opid\" : 1, \"ns\" : \"a");
        assert!(top.has_array("inprog") && !top.has("opid"));
        let top = TopFields::of_text(b"{cursor: {id: 0, firstBatch: [ { opid: 5, op: 'q");
        assert!(top.batch_has("opid") && !top.batch_has("id"));
        let document = bson::doc! {"cursor": {"firstBatch": [{"opid": 5}, {"other": 1}], "id": 0}, "ok": 1};
        let bytes = document.to_vec().unwrap();
        let top = TopFields::of_bson(&bytes);
        assert!(top.has("ok") && top.batch_has("opid") && !top.batch_has("other"));
        let cut = TopFields::of_bson(&bytes[..bytes.len() - 20]);
        assert!(cut.has_document("cursor") && cut.batch_has("opid"));
    }

    proptest::proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "\\{[\"'a:,/\\\\\\[\\]{}() ]{0,60}", bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = (TopFields::of_text(text.as_bytes()), text_batch(text.as_bytes()), TopFields::of_bson(&bytes));
        }
    }
}
