//! What is dropped when a table that all connections share is full? The oldest entries, never the newest.
//!
//! It drops a whole share of them at once, so that it rarely searches for the oldest. Age is the order of arrival:
//! the times of packets are outside input, and may stand still or go back.

/// One in this many entries is dropped.
const SHARE: usize = 8;

/// What is left of `most` entries, or bytes, after a share of them was dropped.
pub(super) const fn without_share(most: usize) -> usize {
    most / SHARE * (SHARE - 1)
}

/// Numbers the entries of a table in the order of their arrival. Numbers wrap around; compare entries by
/// their [age](Self::age).
#[derive(Debug, Default)]
pub(super) struct Arrivals(u32);

impl Arrivals {
    /// The number of an entry that is about to be made.
    #[inline]
    pub(super) fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(1);
        self.0
    }

    /// How many entries have arrived since the one with this number.
    pub(super) fn age(&self, number: u32) -> u32 {
        self.0.wrapping_sub(number)
    }

    /// Begins at `number`, to test that numbers wrap around.
    #[cfg(test)]
    pub(super) fn start_at(number: u32) -> Self {
        Self(number)
    }
}

/// The least age among the oldest share of entries with these ages; `None` if there are no entries.
pub(super) fn age_limit(ages: impl Iterator<Item = u32>) -> Option<u32> {
    let mut ages: Vec<u32> = ages.collect();
    let first = ages.len() - ages.len().div_ceil(SHARE);
    (first < ages.len()).then(|| *ages.select_nth_unstable(first).1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bson::doc;

    use sonar_core::Timestamp;

    use super::*;
    use crate::decoder::Decoder;
    use crate::decoder::collected::{Collected, message};
    use crate::decoder::pairing::{MAX_ALL_EARLY, PENDING_BUDGET};
    use crate::decoder::unpacking::MAX_LONG;
    use crate::testing::{Conversation, ConversationEnd};
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
        assert!(!decoder.stages.is_over_caps());
    }

    #[test]
    fn the_oldest_share_is_dropped() {
        assert_eq!(age_limit([9, 1, 8, 2, 7, 3, 6, 4].into_iter()), Some(9));
        assert_eq!(age_limit((0..80).rev()), Some(70));
        assert_eq!(age_limit(std::iter::empty()), None);
    }

    #[test]
    fn the_oldest_long_message_is_dropped_and_never_the_newest() {
        let (mut decoder, mut seen) =
            (Decoder::new(Settings::default(), Arc::new(Shared::default())), Collected::default());
        let insert = doc! {"insert": "orders", "documents": [{"a": "x".repeat(40_000)}], "$db": "shop"};
        let bytes = message(1, 0, &insert);
        let (begin, end) = bytes.split_at(1_000);
        let mut talks: Vec<Conversation> = (0..MAX_LONG + 10).map(conversation).collect();
        for talk in &mut talks {
            talk.send(ConversationEnd::Client, begin);
            take(&mut decoder, &mut seen, talk);
        }
        for talk in &mut talks {
            talk.send(ConversationEnd::Client, end)
                .send(ConversationEnd::Server, &message(2, 1, &doc! {"n": 1, "ok": 1.0}));
            take(&mut decoder, &mut seen, talk);
        }
        let evicted = decoder.coverage().messages_evicted as usize;
        assert!((10..=10 + MAX_LONG / SHARE).contains(&evicted), "{evicted}");
        assert_eq!(seen.operations.len(), talks.len() - evicted);
        let newest = talks.last().unwrap().now();
        decoder.finish(newest, &mut seen);
        assert_eq!(decoder.coverage().imbalances(decoder.in_progress()), []);
        // Each of the others was answered, the newest among them: the missing ones are the first.
        assert_eq!(decoder.coverage().replies_orphan as usize, evicted);
    }

    /// Sends one message on each connection in turn, each packet a microsecond *before* the last one. Returns
    /// how often `count` grew: once for each time that room was made.
    fn take_back_in_time(
        (decoder, seen): (&mut Decoder, &mut Collected),
        talks: &mut [Conversation],
        (from, bytes): (ConversationEnd, &dyn Fn(u32) -> Vec<u8>),
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

    /// The same request with another number.
    fn numbered(request: &[u8], id: u32) -> Vec<u8> {
        [&request[..4], &id.to_le_bytes(), &request[8..]].concat()
    }

    #[test]
    fn requests_are_dropped_in_the_order_of_arrival_whatever_their_time() {
        let settings = Settings { show_values: true, ..Settings::default() };
        let (mut decoder, mut seen) =
            (Decoder::new(settings, Arc::new(Shared::default())), Collected::default());
        // The numbers wrap around within the first pass.
        decoder.stages.pairing.arrivals = Arrivals::start_at(u32::MAX - 10_000);
        let mut talks: Vec<Conversation> = (0..100).map(conversation).collect();
        let filter = doc! {"a": {"$in": vec!["x".repeat(200); 9]}};
        let request = message(0, 0, &doc! {"find": "orders", "filter": filter, "$db": "shop"});
        let find = |id| numbered(&request, id);
        let passes =
            take_back_in_time((&mut decoder, &mut seen), &mut talks, (ConversationEnd::Client, &find), 400);
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
    fn a_share_holds_little_however_many_connections_ask() {
        const MOST: usize = 16 << 20;
        let settings = Settings { share: 16, ..Settings::default() };
        let (mut decoder, mut seen) =
            (Decoder::new(settings, Arc::new(Shared::share(16))), Collected::default());
        let filter = doc! {"a": {"$in": vec!["x".repeat(200); 9]}};
        let request = message(0, 0, &doc! {"find": "orders", "filter": filter, "$db": "shop"});
        let mut most = 0;
        for number in 0..20_000 {
            let mut talk = conversation(number);
            for id in 0..3 {
                talk.send(ConversationEnd::Client, &numbered(&request, id));
            }
            take(&mut decoder, &mut seen, &mut talk);
            if number % 500 == 0 {
                most = most.max(decoder.memory());
            }
        }
        assert!(most <= MOST && most > MOST / 4, "{most}");
        let coverage = decoder.coverage();
        assert!(coverage.requests_evicted > 0, "the oldest gave way: {coverage:?}");
        decoder.finish(Timestamp::from_unix(1_777_629_900, 0), &mut seen);
        assert_eq!(decoder.coverage().imbalances(decoder.in_progress()), []);
    }

    #[test]
    fn early_replies_are_dropped_in_the_order_of_arrival_whatever_their_time() {
        let (mut decoder, mut seen) =
            (Decoder::new(Settings::default(), Arc::new(Shared::default())), Collected::default());
        let each = super::super::pairing::MAX_EARLY as u32;
        let many = MAX_ALL_EARLY / each as usize + 50;
        // No handshake: a reply to a request that was not captured is no loss.
        let mut talks: Vec<Conversation> = (0..many)
            .map(|n| Conversation::new(&format!("10.0.{}.2:{}", n / 200, 20_000 + n), "10.0.255.1:27017"))
            .zip(1..)
            .map(|(talk, n)| talk.with_seq(77_777 * n, 99_999 * n))
            .collect();
        let reply = |id| message(1_000 + id, id, &doc! {"ok": 1.0});
        let passes =
            take_back_in_time((&mut decoder, &mut seen), &mut talks, (ConversationEnd::Server, &reply), each);
        assert_eq!(passes, 1);
        // The first reply of each connection came before all others.
        let mut answer = |talk: &mut Conversation, id| {
            talk.send(ConversationEnd::Client, &message(id, 0, &doc! {"ping": 1, "$db": "admin"}));
            take(&mut decoder, &mut seen, talk);
            seen.operations.last().is_some_and(|last| (last.0, last.2) == (id, "ok"))
        };
        assert!(!answer(&mut talks[0], 0) && answer(&mut talks[0], each - 1));
        assert!(answer(&mut talks[many - 1], each - 1));
    }

    #[test]
    fn the_oldest_reply_that_waits_for_its_request_is_dropped() {
        let (mut decoder, mut seen) =
            (Decoder::new(Settings::default(), Arc::new(Shared::default())), Collected::default());
        let each = super::super::pairing::MAX_EARLY;
        let ok = doc! {"ok": 1.0};
        let mut talks: Vec<Conversation> = (0..MAX_ALL_EARLY / each + 1).map(conversation).collect();
        for talk in &mut talks {
            for id in 0..each as u32 {
                talk.send(ConversationEnd::Server, &message(100 + id, id, &ok));
            }
            take(&mut decoder, &mut seen, talk);
        }
        // On one connection the first of nine is dropped.
        let newest = talks.last_mut().unwrap();
        newest.send(ConversationEnd::Server, &message(200, 99, &ok));
        take(&mut decoder, &mut seen, newest);
        for id in 0..each as u32 {
            newest.send(ConversationEnd::Client, &message(id, 0, &doc! {"ping": 1, "$db": "admin"}));
        }
        newest.send(ConversationEnd::Client, &message(99, 0, &doc! {"ping": 1, "$db": "admin"}));
        take(&mut decoder, &mut seen, newest);
        let answered = |seen: &Collected| -> Vec<u32> {
            seen.operations.iter().filter(|op| op.2 == "ok").map(|op| op.0).collect()
        };
        assert_eq!(answered(&seen), [1, 2, 3, 4, 5, 6, 7, 99]);
        let oldest = &mut talks[0];
        for id in 0..each as u32 {
            oldest.send(ConversationEnd::Client, &message(id, 0, &doc! {"ping": 1, "$db": "admin"}));
        }
        take(&mut decoder, &mut seen, oldest);
        assert_eq!(answered(&seen).len(), 8, "those of the first connection were given up");
        decoder.finish(talks[0].now(), &mut seen);
        assert_eq!(decoder.coverage().imbalances(decoder.in_progress()), []);
    }
}
