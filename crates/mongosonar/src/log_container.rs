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
const COLUMNS: [&str; 12] = [
    "message",
    "@message",
    "log",
    "line",
    "_raw",
    "textpayload",
    "event.original",
    "body",
    "content",
    "_source.message",
    "logentry",
    "logmessage",
];
/// What separates the columns of a table. Spreadsheets use the semicolon where the comma is the decimal sign.
const SEPARATORS: [char; 3] = [',', ';', '\t'];

/// The column of a table that has the lines.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TableColumn {
    number: usize,
    separator: u8,
}

/// What holds the lines of a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LogContainer {
    /// A document, or an array of documents.
    Documents,
    /// An array of lines.
    Lines,
    /// A table.
    Table(TableColumn),
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
            b'[' => {
                let container = match text[1..].trim_ascii_start().first()? {
                    b'"' | b'\'' => Self::Lines,
                    b'{' | b'[' => Self::Documents,
                    // The prefix of another program: `[pod/mongo-0/mongod] `.
                    _ => return None,
                };
                holds_lines(text, reference_ms).then_some(container)
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

/// The column with the lines, by the first line of a table.
fn column(text: &[u8]) -> Option<TableColumn> {
    let line = text.split(|byte| *byte == b'\n').next()?.trim_ascii_end();
    // Each line of a server has one of these, and a value in it may be called like a column.
    let is_heading = |line: &String| line.len() < 4_096 && !line.contains(['{', '[']);
    // Azure names the zone of a column of times.
    let line =
        std::str::from_utf8(line).ok().map(|line| line.replacen(" [UTC]", "", 4)).filter(is_heading)?;
    SEPARATORS.iter().find_map(|separator| {
        let names: Vec<String> =
            line.split(*separator).map(|name| name.trim().trim_matches('"').to_ascii_lowercase()).collect();
        let number = COLUMNS.iter().find_map(|wanted| names.iter().position(|name| name == wanted))?;
        Some(TableColumn { number, separator: *separator as u8 })
    })
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
    wanted: TableColumn,
    block: Vec<u8>,
    ready: Ready,
    column: usize,
    /// The first line has the names of the columns.
    is_heading: bool,
    is_quoted: bool,
    /// Nothing of the field has been read: a quotation mark in its middle is one of its characters.
    is_at_start: bool,
    /// The byte before was a quotation mark inside a quoted field: its end, or the first of two.
    is_after_quote: bool,
    field: Vec<u8>,
    is_over: bool,
}

impl TableLines {
    fn new(input: Box<dyn Read>, wanted: TableColumn) -> Self {
        Self {
            input,
            wanted,
            block: vec![0; BLOCK],
            ready: Ready::default(),
            column: 0,
            is_heading: true,
            is_quoted: false,
            is_at_start: true,
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
            b'"' if self.is_at_start => (self.is_quoted, self.is_at_start) = (true, false),
            _ if byte == self.wanted.separator && (!self.is_quoted || self.is_after_quote) => {
                self.end_field();
                self.column += 1;
                self.is_at_start = true;
            }
            b'\n' if !self.is_quoted || self.is_after_quote => {
                self.end_field();
                self.column = 0;
                self.is_heading = false;
                self.is_at_start = true;
            }
            _ => {
                self.is_at_start = false;
                self.keep(byte);
            }
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.column == self.wanted.number
            && self.field.len() < sonar_decode::syntax::documents::MAX_DOCUMENT
        {
            self.field.push(byte);
        }
    }

    fn end_field(&mut self) {
        (self.is_quoted, self.is_after_quote) = (false, false);
        let field = std::mem::take(&mut self.field);
        if self.column != self.wanted.number || self.is_heading {
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
