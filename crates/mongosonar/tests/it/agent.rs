//! `agent`: what it stores is what the separate commands give on the same input.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::*;
use serde_json::Value;
use sonar_core::files::{AccessKind, IoAccess, IoLosses};
use sonar_core::history::{CollectorKind, EventKind, Resolution, SeriesSubject, Span, metrics};
use sonar_core::row::Row;
use sonar_core::{Class, Endpoint, HistoryReader, HistoryWindow, Role, Source, Timestamp};
use sonar_decode::io_file::{FileEntry, RecordingWriter};
use sonar_store::SqliteHistory;

/// Seven seconds on the wire and forty of the log of the same server, and its `diagnostic.data` of four minutes.
const WIRE: &str = "mongod-4.4-minutes/wire.pcap.gz";
const LOG: &str = "mongod-4.4-minutes/mongod.log.gz";
const DIAGNOSTIC: &str = "ftdc/day";

fn path(name: &str) -> String {
    fixture(name).to_str().unwrap().to_owned()
}

fn replay(inputs: &[&str], store: &Path) -> Output {
    let store = store.to_str().unwrap();
    let words = ["agent", "--json", "--store", store, "--replay"];
    program(words.iter().chain(inputs)).output().unwrap()
}

fn summary_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// Everything in a store.
fn stored(store: &Path) -> (HistoryWindow, SqliteHistory) {
    let store = SqliteHistory::open(store).unwrap();
    let extent = store.extent().unwrap().unwrap();
    (store.read(extent).unwrap().unwrap(), store)
}

fn local(port: u16) -> Endpoint {
    Endpoint::v4([0; 4], port)
}

/// The figures of a row, as its JSON has them: calls, errors, bytes, documents, latency.
type RowFigures = BTreeMap<&'static str, u64>;
/// Role, class and shape.
type WireKey = (String, String, String);

fn class(name: &str) -> Class {
    Class::ALL.into_iter().find(|class| class.name() == name).unwrap()
}

fn of_row(row: &Row, source: Source) -> RowFigures {
    let figures = &row.observed_by(source).unwrap().figures;
    let latency = &figures.latency;
    let mut found: RowFigures =
        figures.sums().iter().filter_map(|(name, sum)| Some((*name, sum.get()?))).collect();
    found.insert("calls", figures.calls);
    found.insert("latency_count", latency.count());
    found.insert("latency_sum", u64::try_from(latency.sum_ns()).unwrap());
    found
}

/// Adds the figures of a row of a report's JSON to those of its key.
fn add_reported(row: &Value, to: &mut RowFigures) {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    *to.entry("calls").or_default() += number(&row["calls"]);
    *to.entry("latency_count").or_default() += number(&row["latency_ns"]["count"]);
    *to.entry("latency_sum").or_default() += number(&row["latency_ns"]["sum"]);
}

#[test]
fn the_operations_stored_are_those_of_queries() {
    let folder = Folder::new("agent-wire");
    let output = replay(&[&path(WIRE), &path(LOG)], &folder.path("store"));
    assert!(output.status.success(), "{output:?}");
    let (all, _) = stored(&folder.path("store"));
    let mut expected: BTreeMap<WireKey, RowFigures> = BTreeMap::new();
    let words = format!("--log {} --json --class all --role all", path(LOG));
    let report = summary(&read(&fixture(WIRE), &words));
    for row in report["rows"].as_array().unwrap() {
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        let key = (text("role"), text("class"), text("shape_id"));
        // Several addresses of the server are one row in the history.
        add_reported(row, expected.entry(key).or_default());
    }
    let mut found: BTreeMap<WireKey, RowFigures> = BTreeMap::new();
    for row in all.window.shapes.iter().filter(|row| row.observed_by(Source::Wire).is_some()) {
        let key = (row.role.name().to_owned(), row.class.name().to_owned(), row.shape().id.to_string());
        let of_wire = of_row(row, Source::Wire);
        let wanted = ["calls", "latency_count", "latency_sum"];
        for name in wanted {
            *found.entry(key.clone()).or_default().entry(name).or_default() += of_wire[name];
        }
    }
    assert_eq!(found, expected);
    let is_local = |row: &&Row| row.server == local(27_117);
    assert!(all.window.shapes.iter().filter(is_local).count() > 5, "127.0.0.1 and ::1 are one server");
    let coverage: BTreeMap<_, _> = all.window.coverage.iter().map(|(name, _, value)| (name, value)).collect();
    for (name, value) in report["coverage"].as_object().unwrap() {
        assert_eq!(Some(coverage[name.as_str()]), value.as_u64(), "{name}");
    }
    let total = all.window.totals(&Class::ALL);
    assert_eq!(total.calls, report["totals"]["calls"].as_u64().unwrap());
    assert_eq!(summary_of(&output)["collectors"][0]["operations"], report["totals"]["calls"]);
    // From the first to the last packet.
    let seconds = all.observed_ns(CollectorKind::Queries) as f64 / 1e9;
    let reported = report["end_ns"].as_f64().unwrap() - report["start_ns"].as_f64().unwrap();
    assert!((seconds - reported / 1e9).abs() < 1.0, "{seconds} {reported}");
}

#[test]
fn a_store_that_others_can_write_to_is_refused_and_left_as_it_is() {
    let folder = Folder::new("agent-shared");
    let store = folder.path("store");
    std::fs::create_dir(&store).unwrap();
    std::fs::set_permissions(&store, std::fs::Permissions::from_mode(0o777)).unwrap();
    let output = replay(&[&path(LOG)], &store);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("other users can write to {}", store.display())), "{said}");
    assert_eq!(std::fs::read_dir(&store).unwrap().count(), 0);
    std::fs::set_permissions(&store, std::fs::Permissions::from_mode(0o700)).unwrap();
    assert!(replay(&[&path(LOG)], &store).status.success());
}

#[test]
fn slow_operations_of_a_log_stand_in_the_rows_of_their_shapes() {
    let folder = Folder::new("agent-log");
    let output = replay(&[&path(WIRE), &path(LOG)], &folder.path("store"));
    assert!(output.status.success(), "{output:?}");
    let (all, store) = stored(&folder.path("store"));
    let report = program(["logs", "report", "--json", "--class", "all", &path(LOG)]).output().unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let reported = report["rows"].as_array().unwrap();
    let in_log = || all.window.shapes.iter().filter(|row| row.observed_by(Source::Log).is_some());
    assert_eq!(in_log().count(), reported.len());
    for expected in reported {
        let id = expected["shape_id"].as_str().unwrap();
        let row = in_log().find(|row| row.shape().id.to_string() == id).unwrap();
        assert_eq!(
            (row.server, row.role, row.class.name()),
            (local(27_117), Role::Served, expected["class"].as_str().unwrap())
        );
        let figures = of_row(row, Source::Log);
        assert_eq!(Some(figures["calls"]), expected["calls"].as_u64());
        assert_eq!(Some(figures["latency_sum"]), expected["latency_ns"]["sum"].as_u64());
        for (name, sum) in expected["sums"].as_object().unwrap() {
            assert_eq!(figures.get(name.as_str()).copied(), sum[0].as_u64(), "{name}");
        }
        let plans = expected["plans"].as_array().unwrap();
        let stored_plans = row.observed_by(Source::Log).unwrap().figures.server().plans.iter().count();
        assert_eq!(stored_plans, plans.len());
    }
    // The report on reads of the wire is in the same row.
    assert!(
        in_log().any(|row| row.observed_by(Source::Wire).is_some()),
        "an aggregate that was captured, too"
    );
    let reading: BTreeMap<_, _> = all.reading.iter().map(|(name, _, value)| (name, value)).collect();
    for (name, value) in report["reading"].as_object().unwrap() {
        assert_eq!(Some(reading[name.as_str()]), value.as_u64(), "{name}");
    }
    // Its log was rotated, 150 connections had just been opened at once, and the profiler was switched on.
    let events = store.events(store.extent().unwrap().unwrap()).unwrap();
    assert!(events.iter().all(|event| event.server == local(27_117)), "{events:?}");
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    assert!(kinds.contains(&EventKind::ProfilerChange), "{events:?}");
}

#[test]
fn the_series_stored_are_the_figures_of_ftdc_report() {
    let folder = Folder::new("agent-ftdc");
    let output = replay(&[&path(DIAGNOSTIC)], &folder.path("store"));
    assert!(output.status.success(), "{output:?}");
    let (all, store) = stored(&folder.path("store"));
    let report = program(["ftdc", "report", "--json", &path(DIAGNOSTIC)]).output().unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let figures = report["figures"].as_array().unwrap();
    assert!(figures.len() > 40);
    for figure in figures {
        let id = figure["id"].as_str().unwrap();
        let key = metrics::find(id).unwrap().key(local(27_117), "");
        let value = all.series.get(&key).unwrap_or_else(|| panic!("{id}"));
        // A bucket of the trend is a second, and so is a sample: time, and the value as smallest, mean and largest.
        let trend = figure["trend"]["buckets"].as_array().unwrap();
        let values: Vec<f64> = trend.iter().map(|bucket| bucket[2].as_f64().unwrap()).collect();
        let (min, max) = (
            values.iter().copied().fold(f64::MAX, f64::min),
            values.iter().copied().fold(f64::MIN, f64::max),
        );
        let is_near = |a: f64, b: f64| (a - b).abs() <= a.abs().max(b.abs()) * 1e-9;
        assert!(is_near(value.max, max) && is_near(value.min, min), "{id}: {value:?} {min} {max}");
        assert!(value.seconds > 0.0 && value.seconds <= 289.5, "{id}: {}", value.seconds);
    }
    // A sample a second.
    assert_eq!(all.observed_ns(CollectorKind::Internals) / 1_000_000_000, 288);
    let events = store.events(store.extent().unwrap().unwrap()).unwrap();
    let incidents = report["incidents"].as_array().unwrap();
    assert_eq!(events.len(), incidents.len());
    assert_eq!(
        (events[0].kind, &*events[0].text),
        (EventKind::StateChange, incidents[0]["words"].as_str().unwrap())
    );
    // The index was dropped at 21:24:02.8 and built again twenty seconds later.
    let at = |seconds: u64| Timestamp::from_unix(1_795_296_000 + seconds, 0);
    let examined = |from, to| {
        let window = store.read(Span { from: at(from), to: at(to) }).unwrap().unwrap();
        let key = metrics::find("queries.docs_per_returned").unwrap().key(local(27_117), "");
        window.series[&key].max
    };
    assert!(examined(250, 260) > 100.0 && examined(220, 230) < 50.0);
}

/// A recording of two reads and a write of one file within two windows.
fn recording(start: Timestamp) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = RecordingWriter::begin(&[("source", "test")], &mut out);
    let path = "/tmp/rec/day/primary/db/collection-7.wt";
    writer.file(&FileEntry { file: 1, device: 0, inode: 0, path }, &mut out);
    for (after_s, kind, given) in
        [(0, AccessKind::Read, 4_096), (4, AccessKind::Read, 8_192), (12, AccessKind::Write, 1_000)]
    {
        let access = IoAccess {
            start: start.plus_ns(after_s * 1_000_000_000),
            latency_ns: 2_000_000,
            thread: 5,
            file: 1,
            kind,
            offset: 0,
            asked: given,
            given,
            error: 0,
            device_bytes: Some(given),
        };
        writer.access(&access, &mut out);
    }
    writer.end(&IoLosses::default(), &mut out);
    out
}

#[test]
fn accesses_to_files_become_series_of_their_server() {
    let folder = Folder::new("agent-files");
    let start = Timestamp::from_unix(1_795_296_410, 0);
    let recorded = folder.file("reads.msio", &recording(start));
    let output = replay(&[recorded.to_str().unwrap(), &path(DIAGNOSTIC)], &folder.path("store"));
    assert!(output.status.success(), "{output:?}");
    let (_, store) = stored(&folder.path("store"));
    let mut windows = Vec::new();
    let span = Span { from: start, to: start.plus_ns(20_000_000_000) };
    store.windows(span, Resolution::TenSeconds, &mut |window| windows.push(window)).unwrap();
    let [first, second] = &windows[..] else { panic!("{}", windows.len()) };
    // The folder of the data is known from diagnostic.data.
    let key =
        |metric: metrics::SeriesMetric| metric.key(local(27_117), "/tmp/rec/day/primary/db/collection-7.wt");
    let total =
        |window: &HistoryWindow, metric| window.series.get(&key(metric)).map(|value| value.weighted.round());
    assert_eq!(total(first, metrics::FILE_READS), Some(2.0));
    assert_eq!(total(first, metrics::FILE_READ_BYTES), Some(12_288.0));
    assert_eq!(total(first, metrics::FILE_DEVICE_READ_BYTES), Some(12_288.0));
    assert_eq!(first.series[&key(metrics::FILE_READ_TIME)].mean(), Some(2.0));
    assert_eq!(total(first, metrics::FILE_WRITES), None);
    assert_eq!(total(second, metrics::FILE_WRITES), Some(1.0));
    assert_eq!(first.observed_ns(CollectorKind::Files), 10_000_000_000);
    assert!(first.series.keys().any(|key| key.subject == SeriesSubject::Server), "joined with the figures");
}

#[test]
fn what_is_stored_already_is_refused_and_nothing_counts_twice() {
    let folder = Folder::new("agent-twice");
    let store = folder.path("store");
    assert!(replay(&[&path(WIRE)], &store).status.success());
    let (before, _) = stored(&store);
    let again = replay(&[&path(WIRE)], &store);
    assert_eq!(again.status.code(), Some(1));
    let message = text(&again.stderr);
    assert!(message.contains("has windows of 2026-11-21T21:26:50Z already"), "{message}");
    assert!(message.contains("--store DIR"), "{message}");
    let (after, _) = stored(&store);
    assert_eq!(after.window.totals(&Class::ALL).calls, before.window.totals(&Class::ALL).calls);
    // Another time goes into the same store.
    let other = replay(&[&path("mongod-4.4-oplog/wire.pcap.gz")], &store);
    assert!(other.status.success(), "{other:?}");
}

#[test]
fn damaged_input_is_stored_up_to_the_damage_and_named() {
    let folder = Folder::new("agent-damage");
    let whole = unpacked("mongod-4.4-minutes");
    let cut = folder.file("cut.pcap", &whole[..whole.len() / 2]);
    let output = replay(&[cut.to_str().unwrap()], &folder.path("store"));
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let summary = summary_of(&output);
    assert!(summary["notes"][0].as_str().unwrap().contains("cut.pcap"), "{summary}");
    assert!(summary["collectors"][0]["operations"].as_u64().unwrap() > 100);
    assert_eq!(stored(&folder.path("store")).0.window.coverage.files_damaged, 1);
}

#[test]
fn wrong_input_is_answered_with_what_is_accepted() {
    let folder = Folder::new("agent-wrong");
    let store = folder.path("store").to_str().unwrap().to_owned();
    for (words, code, parts) in [
        (vec!["--replay", "/no/such/file"], 1, ["cannot open /no/such/file", ""]),
        (vec!["--replay", "fixtures/README.md"], 1, ["captures, logs, diagnostic.data", "io record"]),
        (vec!["--once", "-1s"], 2, ["not a duration", "10s"]),
        (vec!["--once", "1s", "--replay", "x"], 2, ["cannot be used with", ""]),
        (vec!["--port", "5"], 2, ["--replay", ""]),
    ] {
        let words = [&["agent", "--store", &store][..], &words].concat();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let output = program(&words).current_dir(root).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {output:?}");
        let message = text(&output.stderr);
        assert!(parts.iter().all(|part| message.contains(part)), "{words:?}: {message}");
    }
    let log = folder.file("mongod.log", &inflated(LOG));
    let output = program(["agent", "--store", &store, "--replay", log.to_str().unwrap()]).output().unwrap();
    // Its log was rotated, and after that the server wrote its options.
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_log_that_does_not_state_its_port_needs_the_option() {
    let folder = Folder::new("agent-port");
    let lines = String::from_utf8(inflated(LOG)).unwrap();
    let without: String =
        lines.lines().filter(|line| line.contains("Slow query")).map(|line| format!("{line}\n")).collect();
    let log = folder.file("mongod.log", without.as_bytes());
    let store = folder.path("store").to_str().unwrap().to_owned();
    let words = ["agent", "--store", &store, "--replay", log.to_str().unwrap()];
    let output = program(words).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("state it with --port"), "{output:?}");
    let output = program(words.iter().chain(&["--port", "27017"])).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (all, _) = stored(Path::new(&store));
    assert!(all.window.shapes.iter().all(|row| row.server == local(27_017) && row.class == class("user")));
}

/// A log with a slow operation in each of `seconds` seconds.
fn log_of_seconds(seconds: u64) -> Vec<u8> {
    let start = 1_790_000_000;
    let line = |second: u64| {
        let time = log_time(start + second);
        format!(
            r#"{{"t":{{"$date":"{time}"}},"s":"I","c":"COMMAND","id":51803,"ctx":"conn7","msg":"Slow query","attr":{{"type":"command","ns":"shop.carts","command":{{"find":"carts","filter":{{"user":1}},"$db":"shop"}},"planSummary":"COLLSCAN","keysExamined":0,"docsExamined":8000,"nreturned":1,"durationMillis":120}}}}"#
        ) + "\n"
    };
    (0..seconds).map(line).collect::<String>().into_bytes()
}

/// A time as logs write it.
fn log_time(second: u64) -> String {
    let time = sonar_view::kit::Zone::utc().show_seconds(Timestamp::from_unix(second, 0)).to_string();
    time.replace('Z', ".000+00:00")
}

fn interrupt(child: &Child) {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Waits, for a minute at most.
fn wait_until(condition: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < until, "it does not come");
        // span: between two looks
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn ctrl_c_keeps_the_windows_that_were_complete_and_says_so() {
    let folder = Folder::new("agent-stopped");
    // Several blocks, which are read ahead.
    let log = folder.file("mongod.log", &log_of_seconds(60_000));
    // A hole of a tebibyte, which nothing reads to its end: a line without an end.
    std::fs::OpenOptions::new().append(true).open(&log).unwrap().set_len(1 << 40).unwrap();
    let store = folder.path("store");
    let words = ["agent", "--json", "--port", "5", "--store", store.to_str().unwrap(), "--replay"];
    let mut command = program(words.iter().chain(&[log.to_str().unwrap()]));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let windows = || {
        let store = SqliteHistory::open(&store).ok()?;
        let span = store.extent().ok()??;
        let mut windows: Vec<HistoryWindow> = Vec::new();
        store.windows(span, Resolution::TenSeconds, &mut |window| windows.push(window)).ok()?;
        (windows.len() > 5).then_some(windows)
    };
    wait_until(|| windows().is_some());
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let summary = summary_of(&output);
    let notes = summary["notes"].to_string();
    assert!(notes.contains("stopped by Ctrl-C; the windows that were complete are stored"), "{notes}");
    let stored = windows().unwrap();
    assert_eq!(summary["windows"].as_u64().unwrap(), stored.len() as u64);
    for window in &stored {
        assert_eq!(window.window.totals(&Class::ALL).calls, 10, "{:?}", window.window.start);
    }
}

#[test]
fn a_minute_that_is_cut_short_is_stored() {
    let folder = Folder::new("agent-once-stopped");
    let config = folder.file(
        "agent.toml",
        b"[collectors]\nqueries = false\nlog = false\ninternals = false\nfiles = false\n",
    );
    let store = folder.path("store");
    let words = ["agent", "--json", "--once", "60s", "--config", config.to_str().unwrap(), "--store"];
    let mut command = program(words.iter().chain(&[store.to_str().unwrap()]));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The machine is read every two seconds.
    let observed_ns = || {
        let status: Value = serde_json::from_slice(&std::fs::read(store.join("agent.json")).ok()?).ok()?;
        let collectors = status["collectors"].as_array()?;
        let last = collectors.iter().find(|one| one["name"] == "machine")?["last_data_ns"].as_u64()?;
        last.checked_sub(status["started_ns"].as_u64()?)
    };
    wait_until(|| observed_ns().is_some_and(|ns| ns >= 4_000_000_000));
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let summary = summary_of(&output);
    assert!(summary["notes"][0].as_str().unwrap().starts_with("stopped by Ctrl-C after "), "{summary}");
    assert!(
        summary["windows"].as_u64().unwrap() >= 1 && summary["values"].as_u64().unwrap() > 10,
        "{summary}"
    );
    assert!(stored(&store).0.observed_ns(CollectorKind::Machine) > 1_000_000_000);
}

#[test]
fn a_service_that_is_stopped_says_so_last() {
    let folder = Folder::new("agent-terminated");
    let config = folder.file(
        "agent.toml",
        b"[collectors]\nqueries = false\nlog = false\ninternals = false\nfiles = false\nsplit = false\n",
    );
    let store = folder.path("store");
    let words = ["agent", "--config", config.to_str().unwrap(), "--store", store.to_str().unwrap()];
    let child = program(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(|| store.join("agent.json").exists());
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = text(&output.stderr);
    let last = said.lines().last().unwrap();
    assert!(
        last.starts_with("mongosonar: stopped by SIGTERM after ") && last.contains(" stored in "),
        "{said}"
    );
}

#[test]
fn the_configuration_is_checked() {
    let folder = Folder::new("agent-config");
    let check = |content: &str| {
        let file = folder.file("agent.toml", content.as_bytes());
        program(["agent", "--check-config", "--config", file.to_str().unwrap()]).output().unwrap()
    };
    let valid = check("[store]\nkeep-10s = \"3d\"\n");
    assert!(valid.status.success() && text(&valid.stdout).contains("agent.toml: valid"), "{valid:?}");
    let wrong = check("[store]\nkeep-10s = \"3d\"\n\n[collectors]\nlogs = true\n");
    assert_eq!(wrong.status.code(), Some(2));
    let message = text(&wrong.stderr);
    for part in ["agent.toml, line 5: collectors.logs", "expected one of", "internals"] {
        assert!(message.contains(part), "{message}");
    }
    let json = |file: &str| {
        let output = program(["agent", "--check-config", "--json", "--config", file]).output().unwrap();
        (output.status.code(), serde_json::from_slice::<Value>(&output.stdout).unwrap())
    };
    let (code, valid) = json(folder.path("agent.toml").to_str().unwrap());
    assert_eq!((code, &valid["schema"], &valid["kind"]), (Some(2), &1.into(), &"agent_config".into()));
    assert_eq!((&valid["valid"], valid["problem"].is_string()), (&false.into(), true), "{valid}");
    let missing = program(["agent", "--check-config", "--config", "/nonexistent.toml"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn thousands_of_new_shapes_stay_bounded_and_all_are_counted() {
    const OPERATIONS: u64 = 12_000;
    let folder = Folder::new("agent-shapes");
    let line = |number: u64| {
        let at = format!("2026-05-01T10:00:{:02}.{:03}+00:00", number / 2_000, number % 1_000);
        format!(
            r#"{{"t":{{"$date":"{at}"}},"s":"I","c":"COMMAND","id":51803,"ctx":"conn1","msg":"Slow query","attr":{{"type":"command","ns":"t.c","command":{{"find":"c","filter":{{"field{number}":1}},"$db":"t"}},"durationMillis":1}}}}
"#
        )
    };
    let lines: String = (0..OPERATIONS).map(line).collect();
    let log = folder.file("mongod.log", lines.as_bytes());
    let store = folder.path("store");
    let words = ["agent", "--port", "27017", "--store", store.to_str().unwrap(), "--replay"];
    let output = program(words.iter().chain(&[log.to_str().unwrap()])).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (all, _) = stored(&store);
    assert!(all.window.shapes.len() <= 10_064, "{}", all.window.shapes.len());
    assert_eq!(all.window.totals(&Class::ALL).calls, OPERATIONS);
    assert!(all.window.coverage.shapes_folded + all.reading.shapes_folded >= OPERATIONS - 10_000);
}

#[test]
fn the_status_says_that_no_agent_runs() {
    let folder = Folder::new("agent-status");
    let output =
        program(["agent", "--status", "--store", folder.path("").to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no agent runs"), "{output:?}");
}
