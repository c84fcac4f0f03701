//! Windows that were observed in part count by the time in which they were.

use sonar_core::{GroupBy, Table};

use super::*;

const SHOP: Load = Load { latency_ns: 5 * MS, ..FIND };

/// The window number `at` with these calls, of which only so many seconds were observed.
fn partly(at: u64, calls: u64, seconds: u64, noise: &mut Noise) -> HistoryWindow {
    let mut window = window(at, &[Load { calls, ..SHOP }], noise);
    window.observed_ns.iter_mut().for_each(|ns| *ns = (*ns).min(seconds * 1_000 * MS));
    window
}

/// What changed from thirty windows, of which one was hardly observed, to three.
fn changed(after: [(u64, u64); 3]) -> (ShapeWay, u64) {
    let mut noise = Noise(42);
    let old: Vec<_> = (0..30)
        .map(|at| match at {
            10 => partly(at, 6, 1, &mut noise),
            _ => partly(at, 60, 10, &mut noise),
        })
        .collect();
    let new: Vec<_> =
        (30..33).zip(after).map(|(at, (calls, seconds))| partly(at, calls, seconds, &mut noise)).collect();
    let found = find(
        &ChangeInput { before: &old, after: &new, later: &[], events: &[], alpha: ALPHA },
        ComparisonKind::Block,
    );
    let [change] = found.changes.as_slice() else { panic!("{found:#?}") };
    let [way] = ways(change) else { panic!("{change:#?}") };
    (*way, change.since.since(new[0].window.start) / (1_000 * MS))
}

#[test]
fn a_rate_falls_where_it_does_and_not_in_a_window_that_was_observed_in_part() {
    // In half of the first window were half of the operations.
    assert_eq!(changed([(26, 5), (10, 10), (10, 10)]), (ShapeWay::LessOften, 10));
}

#[test]
fn a_rate_rises_where_it_does_and_not_where_more_was_observed() {
    // In the first window were as many operations as in half of the others.
    assert_eq!(changed([(120, 5), (130, 10), (240, 10)]), (ShapeWay::MoreOften, 0));
}

/// Leaves what the log has of a window.
fn only_log(window: &mut HistoryWindow) {
    window.observed_ns[CollectorKind::Queries as usize] = 0;
    let all = std::mem::replace(&mut window.window.shapes, Table::of_window(GroupBy::Shape));
    for row in all.iter() {
        let mut of_log = Row::new(row.subject.clone(), row.class);
        (of_log.server, of_log.role) = (row.server, row.role);
        of_log.set_observed(Source::Log, Box::new(row.observed_by(Source::Log).unwrap().clone()));
        window.window.shapes.add(&of_log);
    }
}

#[test]
fn what_a_log_has_that_could_not_be_read_before_is_not_new() {
    let slow = Load { plan: "COLLSCAN", ..SHOP };
    let changes = |unread: u64| {
        let mut noise = Noise(42);
        // There is only the log, in which both servers have operations, but this one only at last.
        let mut all: Vec<_> = (0..33)
            .map(|at| window(at, &[Load { calls: if at < 30 { 0 } else { 60 }, ..slow }], &mut noise))
            .collect();
        for (at, window) in all.iter_mut().enumerate() {
            only_log(window);
            if at < 30 && unread > 0 {
                window.miss_log(SERVER, unread * 1_000 * MS);
            }
        }
        let (before, after) = all.split_at(30);
        find(&ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA }, ComparisonKind::Block)
            .changes
    };
    assert!(!changes(0).is_empty(), "all of it was read before");
    let found = changes(WIDTH_S);
    assert!(found.is_empty(), "{found:#?}");
}
