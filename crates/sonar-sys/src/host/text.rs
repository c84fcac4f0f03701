//! Small files of `/proc` and `/sys`, and their unit of time.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;

/// The most bytes to read of a small file, or of a table with a line for each processor.
const MOST_BYTES: u64 = 1 << 20;

/// Reads a small text file without its last line feed; `None` if it does not exist or cannot be read.
pub(super) fn small(path: &Path) -> Option<String> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(MOST_BYTES).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).trim_end_matches(['\n', '\0']).to_owned())
}

/// The length of this many clock ticks.
pub(super) fn duration(ticks: u64) -> Duration {
    let per_second = clock_ticks_per_second();
    Duration::new(ticks / per_second, ((ticks % per_second) * 1_000_000_000 / per_second) as u32)
}
