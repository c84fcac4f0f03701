//! Queries, internals, machine and events of a span on one axis of time.

use sonar_core::history::Span;

use super::{HistoryView, PastError};
use crate::kit::Zone;
use crate::timeline::{TimelineBuilder, TimelineReport};

/// Parts of the axis of a document.
pub const PARTS: usize = 360;

/// The timeline of a span in at most `parts` parts; times in text are those of a clock in `zone`.
///
/// # Errors
/// The history cannot be read.
pub fn report(
    history: &HistoryView<'_>,
    span: Span,
    parts: usize,
    zone: &Zone,
) -> Result<TimelineReport, PastError> {
    let (span, resolution) = history.in_whole_windows(span);
    let mut builder = TimelineBuilder::new(span, parts, resolution.width_ns());
    history.visit(span, resolution, &mut |window| builder.add(&window))?;
    let (events, gaps) = (history.events(span)?, history.gaps(span)?);
    let mut report = builder.finish(&events, &gaps, history.name(), zone);
    report.about.host = history.host()?;
    Ok(report)
}
