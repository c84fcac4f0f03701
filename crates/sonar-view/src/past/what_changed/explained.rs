//! The answer before it is put into words.

use sonar_core::changes::ScanMoment;
use sonar_core::history::Span;

use crate::changes::SeenSpan;

/// The moments of change of a span, and what was seen of it.
pub(super) struct Explained {
    pub span: Span,
    pub against: Option<Span>,
    /// The time that shows what is usual, if it is longer than that.
    pub usual: Option<Span>,
    pub moments: Vec<ScanMoment>,
    pub seen: SeenSpan,
    /// Why nothing can be said about the span.
    pub doubt: Option<String>,
}
