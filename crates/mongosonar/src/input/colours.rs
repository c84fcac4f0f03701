//! Texts with the sequences that set colours, as `jq -C`, `bat` and `docker compose logs` write them, read without.

use std::io::{self, Read};

const ESCAPE: u8 = 0x1b;

/// Whether a file that begins with `head` has colours: it begins with a sequence that sets one.
pub fn has_colours(head: &[u8]) -> bool {
    matches!(head, [ESCAPE, b'[', b'0'..=b'9' | b';' | b'm', ..])
}

/// Where a text stands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum ColourState {
    Plain,
    /// Behind an escape character.
    Begun,
    /// In the numbers of a sequence.
    Numbers,
}

/// Reads a text without its sequences.
pub struct PlainReader<R> {
    input: R,
    state: ColourState,
}

impl<R: Read> PlainReader<R> {
    /// A reader of `input`.
    pub fn new(input: R) -> Self {
        Self { input, state: ColourState::Plain }
    }

    /// Whether a byte is one of the text.
    fn is_plain(&mut self, byte: u8) -> bool {
        let (state, is_plain) = match (self.state, byte) {
            (_, ESCAPE) => (ColourState::Begun, false),
            (ColourState::Begun, b'[') => (ColourState::Numbers, false),
            (ColourState::Numbers, b'0'..=b'9' | b';') => (ColourState::Numbers, false),
            // The letter says what the sequence does.
            (ColourState::Numbers, _) => (ColourState::Plain, false),
            _ => (ColourState::Plain, true),
        };
        self.state = state;
        is_plain
    }
}

impl<R: Read> Read for PlainReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let got = self.input.read(buffer)?;
            let mut kept = 0;
            for at in 0..got {
                let byte = buffer[at];
                if self.is_plain(byte) {
                    buffer[kept] = byte;
                    kept += 1;
                }
            }
            if kept > 0 || got == 0 {
                return Ok(kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_without_its_colours_whatever_comes_at_once() {
        let coloured = b"\x1b[1;39m{\n  \x1b[0m\x1b[34;1m\"t\"\x1b[0m\x1b[1;39m: \x1b[0;32m\"m\"\x1b[K\n\x1b[1;39m}\x1b[0m\n";
        assert!(has_colours(coloured) && !has_colours(b"\x1b") && !has_colours(b"\x1bx"));
        for step in [1, 2, 3, 7, 1_000] {
            let (mut reader, mut plain, mut piece) =
                (PlainReader::new(&coloured[..]), Vec::new(), vec![0; step]);
            loop {
                match reader.read(&mut piece).unwrap() {
                    0 => break,
                    got => plain.extend_from_slice(&piece[..got]),
                }
            }
            assert_eq!(plain, b"{\n  \"t\": \"m\"\n}\n", "{step}");
        }
    }
}
