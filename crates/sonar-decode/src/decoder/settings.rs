//! What to decode, and who receives the operations.

use std::sync::Arc;

use sonar_core::Operation;

use crate::keylog::KeyLog;

/// Which TCP ports are followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ports {
    /// All ports. Streams that turn out not to be MongoDB's are ignored.
    #[default]
    Any,
    /// The ports in these inclusive ranges.
    Ranges(Vec<(u16, u16)>),
}

impl Ports {
    /// Whether `port` is named. [`Ports::Any`] names none.
    pub fn names(&self, port: u16) -> bool {
        match self {
            Self::Any => false,
            Self::Ranges(ranges) => ranges.iter().any(|&(low, high)| (low..=high).contains(&port)),
        }
    }
}

/// The smallest useful [`Settings::snap_replies`], in bytes. On a connection that was joined late, a message is
/// recognised by its header (16 bytes) and the beginning of its OP_MSG body: flags (4), kind of the first section
/// (1), length of its document (4) and type of the first element (1). With fewer bytes no reply on such a connection
/// can be paired with its request, and every request seems to wait for ever.
pub const MIN_SNAP_REPLIES: u32 = crate::message::HEADER as u32 + 10;

/// What to decode, and how.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The ports of servers.
    pub ports: Ports,
    /// How many bytes of each packet of a reply were captured; at least [`MIN_SNAP_REPLIES`] to be of use.
    pub snap_replies: Option<u32>,
    /// Include the values of commands.
    pub show_values: bool,
    /// Verify the checksum of every OP_MSG that has one, not only while searching for a message after a gap.
    pub verify_checksums: bool,
    /// Keep one connection in this many, by [`sample::contains`](sonar_core::sample::contains); 0 and 1 keep all.
    pub sample: u32,
    /// What encrypted connections are, for this decoder.
    pub tls: TlsSource,
    /// The secrets that decrypt the packets of encrypted connections.
    pub keys: Option<Arc<KeyLog>>,
    /// What all connections may hold together is divided by this; 0 and 1: all of it.
    pub share: usize,
}

/// How the plaintext of encrypted connections is read.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum TlsSource {
    /// It is not: encrypted connections are lost.
    #[default]
    None,
    /// Inside the server's process, by another decoder.
    Process,
    /// This decoder reads it, and nothing else.
    This,
    /// This decoder reads what processes pass through their sockets, and nothing else. What is encrypted there is read
    /// by another decoder.
    Sockets,
}

impl TlsSource {
    /// Whether the decoder reads what passes inside processes, not packets.
    pub const fn is_process(self) -> bool {
        matches!(self, Self::This | Self::Sockets)
    }
}

/// Receives operations.
pub trait Sink {
    /// An operation has ended, or the capture ended before it did
    /// ([`Outcome::InFlight`](sonar_core::Outcome)). Operations of one connection come in the order in which
    /// they end.
    fn operation(&mut self, op: &Operation<'_>);
}
