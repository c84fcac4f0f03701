//! The events of a span as changes: which belong together, and which of them can explain anything.

use std::collections::BTreeMap;

use super::change::{ChangeKind, HistoryChange};
use super::commands;
use super::holds::holds;
use super::sides::{ComparedSpan, Sides};
use crate::Endpoint;
use crate::history::{Event, EventKind, Span};

/// The most windows between an event and what it explains.
pub(super) const REACH_WINDOWS: u64 = 3;

/// What an event can explain.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum EventScope {
    /// Operations on its namespace.
    Namespace,
    /// Writes on its server.
    Writes,
    /// Everything on its server.
    Server,
    /// Everything that becomes worse on its server.
    Load,
    /// Nothing: it is only worth knowing.
    Nothing,
}

/// What an event can explain; `None` for events that are no change of the server.
pub(super) const fn scope(kind: EventKind) -> Option<EventScope> {
    use EventKind as Kind;
    Some(match kind {
        Kind::IndexBuildBegin | Kind::IndexBuildEnd | Kind::IndexDrop | Kind::CollectionDrop => {
            EventScope::Namespace
        }
        Kind::WritesLock => EventScope::Writes,
        Kind::ServerStart
        | Kind::ServerStop
        | Kind::ServerCrash
        | Kind::ServerUpgrade
        | Kind::ServerUnreachable
        | Kind::ServerReachable
        | Kind::StateChange
        | Kind::Election
        | Kind::Reconfiguration
        | Kind::SettingChange => EventScope::Server,
        Kind::ProfilerChange
        | Kind::LongCheckpoint
        | Kind::Stall
        | Kind::ConnectionStorm
        | Kind::FileSystemFull
        | Kind::OutOfMemory
        | Kind::CpuThrottled
        | Kind::Gap => EventScope::Load,
        Kind::LogError | Kind::LogFatal | Kind::LogRotation | Kind::ClockStep => EventScope::Nothing,
        _ => return None,
    })
}

/// Whether an event may explain what changes on its server.
pub fn can_explain(event: &Event) -> bool {
    scope(event.kind).is_some_and(|scope| scope != EventScope::Nothing)
}

/// Whether a list of what changed has an event of this kind always: each is a change of the server. What happens again
/// and again is there only where it is unusual.
pub(super) const fn is_always_listed(kind: EventKind) -> bool {
    match kind {
        EventKind::NewApplication => true,
        kind => scope(kind).is_some() && !is_recurring(kind),
    }
}

/// Where a change stands among others of the same cost: events that can explain something first, then other changes and
/// servers that wrote no samples, then events that are only worth knowing.
fn list_order(change: &HistoryChange) -> u8 {
    match &change.what {
        _ if change.silences().is_some() => 1,
        ChangeKind::Event(events) => match events.iter().find_map(|event| scope(event.kind)) {
            Some(EventScope::Nothing) | None => 2,
            Some(_) => 0,
        },
        _ => 1,
    }
}

/// Sorts changes as they are read: by cost; those of the same cost with what can explain something first, and then by time.
pub(super) fn sort(changes: &mut [HistoryChange]) {
    changes.sort_by(|a, b| {
        (b.cost_ns.abs().total_cmp(&a.cost_ns.abs()))
            .then_with(|| is_of_machine(a).cmp(&is_of_machine(b)))
            .then_with(|| list_order(a).cmp(&list_order(b)))
            .then_with(|| a.since.cmp(&b.since))
    });
}

/// Whether operations fail because of it, with this error of MongoDB's `error_codes.yml`.
pub(super) fn causes_errors(event: &Event, code: i32) -> bool {
    use EventKind::{
        Election, OutOfMemory, ServerCrash, ServerStart, ServerStop, ServerUnreachable, ServerUpgrade,
        StateChange,
    };
    match event.kind {
        _ if depends_on_document(code) => false,
        // It may have begun with other rights and other commands.
        ServerStart | ServerUpgrade => true,
        OutOfMemory => event.server.port != 0 && !depends_on_request(code),
        Election | ServerCrash | ServerStop | ServerUnreachable | StateChange => !depends_on_request(code),
        _ => false,
    }
}

/// Whether a document is refused: it is too large, does not fit the rules of its collection, changes its `_id`, or has a
/// key that another one has.
const fn depends_on_document(code: i32) -> bool {
    matches!(code, 66 | 121 | 10_334 | 11_000 | 11_001 | 12_582)
}

/// Whether a request is refused for what it asks, by every server with these settings: bad values, names and options, a
/// lack of rights, an unknown command.
const fn depends_on_request(code: i32) -> bool {
    matches!(code, 2 | 9 | 13 | 14 | 16 | 20 | 22 | 28 | 40 | 48 | 52..=57 | 59 | 72 | 73)
}

/// Whether a change is about the machine rather than one of its servers; such changes are listed last.
fn is_of_machine(change: &HistoryChange) -> bool {
    change.server.port == 0
}

/// Whether it happens again and again, so that it counts only where it happens more often than before.
pub(super) const fn is_recurring(kind: EventKind) -> bool {
    use EventKind::{ConnectionStorm, CpuThrottled, LogError, LongCheckpoint, Stall};
    matches!(kind, ConnectionStorm | CpuThrottled | LogError | LongCheckpoint | Stall)
}

/// The subjects of the limits of a control group, as their events name them.
const LIMIT_OF_TIME: &str = "limit of processor time";
const LIMIT_OF_MEMORY: &str = "limit of memory";

/// Events that are stages of one thing: a restart is an end, a start, and what is different since then; a limit that was
/// lowered is the beginning of what it denies.
pub(super) fn family(event: &Event) -> EventKind {
    use EventKind as Kind;
    match event.kind {
        Kind::IndexBuildEnd => Kind::IndexBuildBegin,
        Kind::ServerStop
        | Kind::ServerCrash
        | Kind::ServerUpgrade
        | Kind::ServerUnreachable
        | Kind::ServerReachable => Kind::ServerStart,
        // That of the machine may have killed any process.
        Kind::OutOfMemory if event.server.port != 0 => Kind::ServerStart,
        Kind::SettingChange if event.is_setting_of_start() => Kind::ServerStart,
        Kind::SettingChange if *event.subject == *LIMIT_OF_MEMORY => Kind::ServerStart,
        Kind::SettingChange if *event.subject == *LIMIT_OF_TIME => Kind::CpuThrottled,
        other => other,
    }
}

/// The database and collection that an event is about.
pub(super) fn namespace(event: &Event) -> &str {
    if matches!(&*event.subject, LIMIT_OF_TIME | LIMIT_OF_MEMORY) {
        return "";
    }
    // The name of an index may follow.
    event.subject.split(' ').next().unwrap_or_default()
}

/// The events of the span as changes, those of one kind about one subject together.
pub(super) fn changes(sides: &Sides<'_>) -> Vec<HistoryChange> {
    // An event may cause what the first window shows.
    let reach = sides.width_ns.saturating_mul(REACH_WINDOWS);
    let from = sides.span().from.minus_ns(reach);
    let span = Span { from, to: sides.span().to };
    let seconds = |span: Span| span.length_ns() as f64;
    // Those before the span are apart: they count only with their effects.
    let own = sides.around(sides.span()).from;
    let mut groups: BTreeMap<(bool, EventKind, Endpoint, &str), Vec<Event>> = BTreeMap::new();
    let mut before: BTreeMap<(EventKind, Endpoint, &str), u64> = BTreeMap::new();
    let commands = commands::events(sides);
    let events = sides.events().iter().chain(&commands);
    // What still holds operations counts, however long ago it began.
    let holds = holds(sides);
    let began_hold = |event: &Event| holds.iter().any(|hold| hold.began_with(event));
    for event in events.filter(|event| scope(event.kind).is_some()) {
        let key = (family(event), event.server, namespace(event));
        if span.contains(event.at) || began_hold(event) {
            let (kind, server, subject) = key;
            groups.entry((event.at < own, kind, server, subject)).or_default().push(event.clone());
        } else if event.at < span.from {
            *before.entry(key).or_default() += event.count;
        }
    }
    let first = sides.windows(ComparedSpan::Before).first().map_or(span.from, |window| window.window.start);
    let usual = seconds(Span { from: first, to: span.from }).max(1.0);
    groups
        .into_iter()
        .filter(|((_, kind, server, subject), events)| {
            let key = &(*kind, *server, *subject);
            let count: u64 = events.iter().map(|event| event.count).sum();
            let expected = *before.get(key).unwrap_or(&0) as f64 * seconds(span) / usual;
            events.iter().any(|event| !is_recurring(event.kind)) || count as f64 > 2.0 * expected
        })
        .filter_map(|((_, _, server, _), mut events)| {
            events.sort_by_key(|event| event.at);
            let since = events.first()?.at;
            Some(HistoryChange::new(server, since, ChangeKind::Event(events)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, Timestamp};

    #[test]
    fn an_event_causes_only_errors_that_it_can_cause() {
        let causes = |kind, code| {
            let (server, text) = (Endpoint::v4([127, 0, 0, 1], 27_017), Box::<str>::default());
            let at = Timestamp::from_unix(1_795_219_200, 0);
            causes_errors(&Event { at, kind, server, subject: text.clone(), text, count: 1 }, code)
        };
        // InterruptedAtShutdown, NotWritablePrimary, DuplicateKey, Unauthorized.
        let codes = [11_600, 10_107, 11_000, 13];
        let of = |kind| codes.map(|code| causes(kind, code));
        assert_eq!(of(EventKind::ServerStop), [true, true, false, false]);
        assert_eq!(of(EventKind::Election), [true, true, false, false]);
        assert_eq!(of(EventKind::ServerStart), [true, true, false, true], "it may demand a login now");
        assert_eq!(of(EventKind::IndexDrop), [false; 4]);
    }
}
