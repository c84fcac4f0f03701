//! Two digests side by side: spans of a history, or what was read from files.

use sonar_core::history::Span;
use sonar_core::shape::RULES_VERSION;
use sonar_core::{Digest, GroupBy, Source};

use super::{DigestRows, HistoryDigest, HistoryView, PastError};
use crate::compare::{self, ComparedSide, ComparedSources, DigestComparison};
use crate::kit::Zone;

/// A digest that is compared.
pub struct LoadedDigest {
    /// The digest.
    pub digest: Digest,
    /// Its host, if known.
    pub host: Option<String>,
    /// The kind of source.
    pub source: Source,
    /// Whether it contains all rows.
    pub is_whole: bool,
    /// Whether it was read from a capture.
    pub is_of_capture: bool,
    /// Its file is cut or damaged; the digest covers what comes before.
    pub damaged: bool,
    /// The zone of its times.
    pub zone: Zone,
    /// Version of the rules that its shape ids follow; `None` if its rows have none.
    pub shape_rules: Option<u32>,
    /// What its capture lacks of all messages, as it stands behind the letter of a side; nothing if no part is missing.
    pub missing: Vec<String>,
    /// The span of the history that it is; `None` if it is of a file.
    pub history: Option<Span>,
}

impl LoadedDigest {
    /// Refuses shape ids that follow other rules: none of them would be found again, so that every row would be new
    /// or gone.
    ///
    /// # Errors
    /// Both have shape ids, by different rules.
    pub fn refuse_other_rules(&self, name: &str, other: Option<u32>) -> Result<(), PastError> {
        match (self.shape_rules, other) {
            (Some(own), Some(other)) if own != other => Err(PastError::Incomparable(format!(
                "{name}: its shape ids follow version {own} of the rules, not version {other}, so that no shape would be \
                 found again; write the report once more with this mongosonar {}, from the same log or capture",
                env!("CARGO_PKG_VERSION")
            ))),
            _ => Ok(()),
        }
    }

    /// What a comparison says of it; `zone` is the one that was asked for.
    pub fn side(&self, name: &str, zone: Option<&Zone>) -> ComparedSide {
        ComparedSide {
            name: name.to_owned(),
            host: self.host.clone(),
            source: self.source,
            history: self.history,
            zone: zone.unwrap_or(&self.zone).clone(),
            notes: self.missing.clone(),
        }
    }
}

/// A span of a history that is compared.
pub struct LoadedSpan {
    /// Its digest.
    pub loaded: LoadedDigest,
    /// What must be known of it beside its gaps, a sentence each; see [`HistoryView::operations_gap_note`].
    pub notes: Vec<String>,
}

impl LoadedSpan {
    /// The operations of a span; times in notes and messages are those of a clock in `zone`.
    ///
    /// # Errors
    /// The history cannot be read, has nothing of that span, or cannot have these rows.
    pub fn of(
        history: &HistoryView<'_>,
        span: Span,
        rows: DigestRows,
        zone: &Zone,
    ) -> Result<Self, PastError> {
        let HistoryDigest { digest, source, is_whole, windows, seen } =
            HistoryDigest::of(&history.in_zone(zone), span, rows)?;
        let mut notes = seen.notes();
        if windows != span {
            let (from, to) = (zone.show_seconds(windows.from), zone.show_seconds(windows.to));
            notes.push(format!("compared are the windows of the history from {from} to {to}"));
        }
        let loaded = LoadedDigest {
            digest,
            host: None,
            source,
            is_whole,
            is_of_capture: false,
            damaged: false,
            zone: zone.clone(),
            shape_rules: (rows.by == GroupBy::Shape).then_some(RULES_VERSION),
            missing: Vec::new(),
            history: Some(windows),
        };
        Ok(Self { loaded, notes })
    }
}

/// Compares two digests.
///
/// # Errors
/// Their rows are about different things.
pub fn compared<'a>(a: &'a LoadedDigest, b: &'a LoadedDigest) -> Result<DigestComparison<'a>, PastError> {
    let [by_a, by_b] = [a, b].map(|one| one.digest.settings.by);
    if by_a != by_b {
        return Err(PastError::Incomparable(format!(
            "rows are by {} in one and by {} in the other",
            by_a.name(),
            by_b.name()
        )));
    }
    let whole = [a.is_whole, b.is_whole];
    let sources = ComparedSources {
        same_clock: a.source == b.source,
        in_part: [a, b].iter().any(|one| !one.missing.is_empty()),
    };
    Ok(DigestComparison::of(&a.digest, &b.digest, sources, whole))
}

/// What is not compared because the sources differ; `None` if they do not.
pub fn source_note(a: &LoadedDigest, b: &LoadedDigest) -> Option<String> {
    (a.source != b.source).then(|| {
        format!(
            "one is of a {}, the other of a {}: latencies and calls of different sources are not compared",
            compare::kind(a.source),
            compare::kind(b.source),
        )
    })
}
