//! The key log of `--tls-keylog`: read at once, and again where a secret is missing while packets still come.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use sonar_core::{Coverage, TlsSuite};
use sonar_decode::{KeyLog, KeyLogReader, KeyLogSource};
use sonar_view::kit::{escape, plural};

use crate::exit::usage;

/// How much of the beginning is compared, in bytes: beyond a comment, a key log has random numbers.
const HEAD: usize = 512;

/// The file, how far it was read.
struct OpenKeyLog {
    file: File,
    reader: KeyLogReader,
    /// How it began, at most [`HEAD`] bytes.
    head: Vec<u8>,
}

impl OpenKeyLog {
    fn new(file: File) -> Self {
        Self { file, reader: KeyLogReader::default(), head: Vec::new() }
    }

    /// Reads what has been written since; all of it if it was truncated and written again.
    fn read(&mut self, keys: &KeyLog) -> io::Result<()> {
        if self.was_rewritten()? {
            self.file.rewind()?;
            let coverage = self.reader.coverage;
            self.reader = KeyLogReader::default();
            self.reader.coverage = coverage;
            self.head.clear();
        }
        let mut chunk = [0; 16 << 10];
        loop {
            match self.file.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(got) => {
                    let room = HEAD - self.head.len();
                    self.head.extend_from_slice(&chunk[..got.min(room)]);
                    self.reader.read(&chunk[..got], keys);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl OpenKeyLog {
    /// Whether it is shorter than what was read of it, or begins otherwise. It only reads and seeks, because a confined
    /// thread may not ask for the size of a file.
    fn was_rewritten(&mut self) -> io::Result<bool> {
        // A pipe has no position.
        let Ok(at) = self.file.stream_position() else { return Ok(false) };
        if self.head.is_empty() {
            return Ok(false);
        }
        if self.file.seek(SeekFrom::End(0))? < at {
            return Ok(true);
        }
        self.file.rewind()?;
        let mut now = Vec::with_capacity(self.head.len());
        let read = (&self.file).take(self.head.len() as u64).read_to_end(&mut now);
        self.file.seek(SeekFrom::Start(at))?;
        read?;
        Ok(now != self.head)
    }
}

/// A key log that decoders read themselves.
struct SharedKeyLog(Arc<Mutex<OpenKeyLog>>);

impl KeyLogSource for SharedKeyLog {
    fn read(&mut self, keys: &KeyLog) {
        // `finish` reports an error.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).read(keys).ok();
    }
}

/// A key log that is open.
pub struct KeyLogFile {
    path: PathBuf,
    open: Arc<Mutex<OpenKeyLog>>,
    keys: Arc<KeyLog>,
}

impl KeyLogFile {
    /// Reads a key log. `grows`: it is read again where a secret is missing.
    ///
    /// # Errors
    /// It cannot be read, or grows and is no file.
    pub fn open(path: &Path, grows: bool) -> Result<Self> {
        let about = || format!("cannot read the key log {}", path.display());
        // A pipe would make whoever reads packets wait.
        if grows && !std::fs::metadata(path).with_context(about)?.is_file() {
            return Err(usage!(
                "{}: --tls-keylog follows a file while packets come, nothing else",
                path.display()
            ));
        }
        let file = File::open(path).with_context(about)?;
        let open = Arc::new(Mutex::new(OpenKeyLog::new(file)));
        let keys = if grows { KeyLog::growing(SharedKeyLog(open.clone())) } else { KeyLog::default() };
        keys.set_in_use();
        let key_log = Self { path: path.to_owned(), open, keys: Arc::new(keys) };
        key_log.read(!grows).with_context(about)?;
        Ok(key_log)
    }

    /// What decoders need of it.
    pub fn keys(&self) -> Arc<KeyLog> {
        self.keys.clone()
    }

    /// Reads what is left, and counts what of all of it is of no use. If it cannot be read, a message says so: what was
    /// captured is shown all the same.
    pub fn finish(self, coverage: &mut Coverage) {
        if let Err(error) = self.read(true) {
            eprintln!(
                "mongosonar: cannot read the end of the key log {}: {error}",
                escape(&self.path.display().to_string())
            );
        }
        coverage.add(&self.open.lock().unwrap_or_else(PoisonError::into_inner).reader.coverage);
    }

    /// Reads what has been written since; `to_its_end`: its last line, too.
    fn read(&self, to_its_end: bool) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.read(&self.keys)?;
        if to_its_end {
            open.reader.finish(&self.keys);
        }
        Ok(())
    }
}

/// Adds the connections of each version and cipher suite to those that are known.
pub fn add_suites(all: &mut Vec<(TlsSuite, u64)>, more: &[(TlsSuite, u64)]) {
    for (suite, connections) in more {
        match all.iter_mut().find(|(known, _)| known == suite) {
            Some((_, sum)) => *sum += connections,
            None => all.push((*suite, *connections)),
        }
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
    use std::sync::mpsc::channel;

    use sonar_sys::privileges::{self, Duty};

    use super::*;

    fn line(byte: &str) -> String {
        format!("CLIENT_RANDOM {} {}\n", byte.repeat(32), byte.repeat(48))
    }

    #[test]
    fn a_confined_thread_reads_a_key_log_again_that_was_truncated_or_written_anew() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        let comment = "# SSL/TLS secrets log file, generated by NSS\n";
        let steps = [
            (comment.to_owned() + &line("a1") + &line("a2"), 2),
            // It only grows.
            (comment.to_owned() + &line("a1") + &line("a2") + &line("a3"), 3),
            // Shorter, and the last line has not ended.
            (line("b1") + "CLIENT_RANDOM b2", 4),
            // Not shorter, with another beginning; the half line is gone.
            (comment.to_owned() + &line("c1") + &line("c2"), 6),
            (String::new(), 6),
            (line("d1"), 7),
        ];
        let file = File::open(&path).unwrap();
        let ((ask, asked), (answer, answers)) = (channel::<()>(), channel());
        let thread = std::thread::spawn(move || {
            privileges::drop_capabilities(&[]).unwrap();
            privileges::confine(Duty::Decoding).unwrap();
            let (mut open, keys) = (OpenKeyLog::new(file), KeyLog::default());
            while asked.recv().is_ok() {
                let read = open.read(&keys).map_err(|error| error.to_string());
                answer.send((read, keys.sessions(), open.reader.coverage.tls_keys_unread)).unwrap();
            }
        });
        for (content, sessions) in &steps {
            write(content);
            ask.send(()).unwrap();
            assert_eq!(answers.recv().unwrap(), (Ok(()), *sessions, 0), "{content}");
        }
        drop(ask);
        thread.join().unwrap();
    }

    #[test]
    fn suites_of_several_captures_are_added_up() {
        let suite = |cipher| TlsSuite { version: 0x0303, cipher };
        let mut all = vec![(suite(0xc027), 2)];
        add_suites(&mut all, &[(suite(0x002f), 1), (suite(0xc027), 3)]);
        assert_eq!(all, [(suite(0xc027), 5), (suite(0x002f), 1)]);
    }

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
