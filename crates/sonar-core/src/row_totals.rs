//! The totals of a digest of several sources, as its rows show them.

use crate::digest::Digest;
use crate::figures::{Figures, ServerFigures};
use crate::row::Subject;
use crate::sum::Sum;
use crate::{GroupBy, Identity, Row, ShapeId, Source};

/// The sum of what the rows of a digest show. A row shows the counts and latencies of one source, and how the server
/// executed its operations by one source; these may be others than in the next row. So the totals may be those of no
/// single source. No operation counts twice: two sources may know the same one under different subjects (a profile
/// knows the plan of what the wire saw without one), and then a row of the second source alone is in no total.
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
    /// The sources of rows that are in no total, in the same order, because another source may have seen the same
    /// operations.
    pub beside_by: Vec<Source>,
    /// How many operations these rows show.
    pub beside: u64,
}

impl RowTotals {
    /// Those of all rows of a digest.
    pub fn of(digest: &Digest) -> Self {
        let total = &digest.total;
        let mut totals = Self::default();
        let (mut counted, mut executed) = (Set::default(), Set::default());
        // Of one source, the digest has them already; also of rows that a limit has left out of a saved one.
        if total.sources().count() <= 1 {
            totals.count(total, &mut counted);
            totals.execute(total, &mut executed);
            return Self { counted_by: counted.named(), executed_by: executed.named(), ..totals };
        }
        let by = digest.settings.by;
        let first = apart(total, Source::ALL.into_iter());
        let most = total.executed().map(|(source, _)| source);
        let first_executed = apart(total, most.into_iter().chain(Source::ALL));
        let mut beside = Set::default();
        for row in digest.rows() {
            let is_joined = is_one_for_all(row, by);
            let counts = |source: Option<Source>, chosen: Set| {
                is_joined || source.is_none_or(|source| chosen.has(source))
            };
            if counts(row.sources().next(), first) {
                totals.count(row, &mut counted);
            } else {
                totals.beside += row.figures().calls;
                row.sources().take(1).for_each(|source| beside.add(source));
            }
            if counts(row.executed().map(|(source, _)| source), first_executed) {
                totals.execute(row, &mut executed);
            }
        }
        Self {
            counted_by: counted.named(),
            executed_by: executed.named(),
            beside_by: beside.named(),
            ..totals
        }
    }

    /// Whether a row is in no total, because another source may have seen the same operations under another subject.
    pub fn leaves_out(&self, row: &Row, by: GroupBy) -> bool {
        let source = row.sources().next();
        source.is_some_and(|source| self.beside_by.contains(&source)) && !is_one_for_all(row, by)
    }

    fn count(&mut self, row: &Row, counted: &mut Set) {
        self.figures.merge(row.figures());
        if row.figures().calls > 0 {
            row.sources().take(1).for_each(|source| counted.add(source));
        }
    }

    fn execute(&mut self, row: &Row, executed: &mut Set) {
        if let Some((source, figures)) = row.executed() {
            self.executed.merge(figures);
            if figures.calls > 0 {
                executed.add(source);
            }
        }
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

/// Sources.
#[derive(Copy, Clone, Default)]
struct Set([bool; Source::ALL.len()]);

impl Set {
    fn add(&mut self, source: Source) {
        self.0[source as usize] = true;
    }

    fn has(self, source: Source) -> bool {
        self.0[source as usize]
    }

    fn named(self) -> Vec<Source> {
        Source::ALL.into_iter().filter(|source| self.has(*source)).collect()
    }
}

/// Whether every source has the operations of a row under the same subject, so that a row of one source alone holds
/// operations that no other source saw.
fn is_one_for_all(row: &Row, by: GroupBy) -> bool {
    match &row.subject {
        Subject::Shape { identity, shape, .. } => {
            matches!(by, GroupBy::Shape | GroupBy::Order)
                && *identity == Identity::Exact
                && shape.id != ShapeId(0)
        }
        Subject::Namespace(..) => true,
        _ => false,
    }
}

/// The sources that cannot have seen the same operations: each that saw them at another time than those before it.
fn apart(total: &Row, sources: impl Iterator<Item = Source>) -> Set {
    let mut chosen = Set::default();
    for source in sources {
        let Some(figures) = total.observed_by(source).map(|observed| &observed.figures) else { continue };
        let overlaps = |other: Source| {
            total.observed_by(other).is_some_and(|other| {
                let (a, b) = (&other.figures, figures);
                let known = a.first_seen.is_known() && b.first_seen.is_known();
                !known || (a.first_seen <= b.last_seen && b.first_seen <= a.last_seen)
            })
        };
        if figures.calls > 0 && !chosen.named().into_iter().any(overlaps) {
            chosen.add(source);
        }
    }
    chosen
}
