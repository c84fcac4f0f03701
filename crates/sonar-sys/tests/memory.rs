//! What holders of memory say that they hold is what they have allocated, within a fifth.
//!
//! It counts what the allocator is asked for, which takes `unsafe`: so it is here, in a program of its own.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may panic")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sonar_core::history::{Resolution, SeriesKey, SeriesSubject};
use sonar_core::testing::{SERVER, operation, thread_operation, wire_operation};
use sonar_core::time_split::{
    ClassifiedWait, FileWait, JoinedOperation, PendingWaits, RowBlockers, SplitJoiner, ThreadOperation,
    TimePart, Waker, WireOperation,
};
use sonar_core::window::WindowSettings;
use sonar_core::{Application, Endpoint, HistoryWindow, Operation, ShapeId, ShapeInfo, Timestamp, Window};

/// Counts the bytes that are allocated.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the promises of `dealloc`, and `place` came from the same allocator.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What is allocated in `make`, by the allocator's account; and the result.
fn counted<T>(make: impl FnOnce() -> T) -> (usize, T) {
    let before = ALLOCATED.load(Ordering::Relaxed);
    let made = make();
    (ALLOCATED.load(Ordering::Relaxed) - before, made)
}

fn assert_alike(what: &str, said: usize, allocated: usize) {
    assert!(
        said.abs_diff(allocated) <= allocated / 5,
        "{what} says that it has {said} bytes, and has allocated {allocated}"
    );
}

fn client(number: u64) -> Endpoint {
    Endpoint::v4([10, 1, (number >> 8) as u8, number as u8], (number >> 16) as u16 + 1)
}

fn wire(number: u64, shape: &Arc<ShapeInfo>, app: &Arc<Application>) -> WireOperation {
    WireOperation {
        client: client(number),
        shape: Arc::clone(shape),
        app: Arc::clone(app),
        ..wire_operation(7, number + 1_000)
    }
}

fn thread(number: u64) -> ThreadOperation {
    let start = Timestamp::from_unix_ns(number + 1_000);
    let file = FileWait { inode: 1, device: 1, reads: 1, in_order: 1, bytes: 1, wait_ns: 1 };
    let waker = Waker { thread: 9, operation_start: Some(start), count: 1, wait_ns: 1 };
    ThreadOperation {
        thread: number as u32,
        thread_name: "conn12345".to_owned(),
        connection: Some((SERVER, client(number))),
        files: vec![file; 2],
        wakers: vec![waker; 1],
        woke_others: true,
        ..thread_operation(7, number + 1_000)
    }
}

/// A process whose memory is limited allocates no more, and may map a file of any size.
fn assert_that_files_do_not_count() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let used =
        status.lines().find_map(|line| line.strip_prefix("VmData:")?.trim().strip_suffix(" kB")).unwrap();
    let used = used.trim().parse::<usize>().unwrap() << 10;
    sonar_sys::helper::limit_memory(used + (16 << 20)).unwrap();
    let path = std::env::temp_dir().join(format!("sonar-sys-memory-{}", std::process::id()));
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(1 << 30).unwrap();
    // SAFETY: the mapping is new, and nobody uses it.
    let mapped = unsafe {
        libc::mmap(std::ptr::null_mut(), 1 << 30, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
    };
    assert_ne!(mapped, libc::MAP_FAILED, "a file is not the process's own memory");
    let mut own = Vec::<u8>::new();
    assert!(own.try_reserve(4 << 20).is_ok());
    let mut large = Vec::<u8>::new();
    assert!(large.try_reserve(64 << 20).is_err());
}

/// One test, so that no other thread allocates meanwhile.
#[test]
fn holders_say_what_they_have_allocated() {
    let (shape, app) = <(Arc<ShapeInfo>, Arc<Application>)>::default();
    let (allocated, joiner) = counted(|| {
        let mut joiner = SplitJoiner::default().with_room(10_000);
        for number in 0..12_000 {
            joiner.wire(wire(number, &shape, &app));
            joiner.thread(thread(number + (1 << 20)));
            joiner.take_alone();
            joiner.take_dropped();
        }
        joiner
    });
    assert_alike("the joiner", joiner.memory(), allocated);
    assert!(allocated <= SplitJoiner::max_memory(10_000));

    let class: Arc<str> = "execution ticket".into();
    let (allocated, waits) = counted(|| {
        let mut waits = PendingWaits::default();
        for number in 0..100_000 {
            let wait = ClassifiedWait { part: TimePart::Futex, class: Arc::clone(&class), wait_ns: 5 };
            waits.add((number / 6, Timestamp::from_unix_ns(1)), wait);
        }
        waits
    });
    assert_alike("waits", waits.memory(), allocated);
    assert!(allocated <= PendingWaits::MAX_MEMORY);

    let (allocated, blockers) = counted(|| {
        let mut blockers = RowBlockers::new(10_000_000_000);
        for number in 0..100_000 {
            let mut thread = thread(number);
            thread.wakers[0].thread = 1_000_000 + number as u32;
            blockers.add(&JoinedOperation::new(wire(number, &shape, &app), thread));
            blockers.take();
        }
        blockers
    });
    assert_alike("blockers", blockers.memory(), allocated);
    assert!(allocated <= RowBlockers::MAX_MEMORY);

    let shapes: Vec<_> =
        (1..=3_000).map(|id| Arc::new(ShapeInfo { id: ShapeId(id), ..ShapeInfo::default() })).collect();
    let record = |max_bytes| {
        let settings = WindowSettings { max_bytes, ..WindowSettings::default() };
        let mut window = Window::new(Timestamp::from_unix(1_000, 0), settings);
        for number in 0..60_000_u64 {
            let latency_ns = 1_000 + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 1_000_000_000;
            let start = window.start;
            let shape = &shapes[number as usize % shapes.len()];
            window.record(&Operation {
                start,
                end: start.plus_ns(latency_ns),
                latency_ns: Some(latency_ns),
                client: client(number % 500),
                ..operation(shape, &app)
            });
        }
        window
    };
    let (allocated, whole) = counted(|| record(usize::MAX));
    assert_alike("a window", whole.memory(), allocated);
    let most = whole.memory() / 4;
    let (allocated, bounded) = counted(|| record(most));
    assert_alike("a window that keeps to its bytes", bounded.memory(), allocated);
    assert!(allocated <= most + most / 4, "{allocated} of {most}");

    let (allocated, history) = counted(|| {
        let mut history = HistoryWindow::new(Timestamp::from_unix(1_000, 0), Resolution::TenSeconds);
        for number in 0..4_000 {
            let (subject, name) = (SeriesSubject::File, format!("collection-{number}.wt").into());
            let key = SeriesKey { subject, server: SERVER, name, metric: "read.bytes".into() };
            history.sample(&key, history.window.start, 1.0, 1.0);
        }
        history
    });
    // How full the nodes of a tree are is not known: it counts the worst case.
    assert!(
        history.memory() >= allocated && history.memory() <= 5 * allocated / 2,
        "{} {allocated}",
        history.memory()
    );
    assert_that_files_do_not_count();
}
