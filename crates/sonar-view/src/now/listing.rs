//! Joins what the sources list.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sonar_core::running::RequestKey;
use sonar_core::time_split::ThreadActivity;
use sonar_core::{CurrentOperation, Endpoint, RunningOperation, RunningOperations, Timestamp};
use ts_rs::TS;

use super::operation::{MAX_OPERATIONS, NowBlocker, NowOperation};

/// That requests are missing.
const PARTIAL: &str =
    "the capture did not answer in time: requests without a reply are missing from this list";

/// Operations that run, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
pub struct NowSnapshot {
    /// When, in nanoseconds since 1970.
    pub at_ns: u64,
    /// The operations, the oldest first.
    pub operations: Vec<NowOperation>,
    /// Younger ones that were left out because there are too many.
    pub left_out: u64,
    /// Operations that wait on purpose, as change streams do, and that are not listed.
    pub waiting: u64,
    /// What is missing, a sentence each: servers that did not say what they work on, requests that were not listed in time.
    pub problems: Vec<String>,
}

/// What a thread of a server does for an operation.
#[derive(Clone, Debug)]
pub struct SeenThread {
    /// What it does.
    pub activity: ThreadActivity,
    /// The operation that ended its longest earlier wait, if the thread of that still executes it.
    pub blocker: Option<RequestKey>,
}

/// What a server says that it works on.
#[derive(Clone, Debug, Default)]
pub struct ServerOperations {
    /// The operations, without those that wait on purpose.
    pub operations: Vec<NowOperation>,
    /// Further ones that were left out.
    pub left_out: u64,
    /// Why it did not say it, if it did not.
    pub problem: Option<String>,
}

/// What the sources list, before it is joined.
#[derive(Debug, Default)]
pub struct NowListing {
    /// When.
    pub at: Timestamp,
    /// Requests without a reply; `None` if none are captured.
    pub wire: Option<RunningOperations>,
    /// Whether the capture did not list all of them in time.
    pub is_partial: bool,
    /// What threads do.
    pub threads: Option<Arc<HashMap<RequestKey, SeenThread>>>,
    /// What servers say.
    pub servers: Vec<Arc<ServerOperations>>,
}

impl ServerOperations {
    /// What a server with this name says; those of its operations that run longest, at most `most`.
    pub fn new(server: Endpoint, said: &[CurrentOperation], most: usize) -> Self {
        let mut operations: Vec<_> =
            said.iter().filter_map(|one| NowOperation::of_current(one, server)).collect();
        operations.sort_by_key(|one| Reverse(one.running_ns));
        let left_out = operations.len().saturating_sub(most) as u64;
        operations.truncate(most);
        Self { operations, left_out, problem: None }
    }
}

impl NowListing {
    /// All of it as one list, whose servers are named by `name_of`.
    pub fn snapshot(self, name_of: &dyn Fn(Endpoint) -> Endpoint) -> NowSnapshot {
        let Self { at, wire, is_partial, threads, servers } = self;
        let RunningOperations { operations: wire, mut left_out, waiting } = wire.unwrap_or_default();
        let by_key: HashMap<RequestKey, &RunningOperation> =
            wire.iter().map(|one| (one.key(), one)).collect();
        // One operation at a time is executed for a connection.
        let mut said: HashMap<(String, String), NowOperation> = HashMap::new();
        let mut others = Vec::new();
        let mut problems: Vec<String> = is_partial.then(|| PARTIAL.to_owned()).into_iter().collect();
        for server in servers {
            left_out += server.left_out;
            problems.extend(server.problem.clone());
            for one in &server.operations {
                match one.client.clone() {
                    Some(client) => others.extend(said.insert((one.server.clone(), client), one.clone())),
                    None => others.push(one.clone()),
                }
            }
        }
        let mut operations: Vec<NowOperation> = Vec::with_capacity(wire.len());
        for one in &wire {
            let mut shown = NowOperation::of_wire(one, name_of(one.server), at);
            if let Some(client) = shown.client.clone()
                && let Some(said) = said.remove(&(shown.server.clone(), client))
            {
                shown.add_current(said);
            }
            if let Some(seen) = threads.as_ref().and_then(|threads| threads.get(&one.key())) {
                let SeenThread { activity, blocker } = seen;
                let runs = blocker.and_then(|key| by_key.get(&key).copied());
                shown.add_thread(activity, blocker_of(activity, runs));
            }
            operations.push(shown);
        }
        operations.extend(said.into_values());
        operations.extend(others);
        // Of those of the same age the order is that of their clients, so that rows do not change places.
        operations.sort_by(|one, other| {
            other.running_ns.cmp(&one.running_ns).then_with(|| one.client.cmp(&other.client))
        });
        left_out += operations.len().saturating_sub(MAX_OPERATIONS) as u64;
        operations.truncate(MAX_OPERATIONS);
        NowSnapshot { at_ns: at.unix_ns(), operations, left_out, waiting, problems }
    }
}

/// Who ended the longest earlier wait of a thread; `runs` is what it executed then, if that still runs.
fn blocker_of(activity: &ThreadActivity, runs: Option<&RunningOperation>) -> Option<NowBlocker> {
    let blocker = activity.blocker.as_ref()?;
    let name = blocker.thread_name.clone().unwrap_or_else(|| format!("thread {}", blocker.thread));
    Some(NowBlocker::new(&name, blocker.wait_ns, runs))
}

#[cfg(test)]
mod tests {
    use sonar_core::time_split::{EarlierBlocker, TimePart};
    use sonar_core::{Application, Class, CurrentWait, Identity, Role, ShapeId, ShapeInfo};

    use super::*;

    const SERVER: Endpoint = Endpoint::v4([10, 0, 0, 1], 27_017);
    const NAME: Endpoint = Endpoint::v4([0; 4], 27_017);

    fn at(second: u64) -> Timestamp {
        Timestamp::from_unix(1_000 + second, 0)
    }

    fn client(port: u16) -> Endpoint {
        Endpoint::v4([10, 0, 0, 9], port)
    }

    fn running(port: u16, start: u64, command: &str) -> RunningOperation {
        let shape = ShapeInfo {
            id: ShapeId(u64::from(port)),
            command: command.into(),
            database: "shop".into(),
            collection: "orders".into(),
            typed: "{filter: {city: ?string}}".into(),
            ..ShapeInfo::default()
        };
        RunningOperation {
            server: SERVER,
            client: client(port),
            request_id: 7,
            role: Role::Served,
            class: Class::User,
            command: command.into(),
            shape: Arc::new(shape),
            app: Arc::new(Application { name: "etl".into(), ..Application::default() }),
            start: at(start),
        }
    }

    fn current(client: &str, age_us: u64, thread: &str) -> CurrentOperation {
        CurrentOperation {
            shape: Arc::new(ShapeInfo { command: "createIndexes".into(), ..ShapeInfo::default() }),
            identity: Identity::Exact,
            class: Class::User,
            command: "createIndexes".into(),
            age_us: Some(age_us),
            at: Some(at(60)),
            id: "4711".into(),
            thread: thread.into(),
            client: client.into(),
            app: "admin".into(),
            plan: "IXSCAN { city: 1 }".into(),
            yields: Some(3),
            lock_wait_us: Some(2_000),
            waits: vec![CurrentWait::Lock],
            progress: Some((1, 4)),
            is_killed: false,
            awaits_topology: false,
        }
    }

    fn thread(doing: TimePart, blocker: Option<EarlierBlocker>) -> ThreadActivity {
        ThreadActivity {
            thread_name: "conn5".to_owned(),
            doing,
            since: at(50),
            doing_ns: 10_000_000_000,
            class: None,
            file: None,
            blocker,
        }
    }

    fn snapshot(listing: NowListing) -> NowSnapshot {
        NowListing { at: at(60), ..listing }.snapshot(&|server| if server == SERVER { NAME } else { server })
    }

    #[test]
    fn what_sources_say_of_one_operation_stands_in_one_row_the_oldest_first() {
        let wire = RunningOperations {
            operations: vec![running(1, 10, "update"), running(2, 40, "find")],
            left_out: 3,
            waiting: 4,
        };
        let held = EarlierBlocker { thread: 99, thread_name: Some("conn1".to_owned()), wait_ns: 5_000 };
        let seen = SeenThread {
            activity: thread(TimePart::Futex, Some(held)),
            blocker: Some(running(1, 10, "update").key()),
        };
        let threads = HashMap::from([(running(2, 40, "find").key(), seen)]);
        let said = [current("10.0.0.9:2", 20_000_000, "conn2"), current("", 3_600_000_000, "IndexBuild")];
        let servers = vec![Arc::new(ServerOperations::new(NAME, &said, 10))];
        let found = snapshot(NowListing {
            wire: Some(wire),
            threads: Some(Arc::new(threads)),
            servers,
            ..Default::default()
        });
        let rows: Vec<_> = found
            .operations
            .iter()
            .map(|one| (&*one.command, one.running_ns.unwrap_or(0) / 1_000_000_000, one.sources.join("+")))
            .collect();
        let expected = [
            ("createIndexes", 3_600, "status".to_owned()),
            ("update", 50, "queries".to_owned()),
            ("find", 20, "queries+status+split".to_owned()),
        ];
        assert_eq!(rows, expected);
        let find = &found.operations[2];
        assert_eq!((&*find.server, find.client.as_deref()), ("27017", Some("10.0.0.9:2")));
        assert_eq!(
            (&*find.app, &*find.namespace, find.started_ns),
            ("etl", "shop.orders", Some(at(40).unix_ns()))
        );
        assert_eq!(find.waits, ["a lock"]);
        assert_eq!((find.opid.as_deref(), find.thread_name.as_deref()), (Some("4711"), Some("conn5")));
        assert_eq!((find.lock_wait_ns, find.yields, find.done), (Some(2_000_000), Some(3), Some(0.25)));
        let seen = find.thread.as_ref().expect("its thread was seen");
        assert_eq!((&*seen.doing, seen.doing_ns), ("futex", 10_000_000_000));
        let blocker = seen.blocker.as_ref().expect("another one ended a wait");
        assert_eq!((&*blocker.thread, blocker.wait_ns), ("conn1", 5_000));
        assert_eq!(blocker.runs.as_deref(), Some("update shop.orders"));
        assert_eq!(blocker.client.as_deref(), Some("10.0.0.9:1"));
        let build = &found.operations[0];
        assert_eq!((&build.client, build.thread_name.as_deref()), (&None, Some("IndexBuild")));
        assert_eq!((found.left_out, found.waiting, found.at_ns), (3, 4, at(60).unix_ns()));
    }

    #[test]
    fn what_waits_on_purpose_and_what_mongosonar_asks_is_not_listed() {
        let mut hello = current("10.0.0.9:3", 1, "conn3");
        hello.awaits_topology = true;
        let stream = CurrentOperation { class: Class::Waiting, ..current("10.0.0.9:4", 1, "conn4") };
        let own = CurrentOperation { app: Application::OWN.into(), ..current("10.0.0.9:5", 1, "conn5") };
        let shown = current("10.0.0.9:6", 1, "conn6");
        let listed = ServerOperations::new(NAME, &[hello, stream, own, shown], 10);
        assert_eq!((listed.operations.len(), listed.left_out), (1, 0));
        let unknown = CurrentOperation { identity: Identity::Unknown, ..current("10.0.0.9:6", 1, "conn6") };
        let listed = ServerOperations::new(NAME, &[unknown], 10);
        assert_eq!((&listed.operations[0].shape_id, &*listed.operations[0].typed), (&None, ""));
    }

    #[test]
    fn a_list_is_bounded_and_says_what_it_leaves_out() {
        let operations: Vec<_> =
            (1..=MAX_OPERATIONS as u16 + 20).map(|port| running(port, 1, "find")).collect();
        let wire = RunningOperations { operations, ..RunningOperations::default() };
        let many: Vec<_> = (0..40).map(|number| current("", number, "x")).collect();
        let mut servers = vec![Arc::new(ServerOperations::new(NAME, &many, 30))];
        let problem = Some("27018: not authorized".to_owned());
        servers.push(Arc::new(ServerOperations { problem, ..ServerOperations::default() }));
        let found =
            snapshot(NowListing { wire: Some(wire), is_partial: true, servers, ..NowListing::default() });
        assert_eq!((found.operations.len(), found.left_out), (MAX_OPERATIONS, 20 + 10 + 30));
        assert_eq!(found.problems, [PARTIAL, "27018: not authorized"]);
        assert_eq!(snapshot(NowListing::default()).operations, []);
    }

    #[test]
    fn an_operation_takes_no_more_than_it_may() {
        let long = |letter: &str| letter.repeat(5_000);
        let mut one = current("10.0.0.9:6", 1, &long("t"));
        (one.app, one.plan, one.id) = (long("a").into(), long("p").into(), long("i").into());
        (one.command, one.client) = (long("c").into(), long("k").into());
        one.waits = vec![CurrentWait::Latch(long("l").into()); 9];
        let shape = ShapeInfo {
            database: long("d").into(),
            collection: long("e").into(),
            typed: long("s").into(),
            ..ShapeInfo::default()
        };
        one.shape = Arc::new(shape);
        let shown = NowOperation::of_current(&one, NAME).expect("it is shown");
        let bytes = shown.memory();
        assert!(bytes <= NowOperation::MAX_BYTES, "{bytes} of {}", NowOperation::MAX_BYTES);
        assert!(bytes > NowOperation::MAX_BYTES / 3, "{bytes}");
        assert_eq!(shown.waits.len(), 4);
    }
}
