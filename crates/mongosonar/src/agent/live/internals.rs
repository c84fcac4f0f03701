//! The `diagnostic.data` of servers.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use sonar_core::Timestamp;
use sonar_core::history::Collector;
use sonar_core::internals::SampleSequence;

use super::board::CollectorProblem;
use super::inspector::{FoundServer, InspectedFolder, Inspector};
use super::log::FollowTask;
use crate::agent::figures::SampleCutter;
use crate::agent::parts::WindowCutter;
use crate::agent::servers::local;
use crate::ftdc::follow::FtdcFollower;
use crate::queries::live::now;

/// How often the folders are looked at. Servers write the newest samples every ten seconds.
const EVERY: Duration = Duration::from_secs(2);
/// How long after its time a sample may come.
const DELAY_NS: u64 = 15_000_000_000;
/// A server that wrote no sample for so long has stopped writing them.
const SILENCE_NS: u64 = 120_000_000_000;

/// The samples of a server that are followed.
struct FollowedSamplesOf {
    server: FoundServer,
    follower: FtdcFollower<InspectedFolder>,
    sequence: SampleSequence,
    /// When the last sample came.
    last: Timestamp,
}

/// Follows the samples of all servers until it is to stop.
pub fn run(task: &FollowTask) {
    let mut followed: BTreeMap<u16, FollowedSamplesOf> = BTreeMap::new();
    let mut windows = WindowCutter::new(task.to.clone());
    loop {
        let goes_on = task.wait(EVERY);
        let servers = task.servers.all();
        let is_same = |server: &FoundServer, known: &FoundServer| {
            server.port == known.port && server.diagnostic == known.diagnostic
        };
        followed.retain(|_, one| servers.iter().any(|server| is_same(server, &one.server)));
        for server in servers.iter().filter(|server| server.diagnostic.is_some()) {
            followed.entry(server.port).or_insert_with(|| FollowedSamplesOf::new(server, &task.inspector));
        }
        let time = now();
        let mut problem = None;
        let mut lost = 0;
        for one in followed.values_mut() {
            if let Err(error) = one.poll(&mut windows) {
                problem = Some(unreadable(&one.server, &error));
            }
            lost += one.follower.counts().damaged;
            if one.follower.counts().samples > 0 {
                task.servers.set_sampled(one.server.port, one.last);
            }
            if let Some(version) = one.follower.server().and_then(|server| server.version.as_deref()) {
                task.servers.set_version(one.server.port, version);
            }
            if time.since(one.last) > SILENCE_NS {
                problem.get_or_insert_with(|| silent(&one.server));
            }
        }
        task.board.lost(Collector::Internals, lost);
        let came = followed.values().filter(|one| one.follower.counts().samples > 0);
        let newest = came.map(|one| one.last).max();
        let report = match (problem, newest) {
            (Some(problem), _) => task.board.failed(Collector::Internals, time, &problem),
            (None, Some(newest)) => task.board.data(Collector::Internals, newest),
            (None, None) => {
                let why = match followed.is_empty() {
                    true => "no server here has a diagnostic.data that is known",
                    false => "no sample has come so far",
                };
                task.board.waits(Collector::Internals, why);
                None
            }
        };
        if let Some(event) = report {
            windows.event(event);
        }
        // Samples come some ten seconds late.
        windows.advance(Timestamp::from_unix_ns(time.unix_ns().saturating_sub(DELAY_NS)));
        if !goes_on || windows.is_abandoned() {
            break;
        }
    }
    windows.finish();
}

fn folder(server: &FoundServer) -> String {
    server.diagnostic.as_ref().map_or_else(String::new, |folder| folder.display().to_string())
}

fn unreadable(server: &FoundServer, error: &io::Error) -> CollectorProblem {
    CollectorProblem {
        what: format!("{} cannot be read: {error}", folder(server)),
        fix: Some(sonar_sys::capabilities::grant_line()),
    }
}

fn silent(server: &FoundServer) -> CollectorProblem {
    CollectorProblem {
        what: format!("{} has had no new sample for two minutes", folder(server)),
        fix: Some("switch diagnosticDataCollectionEnabled on, and see whether the server stalls".to_owned()),
    }
}

impl FollowedSamplesOf {
    fn new(server: &FoundServer, inspector: &Arc<Inspector>) -> Self {
        let time = now();
        let folder = InspectedFolder::new(server.diagnostic.clone().unwrap_or_default(), inspector.clone());
        let after_ms = i64::try_from(time.unix_ns() / 1_000_000).unwrap_or(i64::MAX);
        Self {
            server: server.clone(),
            follower: FtdcFollower::new(folder, after_ms),
            sequence: SampleSequence::default(),
            last: time,
        }
    }

    fn poll(&mut self, windows: &mut WindowCutter) -> io::Result<()> {
        let mut cutter = SampleCutter::new(windows, local(self.server.port), Some(Collector::Internals));
        let (sequence, last) = (&mut self.sequence, &mut self.last);
        let mut each = |sample: &sonar_core::internals::ServerSample| {
            let ms = u64::try_from(sample.time_ms()).unwrap_or(0);
            *last = (*last).max(Timestamp::from_unix_ns(ms.saturating_mul(1_000_000)));
            cutter.add(sequence, sample);
        };
        while self.follower.poll(&mut each)? {}
        Ok(())
    }
}
