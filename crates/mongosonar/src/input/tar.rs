//! Reads archives of tar: the files in them, one after another (POSIX.1-2017, `pax`, and GNU's long names).

use std::cell::RefCell;
use std::io::{self, Read};
use std::rc::Rc;

use crate::input;

/// Bytes of a block.
const BLOCK: usize = 512;
/// Bytes of a file that are looked at to recognise it.
pub const HEAD: usize = 64 << 10;
/// The largest file, in bytes: none has that size, and sums of it do not overflow.
const MAX_SIZE: u64 = 1 << 60;
/// The longest name, with the other records of its head, in bytes.
const MAX_NAME: u64 = 64 << 10;

/// Whether bytes begin an archive.
pub fn is_tar(head: &[u8]) -> bool {
    head.get(257..262) == Some(b"ustar") && ArchiveHeader::of(head).is_some()
}

/// The head of a file in an archive.
struct ArchiveHeader {
    name: String,
    size: u64,
    /// When it was last written to, in seconds since the Unix epoch.
    modified: Option<u64>,
    kind: u8,
}

impl ArchiveHeader {
    /// `None` if the block is none, or damaged.
    fn of(block: &[u8]) -> Option<Self> {
        let block: &[u8; BLOCK] = block.first_chunk()?;
        let text = |range: std::ops::Range<usize>| {
            let field = &block[range];
            &field[..memchr::memchr(0, field).unwrap_or(field.len())]
        };
        let octal = |range| {
            let digits = std::str::from_utf8(text(range)).ok()?.trim();
            u64::from_str_radix(digits, 8).ok()
        };
        // The sum is of all bytes, with spaces in its own place.
        let sum: u64 = block
            .iter()
            .enumerate()
            .map(|(at, byte)| match at {
                148..156 => u64::from(b' '),
                _ => u64::from(*byte),
            })
            .sum();
        if octal(148..156)? != sum {
            return None;
        }
        let size = match block[124] {
            // GNU: a number of 8 bytes at the end of the field.
            0x80 => u64::from_be_bytes(*block[128..136].first_chunk()?),
            _ => octal(124..136)?,
        };
        if size > MAX_SIZE {
            return None;
        }
        let mut name = String::from_utf8_lossy(text(0..100)).into_owned();
        // In GNU's own format, other fields stand there.
        if &block[257..263] == b"ustar\0" && block[345] != 0 {
            name = format!("{}/{name}", String::from_utf8_lossy(text(345..500)));
        }
        Some(Self { name, size, modified: octal(136..148), kind: block[156] })
    }

    const fn is_file(&self) -> bool {
        matches!(self.kind, b'0' | b'7' | 0)
    }

    /// Whether it is no file, but says something about the file behind it, or all of them.
    const fn is_about_next(&self) -> bool {
        matches!(self.kind, b'L' | b'K' | b'x' | b'g')
    }
}

/// The archive, and how much of its current file has not been read.
struct ArchiveInput {
    input: Box<dyn Read>,
    left: u64,
    padding: u64,
    /// The number of the current file.
    number: u64,
}

/// A file in an archive.
pub struct ArchiveMember {
    /// Its name, with its folders.
    pub name: String,
    /// When it was last written to, in milliseconds since the Unix epoch; `None` if not known.
    pub modified_ms: Option<i64>,
    /// Bytes of the file.
    pub size: u64,
    /// Its content, until the next file is asked for.
    pub content: Box<dyn Read>,
}

/// The files of an archive, in their order.
pub struct ArchiveMembers(Rc<RefCell<ArchiveInput>>);

impl ArchiveMembers {
    /// Of the archive that is read from `input`.
    pub fn new(input: Box<dyn Read>) -> Self {
        Self(Rc::new(RefCell::new(ArchiveInput { input, left: 0, padding: 0, number: 0 })))
    }

    /// The next file, whatever was read of the one before; `None` at the end.
    ///
    /// # Errors
    /// The archive cannot be read further.
    pub fn next(&mut self) -> io::Result<Option<ArchiveMember>> {
        let mut archive = self.0.borrow_mut();
        let (mut long_name, mut long_size) = (None, None);
        loop {
            let (rest, padding) = (archive.left, archive.padding);
            skip(&mut archive.input, rest + padding)?;
            (archive.left, archive.padding) = (0, 0);
            let Some(mut header) = header(&mut archive.input)? else { return Ok(None) };
            if !header.is_about_next() {
                header.size = long_size.take().unwrap_or(header.size);
            }
            archive.number += 1;
            archive.left = header.size;
            archive.padding = header.size.next_multiple_of(BLOCK as u64) - header.size;
            if matches!(header.kind, b'L' | b'x') {
                let length = header.size.min(MAX_NAME);
                let mut content = Vec::new();
                archive.input.by_ref().take(length).read_to_end(&mut content)?;
                archive.left -= (content.len() as u64).min(length);
                if header.kind == b'L' {
                    long_name = content.split(|byte| *byte == 0).next().map(<[u8]>::to_vec);
                } else {
                    long_name = record(&content, b"path").or(long_name);
                    long_size = match record(&content, b"size") {
                        Some(size) => Some(pax_size(&size)?),
                        None => long_size,
                    };
                }
                continue;
            }
            if header.is_about_next() {
                continue;
            }
            let name = long_name.take().map(|name| String::from_utf8_lossy(&name).into_owned());
            if header.is_file() {
                let number = archive.number;
                let seconds = header.modified.and_then(|seconds| i64::try_from(seconds).ok());
                return Ok(Some(ArchiveMember {
                    name: name.unwrap_or(header.name),
                    modified_ms: seconds.and_then(|seconds| seconds.checked_mul(1_000)).filter(|ms| *ms > 0),
                    size: header.size,
                    content: Box::new(MemberContent { archive: self.0.clone(), number }),
                }));
            }
        }
    }
}

/// The value of a record in a head of `pax`: `LENGTH KEY=VALUE`, each with a line feed. Of several, the last one counts.
fn record(records: &[u8], key: &[u8]) -> Option<Vec<u8>> {
    let (mut rest, mut found) = (records, None);
    while let Some(space) = memchr::memchr(b' ', rest) {
        let length = std::str::from_utf8(&rest[..space]).ok().and_then(|length| length.parse::<usize>().ok());
        let Some(record) = length.and_then(|length| rest.get(space + 1..length)) else { break };
        if let Some(value) = record.strip_prefix(key).and_then(|value| value.strip_prefix(b"=")) {
            found = Some(value.strip_suffix(b"\n").unwrap_or(value).to_vec());
        }
        rest = &rest[space + 1 + record.len()..];
    }
    found
}

/// The size of a file that does not fit into its head: 8 GiB and more.
fn pax_size(digits: &[u8]) -> io::Result<u64> {
    let size = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    size.filter(|size| *size <= MAX_SIZE).ok_or_else(damaged)
}

struct MemberContent {
    archive: Rc<RefCell<ArchiveInput>>,
    number: u64,
}

impl Read for MemberContent {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut archive = self.archive.borrow_mut();
        let left = archive.left;
        if archive.number != self.number || left == 0 || buffer.is_empty() {
            return Ok(0);
        }
        let got = archive.input.by_ref().take(left).read(buffer)?;
        if got == 0 {
            return Err(ends_inside_a_file());
        }
        archive.left -= got as u64;
        Ok(got)
    }
}

/// The contents of those files of an archive that are wanted, one after another, each with a line feed behind it if it
/// does not end with one. Compressed files are unpacked.
pub struct Concatenated {
    members: ArchiveMembers,
    is_wanted: fn(&[u8]) -> bool,
    current: Option<Box<dyn Read>>,
    last: u8,
    is_over: bool,
}

impl Concatenated {
    /// The files whose first bytes are wanted.
    pub fn new(input: Box<dyn Read>, is_wanted: fn(&[u8]) -> bool) -> Self {
        Self { members: ArchiveMembers::new(input), is_wanted, current: None, last: b'\n', is_over: false }
    }

    /// Goes to the next file that is wanted; false at the end of the archive.
    fn next(&mut self) -> io::Result<bool> {
        while let Some(member) = self.members.next()? {
            let mut content = input::decompressed(member.content)?;
            let mut head = Vec::new();
            // An error further on comes again.
            let read = content.by_ref().take(HEAD as u64).read_to_end(&mut head);
            if (self.is_wanted)(&head) {
                self.current = Some(Box::new(io::Cursor::new(head).chain(content)));
                return Ok(true);
            }
            read?;
        }
        Ok(false)
    }
}

impl Read for Concatenated {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.is_over || buffer.is_empty() {
                return Ok(0);
            }
            let got = match &mut self.current {
                Some(current) => current.read(buffer)?,
                None => 0,
            };
            if got > 0 {
                self.last = buffer[got - 1];
                return Ok(got);
            }
            if std::mem::replace(&mut self.last, b'\n') != b'\n' {
                buffer[0] = b'\n';
                return Ok(1);
            }
            self.is_over = !self.next()?;
        }
    }
}

/// Files of an archive, as far as it could be read.
#[derive(Default)]
pub struct ArchivedFiles {
    /// Names and contents; the last one may end early.
    pub files: Vec<(String, Vec<u8>)>,
    /// Why it could not be read to its end.
    pub damage: Option<io::Error>,
}

/// The files of an archive whose names are wanted, with their contents, which are at most `most` bytes together.
pub fn files(input: Box<dyn Read>, is_wanted: fn(&str) -> bool, most: u64) -> ArchivedFiles {
    let (mut read, mut left) = (ArchivedFiles::default(), most);
    let mut members = ArchiveMembers::new(input);
    let mut all = || -> io::Result<()> {
        while let Some(mut member) = members.next()? {
            if !is_wanted(&member.name) {
                continue;
            }
            // Empty files take memory, too.
            let cost = member.size + BLOCK as u64;
            left = left.checked_sub(cost).ok_or_else(|| io::Error::other("its files are too large"))?;
            let mut content = Vec::new();
            let end = member.content.read_to_end(&mut content);
            read.files.push((member.name, content));
            end?;
        }
        Ok(())
    };
    let damage = all().err();
    ArchivedFiles { damage, ..read }
}

/// The next head; `None` at the end of the archive, which two blocks of zeros mark.
fn header(input: &mut impl Read) -> io::Result<Option<ArchiveHeader>> {
    let mut block = Vec::with_capacity(BLOCK);
    input.take(BLOCK as u64).read_to_end(&mut block)?;
    if block.is_empty() || block.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    ArchiveHeader::of(&block).map(Some).ok_or_else(damaged)
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the archive is damaged")
}

fn skip(input: &mut impl Read, count: u64) -> io::Result<()> {
    match io::copy(&mut input.take(count), &mut io::sink())? {
        skipped if skipped < count => Err(ends_inside_a_file()),
        _ => Ok(()),
    }
}

fn ends_inside_a_file() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the archive ends inside a file")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A head as POSIX.1-2017 lays it out, section pax, "ustar Interchange Format".
    fn head(name: &str, (kind, size): (u8, u64)) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
        block[148..156].fill(b' ');
        block[156] = kind;
        block[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        block
    }

    fn padded(content: &str) -> Vec<u8> {
        let mut bytes = content.as_bytes().to_vec();
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        bytes
    }

    #[test]
    fn a_size_that_does_not_fit_into_the_head_is_in_the_records_before_it() {
        let archive = |records: &str, content: &str| {
            let parts = [
                head("PaxHeaders/b", (b'x', records.len() as u64)),
                padded(records),
                // Of all files, and nothing of their size.
                head("PaxHeaders/c", (b'g', 14)),
                padded("14 comment=xy\n"),
                head("b", (b'0', 0)),
                padded(content),
                head("c", (b'0', 3)),
                padded("end"),
                vec![0; 2 * BLOCK],
            ];
            ArchiveMembers::new(Box::new(io::Cursor::new(parts.concat())))
        };
        let mut members = archive("12 path=a/b\n12 size=700\n", &"x".repeat(700));
        let mut seen = Vec::new();
        while let Some(member) = members.next().unwrap() {
            seen.push((member.name, member.size));
        }
        assert_eq!(seen, [("a/b".to_owned(), 700), ("c".to_owned(), 3)]);
        // 8 GiB and more do not fit into 11 octal digits.
        let large = archive("19 size=8589935292\n", "").next().unwrap().unwrap();
        assert_eq!((large.name.as_str(), large.size), ("b", 8_589_935_292));
    }

    #[test]
    fn a_size_in_the_records_is_a_number_or_the_archive_is_damaged() {
        for size in ["", "-1", "12x", "2305843009213693952"] {
            let length = "00 size=\n".len() + size.len();
            let records = format!("{length:02} size={size}\n");
            let bytes =
                [head("x", (b'x', records.len() as u64)), padded(&records), head("b", (b'0', 0))].concat();
            let next = ArchiveMembers::new(Box::new(io::Cursor::new(bytes))).next();
            assert_eq!(next.err().map(|error| error.kind()), Some(io::ErrorKind::InvalidData), "{size}");
        }
    }
}
