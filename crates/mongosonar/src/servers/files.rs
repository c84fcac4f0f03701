//! The files of a server that helper processes open: with the rights of the server's user, below its root folder, and only
//! if they look like what they should be.
//!
//! Any user may run a program called mongod and give it any path.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sonar_core::files::naming::{DIAGNOSTIC_DATA, is_sample_file};
use sonar_core::observation::FileIdentity;
use sonar_sys::host::process::{Process, ProgramFile, RunningProgram};
use sonar_sys::host::process_files::ProcessFiles;

use crate::ftdc::follow::{DiagnosticFile, DiagnosticFolder};
use crate::input::follow::{FILE_PATIENCE, FileThread, FollowedPlace, MAX_COPIES, file_identity};
use crate::servers;
use crate::servers::configuration::{ServerConfiguration, ServerSetting, configuration_file};
use crate::servers::log_location::LogLocation;
use crate::servers::own_files::working_folder;

/// The most files of samples of a folder: a server keeps some twenty.
const MAX_SAMPLES: usize = 1_000;
/// The most bytes of a configuration of a server. A longer one is not read.
const MAX_CONFIG_BYTES: u64 = 128 << 10;

/// The longest path of a server, in bytes: any user may start one, and name what he likes.
pub const MAX_PATH: usize = 1_024;
/// How long a search waits for the file systems of all servers together: less than who asks a helper waits for the answer.
const SEARCH_PATIENCE: Duration = Duration::from_secs(8);

/// Whether a path of a server is short enough to be kept.
pub fn is_short(path: &Path) -> bool {
    path.as_os_str().len() <= MAX_PATH
}

/// How long a search may still wait for file systems. Each gets half of it, so that one which does not answer leaves time
/// for the others.
pub struct SearchPatience(Duration);

impl Default for SearchPatience {
    fn default() -> Self {
        Self(SEARCH_PATIENCE)
    }
}

impl SearchPatience {
    /// One that waits so long in all.
    pub const fn of(all: Duration) -> Self {
        Self(all)
    }

    /// How long to wait for the next one.
    pub fn next(&self) -> Duration {
        (self.0 / 2).min(FILE_PATIENCE)
    }

    /// Lets a thread look at files of a server, and waits for it that long.
    ///
    /// # Errors
    /// As [`FileThread::run`].
    pub fn run<T: Send + 'static>(
        &mut self,
        place: &FileThread,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let begun = Instant::now();
        let done = place.run_within(self.next(), work);
        self.spend(begun.elapsed());
        done
    }

    /// It has taken so long.
    fn spend(&mut self, taken: Duration) {
        self.0 = self.0.saturating_sub(taken);
    }
}

/// A process, and when it started, in clock ticks since boot: another one may get its number. It may also execute another
/// program.
#[derive(Clone, Debug)]
pub struct ServerProcess {
    /// The process.
    pub process: Process,
    /// When it started.
    pub started: u64,
    /// The program that makes it a server.
    pub program: Option<ProgramFile>,
}

impl ServerProcess {
    /// A process that was found, and started at `started` (in clock ticks since boot).
    pub fn new(process: Process, started: u64) -> Self {
        Self { program: process.program(), process, started }
    }

    /// Its files.
    ///
    /// # Errors
    /// It has ended, or is no server any more.
    pub fn files(&self) -> io::Result<ProcessFiles> {
        self.still(ProcessFiles::of(&self.process)?)
    }

    /// Those that the configuration of the agent names for it.
    fn named(&self) -> io::Result<ProcessFiles> {
        self.still(ProcessFiles::named_for(&self.process)?)
    }

    /// What was opened by the rights of the process, if that is still the server: a look after these rights were read. A
    /// program that it has executed meanwhile may have those of root.
    fn still<T>(&self, opened: T) -> io::Result<T> {
        let program = Some(self.program.ok_or(io::ErrorKind::NotFound)?);
        RunningProgram { pid: self.process.pid, started: self.started, program }.still(opened)
    }

    /// Its configuration, as far as its user may read it; `None` if it names none.
    ///
    /// # Errors
    /// The one that it names cannot be read, or is too long.
    pub fn configuration(&self) -> io::Result<Option<ServerConfiguration>> {
        let Some(file) = configuration_file(&self.process) else { return Ok(None) };
        let file = self.files()?.open(&seen_by(&self.process, file))?;
        let mut text = Vec::new();
        file.take(MAX_CONFIG_BYTES + 1).read_to_end(&mut text)?;
        match text.len() as u64 <= MAX_CONFIG_BYTES {
            true => Ok(Some(ServerConfiguration::parse(&String::from_utf8_lossy(&text)))),
            false => Err(io::ErrorKind::FileTooLarge.into()),
        }
    }
}

/// The log of a server.
#[derive(Clone, Debug)]
pub struct InspectableLog {
    /// Whose it is.
    pub server: ServerProcess,
    /// Where it is.
    pub place: LogLocation,
}

impl InspectableLog {
    fn files(&self) -> io::Result<ProcessFiles> {
        match self.place {
            LogLocation::Configured(_) => self.server.named(),
            LogLocation::Named(_) | LogLocation::Descriptor(_) => self.server.files(),
        }
    }
}

impl FollowedPlace for InspectableLog {
    fn identity(&mut self) -> io::Result<Option<FileIdentity>> {
        let found = match &self.place {
            LogLocation::Named(path) | LogLocation::Configured(path) => self.files()?.metadata(path)?,
            LogLocation::Descriptor(_) => {
                let process = &self.server.process;
                Some(self.server.still(fs::metadata(self.place.path(process))?)?)
            }
        };
        Ok(found.as_ref().map(file_identity))
    }

    fn open(&mut self) -> io::Result<File> {
        self.place.open(&self.server.process, &self.files()?)
    }

    fn copies(&mut self) -> Vec<File> {
        self.files().map(|files| self.place.copies(&files, MAX_COPIES)).unwrap_or_default()
    }
}

/// The folder of samples of a server, at this path as the process sees it.
#[derive(Clone, Debug)]
pub struct InspectableSamples {
    /// Whose it is.
    pub server: ServerProcess,
    /// Where it is.
    pub folder: PathBuf,
}

impl DiagnosticFolder for InspectableSamples {
    fn list(&mut self) -> io::Result<Vec<DiagnosticFile>> {
        let is_sample = |name: &OsStr| name.to_str().is_some_and(is_sample_file);
        let listed = self.server.files()?.list(&self.folder, MAX_SAMPLES, &is_sample)?;
        Ok(DiagnosticFile::among(listed))
    }

    /// A name with a folder in it would lead to another one.
    fn open(&mut self, name: &str) -> io::Result<File> {
        if !is_sample_file(name) || name.contains('/') {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let file = self.server.files()?.open(&self.folder.join(name))?;
        match is_samples(&file)? {
            true => Ok(file),
            false => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "it does not look like a file of MongoDB"))
            }
        }
    }
}

/// Whether a file begins with a document as `diagnostic.data` has them, which starts with a date named `_id`. An empty one
/// has just been created.
fn is_samples(file: &File) -> io::Result<bool> {
    let mut head = [0; 9];
    let read = file.read_at(&mut head, 0)?;
    Ok(read == 0 || (read == head.len() && &head[4..] == b"\x09_id\0"))
}

/// A path as a process sees it: a container has a root folder of its own.
pub fn seen_by(process: &Process, path: &Path) -> PathBuf {
    match path.strip_prefix(process.folder().join("root")) {
        Ok(rest) => Path::new("/").join(rest),
        Err(_) => working_folder(process).join(path),
    }
}

/// The folder of the data of a mongod, by its arguments, its configuration, or what it has open; `None` if nothing says
/// which. It may be relative to the folder that it works in.
pub fn data_folder(process: &Process, configuration: &ServerConfiguration) -> Option<PathBuf> {
    let named = ServerSetting::DATA_FOLDER.of(process, configuration);
    named.map(PathBuf::from).or_else(|| open_data_folder(process))
}

/// The folder of the file that a mongod always has open.
pub fn open_data_folder(process: &Process) -> Option<PathBuf> {
    let mut open = process.open_files().map(|(_, path)| path);
    let file = open.find(|path| path.file_name().is_some_and(|name| name == "WiredTiger.wt"))?;
    file.parent().map(Path::to_path_buf)
}

/// The folder that a server writes its samples into, as it sees it: that of a mongod with its data in `dbpath`, or of a
/// mongos with this log. `None` if what it depends on is not known.
pub fn samples_folder(process: &Process, dbpath: Option<&Path>, log: Option<&Path>) -> Option<PathBuf> {
    match process.name == servers::MONGOD {
        true => Some(seen_by(process, &dbpath?.join(DIAGNOSTIC_DATA))),
        // The name of its log up to the first dot.
        false => beside_log(&seen_by(process, log?)),
    }
}

/// The folder of samples of a mongos with this log: `mongos.log` becomes `mongos.diagnostic.data`.
fn beside_log(log: &Path) -> Option<PathBuf> {
    let name = log.file_name()?.as_bytes();
    let base = name.split(|byte| *byte == b'.').next().unwrap_or(name);
    Some(log.with_file_name(format!("{}.{DIAGNOSTIC_DATA}", String::from_utf8_lossy(base))))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_search_ends_before_who_asks_has_lost_patience_however_many_file_systems_hang() {
        let mut patience = SearchPatience::default();
        let mut waited = Duration::ZERO;
        for server in 0..128 {
            let next = patience.next();
            assert!(server > 2 || next >= Duration::from_secs(1), "{server}: {next:?}");
            waited += next;
            patience.spend(next);
        }
        assert!(waited <= SEARCH_PATIENCE && SEARCH_PATIENCE < sonar_sys::helper::PATIENCE);
    }

    #[test]
    fn samples_begin_with_a_date_and_other_files_are_refused() {
        let looks = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            is_samples(&file).unwrap()
        };
        assert!(looks(b"\x20\0\0\0\x09_id\0\0\0") && looks(b""));
        assert!(!looks(b"root:$6$salt$hash"));
        assert!(!looks(b"\x20\0\0\0\x09"));
    }
}
