//! What is new: since when, and which applications.

use sonar_core::changes::{CommandEvents, ScanMoment, apart, with_all_events};
use sonar_core::history::Span;

use super::*;

const REPORT: Load = Load {
    shape: 9,
    command: "aggregate",
    app: ("nightly-report", "4.7"),
    calls: 12,
    latency_ns: 500 * MS,
    ..FIND
};
const UNKNOWN: Load = Load { app: JOINED_LATE, calls: 600, ..UPDATE };

/// Puts operations into a window, each with the second since the first window at which it ended, and its length in
/// milliseconds.
fn add(window: &mut HistoryWindow, load: &Load, operations: &[(u64, u64)]) {
    let shape = Arc::new(ShapeInfo {
        id: ShapeId(load.shape),
        command: load.command.into(),
        database: "shop".into(),
        collection: load.collection.into(),
        ..ShapeInfo::default()
    });
    let app = Arc::new(Application {
        name: load.app.0.into(),
        driver: "driver".into(),
        driver_version: load.app.1.into(),
        joined_late: false,
    });
    for &(second, ms) in operations {
        let end = Timestamp::from_unix(1_700_000_000 + second, 0);
        let operation = Operation {
            end,
            start: end,
            latency_ns: Some(ms * MS),
            command: load.command,
            ..operation(&shape, &app)
        };
        let until = window.window.end;
        window.window.record(&operation);
        window.window.end = until;
    }
}

/// What is found in three windows after thirty, the first with the operations of `first`, the second with those of
/// `second`.
fn found(first: &[(u64, u64)], second: &[(u64, u64)]) -> HistoryChanges {
    let mut noise = Noise(42);
    let mut all: Vec<_> = (0..33).map(|at| window(at, &[FIND], &mut noise)).collect();
    add(&mut all[30], &REPORT, first);
    add(&mut all[31], &REPORT, second);
    let (before, after) = all.split_at(30);
    find(&ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA }, ComparisonKind::Moment)
}

/// When the new application and its shape began, in seconds since the first window.
fn began(found: &HistoryChanges) -> [u64; 2] {
    let [app] = found.changes.as_slice() else { panic!("{found:#?}") };
    assert!(matches!(&app.what, ChangeKind::Application(app) if !app.has_ended), "{app:#?}");
    assert_eq!(ways(&app.effects[0]), [ShapeWay::New]);
    let second = |change: &HistoryChange| change.since.unix_ns() / 1_000 / MS - 1_700_000_000;
    [second(app), second(&app.effects[0])]
}

#[test]
fn what_is_new_began_when_its_first_operation_did() {
    // One operation; several that took as long; one that ended later, but began earlier.
    assert_eq!(began(&found(&[(308, 4_000)], &[])), [304, 304]);
    assert_eq!(began(&found(&[(306, 4_000), (308, 5_000)], &[])), [302, 302]);
    assert_eq!(began(&found(&[(308, 1_000)], &[(315, 14_000)])), [301, 301]);
    // Before the span: it counts where it ended.
    assert_eq!(began(&found(&[(308, 40_000)], &[])), [268, 268]);
}

#[test]
fn the_figures_of_a_change_have_an_end() {
    let found = found(&[(308, 4_000)], &[(315, 2_000)]);
    let end = Timestamp::from_unix(1_700_000_000 + 330, 0);
    assert_eq!([found.changes[0].until, found.changes[0].effects[0].until], [end; 2]);
}

/// The moments of a span in which an application runs for a while. Meanwhile operations on connections whose application is
/// not known are as many as `unknown` says.
fn moments_of_a_job(unknown: impl Fn(bool) -> u64, events: &[Event]) -> Vec<ScanMoment> {
    let mut noise = Noise(3);
    let mut scan = Scan::new(events, ALPHA, 80);
    let mut commands = CommandEvents::default();
    for at in 0..80 {
        let runs = (40..60).contains(&at);
        let others = [FIND, Load { calls: unknown(runs), ..UNKNOWN }];
        let window = window(at, &[&others[..], if runs { &[REPORT] } else { &[] }].concat(), &mut noise);
        commands.add(&window);
        scan.push(window);
    }
    apart(with_all_events(scan.finish(), events, WIDTH_S * 1_000 * MS), WIDTH_S * 1_000 * MS)
}

/// Whether its beginning and its end are reported, and how often its connection is.
fn told(moments: &[ScanMoment]) -> ([usize; 2], usize) {
    let (mut ends, mut events) = ([0, 0], 0);
    for change in moments.iter().flat_map(|moment| &moment.changes.changes) {
        match &change.what {
            ChangeKind::Application(app) if &*app.name == "nightly-report" => {
                ends[usize::from(app.has_ended)] += 1;
            }
            ChangeKind::Event(all) => {
                events += all.iter().filter(|event| event.kind == EventKind::NewApplication).count();
            }
            _ => {}
        }
    }
    (ends, events)
}

#[test]
fn a_new_application_is_told_as_its_end_is() {
    let steady = |_| 600;
    assert_eq!(told(&moments_of_a_job(steady, &[])), ([1, 1], 0));
    // It takes what the others need, so that they run fewer operations: they were not it.
    let slowed = |runs| if runs { 300 } else { 600 };
    assert_eq!(told(&moments_of_a_job(slowed, &[])), ([1, 1], 0));
}

#[test]
fn the_connection_of_a_new_application_is_told_once() {
    let connected = event(401, EventKind::NewApplication, "nightly-report");
    assert_eq!(told(&moments_of_a_job(|_| 600, std::slice::from_ref(&connected))), ([1, 1], 0));
    // Long before its first operation; it is not what its end says.
    let early = event(55, EventKind::NewApplication, "nightly-report");
    assert_eq!(told(&moments_of_a_job(|_| 600, std::slice::from_ref(&early))), ([1, 1], 1));
}

#[test]
fn the_end_of_an_application_does_not_tell_that_it_was_new() {
    let mut noise = Noise(3);
    // It connects to run nothing for a while; its operations are known to the history.
    let connected = event(150, EventKind::NewApplication, "nightly-report");
    let events = [connected];
    let mut scan = Scan::new(&events, ALPHA, 60);
    for at in 0..60 {
        let window = window(at, if at < 40 { &[FIND, REPORT] } else { &[FIND] }, &mut noise);
        if at < 20 { scan.push_before(window) } else { scan.push(window) }
    }
    let moments = with_all_events(scan.finish(), &events, WIDTH_S * 1_000 * MS);
    assert_eq!(told(&moments), ([0, 1], 1));
}

#[test]
fn an_application_that_was_unknown_before_is_not_new() {
    // Half of the operations of a shape are of a known application now.
    let named = Load { app: ("shop-worker", "4.7"), calls: 300, ..UNKNOWN };
    let rest = Load { calls: 300, ..UNKNOWN };
    let changes = compare(&[FIND, UNKNOWN], &[FIND, rest, named], &[]);
    let is_app = |change: &HistoryChange| matches!(change.what, ChangeKind::Application(_));
    assert!(!changes.changes.iter().any(is_app), "{changes:#?}");
    // Unless the log says that it connects for the first time.
    let connected = event(301, EventKind::NewApplication, "shop-worker");
    let changes = compare(&[FIND, UNKNOWN], &[FIND, rest, named], &[connected]);
    assert!(changes.changes.iter().any(is_app), "{changes:#?}");
}

#[test]
fn connections_that_ended_long_before_do_not_hide_a_new_application() {
    let named = Load { app: ("shop-worker", "4.7"), calls: 150, ..UNKNOWN };
    let mut noise = Noise(5);
    let mut windows = |unknown_until: u64| -> Vec<HistoryWindow> {
        let loads = |at: u64| match at {
            at if at < unknown_until => vec![FIND, UNKNOWN],
            30.. => vec![FIND, named],
            _ => vec![FIND],
        };
        (0..33).map(|at| window(at, &loads(at), &mut noise)).collect()
    };
    for (unknown_until, is_new) in [(20, true), (26, false), (30, false)] {
        let windows = windows(unknown_until);
        let (before, after) = windows.split_at(30);
        let input = ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA };
        let found = find(&input, ComparisonKind::Moment);
        let mut apps = found.changes.iter().filter(|one| matches!(one.what, ChangeKind::Application(_)));
        assert_eq!(apps.next().is_some(), is_new, "until window {unknown_until}: {found:#?}");
    }
}

#[test]
fn an_application_of_few_operations_has_ended_after_a_longer_silence() {
    // Three operations of a second each in a window: a block of three windows is too short to miss them in.
    let report = Load { calls: 3, latency_ns: 1_000 * MS, ..REPORT };
    let mut noise = Noise(3);
    let mut scan = Scan::new(&[], ALPHA, 60);
    for at in 0..60 {
        let loads = [FIND, report];
        let count = if (20..30).contains(&at) { 2 } else { 1 };
        scan.push(window(at, &loads[..count], &mut noise));
    }
    let moments = scan.finish();
    assert_eq!(told(&moments).0, [1, 1], "{moments:#?}");
    let is_end =
        |change: &&HistoryChange| matches!(&change.what, ChangeKind::Application(app) if app.has_ended);
    let end = moments.iter().flat_map(|moment| &moment.changes.changes).find(is_end).unwrap();
    assert_eq!((end.since.unix_ns() / 1_000 / MS - 1_700_000_000) / WIDTH_S, 29);
}

/// The seconds of a moment, and the kinds of its events.
fn shown(moments: &[ScanMoment]) -> Vec<(u64, u64, Vec<EventKind>)> {
    let second = |at: Timestamp| at.unix_ns() / 1_000 / MS - 1_700_000_000;
    let of = |moment: &ScanMoment| {
        let Span { from, to } = moment.span;
        let events = moment.changes.changes.iter().flat_map(|change| match &change.what {
            ChangeKind::Event(events) => events.clone(),
            _ => Vec::new(),
        });
        let events: Vec<Event> = events.collect();
        assert!(events.iter().all(|event| moment.span.contains(event.at)), "{moment:#?}");
        (second(from), second(to), events.iter().map(|event| event.kind).collect())
    };
    moments.iter().map(of).collect()
}

#[test]
fn an_index_build_from_before_a_restart_is_in_its_own_moment() {
    let mut noise = Noise(8);
    let build = "shop.carts user_1";
    // The build begins, the server restarts, and the build begins again.
    let events = [
        event(361, EventKind::IndexBuildBegin, build),
        event(389, EventKind::ServerStop, ""),
        event(394, EventKind::ServerStart, ""),
        event(395, EventKind::IndexBuildBegin, build),
        event(398, EventKind::IndexBuildEnd, build),
    ];
    let slow = Load { latency_ns: 8 * MS, ..FIND };
    let mut scan = Scan::new(&events, ALPHA, 60);
    for at in 0..60 {
        scan.push(window(at, &[if at < 39 { FIND } else { slow }, UPDATE], &mut noise));
    }
    let width_ns = WIDTH_S * 1_000 * MS;
    let moments = apart(with_all_events(scan.finish(), &events, width_ns), width_ns);
    let shown = shown(&moments);
    let [first, second] = shown.as_slice() else { panic!("{shown:?}") };
    assert_eq!(*first, (360, 370, vec![EventKind::IndexBuildBegin]));
    assert_eq!((second.0, second.1, second.2.len()), (380, 400, 4), "{shown:?}");
}

#[test]
fn events_before_two_compared_spans_are_not_listed() {
    let mut noise = Noise(8);
    let all: Vec<_> = (0..40).map(|at| window(at, &[FIND], &mut noise)).collect();
    let events =
        [event(295, EventKind::IndexBuildBegin, "shop.carts"), event(305, EventKind::ServerStart, "")];
    let input =
        ChangeInput { before: &all[..5], after: &all[30..40], later: &[], events: &events, alpha: ALPHA };
    let found = find(&input, ComparisonKind::Spans);
    let [change] = found.changes.as_slice() else { panic!("{found:#?}") };
    assert!(matches!(&change.what, ChangeKind::Event(all) if all[0].kind == EventKind::ServerStart));
}

#[test]
fn changes_of_a_moment_are_by_cost_whenever_they_began() {
    // What began later costs more.
    let mut noise = Noise(42);
    let slow = Load { latency_ns: 8 * MS, ..FIND };
    let report = Load { calls: 20, ..REPORT };
    let loads = |at| match at {
        0..30 => vec![FIND, UPDATE],
        30 => vec![slow, UPDATE],
        _ => vec![slow, UPDATE, report],
    };
    let all: Vec<_> = (0..33).map(|at| window(at, &loads(at), &mut noise)).collect();
    let (before, after) = all.split_at(30);
    let found =
        find(&ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA }, ComparisonKind::Moment);
    let costs: Vec<f64> = found.changes.iter().map(|change| change.cost_ns.abs()).collect();
    assert!(costs.len() == 2 && costs[0] > costs[1], "{found:#?}");
    assert!(found.changes[0].since > found.changes[1].since, "{found:#?}");
}

#[test]
fn a_long_lock_is_one_thing_and_its_end_another_but_the_effects_are_of_the_lock() {
    let text = |second: u64, text: &str| {
        let at = Timestamp::from_unix(1_700_000_000 + second, 0);
        Event::new(at, EventKind::WritesLock, SERVER, text)
    };
    let events = [text(301, "writes were locked"), text(322, "writes were unlocked")];
    let waited = Load { calls: 2, latency_ns: 4_000 * MS, ..UPDATE };
    let found = compare(&[FIND, UPDATE], &[FIND, UPDATE, waited], &events);
    let of = |change: &HistoryChange| match &change.what {
        ChangeKind::Event(events) => (events.len(), events[0].text.to_string(), change.effects.len()),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        found.changes.iter().map(of).collect::<Vec<_>>(),
        [(1, "writes were locked".to_owned(), 1), (1, "writes were unlocked".to_owned(), 0)]
    );
}

#[test]
fn a_database_that_was_dropped_explains_the_queries_on_its_collections() {
    let slow = Load { latency_ns: 8 * MS, ..FIND };
    for (database, expected) in [("shop", 1), ("sho", 0), ("", 0)] {
        let dropped = event(303, EventKind::CollectionDrop, database);
        let found = compare(&[FIND, UPDATE], &[slow, UPDATE], &[dropped]);
        let effects: usize = found.changes.iter().map(|change| change.effects.len()).sum();
        assert_eq!(effects, expected, "{database:?} {found:#?}");
    }
}

#[test]
fn what_mongosonar_asks_is_no_change_of_a_server() {
    let asked = Load { app: (Application::OWN, "3.9.1"), ..REPORT };
    let shapes: Vec<Load> = (100..120).map(|shape| Load { shape, ..asked }).collect();
    let steady = [FIND, UPDATE];
    let kinds = |loads: &[Load]| -> Vec<&'static str> {
        let after = [&steady[..], loads].concat();
        compare(&steady, &after, &[]).changes.iter().map(|change| change.what.name()).collect()
    };
    assert_eq!(kinds(&shapes), [""; 0]);
    let of_another: Vec<Load> = shapes.iter().map(|load| Load { app: REPORT.app, ..*load }).collect();
    assert!(kinds(&of_another).contains(&"application"));
}

#[test]
fn the_known_shapes_that_a_new_application_brings_are_its_effects() {
    let worker = |latency_ns| Load { app: ("worker", "1.0"), calls: 180, latency_ns, ..FIND };
    for (latency_ns, expected) in [(MS, &[ShapeWay::MoreOften][..]), (MS / 8, &[ShapeWay::Faster])] {
        let found = compare(&[FIND, UPDATE], &[FIND, UPDATE, worker(latency_ns)], &[]);
        let [app] = found.changes.as_slice() else { panic!("{found:#?}") };
        assert!(matches!(&app.what, ChangeKind::Application(app) if &*app.name == "worker"), "{app:#?}");
        let [effect] = app.effects.as_slice() else { panic!("{app:#?}") };
        assert_eq!(ways(effect).first(), expected.first(), "{effect:#?}");
    }
    // Most of what grew is another one's.
    let few = Load { calls: 40, ..worker(MS) };
    let often = Load { calls: 240, ..FIND };
    let found = compare(&[FIND, UPDATE], &[often, UPDATE, few], &[]);
    let effects: usize = found.changes.iter().map(|change| change.effects.len()).sum();
    assert_eq!((found.changes.len(), effects), (2, 0), "{found:#?}");
}

#[test]
fn a_rate_that_jumps_within_a_window_is_compared_without_it() {
    let load = |at: u64| Load {
        calls: if at < 30 {
            50
        } else if at == 30 {
            100
        } else {
            200
        },
        ..FIND
    };
    let mut noise = Noise(5);
    let windows: Vec<_> = (0..34).map(|at| window(at, &[load(at)], &mut noise)).collect();
    let started = windows[30].window.start;
    for cut in [29, 30] {
        let (before, after) = windows.split_at(cut);
        let input = ChangeInput { before, after: &after[..4], later: &[], events: &[], alpha: ALPHA };
        let found = find(&input, ComparisonKind::Block);
        let change = found.changes.iter().find(|change| matches!(change.what, ChangeKind::Shape(_)));
        let change = change.unwrap_or_else(|| panic!("{cut} {found:#?}"));
        assert_eq!((ways(change), change.since), (&[ShapeWay::MoreOften][..], started), "{cut}");
        let ChangeKind::Shape(shape) = &change.what else { unreachable!() };
        if cut == 30 {
            assert!((shape.before.rate() - 5.0).abs() < 1.0 && (shape.after.rate() - 20.0).abs() < 4.0);
            assert_eq!(shape.after.seconds, 30.0);
        }
    }
}
