//! What a log says beside operations: connections, clients, starts, errors and warnings.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use crate::{Application, Timestamp, UtcOffsets};

/// The most kinds of errors and warnings that are told apart.
pub const MAX_KINDS: usize = 512;
/// The most starts that are kept.
pub const MAX_STARTS: usize = 1_000;
/// The most clients that are told apart.
pub const MAX_CLIENTS: usize = 1_024;
/// The most versions of running servers that are kept.
pub const MAX_VERSIONS: usize = 64;
/// The most bytes of a message that are kept.
pub const MAX_MESSAGE: usize = 200;

/// How grave a message is.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// `F`: the server ends.
    Fatal,
    /// `E`.
    Error,
    /// `W`.
    Warning,
}

impl Severity {
    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fatal => "fatal",
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }

    /// From the letter in the log; `None` for what is neither error nor warning.
    pub const fn of(letter: u8) -> Option<Self> {
        match letter {
            b'F' => Some(Self::Fatal),
            b'E' => Some(Self::Error),
            b'W' => Some(Self::Warning),
            _ => None,
        }
    }
}

/// How often a message occurred, and when.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Occurrences {
    /// How often.
    pub count: u64,
    /// The first time.
    pub first: Timestamp,
    /// The last time.
    pub last: Timestamp,
}

impl Occurrences {
    fn add(&mut self, at: Timestamp) {
        if self.count == 0 || at < self.first {
            self.first = at;
        }
        self.last = self.last.max(at);
        self.count += 1;
    }
}

/// What tells one kind of message from another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Message {
    /// How grave.
    pub severity: Severity,
    /// Component, like `NETWORK`; empty where the version writes none.
    pub component: Box<str>,
    /// Id of the message (4.4).
    pub id: Option<u32>,
    /// The message; numbers and quoted texts as `#` where it has no id.
    pub text: Box<str>,
}

/// One start of a server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Start {
    /// When it was said.
    pub at: Timestamp,
    /// Version; empty where it was not said.
    pub version: Box<str>,
    /// Process id.
    pub pid: Option<u32>,
    /// Port.
    pub port: Option<u16>,
    /// Name of the machine.
    pub host: Box<str>,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Notices {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections ended.
    pub ended: u64,
    /// The most connections open at once, as the server said; `None` where it did not.
    pub most_open: Option<u64>,
    /// When that was.
    pub most_open_at: Timestamp,
    /// Connections by who their client is.
    pub clients: Vec<(Arc<Application>, u64)>,
    /// Connections of further clients.
    pub clients_other: u64,
    /// Starts, in the order in which they were read.
    pub starts: Vec<Start>,
    /// Starts beyond those.
    pub starts_other: u64,
    /// Versions that running servers stated without starting, as they do after each rotation of their log.
    pub running_versions: Vec<Box<str>>,
    /// Offsets from UTC of the log's times.
    pub offsets: UtcOffsets,
    /// Errors and warnings by kind.
    pub messages: BTreeMap<Message, Occurrences>,
    /// Errors and warnings of further kinds.
    pub messages_other: u64,
}

impl Notices {
    /// A connection was accepted; `open` is how many there were then.
    pub fn accept(&mut self, at: Timestamp, open: Option<u64>) {
        self.accepted += 1;
        if open > self.most_open {
            (self.most_open, self.most_open_at) = (open, at);
        }
    }

    /// A client said who it is.
    pub fn client(&mut self, app: &Arc<Application>) {
        if let Some((_, count)) =
            self.clients.iter_mut().find(|(known, _)| Arc::ptr_eq(known, app) || known == app)
        {
            *count += 1;
        } else if self.clients.len() < MAX_CLIENTS {
            self.clients.push((app.clone(), 1));
        } else {
            self.clients_other += 1;
        }
    }

    /// A server started, or said something about its start, at `at`: what is said within a few seconds on
    /// one process is of one start.
    pub fn start(&mut self, at: Timestamp) -> &mut Start {
        if self.recent_start(at).is_none() {
            if self.starts.len() >= MAX_STARTS {
                self.starts.pop();
                self.starts_other += 1;
            }
            self.starts.push(Start { at, ..Start::default() });
        }
        let last = self.starts.len() - 1;
        &mut self.starts[last]
    }

    /// The start that a line at `at` belongs to: the last one, if it was a few seconds ago.
    pub fn recent_start(&mut self, at: Timestamp) -> Option<&mut Start> {
        const SAME_NS: u64 = 5_000_000_000;
        self.starts.last_mut().filter(|last| at >= last.at && at.since(last.at) <= SAME_NS)
    }

    /// A running server stated its version.
    pub fn running_version(&mut self, version: &str) {
        let is_known = self.running_versions.iter().any(|known| &**known == version);
        if !version.is_empty() && !is_known && self.running_versions.len() < MAX_VERSIONS {
            self.running_versions.push(version.into());
        }
    }

    /// An error or warning was said.
    pub fn message(&mut self, at: Timestamp, message: Message) {
        let is_full = self.messages.len() >= MAX_KINDS;
        match self.messages.entry(message) {
            Entry::Occupied(known) => known.into_mut().add(at),
            Entry::Vacant(_) if is_full => self.messages_other += 1,
            Entry::Vacant(place) => place.insert(Occurrences::default()).add(at),
        }
    }

    /// Versions that were said, each once, in order.
    pub fn versions(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        let started = self.starts.iter().map(|start| &*start.version).filter(|version| !version.is_empty());
        for version in started.chain(self.running_versions.iter().map(|version| &**version)) {
            if !all.contains(&version) {
                all.push(version);
            }
        }
        all
    }
}
