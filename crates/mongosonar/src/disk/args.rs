//! Arguments of `mongosonar disk`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use sonar_sys::disk::MOST_IN_FLIGHT;

use crate::args::values::{number, parse_duration, parse_scaled};
use crate::history::PastArgs;
use crate::outfile;

/// mongoperf's bound of `recSizeKB`.
pub const MOST_RECORD_KB: u32 = 64_000;
/// Most MiB of a file: an exbibyte.
pub const MOST_FILE_MB: u64 = 1 << 40;
/// The longest `sleepMicros` and `syncDelay`.
pub const MOST_PAUSE: u64 = u32::MAX as u64;

#[derive(Subcommand, Debug)]
pub enum DiskCommand {
    /// Measure what a disk can do: mongoperf for today, with its configuration and its lines
    #[command(after_long_help = BENCH_EXAMPLES)]
    Bench(Box<BenchArgs>),
    /// Estimate how long reading a number of documents takes on a disk that was measured
    #[command(after_long_help = ESTIMATE_EXAMPLES)]
    Estimate(EstimateArgs),
    /// Show the devices below a folder, or all, with the columns of iostat -x
    #[command(after_long_help = STAT_EXAMPLES)]
    Stat(StatArgs),
    /// Check file system, devices, memory and limits against MongoDB's production notes; changes nothing
    #[command(after_long_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
}

/// One example of each command.
pub const EXAMPLES: &str = "\
Examples:
  mongosonar disk bench --dir /var/lib/mongodb -r --nThreads 64 --json > run.json
  mongosonar disk estimate run.json --documents 100M
  mongosonar disk stat --dbpath /var/lib/mongodb
  mongosonar disk check";

const CHECK_EXAMPLES: &str = "\
Examples:
  mongosonar disk check                                 the data folder of the mongod here
  mongosonar disk check --dbpath /var/lib/mongodb --mongod-version 8.0
  mongosonar disk check --root tree --dbpath /data/db   copies of /proc and /sys of another one";

/// The arguments of `disk check`.
#[derive(Args, Debug, Default, Clone)]
pub struct CheckArgs {
    /// Folder of the data [default: that of the running mongod, if only one runs]
    #[arg(long, value_name = "DIR")]
    pub dbpath: Option<PathBuf>,
    /// Version of mongod, like 7.0 [default: that of the mongod on this machine]
    #[arg(long, value_name = "X.Y", value_parser = parse_version)]
    pub mongod_version: Option<(u32, u32)>,
    /// Folder with copies of /proc and /sys of the machine to check
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

fn parse_version(text: &str) -> Result<(u32, u32), String> {
    let mut parts = text.trim().trim_start_matches('v').split('.');
    let mut next = || parts.next().and_then(|part| part.parse().ok());
    let major: Option<u32> = next();
    major
        .map(|major| (major, next().unwrap_or(0)))
        .ok_or_else(|| format!("{text:?} is no version: write it like 7.0"))
}

const STAT_EXAMPLES: &str = "\
Examples:
  mongosonar disk stat --dbpath /var/lib/mongodb    the device of the data, and the disks below it
  mongosonar disk stat --interval 5s --duration 1m  all active devices, for a minute
  mongosonar disk stat md0 --json                   one JSON object for each interval
  mongosonar disk stat --from 14:00 --to 14:10      means of that time, from an agent";

/// The arguments of `disk stat`.
#[derive(Args, Debug, Clone)]
pub struct StatArgs {
    /// Devices, like sda, md0 or /dev/mapper/vg-data; each is shown with the devices below it [default: all]
    pub devices: Vec<String>,
    /// Folder of the data: shows its device and the devices below it
    #[arg(long, value_name = "DIR")]
    pub dbpath: Option<PathBuf>,
    /// Length of an interval, like 500ms, 10s, 1m
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub interval: Duration,
    /// Stop after this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Stop after this many intervals
    #[arg(long, value_name = "N", value_parser = number(1_u64.., 10))]
    pub count: Option<u64>,
    #[command(flatten, next_help_heading = "History")]
    pub past: PastArgs,
    /// One JSON object for each interval
    #[arg(long)]
    pub json: bool,
}

const ESTIMATE_EXAMPLES: &str = "\
Examples:
  mongosonar disk estimate run.json --documents 100M            at random and in order, on that disk
  mongosonar disk estimate run.json --size 500G --documents 100M
  mongosonar disk estimate --rate 100 --documents 100M          100 reads a second";

/// The arguments of `disk estimate`.
#[derive(Args, Debug, Default, Clone)]
pub struct EstimateArgs {
    /// A result of disk bench --json; - is standard input
    pub run: Option<PathBuf>,
    /// Reads per second of the disk, instead of a result
    #[arg(long, value_name = "N", conflicts_with = "run", value_parser = parse_rate)]
    pub rate: Option<f64>,
    /// Number of documents to read, like 250000 or 100M
    #[arg(long, alias = "reads", value_name = "N", value_parser = parse_count)]
    pub documents: Option<u64>,
    /// Size of the collection on disk, like 500G (1G is 1,073,741,824 bytes)
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Bytes of a document on disk [default: size by documents, else one record of the result]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub document_bytes: Option<u64>,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

fn parse_count(text: &str) -> Result<u64, String> {
    parse_scaled(text, 1_000, "count")
}

fn parse_size(text: &str) -> Result<u64, String> {
    parse_scaled(text, 1_024, "size")
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| *rate > 0.0 && *rate <= 1e9);
    rate.ok_or_else(|| "write the reads per second, more than 0 and at most 1000000000, like 5000".to_owned())
}

const BENCH_EXAMPLES: &str = "\
Examples:
  mongosonar disk bench --dir /var/lib/mongodb -r --fileSizeMB 4000 --nThreads 64
  echo '{nThreads:16, fileSizeMB:1000, r:true, w:true}' | mongosonar disk bench
  mongosonar disk bench -r -w --json > ext4.json          keep a run
  mongosonar disk bench -r --html disk.html               a page with the plot
  mongosonar disk bench --compare ext4.json xfs.json      two runs side by side
Without --r and --w, and with --mongoperf-config -, it reads mongoperf's configuration from standard input.";

/// The arguments of `disk bench`. The names of mongoperf are flags too.
#[derive(Args, Debug, Default, Clone)]
#[command(next_help_heading = "What to measure, in mongoperf's names")]
pub struct BenchArgs {
    /// Read mongoperf's configuration from this file, a JSON document with keys quoted or not; - is standard input
    #[arg(long, value_name = "FILE")]
    pub mongoperf_config: Option<PathBuf>,
    /// Most requests in flight; the steps are 1, 2, 4 … up to it [default: 1]
    #[arg(long = "nThreads", alias = "n-threads", value_name = "N", value_parser = number(1..=MOST_IN_FLIGHT, 16))]
    pub n_threads: Option<u32>,
    /// Size of the test file in MiB [default: 1]
    #[arg(long = "fileSizeMB", alias = "file-size-mb", value_name = "MIB", value_parser = number(1..=MOST_FILE_MB, 4_000))]
    pub file_size_mb: Option<u64>,
    /// Pause after each round in microseconds, divided by the number in flight [default: 0]
    #[arg(long = "sleepMicros", alias = "sleep-micros", value_name = "MICROS", value_parser = number(0..=MOST_PAUSE, 1_000))]
    pub sleep_micros: Option<u64>,
    /// Map the file into memory instead of direct I/O [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub mmf: Option<bool>,
    /// Read [default: false]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub r: Option<bool>,
    /// Write; with --r, each round is a read and a write, counted as two operations [default: false]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub w: Option<bool>,
    /// Size of a record in KiB, up to 64000 [default: 4]
    #[arg(long = "recSizeKB", alias = "rec-size-kb", value_name = "KIB", value_parser = number(1..=MOST_RECORD_KB, 4))]
    pub rec_size_kb: Option<u32>,
    /// Seconds between two msync, with --mmf [default: 0, never]
    #[arg(long = "syncDelay", alias = "sync-delay", value_name = "SECONDS", value_parser = number(0..=MOST_PAUSE, 60))]
    pub sync_delay: Option<u64>,
    /// Folder for the test file, which is removed at the end [default: .]
    #[arg(long, value_name = "DIR", help_heading = "How to do it")]
    pub dir: Option<PathBuf>,
    /// How to make requests [default: uring, or threads where io_uring is forbidden; mmap with --mmf]
    #[arg(long, value_name = "NAME", value_enum, help_heading = "How to do it")]
    pub engine: Option<EngineArg>,
    /// Order of the requests [default: random]
    #[arg(long, value_name = "HOW", value_enum, help_heading = "How to do it")]
    pub access: Option<AccessArg>,
    /// Length of a step
    #[arg(long, value_name = "SECONDS", default_value = "8", value_parser = parse_seconds, help_heading = "How to do it")]
    pub step_seconds: Duration,
    /// Length of each of the short probes before the steps; 0 skips them
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds_or_none, help_heading = "How to do it")]
    pub probe_seconds: Duration,
    /// Run only one step, with nThreads requests in flight
    #[arg(long, help_heading = "How to do it")]
    pub no_ramp: bool,
    /// Do not follow each write with fdatasync, as mongoperf did
    #[arg(long, help_heading = "How to do it")]
    pub no_fdatasync: bool,
    /// Use the page cache, where a file system has no direct I/O
    #[arg(long, help_heading = "How to do it")]
    pub buffered: bool,
    /// Seed of the offsets; the same number gives the same offsets
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(0_u64..=u64::MAX, 1), help_heading = "How to do it")]
    pub seed: u64,
    /// One JSON object instead of text; mongoperf's lines go to standard error
    #[arg(long, help_heading = "What to show")]
    pub json: bool,
    /// Write the report as one self-contained page with charts into this file too
    #[arg(long, value_name = "FILE", value_parser = outfile::parse, help_heading = "What to show")]
    pub html: Option<PathBuf>,
    /// Print no lines while it runs
    #[arg(short, long, help_heading = "What to show")]
    pub quiet: bool,
    /// Compare two results of --json; measures nothing
    #[arg(long, value_names = ["A.json", "B.json"], num_args = 2, help_heading = "What to show")]
    pub compare: Option<Vec<PathBuf>>,
}

#[derive(ValueEnum, Copy, Clone, Debug, PartialEq, Eq)]
pub enum EngineArg {
    /// io_uring: many requests in flight from few threads
    Uring,
    /// One thread for each request in flight, with pread and pwrite, as mongoperf did
    Threads,
    /// The file mapped into memory
    Mmap,
}

#[derive(ValueEnum, Copy, Clone, Debug, PartialEq, Eq)]
pub enum AccessArg {
    /// Anywhere, at multiples of 4 KiB
    Random,
    /// One record after the other
    Sequential,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if duration < Duration::from_millis(100) || duration > Duration::from_secs(86_400) {
        return Err(format!("{text} is no length of a step: write a time from 100ms to 24h, like 8 or 2m"));
    }
    Ok(duration)
}

fn parse_seconds_or_none(text: &str) -> Result<Duration, String> {
    if text.trim_end_matches('s') == "0" { Ok(Duration::ZERO) } else { parse_seconds(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_counts_and_rates() {
        assert_eq!((parse_count("100M"), parse_size("1.5G")), (Ok(100_000_000), Ok(1_610_612_736)));
        assert_eq!(
            (parse_size("4096"), parse_size("2GiB"), parse_size("2 kB")),
            (Ok(4_096), Ok(2 << 30), Ok(2_048))
        );
        for bad in ["", "x", "1X", "-1", "0", "1e3", "99999P"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert!(parse_rate("0").is_err() && parse_rate("NaN").is_err() && parse_rate("-1").is_err());
        assert_eq!(parse_rate("100"), Ok(100.0));
        assert_eq!((parse_version("7.0.5"), parse_version("8")), (Ok((7, 0)), Ok((8, 0))));
        assert!(parse_version("seven").is_err());
        assert!(parse_seconds("99ms").is_err() && parse_seconds("8").is_ok());
        assert_eq!(parse_seconds_or_none("0"), Ok(Duration::ZERO));
    }
}
