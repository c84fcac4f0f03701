//! CSV (RFC 4180).

use std::fmt::{Display, Write as _};
use std::io::{self, Write};

use super::escape::escape;

/// A line being built; once it is written, the next one begins.
#[derive(Default)]
pub(crate) struct CsvLine {
    text: String,
    /// Whether it has a field, which may be empty.
    has_field: bool,
}

impl CsvLine {
    fn separate(&mut self) {
        if std::mem::replace(&mut self.has_field, true) {
            self.text.push(',');
        }
    }

    /// A field that needs no quotes; an empty one if the value is not known.
    pub(crate) fn figure(&mut self, value: Option<impl Display>) {
        self.separate();
        if let Some(value) = value {
            // A text in memory takes everything.
            let _ = write!(self.text, "{value}");
        }
    }

    /// A field in quotes where it needs them. Control characters, line feeds too, are escaped as in
    /// any text that is shown.
    pub(crate) fn text(&mut self, text: &str) {
        self.separate();
        let text = escape(text);
        if text.contains([',', '"']) || text.starts_with(' ') || text.ends_with(' ') {
            self.text.push('"');
            self.text.push_str(&text.replace('"', "\"\""));
            self.text.push('"');
        } else {
            self.text.push_str(&text);
        }
    }

    /// Ends it with CR LF.
    ///
    /// # Errors
    /// Those of `out`.
    pub(crate) fn write(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.end("\r\n", out)
    }

    /// Ends it with a line feed alone, as all lines of `ftdc` end.
    ///
    /// # Errors
    /// Those of `out`.
    pub(crate) fn write_lf(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.end("\n", out)
    }

    fn end(&mut self, end: &str, out: &mut impl Write) -> io::Result<()> {
        self.text.push_str(end);
        let written = out.write_all(self.text.as_bytes());
        self.text.clear();
        self.has_field = false;
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_kept_apart_and_lines_too() {
        let (mut line, mut out) = (CsvLine::default(), Vec::new());
        line.figure(None::<u64>);
        line.text("a, \"b\"\u{1b}[2J\n");
        line.text(" c");
        line.figure(Some(-1.5));
        line.write(&mut out).unwrap();
        line.text("");
        line.figure(Some(7));
        line.write_lf(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), ",\"a, \"\"b\"\"\\u{1b}[2J\\u{a}\",\" c\",-1.5\r\n,7\n");
    }
}
