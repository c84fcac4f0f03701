//! Finds the documents in the output of a shell or an export tool: one per line, pretty-printed, or in arrays, with
//! prompts, comments and `Type "it" for more` between them. The text may come in pieces of any size; only one
//! document is kept at a time.

/// The longest document that is kept, in bytes. A document of 16 MiB is shorter than this as text.
pub const MAX_DOCUMENT: usize = 64 << 20;
/// The deepest nesting that is followed.
const MAX_NESTING: usize = 512;

/// A document that was found.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum FoundDocument<'a> {
    /// A document with balanced brackets, from its `{` to its `}`.
    Document(&'a [u8]),
    /// The beginning of one that does not end, or is too long or too deep.
    Broken,
}

/// How a document ended.
#[derive(Copy, Clone)]
enum DocumentEnd {
    Whole,
    Broken,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum ScanState {
    /// Between documents.
    #[default]
    Between,
    /// In a line with something else. Set: its last bytes are the `> ` of a prompt.
    Line(bool),
    /// After a `[` between documents: it may begin an array of documents, a prompt, or another list.
    Bracket,
    /// In a document.
    Inside,
    /// In a string that ends with this quote. Set: after a backslash.
    Text(u8, bool),
    /// After a slash, which begins a comment or a regular expression.
    Slash,
    /// In a regular expression. The first: in a class (`[…]`); the second: after a backslash.
    Regex(bool, bool),
    /// In a comment. Set: after an asterisk.
    Comment(bool),
    /// After an error, until a document begins at the margin.
    Lost,
}

/// Finds documents; keeps its position in the text.
#[derive(Default, Debug)]
pub struct Documents {
    state: ScanState,
    /// The document so far.
    buffer: Vec<u8>,
    /// Brackets that are open in it.
    open: Vec<u8>,
    /// Arrays that are open around documents.
    arrays: usize,
    /// The last byte of the document that is not white space.
    last: u8,
    /// Bytes since the beginning of the line; `None` after one that is not white space.
    column: Option<usize>,
    /// The column in which the document began, or 0.
    margin: usize,
    /// The document is longer than [`MAX_DOCUMENT`].
    too_long: bool,
}

impl Documents {
    /// Reads `bytes` up to the end of the next document, and leaves the rest in `bytes`; `None`: no document ends in
    /// them.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Option<FoundDocument<'_>> {
        while let Some((&byte, rest)) = bytes.split_first() {
            if let ScanState::Text(quote, false) = self.state {
                // Most of a document is in its strings.
                let plain = memchr::memchr3(quote, b'\\', b'\n', bytes).unwrap_or(bytes.len());
                if plain > 0 {
                    self.keep(&bytes[..plain]);
                    *bytes = &bytes[plain..];
                    continue;
                }
            }
            *bytes = rest;
            let end = self.byte(byte);
            if byte == b'\n' {
                self.column = Some(0);
            } else if let Some(column) = self.column {
                self.column = matches!(byte, b' ' | b'\t' | b'\r').then_some(column + 1);
            }
            match end {
                Some(DocumentEnd::Whole) => return Some(FoundDocument::Document(&self.buffer)),
                Some(DocumentEnd::Broken) => return Some(FoundDocument::Broken),
                None => {}
            }
        }
        None
    }

    /// Whether the text ends inside a document, or inside the array that holds them.
    pub fn is_cut(&self) -> bool {
        self.arrays > 0 || !self.open.is_empty() || matches!(self.state, ScanState::Lost | ScanState::Bracket)
    }

    /// The beginning of the document that has not ended; empty if there is none.
    pub fn unfinished(&self) -> &[u8] {
        if self.open.is_empty() { &[] } else { &self.buffer }
    }

    fn byte(&mut self, byte: u8) -> Option<DocumentEnd> {
        match self.state {
            ScanState::Between | ScanState::Line(_) => self.between(byte),
            ScanState::Bracket => match byte {
                b' ' | b'\t' | b'\r' | b'\n' => {}
                b'{' => {
                    self.arrays += 1;
                    self.begin();
                }
                // Stays here for the inner one.
                b'[' => self.arrays += 1,
                b']' => self.state = ScanState::Between,
                _ => self.state = ScanState::Line(false),
            },
            ScanState::Lost => {
                if byte == b'{' && self.is_at_margin() {
                    self.begin();
                }
            }
            ScanState::Inside => return self.inside(byte),
            ScanState::Text(quote, escaped) => {
                if byte == b'\n' && !escaped && quote != b'`' {
                    // No tool writes a bare line feed into a string: its document was cut.
                    return self.give_up();
                }
                self.keep(&[byte]);
                self.state = if byte == quote && !escaped {
                    ScanState::Inside
                } else {
                    ScanState::Text(quote, byte == b'\\' && !escaped)
                };
            }
            ScanState::Slash => match byte {
                b'*' => {
                    self.buffer.pop();
                    self.state = ScanState::Comment(false);
                }
                _ => {
                    self.state = ScanState::Regex(false, false);
                    return self.byte(byte);
                }
            },
            ScanState::Regex(class, escaped) => {
                if byte == b'\n' {
                    return self.give_up();
                }
                self.keep(&[byte]);
                self.state = match byte {
                    _ if escaped => ScanState::Regex(class, false),
                    b'\\' => ScanState::Regex(class, true),
                    b'[' => ScanState::Regex(true, false),
                    b']' => ScanState::Regex(false, false),
                    b'/' if !class => ScanState::Inside,
                    _ => ScanState::Regex(class, false),
                };
            }
            ScanState::Comment(star) => {
                self.state = match byte {
                    b'/' if star && self.open.is_empty() => ScanState::Between,
                    b'/' if star => ScanState::Inside,
                    _ => ScanState::Comment(byte == b'*'),
                };
            }
        }
        None
    }

    fn between(&mut self, byte: u8) {
        let in_line = match self.state {
            ScanState::Line(prompt) => Some(prompt),
            _ => None,
        };
        match (byte, in_line) {
            (b'\n', _) => self.state = ScanState::Between,
            (b'{', None | Some(true)) => self.begin(),
            (b'[', None | Some(true)) => self.state = ScanState::Bracket,
            (b']', None) => self.arrays = self.arrays.saturating_sub(1),
            // White space, what stands between documents, and a byte order mark.
            (b' ' | b'\t' | b'\r' | b',' | b';' | 0xef | 0xbb | 0xbf, None) => {}
            (b' ', Some(_)) => {}
            (b'>', _) => self.state = ScanState::Line(true),
            (b'*', None) if self.last == b'/' => self.state = ScanState::Comment(false),
            (b'/', None) => {}
            _ => self.state = ScanState::Line(false),
        }
        self.last = byte;
    }

    fn inside(&mut self, byte: u8) -> Option<DocumentEnd> {
        if byte == b'{' && self.is_at_margin() && !self.may_stand() {
            self.begin();
            return Some(DocumentEnd::Broken);
        }
        self.keep(&[byte]);
        match byte {
            b'{' | b'[' | b'(' => {
                if self.open.len() >= MAX_NESTING {
                    return self.give_up();
                }
                self.open.push(byte);
            }
            b'}' | b']' | b')' => {
                let opened = match byte {
                    b'}' => b'{',
                    b']' => b'[',
                    _ => b'(',
                };
                if self.open.pop() != Some(opened) {
                    return self.give_up();
                }
                if self.open.is_empty() {
                    // The document stays where it is until the next one begins.
                    (self.state, self.last) = (ScanState::Between, 0);
                    return Some(if self.too_long { DocumentEnd::Broken } else { DocumentEnd::Whole });
                }
            }
            b'"' | b'\'' | b'`' => self.state = ScanState::Text(byte, false),
            b'/' => self.state = ScanState::Slash,
            b' ' | b'\t' | b'\r' | b'\n' => return None,
            _ => {}
        }
        self.last = byte;
        None
    }

    /// Whether the open document may contain another one here.
    fn may_stand(&self) -> bool {
        matches!((self.open.last(), self.last), (_, b':' | b'[' | b'(') | (Some(b'[' | b'('), b','))
    }

    fn is_at_margin(&self) -> bool {
        self.column.is_some_and(|column| column <= self.margin)
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.too_long || self.buffer.len() + bytes.len() > MAX_DOCUMENT {
            self.too_long = true;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
    }

    fn begin(&mut self) {
        self.reset(ScanState::Inside);
        self.margin = self.column.unwrap_or(0);
        self.buffer.push(b'{');
        self.open.push(b'{');
        self.last = b'{';
    }

    fn give_up(&mut self) -> Option<DocumentEnd> {
        self.reset(ScanState::Lost);
        Some(DocumentEnd::Broken)
    }

    fn reset(&mut self, state: ScanState) {
        self.state = state;
        self.buffer.clear();
        self.open.clear();
        self.too_long = false;
        self.last = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(text: &str, step: usize) -> (Vec<String>, usize, bool) {
        let (mut documents, mut found, mut broken) = (Documents::default(), Vec::new(), 0);
        for mut piece in text.as_bytes().chunks(step) {
            while let Some(one) = documents.next(&mut piece) {
                match one {
                    FoundDocument::Document(bytes) => found.push(String::from_utf8_lossy(bytes).into_owned()),
                    FoundDocument::Broken => broken += 1,
                }
            }
        }
        (found, broken, documents.is_cut())
    }

    #[test]
    fn documents_are_found_in_any_surroundings() {
        let cases: [(&str, &[&str], bool); 18] = [
            ("{\"a\":1}\n{\"a\":2}\n", &["{\"a\":1}", "{\"a\":2}"], false),
            ("[{\"a\":1},\n{\"a\":2}]\n", &["{\"a\":1}", "{\"a\":2}"], false),
            (
                "[\n  {\n    a: 'x}',\n  },\n  { a: /}\\/[/}]/i }\n]\n",
                &["{\n    a: 'x}',\n  }", "{ a: /}\\/[/}]/i }"],
                false,
            ),
            (
                "shop> db.system.profile.find({ millis: { $gt: 3 } })\n[ { a: 1 } ]\nType \"it\" for more\nshop> it\n[ { a: 2 } ]\n",
                &["{ a: 1 }", "{ a: 2 }"],
                false,
            ),
            ("rs0 [direct: primary] shop> { a: 1 }\n", &["{ a: 1 }"], false),
            ("/* 1 */\n{ a: 1 }\n\n/* 2 */ { a: 2 }\n", &["{ a: 1 }", "{ a: 2 }"], false),
            (
                "MongoDB shell version v4.0.3\n{ \"a\" : ISODate(\"2026\") }\nbye\n",
                &["{ \"a\" : ISODate(\"2026\") }"],
                false,
            ),
            ("{ a: 'it\\'s', b: `a\nb`, c: /* } */ 1 }", &["{ a: 'it\\'s', b: `a\nb`, c:  1 }"], false),
            ("{ a: 1 }\n{ a: [ {", &["{ a: 1 }"], true),
            ("[ { a: 1 },\n", &["{ a: 1 }"], true),
            (
                "[direct: mongos] shop> db.c.find()\n[ { a: 1 } ]\n[direct: mongos] shop> { a: 2 }\n[direct: mongos] shop>",
                &["{ a: 1 }", "{ a: 2 }"],
                false,
            ),
            ("[mongos] shop> [ { a: 1 } ]\n[1] x\n", &["{ a: 1 }"], false),
            ("[ 1, 2 ]\n[ 'a' ]\n[]\n[ ]\n{ a: 1 }\n", &["{ a: 1 }"], false),
            ("[ [ { a: 1 } ], [\n{ a: 2 } ] ]\n", &["{ a: 1 }", "{ a: 2 }"], false),
            ("[ [ { a: 1 } ],\n", &["{ a: 1 }"], true),
            ("[\n", &[], true),
            ("", &[], false),
            ("just text\n", &[], false),
        ];
        for (text, expected, is_cut) in cases {
            for step in [1, 3, 1_000] {
                let (found, broken, cut) = split(text, step);
                assert_eq!(
                    (found, broken, cut),
                    (expected.iter().map(|s| (*s).to_owned()).collect(), 0, is_cut),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn a_broken_document_costs_no_other_one() {
        for text in [
            "{ a: 'cut\n{ a: 2 }\n",
            "{ a: { b: 1\n{ a: 2 }\n",
            "{ a: 1,\n{ a: 2 }\n",
            "{ a: [1 }\n{ a: 2 }\n",
            "[\n  { a: { b: 'x\n  { a: 2 }\n]",
        ] {
            let (found, broken, cut) = split(text, 4);
            assert_eq!((found, broken), (vec!["{ a: 2 }".to_owned()], 1), "{text}");
            assert!(!cut || text.starts_with('['), "{text}");
        }
        // Without indentation a nested document is at the margin too.
        let (found, broken, _) = split("{\n\"a\": [\n{\n\"b\": 1\n},\n{\n\"b\": 2\n}\n]\n}\n", 7);
        assert_eq!((found.len(), broken), (1, 0));
    }

    #[test]
    fn a_document_that_is_too_deep_is_given_up() {
        let (found, broken, _) = split(&format!("{{ a: {}\n{{ a: 2 }}\n", "[".repeat(2_000)), 100);
        assert_eq!((found, broken), (vec!["{ a: 2 }".to_owned()], 1));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(text in "[\\[\\]{}():,/'\"`\\\\ \n\ta*>1]{0,60}", step in 1usize..9) {
            prop_assert_eq!(split(&text, step), split(&text, 1_000));
        }
    }
}
