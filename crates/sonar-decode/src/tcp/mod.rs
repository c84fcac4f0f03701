//! TCP: segments in, the bytes of each direction in order out.
//!
//! A passive listener sees what the two ends cannot: frames that it lost itself, the same frame on two
//! interfaces, a connection joined in its middle. Each of these is put right or counted.

mod entry;
mod flow;
mod half;
mod handler;
mod limits;
mod recent;
mod slab;
mod twin;

pub use flow::FlowTable;
pub use handler::{Chunk, Close, Flow, Gap, Lost, Side, StreamHandler, Verdict};
pub use limits::{FlowLimits, ReorderLimits};
pub use twin::Twins;
