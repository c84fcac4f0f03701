//! Values that a server has when it is asked.

use sonar_core::history::{HistoryWindow, SeriesMetric};
use sonar_core::{Endpoint, Timestamp};

/// How long a value speaks for, in seconds: servers are asked once in each window.
const SECONDS: f64 = 10.0;

/// Adds values of a server at one time to the window of that time.
pub struct StatusSamples<'a> {
    pub window: &'a mut HistoryWindow,
    pub server: Endpoint,
    pub at: Timestamp,
}

impl StatusSamples<'_> {
    /// Adds a value of the server, of a member, a collection or an index of this name.
    pub fn add(&mut self, metric: SeriesMetric, name: &str, value: f64) {
        self.window.sample(&metric.key(self.server, name), self.at, value, SECONDS);
    }
}
