//! What is read of a request: the command, its namespace, its shape, its sender.

use sonar_core::operation::Opcode;

use super::client::ClientDocument;
use super::name::Name;
use super::statement_namespaces::StatementNamespaces;
use crate::bson::{BsonValue, ElementKind, ElementStep, Key, NumberSlot, Opened, Use, Visitor};
use crate::commands::{self, CommandRule, NamespacePlace};
use crate::names;
use crate::shape::{Builder, CommandKind, ContainerMode, Field, Text};

/// The most namespaces of one bulkWrite that are kept; with more, its shape counts as over the caps.
const MAX_NAMESPACES: usize = 256;

/// Where in the command the reader is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum RequestPart {
    Top,
    /// In a part that the shape builder reads.
    Shape,
    CursorIds,
    Namespaces,
    Namespace,
    Client,
    /// In the document that is the value of `group`.
    Group,
}

/// What a request says, read element by element; its buffers are reused.
pub struct Request<T: Text> {
    /// Builder of the shape.
    pub builder: Builder<T>,
    /// Opcode, after decompression.
    pub opcode: Opcode,
    /// Which command.
    pub kind: CommandKind,
    /// Name of the command as sent.
    pub command: Name,
    /// `$db`, or the database of a legacy namespace.
    pub database: Name,
    /// The collection.
    pub collection: Name,
    /// Whether `$db` was seen: only requests have it.
    pub has_database: bool,
    /// The cursor that is used or killed.
    pub cursor: Option<i64>,
    /// The client wants no answer (`moreToCome`, legacy writes).
    pub unacknowledged: bool,
    /// `hello` that waits for a change of topology.
    pub awaits_topology: bool,
    /// A tailable cursor that waits for data is opened.
    pub await_data: bool,
    /// Replies follow without further requests (flag `exhaust` of OP_QUERY).
    pub exhaust: bool,
    tailable: bool,
    /// getMore with `maxTimeMS`, which only cursors that wait may have.
    pub max_time: bool,
    /// Sent by a server, not by an application.
    pub from_server: bool,
    /// `explain` was requested.
    pub explain: bool,
    /// The `client` document of a hello.
    pub client: ClientDocument,
    /// Whether there is one.
    pub has_client: bool,
    /// Whether the hello has `internalClient`, as a server's does.
    pub internal_client: bool,
    /// Namespaces of the statements of a bulkWrite.
    pub namespaces: StatementNamespaces,
    /// Whether servers are known to have the command, so that its namespace and its shape are known too.
    pub is_known: bool,
    /// Where the command names its namespace.
    place: NamespacePlace,
    /// The command named a database, which is not the one that it is sent to.
    names_database: bool,
    in_group: bool,
    inside: RequestPart,
    explain_open: bool,
    first_key_seen: bool,
    /// The document is the query of a legacy message, not a command.
    legacy_query: bool,
    wrapped: bool,
    legacy_find: bool,
}

impl<T: Text> Default for Request<T> {
    fn default() -> Self {
        Self {
            builder: Builder::default(),
            opcode: Opcode::Msg,
            kind: CommandKind::Other,
            command: Name::default(),
            database: Name::default(),
            collection: Name::default(),
            has_database: false,
            cursor: None,
            unacknowledged: false,
            awaits_topology: false,
            await_data: false,
            exhaust: false,
            tailable: false,
            max_time: false,
            from_server: false,
            explain: false,
            client: ClientDocument::default(),
            has_client: false,
            internal_client: false,
            namespaces: StatementNamespaces::default(),
            is_known: true,
            place: NamespacePlace::Database,
            names_database: false,
            in_group: false,
            inside: RequestPart::Top,
            explain_open: false,
            first_key_seen: false,
            legacy_query: false,
            wrapped: false,
            legacy_find: false,
        }
    }
}

impl<T: Text> Request<T> {
    /// Forgets everything; ready for a message of `opcode`.
    pub fn reset(&mut self, opcode: Opcode) {
        self.builder.reset();
        self.opcode = opcode;
        self.kind = CommandKind::Other;
        self.command.clear();
        self.database.clear();
        self.collection.clear();
        self.has_database = false;
        self.cursor = None;
        self.unacknowledged = false;
        self.awaits_topology = false;
        self.await_data = false;
        self.exhaust = false;
        self.tailable = false;
        self.max_time = false;
        self.from_server = false;
        self.explain = false;
        self.client.reset();
        self.has_client = false;
        self.internal_client = false;
        self.namespaces.clear();
        self.is_known = true;
        self.place = NamespacePlace::Database;
        self.names_database = false;
        self.in_group = false;
        self.inside = RequestPart::Top;
        self.explain_open = false;
        self.first_key_seen = false;
        self.legacy_query = false;
        self.wrapped = false;
        self.legacy_find = false;
    }

    /// Sets the command's name if the layout of the message implies it.
    pub fn set_command(&mut self, name: &[u8]) {
        self.command.set(name);
        self.learn(name);
        // The message itself says what it is.
        self.is_known = true;
    }

    /// Looks the command up that decides shape and namespace.
    fn learn(&mut self, name: &[u8]) -> CommandRule {
        let rule = commands::rule(name);
        self.is_known = rule.is_some();
        let rule = rule.unwrap_or_default();
        (self.kind, self.place) = (rule.kind, rule.namespace);
        self.builder.set_command(self.kind);
        rule
    }

    /// Splits a legacy namespace. Returns whether it is that of a command (`db.$cmd`).
    pub fn set_namespace(&mut self, namespace: &[u8]) -> bool {
        let dot = memchr::memchr(b'.', namespace).unwrap_or(namespace.len());
        self.database.set(&namespace[..dot]);
        self.has_database = true;
        let collection = namespace.get(dot + 1..).unwrap_or_default();
        if collection == b"$cmd" {
            return true;
        }
        self.collection.set(collection);
        false
    }

    /// Takes the command from a key that is not the first one, in a document whose keys are in another order.
    pub fn name_command(&mut self, name: &[u8], collection: Option<&[u8]>) {
        self.first_key_seen = true;
        self.command.set(name);
        let rule = self.learn(name);
        if let Some(collection) = collection.filter(|_| rule.names_a_collection()) {
            self.collection.set(collection);
        }
    }

    /// The command is not known: its name was not captured, or no server has it.
    pub fn leave_unnamed(&mut self) {
        self.command.set(names::UNPROVEN);
        self.is_known = false;
    }

    /// Corrects the collection, if the source itself names it.
    pub fn set_collection(&mut self, collection: &[u8]) {
        self.collection.set(collection);
    }

    /// The database alone, as OP_COMMAND gives it.
    pub fn set_database(&mut self, database: &[u8]) {
        if !self.names_database {
            self.database.set(database);
        }
        self.has_database = true;
    }

    /// Takes the first value of a command, a string, if it is a namespace or a part of one. Returns whether it is.
    fn take_namespace(&mut self, value: &[u8]) -> bool {
        match self.place {
            NamespacePlace::Value => self.collection.set(value),
            NamespacePlace::Whole if !value.contains(&b'.') => {}
            NamespacePlace::Whole | NamespacePlace::DatabaseValue if names::is_namespace(value) => {
                let had_database = self.has_database;
                self.set_namespace(value);
                (self.has_database, self.names_database) = (had_database, true);
            }
            NamespacePlace::Whole | NamespacePlace::DatabaseValue => {}
            _ => return false,
        }
        true
    }

    /// Takes the namespace of a bulkWrite, which has been read to its end, from those of its statements: of several
    /// the database, if that is one.
    pub fn settle_namespace(&mut self) {
        if self.kind != CommandKind::BulkWrite || self.names_database {
            return;
        }
        let used: Vec<_> = self.builder.statements().iter().map(|one| one.namespace.unwrap_or(0)).collect();
        let all = |used: Vec<i64>| -> Option<Vec<&Name>> {
            used.into_iter().map(|index| self.namespaces.get(index)).collect()
        };
        // A source that leaves the statements out has the list.
        let names =
            if used.is_empty() { self.namespaces.iter().collect() } else { all(used).unwrap_or_default() };
        let database = |name: &Name| {
            let bytes = name.bytes();
            bytes[..memchr::memchr(b'.', bytes).unwrap_or(bytes.len())].to_vec()
        };
        let Some((first, others)) = names.split_first() else { return };
        if others.iter().all(|name| name == first) {
            let namespace = first.bytes().to_vec();
            self.set_namespace(&namespace);
        } else if others.iter().all(|name| database(name) == database(first)) {
            let database = database(first);
            self.database.set(&database);
        } else {
            return;
        }
        self.names_database = true;
    }

    /// Begins the query document of a legacy find.
    pub fn begin_legacy_query(&mut self) {
        self.legacy_query = true;
        self.legacy_find = true;
        self.inside = RequestPart::Shape;
        self.builder.open_part(1, "filter", ContainerMode::Filter);
    }

    /// Begins a document that is the part `name` of a legacy message.
    pub fn begin_part(&mut self, rank: u8, name: &'static str, mode: ContainerMode) {
        self.inside = RequestPart::Shape;
        self.builder.open_part(rank, name, mode);
    }

    /// Begins one statement of a kind-1 section.
    pub fn begin_statement(&mut self) {
        self.inside = RequestPart::Shape;
        self.builder.open_statement();
    }

    /// Begins one entry of the section `nsInfo`.
    pub fn begin_namespace(&mut self) {
        self.inside = RequestPart::Namespace;
        // Also one beyond the cap, which takes the name until it ends.
        self.namespaces.push();
    }

    fn end_namespace(&mut self) {
        if self.namespaces.truncate(MAX_NAMESPACES) {
            self.builder.over_cap = true;
        }
    }

    /// Ends a document that the caller began.
    pub fn end_part(&mut self) {
        if self.inside == RequestPart::Shape && self.builder.is_open() {
            self.builder.close();
        }
        if self.inside == RequestPart::Namespace {
            self.end_namespace();
        }
        if self.legacy_query && self.explain {
            // A find with `$explain` is today's `explain` command.
            self.command.set(b"explain");
        }
        self.legacy_query = false;
        self.inside = if self.builder.is_open() { RequestPart::Shape } else { RequestPart::Top };
    }

    /// Whether this is a getLastError, which reports on the write before it.
    pub fn is_get_last_error(&self) -> bool {
        self.command.bytes().eq_ignore_ascii_case(b"getlasterror")
    }

    /// Takes the first key of a command.
    pub fn first_key(&mut self, key: &Key<'_>) {
        self.first_key_seen = true;
        if !self.explain_open || self.command.bytes() == b"explain" {
            let inner = self.explain_open;
            if !inner {
                self.command.set(if names::is_command_like(key.bytes) { key.bytes } else { names::UNPROVEN });
            }
            self.learn(key.bytes);
            if self.place == NamespacePlace::Root {
                self.collection.set(b"fs.chunks");
            }
        }
    }

    fn top_element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
        let first = !self.first_key_seen;
        if first {
            self.first_key(&key);
        }
        let bytes = match value {
            BsonValue::Bytes(bytes) => bytes,
            BsonValue::Long => &[],
        };
        let integer = || crate::shape::integer(kind, bytes);
        if first {
            return match (self.kind, kind) {
                (CommandKind::GetMore, ElementKind::Int64) => {
                    self.cursor = bytes.first_chunk().map(|b| i64::from_le_bytes(*b));
                    ElementStep::Using(Use::Number(NumberSlot::Cursor))
                }
                (CommandKind::Profile, _) => self.builder.command_element(key, kind, value),
                (_, ElementKind::String) if self.take_namespace(bytes) => ElementStep::Next,
                _ => ElementStep::Using(Use::Type),
            };
        }
        match key.bytes {
            b"$db" => {
                self.set_database(bytes);
                return ElementStep::Next;
            }
            b"maxTimeMS" => self.max_time = true,
            b"root" if self.place == NamespacePlace::Root && kind == ElementKind::String => {
                self.collection.set(&[bytes, b".chunks"].concat());
                return ElementStep::Next;
            }
            b"maxAwaitTimeMS" if self.kind == CommandKind::Hello => self.awaits_topology = true,
            b"internalClient" => {
                self.internal_client = true;
                self.from_server = true;
            }
            b"shardVersion" | b"$configTime" | b"$topologyTime" | b"term" | b"$oplogQueryData" => {
                self.from_server = true
            }
            // Used here and, as flags, by the builder: all of the value may matter.
            b"collection" | b"tailable" | b"awaitData" | b"explain" => {
                match key.bytes {
                    b"collection" if self.kind == CommandKind::GetMore => self.collection.set(bytes),
                    b"tailable" => self.tailable = integer() == Some(1),
                    b"awaitData" => self.await_data = integer() == Some(1),
                    b"explain" if self.kind == CommandKind::Aggregate => {
                        self.explain |= integer() == Some(1);
                    }
                    _ => {}
                }
                self.builder.command_element(key, kind, value);
                return ElementStep::Next;
            }
            _ => {}
        }
        self.builder.command_element(key, kind, value)
    }

    fn top_open(&mut self, key: Key<'_>, array: bool) -> Opened {
        if !self.first_key_seen {
            // With a read preference, drivers of the old protocol wrap commands as they do queries.
            if self.opcode == Opcode::Query && !array && matches!(key.bytes, b"$query" | b"query") {
                return Opened::Enter;
            }
            self.first_key(&key);
            if key.bytes == b"explain" && !array && !self.explain_open {
                self.explain = true;
                self.explain_open = true;
                self.first_key_seen = false;
                return Opened::Enter;
            }
            if self.place == NamespacePlace::Inside && !array {
                self.in_group = true;
                self.inside = RequestPart::Group;
                return Opened::Enter;
            }
            return Opened::Skip;
        }
        let (inside, opened) = match (self.kind, key.bytes, array) {
            (CommandKind::KillCursors, b"cursors", true) => (RequestPart::CursorIds, Opened::Enter),
            (CommandKind::BulkWrite, b"nsInfo", true) => (RequestPart::Namespaces, Opened::Enter),
            (CommandKind::Hello, b"client", false) => {
                self.has_client = true;
                (RequestPart::Client, Opened::Enter)
            }
            (
                _,
                b"$client"
                | b"$replData"
                | b"$configServerState"
                | b"shardVersion"
                | b"$oplogQueryData"
                | b"internalClient"
                | b"databaseVersion"
                | b"$configTime",
                false,
            ) => {
                self.internal_client |= key.bytes == b"internalClient";
                self.from_server |= key.bytes != b"$client";
                return Opened::Skip;
            }
            (CommandKind::Update, b"updates", true)
            | (CommandKind::Delete, b"deletes", true)
            | (CommandKind::BulkWrite, b"ops", true) => {
                self.builder.open_part(0, "", ContainerMode::Statements);
                (RequestPart::Shape, Opened::Enter)
            }
            _ => (RequestPart::Shape, self.builder.command_open(key, array)),
        };
        if opened == Opened::Enter {
            self.inside = inside;
        }
        opened
    }

    /// The wrapper of legacy queries without `$`: `{query: …, orderby: …}`.
    fn legacy_key<'k>(&mut self, key: Key<'k>) -> Key<'k> {
        if !self.legacy_query || self.builder.depth() != 2 {
            return key;
        }
        let first = !self.first_key_seen;
        self.first_key_seen = true;
        match key.bytes {
            b"query" if first => {
                self.wrapped = true;
                Key::new(b"$query")
            }
            b"orderby" if self.wrapped => Key::new(b"$orderby"),
            _ => key,
        }
    }
}

impl<T: Text> Visitor for Request<T> {
    #[inline]
    fn element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
        match self.inside {
            RequestPart::Shape => {
                let key = self.legacy_key(key);
                if self.legacy_query && self.builder.depth() == 2 && key.is_operator() {
                    // Modifiers of legacy queries that are not part of the shape.
                    match key.bytes {
                        b"$explain" => {
                            let BsonValue::Bytes(bytes) = value else { return ElementStep::Next };
                            self.explain |= crate::shape::integer(kind, bytes).is_some_and(|flag| flag != 0);
                        }
                        b"$where" => return self.builder.element(key, kind, value),
                        _ => {}
                    }
                    return ElementStep::Next;
                }
                return self.builder.element(key, kind, value);
            }
            RequestPart::Top => return self.top_element(key, kind, value),
            RequestPart::CursorIds => {
                if let (None, ElementKind::Int64, BsonValue::Bytes(bytes)) = (self.cursor, kind, value) {
                    self.cursor = bytes.first_chunk().map(|bytes| i64::from_le_bytes(*bytes));
                    return ElementStep::Using(Use::Number(NumberSlot::Cursor));
                }
                return ElementStep::Using(Use::Type);
            }
            RequestPart::Namespaces => {}
            RequestPart::Group if key.bytes == b"ns" => {
                if let (ElementKind::String, BsonValue::Bytes(bytes)) = (kind, value) {
                    self.collection.set(bytes);
                }
            }
            RequestPart::Group => return self.builder.command_element(key, kind, value),
            RequestPart::Client => return self.client.element(key, kind, value),
            RequestPart::Namespace => {
                if let (b"ns", BsonValue::Bytes(bytes), Some(name)) =
                    (key.bytes, value, self.namespaces.last_mut())
                {
                    name.set(bytes);
                }
            }
        }
        ElementStep::Next
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        match self.inside {
            RequestPart::Shape => {
                let key = self.legacy_key(key);
                self.builder.open(key, array)
            }
            RequestPart::Top => self.top_open(key, array),
            RequestPart::Namespaces => {
                self.begin_namespace();
                Opened::Enter
            }
            RequestPart::Client => self.client.open(key, array),
            RequestPart::Group => {
                let opened = self.builder.command_open(key, array);
                if opened == Opened::Enter {
                    self.inside = RequestPart::Shape;
                }
                opened
            }
            _ => Opened::Skip,
        }
    }

    fn close(&mut self) {
        self.inside = match self.inside {
            RequestPart::Shape => {
                self.builder.close();
                match self.builder.is_open() {
                    true => RequestPart::Shape,
                    false if self.in_group => RequestPart::Group,
                    false => RequestPart::Top,
                }
            }
            RequestPart::Group => {
                self.in_group = false;
                RequestPart::Top
            }
            RequestPart::Namespace => {
                self.end_namespace();
                RequestPart::Namespaces
            }
            RequestPart::Client if self.client.is_in_part() => {
                self.client.close();
                RequestPart::Client
            }
            RequestPart::Top => {
                self.explain_open = false;
                RequestPart::Top
            }
            _ => RequestPart::Top,
        };
    }
}

/// Adds to the shape what a legacy message states by bits and numbers.
impl<T: Text> Request<T> {
    /// `limit`, `skip`, `singleBatch` of OP_QUERY.
    pub fn mark(&mut self, rank: u8, name: &'static str, field: Field) {
        self.builder.add_mark(rank, name, field);
    }

    /// Whether this is a find of the legacy protocol, whose reply consists of the documents.
    pub fn is_legacy_find(&self) -> bool {
        self.legacy_find
    }

    /// Whether the cursor that is opened waits for data.
    pub fn opens_waiting_cursor(&self) -> bool {
        self.builder.change_stream || (self.await_data && (self.tailable || self.opcode == Opcode::Query))
    }
}
