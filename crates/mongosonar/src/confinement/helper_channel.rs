//! Requests to a helper process that keeps privileges, and its answers. An answer that comes late is discarded, and the next
//! request has its own.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use sonar_sys::helper::Helper;
use sonar_sys::questions::{FileCloser, HelperAnswer, MAX_BYTES, QuestionSocket, answer_all};

use super::privileges::HelperTask;
use crate::input::follow::close_apart;
use crate::locking::lock;

/// The kind of error of a helper that gives no more answers. It is not [`io::ErrorKind::BrokenPipe`], which a command takes
/// for the end of whoever reads its output.
pub const HELPER_ENDED: io::ErrorKind = io::ErrorKind::ConnectionAborted;

/// A helper, used by one thread at a time, from a request to its answer.
#[derive(Debug)]
pub struct HelperChannel {
    socket: Mutex<QuestionSocket>,
    /// Ends with this, and not before, so that whoever watches helpers sees one that has ended by itself. `None` if the
    /// helper has other channels too, and in tests.
    _helper: Option<Helper>,
}

impl HelperChannel {
    /// Starts a helper, which runs `serve`. If that fails, returns `None` and prints what does not work. Call it before any
    /// thread is started.
    pub fn start(task: HelperTask, serve: impl FnOnce(UnixStream) -> io::Result<()>) -> Option<Self> {
        Self::to(task.start(serve)?).ok()
    }

    /// To this helper.
    ///
    /// # Errors
    /// Its socket cannot be duplicated.
    pub fn to(helper: Helper) -> io::Result<Self> {
        let channel = Self::over(helper.socket()?);
        Ok(Self { _helper: Some(helper), ..channel })
    }

    /// To a helper that has other channels too.
    pub fn over(socket: UnixStream) -> Self {
        let socket = QuestionSocket::new(socket).with_closer(close_apart);
        Self { socket: Mutex::new(socket), _helper: None }
    }

    /// The same with answers of up to so many bytes, and not of [`MAX_BYTES`].
    pub fn with_max_answer(self, bytes: usize) -> Self {
        self.with(|socket| socket.with_max_answer(bytes))
    }

    fn with(self, change: impl FnOnce(QuestionSocket) -> QuestionSocket) -> Self {
        let socket = self.socket.into_inner().unwrap_or_else(PoisonError::into_inner);
        Self { socket: Mutex::new(change(socket)), ..self }
    }

    /// To whatever answers on the other side of this socket, however long that takes.
    #[cfg(test)]
    pub fn patient(socket: UnixStream) -> Self {
        Self::impatient(socket, std::time::Duration::from_secs(3_600))
    }

    /// The same, and it waits so long for an answer.
    #[cfg(test)]
    pub fn impatient(socket: UnixStream, patience: std::time::Duration) -> Self {
        Self::over(socket).with(|socket| socket.with_patience(patience))
    }

    /// Sends a request; gives the answer, and the files that were opened for it.
    ///
    /// # Errors
    /// The helper refuses, or as [`HelperChannel::ask_bytes`].
    pub fn ask<T: for<'de> Deserialize<'de>>(&self, request: &impl Serialize) -> io::Result<(T, Vec<File>)> {
        let HelperAnswer { bytes, files, .. } = self.ask_bytes(&serde_json::to_vec(request)?)?;
        let answer: Result<T, Refusal> = serde_json::from_slice(&bytes)?;
        Ok((answer.map_err(Refusal::into_error)?, files))
    }

    /// The same for a request and an answer that are no JSON, where the helper says in its own way that it refuses.
    ///
    /// # Errors
    /// The helper does not answer now, which is [`io::ErrorKind::TimedOut`] and may pass; or it has ended, or its answer
    /// makes no sense, which is [`HELPER_ENDED`] and stays so.
    pub fn ask_bytes(&self, question: &[u8]) -> io::Result<HelperAnswer> {
        lock(&self.socket).ask(question).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => io::Error::new(error.kind(), "a helper process does not answer"),
            io::ErrorKind::InvalidData => {
                io::Error::new(HELPER_ENDED, format!("a helper process answers wrongly: {error}"))
            }
            _ => io::Error::new(HELPER_ENDED, "a helper process has ended"),
        })
    }

    /// Whether the helper has ended, or has answered something that makes no sense. From then on there are no answers.
    pub fn is_closed(&self) -> bool {
        lock(&self.socket).is_closed()
    }

    /// Whether the helper stands still: the answer to the last request is missing.
    pub fn is_late(&self) -> bool {
        lock(&self.socket).is_unanswered()
    }

    /// Answers so far that came late.
    pub fn late(&self) -> u64 {
        lock(&self.socket).late()
    }
}

/// Where requests are answered.
pub enum AnswerPlace<S> {
    /// In this process, which keeps its privileges.
    Here(Mutex<S>),
    /// In a helper.
    There(HelperChannel),
}

impl<S> AnswerPlace<S> {
    /// What the helper answers, or this process by `here`.
    ///
    /// # Errors
    /// As [`HelperChannel::ask`], or those of `here`.
    pub fn ask<T: for<'de> Deserialize<'de>>(
        &self,
        request: &impl Serialize,
        here: impl FnOnce(&mut S) -> io::Result<T>,
    ) -> io::Result<T> {
        match self {
            Self::Here(search) => here(&mut lock(search)),
            Self::There(channel) => channel.ask(request).map(|(answer, _)| answer),
        }
    }

    /// The files that the helper opens, or this process by `here`.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn open(
        &self,
        request: &impl Serialize,
        here: impl FnOnce(&mut S) -> io::Result<Vec<File>>,
    ) -> io::Result<Vec<File>> {
        match self {
            Self::Here(search) => here(&mut lock(search)),
            Self::There(channel) => channel.ask::<()>(request).map(|((), files)| files),
        }
    }

    /// The same for one file.
    ///
    /// # Errors
    /// As [`ask`](Self::ask); [`io::ErrorKind::InvalidData`] if there is none.
    pub fn open_one(
        &self,
        request: &impl Serialize,
        here: impl FnOnce(&mut S) -> io::Result<Vec<File>>,
    ) -> io::Result<File> {
        self.open(request, here)?.pop().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// In the helper: answers requests until the other side has gone.
///
/// # Errors
/// The other side has gone, or sends something else.
pub fn serve<R: for<'de> Deserialize<'de>>(
    socket: UnixStream,
    mut answer: impl FnMut(R) -> io::Result<HelperAnswer>,
) -> io::Result<()> {
    answer_all(socket, |question| answer(serde_json::from_slice(question)?))
}

/// What the helper answers. What is too long, or cannot be written as JSON, is refused, and the helper goes on.
///
/// # Errors
/// Not even a refusal can be written.
pub fn answer<T: Serialize>(answer: io::Result<T>) -> io::Result<HelperAnswer> {
    answer_with(answer, Vec::new())
}

/// The same with files.
///
/// # Errors
/// As [`answer`].
pub fn answer_with<T: Serialize>(answer: io::Result<T>, files: Vec<File>) -> io::Result<HelperAnswer> {
    let answer = answer.map_err(|error| Refusal::of(&error));
    let why = match serde_json::to_vec(&answer) {
        Ok(bytes) if bytes.len() <= MAX_BYTES => {
            return Ok(HelperAnswer { bytes, files, ..HelperAnswer::default() });
        }
        Ok(_) => "the answer is too long".to_owned(),
        Err(error) => format!("the answer cannot be written: {error}"),
    };
    let refusal = Refusal { kind: RefusalKind::Other, why };
    let bytes = serde_json::to_vec(&Err::<(), _>(refusal))?;
    Ok(HelperAnswer { bytes, ..HelperAnswer::default() })
}

/// What the helper answers about files that it has opened, or why it has not. They are closed by `closer`.
///
/// # Errors
/// As [`answer`].
pub fn answer_files(opened: io::Result<Vec<File>>, closer: FileCloser) -> io::Result<HelperAnswer> {
    match opened {
        Ok(files) => Ok(HelperAnswer { closer, ..answer_with(Ok(()), files)? }),
        Err(error) => answer::<()>(Err(error)),
    }
}

/// The next bytes of a question or an answer that is no JSON.
///
/// # Errors
/// There are fewer.
pub fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Why the helper refuses.
#[derive(Debug, Serialize, Deserialize)]
struct Refusal {
    kind: RefusalKind,
    why: String,
}

/// What follows from a refusal.
#[derive(Debug, Serialize, Deserialize)]
enum RefusalKind {
    Missing,
    Denied,
    Other,
}

impl Refusal {
    /// An error as a message.
    fn of(error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => RefusalKind::Missing,
            io::ErrorKind::PermissionDenied => RefusalKind::Denied,
            _ => RefusalKind::Other,
        };
        Self { kind, why: error.to_string() }
    }

    /// The error again.
    fn into_error(self) -> io::Error {
        let kind = match self.kind {
            RefusalKind::Missing => io::ErrorKind::NotFound,
            RefusalKind::Denied => io::ErrorKind::PermissionDenied,
            RefusalKind::Other => io::ErrorKind::Other,
        };
        io::Error::new(kind, self.why)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_refusal_keeps_its_kind() {
        for kind in [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied, io::ErrorKind::Other] {
            let error = Refusal::of(&io::Error::new(kind, "why")).into_error();
            assert_eq!((error.kind(), error.to_string()), (kind, "why".to_owned()));
        }
    }

    #[test]
    fn an_answer_that_is_too_long_or_cannot_be_written_is_refused_and_the_helper_goes_on() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            serve(theirs, |length: usize| match length {
                // serde_json has no such keys.
                0 => answer(Ok(std::collections::BTreeMap::from([(vec![1], "a")]))),
                length => answer(Ok("a".repeat(length))),
            })
        });
        let channel = HelperChannel::patient(ours);
        for (length, why) in [(0, "the answer cannot be written: "), (2 << 20, "the answer is too long")] {
            let error = channel.ask::<String>(&length).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Other);
            assert!(error.to_string().starts_with(why), "{error}");
            assert_eq!(channel.ask::<String>(&3).unwrap().0, "aaa");
        }
    }

    #[test]
    fn an_answer_arrives_with_its_files() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            serve(theirs, |request: (String, u8)| match request.1 {
                0 => answer(Ok(request.0)),
                1 => answer_with(Ok(request.0), vec![File::open("/dev/null")?]),
                _ => answer_files(Err(io::ErrorKind::NotFound.into()), FileCloser::default()),
            })
        });
        let channel = HelperChannel::patient(ours);
        for number in 0..2u8 {
            let (text, files): (String, _) = channel.ask(&("a", number)).unwrap();
            assert_eq!((text, files.len()), ("a".to_owned(), usize::from(number)));
        }
        let kind = |number: u32| channel.ask::<()>(&("a", number)).unwrap_err().kind();
        assert_eq!(kind(2), io::ErrorKind::NotFound);
        // It makes no sense, so the helper ends.
        assert_eq!(kind(1_000), HELPER_ENDED);
    }

    #[test]
    fn a_late_answer_is_not_taken_for_the_next_one_and_the_helper_is_asked_again() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let channel = HelperChannel::impatient(ours, Duration::from_millis(20)).with_max_answer(4);
        let answer =
            |number: u64, text: &[u8]| [&number.to_le_bytes(), &[4, 0, 0, 0, 0, 0, 0, 0][..], text].concat();
        theirs.write_all(&answer(1, b"good")).unwrap();
        assert_eq!(channel.ask_bytes(b"1").unwrap().bytes, b"good");
        theirs.write_all(&answer(2, b"late")[..18]).unwrap();
        for question in [b"2", b"x"] {
            let error = channel.ask_bytes(question).unwrap_err();
            assert_eq!(error.to_string(), "a helper process does not answer");
            assert!(error.kind() == io::ErrorKind::TimedOut && channel.is_late() && !channel.is_closed());
        }
        // The helper has got no other question meanwhile.
        let mut questions = [0; 26];
        theirs.read_exact(&mut questions).unwrap();
        assert_eq!((questions[12], questions[25]), (b'1', b'2'));
        theirs.write_all(b"te").unwrap();
        theirs.write_all(&answer(3, b"next")).unwrap();
        assert_eq!(channel.ask_bytes(b"3").unwrap().bytes, b"next");
        assert!(!channel.is_late() && channel.late() == 1);
        let too_long = [&4u64.to_le_bytes(), &[5, 0, 0, 0, 0, 0, 0, 0][..]].concat();
        theirs.write_all(&too_long).unwrap();
        let error = channel.ask_bytes(b"4").unwrap_err();
        assert!(error.to_string().starts_with("a helper process answers wrongly: length 5"), "{error}");
        assert!(error.kind() == HELPER_ENDED && channel.is_closed());
    }

    #[test]
    fn a_helper_that_has_gone_is_reported() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let channel = HelperChannel::over(ours);
        for _ in 0..2 {
            let error = channel.ask_bytes(b"1").unwrap_err();
            assert_eq!(
                (error.kind(), error.to_string()),
                (HELPER_ENDED, "a helper process has ended".into())
            );
            assert!(channel.is_closed() && !channel.is_late());
        }
        assert_ne!(
            HELPER_ENDED,
            io::ErrorKind::BrokenPipe,
            "a command would end as if its output were closed"
        );
    }
}
