//! Keeps what followers learn of schemas in bounds, however many servers there are.

use std::collections::BTreeMap;

/// Something that learns schemas of chunks.
pub trait LearnsSchemas {
    /// The bytes of what it learned.
    fn schema_bytes(&self) -> usize;
    /// Forgets it; it is learned again from the next chunks.
    fn forget_schemas(&mut self);
}

/// Keeps what was learned of schemas below `most` bytes: the largest ones go first.
pub fn forget_schemas<K, S: LearnsSchemas>(sources: &mut BTreeMap<K, S>, most: usize) {
    while sources.values().map(S::schema_bytes).sum::<usize>() > most
        && let Some(largest) = sources.values_mut().max_by_key(|source| source.schema_bytes())
    {
        largest.forget_schemas();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was learned, in bytes.
    struct Learned(usize);

    impl LearnsSchemas for Learned {
        fn schema_bytes(&self) -> usize {
            self.0
        }

        fn forget_schemas(&mut self) {
            self.0 = 0;
        }
    }

    #[test]
    fn what_was_learned_of_all_servers_stays_below_the_limit_and_the_largest_go_first() {
        const MOST: usize = 8 << 20;
        let share = MOST / 4;
        let after = |bytes: &[usize]| {
            let mut sources: BTreeMap<u16, Learned> =
                (27_017..).zip(bytes.iter().copied().map(Learned)).collect();
            forget_schemas(&mut sources, MOST);
            sources.into_values().map(|one| one.0).collect::<Vec<_>>()
        };
        assert_eq!(after(&[share; 4]), [share; 4], "just as much as there may be");
        assert_eq!(after(&[share, 2 * share, share + 1]), [share, 0, share + 1]);
        // More than one must go at once where several servers appear together.
        assert_eq!(after(&[4 * share, 1, 3 * share, 2 * share]), [0, 1, 0, 2 * share]);
        assert_eq!(after(&[]), [0; 0]);
    }
}
