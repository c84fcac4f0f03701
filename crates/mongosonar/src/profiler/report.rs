//! `mongosonar profiler report`: a digest of files, or of what a server holds or writes now.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use sonar_decode::profile::Profile;
use sonar_mongo::tail::{Tail, TailEvent, Tailing};
use sonar_mongo::{Server, Target, is_connection_string, is_host_and_port};
use sonar_view::kit::{Nanos, escape};

use super::args::{Databases, ReportArgs};
use super::start;
use super::tail::message;
use crate::digest::{self, OperationCollector};
use crate::exit::usage;
use crate::stop::{self, StopBehavior};

/// How often it checks whether the time is over.
const LOOK: Duration = Duration::from_millis(50);

pub fn run(args: &ReportArgs) -> Result<u8> {
    let files = &args.digest.files;
    let servers: Vec<&str> = files.iter().filter_map(|path| address(path)).collect();
    match (servers.as_slice(), files.len()) {
        ([], 0) if !args.digest.server.has_address() => Err(usage!(
            "which profile? Name a dump of system.profile, - for standard input, or a server with --uri"
        )),
        ([], 0) => live(args, args.digest.server.target()?),
        ([], _) if args.duration.is_some() || !args.db.is_empty() => Err(usage!(
            "--db and --duration are for a server: name one with --uri or --host instead of a file"
        )),
        ([], _) => digest::profiles(&args.digest),
        ([_], 1) if args.digest.server.has_address() => {
            Err(usage!("two servers are named: give one, with --uri or as the argument"))
        }
        ([address], 1) => live(args, args.digest.server.complete(Target::from(address))?),
        _ => Err(usage!("one server at a time, or files: save each digest with --json and compare them")),
    }
}

/// Whether the report is of files, and of no server.
pub fn reads_files(args: &ReportArgs) -> bool {
    let files = &args.digest.files;
    !files.is_empty() && files.iter().all(|path| address(path).is_none())
}

/// A connection string or `host:port`, if the argument is one and no such file exists.
fn address(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let is_address = is_connection_string(text) || (is_host_and_port(text) && !path.exists());
    is_address.then_some(text)
}

fn live(args: &ReportArgs, target: Target) -> Result<u8> {
    start::begin(&target, args.digest.html.as_deref())?;
    let signals = stop::listen(StopBehavior::Immediate)?;
    let stop = signals.requests().clone();
    let server = Server::connect(target, 2)?;
    signals.set_behavior(StopBehavior::Prompt);
    digest::profiles_of(&args.digest, &server, |profile, collect| match args.duration {
        Some(time) => {
            eprintln!(
                "reading what {} profiles for {}; Ctrl-C ends it earlier",
                escape(&server.info().label()),
                Nanos(time.as_nanos() as u64)
            );
            let mut tail = server.tail(&Tailing { databases: args.db.clone(), last: 0 }, &stop)?;
            let end = Instant::now() + time;
            follow(&mut tail, || !stop.is_set() && Instant::now() < end, profile, collect)
        }
        None => {
            let databases = Databases { db: args.db.clone(), all_dbs: false }.names(&server, false)?;
            for database in &databases {
                server.profile_documents(database, |document| {
                    profile.document(document.as_bytes(), collect);
                    !stop.is_set()
                })?;
            }
            Ok(())
        }
    })
}

/// Reads what is written, as long as `goes_on` returns true.
fn follow(
    tail: &mut Tail<'_>,
    goes_on: impl Fn() -> bool,
    profile: &mut Profile,
    collect: &mut OperationCollector,
) -> Result<()> {
    while goes_on() {
        match tail.next(LOOK) {
            Ok(Some(TailEvent::Documents { batch, .. })) => {
                batch.documents().for_each(|document| profile.document(document.as_bytes(), collect));
            }
            Ok(Some(TailEvent::Failed { error, .. })) => return Err(error.into()),
            Ok(Some(other)) => eprintln!("{}", message(&other)),
            Ok(None) => {}
            Err(_) => break,
        }
    }
    Ok(())
}
