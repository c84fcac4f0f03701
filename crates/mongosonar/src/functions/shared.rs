//! What the symbols of several processes share: the files that were read, and the memory for them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use sonar_decode::stacks::{SharedImage, TableBudget};

use crate::input::follow::ForeignFile;
use crate::large::LargeMemory;
use crate::locking::lock;

/// The bytes of an executable file.
#[derive(Debug)]
pub enum ImageFile {
    /// A file.
    Opened(ForeignFile),
    /// The code that the kernel maps into each process.
    Memory(Cursor<Vec<u8>>),
}

impl Read for ImageFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Opened(file) => file.get()?.read(buffer),
            Self::Memory(bytes) => bytes.read(buffer),
        }
    }
}

impl Seek for ImageFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::Opened(file) => file.get()?.seek(to),
            Self::Memory(bytes) => bytes.seek(to),
        }
    }
}

/// A file as it was when it was opened.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileVersion {
    device: u64,
    inode: u64,
    bytes: u64,
    /// When it was changed last: seconds, and nanoseconds.
    changed: (i64, i64),
}

impl FileVersion {
    /// The version of an open file.
    ///
    /// # Errors
    /// The kernel cannot tell.
    pub fn of(file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        Ok(Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// What the symbols of several processes share. Clones share it too.
#[derive(Clone, Debug, Default)]
pub struct SharedSymbols {
    /// Room for the tables of all files.
    pub budget: TableBudget,
    /// The memory into which files are read, one at a time; `None`: as much as it takes.
    pub large: Option<&'static LargeMemory>,
    /// Files that a process has mapped.
    files: Arc<Mutex<HashMap<FileVersion, Weak<SharedImage<ImageFile>>>>>,
}

impl SharedSymbols {
    /// Nothing is read yet.
    pub fn new(budget: TableBudget, large: Option<&'static LargeMemory>) -> Self {
        Self { budget, large, files: Arc::default() }
    }

    /// A file that a process has mapped; `None` if it was not read.
    pub fn file(&self, version: &FileVersion) -> Option<Arc<SharedImage<ImageFile>>> {
        self.files().get(version)?.upgrade()
    }

    /// Remembers a file until the last process that has it mapped ends.
    pub fn remember(&self, version: FileVersion, image: &Arc<SharedImage<ImageFile>>) {
        let mut files = self.files();
        files.retain(|_, known| known.strong_count() > 0);
        files.insert(version, Arc::downgrade(image));
    }

    fn files(&self) -> MutexGuard<'_, HashMap<FileVersion, Weak<SharedImage<ImageFile>>>> {
        lock(&self.files)
    }
}
