//! What this process is and may do: job control, forks, filters of system calls, Landlock. System calls that `rustix`
//! does not wrap.
//!
//! As in `sys`, a wrapper adds no policy, turns `-1` into [`io::Error`], and exposes no pointer.

use std::cell::RefCell;
use std::ffi::{c_int, c_long, c_ulong};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::process::{Pid, Signal, kill_current_process_group};
use rustix::thread::UnshareFlags;

use crate::classic_bpf::Instruction;

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn check_long(result: c_long) -> io::Result<c_int> {
    check(c_int::try_from(result).unwrap_or(c_int::MAX))
}

/// Stops the process group as Ctrl-Z does, whatever this process does with SIGTSTP otherwise; returns when it
/// continues. The kernel does not stop it if nobody could continue it.
pub(crate) fn stop_group() -> io::Result<()> {
    // SAFETY: sigaction is integers and a pointer to a handler: all zero is the default action. Both structures live
    // through the calls; the second call puts back what the first one gave.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        check(libc::sigaction(libc::SIGTSTP, &default, &mut before))?;
        let stopped = kill_current_process_group(Signal::TSTP);
        check(libc::sigaction(libc::SIGTSTP, &before, std::ptr::null_mut()))?;
        Ok(stopped?)
    }
}

/// Forks this process, which must have no other thread. `None` in the child.
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: with one thread the copy is as whole as the original: no lock is held by a thread that it lacks.
    let id = check(unsafe { libc::fork() })?;
    Ok(Pid::from_raw(id))
}

/// Of `close_range`, from `linux/close_range.h`.
const CLOSE_RANGE_UNSHARE: c_ulong = 1 << 1;

/// Closes the descriptors from `first` to `last`; whether the kernel can do that.
fn close_range(first: u32, last: u32, flags: c_ulong) -> bool {
    let (first, last) = (c_ulong::from(first), c_ulong::from(last));
    // SAFETY: the caller promises that nothing uses them.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) == 0 }
}

/// Gives the calling thread, and those that it starts, a copy of the table of descriptors.
pub(crate) fn copy_descriptors() -> io::Result<()> {
    // In many containers, `unshare` takes a capability. No descriptor has this number, so none is closed.
    if close_range(u32::MAX, u32::MAX, CLOSE_RANGE_UNSHARE) {
        return Ok(());
    }
    // Before Linux 5.9. SAFETY: every number means the same as before, until this thread or another one closes it.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES) }?)
}

/// In a thread with a table of its own: closes all descriptors but standard input, output and error. Gives the files and
/// folders, which are still open: closing one may wait for its file system.
pub(crate) fn close_all_but_files() -> Vec<RawFd> {
    let files = RefCell::new(Vec::new());
    let closed = close_all_but(|descriptor| {
        // Not by `fstat`, which asks the file system. What is no file has a name like `socket:[7]`.
        let target = std::fs::read_link(format!("/proc/thread-self/fd/{descriptor}"));
        // A name may be too long. The descriptor of the list itself is closed by now.
        let is_file =
            target.map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |name| name.is_absolute());
        if is_file {
            files.borrow_mut().push(descriptor);
        }
        is_file
    });
    if closed.is_err() {
        // They cannot be listed.
        close_range(3, u32::MAX, 0);
        return Vec::new();
    }
    files.into_inner()
}

/// Whether a descriptor can be written to.
pub(crate) fn is_writable(descriptor: RawFd) -> bool {
    // SAFETY: it is only asked for its flags, and fails if nothing has this number.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// Blocks all signals for the calling thread, and those that it starts: their handlers run elsewhere.
pub(crate) fn block_signals() {
    // SAFETY: the set is filled before it is used, and lives through both calls.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}

/// Closes a descriptor of a table that nothing else uses.
pub(crate) fn close(descriptor: RawFd) {
    // SAFETY: the caller owns it.
    unsafe { libc::close(descriptor) };
}

/// Closes all descriptors of the calling thread but standard input, output and error and those for which `keep` says so.
/// Nothing may use a closed one any more: this is for a process that has just been forked, and for a thread with a table of
/// its own.
pub(crate) fn close_all_but(keep: impl Fn(RawFd) -> bool) -> io::Result<()> {
    // The list is complete before the first one is closed: it is read from a descriptor itself.
    let names: Vec<RawFd> = std::fs::read_dir("/proc/thread-self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for descriptor in names.into_iter().filter(|descriptor| *descriptor > 2 && !keep(*descriptor)) {
        // SAFETY: the caller promises that nothing uses it; closing one that is closed already only fails.
        unsafe { libc::close(descriptor) };
    }
    Ok(())
}

/// Ignores the signals by which a person or a terminal ends a whole process group.
pub(crate) fn ignore_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP, libc::SIGPIPE] {
        // SAFETY: ignoring a signal runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Ends this process without running exit handlers.
pub(crate) fn exit_now(code: c_int) -> ! {
    // SAFETY: does not return.
    unsafe { libc::_exit(code) }
}

/// Ends a system call in which the main thread waits, with EINTR.
pub(crate) fn interrupt_main_thread() {
    extern "C" fn nothing(_: c_int) {}
    // A signal that is ignored unless somebody asks for it.
    let process = std::process::id() as libc::pid_t;
    // SAFETY: the handler does nothing, and both structures live through the calls; without SA_RESTART a call that waits
    // ends. The main thread has the number of its process.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
        libc::sigaction(libc::SIGURG, &action, std::ptr::null_mut());
        libc::syscall(libc::SYS_tgkill, process, process, libc::SIGURG);
    }
}

/// Lets a terminal go on that was stopped (Ctrl-S), and takes away what waits to be shown there.
pub(crate) fn discard_output(terminal: BorrowedFd<'_>) {
    // SAFETY: takes integers only. A terminal stops a background process that changes it unless SIGTTOU is ignored.
    unsafe {
        libc::signal(libc::SIGTTOU, libc::SIG_IGN);
        libc::tcflow(terminal.as_raw_fd(), libc::TCOON);
        libc::tcflush(terminal.as_raw_fd(), libc::TCOFLUSH);
    }
}

/// Puts the calling thread, and those it starts from now on, under a filter of system calls.
pub(crate) fn filter_calls(program: &[Instruction]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // The kernel only reads the program, although its structure has `*mut`.
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: `program` and what it points to live through the call.
    check_long(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0 as c_ulong, &raw const program)
    })?;
    Ok(())
}

/// `struct landlock_ruleset_attr`, as far as it is used.
#[repr(C)]
pub(crate) struct Ruleset {
    pub(crate) files: u64,
    pub(crate) network: u64,
    pub(crate) scoped: u64,
}

/// The version of Landlock that the kernel has.
pub(crate) fn landlock_version() -> io::Result<u32> {
    const VERSION: c_ulong = 1;
    // SAFETY: with this flag the kernel reads no structure.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<Ruleset>(), 0 as c_ulong, VERSION)
    };
    Ok(check_long(version)?.unsigned_abs())
}

/// A new set of rules, which refuses these rights until a rule allows them.
pub(crate) fn landlock_ruleset(ruleset: &Ruleset, bytes: usize) -> io::Result<OwnedFd> {
    let bytes = bytes.min(size_of::<Ruleset>()) as c_ulong;
    // SAFETY: the structure lives through the call and is no shorter than is said; the descriptor is new and owned by
    // nobody else.
    unsafe {
        let fd = libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::from_ref(ruleset),
            bytes,
            0 as c_ulong,
        );
        Ok(OwnedFd::from_raw_fd(check_long(fd)?))
    }
}

/// Allows `access` to everything below a folder.
pub(crate) fn landlock_allow(ruleset: &OwnedFd, folder: BorrowedFd<'_>, access: u64) -> io::Result<()> {
    #[repr(C, packed)]
    struct Beneath {
        access: u64,
        folder: c_int,
    }
    const PATH_BENEATH: c_ulong = 1;
    let rule = Beneath { access, folder: folder.as_raw_fd() };
    // SAFETY: the structure is as the kernel declares it and lives through the call.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            PATH_BENEATH,
            &raw const rule,
            0 as c_ulong,
        )
    })?;
    Ok(())
}

/// Puts the calling thread, and those it starts from now on, under the rules.
pub(crate) fn landlock_restrict(ruleset: &OwnedFd) -> io::Result<()> {
    // SAFETY: takes integers only.
    check_long(unsafe {
        libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0 as c_ulong)
    })?;
    Ok(())
}

/// `struct pidfd_info` of `linux/pidfd.h`, as far as Linux 6.16 has it.
#[repr(C)]
#[derive(Copy, Clone, Default)]
pub(crate) struct PidfdInfo {
    pub(crate) mask: u64,
    cgroup: u64,
    /// Numbers of the process and of its users.
    ids: [u32; 11],
    pub(crate) exit_code: i32,
    pub(crate) core_mask: u32,
    core_signal: u32,
}

/// Asks for what `mask` names about the process of a descriptor; the answer's mask says what the kernel knows.
pub(crate) fn pidfd_info(pidfd: BorrowedFd<'_>, mask: u64) -> io::Result<PidfdInfo> {
    /// `_IOWR(0xFF, 11, struct pidfd_info)`. The kernel reads the size from it, and fills what it has.
    const GET_INFO: u32 = 3 << 30 | (size_of::<PidfdInfo>() as u32) << 16 | 0xFF << 8 | 11;
    let mut info = PidfdInfo { mask, ..PidfdInfo::default() };
    // SAFETY: the structure has the size that the request states, and lives through the call.
    check(unsafe { libc::ioctl(pidfd.as_raw_fd(), GET_INFO as _, &raw mut info) })?;
    Ok(info)
}

/// The calling thread; [`interrupt`] ends its waiting system calls from now on.
#[cfg(test)]
pub(crate) fn interruptible() -> libc::pid_t {
    extern "C" fn nothing(_: c_int) {}
    // SAFETY: the handler does nothing; without SA_RESTART a call that waits ends with EINTR.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
        libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut());
        libc::gettid()
    }
}

/// Sends a signal to a thread that still runs.
#[cfg(test)]
pub(crate) fn interrupt(thread: libc::pid_t) {
    // SAFETY: takes no memory of ours; the caller has not joined the thread.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR2) };
}

/// The error of a system call whose further arguments are null; `None` if it succeeds.
#[cfg(test)]
pub(crate) fn fails(number: c_long, arguments: [c_long; 2]) -> Option<i32> {
    const NULL: c_long = 0;
    // SAFETY: the tests give arguments with which the kernel does nothing: descriptors that are not open, flags that
    // contradict each other, addresses that are null.
    let result = unsafe { libc::syscall(number, arguments[0], arguments[1], NULL, NULL, NULL, NULL) };
    if result < 0 { io::Error::last_os_error().raw_os_error() } else { None }
}

/// Attaches to a process as a debugger does.
#[cfg(test)]
pub(crate) fn trace(process: u32) -> io::Result<()> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: PTRACE_SEIZE reads no memory of ours.
    check_long(unsafe { libc::ptrace(libc::PTRACE_SEIZE, process as libc::pid_t, none, none) })?;
    Ok(())
}
