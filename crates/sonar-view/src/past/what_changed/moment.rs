//! What began at a moment.

use sonar_core::Timestamp;
use sonar_core::changes::{RECENT_WINDOWS, RESTART_REACH_NS, with_whole_restarts};
use sonar_core::history::{HistoryWindow, Resolution, Span};

use super::compared::{baseline, compare};
use super::explained::Explained;
use super::measured::ChangeMeasurement;
use super::scan;
use crate::kit::Zone;
use crate::past::{ComparedTime, HistoryView, PastError, whole_windows};

/// A moment that is less exact than that is taken for the first minute of it.
const LONGEST_NS: u64 = 60_000_000_000;
/// A moment that is more exact is taken for a second.
const SHORTEST_NS: u64 = 1_000_000_000;

/// The time that a moment names: a second, a minute, or what lies between.
pub(super) fn focus(at: Timestamp, precision_ns: u64) -> Span {
    Span { from: at, to: at.plus_ns(precision_ns.clamp(SHORTEST_NS, LONGEST_NS)) }
}

/// What began at a moment: the windows from it on against those before it. A time of several windows, like a minute, is
/// searched for moments, as a span is.
pub(super) fn explain(
    history: &HistoryView<'_>,
    focus: Span,
    against: Option<ComparedTime>,
    zone: &Zone,
) -> Result<Explained, PastError> {
    for resolution in Resolution::ALL {
        let width = resolution.width_ns();
        let mut span = whole_windows(focus, resolution);
        let until = history.extent().to.max(span.to);
        span.to = span.to.plus_ns((RECENT_WINDOWS as u64 - 1) * width).min(until);
        let from = span.from.minus_ns(RESTART_REACH_NS.max(width));
        let around = Span { from, to: span.to.plus_ns(RESTART_REACH_NS.max(width)) };
        let events = history.events(around)?;
        let with_restarts = |span| {
            let whole = with_whole_restarts(span, &events, width);
            Span { to: whole.to.min(until), ..whole }
        };
        span = with_restarts(span);
        let is_coarser = |windows: &[HistoryWindow]| windows.iter().any(|one| one.window.length_ns() > width);
        if resolution.coarser().is_some() && is_coarser(&history.windows(span, resolution)?) {
            continue;
        }
        return match against {
            Some(against) => {
                let before = against.of(span, zone);
                compare(history, span, before, Some(resolution))?.explained(history, width)
            }
            None if focus.length_ns() > width => {
                let whole = with_restarts(whole_windows(focus, resolution));
                scan::explain_windows(history, whole, resolution, zone)
            }
            None => {
                let before = baseline(history, span.from, width);
                let mut compared = compare(history, span, before, Some(resolution))?;
                ChangeMeasurement::new(history, resolution).measure_causes(&mut compared)?;
                compared.explained(history, width)
            }
        };
    }
    Err(PastError::NothingStored(format!("nothing is stored of {}", zone.show_seconds(focus.from))))
}
