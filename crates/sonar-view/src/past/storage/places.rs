//! Series of disks and of file systems, place by place.

use std::collections::BTreeMap;

use serde::Serialize;
use sonar_core::Endpoint;
use sonar_core::history::{HistoryWindow, SeriesMetric, SeriesSubject, metrics};
use ts_rs::TS;

use super::left_out::LeftOutNames;
use crate::past::series_sum::SeriesSum;
use crate::timeline::TimeAxis;

/// The most devices, or file systems, that are shown.
const MAX_PLACES: usize = 64;

/// A figure of a device or a file system over time.
#[derive(Clone, Debug, Serialize, TS)]
pub struct PlaceFigureJson {
    /// What it means.
    pub meaning: &'static str,
    /// The unit of the values.
    pub unit: &'static str,
    /// Mean of all of the span; null without a value.
    pub mean: Option<f64>,
    /// The largest value.
    pub max: f64,
    /// The last value.
    pub last: f64,
    /// The mean of the time before; null if nothing is known of it.
    pub before: Option<f64>,
    /// Means of the parts of the axis; null where nothing was observed.
    pub values: Vec<Option<f64>>,
}

/// Figures by the stable names of their metrics.
pub type PlaceFigures = BTreeMap<&'static str, PlaceFigureJson>;

/// Series of the places of one kind.
pub(super) struct PlaceSums {
    subject: SeriesSubject,
    axis: TimeAxis,
    /// By name, and by metric.
    places: BTreeMap<Box<str>, BTreeMap<&'static str, SeriesSum>>,
    /// Names without a place.
    left_out: LeftOutNames,
}

impl PlaceSums {
    pub fn new(subject: SeriesSubject, axis: TimeAxis) -> Self {
        Self { subject, axis, places: BTreeMap::new(), left_out: LeftOutNames::default() }
    }

    pub fn add(&mut self, window: &HistoryWindow) {
        let Some(places) = self.axis.places(window) else { return };
        for (key, value) in window.series.iter().filter(|(key, _)| key.subject == self.subject) {
            let Some(metric) = metrics::find(&key.metric) else { continue };
            if !self.places.contains_key(&key.name) && self.places.len() >= MAX_PLACES {
                self.left_out.add(&key.name);
                continue;
            }
            let parts = self.axis.parts;
            let figures = self.places.entry(key.name.clone()).or_default();
            let sum = figures.entry(metric.name).or_insert_with(|| SeriesSum::new(parts));
            sum.add(value, places.clone());
        }
    }

    /// How many had no place.
    pub fn left_out(&self) -> usize {
        self.left_out.count()
    }

    /// The figures of each place, with those of the time before.
    pub fn finish(self, before: Option<&HistoryWindow>) -> Vec<(String, PlaceFigures)> {
        let places = self.places.into_iter().map(|(name, sums)| {
            let figures = sums.iter().filter_map(|(metric, sum)| {
                let metric = metrics::find(metric)?;
                Some((metric.name, PlaceFigureJson::new(&metric, sum, mean(before, &metric, &name))))
            });
            (name.to_string(), figures.collect())
        });
        places.collect()
    }
}

/// The mean of a figure of a place in a window.
fn mean(window: Option<&HistoryWindow>, metric: &SeriesMetric, name: &str) -> Option<f64> {
    window?.series.get(&metric.key(Endpoint::default(), name))?.mean()
}

impl PlaceFigureJson {
    fn new(metric: &SeriesMetric, sum: &SeriesSum, before: Option<f64>) -> Self {
        Self {
            meaning: metric.meaning,
            unit: metric.unit.name(),
            mean: sum.whole.mean(),
            max: sum.whole.max,
            last: sum.whole.last,
            before,
            values: sum.means(),
        }
    }
}
