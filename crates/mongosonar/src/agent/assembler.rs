//! Joins what all sources observed, window by window, and stores it.

use std::collections::BTreeMap;
use std::path::Path;

use sonar_core::Timestamp;
use sonar_core::history::{Event, HistoryError, HistoryWriter, Span, StoreNotice};
use sonar_view::agent::AgentSummary;

use super::log_progress::{LogProgress, starts};
use super::memory;
use super::parts::{MAX_AHEAD_NS, MAX_EVENTS, WIDTH_NS, WindowPart};

/// The most windows that are open at once; one more stores the oldest. So do more bytes than they may have: what comes
/// later of a stored window is added to it.
const MAX_OPEN: usize = 64;

/// Holds the open windows, and stores each once all sources have gone past it.
pub struct Assembler<S> {
    store: S,
    open: BTreeMap<Timestamp, WindowPart>,
    /// From the first to the last window stored.
    span: Option<Span>,
    /// The end of the last window that was stored.
    stored_until: Option<Timestamp>,
    /// The end of the last window that was counted, as stored or as lost. Late data of earlier windows does not count
    /// another one.
    counted_until: Option<Timestamp>,
    /// Events of windows that could not be stored. They are stored with the next window, at their own times.
    unstored: Vec<Event>,
    /// The most bytes of a window, and of all open ones.
    most: (usize, usize),
    /// How far logs are stored.
    logs: LogProgress,
    summary: AgentSummary,
}

impl<S: HistoryWriter> Assembler<S> {
    /// Stores into `store`, whose folder is `folder`.
    pub fn new(store: S, folder: &Path) -> Self {
        let summary = AgentSummary::new(folder.display().to_string());
        let logs = LogProgress::since(starts(&store.positions()));
        Self {
            store,
            open: BTreeMap::new(),
            span: None,
            stored_until: None,
            counted_until: None,
            unstored: Vec::new(),
            most: (usize::MAX, usize::MAX),
            logs,
            summary,
        }
    }

    /// The same, and windows keep to their bytes: [`memory::WINDOW_BYTES`], [`memory::OPEN_BYTES`].
    #[must_use]
    pub fn bounded(self) -> Self {
        Self { most: (memory::WINDOW_BYTES, memory::OPEN_BYTES), ..self }
    }

    /// The end of the last stored window, by the clock of that time.
    pub const fn stored_until(&self) -> Option<Timestamp> {
        self.stored_until
    }

    /// What has been stored.
    pub fn summary(&mut self) -> &mut AgentSummary {
        self.summary.set_span(self.span);
        &mut self.summary
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
            known.window.limit(self.most.0);
        }
        while (self.open.len() > MAX_OPEN
            || (self.most.1 < usize::MAX && self.open.len() > 1 && self.memory() > self.most.1))
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
        self.summary.events_left_out += events_left_out;
        events.splice(0..0, self.unstored.drain(..));
        let is_late = self.counted_until.is_some_and(|until| window.window.start < until);
        self.counted_until = self.counted_until.max(Some(window.window.end));
        let start = window.window.start;
        let positions = self.logs.positions(start, &logs, self.open.values().map(|part| &part.logs));
        if let Err(error) = self.store.append_with(&window, &events, &positions) {
            self.summary.windows_lost += u64::from(!is_late);
            self.summary.events_left_out += events.len().saturating_sub(MAX_EVENTS) as u64;
            events.truncate(MAX_EVENTS);
            self.unstored = events;
            return Err(error);
        }
        self.logs.stored(start, &logs);
        self.summary.windows += u64::from(!is_late);
        self.stored_until = self.stored_until.max(Some(window.window.end));
        self.summary.events += events.len() as u64;
        self.summary.add(&window);
        let (from, to) = (window.window.start, window.window.end);
        let span = self.span.get_or_insert(Span { from, to });
        (span.from, span.to) = (span.from.min(from), span.to.max(to));
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use std::fmt;

    use sonar_core::history::{CollectorKind, EventKind, HistoryReader, Resolution, SourcePositions};
    use sonar_core::time::NS_PER_S;
    use sonar_core::{Endpoint, HistoryWindow};

    use super::super::parts::tests::{add_shapes, calls};
    use super::*;

    /// Keeps windows and events in memory.
    #[derive(Default)]
    pub struct MemoryStore {
        pub windows: Vec<HistoryWindow>,
        pub events: Vec<Event>,
        pub positions: SourcePositions,
        pub is_full: bool,
    }

    impl HistoryWriter for MemoryStore {
        fn append_with(
            &mut self,
            window: &HistoryWindow,
            events: &[Event],
            positions: &SourcePositions,
        ) -> Result<(), HistoryError> {
            if self.is_full {
                return Err(HistoryError::new(fmt::Error));
            }
            self.windows.push(window.clone());
            self.events.extend_from_slice(events);
            self.positions.extend(positions.clone());
            Ok(())
        }

        fn positions(&self) -> SourcePositions {
            self.positions.clone()
        }

        fn notices(&mut self) -> Vec<StoreNotice> {
            Vec::new()
        }
    }

    impl HistoryReader for MemoryStore {
        fn windows(
            &self,
            span: Span,
            _: Resolution,
            visit: &mut dyn FnMut(HistoryWindow),
        ) -> Result<(), HistoryError> {
            let overlaps =
                |window: &&HistoryWindow| window.window.start < span.to && window.window.end > span.from;
            self.windows.iter().filter(overlaps).cloned().for_each(visit);
            Ok(())
        }

        fn events(&self, span: Span) -> Result<Vec<Event>, HistoryError> {
            Ok(self.events.iter().filter(|event| span.contains(event.at)).cloned().collect())
        }

        fn extent(&self) -> Result<Option<Span>, HistoryError> {
            let from = self.windows.iter().map(|window| window.window.start).min();
            let to = self.windows.iter().map(|window| window.window.end).max();
            Ok(from.zip(to).map(|(from, to)| Span { from, to }))
        }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix(1_000_000 + seconds, 0)
    }

    fn part(second: u64, seconds: u64) -> WindowPart {
        let mut part = WindowPart::new(at(second));
        part.window.observe(CollectorKind::Log, seconds * NS_PER_S);
        part
    }

    /// Start, and time observed, in seconds.
    fn stored(assembler: &Assembler<MemoryStore>) -> Vec<(u64, u64)> {
        let seconds = |window: &HistoryWindow| {
            (window.window.start.since(at(0)) / NS_PER_S, window.observed_ns(CollectorKind::Log) / NS_PER_S)
        };
        assembler.store().windows.iter().map(seconds).collect()
    }

    #[test]
    fn windows_are_stored_in_order_once_they_have_ended() {
        let mut assembler = Assembler::new(MemoryStore::default(), Path::new("/x"));
        assembler.add(part(20, 1)).unwrap();
        assembler.add(part(0, 2)).unwrap();
        assembler.add(part(3, 5)).unwrap();
        assembler.complete(at(29)).unwrap();
        assert_eq!(stored(&assembler), [(0, 5)]);
        assembler.complete(at(30)).unwrap();
        assert_eq!(stored(&assembler), [(0, 5), (20, 1)]);
        assert_eq!(assembler.span, Some(Span { from: at(0), to: at(30) }));
        assembler.add(part(7, 3)).unwrap();
        assembler.complete(at(30)).unwrap();
        assert_eq!(stored(&assembler)[2], (0, 3), "it came late");
        assert_eq!((assembler.summary().windows, assembler.summary().windows_lost), (2, 0));
    }

    #[test]
    fn events_of_windows_that_could_not_be_stored_come_with_the_next_one() {
        let event =
            |second, text: &str| Event::new(at(second), EventKind::ServerStart, Endpoint::default(), text);
        let mut assembler = Assembler::new(MemoryStore::default(), Path::new("/x"));
        assembler.store_mut().is_full = true;
        for window in 0..3 {
            assembler.add(part(window * 10, 1)).unwrap();
            assembler.event(event(window * 10 + 5, "restart"));
            assembler.complete(at(window * 10 + 10)).unwrap_err();
        }
        assert_eq!((assembler.summary().windows, assembler.summary().windows_lost), (0, 3));
        assembler.add(part(25, 1)).unwrap();
        assembler.complete(at(30)).unwrap_err();
        assert_eq!(assembler.summary().windows_lost, 3, "what comes late of a lost window is no other one");
        assert_eq!(assembler.stored_until(), None);
        assembler.store_mut().is_full = false;
        for second in [30, 40] {
            assembler.add(part(second, 1)).unwrap();
        }
        assembler.complete(at(50)).unwrap();
        let times: Vec<_> = assembler.store().events.iter().map(|event| event.at).collect();
        assert_eq!(times, [at(5), at(15), at(25)], "each once, at its own time");
        assert_eq!(assembler.summary().windows, 2);
        // More events than a window may have.
        assembler.store_mut().is_full = true;
        for number in 0..2 * MAX_EVENTS as u64 {
            assembler.event(event(50 + number * 10, &number.to_string()));
        }
        while assembler.complete(Timestamp::from_unix_ns(u64::MAX)).is_err() {}
        assert_eq!(assembler.unstored.len(), MAX_EVENTS);
        assert_eq!(assembler.summary().events_left_out, MAX_EVENTS as u64);
    }

    #[test]
    fn after_the_clock_was_set_back_nothing_waits_and_windows_count_again() {
        let mut assembler = Assembler::new(MemoryStore::default(), Path::new("/x"));
        for second in [3_600, 3_610, 3_620] {
            assembler.add(part(second, 10)).unwrap();
        }
        assembler.complete(at(3_620)).unwrap();
        assembler.add(part(0, 10)).unwrap();
        assembler.complete_ahead(at(5)).unwrap();
        assert_eq!(stored(&assembler), [(3_600, 10), (3_610, 10), (3_620, 10)]);
        assembler.complete(at(10)).unwrap();
        assert_eq!(stored(&assembler)[3], (0, 10));
        assert_eq!((assembler.summary().windows, assembler.stored_until()), (4, Some(at(10))));
        // Late data of a time ahead is stored at once, too.
        assembler.add(part(3_620, 10)).unwrap();
        assembler.complete_ahead(at(15)).unwrap();
        assert_eq!(stored(&assembler)[4], (3_620, 10));
    }

    #[test]
    fn open_windows_keep_to_their_bytes_and_lose_no_operation() {
        let mut assembler = Assembler::new(MemoryStore::default(), Path::new("/x")).bounded();
        for number in 0..20 {
            for _ in 0..2 {
                let mut part = part(number * 10, 1);
                add_shapes(&mut part.window.window, 8_000);
                assembler.add(part).unwrap();
                assert!(assembler.memory() <= memory::OPEN_BYTES, "{}", assembler.memory());
            }
        }
        assembler.complete(at(1_000_000)).unwrap();
        let windows = &assembler.store().windows;
        assert_eq!(windows.iter().map(|window| calls(&window.window)).sum::<u64>(), 20 * 2 * 8_000);
        assert!(windows.iter().all(|window| window.memory() <= memory::WINDOW_BYTES));
        assert!(windows.iter().all(|window| window.window.shapes.len() > 2_000));
    }

    #[test]
    fn the_number_of_open_windows_is_bounded() {
        let mut assembler = Assembler::new(MemoryStore::default(), Path::new("/x"));
        for number in 0..1_000 {
            assembler.add(part(number * 10, 1)).unwrap();
            assert!(assembler.open.len() <= MAX_OPEN);
        }
        assembler.complete(at(1_000_000)).unwrap();
        assert_eq!(stored(&assembler).len(), 1_000);
    }
}
