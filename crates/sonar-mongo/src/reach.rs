//! Explains why no server can be reached.
//!
//! If the driver finds no server in time, its error is a dump of all it knows about the deployment. The events of its
//! monitors have the typed error of each server; this module keeps them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mongodb::ServerType;
use mongodb::event::EventHandler;
use mongodb::event::sdam::SdamEvent;

use crate::error::ServerError;
use crate::unreachable::{ReachObstacle, Unreachable, Why, plain};

/// The most servers of one deployment to keep; a replica set has at most 50 members.
const MOST_SERVERS: usize = 128;
/// How often, and how long each time, to wait for the first event of the driver.
const EVENT_TRIES: u32 = 20;
const EVENT_WAIT: Duration = Duration::from_millis(5);
/// The oldest wire version that the driver speaks, that of MongoDB 4.4.
const OLDEST_WIRE: i32 = 9;
/// Releases by their wire version, up to the last one that is too old.
const RELEASES: [&str; 9] = ["2.4", "2.6", "2.6", "3.0", "3.2", "3.4", "3.6", "4.0", "4.2"];

/// The last known state of a server.
#[derive(Clone, Debug)]
enum Seen {
    Failed(ReachObstacle),
    /// It answered: its kind, its replica set, and the newest wire version that it speaks.
    Reached(ServerType, Option<String>, Option<i32>),
}

#[derive(Debug, Default)]
struct ReachState {
    servers: BTreeMap<String, Seen>,
    /// Those that the driver dropped: they do not belong to the replica set.
    dropped: BTreeSet<String>,
}

/// What the driver's monitors report about each server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reach {
    state: Arc<Mutex<ReachState>>,
    tls: bool,
}

impl Reach {
    pub(crate) fn new(tls: bool) -> Self {
        Self { tls, ..Self::default() }
    }

    pub(crate) fn handler(&self) -> EventHandler<SdamEvent> {
        let this = self.clone();
        EventHandler::callback(move |event| this.note(&event))
    }

    fn state(&self) -> MutexGuard<'_, ReachState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, event: &SdamEvent) {
        match event {
            SdamEvent::ServerHeartbeatFailed(event) => {
                self.see(
                    event.server_address.to_string(),
                    Seen::Failed(ReachObstacle::of(&event.failure, self.tls)),
                );
            }
            SdamEvent::ServerDescriptionChanged(event) => {
                let now = &event.new_description;
                if now.error().is_none() && now.server_type() != ServerType::Unknown {
                    let set = now.replica_set_name().map(str::to_owned);
                    let seen = Seen::Reached(now.server_type(), set, now.max_wire_version());
                    self.see(event.address.to_string(), seen);
                }
            }
            SdamEvent::ServerClosed(event) => {
                let mut state = self.state();
                let address = event.address.to_string();
                state.servers.remove(&address);
                if state.dropped.len() < MOST_SERVERS {
                    state.dropped.insert(address);
                }
            }
            _ => {}
        }
    }

    fn see(&self, address: String, seen: Seen) {
        let mut state = self.state();
        if state.servers.len() < MOST_SERVERS || state.servers.contains_key(&address) {
            state.servers.insert(address, seen);
        }
    }

    /// Why no server was found, after the driver gave up with this message.
    pub(crate) fn explain(&self, message: &str) -> ServerError {
        // The events come from a task of the driver, possibly a moment after its error.
        for _ in 0..EVENT_TRIES {
            let state = self.state();
            if !state.servers.is_empty() || !state.dropped.is_empty() {
                break;
            }
            drop(state);
            std::thread::sleep(EVENT_WAIT);
        }
        let state = self.state();
        let mut reached = Vec::new();
        let mut sets = BTreeSet::new();
        let mut has_primary = false;
        let mut failed: BTreeMap<&ReachObstacle, Vec<&str>> = BTreeMap::new();
        for (address, seen) in &state.servers {
            match seen {
                Seen::Failed(obstacle) => failed.entry(obstacle).or_default().push(address),
                Seen::Reached(_, _, Some(wire)) if *wire < OLDEST_WIRE => {
                    let release = usize::try_from(*wire).ok().and_then(|wire| RELEASES.get(wire));
                    return ServerError::TooOld {
                        server: address.clone(),
                        version: release.unwrap_or(&RELEASES[0]).to_string(),
                    };
                }
                Seen::Reached(kind, set, _) => {
                    reached.push(address.as_str());
                    sets.extend(set.as_deref());
                    has_primary |= *kind == ServerType::RsPrimary;
                }
            }
        }
        if message.contains("requires wire version") {
            return ServerError::TooNew(reached.join(", "));
        }
        let found = |servers: String, why| ServerError::Unreachable(Unreachable { servers, why });
        match (sets.first(), failed.into_iter().next()) {
            (Some(set), _) if !has_primary => found(reached.join(", "), Why::NoPrimary(plain(set))),
            _ if !reached.is_empty() => found(reached.join(", "), Why::Unsuitable),
            (_, Some((obstacle, servers))) => {
                ServerError::Unreachable(Unreachable::new(servers.join(", "), obstacle.clone()))
            }
            _ if !state.dropped.is_empty() => {
                let dropped: Vec<_> = state.dropped.iter().map(String::as_str).collect();
                found(dropped.join(", "), Why::OtherSet)
            }
            _ => found(String::new(), Why::Silent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_monitors_saw_is_explained_once() {
        let reach = Reach::default();
        let explain =
            || reach.explain("Server selection timeout: No available servers. Topology: { … }").to_string();
        assert_eq!(explain(), "no server answered in time");
        reach.see("b:1".into(), Seen::Failed(ReachObstacle::Timeout));
        reach.see("a:1".into(), Seen::Failed(ReachObstacle::Refused));
        reach.see("c:1".into(), Seen::Failed(ReachObstacle::Refused));
        // One cause: the more certain one.
        assert_eq!(explain(), "cannot connect to a:1, c:1: connection refused; no server listens there");
        reach.see("a:1".into(), Seen::Reached(ServerType::RsSecondary, Some("rs0".into()), Some(21)));
        assert!(explain().starts_with("the replica set rs0 has no primary at the moment (reached: a:1)"));
        reach.see("a:1".into(), Seen::Reached(ServerType::RsPrimary, Some("rs0".into()), Some(21)));
        assert!(explain().starts_with("no server fits the read preference"), "{}", explain());
        reach.see("a:1".into(), Seen::Reached(ServerType::Standalone, None, Some(7)));
        assert!(explain().contains("a:1 is MongoDB 4.0, older than MongoDB 4.4"), "{}", explain());
    }

    #[test]
    fn a_deployment_that_names_servers_without_end_is_bounded() {
        let reach = Reach::default();
        for n in 0..10_000 {
            reach.see(format!("host{n}:1"), Seen::Failed(ReachObstacle::Refused));
        }
        assert_eq!(reach.state().servers.len(), MOST_SERVERS);
    }
}
