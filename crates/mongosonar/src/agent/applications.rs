//! The applications that the history knows, so that an agent that starts again does not take them for new.

use std::collections::{BTreeMap, BTreeSet};

use sonar_core::history::{ApplicationWatch, Collector, EventKind, Resolution, Span};
use sonar_core::row::Subject;
use sonar_core::{Endpoint, HistoryStore, Timestamp};

/// How far back the history is read, in nanoseconds: 30 days.
const REACH_NS: u64 = 30 * 86_400 * 1_000_000_000;

/// Names of applications by server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownApplications {
    names: BTreeMap<Endpoint, BTreeSet<Box<str>>>,
    /// Every operation was seen, not only slow ones.
    is_complete: bool,
}

impl KnownApplications {
    /// Those of a store at `now`.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn read<S: HistoryStore>(store: &S, now: Timestamp) -> Result<Self, S::Error> {
        let span = Span { from: Timestamp::from_unix_ns(now.unix_ns().saturating_sub(REACH_NS)), to: now };
        let mut known = Self::default();
        store.windows(span, Resolution::Hour, &mut |window| {
            known.is_complete |= window.observed_ns(Collector::Queries) > 0;
            for row in window.window.apps.iter() {
                if let Subject::App(app) = &row.subject {
                    known.names.entry(row.server).or_default().insert(app.label().into());
                }
            }
        })?;
        for event in store.events(span)?.into_iter().filter(|event| event.kind == EventKind::NewApplication) {
            known.names.entry(event.server).or_default().insert(event.subject);
        }
        Ok(known)
    }

    /// What a server's connections are compared with.
    pub fn watch(&self, server: Endpoint) -> ApplicationWatch {
        let names = self.names.get(&server).into_iter().flatten().cloned();
        let watch = ApplicationWatch::new(names);
        if self.is_complete { watch } else { watch.learning() }
    }
}

#[cfg(test)]
mod tests {
    use sonar_core::history::Event;
    use sonar_core::{Application, HistoryWindow};

    use super::super::assembler::tests::MemoryStore;
    use super::super::servers::local;
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_unix(1_795_296_000 + second, 0)
    }

    fn new_at_once(known: &KnownApplications, server: Endpoint, name: &str) -> bool {
        let app = Application { name: name.into(), ..Application::default() };
        known.watch(server).connected(at(100), &app, server).is_some()
    }

    #[test]
    fn what_the_history_knows_is_not_new() {
        let mut window = HistoryWindow::new(at(0), Resolution::TenSeconds);
        window.observe(Collector::Queries, 1);
        let event = Event::new(at(5), EventKind::NewApplication, local(5), ("shop", "first connection"));
        let mut store = MemoryStore { windows: vec![window], events: vec![event], ..MemoryStore::default() };
        let known = KnownApplications::read(&store, at(50)).unwrap();
        assert!(!new_at_once(&known, local(5), "shop"));
        assert!(new_at_once(&known, local(5), "pricing"));
        assert!(!new_at_once(&known, local(6), "shop"), "it learns: nothing is known of this server");
        store.windows.clear();
        let known = KnownApplications::read(&store, at(50)).unwrap();
        assert!(!new_at_once(&known, local(5), "pricing"), "it learns: only slow operations were seen");
    }
}
