//! What collectors list of operations that run, as long as somebody looks.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sonar_core::Endpoint;
use sonar_core::running::RequestKey;
use sonar_view::now::{NowOperation, SeenThread, ServerOperations};

use crate::locking::lock;

/// How long collectors go on after somebody has asked: the page asks every second.
const WANTED_FOR: Duration = Duration::from_secs(5);
/// How often they look meanwhile.
pub const LIST_EVERY: Duration = Duration::from_secs(1);
/// What is older says nothing of now.
const FRESH_FOR: Duration = Duration::from_secs(3);
/// The most operations that all servers say together; each may say an equal part.
pub const MAX_SAID: usize = 500;
/// The most operations whose threads are listed.
#[cfg(test)]
const MAX_SEEN: usize = 1_024;
/// The most bytes of names of a thread, its file and its class that are not shared.
#[cfg(test)]
const MAX_SEEN_TEXT: usize = 64;

/// What was last listed.
#[derive(Debug, Default)]
pub struct RunningBoard {
    wanted: Mutex<Option<Instant>>,
    threads: Mutex<Option<ListedThreads>>,
    servers: Mutex<BTreeMap<Endpoint, ListedServer>>,
}

/// What threads do, and when they were looked at.
#[derive(Debug)]
struct ListedThreads {
    at: Instant,
    seen: Arc<HashMap<RequestKey, SeenThread>>,
}

/// What a server says, and when.
#[derive(Debug)]
struct ListedServer {
    at: Instant,
    said: Arc<ServerOperations>,
}

impl RunningBoard {
    /// Somebody has asked at this time.
    pub fn want(&self, now: Instant) {
        *lock(&self.wanted) = Some(now);
    }

    /// Whether somebody has asked a short time ago.
    pub fn is_wanted(&self, now: Instant) -> bool {
        lock(&self.wanted).is_some_and(|wanted| now.saturating_duration_since(wanted) < WANTED_FOR)
    }

    /// Whether to look now, after a look at `last`.
    pub fn is_due(&self, now: Instant, last: Option<Instant>) -> bool {
        last.is_none_or(|last| now.saturating_duration_since(last) >= LIST_EVERY) && self.is_wanted(now)
    }

    /// What the threads of servers do at this time.
    pub fn set_threads(&self, at: Instant, seen: HashMap<RequestKey, SeenThread>) {
        *lock(&self.threads) = Some(ListedThreads { at, seen: Arc::new(seen) });
    }

    /// What the server with this name says at this time.
    pub fn set_server(&self, at: Instant, server: Endpoint, said: ServerOperations) {
        lock(&self.servers).insert(server, ListedServer { at, said: Arc::new(said) });
    }

    /// What threads do, if that was listed a short time ago.
    pub fn threads(&self, now: Instant) -> Option<Arc<HashMap<RequestKey, SeenThread>>> {
        let threads = lock(&self.threads);
        threads.as_ref().filter(|listed| is_fresh(listed.at, now)).map(|listed| listed.seen.clone())
    }

    /// What servers said a short time ago.
    pub fn servers(&self, now: Instant) -> Vec<Arc<ServerOperations>> {
        let servers = lock(&self.servers);
        servers.values().filter(|listed| is_fresh(listed.at, now)).map(|listed| listed.said.clone()).collect()
    }

    /// Forgets all of it once nobody looks any more.
    pub fn forget_unwanted(&self, now: Instant) {
        let was_wanted = lock(&self.wanted).is_some();
        if was_wanted && !self.is_wanted(now) {
            *lock(&self.wanted) = None;
            *lock(&self.threads) = None;
            lock(&self.servers).clear();
        }
    }

    /// The bytes that it holds: an estimate.
    pub fn memory(&self) -> usize {
        let threads = lock(&self.threads);
        let seen = threads.as_ref().map_or(0, |listed| {
            let names: usize = listed.seen.values().map(|seen| seen.activity.thread_name.capacity()).sum();
            listed.seen.capacity() * size_of::<(RequestKey, SeenThread)>() + names
        });
        let said: usize = lock(&self.servers)
            .values()
            .flat_map(|listed| &listed.said.operations)
            .map(NowOperation::memory)
            .sum();
        seen + said
    }

    /// The most bytes that it holds, twice because the next lists are made meanwhile.
    #[cfg(test)]
    pub const MAX_MEMORY: usize = 2
        * (MAX_SAID * NowOperation::MAX_BYTES
            + 2 * MAX_SEEN * size_of::<(RequestKey, SeenThread)>()
            + MAX_SEEN * MAX_SEEN_TEXT);
}

fn is_fresh(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < FRESH_FOR
}

#[cfg(test)]
mod tests {
    use sonar_core::RunningOperations;
    use sonar_view::now::MAX_OPERATIONS;

    use super::*;
    use crate::agent::memory::Holder;
    use crate::serve::running_link::MAX_BYTES;

    #[test]
    fn collectors_look_once_a_second_as_long_as_somebody_asks() {
        let (board, begin) = (RunningBoard::default(), Instant::now());
        let after = |ms| begin + Duration::from_millis(ms);
        assert!(!board.is_due(begin, None), "nobody has asked");
        board.want(begin);
        assert!(board.is_due(begin, None) && !board.is_due(after(999), Some(begin)));
        assert!(board.is_due(after(1_000), Some(begin)));
        assert!(board.is_wanted(after(4_999)) && !board.is_wanted(after(5_000)));
        assert!(!board.is_due(after(5_000), Some(begin)));
    }

    #[test]
    fn what_is_listed_has_room_in_its_holder() {
        let lists = 3 * RunningOperations::max_memory(MAX_OPERATIONS);
        let joined = (MAX_SAID + MAX_OPERATIONS) * NowOperation::MAX_BYTES;
        // A vector that grows has room for twice as much.
        let most = RunningBoard::MAX_MEMORY + lists + joined + 2 * MAX_BYTES;
        let room = Holder::Running.facts().bytes;
        assert!(most <= room, "{most} of {room}");
    }

    #[test]
    fn what_is_old_is_not_shown_and_is_forgotten_once_nobody_looks() {
        let (board, begin) = (RunningBoard::default(), Instant::now());
        let after = |ms| begin + Duration::from_millis(ms);
        board.want(begin);
        board.set_threads(begin, HashMap::new());
        board.set_server(begin, Endpoint::v4([0; 4], 1), ServerOperations::default());
        board.set_server(after(2_000), Endpoint::v4([0; 4], 2), ServerOperations::default());
        assert!(board.threads(after(2_999)).is_some() && board.threads(after(3_000)).is_none());
        assert_eq!((board.servers(after(2_999)).len(), board.servers(after(3_000)).len()), (2, 1));
        board.forget_unwanted(after(4_999));
        assert_eq!(board.servers(after(2_000)).len(), 2);
        board.forget_unwanted(after(5_000));
        assert!(board.servers(after(2_000)).is_empty() && board.threads(begin).is_none());
    }
}
