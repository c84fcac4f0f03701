//! How parts come from the threads of the sources to the thread that joins them, within their bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use sonar_core::observation::{PartSink, WindowCutter, WindowPart};

use super::memory;

/// The most parts that are taken at once. Each may store a window, and after a long stop a log has lines of days; what else
/// the main thread does must not wait that long: the service manager wants a sign of life.
pub const TAKEN_AT_ONCE: usize = 32;

/// Sends parts to the thread that joins them.
#[derive(Clone, Debug)]
pub struct PartSender {
    to: SyncSender<WindowPart>,
    /// Bytes of the parts that wait there, and of those that are open.
    bytes: Arc<PartBytes>,
}

/// How many sources of one kind there are.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SourceCount {
    /// A few, whatever is configured and whatever runs.
    Few,
    /// One for each server that is asked. Together they get at most as much as all others.
    EachServer,
}

/// Bytes of parts.
#[derive(Debug, Default)]
struct PartBytes {
    /// Sources that are there: several may send, or open a window, at the same time.
    few: AtomicUsize,
    each_server: AtomicUsize,
    waiting: AtomicUsize,
    open: AtomicUsize,
    /// Bytes that windows which are open may have.
    granted: AtomicUsize,
}

impl PartBytes {
    /// The share of one source of what is left of `all`: together they never take more.
    fn share(&self, count: SourceCount, all: usize, taken: &AtomicUsize) -> usize {
        let left = all.saturating_sub(taken.load(Ordering::Relaxed));
        let few = self.few.load(Ordering::Relaxed).max(1);
        let each_server = self.each_server.load(Ordering::Relaxed);
        // The places of all of the second kind.
        let places = each_server.min(few);
        let of_place = left / (few + places);
        let share = match count {
            SourceCount::Few => of_place,
            SourceCount::EachServer => of_place * places / each_server.max(1),
        };
        share.min(memory::PART_BYTES)
    }

    fn sources(&self, count: SourceCount) -> &AtomicUsize {
        match count {
            SourceCount::Few => &self.few,
            SourceCount::EachServer => &self.each_server,
        }
    }
}

/// Receives parts.
#[derive(Debug)]
pub struct PartReceiver {
    from: Receiver<WindowPart>,
    bytes: Arc<PartBytes>,
    /// Parts that have a place in the channel, which is allocated at once.
    places: usize,
}

/// A channel for so many parts, which together take at most [`memory::WAITING_BYTES`]: what has no room is counted under
/// `other`.
pub fn part_channel(parts: usize) -> (PartSender, PartReceiver) {
    let (to, from) = sync_channel(parts);
    let bytes = Arc::new(PartBytes::default());
    (PartSender { to, bytes: bytes.clone() }, PartReceiver { from, bytes, places: parts })
}

/// The bytes of the channel itself: each place has a number beside it.
pub const fn part_channel_bytes(parts: usize) -> usize {
    parts * (size_of::<WindowPart>() + size_of::<usize>())
}

impl PartSender {
    /// Cuts what one source of this kind observes, and sends it here.
    pub fn cutter(&self, count: SourceCount) -> WindowCutter {
        self.bytes.sources(count).fetch_add(1, Ordering::Relaxed);
        WindowCutter::new(SourceSink { to: self.clone(), count, granted: 0, held: 0 })
    }

    /// Sends a part, and waits where there is no place for it. Returns whether somebody receives parts.
    fn send(&self, count: SourceCount, mut part: WindowPart) -> bool {
        let PartBytes { waiting, .. } = &*self.bytes;
        part.window.limit(self.bytes.share(count, memory::WAITING_BYTES, waiting));
        waiting.fetch_add(part.memory(), Ordering::Relaxed);
        self.to.send(part).is_ok()
    }
}

/// Takes the parts of one source, and counts what its open windows have.
struct SourceSink {
    to: PartSender,
    count: SourceCount,
    /// Bytes that its open windows may have.
    granted: usize,
    /// Bytes that they have, as they were last counted.
    held: usize,
}

impl PartSink for SourceSink {
    fn send(&mut self, part: WindowPart) -> bool {
        let granted = part.window.window.max_bytes;
        self.granted -= granted;
        self.to.bytes.granted.fetch_sub(granted, Ordering::Relaxed);
        self.to.send(self.count, part)
    }

    fn grant(&mut self) -> usize {
        let PartBytes { granted, .. } = &*self.to.bytes;
        let most = self.to.bytes.share(self.count, memory::CUT_BYTES, granted);
        granted.fetch_add(most, Ordering::Relaxed);
        self.granted += most;
        most
    }

    fn holds(&mut self, bytes: usize) {
        let PartBytes { open, .. } = &*self.to.bytes;
        open.fetch_add(bytes, Ordering::Relaxed);
        open.fetch_sub(std::mem::replace(&mut self.held, bytes), Ordering::Relaxed);
    }
}

impl Drop for SourceSink {
    fn drop(&mut self) {
        let PartBytes { open, granted, .. } = &*self.to.bytes;
        granted.fetch_sub(self.granted, Ordering::Relaxed);
        open.fetch_sub(self.held, Ordering::Relaxed);
        self.to.bytes.sources(self.count).fetch_sub(1, Ordering::Relaxed);
    }
}

impl PartReceiver {
    /// The parts that have come, at most [`TAKEN_AT_ONCE`]; waits for the first one.
    pub fn take(&self, wait: Duration) -> Vec<WindowPart> {
        let first = self.from.recv_timeout(wait).ok();
        let parts: Vec<_> = first.into_iter().chain(self.from.try_iter().take(TAKEN_AT_ONCE - 1)).collect();
        self.bytes.waiting.fetch_sub(parts.iter().map(WindowPart::memory).sum(), Ordering::Relaxed);
        parts
    }

    /// The bytes of the channel itself.
    pub fn channel_memory(&self) -> usize {
        part_channel_bytes(self.places)
    }

    /// The bytes of the parts that wait, and of those that are open, as far as their senders have counted them.
    pub fn memory(&self) -> usize {
        self.bytes.waiting.load(Ordering::Relaxed) + self.bytes.open.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use sonar_core::{Class, Identity, Row, ShapeId, ShapeInfo, Source, Subject, Timestamp, Window};

    use super::*;

    /// Adds an operation of each of so many shapes.
    pub fn add_shapes(window: &mut Window, shapes: u64) {
        for id in 1..=shapes {
            let shape = Arc::new(ShapeInfo { id: ShapeId(id), ..ShapeInfo::default() });
            let subject = Subject::Shape { identity: Identity::Exact, shape, order: ShapeId(0) };
            let mut row = Row::new(subject, Class::User);
            row.observed_by_mut(Source::Wire).figures.calls = 1;
            window.shapes.add(&row);
        }
    }

    /// Operations in all rows.
    pub fn calls(window: &Window) -> u64 {
        window.totals(&Class::ALL).calls
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix(1_000_000 + seconds, 0)
    }

    #[test]
    fn parts_that_wait_keep_to_their_bytes_and_lose_no_operation() {
        let (to, parts) = part_channel(256);
        let mut sent = 0;
        for number in 0..60 {
            let mut part = WindowPart::new(at(number));
            add_shapes(&mut part.window.window, 3_000);
            assert!(part.memory() > memory::PART_BYTES);
            assert!(to.send(SourceCount::Few, part));
            sent += 3_000;
            // Each has the row `other` at least.
            assert!(parts.memory() <= memory::WAITING_BYTES + 60 * 8_192, "{}", parts.memory());
        }
        let mut all = parts.take(Duration::ZERO);
        all.extend(parts.take(Duration::ZERO));
        assert_eq!((all.len(), parts.memory()), (60, 0));
        assert_eq!(all.iter().map(|part| calls(&part.window.window)).sum::<u64>(), sent);
        let folded: u64 = all.iter().map(|part| part.window.window.coverage.shapes_folded).sum();
        let named = |part: &WindowPart| part.window.window.shapes.len() as u64 - 1;
        assert_eq!(folded, sent - all.iter().map(named).sum::<u64>());
        assert!(named(&all[0]) > 500, "the first one had room");
    }

    #[test]
    fn bytes_of_open_windows_are_counted() {
        let (to, parts) = part_channel(256);
        let mut cutter = to.cutter(SourceCount::Few);
        add_shapes(&mut cutter.at(at(20)).window.window, 3_000);
        cutter.limit();
        cutter.at(at(0));
        cutter.advance(at(13));
        let open = parts.memory();
        assert!(open > memory::PART_BYTES / 2 && open <= memory::PART_BYTES + 16_384, "{open}");
        cutter.finish();
        assert_eq!(parts.take(Duration::ZERO).len(), 2);
        assert_eq!(parts.memory(), 0);
    }

    #[test]
    fn windows_that_are_open_have_their_bytes_together_however_many_sources_there_are() {
        let (to, parts) = part_channel(256);
        let mut cutters: Vec<_> = (0..100).map(|_| to.cutter(SourceCount::Few)).collect();
        let mut seconds = 0;
        for _ in 0..WindowCutter::MAX_OPEN {
            cutters.iter_mut().for_each(|cutter| add_shapes(&mut cutter.at(at(seconds)).window.window, 300));
            seconds += 10;
        }
        cutters.iter_mut().for_each(WindowCutter::limit);
        cutters.iter_mut().for_each(WindowCutter::count);
        // Each has the row `other` at least.
        let most = memory::CUT_BYTES + cutters.len() * WindowCutter::MAX_OPEN * 8_192;
        assert!(parts.memory() <= most, "{} of {most}", parts.memory());
        let granted = || parts.bytes.granted.load(Ordering::Relaxed);
        assert!(granted() > memory::CUT_BYTES / 2 && granted() <= memory::CUT_BYTES, "{}", granted());
        // A single source has what it needs.
        drop(cutters);
        assert_eq!((granted(), parts.memory()), (0, 0));
        let mut cutter = to.cutter(SourceCount::Few);
        assert_eq!(cutter.at(at(0)).window.window.max_bytes, memory::PART_BYTES);
        cutter.finish();
        assert_eq!(granted(), 0);
    }

    #[test]
    fn however_many_servers_are_asked_other_sources_keep_half_of_the_bytes() {
        let (to, parts) = part_channel(256);
        let mut others: Vec<_> = (0..7).map(|_| to.cutter(SourceCount::Few)).collect();
        let granted = |cutter: &mut WindowCutter| cutter.at(at(0)).window.window.max_bytes;
        let alone = granted(&mut others[0]);
        let mut asking: Vec<_> = (0..200).map(|_| to.cutter(SourceCount::EachServer)).collect();
        let of_each: Vec<usize> = asking.iter_mut().map(granted).collect();
        let least = alone.min(memory::CUT_BYTES / 3 / 7 / 2);
        assert!(others[1..].iter_mut().all(|other| granted(other) >= least), "{alone} {least}");
        assert!(
            of_each.iter().sum::<usize>() <= memory::CUT_BYTES / 2 && of_each.iter().all(|one| *one > 8_192)
        );
        // A window of another source that waits beside theirs keeps what it has.
        asking.iter_mut().for_each(WindowCutter::finish);
        add_shapes(&mut others[1].at(at(0)).window.window, 60);
        let before = others[1].at(at(0)).window.window.shapes.len();
        others[1].finish();
        let taken: Vec<WindowPart> = (0..7).flat_map(|_| parts.take(Duration::ZERO)).collect();
        assert_eq!((taken.len(), taken.last().unwrap().window.window.shapes.len()), (201, before));
    }

    #[test]
    fn a_source_that_never_stops_does_not_keep_the_main_thread() {
        let (to, parts) = part_channel(256);
        let source = std::thread::spawn(move || while to.send(SourceCount::Few, WindowPart::new(at(0))) {});
        for _ in 0..10 {
            assert!(parts.take(Duration::from_secs(60)).len() <= TAKEN_AT_ONCE);
        }
        drop(parts);
        source.join().unwrap();
    }
}
