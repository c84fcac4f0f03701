//! What sources observe: each cuts it into windows of ten seconds ([`WindowCutter`]), and the windows of all sources are
//! joined and stored ([`Assembler`]). No thread and no clock is involved: times are arguments, and how a part comes from
//! one side to the other is up to the caller ([`PartSink`]).

mod assembler;
mod cutter;
mod log_place;
mod log_progress;
mod part;

pub use assembler::{Assembler, AssemblyLimits, StoredCounts};
pub use cutter::{PartSink, WindowCutter};
pub use log_place::{FileIdentity, FollowPosition, LinePlace};
pub use log_progress::{LogProgress, LogShare, LogShares, LogStart, add_line, starts};
pub use part::{MAX_EVENTS, WIDTH_NS, WindowPart};
