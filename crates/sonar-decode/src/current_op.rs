//! Operations in flight, as `db.currentOp()`, `currentOp` and `$currentOp` list them: documents that a shell or a
//! program printed, each of one operation, or with all of them in `inprog` or in the first batch of a cursor.
//!
//! Fields: <https://www.mongodb.com/docs/manual/reference/command/currentOp/> and
//! <https://www.mongodb.com/docs/manual/reference/operator/aggregation/currentOp/>. They are those of a profile where
//! both have them.

use sonar_core::{
    CurrentOperation, CurrentOperations, CurrentWait, Execution, Identity, Operation, ShapeInfo, Timestamp,
};

use crate::bson::{BsonValue, ElementKind, ElementStep, Fed, Key, Opened, Skimmer, Visitor};
use crate::entry::{Entry, EntryContext, EntrySink, Op, OperationAssembler, ParsedEntry};
use crate::ftdc::Elements;
use crate::log::read_document;
use crate::profile::read_bson;
use crate::syntax::documents::{Documents, FoundDocument};
use crate::syntax::{json, printed, time};
use crate::top_level::{TopFields, text_batch, text_field};

/// Whether a document with these fields holds operations in flight, and is no entry of a profile: only a running
/// operation has a number.
pub fn is_current(top: &TopFields) -> bool {
    const RUNNING: [&str; 4] = ["secs_running", "microsecs_running", "active", "currentOpTime"];
    top.has_array("inprog")
        || top.has("opid") && RUNNING.iter().any(|name| top.has(name))
        || top.batch_has("opid") && RUNNING.iter().any(|name| top.batch_has(name))
}

/// Reads documents that were printed, and BSON.
#[derive(Default)]
pub struct CurrentOpReader {
    assembler: OperationAssembler,
    entry: Entry<()>,
    parsed: ParsedEntry,
    text: Vec<u8>,
    read: CurrentOperations,
}

impl CurrentOpReader {
    /// Reads a printed document: an operation, or a list of operations.
    pub fn document(&mut self, document: &[u8]) {
        match list(document) {
            Some(list) => self.list(list),
            None => self.operation(document),
        }
    }

    /// Reads the operations in the beginning of a printed document that was cut, as far as they are whole.
    pub fn cut(&mut self, document: &[u8]) {
        if let Some(list) = list(document) {
            self.list(list);
        }
    }

    fn list(&mut self, mut list: &[u8]) {
        let mut documents = Documents::default();
        while let Some(found) = documents.next(&mut list) {
            match found {
                FoundDocument::Document(document) => self.operation(document),
                FoundDocument::Broken => self.broken(),
            }
            if !documents.is_cut() {
                break;
            }
        }
    }

    /// Reads a BSON document: an operation, or a list of operations.
    pub fn bson(&mut self, document: &[u8]) {
        match bson_list(document) {
            Some(list) => Elements::new(list)
                .filter(|element| element.kind == ElementKind::Document)
                .for_each(|element| self.bson_operation(element.value)),
            None => self.bson_operation(document),
        }
    }

    /// Counts a document whose end could not be found.
    pub fn broken(&mut self) {
        self.read.malformed += 1;
    }

    /// What was read.
    pub fn finish(self) -> CurrentOperations {
        self.read
    }

    fn operation(&mut self, document: &[u8]) {
        self.text.clear();
        let Ok(lost) = printed::to_json(document, &mut self.text) else { return self.broken() };
        let mut facts = Facts::default();
        if json::walk(&self.text, 0, &mut facts).is_err() {
            return self.broken();
        }
        if facts.is_idle() {
            self.read.idle += 1;
            return;
        }
        // `type` says what kind of entry it is; in a log it would say what the operation is.
        if let Some(at) = memchr::memmem::find(&self.text, b"\"type\":\"op\"") {
            self.text[at + 1..at + 5].copy_from_slice(b"kind");
        }
        self.entry.reset();
        if read_document(&self.text, &mut self.entry).is_err() {
            return self.broken();
        }
        self.entry.doubt = (lost.left_out || lost.types).then_some(Identity::Partial);
        let text = std::mem::take(&mut self.text);
        self.take(facts, || {
            let mut entry = Entry::default();
            // It was readable before.
            let _ = read_document(&text, &mut entry);
            entry.into_shape()
        });
        self.text = text;
    }

    fn bson_operation(&mut self, document: &[u8]) {
        let mut facts = Facts::default();
        let Ok(Fed::Done(_)) = Skimmer::new().feed(document, document.len() as u64, &mut facts) else {
            return self.broken();
        };
        if facts.is_idle() {
            self.read.idle += 1;
            return;
        }
        let mut document = document.to_vec();
        if let Some(at) = memchr::memmem::find(&document, b"\x02type\0\x03\0\0\0op\0") {
            document[at + 1..at + 5].copy_from_slice(b"kind");
        }
        self.entry.reset();
        if read_bson(&document, &mut self.entry).is_err() {
            return self.broken();
        }
        self.take(facts, || {
            let mut entry = Entry::default();
            // It was readable before.
            let _ = read_bson(&document, &mut entry);
            entry.into_shape()
        });
    }

    /// Adds the operation in `entry`.
    fn take(&mut self, facts: Facts, text: impl FnOnce() -> ShapeInfo) {
        if self.entry.lacks_origin() {
            self.entry.doubt = Some(Identity::Unknown);
        }
        if self.entry.fields.op == Op::None {
            self.entry.fields.op = Op::Internal;
        }
        self.parsed.take(&mut self.entry);
        let mut taken = TakenOperation { facts, operation: None };
        self.assembler.add(&self.parsed, &EntryContext::default(), text, &mut taken);
        if let Some(operation) = taken.operation {
            self.read.add(operation);
        }
    }
}

/// The list of operations in a document that holds all of them, with its opening bracket.
fn list(document: &[u8]) -> Option<&[u8]> {
    text_field(document, "inprog").filter(|list| list.starts_with(b"[")).or_else(|| text_batch(document))
}

/// The same in a BSON document.
fn bson_list(document: &[u8]) -> Option<&[u8]> {
    let array =
        |document, name| Elements::new(document).find(name).filter(|list| list.kind == ElementKind::Array);
    let cursor = || Elements::new(document).find(b"cursor").filter(|one| one.kind == ElementKind::Document);
    let list = array(document, b"inprog".as_slice());
    list.or_else(|| array(cursor()?.value, b"firstBatch")).map(|list| list.value)
}

/// Makes a current operation of what the assembler emits.
struct TakenOperation {
    facts: Facts,
    operation: Option<CurrentOperation>,
}

impl EntrySink for TakenOperation {
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>, _: u64) {
        let facts = std::mem::take(&mut self.facts);
        let age_us = facts.micros.or(facts.seconds.map(|seconds| seconds.saturating_mul(1_000_000)));
        self.operation = Some(CurrentOperation {
            shape: op.shape.clone(),
            identity,
            class: op.class,
            command: op.command.into(),
            age_us,
            at: facts.at,
            id: facts.id.into(),
            thread: facts.thread.into(),
            client: facts.client.into(),
            app: op.app.label().into(),
            plan: execution.plan.into(),
            yields: execution.yields,
            lock_wait_us: execution.lock_wait_us,
            waits: facts.waits,
            progress: facts.done.zip(facts.total),
            is_killed: facts.is_killed,
            awaits_topology: facts.hello == AwaitableHello::ALL,
        });
    }
}

/// What only an operation in flight has.
#[derive(Default)]
struct Facts {
    /// `None` if the server does not say it.
    is_active: Option<bool>,
    /// It is a session or a cursor that nobody uses now.
    is_idle_kind: bool,
    seconds: Option<u64>,
    micros: Option<u64>,
    at: Option<Timestamp>,
    id: String,
    thread: String,
    client: String,
    waits: Vec<CurrentWait>,
    done: Option<u64>,
    total: Option<u64>,
    is_killed: bool,
    hello: AwaitableHello,
    /// The document that is open.
    inside: FactPlace,
}

/// What makes a hello one that the server answers only when something changes, or after `maxAwaitTimeMS`.
#[derive(Copy, Clone, PartialEq, Eq, Default)]
struct AwaitableHello {
    is_hello: bool,
    has_topology_version: bool,
    has_await_time: bool,
}

impl AwaitableHello {
    const ALL: Self = Self { is_hello: true, has_topology_version: true, has_await_time: true };
}

#[derive(Copy, Clone, PartialEq, Eq, Default)]
enum FactPlace {
    #[default]
    Top,
    Command,
    Latch,
    Queue,
    Progress,
}

impl Facts {
    fn is_idle(&self) -> bool {
        let is_running = self.seconds.is_some() || self.micros.is_some();
        self.is_idle_kind || !self.is_active.unwrap_or(is_running)
    }
}

/// A name that a server gave something of its own: anything else is replaced.
fn name(bytes: &[u8]) -> String {
    let is_part = |byte: &u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b' ' | b'[' | b']' | b'/')
    };
    match bytes.len() <= 128 && bytes.iter().all(is_part) {
        true => String::from_utf8_lossy(bytes).into_owned(),
        false => "?".to_owned(),
    }
}

impl Visitor for Facts {
    fn element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
        let BsonValue::Bytes(bytes) = value else { return ElementStep::Next };
        let number = || crate::shape::integer(kind, bytes);
        let count = || number().and_then(|number| u64::try_from(number).ok());
        let is_true = || crate::shape::number(kind, bytes) == Some(1.0);
        match (self.inside, key.bytes) {
            (FactPlace::Top, b"active") => self.is_active = Some(is_true()),
            (FactPlace::Top, b"type") => self.is_idle_kind = bytes.starts_with(b"idle"),
            (FactPlace::Top, b"secs_running") => self.seconds = count(),
            (FactPlace::Top, b"microsecs_running") => self.micros = count(),
            (FactPlace::Top, b"desc") => self.thread = name(bytes),
            (FactPlace::Top, b"client" | b"client_s") => self.client = name(bytes),
            // A router puts the name of the shard before it.
            (FactPlace::Top, b"opid") => {
                self.id = number().map_or_else(|| name(bytes), |number| number.to_string());
            }
            (FactPlace::Top, b"currentOpTime") => {
                let ms = match kind {
                    ElementKind::DateTime => bytes.first_chunk().map(|ms| i64::from_le_bytes(*ms)),
                    _ => time::iso(bytes),
                };
                self.at = ms.map(Timestamp::from_unix_ms).filter(|at| at.is_known());
            }
            (FactPlace::Top, b"waitingForLock") if is_true() => self.waits.push(CurrentWait::Lock),
            (FactPlace::Top, b"waitingForFlowControl") if is_true() => {
                self.waits.push(CurrentWait::FlowControl);
            }
            (FactPlace::Top, b"killPending") => self.is_killed = is_true(),
            (FactPlace::Command, b"hello" | b"isMaster" | b"ismaster") => self.hello.is_hello = true,
            (FactPlace::Command, b"maxAwaitTimeMS") => self.hello.has_await_time = true,
            (FactPlace::Latch, b"captureName") => self.waits.push(CurrentWait::Latch(name(bytes).into())),
            (FactPlace::Queue, b"name") => self.waits.push(CurrentWait::Queue(name(bytes).into())),
            (FactPlace::Progress, b"done") => self.done = count(),
            (FactPlace::Progress, b"total") => self.total = count(),
            _ => {}
        }
        ElementStep::Next
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        let place = match (self.inside, key.bytes) {
            (FactPlace::Top, b"waitingForLatch") if !array => FactPlace::Latch,
            (FactPlace::Top, b"currentQueue") if !array => FactPlace::Queue,
            (FactPlace::Top, b"progress") if !array => FactPlace::Progress,
            (FactPlace::Top, b"command") if !array => FactPlace::Command,
            (FactPlace::Command, b"topologyVersion") if !array => {
                self.hello.has_topology_version = true;
                return Opened::Skip;
            }
            _ => return Opened::Skip,
        };
        self.inside = place;
        Opened::Enter
    }

    fn close(&mut self) {
        self.inside = FactPlace::Top;
    }
}
