//! What is asked, by whom and what for? Makes of a request that has been read what waits for its reply.
//!
//! Its shape is found by [`shape`](super::shape), its class by [`class`](crate::class); the waiting is
//! left to [`pair`](super::pair).

use std::sync::Arc;

use sonar_core::operation::{Compressor, Opcode};
use sonar_core::{Application, Endpoint, Timestamp};

use super::Core;
use super::connection::Connection;
use super::pair::Pending;
use super::shape::IntoRendered;
use crate::class::{Facts, class_of};
use crate::message::{Header, Request, to_text};
use crate::shape::{CommandKind, Text};

/// The most applications that are told apart.
pub const MAX_APPLICATIONS: usize = 1_024;

/// Bytes of a command's text, with `show_values`.
const VALUES_BUDGET: usize = 2_048;

/// A request that has been read to its end, without its buffers.
pub(super) struct Asked {
    pub pending: Pending,
    pub unacknowledged: bool,
    pub legacy_write: bool,
    pub get_last_error: bool,
}

impl Core {
    /// Makes of a request that has been read what waits for its answer.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn asked<T: Text + IntoRendered>(
        &mut self,
        conn: &mut Connection,
        server: Endpoint,
        request: &mut Request<T>,
        body: Option<&[u8]>,
        header: Header,
        compressor: Option<Compressor>,
        time: Timestamp,
        provisional: bool,
    ) -> Asked {
        if request.client.present {
            conn.app = self.application(request);
            conn.from_server |= is_server(&conn.app);
        }
        conn.from_server |= request.from_server;
        let values = match body {
            Some(body) if self.settings.show_values => {
                command_document(request.opcode, body).map(|document| to_text(document, VALUES_BUDGET).into())
            }
            _ => None,
        };
        let origin = match (request.kind, request.cursor) {
            (CommandKind::GetMore | CommandKind::KillCursors, Some(id)) => {
                let origin = self.shared.cursor(server, id);
                self.coverage.cursors_unknown += u64::from(origin.is_none());
                origin
            }
            _ => None,
        };
        let waits = match request.kind {
            CommandKind::GetMore => origin.as_ref().is_some_and(|origin| origin.waits) || request.max_time,
            CommandKind::Hello => request.awaits_topology,
            _ => false,
        };
        let class = class_of(&Facts {
            kind: request.kind,
            command: request.command.bytes(),
            database: request.database.bytes(),
            collection: request.collection.bytes(),
            from_server: conn.from_server,
            waits,
        });
        let opens_waiting = request.opens_waiting_cursor();
        let kind = request.kind;
        let (shape, ordered_id, statements, statement_count, command) = match origin {
            Some(origin) => {
                let command = if kind == CommandKind::GetMore { "getMore" } else { "killCursors" };
                (origin.shape, origin.ordered_id, Box::default(), 1, Some(command))
            }
            None => {
                let (shape, ordered, statements, count) = self.shape(request, body);
                (shape, ordered, statements, count, None)
            }
        };
        let legacy_write = matches!(request.opcode, Opcode::Insert | Opcode::Update | Opcode::Delete);
        Asked {
            unacknowledged: request.unacknowledged || request.opcode == Opcode::KillCursors,
            legacy_write,
            get_last_error: request.is_get_last_error(),
            pending: Pending {
                request_id: header.request_id,
                own_id: header.request_id,
                start: time,
                shape,
                ordered_id,
                statements,
                statement_count,
                class,
                kind,
                command,
                opcode: request.opcode,
                compressor,
                cursor: request.cursor,
                bytes: u64::from(header.length),
                legacy_find: matches!(request.opcode, Opcode::GetMore)
                    || (request.opcode == Opcode::Query
                        && kind == CommandKind::Find
                        && request.is_legacy_find()),
                opens_waiting,
                provisional,
                follows: false,
                exhaust: false,
                answers_write: false,
                values,
            },
        }
    }

    /// The application that a `hello` names, as one shared value.
    fn application<T: Text>(&mut self, request: &Request<T>) -> Arc<Application> {
        let client = &request.client;
        let app = Application {
            name: client.application.text(),
            driver: client.driver.text(),
            driver_version: client.driver_version.text(),
            joined_late: false,
        };
        if let Some((known, ())) = self.apps.get_key_value(&app) {
            return known.clone();
        }
        if self.apps.len() >= MAX_APPLICATIONS {
            return self.other_app.clone();
        }
        let app = Arc::new(app);
        self.apps.insert(app.clone(), ());
        app
    }
}

/// Whether an application is a MongoDB server.
fn is_server(app: &Application) -> bool {
    app.driver.starts_with("NetworkInterface") || &*app.driver == "MongoDB Internal Client"
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

    use super::MAX_APPLICATIONS;
    use crate::decoder::heard::{hear, message};
    use crate::testing::{Conversation, End};

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
        let heard = hear(&talk.packets);
        assert_eq!(heard.told.len(), applications as usize + 1);
        assert_eq!(heard.coverage.apps_folded, 2);
        assert_eq!(heard.window.apps.iter().count(), MAX_APPLICATIONS + 2, "`other` has two classes");
    }
}
