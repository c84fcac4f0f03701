//! A followed file that is open, and the thread that waits for its file system.
//!
//! A file system may stop answering: a server of NFS is gone, a disk is broken. A thread that asks it then stands still, and
//! not even a signal wakes it. So whoever follows files of several file systems lets a thread for each wait.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// How long a file system may take to answer. A busy disk takes less.
const PATIENCE: Duration = Duration::from_secs(5);

/// The size of its stack in bytes: there may be some for each server.
const STACK: usize = 128 << 10;

type FileJob = Box<dyn FnOnce() + Send>;

/// A thread that works on files for others, who wait for it for a while only. It starts with the first work.
#[derive(Default)]
pub struct FileThread {
    state: Mutex<FileThreadState>,
    /// Another patience, for tests.
    patience: Option<Duration>,
}

#[derive(Default)]
struct FileThreadState {
    /// `None` before it has started.
    to: Option<Sender<FileJob>>,
    /// Dropped once the work has ended for which nobody waits any more, in whichever way.
    late: Weak<()>,
}

impl std::fmt::Debug for FileThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FileThread")
    }
}

impl FileThread {
    /// Lets the thread work, and waits for the result. What comes later is discarded there, also files that were opened.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the file system does not answer within five seconds, or has not answered what it
    /// was asked before: asking again later is of use. Or the thread has failed.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.late.strong_count() > 0 {
            return Err(unanswered());
        }
        // Without a thread whoever asks has to wait.
        let Ok(to) = state.thread() else { return Ok(work()) };
        let (give, result) = channel();
        let token = Arc::new(());
        let working = Arc::downgrade(&token);
        let job = move || {
            let _token = token;
            // Nobody may wait for it any more.
            let _ = give.send(work());
        };
        // If that fails, so does what follows.
        let _ = to.send(Box::new(job));
        match result.recv_timeout(self.patience.unwrap_or(PATIENCE)) {
            Ok(value) => Ok(value),
            Err(RecvTimeoutError::Timeout) => {
                state.late = working;
                Err(unanswered())
            }
            Err(RecvTimeoutError::Disconnected) => {
                state.to = None;
                Err(io::Error::other("the thread that reads it has failed"))
            }
        }
    }

    /// Lets the thread drop something, and does not wait: even closing a file asks some file systems.
    fn discard(&self, value: impl Send + 'static) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a thread it is dropped here.
        if let Ok(to) = state.thread() {
            let _ = to.send(Box::new(move || drop(value)));
        }
    }
}

impl FileThreadState {
    /// Starts the thread if it does not run.
    fn thread(&mut self) -> io::Result<&Sender<FileJob>> {
        if self.to.is_none() {
            let (to, jobs) = channel::<FileJob>();
            // The time of it is that of the thread that asks. Of main threads only that of the helper for logs asks.
            let asking = std::thread::current();
            let name = asking.name().filter(|name| *name != "main").unwrap_or("sonar-logs").to_owned();
            let run = move || jobs.into_iter().for_each(|job| job());
            std::thread::Builder::new().name(name).stack_size(STACK).spawn(run)?;
            self.to = Some(to);
        }
        self.to.as_ref().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

fn unanswered() -> io::Error {
    io::Error::new(io::ErrorKind::WouldBlock, "its file system does not answer")
}

/// A file that is open for reading.
#[derive(Debug)]
pub struct FollowedFile {
    /// `None` only while it is dropped.
    file: Option<Arc<File>>,
    /// Reads it, if the thread that follows it must not wait.
    thread: Option<Arc<FileThread>>,
}

impl From<File> for FollowedFile {
    fn from(file: File) -> Self {
        Self::new(file, None)
    }
}

impl FollowedFile {
    /// This file, read by `thread` if there is one.
    pub fn new(file: File, thread: Option<Arc<FileThread>>) -> Self {
        Self { file: Some(Arc::new(file)), thread }
    }

    /// What the file system knows of it.
    ///
    /// # Errors
    /// It cannot say, or does not answer.
    pub fn metadata(&self) -> io::Result<Metadata> {
        let file = self.file()?;
        match &self.thread {
            None => file.metadata(),
            Some(thread) => thread.run(move || file.metadata())?,
        }
    }

    /// Reads bytes from `offset` on; gives how many, 0 at the end of the file.
    ///
    /// # Errors
    /// They cannot be read, or the file system does not answer.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let file = self.file()?;
        let Some(thread) = &self.thread else { return file.read_at(buffer, offset) };
        // Whoever waits for the bytes may have given up by then.
        let mut bytes = vec![0; buffer.len()];
        let (length, bytes) =
            thread.run(move || file.read_at(&mut bytes, offset).map(|length| (length, bytes)))??;
        buffer[..length].copy_from_slice(&bytes[..length]);
        Ok(length)
    }

    /// Fills a buffer with the bytes from `offset` on.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at); [`io::ErrorKind::UnexpectedEof`] if there are fewer.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn file(&self) -> io::Result<Arc<File>> {
        self.file.clone().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Drop for FollowedFile {
    fn drop(&mut self) {
        if let (Some(file), Some(thread)) = (self.file.take(), &self.thread) {
            thread.discard(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn who_waits_for_a_file_system_goes_on_and_asks_again_once_it_has_answered() {
        let thread = FileThread { patience: Some(Duration::from_millis(20)), ..FileThread::default() };
        let (answer, answered) = channel::<()>();
        let waits = move || {
            let _ = answered.recv();
        };
        assert_eq!(thread.run(waits).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let (say, hear) = channel();
        assert_eq!(thread.run(move || say.send(()).unwrap()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(hear.recv().is_err(), "nothing else is asked until then");
        answer.send(()).unwrap();
        while thread.run(|| ()).is_err() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn after_a_failure_another_thread_works() {
        let thread = FileThread { patience: Some(Duration::from_secs(600)), ..FileThread::default() };
        assert_eq!(thread.run(|| 7).unwrap(), 7);
        assert_eq!(thread.run::<()>(|| panic!("it fails")).unwrap_err().kind(), io::ErrorKind::Other);
        assert_eq!(thread.run(|| 8).unwrap(), 8);
    }

    #[test]
    fn a_file_is_the_same_whoever_reads_it() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"a file").unwrap();
        for thread in [None, Some(Arc::new(FileThread::default()))] {
            let followed = FollowedFile::new(file.try_clone().unwrap(), thread);
            let mut bytes = [0; 4];
            followed.read_exact_at(&mut bytes, 2).unwrap();
            assert_eq!((&bytes, followed.metadata().unwrap().len()), (b"file", 6));
            assert_eq!(followed.read_at(&mut bytes, 5).unwrap(), 1);
            assert_eq!(
                followed.read_exact_at(&mut bytes, 3).unwrap_err().kind(),
                io::ErrorKind::UnexpectedEof
            );
        }
    }
}
