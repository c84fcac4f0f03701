//! Commands of administrators on the wire, as events: a log is not always there, and it does not have all of them.

use std::collections::BTreeMap;

use super::sides::{ComparedSpan, RECENT_WINDOWS, Sides, first_began};
use crate::history::{Event, EventKind, HistoryWindow};
use crate::time::NS_PER_S;
use crate::{Endpoint, Role, Source, Timestamp};

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

/// Commands that change something only with some arguments, which rows do not have: the shape of a command of an
/// administrator is its name and its namespace. `{profile: -1}` only asks for the level of the profiler; the log has each
/// change of it. Without `lock`, `fsync` only writes to disk; that it locked writes is seen when they are unlocked.
const DEPENDS_ON_ARGUMENTS: [&str; 2] = ["fsync", "profile"];
/// Ends what `fsync` began, and fails if nothing is locked.
const UNLOCK: &str = "fsyncunlock";

/// Whether a command is known to change something. `unlocked` says whether writes were unlocked later on the same server.
fn is_change(command: &str, unlocked: bool) -> bool {
    let lower = command.to_ascii_lowercase();
    let is_lock = lower == "fsync" && unlocked;
    is_lock || !DEPENDS_ON_ARGUMENTS.contains(&lower.as_str())
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
    /// When writes were last unlocked, by server.
    unlocked: BTreeMap<Endpoint, Timestamp>,
}

impl CommandEvents {
    fn note_unlock(&mut self, command: &WindowCommand) {
        if command.is_unlock() {
            let last = self.unlocked.entry(command.key.0).or_default();
            *last = command.began.max(*last);
        }
    }

    /// Adds the commands of a window.
    pub fn add(&mut self, window: &HistoryWindow) {
        self.windows += 1;
        for command in rows(window) {
            self.note_unlock(&command);
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
        let Self { windows, found, unlocked, .. } = self;
        let is_usual = |count: usize| count > MIN_USUAL && count * 10 > windows;
        let mut events: Vec<Event> = Vec::new();
        for ((server, command, _), (_, found)) in
            found.into_iter().filter(|(_, (count, _))| !is_usual(*count))
        {
            let unlocked = unlocked.get(&server);
            let changes = |at: Timestamp| is_change(&command, unlocked.is_some_and(|last| *last >= at));
            for event in found.into_iter().filter(|event| changes(event.at)) {
                let is_logged = stored.iter().any(|other| is_same_thing(&event, other, SAME_NS));
                if !is_logged && !is_there(&event, &events, SAME_NS) {
                    events.push(event);
                }
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
    // Tools ask for the level of the profiler again and again, with the same command.
    let before = sides.windows(ComparedSpan::Before);
    let is_usual = |key: &CommandKey| {
        let count = before.iter().filter(|window| rows(window).any(|known| known.key == *key)).count();
        count >= MIN_USUAL && count * 10 >= before.len()
    };
    // What ran shortly before may explain what the first windows show.
    let shortly = sides.windows(ComparedSpan::Before);
    let shortly = &shortly[shortly.len().saturating_sub(RECENT_WINDOWS)..];
    let windows = || shortly.iter().chain(sides.windows(ComparedSpan::After));
    let mut unlocks = CommandEvents::default();
    windows().flat_map(rows).for_each(|command| unlocks.note_unlock(&command));
    for window in windows() {
        for command in rows(window).filter(|command| !is_usual(&command.key)) {
            let unlocked = unlocks.unlocked.get(&command.key.0);
            let changes = |at: Timestamp| is_change(&command.key.1, unlocked.is_some_and(|last| *last >= at));
            for event in command.events().into_iter().filter(|event| changes(event.at)) {
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
}

impl WindowCommand {
    fn is_unlock(&self) -> bool {
        self.key.1.eq_ignore_ascii_case(UNLOCK)
    }

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
            _ => format!("command {command}"),
        };
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
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each form of the commands whose arguments decide whether they change anything: its name, whether `fsyncUnlock`
    /// follows with success, and whether it counts.
    #[test]
    fn only_what_is_known_to_change_something_is_an_event() {
        for (form, command, unlocked, expected) in [
            ("{fsync: 1}", "fsync", false, false),
            ("{fsync: 1, lock: false}", "fsync", false, false),
            ("{fsync: 1, lock: true}", "fsync", true, true),
            ("{fsyncUnlock: 1}", "fsyncUnlock", true, true),
            ("{profile: -1}", "profile", false, false),
            ("{profile: 0}", "profile", false, false),
            ("{profile: 1, slowms: 20}", "profile", true, false),
            ("{profile: 2, filter: {}}", "profile", false, false),
            ("{setParameter: 1, ttlMonitorEnabled: false}", "setParameter", false, true),
            ("{dropIndexes: \"carts\", index: \"*\"}", "dropIndexes", false, true),
        ] {
            assert_eq!(is_change(command, unlocked), expected, "{form}");
            assert!(kind(command).is_some(), "{form}");
        }
        for command in ["getParameter", "find", "serverStatus", "listIndexes"] {
            assert_eq!(kind(command), None, "{command}");
        }
    }
}
