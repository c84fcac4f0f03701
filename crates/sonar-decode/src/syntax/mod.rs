//! Documents that are written as text: JSON, and the syntax of the shell. As with BSON, a
//! [`Visitor`](crate::bson::Visitor) takes their elements.
//!
//! Numbers, booleans and strings are passed on with their value, in BSON's form; of other values only the type.

pub mod documents;
pub mod json;
pub mod printed;
pub mod shell;
pub mod time;

use crate::bson::{BsonValue, Key, MAX_VALUE};

/// The most open documents and arrays; deeper ones are skipped.
pub const MAX_DEPTH: usize = crate::bson::MAX_DEPTH;

/// A string as the BSON skimmer passes it on, whose limit includes length and terminator.
#[inline]
fn string(bytes: &[u8]) -> BsonValue<'_> {
    if bytes.len() + 5 <= MAX_VALUE { BsonValue::Bytes(bytes) } else { BsonValue::Long }
}

/// The key of an array element: its index in decimal, in its own buffer.
#[derive(Default)]
struct Index {
    digits: [u8; 10],
}

impl Index {
    #[inline]
    fn key(&mut self, index: u32) -> Key<'_> {
        if index < 10 {
            self.digits[0] = b'0' + index as u8;
            return Key { bytes: &self.digits[..1], word: u64::from(self.digits[0]) };
        }
        let (mut at, mut rest) = (self.digits.len(), index);
        while rest > 0 {
            at -= 1;
            self.digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        Key::new(&self.digits[at..])
    }
}

/// An open container.
#[derive(Copy, Clone)]
struct Open {
    array: bool,
    /// The number of the next element of an array.
    next: u32,
}

/// A decimal number in BSON's form: a long if it is whole, else a double.
#[inline]
fn number(text: &[u8]) -> Option<Number> {
    let (negative, digits) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, text),
    };
    if !digits.is_empty() && digits.len() <= 18 && digits.iter().all(u8::is_ascii_digit) {
        let value = digits.iter().fold(0i64, |value, digit| value * 10 + i64::from(digit - b'0'));
        return Some(Number::Long((if negative { -value } else { value }).to_le_bytes()));
    }
    // Old servers write `inf.0` and `nan.0`.
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(value) = text.parse::<i64>() {
        return Some(Number::Long(value.to_le_bytes()));
    }
    let text = match text {
        "inf.0" => "inf",
        "-inf.0" => "-inf",
        "nan.0" | "-nan.0" => "nan",
        text => text,
    };
    let value: f64 = text.parse().ok()?;
    Some(Number::Double(value.to_le_bytes()))
}

/// The result of [`number`].
#[derive(Copy, Clone, Debug, PartialEq)]
enum Number {
    Long([u8; 8]),
    Double([u8; 8]),
}
