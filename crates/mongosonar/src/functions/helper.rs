//! The helper process that samples threads and opens the files that are mapped into them.
//!
//! Stacks and files come from another program and are read without privileges. So the helper keeps them, understands
//! none of those bytes, and answers four questions: a snapshot, the mappings, a mapped file, a file of symbols. It opens
//! only what [`super::mapped`] allows.
//! For servers that start later, a helper without snapshots answers the other three. It also decides which servers are
//! traced: see [`super::following`].

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use sonar_decode::stacks::Mapping;
use sonar_sys::Host;
use sonar_sys::helper::{InheritedDescriptors, PATIENCE};
use sonar_sys::host::process::RunningProgram;
use sonar_sys::privileges::{Duty, works_without};
use sonar_sys::questions::{FileCloser, HelperAnswer, answer_all};
use sonar_sys::split::SplitTracer;
use sonar_sys::stacks::StackSampler;

use super::following::{self, FollowedServers};
use super::mapped;
use crate::args::values::PortRange;
use crate::confinement::helper_capabilities::{FOLLOWING_STARTS, FOLLOWING_STARTS_BY_MAPS, SAMPLING};
use crate::confinement::helper_channel::{HelperChannel, array};
use crate::confinement::privileges::{self, HelperTask};
use crate::locking::lock;
use crate::servers;

const SNAPSHOT: u8 = b'S';
const MAPS: u8 = b'M';
const MAPPED_FILE: u8 = b'F';
const SYMBOL_FILE: u8 = b'D';
/// To the helper for servers that start later: a socket for the questions about one of them, and which are traced.
const SERVER: u8 = b'O';
const FOLLOW: u8 = b'W';
/// The first question: whether it can sample.
const READY: u8 = b'R';
/// The longest answer, in bytes. A snapshot has up to 128 MiB of stacks, and twice a ring of up to 64 MiB.
const MAX_ANSWER: usize = 320 << 20;
/// The longest answer of a helper without snapshots, in bytes: the mappings of a process, of which one with ten
/// thousand threads has two megabytes.
const MAX_MAPS: usize = 5 << 20;
/// The last byte of an answer of bytes: it is one, or it is why there is none.
const DONE: u8 = 1;
const FAILED: u8 = 0;

/// The stack of a thread that answers for one server.
const STACK_BYTES: usize = 96 << 10;
/// The most threads that answer for servers that start later, among them those that wait for files of servers for which
/// nobody asks any more.
const MAX_LATER: usize = 64;
/// The most of them that wait for files of servers of one user: those of others need threads, too.
const MAX_WAITING_OF_USER: usize = 12;
/// How long a thread may take for a question before it counts as one that waits.
const LATE: Duration = PATIENCE;

/// Where stacks and files of a process come from.
pub struct StackSource {
    channel: HelperChannel,
    /// Which threads a snapshot has.
    snapshots: Snapshots,
}

/// Which threads have a stack in a snapshot.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Snapshots {
    /// There are no snapshots.
    None,
    /// Those that wait.
    Waiting,
    /// All.
    All,
}

/// The helper for servers that start later, which also decides which servers are traced.
pub struct LaterSources {
    channel: HelperChannel,
}

impl LaterSources {
    /// Starts the helper, which gets the maps that decide what is traced: servers that listen on these ports, or all if
    /// there are none. `None` if that fails, which it reports. Call it before starting any thread.
    pub fn start(tracer: &SplitTracer, ports: &[PortRange]) -> Option<Self> {
        let what = "following servers that start later";
        let keep =
            if works_without(|| tracer.is_readable()) { FOLLOWING_STARTS } else { FOLLOWING_STARTS_BY_MAPS };
        // Not Landlock: it forbids inspecting processes that are not confined in the same way.
        let memory = privileges::FUNCTIONS_HELPER_BYTES;
        let task = HelperTask { name: "sonar-functions", what, memory, keep, duty: Duty::Reading };
        let serve = |socket| serve_later(tracer, ports, socket);
        let helper = task.start_with(&InheritedDescriptors::These(&tracer.controls()), serve)?;
        Some(Self { channel: HelperChannel::to(helper).ok()?.with_max_answer(MAX_MAPS) })
    }

    /// The source for a mongod or mongos. It has no snapshots.
    ///
    /// # Errors
    /// It has ended, or is another program; or the helper has ended or stands still.
    pub fn source(&mut self, process: u32) -> Result<StackSource> {
        let question = [&[SERVER], &process.to_ne_bytes()[..]].concat();
        let mut answer = self.channel.ask_bytes(&question)?;
        let refused = || anyhow!("{}", String::from_utf8_lossy(&answer.bytes));
        let socket = answer.files.pop().ok_or_else(refused)?;
        let socket = UnixStream::from(OwnedFd::from(socket));
        socket.set_write_timeout(Some(PATIENCE))?;
        let channel = HelperChannel::over(socket).with_max_answer(MAX_MAPS);
        Ok(StackSource { channel, snapshots: Snapshots::None })
    }

    /// Traces, of these processes, those that are traced already and those that are a mongod or mongos, and no others.
    ///
    /// # Errors
    /// The helper has ended or stands still.
    pub fn follow(&mut self, processes: &[u32]) -> Result<FollowedServers> {
        let answer = self.channel.ask_bytes(&following::question(FOLLOW, processes))?;
        ensure!(answer.files.is_empty(), "the helper process answers wrongly");
        FollowedServers::from_bytes(&answer.bytes)
            .ok_or_else(|| anyhow!("the helper process answers wrongly"))
    }
}

impl StackSource {
    /// Starts the helper for a process. Once that has ended or executes another program, there is nothing to see of it.
    /// Call this before starting any thread.
    ///
    /// # Errors
    /// What the helper needs is missing.
    pub fn start(process: RunningProgram) -> Result<Self> {
        let helper = privileges::start_helper("sonar-stacks", &InheritedDescriptors::Nothing, |socket| {
            // It ends when the other side does.
            let _ = serve(process, socket);
        })
        .context("cannot start a helper process")?;
        let channel = HelperChannel::to(helper)?.with_max_answer(MAX_ANSWER);
        let mut source = Self { channel, snapshots: Snapshots::None };
        let ready = source.ask(&[READY])?;
        source.snapshots = if ready == [1] { Snapshots::All } else { Snapshots::Waiting };
        Ok(source)
    }

    /// Asks for bytes.
    fn ask(&mut self, question: &[u8]) -> Result<Vec<u8>> {
        let mut bytes = self.channel.ask_bytes(question)?.bytes;
        match bytes.pop() {
            Some(DONE) => Ok(bytes),
            _ => bail!("{}", String::from_utf8_lossy(&bytes)),
        }
    }

    /// Whether there are snapshots.
    pub fn has_snapshots(&self) -> bool {
        self.snapshots != Snapshots::None
    }

    /// Whether threads that run on a processor have a stack.
    pub fn samples_processors(&self) -> bool {
        self.snapshots == Snapshots::All
    }

    /// Looks at all threads once; returns bytes for [`sonar_sys::stacks::parse`].
    ///
    /// # Errors
    /// The helper's.
    pub fn snapshot(&mut self) -> Result<Vec<u8>> {
        self.ask(&[SNAPSHOT])
    }

    /// The mappings of the process, as `/proc/PID/maps` has them.
    ///
    /// # Errors
    /// The process has ended.
    pub fn maps(&mut self) -> Result<String> {
        let maps = self.ask(&[MAPS])?;
        Ok(String::from_utf8_lossy(&maps).into_owned())
    }

    /// Opens the file of a mapping, also one that was deleted; `None` if that is not possible.
    ///
    /// # Errors
    /// The helper has ended, or does not answer now.
    pub fn mapped_file(&mut self, mapping: &Mapping) -> Result<Option<File>> {
        Ok(self.channel.ask_bytes(&about(MAPPED_FILE, mapping))?.files.pop())
    }

    /// Opens the file with the symbols of a mapped program, by its build id or by the name in the program; `None` if
    /// there is none.
    ///
    /// # Errors
    /// The helper has ended, or does not answer now.
    pub fn symbol_file(&mut self, mapping: &Mapping, build_id: &[u8], name: &str) -> Result<Option<File>> {
        let mut question = about(SYMBOL_FILE, mapping);
        for text in [build_id, name.as_bytes()] {
            // Longer ones do not exist.
            let length = u8::try_from(text.len()).unwrap_or(0);
            question.push(length);
            question.extend_from_slice(&text[..usize::from(length)]);
        }
        Ok(self.channel.ask_bytes(&question)?.files.pop())
    }

    /// Whether the helper has ended, so that nothing more can be read.
    pub fn has_ended(&self) -> bool {
        self.channel.is_closed()
    }

    /// Whether the helper stands still, so that nothing can be read now.
    pub fn is_late(&self) -> bool {
        self.channel.is_late()
    }
}

/// A question about a mapping, which it names by its addresses.
fn about(question: u8, mapping: &Mapping) -> Vec<u8> {
    let mut bytes = vec![question];
    bytes.extend(mapping.range.start.to_ne_bytes());
    bytes.extend(mapping.range.end.to_ne_bytes());
    bytes
}

fn read_range(question: &mut &[u8]) -> io::Result<Range<u64>> {
    Ok(u64::from_ne_bytes(array(question)?)..u64::from_ne_bytes(array(question)?))
}

fn read_text(question: &mut &[u8]) -> io::Result<Vec<u8>> {
    let [length] = array(question)?;
    let mut text = vec![0; usize::from(length)];
    question.read_exact(&mut text)?;
    Ok(text)
}

/// An answer of bytes, or why there are none. The last byte says which.
fn of_bytes(bytes: Result<Vec<u8>, String>) -> HelperAnswer {
    let (mut bytes, end) = match bytes {
        Ok(bytes) if bytes.len() >= MAX_ANSWER => (b"there is too much to read".to_vec(), FAILED),
        Ok(bytes) => (bytes, DONE),
        Err(why) => (why.into_bytes(), FAILED),
    };
    bytes.push(end);
    HelperAnswer { bytes, ..HelperAnswer::default() }
}

/// An answer of a file, or none.
fn of_file(file: Option<File>) -> HelperAnswer {
    HelperAnswer { files: file.into_iter().collect(), ..HelperAnswer::default() }
}

/// In the helper for servers that start later: makes a socket for each, and answers there in a thread of its own; and
/// traces servers.
fn serve_later(tracer: &SplitTracer, ports: &[PortRange], socket: UnixStream) -> io::Result<()> {
    let mut threads = LaterThreads::default();
    answer_all(socket, |mut question| match array(&mut question)? {
        [SERVER] => Ok(match serve_server(u32::from_ne_bytes(array(&mut question)?), &mut threads) {
            Ok(socket) => of_file(Some(socket)),
            Err(why) => HelperAnswer { bytes: why.into_bytes(), ..HelperAnswer::default() },
        }),
        [FOLLOW] => {
            let bytes = following::answer(tracer, ports, question);
            Ok(HelperAnswer { bytes, ..HelperAnswer::default() })
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    })
}

/// Starts to answer for a server; returns the other end of its socket, or why not.
fn serve_server(process: u32, threads: &mut LaterThreads) -> Result<File, String> {
    let host = Host::live();
    // The program that is proven to be one of a server is this one, or it is no longer this one.
    let server = RunningProgram::now(process).ok().filter(|_| servers::is_proven(&host, process));
    let server = server.ok_or("the helper process refuses to read it")?;
    let place = threads.place(host.user(process), Instant::now())?;
    answer_later(server, place).map_err(|error| format!("no thread can be started for it: {error}"))
}

/// Since when a thread answers its question; `None` between two of them. Whoever has it keeps the place of the thread.
type ThreadPlace = Arc<Mutex<Option<Instant>>>;

/// The threads that answer for servers that start later.
#[derive(Default)]
struct LaterThreads(Vec<LaterThread>);

/// One of them.
struct LaterThread {
    /// The user of the server.
    user: Option<u32>,
    place: Weak<Mutex<Option<Instant>>>,
}

impl LaterThreads {
    /// A place for one more, for a server of this user, or why there is none. Whoever asks counts how often.
    fn place(&mut self, user: Option<u32>, now: Instant) -> Result<ThreadPlace, String> {
        self.0.retain(|thread| thread.place.strong_count() > 0);
        let waits = |thread: &&LaterThread| {
            let since = thread.place.upgrade().and_then(|place| *lock(&place));
            since.is_some_and(|since| now.saturating_duration_since(since) >= LATE)
        };
        let of_user = self.0.iter().filter(|thread| thread.user == user);
        if of_user.filter(waits).count() >= MAX_WAITING_OF_USER {
            return Err(format!("the files of {MAX_WAITING_OF_USER} servers of its user do not answer"));
        }
        if self.0.len() >= MAX_LATER {
            return Err(format!("functions of {MAX_LATER} servers are read already"));
        }
        let place = ThreadPlace::default();
        self.0.push(LaterThread { user, place: Arc::downgrade(&place) });
        Ok(place)
    }
}

/// Answers a question in a thread that has this place, and says there how long that takes: until the files are closed.
fn answer_in_place(
    place: &ThreadPlace,
    answer: impl FnOnce() -> io::Result<HelperAnswer>,
) -> io::Result<HelperAnswer> {
    *lock(place) = Some(Instant::now());
    let mut answered = answer();
    match &mut answered {
        Ok(answer) if !answer.files.is_empty() => {
            let place = place.clone();
            answer.closer = FileCloser::new(move |files| {
                drop(files);
                *lock(&place) = None;
            });
        }
        _ => *lock(place) = None,
    }
    answered
}

/// Starts the thread that answers for a process; returns the other end of its socket.
fn answer_later(process: RunningProgram, place: ThreadPlace) -> io::Result<File> {
    let (theirs, ours) = UnixStream::pair()?;
    std::thread::Builder::new().name("sonar-functions".to_owned()).stack_size(STACK_BYTES).spawn(
        move || {
            // It ends when the other side does.
            let _ = answer_all(ours, |question| answer_in_place(&place, || answer(process, None, question)));
        },
    )?;
    Ok(File::from(OwnedFd::from(theirs)))
}

/// In the helper: loads the programs, drops what it needs no more, and answers each question.
fn serve(process: RunningProgram, socket: UnixStream) -> io::Result<()> {
    let sampler = StackSampler::start(process).map_err(exit_message).and_then(|sampler| {
        // Not Landlock: it forbids inspecting processes that are not confined in the same way.
        let memory = privileges::STACKS_HELPER_BYTES;
        let confined = privileges::confine_helper(memory, SAMPLING, Duty::Reading);
        confined.map_err(|error| format!("privileges cannot be dropped: {error}")).map(|()| sampler)
    });
    match sampler {
        Ok(sampler) => answer_all(socket, |question| answer(process, Some(&sampler), question)),
        Err(why) => answer_all(socket, |_| Ok(of_bytes(Err(why.clone())))),
    }
}

/// In a helper: answers a question about a process, as long as it runs the program that was chosen.
fn answer(
    process: RunningProgram,
    sampler: Option<&StackSampler>,
    mut question: &[u8],
) -> io::Result<HelperAnswer> {
    let (question, pid) = (&mut question, process.pid);
    let of_file = |file: Option<File>| of_file(file.and_then(|file| process.still(file).ok()));
    Ok(match array(question)? {
        [READY] => of_bytes(Ok(vec![u8::from(sampler.is_some_and(StackSampler::samples_processors))])),
        [SNAPSHOT] => {
            let snapshot = sampler.map(StackSampler::snapshot);
            let snapshot = snapshot.unwrap_or_else(|| Err(io::ErrorKind::Unsupported.into()));
            of_bytes(snapshot.map_err(|error| error.to_string()))
        }
        [MAPS] => {
            let maps = read_maps(pid).and_then(|maps| process.still(maps));
            of_bytes(maps.map_err(|error| format!("/proc/{pid}/maps: {error}")))
        }
        [MAPPED_FILE] => of_file(mapped::open_mapped(pid, &read_range(question)?)),
        [SYMBOL_FILE] => {
            let range = read_range(question)?;
            let (id, name) = (read_text(question)?, read_text(question)?);
            of_file(mapped::open_symbols(pid, &range, &id, &name))
        }
        _ => return Err(io::ErrorKind::InvalidData.into()),
    })
}

/// The mappings of a process, as far as there is room for them in an answer.
fn read_maps(process: u32) -> io::Result<Vec<u8>> {
    let mut maps = Vec::new();
    File::open(format!("/proc/{process}/maps"))?.take(MAX_MAPS as u64).read_to_end(&mut maps)?;
    match maps.len() {
        MAX_MAPS => Err(io::ErrorKind::FileTooLarge.into()),
        _ => Ok(maps),
    }
}

fn exit_message(error: sonar_sys::ebpf::TraceError) -> String {
    crate::exit::message(&crate::servers::tracing::refused(error))
}

#[cfg(test)]
impl StackSource {
    /// A source without snapshots, which a thread answers instead of a helper process.
    pub fn in_thread(process: u32) -> Self {
        let process = RunningProgram::now(process).unwrap();
        let socket = UnixStream::from(OwnedFd::from(answer_later(process, ThreadPlace::default()).unwrap()));
        Self::over(HelperChannel::patient(socket), Snapshots::None)
    }

    fn over(channel: HelperChannel, snapshots: Snapshots) -> Self {
        Self { channel: channel.with_max_answer(MAX_ANSWER), snapshots }
    }

    /// The same; the thread answers nothing until the other end of `may_answer` is dropped.
    pub fn withheld(process: u32, may_answer: std::sync::mpsc::Receiver<()>) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let process = RunningProgram::now(process).unwrap();
        std::thread::spawn(move || {
            // It is never told anything else.
            let _ = may_answer.recv();
            answer_all(theirs, |question| answer(process, None, question))
        });
        Self::over(HelperChannel::patient(ours), Snapshots::None)
    }

    /// The same; the thread waits before it opens a file, as often as it is told to, and it is not waited for.
    pub fn in_slow_thread(process: u32, may_open: std::sync::mpsc::Receiver<()>) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let process = RunningProgram::now(process).unwrap();
        std::thread::spawn(move || {
            answer_all(theirs, |question| {
                if question.first() == Some(&MAPPED_FILE) {
                    may_open.recv().map_err(io::Error::other)?;
                }
                answer(process, None, question)
            })
        });
        Self::over(HelperChannel::impatient(ours, Duration::from_millis(20)), Snapshots::None)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use sonar_decode::stacks::executable;

    use super::*;

    /// The mapping of this program's code, and its path.
    fn own_code() -> (Mapping, std::path::PathBuf) {
        let path = std::env::current_exe().unwrap();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let is_own = |mapping: &Mapping| Path::new(&mapping.path) == path;
        (executable(&maps).into_iter().find(is_own).unwrap(), path)
    }

    #[test]
    fn only_files_of_executable_mappings_are_opened() {
        let mut source = StackSource::in_thread(std::process::id());
        let (code, path) = own_code();
        let opened = source.mapped_file(&code).unwrap().unwrap();
        assert_eq!(opened.metadata().unwrap().ino(), fs::metadata(&path).unwrap().ino());
        // The path in a question does not count.
        let elsewhere = Mapping { path: "/etc/passwd".to_owned(), ..code.clone() };
        let opened = source.mapped_file(&elsewhere).unwrap().unwrap();
        assert_eq!(opened.metadata().unwrap().ino(), fs::metadata(&path).unwrap().ino());
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let data =
            maps.lines().find(|line| line.contains(" r--p ") && line.ends_with(path.to_str().unwrap()));
        let (start, end) = data.unwrap().split_once(' ').unwrap().0.split_once('-').unwrap();
        let hex = |text| u64::from_str_radix(text, 16).unwrap();
        for range in [
            hex(start)..hex(end),
            code.range.start..code.range.end - 4096,
            code.range.start + 4096..code.range.end,
            0..u64::MAX,
            4096..8192,
        ] {
            let refused = Mapping { range, ..code.clone() };
            assert!(source.mapped_file(&refused).unwrap().is_none(), "{refused:?}");
            assert!(source.symbol_file(&refused, &[], code.file_name()).unwrap().is_none(), "{refused:?}");
        }
    }

    #[test]
    fn of_another_program_nothing_is_handed_out() {
        use std::io::Write;
        use std::process::{Command, Stdio};
        let shell = Command::new("sh")
            .args(["-c", "read line; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut shell = shell.unwrap();
        let mut source = StackSource::in_thread(shell.id());
        assert!(source.maps().is_ok());
        let mut to = shell.stdin.take().unwrap();
        to.write_all(b"go on\nx").unwrap();
        // It is the other program that answers.
        shell.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let maps = fs::read_to_string(format!("/proc/{}/maps", shell.id())).unwrap();
        let is_file = |mapping: &Mapping| mapping.path.starts_with('/');
        let code = executable(&maps).into_iter().find(is_file).unwrap();
        let name = code.file_name().to_owned();
        let files = [source.mapped_file(&code), source.symbol_file(&code, &[], &name)];
        let refused = source.maps().is_err();
        drop(to);
        shell.wait().unwrap();
        assert!(refused && files.iter().all(|file| matches!(file, Ok(None))), "{files:?}");
    }

    #[test]
    fn servers_of_one_user_whose_files_do_not_answer_leave_threads_for_those_of_others() {
        let mut threads = LaterThreads::default();
        let begun = Instant::now();
        let late = begun + LATE;
        let mut places: Vec<ThreadPlace> =
            (0..MAX_WAITING_OF_USER).map(|_| threads.place(Some(7), begun).unwrap()).collect();
        // Those that wait for questions do not count.
        places.push(threads.place(Some(7), late).unwrap());
        places.iter().take(MAX_WAITING_OF_USER).for_each(|place| *lock(place) = Some(begun));
        places.push(threads.place(Some(7), late - Duration::from_millis(1)).unwrap());
        assert_eq!(
            threads.place(Some(7), late).unwrap_err(),
            "the files of 12 servers of its user do not answer"
        );
        while places.len() < MAX_LATER {
            places.push(threads.place(Some(8), late).unwrap());
        }
        assert_eq!(threads.place(Some(8), late).unwrap_err(), "functions of 64 servers are read already");
        // One that ends makes room.
        drop(places.remove(0));
        drop(threads.place(Some(7), late).unwrap());
    }

    #[test]
    fn a_thread_counts_as_one_that_answers_until_its_files_are_closed() {
        let place = ThreadPlace::default();
        let waits = || lock(&place).is_some();
        answer_in_place(&place, || {
            assert!(waits());
            Ok(HelperAnswer::default())
        })
        .unwrap();
        assert!(!waits());
        let answer = answer_in_place(&place, || Ok(of_file(File::open("/dev/null").ok()))).unwrap();
        assert!(waits());
        answer.closer.close(answer.files);
        assert!(!waits());
    }

    #[test]
    fn only_elf_files_are_symbol_files() {
        let mut source = StackSource::in_thread(std::process::id());
        let (code, path) = own_code();
        let text = path.with_extension("txt");
        fs::write(&text, "no ELF file").unwrap();
        // The program itself is an ELF file in that folder.
        assert!(source.symbol_file(&code, &[], code.file_name()).unwrap().is_some());
        let text_name = text.file_name().unwrap().to_str().unwrap();
        for name in [text_name, "../../../../../../../../bin/sh", "/bin/sh", "..", ".", ""] {
            assert!(source.symbol_file(&code, &[1, 2, 3], name).unwrap().is_none(), "{name}");
        }
        fs::remove_file(&text).unwrap();
    }

    #[test]
    fn an_answer_is_received_as_it_was_given() {
        let answers = [Ok(b"maps".to_vec()), Err("no permission".to_owned()), Ok(Vec::new())];
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut given = answers.clone().into_iter();
        std::thread::spawn(move || answer_all(theirs, |_| Ok(of_bytes(given.next().unwrap()))));
        let mut source = StackSource::over(HelperChannel::patient(ours), Snapshots::All);
        for answer in answers {
            assert_eq!(source.ask(&[MAPS]).map_err(|error| error.to_string()), answer);
        }
    }

    #[test]
    fn a_source_ends_with_an_answer_that_is_too_long() {
        use std::io::Write;
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut source = StackSource::over(HelperChannel::patient(ours), Snapshots::All);
        theirs.write_all(&[&1u64.to_le_bytes()[..], &[0xff; 4], &[0; 4]].concat()).unwrap();
        assert!(source.snapshot().unwrap_err().to_string().contains("length 4294967295"));
        assert!(source.has_ended());
        let errors = [
            source.snapshot().unwrap_err(),
            source.maps().unwrap_err(),
            source.mapped_file(&own_code().0).unwrap_err(),
        ];
        assert!(errors.iter().all(|error| error.to_string() == "a helper process has ended"), "{errors:?}");
    }
}
