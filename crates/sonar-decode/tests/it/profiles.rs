//! The recorded profiles of a real server, compared with the wire of the same seconds.

use crate::shapes::{Nobody, Shapes, wire};
use sonar_decode::profile::{self, Profile};
use sonar_decode::testing::fixtures::inflated;

fn told(name: &str) -> Shapes {
    let bytes = inflated(name);
    let (mut rest, mut shapes, mut profile) = (bytes.as_slice(), Shapes::default(), Profile::default());
    while !rest.is_empty() {
        let length = profile::length(rest).unwrap().unwrap();
        profile.document(&rest[..length], &mut shapes);
        rest = &rest[length..];
    }
    assert_eq!(profile.reading().documents_malformed, 0);
    shapes
}

/// What a profile does not contain, or contains differently: commands that ran before profiling was on, or that 4.0
/// does not profile (`createIndexes`, pipelines that it cannot parse, unknown commands, a change stream, whose
/// aggregate is on `local.oplog.rs` for the server); and the projection of OP_QUERY.
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
            ("listCollections shop {filter: {name: ?string}, nameOnly: true}", 1),
            ("noSuchCommand shop ?", 4),
            ("profile shop {slowms: ?number}", 1),
        ],
    ),
    (
        "mongod-4.0-mixed/profile/stats.bson.gz",
        &[
            ("create stats.system.profile {}", 1),
            ("drop stats.system.profile {}", 1),
            ("listCollections stats {filter: {name: ?string}, nameOnly: true}", 2),
            ("profile stats {slowms: ?number}", 1),
        ],
    ),
    (
        "mongod-4.0-sharded/profile/27218-shop.bson.gz",
        &[("insert shop.plain {}", 1), ("listCollections shop {filter: {name: ?string}}", 1)],
    ),
    ("mongod-4.0-sharded/profile/27220-shop.bson.gz", &[]),
];
/// The same OP_QUERY as in the profile.
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
    let bytes = inflated("mongod-4.0-mixed/profile/stats.bson.gz");
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

/// Documents of versions that were not recorded, with the fields in the documentation.
#[test]
fn every_version_is_read() {
    use bson::{Document, doc};
    use sonar_core::{Digest, Execution, Identity, Operation, Record, Source};

    #[derive(Default)]
    struct Names(Vec<String>, Digest);

    impl sonar_decode::entry::EntrySink for Names {
        fn operation(
            &mut self,
            op: &Operation<'_>,
            identity: Identity,
            execution: &Execution<'_>,
            entries: u64,
        ) {
            self.1.record(&Record::server(Source::Profile, op, execution).read_as(identity, entries));
            self.0.push(format!(
                "{} {} {} keys={:?} docs={:?} lock_us={:?} read={:?} queued_us={:?}",
                identity.name(),
                op.shape.namespace(),
                op.shape.typed,
                execution.keys_examined,
                execution.docs_examined,
                execution.lock_wait_us,
                execution.storage_read_bytes,
                execution.queued_us,
            ));
        }
    }

    let read = |document: Document| {
        let (mut profile, mut said) = (Profile::default(), Names::default());
        profile.document(&document.to_vec().unwrap(), &mut said);
        assert_eq!(said.0.len(), 1, "{document}");
        (said.0.remove(0), said.1)
    };
    let long = format!("{{ find: \"d\", filter: {{ a: {{ $in: [ {}", "1234567, ".repeat(6_000));
    for (document, expected) in [
        // 2.4: the query itself, lockStats.
        (
            doc! {"op": "query", "ns": "t.d", "query": {"a": 1}, "ntoreturn": 0, "nscanned": 9, "nreturned": 3,
            "lockStats": {"timeLockedMicros": {"r": 5i64}, "timeAcquiringMicros": {"r": 7i64, "w": 2i64}}, "millis": 3},
            "exact t.d {filter: {a: ?number}} keys=Some(9) docs=None lock_us=Some(9) read=None queued_us=None",
        ),
        // 3.0: without multi and upsert.
        (
            doc! {"op": "update", "ns": "t.d", "query": {"_id": 1}, "updateobj": {"$set": {"a": 2}}, "nscanned": 1,
            "nscannedObjects": 1, "nMatched": 1, "nModified": 1, "millis": 3},
            "partial t.d {q: {_id: ?number}, u: {$set: {a: ?number}}} keys=Some(1) docs=Some(1) lock_us=None read=None queued_us=None",
        ),
        // 3.2: the command under `query`.
        (
            doc! {"op": "query", "ns": "t.d", "query": {"find": "d", "filter": {"a": "x"}}, "keysExamined": 0,
            "docsExamined": 12, "millis": 3},
            "exact t.d {filter: {a: ?string}} keys=Some(0) docs=Some(12) lock_us=None read=None queued_us=None",
        ),
        // 4.2: storage; 3.6 and later: cut commands.
        (
            doc! {"op": "query", "ns": "t.d", "command": {"$truncated": long, "comment": "why"}, "docsExamined": 12,
            "storage": {"data": {"bytesRead": 4096i64, "timeReadingMicros": 7i64}}, "millis": 3},
            "partial t.d {filter: {a: {$in: ?array<?number>}}} keys=None docs=Some(12) lock_us=None read=Some(4096) queued_us=None",
        ),
        // 8.0
        (
            doc! {"op": "command", "ns": "t.d", "command": {"aggregate": "d", "pipeline": [{"$match": {"a": 1}}], "$db": "t"},
            "queues": {"ingress": {"totalTimeQueuedMicros": 2i64}, "execution": {"totalTimeQueuedMicros": 3i64}}, "millis": 3},
            "exact t.d {pipeline: [{$match: {a: ?number}}]} keys=None docs=None lock_us=None read=None queued_us=Some(5)",
        ),
    ] {
        assert_eq!(read(document).0, expected);
    }
    // Percona's rate limit: one stands for ten.
    let (_, digest) =
        read(doc! {"op": "insert", "ns": "t.d", "command": {"insert": "d", "$db": "t"}, "ninserted": 2,
        "rateLimit": 10, "millis": 3});
    assert_eq!((digest.totals().calls, digest.totals().entries), (10, 1));
    assert_eq!((digest.totals().affected.get(), digest.totals().latency.count()), (Some(20), 10));
    assert_eq!(digest.totals().latency.sum_ns(), 30_000_000);
}

/// What is kept of an operation of a printed profile.
#[derive(Default)]
struct Dated(Vec<(u64, String)>);

impl sonar_decode::entry::EntrySink for Dated {
    fn operation(
        &mut self,
        op: &sonar_core::Operation<'_>,
        identity: sonar_core::Identity,
        execution: &sonar_core::Execution<'_>,
        _: u64,
    ) {
        let text = format!(
            "{} {} {} ms={:?} docs={:?} returned={:?} cpu={:?}",
            identity.name(),
            op.command,
            op.shape.namespace(),
            op.latency_ns.map(|ns| ns / 1_000_000),
            execution.docs_examined,
            op.docs_returned,
            execution.cpu_ns,
        );
        self.0.push((op.end.unix_ns() / 1_000_000, text));
    }
}

fn dated(document: &str) -> (u64, String, sonar_core::Reading) {
    let (mut profile, mut seen) = (Profile::default(), Dated::default());
    profile.printed(document.as_bytes(), &mut seen);
    assert_eq!(seen.0.len(), 1, "{document}");
    let (at, text) = seen.0.remove(0);
    (at, text, profile.reading())
}

#[test]
fn a_profile_without_types_has_times_and_figures_but_no_exact_shape() {
    // Amazon DocumentDB: milliseconds as a number, figures as texts.
    let (at, text, reading) = dated(
        r#"{"op":"query","ts":1721203201221,"ns":"shop.orders","command":{"find":"orders","filter":{"at":{"$gt":"2026"}},"$db":"shop"},"docsExamined":"9000","nreturned":"3","millis":"131","planSummary":"COLLSCAN","execStats":{"stage":"COLLSCAN","nReturned":"3"},"client":"172.31.5.63:58974","user":"master"}"#,
    );
    assert_eq!(at, 1_721_203_201_221);
    assert_eq!(text, "partial find shop.orders ms=Some(131) docs=Some(9000) returned=Some(3) cpu=None");
    assert_eq!((reading.operations_partial, reading.operations_undated), (1, 0));
    // JSON.stringify of mongosh: `2^32 + 5` and `-1` as halves.
    let (at, text, _) = dated(
        r#"{"op":"query","ns":"shop.orders","command":{"find":"orders","filter":{"st":1},"$db":"shop"},"cursorid":{"low":-1,"high":-1,"unsigned":false},"docsExamined":9000,"nreturned":3,"cpuNanos":{"low":5,"high":1,"unsigned":false},"millis":131,"ts":"2026-05-01T10:00:00.120Z"}"#,
    );
    // From `date -d 2026-05-01T10:00:00.120Z +%s%3N`.
    assert_eq!(at, 1_777_629_600_120);
    assert_eq!(
        text,
        "partial find shop.orders ms=Some(131) docs=Some(9000) returned=Some(3) cpu=Some(4294967301)"
    );
    // A `Long` anywhere shows that types are lost, also beside a date that was restored.
    let (_, text, _) = dated(
        r#"{"op":"query","ns":"a.b","command":{"find":"b","filter":{"n":{"low":5,"high":0,"unsigned":false}},"$db":"a"},"millis":1,"ts":{"$date":"2026-05-01T10:00:00.120Z"}}"#,
    );
    assert!(text.starts_with("partial find a.b"), "{text}");
    // The shape of an insert is its namespace.
    let (_, text, _) = dated(
        r#"{"op":"insert","ns":"a.b","command":{"insert":"b","$db":"a"},"ninserted":1,"millis":1,"ts":1721203201221}"#,
    );
    assert!(text.starts_with("exact insert a.b"), "{text}");
    // Types that are written are known.
    let (_, text, _) = dated(
        r#"{"op":"query","ns":"a.b","command":{"find":"b","$db":"a"},"millis":1,"ts":{"$date":{"$numberLong":"1777629600120"}}}"#,
    );
    assert!(text.starts_with("exact find a.b"), "{text}");
}

#[test]
fn a_time_that_is_missing_or_none_is_unknown_and_not_1970() {
    for ts in [
        "",
        r#","ts":null"#,
        r#","ts":17"#,
        r#","ts":"yesterday""#,
        r#","ts":{"a":1}"#,
        r#","ts":-5"#,
        r#","ts":1721203201"#,
    ] {
        let (at, _, reading) = dated(&format!(
            r#"{{"op":"query","ns":"a.b","command":{{"find":"b","$db":"a"}},"millis":7{ts}}}"#
        ));
        assert_eq!((at, reading.operations_undated), (0, 1), "{ts}");
        assert!(reading.losses().any(|(name, _, count)| (name, count) == ("operations_undated", 1)), "{ts}");
    }
}
