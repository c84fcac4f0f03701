//! Query shapes: the query without its values, and the two ids that name it.
//!
//! One [`Builder`] serves every source. The BSON skimmer feeds it elements through [`Visitor`](crate::bson::Visitor);
//! the readers of profile documents and log lines call the same three methods. It computes the ids in one pass and
//! without text; the text of a new shape is made by the same builder with [`Rendered`] in place of `()`.
//!
//! The rules, in short: a literal becomes a typed placeholder; order without a meaning is removed; what decides the
//! plan is kept. `docs/queries.md` has them in full.

mod builder;
pub mod hash;
mod rules;
mod text;
mod value;

pub use crate::commands::CommandKind;
pub use builder::{Builder, CommandBody, StatementBody};
pub use rules::{ContainerMode, Field, field};
pub use text::{Rendered, Text};
pub(crate) use value::{count, integer, number, placeholder};

#[cfg(test)]
mod tests;
