//! What the profiler of the named server wrote during the trace.
//!
//! A thread with the network and nothing else asks for it after the trace. It only reads: it never sets a profiler.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sonar_core::Source;
use sonar_core::history::Span;
use sonar_core::time_split::ServerOperation;
use sonar_decode::profile::Profile;
use sonar_mongo::profiler::OWN_DATABASES;
use sonar_mongo::server_status::ServerStatusReply;
use sonar_mongo::tail::{ProfileBudget, SpanReading};
use sonar_mongo::{Server, ServerError, Target};
use sonar_sys::Host;
use sonar_view::why::{ProfiledDatabaseJson, ServerProfileJson};

use super::server_operation::DescribedOperations;
use crate::confinement::start_gate::StartGate;
use crate::stop::{self, Unanswered};

/// The most databases whose profiler is asked for.
const MAX_PROFILED: usize = 64;
/// The most documents to read, of all databases.
const MAX_DOCUMENTS: u64 = 65_536;
/// The most bytes of them.
const MAX_BYTES: u64 = 128 << 20;
/// How long reading them may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long all of it may take: the driver looks for the server for 30 seconds, if nothing else is said.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30 + PATIENCE.as_secs());

/// Which part of the profile is wanted.
pub struct ProfiledSpan {
    /// The databases; empty: all but the server's own.
    pub databases: Vec<String>,
    /// Begin and end of the trace.
    pub time: Span,
}

/// What was read of the profile.
pub struct ReadProfile {
    /// The operations that it describes.
    pub operations: Vec<ServerOperation>,
    /// What was read where.
    pub about: ServerProfileJson,
}

/// The thread that asks the server, which it does once.
pub struct ProfileReader {
    wanted: Sender<ProfiledSpan>,
    read: Receiver<ReadProfile>,
}

impl ProfileReader {
    /// Starts the thread, which drops its privileges if `confined`, and keeps `gate` closed until then. It connects when it
    /// is asked.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(target: Target, processes: &[u32], confined: bool, gate: &StartGate) -> Result<Self> {
        let (wanted, to_read) = channel();
        let (answer, read) = channel();
        let numbers = own_numbers(processes);
        let ask = move |target: Target| {
            // Without a question, the program ends.
            let Ok(span) = to_read.recv() else { return };
            // Nobody may wait for it any more.
            answer.send(read_profile(target, &numbers, &span)).ok();
        };
        gate.start_client("profile", target, confined, ask).context("cannot start a thread")?;
        Ok(Self { wanted, read })
    }

    /// What the profiler wrote; `None` if the thread has failed. A server that does not answer is given up after 40 seconds,
    /// or when `stop` is set meanwhile.
    pub fn read(self, span: ProfiledSpan, stop: &AtomicBool) -> Option<ReadProfile> {
        self.read_until(span, stop, Instant::now() + ANSWER_PATIENCE)
    }

    fn read_until(self, span: ProfiledSpan, stop: &AtomicBool, until: Instant) -> Option<ReadProfile> {
        // Who has ended the trace early wants the report of it; being asked again ends the program.
        let goes_on = AtomicBool::new(false);
        let stop = if stop.load(Ordering::Relaxed) { &goes_on } else { stop };
        self.wanted.send(span).ok()?;
        match stop::answer_of(&self.read, stop, Some(until)) {
            Ok(read) => Some(read),
            Err(Unanswered::Stopped | Unanswered::Late) => {
                Some(ReadProfile::failed("the server has not answered".to_owned()))
            }
            Err(Unanswered::Failed) => None,
        }
    }
}

/// The numbers that these processes have for themselves, which differ in a container (NSpid in
/// proc_pid_status(5)), with their numbers here.
fn own_numbers(processes: &[u32]) -> Vec<(u32, u32)> {
    let host = Host::live();
    let own = |process: u32| {
        let status = host.text(&format!("proc/{process}/status"))?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        numbers.split_whitespace().last()?.parse().ok()
    };
    processes.iter().map(|process| (own(*process).unwrap_or(*process), *process)).collect()
}

fn read_profile(target: Target, processes: &[(u32, u32)], span: &ProfiledSpan) -> ReadProfile {
    let mut read = ReadProfile { operations: Vec::new(), about: ServerProfileJson::default() };
    if let Err(error) = read.fill(target, processes, span) {
        read.about.problem = Some(error.to_string());
    }
    read
}

impl ReadProfile {
    /// Nothing, and why.
    fn failed(problem: String) -> Self {
        let about = ServerProfileJson { problem: Some(problem), ..ServerProfileJson::default() };
        Self { operations: Vec::new(), about }
    }

    fn fill(
        &mut self,
        target: Target,
        processes: &[(u32, u32)],
        span: &ProfiledSpan,
    ) -> Result<(), ServerError> {
        let server = Server::connect(target, 1)?;
        self.about.server = server.info().address.clone();
        if server.info().mongos {
            return Err(ServerError::Mongos(server.info().address.clone()));
        }
        // A user without the role for it may still read the profile.
        let number = server.status().ok().as_ref().and_then(ServerStatusReply::process);
        let process = number.and_then(|number| processes.iter().find(|(own, _)| *own == number));
        if number.is_some() && process.is_none() {
            let address = &server.info().address;
            return Err(ServerError::Refused(format!("the server at {address} is not one of those traced")));
        }
        let databases = match span.databases.as_slice() {
            [] => server.databases()?,
            named => named.to_vec(),
        };
        let is_asked = |name: &&String| !span.databases.is_empty() || !OWN_DATABASES.contains(&name.as_str());
        let mut budget =
            ProfileBudget { documents: MAX_DOCUMENTS, bytes: MAX_BYTES, until: Instant::now() + PATIENCE };
        let mut profile = if server.info().ignores_rate_limit() {
            Profile::without_rate_limit()
        } else {
            Profile::default()
        };
        for database in databases.iter().filter(is_asked).take(MAX_PROFILED) {
            let mut described = DescribedOperations {
                source: Source::Profile,
                process: process.map(|(_, process)| *process),
                connection: None,
                each: &mut |operation| self.operations.push(operation),
            };
            let level = server.profiling_level(database)?;
            let reading = server.profile_between(database, span.time, &mut budget, |document| {
                profile.document(document.as_bytes(), &mut described);
            })?;
            let is_whole = reading == SpanReading::Whole;
            self.about.databases.push(ProfiledDatabaseJson { database: database.clone(), level, is_whole });
            self.about.is_cut |= reading == SpanReading::Cut;
        }
        self.about.documents_unread = profile.reading().documents_malformed;
        self.about.databases_left_out =
            databases.iter().filter(is_asked).count().saturating_sub(MAX_PROFILED);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sonar_core::Timestamp;

    use super::*;

    #[test]
    fn a_server_that_does_not_answer_is_given_up() {
        let now = Instant::now();
        let later = now + Duration::from_secs(3_600);
        let span = || ProfiledSpan {
            databases: Vec::new(),
            time: Span { from: Timestamp::default(), to: Timestamp::default() },
        };
        // Whether the trace was ended early, until when it waits, and whether it is asked to stop meanwhile.
        for (is_ended, until, is_asked) in [(false, now, false), (true, now, false), (false, later, true)] {
            let (wanted, to_read) = channel::<ProfiledSpan>();
            let (_answer, read) = channel();
            let stop = &AtomicBool::new(is_ended);
            let profile = std::thread::scope(|scope| {
                scope.spawn(move || {
                    to_read.recv().unwrap();
                    if is_asked {
                        stop.store(true, Ordering::Relaxed);
                    }
                });
                ProfileReader { wanted, read }.read_until(span(), stop, until)
            });
            let problem = profile.and_then(|profile| profile.about.problem);
            assert_eq!(problem.as_deref(), Some("the server has not answered"), "{is_ended} {is_asked}");
        }
    }
}
