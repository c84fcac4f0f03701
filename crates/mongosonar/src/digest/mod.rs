//! `mongosonar logs report` and `profiler report`: a digest of files.

mod args;
mod compare;
mod lines;

use std::cell::RefCell;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use sonar_core::{
    Digest, DigestSettings, Execution, GroupBy, Identity, Notices, Operation, Reading, Timestamp,
};
use sonar_decode::entry::Sink;
use sonar_decode::log::{Log, Settings};
use sonar_decode::profile::{self, Profile};
use sonar_mongo::Server;
use sonar_view::digest::hint::Indexes;
use sonar_view::digest::{self, By, Source, View, Wanted};
use sonar_view::text::escape;
use sonar_view::{Classes, Form};

pub use self::args::{CompareArgs, DigestArgs};
pub use self::compare::{Loaded, load, run as compare};
use self::lines::Piece;
use crate::cli::{ClassArg, OK, ShapeArg, TRUNCATED};
use crate::exit::usage;
use crate::outfile;
use crate::queries::input;

/// Rows of a text report, where nothing else was asked for.
pub const ROWS: usize = 20;

/// Takes those operations that were asked for.
pub struct Collect {
    /// Where they go.
    pub digest: Digest,
    classes: Classes,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    /// Operations that ended outside of the time asked for.
    outside: u64,
}

impl Collect {
    /// Ready for operations of these classes.
    pub fn new(settings: DigestSettings, classes: Classes) -> Self {
        Self { digest: Digest::new(settings), classes, from: None, to: None, outside: 0 }
    }
}

impl Sink for Collect {
    #[inline]
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>, entries: u64) {
        if self.from.is_some_and(|from| op.end < from) || self.to.is_some_and(|to| op.end >= to) {
            self.outside += 1;
        } else if self.classes.contains(op.class) {
            self.digest.record(op, identity, execution, entries);
        }
    }
}

/// What a source came to.
pub struct Gathered {
    /// The digest.
    pub digest: Digest,
    /// What was read.
    pub reading: Reading,
    /// What a log said beside operations.
    pub notices: Option<Notices>,
    /// A file was cut or damaged.
    pub damaged: bool,
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
    let mut read =
        read_logs(&args.files, settings, ClassArg::classes(&args.class), args.from, args.to, &stop)?;
    show(args, &mut read, Source::Log, None)
}

/// Runs `profiler report` on files.
pub fn profiles(args: &DigestArgs) -> Result<u8> {
    let stop = stop()?;
    let settings = DigestSettings { by: by(args), points: args.html.is_some() };
    let mut collect = Collect::new(settings, ClassArg::classes(&args.class));
    (collect.from, collect.to) = (args.from, args.to);
    let mut read = read_profiles(&args.files, collect, &stop)?;
    show(args, &mut read, Source::Profile, None)
}

/// Runs `profiler report` on documents that `feed` reads.
pub fn profiles_of(
    args: &DigestArgs,
    server: &Server,
    feed: impl FnOnce(&mut Profile, &mut Collect) -> Result<()>,
) -> Result<u8> {
    let settings = DigestSettings { by: by(args), points: args.html.is_some() };
    let mut collect = Collect::new(settings, ClassArg::classes(&args.class));
    (collect.from, collect.to) = (args.from, args.to);
    let mut profile = Profile::default();
    feed(&mut profile, &mut collect)?;
    let mut reading = profile.reading();
    reading.entries_outside = collect.outside;
    reading.shapes_folded += collect.digest.folded;
    let mut read = Gathered { digest: collect.digest, reading, notices: None, damaged: false };
    show(args, &mut read, Source::Profile, Some(server))
}

/// The indexes of the namespaces of which one would be hinted at. What cannot be asked is said, and not known.
fn indexes(view: &View<'_>, server: &Server) -> Indexes {
    /// The most collections that are asked for.
    const MOST: usize = 1_000;
    let mut known = Indexes::new();
    for (_, row) in &view.rows {
        let Some(hint) = digest::hint::of(row, None) else { continue };
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
    let stop = Arc::new(AtomicBool::new(false));
    input::stop_on_signals(&stop)?;
    Ok(stop)
}

fn by(args: &DigestArgs) -> GroupBy {
    args.by.as_deref().and_then(GroupBy::from_name).unwrap_or_default()
}

/// The order of the rows of a digest, by name.
pub fn sort(name: Option<&str>) -> Result<By> {
    let Some(name) = name else { return Ok(By::default()) };
    By::from_name(name).ok_or_else(|| {
        let names: Vec<_> = By::ALL.iter().map(|by| by.name()).collect();
        usage!("no column {name:?} to sort by; there are: {}", names.join(" "))
    })
}

/// Writes what was read, as it was asked for. Gives the exit code.
pub fn show(args: &DigestArgs, read: &mut Gathered, source: Source, server: Option<&Server>) -> Result<u8> {
    let sort = sort(args.sort.as_deref())?;
    let wanted = Wanted {
        sort,
        limit: args.limit,
        filter: args.filter.clone().unwrap_or_default(),
        form: match args.shape.unwrap_or(ShapeArg::Typed) {
            ShapeArg::Typed => Form::Typed,
            ShapeArg::Plain => Form::Plain,
        },
    };
    let view = View::new(&read.digest, source, Some(&read.reading), read.notices.as_ref(), &wanted);
    let asked = match (server, args.server.named()?) {
        (None, Some(target)) => Some(Server::connect(target, 1)?),
        _ => None,
    };
    let indexes = server.or(asked.as_ref()).map(|server| indexes(&view, server));
    let mut view = View { indexes: indexes.as_ref(), ..view };
    if let Some(path) = &args.html {
        outfile::write(path, |out| digest::html::write(&view, out))?;
    }
    let mut out = BufWriter::with_capacity(64 * 1024, io::stdout());
    if args.json {
        digest::json::write(&view, &mut out)?;
    } else if args.csv {
        digest::csv::write(&view, &mut out)?;
    } else {
        view.rows.truncate(args.limit.unwrap_or(ROWS));
        let width = io::stdout().is_terminal().then(|| crossterm::terminal::size().ok()).flatten();
        digest::text::write(&view, width.map(|(columns, _)| usize::from(columns)), &mut out)?;
    }
    out.flush()?;
    Ok(if read.damaged { TRUNCATED } else { OK })
}

/// A log file and what its first line says of its time.
struct LogFile {
    path: PathBuf,
    first: Option<Timestamp>,
    reference_ms: i64,
}

/// Reads logs, those of one server (each begins where another ends) after one another.
pub fn read_logs(
    files: &[PathBuf],
    settings: DigestSettings,
    classes: Classes,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    stop: &Arc<AtomicBool>,
) -> Result<Gathered> {
    let mut all = Vec::new();
    for path in files {
        let reference_ms = reference(path);
        // Of what can be read only once, nothing is known before it is read.
        let first = if files.len() > 1 && path != Path::new("-") && path.is_file() {
            first_time(path, reference_ms, stop)?
        } else {
            None
        };
        all.push(LogFile { path: path.clone(), first, reference_ms });
    }
    all.sort_by_key(|file| file.first);
    let log = RefCell::new(Log::new(Settings { from, to, reference_ms: 0 }));
    let collect = RefCell::new(Collect::new(settings, classes));
    let mut damaged = false;
    for (number, file) in all.iter().enumerate() {
        {
            let mut log = log.borrow_mut();
            log.set_reference(file.reference_ms);
            // A file that begins before another ends is another server's.
            if number > 0 && (file.first.is_none() || file.first < log.last_time()) {
                log.next_server();
            }
        }
        let name = input::name(&file.path);
        let (reader, progress) = input::open(&file.path, &name, stop)?;
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
                progress.show();
                return !stop.load(Ordering::Relaxed);
            }
            true
        });
        progress.done();
        let mut log = log.borrow_mut();
        let reading = log.reading_mut();
        reading.files += 1;
        reading.bytes += bytes;
        if let Some(error) = failed {
            reading.files_damaged += 1;
            damaged = true;
            eprintln!("mongosonar: {name}: cannot be read further: {error}; all before it has been read");
        }
    }
    let (mut log, mut collect) = (log.into_inner(), collect.into_inner());
    log.finish(&mut collect);
    let mut reading = log.reading();
    reading.shapes_folded += collect.digest.folded;
    needs_content(files, &reading)?;
    Ok(Gathered { digest: collect.digest, reading, notices: Some(log.notices().clone()), damaged })
}

/// # Errors
/// The files hold nothing at all, so that a report on them would say nothing.
fn needs_content(files: &[PathBuf], reading: &Reading) -> Result<()> {
    match files {
        _ if reading.bytes > 0 || reading.files_damaged > 0 => Ok(()),
        [one] => bail!("{} is empty", input::name(one)),
        _ => bail!("all {} files are empty", files.len()),
    }
}

/// Time of the first line that has one.
fn first_time(path: &Path, reference_ms: i64, stop: &Arc<AtomicBool>) -> Result<Option<Timestamp>> {
    /// Lines that are looked at.
    const LOOK: u32 = 1_000;
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

/// When the file was written to last, in milliseconds since the Unix epoch; now, where that is not known.
fn reference(path: &Path) -> i64 {
    let written = std::fs::metadata(path).and_then(|metadata| metadata.modified());
    let time = written.unwrap_or_else(|_| SystemTime::now());
    time.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Reads dumps (BSON) and JSON lines of `system.profile`.
pub fn read_profiles(files: &[PathBuf], mut collect: Collect, stop: &Arc<AtomicBool>) -> Result<Gathered> {
    let mut profile = Profile::default();
    let (mut count, mut bytes, mut damaged) = (0, 0, 0);
    for path in files {
        let name = input::name(path);
        let (mut reader, progress) = input::open(path, &name, stop)?;
        let mut head = Vec::new();
        reader.by_ref().take(1).read_to_end(&mut head).with_context(|| format!("cannot read {name}"))?;
        let is_json = matches!(head.as_slice(), [b'{' | b' ' | b'\n' | b'\r' | b'\t' | b'[']);
        let whole = io::Cursor::new(head).chain(reader);
        let (read, wrong) = if is_json {
            let (read, failed) = lines::read(whole, |piece| {
                match piece {
                    Piece::Line(line) | Piece::Last(line) if !line.trim_ascii().is_empty() => {
                        profile.json(line, &mut collect);
                    }
                    _ => {}
                }
                !stop.load(Ordering::Relaxed)
            });
            (read, failed.map(|error| error.to_string()))
        } else {
            documents(whole, &mut profile, &mut collect, stop)
        };
        progress.done();
        count += 1;
        bytes += read;
        if let Some(wrong) = wrong {
            damaged += 1;
            eprintln!("mongosonar: {name}: {wrong}; all before it has been read");
        }
    }
    let mut reading = profile.reading();
    reading.files = count;
    reading.bytes = bytes;
    reading.files_damaged = damaged;
    reading.entries_outside = collect.outside;
    reading.shapes_folded += collect.digest.folded;
    needs_content(files, &reading)?;
    Ok(Gathered { digest: collect.digest, reading, notices: None, damaged: damaged > 0 })
}

/// Reads BSON documents one after another. Returns how many bytes, and what was wrong with the rest.
fn documents(
    mut input: impl Read,
    profile: &mut Profile,
    sink: &mut Collect,
    stop: &Arc<AtomicBool>,
) -> (u64, Option<String>) {
    let mut buffer = vec![0u8; 1 << 20];
    let (mut begin, mut end, mut bytes) = (0, 0, 0u64);
    loop {
        loop {
            let rest = &buffer[begin..end];
            match profile::length(rest) {
                Err(error) => {
                    return (
                        bytes,
                        Some(format!("no BSON document at byte {}: {error}", bytes - rest.len() as u64)),
                    );
                }
                Ok(Some(length)) if length <= rest.len() => {
                    profile.document(&rest[..length], sink);
                    begin += length;
                }
                Ok(Some(length)) if length > buffer.len() => {
                    buffer.resize(length, 0);
                    break;
                }
                Ok(_) => break,
            }
        }
        if stop.load(Ordering::Relaxed) {
            return (bytes, None);
        }
        buffer.copy_within(begin..end, 0);
        (begin, end) = (0, end - begin);
        match input.read(&mut buffer[end..]) {
            Ok(0) if end > 0 => return (bytes, Some("it ends inside a document".to_owned())),
            Ok(0) => return (bytes, None),
            Ok(got) => {
                bytes += got as u64;
                end += got;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (bytes, Some(format!("cannot be read further: {error}"))),
        }
    }
}

/// Whether a file is a dump of profiles, a log, a saved digest or a capture.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// pcap, pcapng.
    Capture,
    /// What `--json` wrote.
    Saved,
    /// BSON, or JSON lines.
    Profile,
    /// Anything else.
    Log,
}

/// What a file holds, by its beginning.
pub fn kind(path: &Path, stop: &Arc<AtomicBool>) -> Result<FileKind> {
    let name = input::name(path);
    let (mut reader, _) = input::open(path, &name, stop)?;
    let mut head = Vec::new();
    reader.by_ref().take(4_096).read_to_end(&mut head).with_context(|| format!("cannot read {name}"))?;
    let magic = head.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    Ok(match magic {
        0xa1b2_c3d4 | 0xd4c3_b2a1 | 0xa1b2_3c4d | 0x4d3c_b2a1 | 0x0a0d_0d0a => FileKind::Capture,
        _ if digest::saved::looks_like(&head) => FileKind::Saved,
        // A log line in JSON begins with its time, a profile's document with its operation.
        _ if head.starts_with(b"{\"t\":") => FileKind::Log,
        _ if head.starts_with(b"{") => FileKind::Profile,
        5..=48_000_000 if head.get(4).is_some_and(|kind| (1..=0x13).contains(kind)) => FileKind::Profile,
        _ => FileKind::Log,
    })
}

/// Opens a file to be read to its end.
pub fn whole(path: &Path, stop: &Arc<AtomicBool>) -> Result<Vec<u8>> {
    /// The largest saved digest.
    const MOST: u64 = 1 << 30;
    let name = input::name(path);
    let (reader, _) = input::open(path, &name, stop)?;
    let mut bytes = Vec::new();
    reader.take(MOST).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    Ok(bytes)
}
