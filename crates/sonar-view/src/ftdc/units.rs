//! Values of figures with their unit.

use crate::kit::{Bytes, Count, Nanos};

/// A value of a figure; `unit` is a [`FigureUnit`](sonar_core::internals::FigureUnit) by its name.
pub(crate) fn show(value: f64, unit: &str) -> String {
    match unit {
        "per_second" => format!("{}/s", Count(value)),
        "bytes" => Bytes(value).to_string(),
        "bytes_per_second" => format!("{}/s", Bytes(value)),
        // Less than a nanosecond is nothing.
        "milliseconds" => Nanos((value.max(0.0) * 1e6) as u64).to_string(),
        "percent" if value > 0.0 && value < 0.1 => "<0.1 %".to_owned(),
        "percent" => format!("{value:.1} %"),
        _ => Count(value).to_string(),
    }
}
