//! Files, disks and space of a history in memory.

use sonar_core::history::{CollectorKind, HistoryWindow, Resolution, SeriesMetric, Span, metrics};
use sonar_core::testing::MemoryHistory;
use sonar_core::{Endpoint, Timestamp};
use sonar_view::disk::BenchReport;
use sonar_view::kit::Zone;
use sonar_view::past::HistoryView;
use sonar_view::past::storage::{self, DiskTests, KeptDiskTest, StorageReport};

/// 2023-11-14T22:00:00Z.
const START: u64 = 1_699_999_200;
const SECOND: u64 = 1_000_000_000;
const SERVER: Endpoint = Endpoint::v4([0; 4], 27_017);

fn at(second: u64) -> Timestamp {
    Timestamp::from_unix(START + second, 0)
}

/// Ten seconds with so many reads a second of a collection, 2 ms each, half of them from the device, and a few writes to
/// the journal.
fn window(second: u64, reads: f64) -> HistoryWindow {
    let mut window = HistoryWindow::new(at(second), Resolution::TenSeconds);
    window.observe(CollectorKind::Machine, 10 * SECOND);
    let (file, journal) = ("/data/collection-7-1.wt", "/data/journal/WiredTigerLog.0000000001");
    let time = at(second + 5);
    let mut machine = |metric: SeriesMetric, name: &str, value: f64| {
        window.sample(&metric.key(Endpoint::default(), name), time, value, 10.0);
    };
    machine(metrics::DISK_BUSY, "vda", reads / 10.0);
    machine(metrics::DISK_READS, "vda", reads);
    machine(metrics::FILE_SYSTEM_USED, "/data", 40.0 + second as f64 / 100.0);
    if !(300..360).contains(&second) {
        window.observe(CollectorKind::Files, 10 * SECOND);
        let mut sample = |metric: SeriesMetric, name: &str, value: f64, weight: f64| {
            window.sample(&metric.key(SERVER, name), time, value, weight);
        };
        sample(metrics::FILE_READS, file, reads, 10.0);
        sample(metrics::FILE_READ_BYTES, file, reads * 4_096.0, 10.0);
        sample(metrics::FILE_DEVICE_READ_BYTES, file, reads * 2_048.0, 10.0);
        sample(metrics::FILE_READ_TIME, file, 2.0, reads * 10.0);
        sample(metrics::FILE_WRITES, journal, 5.0, 10.0);
        sample(metrics::FILE_WRITTEN_BYTES, journal, 500.0, 10.0);
        sample(metrics::FILE_WRITE_TIME, journal, 1.0, 50.0);
    }
    window.sample(
        &metrics::COLLECTION_STORAGE.key(SERVER, "shop.orders"),
        time,
        1e6 + 1_000.0 * second as f64,
        10.0,
    );
    window
}

/// Ten minutes with 100 reads a second, and ten minutes with 400; a minute in the first ones had no source of files.
fn history() -> MemoryHistory {
    let windows =
        (0..1_200).step_by(10).map(|second| window(second, if second < 600 { 100.0 } else { 400.0 }));
    MemoryHistory { windows: windows.collect(), ..MemoryHistory::default() }
}

fn report(from: u64, to: u64, tests: &DiskTests) -> StorageReport {
    let history = history();
    let view = HistoryView::new(&history, "memory", at(1_200)).unwrap();
    storage::report(&view, Span { from: at(from), to: at(to) }, tests, &Zone::utc()).unwrap()
}

fn near(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 1e-9 * expected.abs().max(1.0)
}

#[test]
fn files_have_what_was_read_how_long_it_took_and_how_much_was_cached() {
    let report = report(600, 1_200, &DiskTests::default());
    let [file, journal] = &report.files[..] else { panic!("{:?}", report.files) };
    assert_eq!((file.name.as_deref(), file.role), (Some("/data/collection-7-1.wt"), "collection"));
    assert_eq!((file.server, &file.address, journal.role), (Some(27_017), &None, "journal"));
    let usage = file.usage;
    assert!(near(usage.reads_per_second, 400.0) && near(usage.read_bytes_per_second, 400.0 * 4_096.0));
    assert!(near(usage.device_bytes_per_second, 400.0 * 2_048.0), "half of it was cached");
    assert_eq!((usage.read_ms.map(f64::round), usage.write_ms), (Some(2.0), None));
    assert!(near(usage.at_once, 0.8), "400 a second of 2 ms each");
    assert!(near(journal.usage.writes_per_second, 5.0) && near(journal.usage.at_once, 0.005));
    assert_eq!(file.values.len(), 60);
    assert!(file.values.iter().all(|value| value.is_some_and(|value| near(value, 0.8))));
    // The time before, in which a minute was not observed.
    assert_eq!(report.before_ns, Some(at(0).unix_ns()));
    let before = file.before.unwrap();
    assert!(near(before.reads_per_second, 100.0) && near(before.at_once, 0.2), "{before:?}");
    let roles: Vec<_> = report.roles.iter().map(|lane| (lane.role, near(lane.at_once, 0.8))).collect();
    assert_eq!(roles, [("collection", true), ("journal", false)]);
}

#[test]
fn what_was_not_observed_is_unknown_and_a_history_has_nothing_before_its_begin() {
    let report = report(0, 600, &DiskTests::default());
    assert!(report.files[0].values[30..36].iter().all(Option::is_none));
    assert!(report.files[0].values[36].is_some() && near(report.files[0].usage.reads_per_second, 100.0));
    assert_eq!((report.before_ns, report.files[0].before), (None, None));
    assert!(report.devices[0].figures[metrics::DISK_BUSY.name].before.is_none());
}

#[test]
fn disks_stand_beside_their_test_and_space_has_its_growth() {
    let bytes = include_bytes!("../../../../fixtures/disk-bench.json");
    let kept = KeptDiskTest { file: "disk-bench.json".to_owned(), run: BenchReport::read(bytes).unwrap() };
    let tests = DiskTests { kept: vec![kept], problems: vec!["disk-bench-b.json: broken".to_owned()] };
    let report = report(600, 1_200, &tests);
    let [disk] = &report.devices[..] else { panic!("{:?}", report.devices) };
    let busy = &disk.figures[metrics::DISK_BUSY.name];
    assert_eq!((&*disk.name, busy.unit, busy.mean, busy.before), ("vda", "percent", Some(40.0), Some(10.0)));
    assert_eq!((busy.max, busy.last, busy.values.len()), (40.0, 40.0, 60));
    let test = disk.test.as_ref().unwrap();
    assert_eq!((&*test.file, test.reads_in_flight), ("disk-bench.json", Some(16)));
    assert_eq!(report.notes, ["disk-bench-b.json: broken"]);
    let [space] = &report.file_systems[..] else { panic!("{:?}", report.file_systems) };
    assert_eq!(&*space.name, "/data");
    assert!(near(space.figures[metrics::FILE_SYSTEM_USED.name].last, 51.9));
    let [size] = &report.sizes[..] else { panic!("{:?}", report.sizes) };
    assert_eq!((size.name.as_deref(), size.subject), (Some("shop.orders"), Some("collection")));
    assert_eq!((size.bytes, size.grown_bytes), (2_190_000.0, 590_000.0));
    assert_eq!(report.left_out, 0);
}
