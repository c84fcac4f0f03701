//! Which counter stands at which position of a blob.

use std::sync::LazyLock;

use sonar_core::execution::ServerSums;
use sonar_core::history::Collector;
use sonar_core::{Coverage, Reading};

/// The names of collectors, counters and sums in the order in which blobs have them. Other versions of the program may
/// have others; what this one does not know is left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// For each position, that in [`Collector::ALL`].
    pub(super) collectors: Vec<Option<usize>>,
    /// For each position, that in [`Coverage::NAMES`].
    pub(super) coverage: Vec<Option<usize>>,
    /// For each position, that in [`Reading::NAMES`].
    pub(super) reading: Vec<Option<usize>>,
    /// For each position, that in [`ServerSums::NAMES`].
    pub(super) sums: Vec<Option<usize>>,
}

static COLLECTORS: LazyLock<Vec<&str>> =
    LazyLock::new(|| Collector::ALL.iter().map(|one| one.name()).collect());

impl Layout {
    /// The names that this program writes: a line for each list.
    pub fn current() -> String {
        [&COLLECTORS[..], Coverage::NAMES, Reading::NAMES, ServerSums::NAMES]
            .map(|names| names.join(" "))
            .join("\n")
    }

    /// Reads names as [`current`](Self::current) returns them.
    pub fn parse(names: &str) -> Self {
        let mut lines = names.lines();
        let mut list = |known: &[&str]| -> Vec<Option<usize>> {
            let position = |name: &str| known.iter().position(|one| *one == name);
            lines.next().unwrap_or_default().split_ascii_whitespace().map(position).collect()
        };
        Self {
            collectors: list(&COLLECTORS),
            coverage: list(Coverage::NAMES),
            reading: list(Reading::NAMES),
            sums: list(ServerSums::NAMES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_follow_the_names() {
        let current = Layout::parse(&Layout::current());
        assert!(current.coverage.iter().copied().eq((0..Coverage::COUNT).map(Some)));
        assert_eq!(current.sums.len(), ServerSums::COUNT);
        let other = Layout::parse("log queries\nframes was_removed files_damaged\n\nkeys_examined\n");
        let frames = Coverage::NAMES.iter().position(|name| *name == "frames");
        assert_eq!(other.collectors, [Some(Collector::Log as usize), Some(Collector::Queries as usize)]);
        assert_eq!(other.coverage, [frames, None, Some(0)]);
        assert_eq!((other.reading.len(), other.sums.len()), (0, 1));
    }
}
