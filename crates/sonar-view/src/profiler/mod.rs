//! What `profiler` shows; its `report` is shown by [`logs`](crate::digest).

pub mod impact;
pub mod status;
pub mod tail;
