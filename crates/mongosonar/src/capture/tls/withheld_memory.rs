//! Which processes withhold their memory.
//!
//! Attaching a probe to a file takes the memory lock of every process that has mapped the file. While one of them holds
//! its own lock, the attaching thread waits, not even a signal ends that, and no process of this machine can fork. A user
//! can hold such a lock for as long as a file system of their own does not answer. So every process is asked for its
//! mappings first: one that holds the lock does not answer readers either.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use sonar_sys::Host;
use sonar_sys::privileges::Duty;

use super::process_searches::ProcessSearches;
use crate::confinement::helper_capabilities::INSPECTING;
use crate::confinement::helper_channel::{self, HelperChannel, answer};
use crate::confinement::privileges::{self, HelperTask};
use crate::locking::lock;

/// How long to wait for the processes of all users together.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long attaching may take before it is reported. Usually it takes a few milliseconds.
const ATTACH_PATIENCE: Duration = Duration::from_secs(10);
/// The most processes that are named.
const MAX_NAMED: usize = 8;
/// Stands for the user of a process whose user is not known.
const UNKNOWN: u32 = u32::MAX;

/// A process that does not answer when asked for its mappings.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WithholdingProcess {
    process: u32,
    /// The number of its user; `None` if that is not known.
    user: Option<u32>,
}

/// Asks all processes, those of a user one after the other, in a thread for each user.
pub struct WithheldMemory {
    host: Host,
    searches: ProcessSearches<()>,
    users: Arc<Mutex<BTreeMap<u32, UserProcesses>>>,
}

/// The processes of a user.
#[derive(Debug, Default)]
struct UserProcesses {
    /// Those that are still to be asked.
    left: Vec<u32>,
    /// The one that is asked now.
    asked: Option<u32>,
}

impl WithheldMemory {
    /// Of the processes of a host.
    pub fn of(host: Host) -> Self {
        Self::asking(host, ask)
    }

    fn asking(host: Host, ask: impl Fn(u32) + Send + Sync + 'static) -> Self {
        let users = Arc::<Mutex<BTreeMap<u32, UserProcesses>>>::default();
        let of_user = users.clone();
        let next = move |user: u32| {
            let mut users = lock(&of_user);
            let processes = users.entry(user).or_default();
            processes.asked = processes.left.pop();
            processes.asked
        };
        let ask_all = move |user: u32| {
            while let Some(process) = next(user) {
                ask(process);
            }
        };
        Self { host, searches: ProcessSearches::new(ask_all), users }
    }

    /// The first process of each user that does not answer.
    ///
    /// # Errors
    /// The processes cannot be listed.
    pub fn look(&mut self) -> io::Result<Vec<WithholdingProcess>> {
        let mut processes = BTreeMap::<u32, Vec<u32>>::new();
        for process in self.host.process_ids()? {
            processes.entry(self.host.user(process).unwrap_or(UNKNOWN)).or_default().push(process);
        }
        let asked: Vec<u32> = self.searches.sought().collect();
        for (user, left) in processes.into_iter().filter(|(user, _)| !asked.contains(user)) {
            lock(&self.users).insert(user, UserProcesses { left, asked: None });
            self.searches.seek(user, Some(user));
        }
        while self.searches.next(PATIENCE).is_some() {}
        let users = lock(&self.users);
        let silent = |user: u32| {
            let process = users.get(&user)?.asked?;
            Some(WithholdingProcess { process, user: Some(user).filter(|user| *user != UNKNOWN) })
        };
        let mut silent: Vec<_> = self.searches.sought().filter_map(silent).collect();
        silent.sort_unstable_by_key(|one| one.process);
        Ok(silent)
    }
}

/// Returns once the process has let a reader have the locks of its memory, or has ended.
fn ask(process: u32) {
    // Later kernels need only the locks of single mappings for the first of them.
    let _ = File::open(format!("/proc/{process}/maps")).and_then(|mut maps| maps.read(&mut [0]));
    let _ = fs::read_dir(format!("/proc/{process}/map_files")).map(|mut mappings| mappings.next().is_some());
}

/// Has a helper ask all processes, and waits for its answer; `None` if there is none. Call it before any thread is started.
pub fn look_apart() -> Option<Vec<WithholdingProcess>> {
    let what = "asking processes for their memory";
    let memory = privileges::HELPER_BYTES;
    let task = HelperTask { name: "sonar-apart", what, memory, keep: INSPECTING, duty: Duty::Reading };
    let channel = HelperChannel::start(task, |socket| {
        let mut memory = WithheldMemory::of(Host::live());
        helper_channel::serve(socket, |()| answer(memory.look()))
    })?;
    let (withholding, _) = channel.ask(&()).ok()?;
    Some(withholding)
}

/// Whether to attach to a library of a server of this user: none of these processes of another user may have mapped it.
/// Those of root could stop the machine anyway.
///
/// # Errors
/// One of them may.
pub fn may_attach(withholding: &[WithholdingProcess], own: Option<u32>) -> Result<()> {
    let is_trusted = |user: Option<u32>| user.is_some() && (user == Some(0) || user == own);
    let others: Vec<_> = withholding.iter().filter(|one| !is_trusted(one.user)).copied().collect();
    if !others.is_empty() {
        bail!(
            "{} not say what is mapped: while mongosonar attached to a library that is, no process of this machine could \
             fork",
            unanswering(&others)
        );
    }
    Ok(())
}

/// Attaches to the library `name` by `attach`. If that takes long, reports by `say` that it does, and which processes may
/// hold it up.
pub fn watched<T>(name: &str, say: impl FnOnce(String) + Send, attach: impl FnOnce() -> T) -> T {
    let look = || WithheldMemory::of(Host::live()).look().unwrap_or_default();
    watched_for(ATTACH_PATIENCE, look, Watch { name, say }, attach)
}

/// The library that is attached to, and where to report a long wait.
struct Watch<'a, S> {
    name: &'a str,
    say: S,
}

fn watched_for<T, S: FnOnce(String) + Send>(
    patience: Duration,
    look: impl FnOnce() -> Vec<WithholdingProcess> + Send,
    watch: Watch<'_, S>,
    attach: impl FnOnce() -> T,
) -> T {
    let (attached, has_attached) = channel::<()>();
    std::thread::scope(|scope| {
        let warn = move || {
            if has_attached.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                (watch.say)(hangs(watch.name, &look()));
            }
        };
        // Without the thread, a long wait is not reported.
        let _ = std::thread::Builder::new().spawn_scoped(scope, warn);
        let result = attach();
        drop(attached);
        result
    })
}

/// The report of an attachment that does not end.
fn hangs(name: &str, withholding: &[WithholdingProcess]) -> String {
    let why = match withholding {
        [] => "which process it waits for is not known".to_owned(),
        some => format!("{} not say what is mapped", unanswering(some)),
    };
    format!(
        "attaching to {name} does not end, and until it does no process of this machine can fork: the kernel waits for \
         the memory of a process that has mapped it; {why}"
    )
}

/// Processes, each with its user, as the subject of a sentence with its verb: `process 7 of user 1000 does`.
fn unanswering(processes: &[WithholdingProcess]) -> String {
    let one = |one: &WithholdingProcess| match one.user {
        Some(user) => format!("process {} of user {user}", one.process),
        None => format!("process {}", one.process),
    };
    let named: Vec<String> = processes.iter().take(MAX_NAMED).map(one).collect();
    let others = match processes.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        others => format!(" and {others} others"),
    };
    let each = if processes.len() == 1 { "does" } else { "do" };
    format!("{}{others} {each}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;

    use super::*;

    fn withholding(process: u32, user: Option<u32>) -> WithholdingProcess {
        WithholdingProcess { process, user }
    }

    /// A host with these processes, each with its user.
    fn host(folder: &tempfile::TempDir, processes: &[(u32, u32)]) -> Host {
        for (process, user) in processes {
            let folder = folder.path().join(process.to_string());
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("status"), format!("Uid:\t{user}\t{user}\t{user}\t{user}\n")).unwrap();
        }
        Host::of_proc(folder.path())
    }

    #[test]
    fn a_process_that_withholds_its_memory_is_found_among_those_that_answer_until_it_answers() {
        let proc = tempfile::tempdir().unwrap();
        let host = host(&proc, &[(5, 0), (6, 1_000), (7, 1_000), (8, 1_001), (9, 999)]);
        let (answer, answered) = channel::<()>();
        let answered = Mutex::new(answered);
        let (say, asked) = channel();
        let mut memory = WithheldMemory::asking(host, move |process| {
            if process == 7 {
                let _ = lock(&answered).recv();
            }
            let _ = say.send(process);
        });
        let mut seen = memory.look().unwrap();
        // On a busy machine others may not have been asked in that time.
        seen.retain(|one| one.process == 7);
        assert_eq!(seen, [withholding(7, Some(1_000))]);
        // It is asked once as long as it does not answer.
        assert!(memory.look().unwrap().contains(&withholding(7, Some(1_000))));
        drop(answer);
        while !memory.look().unwrap().is_empty() {}
        let mut asked: Vec<u32> = asked.try_iter().collect();
        asked.sort_unstable();
        asked.dedup();
        assert_eq!(asked, [5, 6, 7, 8, 9]);
    }

    #[test]
    fn nothing_is_attached_while_a_process_of_a_user_who_is_not_trusted_withholds_its_memory() {
        let trusted = [withholding(1, Some(0)), withholding(2, Some(999))];
        may_attach(&[], None).unwrap();
        may_attach(&trusted, Some(999)).unwrap();
        let refused =
            |user, own| may_attach(&[trusted[0], withholding(7, user)], own).unwrap_err().to_string();
        assert!(
            refused(Some(1_000), Some(999))
                .starts_with("process 7 of user 1000 does not say what is mapped:")
        );
        assert!(refused(None, None).starts_with("process 7 does not say"));
    }

    #[test]
    fn this_process_answers_and_one_that_has_ended_holds_nobody_up() {
        ask(std::process::id());
        ask(u32::MAX);
    }

    #[test]
    fn attaching_that_does_not_end_is_said_with_who_holds_it_up() {
        let (say, said) = channel::<String>();
        let told =
            |say: Sender<String>| Watch { name: "libssl.so.3", say: move |text| say.send(text).unwrap() };
        let look = || vec![withholding(7, Some(1_000)), withholding(8, None)];
        // It ends once that was said.
        let text = watched_for(Duration::ZERO, look, told(say.clone()), || said.recv().unwrap());
        assert!(text.starts_with("attaching to libssl.so.3 does not end"), "{text}");
        assert!(text.contains("process 7 of user 1000, process 8 do not say"), "{text}");
        let unknown = watched_for(Duration::ZERO, Vec::new, told(say.clone()), || said.recv().unwrap());
        assert!(unknown.ends_with("which process it waits for is not known"), "{unknown}");
        // One that ends in time is not mentioned.
        assert_eq!(watched_for(Duration::from_secs(600), look, told(say), || 7), 7);
        assert!(said.recv().is_err());
    }
}
