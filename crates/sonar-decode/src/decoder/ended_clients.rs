//! Connections whose end a server's log states: what is in flight on them ends, even if that end was not captured.

use std::collections::HashMap;

use foldhash::quality::RandomState;
use sonar_core::{Endpoint, Timestamp};

use crate::tcp::Flow;

/// The end of a connection, as the log of its server says.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct EndedClient {
    /// The client's end of the connection.
    pub client: Endpoint,
    /// When the line was written, by the clock of the packets. A connection with a packet at this time or later stays: it
    /// may be the next one from this port.
    pub at: Timestamp,
}

/// Connections that are to end, the last one to end first.
#[derive(Debug, Default)]
pub(super) struct EndedClients(Vec<EndedClient>);

impl EndedClients {
    /// Adds some, in any order.
    pub fn add(&mut self, clients: impl IntoIterator<Item = EndedClient>) {
        self.0.extend(clients);
        self.0.sort_by_key(|one| std::cmp::Reverse(one.at));
    }

    /// Takes those that had ended at `now`: packets that were sent before have been read then.
    pub fn take_until(&mut self, now: Timestamp) -> DueClients {
        let left = self.0.partition_point(|one| one.at > now);
        // Of several at one port the last one to end remains.
        DueClients(self.0.drain(left..).rev().map(|one| (one.client, one.at)).collect())
    }
}

/// Clients of which a connection has ended, and when the last one did.
#[derive(Debug, Default)]
pub(super) struct DueClients(HashMap<Endpoint, Timestamp, RandomState>);

impl DueClients {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When this connection ended, if it did.
    pub fn end_of(&self, flow: &Flow) -> Option<Timestamp> {
        let ends = flow.ends.iter().filter_map(|end| self.0.get(end).copied());
        ends.filter(|at| flow.last < *at).max()
    }
}
