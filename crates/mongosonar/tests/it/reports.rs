//! The whole program on logs and profiles: every form of input and output, and how it ends.

use std::path::Path;

use crate::support::*;
use serde_json::Value;

fn report(what: &str, files: &[&Path], words: &str) -> std::process::Output {
    let mut command = program([what, "report"]);
    command.args(files).args(words.split_whitespace());
    command.output().unwrap()
}

fn object(output: &std::process::Output) -> Value {
    let mut all = lines(output);
    assert_eq!(all.len(), 1);
    all.pop().unwrap()
}

const LOG: &str = "mongod-4.0-mixed/mongod.log.gz";

#[test]
fn a_log_is_told_in_full_and_its_counters_balance() {
    let output = report("logs", &[&fixture(LOG)], "--json --class all");
    let told = object(&output);
    let count = |name: &str| told["reading"][name].as_u64().unwrap();
    // By `wc -l` and grep over the same file.
    assert_eq!((count("lines"), count("lines_operation")), (5_595, 5_404));
    assert_eq!(told["totals"]["calls"], 4_300);
    assert_eq!(count("statements_joined"), 1_104);
    assert_eq!(told["notices"]["versions"], serde_json::json!(["4.0.3"]));
    let rows = told["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["calls"].as_u64().unwrap()).sum::<u64>(), 4_300);
}

#[test]
fn compressed_piped_and_split_logs_say_the_same() {
    let folder = Folder::new("logs");
    let plain = inflated(LOG);
    let expected = object(&report("logs", &[&fixture(LOG)], "--json"));
    let same = |told: Value, what: &str| {
        for field in ["totals", "rows", "notices"] {
            assert!(told[field] == expected[field], "{what}: {field}");
        }
    };
    let zstd = folder.file("zstd", &zstd::encode_all(plain.as_slice(), 1).unwrap());
    same(object(&report("logs", &[&zstd], "--json")), "zstd");
    let mut piped = program(["logs", "report", "-", "--json"]);
    piped.args::<[&str; 0], _>([]);
    same(object(&fed(piped, &plain)), "pipe");
    // Rotated: two files, given in the wrong order, the first of them compressed.
    let middle = plain.len() / 2 + plain[plain.len() / 2..].iter().position(|b| *b == b'\n').unwrap() + 1;
    let first = folder.file("mongod.log.1.zst", &zstd::encode_all(&plain[..middle], 1).unwrap());
    let second = folder.file("mongod.log", &plain[middle..]);
    same(object(&report("logs", &[&second, &first], "--json")), "rotated");
}

#[test]
fn what_is_still_written_and_what_is_foreign_is_counted_and_never_fatal() {
    let folder = Folder::new("foreign-lines");
    let plain = inflated(LOG);
    let cut = folder.file("growing", &plain[..plain.len() - 40]);
    let output = report("logs", &[&cut], "--json");
    assert_eq!(output.status.code(), Some(3), "it ends inside a line");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["reading"]["lines"], 5_595);
    let mut bytes = b"\x00\x01\x02 foreign\n{\"a\":\n".to_vec();
    bytes.extend_from_slice(&plain);
    bytes.extend_from_slice(b"\xff\xfe\n");
    let told = object(&report("logs", &[&folder.file("foreign", &bytes)], "--json"));
    // None of them looks like MongoDB's.
    assert_eq!(
        (&told["reading"]["lines_unknown"], &told["reading"]["lines_malformed"]),
        (&3.into(), &0.into())
    );
    assert_eq!(told["totals"]["calls"], 4_201);
    // A compressed file that was cut.
    let packed = std::fs::read(fixture(LOG)).unwrap();
    let output = report("logs", &[&folder.file("cut.gz", &packed[..packed.len() / 2])], "--json");
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("all before it has been read"));
    let missing = report("logs", &[Path::new("/nonexistent")], "");
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("/nonexistent"));
}

#[test]
fn a_dump_and_its_json_lines_say_the_same() {
    let folder = Folder::new("profiles");
    let dump = fixture("mongod-4.0-mixed/profile/shop.bson.gz");
    let told = object(&report("profiler", &[&dump], "--json --class all"));
    assert_eq!(told["reading"]["documents"], 3_917);
    assert_eq!(told["totals"]["latency_ns"]["zero"], 3_759);
    let bytes = inflated("mongod-4.0-mixed/profile/shop.bson.gz");
    let (mut rest, mut json) = (bytes.as_slice(), String::new());
    while !rest.is_empty() {
        let length = u32::from_le_bytes(*rest.first_chunk().unwrap()) as usize;
        let document = bson::Document::from_reader(&rest[..length]).unwrap();
        json.push_str(&extended(&bson::Bson::Document(document)));
        json.push('\n');
        rest = &rest[length..];
    }
    let from_json =
        object(&report("profiler", &[&folder.file("json", json.as_bytes())], "--json --class all"));
    assert_eq!(from_json["totals"], told["totals"]);
    assert_eq!(from_json["rows"], told["rows"]);
}

/// Relaxed extended JSON, as mongoexport writes it, of what a profile of 4.0 holds.
fn extended(value: &bson::Bson) -> String {
    use bson::Bson;
    let quoted = |text: &str| serde_json::to_string(text).unwrap();
    match value {
        Bson::Document(document) => {
            let field = |(key, value): (&String, &Bson)| format!("{}:{}", quoted(key), extended(value));
            format!("{{{}}}", document.iter().map(field).collect::<Vec<_>>().join(","))
        }
        Bson::Array(array) => format!("[{}]", array.iter().map(extended).collect::<Vec<_>>().join(",")),
        Bson::String(text) => quoted(text),
        Bson::Int32(number) => number.to_string(),
        Bson::Int64(number) => format!("{{\"$numberLong\":\"{number}\"}}"),
        Bson::Double(number) => serde_json::to_string(number).unwrap(),
        Bson::Boolean(flag) => flag.to_string(),
        Bson::Null => "null".to_owned(),
        Bson::ObjectId(id) => format!("{{\"$oid\":\"{id}\"}}"),
        Bson::DateTime(date) => format!("{{\"$date\":\"{}\"}}", date.try_to_rfc3339_string().unwrap()),
        Bson::Timestamp(time) => {
            format!("{{\"$timestamp\":{{\"t\":{},\"i\":{}}}}}", time.time, time.increment)
        }
        Bson::Binary(_) => "{\"$binary\":{\"base64\":\"QUJD\",\"subType\":\"0\"}}".to_owned(),
        Bson::RegularExpression(regex) => {
            format!(
                "{{\"$regularExpression\":{{\"pattern\":{},\"options\":\"\"}}}}",
                quoted(regex.pattern.as_str())
            )
        }
        Bson::Undefined => "{\"$undefined\":true}".to_owned(),
        other => panic!("{other:?} is not written"),
    }
}

#[test]
fn only_what_was_asked_for_is_shown() {
    let log = fixture(LOG);
    let all = object(&report("logs", &[&log], "--json"));
    let early = object(&report("logs", &[&log], "--json --to 2026-11-21T00:39:45Z"));
    let late = object(&report("logs", &[&log], "--json --from 2026-11-21T00:39:45Z"));
    let calls = |told: &Value| told["totals"]["calls"].as_u64().unwrap();
    assert_eq!(calls(&early) + calls(&late), calls(&all));
    assert!(calls(&early) > 0 && calls(&late) > 0);
    let one = object(&report("logs", &[&log], "--json --filter distinct --limit 1"));
    assert_eq!(one["rows"].as_array().unwrap().len(), 1);
    assert_eq!(one["rows"][0]["command"], "distinct");
    for by in ["namespace", "app", "plan", "order"] {
        let told = object(&report("logs", &[&log], &format!("--json --by {by}")));
        assert_eq!(calls(&told), calls(&all), "{by}");
    }
    let csv = report("logs", &[&log], "--csv");
    assert_eq!(text(&csv.stdout).lines().count(), 1 + all["rows"].as_array().unwrap().len());
    let people = report("logs", &[&log], "--limit 3");
    assert!(text(&people.stdout).contains("COLLSCAN"), "{}", text(&people.stdout));
    let wrong = report("logs", &[&log], "--sort colour");
    assert!(text(&wrong.stderr).contains("there are: time calls"), "{}", text(&wrong.stderr));
}

#[test]
fn a_page_holds_its_data_and_nothing_that_could_end_it() {
    let folder = Folder::new("html");
    let line = r#"{"t":{"$date":"2026-05-01T10:00:00.120+00:00"},"s":"I","c":"COMMAND","id":51803,"ctx":"conn7","msg":"Slow query","attr":{"type":"command","ns":"a.</script><b>","appName":"</script>","command":{"find":"</script><b>","filter":{"</script>":1},"$db":"a"},"durationMillis":7}}"#;
    let path = folder.path("page.html");
    let log = folder.file("log", line.as_bytes());
    let output = report("logs", &[&log], &format!("--html {}", path.display()));
    assert!(!output.stdout.is_empty(), "the report itself is shown too: {output:?}");
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    assert_eq!(page.matches("</script>").count(), 2, "the two that the page itself has");
    assert!(page.contains("default-src 'none'; script-src 'sha256-"), "it asks nothing of the network");
    let data = page.split_once("id=\"data\" type=\"application/json\">").unwrap().1;
    let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    assert_eq!(data["rows"][0]["collection"], "</script><b>");
    assert_eq!(data["points"], serde_json::json!([0, 7_000, 0]));
    // But for its points, the document is what --json writes.
    let told = object(&report("logs", &[&log], "--json"));
    let mut same = data.clone();
    same["points"] = Value::Null;
    same["points_seen"] = Value::Null;
    assert_eq!(same, told);
}

#[test]
fn a_browser_draws_the_page() {
    let browser = ["chromium", "chromium-browser", "google-chrome"];
    let found = browser.into_iter().find(|name| {
        std::process::Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    });
    let Some(browser) = found else {
        println!("skipped: the page is drawn by chromium, which is not installed");
        return;
    };
    let folder = Folder::new("browser");
    let log = fixture(LOG);
    let page = folder.path("report.html");
    let output = report("logs", &[&log], &format!("--html {}", page.display()));
    assert!(output.status.success(), "{output:?}");
    let drawn = std::process::Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.path("profile").display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let drawn = text(&drawn.stdout);
    // Its script ran to its end, and made a line of the table for each row of the digest.
    assert!(drawn.contains("data-ready=\"yes\""), "{:.2000}", drawn);
    assert!(drawn.contains("All 4.20k operations."));
    let rows = object(&report("logs", &[&log], "--json"))["rows"].as_array().unwrap().len();
    assert_eq!(drawn.matches("data-name=\"shape\"").count(), rows);
}

#[test]
fn a_comparison_ends_with_a_code_for_scripts() {
    let folder = Folder::new("compare");
    let log = fixture(LOG);
    let saved = folder.file("saved.json", &report("logs", &[&log], "--json").stdout);
    let compare = |a: &Path, b: &Path, words: &str| {
        let mut command = program(["compare"]);
        command.arg(a).arg(b).args(words.split_whitespace());
        command.output().unwrap()
    };
    let same = compare(&saved, &log, "--json");
    let told = object(&same);
    assert_eq!((&told["kind"], &told["worse"]), (&"comparison".into(), &false.into()));
    assert_eq!((&told["by"], &told["latencies_compared"]), (&"shape".into(), &true.into()));
    assert!(
        told["rows"]
            .as_array()
            .unwrap()
            .iter()
            .all(|row| matches!(row["verdict"].as_str(), Some("same" | "not judged")))
    );
    let wire = object(&compare(&saved, &recording("mongod-4.0-mixed"), "--json --by shape"));
    assert_eq!(wire["latencies_compared"], false);
    // Every find ten times as slow.
    let slower: String = String::from_utf8(inflated(LOG))
        .unwrap()
        .lines()
        .map(|line| match line.strip_suffix("ms") {
            Some(head) if line.contains(" command: distinct ") => format!("{head}0ms\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let worse = compare(&saved, &folder.file("slower", slower.as_bytes()), "--json");
    assert_eq!(worse.status.code(), Some(4));
    let told: Value = serde_json::from_slice(&worse.stdout).unwrap();
    assert_eq!(
        (&told["rows"][0]["verdict"], &told["rows"][0]["command"]),
        (&"slower".into(), &"distinct".into())
    );
    // Wire and log have the same shapes; their clocks differ, so latencies are not judged.
    let wire = compare(&recording("mongod-4.0-mixed"), &log, "--json");
    assert!(text(&wire.stderr).contains("different sources"));
    let told: Value = serde_json::from_slice(&wire.stdout).unwrap();
    let both =
        told["rows"].as_array().unwrap().iter().filter(|row| row["in_a"] == true && row["in_b"] == true);
    assert!(both.count() >= 45);
}

#[test]
fn shape_ids_of_other_rules_are_not_compared() {
    let folder = Folder::new("rules");
    let log = fixture(LOG);
    let saved = String::from_utf8(report("logs", &[&log], "--json").stdout).unwrap();
    let now = format!("\"shape_rules\":{},", sonar_core::shape::RULES_VERSION);
    assert!(saved.contains(&now));
    // As the first versions wrote it.
    let old = folder.file("old.json", saved.replacen(&now, "", 1).as_bytes());
    let same = folder.file("now.json", saved.as_bytes());
    let by_namespace = String::from_utf8(report("logs", &[&log], "--json --by namespace").stdout).unwrap();
    let rows_without_ids = folder.file("namespaces.json", by_namespace.replacen(&now, "", 1).as_bytes());
    let compare = |a: &Path, b: &Path, words: &str| {
        program(["compare"]).arg(a).arg(b).args(words.split_whitespace()).output().unwrap()
    };
    for (a, b) in [(&old, &log), (&log, &old), (&old, &same), (&same, &old)] {
        let refused = compare(a, b, "");
        assert_eq!(refused.status.code(), Some(1));
        let said = text(&refused.stderr);
        assert!(said.contains("old.json") && said.contains("version 1 of the rules"), "{said}");
    }
    for (a, b, words) in [(&old, &old, ""), (&same, &log, ""), (&rows_without_ids, &log, "--by namespace")] {
        assert_eq!(compare(a, b, words).status.code(), Some(0));
    }
    let capture = recording("mongod-4.0-mixed");
    let baseline = |path: &Path| read(&capture, &format!("--baseline {}", path.display()));
    assert_eq!(baseline(&same).status.code(), Some(0));
    let refused = baseline(&old);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("version 1 of the rules"), "{}", text(&refused.stderr));
}

/// A line of 8.0 about an update that took five seconds, and whatever else it says.
fn slow_update(field: &str, client: &str, more: &str) -> String {
    format!(
        r#"{{"t":{{"$date":"2026-05-01T10:00:00.120+00:00"}},"s":"I","c":"COMMAND","id":51803,"svc":"S","ctx":"conn7","msg":"Slow query","attr":{{"type":"command","ns":"shop.orders","command":{{"update":"orders","updates":[{{"q":{{"{field}":1}},"u":{{"$set":{{"a":1}}}},"multi":false,"upsert":false}}],"comment":"for {field}","$db":"shop"}},"nMatched":1,"nModified":1,"remote":"{client}:40000"{more},"durationMillis":5000}}}}
"#
    )
}

#[test]
fn what_operations_waited_for_is_in_the_text_the_order_and_the_page() {
    let folder = Folder::new("waits");
    let log = [
        slow_update("busy", "10.0.0.1", r#","workingMillis":4990,"queues":{"execution":{"totalTimeQueuedMicros":10000}}"#),
        slow_update("late", "10.0.0.2", r#","workingMillis":20,"waitForWriteConcernDurationMillis":4980"#),
        slow_update("far", "10.0.0.2", r#","workingMillis":100,"remoteOpWaitMillis":4900,"sortSpills":3,"sortSpilledBytes":4096"#),
        r#"{"t":{"$date":"2026-05-01T10:00:01.000+00:00"},"s":"I","c":"EXECUTOR","id":6983000,"svc":"S","ctx":"conn7","msg":"Slow network response send time","attr":{"elapsed":{"totalMillis":900,"sendResponseMillis":800}}}
"#
        .to_owned(),
    ]
    .concat();
    let log = folder.file("mongod.log", log.as_bytes());
    let run = |words: &str| {
        let output = program(["logs", "report"]).arg(&log).args(words.split_whitespace()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words}: {output:?}");
        text(&output.stdout).to_owned()
    };
    let shown = run("");
    // 4.98 s and 4.9 s of 15 s; 10 ms in queues are not worth a word.
    for line in [
        "  waited for: write concern 4.98s (33.2%), shards 4.90s (32.7%)\n",
        "  spilled to disk: 3 times, 4.10kB\n",
        "Slow to send: 1 reply in 800ms, the longest in 800ms (last 2026-05-01T10:00:01.000Z)",
        "write concern 99.6%",
        "shards 98.0%",
    ] {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
    for (order, field) in
        [("waits", "late"), ("concern", "late"), ("shards", "far"), ("queued", "busy"), ("spilled", "far")]
    {
        let rows: Value = serde_json::from_str(&run(&format!("--json --sort {order}"))).unwrap();
        let first = rows["rows"][0]["shape"].as_str().unwrap();
        assert!(first.contains(field), "{order}: {first}");
    }
    let json: Value = serde_json::from_str(&run("--json")).unwrap();
    assert_eq!(json["notices"]["slow_replies"]["longest_ms"], 800);
    let page = folder.path("report.html");
    run(&format!("--html {}", page.display()));
    assert!(std::fs::read_to_string(page).unwrap().contains("\"write_concern_us\":[4980000,1]"));
}

#[test]
fn rows_by_client_of_a_text_log() {
    let folder = Folder::new("callers-of-text");
    let line = |connection: &str, message: &str| {
        format!("2019-05-01T10:00:00.000+0000 I  NETWORK  [{connection}] {message}\n")
    };
    let find = |connection| {
        line(connection, "command shop.carts command: find { find: \"carts\", filter: { user: 1.0 }, $db: \"shop\" } planSummary: COLLSCAN keysExamined:0 docsExamined:9 numYields:0 nreturned:1 reslen:90 protocol:op_msg 120ms").replace("NETWORK ", "COMMAND ")
    };
    let accepted = |client: &str, number: u32| {
        line("listener", &format!("connection accepted from {client} #{number} (2 connections now open)"))
    };
    let log = [
        accepted("10.0.0.1:40000", 7),
        accepted("[fd00::2]:40000", 8),
        find("conn7"),
        find("conn8"),
        find("conn7"),
        line("conn7", "end connection 10.0.0.1:40000 (1 connection now open)"),
        // The number is that of another connection only after a restart, which the log says.
        find("conn7"),
        line("initandlisten", "MongoDB starting : pid=9 port=27017 dbpath=/data 64-bit host=db1")
            .replace("NETWORK ", "CONTROL "),
        find("conn8"),
    ];
    let log = folder.file("mongod.log", log.concat().as_bytes());
    let output = program(["logs", "report"])
        .arg(&log)
        .args(["--by", "client", "--sort", "calls", "--json"])
        .output()
        .unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let row = |row: &Value| (row["client"].as_str().unwrap().to_owned(), row["calls"].as_u64().unwrap());
    let mut rows: Vec<_> = json["rows"].as_array().unwrap().iter().map(row).collect();
    rows.sort();
    let row = |client: &str, calls| (client.to_owned(), calls);
    assert_eq!(rows, [row("", 2), row("10.0.0.1", 2), row("fd00::2", 1)]);
}

#[test]
fn rows_by_client_user_and_comment() {
    let folder = Folder::new("callers");
    let user = r#"{"t":{"$date":"2026-05-01T10:00:00.000+00:00"},"s":"I","c":"ACCESS","id":5286306,"ctx":"conn7","msg":"Successfully authenticated","attr":{"client":"10.0.0.1:40000","user":"alice","db":"admin"}}
"#;
    let lines = [
        slow_update("a", "10.0.0.1", ""),
        slow_update("b", "10.0.0.2", ""),
        slow_update("c", "10.0.0.2", ""),
    ];
    let log = folder.file("mongod.log", [user, &lines.concat()].concat().as_bytes());
    let run =
        |words: &str| program(["logs", "report"]).arg(&log).args(words.split_whitespace()).output().unwrap();
    let rows = |words: &str, name: &str| {
        let output = run(&format!("--json --sort calls {words}"));
        let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        let row = |row: &Value| (row[name].as_str().unwrap().to_owned(), row["calls"].as_u64().unwrap());
        json["rows"].as_array().unwrap().iter().map(row).collect::<Vec<_>>()
    };
    let owned =
        |rows: &[(&str, u64)]| rows.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<Vec<_>>();
    assert_eq!(rows("--by client", "client"), owned(&[("10.0.0.2", 2), ("10.0.0.1", 1)]));
    assert_eq!(rows("--by user --show-values", "user"), owned(&[("alice@admin", 3)]));
    let comments = rows("--by comment --show-values", "comment");
    assert_eq!(comments, owned(&[("for a", 1), ("for b", 1), ("for c", 1)]));
    // Names and comments are values: they are shown only if asked for, and are in no other report.
    for by in ["user", "comment"] {
        let refused = run(&format!("--by {by}"));
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains("--show-values"), "{refused:?}");
    }
    for words in ["--json", "--csv", "--json --by client"] {
        let shown = text(&run(words).stdout).to_owned();
        assert!(!shown.contains("alice") && !shown.contains("for a"), "{words}: {shown}");
    }
    let shown = text(&run("--by client").stdout).to_owned();
    assert!(shown.contains("10.0.0.2"), "{shown}");
    // What was saved is compared.
    let saved = folder.file("saved.json", &run("--json --by client").stdout);
    let compared = program(["compare", "--by", "client", "--json"]).args([&saved, &log]).output().unwrap();
    let compared: Value = serde_json::from_slice(&compared.stdout).unwrap_or_else(|_| panic!("{compared:?}"));
    assert_eq!((&compared["changed"], &compared["not_judged"]), (&0.into(), &2.into()), "{compared}");
}

#[test]
fn rows_by_user_and_comment_of_a_profile() {
    let folder = Folder::new("callers-of-a-profile");
    let find = |(user, comment): (&str, &str), at: u32| {
        format!(
            r#"{{"op":"query","ns":"shop.carts","command":{{"find":"carts","filter":{{"a":1}},"comment":{comment},"$db":"shop"}},"docsExamined":9,"nreturned":1,"millis":7,"ts":{{"$date":"2026-05-01T10:00:0{at}.120Z"}},"client":"10.0.0.{at}","user":"{user}","allUsers":[{{"user":"{user}","db":"admin"}}]}}
"#
        )
    };
    let calls = [
        ("alice@admin", "\"nightly\""),
        ("bob@admin", "\"nightly\""),
        ("alice@admin", "42"),
        ("", "{\"a\":1}"),
    ];
    let documents: String = calls.into_iter().zip(1..).map(|(caller, at)| find(caller, at)).collect();
    let file = folder.file("profile.json", documents.as_bytes());
    let rows = |by: &str| {
        let words = ["profiler", "report", "--json", "--show-values", "--by", by];
        let told = object(&program(words).arg(&file).output().unwrap());
        let row = |row: &Value| (row[by].as_str().unwrap().to_owned(), row["calls"].as_u64().unwrap());
        let mut rows: Vec<_> = told["rows"].as_array().unwrap().iter().map(row).collect();
        rows.sort();
        rows
    };
    let owned =
        |rows: &[(&str, u64)]| rows.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<Vec<_>>();
    assert_eq!(rows("user"), owned(&[("", 1), ("alice@admin", 2), ("bob@admin", 1)]));
    // A document is no name of a kind of call.
    assert_eq!(rows("comment"), owned(&[("", 1), ("42", 1), ("nightly", 2)]));
    for words in ["--by user", "--by comment"] {
        let refused =
            program(["profiler", "report"]).arg(&file).args(words.split_whitespace()).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains("--show-values"), "{refused:?}");
    }
    let shown = program(["profiler", "report", "--json"]).arg(&file).output().unwrap();
    assert!(!text(&shown.stdout).contains("alice") && !text(&shown.stdout).contains("nightly"));
}

/// A capture, a profile and a log of the same minutes.
fn of_minutes(file: &str) -> std::path::PathBuf {
    fixture(&format!("mongod-4.4-minutes/{file}"))
}

#[test]
fn no_operation_counts_twice_whatever_the_rows_are() {
    let files = [of_minutes("wire.pcap.gz"), of_minutes("profile.bson.gz")];
    for by in ["shape", "namespace", "app", "plan", "client"] {
        let mut command = program(["report", "--json", "--by", by]);
        let told = object(&command.args(&files).output().unwrap());
        assert_eq!(told["totals"]["calls"], 999, "{by}");
        let notes = told["notes"].to_string();
        let is_beside = notes.contains("in no total: wire may have seen the same ones in other rows");
        assert_eq!(is_beside, matches!(by, "app" | "plan"), "{by}: {notes}");
    }
    let text = program(["report", "--by", "app"]).args(&files).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("application unknown (connected before the capture)"), "{text}");
}

#[test]
fn what_a_log_need_not_hold_is_not_gone() {
    let files = [of_minutes("wire.pcap.gz"), of_minutes("mongod.log.gz")];
    for turned in [false, true] {
        let mut command = program(["compare"]);
        let files: Vec<_> = if turned { files.iter().rev().collect() } else { files.iter().collect() };
        let text = String::from_utf8(command.args(files).output().unwrap().stdout).unwrap();
        for verdict in ["gone", "new", "more calls", "fewer calls"] {
            assert!(!text.lines().any(|line| line.starts_with(verdict)), "{verdict}: {text}");
        }
        assert!(text.contains("counted by different sources"), "{text}");
    }
}

#[test]
fn one_source_is_not_of_different_times() {
    let folder = Folder::new("one-instant");
    let line = r#"{"t":{"$date":"2026-05-01T10:00:00.120+00:00"},"s":"I","c":"COMMAND","id":51803,"ctx":"conn7","msg":"Slow query","attr":{"type":"command","ns":"shop.orders","command":{"find":"orders","filter":{"user":1},"$db":"shop"},"planSummary":"COLLSCAN","keysExamined":0,"docsExamined":9000,"nreturned":3,"durationMillis":133}}"#;
    let log = folder.file("mongod.log", format!("{line}\n{line}\n").as_bytes());
    let told = object(&program(["report", "--json"]).arg(&log).output().unwrap());
    assert_eq!((&told["totals"]["calls"], &told["notes"]), (&2.into(), &serde_json::json!([])));
}
