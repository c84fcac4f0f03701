//! Small files of `/proc` and `/sys`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The most bytes to read of a small file, or of a table with a line for each processor.
const MOST_BYTES: u64 = 1 << 20;

/// Reads a small text file without its last line feed; `None` if it does not exist or cannot be read.
pub(super) fn small(path: &Path) -> Option<String> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(MOST_BYTES).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).trim_end_matches(['\n', '\0']).to_owned())
}
