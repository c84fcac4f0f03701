//! In what some operations differ from the rest: by application, client, plan …
//!
//! Some operations are selected by their latency ([`LatencyBand`]) and their time. For each dimension a [`ValueTally`] counts
//! how many of them, and how many of the rest, have which value; [`compare`] finds the values whose shares differ by more than
//! chance, over all dimensions together.
//!
//! A histogram says how many operations are in the band, but where a row has several values, not which of them. Then their
//! number is estimated: [`inside_by_mean`] where it is known how long the operations of each value took together, else in
//! proportion ([`DividedLatencies::share`]). Neither estimate varies more by chance than a count would, so that the test of
//! counts holds for them.

mod band;
mod by_mean;
mod differing_values;
mod tally;

pub use band::{DividedLatencies, LatencyBand, LatencySums};
pub use by_mean::{ValueTime, inside_by_mean};
pub use differing_values::{DimensionDifference, ValueDifference, compare};
pub use tally::{MAX_VALUES, TheseAndRest, ValueTally};
