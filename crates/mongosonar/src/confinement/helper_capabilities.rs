//! Which capabilities each helper process keeps, as far as the program has them.

use sonar_sys::privileges::capability;

/// To inspect other users' processes, their files and folders.
pub const INSPECTING: &[u32] = &[capability::SYS_PTRACE, capability::DAC_READ_SEARCH];

/// To open rings again.
pub const CAPTURING: &[u32] = &[capability::NET_RAW];

/// To read files, whoever owns them.
pub const READING: &[u32] = &[capability::DAC_READ_SEARCH];

/// To write the next file of a capture into the same folder, whoever owns it.
pub const ROTATING: &[u32] = &[capability::DAC_OVERRIDE];

/// To take the stacks of threads with eBPF programs, and to read the files that a process has mapped.
pub const SAMPLING: &[u32] = &[
    capability::SYS_PTRACE,
    capability::DAC_READ_SEARCH,
    capability::BPF,
    capability::PERFMON,
    capability::CHECKPOINT_RESTORE,
];

/// To attach eBPF programs to the TLS libraries that processes have mapped. Some kernels require
/// [`capability::SYS_ADMIN`], too: see [`sonar_sys::tls::TlsTracer::may_need_sys_admin`].
pub const READING_TLS: &[u32] = SAMPLING;

/// To decide which of the servers that start later are traced, and to read the files that they have mapped.
pub const FOLLOWING_STARTS: &[u32] =
    &[capability::SYS_PTRACE, capability::DAC_READ_SEARCH, capability::CHECKPOINT_RESTORE];

/// The same before Linux 5.19, where the kernel may refuse to read eBPF maps without it.
pub const FOLLOWING_STARTS_BY_MAPS: &[u32] =
    &[capability::SYS_PTRACE, capability::DAC_READ_SEARCH, capability::CHECKPOINT_RESTORE, capability::BPF];
