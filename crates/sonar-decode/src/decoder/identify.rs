//! What does a request belong to? Its shape, and the application that sent it.
//!
//! The rules are those of [`identity`](crate::identity). What one thread has seen is kept here, so that no lock
//! is taken for it.

use std::collections::HashMap;
use std::sync::Arc;

use sonar_core::shape::PARTIAL;
use sonar_core::{Application, Coverage, Identity, ShapeId, ShapeInfo, Statement};

use super::connection::{Client, Connection};
use crate::identity::{
    Applications, MAX_SHAPES, MaybeRendered, Shared, base_of, id_in_part, ids_of, info_of, info_with,
    is_server, other_shape,
};
use crate::message::{MessageBody, MessageSource, Request};
use crate::shape::{Rendered, Text};

/// The shape of a request, and what it is made of.
#[derive(Clone, Debug)]
pub struct RequestShape {
    pub info: Arc<ShapeInfo>,
    pub ordered_id: ShapeId,
    pub statements: Arc<[Statement]>,
    pub statement_count: u32,
}

/// Finds shapes and applications.
pub struct Identifier {
    /// Counters of shapes.
    pub coverage: Coverage,
    shared: Arc<Shared>,
    known: HashMap<u64, Arc<ShapeInfo>, foldhash::fast::RandomState>,
    apps: Applications,
    other_shape: Arc<ShapeInfo>,
    /// Of requests without any. The default is one for all threads, which counting references to it would slow down.
    no_statements: Arc<[Statement]>,
    renderer: Request<Rendered>,
    /// The generation of the clients in `shared` that connections were looked up in.
    clients_seen: u64,
}

impl Identifier {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self {
            coverage: Coverage::default(),
            shared,
            known: HashMap::default(),
            apps: Applications::default(),
            other_shape: Arc::new(other_shape()),
            no_statements: Vec::new().into(),
            renderer: Request::default(),
            clients_seen: 0,
        }
    }

    /// The shape of a request that has been read. `body` is what it was read from, if available: a request without
    /// text is read again if its shape is new.
    pub fn shape<T: Text + MaybeRendered>(
        &mut self,
        request: &mut Request<T>,
        body: Option<&[u8]>,
    ) -> RequestShape {
        let (ids, text) = ids_of(request);
        self.coverage.shapes_over_cap += u64::from(request.builder.over_cap);
        let statement_count = request.builder.statement_count.max(1);
        let info = match self.known.get(&ids.shape.0) {
            Some(info) => info.clone(),
            None => {
                let Self { shared, renderer, .. } = self;
                let made = match body {
                    _ if self.known.len() >= MAX_SHAPES => None,
                    Some(body) => shared.shape(ids.shape, || {
                        let mut reader = MessageBody::default();
                        renderer.reset(request.opcode);
                        reader.begin(request.opcode, body.len() as u64);
                        let _ = reader.feed(body, &mut MessageSource::Request(renderer));
                        info_of(renderer)
                    }),
                    None => shared.shape(ids.shape, || info_with(request, &ids, text)),
                };
                match made {
                    Some((info, cut)) => self.remembered(info, cut),
                    None => self.folded(),
                }
            }
        };
        let statements = if ids.statements.is_empty() { self.no_statements.clone() } else { ids.statements };
        RequestShape { info, ordered_id: ids.ordered, statements, statement_count }
    }

    /// The shape of a request whose end was not captured: its command and namespace, as far as they are
    /// known.
    pub fn partial_shape(&mut self, request: &Request<Rendered>) -> RequestShape {
        let base = base_of(request);
        let id = id_in_part(Identity::Partial, base, ShapeId(base), &[]);
        let info = match self.known.get(&id.0) {
            Some(info) => info.clone(),
            None => {
                let made = if self.known.len() >= MAX_SHAPES {
                    None
                } else {
                    self.shared.shape(id, || ShapeInfo {
                        id,
                        command: request.command.text(),
                        database: request.database.text(),
                        collection: request.collection.text(),
                        typed: PARTIAL.into(),
                        plain: PARTIAL.into(),
                        ..ShapeInfo::default()
                    })
                };
                match made {
                    Some((info, cut)) => self.remembered(info, cut),
                    None => self.folded(),
                }
            }
        };
        let statements = self.no_statements.clone();
        RequestShape { info, ordered_id: id, statements, statement_count: 1 }
    }

    /// What stands for a shape beyond the cap.
    fn folded(&mut self) -> Arc<ShapeInfo> {
        self.coverage.shapes_folded += 1;
        self.shared.note_order();
        self.other_shape.clone()
    }

    /// Remembers a shape. `cut`: its text was cut.
    fn remembered(&mut self, info: Arc<ShapeInfo>, cut: bool) -> Arc<ShapeInfo> {
        self.coverage.shapes_text_cut += u64::from(cut);
        self.known.insert(info.id.0, info.clone());
        info
    }

    /// Whether it is the shape that stands for all beyond the cap.
    pub fn is_other_shape(&self, shape: &Arc<ShapeInfo>) -> bool {
        Arc::ptr_eq(shape, &self.other_shape)
    }

    /// The sender of a hello that has a `client` document.
    pub fn client<T: Text>(&mut self, request: &Request<T>) -> Client {
        let app = Application::from(&request.client);
        let is_server = is_server(&app, Some(request.internal_client));
        self.shared.note_application(&app);
        let app = self.apps.shared(app).unwrap_or_else(|| {
            self.shared.note_order();
            self.apps.other.clone()
        });
        Client { app, is_server }
    }

    /// Gives a client whose connection was followed elsewhere an application of its own: counting references to one
    /// would slow down all threads.
    pub fn take_over(&mut self, client: &mut Client) {
        if let Some(own) = self.apps.shared(Application::clone(&client.app)) {
            client.app = own;
        }
    }

    /// The application of a connection on which no client has identified itself.
    pub fn unknown_client(&self, joined_late: bool) -> Arc<Application> {
        if joined_late { self.apps.joined_late.clone() } else { self.apps.unnamed.clone() }
    }

    /// Whether it is the application that stands for all beyond the cap.
    #[inline]
    pub fn is_other_app(&self, app: &Arc<Application>) -> bool {
        Arc::ptr_eq(app, &self.apps.other)
    }

    /// Looks up the client of a connection whose handshake was not captured; see [`Shared::add_clients`].
    pub fn look_up_client(&self, conn: &mut Connection) {
        if !Arc::ptr_eq(&conn.client.app, &self.apps.joined_late) {
            return;
        }
        // Which end is the server may not be known yet. No server is among the clients by its own port.
        let [one, other] = conn.ends;
        let known = self.shared.client(one, other.port).or_else(|| self.shared.client(other, one.port));
        if let Some(known) = known {
            conn.client.is_server |= known.is_server;
            conn.client.app = known.app;
        }
    }

    /// Whether more clients have become known since this was last asked.
    pub fn clients_have_changed(&mut self) -> bool {
        let generation = self.shared.clients_generation();
        std::mem::replace(&mut self.clients_seen, generation) != generation
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bson::doc;
    use sonar_core::{Application, Timestamp};

    use crate::decoder::collected::{Collected, message};
    use crate::testing::{Conversation, ConversationEnd};
    use crate::{Decoder, Settings, Shared};

    fn app(name: &str, driver: &str) -> Application {
        Application { name: name.into(), driver: driver.into(), ..Application::default() }
    }

    fn apps(seen: &Collected) -> Vec<String> {
        let mut names: Vec<_> = seen
            .window
            .apps
            .iter()
            .map(|group| match &group.subject {
                sonar_core::Subject::App(app) => format!("{} {}", group.role, app.label()),
                _ => String::new(),
            })
            .collect();
        names.sort();
        names
    }

    /// A find and its reply, of a connection that was open before.
    fn ask(talk: &mut Conversation, id: u32, decoder: &mut Decoder, seen: &mut Collected) {
        talk.send(ConversationEnd::Client, &message(id, 0, &doc! {"find": "orders", "$db": "shop"}));
        talk.send(ConversationEnd::Server, &message(100 + id, id, &doc! {"ok": 1.0}));
        talk.packets.drain(..).for_each(|packet| decoder.packet(&packet.as_packet(), seen));
    }

    #[test]
    fn a_connection_joined_late_has_the_application_that_others_know() {
        let shared = Arc::new(Shared::default());
        let client = "10.0.0.2:40000";
        let known = (client.parse::<std::net::SocketAddr>().unwrap().into(), app("shop", "nodejs"));
        let mut decoder = Decoder::new(Settings::default(), shared.clone());
        let (mut seen, mut talk) = (Collected::default(), Conversation::new(client, "10.0.0.1:27017"));
        ask(&mut talk, 1, &mut decoder, &mut seen);
        assert_eq!(apps(&seen), ["served joined late"]);
        // Known while the connection is followed already.
        shared.add_clients(None, [known.clone()]);
        decoder.tick(Timestamp::from_unix(1, 0), &mut seen);
        ask(&mut talk, 2, &mut decoder, &mut seen);
        assert_eq!(apps(&seen), ["served joined late", "served shop"]);
        // Known before it is seen.
        let shared = Arc::new(Shared::default());
        shared.add_clients(None, [known]);
        let (mut decoder, mut seen) = (Decoder::new(Settings::default(), shared), Collected::default());
        ask(&mut Conversation::new(client, "10.0.0.1:27017"), 1, &mut decoder, &mut seen);
        assert_eq!(apps(&seen), ["served shop"]);
    }

    /// What is known of an older connection from the same port does not apply to a new one.
    #[test]
    fn a_connection_seen_from_its_beginning_identifies_itself() {
        let shared = Arc::new(Shared::default());
        let client = "10.0.0.2:40000";
        shared.add_clients(
            None,
            [(client.parse::<std::net::SocketAddr>().unwrap().into(), app("shop", "nodejs"))],
        );
        let (mut decoder, mut seen) = (Decoder::new(Settings::default(), shared), Collected::default());
        let mut talk = Conversation::new(client, "10.0.0.1:27017");
        talk.handshake();
        ask(&mut talk, 1, &mut decoder, &mut seen);
        assert_eq!(apps(&seen), ["served (no name)"]);
    }

    /// A mongod and a mongos on one host: the same port of a client leads to each.
    #[test]
    fn a_client_port_is_another_connection_at_each_server() {
        let shared = Arc::new(Shared::default());
        let client = "10.0.0.2:40000";
        let from = |name| [(client.parse::<std::net::SocketAddr>().unwrap().into(), app(name, "nodejs"))];
        shared.add_clients(Some(27_018), from("reports"));
        shared.add_clients(Some(27_017), from("shop"));
        let mut decoder = Decoder::new(Settings::default(), shared.clone());
        let mut names = |server, id| {
            let mut seen = Collected::default();
            ask(&mut Conversation::new(client, server), id, &mut decoder, &mut seen);
            apps(&seen)
        };
        assert_eq!(names("10.0.0.1:27017", 1), ["served shop"]);
        assert_eq!(names("10.0.0.1:27018", 2), ["served reports"]);
        assert_eq!(names("10.0.0.1:27019", 3), ["served joined late"]);
        // Of a server whose port is not known: for any, and newer than the others.
        shared.add_clients(None, from("asked"));
        assert_eq!(names("10.0.0.3:27019", 4), ["served asked"]);
        assert_eq!(names("10.0.0.3:27017", 5), ["served asked"]);
    }

    #[test]
    fn a_server_that_was_connected_before_is_known_as_one() {
        let shared = Arc::new(Shared::default());
        let client = "10.0.0.2:40000";
        let name = (client.parse::<std::net::SocketAddr>().unwrap().into(), app("", "NetworkInterfaceTL"));
        shared.add_clients(None, [name]);
        let (mut decoder, mut seen) = (Decoder::new(Settings::default(), shared), Collected::default());
        ask(&mut Conversation::new(client, "10.0.0.1:27017"), 1, &mut decoder, &mut seen);
        assert_eq!(apps(&seen), ["issued (NetworkInterfaceTL)"]);
    }
}
