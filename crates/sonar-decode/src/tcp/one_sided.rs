//! Of which flows is only one direction captured?
//!
//! A filter like `dst port 27017`, or a mirror port of one direction, shows requests and no replies. Whoever gets bytes
//! acknowledges them within half a second (RFC 1122, section 4.2.3.2), so a direction without any segment is soon known
//! to be missing; at once if the other end has acknowledged something of it.

use sonar_core::Timestamp;

use super::entry::{Env, FlowEntry};
use super::handler::{Side, StreamHandler, Unheard};

/// So many nanoseconds after its first bytes, a flow has segments in both directions.
const UNHEARD_NS: u64 = 1_000_000_000;

/// Flows of which one direction has not been seen yet.
#[derive(Debug, Default)]
pub(super) struct OneSided {
    /// Their numbers. Those of flows that have ended stay until the next tick.
    pub(super) flows: Vec<u32>,
    /// Both directions of some flow were seen.
    pub(super) both_seen: bool,
}

impl OneSided {
    pub(super) fn heap_bytes(&self) -> usize {
        self.flows.capacity() * size_of::<u32>()
    }
}

impl<C> FlowEntry<C> {
    /// The direction of which no segment was seen.
    pub(super) fn unseen(&self) -> Option<Side> {
        [Side::Low, Side::High].into_iter().find(|side| self.pins[side.index()].place.is_none())
    }

    /// Tells the handler if one direction is not captured. `alone`: of no flow both directions are.
    pub(super) fn tell_unheard<H: StreamHandler<Connection = C>>(
        &mut self,
        now: Timestamp,
        alone: bool,
        env: &mut Env<'_, H>,
    ) {
        let side = self.unseen();
        let is_known = side.is_none_or(|side| {
            alone || self.halves[side.index()].next().is_some() || now.since(self.flow.first) >= UNHEARD_NS
        });
        if !is_known || side.is_some() == self.unheard {
            return;
        }
        if let Some(conn) = &mut self.conn {
            self.unheard = side.is_some();
            env.handler.unheard(&self.flow, conn, Unheard { side, time: now });
        }
    }
}
