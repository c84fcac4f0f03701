//! The engines on a real file, compared with the kernel's own counts.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sonar_sys::Host;
use sonar_sys::disk::{
    Access, DiskEngine, DiskError, EngineStep, Live, Mmap, TestFile, TestFileSettings, Threads, Uring,
};

/// Counts are those of the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

const BYTES: u64 = 16 << 20;

/// A folder on a file system with direct I/O.
fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn file(dir: &Path, direct: bool) -> Arc<TestFile> {
    let settings = TestFileSettings { dir: dir.into(), bytes: BYTES, record_bytes: 4096, direct, seed: 1 };
    Arc::new(TestFile::create(&settings, &AtomicBool::new(false), &mut |_| ()).unwrap())
}

fn step(in_flight: u32) -> EngineStep {
    EngineStep {
        in_flight,
        record_bytes: 4096,
        reads: true,
        writes: true,
        flush: false,
        access: Access::Random,
        duration: Duration::from_millis(200),
        pause: Duration::ZERO,
        sync_delay: Duration::ZERO,
        seed: 7,
    }
}

/// The engines with direct I/O; without io_uring on this machine, only the other one.
fn engines(file: &Arc<TestFile>) -> Vec<Box<dyn DiskEngine>> {
    let mut engines: Vec<Box<dyn DiskEngine>> = vec![Box::new(Threads::new(file.clone()))];
    match Uring::new(file.clone(), 2) {
        Ok(engine) => engines.push(Box::new(engine)),
        Err(why) => println!("skipped: {why}"),
    }
    engines
}

#[test]
fn the_kernel_counts_as_many_bytes_as_the_engine() {
    let _alone = ALONE.lock().unwrap();
    let dir = folder("counts");
    let file = file(&dir, true);
    for mut engine in engines(&file) {
        for (in_flight, record_bytes) in [(1, 4096), (17, 16 << 10), (300, 4096)] {
            let live = Live::new(in_flight);
            let before = Host::live().own_bytes().unwrap();
            let done = engine.run(&EngineStep { record_bytes, ..step(in_flight) }, &live).unwrap();
            let kernel = Host::live().own_bytes().unwrap().since(before);
            let what = format!("{} {in_flight}", engine.name());
            assert_eq!(kernel.read, done.reads.bytes, "{what}");
            // A page of the file system's own may become dirty meanwhile: times of the file.
            let own = kernel.written.checked_sub(done.writes.bytes);
            assert!(own.is_some_and(|own| own <= 4_096), "{what}: {kernel:?} {:?}", done.writes.bytes);
            assert_eq!(done.reads.bytes, done.reads.count() * u64::from(record_bytes));
            assert_eq!(live.operations(), done.reads.count() + done.writes.count());
            assert!(done.reads.count() >= done.writes.count() && done.writes.count() > 0);
            // One read for each write, except in rounds that the end cut.
            assert!(done.reads.count() - done.writes.count() <= u64::from(in_flight));
        }
    }
    drop(file);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn each_write_is_flushed_when_asked_for() {
    let _alone = ALONE.lock().unwrap();
    let dir = folder("flush");
    let file = file(&dir, true);
    for mut engine in engines(&file) {
        let wanted = EngineStep { reads: false, flush: true, ..step(3) };
        let done = engine.run(&wanted, &Live::new(3)).unwrap();
        assert!(done.writes.count() > 0 && done.reads.count() == 0);
        assert_eq!(done.flushes.count(), done.writes.count(), "{}", engine.name());
    }
    drop(file);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_thousand_requests_are_in_flight() {
    let _alone = ALONE.lock().unwrap();
    let dir = folder("many");
    let file = file(&dir, true);
    for mut engine in engines(&file) {
        let done = engine.run(&EngineStep { writes: false, ..step(1_024) }, &Live::new(1_024)).unwrap();
        assert!(done.reads.count() >= 1_024, "{} {}", engine.name(), done.reads.count());
        assert!(done.threads == 1_024 || done.threads <= 2);
        // The largest record for all of them: they share memory and say so.
        let large = EngineStep { record_bytes: 1 << 20, writes: false, ..step(1_024) };
        let done = engine.run(&large, &Live::new(1_024)).unwrap();
        assert!(done.shared_buffers && done.reads.count() > 0);
    }
    drop(file);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn sequential_requests_follow_the_order_of_the_file() {
    let _alone = ALONE.lock().unwrap();
    let dir = folder("sequential");
    let file = file(&dir, false);
    for mut engine in engines(&file) {
        let step = EngineStep { access: Access::Sequential, writes: false, ..step(2) };
        assert!(engine.run(&step, &Live::new(2)).unwrap().reads.count() > 0);
    }
    drop(file);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_pause_slows_a_step_and_does_not_outlast_it() {
    let _alone = ALONE.lock().unwrap();
    let dir = folder("pause");
    let file = file(&dir, true);
    let mapped = Mmap::new(file.clone()).unwrap();
    let mut engines = engines(&file);
    engines.push(Box::new(mapped));
    for mut engine in engines {
        // Rounds of at least 50 ms in 200 ms: five at most; and a pause of an hour ends with the step.
        let wanted = EngineStep { writes: false, pause: Duration::from_millis(50), ..step(2) };
        let done = engine.run(&wanted, &Live::new(2)).unwrap();
        assert!((2..=10).contains(&done.reads.count()), "{} {}", engine.name(), done.reads.count());
        let endless = EngineStep { pause: Duration::from_secs(3_600), ..wanted };
        assert_eq!(engine.run(&endless, &Live::new(2)).unwrap().reads.count(), 2, "{}", engine.name());
    }
    drop(file);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_mapped_file_is_touched_and_synced() {
    let _alone = ALONE.lock().unwrap();
    let dir = folder("mapped");
    let file = file(&dir, false);
    let mut engine = Mmap::new(file.clone()).unwrap();
    assert!(matches!(Mmap::new(file.clone()), Err(DiskError::Resource { .. })), "one at a time");
    let (duration, sync_delay) = (Duration::from_secs(3_600), Duration::from_millis(20));
    let wanted = EngineStep { duration, sync_delay, ..step(2) };
    let live = Live::new(2);
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            let until = Instant::now() + Duration::from_secs(60);
            while live.syncs().0 < 2 && Instant::now() < until {
                // span: between two looks
                std::thread::sleep(Duration::from_millis(1));
            }
            live.stop();
        });
        engine.run(&wanted, &live).unwrap()
    });
    assert!(done.reads.count() > 0 && done.writes.count() > 0);
    assert_eq!(live.syncs().0, done.flushes.count());
    assert!(done.flushes.count() >= 2, "{}", done.flushes.count());
    drop(engine);
    drop(Mmap::new(file.clone()).unwrap());
    drop(file);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_mapped_page_that_is_gone_is_an_error_not_the_end() {
    let _alone = ALONE.lock().unwrap();
    let dir = folder("gone");
    let file = file(&dir, false);
    let mut engine = Mmap::new(file.clone()).unwrap();
    // Pages past the end of a file fault like those of a lost device.
    std::fs::OpenOptions::new().write(true).open(file.path()).unwrap().set_len(4096).unwrap();
    let failed = engine.run(&step(2), &Live::new(2)).unwrap_err();
    assert!(matches!(failed, DiskError::Fault), "{failed}");
    drop(engine);
    drop(file);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_failed_request_ends_the_step_with_its_error() {
    let _alone = ALONE.lock().unwrap();
    let dir = folder("failed");
    let file = file(&dir, true);
    std::fs::OpenOptions::new().write(true).open(file.path()).unwrap().set_len(4096).unwrap();
    for mut engine in engines(&file) {
        for in_flight in [1, 8] {
            let failed = engine.run(&EngineStep { writes: false, ..step(in_flight) }, &Live::new(in_flight));
            assert!(
                matches!(failed, Err(DiskError::Request { what: "read", bytes: 4096, .. })),
                "{} {failed:?}",
                engine.name()
            );
        }
    }
    drop(file);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_file_system_in_memory_has_no_direct_io_and_says_so() {
    let dir = Path::new("/dev/shm");
    if !dir.is_dir() {
        println!("skipped: no /dev/shm");
        return;
    }
    let settings =
        TestFileSettings { dir: dir.into(), bytes: 1 << 20, record_bytes: 4096, direct: true, seed: 1 };
    let refused = TestFile::create(&settings, &AtomicBool::new(false), &mut |_| ());
    assert!(matches!(refused, Err(DiskError::NoDirectIo { .. })), "{refused:?}");
    let buffered = TestFileSettings { direct: false, ..settings };
    TestFile::create(&buffered, &AtomicBool::new(false), &mut |_| ()).unwrap();
}
