//! The queries of a span.

use sonar_core::Timestamp;
use sonar_core::history::{HistoryWindow, Resolution, Span};

use super::{HistoryView, PastError, whole_windows};
use crate::kit::Zone;
use crate::queries::PastWindow;

/// The windows that a time names: the one in which it lies, or all of a minute or a day. `precision_ns` says how exactly it
/// was written, in nanoseconds.
pub fn named_windows(at: Timestamp, precision_ns: u64) -> Span {
    let named = Span { from: at, to: at.plus_ns(precision_ns.max(1)) };
    whole_windows(named, Resolution::TenSeconds)
}

/// Everything within a span; times in messages are those of a clock in `zone`.
///
/// # Errors
/// The history cannot be read, or has nothing of that span.
pub fn whole(history: &HistoryView<'_>, span: Span, zone: &Zone) -> Result<PastWindow, PastError> {
    let all = history.read(span)?.ok_or_else(|| history.nothing_stored(span, zone))?;
    Ok(all.into())
}

/// How long the intervals of a span are: some windows of the history.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct IntervalWidth {
    ns: u64,
    /// The coarsest windows of which they are made.
    resolution: Resolution,
}

impl IntervalWidth {
    /// Intervals of this length in nanoseconds; `None` if windows do not fill them.
    pub fn new(ns: u64) -> Option<Self> {
        let fits = |one: &Resolution| ns > 0 && ns.is_multiple_of(one.width_ns());
        Resolution::ALL.into_iter().rev().find(fits).map(|resolution| Self { ns, resolution })
    }
}

/// Hands out each interval of a span in which operations were observed, by time.
///
/// # Errors
/// The history cannot be read.
pub fn intervals(
    history: &HistoryView<'_>,
    span: Span,
    width: IntervalWidth,
    visit: &mut dyn FnMut(PastWindow),
) -> Result<(), PastError> {
    let mut open: Option<HistoryWindow> = None;
    history.visit_operations(span, width.resolution, &mut |window| {
        let start = window.window.start.floor_to(width.ns);
        match &mut open {
            Some(known) if known.window.start.floor_to(width.ns) == start => known.merge(&window),
            other => {
                if let Some(ended) = other.replace(window) {
                    visit(ended.into());
                }
            }
        }
    })?;
    open.into_iter().for_each(|last| visit(last.into()));
    Ok(())
}
