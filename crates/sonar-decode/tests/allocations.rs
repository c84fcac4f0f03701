//! Operations of a known layout are decoded without allocating: from the frame to the operation.

use std::sync::Arc;

use bson::{Document, doc};
use sonar_core::Operation;
use sonar_decode::testing::{Conversation, ConversationEnd};
use sonar_decode::{Decoder, Settings, Shared, Sink};

#[derive(Default)]
struct Count(u64);

impl Sink for Count {
    fn operation(&mut self, _: &Operation<'_>) {
        self.0 += 1;
    }
}

fn message(id: u32, answers: u32, command: &Document) -> Vec<u8> {
    let command = command.to_vec().expect("a document");
    let length = (16 + 5 + command.len()) as u32;
    let header = [length, id, answers, 2013, 0].map(u32::to_le_bytes).concat();
    [&header, &[0][..], &command].concat()
}

/// A round of a find of ten fields, an update, an insert and a getMore, each with its reply.
fn round(talk: &mut Conversation, n: i32) {
    let find = doc! {"find": "orders", "filter": {"customer": n, "status": "open".repeat(n as usize % 5), "total": {"$gt": 5.0},
    "city": "Oslo", "country": "NO", "tags": {"$in": vec!["a"; 1 + n as usize % 30]}, "paid": true,
    "created": bson::DateTime::from_millis(0), "items.sku": "x", "n": 3}, "sort": {"created": -1}, "limit": 10, "$db": "shop"};
    let update =
        doc! {"update": "orders", "updates": [{"q": {"_id": n}, "u": {"$set": {"x": n}}}], "$db": "shop"};
    let insert = doc! {"insert": "orders", "documents": [{"_id": n}], "$db": "shop"};
    let cursor = doc! {"ok": 1.0, "cursor": {"id": 0_i64, "ns": "shop.orders", "firstBatch": [{"a": n}]}};
    let written = doc! {"n": 1, "nModified": 1, "ok": 1.0};
    for (i, (request, reply)) in [(find, &cursor), (update, &written), (insert, &written)].iter().enumerate()
    {
        let id = (n * 10 + i as i32) as u32;
        talk.send(ConversationEnd::Client, &message(id, 0, request)).wait(1_000);
        talk.send(ConversationEnd::Server, &message(id + 1_000_000, id, reply)).wait(1_000);
    }
}

#[test]
fn operations_of_a_known_layout_allocate_nothing() {
    let mut talk = Conversation::new("10.0.0.9:51234", "10.0.0.1:27017");
    talk.handshake();
    (0..40).for_each(|n| round(&mut talk, n));
    let packets = talk.packets;
    let (mut decoder, mut count) =
        (Decoder::new(Settings::default(), Arc::new(Shared::default())), Count::default());
    let half = packets.len() / 2;
    packets[..half].iter().for_each(|packet| decoder.packet(&packet.as_packet(), &mut count));
    let allocated = allocation_counter::measure(|| {
        packets[half..].iter().for_each(|packet| decoder.packet(&packet.as_packet(), &mut count));
    });
    assert_eq!(count.0, 120);
    assert_eq!(allocated.count_total, 0);
}
