//! Where to go on in the logs of servers: after a restart of the agent, and of a server.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use sonar_core::Endpoint;
use sonar_core::history::SourcePositions;
use sonar_core::observation::{LinePlace, LogStart, starts};

use crate::locking::lock;

/// The most logs.
const MAX_LOGS: usize = 1_024;

/// Where the next line of each log is, by its server.
#[derive(Debug, Default)]
pub struct LogPositions(Mutex<BTreeMap<Endpoint, LogStart>>);

impl LogPositions {
    /// Those that were stored with the last windows.
    pub fn stored(positions: &SourcePositions) -> Self {
        Self(Mutex::new(starts(positions)))
    }

    fn starts(&self) -> MutexGuard<'_, BTreeMap<Endpoint, LogStart>> {
        lock(&self.0)
    }

    /// Where to go on in the log of this server.
    pub fn of(&self, server: Endpoint) -> Option<LogStart> {
        self.starts().get(&server).cloned()
    }

    /// Notes how far a log has been read.
    pub fn set(&self, server: Endpoint, place: LinePlace) {
        let mut starts = self.starts();
        let is_full = starts.len() >= MAX_LOGS;
        match starts.get_mut(&server) {
            Some(start) => start.place = place,
            None if is_full => {}
            None => drop(starts.insert(server, LogStart { place, stored: Vec::new() })),
        }
    }
}

#[cfg(test)]
mod tests {
    use sonar_core::observation::{FileIdentity, FollowPosition};

    use super::*;
    use crate::agent::servers::local;

    #[test]
    fn positions_are_there_in_the_next_run_and_move_on() {
        let stored = [("log:5".into(), "[1,18446744073709551615,1099511627776,4294967295,[[10,3]]]".into())];
        let positions = LogPositions::stored(&stored.into());
        let identity = FileIdentity { device: 1, inode: u64::MAX };
        let position = FollowPosition { identity, offset: 1 << 40, checksum: u32::MAX };
        let start = positions.of(local(5)).unwrap();
        assert_eq!((start.place, start.stored.len()), (LinePlace { position, read: 0 }, 1));
        let place = LinePlace { position, read: 7 };
        positions.set(local(5), place);
        positions.set(local(6), place);
        assert_eq!(positions.of(local(5)), Some(LogStart { place, ..start }));
        assert_eq!(positions.of(local(6)), Some(LogStart { place, stored: Vec::new() }));
        assert_eq!(positions.of(local(7)), None);
    }
}
