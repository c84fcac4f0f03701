//! The servers that the agent knows, kept from one run to the next: one that ends or restarts while no agent runs is not
//! missed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sonar_core::Timestamp;
use sonar_sys::kept_file::KeptFile;

use super::inspector::FoundServer;
use super::record::AgentRecord;
use crate::servers::MAX_SERVERS;

const NAME: &str = "servers.json";
/// How often the servers are written for the next run.
const KEEP_EVERY: Duration = Duration::from_secs(5);

/// The servers at the end of the last run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownServers {
    /// When they were last seen.
    pub at: Timestamp,
    /// Whether the machine was started again since then.
    pub is_other_boot: bool,
    /// The servers.
    pub servers: Vec<FoundServer>,
}

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct SavedServers {
    seen_ns: u64,
    boot: String,
    servers: Vec<FoundServer>,
}

impl KnownServers {
    /// Those of the last run; `None` if there was none, or the file cannot be read.
    pub fn load(folder: &Path) -> Option<Self> {
        let text = KeptFile::new(folder, NAME).read().ok().flatten()?;
        let mut saved: SavedServers = serde_json::from_str(&text).ok()?;
        saved.servers.truncate(MAX_SERVERS);
        Some(Self {
            at: Timestamp::from_unix_ns(saved.seen_ns),
            is_other_boot: saved.boot != boot(),
            servers: saved.servers,
        })
    }

    /// Writes the servers that run at `at` for the next run.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(folder: &Path, servers: &[FoundServer], at: Timestamp) -> std::io::Result<()> {
        let servers = servers.iter().take(MAX_SERVERS).cloned().collect();
        let saved = SavedServers { seen_ns: at.unix_ns(), boot: boot(), servers };
        KeptFile::new(folder, NAME).write(&serde_json::to_string(&saved)?)
    }
}

/// Keeps the servers in the folder of the store.
#[derive(Debug)]
pub struct ServerKeeper {
    folder: PathBuf,
    /// When it last did so.
    kept: Option<Instant>,
}

impl ServerKeeper {
    /// One that has kept none yet.
    pub fn of(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), kept: None }
    }

    /// Those of the last run, if they are known.
    pub fn last(&self) -> Option<KnownServers> {
        KnownServers::load(&self.folder)
    }

    /// Writes those that run now, if that is due.
    pub fn keep_if_due(&mut self, servers: &[FoundServer], record: &AgentRecord) {
        if record.clock.is_due(self.kept, KEEP_EVERY) {
            self.keep(servers, record);
        }
    }

    /// Writes those that run now. Without them the next run only misses what happens in between.
    pub fn keep(&mut self, servers: &[FoundServer], record: &AgentRecord) {
        self.kept = Some(record.clock.instant());
        let _waits = record.pulse.begin();
        let _ = KnownServers::save(&self.folder, servers, record.clock.time());
    }
}

/// Another text after each start of the machine; empty if it is not known.
fn boot() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;
    use crate::agent::live::clock_reading::AgentClock;
    use crate::agent::live::fakes::{TestRecord, at, test_record};

    #[test]
    fn servers_are_known_in_the_next_run() {
        let folder = std::env::temp_dir().join(format!("mongosonar-servers-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(KnownServers::load(&folder), None);
        let server = FoundServer {
            port: 27_017,
            pid: 7,
            started: u64::MAX,
            dbpath: Some(std::ffi::OsString::from_vec(b"/data/\xe9".to_vec()).into()),
            options: [("cacheSizeGB".to_owned(), "2".to_owned())].into(),
            ..FoundServer::default()
        };
        let at = Timestamp::from_unix(1_795_296_000, 5);
        KnownServers::save(&folder, std::slice::from_ref(&server), at).unwrap();
        let expected = KnownServers { at, is_other_boot: false, servers: vec![server] };
        assert_eq!(KnownServers::load(&folder), Some(expected));
        fs::write(folder.join(NAME), "{").unwrap();
        assert_eq!(KnownServers::load(&folder), None, "damaged");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn they_are_kept_every_few_seconds_and_at_once_if_they_must_be() {
        let folder = tempfile::tempdir().unwrap();
        let TestRecord { record, clock, .. } = test_record(folder.path(), 0);
        let mut keeper = ServerKeeper::of(folder.path());
        assert_eq!(keeper.last(), None);
        let kept = |keeper: &ServerKeeper| keeper.last().map(|known| (known.at, known.servers.len()));
        keeper.keep_if_due(&[FoundServer::default()], &record);
        assert_eq!(kept(&keeper), Some((at(0), 1)));
        clock.sleep(KEEP_EVERY - Duration::from_secs(1));
        keeper.keep_if_due(&[], &record);
        assert_eq!(kept(&keeper), Some((at(0), 1)), "not yet");
        clock.sleep(Duration::from_secs(1));
        keeper.keep_if_due(&[], &record);
        assert_eq!(kept(&keeper), Some((at(5), 0)));
        keeper.keep(&[FoundServer::default()], &record);
        assert_eq!(kept(&keeper), Some((at(5), 1)));
    }
}
