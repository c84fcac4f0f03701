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
    /// Requests that it has now.
    pub in_flight: i64,
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

/// What a server may use of its machine, by what it said when it started.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct ServerBounds {
    /// Memory in KiB, by its control group; that of the machine if there is no limit.
    pub memory_kib: Option<i64>,
    /// Processors, by its affinity.
    pub processors: Option<i64>,
}

/// What tells one sample of a server from another: after the clock was set back, two samples of a process can have the
/// same time, but not the same values.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct SampleKey {
    pid: i64,
    time_ms: i64,
    values: u64,
}

impl SampleKey {
    /// Of a sample of the process `pid`, taken at `time_ms` (milliseconds since 1970), with these values.
    pub fn new(pid: i64, time_ms: i64, values: impl IntoIterator<Item = i64>) -> Self {
        // FNV-1a, by words.
        let hash =
            |hash: u64, value: i64| (hash ^ value as u64).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
        let values = values.into_iter().fold(0xcbf2_9ce4_8422_2325, hash);
        Self { pid, time_ms, values }
    }
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
    /// What the server may use.
    pub bounds: ServerBounds,
}

impl Default for ServerSample {
    fn default() -> Self {
        Self {
            values: [None; Metric::COUNT],
            disks: Vec::new(),
            mounts: Vec::new(),
            members: Vec::new(),
            bounds: ServerBounds::default(),
        }
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

    /// What tells it from other samples of its server.
    pub fn key(&self) -> SampleKey {
        let pid = self.get(Metric::Pid).unwrap_or(0);
        SampleKey::new(pid, self.time_ms(), self.values.iter().map(|value| value.unwrap_or(i64::MIN)))
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
    /// that of the slowest healthy secondary. `None` without a primary or a secondary. Members that have applied
    /// nothing yet do not count.
    pub fn replication_lag_ms(&self) -> Option<i64> {
        let known = || self.members.iter().filter(|member| member.optime_ms > 0);
        let primary = known().find(|member| member.state == Member::PRIMARY)?;
        let secondaries = || known().filter(|member| member.state == Member::SECONDARY);
        let behind = match secondaries().find(|member| member.is_self) {
            Some(own) => own.optime_ms,
            None => secondaries().filter(|member| member.healthy).map(|member| member.optime_ms).min()?,
        };
        Some((primary.optime_ms - behind).max(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(members: &[(i64, bool, bool, i64)]) -> ServerSample {
        let members = members.iter().map(|&(state, healthy, is_self, optime_ms)| Member {
            state,
            healthy,
            is_self,
            optime_ms,
        });
        ServerSample { members: members.collect(), ..ServerSample::default() }
    }

    #[test]
    fn lag_is_that_of_the_server_itself_or_of_the_slowest_healthy_secondary() {
        let (primary, secondary) = (Member::PRIMARY, Member::SECONDARY);
        let set =
            [(primary, true, false, 9_000), (secondary, true, true, 7_000), (secondary, true, false, 1_000)];
        assert_eq!(sample(&set).replication_lag_ms(), Some(2_000));
        let set =
            [(primary, true, true, 9_000), (secondary, true, false, 7_000), (secondary, false, false, 1_000)];
        assert_eq!(sample(&set).replication_lag_ms(), Some(2_000));
        assert_eq!(sample(&set[..1]).replication_lag_ms(), None, "no secondary");
        assert_eq!(sample(&set[1..]).replication_lag_ms(), None, "no primary");
        let new = [(primary, true, true, 9_000), (secondary, true, false, 0)];
        assert_eq!(sample(&new).replication_lag_ms(), None, "not fifty years behind");
        let ahead = [(primary, true, false, 6_000), (secondary, true, true, 7_000)];
        assert_eq!(sample(&ahead).replication_lag_ms(), Some(0), "heartbeats are late");
    }
}
