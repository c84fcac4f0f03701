//! What is asked, by whom and what for? Makes of a request that has been read what waits for its reply.
//!
//! Its shape is found by [`shape`](super::shape), its class by [`class`](crate::class); the waiting is
//! left to [`pair`](super::pair).

use std::sync::Arc;

use sonar_core::operation::{Compressor, Opcode};
use sonar_core::{Application, Endpoint, ShapeId, ShapeInfo, Statement, Timestamp};

use super::Core;
use super::connection::Connection;
use super::pair::Pending;
use crate::bson::Slot;
use crate::class::{Classes, Facts};
use crate::identity::{CursorOrigin, MaybeRendered, is_server};
use crate::message::{Found, Header, Place, Request, to_text};
use crate::shape::{CommandKind, Text};

/// Bytes of a command's text, with `show_values`.
const VALUES_BUDGET: usize = 2_048;

/// The most statements of a request whose layout is remembered.
const MAX_STATEMENTS: u32 = 8;

/// A request that was read to its end, without its buffers.
pub(super) struct ReadRequest {
    pub pending: Pending,
    pub unacknowledged: bool,
    pub legacy_write: bool,
    pub get_last_error: bool,
}

/// When, how and to whom a request was sent.
pub(super) struct Sent {
    pub server: Endpoint,
    pub header: Header,
    pub compressor: Option<Compressor>,
    pub time: Timestamp,
    pub provisional: bool,
}

/// What every request of one layout has in common, whatever its values are.
#[derive(Clone, Debug)]
pub(super) struct RequestFacts {
    kind: CommandKind,
    opcode: Opcode,
    classes: Classes,
    /// Only a server sends this.
    from_server: bool,
    unacknowledged: bool,
    get_last_error: bool,
    legacy_find: bool,
    /// Wants a chain of replies, by OP_QUERY's flag.
    exhaust: bool,
    /// It waits, or for a getMore: its cursor does.
    waits: bool,
    opens_waiting: bool,
    /// Not known of a getMore or killCursors that has always been another's.
    shape: Option<Shape>,
}

/// The shape of a request, and what it is made of.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub info: Arc<ShapeInfo>,
    pub ordered_id: ShapeId,
    pub statements: Arc<[Statement]>,
    pub statement_count: u32,
}

/// What an operation counts for.
struct Subject {
    shape: Shape,
    /// The command, where the shape is that of another, which opened the cursor.
    command: Option<&'static str>,
    /// The cursor waits on purpose.
    waits: bool,
}

impl Subject {
    fn own(shape: Shape) -> Self {
        Self { shape, command: None, waits: false }
    }
}

impl RequestFacts {
    fn of<T: Text>(request: &Request<T>) -> Self {
        let Request { kind, opcode, .. } = *request;
        Self {
            kind,
            opcode,
            classes: Classes::of(&Facts {
                kind,
                command: request.command.bytes(),
                database: request.database.bytes(),
                collection: request.collection.bytes(),
            }),
            from_server: request.from_server,
            unacknowledged: request.unacknowledged || opcode == Opcode::KillCursors,
            get_last_error: request.is_get_last_error(),
            legacy_find: opcode == Opcode::GetMore
                || (opcode == Opcode::Query && kind == CommandKind::Find && request.is_legacy_find()),
            exhaust: request.exhaust,
            waits: match kind {
                CommandKind::GetMore => request.max_time,
                CommandKind::Hello => request.awaits_topology,
                _ => false,
            },
            opens_waiting: request.opens_waiting_cursor(),
            shape: None,
        }
    }
}

impl Core {
    /// A request whose layout is known, read without being walked; else the place where its template is
    /// wanted, if it is.
    #[inline]
    pub(super) fn recognised(
        &mut self,
        conn: &mut Connection,
        body: &[u8],
        sent: &Sent,
    ) -> Result<ReadRequest, Option<Place>> {
        let (mut meaning, cursor) = match self.requests.find(body) {
            Found::Known(meaning, told) => (meaning.clone(), told.get(Slot::Cursor)),
            Found::Wanted(place) => return Err(Some(place)),
            Found::Unknown => return Err(None),
        };
        let subject = match self.opener(sent.server, meaning.kind, cursor) {
            Some(subject) => subject,
            None => Subject::own(meaning.shape.take().ok_or(None)?),
        };
        Ok(self.asked(conn, &meaning, cursor, subject, Some(body), sent))
    }

    /// A request that has been walked; `body`, where it is at hand, is what it was read from.
    pub(super) fn walked<T: Text + MaybeRendered>(
        &mut self,
        conn: &mut Connection,
        request: &mut Request<T>,
        body: Option<&[u8]>,
        sent: &Sent,
    ) -> (ReadRequest, RequestFacts) {
        if request.has_client {
            let app = Application::from(&request.client);
            conn.from_server |= is_server(&app, Some(request.internal_client));
            conn.app = self.apps.shared(app).unwrap_or_else(|| self.apps.other.clone());
        }
        let mut meaning = RequestFacts::of(request);
        let subject = match self.opener(sent.server, meaning.kind, request.cursor) {
            Some(subject) => subject,
            None => Subject::own(meaning.shape.insert(self.shape(request, body)).clone()),
        };
        let asked = self.asked(conn, &meaning, request.cursor, subject, body, sent);
        (asked, meaning)
    }

    /// Remembers the layout of a request that has been walked, and what it came to.
    pub(super) fn remember(
        &mut self,
        place: Place,
        body: &[u8],
        request: &mut Request<()>,
        meaning: RequestFacts,
    ) {
        // What is counted each time, or makes an application known, is walked each time.
        let folded = meaning.shape.as_ref().is_some_and(|shape| Arc::ptr_eq(&shape.info, &self.other_shape));
        let many = request.builder.statement_count > MAX_STATEMENTS;
        if !(request.has_client || request.builder.over_cap || folded || many) {
            let cursor = request.cursor;
            self.requests.add(place, body, request, meaning, |_, told| told.get(Slot::Cursor) == cursor);
        }
    }

    /// The shape that opened the cursor of a getMore or killCursors.
    fn opener(&self, server: Endpoint, kind: CommandKind, cursor: Option<i64>) -> Option<Subject> {
        let command = match kind {
            CommandKind::GetMore => "getMore",
            CommandKind::KillCursors => "killCursors",
            _ => return None,
        };
        let CursorOrigin { shape, ordered_id, waits, .. } = self.shared.cursor(server, cursor?)?;
        let shape = Shape { info: shape, ordered_id, statements: Arc::default(), statement_count: 1 };
        Some(Subject { shape, command: Some(command), waits: waits && kind == CommandKind::GetMore })
    }

    /// Makes of a request that has been read what waits for its answer.
    #[inline]
    fn asked(
        &mut self,
        conn: &mut Connection,
        meaning: &RequestFacts,
        cursor: Option<i64>,
        subject: Subject,
        body: Option<&[u8]>,
        sent: &Sent,
    ) -> ReadRequest {
        let RequestFacts { kind, opcode, .. } = *meaning;
        let Subject { shape, command, waits } = subject;
        conn.from_server |= meaning.from_server;
        let values = match body {
            Some(body) if self.settings.show_values => {
                command_document(opcode, body).map(|document| to_text(document, VALUES_BUDGET).into())
            }
            _ => None,
        };
        let follows_cursor = matches!(kind, CommandKind::GetMore | CommandKind::KillCursors);
        self.coverage.cursors_joined_late +=
            u64::from(follows_cursor && cursor.is_some() && command.is_none());
        let class = meaning.classes.class(conn.from_server, meaning.waits || waits);
        ReadRequest {
            unacknowledged: meaning.unacknowledged,
            legacy_write: matches!(opcode, Opcode::Insert | Opcode::Update | Opcode::Delete),
            get_last_error: meaning.get_last_error,
            pending: Pending {
                number: 0,
                request_id: sent.header.request_id,
                own_id: sent.header.request_id,
                start: sent.time,
                shape: shape.info,
                ordered_id: shape.ordered_id,
                statements: shape.statements,
                statement_count: shape.statement_count,
                class,
                kind,
                command,
                opcode,
                compressor: sent.compressor,
                cursor,
                bytes: sent.header.length,
                legacy_find: meaning.legacy_find,
                opens_waiting: meaning.opens_waiting,
                provisional: sent.provisional,
                follows: false,
                joined_late: false,
                passed: None,
                exhaust: meaning.exhaust,
                answers: None,
                values,
            },
        }
    }
}

/// The command itself in a message that is all there.
fn command_document(opcode: Opcode, body: &[u8]) -> Option<&[u8]> {
    let length = |at: usize| {
        body.get(at..at + 4)
            .and_then(|bytes| bytes.first_chunk())
            .map(|bytes| u32::from_le_bytes(*bytes) as usize)
    };
    match opcode {
        Opcode::Msg => {
            let mut at = 4;
            loop {
                let size = length(at + 1)?;
                match body.get(at)? {
                    0 => return body.get(at + 1..at + 1 + size),
                    _ => at += 1 + size.max(1),
                }
            }
        }
        Opcode::Query => {
            let end = memchr::memchr(0, body.get(4..)?)?;
            let at = 4 + end + 1 + 8;
            body.get(at..at + length(at)?)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use crate::decoder::collected::{collect, message};
    use crate::identity::MAX_APPLICATIONS;
    use crate::testing::{Conversation, End};

    /// The classes and roles of what a client asks whose hello says this.
    fn role_of(hello: bson::Document) -> sonar_core::Role {
        let mut talk = Conversation::new("10.0.0.2:40000", "10.0.0.1:27017");
        talk.handshake();
        for (id, command) in [(1, hello), (2, doc! {"find": "orders", "$db": "shop"})] {
            talk.send(End::Client, &message(id, 0, &command));
            talk.send(End::Server, &message(100 + id, id, &doc! {"ok": 1.0}));
        }
        let seen = collect(&talk.packets);
        let find = seen.window.shapes.iter().find(|row| row.shape().command.as_ref() == "find").unwrap();
        find.role
    }

    #[test]
    fn the_old_shell_and_the_tools_are_clients_though_their_driver_is_the_servers() {
        let hello = |name: &str, version: &str| {
            let mut client = doc! {"driver": {"name": "MongoDB Internal Client"}};
            if !name.is_empty() {
                client.insert("application", doc! {"name": name});
            }
            if !version.is_empty() {
                client.get_document_mut("driver").unwrap().insert("version", version);
            }
            doc! {"isMaster": 1, "client": client, "$db": "admin"}
        };
        use sonar_core::Role::{Issued, Served};
        for version in ["3.4.24", "4.0.3", "5.0.14", ""] {
            for name in ["MongoDB Shell", "mongodump", "mongorestore", "mongostat"] {
                assert_eq!(role_of(hello(name, version)), Served, "{name} {version}");
            }
        }
        // A shell with a name of its own: from 3.6 on a server would say that it is one.
        assert_eq!(role_of(hello("nightly report", "4.0.3")), Served);
        // Servers: they say so, or they are too old to.
        let says_so = |mut hello: bson::Document, first: bool| {
            let wire = doc! {"minWireVersion": 9, "maxWireVersion": 9};
            let at_end = hello.remove("client").unwrap();
            let mut again = doc! {"isMaster": 1};
            if first {
                again.insert("internalClient", wire.clone());
            }
            again.insert("client", at_end);
            if !first {
                again.insert("internalClient", wire);
            }
            again.insert("$db", "admin");
            again
        };
        for first in [false, true] {
            assert_eq!(role_of(says_so(hello("", "4.4.6"), first)), Issued);
            assert_eq!(role_of(says_so(hello("MongoDB Shell", ""), first)), Issued, "nobody else says it");
        }
        assert_eq!(role_of(hello("", "3.4.24")), Issued);
        assert_eq!(role_of(hello("", "")), Issued);
    }

    #[test]
    fn applications_beyond_the_cap_are_one_and_are_counted() {
        let mut talk = Conversation::new("10.0.0.2:40000", "10.0.0.1:27017");
        talk.handshake();
        let mut ask = |id: u32, command| {
            talk.send(End::Client, &message(id, 0, &command));
            talk.send(End::Server, &message(10_000 + id, id, &doc! {"ok": 1.0}));
        };
        let applications = MAX_APPLICATIONS as u32 + 1;
        for id in 1..=applications {
            let client = doc! {
                "application": {"name": format!("app {id}")},
                "driver": {"name": "nodejs", "version": "7.1.0"},
            };
            ask(id, doc! {"hello": 1, "client": client, "$db": "admin"});
        }
        // Of the last application, like the hello before it.
        ask(applications + 1, doc! {"find": "orders", "$db": "shop"});
        let seen = collect(&talk.packets);
        assert_eq!(seen.operations.len(), applications as usize + 1);
        assert_eq!(seen.coverage.apps_folded, 2);
        assert_eq!(seen.window.apps.iter().count(), MAX_APPLICATIONS + 2, "`other` has two classes");
    }
}
