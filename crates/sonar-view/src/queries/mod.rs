//! What `queries` shows.
//!
//! A [`Window`](sonar_core::Window) of raw counters goes in; a [`WindowReport`] of derived figures is made of it as a
//! [`Selection`] asks, and written as [`text`], [`json`] or [`csv`], or shown in the [`live`] view.

mod advice;
pub mod column;
pub mod csv;
pub mod each;
mod grouping;
pub(crate) mod heat_rows;
pub mod json;
pub mod layout;
pub mod live;
mod report;
mod row;
mod selection;
mod server_state;
mod shape_history;
mod silence;
mod split;
pub mod text;

pub use advice::cut_get_mores;
pub use column::{Column, Sort};
pub use grouping::{Form, Grouping};
pub use report::{Differing, WindowReport};
pub use row::{Callers, InFlightRow, Quantiles, Rates, ReportKey, ReportRow, Stats};
pub use selection::{ClassSet, NamespaceFilter, Selection};
pub use server_state::{PastWindow, ServerState};
pub use shape_history::{ShapeHistory, ShapeHistoryBuilder, ShapePartJson};
pub use silence::{CapturedNetwork, PacketOrigin, Silence};
