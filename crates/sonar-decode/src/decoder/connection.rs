//! What is known of one connection: where its two streams are, what waits for an answer, who asks.

use std::collections::VecDeque;
use std::sync::Arc;

use sonar_core::Application;

use super::pair::{Early, Pending};
use super::stream::Half;
use crate::tcp::Side;

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
        let in_flight = self.pending.iter().filter(|pending| !pending.follows);
        in_flight.map(|pending| 1 + u64::from(pending.answers.is_some())).sum::<u64>()
            + u64::from(self.legacy_write.is_some())
    }
}
