//! Which event explains which changes, and in which order to read them.

use std::collections::HashSet;

use super::change::{
    ApplicationChange, ChangeKind, HistoryChange, ServerChange, ServerLevel, ServerMeasure, ShapeChange,
    ShapeFigures, ShapeWay,
};
use super::commands::PROFILER_OFF;
use super::events::{self, EventScope, REACH_WINDOWS, causes_errors, namespace, scope};
use super::holds::is_write;
use super::machine;
use super::sides::{ComparisonKind, Sides};
use super::stages::in_stages;
use super::stalls::LONG_NS;
use crate::history::{Event, EventKind, Span, namespace_of};
use crate::time::NS_PER_S;
use crate::{Endpoint, ShapeId, Timestamp};

/// The most time between an event and what it explains, in nanoseconds: what happened within the same hour is not near.
const MAX_REACH_NS: u64 = 60 * NS_PER_S;
/// How exactly people and programs know the time of an event, in nanoseconds.
const SLACK_NS: u64 = 3 * NS_PER_S;
/// Connections of a storm stay for some time, in nanoseconds.
const STORM_NS: u64 = 10 * NS_PER_S;
/// The share of the operations that a shape has more, or has after, which make them those of a new application.
const MIN_BROUGHT: f64 = 0.5;
/// How many times as much as others a shape must cost to explain them.
const MIN_DOMINANCE: f64 = 1.0;

/// Joins causes (events, and `others`: applications, collections that grew) with their effects.
pub(super) fn explain(
    sides: &Sides<'_>,
    others: Vec<HistoryChange>,
    changes: Vec<HistoryChange>,
) -> Vec<HistoryChange> {
    let mut causes = events::changes(sides);
    for other in others {
        // Applications end with their server.
        match causes.iter().position(|cause| ends(cause, &other, sides)) {
            // The shapes that stop with the server are its effects, too, and have the same cost.
            Some(at) => causes[at].effects.push(HistoryChange { cost_ns: 0.0, ..other }),
            None => causes.push(other),
        }
    }
    let mut rest = Vec::new();
    let holders: HashSet<ShapeKey> = changes.iter().filter_map(shape_key).collect();
    for change in changes {
        // What happened to the server itself explains it better than what happened to the machine, and of that what the
        // operations wait for most.
        let closeness = |cause: &HistoryChange| {
            let is_own = cause.server == change.server;
            let (kind, explained_ns) = match &cause.what {
                ChangeKind::Machine(what) => (0, machine::explained_ns(what, &change)),
                _ => (1 + u8::from(is_own), 0),
            };
            (kind, explained_ns, is_own)
        };
        let explains = |cause: &HistoryChange| Some((strength(cause, &change, sides)?, closeness(cause)));
        let best = causes.iter().enumerate().filter_map(|(at, cause)| Some((explains(cause)?, at))).max();
        // That an operation ended its waits is better known than that something else happened at the same time.
        let is_held = held_by(&change).is_some_and(|holder| holders.contains(&holder));
        match best.filter(|((strength, _), _)| !is_held || *strength > 1) {
            Some((_, at)) => causes[at].effects.push(change),
            None => rest.push(change),
        }
    }
    let mut causes: Vec<HistoryChange> =
        causes.into_iter().flat_map(|cause| apart_in_time(cause, sides)).collect();
    for cause in &mut causes {
        cause.effects.sort_by(|a, b| b.cost_ns.abs().total_cmp(&a.cost_ns.abs()));
        let of_effects = cause.effects.iter().map(|effect| effect.cost_ns).sum();
        cause.cost_ns = match &cause.what {
            // All of its time is new, also that of shapes which others run too.
            ChangeKind::Application(app) if app.versions_before.is_empty() && !app.has_ended => app.time_ns,
            // What it no longer asks, also of shapes which others run too.
            ChangeKind::Application(app) if app.has_ended => cause.cost_ns.min(of_effects),
            _ => of_effects,
        };
    }
    let mut causes = with_their_storms(causes, sides);
    // An event before the span counts only if it explains something in it.
    let first = sides.around(sides.span()).from;
    causes.retain(|cause| match &cause.what {
        ChangeKind::Machine(what) => !cause.effects.is_empty() || machine::stands_alone(what),
        // That an application of few operations has ended shows only later.
        ChangeKind::Application(app) if app.has_ended => true,
        _ => !cause.effects.is_empty() || extent(cause, sides).to >= first,
    });
    causes.extend(beside_new_shapes(rest, sides));
    causes
}

/// Events that are too far apart for one change as changes of their own, each with what it explains.
fn apart_in_time(cause: HistoryChange, sides: &Sides<'_>) -> Vec<HistoryChange> {
    let ChangeKind::Event(events) = &cause.what else { return vec![cause] };
    let stages = in_stages(events, sides.width_ns);
    if stages.len() < 2 {
        return vec![cause];
    }
    let change = |events: Vec<Event>| {
        let since = events.first().map_or(cause.since, |event| event.at);
        HistoryChange::new(cause.server, since, ChangeKind::Event(events))
    };
    let mut changes: Vec<HistoryChange> = stages.into_iter().map(change).collect();
    for effect in cause.effects {
        let fits = |one: &HistoryChange| (strength(one, &effect, sides), ends(one, &effect, sides));
        // Of those that explain it as well the first one: the end of a thing explains less than its beginning.
        let best = changes.iter_mut().rev().max_by_key(|one| fits(one));
        if let Some(best) = best {
            best.effects.push(effect);
        }
    }
    changes
}

/// A storm of connections that came with a new application is that application's.
fn with_their_storms(causes: Vec<HistoryChange>, sides: &Sides<'_>) -> Vec<HistoryChange> {
    let (storms, mut others): (Vec<_>, Vec<_>) = causes
        .into_iter()
        .partition(|cause| matches!(&cause.what, ChangeKind::Event(events) if is_storm(events)));
    for mut storm in storms {
        let is_its = |cause: &&mut HistoryChange| {
            let distance = cause.since.since(storm.since).max(storm.since.since(cause.since));
            let is_new = matches!(&cause.what, ChangeKind::Application(app)
                if !app.has_ended && app.versions_before.is_empty());
            is_new && cause.server == storm.server && distance <= sides.width_ns.min(MAX_REACH_NS)
        };
        match others.iter_mut().filter(is_its).max_by(|a, b| a.cost_ns.total_cmp(&b.cost_ns)) {
            Some(app) => {
                app.cost_ns += storm.cost_ns;
                // How many connections are open now says it of both.
                let is_of_server = |effect: &HistoryChange| matches!(effect.what, ChangeKind::Server(_));
                let (levels, own) = storm.effects.into_iter().partition(is_of_server);
                storm.effects = own;
                app.effects.extend::<Vec<_>>(levels);
                app.effects.insert(0, storm);
            }
            None => others.push(storm),
        }
    }
    others
}

/// Whether events are a storm of connections.
fn is_storm(events: &[Event]) -> bool {
    events.iter().any(|event| event.kind == EventKind::ConnectionStorm)
}

/// Changes that began with a new shape that costs more than they do are its effects: it takes processors, cache and disk
/// from them.
fn beside_new_shapes(changes: Vec<HistoryChange>, sides: &Sides<'_>) -> Vec<HistoryChange> {
    let is_load = |change: &HistoryChange| {
        matches!(&change.what, ChangeKind::Shape(shape)
            if matches!(shape.ways.first(),
                Some(ShapeWay::New | ShapeWay::Again | ShapeWay::MoreOften | ShapeWay::Stopped)))
    };
    let (mut loads, victims): (Vec<_>, Vec<_>) = changes.into_iter().partition(is_load);
    let mut rest = Vec::new();
    for victim in victims {
        let began_with = |load: &HistoryChange| {
            // A long operation counts when it ends, and hinders others until then.
            let until = load.since.plus_ns(longest_ns(load).unwrap_or(0));
            let distance = load.since.since(victim.since).max(victim.since.since(until));
            let is_enough = load.cost_ns.abs() >= MIN_DOMINANCE * victim.cost_ns.abs();
            load.server == victim.server
                && distance <= sides.width_ns
                && (is_enough || may_have_held(load, &victim))
                && load.cost_ns.signum() == victim.cost_ns.signum()
        };
        let is_shape = matches!(victim.what, ChangeKind::Shape(_));
        if let Some(holder) = held_by(&victim)
            && let Some(load) = loads.iter_mut().find(|load| shape_key(load) == Some(holder))
        {
            load.effects.push(victim);
            continue;
        }
        let best = loads.iter_mut().filter(|load| is_shape && began_with(load));
        match best.max_by(|a, b| a.cost_ns.abs().total_cmp(&b.cost_ns.abs())) {
            Some(load) => load.effects.push(victim),
            None => rest.push(victim),
        }
    }
    let rest = below_their_holders(rest);
    // What runs now and then is worth a line only if something else changed with it, or if it is unlike before.
    loads.retain(|load| !is_as_before(load));
    loads.extend(rest);
    loads
}

/// What tells the changes of shapes apart.
type ShapeKey = (Endpoint, ShapeId);

fn shape_key(change: &HistoryChange) -> Option<ShapeKey> {
    match &change.what {
        ChangeKind::Shape(shape) => Some((change.server, shape.shape.id)),
        _ => None,
    }
}

/// The shape whose operations ended most of the waits that made operations slower, if that is another one.
fn held_by(change: &HistoryChange) -> Option<ShapeKey> {
    let ChangeKind::Shape(shape) = &change.what else { return None };
    let blocker = shape.split.as_ref()?.grown.iter().find_map(|grown| grown.blocker.as_ref())?;
    (blocker.id != shape.shape.id).then_some((change.server, blocker.id))
}

/// Changes of shapes below that of the shape which held what they waited for.
fn below_their_holders(changes: Vec<HistoryChange>) -> Vec<HistoryChange> {
    let free: HashSet<ShapeKey> =
        changes.iter().filter(|change| held_by(change).is_none()).filter_map(shape_key).collect();
    let is_held = |change: &HistoryChange| held_by(change).is_some_and(|holder| free.contains(&holder));
    let (held, mut rest): (Vec<_>, Vec<_>) = changes.into_iter().partition(is_held);
    for victim in held {
        let holder = held_by(&victim);
        match rest.iter_mut().find(|change| shape_key(change) == holder) {
            Some(change) => change.effects.push(victim),
            None => rest.push(victim),
        }
    }
    rest
}

/// The longest operation of a shape in the span, in nanoseconds.
fn longest_ns(change: &HistoryChange) -> Option<u64> {
    match &change.what {
        ChangeKind::Shape(shape) => shape.after.latency.map(|[.., longest]| longest),
        _ => None,
    }
}

/// Whether a shape that is new, or new again, may have held what operations on the same database waited for: one of its
/// operations took about as long as they did. Many may have waited for one.
fn may_have_held(load: &HistoryChange, victim: &HistoryChange) -> bool {
    let (ChangeKind::Shape(held), ChangeKind::Shape(waited)) = (&load.what, &victim.what) else {
        return false;
    };
    let is_holder = matches!(held.ways.first(), Some(ShapeWay::New | ShapeWay::Again));
    let is_victim = matches!(waited.ways.first(), Some(ShapeWay::Stalled | ShapeWay::Slower));
    let (Some(held_ns), Some(waited_ns)) = (longest_ns(load), longest_ns(victim)) else { return false };
    is_holder
        && is_victim
        && held.shape.database == waited.shape.database
        && held_ns >= LONG_NS
        && held_ns.saturating_mul(2) >= waited_ns
}

/// Whether a change is only that a shape runs again as it did, with nothing beside it.
fn is_as_before(change: &HistoryChange) -> bool {
    let ChangeKind::Shape(shape) = &change.what else { return false };
    let longest = |figures: &ShapeFigures| figures.latency.map_or(0, |[.., longest]| longest);
    shape.ways.first() == Some(&ShapeWay::Again)
        && change.effects.is_empty()
        && longest(&shape.after) < longest(&shape.before).saturating_mul(4)
}

/// Whether `cause` is the end of a server, and `other` an application that ended with it.
fn ends(cause: &HistoryChange, other: &HistoryChange, sides: &Sides<'_>) -> bool {
    let ChangeKind::Event(events) = &cause.what else { return false };
    let is_end = matches!(&other.what, ChangeKind::Application(app) if app.has_ended);
    is_end
        && cause.server == other.server
        && events.iter().any(|event| is_end_of_server(event.kind) && is_near(event.at, other, sides))
}

pub(super) const fn is_end_of_server(kind: EventKind) -> bool {
    matches!(kind, EventKind::ServerStop | EventKind::ServerCrash | EventKind::ServerUnreachable)
}

/// How well a cause explains a change, more is better; `None` if it does not.
fn strength(cause: &HistoryChange, change: &HistoryChange, sides: &Sides<'_>) -> Option<u64> {
    let is_of_server = match &cause.what {
        ChangeKind::Machine(what) => machine::concerns(what, cause.server, change.server),
        _ => cause.server == change.server || cause.server.port == 0,
    };
    if !is_of_server {
        return None;
    }
    let is_in_time = is_near(cause.since, change, sides);
    match (&cause.what, &change.what) {
        (ChangeKind::Application(app), ChangeKind::Shape(shape)) => {
            let is_its = shape.applications.first() == Some(&app.name);
            let is_end = |way: &ShapeWay| matches!(way, ShapeWay::Stopped | ShapeWay::LessOften);
            match app.has_ended {
                true => (is_its && shape.ways.iter().any(is_end)).then_some(4),
                false if is_in_time && app.versions_before.is_empty() => brought_by(app, shape, is_its),
                false => None,
            }
        }
        (ChangeKind::Application(app), ChangeKind::Errors(errors)) => {
            (is_in_time && errors.applications.first() == Some(&app.name)).then_some(4)
        }
        (ChangeKind::Growth(growth), ChangeKind::Shape(shape)) => {
            let is_worse = shape.ways.iter().any(|way| matches!(way, ShapeWay::Slower | ShapeWay::Heavier));
            let is_its = shape.shape.namespace() == namespace_of(&growth.grown.key);
            (is_in_time && is_its && is_worse && change.cost_ns > 0.0).then_some(2)
        }
        (ChangeKind::Event(events), ChangeKind::Shape(shape)) => {
            let near = events.iter().filter(|event| is_near(event.at, change, sides));
            let before = near.filter(|event| !had_stopped_before(shape, change.since, event));
            before.filter_map(|event| explains(event, shape)).max()
        }
        (ChangeKind::Application(app), ChangeKind::Server(of_server)) => {
            let is_its = of_server.applications.first() == Some(&app.name);
            let is_more = of_server.levels.iter().all(|level| level.after > level.before);
            let is_less = of_server.levels.iter().all(|level| level.after < level.before);
            // Who opened connections may run fewer operations than others do.
            let may_be = is_its || is_of_connections(of_server);
            match app.has_ended {
                true => (is_less && !of_server.levels.is_empty()).then_some(1),
                false => (is_in_time && may_be && is_more && app.versions_before.is_empty()).then_some(3),
            }
        }
        (ChangeKind::Event(events), ChangeKind::Server(of_server)) => {
            let is_of_machine =
                |event: &&Event| event.kind == EventKind::OutOfMemory && event.server.port == 0;
            let near =
                events.iter().filter(|event| !is_of_machine(event) && is_near(event.at, change, sides));
            let moving = near.filter(|event| can_move(event.kind, of_server));
            // The connections of a storm are counted. Of an application it is only known that it came at the same time.
            let opened =
                |event: &Event| event.kind == EventKind::ConnectionStorm && is_of_connections(of_server);
            moving.map(|event| if opened(event) { 4 } else { 1 }).max()
        }
        (ChangeKind::Machine(what), ChangeKind::Shape(shape)) => {
            // Both are known by windows.
            machine::explains(what, shape).filter(|_| is_in_time && cause.since <= change.since)
        }
        (ChangeKind::Machine(_), ChangeKind::Server(of_server)) => {
            let is_slower = |level: &ServerLevel| match level.measure {
                ServerMeasure::InProgress => level.after > level.before,
                ServerMeasure::Queries => level.after < level.before,
                _ => false,
            };
            let is_hindered = !of_server.levels.is_empty() && of_server.levels.iter().all(is_slower);
            (is_in_time && is_hindered && cause.since <= change.since).then_some(1)
        }
        (ChangeKind::Event(events), ChangeKind::Errors(errors)) => {
            let mut near = events.iter().filter(|event| is_near(event.at, change, sides));
            (!errors.has_ended && near.any(|event| causes_errors(event, errors.code))).then_some(1)
        }
        _ => None,
    }
}

/// How well a new application explains what a shape does; `None` if it does not. `is_its`: it runs most of its operations.
fn brought_by(app: &ApplicationChange, shape: &ShapeChange, is_its: bool) -> Option<u64> {
    let growth = shape.growth.as_ref().filter(|growth| growth.application == app.name);
    let more = growth.map_or(0.0, |growth| growth.per_second);
    let rate = shape.after.rate();
    let is_load = |way: &ShapeWay| matches!(way, ShapeWay::New | ShapeWay::Again);
    let is_own = is_its && shape.ways.iter().any(is_load);
    let is_more =
        shape.ways.contains(&ShapeWay::MoreOften) && more >= MIN_BROUGHT * (rate - shape.before.rate());
    match is_own || is_more {
        true => Some(4),
        // Most of the operations whose latencies are compared with those before.
        false => (more > 0.0 && more >= MIN_BROUGHT * rate).then_some(1),
    }
}

/// Whether what happened at `at` happened before a change, as far as its time is known, and not long before.
fn is_near(at: Timestamp, change: &HistoryChange, sides: &Sides<'_>) -> bool {
    let width = sides.width_ns;
    let reach = width.saturating_mul(REACH_WINDOWS).min(MAX_REACH_NS);
    let (slack, reach) = match &change.what {
        ChangeKind::Shape(shape) => match shape.ways.first() {
            Some(ShapeWay::New | ShapeWay::Again) => (width.min(MAX_REACH_NS), reach),
            // Its time is that of its last operation: the next one may have been due only after the event.
            Some(ShapeWay::Stopped) => (width.min(MAX_REACH_NS), reach),
            // Operations count when they end, but what they waited for was there when they began.
            Some(ShapeWay::Stalled) => {
                (width, reach.saturating_add(shape.after.latency.map_or(0, |ns| ns[2])))
            }
            _ => (width, reach),
        },
        _ => (width, reach),
    };
    at <= change.since.plus_ns(slack) && change.since <= at.plus_ns(reach)
}

/// Whether a shape had stopped before an event, which is not its cause then: its last operation is known exactly, and the
/// next one was due before the event. A server ends after the last operation that it serves, and that a control group
/// stops threads is known at the end of a period. Who asks for a collection that was dropped, asks once more: it takes no
/// connections away.
fn had_stopped_before(shape: &ShapeChange, last: Timestamp, event: &Event) -> bool {
    let rate = shape.before.rate();
    let is_inexact = is_end_of_server(event.kind)
        || matches!(event.kind, EventKind::OutOfMemory | EventKind::CpuThrottled);
    if shape.ways.first() != Some(&ShapeWay::Stopped) || is_inexact {
        return false;
    }
    match scope(event.kind) {
        Some(EventScope::Namespace) => last < event.at,
        _ => rate > 0.0 && last.plus_ns(next_due_ns(rate)) < event.at,
    }
}

/// Within which time the next operation is due at a rate of so many a second, in nanoseconds: by chance it comes later than
/// that once in twenty times.
fn next_due_ns(rate: f64) -> u64 {
    (3.0 * NS_PER_S as f64 / rate) as u64
}

/// Whether only the connections of a server changed.
fn is_of_connections(change: &ServerChange) -> bool {
    let is_connected = |level: &ServerLevel| level.measure == ServerMeasure::Connections;
    !change.levels.is_empty() && change.levels.iter().all(is_connected)
}

/// How well an event explains what a shape does, more is better; `None` if it cannot be the cause.
fn explains(event: &Event, shape: &ShapeChange) -> Option<u64> {
    if !shape.ways.iter().any(|way| can_cause(event, *way)) {
        return None;
    }
    let is_hindered = shape.ways.iter().any(|way| matches!(way, ShapeWay::Slower | ShapeWay::Stalled));
    if event.kind == EventKind::CpuThrottled && is_hindered {
        return match &shape.split {
            Some(split) => {
                split.grown.iter().any(|grown| machine::waits_for_processor(grown.what)).then_some(3)
            }
            None => Some(2),
        };
    }
    match scope(event.kind)? {
        EventScope::Namespace => {
            // A database that was dropped had all of its collections.
            let is_its =
                namespace(event) == shape.shape.namespace() || *namespace(event) == *shape.shape.database;
            is_its.then_some(3)
        }
        EventScope::Writes if !is_write(&shape.shape.command) => None,
        // That it held them is known; that an index is missing, too, is not what they waited for.
        EventScope::Writes => Some(if shape.ways.first() == Some(&ShapeWay::Stalled) { 4 } else { 2 }),
        EventScope::Server | EventScope::Load => Some(1),
        EventScope::Nothing => None,
    }
}

/// Whether an event can have this effect on operations that it concerns.
fn can_cause(event: &Event, way: ShapeWay) -> bool {
    use EventKind as Kind;
    use ShapeWay as Way;
    let is_hindered = matches!(way, Way::Slower | Way::Stalled);
    match event.kind {
        // Nothing that happens to a server makes applications ask something new.
        _ if matches!(way, Way::New | Way::Again) => false,
        Kind::IndexBuildBegin => is_hindered || matches!(way, Way::Plan | Way::Heavier | Way::LessOften),
        // Writes have one index less to keep.
        Kind::IndexDrop => way != Way::Stopped && way != Way::MoreOften,
        Kind::IndexBuildEnd => way != Way::Stopped,
        Kind::CollectionDrop | Kind::StateChange | Kind::Election | Kind::Reconfiguration => true,
        Kind::WritesLock => !matches!(way, Way::Plan | Way::Heavier | Way::Lighter),
        // A server that starts has a cold cache, and plans anew.
        Kind::ServerStart | Kind::ServerUpgrade => !matches!(way, Way::Stopped | Way::LessOften),
        Kind::ServerStop | Kind::ServerCrash | Kind::ServerUnreachable => {
            matches!(way, Way::Stopped | Way::Stalled | Way::LessOften)
        }
        Kind::ServerReachable => matches!(way, Way::Stalled | Way::MoreOften),
        Kind::SettingChange => !matches!(way, Way::Stopped | Way::MoreOften),
        Kind::ProfilerChange => is_hindered && records_more(event),
        Kind::LongCheckpoint | Kind::Stall | Kind::FileSystemFull | Kind::Gap => is_hindered,
        Kind::CpuThrottled => is_hindered || matches!(way, Way::Stopped | Way::LessOften),
        // Which process the kernel killed is not known: only the end of all operations says that it was this server.
        Kind::OutOfMemory if event.server.port == 0 => way == Way::Stopped,
        Kind::OutOfMemory => is_hindered || matches!(way, Way::Stopped | Way::LessOften),
        Kind::ConnectionStorm => is_hindered || way == Way::MoreOften,
        _ => false,
    }
}

/// Whether an event can have this effect on its server as a whole.
fn can_move(kind: EventKind, change: &ServerChange) -> bool {
    use EventKind as Kind;
    let is_all = |is: fn(&ServerLevel) -> bool| !change.levels.is_empty() && change.levels.iter().all(is);
    match kind {
        Kind::ServerStop | Kind::ServerCrash | Kind::ServerUnreachable => {
            is_all(|level| level.after < level.before || level.measure == ServerMeasure::Failed)
        }
        Kind::ConnectionStorm => is_all(|level| level.after > level.before),
        Kind::WritesLock | Kind::Stall | Kind::OutOfMemory | Kind::CpuThrottled => {
            is_all(|level| match level.measure {
                ServerMeasure::Queries => level.after < level.before,
                ServerMeasure::InProgress | ServerMeasure::Failed => level.after > level.before,
                ServerMeasure::Connections => false,
            })
        }
        Kind::ServerStart | Kind::StateChange | Kind::Election => !change.levels.is_empty(),
        _ => false,
    }
}

/// Whether the profiler records more than before, as far as its event tells: only that costs time.
fn records_more(event: &Event) -> bool {
    if &*event.text == PROFILER_OFF {
        return false;
    }
    let Some(levels) = event.text.strip_prefix("level ") else { return true };
    let levels = levels.split(';').next().unwrap_or_default().split_once(", was ");
    let level = |text: &str| text.trim().parse::<i64>().ok();
    match levels.map(|(to, from)| (level(to), level(from))) {
        Some((Some(to), Some(from))) => to > from,
        _ => true,
    }
}

/// Whether a change may have begun in the span, as exactly as its time is known, or explains something that did. Events
/// that happened earlier and explain nothing are left out.
pub(super) fn began_within(change: &mut HistoryChange, kind: ComparisonKind, sides: &Sides<'_>) -> bool {
    let from = sides.span().from;
    let is_judged = match kind {
        ComparisonKind::Moment => true,
        ComparisonKind::Block => false,
        ComparisonKind::Spans => matches!(change.what, ChangeKind::Event(_)),
    };
    if !is_judged || !change.effects.is_empty() {
        return true;
    }
    let slack = match &mut change.what {
        ChangeKind::Event(events) => {
            events.retain(|event| event.at.plus_ns(SLACK_NS) >= from);
            let Some(first) = events.first() else { return false };
            change.since = first.at;
            SLACK_NS
        }
        // A shape has stopped when its next operation is missing, not with the last one.
        ChangeKind::Shape(shape) if shape.ways.first() == Some(&ShapeWay::Stopped) => {
            let rate = shape.before.rate();
            if rate > 0.0 { next_due_ns(rate) } else { 0 }
        }
        // Operations count when they end: the first one may have begun long before.
        ChangeKind::Shape(shape) if matches!(shape.ways.first(), Some(ShapeWay::New | ShapeWay::Again)) => {
            return true;
        }
        ChangeKind::Application(app) if !app.has_ended => return true,
        _ => SLACK_NS,
    };
    change.since.plus_ns(slack) >= from
}

/// When a change began, as far as that is known.
fn extent(change: &HistoryChange, sides: &Sides<'_>) -> Span {
    let from = change.since;
    let to = match &change.what {
        ChangeKind::Event(events) => {
            let last = events.last().map_or(from, |event| event.at);
            if is_storm(events) { last.plus_ns(STORM_NS) } else { last }
        }
        ChangeKind::Application(_) => from,
        ChangeKind::Shape(shape) if matches!(shape.ways.first(), Some(ShapeWay::New | ShapeWay::Stopped)) => {
            from
        }
        _ => return Span { from, to: from.plus_ns(sides.width_ns) },
    };
    Span { from: from.minus_ns(SLACK_NS), to: to.plus_ns(SLACK_NS) }
}
