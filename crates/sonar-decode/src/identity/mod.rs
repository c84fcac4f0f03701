//! Who and what does an operation belong to? The wire, logs and profiles all ask here.
//!
//! | question | file |
//! | --- | --- |
//! | what decides the id of a shape? | `ids` |
//! | which shapes are known, and how much memory may their texts take? | `shapes` |
//! | which command opened a cursor? | `cursors` |
//! | what decides an application's name? | `applications` |
//! | is a client a server? | `server` |
//! | what do the threads of a capture share? | `shared` |
//!
//! Each table has a cap, and says what did not fit, so that its caller can count it.

mod applications;
mod cursors;
mod ids;
mod server;
mod shapes;
mod shared;

pub(crate) use applications::Applications;
pub use applications::MAX_APPLICATIONS;
pub(crate) use cursors::{CursorOrigin, Cursors};
#[cfg(test)]
pub(crate) use ids::Ids;
pub(crate) use ids::MaybeRendered;
pub(crate) use ids::{base_of, id_in_part, ids_of, info_of, info_with, join_texts, mixed};
pub use server::is_server;
pub(crate) use shapes::{MAX_SHAPES, ShapeTable, other_shape};
pub use shared::Shared;
