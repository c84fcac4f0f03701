//! The file that is tested: has a name of its own, is fully allocated and filled, and is removed at the end.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sonar_core::disk::SplitMix;

use super::DiskError;
use crate::host::Host;
use crate::sys_disk::{
    Buffers, IN_MEMORY, allocate, drop_pages, file_system_state, monotonic_ns, set_direct,
};

const PREFIX: &str = "mongosonar-disk-";
const SUFFIX: &str = ".tmp";

/// Bytes of a write while the file is filled.
const FILL_BYTES: usize = 4 << 20;

/// Which file to create.
#[derive(Clone, Debug)]
pub struct TestFileSettings {
    /// The folder; it must exist.
    pub dir: PathBuf,
    /// Bytes; rounded up to 4 KiB.
    pub bytes: u64,
    /// Bytes of a record, to check that the device can read such records directly.
    pub record_bytes: u64,
    /// Whether requests bypass the page cache.
    pub direct: bool,
    /// Seed of the contents.
    pub seed: u64,
}

/// A test file, removed when this is dropped.
#[derive(Debug)]
pub struct TestFile {
    path: PathBuf,
    identity: (u64, u64),
    file: Arc<File>,
    bytes: u64,
}

/// A test file of a run that was killed before it could remove it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Where.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// Test files in `dir` whose process has ended. They are only reported.
pub fn leftovers(dir: &Path, host: &Host) -> Vec<Leftover> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut found: Vec<Leftover> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let (pid, _) = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.split_once('-')?;
            let pid: u32 = pid.parse().ok()?;
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            (!host.path(&format!("proc/{pid}")).exists())
                .then(|| Leftover { path: entry.path(), bytes: metadata.blocks().saturating_mul(512) })
        })
        .take(100)
        .collect();
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

impl TestFile {
    /// Checks the space, then creates, allocates and fills the file. `progress` gets the number of bytes written;
    /// `stop` ends it early, and leaves nothing behind.
    ///
    /// # Errors
    /// No space, no permission, a quota, no direct I/O, or [`DiskError::Stopped`].
    pub fn create(
        settings: &TestFileSettings,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, DiskError> {
        let bytes = settings.bytes.max(1).next_multiple_of(4096);
        let dir = &settings.dir;
        let cannot = |source| DiskError::Create { path: dir.clone(), source };
        let state = file_system_state(dir).map_err(cannot)?;
        // Leave some space for other users of the device.
        let needed = bytes.saturating_add(bytes / 64).saturating_add(16 << 20);
        if state.free_bytes < needed {
            return Err(DiskError::Space { path: dir.clone(), needed, free: state.free_bytes });
        }
        if settings.direct && IN_MEMORY.contains(&state.magic) {
            // Since Linux 6.6 it takes the flag, but still copies.
            return Err(DiskError::NoDirectIo { path: dir.clone() });
        }
        let made = Self::make(dir, bytes).map_err(cannot)?;
        if settings.direct {
            match set_direct(&made.file, true) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    return Err(DiskError::NoDirectIo { path: dir.clone() });
                }
                Err(source) => return Err(cannot(source)),
            }
        }
        made.fill(settings, stop, progress)?;
        if settings.direct {
            made.try_record(settings.record_bytes)?;
        }
        Ok(made)
    }

    fn make(dir: &Path, bytes: u64) -> io::Result<Self> {
        let mut random = SplitMix::new(monotonic_ns());
        for _ in 0..16 {
            let name = format!("{PREFIX}{}-{:08x}{SUFFIX}", std::process::id(), random.next() as u32);
            let path = dir.join(name);
            let opened = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&path);
            match opened {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(file) => {
                    let metadata = file.metadata()?;
                    let identity = (metadata.dev(), metadata.ino());
                    return Ok(Self { path, identity, file: Arc::new(file), bytes });
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn fill(
        &self,
        settings: &TestFileSettings,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), DiskError> {
        let failed = |offset, source| DiskError::Fill { path: self.path.clone(), offset, source };
        match allocate(&self.file, self.bytes) {
            Ok(()) => {}
            // Some file systems cannot; then the writes below allocate.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => {
                self.file.set_len(self.bytes).map_err(|source| failed(0, source))?;
            }
            Err(source) => return Err(failed(0, source)),
        }
        let buffer = Buffers::new(1, FILL_BYTES)
            .map_err(|source| DiskError::Resource { what: "memory to fill the file from".into(), source })?;
        let mut random = SplitMix::part(settings.seed, u64::MAX - 1);
        let mut at = 0;
        while at < self.bytes {
            if stop.load(Ordering::Relaxed) {
                return Err(DiskError::Stopped);
            }
            buffer.fill(|| random.next());
            let now = (self.bytes - at).min(FILL_BYTES as u64);
            buffer.write(&self.file, 0, now as usize, at).map_err(|source| failed(at, source))?;
            at += now;
            progress(at);
        }
        self.file.sync_all().map_err(|source| failed(at, source))?;
        drop_pages(&self.file);
        Ok(())
    }

    /// Reads one record: a device with larger blocks refuses here, not in the middle of the run.
    fn try_record(&self, record: u64) -> Result<(), DiskError> {
        let each = usize::try_from(record).unwrap_or(usize::MAX);
        let buffer = Buffers::new(1, each)
            .map_err(|source| DiskError::Resource { what: "memory for a record".into(), source })?;
        match buffer.read(&self.file, 0, each, 0) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                let block = self.file.metadata().map_or(4096, |metadata| metadata.blksize());
                Err(DiskError::Alignment { record, block })
            }
            Err(source) => Err(DiskError::Request { what: "read", bytes: record, offset: 0, source }),
            Ok(()) => Ok(()),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Major and minor number of its device.
    pub fn device(&self) -> (u32, u32) {
        let device = self.identity.0;
        (libc::major(device), libc::minor(device))
    }

    /// Bytes that the file system has allocated for it.
    pub fn allocated_bytes(&self) -> Option<u64> {
        Some(self.file.metadata().ok()?.blocks().saturating_mul(512))
    }

    /// Removes it, and waits until the device has its folder without it.
    ///
    /// # Errors
    /// It could not be removed, or the device did not store that: then the file may be there again when the device is
    /// back.
    pub fn remove(self) -> io::Result<()> {
        self.unlink()?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        match File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()) {
            // Not every file system can sync a folder.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            done => done,
        }
    }

    /// Only if it is still the test file: somebody may have replaced it.
    fn unlink(&self) -> io::Result<()> {
        match fs::symlink_metadata(&self.path) {
            Ok(metadata) if (metadata.dev(), metadata.ino()) == self.identity => fs::remove_file(&self.path),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn io(&self) -> &File {
        &self.file
    }

    pub(super) fn shared_io(&self) -> Arc<File> {
        self.file.clone()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = self.unlink();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("sonar-sys-file-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn settings(dir: &Path) -> TestFileSettings {
        TestFileSettings { dir: dir.into(), bytes: 5 << 20, record_bytes: 4096, direct: false, seed: 1 }
    }

    #[test]
    fn a_file_is_allocated_filled_with_noise_and_removed() {
        let dir = folder("made");
        let mut filled = 0;
        let file = TestFile::create(&settings(&dir), &AtomicBool::new(false), &mut |n| filled = n).unwrap();
        assert_eq!((filled, file.bytes()), (5 << 20, 5 << 20));
        assert!(file.allocated_bytes().unwrap() >= 5 << 20);
        let contents = fs::read(file.path()).unwrap();
        assert_eq!(contents.len(), 5 << 20);
        // Every byte value is about as frequent as the others: the file does not compress.
        let mut counts = [0u32; 256];
        contents.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        assert!(counts.iter().all(|n| (19_500..21_500).contains(n)), "{counts:?}");
        file.remove().unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_file_put_in_its_place_is_left_alone() {
        let dir = folder("replaced");
        let file = TestFile::create(&settings(&dir), &AtomicBool::new(false), &mut |_| ()).unwrap();
        let path = file.path().to_path_buf();
        // The old file is kept by its descriptor, so that the new one cannot get its number.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "somebody else's").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "somebody else's");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn stopping_and_failing_leave_nothing_behind() {
        let dir = folder("stopped");
        let stopped = TestFile::create(&settings(&dir), &AtomicBool::new(true), &mut |_| ());
        assert!(matches!(stopped, Err(DiskError::Stopped)));
        let large = TestFileSettings { bytes: 1 << 60, ..settings(&dir) };
        let error = TestFile::create(&large, &AtomicBool::new(false), &mut |_| ()).unwrap_err();
        assert!(matches!(error, DiskError::Space { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains(" GiB are needed") && said.ends_with("iB are free"), "{said}");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        fs::remove_dir_all(&dir).unwrap();
        let gone = TestFile::create(&settings(&dir), &AtomicBool::new(false), &mut |_| ()).unwrap_err();
        assert!(matches!(gone, DiskError::Create { .. }), "{gone}");
    }

    #[test]
    fn only_files_of_ended_processes_are_left_over() {
        let dir = folder("leftovers");
        for name in [
            "mongosonar-disk-1-aaaaaaaa.tmp",
            "mongosonar-disk-999999999-aaaaaaaa.tmp",
            "mongosonar-disk-x.tmp",
        ] {
            fs::write(dir.join(name), vec![1; 8192]).unwrap();
        }
        let found = leftovers(&dir, &Host::live());
        assert_eq!(found.len(), 1);
        assert!(found[0].path.ends_with("mongosonar-disk-999999999-aaaaaaaa.tmp") && found[0].bytes >= 8192);
        fs::remove_dir_all(&dir).unwrap();
    }
}
