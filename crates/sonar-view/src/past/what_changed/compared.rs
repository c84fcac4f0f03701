//! A span that is compared with another one.

use sonar_core::Timestamp;
use sonar_core::changes::{
    ALPHA, BASELINE_WINDOWS, ChangeInput, ComparisonKind, HistoryChanges, MIN_WINDOWS, ScanMoment, each_once,
    find, with_all_events, without_usual_silences,
};
use sonar_core::history::{Resolution, Span};

use super::explained::Explained;
use crate::changes::SeenSpan;
use crate::past::{HistoryView, PastError, resolution};

/// An agent measures the size of each collection at least once in this time, in nanoseconds.
pub(super) const SIZES_EVERY_NS: u64 = 300 * 1_000_000_000;

/// The time before `to` that shows what is usual, as far as it is stored.
pub(super) fn baseline(history: &HistoryView<'_>, to: Timestamp, width_ns: u64) -> Span {
    let length = BASELINE_WINDOWS as u64 * width_ns;
    let from = to.minus_ns(length);
    Span { from: from.max(history.extent().from).min(to), to }
}

/// A span that was compared with another one.
pub(super) struct ComparedMoment {
    pub moment: ScanMoment,
    seen: SeenSpan,
    /// What its figures were compared with.
    against: Span,
    /// The time before that shows what is usual, if it is longer than that.
    usual: Option<Span>,
    /// Why no figures were compared.
    pub doubt: Option<String>,
}

impl ComparedMoment {
    /// With all events of the span, as every view shows them.
    pub fn explained(self, history: &HistoryView<'_>, width_ns: u64) -> Result<Explained, PastError> {
        let span = self.moment.span;
        let moments = with_all_events(vec![self.moment], &history.events(span)?, width_ns);
        let moments = each_once(moments, width_ns);
        let from = self.usual.unwrap_or(self.against).from.min(span.from);
        let moments = without_usual_silences(moments, &history.events(Span { from, to: span.to })?, width_ns);
        Ok(Explained {
            span,
            against: self.doubt.is_none().then_some(self.against),
            usual: self.usual,
            moments,
            seen: self.seen,
            doubt: self.doubt,
        })
    }
}

/// Compares a span with another one; a moment in windows of this resolution.
pub(super) fn compare(
    history: &HistoryView<'_>,
    span: Span,
    against: Span,
    moment: Option<Resolution>,
) -> Result<ComparedMoment, PastError> {
    let resolution = moment.unwrap_or_else(|| resolution(span));
    let (before, after) = (history.windows(against, resolution)?, history.windows(span, resolution)?);
    let zone = history.zone();
    if after.is_empty() {
        let (from, covers) = (zone.show_seconds(span.from), history.covers(zone));
        return Err(PastError::NothingStored(format!("nothing is stored from {from} on; {covers}")));
    }
    let mut seen = SeenSpan::default();
    after.iter().for_each(|window| seen.add(window));
    if before.len() < MIN_WINDOWS {
        let (from, covers) = (zone.show_seconds(against.from), history.covers(zone));
        let doubt = format!("too little is stored from {from} on to compare figures with; {covers}");
        let moment = ScanMoment { span, measured_ns: span.length_ns(), changes: HistoryChanges::default() };
        return Ok(ComparedMoment { moment, seen, against, usual: None, doubt: Some(doubt) });
    }
    // What was measured later than that may have grown later, and what the span held up ends later.
    let end = if moment.is_some() { span.to.plus_ns(SIZES_EVERY_NS) } else { span.to };
    let events = history.events(Span { from: against.from.min(span.from), to: end.max(against.to) })?;
    let later = match moment {
        Some(_) => history.windows(Span { from: span.to, to: end }, resolution)?,
        None => Vec::new(),
    };
    let input = ChangeInput { before: &before, after: &after, later: &later, events: &events, alpha: ALPHA };
    let kind = if moment.is_some() { ComparisonKind::Moment } else { ComparisonKind::Spans };
    let changes = find(&input, kind);
    let moment = ScanMoment { span, measured_ns: span.length_ns(), changes };
    let recent = input.recent();
    let is_part = |recent: &Span| before.first().is_some_and(|first| first.window.start < recent.from);
    let usual = recent.filter(is_part).map(|_| against);
    Ok(ComparedMoment { moment, seen, against: recent.unwrap_or(against), usual, doubt: None })
}
