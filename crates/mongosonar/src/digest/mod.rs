//! `mongosonar logs report` and `profiler report`: a digest of files.

pub mod args;
mod captures;
mod collect;
mod compare;
mod current_op;
mod explain;
mod lines;
pub mod log_files;
mod profiles;
mod report;
mod routers;
mod show;

use anyhow::Result;
use sonar_core::Source;
use sonar_decode::profile::Profile;
use sonar_mongo::Server;

pub use self::args::{CompareArgs, DigestArgs, JoinedReportArgs, LogsCommand};
pub use self::collect::{OperationCollector, TimeRange};
pub use self::compare::{WantedDigest, load, run as compare};
pub use self::report::run as report;
use self::show::ShownDigest;
pub use self::show::{IGNORED_RATE_LIMIT, ROWS, sort};
use crate::exit::usage;
use crate::{input, stop};

/// Runs `logs report`.
pub fn logs(args: &DigestArgs) -> Result<u8> {
    if args.files.is_empty() {
        return Err(usage!(
            "which log? Name a file, or - for standard input; --uri only says where to look up indexes"
        ));
    }
    input::refuse_repeated(&args.files)?;
    let stop = stop::flag()?;
    let mut read = log_files::read(
        &args.files,
        OperationCollector::of(args, Source::Log),
        &TimeRange::of_operations(args)?,
        &stop,
    )?;
    read.refuse_nothing(&args.files)?;
    show::show(args, &mut read, ShownDigest::only(Source::Log))
}

/// Runs `profiler report` on files.
pub fn profiles(args: &DigestArgs) -> Result<u8> {
    input::refuse_repeated(&args.files)?;
    let stop = stop::flag()?;
    let zone = args.zone.asked().unwrap_or_default();
    let collect =
        OperationCollector::of(args, Source::Profile).within(&TimeRange::of_operations(args)?, &zone);
    let mut read = profiles::read(&args.files, collect, &stop)?;
    read.zone = zone;
    read.refuse_nothing(&args.files)?;
    show::show(args, &mut read, ShownDigest::only(Source::Profile))
}

/// Runs `profiler report` on the documents that `feed` reads.
pub fn profiles_of(
    args: &DigestArgs,
    server: &Server,
    feed: impl FnOnce(&mut Profile, &mut OperationCollector) -> Result<()>,
) -> Result<u8> {
    let zone = args.zone.asked().unwrap_or_default();
    let mut collect =
        OperationCollector::of(args, Source::Profile).within(&TimeRange::of_operations(args)?, &zone);
    let ignores_rate_limit = server.info().ignores_rate_limit();
    let mut profile = if ignores_rate_limit { Profile::without_rate_limit() } else { Profile::default() };
    if collect.shows_values {
        profile.show_values();
    }
    feed(&mut profile, &mut collect)?;
    let mut read = collect.gathered(profile.reading(), zone);
    show::show(args, &mut read, ShownDigest { server: Some(server), ..ShownDigest::only(Source::Profile) })
}
