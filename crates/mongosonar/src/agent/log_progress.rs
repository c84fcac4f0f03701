//! How far the logs of servers are stored.
//!
//! The lines of a log are in several windows at a time, and windows are stored one after the other, so a single position
//! cannot say which lines are stored. With each window goes the place of the first line that is in no stored window, and
//! for stored windows that have lines after it, up to where they have them. A later run of the agent begins at that place
//! and leaves out the lines of these windows: whenever the agent is killed, each line is stored once.

use std::collections::BTreeMap;

use sonar_core::Timestamp;
use sonar_core::history::SourcePositions;
use sonar_core::time::NS_PER_S;

use crate::input::follow::{FileIdentity, FollowPosition, LinePlace};

/// The most stored windows of a log that have lines after its place; the oldest is forgotten.
const MAX_STORED: usize = 64;
/// The most logs.
const MAX_LOGS: usize = 1_024;
/// What the names of positions of logs begin with; the port of the server follows.
const PREFIX: &str = "log:";

/// Which lines of a log a part of a window has.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LogShare {
    /// The first of them.
    pub first: LinePlace,
    /// Bytes of the log that were read before the last of them.
    pub last_read: u64,
}

/// The shares of logs, by the ports of their servers.
pub type LogShares = BTreeMap<u16, LogShare>;

/// Adds a line to a share.
pub fn add_line(shares: &mut LogShares, port: u16, line: LinePlace) {
    add_share(shares, port, LogShare { first: line, last_read: line.read });
}

/// Adds what another part of the same window has.
pub fn add_shares(shares: &mut LogShares, others: &LogShares) {
    others.iter().for_each(|(port, other)| add_share(shares, *port, *other));
}

fn add_share(shares: &mut LogShares, port: u16, other: LogShare) {
    let share = shares.entry(port).or_insert(other);
    share.first = earlier(share.first, other.first);
    share.last_read = share.last_read.max(other.last_read);
}

/// The earlier of two places in the same log.
pub fn earlier(one: LinePlace, other: LinePlace) -> LinePlace {
    if other.read < one.read { other } else { one }
}

/// The later one.
pub fn later(one: LinePlace, other: LinePlace) -> LinePlace {
    if other.read > one.read { other } else { one }
}

/// Where an earlier run of the agent stopped in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogStart {
    /// The first line that is in no stored window.
    pub place: LinePlace,
    /// Stored windows with later lines, and the bytes that were read before the last of these.
    pub stored: Vec<(Timestamp, u64)>,
}

impl LogStart {
    /// Whether this line, which belongs to this window, is stored.
    pub fn has(&self, line: LinePlace, window: Timestamp) -> bool {
        self.stored.iter().any(|(start, last_read)| *start == window && line.read <= *last_read)
    }
}

/// The text of a position: device and number of the log, bytes before the position and their checksum; then the stored
/// windows, each with its start in seconds and the bytes from the position to its last line.
type SavedStart = (u64, u64, u64, u32, Vec<(u64, u64)>);

/// Where an earlier run stopped in the logs, by the ports of their servers. What cannot be read is left out.
pub fn starts(positions: &SourcePositions) -> BTreeMap<u16, LogStart> {
    let start = |(name, text): (&str, &str)| {
        let port = name.strip_prefix(PREFIX)?.parse().ok()?;
        let (device, inode, offset, checksum, stored): SavedStart = serde_json::from_str(text).ok()?;
        let identity = FileIdentity { device, inode };
        let place = LinePlace { position: FollowPosition { identity, offset, checksum }, read: 0 };
        let window = |(seconds, read): (u64, u64)| (Timestamp::from_unix(seconds, 0), read);
        Some((port, LogStart { place, stored: stored.into_iter().take(MAX_STORED).map(window).collect() }))
    };
    positions.iter().filter_map(|(name, text)| start((name, text))).take(MAX_LOGS).collect()
}

/// How far one log is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StoredLog {
    /// The first line that is in no part that came.
    ahead: LinePlace,
    /// The first line after the last truncation: earlier ones are in no file any more.
    lasting: Option<LinePlace>,
    /// Stored windows, and the bytes that were read before their last lines.
    stored: BTreeMap<Timestamp, u64>,
}

/// How far all logs are stored.
#[derive(Debug, Default)]
pub struct LogProgress(BTreeMap<u16, StoredLog>);

impl LogProgress {
    /// Of logs in which an earlier run stopped at these places: stored windows still have lines after them.
    pub fn since(starts: BTreeMap<u16, LogStart>) -> Self {
        let log = |LogStart { place, stored }| StoredLog {
            ahead: place,
            lasting: None,
            stored: stored.into_iter().collect(),
        };
        Self(starts.into_iter().map(|(port, start)| (port, log(start))).collect())
    }

    /// A part came. What is in no part so far begins at these places; what is still in a file, at `lasting`.
    pub fn comes(&mut self, ahead: &BTreeMap<u16, LinePlace>, lasting: &BTreeMap<u16, LinePlace>) {
        for (port, place) in ahead {
            let is_full = self.0.len() >= MAX_LOGS;
            match self.0.get_mut(port) {
                Some(log) => log.ahead = *place,
                None if is_full => continue,
                None => {
                    let log = StoredLog { ahead: *place, lasting: None, stored: BTreeMap::new() };
                    self.0.insert(*port, log);
                }
            }
        }
        for (port, place) in lasting {
            if let Some(log) = self.0.get_mut(port) {
                log.lasting = Some(*place);
            }
        }
    }

    /// The positions to store with the window that begins at `start` and has `own`, while windows with `open` are not
    /// stored.
    pub fn positions<'a>(
        &mut self,
        start: Timestamp,
        own: &LogShares,
        open: impl Iterator<Item = &'a LogShares> + Clone,
    ) -> SourcePositions {
        let text = |(port, log): (&u16, &mut StoredLog)| {
            let firsts = open.clone().filter_map(|shares| shares.get(port)).map(|share| share.first);
            let first = firsts.fold(log.ahead, earlier);
            // Of a window that is not stored, the lines of before are lost if the agent is killed.
            let place = log.lasting.map_or(first, |lasting| later(first, lasting));
            log.stored.retain(|_, last_read| *last_read >= place.read);
            while log.stored.len() > MAX_STORED {
                log.stored.pop_first();
            }
            let mut stored = log.stored.clone();
            note(&mut stored, start, own.get(port));
            let LinePlace { position: FollowPosition { identity, offset, checksum }, read } = place;
            let after = stored.into_iter().filter(|(_, last_read)| *last_read >= read);
            let after = after.map(|(start, last_read)| (start.unix_ns() / NS_PER_S, last_read - read));
            let saved: SavedStart = (identity.device, identity.inode, offset, checksum, after.collect());
            let text = serde_json::to_string(&saved).ok()?;
            Some((format!("{PREFIX}{port}").into(), text.into()))
        };
        self.0.iter_mut().filter_map(text).collect()
    }

    /// The window that begins at `start` and has `own` is stored.
    pub fn stored(&mut self, start: Timestamp, own: &LogShares) {
        for (port, log) in &mut self.0 {
            note(&mut log.stored, start, own.get(port));
        }
    }
}

/// Notes a stored window of a log.
fn note(stored: &mut BTreeMap<Timestamp, u64>, start: Timestamp, own: Option<&LogShare>) {
    if let Some(share) = own {
        let last_read = stored.entry(start).or_insert(share.last_read);
        *last_read = share.last_read.max(*last_read);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_unix(1_000_000 + second, 0)
    }

    /// The line with this many bytes before it, in a file that begins 100 bytes before all that is read.
    fn line(read: u64) -> LinePlace {
        let identity = FileIdentity { device: 1, inode: u64::MAX };
        LinePlace { position: FollowPosition { identity, offset: 100 + read, checksum: 7 }, read }
    }

    fn shares(lines: &[u64]) -> LogShares {
        let mut shares = LogShares::new();
        lines.iter().for_each(|read| add_line(&mut shares, 5, line(*read)));
        shares
    }

    /// Which of these lines a later run leaves out if they are of these windows; `None`: those before its start.
    fn left_out(positions: &SourcePositions, lines: &[(u64, u64)]) -> Vec<Option<bool>> {
        let all = starts(positions);
        let start = &all[&5];
        let begun = start.place.position.offset - 100;
        let is_left_out = |(read, second): &(u64, u64)| {
            let read = read.checked_sub(begun)?;
            Some(start.has(LinePlace { read, ..line(0) }, at(*second)))
        };
        lines.iter().map(is_left_out).collect()
    }

    #[test]
    fn lines_of_stored_windows_are_left_out_and_all_others_come_again() {
        let mut progress = LogProgress::default();
        // Lines of two windows, mixed.
        let (first, second) = (shares(&[0, 10, 30]), shares(&[20, 40]));
        progress.comes(&[(5, line(50))].into(), &BTreeMap::new());
        let lines = [(10, 0), (20, 10), (30, 0), (40, 10), (50, 10), (60, 0)];
        let positions = progress.positions(at(0), &first, [&second].into_iter());
        let expected = [None, Some(false), Some(true), Some(false), Some(false), Some(false)];
        assert_eq!(left_out(&positions, &lines), expected);
        // It is not stored, and the next one is.
        let positions = progress.positions(at(10), &second, [].into_iter());
        assert_eq!(left_out(&positions, &lines)[3..], [None, Some(false), Some(false)]);
        progress.stored(at(10), &second);
        // A line of the first window came late.
        progress.comes(&[(5, line(70))].into(), &BTreeMap::new());
        let positions = progress.positions(at(0), &shares(&[60]), [&shares(&[50])].into_iter());
        assert_eq!(left_out(&positions, &lines)[3..], [None, Some(false), Some(true)]);
        assert_eq!(starts(&[("log:5".into(), "[[".into()), ("x".into(), "1".into())].into()), [].into());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut progress = LogProgress::default();
        progress.comes(&[(5, line(0))].into(), &BTreeMap::new());
        for number in 0..1_000 {
            let own = shares(&[number]);
            progress.positions(at(number * 10), &own, [].into_iter());
            progress.stored(at(number * 10), &own);
            assert!(progress.0[&5].stored.len() <= MAX_STORED + 1);
        }
        progress.comes(&(0..2_000).map(|port| (port, line(0))).collect(), &BTreeMap::new());
        assert_eq!(progress.0.len(), MAX_LOGS);
    }
}
