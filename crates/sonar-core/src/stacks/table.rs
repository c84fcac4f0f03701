//! Samples of stacks, added up.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::ThreadState;
use crate::files::ThreadRole;

/// The most different stacks; samples of later ones are counted without their frames.
pub const MAX_STACKS: usize = 20_000;
/// The most threads to remember for a stack.
const MAX_THREADS: usize = 10_000;

/// What samples have in common that are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StackKey {
    /// Why the thread waits, or that it runs; in MongoDB's terms.
    pub class: Arc<str>,
    /// The class is no wait: the thread has nothing to do.
    pub idle: bool,
    /// The role of the thread.
    pub role: ThreadRole,
    /// What the thread did.
    pub state: ThreadState,
    /// Its system call, by name; `None` outside of a call.
    pub call: Option<Arc<str>>,
    /// The functions, the innermost first, each with the library that it is in (`None` in the program itself).
    pub frames: Vec<(Arc<str>, Option<Arc<str>>)>,
    /// Why the stack ends before its beginning; `None` if it is whole.
    pub cut: Option<Arc<str>>,
}

/// How often a stack was seen, and in how many threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledStack {
    /// Samples.
    pub samples: u64,
    /// The threads that were seen with it.
    pub threads: BTreeSet<u32>,
}

/// Samples by what they have in common.
#[derive(Debug, Default)]
pub struct StackTable {
    stacks: HashMap<StackKey, SampledStack>,
    samples: u64,
    without_frames: u64,
}

impl StackTable {
    /// Counts one sample. When there is no room for another stack, its frames are dropped, and the sample is counted
    /// by the rest of the key.
    pub fn add(&mut self, mut key: StackKey, thread: u32) {
        self.samples += 1;
        if self.stacks.len() >= MAX_STACKS && !self.stacks.contains_key(&key) {
            self.without_frames += 1;
            key.frames.clear();
            key.cut = Some("too many different stacks".into());
        }
        let stack = self.stacks.entry(key).or_default();
        stack.samples += 1;
        if stack.threads.len() < MAX_THREADS {
            stack.threads.insert(thread);
        }
    }

    /// Samples so far; the sum of those of all stacks.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Samples whose frames had no room.
    pub fn without_frames(&self) -> u64 {
        self.without_frames
    }

    /// The stacks, the most frequent first; equal ones by their frames.
    pub fn into_stacks(self) -> Vec<(StackKey, SampledStack)> {
        let mut stacks: Vec<_> = self.stacks.into_iter().collect();
        stacks.sort_by(|(one, a), (other, b)| {
            let rest = |key: &StackKey| (key.role, key.state, key.call.clone());
            b.samples
                .cmp(&a.samples)
                .then_with(|| one.frames.cmp(&other.frames))
                .then_with(|| one.class.cmp(&other.class))
                .then_with(|| rest(one).cmp(&rest(other)))
        });
        stacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(function: &str) -> StackKey {
        StackKey {
            class: "execution ticket".into(),
            idle: false,
            role: ThreadRole::Client,
            state: ThreadState::Sleeping,
            call: Some("futex".into()),
            frames: vec![(function.into(), None)],
            cut: None,
        }
    }

    #[test]
    fn equal_stacks_of_several_threads_are_one() {
        let mut table = StackTable::default();
        for (function, thread) in [("a", 1), ("b", 2), ("b", 3), ("b", 3)] {
            table.add(key(function), thread);
        }
        assert_eq!((table.samples(), table.without_frames()), (4, 0));
        let stacks = table.into_stacks();
        assert_eq!(stacks[0].0, key("b"));
        assert_eq!(stacks[0].1, SampledStack { samples: 3, threads: [2, 3].into() });
        assert_eq!(stacks[1].1.samples, 1);
    }

    #[test]
    fn a_full_table_keeps_counting_by_class() {
        let mut table = StackTable::default();
        for number in 0..MAX_STACKS + 10 {
            table.add(key(&number.to_string()), 1);
        }
        table.add(key("5"), 1);
        assert_eq!(table.without_frames(), 10);
        let samples = table.samples();
        let stacks = table.into_stacks();
        assert_eq!(stacks.len(), MAX_STACKS + 1);
        assert_eq!(stacks.iter().map(|(_, stack)| stack.samples).sum::<u64>(), samples);
        let rest = stacks.iter().find(|(key, _)| key.frames.is_empty()).unwrap();
        assert_eq!((rest.1.samples, &*rest.0.class), (10, "execution ticket"));
    }
}
