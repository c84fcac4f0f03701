//! The recorded profiles of a real server, held against what was heard on the wire in the same seconds.

#![allow(clippy::unwrap_used)]

mod shapes;

use shapes::{Nobody, Shapes, unpacked, wire};
use sonar_decode::profile::{self, Profile};

fn told(name: &str) -> Shapes {
    let bytes = unpacked(name);
    let (mut rest, mut shapes, mut profile) = (bytes.as_slice(), Shapes::default(), Profile::default());
    while !rest.is_empty() {
        let length = profile::length(rest).unwrap().unwrap();
        profile.document(&rest[..length], &mut shapes);
        rest = &rest[length..];
    }
    assert_eq!(profile.reading().documents_malformed, 0);
    shapes
}

/// What the profile cannot hold, and what it holds otherwise: commands that ran before profiling was on, or
/// that 4.0 does not profile (`createIndexes`, pipelines it cannot parse, unknown commands, a change
/// stream, whose aggregate is on `local.oplog.rs` to the server); and of OP_QUERY the projection.
const ONLY_ON_THE_WIRE: [(&str, &[(&str, u64)]); 4] = [
    (
        "mongod-4.0-mixed/profile/shop.bson.gz",
        &[
            ("aggregate shop.people {pipeline: [{$bad: ?number}]}", 4),
            ("aggregate shop.people {pipeline: [{$changeStream: {}}]}", 1),
            ("create shop.system.profile {}", 1),
            ("createIndexes shop.people {indexes: [{key: {city: 1, age: -1}}]}", 1),
            ("createIndexes shop.people {indexes: [{key: {country: 1}}]}", 1),
            ("drop shop.system.profile {}", 1),
            ("find shop.people {filter: {city: ?string}, projection: {age: 1}}", 1),
            ("listCollections shop {}", 1),
            ("noSuchCommand shop {}", 4),
            ("profile shop {}", 1),
        ],
    ),
    (
        "mongod-4.0-mixed/profile/stats.bson.gz",
        &[
            ("create stats.system.profile {}", 1),
            ("drop stats.system.profile {}", 1),
            ("listCollections stats {}", 2),
            ("profile stats {}", 1),
        ],
    ),
    (
        "mongod-4.0-sharded/profile/27218-shop.bson.gz",
        &[("insert shop.plain {}", 1), ("listCollections shop {}", 1)],
    ),
    ("mongod-4.0-sharded/profile/27220-shop.bson.gz", &[]),
];
/// The same OP_QUERY as the profile has it.
const ONLY_IN_THE_PROFILE: [(&str, u64); 1] = [("find shop.people {filter: {city: ?string}}", 1)];
/// OP_UPDATE and OP_DELETE have no order of their flags, so their ordered ids differ.
const NO_ORDER: [&str; 2] = [
    "delete stats.old {q: {_id: ?number}, limit: ?number}",
    "update stats.old {q: {a: {$gt: ?number}}, u: {$set: {b: ?number}}, multi: true}",
];

#[test]
fn profile_and_wire_have_the_same_shapes_statement_by_statement() {
    let ports = [("shop", 27_117), ("stats", 27_117), ("shop", 27_218), ("shop", 27_220)];
    for ((dump, unprofiled), (database, port)) in ONLY_ON_THE_WIRE.into_iter().zip(ports) {
        let name = dump.split_once('/').unwrap().0;
        let (wire, told) = (wire(name, database, port), told(dump));
        let more = |a: &Shapes, b: &Shapes| -> Vec<(String, u64)> {
            let left = |(id, count): (&u64, &u64)| {
                let left = count.saturating_sub(b.counts.get(id).copied().unwrap_or(0));
                (left > 0).then(|| (a.texts[id].clone(), left))
            };
            let mut all: Vec<_> = a.counts.iter().filter_map(left).collect();
            all.sort();
            all
        };
        let expected: Vec<_> = unprofiled.iter().map(|(text, count)| ((*text).to_owned(), *count)).collect();
        assert_eq!(more(&wire, &told), expected, "{dump}");
        let legacy = more(&told, &wire);
        let known = |(text, count): &(String, u64)| ONLY_IN_THE_PROFILE.contains(&(text.as_str(), *count));
        assert!(legacy.iter().all(known), "{dump}: {legacy:?}");
        // A bulk of several shapes is one command on the wire and several entries here.
        for ((id, order), count) in &wire.ordered {
            let (Some(all), text) = (told.counts.get(id), &wire.texts[id]) else { continue };
            if *all == wire.counts[id] && !NO_ORDER.contains(&text.as_str()) {
                let same = told.ordered.get(&(*id, *order)).copied().unwrap_or(0);
                let in_bulks = wire.counts[id]
                    - wire.ordered.range((*id, 0)..=(*id, u64::MAX)).map(|(_, count)| count).sum::<u64>();
                assert!(same >= *count && same <= count + in_bulks, "{text}: {count} wire, {same} profile");
            }
        }
    }
}

#[test]
fn a_damaged_document_is_an_error_and_never_a_panic() {
    let bytes = unpacked("mongod-4.0-mixed/profile/stats.bson.gz");
    let mut rest = bytes.as_slice();
    for _ in 0..12 {
        let length = profile::length(rest).unwrap().unwrap();
        let document = &rest[..length];
        rest = &rest[length..];
        for cut in 0..length {
            let mut profile = Profile::default();
            profile.document(&document[..cut], &mut Nobody);
            assert_eq!(profile.reading().documents_malformed, 1);
        }
        for at in 0..length {
            let mut flipped = document.to_vec();
            flipped[at] ^= 1 << (at % 8);
            Profile::default().document(&flipped, &mut Nobody);
        }
    }
}
