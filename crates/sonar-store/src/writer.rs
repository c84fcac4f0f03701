//! Adds windows.
//!
//! Each window of 10 s is written at once. The minute and the hour that it lies in are written when they end: until
//! then they are in memory, and for readers, and after a crash, they are the sum of their parts. A window that comes
//! late is added to all of its levels in one transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use sonar_core::Timestamp;
use sonar_core::history::{Event, HistoryWindow, Resolution, SourcePositions, StoreNotice};
use sonar_core::time::NS_PER_S;

use crate::damage::set_aside;
use crate::day_file::{DayFile, has_log};
use crate::day_writer::{DayWriter, by_day};
use crate::lock::StoreLock;
use crate::outgoing::{Outgoing, WaitingKey};
use crate::plan::Slot;
use crate::reader::days;
use crate::space::{has_room, total_bytes};
use crate::stored_window::StoredWindow;
use crate::utc_day::UtcDay;
use crate::{StoreError, StoreSettings, retention};

/// A window that is older than this does not come late: the clock was set back.
const LATE_NS: u64 = 3_600 * NS_PER_S;
/// Only the newest files may lack windows of minutes and hours after a crash.
const MAY_BE_INCOMPLETE: usize = 5;

/// The resolutions that are made of 10 s.
const MADE: [Resolution; 2] = [Resolution::Minute, Resolution::Hour];
/// Windows between two checks of the size of all files.
const WINDOWS_PER_CHECK: u32 = 60;

/// The most sources whose positions are read.
const MAX_POSITIONS: usize = 1_024;

/// How a new window joins the minute or the hour that it lies in.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Joining {
    /// The one that grows in memory.
    Growing,
    /// One that will grow in memory from now on.
    Next,
    /// One that is stored, or should be.
    Stored,
}

/// The writer of a store.
pub(crate) struct StoreWriter {
    pub dir: PathBuf,
    pub settings: StoreSettings,
    pub notices: Vec<StoreNotice>,
    lock: StoreLock,
    file: Option<DayWriter>,
    /// The minute and the hour that grow. They are not stored, but their parts are.
    growing: [Option<StoredWindow>; MADE.len()],
    unchecked: u32,
    last_day: Option<UtcDay>,
    /// Windows that were not written since the disk is full; `None` if they are written.
    lost: Option<u64>,
    /// The days in whose files events of other days may wait.
    undelivered: BTreeSet<UtcDay>,
    positions: BTreeMap<Box<str>, NumberedPosition>,
}

/// How far a source had been read, and the number of that: it grows with each window.
#[derive(Clone, Debug)]
struct NumberedPosition {
    value: Box<str>,
    number: i64,
}

impl StoreWriter {
    /// Opens the store in this folder, which is made if there is none. Upgrades all files, sets damaged ones aside,
    /// and makes the minutes and hours that a crash left unmade.
    pub fn open(dir: &Path, settings: StoreSettings) -> Result<Self, StoreError> {
        make_folder(dir)?;
        let lock = StoreLock::take(dir)?;
        let mut writer = Self {
            dir: dir.to_owned(),
            settings,
            notices: Vec::new(),
            lock,
            file: None,
            growing: [None, None],
            unchecked: 0,
            last_day: None,
            lost: None,
            undelivered: BTreeSet::new(),
            positions: BTreeMap::new(),
        };
        let days = days(dir)?;
        for (at, day) in days.iter().enumerate() {
            let is_recent = days.len() - at <= MAY_BE_INCOMPLETE;
            match writer.recover(*day, is_recent) {
                Err(StoreError::Damaged { why, .. }) => writer.set_aside(*day, &why)?,
                // Nothing can be written now: that shows with the first window, and is no reason not to start.
                Err(StoreError::Database { .. } | StoreError::Io { .. }) => {}
                result => result?,
            }
            writer.read_positions(*day);
        }
        writer.deliver();
        writer.remove_old();
        Ok(writer)
    }

    /// Opens a file once, so that it is upgraded and, after a crash, whole.
    fn recover(&self, day: UtcDay, is_recent: bool) -> Result<(), StoreError> {
        let was_open = has_log(&day.path(&self.dir));
        let mut file = DayWriter::open(&self.dir, day, &self.settings)?;
        if was_open {
            file.check()?;
        }
        if is_recent { file.complete(day.span().to) } else { Ok(()) }
    }

    /// Takes the positions of the file of a day that are the newest of their sources, and notes whether events wait in it.
    fn read_positions(&mut self, day: UtcDay) {
        let Ok(Some(file)) = DayFile::open(&day.path(&self.dir)) else { return };
        file.positions(|name, value, number| {
            let is_full = self.positions.len() >= MAX_POSITIONS;
            match self.positions.get(&name) {
                Some(known) if known.number >= number => {}
                None if is_full => {}
                _ => drop(self.positions.insert(name, NumberedPosition { value, number })),
            }
        });
        if file.has_outgoing() {
            self.undelivered.insert(day);
        }
    }

    /// How far sources had been read: see [`sonar_core::HistoryWriter::positions`].
    pub fn positions(&self) -> SourcePositions {
        self.positions.iter().map(|(name, one)| (name.clone(), one.value.clone())).collect()
    }

    /// Renames the file of a day, keeps what is whole in it, and reports that.
    pub fn set_aside(&mut self, day: UtcDay, why: &str) -> Result<(), StoreError> {
        self.close(day);
        let target = set_aside(&self.dir, day, &self.settings)?;
        let path = day.path(&self.dir);
        let notice = format!(
            "{} is damaged ({why}): it was set aside as {}, and what could be read of it was kept",
            path.display(),
            target.file_name().unwrap_or_default().display()
        );
        self.notices.push(StoreNotice::Damaged(notice));
        Ok(())
    }

    /// Closes the file of a day, if it is open.
    fn close(&mut self, day: UtcDay) {
        self.file.take_if(|file| file.day == day);
    }

    /// Adds a window, events and positions: see [`sonar_core::HistoryWriter::append_with`].
    pub fn append(
        &mut self,
        window: &HistoryWindow,
        events: &[Event],
        positions: &SourcePositions,
    ) -> Result<(), StoreError> {
        let part = StoredWindow::of(window);
        let mut result = self.try_append(&part, events, positions);
        if let Err(StoreError::Damaged { path, why }) = &result {
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(day) = name.and_then(UtcDay::from_file_name) {
                let why = why.clone();
                result = self.set_aside(day, &why).and_then(|()| self.try_append(&part, events, positions));
            }
        }
        match &result {
            Ok(()) => {
                if let Some(lost) = self.lost.take() {
                    self.notices.push(StoreNotice::Recovered(lost));
                }
            }
            // These concern one window; all others, the disk.
            Err(StoreError::Unstorable { .. } | StoreError::Newer { .. } | StoreError::Damaged { .. }) => {}
            Err(error) => {
                if self.lost.is_none() {
                    self.notices.push(StoreNotice::Full(error.to_string()));
                }
                self.lost = Some(self.lost.unwrap_or(0) + 1);
            }
        }
        result
    }

    fn try_append(
        &mut self,
        part: &StoredWindow,
        events: &[Event],
        positions: &SourcePositions,
    ) -> Result<(), StoreError> {
        self.keep_folder()?;
        has_room(&self.dir, &self.settings)?;
        let start = part.window.window.start;
        let day = UtcDay::of(start);
        let mut events = by_day(events);
        let own = events.remove(&day).unwrap_or_default();
        let others: Vec<&Event> = events.into_values().flatten().collect();
        self.make_way(start)?;
        let joining = [0, 1].map(|at| self.joining(Slot::of(start, MADE[at]), at));
        let number = self.positions.values().map(|one| one.number).max().unwrap_or(0).saturating_add(1);
        let (increment, opened) = self.transaction(day, |file| {
            own.iter().try_for_each(|event| file.add_event(event))?;
            file.send(&others)?;
            file.put_positions(positions, number)?;
            add(file, part, joining)
        })?;
        if !others.is_empty() {
            self.undelivered.insert(day);
        }
        for (name, value) in positions {
            self.positions.insert(name.clone(), NumberedPosition { value: value.clone(), number });
        }
        for (growing, opened) in self.growing.iter_mut().zip(opened) {
            *growing = opened.or(growing.take());
        }
        for (growing, joining) in self.growing.iter_mut().zip(joining) {
            if let (Some(growing), Joining::Growing) = (growing, joining) {
                growing.merge(&increment);
                growing.window.limit(self.settings.window_bytes);
            }
        }
        self.deliver();
        self.look_after(start);
        Ok(())
    }

    /// Makes the folder again if it was deleted. What was in it is lost; without this, windows would go into files that
    /// nobody can open any more.
    fn keep_folder(&mut self) -> Result<(), StoreError> {
        if self.lock.is_of(&self.dir) {
            return Ok(());
        }
        self.file = None;
        // Their parts were in the files.
        self.growing = [None, None];
        self.undelivered.clear();
        make_folder(&self.dir)?;
        self.lock = StoreLock::take(&self.dir)?;
        let what = format!("the folder {} was deleted and has been made again", self.dir.display());
        self.notices.push(StoreNotice::Damaged(what));
        Ok(())
    }

    /// Takes the events of other days to their files. What cannot be delivered now waits until a later window.
    fn deliver(&mut self) {
        for day in std::mem::take(&mut self.undelivered) {
            if self.deliver_from(day).is_err() {
                self.undelivered.insert(day);
            }
        }
    }

    fn deliver_from(&mut self, day: UtcDay) -> Result<(), StoreError> {
        let Outgoing { by_day, unreadable, why } =
            self.transaction_or_set_aside(day, |file| file.outgoing())?;
        if !unreadable.is_empty() {
            self.transaction(day, |file| file.forget(&unreadable))?;
            self.note_left_out(day, unreadable.len() as u64, &why);
        }
        let mut result = Ok(());
        for (other, events) in by_day {
            let newer = match self.transaction_or_set_aside(other, |file| file.receive(&events)) {
                Ok(()) => None,
                // A newer program wrote that file: they will never be wanted there.
                Err(error @ StoreError::Newer { .. }) => Some(error.to_string()),
                Err(error) => {
                    result = Err(error);
                    continue;
                }
            };
            let keys: Vec<WaitingKey> = events.iter().map(|one| one.key).collect();
            self.transaction(day, |file| file.forget(&keys))?;
            if let Some(why) = newer {
                let count = events.iter().fold(0, |sum: u64, one| sum.saturating_add(one.event.count.max(1)));
                self.note_left_out(day, count, &why);
            } else {
                // What stays does no harm.
                let _ = self.transaction(other, |file| file.forget_received(&keys));
            }
        }
        result
    }

    /// Reports that events that waited in the file of a day are lost.
    fn note_left_out(&mut self, day: UtcDay, count: u64, why: &str) {
        let path = day.path(&self.dir);
        let notice =
            format!("events of other days that waited in {} were left out ({count}): {why}", path.display());
        self.notices.push(StoreNotice::Damaged(notice));
    }

    /// Like [`transaction`](Self::transaction); a damaged file is set aside first.
    fn transaction_or_set_aside<T>(
        &mut self,
        day: UtcDay,
        work: impl Fn(&mut DayWriter) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match self.transaction(day, &work) {
            Err(StoreError::Damaged { why, .. }) => {
                self.set_aside(day, &why)?;
                self.transaction(day, &work)
            }
            result => result,
        }
    }

    /// Stores the minute and the hour in memory if a window at `start` does not belong to them, unless it is late.
    fn make_way(&mut self, start: Timestamp) -> Result<(), StoreError> {
        for (at, resolution) in MADE.into_iter().enumerate() {
            let Some(growing) = &self.growing[at] else { continue };
            let open = growing.window.window.start;
            let is_late = start < open && open.since(start) <= LATE_NS;
            if open == Slot::of(start, resolution).start || is_late {
                continue;
            }
            let Some(growing) = self.growing[at].take() else { continue };
            let stored = self.transaction(UtcDay::of(open), |file| file.put(&growing, resolution));
            if let Err(error) = stored {
                self.growing[at] = Some(growing);
                return Err(error);
            }
        }
        Ok(())
    }

    /// The bytes of the minute and the hour that grow.
    pub fn memory(&self) -> usize {
        self.growing.iter().flatten().map(|growing| growing.window.memory()).sum()
    }

    fn joining(&self, slot: Slot, at: usize) -> Joining {
        match &self.growing[at] {
            None => Joining::Next,
            Some(growing) if growing.window.window.start == slot.start => Joining::Growing,
            Some(_) => Joining::Stored,
        }
    }

    /// Writes to the file of a day: all of it, or nothing.
    fn transaction<T>(
        &mut self,
        day: UtcDay,
        work: impl FnOnce(&mut DayWriter) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.file.take_if(|file| file.day != day);
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(DayWriter::open(&self.dir, day, &self.settings)?),
        };
        let result = file.transaction(work);
        if result.is_err() {
            // What is in memory may not be what is in the file.
            self.file = None;
        }
        result
    }

    /// Completes a day some time after its end, and then removes what is too old; from time to time removes what exceeds
    /// the size.
    fn look_after(&mut self, start: Timestamp) {
        self.unchecked += 1;
        let day = UtcDay::of(start.minus_ns(LATE_NS));
        if self.last_day.replace(day) != Some(day) {
            // What cannot be done now is done the next time.
            let _ = self.complete_days();
            self.remove_old();
        } else if self.unchecked >= WINDOWS_PER_CHECK {
            self.remove_too_much();
        }
    }

    /// Makes the windows of the days that have ended.
    fn complete_days(&mut self) -> Result<(), StoreError> {
        self.file = None;
        let keep_from = self.keep_from();
        for day in days(&self.dir)?.into_iter().rev().take(MAY_BE_INCOMPLETE) {
            if day.span().to <= keep_from {
                DayWriter::open(&self.dir, day, &self.settings)?.complete(keep_from)?;
            }
        }
        Ok(())
    }

    /// The hours from here on may grow.
    fn keep_from(&self) -> Timestamp {
        let starts = self.growing.iter().flatten().map(|part| part.window.window.start);
        let first = starts.min().unwrap_or(Timestamp::from_unix_ns(u64::MAX));
        Slot::of(first, Resolution::Hour).start
    }

    fn remove_old(&mut self) {
        self.file = None;
        let _ = retention::remove_old(&self.dir, &self.settings, self.keep_from());
        self.remove_too_much();
    }

    fn remove_too_much(&mut self) {
        self.unchecked = 0;
        if total_bytes(&self.dir).is_ok_and(|total| total > self.settings.max_bytes) {
            self.file = None;
            let keep_from = self.keep_from();
            let _ = retention::remove_too_much(&self.dir, &self.settings, keep_from, &mut self.notices);
        }
    }
}

fn make_folder(dir: &Path) -> Result<(), StoreError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(StoreError::of_io("create", dir))
}

/// Adds a window to its three levels. Returns what it adds to them, and the minute and the hour that begin to grow.
fn add(
    file: &mut DayWriter,
    part: &StoredWindow,
    joining: [Joining; MADE.len()],
) -> Result<(StoredWindow, [Option<StoredWindow>; MADE.len()]), StoreError> {
    let start = part.window.window.start;
    let slot = Slot::of(start, Resolution::TenSeconds);
    let index = file.file.index(Slot::of(start, Resolution::Hour).span())?;
    let is_kept = |resolution| !index.is_removed(Slot::of(start, resolution));
    // In memory there is only what could be made of stored parts again.
    let joining = joining.map(|one| match one {
        Joining::Next if !is_kept(Resolution::TenSeconds) => Joining::Stored,
        other => other,
    });
    // All are read before the first is written, so that none has the new window yet.
    let stored = file.file.load(slot)?;
    let mut made = [None, None];
    for (at, resolution) in MADE.into_iter().enumerate() {
        let slot = Slot::of(start, resolution);
        if joining[at] != Joining::Growing && is_kept(resolution) {
            made[at] = Some(file.file.load(slot)?.unwrap_or_else(|| StoredWindow::spanning(slot.span())));
        }
    }
    let (whole, increment) = join(stored, part);
    if is_kept(Resolution::TenSeconds) {
        file.put(&whole, Resolution::TenSeconds)?;
    }
    file.reopen_day()?;
    for (at, resolution) in MADE.into_iter().enumerate() {
        let Some(window) = &mut made[at] else { continue };
        window.merge(&increment);
        window.window.limit(file.file.window_bytes);
        if joining[at] == Joining::Next {
            file.remove(Slot::of(start, resolution))?;
        } else {
            file.put(window, resolution)?;
            made[at] = None;
        }
    }
    Ok((increment, made))
}

/// A stored window with a new part of it, and what the part adds: collectors observe no longer than the window lasts.
fn join(stored: Option<StoredWindow>, part: &StoredWindow) -> (StoredWindow, StoredWindow) {
    let mut increment = part.clone();
    let Some(mut whole) = stored else { return (increment.clone(), increment) };
    let before = whole.window.observed_ns;
    whole.merge(part);
    for (at, before) in before.into_iter().enumerate() {
        increment.window.observed_ns[at] = whole.window.observed_ns[at].saturating_sub(before);
    }
    (whole, increment)
}
