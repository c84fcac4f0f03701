//! The values of the process of a server from two readings.

use std::collections::BTreeMap;

use super::process::ProcessReading;
use super::values::Values;
use crate::counter::rate;
use crate::files::ThreadRole;
use crate::history::metrics;
use crate::internals::over;

/// What the threads of one role did together.
#[derive(Default)]
struct RoleTimes {
    count: u64,
    run_ns: u64,
    wait_ns: u64,
    switches: u64,
}

/// The name of the times of threads that ended since the reading before.
const ENDED: &str = "ended threads";
/// The name of the role of threads that have none.
const OTHER: &str = "other";

/// Adds the values of a process. `before` are the processes of the reading before, `processors` those of the machine.
pub(super) fn add_values(
    before: &[ProcessReading],
    now: &ProcessReading,
    processors: Option<u32>,
    values: &mut Values,
) {
    add_gauges(now, values);
    let usable = now.usable_processors(processors);
    let Some(before) = before.iter().find(|before| before.is_same_process(now)) else { return };
    let seconds = values.seconds();
    let mut add = |metric, value| values.add(metric, now.server, "", value);
    let counter = |now: u64, before: u64| rate(Some(now), Some(before), seconds);
    let percent = |now: u64, before: u64| Some(counter(now, before)? / 1e7);
    add(metrics::PROCESS_CPU_USER, percent(now.cpu_ns[0], before.cpu_ns[0]));
    add(metrics::PROCESS_CPU_SYSTEM, percent(now.cpu_ns[1], before.cpu_ns[1]));
    add(metrics::PROCESS_MINOR_FAULTS, counter(now.faults[0], before.faults[0]));
    add(metrics::PROCESS_MAJOR_FAULTS, counter(now.faults[1], before.faults[1]));
    let io = |at: usize| counter(now.io?[at], before.io?[at]);
    add(metrics::PROCESS_READ, io(0));
    add(metrics::PROCESS_WRITTEN, io(1));
    let (group, earlier) = (&now.control_group, &before.control_group);
    let throttled = rate(group.throttled_ns, earlier.throttled_ns, seconds);
    add(metrics::CGROUP_THROTTLED, throttled.map(|ns| ns / 1e7));
    add(metrics::CGROUP_THROTTLED_PERIODS, group.throttled_periods_percent(earlier));
    add(metrics::CGROUP_LIMIT_HITS, rate(group.limit_hits, earlier.limit_hits, seconds));
    let used = percent(now.all_cpu_ns(), before.all_cpu_ns());
    add(metrics::PROCESS_CPU_USED, used.zip(usable).and_then(|(used, usable)| over(used, usable)));
    add_threads(before, now, values);
}

fn add_gauges(now: &ProcessReading, values: &mut Values) {
    let mut add = |metric, value| values.add(metric, now.server, "", value);
    let count = |count: Option<u64>| count.map(|count| count as f64);
    add(metrics::PROCESS_MEMORY, count(Some(now.resident)));
    add(metrics::PROCESS_ANONYMOUS, count(now.anonymous));
    add(metrics::PROCESS_SWAPPED, count(now.swapped));
    add(metrics::PROCESS_THREADS, count(Some(now.thread_count)));
    add(metrics::PROCESS_DESCRIPTORS, count(now.descriptors));
    let used = now.descriptors.zip(now.descriptor_limit);
    let percent = used.and_then(|(used, limit)| over(100.0 * used as f64, limit as f64));
    add(metrics::PROCESS_DESCRIPTORS_USED, percent);
    let group = &now.control_group;
    add(metrics::CGROUP_CPU_LIMIT, group.cpu_limit);
    add(metrics::CGROUP_MEMORY, count(group.memory));
    add(metrics::CGROUP_MEMORY_LIMIT, count(group.memory_limit));
    add(metrics::CGROUP_MEMORY_USED, group.memory_used_percent());
    add(metrics::CGROUP_TASKS_USED, group.tasks_percent());
}

/// Adds the times of the threads by role. What the process used more than its threads did, ended threads did.
fn add_threads(before: &ProcessReading, now: &ProcessReading, values: &mut Values) {
    if now.threads.is_empty() || before.threads.is_empty() {
        return;
    }
    let roles = role_times(before, now);
    let sum = |of: fn(&RoleTimes) -> u64| roles.values().map(of).fold(0, u64::saturating_add);
    let seconds = values.seconds();
    let percent = |ns: u64| Some(ns as f64 / seconds / 1e7);
    let mut add = |metric, name, value| values.add(metric, now.server, name, value);
    add(metrics::PROCESS_RUN_QUEUE, "", percent(sum(|times| times.wait_ns)));
    add(metrics::PROCESS_SWITCHES, "", Some(sum(|times| times.switches) as f64 / seconds));
    for (name, times) in &roles {
        add(metrics::THREADS_CPU, name, percent(times.run_ns));
        add(metrics::THREADS_RUN_QUEUE, name, percent(times.wait_ns));
        add(metrics::THREADS_COUNT, name, Some(times.count as f64));
    }
    let used = now.all_cpu_ns().saturating_sub(before.all_cpu_ns());
    if !now.threads_left_out {
        add(metrics::THREADS_CPU, ENDED, percent(used.saturating_sub(sum(|times| times.run_ns))));
    }
}

/// What the threads of each role did between two readings.
fn role_times<'a>(before: &ProcessReading, now: &'a ProcessReading) -> BTreeMap<&'a str, RoleTimes> {
    let mut roles: BTreeMap<&str, RoleTimes> = BTreeMap::new();
    let mut earlier = before.threads.iter().peekable();
    for thread in &now.threads {
        while earlier.next_if(|earlier| earlier.id < thread.id).is_some() {}
        // Another thread with the same number has used less.
        let same =
            earlier.peek().filter(|earlier| earlier.id == thread.id && earlier.run_ns <= thread.run_ns);
        let name = match ThreadRole::of(&thread.name).name() {
            "" => OTHER,
            name => name,
        };
        let times = roles.entry(name).or_default();
        times.count += 1;
        if same.is_none() && before.threads_left_out {
            continue;
        }
        let (run, wait, switches) = same.map_or((0, 0, 0), |same| (same.run_ns, same.wait_ns, same.switches));
        times.run_ns = times.run_ns.saturating_add(thread.run_ns - run);
        times.wait_ns = times.wait_ns.saturating_add(thread.wait_ns.saturating_sub(wait));
        times.switches = times.switches.saturating_add(thread.switches.saturating_sub(switches));
    }
    roles
}
