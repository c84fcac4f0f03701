//! The agent's end of the socket over which the page asks for operations that run.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use sonar_view::now::NowSnapshot;

use crate::serve::running_link::message;

/// Questions that are read at once; one answer is for all of them.
const MAX_QUESTIONS: usize = 64;

/// Hands lists to the page, without ever waiting for it.
pub struct RunningChannel {
    socket: UnixStream,
    /// The list that is being sent.
    bytes: Vec<u8>,
    sent: usize,
}

impl RunningChannel {
    /// Over this socket.
    ///
    /// # Errors
    /// It cannot be used without waiting.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, bytes: Vec::new(), sent: 0 })
    }

    /// Whether the page has asked since this was last called.
    pub fn is_asked(&mut self) -> bool {
        let mut questions = [0; MAX_QUESTIONS];
        matches!(self.socket.read(&mut questions), Ok(count) if count > 0)
    }

    /// Begins to send a list. One that is not sent yet is in the hands of a page that does not read: it is not replaced.
    pub fn send(&mut self, snapshot: NowSnapshot) {
        if self.bytes.is_empty() {
            self.bytes = message(snapshot);
            self.flush();
        }
    }

    /// Sends on, as much as there is room for.
    pub fn flush(&mut self) {
        while self.sent < self.bytes.len() {
            match self.socket.write(&self.bytes[self.sent..]) {
                Ok(count) if count > 0 => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The helper has ended, which is reported elsewhere.
                Ok(_) | Err(_) => break,
            }
        }
        (self.bytes, self.sent) = (Vec::new(), 0);
    }

    /// The bytes of the list that is being sent.
    pub fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::running_link::{ASK, read_message};

    #[test]
    fn a_page_that_does_not_read_holds_up_nobody_and_gets_whole_lists() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut channel = RunningChannel::new(ours).unwrap();
        assert!(!channel.is_asked());
        theirs.write_all(&[ASK, ASK]).unwrap();
        assert!(channel.is_asked() && !channel.is_asked(), "one answer is for both");
        let long =
            |at_ns| NowSnapshot { at_ns, problems: vec!["x".repeat(900_000)], ..NowSnapshot::default() };
        // More than a socket takes.
        channel.send(long(1));
        assert!(channel.memory() > 0);
        channel.send(long(2));
        let reader = std::thread::spawn(move || {
            let read = read_message(&mut theirs).map(|snapshot| snapshot.at_ns);
            (read, theirs)
        });
        while channel.memory() > 0 {
            channel.flush();
            std::thread::yield_now();
        }
        let (read, theirs) = reader.join().unwrap();
        assert_eq!(read.unwrap(), 1, "the first one, in full");
        drop(theirs);
        channel.send(long(3));
        assert_eq!(channel.memory(), 0, "nobody is there any more");
        assert!(!channel.is_asked());
    }
}
