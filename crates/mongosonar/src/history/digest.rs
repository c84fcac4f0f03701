//! A span of the history as a digest, as if it were read from a file.

use anyhow::{Result, bail};
use sonar_core::history::{HistoryWindow, Span};
use sonar_core::timeline::TimeBucket;
use sonar_core::{Class, Digest, DigestSettings, Endpoint, GroupBy, Role, Row, Source, Subject, Timestamp};
use sonar_view::kit::Zone;
use sonar_view::queries::ClassSet;

use super::{StoredHistory, resolution};
use crate::exit::usage;

/// A span as a digest.
pub struct HistoryDigest {
    /// The digest.
    pub digest: Digest,
    /// The source of its latencies.
    pub source: Source,
    /// Whether it has all rows.
    pub is_whole: bool,
}

impl StoredHistory {
    /// The operations of these classes that servers served within a span.
    ///
    /// # Errors
    /// The history cannot be read, has nothing of that span, or cannot have these rows.
    pub fn digest(&self, span: Span, by: GroupBy, classes: ClassSet) -> Result<HistoryDigest> {
        if matches!(by, GroupBy::Order | GroupBy::Plan) {
            return Err(usage!(
                "a span of the history has no rows by {}; there are: shape namespace app",
                by.name()
            ));
        }
        let mut digest = Digest::new(DigestSettings { by, points: false });
        let (mut folded, mut count) = (0, 0);
        self.operations(span, resolution(span), &mut |window| {
            count += 1;
            folded += window.window.coverage.shapes_folded;
            add(&window, classes, &mut digest);
        })?;
        if count == 0 {
            let (utc, extent) = (Zone::utc(), self.extent);
            let show = |at| utc.show_seconds(at);
            bail!(
                "nothing is stored between {} and {}; the history in {} covers {} to {}",
                show(span.from),
                show(span.to),
                self.name,
                show(extent.from),
                show(extent.to)
            );
        }
        let source = digest.total.sources().next().unwrap_or(Source::Wire);
        Ok(HistoryDigest { digest, source, is_whole: folded == 0 })
    }
}

/// Adds the rows of a window.
fn add(window: &HistoryWindow, classes: ClassSet, digest: &mut Digest) {
    let by = digest.settings.by;
    let table = if by == GroupBy::App { &window.window.apps } else { &window.window.shapes };
    let at = window.window.start;
    for row in table.iter().filter(|row| row.role == Role::Served && classes.contains(row.class)) {
        let mut row: Row = row.clone();
        (row.server, row.role) = (Endpoint::default(), Role::default());
        if by != GroupBy::Shape {
            row.class = Class::default();
        }
        if let (GroupBy::Namespace, Subject::Shape { shape, .. }) = (by, &row.subject) {
            row.subject = Subject::Namespace(shape.database.clone(), shape.collection.clone());
        }
        add_timeline(&mut row, at);
        digest.restore(&row);
    }
}

/// Puts the figures of a row into its timeline, at the start of their window.
fn add_timeline(row: &mut Row, at: Timestamp) {
    let sources: Vec<Source> = row.sources().collect();
    for source in sources {
        let figures = &mut row.observed_by_mut(source).figures;
        let sums = &figures.server().sums;
        let bucket = TimeBucket {
            calls: figures.calls,
            latency_ns: u64::try_from(figures.latency.sum_ns()).unwrap_or(u64::MAX),
            examined: sums.docs_examined.get().max(sums.keys_examined.get()).unwrap_or(0),
            returned: figures.returned.get().max(figures.affected.get()).unwrap_or(0),
        };
        figures.timeline_mut().add(at, bucket);
    }
}
