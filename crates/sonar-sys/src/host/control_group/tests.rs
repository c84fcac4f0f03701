use std::fs;
use std::process::{Child, Command, Stdio};

use super::*;
use crate::tree::TempTree;

const PID: u32 = 77;
/// What version 1 writes for no limit, with pages of 4 KiB.
const NO_LIMIT: &str = "9223372036854771712\n";

/// The groups of process 77 of a machine with these files.
fn groups(name: &str, files: &[(&str, &str)]) -> ProcessGroups {
    let tree = TempTree::new(&format!("groups-{name}"), files);
    let mut found = Host::at(&tree.0).control_groups(PID).unwrap();
    for folder in [&mut found.cpu_folder, &mut found.memory_folder, &mut found.tasks_folder] {
        *folder = folder.take().map(|path| path.strip_prefix(&tree.0).unwrap().to_owned());
    }
    // Another one each time.
    let own = |folder: &Option<PathBuf>| folder.as_ref().map(|path| inode(&tree.0.join(path)).unwrap());
    assert_eq!(found.group.cpu_group, own(&found.cpu_folder));
    assert_eq!(found.group.memory_group, own(&found.memory_folder));
    (found.group.cpu_group, found.group.memory_group) = (None, None);
    found
}

fn folder(path: &str) -> Option<PathBuf> {
    Some(PathBuf::from(path))
}

/// The host of a container (kernel 6.1, cgroup version 2, Kubernetes): the pod has the limit of memory, the container
/// that of processors.
#[test]
fn the_container_of_a_server_is_seen_from_its_host() {
    let pod = "sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice";
    let container = format!("{pod}/cri-containerd-ab.scope");
    let path = |name: &str| format!("{container}/{name}");
    let files = [
        ("proc/77/cgroup".into(), "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-ab.scope\n"),
        (
            "proc/self/mountinfo".into(),
            "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n",
        ),
        (path("cgroup.type"), "domain\n"),
        (path("cpu.max"), "150000 100000\n"),
        (
            path("cpu.stat"),
            "usage_usec 9\nnr_periods 100\nnr_throttled 40\nthrottled_usec 2500\nnr_bursts 0\n",
        ),
        (path("memory.max"), "max\n"),
        (path("memory.current"), "9\n"),
        (path("pids.max"), "max\n"),
        (path("pids.current"), "80\n"),
        (format!("{pod}/cpu.max"), "max 100000\n"),
        (format!("{pod}/memory.max"), "4294967296\n"),
        (format!("{pod}/memory.high"), "4080218931\n"),
        (format!("{pod}/memory.current"), "4209067950\n"),
        (format!("{pod}/memory.stat"), "anon 5\nfile 900\ninactive_file 600\nactive_file 300\nslab 7\n"),
        (format!("{pod}/memory.events"), "low 0\nhigh 30\nmax 12\noom 1\noom_kill 2\noom_group_kill 0\n"),
        (format!("{pod}/pids.max"), "1024\n"),
        (format!("{pod}/pids.current"), "90\n"),
    ];
    let files: Vec<(&str, &str)> =
        files.iter().map(|(path, text): &(String, _)| (path.as_str(), *text)).collect();
    let found = groups("pod", &files);
    let expected = ControlGroup {
        cpu_limit: Some(1.5),
        is_cpu_limit_known: true,
        cpu_group: None,
        throttled_ns: Some(2_500_000),
        periods: Some((100, 40)),
        memory: Some(4_209_067_950),
        memory_limit: Some(4 << 30),
        memory_files: Some(900),
        memory_high: Some(4_080_218_931),
        limit_hits: Some(42),
        memory_limit_hits: Some(13),
        memory_group: None,
        out_of_memory_kills: Some(2),
        tasks: Some(90),
        task_limit: Some(1_024),
    };
    assert_eq!(found.group, expected);
    assert_eq!((found.cpu_folder, found.memory_folder), (folder(&container), folder(pod)));
    assert_eq!(found.tasks_folder, folder(pod));
    assert!(found.is_version_2 && !found.hides_parents);
    assert_eq!(expected.memory_used_percent().map(|percent| percent as u32), Some(97));
}

/// In the same container with a namespace of its own, the group is the root of what is mounted.
#[test]
fn inside_a_container_its_own_group_is_the_root() {
    let files = [
        ("proc/77/cgroup", "0::/\n"),
        ("proc/self/mountinfo", "35 24 0:30 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n"),
        ("sys/fs/cgroup/cgroup.type", "domain\n"),
        ("sys/fs/cgroup/cpu.max", "200000 100000\n"),
        ("sys/fs/cgroup/memory.max", "536870912\n"),
        ("sys/fs/cgroup/memory.current", "1\n"),
    ];
    let found = groups("own", &files);
    assert_eq!((found.group.cpu_limit, found.group.memory_limit), (Some(2.0), Some(512 << 20)));
    assert!(found.hides_parents, "a pod around it may have a lower limit");
}

/// Docker with version 1 mounts the group of the container, and the process sees its whole path.
#[test]
fn a_hierarchy_of_version_1_may_be_mounted_from_the_group_on() {
    let mount = |name: &str| {
        format!("40 30 0:29 /docker/ab /sys/fs/cgroup/{name} ro,nosuid - cgroup cgroup rw,{name}\n")
    };
    let table = ["cpu,cpuacct", "memory", "pids"].map(mount).concat();
    let files = [
        (
            "proc/77/cgroup",
            "6:pids:/docker/ab\n4:memory:/docker/ab\n3:cpu,cpuacct:/docker/ab\n1:name=systemd:/docker/ab\n",
        ),
        ("proc/self/mountinfo", table.as_str()),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", NO_LIMIT),
        ("sys/fs/cgroup/memory/memory.usage_in_bytes", "536870912\n"),
        (
            "sys/fs/cgroup/memory/memory.stat",
            "cache 7\ninactive_file 1\nhierarchical_memory_limit 1073741824\ntotal_inactive_file 20\ntotal_active_file 22\n",
        ),
        ("sys/fs/cgroup/memory/memory.failcnt", "5\n"),
        ("sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"),
        ("sys/fs/cgroup/memory/notify_on_release", "0\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.stat", "nr_periods 10\nnr_throttled 2\nthrottled_time 777\n"),
        ("sys/fs/cgroup/pids/pids.max", "100\n"),
        ("sys/fs/cgroup/pids/pids.current", "99\n"),
    ];
    let found = groups("docker-1", &files);
    let expected = ControlGroup {
        cpu_limit: Some(0.5),
        is_cpu_limit_known: true,
        cpu_group: None,
        throttled_ns: Some(777),
        periods: Some((10, 2)),
        memory: Some(512 << 20),
        // The group above, which is not mounted here, has it.
        memory_limit: Some(1 << 30),
        memory_files: Some(42),
        memory_high: None,
        limit_hits: Some(5),
        memory_limit_hits: Some(5),
        memory_group: None,
        out_of_memory_kills: Some(1),
        tasks: Some(99),
        task_limit: Some(100),
    };
    assert_eq!(found.group, expected);
    assert!(!found.is_version_2 && found.hides_parents);
    assert_eq!(expected.tasks_percent(), Some(99.0));
}

/// A process in a container beside ours, in the same pod: its group is none of ours, but it has mounted it itself.
#[test]
fn the_group_of_a_container_beside_ours_is_seen_as_the_process_sees_it() {
    let files = [
        ("proc/77/cgroup", "0::/../cri-containerd-other.scope\n"),
        ("proc/self/mountinfo", "35 24 0:30 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n"),
        (
            "proc/77/mountinfo",
            "55 44 0:30 /../cri-containerd-other.scope /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
        ),
        ("sys/fs/cgroup/memory.max", "1048576\n"),
        ("proc/77/root/sys/fs/cgroup/memory.max", "2097152\n"),
        ("proc/77/root/sys/fs/cgroup/memory.current", "5\n"),
        ("proc/77/root/sys/fs/cgroup/cgroup.type", "domain\n"),
    ];
    let found = groups("beside", &files);
    assert_eq!((found.group.memory_limit, found.hides_parents), (Some(2 << 20), true));
    // Without permission to look into it, nothing is known: our own limit is not its.
    let hidden = groups("beside-hidden", &files[..4]);
    assert_eq!(hidden.group, ControlGroup::default());
}

#[test]
fn hierarchies_of_both_versions_may_share_the_controllers() {
    let files = [
        ("proc/77/cgroup", "4:memory:/a\n0::/a\n"),
        (
            "proc/self/mountinfo",
            "40 30 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             41 30 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        ),
        ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1048576\n"),
        ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "4\n"),
        ("sys/fs/cgroup/unified/a/cpu.max", "100000 100000\n"),
    ];
    let found = groups("hybrid", &files);
    assert_eq!((found.group.memory_limit, found.group.cpu_limit), (Some(1 << 20), Some(1.0)));
    assert!(!found.is_version_2);
}

#[test]
fn no_limit_is_not_a_large_one() {
    let version_2 = [
        ("proc/77/cgroup", "0::/a/b\n"),
        ("sys/fs/cgroup/a/b/memory.max", "max\n"),
        ("sys/fs/cgroup/a/b/memory.high", "max\n"),
        ("sys/fs/cgroup/a/b/memory.current", "77\n"),
        ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
        ("sys/fs/cgroup/a/b/cpu.stat", "usage_usec 9\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"),
        ("sys/fs/cgroup/a/b/pids.max", "max\n"),
        ("sys/fs/cgroup/a/b/pids.current", "3\n"),
    ];
    let found = groups("max", &version_2);
    let unlimited = ControlGroup {
        is_cpu_limit_known: true,
        memory: Some(77),
        tasks: Some(3),
        ..ControlGroup::default()
    };
    assert_eq!((found.group, &found.cpu_folder, &found.tasks_folder), (unlimited, &None, &None));
    assert_eq!((unlimited.memory_used_percent(), unlimited.tasks_percent()), (None, None));
    let version_1 = [
        ("proc/77/cgroup", "3:cpu:/a\n4:memory:/a\n"),
        ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", NO_LIMIT),
        ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "77\n"),
        ("sys/fs/cgroup/memory/a/memory.stat", "hierarchical_memory_limit 9223372036854771712\n"),
        ("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n"),
        ("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"),
    ];
    let found = groups("max-1", &version_1);
    let unlimited = ControlGroup { is_cpu_limit_known: true, memory: Some(77), ..ControlGroup::default() };
    assert_eq!(found.group, unlimited);
    // A quota that cannot be read is not the lack of one.
    for text in ["", "x", "1 2 3"] {
        let found = groups("no-quota", &[("proc/77/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/cpu.max", text)]);
        assert!(!found.group.is_cpu_limit_known, "{text}");
    }
    let found = groups("no-file", &[("proc/77/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/memory.max", "1")]);
    assert!(!found.group.is_cpu_limit_known);
}

#[test]
fn a_machine_without_control_groups_has_no_limits() {
    assert_eq!(Host::at("/nonexistent").control_groups(PID), None);
    assert_eq!(groups("none", &[("proc/77/cgroup", "")]), ProcessGroups::default());
    let broken = [
        ("proc/77/cgroup", "x\n0:\n0::relative\n"),
        ("sys/fs/cgroup/relative/memory.max", "1\n"),
        ("sys/fs/cgroup/cpu.max", "1\n"),
    ];
    assert_eq!(groups("broken", &broken).group, ControlGroup::default());
}

/// A group that is removed when dropped, and a process in it.
struct RealGroup(Vec<PathBuf>, Child);

impl RealGroup {
    /// `None` where groups cannot be made.
    fn new(name: &str) -> Option<Self> {
        let child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let own = MountedHierarchies::own(&Host::live());
        let mut group = Self(Vec::new(), child);
        for mount in own.mounts.iter().filter(|mount| mount.root == Path::new("/")) {
            let is_wanted = mount.kind == "cgroup2" || mount.has("memory") || mount.has("pids");
            let folder = mount.point.join(name);
            if !is_wanted || fs::create_dir(&folder).is_err() {
                continue;
            }
            group.0.push(folder.clone());
            fs::write(folder.join("cgroup.procs"), group.1.id().to_string()).ok()?;
        }
        (!group.0.is_empty()).then_some(group)
    }
}

impl Drop for RealGroup {
    fn drop(&mut self) {
        self.1.kill().ok();
        self.1.wait().ok();
        for folder in &self.0 {
            fs::remove_dir(folder).ok();
        }
    }
}

/// This kernel's control groups: limits that are set are read, and those that are lifted are gone.
#[test]
fn limits_of_a_real_group_are_read() {
    let Some(group) = RealGroup::new(&format!("sonar-sys-{}", std::process::id())) else {
        eprintln!("skipped: no control group can be made here (needs root and a writable /sys/fs/cgroup)");
        return;
    };
    let set = |names: [&str; 2], text: &str| {
        group.0.iter().any(|folder| names.iter().any(|name| fs::write(folder.join(name), text).is_ok()))
    };
    let now = || Host::live().control_groups(group.1.id()).unwrap().group;
    let (has_memory, has_tasks) =
        (set(["memory.max", "memory.limit_in_bytes"], "1073741824"), set(["pids.max", "pids.max"], "33"));
    if !has_memory && !has_tasks {
        eprintln!("skipped: neither memory nor tasks can be limited here");
        return;
    }
    let limited = now();
    assert_eq!(limited.memory_limit, has_memory.then_some(1 << 30), "{limited:?}");
    assert_eq!((limited.task_limit, limited.tasks), (has_tasks.then_some(33), has_tasks.then_some(1)));
    set(["memory.max", "memory.limit_in_bytes"], "-1");
    set(["memory.max", "memory.max"], "max");
    set(["pids.max", "pids.max"], "max");
    // Groups around this one may have limits of their own.
    let lifted = now();
    assert!(lifted.memory_limit != Some(1 << 30) && lifted.task_limit != Some(33), "{lifted:?}");
}
