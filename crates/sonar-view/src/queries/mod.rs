//! What `queries` shows.
//!
//! A [`Window`](sonar_core::Window) of raw counters goes in; a [`WindowReport`] of derived figures is made of it as a
//! [`Selection`] asks, and written as [`text`], [`json`] or [`csv`], or shown in the [`live`] view.

pub mod column;
pub mod csv;
pub mod each;
pub mod json;
pub mod live;
mod report;
mod selection;
mod silence;
pub mod text;

pub use column::{Column, Sort};
pub use report::{
    Callers, Differing, InFlightRow, Quantiles, Rates, ReportKey, ReportRow, Stats, WindowReport, scaled,
};
pub use selection::{ClassSet, Form, Grouping, NamespaceFilter, Selection};
pub use silence::{CapturedNetwork, PacketOrigin, Silence};
