//! What a process received or sent on a connection, as the process itself saw it: without encryption.

use crate::{Endpoint, Timestamp};

/// A part of one direction of a connection, read inside one of its processes.
#[derive(Copy, Clone, Debug)]
pub struct Plaintext<'a> {
    /// Number of the session; a later session of the same connection has another one.
    pub session: u64,
    /// The process in which it was read.
    pub process: u32,
    /// Who sent it.
    pub source: Endpoint,
    /// Who receives it.
    pub destination: Endpoint,
    /// When the process took it, or handed it over.
    pub time: Timestamp,
    /// Its place in its direction, in bytes since the session was first seen.
    pub offset: u64,
    /// How many bytes of the other direction had passed.
    pub other: u64,
    /// The bytes.
    pub bytes: &'a [u8],
    /// Bytes behind these that were not copied.
    pub skipped: u32,
    /// The session began while it was followed, and this is its first part.
    pub begins: bool,
    /// The session has ended; there are no bytes.
    pub ends: bool,
}

impl Plaintext<'_> {
    /// The same moment in the other direction, without bytes.
    pub const fn answered(&self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            offset: self.other,
            other: self.offset,
            bytes: &[],
            skipped: 0,
            begins: false,
            ..*self
        }
    }
}
