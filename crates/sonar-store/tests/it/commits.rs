//! What is stored together with a window, and what is not.

use std::fs;
use std::path::Path;

use crate::common::*;
use sonar_core::Endpoint;
use sonar_core::history::{Event, EventKind, HistoryReader, HistoryWriter, SourcePositions, StoreNotice};
use sonar_store::{SqliteHistory, StoreSettings};

fn create(dir: &Path) -> SqliteHistory {
    let settings = StoreSettings { durable: false, min_free_bytes: Some(0), ..StoreSettings::default() };
    SqliteHistory::create(dir, settings).unwrap()
}

#[test]
fn positions_of_sources_are_those_of_the_last_window_that_was_stored() {
    let dir = tempfile::tempdir().unwrap();
    let positions = |all: &[(&str, &str)]| -> SourcePositions {
        all.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    };
    let mut store = create(dir.path());
    assert_eq!(store.positions(), positions(&[]));
    let (a, b) = (positions(&[("a", "1"), ("b", "1")]), positions(&[("a", "2")]));
    store.append_with(&small(DAY + 86_400), &[], &a).unwrap();
    // It came late, so the newest position is in the older file.
    store.append_with(&small(DAY + 86_390), &[], &b).unwrap();
    store.append(&small(DAY + 86_410), &[]).unwrap();
    // With a window that is not stored, no position is.
    fs::create_dir(dir.path().join("2026-11-23.db")).unwrap();
    let lost = positions(&[("a", "3"), ("b", "3"), ("c", "3")]);
    store.append_with(&small(DAY + 2 * 86_400), &[], &lost).unwrap_err();
    fs::remove_dir(dir.path().join("2026-11-23.db")).unwrap();
    for _ in 0..2 {
        assert_eq!(store.positions(), positions(&[("a", "2"), ("b", "1")]));
        drop(store);
        store = create(dir.path());
    }
    store.append_with(&small(DAY + 86_420), &[], &positions(&[("a", "4")])).unwrap();
    drop(store);
    // A position that was damaged is none.
    let file = rusqlite::Connection::open(dir.path().join("2026-11-22.db")).unwrap();
    file.execute("UPDATE positions SET value = '5' WHERE name = 'b'", ()).unwrap();
    drop(file);
    assert_eq!(create(dir.path()).positions(), positions(&[("a", "4")]));
}

#[test]
fn events_of_another_day_count_once_however_often_their_window_fails() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = create(dir.path());
    let event =
        |second, text: &str| Event::new(at(DAY + second), EventKind::ServerStart, Endpoint::default(), text);
    let events = [event(86_395, "yesterday"), event(86_403, "today"), event(86_395, "yesterday")];
    // Nothing can be written to the file of the window.
    let blocked = dir.path().join("2026-11-22.db");
    fs::create_dir(&blocked).unwrap();
    for number in 0..3 {
        store.append(&small(DAY + 86_400 + number * 10), &events).unwrap_err();
    }
    fs::remove_dir(&blocked).unwrap();
    let more = [event(86_395, "yesterday"), event(86_396, "later")];
    store.append(&small(DAY + 86_430), &[&events[..], &more].concat()).unwrap();
    let counts = |store: &SqliteHistory| -> Vec<(String, u64)> {
        let events = store.events(span(DAY, DAY + 2 * 86_400)).unwrap();
        events.into_iter().map(|event| (event.text.to_string(), event.count)).collect()
    };
    let expected = [("yesterday", 3), ("later", 1), ("today", 1)];
    let named =
        |all: &[(&str, u64)]| all.iter().map(|(text, n)| ((*text).to_owned(), *n)).collect::<Vec<_>>();
    assert_eq!(counts(&store), named(&expected));
    // What has been written with its window is new when it comes again.
    store.append(&small(DAY + 86_440), &more[1..]).unwrap();
    assert_eq!(counts(&store)[1], ("later".to_owned(), 2));
}

#[test]
fn events_of_another_day_arrive_once_wherever_the_writer_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let event = |second| Event::new(at(DAY + second), EventKind::ServerStart, Endpoint::default(), "");
    let counts = |store: &SqliteHistory| -> Vec<u64> {
        let events = store.events(span(DAY, DAY + 2 * 86_400)).unwrap();
        events.into_iter().map(|event| event.count).collect()
    };
    let [other, own] = ["2026-11-21.db", "2026-11-22.db"].map(|name| dir.path().join(name));
    let mut store = create(dir.path());
    // Nothing can be written to the file of the other day. The window is stored all the same, with its own event.
    fs::create_dir(&other).unwrap();
    store.append(&small(DAY + 86_400), &[event(86_395), event(86_403)]).unwrap();
    store.append(&small(DAY + 86_410), &[event(86_395)]).unwrap();
    drop(store);
    let waiting = fs::read(&own).unwrap();
    fs::remove_dir(&other).unwrap();
    let mut store = create(dir.path());
    assert_eq!(counts(&store), [2, 1], "what waited has arrived");
    store.append(&small(DAY + 86_420), &[event(86_395)]).unwrap();
    assert_eq!(counts(&store), [3, 1]);
    drop(store);
    let rows = |path: &Path, table: &str| -> u32 {
        let file = rusqlite::Connection::open(path).unwrap();
        file.query_row(&format!("SELECT COUNT(*) FROM {table}"), (), |row| row.get(0)).unwrap()
    };
    assert_eq!(rows(&other, "received"), 0, "what waits nowhere any more need not be known");
    // As after a kill between the arrival and the removal of what waited.
    fs::write(&own, waiting).unwrap();
    let file = rusqlite::Connection::open(&other).unwrap();
    file.execute("ATTACH ? AS own", [own.to_str().unwrap()]).unwrap();
    let received = "INSERT INTO received (batch, place) SELECT batch, place FROM own.outgoing";
    assert_eq!(file.execute(received, ()).unwrap(), 2);
    drop(file);
    for _ in 0..2 {
        assert_eq!(counts(&create(dir.path())), [3, 1]);
    }
    assert_eq!((rows(&own, "outgoing"), rows(&other, "received")), (0, 0));
}

#[test]
fn events_of_another_day_that_are_lost_are_reported_once() {
    let dir = tempfile::tempdir().unwrap();
    let event = |second| Event::new(at(DAY + second), EventKind::ServerStart, Endpoint::default(), "4.4.29");
    let [other, own] = ["2026-11-21.db", "2026-11-22.db"].map(|name| dir.path().join(name));
    let mut store = create(dir.path());
    fs::create_dir(&other).unwrap();
    store.append(&small(DAY + 86_400), &[event(86_370), event(86_380), event(86_395)]).unwrap();
    assert_eq!(store.notices(), [], "they wait");
    drop(store);
    fs::remove_dir(&other).unwrap();
    let file = rusqlite::Connection::open(&own).unwrap();
    // Another letter, and a kind that this program does not know.
    file.execute("UPDATE outgoing SET text = '4.4.28' WHERE place = 0", ()).unwrap();
    file.execute("UPDATE outgoing SET kind = 'of 2030', checksum = NULL WHERE place = 1", ()).unwrap();
    drop(file);
    let lost = |store: &mut SqliteHistory, count: &str| {
        let notices = store.notices();
        let [StoreNotice::Damaged(notice)] = &notices[..] else { panic!("{notices:?}") };
        assert!(notice.contains("2026-11-22.db") && notice.contains(count), "{notice}");
        notice.clone()
    };
    let mut store = create(dir.path());
    lost(&mut store, "(2)");
    let day = span(DAY, DAY + 86_400);
    assert_eq!(store.events(day).unwrap(), [event(86_395)], "the whole one has arrived");
    store.append(&small(DAY + 86_410), &[]).unwrap();
    assert_eq!(store.notices(), []);
    // The file of their day is of a newer version.
    let file = rusqlite::Connection::open(&other).unwrap();
    file.pragma_update(None, "user_version", 99).unwrap();
    drop(file);
    store.append(&small(DAY + 86_420), &[event(86_395), event(86_396), event(86_397)]).unwrap();
    let notice = lost(&mut store, "(3)");
    assert!(notice.contains("2026-11-21.db") && notice.contains("update mongosonar"), "{notice}");
    store.append(&small(DAY + 86_430), &[]).unwrap();
    assert_eq!(store.notices(), []);
}

#[test]
fn too_many_events_of_another_day_are_counted_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = create(dir.path());
    fs::create_dir(dir.path().join("2026-11-21.db")).unwrap();
    let event = Event::new(at(DAY + 86_395), EventKind::ServerStart, Endpoint::default(), "");
    store.append(&small(DAY + 86_400), &vec![event; 10_002]).unwrap();
    let events = store.events(span(DAY + 86_400, DAY + 2 * 86_400)).unwrap();
    let told: Vec<(&str, u64)> = events.iter().map(|event| (&*event.text, event.count)).collect();
    assert_eq!(told, [("further events of other days were not stored: there were too many", 2)]);
}

#[test]
fn a_folder_that_was_deleted_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("store");
    let mut store = create(&folder);
    let all = span(DAY, DAY + 86_400);
    store.append(&small(DAY), &[]).unwrap();
    for round in 1..3 {
        fs::remove_dir_all(&folder).unwrap();
        if round == 2 {
            // Somebody else has made it.
            fs::create_dir(&folder).unwrap();
        }
        store.append(&small(DAY + round * 20), &[]).unwrap();
        store.append(&small(DAY + round * 20 + 10), &[]).unwrap();
        let notices = store.notices();
        assert!(
            matches!(&notices[..], [StoreNotice::Damaged(what)] if what.contains("made again")),
            "{notices:?}"
        );
        assert_eq!(calls_by_level(&SqliteHistory::open(&folder).unwrap(), all), [2; 3], "round {round}");
        assert!(SqliteHistory::create(&folder, StoreSettings::default()).is_err(), "it is locked");
    }
    // It cannot be made.
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "").unwrap();
    store.append(&small(DAY + 80), &[]).unwrap_err();
    fs::remove_file(&folder).unwrap();
    store.append(&small(DAY + 90), &[]).unwrap();
    assert_eq!(calls_by_level(&store, all), [1; 3]);
}
