//! The last intervals, as far back as the view looks.

use std::collections::VecDeque;

use sonar_core::Window;

/// The last intervals, the oldest first, and their sum.
#[derive(Debug)]
pub(super) struct RecentWindows {
    /// How far back they go, in nanoseconds.
    span_ns: u64,
    /// The most rows of all of them together.
    max_rows: usize,
    windows: VecDeque<Window>,
    /// The sum as it is shown.
    pub(super) sum: Option<Window>,
}

/// Rows of all tables.
fn rows(window: &Window) -> usize {
    window.shapes.len() + window.apps.len() + window.clients.len()
}

impl RecentWindows {
    /// None yet.
    pub(super) fn new(span_ns: u64, max_rows: usize) -> Self {
        Self { span_ns, max_rows, windows: VecDeque::new(), sum: None }
    }

    /// Adds an interval that has ended; those that are too old or have no room leave. The sum stays as it was.
    pub(super) fn push(&mut self, window: Window) {
        let horizon = window.end.unix_ns().saturating_sub(self.span_ns);
        self.windows.push_back(window);
        let mut kept: usize = self.windows.iter().map(rows).sum();
        let leaves = |first: &Window, kept| first.start.unix_ns() < horizon || kept > self.max_rows;
        while self.windows.len() > 1 && self.windows.front().is_some_and(|first| leaves(first, kept)) {
            kept -= self.windows.pop_front().as_ref().map_or(0, rows);
        }
    }

    /// Adds them up.
    pub(super) fn gather(&mut self) {
        let mut windows = self.windows.iter();
        // Freed first, so that there are never two of them.
        self.sum = None;
        self.sum = windows.next().cloned().map(|mut sum| {
            windows.for_each(|window| sum.merge(window));
            sum
        });
    }
}
