//! `agent --replay`, killed at random moments: the store opens, has every window but the open one, and each once.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use crate::support::*;
use sonar_core::history::{HistoryReader, HistoryWindow, HistoryWriter, Resolution, Span};
use sonar_core::impact::SplitMix64;
use sonar_core::{Source, Timestamp};
use sonar_store::{SqliteHistory, StoreSettings};

/// 2026-11-20 14:00:00 UTC.
const START: u64 = 1_795_183_200;
/// Windows of 10 s in a replay.
const WINDOWS: u64 = 48;
/// Seconds between two replays into one store: more than one is long, so that each has windows of its own.
const STEP: u64 = 600;

/// A log with slow operations of several shapes in each window, the first of which starts at `start`.
fn log(start: u64) -> String {
    let mut lines = String::new();
    for second in 0..WINDOWS * 10 {
        let at = Timestamp::from_unix(start + second, 250_000_000).unix_ns();
        let (collection, time) = (second % 7, utc(at / 1_000_000_000));
        for number in 0..=second % 3 {
            lines.push_str(&format!(
                "{{\"t\":{{\"$date\":\"{time}.25{number}+00:00\"}},\"s\":\"I\",\"c\":\"COMMAND\",\"id\":51803,\"ctx\":\"conn7\",\
                \"msg\":\"Slow query\",\"attr\":{{\"type\":\"command\",\"ns\":\"shop.c{collection}\",\"appName\":\"carts\",\
                \"command\":{{\"find\":\"c{collection}\",\"filter\":{{\"user\":{number}}},\"$db\":\"shop\"}},\
                \"planSummary\":\"COLLSCAN\",\"keysExamined\":0,\"docsExamined\":{second},\"nreturned\":1,\
                \"durationMillis\":{}}}}}\n",
                100 + second
            ));
        }
    }
    lines
}

/// Seconds since 1970 as `2026-11-20T14:00:00`.
fn utc(seconds: u64) -> String {
    let (day, of_day) = (seconds / 86_400, seconds % 86_400);
    let first = START / 86_400;
    format!(
        "2026-11-{:02}T{:02}:{:02}:{:02}",
        20 + day - first,
        of_day / 3_600,
        of_day / 60 % 60,
        of_day % 60
    )
}

/// The packets of a capture, the first of which was captured within this second.
fn moved(capture: &[u8], second: u64) -> Vec<u8> {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (first, mut moved, mut at) = (word(capture, 24), capture.to_vec(), 24);
    while at < moved.len() {
        let time = word(&moved, at) - first + second as u32;
        moved[at..at + 4].copy_from_slice(&time.to_le_bytes());
        at += 16 + word(&moved, at + 8) as usize;
    }
    moved
}

/// The inputs of a replay that begins at `start`: captures and a log.
struct Inputs {
    capture: Vec<u8>,
    folder: Folder,
}

impl Inputs {
    fn at(&self, start: u64) -> Vec<PathBuf> {
        let mut paths = vec![self.folder.path("mongod.log")];
        std::fs::write(&paths[0], log(start)).unwrap();
        for number in 0..4 {
            let path = self.folder.path(&format!("{number}.pcap"));
            std::fs::write(&path, moved(&self.capture, start + 40 + number * 100)).unwrap();
            paths.push(path);
        }
        paths
    }
}

fn replay(inputs: &[PathBuf], store: &Path) -> std::process::Command {
    let mut command = program(["agent", "--port", "27117", "--store"]);
    command.arg(store).arg("--replay").args(inputs);
    command
}

/// What must be the same wherever a window lies: how many seconds after the start of the replay it begins, and the
/// operations and their time by source.
type Figures = (u64, Vec<(Source, u64, u128)>);

fn figures(window: &HistoryWindow, start: u64) -> Figures {
    let offset = (window.window.start.unix_ns() / 1_000_000_000).saturating_sub(start);
    let by_source = Source::ALL.map(|source| {
        let rows = window.window.shapes.iter().filter_map(|row| row.observed_by(source));
        let of = |(calls, ns): (u64, u128), figures: &sonar_core::Figures| {
            (calls + figures.calls, ns + figures.latency.sum_ns())
        };
        let (calls, ns) = rows.map(|one| &one.figures).fold((0, 0), of);
        (source, calls, ns)
    });
    (offset, by_source.to_vec())
}

/// The windows of a replay that began at `start`.
fn windows(store: &SqliteHistory, start: u64) -> Vec<Figures> {
    let mut windows = Vec::new();
    let span = span(start, start + STEP);
    store.windows(span, Resolution::TenSeconds, &mut |window| windows.push(figures(&window, start))).unwrap();
    windows
}

fn span(from: u64, to: u64) -> Span {
    Span { from: Timestamp::from_unix(from, 0), to: Timestamp::from_unix(to, 0) }
}

/// The operations of a replay by resolution.
fn totals(store: &SqliteHistory, start: u64) -> [u64; 3] {
    let hours = span(start / 3_600 * 3_600, (start + STEP).next_multiple_of(3_600));
    Resolution::ALL.map(|resolution| {
        let mut calls = 0;
        store
            .windows(hours, resolution, &mut |window| {
                calls += figures(&window, start).1.iter().map(|(_, calls, _)| calls).sum::<u64>();
            })
            .unwrap();
        calls
    })
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{output:?}");
}

/// A few kills, or as many as `REPLAY_KILLS` says.
#[test]
fn a_replay_that_is_killed_loses_at_most_the_open_window() {
    let kills: u64 = std::env::var("REPLAY_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(24);
    let folder = Folder::new("kills");
    let inputs = Inputs { capture: unpacked("mongod-4.4-minutes"), folder: Folder::new("kills-inputs") };
    let files = inputs.at(START);
    let began = Instant::now();
    succeeded(&replay(&files, &folder.path("undisturbed")).output().unwrap());
    let usual = began.elapsed();
    let undisturbed = SqliteHistory::open(&folder.path("undisturbed")).unwrap();
    let expected = windows(&undisturbed, START);
    assert_eq!(expected.len() as u64, WINDOWS);
    assert!(expected.iter().filter(|(_, of)| of[0].1 > 100).count() >= 4, "captures: {expected:?}");

    let settings = || StoreSettings { durable: false, min_free_bytes: Some(0), ..StoreSettings::default() };
    let store = folder.path("store");
    let mut random = SplitMix64(kills);
    let (mut none, mut parts, mut complete) = (0, 0, 0);
    for round in 1..=kills {
        let start = START + round * STEP;
        let mut child = replay(&inputs.at(start), &store).spawn().unwrap();
        // span: until a random moment
        std::thread::sleep(Duration::from_micros(random.below(usual.as_micros() as u64 * 6 / 5)));
        // What a reader finds was stored, and stays.
        let before = SqliteHistory::open(&store).map_or_else(|_| Vec::new(), |store| windows(&store, start));
        child.kill().unwrap();
        child.wait().unwrap();
        if !store.is_dir() {
            continue;
        }
        // First as a reader finds it, which cannot repair anything.
        let reader = SqliteHistory::open(&store).unwrap();
        let found = windows(&reader, start);
        assert_eq!(
            found,
            expected[..found.len()],
            "round {round}: windows up to where it was killed, each once"
        );
        assert!(found.starts_with(&before), "round {round}: it lost windows that were stored");
        let levels = totals(&reader, start);
        assert_eq!(levels, [levels[0]; 3], "round {round}: levels disagree");
        drop(reader);
        let mut writer = SqliteHistory::create(&store, settings()).unwrap();
        assert_eq!(writer.notices(), [], "round {round}");
        assert_eq!(
            (windows(&writer, start), totals(&writer, start)),
            (found.clone(), levels),
            "round {round}"
        );
        match found.len() as u64 {
            0 => none += 1,
            WINDOWS => complete += 1,
            _ => parts += 1,
        }
    }
    println!("{kills} kills: {none} before the first window, {parts} between, {complete} after the last");
    assert!(parts > kills / 10, "{parts} of {kills} within a replay");

    let start = START + (kills + 1) * STEP;
    succeeded(&replay(&inputs.at(start), &store).output().unwrap());
    let store = SqliteHistory::open(&store).unwrap();
    assert_eq!(windows(&store, start), expected, "a complete replay is as if there had been no kills");
}
