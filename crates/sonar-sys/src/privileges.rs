//! Giving privileges up for good, once what needs them is open.
//!
//! Everything here binds the calling thread and those that it starts later: so it comes before threads are
//! started, and a thread that needs less confines itself further. Nothing can be taken back.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use crate::classic_bpf::{Assembler, Condition, Instruction, Label, Width};
use crate::sys_process::{self, Ruleset};

/// Numbers of capabilities, from `linux/capability.h`.
pub mod capability {
    /// Reading files and searching folders whatever their permissions.
    pub const DAC_READ_SEARCH: u32 = 2;
    /// Writing files and making files in folders whatever their permissions.
    pub const DAC_OVERRIDE: u32 = 1;
    /// Looking into other users' processes.
    pub const SYS_PTRACE: u32 = 19;
    /// Loading eBPF programs; before Linux 5.19 also reading their maps.
    pub const BPF: u32 = 39;
}

/// What a thread, or a process, goes on to do.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Duty {
    /// Any work that starts no program, inspects no memory of others and changes nothing of the machine.
    General,
    /// The same, and it opens no socket.
    Writing,
    /// The same, and it reads files but changes none, of eBPF it uses the maps that it has.
    Reading,
    /// The same, without opening files: it draws, prints and waits.
    Showing,
    /// Taking packets from a ring that is open, decoding them, and writing to what is open: the calls that this
    /// takes, and no other.
    Decoding,
}

/// Drops all capabilities of the calling thread but these, from every set, and forbids that a program it starts
/// gains any (`no_new_privs`).
///
/// # Errors
/// When the kernel refuses. That the bounding set cannot be changed is no error: it takes `CAP_SETPCAP`, and with
/// `no_new_privs` the set has no use.
pub fn drop_capabilities(keep: &[u32]) -> io::Result<()> {
    const CLEAR_AMBIENT: u64 = libc::PR_CAP_AMBIENT_CLEAR_ALL as u64;
    let keep_mask = keep.iter().fold(0, |mask, number| mask | 1u64 << number);
    // Before anything else: what follows cannot be undone then.
    sys_process::prctl(libc::PR_SET_NO_NEW_PRIVS, [1, 0])?;
    // Linux before 4.3 has no ambient set, and nothing in it.
    let _ = sys_process::prctl(libc::PR_CAP_AMBIENT, [CLEAR_AMBIENT as _, 0]);
    for number in 0..64 {
        if keep_mask >> number & 1 == 0 && sys_process::prctl(libc::PR_CAPBSET_READ, [number, 0]).is_ok() {
            let _ = sys_process::prctl(libc::PR_CAPBSET_DROP, [number, 0]);
        }
    }
    let kept = keep_mask & permitted().unwrap_or(0);
    sys_process::set_capabilities(kept, kept)
}

/// Whether `works` without any capability. Tried with none; the calling thread has its own again afterwards.
pub fn works_without(works: impl FnOnce() -> bool) -> bool {
    let Some(permitted) = permitted() else { return true };
    if sys_process::set_capabilities(0, permitted).is_err() {
        return true;
    }
    let worked = works();
    // It is allowed to make effective what is permitted.
    let _ = sys_process::set_capabilities(permitted, permitted);
    worked
}

/// The permitted capabilities of the calling thread, a bit each.
fn permitted() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapPrm:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Rights of Landlock to files, from `linux/landlock.h`.
mod right {
    pub const WRITE_FILE: u64 = 1 << 1;
    pub const READ_FILE: u64 = 1 << 2;
    pub const READ_DIR: u64 = 1 << 3;
    pub const REMOVE_FILE: u64 = 1 << 5;
    pub const MAKE_REG: u64 = 1 << 8;
    /// All of version 1; version 2 adds `REFER`, version 3 `TRUNCATE`.
    pub const ALL: u64 = (1 << 13) - 1;
    pub const REFER: u64 = 1 << 13;
    pub const TRUNCATE: u64 = 1 << 14;
}

/// The version of Landlock that the kernel has; `None` where it has none, or it is switched off.
pub fn landlock() -> Option<u32> {
    sys_process::landlock_version().ok()
}

/// Limits the calling thread, by Landlock, to reading below some folders, and to making, writing and removing
/// regular files below others. What is open stays usable. TCP is refused too where the kernel can do that.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] where the kernel has no Landlock or it is switched off; else when it refuses.
pub fn limit_files(read: &[&Path], write: &[&Path]) -> io::Result<()> {
    let version = sys_process::landlock_version()
        .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error.to_string()))?;
    let mut all = right::ALL;
    all |= if version >= 2 { right::REFER } else { 0 };
    all |= if version >= 3 { right::TRUNCATE } else { 0 };
    let tcp = 0b11;
    let (network, bytes) = if version >= 4 { (tcp, 16) } else { (0, 8) };
    let rules = sys_process::landlock_ruleset(&Ruleset { files: all, network }, bytes)?;
    let reading = right::READ_FILE | right::READ_DIR;
    let writing = reading
        | right::WRITE_FILE
        | right::MAKE_REG
        | right::REMOVE_FILE
        | if version >= 3 { right::TRUNCATE } else { 0 };
    for (folders, access) in [(read, reading), (write, writing)] {
        for folder in folders {
            // One that is not there needs no rule.
            if let Ok(folder) = File::open(folder) {
                sys_process::landlock_allow(&rules, folder.as_fd(), access)?;
            }
        }
    }
    sys_process::landlock_restrict(&rules)
}

/// Confines the calling thread, by seccomp, to the system calls of its duty. Others fail with `EPERM`.
/// Needs `no_new_privs`, which [`drop_capabilities`] sets.
///
/// # Errors
/// When the kernel has no seccomp filters or refuses this one.
pub fn confine(duty: Duty) -> io::Result<()> {
    let program = match duty {
        Duty::General => refuse(&[ESCALATION]),
        Duty::Writing => refuse(&[ESCALATION, SOCKETS]),
        Duty::Reading => refuse(&[ESCALATION, SOCKETS, CHANGES]),
        Duty::Showing => refuse(&[ESCALATION, SOCKETS, CHANGES, OPENING]),
        Duty::Decoding => allow_only(DECODING),
    };
    sys_process::filter_calls(&program?)
}

/// When a rule about a system call applies.
#[derive(Copy, Clone)]
enum Test {
    Always,
    /// The low half of an argument is one of these values.
    Among(u32, &'static [u32]),
    /// It has none of these bits.
    Without(u32, u32),
}

/// A system call; the rule is met where the test holds.
type Call = (libc::c_long, Test);

const NEVER: Test = Test::Among(0, &[]);

const fn always(number: libc::c_long) -> Call {
    (number, Test::Always)
}

/// The calls of eBPF that use maps: look up, update, delete, next key, and the same in batches; and what a
/// descriptor is.
const MAP_COMMANDS: &[u32] = &[1, 2, 3, 4, 15, 24, 25, 26, 27];

/// What turns a foothold into more: other programs, other processes' memory, the kernel's own code, mounts and
/// namespaces, keys; and the ways around a filter of calls. Each is refused unless its test holds.
const ESCALATION: &[Call] = &[
    (libc::SYS_bpf, Test::Among(0, MAP_COMMANDS)),
    (libc::SYS_execve, NEVER),
    (libc::SYS_execveat, NEVER),
    (libc::SYS_ptrace, NEVER),
    (libc::SYS_process_vm_readv, NEVER),
    (libc::SYS_process_vm_writev, NEVER),
    (libc::SYS_pidfd_getfd, NEVER),
    (libc::SYS_kcmp, NEVER),
    (libc::SYS_perf_event_open, NEVER),
    (libc::SYS_userfaultfd, NEVER),
    (libc::SYS_init_module, NEVER),
    (libc::SYS_finit_module, NEVER),
    (libc::SYS_delete_module, NEVER),
    (libc::SYS_kexec_load, NEVER),
    (libc::SYS_kexec_file_load, NEVER),
    (libc::SYS_mount, NEVER),
    (libc::SYS_umount2, NEVER),
    (libc::SYS_move_mount, NEVER),
    (libc::SYS_open_tree, NEVER),
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
    (libc::SYS_io_uring_setup, NEVER),
    (libc::SYS_io_uring_enter, NEVER),
    (libc::SYS_io_uring_register, NEVER),
    // PT_TRACE_ME and the like are above; personality may make data executable.
    (libc::SYS_personality, NEVER),
];

/// Ways out by a network, or to another process. A pair of sockets leads nowhere, and is not among them.
const SOCKETS: &[Call] = &[
    (libc::SYS_socket, NEVER),
    (libc::SYS_connect, NEVER),
    (libc::SYS_bind, NEVER),
    (libc::SYS_listen, NEVER),
    (libc::SYS_accept, NEVER),
    (libc::SYS_accept4, NEVER),
];

const WRITING: u32 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u32;

/// What changes files and folders by name.
const CHANGES: &[Call] = &[
    (libc::SYS_openat, Test::Without(2, WRITING)),
    // Its flags are behind a pointer.
    (libc::SYS_openat2, NEVER),
    (libc::SYS_mknodat, NEVER),
    (libc::SYS_linkat, NEVER),
    (libc::SYS_symlinkat, NEVER),
    (libc::SYS_renameat2, NEVER),
    (libc::SYS_unlinkat, NEVER),
    (libc::SYS_mkdirat, NEVER),
    (libc::SYS_fchmodat, NEVER),
    (libc::SYS_fchownat, NEVER),
    (libc::SYS_truncate, NEVER),
    (libc::SYS_setxattr, NEVER),
    (libc::SYS_lsetxattr, NEVER),
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
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, NEVER),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chown, NEVER),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_lchown, NEVER),
];

/// Opening files at all.
const OPENING: &[Call] = &[
    (libc::SYS_openat, NEVER),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, NEVER),
];

/// From `asm-generic/mman-common.h`; the argument of `mmap` and `mprotect` is their third.
const EXECUTABLE: Test = Test::Without(2, libc::PROT_EXEC as u32);

/// What a decoder thread calls: it waits for its ring and reads its figures, has the ring's filter replaced, takes
/// and gives back memory, waits for other threads, writes to what is open, and ends.
const DECODING: &[Call] = &[
    always(libc::SYS_ppoll),
    #[cfg(target_arch = "x86_64")]
    always(libc::SYS_poll),
    (libc::SYS_getsockopt, Test::Among(1, &[libc::SOL_SOCKET as u32, libc::SOL_PACKET as u32])),
    (libc::SYS_setsockopt, Test::Among(2, &[libc::SO_ATTACH_FILTER as u32])),
    // The name of an interface by its number, at a socket that is open.
    (libc::SYS_ioctl, Test::Among(1, &[libc::SIOCGIFNAME as u32])),
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

/// From `linux/audit.h`.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// A filter that allows these calls where their tests hold, and nothing else.
fn allow_only(calls: &[Call]) -> io::Result<Vec<Instruction>> {
    filter(&[calls], false)
}

/// A filter that refuses these calls where their tests do not hold, and allows everything else.
fn refuse(groups: &[&[Call]]) -> io::Result<Vec<Instruction>> {
    filter(groups, true)
}

fn filter(groups: &[&[Call]], others: bool) -> io::Result<Vec<Instruction>> {
    // `struct seccomp_data` of linux/seccomp.h: number, architecture, instruction pointer, six arguments of 64 bits.
    const NUMBER: u32 = 0;
    const ARCH: u32 = 4;
    const ARGUMENTS: u32 = 16;
    let mut program = Assembler::default();
    let (allowed, refused) = (program.label(), program.label());
    program.load(Width::Word, ARCH);
    // Calls of another architecture have other numbers.
    program.unless(Condition::Equal, ARCHITECTURE, refused);
    program.load(Width::Word, NUMBER);
    if cfg!(target_arch = "x86_64") {
        // So do those of x32.
        program.when(Condition::GreaterOrEqual, 0x4000_0000, refused);
    }
    // Of several rules about one call the last and strictest one is last; each must be met.
    let mut rules: Vec<(u32, Vec<Test>)> = Vec::new();
    for (number, test) in groups.iter().flat_map(|group| group.iter()) {
        let number = u32::try_from(*number).map_err(|_| io::ErrorKind::InvalidInput)?;
        match rules.iter_mut().find(|rule| rule.0 == number) {
            Some(rule) => rule.1.push(*test),
            None => rules.push((number, vec![*test])),
        }
    }
    for (number, tests) in rules {
        let next = program.label();
        program.unless(Condition::Equal, number, next);
        for test in tests {
            met_or(&mut program, test, ARGUMENTS, refused);
        }
        program.jump(allowed);
        program.place(next);
    }
    program.jump(if others { allowed } else { refused });
    program.place(allowed);
    program.return_constant(libc::SECCOMP_RET_ALLOW);
    program.place(refused);
    program.return_constant(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    program.finish().map_err(|error| io::Error::other(format!("the filter cannot be assembled: {error:?}")))
}

/// Goes on with the next instruction where the test holds, else at `refused`. The low half of an argument comes first
/// on both architectures.
fn met_or(program: &mut Assembler, test: Test, arguments: u32, refused: Label) {
    let next = program.label();
    match test {
        Test::Always => {}
        Test::Among(argument, values) => {
            program.load(Width::Word, arguments + 8 * argument);
            for value in values {
                program.when(Condition::Equal, *value, next);
            }
            program.jump(refused);
        }
        Test::Without(argument, bits) => {
            program.load(Width::Word, arguments + 8 * argument);
            program.when(Condition::AnyBit, bits, refused);
        }
    }
    program.place(next);
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::thread;

    use super::*;

    /// What a thread may still do.
    #[derive(Debug, PartialEq, Eq)]
    struct Able {
        read: bool,
        write: bool,
        socket: bool,
        run: bool,
        trace: bool,
        memory: bool,
    }

    /// Tries everything, in a thread of its own after `confined`.
    fn after(confined: impl FnOnce() + Send + 'static) -> Able {
        let file = std::env::temp_dir().join(format!(
            "sonar-sys-privileges-{}-{:?}",
            std::process::id(),
            thread::current().id()
        ));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let id = child.id();
        let able = thread::spawn(move || {
            let write = |file| File::create(file).is_ok();
            assert!(write(&file), "before it is confined");
            confined();
            // Results first: a failed assertion would want to open files.
            Able {
                read: File::open("/proc/self/maps").is_ok(),
                write: write(&file),
                socket: TcpListener::bind("127.0.0.1:0").is_ok()
                    || UdpSocket::bind("127.0.0.1:0").is_ok()
                    || UnixStream::connect("/nonexistent")
                        .is_err_and(|error| error.kind() == io::ErrorKind::NotFound),
                run: Command::new("/bin/true").status().is_ok(),
                trace: sys_process::trace(id).is_ok(),
                memory: vec![1u8; 64 << 20].iter().map(|byte| usize::from(*byte)).sum::<usize>() == 64 << 20,
            }
        })
        .join()
        .unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        able
    }

    fn confined_to(duty: Duty) -> impl FnOnce() + Send {
        move || {
            sys_process::prctl(libc::PR_SET_NO_NEW_PRIVS, [1, 0]).unwrap();
            confine(duty).unwrap();
        }
    }

    #[test]
    fn a_decoder_thread_can_open_nothing_and_start_nothing() {
        let able = after(confined_to(Duty::Decoding));
        let none = Able { read: false, write: false, socket: false, run: false, trace: false, memory: true };
        assert_eq!(able, none);
    }

    #[test]
    fn each_duty_can_do_what_it_is_for() {
        let none = Able { read: false, write: false, socket: false, run: false, trace: false, memory: true };
        assert_eq!(after(confined_to(Duty::Showing)), none);
        assert_eq!(after(confined_to(Duty::Reading)), Able { read: true, ..none });
        let writing = Able { read: true, write: true, ..none };
        assert_eq!(after(confined_to(Duty::Writing)), writing);
        let general = after(confined_to(Duty::General));
        assert_eq!(general, Able { read: true, write: true, socket: true, ..none });
    }

    #[test]
    fn an_unconfined_thread_can_do_all_that_is_tried() {
        let able = after(|| {});
        assert!(able.read && able.write && able.socket && able.run && able.memory, "{able:?}");
    }

    #[test]
    fn capabilities_are_gone_from_every_set() {
        let status = thread::spawn(|| {
            drop_capabilities(&[capability::SYS_PTRACE]).unwrap();
            std::fs::read_to_string("/proc/thread-self/status").unwrap()
        })
        .join()
        .unwrap();
        let set = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        let kept = 1 << capability::SYS_PTRACE;
        for name in ["CapEff:", "CapPrm:"] {
            assert_eq!(set(name) & !kept, 0, "{name}");
        }
        assert_eq!((set("CapInh:"), set("CapAmb:"), set("NoNewPrivs:")), (0, 0, 1));
    }

    #[test]
    fn files_outside_of_the_folders_are_out_of_reach() {
        let folder = std::env::temp_dir().join(format!("sonar-sys-landlock-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let own = folder.clone();
        let result = thread::spawn(move || {
            sys_process::prctl(libc::PR_SET_NO_NEW_PRIVS, [1, 0]).unwrap();
            if let Err(error) = limit_files(&[Path::new("/proc")], &[&own]) {
                assert_eq!(error.kind(), io::ErrorKind::Unsupported);
                return None;
            }
            let file = own.join("file");
            Some([
                std::fs::write(&file, "x").is_ok(),
                std::fs::remove_file(&file).is_ok(),
                File::open("/proc/self/status").is_ok(),
                File::options().write(true).open("/proc/self/comm").is_ok(),
                File::open("/etc/passwd").is_ok(),
                std::fs::read_dir("/").is_ok(),
                File::create(own.with_extension("beside")).is_ok(),
            ])
        })
        .join()
        .unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        match result {
            Some(allowed) => assert_eq!(allowed, [true, true, true, false, false, false, false]),
            None => println!("skipped: this kernel has no Landlock"),
        }
    }
}
