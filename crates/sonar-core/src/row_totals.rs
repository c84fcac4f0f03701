//! The totals of a digest of several sources, as its rows show them.

use crate::digest::Digest;
use crate::figures::{Figures, ServerFigures};
use crate::sum::Sum;
use crate::{Row, Source};

/// The sum of what the rows of a digest show. A row shows the counts and latencies of one source, and how the server
/// executed its operations by one source; these may be others than in the next row. So the totals are those of no
/// single source, but every column adds up to them.
#[derive(Clone, Debug, Default)]
pub struct RowTotals {
    /// Counts and latencies.
    pub figures: Figures,
    /// How the server executed operations, with the figures of the sources that know it; empty if none does.
    executed: Figures,
    /// The sources of `figures`, the one with the most precise latencies first.
    pub counted_by: Vec<Source>,
    /// The sources that know how the server executed operations, in the same order.
    pub executed_by: Vec<Source>,
}

impl RowTotals {
    /// Those of all rows of a digest.
    pub fn of(digest: &Digest) -> Self {
        let total = &digest.total;
        // Of one source, the digest has them already; also of rows that a limit has left out of a saved one.
        if total.sources().count() <= 1 {
            return Self::added(std::iter::once(total));
        }
        Self::added(digest.rows().iter())
    }

    fn added<'a>(rows: impl Iterator<Item = &'a Row>) -> Self {
        let mut totals = Self::default();
        let (mut counted, mut executed) = ([false; Source::ALL.len()], [false; Source::ALL.len()]);
        for row in rows {
            totals.figures.merge(row.figures());
            if let Some(source) = row.sources().next() {
                counted[source as usize] |= row.figures().calls > 0;
            }
            if let Some((source, figures)) = row.executed() {
                totals.executed.merge(figures);
                executed[source as usize] |= figures.calls > 0;
            }
        }
        let named = |seen: [bool; Source::ALL.len()]| {
            Source::ALL.into_iter().filter(|source| seen[*source as usize]).collect()
        };
        Self { counted_by: named(counted), executed_by: named(executed), ..totals }
    }

    /// How the server executed operations; everything is unknown if no source knows.
    pub fn server(&self) -> &ServerFigures {
        self.executed.server()
    }

    /// The latencies of the operations in [`Self::server`]; all latencies if no source knows any.
    pub fn executed(&self) -> &Figures {
        if self.executed_by.is_empty() { &self.figures } else { &self.executed }
    }

    /// Documents or keys examined per document returned; `None` if no source knows.
    pub fn examined_per_returned(&self) -> Option<f64> {
        self.executed.examined_per_returned()
    }

    /// Every sum with its stable name.
    pub fn sums(&self) -> Vec<(&'static str, Sum)> {
        self.figures.sums_with(self.server())
    }
}
