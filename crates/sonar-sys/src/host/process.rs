//! Processes and what `/proc` says about them: program, arguments, open files, limits, memory policy.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, statx};
use sonar_core::disk::KernelBytes;

use super::subordinate;
use super::text::small;
use crate::clock::ticks;

/// The most processes of a search.
pub(super) const MAX_PROCESSES: usize = 1_024;
/// The most bytes of the command line of a process, and of those of all processes of a search together. Any user may start
/// processes, and give them a command line of megabytes.
const MAX_LINE: usize = 64 << 10;
const MAX_LINES: usize = 256 << 10;
/// The most open files to look at of all processes of a search together, but of each at least a few: any of them may have
/// millions.
const MAX_OPEN_FILES: usize = 1 << 19;
const FEW_OPEN_FILES: usize = 1_024;
/// So many bytes of a command line may have one argument, besides a few.
const ARGUMENT_BYTES: usize = 32;
const FEW_ARGUMENTS: usize = 8;
/// The longest name of a program, in bytes (`PATH_MAX`).
const MAX_NAME: usize = 4_096;

/// A running process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its program, one of the names searched for.
    pub name: String,
    /// Read when they are asked for.
    arguments: OnceLock<Vec<String>>,
    share: ProcessShare,
    folder: PathBuf,
    program: Option<ProgramFile>,
    started: Option<u64>,
}

/// How much is read of each process of a search: somebody may have started most of them for us to read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct ProcessShare {
    /// Bytes of its command line.
    line: usize,
    /// Its open files.
    pub(super) files: usize,
}

impl ProcessShare {
    /// That of one among so many processes.
    pub(super) fn among(processes: usize) -> Self {
        let part = |of: usize| of / processes.max(1);
        Self { line: part(MAX_LINES).min(MAX_LINE), files: part(MAX_OPEN_FILES).max(FEW_OPEN_FILES) }
    }
}

/// Which file a program is, by device and inode: as long as it runs, no other file is the same.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ProgramFile {
    device: (u32, u32),
    inode: u64,
}

impl ProgramFile {
    /// The one at this path. Its file system is not asked: whoever runs a program may have made that, too, and not answer.
    fn at(path: impl AsRef<Path>) -> Option<Self> {
        let found = statx(CWD, path.as_ref(), AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok()?;
        Some(Self { device: (found.stx_dev_major, found.stx_dev_minor), inode: found.stx_ino })
    }
}

/// A process with the program that it runs. When it ends, another one may get its number; and it may execute another
/// program, also one with more rights than its user has.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RunningProgram {
    /// The process.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub started: u64,
    /// The program; `None` without permission, or for a thread of the kernel.
    pub program: Option<ProgramFile>,
}

impl RunningProgram {
    /// What a process of this host runs now.
    ///
    /// # Errors
    /// It has ended.
    pub fn now(pid: u32) -> io::Result<Self> {
        let (started, program) = identity(&Path::new("/proc").join(pid.to_string()));
        Ok(Self { pid, started: started.ok_or(io::ErrorKind::NotFound)?, program })
    }

    /// What was taken from the process, if it still runs this program. It is looked at after that was taken.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if it has ended or executes another program.
    pub fn still<T>(&self, taken: T) -> io::Result<T> {
        match Self::now(self.pid)? == *self {
            true => Ok(taken),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// When a process started, and the program that it runs, by its folder in `/proc`; `None` for what cannot be seen.
fn identity(folder: &Path) -> (Option<u64>, Option<ProgramFile>) {
    let stat = fs::read(folder.join("stat")).ok().and_then(|stat| Stat::parse(&stat));
    (stat.map(|stat| stat.started), ProgramFile::at(folder.join("exe")))
}

/// The user who started a process, by its folder in `/proc`; of a subordinate id the user to whom it belongs. `None` if that
/// cannot be read.
pub(super) fn user(folder: &Path) -> Option<u32> {
    let text = small(&folder.join("status"))?;
    let ids = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_ascii_whitespace().next()?.parse().ok().map(subordinate::owner)
}

/// The content of `/proc/PID/stat` (proc_pid_stat(5)).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// `R`, `S`, `D`, `Z` and so on.
    pub state: u8,
    /// Whether its first thread is ending: it may have no files and no root folder any more, and is no zombie yet.
    pub is_ending: bool,
    /// Its number of threads.
    pub threads: u64,
    /// When it started, in clock ticks since boot: distinguishes it from a later process with its number.
    pub started: u64,
    /// Processor time of all its threads, in user and kernel mode. In steps of a clock tick (usually 10 ms).
    pub cpu: Duration,
    /// The same, of user mode and of kernel mode.
    pub cpu_by_mode: [Duration; 2],
    /// Minor and major page faults of all its threads; 0 if the line is cut.
    pub faults: [u64; 2],
    /// Pages in memory; 0 if the line is cut.
    pub resident_pages: u64,
}

impl Stat {
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        // The name, in parentheses, may contain anything.
        let after = text.iter().rposition(|byte| *byte == b')')? + 1;
        let fields: Vec<&str> =
            std::str::from_utf8(text.get(after..)?).ok()?.split_ascii_whitespace().collect();
        // Fields 3 and later follow the name.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            state: *fields.first()?.as_bytes().first()?,
            // PF_EXITING of include/linux/sched.h.
            is_ending: number(9).is_some_and(|flags| flags & 4 != 0),
            threads: number(20)?,
            started: number(22)?,
            cpu: ticks(number(14)?.saturating_add(number(15)?)),
            cpu_by_mode: [ticks(number(14)?), ticks(number(15)?)],
            faults: [number(10).unwrap_or(0), number(12).unwrap_or(0)],
            resident_pages: number(24).unwrap_or(0),
        })
    }

    /// Whether it runs. A zombie does not, unless threads other than the first go on.
    pub fn runs(&self) -> bool {
        !matches!(self.state, b'Z' | b'X') || self.threads > 1
    }
}

/// Reads `/proc/PID/stat`.
pub(super) fn stat(proc_root: &Path, pid: u32) -> Option<Stat> {
    Stat::parse(&fs::read(proc_root.join(pid.to_string()).join("stat")).ok()?)
}

/// What `/proc/PID/io` says of storage.
pub(super) fn counted_bytes(text: &str) -> Option<KernelBytes> {
    let counted = |name| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim().parse().ok()
    };
    Some(KernelBytes { read: counted("read_bytes")?, written: counted("write_bytes")? })
}

/// How many processors a process may run on, of the text of its `status`: its affinity, which its control group (cpuset)
/// may have narrowed. A processor that is not there does not count.
pub(super) fn allowed_processors(status: &str) -> Option<u32> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    list.trim().split(',').try_fold(0_u32, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// Name and soft limit of a line of `/proc/PID/limits`; `None` is unlimited.
pub(super) fn soft_limit(line: &str) -> Option<(&str, Option<u64>)> {
    // The columns are 26, 21, 21 and 10 wide: fs/proc/base.c.
    let (name, rest) = line.split_at_checked(26)?;
    let soft = match rest.split_whitespace().next()? {
        "unlimited" => None,
        number => Some(number.parse().ok()?),
    };
    Some((name.trim(), soft))
}

/// A path without what the kernel appends after an upgrade has replaced the file.
fn undeleted(path: &[u8]) -> String {
    let path = String::from_utf8_lossy(path).into_owned();
    path.strip_suffix(" (deleted)").map(str::to_owned).unwrap_or(path)
}

/// The path of its program, which only the kernel can say; `None` without permission.
fn program(folder: &Path) -> Option<String> {
    Some(undeleted(fs::read_link(folder.join("exe")).ok()?.as_os_str().as_bytes()))
}

/// The path of the program of a process, and which file that is: both of the same program, whatever it executes meanwhile.
fn program_file(folder: &Path) -> Option<(String, Option<ProgramFile>)> {
    // By the kernel's own interface: built with musl, the standard library does not pass on this flag.
    let Ok(file) =
        rustix::fs::open(folder.join("exe"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map(File::from)
    else {
        // A copy has only a link.
        return Some((program(folder)?, None));
    };
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = fs::read_link(&itself).ok()?;
    // A private mount of another user (FUSE) refuses to say which file it is. Its path is known all the same.
    Some((undeleted(path.as_os_str().as_bytes()), ProgramFile::at(itself)))
}

/// The process with its program, if that has one of these names, whatever the process calls itself. `None` for those that
/// run the program of this process: mongosonar is no server, even if its name is changed.
pub(super) fn proven(process: Process, names: &[&str]) -> Option<Process> {
    // A link `mongod` may lead to `mongod-7.0.5`.
    let is_one = |base: &str| {
        let rest = |name: &&str| {
            base.strip_prefix(*name).map(|rest| rest.is_empty() || rest.starts_with(['-', '.', '_']))
        };
        names.iter().filter_map(rest).any(|is_it| is_it)
    };
    let own = ProgramFile::at("/proc/self/exe")?;
    let (path, program) = program_file(&process.folder)?;
    let is_named = path.rsplit('/').next().is_some_and(is_one);
    // A copy has no programs, only links to them.
    let is_known = program.is_some() || !is_live(&process.folder);
    (is_named && is_known && program != Some(own)).then_some(Process { program, ..process })
}

/// Whether a folder is that of a process of this host, not of a copy of another one.
fn is_live(folder: &Path) -> bool {
    folder.starts_with("/proc")
}

/// Whether only the arguments of a process can tell which program it runs. They are read in no other case, because a process
/// can make anyone who reads them wait for ever. A thread of the kernel has neither a program nor arguments.
fn only_arguments_tell(folder: &Path) -> bool {
    match fs::read_link(folder.join("exe")) {
        Ok(_) => false,
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied || !is_live(folder),
    }
}

/// Whether the file of a program has a name and a version: `mongod-7.0.5`.
fn is_version(file: &str, name: &str) -> bool {
    let version = file.strip_prefix(name).and_then(|rest| rest.strip_prefix(['-', '.', '_']));
    version.is_some_and(|version| {
        version.strip_prefix('v').unwrap_or(version).starts_with(|c: char| c.is_ascii_digit())
    })
}

/// The words of a command line, as many as fit into so many bytes; none if it may not be read.
fn words(folder: &Path, most: usize) -> Vec<String> {
    let mut line = Vec::new();
    let opened = File::open(folder.join("cmdline"));
    // One more shows that there is more.
    if opened.and_then(|file| file.take(most as u64 + 1).read_to_end(&mut line)).is_err() {
        return Vec::new();
    }
    if line.len() > most {
        // A part of a path is another path.
        line.truncate(line.iter().rposition(|byte| *byte == 0).unwrap_or(0));
    }
    // The kernel ends it with a zero, a person who writes a copy with a line feed.
    let line = line.strip_suffix(b"\n").unwrap_or(&line);
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let words = words.take(most / ARGUMENT_BYTES + FEW_ARGUMENTS);
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// These processes, each with the same share of what is read.
pub(super) fn with_shares(mut processes: Vec<Process>) -> Vec<Process> {
    let share = ProcessShare::among(processes.len());
    processes.iter_mut().for_each(|process| process.share = share);
    processes
}

/// The process, if its program is one of `names`, also with a version behind its name, and it runs.
pub(super) fn identify(proc_root: &Path, pid: u32, names: &[&str]) -> Option<Process> {
    let folder = proc_root.join(pid.to_string());
    // The short name is cut at 15 bytes, and some servers rename their main thread: one match is enough.
    let seen = program_file(&folder);
    let program = seen.as_ref().map(|(path, _)| path.as_str());
    let short = small(&folder.join("comm"));
    let exact = |candidate: &str| {
        let base = candidate.trim_end().rsplit('/').next()?;
        names.iter().find(|name| **name == base)
    };
    let file = program.and_then(|path| path.rsplit('/').next());
    let version = || names.iter().find(|name| file.is_some_and(|file| is_version(file, name)));
    let is_unseen = || program.is_none() && only_arguments_tell(&folder);
    let first = || is_unseen().then(|| words(&folder, MAX_NAME).into_iter().next()).flatten();
    let named = [program, short.as_deref()].into_iter().flatten().find_map(exact);
    let name = named.or_else(version).or_else(|| exact(&first()?))?;
    // A zombie is still listed. A copy may lack this file.
    let stat = stat(proc_root, pid);
    if stat.is_some_and(|stat| !stat.runs()) {
        return None;
    }
    let program = seen.and_then(|(_, file)| file);
    let started = stat.map(|stat| stat.started);
    let (name, arguments, share) = ((*name).to_owned(), OnceLock::new(), ProcessShare::among(1));
    Some(Process { pid, name, arguments, share, folder, program, started })
}

impl Process {
    /// Its arguments, its own name first; empty where they may not be read. Of a command line that is very long, only those
    /// at its beginning. They are read once, which may take for ever: the process may have mapped a file there whose file
    /// system does not answer.
    pub fn arguments(&self) -> &[String] {
        self.arguments.get_or_init(|| words(&self.folder, self.share.line))
    }

    /// Replaces its arguments.
    pub fn set_arguments(&mut self, arguments: Vec<String>) {
        self.arguments = arguments.into();
    }

    /// How much is read of it.
    pub(super) fn share(&self) -> ProcessShare {
        self.share
    }

    /// Its folder in `/proc`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether its program file is what it is called.
    pub(super) fn is_proven(&self) -> bool {
        proven(self.clone(), &[self.name.as_str()]).is_some()
    }

    /// The user who started it, by number, who has one share for all ids that belong to it (subuid(5)); `None` if that cannot
    /// be read.
    pub fn user(&self) -> Option<u32> {
        user(&self.folder)
    }

    /// The program that it ran when it was found; `None` without permission, and of a copy.
    pub fn program(&self) -> Option<ProgramFile> {
        self.program
    }

    /// Whether it is still the process that was found: no other one has its number, and it has executed no other program.
    pub(super) fn is_unchanged(&self) -> bool {
        identity(&self.folder) == (self.started, self.program)
    }

    /// Value of an option, given as `--name value` or `--name=value`; one of several names.
    pub fn option(&self, names: &[&str]) -> Option<&str> {
        let arguments = self.arguments();
        arguments.iter().enumerate().find_map(|(at, word)| {
            names.iter().find_map(|name| {
                let rest = word.strip_prefix(name)?;
                match rest.strip_prefix('=') {
                    Some(value) => Some(value),
                    None if rest.is_empty() => arguments.get(at + 1).map(String::as_str),
                    None => None,
                }
            })
        })
    }

    /// Its open files, the lowest number first, with the path as the process sees it, or another name of the kernel's
    /// (`socket:[5]`); leaves out those without permission. There may be millions of them: each is looked at when it is
    /// asked for, and only as many as there is time for if other processes have as many.
    pub fn open_files(&self) -> impl Iterator<Item = (u32, PathBuf)> + use<> {
        let entries = fs::read_dir(self.folder.join("fd")).into_iter().flatten().flatten();
        entries.take(self.share.files).filter_map(|entry| {
            Some((entry.file_name().to_str()?.parse().ok()?, fs::read_link(entry.path()).ok()?))
        })
    }

    /// Soft limits by name, as in `/proc/PID/limits`; `None` is unlimited. `None` for all if they cannot be read.
    pub fn limits(&self) -> Option<Vec<(String, Option<u64>)>> {
        let text = small(&self.folder.join("limits"))?;
        let owned = |(name, soft): (&str, Option<u64>)| (name.to_owned(), soft);
        Some(text.lines().skip(1).filter_map(soft_limit).map(owned).collect())
    }

    /// How many processors it may run on; `None` if that cannot be read.
    pub fn allowed_processors(&self) -> Option<u32> {
        allowed_processors(&small(&self.folder.join("status"))?)
    }

    /// Memory in use (resident) in bytes; `None` if that cannot be read.
    pub fn resident(&self) -> Option<u64> {
        let text = small(&self.folder.join("status"))?;
        let rest = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        rest.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1_024)
    }

    /// Whether it can have transparent huge pages: `false` if it has opted out (`PR_SET_THP_DISABLE`); `None` before
    /// Linux 5.0, which does not say so.
    pub fn has_huge_pages(&self) -> Option<bool> {
        let text = small(&self.folder.join("status"))?;
        let value = text.lines().find_map(|line| line.strip_prefix("THP_enabled:"))?;
        Some(value.trim() != "0")
    }

    /// The value of a variable of its environment, as it was when the process started; the outer `None` if that
    /// cannot be read. Nothing else of the environment is kept: it may hold secrets. Reading it may take for ever, as for
    /// [`arguments`](Self::arguments), and while the process executes a program.
    pub fn environment(&self, name: &str) -> Option<Option<String>> {
        let text = small(&self.folder.join("environ"))?;
        let value = text.split('\0').find_map(|one| one.strip_prefix(name)?.strip_prefix('='));
        Some(value.map(str::to_owned))
    }

    /// Whether its memory is spread over all NUMA nodes, by the policy of its mappings in `/proc/PID/numa_maps`;
    /// `None` without permission. Reading it may take for ever, as for [`environment`](Self::environment).
    pub fn is_interleaved(&self) -> Option<bool> {
        let text = small(&self.folder.join("numa_maps"))?;
        let mut policies = text.lines().filter_map(|line| line.split(' ').nth(1)).peekable();
        policies.peek()?;
        Some(policies.any(|policy| policy.starts_with("interleave")))
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use rustix::fs::inotify;
    use rustix::io::Errno;

    use super::super::Host;
    use super::*;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max processes             95143                95143                processes 
Max open files            1024                 1048576              files     
broken
";

    #[test]
    fn arguments_are_read_only_where_nothing_else_tells_what_a_process_runs() {
        let own = Path::new("/proc/self");
        assert!(!only_arguments_tell(own), "its program is known");
        let root = with_lines("arguments", &[("mongod", b"mongod\0--dbpath\0/data\n".to_vec())]);
        let folder = fs::read_dir(&root).unwrap().flatten().next().unwrap().path();
        assert!(only_arguments_tell(&folder), "a copy may lack the link to the program");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_process_that_is_ending_is_known_before_it_is_a_zombie() {
        let stat = |flags| {
            let text = format!("7 (a) b) S 1 7 7 0 -1 {flags} 0 0 0 0 3 4 0 0 20 0 1 0 99 0 5");
            Stat::parse(text.as_bytes()).unwrap()
        };
        assert!(stat(0x0040_0004).is_ending && !stat(0x0040_0100).is_ending);
    }

    #[test]
    fn a_program_is_named_without_being_opened() {
        let copy = std::env::temp_dir().join(format!("sonar-sys-program-{}", std::process::id()));
        fs::copy("/bin/cat", &copy).unwrap();
        let mut child =
            std::process::Command::new(&copy).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let folder = PathBuf::from(format!("/proc/{}", child.id()));
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, &copy, inotify::WatchFlags::OPEN).unwrap();
        let (path, file) = program_file(&folder).unwrap();
        let mut buffer = [MaybeUninit::uninit(); 512];
        let opened = inotify::Reader::new(&watch, &mut buffer).next().map(|event| event.events());
        drop(child.stdin.take());
        child.wait().unwrap();
        fs::remove_file(&copy).unwrap();
        assert_eq!(
            (path.as_str(), file.is_some(), opened),
            (copy.to_str().unwrap(), true, Err(Errno::AGAIN))
        );
    }

    #[test]
    fn a_process_is_found_with_its_arguments_and_limits() {
        let root = std::env::temp_dir().join(format!("sonar-sys-process-{}", std::process::id()));
        for (pid, comm, line) in [
            ("17", "mongod\n", "/usr/bin/mongod\0--dbpath=/data\0--port\x0027017\0"),
            ("18", "bash\n", "bash\0"),
            ("x", "mongod\n", ""),
        ] {
            fs::create_dir_all(root.join(pid)).unwrap();
            fs::write(root.join(pid).join("comm"), comm).unwrap();
            fs::write(root.join(pid).join("cmdline"), line).unwrap();
        }
        fs::write(root.join("17/limits"), LIMITS).unwrap();
        let found = Host::of_proc(&root).processes(&["mongod"]);
        assert_eq!(found.iter().map(|p| p.pid).collect::<Vec<_>>(), [17]);
        let process = &found[0];
        assert_eq!(process.option(&["--dbpath"]), Some("/data"));
        assert_eq!((process.option(&["-p", "--port"]), process.option(&["--db"])), (Some("27017"), None));
        let limits = process.limits().unwrap();
        assert_eq!(limits.len(), 3);
        assert_eq!(
            (limits[0].clone(), limits[2].clone()),
            (("Max cpu time".into(), None), ("Max open files".into(), Some(1_024)))
        );
        assert_eq!(process.is_interleaved(), None);
        fs::write(root.join("17/numa_maps"), "00400000 interleave:0-1 file=/x\n").unwrap();
        assert_eq!(process.is_interleaved(), Some(true));
        fs::write(root.join("17/numa_maps"), "00400000 default file=/x\n").unwrap();
        assert_eq!(process.is_interleaved(), Some(false));
        fs::remove_dir_all(&root).unwrap();
    }

    /// Processes whose numbers begin with 1, with this short name and this command line.
    fn with_lines(name: &str, lines: &[(&str, Vec<u8>)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("sonar-sys-{name}-{}", std::process::id()));
        for (number, (comm, line)) in lines.iter().enumerate() {
            let folder = root.join((number + 1).to_string());
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("comm"), comm).unwrap();
            fs::write(folder.join("cmdline"), line).unwrap();
        }
        root
    }

    #[test]
    fn of_a_long_command_line_the_beginning_is_kept_and_no_part_of_an_argument() {
        let many = [&b"mongod\0--port\x0027018\0"[..], &b"a\0".repeat(150_000)].concat();
        let path = [&b"mongod\0--port=27018\0--dbpath=/"[..], &b"x".repeat(2 * MAX_LINE)].concat();
        let only = b"x".repeat(1 << 20);
        let root =
            with_lines("long", &[("mongod", many.clone()), ("mongod", path), ("mongod", only), ("sh", many)]);
        let host = Host::of_proc(&root);
        for (pid, port) in [(1, Some("27018")), (2, Some("27018")), (3, None)] {
            let process = host.process(pid, &["mongod"]).unwrap();
            assert_eq!((process.option(&["--port"]), process.option(&["--dbpath"])), (port, None));
            assert!(process.arguments().len() <= MAX_LINE / ARGUMENT_BYTES + FEW_ARGUMENTS);
        }
        // It is called so by its first argument.
        assert!(host.process(4, &["mongod"]).is_some_and(|process| process.arguments().len() > 2));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_process_whose_arguments_cannot_be_read_holds_up_no_search() {
        let root = with_lines("hangs", &[("bash", Vec::new()), ("mongod", Vec::new())]);
        for pid in ["1", "2"] {
            // Nobody ever writes to it: whoever opens it waits.
            let line = root.join(pid).join("cmdline");
            fs::remove_file(&line).unwrap();
            assert!(std::process::Command::new("mkfifo").arg(&line).status().unwrap().success());
            std::os::unix::fs::symlink("/usr/bin/python3", root.join(pid).join("exe")).unwrap();
        }
        let host = Host::of_proc(&root);
        let numbers = |found: Vec<Process>| found.into_iter().map(|one| one.pid).collect::<Vec<_>>();
        assert_eq!(numbers(host.processes(&["mongod"])), [2]);
        assert_eq!(numbers(host.processes_running(&["mongod"])), [0; 0]);
        assert!(host.process(1, &["mongod"]).is_none() && host.process(2, &["mongod"]).is_some());
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_copy_of_a_command_line_may_end_with_a_line_feed() {
        let root = with_lines("copy", &[("mongod", b"mongod\0--dbpath\0/data\n".to_vec())]);
        assert_eq!(
            Host::of_proc(&root).process(1, &["mongod"]).unwrap().option(&["--dbpath"]),
            Some("/data")
        );
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn processes_with_long_command_lines_leave_room_for_those_of_others() {
        let hostile = ("mongod", [&b"mongod\0"[..], &b"\xff\0".repeat(500_000)].concat());
        let real = ("mongod", b"mongod\0--dbpath\0/data\0".to_vec());
        let lines: Vec<_> = (0..100).map(|_| hostile.clone()).chain([real]).collect();
        let root = with_lines("share", &lines);
        let found = Host::of_proc(&root).processes(&["mongod"]);
        assert_eq!((found.len(), found[100].option(&["--dbpath"])), (101, Some("/data")));
        let texts = found.iter().flat_map(|process| process.arguments());
        let bytes: usize = texts.map(|text| size_of::<String>() + text.len()).sum();
        assert!(bytes < 1 << 20, "{bytes}");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn open_files_are_looked_at_one_by_one() {
        let own = Host::live();
        let name = fs::read_to_string("/proc/self/comm").unwrap();
        let process = own.process(std::process::id(), &[name.trim_end()]).unwrap();
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let is_it = |(_, path): &(u32, PathBuf)| *path == std::env::current_exe().unwrap();
        assert!(process.open_files().any(|one| is_it(&one)));
        drop(file);
        let numbers: Vec<u32> = process.open_files().map(|(number, _)| number).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
    }

    #[test]
    fn memory_processors_and_environment_of_a_process_are_read() {
        let root = std::env::temp_dir().join(format!("sonar-sys-environment-{}", std::process::id()));
        fs::create_dir_all(root.join("17")).unwrap();
        fs::write(root.join("17/comm"), "mongod\n").unwrap();
        let process = Host::of_proc(&root).processes(&["mongod"]).remove(0);
        assert_eq!(
            (process.resident(), process.allowed_processors(), process.has_huge_pages()),
            (None, None, None)
        );
        assert_eq!(process.environment("GLIBC_TUNABLES"), None);
        let status = "Name:\tmongod\nVmRSS:\t  328692 kB\nTHP_enabled:\t0\nCpus_allowed:\t10f\nCpus_allowed_list:\t0-3,8\n";
        fs::write(root.join("17/status"), status).unwrap();
        fs::write(root.join("17/environ"), "PATH=/bin\0GLIBC_TUNABLES=glibc.pthread.rseq=0\0X=\0").unwrap();
        assert_eq!(process.resident(), Some(328_692 << 10));
        assert_eq!((process.allowed_processors(), process.has_huge_pages()), (Some(5), Some(false)));
        let variable = |name| process.environment(name).unwrap();
        assert_eq!(variable("GLIBC_TUNABLES").as_deref(), Some("glibc.pthread.rseq=0"));
        assert_eq!((variable("X").as_deref(), variable("GLIBC")), (Some(""), None));
        for list in ["", "3-1", "0-4294967295", "a"] {
            assert_eq!(allowed_processors(&format!("Cpus_allowed_list:\t{list}\n")), None, "{list}");
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_running_program_is_found_by_its_file_or_its_short_name() {
        let root = std::env::temp_dir().join(format!("sonar-sys-programs-{}", std::process::id()));
        let process = |pid: u32, program: &str, argument: &str, short: &str, state: &str| {
            let folder = root.join(pid.to_string());
            fs::create_dir_all(&folder).unwrap();
            std::os::unix::fs::symlink(program, folder.join("exe")).unwrap();
            fs::write(folder.join("cmdline"), format!("{argument}\0--fork\0")).unwrap();
            fs::write(folder.join("comm"), format!("{short}\n")).unwrap();
            let rest = "1 77 77 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 100 0 0";
            fs::write(folder.join("stat"), format!("{pid} (a) b ({short})) {state} {rest}")).unwrap();
        };
        process(1, "/usr/bin/mongod (deleted)", "x", "conn-handler", "S");
        process(2, "/usr/bin/busybox", "/opt/mongos", "sh", "R");
        process(3, "/usr/bin/python3", "python3", "mongod", "D");
        process(4, "/usr/bin/mongodump", "mongodump", "mongodump", "S");
        process(5, "/usr/bin/mongod", "mongod", "mongod", "Z");
        process(7, "/opt/mongod-7.0.5", "x", "mongod", "S");
        process(8, "/opt/mongodx", "x", "mongod", "S");
        process(10, "/opt/mongod-7.0.5", "/opt/mongod-7.0.5", "mongod-7.0.5", "S");
        process(11, "/opt/mongod-exporter", "/opt/mongod-exporter", "mongod-exporter", "S");
        process(12, "/usr/bin/python3", "python3", "mongod-7.0.5", "S");
        let host = Host::of_proc(&root);
        let found = host.processes(&["mongod", "mongos"]);
        let names: Vec<_> = found.iter().map(|found| (found.pid, found.name.as_str())).collect();
        assert_eq!(names, [(1, "mongod"), (3, "mongod"), (7, "mongod"), (8, "mongod"), (10, "mongod")]);
        assert_eq!(host.process(1, &["mongod"]).unwrap().arguments(), found[0].arguments());
        let is_one = |pid| host.process(pid, &["mongod", "mongos"]).is_some();
        assert_eq!([1, 2, 5, 9].map(is_one), [true, false, false, false]);
        let proven: Vec<_> =
            host.processes_running(&["mongod", "mongos"]).into_iter().map(|p| p.pid).collect();
        assert_eq!(proven, [1, 7, 10], "what it calls itself does not count");
        // A program of ours under another name.
        let own = root.join("mongod");
        std::os::unix::fs::symlink(std::env::current_exe().unwrap(), &own).unwrap();
        process(6, own.to_str().unwrap(), "mongod", "mongod", "S");
        assert_eq!(host.processes_running(&["mongod"]).len(), 3);
        let stat = host.stat(1).unwrap();
        assert_eq!((stat.state, stat.threads, stat.started, stat.cpu), (b'S', 1, 100, ticks(300)));
        fs::write(root.join("1/stat"), "77 (a").unwrap();
        assert!(host.stat(1).is_none());
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_folder_of_a_command_line_is_found() {
        let of = |line: &str| {
            let arguments = line.split('\0').map(str::to_owned).collect::<Vec<_>>().into();
            let (share, folder) = (ProcessShare::among(1), PathBuf::new());
            let name = "mongod".into();
            let process = Process { pid: 1, name, arguments, share, folder, program: None, started: None };
            process.option(&["--dbpath"]).map(str::to_owned)
        };
        assert_eq!(of("mongod\0--port\x0027017\0--dbpath\0/data"), Some("/data".into()));
        assert_eq!(of("mongod\0--dbpath=/data/db"), Some("/data/db".into()));
        assert_eq!(of("mongod\0--dbpathx\0/data\0-f\0/etc/mongod.conf"), None);
        assert_eq!(of("mongod\0--dbpath"), None);
    }
}
