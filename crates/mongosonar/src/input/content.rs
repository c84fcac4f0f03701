//! Recognises a file by its first bytes, so that a command that was given the wrong kind of file can name the command
//! that reads it.

use std::fmt;
use std::io::{self, Read};

use anyhow::{Context, Result, bail};
use memchr::memmem;
use sonar_decode::log::{LogReader, LogSettings};
use sonar_decode::syntax::documents::{Documents, FoundDocument};
use sonar_decode::top_level::{TopFields, text_field};
use sonar_decode::{current_op, explain};

use crate::input::Failing;
use crate::input::foreign;
use crate::input::log_container::LogContainer;
use crate::input::tar;

/// The most bytes to look at.
pub const HEAD: usize = 64 << 10;

/// What a file holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum FileContent {
    /// No bytes at all.
    Empty,
    /// pcap, pcapng.
    Capture,
    /// What `io record` writes.
    Accesses,
    /// What `--json` of a report writes.
    Digest,
    /// What `compare --json` writes.
    Comparison,
    /// What `disk bench --json` writes.
    DiskBench,
    /// JSON of another command of this program.
    OwnJson,
    /// Profile documents as BSON, as `mongodump` writes them.
    ProfileBson,
    /// Profile documents as JSON, or as the shell prints them.
    ProfileText,
    /// Operations in flight, as text: the output of `currentOp`.
    CurrentOp,
    /// Operations in flight as BSON.
    CurrentOpBson,
    /// Plans, as text: the output of `explain`.
    ExplainText,
    /// The output of `explain` as BSON.
    ExplainBson,
    /// A log of mongod or mongos.
    Log,
    /// A file of `diagnostic.data`.
    Diagnostic,
    /// An archive of tar, which may hold logs or `diagnostic.data`.
    Tar,
    /// A sample of `diagnostic.data` as text: the output of `getDiagnosticData`.
    DiagnosticText,
    /// An audit log of a server.
    Audit,
    /// Something that no command reads: what it is, as it stands behind "this is", and how to turn it into what is read.
    Foreign(&'static str),
    /// `mongodump --archive`.
    Archive,
    /// A data file of WiredTiger.
    WiredTiger,
    /// gzip or zstd.
    Compressed,
    /// Another text.
    Text,
    /// Other bytes.
    Binary,
}

impl FileContent {
    /// The content of a file that begins with `head`, by its first [`HEAD`] bytes.
    pub fn of(head: &[u8]) -> Self {
        let head = head.get(..HEAD).unwrap_or(head);
        if head.is_empty() {
            return Self::Empty;
        }
        if let Some(known) = by_magic(head) {
            return known;
        }
        // The length of a document has a zero byte, which no text begins with.
        if head.iter().take(4).any(|byte| *byte == 0) && is_bson(head) {
            return by_bson(head);
        }
        let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
        if let Some(kind) = own_kind(text) {
            return kind;
        }
        if let Some(kind) = by_documents(text) {
            return kind;
        }
        if LogContainer::of(text, 0).is_some() || is_log(text) {
            Self::Log
        } else if let Some(what) = foreign::of_short_signature(head) {
            Self::Foreign(what)
        } else if head.contains(&0) {
            Self::Binary
        } else {
            foreign::of_text(text).map_or(Self::Text, Self::Foreign)
        }
    }

    /// The command that reads it, as one would type it; `None` where there is none.
    pub const fn command(self) -> Option<&'static str> {
        match self {
            Self::Capture => Some("mongosonar queries --read FILE"),
            Self::Accesses => Some("mongosonar io report FILE"),
            Self::Digest => Some("mongosonar compare FILE OTHER"),
            Self::DiskBench => Some("mongosonar disk bench --compare FILE OTHER"),
            Self::ProfileBson | Self::ProfileText => Some("mongosonar profiler report FILE"),
            Self::CurrentOp | Self::CurrentOpBson | Self::ExplainText | Self::ExplainBson => {
                Some("mongosonar report FILE")
            }
            Self::Log => Some("mongosonar logs report FILE"),
            Self::Diagnostic | Self::DiagnosticText => Some("mongosonar ftdc report FILE"),
            _ => None,
        }
    }

    /// Whether this is certainly none of `readable`. Unknown content is not foreign: the reader finds out whether it
    /// can read it.
    pub fn is_foreign_to(self, readable: &[Self]) -> bool {
        !matches!(self, Self::Empty | Self::Text | Self::Binary | Self::Compressed)
            && !readable.contains(&self)
    }
}

/// What it is, as it stands behind "this is".
impl fmt::Display for FileContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "an empty file",
            Self::Capture => "a packet capture",
            Self::Accesses => "a recording of file accesses (io record)",
            Self::Digest => "a saved report (--json)",
            Self::Comparison => "the result of a comparison (compare --json)",
            Self::DiskBench => "a result of disk bench --json",
            Self::OwnJson => {
                "JSON of another kind that mongosonar wrote; `mongosonar logs report`, `profiler report` and `report` write \
                 saved reports with --json, `queries` with --digest --json"
            }
            Self::ProfileBson => "a dump of BSON documents",
            Self::ProfileText => "profile documents as text",
            Self::CurrentOp | Self::CurrentOpBson => "operations in flight (currentOp)",
            Self::ExplainText | Self::ExplainBson => "the output of explain",
            Self::Log => "a MongoDB log",
            Self::Diagnostic => "a file of MongoDB's diagnostic.data",
            Self::Tar => "an archive (tar); `mongosonar logs report` reads the logs in it, `mongosonar ftdc report` the files of diagnostic.data",
            Self::DiagnosticText => "the output of getDiagnosticData",
            Self::Audit => "an audit log, which has no times of operations (the server's log has: `mongod.log`)",
            Self::Foreign(what) => what,
            Self::Archive => {
                "a mongodump archive (dump with --out instead of --archive to get a file of each collection)"
            }
            Self::WiredTiger => "a WiredTiger data file",
            Self::Compressed => "a compressed file (unpack it first)",
            Self::Text => "a text that mongosonar does not know",
            Self::Binary => "a file that mongosonar does not know",
        })
    }
}

/// Fails if the content is none of `readable`, with the command that reads it.
///
/// # Errors
/// It is certainly something else.
pub fn refuse_foreign(name: &str, content: FileContent, readable: &[FileContent]) -> Result<()> {
    if content.is_foreign_to(readable) {
        bail!("{name}: {}", advice(content));
    }
    Ok(())
}

/// What it is, and what reads it.
pub fn advice(content: FileContent) -> String {
    match content.command() {
        Some(command) => format!("this is {content}; use `{command}`"),
        None => format!("this is {content}"),
    }
}

/// Why a reader of `wanted` could not read a file that begins with `head` and continues with `rest`: what the file is
/// instead, if that is known, else `otherwise`.
pub fn instead(head: &[u8], rest: impl Read, wanted: FileContent, otherwise: &dyn fmt::Display) -> String {
    let mut bytes = head.to_vec();
    // An error here does not matter: there is one already.
    let _ = rest.take(HEAD.saturating_sub(bytes.len()) as u64).read_to_end(&mut bytes);
    let content = FileContent::of(&bytes);
    if content == wanted || matches!(content, FileContent::Text | FileContent::Binary) {
        return otherwise.to_string();
    }
    match (content, content.command()) {
        // It says what to do by itself.
        (FileContent::Foreign(_), _) => advice(content),
        (_, Some(command)) => format!("this is {content}, not {wanted}; use `{command}`"),
        (_, None) => format!("this is {content}, not {wanted}"),
    }
}

/// A file of known content.
pub struct Peeked {
    /// What it holds.
    pub content: FileContent,
    /// Reads all of it.
    pub reader: Box<dyn Read>,
}

/// Recognises the content of `reader`.
///
/// # Errors
/// It cannot be read.
pub fn peek(mut reader: Box<dyn Read>, name: &str) -> Result<Peeked> {
    let mut head = Vec::new();
    // An error further on does not matter yet: the reader gets it again.
    let read = reader.by_ref().take(HEAD as u64).read_to_end(&mut head);
    let content = FileContent::of(&head);
    let rest: Box<dyn Read> = match read {
        Ok(_) => reader,
        Err(error) if head.is_empty() => return Err(error).with_context(|| format!("cannot read {name}")),
        Err(error) => Box::new(Failing::new(error)),
    };
    Ok(Peeked { content, reader: Box::new(io::Cursor::new(head).chain(rest)) })
}

fn by_magic(head: &[u8]) -> Option<FileContent> {
    const WIRED_TIGER: &[u8] = &[0x41, 0xd8, 0x01, 0x00];
    let magic = u32::from_le_bytes(*head.first_chunk::<4>()?);
    Some(match magic {
        0xa1b2_c3d4 | 0xd4c3_b2a1 | 0xa1b2_3c4d | 0x4d3c_b2a1 | 0x0a0d_0d0a => FileContent::Capture,
        0x8199_e26d => FileContent::Archive,
        _ if tar::is_tar(head) => FileContent::Tar,
        _ if let Some(what) = foreign::of(head) => FileContent::Foreign(what),
        _ if head.starts_with(sonar_decode::io_file::MAGIC) => FileContent::Accesses,
        _ if head.starts_with(WIRED_TIGER) => FileContent::WiredTiger,
        _ if head.starts_with(&[0x1f, 0x8b]) || head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) => {
            FileContent::Compressed
        }
        // {_id: Date, type: int, …}
        _ if head.get(4..9) == Some(b"\x09_id\0") && head.get(17..23) == Some(b"\x10type\0") => {
            FileContent::Diagnostic
        }
        _ => return None,
    })
}

/// Which command of this program wrote this JSON.
fn own_kind(text: &[u8]) -> Option<FileContent> {
    // It may have been formatted.
    let start: Vec<u8> = text.iter().take(512).copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let after = |mark: &[u8]| memmem::find(&start, mark).map(|at| &start[at + mark.len()..]);
    if !start.starts_with(b"{\"schema\":") {
        return None;
    }
    let kind = after(b"\"kind\":\"")?;
    let kind = &kind[..memchr::memchr(b'"', kind)?];
    Some(match kind {
        b"digest" => FileContent::Digest,
        b"comparison" => FileContent::Comparison,
        b"disk_bench" => FileContent::DiskBench,
        _ => FileContent::OwnJson,
    })
}

/// Whether one of the first lines is a log line, by the reader of logs.
fn is_log(text: &[u8]) -> bool {
    /// The most lines to look at.
    const LINES: usize = 50;
    if text.starts_with(b"{\"t\":{\"$date\"") {
        // The first line may be longer than `head`.
        return true;
    }
    let mut log = LogReader::new(LogSettings::default());
    text.split(|byte| *byte == b'\n').take(LINES).for_each(|line| log.line(line, &mut ()));
    let reading = log.reading();
    log.last_time().is_some() && reading.lines_operation + reading.lines_event + reading.lines_other > 0
}

/// What the first documents of a text are, by the fields of their outermost level: those further in may be a user's
/// own. `None`: they do not say it, or are lines of a log.
fn by_documents(text: &[u8]) -> Option<FileContent> {
    let (mut documents, mut rest) = (Documents::default(), text);
    loop {
        let kind = match documents.next(&mut rest) {
            Some(FoundDocument::Document(document)) => by_document(document),
            Some(FoundDocument::Broken) => None,
            None => return by_document(documents.unfinished()).filter(|kind| *kind != FileContent::Log),
        };
        if kind.is_some() {
            return kind.filter(|kind| *kind != FileContent::Log);
        }
    }
}

/// What a document is, whole or cut; a line of a log is [`FileContent::Log`].
fn by_document(document: &[u8]) -> Option<FileContent> {
    let top = TopFields::of_text(document);
    Some(if top.has_document("t") && (top.has("ctx") || top.has("msg")) {
        FileContent::Log
    } else if top.has("atype") && top.has("param") {
        FileContent::Audit
    } else if current_op::is_current(&top) {
        FileContent::CurrentOp
    } else if top.has("op") && top.has("ns") {
        FileContent::ProfileText
    } else if explain::is_explain(&top, document) {
        FileContent::ExplainText
    } else if is_diagnostic(&top, document) {
        FileContent::DiagnosticText
    } else {
        FileContent::Foreign(foreign::of_fields(|name| top.has(name))?)
    })
}

/// Whether it looks like the output of `getDiagnosticData`: a document with a sample.
fn is_diagnostic(top: &TopFields, document: &[u8]) -> bool {
    let sample = text_field(document, "data").filter(|_| top.has_document("data")).map(TopFields::of_text);
    let is_sample = |top: &TopFields| {
        // In a command that asks for it, it is a number.
        top.has_document("serverStatus") || top.has_document("common")
    };
    sample.as_ref().is_some_and(is_sample) || is_sample(top) && top.has("start")
}

/// What BSON documents are, by the fields of the outermost level of the first ones.
fn by_bson(head: &[u8]) -> FileContent {
    let (mut rest, mut other) = (head, None);
    while let Some(length) = rest.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes) as usize) {
        let document = &rest[..length.min(rest.len())];
        let top = TopFields::of_bson(document);
        if current_op::is_current(&top) {
            return FileContent::CurrentOpBson;
        }
        if explain::is_explain_bson(&top, document) {
            return FileContent::ExplainBson;
        }
        // The fields that say it may stand behind the cut.
        let is_whole = length <= rest.len();
        let foreign = foreign::of_dump(|name| top.has(name)).filter(|_| is_whole);
        if length < 5 || top.has("op") && top.has("ns") {
            return foreign.map_or(FileContent::ProfileBson, FileContent::Foreign);
        }
        other = other.or(foreign);
        rest = &rest[document.len()..];
    }
    other.map_or(FileContent::ProfileBson, FileContent::Foreign)
}

/// Whether it begins with the length and the first element of a BSON document.
fn is_bson(head: &[u8]) -> bool {
    let Some(length) = head.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes)) else { return false };
    let Some((kind, rest)) = head[4..].split_first() else { return false };
    let name = memchr::memchr(0, &rest[..rest.len().min(255)]).map(|end| &rest[..end]);
    (5..=48_000_000).contains(&length)
        && (1..=0x13).contains(kind)
        && name.is_some_and(|name| !name.is_empty() && name.iter().all(|byte| *byte >= b' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_of_two_bytes_does_not_hide_what_is_read() {
        // The length begins as a program of Windows does.
        let mut profile = vec![0; 0x5a4d];
        profile[..4].copy_from_slice(&0x5a4d_u32.to_le_bytes());
        profile[4..18].copy_from_slice(b"\x02op\0\x06\0\0\0query\0");
        assert_eq!(FileContent::of(&profile), FileContent::ProfileBson);
        let line = "{\"t\":{\"$date\":\"2026-05-01T10:00:00.120+00:00\"},\"s\":\"I\",\"c\":\"NETWORK\",\"id\":22943,\"ctx\":\"listener\",\"msg\":\"Connection accepted\"}";
        assert_eq!(FileContent::of(format!("MZ-db1 | {line}\n").as_bytes()), FileContent::Log);
        assert_eq!(FileContent::of(b"MZ\x90\0\x03\0"), FileContent::Foreign("a program of Windows"));
    }

    #[test]
    fn each_kind_of_file_is_known_by_its_first_bytes() {
        let bson = |body: &[u8]| [&(body.len() as u32 + 5).to_le_bytes(), body, b"\0"].concat();
        let diagnostic = [b"\x09_id\0".as_slice(), &[0; 8], b"\x10type\0", &[1, 0, 0, 0]].concat();
        let cases: [(&[u8], FileContent); 28] = [
            (b"", FileContent::Empty),
            (&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0], FileContent::Capture),
            (&[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0], FileContent::Capture),
            (b"MSONARIO\x01\0", FileContent::Accesses),
            (&[0x41, 0xd8, 1, 0, 1, 0, 0, 0, 9, 9], FileContent::WiredTiger),
            (&[0x6d, 0xe2, 0x99, 0x81, 1, 0, 0, 0], FileContent::Archive),
            (&bson(&diagnostic), FileContent::Diagnostic),
            (&bson(b"\x02op\0\x06\0\0\0query\0"), FileContent::ProfileBson),
            (b"{\"schema\":1,\"kind\":\"digest\",\"source\":\"log\"", FileContent::Digest),
            (b"{\n  \"schema\": 1,\n  \"kind\": \"comparison\"", FileContent::Comparison),
            (b"{\"schema\":1,\"kind\":\"disk_bench\"", FileContent::DiskBench),
            (b"{\"schema\":1,\"kind\":\"disk_stat\"", FileContent::OwnJson),
            (b"{\"op\":\"query\",\"ns\":\"a.b\",\"millis\":3}\n", FileContent::ProfileText),
            (b"shop> db.c.find().explain()\n{\n  explainVersion: '1',\n  queryPlanner: {\n", FileContent::ExplainText),
            (b"{\"serverInfo\":{},\"splitPipeline\":null,\"shards\":{\"s0\":{\"stages\":[", FileContent::ExplainText),
            (&bson(b"\x03queryPlanner\0\x05\0\0\0\0"), FileContent::ExplainBson),
            (b"[\n  {\n    op: 'query',\n    ns: 'a.b',\n", FileContent::ProfileText),
            (b"{ inprog: [ { type: 'op', opid: 5, active: true, op: 'query', ns: 'a.b'", FileContent::CurrentOp),
            (b"{\n\t\"inprog\" : [\n\t\t{\n\t\t\t\"opid\" : 5,", FileContent::CurrentOp),
            (b"[{\"type\":\"op\",\"active\":true,\"opid\":5,\"op\":\"query\",\"ns\":\"a.b\"}]", FileContent::CurrentOp),
            (b"{\"op\":\"query\",\"ns\":\"a.b\",\"command\":{\"opid\":5},\"millis\":3}\n", FileContent::ProfileText),
            (b"shop> db.system.profile.find()\n[ { op: 'query', ns: 'a.b'", FileContent::ProfileText),
            (
                b"{\"t\":{\"$date\":\"2026-05-01T10:00:00.120+00:00\"},\"s\":\"I\",\"c\":\"NETWORK\",\"id\":22943,\"ctx\":\"listener\",\"msg\":\"Connection accepted\",\"attr\":{}}\n",
                FileContent::Log,
            ),
            (b"2026-11-21T00:39:39.510+0000 I CONTROL  [initandlisten] MongoDB starting\n", FileContent::Log),
            (b"# README\nSome text, some more.\n", FileContent::Text),
            (b"{\"a\": 1}\n", FileContent::Text),
            (b"\0\x01\x02\x03 no text", FileContent::Binary),
            (&[0x1f, 0x8b, 8, 0], FileContent::Compressed),
        ];
        for (head, expected) in cases {
            assert_eq!(FileContent::of(head), expected, "{}", String::from_utf8_lossy(head));
        }
    }

    #[test]
    fn fields_of_a_query_say_nothing_of_the_file() {
        for filter in [
            "\"opid\": 7, \"active\": true",
            "\"inprog\": [1]",
            "\"queryPlanner\": {\"winningPlan\": 1}",
            "\"t\": {\"$date\": \"2026-05-01T10:00:00Z\"}, \"ctx\": \"a\", \"msg\": \"Slow query\", \"attr\": 1",
            "\"getDiagnosticData\": 1, \"serverStatus\": {\"start\": 1}, \"data\": {}",
            "\"atype\": \"a\", \"param\": 1",
        ] {
            let entry = format!(
                "{{\"op\": \"query\", \"ns\": \"a.b\", \"command\": {{\"find\": \"b\", \"filter\": {{{filter}}}}}, \"millis\": 3}}"
            );
            let pretty = entry.replace("{", "{\n  ").replace(", \"", ",\n  \"");
            let shell =
                format!("shop> db.system.profile.find()\n[\n  {}\n]\n", entry.replace("\": ", "\" : "));
            for text in [format!("{entry}\n{entry}\n"), format!("[{entry}, {entry}]"), pretty, shell] {
                assert_eq!(FileContent::of(text.as_bytes()), FileContent::ProfileText, "{text}");
                let cut = &text.as_bytes()[..text.len().min(120)];
                assert_eq!(FileContent::of(cut), FileContent::ProfileText, "{text}");
            }
            let document: bson::Document = serde_json::from_str(&entry).unwrap();
            assert_eq!(FileContent::of(&document.to_vec().unwrap()), FileContent::ProfileBson, "{entry}");
        }
        let current = bson::doc! {"type": "op", "active": true, "opid": 5, "op": "query", "ns": "a.b"};
        for document in [current.clone(), bson::doc! {"inprog": [current], "ok": 1}] {
            assert_eq!(
                FileContent::of(&document.to_vec().unwrap()),
                FileContent::CurrentOpBson,
                "{document}"
            );
        }
    }

    #[test]
    fn the_command_that_reads_it_is_named() {
        let refused =
            refuse_foreign("wire.pcap", FileContent::Capture, &[FileContent::Log]).unwrap_err().to_string();
        assert_eq!(refused, "wire.pcap: this is a packet capture; use `mongosonar queries --read FILE`");
        assert!(refuse_foreign("a", FileContent::Text, &[FileContent::Log]).is_ok(), "its reader finds out");
        let bytes = b"2026-11-21T00:39:39.510+0000 I CONTROL  [initandlisten] MongoDB starting\n";
        let (head, rest) = bytes.split_at(4);
        assert!(instead(head, rest, FileContent::Capture, &"no capture").contains("mongosonar logs report"));
        assert_eq!(instead(b"abc", io::empty(), FileContent::Capture, &"no capture"), "no capture");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..600)) {
            let _ = FileContent::of(&bytes).to_string();
        }
    }
}
