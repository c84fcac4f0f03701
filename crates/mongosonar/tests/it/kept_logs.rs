//! Logs as other programs keep them: in tables, with colours, in parts, and with their time in another place.

use serde_json::{Value, json};

use crate::inputs::LINES;
use crate::lookalikes::{calls, ran};

/// 2026-05-01T10:00:00.120Z, by `date -d`.
const AT_NS: u64 = 1_777_629_600_120_000_000;

/// The second one of the lines, as servers of 4.2 and earlier send it to syslog.
fn sent() -> String {
    format!("[conn7] {}", LINES[1].split_once("[conn7] ").unwrap().1)
}

fn gzip(content: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Each file has two operations, and nothing that could not be read.
fn assert_two(files: &[(String, Vec<u8>)]) {
    for (name, content) in files {
        for (end, content) in
            [("", content.clone()), (" with Windows' line ends", with_windows_ends(content))]
        {
            let (report, count) = calls("logs report", &content);
            assert_eq!(count, 2, "{name}{end}: {}", report["reading"]);
            for lost in ["lines_malformed", "lines_unknown", "lines_unfinished", "operations_partial"] {
                assert!(
                    report["reading"][lost].as_u64().unwrap_or(0) == 0,
                    "{name}{end}: {}",
                    report["reading"]
                );
            }
        }
    }
}

/// A text with the line ends of Windows; binary content as it is.
fn with_windows_ends(content: &[u8]) -> Vec<u8> {
    if content.contains(&0) || content.starts_with(&[0x1f, 0x8b]) {
        return content.to_vec();
    }
    String::from_utf8(content.to_vec()).unwrap().replace('\n', "\r\n").into_bytes()
}

fn named(name: &str, content: String) -> (String, Vec<u8>) {
    (name.to_owned(), content.into_bytes())
}

#[test]
fn tables_are_read_whatever_separates_their_columns() {
    let [json, plain] = LINES;
    let mut files = Vec::new();
    for line in [json.to_owned(), plain.replace("a: 1", "a: \"x;y, z\"")] {
        let cell = format!("\"{}\"", line.replace('"', "\"\""));
        for (heading, row) in [
            ("time,host,message", "1,\"x;y\","),
            ("time;host;message", "1;\"x,y\";"),
            ("time,host,message", "1;x;"),
            ("time;host;message", "1,x,"),
            ("time;host,message", "1;x,"),
            ("\"time, UTC\";\"message\"", "1;"),
            ("sep=;\ntime;message", "1;"),
        ] {
            files.push(named(heading, format!("{heading}\n{row}{cell}\n{row}{cell}\n")));
        }
    }
    assert_two(&files);
}

#[test]
fn colours_are_no_part_of_a_line() {
    let [json, plain] = LINES;
    let parsed: Value = serde_json::from_str(json).unwrap();
    // As `jq -C` writes it: a sequence before and behind each part.
    let coloured = |value: &Value| {
        let text = serde_json::to_string_pretty(value).unwrap();
        let line = |line: &str| {
            let text = line.trim_start();
            let indent = &line[..line.len() - text.len()];
            format!(
                "{indent}\u{1b}[0m\u{1b}[34;1m{}\u{1b}[0m\n",
                text.replace(": ", "\u{1b}[0m\u{1b}[1;39m:\u{1b}[0m ")
            )
        };
        format!("\u{1b}[1;39m{}", text.lines().map(line).collect::<String>())
    };
    let one = coloured(&parsed);
    let inner = json!({"log": format!("\u{1b}[32m{plain}\u{1b}[0m\n"), "stream": "stdout"});
    assert_two(&[
        named("objects", format!("{one}{one}")),
        named("array", coloured(&json!([parsed, parsed]))),
        named("behind a plain line", format!("{json}\n{one}")),
        named("in a string", format!("{inner}\n{inner}\n")),
    ]);
}

#[test]
fn a_line_whose_time_stands_apart_has_that_time() {
    let parsed: Value = serde_json::from_str(LINES[0]).unwrap();
    let attributes = &parsed["attr"];
    let time = "2026-05-01T10:00:00.120Z";
    let google = json!({"insertId": "a", "logName": "projects/p/logs/mongodb", "timestamp": time, "severity": "INFO",
        "jsonPayload": {"component": "COMMAND", "ctx": "conn7", "id": 51803, "message": "Slow query", "attributes": attributes}});
    let mut untimed = parsed.clone();
    untimed.as_object_mut().unwrap().remove("t");
    let text = |text: &str| json!({"textPayload": text, "timestamp": "2026-05-01T10:00:00.120345678Z"});
    let headless = LINES[1].split_once(' ').unwrap().1;
    let entries = [
        google.clone(),
        json!({"jsonPayload": untimed, "receiveTimestamp": "2026-05-01T10:00:07Z", "timestamp": time}),
        json!({"jsonPayload": {"message": untimed}, "timestamp": {"seconds": 1_777_629_600.12}}),
        text(headless),
        text(&sent()),
        json!({"@timestamp": time, "message": "Slow query", "log": {"level": "I"},
            "mongodb": {"log": {"attr": attributes, "component": "COMMAND", "context": "conn7", "id": 51803}}}),
        json!({"_index": "logs", "_source": {"@timestamp": time, "message": "Slow query",
            "mongodb": {"log": {"attr": attributes, "component": "COMMAND", "context": "conn7", "id": 51803}}}}),
        json!({"preview": false, "result": {"_time": "1777629600.120", "s": "I", "c": "COMMAND", "id": "51803",
            "ctx": "conn7", "msg": "Slow query", "attr": attributes}}),
        json!({"time": 1_777_629_600_120_u64, "event": headless}),
    ];
    for entry in &entries {
        for content in [
            format!("{entry}\n{entry}\n"),
            json!([entry, entry]).to_string(),
            serde_json::to_string_pretty(&json!([entry, entry])).unwrap(),
            (serde_json::to_string_pretty(entry).unwrap() + "\n").repeat(2),
            json!({"entries": [entry, entry]}).to_string(),
        ] {
            let (report, count) = calls("logs report", content.as_bytes());
            assert_eq!(count, 2, "{entry}: {}", report["reading"]);
            assert_eq!(report["rows"][0]["last_seen"], AT_NS, "{entry}");
        }
    }
    // What is no line of a server stays none.
    for other in [
        json!({"timestamp": time, "textPayload": "[main] started in 150ms"}),
        json!({"timestamp": time, "jsonPayload": {"message": "GET /", "attributes": {"status": 200}}}),
        json!({"timestamp": time, "ctx": "conn7", "attr": 1, "id": 51803}),
    ] {
        let content = format!("{}\n{other}\n", LINES[0]);
        let (report, count) = calls("logs report", content.as_bytes());
        assert_eq!((count, &report["reading"]["lines_unknown"]), (1.into(), &1.into()), "{other}");
    }
}

#[test]
fn syslog_is_read_with_a_year_and_with_facility_and_severity() {
    let sent = sent();
    for (head, millis) in [
        ("<134>2026 May  1 10:00:00 db1 mongod.27017[7]: ", 0),
        ("<134>May  1 2026 10:00:00 db1 mongod.27017[7]: ", 0),
        ("May  1 10:00:00 2026 db1 mongod.27017[7]: ", 0),
        ("2026-05-01T10:00:00.120+00:00 db1 daemon.info mongod.27017[7]: ", 120),
        ("<30>2026-05-01T10:00:00.120Z db1 mongod.27017[7]: ", 120),
        ("daemon.info 2026-05-01T10:00:00.120Z db1 mongod[7]: ", 120),
        ("2026 May  1 10:00:00 db1 daemon.info mongod[7]: ", 0),
        ("<14>1 2026-05-01T10:00:00.120Z db1 mongod.27017 7 - - ", 120),
        ("312 <14>1 2026-05-01T10:00:00.120Z db1 mongod.27017 7 - - ", 120),
        (
            "<14>1 2026-05-01T10:00:00.120Z db1 mongod.27017 7 ID47 [a@1 x=\"y \\] z\"][b@2 k=\"v\"] \u{feff}",
            120,
        ),
        ("1777629600.120345 db1 mongod.27017[7]: ", 120),
        ("Fri 2026-05-01 10:00:00 UTC db1 mongod.27017[7]: ", 0),
        ("2026-05-01 10:00:00.120 db1 mongod.27017[7]: ", 120),
    ] {
        let content = format!("{head}{sent}\n{head}{sent}\n");
        let (report, count) = calls("logs report", content.as_bytes());
        assert_eq!(count, 2, "{head}: {}", report["reading"]);
        assert_eq!(report["rows"][0]["last_seen"], AT_NS - 120_000_000 + millis * 1_000_000, "{head}");
    }
    for head in ["May  1 10:00:00 db1 systemd[1]: ", "daemon.info May  1 10:00:00 db1 sshd[7]: "] {
        let content = format!("{}\n{head}{sent}\n", LINES[0]);
        assert_eq!(calls("logs report", content.as_bytes()).1, 1, "{head}");
    }
}

#[test]
fn utf16_is_read_whatever_it_is_compressed_with() {
    let units = format!("\u{feff}{}\n{}\n", LINES[0], LINES[1]);
    let bytes: Vec<u8> = units.encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_two(&[
        ("gzip".to_owned(), gzip(&bytes)),
        ("zstd".to_owned(), zstd::encode_all(bytes.as_slice(), 1).unwrap()),
        ("gzip twice".to_owned(), gzip(&gzip(&bytes))),
        ("colours".to_owned(), gzip(format!("\u{1b}[1m{}\u{1b}[0m\n{}\n", LINES[0], LINES[1]).as_bytes())),
    ]);
    let cut = gzip(&bytes);
    let (code, _, error) = ran("logs report", &cut[..cut.len() - 60]);
    assert_eq!(code, 3, "{error}");
    assert!(
        error.contains("cannot be read further") && error.contains("all before it has been read"),
        "{error}"
    );
}

/// Lines of both formats that are longer than a container runtime keeps in one piece.
fn long_lines() -> [String; 2] {
    let list: Vec<String> = (0..6_000).map(|n| format!("\"ü{n}\"")).collect();
    let list = list.join(",");
    [
        LINES[0].replace("\"st\":1", &format!("\"st\":{{\"$in\":[{list}]}}")),
        LINES[1].replace("a: 1", &format!("a: {{ $in: [ {} ] }}", list.replace(',', ", "))),
    ]
}

/// The parts of a line, as a runtime cuts it after 16 KiB, and whether each is the last one.
fn parts(line: &str) -> Vec<(String, bool)> {
    // Docker makes a text of each part: half a character becomes U+FFFD.
    let pieces: Vec<_> =
        line.as_bytes().chunks(16 << 10).map(|piece| String::from_utf8_lossy(piece)).collect();
    let last = pieces.len() - 1;
    pieces.into_iter().enumerate().map(|(at, piece)| (piece.into_owned(), at == last)).collect()
}

#[test]
fn parts_of_a_line_are_joined_whoever_cut_it() {
    let mut files = Vec::new();
    for line in long_lines() {
        assert!(line.len() > 40_000);
        let joined = json!({"log": line}).to_string() + "\n";
        files.push(named("parts that a collector has joined", joined.repeat(2)));
        let entry =
            json!({"CONTAINER_NAME": "m", "MESSAGE": line[..16 << 10].to_owned() + &line[16 << 10..]});
        files.push(named("a whole entry of a container", format!("{entry}\n{entry}\n")));
        let parts = parts(&line);
        let whole = |make: &dyn Fn(&str, bool) -> String| -> String {
            let one: String = parts.iter().map(|(text, is_last)| make(text, *is_last) + "\n").collect();
            one.repeat(2)
        };
        let end = |is_last: bool| if is_last { "\n" } else { "" };
        files.push(named(
            "json-file",
            whole(&|text, is_last| {
                json!({"log": format!("{text}{}", end(is_last)), "stream": "stdout", "time": "x"}).to_string()
            }),
        ));
        files.push(named(
            "json-file without its stream",
            whole(&|text, is_last| json!({"log": format!("{text}{}", end(is_last))}).to_string()),
        ));
        files.push(named(
            "fluentd",
            whole(&|text, is_last| {
                json!({"container_name": "/m", "source": "stdout", "log": text, "partial_message": "true",
                    "partial_id": "1", "partial_last": is_last.to_string()})
                .to_string()
            }),
        ));
        files.push(named(
            "journald",
            whole(&|text, is_last| {
                let mut entry = json!({"CONTAINER_NAME": "m", "MESSAGE": text, "__REALTIME_TIMESTAMP": "1777629600120000",
                    "SYSLOG_IDENTIFIER": "0123456789ab"});
                if !is_last {
                    entry["CONTAINER_PARTIAL_MESSAGE"] = "true".into();
                }
                entry.to_string()
            }),
        ));
        files.push(named(
            "exported journal",
            whole(&|text, is_last| {
                let partial = if is_last { "" } else { "CONTAINER_PARTIAL_MESSAGE=true\n" };
                format!("__CURSOR=s=1\nCONTAINER_NAME=m\n{partial}MESSAGE={text}\n")
            }),
        ));
        files.push(named(
            "CRI",
            whole(&|text, is_last| {
                format!("2026-05-01T10:00:00.120000000Z stdout {} {text}", if is_last { "F" } else { "P" })
            }),
        ));
    }
    assert_two(&files);
}

#[test]
fn a_journal_is_read_in_each_of_its_formats() {
    let sent = sent();
    let us = "1777629600120000";
    let export = |message: &str| {
        format!(
            "__CURSOR=s=1;i=2\n__REALTIME_TIMESTAMP={us}\n_PID=7\nSYSLOG_IDENTIFIER=mongod.27017\nMESSAGE={message}\n\n"
        )
    };
    let binary = |message: &str| {
        let head =
            format!("__CURSOR=s=1;i=2\n__REALTIME_TIMESTAMP={us}\nSYSLOG_IDENTIFIER=mongod.27017\nMESSAGE\n");
        [head.as_bytes(), &(message.len() as u64).to_le_bytes(), message.as_bytes(), b"\n\n"].concat()
    };
    let entry = |message: Value| json!({"MESSAGE": message, "__REALTIME_TIMESTAMP": us, "SYSLOG_IDENTIFIER": "mongod.27017", "_PID": "7"});
    let mut files = Vec::new();
    for (name, line) in [("4.4", LINES[0]), ("4.2", sent.as_str())] {
        let bytes = entry(line.as_bytes().into());
        files.extend([
            (format!("export of {name}"), export(line).repeat(2).into_bytes()),
            (format!("binary export of {name}"), binary(line).repeat(2)),
            (format!("bytes of {name}"), format!("{bytes}\n{bytes}\n").into_bytes()),
            (
                format!("pretty bytes of {name}"),
                [serde_json::to_vec_pretty(&bytes).unwrap(), b"\n".to_vec()].concat().repeat(2),
            ),
            (
                format!("sequence of {name}"),
                format!("\u{1e}{0}\n\u{1e}{0}\n", entry(line.into())).into_bytes(),
            ),
        ]);
    }
    // A value with a line feed is why a message is binary.
    files.push(("torn".to_owned(), binary(&sent.replace("a: 1", "a: \"two\nlines\"")).repeat(2)));
    for (name, content) in &files {
        let (report, count) = calls("logs report", content);
        assert_eq!(count, 2, "{name}: {}", report["reading"]);
        assert_eq!(report["rows"][0]["last_seen"], AT_NS, "{name}");
    }
}

#[test]
fn exports_of_other_programs_are_read() {
    let [json, plain] = LINES;
    let parsed: Value = serde_json::from_str(json).unwrap();
    let lines = |entry: Value| format!("{entry}\n{entry}\n");
    assert_two(&[
        named("Splunk", lines(json!({"preview": false, "offset": 0, "result": {"_raw": json, "_time": "2026-05-01 10:00:00.120 UTC"}}))),
        named("Splunk's events", lines(json!({"time": 1_777_629_600.12, "host": "db1", "event": {"line": plain, "source": "stdout"}}))),
        named("Datadog", json!({"data": [{"id": "a", "attributes": {"timestamp": "x", "message": json}}, {"attributes": {"message": plain}}]}).to_string()),
        named("Datadog's attributes", lines(json!({"id": "a", "content": {"service": "m", "attributes": parsed}}))),
        named("Vector", lines(json!({"file": "/var/log/mongod.log", "host": "db1", "message": json, "source_type": "file", "timestamp": "2026-05-01T10:00:00.120Z"}))),
        named("kubectl --timestamps", format!("2026-05-01T10:00:00.120345678Z {json}\n2026-05-01T10:00:01.450000000Z {plain}\n")),
        named("CRI", format!("2026-05-01T10:00:00.120345678Z stdout F {json}\n2026-05-01T10:00:01.450000000+02:00 stderr F:x {plain}\n")),
        named("fluentd's files", format!("2026-05-01T10:00:00+00:00\tdocker.m\t{}\n", json!({"log": format!("{json}\n")})).repeat(2)),
    ]);
}
