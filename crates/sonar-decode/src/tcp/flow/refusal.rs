//! Servers that have ended. One that answers a SYN with a RST has no listener any more: its process has ended. The FIN or
//! RST of its other connections may have been lost.

use sonar_core::{Coverage, Endpoint, Timestamp};

use super::{Flow, FlowTable, StreamHandler};
use crate::tcp::entry::{Env, FlowEntry};
use crate::tcp::handler::{Close, Side};

/// Flows are searched at most once in this many nanoseconds: clients of a server that is down try again and again.
const SEARCH_NS: u64 = 100_000_000;

/// Who was refused, and by whom.
#[derive(Copy, Clone, Debug)]
pub(super) struct RefusedConnection {
    client: Endpoint,
    server: Endpoint,
}

impl<C> FlowEntry<C> {
    /// Whether `side`, which sends a RST, refuses the connection with it: it was asked for one, and has sent nothing
    /// before.
    #[cold]
    pub(super) fn refused(&self, side: Side) -> Option<RefusedConnection> {
        let is_refusal = !self.opened
            && self.flow.opener == Some(side.other())
            && self.halves[side.index()].isn().is_none()
            && self.halves[side.other().index()].isn().is_some();
        let end = |side: Side| self.flow.ends[side.index()];
        is_refusal.then(|| RefusedConnection { client: end(side.other()), server: end(side) })
    }
}

impl<C> FlowTable<C> {
    /// Ends what the same client has open to that server: another client may be refused by a rule for it alone.
    #[cold]
    pub(super) fn end_refused<H: StreamHandler<Connection = C>>(
        &mut self,
        RefusedConnection { client, server }: RefusedConnection,
        time: Timestamp,
        env: &mut Env<'_, H>,
    ) {
        if time.since(self.refused) < SEARCH_NS && time >= self.refused {
            return;
        }
        self.refused = time;
        let is_of_both = |[low, high]: [Endpoint; 2]| {
            (low == server && high.ip() == client.ip()) || (high == server && low.ip() == client.ip())
        };
        let ended: Vec<u32> = (0..self.flows.end())
            .filter(|at| {
                let entry = self.flows.get(*at);
                entry.is_some_and(|entry| entry.opened && is_of_both(entry.flow.ends))
            })
            .collect();
        for at in ended {
            self.end_flow(at, time, Close::Reset, env);
        }
    }

    /// Ends each flow for which `ended` has a time, as its reset at that time would.
    #[cold]
    pub fn end_where<H: StreamHandler<Connection = C>>(
        &mut self,
        ended: impl Fn(&Flow, &C) -> Option<Timestamp>,
        coverage: &mut Coverage,
        handler: &mut H,
    ) {
        let mut env = Env { coverage, handler };
        for at in 0..self.flows.end() {
            let entry = self.flows.get(at);
            let time = entry.and_then(|entry| ended(&entry.flow, entry.conn.as_ref()?));
            if let Some(time) = time {
                self.end_flow(at, time, Close::Reset, &mut env);
            }
        }
    }
}
