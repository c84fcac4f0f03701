//! Which events are listed beside what changed.

use sonar_core::changes::{CommandEvents, ScanMoment, with_all_events};

use super::*;

/// The kinds of the events of all moments, with how many changes have no event.
fn listed(moments: &[ScanMoment]) -> (Vec<EventKind>, usize) {
    let changes = moments.iter().flat_map(|moment| &moment.changes.changes);
    let (mut kinds, mut others) = (Vec::new(), 0);
    for change in changes {
        match &change.what {
            ChangeKind::Event(events) => kinds.extend(events.iter().map(|event| event.kind)),
            _ => others += 1,
        }
    }
    (kinds, others)
}

#[test]
fn the_end_of_a_server_is_listed_even_if_nothing_can_be_compared() {
    let mut noise = Noise(3);
    let crash = event(15, EventKind::ServerCrash, "");
    let noise_of_logs = event(16, EventKind::LogError, "NETWORK");
    let events = [crash.clone(), noise_of_logs];
    let mut scan = Scan::new(&events, ALPHA, 2);
    (0..2).for_each(|at| scan.push(window(at, &[FIND], &mut noise)));
    assert!(!scan.has_compared());
    let moments = with_all_events(scan.finish(), &events, WIDTH_S * 1_000 * MS);
    assert_eq!(listed(&moments), (vec![EventKind::ServerCrash], 0));
    assert!(moments[0].span.contains(crash.at));
    // Also in a time that nobody observed, and after the last window.
    for second in [150, 5_000] {
        let events =
            [event(second, EventKind::ServerStop, ""), event(second + 5, EventKind::ServerStart, "")];
        let moments = with_all_events(Vec::new(), &events, WIDTH_S * 1_000 * MS);
        let [moment] = moments.as_slice() else { panic!("{moments:#?}") };
        assert_eq!(moment.changes.changes.len(), 1, "stages of one restart");
        assert_eq!(listed(&moments).0, [EventKind::ServerStop, EventKind::ServerStart]);
    }
}

#[test]
fn an_event_that_a_moment_has_is_not_listed_again() {
    let mut noise = Noise(5);
    let slow = Load { latency_ns: 8 * MS, ..FIND };
    let events = [event(303, EventKind::IndexDrop, "shop.carts"), event(308, EventKind::ServerCrash, "")];
    let mut scan = Scan::new(&events, ALPHA, 33);
    for at in 0..33 {
        scan.push(window(at, &[if at < 30 { FIND } else { slow }, UPDATE], &mut noise));
    }
    let moments = with_all_events(scan.finish(), &events, WIDTH_S * 1_000 * MS);
    let (mut kinds, _) = listed(&moments);
    kinds.sort();
    assert_eq!(kinds, [EventKind::ServerCrash, EventKind::IndexDrop]);
}

/// The events of commands in windows of which some have `loads`.
fn events_of_commands(loads: &[Load], windows: &[u64], stored: &[Event]) -> Vec<Event> {
    let mut noise = Noise(9);
    let mut commands = CommandEvents::default();
    for at in 0..12 {
        let more = if windows.contains(&at) { loads } else { &[] };
        commands.add(&window(at, &[&[FIND][..], more].concat(), &mut noise));
    }
    commands.finish(stored)
}

#[test]
fn commands_on_the_wire_are_events_once_beside_those_of_the_log() {
    let build = Load { command: "createIndexes", shape: 50, calls: 1, latency_ns: MS, ..FIND };
    let events = events_of_commands(&[build], &[4], &[]);
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((event.kind, &*event.subject), (EventKind::IndexBuildBegin, "shop.carts"));
    // The log has it, too.
    let logged =
        Event::new(event.at.plus_ns(MS), EventKind::IndexBuildBegin, SERVER, "").about("shop.carts a_1");
    assert_eq!(events_of_commands(&[build], &[4], &[logged]), []);
    // A build that takes minutes begins before the window in which its command ends.
    let long = Load { latency_ns: 60_000 * MS, ..build };
    let kinds: Vec<_> = events_of_commands(&[long], &[8], &[]).iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::IndexBuildBegin, EventKind::IndexBuildEnd]);
    // What a program does all the time is no event.
    assert_eq!(events_of_commands(&[build], &[1, 2, 3, 4, 5], &[]), []);
}
