//! All of mongosonar that touches the Linux kernel: capture, disk tests, and what `/proc` and `/sys` say.
//!
//! It knows nothing about MongoDB: names of processes and ports are arguments. Of our crates it imports only
//! `sonar-core`. It is the only crate with `unsafe`, all of it in `sys`, `sys_bpf`, `sys_disk`, `sys_process` and
//! `sys_uring`, which wrap the system calls, in `sys_heap`, which counts what is allocated, and in the generated `skeletons`. Nothing here prints, and only the engines
//! of the disk test start threads, which end before the engines return.

mod addresses;
mod block;
pub mod capabilities;
mod classic_bpf;
pub mod clock;
mod clock_offsets;
pub mod disk;
pub mod ebpf;
#[cfg(test)]
mod executing_shell;
pub mod filter;
pub mod geometry;
mod hardware;
pub mod helper;
pub mod host;
pub mod interfaces;
pub mod kept_file;
pub mod kernel_log;
pub mod privileges;
pub mod probe;
pub mod process_end;
pub mod questions;
pub mod resident;
pub mod resource;
pub mod ring;
mod skeletons;
pub mod split;
pub mod stacks;
mod sys;
mod sys_bpf;
mod sys_disk;
mod sys_heap;
mod sys_process;
mod sys_uring;
pub mod terminal;
pub mod tls;
#[cfg(test)]
mod tree;
pub mod trust;
#[cfg(test)]
mod waiting;

pub use filter::PacketFilter;
pub use host::Host;
pub use interfaces::Interface;
pub use ring::{Ring, RingConfig, RingError, RingLayout, Statistics, Stopper, Wake};
pub use sys_heap::CountedHeap;
