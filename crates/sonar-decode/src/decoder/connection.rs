//! What is known of one connection: where its two streams are, what waits for an answer, who asks.

use std::collections::VecDeque;
use std::sync::Arc;

use sonar_core::{Application, Timestamp};

use super::pair::{Early, Pending};
use super::stream::Half;
use crate::tcp::Side;

/// A connection between a client and a server.
pub struct Connection {
    /// Which side is the server; `None` until something decides it.
    pub server: Option<Side>,
    pub halves: [Half; 2],
    pub pending: VecDeque<Pending>,
    pub early: Vec<Early>,
    pub app: Arc<Application>,
    /// The client is a server.
    pub from_server: bool,
    /// It was open before the capture began.
    pub joined_late: bool,
    /// A reply has been paired with its request: what answers nothing from now on was lost.
    pub paired: bool,
    /// When the client's stream had a gap, until a request after it is answered: requests in the gap may be
    /// the ones that the next replies answer.
    pub request_gap: Option<Timestamp>,
    /// A reply that was not whole may have said that more follow, so one is waited for. A client sends nothing
    /// while more replies come: its next request shows that none will.
    pub assumes_chain: bool,
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
            joined_late: app.joined_late,
            app,
            from_server: false,
            paired: false,
            request_gap: None,
            assumes_chain: false,
            speaks: false,
            legacy_write: None,
        }
    }

    /// Where the request stands that a reply to `id` answers. Of several, it is one that is not passed, and a
    /// request that was sent rather than what follows in a chain: a server chooses the ids of its replies
    /// without regard to those of its clients.
    #[inline]
    pub fn waiting_for(&self, id: u32) -> Option<usize> {
        let position = |is_meant: fn(&Pending) -> bool| {
            self.pending.iter().position(|pending| pending.request_id == id && is_meant(pending))
        };
        let sent = position(|pending| !pending.follows && pending.passed.is_none());
        sent.or_else(|| position(|pending| pending.passed.is_none())).or_else(|| position(|_| true))
    }

    /// Gives back the room of a burst of requests that is over.
    #[inline]
    pub fn give_back_room(&mut self) {
        if self.pending.capacity() > 16 && self.pending.len() * 4 < self.pending.capacity() {
            self.pending.shrink_to(self.pending.len() * 2);
        }
    }

    /// Requests in flight, as the balance of the counters wants them.
    pub fn requests_in_progress(&self) -> u64 {
        let in_flight = self.pending.iter().filter(|pending| !pending.follows);
        in_flight.map(|pending| 1 + u64::from(pending.answers.is_some())).sum::<u64>()
            + u64::from(self.legacy_write.is_some())
    }
}
