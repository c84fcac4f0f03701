//! Readable names of files: the namespaces that the server reports for them.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sonar_mongo::files::{StoredFile, has_ident};
use sonar_mongo::{Server, ServerError, Target};

use crate::args::connection::ServerArgs;
use crate::confinement::privileges;
use crate::confinement::start_gate::StartGate;
use crate::confinement::thread_starter::ThreadStarter;
use crate::stop::{self, Unanswered};

/// The content of the server's files.
#[derive(Default)]
pub struct FileNames {
    held: Vec<StoredFile>,
}

/// A thread that asks the server for the names of its files, when it gets the signal to start.
pub struct FileNamesQuestion {
    asker: Option<(Sender<()>, Receiver<AskedFiles>)>,
}

/// What the server answered.
type AskedFiles = Result<Vec<StoredFile>, ServerError>;

impl FileNamesQuestion {
    /// Starts the thread if a server is named; see [`FileNamesQuestion::to`].
    ///
    /// # Errors
    /// The server is named wrongly, or the thread cannot be started.
    pub fn prepare(server: &ServerArgs, confined: bool, gate: &StartGate) -> Result<Self> {
        Self::to(server.named()?, confined, gate)
    }

    /// Starts the thread, which drops its privileges if `confined`, keeps `gate` closed until then, and waits. It is started
    /// before the others drop theirs, as it needs the network.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn to(target: Option<Target>, confined: bool, gate: &StartGate) -> Result<Self> {
        let Some(target) = target else { return Ok(Self { asker: None }) };
        let ((go, is_asked), (say, answer)) = (channel(), channel());
        let held = gate.hold();
        let ask = move || {
            if confined {
                privileges::drop_privileges_but_network([&target]);
            }
            drop(held);
            // Without the question, the program ends.
            if is_asked.recv().is_ok() {
                // Nobody may wait for it any more.
                say.send(Server::connect(target, 1).and_then(|server| server.files())).ok();
            }
        };
        let network = ThreadStarter::network(confined).context("cannot start a thread")?;
        network.spawn("names".to_owned(), ask).context("cannot start a thread")?;
        Ok(Self { asker: Some((go, answer)) })
    }

    /// Asks, and waits for the answer. Call it when all threads have dropped their privileges: the answer is outside input.
    /// If the command is to `stop` meanwhile, there are no names.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses, or has not answered at the time `until`.
    pub fn ask(self, stop: &AtomicBool, until: Option<Instant>) -> Result<FileNames> {
        let Some((go, answer)) = self.asker else { return Ok(FileNames::default()) };
        go.send(()).ok();
        let held = match stop::answer_of(&answer, stop, until) {
            Ok(answer) => answer?,
            Err(Unanswered::Stopped) => return Ok(FileNames::default()),
            Err(Unanswered::Late) => bail!("the server has not answered"),
            Err(Unanswered::Failed) => bail!("the thread that asks the server has failed"),
        };
        if held.is_empty() {
            eprintln!("mongosonar: the server names no files of WiredTiger, so files go by their own names");
        }
        Ok(FileNames { held })
    }
}

impl FileNames {
    /// The content of the file with this path in words, else the last part of the path.
    pub fn short(&self, path: &str) -> String {
        let last = || path.rsplit('/').next().unwrap_or(path).to_owned();
        self.of(path).map_or_else(last, StoredFile::label)
    }

    /// The content of the file with this path.
    pub fn of(&self, path: &str) -> Option<&StoredFile> {
        self.held.iter().find(|held| has_ident(path, &held.ident))
    }
}
