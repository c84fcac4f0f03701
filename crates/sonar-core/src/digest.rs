//! A digest: all operations of one or several sources, grouped by shape, namespace, application or plan, over time.
//!
//! Its figures are *weighted*: an entry that represents N operations (a rate limit, a sample) counts N times.
//! The number of entries that were read is kept separately.

use std::borrow::Cow;
use std::sync::Arc;

use crate::figures::{Figures, Record};
use crate::row::{Row, Subject, UnfinishedOperations};
use crate::table::{GroupBy, Table};
use crate::{
    Application, Class, Identity, InFlightOperations, ObservedParts, Role, ShapeId, Source, Timestamp,
};

/// The maximum number of operations kept for a scatter plot.
pub const MAX_POINTS: usize = 100_000;

/// One operation, for a scatter plot.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ScatterPoint {
    /// When it ended.
    pub end: Timestamp,
    /// Latency in nanoseconds.
    pub latency_ns: u64,
    /// Its row: an index into [`Digest::rows`].
    pub row: u32,
}

/// Settings of a digest.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct DigestSettings {
    /// What the rows are grouped by.
    pub by: GroupBy,
    /// Whether to keep operations for a scatter plot, at most [`MAX_POINTS`].
    pub points: bool,
}

/// Figures of all operations of one or several sources.
#[derive(Clone, Debug)]
pub struct Digest {
    /// Its settings.
    pub settings: DigestSettings,
    /// All operations.
    pub total: Row,
    table: Table,
    /// Number of operations in the row [`Subject::Other`], unweighted.
    pub folded: u64,
    /// A random sample of operations; all of them up to [`MAX_POINTS`].
    pub points: Vec<ScatterPoint>,
    /// The number of operations that the sample was drawn from.
    pub points_seen: u64,
    /// When each source was observed, in the order of [`Source::ALL`]; nothing where that is not known, see
    /// [`Digest::observed_by`].
    pub observed: [ObservedParts; Source::ALL.len()],
    random: u64,
}

impl Default for Digest {
    fn default() -> Self {
        Self::new(DigestSettings::default())
    }
}

impl Digest {
    /// An empty digest.
    pub fn new(settings: DigestSettings) -> Self {
        Self {
            settings,
            total: Row::new(Subject::Other, Class::default()),
            table: Table::of_digest(settings.by),
            folded: 0,
            points: Vec::new(),
            points_seen: 0,
            observed: Source::ALL.map(|_| ObservedParts::default()),
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Adds one operation.
    #[inline]
    pub fn record(&mut self, record: &Record<'_>) {
        self.total.record(record).figures.record_time(record);
        let (at, folded) = self.table.record(record);
        self.folded += u64::from(folded);
        if self.settings.points
            && record.op.end.is_known()
            && let Some(latency_ns) = record.op.latency_ns
        {
            self.keep(ScatterPoint { end: record.op.end, latency_ns, row: at as u32 });
        }
    }

    /// Adds operations that were in flight when the capture ended, in digests by shape or namespace.
    pub fn add_in_flight(&mut self, waiting: &InFlightOperations) {
        let shape = &waiting.shape;
        let (subject, class) = match self.settings.by {
            GroupBy::Shape => {
                let (identity, order) = (Identity::Exact, ShapeId(0));
                (Subject::Shape { identity, shape: shape.clone(), order }, waiting.class)
            }
            GroupBy::Namespace => {
                (Subject::Namespace(shape.database.clone(), shape.collection.clone()), Class::default())
            }
            _ => return,
        };
        let mut row = Row::new(subject, class);
        row.observed_by_mut(Source::Wire).in_flight =
            UnfinishedOperations { count: waiting.count, oldest_ns: waiting.oldest_ns };
        self.total.merge(&row);
        self.add(&row);
    }

    /// Adds everything in `other`, source by source. It keeps its own sample of operations, and takes the other's
    /// only if it has none.
    pub fn merge(&mut self, other: &Self) {
        self.total.merge(&other.total);
        for (mine, theirs) in self.observed.iter_mut().zip(&other.observed) {
            if mine.total_ns() == 0 {
                mine.clone_from(theirs);
            }
        }
        let rows: Vec<u32> = other.rows().iter().map(|row| self.add(row)).collect();
        self.folded += other.folded;
        if self.points.is_empty() {
            self.points_seen = other.points_seen;
            let row_of = |point: &ScatterPoint| rows.get(point.row as usize).copied().unwrap_or(point.row);
            self.points =
                other.points.iter().map(|point| ScatterPoint { row: row_of(point), ..*point }).collect();
        }
    }

    /// Adds a row that was saved earlier, also to the totals.
    pub fn restore(&mut self, row: &Row) {
        self.total.merge(row);
        self.add(row);
    }

    /// Adds a row to the row with the same subject, and returns its index.
    fn add(&mut self, row: &Row) -> u32 {
        let (at, folded) = self.table.add(row);
        self.folded += if folded { row.figures().entries } else { 0 };
        at as u32
    }

    /// Reservoir sampling: each point is kept with the same probability.
    fn keep(&mut self, point: ScatterPoint) {
        self.points_seen += 1;
        if self.points.len() < MAX_POINTS {
            self.points.push(point);
            return;
        }
        // xorshift64* with a fixed seed, so that the same input gives the same page.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let at = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) % self.points_seen;
        if let Some(kept) = self.points.get_mut(at as usize) {
            *kept = point;
        }
    }

    /// Changes the subjects of rows; rows that then have the same subject are merged.
    pub fn rename(&mut self, subject: impl Fn(&Subject) -> Subject) {
        self.change(|row| row.subject = subject(&row.subject));
    }

    /// Makes one row of those of a shape that clients sent and those that servers sent.
    pub fn unite_roles(&mut self) {
        if self.rows().iter().any(|row| row.role != Role::default()) {
            self.change(|row| row.role = Role::default());
        }
    }

    /// Changes the keys of rows; rows that then have the same key are merged.
    fn change(&mut self, change: impl Fn(&mut Row)) {
        let old = std::mem::replace(&mut self.table, Table::of_digest(self.settings.by));
        let mut add = |row: &Row| {
            let mut row = row.clone();
            change(&mut row);
            self.table.add(&row).0 as u32
        };
        let places: Vec<u32> = old.iter().map(&mut add).collect();
        for point in &mut self.points {
            point.row = places.get(point.row as usize).copied().unwrap_or(point.row);
        }
    }

    /// Makes one row of all with the same name of an application, whatever its driver is: reports show the name alone.
    pub fn join_applications(&mut self) {
        if self.settings.by != GroupBy::App {
            return;
        }
        self.rename(|subject| match subject {
            Subject::App(app) if !app.name.is_empty() => {
                let app = Application { name: app.name.clone(), ..Application::default() };
                Subject::App(Arc::new(app))
            }
            other => other.clone(),
        });
    }

    /// The rows, in order of first appearance.
    pub fn rows(&self) -> &[Row] {
        self.table.rows()
    }

    /// Counts and latencies of all operations, from the source with the most precise latencies.
    pub fn totals(&self) -> &Figures {
        self.total.figures()
    }

    /// When a source was observed. Where that is not known, from the end of its first operation to that of the last;
    /// nothing if these are the same.
    pub fn observed_by(&self, source: Source) -> Cow<'_, ObservedParts> {
        let known = &self.observed[source as usize];
        // Who watched for no time at all has seen no rate.
        if known.ends().is_some() {
            return Cow::Borrowed(known);
        }
        let figures = self.total.observed_by(source).map(|observed| &observed.figures);
        Cow::Owned(figures.map_or_else(ObservedParts::default, |figures| {
            ObservedParts::between(figures.first_seen, figures.last_seen)
        }))
    }

    /// Figures of all operations that `source` saw.
    pub fn totals_mut(&mut self, source: Source) -> &mut Figures {
        &mut self.total.observed_by_mut(source).figures
    }
}
