//! Removes what is too old or too much.

use std::fs;
use std::path::{Path, PathBuf};

use sonar_core::Timestamp;
use sonar_core::history::{Resolution, StoreNotice};

use crate::day_file::{DayFile, beside};
use crate::day_writer::DayWriter;
use crate::reader::days;
use crate::space::total_bytes;
use crate::utc_day::UtcDay;
use crate::{StoreError, StoreSettings};

/// A day far from all other days says nothing about their age: the clock was wrong.
const NEAR_DAYS: u64 = 30;
/// As many days must lie near a day.
const NEAR: usize = 2;
/// After shrinking, one in this many bytes of the cap is free.
const SPARE: u64 = 20;

/// The newest day that has [`NEAR`] days within [`NEAR_DAYS`] before it: age counts from there, and not from the
/// clock, so that a clock that is wrong removes nothing.
fn newest(days: &[UtcDay]) -> Option<UtcDay> {
    let near = |day: &UtcDay| days.iter().filter(|one| *one < day && day.0 - one.0 <= NEAR_DAYS).count();
    days.iter().rev().copied().find(|day| near(day) >= NEAR)
}

/// Removes windows that are too old: each resolution of whole days.
pub(crate) fn remove_old(
    dir: &Path,
    settings: &StoreSettings,
    keep_from: Timestamp,
) -> Result<(), StoreError> {
    let days = days(dir)?;
    let Some(newest) = newest(&days) else { return Ok(()) };
    for day in days.into_iter().filter(|day| day.span().to <= keep_from) {
        let is_old = |resolution| day.0.saturating_add(settings.days_of(resolution)) < newest.0;
        if is_old(Resolution::Hour) {
            remove_file(&day.path(dir))?;
            continue;
        }
        for resolution in [Resolution::TenSeconds, Resolution::Minute] {
            if is_old(resolution) && has_windows(dir, day, resolution)? {
                DayWriter::open(dir, day, settings)?.remove_windows(resolution, day.span().to)?;
            }
        }
    }
    Ok(())
}

fn has_windows(dir: &Path, day: UtcDay, resolution: Resolution) -> Result<bool, StoreError> {
    let Some(file) = DayFile::open(&day.path(dir))? else { return Ok(false) };
    Ok(!file.index(day.span())?.starts[resolution as usize].is_empty())
}

/// Removes the finest and oldest windows until all files are smaller than the cap; the hour that is open stays.
pub(crate) fn remove_too_much(
    dir: &Path,
    settings: &StoreSettings,
    keep_from: Timestamp,
    notices: &mut Vec<StoreNotice>,
) -> Result<(), StoreError> {
    let target = settings.max_bytes - settings.max_bytes / SPARE;
    let is_small = || total_bytes(dir).map(|total| total <= target);
    // Damaged files go first: everything readable in them was copied when they were set aside.
    for path in damaged(dir)? {
        if is_small()? {
            return Ok(());
        }
        remove_file(&path)?;
    }
    let days = days(dir)?;
    for resolution in [Resolution::TenSeconds, Resolution::Minute] {
        for day in &days {
            if is_small()? {
                return Ok(());
            }
            let until = day.span().to.min(keep_from);
            if has_windows(dir, *day, resolution)?
                && DayWriter::open(dir, *day, settings)?.remove_windows(resolution, until)?
            {
                notices.push(StoreNotice::Shrunk(resolution, day.to_string()));
            }
        }
    }
    for day in days.split_last().map_or(&[][..], |(_, older)| older) {
        if is_small()? {
            return Ok(());
        }
        if day.span().to <= keep_from {
            remove_file(&day.path(dir))?;
            notices.push(StoreNotice::Shrunk(Resolution::Hour, day.to_string()));
        }
    }
    Ok(())
}

/// The damaged files, the oldest first.
fn damaged(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(StoreError::of_io("read", dir))? {
        let path = entry.map_err(StoreError::of_io("read", dir))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.contains(".damaged-") && !name.ends_with("-wal") && !name.ends_with("-shm") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Removes a database with its log.
fn remove_file(path: &Path) -> Result<(), StoreError> {
    // First the database: a log without one is ignored, but not the other way round.
    for suffix in ["", "-wal", "-shm"] {
        let path = beside(path, suffix);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::of_io("remove", path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_clock_does_not_make_old_what_is_not() {
        let of =
            |days: &[u64]| newest(&days.iter().map(|day| UtcDay(*day)).collect::<Vec<_>>()).map(|day| day.0);
        assert_eq!(of(&[100, 101, 102]), Some(102));
        assert_eq!(of(&[100, 101, 102, 3_750]), Some(102), "ten years ahead");
        assert_eq!(of(&[100, 101, 102, 3_750, 3_751]), Some(102), "over midnight");
        assert_eq!(of(&[100, 101, 102, 190, 191, 192]), Some(192), "a pause of three months");
        assert_eq!(of(&[100, 107, 114]), Some(114), "once a week");
        assert_eq!(of(&[100, 101]), None);
        assert_eq!(of(&[]), None);
    }
}
