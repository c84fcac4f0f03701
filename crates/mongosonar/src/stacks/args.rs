//! The arguments of `mongosonar stacks`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use sonar_core::files::ThreadRole;

use crate::values::{number, parse_duration};

/// Examples for the help.
pub const EXAMPLES: &str = "\
Examples:
  sudo mongosonar stacks                                  what all threads do now
  sudo mongosonar stacks --duration 30s                   what they wait for most, over 30 seconds
  sudo mongosonar stacks --threads client-connection --waiting
  sudo mongosonar stacks --all --format pmp               as pt-pmp prints them
  sudo mongosonar stacks --duration 30s --format svg > stacks.svg
  sudo mongosonar stacks --duration 30s --format json > before.json
  mongosonar stacks compare before.json after.json";

/// The arguments of `stacks`.
#[derive(Args, Debug, Clone)]
#[command(args_conflicts_with_subcommands = true)]
pub struct StacksArgs {
    #[command(subcommand)]
    pub command: Option<StacksCommand>,
    /// Process to look at, which may be any program [default: the mongod or mongos of this machine]
    #[arg(long, short_alias = 'p', value_name = "PID", value_parser = number(1_u32.., 712))]
    pub pid: Option<u32>,
    /// Look again and again for this time [default: once]
    #[arg(long, short_alias = 'd', value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Time between two looks
    #[arg(long, short_alias = 'i', value_name = "TIME", default_value = "100ms", value_parser = parse_duration, requires = "duration")]
    pub interval: Duration,
    /// Only threads with this role, like client-connection, checkpoint, journal, engine, replication
    #[arg(long, value_name = "ROLE", value_parser = parse_role)]
    pub threads: Option<ThreadRole>,
    /// Only threads that run on a processor
    #[arg(long, conflicts_with_all = ["waiting", "all"])]
    pub on_cpu: bool,
    /// Only threads that wait for something
    #[arg(long, conflicts_with = "all")]
    pub waiting: bool,
    /// All threads, also those with nothing to do
    #[arg(long)]
    pub all: bool,
    /// What to print
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    pub format: StackFormat,
    /// Names of functions with their arguments and templates
    #[arg(long)]
    pub full_names: bool,
    /// Rules for wait classes, which apply before the program's own
    #[arg(long, value_name = "FILE")]
    pub classes: Option<PathBuf>,
    /// Print at most this many stacks as text
    #[arg(long, value_name = "N", default_value = "20", value_parser = number(1_usize.., 20))]
    pub limit: usize,
}

/// Commands for stacks that were saved.
#[derive(Subcommand, Debug, Clone)]
pub enum StacksCommand {
    /// Compare two results of --format json: which waits and functions are more or less frequent, beyond chance
    #[command(after_help = "Example:\n  mongosonar stacks compare before.json after.json")]
    Compare(StacksCompareArgs),
}

/// The arguments of `stacks compare`.
#[derive(Args, Debug, Clone)]
pub struct StacksCompareArgs {
    /// Result of `stacks --format json` to compare with
    #[arg(value_name = "A")]
    pub before: PathBuf,
    /// Another one
    #[arg(value_name = "B")]
    pub after: PathBuf,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// How stacks are printed.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub enum StackFormat {
    /// A table by class and role, and the most frequent stacks
    Text,
    /// As pt-pmp prints them
    Pmp,
    /// The input of flame graphs
    Folded,
    /// A flame graph, as a picture for a browser
    Svg,
    /// One JSON object
    Json,
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
}
