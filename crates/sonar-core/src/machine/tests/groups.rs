//! The control groups of servers.

use super::*;

/// A server with a control group, in a machine `seconds` seconds after the start.
fn grouped(seconds: u64, control_group: ControlGroup) -> MachineReading {
    let process = ProcessReading { control_group, ..process(0, Vec::new()) };
    MachineReading { processes: vec![process], ..at(seconds) }
}

/// Kinds and texts of the events of readings, ten seconds apart.
fn group_events(groups: impl IntoIterator<Item = ControlGroup>) -> Vec<(EventKind, String)> {
    let mut monitor = MachineMonitor::default();
    let mut events = Vec::new();
    for (place, group) in groups.into_iter().enumerate() {
        let step = monitor.step(grouped(10 * place as u64, group));
        events.extend(step.events.into_iter().map(|event| {
            assert_eq!(event.server, SERVER);
            (event.kind, event.text.into_string())
        }));
    }
    events
}

#[test]
fn a_server_that_is_throttled_is_one_event_until_it_is_over() {
    let mut periods = (0, 0);
    let mut group = |all, stopped| {
        periods = (periods.0 + all, periods.1 + stopped);
        ControlGroup { cpu_limit: Some(1.5), periods: Some(periods), ..ControlGroup::default() }
    };
    let throttled =
        "it allows 1.5 processors, and its threads were stopped in 40 % of the periods".to_owned();
    let mut groups = vec![group(100, 0), group(100, 2), group(100, 40), group(100, 70)];
    let begun = groups.clone();
    groups.extend((0..15).map(|_| group(100, 0)));
    groups.push(group(100, 40));
    assert_eq!(group_events(begun), [(EventKind::CpuThrottled, throttled.clone())]);
    assert_eq!(group_events(groups), [0, 1].map(|_| (EventKind::CpuThrottled, throttled.clone())));
    // An idle group has few periods.
    let idle = [(10, 0), (11, 1), (12, 2)];
    let idle = idle.map(|periods| ControlGroup { periods: Some(periods), ..ControlGroup::default() });
    assert_eq!(group_events(idle), []);
}

#[test]
fn a_limit_that_is_changed_is_an_event() {
    let group = |cpu_limit, memory_limit: Option<u64>| ControlGroup {
        cpu_limit,
        memory: Some(5),
        memory_limit,
        ..ControlGroup::default()
    };
    let events = group_events([
        group(Some(4.0), Some(4 << 30)),
        group(Some(1.0), Some(4 << 30)),
        group(None, Some(2 << 30)),
        // Nothing could be read.
        ControlGroup::default(),
    ]);
    let texts: Vec<_> = events.iter().map(|(kind, text)| (*kind, text.as_str())).collect();
    assert_eq!(
        texts,
        [
            (EventKind::SettingChange, "1 processor, was 4 processors"),
            (EventKind::SettingChange, "unlimited, was 1 processor"),
            (EventKind::SettingChange, "2.0 GiB, was 4.0 GiB"),
        ]
    );
}

#[test]
fn a_kill_in_a_group_is_said_of_its_server_and_once() {
    let reading = |seconds, kills: u64| MachineReading {
        vm: VmCounters { out_of_memory_kills: Some(7 + kills), ..VmCounters::default() },
        ..grouped(
            seconds,
            ControlGroup {
                memory_limit: Some(4 << 30),
                out_of_memory_kills: Some(kills),
                ..ControlGroup::default()
            },
        )
    };
    let found = step(reading(0, 0), reading(10, 2)).events;
    let [event] = &found[..] else { panic!("{found:?}") };
    assert_eq!((event.kind, event.server, event.count), (EventKind::OutOfMemory, SERVER, 2));
    assert_eq!(&*event.text, "its control group had reached its limit of memory (4.0 GiB)");
}

#[test]
fn shares_of_a_server_are_of_what_it_may_use() {
    let reading = |seconds: u64, used_ns: u64| {
        let mut reading = grouped(
            seconds,
            ControlGroup {
                cpu_limit: Some(1.5),
                memory: Some(4_209_067_950),
                memory_files: Some(100_000_000),
                memory_limit: Some(4 << 30),
                limit_hits: Some(10 * seconds),
                tasks: Some(90),
                task_limit: Some(100),
                ..ControlGroup::default()
            },
        );
        reading.cpu = Some(CpuTicks { ticks: [seconds; 8], processors: 64 });
        reading.processes[0].cpu_ns = [used_ns, 0];
        reading.processes[0].processors_allowed = Some(128);
        reading
    };
    // Twelve seconds of processor time in ten: 1.2 of 64 processors, and 80 % of 1.5.
    let found = step(reading(10, 0), reading(20, 12 * NS_PER_S));
    let of = |metric| value(&found, metric, "");
    assert_eq!(of(metrics::PROCESS_CPU_USED), Some(80.0));
    assert_eq!(of(metrics::CGROUP_MEMORY_USED).map(f64::round), Some(96.0));
    assert_eq!((of(metrics::CGROUP_TASKS_USED), of(metrics::CGROUP_LIMIT_HITS)), (Some(90.0), Some(10.0)));
}
