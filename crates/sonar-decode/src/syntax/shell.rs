//! The shell's syntax, as servers up to 4.2 write documents into their logs: keys without quotes,
//! `ObjectId('…')`, `new Date(…)`, and strings **without any escapes**.
//!
//! So a string that contains a quote is ambiguous. A string ends at its first quote; if what follows cannot follow a
//! string, the text is [`ShellError::Ambiguous`]. A string that contains text like the rest of a document (`x", b:
//! "y`) cannot be distinguished from two strings, and is read as two.
//!
//! Written by `BSONObj::toString` of the servers; checked against recorded logs.

use memchr::memchr;

use super::{Index, MAX_DEPTH, Number, Open, number, string};
use crate::bson::{BsonValue, ElementKind, ElementStep, Key, MAX_KEY, Opened, Visitor};

/// Why a text cannot be read.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShellError {
    /// It has more than one reading, or none.
    #[error("the text at byte {0} has more than one reading")]
    Ambiguous(usize),
    /// It ends too early.
    #[error("the text ends inside a document")]
    Cut,
}

/// Walks the document whose `{` is at `at`. Returns where it ends. The outermost document is neither opened nor
/// closed.
///
/// # Errors
/// The text has more than one reading, or ends too early; the visitor got what came before.
pub fn walk<V: Visitor>(bytes: &[u8], at: usize, visitor: &mut V) -> Result<usize, ShellError> {
    ShellWalk { bytes, at, visitor, index: Index::default() }.document()
}

/// Walks the beginning of a command that was cut, as the element `command`.
pub fn beginning<V: Visitor>(text: &[u8], visitor: &mut V) {
    let Some(at) = memchr(b'{', text) else { return };
    if visitor.open(Key::new(b"command"), false) == Opened::Enter {
        // An error means that it ends here; what came before counts.
        if walk(text, at, visitor).is_ok() {
            visitor.close();
        }
    }
}

/// The most open documents and arrays, including skipped ones.
const DEEPEST: usize = 2 * MAX_DEPTH;

/// Where the document around `at` ends, if none of its strings contains a brace.
pub fn end_of_plain(bytes: &[u8], at: usize) -> Option<usize> {
    let mut depth = 1u32;
    for found in memchr::memchr2_iter(b'{', b'}', bytes.get(at..)?) {
        if bytes[at + found] == b'{' {
            depth += 1;
            continue;
        }
        depth -= 1;
        if depth == 0 {
            return Some(at + found + 1);
        }
    }
    None
}

/// What a byte means inside a key.
#[derive(Copy, Clone, PartialEq, Eq)]
enum InKey {
    Part,
    Colon,
    Never,
}

static IN_KEY: [InKey; 256] = {
    let mut table = [InKey::Part; 256];
    let never = b"\"{}[],";
    let mut at = 0;
    while at < never.len() {
        table[never[at] as usize] = InKey::Never;
        at += 1;
    }
    table[b':' as usize] = InKey::Colon;
    table
};

struct ShellWalk<'a, 'v, V> {
    bytes: &'a [u8],
    at: usize,
    visitor: &'v mut V,
    index: Index,
}

impl<'a, V: Visitor> ShellWalk<'a, '_, V> {
    fn document(mut self) -> Result<usize, ShellError> {
        let mut open = [Open { array: false, next: 0 }; DEEPEST];
        let mut depth = 1;
        // Open containers that the visitor skips; 0 while it takes elements.
        let mut muted = 0usize;
        self.at += 1;
        loop {
            let top = open[depth - 1];
            let first = top.next == 0;
            if self.ends(top.array, first)? {
                depth -= 1;
                match (muted, depth) {
                    (_, 0) => return Ok(self.at),
                    (0, _) => self.visitor.close(),
                    _ => muted -= 1,
                }
                continue;
            }
            let number = top.next;
            open[depth - 1].next = number.saturating_add(1);
            let key: &'a [u8] = if top.array { &[] } else { self.key()? };
            let Some(&byte) = self.bytes.get(self.at) else { return Err(ShellError::Cut) };
            if matches!(byte, b'{' | b'[') {
                let array = byte == b'[';
                self.at += 1;
                if depth >= DEEPEST {
                    return Err(ShellError::Ambiguous(self.at));
                }
                if depth == 1 && matches!(key, b"lsid" | b"$clusterTime") {
                    // Drivers create these and servers check them: they contain no strings.
                    self.at = end_of_plain(self.bytes, self.at).ok_or(ShellError::Cut)?;
                    continue;
                }
                let opened = if muted > 0 || depth >= MAX_DEPTH {
                    Opened::Skip
                } else {
                    let key = if top.array { self.index.key(number) } else { Key::new(key) };
                    self.visitor.open(key, array)
                };
                match opened {
                    Opened::Enter => {}
                    Opened::Skip | Opened::Count => muted += 1,
                    // This one and the one around it end without a call to the visitor.
                    Opened::Leave => muted += 2,
                }
                open[depth] = Open { array, next: 0 };
                depth += 1;
                continue;
            }
            let (kind, value, end) = self.scalar(byte)?;
            self.at = end;
            if muted > 0 {
                continue;
            }
            let key = if top.array { self.index.key(number) } else { Key::new(key) };
            let value = match &value {
                Scalar::Text(bytes) => string(bytes),
                Scalar::Number(Number::Long(bytes) | Number::Double(bytes)) => BsonValue::Bytes(bytes),
                Scalar::Flag(byte) => BsonValue::Bytes(std::slice::from_ref(byte)),
                Scalar::Other => BsonValue::Bytes(&[]),
            };
            if self.visitor.element(key, kind, value) == ElementStep::Leave {
                muted += 1;
            }
        }
    }

    /// Whether the container ends here; else moves to its next element.
    fn ends(&mut self, array: bool, first: bool) -> Result<bool, ShellError> {
        let rest = &self.bytes[self.at.min(self.bytes.len())..];
        let end = if array { b']' } else { b'}' };
        match rest {
            [byte, ..] if *byte == end && first => {
                self.at += 1;
                Ok(true)
            }
            [b' ', byte, ..] if *byte == end => {
                self.at += 2;
                Ok(true)
            }
            [b',', b' ', ..] if !first => {
                self.at += 2;
                Ok(false)
            }
            [b' ', ..] if first => {
                self.at += 1;
                Ok(false)
            }
            [] | [b' '] | [b','] => Err(ShellError::Cut),
            _ => Err(ShellError::Ambiguous(self.at)),
        }
    }

    fn key(&mut self) -> Result<&'a [u8], ShellError> {
        let rest = &self.bytes[self.at..];
        let mut at = 0;
        while let Some(byte) = rest.get(at) {
            match IN_KEY[usize::from(*byte)] {
                InKey::Part if at < MAX_KEY => {}
                InKey::Colon => match rest.get(at + 1) {
                    Some(b' ') => {
                        self.at += at + 2;
                        return Ok(&rest[..at]);
                    }
                    Some(_) => {}
                    None => return Err(ShellError::Cut),
                },
                InKey::Part | InKey::Never => return Err(ShellError::Ambiguous(self.at)),
            }
            at += 1;
        }
        Err(ShellError::Cut)
    }

    /// A scalar that begins here, and where it ends.
    fn scalar(&self, byte: u8) -> Result<(ElementKind, Scalar<'a>, usize), ShellError> {
        let rest = &self.bytes[self.at..];
        let ambiguous = Err(ShellError::Ambiguous(self.at));
        let end_of = |length: usize| self.at + length;
        match byte {
            b'"' => {
                let Some(length) = memchr(b'"', &rest[1..]) else { return Err(ShellError::Cut) };
                match follows(&rest[length + 2..]) {
                    Some(true) => {
                        Ok((ElementKind::String, Scalar::Text(&rest[1..1 + length]), end_of(length + 2)))
                    }
                    Some(false) => ambiguous,
                    None => Err(ShellError::Cut),
                }
            }
            b'0'..=b'9' | b'-' => {
                let length =
                    rest.iter().position(|byte| matches!(byte, b',' | b' ')).ok_or(ShellError::Cut)?;
                let Some(number) = number(&rest[..length]) else { return ambiguous };
                match follows(&rest[length..]) {
                    Some(true) => {}
                    Some(false) => return ambiguous,
                    None => return Err(ShellError::Cut),
                }
                let kind = match number {
                    Number::Long(_) => ElementKind::Int64,
                    Number::Double(_) => ElementKind::Double,
                };
                Ok((kind, Scalar::Number(number), end_of(length)))
            }
            b'/' => {
                let mut from = 1;
                loop {
                    let Some(slash) = memchr(b'/', &rest[from..]) else { return Err(ShellError::Cut) };
                    let after = from + slash + 1;
                    if rest[from..after].contains(&b'"') {
                        return ambiguous;
                    }
                    let flags = rest[after..].iter().take_while(|byte| byte.is_ascii_lowercase()).count();
                    match follows(&rest[after + flags..]) {
                        Some(true) => return Ok((ElementKind::Regex, Scalar::Other, end_of(after + flags))),
                        Some(false) => from = after,
                        None => return Err(ShellError::Cut),
                    }
                }
            }
            _ => {
                let (kind, scalar, length) = self.word(rest)?;
                match follows(&rest[length..]) {
                    Some(true) => Ok((kind, scalar, end_of(length))),
                    Some(false) => ambiguous,
                    None => Err(ShellError::Cut),
                }
            }
        }
    }

    /// A value that begins with a letter.
    fn word(&self, rest: &'a [u8]) -> Result<(ElementKind, Scalar<'a>, usize), ShellError> {
        const WORDS: [(&[u8], ElementKind, Scalar<'static>); 10] = [
            (b"true", ElementKind::Boolean, Scalar::Flag(1)),
            (b"false", ElementKind::Boolean, Scalar::Flag(0)),
            (b"null", ElementKind::Null, Scalar::Other),
            (b"undefined", ElementKind::Undefined, Scalar::Other),
            (b"MinKey", ElementKind::MinKey, Scalar::Other),
            (b"MaxKey", ElementKind::MaxKey, Scalar::Other),
            (b"nan.0", ElementKind::Double, Scalar::Number(Number::Double([0, 0, 0, 0, 0, 0, 0xf8, 0x7f]))),
            (b"inf.0", ElementKind::Double, Scalar::Number(Number::Double([0, 0, 0, 0, 0, 0, 0xf0, 0x7f]))),
            (b"nan", ElementKind::Double, Scalar::Number(Number::Double([0, 0, 0, 0, 0, 0, 0xf8, 0x7f]))),
            (b"inf", ElementKind::Double, Scalar::Number(Number::Double([0, 0, 0, 0, 0, 0, 0xf0, 0x7f]))),
        ];
        const CALLS: [(&[u8], ElementKind); 9] = [
            (b"ObjectId(", ElementKind::ObjectId),
            (b"new Date(", ElementKind::DateTime),
            (b"Timestamp(", ElementKind::Timestamp),
            (b"UUID(", ElementKind::Binary),
            (b"BinData(", ElementKind::Binary),
            (b"DBRef(", ElementKind::DbPointer),
            (b"NumberLong(", ElementKind::Int64),
            (b"NumberInt(", ElementKind::Int32),
            (b"NumberDecimal(", ElementKind::Decimal128),
        ];
        for (word, kind, scalar) in WORDS {
            if rest.first() == word.first() && rest.starts_with(word) {
                return Ok((kind, scalar, word.len()));
            }
        }
        for (word, kind) in CALLS {
            if rest.first() == word.first() && rest.starts_with(word) {
                let Some(end) = memchr(b')', &rest[word.len()..]) else { return Err(ShellError::Cut) };
                let inside = &rest[word.len()..word.len() + end];
                let inside = inside.trim_ascii();
                let quoted = |quote: &[u8]| inside.strip_prefix(quote).and_then(|i| i.strip_suffix(quote));
                let inside = quoted(b"\"").or_else(|| quoted(b"'")).unwrap_or(inside);
                let scalar = match kind {
                    ElementKind::Int64 | ElementKind::Int32 => match number(inside) {
                        Some(number @ Number::Long(_)) => Scalar::Number(number),
                        _ => return Err(ShellError::Ambiguous(self.at)),
                    },
                    _ => Scalar::Other,
                };
                let kind = if kind == ElementKind::Int32 { ElementKind::Int64 } else { kind };
                return Ok((kind, scalar, word.len() + end + 1));
            }
        }
        // Before 3.2: `Timestamp 1430000000000|5` and `BinData: 0123…`.
        for (word, kind) in
            [(b"Timestamp ".as_slice(), ElementKind::Timestamp), (b"BinData: ", ElementKind::Binary)]
        {
            if let Some(after) = rest.strip_prefix(word) {
                let length =
                    after.iter().take_while(|byte| byte.is_ascii_hexdigit() || **byte == b'|').count();
                return Ok((kind, Scalar::Other, word.len() + length));
            }
        }
        // Code is written without quotes, so its end is unknown.
        let is_cut = rest.len() < 14 && memchr(b' ', rest).is_none();
        Err(if is_cut { ShellError::Cut } else { ShellError::Ambiguous(self.at) })
    }
}

#[derive(Copy, Clone)]
enum Scalar<'a> {
    Text(&'a [u8]),
    Number(Number),
    Flag(u8),
    Other,
}

/// Whether this can follow a value; `None`: the text ends before that is clear.
fn follows(rest: &[u8]) -> Option<bool> {
    match rest {
        [b',', b' ', ..] | [b' ', b'}' | b']', ..] => Some(true),
        [] | [b',' | b' '] => None,
        _ => Some(false),
    }
}
