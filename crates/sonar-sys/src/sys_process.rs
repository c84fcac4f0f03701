//! The system calls that say what this process is and may do: its standard streams, job control, privileges.
//!
//! As in `sys`, a wrapper adds no policy, turns `-1` into [`io::Error`], and lets no pointer out.

use std::ffi::{c_int, c_long, c_ulong};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::classic_bpf::Instruction;

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn check_long(result: c_long) -> io::Result<c_int> {
    check(c_int::try_from(result).unwrap_or(c_int::MAX))
}

/// Waits until one of the descriptors has one of its events, or is in error; `None` waits without end. Gives the
/// events of each, all 0 when the time is over or a signal came.
pub(crate) fn poll(entries: &[(RawFd, i16)], timeout: Option<Duration>) -> io::Result<Vec<i16>> {
    let mut polled: Vec<_> =
        entries.iter().map(|&(fd, events)| libc::pollfd { fd, events, revents: 0 }).collect();
    let millis = timeout.map_or(-1, |timeout| timeout.as_millis().min(c_int::MAX as u128) as c_int);
    // SAFETY: `polled` lives through the call and its true length is given.
    match check(unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, millis) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(vec![0; polled.len()]),
        Err(error) => Err(error),
        Ok(_) => Ok(polled.iter().map(|entry| entry.revents).collect()),
    }
}

/// Makes the descriptor `number` another name of `by`; what it was before is closed.
pub(crate) fn replace(number: RawFd, by: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes integers only. The caller gives the number of a standard stream, which nothing owns.
    check(unsafe { libc::dup2(by.as_raw_fd(), number) })?;
    Ok(())
}

/// A pipe that never makes a reader wait: (to read, to write).
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors into `ends`; they are new and owned by nobody else.
    unsafe {
        check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Stops the process group as Ctrl-Z does, whatever this process does with SIGTSTP otherwise; returns when it goes on.
/// Where nobody could continue it, the kernel does not stop it.
pub(crate) fn stop_group() -> io::Result<()> {
    // SAFETY: sigaction is integers and a pointer to a handler: all zero is the default action. Both structures live
    // through the calls; the second call puts back what the first one gave.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        check(libc::sigaction(libc::SIGTSTP, &default, &mut before))?;
        let stopped = check(libc::kill(0, libc::SIGTSTP));
        check(libc::sigaction(libc::SIGTSTP, &before, std::ptr::null_mut()))?;
        stopped.map(drop)
    }
}

/// Makes a copy of this process, which must have no thread but the calling one. `None` in the copy.
pub(crate) fn fork() -> io::Result<Option<u32>> {
    // SAFETY: with one thread the copy is as whole as the original: no lock is held by a thread that it lacks.
    let id = check(unsafe { libc::fork() })?;
    Ok(u32::try_from(id).ok().filter(|id| *id != 0))
}

/// Ignores the signals by which a person or a terminal ends a whole process group.
pub(crate) fn ignore_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP, libc::SIGPIPE] {
        // SAFETY: ignoring a signal runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Ends this process without running what is registered for its end.
pub(crate) fn exit_now(code: c_int) -> ! {
    // SAFETY: does not return.
    unsafe { libc::_exit(code) }
}

/// Waits for a child to end.
pub(crate) fn wait_for(child: u32) {
    // SAFETY: takes integers only; a null pointer asks for no status.
    unsafe { libc::waitpid(child as libc::pid_t, std::ptr::null_mut(), 0) };
}

/// `prctl` with integers only.
pub(crate) fn prctl(option: c_int, arguments: [c_ulong; 2]) -> io::Result<c_int> {
    // SAFETY: the callers give options whose arguments are integers.
    check(unsafe { libc::prctl(option, arguments[0], arguments[1], 0 as c_ulong, 0 as c_ulong) })
}

/// Makes a call again until no signal interrupts it.
fn retried(mut call: impl FnMut() -> c_long) -> io::Result<c_int> {
    loop {
        match check_long(call()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Sends a descriptor over a socket, with one byte.
pub(crate) fn send_descriptor(socket: BorrowedFd<'_>, sent: BorrowedFd<'_>) -> io::Result<()> {
    let mut byte = [1u8];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
    let mut control = Control::default();
    let mut message = control.message(&mut part);
    // SAFETY: `message` points to `part` and `control`, which live through the calls. The control buffer has room for
    // one header and one descriptor, so that its first header is inside of it.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<c_int>() as u32) as _;
        libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(sent.as_raw_fd());
        message.msg_controllen = (*header).cmsg_len as _;
        retried(|| libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL) as c_long)?;
    }
    Ok(())
}

/// Receives a descriptor that came with one byte; `None` where the byte came alone.
pub(crate) fn receive_descriptor(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0u8];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
    let mut control = Control::default();
    let mut message = control.message(&mut part);
    // SAFETY: as above; the kernel writes no more than `part` and `control` have room for. A descriptor that it gives
    // is new and owned by nobody else.
    unsafe {
        let got =
            retried(|| libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) as c_long)?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let header = libc::CMSG_FIRSTHDR(&message);
        if header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
            return Ok(None);
        }
        Ok(Some(OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<c_int>().read_unaligned())))
    }
}

/// Room for the header of a control message and a descriptor, aligned as the kernel wants it.
#[repr(align(8))]
#[derive(Default)]
struct Control([u8; 32]);

impl Control {
    fn message(&mut self, part: &mut libc::iovec) -> libc::msghdr {
        // SAFETY: msghdr is integers and pointers that may be null: all zero is a value of it.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = part;
        message.msg_iovlen = 1;
        message.msg_control = self.0.as_mut_ptr().cast();
        message.msg_controllen = self.0.len() as _;
        message
    }
}

/// The capabilities of the calling thread become these, the inheritable ones none.
pub(crate) fn set_capabilities(effective: u64, permitted: u64) -> io::Result<()> {
    // From linux/capability.h: version 3, two words of 32 capabilities each.
    #[repr(C)]
    struct Header {
        version: u32,
        pid: c_int,
    }
    #[repr(C)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    let header = Header { version: 0x2008_0522, pid: 0 };
    let word = |shift: u32| Data {
        effective: (effective >> shift) as u32,
        permitted: (permitted >> shift) as u32,
        inheritable: 0,
    };
    let data = [word(0), word(32)];
    // SAFETY: both structures are as the kernel declares them and live through the call, which only reads them.
    check_long(unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) })?;
    Ok(())
}

/// Puts the calling thread, and those it starts from now on, under a filter of system calls.
pub(crate) fn filter_calls(program: &[Instruction]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // The kernel only reads the program, although its structure says `*mut`.
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

/// A new set of rules, which refuses what it names until a rule allows it.
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

/// Allows `access` to all below a folder.
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

/// The calling thread, whose waiting system calls [`interrupt`] ends from now on.
#[cfg(test)]
pub(crate) fn interruptible() -> libc::pthread_t {
    extern "C" fn nothing(_: c_int) {}
    // SAFETY: the handler does nothing; without SA_RESTART a call that waits ends with EINTR.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
        libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut());
        libc::pthread_self()
    }
}

/// Sends a signal to a thread that still runs.
#[cfg(test)]
pub(crate) fn interrupt(thread: libc::pthread_t) {
    // SAFETY: takes no memory of ours; the caller has not joined the thread.
    unsafe { libc::pthread_kill(thread, libc::SIGUSR2) };
}

/// The error of a system call whose further arguments are null; `None` where it succeeds.
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
