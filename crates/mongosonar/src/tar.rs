//! Reads archives of tar: the files in them, one after another (POSIX.1-2017, `pax`; GNU's long names are not needed).

use std::io::{self, Read};

/// Bytes of a block.
const BLOCK: usize = 512;
/// Bytes of a file that are looked at to recognise it.
const HEAD: usize = 64 << 10;

/// Whether bytes begin an archive.
pub fn is_tar(head: &[u8]) -> bool {
    head.get(257..262) == Some(b"ustar") && ArchiveHeader::of(head).is_some()
}

/// The head of a file in an archive.
struct ArchiveHeader {
    name: String,
    size: u64,
    is_file: bool,
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
        let name = String::from_utf8_lossy(text(0..100)).into_owned();
        Some(Self { name, size, is_file: matches!(block[156], b'0' | 0) })
    }
}

/// The contents of those files of an archive that are wanted, one after another, each with a line feed behind it if it
/// does not end with one.
pub struct Concatenated<R> {
    input: R,
    is_wanted: fn(&[u8]) -> bool,
    /// The beginning of the file, which was read to recognise it.
    head: io::Cursor<Vec<u8>>,
    /// Bytes of the file behind that, and of the padding behind the file.
    left: u64,
    padding: u64,
    last: u8,
    is_over: bool,
}

impl<R: Read> Concatenated<R> {
    /// The files whose first bytes are wanted.
    pub fn new(input: R, is_wanted: fn(&[u8]) -> bool) -> Self {
        let head = io::Cursor::default();
        Self { input, is_wanted, head, left: 0, padding: 0, last: b'\n', is_over: false }
    }

    /// Goes to the next file that is wanted; false at the end of the archive.
    fn next(&mut self) -> io::Result<bool> {
        loop {
            skip(&mut self.input, self.left + self.padding)?;
            (self.left, self.padding) = (0, 0);
            let Some(header) = header(&mut self.input)? else { return Ok(false) };
            let mut head = Vec::new();
            self.input.by_ref().take(header.size.min(HEAD as u64)).read_to_end(&mut head)?;
            self.left = header.size - (head.len() as u64).min(header.size);
            self.padding = header.size.next_multiple_of(BLOCK as u64) - header.size;
            if header.is_file && (self.is_wanted)(&head) {
                self.head = io::Cursor::new(head);
                return Ok(true);
            }
        }
    }
}

impl<R: Read> Read for Concatenated<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.is_over || buffer.is_empty() {
                return Ok(0);
            }
            let mut got = self.head.read(buffer)?;
            if got == 0 && self.left > 0 {
                got = self.input.by_ref().take(self.left).read(buffer)?;
                if got == 0 {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the archive ends inside a file",
                    ));
                }
                self.left -= got as u64;
            }
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

/// The files of an archive whose names are wanted, with their contents, which are at most `most` bytes together.
///
/// # Errors
/// The archive cannot be read, or holds more.
pub fn files(
    mut input: impl Read,
    is_wanted: fn(&str) -> bool,
    most: u64,
) -> io::Result<Vec<(String, Vec<u8>)>> {
    let (mut files, mut left) = (Vec::new(), most);
    while let Some(header) = header(&mut input)? {
        let padded = header.size.next_multiple_of(BLOCK as u64);
        if !(header.is_file && is_wanted(&header.name)) {
            skip(&mut input, padded)?;
            continue;
        }
        left = left.checked_sub(header.size).ok_or_else(|| io::Error::other("its files are too large"))?;
        let mut content = Vec::new();
        input.by_ref().take(header.size).read_to_end(&mut content)?;
        skip(&mut input, padded - header.size)?;
        files.push((header.name, content));
    }
    Ok(files)
}

/// The next head; `None` at the end of the archive, which two blocks of zeros mark.
fn header(input: &mut impl Read) -> io::Result<Option<ArchiveHeader>> {
    let mut block = Vec::with_capacity(BLOCK);
    input.take(BLOCK as u64).read_to_end(&mut block)?;
    if block.is_empty() || block.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the archive is damaged");
    ArchiveHeader::of(&block).map(Some).ok_or_else(damaged)
}

fn skip(input: &mut impl Read, count: u64) -> io::Result<()> {
    io::copy(&mut input.take(count), &mut io::sink()).map(drop)
}
