//! Documents of `system.profile`, of every version: as BSON (from a server, or a dump), as JSON, or as a shell
//! prints them.

use sonar_core::{Identity, Reading};

use crate::bson::{Fed, MalformedBson, Skimmer};
use crate::entry::{Completeness, Entry, EntryContext, EntrySink, Op, OperationAssembler, ParsedEntry};
use crate::log::read_document;
use crate::shape::Text;
use crate::syntax::printed;

/// Reads one document as BSON.
pub(crate) fn read_bson<T: Text>(document: &[u8], entry: &mut Entry<T>) -> Result<(), MalformedBson> {
    let Fed::Done(_) = Skimmer::new().feed(document, document.len() as u64, entry)? else {
        return Err(MalformedBson::End);
    };
    if entry.completeness == Completeness::Cut {
        entry.cut_command = cut_command(document).map(<[u8]>::to_vec);
    }
    Ok(())
}

/// The beginning of a command that was cut: a string as long as the server's limit, which the skimmer skips.
fn cut_command(document: &[u8]) -> Option<&[u8]> {
    const MARK: &[u8] = b"\x02$truncated\0";
    let behind = |mark: &[u8]| memchr::memmem::find(document, mark).map(|at| at + mark.len());
    // 3.4 and earlier: the command itself is the text.
    let marks: [&[u8]; 5] =
        [MARK, b"\x02command\0", b"\x02query\0", b"\x02originatingCommand\0", b"\x02updateobj\0"];
    let at = marks.into_iter().find_map(behind)?;
    let length = document.get(at..at + 4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))? as usize;
    document.get(at + 4..(at + 4).checked_add(length)?.checked_sub(1)?)
}

/// Reads profile documents one by one.
#[derive(Default)]
pub struct Profile {
    assembler: OperationAssembler,
    documents: u64,
    malformed: u64,
    other: u64,
    entry: Entry<()>,
    parsed: ParsedEntry,
    text: Vec<u8>,
}

impl Profile {
    /// A reader for servers that write a `rateLimit` but do not apply it: each document counts once.
    pub fn without_rate_limit() -> Self {
        let mut profile = Self::default();
        profile.assembler.ignores_rate_limit = true;
        profile
    }

    /// From now on, passes on the users and comments of operations, which clients chose.
    pub fn show_values(&mut self) {
        self.assembler.shows_values = true;
    }

    /// What was read.
    pub fn reading(&self) -> Reading {
        Reading {
            documents: self.documents,
            documents_malformed: self.malformed,
            documents_other: self.other,
            ..self.assembler.reading
        }
    }

    /// Reads one document; counts what is wrong with it.
    pub fn document(&mut self, bson: &[u8], sink: &mut impl EntrySink) {
        self.entry.reset();
        let is_read = read_bson(bson, &mut self.entry).is_ok();
        if !self.is_operation(is_read) {
            return;
        }
        let text = || {
            let mut entry = Entry::default();
            // It was readable before.
            let _ = read_bson(bson, &mut entry);
            entry.into_shape()
        };
        self.assembler.add(&self.parsed, &EntryContext::default(), text, sink);
    }

    /// Reads one document as JSON or as a shell prints it (see [`printed`]); counts what is wrong with it.
    pub fn printed(&mut self, document: &[u8], sink: &mut impl EntrySink) {
        self.text.clear();
        let Ok(lost) = printed::to_json(document, &mut self.text) else { return self.broken() };
        self.entry.reset();
        let is_read = read_document(&self.text, &mut self.entry).is_ok();
        self.entry.doubt = (lost.left_out || lost.types).then_some(Identity::Partial);
        if !self.is_operation(is_read) {
            return;
        }
        let text = || {
            let mut entry = Entry::default();
            // It was readable before.
            let _ = read_document(&self.text, &mut entry);
            entry.into_shape()
        };
        self.assembler.add(&self.parsed, &EntryContext::default(), text, sink);
    }

    /// Counts the document in `entry`. Returns whether it is an operation, which is in `parsed` then.
    fn is_operation(&mut self, is_read: bool) -> bool {
        self.documents += 1;
        let is_operation = is_read && self.entry.fields.op != Op::None;
        self.malformed += u64::from(!is_read);
        self.other += u64::from(is_read && !is_operation);
        if is_operation {
            self.parsed.take(&mut self.entry);
        }
        is_operation
    }

    /// Counts a document whose end could not be found.
    pub fn broken(&mut self) {
        self.documents += 1;
        self.malformed += 1;
    }
}

/// Length of the BSON document that `bytes` begin with: `Ok(None)` when more bytes are needed.
///
/// # Errors
/// It is no document.
pub fn length(bytes: &[u8]) -> Result<Option<usize>, MalformedBson> {
    let Some(head) = bytes.first_chunk::<4>() else { return Ok(None) };
    let length = i32::from_le_bytes(*head);
    if length < 5 || length as u32 > crate::bson::MAX_DOCUMENT {
        return Err(MalformedBson::Length(length));
    }
    Ok(Some(length as usize))
}
