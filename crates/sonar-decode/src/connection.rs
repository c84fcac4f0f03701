//! One connection: its two streams cut into messages, its requests paired with their replies.

use std::collections::VecDeque;
use std::sync::Arc;

use sonar_core::operation::{Compressor, Opcode};
use sonar_core::{Application, Class, ShapeId, ShapeInfo, Statement, Timestamp};

use crate::compress::Inflater;
use crate::message::{Body, HEADER, Header, Reply, Request};
use crate::shape::{CommandKind, Rendered};
use crate::tcp::Side;

/// The most requests of one connection that wait for an answer.
pub const MAX_PENDING: usize = 1_024;
/// The most replies of one connection that wait for their request.
pub const MAX_EARLY: usize = 8;
/// How long a reply waits for its request.
pub const EARLY_NS: u64 = 200_000_000;
/// Messages up to this many bytes are put together when segments split them; longer ones are walked.
pub const COLLECT: usize = 16 * 1024;
/// How many bytes of a stream are searched for a first message before it counts as no MongoDB.
pub const SEARCH: u64 = 256 * 1024;

/// What a message says, without its bytes.
#[derive(Debug)]
pub struct Pending {
    /// What the reply's `responseTo` will be.
    pub request_id: u32,
    /// The id that the client gave; differs from the above in an exhaust chain.
    pub own_id: u32,
    /// Last byte of the request.
    pub start: Timestamp,
    pub shape: Arc<ShapeInfo>,
    pub ordered_id: ShapeId,
    pub statements: Box<[Statement]>,
    pub statement_count: u32,
    pub class: Class,
    pub kind: CommandKind,
    /// The command as sent, where it differs from the shape's.
    pub command: Option<&'static str>,
    pub opcode: Opcode,
    pub compressor: Option<Compressor>,
    pub cursor: Option<i64>,
    pub bytes: u64,
    /// An OP_QUERY that is a find, whose reply has the documents themselves.
    pub legacy_find: bool,
    /// The cursor it opens, if it does, waits on purpose.
    pub opens_waiting: bool,
    /// Found while looking for a header: believed once it is answered.
    pub provisional: bool,
    /// A further reply of an exhaust chain.
    pub follows: bool,
    /// Wants a chain of replies (legacy exhaust).
    pub exhaust: bool,
    /// Is a getLastError that answers for the write held in [`Connection::legacy_write`].
    pub answers_write: bool,
    pub values: Option<Box<str>>,
}

/// A reply that came before its request.
#[derive(Debug)]
pub struct Early {
    pub header: Header,
    pub reply: Box<Reply>,
    pub arrival: Arrival,
}

/// When and how a reply came.
#[derive(Copy, Clone, Debug)]
pub struct Arrival {
    /// First byte.
    pub first: Timestamp,
    /// Last byte.
    pub last: Timestamp,
    pub compressor: Option<Compressor>,
    /// All of it could be read.
    pub whole: bool,
}

/// A message that is walked while it comes, because it is too long to be put together.
pub struct Streaming {
    pub body: Body,
    pub request: Request<Rendered>,
    pub reply: Reply,
    pub inflater: Option<Inflater>,
    pub compressor: Option<Compressor>,
    /// Bytes that the body wants to see again.
    pub carry: Vec<u8>,
    /// Head of an OP_COMPRESSED body, until it is whole.
    pub compressed_head: Vec<u8>,
    /// Nothing more can be read; why is counted already.
    pub failed: bool,
    pub opcode: Opcode,
}

/// Where in a stream we are.
pub enum Stage {
    /// Before or inside a header.
    Header { have: usize, bytes: [u8; HEADER] },
    /// Putting a short message together.
    Collect { header: Header, body: Vec<u8> },
    /// Walking a long one.
    Stream { header: Header, left: u64, streaming: Box<Streaming> },
    /// Passing over a message that has a hole, or cannot be read.
    Pass { header: Header, left: u64 },
    /// Looking for the next message; the last bytes are kept, as a header may span segments.
    Lost { tail: Vec<u8>, searched: u64 },
}

/// One of the two streams.
pub struct Half {
    pub stage: Stage,
    /// First byte of the message that is being read.
    pub first: Timestamp,
    /// A message has been found by its looks and nothing has confirmed it.
    pub provisional: bool,
}

impl Half {
    pub fn new() -> Self {
        Self { stage: Stage::start(), first: Timestamp::default(), provisional: false }
    }
}

impl Stage {
    /// At a boundary between messages.
    pub const fn start() -> Self {
        Self::Header { have: 0, bytes: [0; HEADER] }
    }

    /// Whether a message has begun and not ended.
    pub const fn in_message(&self) -> bool {
        matches!(self, Self::Collect { .. } | Self::Stream { .. } | Self::Pass { .. })
    }
}

/// A connection between a client and a server.
pub struct Connection {
    /// Which side is the server; `None` until something tells.
    pub server: Option<Side>,
    pub halves: [Half; 2],
    pub pending: VecDeque<Pending>,
    pub early: Vec<Early>,
    pub app: Arc<Application>,
    /// The client is a server.
    pub from_server: bool,
    /// A message has been read: it is MongoDB.
    pub speaks: bool,
    /// A legacy write that a getLastError may follow.
    pub legacy_write: Option<Box<Pending>>,
}

impl Connection {
    /// A connection of which nothing is known but who asked, if that.
    pub fn new(server: Option<Side>, app: Arc<Application>) -> Self {
        Self {
            server,
            halves: [Half::new(), Half::new()],
            pending: VecDeque::new(),
            early: Vec::new(),
            app,
            from_server: false,
            speaks: false,
            legacy_write: None,
        }
    }

    /// Requests in flight, as the balance of the counters wants them.
    pub fn requests_in_progress(&self) -> u64 {
        self.pending.iter().filter(|pending| !pending.follows).count() as u64
            + u64::from(self.legacy_write.is_some())
    }
}
