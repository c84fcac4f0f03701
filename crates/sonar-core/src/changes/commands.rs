//! Commands of administrators on the wire, as events: a log is not always there, and it does not have all of them.

use std::collections::BTreeMap;

use super::sides::{ComparedSpan, RECENT_WINDOWS, Sides, first_began};
use crate::history::{Event, EventKind, HistoryWindow};
use crate::time::NS_PER_S;
use crate::{Endpoint, Role, ShapeInfo, Source, Timestamp};

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

/// Commands that change something only with one of these fields, and those that change nothing with them. `profile`
/// without any may only ask for its level (`{profile: -1}`): its value is not known here, but the log has each change of
/// it. Without `lock`, `fsync` only writes to disk.
const ONLY_WITH: [(&str, &[&str]); 2] =
    [("fsync", &["lock"]), ("profile", &["filter", "sampleRate", "slowms"])];
const NOT_WITH: [(&str, &[&str]); 2] = [("collmod", &["dryRun"]), ("compact", &["dryRun"])];

/// Whether a command is known to change something, by the names of its fields.
fn is_change(shape: &ShapeInfo) -> bool {
    let lower = shape.command.to_ascii_lowercase();
    let fields = |table: &[(&str, &'static [&'static str])]| {
        table.iter().find(|(name, _)| *name == lower).map(|(_, fields)| *fields)
    };
    let has = |fields: &[&str]| fields.iter().any(|field| has_field(&shape.typed, field));
    fields(&ONLY_WITH).is_none_or(has) && !fields(&NOT_WITH).is_some_and(has)
}

/// Whether the text of a shape has a field of this name.
fn has_field(text: &str, field: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '.';
    text.match_indices(field).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + field.len()..].trim_start_matches(['\'', '"']);
        !before.is_some_and(is_part) && after.starts_with(':')
    })
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

    /// Their events that `stored` does not have, without those of commands that programs run again and again.
    pub fn finish(self, stored: &[Event]) -> Vec<Event> {
        let windows = self.windows;
        let is_usual = |count: usize| count > MIN_USUAL && count * 10 > windows;
        let mut events: Vec<Event> = Vec::new();
        for (_, (_, found)) in self.found.into_iter().filter(|(_, (count, _))| !is_usual(*count)) {
            for event in found {
                let is_same = |other: &&Event| is_same_thing(&event, other, SAME_NS);
                if stored.iter().chain(&events).find(is_same).is_none() {
                    events.push(event);
                }
            }
        }
        events.sort_by_key(|event| event.at);
        events
    }
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
    // Tools ask for the level of the profiler again and again, with the same command.
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
                let is_known = |other: &&Event| is_same_thing(&event, other, sides.width_ns);
                if sides.events().iter().chain(&events).find(is_known).is_none() {
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
        let text = format!("command {command}");
        let event = |at, kind| Event::new(at, kind, *server, (subject, &text));
        match (self.kind, self.is_long) {
            (EventKind::IndexBuildBegin, true) => {
                vec![event(self.began, self.kind), event(self.ended, EventKind::IndexBuildEnd)]
            }
            (kind, true) => vec![event(self.ended, kind)],
            (kind, false) => vec![event(self.began, kind)],
        }
    }
}

/// The administrators' commands of a window.
fn rows(window: &HistoryWindow) -> impl Iterator<Item = WindowCommand> {
    let rows = window.window.shapes.iter().filter(|row| row.role == Role::Served);
    let start = window.window.start;
    rows.filter_map(move |row| {
        let shape = row.shape();
        let kind = kind(&shape.command)?;
        let figures = &row.observed_by(Source::Wire)?.figures;
        // One that failed has changed nothing.
        if figures.failed >= figures.calls || !is_change(shape) {
            return None;
        }
        let began = first_began(figures);
        Some(WindowCommand {
            key: (row.server, shape.command.clone(), shape.namespace()),
            kind,
            began,
            ended: figures.first_seen,
            is_long: began < start,
        })
    })
}
