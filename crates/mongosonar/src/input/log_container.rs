//! Files that hold log lines in the format of another program: a document or an array of them, a table (CSV), an archive
//! (tar). Each is read as if it were the lines alone.

use std::io::{self, Read};

use sonar_decode::log::{holds_lines, lines_of};
use sonar_decode::syntax::documents::{Documents, FoundDocument};

use crate::input::journal_export::{self, ExportLines};
use crate::input::made_lines::{BROKEN, FOREIGN, MadeLines};
use crate::input::table_lines::{TableLayout, TableLines};
use crate::input::tar;

/// Bytes read at once.
const BLOCK: usize = 256 << 10;

/// What holds the lines of a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LogContainer {
    /// A document, or an array of documents.
    Documents,
    /// An array of lines.
    Lines,
    /// A table.
    Table(TableLayout),
    /// An exported journal of systemd.
    Journal,
    /// An archive of files.
    Tar,
}

impl LogContainer {
    /// What holds the lines of a file that begins with `head`; `None` if it consists of lines.
    pub fn of(head: &[u8], reference_ms: i64) -> Option<Self> {
        if tar::is_tar(head) {
            return Some(Self::Tar);
        }
        let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
        if journal_export::is_export(text) {
            return Some(Self::Journal);
        }
        if let Some(layout) = TableLayout::of(text) {
            return Some(Self::Table(layout));
        }
        match text.first()? {
            b'[' => {
                let container = match text[1..].trim_ascii_start().first()? {
                    b'"' | b'\'' => Self::Lines,
                    b'{' | b'[' => Self::Documents,
                    // The prefix of another program: `[pod/mongo-0/mongod] `.
                    _ => return None,
                };
                (holds_lines(text, reference_ms) || first_holds_lines(text, reference_ms))
                    .then_some(container)
            }
            b'{' => Self::of_object(text, reference_ms),
            _ => None,
        }
    }

    /// Of a file that begins with an object: lines that are objects are read line by line, and so are objects over
    /// several lines that hold one log line each.
    fn of_object(text: &[u8], reference_ms: i64) -> Option<Self> {
        let (mut documents, mut rest) = (Documents::default(), text);
        let holds_many = match documents.next(&mut rest) {
            Some(FoundDocument::Document(document)) => lines_of(document, reference_ms, &mut Vec::new()) > 1,
            Some(FoundDocument::Broken) => false,
            // It is longer than what was looked at.
            None => !text.starts_with(b"{\"t\":{\"$date\"") && holds_lines(&text[1..], reference_ms),
        };
        holds_many.then_some(Self::Documents)
    }

    /// The lines of a file that is read from `input`. Of an archive those of the files of which `is_log` is true, given
    /// their first bytes.
    pub fn lines(self, input: Box<dyn Read>, reference_ms: i64, is_log: fn(&[u8]) -> bool) -> Box<dyn Read> {
        match self {
            Self::Documents => Box::new(DocumentLines::new(input, reference_ms)),
            Self::Lines => {
                let object = io::Cursor::new(b"{\"log\":").chain(input).chain(io::Cursor::new(b"}"));
                Box::new(DocumentLines::new(Box::new(object), reference_ms))
            }
            Self::Table(layout) => Box::new(TableLines::new(input, layout)),
            Self::Journal => Box::new(ExportLines::new(input)),
            Self::Tar => Box::new(tar::Concatenated::new(input, is_log)),
        }
    }
}

/// Whether the first document of a text holds lines, also such as must be put together.
fn first_holds_lines(text: &[u8], reference_ms: i64) -> bool {
    let (mut documents, mut rest) = (Documents::default(), text);
    match documents.next(&mut rest) {
        Some(FoundDocument::Document(document)) => lines_of(document, reference_ms, &mut Vec::new()) > 0,
        _ => false,
    }
}

/// The lines in documents.
struct DocumentLines {
    input: Box<dyn Read>,
    reference_ms: i64,
    documents: Documents,
    block: Vec<u8>,
    ready: MadeLines,
    is_over: bool,
}

impl DocumentLines {
    fn new(input: Box<dyn Read>, reference_ms: i64) -> Self {
        let (documents, block, ready) = (Documents::default(), vec![0; BLOCK], MadeLines::default());
        Self { input, reference_ms, documents, block, ready, is_over: false }
    }
}

impl Read for DocumentLines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.ready.bytes.is_empty() && !self.is_over {
            let got = self.input.read(&mut self.block)?;
            if got == 0 {
                self.is_over = true;
                if self.documents.is_cut() {
                    self.ready.add_cut();
                }
            }
            let (mut rest, out) = (&self.block[..got], &mut self.ready.bytes);
            while let Some(found) = self.documents.next(&mut rest) {
                match found {
                    FoundDocument::Document(document) => {
                        if lines_of(document, self.reference_ms, out) == 0 {
                            out.extend_from_slice(FOREIGN);
                        }
                    }
                    FoundDocument::Broken => out.extend_from_slice(BROKEN),
                }
            }
        }
        Ok(self.ready.hand_out(buffer))
    }
}
