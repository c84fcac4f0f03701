//! The recorded logs of real servers, compared with the wire of the same seconds.

use std::collections::BTreeMap;

use crate::shapes::{Shapes, decode, wire};
use sonar_core::{Execution, Identity, Operation, Timestamp};
use sonar_decode::entry;
use sonar_decode::log::{Bound, LogReader, LogSettings};
use sonar_decode::testing::fixtures::inflated;

fn told(name: &str, settings: LogSettings) -> (Shapes, LogReader) {
    let bytes = inflated(name);
    let (mut log, mut shapes) = (LogReader::new(settings), Shapes::default());
    for line in bytes.split(|byte| *byte == b'\n') {
        log.line(line, &mut shapes);
        assert_eq!(log.reading().imbalances(), Vec::<String>::new());
    }
    log.finish(&mut shapes);
    (shapes, log)
}

/// What only one of the two has, and why.
struct Differ {
    recording: &'static str,
    log: &'static str,
    port: u16,
    wire: &'static [(&'static str, u64)],
    told: &'static [(&'static str, u64)],
    unsaid: &'static [(&'static str, u64)],
}

const DIFFER: [Differ; 4] = [
    Differ {
        recording: "mongod-4.0-mixed",
        log: "mongod",
        port: 27_117,
        // 4.0 does not log commands that it does not know, nor the projection of OP_QUERY.
        wire: &[
            ("find shop.people {filter: {city: ?string}, projection: {age: 1}}", 1),
            ("noSuchCommand shop ?", 4),
        ],
        // On the wire a getLastError is reported with its write; a transaction has no message of its own; the server
        // itself issued the rest.
        told: &[
            ("find config.transactions {filter: {_id: ?object}, limit: ?number, singleBatch: true}", 11),
            ("find shop.people {filter: {city: ?string}}", 1),
            ("getlasterror stats {}", 2),
            ("transaction  {}", 5),
        ],
        unsaid: &[],
    },
    Differ {
        recording: "mongod-4.0-sharded",
        log: "27217",
        port: 27_217,
        // A mongos logs a bulk, but none of its statements: 30 of each shape of six bulks …
        wire: &[
            ("", 30),
            ("", 30),
            ("", 30),
            ("", 30),
            ("", 30),
            ("", 30),
            ("", 600),
            ("update shop.carts {q: {_id: ?number}, u: {$set: {total: ?number}}}", 150),
            ("update shop.carts {q: {user: ?number}, u: {$inc: {v: ?number}}, multi: true}", 30),
        ],
        told: &[],
        // … so these are separate rows, marked as such.
        unsaid: &[("delete shop.carts", 30), ("update shop.carts", 210)],
    },
    Differ {
        recording: "mongod-4.0-sharded",
        log: "27218",
        port: 27_218,
        // The secondary's cursor was opened before the capture began: the log knows its query.
        wire: &[("getMore local.oplog.rs {}", 841)],
        told: &[
            ("find config.transactions {filter: {_id: ?object}, limit: ?number, singleBatch: true}", 2),
            (
                "find local.oplog.rs {filter: {ts: {$gte: ?timestamp}}, awaitData: true, oplogReplay: true, tailable: true}",
                841,
            ),
        ],
        unsaid: &[],
    },
    Differ {
        recording: "mongod-4.0-sharded",
        log: "27220",
        port: 27_220,
        wire: &[],
        told: &[("find config.transactions {filter: {_id: ?object}, limit: ?number, singleBatch: true}", 1)],
        unsaid: &[],
    },
];

#[test]
fn log_and_wire_have_the_same_shapes_statement_by_statement() {
    let mut wrong = Vec::new();
    for differ in DIFFER {
        let wire = wire(differ.recording, "", differ.port);
        let ms = |ns: u64, more: u64| Bound::At(Timestamp::from_unix_ns((ns / 1_000_000 + more) * 1_000_000));
        let settings = LogSettings {
            from: Some(ms(wire.first, 0)),
            to: Some(ms(wire.last, 1)),
            ..LogSettings::default()
        };
        let (told, _) = told(&format!("{}/{}.log.gz", differ.recording, differ.log), settings);
        let more = |a: &Shapes, b: &Shapes| -> Vec<(String, u64)> {
            let left = |(id, count): (&u64, &u64)| {
                let left = count.saturating_sub(b.counts.get(id).copied().unwrap_or(0));
                (left > 0).then(|| (a.texts.get(id).cloned().unwrap_or_default(), left))
            };
            let mut all: Vec<_> = a.counts.iter().filter_map(left).collect();
            all.sort();
            all
        };
        let list = |all: &[(&str, u64)]| -> Vec<(String, u64)> {
            all.iter().map(|(text, count)| ((*text).to_owned(), *count)).collect()
        };
        let unsaid: Vec<_> = told.unsaid.iter().map(|(text, count)| (text.clone(), *count)).collect();
        for (what, found, expected) in [
            ("wire", more(&wire, &told), list(differ.wire)),
            ("log", more(&told, &wire), list(differ.told)),
            ("unsaid", unsaid, list(differ.unsaid)),
        ] {
            if found != expected {
                wrong.push(format!("{} only {what}: {found:#?}", differ.log));
            }
        }
        // Also the ordered ids; OP_UPDATE and OP_DELETE, on stats.old, have no order of their flags.
        for ((id, order), count) in &wire.ordered {
            let has_no_order = wire.texts[id].contains(" stats.old ");
            if !has_no_order
                && told.counts.get(id) == wire.counts.get(id)
                && told.ordered.get(&(*id, *order)) != Some(count)
            {
                wrong.push(format!("{} order of {count} {}", differ.log, wire.texts[id]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// How long an operation took, and its text.
type Latency = (Option<u64>, String);

/// Latencies in order, by the client's port and the shape.
#[derive(Default)]
struct Latencies {
    /// On the wire: those of this server. In a log: that of the line's connection.
    port: u16,
    all: BTreeMap<(u16, u64), Vec<Latency>>,
}

impl Latencies {
    fn add(&mut self, client: u16, op: &Operation<'_>) {
        let text = format!("{} {} {}", op.command, op.shape.namespace(), op.shape.typed);
        self.all.entry((client, op.shape.id.0)).or_default().push((op.latency_ns, text));
    }
}

impl sonar_decode::Sink for Latencies {
    fn operation(&mut self, op: &Operation<'_>) {
        if op.server.port == self.port {
            self.add(op.client.port, op);
        }
    }
}

impl entry::EntrySink for Latencies {
    fn operation(&mut self, op: &Operation<'_>, _: Identity, _: &Execution<'_>, _: u64) {
        self.add(self.port, op);
    }
}

/// Operation by operation: connections are matched by the client's port, and the n-th operation of a shape on a
/// connection is the same in both, if both have as many.
#[test]
fn the_wire_takes_at_least_as_long_as_the_server_says() {
    for (recording, name, port, least) in [
        ("mongod-4.0-mixed", "mongod", 27_117, 4_200),
        ("mongod-4.0-sharded", "27217", 27_217, 1_300),
        ("mongod-4.0-sharded", "27218", 27_218, 2_000),
        ("mongod-4.0-sharded", "27220", 27_220, 1_900),
    ] {
        let mut seen = Latencies { port, ..Latencies::default() };
        decode(recording, &mut seen);
        let (mut log, mut said) = (LogReader::new(LogSettings::default()), Latencies::default());
        let mut ports = BTreeMap::new();
        for line in inflated(&format!("{recording}/{name}.log.gz")).split(|byte| *byte == b'\n') {
            let text = String::from_utf8_lossy(line);
            if let Some((_, rest)) = text.split_once("connection accepted from ") {
                let (address, rest) = rest.split_once(" #").unwrap();
                let number: u64 = rest.split(' ').next().unwrap().parse().unwrap();
                ports.insert(number, address.rsplit_once(':').unwrap().1.parse::<u16>().unwrap());
            }
            let number = text.split_once("[conn").and_then(|(_, rest)| rest.split_once(']')?.0.parse().ok());
            said.port = number.and_then(|number: u64| ports.get(&number).copied()).unwrap_or(0);
            log.line(line, &mut said);
        }
        let (mut matched, mut shorter) = (0, Vec::new());
        for (key, of_log) in &said.all {
            let Some(of_wire) = seen.all.get(key).filter(|all| key.0 != 0 && all.len() == of_log.len())
            else {
                continue;
            };
            for ((wire, text), (log, _)) in of_wire.iter().zip(of_log) {
                let (Some(wire), Some(log)) = (wire, log) else { continue };
                matched += 1;
                if wire < log {
                    shorter.push(format!("{text}: {wire} ns on the wire, {log} ns in the log"));
                }
            }
        }
        assert!(shorter.is_empty(), "{name}: {} of {matched}: {shorter:#?}", shorter.len());
        assert!(matched >= least, "{name}: only {matched}");
    }
}

/// One operation in short.
#[derive(Default)]
struct Names(Vec<String>);

impl entry::EntrySink for Names {
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>, entries: u64) {
        let ms = op.latency_ns.map_or(-1, |ns| (ns / 1_000_000) as i64);
        self.0.push(format!(
            "{} {} {} {} {ms}ms app={:?} keys={:?} docs={:?} returned={:?} plan={:?} entries={entries} statements={}",
            identity.name(),
            op.command,
            op.shape.namespace(),
            op.shape.typed,
            op.app.name,
            execution.keys_examined,
            execution.docs_examined,
            op.docs_returned,
            execution.plan,
            op.statement_count,
        ));
    }
}

fn read(lines: &[&str]) -> (Vec<String>, LogReader) {
    let (mut log, mut said) = (
        LogReader::new(LogSettings { reference_ms: 1_430_000_000_000, ..LogSettings::default() }),
        Names::default(),
    );
    for line in lines {
        log.line(line.as_bytes(), &mut said);
    }
    log.finish(&mut said);
    assert_eq!(log.reading().imbalances(), Vec::<String>::new());
    (said.0, log)
}

/// Lines of every format, from the documentation and recorded logs.
#[test]
fn every_version_is_read() {
    for (line, expected) in [
        // 2.4
        (
            r#"Mon Aug  5 20:21:43.100 [conn4] query t.d query: { $query: { a: 1 }, $orderby: { b: -1 } } ntoreturn:0 nscanned:9000 scanAndOrder:1 keyUpdates:0 locks(micros) r:5400 nreturned:3 reslen:62 131ms"#,
            r#"exact find t.d {filter: {a: ?number}, sort: {b: -1}} 131ms app="" keys=Some(9000) docs=None returned=Some(3) plan="" entries=1 statements=1"#,
        ),
        (
            r#"Mon Aug  5 20:21:43.100 [conn4] insert t.d keyUpdates:0 locks(micros) w:288 1ms"#,
            r#"exact insert t.d {} 1ms app="" keys=None docs=None returned=None plan="" entries=1 statements=1"#,
        ),
        // 2.6
        (
            r#"2014-11-03T18:28:32.450-0500 [conn1] update t.d query: { _id: 1.0 } update: { $set: { a: "x" } } nscanned:1 nscannedObjects:1 nMatched:1 nModified:1 keyUpdates:0 numYields:0 locks(micros) w:160 120ms"#,
            r#"partial update t.d {q: {_id: ?number}, u: {$set: {a: ?string}}} 120ms app="" keys=Some(1) docs=Some(1) returned=None plan="" entries=1 statements=1"#,
        ),
        // 3.0
        (
            r#"2015-04-20T08:00:00.000+0000 I QUERY    [conn2] query t.d query: { a: ObjectId('507f1f77bcf86cd799439011'), at: { $gt: new Date(1429516800000) } } planSummary: IXSCAN { a: 1.0 }, IXSCAN { at: 1.0 } ntoreturn:0 ntoskip:0 nscanned:7 nscannedObjects:6 keyUpdates:0 writeConflicts:0 numYields:1 nreturned:5 reslen:62 locks:{ Global: { acquireCount: { r: 2 } } } 210ms"#,
            r#"exact find t.d {filter: {a: ?objectId, at: {$gt: ?date}}} 210ms app="" keys=Some(7) docs=Some(6) returned=Some(5) plan="IXSCAN { a: 1.0 }, IXSCAN { at: 1.0 }" entries=1 statements=1"#,
        ),
        // 3.2
        (
            r#"2015-04-20T08:00:00.000+0000 I COMMAND  [conn2] command t.d command: find { find: "d", filter: { r: /^a.b/i, l: [ 1, 2.5, "x" ], n: null } } planSummary: COLLSCAN keysExamined:0 docsExamined:9000 cursorExhausted:1 numYields:70 nreturned:0 reslen:62 locks:{ Global: { acquireCount: { r: 2 } } } protocol:op_command 95ms"#,
            r#"exact find t.d {filter: {l: ?array<>, n: ?null, r: {$regex: ?regex}}} 95ms app="" keys=Some(0) docs=Some(9000) returned=Some(0) plan="COLLSCAN" entries=1 statements=1"#,
        ),
        // 4.2
        (
            r#"2019-11-03T18:28:32.450+0000 I  COMMAND  [conn7] command t.d appName: "MongoDB Shell" command: aggregate { aggregate: "d", pipeline: [ { $match: { a: 1 } } ], cursor: {}, $db: "t" } planSummary: COLLSCAN keysExamined:0 docsExamined:10 hasSortStage:1 cursorExhausted:1 numYields:0 nreturned:1 queryHash:1A2B3C4D planCacheKey:1A2B3C4D reslen:100 locks:{} storage:{ data: { bytesRead: 100, timeReadingMicros: 7 }, timeWaitingMicros: { cache: 3 } } protocol:op_msg 150ms"#,
            r#"exact aggregate t.d {pipeline: [{$match: {a: ?number}}]} 150ms app="MongoDB Shell" keys=Some(0) docs=Some(10) returned=Some(1) plan="COLLSCAN" entries=1 statements=1"#,
        ),
        // 4.4
        (
            r#"{"t":{"$date":"2026-05-01T10:00:00.120+00:00"},"s":"I",  "c":"COMMAND",  "id":51803,   "ctx":"conn7","msg":"Slow query","attr":{"type":"command","ns":"shop.orders","appName":"api","command":{"find":"orders","filter":{"st":1,"at":{"$gt":{"$date":"2026-05-01T10:00:00.120Z"}},"who":{"$oid":"507f1f77bcf86cd799439011"}},"$db":"shop"},"planSummary":"COLLSCAN","keysExamined":0,"docsExamined":9000,"nreturned":3,"reslen":512,"locks":{},"storage":{},"remote":"10.0.0.9:51234","protocol":"op_msg","durationMillis":131}}"#,
            r#"exact find shop.orders {filter: {at: {$gt: ?date}, st: ?number, who: ?objectId}} 131ms app="api" keys=Some(0) docs=Some(9000) returned=Some(3) plan="COLLSCAN" entries=1 statements=1"#,
        ),
        // 8.0
        (
            r#"{"t":{"$date":"2026-05-01T10:00:00.120+00:00"},"s":"I","c":"WRITE","id":51803,"svc":"S","ctx":"conn7","msg":"Slow query","attr":{"type":"update","isFromUserConnection":true,"ns":"shop.orders","collectionType":"normal","appName":"api","command":{"q":{"_id":{"$in":[1,2,3]}},"u":{"$set":{"a":"b\u00e4"}},"multi":true,"upsert":false},"planSummary":"EXPRESS_IXSCAN { _id: 1 },EXPRESS_UPDATE","planCacheShapeHash":"AB","queryShapeHash":"CD","keysExamined":3,"docsExamined":3,"nMatched":3,"nModified":3,"queues":{"execution":{"admissions":1,"totalTimeQueuedMicros":12}},"workingMillis":4,"durationMillis":5}}"#,
            r#"exact update shop.orders {q: {_id: {$in: ?array<?number>}}, u: {$set: {a: ?string}}, multi: true} 5ms app="api" keys=Some(3) docs=Some(3) returned=None plan="EXPRESS_IXSCAN { _id: 1 },EXPRESS_UPDATE" entries=1 statements=1"#,
        ),
        // Strings without escapes: ambiguous.
        (
            r#"2018-11-03T18:28:32.450+0000 I COMMAND  [conn7] command t.d command: find { find: "d", filter: { a: "he said "b", c: { $gt: 5 } }", z: 2 }, $db: "t" } planSummary: COLLSCAN keysExamined:0 docsExamined:12 numYields:0 nreturned:1 reslen:100 locks:{} protocol:op_msg 150ms"#,
            r#"ambiguous find t.d  150ms app="" keys=Some(0) docs=Some(12) returned=Some(1) plan="COLLSCAN" entries=1 statements=1"#,
        ),
        // Cut in the middle by the server.
        (
            r#"2018-11-03T18:28:32.450+0000 I COMMAND  [conn7] warning: log line attempted (24kB) over max size (10kB), printing beginning and end ... command t.d command: find { find: "d", filter: { x: "y", a: { $in: [ 1, 2, 3 .......... 19998, 19999 ] } }, $db: "t" } planSummary: IXSCAN { a: 1 } keysExamined:20 docsExamined:12 numYields:0 nreturned:1 reslen:100 locks:{} protocol:op_msg 150ms"#,
            r#"partial find t.d {filter: {a: {$in: ?array<?number>}, x: ?string}} 150ms app="" keys=Some(20) docs=Some(12) returned=Some(1) plan="IXSCAN { a: 1 }" entries=1 statements=1"#,
        ),
        (
            r#"{"t":{"$date":"2026-05-01T10:00:00.120+00:00"},"s":"I","c":"COMMAND","id":51803,"ctx":"conn7","msg":"Slow query","attr":{"type":"command","ns":"t.d","command":{"find":"d","filter":{"a":{"$in":[1,2]}},"$db":"t"},"nreturned":3,"durationMillis":7},"truncated":{"command":{"filter":{"a":{"$in":{"2":{"type":"int","size":4}}}}}},"size":{"command":24000}}"#,
            r#"partial find t.d {filter: {a: {$in: ?array<?number>}}} 7ms app="" keys=None docs=None returned=Some(3) plan="" entries=1 statements=1"#,
        ),
    ] {
        let (said, log) = read(&[line]);
        assert_eq!(said, [expected], "{line}");
        assert_eq!(log.reading().lines_operation, 1);
    }
}

#[test]
fn statements_are_reported_with_their_command_and_time_counts_once() {
    let statement = |value: u32| {
        format!(
            r#"2026-05-01T10:00:00.120+0000 I WRITE    [conn7] update t.d command: {{ q: {{ _id: {value} }}, u: {{ $set: {{ a: 1 }} }}, multi: false, upsert: false }} planSummary: IDHACK keysExamined:1 docsExamined:1 nMatched:1 nModified:1 numYields:0 locks:{{}} 4ms"#
        )
    };
    let command = r#"2026-05-01T10:00:00.121+0000 I COMMAND  [conn7] command t.$cmd command: update { update: "d", ordered: true, $db: "t" } numYields:0 reslen:60 locks:{} protocol:op_msg 9ms"#;
    let (one, two) = (statement(1), statement(2));
    let (said, log) = read(&[&one, &two, command]);
    assert_eq!(
        said,
        [
            r#"exact update t.d {q: {_id: ?number}, u: {$set: {a: ?number}}} 9ms app="" keys=Some(2) docs=Some(2) returned=None plan="IDHACK" entries=3 statements=2"#
        ]
    );
    assert_eq!(log.reading().statements_joined, 2);
    // The command of another connection is not theirs.
    let (said, _) = read(&[&one, &command.replace("conn7", "conn8")]);
    assert_eq!(said.len(), 2);
    assert!(said.iter().any(|line| line.starts_with("unsaid update t.d")), "{said:?}");
    assert!(
        said.iter().any(|line| line.starts_with("exact update t.d") && line.contains(" 4ms")),
        "{said:?}"
    );
}

/// What else a server reports about an operation.
#[derive(Default)]
struct More(Vec<String>);

impl entry::EntrySink for More {
    fn operation(&mut self, _: &Operation<'_>, _: Identity, execution: &Execution<'_>, _: u64) {
        let known: Vec<String> = [
            ("prepared", execution.prepare_read_conflicts),
            ("flow", execution.flow_control_us),
            ("remote", execution.remote_wait_us),
            ("concern", execution.write_concern_us),
            ("spills", execution.spills),
            ("spilled", execution.spilled_bytes),
            ("wait", execution.storage_wait_us),
            ("queued", execution.queued_us),
        ]
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| format!("{name}={value}")))
        .collect();
        let plans = [&[execution.plan], execution.other_plans].concat().join(" + ");
        self.0.push(format!("{} plans={plans}", known.join(" ")));
    }
}

fn more(lines: &[&str]) -> Vec<String> {
    let (mut log, mut more) = (LogReader::new(LogSettings::default()), More::default());
    lines.iter().for_each(|line| log.line(line.as_bytes(), &mut more));
    log.finish(&mut more);
    more.0
}

#[test]
fn waits_spills_and_every_plan_of_a_bulk_are_read() {
    let json = |attributes: &str| {
        format!(
            r#"{{"t":{{"$date":"2026-05-01T10:00:00.120+00:00"}},"s":"I","c":"COMMAND","id":51803,"ctx":"conn7","msg":"Slow query","attr":{{"type":"command","ns":"t.d","command":{{"aggregate":"d","pipeline":[],"$db":"t"}},{attributes},"durationMillis":7}}}}"#
        )
    };
    let line = json(
        r#""planSummary":"COLLSCAN","prepareReadConflicts":3,"remoteOpWaitMillis":5,"waitForWriteConcernDurationMillis":6,"flowControl":{"acquireCount":1,"timeAcquiringMicros":40},"sortSpills":2,"sortSpilledBytes":4096,"groupSpills":1,"groupSpilledBytes":1024,"storage":{"timeWaitingMicros":{"cache":8,"schemaLock":1}},"queues":{"execution":{"totalTimeQueuedMicros":4},"ingress":{"totalTimeQueuedMicros":2}}"#,
    );
    let expected =
        "prepared=3 flow=40 remote=5000 concern=6000 spills=3 spilled=5120 wait=9 queued=6 plans=COLLSCAN";
    // The second time its layout is known.
    assert_eq!(more(&[&line, &line]), [expected, expected]);
    let text = r#"2019-11-03T18:28:32.450+0000 I  COMMAND  [conn7] command t.d command: insert { insert: "d", ordered: true, $db: "t" } ninserted:1 numYields:0 reslen:100 locks:{} flowControl:{ acquireCount: 1, timeAcquiringMicros: 4 } prepareReadConflicts:2 storage:{} protocol:op_msg 150ms"#;
    assert_eq!(more(&[text]), ["prepared=2 flow=4 plans="]);
    let statement = |filter: &str, plan: &str| {
        format!(
            r#"2026-05-01T10:00:00.120+0000 I WRITE    [conn7] update t.d command: {{ q: {{ {filter}: 1 }}, u: {{ $set: {{ a: 1 }} }}, multi: false, upsert: false }} planSummary: {plan} keysExamined:1 docsExamined:1 nMatched:1 nModified:1 numYields:0 locks:{{}} 4ms"#
        )
    };
    let command = r#"2026-05-01T10:00:00.121+0000 I COMMAND  [conn7] command t.$cmd command: update { update: "d", ordered: true, $db: "t" } numYields:0 reslen:60 locks:{} protocol:op_msg 9ms"#;
    let (one, two, three) =
        (statement("_id", "IDHACK"), statement("b", "COLLSCAN"), statement("_id", "IDHACK"));
    assert_eq!(more(&[&one, &two, &three, command]), [" plans=IDHACK + COLLSCAN"]);
}

#[test]
fn unparsed_lines_are_counted_by_reason() {
    let lines = [
        "",
        "\u{1}\u{2}binary",
        "{\"t\":{\"$date\":\"2026-05-01T10:00:00.120+00:00\"},\"s\":\"I\",\"c\":\"COMMAND\",\"id\":51803,\"ctx\":\"conn7\",\"msg\":\"Slow query\",\"attr\":{\"type\":\"comm",
        "{\"a\":1}",
        "2026-05-01T10:00:00.120+0000 W NETWORK  [conn7] no ssl on 10.0.0.1:4000",
        "2026-05-01T10:00:00.121+0000 W NETWORK  [conn7] no ssl on 10.0.0.2:4711",
        "  continued",
    ];
    let (said, log) = read(&lines);
    assert!(said.is_empty());
    let reading = log.reading();
    assert_eq!(
        (
            reading.lines_empty,
            reading.lines_unknown,
            reading.lines_malformed,
            reading.lines_event,
            reading.lines_other
        ),
        (1, 3, 1, 2, 0)
    );
    let messages: Vec<_> =
        log.notices().messages.iter().map(|(kind, said)| (&*kind.text, said.count)).collect();
    assert_eq!(messages, [("no ssl on #.#.#.#:#", 2)]);
}

#[test]
fn connections_clients_and_starts_are_noted() {
    let (_, log) = told("mongod-4.0-mixed/mongod.log.gz", LogSettings::default());
    let notices = log.notices();
    // From grep over the same file.
    assert_eq!((notices.accepted, notices.ended, notices.most_open), (28, 28, Some(22)));
    assert_eq!(notices.versions(), ["4.0.3"]);
    assert_eq!(
        (notices.starts.len(), notices.starts[0].pid, notices.starts[0].port),
        (1, Some(26_569), Some(27_117))
    );
    assert_eq!(notices.clients.iter().map(|(_, count)| count).sum::<u64>(), 27);
}

#[test]
fn no_flipped_or_missing_byte_makes_it_panic() {
    let bytes = inflated("mongod-4.0-mixed/mongod.log.gz");
    let mut log = LogReader::new(LogSettings::default());
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate().step_by(97) {
        for at in 0..line.len() {
            log.line(&line[..at], &mut Names::default());
            let mut flipped = line.to_vec();
            flipped[at] ^= 1 << (number % 8);
            log.line(&flipped, &mut Names::default());
        }
        assert_eq!(log.reading().imbalances(), Vec::<String>::new());
    }
}

/// Who issued an operation, and why.
#[derive(Default)]
struct Callers(Vec<String>);

impl entry::EntrySink for Callers {
    fn operation(&mut self, op: &Operation<'_>, _: Identity, execution: &Execution<'_>, _: u64) {
        self.0.push(format!("{} {:?} {:?}", op.client.ip(), execution.user, execution.comment));
    }
}

#[test]
fn users_comments_and_slow_replies_are_read() {
    let line = |id: u32, context: &str, attributes: &str| {
        format!(
            r#"{{"t":{{"$date":"2026-05-01T10:00:00.120+00:00"}},"s":"I","c":"COMMAND","id":{id},"ctx":"{context}","msg":"x","attr":{{{attributes}}}}}"#
        )
    };
    let find = |comment: &str| {
        format!(
            r#""type":"command","ns":"t.d","command":{{"find":"d","filter":{{"comment":"no"}}{comment},"$db":"t"}},"remote":"10.0.0.9:51234","durationMillis":7"#
        )
    };
    let lines = [
        // 4.4 and 7.0.
        line(
            20_250,
            "conn1",
            r#""mechanism":"SCRAM-SHA-256","principalName":"alice","authenticationDatabase":"admin","remote":"10.0.0.9:51234""#,
        ),
        line(
            5_286_306,
            "conn2",
            r#""client":"10.0.0.9:51235","mechanism":"SCRAM-SHA-256","user":"bob","db":"shop","result":0"#,
        ),
        line(51_803, "conn1", &find(r#","comment":"nightly""#)),
        line(51_803, "conn2", &find(r#","comment":17"#)),
        line(51_803, "conn3", &find(r#","comment":{"a":1}"#)),
        // The example of the manual.
        line(
            6_983_000,
            "conn1",
            r#""elapsed":{"totalMillis":109,"activeMillis":30,"receiveWorkMillis":2,"processWorkMillis":10,"sendResponseMillis":22,"yieldMillis":15,"finalizeMillis":30}"#,
        ),
        line(6_983_000, "conn1", r#""elapsed":{"sendResponseMillis":200}"#),
        "2019-11-03T18:28:32.450+0000 I ACCESS   [conn9] Successfully authenticated as principal carol on shop from client 10.0.0.3:4000".to_owned(),
        r#"2019-11-03T18:28:32.450+0000 I COMMAND  [conn9] command t.d command: find { find: "d", filter: {}, comment: "c", $db: "t" } planSummary: COLLSCAN keysExamined:0 docsExamined:10 numYields:0 nreturned:1 reslen:100 locks:{} protocol:op_msg 150ms"#.to_owned(),
    ];
    let (mut log, mut callers) = (LogReader::new(LogSettings::default()), Callers::default());
    log.show_values();
    lines.iter().for_each(|line| log.line(line.as_bytes(), &mut callers));
    log.finish(&mut callers);
    assert_eq!(
        callers.0,
        [
            r#"10.0.0.9 "alice@admin" "nightly""#,
            r#"10.0.0.9 "bob@shop" "17""#,
            r#"10.0.0.9 "" """#,
            r#":: "carol@shop" "c""#,
        ]
    );
    let slow = log.notices().slow_replies;
    assert_eq!((slow.seen.count, slow.total_ms, slow.longest_ms), (2, 222, 200));
    assert_eq!(log.reading().imbalances(), Vec::<String>::new());
    // Users and comments are values: they stay inside unless they were asked for.
    let (mut log, mut callers) = (LogReader::new(LogSettings::default()), Callers::default());
    lines.iter().for_each(|line| log.line(line.as_bytes(), &mut callers));
    assert_eq!(callers.0.len(), 4);
    assert!(callers.0.iter().all(|caller| caller.ends_with(r#" "" """#)), "{:?}", callers.0);
}

/// The namespace behind the view that each operation named.
struct Views(Vec<String>);

impl entry::EntrySink for Views {
    fn operation(
        &mut self,
        op: &sonar_core::Operation<'_>,
        _: sonar_core::Identity,
        execution: &sonar_core::Execution<'_>,
        _: u64,
    ) {
        self.0.push(format!("{} {}", op.shape.namespace(), execution.view_of));
    }
}

#[test]
fn a_view_is_resolved_by_the_line_itself() {
    let line = |namespace: &str, resolved: &str| {
        format!(
            r#"{{"t":{{"$date":"2026-05-01T10:00:00.120+00:00"}},"s":"I","c":"COMMAND","id":51803,"ctx":"conn1","msg":"Slow query","attr":{{"type":"command","ns":"{namespace}","command":{{"find":"{}","filter":{{"a":1}},"$db":"shop"}},"planSummary":"COLLSCAN","resolvedViews":[{resolved}],"docsExamined":9,"durationMillis":150}}}}"#,
            &namespace[5..]
        )
    };
    let view = |name: &str, chain: &str| {
        format!(
            r#"{{"viewNamespace":"shop.{name}","dependencyChain":[{chain}],"resolvedPipeline":[{{"$match":{{"viewNamespace":"x","a":["y"]}}}}]}}"#
        )
    };
    let chain = r#""newest","open","orders""#;
    let lines = [
        line("shop.newest", &view("newest", chain)),
        // A view that a $lookup reads is resolved too.
        line("shop.orders", &view("newest", chain)),
        line("shop.open", &[view("newest", chain), view("open", r#""open","orders""#)].join(",")),
        line("shop.orders", ""),
    ];
    let (mut log, mut views) = (LogReader::new(LogSettings::default()), Views(Vec::new()));
    lines.iter().for_each(|line| log.line(line.as_bytes(), &mut views));
    log.finish(&mut views);
    assert_eq!(views.0, ["shop.newest shop.orders", "shop.orders ", "shop.open shop.orders", "shop.orders "]);
}
