//! The socket to a helper process, which is closed when an answer does not arrive.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Result, anyhow, bail};
use sonar_sys::helper::Helper;

const ENDED: &str = "the helper process has ended";

/// Sends questions to a helper process and receives its answers.
///
/// After the first error it is closed: the rest of that answer would be taken for the answer to the next question.
#[derive(Debug)]
pub struct HelperSocket {
    socket: Option<UnixStream>,
    /// Ends with the socket.
    helper: Option<Helper>,
}

impl HelperSocket {
    /// To this helper, which ends when the socket is closed.
    ///
    /// # Errors
    /// The socket cannot be duplicated.
    pub fn to(helper: Helper) -> io::Result<Self> {
        Ok(Self { socket: Some(helper.socket()?), helper: Some(helper) })
    }

    /// To a helper that has other sockets too.
    pub fn new(socket: UnixStream) -> Self {
        Self { socket: Some(socket), helper: None }
    }

    /// Whether an answer did not arrive. From then on there are none.
    pub fn is_closed(&self) -> bool {
        self.socket.is_none()
    }

    /// Sends a question and receives the answer with `receive`, which fails only if the answer does not arrive or
    /// makes no sense.
    ///
    /// # Errors
    /// The helper has ended or does not answer now, or did not answer an earlier question.
    pub fn ask<T>(
        &mut self,
        question: &[u8],
        receive: impl FnOnce(&mut UnixStream) -> io::Result<T>,
    ) -> Result<T> {
        let Some(socket) = &mut self.socket else { bail!(ENDED) };
        let answer = socket.write_all(question).and_then(|()| receive(socket));
        answer.map_err(|error| {
            self.socket = None;
            self.helper = None;
            match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    anyhow!("the helper process does not answer")
                }
                io::ErrorKind::InvalidData => anyhow!("the helper process answers wrongly: {error}"),
                _ => anyhow!(error).context(ENDED),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_late_answer_is_not_taken_for_the_next_one() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut socket = HelperSocket::new(ours);
        let receive = |socket: &mut UnixStream| {
            let mut bytes = [0; 4];
            socket.read_exact(&mut bytes)?;
            Ok(bytes)
        };
        theirs.write_all(b"good").unwrap();
        assert_eq!(socket.ask(b"1", receive).unwrap(), *b"good");
        theirs.write_all(b"lat").unwrap();
        assert_eq!(socket.ask(b"2", receive).unwrap_err().to_string(), "the helper process does not answer");
        assert!(socket.is_closed());
        for _ in 0..2 {
            assert_eq!(socket.ask(b"3", receive).unwrap_err().to_string(), ENDED);
        }
        // The helper sees the end after the second question.
        let mut questions = Vec::new();
        theirs.read_to_end(&mut questions).unwrap();
        assert_eq!(questions, b"12");
        assert_eq!(theirs.write_all(b"e").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_helper_that_has_gone_is_reported() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let mut socket = HelperSocket::new(ours);
        assert_eq!(socket.ask(b"1", |_| Ok(())).unwrap_err().to_string(), ENDED);
        assert!(socket.is_closed());
    }
}
