//! The binary: arguments, configuration, threads, signals, exit codes. It joins the other crates and does
//! nothing else.
#![forbid(unsafe_code)]

/// As in the standard library, but a standard error that nobody reads any more is no reason to panic, and a message is one
/// line: whatever else is in it, like a file name of another user, is shown and not obeyed.
macro_rules! eprintln {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "{}", sonar_view::kit::escape(&format!($($argument)*)));
    }};
}

/// Likewise, for standard output: what was begun on a server must be ended there.
macro_rules! println {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), "{}", sonar_view::kit::escape(&format!($($argument)*)));
    }};
}

mod agent;
mod args;
mod capture;
mod capture_reading;
mod cli;
mod confinement;
mod digest;
mod disk;
mod doctor;
mod exit;
mod ftdc;
mod functions;
mod history;
mod in_order;
mod incident;
mod input;
mod io;
mod large;
mod locking;
mod open;
mod outfile;
mod page;
mod profiler;
mod progress;
mod queries;
mod report_output;
mod screen;
mod serve;
mod servers;
mod stacks;
mod stop;
mod timeline;
mod what_changed;
mod why;

use std::process::ExitCode;

use sonar_sys::CountedHeap;

#[global_allocator]
static HEAP: CountedHeap = CountedHeap;

fn main() -> ExitCode {
    // The agent accounts for its memory; no other command pays for that. Nothing was allocated yet that counts.
    if std::env::args_os().any(|word| word == "agent") {
        CountedHeap::begin();
    }
    match cli::run() {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let why = exit::message(&error);
            outfile::explain_failure(&why);
            eprintln!("mongosonar: {why}");
            ExitCode::from(exit::code(&error))
        }
    }
}

/// Whether it failed only because whoever read our output has gone: `mongosonar … | head`, a terminal that closed.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    use std::io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| {
        if let Some(error) = cause.downcast_ref::<std::io::Error>() {
            // 5 is EIO: a terminal that was hung up.
            return error.kind() == BrokenPipe || error.raw_os_error() == Some(5) && stop::is_abandoned();
        }
        let json = cause.downcast_ref::<serde_json::Error>();
        json.and_then(serde_json::Error::io_error_kind)
            .is_some_and(|kind| kind == BrokenPipe || stop::is_abandoned())
    })
}
