//! Series of a span as a table.

use sonar_core::history::{CollectorKind, SeriesSubject, Span};

use super::{HistoryView, PastError};
use crate::kit::Zone;
use crate::series::{SeriesChoice, SeriesTable};

/// The means of series over a span; times in messages are those of a clock in `zone`.
///
/// # Errors
/// The history cannot be read, or has no such series.
pub fn means(
    history: &HistoryView<'_>,
    span: Span,
    choice: &SeriesChoice<'_>,
    zone: &Zone,
) -> Result<SeriesTable, PastError> {
    let window = history.read(span)?;
    let table = window.map(|window| SeriesTable::new(&window, choice, history.name(), span));
    table.filter(|table| !table.is_empty()).ok_or_else(|| {
        let (from, to) = (zone.show_seconds(span.from), zone.show_seconds(span.to));
        let name = history.name();
        PastError::NothingStored(format!(
            "the history in {name} has no series of this kind between {from} and {to}"
        ))
    })
}

/// Which collector observes what these series are about.
pub const fn collector(subject: SeriesSubject) -> CollectorKind {
    match subject {
        SeriesSubject::File => CollectorKind::Files,
        _ => CollectorKind::Machine,
    }
}
