//! Archives with compressed, damaged and foreign files, and other inputs that end early.

use serde_json::Value;

use crate::inputs::archived;
use crate::support::{Folder, fixture, program};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file of the fixtures, as it is.
fn file_of(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name)).unwrap()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn logs_in_an_archive_are_read_as_if_each_were_named() {
    let folder = Folder::new("archived-logs");
    let slow = |second: u32, context: &str| {
        format!(
            "{{\"t\":{{\"$date\":\"2026-05-01T10:00:{second:02}.000+00:00\"}},\"s\":\"I\",\"c\":\"COMMAND\",\"id\":51803,\"ctx\":\"{context}\",\"msg\":\"Slow query\",\"attr\":{{\"type\":\"command\",\"ns\":\"shop.orders\",\"command\":{{\"find\":\"orders\",\"filter\":{{\"a\":1}},\"$db\":\"shop\"}},\"durationMillis\":150}}}}\n"
        )
    };
    let metadata = |second: u32, app: &str| {
        format!(
            "{{\"t\":{{\"$date\":\"2026-05-01T10:00:{second:02}.000+00:00\"}},\"s\":\"I\",\"c\":\"NETWORK\",\"id\":51800,\"ctx\":\"conn1\",\"msg\":\"client metadata\",\"attr\":{{\"remote\":\"10.0.0.7:1\",\"client\":\"conn1\",\"doc\":{{\"application\":{{\"name\":\"{app}\"}}}}}}}}\n"
        )
    };
    // Both servers have a connection of this name; only the first one tells whose it is.
    let one = metadata(1, "shop-api") + &slow(2, "conn1");
    let other = slow(1, "conn1");
    let broken = gzip(slow(3, "conn1").repeat(2_000).as_bytes());
    let archive = [
        archived("db1/mongod.log.gz", &gzip(one.as_bytes())),
        archived("db2/mongod.log.zst", &zstd::encode_all(other.as_bytes(), 1).unwrap()),
        archived("db3/mongod.log.gz", &broken[..broken.len() / 2]),
        archived("db4/mongod.log", slow(4, "conn1").as_bytes()),
        archived("db4/README.gz", &gzip(b"some text")),
        vec![0; 1_024],
    ]
    .concat();
    let report = |content: &[u8]| {
        let file = folder.file("logs.tar", content);
        let output = program(["logs", "report", "--json", "--by", "app"]).arg(&file).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        (report, output)
    };
    let (read, output) = report(&archive);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("logs.tar/db3/mongod.log.gz: cannot be read further"), "{said}");
    let calls = |app: &str| {
        let rows = read["rows"].as_array().unwrap().iter();
        rows.filter(|row| row["app"] == app).map(|row| row["calls"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(calls("shop-api"), 1, "{}", read["rows"]);
    assert!(
        read["totals"]["calls"].as_u64().unwrap() >= 3,
        "one of db1, db2 and db4 each: {}",
        read["totals"]
    );
    assert_eq!((&read["reading"]["files"], &read["reading"]["files_damaged"]), (&1.into(), &1.into()));
    let nothing = folder.file("nothing.tar", &[archived("README", b"some text"), vec![0; 1_024]].concat());
    let output = program(["logs", "report"]).arg(&nothing).output().unwrap();
    assert!(
        text(&output.stderr)
            .contains("nothing.tar: this archive of 1 file holds nothing that mongosonar knows"),
        "{output:?}"
    );
    let report = program(["report"]).arg(&nothing).output().unwrap();
    assert_eq!(report.stderr, output.stderr, "the same words");
    let samples = file_of("ftdc/day/metrics.2026-11-21T21-22-47Z-00000");
    let samples = [archived("diagnostic.data/metrics.x", &samples), vec![0; 1_024]].concat();
    let output = program(["report"]).arg(folder.file("dd.tar", &samples)).output().unwrap();
    assert!(
        text(&output.stderr).contains("but a file of MongoDB's diagnostic.data; use `mongosonar ftdc report")
    );
    // Whatever a file before it was like.
    let damaged = archived("db/mongod.log.gz", &broken[..15]);
    let damaged = folder.file("damaged.tar", &[damaged, vec![0; 1_024]].concat());
    let output = program(["logs", "report"]).arg(&damaged).arg(&nothing).output().unwrap();
    assert!(
        text(&output.stderr)
            .contains("nothing.tar: this archive of 1 file holds nothing that mongosonar knows"),
        "{output:?}"
    );
}

#[test]
fn names_longer_than_the_field_are_read() {
    let folder = Folder::new("long-names");
    let path = format!("{}/diagnostic.data/metrics.2026-11-21T21-22-47Z-00000", "folder/".repeat(20));
    let diagnostic = file_of("ftdc/day/metrics.2026-11-21T21-22-47Z-00000");
    let with = |kind: u8, content: &[u8]| {
        let mut head = archived("././@LongLink", content);
        head[156] = kind;
        head[148..156].fill(b' ');
        let sum: u32 = head[..512].iter().map(|byte| u32::from(*byte)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        [head, archived(&path[..99], &diagnostic), vec![0; 1_024]].concat()
    };
    let record = format!(" path={path}\n");
    let record = format!("{}{record}", record.len() + 3);
    for content in [with(b'L', format!("{path}\0").as_bytes()), with(b'x', record.as_bytes())] {
        let archive = folder.file("long.tar", &content);
        let output = program(["ftdc", "report", "--json"]).arg(&archive).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

#[test]
fn what_can_be_read_of_a_damaged_input_is_shown() {
    let folder = Folder::new("damaged-inputs");
    // A damaged file of diagnostic.data in an archive costs no other one.
    let diagnostic = file_of("ftdc/day/metrics.2026-11-21T21-22-47Z-00000");
    let samples = |content: &[u8]| {
        let file = folder.file("data.tar", content);
        let output = program(["ftdc", "report", "--json"]).arg(&file).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        (report["samples"].as_u64().unwrap(), output.status.code(), text(&output.stderr))
    };
    let name = "metrics.2026-11-21T21-22-47Z-00000";
    let whole = samples(&[archived(name, &diagnostic), vec![0; 1_024]].concat());
    let broken =
        archived("metrics.2026-11-20T00-00-00Z-00000", &[b"\xff\xff\xff\x7f".as_slice(), &[0; 40]].concat());
    let (count, code, said) = samples(&[broken, archived(name, &diagnostic), vec![0; 1_024]].concat());
    assert_eq!((count, code), (whole.0, Some(3)), "{said}");
    assert!(said.contains("data.tar/metrics.2026-11-20"), "{said}");
    // So does the end of an archive that is missing.
    let mut cut = archived(name, &diagnostic);
    cut.extend(archived("metrics.2026-11-22T00-00-00Z-00000", &diagnostic));
    cut.truncate(cut.len() - diagnostic.len() / 2);
    let (count, code, said) = samples(&cut);
    assert!(count >= whole.0 && code == Some(3) && said.contains("ends inside a file"), "{count}: {said}");
    // Compressed samples and operations, without their end.
    let sample = |second: u32| {
        format!(
            "{{ data: {{ start: ISODate('2026-05-01T10:{:02}:{:02}.000Z'), serverStatus: {{ pid: Long('7'), uptimeMillis: Long('{second}000'), connections: {{ current: {} }} }}, end: ISODate('2026-05-01T10:00:01.010Z') }}, ok: 1 }}\n",
            second / 60,
            second % 60,
            second * 7_919 % 1_000
        )
    };
    let compressed = gzip((0..3_000).map(sample).collect::<String>().as_bytes());
    let file = folder.file("samples.gz", &compressed[..compressed.len() / 2]);
    let output = program(["ftdc", "report", "--json"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!((100..3_000).contains(&report["samples"].as_u64().unwrap()), "{}", report["samples"]);
    assert!(text(&output.stderr).contains("cannot be read further"), "{output:?}");
    let operation = |number: u32| {
        format!(
            "{{\"type\":\"op\",\"active\":true,\"opid\":{},\"secs_running\":{},\"op\":\"query\",\"ns\":\"shop.orders\",\"command\":{{\"find\":\"orders\",\"filter\":{{\"a\":1}},\"$db\":\"shop\"}}}}\n",
            number * 7_919 % 100_003,
            number % 97
        )
    };
    let compressed = gzip((0..20_000).map(operation).collect::<String>().as_bytes());
    let file = folder.file("current.gz", &compressed[..compressed.len() / 2]);
    let output = program(["report", "--json"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!((100..20_000).contains(&report["in_flight"].as_u64().unwrap()), "{}", report["in_flight"]);
}
