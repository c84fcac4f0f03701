//! Every reader is given what it cannot read, what is cut, and what is empty: what it says, and its exit code.

use std::path::Path;

use crate::support::*;

const LOG: &str = "mongod-4.0-mixed/mongod.log.gz";

/// Exit code and everything that was said on standard error of `WORDS`, where `@` is the file.
fn said(words: &str, file: &Path) -> (i32, String) {
    let output = program(words.split_whitespace().map(|word| match word {
        "@" => file.to_str().unwrap(),
        word => word,
    }))
    .output()
    .unwrap();
    (output.status.code().unwrap(), text(&output.stderr).to_owned())
}

const PROFILE: &str = concat!(
    r#"{"op":"query","ns":"shop.people","command":{"find":"people","filter":{"city":"x"},"$db":"shop"},"#,
    r#""keysExamined":0,"docsExamined":90,"nreturned":1,"planSummary":"COLLSCAN","millis":7,"#,
    r#""ts":{"$date":"2026-05-01T10:00:00.120Z"},"client":"10.0.0.9"}"#
);

#[test]
fn what_is_foreign_names_the_command_that_reads_it() {
    let folder = Folder::new("foreign");
    let files = [
        ("capture", unpacked("mongod-4.0-mixed"), "mongosonar queries --read"),
        ("log", inflated(LOG), "mongosonar logs report"),
        ("dump", inflated("mongod-4.0-mixed/profile/shop.bson.gz"), "mongosonar profiler report"),
        ("profile.json", PROFILE.as_bytes().to_vec(), "mongosonar profiler report"),
        ("accesses", b"MSONARIO\x01\0\0\0\0\0".to_vec(), "mongosonar io report"),
        ("bench", std::fs::read(fixture("disk-bench.json")).unwrap(), "mongosonar disk bench --compare"),
        ("saved", b"{\"schema\":1,\"kind\":\"digest\",\"source\":\"log\"}".to_vec(), "mongosonar compare"),
    ];
    let readers = [
        ("logs report @", vec!["mongosonar logs report"]),
        ("profiler report @", vec!["mongosonar profiler report"]),
        ("queries --read @", vec!["mongosonar queries --read"]),
        ("io report @", vec!["mongosonar io report"]),
        ("io compare @ @", vec!["mongosonar io report"]),
        ("disk bench --compare @ @", vec!["mongosonar disk bench --compare"]),
        (
            "compare @ @",
            vec![
                "mongosonar queries --read",
                "mongosonar logs report",
                "mongosonar profiler report",
                "mongosonar compare",
            ],
        ),
    ];
    for (name, bytes, command) in &files {
        let path = folder.file(name, bytes);
        for (reader, own) in &readers {
            if own.contains(command) {
                continue;
            }
            let (code, told) = said(reader, &path);
            assert_eq!(code, 1, "{reader} {name}: {told}");
            assert!(told.contains(&format!("use `{command}")), "{reader} {name}: {told}");
        }
    }
}

#[test]
fn where_nothing_could_be_read_it_is_a_failure() {
    let folder = Folder::new("nothing");
    let readme = folder.file("README.md", b"# About\n\nSome text, and no line of a log.\n");
    let empty = folder.file("empty", b"");
    let other = folder.file("other.json", b"{\"name\":\"x\",\"n\":1}\n{\"name\":\"y\",\"n\":2}\n");
    let saved = folder.path("monday.json");
    let output = program(["logs", "report", "--json"]).arg(fixture(LOG)).output().unwrap();
    std::fs::write(&saved, output.stdout).unwrap();
    for file in [&readme, &empty, &other] {
        for reader in ["logs report @", "profiler report @", "queries --read @", "io report @", "compare @ @"]
        {
            let (code, told) = said(reader, file);
            assert_eq!(code, 1, "{reader} {}: {told}", file.display());
            assert!(told.contains(file.to_str().unwrap()), "{reader}: {told}");
        }
    }
    for (a, b) in [(&readme, &saved), (&saved, &readme)] {
        let output = program([Path::new("compare"), a, b]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
        assert!(text(&output.stderr).contains("README.md"), "{}", text(&output.stderr));
    }
}

#[test]
fn what_is_cut_is_told_by_the_exit_code_of_every_reader() {
    let folder = Folder::new("cut");
    let half = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();
    let dump = inflated("mongod-4.0-mixed/profile/shop.bson.gz");
    let packed_log = std::fs::read(fixture(LOG)).unwrap();
    let line = concat!(
        r#"{"t":{"$date":"2026-05-01T10:00:00.120+00:00"},"s":"I","c":"COMMAND","id":51803,"ctx":"conn7","#,
        r#""msg":"Slow query","attr":{"type":"command","ns":"a.b","command":{"find":"b","filter":{"x":1},"#,
        r#""$db":"a"},"planSummary":"COLLSCAN","durationMillis":7}}"#,
        "\n"
    );
    let cut_line = format!("{line}{}", &line[..line.len() - 40]);
    let json = format!("{PROFILE}\n{}", &PROFILE[..PROFILE.len() - 30]);
    let array = format!("[\n  {PROFILE},\n  {PROFILE}");
    let cases = [
        ("cut.log.gz", half(&packed_log), "logs report @"),
        ("cut.log", cut_line.into_bytes(), "logs report @"),
        ("cut.bson", half(&dump), "profiler report @"),
        (
            "cut.bson.gz",
            half(&std::fs::read(fixture("mongod-4.0-mixed/profile/shop.bson.gz")).unwrap()),
            "profiler report @",
        ),
        ("cut.json", json.into_bytes(), "profiler report @"),
        ("cut-array.json", array.into_bytes(), "profiler report @"),
        ("cut.pcap", half(&unpacked("mongod-4.0-mixed")), "queries --read @"),
        ("cut.pcap.gz", half(&std::fs::read(recording("mongod-4.0-mixed")).unwrap()), "queries --read @"),
    ];
    for (name, bytes, reader) in cases {
        let path = folder.file(name, &bytes);
        for words in [reader, "compare @ @"] {
            let (code, told) = said(words, &path);
            assert_eq!(code, 3, "{words} {name}: {told}");
            assert!(told.contains(name), "{words}: {told}");
        }
    }
}

/// What both shells and other tools print of the same two documents.
const LAYOUTS: [(&str, &str); 7] = [
    (
        "mongosh",
        r#"[
  {
    op: 'query',
    ns: 'shop.people',
    command: {
      find: 'people',
      filter: { city: 'it\'s "x" }', at: { '$gt': ISODate('2026-01-01T00:00:00.000Z') } },
      lsid: { id: UUID('0dfb3d4a-bd14-4a0c-9e0d-000000000000') },
      '$db': 'shop',
    },
    keysExamined: 0,
    docsExamined: 90,
    nreturned: Long('1'),
    planSummary: 'COLLSCAN',
    execStats: { stage: 'COLLSCAN', inputStage: [Object] },
    millis: 7,
    ts: ISODate('2026-05-01T10:00:00.120Z'),
    client: '10.0.0.9'
  }
]
Type "it" for more
shop> it
[ { op: 'query', ns: 'shop.people', command: { find: 'people', filter: { city: /^x{2}/i, at: { '$gt': ISODate('2026-01-01T00:00:00.000Z') } }, '$db': 'shop' }, millis: 9, ts: ISODate('2026-05-01T10:00:01.000Z') } ]
"#,
    ),
    (
        "mongo",
        r#"MongoDB shell version v4.0.3
{ "op" : "query", "ns" : "shop.people", "command" : { "find" : "people", "filter" : { "city" : "x", "at" : { "$gt" : ISODate("2026-01-01T00:00:00Z") } }, "$db" : "shop" }, "keysExamined" : 0, "docsExamined" : 90, "nreturned" : NumberLong(1), "planSummary" : "COLLSCAN", "millis" : 7, "ts" : ISODate("2026-05-01T10:00:00.120Z"), "client" : "10.0.0.9" }
{
	"op" : "query",
	"ns" : "shop.people",
	"command" : {
		"find" : "people",
		"filter" : {
			"city" : /^x/,
			"at" : { "$gt" : ISODate("2026-01-01T00:00:00Z") }
		},
		"$db" : "shop"
	},
	"millis" : 9,
	"ts" : ISODate("2026-05-01T10:00:01Z")
}
Type "it" for more
bye
"#,
    ),
    (
        "pretty JSON",
        r#"{
  "op": "query",
  "ns": "shop.people",
  "command": {
    "find": "people",
    "filter": { "city": "x", "at": { "$gt": { "$date": "2026-01-01T00:00:00Z" } } },
    "$db": "shop"
  },
  "keysExamined": 0,
  "docsExamined": 90,
  "nreturned": { "$numberLong": "1" },
  "planSummary": "COLLSCAN",
  "millis": 7,
  "ts": { "$date": { "$numberLong": "1777629600120" } }
}
{
  "op": "query", "ns": "shop.people",
  "command": { "find": "people", "filter": { "city": { "$regularExpression": { "pattern": "^x", "options": "" } }, "at": { "$gt": { "$date": "2026-01-01T00:00:00Z" } } }, "$db": "shop" },
  "millis": 9, "ts": { "$date": "2026-05-01T10:00:01Z" }
}
"#,
    ),
    (
        "an array in one line",
        r#"[{"op":"query","ns":"shop.people","command":{"find":"people","filter":{"city":"x","at":{"$gt":{"$date":"2026-01-01T00:00:00Z"}}},"$db":"shop"},"keysExamined":0,"docsExamined":90,"nreturned":1,"planSummary":"COLLSCAN","millis":7,"ts":{"$date":"2026-05-01T10:00:00.120Z"}},{"op":"query","ns":"shop.people","command":{"find":"people","filter":{"city":{"$regularExpression":{"pattern":"^x","options":""}},"at":{"$gt":{"$date":"2026-01-01T00:00:00Z"}}},"$db":"shop"},"millis":9,"ts":{"$date":"2026-05-01T10:00:01Z"}}]"#,
    ),
    (
        "a byte order mark",
        "\u{feff}{\"op\":\"query\",\"ns\":\"shop.people\",\"command\":{\"find\":\"people\",\"filter\":{\"city\":\"x\",\"at\":{\"$gt\":{\"$date\":\"2026-01-01T00:00:00Z\"}}},\"$db\":\"shop\"},\"keysExamined\":0,\"docsExamined\":90,\"nreturned\":1,\"planSummary\":\"COLLSCAN\",\"millis\":7,\"ts\":{\"$date\":\"2026-05-01T10:00:00.120Z\"}}\n{\"op\":\"query\",\"ns\":\"shop.people\",\"command\":{\"find\":\"people\",\"filter\":{\"city\":{\"$regularExpression\":{\"pattern\":\"^x\",\"options\":\"\"}},\"at\":{\"$gt\":{\"$date\":\"2026-01-01T00:00:00Z\"}}},\"$db\":\"shop\"},\"millis\":9,\"ts\":{\"$date\":\"2026-05-01T10:00:01Z\"}}\n",
    ),
    (
        "comments of Robo 3T",
        "/* 1 */\n{\n    \"op\" : \"query\",\n    \"ns\" : \"shop.people\",\n    \"command\" : { \"find\" : \"people\", \"filter\" : { \"city\" : \"x\", \"at\" : { \"$gt\" : ISODate(\"2026-01-01T00:00:00Z\") } }, \"$db\" : \"shop\" },\n    \"keysExamined\" : 0, \"docsExamined\" : 90, \"nreturned\" : NumberInt(1), \"planSummary\" : \"COLLSCAN\",\n    \"millis\" : 7,\n    \"ts\" : ISODate(\"2026-05-01T10:00:00.120Z\")\n}\n\n/* 2 */\n{ op: \"query\", ns: \"shop.people\", command: { find: \"people\", filter: { city: /x/, at: { $gt: new Date(1767225600000) } }, $db: \"shop\" }, millis: 9, ts: new Date(1777629601000), }\n",
    ),
    (
        "a prompt before the output",
        "rs0 [direct: primary] shop> db.system.profile.find({ millis: { $gt: 5 } }).sort({ ts: -1 })\n[\n  { op: 'query', ns: 'shop.people', command: { find: 'people', filter: { city: 'x', at: { '$gt': ISODate('2026-01-01T00:00:00.000Z') } }, '$db': 'shop' }, keysExamined: 0, docsExamined: 90, nreturned: 1, planSummary: 'COLLSCAN', millis: 7, ts: ISODate('2026-05-01T10:00:00.120Z') },\n  { op: 'query', ns: 'shop.people', command: { find: 'people', filter: { city: /x/, at: { '$gt': ISODate('2026-01-01T00:00:00.000Z') } }, '$db': 'shop' }, millis: 9, ts: ISODate('2026-05-01T10:00:01.000Z') }\n]\n",
    ),
];

#[test]
fn profiles_are_read_in_every_layout_that_shells_and_tools_print() {
    let folder = Folder::new("layouts");
    for (name, content) in LAYOUTS {
        let path = folder.file("profile.txt", content.as_bytes());
        let output = program(["profiler", "report", "--json"]).arg(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output.stderr));
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let reading = &told["reading"];
        assert_eq!(
            (&reading["documents"], &reading["documents_malformed"]),
            (&2.into(), &0.into()),
            "{name}"
        );
        assert_eq!(reading["operations_exact"], 2, "{name}: {reading}");
        let mut shapes: Vec<_> =
            told["rows"].as_array().unwrap().iter().map(|row| row["shape"].as_str().unwrap()).collect();
        shapes.sort_unstable();
        // A string and a regular expression are two shapes.
        assert_eq!(
            shapes,
            [
                "{filter: {at: {$gt: ?date}, city: ?string}}",
                "{filter: {at: {$gt: ?date}, city: {$regex: ?regex}}}"
            ],
            "{name}"
        );
        assert_eq!(told["totals"]["latency_ns"]["sum"], 16_000_000, "{name}");
        assert_eq!(told["totals"]["first_seen"], 1_777_629_600_120_000_000u64, "{name}");
        assert_eq!(told["totals"]["sums"]["docs_examined"], serde_json::json!([90, 1]), "{name}");
    }
}

#[test]
fn what_the_shell_left_out_of_a_command_has_no_exact_shape() {
    let folder = Folder::new("left-out");
    let content = "[ { op: 'query', ns: 'a.b', command: { find: 'b', filter: { x: { y: [Object] } }, '$db': 'a' }, millis: 7, ts: ISODate('2026-05-01T10:00:00.120Z') } ]\n";
    let output =
        program(["profiler", "report", "--json"]).arg(folder.file("p", content.as_bytes())).output().unwrap();
    let told = &lines(&output)[0];
    assert_eq!(
        (&told["reading"]["operations_exact"], &told["reading"]["operations_partial"]),
        (&0.into(), &1.into())
    );
}

#[test]
fn a_rate_limit_of_a_file_is_said_to_be_assumed() {
    let folder = Folder::new("rate-limit");
    let limited = PROFILE.replace("\"millis\":7", "\"rateLimit\":10,\"millis\":7");
    let output = program(["profiler", "report"]).arg(folder.file("p", limited.as_bytes())).output().unwrap();
    let told = text(&output.stdout);
    assert!(told.contains("rateLimit is in 1 entry") && told.contains("PSMDB-876"), "{told}");
    assert!(told.contains("10 operations in"), "{told}");
}

#[test]
fn times_are_those_of_the_logs_own_clock_unless_asked_otherwise() {
    let folder = Folder::new("zones");
    let line = |time: &str| {
        format!(
            "{time} I COMMAND  [conn1] command shop.people command: find {{ find: \"people\", filter: {{ a: 1.0 }}, $db: \"shop\" }} planSummary: COLLSCAN keysExamined:0 docsExamined:9 nreturned:1 reslen:100 locks:{{}} protocol:op_msg 7ms\n"
        )
    };
    let log = line("2026-05-01T12:00:00.120+0200") + &line("2026-05-01T12:30:00.120+0200");
    let path = folder.file("mongod.log", log.as_bytes());
    let shown = |words: &str| {
        let output = program(["logs", "report"]).arg(&path).args(words.split_whitespace()).output().unwrap();
        assert!(output.status.success(), "{words}: {}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    assert!(
        shown("").contains("2026-05-01T12:00:00.120+02:00 to 2026-05-01T12:30:00.120+02:00"),
        "{}",
        shown("")
    );
    assert!(shown("--utc").contains("2026-05-01T10:00:00.120Z to 2026-05-01T10:30:00.120Z"));
    assert!(shown("--timezone America/New_York").contains("2026-05-01T06:00:00.120-04:00"));
    // A time without an offset is that of the clock whose times are shown.
    assert!(
        shown("--from 2026-05-01T12:15").contains("\n1 operation in "),
        "{}",
        shown("--from 2026-05-01T12:15")
    );
    assert!(shown("--utc --from 2026-05-01T12:15").contains("\nNo operations."));
    assert!(shown("--from 2026-05-01T10:15:00Z").contains("\n1 operation in "));
    let wrong = program(["logs", "report", "--timezone", "Mars"]).arg(&path).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("Europe/Berlin"), "{}", text(&wrong.stderr));
    // JSON holds points in time.
    let output =
        program(["logs", "report", "--json", "--timezone", "Asia/Kolkata"]).arg(&path).output().unwrap();
    assert_eq!(lines(&output)[0]["totals"]["first_seen"], 1_777_629_600_120_000_000u64);
}

#[test]
fn every_text_report_fits_eighty_columns() {
    let folder = Folder::new("eighty");
    let (log, dump) = (fixture(LOG), fixture("mongod-4.0-mixed/profile/shop.bson.gz"));
    let capture = recording("mongod-4.0-mixed");
    let accesses = folder.file("reads.msio", &recorded_reads("sortById-hashed"));
    let bench = fixture("disk-bench.json");
    let reports: [Vec<&str>; 11] = [
        vec!["logs", "report", log.to_str().unwrap()],
        vec!["logs", "report", log.to_str().unwrap(), "--by", "plan"],
        vec!["profiler", "report", dump.to_str().unwrap(), "--class", "all"],
        vec!["compare", log.to_str().unwrap(), dump.to_str().unwrap()],
        vec!["queries", "--read", capture.to_str().unwrap(), "--digest"],
        vec!["io", "report", accesses.to_str().unwrap()],
        vec!["io", "compare", accesses.to_str().unwrap(), accesses.to_str().unwrap()],
        vec!["disk", "bench", "--compare", bench.to_str().unwrap(), bench.to_str().unwrap()],
        vec!["disk", "estimate", bench.to_str().unwrap(), "--documents", "1000000"],
        vec!["disk", "check", "--dbpath", "/tmp"],
        vec!["queries", "--read", capture.to_str().unwrap()],
    ];
    for words in reports {
        for width in [80, 132] {
            let output = program(&words).args(["--width", &width.to_string()]).output().unwrap();
            let shown = text(&output.stdout);
            assert!(!shown.trim().is_empty(), "{words:?}: {}", text(&output.stderr));
            for line in shown.lines() {
                let columns = line.chars().count();
                assert!(columns <= width, "{words:?} at {width}, {columns} columns: {line}");
            }
        }
    }
}
