//! Reads what other processes can withhold, for a command that still has its privileges: a helper process does it, for a
//! while.
//!
//! Any user may run a program called mongod. A process can make whoever reads its mappings or its arguments wait for ever,
//! and so can the file system of its files. What does not come in time is left out, which is said.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sonar_sys::helper::{Helper, limit_memory, name_process};
use sonar_sys::privileges::Duty;

use super::helper_channel::{self, HelperChannel, answer_with};
use super::privileges;
use super::start_order::{self, StartStep};

/// How long all processes together may take: less than who asks a helper waits for an answer.
pub const APART_PATIENCE: Duration = Duration::from_secs(8);
/// The most processes that are read at once.
pub const MAX_READ_APART: usize = 64;
/// The most bytes of memory of the helper: what is read of each process is bounded, and so are the stacks of its threads.
const HELPER_BYTES: usize = 256 << 20;
/// The size of a thread's stack in bytes.
const STACK: usize = 128 << 10;

/// What was read of a process.
#[derive(Debug)]
pub struct ReadApart<T> {
    /// The process.
    pub process: u32,
    /// What it says.
    pub said: T,
    /// Files that were opened for it.
    pub files: Vec<File>,
}

/// Reads something of each of these processes by `read`, in a helper process. Those that answered, in their order; the
/// others are left out with a message that begins with `what`. Call it before any thread is started.
pub fn read_each<T: Serialize + for<'de> Deserialize<'de> + Send + 'static>(
    what: &str,
    processes: &[u32],
    read: impl Fn(u32) -> (T, Vec<File>) + Copy + Send + 'static,
) -> Vec<ReadApart<T>> {
    let (processes, others) = processes.split_at(processes.len().min(MAX_READ_APART));
    if processes.is_empty() {
        return Vec::new();
    }
    start_order::take(StartStep::Helper);
    let until = Instant::now() + APART_PATIENCE;
    let helper = Helper::start(|socket| {
        name_process("sonar-apart");
        if limit_memory(HELPER_BYTES).is_ok() {
            privileges::drop_privileges_but_inspecting(&[], Duty::Reading);
            // It ends when the other side does.
            let _ = answer_each(socket, processes, until, read);
        }
    });
    let helper = helper.inspect_err(|error| eprintln!("mongosonar: {what} is not possible: {error}"));
    let Some(channel) = helper.ok().and_then(HelperChannel::new) else { return Vec::new() };
    let answer = |(at, process): (usize, &u32)| {
        let (said, files) = channel.ask(&at).ok()?;
        Some(ReadApart { process: *process, said, files })
    };
    let answered: Vec<ReadApart<T>> = processes.iter().enumerate().filter_map(answer).collect();
    let has_answered = |process: &&u32| answered.iter().any(|one| one.process == **process);
    let silent: Vec<u32> = processes.iter().filter(|process| !has_answered(process)).copied().collect();
    for notice in left_out(what, &silent, others.len()) {
        eprintln!("mongosonar: {notice}");
    }
    answered
}

/// In words, which processes did not answer, and of how many there was no room to ask.
fn left_out(what: &str, silent: &[u32], others: usize) -> Vec<String> {
    let list = silent.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let silent = (!silent.is_empty())
        .then(|| format!("{what}: left out, because they do not answer: processes {list}"));
    let others = (others > 0)
        .then(|| format!("{what}: {others} processes are left out: at most {MAX_READ_APART} are read"));
    silent.into_iter().chain(others).collect()
}

/// In the helper: reads of all processes at once, so that one that does not answer holds up no other one, and answers which
/// is asked for, by its position; what has not come by `until` is refused.
fn answer_each<T: Serialize + Send + 'static>(
    socket: UnixStream,
    processes: &[u32],
    until: Instant,
    read: impl Fn(u32) -> (T, Vec<File>) + Copy + Send + 'static,
) -> io::Result<()> {
    let begin = |process: &u32| {
        let (process, (give, answer)) = (*process, channel());
        // Without a thread there is no answer.
        let _ = Builder::new().stack_size(STACK).spawn(move || {
            let _ = give.send(read(process));
        });
        answer
    };
    let answers: Vec<Receiver<(T, Vec<File>)>> = processes.iter().map(begin).collect();
    helper_channel::serve(socket, |at: usize| {
        let left = until.saturating_duration_since(Instant::now());
        match answers.get(at).and_then(|answer| answer.recv_timeout(left).ok()) {
            Some((said, files)) => answer_with(Ok(said), files),
            None => answer_with::<T>(Err(io::ErrorKind::TimedOut.into()), Vec::new()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_answer_holds_up_no_other_one_and_is_named() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let processes = [5, 6, 7];
        // Its time is over: what there is has come by itself.
        let until = Instant::now();
        let read = |process: u32| {
            if process == 5 {
                loop {
                    std::thread::park();
                }
            }
            (process * 2, vec![File::open("/dev/null").unwrap()])
        };
        std::thread::spawn(move || answer_each(theirs, &processes, until, read));
        let channel = HelperChannel::over(ours);
        for at in [2, 1] {
            let (said, files): (u32, _) = loop {
                match channel.ask(&at) {
                    Ok(answer) => break answer,
                    Err(_) => std::thread::yield_now(),
                }
            };
            assert_eq!((said, files.len()), (processes[at] * 2, 1));
        }
        assert!(channel.ask::<u32>(&0).is_err() && channel.ask::<u32>(&3).is_err());
        let words = "reading logs: left out, because they do not answer: processes 5, 8";
        assert_eq!(left_out("reading logs", &[5, 8], 0), [words]);
        assert_eq!(
            left_out("reading logs", &[], 3),
            ["reading logs: 3 processes are left out: at most 64 are read"]
        );
        assert!(left_out("reading logs", &[], 0).is_empty());
    }
}
