//! What a server said of itself at one moment.

use std::sync::Arc;

use super::Metric;

/// The counters of a block device, all since it appeared.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DiskSample {
    /// Name of the device.
    pub name: Arc<str>,
    /// Reads and writes that ended.
    pub operations: i64,
    /// Milliseconds that they took in total.
    pub time_ms: i64,
    /// Milliseconds in which the device had something to do.
    pub busy_ms: i64,
    /// Milliseconds in which it had something to do, times the requests that it had.
    pub queued_ms: i64,
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MountSample {
    /// Where it is mounted.
    pub path: Arc<str>,
    /// Its size in bytes.
    pub capacity: i64,
    /// Free bytes.
    pub free: i64,
}

/// A member of the replica set, as the server sees it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Member {
    /// State as `replSetGetStatus` numbers it: 1 is primary, 2 secondary.
    pub state: i64,
    /// It answers.
    pub healthy: bool,
    /// The server itself.
    pub is_self: bool,
    /// Time of the last operation that it has applied, in milliseconds since 1970.
    pub optime_ms: i64,
}

impl Member {
    /// State of a primary.
    pub const PRIMARY: i64 = 1;
    /// State of a secondary.
    pub const SECONDARY: i64 = 2;
}

/// The metrics of one moment. What the server does not report is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSample {
    values: [Option<i64>; Metric::COUNT],
    /// Block devices of the machine.
    pub disks: Vec<DiskSample>,
    /// Mounted file systems of the machine.
    pub mounts: Vec<MountSample>,
    /// Members of the replica set; none if it is not one.
    pub members: Vec<Member>,
}

impl Default for ServerSample {
    fn default() -> Self {
        Self { values: [None; Metric::COUNT], disks: Vec::new(), mounts: Vec::new(), members: Vec::new() }
    }
}

impl ServerSample {
    /// A metric; `None` if the server does not report it.
    pub fn get(&self, metric: Metric) -> Option<i64> {
        self.values[metric as usize]
    }

    /// Sets a metric.
    pub fn set(&mut self, metric: Metric, value: Option<i64>) {
        self.values[metric as usize] = value;
    }

    /// When it was taken, in milliseconds since 1970.
    pub fn time_ms(&self) -> i64 {
        self.get(Metric::Start).unwrap_or(0)
    }

    /// The state of the server itself in its replica set.
    pub fn state(&self) -> Option<i64> {
        self.members.iter().find(|member| member.is_self).map(|member| member.state)
    }

    /// How far replication is behind, in milliseconds: on a secondary its own distance from the primary, on a primary
    /// that of the slowest healthy secondary. `None` without a primary or a secondary.
    pub fn replication_lag_ms(&self) -> Option<i64> {
        let primary = self.members.iter().find(|member| member.state == Member::PRIMARY)?;
        let secondaries = || self.members.iter().filter(|member| member.state == Member::SECONDARY);
        let behind = match secondaries().find(|member| member.is_self) {
            Some(own) => own.optime_ms,
            None => secondaries().filter(|member| member.healthy).map(|member| member.optime_ms).min()?,
        };
        Some((primary.optime_ms - behind).max(0))
    }
}
