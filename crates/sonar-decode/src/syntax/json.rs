//! Extended JSON, relaxed and canonical, as servers from 4.4 on write their logs and as `mongoexport`
//! writes documents: <https://github.com/mongodb/specifications/blob/master/source/extended-json/extended-json.md>.
//!
//! Why not a library: visiting every element of recorded log lines takes serde_json 1.55 times as long, sonic-rs 1.46
//! times and simd-json 2.5 times (`bench/readers.py`), and none of them reads the types that JSON does not have.

use memchr::memchr2;

use super::{Index, MAX_DEPTH, Number, Open, number, string};
use crate::bson::{BsonValue, ElementKind, ElementStep, Key, MAX_KEY, Opened, Visitor};

/// Why a text is not JSON.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JsonError {
    /// An unexpected byte.
    #[error("byte {0} is not JSON")]
    Unexpected(usize),
    /// It ends too early.
    #[error("it ends inside a document")]
    Cut,
}

/// The open containers around the current place.
struct Stack {
    open: [Open; MAX_DEPTH],
    depth: usize,
}

impl Stack {
    const fn new() -> Self {
        Self { open: [Open { array: false, next: 0 }; MAX_DEPTH], depth: 1 }
    }

    fn top(&mut self) -> &mut Open {
        &mut self.open[self.depth - 1]
    }

    const fn is_full(&self) -> bool {
        self.depth == MAX_DEPTH
    }

    fn push(&mut self, array: bool) {
        self.open[self.depth] = Open { array, next: 0 };
        self.depth += 1;
    }

    /// Whether containers are open.
    fn pop(&mut self) -> bool {
        self.depth -= 1;
        self.depth > 0
    }
}

/// Walks the object whose `{` is at `at`. Returns where it ends. The outermost object is neither opened nor closed.
///
/// # Errors
/// It is not JSON, or ends too early; the visitor got what came before.
pub fn walk<V: Visitor>(bytes: &[u8], at: usize, visitor: &mut V) -> Result<usize, JsonError> {
    // Only strings with escapes are copied, so most walks allocate nothing.
    let (mut key_buffer, mut value_buffer) = (Vec::new(), Vec::new());
    let (mut index, mut stack) = (Index::default(), Stack::new());
    let mut at = at + 1;
    loop {
        at = space(bytes, at);
        let top = stack.top();
        let Some(&byte) = bytes.get(at) else { return Err(JsonError::Cut) };
        if byte == (if top.array { b']' } else { b'}' }) {
            at += 1;
            if !stack.pop() {
                return Ok(at);
            }
            visitor.close();
            continue;
        }
        let (array, number) = (top.array, top.next);
        if number > 0 {
            if byte != b',' {
                return Err(JsonError::Unexpected(at));
            }
            at = space(bytes, at + 1);
        }
        top.next = number.saturating_add(1);
        let key = if array {
            index.key(number)
        } else {
            if bytes.get(at) != Some(&b'"') {
                return Err(unexpected(bytes, at));
            }
            let (key, end) = text(bytes, at, &mut key_buffer)?;
            at = space(bytes, end);
            if bytes.get(at) != Some(&b':') {
                return Err(unexpected(bytes, at));
            }
            at = space(bytes, at + 1);
            if key.len() > MAX_KEY {
                at = skip(bytes, at)?;
                continue;
            }
            Key::new(key)
        };
        let Some(&byte) = bytes.get(at) else { return Err(JsonError::Cut) };
        let step = match byte {
            b'"' => {
                let (value, end) = text(bytes, at, &mut value_buffer)?;
                at = end;
                visitor.element(key, ElementKind::String, string(value))
            }
            b'{' | b'[' => {
                let array = byte == b'[';
                if !array && let Some((kind, value, end)) = extended(bytes, at) {
                    at = end;
                    let value = match &value {
                        Extended::Number(Number::Long(bytes) | Number::Double(bytes)) => {
                            BsonValue::Bytes(bytes)
                        }
                        Extended::Text(bytes) => string(bytes),
                        Extended::None => BsonValue::Bytes(&[]),
                    };
                    visitor.element(key, kind, value)
                } else {
                    match if stack.is_full() { Opened::Skip } else { visitor.open(key, array) } {
                        Opened::Enter => {
                            stack.push(array);
                            at += 1;
                            continue;
                        }
                        Opened::Skip | Opened::Count => {
                            at = skip(bytes, at)?;
                            continue;
                        }
                        Opened::Leave => {
                            at = skip(bytes, at)?;
                            ElementStep::Leave
                        }
                    }
                }
            }
            b't' | b'f' | b'n' => {
                let rest = &bytes[at..];
                let (kind, flag, length) = if rest.starts_with(b"true") {
                    (ElementKind::Boolean, 1u8, 4)
                } else if rest.starts_with(b"false") {
                    (ElementKind::Boolean, 0, 5)
                } else if rest.starts_with(b"null") {
                    (ElementKind::Null, 0, 4)
                } else {
                    return Err(if rest.len() < 5 { JsonError::Cut } else { JsonError::Unexpected(at) });
                };
                at += length;
                visitor.element(key, kind, BsonValue::Bytes(std::slice::from_ref(&flag)))
            }
            b'-' | b'0'..=b'9' => {
                let (number, end) = numeric(bytes, at).ok_or(JsonError::Unexpected(at))?;
                at = end;
                match &number {
                    Number::Long(bytes) => visitor.element(key, ElementKind::Int64, BsonValue::Bytes(bytes)),
                    Number::Double(bytes) => {
                        visitor.element(key, ElementKind::Double, BsonValue::Bytes(bytes))
                    }
                }
            }
            _ => return Err(JsonError::Unexpected(at)),
        };
        if step == ElementStep::Leave {
            at = rest_of(bytes, at, stack.top().array)?;
            if !stack.pop() {
                return Ok(at);
            }
        }
    }
}

fn unexpected(bytes: &[u8], at: usize) -> JsonError {
    if at >= bytes.len() { JsonError::Cut } else { JsonError::Unexpected(at) }
}

/// The number at `at`, and where it ends.
#[inline]
fn numeric(bytes: &[u8], at: usize) -> Option<(Number, usize)> {
    let (mut value, mut end) = (0i64, at);
    while let Some(digit @ b'0'..=b'9') = bytes.get(end) {
        value = value.wrapping_mul(10).wrapping_add(i64::from(digit - b'0'));
        end += 1;
    }
    let is_plain = (1..=18).contains(&(end - at)) && !bytes.get(end).is_some_and(|byte| is_numeric(*byte));
    if is_plain {
        return Some((Number::Long(value.to_le_bytes()), end));
    }
    let length = bytes[at..].iter().take_while(|byte| is_numeric(**byte)).count();
    Some((number(&bytes[at..at + length])?, at + length))
}

const fn is_numeric(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')
}

/// Position of the first byte from `at` on that is not white space.
#[inline]
pub fn space(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

/// The string whose opening quote is at `at`, and where it ends. It is borrowed, or unescaped into `scratch`.
///
/// # Errors
/// It has an escape that JSON does not know, or no end.
#[inline(always)]
pub fn text<'a>(
    bytes: &'a [u8],
    at: usize,
    scratch: &'a mut Vec<u8>,
) -> Result<(&'a [u8], usize), JsonError> {
    let from = at + 1;
    let rest = bytes.get(from..).unwrap_or_default();
    let found = quote_or_escape(rest).ok_or(JsonError::Cut)?;
    if rest[found] == b'"' {
        return Ok((&rest[..found], from + found + 1));
    }
    unescape(bytes, from, found, scratch)
}

/// Position of the first quote or backslash. Reads eight bytes at a time: most strings are too short for a call of
/// memchr to pay off.
#[inline]
fn quote_or_escape(bytes: &[u8]) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let zeros = |word: u64| word.wrapping_sub(LOW) & !word & HIGH;
    let mut at = 0;
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*chunk);
        // The lowest mark is right; higher ones may come from a borrow.
        let marks = zeros(word ^ (LOW * b'"' as u64)) | zeros(word ^ (LOW * b'\\' as u64));
        if marks != 0 {
            return Some(at + (marks.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    bytes[at..].iter().position(|byte| matches!(byte, b'"' | b'\\')).map(|found| at + found)
}

#[cold]
fn unescape<'a>(
    bytes: &'a [u8],
    from: usize,
    found: usize,
    scratch: &'a mut Vec<u8>,
) -> Result<(&'a [u8], usize), JsonError> {
    scratch.clear();
    scratch.extend_from_slice(&bytes[from..from + found]);
    let mut at = from + found;
    loop {
        match bytes.get(at) {
            None => return Err(JsonError::Cut),
            Some(b'"') => return Ok((scratch, at + 1)),
            Some(b'\\') => {
                let escape = *bytes.get(at + 1).ok_or(JsonError::Cut)?;
                at += 2;
                let byte = match escape {
                    b'"' | b'\\' | b'/' => escape,
                    b'b' => 0x08,
                    b'f' => 0x0c,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'u' => {
                        let unit = hex(bytes, at)?;
                        at += 4;
                        let mut code = u32::from(unit);
                        if (0xd800..0xdc00).contains(&unit) && bytes.get(at..at + 2) == Some(b"\\u") {
                            let low = hex(bytes, at + 2)?;
                            if (0xdc00..0xe000).contains(&low) {
                                code = 0x1_0000 + ((code - 0xd800) << 10) + (u32::from(low) - 0xdc00);
                                at += 6;
                            }
                        }
                        let c = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                        scratch.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                        continue;
                    }
                    _ => return Err(JsonError::Unexpected(at - 1)),
                };
                scratch.push(byte);
            }
            Some(_) => {
                let rest = &bytes[at..];
                let length = memchr2(b'"', b'\\', rest).ok_or(JsonError::Cut)?;
                scratch.extend_from_slice(&rest[..length]);
                at += length;
            }
        }
    }
}

fn hex(bytes: &[u8], at: usize) -> Result<u16, JsonError> {
    let digits = bytes.get(at..at + 4).ok_or(JsonError::Cut)?;
    digits.iter().try_fold(0u16, |value, digit| {
        let digit = (*digit as char).to_digit(16).ok_or(JsonError::Unexpected(at))?;
        Ok(value << 4 | digit as u16)
    })
}

/// Skips a value. Returns where it ends.
///
/// # Errors
/// It ends too early. Its content is not checked.
pub fn skip(bytes: &[u8], at: usize) -> Result<usize, JsonError> {
    match bytes.get(at) {
        None => Err(JsonError::Cut),
        Some(b'"') => end_of_text(bytes, at + 1),
        Some(b'{') => rest_of(bytes, at + 1, false),
        Some(b'[') => rest_of(bytes, at + 1, true),
        Some(_) => {
            let rest = &bytes[at..];
            let length = rest
                .iter()
                .position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r'));
            match length {
                Some(0) => Err(JsonError::Unexpected(at)),
                Some(length) => Ok(at + length),
                None => Err(JsonError::Cut),
            }
        }
    }
}

/// The end of the string whose first byte after the quote is at `at`.
#[inline]
fn end_of_text(bytes: &[u8], mut at: usize) -> Result<usize, JsonError> {
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let found = quote_or_escape(rest).ok_or(JsonError::Cut)?;
        if rest[found] == b'"' {
            return Ok(at + found + 1);
        }
        at += found + 2;
    }
}

/// The end of the object or array around `at`. Brackets of the other kind are ignored.
fn rest_of(bytes: &[u8], mut at: usize, array: bool) -> Result<usize, JsonError> {
    let (begin, end) = if array { (b'[', b']') } else { (b'{', b'}') };
    let mut depth = 1u32;
    loop {
        match *bytes.get(at).ok_or(JsonError::Cut)? {
            b'"' => {
                at = end_of_text(bytes, at + 1)?;
                continue;
            }
            byte if byte == end => {
                depth -= 1;
                if depth == 0 {
                    return Ok(at + 1);
                }
            }
            byte if byte == begin => depth += 1,
            _ => {}
        }
        at += 1;
    }
}

enum Extended<'a> {
    Number(Number),
    Text(&'a [u8]),
    None,
}

/// A value of a type that JSON does not have: `{"$oid": "…"}` and its like. `None`: it is a plain object.
#[inline]
fn extended(bytes: &[u8], at: usize) -> Option<(ElementKind, Extended<'_>, usize)> {
    // Excludes most objects quickly: they do not begin with `{"$`.
    let inner = space(bytes, at + 1);
    if bytes.get(inner..inner + 2)? != b"\"$" {
        return None;
    }
    extended_type(bytes, inner)
}

/// The type that `{"$name": …}` stands for.
fn kind_of(name: &[u8]) -> Option<ElementKind> {
    Some(match name {
        b"oid" => ElementKind::ObjectId,
        b"date" => ElementKind::DateTime,
        b"numberLong" => ElementKind::Int64,
        b"numberInt" => ElementKind::Int32,
        b"numberDouble" => ElementKind::Double,
        b"numberDecimal" => ElementKind::Decimal128,
        b"binary" | b"uuid" => ElementKind::Binary,
        b"timestamp" => ElementKind::Timestamp,
        b"regularExpression" => ElementKind::Regex,
        b"symbol" => ElementKind::Symbol,
        b"code" => ElementKind::JavaScript,
        b"dbPointer" => ElementKind::DbPointer,
        b"undefined" => ElementKind::Undefined,
        b"minKey" => ElementKind::MinKey,
        b"maxKey" => ElementKind::MaxKey,
        _ => return None,
    })
}

fn extended_type(bytes: &[u8], inner: usize) -> Option<(ElementKind, Extended<'_>, usize)> {
    let rest = &bytes[inner + 2..];
    let length = rest.iter().take(24).position(|byte| *byte == b'"')?;
    let mut kind = kind_of(&rest[..length])?;
    let colon = space(bytes, inner + 2 + length + 1);
    if bytes.get(colon) != Some(&b':') {
        return None;
    }
    let from = space(bytes, colon + 1);
    let to = skip(bytes, from).ok()?;
    let mut end = space(bytes, to);
    if bytes.get(end) == Some(&b',') {
        // `$code` with its `$scope`, and the old form of `$binary` with its `$type`.
        if !matches!(kind, ElementKind::JavaScript | ElementKind::Binary) {
            return None;
        }
        if kind == ElementKind::JavaScript {
            kind = ElementKind::JavaScriptWithScope;
        }
        end = rest_of(bytes, end, false).ok()? - 1;
    }
    if bytes.get(end) != Some(&b'}') {
        return None;
    }
    let content = &bytes[from..to];
    let inside = content.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
    let value = match kind {
        ElementKind::Int64 | ElementKind::Int32 | ElementKind::Double => {
            let text = match inside.unwrap_or(content) {
                b"Infinity" => b"inf".as_slice(),
                b"-Infinity" => b"-inf",
                text => text,
            };
            let number = number(text)?;
            kind = if matches!(number, Number::Long(_)) { ElementKind::Int64 } else { ElementKind::Double };
            Extended::Number(number)
        }
        ElementKind::DateTime => Extended::Number(Number::Long(date(bytes, from, to)?.to_le_bytes())),
        ElementKind::Symbol => Extended::Text(inside?),
        _ => Extended::None,
    };
    Some((kind, value, end + 1))
}

/// Milliseconds since the Unix epoch of a `$date`: a text, a number, or `{"$numberLong": "…"}`.
fn date(bytes: &[u8], from: usize, to: usize) -> Option<i64> {
    match bytes.get(from)? {
        b'"' => crate::syntax::time::iso(bytes.get(from + 1..to - 1)?),
        b'{' => match extended(bytes, from)? {
            (ElementKind::Int64, Extended::Number(Number::Long(bytes)), _) => Some(i64::from_le_bytes(bytes)),
            _ => None,
        },
        _ => match number(&bytes[from..to])? {
            Number::Long(bytes) => Some(i64::from_le_bytes(bytes)),
            Number::Double(_) => None,
        },
    }
}
