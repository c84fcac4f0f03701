//! A followed file that is open, and the threads that wait for its file system.
//!
//! A file system may stop answering: a server of NFS is gone, a disk is broken. A thread that asks it then stands still, and
//! not even a signal wakes it. So whoever follows files of several file systems lets other threads wait: one, and another
//! one for each place whose file system does not answer.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use sonar_sys::questions::FileCloser;

use crate::confinement::start_order;
use crate::locking::lock;

/// How long a file system may take to answer. A busy disk takes less.
pub const FILE_PATIENCE: Duration = Duration::from_secs(5);

/// In the last part of that time, of so many, another thread shows whether threads get to run.
const PROBE_PART: u32 = 4;

/// The size of a thread's stack in bytes.
const STACK: usize = 128 << 10;
/// The most threads of one [`FileThreads`]: their stacks have to fit into the memory of a helper.
const MAX_THREADS: usize = 24;
/// The most threads that wait for the file systems of one owner at once: one user's servers leave threads for those of
/// others.
const MAX_OF_OWNER: usize = 12;
/// The most threads that close files of one owner.
const MAX_CLOSING_OF_OWNER: usize = 4;

type FileJob = Box<dyn FnOnce() + Send>;

/// The threads that wait for file systems for one thread, at most 24: one that waits for work, one that closes files, and
/// those that stand still.
#[derive(Default)]
pub struct FileThreads {
    state: Mutex<FileThreadsState>,
    /// How often nobody was asked because so many places of the same owner do not answer.
    refused: AtomicU64,
    /// The same because so many files of the same owner are being closed for long.
    refused_closing: AtomicU64,
    /// Another patience, for tests.
    patience: Option<Duration>,
    /// What threads were to do that never get to run, in tests.
    #[cfg(test)]
    never_run: Option<Mutex<Vec<Receiver<FileJob>>>>,
}

#[derive(Default)]
struct FileThreadsState {
    /// Has nothing to do.
    spare: Option<FileWorker>,
    /// Closes files; nobody waits for it.
    closer: Option<FileWorker>,
    /// Those that were late, and may still be.
    late: Vec<OwnedWork>,
    /// Those that close files, until they have.
    closing: Vec<OwnedWork>,
    /// Each thread has one more of it until it ends.
    running: Arc<()>,
}

/// What a thread does for one owner.
struct OwnedWork {
    owner: Option<u32>,
    worker: FileWorker,
    since: Instant,
}

impl OwnedWork {
    fn new(owner: Option<u32>, worker: FileWorker) -> Self {
        Self { owner, worker, since: Instant::now() }
    }
}

/// A thread.
#[derive(Clone)]
struct FileWorker {
    to: Sender<FileJob>,
    /// How much of its work has not ended.
    pending: Arc<AtomicUsize>,
}

/// One piece of work of a thread, until it has ended, in whichever way.
struct PendingWork(Arc<AtomicUsize>);

impl PendingWork {
    fn new(pending: &Arc<AtomicUsize>) -> Self {
        pending.fetch_add(1, Ordering::AcqRel);
        Self(pending.clone())
    }
}

impl Drop for PendingWork {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Works on the files of one place for others, who wait for it for a while only.
#[derive(Clone, Default)]
pub struct FileThread {
    threads: Arc<FileThreads>,
    /// Whose files these are, by the number of the user.
    owner: Option<u32>,
    /// What nobody waits for any more.
    late: Arc<Mutex<Option<LateWork>>>,
}

/// Work that has not been done in time.
struct LateWork {
    worker: FileWorker,
    why: WhyLate,
}

/// Why work was not done in time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum WhyLate {
    /// Another thread gets to run, or cannot be asked: this one waits for its file system.
    FileSystem,
    /// No thread gets to run.
    Processors,
    /// Nobody asked it: too many others of its owner do not answer.
    OthersOfOwner,
    /// Nobody asked it: too many files of its owner could not be closed yet.
    ClosedOfOwner,
}

impl std::fmt::Debug for FileThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FileThread")
    }
}

/// A thread that never gets to run.
#[cfg(test)]
fn never_runs(jobs: &Mutex<Vec<Receiver<FileJob>>>) -> FileWorker {
    let (to, never) = channel();
    lock(jobs).push(never);
    FileWorker { to, pending: Arc::default() }
}

impl FileThread {
    /// For one place of a user, by one of these threads.
    pub fn of(threads: &Arc<FileThreads>, owner: Option<u32>) -> Self {
        Self { threads: threads.clone(), owner, late: Arc::default() }
    }

    /// Lets a thread work, and waits for the result. What comes later is discarded there, also files that were opened.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is no answer yet, and asking again later may help: the file system does not
    /// answer within five seconds, or has not answered an earlier request; no thread gets to run in that time; or no thread
    /// is left or can be started, because too many file systems, or 12 of the same owner, do not answer, or 4 files of the
    /// same owner have not been closed in that time. Or the thread has failed.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        self.run_within(self.threads.patience.unwrap_or(FILE_PATIENCE), work)
    }

    /// The same, and waits for another time.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_within<T: Send + 'static>(
        &self,
        patience: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let mut late = lock(&self.late);
        let worker = self.worker(&mut late, patience)?;
        let (give, result) = channel();
        worker.give(move || {
            let value = work();
            // Nobody may wait for it any more.
            let _ = give.send(value);
        });
        let for_probe = patience / PROBE_PART;
        let mut answer = result.recv_timeout(patience - for_probe);
        let mut why = WhyLate::FileSystem;
        if matches!(answer, Err(RecvTimeoutError::Timeout)) {
            let probe = self.threads.probe();
            answer = result.recv_timeout(for_probe);
            why = WhyLate::of(probe, Duration::ZERO);
        }
        match answer {
            Ok(value) => {
                self.threads.put_back(worker);
                Ok(value)
            }
            Err(RecvTimeoutError::Timeout) => {
                // Whatever comes before nobody receives it is discarded there, too.
                worker.give(move || drop(result));
                let work = LateWork { worker, why };
                self.threads.note_late(self.owner, &work);
                *late = Some(work);
                Err(why.error())
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(io::Error::other("the thread that reads it has failed"))
            }
        }
    }

    /// Lets a thread work, and does not wait: `work` says itself what comes of it. Until it has ended, no other work is
    /// done for this place.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn begin(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut late = lock(&self.late);
        let worker = self.worker(&mut late, FILE_PATIENCE)?;
        worker.give(work);
        let work = LateWork { worker, why: WhyLate::FileSystem };
        self.threads.note_late(self.owner, &work);
        *late = Some(work);
        Ok(())
    }

    /// An idle thread. If it is unknown why the last work is late, this waits up to `patience` to find out.
    fn worker(&self, late: &mut Option<LateWork>, patience: Duration) -> io::Result<FileWorker> {
        if let Some(before) = late.as_mut().filter(|late| late.worker.is_busy()) {
            // It may have begun meanwhile, and wait for its file system now.
            if before.why == WhyLate::Processors {
                before.why = WhyLate::of(self.threads.probe(), patience);
                self.threads.note_late(self.owner, before);
            }
            return Err(before.why.error());
        }
        if late.is_none()
            && let Some(why) = self.threads.refuses(self.owner)
        {
            return Err(why.error());
        }
        let late_worker = late.take().map(|late| late.worker);
        match late_worker.map_or_else(|| self.threads.take(), |worker| Ok(Some(worker))) {
            Ok(Some(worker)) => Ok(worker),
            Ok(None) => Err(WhyLate::FileSystem.error()),
            // Nobody waits here for what may never come.
            Err(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Closes files as [`discard`](Self::discard) does.
    pub fn closer(&self) -> FileCloser {
        let thread = self.clone();
        FileCloser::new(move |files| thread.discard(files))
    }

    /// Lets a thread drop something, and does not wait: even closing a file asks some file systems.
    pub fn discard(&self, value: impl Send + 'static) {
        match lock(&self.late).as_ref().filter(|late| late.worker.is_busy()) {
            Some(late) => late.worker.give(move || drop(value)),
            None => self.threads.close(self.owner, value),
        }
    }
}

impl FileThreads {
    /// How many threads there are.
    #[cfg(test)]
    pub fn running(&self) -> usize {
        lock(&self.state).count()
    }

    /// Sentences about how often nobody was asked because so many places of the same owner do not answer, or so many of its
    /// files are not closed, if that was so.
    pub fn notes(&self) -> Vec<String> {
        let said = |why: String, refused: &AtomicU64| {
            let refused = refused.load(Ordering::Relaxed);
            (refused > 0).then(|| format!("files not read, because {why}: {refused} times"))
        };
        let others = said(format!("{MAX_OF_OWNER} others of their user do not answer"), &self.refused);
        let closed = format!("{MAX_CLOSING_OF_OWNER} others of their user cannot be closed");
        others.into_iter().chain(said(closed, &self.refused_closing)).collect()
    }

    /// Counts work that waits for a file system of an owner.
    fn note_late(&self, owner: Option<u32>, late: &LateWork) {
        if late.why == WhyLate::FileSystem {
            lock(&self.state).late.push(OwnedWork::new(owner, late.worker.clone()));
        }
    }

    /// Why no place of an owner is asked, if so many others do not answer.
    fn refuses(&self, owner: Option<u32>) -> Option<WhyLate> {
        let mut state = lock(&self.state);
        let patience = self.patience.unwrap_or(FILE_PATIENCE);
        let closing = busy_of(&mut state.closing, owner).filter(|one| one.since.elapsed() >= patience);
        let cannot_close = closing.count() >= MAX_CLOSING_OF_OWNER;
        let (why, counter) = if busy_of(&mut state.late, owner).count() >= MAX_OF_OWNER {
            (WhyLate::OthersOfOwner, &self.refused)
        } else if cannot_close {
            (WhyLate::ClosedOfOwner, &self.refused_closing)
        } else {
            return None;
        };
        counter.fetch_add(1, Ordering::Relaxed);
        Some(why)
    }

    /// A thread that has nothing to do; `None` if all of them stand still.
    fn take(&self) -> io::Result<Option<FileWorker>> {
        let mut state = lock(&self.state);
        let FileThreadsState { spare, closer, .. } = &mut *state;
        match spare.take().or_else(|| closer.take_if(|closer| !closer.is_busy())) {
            Some(worker) => Ok(Some(worker)),
            #[cfg(test)]
            None if self.never_run.is_some() => Ok(self.never_run.as_ref().map(never_runs)),
            None if state.count() < MAX_THREADS => state.start().map(Some),
            None => Ok(None),
        }
    }

    /// Lets another thread say that it runs; `None` if there is none that can.
    fn probe(&self) -> Option<Receiver<()>> {
        let Ok(Some(worker)) = self.take() else { return None };
        let (runs, probe) = channel();
        worker.give(move || {
            let _ = runs.send(());
        });
        // What it is given next comes after that.
        self.put_back(worker);
        Some(probe)
    }

    /// Takes a thread back that has done its work.
    fn put_back(&self, worker: FileWorker) {
        // Another one may be there: this one ends then.
        lock(&self.state).spare.get_or_insert(worker);
    }

    /// Lets a thread drop something of an owner.
    fn close(&self, owner: Option<u32>, value: impl Send + 'static) {
        let mut state = lock(&self.state);
        // Behind what it waits for already.
        if let Some(closing) = busy_of(&mut state.closing, owner).nth(MAX_CLOSING_OF_OWNER - 1) {
            return closing.worker.give(move || drop(value));
        }
        let can_start = state.count() < MAX_THREADS;
        // A file system that does not answer holds up the files of others only where no thread is left.
        let is_free = |closer: &FileWorker| !closer.is_busy() || !can_start;
        if state.spare.is_some() || !state.closer.as_ref().is_some_and(is_free) {
            let next = state.spare.take().map_or_else(|| state.start(), Ok);
            // Without a thread it stays open: who waits here might wait for ever.
            let Ok(next) = next else { return std::mem::forget(value) };
            let before = state.closer.replace(next);
            state.spare = before.filter(|before| !before.is_busy());
        }
        if let Some(closer) = &state.closer {
            closer.give(move || drop(value));
            let worker = closer.clone();
            state.closing.push(OwnedWork::new(owner, worker));
        }
    }
}

/// Of this work, what threads still do for an owner.
fn busy_of(work: &mut Vec<OwnedWork>, owner: Option<u32>) -> impl Iterator<Item = &OwnedWork> {
    work.retain(|one| one.worker.is_busy());
    work.iter().filter(move |one| one.owner == owner)
}

impl FileThreadsState {
    fn count(&mut self) -> usize {
        // Threads that nobody needs any more end.
        self.late.retain(|one| one.worker.is_busy());
        self.closing.retain(|one| one.worker.is_busy());
        Arc::strong_count(&self.running) - 1
    }

    fn start(&self) -> io::Result<FileWorker> {
        let (to, jobs) = channel::<FileJob>();
        // The time of it is that of the thread that asks. Of main threads only those of helpers ask, whose name it inherits.
        let asking = std::thread::current();
        let builder = std::thread::Builder::new().stack_size(STACK);
        let builder = match asking.name().filter(|name| *name != "main") {
            Some(name) => builder.name(name.to_owned()),
            None => builder,
        };
        let running = self.running.clone();
        let run = move || {
            let _running = running;
            jobs.into_iter().for_each(|job| job());
        };
        builder.spawn(run)?;
        Ok(FileWorker { to, pending: Arc::default() })
    }
}

impl FileWorker {
    fn is_busy(&self) -> bool {
        self.pending.load(Ordering::Acquire) > 0
    }

    /// Gives it work, after what it was given before.
    fn give(&self, work: impl FnOnce() + Send + 'static) {
        let pending = PendingWork::new(&self.pending);
        // If the thread has failed, nothing comes of it.
        let _ = self.to.send(Box::new(move || {
            let _pending = pending;
            work();
        }));
    }
}

impl WhyLate {
    /// By whether a thread says within this time that it runs.
    fn of(probe: Option<Receiver<()>>, patience: Duration) -> Self {
        match probe.is_some_and(|probe| probe.recv_timeout(patience).is_err()) {
            true => Self::Processors,
            false => Self::FileSystem,
        }
    }

    fn error(self) -> io::Error {
        let text = match self {
            Self::FileSystem => "its file system does not answer".to_owned(),
            Self::Processors => {
                "the thread that reads it gets no processor time: the machine is busy".to_owned()
            }
            Self::OthersOfOwner => {
                format!("it is not asked, because {MAX_OF_OWNER} others of its user do not answer")
            }
            Self::ClosedOfOwner => {
                format!("it is not asked, because {MAX_CLOSING_OF_OWNER} files of its user cannot be closed")
            }
        };
        io::Error::new(io::ErrorKind::WouldBlock, text)
    }
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

    /// Opens a file that is read by `thread`, if that has nothing else to wait for.
    ///
    /// # Errors
    /// Those of `open`, and of [`FileThread::run`].
    pub fn open(
        thread: Option<Arc<FileThread>>,
        open: impl FnOnce() -> io::Result<File>,
    ) -> io::Result<Self> {
        // Otherwise each try would leave a file behind that nobody can close.
        thread.iter().try_for_each(|thread| thread.run(|| ()))?;
        Ok(Self::new(open()?, thread))
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

/// A file of which others may have the file system: it is closed by [`close_apart`], or whoever else was said.
#[derive(Debug)]
pub struct ForeignFile {
    /// `None` only while it is dropped.
    file: Option<File>,
    closer: FileCloser,
}

impl From<File> for ForeignFile {
    fn from(file: File) -> Self {
        Self { file: Some(file), closer: FileCloser::new(close_apart) }
    }
}

impl ForeignFile {
    /// The file.
    ///
    /// # Errors
    /// It has none.
    pub fn get(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Lets another one close it.
    pub fn set_closer(&mut self, closer: FileCloser) {
        self.closer = closer;
    }
}

impl Drop for ForeignFile {
    fn drop(&mut self) {
        std::mem::take(&mut self.closer).close(self.file.take().into_iter().collect());
    }
}

/// Closes files, and does not wait: other threads do it, as soon as some may be started.
pub fn close_apart(files: Vec<File>) {
    static THREADS: LazyLock<FileThreads> = LazyLock::new(FileThreads::default);
    if !files.is_empty() {
        start_order::once_dropped(move || THREADS.close(None, files));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn threads(patience: Duration) -> Arc<FileThreads> {
        Arc::new(FileThreads { patience: Some(patience), ..FileThreads::default() })
    }

    #[test]
    fn threads_that_do_not_get_to_run_are_no_file_system_that_does_not_answer() {
        let threads = Arc::new(FileThreads {
            patience: Some(Duration::from_millis(20)),
            never_run: Some(Mutex::default()),
            ..FileThreads::default()
        });
        let place = FileThread::of(&threads, None);
        for _ in 0..2 {
            let error = place.run(|| ()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            assert!(error.to_string().contains("the machine is busy"), "{error}");
        }
    }

    #[test]
    fn a_file_system_that_does_not_answer_is_said_where_other_threads_run() {
        let place = FileThread::of(&threads(Duration::from_secs(600)), None);
        let (answer, answered) = channel::<()>();
        let waits = move || {
            let _ = answered.recv();
        };
        // Whether the probe runs in so short a time is open; it is asked again, as long as it takes.
        assert!(place.run_within(Duration::from_millis(4), waits).is_err());
        let error = place.run(|| ()).unwrap_err();
        assert_eq!(error.to_string(), "its file system does not answer");
        drop(answer);
    }

    /// Lets a place wait until the sender is dropped.
    fn hang(place: &FileThread) -> Sender<()> {
        let (answer, answered) = channel::<()>();
        let waits = move || {
            let _ = answered.recv();
        };
        assert_eq!(place.run(waits).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        answer
    }

    #[test]
    fn who_waits_for_a_file_system_goes_on_and_asks_again_once_it_has_answered() {
        let thread = FileThread::of(&threads(Duration::from_millis(20)), None);
        let answer = hang(&thread);
        let (say, hear) = channel();
        assert_eq!(thread.run(move || say.send(()).unwrap()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(hear.recv().is_err(), "nothing else is asked until then");
        drop(answer);
        while thread.run(|| ()).is_err() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn places_share_a_thread_as_long_as_their_file_systems_answer() {
        let threads = threads(Duration::from_secs(600));
        let places: Vec<FileThread> = (0..300).map(|_| FileThread::of(&threads, None)).collect();
        for _ in 0..2 {
            assert!(places.iter().enumerate().all(|(at, place)| place.run(move || at).unwrap() == at));
        }
        assert_eq!(threads.running(), 1);
    }

    #[test]
    fn a_place_that_hangs_holds_up_no_other_one_until_too_many_do() {
        let threads = threads(Duration::from_millis(1));
        let owned = |at: usize| FileThread::of(&threads, Some((at / MAX_OF_OWNER) as u32));
        let hanging: Vec<FileThread> = (0..MAX_THREADS).map(owned).collect();
        let mut answers: Vec<Sender<()>> = hanging.iter().map(hang).collect();
        let other = FileThread::of(&threads, None);
        let (say, hear) = channel();
        assert_eq!(other.run(move || say.send(()).unwrap()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(hear.recv().is_err(), "nobody was asked");
        assert_eq!(threads.running(), MAX_THREADS);
        // Who is no longer asked for stands still all the same.
        drop(hanging);
        assert_eq!(threads.running(), MAX_THREADS);
        answers.pop();
        while other.run(|| ()).is_err() {
            std::thread::yield_now();
        }
        answers.clear();
        while threads.running() > 1 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn places_of_one_owner_that_hang_leave_threads_for_those_of_others() {
        let threads = threads(Duration::from_millis(1));
        let place = |owner| FileThread::of(&threads, owner);
        let hanging: Vec<FileThread> = (0..MAX_OF_OWNER).map(|_| place(Some(7))).collect();
        let mut answers: Vec<Sender<()>> = hanging.iter().map(hang).collect();
        // Only then they count, however busy the machine is.
        let hangs = |place: &FileThread| place.run(|| ()).unwrap_err().to_string().contains("file system");
        while !hanging.iter().all(hangs) {
            std::thread::yield_now();
        }
        let other = place(Some(7));
        for refused in 1..=2 {
            let error = other.run(|| ()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            assert!(error.to_string().contains("12 others of its user"), "{error}");
            let said = "files not read, because 12 others of their user do not answer";
            assert_eq!(threads.notes(), [format!("{said}: {refused} times")]);
        }
        for owner in [Some(8), None] {
            let another = place(owner);
            while another.run(|| ()).is_err() {
                std::thread::yield_now();
            }
        }
        assert!(threads.notes()[0].ends_with(": 2 times"));
        // One that answers makes room for another one, also if its place is gone.
        drop(hanging);
        answers.pop();
        while other.run(|| ()).is_err() {
            std::thread::yield_now();
        }
    }

    /// Something whose closing takes until the sender is dropped.
    struct SlowToClose(Receiver<()>);

    impl Drop for SlowToClose {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn nobody_waits_for_a_file_that_is_closed() {
        let threads = threads(Duration::from_secs(600));
        let place = FileThread::of(&threads, None);
        let mut answers = Vec::new();
        let mut close = |place: &FileThread| {
            let (answer, answered) = channel();
            place.discard(SlowToClose(answered));
            answers.push(answer);
        };
        (0..MAX_THREADS * 2).for_each(|_| close(&place));
        assert_eq!(threads.running(), MAX_CLOSING_OF_OWNER);
        (0..MAX_THREADS as u32 * 2).for_each(|owner| close(&FileThread::of(&threads, Some(owner))));
        assert_eq!(threads.running(), MAX_THREADS);
        answers.clear();
        while threads.running() > 1 {
            std::thread::yield_now();
        }
        assert_eq!(place.run(|| 7).unwrap(), 7);
    }

    #[test]
    fn of_an_owner_whose_files_cannot_be_closed_no_other_ones_are_opened() {
        let threads = threads(Duration::from_millis(20));
        let place = FileThread::of(&threads, Some(7));
        let mut answers = Vec::new();
        for _ in 0..MAX_CLOSING_OF_OWNER {
            let (answer, answered) = channel();
            place.discard(SlowToClose(answered));
            answers.push(answer);
        }
        let place = Arc::new(place);
        let opened = |place: &Arc<FileThread>| {
            FollowedFile::open(Some(place.clone()), || File::open("/dev/null")).map(drop)
        };
        // Only after a while, as closing may take a moment; a busy machine has other reasons.
        let reason = loop {
            match opened(&place) {
                Err(error) if error.to_string().contains("4 files of its user cannot be closed") => {
                    break error;
                }
                _ => std::thread::yield_now(),
            }
        };
        assert_eq!(reason.kind(), io::ErrorKind::WouldBlock);
        let said = "files not read, because 4 others of their user cannot be closed: ";
        assert!(threads.notes().iter().any(|note| note.starts_with(said)), "{:?}", threads.notes());
        let another = Arc::new(FileThread::of(&threads, Some(8)));
        while opened(&another).is_err() {
            std::thread::yield_now();
        }
        answers.clear();
        while opened(&place).is_err() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_comes_late_is_discarded_by_the_thread_that_made_it() {
        /// Says in which thread it is dropped.
        struct SaysWhere(Sender<std::thread::ThreadId>);
        impl Drop for SaysWhere {
            fn drop(&mut self) {
                let _ = self.0.send(std::thread::current().id());
            }
        }
        // Now and then it comes at the last moment, and is there when nobody receives it any more.
        for _ in 0..300 {
            let thread = FileThread::of(&threads(Duration::from_micros(60)), None);
            let (say, dropped) = channel();
            let (made, maker) = channel();
            let answer = thread.run(move || {
                let _ = made.send(std::thread::current().id());
                SaysWhere(say)
            });
            if answer.is_err()
                && let (Ok(maker), Ok(dropped)) = (maker.recv(), dropped.recv())
            {
                assert_eq!(dropped, maker);
            }
        }
    }

    #[test]
    fn a_thread_that_closes_one_file_after_another_is_busy_until_the_last_one_is_closed() {
        let threads = threads(Duration::from_secs(600));
        let place = FileThread::of(&threads, Some(7));
        let mut answers: Vec<Sender<()>> = Vec::new();
        for _ in 0..=MAX_CLOSING_OF_OWNER {
            let (answer, answered) = channel();
            place.discard(SlowToClose(answered));
            answers.push(answer);
        }
        // The last one is behind that of the last thread, which answers.
        answers.remove(MAX_CLOSING_OF_OWNER - 1);
        let closer = || lock(&threads.state).closer.clone().unwrap();
        while closer().pending.load(Ordering::Acquire) > 1 {
            std::thread::yield_now();
        }
        assert!(closer().is_busy());
        assert_eq!(FileThread::of(&threads, Some(8)).run(|| 7).unwrap(), 7);
    }

    #[test]
    fn after_a_failure_another_thread_works() {
        let thread = FileThread::of(&threads(Duration::from_secs(600)), None);
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
