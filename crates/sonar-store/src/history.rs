//! The store that the agent and the views use.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use sonar_core::history::{
    Event, HistoryError, HistoryReader, HistoryWindow, HistoryWriter, ObservedSpan, Resolution,
    SourcePositions, Span, StoreNotice,
};

use crate::day_file::{beside, has_log};
use crate::reader::{self, StoreReader};
use crate::writer::StoreWriter;
use crate::{StoreError, StoreSettings};

/// A history in a folder, one SQLite file for each day. There is one writer at a time, and any number of readers,
/// which need no right to write.
pub struct SqliteHistory {
    reader: StoreReader,
    writer: Option<StoreWriter>,
}

impl SqliteHistory {
    /// Opens the store in this folder for writing; makes it if there is none. Upgrades files of older versions, and
    /// sets damaged ones aside ([`notices`](HistoryWriter::notices) names them).
    ///
    /// # Errors
    /// Another process writes to it, a newer program wrote it, or the folder cannot be used.
    pub fn create(dir: &Path, settings: StoreSettings) -> Result<Self, StoreError> {
        let writer = StoreWriter::open(dir, settings)?;
        Ok(Self { reader: StoreReader::new(dir), writer: Some(writer) })
    }

    /// Opens the store in this folder for reading, also while another process writes to it.
    ///
    /// # Errors
    /// There is no such folder, or it cannot be read.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        if !dir.is_dir() {
            return Err(StoreError::Missing(dir.to_owned()));
        }
        let reader = StoreReader::new(dir);
        reader.days()?;
        Ok(Self { reader, writer: None })
    }

    /// Prepares a store for a reader without the right to write. SQLite reads a file that has a log (`-wal`) only beside an
    /// index (`-shm`), which may be empty. A copied store may lack it: this makes it where it can, always in the folder
    /// that `dir` names at the beginning.
    pub fn prepare_reading(dir: &Path) {
        Self::prepare_reading_after(dir, || {});
    }

    /// The same; `before` runs before each index is made.
    fn prepare_reading_after(dir: &Path, mut before: impl FnMut()) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(folder) = rustix::fs::open(dir, flags, Mode::empty()) else { return };
        let dir = &PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        let days = reader::days(dir).unwrap_or_default();
        for path in days.into_iter().map(|day| day.path(dir)).filter(|path| has_log(path)) {
            before();
            let mut options = File::options();
            let index = options.write(true).create_new(true).mode(0o600).open(beside(&path, "-shm"));
            if let (Ok(index), Ok(about)) = (index, fs::symlink_metadata(&path)) {
                // As SQLite does it: who owns the file uses it too.
                let _ = fchown(&index, Some(about.uid()), Some(about.gid()));
            }
        }
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.reader.dir
    }

    /// The bytes of the windows that it holds between two calls. Shapes and applications are shared with others, and do not
    /// count; neither do SQLite's own.
    pub fn memory(&self) -> usize {
        self.writer.as_ref().map_or(0, StoreWriter::memory)
    }

    /// Changes the settings of a store that was opened for writing, from the next window on.
    pub fn configure(&mut self, settings: StoreSettings) {
        if let Some(writer) = &mut self.writer {
            writer.settings = settings;
        }
    }

    fn store(
        &mut self,
        window: &HistoryWindow,
        events: &[Event],
        positions: &SourcePositions,
    ) -> Result<(), StoreError> {
        let Some(writer) = &mut self.writer else {
            return Err(StoreError::ReadOnly(self.reader.dir.clone()));
        };
        for day in self.reader.damaged.take() {
            writer.set_aside(day, "it could not be read")?;
        }
        writer.append(window, events, positions)
    }
}

impl HistoryReader for SqliteHistory {
    fn read(&self, span: Span) -> Result<Option<HistoryWindow>, HistoryError> {
        self.reader.read(span).map_err(HistoryError::new)
    }

    fn windows(
        &self,
        span: Span,
        resolution: Resolution,
        visit: &mut dyn FnMut(HistoryWindow),
    ) -> Result<(), HistoryError> {
        self.reader.windows(span, resolution, visit).map_err(HistoryError::new)
    }

    fn observed(
        &self,
        span: Span,
        resolution: Resolution,
        visit: &mut dyn FnMut(ObservedSpan),
    ) -> Result<(), HistoryError> {
        self.reader.observed(span, resolution, visit).map_err(HistoryError::new)
    }

    fn events(&self, span: Span) -> Result<Vec<Event>, HistoryError> {
        self.reader.events(span).map_err(HistoryError::new)
    }

    fn extent(&self) -> Result<Option<Span>, HistoryError> {
        self.reader.extent().map_err(HistoryError::new)
    }
}

impl HistoryWriter for SqliteHistory {
    fn append_with(
        &mut self,
        window: &HistoryWindow,
        events: &[Event],
        positions: &SourcePositions,
    ) -> Result<(), HistoryError> {
        self.store(window, events, positions).map_err(HistoryError::new)
    }

    fn positions(&self) -> SourcePositions {
        self.writer.as_ref().map(StoreWriter::positions).unwrap_or_default()
    }

    fn notices(&mut self) -> Vec<StoreNotice> {
        let mut notices = self.reader.notices.take();
        if let Some(writer) = &mut self.writer {
            notices.append(&mut writer.notices);
        }
        notices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_can_be_passed_to_another_thread() {
        fn check<T: Send>() {}
        check::<SqliteHistory>();
    }

    #[test]
    fn an_index_is_made_in_no_folder_that_takes_the_place_of_the_store() {
        let folder = tempfile::tempdir().unwrap();
        let [store, other, link] = ["store", "other", "link"].map(|name| folder.path().join(name));
        for dir in [&store, &other] {
            fs::create_dir(dir).unwrap();
        }
        fs::write(store.join("2026-01-01.db"), "a store").unwrap();
        fs::write(store.join("2026-01-01.db-wal"), "not closed").unwrap();
        std::os::unix::fs::symlink(&store, &link).unwrap();
        SqliteHistory::prepare_reading_after(&link, || {
            fs::remove_file(&link).unwrap();
            std::os::unix::fs::symlink(&other, &link).unwrap();
        });
        assert!(store.join("2026-01-01.db-shm").exists());
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
    }
}
