//! Changes of a server as a whole.

use sonar_core::changes::{ServerChange, ServerLevel, ServerMeasure};

use super::*;

fn of_server(changes: &[HistoryChange]) -> Option<&ServerChange> {
    let effects = changes.iter().flat_map(|change| &change.effects);
    changes.iter().chain(effects).find_map(|change| match &change.what {
        ChangeKind::Server(change) => Some(change),
        _ => None,
    })
}

fn measures(change: &ServerChange) -> Vec<ServerMeasure> {
    change.levels.iter().map(|level| level.measure).collect()
}

#[test]
fn many_new_shapes_that_are_small_each_are_a_large_change_together() {
    // They take 1.5 ms on average, so all 30 together add 0.45 % to the time of the shape that was there before.
    let usual = Load { calls: 86, latency_ns: 2_000 * MS, ..FIND };
    let many: Vec<Load> =
        (0..30).map(|number| Load { shape: 100 + number, calls: 86, latency_ns: MS, ..FIND }).collect();
    let found = compare(&[usual], &[&[usual][..], &many].concat(), &[]);
    let change = of_server(&found.changes).unwrap_or_else(|| panic!("{found:#?}"));
    assert_eq!((change.new_shapes, change.has_unusually_many_new_shapes), (30, true));
    assert!((change.new_share - 30.0 / 31.0).abs() < 0.02, "{change:?}");
    let [ServerLevel { measure: ServerMeasure::Queries, before, after, .. }] = change.levels[..] else {
        panic!("{change:#?}")
    };
    // 86 calls in ten seconds, and 31 times as many.
    assert!((before / 8.6 - 1.0).abs() < 0.1 && (after / (31.0 * 8.6) - 1.0).abs() < 0.1, "{change:?}");
}

/// Thirty shapes of which each is a thirtieth of the load.
fn thirty(of: impl Fn(u64) -> Load) -> Vec<Load> {
    (0..30).map(|number| Load { shape: 100 + number, calls: 30, ..of(number) }).collect()
}

#[test]
fn a_load_that_rises_with_many_shapes_is_a_change_of_the_server() {
    let usual = thirty(|_| Load { latency_ns: 100 * MS, ..FIND });
    let slower = thirty(|_| Load { latency_ns: 300 * MS, ..FIND });
    let found = compare(&usual, &slower, &[]);
    let change = of_server(&found.changes).unwrap_or_else(|| panic!("{found:#?}"));
    assert_eq!((measures(change), change.new_shapes), (vec![ServerMeasure::InProgress], 0), "{change:?}");
    // 90 calls a second, which take one and a half times their latency on average.
    let ServerLevel { before, after, .. } = change.levels[0];
    assert!((before / (90.0 * 0.15) - 1.0).abs() < 0.1, "{before}");
    assert!((after / (90.0 * 0.45) - 1.0).abs() < 0.1, "{after}");
}

#[test]
fn errors_that_many_shapes_have_now_and_then_are_a_change_of_the_server() {
    let usual = thirty(|_| FIND);
    // Two in ten seconds for each, with errors of their own, so no code is most of them.
    let failing = usual.iter().enumerate();
    let failing = failing.map(|(at, load)| Load { calls: 2, error: Some(100 + at as i32), ..*load });
    let found = compare(&usual, &usual.iter().copied().chain(failing).collect::<Vec<_>>(), &[]);
    let change = of_server(&found.changes).unwrap_or_else(|| panic!("{found:#?}"));
    assert_eq!(measures(change), [ServerMeasure::Failed], "{change:?}");
    let ServerLevel { before, after, .. } = change.levels[0];
    assert!(before == 0.0 && (after / 6.0 - 1.0).abs() < 0.1, "{before} {after}");
}

#[test]
fn a_storm_of_connections_is_named() {
    let key = SeriesKey {
        subject: SeriesSubject::Server,
        server: SERVER,
        name: "".into(),
        metric: "connections.open".into(),
    };
    let mut noise = Noise(21);
    let mut windows: Vec<HistoryWindow> = Vec::new();
    for at in 0..33 {
        let mut window = window(at, &[FIND], &mut noise);
        let open = if at < 30 { 12.0 + noise.next() } else { 312.0 };
        let start = window.window.start;
        window.sample(&key, start, open, 10.0);
        windows.push(window);
    }
    let (before, after) = windows.split_at(30);
    let found =
        find(&ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA }, ComparisonKind::Block);
    let change = of_server(&found.changes).unwrap_or_else(|| panic!("{found:#?}"));
    assert_eq!(measures(change), [ServerMeasure::Connections]);
    assert!((change.levels[0].after - 312.0).abs() < 1.0);
}

#[test]
fn a_rise_of_connections_is_the_storms_and_not_that_of_another_new_application() {
    let key = SeriesKey {
        subject: SeriesSubject::Server,
        server: SERVER,
        name: "".into(),
        metric: "connections.open".into(),
    };
    let analyst = Load { shape: 9, app: ("analyst", "1.0"), calls: 12, latency_ns: 500 * MS, ..FIND };
    let mut noise = Noise(21);
    let mut windows: Vec<HistoryWindow> = Vec::new();
    for at in 0..33 {
        let loads = [FIND, analyst];
        let mut window = window(at, if at < 30 { &loads[..1] } else { &loads }, &mut noise);
        let open = if at < 31 { 12.0 + noise.next() } else { 312.0 };
        let start = window.window.start;
        window.sample(&key, start, open, 10.0);
        windows.push(window);
    }
    let (before, after) = windows.split_at(30);
    let storm = event(315, EventKind::ConnectionStorm, "");
    let rise_of = |events: &[Event]| {
        let input = ChangeInput { before, after, later: &[], events, alpha: ALPHA };
        let found = find(&input, ComparisonKind::Block);
        let has_level = |change: &&HistoryChange| of_server(&change.effects).is_some();
        let has_series = |change: &&HistoryChange| {
            change.effects.iter().any(|effect| matches!(effect.what, ChangeKind::Series(_)))
        };
        let name = |change: &HistoryChange| change.what.name();
        [found.changes.iter().find(has_level).map(name), found.changes.iter().find(has_series).map(name)]
    };
    assert_eq!(rise_of(&[storm]), [Some("event"); 2]);
    assert_eq!(rise_of(&[]), [Some("application"); 2], "without a storm it may be the application's");
}

#[test]
fn what_one_shape_explains_is_not_told_twice() {
    for after in [
        [Load { calls: 600, ..FIND }, UPDATE],
        [Load { latency_ns: 500 * MS, ..FIND }, UPDATE],
        [FIND, Load { error: Some(11_000), ..UPDATE }],
    ] {
        let found = compare(&[FIND, UPDATE], &after, &[]);
        assert!(!found.changes.is_empty(), "{after:?}");
        assert!(of_server(&found.changes).is_none(), "{after:?} {found:#?}");
    }
}

#[test]
fn a_crash_explains_that_queries_fall() {
    let loads: Vec<Load> = (0..30).map(|number| Load { shape: 100 + number, calls: 9, ..FIND }).collect();
    let crash = event(301, EventKind::ServerCrash, "");
    let found = compare(&loads, &[], &[crash]);
    let first = &found.changes[0];
    assert!(matches!(&first.what, ChangeKind::Event(_)), "{found:#?}");
    let falls = of_server(&first.effects).unwrap_or_else(|| panic!("{found:#?}"));
    assert_eq!(measures(falls), [ServerMeasure::Queries]);
    assert!(falls.levels[0].after < 1.0, "{falls:?}");
}

#[test]
fn an_application_that_ends_is_one_change() {
    let of = |number: u64, app| Load {
        shape: 100 + number,
        app: (app, "1.0"),
        calls: 30,
        latency_ns: 20 * MS,
        ..FIND
    };
    let before: Vec<Load> = (0..4).map(|number| of(number, "pricing")).chain([of(9, "shop")]).collect();
    let found = compare(&before, &[of(9, "shop")], &[]);
    let [change] = found.changes.as_slice() else { panic!("{found:#?}") };
    let ChangeKind::Application(app) = &change.what else { panic!("{change:#?}") };
    assert_eq!((&*app.name, app.has_ended), ("pricing", true));
    let stopped = change.effects.iter().filter(|effect| matches!(effect.what, ChangeKind::Shape(_)));
    assert_eq!(stopped.map(ways).collect::<Vec<_>>(), [[ShapeWay::Stopped]; 4]);
    assert!(change.cost_ns < 0.0);
    // It has a cost also if others run its shapes: 90 operations of 30 ms in each of three windows.
    let pricing = Load { calls: 90, ..of(9, "pricing") };
    let found = compare(&[of(9, "shop"), pricing], &[Load { calls: 120, ..of(9, "shop") }], &[]);
    let is_end =
        |change: &&HistoryChange| matches!(&change.what, ChangeKind::Application(app) if app.has_ended);
    let ended = found.changes.iter().find(is_end).unwrap_or_else(|| panic!("{found:#?}"));
    let expected = -(3.0 * 90.0 * 30.0 * MS as f64);
    assert!((ended.cost_ns / expected - 1.0).abs() < 0.3, "{} {expected}", ended.cost_ns);
    // One that runs seldom has not ended.
    let seldom = Load { calls: 1, ..of(1, "report") };
    assert!(compare(&[FIND, seldom], &[FIND], &[]).is_empty());
}

#[test]
fn an_application_that_may_have_been_there_is_not_new() {
    // Its connections were there before the capture, so nobody knew whose they were. After a restart they are known.
    let unknown = Load { app: JOINED_LATE, calls: 95, ..FIND };
    let known = Load { app: ("shop", "1.0"), ..unknown };
    let restart = event(301, EventKind::ServerStart, "");
    let is_new = |before: &[Load]| {
        let found = compare(before, &[known], std::slice::from_ref(&restart));
        found.changes.iter().any(|change| matches!(change.what, ChangeKind::Application(_)))
    };
    assert!(!is_new(&[unknown]));
    // A few operations of unknown clients are not all that it runs now.
    assert!(is_new(&[Load { calls: 9, ..unknown }]));
    assert!(is_new(&[Load { app: ("other", "1.0"), ..unknown }]));
    // A client that gives no name is known, and another one.
    assert!(is_new(&[Load { app: ("", ""), ..unknown }]));
}

#[test]
fn an_application_whose_name_may_be_unknown_now_has_not_ended() {
    let shop = Load { app: ("pricing", "1.0"), calls: 95, ..FIND };
    let unknown = Load { app: JOINED_LATE, calls: 9, ..FIND };
    let elsewhere = Load { shape: 9, ..unknown };
    let restart = event(301, EventKind::AgentStart, "");
    let has_ended = |before: &[Load], after: &[Load], events: &[Event]| {
        let found = compare(before, after, events);
        let is_end =
            |change: &HistoryChange| matches!(&change.what, ChangeKind::Application(app) if app.has_ended);
        found.changes.iter().any(is_end)
    };
    // Its connections are open, but their names were lost with the agent.
    assert!(!has_ended(&[shop, UPDATE], &[Load { app: JOINED_LATE, ..shop }, UPDATE], &[]));
    // Another connection of its, whose name was never known, goes on.
    assert!(!has_ended(&[shop, unknown, UPDATE], &[unknown, UPDATE], &[]));
    // Right after a restart it may be any of them; long after, or without them, it has ended.
    assert!(!has_ended(&[shop, UPDATE], &[elsewhere, UPDATE], std::slice::from_ref(&restart)));
    assert!(has_ended(&[shop, elsewhere, UPDATE], &[elsewhere, UPDATE], &[]));
    assert!(has_ended(&[shop, UPDATE], &[UPDATE], &[restart]));
}

#[test]
fn an_application_is_new_beside_unknown_ones_that_go_on() {
    // The connections that were there before the capture still run as many operations.
    let unknown = Load { app: JOINED_LATE, calls: 95, ..FIND };
    let stormy = Load { shape: 9, app: ("stormy", "1.0"), calls: 95, latency_ns: 10 * MS, ..FIND };
    let found = compare(&[unknown], &[unknown, stormy], &[]);
    let [app] = found.changes.as_slice() else { panic!("{found:#?}") };
    assert!(matches!(&app.what, ChangeKind::Application(app) if &*app.name == "stormy"), "{found:#?}");
    assert_eq!(ways(&app.effects[0]), [ShapeWay::New]);
}

#[test]
fn what_ran_for_a_moment_only_has_not_stopped() {
    let burst = Load { shape: 9, app: ("stormy", "1.0"), calls: 300, latency_ns: 10 * MS, ..FIND };
    let mut noise = Noise(31);
    let found = |windows: std::ops::Range<u64>, noise: &mut Noise| {
        let windows: Vec<_> = (0..33)
            .map(|at| {
                let loads = [FIND, burst];
                window(at, &loads[..if windows.contains(&at) { 2 } else { 1 }], noise)
            })
            .collect();
        let (before, after) = windows.split_at(30);
        find(&ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA }, ComparisonKind::Block)
            .changes
            .len()
    };
    assert_eq!(found(29..30, &mut noise), 0);
    assert_eq!(found(20..30, &mut noise), 1, "this one has");
}

#[test]
fn an_application_has_ended_where_a_part_of_the_windows_after_was_observed() {
    let pricing = Load { shape: 9, app: ("pricing", "1.0"), calls: 95, latency_ns: 20 * MS, ..FIND };
    let mut noise = Noise(41);
    let mut all: Vec<_> = (0..30).map(|at| window(at, &[FIND, pricing], &mut noise)).collect();
    for at in 30..32 {
        let mut window = window(at, &[Load { calls: 24, ..FIND }], &mut noise);
        window.observed_ns.iter_mut().for_each(|ns| *ns = 4_000 * MS);
        all.push(window);
    }
    let (before, after) = all.split_at(30);
    let input = ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA };
    let found = find(&input, ComparisonKind::Block);
    let [change] = found.changes.as_slice() else { panic!("{found:#?}") };
    assert!(matches!(&change.what, ChangeKind::Application(app) if app.has_ended), "{change:#?}");
    assert_eq!(ways(&change.effects[0]), [ShapeWay::Stopped]);
}

#[test]
fn a_window_that_was_hardly_observed_is_no_silence() {
    let shop = Load { calls: 95, latency_ns: 20 * MS, ..FIND };
    let mut noise = Noise(41);
    let mut all: Vec<_> = (0..31).map(|at| window(at, &[shop], &mut noise)).collect();
    // The agent ended, and saw hardly anything of two further windows.
    for at in 31..33 {
        let start = Timestamp::from_unix(1_700_000_000 + at * WIDTH_S, 0);
        let mut last = HistoryWindow::new(start, Resolution::TenSeconds);
        last.observe(CollectorKind::Queries, 50 * MS);
        all.push(last);
    }
    let (before, after) = all.split_at(30);
    let found =
        find(&ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA }, ComparisonKind::Block);
    let is_end = |change: &HistoryChange| match &change.what {
        ChangeKind::Application(app) => app.has_ended,
        ChangeKind::Shape(shape) => shape.ways.contains(&ShapeWay::Stopped),
        ChangeKind::Server(_) => true,
        _ => false,
    };
    assert!(!found.changes.iter().any(is_end), "{found:#?}");
}

#[test]
fn a_process_that_the_kernel_killed_somewhere_slows_down_no_server() {
    let killed = Event { server: Endpoint::default(), ..event(301, EventKind::OutOfMemory, "") };
    for after in [[Load { calls: 15, ..FIND }, UPDATE], [Load { latency_ns: 8 * MS, ..FIND }, UPDATE]] {
        let found = compare(&[FIND, UPDATE], &after, std::slice::from_ref(&killed));
        let is_blamed = |change: &HistoryChange| {
            matches!(change.what, ChangeKind::Event(_)) && !change.effects.is_empty()
        };
        assert!(!found.changes.iter().any(is_blamed), "{found:#?}");
        assert!(found.changes.len() >= 2, "both are listed: {found:#?}");
        // That of the server's own control group may be.
        let own = [Event { server: SERVER, ..killed.clone() }];
        assert!(compare(&[FIND, UPDATE], &after, &own).changes.iter().any(is_blamed));
    }
}

#[test]
fn what_happened_to_another_server_slows_down_no_query_of_this_one() {
    let slow = [Load { latency_ns: 8 * MS, ..FIND }, UPDATE];
    let other = Endpoint::v4([0, 0, 0, 0], 27_018);
    for (kind, second, subject) in [
        (EventKind::IndexDrop, 301, "shop.carts"),
        (EventKind::SettingChange, 301, ""),
        (EventKind::CpuThrottled, 298, ""),
    ] {
        let own = event(second, kind, subject);
        let blamed = |events: &[Event]| {
            let found = compare(&[FIND, UPDATE], &slow, events);
            let slower = found.changes.iter().flat_map(|one| [one].into_iter().chain(&one.effects));
            let is_slower = |one: &&HistoryChange| matches!(one.what, ChangeKind::Shape(_));
            assert_eq!(slower.filter(is_slower).count(), 1, "{kind:?} {found:#?}");
            let causes = found.changes.into_iter().filter(|one| !one.effects.is_empty());
            causes.map(|one| one.server).collect::<Vec<_>>()
        };
        let of_other = Event { server: other, ..own.clone() };
        assert_eq!(blamed(std::slice::from_ref(&of_other)), [], "{kind:?}");
        // Nor where the server itself has a cause.
        assert_eq!(blamed(&[of_other, own]), [SERVER], "{kind:?}");
    }
}

#[test]
fn a_change_of_rate_begins_in_the_window_in_which_it_is_seen() {
    let mut noise = Noise(37);
    let windows: Vec<_> = (0..33)
        .map(|at| window(at, &[Load { calls: if at < 31 { 60 } else { 2 }, ..FIND }, UPDATE], &mut noise))
        .collect();
    let (before, after) = windows.split_at(30);
    let found =
        find(&ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA }, ComparisonKind::Block);
    let [less] = found.changes.as_slice() else { panic!("{found:#?}") };
    assert_eq!((ways(less), less.since), (&[ShapeWay::LessOften][..], windows[31].window.start));
}

/// Thirty-three windows: a report runs in the third one and in the thirty-first, and updates wait in the last three.
fn with_report(report: Load, waited: Option<Load>) -> HistoryChanges {
    let mut noise = Noise(17);
    let windows: Vec<_> = (0..33)
        .map(|at| {
            let mut loads = vec![FIND, UPDATE];
            loads.extend((at == 2 || at == 30).then_some(report));
            loads.extend(waited.filter(|_| at >= 30));
            window(at, &loads, &mut noise)
        })
        .collect();
    let (before, after) = windows.split_at(30);
    find(&ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA }, ComparisonKind::Block)
}

#[test]
fn a_shape_that_had_not_run_for_minutes_is_a_cause() {
    let report = Load { shape: 77, command: "aggregate", calls: 1, latency_ns: 20_000 * MS, ..FIND };
    // Together they cost more than what they wait for.
    let waited = Load { calls: 60, latency_ns: 1_000 * MS, ..UPDATE };
    let found = with_report(report, Some(waited));
    let first = &found.changes[0];
    assert_eq!(ways(first), [ShapeWay::Again], "{found:#?}");
    let ChangeKind::Shape(shape) = &first.what else { unreachable!() };
    assert_eq!(shape.shape.id, ShapeId(77));
    // From the middle of the third window to the begin of an operation that ends in the middle of the thirty-first.
    let pause_s = shape.pause_ns.unwrap() / (1_000 * MS);
    assert!((100..=280).contains(&pause_s), "{pause_s}");
    let [effect] = first.effects.as_slice() else { panic!("{first:#?}") };
    let ChangeKind::Shape(victim) = &effect.what else { panic!("{effect:#?}") };
    assert_eq!(victim.shape.id, ShapeId(2));
}

#[test]
fn a_report_that_runs_now_and_then_is_no_change_by_itself() {
    let report = Load { shape: 77, command: "aggregate", calls: 1, latency_ns: 8_000 * MS, ..FIND };
    let found = with_report(report, None);
    assert!(found.changes.iter().all(|change| !matches!(change.what, ChangeKind::Shape(_))), "{found:#?}");
}

#[test]
fn what_happened_to_the_server_itself_explains_it_before_what_happened_to_the_machine() {
    let memory = Event { server: Endpoint::default(), ..event(300, EventKind::OutOfMemory, "") };
    for kind in [EventKind::ServerCrash, EventKind::ServerUnreachable] {
        for events in [[memory.clone(), event(301, kind, "")], [event(301, kind, ""), memory.clone()]] {
            let found = compare(&[FIND, UPDATE], &[], &events);
            let with_effects: Vec<_> = found.changes.iter().filter(|one| !one.effects.is_empty()).collect();
            let [cause] = with_effects[..] else { panic!("{found:#?}") };
            let ChangeKind::Event(caused) = &cause.what else { panic!("{cause:#?}") };
            assert_eq!(caused[0].kind, kind);
        }
    }
    // Another server has no such event of its own.
    let found = compare(&[FIND, UPDATE], &[], &[memory]);
    assert!(found.changes.iter().any(|one| !one.effects.is_empty()), "{found:#?}");
}
