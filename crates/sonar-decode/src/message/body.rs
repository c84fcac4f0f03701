//! The body of a message after its header, read in chunks of any size.

use sonar_core::operation::Opcode;

use super::{Reply, Request};
use crate::bson::{Fed, MalformedBson, Skimmer};
use crate::shape::{ContainerMode, Field, Text};

/// A body that contradicts itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BodyError {
    /// In a document.
    #[error(transparent)]
    Document(#[from] MalformedBson),
    /// Unknown flags of OP_MSG that must be understood.
    #[error("OP_MSG has unknown required flags 0x{0:x}")]
    Flags(u32),
    /// A section kind that the protocol does not define.
    #[error("OP_MSG section kind {0} is not defined")]
    Section(u8),
    /// A length that does not fit into the message.
    #[error("section of {0} bytes does not fit")]
    Size(u32),
    /// A name that does not end.
    #[error("name is too long")]
    Name,
    /// The message ends inside something.
    #[error("message ends too early")]
    Short,
}

/// Who sent a message.
pub enum MessageSource<'a, T: Text> {
    /// A client.
    Request(&'a mut Request<T>),
    /// A server.
    Reply(&'a mut Reply),
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum BodyPart {
    Flags,
    SectionKind,
    Section0,
    Section1Head,
    Section1(MessageSection),
    Section2,
    /// Before a document of a legacy message.
    LegacyHead,
    Legacy(Legacy),
    CommandHead,
    Documents,
    Cursors,
    Skip,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum MessageSection {
    Statements,
    Documents,
    Namespaces,
    Other,
}

/// The documents of legacy messages.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Legacy {
    Command,
    Query,
    Fields,
    Selector,
    Update,
    DeleteSelector,
    Insert,
    Reply,
    Arguments,
}

/// The position in a body. Holds no bytes: what [`feed`](Self::feed) did not consume, at most
/// [`MAX_ELEMENT`](crate::bson::MAX_ELEMENT) bytes, is presented again with more behind it.
#[derive(Debug)]
pub struct MessageBody {
    skimmer: Skimmer,
    opcode: Opcode,
    part: BodyPart,
    /// Bytes of the body that have not been consumed.
    left: u64,
    /// Bytes of the section that have not been consumed.
    section_left: u64,
    checksum: bool,
    /// Bits of a legacy update or delete.
    legacy_flags: u32,
    /// Bytes to skip.
    skip: u64,
}

impl Default for MessageBody {
    fn default() -> Self {
        Self {
            skimmer: Skimmer::new(),
            opcode: Opcode::Msg,
            part: BodyPart::Flags,
            left: 0,
            section_left: 0,
            checksum: false,
            legacy_flags: 0,
            skip: 0,
        }
    }
}

impl MessageBody {
    /// Begins a body of `length` bytes.
    pub fn begin(&mut self, opcode: Opcode, length: u64) {
        self.skimmer.reset();
        self.opcode = opcode;
        self.left = length;
        self.section_left = 0;
        self.checksum = false;
        self.legacy_flags = 0;
        self.skip = 0;
        self.part = match opcode {
            Opcode::Msg => BodyPart::Flags,
            Opcode::Command => BodyPart::CommandHead,
            Opcode::CommandReply => BodyPart::Documents,
            _ => BodyPart::LegacyHead,
        };
    }

    /// Whether the message ends with a checksum; known once its flags have been read.
    pub fn has_checksum(&self) -> bool {
        self.checksum
    }

    /// Whether the command has been read, and only its documents or statements follow.
    pub fn is_in_statements(&self) -> bool {
        matches!(self.part, BodyPart::Section1(MessageSection::Documents | MessageSection::Statements))
    }

    /// Whether a command has begun, so that a key comes next.
    pub fn is_at_key(&self) -> bool {
        matches!(self.part, BodyPart::Section0 | BodyPart::Legacy(Legacy::Command))
            && self.skimmer.is_at_key()
    }

    /// Bytes of the body that have not been consumed.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Reads on through `chunk`, which must not reach beyond the body. Returns how many bytes were consumed.
    ///
    /// # Errors
    /// The body contradicts itself; the rest of it must be skipped by its length.
    pub fn feed<T: Text>(
        &mut self,
        chunk: &[u8],
        content: &mut MessageSource<'_, T>,
    ) -> Result<usize, BodyError> {
        let mut at = 0;
        loop {
            let rest = &chunk[at..];
            if self.skip > 0 {
                let step = self.skip.min(rest.len() as u64);
                self.skip -= step;
                at += self.consume(step as usize);
                if self.skip > 0 {
                    return Ok(at);
                }
                continue;
            }
            if self.left == 0 {
                return Ok(at);
            }
            let used = self.part(rest, content)?;
            if used == 0 && self.skip == 0 {
                // A part needs more bytes: they are in the next chunk, unless there is none.
                if rest.len() as u64 >= self.left {
                    return Err(BodyError::Short);
                }
                return Ok(at);
            }
            at += self.consume(used);
        }
    }

    /// Passes over bytes that are missing. Returns false if nothing can be read behind them; the rest of the body must be
    /// skipped then.
    pub fn jump<T: Text>(&mut self, bytes: u64, content: &mut MessageSource<'_, T>) -> bool {
        let can = if bytes > self.left {
            false
        } else if self.skip > 0 {
            let within = self.skip >= bytes;
            self.skip = self.skip.saturating_sub(bytes);
            within
        } else if self.part == BodyPart::Section0 {
            match content {
                MessageSource::Request(request) => self.skimmer.jump(bytes, *request),
                MessageSource::Reply(reply) => {
                    let exact = self.skimmer.skips(bytes);
                    (exact || reply.leave_documents()) && self.skimmer.jump(bytes, *reply)
                }
            }
        } else {
            false
        };
        if can {
            self.consume(bytes as usize);
        }
        can
    }

    fn consume(&mut self, used: usize) -> usize {
        self.left -= used as u64;
        self.section_left = self.section_left.saturating_sub(used as u64);
        used
    }

    /// Reads one part, or as much of it as is there; 0: it needs more bytes.
    fn part<T: Text>(&mut self, rest: &[u8], content: &mut MessageSource<'_, T>) -> Result<usize, BodyError> {
        let word =
            |at: usize| rest.get(at..at + 4).and_then(|w| w.first_chunk().map(|w| u32::from_le_bytes(*w)));
        match self.part {
            BodyPart::Flags => {
                let Some(flags) = word(0) else { return Ok(0) };
                if flags & 0xfffc != 0 {
                    return Err(BodyError::Flags(flags));
                }
                self.checksum = flags & 1 != 0;
                let more = flags & 2 != 0;
                match content {
                    MessageSource::Request(request) => request.unacknowledged = more,
                    MessageSource::Reply(reply) => reply.more_to_come = more,
                }
                self.part = BodyPart::SectionKind;
                Ok(4)
            }
            BodyPart::SectionKind => {
                if self.checksum && self.left == 4 {
                    self.skip = 4;
                    return Ok(0);
                }
                let Some(kind) = rest.first() else { return Ok(0) };
                self.part = match kind {
                    0 => BodyPart::Section0,
                    1 => BodyPart::Section1Head,
                    2 => BodyPart::Section2,
                    kind => return Err(BodyError::Section(*kind)),
                };
                Ok(1)
            }
            BodyPart::Section0 => {
                let limit = self.left.saturating_sub(if self.checksum { 4 } else { 0 });
                self.document(rest, limit, content, BodyPart::SectionKind)
            }
            BodyPart::Section1Head => self.section_head(rest, content),
            BodyPart::Section1(section) => self.section(section, rest, content),
            BodyPart::Section2 => {
                let Some(size) = word(0) else { return Ok(0) };
                if size < 4 || u64::from(size) > self.left {
                    return Err(BodyError::Size(size));
                }
                self.skip = u64::from(size);
                self.part = BodyPart::SectionKind;
                Ok(0)
            }
            BodyPart::LegacyHead => self.legacy_head(rest, content),
            BodyPart::Legacy(legacy) => self.legacy_document(legacy, rest, content),
            BodyPart::CommandHead => {
                // Two names: the database and the command.
                let Some(database) = name_at(rest, 0)? else { return Ok(0) };
                let Some(command) = name_at(rest, database + 1)? else { return Ok(0) };
                if let MessageSource::Request(request) = content {
                    request.set_database(&rest[..database]);
                    request.set_command(&rest[database + 1..command]);
                }
                self.part = BodyPart::Legacy(Legacy::Arguments);
                Ok(command + 1)
            }
            BodyPart::Documents => {
                if let (MessageSource::Reply(reply), false) = (&mut *content, self.skimmer.in_document()) {
                    reply.begin();
                }
                self.document(rest, self.left, content, BodyPart::Documents)
            }
            BodyPart::Cursors => {
                let Some(bytes) = rest.first_chunk::<8>() else { return Ok(0) };
                if let MessageSource::Request(request) = content {
                    request.cursor.get_or_insert(i64::from_le_bytes(*bytes));
                }
                Ok(8)
            }
            BodyPart::Skip => {
                self.skip = self.left;
                Ok(0)
            }
        }
    }

    /// Reads on in a document; `next` is the part after it.
    fn document<T: Text>(
        &mut self,
        rest: &[u8],
        limit: u64,
        content: &mut MessageSource<'_, T>,
        next: BodyPart,
    ) -> Result<usize, BodyError> {
        let fed = match content {
            MessageSource::Request(request) => self.skimmer.feed(rest, limit, *request)?,
            MessageSource::Reply(reply) => self.skimmer.feed(rest, limit, *reply)?,
        };
        Ok(match fed {
            Fed::Done(used) => {
                self.part = next;
                used
            }
            Fed::More(used) => used,
        })
    }

    fn section_head<T: Text>(
        &mut self,
        rest: &[u8],
        content: &mut MessageSource<'_, T>,
    ) -> Result<usize, BodyError> {
        let Some(size) = rest.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes)) else {
            return Ok(0);
        };
        if size < 5 || u64::from(size) > self.left {
            return Err(BodyError::Size(size));
        }
        let Some(end) = name_at(rest, 4)? else { return Ok(0) };
        if end + 1 > size as usize {
            return Err(BodyError::Size(size));
        }
        let section = match (&rest[4..end], &mut *content) {
            (b"updates" | b"deletes" | b"ops", MessageSource::Request(request)) => {
                if rest[4] == b'o' {
                    // Before the kind-0 section, the builder must know what a statement is.
                    request.builder.set_command(crate::shape::CommandKind::BulkWrite);
                }
                MessageSection::Statements
            }
            (b"documents", MessageSource::Request(_)) => MessageSection::Documents,
            (b"nsInfo", MessageSource::Request(_)) => MessageSection::Namespaces,
            _ => MessageSection::Other,
        };
        self.section_left = u64::from(size);
        self.part = BodyPart::Section1(section);
        Ok(end + 1)
    }

    fn section<T: Text>(
        &mut self,
        section: MessageSection,
        rest: &[u8],
        content: &mut MessageSource<'_, T>,
    ) -> Result<usize, BodyError> {
        if self.section_left == 0 {
            self.part = BodyPart::SectionKind;
            // Nothing was consumed, but the part changed.
            return if self.left > 0 { self.part(rest, content) } else { Ok(0) };
        }
        let MessageSource::Request(request) = content else {
            self.skip = self.section_left;
            return Ok(0);
        };
        match section {
            MessageSection::Other => {
                self.skip = self.section_left;
                Ok(0)
            }
            MessageSection::Documents => {
                let Some(bytes) = rest.first_chunk::<4>() else { return Ok(0) };
                let size = u32::from_le_bytes(*bytes);
                if size < 5 || u64::from(size) > self.section_left {
                    return Err(BodyError::Size(size));
                }
                self.skip = u64::from(size);
                Ok(0)
            }
            MessageSection::Statements | MessageSection::Namespaces => {
                if !self.skimmer.in_document() {
                    if rest.len() < 4 {
                        return Ok(0);
                    }
                    if section == MessageSection::Statements {
                        request.begin_statement()
                    } else {
                        request.begin_namespace()
                    }
                }
                match self.skimmer.feed(rest, self.section_left, *request)? {
                    Fed::Done(used) => {
                        request.end_part();
                        Ok(used)
                    }
                    Fed::More(used) => Ok(used),
                }
            }
        }
    }

    fn legacy_head<T: Text>(
        &mut self,
        rest: &[u8],
        content: &mut MessageSource<'_, T>,
    ) -> Result<usize, BodyError> {
        let word =
            |at: usize| rest.get(at..at + 4).and_then(|w| w.first_chunk().map(|w| u32::from_le_bytes(*w)));
        if let MessageSource::Reply(reply) = content {
            if self.opcode != Opcode::Reply {
                self.part = BodyPart::Skip;
                self.skip = self.left;
                return Ok(0);
            }
            let Some(head) = rest.first_chunk::<20>() else { return Ok(0) };
            let (flags, count) = (word(0).unwrap_or(0), word(16).unwrap_or(0));
            let cursor = head[4..12].first_chunk().map(|bytes| i64::from_le_bytes(*bytes));
            reply.cursor_not_found = flags & 1 != 0;
            reply.query_failure = flags & 2 != 0;
            reply.cursor = cursor;
            reply.returned = Some(u64::from(count));
            // A single document may be a command's reply or an error; several are results.
            self.part = if count == 1 { BodyPart::Legacy(Legacy::Reply) } else { BodyPart::Skip };
            return Ok(20);
        }
        let MessageSource::Request(request) = content else { return Ok(0) };
        if self.opcode == Opcode::KillCursors {
            if rest.len() < 8 {
                return Ok(0);
            }
            request.set_command(b"killCursors");
            self.part = BodyPart::Cursors;
            return Ok(8);
        }
        let Some(end) = name_at(rest, 4)? else { return Ok(0) };
        let extra = match self.opcode {
            Opcode::Query => 8,
            Opcode::GetMore => 12,
            Opcode::Update | Opcode::Delete => 4,
            _ => 0,
        };
        if rest.len() < end + 1 + extra {
            return Ok(0);
        }
        let flags = word(0).unwrap_or(0);
        let is_command = request.set_namespace(&rest[4..end]);
        let after = end + 1;
        self.part = match self.opcode {
            Opcode::Query if is_command => BodyPart::Legacy(Legacy::Command),
            Opcode::Query => {
                request.set_command(b"find");
                let (skip, limit) = (word(after).unwrap_or(0) as i32, word(after + 4).unwrap_or(0) as i32);
                if skip > 0 {
                    request.mark(4, "skip", Field::Presence);
                }
                // A positive number is a batch size; a negative one (and 1) is a limit.
                if limit < 0 || limit == 1 {
                    request.mark(5, "limit", Field::Presence);
                    request.mark(9, "singleBatch", Field::Flag);
                }
                if flags & 2 != 0 {
                    request.mark(9, "tailable", Field::Flag);
                }
                if flags & 0x20 != 0 {
                    request.mark(9, "awaitData", Field::Flag);
                    request.await_data = true;
                }
                request.exhaust = flags & 0x40 != 0;
                BodyPart::Legacy(Legacy::Query)
            }
            Opcode::GetMore => {
                request.set_command(b"getMore");
                request.cursor = rest
                    .get(after + 4..after + 12)
                    .and_then(|b| b.first_chunk().map(|b| i64::from_le_bytes(*b)));
                BodyPart::Skip
            }
            Opcode::Insert => {
                request.set_command(b"insert");
                request.unacknowledged = true;
                BodyPart::Legacy(Legacy::Insert)
            }
            Opcode::Update | Opcode::Delete => {
                let update = self.opcode == Opcode::Update;
                request.set_command(if update { b"update" } else { b"delete" });
                request.unacknowledged = true;
                self.legacy_flags = word(after).unwrap_or(0);
                BodyPart::Legacy(if update { Legacy::Selector } else { Legacy::DeleteSelector })
            }
            _ => BodyPart::Skip,
        };
        Ok(after + extra)
    }

    fn legacy_document<T: Text>(
        &mut self,
        legacy: Legacy,
        rest: &[u8],
        content: &mut MessageSource<'_, T>,
    ) -> Result<usize, BodyError> {
        if legacy == Legacy::Insert {
            let Some(bytes) = rest.first_chunk::<4>() else { return Ok(0) };
            let size = u32::from_le_bytes(*bytes);
            if size < 5 || u64::from(size) > self.left {
                return Err(BodyError::Size(size));
            }
            self.skip = u64::from(size);
            return Ok(0);
        }
        let begin = !self.skimmer.in_document();
        if begin && rest.len() < 4 {
            return Ok(0);
        }
        if let (MessageSource::Request(request), true) = (&mut *content, begin) {
            match legacy {
                Legacy::Query => request.begin_legacy_query(),
                Legacy::Fields => request.begin_part(2, "projection", ContainerMode::Projection),
                Legacy::Selector | Legacy::DeleteSelector => {
                    request.begin_statement();
                    let (bit, name) = if legacy == Legacy::Selector { (2, "multi") } else { (1, "limit") };
                    let field = if legacy == Legacy::Selector { Field::Flag } else { Field::Presence };
                    if self.legacy_flags & bit != 0 {
                        request.mark(4, name, field);
                    }
                    if legacy == Legacy::Selector && self.legacy_flags & 1 != 0 {
                        request.mark(4, "upsert", Field::Flag);
                    }
                    request.begin_part(1, "q", ContainerMode::Filter);
                }
                Legacy::Update => request.begin_part(2, "u", ContainerMode::Update),
                _ => {}
            }
        }
        let fed = match content {
            MessageSource::Request(request) => self.skimmer.feed(rest, self.left, *request)?,
            MessageSource::Reply(reply) => self.skimmer.feed(rest, self.left, *reply)?,
        };
        let Fed::Done(used) = fed else {
            let Fed::More(used) = fed else { return Ok(0) };
            return Ok(used);
        };
        if let MessageSource::Request(request) = content {
            match legacy {
                Legacy::Query | Legacy::Fields | Legacy::Selector => request.end_part(),
                Legacy::Update | Legacy::DeleteSelector => {
                    // The part, and the statement around it.
                    request.end_part();
                    request.end_part();
                }
                _ => {}
            }
        }
        self.part = match legacy {
            Legacy::Query => BodyPart::Legacy(Legacy::Fields),
            Legacy::Selector => BodyPart::Legacy(Legacy::Update),
            _ => BodyPart::Skip,
        };
        Ok(used)
    }
}

/// Offset of the end of the name that begins at `from`; `None` if it has not come yet.
fn name_at(bytes: &[u8], from: usize) -> Result<Option<usize>, BodyError> {
    let Some(name) = bytes.get(from..) else { return Ok(None) };
    let window = &name[..name.len().min(512)];
    match memchr::memchr(0, window) {
        Some(length) => Ok(Some(from + length)),
        None if window.len() == 512 => Err(BodyError::Name),
        None => Ok(None),
    }
}
