//! Which directions of the flows were seen: see [`OneSided`].

use sonar_core::Timestamp;

use super::FlowTable;
use crate::tcp::entry::{Env, FlowState};
use crate::tcp::handler::StreamHandler;
use crate::tcp::one_sided::OneSided;

impl<C> FlowTable<C> {
    /// A flow has begun: takes note of which directions were seen.
    #[cold]
    pub(super) fn note_sides(&mut self, at: u32) {
        let Self { flows, one_sided, .. } = self;
        let Some(entry) = flows.get_mut(at) else { return };
        if entry.unseen().is_none() {
            one_sided.both_seen = true;
            return;
        }
        entry.one_sided = true;
        if one_sided.flows.len() >= 2 * flows.end() as usize + 64 {
            one_sided.flows.retain(|&at| flows.get(at).is_some_and(|entry| entry.one_sided));
            one_sided.flows.sort_unstable();
            one_sided.flows.dedup();
        }
        one_sided.flows.push(at);
    }

    /// Tells the handler of the flows of which one direction is not captured, as far as that is known `now`.
    pub(super) fn tell_unheard<H: StreamHandler<Connection = C>>(
        &mut self,
        now: Timestamp,
        at_end: bool,
        env: &mut Env<'_, H>,
    ) {
        let Self { flows, one_sided, .. } = self;
        let OneSided { flows: numbers, both_seen } = one_sided;
        numbers.retain(|&at| {
            let Some(entry) = flows.get_mut(at).filter(|entry| entry.one_sided) else { return false };
            entry.one_sided = matches!(entry.state, FlowState::Live);
            if entry.one_sided && entry.unseen().is_none() {
                entry.one_sided = false;
                *both_seen = true;
                entry.tell_unheard(now, false, env);
            }
            entry.one_sided
        });
        let alone = at_end && !*both_seen;
        for &at in &*numbers {
            if let Some(entry) = flows.get_mut(at) {
                entry.tell_unheard(now, alone, env);
            }
        }
    }
}
