//! What a process may withhold, read for commands that look at this host once.
//!
//! Whoever reads the arguments, the environment or the mappings of a process may have to wait for ever: for a file that the
//! process has mapped there, or for the end of an exec. So another thread waits, and what does not come in time is left out.

use std::io;
use std::sync::Arc;

use sonar_sys::host::process::Process;

use super::files::SearchPatience;
use crate::input::follow::{FileThread, FileThreads};

/// Reads what processes may withhold.
#[derive(Default)]
pub struct WithheldReader {
    threads: Arc<FileThreads>,
    patience: SearchPatience,
}

impl WithheldReader {
    /// Lets a thread read something of a process, and waits for it, as long as all processes together may take.
    ///
    /// # Errors
    /// As [`FileThread::run`]: the process does not answer.
    pub fn read<T: Send + 'static>(
        &mut self,
        process: &Process,
        read: impl FnOnce(&Process) -> T + Send + 'static,
    ) -> io::Result<T> {
        let (place, process) = (FileThread::of(&self.threads, process.user()), process.clone());
        self.patience.run(&place, move || read(&process))
    }

    /// Reads the arguments of these processes. Those that do not answer have none; returns a sentence about each.
    pub fn read_arguments(&mut self, processes: &mut [Process]) -> Vec<String> {
        let mut silent = Vec::new();
        for process in processes {
            let arguments = self.read(process, |process| process.arguments().to_vec()).unwrap_or_else(|_| {
                silent.push(format!("the arguments of process {}: it does not answer", process.pid));
                Vec::new()
            });
            process.set_arguments(arguments);
        }
        silent
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::{Command, Stdio};

    use sonar_sys::Host;

    use super::*;
    use crate::servers;

    #[test]
    fn a_process_that_withholds_something_is_left_out() {
        let mut child =
            Command::new("cat").arg("-").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let process = servers::whatever(&Host::live(), child.id()).unwrap();
        let mut reader =
            WithheldReader { patience: SearchPatience::of(std::time::Duration::ZERO), ..Default::default() };
        let never = |_: &Process| loop {
            std::thread::park();
        };
        let silent: io::Result<()> = reader.read(&process, never);
        assert_eq!(silent.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let mut reader = WithheldReader::default();
        let mut processes = [process];
        assert!(reader.read_arguments(&mut processes).is_empty());
        assert_eq!(processes[0].arguments(), ["cat", "-"]);
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
