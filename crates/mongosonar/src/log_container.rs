//! Files that hold log lines in the format of another program: a document or an array of them, a table (CSV), an archive
//! (tar). Each is read as if it were the lines alone.

use std::io::{self, Read};

use sonar_decode::log::{holds_lines, lines_of};
use sonar_decode::syntax::documents::{Documents, FoundDocument};

use crate::tar;

/// Bytes read at once.
const BLOCK: usize = 256 << 10;
/// Stands for a document that cannot be read: the reader counts it as a line that cannot be parsed.
const BROKEN: &[u8] = b"{\"t\":{\"$date\":\"\"},\"msg\":\n";
/// Stands for a document without a line: the reader counts it as a line of something else.
const FOREIGN: &[u8] = b"{}\n";
/// Columns that hold lines in tables of CloudWatch, Google Cloud, Splunk, Elasticsearch and others.
const COLUMNS: [&str; 9] =
    ["message", "@message", "log", "line", "_raw", "textpayload", "event.original", "body", "content"];

/// What holds the lines of a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LogContainer {
    /// A document, or an array of documents.
    Documents,
    /// An array of lines.
    Lines,
    /// A table, with the number of the column that has the lines.
    Table(usize),
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
        if let Some(column) = column(text) {
            return Some(Self::Table(column));
        }
        match text.first()? {
            b'[' if !holds_lines(text, reference_ms) => None,
            b'[' => {
                let is_of_texts = matches!(text[1..].trim_ascii_start().first(), Some(b'"' | b'\''));
                Some(if is_of_texts { Self::Lines } else { Self::Documents })
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
            Self::Table(column) => Box::new(TableLines::new(input, column)),
            Self::Tar => Box::new(tar::Concatenated::new(input, is_log)),
        }
    }
}

/// The number of the column with the lines, by the first line of a table.
fn column(text: &[u8]) -> Option<usize> {
    let line = text.split(|byte| *byte == b'\n').next()?.trim_ascii_end();
    let line = std::str::from_utf8(line).ok().filter(|line| line.len() < 4_096)?;
    let names: Vec<String> =
        line.split(',').map(|name| name.trim().trim_matches('"').to_ascii_lowercase()).collect();
    COLUMNS.iter().find_map(|wanted| names.iter().position(|name| name == wanted))
}

/// What was made and not yet handed out.
#[derive(Default)]
struct Ready {
    bytes: Vec<u8>,
    at: usize,
}

impl Ready {
    fn hand_out(&mut self, buffer: &mut [u8]) -> usize {
        let rest = &self.bytes[self.at..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        if self.at == self.bytes.len() {
            self.bytes.clear();
            self.at = 0;
        }
        count
    }
}

/// The lines in documents.
struct DocumentLines {
    input: Box<dyn Read>,
    reference_ms: i64,
    documents: Documents,
    block: Vec<u8>,
    ready: Ready,
    is_over: bool,
}

impl DocumentLines {
    fn new(input: Box<dyn Read>, reference_ms: i64) -> Self {
        let (documents, block, ready) = (Documents::default(), vec![0; BLOCK], Ready::default());
        Self { input, reference_ms, documents, block, ready, is_over: false }
    }
}

impl Read for DocumentLines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.ready.bytes.is_empty() && !self.is_over {
            let got = self.input.read(&mut self.block)?;
            let out = &mut self.ready.bytes;
            if got == 0 {
                self.is_over = true;
                if self.documents.is_cut() {
                    // Without its line feed it is a line that has not been written to its end.
                    out.extend_from_slice(BROKEN.trim_ascii_end());
                }
            }
            let mut rest = &self.block[..got];
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

/// The lines in a column of a table (RFC 4180).
struct TableLines {
    input: Box<dyn Read>,
    wanted: usize,
    block: Vec<u8>,
    ready: Ready,
    column: usize,
    /// The first line has the names of the columns.
    is_heading: bool,
    is_quoted: bool,
    /// The byte before was a quotation mark inside a quoted field: its end, or the first of two.
    is_after_quote: bool,
    field: Vec<u8>,
    is_over: bool,
}

impl TableLines {
    fn new(input: Box<dyn Read>, wanted: usize) -> Self {
        Self {
            input,
            wanted,
            block: vec![0; BLOCK],
            ready: Ready::default(),
            column: 0,
            is_heading: true,
            is_quoted: false,
            is_after_quote: false,
            field: Vec::new(),
            is_over: false,
        }
    }

    fn byte(&mut self, byte: u8) {
        match byte {
            b'"' if self.is_quoted && !self.is_after_quote => self.is_after_quote = true,
            b'"' if self.is_after_quote => {
                self.is_after_quote = false;
                self.keep(byte);
            }
            b'"' if self.field.is_empty() && !self.is_quoted => self.is_quoted = true,
            b',' if !self.is_quoted || self.is_after_quote => {
                self.end_field();
                self.column += 1;
            }
            b'\n' if !self.is_quoted || self.is_after_quote => {
                self.end_field();
                self.column = 0;
                self.is_heading = false;
            }
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.column == self.wanted && self.field.len() < sonar_decode::syntax::documents::MAX_DOCUMENT {
            self.field.push(byte);
        }
    }

    fn end_field(&mut self) {
        (self.is_quoted, self.is_after_quote) = (false, false);
        let field = std::mem::take(&mut self.field);
        if self.column != self.wanted || self.is_heading {
            return;
        }
        for line in field.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
            self.ready.bytes.extend_from_slice(b"| ");
            self.ready.bytes.extend_from_slice(line);
            self.ready.bytes.push(b'\n');
        }
    }
}

impl Read for TableLines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.ready.bytes.is_empty() && !self.is_over {
            let got = self.input.read(&mut self.block)?;
            let block = std::mem::take(&mut self.block);
            block[..got].iter().for_each(|byte| self.byte(*byte));
            self.block = block;
            if got == 0 {
                self.is_over = true;
                let is_cut = self.is_quoted && !self.is_after_quote;
                self.end_field();
                if is_cut {
                    self.ready.bytes.extend_from_slice(BROKEN.trim_ascii_end());
                }
            }
        }
        Ok(self.ready.hand_out(buffer))
    }
}
