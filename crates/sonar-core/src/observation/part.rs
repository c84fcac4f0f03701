//! What one source observed of a window.

use std::collections::BTreeMap;

use super::log_place::LinePlace;
use super::log_progress::{LogShares, add_shares};
use crate::Endpoint;
use crate::history::{Event, HistoryWindow, Resolution};
use crate::time::Timestamp;

/// The width of a window in nanoseconds.
pub const WIDTH_NS: u64 = Resolution::TenSeconds.width_ns();
/// The most events of a part; further ones are counted.
pub const MAX_EVENTS: usize = 1_000;
/// A window that begins more than this after now was opened before the clock was set back.
pub(super) const MAX_AHEAD_NS: u64 = 2 * WIDTH_NS;

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
    /// By the servers of logs: where the first line begins that is neither in this part nor in one that was sent earlier.
    pub ahead: BTreeMap<Endpoint, LinePlace>,
    /// By the servers of logs that were truncated: where the first line begins that is still in a file.
    pub lasting: BTreeMap<Endpoint, LinePlace>,
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
            + (self.ahead.len() + self.lasting.len()) * size_of::<(Endpoint, LinePlace)>()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endpoint;
    use crate::history::EventKind;

    #[test]
    fn equal_events_are_counted_and_their_number_is_bounded() {
        let at = |seconds: u64| Timestamp::from_unix(1_000_000 + seconds, 0);
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
}
