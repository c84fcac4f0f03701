//! A request that fits a template gives the same as a walk of it: for every request of the recordings, for one of
//! each kind of command, and for all of them with random changes of bytes.

use bson::{Bson, Document, doc};
use proptest::prelude::*;
use sonar_core::operation::Opcode;

use crate::capture_file::{CaptureParser, Step};
use crate::message::{HEADER, Header};
use crate::testing::fixtures::inflated;
use crate::testing::templates::{ReplyChecker, RequestChecker};

const RECORDINGS: [&str; 2] = ["mongod-4.0-mixed", "mongod-4.0-sharded"];

/// The bodies of the requests, or of the replies, of a recording that are in one frame each.
fn messages(recording: &str, requests: bool) -> Vec<Vec<u8>> {
    let bytes = inflated(&format!("{recording}/wire.pcap.gz"));
    let (mut parser, mut at, mut bodies) = (CaptureParser::new(), 0, Vec::new());
    while let Ok(step) = parser.next(&bytes[at..]) {
        match step {
            Step::Packet { packet, consumed } => {
                let payload = crate::frame::decode(&packet).map_or(&[][..], |segment| segment.payload);
                let header = Header::read(payload);
                if header
                    .is_some_and(|h| h.known() == Some(Opcode::Msg) && h.length as usize == payload.len())
                {
                    bodies.push(payload[HEADER..].to_vec());
                }
                at += consumed;
            }
            Step::Skip { consumed } | Step::Secrets { consumed, .. } => at += consumed,
            Step::Need { .. } => break,
        }
    }
    bodies.retain(|body| body.windows(5).any(|window| window == b"\x02$db\0") == requests);
    bodies
}

/// An OP_MSG without sections of kind 1.
fn message(command: &Document) -> Vec<u8> {
    [&[0u8; 5], command.to_vec().expect("a document").as_slice()].concat()
}

/// An OP_MSG with one.
fn with_section(command: &Document, name: &str, documents: &[Document]) -> Vec<u8> {
    let documents: Vec<u8> = documents.iter().flat_map(|one| one.to_vec().expect("a document")).collect();
    let size = (4 + name.len() + 1 + documents.len()) as u32;
    [&message(command), &[1][..], &size.to_le_bytes(), name.as_bytes(), &[0], &documents].concat()
}

/// One or more of each kind of command, with all that shapes can contain.
fn commands() -> Vec<Vec<u8>> {
    let id = bson::oid::ObjectId::from_bytes([7; 12]);
    let session = doc! {"id": Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] })};
    let plain = [
        doc! {"find": "orders", "filter": {"_id": id, "a.3.b": {"$gt": 5, "$lt": 9.5}, "c": {"$in": ["x", "y"]}, "d": {"x": 1},
        "e": {"$exists": true}, "f": {"$elemMatch": {"g": 1}}, "$or": [{"h": Bson::Null}, {"i": {"$not": {"$lt": 4}}}]},
        "sort": {"a": -1, "b": 1}, "projection": {"a": 1, "b": 0, "c": {"$slice": 3}, "d": "$e"}, "limit": 10_i64, "skip": 0,
        "singleBatch": true, "batchSize": 3, "hint": {"a": 1}, "collation": {"locale": "de", "strength": 2},
        "lsid": session.clone(), "maxTimeMS": 100, "$db": "shop"},
        doc! {"find": "orders", "filter": {}, "$db": "shop"},
        doc! {"find": "orders", "filter": {"a": {"$in": (0..500).collect::<Vec<i32>>()}}, "$db": "shop"},
        doc! {"find": "orders", "filter": {"a": {"$in": []}, "b": {"$all": [{"$elemMatch": {"c": 1}}]}}, "$db": "shop"},
        doc! {"find": "orders", "filter": {"a": {"$in": [1, 2.5, 3_i64]}, "b": [1, "x"], "c": {"$regex": "^a", "$options": "i"}}, "tailable": true,
        "awaitData": true, "$db": "shop"},
        doc! {"aggregate": "orders", "pipeline": [{"$match": {"a": 1, "$expr": {"$gt": ["$b", 3]}}}, {"$group": {"_id": "$c", "n": {"$sum": 1},
        "m": {"$push": "text"}}}, {"$lookup": {"from": "x", "localField": "a", "foreignField": "b", "as": "c"}}, {"$sort": {"n": -1}},
        {"$limit": 3}, {"$count": "n"}, {"$facet": {"one": [{"$match": {"z": 1}}]}}], "cursor": {}, "explain": false, "$db": "shop"},
        doc! {"aggregate": 1, "pipeline": [{"$changeStream": {"fullDocument": "updateLookup"}}, {"$project": {"a": "$b", "c": {"$cond": [true, "x", "$y"]}}}],
        "cursor": {"batchSize": 5}, "$db": "admin"},
        doc! {"count": "orders", "query": {"a": 1}, "limit": 0, "$db": "shop"},
        doc! {"distinct": "orders", "key": "a.b", "query": {"c": {"$ne": Bson::Null}}, "$db": "shop"},
        doc! {"insert": "orders", "documents": [{"a": 1}, {"b": 2}], "ordered": true, "$db": "shop"},
        doc! {"update": "orders", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a.0": 5, "b": {"c": 1}, "d": [1, 2]}, "$inc": {"n": 1}, "$push": {"x": {"$each": [1, 2]}}},
        "upsert": true, "multi": false}, {"q": {}, "u": {"a": 1, "b": 2}}, {"q": {"z": 1}, "u": [{"$set": {"a": "$b"}}], "hint": "name"}], "$db": "shop"},
        doc! {"update": "orders", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a.$[e]": 5}, "$pull": {"b": {"c": {"$lt": 3}}}},
        "arrayFilters": [{"e": {"$gt": 3}}]}], "$db": "shop"},
        doc! {"delete": "orders", "deletes": [{"q": {"a": {"$lt": 5}}, "limit": 0}, {"q": {"b": 1}, "limit": 1}], "$db": "shop"},
        doc! {"findAndModify": "orders", "query": {"a": 1}, "update": {"$set": {"b": 1}}, "new": true, "upsert": false, "$db": "shop"},
        doc! {"getMore": 77_i64, "collection": "orders", "batchSize": 100, "$db": "shop"},
        doc! {"getMore": 77_i64, "collection": "orders", "maxTimeMS": 100, "$db": "shop"},
        doc! {"killCursors": "orders", "cursors": [5_i64, 6_i64], "$db": "shop"},
        doc! {"explain": {"find": "orders", "filter": {"a": 1}}, "verbosity": "queryPlanner", "$db": "shop"},
        doc! {"mapReduce": "orders", "map": "f".repeat(2_000), "reduce": "g", "out": {"inline": 1}, "$db": "shop"},
        doc! {"createIndexes": "orders", "indexes": [{"key": {"a": 1}, "name": "a_1"}], "$db": "shop"},
        doc! {"hello": 1, "topologyVersion": {"counter": 1_i64}, "maxAwaitTimeMS": 10_000_i64, "$db": "admin"},
        doc! {"hello": 1, "client": {"application": {"name": "app"}, "driver": {"name": "d", "version": "1"}}, "$db": "admin"},
        doc! {"ping": 1, "$db": "admin"},
        doc! {"serverStatus": 1, "metrics": {"a": 1}, "comment": "text", "$db": "admin"},
        doc! {"find": "chunks", "filter": {"$and": [{"ns": "a"}, {"max": {"$gt": 1}}], "$comment": "x", "$where": "f"}, "shardVersion": [1, 2], "$db": "config"},
    ];
    let mut bodies: Vec<Vec<u8>> = plain.iter().map(message).collect();
    let update = doc! {"update": "orders", "ordered": true, "$db": "shop"};
    let one = doc! {"q": {"_id": 5, "a": "x"}, "u": {"$set": {"b": 1}}};
    let two = doc! {"q": {"_id": 5}, "u": {"$unset": {"b": ""}}, "multi": true};
    bodies.push(with_section(&update, "updates", std::slice::from_ref(&one)));
    bodies.push(with_section(&update, "updates", &[one, two]));
    let insert = doc! {"insert": "orders", "ordered": true, "$db": "shop"};
    bodies.push(with_section(&insert, "documents", &[doc! {"_id": 1}]));
    bodies.push(with_section(&insert, "documents", &[doc! {"_id": 1}, doc! {"x": "y"}]));
    let bulk = doc! {"bulkWrite": 1, "nsInfo": [{"ns": "shop.a"}, {"ns": "shop.b"}], "$db": "admin"};
    bodies.push(with_section(
        &bulk,
        "ops",
        &[
            doc! {"insert": 1, "document": {"a": 1}},
            doc! {"update": 0, "filter": {"a": 1}, "updateMods": {"$inc": {"b": 1}}},
        ],
    ));
    // With a checksum, and without an answer.
    let mut summed = message(&plain[1]);
    summed[0] |= 1;
    summed.extend_from_slice(&[1, 2, 3, 4]);
    bodies.push(summed);
    let mut silent = bodies[bodies.len() - 4].clone();
    silent[0] |= 2;
    bodies.push(silent);
    bodies
}

#[test]
fn every_request_of_the_recordings_is_recognised_as_what_it_is() {
    let mut checker = RequestChecker::default();
    let bodies: Vec<Vec<u8>> = RECORDINGS.into_iter().flat_map(|name| messages(name, true)).collect();
    assert!(bodies.len() > 5_000, "{}", bodies.len());
    bodies.iter().for_each(|body| checker.check(body));
    let RequestChecker { known, walked, .. } = checker;
    assert!(known > 9 * walked, "{known} known, {walked} walked");
}

#[test]
fn every_reply_of_the_recordings_is_recognised_as_what_it_is() {
    let mut checker = ReplyChecker::default();
    let bodies: Vec<Vec<u8>> = RECORDINGS.into_iter().flat_map(|name| messages(name, false)).collect();
    assert!(bodies.len() > 5_000, "{}", bodies.len());
    bodies.iter().for_each(|body| checker.check(body));
    let ReplyChecker { known, walked, .. } = checker;
    assert!(known > 9 * walked, "{known} known, {walked} walked");
}

/// Replies of servers, and some that no server would send.
fn replies() -> Vec<Vec<u8>> {
    let one = doc! {"_id": 1, "x": "y"};
    let cursor = |batch: &str, id: i64, documents: Vec<Document>| {
        doc! {"cursor": {batch: documents, "id": id, "ns": "shop.orders"}, "ok": 1.0}
    };
    [
        doc! {"ok": 1.0},
        doc! {"n": 3, "nModified": 2, "ok": 1.0, "operationTime": bson::Timestamp { time: 1, increment: 2 }},
        doc! {"n": 3_i64, "nModified": -2, "upserted": [{"index": 0, "_id": 5}], "ok": 1},
        cursor("firstBatch", 0, vec![]),
        cursor("firstBatch", 77, vec![one.clone(); 3]),
        cursor("nextBatch", 77, vec![one.clone()]),
        doc! {"cursor": {"nextBatch": [one.clone()], "firstBatch": [], "id": 1_i64, "id": 2.5}, "ok": true},
        doc! {"cursor": {"firstBatch": [one.clone(), 5]}, "values": [one.clone()], "ok": 1.0},
        doc! {"values": [1, "x", 3.5], "ok": 1.0},
        doc! {"value": one.clone(), "lastErrorObject": {"n": 1, "updatedExisting": true}, "ok": 1.0},
        doc! {"value": Bson::Null, "lastErrorObject": {"n": 0}, "ok": 1.0},
        doc! {"ok": 0.0, "errmsg": "no", "code": 59, "codeName": "CommandNotFound"},
        doc! {"n": 1, "writeErrors": [{"index": 0, "code": 11000, "errmsg": "dup"}], "writeConcernError": {"code": 64}, "ok": 1.0},
        doc! {"nInserted": 1, "nModified": 2, "nUpserted": 3, "nDeleted": 4, "n": 9, "n": 10, "ok": 1.0},
        doc! {"nInserted": i64::MAX, "nModified": i64::MAX, "nDeleted": i64::MAX, "nUpserted": i64::MAX, "ok": 1.0},
        doc! {"err": "x".repeat(2_000), "n": 0, "ok": 1.0},
        doc! {"value": "x".repeat(2_000), "ok": 1.0},
    ]
    .iter()
    .map(message)
    .collect()
}

#[test]
fn a_known_reply_has_its_own_numbers() {
    let reply_with = |documents: usize, id: i64| {
        message(
            &doc! {"cursor": {"firstBatch": vec![doc! {"a": 1}; documents], "id": id, "ns": "shop.orders"}, "ok": 1.0},
        )
    };
    let mut checker = ReplyChecker::default();
    for (documents, id) in [(3, 0), (1, 5), (200, i64::MAX), (7, -1), (0, 0)] {
        checker.check(&reply_with(documents, id));
    }
    assert_eq!((checker.known, checker.walked), (4, 1));
}

#[test]
fn every_kind_of_command_is_recognised_when_it_comes_again() {
    for body in commands() {
        let mut checker = RequestChecker::default();
        checker.check(&body);
        checker.check(&body);
        assert_eq!(checker.known, 1, "{:?}", String::from_utf8_lossy(&body));
    }
}

#[test]
fn other_values_are_the_same_layout_and_other_meanings_are_not() {
    let base = doc! {"find": "c", "filter": {"a": 1, "b": {"$in": ["x"]}, "t": "text"}, "sort": {"a": 1}, "limit": 5, "$db": "d"};
    let known = |other: Document| {
        let mut checker = RequestChecker::default();
        checker.check(&message(&base));
        checker.check(&message(&other));
        checker.known == 1
    };
    let with = |key: &str, value: Bson| {
        let mut other = base.clone();
        other.insert(key, value);
        other
    };
    assert!(known(with("filter", doc! {"a": 77, "b": {"$in": ["y", "zz", ""]}, "t": "longer text"}.into())));
    assert!(known(with("limit", 6.into())));
    let long: Vec<String> = (0..500).map(|n| n.to_string()).collect();
    assert!(known(with("filter", doc! {"a": 1, "b": {"$in": long}, "t": "text"}.into())));
    assert!(!known(with("limit", 0.into())));
    assert!(!known(with("sort", doc! {"a": -1}.into())));
    assert!(!known(with("filter", doc! {"a": 1, "b": {"$in": []}, "t": "text"}.into())));
    assert!(!known(with("filter", doc! {"a": 1, "b": {"$in": [1]}, "t": "text"}.into())));
    assert!(!known(with("filter", doc! {"a": 1.5, "b": {"$in": ["x"]}, "t": "text"}.into())));
    assert!(!known(with("find", "e".into())));
    assert!(!known(with("$db", "e".into())));
}

#[test]
fn traffic_that_never_repeats_leaves_no_more_than_a_set() {
    let mut checker = RequestChecker::default();
    for n in 0..5_000 {
        checker.check(&message(
            &doc! {"find": "c", "filter": {"a": 1}, "sort": {format!("k{n}"): 1}, "$db": "d"},
        ));
    }
    let kept: usize = checker.templates.sets.iter().map(|set| set.ways.len()).sum();
    assert!(kept <= super::WAYS, "{kept}");
    assert_eq!(checker.known, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn changed_bytes_are_never_taken_for_something_else(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let (mut checker, mut answers) = (RequestChecker::default(), ReplyChecker::default());
        let change = |body: &[u8]| {
            let mut other = body.to_vec();
            for (at, byte, how) in &changes {
                let at = at.index(other.len());
                other[at] = match how {
                    0 => *byte,
                    1 => other[at].wrapping_add(1),
                    2 => other[at] ^ (1 << (byte % 8)),
                    _ => *b"\x00\x01\x02\x03\x04\x10\x12$".get(usize::from(*byte % 8)).unwrap_or(&0),
                };
            }
            if let Some(cut) = &cut {
                other.truncate(cut.index(other.len()));
            }
            other
        };
        for body in commands() {
            checker.check(&body);
            checker.check(&change(&body));
        }
        for body in replies() {
            answers.check(&body);
            answers.check(&change(&body));
            answers.check(&body);
        }
    }
}
