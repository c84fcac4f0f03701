//! What a server measures of itself: cache, tickets, checkpoints, replication, its machine.
//!
//! A [`ServerSample`] holds the [`Metric`]s of one moment, from `diagnostic.data` or `serverStatus`. Two of them make a
//! [`SampleStep`], from which each [`Figure`] takes its value. A [`SampleSequence`] finds the steps; an [`Assessment`]
//! collects figures over time and judges them.

mod assessment;
mod description;
mod distribution;
mod figure;
mod figures;
mod glance;
mod metric;
mod sample;
mod sequence;
mod server_share;
mod trend;

pub use assessment::{Assessment, Exceedance, FigureVerdict, Judged};
pub use description::ServerDescription;
pub use distribution::Distribution;
pub(crate) use figure::over;
pub use figure::{Figure, FigureGroup, FigureLimits, FigureUnit, LimitRule, SampleStep};
pub use figures::FIGURES;
pub use glance::{GlanceFigure, ServerGlance};
pub use metric::Metric;
pub use sample::{DiskSample, Member, MountSample, SampleKey, ServerBounds, ServerSample};
pub use sequence::{Incident, IncidentKind, SampleSequence};
pub use trend::{Trend, TrendBucket};
