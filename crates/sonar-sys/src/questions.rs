//! Questions to a helper process and its answers, each of which has the number of its question.
//!
//! A helper may stand still for a while: it is stopped, or it waits for a disk. Whoever asked goes on without the answer,
//! which then comes late and must not be taken for that of the next question: it is discarded by its number, however much
//! of it had come.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::helper::{PATIENCE, receive_file, send_file};

/// The longest question, and the longest answer where no other length was said, in bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// The most files of an answer.
const MAX_FILES: usize = 64;
/// Number and length of a question.
const QUESTION_HEAD: usize = 12;
/// Number, length and number of files of an answer.
const ANSWER_HEAD: usize = 16;
/// How long to wait for an answer that is late already.
const LATE_PATIENCE: Duration = Duration::from_millis(200);

/// An answer.
#[derive(Debug, Default)]
pub struct HelperAnswer {
    /// What it says.
    pub bytes: Vec<u8>,
    /// Files that were opened for it.
    pub files: Vec<File>,
    /// In the helper: who closes them once they were sent.
    pub closer: FileCloser,
}

/// Closes files. Some file systems are asked even then, and may not answer: whoever must not wait lets others close them.
#[derive(Default)]
pub struct FileCloser(Option<Box<dyn FnOnce(Vec<File>) + Send>>);

impl FileCloser {
    /// Gives the files to `close`, which must not wait. Without it, as by default, they are closed at once.
    pub fn new(close: impl FnOnce(Vec<File>) + Send + 'static) -> Self {
        Self(Some(Box::new(close)))
    }

    /// Closes these, if there are any.
    pub fn close(self, files: Vec<File>) {
        if let Some(close) = self.0.filter(|_| !files.is_empty()) {
            close(files);
        }
    }
}

impl std::fmt::Debug for FileCloser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FileCloser")
    }
}

/// Asks a helper.
#[derive(Debug)]
pub struct QuestionSocket {
    /// `None` once the helper has ended, or has answered something that makes no sense.
    socket: Option<UnixStream>,
    /// The number of the last question.
    asked: u64,
    /// The number of the last answer.
    answered: u64,
    /// Answers that came late.
    late: u64,
    /// What has come of the next answer.
    incoming: IncomingAnswer,
    patience: Duration,
    /// The longest answer, in bytes.
    max_answer: usize,
    /// Closes the files of answers that nobody waits for.
    close: fn(Vec<File>),
}

/// What has come of an answer.
#[derive(Debug, Default)]
struct IncomingAnswer {
    /// With its head.
    bytes: Vec<u8>,
    files: Vec<File>,
}

impl QuestionSocket {
    /// To the helper on the other side of this socket.
    pub fn new(socket: UnixStream) -> Self {
        Self {
            socket: Some(socket),
            asked: 0,
            answered: 0,
            late: 0,
            incoming: IncomingAnswer::default(),
            patience: PATIENCE,
            max_answer: MAX_BYTES,
            close: drop,
        }
    }

    /// The same with answers of up to so many bytes.
    pub fn with_max_answer(mut self, max_answer: usize) -> Self {
        self.max_answer = max_answer;
        self
    }

    /// The same, but the files of answers that come late, or not as a whole, are closed by `close`, and not at once: their
    /// file systems may hold that up.
    pub fn with_closer(mut self, close: fn(Vec<File>)) -> Self {
        self.close = close;
        self
    }

    /// The same, but it waits this long for each answer, and not for ten seconds.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Whether the answer to the last question is missing, and may still come.
    pub fn is_unanswered(&self) -> bool {
        self.socket.is_some() && self.answered < self.asked
    }

    /// Whether there are no more answers.
    pub fn is_closed(&self) -> bool {
        self.socket.is_none()
    }

    /// Answers so far that came after nobody waited for them any more.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Sends a question and waits for its answer. While an earlier answer is missing it does not ask, and waits only for
    /// a moment.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] if the answer does not come now: the next question may have one. Any other error means
    /// that there are no more answers, and ends the helper.
    pub fn ask(&mut self, question: &[u8]) -> io::Result<HelperAnswer> {
        let answer = self.try_ask(question);
        match answer {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(ErrorKind::TimedOut.into()),
            Err(error) => {
                // A helper that still runs ends: nobody asks it any more.
                if let Some(socket) = self.socket.take() {
                    let _ = socket.shutdown(Shutdown::Both);
                }
                self.close_incoming();
                Err(error)
            }
            answer => answer,
        }
    }

    fn try_ask(&mut self, question: &[u8]) -> io::Result<HelperAnswer> {
        while self.answered < self.asked {
            let late = self.receive(LATE_PATIENCE)?;
            self.close_all(late.files);
            self.late += 1;
        }
        let number = self.asked + 1;
        let socket = self.socket.as_mut().ok_or(ErrorKind::BrokenPipe)?;
        let length = length_of(question.len()).ok().filter(|_| question.len() <= MAX_BYTES);
        let length = length.ok_or(ErrorKind::InvalidInput)?;
        let mut bytes = Vec::with_capacity(QUESTION_HEAD + question.len());
        bytes.extend(number.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.extend(question);
        // The helper has taken all earlier questions, so there is room for this one.
        socket.write_all(&bytes)?;
        self.asked = number;
        self.receive(self.patience)
    }

    /// The next answer. What has come of it stays if it does not come in time.
    fn receive(&mut self, patience: Duration) -> io::Result<HelperAnswer> {
        let Self { socket, incoming, max_answer, .. } = self;
        let socket = socket.as_mut().ok_or(ErrorKind::BrokenPipe)?;
        socket.set_read_timeout(Some(patience))?;
        incoming.fill(socket, ANSWER_HEAD)?;
        let (number, length, files) = head(&incoming.bytes).ok_or(ErrorKind::InvalidData)?;
        if number != self.answered + 1 || length > *max_answer || files > MAX_FILES {
            let what = format!("length {length}, number of files {files}");
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        }
        incoming.fill(socket, ANSWER_HEAD + length)?;
        while incoming.files.len() < files {
            incoming.files.push(receive_file(socket)?.ok_or(ErrorKind::InvalidData)?);
        }
        self.answered = number;
        let IncomingAnswer { mut bytes, files } = std::mem::take(incoming);
        bytes.drain(..ANSWER_HEAD);
        Ok(HelperAnswer { bytes, files, closer: FileCloser::default() })
    }

    fn close_all(&self, files: Vec<File>) {
        if !files.is_empty() {
            (self.close)(files);
        }
    }

    fn close_incoming(&mut self) {
        let files = std::mem::take(&mut self.incoming.files);
        self.close_all(files);
    }
}

impl Drop for QuestionSocket {
    fn drop(&mut self) {
        self.close_incoming();
    }
}

impl IncomingAnswer {
    /// Reads until there are so many bytes. What has come stays if the others do not come in time; there is no room for
    /// what has not come.
    fn fill(&mut self, socket: &mut UnixStream, length: usize) -> io::Result<()> {
        let missing = length.saturating_sub(self.bytes.len());
        let read = socket.take(missing as u64).read_to_end(&mut self.bytes)?;
        if read < missing { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

/// Number, length and number of files.
fn head(bytes: &[u8]) -> Option<(u64, usize, usize)> {
    let number = u64::from_le_bytes(*bytes.first_chunk()?);
    let length = u32::from_le_bytes(*bytes.get(8..)?.first_chunk()?);
    let files = u32::from_le_bytes(*bytes.get(12..)?.first_chunk()?);
    Some((number, length as usize, files as usize))
}

fn length_of(length: usize) -> io::Result<u32> {
    u32::try_from(length).map_err(|_| ErrorKind::InvalidData.into())
}

/// In the helper: answers questions until the other side has gone. It is up to the other side how long an answer may be.
/// Files beyond the most that an answer may have are left out.
///
/// # Errors
/// The other side has gone, or sends something else.
pub fn answer_all(
    mut socket: UnixStream,
    mut answer: impl FnMut(&[u8]) -> io::Result<HelperAnswer>,
) -> io::Result<()> {
    loop {
        let mut start = [0; QUESTION_HEAD];
        socket.read_exact(&mut start)?;
        let [number @ .., a, b, c, d] = start;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > MAX_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut question = vec![0; length];
        socket.read_exact(&mut question)?;
        let HelperAnswer { bytes, files, closer } = answer(&question)?;
        let sent = send(&mut socket, &number, &bytes, &files[..files.len().min(MAX_FILES)]);
        closer.close(files);
        sent?;
    }
}

/// Sends an answer to the question of this number.
fn send(socket: &mut UnixStream, number: &[u8], bytes: &[u8], files: &[File]) -> io::Result<()> {
    let lengths = [length_of(bytes.len())?, files.len() as u32].map(u32::to_le_bytes);
    socket.write_all(&[number, &lengths[0], &lengths[1]].concat())?;
    // An answer may be large, and is not copied.
    socket.write_all(bytes)?;
    files.iter().try_for_each(|file| send_file(socket, file))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// A helper that answers each question with itself and a file, as soon as it may.
    fn helper() -> (QuestionSocket, Sender<()>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (go, may) = channel();
        std::thread::spawn(move || {
            answer_all(theirs, |question| {
                may.recv().map_err(io::Error::other)?;
                let files = vec![File::open("/dev/null")?];
                Ok(HelperAnswer { bytes: question.to_vec(), files, ..HelperAnswer::default() })
            })
        });
        let patience = Duration::from_millis(20);
        (QuestionSocket::new(ours).with_patience(patience), go)
    }

    /// Waits until the answer that is missing has come.
    fn wait(socket: &mut QuestionSocket) {
        socket.patience = Duration::from_secs(600);
        while socket.answered < socket.asked {
            match socket.receive(socket.patience) {
                Ok(_) => socket.late += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn a_late_answer_is_discarded_and_the_next_question_has_its_own() {
        let (mut socket, go) = helper();
        for round in 1..=3 {
            socket.patience = Duration::from_millis(20);
            for _ in 0..2 {
                assert_eq!(socket.ask(b"late").unwrap_err().kind(), ErrorKind::TimedOut);
            }
            assert_eq!(socket.asked, round * 2 - 1, "it asks only once until there is an answer");
            go.send(()).unwrap();
            wait(&mut socket);
            go.send(()).unwrap();
            let answer = socket.ask(b"next").unwrap();
            assert_eq!((&*answer.bytes, answer.files.len(), socket.late()), (&b"next"[..], 1, round));
        }
        drop(go);
        assert_eq!(socket.ask(b"gone").unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(socket.ask(b"gone").unwrap_err().kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn others_close_the_files_of_an_answer_once_they_were_sent() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (give, closed) = channel();
        std::thread::spawn(move || {
            answer_all(theirs, |question| {
                let files = question.iter().map(|_| File::open("/dev/null")).collect::<io::Result<_>>()?;
                let give = give.clone();
                let closer = FileCloser::new(move |files| give.send(files.len()).unwrap());
                Ok(HelperAnswer { files, closer, ..HelperAnswer::default() })
            })
        });
        let mut socket = QuestionSocket::new(ours).with_patience(Duration::from_secs(600));
        assert_eq!(socket.ask(b"two").unwrap().files.len(), 3);
        assert!(socket.ask(b"").unwrap().files.is_empty());
        // Those beyond the most of an answer, too.
        assert_eq!(socket.ask(&[0; MAX_FILES + 1]).unwrap().files.len(), MAX_FILES);
        drop(socket);
        assert_eq!(closed.iter().collect::<Vec<_>>(), [3, MAX_FILES + 1]);
    }

    #[test]
    fn others_close_the_files_of_an_answer_that_comes_late_or_in_part() {
        static CLOSED: std::sync::Mutex<Vec<File>> = std::sync::Mutex::new(Vec::new());
        let close = |files: Vec<File>| CLOSED.lock().unwrap().extend(files);
        let (socket, go) = helper();
        let mut socket = socket.with_closer(close);
        assert_eq!(socket.ask(b"late").unwrap_err().kind(), ErrorKind::TimedOut);
        (0..2).for_each(|_| go.send(()).unwrap());
        // The late answer comes before this one, however long that takes.
        while socket.ask(b"next").is_err_and(|error| error.kind() == ErrorKind::TimedOut) {}
        assert!(!CLOSED.lock().unwrap().is_empty());
        CLOSED.lock().unwrap().clear();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let patience = Duration::from_millis(20);
        let mut socket = QuestionSocket::new(ours).with_patience(patience).with_closer(close);
        theirs.write_all(&[&1u64.to_le_bytes()[..], &[0; 4], &2u32.to_le_bytes()].concat()).unwrap();
        send_file(&theirs, &File::open("/dev/null").unwrap()).unwrap();
        assert_eq!(socket.ask(b"a").unwrap_err().kind(), ErrorKind::TimedOut);
        drop(socket);
        assert_eq!(CLOSED.lock().unwrap().len(), 1);
    }

    #[test]
    fn the_rest_of_an_answer_may_come_later() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        // Whoever started a helper has its socket, too.
        let _starter = ours.try_clone().unwrap();
        let mut socket = QuestionSocket::new(ours).with_patience(Duration::from_millis(20));
        let mut answer =
            [&1u64.to_le_bytes()[..], &4u32.to_le_bytes(), &1u32.to_le_bytes(), b"late"].concat();
        theirs.write_all(&answer.drain(..5).collect::<Vec<_>>()).unwrap();
        assert_eq!(socket.ask(b"a").unwrap_err().kind(), ErrorKind::TimedOut);
        theirs.write_all(&answer.drain(..13).collect::<Vec<_>>()).unwrap();
        assert_eq!(socket.ask(b"b").unwrap_err().kind(), ErrorKind::TimedOut);
        theirs.write_all(&answer).unwrap();
        assert_eq!(socket.ask(b"b").unwrap_err().kind(), ErrorKind::TimedOut, "the file is missing");
        send_file(&theirs, &File::open("/dev/null").unwrap()).unwrap();
        // Both are there at once.
        theirs.write_all(&[&2u64.to_le_bytes()[..], &2u32.to_le_bytes(), &[0; 4], b"ok"].concat()).unwrap();
        let answer = socket.ask(b"b").unwrap();
        assert_eq!((&*answer.bytes, answer.files.len(), socket.late()), (&b"ok"[..], 0, 1));
        // What makes no sense ends it.
        theirs.write_all(&[9; ANSWER_HEAD]).unwrap();
        assert_eq!(socket.ask(b"c").unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(socket.ask(b"c").unwrap_err().kind(), ErrorKind::BrokenPipe);
        // The helper gets no more questions, and ends.
        theirs.set_read_timeout(Some(Duration::from_secs(600))).unwrap();
        let mut questions = Vec::new();
        theirs.read_to_end(&mut questions).unwrap();
        assert_eq!(questions.len(), 3 * (QUESTION_HEAD + 1));
    }
}
