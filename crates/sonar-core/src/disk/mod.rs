//! The disk: results of a disk test, kernel counters of block devices, and their evaluation.
//!
//! This module has only data types and arithmetic. `sonar-sys` makes requests and reads counters; `sonar-view`
//! writes the text for people.

pub mod check;
pub mod compare;
pub mod counters;
pub mod estimate;
pub mod offsets;
pub mod step;
pub mod verdict;

pub use counters::{DeviceCounters, DiskCounters, DiskRates, possible_busy_ms};
pub use offsets::{Offsets, SplitMix};
pub use step::{DiskStep, KernelBytes, Requests};
