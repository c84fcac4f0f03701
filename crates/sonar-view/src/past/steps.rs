//! Steps from window to window, for the live view.

use sonar_core::Timestamp;
use sonar_core::history::{HistoryWindow, Resolution, Span};

use super::{HistoryView, PastError};
use crate::queries::PastWindow;

/// Length of the span that is searched first for the window of a step, in nanoseconds.
const FIRST_REACH_NS: u64 = Resolution::Hour.width_ns() / 6;

/// Which window to show next.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum HistoryStep {
    /// The last one that begins before this time.
    Before(Timestamp),
    /// The first one that begins at this time or later.
    From(Timestamp),
}

impl HistoryStep {
    /// The window of this step, in the finest resolution that is left.
    ///
    /// # Errors
    /// The history cannot be read, or has no such window.
    pub fn window(self, history: &HistoryView<'_>) -> Result<PastWindow, PastError> {
        let extent = history.extent();
        // Looks further and further away, so that a gap is passed and a long history is not read in full.
        let mut reach = FIRST_REACH_NS;
        loop {
            let (span, is_all) = match self {
                Self::Before(at) => {
                    let from = at.minus_ns(reach);
                    (Span { from, to: at.min(extent.to) }, from <= extent.from)
                }
                Self::From(at) => {
                    let to = at.plus_ns(reach);
                    (Span { from: at.max(extent.from), to }, to >= extent.to)
                }
            };
            let mut found: Option<HistoryWindow> = None;
            if span.from < span.to {
                history.visit(span, Resolution::TenSeconds, &mut |window| match self {
                    Self::Before(at) if window.window.start < at => found = Some(window),
                    Self::From(at) if window.window.start >= at && found.is_none() => {
                        found = Some(window);
                    }
                    _ => {}
                })?;
            }
            match found {
                Some(window) => return Ok(window.into()),
                None if is_all => {
                    let side = match self {
                        Self::Before(_) => "before",
                        Self::From(_) => "after",
                    };
                    return Err(PastError::NothingStored(format!(
                        "the history has no window {side} this one"
                    )));
                }
                None => reach = reach.saturating_mul(8),
            }
        }
    }
}
