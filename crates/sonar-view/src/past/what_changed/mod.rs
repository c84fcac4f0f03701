//! What changed at a moment, or in a span.

mod compared;
mod earlier;
mod explained;
mod measured;
mod moment;
mod parts;
mod scan;

use sonar_core::Timestamp;
use sonar_core::history::Span;

use self::compared::compare;
use self::explained::Explained;
pub use self::scan::prepare;
use super::{ComparedTime, HistoryView, PastError, resolution};
use crate::changes::{ChangesReport, ComparedSpans};
use crate::kit::Zone;

/// What is to be explained.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AskedChanges {
    /// When.
    pub when: AskedTime,
    /// What it is compared with; `None`: each moment with the time before it.
    pub against: Option<ComparedTime>,
}

/// The time that is to be explained.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AskedTime {
    /// What began at a moment.
    Moment {
        /// The moment.
        at: Timestamp,
        /// How exactly it is known, in nanoseconds: a minute for `14:05`.
        precision_ns: u64,
    },
    /// What began within a span.
    Span(Span),
}

/// Explains a moment or a span; times in sentences and messages are those of a clock in `zone`.
///
/// # Errors
/// The history cannot be read, or has nothing of that time.
pub fn report(
    history: &HistoryView<'_>,
    asked: &AskedChanges,
    zone: &Zone,
) -> Result<ChangesReport, PastError> {
    let history = &history.in_zone(zone);
    let explained = match (asked.when, asked.against) {
        (AskedTime::Moment { at, precision_ns }, against) => {
            let focus = moment::focus(at, precision_ns);
            moment::explain(history, focus, against, zone)?
        }
        (AskedTime::Span(span), Some(against)) => {
            let against = against.of(span, zone);
            let width = resolution(span).width_ns();
            compare(history, span, against, None)?.explained(history, width)?
        }
        (AskedTime::Span(span), None) => scan::explain(history, span, zone)?,
    };
    let Explained { span, against, usual, mut moments, seen, doubt } = explained;
    // Of two spans that were asked for, only what is in one and not in the other counts.
    if asked.against.is_none() {
        earlier::with_earlier_runs(history, &mut moments)?;
    }
    let gaps = history.gaps(span)?.iter().map(Into::into).collect();
    let spans = ComparedSpans { span, against, usual, source: history.name().to_owned(), zone: zone.clone() };
    let mut report = ChangesReport::new(&spans, &moments, gaps).with_seen(&seen, doubt);
    report.about.host = history.host()?;
    Ok(report)
}
