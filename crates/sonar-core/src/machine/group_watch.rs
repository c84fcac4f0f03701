//! Notices what the control groups of servers deny them.

use std::collections::{BTreeMap, BTreeSet};

use super::process::{ControlGroup, ProcessReading};
use super::reading::MachineReading;
use crate::Endpoint;
use crate::counter::growth;
use crate::history::{Event, EventKind};
use crate::words::{binary_size, processors};

/// Per cent of the periods between two readings in which threads were stopped, from which on they count as throttled,
/// and below which they do not.
const BEGIN_PERCENT: f64 = 20.0;
const END_PERCENT: f64 = 5.0;
/// A group that is idle has few periods: fewer than this many stopped ones are no throttling.
const MIN_STOPPED: u64 = 3;
/// Readings without throttling after which it has ended.
const CALM_READINGS: u32 = 15;

/// Watches the control groups of servers.
#[derive(Debug, Default)]
pub(super) struct GroupWatch {
    /// Servers that are throttled, with the number of readings since they last were.
    throttled: BTreeMap<(Endpoint, u32), u32>,
}

impl GroupWatch {
    /// Adds two readings; events go to `events`. Returns how many processes were killed for lack of memory in the groups
    /// of servers.
    pub fn add(&mut self, before: &MachineReading, now: &MachineReading, events: &mut Vec<Event>) -> u64 {
        // It happened after the earlier one.
        let at = before.clocks.realtime;
        let is_there = |key: &(Endpoint, u32)| now.processes.iter().any(|one| (one.server, one.pid) == *key);
        self.throttled.retain(|key, _| is_there(key));
        let mut killed: u64 = 0;
        // Servers may share a group, which counts its kills once.
        let mut counted = BTreeSet::new();
        for now in &now.processes {
            let same = before.processes.iter().find(|before| before.is_same_process(now));
            let Some(before) = same else { continue };
            let (group, earlier) = (&now.control_group, &before.control_group);
            let event =
                |kind, subject: &str, text: &str| Event::new(at, kind, now.server, text).about(subject);
            if let Some(text) = self.throttling(now, earlier) {
                events.push(event(EventKind::CpuThrottled, "", &text));
            }
            for (subject, text) in limits_changed(group, earlier) {
                events.push(event(EventKind::SettingChange, subject, &text));
            }
            let kills = growth(group.out_of_memory_kills, earlier.out_of_memory_kills).unwrap_or(0);
            if kills > 0 && group.memory_group.is_none_or(|group| counted.insert(group)) {
                let text = killed_because(group, earlier);
                events.push(Event { count: kills, ..event(EventKind::OutOfMemory, "", &text) });
                killed = killed.saturating_add(kills);
            }
        }
        killed
    }

    /// What to say if a server began to be throttled.
    fn throttling(&mut self, server: &ProcessReading, before: &ControlGroup) -> Option<String> {
        let (key, now) = ((server.server, server.pid), &server.control_group);
        let percent = now.throttled_periods_percent(before).unwrap_or(0.0);
        if let Some(calm) = self.throttled.get_mut(&key) {
            *calm = if percent < END_PERCENT { *calm + 1 } else { 0 };
            if *calm >= CALM_READINGS {
                self.throttled.remove(&key);
            }
            return None;
        }
        let stopped =
            now.periods.zip(before.periods).map_or(0, |(now, before)| now.1.saturating_sub(before.1));
        if percent < BEGIN_PERCENT || stopped < MIN_STOPPED {
            return None;
        }
        self.throttled.insert(key, 0);
        let limit =
            now.cpu_limit.map_or_else(String::new, |limit| format!("it allows {}, and ", processors(limit)));
        Some(format!("{limit}its threads were stopped in {percent:.0} % of the periods"))
    }
}

/// Why the kernel killed processes of a group. It does so as well if memory has run out in a group above or in the machine.
fn killed_because(now: &ControlGroup, before: &ControlGroup) -> String {
    let hits = now.memory_limit_hits.zip(before.memory_limit_hits);
    match now.memory_limit.filter(|_| hits.is_some_and(|(now, before)| now > before)) {
        Some(limit) => {
            format!("its control group had reached its limit of memory ({})", binary_size(limit))
        }
        None => "processes in its control group were killed".to_owned(),
    }
}

/// Which limits of a control group changed.
fn limits_changed(now: &ControlGroup, before: &ControlGroup) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    let mut add = |subject, now: Option<String>, before: Option<String>| {
        if now != before {
            let word = |value: Option<String>| value.unwrap_or_else(|| "unlimited".to_owned());
            all.push((subject, format!("{}, was {}", word(now), word(before))));
        }
    };
    if now.is_cpu_limit_known && before.is_cpu_limit_known {
        add("limit of processor time", now.cpu_limit.map(processors), before.cpu_limit.map(processors));
    }
    // Where no memory was read, its limit is unknown.
    if now.memory.is_some() && before.memory.is_some() {
        add("limit of memory", now.memory_limit.map(binary_size), before.memory_limit.map(binary_size));
    }
    all
}
