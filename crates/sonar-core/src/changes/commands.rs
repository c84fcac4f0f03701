//! Commands of administrators on the wire, as events: a log is not always there, and it does not have all of them.

use std::collections::BTreeMap;

use super::sides::{ComparedSpan, RECENT_WINDOWS, Sides, first_began};
use crate::history::{Event, EventKind, HistoryWindow};
use crate::shape::UNKNOWN;
use crate::time::NS_PER_S;
use crate::{Endpoint, Identity, Role, ShapeInfo, Source, Subject, Timestamp};

/// Commands that change a server, and what they do, in lower case.
const COMMANDS: [(&str, EventKind); 18] = [
    ("applyops", EventKind::SettingChange),
    ("collmod", EventKind::SettingChange),
    ("compact", EventKind::SettingChange),
    ("createindexes", EventKind::IndexBuildBegin),
    ("deleteindexes", EventKind::IndexDrop),
    ("drop", EventKind::CollectionDrop),
    ("dropdatabase", EventKind::CollectionDrop),
    ("dropindexes", EventKind::IndexDrop),
    ("fsync", EventKind::WritesLock),
    ("fsyncunlock", EventKind::WritesLock),
    ("profile", EventKind::ProfilerChange),
    ("replsetreconfig", EventKind::StateChange),
    ("replsetstepdown", EventKind::StateChange),
    ("setdefaultrwconcern", EventKind::SettingChange),
    ("setfeaturecompatibilityversion", EventKind::SettingChange),
    ("setparameter", EventKind::SettingChange),
    ("setprofilingfilterglobally", EventKind::ProfilerChange),
    ("shutdown", EventKind::ServerStop),
];

/// The number of earlier windows with a command from which on it is usual.
const MIN_USUAL: usize = 3;

/// Ends what `fsync` began, and fails if nothing is locked.
const UNLOCK: &str = "fsyncunlock";
/// The shape of `fsync` that locks writes; any other only writes to disk.
const LOCKS: &str = "{lock: true}";
/// The shape of `profile` that only asks; with anything else in it, also with the level -1, it changes something.
const ASKS: &str = "{profile: -1}";

/// How the shape of `profile` begins that switches it off.
const SWITCHES_OFF: &str = "{profile: 0";
/// The text of its event.
pub(super) const PROFILER_OFF: &str = "command profile, level 0";

/// Whether a command of an administrator changes something, by its shape. If that is not known to its end, only commands
/// that always do.
fn is_change(shape: &ShapeInfo, identity: Identity) -> bool {
    let (is_exact, typed) = (identity == Identity::Exact, &*shape.typed);
    match &*shape.command.to_ascii_lowercase() {
        "fsync" => is_exact && typed == LOCKS,
        // Histories of earlier versions do not tell whether it only asks.
        "profile" => is_exact && typed != ASKS && typed != UNKNOWN,
        _ => true,
    }
}

/// What a command changes; `None` for one that is no administrator's.
pub(super) fn kind(command: &str) -> Option<EventKind> {
    let lower = command.to_ascii_lowercase();
    COMMANDS.iter().find(|(name, _)| *name == lower).map(|(_, kind)| *kind)
}

/// The most commands of a span that become events.
const MAX_EVENTS: usize = 1_000;
/// How near two events of one kind on a server are that are about the same thing, in nanoseconds: the log and the wire
/// have one each.
const SAME_NS: u64 = 10 * NS_PER_S;

/// Administrators' commands on the wire, collected from the windows of a span, as events: views show them beside those
/// that are stored.
#[derive(Clone, Debug, Default)]
pub struct CommandEvents {
    windows: usize,
    /// By command: in how many windows, and its events.
    found: BTreeMap<CommandKey, (usize, Vec<Event>)>,
    count: usize,
}

impl CommandEvents {
    /// Adds the commands of a window.
    pub fn add(&mut self, window: &HistoryWindow) {
        self.windows += 1;
        for command in rows(window) {
            let (windows, events) = self.found.entry(command.key.clone()).or_default();
            *windows += 1;
            if self.count < MAX_EVENTS {
                let new = command.events();
                self.count += new.len();
                events.extend(new);
            }
        }
    }

    /// How many events it holds.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether it holds none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds the commands of other windows.
    pub fn merge(&mut self, other: Self) {
        self.windows += other.windows;
        for (key, (windows, mut events)) in other.found {
            events.truncate(MAX_EVENTS.saturating_sub(self.count));
            self.count += events.len();
            let found = self.found.entry(key).or_default();
            found.0 += windows;
            found.1.append(&mut events);
        }
    }

    /// Their events that `stored` does not have, without those of commands that programs run again and again.
    pub fn finish(self, stored: &[Event]) -> Vec<Event> {
        let Self { windows, found, .. } = self;
        let is_usual = |count: usize| count > MIN_USUAL && count * 10 > windows;
        let mut events: Vec<Event> = Vec::new();
        for event in found.into_values().filter(|(count, _)| !is_usual(*count)).flat_map(|(_, found)| found) {
            let is_logged = stored.iter().any(|other| is_same_thing(&event, other, SAME_NS));
            if !is_logged && !is_there(&event, &events, SAME_NS) {
                events.push(event);
            }
        }
        events.sort_by_key(|event| event.at);
        events
    }
}

/// Whether a command that does the same is among `events`: locking and unlocking are of one kind.
fn is_there(event: &Event, events: &[Event], width_ns: u64) -> bool {
    events.iter().any(|other| other.text == event.text && is_same_thing(event, other, width_ns))
}

fn is_same_thing(event: &Event, other: &Event, width_ns: u64) -> bool {
    let is_namespace = other.subject.is_empty()
        || event.subject.is_empty()
        || other.subject.split(' ').next() == event.subject.split(' ').next();
    event.kind == other.kind
        && event.server.port == other.server.port
        && is_namespace
        && event.at.since(other.at).max(other.at.since(event.at)) <= width_ns
}

/// The administrators' commands of the span as events, without those that are in the log and those that ran before too.
pub(super) fn events(sides: &Sides<'_>) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    // What tools run again and again, with the same command.
    let before = sides.windows(ComparedSpan::Before);
    let is_usual = |key: &CommandKey| {
        let count = before.iter().filter(|window| rows(window).any(|known| known.key == *key)).count();
        count >= MIN_USUAL && count * 10 >= before.len()
    };
    // What ran shortly before may explain what the first windows show.
    let shortly = sides.windows(ComparedSpan::Before);
    let shortly = &shortly[shortly.len().saturating_sub(RECENT_WINDOWS)..];
    for window in shortly.iter().chain(sides.windows(ComparedSpan::After)) {
        for command in rows(window).filter(|command| !is_usual(&command.key)) {
            for event in command.events() {
                let is_logged =
                    sides.events().iter().any(|other| is_same_thing(&event, other, sides.width_ns));
                if !is_logged && !is_there(&event, &events, sides.width_ns) {
                    events.push(event);
                }
            }
        }
    }
    events
}

/// Server, command, and namespace.
type CommandKey = (Endpoint, Box<str>, String);

/// A command of an administrator, as one window has it.
struct WindowCommand {
    key: CommandKey,
    kind: EventKind,
    /// When the first one began and ended.
    began: Timestamp,
    ended: Timestamp,
    /// Whether it began before the window.
    is_long: bool,
    /// Whether it switches off what it is about.
    is_off: bool,
}

impl WindowCommand {
    fn events(&self) -> Vec<Event> {
        let (server, command, namespace) = &self.key;
        let is_about_namespace = matches!(
            self.kind,
            EventKind::IndexBuildBegin
                | EventKind::IndexDrop
                | EventKind::CollectionDrop
                | EventKind::ProfilerChange
        );
        let subject = if is_about_namespace { &**namespace } else { "" };
        let text = match &*command.to_ascii_lowercase() {
            "fsync" => "writes were locked by the command fsync".to_owned(),
            UNLOCK => "writes were unlocked by the command fsyncUnlock".to_owned(),
            "profile" if self.is_off => PROFILER_OFF.to_owned(),
            _ => format!("command {command}"),
        };
        let event = |at, kind| Event::new(at, kind, *server, &text).about(subject);
        match (self.kind, self.is_long) {
            (EventKind::IndexBuildBegin, true) => {
                vec![event(self.began, self.kind), event(self.ended, EventKind::IndexBuildEnd)]
            }
            (kind, true) => vec![event(self.ended, kind)],
            (kind, false) => vec![event(self.began, kind)],
        }
    }
}

/// The administrators' commands of a window that change something.
fn rows(window: &HistoryWindow) -> impl Iterator<Item = WindowCommand> {
    let rows = window.window.shapes.iter().filter(|row| row.role == Role::Served);
    let start = window.window.start;
    rows.filter_map(move |row| {
        let shape = row.shape();
        let kind = kind(&shape.command)?;
        let Subject::Shape { identity, .. } = &row.subject else { return None };
        if !is_change(shape, *identity) {
            return None;
        }
        let figures = &row.observed_by(Source::Wire)?.figures;
        // One that failed has changed nothing.
        if figures.failed >= figures.calls {
            return None;
        }
        let began = first_began(figures);
        Some(WindowCommand {
            key: (row.server, shape.command.clone(), shape.namespace()),
            kind,
            began,
            ended: figures.first_seen,
            is_long: began < start,
            is_off: shape.typed.starts_with(SWITCHES_OFF),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_to_change_something_is_an_event() {
        for (command, typed, identity, expected) in [
            ("fsync", "{}", Identity::Exact, false),
            ("fsync", "{lock: true}", Identity::Exact, true),
            ("fsync", "{lock: true}", Identity::Partial, false),
            ("fsyncUnlock", "{}", Identity::Exact, true),
            ("profile", "{profile: -1}", Identity::Exact, false),
            ("profile", "{profile: -1, slowms: ?number}", Identity::Exact, true),
            ("profile", "{}", Identity::Exact, true),
            ("profile", "{}", Identity::Partial, false),
            ("profile", "?", Identity::Exact, false),
            ("setParameter", "{}", Identity::Exact, true),
            ("dropIndexes", "{}", Identity::Partial, true),
        ] {
            let shape = ShapeInfo { command: command.into(), typed: typed.into(), ..ShapeInfo::default() };
            assert_eq!(is_change(&shape, identity), expected, "{command} {typed} {identity:?}");
            assert!(kind(command).is_some(), "{command}");
        }
        for command in ["getParameter", "find", "serverStatus", "listIndexes"] {
            assert_eq!(kind(command), None, "{command}");
        }
    }
}
