//! What changed between windows that are made up here, with known causes.

mod held;
mod listed;
mod machine;
mod moments;
mod new;
mod partly;
mod servers;
mod silence;

use std::sync::Arc;

use proptest::prelude::*;
use sonar_core::changes::{
    ALPHA, ChangeInput, ChangeKind, ComparisonKind, GrownTime, HistoryChange, HistoryChanges, Scan, ShapeWay,
    SplitChange, find,
};
use sonar_core::history::{
    CollectorKind, Event, EventKind, HistoryWindow, Resolution, SeriesKey, SeriesSubject,
};
use sonar_core::operation::ErrorCodes;
use sonar_core::testing;
use sonar_core::time_split::{FileTotal, TimePart, WaitTotal};
use sonar_core::{
    Application, Class, Endpoint, Execution, Identity, Operation, Outcome, Record, Row, ShapeId, ShapeInfo,
    Source, Timestamp,
};

const SERVER: Endpoint = Endpoint::v4([0, 0, 0, 0], 27_017);
const MS: u64 = 1_000_000;
const WIDTH_S: u64 = 10;
/// An application whose connections were there before the capture.
const JOINED_LATE: (&str, &str) = ("", "?");

/// A workload: what is called in each window.
#[derive(Clone, Copy, Debug)]
struct Load {
    shape: u64,
    collection: &'static str,
    command: &'static str,
    app: (&'static str, &'static str),
    calls: u64,
    latency_ns: u64,
    error: Option<i32>,
    /// The plan in the log, of each operation.
    plan: &'static str,
    /// The text of the shape; empty for one of its own.
    text: &'static str,
}

const FIND: Load = Load {
    shape: 1,
    collection: "carts",
    command: "find",
    app: ("shop", "4.7"),
    calls: 60,
    latency_ns: MS,
    error: None,
    plan: "",
    text: "",
};
const UPDATE: Load = Load { shape: 2, collection: "orders", command: "update", ..FIND };

/// Numbers that look random, the same each time.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / (1u64 << 31) as f64
    }
}

/// An operation that has no time yet, on [`SERVER`].
fn operation<'a>(shape: &'a Arc<ShapeInfo>, app: &'a Arc<Application>) -> Operation<'a> {
    Operation { server: SERVER, ..testing::operation(shape, app) }
}

/// The window number `at`, with these loads; latencies vary around the given one.
fn window(at: u64, loads: &[Load], noise: &mut Noise) -> HistoryWindow {
    let start = Timestamp::from_unix(1_700_000_000 + at * WIDTH_S, 0);
    let mut window = HistoryWindow::new(start, Resolution::TenSeconds);
    for collector in
        [CollectorKind::Queries, CollectorKind::Log, CollectorKind::Internals, CollectorKind::Machine]
    {
        window.observe(collector, WIDTH_S * 1_000 * MS);
    }
    for load in loads {
        let shape = Arc::new(ShapeInfo {
            id: ShapeId(load.shape),
            command: load.command.into(),
            database: "shop".into(),
            collection: load.collection.into(),
            typed: match load.text {
                "" => format!("{{f{}: ?number}}", load.shape).into(),
                text => text.into(),
            },
            ..ShapeInfo::default()
        });
        let app = Arc::new(Application {
            name: load.app.0.into(),
            driver: "driver".into(),
            driver_version: load.app.1.into(),
            joined_late: load.app == JOINED_LATE,
        });
        // Some more, some less.
        let calls = (load.calls as f64 * (0.8 + 0.4 * noise.next())).round() as u64;
        for number in 0..calls {
            let end = start.plus_ns(WIDTH_S * 1_000 * MS * (2 * number + 1) / (2 * calls));
            let latency = load.latency_ns as f64 * (0.5 - 1.0 * noise.next().max(1e-9).ln());
            let codes = [(load.error.unwrap_or(0), 1)];
            let operation = Operation {
                start: end,
                end,
                latency_ns: Some(latency as u64),
                command: load.command,
                ordered_id: ShapeId(load.shape),
                outcome: match load.error {
                    Some(_) => Outcome::Failed(ErrorCodes { codes: &codes }),
                    None => Outcome::Ok,
                },
                ..operation(&shape, &app)
            };
            let end = window.window.end;
            window.window.record(&operation);
            window.window.end = end;
            if !load.plan.is_empty() {
                let execution = Execution { plan: load.plan, docs_examined: Some(9), ..Execution::default() };
                let record = Record::server(Source::Log, &operation, &execution).read_as(Identity::Exact, 1);
                window.window.shapes.record(&record);
            }
        }
    }
    window
}

/// Thirty windows of one load, then three of another.
fn compare(before: &[Load], after: &[Load], events: &[Event]) -> HistoryChanges {
    let mut noise = Noise(42);
    let old: Vec<_> = (0..30).map(|at| window(at, before, &mut noise)).collect();
    let new: Vec<_> = (30..33).map(|at| window(at, after, &mut noise)).collect();
    find(&ChangeInput { before: &old, after: &new, later: &[], events, alpha: ALPHA }, ComparisonKind::Moment)
}

fn event(second: u64, kind: EventKind, subject: &str) -> Event {
    Event::new(Timestamp::from_unix(1_700_000_000 + second, 0), kind, SERVER, "").about(subject)
}

fn ways(change: &HistoryChange) -> &[ShapeWay] {
    match &change.what {
        ChangeKind::Shape(shape) => &shape.ways,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_steady_load_has_no_changes() {
    for seed in 0..40 {
        let mut noise = Noise(seed);
        let all: Vec<_> = (0..40).map(|at| window(at, &[FIND, UPDATE], &mut noise)).collect();
        for cut in [5, 12, 30] {
            let (before, after) = all.split_at(cut);
            let input = ChangeInput { before, after: &after[..3], later: &[], events: &[], alpha: ALPHA };
            let changes = find(&input, ComparisonKind::Block);
            assert!(changes.is_empty(), "seed {seed}, cut {cut}: {changes:#?}");
        }
    }
}

#[test]
fn a_dropped_index_is_named_before_its_effect() {
    let slow = Load { latency_ns: 8 * MS, plan: "COLLSCAN", ..FIND };
    let dropped = event(303, EventKind::IndexDrop, "shop.carts");
    // It costs more, but has nothing to do with that collection.
    let other = event(304, EventKind::IndexDrop, "shop.users");
    let found = compare(&[FIND, UPDATE], &[slow, UPDATE], &[dropped.clone(), other]);
    let first = &found.changes[0];
    assert!(matches!(&first.what, ChangeKind::Event(events) if events[..] == [dropped]), "{found:#?}");
    let [effect] = first.effects.as_slice() else { panic!("{first:#?}") };
    assert_eq!(ways(effect), [ShapeWay::Slower]);
    // 60 calls in each of three windows, which took 1.5 ms more than 1.5 ms before: 7 × 1.5 ms.
    let expected = 180.0 * 7.0 * 1.5 * MS as f64;
    assert!((effect.cost_ns / expected - 1.0).abs() < 0.3, "{} {expected}", effect.cost_ns);
    assert_eq!(first.cost_ns, effect.cost_ns);
    let ChangeKind::Shape(shape) = &effect.what else { unreachable!() };
    assert_eq!(&*shape.after.plans[0].0, "COLLSCAN");
    assert_eq!(found.changes.len(), 2, "and the other drop, without an effect");
}

#[test]
fn a_few_slow_operations_are_enough_where_all_are() {
    // Three in ten seconds. What they wait for is not known to be something that stalls a few of many.
    let seldom = Load { calls: 3, ..FIND };
    let slow = Load { latency_ns: 300 * MS, ..seldom };
    let dropped = event(303, EventKind::IndexDrop, "shop.carts");
    let found = compare(&[seldom, UPDATE], &[slow, UPDATE], std::slice::from_ref(&dropped));
    let [first] = found.changes.as_slice() else { panic!("{found:#?}") };
    assert!(matches!(&first.what, ChangeKind::Event(events) if events[..] == [dropped]), "{found:#?}");
    assert_eq!(ways(&first.effects[0]), [ShapeWay::Slower]);
    for seed in 0..200 {
        let mut noise = Noise(seed);
        let all: Vec<_> = (0..63).map(|at| window(at, &[seldom, UPDATE], &mut noise)).collect();
        let (before, after) = all.split_at(60);
        let input = ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA };
        let changes = find(&input, ComparisonKind::Moment);
        assert!(changes.is_empty(), "seed {seed}: {changes:#?}");
    }
}

#[test]
fn new_and_stopped_shapes_are_found_and_ranked_by_cost() {
    let report = Load { shape: 3, command: "aggregate", latency_ns: 200 * MS, calls: 20, ..FIND };
    let found = compare(&[FIND, UPDATE], &[FIND, report], &[]);
    let [first, second] = found.changes.as_slice() else { panic!("{found:#?}") };
    assert_eq!((ways(first), ways(second)), (&[ShapeWay::New][..], &[ShapeWay::Stopped][..]));
    assert!(first.cost_ns > 10.0 * second.cost_ns.abs() && second.cost_ns < 0.0);
    // The middle of the first part of the window.
    assert!(first.since > Timestamp::from_unix(1_700_000_300, 0));
}

#[test]
fn a_shape_that_is_seldom_used_is_not_new() {
    let seldom = Load { shape: 3, calls: 1, ..FIND };
    assert!(compare(&[FIND], &[FIND, seldom], &[]).is_empty());
}

#[test]
fn a_few_operations_that_waited_for_a_lock_are_found() {
    let waited = Load { calls: 2, latency_ns: 4_000 * MS, ..UPDATE };
    let locked = event(302, EventKind::WritesLock, "");
    let found = compare(&[FIND, UPDATE], &[FIND, UPDATE, waited], &[locked]);
    let [first] = found.changes.as_slice() else { panic!("{found:#?}") };
    assert!(matches!(&first.what, ChangeKind::Event(_)));
    assert_eq!(ways(&first.effects[0])[0], ShapeWay::Stalled);
}

#[test]
fn errors_that_begin_and_end_are_found() {
    let failing = Load { error: Some(11_000), calls: 10, ..UPDATE };
    let found = compare(&[FIND, UPDATE], &[FIND, UPDATE, failing], &[]);
    let [begun] = found.changes.as_slice() else { panic!("{found:#?}") };
    let ChangeKind::Errors(errors) = &begun.what else { panic!("{begun:#?}") };
    assert_eq!((errors.code, &*errors.namespace, errors.counts[0].0), (11_000, "shop.orders", 0));
    assert!(errors.counts[1].0 >= 20);

    let mut noise = Noise(7);
    let loads = [FIND, UPDATE, failing];
    let old: Vec<_> =
        (0..30).map(|at| window(at, &loads[..if at < 27 { 2 } else { 3 }], &mut noise)).collect();
    let new: Vec<_> = (30..33).map(|at| window(at, &[FIND, UPDATE], &mut noise)).collect();
    let found = find(
        &ChangeInput { before: &old, after: &new, later: &[], events: &[], alpha: ALPHA },
        ComparisonKind::Block,
    );
    let is_end = |change: &HistoryChange| matches!(&change.what, ChangeKind::Errors(errors) if errors.counts[1].0 == 0);
    assert!(found.changes.iter().any(is_end), "{found:#?}");
}

#[test]
fn a_new_application_comes_with_its_shapes_and_a_new_driver_by_itself() {
    let pricing = Load { shape: 9, app: ("pricing", "1.0"), calls: 30, latency_ns: 20 * MS, ..FIND };
    let found = compare(&[FIND], &[FIND, pricing], &[]);
    let [app] = found.changes.as_slice() else { panic!("{found:#?}") };
    assert!(matches!(&app.what, ChangeKind::Application(app) if &*app.name == "pricing"));
    assert_eq!(ways(&app.effects[0]), [ShapeWay::New]);

    let found = compare(&[FIND], &[Load { app: ("shop", "4.8"), ..FIND }], &[]);
    let [app] = found.changes.as_slice() else { panic!("{found:#?}") };
    let ChangeKind::Application(app) = &app.what else { panic!("{app:#?}") };
    assert_eq!((&*app.driver.1, &app.versions_before[..]), ("4.8", &["4.7".into()][..]));
}

#[test]
fn another_plan_in_the_log_is_a_change() {
    let logged = |plan| [Load { plan, ..FIND }];
    let found = compare(&logged("IXSCAN { a: 1 }"), &logged("IXSCAN { b: 1 }"), &[]);
    assert_eq!(ways(&found.changes[0]), [ShapeWay::Plan]);
    assert!(compare(&logged("IXSCAN { a: 1 }"), &logged("IXSCAN { a: 1 }"), &[]).is_empty());
}

#[test]
fn an_administrators_command_on_the_wire_is_an_event() {
    let command = |command| Load { command, shape: 50, calls: 1, ..FIND };
    let found = compare(&[FIND], &[FIND, command("setParameter")], &[]);
    let ChangeKind::Event(events) = &found.changes[0].what else { panic!("{found:#?}") };
    assert_eq!(events[0].kind, EventKind::SettingChange);
    // A tool that sets the profiler all the time.
    let sets = command("profile");
    assert!(compare(&[FIND, sets], &[FIND, sets], &[]).is_empty());
}

#[test]
fn commands_that_only_ask_and_those_that_failed_are_no_changes() {
    let command = |command, text| Load { command, text, shape: 50, calls: 1, ..FIND };
    let slow = Load { latency_ns: 8 * MS, ..FIND };
    for harmless in [
        command("profile", "{profile: -1}"),
        command("fsync", "{}"),
        Load { error: Some(13), ..command("setParameter", "{}") },
    ] {
        let found = compare(&[FIND], &[slow, harmless], &[]);
        let is_event = |change: &HistoryChange| matches!(change.what, ChangeKind::Event(_));
        assert!(!found.changes.iter().any(is_event), "{harmless:?} {found:#?}");
        let is_shape = |change: &&HistoryChange| matches!(change.what, ChangeKind::Shape(_));
        assert_eq!(found.changes.iter().filter(is_shape).count(), 1, "{harmless:?} {found:#?}");
    }
}

#[test]
fn commands_whose_arguments_change_something_are_events() {
    let command = |command, text| Load { command, text, shape: 50, calls: 1, ..FIND };
    let lock = command("fsync", "{lock: true}");
    let unlock = Load { shape: 51, ..command("fsyncUnlock", "{}") };
    let (level, slow) = (command("profile", "{}"), command("profile", "{profile: -1, slowms: ?number}"));
    let asks = Load { shape: 52, ..command("profile", "{profile: -1}") };
    let off = Load { shape: 53, ..command("profile", "{profile: 0}") };
    for (commands, expected) in [
        (&[lock, unlock][..], 2),
        (&[lock], 1),
        (&[level, asks], 1),
        (&[slow], 1),
        (&[asks], 0),
        (&[level, off], 2),
    ] {
        let found = compare(&[FIND], &[&[FIND][..], commands].concat(), &[]);
        let events = found.changes.iter().flat_map(|change| match &change.what {
            ChangeKind::Event(events) => events.clone(),
            _ => Vec::new(),
        });
        let texts: std::collections::BTreeSet<_> = events.map(|event| event.text).collect();
        assert_eq!(texts.len(), expected, "{found:#?}");
    }
}

/// Whether an event at this second, with this text, is shown as the cause of what changes 300 s after the start.
fn is_blamed(kind: EventKind, (second, text): (u64, &str), after: &[Load]) -> bool {
    let at = Timestamp::from_unix(1_700_000_000 + second, 0);
    let event = Event::new(at, kind, SERVER, text);
    let found = compare(&[FIND, UPDATE], after, &[event]);
    let mut causes = found.changes.iter().filter(|change| matches!(change.what, ChangeKind::Event(_)));
    causes.any(|cause| !cause.effects.is_empty())
}

#[test]
fn a_cause_can_cause_its_effect_and_comes_shortly_before_it() {
    let slow = [Load { latency_ns: 8 * MS, ..FIND }, UPDATE];
    let (stopped, often) = ([UPDATE], [Load { calls: 300, ..FIND }, UPDATE]);
    for (kind, at, after, expected) in [
        (EventKind::ServerStart, (301, ""), &slow[..], true),
        (EventKind::ServerStart, (301, ""), &stopped, false),
        (EventKind::ServerStop, (301, ""), &stopped, true),
        (EventKind::ServerStop, (301, ""), &slow, false),
        // The last of six operations a second was at 299.9 s: the next one was due long before.
        (EventKind::StateChange, (300, ""), &stopped, true),
        (EventKind::StateChange, (305, ""), &stopped, false),
        (EventKind::ServerCrash, (305, ""), &stopped, true),
        (EventKind::LongCheckpoint, (301, ""), &slow, true),
        (EventKind::LongCheckpoint, (301, ""), &often, false),
        (EventKind::CpuThrottled, (298, ""), &slow, true),
        (EventKind::CpuThrottled, (298, ""), &often, false),
        (EventKind::ConnectionStorm, (301, ""), &often, true),
        (EventKind::ProfilerChange, (301, "level 2, was 0"), &slow, true),
        (EventKind::ProfilerChange, (301, "level 0, was 2"), &slow, false),
        (EventKind::ProfilerChange, (301, "command profile, level 0"), &slow, false),
        (EventKind::SettingChange, (301, ""), &slow, true),
        // After the window in which it began, and more than three windows before.
        (EventKind::SettingChange, (312, ""), &slow, false),
        (EventKind::SettingChange, (269, ""), &slow, false),
    ] {
        assert_eq!(is_blamed(kind, at, after), expected, "{kind:?} {at:?} {after:?}");
    }
}

#[test]
fn what_was_last_seen_before_a_collection_was_dropped_did_not_stop_because_of_that() {
    // Six operations a second, the last one some 83 milliseconds before the end of the window.
    for (milliseconds, expected) in [(299_000, true), (299_990, false), (301_000, false)] {
        let at = Timestamp::from_unix_ns(1_700_000_000_000 * MS + milliseconds * MS);
        let dropped = Event::new(at, EventKind::CollectionDrop, SERVER, "").about("shop.carts");
        let found = compare(&[FIND, UPDATE], &[UPDATE], &[dropped]);
        let effects: usize = found.changes.iter().map(|change| change.effects.len()).sum();
        assert_eq!(effects, usize::from(expected), "{milliseconds} {found:#?}");
        let [last] = found
            .changes
            .iter()
            .filter(|one| matches!(one.what, ChangeKind::Shape(_)))
            .collect::<Vec<_>>()[..]
        else {
            assert!(expected, "{found:#?}");
            continue;
        };
        assert!(last.since < at);
    }
}

#[test]
fn what_happened_more_than_an_hour_before_is_no_cause() {
    let few = [Load { calls: 2, latency_ns: 20 * MS, ..FIND }, Load { calls: 2, ..UPDATE }];
    let mut noise = Noise(11);
    // The find stops 57 minutes after the start of the last three hours.
    let mut hour = |number: u64| {
        // Hours begin 2,800 s after the first window.
        let mut hour =
            HistoryWindow::new(Timestamp::from_unix(1_700_002_800 + number * 3_600, 0), Resolution::Hour);
        for at in 0..360 {
            let has_stopped = number * 360 + at >= 12 * 360 + 342;
            let part = window(280 + number * 360 + at, &few[usize::from(has_stopped)..], &mut noise);
            hour.merge(&part);
        }
        hour
    };
    let windows: Vec<_> = (0..15).map(&mut hour).collect();
    let (before, after) = windows.split_at(12);
    let end = windows[12].window.start;
    let events = |minutes: u64| {
        let at = Timestamp::from_unix_ns(end.unix_ns() + minutes * 60_000 * MS - 20 * 60_000 * MS);
        [Event::new(at, EventKind::ServerStop, SERVER, "")]
    };
    let effects = |events: &[Event]| {
        let found =
            find(&ChangeInput { before, after, later: &[], events, alpha: ALPHA }, ComparisonKind::Block);
        let shapes: usize = found.changes.iter().map(|change| change.effects.len()).sum();
        assert!(found.changes.len() + shapes >= 1, "{found:#?}");
        shapes
    };
    assert_eq!(effects(&events(0)), 0, "77 minutes before");
}

/// Where the time of an operation goes: parts with their average milliseconds.
type Spent = [(TimePart, f64)];

/// Compares 30 windows of normal operations to three of slower ones. Each window knows where the time of `divided`
/// operations went.
fn compare_splits((before, after): (&Spent, &Spent), divided: u64, seed: u64) -> Option<Box<SplitChange>> {
    let mut noise = Noise(seed);
    let slow = Load { latency_ns: 8 * MS, ..FIND };
    let windows: Vec<_> = (0..33)
        .map(|at| {
            let (load, spent) = if at < 30 { (FIND, before) } else { (slow, after) };
            let mut window = window(at, &[load], &mut noise);
            let mut row = Row::new(window.window.shapes.rows()[0].subject.clone(), Class::User);
            row.server = SERVER;
            let split = row.split.get_or_insert_default();
            split.operations = divided;
            for _ in 0..divided {
                for &(part, ms) in spent {
                    let ns = (ms * MS as f64 * (0.5 - noise.next().max(1e-9).ln())) as u64;
                    split.split[part] += ns;
                    split.duration_ns += ns;
                    match part {
                        TimePart::Futex => {
                            let class =
                                ["execution ticket", "cache eviction"][usize::from(noise.next() < 0.2)];
                            split.add_wait(part, &class.into(), WaitTotal { waits: 1, wait_ns: ns });
                        }
                        TimePart::Read => {
                            let file = ["shop.carts", "shop.carts user_1"][usize::from(noise.next() < 0.1)];
                            split.add_file(&file.into(), FileTotal { reads: 1, bytes: 4_096, wait_ns: ns });
                        }
                        _ => {}
                    }
                }
            }
            window.window.shapes.add_owned(row);
            window
        })
        .collect();
    let (before, after) = windows.split_at(30);
    let found =
        find(&ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA }, ComparisonKind::Block);
    let [change] = found.changes.as_slice() else { panic!("{found:#?}") };
    assert_eq!(ways(change), [ShapeWay::Slower]);
    let ChangeKind::Shape(shape) = &change.what else { unreachable!() };
    shape.split.clone()
}

#[test]
fn what_a_slower_query_now_waits_for_is_named() {
    use TimePart::{Cpu, Futex, Read, RunQueue};
    let usual: &Spent = &[(Cpu, 1.0), (Read, 0.1), (RunQueue, 0.05)];
    let grown = |after: &Spent| -> Vec<(GrownTime, Option<Arc<str>>)> {
        let change = compare_splits((usual, after), 40, 3).unwrap();
        assert_eq!(
            (change.before.operations, change.after.operations),
            (120, 120),
            "right before it, as many windows"
        );
        change.grown.iter().map(|one| (one.what, one.file.clone().or(one.class.clone()))).collect()
    };
    let reads = [(Cpu, 1.0), (Read, 7.0), (RunQueue, 0.05)];
    assert_eq!(grown(&reads), [(GrownTime::Part(Read), Some("shop.carts".into()))]);
    let ticket = [(Cpu, 1.0), (Read, 0.1), (Futex, 7.0)];
    assert_eq!(grown(&ticket), [(GrownTime::Part(Futex), Some("execution ticket".into()))]);
    let busy = [(Cpu, 1.0), (Read, 0.1), (RunQueue, 3.0), (Futex, 4.0)];
    assert_eq!(
        grown(&busy).iter().map(|one| one.0).collect::<Vec<_>>(),
        [Futex, RunQueue].map(GrownTime::Part)
    );
    // Processor time doubled, but that is a small share of the growth.
    let mostly = [(Cpu, 2.0), (Read, 9.0)];
    assert_eq!(grown(&mostly).len(), 1);
}

#[test]
fn a_split_of_few_operations_says_nothing_and_one_by_chance_neither() {
    let spent = [(TimePart::Cpu, 1.0), (TimePart::Read, 0.5), (TimePart::Send, 0.2)];
    assert_eq!(compare_splits((&spent, &[(TimePart::Read, 9.0)]), 6, 1), None, "18 are not enough");
    // None of the slow operations happens to be in the sample.
    for seed in 0..40 {
        let change = compare_splits((&spent, &spent), 15, seed).unwrap();
        assert_eq!(change.grown, [], "seed {seed}");
    }
}

/// Windows with one series, and a load that does not change.
fn with_series(key: &SeriesKey, values: impl Fn(u64) -> f64) -> Vec<HistoryWindow> {
    let mut noise = Noise(5);
    let windows = (0..33).map(|at| {
        let mut window = window(at, &[FIND], &mut noise);
        let middle = window.window.start.plus_ns(5_000 * MS);
        window.sample(key, middle, values(at), 10.0);
        window
    });
    windows.collect()
}

#[test]
fn a_level_that_leaves_its_range_is_context_and_judged() {
    let key = |metric: &str| SeriesKey {
        subject: SeriesSubject::Server,
        server: SERVER,
        name: "".into(),
        metric: metric.into(),
    };
    let found = |windows: &[HistoryWindow]| {
        let (before, after) = windows.split_at(30);
        find(&ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA }, ComparisonKind::Block)
    };
    // Dirty cache: amber from 5.5 %, red from 20 %.
    let high = with_series(&key("cache.dirty"), |at| if at < 30 { 3.0 + (at % 3) as f64 } else { 30.0 });
    let changes = found(&high);
    assert!(changes.changes.is_empty());
    let [context] = changes.context.as_slice() else { panic!("{changes:#?}") };
    let ChangeKind::Series(series) = &context.what else { panic!() };
    assert_eq!((series.before, series.after), (4.0, 30.0));
    assert_eq!(series.judged.unwrap().1.map(|verdict| verdict.name()), ["ok", "red"]);
    let steady = with_series(&key("cache.dirty"), |at| 3.0 + (at % 3) as f64);
    assert!(found(&steady).is_empty());
}

#[test]
fn a_level_that_moved_earlier_is_no_context() {
    let key = SeriesKey {
        subject: SeriesSubject::Process,
        server: SERVER,
        name: "".into(),
        metric: "process.threads".into(),
    };
    for (moved_at, is_context) in [(30, true), (29, true), (26, false)] {
        let windows = with_series(&key, |at| if at < moved_at { 18.0 } else { 24.0 });
        let (before, after) = windows.split_at(30);
        let input = ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA };
        let found = find(&input, ComparisonKind::Block);
        assert_eq!(!found.context.is_empty(), is_context, "moved in window {moved_at}: {found:#?}");
    }
}

fn size_of(subject: SeriesSubject, name: &str, metric: &str) -> SeriesKey {
    SeriesKey { subject, server: SERVER, name: name.into(), metric: metric.into() }
}

fn size_of_carts() -> SeriesKey {
    size_of(SeriesSubject::Collection, "shop.carts", "collection.size_bytes")
}

/// Sizes are measured in some windows only.
fn measured(windows: &mut [HistoryWindow], key: &SeriesKey, sizes: &[(usize, f64)]) {
    for (at, size) in sizes {
        let start = windows[*at].window.start;
        windows[*at].sample(key, start, *size, 10.0);
    }
}

#[test]
fn a_collection_that_grew_is_a_change() {
    let windows = with_series(&size_of_carts(), |at| if at < 16 { 100e6 } else { 150e6 });
    let (before, after) = (&windows[..10], &windows[20..]);
    let found =
        find(&ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA }, ComparisonKind::Block);
    let [grown] = found.changes.as_slice() else { panic!("{found:#?}") };
    let ChangeKind::Growth(growth) = &grown.what else { panic!() };
    assert_eq!((growth.grown.before, growth.grown.after), (100e6, 150e6));
    // Steady, shrinking and small collections are none.
    for sizes in [(100e6, 105e6), (150e6, 100e6), (1e6, 9e6)] {
        let windows = with_series(&size_of_carts(), |at| if at < 16 { sizes.0 } else { sizes.1 });
        let (before, after) = (&windows[..10], &windows[20..]);
        assert!(
            find(
                &ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA },
                ComparisonKind::Block
            )
            .is_empty()
        );
    }
}

#[test]
fn a_collection_and_its_indexes_grow_together() {
    let mut windows: Vec<_> = (0..40).map(|at| window(at, &[FIND, UPDATE], &mut Noise(at))).collect();
    let (collection, index) = (SeriesSubject::Collection, SeriesSubject::Index);
    for (key, old, new) in [
        (size_of_carts(), 100e6, 200e6),
        (size_of(collection, "shop.carts", "collection.documents"), 1e6, 2e6),
        (size_of(collection, "shop.carts", "collection.storage_bytes"), 50e6, 51e6),
        (size_of(collection, "shop.carts", "collection.reusable_bytes"), 20e6, 90e6),
        (size_of(index, "shop.carts user_1", "index.size_bytes"), 1e6, 3e6),
        (size_of(index, "shop.orders at_1", "index.size_bytes"), 20e6, 30e6),
    ] {
        measured(&mut windows, &key, &[(3, old), (30, new)]);
    }
    let (before, rest) = windows.split_at(20);
    let (after, later) = rest.split_at(3);
    // It is measured again only after the span.
    let input = ChangeInput { before, after, later, events: &[], alpha: ALPHA };
    let found = find(&input, ComparisonKind::Moment);
    let names: Vec<_> = found
        .changes
        .iter()
        .map(|change| match &change.what {
            ChangeKind::Growth(growth) => (
                &*growth.grown.key.name,
                growth.parts.iter().map(|part| (&*part.key.metric, part.after)).collect::<Vec<_>>(),
            ),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        names,
        [
            ("shop.carts", vec![("collection.documents", 2e6), ("index.size_bytes", 3e6)]),
            ("shop.orders at_1", vec![]),
        ]
    );
    assert!(
        find(&ChangeInput { later: &[], ..input }, ComparisonKind::Moment).is_empty(),
        "nothing was measured"
    );
}

#[test]
fn a_collection_that_grew_explains_its_slower_queries() {
    let slow = Load { latency_ns: 10 * MS, ..FIND };
    let mut noise = Noise(7);
    let mut windows: Vec<_> = (0..23)
        .map(|at| window(at, &if at < 20 { [FIND, UPDATE] } else { [slow, UPDATE] }, &mut noise))
        .collect();
    measured(&mut windows, &size_of_carts(), &[(3, 100e6), (21, 900e6)]);
    let (before, after) = windows.split_at(20);
    let input = ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA };
    let found = find(&input, ComparisonKind::Moment);
    let [grown] = found.changes.as_slice() else { panic!("{found:#?}") };
    assert!(matches!(&grown.what, ChangeKind::Growth(_)), "{grown:#?}");
    assert_eq!(grown.effects.len(), 1);
    assert_eq!(ways(&grown.effects[0])[0], ShapeWay::Slower);
    assert!(grown.cost_ns > 0.0 && grown.cost_ns == grown.effects[0].cost_ns);
}

#[test]
fn queries_that_became_faster_save_no_more_than_they_took() {
    // An index is there again: clients that waited for a second each time ask twice as often.
    let slow = Load { latency_ns: 1_000 * MS, calls: 30, ..FIND };
    let mut noise = Noise(7);
    let load = |at| if (14..20).contains(&at) { [slow, UPDATE] } else { [FIND, UPDATE] };
    let windows: Vec<_> = (0..23).map(|at| window(at, &load(at), &mut noise)).collect();
    let (before, after) = windows.split_at(20);
    let input = ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA };
    let found = find(&input, ComparisonKind::Moment);
    let [faster] = found.changes.as_slice() else { panic!("{found:#?}") };
    assert_eq!(ways(faster), [ShapeWay::Faster]);
    let ChangeKind::Shape(change) = &faster.what else { panic!("{faster:#?}") };
    let took = change.before.time_ns;
    assert!(faster.cost_ns < -0.5 * took && faster.cost_ns >= -took, "{took} {faster:#?}");
}

#[test]
fn a_scan_reports_growth_once() {
    let mut windows: Vec<_> = (0..120).map(|at| window(at, &[FIND, UPDATE], &mut Noise(at))).collect();
    measured(&mut windows, &size_of_carts(), &[(5, 100e6), (35, 100e6), (65, 200e6), (95, 200e6)]);
    let mut scan = Scan::new(&[], ALPHA, windows.len());
    windows.into_iter().for_each(|window| scan.push(window));
    let moments = scan.finish();
    let grown = moments.iter().flat_map(|moment| &moment.changes.changes);
    assert_eq!(
        grown.filter(|change| matches!(change.what, ChangeKind::Growth(_))).count(),
        1,
        "{moments:#?}"
    );
}

#[test]
fn a_scan_finds_each_moment_once() {
    let slow = Load { latency_ns: 10 * MS, ..FIND };
    let mut noise = Noise(3);
    let mut scan = Scan::new(&[], ALPHA, 80);
    for at in 0..80 {
        let loads = if (40..60).contains(&at) { [slow, UPDATE] } else { [FIND, UPDATE] };
        scan.push(window(at, &loads, &mut noise));
    }
    let moments = scan.finish();
    let found: Vec<_> = moments
        .iter()
        .flat_map(|moment| &moment.changes.changes)
        .map(|change| ((change.since.unix_ns() / 1_000 / MS - 1_700_000_000) / WIDTH_S, ways(change)[0]))
        .collect();
    assert_eq!(found, [(40, ShapeWay::Slower), (60, ShapeWay::Faster)], "{moments:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_costliest_change_comes_first(factors in proptest::collection::vec(3u64..30, 2..5), seed in 0u64..1_000) {
        let loads = |factor: &dyn Fn(usize) -> u64| -> Vec<Load> {
            (0..factors.len())
                .map(|at| Load { shape: at as u64 + 1, latency_ns: MS * factor(at), ..FIND })
                .collect()
        };
        let mut noise = Noise(seed);
        let old: Vec<_> = (0..12).map(|at| window(at, &loads(&|_| 1), &mut noise)).collect();
        let new: Vec<_> = (12..15).map(|at| window(at, &loads(&|at| factors[at]), &mut noise)).collect();
        let found = find(&ChangeInput { before: &old, after: &new, later: &[], events: &[], alpha: ALPHA }, ComparisonKind::Block);
        prop_assert_eq!(found.changes.len(), factors.len());
        let costs: Vec<f64> = found.changes.iter().map(|change| change.cost_ns).collect();
        prop_assert!(costs.windows(2).all(|pair| pair[0] >= pair[1]), "{:?}", costs);
        prop_assert!(found.changes.iter().all(|change| ways(change)[0] == ShapeWay::Slower));
    }
}
