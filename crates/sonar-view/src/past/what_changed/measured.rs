//! From which window on a change is measured: from that in which it began, whichever time was asked for.

use std::collections::{BTreeMap, BTreeSet};

use sonar_core::Timestamp;
use sonar_core::changes::{
    ChangeKind, HistoryChange, HistoryChanges, MIN_WINDOWS, RECENT_WINDOWS, ScanMoment, can_explain,
    without_changes_of, without_repetitions,
};
use sonar_core::history::{Resolution, Span};

use super::compared::{ComparedMoment, baseline, compare};
use crate::past::{HistoryView, PastError};

/// Measures changes from the window on in which each began.
pub(super) struct ChangeMeasurement<'a> {
    history: &'a HistoryView<'a>,
    resolution: Resolution,
    /// By its start, what began in a window; `None` where there is nothing to compare with.
    windows: BTreeMap<Timestamp, Option<ScanMoment>>,
}

impl<'a> ChangeMeasurement<'a> {
    /// In windows of this resolution.
    pub const fn new(history: &'a HistoryView<'a>, resolution: Resolution) -> Self {
        Self { history, resolution, windows: BTreeMap::new() }
    }

    /// Measures again what began in a moment, and what events shortly before explain.
    pub fn measure_causes(&self, compared: &mut ComparedMoment) -> Result<(), PastError> {
        if compared.doubt.is_some() {
            return Ok(());
        }
        let (span, width) = (compared.moment.span, self.resolution.width_ns());
        // People know a time by some seconds.
        let from = span.from.minus_ns(width);
        let events = self.history.events(Span { from, to: span.from })?;
        let earlier = events.iter().filter(|event| can_explain(event)).map(|event| event.at.floor_to(width));
        let mut starts: BTreeSet<Timestamp> = earlier.collect();
        starts.extend(starts_of(&compared.moment, width));
        let mut again = Vec::new();
        for start in starts {
            let Some(mut moment) = self.measured_from(start)? else { continue };
            // What began earlier counts only if it explains something.
            moment.changes.changes.retain(|change| start >= span.from || !change.effects.is_empty());
            again.push(moment);
        }
        for moment in &again {
            let from = moment.span.from;
            without_changes_of(&mut compared.moment, Span { from, to: from.plus_ns(width) }, moment);
        }
        let own = std::mem::take(&mut compared.moment.changes.changes);
        again.push(ScanMoment {
            changes: HistoryChanges { changes: own, ..HistoryChanges::default() },
            ..compared.moment.clone()
        });
        again.sort_by_key(|moment| moment.span.from);
        let all = without_repetitions(again).into_iter();
        compared.moment.changes.changes = all.flat_map(|moment| moment.changes.changes).collect();
        Ok(())
    }

    /// Compares again from each window in which a change of a moment began, so that its figures are not mixed with those
    /// before it, and leaves in the moment what is not found again. Each window is compared once.
    pub fn refine(&mut self, moment: &mut ScanMoment) -> Result<(), PastError> {
        let width = self.resolution.width_ns();
        for from in starts_of(moment, width) {
            if !self.windows.contains_key(&from) {
                let measured = self.measured_from(from)?;
                self.windows.insert(from, measured);
            }
            if let Some(Some(found)) = self.windows.get(&from) {
                without_changes_of(moment, Span { from, to: from.plus_ns(width) }, found);
            }
            self.refine_within(moment, from)?;
        }
        Ok(())
    }

    /// Compares what was not found again from a window on once more, up to where it was measured first: something else may
    /// have come then.
    fn refine_within(&self, moment: &mut ScanMoment, from: Timestamp) -> Result<(), PastError> {
        let width = self.resolution.width_ns();
        let window = Span { from, to: from.plus_ns(width) };
        let is_left = |change: &&HistoryChange| {
            change.is_dated_by_window() && change.since == from && change.from < from
        };
        let Some(until) = moment.changes.changes.iter().find(is_left).map(|change| change.until) else {
            return Ok(());
        };
        let Some(mut found) = self.compared_within(Span { from, to: until })? else { return Ok(()) };
        found.changes.changes.retain(|change| change.is_dated_by_window() && change.since == from);
        without_changes_of(moment, window, &found);
        moment.changes.changes.append(&mut found.changes.changes);
        Ok(())
    }

    /// What refined moments have lost: what began in each window, measured from there on.
    pub fn into_windows(self) -> impl Iterator<Item = ScanMoment> {
        self.windows.into_values().flatten()
    }

    /// What began in the window that starts at `from`, measured from there on; `None` where there is nothing to compare
    /// with, as after a time in which nothing was observed.
    fn measured_from(&self, from: Timestamp) -> Result<Option<ScanMoment>, PastError> {
        let width = self.resolution.width_ns();
        let window = Span { from, to: from.plus_ns(width) };
        let Some(mut moment) = self.compared_from(from)? else { return Ok(None) };
        moment.changes.changes.retain(|change| window.contains(change.since));
        // What an event causes may begin a little later: then the first windows are as before.
        for later in 1..RECENT_WINDOWS as u64 {
            let lacks_effects = |change: &HistoryChange| match &change.what {
                ChangeKind::Event(events) => change.effects.is_empty() && events.iter().any(can_explain),
                _ => false,
            };
            if !moment.changes.changes.iter().any(lacks_effects) {
                break;
            }
            let Some(mut next) = self.compared_from(from.plus_ns(later * width))? else { break };
            next.changes.changes.retain(|change| {
                let is_event = matches!(change.what, ChangeKind::Event(_));
                is_event && window.contains(change.since) && !change.effects.is_empty()
            });
            without_changes_of(&mut moment, window, &next);
            moment.changes.changes.append(&mut next.changes.changes);
        }
        Ok(Some(moment))
    }

    /// The windows from `from` on against those before it.
    fn compared_from(&self, from: Timestamp) -> Result<Option<ScanMoment>, PastError> {
        let to = from.plus_ns(RECENT_WINDOWS as u64 * self.resolution.width_ns());
        self.compared_within(Span { from, to })
    }

    /// The windows of a span against those before it.
    fn compared_within(&self, span: Span) -> Result<Option<ScanMoment>, PastError> {
        let (history, resolution) = (self.history, self.resolution);
        let span = Span { to: span.to.min(history.extent().to), ..span };
        let before = baseline(history, span.from, resolution.width_ns());
        let is_possible = span.from < span.to
            && history.windows(before, resolution)?.len() >= MIN_WINDOWS
            && !history.windows(span, resolution)?.is_empty();
        if !is_possible {
            return Ok(None);
        }
        Ok(Some(compare(history, span, before, Some(resolution))?.moment))
    }
}

/// The windows in which changes of a moment began.
fn starts_of(moment: &ScanMoment, width_ns: u64) -> BTreeSet<Timestamp> {
    let start = |change: &HistoryChange| match &change.what {
        ChangeKind::Event(_) => change.since.floor_to(width_ns),
        _ => change.since.max(moment.span.from).floor_to(width_ns),
    };
    moment.changes.changes.iter().map(start).collect()
}
