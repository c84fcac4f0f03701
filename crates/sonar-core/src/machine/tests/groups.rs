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
        is_cpu_limit_known: true,
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
        group(Some(3.0), Some(2 << 30)),
        // The same, of processor time only.
        ControlGroup { is_cpu_limit_known: false, ..group(None, Some(2 << 30)) },
        group(Some(3.0), Some(2 << 30)),
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
                memory_limit_hits: Some(5 * kills),
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
fn a_kill_is_that_of_a_limit_only_if_the_limit_was_reached() {
    let group = |memory_limit: Option<u64>, [hits, kills]: [u64; 2]| ControlGroup {
        memory_limit,
        memory_limit_hits: Some(hits),
        out_of_memory_kills: Some(kills),
        ..ControlGroup::default()
    };
    let limit = Some(4 << 30);
    let other = "processes in its control group were killed";
    for (before, now, text) in [
        (
            group(limit, [3, 0]),
            group(limit, [4, 1]),
            "its control group had reached its limit of memory (4.0 GiB)",
        ),
        // Memory ran out in the machine, or in a group above.
        (group(limit, [3, 0]), group(limit, [3, 1]), other),
        (group(None, [0, 0]), group(None, [0, 1]), other),
        (ControlGroup { memory_limit_hits: None, ..group(limit, [0, 0]) }, group(limit, [9, 1]), other),
    ] {
        assert_eq!(group_events([before, now]), [(EventKind::OutOfMemory, text.to_owned())]);
    }
}

#[test]
fn kills_in_a_group_that_servers_share_are_counted_once() {
    let reading = |seconds, kills: u64, groups: [Option<u64>; 2]| {
        let server = |memory_group, port: u16, pid| {
            let group =
                ControlGroup { memory_group, out_of_memory_kills: Some(kills), ..ControlGroup::default() };
            let server = Endpoint::v4([127, 0, 0, 1], port);
            ProcessReading { control_group: group, server, pid, ..process(0, Vec::new()) }
        };
        let processes = vec![server(groups[0], 27_017, 1), server(groups[1], 27_018, 2)];
        let vm = VmCounters { out_of_memory_kills: Some(2 * kills), ..VmCounters::default() };
        MachineReading { processes, vm, ..at(seconds) }
    };
    for (groups, counts) in [
        // The machine counts one more than the group, which has its own event.
        ([Some(40), Some(40)], vec![1, 1]),
        ([Some(40), Some(41)], vec![1, 1]),
        ([None, None], vec![1, 1]),
    ] {
        let found = step(reading(0, 0, groups), reading(10, 1, groups)).events;
        let kills: Vec<u64> = found.iter().map(|event| event.count).collect();
        assert_eq!(kills, counts, "{groups:?}: {found:?}");
        let of_servers = found.iter().filter(|event| event.server != Endpoint::default()).count();
        assert_eq!(of_servers, if groups == [Some(40), Some(40)] { 1 } else { 2 });
    }
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
