//! How far the logs of servers are stored.
//!
//! The lines of a log are in several windows at a time, and windows are stored one after the other, so a single position
//! cannot say which lines are stored. With each window goes the place of the first line that is in no stored window, and
//! for stored windows that have lines after it, up to where they have them. A later run of the agent begins at that place
//! and leaves out the lines of these windows: whenever the agent is killed, each line is stored once.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::log_place::{FileIdentity, FollowPosition, LinePlace};
use crate::Endpoint;
use crate::history::SourcePositions;
use crate::time::{NS_PER_S, Timestamp};

/// The most stored windows of a log that have lines after its place; the oldest is forgotten.
const MAX_STORED: usize = 64;
/// The most logs.
const MAX_LOGS: usize = 1_024;
/// What the names of positions of logs begin with; the port of the server follows, or its address if that is in its name.
const PREFIX: &str = "log:";

/// Which lines of a log a part of a window has.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LogShare {
    /// The first of them.
    pub first: LinePlace,
    /// Bytes of the log that were read before the last of them.
    pub last_read: u64,
}

/// The shares of logs, by their servers.
pub type LogShares = BTreeMap<Endpoint, LogShare>;

/// Adds a line to a share.
pub fn add_line(shares: &mut LogShares, server: Endpoint, line: LinePlace) {
    add_share(shares, server, LogShare { first: line, last_read: line.read });
}

/// Adds what another part of the same window has.
pub(super) fn add_shares(shares: &mut LogShares, others: &LogShares) {
    others.iter().for_each(|(server, other)| add_share(shares, *server, *other));
}

fn add_share(shares: &mut LogShares, server: Endpoint, other: LogShare) {
    let share = shares.entry(server).or_insert(other);
    share.first = share.first.earlier(other.first);
    share.last_read = share.last_read.max(other.last_read);
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

    /// A position as text: device and number of the log, bytes before the position and their checksum; then the stored
    /// windows, each with its start in seconds and the bytes from the position to its last line. That is valid JSON.
    fn text(&self) -> String {
        let FollowPosition { identity: FileIdentity { device, inode }, offset, checksum } =
            self.place.position;
        let window = |(start, read): &(Timestamp, u64)| format!("[{},{read}]", start.unix_ns() / NS_PER_S);
        let stored: Vec<String> = self.stored.iter().map(window).collect();
        format!("[{device},{inode},{offset},{checksum},[{}]]", stored.join(","))
    }

    /// A position of which this is the text, if it is one.
    fn read(text: &str) -> Option<Self> {
        let (place, stored) = text.strip_prefix('[')?.strip_suffix("]]")?.split_once(",[")?;
        let numbers =
            |list: &str| list.split(',').map(|number| number.parse().ok()).collect::<Option<Vec<u64>>>();
        let [device, inode, offset, checksum] = <[u64; 4]>::try_from(numbers(place)?).ok()?;
        let identity = FileIdentity { device, inode };
        let position = FollowPosition { identity, offset, checksum: u32::try_from(checksum).ok()? };
        let window = |pair: &str| {
            let pair = numbers(pair.strip_prefix('[')?.strip_suffix(']')?)?;
            let [seconds, read] = <[u64; 2]>::try_from(pair).ok()?;
            Some((Timestamp::from_unix(seconds, 0), read))
        };
        let pairs = stored.split_inclusive("],").map(|pair| pair.trim_end_matches(','));
        let stored = pairs.take(MAX_STORED).map(window).collect::<Option<_>>()?;
        Some(Self { place: LinePlace { position, read: 0 }, stored })
    }
}

/// The name of the position in the log of a server. One of this host has no address, only a port.
fn name_of(server: Endpoint) -> String {
    match server.ip().is_unspecified() {
        true => format!("{PREFIX}{}", server.port),
        false => format!("{PREFIX}{server}"),
    }
}

/// The server whose log has a position of this name.
fn server_of(name: &str) -> Option<Endpoint> {
    let server = name.strip_prefix(PREFIX)?;
    match server.parse() {
        Ok(port) => Some(Endpoint::v4([0; 4], port)),
        Err(_) => server.parse::<SocketAddr>().ok().map(Endpoint::from),
    }
}

/// Where an earlier run stopped in the logs, by their servers. What cannot be read is left out.
pub fn starts(positions: &SourcePositions) -> BTreeMap<Endpoint, LogStart> {
    let start = |(name, text): (&str, &str)| Some((server_of(name)?, LogStart::read(text)?));
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
pub struct LogProgress(BTreeMap<Endpoint, StoredLog>);

impl LogProgress {
    /// Of logs in which an earlier run stopped at these places: stored windows still have lines after them.
    pub fn since(starts: BTreeMap<Endpoint, LogStart>) -> Self {
        let log = |LogStart { place, stored }| StoredLog {
            ahead: place,
            lasting: None,
            stored: stored.into_iter().collect(),
        };
        Self(starts.into_iter().map(|(server, start)| (server, log(start))).collect())
    }

    /// A part came. What is in no part so far begins at these places; what is still in a file, at `lasting`.
    pub fn comes(&mut self, ahead: &BTreeMap<Endpoint, LinePlace>, lasting: &BTreeMap<Endpoint, LinePlace>) {
        for (server, place) in ahead {
            let is_full = self.0.len() >= MAX_LOGS;
            match self.0.get_mut(server) {
                Some(log) => log.ahead = *place,
                None if is_full => continue,
                None => {
                    let log = StoredLog { ahead: *place, lasting: None, stored: BTreeMap::new() };
                    self.0.insert(*server, log);
                }
            }
        }
        for (server, place) in lasting {
            if let Some(log) = self.0.get_mut(server) {
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
        let text = |(server, log): (&Endpoint, &mut StoredLog)| {
            let firsts = open.clone().filter_map(|shares| shares.get(server)).map(|share| share.first);
            let first = firsts.fold(log.ahead, LinePlace::earlier);
            // Of a window that is not stored, the lines of before are lost if the agent is killed.
            let place = log.lasting.map_or(first, |lasting| first.later(lasting));
            log.stored.retain(|_, last_read| *last_read >= place.read);
            while log.stored.len() > MAX_STORED {
                log.stored.pop_first();
            }
            let mut stored = log.stored.clone();
            note(&mut stored, start, own.get(server));
            let after = stored.into_iter().filter(|(_, last_read)| *last_read >= place.read);
            let stored = after.map(|(start, last_read)| (start, last_read - place.read)).collect();
            (name_of(*server).into(), LogStart { place, stored }.text().into())
        };
        self.0.iter_mut().map(text).collect()
    }

    /// The window that begins at `start` and has `own` is stored.
    pub fn stored(&mut self, start: Timestamp, own: &LogShares) {
        for (server, log) in &mut self.0 {
            note(&mut log.stored, start, own.get(server));
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

    const SERVER: Endpoint = Endpoint::v4([0; 4], 5);

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
        lines.iter().for_each(|read| add_line(&mut shares, SERVER, line(*read)));
        shares
    }

    /// Which of these lines a later run leaves out if they are of these windows; `None`: those before its start.
    fn left_out(positions: &SourcePositions, lines: &[(u64, u64)]) -> Vec<Option<bool>> {
        let all = starts(positions);
        let start = &all[&SERVER];
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
        progress.comes(&[(SERVER, line(50))].into(), &BTreeMap::new());
        let lines = [(10, 0), (20, 10), (30, 0), (40, 10), (50, 10), (60, 0)];
        let positions = progress.positions(at(0), &first, [&second].into_iter());
        let expected = [None, Some(false), Some(true), Some(false), Some(false), Some(false)];
        assert_eq!(left_out(&positions, &lines), expected);
        // It is not stored, and the next one is.
        let positions = progress.positions(at(10), &second, [].into_iter());
        assert_eq!(left_out(&positions, &lines)[3..], [None, Some(false), Some(false)]);
        progress.stored(at(10), &second);
        // A line of the first window came late.
        progress.comes(&[(SERVER, line(70))].into(), &BTreeMap::new());
        let positions = progress.positions(at(0), &shares(&[60]), [&shares(&[50])].into_iter());
        assert_eq!(left_out(&positions, &lines)[3..], [None, Some(false), Some(true)]);
        assert_eq!(starts(&[("log:5".into(), "[[".into()), ("x".into(), "1".into())].into()), [].into());
    }

    #[test]
    fn a_position_is_stored_as_json_and_anything_else_is_none() {
        let position = FollowPosition { offset: u64::MAX, checksum: u32::MAX, ..line(0).position };
        for (stored, text) in [
            (vec![], "[1,18446744073709551615,18446744073709551615,4294967295,[]]"),
            (vec![(at(0), 5)], "[1,18446744073709551615,18446744073709551615,4294967295,[[1000000,5]]]"),
            (
                vec![(at(0), 5), (at(10), 0)],
                "[1,18446744073709551615,18446744073709551615,4294967295,[[1000000,5],[1000010,0]]]",
            ),
        ] {
            let start = LogStart { place: LinePlace { position, read: 0 }, stored };
            assert_eq!((start.text().as_str(), LogStart::read(text)), (text, Some(start)));
        }
        for text in [
            "",
            "[[",
            "1",
            "[1,2,3,[]]",
            "[1,2,3,4]",
            "[1,2,3,4,[5]]",
            "[1,2,3,4294967296,[]]",
            "[a,2,3,4,[]]",
        ] {
            assert_eq!(LogStart::read(text), None, "{text}");
        }
    }

    #[test]
    fn two_servers_with_one_port_have_a_position_each() {
        let servers = [SERVER, Endpoint::v4([10, 0, 0, 2], 5), Endpoint::v6([7; 16], 5)];
        assert_eq!(servers.map(name_of)[..2], ["log:5", "log:10.0.0.2:5"]);
        assert_eq!(servers.map(|server| server_of(&name_of(server))), servers.map(Some));
        assert_eq!(["log:", "log:70000", "log:x:5", "5"].map(server_of), [None; 4]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut progress = LogProgress::default();
        progress.comes(&[(SERVER, line(0))].into(), &BTreeMap::new());
        for number in 0..1_000 {
            let own = shares(&[number]);
            progress.positions(at(number * 10), &own, [].into_iter());
            progress.stored(at(number * 10), &own);
            assert!(progress.0[&SERVER].stored.len() <= MAX_STORED + 1);
        }
        progress
            .comes(&(0..2_000).map(|port| (Endpoint::v4([0; 4], port), line(0))).collect(), &BTreeMap::new());
        assert_eq!(progress.0.len(), MAX_LOGS);
    }
}
