//! The disk: what a test of it measured, what the kernel counted meanwhile, and what both mean.
//!
//! Only nouns and arithmetic. Requests are made and counters are read in `sonar-sys`; words for people are
//! put together in `sonar-view`.

pub mod check;
pub mod compare;
pub mod counters;
pub mod estimate;
pub mod offsets;
pub mod step;
pub mod verdict;

pub use counters::{DiskCounters, DiskRates};
pub use offsets::{Offsets, SplitMix};
pub use step::{DiskStep, KernelBytes, Requests};
