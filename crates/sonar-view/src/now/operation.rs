//! One operation that runs.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use sonar_core::history::CollectorKind;
use sonar_core::time_split::ThreadActivity;
use sonar_core::{
    Application, Class, CurrentOperation, Endpoint, Identity, Role, RunningOperation, ShapeInfo, Timestamp,
    words,
};
use ts_rs::TS;

use crate::current_op;
use crate::kit::server_name;
use crate::shown_part::ShownPart;

/// The most operations that are listed: the oldest.
pub const MAX_OPERATIONS: usize = 500;
/// The most bytes of the text of a shape; the view of the shape has all of it.
const MAX_TEXT: usize = 400;
/// The most bytes of names, and of a plan.
const MAX_NAME: usize = 100;
/// The most waits of an operation: a lock, a latch, flow control and a queue.
const MAX_WAITS: usize = 4;

/// An operation that has not ended. Unknown figures are null; texts that are too long are cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct NowOperation {
    /// Sources of the agent that show it: `queries`, `split`, `status`.
    pub sources: Vec<String>,
    /// The server: its port, or its address with the port where the port alone is not its name.
    pub server: String,
    /// Address and port of the client; null for an operation of the server itself.
    pub client: Option<String>,
    /// The application, in words.
    pub app: String,
    /// Whether a client sent it (`served`), or another server (`issued`).
    pub role: String,
    /// Its purpose: `user`, `internal`, `monitoring` or `replication`.
    pub class: String,
    /// The command.
    pub command: String,
    /// Database and collection.
    pub namespace: String,
    /// The id of its shape; null if the source does not have the whole command.
    pub shape_id: Option<String>,
    /// The text of its shape, with typed placeholders.
    pub typed: String,
    /// When it began, in nanoseconds since 1970.
    pub started_ns: Option<u64>,
    /// For how long it has been running, in nanoseconds.
    pub running_ns: Option<u64>,
    /// The thread of the server that executes it, like `conn42`.
    pub thread_name: Option<String>,
    /// What the server says that it waits for, in words.
    pub waits: Vec<String>,
    /// What its thread does.
    pub thread: Option<NowThread>,
    /// Its number, as `killOp` takes it.
    pub opid: Option<String>,
    /// Plan summary.
    pub plan: Option<String>,
    /// How long it has waited for locks so far, in nanoseconds.
    pub lock_wait_ns: Option<u64>,
    /// How often it has yielded.
    pub yields: Option<u64>,
    /// How much of its work it has done, 0 to 1 (index builds).
    pub done: Option<f64>,
    /// It was killed, and has not noticed that yet.
    pub is_killed: bool,
}

/// What the thread of an operation did when it was looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct NowThread {
    /// The part of its time, as in `mongosonar why`: `cpu`, `futex`, `file_read` …
    pub doing: String,
    /// The same in words.
    pub words: String,
    /// For how long, in nanoseconds.
    pub doing_ns: u64,
    /// The class of the wait, as in `mongosonar stacks`; null if its stack was not taken.
    pub class: Option<String>,
    /// The file for which it has waited longest; null if it does not read one.
    pub file: Option<String>,
    /// Who ended its longest earlier wait; null if there was none.
    pub blocker: Option<NowBlocker>,
}

/// The thread that ended the longest earlier wait of an operation: it held what was waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct NowBlocker {
    /// The name of the thread, or its number.
    pub thread: String,
    /// How long the operation had waited until then, in nanoseconds.
    pub wait_ns: u64,
    /// Command and namespace of the operation that it executed then, if that still runs; null if not.
    pub runs: Option<String>,
    /// The client of that operation.
    pub client: Option<String>,
    /// The id of its shape.
    pub shape_id: Option<String>,
}

/// A text of at most so many bytes; an ellipsis stands for the rest.
fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    format!("{}…", words::cut(text, most.saturating_sub('…'.len_utf8())))
}

fn length(text: &Option<String>) -> usize {
    text.as_ref().map_or(0, String::len)
}

fn named(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| shortened(text, MAX_NAME))
}

/// Address and port in one form, whichever the source has.
fn client_name(text: &str) -> Option<String> {
    let address = text.parse::<SocketAddr>().map(|address| Endpoint::from(address).to_string());
    address.ok().or_else(|| named(text))
}

impl NowOperation {
    /// The most bytes that one takes.
    pub const MAX_BYTES: usize = size_of::<Self>()
        + MAX_TEXT
        + (20 + MAX_WAITS) * MAX_NAME
        + (3 + MAX_WAITS) * size_of::<String>()
        + 3 * 16;

    /// The bytes that it takes.
    pub fn memory(&self) -> usize {
        let Self { sources, waits, thread, .. } = self;
        let texts =
            [&self.server, &self.app, &self.role, &self.class, &self.command, &self.namespace, &self.typed];
        let names = [&self.client, &self.shape_id, &self.thread_name, &self.opid, &self.plan];
        let of_thread = thread.as_ref().map_or(0, |thread| {
            let blocker = thread.blocker.as_ref();
            let of_blocker =
                blocker.map_or(0, |one| one.thread.len() + length(&one.runs) + length(&one.client));
            thread.doing.len()
                + thread.words.len()
                + length(&thread.class)
                + length(&thread.file)
                + of_blocker
        });
        size_of::<Self>()
            + texts.iter().map(|text| text.len()).sum::<usize>()
            + names.iter().map(|name| length(name)).sum::<usize>()
            + sources.iter().chain(waits).map(|text| size_of::<String>() + text.len()).sum::<usize>()
            + of_thread
    }

    /// A request without a reply yet, at this time; `server` is the name of its server.
    pub fn of_wire(one: &RunningOperation, server: Endpoint, at: Timestamp) -> Self {
        let app = shortened(&one.app.label(), MAX_NAME);
        Self {
            sources: vec![CollectorKind::Queries.name().to_owned()],
            client: Some(one.client.to_string()),
            role: one.role.name().to_owned(),
            class: one.class.name().to_owned(),
            command: shortened(&one.command, MAX_NAME),
            app,
            shape_id: Some(one.shape.id.to_string()),
            started_ns: Some(one.start.unix_ns()),
            running_ns: Some(at.since(one.start)),
            ..Self::of_shape(&one.shape, server)
        }
    }

    /// What a server with this name says of an operation; `None` of those that wait on purpose, and of those of mongosonar
    /// itself.
    pub fn of_current(one: &CurrentOperation, server: Endpoint) -> Option<Self> {
        if one.awaits_topology || one.class == Class::Waiting || *one.app == *Application::OWN {
            return None;
        }
        let running_ns = one.age_us.map(|us| us.saturating_mul(1_000));
        let started = one.at.zip(running_ns).map(|(at, ns)| at.unix_ns().saturating_sub(ns));
        let is_known = matches!(one.identity, Identity::Exact | Identity::Partial);
        let of_shape = Self::of_shape(&one.shape, server);
        Some(Self {
            sources: vec![CollectorKind::Status.name().to_owned()],
            client: client_name(&one.client),
            app: shortened(&one.app, MAX_NAME),
            role: Role::Served.name().to_owned(),
            class: one.class.name().to_owned(),
            command: shortened(&one.command, MAX_NAME),
            shape_id: (one.identity == Identity::Exact).then(|| one.shape.id.to_string()),
            typed: if is_known { of_shape.typed.clone() } else { String::new() },
            started_ns: started,
            running_ns,
            thread_name: named(&one.thread),
            waits: one
                .waits
                .iter()
                .take(MAX_WAITS)
                .map(|wait| shortened(&current_op::wait(wait), MAX_NAME))
                .collect(),
            opid: named(&one.id),
            plan: named(&one.plan),
            lock_wait_ns: one.lock_wait_us.map(|us| us.saturating_mul(1_000)),
            yields: one.yields,
            done: one.progress.map(|(done, total)| done as f64 / total.max(1) as f64),
            is_killed: one.is_killed,
            ..of_shape
        })
    }

    fn of_shape(shape: &ShapeInfo, server: Endpoint) -> Self {
        Self {
            sources: Vec::new(),
            server: server_name(server),
            client: None,
            app: String::new(),
            role: String::new(),
            class: String::new(),
            command: String::new(),
            namespace: shortened(&shape.namespace(), 2 * MAX_NAME),
            shape_id: None,
            typed: shortened(&shape.typed, MAX_TEXT),
            started_ns: None,
            running_ns: None,
            thread_name: None,
            waits: Vec::new(),
            thread: None,
            opid: None,
            plan: None,
            lock_wait_ns: None,
            yields: None,
            done: None,
            is_killed: false,
        }
    }

    /// Adds what the server says of the same operation.
    pub(super) fn add_current(&mut self, said: Self) {
        let Self { sources, thread_name, waits, opid, plan, lock_wait_ns, yields, done, is_killed, .. } =
            said;
        self.sources.extend(sources);
        self.thread_name = thread_name;
        (self.waits, self.opid, self.plan) = (waits, opid, plan);
        (self.lock_wait_ns, self.yields, self.done, self.is_killed) = (lock_wait_ns, yields, done, is_killed);
    }

    /// Adds what its thread does.
    pub(super) fn add_thread(&mut self, activity: &ThreadActivity, blocker: Option<NowBlocker>) {
        let part = ShownPart::Measured(activity.doing);
        self.sources.push(CollectorKind::Split.name().to_owned());
        self.thread_name = named(&activity.thread_name).or_else(|| self.thread_name.take());
        self.thread = Some(NowThread {
            doing: part.name().to_owned(),
            words: part.words().to_owned(),
            doing_ns: activity.doing_ns,
            class: activity.class.as_deref().and_then(named),
            file: activity.file.as_deref().and_then(named),
            blocker,
        });
    }
}

impl NowBlocker {
    /// The thread of this name, which ended a wait of so many nanoseconds; `runs` is what it executed then and still does.
    pub(super) fn new(thread: &str, wait_ns: u64, runs: Option<&RunningOperation>) -> Self {
        Self {
            thread: shortened(thread, MAX_NAME),
            wait_ns,
            runs: runs.map(|one| shortened(&format!("{} {}", one.command, one.shape.namespace()), MAX_NAME)),
            client: runs.map(|one| one.client.to_string()),
            shape_id: runs.map(|one| one.shape.id.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_letters() {
        assert_eq!(shortened("short", 5), "short");
        let long = "ü".repeat(300);
        let text = shortened(&long, MAX_TEXT);
        assert!(text.len() <= MAX_TEXT && text.ends_with("ü…"), "{}", text.len());
        assert_eq!(shortened("abcdef", 4), "a…");
    }

    #[test]
    fn a_client_has_one_name_whichever_source_shows_it() {
        assert_eq!(client_name("10.0.0.9:51234").as_deref(), Some("10.0.0.9:51234"));
        let v6 = client_name("[::1]:5");
        assert_eq!(
            v6,
            Some(Endpoint::from("[::1]:5".parse::<SocketAddr>().expect("an address")).to_string())
        );
        assert_eq!(client_name("").as_deref(), None);
        assert_eq!(client_name("unix socket").as_deref(), Some("unix socket"));
    }
}
