//! The fields of an entry, by their names in profiles and logs of every version.
//!
//! Names, and since when: <https://www.mongodb.com/docs/manual/reference/database-profiler/>,
//! <https://www.mongodb.com/docs/manual/reference/log-messages/>, and the release notes.

use sonar_core::PlanFlags;

use crate::bson::{BsonValue, ElementKind};
use crate::names;
use crate::syntax::time;

/// The most bytes of a text field that are kept.
pub const MAX_TEXT: usize = 1_024;

/// What kind of entry it is (`op` of a profile, `type` of a JSON log, the verb of a text log).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub enum Op {
    #[default]
    None,
    Command,
    Query,
    GetMore,
    Insert,
    Update,
    Remove,
    KillCursors,
    /// `none`: the server's own work, such as an index build.
    Internal,
    /// An entry of the oplog that a secondary applied.
    Applied,
    /// A transaction as a whole.
    Transaction,
}

impl Op {
    /// From the word in the source; `None` for a word that names no operation.
    pub fn of(word: &[u8]) -> Option<Self> {
        Some(match word {
            b"command" | b"count" | b"distinct" | b"geoNear" | b"group" | b"mapReduce" | b"bulkWrite" => {
                Self::Command
            }
            b"none" => Self::Internal,
            b"query" => Self::Query,
            b"getmore" => Self::GetMore,
            b"insert" => Self::Insert,
            b"update" => Self::Update,
            b"remove" => Self::Remove,
            b"killcursors" => Self::KillCursors,
            _ => return None,
        })
    }
}

/// A text of at most [`MAX_TEXT`] bytes, in a buffer that is reused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextField(Vec<u8>);

impl TextField {
    /// Keeps the beginning of `bytes`.
    pub fn set(&mut self, bytes: &[u8]) {
        self.0.clear();
        self.0.extend_from_slice(&bytes[..bytes.len().min(MAX_TEXT)]);
    }

    /// Keeps the beginning of what `write` writes.
    fn set_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.0.clear();
        write(&mut self.0);
        self.0.truncate(MAX_TEXT);
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text up to the first byte that is not UTF-8.
    pub fn text(&self) -> &str {
        match std::str::from_utf8(&self.0) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&self.0[..error.valid_up_to()]).unwrap_or_default(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// All fields that are read, except commands.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct FieldTable {
    pub op: Op,
    pub namespace: TextField,
    /// When it ended, in milliseconds since the Unix epoch.
    pub end_ms: Option<i64>,
    pub millis: Option<u64>,
    pub micros: Option<u64>,
    pub keys_examined: Option<u64>,
    pub docs_examined: Option<u64>,
    pub returned: Option<u64>,
    pub inserted: Option<u64>,
    pub deleted: Option<u64>,
    pub matched: Option<u64>,
    pub modified: Option<u64>,
    pub upserted: Option<u64>,
    /// It is one statement that inserted a document because none matched (`upsert: 1`).
    pub has_upserted: bool,
    pub response_bytes: Option<u64>,
    pub yields: Option<u64>,
    pub write_conflicts: Option<u64>,
    pub lock_wait_us: Option<u64>,
    pub storage_read_bytes: Option<u64>,
    pub storage_read_us: Option<u64>,
    pub storage_written_bytes: Option<u64>,
    pub storage_write_us: Option<u64>,
    pub storage_wait_us: Option<u64>,
    pub cpu_ns: Option<u64>,
    pub planning_us: Option<u64>,
    pub queued_us: Option<u64>,
    pub working_ms: Option<u64>,
    pub prepare_read_conflicts: Option<u64>,
    pub flow_control_us: Option<u64>,
    pub remote_wait_ms: Option<u64>,
    pub write_concern_ms: Option<u64>,
    pub spills: Option<u64>,
    pub spilled_bytes: Option<u64>,
    /// The cursor that was opened or used.
    pub cursor: Option<i64>,
    /// The source wrote `cursor` as a double, so its last digits are lost.
    pub cursor_is_rounded: bool,
    /// `ntoreturn` of the old protocol.
    pub to_return: Option<i64>,
    /// `ntoskip` of the old protocol.
    pub to_skip: Option<i64>,
    pub plan: TextField,
    /// Further plans of statements that were joined to their command, each once.
    pub other_plans: Vec<TextField>,
    pub flags: PlanFlags,
    /// The view whose resolution was read last.
    pub view: TextField,
    /// The namespace behind the view that the operation named.
    pub view_of: TextField,
    pub query_hash: TextField,
    pub query_shape_hash: TextField,
    pub app: TextField,
    pub client: TextField,
    pub protocol: TextField,
    /// The user that the server authenticated.
    pub user: TextField,
    /// The comment of the command, if it is a text or a number.
    pub comment: TextField,
    pub error_code: Option<i32>,
    pub failed: bool,
    pub rate_limit: Option<u64>,
    pub shards: Option<u64>,
    /// It has a field that only servers before 3.2 write, which leave out an empty query.
    pub is_old: bool,
    /// How a transaction ended.
    pub is_committed: Option<bool>,
    /// What wrote the document lost the types of values: dates are texts or numbers, numbers are texts.
    pub types_lost: bool,
}

impl FieldTable {
    /// Forgets everything, for the next entry.
    pub fn reset(&mut self) {
        let texts = [
            &mut self.namespace,
            &mut self.plan,
            &mut self.query_hash,
            &mut self.query_shape_hash,
            &mut self.app,
            &mut self.client,
            &mut self.protocol,
            &mut self.user,
            &mut self.comment,
        ];
        let kept = texts.map(|text| {
            text.clear();
            std::mem::take(text)
        });
        let [namespace, plan, query_hash, query_shape_hash, app, client, protocol, user, comment] = kept;
        *self = Self {
            namespace,
            plan,
            query_hash,
            query_shape_hash,
            app,
            client,
            protocol,
            user,
            comment,
            ..Self::default()
        };
    }

    /// Takes a scalar at the top of an entry. Returns whether its name is known.
    #[inline]
    pub fn scalar(&mut self, name: &[u8], kind: ElementKind, value: BsonValue<'_>) -> bool {
        let bytes = match value {
            BsonValue::Bytes(bytes) => bytes,
            BsonValue::Long => &[],
        };
        let number = || crate::shape::number(kind, bytes);
        let integer = || integer_of(kind, bytes);
        let count = || integer().and_then(|number| u64::try_from(number).ok());
        match name {
            // An unknown kind is not known to be a client's request.
            b"op" | b"type" => self.op = Op::of(bytes).unwrap_or(Op::Internal),
            b"ns" => self.set_namespace(bytes),
            b"ts" => {
                self.end_ms = match kind {
                    ElementKind::DateTime => bytes.first_chunk().map(|bytes| i64::from_le_bytes(*bytes)),
                    ElementKind::String => time::iso(bytes).or_else(|| plausible_ms(integer()?)),
                    _ => integer().and_then(plausible_ms),
                };
                self.types_lost |= kind != ElementKind::DateTime;
            }
            b"millis" | b"durationMillis" => {
                self.millis = count();
                self.types_lost |= kind == ElementKind::String;
            }
            b"micros" | b"durationMicros" => self.micros = count(),
            b"keysExamined" | b"totalKeysExamined" => self.keys_examined = count(),
            b"docsExamined" | b"totalDocsExamined" => self.docs_examined = count(),
            b"nscanned" => (self.keys_examined, self.is_old) = (count(), true),
            b"nscannedObjects" => (self.docs_examined, self.is_old) = (count(), true),
            b"keyUpdates" => self.is_old = true,
            b"nreturned" => self.returned = count(),
            b"ninserted" => self.inserted = count(),
            b"ndeleted" => self.deleted = count(),
            b"nMatched" => self.matched = count(),
            b"nModified" | b"nupdated" => self.modified = count(),
            b"upsert" => (self.upserted, self.has_upserted) = (count(), count() == Some(1)),
            b"nUpserted" => self.upserted = count(),
            b"responseLength" | b"reslen" => self.response_bytes = count(),
            b"numYield" | b"numYields" => self.yields = count(),
            b"writeConflicts" => self.write_conflicts = count(),
            b"cursorid" => (self.cursor, self.cursor_is_rounded) = (integer(), kind == ElementKind::Double),
            b"ntoreturn" => (self.to_return, self.is_old) = (integer(), true),
            b"ntoskip" => self.to_skip = integer(),
            b"planSummary" => {
                self.plan.set_with(|out| names::write_plan(&bytes[..bytes.len().min(16 * MAX_TEXT)], out));
                self.flags.collection_scan = sonar_core::Execution::scans_collection(self.plan.text());
            }
            b"hasSortStage" | b"scanAndOrder" => self.flags.memory_sort = number() == Some(1.0),
            b"usedDisk" => self.flags.used_disk = number() == Some(1.0),
            b"fromMultiPlanner" => self.flags.multi_planner = number() == Some(1.0),
            b"replanned" => self.flags.replanned = number() == Some(1.0),
            b"queryHash" | b"planCacheShapeHash" if names::is_hash(bytes) => self.query_hash.set(bytes),
            b"queryShapeHash" if names::is_hash(bytes) => self.query_shape_hash.set(bytes),
            b"queryHash" | b"planCacheShapeHash" | b"queryShapeHash" => {}
            b"terminationCause" => self.is_committed = Some(bytes == b"committed"),
            b"appName" => self.app.set(bytes),
            b"client" => {
                if self.client.is_empty() {
                    self.client.set(bytes);
                }
            }
            b"remote" => self.client.set(bytes),
            b"protocol" => self.protocol.set(bytes),
            b"user" if kind == ElementKind::String => self.user.set(bytes),
            b"errCode" | b"exceptionCode" | b"code" => {
                self.failed = true;
                self.error_code = integer().map(|number| number as i32);
            }
            b"errMsg" | b"errName" | b"exception" => self.failed = true,
            b"ok" => self.failed |= number() == Some(0.0),
            b"cpuNanos" => self.cpu_ns = count(),
            b"planningTimeMicros" => self.planning_us = count(),
            b"workingMillis" => self.working_ms = count(),
            b"prepareReadConflicts" => self.prepare_read_conflicts = count(),
            b"remoteOpWaitMillis" => self.remote_wait_ms = count(),
            b"waitForWriteConcernDuration" | b"waitForWriteConcernDurationMillis" => {
                self.write_concern_ms = count();
            }
            b"rateLimit" => self.rate_limit = count(),
            b"nShards" => self.shards = count(),
            // One of several stages that spill: `sortSpills`, `groupSpilledBytes` and the like.
            name if name.ends_with(b"Spills") => add(&mut self.spills, count()),
            name if name.ends_with(b"SpilledBytes") => add(&mut self.spilled_bytes, count()),
            _ => return false,
        }
        true
    }

    /// Takes the comment of a command.
    pub fn set_comment(&mut self, kind: ElementKind, value: BsonValue<'_>) {
        let BsonValue::Bytes(bytes) = value else { return };
        match (kind, crate::shape::number(kind, bytes)) {
            (ElementKind::String, _) => self.comment.set(bytes),
            (_, Some(number)) => self.comment.set(number.to_string().as_bytes()),
            _ => {}
        }
    }

    /// Takes the namespace that the server wrote beside the command. A text that cannot be a namespace is not shown.
    pub fn set_namespace(&mut self, namespace: &[u8]) {
        self.namespace.set(if names::is_namespace(namespace) { namespace } else { names::UNPROVEN });
    }

    /// The namespace's database and collection.
    pub fn split_namespace(&self) -> (&[u8], &[u8]) {
        let namespace = self.namespace.bytes();
        let dot = memchr::memchr(b'.', namespace).unwrap_or(namespace.len());
        (&namespace[..dot], namespace.get(dot + 1..).unwrap_or_default())
    }

    /// Takes a scalar inside a section.
    #[inline]
    pub fn in_section(
        &mut self,
        section: EntrySection,
        name: &[u8],
        kind: ElementKind,
        value: BsonValue<'_>,
    ) {
        match section {
            EntrySection::LockWait => self.lock_wait(kind, value),
            EntrySection::Storage | EntrySection::StorageWait => self.storage(section, name, kind, value),
            EntrySection::Queues if name == b"totalTimeQueuedMicros" => self.queued(kind, value),
            EntrySection::FlowControl if name == b"timeAcquiringMicros" => {
                let BsonValue::Bytes(bytes) = value else { return };
                add(&mut self.flow_control_us, unsigned(kind, bytes));
            }
            EntrySection::Views | EntrySection::ViewChain => self.resolved_view(section, name, kind, value),
            EntrySection::Queues | EntrySection::Locks | EntrySection::FlowControl => {}
        }
    }

    /// Takes a scalar inside `resolvedViews`: the view, or a collection of the chain that leads from it to what it reads.
    /// Other views, such as one that a `$lookup` reads, are resolved there too.
    fn resolved_view(&mut self, section: EntrySection, name: &[u8], kind: ElementKind, value: BsonValue<'_>) {
        let BsonValue::Bytes(bytes) = value else { return };
        match section {
            _ if kind != ElementKind::String => {}
            EntrySection::Views if name == b"viewNamespace" => self.view.set(bytes),
            EntrySection::ViewChain if self.view == self.namespace => {
                let namespace = [self.split_namespace().0, b".", bytes].concat();
                if names::is_namespace(&namespace) {
                    self.view_of.set(&namespace);
                }
            }
            _ => {}
        }
    }

    /// Takes a scalar inside `storage`, below the section `section`.
    pub fn storage(&mut self, section: EntrySection, name: &[u8], kind: ElementKind, value: BsonValue<'_>) {
        let BsonValue::Bytes(bytes) = value else { return };
        let Some(number) = unsigned(kind, bytes) else { return };
        let add = |sum: &mut Option<u64>| *sum = Some(sum.unwrap_or(0).saturating_add(number));
        match (section, name) {
            (EntrySection::StorageWait, _) => add(&mut self.storage_wait_us),
            (_, b"bytesRead") => add(&mut self.storage_read_bytes),
            (_, b"timeReadingMicros") => add(&mut self.storage_read_us),
            (_, b"bytesWritten") => add(&mut self.storage_written_bytes),
            (_, b"timeWritingMicros") => add(&mut self.storage_write_us),
            _ => {}
        }
    }

    /// Adds to the time of waiting for locks.
    pub fn lock_wait(&mut self, kind: ElementKind, value: BsonValue<'_>) {
        if let BsonValue::Bytes(bytes) = value {
            add(&mut self.lock_wait_us, unsigned(kind, bytes));
        }
    }

    /// Adds to the time in the server's queues.
    pub fn queued(&mut self, kind: ElementKind, value: BsonValue<'_>) {
        if let BsonValue::Bytes(bytes) = value {
            add(&mut self.queued_us, unsigned(kind, bytes));
        }
    }
}

/// A count.
fn unsigned(kind: ElementKind, bytes: &[u8]) -> Option<u64> {
    integer_of(kind, bytes).and_then(|number| u64::try_from(number).ok())
}

/// An integer, also one that was written as a text.
fn integer_of(kind: ElementKind, bytes: &[u8]) -> Option<i64> {
    match kind {
        ElementKind::String => std::str::from_utf8(bytes).ok()?.parse().ok(),
        _ => crate::shape::integer(kind, bytes),
    }
}

/// A number that stands for a date if it can be one in milliseconds since the Unix epoch: of 1973 or later, and of
/// four digits in the year. Smaller ones count something else.
fn plausible_ms(ms: i64) -> Option<i64> {
    (100_000_000_000..253_402_300_800_000).contains(&ms).then_some(ms)
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}

/// The parts of an entry that are read beside its fields and commands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum EntrySection {
    /// `locks` of 3.0 and later, `lockStats` before.
    Locks,
    /// `timeAcquiringMicros` inside it.
    LockWait,
    /// `storage`, and `data` inside it.
    Storage,
    /// `timeWaitingMicros` inside it.
    StorageWait,
    /// `queues` of 8.0.
    Queues,
    /// `flowControl` of 4.2.
    FlowControl,
    /// `resolvedViews` of 5.0.
    Views,
    /// `dependencyChain` inside it.
    ViewChain,
}

impl FieldTable {
    /// Adds what a statement did to what its command did; the time is the command's.
    pub(super) fn add(&mut self, statement: &Self) {
        let pairs = [
            (&mut self.keys_examined, statement.keys_examined),
            (&mut self.docs_examined, statement.docs_examined),
            (&mut self.inserted, statement.inserted),
            (&mut self.deleted, statement.deleted),
            (&mut self.matched, statement.matched),
            (&mut self.modified, statement.modified),
            (&mut self.upserted, statement.upserted),
            (&mut self.yields, statement.yields),
            (&mut self.write_conflicts, statement.write_conflicts),
            (&mut self.storage_read_bytes, statement.storage_read_bytes),
            (&mut self.storage_read_us, statement.storage_read_us),
            (&mut self.storage_written_bytes, statement.storage_written_bytes),
            (&mut self.storage_write_us, statement.storage_write_us),
            (&mut self.storage_wait_us, statement.storage_wait_us),
            (&mut self.prepare_read_conflicts, statement.prepare_read_conflicts),
            (&mut self.spills, statement.spills),
            (&mut self.spilled_bytes, statement.spilled_bytes),
        ];
        for (sum, more) in pairs {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0).saturating_add(more));
            }
        }
        // The command's own lock waits cover all statements, if it states any.
        self.lock_wait_us = self.lock_wait_us.max(statement.lock_wait_us);
        if self.plan.is_empty() {
            self.plan.set(statement.plan.bytes());
        } else if !statement.plan.is_empty()
            && self.plan != statement.plan
            && !self.other_plans.contains(&statement.plan)
            && self.other_plans.len() < sonar_core::figures::MAX_PLANS
        {
            self.other_plans.push(statement.plan.clone());
        }
        if self.query_hash.is_empty() {
            self.query_hash.set(statement.query_hash.bytes());
        }
        let (mine, theirs) = (self.flags, statement.flags);
        self.flags = PlanFlags {
            collection_scan: mine.collection_scan | theirs.collection_scan,
            memory_sort: mine.memory_sort | theirs.memory_sort,
            used_disk: mine.used_disk | theirs.used_disk,
            multi_planner: mine.multi_planner | theirs.multi_planner,
            replanned: mine.replanned | theirs.replanned,
        };
        if statement.failed {
            self.failed = true;
            self.error_code = self.error_code.or(statement.error_code);
        }
    }
}
