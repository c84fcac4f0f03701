//! What does one entry of a profile or log say? Reads `system.profile` documents and the attributes of
//! log lines of every version.
//!
//! An [`Entry`] is a [`Visitor`]: whatever walks the source (BSON, JSON, the shell's syntax) tells it of
//! elements, and it hands those of the command on to the same [`Request`] that reads commands on the
//! wire. So a query has one shape, wherever it was met.

mod fields;
mod tell;

pub use fields::{Fields, MAX_TEXT, Op, Section, TextField};
pub use tell::{Cause, Extra, MAX_APPLICATIONS, Sink, Teller};

use sonar_core::operation::Opcode;

use crate::bson::{Key, Kind, Opened, Step, Value, Visitor};
use crate::message::Request;
use crate::shape::{CommandKind, Field, Mode, Text};

/// Where in the entry the reader is. The depth counts open documents inside the part.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Inside {
    Top,
    /// In a command; its first element tells what it is.
    Command {
        depth: u32,
        begun: bool,
    },
    /// In the filter of a write before 3.6.
    Filter {
        depth: u32,
    },
    /// In the update of a write before 3.6.
    Update {
        depth: u32,
    },
    Section {
        section: Section,
        depth: u32,
    },
}

/// How much of a command the entry holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Held {
    /// None.
    #[default]
    Nothing,
    /// All of it.
    Whole,
    /// All that the version writes; not whether a write is `multi` or an `upsert`.
    Most,
    /// The beginning.
    Cut,
}

/// One entry, read element by element; its buffers are used again.
pub struct Entry<T: Text> {
    /// The command, or where the entry tells of a getMore, the command that opened the cursor.
    pub request: Request<T>,
    /// All else.
    pub fields: Fields,
    /// How much of the command there is.
    pub held: Held,
    /// Name of the command that the entry tells of, where `request` is another's.
    pub follows: Option<&'static str>,
    /// The getMore has `maxTimeMS`, which only cursors that wait have.
    pub waits: bool,
    /// The cursor that a getMore or killCursors names.
    pub used_cursor: Option<i64>,
    /// It was asked for by the server itself, in the words of the old protocol.
    pub by_server: bool,
    /// A write's statement: of an update or remove, not the command around it.
    pub is_statement: bool,
    /// `locks` holds nothing that is wanted: most operations have waited for none.
    pub no_lock_waits: bool,
    single_batch: bool,
    inside: Inside,
}

impl<T: Text> Default for Entry<T> {
    fn default() -> Self {
        Self {
            request: Request::default(),
            fields: Fields::default(),
            held: Held::Nothing,
            follows: None,
            waits: false,
            used_cursor: None,
            by_server: false,
            is_statement: false,
            no_lock_waits: false,
            single_batch: false,
            inside: Inside::Top,
        }
    }
}

impl<T: Text> Entry<T> {
    /// Forgets all; ready for an entry.
    pub fn reset(&mut self) {
        self.request.reset(Opcode::Msg);
        self.fields.reset();
        self.held = Held::Nothing;
        self.follows = None;
        self.waits = false;
        self.used_cursor = None;
        self.by_server = false;
        self.is_statement = false;
        self.no_lock_waits = false;
        self.single_batch = false;
        self.inside = Inside::Top;
    }

    /// Ends the entry: closes what is open, and says what the version leaves unsaid.
    pub fn finish(&mut self) {
        while self.request.builder.is_open() {
            self.request.end_part();
        }
        let Self { request, fields, .. } = self;
        match (self.held, fields.op) {
            (Held::Nothing, Op::Insert | Op::GetMore | Op::KillCursors) => {
                // An insert is its namespace, and there is no more to say of one.
                request.set_namespace(fields.namespace.bytes());
                let (name, held): (&[u8], _) = match fields.op {
                    Op::Insert => (b"insert", Held::Whole),
                    Op::GetMore => (b"getMore", Held::Nothing),
                    _ => (b"killCursors", Held::Nothing),
                };
                request.set_command(name);
                self.held = held;
            }
            (Held::Nothing, op) => {
                request.set_namespace(fields.namespace.bytes());
                let name: &[u8] = match op {
                    Op::Query => b"find",
                    Op::Update => b"update",
                    Op::Remove => b"delete",
                    _ => b"",
                };
                request.set_command(name);
            }
            _ => {}
        }
        let has_limit = self.single_batch && fields.to_return.is_some_and(|limit| limit != 0);
        let is_find = request.kind == CommandKind::Find;
        if has_limit && is_find {
            // A find of the old protocol, as 3.2 to 4.4 write it: a number beside `singleBatch` is a limit.
            request.mark(5, "limit", Field::Presence);
        }
        // A client of the new protocol has no `ntoreturn`: the server asks itself.
        self.by_server |= is_find && fields.to_return.is_some() && fields.protocol.bytes() == b"op_msg";
        if !request.has_database {
            let namespace = fields.namespace.bytes();
            let dot = memchr::memchr(b'.', namespace).unwrap_or(namespace.len());
            request.set_database(&namespace[..dot]);
        }
    }

    /// The document that is open cannot be read further: what comes next is beside it.
    pub fn abandon(&mut self) {
        self.inside = Inside::Top;
    }

    fn begin_command(&mut self) -> Opened {
        let statement = match self.fields.op {
            Op::Update => Some(b"update".as_slice()),
            Op::Remove => Some(b"delete".as_slice()),
            _ => None,
        };
        if let Some(name) = statement {
            self.is_statement = true;
            self.request.set_namespace(self.fields.namespace.bytes());
            self.request.set_command(name);
        }
        self.inside = Inside::Command { depth: 0, begun: false };
        Opened::Enter
    }

    /// The first key of what stands under `command` or `query`: is it a command, a statement, or the filter
    /// of a query of the old protocol?
    fn begin(&mut self, key: &Key<'_>, text: Option<&[u8]>) {
        self.inside = Inside::Command { depth: 0, begun: true };
        self.held = Held::Whole;
        let namespace = self.fields.namespace.bytes();
        let dot = memchr::memchr(b'.', namespace).unwrap_or(namespace.len());
        let (database, collection) = (&namespace[..dot], namespace.get(dot + 1..).unwrap_or_default());
        let names_it = text.is_some_and(|text| text == collection);
        match self.fields.op {
            Op::Update | Op::Remove if self.is_statement => {
                // 4.0 and earlier may hold the command itself.
                if names_it && matches!(key.bytes, b"update" | b"delete") {
                    self.is_statement = false;
                    self.request.reset(Opcode::Msg);
                } else {
                    self.request.begin_statement();
                }
            }
            Op::Query if !(names_it && key.bytes == b"find") && key.bytes != b"$truncated" => {
                self.request.set_namespace(self.fields.namespace.bytes());
                self.request.set_command(b"find");
                self.request.begin_legacy_query();
            }
            Op::GetMore
                if !matches!(
                    key.bytes,
                    b"getMore" | b"find" | b"aggregate" | b"listCollections" | b"listIndexes"
                ) =>
            {
                self.follows = Some("getMore");
                self.request.set_namespace(self.fields.namespace.bytes());
                self.request.set_command(b"find");
                self.request.begin_legacy_query();
            }
            _ => self.request.set_database(database),
        }
    }

    /// The command that opened the cursor takes the place of the getMore.
    fn begin_origin(&mut self) -> Opened {
        self.note_cursor();
        self.follows = Some("getMore");
        self.request.reset(Opcode::Msg);
        let namespace = self.fields.namespace.bytes();
        let dot = memchr::memchr(b'.', namespace).unwrap_or(namespace.len());
        self.request.set_database(&namespace[..dot]);
        self.inside = Inside::Command { depth: 0, begun: true };
        self.held = Held::Whole;
        Opened::Enter
    }

    /// Keeps of a getMore what its origin does not tell.
    fn note_cursor(&mut self) {
        if self.request.kind == CommandKind::GetMore {
            self.waits |= self.request.max_time;
            self.used_cursor = self.used_cursor.or(self.request.cursor);
        }
    }

    /// A write before 3.6: its filter, and its update.
    fn begin_part(&mut self, update: bool) -> Opened {
        if !self.request.builder.is_open() {
            self.is_statement = true;
            self.request.set_namespace(self.fields.namespace.bytes());
            let name: &[u8] = if self.fields.op == Op::Remove { b"delete" } else { b"update" };
            self.request.set_command(name);
            self.request.begin_statement();
            self.held = if self.held == Held::Cut { Held::Cut } else { Held::Most };
        }
        if update {
            self.request.begin_part(2, "u", Mode::Update);
            self.inside = Inside::Update { depth: 0 };
        } else {
            self.request.begin_part(1, "q", Mode::Filter);
            self.inside = Inside::Filter { depth: 0 };
        }
        Opened::Enter
    }

    fn top_open(&mut self, key: &Key<'_>, array: bool) -> Opened {
        if array {
            return Opened::Skip;
        }
        let section = match (key.bytes, self.fields.op) {
            (b"command" | b"query" | b"q", Op::None) => return Opened::Skip,
            (b"query", Op::Update | Op::Remove) => return self.begin_part(false),
            (b"updateobj" | b"update", Op::Update) => return self.begin_part(true),
            (b"command" | b"query", _) => return self.begin_command(),
            (b"originatingCommand", _) => return self.begin_origin(),
            (b"locks", _) if self.no_lock_waits => return Opened::Skip,
            (b"locks" | b"lockStats", _) => Section::Locks,
            (b"storage", _) => Section::Storage,
            (b"queues", _) => Section::Queues,
            _ => return Opened::Skip,
        };
        self.inside = Inside::Section { section, depth: 0 };
        Opened::Enter
    }

    /// Whether this is where the source put the text of a command that it cut.
    fn is_cut(&mut self, key: &Key<'_>, kind: Kind) -> bool {
        let is_cut = kind == Kind::String && key.bytes == b"$truncated";
        if is_cut {
            self.held = Held::Cut;
            self.inside = Inside::Top;
        }
        is_cut
    }
}

impl<T: Text> Visitor for Entry<T> {
    #[inline]
    fn element(&mut self, key: Key<'_>, kind: Kind, value: Value<'_>) -> Step {
        match self.inside {
            Inside::Top => {
                // Before 3.6 a command that was too long is a plain string.
                let text_of_command = kind == Kind::String
                    && matches!(key.bytes.first(), Some(b'c' | b'q' | b'o' | b'u'))
                    && matches!(key.bytes, b"command" | b"query" | b"originatingCommand" | b"updateobj");
                if text_of_command && self.fields.op != Op::None {
                    self.held = Held::Cut;
                } else {
                    self.fields.scalar(key.bytes, kind, value);
                }
                Step::Next
            }
            Inside::Command { depth, begun } => {
                if depth == 0 {
                    if !begun {
                        let text = match (kind, value) {
                            (Kind::String, Value::Bytes(bytes)) => Some(bytes),
                            _ => None,
                        };
                        if self.is_cut(&key, kind) {
                            return Step::Leave;
                        }
                        self.begin(&key, text);
                    }
                    match key.bytes {
                        b"$truncated" if self.is_cut(&key, kind) => return Step::Leave,
                        b"ntoreturn" | b"ntoskip" => {
                            self.fields.scalar(key.bytes, kind, value);
                        }
                        b"singleBatch" => {
                            let Value::Bytes(bytes) = value else { return Step::Next };
                            self.single_batch = crate::shape::number(kind, bytes) == Some(1.0);
                        }
                        _ => {}
                    }
                }
                self.delegate(|request| request.element(key, kind, value), depth)
            }
            Inside::Filter { depth } | Inside::Update { depth } => {
                if depth == 0 && self.is_cut(&key, kind) {
                    return Step::Leave;
                }
                self.delegate(|request| request.element(key, kind, value), depth)
            }
            Inside::Section { section, .. } => {
                match section {
                    Section::LockWait => self.fields.lock_wait(kind, value),
                    Section::Storage | Section::StorageWait => {
                        self.fields.storage(section, key.bytes, kind, value);
                    }
                    Section::Queues if key.bytes == b"totalTimeQueuedMicros" => {
                        self.fields.queued(kind, value);
                    }
                    _ => {}
                }
                Step::Next
            }
        }
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        match self.inside {
            Inside::Top => self.top_open(&key, array),
            Inside::Command { depth, begun } => {
                if depth == 0 && !begun {
                    self.begin(&key, None);
                }
                let opened = self.request.open(key, array);
                self.opened(opened)
            }
            Inside::Filter { .. } | Inside::Update { .. } => {
                let opened = self.request.open(key, array);
                self.opened(opened)
            }
            Inside::Section { section, depth } => {
                if array {
                    return Opened::Skip;
                }
                let section = match (section, key.bytes) {
                    (Section::Locks, b"timeAcquiringMicros") => Section::LockWait,
                    (Section::Storage, b"timeWaitingMicros") => Section::StorageWait,
                    (section, _) => section,
                };
                self.inside = Inside::Section { section, depth: depth + 1 };
                Opened::Enter
            }
        }
    }

    fn close(&mut self) {
        match &mut self.inside {
            Inside::Top => {}
            Inside::Command { depth: 0, .. } => {
                if self.fields.op == Op::Query || self.follows.is_some() {
                    // The query of the old protocol is a part of its own.
                    self.request.end_part();
                }
                self.note_cursor();
                self.inside = Inside::Top;
            }
            Inside::Filter { depth: 0 } | Inside::Update { depth: 0 } => {
                self.request.end_part();
                self.inside = Inside::Top;
            }
            Inside::Command { depth, .. } | Inside::Filter { depth } | Inside::Update { depth } => {
                *depth -= 1;
                self.request.close();
            }
            Inside::Section { depth: 0, .. } => self.inside = Inside::Top,
            Inside::Section { section, depth } => {
                *depth -= 1;
                *section = match *section {
                    Section::LockWait => Section::Locks,
                    Section::StorageWait => Section::Storage,
                    other => other,
                };
            }
        }
    }
}

impl<T: Text> Entry<T> {
    #[inline]
    fn delegate(&mut self, element: impl FnOnce(&mut Request<T>) -> Step, depth: u32) -> Step {
        let step = element(&mut self.request);
        if step == Step::Leave {
            self.left(depth);
        }
        step
    }

    fn opened(&mut self, opened: Opened) -> Opened {
        match &mut self.inside {
            Inside::Command { depth, .. } | Inside::Filter { depth } | Inside::Update { depth } => {
                match opened {
                    Opened::Enter => *depth += 1,
                    Opened::Leave => {
                        let depth = *depth;
                        self.left(depth);
                    }
                    Opened::Skip | Opened::Count => {}
                }
            }
            _ => {}
        }
        opened
    }

    /// The document at `depth` is passed over without being closed.
    fn left(&mut self, at: u32) {
        if at == 0 {
            self.inside = Inside::Top;
            return;
        }
        if let Inside::Command { depth, .. } | Inside::Filter { depth } | Inside::Update { depth } =
            &mut self.inside
        {
            *depth -= 1;
        }
    }
}
