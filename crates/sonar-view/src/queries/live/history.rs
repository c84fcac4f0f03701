//! The last sixty intervals of each row, for sparklines.

use std::collections::HashMap;

use sonar_core::Window;

use crate::queries::column::{Column, Sort};
use crate::queries::{ClassSet, Form, Grouping, Selection, WindowReport};

/// Intervals that are kept of each row.
pub(crate) const POINTS: usize = 60;

/// One interval of one row.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct HistoryPoint {
    /// Operations that ended, per second; `None` if it is unknown.
    pub(crate) calls: Option<f32>,
    /// 99th percentile of latency in nanoseconds, 0 where nothing had a latency.
    pub(crate) p99_ns: f32,
}

impl HistoryPoint {
    /// An interval without operations.
    const SILENT: Self = Self { calls: Some(0.0), p99_ns: 0.0 };
}

/// A ring of points; slot of tick `t` is `t % POINTS`.
#[derive(Clone, Debug)]
struct Track {
    points: Box<[HistoryPoint; POINTS]>,
    last_tick: u64,
}

/// Tracks by the identity of rows, at most `cap` of them.
#[derive(Clone, Debug)]
pub(crate) struct History {
    tracks: HashMap<u64, Track>,
    /// Intervals seen.
    tick: u64,
    cap: usize,
    /// The groupings whose rows are tracked: by shape, and by order where rows are split by it.
    selections: Vec<Selection>,
}

impl History {
    pub(crate) fn new(cap: usize, split_by_order: bool, form: Form) -> Self {
        let sort = Sort { column: Column::Calls, reverse: false };
        let selection = |by| Selection { by, form, classes: ClassSet::ALL, sort, ..Selection::default() };
        let groupings =
            if split_by_order { &[Grouping::Shape, Grouping::Order][..] } else { &[Grouping::Shape] };
        let selections = groupings.iter().copied().map(selection).collect();
        Self { tracks: HashMap::new(), tick: 0, cap, selections }
    }

    /// Adds an interval. When there are too many rows, those without operations in the whole history make room; if
    /// there are none, new rows (the least busy, because the busiest come first) have no history.
    pub(crate) fn push(&mut self, window: &Window) {
        self.tick += 1;
        for at in 0..self.selections.len() {
            let report = WindowReport::new(window, &self.selections[at]);
            Self::push_rows(&mut self.tracks, self.tick, self.cap, &report);
        }
    }

    fn push_rows(tracks: &mut HashMap<u64, Track>, tick: u64, cap: usize, report: &WindowReport<'_>) {
        let unknown = report.rows.iter().filter(|row| !tracks.contains_key(&row.identity)).count();
        if tracks.len() + unknown > cap {
            tracks.retain(|_, track| track.last_tick + (POINTS as u64) > tick);
        }
        for row in report.rows.iter().filter(|row| row.stats.figures.calls > 0) {
            if tracks.len() >= cap && !tracks.contains_key(&row.identity) {
                continue;
            }
            let track = tracks.entry(row.identity).or_insert_with(|| Track {
                points: Box::new([HistoryPoint::SILENT; POINTS]),
                last_tick: tick,
            });
            // The silent intervals in between.
            for silent in (track.last_tick + 1).max(tick.saturating_sub(POINTS as u64))..tick {
                track.points[slot(silent)] = HistoryPoint::SILENT;
            }
            track.points[slot(tick)] = HistoryPoint {
                calls: row.stats.rates.calls.map(|calls| calls as f32),
                p99_ns: row.stats.quantiles.p99.unwrap_or(0) as f32,
            };
            track.last_tick = tick;
        }
    }

    /// The last intervals of a row, the oldest first: as many as there were, at most sixty. `None`
    /// when it is not tracked.
    pub(crate) fn of(&self, identity: u64) -> Option<Vec<HistoryPoint>> {
        let track = self.tracks.get(&identity)?;
        let first = self.tick.saturating_sub(POINTS as u64) + 1;
        let point = |tick| {
            // The ring holds the sixty ticks up to the last one in which the row had operations.
            if tick > track.last_tick { HistoryPoint::SILENT } else { track.points[slot(tick)] }
        };
        Some((first..=self.tick).map(point).collect())
    }
}

const fn slot(tick: u64) -> usize {
    (tick % POINTS as u64) as usize
}
