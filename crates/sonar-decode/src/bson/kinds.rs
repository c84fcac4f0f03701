//! The types of elements, and the sizes of their values where the type alone decides.

/// Element types, by their number on the wire.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum ElementKind {
    Double,
    String,
    Document,
    Array,
    Binary,
    Undefined,
    ObjectId,
    Boolean,
    DateTime,
    Null,
    Regex,
    DbPointer,
    JavaScript,
    Symbol,
    JavaScriptWithScope,
    Int32,
    Timestamp,
    Int64,
    Decimal128,
    MinKey,
    MaxKey,
}

impl ElementKind {
    /// From the number on the wire.
    #[inline]
    pub const fn from_number(number: u8) -> Option<Self> {
        KINDS[number as usize]
    }

    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::Double => 0x01,
            Self::String => 0x02,
            Self::Document => 0x03,
            Self::Array => 0x04,
            Self::Binary => 0x05,
            Self::Undefined => 0x06,
            Self::ObjectId => 0x07,
            Self::Boolean => 0x08,
            Self::DateTime => 0x09,
            Self::Null => 0x0a,
            Self::Regex => 0x0b,
            Self::DbPointer => 0x0c,
            Self::JavaScript => 0x0d,
            Self::Symbol => 0x0e,
            Self::JavaScriptWithScope => 0x0f,
            Self::Int32 => 0x10,
            Self::Timestamp => 0x11,
            Self::Int64 => 0x12,
            Self::Decimal128 => 0x13,
            Self::MaxKey => 0x7f,
            Self::MinKey => 0xff,
        }
    }

    /// Bytes of a value, if the kind alone decides.
    #[inline]
    pub(crate) const fn fixed_size(self) -> Option<u8> {
        match FIXED[self.number() as usize] {
            VARIABLE => None,
            size => Some(size),
        }
    }

    const fn look_up(number: u8) -> Option<Self> {
        Some(match number {
            0x01 => Self::Double,
            0x02 => Self::String,
            0x03 => Self::Document,
            0x04 => Self::Array,
            0x05 => Self::Binary,
            0x06 => Self::Undefined,
            0x07 => Self::ObjectId,
            0x08 => Self::Boolean,
            0x09 => Self::DateTime,
            0x0a => Self::Null,
            0x0b => Self::Regex,
            0x0c => Self::DbPointer,
            0x0d => Self::JavaScript,
            0x0e => Self::Symbol,
            0x0f => Self::JavaScriptWithScope,
            0x10 => Self::Int32,
            0x11 => Self::Timestamp,
            0x12 => Self::Int64,
            0x13 => Self::Decimal128,
            0x7f => Self::MaxKey,
            0xff => Self::MinKey,
            _ => return None,
        })
    }
}

/// The kind of every number on the wire.
static KINDS: [Option<ElementKind>; 256] = {
    let mut kinds = [None; 256];
    let mut number = 0;
    while number < 256 {
        kinds[number] = ElementKind::look_up(number as u8);
        number += 1;
    }
    kinds
};

/// Bytes of a value by number on the wire, if that is fixed; else [`VARIABLE`].
pub(super) static FIXED: [u8; 256] = {
    let mut sizes = [VARIABLE; 256];
    let mut number = 0;
    while number < 256 {
        sizes[number] = match ElementKind::look_up(number as u8) {
            Some(
                ElementKind::Double | ElementKind::DateTime | ElementKind::Timestamp | ElementKind::Int64,
            ) => 8,
            Some(ElementKind::Int32) => 4,
            Some(ElementKind::Boolean) => 1,
            Some(ElementKind::ObjectId) => 12,
            Some(ElementKind::Decimal128) => 16,
            Some(ElementKind::Null | ElementKind::Undefined | ElementKind::MinKey | ElementKind::MaxKey) => 0,
            _ => VARIABLE,
        };
        number += 1;
    }
    sizes
};

/// The size is in the value.
pub(super) const VARIABLE: u8 = u8::MAX;
