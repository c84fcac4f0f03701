//! The lists of system calls for the filters of [`super::confine`].

/// When a rule about a system call applies.
#[derive(Copy, Clone)]
pub(super) enum Test {
    Always,
    /// The low half of an argument is one of these values.
    Among(u32, &'static [u32]),
    /// It is none of them.
    Except(u32, &'static [u32]),
    /// It has none of these bits.
    Without(u32, u32),
    /// It has one of these bits.
    With(u32, u32),
    /// It is a request of `ioctl` of one of these types: bits 8 to 15, see `asm-generic/ioctl.h`.
    OfType(u32, &'static [u8]),
    /// All of it is 0.
    Null(u32),
    /// It is the number of the process that puts itself under the filter.
    OwnProcess(u32),
    /// The same, or 0, which means that process too.
    OwnProcessOrZero(u32),
    /// The arguments of `kill`: the process itself with any signal, or its group with the one of Ctrl-Z.
    OwnSignal,
    /// Never, and it fails as in a kernel without this call: callers handle that.
    Absent,
}

/// A system call; the rule is met if the test holds.
pub(super) type Call = (libc::c_long, Test);

const NEVER: Test = Test::Among(0, &[]);

const fn always(number: libc::c_long) -> Call {
    (number, Test::Always)
}

/// Flags of `clone` that create namespaces: cgroup, IPC, mount, network, process id, user, UTS. The one for time
/// exists only for `clone3` and `unshare`.
const NAMESPACES: u32 = (libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS) as u32;

/// Types into a terminal for another user; pastes into the console.
const TYPING: &[u32] = &[libc::TIOCSTI as u32, libc::TIOCLINUX as u32];

/// The types of requests that are in use: to terminals and to any descriptor, to sockets, to events of perf, and to handles
/// of processes. Those to file systems set attributes of a file, make it read-only for good (fs-verity) or a folder
/// encrypted, and none of that needs a descriptor for writing.
const REQUESTS: &[u8] = &[b'T', 0x89, b'$', 0xff];

/// Names the process that gets a signal about a descriptor, from `asm-generic/sockios.h`: with `fcntl` it may be any
/// process and any signal.
const SETTING_OWNER: &[u32] = &[0x8901, 0x8902];
const SETTING_OWNER_BY_FCNTL: &[u32] = &[libc::F_SETOWN as u32, F_SETSIG, F_SETOWN_EX];
/// From `linux/resource.h`: the number that follows is that of a process.
const PRIO_PROCESS: u32 = 0;
/// The same of `linux/ioprio.h`. The others are a group of processes and all processes of a user.
const IOPRIO_WHO_PROCESS: u32 = 1;
/// From `asm-generic/fcntl.h`.
const F_SETSIG: u32 = 10;
const F_SETOWN_EX: u32 = 15;

/// Takes a lease on a file: whoever opens it then waits until the holder gives it up, for up to 45 seconds (fcntl(2)).
const TAKING_A_LEASE: &[u32] = &[libc::F_SETLEASE as u32];

/// Types of a pair of sockets that leads nowhere: a stream ignores addresses. A datagram socket sends to any other one
/// on this machine, and passes descriptors on.
const STREAM: u32 = libc::SOCK_STREAM as u32;
const STREAM_PAIR: &[u32] = &[
    STREAM,
    STREAM | libc::SOCK_CLOEXEC as u32,
    STREAM | libc::SOCK_NONBLOCK as u32,
    STREAM | (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u32,
];

/// Calls that the libc crate does not know everywhere. The numbers of new ones are the same on both architectures.
mod new {
    use libc::c_long;

    pub const PIDFD_SEND_SIGNAL: c_long = 424;
    pub const PROCESS_MADVISE: c_long = 440;
    pub const QUOTACTL_FD: c_long = 443;
    pub const PROCESS_MRELEASE: c_long = 448;
    pub const FCHMODAT2: c_long = 452;
    pub const SETXATTRAT: c_long = 463;
    pub const REMOVEXATTRAT: c_long = 466;
    pub const OPEN_TREE_ATTR: c_long = 467;
    pub const FILE_SETATTR: c_long = 469;
    pub const KEXEC_FILE_LOAD: c_long = if cfg!(target_arch = "x86_64") { 320 } else { 294 };
}

/// The calls of eBPF that use what is open: maps (look up, update, delete, next key, and the same in batches), the kind
/// of a descriptor, and reading an iterator.
const MAP_COMMANDS: &[u32] = &[1, 2, 3, 4, 15, 24, 25, 26, 27, 33];

/// Calls that load or attach programs of the kernel.
pub(super) const ATTACHING: &[Call] =
    &[(libc::SYS_bpf, Test::Among(0, MAP_COMMANDS)), (libc::SYS_perf_event_open, NEVER)];

/// Calls that turn a foothold into more: other programs, other processes' memory, the kernel's own code, mounts and
/// namespaces, keys; and the ways around a filter of calls. Each is refused unless its test holds.
pub(super) const ESCALATION: &[Call] = &[
    // Threads are started by clone3 if there is one, else by clone. Its flags are behind a pointer.
    (libc::SYS_clone3, Test::Absent),
    (libc::SYS_clone, Test::Without(0, NAMESPACES)),
    // A process of its own would outlive this one.
    (libc::SYS_clone, Test::With(0, libc::CLONE_THREAD as u32)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_fork, NEVER),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_vfork, NEVER),
    (libc::SYS_ioctl, Test::Except(1, TYPING)),
    (libc::SYS_execve, NEVER),
    (libc::SYS_execveat, NEVER),
    (libc::SYS_ptrace, NEVER),
    (libc::SYS_process_vm_readv, NEVER),
    (libc::SYS_process_vm_writev, NEVER),
    (libc::SYS_pidfd_getfd, NEVER),
    (libc::SYS_kcmp, NEVER),
    (libc::SYS_userfaultfd, NEVER),
    // Maps once more what a mapping is of, like the ring for sending of a socket that captures.
    (libc::SYS_remap_file_pages, NEVER),
    (libc::SYS_init_module, NEVER),
    (libc::SYS_finit_module, NEVER),
    (libc::SYS_delete_module, NEVER),
    (libc::SYS_kexec_load, NEVER),
    (new::KEXEC_FILE_LOAD, NEVER),
    (libc::SYS_mount, NEVER),
    (libc::SYS_umount2, NEVER),
    (libc::SYS_move_mount, NEVER),
    (libc::SYS_open_tree, NEVER),
    (new::OPEN_TREE_ATTR, NEVER),
    (libc::SYS_fsconfig, NEVER),
    (libc::SYS_mount_setattr, NEVER),
    (libc::SYS_fsopen, NEVER),
    (libc::SYS_fsmount, NEVER),
    (libc::SYS_fspick, NEVER),
    (libc::SYS_pivot_root, NEVER),
    (libc::SYS_chroot, NEVER),
    (libc::SYS_setns, NEVER),
    (libc::SYS_unshare, NEVER),
    (libc::SYS_swapon, NEVER),
    (libc::SYS_swapoff, NEVER),
    (libc::SYS_reboot, NEVER),
    (libc::SYS_acct, NEVER),
    (libc::SYS_keyctl, NEVER),
    (libc::SYS_add_key, NEVER),
    (libc::SYS_request_key, NEVER),
    (libc::SYS_open_by_handle_at, NEVER),
    (libc::SYS_name_to_handle_at, NEVER),
    (libc::SYS_clock_settime, NEVER),
    (libc::SYS_settimeofday, NEVER),
    // What CAP_SYS_ADMIN allows beside mounts: the helper for TLS keeps it on some kernels.
    (libc::SYS_sethostname, NEVER),
    (libc::SYS_setdomainname, NEVER),
    (libc::SYS_quotactl, NEVER),
    (new::QUOTACTL_FD, NEVER),
    (libc::SYS_fanotify_init, NEVER),
    (libc::SYS_syslog, NEVER),
    (libc::SYS_io_uring_setup, NEVER),
    (libc::SYS_io_uring_enter, NEVER),
    (libc::SYS_io_uring_register, NEVER),
    // PT_TRACE_ME and the like are above; personality may make data executable.
    (libc::SYS_personality, NEVER),
    // Other processes of the same user, which is root where root started this one: signals, limits and priorities.
    (libc::SYS_kill, Test::OwnSignal),
    (libc::SYS_tgkill, Test::OwnProcess(0)),
    (libc::SYS_tkill, NEVER),
    (libc::SYS_rt_sigqueueinfo, NEVER),
    (libc::SYS_rt_tgsigqueueinfo, NEVER),
    (new::PIDFD_SEND_SIGNAL, NEVER),
    (libc::SYS_fcntl, Test::Except(1, SETTING_OWNER_BY_FCNTL)),
    (libc::SYS_ioctl, Test::Except(1, SETTING_OWNER)),
    (libc::SYS_fcntl, Test::Except(1, TAKING_A_LEASE)),
    (libc::SYS_prlimit64, Test::OwnProcessOrZero(0)),
    (libc::SYS_setpriority, Test::Among(0, &[PRIO_PROCESS])),
    (libc::SYS_setpriority, Test::Among(1, &[0])),
    (libc::SYS_ioprio_set, Test::Among(0, &[IOPRIO_WHO_PROCESS])),
    (libc::SYS_ioprio_set, Test::Among(1, &[0])),
    (libc::SYS_sched_setaffinity, Test::Among(0, &[0])),
    (libc::SYS_sched_setscheduler, Test::Among(0, &[0])),
    (libc::SYS_sched_setparam, Test::Among(0, &[0])),
    (libc::SYS_sched_setattr, Test::Among(0, &[0])),
    (libc::SYS_migrate_pages, NEVER),
    (libc::SYS_move_pages, NEVER),
    (new::PROCESS_MADVISE, NEVER),
    (new::PROCESS_MRELEASE, NEVER),
    // Shared memory, semaphores and queues of the same user, whose names are numbers and which no file restricts.
    (libc::SYS_shmget, NEVER),
    (libc::SYS_shmat, NEVER),
    (libc::SYS_shmctl, NEVER),
    (libc::SYS_semget, NEVER),
    (libc::SYS_semop, NEVER),
    (libc::SYS_semtimedop, NEVER),
    (libc::SYS_semctl, NEVER),
    (libc::SYS_msgget, NEVER),
    (libc::SYS_msgsnd, NEVER),
    (libc::SYS_msgrcv, NEVER),
    (libc::SYS_msgctl, NEVER),
    (libc::SYS_mq_open, NEVER),
    (libc::SYS_mq_unlink, NEVER),
    // The program that a process is said to run, by which helpers recognise servers.
    (libc::SYS_prctl, Test::Except(0, &[libc::PR_SET_MM as u32])),
];

/// Ways out over a network, or to another process: new sockets, but for a pair of streams, and addresses to send to.
pub(super) const SOCKETS: &[Call] = &[
    (libc::SYS_socketpair, Test::Among(0, &[libc::AF_UNIX as u32])),
    (libc::SYS_socketpair, Test::Among(1, STREAM_PAIR)),
    (libc::SYS_sendto, Test::Null(4)),
    (libc::SYS_sendmmsg, NEVER),
    (libc::SYS_socket, NEVER),
    (libc::SYS_connect, NEVER),
    (libc::SYS_bind, NEVER),
];

/// Sockets of other kinds than those for packets and for the list of interfaces, and their connections.
pub(super) const CONNECTING: &[Call] = &[
    (libc::SYS_socket, Test::Among(0, &[libc::AF_PACKET as u32, libc::AF_NETLINK as u32])),
    (libc::SYS_socketpair, NEVER),
    (libc::SYS_connect, NEVER),
    (libc::SYS_sendmmsg, NEVER),
];

/// Passing descriptors on. The addresses are behind a pointer.
pub(super) const MESSAGES: &[Call] = &[(libc::SYS_sendmsg, NEVER)];

const WRITING: u32 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u32;

/// Letting others connect.
pub(super) const LISTENING: &[Call] = &[(libc::SYS_listen, NEVER)];

/// Taking their connections.
pub(super) const ACCEPTING: &[Call] = &[(libc::SYS_accept, NEVER), (libc::SYS_accept4, NEVER)];

/// Calls that change the contents of files, and folders, by name.
pub(super) const CHANGES: &[Call] = &[
    (libc::SYS_openat, Test::Without(2, WRITING)),
    // Its flags are behind a pointer.
    (libc::SYS_openat2, NEVER),
    (libc::SYS_mknodat, NEVER),
    (libc::SYS_linkat, NEVER),
    (libc::SYS_symlinkat, NEVER),
    (libc::SYS_renameat2, NEVER),
    (libc::SYS_unlinkat, NEVER),
    (libc::SYS_mkdirat, NEVER),
    (libc::SYS_renameat, NEVER),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, Test::Without(1, WRITING)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, NEVER),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, NEVER),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_link, NEVER),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_symlink, NEVER),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, NEVER),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, NEVER),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, NEVER),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, NEVER),
];

/// Bits of a mode with which a program gets the rights of its owner or of its group, whoever executes it.
const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;

/// Modes of new files and folders, for duties that may create some.
pub(super) const NEW_FILES: &[Call] = &[
    (libc::SYS_openat, Test::Without(3, SET_ID)),
    // Its mode is behind a pointer.
    (libc::SYS_openat2, Test::Absent),
    (libc::SYS_mknodat, Test::Without(2, SET_ID)),
    (libc::SYS_mkdirat, Test::Without(2, SET_ID)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, Test::Without(2, SET_ID)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, Test::Without(1, SET_ID)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, Test::Without(1, SET_ID)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, Test::Without(1, SET_ID)),
];

/// Calls that change permissions, owners, times and attributes of files, which Landlock does not restrict, and the one that
/// changes their length by name, which it restricts from Linux 6.2 on only.
pub(super) const ATTRIBUTES: &[Call] = &[
    (libc::SYS_truncate, NEVER),
    (libc::SYS_fchmod, NEVER),
    (libc::SYS_fchmodat, NEVER),
    (new::FCHMODAT2, NEVER),
    (libc::SYS_fchown, NEVER),
    (libc::SYS_fchownat, NEVER),
    (libc::SYS_utimensat, NEVER),
    (libc::SYS_setxattr, NEVER),
    (libc::SYS_lsetxattr, NEVER),
    (libc::SYS_fsetxattr, NEVER),
    (new::SETXATTRAT, NEVER),
    (libc::SYS_removexattr, NEVER),
    (libc::SYS_lremovexattr, NEVER),
    (libc::SYS_fremovexattr, NEVER),
    (new::REMOVEXATTRAT, NEVER),
    (new::FILE_SETATTR, NEVER),
    (libc::SYS_ioctl, Test::OfType(1, REQUESTS)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, NEVER),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chown, NEVER),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_lchown, NEVER),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_utime, NEVER),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_utimes, NEVER),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_futimesat, NEVER),
];

/// Opening files at all.
pub(super) const OPENING: &[Call] = &[
    (libc::SYS_openat, NEVER),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, NEVER),
];

/// From `asm-generic/mman-common.h`; the argument of `mmap` and `mprotect` is their third.
const EXECUTABLE: Test = Test::Without(2, libc::PROT_EXEC as u32);

/// A mapping that changes no file, and is no ring of a socket that captures.
const UNSHARED: Test = Test::Without(3, libc::MAP_SHARED as u32);

/// What would let a socket that captures send: see `PacketSocket::stop_sending`.
pub(super) const SENDING_PACKETS: &[Call] =
    &[(libc::SYS_setsockopt, Test::Except(1, &[libc::SOL_PACKET as u32]))];

/// The same by the rings for sending, which a thread maps that adopts rings of a helper.
pub(super) const SHARED_MAPPINGS: &[Call] = &[(libc::SYS_mmap, UNSHARED)];

/// The call of eBPF that says what the kernel counts of a program that is open.
const PROGRAM_FIGURES: &[u32] = &[15];

/// The calls of a decoder thread: it waits for its ring and reads its figures, has the filter of the ring replaced,
/// allocates and frees memory, waits for other threads, writes to open files, and ends.
pub(super) const DECODING: &[Call] = &[
    always(libc::SYS_ppoll),
    #[cfg(target_arch = "x86_64")]
    always(libc::SYS_poll),
    (libc::SYS_getsockopt, Test::Among(1, &[libc::SOL_SOCKET as u32, libc::SOL_PACKET as u32])),
    (libc::SYS_setsockopt, Test::Among(1, &[libc::SOL_SOCKET as u32])),
    (libc::SYS_setsockopt, Test::Among(2, &[libc::SO_ATTACH_FILTER as u32])),
    // The name of an interface by its number, at an open socket.
    (libc::SYS_ioctl, Test::Among(1, &[libc::SIOCGIFNAME as u32])),
    (libc::SYS_bpf, Test::Among(0, PROGRAM_FIGURES)),
    always(libc::SYS_futex),
    always(libc::SYS_write),
    always(libc::SYS_writev),
    always(libc::SYS_read),
    always(libc::SYS_close),
    always(libc::SYS_fstat),
    always(libc::SYS_lseek),
    always(libc::SYS_ftruncate),
    always(libc::SYS_brk),
    (libc::SYS_mmap, EXECUTABLE),
    (libc::SYS_mmap, UNSHARED),
    (libc::SYS_mprotect, EXECUTABLE),
    always(libc::SYS_munmap),
    always(libc::SYS_mremap),
    always(libc::SYS_madvise),
    always(libc::SYS_clock_gettime),
    always(libc::SYS_clock_nanosleep),
    always(libc::SYS_nanosleep),
    always(libc::SYS_gettimeofday),
    always(libc::SYS_sched_yield),
    always(libc::SYS_sched_getaffinity),
    always(libc::SYS_getpid),
    always(libc::SYS_gettid),
    (libc::SYS_tgkill, Test::OwnProcess(0)),
    (libc::SYS_tgkill, Test::Among(2, &[libc::SIGABRT as u32])),
    always(libc::SYS_getrandom),
    always(libc::SYS_rt_sigreturn),
    always(libc::SYS_rt_sigprocmask),
    always(libc::SYS_rt_sigaction),
    always(libc::SYS_sigaltstack),
    always(libc::SYS_restart_syscall),
    always(libc::SYS_set_robust_list),
    always(libc::SYS_rseq),
    always(libc::SYS_exit),
    always(libc::SYS_exit_group),
];
