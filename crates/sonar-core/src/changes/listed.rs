//! Completes the moments of change with the events that none of them has: every view shows the same events.

use std::collections::HashSet;

use super::change::{ChangeKind, HistoryChange, HistoryChanges};
use super::events::{REACH_WINDOWS, is_always_listed, sort};
use super::scan::ScanMoment;
use super::silence;
use super::stages::are_stages;
use crate::history::{Event, EventKind, Span};
use crate::{Endpoint, Timestamp};

/// What makes two events the same.
type EventId<'a> = (EventKind, Endpoint, &'a str, Timestamp);

fn id(event: &Event) -> EventId<'_> {
    (event.kind, event.server, &event.subject, event.at)
}

/// What the moments tell already.
#[derive(Default)]
struct ToldEvents<'a> {
    events: HashSet<EventId<'a>>,
    /// New applications, with the time of their first operation.
    applications: HashSet<(Endpoint, &'a str, Timestamp)>,
}

impl<'a> ToldEvents<'a> {
    fn gather(&mut self, change: &'a HistoryChange) {
        match &change.what {
            ChangeKind::Event(events) => self.events.extend(events.iter().map(id)),
            // An application that has ended or uses another driver need not be new.
            ChangeKind::Application(app) if !app.has_ended && app.versions_before.is_empty() => {
                self.applications.insert((change.server, &app.name, change.since));
            }
            _ => {}
        }
        change.effects.iter().for_each(|effect| self.gather(effect));
    }

    fn has(&self, event: &Event, reach_ns: u64) -> bool {
        let is_near = |at: Timestamp| at.since(event.at).max(event.at.since(at)) <= reach_ns;
        let is_it = |(server, name, since): &(Endpoint, &str, Timestamp)| {
            *server == event.server && *name == &*event.subject && is_near(*since)
        };
        let is_named = event.kind == EventKind::NewApplication && self.applications.iter().any(is_it);
        is_named || self.events.contains(&id(event))
    }
}

/// Moments by time, with all events that are changes of a server, or that stopped one which wrote no samples then: those
/// that no moment has come into the one of their time, or make one of their own, as wide as a window. There was too little
/// before them to compare with, or nobody observed that time.
pub fn with_all_events(mut moments: Vec<ScanMoment>, events: &[Event], width_ns: u64) -> Vec<ScanMoment> {
    let reach_ns = width_ns.saturating_mul(REACH_WINDOWS);
    let missing: Vec<Event> = {
        let mut told = ToldEvents::default();
        moments.iter().flat_map(|moment| &moment.changes.changes).for_each(|one| told.gather(one));
        let is_listed =
            |event: &&Event| is_always_listed(event.kind) || silence::is_cause(event, events, width_ns);
        let listed = events.iter().filter(is_listed);
        listed.filter(|event| !told.has(event, reach_ns)).cloned().collect()
    };
    for event in missing {
        let contains = |moment: &&mut ScanMoment| moment.span.contains(event.at);
        match moments.iter_mut().find(contains) {
            Some(moment) => add(&mut moment.changes.changes, event, width_ns),
            None => {
                let measured_ns = width_ns.max(1);
                let from = event.at.floor_to(measured_ns);
                let mut changes = HistoryChanges::default();
                add(&mut changes.changes, event, width_ns);
                let span = Span { from, to: from.plus_ns(measured_ns) };
                moments.push(ScanMoment { span, measured_ns, changes });
            }
        }
    }
    moments.iter_mut().for_each(|moment| sort(&mut moment.changes.changes));
    moments.sort_by_key(|moment| moment.span.from);
    moments
}

/// Adds an event to those that are stages of the same thing, or as a change of its own.
fn add(changes: &mut Vec<HistoryChange>, event: Event, width_ns: u64) {
    let is_same = |known: &Event| known.server == event.server && are_stages(known, &event, width_ns);
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
    changes.push(HistoryChange::new(event.server, event.at, ChangeKind::Event(vec![event])));
}
