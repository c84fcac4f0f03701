//! Blocks of whole lines of a file.

use std::io::{self, Read};

/// Bytes of a block, unless a line is longer.
pub const BLOCK: usize = 256 << 10;
/// A line that is longer by a block is not read.
const MAX_LINE: usize = 64 << 20;

/// Some lines of a file.
#[derive(Default)]
pub struct LineBlock {
    /// The lines, each with its line feed; the last line of the file may have none.
    pub bytes: Vec<u8>,
    /// Before them stood a line that is longer than is read.
    pub is_after_too_long: bool,
}

/// Reads a file block by block.
pub struct LineBlocks<R> {
    input: R,
    /// Bytes of a block.
    size: usize,
    /// The beginning of the next line.
    rest: Vec<u8>,
    /// Bytes read so far.
    pub bytes: u64,
    /// Why the file cannot be read further.
    pub failed: Option<io::Error>,
    is_over: bool,
}

impl<R: Read> LineBlocks<R> {
    /// Ready for the first block of `input`, of about `size` bytes.
    pub fn new(input: R, size: usize) -> Self {
        Self { input, size, rest: Vec::new(), bytes: 0, failed: None, is_over: false }
    }

    /// Whether the file has been read to its end.
    pub fn is_at_end(&self) -> bool {
        self.is_over && self.failed.is_none()
    }

    /// Reads the next block; `false` at the end of the file, where it cannot be read further, or once `goes_on` is `false`,
    /// also inside a line that does not end.
    pub fn next(&mut self, block: &mut LineBlock, goes_on: impl Fn() -> bool) -> bool {
        block.bytes.clear();
        block.bytes.append(&mut self.rest);
        block.is_after_too_long = false;
        let mut is_skipping = false;
        while !self.is_over {
            if !goes_on() {
                return false;
            }
            let mut searched = block.bytes.len();
            self.read_more(&mut block.bytes);
            if is_skipping {
                let Some(found) = memchr::memchr(b'\n', &block.bytes) else {
                    block.bytes.clear();
                    continue;
                };
                block.bytes.drain(..=found);
                (is_skipping, block.is_after_too_long, searched) = (false, true, 0);
            }
            if let Some(found) = memchr::memrchr(b'\n', &block.bytes[searched..]) {
                let end = searched + found + 1;
                self.rest.extend_from_slice(&block.bytes[end..]);
                block.bytes.truncate(end);
                return true;
            }
            if block.bytes.len() >= MAX_LINE {
                block.bytes.clear();
                is_skipping = true;
            }
        }
        block.is_after_too_long |= is_skipping;
        block.is_after_too_long || !block.bytes.is_empty()
    }

    fn read_more(&mut self, bytes: &mut Vec<u8>) {
        let before = bytes.len();
        bytes.reserve(self.size);
        if let Err(error) = self.input.by_ref().take(self.size as u64).read_to_end(bytes) {
            self.failed = Some(error);
        }
        let read = bytes.len() - before;
        self.bytes += read as u64;
        self.is_over = read == 0 || self.failed.is_some();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Returns at most this many bytes at once, and fails at the end.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let size = self.1.min(buffer.len()).min(self.0.len());
            buffer[..size].copy_from_slice(&self.0[..size]);
            self.0 = &self.0[size..];
            if size == 0 && !buffer.is_empty() { Err(io::Error::other("torn")) } else { Ok(size) }
        }
    }

    #[test]
    fn blocks_hold_whole_lines_however_they_come() {
        let text: Vec<u8> = (0..5_000u32)
            .flat_map(|n| format!("line {n} {}\n", "x".repeat((n % 700) as usize)).into_bytes())
            .collect();
        let text = [text.as_slice(), b"the end"].concat();
        for (step, size) in [(1_000, 100), (4_096, 5_000), (1 << 20, 4_096), (3 << 20, 1 << 20)] {
            for is_torn in [false, true] {
                let input: Box<dyn Read> =
                    if is_torn { Box::new(Drip(&text, step)) } else { Box::new(text.as_slice()) };
                let (mut blocks, mut block, mut all) =
                    (LineBlocks::new(input, size), LineBlock::default(), vec![]);
                while blocks.next(&mut block, || true) {
                    assert!(block.bytes.ends_with(b"\n") || block.bytes == b"the end");
                    all.extend_from_slice(&block.bytes);
                }
                assert!(all == text && blocks.bytes == text.len() as u64);
                assert_eq!(blocks.failed.is_some(), is_torn);
            }
        }
    }

    #[test]
    fn reading_a_line_that_never_ends_can_be_stopped() {
        let input = b"before\n".chain(io::repeat(b'x'));
        let (mut blocks, mut block, looks) =
            (LineBlocks::new(input, 1 << 20), LineBlock::default(), Cell::new(0));
        // Also after it has begun to skip the line.
        let goes_on = || looks.replace(looks.get() + 1) < 100;
        assert!(blocks.next(&mut block, goes_on));
        assert_eq!(block.bytes, b"before\n");
        assert!(!blocks.next(&mut block, goes_on) && !blocks.is_at_end());
        assert!(blocks.bytes > MAX_LINE as u64);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_and_reported() {
        let long = vec![b'x'; MAX_LINE + (3 << 20)];
        let text = [b"before\n", long.as_slice(), b"\nafter\n", &long].concat();
        let (mut blocks, mut block, mut seen) =
            (LineBlocks::new(text.as_slice(), 1 << 20), LineBlock::default(), vec![]);
        while blocks.next(&mut block, || true) {
            let text = String::from_utf8_lossy(&block.bytes[..block.bytes.len().min(10)]).into_owned();
            seen.push((block.is_after_too_long, text));
        }
        let expected = [(false, "before\n"), (true, "after\n"), (true, "")];
        assert_eq!(seen, expected.map(|(skipped, text)| (skipped, text.to_owned())));
    }
}
