//! Notices applications that connect for the first time.

use std::collections::BTreeSet;

use super::{Event, EventKind};
use crate::time::NS_PER_S;
use crate::{Application, Endpoint, Timestamp};

/// The most applications that are known.
const MAX_KNOWN: usize = 1_024;
/// Applications that connect within this time of the first one were there before, as far as is known.
const LEARNING_NS: u64 = 60 * NS_PER_S;

/// Knows the applications of a server.
#[derive(Clone, Debug, Default)]
pub struct ApplicationWatch {
    known: BTreeSet<Box<str>>,
    /// Until when all are taken as known.
    learning_until: Option<Timestamp>,
    left_out: u64,
}

impl ApplicationWatch {
    /// Knows these applications, by their labels. Without any, it learns for a minute from the first one on.
    pub fn new(known: impl IntoIterator<Item = Box<str>>) -> Self {
        let known: BTreeSet<_> = known.into_iter().take(MAX_KNOWN).collect();
        let learning_until = (!known.is_empty()).then(Timestamp::default);
        Self { known, learning_until, left_out: 0 }
    }

    /// Learns for a minute even though it knows some: not all that connected before are known.
    pub fn learning(self) -> Self {
        Self { learning_until: None, ..self }
    }

    /// An application connected at `at`; returns an event if it had not connected before.
    pub fn connected(&mut self, at: Timestamp, app: &Application, server: Endpoint) -> Option<Event> {
        let label = app.label();
        if app.joined_late || app.is_own() || self.known.contains(label.as_str()) {
            return None;
        }
        if self.known.len() >= MAX_KNOWN {
            self.left_out += 1;
            return None;
        }
        self.known.insert(label.as_str().into());
        if at < *self.learning_until.get_or_insert(at.plus_ns(LEARNING_NS)) {
            return None;
        }
        let driver = match (&*app.driver, &*app.driver_version) {
            ("", _) => "an unknown driver".to_owned(),
            (driver, version) => format!("{driver} {version}"),
        };
        let text = format!("first connection, by {}", driver.trim_end());
        Some(Event::new(at, EventKind::NewApplication, server, &text).about(&label))
    }

    /// Applications that were not watched because there are too many.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Endpoint = Endpoint::v4([0; 4], 27_017);

    fn app(name: &str) -> Application {
        Application {
            name: name.into(),
            driver: "PyMongo".into(),
            driver_version: "4.7.3".into(),
            ..Application::default()
        }
    }

    fn at(second: u64) -> Timestamp {
        Timestamp::from_unix(1_795_296_000 + second, 0)
    }

    #[test]
    fn an_application_is_new_once() {
        let mut watch = ApplicationWatch::new(["shop-api".into()]);
        assert_eq!(watch.connected(at(0), &app("shop-api"), SERVER), None);
        let event = watch.connected(at(1), &app("pricing"), SERVER).unwrap();
        assert_eq!((event.at, event.kind, &*event.subject), (at(1), EventKind::NewApplication, "pricing"));
        assert_eq!(&*event.text, "first connection, by PyMongo 4.7.3");
        assert_eq!(watch.connected(at(2), &app("pricing"), SERVER), None);
        let unnamed = Application { driver: "nodejs".into(), ..Application::default() };
        assert_eq!(&*watch.connected(at(3), &unnamed, SERVER).unwrap().subject, "(nodejs)");
        assert_eq!(watch.connected(at(4), &Application::joined_late(), SERVER), None);
        assert_eq!(watch.connected(at(5), &app(Application::OWN), SERVER), None);
    }

    #[test]
    fn without_any_known_it_learns_for_a_minute() {
        let mut watch = ApplicationWatch::default();
        for (second, name, is_new) in [(0, "a", false), (59, "b", false), (60, "c", true), (300, "a", false)]
        {
            assert_eq!(watch.connected(at(second), &app(name), SERVER).is_some(), is_new, "{name}");
        }
    }

    #[test]
    fn with_some_known_it_can_learn_the_others() {
        let mut watch = ApplicationWatch::new(["b".into()]).learning();
        for (second, name, is_new) in [(0, "a", false), (60, "c", true), (70, "b", false), (80, "a", false)] {
            assert_eq!(watch.connected(at(second), &app(name), SERVER).is_some(), is_new, "{name}");
        }
    }

    #[test]
    fn names_made_up_by_a_client_are_bounded() {
        let mut watch = ApplicationWatch::new(["a".into()]);
        let events =
            (0..5_000).filter_map(|n| watch.connected(at(n), &app(&format!("x{n}")), SERVER)).count();
        assert_eq!(
            (events, watch.known.len(), watch.left_out()),
            (MAX_KNOWN - 1, MAX_KNOWN, 5_001 - MAX_KNOWN as u64)
        );
    }
}
