//! Files that are served in place of the history of an agent: they are replayed into a store that lasts as long as the page.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sonar_sys::helper::outlive_parent;
use sonar_sys::privileges::{Duty, limit_to_removing};
use sonar_sys::trust;

use crate::confinement::privileges::{HELPER_BYTES, HelperTask};
use crate::stop::Signals;

/// How often to look whether the replay has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often, and how many times, to try to remove the store: a replay that was interrupted may still write there.
const REMOVE_EVERY: Duration = Duration::from_millis(100);
const REMOVE_TRIES: u32 = 100;

/// A store of files that were replayed. It is removed once this process has ended, for whatever reason.
pub struct ReplayedFiles {
    folder: PathBuf,
}

impl ReplayedFiles {
    /// Replays captures, logs, and files or folders of `diagnostic.data`, and prints to standard error what it stored; `None`
    /// if a signal asked to stop before that was done. `port` is that of the server whose logs do not state it. Call it
    /// before any thread is started.
    ///
    /// # Errors
    /// No folder can be made, or nothing can be replayed.
    pub fn replay(files: &[PathBuf], port: Option<u16>, signals: &Signals) -> Result<Option<Self>> {
        let made = tempfile::Builder::new()
            .prefix("mongosonar-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .context("cannot make a folder for the replayed files")?;
        let folder = made.path().to_owned();
        trust::check_folder(&folder).with_context(|| format!("cannot replay into {}", folder.display()))?;
        let (what, memory) = ("removing the replayed files at the end", HELPER_BYTES);
        let task = HelperTask { name: "sonar-remover", what, memory, keep: &[], duty: Duty::Writing };
        let removed = folder.clone();
        let Some(remover) = task.start(move |socket| remove_at_end(&socket, &removed)) else {
            bail!("the files are not replayed, as nothing would remove what is made of them");
        };
        // The helper removes it now. Nothing waits for that, or ends it early.
        let _ = made.keep();
        std::mem::forget(remover);
        let replayed = Self { folder };
        // A process of its own, which drops other privileges than the one that serves.
        let mut child = replayed.command(files, port)?.spawn().context("cannot start the replay")?;
        let status = loop {
            if let Some(status) = child.try_wait().context("cannot wait for the replay")? {
                break status;
            }
            if signals.have_come() {
                // It may have ended by the same signal.
                let _ = child.kill();
            }
            std::thread::sleep(LOOK_EVERY);
        };
        if signals.have_come() {
            return Ok(None);
        }
        // Its own messages say why. With a part of the files there is something to show.
        if !status.success() && !replayed.has_windows() {
            bail!("nothing of these files can be shown");
        }
        Ok(Some(replayed))
    }

    /// The folder of the store.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn command(&self, files: &[PathBuf], port: Option<u16>) -> Result<Command> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        // No configuration of an agent limits what is stored.
        command.args(["agent", "--config", "/dev/null", "--store"]).arg(&self.folder);
        if let Some(port) = port {
            command.args(["--port", &port.to_string()]);
        }
        command.arg("--replay").args(files.iter().map(|path| no_option(path)));
        // Standard output is for the link.
        let messages = io::stderr().as_fd().try_clone_to_owned().context("cannot start the replay")?;
        command.stdin(Stdio::null()).stdout(messages);
        Ok(command)
    }

    fn has_windows(&self) -> bool {
        let names = fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.into_iter().any(|name| name.as_bytes().ends_with(b".db"))
    }
}

/// A path that no command takes for an option.
fn no_option(path: &Path) -> OsString {
    let text = path.as_os_str();
    match text.as_bytes().starts_with(b"-") {
        true => Path::new(".").join(path).into_os_string(),
        false => text.to_owned(),
    }
}

/// In the helper: waits for the end of the other side, then removes the folder.
fn remove_at_end(mut socket: &UnixStream, folder: &Path) -> io::Result<()> {
    outlive_parent()?;
    // It stays root, if root started the program. A kernel without Landlock is named where that gives up its own privileges.
    let _ = limit_to_removing(folder.parent().unwrap_or(folder));
    // Nothing is ever sent.
    let _ = socket.read(&mut [0]);
    for _ in 0..REMOVE_TRIES {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => std::thread::sleep(REMOVE_EVERY),
            _ => return Ok(()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_is_taken_for_an_option() {
        assert_eq!(no_option(Path::new("--store")), "./--store");
        assert_eq!(no_option(Path::new("/var/log/mongod.log")), "/var/log/mongod.log");
    }
}
