//! `mongosonar profiler tail`: each operation that the profiler writes, one line.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use sonar_core::{Execution, Identity, Operation};
use sonar_decode::entry::EntrySink;
use sonar_decode::profile::Profile;
use sonar_mongo::Server;
use sonar_mongo::tail::{Missed, TailEvent, Tailing};
use sonar_view::kit::{Nanos, UNKNOWN, Zone, escape, or_unknown, plural};
use sonar_view::profiler::tail::{self as view, MissedDocuments, Profiled};
use sonar_view::queries::Form;

use super::args::TailArgs;
use super::start;
use crate::digest::IGNORED_RATE_LIMIT;
use crate::exit::OK;
use crate::stop::{self, StopBehavior};

/// How long a written document may wait to be shown.
const FLUSH: Duration = Duration::from_millis(200);

pub fn run(args: &TailArgs) -> Result<u8> {
    let target = args.connection.target()?;
    start::begin(&target, None)?;
    let signals = stop::listen(StopBehavior::Immediate)?;
    let stop = signals.requests().clone();
    let server = Server::connect(target, 2)?;
    let tailing = Tailing { databases: args.databases.db.clone(), last: args.lines };
    let mut tail = server.tail(&tailing, &stop)?;
    signals.set_behavior(StopBehavior::Prompt);
    let mut out = Out {
        to: BufWriter::with_capacity(64 * 1024, io::stdout().lock()),
        json: args.json,
        zone: args.zone.asked().unwrap_or_default(),
        broken: None,
    };
    let mut profile = if server.info().ignores_rate_limit() {
        eprintln!("{IGNORED_RATE_LIMIT}");
        Profile::without_rate_limit()
    } else {
        Profile::default()
    };
    let (mut missed, mut failed, mut operations) = (0, None, 0);
    eprintln!("following {}", escape(&server.info().label()));
    let end = args.duration.and_then(|duration| Instant::now().checked_add(duration));
    while !stop.is_set() && end.is_none_or(|end| Instant::now() < end) {
        let event = match tail.next(FLUSH) {
            Ok(Some(event)) => event,
            Ok(None) => {
                out.to.flush()?;
                continue;
            }
            Err(_) => break,
        };
        match event {
            TailEvent::Documents { batch, .. } => {
                for document in batch.documents() {
                    profile.document(document.as_bytes(), &mut out);
                    if let Some(error) = out.broken.take() {
                        return Err(error.into());
                    }
                    operations += 1;
                    if args.count.is_some_and(|count| operations >= count) {
                        stop.ask();
                        break;
                    }
                }
            }
            TailEvent::Missed(gap) => {
                missed += gap.documents.or(gap.about).unwrap_or(0);
                out.to.flush()?;
                eprintln!("{}", describe(&gap));
                if args.json {
                    let missed = MissedDocuments {
                        database: &gap.database,
                        from: gap.from,
                        to: gap.to,
                        documents: gap.documents,
                        about: gap.about,
                    };
                    view::missed_json(&missed, &mut out.to)?;
                }
            }
            TailEvent::Failed { database, error } => {
                eprintln!("{}{error}", prefix(&database));
                failed = Some(error);
            }
            other => {
                out.to.flush()?;
                eprintln!("{}", message(&other));
            }
        }
    }
    out.to.flush()?;
    let reading = profile.reading();
    let lost: Vec<_> = reading.losses().map(|(name, _, count)| format!("{name} {count}")).collect();
    if missed > 0 || !lost.is_empty() {
        let missed =
            if missed > 0 { format!("about {} missed  ", plural(missed, "document")) } else { String::new() };
        eprintln!("{} read  {missed}{}", plural(reading.documents, "document"), lost.join("  "));
    }
    match failed {
        // Others may have been followed to the end; if it is the only one, the whole command failed.
        Some(error) if !stop.is_set() => Err(error.into()),
        _ => Ok(OK),
    }
}

fn prefix(database: &str) -> String {
    if database.is_empty() { String::new() } else { format!("{}: ", escape(database)) }
}

/// A line about missed documents.
fn describe(gap: &Missed) -> String {
    let mut text = format!("{}: system.profile wrapped faster than it was read: ", escape(&gap.database));
    match (gap.documents, gap.about) {
        (Some(count), _) => text.push_str(&format!("{} missed", plural(count, "document"))),
        (None, Some(about)) => {
            text.push_str(&format!("about {} missed, at the rate before", plural(about, "document")))
        }
        (None, None) => text.push_str("documents missed, how many is not known"),
    }
    let span = gap.from.zip(gap.to).map(|(from, to)| Nanos(to.since(from)));
    text.push_str(&format!(" in {}; a larger --size holds more", or_unknown(span)));
    text
}

/// The message about an event; empty for documents.
pub fn message(event: &TailEvent) -> String {
    match event {
        TailEvent::Missed(gap) => describe(gap),
        TailEvent::Lost { database, reason } => {
            format!("{}connection lost ({}); trying again", prefix(database), escape(reason))
        }
        TailEvent::Back { database, address, moved: false } => {
            format!("{}following continues at {}", prefix(database), escape(address))
        }
        TailEvent::Back { database, address, moved: true } => format!(
            "{}following continues at {}, another server: the last operations of the first one may be missing",
            prefix(database),
            escape(address)
        ),
        TailEvent::Level { database, was, now } => format!(
            "{}the profiling level is {now} now, it was {was}: a server that starts again takes that of its configuration",
            prefix(database)
        ),
        TailEvent::Nothing { database, level } => {
            let level = level.map_or_else(|| UNKNOWN.to_owned(), |level| level.to_string());
            format!(
                "{}there is no system.profile (profiling level {level}); waiting for one",
                prefix(database)
            )
        }
        TailEvent::Replaced { database } => format!(
            "{}system.profile was recreated (a resize?); its last documents before that are unknown",
            prefix(database)
        ),
        TailEvent::Failed { database, error } => format!("{}{error}", prefix(database)),
        TailEvent::Documents { .. } => String::new(),
    }
}

struct Out<'a> {
    to: BufWriter<StdoutLock<'a>>,
    json: bool,
    zone: Zone,
    broken: Option<io::Error>,
}

impl EntrySink for Out<'_> {
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>, _: u64) {
        let profiled = Profiled { op, identity, execution };
        let written = if self.json {
            view::json(&profiled, Form::Typed, &mut self.to)
        } else {
            view::text(&profiled, &self.zone, &mut self.to)
        };
        if let Err(error) = written {
            self.broken.get_or_insert(error);
        }
    }
}
