//! What one source observes, cut into windows of ten seconds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use sonar_core::history::{CollectorKind, Event, Resolution};
use sonar_core::time::NS_PER_S;
use sonar_core::{Endpoint, HistoryWindow, Timestamp};

use super::log_progress::{LogShares, add_shares, earlier};
use super::memory;
use crate::input::follow::LinePlace;

/// The width of a window in nanoseconds.
pub const WIDTH_NS: u64 = Resolution::TenSeconds.width_ns();
/// How long after its end a window takes what comes late: the end of an operation is known a little later. Most sources
/// look once a second, so that windows are handed over before they are stored; what comes later is added to them.
const LATENESS_NS: u64 = 3 * NS_PER_S;
/// The most windows of a source that are open at once; one more hands the oldest over.
const MAX_OPEN: usize = 4;
/// The most events of a part; further ones are counted.
pub const MAX_EVENTS: usize = 1_000;
/// A window that begins more than this after now was opened before the clock was set back.
pub const MAX_AHEAD_NS: u64 = 2 * WIDTH_NS;
/// The most parts that are taken at once. Each may store a window, and after a long stop a log has lines of days; what else
/// the main thread does must not wait that long: the service manager wants a sign of life.
pub const TAKEN_AT_ONCE: usize = 32;
/// A longer time between two observations is no observation: a source that says nothing for a day is not there, or
/// its times are wrong.
const MAX_SILENCE_NS: u64 = 86_400 * NS_PER_S;

/// What a source observed of one window, or a part of that.
#[derive(Clone, Debug)]
pub struct WindowPart {
    /// The figures and series.
    pub window: HistoryWindow,
    /// What happened.
    pub events: Vec<Event>,
    /// Events that were left out because there were more than [`MAX_EVENTS`].
    pub events_left_out: u64,
    /// Which lines of logs it has.
    pub logs: LogShares,
    /// By the ports of logs: where the first line begins that is neither in this part nor in one that was sent earlier.
    pub ahead: BTreeMap<u16, LinePlace>,
    /// By the ports of logs that were truncated: where the first line begins that is still in a file.
    pub lasting: BTreeMap<u16, LinePlace>,
}

impl WindowPart {
    /// An empty part of the window in which `at` lies.
    pub fn new(at: Timestamp) -> Self {
        let window = HistoryWindow::new(at, Resolution::TenSeconds);
        let (logs, ahead, lasting) = (LogShares::new(), BTreeMap::new(), BTreeMap::new());
        Self { window, events: Vec::new(), events_left_out: 0, logs, ahead, lasting }
    }

    /// The bytes that it has allocated. Shapes and applications are shared with others, and do not count.
    pub fn memory(&self) -> usize {
        let texts = self.events.iter().map(|event| event.subject.len() + event.text.len());
        let shares: usize = self.logs.values().map(size_of_val).sum();
        self.window.memory()
            + self.events.capacity() * size_of::<Event>()
            + texts.sum::<usize>()
            + shares
            + (self.ahead.len() + self.lasting.len()) * size_of::<(u16, LinePlace)>()
    }

    /// Adds what another source observed of the same window.
    pub fn join(&mut self, other: Self) {
        self.window.join(&other.window);
        self.events_left_out += other.events_left_out;
        add_shares(&mut self.logs, &other.logs);
        for event in other.events {
            self.event(event);
        }
    }

    /// Adds an event. Equal ones are counted in the first.
    pub fn event(&mut self, event: Event) {
        let is_same = |known: &&mut Event| {
            (known.kind, known.server, &known.subject, &known.text)
                == (event.kind, event.server, &event.subject, &event.text)
        };
        let is_full = self.events.len() >= MAX_EVENTS;
        match self.events.iter_mut().find(is_same) {
            Some(known) => {
                known.at = known.at.min(event.at);
                known.count = known.count.saturating_add(event.count);
            }
            None if is_full => self.events_left_out += 1,
            None => self.events.push(event),
        }
    }
}

/// Sends parts to the thread that joins them.
#[derive(Clone, Debug)]
pub struct PartSender {
    to: SyncSender<WindowPart>,
    /// Bytes of the parts that wait there, and of those that are open; `None` where only their number is bounded.
    bytes: Option<Arc<PartBytes>>,
}

/// Bytes of parts.
#[derive(Debug, Default)]
struct PartBytes {
    /// Sources that are there: several may send, or open a window, at the same time.
    cutters: AtomicUsize,
    waiting: AtomicUsize,
    open: AtomicUsize,
    /// Bytes that windows which are open may have.
    granted: AtomicUsize,
}

impl PartBytes {
    /// The share of one source of what is left of `all`: together they never take more.
    fn share(&self, all: usize, taken: &AtomicUsize) -> usize {
        let left = all.saturating_sub(taken.load(Ordering::Relaxed));
        (left / self.cutters.load(Ordering::Relaxed).max(1)).min(memory::PART_BYTES)
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
    (PartSender { to, bytes: Some(bytes.clone()) }, PartReceiver { from, bytes, places: parts })
}

/// The bytes of the channel itself: each place has a number beside it.
pub const fn part_channel_bytes(parts: usize) -> usize {
    parts * (size_of::<WindowPart>() + size_of::<usize>())
}

impl From<SyncSender<WindowPart>> for PartSender {
    fn from(to: SyncSender<WindowPart>) -> Self {
        Self { to, bytes: None }
    }
}

impl PartSender {
    /// Sends a part, and waits where there is no place for it. Returns whether somebody receives parts.
    fn send(&self, mut part: WindowPart) -> bool {
        if let Some(bytes) = self.bytes.as_deref() {
            let PartBytes { waiting, .. } = bytes;
            part.window.limit(bytes.share(memory::WAITING_BYTES, waiting));
            waiting.fetch_add(part.memory(), Ordering::Relaxed);
        }
        self.to.send(part).is_ok()
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

/// Sorts the observations of one source into windows, and sends each window once it has ended.
#[derive(Debug)]
pub struct WindowCutter {
    open: BTreeMap<Timestamp, WindowPart>,
    /// How far logs have been read, by the ports of their servers.
    read: BTreeMap<u16, LinePlace>,
    /// Where logs that were truncated begin.
    lasting: BTreeMap<u16, LinePlace>,
    to: PartSender,
    /// Bytes of the open windows, as they were last counted.
    counted: usize,
    /// The receiver is gone.
    is_abandoned: bool,
}

impl WindowCutter {
    /// Sends to `to`, and waits where the receiver is slow.
    pub fn new(to: impl Into<PartSender>) -> Self {
        let (read, lasting) = (BTreeMap::new(), BTreeMap::new());
        let to = to.into();
        if let Some(bytes) = to.bytes.as_deref() {
            bytes.cutters.fetch_add(1, Ordering::Relaxed);
        }
        Self { open: BTreeMap::new(), read, lasting, to, counted: 0, is_abandoned: false }
    }

    /// Keeps the open windows to their bytes where rows were added otherwise than by recording operations.
    pub fn limit(&mut self) {
        self.open.values_mut().for_each(|part| {
            let max_bytes = part.window.window.max_bytes;
            part.window.limit(max_bytes);
        });
    }

    /// Counts the bytes of the open windows.
    fn count(&mut self) {
        if let Some(PartBytes { open, .. }) = self.to.bytes.as_deref() {
            let bytes = self.open.values().map(WindowPart::memory).sum();
            open.fetch_add(bytes, Ordering::Relaxed);
            open.fetch_sub(std::mem::replace(&mut self.counted, bytes), Ordering::Relaxed);
        }
    }

    /// The log of the server at `port` has been read up to `place`; all lines before it are in windows.
    pub fn note_read(&mut self, port: u16, place: LinePlace) {
        self.read.insert(port, place);
    }

    /// The log of the server at `port` was truncated, and begins with the line at `place`: what was before is gone.
    pub fn note_truncated(&mut self, port: u16, place: LinePlace) {
        self.lasting.insert(port, place);
    }

    /// Whether the receiver is gone.
    pub fn is_abandoned(&self) -> bool {
        self.is_abandoned
    }

    /// The part of the window in which `at` lies.
    pub fn at(&mut self, at: Timestamp) -> &mut WindowPart {
        let start = at.floor_to(WIDTH_NS);
        if !self.open.contains_key(&start) {
            while self.open.len() >= MAX_OPEN
                && let Some((_, oldest)) = self.open.pop_first()
            {
                self.send(oldest);
            }
        }
        let bytes = self.to.bytes.as_deref();
        self.open.entry(start).or_insert_with(|| {
            let mut part = WindowPart::new(start);
            // Those of a replay have no bound.
            part.window.window.max_bytes = bytes.map_or(usize::MAX, |bytes| {
                let most = bytes.share(memory::CUT_BYTES, &bytes.granted);
                bytes.granted.fetch_add(most, Ordering::Relaxed);
                most
            });
            part
        })
    }

    /// Adds an event to its window.
    pub fn event(&mut self, event: Event) {
        self.at(event.at).event(event);
    }

    /// The collector observed all time from `from` to `to`.
    pub fn observe(&mut self, collector: CollectorKind, from: Timestamp, to: Timestamp) {
        self.each_window(from, to, |window, ns| window.observe(collector, ns));
    }

    /// The log of this server could not be read from `from` to `to`, while the collector of logs observed others.
    pub fn miss_log(&mut self, server: Endpoint, from: Timestamp, to: Timestamp) {
        self.each_window(from, to, |window, ns| window.miss_log(server, ns));
    }

    /// Adds to all windows from `from` to `to` the nanoseconds that each has of it.
    fn each_window(&mut self, from: Timestamp, to: Timestamp, add: impl Fn(&mut HistoryWindow, u64)) {
        if to.since(from) > MAX_SILENCE_NS {
            return;
        }
        let mut from = from;
        while from < to && !self.is_abandoned {
            let part = self.at(from);
            let until = part.window.window.end.min(to);
            add(&mut part.window, until.since(from));
            from = until;
            self.advance(from);
        }
    }

    /// Sends the windows that can get nothing more, because they ended long enough before `now`, the source's time.
    pub fn advance(&mut self, now: Timestamp) {
        while let Some(oldest) = self.open.first_entry()
            && now.since(oldest.key().plus_ns(WIDTH_NS)) >= LATENESS_NS
        {
            let part = oldest.remove();
            self.send(part);
        }
    }

    /// Sends the windows that begin well after `now`, the time of this host: its clock was set back, so they get
    /// nothing more for a while.
    pub fn release_ahead(&mut self, now: Timestamp) {
        while let Some(newest) = self.open.last_entry()
            && newest.key().since(now) > MAX_AHEAD_NS
        {
            let part = newest.remove();
            self.send(part);
        }
    }

    /// Sends all that is open.
    pub fn finish(&mut self) {
        while let Some((_, part)) = self.open.pop_first() {
            self.send(part);
        }
        self.count();
    }

    fn send(&mut self, mut part: WindowPart) {
        self.count();
        let first = |(port, place): (&u16, &LinePlace)| {
            let firsts = self.open.values().filter_map(|part| part.logs.get(port)).map(|share| share.first);
            (*port, firsts.fold(*place, earlier))
        };
        part.ahead = self.read.iter().map(first).collect();
        part.lasting.clone_from(&self.lasting);
        if let Some(PartBytes { granted, .. }) = self.to.bytes.as_deref() {
            granted.fetch_sub(part.window.window.max_bytes, Ordering::Relaxed);
        }
        self.is_abandoned |= !self.to.send(part);
    }
}

impl Drop for WindowCutter {
    fn drop(&mut self) {
        if let Some(PartBytes { cutters, open, granted, .. }) = self.to.bytes.as_deref() {
            let own = self.open.values().map(|part| part.window.window.max_bytes).sum();
            granted.fetch_sub(own, Ordering::Relaxed);
            open.fetch_sub(self.counted, Ordering::Relaxed);
            cutters.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
pub mod tests {
    use std::sync::Arc;

    use sonar_core::history::EventKind;
    use sonar_core::{Class, Identity, Row, ShapeId, ShapeInfo, Source, Subject, Window};

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

    fn cutter() -> (WindowCutter, Receiver<WindowPart>) {
        let (to, from) = sync_channel(100);
        (WindowCutter::new(to), from)
    }

    /// Start in seconds, and seconds that the log was observed.
    fn received(from: &Receiver<WindowPart>) -> Vec<(u64, u64)> {
        let parts = from.try_iter();
        let seconds = |ns: u64| ns / NS_PER_S;
        let start = |part: &WindowPart| seconds(part.window.window.start.since(at(0)));
        parts.map(|part| (start(&part), seconds(part.window.observed_ns(CollectorKind::Log)))).collect()
    }

    #[test]
    fn time_observed_is_divided_among_its_windows() {
        let (mut cutter, from) = cutter();
        cutter.observe(CollectorKind::Log, at(3), at(22));
        assert_eq!(received(&from), [(0, 7)], "the second one ended less than three seconds ago");
        cutter.observe(CollectorKind::Log, at(22), at(25));
        assert_eq!(received(&from), [(10, 10)]);
        cutter.finish();
        assert_eq!(received(&from), [(20, 5)]);
    }

    #[test]
    fn what_comes_late_goes_into_its_own_window() {
        let (mut cutter, from) = cutter();
        for second in [5, 15, 25, 35, 45, 55] {
            cutter.at(at(second)).window.observe(CollectorKind::Log, NS_PER_S);
        }
        assert_eq!(received(&from), [(0, 1), (10, 1)], "no more than four are open");
        cutter.at(at(9)).window.observe(CollectorKind::Log, NS_PER_S);
        cutter.finish();
        assert_eq!(received(&from), [(20, 1), (0, 1), (30, 1), (40, 1), (50, 1)]);
    }

    #[test]
    fn nothing_waits_for_the_time_before_the_clock_was_set_back() {
        let (mut cutter, from) = cutter();
        cutter.observe(CollectorKind::Log, at(3_600), at(3_603));
        cutter.observe(CollectorKind::Log, at(1), at(3));
        cutter.advance(at(3));
        cutter.release_ahead(at(3));
        assert_eq!(received(&from), [(3_600, 3)]);
        cutter.observe(CollectorKind::Log, at(10), at(12));
        cutter.release_ahead(at(3));
        assert_eq!(received(&from), [], "a time that is a little ahead");
    }

    #[test]
    fn a_wrong_time_is_no_long_observation() {
        let (mut cutter, from) = cutter();
        cutter.observe(CollectorKind::Log, Timestamp::default(), at(0));
        cutter.finish();
        assert_eq!(received(&from), []);
    }

    #[test]
    fn equal_events_are_counted_and_their_number_is_bounded() {
        let event = |second, text: &str| {
            Event::new(at(second), EventKind::LogError, Endpoint::default(), text).about("NETWORK")
        };
        let mut part = WindowPart::new(at(0));
        part.event(event(5, "a"));
        part.event(event(3, "a"));
        assert_eq!((part.events.len(), part.events[0].count, part.events[0].at), (1, 2, at(3)));
        for number in 0..2 * MAX_EVENTS {
            part.event(event(1, &number.to_string()));
        }
        assert_eq!((part.events.len(), part.events_left_out), (MAX_EVENTS, MAX_EVENTS as u64 + 1));
    }

    #[test]
    fn nobody_left_to_receive_is_noticed() {
        let (mut cutter, from) = cutter();
        drop(from);
        cutter.at(at(30));
        assert!(!cutter.is_abandoned());
        cutter.finish();
        assert!(cutter.is_abandoned());
    }

    #[test]
    fn parts_that_wait_keep_to_their_bytes_and_lose_no_operation() {
        let (to, parts) = part_channel(256);
        let mut sent = 0;
        for number in 0..60 {
            let mut part = WindowPart::new(at(number));
            add_shapes(&mut part.window.window, 3_000);
            assert!(part.memory() > memory::PART_BYTES);
            assert!(to.send(part));
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
        let mut cutter = WindowCutter::new(to);
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
        let mut cutters: Vec<_> = (0..100).map(|_| WindowCutter::new(to.clone())).collect();
        let mut seconds = 0;
        for _ in 0..MAX_OPEN {
            cutters.iter_mut().for_each(|cutter| add_shapes(&mut cutter.at(at(seconds)).window.window, 300));
            seconds += 10;
        }
        cutters.iter_mut().for_each(WindowCutter::limit);
        cutters.iter_mut().for_each(WindowCutter::count);
        // Each has the row `other` at least.
        let most = memory::CUT_BYTES + cutters.len() * MAX_OPEN * 8_192;
        assert!(parts.memory() <= most, "{} of {most}", parts.memory());
        let granted = || parts.bytes.granted.load(Ordering::Relaxed);
        assert!(granted() > memory::CUT_BYTES / 2 && granted() <= memory::CUT_BYTES, "{}", granted());
        // A single source has what it needs.
        drop(cutters);
        assert_eq!((granted(), parts.memory()), (0, 0));
        let mut cutter = WindowCutter::new(to);
        assert_eq!(cutter.at(at(0)).window.window.max_bytes, memory::PART_BYTES);
        cutter.finish();
        assert_eq!(granted(), 0);
    }

    #[test]
    fn a_source_that_never_stops_does_not_keep_the_main_thread() {
        let (to, parts) = part_channel(256);
        let source = std::thread::spawn(move || while to.send(WindowPart::new(at(0))) {});
        for _ in 0..10 {
            assert!(parts.take(Duration::from_secs(60)).len() <= TAKEN_AT_ONCE);
        }
        drop(parts);
        source.join().unwrap();
    }
}
