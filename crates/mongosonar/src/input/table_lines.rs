//! The log lines in a column of a table (CSV, RFC 4180). The heading and the rows may be separated by different
//! characters, because one of them was written or changed by another program.

use std::io::{self, Read};

use sonar_decode::syntax::documents::MAX_DOCUMENT;

use crate::input::made_lines::{BROKEN, FOREIGN, MadeLines};

/// Bytes read at once.
const BLOCK: usize = 256 << 10;
/// The longest heading, in bytes.
const MAX_HEADING: usize = 4_096;
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
/// What separates the columns of a table, or of a row. Spreadsheets use the semicolon where the comma is the decimal sign;
/// a table of one column has none.
const SEPARATORS: [&[u8]; 5] = [b"", b",", b";", b"\t", b",;\t"];

/// Which column has the lines, if the heading is separated in one way.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct TableHeading {
    separators: &'static [u8],
    /// The number of the column.
    number: usize,
    /// How many there are.
    columns: usize,
}

/// How a table may be divided into columns.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TableLayout {
    /// The heading, by each way to separate it in which there is such a column; the first is the likely one.
    headings: [Option<TableHeading>; SEPARATORS.len()],
    /// `sep=;` stands before the heading, as Excel writes it.
    has_hint: bool,
}

impl TableLayout {
    /// Of a file that begins with this text; `None`: it is no table with a column of lines.
    pub fn of(text: &[u8]) -> Option<Self> {
        let (first, rest) = first_line(text);
        let hint = first.strip_prefix(b"sep=").and_then(|hint| hint.first().copied());
        let (line, _) = if hint.is_some() { first_line(rest) } else { (first, rest) };
        // Each line of a server has one of these, and a value in it may be called like a column.
        if line.len() >= MAX_HEADING
            || line.iter().any(|byte| matches!(byte, b'{' | b'[')) && !is_of_azure(line)
        {
            return None;
        }
        let mut found: Vec<TableHeading> =
            SEPARATORS.iter().filter_map(|separators| TableHeading::of(line, separators)).collect();
        // A text of one word is no table.
        found.retain(|heading| heading.columns > 1 || heading.separators.is_empty());
        found.sort_by_key(|heading| hint.is_none_or(|hint| heading.separators != [hint]));
        let mut headings = [None; SEPARATORS.len()];
        headings.iter_mut().zip(&found).for_each(|(to, heading)| *to = Some(*heading));
        found.first().map(|_| Self { headings, has_hint: hint.is_some() })
    }

    fn likely(&self) -> &'static [u8] {
        self.headings[0].map_or(b",", |heading| heading.separators)
    }

    /// The field of a row with the lines; `None`: it is not clear which one that is.
    fn field(&self, row: &[u8]) -> Option<Vec<u8>> {
        // A row in which quotation marks stand around whole fields is separated in this way; then one with the heading.
        let found = [true, false].into_iter().find_map(|is_clean| {
            let own = self
                .headings
                .iter()
                .flatten()
                .find_map(|heading| heading.field_in(&fields(row, heading.separators), is_clean));
            own.or_else(|| {
                SEPARATORS.iter().find_map(|separators| {
                    let fields = fields(row, separators);
                    self.headings.iter().flatten().find_map(|heading| heading.field_in(&fields, is_clean))
                })
            })
        });
        let likely = || {
            let heading = self.headings[0]?;
            fields(row, heading.separators).get(heading.number).copied()
        };
        found.or_else(likely).map(unquoted)
    }

    /// Whether a row that goes on in the next line, if the columns are separated as is likely, is whole if they are not.
    fn is_whole_otherwise(&self, row: &[u8]) -> bool {
        SEPARATORS.iter().filter(|separators| !separators.is_empty()).any(|separators| {
            let fields = fields(row, separators);
            self.headings.iter().flatten().any(|heading| heading.field_in(&fields, true).is_some())
        })
    }
}

impl TableHeading {
    fn of(line: &[u8], separators: &'static [u8]) -> Option<Self> {
        let names: Vec<String> = fields(line, separators)
            .into_iter()
            .map(|name| {
                let name = String::from_utf8_lossy(&unquoted(name)).trim().to_ascii_lowercase();
                // Azure names the zone of a column of times.
                name.strip_suffix(" [utc]").map(str::to_owned).unwrap_or(name)
            })
            .collect();
        let number = COLUMNS.iter().find_map(|wanted| names.iter().position(|name| name == wanted))?;
        Some(Self { separators, number, columns: names.len() })
    }

    /// The field of a row with the lines, if there are as many as columns. `is_clean`: and quotation marks stand around
    /// whole fields only.
    fn field_in<'a>(&self, fields: &[&'a [u8]], is_clean: bool) -> Option<&'a [u8]> {
        let fits =
            fields.len() == self.columns && (!is_clean || fields.iter().all(|field| is_clean_field(field)));
        fits.then(|| fields[self.number])
    }
}

/// Whether a field has no quotation marks, or is whole inside them.
fn is_clean_field(field: &[u8]) -> bool {
    let Some(inside) = field.trim_ascii_end().strip_prefix(b"\"") else { return !field.contains(&b'"') };
    let Some(inside) = inside.strip_suffix(b"\"") else { return false };
    let mut quotes = inside.iter();
    while quotes.any(|byte| *byte == b'"') {
        if quotes.next() != Some(&b'"') {
            return false;
        }
    }
    true
}

/// Whether the only brackets of a heading are those of Azure.
fn is_of_azure(line: &[u8]) -> bool {
    let brackets = line.iter().filter(|byte| matches!(byte, b'{' | b'[')).count();
    memchr::memmem::find_iter(line, b" [UTC]").count() == brackets
}

/// The first line, without its end, and what follows.
fn first_line(text: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr::memchr(b'\n', text).unwrap_or(text.len());
    (text[..end].trim_ascii_end(), text.get(end + 1..).unwrap_or_default())
}

/// Where quoted fields begin and end.
#[derive(Clone, Debug)]
struct QuoteState {
    separators: &'static [u8],
    is_quoted: bool,
    /// Nothing of the field has been read: a quotation mark in its middle is one of its characters.
    is_at_start: bool,
    /// The byte before was a quotation mark inside a quoted field: its end, or the first of two.
    is_after_quote: bool,
}

impl QuoteState {
    fn new(separators: &'static [u8]) -> Self {
        Self { separators, is_quoted: false, is_at_start: true, is_after_quote: false }
    }

    /// Whether a line feed here is one of the field.
    fn is_inside(&self) -> bool {
        self.is_quoted && !self.is_after_quote
    }

    /// Whether this byte ends a field.
    fn byte(&mut self, byte: u8) -> bool {
        match byte {
            b'"' if self.is_inside() => self.is_after_quote = true,
            b'"' if self.is_after_quote => self.is_after_quote = false,
            b'"' if self.is_at_start => (self.is_quoted, self.is_at_start) = (true, false),
            _ if self.separators.contains(&byte) && !self.is_inside() => {
                *self = Self::new(self.separators);
                return true;
            }
            _ => self.is_at_start = false,
        }
        false
    }
}

/// The fields of a row, as they are written.
fn fields<'a>(row: &'a [u8], separators: &'static [u8]) -> Vec<&'a [u8]> {
    let (mut quotes, mut begin, mut fields) = (QuoteState::new(separators), 0, Vec::new());
    for (at, byte) in row.iter().enumerate() {
        if quotes.byte(*byte) {
            fields.push(&row[begin..at]);
            begin = at + 1;
        }
    }
    fields.push(&row[begin..]);
    fields
}

/// A field without its quotation marks.
fn unquoted(field: &[u8]) -> Vec<u8> {
    let Some(inside) = field.strip_prefix(b"\"") else { return field.to_vec() };
    let (mut text, mut is_after_quote) = (Vec::with_capacity(inside.len()), false);
    for byte in inside {
        let is_quote = *byte == b'"' && !is_after_quote;
        if !is_quote {
            text.push(*byte);
        }
        is_after_quote = is_quote;
    }
    text
}

/// The lines in a column of a table.
pub struct TableLines {
    input: Box<dyn Read>,
    layout: TableLayout,
    block: Vec<u8>,
    ready: MadeLines,
    /// Lines before the first row.
    before: usize,
    /// The row so far.
    row: Vec<u8>,
    quotes: QuoteState,
    /// The row has line feeds.
    has_lines: bool,
    is_too_long: bool,
    is_over: bool,
}

impl TableLines {
    /// Of a table that is read from `input`.
    pub fn new(input: Box<dyn Read>, layout: TableLayout) -> Self {
        Self {
            input,
            layout,
            block: vec![0; BLOCK],
            ready: MadeLines::default(),
            before: 1 + usize::from(layout.has_hint),
            row: Vec::new(),
            quotes: QuoteState::new(layout.likely()),
            has_lines: false,
            is_too_long: false,
            is_over: false,
        }
    }

    /// Adds bytes of one line to the row.
    fn add(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| _ = self.quotes.byte(*byte));
        if self.row.len() + bytes.len() > MAX_DOCUMENT {
            self.is_too_long = true;
        } else {
            self.row.extend_from_slice(bytes);
        }
    }

    /// A line has ended, and with it perhaps the row.
    fn end_line(&mut self) {
        let is_first = !std::mem::replace(&mut self.has_lines, true);
        if self.quotes.is_inside() && !(is_first && self.layout.is_whole_otherwise(&self.row)) {
            self.add(b"\n");
        } else {
            self.end_row();
        }
    }

    fn end_row(&mut self) {
        self.quotes = QuoteState::new(self.layout.likely());
        self.has_lines = false;
        let row = std::mem::take(&mut self.row);
        let is_too_long = std::mem::take(&mut self.is_too_long);
        if self.before > 0 {
            self.before -= 1;
        } else if is_too_long {
            self.ready.bytes.extend_from_slice(BROKEN);
        } else if !row.trim_ascii().is_empty() {
            match self.layout.field(&row) {
                Some(field) => self.ready.add_text(&field),
                None => self.ready.bytes.extend_from_slice(FOREIGN),
            }
        }
    }
}

impl Read for TableLines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.ready.bytes.is_empty() && !self.is_over {
            let got = self.input.read(&mut self.block)?;
            let block = std::mem::take(&mut self.block);
            let mut rest = &block[..got];
            while let Some(end) = memchr::memchr(b'\n', rest) {
                self.add(&rest[..end]);
                self.end_line();
                rest = &rest[end + 1..];
            }
            self.add(rest);
            self.block = block;
            if got == 0 {
                self.is_over = true;
                let is_cut = self.quotes.is_inside() && !self.layout.is_whole_otherwise(&self.row);
                self.end_row();
                if is_cut {
                    self.ready.add_cut();
                }
            }
        }
        Ok(self.ready.hand_out(buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a table.
    fn lines(table: &str) -> String {
        let layout = TableLayout::of(table.as_bytes()).unwrap();
        let mut text = String::new();
        let input = io::Cursor::new(table.as_bytes().to_vec());
        TableLines::new(Box::new(input), layout).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn lines_are_found_whatever_separates_columns() {
        for table in [
            "time,message\n1,\"a;b \"\"c\"\", d\"\n",
            "time;message\n1;\"a;b \"\"c\"\", d\"\n",
            "time\tmessage\r\n1\t\"a;b \"\"c\"\", d\"\r\n",
            // The heading or the rows were changed by a spreadsheet.
            "time,message\n1;\"a;b \"\"c\"\", d\"\n",
            "time;message\n1,\"a;b \"\"c\"\", d\"\n",
            "time;host,message\n1;x,\"a;b \"\"c\"\", d\"\n",
            "time;host,message\n1,x;\"a;b \"\"c\"\", d\"\n",
            // A name, or a value, has the other one.
            "\"time, UTC\";\"message\"\n1;\"a;b \"\"c\"\", d\"\n",
            "\"time; UTC\",message\n\"1;2\",\"a;b \"\"c\"\", d\"\n",
            "time,host,message\n1,\"x;y\",\"a;b \"\"c\"\", d\"\n",
            "sep=;\ntime;message\n1;\"a;b \"\"c\"\", d\"\n",
            "sep=,\r\nmessage,time\r\n\"a;b \"\"c\"\", d\",1\r\n",
            "message\n\"a;b \"\"c\"\", d\"\n",
        ] {
            assert_eq!(lines(table).trim_end(), "| a;b \"c\", d", "{table}");
        }
        assert_eq!(lines("n;message\n1;a, b\n\n2;\"two\nlines\"\n"), "| a, b\n| two\n| lines\n");
        assert_eq!(lines("message\na, b; c\n"), "| a, b; c\n");
        assert_eq!(lines("n,host,message\n1\n"), "{}\n");
        for text in ["time,host\n1,x\n", "a message\n", "", "{\"message\": 1}\n"] {
            assert_eq!(TableLayout::of(text.as_bytes()), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "(sep=[,;]\n)?[a,;\"\t]{0,6}message[,;\"\t]{0,3}\n([a,;\"\n]{0,40})") {
            if let Some(layout) = TableLayout::of(text.as_bytes()) {
                let input = io::Cursor::new(text.into_bytes());
                io::copy(&mut TableLines::new(Box::new(input), layout), &mut io::sink()).unwrap();
            }
        }
    }
}
