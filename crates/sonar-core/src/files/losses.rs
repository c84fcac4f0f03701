//! What a trace of accesses lost, by reason.

/// Counters of lost accesses; they only grow.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct IoLosses {
    /// Accesses lost because the ring buffer between kernel and user space was full.
    pub ring_full: u64,
    /// Accesses whose start could not be stored because too many were in progress.
    pub starts_full: u64,
    /// Accesses to files that did not fit into the kernel's table of files.
    pub files_full: u64,
    /// Accesses whose data could not be read in the kernel (memory that was not present).
    pub unreadable: u64,
    /// Operations of a kind that cannot be traced on this kernel (io_uring without fentry).
    pub not_followed: u64,
    /// Accesses whose end was not seen; the next access of the same thread replaced them.
    pub ends_unseen: u64,
    /// Number of times that the kernel skipped an eBPF program because another one was running on the same
    /// processor. At most this many accesses are missing: each may be the start or end of an access, or an
    /// unrelated call.
    pub programs_skipped: u64,
    /// Accesses that were not written because the disk of the recording was full.
    pub not_written: u64,
}

impl IoLosses {
    /// All counters: stable code in recordings, stable name in output, value.
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

    /// Sets the counter with this code; `false` if there is none.
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

    /// The counters that are not zero: what each of them counts, in words, and its value.
    pub fn in_words(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("accesses that found the ring to the program full", self.ring_full),
            ("accesses that began while too many were in progress", self.starts_full),
            ("accesses to files beyond the kernel's table of files", self.files_full),
            ("accesses whose data could not be read in the kernel", self.unreadable),
            ("operations that cannot be traced on this kernel", self.not_followed),
            ("accesses whose end was not seen", self.ends_unseen),
            ("times that the kernel skipped an eBPF program", self.programs_skipped),
            ("accesses that were not written because the disk was full", self.not_written),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }

    /// The sum of all counters; saturates.
    pub fn total(&self) -> u64 {
        self.iter().fold(0, |sum, (_, _, value)| sum.saturating_add(value))
    }
}
