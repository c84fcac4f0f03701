//! The control groups of a process: what it may use, and what it was denied (Documentation/admin-guide/cgroup-v2.rst,
//! cgroup-v1/memory.rst, cgroup-v1/pids.rst, scheduler/sched-bwc.rst).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use sonar_core::machine::ControlGroup;

use super::Host;
use super::machine::text::TextBuffer;
use super::mounts::Mount;

/// The most levels of groups.
const MAX_LEVELS: usize = 32;
/// From here on a limit of version 1 is none: it rounds the largest number down to a page.
const UNLIMITED: u64 = 1 << 62;
/// Where hierarchies of version 1 are if no table of mounts says so: the controller and the name below
/// `/sys/fs/cgroup`.
const USUAL_1: [(&str, &str); 4] =
    [("cpu", "cpu,cpuacct"), ("cpu", "cpu"), ("memory", "memory"), ("pids", "pids")];

/// The control groups of a process: its limits, and where they come from.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProcessGroups {
    /// The smallest limits of all groups that the process is in, and the counters of the groups that have them.
    pub group: ControlGroup,
    /// The folder of the group that limits processor time.
    pub cpu_folder: Option<PathBuf>,
    /// The folder of the group that limits memory, else of the process' own group.
    pub memory_folder: Option<PathBuf>,
    /// The folder of the group that limits the number of tasks.
    pub tasks_folder: Option<PathBuf>,
    /// Whether memory is limited by version 2.
    pub is_version_2: bool,
    /// There are groups above those that can be seen from here, as in a container; they may limit it more.
    pub hides_parents: bool,
}

/// The groups of a process in one hierarchy.
#[derive(Debug, Default)]
struct GroupChain {
    /// The folders of its group and those above, as far as they can be seen.
    folders: Vec<PathBuf>,
    is_version_2: bool,
}

/// A group whose limit counts.
#[derive(Clone, Debug, PartialEq)]
struct LimitingGroup<T> {
    folder: PathBuf,
    limit: Option<T>,
    is_version_2: bool,
}

/// Where the groups of a process are that limit it most.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GroupFiles {
    cpu: Option<LimitingGroup<f64>>,
    memory: Option<LimitingGroup<u64>>,
    /// The smallest `memory.high`.
    memory_high: Option<u64>,
    tasks: Option<LimitingGroup<u64>>,
    hides_parents: bool,
}

/// Mounted hierarchies, as a process sees them.
struct MountedHierarchies {
    mounts: Vec<Mount>,
    root: PathBuf,
}

impl MountedHierarchies {
    /// As this process sees them; where they usually are if nothing says so.
    fn own(host: &Host) -> Self {
        let tables = ["self", "1"].into_iter().filter_map(|pid| host.mounts(pid).ok());
        let mounts = tables.map(hierarchies).find(|found| !found.is_empty());
        Self { mounts: mounts.unwrap_or_else(usual), root: host.root().to_path_buf() }
    }

    /// As a process sees them: in a container beside ours, its own group is mounted, which is none of ours.
    fn of_process(host: &Host, pid: u32) -> Self {
        let mounts = host.mounts(&pid.to_string()).map(hierarchies).unwrap_or_default();
        Self { mounts, root: host.path(&format!("proc/{pid}/root")) }
    }

    /// The groups from `path` up that have a controller.
    fn chain(&self, controller: &str, place: &GroupPlace<'_>) -> Option<GroupChain> {
        let GroupPlace { path, is_version_2 } = *place;
        let has_it = |mount: &&Mount| match is_version_2 {
            true => mount.kind == "cgroup2",
            false => mount.kind == "cgroup" && mount.has(controller),
        };
        self.mounts.iter().filter(has_it).find_map(|mount| {
            // Both are as seen from the root of our cgroup namespace.
            let below = Path::new(path).strip_prefix(&mount.root).ok()?;
            let is_outside = below.components().any(|part| part == Component::ParentDir);
            let top = self.root.join(mount.point.strip_prefix("/").ok()?);
            let own = top.join(below);
            (!is_outside && own.is_dir()).then(|| {
                let above = own.ancestors().take_while(|folder| folder.starts_with(&top));
                GroupChain { folders: above.take(MAX_LEVELS).map(Path::to_owned).collect(), is_version_2 }
            })
        })
    }
}

fn hierarchies(mut mounts: Vec<Mount>) -> Vec<Mount> {
    mounts.retain(|mount| mount.kind == "cgroup" || mount.kind == "cgroup2");
    mounts
}

fn usual() -> Vec<Mount> {
    let mount = |kind: &str, below: &str, option: &str| Mount {
        device: (0, 0),
        root: "/".into(),
        point: format!("/sys/fs/cgroup{below}").into(),
        kind: kind.to_owned(),
        source: kind.to_owned(),
        options: vec![option.to_owned()],
    };
    let first = USUAL_1.map(|(controller, name)| mount("cgroup", &format!("/{name}"), controller));
    first.into_iter().chain(["/unified", ""].map(|below| mount("cgroup2", below, "rw"))).collect()
}

impl GroupFiles {
    /// Finds the groups of a process; `None` if its `/proc/PID/cgroup` cannot be read.
    pub fn find(host: &Host, pid: u32, buffer: &mut TextBuffer) -> Option<Self> {
        let text = buffer.read(&host.path(&format!("proc/{pid}/cgroup")))?.to_owned();
        let own = MountedHierarchies::own(host);
        let chain = |controller: &str| {
            let place = group_place(&text, controller)?;
            let seen = own.chain(controller, &place);
            seen.or_else(|| MountedHierarchies::of_process(host, pid).chain(controller, &place))
        };
        let [cpu, memory, tasks] =
            ["cpu", "memory", "pids"].map(|controller| chain(controller).unwrap_or_default());
        let hides_parents = [&cpu, &memory, &tasks].into_iter().any(hides_parents);
        let memory_high = smallest(&memory, |folder| number(&folder.join("memory.high"), buffer));
        let top = memory.folders.last().cloned();
        let memory_limit = |folder: &Path| match memory.is_version_2 {
            true => number(&folder.join("memory.max"), buffer),
            false => memory_limit(folder, top.as_deref() == Some(folder), buffer),
        };
        Some(Self {
            memory: limiting(&memory, memory_limit),
            cpu: limiting(&cpu, |folder| cpu_limit(folder, cpu.is_version_2, buffer)),
            memory_high: memory_high.and_then(|group| group.limit),
            tasks: limiting(&tasks, |folder| number(&folder.join("pids.max"), buffer)),
            hides_parents,
        })
    }

    /// Reads what the groups count now.
    pub fn read(&self, buffer: &mut TextBuffer) -> ControlGroup {
        let mut group = ControlGroup { memory_high: self.memory_high, ..ControlGroup::default() };
        // Limits may be changed while it runs.
        if let Some(LimitingGroup { folder, is_version_2, .. }) = &self.cpu {
            group.cpu_limit = cpu_limit(folder, *is_version_2, buffer);
            group.is_cpu_limit_known =
                group.cpu_limit.is_some() || has_no_cpu_limit(folder, *is_version_2, buffer);
            group.cpu_group = group.cpu_limit.and_then(|_| inode(folder));
        }
        if let Some(LimitingGroup { folder, is_version_2, .. }) = &self.cpu
            && group.cpu_limit.is_some()
            && let Some(text) = buffer.read(&folder.join("cpu.stat"))
        {
            group.periods = counted(text, "nr_periods").zip(counted(text, "nr_throttled"));
            group.throttled_ns = match is_version_2 {
                true => counted(text, "throttled_usec").and_then(|us| us.checked_mul(1_000)),
                false => counted(text, "throttled_time"),
            };
        }
        if let Some(memory) = &self.memory {
            memory.read_memory(buffer, &mut group);
        }
        if let Some(LimitingGroup { folder, limit, .. }) = &self.tasks {
            group.tasks = number(&folder.join("pids.current"), buffer);
            group.task_limit = *limit;
        }
        group
    }

    /// The groups with what they count now.
    fn groups(self, buffer: &mut TextBuffer) -> ProcessGroups {
        ProcessGroups {
            group: self.read(buffer),
            is_version_2: self.memory.as_ref().is_some_and(|memory| memory.is_version_2),
            cpu_folder: self.cpu.filter(|cpu| cpu.limit.is_some()).map(|cpu| cpu.folder),
            memory_folder: self.memory.map(|memory| memory.folder),
            tasks_folder: self.tasks.filter(|tasks| tasks.limit.is_some()).map(|tasks| tasks.folder),
            hides_parents: self.hides_parents,
        }
    }
}

impl LimitingGroup<u64> {
    fn read_memory(&self, buffer: &mut TextBuffer, group: &mut ControlGroup) {
        let Self { folder, is_version_2, .. } = self;
        group.memory_limit = match is_version_2 {
            true => number(&folder.join("memory.max"), buffer),
            false => memory_limit(folder, true, buffer),
        };
        group.memory_group = inode(folder);
        let (usage, prefix) = match is_version_2 {
            true => ("memory.current", ""),
            false => ("memory.usage_in_bytes", "total_"),
        };
        group.memory = number(&folder.join(usage), buffer);
        if let Some(text) = buffer.read(&folder.join("memory.stat")) {
            let of = |name: &str| counted(text, &format!("{prefix}{name}"));
            let files = of("inactive_file").zip(of("active_file"));
            group.memory_files = files.map(|(inactive, active)| inactive.saturating_add(active));
        }
        if *is_version_2 {
            if let Some(text) = buffer.read(&folder.join("memory.events")) {
                let (high, max) = (counted(text, "high"), counted(text, "max"));
                group.limit_hits = high.zip(max).map(|(high, max)| high.saturating_add(max));
                group.memory_limit_hits =
                    max.map(|max| max.saturating_add(counted(text, "oom").unwrap_or(0)));
                group.out_of_memory_kills = counted(text, "oom_kill");
            }
        } else {
            group.limit_hits = number(&folder.join("memory.failcnt"), buffer);
            group.memory_limit_hits = group.limit_hits;
            let control = buffer.read(&folder.join("memory.oom_control"));
            group.out_of_memory_kills = control.and_then(|text| counted(text, "oom_kill"));
        }
    }
}

impl Host {
    /// The control groups of a process and what they count now; `None` if they cannot be seen.
    pub fn control_groups(&self, pid: u32) -> Option<ProcessGroups> {
        let mut buffer = TextBuffer::default();
        Some(GroupFiles::find(self, pid, &mut buffer)?.groups(&mut buffer))
    }
}

/// Where the group of a process is in a hierarchy.
struct GroupPlace<'a> {
    path: &'a str,
    is_version_2: bool,
}

/// The group of a process that has a controller, by the text of its `/proc/PID/cgroup`.
fn group_place<'a>(text: &'a str, controller: &str) -> Option<GroupPlace<'a>> {
    let path = |wanted: &str| {
        text.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|name| name == wanted).then_some(path)
        })
    };
    // A controller is in one hierarchy only: where version 1 does not have it, version 2 has.
    let first = path(controller).map(|path| GroupPlace { path, is_version_2: false });
    first.or_else(|| path("").map(|path| GroupPlace { path, is_version_2: true }))
}

/// Whether the topmost visible group has others above it: these files are in none or only in the topmost.
fn hides_parents(chain: &GroupChain) -> bool {
    let has = |folder: &PathBuf, name: &str| folder.join(name).exists();
    chain.folders.last().is_some_and(|top| match chain.is_version_2 {
        true => has(top, "cgroup.type"),
        false => has(top, "notify_on_release") && !has(top, "release_agent"),
    })
}

/// The group with the smallest limit.
fn smallest<T: PartialOrd + Copy>(
    chain: &GroupChain,
    mut limit: impl FnMut(&Path) -> Option<T>,
) -> Option<LimitingGroup<T>> {
    let mut found: Option<LimitingGroup<T>> = None;
    for folder in &chain.folders {
        let Some(own) = limit(folder) else { continue };
        if found.as_ref().and_then(|group| group.limit).is_none_or(|least| own < least) {
            let is_version_2 = chain.is_version_2;
            found = Some(LimitingGroup { folder: folder.clone(), limit: Some(own), is_version_2 });
        }
    }
    found
}

/// The group with the smallest limit, else the first one.
fn limiting<T: PartialOrd + Copy>(
    chain: &GroupChain,
    limit: impl FnMut(&Path) -> Option<T>,
) -> Option<LimitingGroup<T>> {
    let first = || {
        let (folder, is_version_2) = (chain.folders.first()?.clone(), chain.is_version_2);
        Some(LimitingGroup { folder, limit: None, is_version_2 })
    };
    smallest(chain, limit).or_else(first)
}

/// How many processors a group allows.
fn cpu_limit(folder: &Path, is_version_2: bool, buffer: &mut TextBuffer) -> Option<f64> {
    let (quota, period) = if is_version_2 {
        // `QUOTA PERIOD`, where the quota may be `max`.
        let text = buffer.read(&folder.join("cpu.max"))?;
        let (quota, period) = text.trim_end().split_once(' ')?;
        (parsed(quota)?, parsed(period)?)
    } else {
        // A quota of -1 is none.
        let quota = number(&folder.join("cpu.cfs_quota_us"), buffer)?;
        (quota, number(&folder.join("cpu.cfs_period_us"), buffer)?)
    };
    (period > 0).then(|| quota as f64 / period as f64)
}

/// Whether a group says that it has no quota.
fn has_no_cpu_limit(folder: &Path, is_version_2: bool, buffer: &mut TextBuffer) -> bool {
    let (name, none) = if is_version_2 { ("cpu.max", "max") } else { ("cpu.cfs_quota_us", "-1") };
    let text = buffer.read(&folder.join(name));
    text.and_then(|text| text.split_whitespace().next()) == Some(none)
}

/// The number of a folder on its file system; that of a group of version 2 is the group's id.
fn inode(folder: &Path) -> Option<u64> {
    fs::metadata(folder).ok().map(|folder| folder.ino())
}

/// Bytes that a group of version 1 allows; `with_inherited`: at most those of the groups above it, also of those that
/// cannot be seen.
fn memory_limit(folder: &Path, with_inherited: bool, buffer: &mut TextBuffer) -> Option<u64> {
    let own = number(&folder.join("memory.limit_in_bytes"), buffer);
    let stat = with_inherited.then(|| buffer.read(&folder.join("memory.stat"))).flatten();
    let inherited = stat.and_then(|text| counted(text, "hierarchical_memory_limit"));
    own.into_iter().chain(inherited).filter(|limit| *limit < UNLIMITED).min()
}

/// The number in a file; `None` for `max` and -1.
fn number(path: &Path, buffer: &mut TextBuffer) -> Option<u64> {
    parsed(buffer.read(path)?)
}

fn parsed(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The number after a name, of lines `NAME NUMBER`.
fn counted(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| parsed(line.strip_prefix(name)?.strip_prefix(' ')?))
}

#[cfg(test)]
mod tests;
