//! The BSON skimmer: walks types and lengths, and reads a value only when it is wanted.
//!
//! It takes a document in chunks of any size and calls a [`Visitor`] for each element. The visitor decides whether to
//! enter an embedded document; others are skipped by their length. Only the position is stored between chunks: the
//! caller presents the bytes that were not consumed, at most [`MAX_ELEMENT`], again with more behind them.
//!
//! Specification: <https://bsonspec.org/spec.html>.

mod kinds;

use memchr::memchr;

pub use self::kinds::ElementKind;
use self::kinds::{FIXED, VARIABLE};

/// The most bytes of a key; a longer one makes the document [`MalformedBson::KeyTooLong`].
pub const MAX_KEY: usize = 4_096;
/// The most bytes of a string, code or binary value that is handed to the visitor; a longer one is
/// skipped, and the visitor gets [`BsonValue::Long`].
pub const MAX_VALUE: usize = 1_024;
/// The most bytes that the skimmer needs at once.
pub const MAX_ELEMENT: usize = MAX_KEY + MAX_VALUE + 64;
/// The deepest nesting; deeper documents are skipped, not walked. The server allows 100 (and a few
/// more inside its own messages).
pub const MAX_DEPTH: usize = 160;
/// The largest document: 16 MiB and what the server allows itself on top.
pub const MAX_DOCUMENT: u32 = 48_000_000;

/// A scalar, as the visitor gets it.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum BsonValue<'a> {
    /// The bytes of the value: of strings, symbols and code without length and terminator, of binary values the data,
    /// of all others as on the wire.
    Bytes(&'a [u8]),
    /// Longer than [`MAX_VALUE`]: skipped.
    Long,
}

/// A key, with its first eight bytes as a word for quick comparison and hashing.
#[derive(Copy, Clone, Debug)]
pub struct Key<'a> {
    /// The bytes, without the terminator. Not checked to be UTF-8.
    pub bytes: &'a [u8],
    /// The first eight bytes, little-endian, padded with zeros.
    pub word: u64,
}

impl<'a> Key<'a> {
    /// From bytes without a NUL.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, word: word_of(bytes) }
    }

    /// Whether the key begins with `$`.
    #[inline]
    pub const fn is_operator(&self) -> bool {
        self.word as u8 == b'$'
    }
}

/// The first eight bytes of a short string as a [`Key`] holds them.
pub const fn word_of(bytes: &[u8]) -> u64 {
    let mut word = 0;
    let mut i = 0;
    while i < 8 && i < bytes.len() {
        word |= (bytes[i] as u64) << (8 * i);
        i += 1;
    }
    word
}

/// What to do after an element.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ElementStep {
    /// Go on; every byte of the value may matter.
    Next,
    /// Go on; only this property of the value matters. For callers that remember layouts.
    Using(Use),
    /// Skip the rest of the document around this element. [`Visitor::close`] is not called for it.
    Leave,
}

/// The property of a value on which a visitor's result depends.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Use {
    /// Its type alone.
    Type,
    /// Its type alone; of the elements of an array, only which types occur.
    Member,
    /// Its type, and whether it is zero (false).
    Truth,
    /// It is a string that does not begin with `$`.
    Plain,
    /// It is a number that is read from each message.
    Number(NumberSlot),
}

/// The numbers that are read from each message although its layout is known.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NumberSlot {
    /// The id of a cursor.
    Cursor,
    /// `n`: documents matched, or inserted.
    N,
    /// `nModified`.
    Modified,
    /// Documents of a batch.
    Documents,
}

/// Receives the elements of a document.
///
/// For one document the calls are: [`element`](Self::element) for each scalar and
/// [`open`](Self::open) for each embedded document or array, in order; after [`Opened::Enter`] the calls
/// for its content and one [`close`](Self::close) (unless left by [`ElementStep::Leave`]). The outermost
/// document is neither opened nor closed.
pub trait Visitor {
    /// A scalar.
    fn element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep;
    /// An embedded document (`array` false) or array.
    fn open(&mut self, key: Key<'_>, array: bool) -> Opened;
    /// The end of one that was entered.
    fn close(&mut self);
}

/// Answer to [`Visitor::open`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Opened {
    /// Walk it.
    Enter,
    /// Skip it.
    Skip,
    /// Skip it; it only matters that there is one more document.
    Count,
    /// Skip it and the rest of the document around it.
    Leave,
}

/// How far a chunk was read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Fed {
    /// The document ended after this many bytes of the chunk.
    Done(usize),
    /// This many bytes were consumed; present the rest again with more behind it.
    More(usize),
}

/// A document that contradicts itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MalformedBson {
    /// A length that is too small, or reaches beyond what it stands in.
    #[error("length {0} does not fit")]
    Length(i32),
    /// A type number that BSON does not define.
    #[error("element type 0x{0:02x} is not defined")]
    Kind(u8),
    /// A key longer than [`MAX_KEY`].
    #[error("key is longer than {MAX_KEY} bytes")]
    KeyTooLong,
    /// A document that does not end where its length says.
    #[error("document does not end where its length says")]
    End,
}

/// Walks one document after another. Memory: a stack of at most [`MAX_DEPTH`] words, kept for reuse.
#[derive(Debug, Default)]
pub struct Skimmer {
    /// Absolute end of each open document, outermost first.
    ends: Vec<u64>,
    /// Absolute position of the next byte to be presented.
    position: u64,
    /// Bytes to skip before going on.
    skip: u64,
    started: bool,
}

impl Skimmer {
    /// Ready for a document.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets its position; ready for a document.
    pub fn reset(&mut self) {
        self.ends.clear();
        self.position = 0;
        self.skip = 0;
        self.started = false;
    }

    /// Whether a document has begun and not ended.
    pub fn in_document(&self) -> bool {
        self.started
    }

    /// Reads on through `chunk`. `limit` is the most bytes that the document may have: what is left of the message or
    /// section around it.
    ///
    /// # Errors
    /// The document contradicts itself; nothing more can be read from it.
    #[inline]
    pub fn feed<V: Visitor>(
        &mut self,
        chunk: &[u8],
        limit: u64,
        visitor: &mut V,
    ) -> Result<Fed, MalformedBson> {
        let mut at = 0;
        if !self.started {
            let Some(length) = chunk.first_chunk::<4>() else { return Ok(Fed::More(0)) };
            let length = i32::from_le_bytes(*length);
            if length < 5 || length as u32 > MAX_DOCUMENT || length as u64 > limit {
                return Err(MalformedBson::Length(length));
            }
            self.reset();
            self.started = true;
            self.ends.push(length as u64);
            at = 4;
        }
        // Where the chunk begins, so that positions follow from `at` alone.
        let base = self.position;
        let fed = self.walk(chunk, at, base, visitor);
        if let Ok(Fed::Done(at) | Fed::More(at)) = fed {
            self.position = base + at as u64;
        }
        fed
    }

    #[inline]
    fn walk<V: Visitor>(
        &mut self,
        chunk: &[u8],
        mut at: usize,
        base: u64,
        visitor: &mut V,
    ) -> Result<Fed, MalformedBson> {
        // A document that was left by its length ends without a look at its terminator.
        if self.skip > 0 && !self.pass(chunk, &mut at, self.skip) {
            return Ok(Fed::More(at));
        }
        loop {
            let Some(&end) = self.ends.last() else {
                self.started = false;
                return Ok(Fed::Done(at));
            };
            let rest = &chunk[at..];
            let Some((&number, after)) = rest.split_first() else { return Ok(Fed::More(at)) };
            if number == 0 {
                at += 1;
                if base + at as u64 != end {
                    return Err(MalformedBson::End);
                }
                self.ends.pop();
                if self.ends.is_empty() {
                    self.started = false;
                    return Ok(Fed::Done(at));
                }
                visitor.close();
                continue;
            }
            let Some(key) = key_at(after)? else { return Ok(Fed::More(at)) };
            let head = 1 + key.bytes.len() + 1;
            let Some(body) = rest.get(head..) else { return Ok(Fed::More(at)) };
            // What is left of the document after this key, with its terminator.
            let Some(room) = end.checked_sub(base + (at + head) as u64) else {
                return Err(MalformedBson::End);
            };
            let Some(kind) = ElementKind::from_number(number) else {
                return Err(MalformedBson::Kind(number));
            };
            if matches!(kind, ElementKind::Document | ElementKind::Array) {
                let Some(length) = body.first_chunk::<4>() else { return Ok(Fed::More(at)) };
                let length = i32::from_le_bytes(*length);
                if length < 5 || length as u64 >= room {
                    return Err(MalformedBson::Length(length));
                }
                let opened = if self.ends.len() < MAX_DEPTH {
                    visitor.open(key, kind == ElementKind::Array)
                } else {
                    Opened::Skip
                };
                at += head;
                let past = match opened {
                    Opened::Enter => {
                        self.ends.push(base + at as u64 + length as u64);
                        at += 4;
                        continue;
                    }
                    Opened::Skip | Opened::Count => length as u64,
                    Opened::Leave => self.leave(base + at as u64),
                };
                if !self.pass(chunk, &mut at, past) {
                    return Ok(Fed::More(at));
                }
                continue;
            }
            let fixed = FIXED[usize::from(number)];
            let size = if fixed == VARIABLE {
                let Some(size) = size_of_value(kind, body)? else { return Ok(Fed::More(at)) };
                size
            } else {
                ValueSize { total: u64::from(fixed), from: 0, to: usize::from(fixed) }
            };
            if size.total >= room {
                return Err(MalformedBson::Length(size.total.min(i32::MAX as u64) as i32));
            }
            let value = if size.total as usize <= MAX_VALUE {
                match body.get(size.from..size.to) {
                    Some(bytes) if body.len() as u64 >= size.total => BsonValue::Bytes(bytes),
                    _ => return Ok(Fed::More(at)),
                }
            } else {
                BsonValue::Long
            };
            let step = visitor.element(key, kind, value);
            at += head;
            let past = if step == ElementStep::Leave { self.leave(base + at as u64) } else { size.total };
            if !self.pass(chunk, &mut at, past) {
                return Ok(Fed::More(at));
            }
        }
    }

    /// Closes the innermost document before its end. Returns how much of it is left at `position`.
    fn leave(&mut self, position: u64) -> u64 {
        self.ends.pop().map_or(0, |end| end - position)
    }

    /// Passes over bytes that are missing. If they are not all of a value that is skipped anyway, the rest of the innermost
    /// document that reaches beyond them is skipped, too. Returns false if only the outermost one does, or none.
    pub fn jump<V: Visitor>(&mut self, bytes: u64, visitor: &mut V) -> bool {
        if self.skips(bytes) {
            self.skip -= bytes;
            self.position += bytes;
            return true;
        }
        let to = self.position + bytes;
        while self.ends.len() > 1
            && let Some(end) = self.ends.pop()
        {
            visitor.close();
            if end >= to {
                self.position = to;
                self.skip = end - to;
                return true;
            }
        }
        false
    }

    /// Whether an element is next.
    pub fn is_at_key(&self) -> bool {
        self.started && self.skip == 0
    }

    /// Whether the next `bytes` belong to a value that is skipped.
    pub fn skips(&self, bytes: u64) -> bool {
        self.started && self.skip >= bytes
    }

    /// Skips bytes. Returns false if the chunk ends first; the rest is remembered.
    #[inline]
    fn pass(&mut self, chunk: &[u8], at: &mut usize, bytes: u64) -> bool {
        let step = bytes.min((chunk.len() - *at) as u64);
        *at += step as usize;
        self.skip = bytes - step;
        self.skip == 0
    }
}

/// Where a value lies in the bytes after its key.
struct ValueSize {
    /// All of it.
    total: u64,
    /// The part that the visitor gets.
    from: usize,
    to: usize,
}

/// Size of a scalar whose kind does not determine it; `None` if `body` is too short.
#[inline]
fn size_of_value(kind: ElementKind, body: &[u8]) -> Result<Option<ValueSize>, MalformedBson> {
    let prefixed = || body.first_chunk::<4>().map(|bytes| i32::from_le_bytes(*bytes));
    match kind {
        ElementKind::String | ElementKind::Symbol | ElementKind::JavaScript => match prefixed() {
            None => Ok(None),
            Some(length) if length < 1 => Err(MalformedBson::Length(length)),
            Some(length) => {
                Ok(Some(ValueSize { total: 4 + length as u64, from: 4, to: 3 + length as usize }))
            }
        },
        ElementKind::Binary => match prefixed() {
            None => Ok(None),
            Some(length) if length < 0 => Err(MalformedBson::Length(length)),
            Some(length) => {
                Ok(Some(ValueSize { total: 5 + length as u64, from: 5, to: 5 + length as usize }))
            }
        },
        ElementKind::DbPointer => match prefixed() {
            None => Ok(None),
            Some(length) if length < 1 => Err(MalformedBson::Length(length)),
            Some(length) => {
                Ok(Some(ValueSize { total: 16 + length as u64, from: 4, to: 3 + length as usize }))
            }
        },
        ElementKind::JavaScriptWithScope => match prefixed() {
            None => Ok(None),
            Some(length) if length < 14 => Err(MalformedBson::Length(length)),
            Some(length) => Ok(Some(ValueSize { total: length as u64, from: 0, to: length as usize })),
        },
        ElementKind::Regex => {
            // Two C strings, the only scalar without a length in front.
            let Some(pattern) = cstring_end(body, 0)? else { return Ok(None) };
            let Some(options) = cstring_end(body, pattern)? else { return Ok(None) };
            Ok(Some(ValueSize { total: options as u64, from: 0, to: pattern - 1 }))
        }
        _ => Ok(None),
    }
}

/// Bytes of the scalar of this kind at the beginning of `body`; `None` if it is malformed or incomplete.
#[inline]
pub(crate) fn value_size(kind: ElementKind, body: &[u8]) -> Option<usize> {
    let size = match kind.fixed_size() {
        Some(size) => usize::from(size),
        None => usize::try_from(size_of_value(kind, body).ok()??.total).ok()?,
    };
    (size <= body.len()).then_some(size)
}

/// Offset after the terminator of the C string at `from`; `None` if it has not come yet.
fn cstring_end(body: &[u8], from: usize) -> Result<Option<usize>, MalformedBson> {
    let window = &body[from..body.len().min(from + MAX_VALUE / 2)];
    match memchr(0, window) {
        Some(length) => Ok(Some(from + length + 1)),
        None if window.len() == MAX_VALUE / 2 => Err(MalformedBson::KeyTooLong),
        None => Ok(None),
    }
}

/// The C string at the beginning of `bytes`; `None` if its end has not come yet.
#[inline(always)]
pub(crate) fn key_at(bytes: &[u8]) -> Result<Option<Key<'_>>, MalformedBson> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    if let Some(first) = bytes.first_chunk::<8>() {
        let word = u64::from_le_bytes(*first);
        let zeros = word.wrapping_sub(LOW) & !word & HIGH;
        if zeros != 0 {
            let length = (zeros.trailing_zeros() / 8) as usize;
            let mask = (1u64 << (8 * length)).wrapping_sub(1);
            return Ok(Some(Key { bytes: &bytes[..length], word: word & mask }));
        }
        let window = &bytes[..bytes.len().min(MAX_KEY + 1)];
        return match memchr(0, window) {
            Some(length) => Ok(Some(Key { bytes: &bytes[..length], word })),
            None if window.len() > MAX_KEY => Err(MalformedBson::KeyTooLong),
            None => Ok(None),
        };
    }
    Ok(bytes.iter().position(|&byte| byte == 0).map(|length| Key::new(&bytes[..length])))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records every call.
    #[derive(Default)]
    struct CallLog(Vec<String>);

    impl Visitor for CallLog {
        fn element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
            let size = match value {
                BsonValue::Bytes(bytes) => bytes.len() as i64,
                BsonValue::Long => -1,
            };
            self.0.push(format!("{}:{kind:?}:{size}", String::from_utf8_lossy(key.bytes)));
            if key.bytes == b"leave" { ElementStep::Leave } else { ElementStep::Next }
        }
        fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
            self.0.push(format!("{}{}", String::from_utf8_lossy(key.bytes), if array { "[" } else { "{" }));
            if key.bytes == b"skip" { Opened::Skip } else { Opened::Enter }
        }
        fn close(&mut self) {
            self.0.push("}".into());
        }
    }

    /// Puts a length around elements.
    fn document(elements: &[&[u8]]) -> Vec<u8> {
        let body = elements.concat();
        [&(body.len() as u32 + 5).to_le_bytes(), body.as_slice(), &[0]].concat()
    }

    /// Feeds `bytes` in pieces of `piece` bytes, and presents again what was not consumed.
    fn walk(bytes: &[u8], piece: usize) -> Result<Vec<String>, MalformedBson> {
        let (mut skimmer, mut log, mut carry) = (Skimmer::new(), CallLog::default(), Vec::new());
        for part in bytes.chunks(piece) {
            carry.extend_from_slice(part);
            match skimmer.feed(&carry, bytes.len() as u64, &mut log)? {
                Fed::Done(used) => {
                    assert_eq!(used, carry.len());
                    return Ok(log.0);
                }
                Fed::More(used) => drop(carry.drain(..used)),
            }
        }
        Ok(vec!["unfinished".into()])
    }

    fn every_kind() -> Vec<u8> {
        let inner = document(&[b"\x10x\0\x01\0\0\0"]);
        let scope = [&(4 + 4 + 2 + inner.len() as u32).to_le_bytes()[..], b"\x02\0\0\0f\0", &inner].concat();
        document(&[
            b"\x01a\0\0\0\0\0\0\0\xf8\x3f",
            b"\x02b\0\x03\0\0\0hi\0",
            &[b"\x03c\0".as_slice(), &inner].concat(),
            &[b"\x04d\0".as_slice(), &inner].concat(),
            b"\x05e\0\x02\0\0\0\x04\xaa\xbb",
            b"\x06f\0",
            b"\x07g\0abcdefghijkl",
            b"\x08h\0\x01",
            b"\x09i\0abcdefgh",
            b"\x0aj\0",
            b"\x0bk\0^x\0im\0",
            b"\x0cl\0\x02\0\0\0d\0abcdefghijkl",
            b"\x0dm\0\x02\0\0\0f\0",
            b"\x0en\0\x02\0\0\0s\0",
            &[b"\x0fo\0".as_slice(), &scope].concat(),
            b"\x10p\0\x01\0\0\0",
            b"\x11q\0abcdefgh",
            b"\x12r\0abcdefgh",
            b"\x13s\0abcdefghijklmnop",
            b"\xfft\0",
            b"\x7fu\0",
            &[b"\x03skip\0".as_slice(), &inner].concat(),
            &[b"\x03v\0".as_slice(), &document(&[b"\x08leave\0\x01", b"\x0agone\0"])].concat(),
            b"\x0alast_key_longer_than_a_word\0",
        ])
    }

    #[test]
    fn every_kind_is_walked_in_pieces_of_every_size() {
        let bytes = every_kind();
        let whole = walk(&bytes, bytes.len()).unwrap();
        assert_eq!(
            whole.join(" "),
            "a:Double:8 b:String:2 c{ x:Int32:4 } d[ x:Int32:4 } e:Binary:2 f:Undefined:0 g:ObjectId:12 \
             h:Boolean:1 i:DateTime:8 j:Null:0 k:Regex:2 l:DbPointer:1 m:JavaScript:1 n:Symbol:1 \
             o:JavaScriptWithScope:22 p:Int32:4 q:Timestamp:8 r:Int64:8 s:Decimal128:16 t:MinKey:0 \
             u:MaxKey:0 skip{ v{ leave:Boolean:1 last_key_longer_than_a_word:Null:0"
        );
        for piece in 1..bytes.len() {
            assert_eq!(walk(&bytes, piece).unwrap(), whole, "pieces of {piece}");
        }
    }

    #[test]
    fn no_flipped_byte_and_no_prefix_does_harm() {
        let bytes = every_kind();
        for at in 0..bytes.len() {
            assert!(walk(&bytes[..at], 7).is_err() || walk(&bytes[..at], 7).unwrap() == ["unfinished"]);
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                let (together, apart) = (walk(&flipped, flipped.len()), walk(&flipped, 3));
                // A document that now claims to be shorter leaves bytes behind; `walk` would object.
                if at >= 4 {
                    assert_eq!(together, apart, "byte {at} bit {bit}");
                }
            }
        }
    }

    #[test]
    fn a_long_value_is_passed_over() {
        let long = [b"\x02s\0".as_slice(), &2_001u32.to_le_bytes(), &[b'x'; 2_000], &[0]].concat();
        let bytes = document(&[&long, b"\x0az\0"]);
        assert_eq!(walk(&bytes, bytes.len()).unwrap(), ["s:String:-1", "z:Null:0"]);
        assert_eq!(walk(&bytes, 10).unwrap(), ["s:String:-1", "z:Null:0"]);
    }

    #[test]
    fn a_length_beyond_what_is_around_it_is_refused() {
        let bytes = document(&[b"\x03c\0\xff\0\0\0\0"]);
        assert_eq!(walk(&bytes, 99), Err(MalformedBson::Length(255)));
        let mut skimmer = Skimmer::new();
        assert_eq!(
            skimmer.feed(&bytes, 4, &mut CallLog::default()),
            Err(MalformedBson::Length(bytes.len() as i32))
        );
    }
}
