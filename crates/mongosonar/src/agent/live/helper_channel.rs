//! Requests of the agent to a helper process that keeps privileges, and its answers.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use sonar_sys::helper::{Helper, receive_file, send_file};

/// The longest message, in bytes.
const MAX_MESSAGE: u32 = 1 << 20;

/// A helper, used by one thread at a time, from a request to its answer.
#[derive(Debug)]
pub struct HelperChannel {
    /// Kept so that the helper ends with this process.
    _helper: Helper,
    /// `None` once an answer did not come: a late one would be taken for that of the next request.
    socket: Mutex<Option<UnixStream>>,
}

impl HelperChannel {
    /// To this helper; `None` if it cannot be reached.
    pub fn new(helper: Helper) -> Option<Self> {
        let socket = helper.socket().ok()?;
        Some(Self { _helper: helper, socket: Mutex::new(Some(socket)) })
    }

    /// Sends a request and takes the answer. The outer result of `answer` is about the socket, the inner one is what the
    /// helper answers.
    ///
    /// # Errors
    /// The helper refuses; or it has ended or does not answer, which is [`io::ErrorKind::BrokenPipe`] and stays so.
    pub fn ask<T>(
        &self,
        request: &impl Serialize,
        answer: impl FnOnce(&mut UnixStream) -> io::Result<io::Result<T>>,
    ) -> io::Result<T> {
        let mut place = lock(&self.socket);
        let Some(socket) = place.as_mut() else { return Err(lost()) };
        match write_message(socket, request).and_then(|()| answer(socket)) {
            Ok(answer) => answer,
            Err(_) => {
                *place = None;
                Err(lost())
            }
        }
    }
}

fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the helper process has ended or does not answer")
}

/// Writes a message with its length before it.
///
/// # Errors
/// The other side has gone, or the message is too long.
pub fn write_message(socket: &mut UnixStream, message: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= MAX_MESSAGE);
    let length = length.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    socket.write_all(&length.to_le_bytes())?;
    socket.write_all(&bytes)
}

/// Reads what [`write_message`] writes.
///
/// # Errors
/// The other side has gone, or sends something else.
pub fn read_message<T: for<'de> Deserialize<'de>>(socket: &mut UnixStream) -> io::Result<T> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > MAX_MESSAGE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length as usize];
    socket.read_exact(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// Sends an open file, or why it cannot be opened.
///
/// # Errors
/// The other side has gone.
pub fn send_opened(socket: &mut UnixStream, opened: io::Result<File>) -> io::Result<()> {
    match opened {
        Ok(file) => send_file(socket, &file),
        Err(error) => {
            socket.write_all(&[0])?;
            write_message(socket, &Refusal::of(&error))
        }
    }
}

/// Receives what [`send_opened`] sends.
///
/// # Errors
/// The other side has gone.
pub fn receive_opened(socket: &mut UnixStream) -> io::Result<io::Result<File>> {
    match receive_file(socket)? {
        Some(file) => Ok(Ok(file)),
        None => Ok(Err(read_message::<Refusal>(socket)?.into_error())),
    }
}

/// Why the helper refuses.
#[derive(Debug, Serialize, Deserialize)]
pub struct Refusal {
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
    pub fn of(error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => RefusalKind::Missing,
            io::ErrorKind::PermissionDenied => RefusalKind::Denied,
            _ => RefusalKind::Other,
        };
        Self { kind, why: error.to_string() }
    }

    /// The error again.
    pub fn into_error(self) -> io::Error {
        let kind = match self.kind {
            RefusalKind::Missing => io::ErrorKind::NotFound,
            RefusalKind::Denied => io::ErrorKind::PermissionDenied,
            RefusalKind::Other => io::ErrorKind::Other,
        };
        io::Error::new(kind, self.why)
    }
}

/// Takes a lock, whatever happened to the thread that had it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_kind() {
        for kind in [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied, io::ErrorKind::Other] {
            let error = Refusal::of(&io::Error::new(kind, "why")).into_error();
            assert_eq!((error.kind(), error.to_string()), (kind, "why".to_owned()));
        }
    }

    #[test]
    fn a_message_arrives_whole_and_a_wrong_length_is_refused() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        write_message(&mut one, &("a", vec![1, 2])).unwrap();
        assert_eq!(read_message::<(String, Vec<u8>)>(&mut other).unwrap(), ("a".to_owned(), vec![1, 2]));
        one.write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert_eq!(read_message::<u8>(&mut other).unwrap_err().kind(), io::ErrorKind::InvalidData);
        send_opened(&mut one, Err(io::ErrorKind::NotFound.into())).unwrap();
        assert_eq!(receive_opened(&mut other).unwrap().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
