//! Recognises files that no command reads by their first bytes, and says what they are and how to convert them.
//!
//! Sources: the formats' own documentation, and the list of signatures of `file` (<https://github.com/file/file>).

use std::path::Path;

use sonar_core::files::naming::{DIAGNOSTIC_DATA, is_sample_file};

/// Fewer bytes than these may also be the length of a BSON document, or the beginning of a line.
const SURE: usize = 4;
/// Signatures: the offset, the bytes, and the words that follow "this is".
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0, b"\xfd7zXZ\0", "an xz archive; unpack it first: `xz -dk FILE`"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it first: `7z x FILE`"),
    (0, b"BZh", "a bzip2 file; unpack it first: `bunzip2 -k FILE`"),
    (0, b"Rar!\x1a\x07", "a RAR archive; unpack it first: `unrar x FILE`"),
    (0, &[0x04, 0x22, 0x4d, 0x18], "an lz4 file; unpack it first: `lz4 -d FILE`"),
    (0, &[0x89, b'L', b'Z', b'O', 0], "an lzop file; unpack it first: `lzop -dk FILE`"),
    (0, b"LZIP", "an lzip file; unpack it first: `lzip -dk FILE`"),
    (0, &[0x1f, 0x9d], "a file of compress (.Z); unpack it first: `gunzip FILE`"),
    (
        0,
        b"\xff\x06\0\0sNaPpY",
        "a file in snappy's framing format; unpack it first: `python3 -m snappy -d FILE mongod.log`",
    ),
    (0, b"MSCF", "a cabinet archive; unpack it first: `cabextract FILE`"),
    (
        0,
        b"LPKSHHRH",
        "a journal of systemd; write it as text: `journalctl --file FILE -u mongod -a -o short-iso-precise > mongod.log`",
    ),
    (
        4,
        b"\x0a\x06stdout",
        "a log of docker's `local` driver, which is binary; write it as text: `docker logs CONTAINER > mongod.log`",
    ),
    (
        4,
        b"\x0a\x06stderr",
        "a log of docker's `local` driver, which is binary; write it as text: `docker logs CONTAINER > mongod.log 2>&1`",
    ),
    (
        0,
        b"ElfFile\0",
        "an event log of Windows, which has no operations; use the log of the server: `systemLog.path` in its configuration names it",
    ),
    (
        0,
        b"PAR1",
        "a Parquet file; write the column with the lines as CSV: `duckdb -csv -c \"SELECT message FROM 'FILE'\" > mongod.csv`",
    ),
    (0, b"ORC", "an ORC file; write the column with the lines as CSV, with a heading `message`"),
    (0, b"Obj\x01", "an Avro file; write its records as JSON: `avro-tools tojson FILE > mongod.json`"),
    (0, b"ARROW1", "an Arrow file; write the column with the lines as CSV, with a heading `message`"),
    (
        0,
        b"PERFILE2",
        "a recording of perf, which `perf report -i FILE` shows; `mongosonar stacks` samples a server itself",
    ),
    (
        0,
        b"SQLite format 3\0",
        "a database of SQLite; if it is a day of an agent's history, name its folder: `mongosonar what-changed --store FOLDER`",
    ),
    (
        0,
        &[0xd0, 0xcf, 0x11, 0xe0, 0xa1, 0xb1, 0x1a, 0xe1],
        "a document of Office; save a table as CSV, with the lines in a column `message`",
    ),
    (
        0,
        b"%PDF-",
        "a PDF; the log itself is needed, or its lines as text: `pdftotext -layout FILE mongod.log`",
    ),
    (0, b"{\\rtf", "a document in rich text; save it as plain text"),
    (0, &[0xff, 0xd8, 0xff], IMAGE),
    (0, b"\x89PNG\r\n\x1a\n", IMAGE),
    (0, b"GIF8", IMAGE),
    (8, b"WEBP", IMAGE),
    (4, b"ftypheic", IMAGE),
    (0, b"II*\0", IMAGE),
    (0, b"snoop\0\0\0", "a capture of snoop; write it as pcap: `editcap -F pcap FILE wire.pcap`"),
    (0, b"GMBU", "a capture of Network Monitor; write it as pcap: `editcap -F pcap FILE wire.pcap`"),
    (0, b"MDMP", "a minidump of a process, which only a debugger reads"),
    (0, b"MZ", "a program of Windows"),
    (0, b"!<arch>\n", "a package or a library of Unix (ar)"),
    (0, b"\xed\xab\xee\xdb", "an RPM package"),
];
const IMAGE: &str =
    "an image; the text itself is needed: the log, the profile or the output of the shell as a file";
const ZIP: &str = "a zip archive; unpack it first: `unzip FILE`";
const SPREADSHEET: &str = "a spreadsheet; save it as CSV (UTF-8), with the lines in a column `message`";
const CORE: &str = "a core dump of a process, which only a debugger reads (`gdb PROGRAM FILE`)";
const PROGRAM: &str = "a program or a library (ELF)";

/// Names the kind of file that begins with these bytes; `None` if a command may read it.
pub fn of(head: &[u8]) -> Option<&'static str> {
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        return Some(of_zip(head));
    }
    if head.starts_with(b"\x7fELF") {
        return Some(of_elf(head));
    }
    of_signature(head, |mark| mark.len() >= SURE)
}

/// As [`of`], by signatures so short that a file which a command reads may begin with them. Ask once nothing else fits.
pub fn of_short_signature(head: &[u8]) -> Option<&'static str> {
    of_signature(head, |mark| mark.len() < SURE)
}

fn of_signature(head: &[u8], counts: impl Fn(&[u8]) -> bool) -> Option<&'static str> {
    let has = |at: usize, mark: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(mark));
    SIGNATURES.iter().find(|(at, mark, _)| counts(mark) && has(*at, mark)).map(|(_, _, what)| *what)
}

/// By the name of the first file in it.
fn of_zip(head: &[u8]) -> &'static str {
    const NAME: usize = 30;
    let begins = |names: &[&[u8]]| {
        names.iter().any(|name| head.get(NAME..).is_some_and(|rest| rest.starts_with(name)))
    };
    let has = |name: &[u8]| memchr::memmem::find(head, name).is_some();
    match begins(&[b"[Content_Types].xml", b"_rels/", b"docProps/", b"xl/", b"mimetypeapplication/vnd.oasis"])
    {
        true if has(b"word/") => "a document of Office; save it as plain text",
        true => SPREADSHEET,
        false => ZIP,
    }
}

fn of_elf(head: &[u8]) -> &'static str {
    /// `ET_CORE` of `e_type`.
    const CORE_TYPE: u16 = 4;
    let is_big_endian = head.get(5) == Some(&2);
    let kind = head.get(16..18).and_then(|bytes| bytes.first_chunk());
    let kind =
        kind.map(|bytes| if is_big_endian { u16::from_be_bytes(*bytes) } else { u16::from_le_bytes(*bytes) });
    if kind == Some(CORE_TYPE) { CORE } else { PROGRAM }
}

/// Names a text of another program that holds nothing we read, by its beginning.
pub fn of_text(text: &[u8]) -> Option<&'static str> {
    let lower = text[..text.len().min(512)].to_ascii_lowercase();
    if lower.starts_with(b"<!doctype html") || lower.starts_with(b"<html") {
        return Some(
            "a web page; if it is a report of mongosonar, write the report again with --json as well as --html",
        );
    }
    if lower.starts_with(b"<?xml") {
        return Some("an XML document; write its lines as text, or as CSV with a column `message`");
    }
    let sections: [&[u8]; 4] = [b"systemLog:", b"storage:", b"net:", b"processManagement:"];
    let lines = || text.split(|byte| *byte == b'\n').take(200);
    if sections.iter().filter(|section| lines().any(|line| line.trim_ascii_end() == **section)).count() > 1 {
        return Some("a configuration file of a server; `systemLog.path` in it names the log");
    }
    let mut lines = lines().take(60).map(<[u8]>::trim_ascii);
    lines.find_map(|line| {
        let words: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
        // Only a header begins with the columns: elsewhere they may be words of a sentence or of another table.
        let begins = |words: &[&[u8]], names: &[&str]| {
            names.iter().enumerate().all(|(at, name)| words.get(at) == Some(&name.as_bytes()))
        };
        // With several servers, their names come first.
        let columns = words.strip_prefix(&[b"host".as_slice()]).unwrap_or(&words);
        if begins(columns, &["insert", "query", "update", "delete", "getmore", "command"]) {
            return Some("output of mongostat, which has no operations; `mongosonar ftdc report` shows the same figures from diagnostic.data");
        }
        if begins(&words, &["ns", "total", "read", "write"]) {
            return Some("output of mongotop, which has no operations; a log or a profile of the server has");
        }
        None
    })
}

/// Names the kind of a JSON object by its fields.
pub fn of_fields(has: impl Fn(&str) -> bool) -> Option<&'static str> {
    if has("indexes") && has("options") && (has("uuid") || has("collectionName")) {
        return Some(
            "the metadata of a collection in a dump; its documents are in the `.bson` file beside it",
        );
    }
    if has("process") && has("uptimeMillis") && has("connections") {
        return Some(
            "the output of serverStatus; `mongosonar ftdc report` reads that of getDiagnosticData, several one after another",
        );
    }
    None
}

/// Names the kind of a dump by the fields of one document; `None` if it may be a profile.
pub fn of_dump(has: impl Fn(&str) -> bool) -> Option<&'static str> {
    match (has("op"), has("ns")) {
        (true, true) if has("o") && has("ts") && !has("millis") => Some(
            "a dump of the oplog, which has no times of operations; `mongodump -d DATABASE -c system.profile` dumps a profile",
        ),
        (false, false) => Some(
            "a dump of BSON documents that are no profile; `mongodump -d DATABASE -c system.profile` dumps one",
        ),
        _ => None,
    }
}

/// Why a folder is not read, and what in it is.
pub fn folder(path: &Path) -> String {
    let names = |folder: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(10_000);
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let here = names(path);
    let is_of_dump = |name: &String| {
        let name = name.strip_suffix(".gz").unwrap_or(name);
        name.ends_with(".bson") || name.ends_with(".metadata.json")
    };
    let is_dump = |names: &[String]| names.iter().any(is_of_dump);
    let profile_in =
        |names: &[String]| names.iter().find(|name| name.starts_with("system.profile.bson")).cloned();
    let inside = here.iter().take(100).map(|name| path.join(name));
    let dumped: Vec<_> = inside.filter(|inner| inner.is_dir() && is_dump(&names(inner))).collect();
    let has = |name: &str| here.iter().any(|one| one == name);
    let shown = path.display();
    let profile = if is_dump(&here) {
        Some(profile_in(&here).map(|name| path.join(name)))
    } else {
        // The databases of a dump have a folder each.
        (!dumped.is_empty())
            .then(|| dumped.iter().find_map(|inner| Some(inner.join(profile_in(&names(inner))?))))
    };
    match profile {
        Some(Some(profile)) => {
            let profile = profile.display();
            return format!("this is a folder of mongodump; use `mongosonar profiler report {profile}`");
        }
        Some(None) => {
            return "this is a folder of mongodump without a profile; `mongodump -d DATABASE -c system.profile` dumps one".to_owned();
        }
        None => {}
    }
    if has("WiredTiger.wt") || has(DIAGNOSTIC_DATA) {
        return format!(
            "this is the data folder of a server; use `mongosonar ftdc report {shown}`, and name its log for operations"
        );
    }
    if here.iter().any(|name| is_sample_file(name)) {
        return format!("this is a folder of diagnostic.data; use `mongosonar ftdc report {shown}`");
    }
    "this is a folder; name the files in it".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_known_by_the_first_name_in_it() {
        let zip = |name: &str| [b"PK\x03\x04".as_slice(), &[0; 26], name.as_bytes()].concat();
        assert_eq!(of(&zip("mongod.log")), Some(ZIP));
        assert_eq!(of(&zip("[Content_Types].xml")), Some(SPREADSHEET));
        assert_eq!(of(b"PK\x03\x04"), Some(ZIP));
    }

    #[test]
    fn mongostat_is_known_by_its_header_and_not_by_words_anywhere() {
        const COLUMNS: &str = "insert query update delete getmore command";
        let is_mongostat =
            |text: &str| of_text(text.as_bytes()).is_some_and(|what| what.contains("mongostat"));
        let header = format!("  {COLUMNS} dirty used flushes\n    *0    *0     *0\n");
        assert!(is_mongostat(&header));
        assert!(is_mongostat(&format!("             host {COLUMNS} dirty\n")));
        let live_view = "# A page\n\n  insert 1.32k/s  query 585/s  update 298/s  delete 4.66/s  getmore 62.5/s  command 139/s\n";
        assert!(!is_mongostat(live_view));
        assert!(!is_mongostat(&format!("| `by_type` | one of {COLUMNS} |\n")));
    }

    #[test]
    fn a_core_dump_is_no_program_in_either_byte_order() {
        let elf = |order: u8, kind: [u8; 2]| [b"\x7fELF\x02".as_slice(), &[order], &[0; 10], &kind].concat();
        assert_eq!([of(&elf(1, [4, 0])), of(&elf(2, [0, 4]))], [Some(CORE); 2]);
        assert_eq!([of(&elf(1, [3, 0])), of(b"\x7fELF")], [Some(PROGRAM); 2]);
    }
}
