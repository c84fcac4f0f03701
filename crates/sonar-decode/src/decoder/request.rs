//! What is asked, and for what purpose? Turns a request that has been read into what waits for its reply.

use sonar_core::Timestamp;
use sonar_core::operation::{Compressor, Opcode};

use super::connection::Client;
use super::exchange::Pending;
use super::identify::RequestShape;
use crate::class::{ClassFacts, CommandClass};
use crate::message::{Header, Request};
use crate::names;
use crate::shape::{CommandKind, Text};

/// What all requests of one layout have in common, whatever their values are.
#[derive(Copy, Clone, Debug)]
pub struct RequestFacts {
    pub kind: CommandKind,
    opcode: Opcode,
    classes: CommandClass,
    /// Only servers send this.
    from_server: bool,
    unacknowledged: bool,
    get_last_error: bool,
    /// What it asks was not captured; a getLastError would look like this.
    may_be_last_error: bool,
    legacy_find: bool,
    /// Wants a chain of replies, by the flag of OP_QUERY.
    exhaust: bool,
    /// It waits on purpose.
    waits: bool,
    opens_waiting: bool,
}

impl RequestFacts {
    pub fn of<T: Text>(request: &Request<T>) -> Self {
        let Request { kind, opcode, .. } = *request;
        Self {
            kind,
            opcode,
            classes: CommandClass::of(&ClassFacts {
                kind,
                command: request.command.bytes(),
                database: request.database.bytes(),
                collection: request.collection.bytes(),
            }),
            from_server: request.from_server,
            unacknowledged: request.unacknowledged || opcode == Opcode::KillCursors,
            get_last_error: request.is_get_last_error(),
            may_be_last_error: false,
            legacy_find: opcode == Opcode::GetMore
                || (opcode == Opcode::Query && kind == CommandKind::Find && request.is_legacy_find()),
            exhaust: request.exhaust,
            waits: match kind {
                CommandKind::GetMore => request.max_time,
                CommandKind::Hello => request.awaits_topology,
                _ => false,
            },
            opens_waiting: request.opens_waiting_cursor(),
        }
    }

    /// Of a request whose end was not captured.
    pub fn of_beginning<T: Text>(request: &Request<T>) -> Self {
        let is_unnamed = request.command.bytes() == names::UNPROVEN;
        let may_be_last_error = is_unnamed && matches!(request.opcode, Opcode::Query | Opcode::Command);
        Self { may_be_last_error, ..Self::of(request) }
    }
}

/// A request that was read to its end.
pub struct ReadRequest {
    pub facts: RequestFacts,
    pub shape: RequestShape,
    /// The cursor that it uses.
    pub cursor: Option<i64>,
    /// Who sends it, if it says so.
    pub client: Option<Client>,
    /// Its text with values, if requested.
    pub values: Option<Box<str>>,
}

/// When and how a request was sent.
#[derive(Copy, Clone)]
pub struct Sent {
    pub header: Header,
    pub compressor: Option<Compressor>,
    pub time: Timestamp,
    pub provisional: bool,
}

/// A request that has been sent, with its place among the others still to be found.
pub struct SentRequest {
    pub request: Pending,
    pub unacknowledged: bool,
    /// A write to which a getLastError may follow.
    pub legacy_write: bool,
    pub get_last_error: bool,
}

impl ReadRequest {
    /// The request as `client` sent it. Stores what it says about the client.
    #[inline]
    pub fn sent_by(self, client: &mut Client, sent: &Sent) -> SentRequest {
        let Self { facts, shape, cursor, client: named, values } = self;
        if let Some(named) = named {
            client.is_server |= named.is_server;
            client.app = named.app;
        }
        client.is_server |= facts.from_server;
        SentRequest {
            unacknowledged: facts.unacknowledged,
            legacy_write: matches!(facts.opcode, Opcode::Insert | Opcode::Update | Opcode::Delete),
            get_last_error: facts.get_last_error,
            request: Pending {
                number: 0,
                request_id: sent.header.request_id,
                own_id: sent.header.request_id,
                start: sent.time,
                shape: shape.info,
                ordered_id: shape.ordered_id,
                statements: shape.statements,
                statement_count: shape.statement_count,
                class: facts.classes.sent_by(&client.app, facts.classes.class(client.is_server, facts.waits)),
                kind: facts.kind,
                opcode: facts.opcode,
                compressor: sent.compressor,
                cursor,
                bytes: sent.header.length,
                legacy_find: facts.legacy_find,
                may_be_last_error: facts.may_be_last_error,
                opens_waiting: facts.opens_waiting,
                provisional: sent.provisional,
                follows: false,
                joined_late: false,
                passed: None,
                exhaust: facts.exhaust,
                answers: None,
                values,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use crate::decoder::collected::{collect, message};
    use crate::identity::MAX_APPLICATIONS;
    use crate::testing::{Conversation, ConversationEnd};

    /// The classes and roles of the requests of a client with this hello.
    fn role_of(hello: bson::Document) -> sonar_core::Role {
        let mut talk = Conversation::new("10.0.0.2:40000", "10.0.0.1:27017");
        talk.handshake();
        for (id, command) in [(1, hello), (2, doc! {"find": "orders", "$db": "shop"})] {
            talk.send(ConversationEnd::Client, &message(id, 0, &command));
            talk.send(ConversationEnd::Server, &message(100 + id, id, &doc! {"ok": 1.0}));
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
            talk.send(ConversationEnd::Client, &message(id, 0, &command));
            talk.send(ConversationEnd::Server, &message(10_000 + id, id, &doc! {"ok": 1.0}));
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
