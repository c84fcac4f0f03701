//! The rows of `why`: the operations that were asked for, with what the server's log and profiler say of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use sonar_core::time_split::{
    Activity, ClassifiedWait, ConnectionSample, JoinedOperation, ServerJoinCounts, ServerJoined,
    ServerJoiner, ServerOperation, ShapeOrigin, ShapeSplit, SplitResult, SplitRowKey, SplitTable,
    ThreadOperation, TracedOperation, WireOperation,
};
use sonar_core::{Application, Class, Endpoint, Role, ShapeId, ShapeInfo, Source, Timestamp};
use sonar_view::why::role_of;

use super::args::WhyArgs;
use crate::args::when::now;
use crate::capture::splitting::SplitSink;

/// The most names of threads without a shape.
const MAX_ROLES: usize = 64;
/// The most databases whose names are kept: one more than the profilers that are asked for.
const MAX_DATABASES: usize = 65;

/// Collects the operations that were asked for.
#[derive(Default)]
pub struct SelectedRows {
    table: SplitTable,
    activity: Activity,
    /// Which operations were asked for.
    pub asked: AskedOperations,
    /// Waits for the log and the profiler, if they are read.
    joiner: Option<ServerJoiner<SplitOperation>>,
    unseen: UnseenRows,
    databases: BTreeSet<Box<str>>,
    /// Whether there was an operation that was not on the wire.
    has_unseen: bool,
    /// Only some connections are followed.
    is_sample: bool,
}

/// An operation of a thread that waits for what the server says of it.
enum SplitOperation {
    /// It is in this row.
    Seen(SplitRowKey),
    /// It was not on the wire.
    Unseen(Box<(ThreadOperation, Vec<ClassifiedWait>)>),
}

impl SplitOperation {
    fn is_in_row_of(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Seen(row), Self::Seen(another)) if row == another)
    }
}

/// All rows, at the end.
pub struct WhyRows {
    /// Those with a shape.
    pub rows: Vec<ShapeSplit>,
    /// Those without one.
    pub unseen: Vec<ShapeSplit>,
    /// The operations of `rows` over time.
    pub activity: Activity,
    /// Waits whose blocker was not kept.
    pub blockers_turned_away: u64,
    /// What was joined with the log.
    pub log: ServerJoinCounts,
    /// What was joined with the profile.
    pub profile: ServerJoinCounts,
}

impl SelectedRows {
    /// From now on. `is_joined`: the log or the profiler is read.
    pub fn new(args: &WhyArgs, sample: ConnectionSample, is_joined: bool) -> Self {
        Self {
            activity: Activity::since(now()),
            asked: AskedOperations::from(args),
            joiner: is_joined.then(ServerJoiner::default),
            is_sample: sample.is_partial(),
            ..Self::default()
        }
    }

    /// The databases whose profile may describe an operation that was asked for; empty for all.
    pub fn databases(&self) -> Vec<String> {
        match self.asked.database() {
            Some(database) => vec![database.to_owned()],
            None if self.has_unseen => Vec::new(),
            None => self.databases.iter().map(|name| name.to_string()).collect(),
        }
    }

    /// What a log or a profile says of an operation.
    pub fn server(&mut self, operation: ServerOperation) {
        if let Some(joiner) = &mut self.joiner {
            joiner.server(operation);
        }
    }

    fn wait(&mut self, traced: TracedOperation, what: SplitOperation) {
        let Some(joiner) = &mut self.joiner else { return self.give_up(what) };
        let given_up = joiner.traced(traced, what);
        given_up.into_iter().for_each(|what| self.give_up(what));
    }

    /// Nothing tells more of an operation.
    fn give_up(&mut self, what: SplitOperation) {
        if let SplitOperation::Unseen(unseen) = what
            && !self.asked.is_narrowed()
        {
            self.unseen.add(unseen.0, unseen.1);
        }
    }

    /// The rows of a trace between these times.
    pub fn finish(mut self, from: Timestamp, to: Timestamp) -> WhyRows {
        // What is said of a connection that is not followed may fit one that is.
        let is_same =
            |one: &SplitOperation, other: &SplitOperation| !self.is_sample && one.is_in_row_of(other);
        let joiner = self.joiner.take().unwrap_or_default();
        let ServerJoined { joined, alone, log, profile } = joiner.finish(from, to, is_same);
        alone.into_iter().for_each(|what| self.give_up(what));
        for (what, partner) in joined {
            match what {
                SplitOperation::Seen(row) => self.table.evidence(row, &partner.evidence),
                SplitOperation::Unseen(unseen) => {
                    let (thread, waits) = *unseen;
                    self.named_by_server(thread, waits, &partner);
                }
            }
        }
        let SplitResult { rows, blockers_turned_away } = self.table.finish();
        let unseen = self.unseen.table.finish().rows;
        WhyRows { rows, unseen, activity: self.activity, blockers_turned_away, log, profile }
    }

    /// An operation that was not on the wire has the shape that the server names.
    fn named_by_server(
        &mut self,
        thread: ThreadOperation,
        waits: Vec<ClassifiedWait>,
        partner: &ServerOperation,
    ) {
        let origin = if partner.source == Source::Log { ShapeOrigin::Log } else { ShapeOrigin::Profile };
        let operation = uncaptured(thread, &partner.shape, partner.class, &partner.app);
        if !self.asked.has(&operation.wire) {
            return self.table.pass(&operation);
        }
        let row = self.table.add_from(origin, &operation, waits);
        self.table.evidence(row, &partner.evidence);
        self.activity.add(&operation);
    }
}

/// An operation that was not captured, with this shape. It begins when the thread has the request.
fn uncaptured(
    thread: ThreadOperation,
    shape: &Arc<ShapeInfo>,
    class: Class,
    app: &Arc<Application>,
) -> JoinedOperation {
    let (server, client) = thread.connection.unwrap_or((Endpoint::default(), Endpoint::default()));
    let wire = WireOperation {
        server,
        client,
        request_id: thread.request_id,
        start: thread.start,
        end: thread.end,
        latency_ns: None,
        was_answered: !thread.is_unacknowledged,
        role: Role::Served,
        class,
        shape: Arc::clone(shape),
        ordered_id: shape.id,
        app: Arc::clone(app),
    };
    JoinedOperation { wire, thread }
}

impl SplitSink for SelectedRows {
    fn joined(&mut self, operation: &JoinedOperation, waits: Vec<ClassifiedWait>) {
        let wire = &operation.wire;
        let row = if self.asked.has(wire) {
            self.activity.add(operation);
            let database = &wire.shape.database;
            if self.databases.len() < MAX_DATABASES && !self.databases.contains(database) {
                self.databases.insert(database.clone());
            }
            self.table.add_from(ShapeOrigin::Wire, operation, waits)
        } else {
            self.table.pass(operation);
            (ShapeOrigin::Wire, wire.role, wire.class, wire.shape.id)
        };
        if self.joiner.is_some() {
            self.wait(operation.into(), SplitOperation::Seen(row));
        }
    }

    fn alone(&mut self, operation: ThreadOperation, waits: Vec<ClassifiedWait>) {
        self.has_unseen = true;
        let traced = TracedOperation::from(&operation);
        self.wait(traced, SplitOperation::Unseen(Box::new((operation, waits))));
    }

    fn tick(&mut self) {
        self.table.resolve();
    }
}

/// Operations without a shape, by the role of their threads.
#[derive(Default)]
struct UnseenRows {
    table: SplitTable,
    roles: Vec<Arc<ShapeInfo>>,
}

impl UnseenRows {
    fn add(&mut self, thread: ThreadOperation, waits: Vec<ClassifiedWait>) {
        let role = self.role(role_of(&thread.thread_name));
        let operation = uncaptured(thread, &role, Class::User, &Arc::default());
        self.table.add_from(ShapeOrigin::ThreadName, &operation, waits);
    }

    /// Stands for the shape of what threads of this name do.
    fn role(&mut self, name: &str) -> Arc<ShapeInfo> {
        let name = if self.roles.len() < MAX_ROLES { name } else { "other" };
        let command = name.to_owned() + " threads";
        let known = self.roles.iter().find(|role| *role.command == *command);
        known.cloned().unwrap_or_else(|| {
            let role = Arc::new(ShapeInfo {
                id: ShapeId(self.roles.len() as u64),
                command: command.into(),
                typed: "(not seen on the wire)".into(),
                ..ShapeInfo::default()
            });
            self.roles.push(role.clone());
            role
        })
    }
}

/// Which operations are counted.
#[derive(Default)]
pub struct AskedOperations {
    all: bool,
    shape: Option<String>,
    namespace: Option<String>,
    app: Option<String>,
}

impl AskedOperations {
    /// Whether only some were asked for, by what the wire or the server knows of them.
    pub fn is_narrowed(&self) -> bool {
        self.shape.is_some() || self.namespace.is_some() || self.app.is_some()
    }

    /// The database of the namespace that was asked for.
    fn database(&self) -> Option<&str> {
        self.namespace.as_deref().map(|asked| asked.split_once('.').map_or(asked, |(database, _)| database))
    }

    /// Whether an operation is counted.
    pub fn has(&self, operation: &WireOperation) -> bool {
        let shape = &operation.shape;
        let in_namespace = |asked: &String| *shape.database == **asked || shape.namespace() == *asked;
        (self.all || operation.class == Class::User)
            && self.shape.as_ref().is_none_or(|id| shape.id.to_string().starts_with(id.as_str()))
            && self.namespace.as_ref().is_none_or(in_namespace)
            && self.app.as_ref().is_none_or(|app| *operation.app.name == **app)
    }
}

impl From<&WhyArgs> for AskedOperations {
    fn from(args: &WhyArgs) -> Self {
        let WhyArgs { all, shape, namespace, app, .. } = args.clone();
        Self { all, shape, namespace, app }
    }
}
