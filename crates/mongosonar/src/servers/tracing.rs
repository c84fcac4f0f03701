//! Why servers cannot be traced by eBPF programs, and what helps.

use anyhow::anyhow;
use sonar_sys::capabilities::grant_line;
use sonar_sys::ebpf::{
    OWN_PROCESS_NAMESPACE, PROCESS_NAMESPACE_REMEDY, TraceError, is_in_own_process_namespace,
};

/// Why nothing can be traced, with the command that helps: what the programs need, and what the paths of
/// another user's files do.
pub fn refused(error: TraceError) -> anyhow::Error {
    match error {
        TraceError::Permission(why) => anyhow!("no permission to trace ({why}): {}", remedy()),
        other => other.into(),
    }
}

/// That this runs in a process namespace of its own, where the programs find none of the processes, in words with what
/// helps; `None` if it does not.
pub fn process_namespace_problem() -> Option<String> {
    is_in_own_process_namespace().then(|| format!("{OWN_PROCESS_NAMESPACE}: {PROCESS_NAMESPACE_REMEDY}"))
}

/// Says that on standard error.
pub fn warn_of_process_namespace() {
    if let Some(problem) = process_namespace_problem() {
        eprintln!("mongosonar: {problem}");
    }
}

/// What gives the permission to trace, in words.
pub fn remedy() -> String {
    format!("run as root, or grant it once: {}", grant_line())
}
