//! The limits of the control group of a process (Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst,
//! scheduler/sched-bwc.rst).

use std::path::{Path, PathBuf};

use sonar_core::machine::ControlGroup;

use super::super::Host;
use super::text::TextBuffer;

/// The most levels of groups.
const MAX_LEVELS: usize = 32;
/// From here on a limit of version 1 is none: it rounds the largest number down to a page.
const UNLIMITED: u64 = 1 << 62;

/// Where the groups of a process are that limit it most.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GroupFiles {
    /// The folder with the smallest limit of processor time, and the limit in processors.
    cpu: Option<(PathBuf, f64)>,
    /// The folder with the smallest limit of memory, else that of the process; and the limit in bytes.
    memory: Option<(PathBuf, Option<u64>)>,
    is_version_2: bool,
}

impl GroupFiles {
    /// Finds the groups of a process by the text of `/proc/PID/cgroup`.
    pub fn find(host: &Host, text: &str, buffer: &mut TextBuffer) -> Self {
        let path = |wanted: &str| {
            text.lines().find_map(|line| {
                let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                let is_it = controllers.split(',').any(|name| name == wanted);
                (is_it && !path.split('/').any(|part| part == "..")).then_some(path)
            })
        };
        let root = |names: &[&str]| {
            names.iter().map(|name| host.path(&format!("sys/fs/cgroup{name}"))).find(|root| root.is_dir())
        };
        // A controller is in one hierarchy only: where version 1 has none of them, version 2 has them.
        if path("memory").is_none() && path("cpu").is_none() {
            let unified = root(&["/unified", ""]).zip(path(""));
            let chain = unified.map(|(root, path)| chain(&root, path)).unwrap_or_default();
            let cpu = smallest(&chain, |folder| cpu_limit_2(folder, buffer));
            let memory = memory(&chain, |folder| number(&folder.join("memory.max"), buffer));
            return Self { cpu, memory, is_version_2: true };
        }
        let cpu = root(&["/cpu,cpuacct", "/cpu"]).zip(path("cpu"));
        let cpu = cpu.map(|(root, path)| chain(&root, path)).unwrap_or_default();
        let memory_chain = root(&["/memory"]).zip(path("memory"));
        let memory_chain = memory_chain.map(|(root, path)| chain(&root, path)).unwrap_or_default();
        let limit = |folder: &Path, buffer: &mut TextBuffer| {
            number(&folder.join("memory.limit_in_bytes"), buffer).filter(|limit| *limit < UNLIMITED)
        };
        Self {
            cpu: smallest(&cpu, |folder| cpu_limit_1(folder, buffer)),
            memory: memory(&memory_chain, |folder| limit(folder, buffer)),
            is_version_2: false,
        }
    }

    /// Reads what the groups count now.
    pub fn read(&self, buffer: &mut TextBuffer) -> ControlGroup {
        let mut group = ControlGroup::default();
        if let Some((folder, limit)) = &self.cpu {
            group.cpu_limit = Some(*limit);
            if let Some(text) = buffer.read(&folder.join("cpu.stat")) {
                let of = |name: &str| text.lines().find_map(|line| parsed(line.strip_prefix(name)?));
                group.periods = of("nr_periods ").zip(of("nr_throttled "));
                group.throttled_ns = if self.is_version_2 {
                    of("throttled_usec ").and_then(|us| us.checked_mul(1_000))
                } else {
                    of("throttled_time ")
                };
            }
        }
        if let Some((folder, limit)) = &self.memory {
            let name = if self.is_version_2 { "memory.current" } else { "memory.usage_in_bytes" };
            group.memory = number(&folder.join(name), buffer);
            group.memory_limit = *limit;
        }
        group
    }
}

/// The folders from a group up to the root of its hierarchy.
fn chain(root: &Path, path: &str) -> Vec<PathBuf> {
    let own = root.join(path.trim_start_matches('/'));
    own.ancestors()
        .take_while(|folder| folder.starts_with(root))
        .take(MAX_LEVELS)
        .map(Path::to_owned)
        .collect()
}

/// The folder with the smallest limit.
fn smallest(chain: &[PathBuf], mut limit: impl FnMut(&Path) -> Option<f64>) -> Option<(PathBuf, f64)> {
    let limits = chain.iter().filter_map(|folder| Some((folder.clone(), limit(folder)?)));
    limits.min_by(|(_, a), (_, b)| a.total_cmp(b))
}

/// The folder with the smallest limit of memory, else the first.
fn memory(chain: &[PathBuf], mut limit: impl FnMut(&Path) -> Option<u64>) -> Option<(PathBuf, Option<u64>)> {
    let limits = chain.iter().filter_map(|folder| Some((folder.clone(), Some(limit(folder)?))));
    limits.min_by_key(|(_, limit)| *limit).or_else(|| Some((chain.first()?.clone(), None)))
}

/// `QUOTA PERIOD` of version 2, where the quota may be `max`.
fn cpu_limit_2(folder: &Path, buffer: &mut TextBuffer) -> Option<f64> {
    let text = buffer.read(&folder.join("cpu.max"))?;
    let (quota, period) = text.trim_end().split_once(' ')?;
    processors(quota.parse().ok()?, period.parse().ok()?)
}

fn cpu_limit_1(folder: &Path, buffer: &mut TextBuffer) -> Option<f64> {
    // A quota of -1 is none.
    let quota = number(&folder.join("cpu.cfs_quota_us"), buffer)?;
    processors(quota, number(&folder.join("cpu.cfs_period_us"), buffer)?)
}

fn processors(quota: u64, period: u64) -> Option<f64> {
    (period > 0).then(|| quota as f64 / period as f64)
}

/// The number in a file; `None` for `max` and -1.
fn number(path: &Path, buffer: &mut TextBuffer) -> Option<u64> {
    parsed(buffer.read(path)?)
}

fn parsed(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}
