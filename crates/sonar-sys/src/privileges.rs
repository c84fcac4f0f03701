//! Drops privileges for good, once everything that needs them is open.
//!
//! Each step binds the calling thread and the threads that it starts later. So call it before starting threads; a
//! thread that needs less confines itself further. Nothing can be undone.
//!
//! `calls` lists the system calls that each duty may or may not make.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, RawFd};
use std::path::Path;

use rustix::process::{
    DumpableBehavior, Gid, Uid, dumpable_behavior, getgroups, parent_process_death_signal,
    set_dumpable_behavior, set_parent_process_death_signal,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

mod calls;

use self::calls::{
    ACCEPTING, ATTACHING, ATTRIBUTES, CHANGES, CONNECTING, Call, DECODING, ESCALATION, LISTENING, MESSAGES,
    NEW_FILES, OPENING, SENDING_PACKETS, SHARED_MAPPINGS, SOCKETS, Test,
};
use crate::classic_bpf::{Arithmetic, BpfAssembler, Condition, Instruction, JumpLabel, Operand, Width};
use crate::sys_process::{self, Ruleset};

/// Numbers of capabilities, from `linux/capability.h`.
pub mod capability {
    /// Read files and search folders whatever their permissions.
    pub const DAC_READ_SEARCH: u32 = 2;
    /// Write files and create files in folders whatever their permissions.
    pub const DAC_OVERRIDE: u32 = 1;
    /// Become another group.
    pub const SETGID: u32 = 6;
    /// Become another user.
    pub const SETUID: u32 = 7;
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
    /// It reads files and changes none; it connects to servers but is none.
    Client,
    /// It lists the interfaces of this host and opens sockets for packets, and connects to nobody.
    Capturing,
    /// It takes connections at a socket that listens, and answers; it opens no socket. It reads files and changes none.
    Serving,
    /// It reads, writes, creates and removes files, changes no attributes of them, and opens no socket.
    Writing,
    /// Like [`Duty::Writing`], and it passes no descriptors on.
    Storing,
    /// It reads files and changes none, and opens no socket; of eBPF it uses only maps that are open.
    Reading,
    /// Like [`Duty::Reading`], and it passes no descriptors on.
    Observing,
    /// Like [`Duty::Reading`], and it attaches eBPF programs.
    Attaching,
    /// Like [`Duty::Attaching`], and it passes no descriptors on.
    Retrying,
    /// Like [`Duty::Reading`], but it opens no files: it draws, prints and waits.
    Showing,
    /// Reading an open ring, decoding its packets and writing to open files: only the calls that this needs.
    Decoding,
}

impl Duty {
    /// Whether a thread with this duty needs no files that belong to root. The others write files by name, or use what is
    /// meant for the user that started the program.
    pub fn leaves_root(self) -> bool {
        match self {
            Self::Client | Self::Writing | Self::Storing => false,
            Self::Capturing
            | Self::Serving
            | Self::Reading
            | Self::Observing
            | Self::Attaching
            | Self::Retrying
            | Self::Showing
            | Self::Decoding => true,
        }
    }
}

/// The user and the group without rights of their own, `nobody` and `nogroup`: the kernel has these numbers for it too
/// (`/proc/sys/kernel/overflowuid`).
const NOBODY: u32 = 65_534;

/// What the calling thread, which is root, lacks to become `nobody`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RootObstacle {
    /// This capability.
    Capability(&'static str),
    /// The user or the group in its user namespace.
    Nobody,
}

impl std::fmt::Display for RootObstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Capability(name) => write!(f, "{name} is missing"),
            Self::Nobody => f.write_str("its user namespace has no nobody"),
        }
    }
}

/// What the calling thread, which is root, lacks to become `nobody`; `None` if it has what that takes, or is not root. Some
/// containers lack it: then the thread stays root, and is restricted otherwise.
pub fn missing_to_leave_root() -> Option<RootObstacle> {
    let permitted = capabilities(None).map(|sets| sets.permitted).unwrap_or(NONE);
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let needed = [(capability::SETUID, "CAP_SETUID"), (capability::SETGID, "CAP_SETGID")];
    let missing = needed.into_iter().find(|(number, _)| !permitted.contains(one_capability(*number)));
    // Where `/proc` cannot be read, the kernel has the last word.
    let has_nobody = |map: &str| std::fs::read_to_string(map).map_or(true, |map| has_id(&map, NOBODY));
    let is_known = || ["/proc/self/uid_map", "/proc/self/gid_map"].into_iter().all(has_nobody);
    let capability = missing.map(|(_, name)| RootObstacle::Capability(name));
    capability.or_else(|| (!is_known()).then_some(RootObstacle::Nobody))
}

/// Whether a user namespace has an id, by its map: the first id inside, the first one outside, and how many, in each line
/// (user_namespaces(7)).
fn has_id(map: &str, id: u32) -> bool {
    let number = |word: Option<&str>| word?.parse::<u64>().ok();
    map.lines().any(|line| {
        let mut words = line.split_ascii_whitespace();
        let (first, _, count) = (number(words.next()), words.next(), number(words.next()));
        first
            .zip(count)
            .is_some_and(|(first, count)| (first..first.saturating_add(count)).contains(&id.into()))
    })
}

/// If the calling thread is root, makes it `nobody`, in no group of root, and leaves it its capabilities, of which it will
/// `keep` some. The threads that it starts later are `nobody` too. What is open stays usable. Call it before
/// [`drop_capabilities`]: a thread that has no capability any more stays what it is.
///
/// # Errors
/// It lacks `CAP_SETUID` or `CAP_SETGID`, or its user namespace has no `nobody`. Or it is to keep
/// [`capability::DAC_READ_SEARCH`] and does not have it: as root it can read root's files, which `nobody` could not.
pub fn leave_root(keep: &[u32]) -> io::Result<()> {
    let permitted = capabilities(None)?.permitted;
    if !rustix::process::geteuid().is_root() || permitted.is_empty() {
        return Ok(());
    }
    let reads = keep.contains(&capability::DAC_READ_SEARCH);
    let cannot_read = reads && !permitted.contains(one_capability(capability::DAC_READ_SEARCH));
    let cannot_read = cannot_read.then_some(RootObstacle::Capability("CAP_DAC_READ_SEARCH"));
    if let Some(missing) = missing_to_leave_root().or(cannot_read) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, missing.to_string()));
    }
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    // The kernel forgets it with the user.
    let signal = parent_process_death_signal()?;
    set_keep_capabilities(true)?;
    let left = set_thread_groups(&[])
        .and_then(|()| set_thread_res_gid(group, group, group))
        .and_then(|()| set_thread_res_uid(user, user, user));
    set_keep_capabilities(false)?;
    left?;
    let permitted = capabilities(None)?.permitted;
    set_capabilities(None, CapabilitySets { effective: permitted, permitted, inheritable: NONE })?;
    Ok(set_parent_process_death_signal(signal)?)
}

/// Whether `works` succeeds as `nobody` with these capabilities alone, in no group of root: some file systems give `nobody`
/// nothing, whatever its capabilities (a FUSE mount of root, NFS). The calling thread is what it was again afterwards; one
/// that is not root stays what it is for that.
pub fn works_as_nobody(keep: &[u32], works: impl FnOnce() -> bool) -> bool {
    if !rustix::process::geteuid().is_root() {
        return works();
    }
    let Ok(CapabilitySets { permitted, .. }) = capabilities(None) else { return false };
    let (Ok(groups), Ok(signal), Ok(dumpable)) =
        (getgroups(), parent_process_death_signal(), dumpable_behavior())
    else {
        return false;
    };
    if missing_to_leave_root().is_some() {
        return false;
    }
    let (real, group) = (rustix::process::getgid(), rustix::process::getegid());
    let effective = keep.iter().fold(NONE, |set, number| set | one_capability(*number)) & permitted;
    let set = |effective| set_capabilities(None, CapabilitySets { effective, permitted, inheritable: NONE });
    // The real and the saved user stay root, so that it can go back.
    let lowered = set_thread_groups(&[])
        .and_then(|()| set_thread_res_gid(real, Gid::from_raw(NOBODY), group))
        .and_then(|()| set_thread_res_uid(Uid::ROOT, Uid::from_raw(NOBODY), Uid::ROOT))
        .and_then(|()| set(effective));
    let worked = lowered.is_ok() && works();
    // Groups take a capability, which comes back first.
    let back = set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)
        .and_then(|()| set(permitted))
        .and_then(|()| set_thread_res_gid(real, group, group))
        .and_then(|()| set_thread_groups(&groups))
        // The kernel forgets both with the user.
        .and_then(|()| set_parent_process_death_signal(signal));
    if dumpable == DumpableBehavior::Dumpable {
        let _ = set_dumpable_behavior(dumpable);
    }
    worked && back.is_ok()
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
/// and those it starts from now on. If the duty needs nothing of root, it leaves that user too. Tries each step even if
/// another one fails; returns what failed, and why.
pub fn drop_privileges(duty: Duty, files: FileAccess<'_>, keep: &[u32]) -> Vec<(&'static str, io::Error)> {
    let limit = || match files {
        FileAccess::Below(folders) => limit_files(folders, &[]),
        FileAccess::Writing(read, write) => limit_files(read, write),
        FileAccess::ReadOnly => refuse_changes(true),
    };
    // The last step may forbid what the others need; the first sets what they need.
    let steps: [(&'static str, &dyn Fn() -> io::Result<()>); 4] = [
        ("user id 0", &|| if duty.leaves_root() { leave_root(keep) } else { Ok(()) }),
        ("capabilities", &|| drop_capabilities(keep)),
        ("files, by Landlock", &limit),
        ("system calls, by seccomp", &|| confine(duty)),
    ];
    steps.into_iter().filter_map(|(what, step)| Some((what, step().err()?))).collect()
}

/// Gives the calling thread, and those that it starts from now on, a table of descriptors of their own, with standard input,
/// output and error. They cannot use, or pass on, what the other threads have open: rings above all. Handlers of signals
/// run in other threads from now on. Call it before the thread opens anything, and give it nothing that is open.
///
/// # Errors
/// The kernel refuses.
pub fn leave_descriptors() -> io::Result<InheritedFiles> {
    // Handlers write to descriptors of the other table.
    sys_process::block_signals();
    sys_process::copy_descriptors()?;
    Ok(InheritedFiles(sys_process::close_all_but_files()))
}

/// Files and folders that a thread has inherited with a copy of a table. Dropping this closes them, which may wait for their
/// file systems.
#[derive(Debug)]
pub struct InheritedFiles(Vec<RawFd>);

impl InheritedFiles {
    /// Closes those that can be written to.
    pub fn close_written(&mut self) {
        self.0
            .extract_if(.., |descriptor| sys_process::is_writable(*descriptor))
            .for_each(sys_process::close);
    }
}

impl Drop for InheritedFiles {
    fn drop(&mut self) {
        self.0.drain(..).for_each(sys_process::close);
    }
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
    pub const REMOVE_DIR: u64 = 1 << 4;
    pub const REMOVE_FILE: u64 = 1 << 5;
    pub const MAKE_REG: u64 = 1 << 8;
    /// All of version 1; version 2 adds `REFER`, version 3 `TRUNCATE`, version 5 `IOCTL_DEV`.
    pub const ALL: u64 = (1 << 13) - 1;
    pub const REFER: u64 = 1 << 13;
    pub const TRUNCATE: u64 = 1 << 14;
    pub const IOCTL_DEV: u64 = 1 << 15;
    pub const READING: u64 = READ_FILE | READ_DIR;

    /// All rights of this version of Landlock.
    pub fn known(version: u32) -> u64 {
        let since = |first: u32, right: u64| if version >= first { right } else { 0 };
        ALL | since(2, REFER) | since(3, TRUNCATE) | since(5, IOCTL_DEV)
    }
}

/// The scopes of a set of rules, and the length of the structure with them; `None` if this version has none. The abstract
/// sockets of other processes are out of reach then, and their signals if `signals` says so.
fn scopes(version: u32, signals: bool) -> Option<(u64, usize)> {
    const ABSTRACT_SOCKETS: u64 = 1;
    const SIGNALS: u64 = 2;
    (version >= 6).then_some((ABSTRACT_SOCKETS | if signals { SIGNALS } else { 0 }, 24))
}

/// The kernel's version of Landlock; `None` if it has none, or it is switched off.
pub fn landlock() -> Option<u32> {
    sys_process::landlock_version().ok()
}

fn landlock_version() -> io::Result<u32> {
    sys_process::landlock_version()
        .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error.to_string()))
}

/// Limits the calling thread, by Landlock, to reading files, anywhere. It may use the network and files that are open, and
/// send requests (`ioctl`) to no other device than its terminal. If the kernel can do that, it reaches no abstract socket of
/// another process, and, if `signals` says so, sends no signal to one: Ctrl-Z could not stop the whole process group then.
///
/// # Errors
/// As [`limit_files`].
pub fn refuse_changes(signals: bool) -> io::Result<()> {
    let version = landlock_version()?;
    let files = right::known(version) & !right::READING;
    let (scoped, bytes) = scopes(version, signals).unwrap_or((0, 8));
    let rules = sys_process::landlock_ruleset(&Ruleset { files, network: 0, scoped }, bytes)?;
    // Who draws opens it again, and asks for its size.
    if let (5.., Ok(terminal)) = (version, File::open("/dev/tty")) {
        sys_process::landlock_allow(&rules, terminal.as_fd(), right::IOCTL_DEV)?;
    }
    sys_process::landlock_restrict(&rules)
}

/// Limits the calling thread, by Landlock, to reading below some folders, and to creating, writing and removing
/// regular files below others. Open files stay usable. TCP is refused too if the kernel can do that.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] if the kernel has no Landlock or it is switched off; else the kernel refuses.
pub fn limit_files(read: &[&Path], write: &[&Path]) -> io::Result<()> {
    let version = landlock_version()?;
    let reading = right::READING;
    let writing = reading
        | right::WRITE_FILE
        | right::MAKE_REG
        | right::REMOVE_FILE
        | if version >= 3 { right::TRUNCATE } else { 0 };
    limit(version, &[(read, reading), (write, writing)], !write.is_empty())
}

/// Limits the calling thread, by Landlock, to listing and removing what is below a folder.
///
/// # Errors
/// As [`limit_files`].
pub fn limit_to_removing(folder: &Path) -> io::Result<()> {
    let removing = right::READ_DIR | right::REMOVE_FILE | right::REMOVE_DIR;
    limit(landlock_version()?, &[(&[folder], removing)], true)
}

/// Limits the calling thread to these rights below these folders, and to no TCP; `signals` as for [`refuse_changes`].
fn limit(version: u32, rights: &[(&[&Path], u64)], signals: bool) -> io::Result<()> {
    let tcp = 0b11;
    let (network, bytes) = if version >= 4 { (tcp, 16) } else { (0, 8) };
    // Ctrl-Z stops the whole process group, which only the agent, without a terminal, need not do.
    let (scoped, bytes) = scopes(version, signals).unwrap_or((0, bytes));
    let rules =
        sys_process::landlock_ruleset(&Ruleset { files: right::known(version), network, scoped }, bytes)?;
    for (folders, access) in rights {
        for folder in *folders {
            // A missing folder needs no rule.
            if let Ok(folder) = File::open(folder) {
                sys_process::landlock_allow(&rules, folder.as_fd(), *access)?;
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
    let refused: &[&[Call]] = match duty {
        Duty::Decoding => return sys_process::filter_calls(&allow_only(DECODING)?),
        Duty::Client => &[ATTACHING, ACCEPTING, CHANGES, SENDING_PACKETS, SHARED_MAPPINGS],
        Duty::Capturing => &[ATTACHING, ACCEPTING, CONNECTING, CHANGES],
        Duty::Serving => &[ATTACHING, SOCKETS, MESSAGES, CHANGES],
        Duty::Writing => &[ATTACHING, SOCKETS, ACCEPTING, NEW_FILES, SENDING_PACKETS],
        Duty::Storing => &[ATTACHING, SOCKETS, ACCEPTING, MESSAGES, NEW_FILES, SENDING_PACKETS],
        Duty::Reading => &[ATTACHING, SOCKETS, ACCEPTING, CHANGES, SENDING_PACKETS],
        Duty::Observing => &[ATTACHING, SOCKETS, ACCEPTING, MESSAGES, CHANGES, SENDING_PACKETS],
        Duty::Attaching => &[SOCKETS, ACCEPTING, CHANGES, SENDING_PACKETS],
        Duty::Retrying => &[SOCKETS, ACCEPTING, MESSAGES, CHANGES, SENDING_PACKETS],
        Duty::Showing => &[ATTACHING, SOCKETS, ACCEPTING, MESSAGES, CHANGES, OPENING, SENDING_PACKETS],
    };
    let by_all: &[&[Call]] = &[ESCALATION, LISTENING, ATTRIBUTES];
    sys_process::filter_calls(&refuse(&[by_all, refused].concat())?)
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
        Test::With(argument, bits) => {
            program.load(Width::Word, arguments + 8 * argument);
            program.unless(Condition::AnyBit, bits, refused);
        }
        Test::OfType(argument, types) => {
            program.load(Width::Word, arguments + 8 * argument);
            program.arithmetic(Arithmetic::And, Operand::Constant(0xff00));
            for kind in types {
                program.when(Condition::Equal, u32::from(*kind) << 8, next);
            }
            program.jump(refused);
        }
        Test::Null(argument) => {
            for half in [0, 4] {
                program.load(Width::Word, arguments + 8 * argument + half);
                program.unless(Condition::Equal, 0, refused);
            }
        }
        Test::OwnProcess(argument) => {
            program.load(Width::Word, arguments + 8 * argument);
            program.unless(Condition::Equal, std::process::id(), refused);
        }
        Test::OwnProcessOrZero(argument) => {
            program.load(Width::Word, arguments + 8 * argument);
            program.when(Condition::Equal, 0, next);
            program.unless(Condition::Equal, std::process::id(), refused);
        }
        Test::OwnSignal => {
            program.load(Width::Word, arguments);
            program.when(Condition::Equal, std::process::id(), next);
            program.unless(Condition::Equal, 0, refused);
            program.load(Width::Word, arguments + 8);
            program.unless(Condition::Equal, libc::SIGTSTP as u32, refused);
        }
    }
    program.place(next);
}

#[cfg(test)]
mod tests;
