//! What is stored is what is read, at every level.

use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use crate::common::*;
use proptest::prelude::*;
use rustix::fs::inotify;
use rustix::io::Errno;
use sonar_core::history::{
    Event, EventKind, HistoryReader, HistoryWindow, HistoryWriter, ObservedSpan, Resolution, Span,
};
use sonar_core::{Class, Endpoint, Identity, Row, ShapeId, ShapeInfo, Source, Subject};
use sonar_store::{SqliteHistory, StoreError, StoreSettings};

fn settings() -> StoreSettings {
    StoreSettings { durable: false, min_free_bytes: Some(0), ..StoreSettings::default() }
}

fn store(dir: &tempfile::TempDir) -> SqliteHistory {
    SqliteHistory::create(dir.path(), settings()).unwrap()
}

#[test]
fn a_link_in_place_of_the_lock_or_of_a_day_is_not_followed() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let target = elsewhere.path().join("target");
    std::fs::write(&target, "content").unwrap();
    let lock = dir.path().join("lock");
    std::os::unix::fs::symlink(&target, &lock).unwrap();
    let refused = SqliteHistory::create(dir.path(), settings());
    assert!(matches!(refused, Err(StoreError::Io { .. })));
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "content");
    std::fs::remove_file(&lock).unwrap();

    // A database of this program elsewhere, named from the day that is written next.
    let other = tempfile::tempdir().unwrap();
    store(&other).append(&window(DAY + 3_610, 1, &mut Random(1)), &[]).unwrap();
    let is_day = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "db");
    let files = std::fs::read_dir(other.path()).unwrap().map(|entry| entry.unwrap().path());
    let day = files.into_iter().find(is_day).unwrap();
    let before = std::fs::read(&day).unwrap();
    std::os::unix::fs::symlink(&day, dir.path().join(day.file_name().unwrap())).unwrap();
    let mut store = SqliteHistory::create(dir.path(), settings()).unwrap();
    assert!(store.append(&window(DAY + 3_610, 1, &mut Random(2)), &[]).is_err());
    assert_eq!(std::fs::read(&day).unwrap(), before);
}

/// Whoever owns the folder chooses what is in it, and SQLite opens more files than the day.
#[test]
fn a_pipe_or_a_device_in_place_of_a_day_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    store(&dir).append(&window(DAY + 3_610, 1, &mut Random(1)), &[]).unwrap();
    let is_day = |path: &PathBuf| path.extension().is_some_and(|end| end == "db");
    let mut files = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let day = files.find(is_day).unwrap();
    let read = || {
        let store = SqliteHistory::open(dir.path()).unwrap();
        let read = store.windows(span(DAY, DAY + 86_400), Resolution::Hour, &mut |_| {});
        read.map_err(|error| error.to_string())
    };
    assert_eq!(read(), Ok(()));
    for suffix in ["-wal", "-shm", "-journal", ""] {
        let mut pipe = day.clone().into_os_string();
        pipe.push(suffix);
        let _ = fs::remove_file(&pipe);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // The kernel tells who opens it.
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, &pipe, inotify::WatchFlags::OPEN).unwrap();
        let refused = format!("cannot read {}: not a regular file", pipe.display());
        assert_eq!(read(), Err(refused));
        let mut buffer = [MaybeUninit::uninit(); 512];
        let opened = inotify::Reader::new(&watch, &mut buffer).next().map(|event| event.events());
        assert_eq!(opened, Err(Errno::AGAIN), "{suffix}");
        fs::remove_file(&pipe).unwrap();
    }
    std::os::unix::fs::symlink("/dev/null", &day).unwrap();
    assert_eq!(read(), Err("cannot read /dev/null: not a regular file".to_owned()));
}

/// Earlier rules gave `{profile: -1}`, which only asks, the shape of `{profile: 1}`.
#[test]
fn of_a_profile_by_earlier_rules_nobody_knows_whether_it_changed_anything() {
    let dir = tempfile::tempdir().unwrap();
    let of = |id, typed: &str| {
        let (command, typed) = ("profile".into(), typed.into());
        Arc::new(ShapeInfo {
            id: ShapeId(id),
            command,
            database: "shop".into(),
            typed,
            ..ShapeInfo::default()
        })
    };
    {
        let mut store = store(&dir);
        for (number, typed) in ["{}", "{profile: 0}"].into_iter().enumerate() {
            store.append(&small_of(DAY + 10 * number as u64, &of(7 + number as u64, typed)), &[]).unwrap();
        }
    }
    let stored = || {
        let store = SqliteHistory::open(dir.path()).unwrap();
        let window = store.read(span(DAY, DAY + 86_400)).unwrap().unwrap();
        let mut typed: Vec<_> =
            window.window.shapes.iter().map(|row| row.shape().typed.to_string()).collect();
        typed.sort();
        typed
    };
    assert_eq!(stored(), ["{profile: 0}", "{}"]);
    let file = rusqlite::Connection::open(dir.path().join("2026-11-21.db")).unwrap();
    file.execute("UPDATE shapes SET rules = 4", ()).unwrap();
    assert_eq!(stored(), ["?", "{profile: 0}"]);
}

#[test]
fn the_bundled_sqlite_has_no_known_fault_in_its_log() {
    // Two connections could damage a log before 3.51.3 (https://sqlite.org/wal.html).
    let version = rusqlite::version();
    let numbers: Vec<u32> = version.split('.').map(|number| number.parse().unwrap()).collect();
    assert!(numbers >= vec![3, 51, 3], "{version}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 20, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_window_is_read_as_it_was_stored(seed in any::<u64>(), operations in 0u64..400) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = store(&dir);
        let window = window(DAY + 3_610, operations, &mut Random(seed));
        store.append(&window, &[]).unwrap();
        let read = store.read(span(DAY, DAY + 86_400)).unwrap().unwrap();
        prop_assert_eq!(comparable(&read), comparable(&window));
    }

    /// Windows arrive in any order and in parts; the store is closed in between.
    #[test]
    fn an_hour_of_minutes_equals_the_hour_counted_directly(
        seed in any::<u64>(),
        starts in proptest::collection::vec(0u64..720, 1..40),
        closes in proptest::collection::vec(proptest::bool::weighted(0.2), 40),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut random = Random(seed);
        let mut open = Some(store(&dir));
        let mut hours = [0, 1].map(|hour| HistoryWindow::new(at(DAY + hour * 3_600), Resolution::Hour));
        let mut snapshots = [None; 2];
        for (start, closes) in starts.iter().zip(closes) {
            let window = window(DAY + start * 10, random.below(12), &mut random);
            open.as_mut().unwrap().append(&window, &[]).unwrap();
            let hour = (start / 360) as usize;
            let mut without_in_flight = window.clone();
            without_in_flight.window.in_flight.clear();
            hours[hour].merge(&without_in_flight);
            if snapshots[hour] < Some(*start) {
                snapshots[hour] = Some(*start);
                hours[hour].window.in_flight = window.window.in_flight;
            } else if snapshots[hour] == Some(*start) && hours[hour].window.in_flight.is_empty() {
                hours[hour].window.in_flight = window.window.in_flight;
            }
            if closes {
                drop(open.take());
                open = Some(store(&dir));
            }
        }
        let store = open.unwrap();
        let expected: Vec<_> = hours.iter().zip(snapshots).filter(|(_, any)| any.is_some()).map(|(hour, _)| hour).collect();
        let mut read = Vec::new();
        store.windows(span(DAY, DAY + 7_200), Resolution::Hour, &mut |window| read.push(window)).unwrap();
        prop_assert_eq!(read.len(), expected.len());
        for (read, expected) in read.iter().zip(&expected) {
            let (mut read, mut expected) = (comparable(read), comparable(expected));
            // Each 10 s counts at most 10 s of each collector, which the plain sum does not know.
            (read.observed_ns, expected.observed_ns) = Default::default();
            prop_assert_eq!(read, expected);
        }
        let totals = calls_by_level(&store, span(DAY, DAY + 7_200));
        prop_assert_eq!(totals, [totals[0]; 3]);
        let whole = store.read(span(DAY, DAY + 7_200)).unwrap().unwrap();
        prop_assert_eq!(calls(&whole), totals[0]);
    }
}

#[test]
fn late_windows_join_all_levels() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(&dir);
    // Three hours and a bit, then late ones: in the open hour, in the one before, and after a clock that was set back.
    let mut count = 0;
    for start in
        (0..11_000).step_by(10).chain([10_000, 10_780, 7_190, 7_180, 3_600, 3_610, 0, 10_990, 11_000])
    {
        store.append(&small(DAY + start), &[]).unwrap();
        count += 1;
    }
    assert_eq!(calls_by_level(&store, span(DAY, DAY + 86_400)), [count; 3]);
    assert_eq!(calls(&store.read(span(DAY + 3_600, DAY + 7_200)).unwrap().unwrap()), 364);
    assert_eq!(calls(&store.read(span(DAY + 10_000, DAY + 10_010)).unwrap().unwrap()), 2);
    let whole = store.read(span(DAY, DAY + 86_400)).unwrap().unwrap();
    assert_eq!(whole.window.start, at(DAY));
    let observed: u64 = whole.observed_ns.iter().sum();
    assert_eq!(observed, 1_101 * 10_000_000_000, "what is stored twice was observed once");
}

#[test]
fn events_are_found_by_time_and_equal_ones_are_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(&dir);
    let server = Endpoint::v4([0, 0, 0, 0], 27017);
    let event = |second, kind, text| Event::new(at(DAY + second), kind, server, text).about("shop.orders");
    let start = event(86_390, EventKind::ServerStart, "4.4.29");
    let error = event(86_401, EventKind::LogError, "Failed to parse");
    store.append(&small(DAY + 86_390), &[start.clone(), error.clone()]).unwrap();
    let again = Event { at: error.at.plus_ns(3_000_000_000), count: 4, ..error.clone() };
    store.append(&small(DAY + 86_400), &[again]).unwrap();
    let all = store.events(span(DAY, DAY + 90_000)).unwrap();
    assert_eq!(all, [start.clone(), Event { count: 5, ..error }]);
    assert_eq!(store.events(span(DAY + 86_390, DAY + 86_391)).unwrap(), [start]);
    assert_eq!(store.events(span(DAY + 86_391, DAY + 86_401)).unwrap(), []);
}

#[test]
fn the_extent_is_that_of_the_windows() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(&dir);
    assert_eq!(store.extent().unwrap(), None);
    for start in [DAY + 50, DAY + 3_700, DAY + 86_400 + 20] {
        store.append(&small(start), &[]).unwrap();
    }
    assert_eq!(store.extent().unwrap(), Some(span(DAY + 50, DAY + 86_430)));
    drop(store);
    let store = SqliteHistory::open(dir.path()).unwrap();
    assert_eq!(store.extent().unwrap(), Some(span(DAY + 50, DAY + 86_430)));
    assert!(store.read(span(DAY + 100, DAY + 200)).unwrap().is_none());
}

#[test]
fn a_text_is_stored_once_a_day_and_no_file_can_be_read_by_others() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a/b");
    let mut store = SqliteHistory::create(&folder, settings()).unwrap();
    for start in (0..600).step_by(10) {
        store.append(&small(DAY + start), &[]).unwrap();
    }
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    drop(store);
    let bytes = std::fs::read(folder.join("2026-11-21.db")).unwrap();
    let text = b"{filter: {field1: ?string}}";
    assert_eq!(bytes.windows(text.len()).filter(|place| place == text).count(), 1);
}

#[test]
fn a_second_writer_is_refused_and_learns_who_has_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let first = store(&dir);
    let Err(error) = SqliteHistory::create(dir.path(), settings()) else { panic!("two writers") };
    let text = error.to_string();
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    assert!(text.contains(&dir.path().display().to_string()) && text.contains("--store"), "{text}");
    drop(first);
    SqliteHistory::create(dir.path(), settings()).unwrap();
}

#[test]
fn a_reader_reads_beside_a_writer_and_cannot_write() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = store(&dir);
    let mut reader = SqliteHistory::open(dir.path()).unwrap();
    assert!(reader.read(span(DAY, DAY + 60)).unwrap().is_none());
    for start in (0..600).step_by(10) {
        writer.append(&small(DAY + start), &[]).unwrap();
        let read = reader.read(span(DAY, DAY + 600)).unwrap().unwrap();
        assert_eq!(calls(&read), start / 10 + 1);
    }
    let refused = reader.append(&small(DAY), &[]).unwrap_err();
    assert!(matches!(refused.of_store().downcast_ref(), Some(StoreError::ReadOnly(_))));
    assert!(matches!(SqliteHistory::open(&dir.path().join("none")), Err(StoreError::Missing(_))));
}

#[test]
fn two_days_are_two_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(&dir);
    for start in (DAY + 86_000..DAY + 87_000).step_by(10) {
        store.append(&small(start), &[]).unwrap();
    }
    let files = |store: &SqliteHistory| {
        let names = std::fs::read_dir(store.dir()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> =
            names.filter_map(|name| name.into_string().ok()).filter(|name| name.ends_with(".db")).collect();
        names.sort();
        names
    };
    assert_eq!(files(&store), ["2026-11-21.db", "2026-11-22.db"]);
    assert_eq!(calls(&store.read(span(DAY + 86_000, DAY + 87_000)).unwrap().unwrap()), 100);
    assert_eq!(calls_by_level(&store, span(DAY, DAY + 90_000)), [100; 3]);
}

#[test]
fn a_day_that_is_over_is_read_in_one_piece_and_late_windows_join_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(4);
    let mut store = store(&dir);
    let mut total = 0;
    let mut append = |store: &mut SqliteHistory, start: u64| {
        let window = window(start, 5, &mut random);
        total += calls(&window);
        store.append(&window, &[]).unwrap();
        total
    };
    for start in (DAY + 36_000..DAY + 43_200).step_by(600).chain([DAY + 86_400 + 3_600]) {
        append(&mut store, start);
    }
    let pieces = || {
        let file = rusqlite::Connection::open(dir.path().join("2026-11-21.db")).unwrap();
        file.query_row("SELECT COUNT(*) FROM windows WHERE width = 86400", (), |row| row.get::<_, u32>(0))
            .unwrap()
    };
    assert_eq!(pieces(), 1);
    let parts = |store: &SqliteHistory| {
        let mut all: Option<HistoryWindow> = None;
        let mut add = |window: HistoryWindow| match &mut all {
            Some(all) => all.merge(&window),
            None => all = Some(window),
        };
        store.windows(span(DAY, DAY + 86_400), Resolution::Hour, &mut add).unwrap();
        all.unwrap()
    };
    let day = |store: &SqliteHistory| store.read(span(DAY, DAY + 86_400)).unwrap().unwrap();
    let (mut whole, mut hours) = (comparable(&day(&store)), comparable(&parts(&store)));
    assert_eq!(whole.observed_ns, hours.observed_ns);
    (whole.in_flight, hours.in_flight) = Default::default();
    assert_eq!(whole, hours, "also the span: from the first hour to the last");
    // Late, and before what was there.
    let late = append(&mut store, DAY + 7_200);
    assert_eq!(pieces(), 0);
    assert_eq!(calls(&store.read(span(DAY, DAY + 2 * 86_400)).unwrap().unwrap()), late);
    assert_eq!(day(&store).window.start, at(DAY + 7_200));
    drop(store);
    let store = SqliteHistory::create(dir.path(), settings()).unwrap();
    assert_eq!(pieces(), 1);
    assert_eq!(calls(&store.read(span(DAY, DAY + 2 * 86_400)).unwrap().unwrap()), late);
}

#[test]
fn many_windows_at_once_are_those_that_are_read_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(11);
    let mut writer = store(&dir);
    // Three days; windows of 10 s are kept only for the last one.
    for start in (DAY + 79_200..DAY + 2 * 86_400 + 7_200).step_by(1_490) {
        for start in [start, start + 10, start + 60] {
            writer.append(&window(start, 6, &mut random), &[]).unwrap();
        }
    }
    drop(writer);
    let settings = StoreSettings { days: [1, 30, 400], ..settings() };
    let store = SqliteHistory::create(dir.path(), settings).unwrap();
    // Neither end is that of a window.
    let all = span(DAY + 80_003, DAY + 2 * 86_400 + 6_001);
    for resolution in Resolution::ALL {
        let (mut at_once, mut one_by_one, mut observed) = (Vec::new(), Vec::new(), Vec::new());
        store.windows(all, resolution, &mut |window| at_once.push(window)).unwrap();
        store.observed(all, resolution, &mut |window| observed.push(window)).unwrap();
        for window in &at_once {
            let one = Span { from: window.window.start, to: window.window.end };
            store.windows(one, resolution, &mut |window| one_by_one.push(comparable(&window))).unwrap();
        }
        assert!(at_once.is_sorted_by_key(|window| window.window.start) && at_once.len() > 20);
        let expected: Vec<_> = at_once.iter().map(ObservedSpan::of).collect();
        assert_eq!(observed, expected, "{resolution:?}");
        assert_eq!(at_once.iter().map(comparable).collect::<Vec<_>>(), one_by_one, "{resolution:?}");
    }
}

#[test]
fn windows_that_are_put_together_keep_to_their_bytes_and_to_all_totals() {
    let dir = tempfile::tempdir().unwrap();
    let bounded = StoreSettings { window_bytes: 1 << 20, ..settings() };
    let mut store = SqliteHistory::create(dir.path(), bounded).unwrap();
    let mut expected = HistoryWindow::new(at(DAY), Resolution::Hour);
    for number in 0..60 {
        let mut window = small(DAY + number * 60);
        for id in 0..200 {
            let id = ShapeId(1 + 200 * number + id);
            let shape = Arc::new(ShapeInfo { id, typed: "{}".into(), ..ShapeInfo::default() });
            let subject = Subject::Shape { identity: Identity::Exact, shape, order: ShapeId(0) };
            let mut row = Row::new(subject, Class::User);
            row.observed_by_mut(Source::Wire).figures.calls = 1;
            window.window.shapes.add(&row);
        }
        expected.merge(&window);
        store.append(&window, &[]).unwrap();
        assert!(store.memory() <= 2 * bounded.window_bytes, "{}", store.memory());
    }
    assert!(expected.memory() > 4 * bounded.window_bytes, "{}", expected.memory());
    assert_eq!(calls_by_level(&store, span(DAY, DAY + 3_600)), [calls(&expected); 3]);
    // The next hour stores this one.
    store.append(&window(DAY + 3_600, 1, &mut Random(1)), &[]).unwrap();
    drop(store);
    let store = SqliteHistory::create(dir.path(), bounded).unwrap();
    assert_eq!(calls_by_level(&store, span(DAY, DAY + 3_600)), [calls(&expected); 3]);
}
