//! A long span is scanned in parts of equal length, each by itself: what was found in one can be kept for the next answer.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use sonar_core::changes::{
    ALPHA, ChangeKind, CommandEvents, HistoryChange, RECENT_WINDOWS, Scan, ScanMoment, costliest,
    without_repetitions,
};
use sonar_core::history::{Event, ObservedSpan, Resolution, Span};

use super::compared::{SIZES_EVERY_NS, baseline};
use super::measured::ChangeMeasurement;
use crate::changes::SeenSpan;
use crate::past::scanned_parts::{PartKey, ScannedPart, ScannedParts, ScannedWindow};
use crate::past::{HistoryView, PastError};

/// The most windows that a scan compares.
pub(super) const MAX_SCANNED: u64 = 1_500;
/// The number of windows in a part.
const PART_WINDOWS: u64 = 60;

/// What was found in a span.
#[derive(Debug, Default)]
pub(super) struct ScannedSpan {
    /// The moments of change of all parts that overlap it.
    pub moments: Vec<ScanMoment>,
    pub seen: SeenSpan,
    /// Administrators' commands on the wire.
    pub commands: CommandEvents,
    pub has_compared: bool,
}

impl ScannedSpan {
    /// Adds what a part has of `span`.
    pub fn add(&mut self, part: &ScannedPart, span: Span) {
        self.moments.extend(part.moments.iter().cloned());
        for window in part.windows.iter().filter(|window| span.contains(window.start)) {
            self.seen.merge(&window.seen);
            self.commands.merge(window.commands.clone());
        }
        self.has_compared |= part.has_compared;
    }
}

/// Scans a span of whole windows. `windows`: among how many the probability of a false alarm is divided.
pub(super) fn scan(
    history: &HistoryView<'_>,
    span: Span,
    resolution: Resolution,
    windows: Option<u64>,
) -> Result<ScannedPart, PastError> {
    let before = baseline(history, span.from, resolution.width_ns());
    let events = history.events(Span { from: before.from, to: span.to })?;
    // What began shortly before the span goes on in it, and is no change there.
    let lead = RECENT_WINDOWS as u64 * resolution.width_ns();
    let lead = span.from.minus_ns(lead).max(before.from);
    let windows = windows.unwrap_or(span.to.since(lead) / resolution.width_ns());
    let mut scan = Scan::new(&events, ALPHA, usize::try_from(windows).unwrap_or(usize::MAX));
    history.visit(before, resolution, &mut |window| {
        if window.window.end <= lead {
            scan.push_before(window);
        } else if window.window.end <= span.from {
            scan.push(window);
        }
    })?;
    let mut part = ScannedPart::default();
    let with_behind = Span { from: span.from, to: history.until_now(with_behind(span, resolution)).to };
    history.visit(with_behind, resolution, &mut |window| {
        if span.contains(window.window.start) {
            part.windows.push(ScannedWindow::of(&window));
        }
        if window.window.start >= span.from {
            scan.push(window);
        }
    })?;
    part.has_compared = scan.has_compared();
    let mut measurement = ChangeMeasurement::new(history, resolution);
    for mut moment in scan.finish() {
        measurement.refine(&mut moment)?;
        part.moments.push(moment);
    }
    part.moments.extend(measurement.into_windows());
    Ok(part)
}

/// A span with the windows behind it in which what began at its end shows.
fn with_behind(span: Span, resolution: Resolution) -> Span {
    Span { to: span.to.plus_ns((RECENT_WINDOWS as u64 - 1) * resolution.width_ns()), ..span }
}

/// The moments by time, with only what began within `span`, and each change once.
pub(super) fn begun_in(mut moments: Vec<ScanMoment>, span: Span, width_ns: u64) -> Vec<ScanMoment> {
    moments.sort_by_key(|moment| moment.span.from);
    let mut moments = without_repetitions(moments);
    for moment in &mut moments {
        moment.changes.changes.retain(|change| began_in(change, span, width_ns));
    }
    moments.retain(|moment| !moment.changes.changes.is_empty() || span.contains(moment.span.from));
    moments
}

/// Whether a change, or something that it caused, began in a span. What the machine and the servers measure of themselves
/// is compared by windows of `width` nanoseconds, and may be dated a window before it began.
fn began_in(change: &HistoryChange, span: Span, width: u64) -> bool {
    let is_of_windows =
        matches!(change.what, ChangeKind::Machine(_) | ChangeKind::Server(_) | ChangeKind::Series(_));
    let since = if is_of_windows { change.since.plus_ns(width) } else { change.since };
    span.contains(change.since)
        || span.contains(since)
        || change.effects.iter().any(|effect| began_in(effect, span, width))
}

/// The parts of a span, and what the history says of their time.
struct SpanParts<'a> {
    history: &'a HistoryView<'a>,
    resolution: Resolution,
    windows: Vec<ObservedSpan>,
    events: Vec<Event>,
}

/// The parts that overlap a span.
fn parts_of(span: Span, resolution: Resolution) -> impl Iterator<Item = Span> {
    let width = PART_WINDOWS * resolution.width_ns();
    let starts =
        std::iter::successors(Some(span.from.floor_to(width)), move |from| Some(from.plus_ns(width)));
    let parts = starts.map(move |from| Span { from, to: from.plus_ns(width) });
    parts.take_while(move |part| part.from < span.to)
}

/// Where a part is kept.
struct PartPlace<'a> {
    parts: &'a ScannedParts,
    key: PartKey,
    fingerprint: u64,
    /// The part, if it is there.
    part: Option<Arc<ScannedPart>>,
}

impl<'a> SpanParts<'a> {
    fn new(history: &'a HistoryView<'a>, span: Span, resolution: Resolution) -> Result<Self, PastError> {
        let mut parts = Self { history, resolution, windows: Vec::new(), events: Vec::new() };
        if history.scanned_parts().is_none() {
            return Ok(parts);
        }
        if let Some(first) = parts_of(span, resolution).next() {
            let last = parts_of(span, resolution).last().unwrap_or(first);
            let all = Span { from: parts.reach(first).from, to: parts.reach(last).to };
            let windows = &mut parts.windows;
            history.observed_at(all, resolution, &mut |window| windows.push(window))?;
            parts.events = history.events(all)?;
        }
        Ok(parts)
    }

    /// All time that matters for a part.
    fn reach(&self, part: Span) -> Span {
        let before = baseline(self.history, part.from, self.resolution.width_ns());
        let behind = with_behind(part, self.resolution);
        Span { from: before.from, to: behind.to.plus_ns(SIZES_EVERY_NS) }
    }

    /// Where a part is kept; `None` if none are, or if more may be observed of its time.
    fn known(&self, part: Span) -> Option<PartPlace<'a>> {
        let parts = self.history.scanned_parts()?;
        let fingerprint = self.fingerprint(part)?;
        let key = PartKey { server: self.history.server(), resolution: self.resolution, from: part.from };
        Some(PartPlace { parts, key, fingerprint, part: parts.find(key, fingerprint) })
    }

    /// A part as it is known, or scanned now.
    fn scanned(&self, part: Span) -> Result<Arc<ScannedPart>, PastError> {
        let place = self.known(part);
        if let Some(found) = place.as_ref().and_then(|place| place.part.clone()) {
            return Ok(found);
        }
        let (history, resolution) = (self.history, self.resolution);
        let stored = history.until_now(part);
        let mut new = scan(history, stored, resolution, Some(MAX_SCANNED))?;
        new.moments = begun_in(new.moments, stored, resolution.width_ns());
        let new = Arc::new(new);
        if let Some(place) = place {
            place.parts.keep(place.key, place.fingerprint, &new);
        }
        Ok(new)
    }

    /// Another one if anything of the time of a part is observed later; `None` while that is still to come.
    fn fingerprint(&self, part: Span) -> Option<u64> {
        let reach = self.reach(part);
        if reach.to > self.history.extent().to {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        let first = self.windows.partition_point(|window| window.span.to <= reach.from);
        for window in self.windows[first..].iter().take_while(|window| window.span.from < reach.to) {
            (window.span, window.observed_ns).hash(&mut hasher);
        }
        let first = self.events.partition_point(|event| event.at < reach.from);
        for event in self.events[first..].iter().take_while(|event| event.at < reach.to) {
            event.hash(&mut hasher);
        }
        Some(hasher.finish())
    }
}

/// Scans a span in parts; what is known of one is not scanned again.
pub(super) fn scan_in_parts(
    history: &HistoryView<'_>,
    span: Span,
    resolution: Resolution,
) -> Result<ScannedSpan, PastError> {
    let parts = SpanParts::new(history, span, resolution)?;
    let mut all = ScannedSpan::default();
    for part in parts_of(span, resolution) {
        all.add(&*parts.scanned(part)?, span);
    }
    all.moments = costliest(begun_in(all.moments, span, resolution.width_ns()));
    Ok(all)
}

/// Scans the next part of a span that can be kept and is not known yet; `false` if there is none, or if others have to give
/// way to it.
///
/// # Errors
/// The history cannot be read.
pub(super) fn scan_next_part(
    history: &HistoryView<'_>,
    span: Span,
    resolution: Resolution,
) -> Result<bool, PastError> {
    let parts = SpanParts::new(history, span, resolution)?;
    for part in parts_of(span, resolution) {
        let Some(place) = parts.known(part).filter(|place| place.part.is_none()) else { continue };
        let before = place.parts.evictions();
        parts.scanned(part)?;
        return Ok(place.parts.evictions() == before);
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use sonar_core::changes::{MachineCause, MachineChange, ServerChange};
    use sonar_core::{Endpoint, Timestamp};

    use super::*;

    #[test]
    fn what_is_known_by_windows_may_be_dated_a_window_before_the_span() {
        const WIDTH: u64 = 10_000_000_000;
        let span = Span { from: Timestamp::from_unix(100, 0), to: Timestamp::from_unix(160, 0) };
        let server = Endpoint::v4([127, 0, 0, 1], 27_017);
        let began = |what: ChangeKind, second| {
            began_in(&HistoryChange::new(server, Timestamp::from_unix(second, 0), what), span, WIDTH)
        };
        let machine = || {
            let cause = MachineCause::Processors;
            let (others, figures) = (Vec::new(), Vec::new());
            ChangeKind::Machine(MachineChange { cause, name: "".into(), others, figures })
        };
        let as_a_whole = || {
            ChangeKind::Server(ServerChange {
                levels: Vec::new(),
                new_shapes: 0,
                new_share: 0.0,
                has_unusually_many_new_shapes: false,
                new_names: Vec::new(),
                applications: Vec::new(),
            })
        };
        for what in [machine, as_a_whole] as [fn() -> ChangeKind; 2] {
            assert!(began(what(), 90) && began(what(), 159));
            assert!(!began(what(), 80) && !began(what(), 160));
        }
        // When an event happened is known exactly.
        assert!(!began(ChangeKind::Event(Vec::new()), 90));
        assert!(began(ChangeKind::Event(Vec::new()), 100));
    }
}
