//! Drops privileges for good, once everything that needs them is open.
//!
//! Each step binds the calling thread and the threads that it starts later. So call it before starting threads; a
//! thread that needs less confines itself further. Nothing can be undone.
//!
//! `calls` lists the system calls that each duty may or may not make.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

mod calls;

use self::calls::{ATTACHING, CHANGES, Call, DECODING, ESCALATION, OPENING, SERVING, SOCKETS, Test};
use crate::classic_bpf::{BpfAssembler, Condition, Instruction, JumpLabel, Width};
use crate::sys_process::{self, Ruleset};

/// Numbers of capabilities, from `linux/capability.h`.
pub mod capability {
    /// Read files and search folders whatever their permissions.
    pub const DAC_READ_SEARCH: u32 = 2;
    /// Write files and create files in folders whatever their permissions.
    pub const DAC_OVERRIDE: u32 = 1;
    /// Open packet sockets.
    pub const NET_RAW: u32 = 13;
    /// Inspect processes of other users.
    pub const SYS_PTRACE: u32 = 19;
    /// Load eBPF programs; before Linux 5.19 also read their maps.
    pub const BPF: u32 = 39;
    /// Attach eBPF programs that read the memory of the kernel and of processes.
    pub const PERFMON: u32 = 38;
    /// Attach probes to programs, since Linux 6.16 and in later releases of older ones.
    pub const SYS_ADMIN: u32 = 21;
    /// Open the files that are mapped into a process, also deleted ones (`/proc/PID/map_files`).
    pub const CHECKPOINT_RESTORE: u32 = 40;
}

/// What a thread or a process does from now on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Duty {
    /// Any work that starts no program, inspects no memory of others and changes nothing on the machine.
    General,
    /// The same, but it reads files and changes none; it connects to servers but is none.
    Client,
    /// Like [`Duty::General`], and it opens no socket.
    Writing,
    /// The same, but it reads files and changes none; of eBPF it uses only maps that are open.
    Reading,
    /// Like [`Duty::Reading`], and it attaches eBPF programs.
    Attaching,
    /// Like [`Duty::Reading`], but it opens no files: it draws, prints and waits.
    Showing,
    /// Reading an open ring, decoding its packets and writing to open files: only the calls that this needs.
    Decoding,
}

/// Drops all capabilities of the calling thread but these, from every set, and forbids programs that it starts to
/// gain any (`no_new_privs`).
///
/// # Errors
/// The kernel refuses. It is no error if the bounding set cannot be changed: that needs `CAP_SETPCAP`, and with
/// `no_new_privs` the set has no use.
pub fn drop_capabilities(keep: &[u32]) -> io::Result<()> {
    let keep = keep.iter().fold(CapabilitySet::empty(), |set, number| set | one_capability(*number));
    // First of all: nothing after this can be undone then.
    set_no_new_privs(true)?;
    // Linux before 4.3 has no ambient set.
    let _ = clear_ambient_capability_set();
    for capability in (0..64).map(one_capability).filter(|capability| !keep.contains(*capability)) {
        if capability_is_in_bounding_set(capability).is_ok() {
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
    let kept = keep & capabilities(None)?.permitted;
    Ok(set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: NONE })?)
}

const NONE: CapabilitySet = CapabilitySet::empty();

fn one_capability(number: u32) -> CapabilitySet {
    CapabilitySet::from_bits_retain(1 << number)
}

/// Whether the calling thread holds a capability.
pub fn holds(number: u32) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(one_capability(number)))
}

/// Which files a thread may still use.
#[derive(Copy, Clone, Debug)]
pub enum FileAccess<'a> {
    /// It reads files below these folders, and does not use the network.
    Below(&'a [&'a Path]),
    /// It reads files below these folders, creates, writes and removes files below others, and does not use the network.
    Writing(&'a [&'a Path], &'a [&'a Path]),
    /// It reads all files, and uses the network.
    ReadOnly,
}

/// Drops everything but the capabilities `keep`, these files and the system calls of the duty, for the calling thread
/// and those it starts from now on. Tries each step even if another one fails; returns what failed, and why.
pub fn give_up(duty: Duty, files: FileAccess<'_>, keep: &[u32]) -> Vec<(&'static str, io::Error)> {
    let limit = || match files {
        FileAccess::Below(folders) => limit_files(folders, &[]),
        FileAccess::Writing(read, write) => limit_files(read, write),
        FileAccess::ReadOnly => refuse_changes(),
    };
    // The last step may forbid what the others need; the first sets what they need.
    let steps: [(&'static str, &dyn Fn() -> io::Result<()>); 3] = [
        ("capabilities", &|| drop_capabilities(keep)),
        ("files, by Landlock", &limit),
        ("system calls, by seccomp", &|| confine(duty)),
    ];
    steps.into_iter().filter_map(|(what, step)| Some((what, step().err()?))).collect()
}

/// Whether `works` succeeds without any capability. The calling thread has its capabilities again afterwards.
pub fn works_without(works: impl FnOnce() -> bool) -> bool {
    let Ok(CapabilitySets { permitted, .. }) = capabilities(None) else { return true };
    let set = |effective| set_capabilities(None, CapabilitySets { effective, permitted, inheritable: NONE });
    if set(NONE).is_err() {
        return true;
    }
    let worked = works();
    // A thread may make effective what is permitted.
    let _ = set(permitted);
    worked
}

/// Rights to files in Landlock, from `linux/landlock.h`.
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
    pub const READING: u64 = READ_FILE | READ_DIR;

    /// All rights of this version of Landlock.
    pub fn known(version: u32) -> u64 {
        ALL | if version >= 2 { REFER } else { 0 } | if version >= 3 { TRUNCATE } else { 0 }
    }
}

/// The kernel's version of Landlock; `None` if it has none, or it is switched off.
pub fn landlock() -> Option<u32> {
    sys_process::landlock_version().ok()
}

fn landlock_version() -> io::Result<u32> {
    sys_process::landlock_version()
        .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error.to_string()))
}

/// Limits the calling thread, by Landlock, to reading files, anywhere. It may use the network and files that are
/// open.
///
/// # Errors
/// As [`limit_files`].
pub fn refuse_changes() -> io::Result<()> {
    let files = right::known(landlock_version()?) & !right::READING;
    let rules = sys_process::landlock_ruleset(&Ruleset { files, network: 0 }, 8)?;
    sys_process::landlock_restrict(&rules)
}

/// Limits the calling thread, by Landlock, to reading below some folders, and to creating, writing and removing
/// regular files below others. Open files stay usable. TCP is refused too if the kernel can do that.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] if the kernel has no Landlock or it is switched off; else the kernel refuses.
pub fn limit_files(read: &[&Path], write: &[&Path]) -> io::Result<()> {
    let version = landlock_version()?;
    let all = right::known(version);
    let tcp = 0b11;
    let (network, bytes) = if version >= 4 { (tcp, 16) } else { (0, 8) };
    let rules = sys_process::landlock_ruleset(&Ruleset { files: all, network }, bytes)?;
    let reading = right::READING;
    let writing = reading
        | right::WRITE_FILE
        | right::MAKE_REG
        | right::REMOVE_FILE
        | if version >= 3 { right::TRUNCATE } else { 0 };
    for (folders, access) in [(read, reading), (write, writing)] {
        for folder in folders {
            // A missing folder needs no rule.
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
/// The kernel has no seccomp filters or refuses this one.
pub fn confine(duty: Duty) -> io::Result<()> {
    let program = match duty {
        Duty::General => refuse(&[ESCALATION, ATTACHING]),
        Duty::Client => refuse(&[ESCALATION, ATTACHING, SERVING, CHANGES]),
        Duty::Writing => refuse(&[ESCALATION, ATTACHING, SOCKETS]),
        Duty::Reading => refuse(&[ESCALATION, ATTACHING, SOCKETS, CHANGES]),
        Duty::Attaching => refuse(&[ESCALATION, SOCKETS, CHANGES]),
        Duty::Showing => refuse(&[ESCALATION, ATTACHING, SOCKETS, CHANGES, OPENING]),
        Duty::Decoding => allow_only(DECODING),
    };
    sys_process::filter_calls(&program?)
}

/// From `linux/audit.h`.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// A filter that allows these calls if their tests hold, and nothing else.
fn allow_only(calls: &[Call]) -> io::Result<Vec<Instruction>> {
    filter(&[calls], false)
}

/// A filter that refuses these calls unless their tests hold, and allows everything else.
fn refuse(groups: &[&[Call]]) -> io::Result<Vec<Instruction>> {
    filter(groups, true)
}

fn filter(groups: &[&[Call]], others: bool) -> io::Result<Vec<Instruction>> {
    // `struct seccomp_data` of linux/seccomp.h: number, architecture, instruction pointer, six arguments of 64 bits.
    const NUMBER: u32 = 0;
    const ARCH: u32 = 4;
    const ARGUMENTS: u32 = 16;
    let mut program = BpfAssembler::default();
    let (allowed, refused, absent) = (program.label(), program.label(), program.label());
    program.load(Width::Word, ARCH);
    // Calls of another architecture have other numbers.
    program.unless(Condition::Equal, ARCHITECTURE, refused);
    program.load(Width::Word, NUMBER);
    if cfg!(target_arch = "x86_64") {
        // So do those of x32.
        program.when(Condition::GreaterOrEqual, 0x4000_0000, refused);
    }
    // Of several rules about one call the strictest comes last; all must be met.
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
            match test {
                Test::Absent => program.jump(absent),
                test => met_or(&mut program, test, ARGUMENTS, refused),
            }
        }
        program.jump(allowed);
        program.place(next);
    }
    program.jump(if others { allowed } else { refused });
    program.place(allowed);
    program.return_constant(libc::SECCOMP_RET_ALLOW);
    program.place(refused);
    program.return_constant(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    program.place(absent);
    program.return_constant(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
    program.finish().map_err(|error| io::Error::other(format!("the filter cannot be assembled: {error:?}")))
}

/// Continues with the next instruction if the test holds, else at `refused`. The low half of an argument comes first
/// on both architectures.
fn met_or(program: &mut BpfAssembler, test: Test, arguments: u32, refused: JumpLabel) {
    let next = program.label();
    match test {
        Test::Always | Test::Absent => {}
        Test::Among(argument, values) => {
            program.load(Width::Word, arguments + 8 * argument);
            for value in values {
                program.when(Condition::Equal, *value, next);
            }
            program.jump(refused);
        }
        Test::Except(argument, values) => {
            program.load(Width::Word, arguments + 8 * argument);
            for value in values {
                program.when(Condition::Equal, *value, refused);
            }
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

    /// Tries everything, in its own thread after `confined`.
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
            // Results first: a failed assertion would open files.
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
            set_no_new_privs(true).unwrap();
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
        assert_eq!(after(confined_to(Duty::Attaching)), Able { read: true, ..none });
        assert_eq!(after(confined_to(Duty::Client)), Able { read: true, socket: true, ..none });
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

    /// The error of each call, in its own thread after `confined`. The kernel itself refuses all arguments but the
    /// given ones: if the filter lets a call pass, nothing happens.
    fn errors_after(
        confined: impl FnOnce() + Send + 'static,
        calls: &'static [(libc::c_long, [libc::c_long; 2])],
    ) -> Vec<Option<i32>> {
        let tried = thread::spawn(move || {
            confined();
            let errors: Vec<_> =
                calls.iter().map(|(number, arguments)| sys_process::fails(*number, *arguments)).collect();
            let other = thread::spawn(|| 7).join();
            (errors, other.ok())
        });
        let (errors, other) = tried.join().unwrap();
        assert_eq!(other, Some(7), "threads can be started");
        errors
    }

    #[test]
    fn unusual_ways_to_more_privileges_are_closed_too() {
        const NAMESPACE: libc::c_long = (libc::CLONE_NEWUSER | libc::CLONE_FS) as _;
        const CALLS: &[(libc::c_long, [libc::c_long; 2])] = &[
            (libc::SYS_clone, [NAMESPACE, 0]),
            (libc::SYS_clone, [(libc::CLONE_NEWNS | libc::CLONE_FS) as _, 0]),
            (libc::SYS_unshare, [-1, 0]),
            (libc::SYS_setns, [-1, 0]),
            (libc::SYS_ioctl, [-1, libc::TIOCSTI as _]),
            (libc::SYS_ioctl, [-1, libc::TIOCLINUX as _]),
            (libc::SYS_fsconfig, [-1, -1]),
            (467, [-1, -1]),
        ];
        let unconfined = errors_after(|| {}, CALLS);
        assert!(
            unconfined.iter().all(|error| error.is_some_and(|error| error != libc::EPERM)),
            "{unconfined:?}"
        );
        let duties =
            [Duty::General, Duty::Client, Duty::Writing, Duty::Reading, Duty::Attaching, Duty::Showing];
        for duty in duties {
            assert_eq!(errors_after(confined_to(duty), CALLS), [Some(libc::EPERM); 8], "{duty:?}");
        }
        const OTHERS: &[(libc::c_long, [libc::c_long; 2])] = &[
            (libc::SYS_clone3, [0, 0]),
            // CLONE_THREAD needs CLONE_SIGHAND.
            (libc::SYS_clone, [libc::CLONE_THREAD as _, 0]),
            (libc::SYS_ioctl, [-1, libc::TIOCGWINSZ as _]),
        ];
        assert_eq!(
            errors_after(confined_to(Duty::Showing), OTHERS),
            [Some(libc::ENOSYS), Some(libc::EINVAL), Some(libc::EBADF)]
        );
    }

    #[test]
    fn a_thread_that_may_change_no_file_may_change_no_attribute_either() {
        const CALLS: &[(libc::c_long, [libc::c_long; 2])] = &[
            (libc::SYS_utimensat, [-1, 0]),
            (libc::SYS_fchmod, [-1, 0]),
            (libc::SYS_fchown, [-1, 0]),
            (libc::SYS_fsetxattr, [-1, 0]),
            (libc::SYS_removexattr, [0, 0]),
            (libc::SYS_lremovexattr, [0, 0]),
            (libc::SYS_fremovexattr, [-1, 0]),
            // FS_IOC_SETFLAGS and FS_IOC_FSSETXATTR.
            (libc::SYS_ioctl, [-1, 0x4008_6602]),
            (libc::SYS_ioctl, [-1, 0x401c_5820]),
            // fchmodat2, setxattrat, removexattrat, file_setattr
            (452, [-1, 0]),
            (463, [-1, 0]),
            (466, [-1, 0]),
            (469, [-1, 0]),
        ];
        for duty in [Duty::General, Duty::Writing] {
            let errors = errors_after(confined_to(duty), CALLS);
            assert!(errors.iter().all(|error| error.is_some_and(|error| error != libc::EPERM)), "{errors:?}");
        }
        for duty in [Duty::Client, Duty::Reading, Duty::Attaching, Duty::Showing] {
            assert_eq!(errors_after(confined_to(duty), CALLS), [Some(libc::EPERM); 13], "{duty:?}");
        }
    }

    #[test]
    fn only_a_thread_that_attaches_programs_may_open_probes() {
        // A command that does not exist, and attributes that lie nowhere.
        const CALLS: &[(libc::c_long, [libc::c_long; 2])] =
            &[(libc::SYS_bpf, [-1, 0]), (libc::SYS_perf_event_open, [0, -1])];
        let refused = [Some(libc::EPERM); 2];
        for duty in [Duty::General, Duty::Client, Duty::Writing, Duty::Reading, Duty::Showing] {
            assert_eq!(errors_after(confined_to(duty), CALLS), refused, "{duty:?}");
        }
        let unconfined = errors_after(|| {}, CALLS);
        assert_eq!(errors_after(confined_to(Duty::Attaching), CALLS), unconfined);
    }

    #[test]
    fn a_failed_step_does_not_keep_the_others() {
        let able = after(|| {
            set_no_new_privs(true).unwrap();
            sys_process::filter_calls(&refuse(&[&[(libc::SYS_capset, Test::Among(0, &[]))]]).unwrap())
                .unwrap();
            let failed: Vec<_> =
                give_up(Duty::Client, FileAccess::ReadOnly, &[]).into_iter().map(|(what, _)| what).collect();
            let expected = ["capabilities", "files, by Landlock"];
            assert_eq!(failed, expected[..if landlock().is_some() { 1 } else { 2 }]);
        });
        let expected =
            Able { read: true, write: false, socket: true, run: false, trace: false, memory: true };
        assert_eq!(able, expected);
    }

    #[test]
    fn landlock_too_limits_a_reader_to_reading() {
        let folder = std::env::temp_dir().join(format!("sonar-sys-read-only-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("file");
        std::fs::write(&file, "x").unwrap();
        let result = thread::spawn(move || {
            set_no_new_privs(true).unwrap();
            if let Err(error) = refuse_changes() {
                assert_eq!(error.kind(), io::ErrorKind::Unsupported);
                return None;
            }
            Some([
                std::fs::read(&file).is_ok(),
                File::open("/etc/passwd").is_ok(),
                TcpListener::bind("127.0.0.1:0").is_ok(),
                std::fs::write(&file, "y").is_ok(),
                std::fs::remove_file(&file).is_ok(),
                File::create(file.with_extension("new")).is_ok(),
            ])
        })
        .join()
        .unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        match result {
            Some(allowed) => assert_eq!(allowed, [true, true, true, false, false, false]),
            None => println!("skipped: this kernel has no Landlock"),
        }
    }

    #[test]
    fn capabilities_are_gone_from_every_set() {
        let permitted = capabilities(None).unwrap().permitted;
        if !permitted.contains(one_capability(capability::SYS_PTRACE) | one_capability(capability::BPF)) {
            println!("skipped: without root there are no capabilities to drop");
            return;
        }
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
        assert_eq!((set("CapEff:"), set("CapPrm:")), (kept, kept));
        assert_eq!((set("CapInh:"), set("CapAmb:"), set("NoNewPrivs:")), (0, 0, 1));
    }

    #[test]
    fn files_outside_of_the_folders_are_out_of_reach() {
        let folder = std::env::temp_dir().join(format!("sonar-sys-landlock-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let own = folder.clone();
        let result = thread::spawn(move || {
            set_no_new_privs(true).unwrap();
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
