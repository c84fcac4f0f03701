//! An operation: one command as a client sent it, and its outcome.

use std::fmt;
use std::sync::Arc;

use crate::time_split::ThreadActivity;
use crate::{Endpoint, ShapeId, ShapeInfo, Timestamp, TlsSuite};

/// Whether a client or another server sent a command. On a host with mongos and mongod a query crosses
/// the wire twice: once to mongos, once from mongos to mongod.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Role {
    /// Sent by a client to a server.
    #[default]
    Served,
    /// Sent by a server (mongos, or a member of a replica set) to another server.
    Issued,
}

impl Role {
    /// All roles, in display order.
    pub const ALL: [Self; 2] = [Self::Served, Self::Issued];

    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Issued => "issued",
        }
    }
}

/// The purpose of an operation. Totals include only [`Class::User`] by default.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Class {
    /// Requests of an application.
    #[default]
    User,
    /// The server's own housekeeping: sessions, config polling, authentication.
    Internal,
    /// `hello`, `ping`, `serverStatus` and their like.
    Monitoring,
    /// Oplog reads, heartbeats, votes.
    Replication,
    /// Waits on purpose: awaitData, change streams, streaming `hello`, exhaust replies after the first. Their
    /// time is not the latency of a query.
    Waiting,
}

impl Class {
    /// All classes, in display order.
    pub const ALL: [Self; 5] =
        [Self::User, Self::Internal, Self::Monitoring, Self::Replication, Self::Waiting];

    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Internal => "internal",
            Self::Monitoring => "monitoring",
            Self::Replication => "replication",
            Self::Waiting => "waiting",
        }
    }
}

/// MongoDB wire protocol opcodes.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum Opcode {
    Reply,
    Update,
    Insert,
    Query,
    GetMore,
    Delete,
    KillCursors,
    Command,
    CommandReply,
    Compressed,
    Msg,
}

impl Opcode {
    /// From the number in a message header; `None` for a number that the protocol does not define.
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Reply,
            2001 => Self::Update,
            2002 => Self::Insert,
            2004 => Self::Query,
            2005 => Self::GetMore,
            2006 => Self::Delete,
            2007 => Self::KillCursors,
            2010 => Self::Command,
            2011 => Self::CommandReply,
            2012 => Self::Compressed,
            2013 => Self::Msg,
            _ => return None,
        })
    }

    /// The number in a message header.
    pub const fn number(self) -> u32 {
        match self {
            Self::Reply => 1,
            Self::Update => 2001,
            Self::Insert => 2002,
            Self::Query => 2004,
            Self::GetMore => 2005,
            Self::Delete => 2006,
            Self::KillCursors => 2007,
            Self::Command => 2010,
            Self::CommandReply => 2011,
            Self::Compressed => 2012,
            Self::Msg => 2013,
        }
    }

    /// The protocol's name, for example `OP_MSG`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reply => "OP_REPLY",
            Self::Update => "OP_UPDATE",
            Self::Insert => "OP_INSERT",
            Self::Query => "OP_QUERY",
            Self::GetMore => "OP_GET_MORE",
            Self::Delete => "OP_DELETE",
            Self::KillCursors => "OP_KILL_CURSORS",
            Self::Command => "OP_COMMAND",
            Self::CommandReply => "OP_COMMANDREPLY",
            Self::Compressed => "OP_COMPRESSED",
            Self::Msg => "OP_MSG",
        }
    }
}

/// Compressors of OP_COMPRESSED.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum Compressor {
    Noop,
    Snappy,
    Zlib,
    Zstd,
}

impl Compressor {
    /// From the compressor id in the message; `None` for 4 and above, which are reserved.
    pub const fn from_id(id: u8) -> Option<Self> {
        Some(match id {
            0 => Self::Noop,
            1 => Self::Snappy,
            2 => Self::Zlib,
            3 => Self::Zstd,
            _ => return None,
        })
    }

    /// The name as drivers write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }
}

/// The client application of a connection, from its `hello`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Application {
    /// `application.name`; empty if the client sent none.
    pub name: Box<str>,
    /// `driver.name`; empty if unknown.
    pub driver: Box<str>,
    /// `driver.version`; empty if unknown.
    pub driver_version: Box<str>,
    /// The connection was open before the capture began, and no `hello` has been seen on it.
    pub joined_late: bool,
}

impl Application {
    /// The application of a connection whose `hello` was not captured.
    pub fn joined_late() -> Self {
        Self { joined_late: true, ..Self::default() }
    }

    /// The name that mongosonar gives its own connections.
    pub const OWN: &'static str = "mongosonar";

    /// Whether it is mongosonar itself: that it asks a server is no news of that server.
    pub fn is_own(&self) -> bool {
        *self.name == *Self::OWN
    }

    /// The display name: its name, or `joined late`, or the driver in brackets.
    pub fn label(&self) -> String {
        if !self.name.is_empty() {
            self.name.to_string()
        } else if self.joined_late {
            "joined late".to_string()
        } else if !self.driver.is_empty() {
            format!("({})", self.driver)
        } else {
            "(no name)".to_string()
        }
    }
}

/// The outcome of an operation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Outcome<'a> {
    /// Answered, without an error.
    Ok,
    /// Answered with errors: the command's own (`ok: 0`, `$err`, cursorNotFound), write errors, or a
    /// write concern error.
    Failed(ErrorCodes<'a>),
    /// No reply came before the connection ended or the time-out expired.
    Unanswered,
    /// No reply had come when the capture ended: the operation may still be running.
    InFlight,
    /// The client asked for no reply.
    Unacknowledged,
    /// Unknown: the reply could not be read (cut by a snap length, not decodable), was lost in a gap, or too many
    /// requests were waiting.
    Unknown,
}

impl Outcome<'_> {
    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed(_) => "failed",
            Self::Unanswered => "unanswered",
            Self::InFlight => "in_flight",
            Self::Unacknowledged => "unacknowledged",
            Self::Unknown => "unknown",
        }
    }
}

/// Error codes of one operation.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ErrorCodes<'a> {
    /// The distinct codes with their number of occurrences; code 0 if the server sent none.
    pub codes: &'a [(i32, u32)],
}

/// What a statement of a write does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum WriteType {
    Insert,
    Update,
    Delete,
}

impl WriteType {
    /// The server's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// The statements of one shape in a command.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// Their shape.
    pub shape: ShapeId,
    /// Number of statements, 1 or more.
    pub count: u32,
    /// What they do; `None` if the name of the command says it.
    pub write: Option<WriteType>,
}

/// One command as a client sent it, and its outcome. It borrows from the decoder for one call; a sink
/// copies what it keeps.
#[derive(Copy, Clone, Debug)]
pub struct Operation<'a> {
    /// Time of the last byte of the request.
    pub start: Timestamp,
    /// Time of the first byte of the reply; without a reply, the time when the decoder gave up waiting.
    pub end: Timestamp,
    /// From `start` to `end`; `None` without a reply, or if one of the two times is unknown.
    pub latency_ns: Option<u64>,
    /// Time from the first to the last byte of the reply.
    pub transfer_ns: Option<u64>,
    /// The client's address.
    pub client: Endpoint,
    /// The server's address.
    pub server: Endpoint,
    /// Whether a client or another server sent it.
    pub role: Role,
    /// Its purpose.
    pub class: Class,
    /// The command as sent. It differs from the command of the shape for a getMore or killCursors, whose shape is
    /// that of the command that opened the cursor.
    pub command: &'a str,
    /// Its shape.
    pub shape: &'a Arc<ShapeInfo>,
    /// The id that also depends on the order of keys as sent.
    pub ordered_id: ShapeId,
    /// Its statements by shape if they have several shapes, or are those of a `bulkWrite`; empty otherwise.
    pub statements: &'a [Statement],
    /// Number of statements: 1 for a plain command, the sum for a bulk write.
    pub statement_count: u32,
    /// The client application.
    pub app: &'a Arc<Application>,
    /// Opcode of the request after decompression.
    pub opcode: Opcode,
    /// Compressor of the request; if it was not compressed, that of the reply.
    pub compressor: Option<Compressor>,
    /// Version and cipher suite, which may be unknown, if the connection is encrypted with TLS and was read inside a
    /// process.
    pub tls: Option<TlsSuite>,
    /// `requestID` of the request, unsigned.
    pub request_id: u32,
    /// The cursor that it opened, used or killed; `None` if there is none or it is unknown.
    pub cursor_id: Option<i64>,
    /// Size of the request message on the wire in bytes, including the header.
    pub request_bytes: u64,
    /// Size of the reply messages on the wire in bytes, including headers.
    pub response_bytes: u64,
    /// Documents in the reply's batch; `None` if unknown, or if the command returns no documents.
    pub docs_returned: Option<u64>,
    /// `n` of a write's reply: documents inserted, matched or deleted; `None` if unknown.
    pub docs_matched: Option<u64>,
    /// Documents inserted, changed (or upserted) or deleted according to the reply; `None` if unknown.
    pub docs_affected: Option<u64>,
    /// Its outcome.
    pub outcome: Outcome<'a>,
    /// The command with its values, if the user asked for them.
    pub values: Option<&'a str>,
}

/// Operations of one shape that are in flight.
#[derive(Clone, Debug)]
pub struct InFlightOperations {
    /// The server's address.
    pub server: Endpoint,
    /// See [`Operation::role`].
    pub role: Role,
    /// See [`Operation::class`].
    pub class: Class,
    /// Their shape.
    pub shape: Arc<ShapeInfo>,
    /// Number of operations.
    pub count: u64,
    /// Age of the oldest, in nanoseconds.
    pub oldest_ns: u64,
    /// The oldest, at most [`MAX_OLDEST`], the oldest first.
    pub oldest: Vec<WaitingOperation>,
}

/// The most operations in flight of a shape that are known one by one.
pub const MAX_OLDEST: usize = 4;

/// An operation in flight.
#[derive(Clone, Debug)]
pub struct WaitingOperation {
    /// The client's end of the connection.
    pub client: Endpoint,
    /// `requestID` of the request.
    pub request_id: u32,
    /// Its age in nanoseconds.
    pub age_ns: u64,
    /// What the server's thread does for it; `None` if that was not seen.
    pub now: Option<Box<ThreadActivity>>,
}

impl InFlightOperations {
    /// Heap memory in bytes, without that of the shape, which is shared.
    pub fn heap_bytes(&self) -> usize {
        let activities = self.oldest.iter().filter_map(|one| one.now.as_deref());
        let activities: usize =
            activities.map(|now| size_of::<ThreadActivity>() + now.thread_name.capacity()).sum();
        self.oldest.capacity() * size_of::<WaitingOperation>() + activities
    }

    /// Adds operations of the same kind.
    pub fn add(&mut self, more: Self) {
        self.count += more.count;
        self.oldest_ns = self.oldest_ns.max(more.oldest_ns);
        for one in more.oldest {
            let place = self.oldest.partition_point(|known| known.age_ns >= one.age_ns);
            if place < MAX_OLDEST {
                self.oldest.truncate(MAX_OLDEST - 1);
                self.oldest.insert(place, one);
            }
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
