//! Changes of each server as a whole: shapes may each change too little for a line, and yet add up to a large change.

use std::collections::{BTreeMap, BTreeSet};

use statrs::distribution::{DiscreteCDF, Poisson};

use super::change::{ChangeKind, HistoryChange, ServerChange, ServerLevel, ServerMeasure};
use super::sides::{ComparedSpan, SOURCES, SeenServer, Sides, served};
use super::splits::chance;
use crate::files::ThreadRole;
use crate::history::{HistoryWindow, SeriesKey, SeriesSubject, metrics};
use crate::significance::holm_at;
use crate::{Endpoint, ShapeId, Source, Subject};

/// The minimum number of windows before for saying what is usual.
const MIN_BEFORE: usize = 5;
/// A level that changes by less is not reported, as a factor.
const MIN_FACTOR: f64 = 2.0;
/// Fewer new shapes are not reported.
const MIN_NEW_SHAPES: usize = 5;
/// A single change that is this share of the movement of a server explains it.
const EXPLAINED: f64 = 0.5;
/// A few changes that have this share of it together explain it, too.
const EXPLAINED_TOGETHER: f64 = 0.8;
/// The figure of a server's own statistics that counts its connections.
pub(super) const CONNECTIONS: &str = "connections.open";
/// The most names that a change keeps, and the most changes that explain it together.
const MAX_NAMED: usize = 5;

/// The operations of a server in one window.
#[derive(Default)]
struct ServerWindow {
    seconds: f64,
    calls: f64,
    /// `None` if the outcomes of its operations are unknown.
    failed: Option<f64>,
    /// `None` if their latencies are unknown.
    time_ns: Option<f64>,
    connections: Option<f64>,
}

/// The value of a measure in one window.
#[derive(Copy, Clone)]
struct WeightedValue {
    value: f64,
    weight: f64,
}

/// A server on one side or the other.
#[derive(Default)]
struct ServerSides {
    before: BTreeMap<usize, ServerWindow>,
    after: BTreeMap<usize, ServerWindow>,
    /// The window before in which each shape was first seen.
    known: BTreeMap<ShapeId, usize>,
    /// Calls of shapes after that were not there before, with what to call them.
    new_shapes: BTreeMap<ShapeId, (f64, Box<str>)>,
    applications: BTreeMap<Box<str>, f64>,
}

impl ServerWindow {
    /// How much it counts in a mean: rates by the time that was observed, so that the mean is a rate too.
    fn weight(&self, measure: ServerMeasure) -> f64 {
        if measure == ServerMeasure::Connections { 1.0 } else { self.seconds }
    }

    /// Without operations there are neither failed ones nor any in progress.
    fn of_operations(&self, value: Option<f64>) -> Option<f64> {
        value.or((self.calls == 0.0).then_some(0.0))
    }

    fn value(&self, measure: ServerMeasure) -> Option<f64> {
        let rate = |count: f64| (self.seconds > 0.0).then(|| count / self.seconds);
        match measure {
            ServerMeasure::Queries => rate(self.calls),
            ServerMeasure::Failed => rate(self.of_operations(self.failed)?),
            ServerMeasure::InProgress => rate(self.of_operations(self.time_ns)? / 1e9),
            ServerMeasure::Connections => self.connections,
        }
    }
}

/// The smallest movement that counts, in the unit of the measure.
const fn floor(measure: ServerMeasure) -> f64 {
    match measure {
        ServerMeasure::Queries => 2.0,
        ServerMeasure::Failed | ServerMeasure::InProgress => 0.5,
        ServerMeasure::Connections => 20.0,
    }
}

/// Servers that changed as a whole, without what one of the changes that are known already explains by itself.
pub(super) fn changes(sides: &Sides<'_>, known: &[HistoryChange]) -> Vec<HistoryChange> {
    let Some((source, _)) = SOURCES.into_iter().find(|(source, _)| sides.knows_before(*source)) else {
        return Vec::new();
    };
    let servers = gather(sides, source);
    let mut candidates = Vec::new();
    for (server, of) in &servers {
        for measure in ServerMeasure::ALL {
            if let Some((level, p)) = of.level(measure, sides) {
                candidates.push((*server, level, p));
            }
        }
    }
    let p: Vec<f64> = candidates.iter().map(|(.., p)| *p).collect();
    let mut levels: BTreeMap<Endpoint, Vec<ServerLevel>> = BTreeMap::new();
    for ((server, level, _), is_beyond_chance) in candidates.into_iter().zip(holm_at(&p, sides.alpha())) {
        if is_beyond_chance && !is_explained(server, &level, known) {
            levels.entry(server).or_default().push(level);
        }
    }
    let mut changes = Vec::new();
    for (server, of) in servers {
        let levels = levels.remove(&server).unwrap_or_default();
        let has_new = of.has_unusually_many_new_shapes(sides);
        let seconds = sides.seconds(ComparedSpan::After, SeenServer { source, server });
        let load = levels.iter().find(|level| level.measure == ServerMeasure::InProgress);
        let cost_ns = load.map_or(0.0, |level| (level.after - level.before) * seconds * 1e9);
        let since = of.since(levels.first(), sides);
        if let Some(what) = of.change(levels, has_new) {
            let change = HistoryChange::new(server, since, ChangeKind::Server(what));
            changes.push(HistoryChange { cost_ns, ..change });
        }
    }
    changes
}

fn gather(sides: &Sides<'_>, source: Source) -> BTreeMap<Endpoint, ServerSides> {
    let mut servers: BTreeMap<Endpoint, ServerSides> = BTreeMap::new();
    for side in [ComparedSpan::Before, ComparedSpan::After] {
        for (index, window) in sides.windows(side).iter().enumerate() {
            for row in served(window) {
                let Some(observed) = row.observed_by(source) else { continue };
                let server = servers.entry(row.server).or_default();
                let figures = &observed.figures;
                let windows = server.side(side);
                let of_window = windows.entry(index).or_default();
                of_window.calls += figures.calls as f64;
                if figures.known_errors().is_some() {
                    *of_window.failed.get_or_insert_default() += figures.failed as f64;
                }
                if let Some(ns) = figures.known_latency_ns() {
                    *of_window.time_ns.get_or_insert_default() += ns as f64;
                }
                let Subject::Shape { shape, .. } = &row.subject else { continue };
                if side == ComparedSpan::Before {
                    server.known.entry(shape.id).or_insert(index);
                    continue;
                }
                for (app, share) in
                    observed.apps.iter().filter(|(app, _)| !app.name.is_empty() && !app.is_own())
                {
                    *server.applications.entry(app.name.clone()).or_default() += share.calls as f64;
                }
                if shape.id != ShapeId(0) && !server.known.contains_key(&shape.id) {
                    let name = || format!("{} {}", shape.command, shape.namespace()).into_boxed_str();
                    let new = server.new_shapes.entry(shape.id).or_insert_with(|| (0.0, name()));
                    new.0 += figures.calls as f64;
                }
            }
        }
    }
    // A window without operations of a server is a quiet one, if somebody observed it.
    for (server, of) in &mut servers {
        let seen = SeenServer { source, server: *server };
        for side in [ComparedSpan::Before, ComparedSpan::After] {
            for (index, window) in sides.windows(side).iter().enumerate() {
                let of_window = of.side(side).entry(index).or_default();
                // What was observed for a moment only, like the last window of an agent, shows no level.
                of_window.seconds = if seen.is_observed(window) { seen.seconds(window) } else { 0.0 };
                of_window.connections = connections(window, *server);
            }
        }
    }
    servers
}

/// The mean of the open connections of a server: by its own statistics, else by the threads that serve them.
fn connections(window: &HistoryWindow, server: Endpoint) -> Option<f64> {
    // An address on the wire may be that of a server which figures name by its port alone.
    let is_named = window.series.keys().any(|key| key.server == server);
    let is_of_server =
        |key: &SeriesKey| if is_named { key.server == server } else { key.server.port == server.port };
    let mean = |is_it: &dyn Fn(&SeriesKey) -> bool| {
        let mut of_server = window.series.iter().filter(|(key, _)| is_of_server(key));
        of_server.find(|(key, _)| is_it(key)).and_then(|(_, value)| value.mean())
    };
    let counted = |key: &SeriesKey| key.subject == SeriesSubject::Server && *key.metric == *CONNECTIONS;
    let served = |key: &SeriesKey| {
        *key.metric == *metrics::THREADS_COUNT.name && *key.name == *ThreadRole::Client.name()
    };
    mean(&counted).or_else(|| mean(&served))
}

impl ServerSides {
    fn side(&mut self, side: ComparedSpan) -> &mut BTreeMap<usize, ServerWindow> {
        if side == ComparedSpan::After { &mut self.after } else { &mut self.before }
    }

    /// Whether a level is outside of all that it was, and how likely that is by chance: on a logarithmic scale, as levels
    /// vary by factors.
    fn level(&self, measure: ServerMeasure, sides: &Sides<'_>) -> Option<(ServerLevel, f64)> {
        let values = |windows: &BTreeMap<usize, ServerWindow>, first: usize| -> Vec<WeightedValue> {
            let weighted = |window: &ServerWindow| {
                let weight = window.weight(measure);
                Some(WeightedValue { value: window.value(measure)?, weight })
            };
            windows.range(first..).filter_map(|(_, window)| weighted(window)).collect()
        };
        let before = values(&self.before, 0);
        let mut after = values(&self.after, 0);
        if after.len() > 1 && sides.is_adjacent {
            // It may have begun within the first window, which then lies between both.
            let first = after.remove(0);
            let is_between = (mean(&before) < first.value) == (first.value < mean(&after));
            if !is_between {
                after.push(first);
            }
        }
        if before.len() < MIN_BEFORE || after.is_empty() {
            return None;
        }
        let range = before
            .iter()
            .fold((f64::INFINITY, 0.0_f64), |(low, high), one| (low.min(one.value), high.max(one.value)));
        let recent = self.before.len().saturating_sub(sides.windows(ComparedSpan::Recent).len());
        let (usual, now) = (mean(&values(&self.before, recent)), mean(&after));
        let is_high = now > range.1 && now >= MIN_FACTOR * usual;
        let is_low = now < range.0 && now * MIN_FACTOR <= usual;
        if (!is_high && !is_low) || (now - usual).abs() < floor(measure) {
            return None;
        }
        let log = |value: f64| (value + floor(measure) / 10.0).ln();
        let logs: Vec<f64> = before.iter().map(|one| log(one.value)).collect();
        let mean_log = after.iter().map(|one| log(one.value)).sum::<f64>() / after.len() as f64;
        let mirrored: Vec<f64> = logs.iter().map(|value| -value).collect();
        let p = match is_high {
            true => chance(&logs, mean_log, after.len()),
            false => chance(&mirrored, -mean_log, after.len()),
        };
        Some((ServerLevel { measure, before: usual, range, after: now }, p))
    }

    /// Whether more shapes are new than usually are, beyond chance.
    fn has_unusually_many_new_shapes(&self, sides: &Sides<'_>) -> bool {
        let (windows, count) = (self.before.len(), self.new_shapes.len());
        // In the first windows everything is new.
        let learning = windows / 3;
        if count < MIN_NEW_SHAPES || windows < MIN_BEFORE {
            return false;
        }
        let later = self.known.values().filter(|first| **first >= learning).count();
        let per_window = later as f64 / (windows - learning) as f64;
        let expected = per_window * self.after.len() as f64 + 1.0;
        let more = |expected| Poisson::new(expected).map_or(1.0, |usual| usual.sf(count as u64 - 1));
        count as f64 >= 4.0 * expected && more(expected) <= sides.alpha()
    }

    /// The first window after in which the level is nearer to the new one than to the old one; or the one before it, which
    /// lies between both, if it is unlike any before that.
    fn since(&self, level: Option<&ServerLevel>, sides: &Sides<'_>) -> crate::Timestamp {
        let windows = sides.windows(ComparedSpan::After);
        let is_new = |window: &ServerWindow| {
            level.is_none_or(|level| {
                let middle = f64::midpoint(level.before, level.after);
                window.value(level.measure).is_some_and(|value| (value > middle) == (level.after > middle))
            })
        };
        let first = self.after.iter().find(|(_, window)| is_new(window)).map(|(at, _)| *at);
        let is_beyond = |window: &ServerWindow| {
            level.is_some_and(|level| {
                let (low, high) = level.range;
                let is_rise = level.after > level.before;
                let value = window.value(level.measure);
                value.is_some_and(|value| if is_rise { value > high } else { value < low })
            })
        };
        let between = first.and_then(|at| self.after.get_key_value(&at.checked_sub(1)?));
        let began = between.filter(|(_, window)| is_beyond(window)).map(|(at, _)| *at).or(first);
        began.and_then(|at| windows.get(at)).map_or(sides.span().from, |window| window.window.start)
    }

    fn change(self, levels: Vec<ServerLevel>, has_new: bool) -> Option<ServerChange> {
        if levels.is_empty() && !has_new {
            return None;
        }
        let calls = self.after.values().map(|window| window.calls).sum::<f64>().max(1.0);
        let of_new = self.new_shapes.values().map(|(calls, _)| calls).sum::<f64>().max(0.0);
        let count = self.new_shapes.len();
        let names = |mut all: Vec<(Box<str>, f64)>| -> Vec<Box<str>> {
            all.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            let mut seen = BTreeSet::new();
            let distinct = all.into_iter().map(|(name, _)| name).filter(|name| seen.insert(name.clone()));
            distinct.take(MAX_NAMED).collect()
        };
        let new = self.new_shapes.into_values().map(|(calls, name)| (name, calls)).collect();
        Some(ServerChange {
            levels,
            new_shapes: count,
            new_share: of_new / calls,
            has_unusually_many_new_shapes: has_new,
            new_names: names(new),
            applications: names(self.applications.into_iter().collect()),
        })
    }
}

fn mean(values: &[WeightedValue]) -> f64 {
    let weights: f64 = values.iter().map(|one| one.weight).sum();
    let sum: f64 = values.iter().map(|one| one.value * one.weight).sum();
    if weights > 0.0 { sum / weights } else { 0.0 }
}

/// Whether one change has most of what a level moved, or a few have nearly all of it, so that naming both says nothing
/// more.
fn is_explained(server: Endpoint, level: &ServerLevel, known: &[HistoryChange]) -> bool {
    let moved = level.after - level.before;
    let of_server = known.iter().filter(|change| change.server == server);
    let mut shares: Vec<f64> =
        of_server.filter_map(|change| Some(part(change, level.measure)? / moved)).collect();
    shares.sort_by(|a, b| b.total_cmp(a));
    let together: f64 = shares.iter().take(MAX_NAMED).filter(|share| **share > 0.0).sum();
    shares.first().is_some_and(|first| *first >= EXPLAINED) || together >= EXPLAINED_TOGETHER
}

/// By how much a change moves a measure of its server.
fn part(change: &HistoryChange, measure: ServerMeasure) -> Option<f64> {
    let rate = |(count, seconds): (u64, f64)| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    match (&change.what, measure) {
        (ChangeKind::Shape(shape), ServerMeasure::Queries) => Some(shape.after.rate() - shape.before.rate()),
        (ChangeKind::Shape(shape), ServerMeasure::InProgress) => {
            Some((shape.after.load() - shape.before.load()) / 1e9)
        }
        (ChangeKind::Errors(errors), ServerMeasure::Failed) => {
            Some(rate(errors.counts[1]) - rate(errors.counts[0]))
        }
        _ => None,
    }
}
