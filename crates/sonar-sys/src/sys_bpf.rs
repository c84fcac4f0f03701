//! What the kernel says of an eBPF program that is ours.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::libbpf_sys;

/// How often the kernel skipped the program, as another run of it was under way on the same processor.
///
/// # Errors
/// The kernel's.
pub(crate) fn recursion_misses(program: BorrowedFd<'_>) -> io::Result<u64> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most `length` bytes to `info`, which has that many; all its fields are plain
    // numbers, and those that it would take for addresses are 0.
    let result = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(program.as_raw_fd(), (&raw mut info).cast(), &raw mut length)
    };
    if result != 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok(info.recursion_misses)
}
