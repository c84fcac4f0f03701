//! Reads the files of all days as one history.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use sonar_core::history::{Event, HistoryWindow, ObservedSpan, Resolution, Span, StoreNotice};

use crate::StoreError;
use crate::day_file::DayFile;
use crate::in_order::{JobOutcome, Worker, in_order, threads};
use crate::lookup::{FoundNumbers, Interner};
use crate::stored_window::StoredWindow;
use crate::utc_day::UtcDay;

/// Reads a store. It holds no file open between calls.
#[derive(Debug)]
pub(crate) struct StoreReader {
    pub dir: PathBuf,
    /// Days with a damaged file.
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

    /// The days that have a file and overlap a span, ascending.
    fn days_within(&self, span: Span) -> Result<Vec<UtcDay>, StoreError> {
        let overlaps = |day: &UtcDay| day.span().from < span.to && span.from < day.span().to;
        Ok(self.days()?.into_iter().filter(overlaps).collect())
    }

    /// Passes the file of each day that overlaps a span, and the span of the day, to `read`, which reads what it can.
    /// Damage is noted, and the next file follows.
    fn each(
        &self,
        span: Span,
        mut read: impl FnMut(&DayFile, Span) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for day in self.days_within(span)? {
            let file = DayFile::open(&day.path(&self.dir));
            self.note_damage(day, file.and_then(|file| file.map_or(Ok(()), |file| read(&file, day.span()))))?;
        }
        Ok(())
    }

    /// Notes that the file of a day is damaged, which is no error then.
    fn note_damage(&self, day: UtcDay, read: Result<(), StoreError>) -> Result<(), StoreError> {
        let Err(StoreError::Damaged { why, .. }) = read else { return read };
        if self.damaged.borrow_mut().insert(day) {
            let path = day.path(&self.dir);
            let notice = format!("{} is damaged and was read in part: {why}", path.display());
            self.notices.borrow_mut().push(StoreNotice::Damaged(notice));
        }
        Ok(())
    }

    /// See [`sonar_core::HistoryReader::read`].
    pub fn read(&self, span: Span) -> Result<Option<HistoryWindow>, StoreError> {
        let interner = Interner::default();
        let mut all: Option<StoredWindow> = None;
        self.each(span, |file, day| {
            let found = FoundNumbers::default();
            let lookup = file.lookup(&interner, &found);
            if span.from <= day.from
                && day.to <= span.to
                && let Some((span, blob)) = file.whole_day()?
            {
                let all = all.get_or_insert_with(|| StoredWindow::spanning(span));
                return file.decode_into(span, &blob, &lookup, all);
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

    /// See [`sonar_core::HistoryReader::windows`].
    pub fn windows(
        &self,
        span: Span,
        resolution: Resolution,
        visit: &mut dyn FnMut(HistoryWindow),
    ) -> Result<(), StoreError> {
        let mut jobs = Vec::new();
        for day in self.days_within(span)? {
            let within = Span { from: span.from.max(day.span().from), to: span.to.min(day.span().to) };
            jobs.extend(split(within, resolution).map(|span| DayPart { day, span }));
        }
        let (dir, interner) = (&*self.dir, &Interner::default());
        let reader = || WindowReader { dir, resolution, interner, open: None };
        in_order(&jobs, threads(), reader, &mut |part, outcome| match outcome {
            JobOutcome::Item(window) => {
                visit(window);
                Ok(())
            }
            JobOutcome::Done(read) => self.note_damage(part.day, read),
        })
    }

    /// See [`sonar_core::HistoryReader::observed`].
    pub fn observed(
        &self,
        span: Span,
        resolution: Resolution,
        visit: &mut dyn FnMut(ObservedSpan),
    ) -> Result<(), StoreError> {
        let interner = Interner::default();
        self.each(span, |file, _| {
            let found = FoundNumbers::default();
            let lookup = file.lookup(&interner, &found);
            let mut result = Ok(());
            for (slot, parts) in file.index(span)?.windows(span, resolution) {
                let mut sum: Option<ObservedSpan> = None;
                for part in parts {
                    match file.observed(part, &lookup) {
                        Ok(None) => {}
                        Ok(Some(ns)) => sum.get_or_insert(ObservedSpan::nothing(slot.span())).add(&ns),
                        Err(error) => result = result.and(Err(error)),
                    }
                }
                sum.into_iter().for_each(&mut *visit);
            }
            result
        })
    }

    /// See [`sonar_core::HistoryReader::events`].
    pub fn events(&self, span: Span) -> Result<Vec<Event>, StoreError> {
        let mut events = Vec::new();
        self.each(span, |file, _| file.events(span, &mut events))?;
        Ok(events)
    }

    /// See [`sonar_core::HistoryReader::extent`].
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

/// Splits a span of one day into what a thread reads at once: no window of this resolution, and none of the coarser
/// ones that take its place, lies in two of them.
fn split(span: Span, resolution: Resolution) -> impl Iterator<Item = Span> {
    let hour = Resolution::Hour.width_ns();
    let is_whole = resolution == Resolution::Hour;
    let mut from = span.from;
    std::iter::from_fn(move || {
        let next = from.floor_to(hour).plus_ns(hour);
        let to = if is_whole { span.to } else { next.min(span.to) };
        let part = (from < to).then_some(Span { from, to })?;
        from = to;
        Some(part)
    })
}

/// What a thread reads at once of the file of a day.
struct DayPart {
    day: UtcDay,
    span: Span,
}

/// Reads the windows of one resolution. It keeps the file of a day open as long as it reads windows of that day.
struct WindowReader<'a> {
    dir: &'a Path,
    resolution: Resolution,
    interner: &'a Interner,
    open: Option<OpenDay>,
}

struct OpenDay {
    day: UtcDay,
    file: DayFile,
    found: FoundNumbers,
}

impl Worker<DayPart, HistoryWindow, StoreError> for WindowReader<'_> {
    fn work(&mut self, part: &DayPart, yielded: &mut dyn FnMut(HistoryWindow)) -> Result<(), StoreError> {
        let DayPart { day, span } = *part;
        self.open.take_if(|open| open.day != day);
        if self.open.is_none() {
            let file = DayFile::open(&day.path(self.dir))?;
            self.open = file.map(|file| OpenDay { day, file, found: FoundNumbers::default() });
        }
        let Some(OpenDay { file, found, .. }) = &self.open else { return Ok(()) };
        let lookup = file.lookup(self.interner, found);
        let mut result = Ok(());
        for (slot, parts) in file.index(span)?.windows(span, self.resolution) {
            let mut window = StoredWindow::spanning(slot.span());
            let mut any = false;
            for part in parts {
                let read = file.read_into(part, &lookup, &mut window);
                any |= matches!(read, Ok(true));
                result = result.and(read.map(drop));
            }
            if any {
                yielded(window.window);
            }
        }
        result
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
