//! Accesses to files, and what their order says.
//!
//! An [`IoAccess`] is one read, write, flush or page fault as a thread made it. [`Analysis`] takes them
//! one by one and keeps, in bounded memory, what is needed to say how each file was used: one access
//! path is distinguished from another by *where each access lies as seen from the one before it of the same
//! thread, file and direction* (its [distance](Distances)), and by how often the same place was read.
//!
//! # Words and their definitions
//! - **distance**: offset of an access less the end of the one before it (its offset and the bytes it
//!   was given) by the same thread on the same file in the same direction.
//! - **contiguous**: distance 0. **Skip**: forward by at most [`NEAR`]. **Jump**: back, or forward by
//!   more than [`NEAR`].
//! - **sequential share**: contiguous accesses per distance known.
//! - **randomness**: jumps per distance known, 0 to 1. A pass over a file in its own order is near 0
//!   even where it skips free blocks; accesses at random in a file much larger than [`NEAR`] come
//!   to nearly 1.
//! - **run**: contiguous accesses in a row.
//! - **coverage**: the part of a file that was touched, in granules of 4 KiB or more ([`Extent`]).
//! - **read amplification**: bytes read per byte of the file that was touched.
//! - **readahead waste**: bytes that were brought into the page cache and not read ([`PageIns`]).

pub mod access;
pub mod analysis;
pub mod density;
pub mod distance;
pub mod extent;
pub mod in_flight;
pub mod losses;
pub mod naming;
pub mod page_ins;
pub mod pattern;
pub mod phase;
pub mod speeds;
pub mod thread;
pub mod usage;
pub mod verdict;
pub mod worth;

pub use access::{AccessKind, IoAccess};
pub use analysis::{Analysis, ThreadUse};
pub use density::Density;
pub use distance::{Distances, NEAR, Step};
pub use extent::Extent;
pub use in_flight::InFlight;
pub use losses::IoLosses;
pub use naming::FileRole;
pub use page_ins::PageIns;
pub use pattern::{FilePattern, Flow};
pub use phase::{Path, Phase, Slice};
pub use speeds::Speeds;
pub use thread::ThreadRole;
pub use usage::Usage;
pub use verdict::{Verdict, judge, judge_file};
pub use worth::{SampleRead, Worth, worth};
