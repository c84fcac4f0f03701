//! The socket to a helper process, with the words for why an answer does not arrive.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;

use anyhow::{Error, Result};
use sonar_sys::helper::Helper;
use sonar_sys::questions::{HelperAnswer, QuestionSocket};

use crate::input::follow::close_apart;

const ENDED: &str = "the helper process has ended";
const LATE: &str = "the helper process does not answer";

/// Sends questions to a helper process and receives its answers. An answer that comes late is discarded, and the next
/// question has its own.
#[derive(Debug)]
pub struct HelperSocket {
    socket: QuestionSocket,
    /// Ends with the socket.
    helper: Option<Helper>,
}

impl HelperSocket {
    /// To this helper, whose answers have up to so many bytes. It ends with this.
    ///
    /// # Errors
    /// The socket cannot be duplicated.
    pub fn to(helper: Helper, max_answer: usize) -> io::Result<Self> {
        let socket = Self::new(helper.socket()?, max_answer).socket;
        Ok(Self { socket, helper: Some(helper) })
    }

    /// To a helper that has other sockets too.
    pub fn new(socket: UnixStream, max_answer: usize) -> Self {
        let socket = QuestionSocket::new(socket).with_max_answer(max_answer).with_closer(close_apart);
        Self { socket, helper: None }
    }

    /// The same; it waits for longer than any test runs.
    #[cfg(test)]
    pub fn patient(socket: UnixStream, max_answer: usize) -> Self {
        let socket = QuestionSocket::new(socket).with_max_answer(max_answer);
        Self { socket: socket.with_patience(std::time::Duration::from_secs(86_400)), helper: None }
    }

    /// The same; it hardly waits.
    #[cfg(test)]
    pub fn impatient(socket: UnixStream, max_answer: usize) -> Self {
        let socket = QuestionSocket::new(socket).with_max_answer(max_answer);
        Self { socket: socket.with_patience(std::time::Duration::from_millis(20)), helper: None }
    }

    /// Whether the helper has ended, or has answered something that makes no sense. From then on there are no answers.
    pub fn is_closed(&self) -> bool {
        self.socket.is_closed()
    }

    /// Whether the helper stands still: the answer to the last question is missing.
    pub fn is_late(&self) -> bool {
        self.socket.is_unanswered()
    }

    /// Sends a question and receives the answer.
    ///
    /// # Errors
    /// The helper has ended, or does not answer now.
    pub fn ask(&mut self, question: &[u8]) -> Result<HelperAnswer> {
        let answer = self.socket.ask(question);
        if self.socket.is_closed() {
            self.helper = None;
        }
        answer.map_err(|error| match error.kind() {
            ErrorKind::TimedOut => Error::msg(LATE),
            ErrorKind::InvalidData => Error::msg(format!("the helper process answers wrongly: {error}")),
            ErrorKind::BrokenPipe => Error::msg(ENDED),
            _ => Error::new(error).context(ENDED),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_late_answer_is_not_taken_for_the_next_one_and_the_helper_is_asked_again() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut socket = HelperSocket::impatient(ours, 4);
        let answer =
            |number: u64, text: &[u8]| [&number.to_le_bytes(), &[4, 0, 0, 0, 0, 0, 0, 0][..], text].concat();
        theirs.write_all(&answer(1, b"good")).unwrap();
        assert_eq!(socket.ask(b"1").unwrap().bytes, b"good");
        theirs.write_all(&answer(2, b"late")[..18]).unwrap();
        for question in [b"2", b"x"] {
            assert_eq!(socket.ask(question).unwrap_err().to_string(), LATE);
            assert!(socket.is_late() && !socket.is_closed());
        }
        // The helper has got no other question meanwhile.
        let mut questions = [0; 26];
        theirs.read_exact(&mut questions).unwrap();
        assert_eq!((questions[12], questions[25]), (b'1', b'2'));
        theirs.write_all(b"te").unwrap();
        theirs.write_all(&answer(3, b"next")).unwrap();
        assert_eq!(socket.ask(b"3").unwrap().bytes, b"next");
        assert!(!socket.is_late());
    }

    #[test]
    fn a_helper_that_has_gone_is_reported() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let mut socket = HelperSocket::new(ours, 4);
        for _ in 0..2 {
            assert_eq!(socket.ask(b"1").unwrap_err().to_string(), ENDED);
            assert!(socket.is_closed() && !socket.is_late());
        }
    }
}
