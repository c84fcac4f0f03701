//! What gives way when a table that all connections share is full? The oldest entries, never the newest.
//!
//! A whole share of them at once, so that the search for the oldest is paid for seldom. Age is the order of
//! arrival: the times of packets are outside input, and may stand still or go back.

use sonar_core::Timestamp;

use super::pair::{MAX_ALL_EARLY, PENDING_BUDGET};
use super::stream::{MAX_STREAMING, Stage};
use super::{Core, Decoder, Handler, Sink};

/// One in so many entries gives way.
const SHARE: usize = 8;

/// What is left of a table of `most` entries, or bytes, after a share of it has given way.
const fn without_share(most: usize) -> usize {
    most / SHARE * (SHARE - 1)
}

impl Core {
    /// Whether more is held than the caps allow.
    #[inline]
    pub(super) fn is_over_caps(&self) -> bool {
        self.pending_bytes > PENDING_BUDGET || self.early > MAX_ALL_EARLY || self.streaming > MAX_STREAMING
    }

    /// The number of an entry that is about to be made in one of the tables. Numbers wrap around; compare
    /// entries by their [age](Self::age).
    #[inline]
    pub(super) fn next_arrival(&mut self) -> u32 {
        self.arrivals = self.arrivals.wrapping_add(1);
        self.arrivals
    }

    /// How many entries have arrived since the one with this number.
    fn age(&self, number: u32) -> u32 {
        self.arrivals.wrapping_sub(number)
    }
}

impl Decoder {
    /// Makes room in the tables that are too full.
    #[cold]
    pub(super) fn make_room(&mut self, now: Timestamp, sink: &mut impl Sink) {
        let Self { flows, core, .. } = self;
        let mut handler = Handler { core, sink };
        // Entries differ in size, so an eighth of them may not be enough.
        while handler.core.pending_bytes > PENDING_BUDGET {
            let all = flows.iter().flat_map(|(_, conn)| conn.pending.iter());
            let Some(limit) = age_limit(all.map(|pending| handler.core.age(pending.number))) else { break };
            for (flow, conn) in flows.iter_mut() {
                let mut at = 0;
                while handler.core.pending_bytes > without_share(PENDING_BUDGET)
                    && let Some(pending) = conn.pending.get(at)
                {
                    // What follows in a chain of replies stands in front of what came before it.
                    if handler.core.age(pending.number) >= limit {
                        handler.evict(flow, conn, at, now);
                    } else {
                        at += 1;
                    }
                }
                conn.give_back_room();
            }
        }
        if handler.core.early > MAX_ALL_EARLY
            && let all = flows.iter().flat_map(|(_, conn)| conn.early.iter())
            && let Some(limit) = age_limit(all.map(|early| handler.core.age(early.number)))
        {
            for (flow, conn) in flows.iter_mut() {
                // On one connection they stand in the order of their arrival.
                while handler.core.early > without_share(MAX_ALL_EARLY)
                    && conn.early.first().is_some_and(|early| handler.core.age(early.number) >= limit)
                {
                    let reply = conn.early.remove(0);
                    handler.core.early -= 1;
                    handler.give_up_reply(flow, conn, reply);
                }
            }
        }
        if handler.core.streaming > MAX_STREAMING {
            let all = flows.iter().flat_map(|(_, conn)| conn.halves.iter());
            let limit = age_limit(all.filter_map(|half| match &half.stage {
                Stage::Stream { streaming, .. } => Some(handler.core.age(streaming.number)),
                _ => None,
            }));
            for (_, conn) in flows.iter_mut() {
                for half in &mut conn.halves {
                    if handler.core.streaming > without_share(MAX_STREAMING)
                        && let Stage::Stream { header, left, streaming } = &half.stage
                        && limit.is_some_and(|limit| handler.core.age(streaming.number) >= limit)
                    {
                        let passed = Stage::Pass { header: *header, left: *left, evicted: true };
                        handler.core.forget(&half.stage);
                        half.stage = passed;
                    }
                }
            }
        }
    }
}

/// The least age of the oldest share of the entries of these ages; `None`: there are none.
fn age_limit(ages: impl Iterator<Item = u32>) -> Option<u32> {
    let mut ages: Vec<u32> = ages.collect();
    let first = ages.len() - ages.len().div_ceil(SHARE);
    (first < ages.len()).then(|| *ages.select_nth_unstable(first).1)
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
        assert_eq!(age_limit([9, 1, 8, 2, 7, 3, 6, 4].into_iter()), Some(9));
        assert_eq!(age_limit((0..80).rev()), Some(70));
        assert_eq!(age_limit(std::iter::empty()), None);
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

    /// Sends one message on each connection in turn, each packet a microsecond *before* the last one. Returns
    /// how often `count` grew: once for each time that room was made.
    fn take_back_in_time(
        (decoder, seen): (&mut Decoder, &mut Collected),
        talks: &mut [Conversation],
        (from, bytes): (End, &dyn Fn(u32) -> Vec<u8>),
        rounds: u32,
    ) -> u32 {
        let mut now = Timestamp::from_unix(1_777_629_600, 0).unix_ns();
        let (mut evicted, mut passes) = (0, 0);
        for round in 0..rounds {
            for talk in &mut *talks {
                talk.send(from, &bytes(round));
                for packet in &mut talk.packets {
                    now -= 1_000;
                    packet.time = Timestamp::from_unix_ns(now);
                }
                take(decoder, seen, talk);
                let coverage = decoder.coverage();
                let given_up = coverage.requests_evicted + coverage.replies_joined_late;
                passes += u32::from(std::mem::replace(&mut evicted, given_up) != given_up);
            }
        }
        passes
    }

    #[test]
    fn requests_give_way_in_the_order_of_their_arrival_whatever_their_time_is() {
        let settings = Settings { show_values: true, ..Settings::default() };
        let (mut decoder, mut seen) =
            (Decoder::new(settings, Arc::new(Shared::default())), Collected::default());
        // The numbers wrap around within the first pass.
        decoder.core.arrivals = u32::MAX - 10_000;
        let mut talks: Vec<Conversation> = (0..100).map(conversation).collect();
        let filter = doc! {"a": {"$in": vec!["x".repeat(200); 9]}};
        let find = |id| message(id, 0, &doc! {"find": "orders", "filter": filter.clone(), "$db": "shop"});
        let passes = take_back_in_time((&mut decoder, &mut seen), &mut talks, (End::Client, &find), 400);
        let coverage = decoder.coverage();
        assert_eq!(coverage.requests, 40_000);
        // Each holds more than 2,000 bytes.
        let most = PENDING_BUDGET as u64 / 2_000;
        assert!(coverage.requests_evicted >= 40_000 - most, "{coverage:?}");
        // Each pass frees an eighth of the budget, which is some 4,000 of these.
        assert!(passes < 8, "{passes}");
        // The rounds are evicted one after another, each on all connections.
        let newest = seen.operations.iter().map(|seen| u64::from(seen.0)).max();
        assert!(newest.is_some_and(|id| id <= coverage.requests_evicted / 100 + 1), "{newest:?}");
        decoder.finish(Timestamp::from_unix(1_777_629_601, 0), &mut seen);
        assert_eq!(decoder.coverage().imbalances(decoder.in_progress()), []);
    }

    #[test]
    fn early_replies_give_way_in_the_order_of_their_arrival_whatever_their_time_is() {
        let (mut decoder, mut seen) =
            (Decoder::new(Settings::default(), Arc::new(Shared::default())), Collected::default());
        let each = super::super::pair::MAX_EARLY as u32;
        let many = MAX_ALL_EARLY / each as usize + 50;
        // No handshake: a reply to a request that was not captured is no loss.
        let mut talks: Vec<Conversation> = (0..many)
            .map(|n| Conversation::new(&format!("10.0.{}.2:{}", n / 200, 20_000 + n), "10.0.255.1:27017"))
            .zip(1..)
            .map(|(talk, n)| talk.with_seq(77_777 * n, 99_999 * n))
            .collect();
        let reply = |id| message(1_000 + id, id, &doc! {"ok": 1.0});
        let passes = take_back_in_time((&mut decoder, &mut seen), &mut talks, (End::Server, &reply), each);
        assert_eq!(passes, 1);
        // The first reply of each connection came before all others.
        let mut answer = |talk: &mut Conversation, id| {
            talk.send(End::Client, &message(id, 0, &doc! {"ping": 1, "$db": "admin"}));
            take(&mut decoder, &mut seen, talk);
            seen.operations.last().is_some_and(|last| (last.0, last.2) == (id, "ok"))
        };
        assert!(!answer(&mut talks[0], 0) && answer(&mut talks[0], each - 1));
        assert!(answer(&mut talks[many - 1], each - 1));
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
