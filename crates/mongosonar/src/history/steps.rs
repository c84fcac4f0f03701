//! Steps through the windows of a history, for the live view. A thread of its own reads, so that the view never waits
//! long, and so that the thread that shows needs no files.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use sonar_view::past::HistoryStep;
use sonar_view::queries::PastWindow;

use super::{StoreArgs, StoredHistory};
use crate::confinement::privileges;
use crate::confinement::start_gate::{EarlyThread, StartGate};
use crate::confinement::thread_starter::ThreadStarter;

/// The answer to a step: a window, or why there is none.
pub type SteppedWindow = std::result::Result<PastWindow, String>;

/// Asks for windows, and receives them.
pub struct HistorySteps {
    ask: Sender<HistoryStep>,
    answers: Receiver<SteppedWindow>,
}

impl HistorySteps {
    /// Starts the thread that reads what is about the server at this port, or about all; if `is_confined`, it drops all
    /// privileges but that to read files, and keeps `gate` closed until then.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(args: &StoreArgs, server: Option<u16>, is_confined: bool, gate: &StartGate) -> Result<Self> {
        let (ask, asked) = channel();
        let (answer, answers) = channel();
        let args = args.clone();
        let folder = args.folder().to_owned();
        let work = move || {
            for step in asked {
                // The agent writes on: a history that is opened again shows what came meanwhile.
                let window = window_of(step, &args, server);
                if answer.send(window.map_err(|error| crate::exit::message(&error))).is_err() {
                    return;
                }
            }
        };
        let thread = EarlyThread { name: "history", starter: &ThreadStarter::Here, confined: is_confined };
        gate.start(thread, move || privileges::drop_privileges_but_files(&[folder.as_path()]), work)
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

/// The window of a step.
fn window_of(step: HistoryStep, args: &StoreArgs, server: Option<u16>) -> Result<PastWindow> {
    let stored = StoredHistory::open(args)?;
    Ok(step.window(&stored.view()?.of_server(server)?)?)
}
