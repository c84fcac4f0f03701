//! Joins what all sources observed, window by window, and stores it.

use std::collections::BTreeMap;

use super::log_progress::{LogProgress, starts};
use super::part::{MAX_AHEAD_NS, MAX_EVENTS, WIDTH_NS, WindowPart};
use crate::history::{Event, HistoryError, HistoryWriter, Span, StoreNotice};
use crate::time::Timestamp;

/// The most windows that are open at once; one more stores the oldest. So do more bytes than they may have: what comes
/// later of a stored window is added to it.
const MAX_OPEN: usize = 64;

/// How much memory windows may take until they are stored.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AssemblyLimits {
    /// The most bytes of a window; what exceeds it is counted under `other`.
    pub window_bytes: usize,
    /// The most bytes of all open windows; more store the oldest.
    pub open_bytes: usize,
}

impl Default for AssemblyLimits {
    /// As much as they take.
    fn default() -> Self {
        Self { window_bytes: usize::MAX, open_bytes: usize::MAX }
    }
}

/// What an assembler has stored.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct StoredCounts {
    /// Windows that were stored.
    pub windows: u64,
    /// Windows that could not be stored.
    pub windows_lost: u64,
    /// Events that were stored; equal ones within a window count once.
    pub events: u64,
    /// Events that were left out because a window had too many.
    pub events_left_out: u64,
    /// From the first to the last window stored.
    pub span: Option<Span>,
}

/// Holds the open windows, and stores each once all sources have gone past it.
pub struct Assembler<S> {
    store: S,
    open: BTreeMap<Timestamp, WindowPart>,
    /// The end of the last window that was stored.
    stored_until: Option<Timestamp>,
    /// The end of the last window that was counted, as stored or as lost. Late data of earlier windows does not count
    /// another one.
    counted_until: Option<Timestamp>,
    /// Events of windows that could not be stored. They are stored with the next window, at their own times.
    unstored: Vec<Event>,
    limits: AssemblyLimits,
    /// How far logs are stored.
    logs: LogProgress,
    counts: StoredCounts,
}

impl<S: HistoryWriter> Assembler<S> {
    /// Stores into `store`.
    pub fn new(store: S, limits: AssemblyLimits) -> Self {
        let logs = LogProgress::since(starts(&store.positions()));
        Self {
            store,
            open: BTreeMap::new(),
            stored_until: None,
            counted_until: None,
            unstored: Vec::new(),
            limits,
            logs,
            counts: StoredCounts::default(),
        }
    }

    /// The end of the last stored window, by the clock of that time.
    pub const fn stored_until(&self) -> Option<Timestamp> {
        self.stored_until
    }

    /// What has been stored.
    pub const fn counts(&self) -> &StoredCounts {
        &self.counts
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The store, to change its settings.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// What happened to the store since the last call.
    pub fn notices(&mut self) -> Vec<StoreNotice> {
        self.store.notices()
    }

    /// Adds what a source observed of a window, also of one that is stored already.
    ///
    /// # Errors
    /// Another window had to be stored, and could not be.
    pub fn add(&mut self, part: WindowPart) -> Result<(), HistoryError> {
        let start = part.window.window.start;
        self.logs.comes(&part.ahead, &part.lasting);
        match self.open.get_mut(&start) {
            Some(known) => known.join(part),
            None => drop(self.open.insert(start, part)),
        }
        if let Some(known) = self.open.get_mut(&start) {
            known.window.limit(self.limits.window_bytes);
        }
        let most = self.limits.open_bytes;
        while (self.open.len() > MAX_OPEN
            || (most < usize::MAX && self.open.len() > 1 && self.memory() > most))
            && let Some((_, oldest)) = self.open.pop_first()
        {
            self.append(oldest)?;
        }
        Ok(())
    }

    /// The bytes of the open windows. Shapes and applications are shared with others, and do not count.
    pub fn memory(&self) -> usize {
        self.open.values().map(WindowPart::memory).sum()
    }

    /// Adds an event to its window.
    pub fn event(&mut self, event: Event) {
        let start = event.at.floor_to(WIDTH_NS);
        self.open.entry(start).or_insert_with(|| WindowPart::new(start)).event(event);
    }

    /// Stores the windows that have ended by `until`, in order.
    ///
    /// # Errors
    /// One cannot be stored and is lost. Those after it are still open.
    pub fn complete(&mut self, until: Timestamp) -> Result<(), HistoryError> {
        while self.complete_next(until)? {}
        Ok(())
    }

    /// Stores the first window that has ended by `until`; whether there was one.
    ///
    /// # Errors
    /// It cannot be stored and is lost.
    pub fn complete_next(&mut self, until: Timestamp) -> Result<bool, HistoryError> {
        match self.open.first_entry() {
            Some(oldest) if oldest.key().plus_ns(WIDTH_NS) <= until => {
                let part = oldest.remove();
                self.append(part).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// Stores the windows that begin well after `now`, in order, because the clock was set back.
    ///
    /// # Errors
    /// A window cannot be stored and is lost. Those after it are still open.
    pub fn complete_ahead(&mut self, now: Timestamp) -> Result<(), HistoryError> {
        let is_ahead = |start: &Timestamp| start.since(now) > MAX_AHEAD_NS;
        while let Some(first) = self.open.keys().copied().find(is_ahead)
            && let Some(part) = self.open.remove(&first)
        {
            self.append(part)?;
        }
        // Times that come again count again.
        for until in [&mut self.stored_until, &mut self.counted_until] {
            if until.as_ref().is_some_and(is_ahead) {
                *until = Some(now.floor_to(WIDTH_NS));
            }
        }
        Ok(())
    }

    fn append(&mut self, part: WindowPart) -> Result<(), HistoryError> {
        let WindowPart { window, mut events, events_left_out, logs, .. } = part;
        self.counts.events_left_out += events_left_out;
        events.splice(0..0, self.unstored.drain(..));
        let is_late = self.counted_until.is_some_and(|until| window.window.start < until);
        self.counted_until = self.counted_until.max(Some(window.window.end));
        let start = window.window.start;
        let positions = self.logs.positions(start, &logs, self.open.values().map(|part| &part.logs));
        if let Err(error) = self.store.append_with(&window, &events, &positions) {
            self.counts.windows_lost += u64::from(!is_late);
            self.counts.events_left_out += events.len().saturating_sub(MAX_EVENTS) as u64;
            events.truncate(MAX_EVENTS);
            self.unstored = events;
            return Err(error);
        }
        self.logs.stored(start, &logs);
        self.counts.windows += u64::from(!is_late);
        self.stored_until = self.stored_until.max(Some(window.window.end));
        self.counts.events += events.len() as u64;
        let (from, to) = (window.window.start, window.window.end);
        let span = self.counts.span.get_or_insert(Span { from, to });
        (span.from, span.to) = (span.from.min(from), span.to.max(to));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::history::{CollectorKind, EventKind, HistoryWindow};
    use crate::testing::MemoryHistory;
    use crate::time::NS_PER_S;
    use crate::{Class, Endpoint, Identity, Row, ShapeId, ShapeInfo, Source, Subject};

    const BOUNDED: AssemblyLimits = AssemblyLimits { window_bytes: 4 << 20, open_bytes: 8 << 20 };

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix(1_000_000 + seconds, 0)
    }

    fn part(second: u64, seconds: u64) -> WindowPart {
        let mut part = WindowPart::new(at(second));
        part.window.observe(CollectorKind::Log, seconds * NS_PER_S);
        part
    }

    /// Start, and time observed, in seconds.
    fn stored(assembler: &Assembler<MemoryHistory>) -> Vec<(u64, u64)> {
        let seconds = |window: &HistoryWindow| {
            (window.window.start.since(at(0)) / NS_PER_S, window.observed_ns(CollectorKind::Log) / NS_PER_S)
        };
        assembler.store().windows.iter().map(seconds).collect()
    }

    #[test]
    fn windows_are_stored_in_order_once_they_have_ended() {
        let mut assembler = Assembler::new(MemoryHistory::default(), AssemblyLimits::default());
        assembler.add(part(20, 1)).unwrap();
        assembler.add(part(0, 2)).unwrap();
        assembler.add(part(3, 5)).unwrap();
        assembler.complete(at(29)).unwrap();
        assert_eq!(stored(&assembler), [(0, 5)]);
        assembler.complete(at(30)).unwrap();
        assert_eq!(stored(&assembler), [(0, 5), (20, 1)]);
        assert_eq!(assembler.counts().span, Some(Span { from: at(0), to: at(30) }));
        assembler.add(part(7, 3)).unwrap();
        assembler.complete(at(30)).unwrap();
        assert_eq!(stored(&assembler)[2], (0, 3), "it came late");
        assert_eq!((assembler.counts().windows, assembler.counts().windows_lost), (2, 0));
    }

    #[test]
    fn events_of_windows_that_could_not_be_stored_come_with_the_next_one() {
        let event =
            |second, text: &str| Event::new(at(second), EventKind::ServerStart, Endpoint::default(), text);
        let mut assembler = Assembler::new(MemoryHistory::default(), AssemblyLimits::default());
        assembler.store_mut().is_full = true;
        for window in 0..3 {
            assembler.add(part(window * 10, 1)).unwrap();
            assembler.event(event(window * 10 + 5, "restart"));
            assembler.complete(at(window * 10 + 10)).unwrap_err();
        }
        assert_eq!((assembler.counts().windows, assembler.counts().windows_lost), (0, 3));
        assembler.add(part(25, 1)).unwrap();
        assembler.complete(at(30)).unwrap_err();
        assert_eq!(assembler.counts().windows_lost, 3, "what comes late of a lost window is no other one");
        assert_eq!(assembler.stored_until(), None);
        assembler.store_mut().is_full = false;
        for second in [30, 40] {
            assembler.add(part(second, 1)).unwrap();
        }
        assembler.complete(at(50)).unwrap();
        let times: Vec<_> = assembler.store().events.iter().map(|event| event.at).collect();
        assert_eq!(times, [at(5), at(15), at(25)], "each once, at its own time");
        assert_eq!(assembler.counts().windows, 2);
        // More events than a window may have.
        assembler.store_mut().is_full = true;
        for number in 0..2 * MAX_EVENTS as u64 {
            assembler.event(event(50 + number * 10, &number.to_string()));
        }
        while assembler.complete(Timestamp::from_unix_ns(u64::MAX)).is_err() {}
        assert_eq!(assembler.unstored.len(), MAX_EVENTS);
        assert_eq!(assembler.counts().events_left_out, MAX_EVENTS as u64);
    }

    #[test]
    fn after_the_clock_was_set_back_nothing_waits_and_windows_count_again() {
        let mut assembler = Assembler::new(MemoryHistory::default(), AssemblyLimits::default());
        for second in [3_600, 3_610, 3_620] {
            assembler.add(part(second, 10)).unwrap();
        }
        assembler.complete(at(3_620)).unwrap();
        assembler.add(part(0, 10)).unwrap();
        assembler.complete_ahead(at(5)).unwrap();
        assert_eq!(stored(&assembler), [(3_600, 10), (3_610, 10), (3_620, 10)]);
        assembler.complete(at(10)).unwrap();
        assert_eq!(stored(&assembler)[3], (0, 10));
        assert_eq!((assembler.counts().windows, assembler.stored_until()), (4, Some(at(10))));
        // Late data of a time ahead is stored at once, too.
        assembler.add(part(3_620, 10)).unwrap();
        assembler.complete_ahead(at(15)).unwrap();
        assert_eq!(stored(&assembler)[4], (3_620, 10));
    }

    #[test]
    fn open_windows_keep_to_their_bytes_and_lose_no_operation() {
        let mut assembler = Assembler::new(MemoryHistory::default(), BOUNDED);
        for number in 0..20 {
            for _ in 0..2 {
                let mut part = part(number * 10, 1);
                for id in 1..=8_000 {
                    let shape = ShapeInfo { id: ShapeId(id), ..ShapeInfo::default() };
                    let (identity, order) = (Identity::Exact, ShapeId(0));
                    let subject = Subject::Shape { identity, shape: Arc::new(shape), order };
                    let mut row = Row::new(subject, Class::User);
                    row.observed_by_mut(Source::Wire).figures.calls = 1;
                    part.window.window.shapes.add(&row);
                }
                assembler.add(part).unwrap();
                assert!(assembler.memory() <= BOUNDED.open_bytes, "{}", assembler.memory());
            }
        }
        assembler.complete(at(1_000_000)).unwrap();
        let windows = &assembler.store().windows;
        assert_eq!(
            windows.iter().map(|one| one.window.totals(&Class::ALL).calls).sum::<u64>(),
            20 * 2 * 8_000
        );
        assert!(windows.iter().all(|window| window.memory() <= BOUNDED.window_bytes));
        assert!(windows.iter().all(|window| window.window.shapes.len() > 2_000));
    }

    #[test]
    fn the_number_of_open_windows_is_bounded() {
        let mut assembler = Assembler::new(MemoryHistory::default(), AssemblyLimits::default());
        for number in 0..1_000 {
            assembler.add(part(number * 10, 1)).unwrap();
            assert!(assembler.open.len() <= MAX_OPEN);
        }
        assembler.complete(at(1_000_000)).unwrap();
        assert_eq!(stored(&assembler).len(), 1_000);
    }
}
