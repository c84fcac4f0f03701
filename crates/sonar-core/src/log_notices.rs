//! Everything in a log besides operations: connections, clients, server starts, errors and warnings.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use crate::{Application, Timestamp, UtcOffsets};

/// The maximum number of distinct errors and warnings.
pub const MAX_KINDS: usize = 512;
/// The maximum number of server starts.
pub const MAX_STARTS: usize = 1_000;
/// The maximum number of distinct clients.
pub const MAX_CLIENTS: usize = 1_024;
/// The maximum number of versions of running servers.
pub const MAX_VERSIONS: usize = 64;
/// The maximum length of a message in bytes; longer ones are cut.
pub const MAX_MESSAGE: usize = 200;

/// Severity of a message.
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

    /// From the letter in the log; `None` if it is neither an error nor a warning.
    pub const fn of(letter: u8) -> Option<Self> {
        match letter {
            b'F' => Some(Self::Fatal),
            b'E' => Some(Self::Error),
            b'W' => Some(Self::Warning),
            _ => None,
        }
    }
}

/// How often and when a message occurred.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Occurrences {
    /// Number of times.
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

/// Replies that a server sent slowly: the client or the network took them slowly.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SlowReplies {
    /// Number of replies, and the times of the first and the last one.
    pub seen: Occurrences,
    /// Milliseconds that sending took, over all of them.
    pub total_ms: u64,
    /// Milliseconds of the longest one.
    pub longest_ms: u64,
}

/// One kind of message. Messages that are equal here are counted together.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Message {
    /// Severity.
    pub severity: Severity,
    /// Component, for example `NETWORK`; empty if the server version writes none.
    pub component: Box<str>,
    /// Id of the message (4.4 and later).
    pub id: Option<u32>,
    /// Text of the message; without an id, numbers and quoted texts are replaced by `#`.
    pub text: Box<str>,
}

/// One start of a server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Start {
    /// Time of the first log line about it.
    pub at: Timestamp,
    /// Server version; empty if unknown.
    pub version: Box<str>,
    /// Process id.
    pub pid: Option<u32>,
    /// Port.
    pub port: Option<u16>,
    /// Name of the machine.
    pub host: Box<str>,
}

/// All notices of one or several logs.
#[derive(Clone, Debug, Default)]
pub struct LogNotices {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections ended.
    pub ended: u64,
    /// The highest number of open connections that the server logged; `None` if it logged none.
    pub most_open: Option<u64>,
    /// Time of that log line.
    pub most_open_at: Timestamp,
    /// Number of connections by client.
    pub clients: Vec<(Arc<Application>, u64)>,
    /// Connections of clients beyond [`MAX_CLIENTS`].
    pub clients_other: u64,
    /// Server starts, in the order of reading.
    pub starts: Vec<Start>,
    /// Starts beyond [`MAX_STARTS`].
    pub starts_other: u64,
    /// Versions logged by running servers, which repeat them after each log rotation.
    pub running_versions: Vec<Box<str>>,
    /// UTC offsets of the log's times.
    pub offsets: UtcOffsets,
    /// Replies that took longer to send than the server's threshold for slow operations (6.3 and later).
    pub slow_replies: SlowReplies,
    /// Errors and warnings by kind.
    pub messages: BTreeMap<Message, Occurrences>,
    /// Errors and warnings beyond [`MAX_KINDS`].
    pub messages_other: u64,
}

impl LogNotices {
    /// Counts an accepted connection; `open` is the number of open connections at that time.
    pub fn accept(&mut self, at: Timestamp, open: Option<u64>) {
        self.accepted += 1;
        if open > self.most_open {
            (self.most_open, self.most_open_at) = (open, at);
        }
    }

    /// Counts a connection whose client metadata was logged.
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

    /// The start that a log line at `at` about a server start belongs to. Lines within a few seconds belong to
    /// the same start; otherwise this adds a new one.
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

    /// The last start, if it was at most five seconds before `at`.
    pub fn recent_start(&mut self, at: Timestamp) -> Option<&mut Start> {
        const SAME_NS: u64 = 5_000_000_000;
        self.starts.last_mut().filter(|last| at >= last.at && at.since(last.at) <= SAME_NS)
    }

    /// Notes the version that a running server logged.
    pub fn running_version(&mut self, version: &str) {
        let is_known = self.running_versions.iter().any(|known| &**known == version);
        if !version.is_empty() && !is_known && self.running_versions.len() < MAX_VERSIONS {
            self.running_versions.push(version.into());
        }
    }

    /// Counts a reply that was sent slowly, and how long that took.
    pub fn slow_reply(&mut self, at: Timestamp, ms: u64) {
        let slow = &mut self.slow_replies;
        slow.seen.add(at);
        slow.total_ms = slow.total_ms.saturating_add(ms);
        slow.longest_ms = slow.longest_ms.max(ms);
    }

    /// Counts an error or warning.
    pub fn message(&mut self, at: Timestamp, message: Message) {
        let is_full = self.messages.len() >= MAX_KINDS;
        match self.messages.entry(message) {
            Entry::Occupied(known) => known.into_mut().add(at),
            Entry::Vacant(_) if is_full => self.messages_other += 1,
            Entry::Vacant(place) => place.insert(Occurrences::default()).add(at),
        }
    }

    /// The distinct versions: of starts first, then of running servers.
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
