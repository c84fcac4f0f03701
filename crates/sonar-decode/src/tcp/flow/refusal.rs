//! Connections that a server refused, by answering a SYN with a RST. Most often its process has ended, and the FIN or RST
//! of its other connections may have been lost. But it may also serve the open connections and refuse only new ones, or a
//! firewall may have answered for it. So the flows stay open, and their handler only learns of the refusal.

use sonar_core::{Coverage, Timestamp};

use super::{Flow, FlowTable, StreamHandler};
use crate::tcp::entry::{Env, FlowEntry};
use crate::tcp::handler::{Close, Side};
use crate::tcp::refused::{Refusals, RefusedConnection};

/// Flows are searched at most once in this many nanoseconds, or when there are too many refusals: clients of a server
/// that is down try again and again.
const SEARCH_NS: u64 = 100_000_000;
/// Refusals after which flows are searched in any case.
const MAX_REFUSALS: usize = 1_024;

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
        is_refusal.then(|| RefusedConnection { client: end(side.other()).ip(), server: end(side) })
    }
}

impl<C> FlowTable<C> {
    /// Notes that a connection was refused, and now and then tells the handler of what the same client has open to that
    /// server.
    #[cold]
    pub(super) fn note_refused<H: StreamHandler<Connection = C>>(
        &mut self,
        refused: RefusedConnection,
        time: Timestamp,
        env: &mut Env<'_, H>,
    ) {
        let Refusals { refused: all, searched } = &mut self.refusals;
        all.insert(refused, time);
        if time.since(*searched) >= SEARCH_NS || time < *searched || all.len() >= MAX_REFUSALS {
            *searched = time;
            self.tell_refused(env);
        }
    }

    /// Tells the handler of the flows of all refusals that were noted.
    pub(super) fn tell_refused<H: StreamHandler<Connection = C>>(&mut self, env: &mut Env<'_, H>) {
        let Self { flows, refusals, .. } = self;
        if refusals.refused.is_empty() {
            return;
        }
        for FlowEntry { flow, conn, pins, .. } in flows.iter_mut() {
            let Some(conn) = conn else { continue };
            for side in [Side::Low, Side::High] {
                let server = flow.ends[side.index()];
                let client = flow.ends[side.other().index()].ip();
                let refused = refusals.refused.get(&RefusedConnection { client, server });
                // A server that has sent anything on it since then has not ended.
                if let Some(time) = refused.filter(|time| pins[side.index()].last <= **time) {
                    env.handler.refused(flow, conn, *time);
                }
            }
        }
        refusals.refused.clear();
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
