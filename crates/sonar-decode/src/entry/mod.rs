//! What does one entry of a profile or log say? Reads `system.profile` documents and the attributes of
//! log lines of every version.
//!
//! An [`Entry`] is a [`Visitor`] of the source (BSON, JSON, the shell's syntax). It passes the elements of the command
//! on to the [`Request`] that also reads commands on the wire, so that a query has the same shape in every source.

mod assembler;
mod fields;
mod hint;
mod parsed;
mod visit;

pub(crate) use assembler::endpoint;
pub use assembler::{EntrySink, OperationAssembler};
pub use fields::{EntrySection, FieldTable, MAX_TEXT, Op, TextField};
pub(crate) use hint::HintFinder;
pub use parsed::{EntryContext, ParsedEntry};

use sonar_core::Identity;
use sonar_core::operation::Opcode;

use crate::bson::{BsonValue, ElementKind, ElementStep, Key, Opened, Visitor};
use crate::commands;
use crate::message::Request;
use crate::names;
use crate::shape::{CommandKind, ContainerMode, Field, Text};

/// The part of the entry that is being read. `depth` counts the documents that are open inside it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum EntryPlace {
    Top,
    /// In a command, which its first element names.
    Command {
        depth: u32,
        begun: bool,
    },
    /// In the filter of a write before 3.6.
    Filter {
        depth: u32,
    },
    /// In the update of a write before 3.6.
    Update {
        depth: u32,
    },
    EntrySection {
        section: EntrySection,
        depth: u32,
    },
    /// In an entry of the oplog; `object`: in the document that describes the change.
    Oplog {
        object: bool,
    },
}

/// How much of a command the entry has.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Completeness {
    /// None.
    #[default]
    Nothing,
    /// All of it.
    Whole,
    /// All that the version writes, which does not state whether a write is `multi` or an `upsert`.
    Most,
    /// The beginning.
    Cut,
}

/// One entry, read element by element; its buffers are reused.
pub struct Entry<T: Text> {
    /// The command; for a getMore, the command that opened the cursor if the entry has it.
    pub request: Request<T>,
    /// The other fields.
    pub fields: FieldTable,
    /// How much of the command the entry has.
    pub completeness: Completeness,
    /// Name of the command that the entry describes, if `request` is another one.
    pub follows: Option<&'static str>,
    /// The getMore has `maxTimeMS`, which only cursors that wait for data have.
    pub waits: bool,
    /// The cursor that a getMore or killCursors names.
    pub used_cursor: Option<i64>,
    /// The server itself issued it, in the form of the old protocol.
    pub by_server: bool,
    /// It is a statement of an update or remove, not the command around it.
    pub is_statement: bool,
    /// No lock was waited for, as in most operations, so `locks` need not be read.
    pub no_lock_waits: bool,
    /// The server left the query out because it was too large (`{$msg: …}`).
    pub withheld: bool,
    /// The source is a log that leaves an empty query out.
    pub leaves_out_empty: bool,
    /// Why the entry is incomplete or ambiguous, if it is.
    pub doubt: Option<Identity>,
    /// The beginning of a command that was cut, in the shell's syntax.
    pub cut_command: Option<Vec<u8>>,
    /// The command that was found before its document is read, because its keys are not in the server's order.
    hint: Option<CommandHint>,
    filter: OldFilter,
    /// The letter of the change in an oplog entry; 0 until it is known.
    applied: u8,
    /// The command is the one that opened the cursor.
    in_origin: bool,
    /// Inside `cursor`, where `currentOp` has that command from 4.2 on.
    in_cursor: bool,
    /// The first value may not be the collection; the entry has it.
    collection_unproven: bool,
    single_batch: bool,
    inside: EntryPlace,
}

/// A command that was found before its document is read.
#[derive(Clone, Debug, Default)]
pub struct CommandHint {
    /// Its name.
    pub command: Vec<u8>,
    /// Its collection, where its value is a string.
    pub collection: Option<Vec<u8>>,
    /// The cursor of a getMore.
    pub cursor: Option<i64>,
}

/// The filter of a write before 3.6.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum OldFilter {
    /// There is none.
    #[default]
    Absent,
    /// It matches everything.
    Empty,
    /// It has conditions.
    Given,
}

impl<T: Text> Default for Entry<T> {
    fn default() -> Self {
        Self {
            request: Request::default(),
            fields: FieldTable::default(),
            completeness: Completeness::Nothing,
            follows: None,
            waits: false,
            used_cursor: None,
            by_server: false,
            is_statement: false,
            no_lock_waits: false,
            withheld: false,
            leaves_out_empty: false,
            doubt: None,
            cut_command: None,
            hint: None,
            filter: OldFilter::Absent,
            applied: 0,
            in_origin: false,
            in_cursor: false,
            collection_unproven: false,
            single_batch: false,
            inside: EntryPlace::Top,
        }
    }
}

impl<T: Text> Entry<T> {
    /// Forgets everything, for the next entry.
    pub fn reset(&mut self) {
        self.request.reset(Opcode::Msg);
        self.fields.reset();
        self.completeness = Completeness::Nothing;
        self.follows = None;
        self.waits = false;
        self.used_cursor = None;
        self.by_server = false;
        self.is_statement = false;
        self.no_lock_waits = false;
        self.withheld = false;
        self.leaves_out_empty = false;
        self.doubt = None;
        self.cut_command = None;
        self.hint = None;
        self.filter = OldFilter::Absent;
        self.applied = 0;
        self.in_origin = false;
        self.in_cursor = false;
        self.collection_unproven = false;
        self.single_batch = false;
        self.inside = EntryPlace::Top;
    }

    /// Ends the entry: closes what is open, and adds what the version leaves out.
    pub fn finish(&mut self) {
        self.finish_old();
        self.finish_unsaid();
        let Self { request, fields, .. } = self;
        let has_limit = self.single_batch && fields.to_return.is_some_and(|limit| limit != 0);
        let is_find = request.kind == CommandKind::Find;
        if has_limit && is_find {
            // A find of the old protocol, as 3.2 to 4.4 write it: a number beside `singleBatch` is a limit.
            request.mark(5, "limit", Field::Presence);
        }
        // A client of the new protocol sends no `ntoreturn`, so this is the server's own request.
        self.by_server |= is_find && fields.to_return.is_some() && fields.protocol.bytes() == b"op_msg";
        if !request.has_database {
            request.set_database(fields.split_namespace().0);
        }
        request.settle_namespace();
        if fields.has_upserted {
            // Servers before 4.0 count the new document as matched and modified too.
            (fields.matched, fields.modified) = (fields.matched.map(|_| 0), fields.modified.map(|_| 0));
        }
    }

    /// Adds what servers before 3.2 leave out: a query that matches everything.
    fn finish_old(&mut self) {
        let leaves_out_empty = (self.leaves_out_empty || self.fields.is_old) && !self.withheld;
        match (self.completeness, self.fields.op) {
            (Completeness::Nothing, Op::Query) if leaves_out_empty => {
                self.begin_find();
                self.request.end_part();
            }
            (Completeness::Nothing, Op::Remove) if leaves_out_empty => {
                self.begin_part(false);
                self.request.end_part();
                self.filter = OldFilter::Empty;
            }
            (Completeness::Most, Op::Update | Op::Remove)
                if self.filter == OldFilter::Absent && self.request.builder.is_open() =>
            {
                self.begin_part(false);
                self.request.end_part();
                self.filter = OldFilter::Empty;
            }
            _ => {}
        }
        self.inside = EntryPlace::Top;
        while self.request.builder.is_open() {
            self.request.end_part();
        }
        // A remove of everything, or of more than one document, had no limit, so nothing is missing.
        let is_of_many = self.filter == OldFilter::Empty || self.fields.deleted > Some(1);
        if self.completeness == Completeness::Most && self.fields.op == Op::Remove && is_of_many {
            self.completeness = Completeness::Whole;
        }
    }

    /// Names the operation of an entry without a command.
    fn finish_unsaid(&mut self) {
        let Self { request, fields, hint, applied, .. } = self;
        let (name, completeness): (&[u8], Completeness) = match (self.completeness, fields.op) {
            // The shape of an insert is its namespace.
            (Completeness::Nothing, Op::Insert) => (b"insert", Completeness::Whole),
            (Completeness::Nothing, Op::GetMore) => (b"getMore", Completeness::Nothing),
            (Completeness::Nothing, Op::KillCursors) => (b"killCursors", Completeness::Nothing),
            (Completeness::Nothing, Op::Query) => (b"find", Completeness::Nothing),
            (Completeness::Nothing, Op::Update) => (b"update", Completeness::Nothing),
            (Completeness::Nothing, Op::Remove) => (b"delete", Completeness::Nothing),
            (Completeness::Nothing, Op::Internal) => (b"none", Completeness::Nothing),
            (Completeness::Nothing, Op::Command) => match hint {
                Some(hint) => (&hint.command, Completeness::Nothing),
                None => (names::UNPROVEN, Completeness::Nothing),
            },
            (_, Op::Applied) => {
                let is_known = !fields.namespace.is_empty();
                (names::applied(*applied), if is_known { Completeness::Whole } else { Completeness::Cut })
            }
            (_, Op::Transaction) => (b"transaction", Completeness::Whole),
            _ => return,
        };
        request.set_namespace(fields.namespace.bytes());
        request.set_command(name);
        self.completeness = completeness;
    }

    /// Sets the command of a document whose keys are not in the server's order, or that does not name its command.
    pub fn set_hint(&mut self, hint: Option<CommandHint>) {
        self.hint = hint;
    }

    fn begin_find(&mut self) {
        self.request.set_namespace(self.fields.namespace.bytes());
        self.request.set_command(b"find");
        self.request.begin_legacy_query();
        self.completeness = Completeness::Whole;
    }

    /// Whether it is a getMore that does not say which command opened its cursor.
    pub fn lacks_origin(&self) -> bool {
        self.request.kind == CommandKind::GetMore && self.follows.is_none()
    }

    /// The open document cannot be read further: the next element is beside it.
    pub fn abandon(&mut self) {
        self.inside = EntryPlace::Top;
    }

    fn begin_command(&mut self) -> Opened {
        let statement = match self.fields.op {
            Op::Update => Some(b"update".as_slice()),
            Op::Remove => Some(b"delete".as_slice()),
            _ => None,
        };
        if let Some(name) = statement {
            self.is_statement = true;
            self.request.set_namespace(self.fields.namespace.bytes());
            self.request.set_command(name);
        }
        self.inside = EntryPlace::Command { depth: 0, begun: false };
        Opened::Enter
    }

    /// Decides by its first key whether the document of `command` or `query` is a command, a statement, the filter of
    /// a query of the old protocol, or an inserted document. Returns whether it is read.
    fn begin(&mut self, key: &Key<'_>, text: Option<&[u8]>) -> bool {
        self.inside = EntryPlace::Command { depth: 0, begun: true };
        self.completeness = Completeness::Whole;
        let (database, collection) = self.fields.split_namespace();
        let names_it =
            text.is_some_and(|text| text == collection || collection_of_cursor(collection) == text);
        if key.bytes == b"$msg" && text.is_some() {
            // It stands for a query that the server left out.
            self.withheld = true;
            return self.pass_over();
        }
        if self.in_origin {
            self.follows = Some("getMore");
            // It may be a query of the old protocol on a field with the name of a command.
            self.collection_unproven = text.is_some() && !names_it;
        }
        match self.fields.op {
            Op::Update | Op::Remove if self.is_statement => {
                // 4.0 and earlier may hold the command itself.
                if names_it && matches!(key.bytes, b"update" | b"delete") {
                    self.is_statement = false;
                    self.request.reset(Opcode::Msg);
                } else {
                    self.request.begin_statement();
                }
            }
            Op::Insert if !(names_it && key.bytes == b"insert") => return self.pass_over(),
            Op::Query
                if !(self.in_origin || names_it && key.bytes == b"find" || key.bytes == b"$truncated") =>
            {
                self.begin_find();
            }
            Op::GetMore if !self.in_origin && !is_cursor_command(key.bytes, text.is_none(), names_it) => {
                self.follows = Some("getMore");
                self.begin_find();
            }
            _ if self.in_origin && !is_opener(key.bytes) => self.begin_find(),
            _ if text.is_none() && matches!(key.bytes, b"insert" | b"update" | b"delete" | b"q") => {
                self.begin_bulk_statement();
            }
            _ => {
                self.request.set_database(database);
                if let Some(hint) = self.hint.take_if(|_| !is_known_first(key.bytes)) {
                    // The first key is not the command's, so the collection is the entry's, if it has one.
                    let is_named = !collection.is_empty() && collection != b"$cmd";
                    let collection = if is_named { Some(collection) } else { hint.collection.as_deref() };
                    self.request.name_command(&hint.command, collection);
                    self.request.cursor = hint.cursor;
                }
            }
        }
        true
    }

    /// The open document is a statement of a bulkWrite: its first key has no collection as value, but the index of a
    /// namespace in a list that is not there, or is that of an update or of a delete. The entry has its namespace.
    fn begin_bulk_statement(&mut self) {
        self.is_statement = true;
        self.request.set_command(b"bulkWrite");
        self.request.namespaces.set_only(self.fields.namespace.bytes());
        self.request.begin_statement();
    }

    /// The open document is not a query, and is skipped.
    fn pass_over(&mut self) -> bool {
        self.completeness = Completeness::Nothing;
        self.inside = EntryPlace::Top;
        false
    }

    /// The command that opened the cursor takes the place of the getMore.
    fn begin_origin(&mut self) -> Opened {
        self.note_cursor();
        self.in_origin = true;
        self.request.reset(Opcode::Msg);
        self.inside = EntryPlace::Command { depth: 0, begun: false };
        Opened::Enter
    }

    /// `command: {}` or `query: {}`, which match everything in the old protocol.
    fn close_empty(&mut self) {
        if self.fields.op == Op::GetMore || self.in_origin {
            self.follows = Some("getMore");
        } else if self.fields.op != Op::Query {
            return;
        }
        self.begin_find();
        self.request.end_part();
    }

    /// Keeps the fields of a getMore that the command that opened its cursor does not have.
    fn note_cursor(&mut self) {
        if self.request.kind == CommandKind::GetMore {
            self.waits |= self.request.max_time;
            self.used_cursor = self.used_cursor.or(self.request.cursor);
        }
    }

    /// Begins the filter or the update of a write before 3.6.
    fn begin_part(&mut self, update: bool) -> Opened {
        if !self.request.builder.is_open() {
            self.is_statement = true;
            self.request.set_namespace(self.fields.namespace.bytes());
            let name: &[u8] = if self.fields.op == Op::Remove { b"delete" } else { b"update" };
            self.request.set_command(name);
            self.request.begin_statement();
            self.completeness =
                if self.completeness == Completeness::Cut { Completeness::Cut } else { Completeness::Most };
        }
        if update {
            self.request.begin_part(2, "u", ContainerMode::Update);
            self.inside = EntryPlace::Update { depth: 0 };
        } else {
            self.request.begin_part(1, "q", ContainerMode::Filter);
            self.inside = EntryPlace::Filter { depth: 0 };
        }
        Opened::Enter
    }

    fn top_open(&mut self, key: &Key<'_>, array: bool) -> Opened {
        if self.in_cursor && (array || key.bytes != b"originatingCommand") {
            return Opened::Skip;
        }
        if array && key.bytes == b"resolvedViews" {
            self.inside = EntryPlace::EntrySection { section: EntrySection::Views, depth: 0 };
            return Opened::Enter;
        }
        if array {
            return Opened::Skip;
        }
        let section = match (key.bytes, self.fields.op) {
            (b"command" | b"query" | b"q", Op::None | Op::Transaction) => return Opened::Skip,
            (b"CRUD" | b"command", Op::Applied) => {
                self.inside = EntryPlace::Oplog { object: false };
                return Opened::Enter;
            }
            (b"query", Op::Update | Op::Remove) => return self.begin_part(false),
            (b"updateobj" | b"update", Op::Update) => return self.begin_part(true),
            (b"command" | b"query", _) => return self.begin_command(),
            (b"originatingCommand", _) => return self.begin_origin(),
            (b"cursor", Op::GetMore) => {
                self.in_cursor = true;
                return Opened::Enter;
            }
            (b"locks", _) if self.no_lock_waits => return Opened::Skip,
            (b"locks" | b"lockStats", _) => EntrySection::Locks,
            (b"storage", _) => EntrySection::Storage,
            (b"queues", _) => EntrySection::Queues,
            (b"flowControl", _) => EntrySection::FlowControl,
            _ => return Opened::Skip,
        };
        self.inside = EntryPlace::EntrySection { section, depth: 0 };
        Opened::Enter
    }

    /// Whether the element is the text of a command that the source cut.
    fn is_cut(&mut self, key: &Key<'_>, kind: ElementKind) -> bool {
        let is_cut = kind == ElementKind::String && key.bytes == b"$truncated";
        if is_cut {
            self.completeness = Completeness::Cut;
            self.inside = EntryPlace::Top;
        }
        is_cut
    }
}

/// The collection in the namespace of a cursor of `listIndexes` (`$cmd.listIndexes.people`).
fn collection_of_cursor(collection: &[u8]) -> &[u8] {
    collection.strip_prefix(b"$cmd.listIndexes.").unwrap_or(collection)
}

/// Whether a first key is that of a command that opens a cursor.
fn is_opener(key: &[u8]) -> bool {
    matches!(
        key,
        b"find"
            | b"aggregate"
            | b"listCollections"
            | b"listIndexes"
            | b"parallelCollectionScan"
            | b"bulkWrite"
    )
}

/// Whether a first key is that of a command that opens or follows a cursor. If its value is a string other than the
/// collection, it is a query on a field of this name.
fn is_cursor_command(key: &[u8], no_text: bool, names_it: bool) -> bool {
    (key == b"getMore" && no_text) || (is_opener(key) && (no_text || names_it))
}

/// Whether a first key names a command, which means that the keys are in the server's order.
fn is_known_first(key: &[u8]) -> bool {
    commands::rule(key).is_some_and(|rule| rule.kind != CommandKind::Other || rule.names_a_collection())
}
