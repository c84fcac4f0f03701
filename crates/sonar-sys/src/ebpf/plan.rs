//! Which programs are loaded: those whose functions and tracepoints this kernel has, without those that it refuses.

/// Where accesses are seen.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AttachMode {
    /// At the functions of the VFS.
    Vfs,
    /// At the system calls.
    Calls,
}

impl AttachMode {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vfs => "VFS functions (fentry/fexit)",
            Self::Calls => "system calls (raw tracepoints)",
        }
    }

    /// The required programs, and the optional ones.
    const fn programs(self) -> (&'static [(&'static str, &'static str)], &'static [Optional]) {
        match self {
            Self::Vfs => (&VFS, &VFS_OPTIONAL),
            Self::Calls => (&CALLS, &CALLS_OPTIONAL),
        }
    }

    /// The optional parts: what is seen in addition to reads, writes and flushes.
    pub(super) fn optional_parts(self) -> Vec<&'static str> {
        let mut parts: Vec<_> = self.programs().1.iter().map(|(_, _, part)| *part).collect();
        parts.dedup();
        parts.push(URING);
        parts
    }

    /// The programs of an optional part; `None` if the kernel lacks what one of them needs.
    fn programs_of(self, part: &str, has: &dyn Fn(&str) -> bool) -> Option<Vec<&'static str>> {
        if part == URING {
            let (submit, _) = SUBMIT.iter().find(|(_, needs)| has(needs))?;
            return has(COMPLETE.1).then(|| vec![*submit, COMPLETE.0]);
        }
        let programs = self.programs().1.iter().filter(|(_, _, of)| *of == part);
        programs.map(|(program, needs, _)| has(needs).then_some(*program)).collect()
    }
}

/// A program, what it needs in the kernel, and what is not seen without it.
type Optional = (&'static str, &'static str, &'static str);
/// The optional part of both ways.
const URING: &str = "io_uring";

/// Programs of each way, with what they need in the kernel; optional ones also with what is not seen without them.
const VFS: [(&str, &str); 6] = [
    ("read_enter", "vfs_read"),
    ("read_leave", "vfs_read"),
    ("write_enter", "vfs_write"),
    ("write_leave", "vfs_write"),
    ("sync_enter", "vfs_fsync_range"),
    ("sync_leave", "vfs_fsync_range"),
];
const VFS_OPTIONAL: [Optional; 6] = [
    ("readv_enter", "vfs_readv", "vectored reads"),
    ("readv_leave", "vfs_readv", "vectored reads"),
    ("writev_enter", "vfs_writev", "vectored writes"),
    ("writev_leave", "vfs_writev", "vectored writes"),
    ("fault_enter", "filemap_fault", "page faults"),
    ("fault_leave", "filemap_fault", "page faults"),
];
const CALLS: [(&str, &str); 2] = [("sys_enter", "btf_trace_sys_enter"), ("sys_exit", "btf_trace_sys_exit")];
const CALLS_OPTIONAL: [Optional; 1] = [("fault_tracepoint", "btf_trace_mm_filemap_fault", "page faults")];
/// Programs of both ways: they see processes start and end.
const PROCESSES: [(&str, &str); 4] = [
    ("process_exec", "btf_trace_sched_process_exec"),
    ("process_fork", "btf_trace_sched_process_fork"),
    ("process_exit", "btf_trace_sched_process_exit"),
    ("task_rename", "btf_trace_task_rename"),
];
const COMPLETE: (&str, &str) = ("uring_complete", "btf_trace_io_uring_complete");
pub(super) const PAGES: (&str, &str) = ("page_in", "btf_trace_mm_filemap_add_to_page_cache");
const SUBMIT: [(&str, &str); 2] = [
    ("uring_submit_req", "btf_trace_io_uring_submit_req"),
    ("uring_submit_sqe", "btf_trace_io_uring_submit_sqe"),
];

/// Which programs are loaded.
pub(super) struct ProgramPlan {
    /// Their names.
    pub(super) programs: Vec<&'static str>,
    /// Optional parts that are left out.
    pub(super) without: Vec<&'static str>,
}

impl ProgramPlan {
    /// The programs that this kernel supports, without the `refused` optional parts; `None` if a required one is missing.
    pub(super) fn new(way: AttachMode, refused: &[&str], has: &dyn Fn(&str) -> bool) -> Option<Self> {
        let (core, _) = way.programs();
        let mut plan = Self { programs: Vec::new(), without: Vec::new() };
        for (program, needs) in core.iter().chain(&PROCESSES) {
            has(needs).then_some(())?;
            plan.programs.push(program);
        }
        for part in way.optional_parts() {
            match way.programs_of(part, has) {
                Some(programs) if !refused.contains(&part) => plan.programs.extend(programs),
                _ => plan.without.push(part),
            }
        }
        Some(plan)
    }

    /// Whether io_uring is followed by its own tracepoints.
    pub(super) fn has_uring(&self) -> bool {
        !self.without.contains(&URING)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_or_absent_part_does_not_affect_others() {
        let all = ProgramPlan::new(AttachMode::Vfs, &[], &|_| true).unwrap();
        assert!(all.without.is_empty());
        for part in AttachMode::Vfs.optional_parts() {
            let plan = ProgramPlan::new(AttachMode::Vfs, &[part], &|_| true).unwrap();
            assert_eq!(plan.without, [part]);
            let missing = AttachMode::Vfs.programs_of(part, &|_| true).unwrap();
            let expected: Vec<_> =
                all.programs.iter().filter(|program| !missing.contains(program)).copied().collect();
            assert!(expected.len() < all.programs.len() && plan.programs == expected, "{part}");
        }
        let old =
            ProgramPlan::new(AttachMode::Calls, &[], &|needs| needs != "btf_trace_mm_filemap_fault").unwrap();
        assert_eq!(old.without, ["page faults"]);
        let older = ProgramPlan::new(AttachMode::Vfs, &[], &|needs| !needs.contains("uring")).unwrap();
        assert_eq!(older.without, ["io_uring"]);
        assert!(ProgramPlan::new(AttachMode::Vfs, &[], &|needs| needs != "vfs_read").is_none());
    }
}
