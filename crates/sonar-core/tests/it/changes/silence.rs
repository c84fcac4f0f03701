//! Servers that wrote no samples, with and without a known cause.

use sonar_core::changes::{ScanMoment, apart, each_once, with_all_events, without_usual_silences};

use super::*;

const WIDTH_NS: u64 = WIDTH_S * 1_000 * MS;
const OTHER: Endpoint = Endpoint::v4([0, 0, 0, 0], 27_018);
const MACHINE: Endpoint = Endpoint::v4([0, 0, 0, 0], 0);

fn of(server: Endpoint, event: Event) -> Event {
    Event { server, ..event }
}

fn with_text(second: u64, kind: EventKind, text: &str) -> Event {
    Event { text: text.into(), ..event(second, kind, "") }
}

fn silence(second: u64, length: &str) -> Event {
    let text = format!("the server wrote no sample for {length}: it stalled, or the machine slept");
    with_text(second, EventKind::Gap, &text)
}

/// The moments of events of which nothing can be compared.
fn moments(events: &[Event]) -> Vec<ScanMoment> {
    apart(with_all_events(Vec::new(), events, WIDTH_NS), WIDTH_NS)
}

fn events_of(change: &HistoryChange) -> &[Event] {
    let ChangeKind::Event(events) = &change.what else { panic!("{change:#?}") };
    events
}

/// Each change as its first event, with those of its effects.
fn told(moments: &[ScanMoment]) -> Vec<(EventKind, Vec<Event>)> {
    let changes = moments.iter().flat_map(|moment| &moment.changes.changes);
    let effects = |change: &HistoryChange| change.effects.iter().flat_map(events_of).cloned().collect();
    changes.map(|change| (events_of(change)[0].kind, effects(change))).collect()
}

#[test]
fn what_stopped_a_server_has_its_longest_silence_as_its_effect() {
    let (short, long) = (silence(296, "6.22s"), silence(318, "10.9s"));
    let suspended = of(MACHINE, with_text(301, EventKind::Gap, "the machine was suspended for 30 s"));
    let throttled = event(301, EventKind::CpuThrottled, "");
    let stopped = event(301, EventKind::ServerUnreachable, "");
    for cause in [suspended, throttled, stopped] {
        // The silence begins before the cause is seen, in another window, and is known earlier or later.
        for events in
            [[short.clone(), cause.clone(), long.clone()], [cause.clone(), long.clone(), short.clone()]]
        {
            let expected = [(cause.kind, vec![long.clone()])];
            assert_eq!(told(&moments(&events)), expected);
            let moment = with_all_events(Vec::new(), &events, 6 * WIDTH_NS);
            assert_eq!(told(&each_once(moment, 6 * WIDTH_NS)), expected);
        }
    }
    for kind in [EventKind::ServerStop, EventKind::ServerCrash] {
        assert_eq!(told(&moments(&[short.clone(), event(301, kind, "")])), [(kind, vec![short.clone()])]);
    }
    // Agents wrote it in other words before.
    let old = with_text(296, EventKind::Gap, "no sample for 6.22s: the server stalled, or the machine slept");
    let cause = event(301, EventKind::CpuThrottled, "");
    assert_eq!(told(&moments(&[old.clone(), cause])), [(EventKind::CpuThrottled, vec![old])]);
}

#[test]
fn a_machine_that_slept_stopped_each_of_its_servers() {
    let suspended = of(MACHINE, with_text(301, EventKind::Gap, "the machine was suspended for 30 s"));
    let silences = [silence(300, "31.0s"), of(OTHER, silence(301, "31.0s"))];
    let events = [suspended, silences[0].clone(), silences[1].clone()];
    assert_eq!(told(&moments(&events)), [(EventKind::Gap, silences.to_vec())]);
}

#[test]
fn a_silence_without_a_cause_at_its_time_stands_by_itself() {
    let silent = silence(300, "6.22s");
    for other in [
        of(OTHER, event(301, EventKind::CpuThrottled, "")),
        // Afterwards, and long before.
        event(311, EventKind::CpuThrottled, ""),
        event(200, EventKind::CpuThrottled, ""),
        event(290, EventKind::ServerCrash, ""),
        // They stop no server.
        event(301, EventKind::IndexDrop, "shop.carts"),
        event(301, EventKind::ConnectionStorm, ""),
        with_text(301, EventKind::Gap, "samples of 5.00s are lost: a part of a file is damaged"),
    ] {
        let found = told(&moments(&[silent.clone(), other.clone()]));
        assert!(found.iter().all(|(_, effects)| effects.is_empty()), "{found:#?}");
        let kinds = moments(&[silent.clone(), other.clone()]);
        let count: usize =
            kinds.iter().flat_map(|one| &one.changes.changes).map(|one| events_of(one).len()).sum();
        let listed =
            if matches!(other.kind, EventKind::CpuThrottled | EventKind::ConnectionStorm) { 1 } else { 2 };
        assert_eq!(count, listed, "{kinds:#?}");
    }
}

#[test]
fn what_happened_to_a_server_stands_above_a_silence_of_the_same_moment() {
    let events = [silence(300, "4.00s"), event(309, EventKind::IndexDrop, "shop.carts")];
    let kinds: Vec<_> = told(&moments(&events)).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [EventKind::IndexDrop, EventKind::Gap]);
}

#[test]
fn what_a_silence_explained_is_an_effect_of_its_cause() {
    let slow = Load { latency_ns: 8 * MS, ..FIND };
    let silent = silence(303, "6.22s");
    let found = compare(&[FIND, UPDATE], &[slow, UPDATE], std::slice::from_ref(&silent));
    assert_eq!(found.changes[0].effects.len(), 1, "{found:#?}");
    let span = sonar_core::history::Span {
        from: Timestamp::from_unix(1_700_000_300, 0),
        to: Timestamp::from_unix(1_700_000_330, 0),
    };
    let moment = ScanMoment { span, measured_ns: span.length_ns(), changes: found };
    let events = [silent, event(304, EventKind::ServerUnreachable, "")];
    let found = each_once(with_all_events(vec![moment], &events, WIDTH_NS), WIDTH_NS);
    let [cause] = &found[0].changes.changes[..] else { panic!("{found:#?}") };
    assert_eq!(events_of(cause)[0].kind, EventKind::ServerUnreachable);
    assert!(matches!(cause.effects[0].what, ChangeKind::Shape(_)), "{cause:#?}");
    assert_eq!((cause.effects.len(), cause.cost_ns > 0.0), (2, true), "{cause:#?}");
}

#[test]
fn silences_that_are_usual_are_no_change() {
    let left = |before: &[Event], events: &[Event]| {
        let all: Vec<Event> = before.iter().chain(events).cloned().collect();
        told(&without_usual_silences(moments(events), &all, WIDTH_NS)).len()
    };
    let usual = [silence(100, "4.67s"), silence(120, "4.90s"), silence(130, "6.33s")];
    assert_eq!(left(&usual, &[silence(300, "10.9s")]), 0);
    assert_eq!(left(&usual, &[silence(300, "25.0s")]), 1, "longer");
    assert_eq!(left(&usual[..1], &[silence(300, "4.00s")]), 1, "once before");
    assert_eq!(left(&usual, &[of(OTHER, silence(300, "4.00s"))]), 1, "another server");
    assert_eq!(left(&usual, &[silence(2_000, "4.00s")]), 1, "long ago");
    // One whose cause is known stays.
    let throttled = [silence(300, "6.00s"), event(302, EventKind::ServerUnreachable, "")];
    assert_eq!(left(&usual, &throttled), 1);
}
