//! The key log of `--tls-keylog`: read at once, and again where a secret is missing while packets still come. A file that
//! takes its place under the same name is read from then on, as `tail -F` does.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use sonar_core::{Coverage, TlsSuite};
use sonar_decode::{KeyLog, KeyLogReader, KeyLogSource};
use sonar_sys::host::regular;
use sonar_view::kit::{escape, plural};

use crate::confinement::privileges;
use crate::confinement::start_gate::{EarlyThread, StartGate};
use crate::confinement::thread_starter::ThreadStarter;
use crate::exit::usage;

/// How much of the beginning is compared, in bytes: beyond a comment, a key log has random numbers.
const HEAD: usize = 512;
/// How often to look which file has the name.
const LOOK_EVERY: Duration = Duration::from_millis(100);

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

/// Follows the name of a key log: whoever decodes may open no file.
struct KeyLogFollower {
    path: PathBuf,
    open: Arc<Mutex<OpenKeyLog>>,
    keys: Arc<KeyLog>,
    /// Which file is open, by its device and number.
    identity: (u64, u64),
}

impl KeyLogFollower {
    /// Opens the file that has the name now, if it is another one, behind the end of the one before.
    ///
    /// # Errors
    /// There is none for the moment, or it cannot be opened.
    fn look(&mut self) -> io::Result<()> {
        let of = |found: &std::fs::Metadata| (found.dev(), found.ino());
        if of(&std::fs::metadata(&self.path)?) == self.identity {
            return Ok(());
        }
        let file = regular::open(&self.path)?;
        let identity = of(&file.metadata()?);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // An error in it does not matter any more.
        let _ = open.read(&self.keys);
        open.reader.finish(&self.keys);
        let coverage = open.reader.coverage;
        *open = OpenKeyLog::new(file);
        open.reader.coverage = coverage;
        self.identity = identity;
        Ok(())
    }
}

/// Why the name could not be followed when that was last tried; `None` once it could.
type FollowError = Arc<Mutex<Option<io::Error>>>;

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
    /// Which file was opened, by its device and number.
    identity: (u64, u64),
    /// Ends the thread that follows the name.
    follower: Option<Sender<()>>,
    follow_error: FollowError,
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
        let open: fn(&Path) -> io::Result<File> = if grows { regular::open } else { regular::open_no_device };
        let file = open(path).with_context(about)?;
        let found = file.metadata().with_context(about)?;
        let identity = (found.dev(), found.ino());
        let open = Arc::new(Mutex::new(OpenKeyLog::new(file)));
        let keys = if grows { KeyLog::growing(SharedKeyLog(open.clone())) } else { KeyLog::default() };
        keys.set_in_use();
        let (path, keys) = (path.to_owned(), Arc::new(keys));
        let key_log = Self { path, open, keys, identity, follower: None, follow_error: Arc::default() };
        key_log.read(!grows).with_context(about)?;
        Ok(key_log)
    }

    /// The same, and a thread follows its name for as long as this is kept. If `is_confined`, the thread drops all
    /// privileges but that to read files in the folder of the key log, and in that of the file that it links to, and keeps
    /// `gate` closed until then. Call it when no process is started any more.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn following(self, is_confined: bool, gate: &StartGate) -> Result<Self> {
        let (end, ended) = channel();
        let Self { path, open, keys, identity, .. } = &self;
        let mut follower = KeyLogFollower {
            path: path.clone(),
            open: open.clone(),
            keys: keys.clone(),
            identity: *identity,
        };
        let last_error = self.follow_error.clone();
        let path = path.clone();
        let drop_privileges = move || {
            let target = path.canonicalize().ok();
            let paths = [Some(&path), target.as_ref()].into_iter().flatten();
            let folders: Vec<&Path> = paths.filter_map(|path| folder_of(path)).collect();
            privileges::drop_privileges_but_files(&folders);
        };
        let work = move || {
            while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                let error = match follower.look() {
                    Ok(()) => None,
                    // Another one may come later.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => Some(error),
                };
                *last_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
            }
        };
        let thread = EarlyThread { name: "key-log", starter: &ThreadStarter::Here, confined: is_confined };
        gate.start(thread, drop_privileges, work)
            .context("cannot start the thread that follows the key log")?;
        Ok(Self { follower: Some(end), ..self })
    }

    /// What decoders need of it.
    pub fn keys(&self) -> Arc<KeyLog> {
        self.keys.clone()
    }

    /// Reads what is left, and counts what of all of it is of no use. If it, or the file that took its place, cannot be
    /// read, a message says so: what was captured is shown all the same.
    pub fn finish(mut self, coverage: &mut Coverage) {
        self.follower = None;
        let shown = self.path.display().to_string();
        if let Err(error) = self.read(true) {
            eprintln!("mongosonar: cannot read the end of the key log {}: {error}", escape(&shown));
        }
        if let Some(error) = self.follow_error.lock().unwrap_or_else(PoisonError::into_inner).take() {
            eprintln!(
                "mongosonar: cannot open the file that took the place of the key log {}: {error}",
                escape(&shown)
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

/// The folder of a file.
fn folder_of(path: &Path) -> Option<&Path> {
    path.parent().map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
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
    use std::io::Write;

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
    fn a_key_log_that_takes_the_place_of_another_one_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.log");
        std::fs::write(&path, line("a1")).unwrap();
        let key_log = KeyLogFile::open(&path, true).unwrap().following(true, &StartGate::opened()).unwrap();
        let replace = |text: &str| {
            let other = folder.path().join("other");
            std::fs::write(&other, text).unwrap();
            std::fs::rename(&other, &path).unwrap();
        };
        let wait_for = |sessions: usize| {
            let begin = std::time::Instant::now();
            while key_log.keys.sessions() < sessions {
                assert!(begin.elapsed().as_secs() < 60, "{}", key_log.keys.sessions());
                key_log.read(false).unwrap();
                // span: between two looks
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        // The last line of the one before has not ended.
        std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(line("a2").trim_end().as_bytes())
            .unwrap();
        replace(&line("b1"));
        wait_for(3);
        // It is gone for a moment.
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        std::fs::write(&path, line("c1")).unwrap();
        wait_for(4);
        std::fs::remove_file(&path).unwrap();
        replace(&line("d1"));
        wait_for(5);
        let mut coverage = Coverage::default();
        key_log.finish(&mut coverage);
        assert_eq!(coverage.tls_keys_unread, 0);
    }

    fn wait_until(condition: &mut dyn FnMut() -> bool) {
        let begin = std::time::Instant::now();
        while !condition() {
            assert!(begin.elapsed().as_secs() < 60);
            // span: between two looks
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_key_log_behind_a_link_to_another_folder_is_followed() {
        let [links, files] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let (link, target) = (links.path().join("keys.log"), files.path().join("keys.log"));
        std::fs::write(&target, line("a1")).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let key_log = KeyLogFile::open(&link, true).unwrap().following(true, &StartGate::opened()).unwrap();
        let other = files.path().join("other");
        std::fs::write(&other, line("b1")).unwrap();
        std::fs::rename(&other, &target).unwrap();
        wait_until(&mut || {
            key_log.read(false).unwrap();
            key_log.keys.sessions() == 2
        });
    }

    #[test]
    fn what_cannot_be_opened_in_place_of_a_key_log_is_known_until_something_can() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.log");
        std::fs::write(&path, line("a1")).unwrap();
        let key_log = KeyLogFile::open(&path, true).unwrap().following(true, &StartGate::opened()).unwrap();
        let error = || key_log.follow_error.lock().unwrap().as_ref().map(io::Error::kind);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        wait_until(&mut || error() == Some(io::ErrorKind::InvalidInput));
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, line("b1")).unwrap();
        wait_until(&mut || error().is_none());
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
