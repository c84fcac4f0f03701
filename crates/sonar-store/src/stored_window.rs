//! A window with what merging needs to know.

use sonar_core::history::Resolution;
use sonar_core::history::{CollectorKind, HistoryWindow, Span};
use sonar_core::{GroupBy, Table, Timestamp};

/// A window, and when its operations in flight were counted.
#[derive(Clone, Debug)]
pub struct StoredWindow {
    /// The window.
    pub window: HistoryWindow,
    /// The time of the snapshot of operations in flight; the epoch if nobody counted any.
    pub in_flight_at: Timestamp,
}

impl StoredWindow {
    /// An empty window.
    pub fn spanning(span: Span) -> Self {
        Self { window: HistoryWindow::spanning(span.from, span.to), in_flight_at: Timestamp::default() }
    }

    /// A window of an agent: 10 seconds, at the time of its start.
    pub fn of(window: &HistoryWindow) -> Self {
        let mut part = Self::spanning(span_of(window.window.start, Resolution::TenSeconds));
        part.add(window);
        if window.observed_ns(CollectorKind::Queries) > 0 || !window.window.in_flight.is_empty() {
            part.in_flight_at = part.window.window.end;
            part.window.window.in_flight.clone_from(&window.window.in_flight);
        }
        part.cap_observed();
        part
    }

    /// Adds everything in `other` and extends the span to include both. Operations in flight are those of the later
    /// snapshot.
    pub fn merge(&mut self, other: &Self) {
        let span = (
            self.window.window.start.min(other.window.window.start),
            self.window.window.end.max(other.window.window.end),
        );
        self.add(&other.window);
        (self.window.window.start, self.window.window.end) = span;
        self.take_in_flight(other);
        self.cap_observed();
    }

    /// Takes the operations in flight of `other` if its snapshot is later.
    pub(crate) fn take_in_flight(&mut self, other: &Self) {
        let is_later = other.in_flight_at > self.in_flight_at
            || (other.in_flight_at == self.in_flight_at && self.window.window.in_flight.is_empty());
        if is_later {
            self.in_flight_at = other.in_flight_at;
            self.window.window.in_flight.clone_from(&other.window.window.in_flight);
        }
    }

    /// Adds all figures; the span stays.
    fn add(&mut self, other: &HistoryWindow) {
        let own = &mut self.window.window;
        let (start, end, in_flight) = (own.start, own.end, std::mem::take(&mut own.in_flight));
        if own.shapes.is_empty() && other.window.shapes.by == GroupBy::Order {
            own.shapes = Table::of_window(GroupBy::Order);
        }
        own.sample = own.sample.max(other.window.sample);
        self.window.merge(other);
        let own = &mut self.window.window;
        (own.start, own.end, own.in_flight) = (start, end, in_flight);
        // Rows have their clients.
        own.clients = Table::of_window(GroupBy::Client);
    }

    /// No collector observed longer than the window lasted.
    pub(crate) fn cap_observed(&mut self) {
        let most = self.window.window.length_ns();
        self.window.observed_ns.iter_mut().for_each(|ns| *ns = (*ns).min(most));
    }
}

/// The window of this resolution that contains `at`.
pub fn span_of(at: Timestamp, resolution: Resolution) -> Span {
    let from = at.floor_to(resolution.width_ns());
    Span { from, to: from.plus_ns(resolution.width_ns()) }
}
