//! Stores windows, and reports once what prevents that.

use sonar_core::history::{Event, EventKind, StoreNotice};
use sonar_core::time::NS_PER_S;
use sonar_core::words::plural;
use sonar_core::{Endpoint, Timestamp};

use super::LiveAgent;
use crate::agent::parts::WindowPart;
use crate::queries::live::now;

/// How long after its end a window is stored: samples of `diagnostic.data` come some ten seconds late.
const LATENESS_NS: u64 = 15 * NS_PER_S;
/// The most notices of the store that the status shows.
const MAX_NOTICES: usize = 20;

impl LiveAgent<'_> {
    pub(super) fn add(&mut self, part: WindowPart) {
        part.events.iter().for_each(|event| self.lives.see(event));
        if let Err(error) = self.assembler.add(part) {
            self.store_failed(&error);
        }
    }

    /// Stores the windows that have ended a while before `time`, and those of a time before the clock was set back.
    pub(super) fn store(&mut self, time: Timestamp) {
        let until = Timestamp::from_unix_ns(time.unix_ns().saturating_sub(LATENESS_NS));
        while let Err(error) = self.assembler.complete(until) {
            self.store_failed(&error);
        }
        while let Err(error) = self.assembler.complete_ahead(time) {
            self.store_failed(&error);
        }
        self.take_notices();
    }

    pub(super) fn take_notices(&mut self) {
        for notice in self.assembler.notices() {
            self.notice(&notice, now());
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
                let lost = self.assembler.summary().windows_lost;
                let windows = lost - std::mem::replace(&mut self.losses_reported, lost);
                format!("windows are stored again, {} could not be", plural(windows, "window"))
            }
            StoreNotice::Shrunk(resolution, day) => {
                format!("windows of {} of {day} were deleted to keep the size", resolution.name())
            }
        };
        eprintln!("mongosonar: {text}");
        if !matches!(notice, StoreNotice::Shrunk(..)) {
            self.event(Event::new(time, EventKind::StoreProblem, Endpoint::default(), ("", &text)));
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
