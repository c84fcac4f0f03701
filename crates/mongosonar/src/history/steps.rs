//! Steps through the windows of a history, for the live view. A thread of its own reads, so that the view never waits
//! long, and so that the thread that shows needs no files.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use sonar_core::history::{Resolution, Span};
use sonar_core::{Timestamp, Window};

use super::{StoreArgs, StoredHistory};
use crate::privileges;

/// Which window to show next.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum HistoryStep {
    /// The last one that begins before this time.
    Before(Timestamp),
    /// The first one that begins at this time or later.
    From(Timestamp),
}

/// The answer to a step: a window, or why there is none.
pub type SteppedWindow = std::result::Result<Window, String>;

/// Asks for windows, and receives them.
pub struct HistorySteps {
    ask: Sender<HistoryStep>,
    answers: Receiver<SteppedWindow>,
}

impl HistorySteps {
    /// Starts the thread that reads what is about the server at this port, or about all; if `is_confined`, it drops all
    /// privileges but that to read files.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(args: &StoreArgs, server: Option<u16>, is_confined: bool) -> Result<Self> {
        let (ask, asked) = channel();
        let (answer, answers) = channel();
        let args = args.clone();
        let work = move || {
            if is_confined {
                privileges::give_up_but_files(&[args.folder()]);
            }
            for step in asked {
                // The agent writes on: a history that is opened again shows what came meanwhile.
                let history = StoredHistory::open(&args).and_then(|history| history.of_server(server));
                let window = history.and_then(|history| history.step(step));
                if answer.send(window.map_err(|error| crate::exit::message(&error))).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("history".to_owned())
            .spawn(work)
            .context("cannot start the thread that reads the history")?;
        Ok(Self { ask, answers })
    }

    /// Asks for a window.
    pub fn ask(&self, step: HistoryStep) {
        // Without the thread there is no answer either.
        let _ = self.ask.send(step);
    }

    /// The next answer, if there is one by now or after a moment: the next step starts from it.
    pub fn answer(&self, patience: Duration) -> Option<SteppedWindow> {
        self.answers.recv_timeout(patience).ok()
    }
}

impl StoredHistory {
    /// The window of a step, in the finest resolution that is left.
    fn step(&self, step: HistoryStep) -> Result<Window> {
        // Looks further and further away, so that a gap is passed and a long history is not read in full.
        let mut reach = Resolution::Hour.width_ns() / 6;
        loop {
            let (span, is_all) = match step {
                HistoryStep::Before(at) => {
                    let from = Timestamp::from_unix_ns(at.unix_ns().saturating_sub(reach));
                    (Span { from, to: at.min(self.extent.to) }, from <= self.extent.from)
                }
                HistoryStep::From(at) => {
                    let to = at.plus_ns(reach);
                    (Span { from: at.max(self.extent.from), to }, to >= self.extent.to)
                }
            };
            let mut found: Option<Window> = None;
            if span.from < span.to {
                self.visit(span, Resolution::TenSeconds, &mut |window| match step {
                    HistoryStep::Before(at) if window.window.start < at => found = Some(window.window),
                    HistoryStep::From(at) if window.window.start >= at && found.is_none() => {
                        found = Some(window.window);
                    }
                    _ => {}
                })?;
            }
            match found {
                Some(window) => return Ok(window),
                None if is_all => anyhow::bail!(
                    "the history has no window {}",
                    match step {
                        HistoryStep::Before(_) => "before this one",
                        HistoryStep::From(_) => "after this one",
                    }
                ),
                None => reach = reach.saturating_mul(8),
            }
        }
    }
}
