//! What happened, as single lines say it: starts, elections, index builds, drops, settings and the like.
//!
//! The ids and texts of messages are those of the servers' sources, 2.4 to 8.x. Of what a line says, only names reach an
//! event: namespaces, indexes, states, settings, and the names of error codes.

mod attributes;
mod json;
mod options;
mod text;

use std::collections::BTreeMap;

use sonar_core::history::{Event, EventKind};

pub(super) use self::json::of_json;
pub(super) use self::text::of_text;
use crate::names;

/// What one line says has happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LineEvent {
    pub kind: EventKind,
    pub subject: Box<str>,
    pub text: Box<str>,
    /// The index build that it is about.
    pub build: Option<IndexBuildStep>,
    /// The settings with which the server runs, of a line that names all of them.
    pub options: Option<BTreeMap<String, String>>,
}

/// A step of an index build. Lines about its end do not always say what was built.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct IndexBuildStep {
    /// Identifies the build within its server: by its UUID, or the thread that builds.
    pub key: u64,
    /// The index; empty if the line does not say it.
    pub index: Box<str>,
}

impl LineEvent {
    fn new(kind: EventKind, subject: &str, text: impl Into<Box<str>>) -> Self {
        Self { kind, subject: subject.into(), text: text.into(), build: None, options: None }
    }

    /// Whether it says only that the server begins to shut down.
    pub fn is_begin_of_shutdown(&self) -> bool {
        self.kind == EventKind::ServerStop && *self.text == *BEGINS_SHUTDOWN
    }

    /// The settings with which the server runs: an event only if they are others than before.
    fn options(options: BTreeMap<String, String>) -> Self {
        Self { options: Some(options), ..Self::server(EventKind::SettingChange, "") }
    }

    /// An event about the server itself.
    fn server(kind: EventKind, text: impl Into<Box<str>>) -> Self {
        Self::new(kind, "", text)
    }

    /// A step of an index build of a collection.
    fn build(kind: EventKind, namespace: &str, step: IndexBuildStep, text: String) -> Self {
        Self { build: Some(step), ..Self::new(kind, namespace, text) }
    }
}

/// States of members of a replica set.
const STATES: [&str; 11] = [
    "STARTUP",
    "PRIMARY",
    "SECONDARY",
    "RECOVERING",
    "FATAL",
    "STARTUP2",
    "UNKNOWN",
    "ARBITER",
    "DOWN",
    "ROLLBACK",
    "REMOVED",
];
/// A state, as servers name it.
fn state(text: &str) -> Option<&'static str> {
    let text = text.strip_prefix("RS_").unwrap_or(text);
    STATES.into_iter().find(|state| *state == text)
}

/// The server changed its own state.
fn state_change(old: Option<&str>, new: &str) -> LineEvent {
    let text = match old {
        Some(old) => format!("changed from {old} to {new}"),
        None => format!("changed to {new}"),
    };
    LineEvent::server(EventKind::StateChange, text)
}

/// The state of another member changed.
fn member_change(member: &str, state: &str) -> LineEvent {
    LineEvent::new(EventKind::StateChange, member, format!("the member is now {state}"))
}

fn stopped(code: &str) -> LineEvent {
    let text = if code.is_empty() { "shut down".to_owned() } else { format!("shut down, exit code {code}") };
    LineEvent::server(EventKind::ServerStop, text)
}

/// What the beginning of a shutdown has as its text. It is no event of the history, which has the end.
const BEGINS_SHUTDOWN: &str = "begins to shut down";

fn begins_shutdown() -> LineEvent {
    LineEvent::server(EventKind::ServerStop, BEGINS_SHUTDOWN)
}

fn unclean() -> LineEvent {
    LineEvent::server(EventKind::ServerStop, Event::UNCLEAN)
}

fn build_begins(namespace: &str, key: u64, index: &str) -> LineEvent {
    let step = IndexBuildStep { key, index: index.into() };
    LineEvent::build(EventKind::IndexBuildBegin, namespace, step, build_text("build of", index, "began"))
}

fn build_done(namespace: &str, key: u64, index: &str) -> LineEvent {
    let step = IndexBuildStep { key, index: index.into() };
    LineEvent::build(EventKind::IndexBuildEnd, namespace, step, build_text("", index, "was built"))
}

/// `error`: the name of its code; empty if unknown.
fn build_failed(namespace: &str, key: u64, error: &str) -> LineEvent {
    let step = IndexBuildStep { key, index: "".into() };
    let text =
        if error.is_empty() { "the build failed".to_owned() } else { format!("the build failed: {error}") };
    LineEvent::build(EventKind::IndexBuildEnd, namespace, step, text)
}

fn build_text(before: &str, index: &str, after: &str) -> String {
    let index = if index.is_empty() { "an index".to_owned() } else { format!("index {index}") };
    format!("{before} {index} {after}").trim_start().to_owned()
}

fn index_dropped(namespace: &str, index: &str) -> LineEvent {
    let text = match index {
        "" => "indexes were dropped".to_owned(),
        "*" => "all indexes were dropped".to_owned(),
        index => format!("index {index} was dropped"),
    };
    LineEvent::new(EventKind::IndexDrop, namespace, text)
}

fn collection_dropped(namespace: &str) -> LineEvent {
    LineEvent::new(EventKind::CollectionDrop, namespace, "the collection was dropped")
}

fn database_dropped(database: &str) -> LineEvent {
    LineEvent::new(EventKind::CollectionDrop, database, "the database was dropped")
}

fn writes_locked() -> LineEvent {
    LineEvent::server(EventKind::WritesLock, "writes were locked by fsyncLock")
}

fn writes_unlocked() -> LineEvent {
    LineEvent::server(EventKind::WritesLock, "writes were unlocked by fsyncUnlock")
}

/// A parameter got a value; values that may be secrets or long are not shown.
fn setting_changed(name: &str, new: &str, old: &str) -> LineEvent {
    let text = match (setting(name, new), setting(name, old)) {
        ("", _) => "changed".to_owned(),
        (new, "") => format!("set to {new}"),
        (new, old) => format!("set to {new}, was {old}"),
    };
    LineEvent::new(EventKind::SettingChange, name, text)
}

/// The value of a parameter, if it can be shown: a number, a word, or a list of words with numbers.
fn setting<'a>(name: &str, value: &'a str) -> &'a str {
    const SECRET: [&str; 6] = ["password", "secret", "key", "token", "credential", "pem"];
    let name = name.to_ascii_lowercase();
    let value = value.trim_matches('"');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_=,.()%:+- ".contains(c);
    let is_shown =
        value.len() <= 100 && value.chars().all(is_plain) && !SECRET.iter().any(|word| name.contains(word));
    if is_shown { value } else { "" }
}

fn log_rotated() -> LineEvent {
    LineEvent::server(EventKind::LogRotation, "the log was rotated")
}

fn slow_status() -> LineEvent {
    LineEvent::server(EventKind::Stall, "serverStatus took over a second")
}

fn election_began(reason: &str) -> LineEvent {
    LineEvent::server(EventKind::Election, format!("stands for election: {reason}"))
}

fn election_won(term: &str) -> LineEvent {
    let text = if term.is_empty() {
        "won the election".to_owned()
    } else {
        format!("won the election of term {term}")
    };
    LineEvent::server(EventKind::Election, text)
}

fn election_lost(reason: &str) -> LineEvent {
    LineEvent::server(EventKind::Election, format!("did not win the election: {reason}"))
}

/// What WiredTiger says of its checkpoints: only long ones, at their end.
fn checkpoint(message: &str) -> Option<LineEvent> {
    let rest = &message[message.find("Checkpoint ran for ")?..];
    let rest = rest.strip_prefix("Checkpoint ran for ")?;
    let numbers: Vec<&str> =
        rest.split(|c: char| !c.is_ascii_digit()).filter(|number| !number.is_empty()).take(3).collect();
    let [seconds, pages, megabytes] = numbers[..] else { return None };
    let text = format!("the checkpoint took {seconds} s and wrote {pages} pages, {megabytes} MB");
    Some(LineEvent::server(EventKind::LongCheckpoint, text))
}

/// A text that is a namespace, as far as can be seen.
fn namespace(text: &str) -> Option<&str> {
    (!text.is_empty() && names::is_namespace(text.as_bytes())).then_some(text)
}

/// A text that is the name of an index; empty if it is none.
fn index_name(text: &str) -> &str {
    let is_name =
        text.len() <= 127 && !text.contains(|c: char| c.is_control() || matches!(c, '"' | '{' | '['));
    if is_name { text } else { "" }
}

/// A word of the server's own: a state, or the name of an error code.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    if end <= 64 { &text[..end] } else { "" }
}

/// A name of a machine with its port.
fn host(text: &str) -> Option<&str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
    (!text.is_empty() && text.len() <= 128 && text.chars().all(allowed)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_may_be_secret_are_not_shown() {
        let text = |name, new, old| setting_changed(name, new, old).text.into_string();
        assert_eq!(text("cursorTimeoutMillis", "1000", "600000"), "set to 1000, was 600000");
        assert_eq!(
            text("wiredTigerEngineRuntimeConfig", "\"cache_size=40MB\"", "\"\""),
            "set to cache_size=40MB"
        );
        assert_eq!(text("ldapQueryPassword", "hunter2", "x"), "changed");
        assert_eq!(text("logComponentVerbosity", "{ verbosity: 1 }", ""), "changed");
        assert_eq!(text("x", "é", ""), "changed");
    }

    #[test]
    fn only_names_are_taken_from_a_line() {
        assert_eq!((word("DuplicateKey: E11000 dup key: { a: \"secret\" }"), word("")), ("DuplicateKey", ""));
        assert_eq!(index_name("user_1"), "user_1");
        assert_eq!((index_name("{ user: \"secret\" }"), index_name("a\u{1b}[2J")), ("", ""));
        assert_eq!(host("db1.example.com:27017"), Some("db1.example.com:27017"));
        assert_eq!((host("[::1]:27017"), host("a b"), host("")), (Some("[::1]:27017"), None, None));
    }

    #[test]
    fn a_checkpoint_is_an_event_when_it_ends() {
        let of = |message| checkpoint(message).map(|event| event.text.into_string());
        assert_eq!(
            of("WT_SESSION.checkpoint: Checkpoint ran for 31 seconds and wrote: 12345 pages (230 MB)")
                .as_deref(),
            Some("the checkpoint took 31 s and wrote 12345 pages, 230 MB")
        );
        assert_eq!(of("Checkpoint has been running for 20 seconds and wrote: 5 pages (1 MB)"), None);
        assert_eq!((of("Checkpoint ran for"), of("saving checkpoint snapshot min: 52")), (None, None));
    }
}
