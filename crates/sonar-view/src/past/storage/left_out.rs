//! How many names a document leaves out, in bounded memory.

use std::collections::BTreeSet;

/// Further names are counted up to this many.
const MAX_COUNTED: usize = 1_000;

/// The names that a document leaves out.
#[derive(Default)]
pub(super) struct LeftOutNames(BTreeSet<Box<str>>);

impl LeftOutNames {
    /// Counts a name once.
    pub fn add(&mut self, name: &str) {
        if self.0.len() < MAX_COUNTED && !self.0.contains(name) {
            self.0.insert(name.into());
        }
    }

    /// How many there are, up to 1,000.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_counts_once_and_only_so_many_are_kept() {
        let mut names = LeftOutNames::default();
        for number in 0..2 * MAX_COUNTED {
            names.add(&(number / 2).to_string());
        }
        assert_eq!(names.count(), MAX_COUNTED);
        names.add("another");
        assert_eq!(names.count(), MAX_COUNTED);
    }
}
