//! Reads logs: blocks of lines, on all cores; what each line says, in the order of the lines; a digest of their
//! operations.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use sonar_core::{LogNotices, Reading, Source, Timestamp};
use sonar_decode::entry::{EntrySink, ParsedEntry};
use sonar_decode::log::{LineKind, LineReader, LogReader, LogSettings, ParsedLine};
use sonar_view::kit::{Zone, plural};

use super::collect::{OperationCollector, SourceDigest, TimeRange};
use super::lines::{BLOCK, LineBlock, LineBlocks};
use crate::in_order::{self, in_order};
use crate::input::content::{self, FileContent, Peeked};
use crate::input::log_container::LogContainer;
use crate::input::tar;
use crate::input::{self, Failing};

/// Takes what logs say, in the order of their lines.
pub trait LogSink: EntrySink {
    /// The first line comes next.
    fn begin(&mut self, _log: &mut LogReader) {}

    /// The lines of a file with this name come next.
    fn file(&mut self, _name: &str) {}

    /// A line was added to the log. The operations that it ends came before.
    fn line(&mut self, _parsed: &ParsedLine, _log: &mut LogReader) {}

    /// The last line was added.
    fn end(&mut self, _log: &mut LogReader) {}
}

impl LogSink for OperationCollector {
    fn begin(&mut self, log: &mut LogReader) {
        if self.shows_values {
            log.show_values();
        }
    }

    fn file(&mut self, name: &str) {
        self.routed.file(name);
    }
}

/// Logs that have been read.
pub struct LogsRead<S> {
    /// What took their lines.
    pub sink: S,
    /// The counters.
    pub reading: Reading,
    /// What they hold besides operations.
    pub notices: LogNotices,
    /// A file was cut or damaged.
    pub damaged: bool,
    /// Files that were not read to their end because the command was stopped.
    pub stopped: Vec<String>,
    /// The times of the first and the last line that had one.
    pub covers: Option<(Timestamp, Timestamp)>,
}

/// How the work is divided.
#[derive(Copy, Clone, Debug)]
struct Division {
    threads: usize,
    /// Bytes of a block.
    block: usize,
}

/// Lines, each with its line feed, and what each says by itself.
#[derive(Default)]
struct LineBatch {
    block: LineBlock,
    lines: Vec<ParsedLine>,
    /// Those of the lines that describe operations, and one more.
    entries: Vec<ParsedEntry>,
}

impl LineBatch {
    /// Reads the lines, each by itself.
    fn read(&mut self, reader: &mut LineReader) {
        self.lines.clear();
        let mut operations = 0;
        for line in lines(&self.block.bytes) {
            if operations == self.entries.len() {
                self.entries.push(ParsedEntry::default());
            }
            let parsed = reader.read(without_line_feed(line), &mut self.entries[operations]);
            operations += usize::from(parsed.kind == LineKind::Operation);
            self.lines.push(parsed);
        }
        if operations == self.entries.len() {
            self.entries.push(ParsedEntry::default());
        }
    }

    /// Adds the lines to a log.
    fn add_to(&self, log: &mut LogReader, sink: &mut impl LogSink) {
        if self.block.is_after_too_long {
            log.add_too_long();
        }
        let mut operations = 0;
        for (line, parsed) in lines(&self.block.bytes).zip(&self.lines) {
            let entry = &self.entries[operations];
            match line.strip_suffix(b"\n") {
                Some(line) => log.add(line, parsed, entry, sink),
                None => log.add_last(line, parsed, entry, sink),
            }
            sink.line(parsed, log);
            operations += usize::from(parsed.kind == LineKind::Operation);
        }
    }
}

/// The lines of a block, each with its line feed.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = memchr::memchr_iter(b'\n', bytes).map(|at| at + 1);
    let last = (!bytes.is_empty() && !bytes.ends_with(b"\n")).then_some(bytes.len());
    let mut begin = 0;
    ends.chain(last).map(move |end| &bytes[std::mem::replace(&mut begin, end)..end])
}

fn without_line_feed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// A log file, with the time of its first line.
struct LogFile {
    path: PathBuf,
    first: Option<Timestamp>,
    reference_ms: i64,
}

/// Reads logs into a digest; see [`read_into`].
///
/// # Errors
/// A file cannot be opened, or holds something else.
pub fn read(
    files: &[PathBuf],
    collect: OperationCollector,
    span: &TimeRange,
    stop: &Arc<AtomicBool>,
) -> Result<SourceDigest> {
    Ok(digest(read_into(files, span, stop, collect)?, span))
}

fn digest(read: LogsRead<OperationCollector>, span: &TimeRange) -> SourceDigest {
    let LogsRead { mut sink, reading, notices, damaged, stopped, covers } = read;
    let zone = span.zone.clone().unwrap_or_else(|| Zone::of_log(&notices.offsets));
    if let Some((first, last)) = covers {
        sink.digest.observed[Source::Log as usize] = span.observed(first, last, &zone);
    }
    SourceDigest { notices: Some(notices), damaged, stopped, covers, ..sink.gathered(reading, zone) }
}

/// Reads the entries of logs in this range. Files of one server, each of which begins where another ends, are read one after
/// another.
///
/// # Errors
/// A file cannot be opened, or holds something else.
pub fn read_into<S: LogSink>(
    files: &[PathBuf],
    span: &TimeRange,
    stop: &Arc<AtomicBool>,
    sink: S,
) -> Result<LogsRead<S>> {
    let mut all = Vec::new();
    for path in files {
        let reference_ms = reference(path);
        // The first time of a pipe that can be read only once is not known.
        let first = if files.len() > 1 && input::is_rereadable(path) {
            find(path, stop, |_, log| log.last_time())?
        } else {
            None
        };
        all.push(LogFile { path: path.clone(), first, reference_ms });
    }
    all.sort_by_key(|file| file.first);
    let mut reading = LogsReading::new(sink, span, stop);
    reading.sink.begin(&mut reading.log);
    for (number, file) in all.iter().enumerate() {
        reading.log.set_reference(file.reference_ms);
        // A file that begins before the one before it ends is another server's.
        if number > 0 && (file.first.is_none() || file.first < reading.log.last_time()) {
            reading.log.next_server();
        }
        reading.file(&file.path)?;
    }
    Ok(reading.finish())
}

/// The lines that are of a log.
fn lines_of_logs(reading: Reading) -> u64 {
    reading.lines_operation + reading.lines_event + reading.lines_other + reading.lines_outside
}

/// Logs that are being read.
struct LogsReading<'a, S> {
    log: LogReader,
    sink: S,
    damaged: bool,
    /// Files that were not read to their end because the command was stopped.
    stopped: Vec<String>,
    /// Files in which not one line is of a log.
    foreign: Vec<String>,
    division: Division,
    stop: &'a Arc<AtomicBool>,
}

impl<'a, S: LogSink> LogsReading<'a, S> {
    fn new(sink: S, span: &TimeRange, stop: &'a Arc<AtomicBool>) -> Self {
        let log = LogReader::new(LogSettings { from: span.from, to: span.to, ..LogSettings::default() });
        let division = Division { threads: in_order::threads(), block: BLOCK };
        let (damaged, stopped, foreign) = (false, Vec::new(), Vec::new());
        Self { log, sink, damaged, stopped, foreign, division, stop }
    }

    fn file(&mut self, path: &Path) -> Result<()> {
        let name = input::name(path);
        let (reader, progress) = input::open(path, &name, self.stop)?;
        let Peeked { content, reader, .. } = content::peek(reader, &name)?;
        content::refuse_foreign(&name, content, &[FileContent::Log, FileContent::Tar])?;
        let before = self.log.reading();
        let stopped = before.files_stopped;
        if content == FileContent::Tar {
            self.archive(reader, &name)?;
        } else {
            let reader = lines_in(reader, self.log.settings().reference_ms);
            self.damaged |= self.lines(reader, &name);
        }
        let after = self.log.reading();
        if after.lines > before.lines && lines_of_logs(after) == lines_of_logs(before) {
            self.foreign.push(name.clone());
        }
        if after.files_stopped > stopped {
            self.stopped.push(format!("{name}: {}", input::stopped(&progress)));
        }
        progress.finish_and_clear();
        Ok(())
    }

    /// Reads the logs in an archive, one after another: each may be compressed, damaged, or of another server, as if it
    /// were named by itself.
    ///
    /// # Errors
    /// There is none in it.
    fn archive(&mut self, input: Box<dyn Read>, name: &str) -> Result<()> {
        let mut members = tar::ArchiveMembers::new(input);
        let before = self.log.reading();
        let (files, damaged, mut count) = (before.files, before.files_damaged, 0u64);
        let reference_ms = self.log.settings().reference_ms;
        // What is in it instead: how many files, and one that another command reads.
        let (mut others, mut known) = (0u64, None);
        while !self.stop.load(Ordering::Relaxed) {
            let member = match members.next() {
                Ok(Some(member)) => member,
                Ok(None) => break,
                Err(error) => {
                    self.lose(name, &error);
                    break;
                }
            };
            let name = format!("{name}/{}", member.name);
            let reference_ms = member.modified_ms.unwrap_or(reference_ms);
            let mut head = Vec::new();
            let content = input::decompressed(member.content).map(|mut content| {
                // An error further on comes again.
                let failed = content.by_ref().take(tar::HEAD as u64).read_to_end(&mut head).err();
                (content, failed)
            });
            let (rest, failed) = match content {
                Ok(content) => content,
                Err(error) => {
                    self.lose(&name, &error);
                    continue;
                }
            };
            let content = FileContent::of(&head);
            if content != FileContent::Log {
                others += 1;
                known = known.or_else(|| content.command().map(|command| (content, command)));
                if let Some(error) = failed {
                    self.lose(&name, &error);
                }
                continue;
            }
            let first = first_time(&head, reference_ms);
            if count > 0 && (first.is_none() || first < self.log.last_time()) {
                self.log.next_server();
            }
            self.log.set_reference(reference_ms);
            let head = io::Cursor::new(head);
            let whole: Box<dyn Read> = match failed {
                Some(error) => Box::new(head.chain(Failing::new(error))),
                None => Box::new(head.chain(rest)),
            };
            let reader = lines_in(whole, reference_ms);
            self.damaged |= self.lines(reader, &name);
            count += 1;
        }
        let stopped = self.stop.load(Ordering::Relaxed);
        let reading = self.log.reading_mut();
        if count == 0 && reading.files_damaged == damaged && !stopped {
            let files = plural(others, "file");
            match known {
                Some((content, command)) => {
                    bail!("{name}: this archive of {files} holds no log, but {content}; use `{command}`")
                }
                None => bail!(
                    "{name}: this archive of {files} holds nothing that mongosonar knows: neither a log nor \
                     diagnostic.data"
                ),
            }
        }
        // It is one file of those that were named.
        reading.files = files + 1;
        if stopped && count == 0 {
            reading.files_stopped += 1;
        }
        Ok(())
    }

    /// Counts what cannot be read any further.
    fn lose(&mut self, name: &str, error: &io::Error) {
        self.damaged = true;
        self.log.reading_mut().files_damaged += 1;
        eprintln!("mongosonar: {name}: cannot be read further: {error}; all before it has been read");
    }

    /// Reads all lines of a file; whether it is cut or damaged.
    fn lines(&mut self, input: impl Read, name: &str) -> bool {
        self.sink.file(name);
        let unfinished = self.log.reading().lines_unfinished;
        let mut blocks = LineBlocks::new(input, self.division.block);
        let settings = self.log.settings();
        let goes_on = || !self.stop.load(Ordering::Relaxed);
        in_order(
            self.division.threads,
            |batch: &mut LineBatch| goes_on() && blocks.next(&mut batch.block, goes_on),
            || {
                let mut reader = LineReader::new(settings);
                move |batch: &mut LineBatch| batch.read(&mut reader)
            },
            |batch| batch.add_to(&mut self.log, &mut self.sink),
        );
        let reading = self.log.reading_mut();
        reading.files += 1;
        reading.bytes += blocks.bytes;
        if self.stop.load(Ordering::Relaxed) && !blocks.is_at_end() {
            reading.files_stopped += 1;
            return false;
        }
        if let Some(error) = blocks.failed {
            reading.files_damaged += 1;
            eprintln!("mongosonar: {name}: cannot be read further: {error}; all before it has been read");
            return true;
        }
        let is_cut = self.log.reading().lines_unfinished > unfinished;
        if is_cut {
            eprintln!("mongosonar: {name}: it ends inside a line; all before it has been read");
        }
        is_cut
    }

    fn finish(self) -> LogsRead<S> {
        let Self { mut log, mut sink, mut damaged, stopped, foreign, .. } = self;
        // Without any line of a log there is no result, and an error says so.
        if lines_of_logs(log.reading()) > 0 && !foreign.is_empty() {
            damaged = true;
            log.reading_mut().files_damaged += foreign.len() as u64;
            for name in foreign {
                eprintln!(
                    "mongosonar: {name}: it has no line of a MongoDB log; the result covers the other files"
                );
            }
        }
        log.finish(&mut sink);
        sink.end(&mut log);
        let (reading, notices, covers) = (log.reading(), log.notices().clone(), log.span());
        LogsRead { sink, reading, notices, damaged, stopped, covers }
    }
}

/// The time of the first line in the beginning of a log that has one.
fn first_time(head: &[u8], reference_ms: i64) -> Option<Timestamp> {
    let mut log = LogReader::new(LogSettings { reference_ms, ..LogSettings::default() });
    lines(head).find_map(|line| {
        log.line(without_line_feed(line), &mut ());
        log.last_time()
    })
}

/// The lines of a file, also of one that holds them in the format of another program.
fn lines_in(mut reader: Box<dyn Read>, reference_ms: i64) -> Box<dyn Read> {
    let mut head = Vec::new();
    let failed = reader.by_ref().take(content::HEAD as u64).read_to_end(&mut head).err();
    let container = LogContainer::of(&head, reference_ms);
    // What came before an error is read all the same.
    let whole: Box<dyn Read> = match failed {
        Some(error) => Box::new(io::Cursor::new(head).chain(Failing::new(error))),
        None => Box::new(io::Cursor::new(head).chain(reader)),
    };
    match container {
        Some(container) => {
            container.lines(whole, reference_ms, |head| FileContent::of(head) == FileContent::Log)
        }
        None => whole,
    }
}

/// What `found` finds in one of the first lines of a file, which has been added to the log.
///
/// # Errors
/// The file cannot be opened.
pub fn find<T>(
    path: &Path,
    stop: &Arc<AtomicBool>,
    found: impl Fn(&[u8], &LogReader) -> Option<T>,
) -> Result<Option<T>> {
    /// The most lines at the beginning of a file to look at.
    const LOOK: usize = 1_000;
    /// The most bytes of them: a line may have no end, as the hole at the end of a file after a crash.
    const LOOK_BYTES: u64 = 64 << 20;
    let (input, _) = input::open(path, &input::name(path), stop)?;
    let mut log = LogReader::new(LogSettings { reference_ms: reference(path), ..LogSettings::default() });
    let input = lines_in(input, reference(path)).take(LOOK_BYTES);
    let (mut blocks, mut block, mut left) = (LineBlocks::new(input, BLOCK), LineBlock::default(), LOOK);
    while left > 0 && blocks.next(&mut block, || !stop.load(Ordering::Relaxed)) {
        for line in lines(&block.bytes).take(left) {
            let line = without_line_feed(line);
            log.line(line, &mut ());
            if let Some(found) = found(line, &log) {
                return Ok(Some(found));
            }
            left -= 1;
        }
    }
    Ok(None)
}

/// When the file was last written to, in milliseconds since the Unix epoch; now, if that is not known.
fn reference(path: &Path) -> i64 {
    let written = std::fs::metadata(path).and_then(|metadata| metadata.modified());
    let time = written.unwrap_or_else(|_| SystemTime::now());
    time.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use sonar_core::{DigestSettings, GroupBy};
    use sonar_decode::testing::fixtures::inflated;
    use sonar_view::digest::{DigestView, ViewOptions, json};
    use sonar_view::queries::ClassSet;

    use super::*;

    /// The JSON report of a log, all of it.
    fn report(log: &[u8], division: Division) -> String {
        let settings = DigestSettings { by: GroupBy::Shape, points: true };
        let collect = OperationCollector::new(Source::Log, settings, ClassSet::ALL);
        let (stop, span) = (Arc::new(AtomicBool::new(false)), TimeRange::default());
        let mut reading = LogsReading { division, ..LogsReading::new(collect, &span, &stop) };
        reading.lines(log, "a test");
        let SourceDigest { digest, reading, notices, .. } = super::digest(reading.finish(), &span);
        assert_eq!(reading.imbalances(), Vec::<String>::new());
        let wanted = ViewOptions::default();
        let view = DigestView::new(&digest, Source::Log, &wanted).with_reading(Some(&reading));
        let view = DigestView { notices: notices.as_ref(), ..view };
        let mut out = Vec::new();
        json(&view, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Recorded logs, with all that takes several lines: objects, parts of lines, and statements with their command.
    fn logs() -> Vec<u8> {
        let mut all = Vec::new();
        for name in ["mongod-4.0-mixed/mongod.log.gz", "mongod-4.4-minutes/mongod.log.gz"] {
            all.extend(inflated(name).into_iter().take(600_000));
            let end = memchr::memrchr(b'\n', &all).unwrap() + 1;
            all.truncate(end);
        }
        let head = |n: u32, context: &str, id: u32| {
            format!(
                r#"{{"t":{{"$date":"2026-05-01T10:00:{:02}.{:03}+00:00"}},"s":"I","c":"COMMAND","id":{id},"ctx":"{context}","msg":"Slow query","attr":"#,
                n / 1_000 % 60,
                n % 1_000,
            )
        };
        for n in 0..400 {
            let context = format!("conn{}", n % 3);
            let client = format!(r#"{{"doc":{{"application":{{"name":"app{}"}}}}}}}}"#, n % 5);
            let statement = r#"{"type":"update","ns":"t.d","command":{"q":{"_id":1},"u":{"$set":{"a":1}},"multi":false},"durationMillis":1}}"#;
            let command = r#"{"type":"command","ns":"t.$cmd","command":{"update":"d","$db":"t"},"durationMillis":900}}"#;
            let find = format!(
                r#"{{"type":"command","ns":"t.d","command":{{"find":"d","filter":{{"f{n}":1}},"$db":"t"}},"cursorid":{n},"durationMillis":7}}}}"#
            );
            let more = format!(
                r#"{{"type":"command","ns":"t.d","command":{{"getMore":{n},"collection":"d","$db":"t"}},"durationMillis":3}}}}"#
            );
            let spread =
                (head(n, "conn9", 51_803) + &find).replacen('{', "{\n  ", 1).replace(",\"", ",\n  \"");
            let lines = [
                head(n, &context, 51_800) + &client,
                head(n, &context, 51_803) + statement,
                head(n, &context, 51_803) + command,
                spread[..spread.len() - 1].to_owned() + "\n}",
                format!("2026-05-01T10:00:00.1Z stdout P {}", head(n, "conn8", 51_803)),
                format!("2026-05-01T10:00:00.1Z stdout F {more}"),
                "no line of a log".to_owned(),
            ];
            all.extend_from_slice(lines.join("\n").as_bytes());
            all.push(b'\n');
        }
        all.extend_from_slice(b"2026-05-01T10:00:00.100+0000 I COMM");
        all
    }

    #[test]
    fn any_number_of_threads_gives_the_same_report() {
        let log = logs();
        let one = report(&log, Division { threads: 1, block: 64 << 20 });
        for mark in [
            "\"app3\"",
            "f399",
            "\"statements_joined\":400",
            "\"lines_unfinished\":1",
            "\"lines_unwrapped\":800",
        ] {
            assert!(one.contains(mark), "{mark} is not in the report");
        }
        for (threads, block) in [(1, 700), (2, 1_000), (3, 4_096), (8, 100_000)] {
            assert!(one == report(&log, Division { threads, block }), "{threads} threads, blocks of {block}");
        }
    }
}
