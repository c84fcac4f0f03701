//! The binary: arguments, configuration, threads, signals, exit codes. It joins the rooms and does
//! nothing else.
#![forbid(unsafe_code)]

mod cli;
mod config;
mod connection;
mod content;
mod digest;
mod disk;
mod doctor;
mod exit;
mod io;
mod manual;
mod outfile;
mod profiler;
mod queries;
mod screen;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mongosonar: {}", exit::message(&error));
            ExitCode::from(exit::code(&error))
        }
    }
}

/// Whether it failed only because whoever read our output has gone: `mongosonar … | head`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = |cause: &(dyn std::error::Error + 'static)| {
        let io = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        io.or_else(|| cause.downcast_ref::<serde_json::Error>()?.io_error_kind())
    };
    error.chain().any(|cause| kind(cause) == Some(std::io::ErrorKind::BrokenPipe))
}
