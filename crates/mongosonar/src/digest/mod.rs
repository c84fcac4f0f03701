//! `mongosonar logs report` and `profiler report`: a digest of files.

pub mod args;
mod captures;
mod compare;
mod lines;
mod profiles;
mod report;

use std::cell::RefCell;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use sonar_core::{
    Digest, DigestSettings, Execution, GroupBy, Identity, InFlight, Notices, Operation, Reading, Record,
    Role, Source, Timestamp,
};
use sonar_decode::entry::Sink;
use sonar_decode::log::{Bound, Log, Settings};
use sonar_decode::profile::Profile;
use sonar_mongo::Server;
use sonar_view::kit::{Hidden, Reader, Reason, Zone, escape};
use sonar_view::logs::hint::Indexes;
use sonar_view::logs::{self, By, SourceSummary, View, Wanted};
use sonar_view::queries::{Classes, Form};

pub use self::args::{CompareArgs, DigestArgs, LogsCommand, When, ZoneArgs};
pub use self::compare::{Loaded, load, run as compare};
use self::lines::Piece;
pub use self::profiles::read as read_profiles;
pub use self::report::run as report;
use crate::content::{self, Content, Peeked};
use crate::exit::{OK, TRUNCATED, usage};
use crate::input;
use crate::stop::{self, Ending};
use crate::values::{ClassArg, ShapeArg};
use crate::{outfile, page, screen};

/// The note about a server that writes a rate limit but does not apply it.
pub const IGNORED_RATE_LIMIT: &str = "This version of Percona Server profiles every operation whatever its rateLimit (PSMDB-876, fixed in 4.4.8-9): each document counts once.";

/// Rows of a text report, where nothing else was asked for.
pub const ROWS: usize = 20;

/// Collects the operations that were asked for.
pub struct Collect {
    /// Their digest.
    pub digest: Digest,
    source: Source,
    classes: Classes,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    /// Operations that ended outside of the time range.
    outside: u64,
    /// Operations of other classes.
    hidden: Hidden,
}

impl Collect {
    /// Ready for operations of these classes that `source` saw.
    pub fn new(source: Source, settings: DigestSettings, classes: Classes) -> Self {
        let (digest, hidden) = (Digest::new(settings), Hidden::default());
        Self { digest, source, classes, from: None, to: None, outside: 0, hidden }
    }
}

impl Collect {
    /// Adds operations that had not ended, if they were asked for.
    fn add_in_flight(&mut self, waiting: &InFlight) {
        if waiting.role == Role::Served && self.classes.contains(waiting.class) {
            self.digest.add_in_flight(waiting);
        }
    }

    /// Whether the operation is of the time asked for.
    #[inline]
    fn is_within(&self, op: &Operation<'_>) -> bool {
        self.from.is_none_or(|from| op.end >= from) && self.to.is_none_or(|to| op.end < to)
    }

    /// Counts an operation that a server sent to another, which is not wanted.
    fn leave_out_issued(&mut self, op: &Operation<'_>) {
        if self.is_within(op) {
            let is_of_class = self.classes.contains(op.class);
            self.hidden.add(if is_of_class { Reason::Role } else { Reason::RoleAndClass }, op.class, 1);
        }
    }

    #[inline]
    fn record(&mut self, record: &Record<'_>) {
        if !self.is_within(record.op) {
            self.outside += 1;
        } else if self.classes.contains(record.op.class) {
            self.digest.record(record);
        } else {
            self.hidden.add(Reason::Class, record.op.class, record.weight);
        }
    }
}

impl Sink for Collect {
    #[inline]
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>, entries: u64) {
        self.record(&Record::server(self.source, op, execution).read_as(identity, entries));
    }
}

/// What was read from a source.
pub struct Gathered {
    /// The digest.
    pub digest: Digest,
    /// Operations of other classes, which are not in the digest.
    pub hidden: Hidden,
    /// What was read.
    pub reading: Reading,
    /// What a log said beside operations.
    pub notices: Option<Notices>,
    /// A file was cut or damaged.
    pub damaged: bool,
    /// In which zone its times are.
    pub zone: Zone,
}

/// The time range of entries, and the zone in which times are shown; `None` for that of the source.
#[derive(Clone, Default)]
pub struct Span {
    /// No earlier entries.
    pub from: Option<When>,
    /// Only earlier entries.
    pub to: Option<When>,
    /// The zone.
    pub zone: Option<Zone>,
}

impl Span {
    fn of(args: &DigestArgs) -> Self {
        Self { from: args.from, to: args.to, zone: args.zone.asked() }
    }

    /// Both ends, where times without an offset are those of the zone that was asked for, or else of the log's clock.
    fn bounds(&self) -> (Option<Bound>, Option<Bound>) {
        let bound = |when: When| match (when, &self.zone) {
            (When::Clock(ms), None) => Bound::Clock(ms),
            (When::At(at), _) => Bound::At(at),
            (when, Some(zone)) => Bound::At(when.in_zone(zone)),
        };
        (self.from.map(bound), self.to.map(bound))
    }

    /// Both ends, where times without an offset are of the clock of `zone`.
    fn ends(&self, zone: &Zone) -> (Option<Timestamp>, Option<Timestamp>) {
        (self.from.map(|from| from.in_zone(zone)), self.to.map(|to| to.in_zone(zone)))
    }
}

impl Gathered {
    /// Fails if the files hold no entry at all.
    ///
    /// # Errors
    /// Not one entry could be read.
    pub fn refuse_nothing(&self, files: &[PathBuf]) -> Result<()> {
        let Reading { documents, documents_malformed, documents_other, bytes, files_damaged, .. } =
            self.reading;
        let lines = self.reading.lines_operation + self.reading.lines_event + self.reading.lines_other;
        let is_cut = bytes == 0 && files_damaged > 0;
        if is_cut || lines > 0 || documents > documents_malformed + documents_other {
            return Ok(());
        }
        let names: Vec<_> = files.iter().map(|path| input::name(path)).collect();
        let names = names.join(", ");
        let (all, what) =
            if self.notices.is_some() { (self.reading.lines, "line") } else { (documents, "document") };
        match (bytes, self.notices.is_some()) {
            (0, _) if files.len() == 1 => bail!("{names} is empty"),
            (0, _) => bail!("all {} files are empty", files.len()),
            (_, true) => bail!("{names}: no line of a MongoDB log among {all} lines"),
            (_, false) if documents == documents_malformed => {
                bail!("{names}: no document could be read ({all} {what}s began)")
            }
            (_, false) => bail!("{names}: none of {all} documents is of system.profile"),
        }
    }
}

/// Runs `logs report`.
pub fn logs(args: &DigestArgs) -> Result<u8> {
    if args.files.is_empty() {
        return Err(usage!(
            "which log? Name a file, or - for standard input; --uri only says where to look up indexes"
        ));
    }
    let stop = stop()?;
    let settings = DigestSettings { by: by(args), points: args.html.is_some() };
    let collect = Collect::new(Source::Log, settings, ClassArg::classes(&args.class));
    let mut read = read_logs(&args.files, collect, &Span::of(args), &stop)?;
    read.refuse_nothing(&args.files)?;
    show(args, &mut read, Shown::only(Source::Log))
}

/// Runs `profiler report` on files.
pub fn profiles(args: &DigestArgs) -> Result<u8> {
    let stop = stop()?;
    let settings = DigestSettings { by: by(args), points: args.html.is_some() };
    let mut collect = Collect::new(Source::Profile, settings, ClassArg::classes(&args.class));
    let zone = args.zone.asked().unwrap_or_default();
    (collect.from, collect.to) = Span::of(args).ends(&zone);
    let mut read = read_profiles(&args.files, collect, &stop)?;
    read.zone = zone;
    read.refuse_nothing(&args.files)?;
    show(args, &mut read, Shown::only(Source::Profile))
}

/// Runs `profiler report` on the documents that `feed` reads.
pub fn profiles_of(
    args: &DigestArgs,
    server: &Server,
    feed: impl FnOnce(&mut Profile, &mut Collect) -> Result<()>,
) -> Result<u8> {
    let settings = DigestSettings { by: by(args), points: args.html.is_some() };
    let mut collect = Collect::new(Source::Profile, settings, ClassArg::classes(&args.class));
    let zone = args.zone.asked().unwrap_or_default();
    (collect.from, collect.to) = Span::of(args).ends(&zone);
    let ignores_rate_limit = server.info().ignores_rate_limit();
    let mut profile = if ignores_rate_limit { Profile::without_rate_limit() } else { Profile::default() };
    feed(&mut profile, &mut collect)?;
    let mut reading = profile.reading();
    reading.entries_outside = collect.outside;
    reading.shapes_folded += collect.digest.folded;
    let Collect { digest, hidden, .. } = collect;
    let mut read = Gathered { digest, hidden, reading, notices: None, damaged: false, zone };
    show(args, &mut read, Shown { server: Some(server), ..Shown::only(Source::Profile) })
}

/// The existing indexes of each namespace with an index hint. Where the server does not answer, prints why and leaves
/// the namespace out.
fn indexes(view: &View<'_>, server: &Server) -> Indexes {
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
    Ok(stop::listen(Ending::Prompt)?.flag().clone())
}

fn by(args: &DigestArgs) -> GroupBy {
    args.by.as_deref().and_then(GroupBy::from_name).unwrap_or_default()
}

/// The order of the rows of a digest, from its name.
pub fn sort(name: Option<&str>) -> Result<By> {
    let Some(name) = name else { return Ok(By::default()) };
    By::from_name(name).ok_or_else(|| {
        let names: Vec<_> = By::ALL.iter().map(|by| by.name()).collect();
        usage!("no column {name:?} to sort by; there are: {}", names.join(" "))
    })
}

/// What is shown beside the figures.
#[derive(Default)]
pub struct Shown<'a> {
    /// Where they come from; of several sources, the one that knows latencies best.
    source: Option<Source>,
    /// What was read of each source, where there may be several.
    sources: &'a [SourceSummary],
    /// What one must know of them.
    notes: Vec<String>,
    /// The server that was asked.
    server: Option<&'a Server>,
}

impl Shown<'_> {
    /// Nothing: they come from one source.
    fn only(source: Source) -> Self {
        Self { source: Some(source), ..Self::default() }
    }
}

/// Writes what was read, as it was asked for. Gives the exit code.
pub fn show(args: &DigestArgs, read: &mut Gathered, shown: Shown<'_>) -> Result<u8> {
    let Shown { source, sources, notes, server } = shown;
    let source = source.unwrap_or(Source::Wire);
    let sort = sort(args.sort.as_deref())?;
    let wanted = Wanted {
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
    let view = View::new(&read.digest, source, reading, read.notices.as_ref(), &wanted);
    let mut view = View { summaries: sources, ..view };
    view.notes.extend(notes);
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
    let mut view = View { indexes: indexes.as_ref(), hidden: read.hidden.clone(), ..view };
    view.sources = args.files.iter().map(|path| input::name(path)).collect();
    if let Some(server) = server {
        view.sources = vec![server.info().label()];
        view.host = Some(server.info().address.to_string());
    }
    if let Some(path) = &args.html {
        outfile::write(path, |out| page::write(out, |out| logs::json::write(&view, out)))?;
    }
    let mut out = BufWriter::with_capacity(64 * 1024, io::stdout());
    if args.json {
        logs::json::write(&view, &mut out)?;
    } else if args.csv {
        logs::csv::write(&view, &mut out)?;
        let left_out = view.left_out().line(view.sample, Reader::CommandLine);
        left_out.iter().for_each(|line| eprintln!("mongosonar: {line}"));
    } else {
        view.rows.truncate(args.limit.unwrap_or(ROWS));
        logs::text::write(&view, screen::width(), &mut out)?;
    }
    out.flush()?;
    Ok(if read.damaged { TRUNCATED } else { OK })
}

/// A log file, with the time of its first line.
struct LogFile {
    path: PathBuf,
    first: Option<Timestamp>,
    reference_ms: i64,
}

/// Reads logs, those of one server (each begins where another ends) after one another.
///
/// # Errors
/// A file cannot be opened, or holds something else.
pub fn read_logs(
    files: &[PathBuf],
    collect: Collect,
    span: &Span,
    stop: &Arc<AtomicBool>,
) -> Result<Gathered> {
    let mut all = Vec::new();
    for path in files {
        let reference_ms = reference(path);
        // A pipe can be read only once, so its first time is not known.
        let first = if files.len() > 1 && path != Path::new("-") && path.is_file() {
            first_time(path, reference_ms, stop)?
        } else {
            None
        };
        all.push(LogFile { path: path.clone(), first, reference_ms });
    }
    all.sort_by_key(|file| file.first);
    let log = RefCell::new(Log::new(Settings::default()));
    let collect = RefCell::new(collect);
    let mut damaged = false;
    let (from, to) = span.bounds();
    log.borrow_mut().set_range(from, to);
    for (number, file) in all.iter().enumerate() {
        {
            let mut log = log.borrow_mut();
            log.set_reference(file.reference_ms);
            // A file that begins before the one before it ends is another server's.
            if number > 0 && (file.first.is_none() || file.first < log.last_time()) {
                log.next_server();
            }
        }
        let name = input::name(&file.path);
        let (reader, progress) = input::open(&file.path, &name, stop)?;
        let Peeked { content, reader, .. } = content::peek(reader, &name)?;
        content::refuse_foreign(&name, content, &[Content::Log])?;
        let unfinished = log.borrow().reading().lines_unfinished;
        let mut count = 0u32;
        let (bytes, failed) = lines::read(reader, |piece| {
            let (log, sink) = (&mut *log.borrow_mut(), &mut *collect.borrow_mut());
            match piece {
                Piece::Line(line) => log.line(line, sink),
                Piece::Last(line) => log.last_line(line, sink),
                Piece::TooLong => {
                    let reading = log.reading_mut();
                    reading.lines += 1;
                    reading.lines_too_long += 1;
                }
            }
            count = count.wrapping_add(1);
            if count.is_multiple_of(4_096) {
                return !stop.load(Ordering::Relaxed);
            }
            true
        });
        progress.finish_and_clear();
        let mut log = log.borrow_mut();
        let reading = log.reading_mut();
        reading.files += 1;
        reading.bytes += bytes;
        if let Some(error) = failed {
            reading.files_damaged += 1;
            damaged = true;
            eprintln!("mongosonar: {name}: cannot be read further: {error}; all before it has been read");
        } else if log.reading().lines_unfinished > unfinished {
            damaged = true;
            eprintln!("mongosonar: {name}: it ends inside a line; all before it has been read");
        }
    }
    let (mut log, mut collect) = (log.into_inner(), collect.into_inner());
    log.finish(&mut collect);
    let mut reading = log.reading();
    reading.shapes_folded += collect.digest.folded;
    let zone = span.zone.clone().unwrap_or_else(|| Zone::of_log(&log.notices().offsets));
    let notices = Some(log.notices().clone());
    let Collect { digest, hidden, .. } = collect;
    Ok(Gathered { digest, hidden, reading, notices, damaged, zone })
}

/// The most lines at the beginning of a file to look at.
const LOOK: u32 = 1_000;

/// Time of the first line that has one.
fn first_time(path: &Path, reference_ms: i64, stop: &Arc<AtomicBool>) -> Result<Option<Timestamp>> {
    let (reader, _) = input::open(path, &input::name(path), stop)?;
    let mut log = Log::new(Settings { reference_ms, ..Settings::default() });
    let (mut first, mut left) = (None, LOOK);
    lines::read(reader, |piece| {
        if let Piece::Line(line) | Piece::Last(line) = piece {
            log.line(line, &mut Nobody);
        }
        first = log.last_time();
        left -= 1;
        first.is_none() && left > 0
    });
    Ok(first)
}

struct Nobody;

impl Sink for Nobody {
    fn operation(&mut self, _: &Operation<'_>, _: Identity, _: &Execution<'_>, _: u64) {}
}

/// When the file was last written to, in milliseconds since the Unix epoch; now, if that is not known.
fn reference(path: &Path) -> i64 {
    let written = std::fs::metadata(path).and_then(|metadata| metadata.modified());
    let time = written.unwrap_or_else(|_| SystemTime::now());
    time.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Reads a whole file, up to a bound.
pub fn whole(path: &Path, stop: &Arc<AtomicBool>) -> Result<Vec<u8>> {
    /// The largest saved digest.
    const MOST: u64 = 1 << 30;
    let name = input::name(path);
    let (reader, _) = input::open(path, &name, stop)?;
    let mut bytes = Vec::new();
    reader.take(MOST).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    Ok(bytes)
}
