//! Headers of messages, and how to recognise a message when nothing before it vouches for it.

use sonar_core::operation::Opcode;

/// Bytes of a message header.
pub const HEADER: usize = 16;
/// The longest message: `maxMessageSizeBytes` and room for what a server may add.
pub const MAX_MESSAGE: u32 = 48_000_000 + 64 * 1024;

/// A message header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Bytes of the message, this header included.
    pub length: u32,
    /// Identifier of this message.
    pub request_id: u32,
    /// `requestID` of the message that this one answers.
    pub response_to: u32,
    /// Opcode number, known or not.
    pub opcode: u32,
}

impl Header {
    /// Reads a header; `None` if `bytes` has fewer than [`HEADER`] bytes, or the length or the opcode is impossible.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| bytes.get(at..at + 4)?.first_chunk().map(|word| u32::from_le_bytes(*word));
        let header =
            Self { length: word(0)?, request_id: word(4)?, response_to: word(8)?, opcode: word(12)? };
        let plausible = (HEADER as u32..=MAX_MESSAGE).contains(&header.length) && header.opcode < 10_000;
        plausible.then_some(header)
    }

    /// The header as it is on the wire.
    pub fn bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let words = [self.length, self.request_id, self.response_to, self.opcode];
        bytes
            .chunks_exact_mut(4)
            .zip(words)
            .for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// The opcode, if it is known.
    pub const fn known(&self) -> Option<Opcode> {
        Opcode::from_number(self.opcode)
    }
}

/// Whether `bytes` can be the beginning of a message when nothing before it vouches for it: the header has a known
/// opcode, and the available part of the body is consistent with it. `None`: too few bytes to decide.
pub fn looks_like_message(bytes: &[u8]) -> Option<bool> {
    if bytes.len() < HEADER {
        return None;
    }
    let Some(header) = Header::read(bytes) else { return Some(false) };
    let Some(opcode) = header.known() else { return Some(false) };
    let body = &bytes[HEADER..];
    let room = header.length as usize - HEADER;
    let word = |at: usize| body.get(at..at + 4).and_then(|w| w.first_chunk().map(|w| u32::from_le_bytes(*w)));
    match opcode {
        Opcode::Msg => {
            let flags = word(0)?;
            // checksumPresent, moreToCome, exhaustAllowed; bits 2 to 15 must be zero, and the upper ones have been
            // zero in all messages seen.
            if flags & !0x1_0003 != 0 {
                return Some(false);
            }
            match *body.get(4)? {
                0 => document_fits(body.get(5..)?, room.checked_sub(5)?),
                1 => {
                    let size = word(5)? as usize;
                    let known =
                        [b"documents\0".as_slice(), b"updates\0", b"deletes\0", b"ops\0", b"nsInfo\0"];
                    let name = body.get(9..)?;
                    let matches = known.iter().any(|known| {
                        let length = known.len().min(name.len());
                        known[..length] == name[..length]
                    });
                    Some(matches && size > 8 && size <= room)
                }
                _ => Some(false),
            }
        }
        Opcode::Compressed => {
            let original = Opcode::from_number(word(0)?);
            let compressor = *body.get(8)?;
            Some(
                original.is_some_and(|o| o != Opcode::Compressed)
                    && word(4)? <= MAX_MESSAGE
                    && compressor < 4,
            )
        }
        Opcode::Reply => {
            let (flags, count) = (word(0)?, word(16)?);
            if flags & !0xf != 0 || count as usize > room {
                return Some(false);
            }
            if count == 0 { Some(room == 20) } else { document_fits(body.get(20..)?, room.checked_sub(20)?) }
        }
        Opcode::KillCursors => Some(word(0)? == 0 && room == 8 + 8 * word(4)? as usize),
        Opcode::Command
        | Opcode::CommandReply
        | Opcode::Query
        | Opcode::GetMore
        | Opcode::Insert
        | Opcode::Update
        | Opcode::Delete => {
            let from = if matches!(opcode, Opcode::Command | Opcode::CommandReply) { 0 } else { 4 };
            if opcode == Opcode::CommandReply {
                return document_fits(body, room);
            }
            let name = body.get(from..)?;
            let end = memchr::memchr(0, &name[..name.len().min(256)]);
            Some(end.is_some_and(|end| end > 0 && name[..end].iter().all(|byte| *byte > b' ')))
        }
    }
}

/// Whether a document that begins here fits into `room` bytes, and its first element has a type and a key.
fn document_fits(bytes: &[u8], room: usize) -> Option<bool> {
    let length = u32::from_le_bytes(*bytes.first_chunk::<4>()?) as usize;
    if length < 5 || length > room {
        return Some(false);
    }
    let kind = *bytes.get(4)?;
    if length == 5 {
        return Some(kind == 0);
    }
    let key = &bytes[5..bytes.len().min(5 + 64)];
    let printable =
        key.iter().take_while(|byte| **byte != 0).all(|byte| (b' '..0x7f).contains(byte) || *byte >= 0x80);
    Some(crate::bson::ElementKind::from_number(kind).is_some() && printable)
}
