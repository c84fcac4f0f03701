//! Sorts what one source observes into windows.

use std::collections::BTreeMap;

use super::log_place::LinePlace;
use super::part::{MAX_AHEAD_NS, WIDTH_NS, WindowPart};
use crate::Endpoint;
use crate::history::{CollectorKind, Event, HistoryWindow};
use crate::time::{NS_PER_S, Timestamp};

/// How long after its end a window takes what comes late: the end of an operation is known a little later. Most sources
/// look once a second, so that windows are handed over before they are stored; what comes later is added to them.
const LATENESS_NS: u64 = 3 * NS_PER_S;
/// A longer time between two observations is no observation: a source that says nothing for a day is not there, or
/// its times are wrong.
const MAX_SILENCE_NS: u64 = 86_400 * NS_PER_S;

/// Takes the parts of one source.
pub trait PartSink {
    /// Takes a part, and waits where there is no place for it. Returns whether somebody receives parts.
    fn send(&mut self, part: WindowPart) -> bool;

    /// The most bytes of a window that is opened now.
    fn grant(&mut self) -> usize {
        usize::MAX
    }

    /// The open windows have so many bytes now.
    fn holds(&mut self, _bytes: usize) {}
}

impl<F: FnMut(WindowPart) -> bool> PartSink for F {
    fn send(&mut self, part: WindowPart) -> bool {
        self(part)
    }
}

/// Sorts the observations of one source into windows, and sends each window once it has ended.
pub struct WindowCutter {
    open: BTreeMap<Timestamp, WindowPart>,
    /// How far logs have been read, by their servers.
    read: BTreeMap<Endpoint, LinePlace>,
    /// Where logs that were truncated begin.
    lasting: BTreeMap<Endpoint, LinePlace>,
    to: Box<dyn PartSink>,
    /// The receiver is gone.
    is_abandoned: bool,
}

impl WindowCutter {
    /// The most windows of a source that are open at once; one more hands the oldest over.
    pub const MAX_OPEN: usize = 4;

    /// Sends to `to`, and waits where the receiver is slow.
    pub fn new(to: impl PartSink + 'static) -> Self {
        let (read, lasting) = (BTreeMap::new(), BTreeMap::new());
        Self { open: BTreeMap::new(), read, lasting, to: Box::new(to), is_abandoned: false }
    }

    /// Keeps the open windows to their bytes where rows were added otherwise than by recording operations.
    pub fn limit(&mut self) {
        self.open.values_mut().for_each(|part| {
            let max_bytes = part.window.window.max_bytes;
            part.window.limit(max_bytes);
        });
    }

    /// States the bytes of the open windows.
    pub fn count(&mut self) {
        self.to.holds(self.open.values().map(WindowPart::memory).sum());
    }

    /// The log of `server` has been read up to `place`; all lines before it are in windows.
    pub fn note_read(&mut self, server: Endpoint, place: LinePlace) {
        self.read.insert(server, place);
    }

    /// The log of `server` was truncated, and begins with the line at `place`: what was before is gone.
    pub fn note_truncated(&mut self, server: Endpoint, place: LinePlace) {
        self.lasting.insert(server, place);
    }

    /// Whether the receiver is gone.
    pub fn is_abandoned(&self) -> bool {
        self.is_abandoned
    }

    /// The part of the window in which `at` lies.
    pub fn at(&mut self, at: Timestamp) -> &mut WindowPart {
        let start = at.floor_to(WIDTH_NS);
        if !self.open.contains_key(&start) {
            while self.open.len() >= Self::MAX_OPEN
                && let Some((_, oldest)) = self.open.pop_first()
            {
                self.send(oldest);
            }
        }
        let to = &mut self.to;
        self.open.entry(start).or_insert_with(|| {
            let mut part = WindowPart::new(start);
            part.window.window.max_bytes = to.grant();
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
        let first = |(server, place): (&Endpoint, &LinePlace)| {
            let firsts = self.open.values().filter_map(|part| part.logs.get(server)).map(|share| share.first);
            (*server, firsts.fold(*place, LinePlace::earlier))
        };
        part.ahead = self.read.iter().map(first).collect();
        part.lasting.clone_from(&self.lasting);
        self.is_abandoned |= !self.to.send(part);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, sync_channel};

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix(1_000_000 + seconds, 0)
    }

    fn cutter() -> (WindowCutter, Receiver<WindowPart>) {
        let (to, from) = sync_channel(100);
        (WindowCutter::new(move |part| to.send(part).is_ok()), from)
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
    fn nobody_left_to_receive_is_noticed() {
        let (mut cutter, from) = cutter();
        drop(from);
        cutter.at(at(30));
        assert!(!cutter.is_abandoned());
        cutter.finish();
        assert!(cutter.is_abandoned());
    }
}
