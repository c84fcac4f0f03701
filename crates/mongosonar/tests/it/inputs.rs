//! Inputs that are pipes, given twice, cut, interrupted, or hold nothing that was asked for.

use std::process::{Command, Output, Stdio};

use crate::support::*;
use serde_json::Value;

const LOG: &str = "mongod-4.0-mixed/mongod.log.gz";

/// Runs the program in bash, whose `<(…)` makes pipes. `W` and `L` in `words` stand for a capture and its log, both
/// compressed.
fn in_bash(words: &str) -> Output {
    let script = format!("exec {} {words}", env!("CARGO_BIN_EXE_mongosonar"));
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).env("HOME", "/nonexistent").env("XDG_CONFIG_HOME", "/nonexistent");
    bash.env("W", recording("mongod-4.0-mixed")).env("L", fixture(LOG)).stdin(Stdio::null());
    bash.output().unwrap()
}

/// The JSON object that a command wrote, without the names of its inputs.
fn object(words: &str) -> Value {
    let output = in_bash(words);
    let mut object: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    object.as_object_mut().unwrap().remove("about");
    for source in object["sources"].as_array_mut().into_iter().flatten() {
        source["files"] = Value::Null;
    }
    object
}

#[test]
fn a_pipe_gives_the_report_of_the_file() {
    let of_files = object("report --json $W $L");
    assert!(of_files["sources"][1]["totals"]["calls"].as_u64().unwrap() > 4_000, "{of_files}");
    for words in ["$W <(zcat $L)", "<(cat $W) <(cat $L)", "<(zcat $W) $L", "$W - < <(cat $L)"] {
        assert!(object(&format!("report --json {words}")) == of_files, "{words}");
    }
}

#[test]
fn pipes_are_compared_whole() {
    for words in ["<(zcat $L) $L", "<(cat $W) <(zcat $W)", "- $L < <(zcat $L)"] {
        let output = in_bash(&format!("compare {words}"));
        assert_eq!(output.status.code(), Some(0), "{words}: {output:?}");
    }
}

#[test]
fn a_baseline_may_be_a_pipe() {
    let output = in_bash("queries --read $W --baseline <(zcat $L)");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).len() > 200, "{output:?}");
}

#[test]
fn what_a_limited_report_leaves_out_is_neither_new_nor_gone() {
    let folder = Folder::new("limited");
    for limit in ["--limit 2", "--filter people"] {
        let saved = in_bash(&format!("logs report $L --json {limit}")).stdout;
        let saved = folder.file("limited.json", &saved);
        let saved = saved.display();
        for sides in [format!("{saved} $L"), format!("$L {saved}")] {
            let output = in_bash(&format!("compare {sides} --json"));
            assert_eq!(output.status.code(), Some(0), "{limit}, {sides}: {output:?}");
            let compared = &lines(&output)[0];
            assert!(compared["not_compared"].as_u64().unwrap() > 10, "{compared}");
            assert_eq!(compared["changed"], 0, "{compared}");
            assert!(compared["unchanged"].as_u64().unwrap() > 0, "{compared}");
        }
    }
}

#[test]
fn a_text_log_that_ends_inside_a_line_is_cut() {
    let folder = Folder::new("cut-line");
    let whole = inflated(LOG);
    let begin = whole.windows(11).position(|text| text == b"planSummary").unwrap();
    for (end, is_cut) in [(begin, true), (begin + 3, true), (whole.len(), false)] {
        let log = folder.file("mongod.log", &whole[..end]);
        let output = program(["logs", "report", "--json"]).arg(&log).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let expected = if is_cut { (3, serde_json::json!(1)) } else { (0, Value::Null) };
        assert_eq!((output.status.code().unwrap(), report["lost"]["lines_unfinished"].clone()), expected);
        assert_eq!(text(&output.stderr).contains("ends inside a line"), is_cut, "{output:?}");
    }
    // A line that says how long its operation took is whole without a line feed, and so is one of an event.
    for last in [&b"ms\n"[..], b"now open)\n"] {
        let end = whole.windows(last.len()).position(|text| text == last).unwrap() + last.len() - 1;
        let log = folder.file("mongod.log", &whole[..end]);
        assert_eq!(program(["logs", "report"]).arg(&log).output().unwrap().status.code(), Some(0));
    }
}

#[test]
fn an_unknown_time_is_shown_as_unknown_in_every_output() {
    let folder = Folder::new("undated");
    let document =
        r#"{"op":"query","ns":"a.b","command":{"find":"b","$db":"a"},"docsExamined":9,"millis":7}"#;
    let file = folder.file("profile.json", document.as_bytes());
    let run = |words: &str| {
        let output =
            program(["profiler", "report"]).arg(&file).args(words.split_whitespace()).output().unwrap();
        text(&output.stdout).to_owned()
    };
    let shown = run("");
    assert!(shown.contains("\n1 operation, times unknown\n"), "{shown}");
    assert!(shown.contains("NOT IN FULL: operations_undated 1") && !shown.contains("1970"), "{shown}");
    let json: Value = serde_json::from_str(&run("--json")).unwrap();
    assert_eq!((&json["totals"]["first_seen"], &json["rows"][0]["last_seen"]), (&Value::Null, &Value::Null));
    assert_eq!(
        (&json["about"]["start_ns"], &json["lost"]["operations_undated"]),
        (&Value::Null, &serde_json::json!(1))
    );
    let csv = run("--csv");
    assert!(csv.lines().nth(1).unwrap().ends_with(",,"), "{csv}");
    // A range of time has none whose time is unknown.
    for range in ["--from 2026-01-01", "--to 2026-01-01"] {
        let json: Value = serde_json::from_str(&run(&format!("--json {range}"))).unwrap();
        assert_eq!(
            (&json["totals"]["calls"], &json["reading"]["entries_outside"]),
            (&serde_json::json!(0), &serde_json::json!(1)),
            "{range}: {json}"
        );
    }
}

#[test]
fn a_cut_capture_is_a_loss_in_every_output() {
    let folder = Folder::new("cut-capture");
    let whole = unpacked("mongod-4.0-mixed");
    let cut = folder.file("cut.pcap", &whole[..whole.len() / 2]);
    let summary = read(&cut, "");
    assert_eq!(summary.status.code(), Some(3));
    assert!(
        text(&summary.stdout).contains("capture files that are cut or damaged: 1"),
        "{}",
        text(&summary.stdout)
    );
    assert!(!text(&summary.stdout).contains("nothing lost"));
    for words in ["--json", "--json --interval 1s"] {
        let output = read(&cut, words);
        let last = text(&output.stdout).lines().next_back().unwrap();
        let last: Value = serde_json::from_str(last).unwrap();
        assert_eq!(last["coverage"]["files_damaged"], 1, "{words}: {last}");
    }
    let digest: Value = serde_json::from_slice(&read(&cut, "--digest --json").stdout).unwrap();
    assert_eq!(digest["lost"]["files_damaged"], 1);
    assert!(digest["notes"][0].as_str().unwrap().starts_with("NOT IN FULL: "), "{}", digest["notes"]);
}

#[test]
fn a_report_of_one_source_leaves_out_what_the_command_of_that_source_leaves_out() {
    let profile = fixture("mongod-4.0-mixed/profile/shop.bson.gz");
    let profile = profile.display();
    for (one, file) in [("logs report", "$L".to_owned()), ("profiler report", profile.to_string())] {
        let (alone, joined) =
            (object(&format!("{one} --json {file}")), object(&format!("report --json {file}")));
        assert!(!alone["hidden"].as_array().unwrap().is_empty(), "{one}");
        assert_eq!(alone["hidden"], joined["hidden"], "{one}");
    }
}

#[test]
fn a_file_that_is_named_twice_is_refused() {
    let folder = Folder::new("twice");
    let log = folder.file("mongod.log", &inflated(LOG));
    std::os::unix::fs::symlink(&log, folder.path("link.log")).unwrap();
    let (log, link) = (log.display(), folder.path("link.log"));
    let link = link.display();
    let bson = fixture("mongod-4.0-mixed/profile/shop.bson.gz");
    for words in [
        format!("logs report {log} {log}"),
        format!("logs report {log} {link}"),
        "logs report - - < $L".to_owned(),
        format!("report $W {log} {link}"),
        "report $W $W".to_owned(),
        format!("profiler report {0} {0}", bson.display()),
    ] {
        let output = in_bash(&words);
        assert_eq!(output.status.code(), Some(2), "{words}: {output:?}");
        assert!(text(&output.stderr).contains("count twice"), "{words}: {output:?}");
    }
    assert_eq!(in_bash(&format!("compare {log} {link}")).status.code(), Some(0));
}

/// Sends a signal to the program, run on these words, once it has begun to read `file`.
fn interrupted(words: &str, file: &std::path::Path, name: &str) -> Output {
    let child = program(words.split_whitespace()).spawn().unwrap();
    let descriptors = format!("/proc/{}/fd", child.id());
    let is_reading = || {
        let open = std::fs::read_dir(&descriptors).into_iter().flatten().flatten();
        open.filter_map(|entry| {
            let is_file = std::fs::read_link(entry.path()).is_ok_and(|target| target == file);
            let info = format!("/proc/{}/fdinfo/{}", child.id(), entry.file_name().to_str()?);
            let info = std::fs::read_to_string(info).ok().filter(|_| is_file)?;
            info.lines().next()?.strip_prefix("pos:")?.trim().parse::<u64>().ok()
        })
        .any(|position| position > 1 << 20)
    };
    let begin = std::time::Instant::now();
    while !is_reading() {
        assert!(begin.elapsed().as_secs() < 60, "{words}: never read {}", file.display());
        // span: between two looks
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    signal(&child, name);
    child.wait_with_output().unwrap()
}

#[test]
fn an_interrupted_report_is_not_in_full() {
    let folder = Folder::new("interrupted");
    let log = inflated(LOG);
    let large = folder.file("large.log", &log);
    // A hole of a tebibyte, which nothing reads to its end: a line without an end.
    std::fs::OpenOptions::new().append(true).open(&large).unwrap().set_len(1 << 40).unwrap();
    let page = folder.path("page.html");
    for (name, code, what) in [("INT", 130, "Ctrl-C"), ("TERM", 143, "SIGTERM")] {
        for words in ["logs report --html @page @", "logs report --json @", "report --json @"] {
            let words = words.replace("@page", page.to_str().unwrap()).replace('@', large.to_str().unwrap());
            let output = interrupted(&words, &large, name);
            assert_eq!(output.status.code(), Some(code), "{words}: {output:?}");
            let shown = text(&output.stdout);
            let note = format!("NOT IN FULL: {}: stopped by {what} after ", large.display());
            assert!(shown.contains(&note) && shown.contains(" %)"), "{words}: {shown}");
            assert!(shown.contains("files_stopped"), "{words}: {shown}");
            assert!(!shown.contains("all of it was read"), "{words}: {shown}");
        }
        assert!(std::fs::read_to_string(&page).unwrap().contains(&format!("stopped by {what} after ")));
        std::fs::remove_file(&page).unwrap();
    }
    // There is no result without all of it.
    let wire = recording("mongod-4.0-mixed");
    for words in [
        format!("compare {0} {0}", large.display()),
        format!("queries --read {} --baseline {}", wire.display(), large.display()),
    ] {
        let output = interrupted(&words, &large, "INT");
        assert_eq!(output.status.code(), Some(130), "{words}: {output:?}");
        assert_eq!(text(&output.stdout), "", "{words}");
    }
}

#[test]
fn an_interrupted_capture_is_not_in_full() {
    let folder = Folder::new("interrupted-capture");
    let large = folder.file("large.pcap", &unpacked("mongod-4.0-mixed"));
    // A hole of a tebibyte, which nothing reads to its end: packets without bytes.
    std::fs::OpenOptions::new().append(true).open(&large).unwrap().set_len(1 << 40).unwrap();
    let output = interrupted(&format!("queries --json --read {}", large.display()), &large, "INT");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let summary: Value = serde_json::from_str(text(&output.stdout).lines().next_back().unwrap()).unwrap();
    assert_eq!(summary["coverage"]["files_stopped"], 1, "{summary}");
    assert!(text(&output.stderr).contains("stopped by Ctrl-C after "), "{output:?}");
    let note = summary["notes"][0].as_str().unwrap();
    assert!(note.starts_with("NOT IN FULL: stopped by Ctrl-C after "), "{note}");
    // The text states it above the rows.
    let output = interrupted(&format!("queries --read {}", large.display()), &large, "INT");
    let shown = text(&output.stdout);
    let (note, rows) = (shown.find("NOT IN FULL: stopped by Ctrl-C after "), shown.find("\n   calls "));
    assert!(note.is_some() && note < rows, "{shown}");
}

#[test]
fn a_report_of_nothing_states_why() {
    let shown = |words: &str| {
        let output = in_bash(&format!("logs report $L {words}"));
        assert_eq!(output.status.code(), Some(0), "{words}: {output:?}");
        text(&output.stdout).to_owned()
    };
    let filtered = shown("--filter zzz");
    assert!(filtered.contains("\nNo row contains \"zzz\".\n"), "{filtered}");
    assert!(!filtered.contains("calls  time"), "{filtered}");
    let covers = "; the log covers 2026-11-21T00:39:39";
    for (words, within) in [
        ("--from 2027-01-01", "no operation at 2027-01-01T00:00:00"),
        ("--to 2026-01-01T00:00:00Z", "no operation before 2026-01-01T00:00:00"),
        ("--from 2026-11-20 --to 2026-11-21", "no operation between 2026-11-20T00:00:00"),
    ] {
        let shown = shown(words);
        assert!(shown.contains(within) && shown.contains(covers), "{words}: {shown}");
    }
    let report = object("logs report --json $L --from 2027-01-01");
    assert_eq!(report["reading"]["lines_outside"], report["reading"]["lines"], "{}", report["reading"]);
    assert_eq!(
        (&report["reading"]["lines_other"], &report["reading"]["entries_outside"]),
        (&0.into(), &0.into())
    );
    for command in ["logs report $L", "report $L"] {
        for words in [
            "--from 2026-11-21T01:00 --to 2026-11-21T00:00",
            "--from 2026-11-21T01:00:00Z --to 2026-11-21T02:30:00+02:00",
        ] {
            let output = in_bash(&format!("{command} {words}"));
            assert_eq!(output.status.code(), Some(2), "{words}: {output:?}");
            assert!(text(&output.stderr).contains("--to must be later than --from"), "{output:?}");
        }
    }
}

/// Two lines of logs, of 4.4 and of 4.2.
pub const LINES: [&str; 2] = [
    r#"{"t":{"$date":"2026-05-01T10:00:00.120+00:00"},"s":"I","c":"COMMAND","id":51803,"ctx":"conn7","msg":"Slow query","attr":{"type":"command","ns":"shop.orders","command":{"find":"orders","filter":{"st":1,"who":"x\"y"},"$db":"shop"},"planSummary":"COLLSCAN","keysExamined":0,"docsExamined":9000,"nreturned":3,"durationMillis":131}}"#,
    r#"2026-05-01T10:00:01.450+0000 I  COMMAND  [conn7] command shop.carts command: find { find: "carts", filter: { a: 1 }, $db: "shop" } planSummary: COLLSCAN keysExamined:0 docsExamined:10 numYields:0 nreturned:1 reslen:100 locks:{} protocol:op_msg 150ms"#,
];

/// A file in an archive, with the sum of its head.
pub fn archived(name: &str, content: &[u8]) -> Vec<u8> {
    let mut block = vec![0u8; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..108].copy_from_slice(b"0000644\0");
    block[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
    block[148..156].copy_from_slice(b"        ");
    block[156] = b'0';
    block[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block.extend_from_slice(content);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

#[test]
fn logs_are_read_wherever_they_were_kept() {
    let folder = Folder::new("kept");
    let [json, plain] = LINES;
    let quoted = |line: &str| Value::from(line).to_string();
    let cell = |line: &str| format!("\"{}\"", line.replace('"', "\"\""));
    let single = |line: &str| format!("'{}'", line.replace('\\', "\\\\").replace('\'', "\\'"));
    let get_log = serde_json::json!({"totalLinesWritten": 2, "log": LINES, "ok": 1});
    let entries =
        serde_json::json!([{"insertId": "a", "textPayload": json}, {"insertId": "b", "textPayload": plain}]);
    let tar = [
        archived("var/log/README", b"some text"),
        archived("var/log/mongod.log.1", json.as_bytes()),
        archived("var/log/mongod.log", format!("{plain}\n").as_bytes()),
        vec![0; 1_024],
    ]
    .concat();
    let files: Vec<(&str, Vec<u8>)> = vec![
        ("plain", LINES.join("\n").into_bytes()),
        ("getLog", get_log.to_string().into_bytes()),
        ("getLog-pretty", serde_json::to_vec_pretty(&get_log).unwrap()),
        (
            "getLog-mongosh",
            format!(
                "{{\n  totalLinesWritten: 2,\n  log: [\n    {},\n    {}\n  ],\n  ok: 1\n}}\n",
                single(json),
                single(plain)
            )
            .into_bytes(),
        ),
        ("array", format!("[{},{}]", quoted(json), quoted(plain)).into_bytes()),
        ("array-pretty", format!("[\n  {},\n  {}\n]\n", quoted(json), quoted(plain)).into_bytes()),
        ("gcp", entries.to_string().into_bytes()),
        ("gcp-pretty", serde_json::to_vec_pretty(&entries).unwrap()),
        (
            "cloudwatch.csv",
            format!("timestamp,message\n1777629600120,{}\n1777629601450,{}\n", cell(json), cell(plain))
                .into_bytes(),
        ),
        (
            "insights.csv",
            format!(
                "@timestamp,@message\n2026-05-01 10:00:00.120,{}\n2026-05-01 10:00:01.450,{}",
                cell(json),
                cell(plain)
            )
            .into_bytes(),
        ),
        (
            "filebeat",
            format!(
                "{}\n{}\n",
                serde_json::json!({"@timestamp": "x", "message": json}),
                serde_json::json!({"@timestamp": "x", "message": plain})
            )
            .into_bytes(),
        ),
        ("logs.tar", tar.clone()),
        ("logs.tar.zst", zstd::encode_all(tar.as_slice(), 1).unwrap()),
    ];
    for (name, content) in files {
        let file = folder.file(name, &content);
        for command in ["logs", "report"] {
            let mut run = program([command]);
            if command == "logs" {
                run.arg("report");
            }
            let output = run.arg(&file).arg("--json").output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{name}: {output:?}");
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            let mut seen: Vec<_> = report["rows"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| (row["collection"].as_str().unwrap().to_owned(), row["calls"].as_u64().unwrap()))
                .collect();
            seen.sort();
            assert_eq!(seen, [("carts".to_owned(), 1), ("orders".to_owned(), 1)], "{name}");
        }
    }
    // A file that ends inside a document is cut.
    let cut = get_log.to_string();
    let both = format!("{}{}", get_log, &cut[..cut.len() - 20]);
    let file = folder.file("cut", both.as_bytes());
    assert_eq!(program(["logs", "report"]).arg(&file).output().unwrap().status.code(), Some(3));
}

#[test]
fn what_is_not_read_is_named_with_the_way_to_read_it() {
    let folder = Folder::new("not-read");
    let diagnostic = inflated_file("ftdc/day/metrics.2026-11-21T21-22-47Z-00000");
    let tar = [archived("diagnostic.data/metrics.2026-11-21T21-22-47Z-00000", &diagnostic), vec![0; 1_024]]
        .concat();
    for (content, expected) in [
        (&b"PK\x03\x04\x14\0\0\0"[..], "unpack it first"),
        (b"\xfd7zXZ\0\0\x04", "unpack it first"),
        (b"LPKSHHRH\0\0\0\0\0\0\0\0", "journalctl --file FILE"),
        (br#"{"atype":"authenticate","ts":{"$date":"2026-05-01T10:00:00.120Z"},"param":{"user":"a"},"result":0}"#, "an audit log"),
    ] {
        let file = folder.file("some", content);
        let output = program(["logs", "report"]).arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{expected}: {output:?}");
        assert!(text(&output.stderr).contains(expected), "{expected}: {output:?}");
    }
    let of = |path: &std::path::Path| {
        let output = program(["ftdc", "report", "--json"]).arg(path).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))["figures"]
            .clone()
    };
    let archive = folder.file("diagnostic.tar", &tar);
    assert_eq!(of(&archive), of(&fixture("ftdc/day/metrics.2026-11-21T21-22-47Z-00000")));
}

#[test]
fn what_looks_like_something_else_is_read_as_what_it_is() {
    let folder = Folder::new("looks-like");
    let calls = |name: &str, content: &str, command: &str| {
        let file = folder.file(name, content.as_bytes());
        let output = program(command.split(' ')).args(["report", "--json"]).arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}: {output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["totals"]["calls"].clone()
    };
    let [json, plain] = LINES;
    // A list of log lines as objects, as `jq -s` writes it.
    assert_eq!(calls("objects", &format!("[{json},\n{json}]"), "logs"), 2);
    // Values called like the fields of other programs' objects, and like a column.
    let document = r#"{"op":"query","ns":"shop.log","command":{"find":"log","filter":{"message":"x","msg":"y"},"$db":"shop"},"millis":131,"ts":{"$date":"2026-05-01T10:00:00.120Z"},"client":"10.0.0.1"}"#;
    assert_eq!(calls("profile", &format!("[{document},{document}]"), "profiler"), 2);
    let asks = r#"{"op":"command","ns":"shop.c","command":{"find":"c","filter":{"serverStatus":1,"start":"x","data":1},"$db":"shop"},"millis":131,"ts":{"$date":"2026-05-01T10:00:00.120Z"}}"#;
    assert_eq!(calls("asks", asks, "profiler"), 1);
    let column = json.replace(r#""st":1"#, r#""st":{"$in":["a","message","b"]}"#);
    assert_eq!(calls("column", &format!("{column}\n{json}\n"), "logs"), 2);
    let syslog =
        plain.replace("2026-05-01T10:00:01.450+0000 I  COMMAND  ", "May  1 10:00:01 db1 mongod.27017[7]: ");
    let named = syslog.replace("carts", "log").replace("a: 1", "message: 1");
    assert_eq!(calls("syslog", &format!("{syslog}\n{named}\n"), "logs"), 2);
    // A value with a line that ends as an operation does.
    let long = plain.replace("a: 1", "a: \"two\nitems\nin it\"");
    assert_eq!(calls("items", &format!("{long}\n{plain}\n"), "logs"), 2);
    // A quotation mark in the middle of a field is one of its characters.
    let table = format!("tag,message\n5\" disk,\"{0}\"\nb,\"{0}\"\n", json.replace('"', "\"\""));
    assert_eq!(calls("table.csv", &table, "logs"), 2);
}

#[test]
fn an_archive_that_is_cut_or_hostile_is_named() {
    let folder = Folder::new("archives");
    let log = archived("mongod.log", LINES[0].as_bytes());
    let mut other = archived("README", &[b'x'; 2_000]);
    other.truncate(1_000);
    let cut = [log.clone(), other].concat();
    // A size of 2^64 - 1 in GNU's form, with the sum of the head made right.
    let mut huge = archived("mongod.log", b"");
    huge[124..136].copy_from_slice(&[0x80, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
    huge[148..156].fill(b' ');
    let sum: u32 = huge[..512].iter().map(|byte| u32::from(*byte)).sum();
    huge[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    for (content, words) in [(cut, "ends inside a file"), ([log, huge].concat(), "damaged")] {
        let file = folder.file("some.tar", &content);
        let output = program(["logs", "report"]).arg(&file).output().unwrap();
        assert_ne!(output.status.code(), Some(0), "{output:?}");
        assert!(text(&output.stderr).contains(words), "{words}: {output:?}");
    }
}

fn inflated_file(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name)).unwrap()
}

#[test]
fn saved_output_of_get_diagnostic_data_is_read() {
    let folder = Folder::new("saved-sample");
    let sample = |second: u32, queries: u32| {
        format!(
            "{{ data: {{ start: ISODate('2026-05-01T10:00:{second:02}.000Z'), serverStatus: {{ pid: Long('7'), uptimeMillis: Long('{second}000'), connections: {{ current: 12, available: 100 }}, opcounters: {{ query: {queries} }}, oplog: {{ latestOptime: Timestamp({{ t: 5, i: 1 }}), earliestOptime: Timestamp({{ t: 5, i: 1 }}) }} }}, end: ISODate('2026-05-01T10:00:{second:02}.010Z') }}, ok: 1 }}\n"
        )
    };
    let all: String = (0..5).map(|second| sample(second, 100 * second)).collect();
    let file = folder.file("samples.txt", all.as_bytes());
    let output = program(["ftdc", "report", "--json"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["samples"], 5);
    let figures = report["figures"].as_array().unwrap();
    let figure = |id: &str| figures.iter().find(|figure| figure["id"] == id);
    // 100 queries in each second.
    let median = &figure("operations.queries").unwrap()["p50"];
    assert_eq!(median.as_f64(), Some(100.0), "{}", figure("operations.queries").unwrap());
    assert!(figure("replication.oplog_window").is_none(), "a text has no times of the oplog");
    // As JSON.stringify of mongosh writes it, in an array of outputs.
    let stringified = |second: u32| {
        format!(
            r#"{{"data":{{"start":"2026-05-01T10:00:{second:02}.000Z","serverStatus":{{"pid":{{"low":7,"high":0,"unsigned":false}},"connections":{{"current":12}},"opcounters":{{"query":{{"low":{},"high":0,"unsigned":false}}}}}},"end":"2026-05-01T10:00:{second:02}.010Z"}},"ok":1}}"#,
            100 * second
        )
    };
    let all: Vec<String> = (0..5).map(stringified).collect();
    let array = folder.file("samples.json", format!("[{}]", all.join(",\n")).as_bytes());
    let output = program(["ftdc", "report", "--json"]).arg(&array).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let figures = report["figures"].as_array().unwrap();
    let median = &figures.iter().find(|figure| figure["id"] == "operations.queries").unwrap()["p50"];
    assert_eq!((report["samples"].as_u64(), median.as_f64()), (Some(5), Some(100.0)));
    for file in [&file, &array] {
        let mut export = program(["ftdc", "export", "--csv", "--metric", "*.opcounters.query"]);
        let export = export.arg(file).output().unwrap();
        assert_eq!(export.status.code(), Some(0), "{export:?}");
        let lines: Vec<&str> = text(&export.stdout).lines().collect();
        assert_eq!(lines[0], "time_ms,serverStatus.opcounters.query");
        // From `date -d 2026-05-01T10:00:04Z +%s`.
        assert_eq!((lines.len(), lines[5]), (6, "1777629604000,400"));
    }
}
