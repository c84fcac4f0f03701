//! The commands. The arguments of each are in the module of the command.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use sonar_sys::host::subordinate;

use crate::agent::{self, AgentArgs};
use crate::args::values::number;
use crate::confinement::file_reading::FileReading;
use crate::digest::{self, CompareArgs, JoinedReportArgs, LogsCommand};
use crate::disk::args::DiskCommand;
use crate::doctor::DoctorArgs;
use crate::exit::OK;
use crate::ftdc::FtdcCommand;
use crate::history::StoreArgs;
use crate::io::IoCommand;
use crate::open::OpenArgs;
use crate::profiler::args::ProfilerCommand;
use crate::queries::QueriesArgs;
use crate::serve::ServeArgs;
use crate::stacks::StacksArgs;
use crate::stacks::args::StacksCommand;
use crate::timeline::TimelineArgs;
use crate::what_changed::WhatChangedArgs;
use crate::why::WhyArgs;
use crate::{
    args::config, args::manual, disk, doctor, ftdc, incident, io, open, profiler, queries, screen, serve,
    stacks, timeline, what_changed, why,
};

/// Why is MongoDB slow? From the wire down to the disk.
#[derive(Parser, Debug)]
#[command(name = "mongosonar", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Read defaults from this configuration file instead of the user's or the system's
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Keep text reports to N columns; 0 is no limit [default: the terminal's width; no limit into a pipe or file]
    #[arg(long, global = true, value_name = "N", value_parser = number(0..=usize::MAX, 120))]
    width: Option<usize>,
}

const EXAMPLES: &str = "\
Examples:
  sudo mongosonar queries                  which queries this machine's MongoDB serves, live
  mongosonar queries --read wire.pcap.gz   the same from a capture file
  sudo mongosonar why                      where their time goes inside the server
  mongosonar logs report mongod.log        what its log says: plans, documents examined, locks
  mongosonar report wire.pcap mongod.log   latency on the wire beside what the server examined
  mongosonar compare monday.json mongod.log  what is new or slower since
  mongosonar profiler status               what the profiler is set to, and when it wraps
  mongosonar disk bench -r -w              how good this disk is, as mongoperf measured it
  sudo mongosonar io record reads.msio     every access to the files of this machine's mongod
  mongosonar io report reads.msio          which files were read, in which order
  sudo mongosonar stacks --duration 30s    what its threads wait for
  sudo mongosonar ftdc report /var/lib/mongodb  what the server recorded: what is wrong, since when
  sudo mongosonar agent                    collect all of that all the time, and keep it
  mongosonar what-changed --at 14:05       what changed then, from the history of the agent
  sudo mongosonar open                     a link to the same history, for a browser
  mongosonar doctor                        what works here, and how to fix what does not";

#[derive(Subcommand, Debug)]
enum Command {
    /// Show the queries on the wire: which, queries per second, how slow, for which connection, with which errors
    #[command(after_long_help = queries::args::EXAMPLES)]
    Queries(Box<QueriesArgs>),
    /// Show where the time of each query goes inside the server: running, waiting for a processor, for locks, for reads of files
    #[command(after_help = why::args::EXAMPLES)]
    Why(Box<WhyArgs>),
    /// Read logs of mongod and mongos, 2.4 to 8.x: slow operations (slow ms) by shape, connections, starts, errors
    #[command(subcommand, after_help = digest::args::LOGS_EXAMPLES)]
    Logs(LogsCommand),
    /// Control the database profiler (level, slow ms), read and follow what it writes, and measure what it costs
    #[command(subcommand, after_help = profiler::args::EXAMPLES)]
    Profiler(ProfilerCommand),
    /// Read captures, logs and profiles of the same minutes together: latency on the wire beside what the server did
    #[command(
        after_long_help = digest::args::REPORT_EXAMPLES,
        mut_arg("files", |files| files.help("Captures, logs and dumps of system.profile, plain, gzip or zstd; without files, and with --from or --to, an incident from the history of an agent"))
    )]
    Report(Box<JoinedReportArgs>),
    /// Compare two captures, logs, profiles or saved reports: what is new, gone, slower or heavier
    #[command(after_long_help = digest::args::COMPARE_EXAMPLES)]
    Compare(Box<CompareArgs>),
    /// Explain in words what changed at a moment, or find the moments of change, in the history of an agent
    #[command(after_help = what_changed::args::EXAMPLES)]
    WhatChanged(WhatChangedArgs),
    /// Show queries, internals, machine and events of the history of an agent on one axis of time
    #[command(after_help = timeline::args::EXAMPLES)]
    Timeline(TimelineArgs),
    /// Measure a disk for MongoDB, watch it, check how it is set up
    #[command(subcommand, after_help = disk::args::EXAMPLES)]
    Disk(DiskCommand),
    /// Trace the files of a process: which are read, in which order, by how much more than needed
    #[command(subcommand, after_help = io::args::EXAMPLES)]
    Io(IoCommand),
    /// Show what the threads of a server do and wait for, with their stacks, without stopping it
    #[command(after_help = stacks::args::EXAMPLES)]
    Stacks(StacksArgs),
    /// Read diagnostic.data (FTDC), what a server records of itself each second: what is wrong, since when; 3.2 to 8.x
    #[command(subcommand, after_help = ftdc::args::EXAMPLES)]
    Ftdc(FtdcCommand),
    /// Collect all the time, or from files of an incident, and keep it: queries, logs, internals, the machine, files
    #[command(after_help = agent::EXAMPLES)]
    Agent(Box<AgentArgs>),
    /// Serve the history of an agent, or files of an incident: as a page for a browser, as JSON for programs
    #[command(after_help = serve::args::EXAMPLES)]
    Serve(ServeArgs),
    /// Print a link that opens the page of the agent or of `serve` once, or make its token new
    #[command(after_help = open::EXAMPLES)]
    Open(OpenArgs),
    /// Check what works on this machine, and say how to fix what does not
    #[command(after_help = "Examples:\n  mongosonar doctor\n  mongosonar doctor --json")]
    Doctor(DoctorArgs),
    /// Print shell completions
    #[command(
        after_help = "Example:\n  mongosonar completions bash | sudo tee /etc/bash_completion.d/mongosonar"
    )]
    Completions {
        /// Shell to complete for
        #[arg(value_name = "bash|elvish|fish|powershell|zsh")]
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write all pages into a folder
    #[command(after_help = "Example:\n  mongosonar man | man -l -")]
    Man {
        /// Folder to write the pages of all commands into
        dir: Option<PathBuf>,
    },
}

/// All commands with their help.
pub fn program() -> clap::Command {
    manual::with_exit_codes(Cli::command())
}

/// Parses the arguments and runs the command.
pub fn run() -> Result<ExitCode> {
    let matches = program().try_get_matches().unwrap_or_else(|error| {
        let tip = incident_tip(&error).or_else(|| file_tip(&error));
        let _ = error.print();
        if let Some(tip) = tip {
            eprintln!("");
            eprintln!("{tip}");
        }
        std::process::exit(error.exit_code())
    });
    let cli = Cli::from_arg_matches(&matches)?;
    screen::set_width(cli.width);
    // The doctor reports on it, and the agent has another one.
    let reads_it_itself = matches!(cli.command, Command::Doctor(_) | Command::Agent(_));
    // A file that is named is checked, whichever command it is for.
    let file = match &cli.command {
        Command::Queries(_) => config::load(cli.config.as_deref())?,
        _ if cli.config.is_some() && !reads_it_itself => config::load(cli.config.as_deref())?,
        _ => config::File::default(),
    };
    // Before privileges are dropped.
    subordinate::load();
    if let Some(reading) = reading(&cli.command) {
        check_digest(&cli.command)?;
        reading.begin()?;
    }
    let code = match cli.command {
        Command::Queries(args) => queries::run(&config::merge(*args, &file))?,
        Command::Why(args) => why::run(&args)?,
        Command::Logs(LogsCommand::Report(args)) => digest::logs(&args)?,
        Command::Profiler(command) => profiler::run(&command)?,
        Command::Report(args) if args.digest.is_of_the_history() => incident::run(&args.digest, &args.store)?,
        Command::Report(args) => digest::report(&args)?,
        Command::Compare(args) => digest::compare(&args)?,
        Command::WhatChanged(args) => what_changed::run(&args)?,
        Command::Timeline(args) => timeline::run(&args)?,
        Command::Disk(command) => disk::run(&command)?,
        Command::Io(command) => io::run(&command)?,
        Command::Stacks(args) => stacks::run(&args)?,
        Command::Ftdc(command) => ftdc::run(&command)?,
        Command::Agent(args) => agent::run(&args, cli.config.as_deref())?,
        Command::Serve(args) => serve::run(&args)?,
        Command::Open(args) => open::run(&args)?,
        Command::Doctor(args) => doctor::run(&args, cli.config.as_deref())?,
        Command::Completions { shell } => {
            manual::completions(&mut program(), shell)?;
            OK
        }
        Command::Man { dir } => {
            manual::pages(program(), dir.as_deref())?;
            OK
        }
    };
    Ok(ExitCode::from(code))
}

/// Checks what the arguments of a report of files ask for, before its page is made.
///
/// # Errors
/// As [`digest::TimeRange::of`].
fn check_digest(command: &Command) -> Result<()> {
    let args = match command {
        Command::Logs(LogsCommand::Report(args)) => args,
        Command::Profiler(ProfilerCommand::Report(args)) => &args.digest,
        Command::Report(args) if !args.digest.is_of_the_history() => &args.digest,
        _ => return Ok(()),
    };
    digest::TimeRange::of(args).map(drop)
}

/// What a command reads, if it does nothing but read files. `agent --replay`, which writes a store, is none of them.
fn reading(command: &Command) -> Option<FileReading<'_>> {
    fn of_store(store: &StoreArgs) -> FileReading<'_> {
        FileReading::of([store.folder()])
    }
    match command {
        Command::Queries(args) => args.reading(),
        Command::Logs(LogsCommand::Report(args)) => Some(args.reading()),
        Command::Profiler(command) => match command {
            ProfilerCommand::Report(args) => profiler::reads_files(args).then(|| args.digest.reading()),
            ProfilerCommand::Status(_)
            | ProfilerCommand::Set(_)
            | ProfilerCommand::Tail(_)
            | ProfilerCommand::Impact(_) => None,
        },
        Command::Report(args) => Some(args.reading()),
        Command::Compare(args) => Some(args.reading()),
        Command::WhatChanged(WhatChangedArgs { report, .. })
        | Command::Timeline(TimelineArgs { report, .. }) => {
            Some(of_store(&report.store).with_page(report.output.html.as_ref()))
        }
        Command::Disk(command) => match command {
            DiskCommand::Bench(args) => {
                Some(FileReading::of(args.compare.as_deref()?).with_page(args.html.as_ref()))
            }
            DiskCommand::Estimate(args) => Some(FileReading::of(args.run.as_ref())),
            DiskCommand::Stat(args) => args.past.is_asked().then(|| of_store(&args.past.store)),
            DiskCommand::Check(_) => None,
        },
        Command::Io(command) => command.reading(),
        Command::Stacks(args) => {
            let StacksCommand::Compare(args) = args.command.as_ref()?;
            Some(FileReading::of([&args.before, &args.after]).with_page(args.output.html.as_ref()))
        }
        Command::Ftdc(command) => Some(command.reading()),
        Command::Why(_)
        | Command::Agent(_)
        | Command::Serve(_)
        | Command::Open(_)
        | Command::Doctor(_)
        | Command::Completions { .. }
        | Command::Man { .. } => None,
    }
}

/// What to write where a file stands in the place of an option or a command: `queries wire.pcap`, `logs mongod.log`.
fn file_tip(error: &clap::Error) -> Option<String> {
    let word = error.get(ContextKind::InvalidArg).or_else(|| error.get(ContextKind::InvalidSubcommand))?;
    let ContextValue::String(word) = word else { return None };
    let usage = error.get(ContextKind::Usage)?.to_string();
    let is_file = std::fs::metadata(word).is_ok_and(|found| !found.is_dir());
    let instead = [
        ("mongosonar queries", "mongosonar queries --read"),
        ("mongosonar logs", "mongosonar logs report"),
        ("mongosonar profiler", "mongosonar profiler report"),
        ("mongosonar io", "mongosonar io report"),
        ("mongosonar ftdc", "mongosonar ftdc report"),
    ];
    let (_, instead) = instead.into_iter().find(|(command, _)| usage.contains(command))?;
    is_file.then(|| format!("To read a file: {instead} {word}"))
}

/// What writes the page that is called an incident: no command has its name.
fn incident_tip(error: &clap::Error) -> Option<String> {
    let ContextValue::String(word) = error.get(ContextKind::InvalidSubcommand)? else { return None };
    (word == "incident").then(|| {
        "For the page of an incident: mongosonar report --from 14:00 --to 14:30 --html incident.html"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_an_incident_is_told_what_writes_its_page_and_who_names_no_shell_which_there_are() {
        let error = |words: &[&str]| program().try_get_matches_from(words).unwrap_err();
        let tip = incident_tip(&error(&["mongosonar", "incident"])).unwrap();
        assert!(tip.contains("mongosonar report --from") && tip.contains("--html"), "{tip}");
        assert_eq!(incident_tip(&error(&["mongosonar", "incidents"])), None);
        let shells = error(&["mongosonar", "completions"]).to_string();
        assert!(shells.contains("<bash|elvish|fish|powershell|zsh>"), "{shells}");
    }

    #[test]
    fn the_arguments_are_consistent() {
        program().debug_assert();
    }
}
