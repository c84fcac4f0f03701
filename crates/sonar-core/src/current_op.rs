//! Operations that a server was working on when somebody asked it (`currentOp`, `$currentOp`).

use std::sync::Arc;

use crate::{Class, Identity, ShapeInfo, Timestamp};

/// One operation that had not ended. What the server does not report is empty or `None`.
#[derive(Clone, Debug)]
pub struct CurrentOperation {
    /// Its shape, or the known part of it.
    pub shape: Arc<ShapeInfo>,
    /// How exactly the shape is known.
    pub identity: Identity,
    /// Its purpose.
    pub class: Class,
    /// Name of the command.
    pub command: Box<str>,
    /// For how long it has been running, in microseconds.
    pub age_us: Option<u64>,
    /// When the server was asked.
    pub at: Option<Timestamp>,
    /// Its number, as `killOp` takes it.
    pub id: Box<str>,
    /// The thread of the server, like `conn42`.
    pub thread: Box<str>,
    /// Address and port of the client.
    pub client: Box<str>,
    /// Name of the application.
    pub app: Box<str>,
    /// Plan summary, without values.
    pub plan: Box<str>,
    /// How often it has yielded.
    pub yields: Option<u64>,
    /// How long it has waited for locks so far, in microseconds.
    pub lock_wait_us: Option<u64>,
    /// What it waits for now.
    pub waits: Vec<CurrentWait>,
    /// How much of its work it has done, and of how much (index builds).
    pub progress: Option<(u64, u64)>,
    /// It was killed, and has not noticed that yet.
    pub is_killed: bool,
    /// It is a hello that waits by design: the server answers it when the topology changes, or after `maxAwaitTimeMS`.
    pub awaits_topology: bool,
}

/// What an operation waits for at this moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CurrentWait {
    /// A lock (`waitingForLock`).
    Lock,
    /// A latch of this name (`waitingForLatch`, 4.2 and later).
    Latch(Box<str>),
    /// Flow control (`waitingForFlowControl`, 4.2 and later).
    FlowControl,
    /// A queue of this name (`currentQueue`, 8.0 and later).
    Queue(Box<str>),
}

/// What a server was working on.
#[derive(Clone, Debug, Default)]
pub struct CurrentOperations {
    /// Active operations, in the order of the source.
    pub operations: Vec<CurrentOperation>,
    /// Entries that are no active operation: idle connections, sessions and cursors.
    pub idle: u64,
    /// Documents that could not be read.
    pub malformed: u64,
    /// Operations beyond [`MAX_CURRENT`].
    pub beyond: u64,
}

/// The most operations that are kept.
pub const MAX_CURRENT: usize = 100_000;

impl CurrentOperations {
    /// Adds an operation, up to the cap.
    pub fn add(&mut self, operation: CurrentOperation) {
        if self.operations.len() < MAX_CURRENT {
            self.operations.push(operation);
        } else {
            self.beyond += 1;
        }
    }

    /// When the server was asked, by the first operation that says it.
    pub fn at(&self) -> Option<Timestamp> {
        self.operations.iter().find_map(|operation| operation.at)
    }

    /// The one that has been running longest, of those that do not wait by design; `None` if no age is known.
    pub fn oldest(&self) -> Option<&CurrentOperation> {
        let counts = |one: &&CurrentOperation| one.age_us.is_some() && !one.awaits_topology;
        self.operations.iter().filter(counts).max_by_key(|one| one.age_us)
    }

    /// How many hellos wait by design for a change of the topology.
    pub fn awaiting(&self) -> usize {
        self.operations.iter().filter(|one| one.awaits_topology).count()
    }

    /// How many wait for something that `is` true of.
    pub fn waiting(&self, is: impl Fn(&CurrentWait) -> bool) -> usize {
        self.operations.iter().filter(|operation| operation.waits.iter().any(&is)).count()
    }
}
