//! Joins what all sources observed, window by window, and stores it.

use std::collections::BTreeMap;
use std::path::Path;

use sonar_core::history::{Event, Span, StoreNotice};
use sonar_core::{HistoryStore, Timestamp};
use sonar_view::agent::AgentSummary;

use super::parts::{WIDTH_NS, WindowPart};

/// The most windows that are open at once; one more stores the oldest.
const MAX_OPEN: usize = 64;

/// Holds the open windows, and stores each once all sources have gone past it.
pub struct Assembler<S> {
    store: S,
    open: BTreeMap<Timestamp, WindowPart>,
    /// From the first to the last window stored.
    span: Option<Span>,
    summary: AgentSummary,
}

impl<S: HistoryStore> Assembler<S> {
    /// Stores into `store`, whose folder is `folder`.
    pub fn new(store: S, folder: &Path) -> Self {
        let summary = AgentSummary::new(folder.display().to_string());
        Self { store, open: BTreeMap::new(), span: None, summary }
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
    pub fn add(&mut self, part: WindowPart) -> Result<(), S::Error> {
        let start = part.window.window.start;
        match self.open.get_mut(&start) {
            Some(known) => known.join(part),
            None => drop(self.open.insert(start, part)),
        }
        if self.open.len() > MAX_OPEN
            && let Some((_, oldest)) = self.open.pop_first()
        {
            return self.append(oldest);
        }
        Ok(())
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
    pub fn complete(&mut self, until: Timestamp) -> Result<(), S::Error> {
        while let Some(oldest) = self.open.first_entry()
            && oldest.key().plus_ns(WIDTH_NS) <= until
        {
            let part = oldest.remove();
            self.append(part)?;
        }
        Ok(())
    }

    fn append(&mut self, part: WindowPart) -> Result<(), S::Error> {
        let WindowPart { window, events, events_left_out } = part;
        self.summary.events_left_out += events_left_out;
        if let Err(error) = self.store.append(&window, &events) {
            self.summary.windows_lost += 1;
            return Err(error);
        }
        // What comes late adds to a window that has been counted.
        let is_late = self.span.is_some_and(|span| window.window.start < span.to);
        self.summary.windows += u64::from(!is_late);
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
    use std::convert::Infallible;

    use sonar_core::HistoryWindow;
    use sonar_core::history::{Collector, Resolution};
    use sonar_core::time::NS_PER_S;

    use super::*;

    /// Keeps what it is given.
    #[derive(Default)]
    pub struct MemoryStore {
        pub windows: Vec<HistoryWindow>,
        pub events: Vec<Event>,
    }

    impl HistoryStore for MemoryStore {
        type Error = Infallible;

        fn append(&mut self, window: &HistoryWindow, events: &[Event]) -> Result<(), Infallible> {
            self.windows.push(window.clone());
            self.events.extend_from_slice(events);
            Ok(())
        }

        fn read(&self, span: Span) -> Result<Option<HistoryWindow>, Infallible> {
            let mut all: Option<HistoryWindow> = None;
            self.windows(span, Resolution::TenSeconds, &mut |window| match &mut all {
                Some(all) => all.merge(&window),
                None => all = Some(window),
            })?;
            Ok(all)
        }

        fn windows(
            &self,
            span: Span,
            _: Resolution,
            visit: &mut dyn FnMut(HistoryWindow),
        ) -> Result<(), Infallible> {
            let overlaps =
                |window: &&HistoryWindow| window.window.start < span.to && window.window.end > span.from;
            self.windows.iter().filter(overlaps).cloned().for_each(visit);
            Ok(())
        }

        fn events(&self, span: Span) -> Result<Vec<Event>, Infallible> {
            Ok(self.events.iter().filter(|event| span.contains(event.at)).cloned().collect())
        }

        fn extent(&self) -> Result<Option<Span>, Infallible> {
            let from = self.windows.iter().map(|window| window.window.start).min();
            let to = self.windows.iter().map(|window| window.window.end).max();
            Ok(from.zip(to).map(|(from, to)| Span { from, to }))
        }

        fn notices(&mut self) -> Vec<StoreNotice> {
            Vec::new()
        }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix(1_000_000 + seconds, 0)
    }

    fn part(second: u64, seconds: u64) -> WindowPart {
        let mut part = WindowPart::new(at(second));
        part.window.observe(Collector::Log, seconds * NS_PER_S);
        part
    }

    /// Start, and time observed, in seconds.
    fn stored(assembler: &Assembler<MemoryStore>) -> Vec<(u64, u64)> {
        let seconds = |window: &HistoryWindow| {
            (window.window.start.since(at(0)) / NS_PER_S, window.observed_ns(Collector::Log) / NS_PER_S)
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
