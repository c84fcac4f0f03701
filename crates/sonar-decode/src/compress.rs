//! Inflation of OP_COMPRESSED in bounded memory: fed in chunks of any size, given out in chunks, and
//! no further than the consumer wants.
//!
//! snappy has no streaming decoder in its library, and a message may be 48 MB; here it is decoded with a
//! window of 64 KiB, which is as far back as the reference compressor ever refers (it works in blocks of
//! that size). Format: <https://github.com/google/snappy/blob/main/format_description.txt>.

use std::ops::ControlFlow;

use flate2::{Decompress, FlushDecompress};
use sonar_core::operation::Compressor;
use zstd::stream::raw::{DParameter, Decoder as ZstdDecoder, InBuffer, Operation as _, OutBuffer};

/// The most bytes that are given out at once.
pub const CHUNK: usize = 32 * 1024;
/// The largest window that a zstd frame may ask for: 2^23 = 8 MiB.
const ZSTD_WINDOW_LOG: u32 = 23;
/// How far back snappy may refer.
const SNAPPY_WINDOW: usize = 64 * 1024;

/// Data that cannot be inflated.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InflateError {
    /// The data contradict themselves.
    #[error("compressed data are damaged")]
    Damaged,
    /// The decoder could not be set up.
    #[error("no decoder")]
    Setup,
    /// The real size is not the one that the message told.
    #[error("message said {said} bytes, and there are {found} or more")]
    SizeMismatch {
        /// `uncompressedSize` of the message.
        said: u32,
        /// What was found.
        found: u64,
    },
    /// A reference further back than the window.
    #[error("snappy reference of {0} bytes back is beyond the window")]
    Window(usize),
}

enum Engine {
    Noop,
    Snappy(Box<Snappy>),
    Zlib(Box<Decompress>),
    Zstd(Box<ZstdDecoder<'static>>),
}

/// Inflates one message.
pub struct Inflater {
    engine: Engine,
    said: u32,
    given: u64,
    /// Compressed bytes that have not come yet.
    left: u32,
    out: Vec<u8>,
    failed: Option<InflateError>,
}

/// How far an inflation came.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Status {
    /// More compressed bytes are wanted.
    More,
    /// All has been given out, and its size is what the message told.
    Done,
    /// The consumer has had enough.
    Stopped,
}

impl Inflater {
    /// For a message of `compressed` bytes that claims to have `uncompressed` ones.
    ///
    /// # Errors
    /// The decoder cannot be set up.
    pub fn new(compressor: Compressor, uncompressed: u32, compressed: u32) -> Result<Self, InflateError> {
        let engine = match compressor {
            Compressor::Noop => Engine::Noop,
            Compressor::Snappy => Engine::Snappy(Box::default()),
            Compressor::Zlib => Engine::Zlib(Box::new(Decompress::new(true))),
            Compressor::Zstd => {
                let mut decoder = ZstdDecoder::new().map_err(|_| InflateError::Setup)?;
                decoder
                    .set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG))
                    .map_err(|_| InflateError::Setup)?;
                Engine::Zstd(Box::new(decoder))
            }
        };
        Ok(Self { engine, said: uncompressed, given: 0, left: compressed, out: Vec::new(), failed: None })
    }

    /// Takes more compressed bytes and gives out what comes of them. Bytes beyond the message's are an
    /// error of the caller and are ignored.
    ///
    /// # Errors
    /// The data are damaged, or their size is not what the message told; after an error every call
    /// gives the same one.
    pub fn inflate(
        &mut self,
        input: &[u8],
        output: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Status, InflateError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let input = &input[..input.len().min(self.left as usize)];
        self.left -= input.len() as u32;
        let result = self.run(input, output);
        self.failed = result.err();
        result
    }

    fn run(
        &mut self,
        mut input: &[u8],
        output: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Status, InflateError> {
        let (said, given) = (self.said, &mut self.given);
        let mut give = |bytes: &[u8]| {
            *given += bytes.len() as u64;
            if *given > u64::from(said) {
                return Err(InflateError::SizeMismatch { said, found: *given });
            }
            Ok(!bytes.is_empty() && output(bytes).is_break())
        };
        match &mut self.engine {
            Engine::Noop => {
                for chunk in input.chunks(CHUNK) {
                    if give(chunk)? {
                        return Ok(Status::Stopped);
                    }
                }
            }
            Engine::Snappy(snappy) => {
                if snappy.decode(input, said, &mut give)? {
                    return Ok(Status::Stopped);
                }
            }
            Engine::Zlib(zlib) => {
                self.out.resize(CHUNK.min(said as usize + 64), 0);
                loop {
                    let (read, wrote) = (zlib.total_in(), zlib.total_out());
                    let status = zlib
                        .decompress(input, &mut self.out, FlushDecompress::None)
                        .map_err(|_| InflateError::Damaged)?;
                    let (read, wrote) =
                        ((zlib.total_in() - read) as usize, (zlib.total_out() - wrote) as usize);
                    input = &input[read..];
                    if give(&self.out[..wrote])? {
                        return Ok(Status::Stopped);
                    }
                    if status == flate2::Status::StreamEnd || (read == 0 && wrote == 0) {
                        break;
                    }
                }
            }
            Engine::Zstd(zstd) => {
                self.out.resize(CHUNK.min(said as usize + 64), 0);
                let mut from = InBuffer::around(input);
                loop {
                    let mut to = OutBuffer::around(self.out.as_mut_slice());
                    let before = from.pos();
                    zstd.run(&mut from, &mut to).map_err(|_| InflateError::Damaged)?;
                    let wrote = to.pos();
                    let read = from.pos() - before;
                    if give(&self.out[..wrote])? {
                        return Ok(Status::Stopped);
                    }
                    if read == 0 && wrote == 0 {
                        break;
                    }
                }
            }
        }
        match (self.left, self.given == u64::from(said)) {
            (_, true) if self.left == 0 => Ok(Status::Done),
            (0, false) => Err(InflateError::SizeMismatch { said, found: self.given }),
            _ => Ok(Status::More),
        }
    }
}

/// A snappy decoder in raw block format.
struct Snappy {
    /// The window, and behind it what has not been given out.
    history: Vec<u8>,
    given: usize,
    state: SnappyState,
    /// Bytes of a tag or of the length that have come.
    partial: [u8; 5],
    have: usize,
}

impl Default for Snappy {
    fn default() -> Self {
        Self { history: Vec::new(), given: 0, state: SnappyState::Length, partial: [0; 5], have: 0 }
    }
}

#[derive(Copy, Clone)]
enum SnappyState {
    /// The preamble: the uncompressed length.
    Length,
    Tag,
    /// So many bytes of a literal are to come.
    Literal(usize),
}

impl Snappy {
    /// Returns whether the consumer has had enough.
    fn decode(
        &mut self,
        mut input: &[u8],
        said: u32,
        give: &mut impl FnMut(&[u8]) -> Result<bool, InflateError>,
    ) -> Result<bool, InflateError> {
        while !input.is_empty() {
            match self.state {
                SnappyState::Length => {
                    let byte = input[0];
                    input = &input[1..];
                    if self.have == 5 {
                        return Err(InflateError::Damaged);
                    }
                    self.partial[self.have] = byte;
                    self.have += 1;
                    if byte & 0x80 == 0 {
                        let length = self.partial[..self.have]
                            .iter()
                            .enumerate()
                            .fold(0u64, |sum, (i, byte)| sum | u64::from(byte & 0x7f) << (7 * i));
                        if length != u64::from(said) {
                            return Err(InflateError::SizeMismatch { said, found: length });
                        }
                        self.have = 0;
                        self.state = SnappyState::Tag;
                    }
                }
                SnappyState::Literal(left) => {
                    let take = left.min(input.len()).min(CHUNK);
                    self.history.extend_from_slice(&input[..take]);
                    input = &input[take..];
                    self.state =
                        if take == left { SnappyState::Tag } else { SnappyState::Literal(left - take) };
                    if self.flush(give, false)? {
                        return Ok(true);
                    }
                }
                SnappyState::Tag => {
                    let first = if self.have > 0 { self.partial[0] } else { input[0] };
                    let length = tag_length(first);
                    // The tag in one piece: from the input, or put together.
                    let mut tag = [0u8; 5];
                    if self.have == 0 && input.len() >= length {
                        tag[..length].copy_from_slice(&input[..length]);
                        input = &input[length..];
                    } else {
                        let take = (length - self.have).min(input.len());
                        self.partial[self.have..self.have + take].copy_from_slice(&input[..take]);
                        self.have += take;
                        input = &input[take..];
                        if self.have < length {
                            return self.flush(give, true);
                        }
                        tag = self.partial;
                        self.have = 0;
                    }
                    self.tag(tag)?;
                    if self.flush(give, false)? {
                        return Ok(true);
                    }
                }
            }
        }
        self.flush(give, true)
    }

    fn tag(&mut self, tag: [u8; 5]) -> Result<(), InflateError> {
        let first = usize::from(tag[0]);
        let (length, offset) = match first & 3 {
            0 => {
                let short = first >> 2;
                let length = match short {
                    0..=59 => short,
                    60 => usize::from(tag[1]),
                    61 => usize::from(u16::from_le_bytes([tag[1], tag[2]])),
                    62 => u32::from_le_bytes([tag[1], tag[2], tag[3], 0]) as usize,
                    _ => u32::from_le_bytes([tag[1], tag[2], tag[3], tag[4]]) as usize,
                };
                self.state = SnappyState::Literal(length + 1);
                return Ok(());
            }
            1 => (((first >> 2) & 7) + 4, (first >> 5) << 8 | usize::from(tag[1])),
            2 => ((first >> 2) + 1, usize::from(u16::from_le_bytes([tag[1], tag[2]]))),
            _ => ((first >> 2) + 1, u32::from_le_bytes([tag[1], tag[2], tag[3], tag[4]]) as usize),
        };
        if offset == 0 {
            return Err(InflateError::Damaged);
        }
        let Some(from) = self.history.len().checked_sub(offset) else {
            return Err(if offset > SNAPPY_WINDOW {
                InflateError::Window(offset)
            } else {
                InflateError::Damaged
            });
        };
        if offset >= length {
            self.history.extend_from_within(from..from + length);
        } else {
            // The copy runs into what it writes.
            for at in from..from + length {
                self.history.push(self.history[at]);
            }
        }
        Ok(())
    }

    /// Gives out what is new when there is enough of it, and drops what has left the window.
    fn flush(
        &mut self,
        give: &mut impl FnMut(&[u8]) -> Result<bool, InflateError>,
        all: bool,
    ) -> Result<bool, InflateError> {
        let fresh = self.history.len() - self.given;
        if fresh == 0 || (!all && fresh < CHUNK) {
            return Ok(false);
        }
        let enough = give(&self.history[self.given..])?;
        self.given = self.history.len();
        if self.given > 2 * SNAPPY_WINDOW {
            let drop = self.given - SNAPPY_WINDOW;
            self.history.drain(..drop);
            self.given -= drop;
        }
        Ok(enough)
    }
}

/// Bytes of a tag, from its first one.
const fn tag_length(first: u8) -> usize {
    match first & 3 {
        0 => match first >> 2 {
            60 => 2,
            61 => 3,
            62 => 4,
            63 => 5,
            _ => 1,
        },
        1 => 2,
        2 => 3,
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn deflate(compressor: Compressor, data: &[u8]) -> Vec<u8> {
        match compressor {
            Compressor::Noop => data.to_vec(),
            Compressor::Snappy => snap::raw::Encoder::new().compress_vec(data).unwrap(),
            Compressor::Zlib => {
                use std::io::Write;
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(data).unwrap();
                encoder.finish().unwrap()
            }
            Compressor::Zstd => zstd::encode_all(data, 3).unwrap(),
        }
    }

    fn inflate(
        compressor: Compressor,
        data: &[u8],
        said: u32,
        chunk: usize,
    ) -> Result<Vec<u8>, InflateError> {
        let mut inflater = Inflater::new(compressor, said, data.len() as u32)?;
        let mut out = Vec::new();
        let mut last = Status::More;
        for piece in data.chunks(chunk.max(1)) {
            last = inflater.inflate(piece, &mut |bytes| {
                assert!(bytes.len() <= CHUNK * 3);
                out.extend_from_slice(bytes);
                ControlFlow::Continue(())
            })?;
        }
        assert!(last == Status::Done || data.is_empty());
        Ok(out)
    }

    const ALL: [Compressor; 4] = [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn what_was_compressed_comes_back(
            words in proptest::collection::vec(0u8..6, 1..9_000),
            repeat in 1usize..20,
            chunk in 1usize..5_000,
        ) {
            let data = words.repeat(repeat);
            for compressor in ALL {
                let packed = deflate(compressor, &data);
                prop_assert_eq!(&inflate(compressor, &packed, data.len() as u32, chunk).unwrap(), &data);
                // A false size is found out, and no more than it is given out.
                for said in [0, data.len() as u32 - 1, data.len() as u32 + 1] {
                    let told = inflate(compressor, &packed, said, chunk);
                    prop_assert!(matches!(told, Err(InflateError::SizeMismatch { .. })), "{compressor:?} {told:?}");
                }
            }
        }

        #[test]
        fn rubbish_does_no_harm(data in proptest::collection::vec(any::<u8>(), 1..400), said in 0u32..100_000) {
            for compressor in ALL {
                let mut inflater = Inflater::new(compressor, said, data.len() as u32).unwrap();
                let mut given = 0;
                let _ = inflater.inflate(&data, &mut |bytes| {
                    given += bytes.len();
                    ControlFlow::Continue(())
                });
                prop_assert!(given <= said as usize);
            }
        }
    }

    #[test]
    fn a_bomb_stops_at_the_size_it_told() {
        let bomb = deflate(Compressor::Zlib, &vec![0; 50 << 20]);
        assert!(matches!(
            inflate(Compressor::Zlib, &bomb, 1_000, 999),
            Err(InflateError::SizeMismatch { .. })
        ));
    }

    #[test]
    fn no_more_is_inflated_than_is_wanted() {
        let data = vec![7; 1 << 20];
        for compressor in ALL {
            let packed = deflate(compressor, &data);
            let mut inflater = Inflater::new(compressor, data.len() as u32, packed.len() as u32).unwrap();
            let mut given = 0;
            let status = inflater.inflate(&packed, &mut |bytes| {
                given += bytes.len();
                ControlFlow::Break(())
            });
            assert_eq!(status, Ok(Status::Stopped));
            assert!(given <= 2 * CHUNK, "{compressor:?} gave {given}");
        }
    }
}
