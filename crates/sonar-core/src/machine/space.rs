//! Notices file systems that fill up.

use std::collections::{BTreeMap, VecDeque};

use super::reading::{FileSystemReading, MachineReading};
use crate::Endpoint;
use crate::history::{Event, EventKind};
use crate::time::NS_PER_S;

/// Per cent of space or inodes used from which on there is an event, each once.
const LEVELS: [f64; 3] = [90.0, 95.0, 99.0];
/// Per cent below a level from which on it can be reached again.
const RETREAT: f64 = 2.0;
/// The most file systems that are watched.
const MAX_WATCHED: usize = 64;
/// Time between the readings that a trend is made of.
const TREND_STEP_NS: u64 = 300 * NS_PER_S;
/// Readings of a trend: an hour.
const TREND_READINGS: usize = 13;
/// The fewest readings of a trend: half an hour.
const MIN_TREND_READINGS: usize = 7;
/// A file system that will be full within this time is worth an event.
const SOON_HOURS: f64 = 6.0;
/// Time after which the same prediction is made again.
const REPEAT_NS: u64 = 6 * 3_600 * NS_PER_S;

/// Watches the space of file systems.
#[derive(Debug, Default)]
pub(super) struct SpaceWatch {
    watched: BTreeMap<Box<str>, WatchedSpace>,
}

#[derive(Debug, Default)]
struct WatchedSpace {
    space_level: FillLevel,
    inode_level: FillLevel,
    /// Time since boot and available bytes, the oldest first.
    trend: VecDeque<(u64, u64)>,
    /// When it was last predicted to be full soon.
    predicted_ns: Option<u64>,
}

/// How many of [`LEVELS`] have been reached.
#[derive(Debug, Default)]
struct FillLevel(usize);

impl FillLevel {
    /// Whether another level is reached now.
    fn rises(&mut self, percent: f64) -> bool {
        let reached = LEVELS.iter().filter(|level| percent >= **level).count();
        let held = LEVELS.iter().filter(|level| percent >= **level - RETREAT).count();
        let rises = reached > self.0;
        self.0 = self.0.clamp(reached, held);
        rises
    }
}

impl SpaceWatch {
    /// Adds the file systems of a reading; events go to `events`.
    pub fn add(&mut self, now: &MachineReading, events: &mut Vec<Event>) {
        let is_mounted = |point: &str| now.file_systems.iter().any(|found| *found.point == *point);
        self.watched.retain(|point, _| is_mounted(point));
        for found in &now.file_systems {
            if !self.watched.contains_key(&found.point) {
                if self.watched.len() >= MAX_WATCHED {
                    continue;
                }
                self.watched.insert(found.point.clone(), WatchedSpace::default());
            }
            let Some(watched) = self.watched.get_mut(&found.point) else { continue };
            let texts =
                [watched.space(found), watched.inodes(found), watched.prediction(found, now.clocks.boot_ns)];
            let event = |text: String| {
                let at = now.clocks.realtime;
                Event::new(at, EventKind::FileSystemFull, Endpoint::default(), &text).about(&found.point)
            };
            events.extend(texts.into_iter().flatten().map(event));
        }
    }
}

impl WatchedSpace {
    fn space(&mut self, found: &FileSystemReading) -> Option<String> {
        let percent = found.used_percent()?;
        let free = found.available as f64 / 1e9;
        self.space_level
            .rises(percent)
            .then(|| format!("{percent:.0} % of the space is used, {free:.1} GB are left"))
    }

    fn inodes(&mut self, found: &FileSystemReading) -> Option<String> {
        let percent = found.inodes_used_percent()?;
        self.inode_level.rises(percent).then(|| format!("{percent:.0} % of the inodes are used"))
    }

    /// Says that it will be full soon, if its space shrank in both halves of the last hour.
    fn prediction(&mut self, found: &FileSystemReading, boot_ns: u64) -> Option<String> {
        if self.trend.back().is_some_and(|(last, _)| boot_ns < last.saturating_add(TREND_STEP_NS)) {
            return None;
        }
        if self.trend.len() == TREND_READINGS {
            self.trend.pop_front();
        }
        self.trend.push_back((boot_ns, found.available));
        if self.trend.len() < MIN_TREND_READINGS
            || self.predicted_ns.is_some_and(|last| boot_ns < last.saturating_add(REPEAT_NS))
        {
            return None;
        }
        let (first_ns, first) = *self.trend.front()?;
        let (_, middle) = *self.trend.get(self.trend.len() / 2)?;
        let (last_ns, last) = *self.trend.back()?;
        if first <= middle || middle <= last {
            return None;
        }
        let hours = last_ns.saturating_sub(first_ns) as f64 / NS_PER_S as f64 / 3_600.0;
        let left = last as f64 / ((first - last) as f64 / hours);
        if left > SOON_HOURS {
            return None;
        }
        self.predicted_ns = Some(boot_ns);
        Some(format!("it will be full in about {left:.1} hours if it goes on like in the last {hours:.1}"))
    }
}
