//! The key log of `--tls-keylog`: read at once, and again where a secret is missing while packets still come.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use sonar_core::{Coverage, TlsSuite};
use sonar_decode::{KeyLog, KeyLogReader, KeyLogSource};
use sonar_view::kit::{escape, plural};

use crate::exit::usage;

/// The file, how far it was read.
struct OpenKeyLog {
    file: File,
    reader: KeyLogReader,
}

impl OpenKeyLog {
    /// Reads what has been written since.
    fn read(&mut self, keys: &KeyLog) -> io::Result<()> {
        let mut chunk = [0; 16 << 10];
        loop {
            match self.file.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(got) => self.reader.read(&chunk[..got], keys),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
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
        let open = Arc::new(Mutex::new(OpenKeyLog { file, reader: KeyLogReader::default() }));
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
