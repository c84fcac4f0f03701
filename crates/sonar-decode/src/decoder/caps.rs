//! What gives way when a table that all connections share is full? The oldest entries, never the newest.
//!
//! A whole share of them at once, so that the search for the oldest is paid for seldom.

use sonar_core::Timestamp;

use super::pair::{MAX_ALL_EARLY, PENDING_BUDGET};
use super::stream::{MAX_STREAMING, Stage};
use super::{Core, Decoder, Handler, Sink};

/// One in so many entries gives way.
const SHARE: usize = 8;

impl Core {
    /// Whether more is held than the caps allow.
    #[inline]
    pub(super) fn is_over_caps(&self) -> bool {
        self.pending_bytes > PENDING_BUDGET || self.early > MAX_ALL_EARLY || self.streaming > MAX_STREAMING
    }
}

impl Decoder {
    /// Makes room in the tables that are too full.
    #[cold]
    pub(super) fn make_room(&mut self, now: Timestamp, sink: &mut impl Sink) {
        let Self { flows, core, .. } = self;
        let mut handler = Handler { core, sink };
        if handler.core.pending_bytes > PENDING_BUDGET {
            let oldest =
                oldest_share(flows.iter().flat_map(|(_, conn)| conn.pending.iter().map(|p| p.start)));
            for (flow, conn) in flows.iter_mut() {
                while handler.core.pending_bytes > PENDING_BUDGET / SHARE * (SHARE - 1)
                    && conn.pending.front().is_some_and(|pending| pending.start <= oldest)
                {
                    handler.evict_oldest(flow, conn, now);
                }
            }
        }
        if handler.core.early > MAX_ALL_EARLY {
            let oldest =
                oldest_share(flows.iter().flat_map(|(_, conn)| conn.early.iter().map(|e| e.arrival.first)));
            for (flow, conn) in flows.iter_mut() {
                while handler.core.early > MAX_ALL_EARLY / SHARE * (SHARE - 1)
                    && conn.early.first().is_some_and(|early| early.arrival.first <= oldest)
                {
                    let reply = conn.early.remove(0);
                    handler.core.early -= 1;
                    handler.give_up_reply(flow, conn, reply);
                }
            }
        }
        if handler.core.streaming > MAX_STREAMING {
            let is_long = |stage: &Stage| matches!(stage, Stage::Stream { .. });
            let oldest = oldest_share(flows.iter().flat_map(|(_, conn)| {
                conn.halves.iter().filter(|half| is_long(&half.stage)).map(|half| half.first)
            }));
            for (_, conn) in flows.iter_mut() {
                for half in conn.halves.iter_mut().filter(|half| half.first <= oldest) {
                    if handler.core.streaming > MAX_STREAMING / SHARE * (SHARE - 1)
                        && let Stage::Stream { header, left, .. } = half.stage
                    {
                        handler.core.forget(&half.stage);
                        half.stage = Stage::Pass { header, left, evicted: true };
                    }
                }
            }
        }
    }
}

/// The time up to which the oldest share of `times` lies.
fn oldest_share(times: impl Iterator<Item = Timestamp>) -> Timestamp {
    let mut times: Vec<Timestamp> = times.collect();
    if times.is_empty() {
        return Timestamp::default();
    }
    let last = times.len().div_ceil(SHARE) - 1;
    *times.select_nth_unstable(last).1
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bson::doc;

    use super::*;
    use crate::decoder::collected::{Collected, message};
    use crate::testing::{Conversation, End};
    use crate::{Settings, Shared};

    fn conversation(n: usize) -> Conversation {
        let talk = Conversation::new(&format!("10.0.{}.2:{}", n / 200, 20_000 + n), "10.0.255.1:27017");
        // Connections with the same numbers would be one connection, seen twice.
        let mut talk = talk.with_seq(1_000 + 77_777 * n as u32, 5_000 + 99_999 * n as u32);
        talk.wait(1_000 * n as u64).handshake();
        talk
    }

    fn take(decoder: &mut Decoder, seen: &mut Collected, talk: &mut Conversation) {
        for packet in talk.packets.drain(..) {
            decoder.packet(&packet.as_packet(), seen);
        }
        assert!(!decoder.core.is_over_caps());
    }

    #[test]
    fn the_share_that_gives_way_is_the_oldest() {
        let at = Timestamp::from_unix_ns;
        assert_eq!(oldest_share([9, 1, 8, 2, 7, 3, 6, 4].map(at).into_iter()), at(1));
        assert_eq!(oldest_share((0..80).rev().map(at)), at(9));
        assert_eq!(oldest_share(std::iter::empty()), Timestamp::default());
    }

    #[test]
    fn the_oldest_long_message_gives_way_and_never_the_newest() {
        let (mut decoder, mut seen) =
            (Decoder::new(Settings::default(), Arc::new(Shared::default())), Collected::default());
        let insert = doc! {"insert": "orders", "documents": [{"a": "x".repeat(40_000)}], "$db": "shop"};
        let bytes = message(1, 0, &insert);
        let (begin, end) = bytes.split_at(1_000);
        let mut talks: Vec<Conversation> = (0..MAX_STREAMING + 10).map(conversation).collect();
        for talk in &mut talks {
            talk.send(End::Client, begin);
            take(&mut decoder, &mut seen, talk);
        }
        for talk in &mut talks {
            talk.send(End::Client, end).send(End::Server, &message(2, 1, &doc! {"n": 1, "ok": 1.0}));
            take(&mut decoder, &mut seen, talk);
        }
        let evicted = decoder.coverage().messages_evicted as usize;
        assert!((10..=10 + MAX_STREAMING / SHARE).contains(&evicted), "{evicted}");
        assert_eq!(seen.operations.len(), talks.len() - evicted);
        let newest = talks.last().unwrap().now();
        decoder.finish(newest, &mut seen);
        assert_eq!(decoder.coverage().imbalances(decoder.in_progress()), []);
        // Each of the others was answered, the newest among them: what is missing are the first.
        assert_eq!(decoder.coverage().replies_orphan as usize, evicted);
    }

    #[test]
    fn the_oldest_reply_that_waits_for_its_request_gives_way() {
        let (mut decoder, mut seen) =
            (Decoder::new(Settings::default(), Arc::new(Shared::default())), Collected::default());
        let each = super::super::pair::MAX_EARLY;
        let ok = doc! {"ok": 1.0};
        let mut talks: Vec<Conversation> = (0..MAX_ALL_EARLY / each + 1).map(conversation).collect();
        for talk in &mut talks {
            for id in 0..each as u32 {
                talk.send(End::Server, &message(100 + id, id, &ok));
            }
            take(&mut decoder, &mut seen, talk);
        }
        // On one connection the first of nine gives way.
        let newest = talks.last_mut().unwrap();
        newest.send(End::Server, &message(200, 99, &ok));
        take(&mut decoder, &mut seen, newest);
        for id in 0..each as u32 {
            newest.send(End::Client, &message(id, 0, &doc! {"ping": 1, "$db": "admin"}));
        }
        newest.send(End::Client, &message(99, 0, &doc! {"ping": 1, "$db": "admin"}));
        take(&mut decoder, &mut seen, newest);
        let answered = |seen: &Collected| -> Vec<u32> {
            seen.operations.iter().filter(|told| told.2 == "ok").map(|told| told.0).collect()
        };
        assert_eq!(answered(&seen), [1, 2, 3, 4, 5, 6, 7, 99]);
        let oldest = &mut talks[0];
        for id in 0..each as u32 {
            oldest.send(End::Client, &message(id, 0, &doc! {"ping": 1, "$db": "admin"}));
        }
        take(&mut decoder, &mut seen, oldest);
        assert_eq!(answered(&seen).len(), 8, "those of the first connection were given up");
        decoder.finish(talks[0].now(), &mut seen);
        assert_eq!(decoder.coverage().imbalances(decoder.in_progress()), []);
    }
}
