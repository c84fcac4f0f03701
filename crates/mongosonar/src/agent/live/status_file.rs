//! The file in which a running agent states how it is, in the folder of its store and readable by its owner only.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sonar_sys::Host;
use sonar_view::agent::AgentStatus;

fn path(folder: &Path) -> PathBuf {
    folder.join("agent.json")
}

/// Replaces the status, so that a reader sees either the old or the new one.
///
/// # Errors
/// The file cannot be written: the disk is full.
pub fn write(folder: &Path, status: &AgentStatus) -> io::Result<()> {
    let new = folder.join("agent.json.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    status.json(&mut file)?;
    file.flush()?;
    fs::rename(new, path(folder))
}

/// Removes the status: the agent ends.
pub fn remove(folder: &Path) {
    // Without this a reader finds out that the process has gone.
    let _ = fs::remove_file(path(folder));
}

/// The status of the agent that stores into this folder; `None` if none runs.
///
/// # Errors
/// The file cannot be read, or is damaged.
pub fn read(folder: &Path) -> Result<Option<AgentStatus>> {
    let path = path(folder);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let status: AgentStatus =
        serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?;
    // After SIGKILL the file is still there.
    let process = Host::live().stat(status.pid);
    Ok(process.is_some_and(|process| process.started == status.started_ticks).then_some(status))
}

#[cfg(test)]
mod tests {
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
        assert_eq!(fs::metadata(path(&folder)).unwrap().permissions().mode() & 0o777, 0o600);
        status.started_ticks += 1;
        write(&folder, &status).unwrap();
        assert_eq!(read(&folder).unwrap(), None, "another process has its number");
        fs::write(path(&folder), "{").unwrap();
        assert!(read(&folder).is_err());
        remove(&folder);
        assert_eq!(read(&folder).unwrap(), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}
