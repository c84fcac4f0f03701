//! Applications that began to run operations or ended, and new versions of their drivers.

use std::collections::{BTreeMap, BTreeSet};

use super::change::{ApplicationChange, ChangeKind, HistoryChange};
use super::shapes::MIN_EXPECTED;
use super::sides::{ComparedSpan, SOURCES, SeenServer, Sides, first_began, served};
use super::stalls::LONG_NS;
use crate::history::{EventKind, HistoryWindow};
use crate::{Endpoint, ShapeId, Timestamp};

/// A new application may be one that was unknown before: then unknown applications run fewer operations of its shapes than
/// before. They must have lost at least this many for each operation of the new one.
const MIN_UNKNOWN: f64 = 0.5;

/// The fewest windows, besides the first, in which an application must have run to have ended.
const MIN_RUN: usize = 2;

/// How many windows before the span an application may have run last to be one that has ended: one that ran few operations
/// has to be silent for longer than the span.
const MAX_SILENT: usize = 6;

/// One application: its operations after, and the versions of its driver on both sides.
#[derive(Default)]
struct SeenApplication {
    before: BTreeSet<(Box<str>, Box<str>)>,
    after: BTreeMap<(Box<str>, Box<str>), u64>,
    /// Its operations before, by window, and the sum of their latencies in nanoseconds.
    calls_before: BTreeMap<usize, u64>,
    time_before_ns: f64,
    /// The last window after in which it ran.
    last_after: Option<usize>,
    /// When an operation of a row that it shares last ended.
    last_seen: Timestamp,
    /// The start of the last window in which it ran.
    last_window: Timestamp,
    calls: u64,
    /// Its operations after, by shape.
    shapes: BTreeMap<ShapeId, u64>,
    /// The shapes that it ran before.
    shapes_before: BTreeSet<ShapeId>,
    time_ns: f64,
    since: Option<Timestamp>,
}

impl SeenApplication {
    /// Whether it ran all the time and now no more, beyond chance.
    fn has_ended(&self, sides: &Sides<'_>, seen: SeenServer) -> bool {
        let windows = sides.windows(ComparedSpan::Before).len();
        let (Some((first, _)), Some((last, _))) =
            (self.calls_before.first_key_value(), self.calls_before.last_key_value())
        else {
            return false;
        };
        let silent_before = windows - last - 1;
        // It may have ended within the first window.
        let is_silent = self.last_after.is_none_or(|at| at == 0 && silent_before == 0);
        let is_recent = silent_before <= if sides.is_adjacent { MAX_SILENT } else { 0 };
        // What ran for a moment only has not ended.
        let has_gone_on = last - first >= MIN_RUN;
        if !is_silent || !has_gone_on || !is_recent || sides.windows(ComparedSpan::After).len() < 2 {
            return false;
        }
        let places: Vec<usize> = self.calls_before.keys().copied().collect();
        let pause = places.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(1);
        let since_last = sides.windows(ComparedSpan::Before).iter().skip(last + 1);
        let silent_s =
            since_last.map(|window| seen.seconds(window)).sum::<f64>() + self.silent_s(sides, seen);
        let run_s = self.run_s(sides, seen);
        let calls: u64 = self.calls_before.values().sum();
        let expected = calls as f64 / run_s.max(1e-9) * silent_s;
        let is_unusual = silent_s > 2.0 * (pause - 1) as f64 * run_s / (last - first + 1) as f64;
        is_unusual && expected >= MIN_EXPECTED && (-expected).exp() <= sides.alpha()
    }

    /// Seconds before that were observed, from its first window to its last one.
    fn run_s(&self, sides: &Sides<'_>, seen: SeenServer) -> f64 {
        let first = self.calls_before.keys().next().copied().unwrap_or(0);
        let last = self.calls_before.keys().next_back().copied().unwrap_or(0);
        let run = sides.windows(ComparedSpan::Before).iter().take(last + 1).skip(first);
        run.map(|window| seen.seconds(window)).sum()
    }

    /// Seconds after that were observed and in which it does not run any more.
    fn silent_s(&self, sides: &Sides<'_>, seen: SeenServer) -> f64 {
        sides.observed_s_since(self.last_seen, seen)
    }

    /// How long its operations would have taken in these, in nanoseconds.
    fn spared_ns(&self, sides: &Sides<'_>, seen: SeenServer) -> f64 {
        self.time_before_ns / self.run_s(sides, seen).max(1e-9) * self.silent_s(sides, seen)
    }
}

/// Applications that are new, those that have ended, and those with a new version of their driver.
pub(super) fn changes(sides: &Sides<'_>) -> Vec<HistoryChange> {
    let Some((source, _)) = SOURCES.into_iter().find(|(source, _)| sides.knows_before(*source)) else {
        return Vec::new();
    };
    let all = gather(sides);
    let unknown = UnknownCalls::gather(sides);
    let announced = |name: &str| {
        let mut events = sides.events().iter().filter(|event| event.kind == EventKind::NewApplication);
        events.any(|event| *event.subject == *name && sides.span().contains(event.at))
    };
    let mut changes = Vec::new();
    for ((server, name), seen) in all {
        let observed = SeenServer { source, server };
        let since = seen.since.unwrap_or(sides.span().from);
        let was_there = !seen.calls_before.is_empty();
        let change = |driver: (Box<str>, Box<str>), versions_before: Vec<Box<str>>| ApplicationChange {
            name: name.clone(),
            driver,
            versions_before,
            calls: seen.calls,
            time_ns: seen.time_ns,
            has_ended: false,
            pause_ns: None,
        };
        let found =
            |what: ApplicationChange, since| HistoryChange::new(server, since, ChangeKind::Application(what));
        if !was_there {
            // Of a server that nobody observed before, everything is new.
            if !sides.knows_server_before(observed) && !announced(&name) {
                continue;
            }
            // The log says when it first connected.
            if !announced(&name) && unknown.may_be(&seen, server, sides) {
                continue;
            }
            let is_beyond_chance = sides.all_after(observed, seen.calls) <= sides.alpha();
            if is_beyond_chance || seen.time_ns >= LONG_NS as f64 || announced(&name) {
                let driver = seen.after.iter().max_by_key(|(_, calls)| **calls).map(|(driver, _)| driver);
                changes.push(found(change(driver.cloned().unwrap_or_default(), Vec::new()), since));
            }
            continue;
        }
        if seen.has_ended(sides, observed) && !unknown.may_go_on(&seen, server, sides) {
            let driver = seen.before.last().cloned().unwrap_or_default();
            let (calls, time_ns) = (seen.calls_before.values().sum(), seen.time_before_ns);
            let last = seen.last_seen;
            let what = ApplicationChange { calls, time_ns, has_ended: true, ..change(driver, Vec::new()) };
            let cost_ns = 0.0 - seen.spared_ns(sides, observed);
            changes.push(HistoryChange { cost_ns, ..found(what, last) });
            continue;
        }
        for (driver, calls) in &seen.after {
            let before: Vec<Box<str>> =
                seen.before.iter().filter(|known| known.0 == driver.0).map(|known| known.1.clone()).collect();
            let is_new = !before.is_empty() && !before.contains(&driver.1) && !driver.1.is_empty();
            if is_new && sides.all_after(observed, *calls) <= sides.alpha() {
                changes.push(found(change(driver.clone(), before), since));
            }
        }
    }
    changes
}

/// Operations of a shape on connections that were there before the capture, so that their application is not known.
#[derive(Default)]
struct UnknownShape {
    /// By window.
    before: BTreeMap<usize, u64>,
    after: u64,
}

/// The same by server and shape.
struct UnknownCalls(BTreeMap<(Endpoint, ShapeId), UnknownShape>);

impl UnknownCalls {
    fn gather(sides: &Sides<'_>) -> Self {
        let mut unknown: BTreeMap<(Endpoint, ShapeId), UnknownShape> = BTreeMap::new();
        for side in [ComparedSpan::Before, ComparedSpan::After] {
            for (index, window) in sides.windows(side).iter().enumerate() {
                for row in served(window) {
                    let apps = row.observed().apps.iter();
                    let shares = apps.filter(|(app, _)| app.joined_late && app.name.is_empty());
                    let calls: u64 = shares.map(|(_, share)| share.calls).sum();
                    if calls == 0 {
                        continue;
                    }
                    let of_shape = unknown.entry((row.server, row.shape().id)).or_default();
                    match side {
                        ComparedSpan::After => of_shape.after += calls,
                        _ => *of_shape.before.entry(index).or_default() += calls,
                    }
                }
            }
        }
        Self(unknown)
    }

    /// Whether an application that is not seen any more may run its operations on such connections: they run a shape of
    /// its, or an agent that knew the names has started again since.
    fn may_go_on(&self, seen: &SeenApplication, server: Endpoint, sides: &Sides<'_>) -> bool {
        let has_restarted = sides.events().iter().any(|event| {
            let is_after = event.at <= sides.span().to && seen.last_window <= event.at;
            event.kind == EventKind::AgentStart && is_after
        });
        let now = self.0.iter().filter(|((of, _), unknown)| *of == server && unknown.after > 0);
        now.map(|((_, shape), _)| shape).any(|shape| has_restarted || seen.shapes_before.contains(shape))
    }

    /// Whether an application may have run its operations on such connections until shortly before. Then fewer operations
    /// of the same shapes are of those now; what it alone runs is new.
    fn may_be(&self, seen: &SeenApplication, server: Endpoint, sides: &Sides<'_>) -> bool {
        let after = sides.windows(ComparedSpan::After).len().max(1) as f64;
        let fewer = |(shape, calls): (&ShapeId, &u64)| {
            let Some(unknown) = self.0.get(&(server, *shape)) else { return 0.0 };
            let fewer = unknown.rate_before(sides) - unknown.after as f64 / after;
            fewer.clamp(0.0, *calls as f64 / after)
        };
        let fewer: f64 = seen.shapes.iter().map(fewer).sum();
        fewer >= MIN_UNKNOWN * seen.calls as f64 / after
    }
}

impl UnknownShape {
    /// Operations in a window shortly before: whoever ran them may have paused for as long before it connected again.
    fn rate_before(&self, sides: &Sides<'_>) -> f64 {
        let windows = sides.windows(ComparedSpan::Before).len();
        let recent = sides.windows(ComparedSpan::Recent).len();
        let rate = |to: usize| {
            let from = to.saturating_sub(recent);
            let calls: u64 = self.before.range(from..to).map(|(_, calls)| calls).sum();
            calls as f64 / (to - from).max(1) as f64
        };
        rate(windows).max(rate(windows.saturating_sub(recent)))
    }
}

/// When operations of an application on a server last ended in a window, as far as its figures show it; `None` if it ran
/// none there.
pub fn last_run(window: &HistoryWindow, server: Endpoint, name: &str) -> Option<Timestamp> {
    let rows = served(window).filter(|row| row.server == server);
    let its = rows.filter(|row| row.observed().apps.iter().any(|(app, _)| *app.name == *name));
    its.map(|row| row.figures().last_seen.min(window.window.end)).max()
}

fn gather(sides: &Sides<'_>) -> BTreeMap<(Endpoint, Box<str>), SeenApplication> {
    let mut all: BTreeMap<(Endpoint, Box<str>), SeenApplication> = BTreeMap::new();
    for side in [ComparedSpan::Before, ComparedSpan::After] {
        for (index, window) in sides.windows(side).iter().enumerate() {
            for row in served(window) {
                let apps = &row.observed().apps;
                let is_alone = apps.len() == 1 && apps.other.calls == 0;
                for (app, share) in apps.iter().filter(|(app, _)| !app.name.is_empty() && !app.is_own()) {
                    let seen = all.entry((row.server, app.name.clone())).or_default();
                    let driver = (app.driver.clone(), app.driver_version.clone());
                    seen.last_window = seen.last_window.max(window.window.start);
                    seen.last_seen = seen.last_seen.max(row.figures().last_seen.min(window.window.end));
                    if side == ComparedSpan::Before {
                        *seen.calls_before.entry(index).or_default() += share.calls;
                        seen.time_before_ns += share.latency_ns as f64;
                        seen.before.insert(driver);
                        seen.shapes_before.insert(row.shape().id);
                        continue;
                    }
                    seen.calls += share.calls;
                    seen.time_ns += share.latency_ns as f64;
                    seen.last_after = seen.last_after.max(Some(index));
                    *seen.shapes.entry(row.shape().id).or_default() += share.calls;
                    let began = first_began(row.figures());
                    // An operation that began before the window may belong to another application.
                    let is_its = is_alone && row.figures().first_seen.is_known();
                    let first = if is_its { began } else { began.max(window.window.start) };
                    seen.since = Some(seen.since.map_or(first, |since| since.min(first)));
                    *seen.after.entry(driver).or_default() += share.calls;
                }
            }
        }
    }
    all
}
