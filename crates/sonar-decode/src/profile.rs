//! Documents of `system.profile`, of every version: as BSON (from a server, or a dump), as JSON, or as a shell
//! prints them.

use std::cell::{OnceCell, RefCell};

use sonar_core::{Identity, Reading};

use crate::bson::{Fed, Malformed, Skimmer};
use crate::entry::{Assembler, Entry, EntrySource, Extra, Sink};
use crate::shape::Text;
use crate::syntax::json::{self, Scratch};
use crate::syntax::relaxed;

/// A profile document as BSON.
#[derive(Copy, Clone, Debug)]
pub struct Document<'a>(pub &'a [u8]);

impl EntrySource for Document<'_> {
    type Error = Malformed;

    fn read<T: Text>(&self, entry: &mut Entry<T>) -> Result<(), Malformed> {
        match Skimmer::new().feed(self.0, self.0.len() as u64, entry)? {
            Fed::Done(_) => Ok(()),
            Fed::More(_) => Err(Malformed::End),
        }
    }

    fn cut_command(&self) -> Option<&[u8]> {
        // The skimmer passes over long strings; this one is as long as the server's limit.
        const MARK: &[u8] = b"\x02$truncated\0";
        let at = memchr::memmem::find(self.0, MARK).map(|at| at + MARK.len()).or_else(|| {
            // 3.4 and earlier: the command itself is the text.
            let marks: [&[u8]; 4] =
                [b"\x02command\0", b"\x02query\0", b"\x02originatingCommand\0", b"\x02updateobj\0"];
            let found = |mark: &&[u8]| memchr::memmem::find(self.0, mark).map(|at| at + mark.len());
            marks.iter().find_map(found)
        })?;
        let length = self.0.get(at..at + 4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))? as usize;
        self.0.get(at + 4..(at + 4).checked_add(length)?.checked_sub(1)?)
    }
}

/// A profile document that a shell or an export tool printed.
struct Printed<'a> {
    json: crate::log::JsonDocument<'a>,
    /// The shell left out a part of its command.
    left_out: bool,
}

impl EntrySource for Printed<'_> {
    type Error = json::Wrong;

    fn read<T: Text>(&self, entry: &mut Entry<T>) -> Result<(), json::Wrong> {
        self.json.read(entry)
    }

    fn cut_command(&self) -> Option<&[u8]> {
        self.json.cut_command()
    }

    fn doubt(&self) -> Option<Identity> {
        self.left_out.then_some(Identity::Partial)
    }
}

/// Reads profile documents one by one.
#[derive(Default)]
pub struct Profile {
    assembler: Assembler,
    documents: u64,
    malformed: u64,
    other: u64,
    scratch: Scratch,
    text: Vec<u8>,
}

impl Profile {
    /// A reader of what a server writes whose `rateLimit` says nothing of how many operations a document
    /// stands for: each counts once.
    pub fn without_rate_limit() -> Self {
        let mut profile = Self::default();
        profile.assembler.ignores_rate_limit = true;
        profile
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

    /// Reads one document; what is wrong with it is counted.
    pub fn document(&mut self, bson: &[u8], sink: &mut impl Sink) {
        self.documents += 1;
        match self.assembler.take(&Document(bson), &Extra::default(), sink) {
            Ok(told) => self.other += u64::from(!told),
            Err(_) => self.malformed += 1,
        }
    }

    /// Reads one document as JSON or as a shell prints it (see [`relaxed`]); what is wrong with it is counted.
    pub fn printed(&mut self, document: &[u8], sink: &mut impl Sink) {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        match relaxed::to_json(document, &mut text) {
            Ok(left_out) => {
                self.documents += 1;
                let scratch = RefCell::new(std::mem::take(&mut self.scratch));
                let json = crate::log::JsonDocument { line: &text, scratch: &scratch, cut: OnceCell::new() };
                match self.assembler.take(&Printed { json, left_out }, &Extra::default(), sink) {
                    Ok(told) => self.other += u64::from(!told),
                    Err(_) => self.malformed += 1,
                }
                self.scratch = scratch.into_inner();
            }
            Err(_) => self.broken(),
        }
        self.text = text;
    }

    /// Counts a document of which no more than its beginning could be found.
    pub fn broken(&mut self) {
        self.documents += 1;
        self.malformed += 1;
    }
}

/// Length of the BSON document that `bytes` begin with: `Ok(None)` when more bytes are needed.
///
/// # Errors
/// It is no document.
pub fn length(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(head) = bytes.first_chunk::<4>() else { return Ok(None) };
    let length = i32::from_le_bytes(*head);
    if length < 5 || length as u32 > crate::bson::MAX_DOCUMENT {
        return Err(Malformed::Length(length));
    }
    Ok(Some(length as usize))
}
