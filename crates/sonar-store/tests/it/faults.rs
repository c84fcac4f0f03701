//! What goes wrong on real machines: processes are killed, power fails, disks fill up, clocks jump.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::*;
use sonar_core::history::{
    Event, EventKind, HistoryReader, HistoryWindow, HistoryWriter, Resolution, StoreNotice,
};
use sonar_core::{Endpoint, Row};
use sonar_store::{SqliteHistory, StoreError, StoreSettings};

fn settings() -> StoreSettings {
    StoreSettings { durable: false, min_free_bytes: Some(0), ..StoreSettings::default() }
}

fn create(dir: &Path) -> SqliteHistory {
    SqliteHistory::create(dir, settings()).unwrap()
}

/// Where the child of [`killed_at_any_moment_it_loses_at_most_the_open_window`] writes.
const CHILD_STORE: &str = "SONAR_STORE_TEST_CHILD";
/// Set if each window is to be on the disk before it is confirmed.
const CHILD_IS_DURABLE: &str = "SONAR_STORE_TEST_DURABLE";

/// Not a test: the process that is killed. It adds windows until then, and prints each when it is stored.
#[test]
fn child_that_is_killed() {
    let Some(dir) = std::env::var_os(CHILD_STORE) else { return };
    let durable = std::env::var_os(CHILD_IS_DURABLE).is_some();
    let mut store = SqliteHistory::create(Path::new(&dir), StoreSettings { durable, ..settings() }).unwrap();
    let mut random = Random(std::process::id().into());
    let first = store.extent().unwrap().map_or(0, |extent| (extent.to.unix_ns() / 1_000_000_000 - DAY) / 10);
    for number in first.. {
        // Some come late, by up to two hours, and days end.
        let late = if random.below(4) == 0 { random.below(720).min(number) } else { 0 };
        let start = DAY + (number - late) * 10;
        // Also an event of the day before with each. A file of that day would be one more to damage for the other test.
        let event = yesterday(start);
        store.append(&small(start), if durable { &[] } else { std::slice::from_ref(&event) }).unwrap();
        println!("stored");
    }
}

/// An event of the day before this second.
fn yesterday(second: u64) -> Event {
    Event::new(at(second - 86_400), EventKind::ServerStart, Endpoint::default(), "4.4.29")
}

/// The process that adds windows to the store in `dir` until it is killed.
fn child(dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "faults::child_that_is_killed", "--nocapture", "--test-threads=1"]);
    command.env(CHILD_STORE, dir).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// What the child says of the windows that it has stored.
fn confirmations(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let output = BufReader::new(child.stdout.take().unwrap());
    output.lines().map_while(Result::ok).filter(|line| line.ends_with("stored"))
}

#[test]
fn killed_at_any_moment_it_loses_at_most_the_open_window() {
    let dir = tempfile::tempdir().unwrap();
    let rounds: u32 = std::env::var("STORE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let mut random = Random(1);
    let mut confirmed = 0;
    for round in 1..=rounds {
        let mut child = child(dir.path()).spawn().unwrap();
        let mut stored = confirmations(&mut child);
        // Also before the first window.
        if round % 4 > 0 {
            confirmed += stored.by_ref().take(1).count() as u64;
        }
        // span: until a random moment
        std::thread::sleep(Duration::from_micros(random.below(400_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        confirmed += stored.count() as u64;
        let always = span(DAY, DAY + 400 * 86_400);
        // First as a reader finds it, which cannot repair anything.
        let reader = SqliteHistory::open(dir.path()).unwrap();
        let totals = calls_by_level(&reader, always);
        let whole = reader.read(always).unwrap().map_or(0, |window| calls(&window));
        assert_eq!(totals, [whole; 3], "round {round}: levels disagree");
        assert!(
            (confirmed..=confirmed + u64::from(round)).contains(&whole),
            "round {round}: {whole} of {confirmed}"
        );
        let mut store = create(dir.path());
        assert_eq!(calls_by_level(&store, always), totals, "round {round}");
        assert_eq!(store.notices(), [], "round {round}");
        let told = store.events(span(DAY - 86_400, always.to.unix_ns() / 1_000_000_000)).unwrap();
        let told: u64 = told.iter().map(|event| event.count).sum();
        assert_eq!(told, whole, "round {round}: an event of the day before is missing, or is there twice");
    }
    assert!(confirmed > 0, "no child lived long enough");
}

/// Copies a store as a power failure would leave it, while its writer has it open.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        // The shared memory of SQLite does not survive.
        if !name.ends_with("-shm") && name != "lock" {
            fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

/// Size of a page of a database in bytes.
const PAGE: usize = 4_096;

#[test]
fn a_torn_file_is_set_aside_and_the_rest_stays_readable() {
    let original = tempfile::tempdir().unwrap();
    let mut writer = create(original.path());
    let mut random = Random(7);
    let starts: Vec<u64> = (DAY + 86_000..DAY + 86_900).step_by(10).collect();
    for start in &starts {
        if *start == DAY + 86_400 + 300 {
            // What was written before this is in the database, and what follows in its log.
            drop(writer);
            writer = create(original.path());
        }
        writer.append(&window(*start, 4, &mut random), &[]).unwrap();
    }
    let windows_of = |resolution| {
        let (mut windows, always) = (Vec::new(), span(DAY, DAY + 2 * 86_400));
        writer.windows(always, resolution, &mut |window| windows.push(comparable(&window))).unwrap();
        windows
    };
    let expected = windows_of(Resolution::TenSeconds);
    // Where the windows of 10 s are lost, their minute or hour may be left.
    let mut coarser = windows_of(Resolution::Minute);
    coarser.extend(windows_of(Resolution::Hour));
    let yesterday = expected.iter().filter(|window| window.starts_before(DAY + 86_400)).count();
    let (mut damaged, mut kept) = (0, 0);
    for round in 0..30 {
        let dir = tempfile::tempdir().unwrap();
        copy(original.path(), dir.path());
        let is_log = random.below(2) == 1;
        let path = dir.path().join(if is_log { "2026-11-22.db-wal" } else { "2026-11-22.db" });
        let mut bytes = fs::read(&path).unwrap();
        let place = random.below(bytes.len() as u64) as usize;
        match random.below(3) {
            0 => bytes.truncate(place),
            // SQLite checks each page of its log. In a database, whole pages are lost.
            1 if is_log => {
                let end = bytes.len().min(place + 1 + random.below(200) as usize);
                bytes[place..end].iter_mut().for_each(|byte| *byte = random.next() as u8);
            }
            _ => {
                let start = place - place % PAGE;
                let end = bytes.len().min(start + PAGE * (1 + random.below(3) as usize));
                bytes[start..end].fill(0);
            }
        }
        fs::write(&path, bytes).unwrap();

        let mut found = Vec::new();
        let always = span(DAY, DAY + 2 * 86_400);
        let mut read = |store: &SqliteHistory| {
            found.clear();
            store
                .windows(always, Resolution::TenSeconds, &mut |window| found.push(comparable(&window)))
                .unwrap();
            found.iter().filter(|window| window.starts_before(DAY + 86_400)).count()
        };
        let reader = SqliteHistory::open(dir.path()).unwrap();
        assert_eq!(read(&reader), yesterday, "round {round}: a reader reads the other day");
        drop(reader);

        let mut store = create(dir.path());
        // What was not noticed when it was opened is noticed when it is read, and set aside with the next window.
        read(&store);
        store.append(&small(DAY + 2 * 86_400), &[]).unwrap();
        read(&store);
        let notices = store.notices();
        let aside = fs::read_dir(dir.path())
            .unwrap()
            .any(|entry| entry.unwrap().file_name().to_str().unwrap().contains(".damaged-"));
        assert_eq!(
            aside,
            notices.iter().any(|notice| matches!(notice, StoreNotice::Damaged(_))),
            "{notices:?}"
        );
        damaged += u64::from(aside);
        assert_eq!(found.iter().filter(|window| window.starts_before(DAY + 86_400)).count(), yesterday);
        let is_known = |window| expected.contains(window) || coarser.contains(window);
        assert!(found.iter().all(is_known), "round {round}: a window was made up");
        kept += found.len() - yesterday;
        drop(store);
        let mut again = create(dir.path());
        assert_eq!(again.notices(), [], "round {round}: what is left is whole");
    }
    assert!(damaged > 5, "{damaged} of 30");
    assert!(kept > 30 * 10, "{kept}: whole windows of damaged files are kept");
}

#[test]
fn without_room_nothing_is_written_until_there_is_some() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = create(dir.path());
    store.append(&small(DAY), &[]).unwrap();
    // More than any disk has.
    store.configure(StoreSettings { min_free_bytes: Some(u64::MAX), ..settings() });
    for number in 1..=5 {
        let error = store.append(&small(DAY + number * 10), &[]).unwrap_err();
        assert!(matches!(error.of_store().downcast_ref(), Some(StoreError::NoRoom { .. })), "{error}");
    }
    assert!(matches!(&store.notices()[..], [StoreNotice::Full(_)]), "once");
    store.configure(settings());
    store.append(&small(DAY + 60), &[]).unwrap();
    assert_eq!(store.notices(), [StoreNotice::Recovered(5)]);
    assert_eq!(calls_by_level(&store, span(DAY, DAY + 3_600)), [2; 3]);
}

/// An ext4 in a file, which is the disk: what the file has is what survives a power failure.
struct DiskImage {
    image: PathBuf,
    mounted: PathBuf,
}

impl DiskImage {
    const BYTES: u64 = 48 << 20;

    fn make(image: PathBuf) -> Option<()> {
        fs::File::create(&image).unwrap().set_len(Self::BYTES).unwrap();
        // Everything of the file system itself comes first, so that only files are lost with the end of the disk.
        let mkfs = ["-q", "-F", "-b", "4096", "-J", "size=4", "-E", "packed_meta_blocks=1"];
        succeeds(Command::new("mkfs.ext4").args(mkfs).arg(&image)).then_some(())
    }

    /// Mounts it, which plays back the journal of the file system. `None` if that is not possible.
    fn mount(image: PathBuf) -> Option<Self> {
        let mounted = image.with_extension("mounted");
        fs::create_dir_all(&mounted).unwrap();
        let done = succeeds(Command::new("mount").args(["-o", "loop,noatime"]).args([&image, &mounted]));
        done.then_some(Self { image, mounted })
    }

    /// What the disk has now, while programs and the kernel have more to write. Nothing may be written meanwhile.
    fn snapshot(&self) -> Vec<u8> {
        let mut before = fs::read(&self.image).unwrap();
        for _ in 0..20 {
            let now = fs::read(&self.image).unwrap();
            if now == before {
                return now;
            }
            before = now;
        }
        panic!("the kernel never stops to write");
    }
}

impl Drop for DiskImage {
    fn drop(&mut self) {
        succeeds(Command::new("umount").arg("-l").arg(&self.mounted));
    }
}

fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// What was written and not yet flushed is lost: the image is copied while the writer stands still. In every second
/// round the end of the disk is lost too.
#[test]
fn after_a_power_failure_at_most_the_open_window_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk");
    let Some(disk) = DiskImage::make(image.clone()).and_then(|()| DiskImage::mount(image)) else {
        println!("skipped: only root can mount an image of a file system, with mkfs.ext4 and loop devices");
        return;
    };
    let rounds: u64 =
        std::env::var("STORE_POWER_FAILURES").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    let (store, always) = (disk.mounted.join("store"), span(DAY, DAY + 400 * 86_400));
    let mut random = Random(5);
    let (mut confirmed, mut damaged) = (0, 0);
    for round in 1..=rounds {
        let mut writer = child(&store).env(CHILD_IS_DURABLE, "1").spawn().unwrap();
        let mut stored = confirmations(&mut writer);
        confirmed += stored.by_ref().take(1).count() as u64;
        // span: until a random moment
        std::thread::sleep(Duration::from_micros(random.below(500_000)));
        let process = rustix::process::Pid::from_child(&writer);
        rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
        let mut bytes = disk.snapshot();
        writer.kill().unwrap();
        writer.wait().unwrap();
        confirmed += stored.count() as u64;

        let is_cut = round % 2 == 0;
        if is_cut {
            let places = places(&store);
            let place = places[random.below(places.len() as u64) as usize];
            bytes[place * PAGE..].fill(0);
        }
        let copy = dir.path().join(format!("copy-{round}"));
        fs::write(&copy, bytes).unwrap();
        let Some(survivor) = DiskImage::mount(copy) else {
            assert!(is_cut, "round {round}: the file system itself is damaged");
            continue;
        };
        let dir = survivor.mounted.join("store");
        let mut store =
            SqliteHistory::create(&dir, StoreSettings { min_free_bytes: Some(0), ..settings() }).unwrap();
        let levels = calls_by_level(&store, always);
        let whole = levels[0];
        // What was not noticed when it was opened is noticed when it is read, and set aside with the next window.
        let next = store.extent().unwrap().map_or(DAY, |extent| extent.to.unix_ns() / 1_000_000_000);
        store.append(&small(next), &[]).unwrap();
        let notices = store.notices();
        let is_damaged = notices.iter().any(|notice| matches!(notice, StoreNotice::Damaged(_)));
        let aside = fs::read_dir(&dir)
            .unwrap()
            .any(|entry| entry.unwrap().file_name().to_str().unwrap().contains(".damaged-"));
        assert_eq!(aside, is_damaged, "round {round}: {notices:?}");
        if is_cut {
            assert!(
                whole <= confirmed + round,
                "round {round}: {whole} of {confirmed}: windows were made up"
            );
            damaged += u64::from(is_damaged);
        } else {
            assert_eq!(notices, [], "round {round}");
            assert_eq!(levels, [whole; 3], "round {round}: levels disagree");
            assert!(
                (confirmed..=confirmed + round).contains(&whole),
                "round {round}: {whole} of {confirmed} that were on the disk"
            );
        }
        let readable = calls_by_level(&store, always)[0];
        drop(store);
        let mut again = create(&dir);
        assert_eq!((again.notices(), calls_by_level(&again, always)[0]), (vec![], readable), "round {round}");
    }
    assert!(confirmed > 0 && damaged > 0, "{confirmed} windows, {damaged} of {rounds} disks damaged");
    println!("{rounds} failures, {confirmed} windows, {damaged} damaged");
}

/// Where on their disk the databases of a store lie, in pages.
fn places(store: &Path) -> Vec<usize> {
    let databases = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path());
    let databases = databases.filter(|path| path.extension().is_some_and(|extension| extension == "db"));
    let output = Command::new("filefrag").args(["-v", "-b4096"]).args(databases).output().unwrap();
    // ` 0:  0..  18:  8705..  8723:  19:  last`
    let extents = std::str::from_utf8(&output.stdout).unwrap().lines().filter_map(|line| {
        let mut ends = line.split(':').nth(2)?.split("..").map(|end| end.trim().parse::<usize>().ok());
        Some(ends.next()??..=ends.next()??)
    });
    extents.flatten().collect()
}

/// A file system of sixteen megabytes.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"])
            .arg(dir.path())
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then(|| Self(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_stops_writing_and_it_recovers_by_itself() {
    let Some(disk) = SmallDisk::mount() else {
        println!("skipped: only root can mount a small file system");
        return;
    };
    let dir = disk.0.path().join("store");
    let mut random = Random(3);
    let mut store = create(&dir);
    let ballast = disk.0.path().join("ballast");
    let (mut stored, mut start) = (0, DAY);
    for round in 0..3 {
        for number in 0..40 + 50 {
            if number == 40 {
                // As much as there is room for.
                fs::write(&ballast, vec![0; 16 << 20]).unwrap_err();
            }
            start += 10;
            let window = window(start, 60, &mut random);
            if store.append(&window, &[]).is_ok() {
                stored += calls(&window);
            }
        }
        let notices = store.notices();
        assert!(matches!(&notices[..], [StoreNotice::Full(_)]), "round {round}, once: {notices:?}");
        let whole = store.read(span(DAY, DAY + 86_400)).unwrap().unwrap();
        assert_eq!(calls(&whole), stored, "nothing in part");
        assert_eq!(calls_by_level(&store, span(DAY, DAY + 86_400)), [stored; 3]);
        fs::remove_file(&ballast).unwrap();
        start += 10;
        store.append(&small(start), &[]).unwrap();
        stored += 1;
        let notices = store.notices();
        let [StoreNotice::Recovered(lost)] = notices[..] else { panic!("{notices:?}") };
        assert!((1..=50).contains(&lost), "{lost}");
    }
    drop(store);
    let store = create(&dir);
    assert_eq!(calls_by_level(&store, span(DAY, DAY + 86_400)), [stored; 3]);
}

#[test]
fn clock_jumps_make_no_duplicates_and_no_gap_that_nobody_sees() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = create(dir.path());
    let mut appended = std::collections::BTreeMap::new();
    // Half an hour; ten minutes back; ten years ahead; back again; over midnight.
    let ten_years = DAY + 3_650 * 86_400;
    let times = (DAY..DAY + 1_800)
        .chain(DAY + 1_200..DAY + 2_400)
        .chain(ten_years..ten_years + 600)
        .chain(DAY + 2_400..DAY + 4_200)
        .chain(DAY + 86_000..DAY + 87_000)
        .step_by(10);
    for start in times {
        store.append(&small(start), &[]).unwrap();
        *appended.entry(start / 10 * 10).or_insert(0) += 1;
    }
    let total: u64 = appended.values().sum();
    let always = span(0, ten_years + 86_400);
    for _ in 0..2 {
        assert_eq!(calls_by_level(&store, always), [total; 3]);
        let mut seen = std::collections::BTreeMap::new();
        store
            .windows(always, Resolution::TenSeconds, &mut |window| {
                assert!(window.is_observed());
                let start = window.window.start.unix_ns() / 1_000_000_000;
                assert_eq!(seen.insert(start, calls(&window)), None, "twice");
            })
            .unwrap();
        assert_eq!(seen, appended, "what was not observed is not there");
        let ahead = store.read(span(DAY + 90_000, ten_years)).unwrap();
        assert!(ahead.is_none(), "ten years without data are not ten quiet years");
        drop(store);
        store = create(dir.path());
    }
}

#[test]
fn a_file_of_a_newer_version_is_refused_and_an_older_one_upgraded() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = create(dir.path());
    let event = Event::new(at(DAY), EventKind::ServerStart, Endpoint::default(), "4.4.29");
    store.append(&small(DAY), std::slice::from_ref(&event)).unwrap();
    drop(store);
    let path = dir.path().join("2026-11-21.db");
    let version = |number: u32| {
        let file = rusqlite::Connection::open(&path).unwrap();
        file.pragma_update(None, "user_version", number).unwrap();
        file
    };
    let without_checksums = |file: &rusqlite::Connection| {
        for table in ["layouts", "shapes", "orders", "applications", "texts", "series", "events"] {
            file.execute_batch(&format!("ALTER TABLE {table} DROP COLUMN checksum")).unwrap();
        }
        file.execute_batch("DROP TABLE positions; DROP TABLE outgoing; DROP TABLE received").unwrap();
    };
    // Version 2 has no checksums of rows.
    without_checksums(&version(2));
    assert_eq!(calls_by_level(&create(dir.path()), span(DAY, DAY + 60)), [1; 3]);
    // Version 1 has no version of the rules either.
    let file = version(1);
    without_checksums(&file);
    file.execute_batch("ALTER TABLE shapes DROP COLUMN rules").unwrap();
    drop(file);
    let reader = SqliteHistory::open(dir.path()).unwrap();
    assert_eq!(
        calls(&reader.read(span(DAY, DAY + 60)).unwrap().unwrap()),
        1,
        "a reader reads the older version"
    );
    let mut store = create(dir.path());
    store.append(&small(DAY + 10), &[]).unwrap();
    assert_eq!(calls_by_level(&store, span(DAY, DAY + 60)), [2; 3]);
    assert_eq!(store.events(span(DAY, DAY + 60)).unwrap(), [event]);
    assert_eq!(store.notices(), []);
    drop(store);
    let file = rusqlite::Connection::open(&path).unwrap();
    let now: u32 = file.query_row("PRAGMA user_version", (), |row| row.get(0)).unwrap();
    let rules: u32 = file.query_row("SELECT MIN(rules) FROM shapes", (), |row| row.get(0)).unwrap();
    assert_eq!((now, rules), (6, 2));
    drop(file);

    drop(version(99));
    let Err(error) = SqliteHistory::create(dir.path(), settings()) else { panic!("format 99") };
    assert!(matches!(error, StoreError::Newer { version: 99, .. }), "{error}");
    assert!(
        error.to_string().contains("2026-11-21.db") && error.to_string().contains("update mongosonar"),
        "{error}"
    );
    let reader = SqliteHistory::open(dir.path()).unwrap();
    let error = reader.read(span(DAY, DAY + 60)).unwrap_err();
    assert!(matches!(error.of_store().downcast_ref(), Some(StoreError::Newer { .. })));
    assert_eq!(
        fs::read_dir(dir.path())
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().file_name().to_str().unwrap().contains("damaged") })
            .count(),
        0,
        "a newer file is not damaged"
    );
}

#[test]
fn windows_of_an_older_program_are_read_and_splits_join_them() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/history/2026-11-21.db");
    fs::copy(fixture, dir.path().join("2026-11-21.db")).unwrap();
    let whole = |store: &SqliteHistory| store.read(span(DAY, DAY + 86_400)).unwrap().unwrap();
    let before = whole(&SqliteHistory::open(dir.path()).unwrap());
    assert!(calls(&before) > 0 && before.window.shapes.iter().all(|row| row.split.is_none()));
    // One more operation of a shape, and where its time went.
    let mut row = before.window.shapes.rows()[0].clone();
    let mut random = Random(5);
    add_split(row.split.get_or_insert_default(), &mut random);
    let start = before.window.start;
    let mut more = HistoryWindow::new(start, Resolution::TenSeconds);
    more.window.shapes.add_owned(row.clone());
    let mut store = create(dir.path());
    store.append(&more, &[]).unwrap();
    let after = whole(&store);
    let calls_of = |row: &Row| row.figures().calls;
    assert_eq!(calls(&after), calls(&before) + calls(&more));
    let found = after.window.shapes.iter().find(|one| one.key() == row.key()).unwrap();
    assert_eq!((&found.split, calls_of(found)), (&row.split, 2 * calls_of(&row)));
    assert_eq!(after.window.shapes.iter().filter(|row| row.split.is_some()).count(), 1);
    assert_eq!(store.notices(), []);
}

#[test]
fn a_letter_of_a_text_that_changed_is_noticed() {
    let event = |text: &str| Event::new(at(DAY + 65), EventKind::ServerStart, Endpoint::default(), text);
    for (table, column) in [
        ("shapes", "typed"),
        ("shapes", "collection"),
        ("applications", "name"),
        ("texts", "text"),
        ("series", "metric"),
        ("events", "text"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut store = create(dir.path());
        let mut random = Random(4);
        let mut total = 0;
        for start in (DAY..DAY + 120).step_by(10) {
            let window = window(start, 60, &mut random);
            total += calls(&window);
            store.append(&window, &[]).unwrap();
        }
        store.append(&small(DAY + 120), &[event("4.4.29"), event("5.0.1")]).unwrap();
        drop(store);
        let file = rusqlite::Connection::open(dir.path().join("2026-11-21.db")).unwrap();
        let one = format!("(SELECT MIN(rowid) FROM {table})").replace("(SELECT MIN(rowid) FROM events)", "0");
        let changed = match table {
            "events" => "UPDATE events SET text = '4.4.28' WHERE text = '4.4.29'".to_owned(),
            _ => format!("UPDATE {table} SET {column} = {column} || 'x' WHERE rowid = {one}"),
        };
        assert_eq!(file.execute(&changed, ()).unwrap(), 1, "{table}");
        drop(file);
        let mut reader = SqliteHistory::open(dir.path()).unwrap();
        reader.read(span(DAY, DAY + 200)).unwrap();
        let events = reader.events(span(DAY, DAY + 200)).unwrap();
        let [StoreNotice::Damaged(notice)] = &reader.notices()[..] else { panic!("{table}.{column}") };
        assert!(notice.contains(&format!("the checksum of a row of {table} is wrong")), "{notice}");
        let expected =
            if table == "events" { vec![event("5.0.1")] } else { vec![event("4.4.29"), event("5.0.1")] };
        assert_eq!(events, expected, "{table}");
        drop(reader);
        // The writer keeps what is whole, and goes on.
        let mut store = create(dir.path());
        let notices = store.notices();
        if table == "events" {
            assert_eq!(notices, [], "it writes events and reads none");
        } else {
            assert!(matches!(&notices[..], [StoreNotice::Damaged(_)]), "{table}: {notices:?}");
        }
        store.append(&small(DAY + 130), &[]).unwrap();
        let kept = calls_by_level(&store, span(DAY, DAY + 86_400));
        assert!(kept[0] >= 2 && kept[0] <= total + 2, "{table}: {kept:?} of {total}");
        assert_eq!(store.notices(), [], "{table}: nothing damaged is left");
    }
}

#[test]
fn a_damaged_file_in_which_events_wait_is_set_aside_and_they_arrive() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = create(dir.path());
    // Nothing can be written to the file of the day before.
    let blocked = dir.path().join("2026-11-20.db");
    fs::create_dir(&blocked).unwrap();
    store.append(&small(DAY), &[yesterday(DAY + 86_390)]).unwrap();
    // The day ends, and then its file is damaged.
    store.append(&small(DAY + 86_400), &[]).unwrap();
    assert_eq!(store.notices(), []);
    let file = rusqlite::Connection::open(dir.path().join("2026-11-21.db")).unwrap();
    assert_eq!(file.execute("UPDATE layouts SET names = names || 'x'", ()).unwrap(), 1);
    drop(file);
    fs::remove_dir(&blocked).unwrap();
    store.append(&small(DAY + 86_410), &[]).unwrap();
    let notices = store.notices();
    let [StoreNotice::Damaged(notice)] = &notices[..] else { panic!("{notices:?}") };
    assert!(notice.contains("2026-11-21.db.damaged-1"), "{notice}");
    assert_eq!(store.events(span(DAY - 86_400, DAY)).unwrap(), [yesterday(DAY + 86_390)]);
    store.append(&small(DAY + 86_420), &[]).unwrap();
    assert_eq!(store.notices(), [], "it is whole now");
}

#[test]
fn a_reader_needs_no_right_to_write() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = create(dir.path());
    for start in (DAY + 86_000..DAY + 86_800).step_by(10) {
        writer.append(&small(start), &[]).unwrap();
    }
    let mount = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        Command::new("mount").args(args).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let (from, to) = (dir.path().to_str().unwrap(), mount.path().to_str().unwrap());
    if !run(&["--bind", from, to]) || !run(&["-o", "remount,bind,ro", to]) {
        println!("skipped: only root can mount a folder for reading only");
        return;
    }
    let read = || {
        let reader = SqliteHistory::open(mount.path()).unwrap();
        let result = reader.read(span(DAY, DAY + 2 * 86_400)).map(|window| calls(&window.unwrap()));
        (result, fs::read_dir(mount.path()).unwrap().count())
    };
    let (beside_writer, _) = read();
    drop(writer);
    let files = fs::read_dir(dir.path()).unwrap().count();
    let (alone, after) = read();
    let _ = Command::new("umount").arg("-l").arg(mount.path()).status();
    assert_eq!((beside_writer.unwrap(), alone.unwrap()), (80, 80));
    assert_eq!(files, after, "it leaves nothing behind");
}
