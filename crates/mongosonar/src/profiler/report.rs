//! `mongosonar profiler report`: a digest of files, or of what a server holds or writes now.

use std::time::{Duration, Instant};

use anyhow::Result;
use sonar_decode::profile::Profile;
use sonar_mongo::tail::{Event, Tailing};
use sonar_mongo::{Server, Stop};
use sonar_view::text::escape;
use sonar_view::units::Nanos;

use super::args::{Databases, ReportArgs};
use super::tail::told;
use crate::digest::{self, Collect};
use crate::exit::usage;

pub fn run(args: &ReportArgs) -> Result<u8> {
    let uris: Vec<&str> =
        args.digest.files.iter().filter_map(|path| path.to_str()).filter(|path| is_uri(path)).collect();
    match (uris.as_slice(), args.digest.files.len()) {
        ([], _) if args.duration.is_some() || !args.db.is_empty() => Err(usage!(
            "--db and --duration are for a server: give its connection string, mongodb://…, instead of a file"
        )),
        ([], _) => digest::profiles(&args.digest),
        ([uri], 1) => live(args, uri),
        _ => Err(usage!("one server at a time, or files: save each digest with --json and compare them")),
    }
}

fn is_uri(text: &str) -> bool {
    text.starts_with("mongodb://") || text.starts_with("mongodb+srv://")
}

fn live(args: &ReportArgs, uri: &str) -> Result<u8> {
    let (stop, _) = super::stop_flag()?;
    let server = Server::connect(uri, 2)?;
    digest::profiles_of(&args.digest, &server, |profile, collect| match args.duration {
        Some(time) => follow(&server, args, time, &stop, profile, collect),
        None => {
            let databases =
                super::databases(&server, &Databases { db: args.db.clone(), all_dbs: false }, false)?;
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

/// What is written from now on.
fn follow(
    server: &Server,
    args: &ReportArgs,
    time: Duration,
    stop: &Stop,
    profile: &mut Profile,
    collect: &mut Collect,
) -> Result<()> {
    eprintln!(
        "reading what {} profiles for {}; Ctrl-C ends it earlier",
        escape(&server.info().label()),
        Nanos(time.as_nanos() as u64)
    );
    let mut tail = server.tail(&Tailing { databases: args.db.clone(), last: 0 }, stop)?;
    let end = Instant::now() + time;
    while !stop.is_set() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match tail.next(left) {
            Ok(Some(Event::Documents { batch, .. })) => {
                batch.documents().for_each(|document| profile.document(document.as_bytes(), collect));
            }
            Ok(Some(Event::Failed { error, .. })) => return Err(error.into()),
            Ok(Some(other)) => eprintln!("{}", told(&other)),
            Ok(None) => {}
            Err(_) => break,
        }
    }
    Ok(())
}
