//! The bytes of what the eBPF programs share with this process, and the kernel's information about a program.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::libbpf_sys;

use crate::ebpf::skeleton::types;

/// A structure of `bpf/state.h`.
///
/// # Safety
/// It consists of integers, without padding, so that every sequence of bytes is a value and the other way round.
pub(crate) unsafe trait KernelShared: Copy {}

// SAFETY: integers of 32 and 64 bits and bytes, whose sizes and places leave no gap.
unsafe impl KernelShared for types::access_record {}
// SAFETY: as above.
unsafe impl KernelShared for types::file_record {}
// SAFETY: as above.
unsafe impl KernelShared for types::process_record {}
// SAFETY: as above.
unsafe impl KernelShared for types::thread_record {}
// SAFETY: as above.
unsafe impl KernelShared for types::file_key {}
// SAFETY: as above.
unsafe impl KernelShared for types::usage {}
// SAFETY: as above.
unsafe impl KernelShared for types::control {}

/// The structure at the beginning of these bytes; `None` if there are too few.
pub(crate) fn read<T: KernelShared>(bytes: &[u8]) -> Option<T> {
    let bytes = bytes.get(..size_of::<T>())?;
    // SAFETY: there are as many bytes as the structure has, and any bytes are a value of it.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// Its bytes.
pub(crate) fn bytes_of<T: KernelShared>(value: &T) -> &[u8] {
    // SAFETY: the structure has no padding, so that all of its bytes are initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// What the kernel counts of a program.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct ProgramStatistics {
    /// How often it was skipped because another run of it was in progress on the same processor.
    pub(crate) skipped: u64,
    /// How often it ran, while statistics were switched on.
    pub(crate) runs: u64,
    /// How long it ran, while statistics were switched on.
    pub(crate) run_time_ns: u64,
}

/// What the kernel has counted of a program so far.
///
/// # Errors
/// The kernel's.
pub(crate) fn program_statistics(program: BorrowedFd<'_>) -> io::Result<ProgramStatistics> {
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
    Ok(ProgramStatistics {
        skipped: info.recursion_misses,
        runs: info.run_cnt,
        run_time_ns: info.run_time_ns,
    })
}
