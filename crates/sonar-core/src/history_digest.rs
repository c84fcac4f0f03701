//! A span of the history as a digest, as if it were read from a file.

use crate::history::{CollectorKind, HistoryWindow};
use crate::timeline::TimeBucket;
use crate::{
    Class, Digest, DigestSettings, Endpoint, GroupBy, ObservedParts, Role, Row, Source, Subject, Timeline,
    Timestamp,
};

/// Adds up windows of the history.
#[derive(Debug)]
pub struct HistoryDigester {
    digest: Digest,
    width_ns: u64,
}

impl HistoryDigester {
    /// Adds up windows that are `width_ns` wide, or wider where no others are left.
    pub fn new(settings: DigestSettings, width_ns: u64) -> Self {
        let mut digest = Digest::new(settings);
        digest.observed = Source::ALL.map(|_| ObservedParts::of_width(width_ns));
        Self { digest, width_ns }
    }

    /// Adds the operations of a window that servers served, of the classes that are wanted.
    pub fn add(&mut self, window: &HistoryWindow, wants: impl Fn(Class) -> bool) {
        let by = self.digest.settings.by;
        let at = window.window.start;
        for (source, observed) in Source::ALL.into_iter().zip(&mut self.digest.observed) {
            if let Some(collector) = CollectorKind::of(source) {
                observed.add(at, window.observed_ns(collector));
            }
        }
        let table = if by == GroupBy::App { &window.window.apps } else { &window.window.shapes };
        for row in table.iter().filter(|row| row.role == Role::Served && wants(row.class)) {
            let mut row: Row = row.clone();
            (row.server, row.role) = (Endpoint::default(), Role::default());
            if by != GroupBy::Shape {
                row.class = Class::default();
            }
            if let (GroupBy::Namespace, Subject::Shape { shape, .. }) = (by, &row.subject) {
                row.subject = Subject::Namespace(shape.database.clone(), shape.collection.clone());
            }
            self.add_timeline(&mut row, at);
            self.digest.restore(&row);
        }
    }

    /// Puts the figures of a row into its timeline, at the start of their window.
    fn add_timeline(&self, row: &mut Row, at: Timestamp) {
        let sources: Vec<Source> = row.sources().collect();
        for source in sources {
            let figures = &mut row.observed_by_mut(source).figures;
            let sums = &figures.server().totals.sums;
            let bucket = TimeBucket {
                calls: figures.calls,
                latency_ns: u64::try_from(figures.latency.sum_ns()).unwrap_or(u64::MAX),
                examined: sums.docs_examined.get().max(sums.keys_examined.get()).unwrap_or(0),
                returned: figures.returned.get().max(figures.affected.get()).unwrap_or(0),
            };
            *figures.timeline_mut() = Timeline::of_width(self.width_ns);
            figures.timeline_mut().add(at, bucket);
        }
    }

    /// The digest, and the source of its latencies.
    pub fn finish(mut self) -> (Digest, Source) {
        self.digest.join_applications();
        let observed = |source: &Source| self.digest.observed[*source as usize].total_ns() > 0;
        let first_observed = || Source::ALL.into_iter().find(observed);
        let source = self.digest.total.sources().next().or_else(first_observed).unwrap_or(Source::Wire);
        (self.digest, source)
    }
}
