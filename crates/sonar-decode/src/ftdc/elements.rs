//! Walks the elements of one BSON document that is in memory as a whole.
//!
//! It forgives what servers do: keys that come twice, and strings that are not UTF-8.

use crate::bson::ElementKind;

/// One element of a document.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    /// Type of the value.
    pub kind: ElementKind,
    /// Name, without its terminator. Any bytes but zero.
    pub key: &'a [u8],
    /// The value as in the document: strings, documents and binary data with their length in front.
    pub value: &'a [u8],
}

/// How a server made 64-bit integers of floating-point numbers. The first sample of a chunk has the number itself, and
/// the differences after it are to the integer that the server made of it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub enum NumberRule {
    /// Numbers beyond 64 bits are the nearest integer, and what is no number is 0.
    #[default]
    Clamped,
    /// Both are -2^63: what a conversion in C gives on x86-64. Servers before 5.0 convert in this way, and only later
    /// ones check the range: `extractMetricsFromDocument` in
    /// <https://github.com/mongodb/mongo/blob/v4.4/src/mongo/db/ftdc/util.cpp> calls `numberLong`.
    Cast,
}

impl NumberRule {
    fn of_double(self, number: f64) -> i64 {
        /// 2^63, which is beyond 64 bits.
        const BEYOND: f64 = 9_223_372_036_854_775_808.0;
        match self {
            Self::Cast if !(-BEYOND..BEYOND).contains(&number) => i64::MIN,
            _ => number as i64,
        }
    }

    /// Of a decimal128: rounded to the nearest integer, to the even one of two. Whatever has no integer of 64 bits, and
    /// what is no number, is -2^63 by [`Self::Cast`].
    fn of_decimal(self, bytes: &[u8]) -> Option<i64> {
        let bits = u128::from_le_bytes(bytes.try_into().ok()?);
        let is_negative = bits >> 127 == 1;
        let clamped = match (self, is_negative) {
            (Self::Cast, _) | (Self::Clamped, true) => i64::MIN,
            (Self::Clamped, false) => i64::MAX,
        };
        // IEEE 754-2008, 3.5.2, with the coefficient as a binary integer.
        match bits >> 122 & 0x1f {
            0x1e => return Some(clamped),
            0x1f => return Some(if self == Self::Cast { i64::MIN } else { 0 }),
            // Coefficients that no server writes; they count as 0.
            0x18..=0x1d => return Some(0),
            _ => {}
        }
        let exponent = (bits >> 113 & 0x3fff) as i32 - 6_176;
        let coefficient = bits & ((1 << 113) - 1);
        let magnitude = match u32::try_from(exponent) {
            _ if coefficient == 0 => Some(0),
            Ok(exponent) => 10u128.checked_pow(exponent).and_then(|power| coefficient.checked_mul(power)),
            // Coefficients have 34 digits at most.
            Err(_) => Some(10u128.checked_pow(exponent.unsigned_abs()).map_or(0, |power| {
                let (whole, rest) = (coefficient / power, coefficient % power);
                let is_up = rest > power / 2 || rest == power / 2 && whole % 2 == 1;
                whole + u128::from(is_up)
            })),
        };
        let magnitude = magnitude.and_then(|magnitude| i128::try_from(magnitude).ok());
        let signed = magnitude.map(|magnitude| if is_negative { -magnitude } else { magnitude });
        Some(signed.and_then(|signed| i64::try_from(signed).ok()).unwrap_or(clamped))
    }
}

impl<'a> Element<'a> {
    /// Of an int32, int64, boolean or date (milliseconds since 1970), and of a double cut to an integer.
    pub fn integer(&self) -> Option<i64> {
        self.integer_by(NumberRule::default())
    }

    /// The same, where floating-point numbers become integers by `rule`.
    pub fn integer_by(&self, rule: NumberRule) -> Option<i64> {
        match self.kind {
            ElementKind::Int32 => Some(i64::from(i32::from_le_bytes(self.value.try_into().ok()?))),
            ElementKind::Int64 | ElementKind::DateTime => {
                Some(i64::from_le_bytes(self.value.try_into().ok()?))
            }
            ElementKind::Double => Some(rule.of_double(f64::from_le_bytes(self.value.try_into().ok()?))),
            ElementKind::Decimal128 => rule.of_decimal(self.value),
            ElementKind::Boolean => Some(i64::from(*self.value.first()? != 0)),
            _ => None,
        }
    }

    /// The elements of a document or array; nothing of any other value.
    pub fn elements(&self) -> Elements<'a> {
        match self.kind {
            ElementKind::Document | ElementKind::Array => Elements::new(self.value),
            _ => Elements { rest: &[], broken: false },
        }
    }

    /// The bytes of a string, without length and terminator. They need not be UTF-8.
    pub fn string(&self) -> Option<&'a [u8]> {
        match self.kind {
            ElementKind::String => self.value.get(4..self.value.len().checked_sub(1)?),
            _ => None,
        }
    }

    /// The bytes of binary data of subtype 0.
    pub fn binary(&self) -> Option<&'a [u8]> {
        match self.kind {
            ElementKind::Binary if self.value.get(4) == Some(&0) => self.value.get(5..),
            _ => None,
        }
    }
}

/// The elements of a document, in its order. It ends early at what is no BSON; see [`Elements::is_broken`].
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    rest: &'a [u8],
    broken: bool,
}

impl<'a> Elements<'a> {
    /// Of a document with its length in front. Bytes after it are ignored.
    pub fn new(document: &'a [u8]) -> Self {
        match document.split_first_chunk::<4>() {
            Some((length, _)) => {
                let length = u32::from_le_bytes(*length) as usize;
                match document.get(4..length.saturating_sub(1)) {
                    Some(rest) if document.get(length - 1) == Some(&0) => Self { rest, broken: false },
                    _ => Self { rest: &[], broken: true },
                }
            }
            None => Self { rest: &[], broken: true },
        }
    }

    /// It ended at bytes that are no BSON.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// The first element of that name.
    pub fn find(mut self, key: &[u8]) -> Option<Element<'a>> {
        Iterator::find(&mut self, |element| element.key == key)
    }

    fn read(&mut self) -> Option<Element<'a>> {
        let (&number, rest) = self.rest.split_first()?;
        let kind = ElementKind::from_number(number)?;
        let end = memchr::memchr(0, rest)?;
        let (key, rest) = (&rest[..end], &rest[end + 1..]);
        let size = size(kind, rest)?;
        let (value, rest) = rest.split_at_checked(size)?;
        self.rest = rest;
        Some(Element { kind, key, value })
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let element = self.read();
        if element.is_none() {
            self.broken = true;
            self.rest = &[];
        }
        element
    }
}

/// Bytes of the value of that kind at the beginning of `rest`.
fn size(kind: ElementKind, rest: &[u8]) -> Option<usize> {
    if let Some(size) = kind.fixed_size() {
        return Some(usize::from(size));
    }
    let length = || Some(u32::from_le_bytes(*rest.first_chunk()?) as usize);
    match kind {
        ElementKind::Document | ElementKind::Array | ElementKind::JavaScriptWithScope => {
            length().filter(|length| *length >= 5)
        }
        ElementKind::String | ElementKind::JavaScript | ElementKind::Symbol => {
            length().filter(|length| *length >= 1)?.checked_add(4)
        }
        ElementKind::Binary => length()?.checked_add(5),
        ElementKind::DbPointer => length()?.checked_add(4 + 12),
        ElementKind::Regex => {
            let pattern = memchr::memchr(0, rest)? + 1;
            Some(pattern + memchr::memchr(0, &rest[pattern..])? + 1)
        }
        _ => None,
    }
}
