//! The processes that eBPF programs follow.

use std::collections::BTreeSet;

/// The ids of the processes that some programs follow, in the initial process namespace.
#[derive(Clone, Debug, Default)]
pub struct FollowedProcesses(BTreeSet<u32>);

impl FollowedProcesses {
    /// Adds a process.
    pub fn add(&mut self, process: u32) {
        self.0.insert(process);
    }

    /// Removes a process.
    pub fn remove(&mut self, process: u32) {
        self.0.remove(&process);
    }

    /// Those that are not in `alive`.
    pub fn gone(&self, alive: &[u32]) -> Vec<u32> {
        self.0.iter().copied().filter(|process| !alive.contains(process)).collect()
    }

    /// A bit for each, by the low eight bits of its id. Programs check it before anything else, so that most other
    /// processes cost one comparison.
    pub fn bits(&self) -> [u64; 4] {
        let mut bits = [0; 4];
        for process in &self.0 {
            bits[*process as usize / 64 % 4] |= 1 << (process % 64);
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_leaves_takes_its_bit_along_unless_another_one_has_it() {
        let mut followed = FollowedProcesses::default();
        [1, 64 + 3, 256 + 1].into_iter().for_each(|process| followed.add(process));
        assert_eq!(followed.bits(), [1 << 1, 1 << 3, 0, 0]);
        followed.remove(1);
        assert_eq!(followed.bits(), [1 << 1, 1 << 3, 0, 0]);
        followed.remove(256 + 1);
        assert_eq!(followed.bits(), [0, 1 << 3, 0, 0]);
        assert_eq!((followed.gone(&[1, 2]), followed.gone(&[67])), (vec![67], vec![]));
    }
}
