//! `stacks`: the stacks of a server's threads, added up: text, JSON, and the formats of other tools.

mod compare;
mod formats;
mod report;
mod svg;
#[cfg(test)]
mod tests;
mod text;

pub use compare::{ShareChange, ShareChanges, StackComparison};
pub use formats::{folded, pmp};
pub use report::{MOST_BYTES, SCHEMA, StackFrame, StackProcess, StackReport, StackRow};
pub use svg::svg;
