//! The key log of `--tls-keylog`: read at once, and followed as it grows where packets still come.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use sonar_core::{Coverage, TlsSuite};
use sonar_decode::{KeyLog, KeyLogReader};
use sonar_view::kit::plural;

/// How often a key log is read that grows. Packets wait longer in the ring.
const NAP: Duration = Duration::from_millis(100);

/// A key log that is open.
pub struct KeyLogFile {
    path: PathBuf,
    file: File,
    reader: KeyLogReader,
    keys: Arc<KeyLog>,
}

impl KeyLogFile {
    /// Opens a key log.
    ///
    /// # Errors
    /// It cannot be opened, or is a folder.
    pub fn open(path: &Path) -> Result<Self> {
        let about = || format!("cannot read the key log {}", path.display());
        let file = File::open(path).with_context(about)?;
        if file.metadata().with_context(about)?.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory)).with_context(about);
        }
        let keys = Arc::new(KeyLog::default());
        keys.set_in_use();
        Ok(Self { path: path.to_owned(), file, reader: KeyLogReader::default(), keys })
    }

    /// What decoders need of it.
    pub fn keys(&self) -> Arc<KeyLog> {
        self.keys.clone()
    }

    /// More may be written, which [`read`](Self::read) reads.
    pub fn set_growing(&self) {
        self.keys.set_growing();
    }

    /// Reads what has been written since.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&mut self) -> io::Result<()> {
        let mut chunk = vec![0; 64 << 10];
        loop {
            match self.file.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(got) => self.reader.read(&chunk[..got], &self.keys),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads what is left of it. Returns what of it is of no use.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn finish(mut self) -> Result<Coverage> {
        self.read().with_context(|| format!("cannot read the key log {}", self.path.display()))?;
        self.reader.finish(&self.keys);
        Ok(self.reader.coverage)
    }

    /// Reads what there is, and then follows the file in a thread of its own.
    ///
    /// # Errors
    /// It cannot be read, or a thread cannot be started.
    pub fn follow(mut self) -> Result<FollowedKeyLog> {
        self.set_growing();
        self.read().with_context(|| format!("cannot read the key log {}", self.path.display()))?;
        let (keep, ended) = channel::<()>();
        let run = move || {
            while ended.recv_timeout(NAP) == Err(RecvTimeoutError::Timeout) && self.read().is_ok() {}
            self.reader.finish(&self.keys);
            self.reader.coverage
        };
        let thread = std::thread::Builder::new().name("key-log".to_owned()).spawn(run);
        Ok(FollowedKeyLog { keep, thread: thread.context("cannot start a thread")? })
    }
}

/// A key log that is followed.
pub struct FollowedKeyLog {
    /// The thread ends when it is dropped.
    keep: Sender<()>,
    thread: JoinHandle<Coverage>,
}

impl FollowedKeyLog {
    /// Ends to follow it. Returns what of it is of no use.
    pub fn end(self) -> Coverage {
        drop(self.keep);
        self.thread.join().unwrap_or_default()
    }
}

/// Says which versions and cipher suites were not decrypted, if any.
pub fn undecrypted_note(suites: &[(TlsSuite, u64)]) -> Option<String> {
    let each =
        |(suite, connections): &(TlsSuite, u64)| format!("{suite} ({})", plural(*connections, "connection"));
    let list: Vec<_> = suites.iter().map(each).collect();
    (!list.is_empty())
        .then(|| format!("not decrypted, because of the version or cipher suite: {}", list.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_that_are_not_decrypted_are_named() {
        assert_eq!(undecrypted_note(&[]), None);
        let suites = [
            (TlsSuite { version: 0x0303, cipher: 0xc027 }, 2),
            (TlsSuite { version: 0x0301, cipher: 0x002f }, 1),
        ];
        let expected = "not decrypted, because of the version or cipher suite: TLSv1.2 \
                        TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256 (2 connections), TLSv1.0 TLS_RSA_WITH_AES_128_CBC_SHA \
                        (1 connection)";
        assert_eq!(undecrypted_note(&suites).as_deref(), Some(expected));
    }
}
