//! Stacks of the threads of a server: what a thread was doing at a moment, and many such samples added up.

mod plain_names;
mod shares;
mod table;

pub use plain_names::{is_machinery, without_namespace};
pub use shares::SampleShare;
pub use table::{MAX_STACKS, SampledStack, StackKey, StackTable};

/// The registers that unwinding starts from.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Address of the next instruction.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer (`rbp`, `x29`).
    pub fp: u64,
    /// Link register (`x30`); 0 on x86-64, which has none.
    pub lr: u64,
}

/// What a thread did when it was sampled.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ThreadState {
    /// It ran on a processor.
    OnCpu,
    /// It could run, and waited for a processor.
    Runnable,
    /// It slept, in a way that a signal can interrupt.
    Sleeping,
    /// It slept in a way that no signal interrupts: usually it waits for a disk.
    Disk,
    /// It was stopped by a signal or a debugger, or has ended.
    Stopped,
}

impl ThreadState {
    /// From the kernel's `task_struct.__state` and `on_cpu` (include/linux/sched.h).
    pub const fn of_kernel(state: u32, on_cpu: bool) -> Self {
        const INTERRUPTIBLE: u32 = 1;
        const UNINTERRUPTIBLE: u32 = 2;
        // The thread is being woken up, or has not run yet.
        const WAKING: u32 = 0x200;
        const NEW: u32 = 0x800;
        match state {
            _ if on_cpu => Self::OnCpu,
            0 => Self::Runnable,
            _ if state & (WAKING | NEW) != 0 => Self::Runnable,
            _ if state & INTERRUPTIBLE != 0 => Self::Sleeping,
            _ if state & UNINTERRUPTIBLE != 0 => Self::Disk,
            _ => Self::Stopped,
        }
    }

    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnCpu => "on CPU",
            Self::Runnable => "runnable",
            Self::Sleeping => "sleeping",
            Self::Disk => "uninterruptible",
            Self::Stopped => "stopped",
        }
    }
}

/// One thread at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadSample {
    /// Its number.
    pub thread: u32,
    /// Its name, of at most 15 bytes.
    pub name: String,
    /// What it did.
    pub state: ThreadState,
    /// The number of the system call that it was in; `None` if it was in none.
    pub call: Option<u32>,
    /// Its registers in user mode; `None` if they are not known: it ran on a processor and no sample hit it.
    pub registers: Option<Registers>,
    /// The stack from [`Registers::sp`] on, as far as it was copied.
    pub stack: Vec<u8>,
    /// The thread ran while its stack was copied, so the bytes may not belong together.
    pub changed: bool,
}

/// What one look at all threads of a process gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackSnapshot {
    /// The threads, in the order of the kernel.
    pub threads: Vec<ThreadSample>,
    /// Processor time that the look took, in nanoseconds.
    pub cost_ns: u64,
    /// Samples of running threads that did not fit.
    pub lost: u64,
    /// Threads that did not fit into `threads`.
    pub left_out: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_of_the_kernel_are_distinguished() {
        // TASK_RUNNING, TASK_INTERRUPTIBLE, TASK_UNINTERRUPTIBLE, TASK_KILLABLE, __TASK_STOPPED, __TASK_TRACED.
        let states = [0, 1, 2, 0x102, 4, 8].map(|state| ThreadState::of_kernel(state, false));
        use ThreadState::{Disk, OnCpu, Runnable, Sleeping, Stopped};
        assert_eq!(states, [Runnable, Sleeping, Disk, Disk, Stopped, Stopped]);
        // TASK_WAKING, TASK_NEW.
        assert_eq!([0x200, 0x800].map(|state| ThreadState::of_kernel(state, false)), [Runnable; 2]);
        // A thread that is about to sleep still runs.
        assert_eq!(ThreadState::of_kernel(1, true), OnCpu);
    }
}
