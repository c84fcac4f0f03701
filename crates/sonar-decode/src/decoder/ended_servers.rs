//! Servers whose process has ended: what is in flight on them ends, even if the end of a connection was not captured.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use sonar_core::{Endpoint, Timestamp};

use super::connection::Connection;
use crate::tcp::Flow;

/// A server of this host whose process has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndedServer {
    /// The TCP port that it listened on.
    pub port: u16,
    /// Its addresses, besides loopback: the same port elsewhere is another server. Those of this host, and of a container
    /// those of its network.
    pub addresses: Arc<[IpAddr]>,
    /// Whether connections over loopback may have been to it, and not to another server at this port.
    pub has_loopback: bool,
    /// When it had ended, by the clock of the packets. A connection with a packet at this time or later stays: it is to
    /// the next server at this port.
    pub at: Timestamp,
}

impl EndedServer {
    fn is_at(&self, end: Endpoint) -> bool {
        let ip = end.ip();
        let is_its_own = if ip.is_loopback() { self.has_loopback } else { self.addresses.contains(&ip) };
        end.port == self.port && is_its_own
    }

    /// Whether a connection was to this server.
    fn had(&self, flow: &Flow, conn: &Connection) -> bool {
        flow.last < self.at && conn.server.is_some_and(|side| self.is_at(flow.ends[side.index()]))
    }
}

/// Servers whose connections are to end, by port and addresses. The later end of two that share them ends the connections
/// of both.
#[derive(Debug, Default)]
pub(super) struct EndedServers(BTreeMap<(u16, Arc<[IpAddr]>), EndedServer>);

impl EndedServers {
    /// Notes one.
    pub fn add(&mut self, server: EndedServer) {
        self.0.insert((server.port, server.addresses.clone()), server);
    }

    /// Takes those that had ended at `now`: packets that were sent before have been read then.
    pub fn take_until(&mut self, now: Timestamp) -> Vec<EndedServer> {
        let (due, later) = std::mem::take(&mut self.0).into_iter().partition(|(_, server)| server.at <= now);
        self.0 = later;
        BTreeMap::into_values(due).collect()
    }
}

/// The server that a connection was to, if it is one of these.
pub(super) fn find<'a>(
    servers: &'a [EndedServer],
    flow: &Flow,
    conn: &Connection,
) -> Option<&'a EndedServer> {
    servers.iter().find(|server| server.had(flow, conn))
}
