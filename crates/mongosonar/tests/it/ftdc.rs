//! `ftdc`: recorded diagnostic.data of a real server.

use std::fs;
use std::process::Output;

use crate::support::*;
use serde_json::Value;

/// The recorded four minutes of a server.
const DAY: &str = "ftdc/day";
const FILE: &str = "ftdc/day/metrics.2026-11-21T21-22-47Z-00000";

fn ftdc(words: &[&str]) -> Output {
    program(["ftdc"].iter().chain(words)).output().unwrap()
}

fn path(name: &str) -> String {
    fixture(name).to_str().unwrap().to_owned()
}

fn report(words: &[&str]) -> Value {
    let output = ftdc(&[&["report", "--json"], words].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

fn figure<'a>(report: &'a Value, id: &str) -> &'a Value {
    report["figures"].as_array().unwrap().iter().find(|figure| figure["id"] == id).unwrap()
}

/// `seconds` after 2026-11-21T21:20:00Z, in nanoseconds since 1970.
fn at(seconds: f64) -> f64 {
    (1_795_296_000.0 + seconds) * 1e9
}

#[test]
fn the_report_names_the_dropped_index_and_when_it_was_missing() {
    let report = report(&[&path(DAY)]);
    assert_eq!(report["samples"], 289);
    assert_eq!(report["server"]["version"], "4.4.6-8");
    assert_eq!(report["server"]["system"], "Debian GNU/Linux 12 (bookworm)");
    // The index was dropped at 242.8 s and built again at 262.8 s.
    let found = figure(&report, "queries.docs_per_returned");
    assert_eq!(found["verdict"], "red");
    let longest = &found["limits"]["over_red"];
    let (start, length) =
        (longest["longest_start_ns"].as_f64().unwrap(), longest["longest_ns"].as_f64().unwrap());
    assert!((at(242.0)..at(245.0)).contains(&start), "{longest}");
    assert!((18e9..22e9).contains(&length), "{longest}");
    assert_eq!(report["incidents"][0]["words"], "the server went from SECONDARY to PRIMARY");
    // Operations and connections as they were made.
    assert!(
        figure(&report, "connections.open")["max"].as_f64().unwrap() > 170.0,
        "150 connections came at once"
    );
    let shown = ftdc(&["report", &path(DAY)]);
    let text = text(&shown.stdout);
    let first = text.lines().position(|line| line == "Worth a look:").unwrap() + 1;
    let line = text.lines().nth(first).unwrap();
    assert!(
        line.starts_with("red    documents examined for each one returned: 100 or more for 36.0s"),
        "{line}"
    );
}

#[test]
fn a_folder_a_file_and_the_data_folder_give_the_same() {
    let of_folder = report(&[&path(DAY)])["figures"].clone();
    assert_eq!(report(&[&path(FILE)])["figures"], of_folder);
    let folder = Folder::new("ftdc-1");
    fs::create_dir(folder.path("diagnostic.data")).unwrap();
    fs::copy(fixture(FILE), folder.path("diagnostic.data/metrics.2026-11-21T21-22-47Z-00000")).unwrap();
    fs::write(folder.path("WiredTiger"), "").unwrap();
    assert_eq!(report(&[folder.path("").to_str().unwrap()])["figures"], of_folder);
}

#[test]
fn the_interim_file_is_read_last_and_what_it_repeats_counts_once() {
    let killed = report(&[&path("ftdc/killed")]);
    assert_eq!(killed["incidents"][0]["kind"], "restart");
    let folder = Folder::new("ftdc-2");
    for file in fs::read_dir(fixture("ftdc/killed")).unwrap() {
        let file = file.unwrap().path();
        fs::copy(&file, folder.path(file.file_name().unwrap().to_str().unwrap())).unwrap();
    }
    // What a server leaves that is killed before it renames the file.
    fs::copy(folder.path("metrics.interim"), folder.path("metrics.interim.temp")).unwrap();
    let twice = report(&[folder.path("").to_str().unwrap()]);
    assert_eq!(twice["figures"], killed["figures"]);
    assert!(twice["reading"]["samples_repeated"].as_u64().unwrap() >= 10, "{}", twice["reading"]);
    let without = report(&[
        &path("ftdc/killed/metrics.2026-11-21T21-33-14Z-00000"),
        &path("ftdc/killed/metrics.2026-11-21T21-36-48Z-00000"),
    ]);
    assert!(without["about"]["end_ns"].as_u64() < killed["about"]["end_ns"].as_u64());
}

#[test]
fn a_time_is_cut_out() {
    let words = ["--from", "2026-11-21T22:24:00+01:00", "--to", "2026-11-21T21:25:00Z"];
    let part = report(&[&words[..], &[&path(DAY)]].concat());
    assert_eq!(part["samples"], 60);
    assert_eq!(part["reading"]["samples_outside"], 229);
    let none = ftdc(&["report", "--from", "2027-01-01", &path(DAY)]);
    assert_eq!(none.status.code(), Some(1));
    assert!(
        text(&none.stderr).contains("none of its 289 samples is in the time of --from and --to"),
        "{none:?}"
    );
    assert_eq!(
        ftdc(&["report", "--from", "2027-01-01", "--to", "2026-01-01", &path(DAY)]).status.code(),
        Some(2)
    );
}

#[test]
fn a_cut_file_shows_what_comes_before_and_says_so() {
    let folder = Folder::new("ftdc-3");
    let whole = fs::read(fixture(FILE)).unwrap();
    fs::write(folder.path("cut"), &whole[..whole.len() - 10_000]).unwrap();
    let output = ftdc(&["report", folder.path("cut").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(text(&output.stderr).contains("it ends within the document at byte"), "{output:?}");
    assert!(text(&output.stdout).contains("all before that is shown"), "the report says it too");
    // A damaged chunk costs its own samples only.
    let mut damaged = whole.clone();
    let middle = whole.len() / 2;
    damaged[middle] ^= 0xff;
    fs::write(folder.path("damaged"), &damaged).unwrap();
    let path = folder.path("damaged");
    let report = report(&[path.to_str().unwrap()]);
    assert_eq!(report["reading"]["chunks_damaged"], 1);
    assert!((200..289).contains(&report["samples"].as_u64().unwrap()), "{}", report["samples"]);
    assert_eq!(ftdc(&["report", path.to_str().unwrap()]).status.code(), Some(3));
}

#[test]
fn what_is_no_diagnostic_data_is_refused_with_the_command_that_reads_it() {
    let folder = Folder::new("ftdc-4");
    fs::write(folder.path("metrics.interim"), "").unwrap();
    for (input, message) in [
        (path("mongod-4.0-mixed/mongod.log.gz"), "use `mongosonar logs report FILE`"),
        (path("histogram"), "no file of diagnostic.data (metrics.*)"),
        (path("nothing"), "cannot open"),
        (folder.path("").to_str().unwrap().to_owned(), "no sample"),
    ] {
        let output = ftdc(&["report", &input]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains(message), "{output:?}");
    }
    let output = program(["logs", "report", &path(FILE)]).output().unwrap();
    assert!(text(&output.stderr).contains("use `mongosonar ftdc report FILE`"), "{output:?}");
}

#[test]
fn export_writes_the_same_values_in_each_form() {
    let inserts = "serverStatus.opcounters.insert";
    let words = ["--metric", inserts, &path(DAY)];
    let json = ftdc(&[&["export"], &words[..]].concat());
    let values: Vec<(u64, u64)> = text(&json.stdout)
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["metrics"].as_object().unwrap().len(), 1);
            (line["time_ms"].as_u64().unwrap(), line["metrics"][inserts].as_u64().unwrap())
        })
        .collect();
    assert_eq!(values.len(), 289);
    let csv: String = values.iter().map(|(time, value)| format!("{time},{value}\n")).collect();
    let output = ftdc(&[&["export", "--csv"], &words[..]].concat());
    assert_eq!(text(&output.stdout), format!("time_ms,{inserts}\n{csv}"));
    let output = ftdc(&[&["export", "--openmetrics"], &words[..]].concat());
    let name = "mongodb_serverStatus_opcounters_insert";
    let lines = values.iter().map(|(time, value)| {
        format!(
            "{name}{{instance=\"vm:27117\",path=\"{inserts}\"}} {value} {}.{:03}\n",
            time / 1_000,
            time % 1_000
        )
    });
    let expected = format!("# TYPE {name} unknown\n{}# EOF\n", lines.collect::<String>());
    assert_eq!(text(&output.stdout), expected);
    let output = ftdc(&[&["export", "--list"], &words[..]].concat());
    assert_eq!(text(&output.stdout), format!("{inserts}\n"));
    let output = ftdc(&["export", "--metric", "no.such", &path(DAY)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--list"), "{output:?}");
}

#[test]
fn export_from_a_pipe_has_all_columns() {
    let script = format!("cat '{}' | '{}' ftdc export --csv -", path(FILE), env!("CARGO_BIN_EXE_mongosonar"));
    let output = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
    let out = text(&output.stdout);
    // Names in the first line hold commas, values none.
    let columns: Vec<usize> = out.lines().skip(1).map(|line| line.split(',').count()).collect();
    assert_eq!(columns.len(), 289, "{:?}", text(&output.stderr));
    assert!(columns.iter().all(|count| *count == columns[0]) && columns[0] > 1_700, "{}", columns[0]);
}

#[test]
fn compare_ends_with_4_where_something_got_worse() {
    let (killed, day) = (path("ftdc/killed"), path(DAY));
    let output = ftdc(&["compare", &killed, &day]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let shown = text(&output.stdout);
    assert!(shown.contains("worse   keys examined for each document returned"), "{shown}");
    assert!(shown.contains("Only one side has: replication lag."), "{shown}");
    let same = ftdc(&["compare", "--json", &day, &path(FILE)]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
    let same: Value = serde_json::from_slice(&same.stdout).unwrap();
    assert!(same["figures"].as_array().unwrap().iter().all(|pair| pair["change"] == "unchanged"));
}

#[test]
fn a_figure_whose_median_moved_towards_its_limit_is_not_better() {
    let output = ftdc(&["compare", "--json", &path("ftdc/killed"), &path(DAY)]);
    let compared: Value = serde_json::from_slice(&output.stdout).unwrap();
    // Of this one, fewer values are over the limit, but the usual one is three times as high.
    let pair = figure(&compared, "cache.updates");
    assert_eq!(
        (pair["verdict"].to_string(), &pair["change"]),
        (r#"["amber","ok"]"#.to_owned(), &"higher".into())
    );
    let better = compared["figures"].as_array().unwrap().iter().filter(|pair| pair["change"] == "better");
    assert!(better.count() > 0, "{compared}");
}

#[test]
fn files_are_read_in_the_order_of_their_time() {
    let names =
        ["metrics.interim", "metrics.2026-11-21T21-36-48Z-00000", "metrics.2026-11-21T21-33-14Z-00000"];
    let named = names.map(|name| path(&format!("ftdc/killed/{name}")));
    let report_of = |paths: &[&str]| report(paths)["figures"].clone();
    assert_eq!(report_of(&[&named[0], &named[1], &named[2]]), report_of(&[&path("ftdc/killed")]));
}

#[test]
fn two_servers_are_not_read_as_one() {
    let output = ftdc(&["report", &path("ftdc/killed"), &path(DAY)]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("two servers"), "{output:?}");
}

#[test]
fn a_bad_file_in_a_folder_does_not_hide_the_others() {
    let folder = Folder::new("ftdc-bad");
    fs::copy(fixture(FILE), folder.path("metrics.2026-11-21T21-22-47Z-00000")).unwrap();
    folder.file("metrics.interim", b"garbage that is no document");
    let of_folder = folder.path("");
    let output = ftdc(&["report", "--json", of_folder.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(text(&output.stderr).contains("metrics.interim"), "{output:?}");
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["samples"], 289);
    // Zeros in the middle of a file, with samples behind them.
    let mut whole = fs::read(fixture(FILE)).unwrap();
    let first = u32::from_le_bytes(*whole.first_chunk().unwrap()) as usize;
    whole.splice(first..first, [0; 4_096]);
    folder.file("metrics.interim", &whole);
    let output = ftdc(&["report", folder.path("metrics.interim").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text(&output.stderr).contains(&format!("zeros instead of a document at byte {first}")),
        "{output:?}"
    );
}

#[test]
fn export_writes_nothing_where_nothing_matches() {
    for words in
        [&["--metric", "opcounters"][..], &["--csv", "--from", "2027-01-01"], &["--from", "2027-01-01"]]
    {
        let output = ftdc(&[&["export"], words, &[&path(DAY)]].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn two_times_of_a_server_are_compared() {
    // Before and while the index was missing.
    let day = path(DAY);
    let words = [
        "--to-a",
        "2026-11-21T21:24:00Z",
        "--from-b",
        "2026-11-21T21:24:04Z",
        "--to-b",
        "2026-11-21T21:24:20Z",
    ];
    let output = ftdc(&[&["compare", "--json", &day, &day], &words[..]].concat());
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let compared: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(compared["samples"], serde_json::json!([72, 16]));
    let change = |id: &str| figure(&compared, id)["change"].clone();
    assert_eq!(change("queries.docs_per_returned"), "worse");
    assert_eq!(change("connections.open"), "unchanged");
}

/// A file of diagnostic.data: one chunk for each list of samples, all with the metrics of the first one.
fn diagnostic_data(chunks: &[Vec<bson::Document>]) -> Vec<u8> {
    let mut out = Vec::new();
    for samples in chunks {
        let mut unpacked = samples[0].to_vec().unwrap();
        let columns: Vec<Vec<i64>> = samples.iter().map(numbers).collect();
        unpacked.extend((columns[0].len() as u32).to_le_bytes());
        unpacked.extend((samples.len() as u32 - 1).to_le_bytes());
        let mut zeros = 0u64;
        for metric in 0..columns[0].len() {
            for pair in columns.windows(2) {
                let delta = pair[1][metric].wrapping_sub(pair[0][metric]) as u64;
                if delta == 0 {
                    zeros += 1;
                    continue;
                }
                flush_zeros(&mut unpacked, &mut zeros);
                varint(&mut unpacked, delta);
            }
        }
        flush_zeros(&mut unpacked, &mut zeros);
        let mut data = (unpacked.len() as u32).to_le_bytes().to_vec();
        let mut packer = flate2::write::ZlibEncoder::new(&mut data, flate2::Compression::fast());
        std::io::Write::write_all(&mut packer, &unpacked).unwrap();
        packer.finish().unwrap();
        let data = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: data };
        let document =
            bson::doc! {"_id": bson::DateTime::from_millis(1_777_629_600_000), "type": 1, "data": data};
        out.extend(document.to_vec().unwrap());
    }
    out
}

fn flush_zeros(out: &mut Vec<u8>, zeros: &mut u64) {
    if *zeros > 0 {
        out.push(0);
        varint(out, *zeros - 1);
        *zeros = 0;
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The integers of a sample, depth first.
fn numbers(sample: &bson::Document) -> Vec<i64> {
    let of = |value: &bson::Bson| match value {
        bson::Bson::Int64(number) => vec![*number],
        bson::Bson::DateTime(date) => vec![date.timestamp_millis()],
        bson::Bson::Document(inner) => numbers(inner),
        other => panic!("{other}"),
    };
    sample.values().flat_map(of).collect()
}

/// A sample of a server that has been running since its clock showed `from_ms`.
fn sample(time_ms: i64, from_ms: i64, queries: i64) -> bson::Document {
    bson::doc! {
        "start": bson::DateTime::from_millis(time_ms),
        "serverStatus": {"pid": 1_i64, "uptimeMillis": time_ms - from_ms, "opcounters": {"query": queries}},
    }
}

#[test]
fn samples_after_the_clock_was_set_back_are_shown_and_so_is_the_step() {
    let begin = 1_777_629_600_000;
    // A minute, then the clock goes back by half a minute, to the same full seconds.
    let times: Vec<i64> = (0..60).chain(30..90).map(|second| begin + second * 1_000).collect();
    let samples: Vec<_> =
        times.iter().zip(1_000..).map(|(time, queries)| sample(*time, begin - 1_000_000, queries)).collect();
    let folder = Folder::new("ftdc-clock");
    for (name, chunks) in
        [("one", vec![samples.clone()]), ("two", vec![samples[..60].to_vec(), samples[60..].to_vec()])]
    {
        let file = folder.file(name, &diagnostic_data(&chunks));
        let file = file.to_str().unwrap();
        let report = report(&[file]);
        let counts = (&report["samples"], &report["reading"]["samples_repeated"]);
        // To the first sample after the step there is no step forward, so it gives no figures.
        assert_eq!(counts, (&119.into(), &0.into()), "{name}");
        let kinds: Vec<_> =
            report["incidents"].as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["clock_back"], "{name}: {}", report["incidents"]);
        let exported = ftdc(&["export", "--metric", "serverStatus.opcounters", file]);
        assert_eq!(text(&exported.stdout).lines().count(), 120, "{name}");
        // The same file under another name repeats all of them.
        let again = folder.file("again", &diagnostic_data(&chunks));
        let exported =
            ftdc(&["export", "--metric", "serverStatus.opcounters", file, again.to_str().unwrap()]);
        assert_eq!(text(&exported.stdout).lines().count(), 120, "{name}");
    }
}

#[test]
fn the_span_goes_from_the_earliest_to_the_latest_sample() {
    let begin = 1_777_629_600_000;
    // The clock goes back to before the first sample.
    let times = (600..660).chain(0..60).map(|second| begin + second * 1_000);
    let samples: Vec<_> =
        times.zip(1_000..).map(|(time, queries)| sample(time, begin - 1_000_000, queries)).collect();
    let folder = Folder::new("ftdc-span");
    let file = folder.file("metrics", &diagnostic_data(&[samples]));
    let report = report(&[file.to_str().unwrap()]);
    let ns = |ms: i64| Value::from(ms * 1_000_000);
    assert_eq!(
        (&report["about"]["start_ns"], &report["about"]["end_ns"]),
        (&ns(begin), &ns(begin + 659_000))
    );
}

#[test]
fn a_file_without_a_start_is_exported_whole() {
    let folder = Folder::new("ftdc-no-start");
    let without = |timed: bool| -> Vec<u8> {
        let one = |at: i64| {
            let mut status = bson::doc! {"pid": 1_i64, "opcounters": {"query": at / 2}};
            if timed {
                status.insert("localTime", bson::DateTime::from_millis(1_777_629_600_000 + at * 1_000));
            }
            bson::doc! {"serverStatus": status}
        };
        diagnostic_data(&[(0..101).map(one).collect()])
    };
    for timed in [true, false] {
        let file = folder.file("metrics", &without(timed));
        let file = file.to_str().unwrap();
        let exported = ftdc(&["export", "--metric", "*.query", file]);
        assert_eq!(exported.status.code(), Some(0), "{exported:?}");
        let rows = lines(&exported);
        assert_eq!(rows.len(), 101);
        let last = if timed { serde_json::json!(1_777_629_700_000_u64) } else { Value::Null };
        assert_eq!(
            (&rows[100]["time_ms"], &rows[100]["metrics"]["serverStatus.opcounters.query"]),
            (&last, &50.into())
        );
        // Half of the samples have the figures of the one before; nothing but their place tells them apart.
        let report = ftdc(&["report", file]);
        assert_eq!(report.status.code(), Some(if timed { 0 } else { 1 }), "{report:?}");
        if !timed {
            assert!(text(&report.stderr).contains("101 samples without a time"), "{report:?}");
            let range = ftdc(&["export", "--from", "2026-01-01", "--metric", "*.query", file]);
            assert_eq!(range.status.code(), Some(1), "{range:?}");
        }
    }
}
