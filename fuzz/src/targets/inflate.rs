//! Any bytes as compressed data: no panic, never more than the message said, pieces within their bound, and
//! the same however the data come in. What is given out whole of snappy is what its own library gives.

use std::ops::ControlFlow;

use crate::Input;
use sonar_core::operation::Compressor;
use sonar_decode::compress::{CHUNK, InflateError, InflateStatus, Inflater};

/// The most that a message of this target says it is.
const MOST: u32 = 1 << 20;

/// Takes an input.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let compressor = match input.byte() % 4 {
        0 => Compressor::Noop,
        1 => Compressor::Snappy,
        2 => Compressor::Zlib,
        _ => Compressor::Zstd,
    };
    let said = u32::from(input.u16()) * if input.byte() & 1 == 0 { 1 } else { 16 };
    let size = usize::from(input.byte()) + 1;
    let data = input.0;
    let whole = inflate(compressor, said, data, data.len().max(1));
    assert_eq!(whole, inflate(compressor, said, data, size));
    if let (Compressor::Snappy, (Ok(InflateStatus::Done), out)) = (compressor, &whole) {
        assert_eq!(snap::raw::Decoder::new().decompress_vec(data).as_ref(), Ok(out));
    }
}

/// Feeds pieces of `size` bytes until there is no more or it is enough.
fn inflate(
    compressor: Compressor,
    said: u32,
    data: &[u8],
    size: usize,
) -> (Result<InflateStatus, ()>, Vec<u8>) {
    let said = said.min(MOST);
    let Ok(mut inflater) = Inflater::new(compressor, said, data.len() as u32) else {
        return (Err(()), Vec::new());
    };
    let mut out = Vec::new();
    let mut status: Result<InflateStatus, InflateError> = Ok(InflateStatus::More);
    for piece in data.chunks(size) {
        status = inflater.inflate(piece, &mut |bytes| {
            assert!(!bytes.is_empty() && bytes.len() <= CHUNK);
            out.extend_from_slice(bytes);
            ControlFlow::Continue(())
        });
        assert!(out.len() <= said as usize, "{} bytes of {said}", out.len());
        if status.is_err() {
            break;
        }
    }
    // How much was given out before the damage was found is not the same for every cut.
    match status {
        Ok(status) => (Ok(status), out),
        Err(_) => (Err(()), Vec::new()),
    }
}
