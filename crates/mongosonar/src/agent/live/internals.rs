//! The `diagnostic.data` of servers.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sonar_core::history::CollectorKind;
use sonar_core::internals::SampleSequence;
use sonar_core::observation::WindowCutter;
use sonar_core::{Endpoint, Timestamp};

use super::backoff::Backoff;
use super::board::{CollectorProblem, SourceId, unreadable};
use super::inspector::{FoundServer, InspectedFolder, Inspector};
use super::runner::{Collector, Observation};
use crate::agent::figures::SampleCutter;
use crate::agent::memory::Holder;
use crate::args::when::now;
use crate::confinement::privileges;
use crate::ftdc::follow::{FtdcFollower, LearnsSchemas, MAX_DOCUMENT, forget_schemas};
use crate::input::follow::{FileThread, FileThreads};
use crate::servers;

/// How often the folders are looked at. Servers write the newest samples every ten seconds.
const EVERY: Duration = Duration::from_secs(2);
/// How long after its time a sample may come.
const DELAY_NS: u64 = 15_000_000_000;
/// A sample that is later than this after the start of a process is its own, in nanoseconds.
const STARTING_NS: u64 = 2_000_000_000;
/// Another thread may have the memory for chunks this long before that is a problem.
const MEMORY_PATIENCE: Duration = Duration::from_secs(30);
/// A server that wrote no sample for this long has stopped writing them.
const SILENCE: Duration = Duration::from_secs(120);

/// The most bytes that are kept of what was learned of the schemas of all servers. A large server has less than one MB.
const SCHEMAS_BYTES: usize = Holder::Schemas.facts().bytes - 2 * MAX_DOCUMENT;

/// The samples of a server that are followed.
struct SampleSource {
    server: FoundServer,
    follower: FtdcFollower<InspectedFolder>,
    sequence: SampleSequence,
    /// The time of the last sample.
    last: Timestamp,
    /// When it came.
    came: Instant,
    backoff: Backoff,
    /// Since when another thread has had the memory for its chunks.
    waits_since: Option<Instant>,
}

/// Follows the samples of all servers.
pub struct InternalsCollector {
    /// Opens their files.
    pub inspector: Arc<Inspector>,
}

impl Collector for InternalsCollector {
    fn drop_privileges(&self) {
        privileges::confine_follower();
    }

    fn observe(&mut self, into: &mut Observation) -> Result<(), CollectorProblem> {
        let mut sources: BTreeMap<Endpoint, SampleSource> = BTreeMap::new();
        // They wait for the file systems of folders.
        let threads: Arc<FileThreads> = Arc::default();
        // In folders that are no longer followed.
        let mut lost_before = 0;
        into.each(EVERY, |into| {
            let servers = into.servers().all();
            sources.retain(|name, source| {
                let is_current =
                    |one: &FoundServer| one.endpoint() == *name && one.diagnostic == source.server.diagnostic;
                let stays = servers.iter().any(is_current);
                if !stays {
                    lost_before += source.follower.counts().damaged;
                    into.board().forget(SourceId::of_server(CollectorKind::Internals, *name));
                }
                stays
            });
            for server in servers.iter().filter(|server| server.diagnostic.is_some()) {
                let source = || SampleSource::new(server, &self.inspector, &threads);
                let source = sources.entry(server.endpoint()).or_insert_with(source);
                // Another process may write into the same folder. One with the same name has its own.
                if source.server.diagnostic == server.diagnostic {
                    source.server.clone_from(server);
                }
                source.poll(&self.inspector, into);
                forget_schemas(&mut sources, SCHEMAS_BYTES);
            }
            let lost: u64 = sources.values().map(|source| source.follower.counts().damaged).sum();
            into.board().lost(CollectorKind::Internals, lost_before + lost);
            into.board().notes(CollectorKind::Internals, threads.notes());
            let schemas = sources.values().map(|source| source.follower.schema_bytes()).sum();
            into.board().held.set(Holder::Schemas, schemas);
            if sources
                .values()
                .all(|source| source.follower.counts().samples == 0 && !source.backoff.is_failing())
            {
                let why = match sources.is_empty() {
                    true => "no server here has a diagnostic.data that is known",
                    false => "no sample has come so far",
                };
                into.board().waits(CollectorKind::Internals, why);
            }
            // Samples come some ten seconds late.
            let time = now();
            into.windows.advance(time.minus_ns(DELAY_NS));
            into.windows.release_ahead(time);
        });
        Ok(())
    }
}

impl LearnsSchemas for SampleSource {
    fn schema_bytes(&self) -> usize {
        self.follower.schema_bytes()
    }

    fn forget_schemas(&mut self) {
        self.follower.forget_schemas();
    }
}

fn folder(server: &FoundServer) -> String {
    server.diagnostic.as_ref().map_or_else(String::new, |folder| folder.display().to_string())
}

fn silent(server: &FoundServer) -> CollectorProblem {
    let fix = "switch diagnosticDataCollectionEnabled on, and see whether the server stalls";
    CollectorProblem {
        fix: Some(fix.to_owned()),
        ..CollectorProblem::temporary(format!("{} has had no new sample for two minutes", folder(server)))
    }
}

impl SampleSource {
    fn new(server: &FoundServer, inspector: &Arc<Inspector>, threads: &Arc<FileThreads>) -> Self {
        let time = now();
        let path = server.diagnostic.clone().unwrap_or_default();
        let thread = Arc::new(FileThread::of(threads, server.user));
        let folder = InspectedFolder::new(path, inspector.clone(), thread);
        Self {
            server: server.clone(),
            // Samples before now may have later times, if the clock was set back.
            follower: FtdcFollower::from_now_on(folder),
            sequence: SampleSequence::default(),
            last: time,
            came: Instant::now(),
            backoff: Backoff::default(),
            waits_since: None,
        }
    }

    /// Takes the samples that are new, if it is time to try, and reports how the folder is.
    fn poll(&mut self, inspector: &Inspector, into: &mut Observation) {
        if !self.backoff.is_due(Instant::now()) {
            return;
        }
        let id = SourceId::of_server(CollectorKind::Internals, self.server.endpoint());
        let outcome = self.read(&mut into.windows, &into.task.stop);
        let time = now();
        let waits = outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy);
        let report = match outcome {
            // It goes on soon.
            Err(_) if self.waits_shortly(waits) => None,
            // It is forgotten as soon as the end is noticed.
            Err(_) if inspector.has_ended(&self.server) => None,
            Err(error) => {
                self.backoff.failed(Instant::now());
                into.board().failed(id, time, &unreadable(&folder(&self.server), &error))
            }
            Ok(()) => {
                self.backoff.worked();
                match self.came.elapsed() > SILENCE {
                    true => into.board().failed(id, time, &silent(&self.server)),
                    false if self.follower.counts().samples > 0 => into.board().data(id, self.last),
                    // It can be read again, but has nothing new so far.
                    false => into.board().passed(id, time),
                }
            }
        };
        into.report(report);
        if self.follower.counts().samples > 0 {
            into.servers().set_sampled(self.server.endpoint(), self.last);
        }
        // The newest file may still be that of the process before it.
        let servers = into.servers().all();
        let current = servers.iter().find(|one| one.endpoint() == self.server.endpoint());
        let version = self.follower.server().and_then(|server| server.version.as_deref());
        if let (Some(current), Some(version)) = (current, version)
            && self.follower.counts().samples > 0
            && self.last > servers::started_at(current.started, time).plus_ns(STARTING_NS)
        {
            into.servers().set_version(current, version);
        }
    }

    /// Notes whether another thread has the memory for its chunks; whether that has not lasted long.
    fn waits_shortly(&mut self, waits: bool) -> bool {
        if !waits {
            self.waits_since = None;
        }
        waits && self.waits_since.get_or_insert_with(Instant::now).elapsed() < MEMORY_PATIENCE
    }

    fn read(&mut self, windows: &mut WindowCutter, stop: &AtomicBool) -> io::Result<()> {
        let mut cutter = SampleCutter::new(windows, self.server.endpoint(), Some(CollectorKind::Internals));
        let Self { sequence, last, came, follower, .. } = self;
        let mut each = |sample: &sonar_core::internals::ServerSample| {
            // Earlier than the one before, if the clock was set back.
            (*last, *came) = (Timestamp::from_unix_ms(sample.time_ms()), Instant::now());
            cutter.add(sequence, sample);
        };
        while follower.poll(&mut each)? && !stop.load(Ordering::Relaxed) {}
        Ok(())
    }
}
