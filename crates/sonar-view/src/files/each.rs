//! `io report --each`: a line for each access, tab-separated.

use std::io::{self, Write};

use sonar_core::files::IoAccess;

use crate::kit::{escape, or_unknown};

/// Writes the names of the fields.
///
/// # Errors
/// Those of `out`.
pub fn heading(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "start_ns\tthread\tfile\tkind\toffset\tasked\tgiven\terror\tlatency_ns\tdevice_bytes")
}

/// Writes an access to the file with this path, which is empty if it is not known.
///
/// # Errors
/// Those of `out`.
pub fn access(access: &IoAccess, path: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
        access.start.unix_ns(),
        access.thread,
        escape(path),
        access.kind.name(),
        access.offset,
        access.asked,
        access.given,
        access.error,
        access.latency_ns,
        or_unknown(access.device_bytes),
    )
}

#[cfg(test)]
mod tests {
    use sonar_core::Timestamp;
    use sonar_core::files::AccessKind;

    use super::*;

    #[test]
    fn an_access_is_one_line_whatever_its_file_is_called() {
        let read = IoAccess {
            start: Timestamp::from_unix_ns(5),
            latency_ns: 9,
            thread: 7,
            file: 1,
            kind: AccessKind::Read,
            offset: 4_096,
            asked: 512,
            given: 500,
            error: 0,
            device_bytes: None,
        };
        let mut out = Vec::new();
        heading(&mut out).unwrap();
        access(&read, "/a\u{1b}\n\tb", &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        let lines: Vec<_> = out.lines().collect();
        assert_eq!(lines[1], "5\t7\t/a\\u{1b}\\u{a}\\u{9}b\tread\t4096\t512\t500\t0\t9\t-");
        assert_eq!(lines[0].matches('\t').count(), lines[1].matches('\t').count());
    }
}
