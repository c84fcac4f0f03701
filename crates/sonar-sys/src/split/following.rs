//! Which processes are followed, and from which change of the tables on.

use std::collections::BTreeMap;
use std::path::Path;

use crate::ebpf::TraceError;
use crate::ebpf::processes::FollowedProcesses;
use crate::skeletons::split::types;

/// A process that is followed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FollowedProcess {
    /// Its id in the initial process namespace.
    pub process: u32,
    /// The change of the tables with which it began; another one if it was left and is followed again.
    pub since: u32,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Following {
    /// Changes of the tables so far. Zeroed memory of the programs is of change 0.
    generation: u32,
    since: BTreeMap<u32, u32>,
    /// Processes that were left. While one lives, the programs notice its threads and give their places back.
    left: Vec<u32>,
}

impl Following {
    /// The next change of the tables.
    ///
    /// # Errors
    /// There were four billion.
    pub(super) fn next(&self) -> Result<Self, TraceError> {
        // With the first numbers again, what the programs remember of long ago would seem new.
        let next = self.generation.checked_add(1);
        let generation = next.ok_or_else(|| TraceError::Load("too many changes".to_owned()))?;
        let mut left = self.left.clone();
        left.retain(|process| Path::new(&format!("/proc/{process}")).exists());
        Ok(Self { generation, since: self.since.clone(), left })
    }

    /// The number of the last change.
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// Adds a process, which is followed from this change on.
    pub(super) fn add(&mut self, process: u32) {
        self.left.retain(|left| *left != process);
        self.since.insert(process, self.generation);
    }

    /// Removes a process; returns whether it was followed.
    pub(super) fn remove(&mut self, process: u32) -> bool {
        let was_followed = self.since.remove(&process).is_some();
        if was_followed {
            self.left.push(process);
        }
        was_followed
    }

    /// Replaces all of them.
    pub(super) fn set(&mut self, followed: &[FollowedProcess]) {
        self.since = followed.iter().map(|one| (one.process, one.since)).collect();
    }

    /// All of them, by their ids.
    pub(super) fn all(&self) -> Vec<FollowedProcess> {
        self.since
            .iter()
            .map(|(process, since)| FollowedProcess { process: *process, since: *since })
            .collect()
    }

    /// Whether the state of a thread is that of one that is followed now.
    pub(super) fn has(&self, state: &types::split_thread) -> bool {
        self.since.get(&state.process).is_some_and(|since| state.generation >= *since)
    }

    /// What the programs look at first.
    pub(super) fn control(&self) -> types::split_control {
        let mut noticed = FollowedProcesses::default();
        self.since.keys().chain(&self.left).for_each(|process| noticed.add(*process));
        types::split_control {
            some: noticed.bits(),
            generation: self.generation,
            ..types::split_control::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(following: &Following) -> Following {
        following.next().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn what_a_thread_did_before_its_process_was_followed_again_does_not_count() {
        let own = std::process::id();
        let mut following = next(&Following::default());
        following.add(own);
        let state = |generation| types::split_thread { process: own, generation, ..Default::default() };
        assert!(!following.has(&state(0)) && following.has(&state(1)) && following.has(&state(2)));
        following = next(&following);
        assert!(following.remove(own) && !following.remove(own) && !following.has(&state(2)));
        following = next(&following);
        following.add(own);
        assert_eq!(following.all(), [FollowedProcess { process: own, since: 3 }]);
        assert!(!following.has(&state(2)) && following.has(&state(3)));
    }

    #[test]
    fn a_process_that_was_left_is_noticed_as_long_as_it_lives() {
        // No process has that number: the kernel's highest is 4194304.
        let (own, gone) = (std::process::id(), 5_000_000);
        let mut following = next(&Following::default());
        [own, gone].into_iter().for_each(|process| following.add(process));
        let both = following.control().some;
        [own, gone].into_iter().for_each(|process| assert!(following.remove(process)));
        assert_eq!(following.control().some, both);
        let mut alone = FollowedProcesses::default();
        alone.add(own);
        assert_eq!(next(&following).control().some, alone.bits());
    }

    #[test]
    fn the_numbers_of_changes_never_begin_again() {
        let last = Following { generation: u32::MAX, ..Following::default() };
        assert!(last.next().is_err());
    }
}
