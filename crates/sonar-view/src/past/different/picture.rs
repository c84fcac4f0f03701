//! The latencies of all operations of a span, from which a default selection is made.

use std::sync::Arc;

use sonar_core::history::{HistoryWindow, Span};
use sonar_core::{Histogram, ShapeInfo, Source};

use super::asked::OperationFilter;
use crate::queries::heat_rows::HeatRows;
use crate::timeline::TimeAxis;

/// Latencies by source.
type LatencyBySource = [Histogram; Source::ALL.len()];

/// The latencies of the operations of a span.
pub(super) struct LatencyPicture<'a> {
    axis: TimeAxis,
    filter: &'a OperationFilter,
    parts: Vec<LatencyBySource>,
    all: LatencyBySource,
    /// The time that is compared with the rest; with all of each window that it touches.
    pub time: Span,
    /// How many windows have operations.
    pub windows: u64,
    /// The shape of the last row: that of all, if only one was asked for.
    pub shape: Option<Arc<ShapeInfo>>,
}

impl<'a> LatencyPicture<'a> {
    /// Without windows.
    pub fn new(axis: TimeAxis, filter: &'a OperationFilter, time: Span) -> Self {
        let (parts, all) = (vec![LatencyBySource::default(); axis.parts], LatencyBySource::default());
        Self { axis, filter, parts, all, time, windows: 0, shape: None }
    }

    /// Adds a window; one that is wider than a part counts for each part that it covers.
    pub fn add(&mut self, window: &HistoryWindow) {
        let Some(places) = self.axis.places(window) else { return };
        let (from, to) = (window.window.start, window.window.end);
        if touches(self.time, window) {
            self.time = Span { from: self.time.from.min(from), to: self.time.to.max(to) };
        }
        let filter = self.filter;
        let mut has_any = false;
        for row in window.window.shapes.iter().filter(|row| filter.wants(row)) {
            for source in row.sources() {
                let Some(observed) = row.observed_by(source) else { continue };
                let latency = &observed.figures.latency;
                self.all[source as usize].merge(latency);
                places.clone().for_each(|at| self.parts[at][source as usize].merge(latency));
            }
            self.shape = Some(Arc::clone(row.shape()));
            has_any = true;
        }
        self.windows += u64::from(has_any);
    }

    /// The source whose operations are compared: the wire; a log where nothing was captured. `None` if no latency is known.
    pub fn source(&self) -> Option<Source> {
        Source::ALL.into_iter().find(|source| self.all[*source as usize].count() > 0)
    }

    /// The latencies of all operations that a source has.
    pub fn latency(&self, source: Source) -> &Histogram {
        &self.all[source as usize]
    }

    /// The rows of their heat map.
    pub fn rows(&self, source: Source) -> HeatRows {
        HeatRows::of(self.parts.iter().map(|part| &part[source as usize]))
    }

    /// The cells of each part of the axis.
    pub fn cells(&self, source: Source, rows: &HeatRows) -> Vec<Vec<[u64; 2]>> {
        self.parts.iter().map(|part| rows.cells(&part[source as usize])).collect()
    }
}

/// Whether a window has anything of a time.
pub(super) fn touches(time: Span, window: &HistoryWindow) -> bool {
    window.window.start < time.to && window.window.end > time.from
}
