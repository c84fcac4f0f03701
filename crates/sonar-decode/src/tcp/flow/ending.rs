//! How flows end: at their FIN or RST, after a silence, for lack of room, or with the capture. Gaps that have waited too
//! long are given up at the same time.

use sonar_core::{Coverage, Timestamp};

use super::{FlowTable, StreamHandler, hash};
use crate::tcp::entry::{Env, FlowState};
use crate::tcp::handler::{Close, Verdict};
use crate::tcp::one_sided::OneSided;
use crate::tcp::recent::EndedFlow;
use crate::tcp::slab::{FlowQueue, NONE};

/// The most flows that one tick forgets.
const TICK_FLOWS: usize = 8_192;

impl<C> FlowTable<C> {
    /// Ends a flow: delivers what is held, removes it from the table, and remembers it for a while.
    #[cold]
    pub(super) fn end_flow<H: StreamHandler<Connection = C>>(
        &mut self,
        at: u32,
        time: Timestamp,
        how: Close,
        env: &mut Env<'_, H>,
    ) {
        let Some(entry) = self.flows.get(at) else { return };
        let hash = hash(&self.hasher, &entry.flow.ends);
        if let Ok(found) = self.index.find_entry(hash, |&other| other == at) {
            found.remove();
        }
        let Some(mut entry) = self.flows.remove(at) else { return };
        if matches!(entry.state, FlowState::Live) {
            let verdict = entry.drive(&self.limits, &mut self.totals, env, |halves, cx| {
                for half in halves {
                    half.close(time, cx);
                }
            });
            if verdict == Verdict::Continue && entry.fins != entry.finished() {
                entry.tell_ends(time, env);
            }
            let how = if verdict == Verdict::Ignore { Close::Ignored } else { how };
            if how != Close::Ignored {
                entry.tell_unheard(time, false, env);
            }
            if let Some(conn) = entry.conn.take() {
                env.handler.close(&entry.flow, conn, time, how);
            }
        }
        if entry.opened {
            match how {
                Close::Idle => env.coverage.streams_idle += 1,
                Close::Evicted => env.coverage.streams_evicted += 1,
                _ => {}
            }
        }
        if matches!(how, Close::Finished | Close::Reset | Close::Ignored) {
            let ended = EndedFlow {
                time,
                places: [entry.pins[0].place, entry.pins[1].place],
                next: [entry.halves[0].next(), entry.halves[1].next()],
                isn: [entry.halves[0].isn(), entry.halves[1].isn()],
                twin: matches!(entry.state, FlowState::Twin { .. }),
            };
            self.recent.insert(entry.flow.ends, ended);
        }
    }

    /// Makes room: drops the flow that was silent longest, or first one that delivered nothing if there are many of
    /// them.
    #[cold]
    pub(super) fn evict<H: StreamHandler<Connection = C>>(&mut self, now: Timestamp, env: &mut Env<'_, H>) {
        let many = self.flows.queue_len(FlowQueue::Embryonic) > self.limits.flows / 8;
        let (first, second) = if many {
            (FlowQueue::Embryonic, FlowQueue::Open)
        } else {
            (FlowQueue::Open, FlowQueue::Embryonic)
        };
        if let Some(at) = self.flows.front(first).or_else(|| self.flows.front(second)) {
            self.end_flow(at, now, Close::Evicted, env);
        }
    }

    /// Adds a flow to the list for the next tick.
    #[cold]
    pub(super) fn wait(&mut self, at: u32) {
        // Flows that ended leave their number in the list.
        if self.waiting.len() >= 2 * self.flows.end() as usize + 64 {
            let Self { flows, waiting, .. } = self;
            waiting.retain(|&at| flows.get(at).is_some_and(|entry| entry.waiting));
            waiting.sort_unstable();
            waiting.dedup();
        }
        self.waiting.push(at);
    }

    /// Gives up gaps and flows that have waited too long. `now` is on the clock of the segments. The cost grows only
    /// with the flows that have gaps and those that are forgotten, whose number is bounded.
    pub fn tick<H: StreamHandler<Connection = C>>(
        &mut self,
        now: Timestamp,
        coverage: &mut Coverage,
        handler: &mut H,
    ) {
        let mut env = Env { coverage, handler };
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|&at| self.settle(at, now, &mut env));
        self.waiting.append(&mut waiting);
        for queue in [FlowQueue::Embryonic, FlowQueue::Open] {
            for _ in 0..TICK_FLOWS {
                let Some(at) = self.flows.front(queue) else { break };
                let Some(entry) = self.flows.get_mut(at) else { break };
                // A clock that was set back must not keep flows for ever.
                entry.flow.last = entry.flow.last.min(now);
                if now.since(entry.flow.last) < self.limits.idle_ns {
                    break;
                }
                self.end_flow(at, now, Close::Idle, &mut env);
            }
        }
        self.tell_unheard(now, false, &mut env);
        self.tell_refused(&mut env);
        self.recent.expire(now, self.limits.linger_ns);
    }

    /// Gives up the gaps of a flow that have waited long enough. Returns whether it still waits.
    fn settle<H: StreamHandler<Connection = C>>(
        &mut self,
        at: u32,
        now: Timestamp,
        env: &mut Env<'_, H>,
    ) -> bool {
        let Self { flows, totals, limits, .. } = self;
        // The flow may have ended, and its number may belong to another one now: the mark shows it.
        let Some(entry) = flows.get_mut(at) else { return false };
        if !entry.waiting {
            return false;
        }
        if !matches!(entry.state, FlowState::Live) {
            entry.waiting = false;
            return false;
        }
        let was_open = entry.opened;
        let verdict = entry.drive(limits, totals, env, |halves, cx| {
            for half in halves {
                half.settle(now, cx);
            }
        });
        entry.waiting = entry.halves[0].is_waiting() || entry.halves[1].is_waiting();
        let waits = entry.waiting;
        if entry.fins != entry.finished() {
            entry.tell_ends(now, env);
        }
        let over = entry.fins == [true; 2];
        if entry.opened != was_open {
            self.requeue(at, now);
        }
        if verdict == Verdict::Ignore {
            self.unfollow(at, FlowState::Ignored, now, env);
        }
        if over {
            self.end_flow(at, now, Close::Finished, env);
        }
        waits && !over
    }

    /// Gives up all gaps at the end of the capture, and ends the flows that have ended by then: what is left is in
    /// flight.
    pub fn close_gaps<H: StreamHandler<Connection = C>>(
        &mut self,
        now: Timestamp,
        coverage: &mut Coverage,
        handler: &mut H,
    ) {
        let mut env = Env { coverage, handler };
        for at in 0..self.flows.end() {
            let Self { flows, totals, limits, .. } = self;
            let Some(entry) = flows.get_mut(at).filter(|entry| matches!(entry.state, FlowState::Live)) else {
                continue;
            };
            let verdict = entry.drive(limits, totals, &mut env, |halves, cx| {
                for half in halves {
                    half.close(now, cx);
                }
            });
            if verdict == Verdict::Ignore {
                self.unfollow(at, FlowState::Ignored, now, &mut env);
            } else if entry.finished() == [true; 2] {
                self.end_flow(at, now, Close::Finished, &mut env);
            }
        }
        self.tell_unheard(now, true, &mut env);
        self.tell_refused(&mut env);
    }

    /// Ends all flows.
    pub fn finish<H: StreamHandler<Connection = C>>(
        &mut self,
        now: Timestamp,
        coverage: &mut Coverage,
        handler: &mut H,
    ) {
        self.close_gaps(now, coverage, handler);
        let mut env = Env { coverage, handler };
        for at in 0..self.flows.end() {
            self.end_flow(at, now, Close::EndOfCapture, &mut env);
        }
        self.waiting.clear();
        self.one_sided = OneSided::default();
        self.recent.clear();
        self.last = NONE;
    }
}
