//! A series over the parts of an axis of time.

use std::ops::RangeInclusive;

use sonar_core::history::SeriesValue;

/// What the windows of a span have of a series.
pub(super) struct SeriesSum {
    /// All of the span.
    pub whole: SeriesValue,
    parts: Vec<SeriesValue>,
}

impl SeriesSum {
    /// Without a value, on an axis of so many parts.
    pub fn new(parts: usize) -> Self {
        Self { whole: SeriesValue::default(), parts: vec![SeriesValue::default(); parts] }
    }

    /// Adds the value of a window, which counts in each of these places.
    pub fn add(&mut self, value: &SeriesValue, places: RangeInclusive<usize>) {
        self.whole.merge(value);
        places.for_each(|at| self.parts[at].merge(value));
    }

    /// The means of the parts; `None` where nothing was observed.
    pub fn means(&self) -> Vec<Option<f64>> {
        self.parts.iter().map(SeriesValue::mean).collect()
    }
}
