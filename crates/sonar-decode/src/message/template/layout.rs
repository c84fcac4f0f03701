//! What the layout of a message consists of.

use crate::bson::{ElementKind, NumberSlot};

/// The most parts of a template.
pub(super) const MAX_PARTS: usize = 96;
/// The most bytes that a template compares.
pub(super) const MAX_LITERALS: usize = 1_024;
/// The most documents open at once in a request with a template.
pub(super) const MAX_OPEN: usize = 16;
/// The most elements of an array that are drawn one by one.
pub(super) const FEW: u32 = 8;
/// What follows bytes that are compared.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum TemplateAction {
    /// A value that begins with its length, at least this, and has this many bytes more.
    Counted { least: u8, more: u8 },
    /// A regular expression.
    Regex,
    /// A number or boolean that is zero, or is not.
    Truth { kind: ElementKind, nonzero: bool },
    /// A string that does not begin with `$`.
    Plain,
    /// A number that is read.
    Number { kind: ElementKind, slot: NumberSlot },
    /// An array of documents, which are counted.
    Batch,
    /// A document or array that is entered.
    Open,
    /// The end of one.
    Close,
    /// The rest of one, which is skipped.
    Leave,
    /// A document or array that is skipped.
    Pass,
    /// An array of one or more values that all have the placeholder with this number.
    List(u8),
    /// The size of a section of kind 1 that is entered.
    Section,
    /// The end of one.
    EndSection,
    /// Documents up to the end of the section, which ends with them.
    Documents,
    /// The end of the message, before this many bytes of checksum.
    End(u8),
}

/// Bytes to compare, and what follows them.
#[derive(Copy, Clone, Debug)]
pub(super) struct TemplatePart {
    /// How many bytes.
    pub(super) length: u16,
    /// In how many words they are compared.
    pub(super) words: u16,
    pub(super) action: TemplateAction,
}

/// Eight bytes to compare, and which of their bits.
#[derive(Copy, Clone, Debug)]
pub(super) struct Word {
    pub(super) literal: u64,
    pub(super) mask: u64,
}

/// Numbers read from a message of a known layout, by [`NumberSlot`].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotValues(pub(super) [Option<i64>; 4]);

impl SlotValues {
    /// The number of this slot, if the layout has it.
    #[inline]
    pub fn get(&self, slot: NumberSlot) -> Option<i64> {
        self.0[slot as usize]
    }
}

/// The length of the document (or section) at `at`; `None` if it is impossible, or the document is incomplete.
#[inline]
pub(super) fn document_at(body: &[u8], at: usize) -> Option<usize> {
    let rest = body.get(at..)?;
    let length = i32::from_le_bytes(*rest.first_chunk()?);
    let length = usize::try_from(length).ok()?;
    (length >= 5 && length <= rest.len()).then_some(length)
}
