//! The moments of change within a span.

use sonar_core::changes::{apart, with_all_events, without_usual_silences};
use sonar_core::history::{Event, Resolution, Span};

use super::compared::baseline;
use super::explained::Explained;
use super::parts::{MAX_SCANNED, ScannedSpan, begun_in, scan, scan_in_parts, scan_next_part};
use crate::kit::Zone;
use crate::past::{HistoryView, PastError, whole_windows};

const HOUR_NS: u64 = 3_600_000_000_000;
/// The lengths of the spans that pages ask for, up to now.
const PREPARED_NS: [u64; 3] = [4 * HOUR_NS, 24 * HOUR_NS, 30 * 24 * HOUR_NS];
/// The most windows that are scanned as one.
const MAX_WHOLE: u64 = 400;

/// The moments of change within a span.
pub(super) fn explain(history: &HistoryView<'_>, span: Span, zone: &Zone) -> Result<Explained, PastError> {
    explain_windows(history, span, scanned_at(span), zone)
}

/// The finest resolution in which a span has few enough windows to be scanned.
pub(super) fn scanned_at(span: Span) -> Resolution {
    let fits = |one: &Resolution| span.length_ns() / one.width_ns() <= MAX_SCANNED;
    Resolution::ALL.into_iter().find(fits).unwrap_or(Resolution::Hour)
}

/// The same in windows of a resolution.
pub(super) fn explain_windows(
    history: &HistoryView<'_>,
    span: Span,
    resolution: Resolution,
    zone: &Zone,
) -> Result<Explained, PastError> {
    let span = history.until_now(whole_windows(span, resolution));
    let width = resolution.width_ns();
    let scanned = if span.length_ns() / width <= MAX_WHOLE {
        let mut whole = ScannedSpan::default();
        whole.add(&scan(history, span, resolution, None)?, span);
        whole
    } else {
        scan_in_parts(history, span, resolution)?
    };
    let ScannedSpan { moments, seen, commands, has_compared } = scanned;
    let before = baseline(history, span.from, width);
    let events = history.events(Span { from: before.from, to: span.to })?;
    let mut listed: Vec<Event> = events.iter().filter(|event| span.contains(event.at)).cloned().collect();
    listed.extend(commands.finish(&events));
    let (from, to) = (zone.show_seconds(span.from), zone.show_seconds(span.to));
    let covers = || history.covers(zone);
    let doubt = if seen.windows() == 0 {
        let covers = covers();
        Some(format!(
            "nothing was observed between {from} and {to}, so nothing can be said about it; {covers}"
        ))
    } else if !has_compared {
        let covers = covers();
        Some(format!("too little was observed up to {to} to say what is usual and what changed; {covers}"))
    } else {
        None
    };
    let moments = begun_in(moments, span, width);
    let moments = apart(with_all_events(moments, &listed, width), width);
    let moments = without_usual_silences(moments, &events, width);
    Ok(Explained { span, against: None, usual: None, moments, seen, doubt })
}

/// Scans a part of the last 4 hours, the last day, or the last 30 days that can be kept and is not known yet; `false` if
/// there is none.
///
/// # Errors
/// The history cannot be read.
pub fn prepare(history: &HistoryView<'_>) -> Result<bool, PastError> {
    let Span { from: first, to } = history.extent();
    for length_ns in PREPARED_NS {
        let asked = Span { from: to.minus_ns(length_ns), to };
        let (span, resolution) = (Span { from: asked.from.max(first), to }, scanned_at(asked));
        if scan_next_part(history, span, resolution)? {
            return Ok(true);
        }
    }
    Ok(false)
}
