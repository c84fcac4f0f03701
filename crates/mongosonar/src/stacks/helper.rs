//! The helper process that samples threads and opens the files that are mapped into them.
//!
//! Stacks and files come from another program and are read without privileges. So the helper keeps them, understands
//! none of those bytes, and answers four questions: a snapshot, the mappings, a mapped file, a file of symbols.
//! For servers that start later, a helper without snapshots answers the other three.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use sonar_decode::stacks::{MAX_BUILD_ID, Mapping};
use sonar_sys::Host;
use sonar_sys::helper::{Helper, PATIENCE, receive_file, send_file};
use sonar_sys::host::{namespace, regular};
use sonar_sys::privileges::{self, Duty, capability};
use sonar_sys::stacks::StackSampler;

use crate::files::finder::array;
use crate::servers;

const SNAPSHOT: u8 = b'S';
const MAPS: u8 = b'M';
const MAPPED_FILE: u8 = b'F';
const SYMBOL_FILE: u8 = b'D';
/// The longest answer, in bytes.
const MAX_ANSWER: usize = 1 << 30;
/// The longest text in a question, in bytes.
const MAX_TEXT: usize = 8 * 1024;
/// What the helper keeps, as far as the program has it.
const KEPT: &[u32] = &[
    capability::SYS_PTRACE,
    capability::DAC_READ_SEARCH,
    capability::BPF,
    capability::PERFMON,
    capability::CHECKPOINT_RESTORE,
];

/// The most servers that start later to answer for at once.
const MAX_LATER: usize = 64;
/// What the helper for servers that start later keeps.
const KEPT_LATER: &[u32] =
    &[capability::SYS_PTRACE, capability::DAC_READ_SEARCH, capability::CHECKPOINT_RESTORE];

/// Where stacks and files of a process come from.
pub struct StackSource {
    /// Kept, so that it ends with us; `None` if it answers for other processes too.
    _helper: Option<Helper>,
    socket: UnixStream,
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

/// The helper for servers that start later.
pub struct LaterSources {
    /// Kept, so that it ends with us.
    _helper: Helper,
    socket: UnixStream,
}

impl LaterSources {
    /// Starts the helper; `None` if that fails, which it reports. Call it before starting any thread.
    pub fn start() -> Option<Self> {
        let what = "finding the functions of servers that start later";
        // Not Landlock: it forbids inspecting processes that are not confined in the same way.
        let helper = crate::privileges::helper(what, KEPT_LATER, Duty::Reading, serve_later)?;
        let socket = helper.socket().ok()?;
        Some(Self { _helper: helper, socket })
    }

    /// The source for a mongod or mongos. It has no snapshots.
    ///
    /// # Errors
    /// It has ended, or is another program; or the helper has ended.
    pub fn source(&mut self, process: u32) -> Result<StackSource> {
        self.socket.write_all(&process.to_ne_bytes())?;
        let answer = receive_file(&self.socket).context("the helper process has ended")?;
        let socket = answer.ok_or_else(|| anyhow!("the helper process does not answer for it"))?;
        let socket = UnixStream::from(OwnedFd::from(socket));
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(StackSource { _helper: None, socket, snapshots: Snapshots::None })
    }
}

impl StackSource {
    /// Starts the helper for a process. Call it before starting any thread.
    ///
    /// # Errors
    /// What the helper needs is missing.
    pub fn start(process: u32) -> Result<Self> {
        let helper = Helper::start(|socket| {
            // It ends when the other side does.
            let _ = serve(process, socket);
        })
        .context("cannot start a helper process")?;
        let mut socket = helper.socket()?;
        let ready = answer(&mut socket)?;
        let snapshots = if ready == [1] { Snapshots::All } else { Snapshots::Waiting };
        Ok(Self { _helper: Some(helper), socket, snapshots })
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
        self.socket.write_all(&[SNAPSHOT])?;
        answer(&mut self.socket)
    }

    /// The mappings of the process, as `/proc/PID/maps` has them.
    ///
    /// # Errors
    /// The process has ended.
    pub fn maps(&mut self) -> Result<String> {
        self.socket.write_all(&[MAPS])?;
        Ok(String::from_utf8_lossy(&answer(&mut self.socket)?).into_owned())
    }

    /// Opens the file of a mapping, also one that was deleted; `None` if that is not possible.
    pub fn mapped_file(&mut self, mapping: &Mapping) -> Option<File> {
        let mut question = vec![MAPPED_FILE];
        question.extend(mapping.range.start.to_ne_bytes());
        question.extend(mapping.range.end.to_ne_bytes());
        push_text(&mut question, mapping.path.as_bytes());
        self.socket.write_all(&question).ok()?;
        receive_file(&self.socket).ok()?
    }

    /// Opens the file with the symbols of a program, by its build id or by the name in the program; `None` if there is
    /// none. `path` is that of the program.
    pub fn symbol_file(&mut self, path: &str, build_id: &[u8], name: &str) -> Option<File> {
        let mut question = vec![SYMBOL_FILE];
        for text in [path.as_bytes(), build_id, name.as_bytes()] {
            push_text(&mut question, text);
        }
        self.socket.write_all(&question).ok()?;
        receive_file(&self.socket).ok()?
    }
}

fn push_text(question: &mut Vec<u8>, text: &[u8]) {
    let text = &text[..text.len().min(MAX_TEXT)];
    question.extend((text.len() as u16).to_ne_bytes());
    question.extend_from_slice(text);
}

fn read_text(socket: &mut UnixStream) -> io::Result<Vec<u8>> {
    let length = usize::from(u16::from_ne_bytes(array(socket)?));
    let mut text = vec![0; length];
    socket.read_exact(&mut text)?;
    Ok(text)
}

/// Reads an answer: whether it is one or an error, its length, its bytes.
fn answer(socket: &mut UnixStream) -> Result<Vec<u8>> {
    let [failed] = array(socket).context("the helper process has ended")?;
    let length = u32::from_ne_bytes(array(socket)?) as usize;
    if length > MAX_ANSWER {
        bail!("the helper process answered with {length} bytes");
    }
    let mut bytes = vec![0; length];
    socket.read_exact(&mut bytes)?;
    if failed == 0 { Ok(bytes) } else { Err(anyhow!("{}", String::from_utf8_lossy(&bytes))) }
}

fn send(socket: &mut UnixStream, answer: Result<Vec<u8>, String>) -> io::Result<()> {
    let (failed, bytes) = match answer {
        Ok(bytes) => (0, bytes),
        Err(why) => (1, why.into_bytes()),
    };
    socket.write_all(&[failed])?;
    socket.write_all(&(bytes.len() as u32).to_ne_bytes())?;
    socket.write_all(&bytes)
}

/// In the helper for servers that start later: makes a socket for each, and answers there in a thread of its own.
fn serve_later(mut socket: UnixStream) -> io::Result<()> {
    let running = Arc::new(());
    loop {
        let process = u32::from_ne_bytes(array(&mut socket)?);
        let is_wanted =
            Arc::strong_count(&running) <= MAX_LATER && servers::is_mongodb(&Host::live(), process);
        let answering = if is_wanted { answer_later(process, running.clone()).ok() } else { None };
        send_or_refuse(&mut socket, answering)?;
    }
}

/// Starts the thread that answers for a process; returns the other end of its socket. `running` is dropped at its end.
fn answer_later(process: u32, running: Arc<()>) -> io::Result<File> {
    let (theirs, ours) = UnixStream::pair()?;
    std::thread::Builder::new().name("symbols".to_owned()).spawn(move || {
        // It ends when the other side does.
        let _ = answer_questions(process, None, ours);
        drop(running);
    })?;
    Ok(File::from(OwnedFd::from(theirs)))
}

/// In the helper: loads the programs, drops what it needs no more, and answers each question.
fn serve(process: u32, mut socket: UnixStream) -> io::Result<()> {
    let sampler = match StackSampler::start(process) {
        Ok(sampler) => sampler,
        Err(error) => return send(&mut socket, Err(exit_message(error))),
    };
    // Not Landlock: it forbids inspecting processes that are not confined in the same way.
    let confined = privileges::drop_capabilities(KEPT).and_then(|()| privileges::confine(Duty::Reading));
    if let Err(error) = confined {
        return send(&mut socket, Err(format!("privileges cannot be dropped: {error}")));
    }
    send(&mut socket, Ok(vec![u8::from(sampler.samples_processors())]))?;
    answer_questions(process, Some(&sampler), socket)
}

/// In a helper: answers each question about a process.
fn answer_questions(process: u32, sampler: Option<&StackSampler>, mut socket: UnixStream) -> io::Result<()> {
    loop {
        match array(&mut socket)? {
            [SNAPSHOT] => {
                let snapshot = sampler.map(StackSampler::snapshot);
                let snapshot = snapshot.unwrap_or_else(|| Err(io::ErrorKind::Unsupported.into()));
                send(&mut socket, snapshot.map_err(|error| error.to_string()))?;
            }
            [MAPS] => {
                let maps = fs::read(format!("/proc/{process}/maps"));
                send(&mut socket, maps.map_err(|error| format!("/proc/{process}/maps: {error}")))?;
            }
            [MAPPED_FILE] => {
                let start = u64::from_ne_bytes(array(&mut socket)?);
                let end = u64::from_ne_bytes(array(&mut socket)?);
                let path = read_text(&mut socket)?;
                send_or_refuse(&mut socket, open_mapped(process, start, end, &path))?;
            }
            [SYMBOL_FILE] => {
                let (path, id, name) =
                    (read_text(&mut socket)?, read_text(&mut socket)?, read_text(&mut socket)?);
                let file = symbol_paths(&path, &id, &name).iter().find_map(|path| {
                    let there = namespace::inside(process, path);
                    regular::open(&there).or_else(|_| regular::open(path)).ok()
                });
                send_or_refuse(&mut socket, file)?;
            }
            _ => return Ok(()),
        }
    }
}

fn exit_message(error: sonar_sys::ebpf::TraceError) -> String {
    crate::exit::message(&crate::files::process::refused(error))
}

fn send_or_refuse(socket: &mut UnixStream, file: Option<File>) -> io::Result<()> {
    match file {
        Some(file) => send_file(socket, &file),
        None => socket.write_all(&[0]),
    }
}

fn open_mapped(process: u32, start: u64, end: u64, path: &[u8]) -> Option<File> {
    let itself = PathBuf::from(format!("/proc/{process}/map_files/{start:x}-{end:x}"));
    let by_path = plain_path(path).map(|path| namespace::inside(process, path));
    regular::open(&itself).ok().or_else(|| regular::open(&by_path?).ok())
}

/// An absolute path that leads nowhere but down.
fn plain_path(path: &[u8]) -> Option<&Path> {
    let path = Path::new(std::str::from_utf8(path).ok()?);
    let is_plain =
        path.is_absolute() && path.components().all(|part| part != std::path::Component::ParentDir);
    is_plain.then_some(path)
}

/// Where the symbols of a program may be (gdb(1), "Separate Debug Files").
fn symbol_paths(path: &[u8], build_id: &[u8], name: &[u8]) -> Vec<PathBuf> {
    let debug = Path::new("/usr/lib/debug");
    let mut paths = Vec::new();
    if let [first, rest @ ..] = build_id
        && (1..MAX_BUILD_ID).contains(&rest.len())
    {
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        paths.push(debug.join(format!(".build-id/{first:02x}/{rest}.debug")));
    }
    let name = std::str::from_utf8(name)
        .ok()
        .filter(|name| !name.is_empty() && !name.contains('/') && *name != "..");
    if let (Some(folder), Some(name)) = (plain_path(path).and_then(Path::parent), name) {
        paths.push(folder.join(name));
        paths.push(folder.join(".debug").join(name));
        paths.push(debug.join(folder.strip_prefix("/").unwrap_or(folder)).join(name));
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_looked_for_where_debuggers_do() {
        let paths = symbol_paths(b"/usr/bin/mongod", &[0xab, 0xcd, 0x01], b"mongod.debug");
        let expected = [
            "/usr/lib/debug/.build-id/ab/cd01.debug",
            "/usr/bin/mongod.debug",
            "/usr/bin/.debug/mongod.debug",
            "/usr/lib/debug/usr/bin/mongod.debug",
        ];
        assert_eq!(paths, expected.map(PathBuf::from));
        // Names that lead elsewhere.
        assert!(symbol_paths(b"/usr/bin/../x", &[], b"mongod.debug").is_empty());
        assert!(symbol_paths(b"/usr/bin/mongod", &[0xab], b"../../etc/shadow").is_empty());
        assert!(symbol_paths(b"mongod", &[], b"..").is_empty());
    }

    #[test]
    fn an_answer_is_read_as_it_was_sent() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        send(&mut theirs, Ok(b"maps".to_vec())).unwrap();
        assert_eq!(answer(&mut ours).unwrap(), b"maps");
        send(&mut theirs, Err("no permission".into())).unwrap();
        assert_eq!(answer(&mut ours).unwrap_err().to_string(), "no permission");
        drop(theirs);
        assert!(answer(&mut ours).unwrap_err().to_string().contains("has ended"));
    }
}
