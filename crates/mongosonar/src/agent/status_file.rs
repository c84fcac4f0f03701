//! The file in which a running agent states how it is, in the folder of its store and readable by its owner only.

use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use sonar_core::Timestamp;
use sonar_core::time::NS_PER_S;
use sonar_sys::Host;
use sonar_sys::kept_file::KeptFile;
use sonar_view::agent::AgentStatus;

/// An agent writes every two seconds. A store that is slow to answer may hold it up, in nanoseconds.
const RECENT_NS: u64 = 60 * NS_PER_S;

fn file(folder: &Path) -> KeptFile {
    KeptFile::new(folder, "agent.json")
}

/// Replaces the status, so that a reader sees either the old or the new one.
///
/// # Errors
/// The file cannot be written.
pub fn write(folder: &Path, status: &AgentStatus) -> io::Result<()> {
    let mut text = Vec::new();
    status.json(&mut text)?;
    file(folder).write(&String::from_utf8_lossy(&text))
}

/// Removes the status: the agent ends.
pub fn remove(folder: &Path) {
    file(folder).remove();
}

/// The status of the agent that stores into this folder; `None` if none runs.
///
/// # Errors
/// The file cannot be read, or is damaged.
pub fn read(folder: &Path) -> Result<Option<AgentStatus>> {
    // After SIGKILL the file is still there.
    let runs = |status: &AgentStatus| {
        let process = Host::live().stat(status.pid);
        process.is_some_and(|process| process.started == status.started_ticks)
    };
    Ok(stored(folder)?.filter(runs))
}

/// The same for whoever cannot look at processes: an agent that has not written for a minute does not run.
///
/// # Errors
/// As [`read`].
pub fn read_recent(folder: &Path, now: Timestamp) -> Result<Option<AgentStatus>> {
    let is_recent = |status: &AgentStatus| now.since(Timestamp::from_unix_ns(status.written_ns)) < RECENT_NS;
    Ok(stored(folder)?.filter(is_recent))
}

/// What is in the file; `None` if there is none.
fn stored(folder: &Path) -> Result<Option<AgentStatus>> {
    let file = file(folder);
    let shown = file.path().display();
    let Some(text) = file.read().with_context(|| format!("cannot read {shown}"))? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).with_context(|| format!("{shown} is damaged"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_status_of_a_running_agent_counts_and_only_its_owner_reads_it() {
        let folder = std::env::temp_dir().join(format!("mongosonar-status-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(read(&folder).unwrap(), None);
        let pid = std::process::id();
        let started_ticks = Host::live().stat(pid).unwrap().started;
        let mut status = AgentStatus { pid, started_ticks, windows: 5, ..AgentStatus::default() };
        write(&folder, &status).unwrap();
        assert_eq!(read(&folder).unwrap(), Some(status.clone()));
        assert_eq!(fs::metadata(file(&folder).path()).unwrap().permissions().mode() & 0o777, 0o600);
        let written = Timestamp::from_unix(1_700_000_000, 0);
        status.written_ns = written.unix_ns();
        write(&folder, &status).unwrap();
        let recent = |now| read_recent(&folder, now).unwrap();
        assert_eq!(recent(written.plus_ns(RECENT_NS - 1)), Some(status.clone()));
        assert_eq!(recent(written.plus_ns(RECENT_NS)), None);
        status.started_ticks += 1;
        write(&folder, &status).unwrap();
        assert_eq!(read(&folder).unwrap(), None, "another process has its number");
        fs::write(file(&folder).path(), "{").unwrap();
        assert!(read(&folder).is_err());
        remove(&folder);
        assert_eq!(read(&folder).unwrap(), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}
