//! The files in the folder `fixtures`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Where a fixture is.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

/// What is in a fixture that is compressed by gzip.
///
/// # Panics
/// When it cannot be read.
pub fn inflated(name: &str) -> Vec<u8> {
    let mut content = Vec::new();
    let file = File::open(fixture(name)).expect("a fixture");
    flate2::read::MultiGzDecoder::new(file).read_to_end(&mut content).expect("gzip");
    content
}
