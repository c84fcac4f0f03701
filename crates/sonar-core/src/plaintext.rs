//! What a process received or sent on a connection, as the process itself saw it: without encryption.

use crate::{Endpoint, Timestamp, TlsSuite};

/// What happened to a session of a process.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PlaintextEvent {
    /// A part of one direction passed. `received`: the process received it; otherwise it sent it.
    Part {
        /// Which direction.
        received: bool,
    },
    /// Its connection is known now.
    Bound,
    /// It has ended.
    Ended,
}

/// A part of one direction of a connection, read inside one of its processes, or what became of its session.
#[derive(Copy, Clone, Debug)]
pub struct Plaintext<'a> {
    /// Number of the session; a later session, also of the same connection, has a higher one.
    pub session: u64,
    /// The process in which it was read.
    pub process: u32,
    /// The connection: the process's own end, and the other one. `None`: it is not known yet.
    pub ends: Option<[Endpoint; 2]>,
    /// What happened; only parts have bytes.
    pub event: PlaintextEvent,
    /// When the process took it, or handed it over.
    pub time: Timestamp,
    /// Its place in its direction, in bytes since the session was first seen. Of an event without direction: in that
    /// which the process sends.
    pub offset: u64,
    /// How many bytes of the other direction had passed.
    pub other: u64,
    /// The bytes.
    pub bytes: &'a [u8],
    /// Bytes behind these that were not copied.
    pub skipped: u32,
    /// Version and cipher suite, as far as they are known.
    pub suite: TlsSuite,
    /// The session began while it was followed, and this is its first part.
    pub begins: bool,
}

impl Plaintext<'_> {
    /// The same moment in the other direction, without bytes.
    pub const fn answered(&self) -> Self {
        Self { offset: self.other, other: self.offset, bytes: &[], skipped: 0, begins: false, ..*self }
    }
}
