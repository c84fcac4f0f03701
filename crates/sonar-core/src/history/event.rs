//! Things that happen at one moment.

use std::borrow::Cow;

use crate::time::NS_PER_S;
use crate::words::cut;
use crate::{Endpoint, Timestamp};

macro_rules! event_kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident = $name:literal,)+) => {
        /// What happened.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum EventKind { $($(#[doc = $doc])+ $kind,)+ }

        impl EventKind {
            /// All kinds, in display order.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// The stable name in output.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)+ }
            }

            /// The kind with this stable name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name() == name)
            }
        }
    };
}

event_kinds! {
    /// A server started.
    ServerStart = "server_start",
    /// A server stopped.
    ServerStop = "server_stop",
    /// A server ended without shutting down: it was killed, or crashed.
    ServerCrash = "server_crash",
    /// A server runs, but does not answer: it has closed its port, or was stopped.
    ServerUnreachable = "server_unreachable",
    /// A server that did not answer does again.
    ServerReachable = "server_reachable",
    /// A server of another version runs.
    ServerUpgrade = "server_upgrade",
    /// The state of a server in its replica set changed.
    StateChange = "state_change",
    /// A server stood for election as primary.
    Election = "election",
    /// The configuration of the replica set changed.
    Reconfiguration = "reconfiguration",
    /// An index build began.
    IndexBuildBegin = "index_build_begin",
    /// An index build ended.
    IndexBuildEnd = "index_build_end",
    /// An index was dropped.
    IndexDrop = "index_drop",
    /// A collection or a database was dropped.
    CollectionDrop = "collection_drop",
    /// Writes were locked (`fsyncLock`) or unlocked.
    WritesLock = "writes_lock",
    /// A parameter of the server was changed at run time.
    SettingChange = "setting_change",
    /// The profiler's level was changed.
    ProfilerChange = "profiler_change",
    /// A checkpoint took long.
    LongCheckpoint = "long_checkpoint",
    /// The server logged that its own work took long: its storage engine, or `serverStatus`.
    Stall = "stall",
    /// Many connections were opened within a short time.
    ConnectionStorm = "connection_storm",
    /// An application appeared that had not connected before.
    NewApplication = "new_application",
    /// A log line of severity E.
    LogError = "log_error",
    /// A log line of severity F.
    LogFatal = "log_fatal",
    /// The log was rotated.
    LogRotation = "log_rotation",
    /// The clock was set.
    ClockStep = "clock_step",
    /// A file system is nearly full, or will be soon.
    FileSystemFull = "file_system_full",
    /// The kernel killed a process for lack of memory, of the machine or of a control group.
    OutOfMemory = "out_of_memory",
    /// The control group of a server began to stop its threads: they had used the processor time that it allows.
    CpuThrottled = "cpu_throttled",
    /// Samples are missing: the server stalled, or the machine slept.
    Gap = "gap",
    /// The agent started.
    AgentStart = "agent_start",
    /// The agent stopped.
    AgentStop = "agent_stop",
    /// A collector cannot work.
    CollectorFailed = "collector_failed",
    /// A collector works again.
    CollectorRecovered = "collector_recovered",
    /// The agent could not keep something: a full disk, a damaged file.
    StoreProblem = "store_problem",
}

/// One thing that happened. It has no values of queries.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
    /// The server; port 0 if it is not about one.
    pub server: Endpoint,
    /// What it is about: a namespace, an application, a component; empty if nothing.
    pub subject: Box<str>,
    /// The details in plain words, at most [`Event::MAX_TEXT`] bytes.
    pub text: Box<str>,
    /// How often it happened from `at` on, at least 1: equal events within a window are stored once.
    pub count: u64,
}

/// A text of at most [`Event::MAX_TEXT`] bytes; what is longer ends with `…` behind a whole word, if it has any.
fn cut_between_words(text: &str) -> Cow<'_, str> {
    const MARK: &str = " …";
    if text.len() <= Event::MAX_TEXT {
        return Cow::Borrowed(text);
    }
    let short = cut(text, Event::MAX_TEXT - MARK.len());
    let is_whole = text[short.len()..].starts_with(' ');
    let end = if is_whole { short.len() } else { short.rfind(' ').unwrap_or(short.len()) };
    Cow::Owned(format!("{}{MARK}", &short[..end]))
}

/// How the text of a setting begins that is different since a server started.
const SINCE_START: &str = "since this start ";

/// How the text begins that says how long a server wrote no sample, and how that of older agents begins.
const NO_SAMPLE: [&str; 2] = ["the server wrote no sample for ", "no sample for "];

/// A duration as people read it, in nanoseconds: `10.9s`, `2m35s`, `1h02m`.
fn duration_ns(text: &str) -> Option<u64> {
    let (mut total, mut rest) = (0.0, text);
    while !rest.is_empty() {
        let (number, more) = rest.split_at(rest.find(|c: char| c.is_ascii_alphabetic())?);
        let (unit, more) = more.split_at(more.find(|c: char| c.is_ascii_digit()).unwrap_or(more.len()));
        let seconds = match unit {
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok().filter(|number| *number >= 0.0)? * seconds;
        rest = more;
    }
    (!text.is_empty()).then_some((total * NS_PER_S as f64) as u64)
}

impl Event {
    /// The maximum length of a text in bytes; longer ones are cut.
    pub const MAX_TEXT: usize = 200;

    /// One event without a subject; a longer text is cut.
    pub fn new(at: Timestamp, kind: EventKind, server: Endpoint, text: &str) -> Self {
        Self { at, kind, server, subject: Box::default(), text: cut_between_words(text).into(), count: 1 }
    }

    /// The event with this subject; a longer one is cut.
    pub fn about(mut self, subject: &str) -> Self {
        self.subject = cut(subject, Self::MAX_TEXT).into();
        self
    }

    /// The text of a [`EventKind::ServerStop`] that only the next start tells: the server had not shut down.
    pub const UNCLEAN: &'static str = "had not shut down cleanly before this start";

    /// Whether it is an end that only the next start tells, at the time of that start.
    pub fn is_unclean_end(&self) -> bool {
        self.kind == EventKind::ServerStop && *self.text == *Self::UNCLEAN
    }

    /// Settings of a server that are others since it started at `at`; `changed` names them.
    pub fn settings_of_start(at: Timestamp, server: Endpoint, changed: &str) -> Self {
        Self::new(at, EventKind::SettingChange, server, &format!("{SINCE_START}{changed}"))
    }

    /// The settings that are others since a start; `None` of any other event.
    pub fn changed_since_start(&self) -> Option<&str> {
        (self.kind == EventKind::SettingChange).then(|| self.text.strip_prefix(SINCE_START)).flatten()
    }

    /// How long a server wrote no sample, in nanoseconds from the time of the event on; `None` of any other event.
    pub fn silence_ns(&self) -> Option<u64> {
        if self.kind != EventKind::Gap || self.server.port == 0 {
            return None;
        }
        let length = NO_SAMPLE.iter().find_map(|begin| self.text.strip_prefix(begin))?;
        duration_ns(length.split(':').next().unwrap_or_default())
    }

    /// Whether it is the end of a lock of all writes, and not its beginning.
    pub fn unlocks_writes(&self) -> bool {
        self.kind == EventKind::WritesLock && self.text.contains("unlocked")
    }

    /// Whether it names settings that are others since a start.
    pub fn is_setting_of_start(&self) -> bool {
        self.changed_since_start().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_has_the_length_that_its_text_says() {
        let silence = |kind, text: &str| {
            Event::new(Timestamp::default(), kind, Endpoint::v4([0; 4], 27_017), text).silence_ns()
        };
        let why = ": it stalled, or the machine slept";
        for (length, seconds) in [("4.67s", 4.67), ("60.0s", 60.0), ("2m35s", 155.0), ("1h02m", 3_720.0)] {
            for begin in NO_SAMPLE {
                let ns = silence(EventKind::Gap, &format!("{begin}{length}{why}"));
                assert_eq!(ns.map(|ns| ns / 10_000_000), Some((seconds * 100.0) as u64), "{length}");
            }
        }
        for other in ["", "no sample for ", "no sample for 5", "no sample for 5 apples", "no sample for -3s"]
        {
            assert_eq!(silence(EventKind::Gap, other), None, "{other}");
        }
        let lost = "samples of 5.00s are lost: a part of a file is damaged";
        assert_eq!(
            (silence(EventKind::Gap, lost), silence(EventKind::Stall, "no sample for 5s")),
            (None, None)
        );
    }

    #[test]
    fn long_texts_are_cut_between_words() {
        let text = |text: &str| {
            let event = Event::new(Timestamp::default(), EventKind::LogError, Endpoint::default(), text);
            assert!(event.text.len() <= Event::MAX_TEXT, "{}", event.text);
            event.text.into_string()
        };
        let words = |count| vec!["nineteen-characters"; count].join(" ");
        assert_eq!(text(&words(10)), words(10), "199 bytes");
        assert_eq!(text(&words(11)), format!("{} …", words(9)));
        let word = "ü".repeat(150);
        assert_eq!(text(&word), format!("{} …", "ü".repeat(98)), "one word is cut at a character");
    }
}
