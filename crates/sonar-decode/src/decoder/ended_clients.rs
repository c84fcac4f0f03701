//! Connections whose end a server's log states: what is in flight on them ends, even if that end was not captured.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::quality::RandomState;
use sonar_core::{Endpoint, Timestamp};

use crate::tcp::Flow;

/// The most ends that wait for their time, of all connections.
const MAX_WAITING: usize = 1 << 20;

/// The end of a connection, as the log of its server says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndedClient {
    /// The client's end of the connection.
    pub client: Endpoint,
    /// The port of the server; `None` if it is unknown. A client may use one port for connections to several servers.
    pub server_port: Option<u16>,
    /// The addresses of the server's host, besides loopback: the same port of another host is another server. `None` if
    /// they are unknown.
    pub host: Option<Arc<[IpAddr]>>,
    /// The latest time at which the line may have been written, by the clock of the packets. A connection with a packet
    /// at this time or later stays: it may be the next one from this port.
    pub at: Timestamp,
}

/// Connections that are to end.
#[derive(Debug)]
pub(super) struct EndedClients {
    /// The last one to end first.
    waiting: Vec<EndedClient>,
    room: usize,
}

impl EndedClients {
    /// Room for a share of all connections.
    pub fn share(share: usize) -> Self {
        Self { waiting: Vec::new(), room: MAX_WAITING / share.max(1) }
    }

    /// Adds some, in any order. Returns for how many there was no room: for those that end last.
    pub fn add(&mut self, clients: impl IntoIterator<Item = EndedClient>) -> u64 {
        let clients = clients.into_iter();
        // No room for more than that: it is memory of the agent.
        self.waiting.reserve_exact(clients.size_hint().0);
        self.waiting.extend(clients);
        self.waiting.sort_by_key(|one| std::cmp::Reverse(one.at));
        let excess = self.waiting.len().saturating_sub(self.room);
        self.waiting.drain(..excess);
        excess as u64
    }

    /// The bytes that it holds.
    pub fn memory(&self) -> usize {
        self.waiting.capacity() * size_of::<EndedClient>()
    }

    /// Takes those that had ended at `now`: packets that were sent before have been read then. `flows` are the ends of
    /// all connections, those that have just ended among them.
    pub fn take_until<'a>(
        &mut self,
        now: Timestamp,
        flows: impl Iterator<Item = &'a [Endpoint; 2]>,
    ) -> DueClients {
        let left = self.waiting.partition_point(|one| one.at > now);
        // Of several at one port the last one to end remains.
        let due = self.waiting.drain(left..).rev().map(|one| {
            let EndedClient { client, server_port, host, at } = one;
            ((client, server_port), DueEnd { at, host, servers: ServersOfClient::None })
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
    /// As [`EndedClient::host`].
    host: Option<Arc<[IpAddr]>>,
    servers: ServersOfClient,
}

impl DueEnd {
    /// Whether the log may be that of a server at this address.
    fn may_be_of(&self, server: Endpoint) -> bool {
        let ip = server.ip();
        self.host.as_ref().is_none_or(|addresses| ip.is_loopback() || addresses.contains(&ip))
    }
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
                if let Some(due) = self.0.get_mut(&(client, port)).filter(|due| due.may_be_of(server)) {
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

    /// A log ends the connection from one end of a client to a server at this port, of an unknown host.
    fn end(server_port: Option<u16>) -> EndedClient {
        let client = Endpoint::v4([10, 0, 0, 2], 40_000);
        EndedClient { client, server_port, host: None, at: Timestamp::default() }
    }

    /// Servers on which requests are in flight, after a log has ended a connection when all had been sent. The client has
    /// closed its connection to the last of `servers` before, if `is_last_closed`.
    fn left(servers: &[&str], is_last_closed: bool, end: EndedClient) -> Vec<String> {
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
        decoder.clients_ended([EndedClient { at, ..end }]);
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
            assert_eq!(left(&[one, other], false, end(server_port)), names(is_left), "{server_port:?}");
        }
        for port in [Some(27_017), None] {
            assert_eq!(left(&[one], false, end(port)), [""; 0], "there is no other");
            assert_eq!(left(&[one, far], false, end(port)), names(&[one, far]), "of either host");
            assert_eq!(
                left(&[one, far], true, end(port)),
                names(&[one]),
                "the one that has been closed is meant"
            );
        }
        assert_eq!(left(&[one, other], true, end(None)), names(&[one]));
    }
    #[test]
    fn a_log_of_one_host_ends_no_connection_to_another_host() {
        let (one, far) = ("10.0.0.1:27017", "10.0.0.3:27017");
        let names = |servers: &[&str]| servers.iter().map(|name| name.replace(':', ".")).collect::<Vec<_>>();
        let of = |host: &str, port| EndedClient { host: Some([host.parse().unwrap()].into()), ..end(port) };
        for port in [Some(27_017), None] {
            assert_eq!(left(&[far], false, of("10.0.0.1", port)), names(&[far]), "its own was not captured");
            assert_eq!(left(&[far], false, of("10.0.0.3", port)), [""; 0]);
            assert_eq!(left(&[one, far], false, of("10.0.0.1", port)), names(&[far]), "one of both is meant");
            assert_eq!(left(&["127.0.0.1:27017", far], false, of("10.0.0.1", port)), names(&[far]));
        }
    }

    #[test]
    fn those_that_end_last_give_way_and_are_counted() {
        let mut ended = EndedClients::share(MAX_WAITING / 3);
        let at = |second| EndedClient { at: Timestamp::from_unix(second, 0), ..end(None) };
        assert_eq!(ended.add([5, 1, 9].map(at)), 0);
        assert_eq!(ended.add([7, 2].map(at)), 2);
        assert_eq!(ended.waiting, [5, 2, 1].map(at));
        assert_eq!(ended.take_until(Timestamp::from_unix(2, 0), std::iter::empty()).0.len(), 1);
        assert_eq!(ended.add([9, 8].map(at)), 0, "there is room again");
    }
}
