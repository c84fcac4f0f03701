//! How the use of a file changed over time: slices of equal width, grouped into phases.

use super::IoAccess;
use super::distance::AccessStep;

/// The maximum number of time slices per file; when more are needed, their width doubles.
pub const MAX_SLICES: usize = 128;
/// A slice with fewer known distances belongs to the surrounding phase.
const SLICE_MIN: u64 = 8;
/// This many consecutive empty slices end a phase.
const GAP: usize = 8;
/// Randomness below which an access path counts as sequential.
pub const SEQUENTIAL_BELOW: f64 = 0.1;
/// Randomness at and above which an access path counts as random.
pub const RANDOM_FROM: f64 = 0.5;

/// The reads of one file in one slice of time.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct TimeSlice {
    /// Reads and page faults.
    pub reads: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Sum of their latencies in nanoseconds.
    pub latency_ns: u64,
    /// Number of contiguous accesses.
    pub contiguous: u64,
    /// Number of skips: ahead by at most [`NEAR`](super::NEAR).
    pub near: u64,
    /// Number of jumps.
    pub jumps: u64,
}

impl TimeSlice {
    /// Adds one read, with its distance if known.
    pub(super) fn record(&mut self, access: &IoAccess, step: Option<AccessStep>) {
        self.reads += 1;
        self.bytes = self.bytes.saturating_add(access.given);
        self.latency_ns = self.latency_ns.saturating_add(access.latency_ns);
        match step {
            Some(AccessStep::Contiguous) => self.contiguous += 1,
            Some(step) if step.is_jump() => self.jumps += 1,
            Some(_) => self.near += 1,
            None => {}
        }
    }

    /// Adds everything in `other`.
    pub fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.latency_ns = self.latency_ns.saturating_add(other.latency_ns);
        self.contiguous += other.contiguous;
        self.near += other.near;
        self.jumps += other.jumps;
    }

    /// Number of known distances.
    pub const fn steps(&self) -> u64 {
        self.contiguous + self.near + self.jumps
    }

    /// Share of jumps in all known distances; `None` if there are none.
    pub fn randomness(&self) -> Option<f64> {
        (self.steps() > 0).then(|| self.jumps as f64 / self.steps() as f64)
    }
}

/// The order in which a file was read.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum AccessPath {
    /// Randomness below [`SEQUENTIAL_BELOW`].
    Sequential,
    /// Randomness in between.
    Mixed,
    /// Randomness of [`RANDOM_FROM`] or more.
    Random,
    /// Too few reads to judge.
    Unknown,
}

impl AccessPath {
    /// The path for a randomness score.
    pub fn of(randomness: Option<f64>) -> Self {
        match randomness {
            None => Self::Unknown,
            Some(score) if score < SEQUENTIAL_BELOW => Self::Sequential,
            Some(score) if score < RANDOM_FROM => Self::Mixed,
            Some(_) => Self::Random,
        }
    }

    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Mixed => "mixed",
            Self::Random => "random",
            Self::Unknown => "unknown",
        }
    }
}

/// A span of time in which a file was read along the same path.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Phase {
    /// Number of the first slice.
    pub first: usize,
    /// Number of the last slice, inclusive.
    pub last: usize,
    /// The path.
    pub path: AccessPath,
    /// All reads of the phase.
    pub total: TimeSlice,
}

/// The phases of a file's slices, in order of time. Neighbouring slices with the same path form one phase; eight
/// consecutive empty slices end it.
pub fn phases(slices: &[TimeSlice]) -> Vec<Phase> {
    let mut phases: Vec<Phase> = Vec::new();
    for (at, slice) in slices.iter().enumerate().filter(|(_, slice)| slice.reads > 0) {
        let path =
            if slice.steps() < SLICE_MIN { AccessPath::Unknown } else { AccessPath::of(slice.randomness()) };
        if let Some(last) = phases.last_mut() {
            let joins = path == last.path || path == AccessPath::Unknown || last.path == AccessPath::Unknown;
            if joins && at - last.last <= GAP {
                last.last = at;
                last.total.add(slice);
                last.path = if path == AccessPath::Unknown { last.path } else { path };
                continue;
            }
        }
        phases.push(Phase { first: at, last: at, path, total: *slice });
    }
    for phase in &mut phases {
        if phase.total.steps() >= SLICE_MIN {
            phase.path = AccessPath::of(phase.total.randomness());
        }
    }
    phases
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(contiguous: u64, jumps: u64) -> TimeSlice {
        TimeSlice { reads: contiguous + jumps, contiguous, jumps, ..TimeSlice::default() }
    }

    #[test]
    fn a_pass_then_a_pause_then_jumps_are_two_phases() {
        let mut slices = vec![slice(100, 1); 5];
        slices.push(slice(1, 1));
        slices.extend([TimeSlice::default(); 3]);
        slices.push(slice(80, 0));
        slices.extend([TimeSlice::default(); 20]);
        slices.extend([slice(1, 90); 4]);
        let phases = phases(&slices);
        let found: Vec<_> = phases.iter().map(|phase| (phase.first, phase.last, phase.path)).collect();
        assert_eq!(found, [(0, 9, AccessPath::Sequential), (30, 33, AccessPath::Random)]);
        assert_eq!(phases.iter().map(|phase| phase.total.reads).sum::<u64>(), 505 + 2 + 80 + 364);
    }
}
