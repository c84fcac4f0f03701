mod groups;

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::disk::{DeviceCounters, DiskCounters};
use crate::history::{EventKind, SeriesMetric, metrics};
use crate::time::NS_PER_S;
use crate::{Endpoint, Timestamp};

const SERVER: Endpoint = Endpoint::v4([0; 4], 27_017);
/// 2026-11-21T21:20:00Z.
const START: u64 = 1_795_296_000;

/// The clocks `seconds` seconds after the start.
fn clocks(seconds: u64) -> MachineClocks {
    MachineClocks {
        realtime: Timestamp::from_unix(START + seconds, 0),
        monotonic_ns: (1_000 + seconds) * NS_PER_S,
        boot_ns: (1_000 + seconds) * NS_PER_S,
    }
}

fn at(seconds: u64) -> MachineReading {
    MachineReading { clocks: clocks(seconds), ..MachineReading::default() }
}

/// The step from one reading to another.
fn step(before: MachineReading, now: MachineReading) -> MachineStep {
    let mut monitor = MachineMonitor::default();
    assert!(monitor.step(before).values.is_empty(), "one reading has no values");
    monitor.step(now)
}

/// Values by metric and name.
fn values(step: &MachineStep) -> BTreeMap<(String, String), f64> {
    let found = step.values.iter().map(|(key, value, seconds)| {
        assert!(value.is_finite() && *value >= 0.0 && *seconds > 0.0, "{key:?} {value}");
        let metric = metrics::find(&key.metric).expect("it is in the table");
        assert_eq!(metric.subject, key.subject);
        ((key.metric.to_string(), key.name.to_string()), *value)
    });
    let found: Vec<_> = found.collect();
    let map: BTreeMap<_, _> = found.iter().cloned().collect();
    assert_eq!(map.len(), found.len(), "each series has one value");
    map
}

fn value(step: &MachineStep, metric: SeriesMetric, name: &str) -> Option<f64> {
    values(step).get(&(metric.name.to_owned(), name.to_owned())).copied()
}

#[test]
fn shares_of_the_processors_are_of_the_time_between_readings() {
    let cpu = |ticks| Some(CpuTicks { ticks, processors: 2 });
    let before = MachineReading { cpu: cpu([100, 0, 50, 900, 10, 3, 7, 4]), ..at(0) };
    // 2,000 ticks: 600 user, 100 nice, 200 system, 800 idle, 100 iowait, 50 interrupts, 50 softirq, 100 stolen.
    let now = MachineReading { cpu: cpu([700, 100, 250, 1_700, 110, 53, 57, 104]), ..at(10) };
    let step = step(before, now);
    let of = |metric| value(&step, metric, "").unwrap();
    assert_eq!((of(metrics::CPU_USER), of(metrics::CPU_SYSTEM)), (35.0, 12.5));
    assert_eq!((of(metrics::CPU_IOWAIT), of(metrics::CPU_STEAL)), (5.0, 5.0));
    assert_eq!((of(metrics::CPU_SOFTIRQ), of(metrics::CPU_BUSY)), (2.5, 55.0));
    assert_eq!(of(metrics::CPU_COUNT), 2.0);
    assert!(step.values.iter().all(|(.., seconds)| *seconds == 10.0) && step.at == clocks(10).realtime);
}

#[test]
fn what_is_not_known_is_absent() {
    let found = step(at(0), at(10));
    assert_eq!((found.values, found.events), (vec![], vec![]));
    // A counter that is known at one reading only, or that fell, has no rate.
    let vm = |major_faults| VmCounters { major_faults, ..VmCounters::default() };
    for (before, now) in [(None, Some(5)), (Some(5), None), (Some(6), Some(5))] {
        let found =
            step(MachineReading { vm: vm(before), ..at(0) }, MachineReading { vm: vm(now), ..at(10) });
        assert_eq!(found.values, vec![], "{before:?} {now:?}");
    }
    let found =
        step(MachineReading { vm: vm(Some(5)), ..at(0) }, MachineReading { vm: vm(Some(5)), ..at(10) });
    assert_eq!(value(&found, metrics::MEMORY_MAJOR_FAULTS, ""), Some(0.0), "none is known to be zero");
}

#[test]
fn pressure_memory_and_network_have_their_units() {
    let pressure = |some_us, full_us| PressureReading { some_us: Some(some_us), full_us: Some(full_us) };
    let interface = |name: &str, bytes, dropped| InterfaceReading {
        name: name.into(),
        bytes: [bytes, 2 * bytes],
        packets: [bytes / 1_000, bytes / 500],
        errors: [0, 0],
        dropped: [dropped, dropped],
    };
    let before = MachineReading {
        pressure_io: pressure(1_000_000, 0),
        tcp: TcpReading { connections: Some(3), retransmitted: Some(7), listen_overflows: Some(0) },
        interfaces: vec![interface("eth0", 1_000, 0), interface("eth1", 0, 0)],
        ..at(0)
    };
    let now = MachineReading {
        pressure_io: pressure(3_500_000, 500_000),
        memory: MemoryReading {
            total: Some(1 << 30),
            swap_total: Some(1_000),
            swap_free: Some(400),
            ..MemoryReading::default()
        },
        tcp: TcpReading { connections: Some(5), retransmitted: Some(57), listen_overflows: Some(0) },
        interfaces: vec![interface("eth0", 21_000, 5), interface("eth2", 9, 0)],
        load: Some(1.5),
        ..at(10)
    };
    let step = step(before, now);
    let of = |metric, name| value(&step, metric, name);
    assert_eq!(of(metrics::PRESSURE_IO, ""), Some(25.0));
    assert_eq!(of(metrics::PRESSURE_IO_FULL, ""), Some(5.0));
    assert_eq!((of(metrics::PRESSURE_CPU, ""), of(metrics::MEMORY_DIRTY, "")), (None, None));
    assert_eq!(of(metrics::MEMORY_SWAP_USED, ""), Some(600.0));
    assert_eq!((of(metrics::TCP_CONNECTIONS, ""), of(metrics::TCP_RETRANSMITS, "")), (Some(5.0), Some(5.0)));
    assert_eq!(
        (of(metrics::NETWORK_RECEIVED, "eth0"), of(metrics::NETWORK_SENT, "eth0")),
        (Some(2_000.0), Some(4_000.0))
    );
    assert_eq!(of(metrics::NETWORK_DROPPED, "eth0"), Some(1.0));
    // One that came and one that went.
    assert_eq!((of(metrics::NETWORK_RECEIVED, "eth1"), of(metrics::NETWORK_RECEIVED, "eth2")), (None, None));
    assert_eq!(of(metrics::LOAD, ""), Some(1.5));
}

#[test]
fn disks_are_those_of_iostat_and_may_come_and_go() {
    let disk = |name: &str, reads: u64, read_ms: u64| DeviceCounters {
        number: (8, 0),
        name: name.to_owned(),
        counters: DiskCounters {
            reads,
            sectors_read: 8 * reads,
            read_ms,
            busy_ms: read_ms,
            ..DiskCounters::default()
        },
    };
    // The time of reads wraps after 32 bits.
    let wrapped = u64::from(u32::MAX) - 999;
    let before = MachineReading {
        disks: vec![disk("sda", 100, wrapped), disk("sdb", 50, 1), disk("sdc", 7, 1)],
        ..at(0)
    };
    let now = MachineReading {
        disks: vec![disk("sda", 1_100, 4_000), disk("sdb", 3, 1), disk("sdd", 9, 9)],
        ..at(10)
    };
    let step = step(before, now);
    let of = |metric, name| value(&step, metric, name);
    assert_eq!(
        (of(metrics::DISK_READS, "sda"), of(metrics::DISK_READ_BYTES, "sda")),
        (Some(100.0), Some(409_600.0))
    );
    assert_eq!((of(metrics::DISK_READ_WAIT, "sda"), of(metrics::DISK_BUSY, "sda")), (Some(5.0), Some(50.0)));
    assert_eq!((of(metrics::DISK_WRITES, "sda"), of(metrics::DISK_WRITE_WAIT, "sda")), (Some(0.0), None));
    assert_eq!(of(metrics::DISK_FLUSHES, "sda"), None, "this kernel does not count them");
    // sdb was removed and added again, sdc went, sdd came.
    assert!(["sdb", "sdc", "sdd"].iter().all(|name| of(metrics::DISK_READS, name).is_none()));
}

fn thread(id: u32, name: &str, run_ms: u64) -> ThreadReading {
    let (run_ns, wait_ns) = (run_ms * 1_000_000, run_ms * 100_000);
    ThreadReading { id, name: name.into(), run_ns, wait_ns, switches: run_ms }
}

fn process(cpu_ms: u64, threads: Vec<ThreadReading>) -> ProcessReading {
    ProcessReading {
        server: SERVER,
        pid: 77,
        started: 5,
        cpu_ns: [cpu_ms * 750_000, cpu_ms * 250_000],
        thread_count: threads.len() as u64,
        faults: [cpu_ms, 0],
        resident: 1 << 30,
        io: Some([cpu_ms * 1_000, 0]),
        descriptors: Some(256),
        descriptor_limit: Some(1_024),
        threads,
        ..ProcessReading::default()
    }
}

#[test]
fn threads_are_added_by_role_and_make_up_the_process() {
    let before = vec![
        thread(77, "mongod", 10),
        thread(80, "conn1", 100),
        thread(81, "conn2", 500),
        thread(90, "ftdc", 5),
    ];
    // conn2 ended, its number belongs to another thread; conn3 is new.
    let now = vec![
        thread(77, "mongod", 30),
        thread(80, "conn1", 2_100),
        thread(81, "conn9", 20),
        thread(85, "conn3", 980),
        thread(90, "ftdc", 5),
    ];
    let group = |throttled_ms: u64, periods| ControlGroup {
        cpu_limit: Some(2.0),
        throttled_ns: Some(throttled_ms * 1_000_000),
        periods: Some((periods, periods / 2)),
        memory: Some(5),
        ..ControlGroup::default()
    };
    let before = ProcessReading { control_group: group(0, 0), ..process(1_000, before) };
    let now = ProcessReading { control_group: group(1_000, 100), ..process(6_000, now) };
    let step = step(
        MachineReading { processes: vec![before], ..at(0) },
        MachineReading { processes: vec![now], ..at(10) },
    );
    let of = |metric, name| value(&step, metric, name);
    assert_eq!(
        (of(metrics::PROCESS_CPU_USER, ""), of(metrics::PROCESS_CPU_SYSTEM, "")),
        (Some(37.5), Some(12.5))
    );
    assert_eq!(of(metrics::THREADS_CPU, "client connection"), Some(30.0), "2,000 + 20 + 980 ms in 10 s");
    assert_eq!(of(metrics::THREADS_COUNT, "client connection"), Some(3.0));
    assert_eq!(
        (of(metrics::THREADS_CPU, "engine"), of(metrics::THREADS_CPU, "diagnostics")),
        (Some(0.2), Some(0.0))
    );
    assert_eq!(
        of(metrics::THREADS_CPU, "ended threads"),
        Some(19.8),
        "5,000 ms of the process, 3,020 of its threads"
    );
    assert_eq!(of(metrics::PROCESS_RUN_QUEUE, ""), Some(3.02));
    assert_eq!(of(metrics::PROCESS_SWITCHES, ""), Some(302.0));
    assert_eq!(
        (of(metrics::PROCESS_READ, ""), of(metrics::PROCESS_WRITTEN, "")),
        (Some(500_000.0), Some(0.0))
    );
    assert_eq!(
        (of(metrics::PROCESS_DESCRIPTORS, ""), of(metrics::PROCESS_DESCRIPTORS_USED, "")),
        (Some(256.0), Some(25.0))
    );
    assert_eq!(
        (of(metrics::CGROUP_THROTTLED, ""), of(metrics::CGROUP_THROTTLED_PERIODS, "")),
        (Some(10.0), Some(50.0))
    );
    assert_eq!((of(metrics::CGROUP_CPU_LIMIT, ""), of(metrics::CGROUP_MEMORY_LIMIT, "")), (Some(2.0), None));
    assert!(step.values.iter().all(|(key, ..)| key.server == SERVER));
}

#[test]
fn a_process_that_restarted_has_gauges_and_no_rates() {
    let before =
        MachineReading { processes: vec![process(9_000, vec![thread(77, "mongod", 9_000)])], ..at(0) };
    let restarted = ProcessReading { started: 6, ..process(9_500, vec![thread(77, "mongod", 9_500)]) };
    let found = step(before, MachineReading { processes: vec![restarted], ..at(10) });
    assert_eq!(value(&found, metrics::PROCESS_MEMORY, ""), Some((1u64 << 30) as f64));
    for metric in [
        metrics::PROCESS_CPU_USER,
        metrics::PROCESS_READ,
        metrics::PROCESS_RUN_QUEUE,
        metrics::PROCESS_MINOR_FAULTS,
    ] {
        assert_eq!(value(&found, metric, ""), None, "{}", metric.name);
    }
    assert_eq!(value(&found, metrics::THREADS_CPU, "engine"), None);
}

#[test]
fn the_clock_and_the_machine_may_stop() {
    let events = |now: MachineClocks| {
        let now = MachineReading { clocks: now, ..MachineReading::default() };
        let events = step(at(0), now).events;
        events.into_iter().map(|event| (event.kind, event.text.into_string())).collect::<Vec<_>>()
    };
    assert_eq!(events(clocks(10)), []);
    let set = |seconds| MachineClocks { realtime: clocks(seconds).realtime, ..clocks(10) };
    assert_eq!(events(set(13)), [(EventKind::ClockStep, "the clock was set forward by 3.0 s".to_owned())]);
    assert_eq!(events(set(2)), [(EventKind::ClockStep, "the clock was set back by 8.0 s".to_owned())]);
    // Adjusted by half a per cent.
    let adjusted = clocks(10).realtime.plus_ns(NS_PER_S / 20);
    assert_eq!(events(MachineClocks { realtime: adjusted, ..clocks(10) }), []);
    let asleep = MachineClocks { monotonic_ns: clocks(10).monotonic_ns, ..clocks(3_610) };
    assert_eq!(events(asleep), [(EventKind::Gap, "the machine was suspended for 3600 s".to_owned())]);
}

#[test]
fn rates_leave_out_the_time_that_the_machine_was_suspended() {
    let vm = |count| VmCounters { swapped_in: Some(count), ..VmCounters::default() };
    let now = MachineClocks { monotonic_ns: clocks(10).monotonic_ns, ..clocks(3_610) };
    let found = step(
        MachineReading { vm: vm(100), ..at(0) },
        MachineReading { clocks: now, vm: vm(200), ..MachineReading::default() },
    );
    assert_eq!(value(&found, metrics::MEMORY_SWAP_IN, ""), Some(10.0));
    // After a start of the machine everything begins anew.
    let found = step(MachineReading { vm: vm(100), ..at(500) }, MachineReading { vm: vm(200), ..at(0) });
    assert_eq!((found.values, found.events), (vec![], vec![]));
}

#[test]
fn a_kill_for_lack_of_memory_is_an_event() {
    let vm = |count| VmCounters { out_of_memory_kills: Some(count), ..VmCounters::default() };
    let found = step(MachineReading { vm: vm(1), ..at(0) }, MachineReading { vm: vm(3), ..at(10) });
    assert_eq!((found.events[0].kind, found.events[0].count), (EventKind::OutOfMemory, 2));
    assert_eq!(&*found.events[0].text, "", "of which memory and which processes is not known");
}

/// The texts of the events of a file system of 100 GB. `free` has pairs of a minute and the GB free then.
fn space_events(free: impl IntoIterator<Item = (u64, f64)>) -> Vec<String> {
    let mut monitor = MachineMonitor::default();
    let mut texts = Vec::new();
    for (minute, gigabytes) in free {
        let bytes = (gigabytes * 1e9) as u64;
        let found = FileSystemReading {
            point: "/data".into(),
            size: 100_000_000_000,
            free: bytes,
            available: bytes,
            inodes: None,
        };
        let reading = MachineReading { file_systems: vec![found], ..at(60 * minute) };
        for event in monitor.step(reading).events {
            assert_eq!((event.kind, &*event.subject), (EventKind::FileSystemFull, "/data"));
            texts.push(format!("{minute}: {}", event.text));
        }
    }
    texts
}

#[test]
fn a_file_system_that_fills_up_is_an_event_once_for_each_level() {
    let free =
        [(0, 50.0), (1, 10.5), (2, 10.0), (3, 10.4), (4, 9.9), (5, 4.0), (6, 0.5), (7, 30.0), (8, 9.0)];
    assert_eq!(
        space_events(free),
        [
            "2: 90 % of the space is used, 10.0 GB are left",
            "5: 96 % of the space is used, 4.0 GB are left",
            "6: 100 % of the space is used, 0.5 GB are left",
            "8: 91 % of the space is used, 9.0 GB are left",
        ]
    );
}

#[test]
fn a_file_system_that_will_be_full_soon_is_an_event() {
    // 10 GB an hour: from 70 GB on it takes seven hours; below 60 less than six.
    let found = space_events((0..240).map(|minute| (minute, 70.0 - minute as f64 / 6.0)));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("60: it will be full in about 6.0 hours"), "{found:?}");
    // One large file is no trend, and freed space is none either.
    assert_eq!(
        space_events((0..240).map(|minute| (minute, if minute < 100 { 70.0 } else { 40.0 }))),
        [""; 0]
    );
    assert_eq!(space_events((0..240).map(|minute| (minute, 40.0 + minute as f64 / 10.0))), [""; 0]);
}

#[test]
fn inodes_can_run_out_too() {
    let reading = |free| {
        let inodes = Some((1_000, free));
        let found = FileSystemReading { point: "/".into(), size: 10, free: 9, available: 9, inodes };
        MachineReading { file_systems: vec![found], ..at(1_000 - free) }
    };
    let found = step(reading(500), reading(50));
    assert_eq!(&*found.events[0].text, "95 % of the inodes are used");
    assert_eq!(value(&found, metrics::FILE_SYSTEM_INODES_USED, "/"), Some(95.0));
    assert_eq!(value(&found, metrics::FILE_SYSTEM_USED, "/"), Some(10.0));
}

prop_compose! {
    fn any_process()(
        numbers in prop::collection::vec(any::<u64>(), 12),
        threads in prop::collection::btree_map(0u32..20, (any::<u64>(), any::<u64>(), any::<u64>(), 0usize..5), 0..12),
        started in 0u64..2,
        known in any::<[bool; 4]>(),
    ) -> ProcessReading {
        let names = ["conn1", "mongod", "ftdc", "x", ""];
        let threads = threads.into_iter().map(|(id, (run_ns, wait_ns, switches, name))| ThreadReading {
            id, name: names[name].into(), run_ns, wait_ns, switches,
        });
        ProcessReading {
            server: SERVER,
            pid: 77,
            started,
            cpu_ns: [numbers[0], numbers[1]],
            thread_count: numbers[2],
            faults: [numbers[3], numbers[4]],
            resident: numbers[5],
            io: known[0].then_some([numbers[6], numbers[7]]),
            descriptors: known[1].then_some(numbers[8]),
            descriptor_limit: known[2].then_some(numbers[9]),
            threads: threads.collect(),
            control_group: ControlGroup {
                throttled_ns: known[3].then_some(numbers[10]),
                periods: known[3].then_some((numbers[11], numbers[10])),
                ..ControlGroup::default()
            },
            ..ProcessReading::default()
        }
    }
}

prop_compose! {
    fn any_reading()(
        numbers in prop::collection::vec(any::<u64>(), 40),
        processes in prop::collection::vec(any_process(), 0..2),
        devices in 0usize..4,
        clocks in (any::<u64>(), any::<u64>(), any::<u64>()),
    ) -> MachineReading {
        let option = |at: usize| (numbers[at] % 3 > 0).then_some(numbers[at]);
        let pressure = |at: usize| PressureReading { some_us: option(at), full_us: option(at + 1) };
        let both = |at: usize| [numbers[at], numbers[at + 1]];
        MachineReading {
            clocks: MachineClocks {
                realtime: Timestamp::from_unix_ns(clocks.0), monotonic_ns: clocks.1, boot_ns: clocks.2,
            },
            cpu: option(0).map(|_| CpuTicks { ticks: std::array::from_fn(|at| numbers[at] / 16), processors: 2 }),
            tasks: option(8).map(|count| (count, count)),
            load: option(9).map(|load| load as f64),
            pressure_cpu: pressure(10),
            pressure_memory: pressure(12),
            pressure_io: pressure(14),
            memory: MemoryReading { total: option(16), swap_total: option(17), swap_free: option(18), ..MemoryReading::default() },
            vm: VmCounters { swapped_in: option(19), out_of_memory_kills: option(20), ..VmCounters::default() },
            tcp: TcpReading { connections: option(21), retransmitted: option(22), listen_overflows: option(23) },
            interfaces: (0..devices).map(|n| InterfaceReading {
                name: format!("eth{n}").into(), bytes: both(24), packets: both(25), errors: both(26), dropped: both(27),
            }).collect(),
            disks: (0..devices).map(|n| DeviceCounters {
                number: (8, n as u32),
                name: format!("sd{n}"),
                counters: DiskCounters {
                    reads: numbers[28], writes: numbers[29], read_ms: numbers[30], sectors_read: numbers[31],
                    busy_ms: numbers[32], queue_ms: numbers[33], flushes: option(34).map(|count| (count, count)),
                    ..DiskCounters::default()
                },
            }).collect(),
            file_systems: (0..devices).map(|n| FileSystemReading {
                point: format!("/{n}").into(), size: numbers[35], free: numbers[36], available: numbers[37],
                inodes: option(38).map(|all| (all, numbers[39])),
            }).collect(),
            processes,
            left_out: 0,
        }
    }
}

proptest! {
    #[test]
    fn no_readings_panic_or_give_impossible_values(readings in prop::collection::vec(any_reading(), 2..6)) {
        let mut monitor = MachineMonitor::default();
        for reading in readings {
            let found = monitor.step(reading);
            // It checks each value.
            let all = values(&found);
            for ((metric, _), value) in &all {
                let is_share = metric.starts_with("cpu.") && metric.ends_with("_percent") || metric.starts_with("pressure.");
                prop_assert!(!is_share || *value <= 100.0 + 1e-9, "{metric} {value}");
            }
        }
    }

    /// A rate times its seconds is what the counter grew by, whatever the time between readings.
    #[test]
    fn rates_add_up_to_the_counters(growths in prop::collection::vec((1u64..1_000_000, 1u64..100_000), 1..40)) {
        let (mut monitor, mut count, mut now, mut sum) = (MachineMonitor::default(), 7u64, 0u64, 0.0);
        monitor.step(MachineReading { vm: VmCounters { swapped_out: Some(count), ..VmCounters::default() }, ..at(0) });
        for (growth, seconds) in &growths {
            count += growth;
            now += seconds;
            let vm = VmCounters { swapped_out: Some(count), ..VmCounters::default() };
            let found = monitor.step(MachineReading { vm, ..at(now) });
            let rate = value(&found, metrics::MEMORY_SWAP_OUT, "").unwrap();
            sum += rate * found.values[0].2;
        }
        let all: u64 = growths.iter().map(|(growth, _)| growth).sum();
        prop_assert!((sum - all as f64).abs() < 1e-6 * all as f64 + 1e-6);
    }
}
