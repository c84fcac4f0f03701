//! Stores windows, and reports once what prevents that.

use sonar_core::history::{Event, EventKind, StoreNotice};
use sonar_core::observation::WindowPart;
use sonar_core::time::NS_PER_S;
use sonar_core::words::plural;
use sonar_core::{Endpoint, Timestamp};

use super::LiveAgent;

/// How long after its end a window is stored: what is killed then loses it. Samples of `diagnostic.data` come up to
/// twenty seconds late, and are added to the window when they come.
const LATENESS_NS: u64 = 4 * NS_PER_S + NS_PER_S / 2;
/// The most notices of the store that the status shows.
const MAX_NOTICES: usize = 20;

/// Windows that have ended by then are stored at `time`.
fn before_lateness(time: Timestamp) -> Timestamp {
    time.minus_ns(LATENESS_NS)
}

impl LiveAgent<'_> {
    pub(super) fn add(&mut self, mut part: WindowPart) {
        if part.events.iter().any(|event| event.kind == EventKind::OutOfMemory) {
            self.read_kernel_log();
            part.events.iter_mut().for_each(|event| self.lives.name_killed(event));
        }
        part.events.iter().for_each(|event| self.lives.see(event));
        let _waits = self.pulse.begin();
        if let Err(error) = self.assembler.add(part) {
            self.store_failed(&error);
        }
    }

    /// Stores the windows that have ended a while before `time`, and those of a time before the clock was set back.
    pub(super) fn store(&mut self, time: Timestamp) {
        self.complete(before_lateness(time));
        let _waits = self.pulse.begin();
        while let Err(error) = self.assembler.complete_ahead(time) {
            self.store_failed(&error);
        }
        self.take_notices();
    }

    /// Stores all that is open: the agent ends.
    pub(super) fn store_rest(&mut self) {
        self.complete(Timestamp::from_unix_ns(u64::MAX));
        self.take_notices();
    }

    /// Stores the windows that have ended by `until`.
    fn complete(&mut self, until: Timestamp) {
        loop {
            // One at a time: each may take a while.
            let stored = {
                let _waits = self.pulse.begin();
                self.assembler.complete_next(until)
            };
            match stored {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => self.store_failed(&error),
            }
        }
    }

    /// Reports that the file system of the store did not answer for a while.
    pub(super) fn note_standstill(&mut self) {
        if let Some(waited) = self.pulse.take_longest() {
            let text = format!("the file system of the store did not answer for {} s", waited.as_secs());
            eprintln!("mongosonar: {text}");
            self.event(Event::new(self.now(), EventKind::StoreProblem, Endpoint::default(), &text));
            self.note(text);
        }
    }

    pub(super) fn take_notices(&mut self) {
        for notice in self.assembler.notices() {
            self.notice(&notice, self.now());
        }
    }

    /// A window could not be stored. While nothing can be stored, the store has said so; any other reason is reported
    /// once.
    pub(super) fn store_failed(&mut self, error: &impl std::fmt::Display) {
        self.take_notices();
        let text = error.to_string();
        if self.store_problem.is_none() && self.last_loss.as_ref() != Some(&text) {
            eprintln!("mongosonar: a window is lost: {text}");
            self.note(text.clone());
            self.last_loss = Some(text);
        }
    }

    fn notice(&mut self, notice: &StoreNotice, time: Timestamp) {
        let text = match notice {
            StoreNotice::Damaged(text) => text.clone(),
            StoreNotice::Full(text) => {
                self.store_problem = Some(text.clone());
                format!("windows are not stored: {text}")
            }
            // The store counts attempts, and what comes late of a window is one more.
            StoreNotice::Recovered(_) => {
                self.store_problem = None;
                let lost = self.assembler.counts().windows_lost;
                let windows = lost - std::mem::replace(&mut self.losses_reported, lost);
                format!("windows are stored again, {} could not be", plural(windows, "window"))
            }
            StoreNotice::Shrunk(resolution, day) => {
                format!("windows of {} of {day} were deleted to keep the size", resolution.name())
            }
        };
        eprintln!("mongosonar: {text}");
        if !matches!(notice, StoreNotice::Shrunk(..)) {
            self.event(Event::new(time, EventKind::StoreProblem, Endpoint::default(), &text));
        }
        self.note(text);
    }

    pub(super) fn note(&mut self, text: String) {
        if self.notices.len() >= MAX_NOTICES {
            self.notices.remove(0);
        }
        self.notices.push(text);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use sonar_core::history::CollectorKind;
    use sonar_core::observation::{Assembler, AssemblyLimits, WIDTH_NS, WindowCutter};
    use sonar_core::testing::MemoryHistory;

    use super::*;

    #[test]
    fn whenever_it_is_killed_at_most_a_window_and_five_seconds_are_lost() {
        const TICK_NS: u64 = NS_PER_S / 4;
        let (to, parts) = sync_channel(100);
        let mut windows = WindowCutter::new(move |part| to.send(part).is_ok());
        let mut assembler = Assembler::new(MemoryHistory::default(), AssemblyLimits::default());
        let begin = Timestamp::from_unix(1_000_003, 0);
        let mut observed = begin;
        // A source looks once a second, the main thread four times.
        for tick in 1..400 {
            let now = begin.plus_ns(tick * TICK_NS);
            if tick % 4 == 1 {
                windows.observe(CollectorKind::Log, observed, now);
                windows.advance(now);
                observed = now;
            }
            parts.try_iter().for_each(|part| assembler.add(part).unwrap());
            assembler.complete(before_lateness(now)).unwrap();
            let stored = assembler.store().windows.iter();
            let stored: u64 = stored.map(|window| window.observed_ns(CollectorKind::Log)).sum();
            let lost = now.since(begin) - stored;
            assert!(lost < WIDTH_NS + 5 * NS_PER_S, "{lost} ns after {tick} ticks");
        }
        let mut starts: Vec<_> = assembler.store().windows.iter().map(|window| window.window.start).collect();
        starts.dedup();
        assert_eq!(starts.len(), assembler.store().windows.len(), "each is stored once");
    }
}
