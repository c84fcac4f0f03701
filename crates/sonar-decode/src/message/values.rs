//! A document with its values, as text: only if the user asked for values.

use std::fmt::Write;

use crate::bson::{BsonValue, ElementKind, ElementStep, Key, Opened, Skimmer, Visitor};

/// Writes a document as one line of relaxed extended JSON, of at most about `budget` bytes; `…` stands for the rest.
pub fn to_text(document: &[u8], budget: usize) -> String {
    let mut writer = ValuesWriter { out: "{".into(), budget, closers: vec!['}'], first: true };
    let whole = Skimmer::new().feed(document, document.len() as u64, &mut writer);
    if !matches!(whole, Ok(crate::bson::Fed::Done(_))) && !writer.out.ends_with('…') {
        writer.out.push('…');
    }
    while let Some(closer) = writer.closers.pop() {
        writer.out.push(closer);
    }
    writer.out
}

struct ValuesWriter {
    out: String,
    budget: usize,
    closers: Vec<char>,
    first: bool,
}

impl ValuesWriter {
    fn key(&mut self, key: Key<'_>) -> bool {
        if self.out.len() > self.budget {
            if !self.out.ends_with('…') {
                self.out.push('…');
            }
            return false;
        }
        if !std::mem::take(&mut self.first) {
            self.out.push_str(", ");
        }
        if self.closers.last() == Some(&'}') {
            quote(&mut self.out, key.bytes);
            self.out.push_str(": ");
        }
        true
    }
}

fn quote(out: &mut String, bytes: &[u8]) {
    out.push('"');
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Visitor for ValuesWriter {
    fn element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
        if !self.key(key) {
            return ElementStep::Leave;
        }
        let BsonValue::Bytes(bytes) = value else {
            self.out.push('…');
            return ElementStep::Next;
        };
        let out = &mut self.out;
        let long = || bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
        let _ = match kind {
            ElementKind::String | ElementKind::Symbol | ElementKind::JavaScript | ElementKind::Regex => {
                quote(out, bytes);
                Ok(())
            }
            ElementKind::Double => {
                write!(out, "{}", bytes.first_chunk().map_or(0.0, |bytes| f64::from_le_bytes(*bytes)))
            }
            ElementKind::Int32 => {
                write!(out, "{}", bytes.first_chunk().map_or(0, |bytes| i32::from_le_bytes(*bytes)))
            }
            ElementKind::Int64 => write!(out, "{}", long()),
            ElementKind::Boolean => write!(out, "{}", bytes.first().is_some_and(|byte| *byte != 0)),
            ElementKind::Null => write!(out, "null"),
            ElementKind::ObjectId => write!(out, "{{\"$oid\": \"{}\"}}", hex(bytes)),
            ElementKind::DateTime => write!(out, "{{\"$date\": {}}}", long()),
            ElementKind::Timestamp => write!(out, "{{\"$timestamp\": {}}}", long() as u64),
            ElementKind::Binary => write!(out, "{{\"$binary\": \"{}\"}}", hex(&bytes[..bytes.len().min(32)])),
            ElementKind::Decimal128 => write!(out, "{{\"$numberDecimal\": \"0x{}\"}}", hex(bytes)),
            other => write!(out, "{{\"${other:?}\": 1}}"),
        };
        ElementStep::Next
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        if !self.key(key) {
            return Opened::Leave;
        }
        self.out.push(if array { '[' } else { '{' });
        self.closers.push(if array { ']' } else { '}' });
        self.first = true;
        Opened::Enter
    }

    fn close(&mut self) {
        if let Some(closer) = self.closers.pop() {
            self.out.push(closer);
        }
        self.first = false;
    }
}
