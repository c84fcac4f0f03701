//! Collects the events of a log, in order.

use std::collections::BTreeMap;

use sonar_core::history::{ApplicationWatch, ConnectionStorms, Event, EventKind, changed_settings};
use sonar_core::log_notices::{Message, Severity};
use sonar_core::time::NS_PER_S;
use sonar_core::{Application, Endpoint, Timestamp};

use super::events::LineEvent;

/// The most events that wait to be taken.
const MAX_EVENTS: usize = 2_000;
/// How many of the latest events are searched for an equal one.
const RECENT: usize = 64;
/// Equal events of one span of this width are one, with a count.
const WIDTH_NS: u64 = 10 * NS_PER_S;
/// Two lines about the same within this time are about one event.
const SAME_NS: u64 = 2 * NS_PER_S;
/// Lines about a start follow each other within this time.
const START_NS: u64 = 5 * NS_PER_S;
/// The most index builds that are remembered until they end.
const MAX_BUILDS: usize = 256;

/// Collects the events of the log of one server.
#[derive(Debug)]
pub(super) struct EventLog {
    server: Endpoint,
    events: Vec<Event>,
    left_out: u64,
    storms: ConnectionStorms,
    applications: ApplicationWatch,
    /// Index builds that go on: the key of each, its namespace and index.
    builds: Vec<(u64, Box<str>, Box<str>)>,
    /// When the last start was noted.
    started: Option<Timestamp>,
    /// When the server began to shut down, as it last logged.
    shutdown: Option<Timestamp>,
    /// The settings of the last start, as far as the log has it.
    options: BTreeMap<String, String>,
    /// The version that the server last named, and when.
    version: Option<(Timestamp, Box<str>)>,
}

impl EventLog {
    /// Collects the events of this server.
    pub fn new(server: Endpoint, applications: ApplicationWatch) -> Self {
        Self {
            server,
            events: Vec::new(),
            left_out: 0,
            storms: ConnectionStorms::default(),
            applications,
            builds: Vec::new(),
            started: None,
            shutdown: None,
            options: BTreeMap::new(),
            version: None,
        }
    }

    /// The events since the last call, and how many were left out because they were too many.
    pub fn take(&mut self) -> (Vec<Event>, u64) {
        (std::mem::take(&mut self.events), std::mem::take(&mut self.left_out))
    }

    /// When the server began to shut down, if it has logged that since the last call.
    pub fn take_shutdown(&mut self) -> Option<Timestamp> {
        self.shutdown.take()
    }

    /// The settings of the last start; empty if they are not known.
    pub fn settings(&self) -> &BTreeMap<String, String> {
        &self.options
    }

    /// The settings of the last start were these, as an earlier reader of the same log knows.
    pub fn knows_settings(&mut self, settings: BTreeMap<String, String>) {
        self.options = settings;
    }

    /// The server named its version.
    pub fn version(&mut self, at: Timestamp, version: &str) {
        self.version = Some((at, version.into()));
    }

    /// The version that the server named since the last call, and when.
    pub fn take_version(&mut self) -> Option<(Timestamp, Box<str>)> {
        self.version.take()
    }

    /// Time has come to `at`.
    pub fn advance(&mut self, at: Timestamp) {
        let storm = self.storms.advance(at, self.server);
        self.events.extend(storm);
    }

    /// Nothing follows.
    pub fn finish(&mut self) {
        self.events.extend(self.storms.finish(self.server));
    }

    /// A connection was accepted.
    pub fn accepted(&mut self, at: Timestamp) {
        let storm = self.storms.accept(at, self.server);
        self.events.extend(storm);
    }

    /// A client said which application it is.
    pub fn client(&mut self, at: Timestamp, app: &Application) {
        if let Some(event) = self.applications.connected(at, app, self.server) {
            self.push(event);
        }
    }

    /// The server started, as its process id or its version says.
    pub fn started(&mut self, at: Timestamp, pid: Option<u32>, version: &str) {
        let is_same = self.started.is_some_and(|start| at >= start && at.since(start) <= START_NS);
        let known = self.events.iter_mut().rev().find(|event| event.kind == EventKind::ServerStart);
        let detail = match (pid, version) {
            (Some(pid), _) => format!("process {pid}"),
            (None, "") => String::new(),
            (None, version) => format!("version {version}"),
        };
        match known {
            Some(event) if is_same => {
                if !detail.is_empty() && !event.text.contains(&detail) {
                    let text = format!("{}, {detail}", event.text);
                    *event = Event::new(event.at, EventKind::ServerStart, event.server, &text);
                }
            }
            _ if is_same => {}
            _ => {
                self.started = Some(at);
                self.builds.clear();
                let text = format!("started, {detail}");
                let text = text.trim_end_matches(", ");
                self.push(Event::new(at, EventKind::ServerStart, self.server, text));
            }
        }
    }

    /// A line of severity E or F.
    pub fn message(&mut self, at: Timestamp, message: &Message) {
        let kind = match message.severity {
            Severity::Fatal => EventKind::LogFatal,
            Severity::Error => EventKind::LogError,
            Severity::Warning => return,
        };
        self.push(Event::new(at, kind, self.server, &message.text).about(&message.component));
    }

    /// A line says that something happened.
    pub fn line(&mut self, at: Timestamp, event: &LineEvent) {
        if event.is_begin_of_shutdown() {
            self.shutdown = Some(at);
            return;
        }
        if let Some(options) = &event.options {
            let changed = changed_settings(&self.options, options);
            if !options.is_empty() {
                self.options.clone_from(options);
            }
            if let Some(changed) = changed {
                self.push(Event::settings_of_start(at, self.server, &changed));
            }
            return;
        }
        let mut event = event.clone();
        match event.kind {
            EventKind::IndexBuildBegin => self.build_began(&event),
            EventKind::IndexBuildEnd => self.name_build(&mut event),
            EventKind::CollectionDrop => {
                // Its indexes are dropped with it; a server logs them first.
                let is_part = |known: &Event| {
                    known.kind == EventKind::IndexDrop
                        && known.subject == event.subject
                        && at.since(known.at) <= SAME_NS
                };
                self.events.retain(|known| !is_part(known));
                if self.is_repeated(at, &event) {
                    return;
                }
            }
            // The command and the storage engine log the same.
            EventKind::IndexDrop | EventKind::ServerStop if self.is_repeated(at, &event) => return,
            _ => {}
        }
        self.push(Event::new(at, event.kind, self.server, &event.text).about(&event.subject));
    }

    fn build_began(&mut self, event: &LineEvent) {
        let Some(step) = &event.build else { return };
        self.builds.retain(|(key, ..)| *key != step.key);
        if self.builds.len() >= MAX_BUILDS {
            self.builds.remove(0);
        }
        self.builds.push((step.key, event.subject.clone(), step.index.clone()));
    }

    /// Gives the end of a build the name and the index that its beginning had.
    fn name_build(&mut self, event: &mut LineEvent) {
        let Some(step) = &event.build else { return };
        let Some(at) = self.builds.iter().position(|(key, ..)| *key == step.key) else { return };
        let (_, namespace, index) = self.builds.remove(at);
        if event.subject.is_empty() {
            event.subject = namespace;
        }
        if step.index.is_empty() && !index.is_empty() {
            event.text = event
                .text
                .replacen("the build failed", &format!("the build of index {index} failed"), 1)
                .replacen("an index was built", &format!("index {index} was built"), 1)
                .into();
        }
    }

    /// Whether the same was noted just before.
    fn is_repeated(&self, at: Timestamp, event: &LineEvent) -> bool {
        // Old servers write one line when they begin to shut down, and one with the exit code.
        let is_stop = |text: &str| text.starts_with("shut down");
        self.events.iter().rev().take(RECENT).any(|known| {
            known.kind == event.kind
                && known.subject == event.subject
                && (known.text == event.text || is_stop(&known.text) && is_stop(&event.text))
                && at.since(known.at) <= SAME_NS
        })
    }

    fn push(&mut self, event: Event) {
        let window = event.at.floor_to(WIDTH_NS);
        let is_full = self.events.len() >= MAX_EVENTS;
        let equal = self.events.iter_mut().rev().take(RECENT).find(|known| {
            known.kind == event.kind
                && known.subject == event.subject
                && known.text == event.text
                && known.at.floor_to(WIDTH_NS) == window
        });
        match equal {
            Some(known) => known.count += 1,
            None if is_full => self.left_out += 1,
            None => self.events.push(event),
        }
    }
}
