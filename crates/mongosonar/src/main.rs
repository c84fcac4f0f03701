//! The binary: arguments, configuration, threads, signals, exit codes. It joins the rooms and does
//! nothing else.
#![forbid(unsafe_code)]

mod cli;
mod config;
mod disk;
mod doctor;
mod manual;
mod queries;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mongosonar: {error:#}");
            ExitCode::from(1)
        }
    }
}

/// Whether it failed only because whoever read our output has gone: `mongosonar … | head`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(broken))
}
