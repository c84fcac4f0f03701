//! Joins lines that a container runtime cut into parts, and objects that take several lines.
//!
//! Runtimes that follow Kubernetes' CRI write `<time> <stream> P <text>` for a part and `F` for the last one. Docker's
//! json-file driver writes an object for each part; the text of the last one ends with a line feed. Both cut after
//! 16 KiB.
//!
//! Sources: the CRI logging format in
//! <https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md>, and the copier of
//! docker's daemon, <https://github.com/moby/moby/blob/master/daemon/logger/copier.go>.

/// The longest line that is joined, in bytes.
pub(super) const MAX_LINE: usize = 4 << 20;
/// Docker cuts a line into parts of this many bytes. Shorter texts without a line feed come from other programs.
const DOCKER_PART: usize = 16 << 10;
/// How much longer a part is at most whose first and last characters were cut: three bytes take the place of each byte.
const REPLACED: usize = 12;

/// The output of the server that a part belongs to. Parts of both may alternate.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum OutputStream {
    Stdout,
    Stderr,
}

impl OutputStream {
    /// From its name.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        match name {
            b"stdout" => Some(Self::Stdout),
            b"stderr" => Some(Self::Stderr),
            _ => None,
        }
    }
}

/// A line of a container runtime: a part of a line of the server, or all of it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct RuntimeLine<'a> {
    pub stream: OutputStream,
    /// The line of the server ends with it.
    pub is_last: bool,
    pub text: &'a [u8],
}

impl<'a> RuntimeLine<'a> {
    /// `2026-05-01T10:00:00.120000000Z stdout P …`.
    pub(super) fn of_cri(line: &'a [u8]) -> Option<Self> {
        /// The longest time, in bytes.
        const MAX_TIME: usize = 40;
        let space = memchr::memchr(b' ', line.get(..MAX_TIME.min(line.len()))?)?;
        crate::syntax::time::iso_with_offset(&line[..space])?;
        let rest = &line[space + 1..];
        let stream = OutputStream::of(rest.get(..6)?)?;
        let (tag, text) = match rest.get(6..)? {
            // Further tags may follow a colon.
            [b' ', tag @ (b'P' | b'F'), b' ', text @ ..] => (*tag, text),
            [b' ', tag @ (b'P' | b'F'), b':', rest @ ..] => (*tag, &rest[memchr::memchr(b' ', rest)? + 1..]),
            _ => return None,
        };
        Some(Self { stream, is_last: tag == b'F', text })
    }

    /// The `log` and the `stream` of an object that docker wrote.
    pub(super) fn of_docker(text: &'a [u8], stream: OutputStream) -> Self {
        let (text, has_end) = match text.strip_suffix(b"\n") {
            Some(text) => (text, true),
            None => (text, false),
        };
        // A line of 4.4 or later ends with its bracket.
        let is_begun = text.starts_with(b"{\"t\":") && !text.trim_ascii_end().ends_with(b"}");
        // What is longer was joined by whoever collected it.
        let may_be_part = (DOCKER_PART..=DOCKER_PART + REPLACED).contains(&text.len());
        Self { stream, is_last: has_end || !may_be_part && !is_begun, text }
    }
}

/// The beginning of something that takes several lines.
#[derive(Debug, Default)]
pub(super) struct UnfinishedLine {
    text: Vec<u8>,
    lines: u64,
    /// It is longer than [`MAX_LINE`] and was dropped.
    is_too_long: bool,
}

/// The result of adding a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum JoinedLine {
    /// More parts follow.
    Pending,
    /// This was the last part: the whole line.
    Line(Vec<u8>),
    /// This was the last part of something longer than [`MAX_LINE`], which began this many lines before.
    TooLong(u64),
}

impl UnfinishedLine {
    /// Whether nothing is waiting.
    pub(super) fn is_empty(&self) -> bool {
        self.lines == 0
    }

    /// How many lines are waiting.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// Adds the text of a line.
    pub(super) fn add(&mut self, is_last: bool, text: &[u8]) -> JoinedLine {
        if self.text.len() + text.len() > MAX_LINE {
            self.is_too_long = true;
            self.text = Vec::new();
        } else if !self.is_too_long {
            self.text.extend_from_slice(text);
        }
        if !is_last {
            self.lines += 1;
            return JoinedLine::Pending;
        }
        let Self { text, lines, is_too_long } = std::mem::take(self);
        if is_too_long { JoinedLine::TooLong(lines) } else { JoinedLine::Line(text) }
    }

    /// Forgets what is waiting; returns how many lines it took, and its text.
    pub(super) fn abandon(&mut self) -> (u64, Vec<u8>) {
        let Self { text, lines, .. } = std::mem::take(self);
        (lines, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_recognised() {
        let of = |line: &'static str| {
            RuntimeLine::of_cri(line.as_bytes()).map(|part| (part.stream, part.is_last, part.text))
        };
        let time = "2026-05-01T10:00:00.120000000Z";
        assert_eq!(
            of("2026-05-01T10:00:00.120000000Z stdout P {\"t\":"),
            Some((OutputStream::Stdout, false, &b"{\"t\":"[..]))
        );
        assert_eq!(of("2026-05-01T12:00:00.1+02:00 stderr F "), Some((OutputStream::Stderr, true, &b""[..])));
        assert_eq!(
            of("2026-05-01T12:00:00Z stdout F:x:y a b"),
            Some((OutputStream::Stdout, true, &b"a b"[..]))
        );
        for other in ["", " ", "stdout P x", "2026-05-01T10:00:00Z stdout X x", "x stdout P x"] {
            assert_eq!(of(other), None, "{other}");
        }
        assert!(RuntimeLine::of_cri(time.as_bytes()).is_none());

        let docker = |text: &[u8]| RuntimeLine::of_docker(text, OutputStream::Stdout).is_last;
        assert!(docker(b"short\n") && docker(b"short, from a program that takes the line feed off"));
        assert!(!docker(b"{\"t\":{\"$date\":\"2026\"},\"attr\":") && docker(b"{\"t\":{\"$date\":\"2026\"}}"));
        let whole = [&b"{\"t\":"[..], &[b'x'; 40_000], b"} "].concat();
        assert!(docker(&whole) && docker(&[b'x'; 40_000]), "whoever collected it has joined its parts");
        assert!(!docker(&[b'x'; DOCKER_PART]) && docker(&[&[b'x'; DOCKER_PART][..], b"\n"].concat()));
    }

    #[test]
    fn a_line_that_never_ends_is_not_kept() {
        let mut parts = UnfinishedLine::default();
        let text = vec![b'x'; DOCKER_PART];
        for _ in 0..2 * MAX_LINE / DOCKER_PART {
            assert_eq!(parts.add(false, &text), JoinedLine::Pending);
            assert!(parts.text.capacity() <= 2 * MAX_LINE);
        }
        assert_eq!(parts.add(true, &text), JoinedLine::TooLong(2 * (MAX_LINE / DOCKER_PART) as u64));
        assert!(parts.is_empty());
        assert_eq!(parts.add(true, &text), JoinedLine::Line(text.clone()), "the next line is read again");
    }
}
