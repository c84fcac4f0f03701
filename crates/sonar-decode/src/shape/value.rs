//! What does a single value contribute? Its number, its placeholder, and how much of it decides a shape.

use crate::bson::{BsonValue, ElementKind, ElementStep, Use};

/// Only the type of the value was used.
pub(crate) const TYPE: ElementStep = ElementStep::Using(Use::Type);

/// What is used of a value if it only matters whether it is zero.
pub(crate) const fn truth_of(kind: ElementKind) -> ElementStep {
    match kind {
        ElementKind::Double | ElementKind::Int32 | ElementKind::Int64 | ElementKind::Boolean => {
            ElementStep::Using(Use::Truth)
        }
        _ => TYPE,
    }
}

/// What is used of a literal that is kept if it is short.
pub(crate) const fn literal_of(kind: ElementKind) -> ElementStep {
    match kind {
        ElementKind::String
        | ElementKind::Symbol
        | ElementKind::Double
        | ElementKind::Int32
        | ElementKind::Int64
        | ElementKind::Boolean => ElementStep::Next,
        _ => TYPE,
    }
}

/// What is used of a leaf of an expression, by whether it is a path.
pub(crate) const fn expression_of(kind: ElementKind, path: bool) -> ElementStep {
    match kind {
        ElementKind::String if path => ElementStep::Next,
        ElementKind::String => ElementStep::Using(Use::Plain),
        _ => TYPE,
    }
}

pub(crate) fn bytes_of(value: BsonValue<'_>) -> &[u8] {
    match value {
        BsonValue::Bytes(bytes) => bytes,
        BsonValue::Long => &[],
    }
}

/// The number that a scalar is; a boolean is 0 or 1. `None` for Decimal128.
pub(crate) fn number(kind: ElementKind, bytes: &[u8]) -> Option<f64> {
    Some(match kind {
        ElementKind::Double => f64::from_le_bytes(*bytes.first_chunk()?),
        ElementKind::Int32 => f64::from(i32::from_le_bytes(*bytes.first_chunk()?)),
        ElementKind::Int64 => i64::from_le_bytes(*bytes.first_chunk()?) as f64,
        ElementKind::Boolean => f64::from(u8::from(*bytes.first()? != 0)),
        _ => return None,
    })
}

/// The whole number that a scalar is, exactly; a double without its decimals.
pub(crate) fn integer(kind: ElementKind, bytes: &[u8]) -> Option<i64> {
    match kind {
        ElementKind::Int64 => Some(i64::from_le_bytes(*bytes.first_chunk()?)),
        _ => number(kind, bytes).filter(|number| !number.is_nan()).map(|number| number as i64),
    }
}

/// A number as a count: negative numbers count as 0.
pub(crate) fn count(kind: ElementKind, bytes: &[u8]) -> Option<u64> {
    number(kind, bytes).map(|number| number.max(0.0) as u64)
}

/// A number as text: whole ones without a point, so that 1, 1.0 and true are the same.
pub(crate) fn decimal(number: f64) -> String {
    format!("{number}")
}

/// Placeholders by number; the numbers are part of the rules.
pub(crate) const PLACEHOLDERS: [&str; 17] = [
    "?number",
    "?string",
    "?object",
    "?array",
    "?binData",
    "?undefined",
    "?objectId",
    "?bool",
    "?date",
    "?null",
    "?regex",
    "?dbPointer",
    "?javascript",
    "?javascriptWithScope",
    "?timestamp",
    "?minKey",
    "?maxKey",
];

/// Number and text of a value's placeholder.
#[inline]
pub(crate) fn placeholder(kind: ElementKind) -> (u8, &'static str) {
    let number = match kind {
        ElementKind::Double | ElementKind::Int32 | ElementKind::Int64 | ElementKind::Decimal128 => 0,
        ElementKind::String | ElementKind::Symbol => 1,
        ElementKind::Document => 2,
        ElementKind::Array => 3,
        ElementKind::Binary => 4,
        ElementKind::Undefined => 5,
        ElementKind::ObjectId => 6,
        ElementKind::Boolean => 7,
        ElementKind::DateTime => 8,
        ElementKind::Null => 9,
        ElementKind::Regex => 10,
        ElementKind::DbPointer => 11,
        ElementKind::JavaScript => 12,
        ElementKind::JavaScriptWithScope => 13,
        ElementKind::Timestamp => 14,
        ElementKind::MinKey => 15,
        ElementKind::MaxKey => 16,
    };
    (number, PLACEHOLDERS[number as usize])
}
