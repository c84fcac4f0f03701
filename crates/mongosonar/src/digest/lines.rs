//! Lines of a file, in a buffer of bounded size.

use std::io::{self, Read};

/// Bytes read at once.
const BLOCK: usize = 1 << 20;
/// The longest line that is read.
pub const MAX_LINE: usize = 64 << 20;

/// What is found in a file, piece by piece.
pub enum Piece<'a> {
    /// A line, without its line feed.
    Line(&'a [u8]),
    /// The end of the file, which has no line feed.
    Last(&'a [u8]),
    /// A line longer than [`MAX_LINE`] was passed over.
    TooLong,
}

/// Gives every line of `input` to `each`, until it answers `false`. Returns how many bytes were read, and
/// what was wrong with the end of the input, if something was.
pub fn read(mut input: impl Read, mut each: impl FnMut(Piece<'_>) -> bool) -> (u64, Option<io::Error>) {
    let mut buffer = vec![0u8; BLOCK];
    let (mut end, mut bytes, mut skipping) = (0, 0u64, false);
    let failed = loop {
        if end == buffer.len() {
            if buffer.len() >= MAX_LINE {
                (end, skipping) = (0, true);
            } else {
                let size = buffer.len() * 2;
                buffer.resize(size, 0);
            }
        }
        let got = match input.read(&mut buffer[end..]) {
            Ok(0) => break None,
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => break Some(error),
        };
        bytes += got as u64;
        let (searched, mut begin) = (end, 0);
        end += got;
        for found in memchr::memchr_iter(b'\n', &buffer[searched..end]) {
            let line = &buffer[begin..searched + found];
            begin = searched + found + 1;
            let piece = if std::mem::take(&mut skipping) { Piece::TooLong } else { Piece::Line(line) };
            if !each(piece) {
                return (bytes, None);
            }
        }
        buffer.copy_within(begin..end, 0);
        end -= begin;
    };
    if skipping {
        each(Piece::TooLong);
    } else if end > 0 {
        each(Piece::Last(&buffer[..end]));
    }
    (bytes, failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_however_they_come() {
        let text: Vec<u8> = (0..5_000u32)
            .flat_map(|n| format!("line {n} {}\n", "x".repeat((n % 700) as usize)).into_bytes())
            .collect();
        let text = [text.as_slice(), b"the end"].concat();
        struct Drip<'a>(&'a [u8], usize);
        impl Read for Drip<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let size = self.1.min(buffer.len()).min(self.0.len());
                buffer[..size].copy_from_slice(&self.0[..size]);
                self.0 = &self.0[size..];
                Ok(size)
            }
        }
        for step in [1_000, 4_096, 1 << 20, 3 << 20] {
            let mut lines = Vec::new();
            let (bytes, failed) = read(Drip(&text, step), |piece| {
                match piece {
                    Piece::Line(line) => lines.push(line.to_vec()),
                    Piece::Last(line) => lines.push([b"last: ", line].concat()),
                    Piece::TooLong => unreachable!(),
                }
                true
            });
            assert!(failed.is_none() && bytes == text.len() as u64);
            assert_eq!(lines.len(), 5_001);
            assert!(lines[4_321].starts_with(b"line 4321 x"));
            assert_eq!(lines[5_000], b"last: the end");
        }
    }
}
