//! What the machine denied a server, as its figures show.

use sonar_core::changes::{MachineCause, MachineChange};
use sonar_core::history::{SeriesMetric, metrics};

use super::*;

/// A figure with its values before, and after.
type Moved<'a> = (SeriesMetric, Endpoint, &'a str, [f64; 2]);

/// How much of the time of an operation grows, in milliseconds.
const GROWN_MS: f64 = 12.0;
const MACHINE: Endpoint = Endpoint::v6([0; 16], 0);

/// Thirty windows and then three, with these figures; finds become slower in the window `from`, because this part of
/// their time grew.
fn compare_figures(figures: &[Moved<'_>], grown: Option<TimePart>, from: u64) -> HistoryChanges {
    let grown: Vec<_> = grown.into_iter().map(|part| (part, GROWN_MS)).collect();
    compare_with(figures, (&grown, from), &[])
}

/// The same with parts of their time that grew by so many milliseconds, and with events.
fn compare_with(figures: &[Moved<'_>], grown: (&[(TimePart, f64)], u64), events: &[Event]) -> HistoryChanges {
    let windows = windows_with(figures, grown);
    let (before, after) = windows.split_at(30);
    find(&ChangeInput { before, after, later: &[], events, alpha: ALPHA }, ComparisonKind::Block)
}

/// The windows of these.
fn windows_with(figures: &[Moved<'_>], (grown, from): (&[(TimePart, f64)], u64)) -> Vec<HistoryWindow> {
    windows_of(figures, (grown, from), &|at| if at >= from { 9 * MS } else { MS })
}

/// The same with this latency of finds in each window, in nanoseconds.
fn windows_of(
    figures: &[Moved<'_>],
    (grown, from): (&[(TimePart, f64)], u64),
    latency_ns: &dyn Fn(u64) -> u64,
) -> Vec<HistoryWindow> {
    let mut noise = Noise(23);
    (0..33)
        .map(|at| {
            let is_slow = at >= from;
            let load = Load { latency_ns: latency_ns(at), ..FIND };
            let mut window = window(at, &[load, UPDATE], &mut noise);
            let start = window.window.start;
            for (metric, server, name, values) in figures {
                let value = values[usize::from(at >= 30)] * (1.0 + 0.01 * noise.next());
                window.sample(&metric.key(*server, name), start, value, 10.0);
            }
            let finds = window.window.shapes.rows().iter().find(|row| row.shape().command == "find".into());
            let mut row = Row::new(finds.unwrap().subject.clone(), Class::User);
            row.server = SERVER;
            let split = row.split.get_or_insert_default();
            split.operations = 50;
            let mut spend = |part, ms: f64| {
                let ns = (50.0 * ms * MS as f64 * (0.9 + 0.2 * noise.next())) as u64;
                split.split[part] += ns;
                split.duration_ns += ns;
            };
            TimePart::ALL.into_iter().for_each(|part| spend(part, 0.1));
            grown.iter().filter(|_| is_slow).for_each(|(part, ms)| spend(*part, *ms));
            if !grown.is_empty() {
                window.window.shapes.add_owned(row);
            }
            window
        })
        .collect()
}

/// The causes that are named, with how many changes each explains.
fn causes(found: &HistoryChanges) -> Vec<(MachineCause, usize)> {
    let machine = |change: &HistoryChange| match &change.what {
        ChangeKind::Machine(MachineChange { cause, .. }) => Some((*cause, change.effects.len())),
        _ => None,
    };
    found.changes.iter().filter_map(machine).collect()
}

fn processors(busy: [f64; 2], own: [f64; 2], running: [f64; 2]) -> Vec<Moved<'static>> {
    vec![
        (metrics::CPU_COUNT, MACHINE, "", [2.0, 2.0]),
        (metrics::CPU_BUSY, MACHINE, "", busy),
        (metrics::TASKS_RUNNING, MACHINE, "", running),
        (metrics::PROCESS_CPU_USER, SERVER, "", own),
        (metrics::PROCESS_CPU_SYSTEM, SERVER, "", [1.0, 1.0]),
        (metrics::PROCESS_RUN_QUEUE, SERVER, "", [1.0, 80.0]),
    ]
}

#[test]
fn a_cause_of_the_machine_explains_only_what_it_can_cause() {
    use TimePart::{Cpu, Fault, Flush, Read, RunQueue};
    let cached: Vec<Moved<'_>> = vec![(metrics::MEMORY_CACHED, MACHINE, "", [8e9, 0.5e9])];
    let grown_cache: Vec<Moved<'_>> = vec![(metrics::MEMORY_CACHED, MACHINE, "", [0.5e9, 8e9])];
    let swap: Vec<Moved<'_>> = vec![(metrics::MEMORY_SWAP_IN, MACHINE, "", [0.0, 900.0])];
    let throttled: Vec<Moved<'_>> = vec![(metrics::CGROUP_THROTTLED_PERIODS, SERVER, "", [0.0, 95.0])];
    let neighbour = processors([20.0, 99.0], [10.0, 10.0], [1.0, 10.0]);
    // The server itself takes them: its queries need more.
    let own = processors([20.0, 99.0], [10.0, 168.0], [1.0, 2.5]);
    // Others became busy, but left enough.
    let enough = processors([5.0, 40.0], [5.0, 5.0], [1.0, 1.5]);
    // Others had nearly all of them before, and threads that waited.
    let as_before = processors([99.0, 99.5], [1.0, 1.0], [12.0, 13.8]);
    for (figures, grown, expected) in [
        (&cached, Some(Read), Some(MachineCause::PageCache)),
        (&cached, Some(Fault), Some(MachineCause::PageCache)),
        (&cached, None, Some(MachineCause::PageCache)),
        (&cached, Some(RunQueue), None),
        (&cached, Some(Flush), None),
        (&grown_cache, Some(Read), None),
        (&swap, Some(Fault), Some(MachineCause::Swap)),
        (&swap, Some(Cpu), None),
        (&throttled, Some(RunQueue), Some(MachineCause::Throttled)),
        (&throttled, Some(Read), None),
        (&neighbour, Some(RunQueue), Some(MachineCause::Processors)),
        (&neighbour, Some(Read), None),
        (&own, Some(RunQueue), None),
        (&enough, Some(RunQueue), None),
        (&as_before, Some(RunQueue), None),
    ] {
        let found = compare_figures(figures, grown, 30);
        let expected: Vec<_> = expected.into_iter().map(|cause| (cause, 1)).collect();
        assert_eq!(causes(&found), expected, "{grown:?} {figures:?} {found:#?}");
        if let Some(first) = expected.first() {
            assert_eq!(causes(&found)[0], *first);
            assert!(matches!(found.changes[0].what, ChangeKind::Machine(_)), "it comes first: {found:#?}");
            assert!(found.changes[0].cost_ns > 0.0);
        }
    }
}

#[test]
fn a_part_of_the_time_that_grew_tells_that_latencies_did_although_they_vary() {
    let cached: Vec<Moved<'_>> = vec![(metrics::MEMORY_CACHED, MACHINE, "", [8e9, 0.5e9])];
    let varying = |at: u64| if at >= 30 { 15 * MS } else { MS * (2 + 6 * (at % 2)) };
    // Whether the latencies are beyond chance does not show, unless the time for reads grew, too.
    let read = [(TimePart::Read, GROWN_MS)];
    for (grown, expected) in [(&read[..], vec![(MachineCause::PageCache, 1)]), (&[], vec![])] {
        let windows = windows_of(&cached, (grown, 30), &varying);
        let (before, after) = windows.split_at(30);
        let input = ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA };
        let found = find(&input, ComparisonKind::Block);
        assert_eq!(causes(&found), expected, "{found:#?}");
    }
    // Where neither grew, nothing is found.
    let usual = |at: u64| MS * (2 + 6 * (at % 2));
    let windows = windows_of(&[], (&[(TimePart::Read, 0.0)], 30), &usual);
    let (before, after) = windows.split_at(30);
    let input = ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA };
    let found = find(&input, ComparisonKind::Block);
    assert!(found.changes.is_empty(), "{found:#?}");
}

#[test]
fn of_two_causes_of_the_machine_the_one_that_operations_wait_for_most_explains_them() {
    use TimePart::{Read, RunQueue};
    // The page cache is gone on a machine where others wait for processors, too.
    let mut figures = processors([80.0, 78.0], [1.0, 1.0], [3.5, 7.0]);
    figures.push((metrics::MEMORY_CACHED, MACHINE, "", [8e9, 0.5e9]));
    let (most, less) = (GROWN_MS, GROWN_MS / 2.0);
    for (grown, expected) in [
        ([(Read, most), (RunQueue, less)], MachineCause::PageCache),
        ([(Read, less), (RunQueue, most)], MachineCause::Processors),
    ] {
        let found = compare_with(&figures, (&grown, 30), &[]);
        assert_eq!(causes(&found), [(expected, 1)], "{found:#?}");
    }
}

#[test]
fn processors_that_others_took_explain_what_happened_to_each_server_of_the_machine() {
    const OTHER: Endpoint = Endpoint::v4([0, 0, 0, 0], 27_018);
    // What one of two servers loses, others take. The figures of the second one hardly move.
    let neighbour = processors([85.0, 90.0], [90.0, 20.0], [3.0, 3.5]);
    let hindered = (metrics::PROCESS_CPU_USER, OTHER, "", [20.0, 20.0]);
    // Here the second server itself takes them from the first one.
    let itself = processors([60.0, 99.0], [20.0, 20.0], [2.0, 3.0]);
    let taking = (metrics::PROCESS_CPU_USER, OTHER, "", [80.0, 170.0]);
    for (figures, own, effects) in
        [(neighbour, hindered, vec![SERVER, OTHER]), (itself, taking, vec![SERVER])]
    {
        let mut figures = figures;
        figures.extend([
            own,
            (metrics::PROCESS_CPU_SYSTEM, OTHER, "", [1.0, 1.0]),
            (metrics::PROCESS_RUN_QUEUE, OTHER, "", [1.0, 80.0]),
        ]);
        let mut windows = windows_with(&figures, (&[], 30));
        for window in &mut windows {
            let of_first: Vec<Row> = window.window.shapes.rows().to_vec();
            for mut row in of_first {
                row.server = OTHER;
                window.window.shapes.add_owned(row);
            }
        }
        let (before, after) = windows.split_at(30);
        let input = ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA };
        let found = find(&input, ComparisonKind::Block);
        assert_eq!(causes(&found), [(MachineCause::Processors, effects.len())], "{found:#?}");
        let mut servers: Vec<Endpoint> =
            found.changes[0].effects.iter().map(|effect| effect.server).collect();
        servers.sort_unstable();
        assert_eq!(servers, effects);
    }
}

#[test]
fn a_server_that_its_control_group_throttles_does_not_wait_for_others() {
    let mut figures = processors([90.0, 100.0], [20.0, 4.0], [3.0, 12.0]);
    figures.push((metrics::CGROUP_THROTTLED_PERIODS, SERVER, "", [0.0, 90.0]));
    for grown in [None, Some(TimePart::RunQueue)] {
        assert_eq!(causes(&compare_figures(&figures, grown, 30)), [(MachineCause::Throttled, 1)]);
    }
    // The event says the same, and more.
    let throttled = event(302, EventKind::CpuThrottled, "");
    let found = compare_with(&figures, (&[], 30), &[throttled]);
    assert_eq!(causes(&found), [], "{found:#?}");
    assert!(matches!(&found.changes[0].what, ChangeKind::Event(_)) && found.changes[0].effects.len() == 1);
}

#[test]
fn figures_of_the_machine_are_stored_without_a_server() {
    assert_eq!(MACHINE, Endpoint::default());
}

#[test]
fn what_moves_after_its_effect_is_no_cause() {
    let cached: Vec<Moved<'_>> = vec![(metrics::MEMORY_CACHED, MACHINE, "", [8e9, 0.5e9])];
    // The finds were slow three windows earlier.
    let found = compare_figures(&cached, Some(TimePart::Read), 27);
    assert_eq!(causes(&found), [], "{found:#?}");
    // One window is enough: both are known by windows.
    for (from, expected) in [(29, None), (30, Some((MachineCause::PageCache, 1)))] {
        let windows = windows_with(&cached, (&[(TimePart::Read, GROWN_MS)], from));
        let (before, after) = windows.split_at(29);
        let input = ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA };
        let found = find(&input, ComparisonKind::Block);
        assert_eq!(causes(&found), Vec::from_iter(expected), "from {from}: {found:#?}");
    }
}

#[test]
fn a_member_that_stands_still_is_named_even_without_an_effect() {
    let lag = |values| vec![(metrics::MEMBER_LAG, SERVER, "db2:27017", values)];
    let found = compare_figures(&lag([200.0, 35_000.0]), None, 99);
    assert_eq!(causes(&found), [(MachineCause::Lag, 0)], "{found:#?}");
    assert!(found.context.is_empty(), "it is listed once: {found:#?}");
    // The usual delay.
    assert_eq!(causes(&compare_figures(&lag([200.0, 900.0]), None, 99)), []);
    // Writes wait for it, reads do not.
    let found = compare_figures(&lag([200.0, 35_000.0]), Some(TimePart::Poll), 30);
    assert_eq!(causes(&found), [(MachineCause::Lag, 1)], "{found:#?}");
    let found = compare_figures(&lag([200.0, 35_000.0]), Some(TimePart::Read), 30);
    assert_eq!(causes(&found), [(MachineCause::Lag, 0)], "{found:#?}");
}

#[test]
fn figures_that_fall_with_an_application_are_its_effects() {
    let mut noise = Noise(29);
    let pricing = |number: u64| Load {
        shape: 100 + number,
        app: ("pricing", "1.0"),
        calls: 40,
        latency_ns: 30 * MS,
        ..FIND
    };
    let figures = [
        (metrics::CPU_BUSY, [60.0, 5.0]),
        (metrics::LOAD, [5.0, 0.1]),
        (metrics::MEMORY_AVAILABLE, [1e9, 4e9]),
    ];
    let windows: Vec<_> = (0..33)
        .map(|at| {
            let mut loads = vec![FIND];
            loads.extend((0..3).filter(|_| at < 30).map(pricing));
            let mut window = window(at, &loads, &mut noise);
            let start = window.window.start;
            for (metric, values) in figures {
                let value = values[usize::from(at >= 30)];
                window.sample(&metric.key(MACHINE, ""), start, value, 10.0);
            }
            // That has nothing to do with it.
            let swap = if at < 30 { 0.0 } else { 40.0 };
            window.sample(&metrics::MEMORY_SWAP_OUT.key(MACHINE, ""), start, swap, 10.0);
            window
        })
        .collect();
    let (before, after) = windows.split_at(30);
    let found =
        find(&ChangeInput { before, after, later: &[], events: &[], alpha: ALPHA }, ComparisonKind::Block);
    let [ended] = found.changes.as_slice() else { panic!("{found:#?}") };
    assert!(matches!(&ended.what, ChangeKind::Application(app) if app.has_ended), "{ended:#?}");
    let series = |changes: &[HistoryChange]| -> Vec<String> {
        let name = |change: &HistoryChange| match &change.what {
            ChangeKind::Series(series) => Some(series.key.metric.to_string()),
            _ => None,
        };
        let mut names: Vec<String> = changes.iter().filter_map(name).collect();
        names.sort();
        names
    };
    assert_eq!(series(&ended.effects), ["cpu.busy_percent", "load.one_minute", "memory.available_bytes"]);
    assert_eq!(series(&found.context), ["memory.swap_out_per_second"]);
}
