use bson::{Document, doc};

use super::COLLECT;
use crate::decoder::collected::{collect, message};
use crate::testing::{Conversation, ConversationEnd};

/// An insert, with a reply, in packets of `mss` bytes. `padding` decides whether the message is put
/// together or walked.
fn insert(talk: &mut Conversation, id: u32, padding: usize) {
    let document = doc! {"_id": 1, "padding": "x".repeat(padding)};
    let documents: Vec<Document> = vec![document];
    let command = doc! {"insert": "orders", "documents": documents, "$db": "shop"};
    talk.send(ConversationEnd::Client, &message(id, 0, &command));
    talk.send(ConversationEnd::Server, &message(100 + id, id, &doc! {"n": 1, "ok": 1.0}));
}

fn talk(mss: usize) -> Conversation {
    let mut talk = Conversation::new("10.0.0.2:40000", "10.0.0.1:27017").with_mss(mss);
    talk.handshake();
    talk
}

#[test]
fn segments_do_not_change_how_messages_are_cut() {
    for mss in [1, 3, 15, 16, 17, 20, 21, 100, 1_460, 9_000] {
        let mut talk = talk(mss);
        let paddings = [0, 1_000, COLLECT - 200, COLLECT, 3 * COLLECT];
        for (id, padding) in (1..).zip(paddings) {
            insert(&mut talk, id, padding);
        }
        let seen = collect(&talk.packets);
        let expected: Vec<_> = (1..=5).map(|id| (id, "insert".to_owned(), "ok")).collect();
        assert_eq!(seen.operations, expected, "{mss}");
        assert_eq!((seen.coverage.messages, seen.coverage.messages_decoded), (10, 10), "{mss}");
        assert_eq!(seen.window.shapes.iter().count(), 1, "{mss}");
    }
}

#[test]
fn a_gap_within_a_message_costs_only_that_message() {
    for padding in [2 * 1_460, 2 * COLLECT] {
        let mut talk = talk(1_460);
        insert(&mut talk, 1, 10);
        let lost = talk.packets.len() + 1;
        insert(&mut talk, 2, padding);
        insert(&mut talk, 3, 10);
        // What comes after the gap has been acknowledged: it will not be sent again.
        talk.wait(5_000_000_000).ack(ConversationEnd::Server).ack(ConversationEnd::Client);
        talk.packets.remove(lost);
        let seen = collect(&talk.packets);
        let ids: Vec<_> = seen.operations.iter().map(|op| (op.0, op.2)).collect();
        assert_eq!(ids, [(1, "ok"), (3, "ok")], "{:?}", seen.coverage);
        assert_eq!((seen.coverage.messages_damaged, seen.coverage.resyncs), (1, 0));
    }
}
