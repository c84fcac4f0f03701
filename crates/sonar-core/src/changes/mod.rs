//! What changed between two spans of the history, ranked by what it cost.
//!
//! [`find`] compares the windows of a span with those before it. Every [`HistoryChange`] is beyond chance and has its figures
//! before and after; its cost is the time that operations took beyond what they took before. Events that explain
//! changes (an index drop, then slower finds on its collection) come with these changes as their effects.
//! [`Scan`] finds the moments of change in a long span.

mod applications;
mod causes;
mod change;
mod commands;
mod context;
mod errors;
mod events;
mod find;
mod growth;
mod holds;
mod listed;
mod machine;
mod moments;
mod scan;
mod series;
mod series_columns;
mod servers;
mod shapes;
mod sides;
mod silence;
mod splits;
mod stages;
mod stalls;
mod tracks;

pub use applications::last_run;
pub use change::{
    ALPHA, ApplicationChange, ApplicationGrowth, ChangeKind, ErrorChange, GrownTime, GrowthChange,
    HistoryChange, HistoryChanges, MAX_CHANGES, MachineCause, MachineChange, MachineFigure, SeriesChange,
    ServerChange, ServerLevel, ServerMeasure, ShapeChange, ShapeFigures, ShapeWay, SplitChange, SplitGrowth,
};
pub use commands::CommandEvents;
pub use events::can_explain;
pub use find::find;
pub use listed::with_all_events;
pub use moments::{apart, each_once};
pub use scan::{BASELINE_WINDOWS, Scan, ScanMoment, costliest, without_changes_of, without_repetitions};
pub use sides::{ChangeInput, ComparisonKind, MIN_WINDOWS, RECENT_WINDOWS};
pub use silence::without_usual_silences;
pub use stages::{RESTART_REACH_NS, with_whole_restarts};
