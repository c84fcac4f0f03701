//! `mongosonar logs report` and `profiler report`: a digest of files.

pub mod args;
mod captures;
mod collect;
mod compare;
mod in_order;
mod lines;
mod log_files;
mod profiles;
mod report;

use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use sonar_core::{DigestSettings, GroupBy, Source};
use sonar_decode::profile::Profile;
use sonar_mongo::Server;
use sonar_view::kit::{Fitting, HiddenContext, escape};
use sonar_view::logs::hint::Indexes;
use sonar_view::logs::{self, DigestView, RowOrder, SourceSummary, ViewOptions};
use sonar_view::queries::Form;

pub use self::args::{CompareArgs, DigestArgs, LogsCommand, ZoneArgs};
pub use self::collect::Collector;
use self::collect::{SourceDigest, TimeRange};
pub use self::compare::{LoadedDigest, load, run as compare};
pub use self::report::run as report;
use crate::exit::{OK, TRUNCATED, usage};
use crate::input;
use crate::stop::{self, StopBehavior};
use crate::values::{ClassArg, ShapeArg};
use crate::{outfile, page, screen};

/// The note about a server that writes a rate limit but does not apply it.
pub const IGNORED_RATE_LIMIT: &str = "This version of Percona Server profiles every operation whatever its rateLimit (PSMDB-876, fixed in 4.4.8-9): each document counts once.";

/// Rows of a text report by default.
pub const ROWS: usize = 20;

/// Runs `logs report`.
pub fn logs(args: &DigestArgs) -> Result<u8> {
    if args.files.is_empty() {
        return Err(usage!(
            "which log? Name a file, or - for standard input; --uri only says where to look up indexes"
        ));
    }
    input::refuse_repeated(&args.files)?;
    let stop = stop()?;
    let mut read = log_files::read(&args.files, collector(args, Source::Log), &TimeRange::of(args)?, &stop)?;
    read.refuse_nothing(&args.files)?;
    show(args, &mut read, ShownDigest::only(Source::Log))
}

/// Runs `profiler report` on files.
pub fn profiles(args: &DigestArgs) -> Result<u8> {
    input::refuse_repeated(&args.files)?;
    let stop = stop()?;
    let zone = args.zone.asked().unwrap_or_default();
    let collect = collector(args, Source::Profile).within(&TimeRange::of(args)?, &zone);
    let mut read = profiles::read(&args.files, collect, &stop)?;
    read.zone = zone;
    read.refuse_nothing(&args.files)?;
    show(args, &mut read, ShownDigest::only(Source::Profile))
}

/// Runs `profiler report` on the documents that `feed` reads.
pub fn profiles_of(
    args: &DigestArgs,
    server: &Server,
    feed: impl FnOnce(&mut Profile, &mut Collector) -> Result<()>,
) -> Result<u8> {
    let zone = args.zone.asked().unwrap_or_default();
    let mut collect = collector(args, Source::Profile).within(&TimeRange::of(args)?, &zone);
    let ignores_rate_limit = server.info().ignores_rate_limit();
    let mut profile = if ignores_rate_limit { Profile::without_rate_limit() } else { Profile::default() };
    feed(&mut profile, &mut collect)?;
    let mut read = collect.gathered(profile.reading(), zone);
    show(args, &mut read, ShownDigest { server: Some(server), ..ShownDigest::only(Source::Profile) })
}

/// The existing indexes of each namespace with an index hint. Where the server does not answer, prints why and leaves
/// the namespace out.
fn indexes(view: &DigestView<'_>, server: &Server) -> Indexes {
    /// The most collections to ask about.
    const MOST: usize = 1_000;
    let mut known = Indexes::new();
    for logs::hint::Suggestion { hint, .. } in logs::hint::all(view) {
        let Some((database, collection)) = hint.namespace.split_once('.') else { continue };
        if known.len() >= MOST || known.contains_key(&hint.namespace) {
            continue;
        }
        match server.indexes(database, collection) {
            Ok(indexes) => {
                known.insert(hint.namespace, indexes);
            }
            Err(error) => {
                eprintln!("mongosonar: the indexes of {} are not known: {error}", escape(&hint.namespace));
            }
        }
    }
    known
}

/// A flag that a signal sets.
pub fn stop() -> Result<Arc<AtomicBool>> {
    Ok(stop::listen(StopBehavior::Prompt)?.flag().clone())
}

/// A collector of the operations of a source that the arguments select.
fn collector(args: &DigestArgs, source: Source) -> Collector {
    let by = args.by.as_deref().and_then(GroupBy::from_name).unwrap_or_default();
    let settings = DigestSettings { by, points: args.html.is_some() };
    Collector::new(source, settings, ClassArg::classes(&args.class))
}

/// The order of the rows of a digest, from its name.
pub fn sort(name: Option<&str>) -> Result<RowOrder> {
    let Some(name) = name else { return Ok(RowOrder::default()) };
    RowOrder::from_name(name).ok_or_else(|| {
        let names: Vec<_> = RowOrder::names().collect();
        usage!("no column {name:?} to sort by; there are: {}", names.join(" "))
    })
}

/// What is shown beside the figures.
#[derive(Default)]
pub struct ShownDigest<'a> {
    /// Their source; of several, the one with the most precise latencies.
    source: Option<Source>,
    /// What was read of each source, for reports of several.
    sources: &'a [SourceSummary],
    /// Notes about them.
    notes: Vec<String>,
    /// The server that was asked.
    server: Option<&'a Server>,
}

impl ShownDigest<'_> {
    /// The figures come from one source.
    fn only(source: Source) -> Self {
        Self { source: Some(source), ..Self::default() }
    }
}

/// Writes the report in the form that the arguments ask for. Returns the exit code.
pub fn show(args: &DigestArgs, read: &mut SourceDigest, shown: ShownDigest<'_>) -> Result<u8> {
    let ShownDigest { source, sources, notes, server } = shown;
    let source = source.unwrap_or(Source::Wire);
    let sort = sort(args.sort.as_deref())?;
    let wanted = ViewOptions {
        sort,
        limit: args.limit,
        filter: args.filter.clone().unwrap_or_default(),
        form: match args.shape.unwrap_or(ShapeArg::Typed) {
            ShapeArg::Typed => Form::Typed,
            ShapeArg::Plain => Form::Plain,
        },
        zone: read.zone.clone(),
    };
    let reading = Some(&read.reading).filter(|_| sources.is_empty());
    let view = DigestView::new(&read.digest, source, reading, read.notices.as_ref(), &wanted);
    let mut view = DigestView { summaries: sources, ..view };
    view.notes.extend(notes);
    if read.digest.totals().calls == 0 && read.hidden.operations() == 0 {
        view.notes.extend(TimeRange::of(args)?.without_operations(read));
    }
    for what in &read.stopped {
        view.notes.insert(0, format!("NOT IN FULL: {what}"));
        eprintln!("mongosonar: {what}; all before it has been read");
    }
    if reading.is_none() {
        view.notes.extend(logs::notes(&read.reading));
    }
    if server.is_none() {
        view.notes.extend(logs::assumed_weights(&read.reading));
    } else if server.is_some_and(|server| server.info().ignores_rate_limit()) {
        view.notes.push(IGNORED_RATE_LIMIT.to_owned());
    }
    let asked = match (server, args.server.named()?) {
        (None, Some(target)) => Some(Server::connect(target, 1)?),
        _ => None,
    };
    let indexes = server.or(asked.as_ref()).map(|server| indexes(&view, server));
    let mut view = DigestView { indexes: indexes.as_ref(), hidden: read.hidden.clone(), ..view };
    view.sources = args.files.iter().map(|path| input::name(path)).collect();
    if let Some(server) = server {
        view.sources = vec![server.info().label()];
        view.host = Some(server.info().address.to_string());
    }
    if let Some(path) = &args.html {
        outfile::write(path, |out| page::write(out, |out| logs::json(&view, out)))?;
    }
    let mut out = BufWriter::with_capacity(64 * 1024, io::stdout());
    if args.json {
        logs::json(&view, &mut out)?;
    } else if args.csv {
        logs::csv(&view, &mut out)?;
        let left_out = view.left_out().line(view.sample, HiddenContext::CommandLine);
        left_out.iter().for_each(|line| eprintln!("mongosonar: {line}"));
    } else {
        view.rows.truncate(args.limit.unwrap_or(ROWS));
        logs::text(&view, &mut Fitting::new(&mut out, screen::width()))?;
    }
    out.flush()?;
    let interrupted = stop::reason().filter(|_| !read.stopped.is_empty());
    Ok(match interrupted {
        Some((_, code)) => code,
        None if read.damaged => TRUNCATED,
        None => OK,
    })
}

/// Reads a whole file, up to a limit.
pub fn whole(path: &Path, stop: &Arc<AtomicBool>) -> Result<Vec<u8>> {
    /// The largest saved digest.
    const MOST: u64 = 1 << 30;
    let name = input::name(path);
    let (reader, _) = input::open(path, &name, stop)?;
    let mut bytes = Vec::new();
    reader.take(MOST).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    Ok(bytes)
}
