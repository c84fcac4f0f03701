//! The rules about memory, processors and tasks that the control groups of a server leave it, as those of a container.

use super::facts::{
    CGROUP, CheckFinding, Grade, MachineFacts, ProcessBounds, Rule, SERVER_60412, WIREDTIGER,
};
use super::limits::connections;
use crate::machine::ControlGroup;
use crate::words::{binary_size, plural};

/// Per cent of a limit of memory in use, page cache not counted: from here on it is worth a warning, a problem.
const MEMORY_PERCENT: [f64; 2] = [85.0, 95.0];
/// The same of the memory of a machine, which the page cache needs, too.
const MACHINE_PERCENT: [f64; 2] = [70.0, 90.0];
/// Per cent of the limit of memory that the cache may have, so that the rest of mongod has room.
const MAX_CACHE_PERCENT: f64 = 80.0;
/// Per cent of periods in which threads were stopped, from which on it costs latency.
const THROTTLED_PERCENT: [f64; 2] = [1.0, 25.0];
/// Per cent of the tasks that a group allows.
const TASKS_PERCENT: [f64; 2] = [80.0, 95.0];
/// Threads of mongod that serve no connection, about.
const OTHER_THREADS: u64 = 200;
/// mongod's cache without a setting is never smaller.
const MIN_CACHE: u64 = 256 << 20;

fn graded(value: f64, [warning, problem]: [f64; 2]) -> Grade {
    match value {
        value if value >= problem => Grade::Problem,
        value if value >= warning => Grade::Warning,
        _ => Grade::Ok,
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// All findings about control groups.
pub(super) fn bounds(facts: &MachineFacts) -> Vec<CheckFinding> {
    let Some(bounds) = &facts.bounds else { return Vec::new() };
    let mut all = Vec::new();
    all.extend(memory(facts, bounds));
    all.extend(killed(bounds));
    all.extend(cache(facts, bounds));
    all.extend(processors(facts, bounds));
    all.extend(tasks(facts, bounds));
    all
}

/// The limit of memory in bytes; one above what the machine has limits nothing.
fn limit_of(facts: &MachineFacts, bounds: &ProcessBounds) -> Option<u64> {
    bounds.group?.memory_limit.filter(|limit| facts.memory.is_none_or(|all| *limit < all))
}

fn memory(facts: &MachineFacts, bounds: &ProcessBounds) -> Option<CheckFinding> {
    let resident = bounds.resident;
    let Some((limit, group)) = limit_of(facts, bounds).zip(bounds.group) else {
        const WHY: &str = "little is left for the page cache and other processes";
        let (resident, all) = (resident?, facts.memory?);
        let share = percent(resident, all);
        let found = format!(
            "mongod has {} of the machine's {} ({share:.1} %)",
            binary_size(resident),
            binary_size(all)
        );
        return Some(Rule("memory", WHY, WIREDTIGER).finds(graded(share, MACHINE_PERCENT), found));
    };
    const WHY: &str = "at its limit the kernel takes the page cache from the group, and then kills mongod";
    let used = group.memory_used_percent();
    let own = resident.map(|resident| percent(resident, limit));
    // Pages of files that are mapped count as used by the process, but not always by its group.
    let share = used.into_iter().chain(own).max_by(f64::total_cmp)?;
    let of_machine =
        facts.memory.map_or_else(String::new, |all| format!("; the machine has {}", binary_size(all)));
    let found =
        format!("{share:.0} % of the limit of {} is in use{}{of_machine}", binary_size(limit), bounds.by(1));
    let made = Rule("memory", WHY, CGROUP).finds(graded(share, MEMORY_PERCENT), found);
    Some(match made.grade {
        Grade::Ok => made,
        _ => made.remedy("a higher limit of memory for the container or the unit, or a smaller cache (storage.wiredTiger.engineConfig.cacheSizeGB)"),
    })
}

fn killed(bounds: &ProcessBounds) -> Option<CheckFinding> {
    const BY_LIMIT: &str = "the group had reached its limit of memory, and the kernel ended processes in it";
    const OTHER: &str =
        "processes in the group were killed, because memory had run out in the machine or a group above";
    let group = bounds.group?;
    let count = group.out_of_memory_kills.filter(|count| *count > 0)?;
    let what = if count == 1 { "process" } else { "processes" };
    let found = format!("{count} {what} killed for lack of memory since the group was made{}", bounds.by(1));
    let is_by_limit = group.memory_limit.is_some() && group.memory_limit_hits.is_some_and(|hits| hits > 0);
    let (why, more) = match is_by_limit {
        true => (BY_LIMIT, "a higher limit of memory"),
        false => (OTHER, "more memory for the machine or the groups above"),
    };
    Some(Rule("memory-kills", why, CGROUP).finds(Grade::Warning, found).remedy(format!(
        "journalctl -k | grep -i oom   (which process it was), and {more} or a smaller cache"
    )))
}

/// The cache of WiredTiger must fit into the limit, with room for connections, sorts and the rest of mongod.
fn cache(facts: &MachineFacts, bounds: &ProcessBounds) -> Option<CheckFinding> {
    const WHY: &str = "connections, sorts and index builds need memory beside the cache";
    const BLIND: &str = "mongod then takes half of the machine's memory for its cache, not half of its limit";
    let limit = limit_of(facts, bounds)?;
    let fix = format!(
        "set storage.wiredTiger.engineConfig.cacheSizeGB to about half of the limit: {:.2}",
        half(limit) as f64 / f64::from(1 << 30)
    );
    if let Some(set) = bounds.cache {
        let share = percent(set, limit);
        let found =
            format!("{} is set, {share:.0} % of the limit of {}", binary_size(set), binary_size(limit));
        let grade = if share > MAX_CACHE_PERCENT { Grade::Problem } else { Grade::Ok };
        let made = Rule("memory-cache", WHY, WIREDTIGER).finds(grade, found);
        return Some(if grade == Grade::Ok { made } else { made.remedy(fix) });
    }
    // Version 1 is seen by all versions that are still in use.
    let (version, all) = (facts.version.filter(|_| bounds.is_version_2)?, facts.memory?);
    let default = half(all);
    if percent(default, limit) <= MAX_CACHE_PERCENT {
        return None;
    }
    let found = |when: &str| {
        format!(
            "not set: {when} mongod does not see limits of cgroup version 2, and takes {} of a limit of {}",
            binary_size(default),
            binary_size(limit)
        )
    };
    let (grade, when) = match version {
        (..=4, ..=3) | (..=3, _) => (Grade::Problem, "this version of"),
        (4, _) => (Grade::Warning, "before 4.4.15"),
        (5, 0) => (Grade::Warning, "in early releases of 5.0"),
        _ => return None,
    };
    Some(Rule("memory-cache", BLIND, SERVER_60412).finds(grade, found(when)).remedy(fix))
}

/// The size of mongod's cache if none is set: half of what is above 1 GiB.
fn half(memory: u64) -> u64 {
    (memory.saturating_sub(1 << 30) / 2).max(MIN_CACHE)
}

fn processors(facts: &MachineFacts, bounds: &ProcessBounds) -> Option<CheckFinding> {
    const WHY: &str = "mongod does not know the quota: threads that have used it up are stopped until the next period \
                       begins, up to 100 ms, which operations wait for";
    let group = bounds.group.unwrap_or_default();
    let usable = group.usable_processors([facts.processors, bounds.allowed_processors])?;
    let machine = facts.processors?;
    if usable >= f64::from(machine) {
        return None;
    }
    let what = format!("{} of the machine's {machine} processors", (usable * 100.0).round() / 100.0);
    let Some(limit) = group.cpu_limit.filter(|limit| *limit <= usable) else {
        let why = "mongod counts the processors that it may run on";
        return Some(Rule("processors", why, CGROUP).finds(Grade::Ok, format!("{what}, by affinity")));
    };
    let throttled = group.throttled_periods_percent(&ControlGroup { periods: Some((0, 0)), ..group });
    let found = match throttled {
        Some(share) => format!(
            "{what}{}; since the group was made its threads were stopped in {share:.1} % of the periods",
            bounds.by(0)
        ),
        None => format!("{what}{}", bounds.by(0)),
    };
    let made =
        Rule("processors", WHY, CGROUP).finds(graded(throttled.unwrap_or(0.0), THROTTLED_PERCENT), found);
    Some(match made.grade {
        Grade::Ok => made,
        _ => made.remedy(format!(
            "a higher limit than {limit:.2} processors (Kubernetes: resources.limits.cpu, or none; Docker: --cpus; \
             systemd: CPUQuota=), or less work at the same time"
        )),
    })
}

fn tasks(facts: &MachineFacts, bounds: &ProcessBounds) -> Option<CheckFinding> {
    const WHY: &str =
        "each connection has a thread; at the limit mongod cannot start one, and refuses the client";
    let group = bounds.group?;
    let (used, limit) = (group.tasks?, group.task_limit?);
    let share = group.tasks_percent()?;
    let wanted = connections(facts).saturating_add(OTHER_THREADS);
    let found = format!("{used} of {}{}; mongod takes up to {wanted}", plural(limit, "thread"), bounds.by(2));
    let of_wanted = if limit < wanted { Grade::Warning } else { Grade::Ok };
    let made = Rule("tasks", WHY, CGROUP).finds(graded(share, TASKS_PERCENT).max(of_wanted), found);
    Some(match made.grade {
        Grade::Ok => made,
        _ => made.remedy(
            "a higher limit (systemd: TasksMax=infinity; Docker and Podman: --pids-limit; Kubernetes: podPidsLimit of \
             the kubelet), or net.maxIncomingConnections below it",
        ),
    })
}
