//! Which counter stands at which position of a blob.

use std::sync::LazyLock;

use sonar_core::execution::ServerSums;
use sonar_core::history::CollectorKind;
use sonar_core::time_split::TimePart;
use sonar_core::{Coverage, Reading};

use super::blob::BlobError;

/// The names of collectors, counters, sums and parts of time, in the order in which blobs have them. Other versions of
/// the program may have other names; unknown ones are left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// For each position, that in [`CollectorKind::ALL`].
    pub(super) collectors: Vec<Option<usize>>,
    /// For each position, that in [`Coverage::NAMES`].
    pub(super) coverage: Vec<Option<usize>>,
    /// For each position, that in [`Reading::NAMES`].
    pub(super) reading: Vec<Option<usize>>,
    /// For each position, that in [`ServerSums::NAMES`].
    pub(super) sums: Vec<Option<usize>>,
    /// For each position, that in [`TimePart::ALL`]. Empty where no row had a split.
    pub(super) parts: Vec<Option<usize>>,
}

/// A position in a list of names, as that of this program; `None` if it does not know the name.
pub(super) fn position(list: &[Option<usize>], at: u64) -> Result<Option<usize>, BlobError> {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    list.get(at).copied().ok_or(BlobError::Impossible("a position"))
}

static COLLECTORS: LazyLock<Vec<&str>> =
    LazyLock::new(|| CollectorKind::ALL.iter().map(|one| one.name()).collect());
static PARTS: LazyLock<Vec<&str>> = LazyLock::new(|| TimePart::ALL.iter().map(|one| one.name()).collect());

impl Layout {
    /// The names that this program writes: a line for each list.
    pub fn current() -> String {
        [&COLLECTORS[..], Coverage::NAMES, Reading::NAMES, ServerSums::NAMES, &PARTS]
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
            parts: list(&PARTS),
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
        assert!(current.parts.iter().copied().eq((0..TimePart::ALL.len()).map(Some)));
        let other = Layout::parse("log queries\nframes was_removed files_damaged\n\nkeys_examined\n");
        let frames = Coverage::NAMES.iter().position(|name| *name == "frames");
        assert_eq!(
            other.collectors,
            [Some(CollectorKind::Log as usize), Some(CollectorKind::Queries as usize)]
        );
        assert_eq!(other.coverage, [frames, None, Some(0)]);
        assert_eq!((other.reading.len(), other.sums.len(), other.parts.len()), (0, 1, 0));
    }
}
