//! What a flow delivers, and to whom.

use sonar_core::{Endpoint, Timestamp};

/// The ends of a flow, and how it began.
#[derive(Copy, Clone, Debug)]
pub struct Flow {
    /// Its place in the table; a later flow may have the same.
    pub number: u32,
    /// The two ends, sorted.
    pub ends: [Endpoint; 2],
    /// Who sent the SYN, where it (or its answer) was seen.
    pub opener: Option<Side>,
    /// Time of the first segment.
    pub first: Timestamp,
    /// Time of the last segment.
    pub last: Timestamp,
    /// Segments of both ends had been seen when the first bytes came.
    pub both_seen: bool,
}

/// Which end of a flow sent something: the ends are sorted, the lower one first.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// The lower of the two endpoints.
    Low,
    /// The higher of the two endpoints.
    High,
}

impl Side {
    /// 0 or 1: the index into [`Flow::ends`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The other end.
    pub const fn other(self) -> Self {
        match self {
            Self::Low => Self::High,
            Self::High => Self::Low,
        }
    }

    /// Sorts two endpoints; returns which side the first one is.
    pub fn of(source: Endpoint, destination: Endpoint) -> ([Endpoint; 2], Self) {
        if source <= destination {
            ([source, destination], Self::Low)
        } else {
            ([destination, source], Self::High)
        }
    }
}

/// What to do with a stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Go on.
    Continue,
    /// It is not MongoDB's: deliver nothing more of this flow.
    Ignore,
}

/// How much of a stream will never come.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Lost {
    /// Exactly this many bytes.
    Bytes(u64),
    /// Exactly this many bytes, which a snap length cut off.
    Cut(u64),
    /// Unknown: the stream was joined late.
    Unknown,
}

impl Lost {
    /// How many bytes, where that is known.
    pub const fn bytes(self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) | Self::Cut(bytes) => Some(bytes),
            Self::Unknown => None,
        }
    }
}

/// Bytes of one side, in order, never empty.
#[derive(Copy, Clone, Debug)]
pub struct Chunk<'a> {
    /// Who sent them.
    pub side: Side,
    /// When the receiver could read them.
    pub time: Timestamp,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// A place in the stream of one side where bytes are missing for good.
#[derive(Copy, Clone, Debug)]
pub struct Gap {
    /// Who sent the bytes.
    pub side: Side,
    /// When it became known that they had been sent.
    pub time: Timestamp,
    /// How many they are.
    pub lost: Lost,
}

/// A direction of a flow of which no segment is captured, though it must have sent some.
#[derive(Copy, Clone, Debug)]
pub struct Unheard {
    /// Who sends them; `None`: a segment of the missing direction was captured after all.
    pub side: Option<Side>,
    /// When it became known.
    pub time: Timestamp,
}

/// Why a flow ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Close {
    /// FIN from both sides.
    Finished,
    /// RST.
    Reset,
    /// A new connection has the same ends.
    Reused,
    /// Nothing came for too long.
    Idle,
    /// It was ignored, or is the twin of another flow.
    Ignored,
    /// The table was full.
    Evicted,
    /// The capture has ended.
    EndOfCapture,
}

/// Receives the streams.
///
/// For each flow: `open` once, with the first bytes or the first gap (a flow without any is not reported); then
/// `data` and `gap` in the order of the stream of each side, and `fin` behind the last byte of a side; then `close`
/// once.
///
/// Times are those of the frame that brought the bytes. Bytes that came too early have the time of the frame that
/// filled the gap before them, since the receiver could not read them earlier; if the gap was given up, the time of
/// their own frame. A gap has the time of the first frame which shows that its bytes were sent: the one behind it, or
/// an acknowledgement.
pub trait StreamHandler {
    /// The state of each flow.
    type Connection;
    /// A flow begins.
    fn open(&mut self, flow: &Flow) -> Self::Connection;
    /// The next bytes of one side.
    fn data(&mut self, flow: &Flow, conn: &mut Self::Connection, chunk: Chunk<'_>) -> Verdict;
    /// Bytes of one side are missing here.
    fn gap(&mut self, flow: &Flow, conn: &mut Self::Connection, gap: Gap);
    /// One side has sent all that it will send.
    fn fin(&mut self, flow: &Flow, conn: &mut Self::Connection, side: Side, time: Timestamp);
    /// The server of this flow has refused another connection of the same client at this time, and has sent nothing
    /// on this one since then: it has probably ended.
    fn refused(&mut self, _flow: &Flow, _conn: &mut Self::Connection, _time: Timestamp) {}
    /// One direction of this flow is not captured; or it is after all.
    fn unheard(&mut self, _flow: &Flow, _conn: &mut Self::Connection, _unheard: Unheard) {}
    /// The end of a flow; after [`Verdict::Ignore`] it is reported at once.
    fn close(&mut self, flow: &Flow, conn: Self::Connection, time: Timestamp, how: Close);
}
