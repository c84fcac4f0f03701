//! An operation: one command as a client sent it, with what became of it.

use std::fmt;
use std::sync::Arc;

use crate::{Endpoint, ShapeId, ShapeInfo, Timestamp};

/// On which side of the server a command was seen. A mongod is a client too, and on a host with
/// mongos and mongod a query passes the wire twice.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Role {
    /// Sent by a client to a server that we watch.
    #[default]
    Served,
    /// Sent by a server (mongos, or a member of a replica set) to another.
    Issued,
}

impl Role {
    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Issued => "issued",
        }
    }
}

/// What an operation is for. Totals speak of [`Class::User`] unless asked.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Class {
    /// What an application asked for.
    #[default]
    User,
    /// The server's own housekeeping: sessions, config polling, authentication.
    Internal,
    /// `hello`, `ping`, `serverStatus` and their like.
    Monitoring,
    /// Oplog reads, heartbeats, votes.
    Replication,
    /// Waits on purpose: awaitData, change streams, streaming `hello`, exhaust replies after the
    /// first. Their time is no query's latency.
    Waiting,
}

impl Class {
    /// All classes, in the order of display.
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
    /// From the number in a message header; `None` for a number the protocol does not define.
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

    /// `OP_MSG` and so on.
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

/// Who is at the other end, as the connection's `hello` said.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Application {
    /// `application.name`; empty when the client gave none.
    pub name: Box<str>,
    /// `driver.name`; empty when unknown.
    pub driver: Box<str>,
    /// `driver.version`; empty when unknown.
    pub driver_version: Box<str>,
    /// The connection was open before we listened and no `hello` has been seen on it.
    pub joined_late: bool,
}

impl Application {
    /// The application of a connection whose `hello` was not captured.
    pub fn late() -> Self {
        Self { joined_late: true, ..Self::default() }
    }

    /// What to call it: its name, `joined late`, or the driver in brackets.
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

/// What became of an operation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Outcome<'a> {
    /// Answered, without an error.
    Ok,
    /// Answered with errors: the command's own (`ok: 0`, `$err`, cursorNotFound), write errors, or a
    /// write concern error.
    Failed(ErrorCodes<'a>),
    /// No reply came: the connection ended, or the time-out did.
    Unanswered,
    /// No reply had come when the capture ended: the operation may still be running.
    InFlight,
    /// The client asked for no reply.
    Unacknowledged,
    /// Not known: what the reply said could not be read (cut by a snap length, not decodable), the reply
    /// was lost in a gap, or too many requests were waiting.
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
    /// The distinct codes with how often each came; code 0 where the server gave none.
    pub codes: &'a [(i32, u32)],
}

/// How many statements of one shape a command held.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// Their shape.
    pub shape: ShapeId,
    /// How many of them, 1 or more.
    pub count: u32,
}

/// One command as a client sent it, and what became of it. Borrowed from the decoder for the length
/// of one call: a sink copies what it keeps.
#[derive(Copy, Clone, Debug)]
pub struct Operation<'a> {
    /// Last byte of the request.
    pub start: Timestamp,
    /// First byte of the reply; without a reply, when it was given up.
    pub end: Timestamp,
    /// From `start` to `end`; `None` without a reply, or when the time of one of the two is not known.
    pub latency_ns: Option<u64>,
    /// From the first to the last byte of the reply.
    pub transfer_ns: Option<u64>,
    /// Who asked.
    pub client: Endpoint,
    /// Who was asked.
    pub server: Endpoint,
    /// On which side of the server it was seen.
    pub role: Role,
    /// What it is for.
    pub class: Class,
    /// The command as it was sent. It differs from the shape's where a getMore or killCursors belongs
    /// to the shape that opened the cursor.
    pub command: &'a str,
    /// Its shape.
    pub shape: &'a Arc<ShapeInfo>,
    /// The id that keeps every order as sent.
    pub ordered_id: ShapeId,
    /// The statements it held, where it held several shapes; empty otherwise.
    pub statements: &'a [Statement],
    /// How many statements it held: 1 for a plain command, the sum for a bulk one.
    pub statement_count: u32,
    /// Who the client is.
    pub app: &'a Arc<Application>,
    /// Opcode of the request, as it was inside any compression.
    pub opcode: Opcode,
    /// Compressor of the request, or else of the reply.
    pub compressor: Option<Compressor>,
    /// `requestID` of the request, unsigned.
    pub request_id: u32,
    /// The cursor it opened, used or killed; `None` for none, or when not known.
    pub cursor_id: Option<i64>,
    /// Bytes of the request message on the wire, header included.
    pub request_bytes: u64,
    /// Bytes of the reply messages on the wire, headers included.
    pub response_bytes: u64,
    /// Documents in the reply's batch; `None` when not known, or when the command returns none.
    pub docs_returned: Option<u64>,
    /// `n` of a write's reply: documents inserted, matched or deleted; `None` when not known.
    pub docs_matched: Option<u64>,
    /// Documents inserted, changed (or upserted) or deleted, as the server says; `None` when not known.
    pub docs_affected: Option<u64>,
    /// What became of it.
    pub outcome: Outcome<'a>,
    /// The command with its values, where the user asked for them.
    pub values: Option<&'a str>,
}

/// Operations of one shape that have not ended.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// Server, role and class.
    pub server: Endpoint,
    /// See [`Operation::role`].
    pub role: Role,
    /// See [`Operation::class`].
    pub class: Class,
    /// Their shape.
    pub shape: Arc<ShapeInfo>,
    /// How many.
    pub count: u64,
    /// Age of the oldest, in nanoseconds.
    pub oldest_ns: u64,
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
