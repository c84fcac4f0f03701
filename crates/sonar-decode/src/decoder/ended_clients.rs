//! Connections whose end a server's log states: what is in flight on them ends, even if that end was not captured.

use std::collections::HashMap;

use foldhash::quality::RandomState;
use sonar_core::{Endpoint, Timestamp};

use crate::tcp::Flow;

/// The end of a connection, as the log of its server says.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct EndedClient {
    /// The client's end of the connection.
    pub client: Endpoint,
    /// The port of the server; `None` if it is unknown. A client may use one port for connections to several servers.
    pub server_port: Option<u16>,
    /// The latest time at which the line may have been written, by the clock of the packets. A connection with a packet
    /// at this time or later stays: it may be the next one from this port.
    pub at: Timestamp,
}

/// Connections that are to end, the last one to end first.
#[derive(Debug, Default)]
pub(super) struct EndedClients(Vec<EndedClient>);

impl EndedClients {
    /// Adds some, in any order.
    pub fn add(&mut self, clients: impl IntoIterator<Item = EndedClient>) {
        self.0.extend(clients);
        self.0.sort_by_key(|one| std::cmp::Reverse(one.at));
    }

    /// Takes those that had ended at `now`: packets that were sent before have been read then. `flows` are the ends of
    /// all connections, those that have just ended among them.
    pub fn take_until<'a>(
        &mut self,
        now: Timestamp,
        flows: impl Iterator<Item = &'a [Endpoint; 2]>,
    ) -> DueClients {
        let left = self.0.partition_point(|one| one.at > now);
        // Of several at one port the last one to end remains.
        let due = self.0.drain(left..).rev().map(|one| {
            let EndedClient { client, server_port, at } = one;
            ((client, server_port), DueEnd { at, servers: ServersOfClient::None })
        });
        let mut due = DueClients(due.collect());
        if !due.is_empty() {
            flows.for_each(|ends| due.note_servers(ends));
        }
        due
    }
}

/// Clients of which a connection has ended, with the port of the server where it is known.
#[derive(Debug, Default)]
pub(super) struct DueClients(HashMap<(Endpoint, Option<u16>), DueEnd, RandomState>);

/// The end of a connection of a client.
#[derive(Debug)]
struct DueEnd {
    /// When the last one did.
    at: Timestamp,
    servers: ServersOfClient,
}

/// The servers that have a connection from one end of a client, of those at the port that is meant.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum ServersOfClient {
    None,
    One(Endpoint),
    /// Which one the log is of is not known.
    Several,
}

impl ServersOfClient {
    fn add(&mut self, server: Endpoint) {
        *self = match *self {
            Self::None => Self::One(server),
            Self::One(only) if only == server => Self::One(only),
            Self::One(_) | Self::Several => Self::Several,
        };
    }
}

impl DueClients {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes that the capture has this connection.
    fn note_servers(&mut self, ends: &[Endpoint; 2]) {
        for (client, server) in as_client_and_server(ends) {
            for port in [Some(server.port), None] {
                if let Some(due) = self.0.get_mut(&(client, port)) {
                    due.servers.add(server);
                }
            }
        }
    }

    /// When this connection ended, if it did and no other connection can be meant.
    pub fn end_of(&self, flow: &Flow) -> Option<Timestamp> {
        let due = as_client_and_server(&flow.ends).into_iter().flat_map(|(client, server)| {
            let due = [Some(server.port), None].map(|port| self.0.get(&(client, port)));
            due.into_iter().flatten().filter(move |due| due.servers == ServersOfClient::One(server))
        });
        due.map(|due| due.at).filter(|at| flow.last < *at).max()
    }
}

/// Two ends, either of which may be the client.
const fn as_client_and_server(ends: &[Endpoint; 2]) -> [(Endpoint, Endpoint); 2] {
    let [low, high] = *ends;
    [(low, high), (high, low)]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bson::doc;

    use super::*;
    use crate::decoder::collected::{Collected, message};
    use crate::testing::{Conversation, ConversationEnd};
    use crate::{Decoder, Settings, Shared};

    const SECOND: u64 = 1_000_000_000;

    /// Ports of the servers on which requests are in flight, after a log has ended the connection from one end of a client.
    /// The client has closed its connection to the last of `servers` before, if `is_last_closed`.
    fn left(servers: &[&str], is_last_closed: bool, server_port: Option<u16>) -> Vec<String> {
        let mut decoder = Decoder::new(Settings::default(), Arc::new(Shared::default()));
        let mut seen = Collected::default();
        let mut packets = Vec::new();
        let mut at = Timestamp::default();
        for (server, n) in servers.iter().zip(1..) {
            // Packets with the same numbers would count as copies behind address translation.
            let mut talk = Conversation::new("10.0.0.2:40000", server).with_seq(77_777 * n, 99_999 * n);
            let find = doc! {"find": server.replace(['.', ':'], "-"), "$db": "shop"};
            talk.handshake().send(ConversationEnd::Client, &message(n, 0, &find));
            if is_last_closed && n as usize == servers.len() {
                talk.close();
            }
            packets.append(&mut talk.packets);
            at = at.max(talk.now());
        }
        packets.sort_by_key(|packet| packet.time);
        packets.iter().for_each(|packet| decoder.packet(&packet.as_packet(), &mut seen));
        decoder.clients_ended([EndedClient { client: Endpoint::v4([10, 0, 0, 2], 40_000), server_port, at }]);
        // Nothing was captured for longer than the ends of connections are kept otherwise.
        let now = at.plus_ns(60 * SECOND);
        decoder.tick(now, &mut seen);
        let mut left: Vec<_> =
            decoder.in_flight(now).iter().map(|one| one.shape.collection.replace('-', ".")).collect();
        left.sort();
        left
    }

    #[test]
    fn a_log_ends_no_connection_to_another_server_from_the_same_end_of_a_client() {
        let (one, other, far) = ("10.0.0.1:27017", "10.0.0.1:27018", "10.0.0.3:27017");
        let names = |servers: &[&str]| servers.iter().map(|name| name.replace(':', ".")).collect::<Vec<_>>();
        for (server_port, is_left) in [
            (Some(27_017), &[other][..]),
            (Some(27_018), &[one][..]),
            (Some(27_019), &[one, other][..]),
            // Which one the log is of is not known.
            (None, &[one, other][..]),
        ] {
            assert_eq!(left(&[one, other], false, server_port), names(is_left), "{server_port:?}");
        }
        for port in [Some(27_017), None] {
            assert_eq!(left(&[one], false, port), [""; 0], "there is no other");
            assert_eq!(left(&[one, far], false, port), names(&[one, far]), "of either host");
            assert_eq!(left(&[one, far], true, port), names(&[one]), "the one that has been closed is meant");
        }
        assert_eq!(left(&[one, other], true, None), names(&[one]));
    }
}
