//! The standard streams: notices when a terminal or a reader goes away, and stops the process on Ctrl-Z.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stderr, stdin, stdout};

use crate::sys_process;

/// Why a wait ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Woken {
    /// The terminal of a standard stream has gone, or nobody reads standard output any more.
    Gone,
    /// Standard error is a pipe that nobody reads any more.
    ErrorUnread,
    /// The other descriptor can be read.
    Readable,
    /// The time is over.
    TimedOut,
}

/// What takes no output.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StuckOutput {
    /// A terminal that was stopped (Ctrl-S), or whose other side does not read.
    Terminal,
    /// A pipe or a socket whose reader does not read.
    Pipe,
}

/// Shows a few bytes on a terminal that takes nothing: what it has not shown yet is thrown away. Waits half a second at
/// most, and gives up then.
pub fn show_last(terminal: &OwnedFd, bytes: &[u8]) {
    for _ in 0..25 {
        let mut entry = [PollFd::new(terminal, PollFlags::OUT)];
        let is_ready = poll(&mut entry, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
        if is_ready && rustix::io::write(terminal, bytes).is_ok() {
            return;
        }
        sys_process::discard_output(terminal.as_fd());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The standard streams that can go away while the program runs. A stream that has gone is replaced by a silent one:
/// writing to it succeeds, and reading finds nothing. So nothing that still uses it fails or spins.
#[derive(Debug)]
pub struct Streams {
    /// Each with whether the program ends if it goes away. Replacements never go away.
    watched: Vec<(BorrowedFd<'static>, bool)>,
    null: File,
    /// Replaces standard input. It never ends, because its other end stays open.
    empty: (OwnedFd, OwnedFd),
}

impl Streams {
    /// The streams of this process.
    ///
    /// # Errors
    /// `/dev/null` or a pipe cannot be opened.
    pub fn standard() -> io::Result<Self> {
        let is_pipe = |fd: BorrowedFd<'_>| {
            let file = fd.try_clone_to_owned().map(File::from);
            file.and_then(|file| file.metadata())
                .is_ok_and(|found| found.file_type().is_fifo() || found.file_type().is_socket())
        };
        let mut watched = Vec::new();
        // A pipe that is read from ends as usual.
        if stdin().is_terminal() {
            watched.push((stdin(), true));
        }
        if stdout().is_terminal() || is_pipe(stdout()) {
            watched.push((stdout(), true));
        }
        if stderr().is_terminal() || is_pipe(stderr()) {
            watched.push((stderr(), stderr().is_terminal()));
        }
        let null = File::options().read(true).write(true).open("/dev/null")?;
        Ok(Self { watched, null, empty: pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)? })
    }

    /// Waits at most `timeout` until one of them goes away, or `other` can be read. Call [`Self::silence`] once
    /// everything that needs to know has been notified.
    ///
    /// # Errors
    /// `poll` fails.
    pub fn wait(&self, other: &impl AsFd, timeout: Option<Duration>) -> io::Result<Woken> {
        let mut entries = self.entries();
        entries.push(PollFd::new(other, PollFlags::IN));
        let timeout = timeout.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        match poll(&mut entries, timeout.as_ref()) {
            Err(Errno::INTR) => return Ok(Woken::TimedOut),
            outcome => outcome?,
        };
        let gone = self.gone(&entries);
        if !gone.is_empty() {
            return Ok(if gone.iter().any(|(_, ends)| *ends) { Woken::Gone } else { Woken::ErrorUnread });
        }
        let readable = entries.last().is_some_and(|entry| !entry.revents().is_empty());
        Ok(if readable { Woken::Readable } else { Woken::TimedOut })
    }

    /// Whether the terminal of one of them has gone, or the reader of standard output, and it was not silenced yet.
    pub fn have_gone(&self) -> bool {
        self.poll_now().is_ok_and(|streams| streams.iter().any(|(_, ends)| *ends))
    }

    /// Replaces the streams that have gone. Any thread may call it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn silence(&self) -> io::Result<()> {
        for (fd, _) in self.poll_now()? {
            match fd.as_raw_fd() {
                libc::STDIN_FILENO => dup2_stdin(&self.empty.0)?,
                libc::STDOUT_FILENO => dup2_stdout(&self.null)?,
                _ => dup2_stderr(&self.null)?,
            }
        }
        Ok(())
    }

    /// What takes nothing of what is written now, so that writing waits: a terminal that does not read comes before a pipe.
    pub fn stuck(&self) -> Option<StuckOutput> {
        let found = self.stuck_streams().unwrap_or_default();
        let is_terminal = found.iter().any(|fd| fd.is_terminal());
        (!found.is_empty()).then_some(if is_terminal { StuckOutput::Terminal } else { StuckOutput::Pipe })
    }

    /// Replaces the streams that take nothing by silent ones, so that nothing waits for them any more; the main thread
    /// ends its wait. Returns the first terminal among them.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn give_up_stuck(&self) -> io::Result<Option<OwnedFd>> {
        let mut terminal = None;
        for fd in self.stuck_streams()? {
            if terminal.is_none() && fd.is_terminal() {
                terminal = Some(fd.try_clone_to_owned()?);
            }
            match fd.as_raw_fd() {
                libc::STDOUT_FILENO => dup2_stdout(&self.null)?,
                _ => dup2_stderr(&self.null)?,
            }
        }
        // Room for what has to be shown before the main thread ends the program.
        terminal.iter().for_each(|terminal| sys_process::discard_output(terminal.as_fd()));
        sys_process::interrupt_main_thread();
        Ok(terminal)
    }

    /// Standard output and error, as far as they take nothing.
    fn stuck_streams(&self) -> io::Result<Vec<BorrowedFd<'static>>> {
        let outputs =
            self.watched.iter().map(|(fd, _)| *fd).filter(|fd| fd.as_raw_fd() != libc::STDIN_FILENO);
        let outputs: Vec<_> = outputs.collect();
        let mut entries: Vec<_> =
            outputs.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::OUT)).collect();
        retry_on_intr(|| poll(&mut entries, Some(&Timespec::default())))?;
        let is_stuck = |entry: &PollFd<'_>| entry.revents().is_empty();
        Ok(outputs.into_iter().zip(&entries).filter(|(_, entry)| is_stuck(entry)).map(|(fd, _)| fd).collect())
    }

    /// The streams that have gone and were not replaced yet.
    fn poll_now(&self) -> io::Result<Vec<(BorrowedFd<'static>, bool)>> {
        let mut entries = self.entries();
        retry_on_intr(|| poll(&mut entries, Some(&Timespec::default())))?;
        Ok(self.gone(&entries))
    }

    /// For `poll`, which always reports errors and hang-ups.
    fn entries(&self) -> Vec<PollFd<'static>> {
        self.watched.iter().map(|(fd, _)| PollFd::from_borrowed_fd(*fd, PollFlags::empty())).collect()
    }

    /// The streams whose other end has gone, by the result of `poll`.
    fn gone(&self, entries: &[PollFd<'_>]) -> Vec<(BorrowedFd<'static>, bool)> {
        let signs = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let streams = self.watched.iter().zip(entries);
        streams.filter(|(_, entry)| entry.revents().intersects(signs)).map(|(stream, _)| *stream).collect()
    }
}

/// Stops the process group, as Ctrl-Z does outside raw mode; returns when it continues.
///
/// # Errors
/// No process of the group may be stopped.
pub fn stop_group() -> io::Result<()> {
    sys_process::stop_group()
}
