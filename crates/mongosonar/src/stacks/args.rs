//! The arguments of `mongosonar stacks`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use sonar_core::files::ThreadRole;

use crate::args::values::{number, parse_duration};
use crate::outfile;
use crate::report_output::OutputArgs;

/// Examples for the help.
pub const EXAMPLES: &str = "\
Examples:
  sudo mongosonar stacks                                    what all threads do now
  sudo mongosonar stacks --duration 30s                     what they wait for most, over 30 seconds
  sudo mongosonar stacks --port 27018                       those of the server at this port
  sudo mongosonar stacks --threads client-connection --waiting
  sudo mongosonar stacks --all --format pmp                 in the format of pt-pmp
  sudo mongosonar stacks --duration 30s --html stacks.html  also a page with a flame graph
  sudo mongosonar stacks --duration 30s --format json > before.json
  mongosonar stacks compare before.json after.json";

/// The arguments of `stacks`.
#[derive(Args, Debug, Clone)]
#[command(args_conflicts_with_subcommands = true)]
pub struct StacksArgs {
    #[command(subcommand)]
    pub command: Option<StacksCommand>,
    /// Process to sample, which may be any program [default: the mongod or mongos of this machine]
    #[arg(long, short_alias = 'p', value_name = "PID", value_parser = number(1_u32.., 712))]
    pub pid: Option<u32>,
    /// Sample the server of this machine that listens on this port
    #[arg(long, value_name = "PORT", value_parser = number(1_u16..=65_535, 27_017), conflicts_with = "pid")]
    pub port: Option<u16>,
    /// Sample repeatedly for this long [default: once]
    #[arg(long, short_alias = 'd', value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Time between two snapshots
    #[arg(long, short_alias = 'i', value_name = "TIME", default_value = "100ms", value_parser = parse_duration, requires = "duration")]
    pub interval: Duration,
    /// Only threads with this role, for example client-connection, checkpoint, journal, engine, replication
    #[arg(long, value_name = "ROLE", value_parser = parse_role)]
    pub threads: Option<ThreadRole>,
    /// Only running threads
    #[arg(long, conflicts_with_all = ["waiting", "all"])]
    pub on_cpu: bool,
    /// Only waiting threads
    #[arg(long, conflicts_with = "all")]
    pub waiting: bool,
    /// All threads, including idle ones
    #[arg(long)]
    pub all: bool,
    /// Output format
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    format: StackFormat,
    /// One JSON object instead of text, as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Show functions with arguments, templates and namespaces, and leave none out
    #[arg(long)]
    pub full_names: bool,
    /// Rules for wait classes, applied before the built-in ones
    #[arg(long, value_name = "FILE")]
    pub classes: Option<PathBuf>,
    /// Write the report as one self-contained page, with a flame graph to zoom and search, into this file too
    #[arg(long, value_name = "FILE", value_parser = outfile::parse)]
    pub html: Option<PathBuf>,
    /// Print at most this many stacks as text
    #[arg(long, value_name = "N", default_value = "20", value_parser = number(1_usize.., 20))]
    pub limit: usize,
}

impl StacksArgs {
    /// How many snapshots are asked for.
    pub fn snapshots(&self) -> u64 {
        let Some(duration) = self.duration else { return 1 };
        let count = duration.as_nanos().div_ceil(self.interval.as_nanos().max(1));
        u64::try_from(count).unwrap_or(u64::MAX).max(1)
    }

    /// The output format.
    pub const fn format(&self) -> StackFormat {
        if self.json { StackFormat::Json } else { self.format }
    }
}

/// Commands for stacks that were saved.
#[derive(Subcommand, Debug, Clone)]
pub enum StacksCommand {
    /// Compare two results of --format json: which waits and functions became more or less frequent, beyond chance
    #[command(after_help = "Example:\n  mongosonar stacks compare before.json after.json")]
    Compare(StacksCompareArgs),
}

/// The arguments of `stacks compare`.
#[derive(Args, Debug, Clone)]
pub struct StacksCompareArgs {
    /// A result of `stacks --format json`
    #[arg(value_name = "A")]
    pub before: PathBuf,
    /// A later result
    #[arg(value_name = "B")]
    pub after: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// How stacks are printed.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub enum StackFormat {
    /// A table by class and role, and the most frequent stacks
    Text,
    /// The format of pt-pmp
    Pmp,
    /// The input of flame graph programs
    Folded,
    /// A flame graph as a picture for a browser
    Svg,
    /// One JSON object
    Json,
    /// The page that --html writes
    Html,
}

const ROLES: [ThreadRole; 10] = [
    ThreadRole::Client,
    ThreadRole::Checkpoint,
    ThreadRole::Journal,
    ThreadRole::Engine,
    ThreadRole::Replication,
    ThreadRole::IndexBuild,
    ThreadRole::Ttl,
    ThreadRole::Migration,
    ThreadRole::Diagnostics,
    ThreadRole::Other,
];

fn word(role: ThreadRole) -> String {
    match role {
        ThreadRole::Other => "other".to_owned(),
        known => known.name().replace(' ', "-").to_lowercase(),
    }
}

/// Reads a role by its name in output, with spaces or hyphens.
fn parse_role(text: &str) -> Result<ThreadRole, String> {
    let wanted = text.replace(' ', "-").to_lowercase();
    ROLES.into_iter().find(|role| word(*role) == wanted).ok_or_else(|| {
        let words: Vec<String> = ROLES.into_iter().map(word).collect();
        format!("there is no role {text:?}: use {}", words.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_named_as_in_output() {
        assert_eq!(parse_role("client connection"), Ok(ThreadRole::Client));
        assert_eq!(parse_role("TTL"), Ok(ThreadRole::Ttl));
        assert_eq!(parse_role("index-build"), Ok(ThreadRole::IndexBuild));
        assert_eq!(parse_role("other"), Ok(ThreadRole::Other));
        assert!(parse_role("reader").unwrap_err().contains("client-connection, checkpoint"));
        for role in ROLES {
            assert_eq!(parse_role(&word(role)), Ok(role));
        }
    }

    #[test]
    fn snapshots_are_asked_for_by_duration_and_interval() {
        #[derive(clap::Parser)]
        struct TestCommand {
            #[command(flatten)]
            stacks: StacksArgs,
        }
        let asked = |words: &str| {
            let words = ["stacks"].into_iter().chain(words.split_whitespace());
            <TestCommand as clap::Parser>::try_parse_from(words).unwrap().stacks.snapshots()
        };
        assert_eq!(asked(""), 1);
        assert_eq!(asked("--duration 5s"), 50);
        assert_eq!(asked("--duration 1s --interval 300ms"), 4, "at 0, 300, 600 and 900 ms");
        assert_eq!(asked("--duration 1s --interval 5s"), 1);
    }
}
