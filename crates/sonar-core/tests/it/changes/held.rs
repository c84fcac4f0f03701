//! Operations that a lock of all writes held, however slow they were before.

use sonar_core::Role;
use sonar_core::changes::{Scan, ScanMoment};
use sonar_core::operation::InFlightOperations;

use super::*;

const S: u64 = 1_000 * MS;
/// Six clients wait until the lock ends.
const WAITED: Load = Load { calls: 6, latency_ns: 0, ..UPDATE };

fn lock(second: u64, text: &str) -> Event {
    Event::new(Timestamp::from_unix(1_700_000_000 + second, 0), EventKind::WritesLock, SERVER, text)
}

fn locked(from: u64, to: u64) -> [Event; 2] {
    [lock(from, "writes were locked by fsyncLock"), lock(to, "writes were unlocked by fsyncUnlock")]
}

/// Adds updates that took so long and ended at this second.
fn add(windows: &mut [HistoryWindow], second: u64, (calls, latency_ns): (u64, u64)) {
    let mut noise = Noise(1);
    let at = Timestamp::from_unix(1_700_000_000 + second, 0);
    let place = windows.iter_mut().find(|one| one.window.start <= at && at < one.window.end).unwrap();
    // As many as that, and each of them takes exactly so long.
    for _ in 0..calls {
        let mut other = window(0, &[], &mut noise);
        let shape = place.window.shapes.rows().iter().find(|row| &*row.shape().command == "update").unwrap();
        let (shape, app) = (shape.shape().clone(), Arc::new(Application::default()));
        let operation = Operation {
            end: at,
            start: at,
            latency_ns: Some(latency_ns),
            command: "update",
            ordered_id: ShapeId(WAITED.shape),
            ..operation(&shape, &app)
        };
        other.window.record(&operation);
        place.window.shapes.merge(&other.window.shapes);
    }
}

/// Forty windows of normal load; from 300 s on updates wait until 312 s. Some waited as long ten minutes before.
fn history() -> Vec<HistoryWindow> {
    let mut noise = Noise(42);
    let mut all: Vec<_> = (0..40).map(|at| window(at, &[FIND, UPDATE], &mut noise)).collect();
    add(&mut all, 105, (6, 12 * S));
    add(&mut all, 312, (6, 12 * S));
    all
}

/// The lock that is named, with what it cost in seconds, and how many operations its effects count.
fn told(found: &HistoryChanges) -> Option<(String, f64, u64)> {
    let is_lock = |change: &&HistoryChange| matches!(&change.what, ChangeKind::Event(_));
    let lock = found.changes.iter().find(is_lock)?;
    let ChangeKind::Event(events) = &lock.what else { unreachable!() };
    let stalled = lock.effects.iter().map(|effect| match &effect.what {
        ChangeKind::Shape(shape) => {
            assert_eq!(shape.ways, [ShapeWay::Stalled], "{effect:#?}");
            shape.after.stalled.0
        }
        other => panic!("{other:?}"),
    });
    Some((events[0].text.to_string(), lock.cost_ns / S as f64, stalled.sum()))
}

#[test]
fn a_lock_has_its_cost_whichever_windows_are_compared_and_however_slow_operations_were_before() {
    let all = history();
    let events = [locked(93, 105), locked(300, 312)].concat();
    for (from, to) in [(28, 31), (29, 32), (30, 33), (31, 34), (28, 36), (30, 40)] {
        for kind in [ComparisonKind::Moment, ComparisonKind::Block, ComparisonKind::Spans] {
            // Those of a moment have the time behind it.
            let later = if kind == ComparisonKind::Moment { &all[to..] } else { &[] };
            if to < 32 && later.is_empty() {
                continue;
            }
            let (before, after) = (&all[..from], &all[from..to]);
            let found = find(&ChangeInput { before, after, later, events: &events, alpha: ALPHA }, kind);
            let (text, cost, stalled) =
                told(&found).unwrap_or_else(|| panic!("{from} {to} {kind:?}: {found:#?}"));
            assert_eq!((&*text, stalled), ("writes were locked by fsyncLock", 6), "{from} {to} {kind:?}");
            assert!((cost - 72.0).abs() < 2.0, "{from} {to} {kind:?}: {cost}");
        }
    }
    // Without the lock, what took as long before is usual.
    let (before, after) = (&all[..30], &all[30..33]);
    let input = ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA };
    assert!(find(&input, ComparisonKind::Moment).is_empty());
}

#[test]
fn a_lock_that_held_nothing_has_no_cost_and_reads_are_not_its_effects() {
    let mut noise = Noise(42);
    let all: Vec<_> = (0..33).map(|at| window(at, &[FIND, UPDATE], &mut noise)).collect();
    let (before, after) = all.split_at(30);
    let events = locked(301, 313);
    let found = find(
        &ChangeInput { before, after, later: &[], events: &events, alpha: ALPHA },
        ComparisonKind::Moment,
    );
    assert_eq!(told(&found), Some(("writes were locked by fsyncLock".to_owned(), 0.0, 0)));
    assert!(found.changes.iter().all(|change| change.effects.is_empty()), "{found:#?}");
}

#[test]
fn what_a_lock_still_holds_is_its_effect() {
    let mut noise = Noise(42);
    let mut all: Vec<_> = (0..33).map(|at| window(at, &[FIND, UPDATE], &mut noise)).collect();
    // Nobody unlocked, and nothing ended since then.
    for (at, one) in all.iter_mut().enumerate().skip(30) {
        *one = window(at as u64, &[FIND], &mut noise);
    }
    let (shape, age) = (all[0].window.shapes.rows(), 28 * S);
    let shape = shape.iter().find(|row| &*row.shape().command == "update").unwrap().shape().clone();
    all[32].window.in_flight.push(InFlightOperations {
        server: SERVER,
        role: Role::Served,
        class: Class::User,
        shape,
        count: 3,
        oldest_ns: age,
        oldest: Vec::new(),
    });
    let (before, after) = all.split_at(30);
    let events = [lock(302, "writes were locked by fsyncLock")];
    let found = find(
        &ChangeInput { before, after, later: &[], events: &events, alpha: ALPHA },
        ComparisonKind::Moment,
    );
    let (_, cost, stalled) = told(&found).unwrap();
    // 28 s of the oldest one, and half of that of both others.
    assert_eq!((stalled, cost.round()), (3, 56.0), "{found:#?}");
}

#[test]
fn a_scan_names_a_lock_once() {
    let all = history();
    let events = [locked(93, 105), locked(300, 312)].concat();
    let mut scan = Scan::new(&events, ALPHA, 20);
    for (at, one) in all.into_iter().enumerate() {
        if at < 20 { scan.push_before(one) } else { scan.push(one) }
    }
    let moments: Vec<ScanMoment> = scan.finish();
    let with_cost = moments.iter().flat_map(|moment| &moment.changes.changes).filter(|one| one.cost_ns > 0.0);
    let costs: Vec<f64> = with_cost.map(|one| one.cost_ns / S as f64).collect();
    assert!(costs.len() == 1 && (costs[0] - 72.0).abs() < 2.0, "{costs:?} {moments:#?}");
}

#[test]
fn what_was_held_is_not_counted_among_the_others() {
    // Other operations became faster at the same time.
    let mut noise = Noise(42);
    let fast = Load { latency_ns: MS / 4, ..UPDATE };
    let mut all: Vec<_> =
        (0..33).map(|at| window(at, &[FIND, if at < 30 { UPDATE } else { fast }], &mut noise)).collect();
    add(&mut all, 312, (6, 12 * S));
    let (before, after) = all.split_at(30);
    let events = locked(300, 312);
    let found = find(
        &ChangeInput { before, after, later: &[], events: &events, alpha: ALPHA },
        ComparisonKind::Moment,
    );
    let effect = &found.changes[0].effects[0];
    assert_eq!(ways(effect), [ShapeWay::Stalled, ShapeWay::Faster]);
    let ChangeKind::Shape(shape) = &effect.what else { unreachable!() };
    assert!(
        shape.after.usual_mean_ns() < MS as f64 && shape.after.mean_ns() > 100.0 * MS as f64,
        "{shape:#?}"
    );
    // All of the seconds, but not a second more than these.
    assert!((effect.cost_ns / S as f64 - 72.0).abs() < 2.0, "{effect:#?}");
}
