//! What a trace of accesses could not take, by reason.

/// Counters of what was lost; each only grows.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct IoLosses {
    /// Accesses for which the ring between the kernel and this program had no room.
    pub ring_full: u64,
    /// Accesses whose beginning could not be kept, as too many were under way.
    pub starts_full: u64,
    /// Accesses to files for which the kernel's table of files had no room.
    pub files_full: u64,
    /// Accesses that could not be read out of the kernel (memory that was not there).
    pub unreadable: u64,
    /// Operations of a kind that is asked for but cannot be followed here (io_uring without fentry).
    pub not_followed: u64,
    /// Accesses whose end was not seen; their thread's next access took their place.
    pub ends_unseen: u64,
    /// Times that the kernel skipped a program, as another was under way on the same processor. Each may be the
    /// beginning or the end of an access, or a call of no interest: at most so many accesses are missing.
    pub programs_skipped: u64,
    /// Accesses that were seen, and that the recording's disk had no room for.
    pub not_written: u64,
}

impl IoLosses {
    /// Each counter: its stable code in recordings, its stable name in output, its value.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &'static str, u64)> {
        [
            (1, "ring_full", self.ring_full),
            (2, "starts_full", self.starts_full),
            (3, "files_full", self.files_full),
            (4, "unreadable", self.unreadable),
            (5, "not_followed", self.not_followed),
            (6, "ends_unseen", self.ends_unseen),
            (7, "programs_skipped", self.programs_skipped),
            (8, "not_written", self.not_written),
        ]
        .into_iter()
    }

    /// Sets the counter of this code; `false` when there is none.
    pub fn set(&mut self, code: u8, value: u64) -> bool {
        let counter = match code {
            1 => &mut self.ring_full,
            2 => &mut self.starts_full,
            3 => &mut self.files_full,
            4 => &mut self.unreadable,
            5 => &mut self.not_followed,
            6 => &mut self.ends_unseen,
            7 => &mut self.programs_skipped,
            8 => &mut self.not_written,
            _ => return false,
        };
        *counter = value;
        true
    }

    /// All together; saturates.
    pub fn total(&self) -> u64 {
        self.iter().fold(0, |sum, (_, _, value)| sum.saturating_add(value))
    }
}
