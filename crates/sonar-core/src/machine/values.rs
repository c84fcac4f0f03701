//! Collects the values of one step.

use crate::Endpoint;
use crate::history::{SeriesKey, SeriesMetric};

/// The values of one step. Each speaks for the time between the readings.
pub(super) struct Values {
    seconds: f64,
    values: Vec<(SeriesKey, f64, f64)>,
}

impl Values {
    /// No values yet, for a step of `seconds` seconds.
    pub fn new(seconds: f64) -> Self {
        Self { seconds, values: Vec::new() }
    }

    /// The seconds between the readings; positive.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Adds a value that is known, of a server and the name of a device, file system or the like.
    pub fn add(&mut self, metric: SeriesMetric, server: Endpoint, name: &str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.values.push((metric.key(server, name), value, self.seconds));
        }
    }

    /// Adds a value of the machine, if it is known.
    pub fn machine(&mut self, metric: SeriesMetric, value: Option<f64>) {
        self.add(metric, Endpoint::default(), "", value);
    }

    /// All of them.
    pub fn into_vec(self) -> Vec<(SeriesKey, f64, f64)> {
        self.values
    }
}
