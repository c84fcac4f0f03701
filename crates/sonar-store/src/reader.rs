//! Reads the files of all days as one history.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use sonar_core::history::{Event, HistoryWindow, Resolution, Span, StoreNotice};

use crate::StoreError;
use crate::day_file::DayFile;
use crate::lookup::{FileLookup, Interner};
use crate::stored_window::StoredWindow;
use crate::utc_day::UtcDay;

/// Reads a store. It holds no file open between calls.
#[derive(Debug)]
pub(crate) struct StoreReader {
    pub dir: PathBuf,
    /// Days whose file turned out to be damaged.
    pub damaged: RefCell<BTreeSet<UtcDay>>,
    pub notices: RefCell<Vec<StoreNotice>>,
}

impl StoreReader {
    /// Reads the store in this folder, which exists.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), damaged: RefCell::default(), notices: RefCell::default() }
    }

    /// The days that have a file, ascending.
    pub fn days(&self) -> Result<Vec<UtcDay>, StoreError> {
        days(&self.dir)
    }

    /// Passes the file of each day that overlaps a span, and the span of the day, to `read`, which reads what it can. Damage is noted, and the next
    /// file follows.
    fn each(
        &self,
        span: Span,
        mut read: impl FnMut(&DayFile, Span) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let overlaps = |day: &UtcDay| day.span().from < span.to && span.from < day.span().to;
        for day in self.days()?.into_iter().filter(overlaps) {
            let path = day.path(&self.dir);
            let result =
                DayFile::open(&path).and_then(|file| file.map_or(Ok(()), |file| read(&file, day.span())));
            match result {
                Err(StoreError::Damaged { why, .. }) => {
                    if self.damaged.borrow_mut().insert(day) {
                        let notice = format!("{} is damaged and was read in part: {why}", path.display());
                        self.notices.borrow_mut().push(StoreNotice::Damaged(notice));
                    }
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// See [`sonar_core::HistoryStore::read`].
    pub fn read(&self, span: Span) -> Result<Option<HistoryWindow>, StoreError> {
        let interner = Interner::default();
        let mut all: Option<StoredWindow> = None;
        self.each(span, |file, day| {
            let lookup = FileLookup::new(&file.connection, &interner);
            if span.from <= day.from
                && day.to <= span.to
                && let Some((span, blob)) = file.whole_day()?
            {
                let all = all.get_or_insert_with(|| StoredWindow::spanning(span));
                return file.decode_into((span, &blob), &lookup, all);
            }
            let mut result = Ok(());
            for slot in file.index(span)?.cover(span) {
                let all = all.get_or_insert_with(|| StoredWindow::spanning(slot.span()));
                result = result.and(file.read_into(slot, &lookup, all).map(drop));
            }
            result
        })?;
        Ok(all.map(|part| part.window))
    }

    /// See [`sonar_core::HistoryStore::windows`].
    pub fn windows(
        &self,
        span: Span,
        resolution: Resolution,
        visit: &mut dyn FnMut(HistoryWindow),
    ) -> Result<(), StoreError> {
        let interner = Interner::default();
        self.each(span, |file, _| {
            let lookup = FileLookup::new(&file.connection, &interner);
            let mut result = Ok(());
            for (slot, parts) in file.index(span)?.windows(span, resolution) {
                let mut window = StoredWindow::spanning(slot.span());
                let mut any = false;
                for part in parts {
                    let read = file.read_into(part, &lookup, &mut window);
                    any |= matches!(read, Ok(true));
                    result = result.and(read.map(drop));
                }
                if any {
                    visit(window.window);
                }
            }
            result
        })
    }

    /// See [`sonar_core::HistoryStore::events`].
    pub fn events(&self, span: Span) -> Result<Vec<Event>, StoreError> {
        let mut events = Vec::new();
        self.each(span, |file, _| {
            events.append(&mut file.events(span)?);
            Ok(())
        })?;
        Ok(events)
    }

    /// See [`sonar_core::HistoryStore::extent`].
    pub fn extent(&self) -> Result<Option<Span>, StoreError> {
        let days = self.days()?;
        let first = self.first_extent(days.iter())?;
        let last = self.first_extent(days.iter().rev())?;
        Ok(first.zip(last).map(|(first, last)| Span { from: first.from, to: last.to }))
    }

    /// The extent of the first of these days that has windows.
    fn first_extent<'a>(&self, days: impl Iterator<Item = &'a UtcDay>) -> Result<Option<Span>, StoreError> {
        for day in days {
            let mut extent = None;
            self.each(day.span(), |file, _| {
                extent = file.extent()?;
                Ok(())
            })?;
            if extent.is_some() {
                return Ok(extent);
            }
        }
        Ok(None)
    }
}

/// The days that have a file in this folder, ascending.
pub(crate) fn days(dir: &Path) -> Result<Vec<UtcDay>, StoreError> {
    let mut days = Vec::new();
    for entry in fs::read_dir(dir).map_err(StoreError::of_io("read", dir))? {
        let name = entry.map_err(StoreError::of_io("read", dir))?.file_name();
        days.extend(name.to_str().and_then(UtcDay::from_file_name));
    }
    days.sort_unstable();
    Ok(days)
}
