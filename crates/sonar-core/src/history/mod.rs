//! What an agent remembers: the figures, series and events of windows of time, and how a store keeps them.
//!
//! A [`HistoryWindow`] holds what all collectors observed in one span. Windows of 10 s make windows of a minute, and
//! those make windows of an hour ([`Resolution`]): merging is exact, so that an hour made of minutes equals the hour
//! counted directly. A store takes windows and [`Event`]s as a [`HistoryWriter`], and hands them out as a
//! [`HistoryReader`].

mod applications;
mod collector_kind;
mod error;
mod event;
mod gaps;
mod kills;
pub mod metrics;
mod repeated;
mod resolution;
mod series;
mod settings;
mod states;
mod store;
mod storms;
mod window;

pub use applications::ApplicationWatch;
pub use collector_kind::CollectorKind;
pub use error::HistoryError;
pub use event::{Event, EventKind};
pub use gaps::{GapFinder, HistoryGap};
pub use kills::{KILL_REACH_NS, is_kill_of_other_group, killed_process, without_explained_kills};
pub use metrics::SeriesMetric;
pub use repeated::{REPEATED_REACH_NS, each_event_once};
pub use resolution::Resolution;
pub use series::{SeriesKey, SeriesSubject, SeriesValue, index_name, namespace_of};
pub use settings::{MAX_SETTINGS, changed_settings, shown_setting};
pub use store::{HistoryReader, HistoryWriter, ObservedSpan, SourcePositions, Span, StoreNotice};
pub use storms::ConnectionStorms;
pub use window::HistoryWindow;
