//! What was usual before, to mark what is new or slower.

use sonar_core::history::Span;
use sonar_core::{Baseline, Digest, Source, Timestamp};

use super::{DigestRows, HistoryDigest, HistoryView, PastError};
use crate::kit::{Nanos, Zone};
use crate::queries::ClassSet;

/// The time around a moment that a baseline covers if nothing else was asked for, in nanoseconds.
const AROUND_NS: u64 = 3_600_000_000_000;

/// The time around a moment that a baseline covers if nothing else was asked for.
pub fn around(at: Timestamp) -> Span {
    let from = at.minus_ns(AROUND_NS / 2);
    Span { from, to: from.plus_ns(AROUND_NS) }
}

/// What a baseline is made of.
pub struct BaselineInput {
    /// Its rows, by shape.
    pub digest: Digest,
    /// Where they come from.
    pub source: Source,
    /// Whether it has all rows, of the whole time.
    pub is_complete: bool,
    /// What it is called.
    pub name: String,
}

impl BaselineInput {
    /// The operations of a span; times in its name and in messages are those of a clock in `zone`.
    ///
    /// # Errors
    /// The history cannot be read, or has nothing of that span.
    pub fn of(
        history: &HistoryView<'_>,
        span: Span,
        classes: ClassSet,
        zone: &Zone,
    ) -> Result<Self, PastError> {
        let rows = DigestRows { by: Baseline::BY, classes };
        let HistoryDigest { digest, source, is_whole, .. } =
            HistoryDigest::of(&history.in_zone(zone), span, rows)?;
        let collector = history.shows_operations(span)?;
        let is_complete = is_whole && history.gaps_of(collector, span)?.is_empty();
        let name = format!("{} to {}", zone.show_seconds(span.from), zone.show_seconds(span.to));
        Ok(Self { digest, source, is_complete, name })
    }
}

/// A baseline, and what it cannot show.
#[derive(Debug)]
pub struct NotedBaseline {
    /// The baseline.
    pub baseline: Baseline,
    /// What it cannot show, a sentence each.
    pub notes: Vec<String>,
}

impl NotedBaseline {
    /// The baseline of these rows.
    ///
    /// # Errors
    /// There are none.
    pub fn new(input: &BaselineInput) -> Result<Self, PastError> {
        let BaselineInput { digest, source, is_complete, name } = input;
        let baseline = Baseline::new(digest, *source == Source::Wire, *is_complete);
        if baseline.is_empty() {
            return Err(PastError::NothingStored(format!(
                "the baseline {name} holds no shape of the classes asked for"
            )));
        }
        let mut notes = Vec::new();
        if !baseline.has_same_clock() {
            let least = match baseline.threshold_ns() {
                0 => String::new(),
                ns => format!(", where it takes {} or longer", Nanos(ns)),
            };
            notes.push(format!(
                "the baseline is of a {}: its latencies are the server's own and are not compared with those of the wire; \
                 only what is new is marked{least}",
                source.name(),
            ));
        }
        if !baseline.is_complete() {
            notes.push(format!("rows were left out of the baseline {name}, so nothing is marked as new"));
        }
        Ok(Self { baseline, notes })
    }
}
