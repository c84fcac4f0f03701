//! The state of the servers of this host, from the samples that they write into their `diagnostic.data`.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sonar_core::internals::{ServerGlance, ServerSample};
use sonar_view::queries::ServerState;

use crate::ftdc::follow::{DiagnosticFolder, FtdcFollower};
use crate::queries::args::Range;
use crate::queries::notice::Notice;
use crate::queries::ports::Listened;
use crate::server_samples::{SampledServer, ServerSampleFolder, ServerSamples};

use crate::when::now;

/// How often the folders are looked at. Servers write the newest samples every ten seconds.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often servers are searched.
const SEARCH_EVERY: Duration = Duration::from_secs(10);
/// How old the first sample may be, in milliseconds.
const FIRST_MS: i64 = 60_000;
/// The most servers whose state is followed, the first ones by port.
const MAX_FOLLOWED: usize = 16;

/// Which servers are followed, and where their state goes.
pub struct ServerStatesTask {
    /// Finds them and opens their samples.
    pub samples: ServerSamples,
    /// The ports that were named; empty: all.
    pub ports: Vec<Range>,
    /// Takes all of it whenever something has changed.
    pub say: Sender<Notice>,
}

impl ServerStatesTask {
    /// Starts the thread. It ends when the returned sender is dropped, or nobody takes what it says. Call it after
    /// privileges were dropped.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(self) -> Result<Sender<()>> {
        let (keep, stop) = channel();
        std::thread::Builder::new()
            .name("states".to_owned())
            .spawn(move || self.run(&stop))
            .context("cannot start a thread")?;
        Ok(keep)
    }

    fn run(self, stop: &Receiver<()>) {
        let mut followed: BTreeMap<SampledServer, FollowedState<ServerSampleFolder>> = BTreeMap::new();
        let mut searched: Option<Instant> = None;
        loop {
            let mut has_changed = false;
            if searched.is_none_or(|searched| searched.elapsed() >= SEARCH_EVERY) {
                searched = Some(Instant::now());
                has_changed |= self.search(&mut followed);
            }
            for state in followed.values_mut() {
                has_changed |= state.poll();
            }
            if has_changed && self.say.send(Notice::Servers(states(&followed))).is_err() {
                return;
            }
            if stop.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Follows the servers that run now. Returns whether one of those before has ended.
    fn search(&self, followed: &mut BTreeMap<SampledServer, FollowedState<ServerSampleFolder>>) -> bool {
        // Without a list of processes nothing is known that was not known before.
        let Ok(found) = self.samples.servers() else { return false };
        let named = Listened::of(&self.ports, Vec::new());
        let is_wanted = |one: &SampledServer| self.ports.is_empty() || named.has(one.port);
        let found: Vec<SampledServer> = found.into_iter().filter(is_wanted).take(MAX_FOLLOWED).collect();
        let before = followed.len();
        followed.retain(|server, _| found.contains(server));
        let has_ended = followed.len() < before;
        for server in found {
            let folder = self.samples.folder(server.pid);
            let after_ms = i64::try_from(now().unix_ns() / 1_000_000).unwrap_or(i64::MAX) - FIRST_MS;
            followed.entry(server).or_insert_with(|| FollowedState::new(folder, after_ms));
        }
        has_ended
    }
}

/// What is known of these servers, by port.
fn states<F>(followed: &BTreeMap<SampledServer, FollowedState<F>>) -> Vec<ServerState> {
    let state = |(server, followed): (&SampledServer, &FollowedState<F>)| {
        let glance = followed.last.clone().filter(|glance| !glance.is_empty())?;
        Some(ServerState { program: server.program.clone(), port: server.port, glance })
    };
    followed.iter().filter_map(state).collect()
}

/// The samples of a server that are followed.
struct FollowedState<F> {
    follower: FtdcFollower<F>,
    /// The last one.
    last: Option<ServerGlance>,
}

impl<F: DiagnosticFolder> FollowedState<F> {
    /// With the samples after a time, in milliseconds since 1970.
    fn new(folder: F, after_ms: i64) -> Self {
        Self { follower: FtdcFollower::new(folder, after_ms), last: None }
    }

    /// Takes what is new; returns whether anything is. A folder that cannot be read now may be readable later; until then
    /// the last sample gets older.
    fn poll(&mut self) -> bool {
        let Self { follower, last } = self;
        let mut has_changed = false;
        let mut each = |sample: &ServerSample| {
            *last = Some(ServerGlance::of(sample));
            has_changed = true;
        };
        while follower.poll(&mut each).unwrap_or(false) {}
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{self, Write};
    use std::path::{Path, PathBuf};

    use sonar_decode::ftdc::document_length;

    use super::*;
    use crate::ftdc::follow::DiagnosticFile;

    const NAME: &str = "metrics.2026-11-21T21-22-47Z-00000";

    /// A folder that may be read.
    struct SampleFolder(PathBuf);

    impl DiagnosticFolder for SampleFolder {
        fn list(&mut self) -> io::Result<Vec<DiagnosticFile>> {
            let about = |entry: fs::DirEntry| Some((entry.file_name(), entry.metadata().ok()?));
            Ok(DiagnosticFile::among(fs::read_dir(&self.0)?.flatten().filter_map(about)))
        }

        fn open(&mut self, name: &str) -> io::Result<File> {
            File::open(self.0.join(name))
        }
    }

    /// The documents of a recorded file: what the server is, then its chunks.
    fn recorded() -> Vec<Vec<u8>> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/ftdc/day").join(NAME);
        let bytes = fs::read(path).unwrap();
        let (mut rest, mut found) = (&bytes[..], Vec::new());
        while let Some(length) = rest.first_chunk().and_then(|first| document_length(*first).unwrap()) {
            found.push(rest[..length].to_vec());
            rest = &rest[length..];
        }
        found
    }

    #[test]
    fn the_state_is_that_of_the_last_sample_of_a_file_that_grows() {
        let folder = tempfile::tempdir().unwrap();
        let server = SampledServer { port: 27_017, pid: 7, started: 1, program: "mongod".to_owned() };
        let mut followed: BTreeMap<SampledServer, _> =
            [(server.clone(), FollowedState::new(SampleFolder(folder.path().to_owned()), 0))].into();
        let mut times = Vec::new();
        for document in recorded() {
            let mut file = File::options().append(true).create(true).open(folder.path().join(NAME)).unwrap();
            file.write_all(&document).unwrap();
            if followed.get_mut(&server).unwrap().poll() {
                let [state] = &states(&followed)[..] else { panic!("one state") };
                assert_eq!((state.port, &*state.program), (27_017, "mongod"));
                times.push(state.glance.at);
            }
            assert!(!followed.get_mut(&server).unwrap().poll(), "nothing is new");
        }
        assert!(times.len() >= 2 && times.is_sorted_by(|a, b| a < b), "{times:?}");
        let last = states(&followed).remove(0).glance;
        assert!(last.cache_used_percent.is_some_and(|used| used > 0.0 && used < 100.0), "{last:?}");
        assert!(last.resident_bytes.is_some_and(|bytes| bytes > 10 << 20), "{last:?}");
        assert_eq!(
            (last.queued_reads, last.queued_writes, last.lag_ms),
            (Some(0), Some(0), None),
            "{last:?}"
        );
        assert!(last.connections.is_some_and(|count| count > 0), "{last:?}");
    }

    #[test]
    fn a_server_without_samples_has_no_state_and_a_folder_that_has_gone_keeps_the_last_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = FollowedState::new(SampleFolder(folder.path().join("data")), 0);
        assert!(!state.poll() && state.last.is_none());
        fs::create_dir(folder.path().join("data")).unwrap();
        assert!(!state.poll());
        fs::write(folder.path().join("data").join(NAME), recorded().concat()).unwrap();
        assert!(state.poll());
        let last = state.last.clone();
        fs::remove_dir_all(folder.path().join("data")).unwrap();
        assert!(!state.poll());
        assert_eq!(state.last, last);
        assert!(last.is_some());
    }
}
