//! Query shapes: the query without its values, and the two ids that name it.
//!
//! One [`Builder`] serves every source. The BSON skimmer feeds it elements through
//! [`Visitor`](crate::bson::Visitor); a profile document or a log line that is parsed elsewhere calls
//! the same three methods. The ids are found in one pass and without text; text is made only when a
//! shape is first seen, by the same builder with [`Rendered`] in place of `()`.
//!
//! The rules, in short: a literal becomes a typed placeholder; order without a meaning is taken out;
//! what decides the plan is kept. `docs/queries.md` has them in full.

mod builder;
pub mod hash;
mod rules;
mod text;
mod value;

pub use builder::{Builder, CommandBody, StatementBody};
pub use rules::{CommandKind, ContainerMode, Field, field};
pub use text::{Rendered, Text};
pub(crate) use value::{count, integer, number, placeholder};

#[cfg(test)]
mod tests;
