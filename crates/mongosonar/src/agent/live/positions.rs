//! How far logs have been read, kept from one run of the agent to the next: what a server writes in between is not lost.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use sonar_sys::kept_file::KeptFile;

use crate::follow::{FileIdentity, FollowPosition};

const NAME: &str = "positions.json";
/// The most logs.
const MAX_LOGS: usize = 1_024;

/// The position in the log of each server, by its port.
#[derive(Debug, Default)]
pub struct LogPositions(Mutex<BTreeMap<u16, FollowPosition>>);

/// A position in the file: port, device and number of the log, bytes before the position, and their checksum.
type SavedPosition = (u16, u64, u64, u64, u32);

impl LogPositions {
    /// Those of the last run; none if there was none, or they cannot be read.
    pub fn load(folder: &Path) -> Self {
        let text = KeptFile::new(folder, NAME).read().ok().flatten().unwrap_or_default();
        let saved: Vec<SavedPosition> = serde_json::from_str(&text).unwrap_or_default();
        let position = |(port, device, inode, offset, checksum)| {
            (port, FollowPosition { identity: FileIdentity { device, inode }, offset, checksum })
        };
        Self(Mutex::new(saved.into_iter().take(MAX_LOGS).map(position).collect()))
    }

    /// The position in the log of this server.
    pub fn of(&self, port: u16) -> Option<FollowPosition> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&port).cloned()
    }

    /// Notes a position.
    pub fn set(&self, port: u16, position: FollowPosition) {
        let mut positions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if positions.len() < MAX_LOGS || positions.contains_key(&port) {
            positions.insert(port, position);
        }
    }

    /// Writes them for the next run.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, folder: &Path) -> io::Result<()> {
        let positions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let saved: Vec<SavedPosition> = positions
            .iter()
            .map(|(port, at)| (*port, at.identity.device, at.identity.inode, at.offset, at.checksum))
            .collect();
        drop(positions);
        KeptFile::new(folder, NAME).write(&serde_json::to_string(&saved)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn positions_are_there_in_the_next_run() {
        let folder = std::env::temp_dir().join(format!("mongosonar-positions-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let identity = FileIdentity { device: 1, inode: u64::MAX };
        let position = FollowPosition { identity, offset: 1 << 40, checksum: u32::MAX };
        let positions = LogPositions::load(&folder);
        assert_eq!(positions.of(5), None);
        positions.set(5, position.clone());
        positions.save(&folder).unwrap();
        assert_eq!(LogPositions::load(&folder).of(5), Some(position));
        fs::write(folder.join(NAME), "[[").unwrap();
        assert_eq!(LogPositions::load(&folder).of(5), None, "damaged");
        fs::remove_dir_all(&folder).unwrap();
    }
}
