//! Operations in flight, as `db.currentOp()`, `currentOp` and `$currentOp` list them: documents that a shell or a
//! program printed, each of one operation, or with all of them in `inprog` or in the first batch of a cursor.
//!
//! Fields: <https://www.mongodb.com/docs/manual/reference/command/currentOp/> and
//! <https://www.mongodb.com/docs/manual/reference/operator/aggregation/currentOp/>. They are those of a profile where
//! both have them.

use sonar_core::{
    CurrentOperation, CurrentOperations, CurrentWait, Execution, Identity, Operation, Timestamp,
};

use crate::bson::{BsonValue, ElementKind, ElementStep, Key, Opened, Visitor};
use crate::entry::{Entry, EntryContext, EntrySink, Op, OperationAssembler, ParsedEntry};
use crate::log::read_document;
use crate::syntax::documents::{Documents, FoundDocument};
use crate::syntax::{json, relaxed, time};

/// The keys under which one document holds all operations.
const LISTS: [&[u8]; 2] = [b"inprog", b"firstBatch"];

/// Whether a text looks like operations in flight, and not like a profile: only a running operation has a number.
pub fn is_current(text: &[u8]) -> bool {
    let has = |names: &[&[u8]]| names.iter().any(|name| memchr::memmem::find(text, name).is_some());
    let is_list = has(&[b"\"inprog\"", b"'inprog'", b"inprog:", b"inprog :"]);
    let has_number = has(&[b"\"opid\"", b"'opid'", b" opid:", b"{opid:", b"\topid:", b"\nopid:"]);
    let is_running = has(&[b"secs_running", b"\"active\"", b" active:", b"currentOpTime"]);
    is_list || has_number && is_running
}

/// Reads printed documents.
#[derive(Default)]
pub struct CurrentOpReader {
    assembler: OperationAssembler,
    entry: Entry<()>,
    parsed: ParsedEntry,
    text: Vec<u8>,
    read: CurrentOperations,
}

impl CurrentOpReader {
    /// Reads a document: an operation, or a list of operations.
    pub fn document(&mut self, document: &[u8]) {
        match list(document) {
            Some(mut list) => {
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
            None => self.operation(document),
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
        let Ok(lost) = relaxed::to_json(document, &mut self.text) else { return self.broken() };
        let mut facts = Facts::default();
        if json::walk(&self.text, 0, &mut facts).is_err() {
            return self.broken();
        }
        let is_running = facts.seconds.is_some() || facts.micros.is_some();
        if facts.is_idle_kind || !facts.is_active.unwrap_or(is_running) {
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
        if self.entry.lacks_origin() {
            self.entry.doubt = Some(Identity::Unsaid);
        }
        if self.entry.fields.op == Op::None {
            self.entry.fields.op = Op::Internal;
        }
        self.parsed.take(&mut self.entry);
        let text = || {
            let mut entry = Entry::default();
            // It was readable before.
            let _ = read_document(&self.text, &mut entry);
            entry.into_shape()
        };
        let mut taken = TakenOperation { facts, operation: None };
        self.assembler.add(&self.parsed, &EntryContext::default(), text, &mut taken);
        if let Some(operation) = taken.operation {
            self.read.add(operation);
        }
    }
}

/// The list of operations in a document that holds all of them, with its opening bracket.
fn list(document: &[u8]) -> Option<&[u8]> {
    LISTS.iter().find_map(|name| {
        let rest = &document[memchr::memmem::find(document, name)? + name.len()..];
        let rest = rest.strip_prefix(b"\"").or(rest.strip_prefix(b"'")).unwrap_or(rest);
        let rest = rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
        rest.starts_with(b"[").then_some(rest)
    })
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
    /// The document that is open.
    inside: FactPlace,
}

#[derive(Copy, Clone, PartialEq, Eq, Default)]
enum FactPlace {
    #[default]
    Top,
    Latch,
    Queue,
    Progress,
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
                let ns = ms.and_then(|ms| u64::try_from(ms).ok()).map(|ms| ms.saturating_mul(1_000_000));
                self.at = ns.map(Timestamp::from_unix_ns).filter(|at| at.is_known());
            }
            (FactPlace::Top, b"waitingForLock") if is_true() => self.waits.push(CurrentWait::Lock),
            (FactPlace::Top, b"waitingForFlowControl") if is_true() => {
                self.waits.push(CurrentWait::FlowControl);
            }
            (FactPlace::Top, b"killPending") => self.is_killed = is_true(),
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
            _ => return Opened::Skip,
        };
        self.inside = place;
        Opened::Enter
    }

    fn close(&mut self) {
        self.inside = FactPlace::Top;
    }
}
