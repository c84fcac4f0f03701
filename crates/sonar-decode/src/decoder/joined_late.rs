//! Who is on a connection whose handshake was not captured? Others may know: see
//! [`Shared::add_clients`](crate::Shared::add_clients).

use std::sync::Arc;

use super::Core;
use super::connection::Connection;
use crate::tcp::Flow;

impl Core {
    /// Looks up a connection that nothing is known of.
    pub(super) fn identify(&self, flow: &Flow, conn: &mut Connection) {
        if !Arc::ptr_eq(&conn.app, &self.apps.joined_late) {
            return;
        }
        // Which end is the server may not be known yet. No server is among the clients by its own port.
        let [one, other] = flow.ends;
        let known = self.shared.client(one, other.port).or_else(|| self.shared.client(other, one.port));
        if let Some(known) = known {
            conn.from_server |= known.is_server;
            conn.app = known.app;
        }
    }

    /// Whether more clients have become known since this was last asked.
    pub(super) fn clients_have_changed(&mut self) -> bool {
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
    use crate::testing::{Conversation, End};
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
        talk.send(End::Client, &message(id, 0, &doc! {"find": "orders", "$db": "shop"}));
        talk.send(End::Server, &message(100 + id, id, &doc! {"ok": 1.0}));
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

    /// What was known of an older connection from the same port is not said of a new one.
    #[test]
    fn a_connection_seen_from_its_beginning_says_itself_who_it_is() {
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
