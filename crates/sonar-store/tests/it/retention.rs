//! What is removed: what is too old, counted from the newest data, and what is too much.

use std::fs;
use std::path::Path;

use crate::common::*;
use sonar_core::history::{HistoryReader, HistoryWriter, Resolution, StoreNotice};
use sonar_store::{SqliteHistory, StoreSettings};

const DAY_S: u64 = 86_400;

fn settings() -> StoreSettings {
    StoreSettings { durable: false, min_free_bytes: Some(0), ..StoreSettings::default() }
}

/// The number of windows of each resolution that are stored for a day, or `None` without a file.
fn stored(dir: &Path, day: u64) -> Option<[usize; 3]> {
    let name = at(DAY + day * DAY_S).to_string();
    let path = dir.join(format!("{}.db", &name[..10]));
    path.exists().then(|| {
        let file = rusqlite::Connection::open(&path).unwrap();
        [10, 60, 3_600].map(|width| {
            let sql = "SELECT COUNT(*) FROM windows WHERE width = ?";
            file.query_row(sql, [width], |row| row.get::<_, i64>(0)).unwrap() as usize
        })
    })
}

/// Adds three hours of one window a minute to each of these days.
fn fill(store: &mut SqliteHistory, days: impl IntoIterator<Item = u64>) {
    for day in days {
        for start in (0..3 * 3_600).step_by(60) {
            store.append(&small(DAY + day * DAY_S + start), &[]).unwrap();
        }
    }
}

#[test]
fn each_resolution_is_kept_for_its_days() {
    let dir = tempfile::tempdir().unwrap();
    let mut store =
        SqliteHistory::create(dir.path(), StoreSettings { days: [2, 4, 6], ..settings() }).unwrap();
    fill(&mut store, 0..9);
    drop(store);
    // The newest day is 8; the open hour and minute of the last day are not stored.
    let expected = [
        None,
        None,
        Some([0, 0, 3]),
        Some([0, 0, 3]),
        Some([0, 180, 3]),
        Some([0, 180, 3]),
        Some([180, 180, 3]),
        Some([180, 180, 3]),
        Some([180, 179, 2]),
    ];
    let found: Vec<_> = (0..9).map(|day| stored(dir.path(), day)).collect();
    assert_eq!(found, expected);
    let store = SqliteHistory::open(dir.path()).unwrap();
    for day in 2..9 {
        let from = DAY + day * DAY_S;
        assert_eq!(calls(&store.read(span(from, from + DAY_S)).unwrap().unwrap()), 180, "day {day}");
    }
    assert_eq!(store.extent().unwrap().unwrap().from, at(DAY + 2 * DAY_S));
    // Where only hours are left, they take the place of what was asked for.
    let from = DAY + 3 * DAY_S;
    let hour = store.read(span(from + 600, from + 660)).unwrap().unwrap();
    assert_eq!((hour.window.start, hour.window.end, calls(&hour)), (at(from), at(from + 3_600), 60));
    let mut widths = Vec::new();
    store
        .windows(span(from, from + DAY_S + 120), Resolution::TenSeconds, &mut |window| {
            widths.push(window.window.length_ns())
        })
        .unwrap();
    assert_eq!(widths, [[3_600_000_000_000; 3].as_slice(), &[60_000_000_000; 2]].concat());
}

#[test]
fn a_late_window_of_a_removed_minute_joins_its_hour() {
    let dir = tempfile::tempdir().unwrap();
    let mut store =
        SqliteHistory::create(dir.path(), StoreSettings { days: [1, 2, 6], ..settings() }).unwrap();
    fill(&mut store, 0..5);
    let late = DAY + DAY_S + 3_610;
    store.append(&small(late), &[]).unwrap();
    store.append(&small(DAY + 3 * DAY_S - DAY_S + 10), &[]).unwrap();
    assert_eq!(stored(dir.path(), 1), Some([0, 0, 3]));
    assert_eq!(stored(dir.path(), 2), Some([0, 180, 3]), "the minute takes it");
    let hour = store.read(span(late, late + 10)).unwrap().unwrap();
    assert_eq!(calls(&hour), 61, "the whole hour, with the late window");
}

#[test]
fn a_clock_ten_years_ahead_removes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut store =
        SqliteHistory::create(dir.path(), StoreSettings { days: [2, 4, 6], ..settings() }).unwrap();
    fill(&mut store, 0..4);
    let before: Vec<_> = (0..3).map(|day| stored(dir.path(), day)).collect();
    // Over midnight, so that there are two such days.
    for start in (DAY_S - 600..DAY_S + 600).step_by(10) {
        store.append(&small(DAY + 3_650 * DAY_S + start), &[]).unwrap();
    }
    drop(store);
    let mut store =
        SqliteHistory::create(dir.path(), StoreSettings { days: [2, 4, 6], ..settings() }).unwrap();
    store.append(&small(DAY + 3 * DAY_S + 4 * 3_600), &[]).unwrap();
    let after: Vec<_> = (0..3).map(|day| stored(dir.path(), day)).collect();
    assert_eq!(before, after);
}

/// Nothing is too old.
fn lasting() -> StoreSettings {
    StoreSettings { days: [400; 3], ..settings() }
}

fn bytes(dir: &Path) -> u64 {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn above_the_cap_the_finest_and_oldest_go_first() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(5);
    let mut store = SqliteHistory::create(dir.path(), lasting()).unwrap();
    let mut append = |store: &mut SqliteHistory, day: u64, windows: u64| {
        for number in 0..windows {
            store.append(&window(DAY + day * DAY_S + number * 10, 25, &mut random), &[]).unwrap();
        }
    };
    (0..4).for_each(|day| append(&mut store, day, 90));
    drop(store);
    // What grew in memory is stored when the store is opened again.
    drop(SqliteHistory::create(dir.path(), lasting()).unwrap());
    let full = bytes(dir.path());
    let totals = || {
        let store = SqliteHistory::open(dir.path()).unwrap();
        (0..4)
            .map(|day| {
                store.read(span(DAY + day * DAY_S, DAY + (day + 1) * DAY_S)).unwrap().map(|one| calls(&one))
            })
            .collect::<Vec<_>>()
    };
    let before = totals();

    // A little too much: windows of 10 s of the oldest day.
    let cap = StoreSettings { max_bytes: full - full / 50, ..lasting() };
    let mut store = SqliteHistory::create(dir.path(), cap).unwrap();
    assert_eq!(store.notices(), [StoreNotice::Shrunk(Resolution::TenSeconds, "2026-11-21".to_owned())]);
    assert!(bytes(dir.path()) <= cap.max_bytes);
    assert_eq!(totals(), before, "minutes and hours are still there");
    assert_eq!(stored(dir.path(), 0).unwrap()[0], 0);
    assert_eq!(stored(dir.path(), 1).unwrap()[0], 90);
    drop(store);

    // Much too much: all windows of 10 s, and then minutes, from the oldest on.
    let cap = StoreSettings { max_bytes: full / 4, ..lasting() };
    let mut store = SqliteHistory::create(dir.path(), cap).unwrap();
    let mut notices = store.notices();
    let expected = ["2026-11-22", "2026-11-23", "2026-11-24"]
        .map(|day| StoreNotice::Shrunk(Resolution::TenSeconds, day.to_owned()));
    assert!(notices.starts_with(&expected), "{notices:?}");
    assert!(bytes(dir.path()) <= cap.max_bytes);
    drop(store);

    // Hardly any room: whole days go, and the newest stays.
    let cap = StoreSettings { max_bytes: 100_000, ..lasting() };
    let mut store = SqliteHistory::create(dir.path(), cap).unwrap();
    notices.append(&mut store.notices());
    assert!(notices.contains(&StoreNotice::Shrunk(Resolution::Hour, "2026-11-21".to_owned())));
    assert_eq!(totals()[3], before[3]);
    assert_eq!(totals()[0], None);
    // While it is written to, it stays below the cap, and the hour that is open is whole.
    let cap = StoreSettings { max_bytes: 1_200_000, ..lasting() };
    store.configure(cap);
    let mut added = 0;
    for number in 0..400 {
        let window = window(DAY + 5 * DAY_S + number * 10, 25, &mut random);
        added += calls(&window);
        store.append(&window, &[]).unwrap();
        assert!(bytes(dir.path()) < cap.max_bytes + 4_000_000, "the log is limited");
    }
    assert!(!store.notices().is_empty());
    assert_eq!(calls(&store.read(span(DAY + 5 * DAY_S, DAY + 6 * DAY_S)).unwrap().unwrap()), added);
    assert_eq!(calls_by_level(&store, span(DAY + 5 * DAY_S, DAY + 6 * DAY_S)), [added; 3]);
}

#[test]
fn removed_windows_give_their_room_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(5);
    let mut store =
        SqliteHistory::create(dir.path(), StoreSettings { days: [1, 1, 400], ..settings() }).unwrap();
    for number in 0..240 {
        store.append(&window(DAY + number * 10, 40, &mut random), &[]).unwrap();
    }
    store.append(&small(DAY + DAY_S), &[]).unwrap();
    let path = dir.path().join("2026-11-21.db");
    let before = fs::metadata(&path).unwrap().len();
    fill(&mut store, 2..5);
    let after = fs::metadata(&path).unwrap().len();
    assert!(after * 3 < before, "{before} bytes, and {after} without the windows of 10 s and of minutes");
}
