//! Why long waits have no classes.

use anyhow::Result;

/// What could not be read: the first failure in words, and how many came after it.
#[derive(Default)]
pub struct WaitProblems {
    notices: Vec<String>,
    failures: u64,
    /// Waits of processes whose symbols were not loaded yet.
    unnamed: u64,
}

impl WaitProblems {
    /// Notes how the symbols of a process were read: whether at all, and sentences about files that were not.
    pub fn note_symbols(&mut self, process: u32, loaded: Result<()>, limits: Vec<String>) {
        if let Err(error) = loaded {
            self.note_failure(|| format!("the functions of process {process} have no names: {error:#}"));
        }
        self.notices.extend(limits);
    }

    /// Notes a failure. Only the first one is put in words: the others come as often as waits do.
    pub fn note_failure(&mut self, words: impl FnOnce() -> String) {
        if self.failures == 0 {
            self.notices.push(words());
        }
        self.failures += 1;
    }

    /// Notes that functions had no names because the symbols of their process were not loaded yet.
    pub fn note_unnamed(&mut self) {
        self.unnamed += 1;
    }

    /// How often that was so.
    pub fn unnamed(&self) -> u64 {
        self.unnamed
    }

    /// Takes the sentences to show.
    pub fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// How many failures came after the one that was put in words.
    pub fn further_failures(&self) -> u64 {
        self.failures.saturating_sub(1)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn the_first_failure_is_told_once_and_the_others_are_counted() {
        let mut problems = WaitProblems::default();
        problems.note_symbols(7, Ok(()), Vec::new());
        assert!(problems.take_notices().is_empty());
        problems.note_symbols(
            7,
            Err(anyhow!("it has ended")),
            vec!["libx.so: it cannot be opened".to_owned()],
        );
        problems.note_symbols(
            8,
            Err(anyhow!("it has ended")),
            vec!["liby.so: it cannot be opened".to_owned()],
        );
        let expected = [
            "the functions of process 7 have no names: it has ended",
            "libx.so: it cannot be opened",
            "liby.so: it cannot be opened",
        ];
        assert_eq!(problems.take_notices(), expected);
        problems.note_failure(|| "cut".to_owned());
        assert!(problems.take_notices().is_empty());
        assert_eq!(problems.further_failures(), 2);
        problems.note_unnamed();
        assert_eq!((problems.unnamed(), problems.further_failures()), (1, 2));
    }
}
