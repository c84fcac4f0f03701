//! Lines of logs, one kind after another, and what each gives.

use sonar_core::{Class, Execution, Identity, Operation, Reading};
use sonar_decode::entry;
use sonar_decode::entry::ParsedEntry;
use sonar_decode::log::{Bound, LogReader, LogSettings};
use sonar_decode::profile::Profile;

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    text: String,
    pub id: u64,
    pub identity: Identity,
    class: Class,
    cursor: Option<i64>,
    ms: Option<u64>,
    affected: Option<u64>,
    keys: Option<u64>,
    entries: u64,
}

#[derive(Default)]
pub struct All(pub Vec<Seen>);

impl entry::EntrySink for All {
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>, entries: u64) {
        self.0.push(Seen {
            text: format!("{} {} {}", op.command, op.shape.namespace(), op.shape.typed),
            id: op.shape.id.0,
            identity,
            class: op.class,
            cursor: op.cursor_id,
            ms: op.latency_ns.map(|ns| ns / 1_000_000),
            affected: op.docs_affected,
            keys: execution.keys_examined,
            entries,
        });
    }
}

pub fn read(lines: &[&str]) -> (Vec<Seen>, LogReader) {
    let (mut log, mut all) = (
        LogReader::new(LogSettings { reference_ms: 1_430_000_000_000, ..LogSettings::default() }),
        All::default(),
    );
    for line in lines {
        log.line(line.as_bytes(), &mut all);
        assert_eq!(log.reading().imbalances(), Vec::<String>::new());
    }
    log.finish(&mut all);
    (all.0, log)
}

pub fn texts(lines: &[&str]) -> Vec<String> {
    read(lines).0.into_iter().map(|seen| seen.text).collect()
}

pub fn one(line: &str) -> Seen {
    let (mut all, _) = read(&[line]);
    assert_eq!(all.len(), 1, "{line}: {all:?}");
    all.remove(0)
}

pub fn json(context: &str, attributes: &str) -> String {
    format!(
        r#"{{"t":{{"$date":"2026-05-01T10:00:00.120+00:00"}},"s":"I","c":"COMMAND","id":51803,"ctx":"{context}","msg":"Slow query","attr":{attributes}}}"#
    )
}

pub const FIND: &str = r#"{"t":{"$date":"2026-05-01T12:00:00.120+02:00"},"s":"I","c":"COMMAND","id":51803,"ctx":"conn7","msg":"Slow query","attr":{"type":"command","ns":"shop.orders","appName":"api","command":{"find":"orders","filter":{"st":1,"who":"x\"y"},"$db":"shop"},"planSummary":"COLLSCAN","keysExamined":0,"docsExamined":9000,"nreturned":3,"reslen":512,"durationMillis":131}}"#;
pub const TEXT: &str = r#"2019-11-03T18:28:32.450+0100 I COMMAND  [conn7] command t.d command: find { find: "d", filter: { a: 1 }, $db: "t" } planSummary: COLLSCAN keysExamined:0 docsExamined:10 numYields:0 nreturned:1 reslen:100 locks:{} protocol:op_msg 150ms"#;

#[test]
fn a_rotated_log_repeats_version_and_pid_without_a_start() {
    let start = r#"{"t":{"$date":"2026-05-01T10:00:00.000+00:00"},"s":"I","c":"CONTROL","id":4615611,"ctx":"initandlisten","msg":"MongoDB starting","attr":{"pid":12309,"port":27117,"host":"vm"}}"#;
    let build = |time: &str, context: &str| {
        format!(
            r#"{{"t":{{"$date":"2026-05-01T{time}.100+00:00"}},"s":"I","c":"CONTROL","id":23403,"ctx":"{context}","msg":"Build Info","attr":{{"buildInfo":{{"version":"4.4.6"}}}}}}"#
        )
    };
    let details = r#"{"t":{"$date":"2026-05-01T11:00:00.000+00:00"},"s":"I","c":"CONTROL","id":20721,"ctx":"conn2","msg":"Process Details","attr":{"pid":"12309","port":27117,"host":"vm"}}"#;
    let (first, again) = (build("10:00:00", "initandlisten"), build("11:00:00", "conn2"));
    let (_, log) = read(&[start, &first, details, &again]);
    let notices = log.notices();
    assert_eq!((notices.starts.len(), notices.versions()), (1, vec!["4.4.6"]));
    assert_eq!((notices.starts[0].pid, &*notices.starts[0].version), (Some(12_309), "4.4.6"));
    // The rotated file alone: the version is known, a start is not.
    let (_, log) = read(&[details, &again]);
    assert_eq!((log.notices().starts.len(), log.notices().versions()), (0, vec!["4.4.6"]));
    // 4.0.
    let lines = [
        "2019-05-01T10:00:00.000+0000 I CONTROL  [initandlisten] MongoDB starting : pid=7 port=27017 dbpath=/x 64-bit host=vm",
        "2019-05-01T10:00:00.000+0000 I CONTROL  [initandlisten] db version v4.0.3",
        "2019-05-01T11:00:00.000+0000 I CONTROL  [conn2] pid=7 port=27017 64-bit host=vm",
        "2019-05-01T11:00:00.000+0000 I CONTROL  [conn2] db version v4.0.3",
        "2019-05-01T12:00:00.000+0000 I CONTROL  [signalProcessingThread] db version v4.0.3",
    ];
    let (_, log) = read(&lines);
    assert_eq!((log.notices().starts.len(), log.notices().versions()), (1, vec!["4.0.3"]));
    // A mongos logs only its version when it starts.
    let (_, log) = read(&["2019-05-01T10:00:00.000+0000 I SHARDING [mongosMain] mongos version v4.0.3"]);
    assert_eq!(log.notices().starts.len(), 1);
}

#[test]
fn the_server_s_own_work_is_shown_with_its_class() {
    let build = json(
        "IndexBuildsCoordinatorMongod-0",
        r#"{"type":"none","ns":"shop.orders","command":{"createIndexes":"orders","indexes":[{"v":2,"key":{"a":1},"name":"a_1"}],"$db":"shop"},"numYields":90,"durationMillis":364}"#,
    );
    let seen = one(&build);
    assert_eq!(
        (seen.text.as_str(), seen.class),
        ("createIndexes shop.orders {indexes: [{key: {a: 1}}]}", Class::Internal)
    );
    assert_eq!((seen.identity, seen.ms), (Identity::Exact, Some(364)));
    for attributes in [
        r#"{"type":"none","ns":"shop.orders","numYields":3,"durationMillis":12}"#,
        r#"{"ns":"shop.orders","numYields":3,"durationMillis":12}"#,
        r#"{"type":"somethingNew","ns":"shop.orders","numYields":3,"durationMillis":12}"#,
    ] {
        let seen = one(&json("conn3", attributes));
        assert_eq!((seen.text.as_str(), seen.class), ("none shop.orders ", Class::Internal), "{attributes}");
        assert_eq!((seen.identity, seen.ms), (Identity::Unknown, Some(12)));
    }
    let seen =
        one(&json("conn3", r#"{"type":"command","ns":"shop.orders","numYields":3,"durationMillis":12}"#));
    assert_eq!((seen.text.as_str(), seen.class), ("? shop.orders ", Class::User));
    let text =
        "2019-05-01T10:00:00.000+0000 I WRITE    [TTLMonitor] none shop.orders numYields:0 locks:{} 140ms";
    let seen = one(text);
    assert_eq!((seen.text.as_str(), seen.class, seen.ms), ("none shop.orders ", Class::Internal, Some(140)));
}

#[test]
fn what_a_secondary_applied_is_replication() {
    let line = |attributes: &str| {
        format!(
            r#"{{"t":{{"$date":"2026-05-01T10:00:00.120+00:00"}},"s":"I","c":"REPL","id":51801,"ctx":"ReplWriterWorker-3","msg":"Applied op","attr":{attributes}}}"#
        )
    };
    for (attributes, text, identity) in [
        (
            r#"{"CRUD":{"op":"u","ns":"shop.orders","ui":{"$uuid":"x"},"o2":{"_id":1},"o":{"ns":"a.b"},"v":2},"durationMillis":38}"#,
            "applied update shop.orders {}",
            Identity::Exact,
        ),
        (
            r#"{"command":{"op":"c","ns":"shop.$cmd","o":{"commitIndexBuild":"orders","indexes":[]}},"durationMillis":52}"#,
            "applied commitIndexBuild shop {}",
            Identity::Exact,
        ),
        (
            r#"{"command":{"op":"c","ns":"shop.$cmd","o":{"secret":"orders"}},"durationMillis":52}"#,
            "applied command shop {}",
            Identity::Exact,
        ),
        // A group of inserts whose namespace was cut off.
        (
            r#"{"CRUD":{"ts":[1,2],"t":[1,1],"o":[{"_id":1}]},"durationMillis":43},"truncated":{"CRUD":{}},"size":{"CRUD":70000}"#,
            "applied op  {}",
            Identity::Partial,
        ),
    ] {
        let seen = one(&line(attributes));
        assert_eq!(
            (seen.text.as_str(), seen.class, seen.identity),
            (text, Class::Replication, identity),
            "{attributes}"
        );
    }
    let text = r#"2019-04-20T08:00:00.000+0000 I REPL     [repl writer worker 3] applied op: CRUD { ts: Timestamp(1, 1), t: 1, h: 5, v: 2, op: "i", ns: "test.t", wall: new Date(0), o: { _id: 0, x: "a", ns: "no.no" } }, took 120ms"#;
    let seen = one(text);
    assert_eq!(
        (seen.text.as_str(), seen.class, seen.ms),
        ("applied insert test.t {}", Class::Replication, Some(120))
    );
    // A string with quotes comes after everything that matters.
    let seen = one(&text.replace("\"a\"", "\"a \"b\" c\""));
    assert_eq!((seen.text.as_str(), seen.identity), ("applied insert test.t {}", Identity::Exact));
}

#[test]
fn a_transaction_is_shown_once_and_not_as_a_user_s_operation() {
    for line in [
        r#"2026-11-21T00:39:46.724+0000 I TXN      [conn4] transaction parameters:{ lsid: { id: UUID("7c0322b3-2116-4658-a619-4209e8bc68a7"), uid: BinData(0, E3) }, txnNumber: 482, autocommit: false, readConcern: { level: "snapshot" } }, readTimestamp:Timestamp(1795221586, 1505), keysExamined:4 ninserted:2 keysInserted:1 terminationCause:committed timeActiveMicros:352 timeInactiveMicros:986 numYields:0 locks:{ Global: { acquireCount: { r: 1, w: 1 } } } 71ms"#,
        r#"2021-03-09T15:03:03.297+0800 I  TXN      [conn20] transaction parameters:{ lsid: { id: UUID("97d5f526-6e95-4394-b6cf-683480499cdd") }, txnNumber: 0, autocommit: false }, readTimestamp:Timestamp(0, 0), keysExamined:4 ninserted:2 terminationCause:committed timeActiveMicros:595 numYields:0 locks:{} wasPrepared:0, 71ms"#,
        r#"{"t":{"$date":"2026-05-01T10:00:00.120+00:00"},"s":"I","c":"TXN","id":51802,"ctx":"conn4","msg":"transaction","attr":{"parameters":{"lsid":{"id":{"$uuid":"x"}},"txnNumber":0,"autocommit":false},"readTimestamp":"Timestamp(0, 0)","keysExamined":4,"ninserted":2,"terminationCause":"committed","timeActiveMicros":595,"numYields":0,"locks":{},"wasPrepared":false,"durationMillis":71}}"#,
    ] {
        let seen = one(line);
        assert_eq!((seen.text.as_str(), seen.class), ("transaction  {}", Class::Internal), "{line}");
        assert_eq!((seen.ms, seen.keys, seen.affected), (Some(71), Some(4), Some(2)));
    }
}

#[test]
fn an_insert_into_a_time_series_is_one_operation() {
    let update = json(
        "conn7",
        r#"{"type":"update","ns":"iot.system.buckets.temps","command":{"q":{"_id":{"$oid":"65a6eb806ffc9fa4280ecac4"}},"u":{"$v":2,"diff":{"sdata":{"stemp":{"i":{"3":1}}}}},"multi":false,"upsert":false},"planSummary":"IDHACK","keysExamined":1,"docsExamined":1,"nMatched":1,"nModified":1,"numYields":0,"durationMillis":3}"#,
    );
    let insert = json(
        "conn7",
        r#"{"type":"command","ns":"iot.temps","appName":"api","command":{"insert":"temps","ordered":true,"$db":"iot"},"ninserted":5,"numYields":0,"reslen":45,"durationMillis":9}"#,
    );
    let (all, log) = read(&[&update, &update, &insert, &insert]);
    let found: Vec<_> =
        all.iter().map(|seen| (seen.text.as_str(), seen.entries, seen.affected, seen.keys)).collect();
    let text = "insert iot.temps {}";
    assert_eq!(found, [(text, 3, Some(5), Some(2)), (text, 1, Some(5), None)]);
    assert_eq!((all[0].id, log.reading().statements_joined), (all[1].id, 2));
    // Statements of another connection or another collection do not belong to it.
    let (all, _) = read(&[&update.replace("conn7", "conn8"), &insert]);
    assert_eq!(all.len(), 2);
    let (all, _) = read(&[&update.replace("buckets.temps", "buckets.other"), &insert]);
    assert_eq!(all.len(), 2);
}

#[test]
fn an_empty_query_is_one_of_everything() {
    let modern = |command: &str| {
        one(&json(
            "conn1",
            &format!(r#"{{"type":"command","ns":"t.d","command":{command},"durationMillis":5}}"#),
        ))
    };
    let remove = |command: &str| {
        one(&json(
            "conn1",
            &format!(r#"{{"type":"remove","ns":"t.d","command":{command},"durationMillis":5}}"#),
        ))
    };
    let find = modern(r#"{"find":"d","filter":{},"$db":"t"}"#);
    let old = |rest: &str| {
        one(&format!(
            "Mon Aug  5 20:21:43.100 [conn4] {rest} keyUpdates:0 locks(micros) r:5400 reslen:62 131ms"
        ))
    };
    for rest in [
        "query t.d query: {} ntoreturn:0 nscanned:9000",
        "query t.d ntoreturn:0 nscanned:9000",
        "query t.d query: { $query: {} } ntoreturn:0",
        "query t.d query: { query: {} } ntoreturn:0",
    ] {
        let seen = old(rest);
        assert_eq!(
            (seen.text.as_str(), seen.id, seen.identity),
            ("find t.d {}", find.id, Identity::Exact),
            "{rest}"
        );
    }
    let count = modern(r#"{"count":"d","query":{},"$db":"t"}"#);
    assert_eq!(
        old("command t.$cmd command: { count: \"d\", query: {}, fields: null } ntoreturn:1").id,
        count.id
    );
    assert_eq!(old("command t.$cmd command: { count: \"d\" } ntoreturn:1").id, count.id);
    let all = remove(r#"{"q":{},"limit":0}"#);
    for rest in ["remove t.d query: {} ndeleted:9", "remove t.d ndeleted:9"] {
        let seen = old(rest);
        assert_eq!((seen.id, seen.identity), (all.id, Identity::Exact), "{rest}");
    }
    // Whether a remove of one document had a limit is not logged.
    assert_eq!(old("remove t.d query: { a: 1 } ndeleted:1").identity, Identity::Partial);
    assert_eq!(old("remove t.d query: { a: 1 } ndeleted:2").id, remove(r#"{"q":{"a":1},"limit":0}"#).id);
    let update = old("update t.d query: {} update: { $set: { a: 1 } } nscanned:1 nupdated:1");
    assert_eq!(old("update t.d update: { $set: { a: 1 } } nscanned:1 nupdated:1").id, update.id);
    // A profile says the same.
    for document in [
        r#"{"op":"query","ns":"t.d","query":{},"ntoreturn":0,"nscanned":9,"millis":5}"#,
        r#"{"op":"query","ns":"t.d","ntoreturn":0,"nscanned":9,"millis":5}"#,
    ] {
        let (mut profile, mut all) = (Profile::default(), All::default());
        profile.printed(document.as_bytes(), &mut all);
        assert_eq!((all.0[0].id, all.0[0].identity), (find.id, Identity::Exact), "{document}");
    }
}

#[test]
fn a_find_with_explain_is_an_explain() {
    let modern = one(&json(
        "conn1",
        r#"{"type":"command","ns":"t.d","command":{"explain":{"find":"d","filter":{"a":1}},"$db":"t"},"durationMillis":5}"#,
    ));
    let seen = one(
        "Mon Aug  5 20:21:43.100 [conn4] query t.d query: { $query: { a: 1 }, $explain: true } ntoreturn:0 nscanned:9000 keyUpdates:0 reslen:62 131ms",
    );
    assert_eq!((seen.text.as_str(), seen.id), ("explain t.d {filter: {a: ?number}}", modern.id));
    let seen = one(
        "Mon Aug  5 20:21:43.100 [conn4] query t.d query: { $query: { a: 1 }, $explain: false } ntoreturn:0 nscanned:9000 keyUpdates:0 reslen:62 131ms",
    );
    assert_eq!(seen.text, "find t.d {filter: {a: ?number}}");
}

#[test]
fn integers_of_64_bits_stay_exact() {
    // Two cursors that are one as doubles.
    let (one_id, other_id) = (9_007_199_254_740_993_i64, 9_007_199_254_740_992_i64);
    let find = |id: i64, field: &str| {
        json(
            "conn1",
            &format!(
                r#"{{"type":"command","ns":"t.d","command":{{"find":"d","filter":{{"{field}":1}},"$db":"t"}},"cursorid":{id},"durationMillis":5}}"#
            ),
        )
    };
    let more = |id: &str| {
        json(
            "conn1",
            &format!(
                r#"{{"type":"command","ns":"t.d","command":{{"getMore":{id},"collection":"d","$db":"t"}},"durationMillis":5}}"#
            ),
        )
    };
    let lines = [
        find(one_id, "a"),
        find(other_id, "b"),
        more(&one_id.to_string()),
        more(&other_id.to_string()),
        more(&format!(r#"{{"$numberLong":"{one_id}"}}"#)),
        more(&format!(r#"{{ "$numberLong" : "{other_id}" }}"#)),
    ];
    let (all, _) = read(&lines.each_ref().map(String::as_str));
    let fields: Vec<_> = all.iter().map(|seen| &seen.text[seen.text.len() - 13..]).collect();
    assert_eq!(
        fields,
        [
            "{a: ?number}}",
            "{b: ?number}}",
            "{a: ?number}}",
            "{b: ?number}}",
            "{a: ?number}}",
            "{b: ?number}}"
        ]
    );
    assert_eq!(
        all.iter().map(|seen| seen.cursor.unwrap()).collect::<Vec<_>>(),
        [one_id, other_id, one_id, other_id, one_id, other_id]
    );
    // The shell's syntax.
    let text = |command: &str, rest: &str| {
        format!(
            r#"2019-11-03T18:28:32.450+0000 I COMMAND  [conn7] command t.d command: {command} {rest} numYields:0 reslen:100 locks:{{}} protocol:op_msg 150ms"#
        )
    };
    for id in [i64::MIN + 1, -one_id, one_id, other_id, i64::MAX] {
        for written in [
            id.to_string(),
            format!("NumberLong({id})"),
            format!("NumberLong(\"{id}\")"),
            format!("NumberLong('{id}')"),
        ] {
            let opened = text(r#"find { find: "d", filter: { a: 1 }, $db: "t" }"#, &format!("cursorid:{id}"));
            let used = text(
                &format!(r#"getMore {{ getMore: {written}, collection: "d", $db: "t" }}"#),
                &format!("cursorid:{id}"),
            );
            let (all, _) = read(&[&opened, &used]);
            assert_eq!(all.iter().map(|seen| seen.cursor).collect::<Vec<_>>(), [Some(id); 2], "{written}");
            assert_eq!(all[1].id, all[0].id, "{written}");
        }
    }
    // A profile of 3.2 to 4.4 has the cursor as a double, without its last digits.
    let (mut profile, mut all) = (Profile::default(), All::default());
    profile.printed(br#"{"op":"query","ns":"t.d","command":{"find":"d","filter":{"a":1},"$db":"t"},"cursorid":{"$numberDouble":"9007199254740992.0"},"millis":5}"#, &mut all);
    profile.printed(br#"{"op":"getmore","ns":"t.d","command":{"getMore":{"$numberLong":"9007199254740993"},"collection":"d","$db":"t"},"millis":5}"#, &mut all);
    assert_eq!((all.0[1].id, all.0[1].cursor), (all.0[0].id, Some(one_id)));
}

#[test]
fn each_line_s_own_offset_is_kept() {
    let (all, log) = read(&[FIND, TEXT]);
    assert_eq!(all.len(), 2);
    let offsets = &log.notices().offsets;
    let spans: Vec<_> =
        offsets.spans().iter().map(|span| (span.from.unix_ns() / 1_000_000, span.minutes)).collect();
    assert_eq!(spans, [(1_777_629_600_120, 120), (1_572_802_112_450, 60)]);
    assert_eq!(offsets.at(log.last_time().unwrap()), Some(60));
    let (_, log) = read(&["Mon Aug  5 20:21:43.100 [conn4] insert t.d keyUpdates:0 locks(micros) w:288 1ms"]);
    assert_eq!(log.notices().offsets.at(log.last_time().unwrap()), None);
}

#[test]
fn unreadable_lines_that_look_like_mongodb_s_are_counted() {
    let reading = |lines: &[&str]| -> Reading { read(lines).1.reading() };
    let cut = &FIND[..FIND.len() - 40];
    let envelope = format!(r#"{{"log":{},"stream":"stdout"}}"#, serde_json::Value::from(cut));
    for line in [
        cut,
        &format!("mongo-1  | {cut}"),
        &envelope,
        &FIND.replacen(':', ";", 3),
        r#"{"time":"10:00","severity":"I","ctx":"conn7","msg":"Slow query","attr":{"t":{"$date":"x"}}}"#,
        "10:28:32.450 I COMMAND  [conn7] command t.d command: find { find: \"d\" } 150ms",
    ] {
        let reading = reading(&[line]);
        let unparsed = reading.unparsed().unwrap_or_else(|| panic!("{line}: {reading:?}"));
        assert_eq!((unparsed.lines, unparsed.of, unparsed.is_most), (1, 1, true), "{line}");
    }
    let unparsed = reading(&[FIND, FIND, cut, ""]).unparsed().unwrap();
    assert_eq!((unparsed.lines, unparsed.of, unparsed.is_most), (1, 3, false));
    for line in
        ["# Readme", "{\"a\":1}", "{\"a\":", "GET /index.html 200 12ms", "2026-05-01 10:00:00 INFO started"]
    {
        assert_eq!(reading(&[line]).unparsed(), None, "{line}");
    }
}

#[test]
fn a_text_line_without_its_head_is_unknown() {
    let (_, log) = read(&[TEXT, "  at mongod(_ZN5mongo+0x1)", "  continued"]);
    assert_eq!((log.reading().lines_operation, log.reading().lines_unknown), (1, 2));
    assert_eq!(texts(&[TEXT]).len(), 1);
}

#[test]
fn a_range_by_the_log_s_clock_follows_its_offset() {
    // End of daylight saving time: 02:30 occurs twice.
    let line = |time: &str| FIND.replace("2026-05-01T12:00:00.120+02:00", time);
    let lines = [
        line("2026-10-25T01:30:00.000+02:00"),
        line("2026-10-25T02:30:00.000+02:00"),
        line("2026-10-25T02:30:00.000+01:00"),
        line("2026-10-25T03:30:00.000+01:00"),
    ];
    let count = |from: Option<Bound>, to: Option<Bound>| {
        let mut log = LogReader::new(LogSettings { from, to, ..LogSettings::default() });
        let mut all = All::default();
        lines.iter().for_each(|line| log.line(line.as_bytes(), &mut all));
        (all.0.len(), log.reading().lines_outside)
    };
    // Midnight of that day on a clock.
    let midnight = 1_792_886_400_000;
    let clock = |minutes: i64| Some(Bound::Clock(midnight + minutes * 60_000));
    assert_eq!(count(clock(120), None), (3, 1));
    assert_eq!(count(clock(120), clock(180)), (2, 2));
    assert_eq!(count(None, clock(210)), (3, 1));
    let utc = Bound::At(sonar_core::Timestamp::from_unix(1_792_886_400 + 3_600, 0));
    assert_eq!(count(Some(utc), None), (2, 2));
}

#[test]
fn the_last_line_is_judged_by_itself_not_by_unfinished_ones() {
    let operation = "2026-05-01T10:00:00.120+0000 I COMMAND  [conn7] command shop.orders command: find { find: \"orders\", filter: { a: 1 } } planSummary: COLLSCAN keysExamined:0 docsExamined:9 numYields:0 nreturned:3 reslen:100 locks:{} protocol:op_msg 131ms";
    let part = |tag: char, text: &str| format!("2026-05-01T10:00:00.120000000Z stdout {tag} {text}");
    // An object over two lines, and a part of a line, neither of which continues.
    let spread = vec!["{".to_owned(), "  \"a\": 1,".to_owned()];
    let cut = vec![part('P', "2026-05-01T10:00:00.119+0000 I COMMAND  [conn7] command shop.orders comm")];
    for (before, last) in [(spread, operation.to_owned()), (cut, part('F', operation))] {
        for (last, is_whole) in [(last.as_str(), true), ("2026-05-01T10:00:00.120+0000 I COMM", false)] {
            let (mut log, mut all) = (LogReader::new(LogSettings::default()), All::default());
            before.iter().for_each(|line| log.line(line.as_bytes(), &mut all));
            let mut entry = ParsedEntry::default();
            let parsed = log.reader().read(last.as_bytes(), &mut entry);
            log.add_last(last.as_bytes(), &parsed, &entry, &mut all);
            assert_eq!(log.reading().imbalances(), Vec::<String>::new());
            log.finish(&mut all);
            let reading = log.reading();
            assert_eq!(reading.imbalances(), Vec::<String>::new());
            let whole = u64::from(is_whole);
            assert_eq!((reading.lines_operation, all.0.len() as u64), (whole, whole), "{last}");
            let unread = reading.lines_malformed + reading.lines_unknown;
            assert_eq!((unread, reading.lines_unfinished), (before.len() as u64, 1 - whole), "{last}");
            assert_eq!((reading.lines, reading.lines_other), (before.len() as u64 + 1, 0), "{last}");
        }
    }
}

#[test]
fn a_last_text_line_without_a_line_feed_is_cut_only_if_it_shows_that() {
    let is_cut = |message: &str| {
        let line = format!("2019-11-03T18:28:32.450+0000 I NETWORK  [conn7] {message}");
        let (mut log, mut all) = (LogReader::new(LogSettings::default()), All::default());
        let mut entry = ParsedEntry::default();
        let parsed = log.reader().read(line.as_bytes(), &mut entry);
        log.add_last(line.as_bytes(), &parsed, &entry, &mut all);
        assert_eq!(log.reading().imbalances(), Vec::<String>::new());
        log.reading().lines_unfinished == 1
    };
    for whole in [
        "end connection 10.0.0.1:4000 (3 connections now open)",
        "connection accepted from 10.0.0.1:4000 #8 (4 connections now open)",
        "received client metadata from 10.0.0.1:4000 conn7: { driver: { name: \"a (b\", version: \"1\" } }",
        "MongoDB starting : pid=1 port=27017 dbpath=/data 64-bit host=db1",
        "waiting for connections on port 27017",
        "command not found",
    ] {
        assert!(!is_cut(whole), "{whole}");
    }
    for cut in [
        "",
        "end connection 10.0.0.1:4000 (3 conn",
        "received client metadata from 10.0.0.1:4000 conn7: { driver: { name: \"a\" }",
        "command shop.orders command: find { find: \"orders\", filter: { a: 1 } } planSummary: COLL",
        "command shop.orders",
        "getmore shop.orders query: { a: 1 } cursorid:1",
    ] {
        assert!(is_cut(cut), "{cut}");
    }
}

#[test]
fn the_number_of_open_connections_follows_any_address() {
    for (address, number) in
        [("127.0.0.1:52486", 1), ("::1:52486", 12), ("anonymous unix socket", 3), ("/tmp/a #7 (9 b).sock", 4)]
    {
        let line = format!(
            "2019-11-03T18:28:32.450+0000 I NETWORK  [listener] connection accepted from {address} #{number} ({number} connections now open)"
        );
        let mut log = LogReader::new(LogSettings::default());
        log.line(line.as_bytes(), &mut All::default());
        let notices = log.notices();
        assert_eq!((notices.accepted, notices.most_open), (1, Some(number)), "{address}");
    }
}

#[test]
fn a_reader_that_forgets_needs_less_memory_and_reads_on() {
    let line = |number: u32| FIND.replace("orders", &format!("orders{number}"));
    let (mut log, mut all) = (LogReader::new(LogSettings::default()), All::default());
    for number in 0..500 {
        log.line(line(number).as_bytes(), &mut all);
    }
    let before = log.memory();
    assert!(before > 500 * 200, "{before}");
    log.forget(&mut all);
    assert!(log.memory() < before / 10, "{} of {before}", log.memory());
    assert_eq!(all.0.len(), 500);
    log.line(line(7).as_bytes(), &mut all);
    assert_eq!(all.0[500].id, all.0[7].id, "the shape is the same");
    assert_eq!(log.reading().imbalances(), Vec::<String>::new());
}
