//! The recorded profiles of a real server, held against what was heard on the wire in the same seconds.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sonar_core::{Execution, Identity, Operation};
use sonar_decode::capture_file::{Parser, Step};
use sonar_decode::entry;
use sonar_decode::profile::{self, Profile};
use sonar_decode::{Decoder, Settings, Shared, Sink};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

fn unpacked(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let file = std::fs::File::open(fixture(name)).unwrap();
    flate2::read::MultiGzDecoder::new(file).read_to_end(&mut out).unwrap();
    out
}

/// Statements by shape id and, for commands that are no bulk of several shapes, by ordered id.
#[derive(Default)]
struct Shapes {
    counts: BTreeMap<u64, u64>,
    ordered: BTreeMap<(u64, u64), u64>,
    texts: BTreeMap<u64, String>,
    database: &'static str,
    port: u16,
}

impl Shapes {
    fn add(&mut self, op: &Operation<'_>, identity: Identity) {
        assert_eq!(identity, Identity::Exact, "{} {}", op.command, op.shape.typed);
        let text = format!("{} {} {}", op.shape.command, op.shape.namespace(), op.shape.typed);
        self.texts.insert(op.shape.id.0, text);
        for statement in op.statements {
            *self.counts.entry(statement.shape.0).or_default() += u64::from(statement.count);
        }
        if op.statements.is_empty() {
            let count = u64::from(op.statement_count);
            *self.counts.entry(op.shape.id.0).or_default() += count;
            *self.ordered.entry((op.shape.id.0, op.ordered_id.0)).or_default() += count;
        }
    }
}

impl Sink for Shapes {
    fn operation(&mut self, op: &Operation<'_>) {
        if &*op.shape.database == self.database && op.server.port == self.port {
            self.add(op, Identity::Exact);
        }
    }
}

impl entry::Sink for Shapes {
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, _: &Execution<'_>, _: u64) {
        self.add(op, identity);
    }
}

fn wire(name: &str, database: &'static str, port: u16) -> Shapes {
    let bytes = unpacked(&format!("{name}/wire.pcap.gz"));
    let (mut parser, mut at) = (Parser::new(), 0);
    let mut decoder = Decoder::new(Settings::default(), Arc::new(Shared::default()));
    let mut shapes = Shapes { database, port, ..Shapes::default() };
    let mut last = Default::default();
    loop {
        match parser.next(&bytes[at..]).unwrap() {
            Step::Packet { packet, consumed } => {
                last = packet.time;
                decoder.packet(&packet, &mut shapes);
                at += consumed;
            }
            Step::Skip { consumed } => at += consumed,
            Step::Need { .. } => break,
        }
    }
    decoder.finish(last, &mut shapes);
    shapes
}

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

struct Nobody;

impl entry::Sink for Nobody {
    fn operation(&mut self, _: &Operation<'_>, _: Identity, _: &Execution<'_>, _: u64) {}
}
