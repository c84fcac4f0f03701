//! How much the flow table keeps, and for how long.

/// Caps of the flow table.
#[derive(Copy, Clone, Debug)]
pub struct FlowLimits {
    /// Flows; if there are more, the one that was silent longest is dropped.
    pub flows: usize,
    /// A flow without segments for this long is forgotten, in nanoseconds.
    pub idle_ns: u64,
    /// A closed flow is remembered for this long, so that stray segments do not open it again, in nanoseconds.
    pub linger_ns: u64,
    /// Memory of all segments held back in all flows.
    pub held_bytes: usize,
    /// Caps of each direction.
    pub reorder: ReorderLimits,
}

/// Flows of any share: a connection of a pool that is idle must not be forgotten.
const MIN_FLOWS: usize = 16_384;

impl FlowLimits {
    /// What all flows hold together is divided by `share`.
    pub fn share(share: usize) -> Self {
        let all = Self::default();
        Self { flows: (all.flows / share).max(MIN_FLOWS), held_bytes: all.held_bytes / share, ..all }
    }
}

impl Default for FlowLimits {
    fn default() -> Self {
        Self {
            flows: 65_536,
            idle_ns: 1_800_000_000_000,
            linger_ns: 15_000_000_000,
            held_bytes: 16 << 20,
            reorder: ReorderLimits::default(),
        }
    }
}

/// Caps on what is held back.
#[derive(Copy, Clone, Debug)]
pub struct ReorderLimits {
    /// Segments held back in one direction.
    pub segments: usize,
    /// Bytes held back in one direction.
    pub bytes: usize,
    /// How long a gap may still be filled once the other side has acknowledged its bytes, in nanoseconds.
    pub acked_ns: u64,
    /// How long a gap may be filled in any case, in nanoseconds.
    pub gap_ns: u64,
}

impl Default for ReorderLimits {
    fn default() -> Self {
        Self { segments: 64, bytes: 256 * 1024, acked_ns: 50_000_000, gap_ns: 3_000_000_000 }
    }
}
