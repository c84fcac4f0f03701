//! The standard streams: that a terminal or a reader has gone away, and being stopped by Ctrl-Z.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

use crate::sys_process;

/// What ended a wait.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Woken {
    /// The terminal of a standard stream has gone, or nobody reads standard output any more.
    Gone,
    /// Nobody reads standard error any more, which is a pipe.
    ErrorUnread,
    /// The other descriptor can be read.
    Readable,
    /// The time is over.
    TimedOut,
}

/// The standard streams that can go away while the program runs. One that has gone is replaced by a silent one:
/// writing to it succeeds, and reading from it finds nothing. So nothing fails or spins that still uses it.
#[derive(Debug)]
pub struct Streams {
    /// With whether the program is to end when it goes away. What takes its place never goes away.
    watched: Vec<(RawFd, bool)>,
    null: File,
    /// What takes the place of standard input. It is not at its end as long as it can be written to.
    empty: (OwnedFd, OwnedFd),
}

impl Streams {
    /// Those of this process.
    ///
    /// # Errors
    /// When `/dev/null` or a pipe cannot be had.
    pub fn standard() -> io::Result<Self> {
        let is_pipe = |fd: &dyn AsFd| {
            let file = fd.as_fd().try_clone_to_owned().map(File::from);
            file.and_then(|file| file.metadata())
                .is_ok_and(|found| found.file_type().is_fifo() || found.file_type().is_socket())
        };
        let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
        let mut watched = Vec::new();
        // A pipe that is read from ends in the ordinary way.
        if input.is_terminal() {
            watched.push((input.as_raw_fd(), true));
        }
        if output.is_terminal() || is_pipe(&output) {
            watched.push((output.as_raw_fd(), true));
        }
        if error.is_terminal() || is_pipe(&error) {
            watched.push((error.as_raw_fd(), error.is_terminal()));
        }
        let null = File::options().read(true).write(true).open("/dev/null")?;
        Ok(Self { watched, null, empty: sys_process::pipe()? })
    }

    /// Waits until one of them goes away, or until `other` can be read, at most `timeout`. Call [`Self::silence`] once
    /// everybody knows that one has gone.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn wait(&self, other: &impl AsFd, timeout: Option<Duration>) -> io::Result<Woken> {
        let mut entries: Vec<_> = self.watched.iter().map(|(fd, _)| (*fd, 0)).collect();
        entries.push((other.as_fd().as_raw_fd(), libc::POLLIN));
        let events = sys_process::poll(&entries, timeout)?;
        let mut gone = self.watched.iter().zip(&events).filter(|(_, events)| is_gone(**events)).peekable();
        if gone.peek().is_some() {
            return Ok(if gone.any(|((_, ends), _)| *ends) { Woken::Gone } else { Woken::ErrorUnread });
        }
        Ok(if events.last().is_some_and(|events| *events != 0) { Woken::Readable } else { Woken::TimedOut })
    }

    /// Whether the terminal of one of them has gone, or the reader of standard output, and it was not silenced yet.
    pub fn have_gone(&self) -> bool {
        self.poll_now().is_ok_and(|streams| streams.iter().any(|(_, ends)| *ends))
    }

    /// Silences those that have gone. Any thread may do so.
    ///
    /// # Errors
    /// When the kernel cannot be asked, or refuses.
    pub fn silence(&self) -> io::Result<()> {
        for (fd, _) in self.poll_now()? {
            let by = if fd == io::stdin().as_raw_fd() { self.empty.0.as_fd() } else { self.null.as_fd() };
            sys_process::replace(fd, by)?;
        }
        Ok(())
    }

    /// Those that have gone and were not silenced.
    fn poll_now(&self) -> io::Result<Vec<(RawFd, bool)>> {
        let entries: Vec<_> = self.watched.iter().map(|(fd, _)| (*fd, 0)).collect();
        let events = sys_process::poll(&entries, Some(Duration::ZERO))?;
        let streams = self.watched.iter().zip(events).filter(|(_, events)| is_gone(*events));
        Ok(streams.map(|(stream, _)| *stream).collect())
    }
}

/// Whether what `poll` gave means that there is nobody at the other end.
fn is_gone(events: i16) -> bool {
    events & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
}

/// Stops the process group, as Ctrl-Z does where the terminal is not in raw mode; returns when it goes on.
///
/// # Errors
/// When no process of the group may be stopped.
pub fn stop_group() -> io::Result<()> {
    sys_process::stop_group()
}
