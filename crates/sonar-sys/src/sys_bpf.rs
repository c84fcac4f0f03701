//! The bytes of what the eBPF programs share with this process, and the kernel's information about a program.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::libbpf_sys;

use crate::skeletons::io::types;
use crate::skeletons::split::types as split;
use crate::skeletons::tls::types as tls;

/// A structure of `bpf/state.h`, `bpf/split.h` or `bpf/tls.bpf.c`.
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
// SAFETY: as above.
unsafe impl KernelShared for split::split_operation {}
// SAFETY: as above.
unsafe impl KernelShared for split::split_wait {}
// SAFETY: as above; its union is of a header and of bytes.
unsafe impl KernelShared for split::split_thread {}
// SAFETY: as above.
unsafe impl KernelShared for split::split_control {}
// SAFETY: as above.
unsafe impl KernelShared for tls::tls_record {}
// SAFETY: as above.
unsafe impl KernelShared for tls::tls_key {}
// SAFETY: as above.
unsafe impl KernelShared for tls::tls_control {}

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

/// Closes what a descriptor refers to, and lets its number refer to something else: whoever owns the number closes that.
pub(crate) fn replace(descriptor: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes integers only; the number stays open, and its owner stays the only one to close it.
    let result = unsafe { libc::dup3(other.as_raw_fd(), descriptor.as_raw_fd(), libc::O_CLOEXEC) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
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

impl ProgramStatistics {
    /// What the kernel has counted of programs so far, together; those that are not loaded count as 0.
    pub(crate) fn of_all(programs: impl IntoIterator<Item: AsFd>) -> Self {
        let each = programs.into_iter().map(|one| program_statistics(one.as_fd()).unwrap_or_default());
        each.fold(Self::default(), |all, one| Self {
            skipped: all.skipped + one.skipped,
            runs: all.runs + one.runs,
            run_time_ns: all.run_time_ns + one.run_time_ns,
        })
    }

    /// How long they have run, in whatever thread that was; `None` if the kernel does not measure it
    /// (`kernel.bpf_stats_enabled`).
    pub(crate) fn run_time(self) -> Option<Duration> {
        (self.runs > 0).then(|| Duration::from_nanos(self.run_time_ns))
    }
}

fn program_statistics(program: BorrowedFd<'_>) -> io::Result<ProgramStatistics> {
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

/// A timer of the kernel's perf events that fires every `period_ns` of a processor's time; it is not enabled.
///
/// # Errors
/// No permission, no such processor, or no perf events.
pub(crate) fn processor_timer(processor: u32, period_ns: u64) -> io::Result<OwnedFd> {
    let mut timer = libbpf_sys::perf_event_attr {
        type_: libbpf_sys::PERF_TYPE_SOFTWARE,
        size: size_of::<libbpf_sys::perf_event_attr>() as u32,
        config: u64::from(libbpf_sys::PERF_COUNT_SW_CPU_CLOCK),
        ..libbpf_sys::perf_event_attr::default()
    };
    timer.__bindgen_anon_1.sample_period = period_ns;
    timer.set_disabled(1);
    // SAFETY: the structure lives through the call and says how long it is; the kernel refuses one with fields that
    // it does not know unless they are 0, as they are here. The descriptor is new and owned by nobody else.
    unsafe {
        let fd = libc::syscall(
            libc::SYS_perf_event_open,
            &raw const timer,
            -1,
            processor,
            -1,
            libbpf_sys::PERF_FLAG_FD_CLOEXEC as libc::c_ulong,
        );
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Enables or disables a [`processor_timer`].
///
/// # Errors
/// The kernel's.
pub(crate) fn switch_timer(timer: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    // From linux/perf_event.h.
    const ENABLE: libc::c_ulong = 0x2400;
    const DISABLE: libc::c_ulong = 0x2401;
    // SAFETY: both requests take an integer.
    let result = unsafe { libc::ioctl(timer.as_raw_fd(), if on { ENABLE } else { DISABLE } as _, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
