//! Completes the moments of change with the events that none of them has: every view shows the same events.

use std::collections::HashSet;

use super::change::{ChangeKind, HistoryChange, HistoryChanges};
use super::events::{family, is_always_listed, namespace};
use super::scan::ScanMoment;
use crate::history::{Event, EventKind, Span};
use crate::{Endpoint, Timestamp};

/// What makes two events the same.
type EventId<'a> = (EventKind, Endpoint, &'a str, Timestamp);

fn id(event: &Event) -> EventId<'_> {
    (event.kind, event.server, &event.subject, event.at)
}

/// Moments by time, with all events that are changes of a server: those that no moment has come into the one of their
/// time, or make one of their own, as wide as a window. There was too little before them to compare with, or nobody
/// observed that time.
pub fn with_all_events(mut moments: Vec<ScanMoment>, events: &[Event], width_ns: u64) -> Vec<ScanMoment> {
    let missing: Vec<Event> = {
        let mut shown = HashSet::new();
        let mut applications = HashSet::new();
        for moment in &moments {
            moment.changes.changes.iter().for_each(|one| gather(one, &mut shown, &mut applications));
        }
        let is_shown = |event: &Event| {
            let is_named = event.kind == EventKind::NewApplication && applications.contains(&*event.subject);
            is_named || shown.contains(&id(event))
        };
        let listed = events.iter().filter(|event| is_always_listed(event.kind));
        listed.filter(|event| !is_shown(event)).cloned().collect()
    };
    for event in missing {
        let contains = |moment: &&mut ScanMoment| moment.span.contains(event.at);
        match moments.iter_mut().find(contains) {
            Some(moment) => add(&mut moment.changes.changes, event),
            None => {
                let measured_ns = width_ns.max(1);
                let from = event.at.floor_to(measured_ns);
                let mut changes = HistoryChanges::default();
                add(&mut changes.changes, event);
                let span = Span { from, to: from.plus_ns(measured_ns) };
                moments.push(ScanMoment { span, measured_ns, changes });
            }
        }
    }
    moments.sort_by_key(|moment| moment.span.from);
    moments
}

fn gather<'a>(
    change: &'a HistoryChange,
    shown: &mut HashSet<EventId<'a>>,
    applications: &mut HashSet<&'a str>,
) {
    match &change.what {
        ChangeKind::Event(events) => shown.extend(events.iter().map(id)),
        ChangeKind::Application(app) => drop(applications.insert(&app.name)),
        _ => {}
    }
    change.effects.iter().for_each(|effect| gather(effect, shown, applications));
}

/// Adds an event to those that are stages of the same thing, or as a change of its own.
fn add(changes: &mut Vec<HistoryChange>, event: Event) {
    let is_same = |known: &Event| {
        (family(known), known.server, namespace(known)) == (family(&event), event.server, namespace(&event))
    };
    for change in changes.iter_mut() {
        if let ChangeKind::Event(events) = &mut change.what
            && events.iter().any(is_same)
        {
            change.since = change.since.min(event.at);
            events.push(event);
            events.sort_by_key(|event| event.at);
            return;
        }
    }
    let (server, since) = (event.server, event.at);
    let what = ChangeKind::Event(vec![event]);
    changes.push(HistoryChange { server, since, cost_ns: 0.0, what, effects: Vec::new() });
}
