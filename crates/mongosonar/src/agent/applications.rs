//! The applications that the history knows, so that an agent that starts again does not take them for new.

use std::collections::{BTreeMap, BTreeSet};

use sonar_core::history::{
    ApplicationWatch, CollectorKind, EventKind, HistoryError, HistoryReader, Resolution, Span,
};
use sonar_core::row::Subject;
use sonar_core::{Endpoint, HistoryWindow, Row, Source, Timestamp};

/// How far back the history is read, in nanoseconds: 30 days.
const REACH_NS: u64 = 30 * 86_400 * 1_000_000_000;

/// The most names of a server, which is the most that are compared with.
const MAX_NAMES: usize = 1_024;

/// Names of applications by server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownApplications {
    names: BTreeMap<Endpoint, BTreeSet<Box<str>>>,
    /// Applications whose server is unknown: a row names only the first few applications of its shape.
    anywhere: BTreeSet<Box<str>>,
    /// Every operation was seen, not only slow ones.
    is_complete: bool,
}

impl KnownApplications {
    /// Those of a store at `now`.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn read(store: &dyn HistoryReader, now: Timestamp) -> Result<Self, HistoryError> {
        let span = Span { from: now.minus_ns(REACH_NS), to: now };
        let mut known = Self::default();
        store.windows(span, Resolution::Hour, &mut |window| {
            known.is_complete |= window.observed_ns(CollectorKind::Queries) > 0;
            known.add(&window);
        })?;
        for event in store.events(span)?.into_iter().filter(|event| event.kind == EventKind::NewApplication) {
            insert(known.names.entry(event.server).or_default(), [event.subject]);
        }
        Ok(known)
    }

    /// Adds those of a window. Its rows by application have no server, those by shape do.
    fn add(&mut self, window: &HistoryWindow) {
        let mut placed = BTreeSet::<Box<str>>::new();
        for row in window.window.shapes.iter() {
            let labels: Vec<Box<str>> = labels(row).collect();
            placed.extend(labels.iter().cloned());
            insert(self.names.entry(row.server).or_default(), labels);
        }
        let all = window.window.apps.iter().filter_map(|row| match &row.subject {
            Subject::App(app) => Some(app.label().into()),
            _ => None,
        });
        insert(&mut self.anywhere, all.filter(|label| !placed.contains(label)));
    }

    /// What a server's connections are compared with.
    pub fn watch(&self, server: Endpoint) -> ApplicationWatch {
        let names = self.names.get(&server).into_iter().flatten().chain(&self.anywhere).cloned();
        let watch = ApplicationWatch::new(names);
        if self.is_complete { watch } else { watch.learning() }
    }
}

/// The applications of a row by shape.
fn labels(row: &Row) -> impl Iterator<Item = Box<str>> {
    let seen = Source::ALL.into_iter().filter_map(|source| row.observed_by(source));
    seen.flat_map(|seen| seen.apps.iter()).map(|(app, _)| app.label().into())
}

/// Adds names as long as there are not too many.
fn insert(names: &mut BTreeSet<Box<str>>, more: impl IntoIterator<Item = Box<str>>) {
    for name in more {
        if names.len() >= MAX_NAMES {
            return;
        }
        names.insert(name);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sonar_core::Application;
    use sonar_core::figures::Share;
    use sonar_core::history::Event;
    use sonar_core::testing::MemoryHistory;

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
        window.observe(CollectorKind::Queries, 1);
        let event = Event::new(at(5), EventKind::NewApplication, local(5), "first connection").about("shop");
        let mut store =
            MemoryHistory { windows: vec![window], events: vec![event], ..MemoryHistory::default() };
        let known = KnownApplications::read(&store, at(50)).unwrap();
        assert!(!new_at_once(&known, local(5), "shop"));
        assert!(new_at_once(&known, local(5), "pricing"));
        assert!(!new_at_once(&known, local(6), "shop"), "it learns: nothing is known of this server");
        store.windows.clear();
        let known = KnownApplications::read(&store, at(50)).unwrap();
        assert!(!new_at_once(&known, local(5), "pricing"), "it learns: only slow operations were seen");
    }

    #[test]
    fn what_has_run_operations_on_a_server_is_not_new_there() {
        let mut window = HistoryWindow::new(at(0), Resolution::Hour);
        window.observe(CollectorKind::Queries, 1);
        let app = |name: &str| Arc::new(Application { name: name.into(), ..Application::default() });
        let row = |subject, server| {
            let mut row = Row::new(subject, sonar_core::Class::User);
            row.server = server;
            row
        };
        for port in [5, 6] {
            let subject = Subject::Shape {
                identity: sonar_core::Identity::Exact,
                shape: Arc::default(),
                order: sonar_core::ShapeId(0),
            };
            let mut row = row(subject, local(port));
            let apps = &mut row.observed_by_mut(Source::Wire).apps;
            apps.add_shared(&app(if port == 5 { "shop" } else { "etl" }), Share::default());
            window.window.shapes.add_owned(row);
        }
        for name in ["shop", "etl", "rare"] {
            window.window.apps.add_owned(row(Subject::App(app(name)), Endpoint::default()));
        }
        let store = MemoryHistory { windows: vec![window], ..MemoryHistory::default() };
        let known = KnownApplications::read(&store, at(50)).unwrap();
        assert!(!new_at_once(&known, local(5), "shop") && new_at_once(&known, local(5), "etl"));
        assert!(!new_at_once(&known, local(6), "etl") && new_at_once(&known, local(6), "shop"));
        assert!(!new_at_once(&known, local(5), "rare"), "it may have been this server");
    }
}
