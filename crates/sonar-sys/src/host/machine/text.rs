//! Reads small files into a buffer that is kept.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The most bytes that are read of a file: of `/proc/stat` on the largest machines all processors.
const MOST_BYTES: u64 = 1 << 20;

/// A buffer for one text after another.
#[derive(Debug, Default)]
pub(in crate::host) struct TextBuffer {
    bytes: Vec<u8>,
}

impl TextBuffer {
    /// Reads a file; `None` if it cannot be read or is not UTF-8.
    pub fn read(&mut self, path: &Path) -> Option<&str> {
        self.take(File::open(path).ok()?)
    }

    /// Reads an open file from its beginning; `None` if it cannot be read or is not UTF-8.
    pub fn take(&mut self, file: impl Read) -> Option<&str> {
        self.bytes.clear();
        file.take(MOST_BYTES).read_to_end(&mut self.bytes).ok()?;
        std::str::from_utf8(&self.bytes).ok()
    }
}
