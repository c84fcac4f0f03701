//! Files that hold fields or marks of another kind of file, and those that other programs wrote around what is read.

use serde_json::{Value, json};

use crate::inputs::{LINES, archived};
use crate::support::*;

/// Exit code, standard output and standard error of `WORDS` with a file of this content.
pub fn ran(words: &str, content: &[u8]) -> (i32, String, String) {
    let folder = Folder::new("lookalikes");
    let file = folder.file("some", content);
    let output = program(words.split(' ')).arg(&file).output().unwrap();
    let said = |bytes: &[u8]| text(bytes).to_owned();
    (output.status.code().unwrap(), said(&output.stdout), said(&output.stderr))
}

/// The document of a report, and its operations.
pub fn calls(words: &str, content: &[u8]) -> (Value, Value) {
    let (code, out, error) = ran(&format!("{words} --json"), content);
    assert_eq!(code, 0, "{error}{}", String::from_utf8_lossy(content));
    let report: Value = serde_json::from_str(&out).unwrap();
    let calls = report["totals"]["calls"].clone();
    (report, calls)
}

fn in_flight() -> bson::Document {
    bson::doc! {"type": "op", "desc": "conn7", "client": "10.0.0.7:1", "active": true, "opid": 5, "secs_running": 9i64,
    "microsecs_running": 9_000_000i64, "op": "query", "ns": "shop.orders",
    "command": {"find": "orders", "filter": {"a": 1}, "$db": "shop"}}
}

#[test]
fn a_profile_with_such_a_field_in_a_query_is_a_profile() {
    for filter in [
        json!({"opid": 7, "active": true}),
        json!({"inprog": [1]}),
        json!({"queryPlanner": {"winningPlan": 1}}),
        json!({"t": {"$date": "2026-05-01T10:00:00Z"}, "ctx": "a", "msg": "Slow query", "attr": 1}),
        json!({"serverStatus": {"start": 1}, "data": {}}),
        json!({"atype": "a", "param": 1}),
    ] {
        let entry = json!({"op": "query", "ns": "shop.jobs", "command": {"find": "jobs", "filter": filter, "$db": "shop"},
            "millis": 133, "ts": {"$date": "2026-05-01T10:00:00.120Z"}, "client": "10.0.0.7"});
        let undated = json!({"op": "query", "ns": "shop.jobs", "command": {"find": "jobs", "filter": filter},
            "millis": 133, "ts": {"$timestamp": {"t": 1_777_629_600, "i": 1}}});
        let document: bson::Document = serde_json::from_value(entry.clone()).unwrap();
        for content in [
            format!("{entry}\n").into_bytes(),
            serde_json::to_vec_pretty(&json!([entry])).unwrap(),
            undated.to_string().into_bytes(),
            document.to_vec().unwrap(),
        ] {
            for words in ["report", "profiler report"] {
                assert_eq!(calls(words, &content).1, 1, "{words}: {filter}");
            }
        }
    }
}

#[test]
fn operations_in_flight_are_read_from_bson_too_and_before_a_cut() {
    let one = in_flight();
    let two = [one.to_vec().unwrap(), one.to_vec().unwrap()].concat();
    let list = bson::doc! {"inprog": [one.clone(), one.clone()], "ok": 1}.to_vec().unwrap();
    for content in [&two, &list] {
        let (code, out, error) = ran("report", content);
        assert_eq!(code, 0, "{error}");
        assert!(out.starts_with("2 operations in flight"), "{out}");
    }
    let text = json!({"inprog": [one, one], "ok": 1}).to_string();
    let pretty = serde_json::to_string_pretty(&json!({"inprog": [one, one], "ok": 1})).unwrap();
    for (content, count) in [
        (two[..two.len() - 20].to_vec(), "1 operation"),
        (text.as_bytes()[..text.len() - 90].to_vec(), "1 operation"),
        (pretty.as_bytes()[..pretty.len() - 90].to_vec(), "1 operation"),
        (text.as_bytes()[..text.len() - 9].to_vec(), "2 operations"),
    ] {
        let (code, out, error) = ran("report", &content);
        assert_eq!(code, 3, "{out}{error}");
        assert!(out.starts_with(&format!("{count} in flight")), "{count}: {out}");
        assert!(error.contains("it ends inside a document"), "{error}");
    }
}

#[test]
fn why_a_plan_cannot_be_read_is_said() {
    let (code, _, error) =
        ran("report", b"{\"queryPlanner\": {\"namespace\": \"shop.orders\", \"winningPlan\": {");
    assert_eq!(code, 1);
    assert!(error.contains("could be read: it ends inside a document"), "{error}");
}

#[test]
fn logs_are_read_behind_any_prefix_and_in_any_layout() {
    let [json, plain] = LINES;
    let parsed: Value = serde_json::from_str(json).unwrap();
    let pretty = |value: Value| serde_json::to_vec_pretty(&value).unwrap();
    let behind = |prefix: &str, line: &str| format!("{prefix}{line}\n{prefix}{line}\n").into_bytes();
    let table = |heading: &str, separator: &str| {
        let cell = format!("\"{}\"", json.replace('"', "\"\""));
        format!("time [UTC]{separator}{heading}\n1{separator}{cell}\n2{separator}{cell}\n").into_bytes()
    };
    let units = |text: &[u8]| -> Vec<u16> { text.iter().map(|byte| u16::from(*byte)).collect() };
    let lines = behind("", json);
    let little = [0xfeff].into_iter().chain(units(&lines)).flat_map(u16::to_le_bytes).collect();
    let big = [0xfeff].into_iter().chain(units(&lines)).flat_map(u16::to_be_bytes).collect();
    let bytes = format!("{}\n", json!({"MESSAGE": json.as_bytes(), "PRIORITY": "6"}));
    // As a server of 4.2 and earlier sends it to syslog.
    let sent = plain.split_once("COMMAND  ").unwrap().1;
    let entry = json!({"MESSAGE": sent, "__REALTIME_TIMESTAMP": "1777629600120000", "SYSLOG_IDENTIFIER": "mongod.27017"});
    let docker = |text: &str| format!("{}\n", json!({"log": text, "stream": "stdout"}));
    let (head, tail) = json.split_at(150);
    let mut files: Vec<(String, Vec<u8>)> = vec![
        ("parsed objects".to_owned(), pretty(json!([parsed, parsed]))),
        (
            "entries of Google Cloud".to_owned(),
            pretty(json!([{"insertId": "a", "jsonPayload": parsed}, {"jsonPayload": parsed}])),
        ),
        ("messages".to_owned(), pretty(json!([{"message": parsed}, {"message": parsed}]))),
        ("semicolons".to_owned(), table("message", ";")),
        ("tabs".to_owned(), table("@message", "\t")),
        ("LogEntry".to_owned(), table("LogEntry", ",")),
        ("_source.message".to_owned(), table("_source.message", ",")),
        ("UTF-16LE".to_owned(), little),
        ("UTF-16BE".to_owned(), big),
        ("bytes".to_owned(), bytes.repeat(2).into_bytes()),
        ("journal of 4.2".to_owned(), format!("{entry}\n{entry}\n").into_bytes()),
        ("short-precise".to_owned(), behind("May 01 10:00:00.123456 db1 mongod.27017[123]: ", sent)),
        (
            "parts".to_owned(),
            format!("{}{}", docker(head), docker(&format!("{tail}\n"))).repeat(2).into_bytes(),
        ),
    ];
    for prefix in [
        "[pod/mongo-0/mongod] ",
        "[pod/mongo-0/mongod] 2026-05-01T10:00:00.120000000Z ",
        "[mongo] ",
        "2026-05-01T10:00:00Z {app=\"mongo\", pod=\"m-0\"} ",
        "2026-05-01T10:00:00Z [INFO] ",
    ] {
        files.extend([json, plain].map(|line| (format!("{prefix}{line}"), behind(prefix, line))));
    }
    // A value with line feeds.
    let torn = plain.replace("a: 1", "a: \"two\nitems\n\nin [it]\"");
    for prefix in ["mongo-1 | ", "[pod/mongo-0/mongod] ", "2026-05-01T10:00:00.120000000Z "] {
        let one: String = torn.lines().map(|line| format!("{prefix}{line}\n")).collect();
        files.push((format!("torn behind {prefix}"), one.repeat(2).into_bytes()));
        let mixed = one.replace('\n', "\nweb-1 | GET /\n");
        files.push((format!("torn behind {prefix} among others"), mixed.repeat(2).into_bytes()));
    }
    let one: String = torn.lines().map(|line| docker(&format!("{line}\n"))).collect();
    files.push(("torn in docker's objects".to_owned(), one.repeat(2).into_bytes()));
    for (name, content) in &files {
        let (report, count) = calls("logs report", content);
        assert_eq!(count, 2, "{name}: {}", report["reading"]);
        assert_eq!(report["reading"]["lines_malformed"], 0, "{name}: {}", report["reading"]);
        if name.starts_with("short-precise") {
            assert!(report["rows"][0]["last_seen"].to_string().contains("00123000000"), "{report}");
        }
    }
}

#[test]
fn archives_of_logs_are_compared() {
    let tar = [archived("mongod.log", LINES.join("\n").as_bytes()), vec![0; 1_024]].concat();
    let folder = Folder::new("compare-tar");
    let (before, after) = (folder.file("before.tar", &tar), folder.file("after.tar", &tar));
    let output = program(["compare"]).args([&before, &after]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
