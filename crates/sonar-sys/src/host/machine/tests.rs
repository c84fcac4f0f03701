use sonar_core::Endpoint;
use sonar_core::machine::{ControlGroup, MachineMonitor, MachineReading, ProcessReading, WatchedProcess};

use super::*;
use crate::tree::TempTree;

const SERVER: Endpoint = Endpoint::v4([0; 4], 27_117);

/// Files of a real machine (kernel 6.18) with a mongod 4.4, shortened.
const RECORDED: [(&str, &str); 16] = [
    (
        "proc/stat",
        "cpu  377873 1083485 129127 207111 1043 0 1695 3098 0 0\ncpu0 188455 543566 63462 103616 622 0 403 1569 0 0\n\
         cpu1 189418 539918 65664 103495 420 0 1291 1529 0 0\nintr 12555987 0 0\nctxt 24910279\nbtime 1795287178\n\
         processes 142289\nprocs_running 6\nprocs_blocked 0\nsoftirq 4844835 0 461232\n",
    ),
    ("proc/loadavg", "0.79 0.65 1.11 6/234 12507\n"),
    (
        "proc/pressure/cpu",
        "some avg10=19.03 avg60=7.09 avg300=5.89 total=4299091127\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    ),
    (
        "proc/pressure/io",
        "some avg10=0.06 avg60=0.15 avg300=0.27 total=91793867\nfull avg10=0.06 avg60=0.14 avg300=0.24 total=6803878\n",
    ),
    (
        "proc/meminfo",
        "MemTotal:       24731708 kB\nMemFree:        23137148 kB\nMemAvailable:   23687964 kB\n\
         Buffers:            7560 kB\nCached:           828392 kB\nSwapCached:            0 kB\nSwapTotal:             0 kB\n\
         SwapFree:              0 kB\nDirty:            346236 kB\nWriteback:             0 kB\nAnonHugePages:         0 kB\n",
    ),
    (
        "proc/vmstat",
        "pswpin 0\npswpout 0\nallocstall_dma 0\nallocstall_normal 3\npgmajfault 5521\noom_kill 0\nthp_fault_alloc 150\nthp_fault_fallback 0\n",
    ),
    (
        "proc/diskstats",
        "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n \
         254       0 vda 3452208 23367 66305314 512583 1410163 218238 57524176 624085 0 172648 1228202 57274 24 16706720 13044 625502 78488\n \
         254       1 vda1 3452208 23367 66305314 512583 1410163 218238 57524176 624085 0 172648 1228202 0 0 0 0 0 0\n",
    ),
    ("sys/block/vda/dev", "254:0\n"),
    (
        "proc/net/dev",
        "Inter-|   Receive                                                |  Transmit\n \
         face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
         lo: 685283456  180242    0    0    0     0          0         0 685283456  180242    0    0    0     0       0          0\n  \
         ifb0:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0\n  \
         eth0: 627180610   30108    0    0    0     0          0         0  2149547   24237    0    0    0     0       0          0\n",
    ),
    ("proc/net/snmp", "Tcp: RtoAlgorithm CurrEstab InSegs OutSegs RetransSegs\nTcp: 1 12 100 90 4\n"),
    (
        "proc/net/netstat",
        "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 0 2 2\nIpExt: InNoRoutes\nIpExt: 0\n",
    ),
    (
        "proc/12309/stat",
        "12309 (mongod) S 12301 12296 12296 0 -1 4194560 101079 0 23 0 557 59 0 0 20 0 78 0 898906 1864437760 82126 \
         18446744073709551615 94453781544960 94453836124520 140730672920624 0 0 0 8407555 6147 1260 0 0 0 17 1 0 0 0 0 0 0\n",
    ),
    (
        "proc/12309/status",
        "Name:\tmongod\nVmRSS:\t  328692 kB\nRssAnon:\t  275668 kB\nRssFile:\t   53024 kB\nVmSwap:\t       0 kB\n",
    ),
    (
        "proc/12309/io",
        "rchar: 49704796\nwchar: 271933483\nread_bytes: 11157504\nwrite_bytes: 258818048\ncancelled_write_bytes: 40960\n",
    ),
    (
        "proc/12309/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n\
         Max open files            20000                20000                files     \n",
    ),
    ("proc/12309/fd/7", ""),
];

fn tree(name: &str, more: &[(&str, &str)]) -> TempTree {
    let files: Vec<_> = RECORDED.into_iter().chain(more.iter().copied()).collect();
    TempTree::new(name, &files)
}

fn read(tree: &TempTree) -> MachineReading {
    let servers = [WatchedProcess { pid: 12_309, server: SERVER }];
    MachineReader::new(Host::at(&tree.0)).read(&servers)
}

#[test]
fn a_recorded_machine_is_read() {
    let threads = [
        ("proc/12309/task/12309/schedstat", "5000000 1000 7\n"),
        ("proc/12309/task/12309/comm", "mongod\n"),
        ("proc/12309/task/12400/schedstat", "44000000 2000 90\n"),
        ("proc/12309/task/12400/comm", "conn17\n"),
        ("proc/12309/task/12401/comm", "conn18\n"),
    ];
    let tree = tree("machine", &threads);
    let reading = read(&tree);
    let cpu = reading.cpu.unwrap();
    assert_eq!(
        (cpu.ticks, cpu.processors),
        ([377_873, 1_083_485, 129_127, 207_111, 1_043, 0, 1_695, 3_098], 2)
    );
    assert_eq!((reading.tasks, reading.load), (Some((6, 0)), Some(0.79)));
    assert_eq!((reading.pressure_cpu.some_us, reading.pressure_cpu.full_us), (Some(4_299_091_127), None));
    assert_eq!(reading.pressure_io.full_us, Some(6_803_878));
    assert_eq!(reading.pressure_memory, Default::default(), "this file is not there");
    assert_eq!(reading.memory.dirty, Some(346_236 << 10));
    assert_eq!((reading.vm.major_faults, reading.vm.direct_reclaims), (Some(5_521), Some(3)));
    assert_eq!(
        (reading.tcp.connections, reading.tcp.retransmitted, reading.tcp.listen_overflows),
        (Some(12), Some(4), Some(2))
    );
    let names: Vec<&str> = reading.interfaces.iter().map(|found| &*found.name).collect();
    assert_eq!(names, ["lo", "eth0"], "nothing passed ifb0");
    assert_eq!(
        reading.disks.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>(),
        ["vda"],
        "a partition is not whole"
    );
    assert_eq!(reading.left_out, 0);
    let [process] = &reading.processes[..] else { panic!("{:?}", reading.processes) };
    assert_eq!(
        (process.server, process.pid, process.started, process.thread_count),
        (SERVER, 12_309, 898_906, 78)
    );
    assert_eq!(process.cpu_ns, [5_570_000_000, 590_000_000]);
    assert_eq!((process.faults, process.resident), ([101_079, 23], 82_126 * 4_096));
    assert_eq!((process.anonymous, process.swapped), (Some(275_668 << 10), Some(0)));
    assert_eq!(process.io, None, "whoever reads it may have to wait");
    let bytes = Host::at(&tree.0).bytes_of(12_309).unwrap();
    assert_eq!([bytes.read, bytes.written], [11_157_504, 258_818_048]);
    assert_eq!(process.descriptor_limit, Some(20_000));
    // A thread without times has ended.
    let threads: Vec<_> =
        process.threads.iter().map(|one| (one.id, &*one.name, one.run_ns, one.switches)).collect();
    assert_eq!(threads, [(12_309, "mongod", 5_000_000, 7), (12_400, "conn17", 44_000_000, 90)]);
}

#[test]
fn what_is_missing_or_broken_is_absent() {
    let nothing =
        MachineReader::new(Host::at("/nonexistent")).read(&[WatchedProcess { pid: 1, server: SERVER }]);
    let clocks = nothing.clocks;
    assert_eq!(nothing, MachineReading { clocks, ..MachineReading::default() });
    let files = RECORDED.map(|(path, _)| (path, "broken: \u{0} x\n: 1 2\n-1 -1\nsome total=\n"));
    let tree = TempTree::new("machine-broken", &files);
    let broken = read(&tree);
    assert_eq!((broken.cpu, broken.load, broken.tasks), (None, None, None));
    assert!(broken.processes.is_empty() && broken.disks.is_empty() && broken.interfaces.is_empty());
}

#[test]
fn a_kernel_without_times_of_threads_has_none() {
    let threads =
        [("proc/12309/task/12309/schedstat", "0 0 0\n"), ("proc/12309/task/12309/comm", "mongod\n")];
    assert_eq!(read(&tree("machine-schedstat", &threads)).processes[0].threads, []);
}

#[test]
fn the_tightest_control_group_of_version_2_counts() {
    let slice = "sys/fs/cgroup/system.slice";
    let files = [
        ("proc/12309/cgroup", "0::/system.slice/mongod.service\n".to_owned()),
        (&format!("{slice}/mongod.service/cpu.max"), "max 100000\n".to_owned()),
        (
            &format!("{slice}/mongod.service/cpu.stat"),
            "usage_usec 9\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n".to_owned(),
        ),
        (&format!("{slice}/mongod.service/memory.max"), "4294967296\n".to_owned()),
        (&format!("{slice}/mongod.service/memory.current"), "2147483648\n".to_owned()),
        (&format!("{slice}/cpu.max"), "150000 100000\n".to_owned()),
        (
            &format!("{slice}/cpu.stat"),
            "usage_usec 9\nnr_periods 100\nnr_throttled 40\nthrottled_usec 2500\n".to_owned(),
        ),
        (&format!("{slice}/memory.max"), "max\n".to_owned()),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let group = read(&tree("cgroup-2", &files)).processes[0].control_group;
    let expected = ControlGroup {
        cpu_limit: Some(1.5),
        is_cpu_limit_known: true,
        cpu_group: group.cpu_group,
        memory_group: group.memory_group,
        throttled_ns: Some(2_500_000),
        periods: Some((100, 40)),
        memory: Some(2 << 30),
        memory_limit: Some(4 << 30),
        ..ControlGroup::default()
    };
    assert_eq!(group, expected);
}

#[test]
fn control_groups_of_version_1_have_other_files() {
    let files = [
        ("proc/12309/cgroup", "9:name=systemd:/x\n4:memory:/docker/ab\n3:cpu,cpuacct:/docker/ab\n0::/x\n"),
        ("sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes", "1073741824\n"),
        ("sys/fs/cgroup/memory/docker/ab/memory.usage_in_bytes", "536870912\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_quota_us", "200000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_period_us", "100000\n"),
        (
            "sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.stat",
            "nr_periods 10\nnr_throttled 2\nthrottled_time 777\n",
        ),
        ("sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "-1\n"),
        ("sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", "100000\n"),
    ];
    let group = read(&tree("cgroup-1", &files)).processes[0].control_group;
    let expected = ControlGroup {
        cpu_limit: Some(2.0),
        is_cpu_limit_known: true,
        cpu_group: group.cpu_group,
        memory_group: group.memory_group,
        throttled_ns: Some(777),
        periods: Some((10, 2)),
        memory: Some(512 << 20),
        memory_limit: Some(1 << 30),
        ..ControlGroup::default()
    };
    assert_eq!(group, expected);
}

#[test]
fn a_process_without_limits_has_its_memory_and_no_limits() {
    let files = [
        ("proc/12309/cgroup", "0::/a\n"),
        ("sys/fs/cgroup/a/memory.max", "max\n"),
        ("sys/fs/cgroup/a/memory.current", "77\n"),
        ("sys/fs/cgroup/a/cpu.max", "max 100000\n"),
    ];
    let group = read(&tree("cgroup-none", &files)).processes[0].control_group;
    let expected = ControlGroup {
        is_cpu_limit_known: true,
        memory_group: group.memory_group,
        memory: Some(77),
        ..ControlGroup::default()
    };
    assert_eq!(group, expected);
    // A path that leads out of the hierarchy, as in a container, is not followed.
    let outside = [("proc/12309/cgroup", "0::/../../etc\n"), ("sys/fs/cgroup/x", "")];
    assert_eq!(read(&tree("cgroup-out", &outside)).processes[0].control_group, ControlGroup::default());
}

/// This machine's kernel: a process that works for a moment, with threads that come and go.
#[test]
fn this_process_is_read_while_it_works() {
    let servers = [WatchedProcess { pid: std::process::id(), server: SERVER }];
    let mut reader = MachineReader::new(Host::live());
    let mut monitor = MachineMonitor::default();
    let first = reader.read(&servers);
    assert!(first.cpu.is_some() && first.load.is_some() && first.memory.available.is_some());
    assert!(first.vm.major_faults.is_some() && first.tcp.connections.is_some());
    monitor.step(first);
    // Of processor time, which a busy machine may give it late.
    let busy = || {
        let used = || nanoseconds(ClockId::ThreadCPUTime);
        let begin = used();
        let mut sum = 0u64;
        while used() - begin < 300_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
    };
    std::thread::Builder::new().name("conn1".to_owned()).spawn(busy).unwrap().join().unwrap();
    busy();
    let second = reader.read(&servers);
    let process: &ProcessReading = &second.processes[0];
    assert!(process.resident > 1 << 20 && process.descriptors.is_some_and(|count| count > 2));
    assert!(process.thread_count as usize >= process.threads.len());
    let step = monitor.step(second);
    let of = |metric: &str, name: &str| {
        let found = step.values.iter().find(|(key, ..)| *key.metric == *metric && *key.name == *name);
        found.map(|(_, value, _)| *value)
    };
    // Seconds of processor time.
    let used = |percent: f64| percent / 100.0 * step.values[0].2;
    let cpu = of("process.cpu_user_percent", "").unwrap() + of("process.cpu_system_percent", "").unwrap();
    let (cpu, ended) = (used(cpu), used(of("threads.cpu_percent", "ended threads").unwrap()));
    let roles: f64 = step
        .values
        .iter()
        .filter(|(key, ..)| *key.metric == *"threads.cpu_percent")
        .map(|(_, value, _)| used(*value))
        .sum();
    // Other tests may run in this process at the same time; the process' time is counted in ticks.
    assert!(cpu > 0.5 && ended > 0.2, "{cpu} {ended}");
    assert!(roles >= cpu - 0.1, "{roles} of {cpu}");
    assert!(of("cpu.busy_percent", "").is_some_and(|busy| (0.0..=100.0).contains(&busy)));
}
