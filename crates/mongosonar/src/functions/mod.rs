//! The functions of servers, and the helper that reads them: for `stacks`, and for a capture that divides time.

pub mod following;
pub mod helper;
mod mapped;
pub mod shared;
pub mod symbols;
