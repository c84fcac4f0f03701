//! Which moments changes belong to.

use sonar_core::changes::{ApplicationChange, ScanMoment, ShapeChange, ShapeFigures, apart};
use sonar_core::history::Span;

use super::*;

const WIDTH_NS: u64 = WIDTH_S * 1_000 * MS;

fn at(second: u64) -> Timestamp {
    Timestamp::from_unix(1_700_000_000 + second, 0)
}

fn change(second: u64, cost_ms: f64, what: ChangeKind) -> HistoryChange {
    HistoryChange { cost_ns: cost_ms * MS as f64, ..HistoryChange::new(SERVER, at(second), what) }
}

fn of_event(second: u64, kind: EventKind) -> HistoryChange {
    change(second, 0.0, ChangeKind::Event(vec![event(second, kind, "")]))
}

fn of_shape(second: u64, cost_ms: f64, (shape, way): (u64, ShapeWay)) -> HistoryChange {
    let what = ShapeChange {
        shape: Arc::new(ShapeInfo { id: ShapeId(shape), command: "find".into(), ..ShapeInfo::default() }),
        source: Source::Wire,
        ways: vec![way],
        before: ShapeFigures::default(),
        after: ShapeFigures::default(),
        applications: vec!["shop".into()],
        growth: None,
        pause_ns: None,
        split: None,
    };
    change(second, cost_ms, ChangeKind::Shape(Box::new(what)))
}

/// A moment of these windows.
fn moment(from: u64, to: u64, changes: Vec<HistoryChange>) -> ScanMoment {
    let span = Span { from: at(from), to: at(to) };
    let changes = HistoryChanges { changes, ..HistoryChanges::default() };
    ScanMoment { span, measured_ns: span.length_ns(), changes }
}

fn check(moments: &[ScanMoment]) {
    for pair in moments.windows(2) {
        assert!(pair[0].span.to <= pair[1].span.from, "{pair:#?}");
    }
    for moment in moments {
        let changes = &moment.changes.changes;
        for one in changes {
            assert!(moment.span.contains(one.since), "{moment:#?}");
            if let ChangeKind::Event(events) = &one.what {
                assert!(events.iter().all(|event| moment.span.contains(event.at)), "{moment:#?}");
            }
        }
        let costs: Vec<f64> = changes.iter().map(|one| one.cost_ns.abs()).collect();
        assert!(costs.windows(2).all(|pair| pair[0] >= pair[1]), "{moment:#?}");
    }
}

#[test]
fn an_incident_is_one_moment_whatever_windows_were_compared() {
    let slower = |second, cost, shape| of_shape(second, cost, (shape, ShapeWay::Slower));
    let found = apart(
        vec![
            moment(100, 130, vec![slower(100, 5.0, 1)]),
            moment(110, 140, vec![slower(110, 900.0, 2), of_event(119, EventKind::LogError)]),
            moment(120, 150, vec![slower(120, 7.0, 3)]),
            moment(130, 160, vec![slower(130, 2.0, 4)]),
            moment(200, 230, vec![slower(220, 1.0, 5)]),
        ],
        WIDTH_NS,
    );
    check(&found);
    let counts: Vec<usize> = found.iter().map(|moment| moment.changes.changes.len()).collect();
    assert_eq!(counts, [4, 1, 1], "{found:#?}");
    assert_eq!(found[0].measured_ns, 30 * 1_000 * MS);
}

#[test]
fn stages_of_one_thing_are_one_change_and_its_effects_are_not_told_again() {
    let stopped = || of_shape(119, -40.0, (7, ShapeWay::Stopped));
    let mut stop = of_event(121, EventKind::ServerStop);
    stop.effects.push(stopped());
    stop.cost_ns = -40.0 * MS as f64;
    let found = apart(
        vec![
            moment(100, 130, vec![stopped()]),
            moment(110, 140, vec![stop]),
            moment(140, 170, vec![of_event(141, EventKind::ServerStart)]),
        ],
        WIDTH_NS,
    );
    check(&found);
    let all: Vec<&HistoryChange> = found.iter().flat_map(|moment| &moment.changes.changes).collect();
    let shapes = all.iter().filter(|one| matches!(one.what, ChangeKind::Shape(_)));
    assert_eq!(shapes.count(), 0, "{found:#?}");
}

#[test]
fn an_application_that_ended_is_one_change_with_its_shapes() {
    let app = |name: &str, has_ended| ApplicationChange {
        name: name.into(),
        driver: <_>::default(),
        versions_before: Vec::new(),
        calls: 10,
        time_ns: 0.0,
        has_ended,
        pause_ns: None,
    };
    let stopped = |shape, second| of_shape(second, -9.0, (shape, ShapeWay::Stopped));
    let ended = |name| change(119, -3.0, ChangeKind::Application(app(name, true)));
    let moments = |name| {
        vec![
            moment(100, 130, vec![stopped(1, 118), stopped(2, 119)]),
            moment(110, 140, vec![ended(name), stopped(3, 119)]),
        ]
    };
    let found = apart(moments("shop"), WIDTH_NS);
    let [one] = found.as_slice() else { panic!("{found:#?}") };
    let [ended_change] = one.changes.changes.as_slice() else { panic!("{found:#?}") };
    assert_eq!(ended_change.effects.len(), 3);
    check(&found);
    // Another application's shapes are not.
    assert_eq!(apart(moments("other"), WIDTH_NS)[0].changes.changes.len(), 4);
}

#[test]
fn a_shape_is_told_once_whatever_neighbouring_windows_show_of_it() {
    let less = |second| of_shape(second, -3.0, (7, ShapeWay::LessOften));
    let mut crash = of_event(121, EventKind::ServerCrash);
    crash.effects.push(of_shape(119, -40.0, (7, ShapeWay::Stopped)));
    crash.cost_ns = -40.0 * MS as f64;
    let slower = of_shape(121, 9.0, (7, ShapeWay::Slower));
    let found =
        apart(vec![moment(100, 130, vec![less(115)]), moment(110, 140, vec![crash, slower])], WIDTH_NS);
    check(&found);
    let [one] = found.as_slice() else { panic!("{found:#?}") };
    let ways: Vec<_> = one.changes.changes.iter().skip(1).map(ways).collect();
    assert_eq!(ways, [[ShapeWay::Slower]], "that is another change: {found:#?}");
    let of_two = |costs: [f64; 2]| {
        let [first, second] = costs.map(|cost| of_shape(115, cost, (7, ShapeWay::LessOften)));
        let found = apart(vec![moment(100, 130, vec![first]), moment(110, 140, vec![second])], WIDTH_NS);
        found[0].changes.changes.iter().map(|one| one.cost_ns / MS as f64).collect::<Vec<_>>()
    };
    assert_eq!((of_two([-3.0, -8.0]), of_two([-8.0, -3.0])), (vec![-8.0], vec![-8.0]));
}

#[test]
fn the_end_of_a_shape_is_not_told_of_one_whose_operations_until_then_are_told_as_new() {
    let ways_of = |stopped_at, shape| {
        let new = HistoryChange { until: at(140), ..of_shape(118, 40.0, (7, ShapeWay::New)) };
        let stopped = of_shape(stopped_at, -20.0, (shape, ShapeWay::Stopped));
        let found = apart(vec![moment(110, 140, vec![new]), moment(130, 160, vec![stopped])], WIDTH_NS);
        check(&found);
        found.iter().flat_map(|moment| &moment.changes.changes).flat_map(ways).copied().collect::<Vec<_>>()
    };
    for stopped_at in [132, 140] {
        assert_eq!(ways_of(stopped_at, 7), [ShapeWay::New], "{stopped_at}");
    }
    // It stopped later, and another one stopped.
    assert_eq!(ways_of(141, 7), [ShapeWay::New, ShapeWay::Stopped]);
    assert_eq!(ways_of(132, 8), [ShapeWay::New, ShapeWay::Stopped]);
}

#[test]
fn a_new_application_is_told_with_the_storm_that_came_with_it() {
    let events = |storm, app| {
        let new = change(app, 0.0, ChangeKind::Event(vec![event(app, EventKind::NewApplication, "stormy")]));
        let found = apart(
            vec![
                moment(100, 130, vec![of_event(storm, EventKind::ConnectionStorm)]),
                moment(110, 140, vec![new]),
            ],
            WIDTH_NS,
        );
        check(&found);
        found.iter().map(|moment| moment.changes.changes.len()).collect::<Vec<_>>()
    };
    assert_eq!(events(112, 112), [1]);
    assert_eq!(events(112, 111), [1]);
    assert_eq!(events(105, 128), [1, 1]);
}

proptest! {
    #[test]
    fn moments_never_overlap_and_nothing_is_lost(
        spans in proptest::collection::vec((0u64..40, 0u64..30, 0u64..30, 0u64..100), 1..30),
    ) {
        let moments: Vec<_> = spans
            .iter()
            .enumerate()
            .map(|(number, &(start, first, second, cost))| {
                let from = 10 * start;
                let shape = of_shape(from + first, cost as f64, (number as u64, ShapeWay::Slower));
                let mut log = of_event(from + first.min(second), EventKind::LogRotation);
                if let ChangeKind::Event(events) = &mut log.what {
                    events.push(event(from + first.max(second), EventKind::LogRotation, ""));
                }
                moment(from, from + 30, vec![shape, log])
            })
            .collect();
        let found = apart(moments, WIDTH_NS);
        check(&found);
        let shapes = found.iter().flat_map(|moment| &moment.changes.changes);
        let shapes = shapes.filter(|one| matches!(one.what, ChangeKind::Shape(_)));
        prop_assert_eq!(shapes.count(), spans.len());
    }
}
