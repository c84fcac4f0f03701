//! Commands of administrators on the wire, as events: a log is not always there, and it does not have all of them.

use super::sides::{ComparedSpan, RECENT_WINDOWS, Sides};
use crate::history::{Event, EventKind, HistoryWindow};
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

/// The administrators' commands of the span as events, without those that are in the log and those that ran before too.
pub(super) fn events(sides: &Sides<'_>) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    // Tools ask for the level of the profiler again and again, with the same command.
    let before = sides.windows(ComparedSpan::Before);
    let is_usual = |key: &CommandKey| {
        let count = before.iter().filter(|window| rows(window).any(|(known, _)| known == *key)).count();
        count >= MIN_USUAL && count * 10 >= before.len()
    };
    // What ran shortly before may explain what the first windows show.
    let shortly = sides.windows(ComparedSpan::Before);
    let shortly = &shortly[shortly.len().saturating_sub(RECENT_WINDOWS)..];
    for window in shortly.iter().chain(sides.windows(ComparedSpan::After)) {
        for (key, at) in rows(window) {
            let Some(kind) = kind(&key.1).filter(|_| !is_usual(&key)) else { continue };
            let (server, command, namespace) = key;
            let is_known = |event: &&Event| {
                event.kind == kind
                    && event.server.port == server.port
                    && event.at.since(at).max(at.since(event.at)) <= sides.width_ns
            };
            if sides.events().iter().find(is_known).or_else(|| events.iter().find(is_known)).is_none() {
                let is_about_namespace = matches!(
                    kind,
                    EventKind::IndexBuildBegin
                        | EventKind::IndexDrop
                        | EventKind::CollectionDrop
                        | EventKind::ProfilerChange
                );
                let subject = if is_about_namespace { &*namespace } else { "" };
                events.push(Event::new(at, kind, server, (subject, &format!("command {command}"))));
            }
        }
    }
    events
}

/// Server, command, and namespace.
type CommandKey = (Endpoint, Box<str>, String);

/// The administrators' commands of a window, and when the first of each ended.
fn rows(window: &HistoryWindow) -> impl Iterator<Item = (CommandKey, Timestamp)> {
    let rows = window.window.shapes.iter();
    let rows = rows.filter(|row| row.role == Role::Served && kind(&row.shape().command).is_some());
    rows.filter_map(|row| {
        let shape = row.shape();
        let figures = &row.observed_by(Source::Wire)?.figures;
        // One that failed has changed nothing.
        if figures.failed >= figures.calls || !is_change(shape) {
            return None;
        }
        Some(((row.server, shape.command.clone(), shape.namespace()), figures.first_seen))
    })
}
