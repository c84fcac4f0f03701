//! Keeps moments of change apart: each change belongs to one moment, which includes its time.

use std::collections::{HashMap, HashSet};

use super::change::{ChangeKind, HistoryChange, HistoryChanges, ShapeWay};
use super::events::{family, sort};
use super::scan::{ChangeId, ScanMoment, ids};
use super::silence;
use super::stages::are_stages;
use crate::history::{EventKind, Span};
use crate::{Endpoint, ShapeId, Timestamp};

/// How far a new application and a storm of connections on the same server may be apart to be one, in windows.
const NEAR_WINDOWS: u64 = 1;

/// Windows by number, first and last.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Windows {
    first: u64,
    last: u64,
}

impl Windows {
    fn at(time: Timestamp, width_ns: u64) -> Self {
        let number = time.unix_ns() / width_ns;
        Self { first: number, last: number }
    }

    fn of_span(span: Span, width_ns: u64) -> Self {
        let last = span.to.unix_ns().saturating_sub(1) / width_ns;
        Self { first: span.from.unix_ns() / width_ns, last }
    }

    /// Those in which a change began; events go on until the last of them.
    fn of(change: &HistoryChange, width_ns: u64) -> Self {
        let own = Self::at(change.since, width_ns);
        match &change.what {
            ChangeKind::Event(events) => {
                let last = events.last().map_or(own.last, |event| event.at.unix_ns() / width_ns);
                Self { first: own.first, last: last.max(own.first) }
            }
            _ => own,
        }
    }

    fn with(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether both overlap or follow each other.
    fn touches(self, other: Self) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }
}

/// A moment that is being put together.
struct MomentParts {
    /// The windows of its largest change.
    seed: Windows,
    windows: Windows,
    measured_ns: u64,
    changes: HistoryChanges,
}

impl MomentParts {
    fn new(seed: Windows) -> Self {
        Self { seed, windows: seed, measured_ns: 0, changes: HistoryChanges::default() }
    }

    fn merge(&mut self, mut other: Self) {
        self.windows = self.windows.with(other.windows);
        self.measured_ns = self.measured_ns.max(other.measured_ns);
        self.changes.changes.append(&mut other.changes.changes);
        self.changes.left_out += other.changes.left_out;
        add_context(&mut self.changes.context, other.changes.context);
    }
}

/// The same changes in moments that do not overlap, by time; `width_ns` is the width of a window. What began in the
/// windows of a large change, or right beside them, is in its moment, which lists changes by cost.
pub fn apart(mut moments: Vec<ScanMoment>, width_ns: u64) -> Vec<ScanMoment> {
    let width_ns = width_ns.max(1);
    silence::below_causes(&mut moments, width_ns);
    without_ends_of_new(&mut moments);
    let mut changes = Vec::new();
    let mut rests = Vec::new();
    for moment in moments {
        let ScanMoment { span, measured_ns, changes: HistoryChanges { changes: own, context, left_out } } =
            moment;
        let costliest = own.iter().max_by(|a, b| a.cost_ns.abs().total_cmp(&b.cost_ns.abs()));
        let at = costliest.map_or(Windows::of_span(span, width_ns), |change| Windows::of(change, width_ns));
        rests.push((at, context, left_out));
        changes.extend(own.into_iter().map(|change| (change, measured_ns)));
    }
    changes.sort_by(|(a, _), (b, _)| b.cost_ns.abs().total_cmp(&a.cost_ns.abs()).then(a.since.cmp(&b.since)));
    let changes = with_whole_restarts(changes, width_ns);
    let mut groups: Vec<MomentParts> = Vec::new();
    for (change, measured_ns) in changes {
        let windows = Windows::of(&change, width_ns);
        let found = groups.iter().position(|group| group.seed.touches(windows));
        let at = found.unwrap_or_else(|| {
            groups.push(MomentParts::new(windows));
            groups.len() - 1
        });
        let group = &mut groups[at];
        group.windows = group.windows.with(windows);
        group.measured_ns = group.measured_ns.max(measured_ns);
        group.changes.changes.push(change);
    }
    for (at, context, left_out) in rests {
        let found = groups.iter().position(|group| group.windows.overlaps(at));
        let place = found.unwrap_or_else(|| {
            groups.push(MomentParts::new(at));
            groups.len() - 1
        });
        let group = &mut groups[place];
        add_context(&mut group.changes.context, context);
        group.changes.left_out += left_out;
    }
    groups.sort_by_key(|group| group.windows.first);
    let mut joined: Vec<MomentParts> = Vec::new();
    for group in groups {
        match joined.last_mut() {
            Some(last) if last.windows.overlaps(group.windows) => last.merge(group),
            _ => joined.push(group),
        }
    }
    joined.into_iter().filter_map(|group| moment(group, width_ns)).collect()
}

/// Removes the end of a shape that is reported as new, if the new shape's figures reach to that end or beyond: they already
/// say how long it ran. An end that is the effect of another change, or has effects itself, stays.
fn without_ends_of_new(moments: &mut [ScanMoment]) {
    let of_shape = |change: &HistoryChange, is_meant: fn(ShapeWay) -> bool| match &change.what {
        ChangeKind::Shape(shape) if shape.ways.first().is_some_and(|way| is_meant(*way)) => {
            Some((change.server, shape.shape.id))
        }
        _ => None,
    };
    let mut new: HashMap<(Endpoint, ShapeId), Vec<Span>> = HashMap::new();
    let changes = moments.iter().flat_map(|moment| &moment.changes.changes);
    for change in changes.flat_map(|change| std::iter::once(change).chain(&change.effects)) {
        if let Some(key) = of_shape(change, |way| way == ShapeWay::New) {
            new.entry(key).or_default().push(Span { from: change.since, to: change.until });
        }
    }
    for moment in moments {
        moment.changes.changes.retain(|change| {
            let key = of_shape(change, |way| way == ShapeWay::Stopped).filter(|_| change.effects.is_empty());
            let mut counted = key.and_then(|key| new.get(&key)).into_iter().flatten();
            !counted.any(|span| span.from <= change.since && change.since <= span.to)
        });
    }
}

/// The same changes, of which those that are stages of one restart are one, in whichever moments they were found. Each
/// comes with the time over which its cost was measured.
fn with_whole_restarts(changes: Vec<(HistoryChange, u64)>, width_ns: u64) -> Vec<(HistoryChange, u64)> {
    let mut all: Vec<(HistoryChange, u64)> = Vec::new();
    for (change, measured_ns) in changes {
        let is_restart = matches!(&change.what, ChangeKind::Event(events)
            if events.iter().any(|event| family(event) == EventKind::ServerStart));
        let is_same = |(known, _): &&mut (HistoryChange, u64)| is_same_thing(known, &change, width_ns);
        match all.iter_mut().filter(|_| is_restart).find(is_same) {
            Some((known, measured)) => {
                join(known, change);
                *measured = measured_ns.max(*measured);
            }
            None => all.push((change, measured_ns)),
        }
    }
    all
}

/// The same moments, in which each thing is one change, as in those of [`apart`].
pub fn each_once(mut moments: Vec<ScanMoment>, width_ns: u64) -> Vec<ScanMoment> {
    silence::below_causes(&mut moments, width_ns);
    without_ends_of_new(&mut moments);
    for moment in &mut moments {
        moment.changes.changes = told_once(std::mem::take(&mut moment.changes.changes), width_ns);
    }
    moments
}

fn moment(group: MomentParts, width_ns: u64) -> Option<ScanMoment> {
    let MomentParts { windows, measured_ns, mut changes, .. } = group;
    changes.changes = told_once(changes.changes, width_ns);
    let mut told = HashSet::new();
    changes.changes.iter().flat_map(|change| &change.effects).for_each(|effect| told.extend(ids(effect)));
    changes.context.retain(|one| ids(one).iter().all(|id| !told.contains(id)));
    let at = |number: u64| Timestamp::from_unix_ns(number.saturating_mul(width_ns));
    let span = Span { from: at(windows.first), to: at(windows.last.saturating_add(1)) };
    let measured_ns = measured_ns.max(span.length_ns());
    (!changes.is_empty()).then_some(ScanMoment { span, measured_ns, changes })
}

/// Adds series; of each the one that moved most stays.
fn add_context(context: &mut Vec<HistoryChange>, more: Vec<HistoryChange>) {
    let series = |change: &HistoryChange| match &change.what {
        ChangeKind::Series(series) => Some((series.key.clone(), series.score)),
        _ => None,
    };
    for one in more {
        let Some((key, score)) = series(&one) else { continue };
        let known = context.iter_mut().find(|known| series(known).is_some_and(|(known, _)| known == key));
        match known {
            Some(known) if series(known).is_some_and(|(_, known)| known < score) => *known = one,
            Some(_) => {}
            None => context.push(one),
        }
    }
}

/// The changes of a moment by cost, each only once: stages of one thing are one change, and what another one explains
/// stands below that only.
fn told_once(changes: Vec<HistoryChange>, width_ns: u64) -> Vec<HistoryChange> {
    let mut all: Vec<HistoryChange> = Vec::new();
    for change in changes {
        match all.iter_mut().find(|known| is_same_thing(known, &change, width_ns)) {
            Some(known) => join(known, change),
            None => all.push(change),
        }
    }
    let explained: HashSet<ChangeId> = all.iter().flat_map(|change| &change.effects).flat_map(ids).collect();
    all.retain(|change| {
        let own = ids(change);
        !change.effects.is_empty() || own.is_empty() || !own.iter().all(|id| explained.contains(id))
    });
    let all = each_shape_once(all);
    let all = with_their_shapes(all);
    let mut all = with_their_applications(all, width_ns);
    silence::longest_only(&mut all);
    sort(&mut all);
    all
}

/// Whether both are stages of one thing.
fn is_same_thing(one: &HistoryChange, other: &HistoryChange, width_ns: u64) -> bool {
    let (ChangeKind::Event(events), ChangeKind::Event(others)) = (&one.what, &other.what) else {
        return false;
    };
    one.server == other.server
        && events.iter().any(|one| others.iter().any(|other| are_stages(one, other, width_ns)))
}

fn join(known: &mut HistoryChange, other: HistoryChange) {
    let (ChangeKind::Event(events), ChangeKind::Event(more)) = (&mut known.what, other.what) else { return };
    events.extend(more);
    events.sort_by_key(|event| event.at);
    events.dedup();
    known.since = known.since.min(other.since);
    known.cost_ns += other.cost_ns;
    known.effects.extend(other.effects);
    known.effects.sort_by(|a, b| b.cost_ns.abs().total_cmp(&a.cost_ns.abs()));
}

/// In which direction a shape changed, of the ways that windows which begin a little earlier or later show for the same
/// change.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
enum ShapeDirection {
    More,
    Less,
    Slower,
    Faster,
}

fn direction(change: &HistoryChange) -> Option<(Endpoint, ShapeId, ShapeDirection)> {
    let ChangeKind::Shape(shape) = &change.what else { return None };
    let direction = match shape.ways.first()? {
        ShapeWay::New | ShapeWay::Again | ShapeWay::MoreOften => ShapeDirection::More,
        ShapeWay::Stopped | ShapeWay::LessOften => ShapeDirection::Less,
        ShapeWay::Stalled | ShapeWay::Slower | ShapeWay::Plan | ShapeWay::Heavier => ShapeDirection::Slower,
        ShapeWay::Faster | ShapeWay::Lighter => ShapeDirection::Faster,
    };
    Some((change.server, shape.shape.id, direction))
}

/// Leaves a change of a shape that an effect tells, or one that costs more, only there. `changes` are by cost.
fn each_shape_once(mut changes: Vec<HistoryChange>) -> Vec<HistoryChange> {
    let effects = changes.iter().flat_map(|change| &change.effects);
    let explained: HashSet<_> = effects.filter_map(direction).collect();
    let mut told = HashSet::new();
    changes.retain(|change| {
        let own = direction(change);
        let is_known = own.is_some_and(|own| explained.contains(&own) || !told.insert(own));
        !is_known || !change.effects.is_empty()
    });
    changes
}

/// Shapes that stopped because the only application that ran them has ended are its effects.
fn with_their_shapes(changes: Vec<HistoryChange>) -> Vec<HistoryChange> {
    let ended = |change: &HistoryChange| match &change.what {
        ChangeKind::Application(app) if app.has_ended => Some((change.server, app.name.clone())),
        _ => None,
    };
    let gone: HashSet<(Endpoint, Box<str>)> = changes.iter().filter_map(ended).collect();
    let runs = |change: &HistoryChange| match &change.what {
        ChangeKind::Shape(shape)
            if change.effects.is_empty() && shape.ways.first() == Some(&ShapeWay::Stopped) =>
        {
            Some((change.server, shape.applications.first()?.clone())).filter(|key| gone.contains(key))
        }
        _ => None,
    };
    let (shapes, mut rest): (Vec<_>, Vec<_>) = changes.into_iter().partition(|change| runs(change).is_some());
    for shape in shapes {
        let key = runs(&shape);
        if let Some(app) = rest.iter_mut().find(|change| ended(change) == key) {
            app.effects.push(shape);
            // Its own cost is that of all that it ran.
            app.cost_ns = app.cost_ns.min(app.effects.iter().map(|effect| effect.cost_ns).sum());
            app.effects.sort_by(|a, b| b.cost_ns.abs().total_cmp(&a.cost_ns.abs()));
        }
    }
    rest
}

/// Joins a new application with the connection storm of its server that began at about the same time.
fn with_their_applications(changes: Vec<HistoryChange>, width_ns: u64) -> Vec<HistoryChange> {
    let has = |change: &HistoryChange, kind| match &change.what {
        ChangeKind::Event(events) => events.iter().any(|event| event.kind == kind),
        _ => false,
    };
    let is_new = |change: &HistoryChange| has(change, EventKind::NewApplication) && change.effects.is_empty();
    let (new, mut rest): (Vec<_>, Vec<_>) = changes.into_iter().partition(is_new);
    for app in new {
        let is_its = |storm: &&mut HistoryChange| {
            let distance = app.since.since(storm.since).max(storm.since.since(app.since));
            let is_near = distance <= NEAR_WINDOWS * width_ns;
            has(storm, EventKind::ConnectionStorm) && storm.server == app.server && is_near
        };
        let ChangeKind::Event(events) = &app.what else { continue };
        match rest.iter_mut().find(is_its).map(|storm| &mut storm.what) {
            Some(ChangeKind::Event(of_storm)) => of_storm.extend(events.iter().cloned()),
            _ => rest.push(app),
        }
    }
    rest
}
