//! One query shape over time, as a JSON document.

use std::sync::Arc;

use serde::Serialize;
use sonar_core::figures::Figures;
use sonar_core::history::{CollectorKind, HistoryWindow};
use sonar_core::{Role, Row, ShapeId, ShapeInfo, Source};
use ts_rs::TS;

use crate::changes::GapJson;
use crate::kit::{About, Zone, ZoneObject};
use crate::queries::heat_rows::HeatRows;
use crate::timeline::TimeAxis;

/// Version of the schema.
const SCHEMA: u32 = 1;

/// How long the operations of one shape took, how many there were and how many failed.
#[derive(Clone, Debug, Serialize, TS)]
pub struct ShapeHistory {
    /// Version of the schema.
    pub schema: u32,
    /// `shape`.
    #[ts(type = "\"shape\"")]
    pub kind: &'static str,
    /// Where it comes from; its span is the axis.
    pub about: About,
    /// The zone of times in text.
    pub zone: ZoneObject,
    /// Its id.
    pub shape_id: String,
    /// The command.
    pub command: String,
    /// The namespace; empty if the command names none.
    pub namespace: String,
    /// Its text with typed placeholders.
    pub typed: String,
    /// `wire`, `log` or `profile`: what the figures come from.
    pub source: &'static str,
    /// Operations that ended, in all of the span. A window that is wider than a part counts for each part that it covers.
    pub calls: u64,
    /// Those with an error.
    pub failed: u64,
    /// The upper bounds of the rows of latencies, in nanoseconds, ascending; a row is a quarter of an octave.
    pub bounds_ns: Vec<u64>,
    /// The equal parts of the axis, by time.
    pub parts: Vec<ShapePartJson>,
    /// Times that were not observed.
    pub gaps: Vec<GapJson>,
}

/// What happened in one part of the axis.
#[derive(Clone, Debug, Default, Serialize, TS)]
pub struct ShapePartJson {
    /// How much of it was observed, in seconds; if that is 0, nothing is known of it.
    pub observed_s: f64,
    /// Operations that ended.
    pub calls: u64,
    /// Those with an error.
    pub failed: u64,
    /// Quantiles of the latency in nanoseconds; null without operations.
    pub p50: Option<u64>,
    /// The same.
    pub p95: Option<u64>,
    /// The same.
    pub p99: Option<u64>,
    /// The longest latency.
    pub max: Option<u64>,
    /// Operations by latency: the number of a row, and how many.
    pub latencies: Vec<[u64; 2]>,
}

/// Collects what windows have of a shape.
pub struct ShapeHistoryBuilder {
    id: ShapeId,
    axis: TimeAxis,
    shape: Option<Arc<ShapeInfo>>,
    parts: Vec<ShapePart>,
    /// Operations that ended, and those with an error, by source.
    totals: [[u64; 2]; Source::ALL.len()],
}

/// One part of the axis, by source.
#[derive(Clone, Default)]
struct ShapePart {
    figures: [Figures; Source::ALL.len()],
    seconds: [f64; Source::ALL.len()],
}

impl ShapeHistoryBuilder {
    /// Without windows.
    pub fn new(id: ShapeId, axis: TimeAxis) -> Self {
        Self {
            id,
            axis,
            shape: None,
            parts: vec![ShapePart::default(); axis.parts],
            totals: Default::default(),
        }
    }

    /// Adds a window; one that is wider than a part counts for each part that it covers.
    pub fn add(&mut self, window: &HistoryWindow) {
        let Some(places) = self.axis.places(window) else { return };
        let is_asked = |row: &&Row| row.shape().id == self.id && row.role == Role::Served;
        for row in window.window.shapes.iter().filter(is_asked) {
            self.shape.get_or_insert_with(|| row.shape().clone());
            for (source, [calls, failed]) in Source::ALL.into_iter().zip(&mut self.totals) {
                if let Some(observed) = row.observed_by(source) {
                    *calls = calls.saturating_add(observed.figures.calls);
                    *failed = failed.saturating_add(observed.figures.failed);
                }
            }
        }
        for place in places {
            let part = &mut self.parts[place];
            for (source, seconds) in Source::ALL.into_iter().zip(&mut part.seconds) {
                let collector = CollectorKind::of(source);
                *seconds += collector.map_or(0.0, |collector| window.observed_ns(collector) as f64 / 1e9);
            }
            for row in window.window.shapes.iter().filter(is_asked) {
                for (source, figures) in Source::ALL.into_iter().zip(&mut part.figures) {
                    if let Some(observed) = row.observed_by(source) {
                        figures.merge(&observed.figures);
                    }
                }
            }
        }
    }

    /// The document; `None` if no window has the shape.
    pub fn finish(self, gaps: Vec<GapJson>, history: &str, zone: &Zone) -> Option<ShapeHistory> {
        let shape = self.shape?;
        let has = |source: &Source| self.totals[*source as usize][0] > 0;
        // What the wire shows; slow operations of a log where nothing was captured.
        let source = Source::ALL.into_iter().find(has)?;
        let [calls, failed] = self.totals[source as usize];
        let of_parts: Vec<(&Figures, f64)> = self
            .parts
            .iter()
            .map(|part| (&part.figures[source as usize], part.seconds[source as usize]))
            .collect();
        let rows = HeatRows::of(of_parts.iter().map(|(figures, _)| &figures.latency));
        let part = |&(figures, observed_s): &(&Figures, f64)| {
            let latency = &figures.latency;
            ShapePartJson {
                observed_s,
                calls: figures.calls,
                failed: figures.failed,
                p50: latency.quantile_ns(0.5),
                p95: latency.quantile_ns(0.95),
                p99: latency.quantile_ns(0.99),
                max: latency.max_ns(),
                latencies: rows.cells(latency),
            }
        };
        let span = self.axis.span;
        Some(ShapeHistory {
            schema: SCHEMA,
            kind: "shape",
            about: About::new(None, vec![history.to_owned()], Some(span)),
            zone: ZoneObject::new(zone, [span.from, span.to]),
            shape_id: shape.id.to_string(),
            command: shape.command.to_string(),
            namespace: shape.namespace(),
            typed: shape.typed.to_string(),
            source: source.name(),
            calls,
            failed,
            bounds_ns: rows.bounds_ns(),
            parts: of_parts.iter().map(part).collect(),
            gaps,
        })
    }
}
