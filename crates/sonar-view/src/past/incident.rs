//! Everything about an incident.

use sonar_core::HistoryWindow;
use sonar_core::history::Span;

use super::what_changed::{self, AskedChanges, AskedTime};
use super::{HistoryView, PastError, timeline};
use crate::incident::{IncidentParts, IncidentReport};
use crate::queries::Selection;

/// Rows of queries in the document.
const ROWS: usize = 50;

/// An incident.
pub struct PastIncident {
    /// What was done in its span: text shows the queries of this window.
    pub window: HistoryWindow,
    /// The document.
    pub report: IncidentReport,
}

impl PastIncident {
    /// What happened within a span; `selection` says which queries to show, and in which zone times are.
    ///
    /// # Errors
    /// The history cannot be read, or has nothing of that span.
    pub fn of(history: &HistoryView<'_>, span: Span, selection: &Selection) -> Result<Self, PastError> {
        let zone = &selection.zone;
        let Some(window) = history.read(span)? else {
            return Err(history.nothing_stored(span, zone));
        };
        let asked = AskedChanges { when: AskedTime::Span(span), against: None };
        let parts = IncidentParts {
            changes: what_changed::report(history, &asked, zone)?,
            timeline: timeline::report(history, span, timeline::PARTS, zone)?,
            window: &window,
            selection: &Selection { limit: Some(selection.limit.unwrap_or(ROWS)), ..selection.clone() },
        };
        let report = IncidentReport::new(span, parts, zone)?;
        Ok(Self { window, report })
    }
}
