//! One query shape over a span of time.

use sonar_core::ShapeId;
use sonar_core::history::Span;

use super::{HistoryView, PastError};
use crate::changes::GapJson;
use crate::kit::Zone;
use crate::queries::{ShapeHistory, ShapeHistoryBuilder};
use crate::timeline::TimeAxis;

/// The most parts of the axis.
pub const PARTS: usize = 240;

/// What the history has of a shape in a span, in at most [`PARTS`] parts; times in text are those of a clock in `zone`.
///
/// # Errors
/// The history cannot be read, or has no operation of this shape in the span.
pub fn report(
    history: &HistoryView<'_>,
    id: ShapeId,
    span: Span,
    zone: &Zone,
) -> Result<ShapeHistory, PastError> {
    let (span, resolution) = history.in_whole_windows(span);
    let mut builder = ShapeHistoryBuilder::new(id, TimeAxis::new(span, PARTS, resolution.width_ns()));
    history.visit_operations(span, resolution, &mut |window| builder.add(&window))?;
    let gaps = history.gaps(span)?.iter().map(GapJson::from).collect();
    let mut report = builder.finish(gaps, history.name(), zone).ok_or_else(|| {
        PastError::NothingStored(format!("no operation of the shape {id} is stored in this span"))
    })?;
    report.about.host = history.host()?;
    Ok(report)
}
