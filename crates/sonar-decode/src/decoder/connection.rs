//! The state of one connection. Each stage owns a part of it.

use std::sync::Arc;

use sonar_core::{Application, Endpoint, Role, TlsSuite};

use super::exchange::Exchange;
use super::framing::{MessageStream, StreamFacts};
use super::long::LongMessage;
use crate::keylog::TlsSession;
use crate::tcp::{Flow, Side};

/// A connection between a client and a server.
pub struct Connection {
    /// See [`Flow::number`](crate::tcp::Flow::number).
    pub flow: u32,
    /// Its two ends, by [`Side`].
    pub ends: [Endpoint; 2],
    /// Which side is the server; `None` until a message decides it.
    pub server: Option<Side>,
    pub facts: StreamFacts,
    pub streams: [MessageStream; 2],
    /// The long messages that are being read.
    pub long: [Option<Box<LongMessage>>; 2],
    pub exchange: Exchange,
    /// The client for which a proxy has opened it.
    pub behind_proxy: Option<Endpoint>,
    /// The side of which nothing is captured.
    pub unheard: Option<Side>,
    pub client: Client,
    /// The connection is encrypted, and this decrypts it.
    pub tls: Option<Box<TlsSession>>,
    /// What it is encrypted with, once it has been decrypted.
    pub suite: Option<TlsSuite>,
}

/// Who sends the requests.
pub struct Client {
    pub app: Arc<Application>,
    /// The client is a server.
    pub is_server: bool,
}

impl Connection {
    /// A connection of this flow, and nothing else known.
    pub fn new(flow: &Flow, server: Option<Side>, app: Arc<Application>) -> Self {
        let joined_late = app.joined_late;
        Self {
            flow: flow.number,
            ends: flow.ends,
            server,
            facts: StreamFacts { is_mongodb: false, joined_late, decrypted: false },
            streams: [MessageStream::new(), MessageStream::new()],
            long: [None, None],
            exchange: Exchange { saw_server: flow.both_seen, ..Exchange::new(joined_late) },
            behind_proxy: None,
            unheard: None,
            client: Client { app, is_server: false },
            tls: None,
            suite: None,
        }
    }

    /// The side that counts as the server until a message decides it.
    pub fn server_side(&self) -> Side {
        self.server.unwrap_or(Side::Low)
    }

    pub fn server_end(&self) -> Endpoint {
        self.ends[self.server_side().index()]
    }

    pub fn client_end(&self) -> Endpoint {
        self.behind_proxy.unwrap_or(self.ends[self.server_side().other().index()])
    }

    /// Whether `side` is the server; `None` while that is unknown.
    pub fn is_server(&self, side: Side) -> Option<bool> {
        self.server.map(|server| server == side)
    }

    /// Whether nothing of the server is captured.
    #[inline]
    pub fn hears_no_server(&self) -> bool {
        self.unheard.is_some() && self.unheard == self.server
    }

    /// Whether the server serves its operations or issued them.
    pub fn role(&self) -> Role {
        if self.client.is_server { Role::Issued } else { Role::Served }
    }
}
