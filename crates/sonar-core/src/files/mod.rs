//! Accesses to files, and how the files were used.
//!
//! An [`IoAccess`] is one read, write, flush or page fault of a thread. [`Analysis`] takes accesses one by one
//! and determines, in bounded memory, how each file was used. It distinguishes access paths by the *distance
//! of each access from the previous one of the same thread, file and direction* (see [`Distances`]), and by
//! how often the same place was read.
//!
//! # Definitions
//! - **distance**: the offset of an access minus the end of the previous access by the same thread to the
//!   same file in the same direction. The end is the offset plus the bytes transferred.
//! - **contiguous**: distance 0. **Skip**: forward by at most [`NEAR`]. **Jump**: back, or forward by
//!   more than [`NEAR`].
//! - **sequential share**: contiguous accesses divided by known distances.
//! - **randomness**: jumps divided by known distances, 0 to 1. A pass over a file in its own order is near 0
//!   even if it skips free blocks; random accesses to a file much larger than [`NEAR`] are near 1.
//! - **run**: consecutive contiguous accesses.
//! - **coverage**: the part of a file that was accessed, in granules of 4 KiB or more ([`GranuleSet`]).
//! - **read amplification**: bytes read per byte of the file that was accessed.
//! - **readahead waste**: bytes that were loaded into the page cache and not read ([`PageIns`]).

pub mod access;
pub mod analysis;
pub mod compare;
pub mod density;
pub mod distance;
pub mod extent;
pub mod file_accesses;
pub mod in_flight;
pub mod losses;
pub mod naming;
pub mod page_ins;
pub mod phase;
pub mod speeds;
pub mod thread;
pub mod usage;
pub mod verdict;
pub mod worth;

pub use access::{AccessKind, IoAccess};
pub use analysis::{Analysis, ThreadUse};
pub use compare::{ReadChange, read_changes};
pub use density::Density;
pub use distance::{AccessStep, Distances, NEAR};
pub use extent::GranuleSet;
pub use file_accesses::{FileAccesses, FilePattern};
pub use in_flight::DeviceDepth;
pub use losses::IoLosses;
pub use naming::{FileRole, is_file_of};
pub use page_ins::PageIns;
pub use phase::{AccessPath, Phase, TimeSlice};
pub use speeds::Speeds;
pub use thread::ThreadRole;
pub use usage::FileUsage;
pub use verdict::{FilesVerdict, judge, judge_file};
pub use worth::{RewriteEstimate, SampleRead, Worth};
