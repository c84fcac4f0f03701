//! Reads what other processes can withhold, in a helper process and for a limited time, while a command still has its
//! privileges.
//!
//! Any user may run a program called mongod. Whoever reads the mappings or the arguments of a process may have to wait for
//! ever, and so may whoever reads its files. What does not come in time is left out, with a message.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sonar_sys::helper::{InheritedDescriptors, limit_memory};
use sonar_sys::privileges::Duty;
use sonar_sys::questions::{FileCloser, HelperAnswer};

use super::helper_channel::{self, HelperChannel, answer_with};
use super::privileges;

/// How long all processes together may take. A helper must answer within ten seconds.
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

/// Reads something of each of these processes by `read`, in a helper process. Returns those that answered, in their order;
/// the others are left out with a message that begins with `what`. Call it before any thread is started.
pub fn read_each<T: Serialize + for<'de> Deserialize<'de> + Send + 'static>(
    what: &str,
    processes: &[u32],
    read: impl Fn(u32) -> (T, Vec<File>) + Copy + Send + 'static,
) -> Vec<ReadApart<T>> {
    let (processes, others) = processes.split_at(processes.len().min(MAX_READ_APART));
    if processes.is_empty() {
        return Vec::new();
    }
    let until = Instant::now() + APART_PATIENCE;
    let helper = privileges::start_helper("sonar-apart", &InheritedDescriptors::Nothing, |socket| {
        if limit_memory(HELPER_BYTES).is_ok() {
            privileges::drop_privileges_but_inspecting(&[], Duty::Reading);
            // It ends when the other side does.
            let _ = answer_each(socket, processes, until, read);
        }
    });
    let helper = helper.inspect_err(|error| eprintln!("mongosonar: {what} is not possible: {error}"));
    let Ok(channel) = helper.and_then(HelperChannel::to) else { return Vec::new() };
    let mut answered = Vec::new();
    let mut left_out = LeftOut { others: others.len(), ..LeftOut::default() };
    for (at, process) in processes.iter().copied().enumerate() {
        match channel.ask(&at) {
            Ok((ProcessAnswer::Read(said), files)) => answered.push(ReadApart { process, said, files }),
            Ok((ProcessAnswer::Silent, _)) => left_out.silent.push(process),
            Err(error) => left_out.failed.push((process, error.to_string())),
        }
    }
    for notice in left_out.notices(what) {
        eprintln!("mongosonar: {notice}");
    }
    answered
}

/// The helper's answer about a process. It is no `Option`, because JSON writes both `Some(())` and `None` as `null`.
#[derive(Debug, Serialize, Deserialize)]
enum ProcessAnswer<T> {
    /// What was read.
    Read(T),
    /// Nothing came in time.
    Silent,
}

/// Processes that were not read.
#[derive(Default)]
struct LeftOut {
    /// They did not answer in time.
    silent: Vec<u32>,
    /// Processes about which the helper sent nothing, each with the error.
    failed: Vec<(u32, String)>,
    /// How many there was no room to ask.
    others: usize,
}

impl LeftOut {
    /// In words.
    fn notices(&self, what: &str) -> Vec<String> {
        let list = self.silent.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let silent = (!self.silent.is_empty())
            .then(|| format!("{what}: left out, because they do not answer: processes {list}"));
        let failed = self.failed.iter().map(|(process, why)| format!("{what}: process {process}: {why}"));
        let others = (self.others > 0).then(|| {
            format!("{what}: {} processes are left out: at most {MAX_READ_APART} are read", self.others)
        });
        silent.into_iter().chain(failed).chain(others).collect()
    }
}

/// In the helper: reads from all processes at once, so that one that does not answer holds up no other one. A question is
/// the position of a process; it is silent if nothing has come by `until`.
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
        let read = answers.get(at).and_then(|answer| answer.recv_timeout(left).ok());
        match read {
            // They stay open until the helper ends, which is soon: whoever closes them may have to wait for ever.
            Some((said, files)) => Ok(HelperAnswer {
                closer: FileCloser::new(std::mem::forget),
                ..answer_with(Ok(ProcessAnswer::Read(said)), files)?
            }),
            None => answer_with(Ok(ProcessAnswer::<T>::Silent), Vec::new()),
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
            // An answer without content is an answer, too.
            ((process == 6).then_some(process), vec![File::open("/dev/null").unwrap()])
        };
        std::thread::spawn(move || answer_each(theirs, &processes, until, read));
        let channel = HelperChannel::patient(ours);
        for at in [2, 1] {
            let (said, files) = loop {
                match channel.ask::<ProcessAnswer<Option<u32>>>(&at).unwrap() {
                    (ProcessAnswer::Read(said), files) => break (said, files),
                    (ProcessAnswer::Silent, _) => std::thread::yield_now(),
                }
            };
            assert_eq!((said, files.len()), ((at == 1).then_some(6), 1));
        }
        for at in [0, 3] {
            let (answer, files) = channel.ask::<ProcessAnswer<Option<u32>>>(&at).unwrap();
            assert!(matches!(answer, ProcessAnswer::Silent) && files.is_empty());
        }
        let ended = (9, "a helper process has ended".to_owned());
        let left_out = LeftOut { silent: vec![5, 8], failed: vec![ended], others: 3 };
        assert_eq!(
            left_out.notices("reading logs"),
            [
                "reading logs: left out, because they do not answer: processes 5, 8",
                "reading logs: process 9: a helper process has ended",
                "reading logs: 3 processes are left out: at most 64 are read",
            ]
        );
        assert!(LeftOut::default().notices("reading logs").is_empty());
    }
}
