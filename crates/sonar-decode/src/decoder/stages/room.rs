//! What is dropped where a table is full: the oldest entries.

use sonar_core::Timestamp;

use super::Stages;
use crate::decoder::caps::{age_limit, without_share};
use crate::decoder::connection::Connection;
use crate::decoder::emission::EndedSink;
use crate::decoder::pairing::GivenUp;
use crate::tcp::FlowTable;

impl Stages {
    /// Makes room in the tables that are too full.
    #[cold]
    pub fn make_room(&mut self, flows: &mut FlowTable<Connection>, now: Timestamp, out: &mut impl EndedSink) {
        // Entries differ in size, so a share of them may not be enough.
        while self.pairing.pending_bytes > self.caps.pending_bytes {
            let all = flows.iter().flat_map(|(_, conn)| &conn.exchange.pending);
            let age = |number| self.pairing.arrivals.age(number);
            let Some(limit) = age_limit(all.map(|request| age(request.number))) else { break };
            for (_, conn) in flows.iter_mut() {
                self.evict_requests(conn, limit, now);
                self.emit(conn, out);
            }
        }
        if self.pairing.early > self.caps.early {
            let all = flows.iter().flat_map(|(_, conn)| &conn.exchange.early);
            let limit = age_limit(all.map(|early| self.pairing.arrivals.age(early.number)));
            for (_, conn) in flows.iter_mut() {
                self.evict_replies(conn, limit.unwrap_or(0));
                self.emit(conn, out);
            }
        }
        if self.unpacker.long_messages() > self.caps.long_messages {
            let all = flows.iter().flat_map(|(_, conn)| conn.long.iter().flatten());
            let limit = age_limit(all.map(|long| self.unpacker.age(long)));
            for (_, conn) in flows.iter_mut() {
                self.evict_long_messages(conn, limit.unwrap_or(0));
            }
        }
    }

    /// Evicts the requests of this age and older, as far as that is necessary.
    fn evict_requests(&mut self, conn: &mut Connection, age: u32, now: Timestamp) {
        let mut at = 0;
        while self.pairing.pending_bytes > without_share(self.caps.pending_bytes)
            && let Some(request) = conn.exchange.pending.get(at)
        {
            // What follows in a chain of replies stands in front of what came before it.
            if self.pairing.arrivals.age(request.number) >= age {
                let evicted = self.pairing.give_up_at(&mut conn.exchange, at, now, GivenUp::Evicted);
                self.ended.extend(evicted);
            } else {
                at += 1;
            }
        }
        conn.exchange.give_back_room();
    }

    /// The same for early replies, which stand in the order of their arrival.
    fn evict_replies(&mut self, conn: &mut Connection, age: u32) {
        while self.pairing.early > without_share(self.caps.early)
            && let Some(early) = conn.exchange.early.first()
            && self.pairing.arrivals.age(early.number) >= age
            && let Some(early) = self.pairing.take_oldest_early(&mut conn.exchange, |_| true)
        {
            self.give_up_reply(conn, &early);
        }
    }

    /// The same for long messages.
    fn evict_long_messages(&mut self, conn: &mut Connection, age: u32) {
        for (stream, long) in conn.streams.iter_mut().zip(&mut conn.long) {
            if self.unpacker.long_messages() > without_share(self.caps.long_messages)
                && long.as_ref().is_some_and(|long| self.unpacker.age(long) >= age)
            {
                self.unpacker.drop_long(long);
                stream.evict();
            }
        }
    }
}
