//! TCP: segments in, the bytes of each direction in order out.
//!
//! A passive listener sees what the two ends cannot: frames that it lost itself, the same frame on two interfaces, a
//! connection that it joined late. Each of these is corrected or counted.

mod entry;
mod flow;
mod half;
mod handler;
mod limits;
mod one_sided;
mod recent;
mod refused;
mod slab;
mod twin;

pub use flow::FlowTable;
pub use handler::{Chunk, Close, Flow, Gap, Lost, Side, StreamHandler, Unheard, Verdict};
pub use limits::{FlowLimits, ReorderLimits};
pub use twin::Twins;
