//! Lines of logs inside those of other programs, and those that were cut into parts.

use sonar_core::Identity;
use sonar_decode::log::{LogReader, LogSettings};

use crate::log_lines::{All, FIND, TEXT, json, one, read, texts};

/// How other programs pass a line on.
fn wrapped(line: &str) -> Vec<(&'static str, String)> {
    let quoted = serde_json::Value::from(line).to_string();
    let with_feed = serde_json::Value::from(format!("{line}\n")).to_string();
    let nested = serde_json::Value::from(format!(r#"{{"message":{quoted},"level":"info"}}"#)).to_string();
    vec![
        ("byte order mark", format!("\u{feff}{line}")),
        ("indent", format!("   \t{line}  ")),
        ("carriage return", format!("{line}\r")),
        ("kubectl --prefix", format!("[pod/mongo-0/mongod] {line}")),
        ("kubectl --timestamps", format!("2026-05-01T10:00:01.123456789Z {line}")),
        ("stern", format!("mongo-0 mongod {line}")),
        ("docker compose", format!("mongo-1  | {line}")),
        ("docker compose in colour", format!("\u{1b}[36mmongo-1  |\u{1b}[0m {line}")),
        ("docker logs -t", format!("2026-05-01T10:00:01.123456789Z {line}")),
        (
            "docker json-file",
            format!(r#"{{"log":{with_feed},"stream":"stdout","time":"2026-05-01T10:00:01Z"}}"#),
        ),
        ("CRI", format!("2026-05-01T10:00:01.123456789Z stdout F {line}")),
        ("journalctl", format!("May 01 10:00:01 db1 mongod[123]: {line}")),
        ("journalctl -o export", format!("MESSAGE={line}")),
        ("journalctl -o json", format!(r#"{{"_PID":"123","MESSAGE":{quoted},"PRIORITY":"6"}}"#)),
        ("RFC 3164", format!("<134>May  1 10:00:01 db1 mongod[123]: {line}")),
        ("RFC 5424", format!("<134>1 2026-05-01T10:00:01.003Z db1 mongod 123 - - {line}")),
        (
            "RFC 5424 with a mark",
            format!("<134>1 2026-05-01T10:00:01.003Z db1 mongod 123 - [x@1 a=\"b\"] \u{feff}{line}"),
        ),
        ("message", format!(r#"{{ "@timestamp" : "2026-05-01T10:00:01Z", "message" : {quoted} }}"#)),
        ("an envelope in an envelope", format!(r#"{{"log":{nested},"stream":"stdout"}}"#)),
        ("an envelope behind a prefix", format!(r#"2026-05-01T10:00:01Z stdout F {{"message":{quoted}}}"#)),
    ]
}

#[test]
fn lines_passed_on_by_other_programs_are_read() {
    for plain in [FIND, TEXT] {
        let expected = one(plain);
        for (how, line) in wrapped(plain) {
            let (all, log) = read(&[&line]);
            assert_eq!(all, std::slice::from_ref(&expected), "{how}: {line}");
            assert_eq!(log.reading().unparsed(), None, "{how}");
        }
    }
    // The other fields of an exported journal are no loss.
    let message = format!("MESSAGE={FIND}");
    let (all, log) = read(&["__CURSOR=s=1;i=2", "_PID=123", "PRIORITY=6", &message, ""]);
    assert_eq!((all.len(), log.reading().lines_unknown, log.reading().lines_unwrapped), (1, 0, 1));
}

#[test]
fn keys_may_come_in_any_order_with_white_space_anywhere() {
    let expected = one(FIND);
    let value: serde_json::Value = serde_json::from_str(FIND).unwrap();
    // As `jq -S` sorts them.
    let sorted = r#"{"attr":{"appName":"api","command":{"$db":"shop","filter":{"st":1,"who":"x\"y"},"find":"orders"},"docsExamined":9000,"durationMillis":131,"keysExamined":0,"nreturned":3,"ns":"shop.orders","planSummary":"COLLSCAN","reslen":512,"type":"command"},"c":"COMMAND","ctx":"conn7","id":51803,"msg":"Slow query","s":"I","t":{"$date":"2026-05-01T12:00:00.120+02:00"}}"#;
    assert_eq!(serde_json::from_str::<serde_json::Value>(sorted).unwrap(), value);
    let spaced =
        FIND.replace("\":", "\" :\t ").replace(",\"", " ,\t\"").replace('{', "{ ").replace('}', "\t}");
    let indented = serde_json::to_string_pretty(&value).unwrap().replace('\n', "\r\t");
    for line in [sorted, &spaced, &indented] {
        assert_eq!(one(line), expected, "{line}");
        // Again, after its layout could have been learned.
        let (all, _) = read(&[FIND, line, FIND, line, line]);
        assert_eq!(all, vec![expected.clone(); 5], "{line}");
    }
    // Over several lines, also as members of an array.
    for (before, after) in [("", ""), ("[\n", ",\n]")] {
        let pretty = format!("{before}{}{after}", serde_json::to_string_pretty(&value).unwrap());
        let lines: Vec<&str> = pretty.split('\n').collect();
        let (all, log) = read(&lines);
        assert_eq!(all, std::slice::from_ref(&expected), "{pretty}");
        assert_eq!((log.reading().lines_operation, log.reading().unparsed()), (1, None));
    }
    let (all, log) = read(&["{", "  \"a\": 1", "}", "{", "  \"b\": 1", FIND, "{", "  \"c\": 1"]);
    assert_eq!((all, log.reading().lines_unknown), (vec![expected.clone()], 7));
    // The part that was cut out of the attributes may be stated before them.
    let cut = sorted.replacen('{', r#"{"a":1,"truncated":{"command":{}},"#, 1).replacen(r#"{"a":1,"#, "{", 1);
    let moved = format!(r#"{{"truncated":{{"command":{{}}}},{}"#, &FIND[1..]);
    assert_eq!((one(&cut).identity, one(&moved).identity), (Identity::Partial, Identity::Partial));
    // Sorted statements and getMores.
    for (ours, theirs) in [
        (
            r#"{"type":"update","ns":"t.d","command":{"q":{"a":1},"u":{"$set":{"b":1}},"multi":true,"upsert":false},"nMatched":3,"durationMillis":5}"#,
            r#"{"command":{"multi":true,"q":{"a":1},"u":{"$set":{"b":1}},"upsert":false},"durationMillis":5,"nMatched":3,"ns":"t.d","type":"update"}"#,
        ),
        (
            r#"{"type":"command","ns":"t.d","command":{"getMore":5,"collection":"d","$db":"t"},"durationMillis":5}"#,
            r#"{"command":{"$db":"t","collection":"d","getMore":5},"durationMillis":5,"ns":"t.d","type":"command"}"#,
        ),
        (
            r#"{"type":"command","ns":"t.d","command":{"findAndModify":"d","query":{"a":1},"update":{"$inc":{"n":1}},"$db":"t"},"durationMillis":5}"#,
            r#"{"command":{"$db":"t","findAndModify":"d","query":{"a":1},"update":{"$inc":{"n":1}}},"durationMillis":5,"ns":"t.d","type":"command"}"#,
        ),
    ] {
        assert_eq!(one(&json("conn1", ours)), one(&json("conn1", theirs)), "{theirs}");
    }
}

/// A line of more than 16 KiB, in JSON and in text.
fn long_lines() -> [String; 2] {
    let who = "x".repeat(40_000);
    [
        FIND.replace(r#"x\"y"#, &who),
        TEXT.replace("filter: { a: 1 }", &format!("filter: {{ a: 1, who: \"{who}\" }}")),
    ]
}

/// A line as written by a container runtime that cuts after this many bytes.
fn cut(line: &str, runtime: &str, size: usize) -> Vec<String> {
    let parts: Vec<_> = line.as_bytes().chunks(size).map(|part| std::str::from_utf8(part).unwrap()).collect();
    let last = parts.len() - 1;
    let write = |(at, part): (usize, &&str)| match runtime {
        "CRI" => {
            format!("2026-05-01T10:00:01.12345678{at}Z stdout {} {part}", if at == last { 'F' } else { 'P' })
        }
        _ => {
            let text = serde_json::Value::from(format!("{part}{}", if at == last { "\n" } else { "" }));
            format!(r#"{{"log":{text},"stream":"stdout","time":"2026-05-01T10:00:01Z"}}"#)
        }
    };
    parts.iter().enumerate().map(write).collect()
}

#[test]
fn a_line_that_a_container_runtime_cut_is_one_line() {
    for plain in long_lines() {
        let expected = one(&plain);
        for (runtime, size) in [("CRI", 16 << 10), ("CRI", 7), ("docker", 16 << 10)] {
            let lines = cut(&plain, runtime, size);
            assert!(lines.len() > 2);
            // A line of standard error between them, and a whole one behind.
            let mut all: Vec<&str> = lines.iter().map(String::as_str).collect();
            let other = format!("2026-05-01T10:00:01.5Z stderr F {FIND}");
            all.insert(1, &other);
            all.push(FIND);
            let (seen, log) = read(&all);
            let reading = log.reading();
            assert_eq!(seen, [one(FIND), expected.clone(), one(FIND)], "{runtime} {size}");
            assert_eq!((reading.lines_operation, reading.lines_malformed), (3, 0), "{runtime}");
            assert_eq!(reading.lines_other, lines.len() as u64 - 1);
        }
    }
}

#[test]
fn a_part_without_an_end_is_counted_and_affects_no_other_line() {
    for plain in long_lines() {
        for runtime in ["CRI", "docker"] {
            let lines = cut(&plain, runtime, 16 << 10);
            let whole = cut(FIND, runtime, 16 << 10);
            let begun: Vec<&str> = lines[..2].iter().map(String::as_str).collect();
            // The log ends, or the server starts again and writes its next line.
            for (rest, operations) in [(&whole[..0], 0), (&whole[..], 1)] {
                let all: Vec<&str> = begun.iter().copied().chain(rest.iter().map(String::as_str)).collect();
                let (seen, log) = read(&all);
                let reading = log.reading();
                assert_eq!(seen.len(), operations, "{runtime}");
                assert_eq!((reading.lines, reading.lines_malformed), (2 + operations as u64, 2), "{runtime}");
                assert_eq!(reading.imbalances(), Vec::<String>::new());
            }
        }
    }
    // More than is kept of a line; the lines after it are read again.
    let part = format!("2026-05-01T10:00:01Z stdout P {}", "x".repeat(1 << 20));
    let (last, next) = ("2026-05-01T10:00:01Z stdout F x", format!("2026-05-01T10:00:01Z stdout F {FIND}"));
    let mut lines = vec![part.as_str(); 9];
    lines.extend([last, &next]);
    let (seen, log) = read(&lines);
    assert_eq!((seen.len(), log.reading().lines_too_long, log.reading().lines_other), (1, 10, 0));
}

#[test]
fn syslog_s_lines_of_old_servers_have_its_date() {
    let message = TEXT.split_once("[conn7]").unwrap().1;
    let at = |line: &str, reference_ms: i64| {
        let mut log = LogReader::new(LogSettings { reference_ms, ..LogSettings::default() });
        let mut all = All::default();
        log.line(line.as_bytes(), &mut all);
        assert_eq!((all.0.len(), log.reading().lines_unwrapped), (1, 1), "{line}");
        assert_eq!(all.0[0].id, one(TEXT).id, "{line}");
        log.last_time().unwrap().to_string()
    };
    // 2020-02-01: November was last year's.
    let reference = 1_580_515_200_000;
    let date = "2019-11-03T18:28:32.000000000Z";
    for head in [
        "Nov  3 18:28:32 db1 mongod.27017[1234]:",
        "<14>Nov  3 18:28:32 db1 mongod[1234]:",
        "2019-11-03T18:28:32+00:00 db1 mongos.27017:",
        "<14>1 2019-11-03T18:28:32.000Z db1 mongod.27017 1234 - -",
        "<14>1 2019-11-03T18:28:32.000Z db1 mongod.27017 1234 ID47 [x@1 a=\"b\\]\"][y@1]",
    ] {
        assert_eq!(at(&format!("{head} [conn7]{message}"), reference), date, "{head}");
    }
    for other in [
        "Nov  3 18:28:32 db1 sshd[1]: [conn7]",
        "Nov  3 18:28:32 db1 mongodump[1]: [conn7]",
        "Nov 31 18:28:32 db1 mongod[1]: [conn7]",
        "Nov  3 18:28:32 db1 mongod[1]: x",
    ] {
        assert_eq!(read(&[&format!("{other}{message}")]).0, [], "{other}");
    }
}

#[test]
fn lines_are_found_behind_markers_colours_and_quotes() {
    let quoted = |line: &str| serde_json::Value::from(line).to_string();
    for line in [FIND, TEXT] {
        let single = format!("    '{}',", line.replace('\\', "\\\\").replace('\'', "\\'"));
        for wrapped in [
            format!("{{1}} {line}"),
            format!("{{mongod.log}} {line}"),
            format!("\u{1b}[36mmongo-1  |\u{1b}[0m {line}"),
            format!("mongo-1  | \u{1b}[32m{line}\u{1b}[0m"),
            format!("\u{1b}[32mmongo-0\u{1b}[0m \u{1b}[1;32mmongod\u{1b}[0m {line}"),
            format!("\t\t{},", quoted(line)),
            quoted(line),
            single,
        ] {
            let (seen, log) = read(&[&wrapped]);
            assert_eq!(seen, [one(line)], "{wrapped}");
            assert_eq!(log.reading().lines_unwrapped, 1, "{wrapped}");
        }
    }
}

#[test]
fn objects_keep_lines_at_any_depth_and_under_several_names() {
    let object: serde_json::Value = serde_json::from_str(FIND).unwrap();
    for (line, object) in [(FIND, Some(object)), (TEXT, None)] {
        let all = [
            serde_json::json!({"_index": "x", "_source": {"@timestamp": "2026-05-01T10:00:00Z", "message": line, "event": {"original": line}}}),
            serde_json::json!({"_id": "x", "fields": {"message": [line]}}),
            serde_json::json!({"insertId": "x", "resource": {"type": "k8s_container"}, "textPayload": line}),
            serde_json::json!({"insertId": "x", "jsonPayload": {"message": line}}),
            serde_json::json!({"stream": {"pod": "mongo-0"}, "values": [["1777629600120000000", line]]}),
        ];
        let mut all: Vec<String> = all.iter().map(ToString::to_string).collect();
        all.extend(
            object.map(|object| serde_json::json!({"insertId": "x", "jsonPayload": object}).to_string()),
        );
        for wrapped in all {
            let (seen, log) = read(&[&wrapped]);
            assert_eq!(seen, [one(line)], "{wrapped}");
            assert_eq!((log.reading().lines_operation, log.reading().lines_unwrapped), (1, 1), "{wrapped}");
        }
    }
    let other =
        serde_json::json!({"jsonPayload": {"message": "GET /index.html 200 12ms, nothing of a database"}})
            .to_string();
    assert_eq!(read(&[&other]).1.reading().lines_unknown, 1);
}

#[test]
fn lines_of_a_document_are_those_of_all_its_lists() {
    let lines = |document: &str| {
        let mut out = Vec::new();
        let count = sonar_decode::log::lines_of(document.as_bytes(), 1_580_515_200_000, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), count, "{document}");
        texts(&text.lines().collect::<Vec<_>>())
    };
    let expected = [texts(&[FIND]), texts(&[TEXT])].concat();
    let object: serde_json::Value = serde_json::from_str(FIND).unwrap();
    let nanos = "1777629600120000000";
    for document in [
        serde_json::json!({"totalLinesWritten": 2, "log": [FIND, TEXT], "ok": 1}),
        serde_json::json!({"status": "success", "data": {"resultType": "streams", "result": [
            {"stream": {"pod": "a"}, "values": [[nanos, FIND]]}, {"stream": {"pod": "b"}, "values": [[nanos, TEXT]]},
        ]}}),
        serde_json::json!({"hits": {"total": 2, "hits": [
            {"_source": {"message": FIND, "event": {"original": FIND}}}, {"_source": {"message": TEXT}},
        ]}}),
        serde_json::json!({"events": [{"timestamp": 1, "message": FIND}, {"timestamp": 2, "message": TEXT}]}),
        serde_json::json!({"results": [
            [{"field": "@timestamp", "value": "x"}, {"field": "@message", "value": FIND}],
            [{"field": "@message", "value": TEXT}],
        ]}),
        serde_json::json!({"entries": [{"jsonPayload": object}, {"textPayload": TEXT}]}),
        serde_json::json!({"log": format!("{FIND}\n{TEXT}\n")}),
    ] {
        assert_eq!(lines(&document.to_string()), expected, "{document}");
        assert_eq!(lines(&serde_json::to_string_pretty(&document).unwrap()), expected);
    }
    assert_eq!(lines("{\"a\": [1, \"x\"]}"), Vec::<String>::new());
}

#[test]
fn an_operation_of_which_a_value_has_line_feeds_is_one_operation() {
    let head = "2019-11-03T18:28:32.450+0100 I COMMAND  [conn7] command t.d command: find { find: \"d\", filter: { a: \"one";
    let tail = "three\" }, $db: \"t\" } planSummary: COLLSCAN keysExamined:0 docsExamined:10 numYields:0 nreturned:1 reslen:100 locks:{} protocol:op_msg 150ms";
    let (seen, log) = read(&[head, "", "two", tail, TEXT]);
    assert_eq!(seen, [one(&format!("{head} two {tail}")), one(TEXT)]);
    let reading = log.reading();
    assert_eq!(
        (reading.lines, reading.lines_operation, reading.lines_other, reading.lines_unknown),
        (5, 2, 3, 0)
    );
    // Of 2.4, 2.6, 3.0 and 3.4.
    for (head, tail) in [
        (
            "Sun Nov  3 18:28:32.450 [conn7] query t.d query: { a: \"one",
            "three\" } ntoreturn:0 ntoskip:0 nscanned:10 keyUpdates:0 locks(micros) r:150000 nreturned:1 reslen:100 150ms",
        ),
        (
            "2014-11-03T18:28:32.450+0100 [conn7] query t.d query: { a: \"one",
            "three\" } planSummary: COLLSCAN ntoreturn:0 ntoskip:0 nscanned:10 nscannedObjects:10 keyUpdates:0 numYields:0 locks(micros) r:150000 nreturned:1 reslen:100 150ms",
        ),
        (
            "2015-11-03T18:28:32.450+0100 I QUERY    [conn7] query t.d query: { a: \"one",
            "three\" } planSummary: COLLSCAN ntoreturn:0 ntoskip:0 nscanned:0 nscannedObjects:10 keyUpdates:0 writeConflicts:0 numYields:0 nreturned:1 reslen:100 locks:{} 150ms",
        ),
        (
            "2017-11-03T18:28:32.450+0100 I COMMAND  [conn7] command t.d appName: \"shop\" command: find { find: \"d\", filter: { a: \"one",
            "three\" } } planSummary: COLLSCAN keysExamined:0 docsExamined:10 cursorExhausted:1 numYields:0 nreturned:1 reslen:100 locks:{} protocol:op_command 150ms",
        ),
    ] {
        let (seen, log) = read(&[head, "", "two", tail, TEXT]);
        assert_eq!(seen, [one(&format!("{head} two {tail}")), one(TEXT)]);
        let reading = log.reading();
        assert_eq!(
            (reading.lines_operation, reading.lines_other, reading.lines_unknown),
            (2, 3, 0),
            "{head}"
        );
    }
    // The next line has a head: nothing ends the operation.
    let (seen, log) = read(&[head, "two", TEXT]);
    assert_eq!(seen, [one(TEXT)]);
    let reading = log.reading();
    assert_eq!((reading.lines_operation, reading.lines_other, reading.lines_unknown), (1, 1, 1));
    // The log ends.
    let (seen, log) = read(&[head, "two"]);
    assert_eq!((seen.len(), log.reading().lines_other, log.reading().lines_unknown), (0, 1, 1));
    assert_eq!(log.reading().imbalances(), Vec::<String>::new());
}
