//! Texts in UTF-16, which `>` of Windows PowerShell writes, read as UTF-8.

use std::io::{self, Read};

/// Bytes read at once.
const BLOCK: usize = 64 << 10;

/// Which byte of two comes first.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ByteOrder {
    /// The lower one.
    Little,
    /// The higher one.
    Big,
}

impl ByteOrder {
    /// Of a file that begins with `head`: a byte order mark, and a character of ASCII. The length of a BSON document may
    /// look like the mark alone.
    pub fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0xff, 0xfe, b' '..=b'~', 0, ..] => Some(Self::Little),
            [0xfe, 0xff, 0, b' '..=b'~', ..] => Some(Self::Big),
            _ => None,
        }
    }
}

/// Reads UTF-16 as UTF-8. What is no character becomes U+FFFD.
pub struct Utf8Reader<R> {
    input: R,
    order: ByteOrder,
    block: Vec<u8>,
    /// Bytes at the beginning of the block that wait for those that follow.
    waiting: usize,
    text: Vec<u8>,
    at: usize,
    is_begun: bool,
    is_over: bool,
}

impl<R: Read> Utf8Reader<R> {
    /// A reader of `input`, from its byte order mark.
    pub fn new(input: R, order: ByteOrder) -> Self {
        let (block, text) = (vec![0; BLOCK], Vec::new());
        Self { input, order, block, waiting: 0, text, at: 0, is_begun: false, is_over: false }
    }

    fn fill(&mut self) -> io::Result<()> {
        let got = self.input.read(&mut self.block[self.waiting..])?;
        self.is_over = got == 0;
        let length = self.waiting + got;
        let mut units: Vec<u16> = self.block[..length]
            .chunks_exact(2)
            .map(|pair| match self.order {
                ByteOrder::Little => u16::from_le_bytes([pair[0], pair[1]]),
                ByteOrder::Big => u16::from_be_bytes([pair[0], pair[1]]),
            })
            .collect();
        // The second half of a pair of surrogates may follow.
        if !self.is_over && units.last().is_some_and(|unit| (0xd800..0xdc00).contains(unit)) {
            units.pop();
        }
        (self.text, self.at) = (Vec::with_capacity(3 * units.len()), 0);
        for char in char::decode_utf16(units.iter().copied()) {
            let char = char.unwrap_or(char::REPLACEMENT_CHARACTER);
            self.text.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        }
        if !self.is_begun && !units.is_empty() {
            self.is_begun = true;
            // The mark.
            self.at = '\u{feff}'.len_utf8().min(self.text.len());
        }
        self.block.copy_within(2 * units.len()..length, 0);
        self.waiting = length - 2 * units.len();
        if self.is_over && self.waiting > 0 {
            self.waiting = 0;
            self.text.extend_from_slice("\u{fffd}".as_bytes());
        }
        Ok(())
    }
}

impl<R: Read> Read for Utf8Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.text.len() && !self.is_over {
            self.fill()?;
        }
        let rest = &self.text[self.at..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out a few bytes at a time.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn both_byte_orders_give_the_text_whatever_comes_at_once() {
        let text = "{\"t\": \"Grüße 𝄞\"}\n";
        let units: Vec<u16> = format!("\u{feff}{text}").encode_utf16().collect();
        let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
        for bytes in [little, big] {
            let order = ByteOrder::of(&bytes).unwrap();
            for step in [1, 2, 3, 1_000] {
                let mut read = String::new();
                Utf8Reader::new(Pieces(&bytes, step), order).read_to_string(&mut read).unwrap();
                assert_eq!(read, text, "{order:?}, {step}");
            }
            let mut read = String::new();
            let cut = &bytes[..bytes.len() - 1];
            Utf8Reader::new(Pieces(cut, 5), order).read_to_string(&mut read).unwrap();
            assert_eq!(read, format!("{}\u{fffd}", text.trim_end()));
        }
        // BSON documents of 65,279 and 655,103 bytes.
        assert_eq!(ByteOrder::of(&[0xff, 0xfe, 0, 0]), None);
        assert_eq!(ByteOrder::of(&[0xff, 0xfe, 9, 0]), None);
    }
}
