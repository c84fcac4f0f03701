//! Watches the helper processes of the agent: while one stands still, so does its work.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sonar_core::history::CollectorKind;
use sonar_sys::Host;

use super::board::{CollectorProblem, RESTART, SourceId};
use super::page::{self, AgentPage};
use super::record::AgentRecord;

/// How often they are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long a process may wait for a disk before that is a problem.
const WAITS: Duration = Duration::from_secs(10);
/// In how many looks in a row it must wait then: where the agent itself rarely gets to look, two may be chance.
const MIN_LOOKS: u32 = 5;

/// What is known of the helper processes.
#[derive(Debug, Default)]
pub struct HelperWatch {
    looked: Option<Instant>,
    /// Those that wait for a disk, by their numbers.
    waiting: BTreeMap<u32, DiskWait>,
    /// Those that were seen to run.
    ran: BTreeSet<u32>,
}

/// A process that waits for a disk.
#[derive(Copy, Clone, Debug)]
struct DiskWait {
    since: Instant,
    /// Looks that found it so.
    looks: u32,
}

impl DiskWait {
    /// Another look finds it so; whether that is a problem.
    fn is_long(&mut self) -> bool {
        self.looks = self.looks.saturating_add(1);
        self.looks >= MIN_LOOKS && self.since.elapsed() >= WAITS
    }
}

/// How a helper process is.
pub struct HelperReport {
    /// Its name in lists of processes.
    pub name: String,
    /// Why it does nothing; `None` if it works.
    pub problem: Option<CollectorProblem>,
    /// It has ended since the look before: a new start of the agent helps. One that ends before the first look would end
    /// after each start.
    pub has_ended: bool,
}

impl HelperReport {
    /// Records it for what depends on this process. Returns why only a new start of the agent helps, if that is so.
    pub fn record(self, page: &mut AgentPage, record: &mut AgentRecord) -> Option<String> {
        let Self { name, problem, has_ended } = self;
        if name == page::HELPER {
            // Only the page depends on it.
            page.note(problem.as_ref().map(CollectorProblem::text));
            return None;
        }
        for collector in collectors(&name) {
            let source = SourceId::of_helper(*collector, &name);
            match &problem {
                _ if !record.board.is_wanted(*collector) => {}
                Some(problem) => record.fail(source, problem),
                None => record.passes(source),
            }
        }
        // Nobody else can start it again.
        has_ended.then(|| format!("the helper process {name} has ended"))
    }
}

impl HelperWatch {
    /// How these processes are, if it is time to look; those of one name together.
    pub fn look(&mut self, host: &Host, helpers: &[u32]) -> Vec<HelperReport> {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return Vec::new();
        }
        self.looked = Some(Instant::now());
        let mut reports: Vec<HelperReport> = Vec::new();
        for pid in helpers {
            let name = host.text(&format!("proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned();
            // One whose state cannot be read now has not ended: its entry stays until this process asks for its exit code.
            let Some(state) = host.stat(*pid).map(|stat| stat.state) else { continue };
            let problem = self.problem(*pid, state);
            let has_ended = matches!(state, b'Z' | b'X') && self.ran.remove(pid);
            if !matches!(state, b'Z' | b'X') {
                self.ran.insert(*pid);
            }
            match reports.iter_mut().find(|one| one.name == name) {
                Some(known) => {
                    known.problem = known.problem.take().or(problem);
                    known.has_ended |= has_ended;
                }
                None if name.is_empty() => {}
                None => reports.push(HelperReport { name, problem, has_ended }),
            }
        }
        reports
    }

    /// Whether a process that waits for a disk has done so in every look for long.
    fn waits_long(&mut self, pid: u32) -> bool {
        self.waiting.entry(pid).or_insert_with(|| DiskWait { since: Instant::now(), looks: 0 }).is_long()
    }

    /// Why it does nothing (proc_pid_stat(5)).
    fn problem(&mut self, pid: u32, state: u8) -> Option<CollectorProblem> {
        if state != b'D' {
            self.waiting.remove(&pid);
        }
        match state {
            b'T' | b't' => {
                let what = format!("process {pid} is stopped, by a signal or a debugger");
                Some(CollectorProblem {
                    fix: Some(format!("kill -CONT {pid}")),
                    ..CollectorProblem::temporary(what)
                })
            }
            b'Z' | b'X' => {
                let what = format!("process {pid} has ended");
                Some(CollectorProblem::permanent(what, Some(RESTART.to_owned())))
            }
            b'D' if self.waits_long(pid) => Some(CollectorProblem::temporary(format!(
                "process {pid} waits for a file system that does not answer"
            ))),
            _ => None,
        }
    }
}

/// The collectors that a helper process works for.
fn collectors(name: &str) -> &'static [CollectorKind] {
    match name {
        "sonar-logs" => &[CollectorKind::Log, CollectorKind::Internals],
        "sonar-rings" | "sonar-tls" => &[CollectorKind::Queries],
        "sonar-paths" | "sonar-folders" => &[CollectorKind::Files],
        _ => &[CollectorKind::Split],
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::agent::live::fakes::{TestRecord, test_record};

    #[test]
    fn one_that_has_ended_stops_its_collectors_and_takes_a_new_start_unless_it_serves_the_page() {
        let folder = tempfile::tempdir().unwrap();
        let TestRecord { mut record, .. } = test_record(folder.path(), 0);
        record.board.want(CollectorKind::Internals, false);
        let mut report = |name: &str, has_ended: bool| {
            let problem = has_ended.then(|| CollectorProblem::temporary("it has ended".to_owned()));
            let report = HelperReport { name: name.to_owned(), problem, has_ended };
            (report.record(&mut AgentPage::Off, &mut record), record.board.failing())
        };
        assert_eq!(report(page::HELPER, true), (None, Vec::new()));
        let (why, failing) = report("sonar-logs", true);
        assert_eq!(why.unwrap(), "the helper process sonar-logs has ended");
        assert_eq!(failing, ["log: helper process sonar-logs: it has ended"], "the other one is off");
        assert_eq!(report("sonar-logs", false), (None, Vec::new()));
    }

    #[test]
    fn a_helper_that_does_nothing_is_named_with_what_helps() {
        let proc = tempfile::tempdir().unwrap();
        let host = Host::of_proc(proc.path());
        let mut watch = HelperWatch::default();
        let mut look = |state: &str| {
            watch.looked = None;
            fs::create_dir_all(proc.path().join("7")).unwrap();
            fs::write(proc.path().join("7/comm"), "sonar-paths\n").unwrap();
            let numbers = "1 ".repeat(49);
            fs::write(proc.path().join("7/stat"), format!("7 (sonar-paths) {state} {numbers}\n")).unwrap();
            // Another one of this name works.
            fs::create_dir_all(proc.path().join("8")).unwrap();
            fs::write(proc.path().join("8/comm"), "sonar-paths\n").unwrap();
            fs::write(proc.path().join("8/stat"), format!("8 (sonar-paths) S {numbers}\n")).unwrap();
            let reports = watch.look(&host, &[7, 8]);
            assert_eq!((reports.len(), &*reports[0].name), (1, "sonar-paths"));
            // As if it had been so for a while.
            watch.waiting.values_mut().for_each(|wait| wait.since = wait.since.checked_sub(WAITS).unwrap());
            assert_eq!(reports[0].has_ended, state == "Z");
            reports[0].problem.as_ref().map(CollectorProblem::text)
        };
        assert_eq!(look("S"), None);
        assert!(look("T").unwrap().ends_with("fix: kill -CONT 7"));
        for _ in 1..MIN_LOOKS {
            assert_eq!(look("D"), None, "a moment, or chance");
        }
        assert!(look("D").unwrap().contains("file system"));
        assert_eq!(look("R"), None);
        assert!(look("Z").unwrap().contains("has ended; fix: restart"));
    }

    #[test]
    fn one_that_ended_before_the_first_look_would_do_so_after_each_start() {
        let proc = tempfile::tempdir().unwrap();
        let host = Host::of_proc(proc.path());
        let mut watch = HelperWatch::default();
        let mut look = |states: [&str; 2]| {
            watch.looked = None;
            for (pid, state) in [7, 8].into_iter().zip(states) {
                fs::create_dir_all(proc.path().join(pid.to_string())).unwrap();
                fs::write(proc.path().join(format!("{pid}/comm")), format!("sonar-{pid}\n")).unwrap();
                let stat = format!("{pid} (sonar) {state} {}\n", "1 ".repeat(49));
                fs::write(proc.path().join(format!("{pid}/stat")), stat).unwrap();
            }
            watch.look(&host, &[7, 8]).into_iter().map(|report| report.has_ended).collect::<Vec<_>>()
        };
        assert_eq!(look(["Z", "S"]), [false, false]);
        assert_eq!(look(["Z", "Z"]), [false, true]);
        assert_eq!(look(["Z", "Z"]), [false, false], "once is enough");
    }
}
