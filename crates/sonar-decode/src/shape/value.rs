//! What does a single value come to? Its number, its placeholder, and how much of it decides a shape.

use crate::bson::{Kind, Step, Use, Value};

/// Only the type of the value was used.
pub(crate) const TYPE: Step = Step::Using(Use::Type);

/// What is used of a value where only matters whether it is zero.
pub(crate) const fn truth_of(kind: Kind) -> Step {
    match kind {
        Kind::Double | Kind::Int32 | Kind::Int64 | Kind::Boolean => Step::Using(Use::Truth),
        _ => TYPE,
    }
}

/// What is used of a literal that is kept where it is short.
pub(crate) const fn literal_of(kind: Kind) -> Step {
    match kind {
        Kind::String | Kind::Symbol | Kind::Double | Kind::Int32 | Kind::Int64 | Kind::Boolean => Step::Next,
        _ => TYPE,
    }
}

/// What is used of a leaf of an expression, which is a path or not.
pub(crate) const fn expression_of(kind: Kind, path: bool) -> Step {
    match kind {
        Kind::String if path => Step::Next,
        Kind::String => Step::Using(Use::Plain),
        _ => TYPE,
    }
}

pub(crate) fn bytes_of(value: Value<'_>) -> &[u8] {
    match value {
        Value::Bytes(bytes) => bytes,
        Value::Long => &[],
    }
}

/// The number that a scalar is; a boolean is 0 or 1. Decimal128 is not worked out.
pub(crate) fn number(kind: Kind, bytes: &[u8]) -> Option<f64> {
    Some(match kind {
        Kind::Double => f64::from_le_bytes(*bytes.first_chunk()?),
        Kind::Int32 => f64::from(i32::from_le_bytes(*bytes.first_chunk()?)),
        Kind::Int64 => i64::from_le_bytes(*bytes.first_chunk()?) as f64,
        Kind::Boolean => f64::from(u8::from(*bytes.first()? != 0)),
        _ => return None,
    })
}

/// The whole number that a scalar is, exactly; a double without its decimals.
pub(crate) fn integer(kind: Kind, bytes: &[u8]) -> Option<i64> {
    match kind {
        Kind::Int64 => Some(i64::from_le_bytes(*bytes.first_chunk()?)),
        _ => number(kind, bytes).filter(|number| !number.is_nan()).map(|number| number as i64),
    }
}

/// A number as a count: negative numbers count as 0.
pub(crate) fn count(kind: Kind, bytes: &[u8]) -> Option<u64> {
    number(kind, bytes).map(|number| number.max(0.0) as u64)
}

/// A number as it is kept: whole ones without a point, so that 1, 1.0 and true are one.
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
pub(crate) fn placeholder(kind: Kind) -> (u8, &'static str) {
    let number = match kind {
        Kind::Double | Kind::Int32 | Kind::Int64 | Kind::Decimal128 => 0,
        Kind::String | Kind::Symbol => 1,
        Kind::Document => 2,
        Kind::Array => 3,
        Kind::Binary => 4,
        Kind::Undefined => 5,
        Kind::ObjectId => 6,
        Kind::Boolean => 7,
        Kind::DateTime => 8,
        Kind::Null => 9,
        Kind::Regex => 10,
        Kind::DbPointer => 11,
        Kind::JavaScript => 12,
        Kind::JavaScriptWithScope => 13,
        Kind::Timestamp => 14,
        Kind::MinKey => 15,
        Kind::MaxKey => 16,
    };
    (number, PLACEHOLDERS[number as usize])
}
