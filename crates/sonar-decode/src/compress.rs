//! Inflates OP_COMPRESSED in bounded memory: takes pieces of any size, hands out pieces, and stops when the consumer
//! wants no more.
//!
//! No message is ever in memory as a whole, neither compressed nor inflated. The snappy library has no streaming
//! decoder, so this module decodes it with a window of 64 KiB: the reference compressor works in blocks of that size
//! and refers no further back (<https://github.com/google/snappy/blob/main/format_description.txt>).
//!
//! The memory of a decoder is bounded: 0.2 MiB for snappy and zlib; for zstd the window that the data ask for, at
//! most 8 MiB for the first [`WIDE_WINDOWS`] and 2 MiB for the others (the default levels of compressors stay within
//! that). Decoders are reused, since setting one up costs more than inflating a small message.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use flate2::{Decompress, FlushDecompress};
use sonar_core::operation::Compressor;
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

/// The most bytes that are handed out at once.
pub const CHUNK: usize = 64 * 1024;
/// The first piece has at most this many bytes, and each later one more: a consumer that wants only the beginning
/// does not pay for the rest.
const FIRST_CHUNK: usize = 4 * 1024;
/// The most decoders of one pool in use at once.
pub const MAX_LIVE: usize = 64;
/// A pool has at least this many, however small its share.
const MIN_LIVE: usize = 8;
/// The most zstd decoders of one pool with a window of 8 MiB.
pub const WIDE_WINDOWS: usize = 4;
/// 2^23 bytes are 8 MiB, 2^21 are 2 MiB.
const WINDOW_LOGS: (u32, u32) = (23, 21);
/// An idle decoder that uses more memory than this, in bytes, is dropped.
const MAX_IDLE: usize = 1 << 20;
/// How far back snappy may refer.
const SNAPPY_WINDOW: usize = 64 * 1024;
/// Longest copy of snappy, in bytes.
const SNAPPY_COPY: usize = 64;
/// Short runs are copied in steps of this many bytes, and may write up to one step too far.
const STEP: usize = 16;

/// Data that cannot be inflated.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InflateError {
    /// The data contradict themselves.
    #[error("compressed data are damaged")]
    Damaged,
    /// The data end too early.
    #[error("compressed data end too early")]
    Truncated,
    /// The decoder could not be set up.
    #[error("no decoder")]
    Setup,
    /// The real size differs from the one in the message.
    #[error("the message states {stated} bytes, and has {found} or more")]
    SizeMismatch {
        /// `uncompressedSize` of the message.
        stated: u32,
        /// What was found.
        found: u64,
    },
    /// A snappy reference further back than the window.
    #[error("snappy reference of {0} bytes back is beyond the window")]
    Window(u32),
}

/// How far a message has been inflated.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum InflateStatus {
    /// It needs more compressed bytes.
    More,
    /// All of it was handed out, and its size is the stated one.
    Done,
    /// The consumer wants no more.
    Stopped,
}

/// Inflates one message.
pub struct Inflater {
    engine: Option<InflateEngine>,
    pool: Option<Inflaters>,
    gate: Gate,
    /// Compressed bytes that are still to come.
    left: u32,
    failed: Option<InflateError>,
}

/// Passes bytes from the decoder to the consumer, never more than the message states.
struct Gate {
    stated: u32,
    given: u32,
    stopped: bool,
}

type InflateOutput<'a> = &'a mut dyn FnMut(&[u8]) -> ControlFlow<()>;

impl Gate {
    /// How many bytes to decode before the next ones are handed out.
    const fn chunk(&self) -> usize {
        let grown = self.given as usize;
        if grown < FIRST_CHUNK {
            FIRST_CHUNK
        } else if grown > CHUNK {
            CHUNK
        } else {
            grown
        }
    }

    /// Hands bytes out. Returns whether the consumer wants more.
    fn give(&mut self, bytes: &[u8], output: InflateOutput<'_>) -> Result<bool, InflateError> {
        let found = u64::from(self.given) + bytes.len() as u64;
        if found > u64::from(self.stated) {
            return Err(InflateError::SizeMismatch { stated: self.stated, found });
        }
        self.given = found as u32;
        for piece in bytes.chunks(CHUNK) {
            if output(piece).is_break() {
                self.stopped = true;
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Inflater {
    /// An inflater for a message of `compressed` bytes that claims to have `uncompressed` ones.
    ///
    /// # Errors
    /// The decoder cannot be set up.
    pub fn new(compressor: Compressor, uncompressed: u32, compressed: u32) -> Result<Self, InflateError> {
        Ok(Self::with_engine(InflateEngine::new(compressor, true)?, uncompressed, compressed))
    }

    const fn with_engine(engine: InflateEngine, uncompressed: u32, compressed: u32) -> Self {
        let gate = Gate { stated: uncompressed, given: 0, stopped: false };
        Self { engine: Some(engine), pool: None, gate, left: compressed, failed: None }
    }

    /// Takes more compressed bytes and hands out what they inflate to, in pieces of at most [`CHUNK`]. Ignores bytes
    /// after those of the message, and everything after [`InflateStatus::Stopped`].
    ///
    /// # Errors
    /// The data are damaged, or their size differs from the stated one; no more than that is ever handed out. After
    /// an error every call returns the same one.
    pub fn inflate(
        &mut self,
        input: &[u8],
        output: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<InflateStatus, InflateError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = self.run(input, output);
        self.failed = result.err();
        result
    }

    fn run(&mut self, input: &[u8], output: InflateOutput<'_>) -> Result<InflateStatus, InflateError> {
        let (Some(engine), false) = (&mut self.engine, self.gate.stopped) else {
            return Ok(InflateStatus::Stopped);
        };
        let input = &input[..input.len().min(self.left as usize)];
        self.left -= input.len() as u32;
        let whole = engine.run(input, &mut self.gate, output)?;
        let Gate { stated, given, stopped } = self.gate;
        if stopped {
            return Ok(InflateStatus::Stopped);
        }
        match (self.left, given == stated, whole) {
            (1.., ..) => Ok(InflateStatus::More),
            (0, true, true) => Ok(InflateStatus::Done),
            (0, false, true) => Err(InflateError::SizeMismatch { stated, found: u64::from(given) }),
            (0, _, false) => Err(InflateError::Truncated),
        }
    }
}

impl Drop for Inflater {
    fn drop(&mut self) {
        if let (Some(pool), Some(engine)) = (self.pool.take(), self.engine.take()) {
            pool.put_back(engine);
        }
    }
}

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gate { stated, given, .. } = self.gate;
        f.debug_struct("Inflater").field("stated", &stated).field("given", &given).finish_non_exhaustive()
    }
}

/// Decoders for reuse: keeps one idle decoder of each kind, and limits the number in use. Clones share them. Meant
/// for one thread; the lock only allows the pool to move to another one.
#[derive(Clone)]
pub struct Inflaters(Arc<Mutex<Pool>>);

#[derive(Default)]
struct Pool {
    idle: [Option<InflateEngine>; 4],
    live: usize,
    wide: usize,
    /// The most that are in use at once, and those of them with the widest window.
    most: usize,
    most_wide: usize,
}

impl Default for Inflaters {
    fn default() -> Self {
        Self::share(1)
    }
}

impl Inflaters {
    /// A pool of [`MAX_LIVE`] divided by `share`. With less than all, none has the widest window.
    pub fn share(share: usize) -> Self {
        let live = (MAX_LIVE / share.max(1)).max(MIN_LIVE);
        let wide = if live < MAX_LIVE { 0 } else { WIDE_WINDOWS };
        Self(Arc::new(Mutex::new(Pool { most: live, most_wide: wide, ..Pool::default() })))
    }

    /// The most bytes of those that are in use now: an estimate.
    pub fn memory(&self) -> usize {
        let pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pool.wide * (1 << WINDOW_LOGS.0) + (pool.live - pool.wide) * (1 << WINDOW_LOGS.1)
    }

    /// An inflater as of [`Inflater::new`]. `None` if [`MAX_LIVE`] are in use or it cannot be set up: the message
    /// cannot be decoded then. Dropping an inflater makes room again.
    pub fn take(&self, compressor: Compressor, uncompressed: u32, compressed: u32) -> Option<Inflater> {
        let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.live >= pool.most {
            return None;
        }
        let wide = pool.wide < pool.most_wide;
        let engine = match pool.idle[compressor as usize].take() {
            Some(mut engine) => engine.reset(wide).then_some(engine),
            None => InflateEngine::new(compressor, wide).ok(),
        }?;
        pool.live += 1;
        pool.wide += usize::from(engine.is_wide());
        let mut inflater = Inflater::with_engine(engine, uncompressed, compressed);
        inflater.pool = Some(self.clone());
        Some(inflater)
    }

    /// Inflaters in use.
    pub fn live(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).live
    }

    fn put_back(&self, engine: InflateEngine) {
        let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pool.live -= 1;
        pool.wide -= usize::from(engine.is_wide());
        if engine.heap_bytes() <= MAX_IDLE {
            let place = engine.compressor() as usize;
            pool.idle[place] = Some(engine);
        }
    }
}

impl fmt::Debug for Inflaters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflaters").field("live", &self.live()).finish_non_exhaustive()
    }
}

/// A decoder.
enum InflateEngine {
    Noop,
    Snappy(Box<Snappy>),
    Zlib { decoder: Decompress, out: Box<[u8]>, ended: bool },
    Zstd { decoder: DCtx<'static>, out: Box<[u8]>, ended: bool, wide: bool },
}

fn chunk_buffer() -> Box<[u8]> {
    vec![0; CHUNK].into_boxed_slice()
}

impl InflateEngine {
    fn new(compressor: Compressor, wide: bool) -> Result<Self, InflateError> {
        Ok(match compressor {
            Compressor::Noop => Self::Noop,
            Compressor::Snappy => Self::Snappy(Box::default()),
            Compressor::Zlib => {
                Self::Zlib { decoder: Decompress::new(true), out: chunk_buffer(), ended: false }
            }
            Compressor::Zstd => {
                let mut decoder = DCtx::try_create().ok_or(InflateError::Setup)?;
                limit_window(&mut decoder, wide).ok_or(InflateError::Setup)?;
                Self::Zstd { decoder, out: chunk_buffer(), ended: true, wide }
            }
        })
    }

    /// Prepares it for another message. Returns whether that succeeded.
    fn reset(&mut self, want_wide: bool) -> bool {
        match self {
            Self::Noop => true,
            Self::Snappy(snappy) => {
                snappy.reset();
                true
            }
            Self::Zlib { decoder, ended, .. } => {
                decoder.reset(true);
                *ended = false;
                true
            }
            Self::Zstd { decoder, ended, wide, .. } => {
                (*ended, *wide) = (true, want_wide);
                decoder.reset(ResetDirective::SessionOnly).is_ok()
                    && limit_window(decoder, want_wide).is_some()
            }
        }
    }

    const fn compressor(&self) -> Compressor {
        match self {
            Self::Noop => Compressor::Noop,
            Self::Snappy(_) => Compressor::Snappy,
            Self::Zlib { .. } => Compressor::Zlib,
            Self::Zstd { .. } => Compressor::Zstd,
        }
    }

    const fn is_wide(&self) -> bool {
        matches!(self, Self::Zstd { wide: true, .. })
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::Noop => 0,
            Self::Snappy(_) => SNAPPY_BUFFER,
            Self::Zlib { .. } => 2 * CHUNK,
            Self::Zstd { decoder, .. } => CHUNK + decoder.sizeof(),
        }
    }

    /// Inflates until the input is used up or the consumer wants no more. Returns whether the data may end here.
    fn run(
        &mut self,
        mut input: &[u8],
        gate: &mut Gate,
        output: InflateOutput<'_>,
    ) -> Result<bool, InflateError> {
        match self {
            Self::Noop => gate.give(input, output).map(|_| true),
            Self::Snappy(snappy) => snappy.run(input, gate, output),
            Self::Zlib { decoder, out, ended } => {
                // Bytes behind the end are skipped, as zlib's own one-call function does.
                while !*ended {
                    let (read, wrote) = (decoder.total_in(), decoder.total_out());
                    let room = gate.chunk();
                    let status = decoder
                        .decompress(input, &mut out[..room], FlushDecompress::None)
                        .map_err(|_| InflateError::Damaged)?;
                    let read = (decoder.total_in() - read) as usize;
                    let wrote = (decoder.total_out() - wrote) as usize;
                    input = &input[read..];
                    *ended = status == flate2::Status::StreamEnd;
                    if wrote > 0 && !gate.give(&out[..wrote], output)? {
                        break;
                    }
                    if wrote < room && (input.is_empty() || (read == 0 && wrote == 0)) {
                        break;
                    }
                }
                Ok(*ended)
            }
            Self::Zstd { decoder, out, ended, .. } => {
                let mut from = InBuffer::around(input);
                loop {
                    // After a frame another one may come, but an empty call would already begin it.
                    if *ended && from.pos() == input.len() {
                        break;
                    }
                    let (before, room) = (from.pos(), gate.chunk());
                    let mut to = OutBuffer::around(&mut out[..room]);
                    let hint =
                        decoder.decompress_stream(&mut to, &mut from).map_err(|_| InflateError::Damaged)?;
                    let (read, wrote) = (from.pos() - before, to.pos());
                    *ended = hint == 0;
                    if wrote > 0 && !gate.give(&out[..wrote], output)? {
                        break;
                    }
                    if wrote < room && (from.pos() == input.len() || (read == 0 && wrote == 0)) {
                        break;
                    }
                }
                Ok(*ended)
            }
        }
    }
}

fn limit_window(decoder: &mut DCtx<'static>, wide: bool) -> Option<()> {
    let log = if wide { WINDOW_LOGS.0 } else { WINDOW_LOGS.1 };
    decoder.set_parameter(DParameter::WindowLogMax(log)).ok().map(|_| ())
}

/// The window, a chunk to hand out, and room to write too far.
const SNAPPY_BUFFER: usize = SNAPPY_WINDOW + CHUNK + SNAPPY_COPY + STEP;

/// A snappy decoder in raw block format.
struct Snappy {
    /// The last bytes made, up to `end`; those from `given` on have not been handed out.
    buffer: Box<[u8]>,
    end: usize,
    given: usize,
    /// Bytes that are still to be made.
    left: u32,
    state: SnappyState,
    /// Bytes of a tag or of the preamble that have come.
    partial: [u8; 5],
    have: usize,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum SnappyState {
    /// The preamble: the uncompressed length.
    Length,
    Tag,
    /// A literal with this many bytes still to come.
    Literal(u32),
}

/// What a tag says.
#[derive(Copy, Clone)]
enum SnappyElement {
    Literal { len: u64 },
    Copy { len: u32, offset: u32 },
}

impl Default for Snappy {
    fn default() -> Self {
        Self {
            buffer: vec![0; SNAPPY_BUFFER].into_boxed_slice(),
            end: 0,
            given: 0,
            left: 0,
            state: SnappyState::Length,
            partial: [0; 5],
            have: 0,
        }
    }
}

impl Snappy {
    fn reset(&mut self) {
        (self.end, self.given, self.left, self.have) = (0, 0, 0, 0);
        self.state = SnappyState::Length;
    }

    fn run(
        &mut self,
        mut input: &[u8],
        gate: &mut Gate,
        output: InflateOutput<'_>,
    ) -> Result<bool, InflateError> {
        while !input.is_empty() {
            match self.state {
                SnappyState::Length => {
                    let (first, rest) = (input[0], &input[1..]);
                    input = rest;
                    if self.have == self.partial.len() {
                        return Err(InflateError::Damaged);
                    }
                    self.partial[self.have] = first;
                    self.have += 1;
                    if first & 0x80 == 0 {
                        let found = self.partial[..self.have]
                            .iter()
                            .rev()
                            .fold(0u64, |sum, byte| sum << 7 | u64::from(byte & 0x7f));
                        if found != u64::from(gate.stated) {
                            return Err(InflateError::SizeMismatch { stated: gate.stated, found });
                        }
                        self.left = gate.stated;
                        self.have = 0;
                        self.state = SnappyState::Tag;
                    }
                }
                SnappyState::Literal(len) => {
                    let room = (SNAPPY_WINDOW + CHUNK).saturating_sub(self.end);
                    let take = room.min(input.len()).min(len as usize);
                    self.buffer[self.end..self.end + take].copy_from_slice(&input[..take]);
                    self.end += take;
                    input = &input[take..];
                    let rest = len - take as u32;
                    self.state = if rest == 0 { SnappyState::Tag } else { SnappyState::Literal(rest) };
                }
                SnappyState::Tag => {
                    input = self.fast(input, gate)?;
                    if self.state == SnappyState::Tag && !input.is_empty() && self.has_room(gate) {
                        input = self.slow(input, gate)?;
                    }
                }
            }
            if !self.has_room(gate) && !self.flush(gate, output)? {
                return Ok(false);
            }
        }
        if self.end > self.given && !self.flush(gate, output)? {
            return Ok(false);
        }
        Ok(self.left == 0 && self.state == SnappyState::Tag && self.have == 0)
    }

    /// Whether more fits before bytes have to be handed out.
    fn has_room(&self, gate: &Gate) -> bool {
        self.end < SNAPPY_WINDOW + CHUNK && self.end - self.given < gate.chunk()
    }

    /// Decodes elements that are complete in the input, while there is room to spare on both sides. Returns the rest
    /// of the input.
    fn fast<'a>(&mut self, mut input: &'a [u8], gate: &Gate) -> Result<&'a [u8], InflateError> {
        if self.have > 0 {
            return Ok(input);
        }
        // Where in the buffer to hand out.
        let limit = (self.given + gate.chunk()).min(SNAPPY_WINDOW + CHUNK);
        while self.end < limit {
            let Some((head, _)) = input.split_first_chunk::<{ 1 + STEP }>() else { break };
            let [first, a, b, c, d, ..] = *head;
            let (element, tag) = element([first, a, b, c, d]);
            match element {
                SnappyElement::Literal { len } if len <= STEP as u64 && tag == 1 => {
                    self.count(len, gate)?;
                    let to = self.end;
                    self.buffer[to..to + STEP].copy_from_slice(&head[1..]);
                    self.end += len as usize;
                    input = &input[1 + len as usize..];
                }
                SnappyElement::Literal { len } => {
                    self.count(len, gate)?;
                    self.state = SnappyState::Literal(len as u32);
                    return Ok(&input[tag..]);
                }
                SnappyElement::Copy { len, offset } => {
                    self.copy(len, offset, gate)?;
                    input = &input[tag..];
                }
            }
        }
        Ok(input)
    }

    /// Decodes one element, whose tag may come in parts. Returns the rest of the input.
    fn slow<'a>(&mut self, mut input: &'a [u8], gate: &Gate) -> Result<&'a [u8], InflateError> {
        while !input.is_empty() && (self.have == 0 || self.have < element(self.partial).1) {
            self.partial[self.have] = input[0];
            self.have += 1;
            input = &input[1..];
        }
        let (element, tag) = element(self.partial);
        if self.have == tag {
            self.have = 0;
            match element {
                SnappyElement::Literal { len } => {
                    self.count(len, gate)?;
                    self.state = SnappyState::Literal(len as u32);
                }
                SnappyElement::Copy { len, offset } => self.copy(len, offset, gate)?,
            }
        }
        Ok(input)
    }

    /// Counts `len` bytes as decoded.
    #[inline]
    fn count(&mut self, len: u64, gate: &Gate) -> Result<(), InflateError> {
        if len > u64::from(self.left) {
            let found = u64::from(gate.stated - self.left) + len;
            return Err(InflateError::SizeMismatch { stated: gate.stated, found });
        }
        self.left -= len as u32;
        Ok(())
    }

    #[inline]
    fn copy(&mut self, len: u32, offset: u32, gate: &Gate) -> Result<(), InflateError> {
        let made = gate.stated - self.left;
        if offset == 0 || offset > made {
            return Err(InflateError::Damaged);
        }
        if offset as usize > SNAPPY_WINDOW {
            return Err(InflateError::Window(offset));
        }
        self.count(u64::from(len), gate)?;
        let (len, offset, to) = (len as usize, offset as usize, self.end);
        let from = to - offset;
        if offset >= STEP {
            // Each step reads only what lies before it, and the last one may run over.
            let mut at = 0;
            while at < len {
                self.buffer.copy_within(from + at..from + at + STEP, to + at);
                at += STEP;
            }
        } else {
            // The copy runs into what it writes: what is there repeats, twice as long each time.
            let mut made = 0;
            while made < len {
                let step = (offset + made).min(len - made);
                self.buffer.copy_within(from..from + step, to + made);
                made += step;
            }
        }
        self.end = to + len;
        Ok(())
    }

    /// Hands out what is new, and keeps the window.
    fn flush(&mut self, gate: &mut Gate, output: InflateOutput<'_>) -> Result<bool, InflateError> {
        let more = gate.give(&self.buffer[self.given..self.end], output)?;
        // Not each time: many pieces are shorter than the window.
        if self.end >= SNAPPY_WINDOW + CHUNK / 2 {
            self.buffer.copy_within(self.end - SNAPPY_WINDOW..self.end, 0);
            self.end = SNAPPY_WINDOW;
        }
        self.given = self.end;
        Ok(more)
    }
}

/// What the tag at the beginning of `bytes` means, and its length. If `bytes` is shorter than that, only the length
/// is valid.
#[inline]
fn element(bytes: [u8; 5]) -> (SnappyElement, usize) {
    let [first, a, b, c, d] = bytes;
    let len = u32::from(first >> 2);
    match first & 3 {
        0 => {
            let (len, tag) = match len {
                60 => (u32::from(a), 2),
                61 => (u32::from_le_bytes([a, b, 0, 0]), 3),
                62 => (u32::from_le_bytes([a, b, c, 0]), 4),
                63 => (u32::from_le_bytes([a, b, c, d]), 5),
                short => (short, 1),
            };
            (SnappyElement::Literal { len: u64::from(len) + 1 }, tag)
        }
        1 => {
            (SnappyElement::Copy { len: (len & 7) + 4, offset: u32::from(first >> 5) << 8 | u32::from(a) }, 2)
        }
        2 => (SnappyElement::Copy { len: len + 1, offset: u32::from_le_bytes([a, b, 0, 0]) }, 3),
        _ => (SnappyElement::Copy { len: len + 1, offset: u32::from_le_bytes([a, b, c, d]) }, 5),
    }
}
