//! Rates in views of rows that are not shapes, on the screen, of the samples of servers, of traced operations, and of
//! files: each is a count divided by the time in which it was observed.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::Value;
use sonar_core::files::{FileUsage, IoLosses};
use sonar_core::history::{CollectorKind, HistoryWindow, Resolution};
use sonar_core::internals::{Assessment, Metric, ServerDescription, ServerSample};
use sonar_core::time::NS_PER_S;
use sonar_core::time_split::{Activity, ConnectionSample, ShapeSplit, TimePart};
use sonar_core::{Class, Endpoint, Operation, Role, ShapeInfo, Timestamp};
use sonar_view::files::live::{ActiveFile, FileInterval};
use sonar_view::ftdc::{FtdcReading, FtdcReport};
use sonar_view::kit::{About, Count, Fitting, UNKNOWN, Zone};
use sonar_view::queries::json::{self, ObjectKind};
use sonar_view::queries::live::{App, LiveSettings};
use sonar_view::queries::{Grouping, Selection, WindowReport};
use sonar_view::why::{ServerSourcesJson, SplitCoverageJson, WhyReport, WhyTrace};

use crate::synthetic::{app, operation, shape};

const WIDTH_S: u64 = 10;

/// What a window has: calls of two applications, each with a collection and a host of its own, and for how many of its
/// seconds the wire was observed.
#[derive(Copy, Clone, Debug)]
struct Observed {
    calls: [u64; 2],
    seconds: u64,
}

const NAMES: [&str; 2] = ["api", "web"];

fn window(number: usize, observed: Observed) -> HistoryWindow {
    let start = Timestamp::from_unix(1_700_000_000 + number as u64 * WIDTH_S, 0);
    let mut window = HistoryWindow::new(start, Resolution::TenSeconds);
    window.observe(CollectorKind::Queries, observed.seconds * NS_PER_S);
    window.observe(CollectorKind::Machine, WIDTH_S * NS_PER_S);
    for (at, name) in NAMES.into_iter().enumerate() {
        let shape = shape(1 + at as u64, "find", &format!("shop.{name}"), "{}", "{}");
        let app = app(name, "rust", "3");
        for call in 0..observed.calls[at] {
            let client = Endpoint::v4([10, 0, 0, at as u8], 40_000);
            let operation = operation(&shape, &app, start.plus_ns(call * 1_000_000));
            window.window.record(&Operation { client, latency_ns: Some(3_000_000), ..operation });
        }
    }
    window.state_observed();
    window
}

fn windows() -> impl Strategy<Value = Vec<Observed>> {
    let one = (0u64..40, 0u64..40, 0u64..=WIDTH_S).prop_map(|(one, other, seconds)| Observed {
        calls: if seconds == 0 { [0; 2] } else { [one, other] },
        seconds,
    });
    proptest::collection::vec(one, 1..20)
}

/// The calls of each application by the observed seconds; `None` if nothing was observed.
fn expected(all: &[Observed]) -> [Option<f64>; 2] {
    let seconds: u64 = all.iter().map(|one| one.seconds).sum();
    [0, 1].map(|at| {
        let calls: u64 = all.iter().map(|one| one.calls[at]).sum();
        (seconds > 0).then(|| calls as f64 / seconds as f64)
    })
}

/// What was done with a file.
#[derive(Copy, Clone, Debug)]
struct Accesses {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
    syncs: u64,
}

fn accesses() -> impl Strategy<Value = Accesses> {
    let some = || prop_oneof![Just(0), 1u64..2_000_000];
    (some(), 0u64..1 << 20, some(), 0u64..1 << 20, some()).prop_map(
        |(reads, read, writes, written, syncs)| {
            let (read_bytes, write_bytes) = (reads * read, writes * written);
            Accesses { reads, read_bytes, writes, write_bytes, syncs }
        },
    )
}

fn usage(of: Accesses) -> FileUsage {
    let Accesses { reads, read_bytes, writes, write_bytes, syncs } = of;
    FileUsage { reads, read_bytes, writes, write_bytes, syncs, ..FileUsage::default() }
}

fn is_close(rate: f64, expected: f64) -> bool {
    (rate - expected).abs() <= 1e-9 * expected.abs().max(1.0)
}

fn screen(app: &mut App) -> String {
    let mut terminal = Terminal::new(TestBackend::new(200, 40)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    terminal.backend().to_string()
}

proptest! {
    #[test]
    fn rates_of_namespaces_applications_and_clients_are_calls_by_observed_seconds(all in windows()) {
        let mut stored = all.iter().enumerate().map(|(number, one)| window(number, *one));
        let mut merged = stored.next().unwrap();
        stored.for_each(|next| merged.merge(&next));
        let expected = expected(&all);
        for by in [Grouping::Namespace, Grouping::App, Grouping::Client] {
            let selection = Selection { by, ..Selection::default() };
            let report = WindowReport::new(&merged.window, &selection);
            let mut bytes = Vec::new();
            json::report(&report, ObjectKind::Summary, &mut bytes).unwrap();
            let document: Value = serde_json::from_slice(&bytes).unwrap();
            for row in document["rows"].as_array().unwrap() {
                let name = ["namespace", "app", "client"].map(|name| row[name].as_str().unwrap_or_default()).concat();
                let at = match name.as_str() {
                    "shop.api" | "api" | "10.0.0.0" => 0,
                    "shop.web" | "web" | "10.0.0.1" => 1,
                    other => panic!("{other}"),
                };
                let expected = expected[at].unwrap();
                prop_assert!(is_close(row["calls_per_s"].as_f64().unwrap(), expected), "{row} {expected}");
                prop_assert!(is_close(row["load"].as_f64().unwrap(), expected * 0.003), "{row} {expected}");
            }
        }
    }

    #[test]
    fn rates_on_the_screen_are_calls_by_observed_seconds(all in windows()) {
        // All windows are recent enough.
        let settings = LiveSettings { span_ns: u64::MAX, ..LiveSettings::default() };
        let mut app = App::new(settings);
        all.iter().enumerate().for_each(|(number, one)| app.window(window(number, *one).window));
        // Rounded as the view does.
        let seconds: u64 = all.iter().map(|one| one.seconds).sum();
        let per_second = 1.0 / seconds as f64;
        let known = |count: f64| match seconds {
            0 => UNKNOWN.to_owned(),
            _ => Count(count * per_second).to_string(),
        };
        let calls = [0, 1].map(|at| all.iter().map(|one| one.calls[at]).sum::<u64>());
        let sum = calls[0] + calls[1];
        let [rate, load] = [sum as f64, (3_000_000 * sum) as f64 / 1e9].map(known);
        let line = format!(" {rate} queries per second  load {load}  errors ");
        let mut shown = vec![screen(&mut app)];
        // The same, from the start on.
        app.key(KeyEvent::new(KeyCode::Char('t'), KeyModifiers::NONE));
        shown.push(screen(&mut app));
        for shown in shown {
            prop_assert!(shown.contains(&line), "{line} in {shown}");
            for (name, calls) in NAMES.into_iter().zip(calls).filter(|(_, calls)| *calls > 0) {
                let row = shown.lines().find(|row| row.contains(&format!("shop.{name}"))).unwrap_or_default();
                let first = row.trim_matches('"').trim_start_matches(|c: char| !c.is_ascii_digit());
                prop_assert_eq!(first.split_whitespace().next(), Some(&*known(calls as f64)), "{}", row);
            }
        }
    }

    #[test]
    fn rates_of_a_servers_samples_are_growth_by_the_seconds_between_them(
        steps in proptest::collection::vec((1i64..5, 0i64..5_000), 1..100),
    ) {
        let mut assessment = Assessment::default();
        let (mut second, mut queries, mut expected) = (1_700_000_000, 0, Vec::new());
        let mut add = |second: i64, queries: i64| {
            let mut sample = ServerSample::default();
            for (metric, value) in [
                (Metric::Start, second * 1_000),
                (Metric::Uptime, (second - 1_600_000_000) * 1_000),
                (Metric::Pid, 1),
                (Metric::Queries, queries),
            ] {
                sample.set(metric, Some(value));
            }
            assessment.add(&sample);
        };
        add(second, queries);
        for (seconds, grown) in steps {
            (second, queries) = (second + seconds, queries + grown);
            add(second, queries);
            expected.push((second as u64 * NS_PER_S, grown as f64 / seconds as f64));
        }
        let (server, zone) = (ServerDescription::default(), Zone::utc());
        let report = FtdcReport::new(&assessment, &server, FtdcReading::default(), &zone);
        let figure = report.figures.iter().find(|figure| figure.id == "operations.queries").unwrap();
        prop_assert_eq!(figure.trend.buckets.len(), expected.len());
        for ((at, _, mean, _), (expected_at, rate)) in figure.trend.buckets.iter().zip(&expected) {
            prop_assert_eq!(at, expected_at);
            prop_assert!(is_close(*mean, *rate), "{mean} {rate}");
        }
        let most = expected.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        prop_assert!((figure.max - most).abs() <= 0.02 * most, "{} {most}", figure.max);
    }

    #[test]
    fn operations_at_a_time_are_their_time_by_the_traced_seconds(
        times in proptest::collection::vec((1u64..10, 1u64..2_000), 1..6),
        seconds in 1u64..120,
    ) {
        const MS: u64 = 1_000_000;
        let rows: Vec<ShapeSplit> = times
            .iter()
            .map(|(count, ms)| {
                let mut row = ShapeSplit::new(ShapeInfo::default().into(), Role::Served, Class::User);
                (0..*count).for_each(|_| row.total.record(ms * MS));
                row.split[TimePart::Cpu] = count * ms * MS;
                row
            })
            .collect();
        let started = Timestamp::from_unix(1_700_000_000, 0);
        let ended = started.plus_ns(seconds * NS_PER_S);
        let report = WhyReport::new(&WhyTrace {
            about: About::new(None, Vec::new(), None),
            processes: Vec::new(),
            sample: ConnectionSample::default(),
            seconds: seconds as f64,
            processors: 2,
            limits: Vec::new(),
            wait_weight: 1.0,
            rows: &rows,
            unseen: &[],
            activity: &Activity::since(started).until(ended),
            ended,
            limit: 1,
            file_name: &|_, _| None,
            disks: Vec::new(),
            thread_name: &|_| None,
            threads: Vec::new(),
            unfinished: Vec::new(),
            coverage: SplitCoverageJson::default(),
            server: ServerSourcesJson::default(),
        });
        let ms: u64 = times.iter().map(|(count, ms)| count * ms).sum();
        let expected = ms as f64 / 1e3 / seconds as f64;
        prop_assert!(is_close(report.active, expected), "{} {expected}", report.active);
        let mut text = Vec::new();
        report.text(&mut Fitting::new(&mut text, None)).unwrap();
        let text = String::from_utf8(text).unwrap();
        let cells: Vec<&str> = text
            .lines()
            .skip_while(|line| !line.starts_with("ALL OPERATIONS"))
            .nth(1)
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        prop_assert!(cells.contains(&&*format!("{expected:.2}")), "{expected} in {cells:?}");
    }

    #[test]
    fn rates_of_files_are_what_an_interval_added_by_its_seconds(
        files in proptest::collection::vec((accesses(), accesses(), any::<bool>()), 1..6),
        milliseconds in 1u64..120_000,
    ) {
        // The last interval is as long as the command still ran.
        let seconds = milliseconds as f64 / 1e3;
        let row = |(at, (before, more, is_known)): (usize, &(Accesses, Accesses, bool))| {
            let earlier = usage(*before);
            let mut now = usage(*before);
            now.add(&usage(*more));
            // A file that was opened in the interval had nothing before it.
            let row = match is_known {
                true => ActiveFile::new(format!("file-{at}"), &now, Some(&earlier)),
                false => ActiveFile::new(format!("file-{at}"), &usage(*more), None),
            };
            (row, *more)
        };
        let (rows, added): (Vec<_>, Vec<_>) = files.iter().enumerate().map(row).unzip();
        let interval = FileInterval {
            end_ns: 1,
            seconds,
            rows,
            what: "files",
            devices: Vec::new(),
            losses: IoLosses::default(),
        };
        let rate = |count: u64| Count(count as f64 / seconds).to_string();
        let mut text = Vec::new();
        interval.text(usize::MAX, &mut Fitting::new(&mut text, None)).unwrap();
        let text = String::from_utf8(text).unwrap();
        let sum = |of: fn(&Accesses) -> u64| rate(added.iter().map(of).sum());
        let line = format!(
            "; reads {}/s {}B/s, writes {}/s {}B/s, flushes {}/s",
            sum(|one| one.reads), sum(|one| one.read_bytes), sum(|one| one.writes), sum(|one| one.write_bytes),
            sum(|one| one.syncs),
        );
        prop_assert!(text.lines().next().unwrap().ends_with(&line), "{line} in {text}");
        for (at, one) in added.iter().enumerate().filter(|(_, one)| one.reads + one.writes + one.syncs > 0) {
            let row = text.lines().find(|line| line.ends_with(&format!("file-{at}"))).unwrap_or_default();
            let cells: Vec<&str> = row.split_whitespace().collect();
            let shown = [0, 1, 10, 11, 12].map(|cell| cells[cell].to_owned());
            let counts = [one.reads, one.read_bytes, one.writes, one.write_bytes, one.syncs];
            prop_assert_eq!(shown, counts.map(rate), "{}", row);
        }
        // JSON has what was counted, and the seconds to divide it by.
        let mut bytes = Vec::new();
        interval.json(usize::MAX, &mut bytes).unwrap();
        let document: Value = serde_json::from_slice(&bytes).unwrap();
        prop_assert!(is_close(document["seconds"].as_f64().unwrap(), seconds));
        let reads: u64 = document["files"].as_array().unwrap().iter().map(|one| one["reads"].as_u64().unwrap()).sum();
        prop_assert_eq!(reads, added.iter().map(|one| one.reads).sum::<u64>());
    }
}
