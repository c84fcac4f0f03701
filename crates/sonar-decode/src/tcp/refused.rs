//! Connections that servers refused.

use std::collections::HashMap;
use std::net::IpAddr;

use foldhash::fast::RandomState;
use sonar_core::{Endpoint, Timestamp};

/// Who was refused, and by whom: another client may be refused by a rule for it alone.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct RefusedConnection {
    /// The client's address.
    pub client: IpAddr,
    /// The server.
    pub server: Endpoint,
}

/// Refusals whose flows have not been searched yet.
#[derive(Debug, Default)]
pub struct Refusals {
    /// When each was refused last.
    pub refused: HashMap<RefusedConnection, Timestamp, RandomState>,
    /// When flows were last searched.
    pub searched: Timestamp,
}
