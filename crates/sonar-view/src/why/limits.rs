//! What the control groups of the traced processes allowed them.

use std::collections::BTreeSet;

use serde::Serialize;
use sonar_core::counter::growth;
use sonar_core::machine::ControlGroup;
use sonar_core::words::processors;
use ts_rs::TS;

use crate::kit::Percent;

/// Share of the periods in which threads were stopped, from which on that is worth a sentence.
const MIN_THROTTLED: f64 = 0.05;

/// A process whose control group limits processor time.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct ProcessLimitJson {
    /// Its number.
    pub process: u32,
    /// Identifies the control group that limits it.
    #[serde(skip)]
    pub group: Option<u64>,
    /// How many processors its control group allows.
    pub processors: f64,
    /// Share of the periods of the trace in which its threads were stopped, because they had used what is allowed; null
    /// if there was no period.
    pub throttled: Option<f64>,
    /// Time that its threads were stopped, in nanoseconds; null if the kernel does not count it.
    pub throttled_ns: Option<u64>,
}

impl ProcessLimitJson {
    /// From two readings of its control group; `None` if that does not limit processor time.
    pub fn new(process: u32, before: &ControlGroup, now: &ControlGroup) -> Option<Self> {
        Some(Self {
            process,
            group: now.cpu_group,
            processors: now.cpu_limit?,
            throttled: now.throttled_periods_percent(before).map(|percent| percent / 100.0),
            throttled_ns: growth(now.throttled_ns, before.throttled_ns),
        })
    }

    /// Whether its threads were stopped so often that operations waited for it.
    pub(super) fn is_throttled(&self) -> bool {
        self.throttled.is_some_and(|share| share >= MIN_THROTTLED)
    }

    /// What it allowed and denied, in words.
    pub(super) fn sentence(&self) -> String {
        let share = Percent(self.throttled.unwrap_or(0.0));
        format!(
            "The control group of process {} allows {} and stopped its threads in {share} of the periods, which counts as \
             waiting for a processor.",
            self.process,
            processors(self.processors)
        )
    }
}

/// How many processors the processes can use at a time: those of the machine, or what all their groups allow together.
/// Processes of one group share what it allows.
pub(super) fn usable(limits: &[ProcessLimitJson], processes: usize, machine: usize) -> f64 {
    let machine = machine as f64;
    if limits.is_empty() || limits.len() < processes {
        return machine;
    }
    let mut counted = BTreeSet::new();
    let is_new = |limit: &&ProcessLimitJson| limit.group.is_none_or(|group| counted.insert(group));
    limits.iter().filter(is_new).map(|limit| limit.processors).sum::<f64>().min(machine)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_was_throttled_has_its_sentence() {
        let group = |periods, throttled_ns| ControlGroup {
            cpu_limit: Some(1.5),
            periods: Some(periods),
            throttled_ns: Some(throttled_ns),
            ..ControlGroup::default()
        };
        let limit = ProcessLimitJson::new(77, &group((100, 10), 5), &group((200, 50), 905)).unwrap();
        assert_eq!((limit.throttled, limit.throttled_ns), (Some(0.4), Some(900)));
        assert!(limit.is_throttled());
        assert_eq!(
            limit.sentence(),
            "The control group of process 77 allows 1.5 processors and stopped its threads in 40% of the periods, which \
             counts as waiting for a processor."
        );
        let calm = ProcessLimitJson::new(77, &group((100, 10), 5), &group((200, 11), 6)).unwrap();
        assert!(!calm.is_throttled());
        assert_eq!(ProcessLimitJson::new(77, &ControlGroup::default(), &ControlGroup::default()), None);
        let one = std::slice::from_ref(&limit);
        assert_eq!((usable(one, 1, 16), usable(one, 2, 16)), (1.5, 16.0));
        let two = [limit.clone(), limit.clone()];
        assert_eq!((usable(&two, 2, 2), usable(&[], 1, 16)), (2.0, 16.0));
        let in_group = |group| ProcessLimitJson { group: Some(group), ..limit.clone() };
        assert_eq!(usable(&[in_group(40), in_group(41)], 2, 16), 3.0);
        assert_eq!(usable(&[in_group(40), in_group(40)], 2, 16), 1.5, "they share it");
    }
}
