//! What a process and its threads may still do, and how they ask a helper that may do more.

pub mod file_reading;
pub mod helper_capabilities;
pub mod helper_channel;
pub mod path_bytes;
pub mod privileges;
pub mod reading_apart;
pub mod start_gate;
pub mod start_order;
pub mod thread_starter;
