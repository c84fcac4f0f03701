//! A helper process that keeps privileges which this process drops.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, getrlimit, kill_process, set_parent_process_death_signal,
    setrlimit, waitpid,
};

use crate::sys_process;

/// The helper process. It ends when this is dropped, and when this process ends for any reason.
#[derive(Debug)]
pub struct Helper {
    child: Pid,
    socket: Option<UnixStream>,
}

/// The numbers of all helpers of this process.
static STARTED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// The numbers of the helper processes that were started and not dropped. They may have ended by themselves.
pub fn started() -> Vec<u32> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// How long the helper may take to end.
const ENDING: Duration = Duration::from_secs(2);
/// How long an answer may take.
pub const PATIENCE: Duration = Duration::from_secs(10);

impl Helper {
    /// Starts a helper, which runs `serve` on its end of a socket until that returns. Call it before starting any
    /// thread. It inherits standard input, output and error, these descriptors, and no others.
    ///
    /// # Errors
    /// There are threads already, or no process can be created.
    pub fn start(kept: &InheritedDescriptors<'_>, serve: impl FnOnce(UnixStream)) -> io::Result<Self> {
        if std::fs::read_dir("/proc/self/task")?.count() != 1 {
            return Err(io::Error::other("the program has several threads already"));
        }
        let (ours, theirs) = UnixStream::pair()?;
        let parent = std::process::id();
        match sys_process::fork()? {
            Some(child) => {
                ours.set_read_timeout(Some(PATIENCE))?;
                ours.set_write_timeout(Some(PATIENCE))?;
                let helper = Self { child, socket: Some(ours) };
                STARTED.lock().unwrap_or_else(PoisonError::into_inner).push(helper.id());
                Ok(helper)
            }
            None => {
                drop(ours);
                let _ = set_parent_process_death_signal(Some(Signal::KILL));
                let is_closed = close_inherited(kept, theirs.as_raw_fd()).is_ok();
                // The parent ends it by closing the socket; Ctrl-C reaches the whole process group.
                if is_closed && std::os::unix::process::parent_id() == parent {
                    sys_process::ignore_signals();
                    let _ = catch_unwind(AssertUnwindSafe(|| serve(theirs)));
                }
                sys_process::exit_now(0)
            }
        }
    }

    /// The socket to it.
    ///
    /// # Errors
    /// It cannot be duplicated.
    pub fn socket(&self) -> io::Result<UnixStream> {
        self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?.try_clone()
    }

    /// Ends it at once, whatever it waits for.
    pub fn kill(&self) {
        // It may have ended by itself.
        let _ = kill_process(self.child, Signal::KILL);
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.as_raw_pid().unsigned_abs()
    }
}

/// In a new helper: closes sockets of earlier helpers, rings, maps of eBPF programs and what else is open, but not its own
/// socket, and not what it works with.
fn close_inherited(kept: &InheritedDescriptors<'_>, socket: RawFd) -> io::Result<()> {
    sys_process::close_all_but(|descriptor| descriptor == socket || kept.has(descriptor))
}

/// Limits the memory of this process that no file backs and that is its own: its heap, the stacks of its threads, its
/// variables. What it allocates beyond that many bytes fails, and it ends. Files that it maps do not count, however large
/// they are, and neither do maps of eBPF programs: they are not its own. (That is `RLIMIT_DATA`; `RLIMIT_AS` counts
/// everything that it maps.)
///
/// # Errors
/// The kernel refuses.
pub fn limit_memory(bytes: usize) -> io::Result<()> {
    let most = getrlimit(Resource::Data).maximum;
    // A limit can be lowered without privileges, and not raised.
    let bytes = Some(most.map_or(bytes as u64, |most| most.min(bytes as u64)));
    Ok(setrlimit(Resource::Data, Rlimit { current: bytes, maximum: bytes })?)
}

/// In a helper: it goes on when the process that started it has ended, until it ends by itself. It notices that end at its
/// socket.
///
/// # Errors
/// The kernel refuses.
pub fn outlive_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(None)?)
}

/// Gives this process a name in lists of processes. The kernel keeps 15 bytes of it.
pub fn name_process(name: &str) {
    if let Ok(name) = CString::new(name) {
        // A process without a name works too.
        let _ = rustix::thread::set_name(&name);
    }
}

/// What a helper works with that is open when it starts.
#[derive(Debug)]
pub enum InheritedDescriptors<'a> {
    /// Nothing.
    Nothing,
    /// These.
    These(&'a [BorrowedFd<'a>]),
    /// What has been opened since that moment.
    OpenedSince(OpenDescriptors),
}

impl InheritedDescriptors<'_> {
    fn has(&self, descriptor: RawFd) -> bool {
        match self {
            Self::Nothing => false,
            Self::These(kept) => kept.iter().any(|one| one.as_raw_fd() == descriptor),
            Self::OpenedSince(before) => !before.0.contains(&descriptor),
        }
    }
}

/// The descriptors that are open at a moment.
#[derive(Debug)]
pub struct OpenDescriptors(HashSet<RawFd>);

impl OpenDescriptors {
    /// Those that are open now.
    ///
    /// # Errors
    /// They cannot be listed.
    pub fn now() -> io::Result<Self> {
        let entries = std::fs::read_dir("/proc/self/fd")?;
        let listed: Vec<RawFd> =
            entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
        // The list was read from one that is closed by now, whose number the next one gets.
        let is_open = |descriptor: &RawFd| std::fs::read_link(format!("/proc/self/fd/{descriptor}")).is_ok();
        Ok(Self(listed.into_iter().filter(is_open).collect()))
    }
}

/// Sends an open file to the other side, which receives it with [`receive_file`].
///
/// # Errors
/// The other side has gone.
pub fn send_file(socket: &UnixStream, file: &File) -> io::Result<()> {
    let descriptors = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    retry_on_intr(|| sendmsg(socket, &[IoSlice::new(&[1])], &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives the file that [`send_file`] sent; `None` if the other side sent a plain byte instead.
///
/// # Errors
/// The other side has gone.
pub fn receive_file(socket: &UnixStream) -> io::Result<Option<File>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let sent = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok(sent.map(File::from))
}

impl Drop for Helper {
    fn drop(&mut self) {
        let own = self.id();
        STARTED.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| *one != own);
        if let Some(socket) = self.socket.take() {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        let ended = || !matches!(waitpid(Some(self.child), WaitOptions::NOHANG), Ok(None) | Err(Errno::INTR));
        let until = Instant::now() + ENDING;
        while !ended() {
            if Instant::now() >= until {
                // It may hang in the kernel, where not even this ends it: nothing waits for that.
                let _ = kill_process(self.child, Signal::KILL);
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_signal_does_not_end_the_wait_for_a_file() {
        let (one, other) = UnixStream::pair().unwrap();
        let (say, thread) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn(move || {
            say.send(sys_process::interruptible()).unwrap();
            receive_file(&other)
        });
        let thread = thread.recv().unwrap();
        for _ in 0..5 {
            // span: until another moment of its wait
            std::thread::sleep(Duration::from_millis(20));
            sys_process::interrupt(thread);
        }
        // Nobody receives it after the other side has given up.
        let _ = send_file(&one, &File::open("/dev/null").unwrap());
        assert!(waiting.join().unwrap().unwrap().is_some());
    }

    /// Set in a process that closes what it has: `all`, `but these`, or `but opened`.
    const CLOSES: &str = "SONAR_SYS_CLOSES_INHERITED";

    /// A process that closes what a helper inherits, and tells what is open then. The test of the next lines starts it:
    /// in its own process other threads use what would be closed, and a fork of that has their locks.
    #[test]
    #[ignore = "another test runs it, in a process of its own"]
    fn a_process_that_closes_what_it_inherited() {
        let Ok(closes) = std::env::var(CLOSES) else { return };
        let (earlier, socket) = UnixStream::pair().unwrap();
        let before = OpenDescriptors::now().unwrap();
        let opened = File::open("/dev/null").unwrap();
        let these = [opened.as_fd()];
        let kept = match &*closes {
            "but these" => InheritedDescriptors::These(&these),
            "but opened" => InheritedDescriptors::OpenedSince(before),
            _ => InheritedDescriptors::Nothing,
        };
        close_inherited(&kept, socket.as_raw_fd()).unwrap();
        let is_open = |descriptor: RawFd| std::fs::read_link(format!("/proc/self/fd/{descriptor}")).is_ok();
        let standard = [0, 1, 2].map(is_open);
        let others = [&earlier as &dyn AsRawFd, &socket, &opened].map(|one| is_open(one.as_raw_fd()));
        let told = writeln!(std::io::stdout(), "open: {standard:?} {others:?}").is_ok();
        sys_process::exit_now(i32::from(!told));
    }

    #[test]
    fn a_helper_inherits_neither_the_sockets_of_others_nor_what_is_open() {
        let kept = "[false, true, true]";
        for (closes, expected) in [("all", "[false, true, false]"), ("but these", kept), ("but opened", kept)]
        {
            let name = "helper::tests::a_process_that_closes_what_it_inherited";
            let done = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name, "--ignored", "--nocapture"])
                .env(CLOSES, closes)
                .output()
                .unwrap();
            let told = String::from_utf8_lossy(&done.stdout).into_owned();
            assert!(told.contains(&format!("open: [true, true, true] {expected}")), "{closes}: {told}");
        }
    }

    #[test]
    fn a_file_reaches_the_other_side() {
        let (one, other) = UnixStream::pair().unwrap();
        let path = std::env::temp_dir().join(format!("sonar-sys-helper-{}", std::process::id()));
        std::fs::write(&path, "whole").unwrap();
        send_file(&one, &File::open(&path).unwrap()).unwrap();
        let mut text = String::new();
        receive_file(&other).unwrap().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "whole");
        (&one).write_all(b"x").unwrap();
        assert!(receive_file(&other).unwrap().is_none());
        drop(one);
        assert_eq!(receive_file(&other).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        std::fs::remove_file(&path).unwrap();
    }
}
