//! Reads the log lines of an exported journal of systemd (`journalctl -o export`). Its entries have fields of text and of
//! bytes.
//!
//! Format: <https://systemd.io/JOURNAL_EXPORT_FORMATS/>. Each entry becomes an object, as `journalctl -o json` writes it.

use std::io::{self, BufRead, BufReader, Read};

use sonar_decode::syntax::documents::MAX_DOCUMENT;

use crate::input::made_lines::{FOREIGN, MadeLines};

/// Bytes read at once.
const BLOCK: usize = 256 << 10;

/// Whether a file that begins with `head` is an exported journal.
pub fn is_export(head: &[u8]) -> bool {
    head.starts_with(b"__CURSOR=")
}

/// The lines of an exported journal.
pub struct ExportLines {
    input: BufReader<Box<dyn Read>>,
    ready: MadeLines,
    /// The fields of the entry that are of use.
    fields: serde_json::Map<String, serde_json::Value>,
    has_fields: bool,
    is_over: bool,
}

/// A field that has been read.
enum ExportedField {
    Field,
    /// The entry has ended.
    Blank,
    End,
    /// The file ends inside a field.
    Cut,
}

impl ExportLines {
    /// Of a journal that is read from `input`.
    pub fn new(input: Box<dyn Read>) -> Self {
        Self {
            input: BufReader::with_capacity(BLOCK, input),
            ready: MadeLines::default(),
            fields: serde_json::Map::new(),
            has_fields: false,
            is_over: false,
        }
    }

    /// Reads up to a line feed, or `None` if the text ends before it.
    fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        self.input.by_ref().take(MAX_DOCUMENT as u64).read_until(b'\n', &mut line)?;
        if line.last() == Some(&b'\n') {
            line.pop();
            return Ok(Some(line));
        }
        Ok(None)
    }

    fn field(&mut self) -> io::Result<ExportedField> {
        if self.input.fill_buf()?.is_empty() {
            return Ok(ExportedField::End);
        }
        let Some(line) = self.line()? else { return Ok(ExportedField::Cut) };
        if line.trim_ascii().is_empty() {
            return Ok(ExportedField::Blank);
        }
        if let Some(sign) = memchr::memchr(b'=', &line) {
            self.keep(&line[..sign], &line[sign + 1..]);
            return Ok(ExportedField::Field);
        }
        let mut length = [0; 8];
        match self.input.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(ExportedField::Cut),
            read => read?,
        }
        let length = u64::from_le_bytes(length);
        let (mut value, most) = (Vec::new(), length.min(MAX_DOCUMENT as u64));
        let mut read = self.input.by_ref().take(most).read_to_end(&mut value)? as u64;
        read += io::copy(&mut self.input.by_ref().take(length - most), &mut io::sink())?;
        self.keep(&line, &value);
        // The line feed behind it.
        let is_whole = read == length && self.line()?.is_some();
        Ok(if is_whole { ExportedField::Field } else { ExportedField::Cut })
    }

    fn keep(&mut self, name: &[u8], value: &[u8]) {
        self.has_fields = true;
        let is_of_use = matches!(
            name,
            b"MESSAGE"
                | b"__REALTIME_TIMESTAMP"
                | b"SYSLOG_IDENTIFIER"
                | b"CONTAINER_NAME"
                | b"CONTAINER_PARTIAL_MESSAGE"
        );
        if is_of_use {
            // A copy may have got the line ends of Windows.
            let value = value.strip_suffix(b"\r").unwrap_or(value);
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            self.fields.insert(text(name), text(value).into());
        }
    }

    fn end_entry(&mut self) {
        if !std::mem::take(&mut self.has_fields) {
            return;
        }
        let fields = serde_json::Value::Object(std::mem::take(&mut self.fields));
        if fields.get("MESSAGE").is_none() {
            self.ready.bytes.extend_from_slice(FOREIGN);
        } else {
            self.ready.bytes.extend_from_slice(fields.to_string().as_bytes());
            self.ready.bytes.push(b'\n');
        }
    }
}

impl Read for ExportLines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.ready.bytes.is_empty() && !self.is_over {
            match self.field()? {
                ExportedField::Field => {}
                ExportedField::Blank => self.end_entry(),
                ExportedField::End => {
                    self.end_entry();
                    self.is_over = true;
                }
                ExportedField::Cut => {
                    self.ready.add_cut();
                    self.is_over = true;
                }
            }
        }
        Ok(self.ready.hand_out(buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::made_lines::BROKEN;

    fn lines(export: &[u8]) -> String {
        let mut text = String::new();
        ExportLines::new(Box::new(io::Cursor::new(export.to_vec()))).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn entries_are_objects_also_of_binary_fields() {
        let message = b"[conn7] a \"b\"\nand more";
        let binary =
            [b"MESSAGE\n".as_slice(), &(message.len() as u64).to_le_bytes(), message, b"\n"].concat();
        let export = [
            b"__CURSOR=s=1;i=2\n__REALTIME_TIMESTAMP=17\n_PID=3\n".as_slice(),
            &binary,
            b"\n__CURSOR=s=1;i=3\nMESSAGE=x=y\n\n",
            b"__CURSOR=s=1;i=4\n_PID=3\n",
        ]
        .concat();
        let expected = "{\"__REALTIME_TIMESTAMP\":\"17\",\"MESSAGE\":\"[conn7] a \\\"b\\\"\\nand more\"}\n\
                        {\"MESSAGE\":\"x=y\"}\n{}\n";
        assert_eq!(lines(&export), expected);
        let cut = &export[..export.iter().position(|byte| *byte == 0).unwrap() + 9];
        assert_eq!(lines(cut).as_bytes(), BROKEN.trim_ascii_end());
        assert!(is_export(&export) && !is_export(b"MESSAGE=x"));
    }

    #[test]
    fn an_entry_keeps_few_fields() {
        let fields: String = (0..1_000).map(|number| format!("CONTAINER_{number}=x\n")).collect();
        let export = format!("__CURSOR=s=1\nCONTAINER_NAME=m\nMESSAGE=a\n{fields}\n");
        assert_eq!(lines(export.as_bytes()), "{\"CONTAINER_NAME\":\"m\",\"MESSAGE\":\"a\"}\n");
    }

    #[test]
    fn a_length_that_no_file_has_costs_nothing() {
        let export = [b"__CURSOR=1\nMESSAGE\n".as_slice(), &[0xff; 8], b"short\n"].concat();
        assert_eq!(lines(&export).as_bytes(), BROKEN.trim_ascii_end());
    }
}
