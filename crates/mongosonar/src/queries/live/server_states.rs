//! The state of the servers of this host, from the samples that they write into their `diagnostic.data`.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use anyhow::Result;
use sonar_core::Timestamp;
use sonar_core::internals::{ServerGlance, ServerSample};
use sonar_view::queries::ServerState;

use crate::args::values::PortRange;
use crate::args::when::now;
use crate::capture::notice::Notice;
use crate::capture::ports::CapturedPorts;
use crate::confinement::helper_channel::HELPER_ENDED;
use crate::confinement::start_order::{StartStep, start_thread};
use crate::ftdc::follow::{DiagnosticFolder, FtdcFollower, LearnsSchemas, forget_schemas};
use crate::input::follow::FileThreads;
use crate::servers;
use crate::servers::samples::{SampledServer, ServerSampleFolder, ServerSamples};

/// How often the folders are looked at. Servers write the newest samples every ten seconds.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often servers are searched.
const SEARCH_EVERY: Duration = Duration::from_secs(10);
/// How old the first sample may be, in nanoseconds.
const FIRST_NS: u64 = 60_000_000_000;
/// The most servers whose state is followed, the first ones by port.
const MAX_FOLLOWED: usize = 16;
/// The most bytes that are kept of what was learned of the schemas of all servers. A large server has less than one MB.
const SCHEMAS_BYTES: usize = 8 << 20;

/// The servers that are followed.
type Followed<F> = BTreeMap<SampledServer, FollowedState<F>>;

/// Which servers are followed, and where their state goes.
pub struct ServerStatesTask {
    samples: ServerSamples,
    ports: Vec<PortRange>,
    notices_to: Sender<Notice>,
}

impl ServerStatesTask {
    /// Starts the thread that reads the samples of the servers on these ports, or of all, and tells their state whenever it
    /// has changed. It ends when the returned sender is dropped, or nobody takes what it says. Call it after
    /// privileges were dropped.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        samples: ServerSamples,
        ports: Vec<PortRange>,
        notices_to: Sender<Notice>,
    ) -> Result<Sender<()>> {
        let (keep, stop) = channel();
        let task = Self { samples, ports, notices_to };
        start_thread(StartStep::Thread, "states", move || task.run(&stop))?;
        Ok(keep)
    }

    fn run(self, stop: &Receiver<()>) {
        let mut followed = Followed::new();
        // They wait for the file systems of folders.
        let threads = Arc::default();
        let mut searched: Option<Instant> = None;
        loop {
            let mut has_changed = false;
            if searched.is_none_or(|searched| searched.elapsed() >= SEARCH_EVERY) {
                searched = Some(Instant::now());
                match self.search(&mut followed, &threads) {
                    Ok(has_ended) => has_changed = has_ended,
                    Err(error) if error.kind() == HELPER_ENDED => return self.end(&error),
                    // Nothing is known that was not known before.
                    Err(_) => {}
                }
            }
            let is_over = || stop.try_recv() != Err(TryRecvError::Empty);
            let Some(is_new) = look(&mut followed, SCHEMAS_BYTES, is_over) else { return };
            if (has_changed || is_new) && self.notices_to.send(Notice::Servers(states(&followed))).is_err() {
                return;
            }
            if stop.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Follows the servers that run now. Returns whether one of those before has ended.
    fn search(
        &self,
        followed: &mut Followed<ServerSampleFolder>,
        threads: &Arc<FileThreads>,
    ) -> io::Result<bool> {
        let found = self.samples.servers()?;
        let named = CapturedPorts::of(&self.ports, Vec::new());
        let is_wanted = |one: &SampledServer| self.ports.is_empty() || named.has(one.port);
        let found: Vec<SampledServer> = found.into_iter().filter(is_wanted).take(MAX_FOLLOWED).collect();
        let before = followed.len();
        followed.retain(|server, _| found.contains(server));
        let has_ended = followed.len() < before;
        let now = now();
        for server in found {
            let folder = self.samples.folder(server.pid, threads);
            let after_ms = first_ms(servers::started_at(server.started, now), now);
            followed.entry(server).or_insert_with(|| FollowedState::new(folder, after_ms));
        }
        Ok(has_ended)
    }

    /// Says that no state comes any more: what was shown would only get older.
    fn end(&self, error: &io::Error) {
        let why = format!("the state of servers is no longer shown: {error}");
        // Nobody may listen any more.
        let _ = self.notices_to.send(Notice::Servers(Vec::new()));
        let _ = self.notices_to.send(Notice::Complaint(why));
    }
}

/// From when on samples count of a server whose process started at this time, in milliseconds since 1970: the newest ones
/// may be those of the process before it.
fn first_ms(started: Timestamp, now: Timestamp) -> i64 {
    now.minus_ns(FIRST_NS).max(started).unix_ms()
}

/// Takes what is new of each server, and keeps at most so many bytes of schemas. Gives whether anything is new; `None` once
/// it is over.
fn look<F: DiagnosticFolder>(
    followed: &mut Followed<F>,
    schemas: usize,
    is_over: impl Fn() -> bool,
) -> Option<bool> {
    let servers: Vec<SampledServer> = followed.keys().cloned().collect();
    let mut has_changed = false;
    for server in &servers {
        if is_over() {
            return None;
        }
        has_changed |= followed.get_mut(server).is_some_and(FollowedState::poll);
        forget_schemas(followed, schemas);
    }
    Some(has_changed)
}

/// What is known of these servers, by port.
fn states<F>(followed: &Followed<F>) -> Vec<ServerState> {
    let state = |(server, followed): (&SampledServer, &FollowedState<F>)| {
        let glance = followed.last.clone().filter(|glance| !glance.is_empty())?;
        Some(ServerState { program: Some(server.program.clone()), port: server.port, glance })
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

    /// Takes what is new, or a part of it: whoever fills a folder must not hold up the other servers. Returns whether
    /// anything is. A folder that cannot be read now may be readable later; until then the last sample gets older.
    fn poll(&mut self) -> bool {
        let Self { follower, last } = self;
        let mut has_changed = false;
        let mut each = |sample: &ServerSample| {
            *last = Some(ServerGlance::of(sample));
            has_changed = true;
        };
        let _ = follower.poll(&mut each);
        has_changed
    }
}

impl<F: DiagnosticFolder> LearnsSchemas for FollowedState<F> {
    fn schema_bytes(&self) -> usize {
        self.follower.schema_bytes()
    }

    fn forget_schemas(&mut self) {
        self.follower.forget_schemas();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;

    use sonar_decode::ftdc::document_length;
    use sonar_decode::testing::fixtures::fixture;

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
        let bytes = fs::read(fixture("ftdc/day").join(NAME)).unwrap();
        let (mut rest, mut found) = (&bytes[..], Vec::new());
        while let Some(length) = rest.first_chunk().and_then(|first| document_length(*first).unwrap()) {
            found.push(rest[..length].to_vec());
            rest = &rest[length..];
        }
        found
    }

    fn server(port: u16) -> SampledServer {
        SampledServer { port, pid: u32::from(port), started: 1, program: "mongod".to_owned() }
    }

    #[test]
    fn the_state_is_that_of_the_last_sample_of_a_file_that_grows() {
        let folder = tempfile::tempdir().unwrap();
        let server = server(27_017);
        let mut followed: Followed<_> =
            [(server.clone(), FollowedState::new(SampleFolder(folder.path().to_owned()), 0))].into();
        let mut times = Vec::new();
        for document in recorded() {
            let mut file = File::options().append(true).create(true).open(folder.path().join(NAME)).unwrap();
            file.write_all(&document).unwrap();
            if followed.get_mut(&server).unwrap().poll() {
                let [state] = &states(&followed)[..] else { panic!("one state") };
                assert_eq!((state.port, state.program.as_deref()), (27_017, Some("mongod")));
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

    #[test]
    fn a_folder_with_much_in_it_is_read_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let documents = recorded();
        let much = documents[0].repeat(100);
        fs::write(folder.path().join(NAME), [much, documents.concat()].concat()).unwrap();
        let mut state = FollowedState::new(SampleFolder(folder.path().to_owned()), 0);
        assert!(!state.poll(), "not all of it at once");
        assert!((0..2).any(|_| state.poll()) && state.last.is_some());
    }

    #[test]
    fn schemas_of_all_servers_together_are_kept_up_to_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(NAME), recorded().concat()).unwrap();
        let followed = || {
            let state = || FollowedState::new(SampleFolder(folder.path().to_owned()), 0);
            Followed::from([1, 2].map(|port| (server(port), state())))
        };
        let kept = |most: usize| {
            let mut followed = followed();
            assert_eq!(look(&mut followed, most, || false), Some(true));
            assert_eq!(states(&followed).len(), 2);
            followed.values().filter(|state| state.schema_bytes() > 0).count()
        };
        let mut one = followed();
        look(&mut one, usize::MAX, || false);
        let bytes = one[&server(1)].schema_bytes();
        assert_eq!([0, bytes, 2 * bytes].map(kept), [0, 1, 2]);
    }

    #[test]
    fn nothing_more_is_looked_at_once_it_is_over() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(NAME), recorded().concat()).unwrap();
        let state = || FollowedState::new(SampleFolder(folder.path().to_owned()), 0);
        let mut followed = Followed::from([1, 2].map(|port| (server(port), state())));
        let looks = std::cell::Cell::new(0);
        let is_over = || looks.replace(looks.get() + 1) > 0;
        assert_eq!(look(&mut followed, usize::MAX, is_over), None);
        assert_eq!(states(&followed).len(), 1, "the first one was looked at");
    }

    #[test]
    fn samples_of_the_process_before_are_not_the_state_of_a_server() {
        let at = |second| Timestamp::from_unix(second, 0);
        assert_eq!(first_ms(at(900), at(1_000)), 940_000);
        assert_eq!(first_ms(at(990), at(1_000)), 990_000);
        assert_eq!(first_ms(at(0), at(10)), 0);
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(NAME), recorded().concat()).unwrap();
        let state = |after_ms| {
            let mut state = FollowedState::new(SampleFolder(folder.path().to_owned()), after_ms);
            state.poll();
            state.last.map(|last| last.at)
        };
        let last = state(0).unwrap();
        let restarted = first_ms(last.plus_ns(1_000_000_000), last.plus_ns(2_000_000_000));
        assert_eq!(state(restarted), None);
    }

    #[test]
    fn once_the_helper_has_ended_no_state_is_shown_which_is_said_once() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let (notices_to, news) = channel();
        let _states = ServerStatesTask::start(ServerSamples::over(ours), Vec::new(), notices_to).unwrap();
        let notices: Vec<Notice> = news.iter().collect();
        let [Notice::Servers(servers), Notice::Complaint(why)] = &notices[..] else { panic!("two notices") };
        assert!(servers.is_empty());
        assert_eq!(why, "the state of servers is no longer shown: a helper process has ended");
    }
}
