//! Applications that began to run operations, and new versions of their drivers.

use std::collections::{BTreeMap, BTreeSet};

use super::change::{ApplicationChange, ChangeKind, HistoryChange};
use super::shapes::{LONG_NS, first_began};
use super::sides::{ComparedSpan, SOURCES, Sides};
use crate::history::EventKind;
use crate::{Class, Endpoint, Role, Timestamp};

/// One application: its operations after, and the versions of its driver on both sides.
#[derive(Default)]
struct SeenApplication {
    before: BTreeSet<(Box<str>, Box<str>)>,
    after: BTreeMap<(Box<str>, Box<str>), u64>,
    was_there: bool,
    calls: u64,
    time_ns: f64,
    since: Option<Timestamp>,
}

/// Applications that are new, and those with a new version of their driver.
pub(super) fn changes(sides: &Sides<'_>) -> Vec<HistoryChange> {
    let Some((source, _)) = SOURCES.into_iter().find(|(source, _)| sides.knows_before(*source)) else {
        return Vec::new();
    };
    let all = gather(sides);
    let announced = |name: &str| {
        let mut events = sides.events().iter().filter(|event| event.kind == EventKind::NewApplication);
        events.any(|event| *event.subject == *name && sides.span().contains(event.at))
    };
    let mut changes = Vec::new();
    for ((server, name), seen) in all {
        let since = seen.since.unwrap_or(sides.span().from);
        let mut add = |driver: (Box<str>, Box<str>), versions_before: Vec<Box<str>>| {
            let (calls, time_ns) = (seen.calls, seen.time_ns);
            let what = ApplicationChange { name: name.clone(), driver, versions_before, calls, time_ns };
            let what = ChangeKind::Application(what);
            changes.push(HistoryChange { server, since, cost_ns: 0.0, what, effects: Vec::new() });
        };
        if !seen.was_there {
            let is_beyond_chance = sides.all_after(source, seen.calls) <= sides.alpha();
            if is_beyond_chance || seen.time_ns >= LONG_NS as f64 || announced(&name) {
                let driver = seen.after.into_iter().max_by_key(|(_, calls)| *calls).map(|(driver, _)| driver);
                add(driver.unwrap_or_default(), Vec::new());
            }
            continue;
        }
        for (driver, calls) in &seen.after {
            let before: Vec<Box<str>> =
                seen.before.iter().filter(|known| known.0 == driver.0).map(|known| known.1.clone()).collect();
            let is_new = !before.is_empty() && !before.contains(&driver.1) && !driver.1.is_empty();
            if is_new && sides.all_after(source, *calls) <= sides.alpha() {
                add(driver.clone(), before);
            }
        }
    }
    changes
}

fn gather(sides: &Sides<'_>) -> BTreeMap<(Endpoint, Box<str>), SeenApplication> {
    let mut all: BTreeMap<(Endpoint, Box<str>), SeenApplication> = BTreeMap::new();
    for side in [ComparedSpan::Before, ComparedSpan::After] {
        for window in sides.windows(side) {
            let rows = window.window.shapes.iter();
            for row in rows.filter(|row| row.class == Class::User && row.role == Role::Served) {
                for (app, share) in row.observed().apps.iter().filter(|(app, _)| !app.name.is_empty()) {
                    let seen = all.entry((row.server, app.name.clone())).or_default();
                    let driver = (app.driver.clone(), app.driver_version.clone());
                    if side == ComparedSpan::Before {
                        seen.was_there = true;
                        seen.before.insert(driver);
                        continue;
                    }
                    seen.calls += share.calls;
                    seen.time_ns += share.latency_ns as f64;
                    let first = first_began(row.figures()).max(window.window.start);
                    seen.since = Some(seen.since.map_or(first, |since| since.min(first)));
                    *seen.after.entry(driver).or_default() += share.calls;
                }
            }
        }
    }
    all
}
