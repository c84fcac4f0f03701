//! The arguments of `mongosonar profiler`.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use sonar_mongo::profiler::OWN_DATABASES;
use sonar_mongo::{Server, Target};

use crate::args::connection::ServerArgs;
use crate::args::values::{number, parse_duration, parse_scaled};
use crate::args::when::ZoneArgs;
use crate::digest::DigestArgs;
use crate::report_output::OutputArgs;

/// The server, as an option or, as `mongostat` takes it, as an argument.
#[derive(Args, Debug, Clone)]
pub struct ServerChoice {
    /// The server, as --uri takes it [default: what the environment variable MONGOSONAR_URI says, else localhost:27017]
    #[arg(value_name = "URI", conflicts_with_all = ["uri", "host", "port"])]
    pub address: Option<String>,
    #[command(flatten, next_help_heading = "Server")]
    pub server: ServerArgs,
}

impl ServerChoice {
    /// The server that is meant.
    pub fn target(&self) -> Result<Target> {
        match &self.address {
            Some(address) => self.server.complete(Target::from(address)),
            None => self.server.target(),
        }
    }
}

/// Which databases.
#[derive(Args, Debug, Clone, Default)]
pub struct Databases {
    /// This database; repeat for several
    #[arg(short, long = "db", value_name = "NAME", conflicts_with = "all_dbs")]
    pub db: Vec<String>,
    /// All databases but admin, config and local
    #[arg(long)]
    pub all_dbs: bool,
}

impl Databases {
    /// The named databases, or all; `own` includes the server's own.
    ///
    /// # Errors
    /// The databases cannot be listed.
    pub fn names(&self, server: &Server, own: bool) -> Result<Vec<String>> {
        if !self.db.is_empty() {
            let mut named = self.db.clone();
            named.sort();
            named.dedup();
            return Ok(named);
        }
        let mut names = server.databases()?;
        names.retain(|name| own || !OWN_DATABASES.contains(&name.as_str()));
        Ok(names)
    }
}

#[derive(Subcommand, Debug)]
pub enum ProfilerCommand {
    /// Show the profiling level and slow ms of each database, and how long until system.profile wraps
    #[command(after_long_help = STATUS_EXAMPLES)]
    Status(StatusArgs),
    /// Set the profiling level and slow ms; with --duration restore everything afterwards
    #[command(after_long_help = SET_EXAMPLES)]
    Set(Box<SetArgs>),
    /// Follow system.profile, one line for each operation
    #[command(after_long_help = TAIL_EXAMPLES)]
    Tail(TailArgs),
    /// Report on system.profile of a server, a BSON dump, or JSON
    #[command(after_long_help = REPORT_EXAMPLES)]
    Report(Box<ReportArgs>),
    /// Measure what profiling costs on this server, with a load in a database of its own
    #[command(after_long_help = IMPACT_EXAMPLES)]
    Impact(Box<ImpactArgs>),
}

/// One example of each command.
pub const EXAMPLES: &str = "\
Examples:
  mongosonar profiler status
  mongosonar profiler set --db shop --level 1 --slowms 50
  mongosonar profiler tail --db shop
  mongosonar profiler report system.profile.bson
  mongosonar profiler impact";

const STATUS_EXAMPLES: &str = "\
Examples:
  mongosonar profiler status
  mongosonar profiler status --host db1 --port 27018 --username dba --tls
  mongosonar profiler status --json 'mongodb://dba@db1/?tls=true&directConnection=true'
  MONGOSONAR_URI='mongodb+srv://dba:secret@cluster.example.net' mongosonar profiler status";

const SET_EXAMPLES: &str = "\
Examples:
  mongosonar profiler set --db shop --level 1 --slowms 50
  mongosonar profiler set --db shop --level 2 --size 64m --duration 60s  for a minute
  mongosonar profiler set --all-dbs --level 1 --filter '{\"millis\": {\"$gt\": 20}}'
  mongosonar profiler set --db shop --filter unset
slowms, sample rate and rate limit apply to the whole server, whichever database is named.";

const TAIL_EXAMPLES: &str = "\
Examples:
  mongosonar profiler tail --db shop
  mongosonar profiler tail --all-dbs --lines 0 --json > operations.jsonl
It continues after a restart or a fail-over, and says how much it missed if the collection wrapped too fast.";

#[derive(Args, Debug)]
pub struct TailArgs {
    #[command(flatten)]
    pub databases: Databases,
    /// Begin with this many of the operations that each database holds already
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = number(0_u32..=u32::MAX, 10))]
    pub lines: u32,
    /// Stop after this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Stop after this many operations
    #[arg(long, value_name = "N", value_parser = number(1_u64.., 100))]
    pub count: Option<u64>,
    #[command(flatten)]
    pub zone: ZoneArgs,
    /// One JSON object for each operation, with the ids of its shape
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub connection: ServerChoice,
}

const REPORT_EXAMPLES: &str = "\
Examples:
  mongosonar profiler report --uri localhost:27017 --db shop   what system.profile holds now
  mongosonar profiler report --uri localhost:27017 --duration 60s   what is written in a minute
  mongodump -d shop -c system.profile -o dump
  mongosonar profiler report dump/shop/system.profile.bson
  mongoexport -d shop -c system.profile | mongosonar profiler report -
  mongosonar profiler report system.profile.bson --by namespace --json";

#[derive(Args, Debug)]
pub struct ReportArgs {
    #[command(flatten)]
    pub digest: DigestArgs,
    /// Read only this database of the server; repeat for several [default: all but admin, config and local]
    #[arg(short, long = "db", value_name = "NAME", help_heading = "What to read")]
    pub db: Vec<String>,
    /// Read what the server writes during this time, not what is there already
    #[arg(long, alias = "for", value_name = "TIME", value_parser = parse_duration, help_heading = "What to read")]
    pub duration: Option<Duration>,
}

const IMPACT_EXAMPLES: &str = "\
Examples:
  mongosonar profiler impact                                levels 0, 1, 2 with 1 to 32 clients
  mongosonar profiler impact --level 0 --level 0            how precise the measurement is here
  mongosonar profiler impact --level 2 --duration 10m --size 64m --clients 8
  mongosonar profiler impact --html impact.html
It puts full load on the server. It creates a database that must not exist, and always drops it at the end.";

#[derive(Args, Debug)]
pub struct ImpactArgs {
    /// Name of the database to create and drop; it must not exist
    #[arg(long, value_name = "NAME", default_value = "mongosonar_impact", value_parser = parse_database)]
    pub db: String,
    /// Numbers of concurrent clients; repeat or separate by commas [default: 1,2,4,8,16,32]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = number(1_u32..=1024, 16))]
    pub clients: Vec<u32>,
    /// Profiling levels; each is compared with the first; repeat or separate by commas [default: 0,1,2]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = number(0..=2, 1))]
    pub level: Vec<i32>,
    /// Also level 2 with this rate limit (Percona Server for MongoDB) [default there: 100]
    #[arg(long, value_name = "N", value_parser = number(1_i64..=1000, 100))]
    pub rate_limit: Option<i64>,
    /// Number of measurements of each level with each number of clients
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = number(3_u16..=1000, 8))]
    pub rounds: u16,
    /// Length of a measurement
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    pub slice: Duration,
    /// Make one run of this length instead, with the last level and the most clients, to see system.profile wrap
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Number of documents in the collection
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = number(100_u32..=100_000_000, 10_000))]
    pub documents: u32,
    /// Size of system.profile [default: the server's, 1m]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Confidence of all verdicts together, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0, value_parser = parse_confidence)]
    pub confidence: f64,
    /// Seed of the order of the levels
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(0_u64..=u64::MAX, 1))]
    pub seed: u64,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub connection: ServerChoice,
}

#[derive(Args, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    pub databases: Databases,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub connection: ServerChoice,
}

#[derive(Args, Debug)]
pub struct SetArgs {
    #[command(flatten)]
    pub databases: Databases,
    /// Profiling level: 0 off, 1 slow operations (or what the filter matches), 2 every operation
    #[arg(long, value_name = "N", value_parser = number(0..=2, 1))]
    pub level: Option<i32>,
    /// Slow ms: operations that take longer than this are slow; applies to the log too
    #[arg(long, value_name = "MS", value_parser = number(-1..=i64::from(i32::MAX), 100))]
    pub slowms: Option<i64>,
    /// Share of slow operations to keep, 0 to 1; applies to the log too (MongoDB 3.6)
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub sample_rate: Option<f64>,
    /// Find expression in JSON over the fields of profile documents, or unset (MongoDB 4.4.2)
    #[arg(long, value_name = "JSON")]
    pub filter: Option<String>,
    /// Keep one in N of the operations below slowms at level 2 (Percona Server for MongoDB)
    #[arg(long, value_name = "N", value_parser = number(1_i64..=1000, 100))]
    pub rate_limit: Option<i64>,
    /// Size of system.profile, like 16m or 1g; a change drops what it holds
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Restore everything after this time; also on Ctrl-C, SIGTERM, SIGHUP, and when a lost connection comes back
    #[arg(long, alias = "for", value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// With --duration and --size: keep the new size, and so what was collected
    #[arg(long, requires = "duration")]
    pub keep_size: bool,
    #[command(flatten)]
    pub connection: ServerChoice,
}

/// A share, 0 to 1.
fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("{text:?} is no share: write a number from 0 to 1, like 0.1"))
}

/// Per cent, from 50 to 99.999.
fn parse_confidence(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').parse().ok().filter(|percent| (50.0..=99.999).contains(percent));
    percent.ok_or_else(|| format!("{text:?} is no confidence: write per cent from 50 to 99.999, like 95"))
}

/// A name that a database may have.
fn parse_database(text: &str) -> Result<String, String> {
    let good = !text.is_empty() && text.len() < 64 && !text.contains(['/', '\\', '.', ' ', '"', '$', '\0']);
    if good { Ok(text.to_owned()) } else { Err(format!("{text:?} is no name of a database")) }
}

/// `4096`, `64k`, `16m`, `1g`: bytes in powers of 1024; at least a page, at most a TiB.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_scaled(text, 1_024, "size")?;
    if !(4_096..=1 << 40).contains(&bytes) {
        return Err(format!("{text:?} is no size of a collection: write one from 4096 to 1024g, like 16m"));
    }
    // Servers round the size of a capped collection up to a multiple of 256.
    Ok(bytes.next_multiple_of(256))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_bytes("16m"), Ok(16 << 20));
        assert_eq!(parse_bytes("1GiB"), Ok(1 << 30));
        assert_eq!(parse_bytes("5000"), Ok(5_120));
        for wrong in ["", "m", "1x", "100", "99999999999g", "-5m"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
        assert!(parse_share("1.5").is_err() && parse_share("NaN").is_err() && parse_share("0.1").is_ok());
    }
}
