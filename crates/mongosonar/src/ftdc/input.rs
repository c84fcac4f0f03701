//! Finds the files of `diagnostic.data` and reads their documents.

use std::collections::{HashSet, VecDeque};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use sonar_core::Timestamp;
use sonar_core::internals::{Assessment, Metric, ServerDescription, ServerSample};
use sonar_decode::ftdc::{ChunkError, DocumentContent, SampleReader, describe, document_length, parse};
use sonar_view::ftdc::{FtdcReading, FtdcReport};
use sonar_view::kit::Zone;

use super::args::SampleRangeArgs;
use crate::content::{self, FileContent};
use crate::exit::{self, OK, TRUNCATED, usage};
use crate::{input, stop};

/// The folder that a server writes its files into.
const FOLDER: &str = "diagnostic.data";
/// Samples among which repetitions are found: those of several chunks.
const MAX_REMEMBERED: usize = 100_000;

/// The files to read, in the order of their time: those named, and those in folders that are named.
///
/// # Errors
/// A folder cannot be read, or holds no such file; a file is named twice.
pub fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let inner = path.join(FOLDER);
        let folder = if inner.is_dir() { &inner } else { path };
        let cannot = || format!("cannot read {}", folder.display());
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).with_context(cannot)? {
            let entry = entry.with_context(cannot)?;
            if entry.file_name().to_string_lossy().starts_with("metrics.") {
                found.push(entry.path());
            }
        }
        if found.is_empty() {
            bail!(
                "{}: no file of diagnostic.data (metrics.*); name the folder {FOLDER} of a mongod, or \
                 LOGNAME.{FOLDER} beside the log of a mongos",
                folder.display()
            );
        }
        // The name holds the time; the interim file is the newest.
        found.sort();
        files.append(&mut found);
    }
    input::refuse_repeated(&files)?;
    Ok(files)
}

/// What takes the documents of files.
pub trait ChunkSink {
    /// The metadata of a file, as BSON.
    fn metadata(&mut self, _metadata: &[u8]) {}

    /// The data of a chunk.
    ///
    /// # Errors
    /// The outer one stops the reading; the inner one says that the chunk is damaged.
    fn chunk(&mut self, data: &[u8]) -> Result<Result<(), ChunkError>>;
}

/// Reads all files. Damage costs no more than its own document, or what follows it in the file.
///
/// # Errors
/// A file cannot be opened or is something else, or the sink fails.
pub fn read(files: &[PathBuf], stop: &Arc<AtomicBool>, sink: &mut impl ChunkSink) -> Result<FtdcReading> {
    let mut reading = FtdcReading::default();
    for path in files {
        let name = input::name(path);
        if let Some(damage) = read_file(path, stop, &mut reading, sink)? {
            reading.damage.push(format!("{name}: {damage}; all before that is shown"));
        }
        reading.files += 1;
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(reading)
}

/// Reads a file; returns what is wrong with it.
fn read_file(
    path: &Path,
    stop: &Arc<AtomicBool>,
    reading: &mut FtdcReading,
    sink: &mut impl ChunkSink,
) -> Result<Option<String>> {
    let name = input::name(path);
    let (reader, progress) = input::open(path, &name, stop)?;
    let peeked = content::peek(reader, &name)?;
    content::refuse_foreign(&name, peeked.content, &[FileContent::Diagnostic, FileContent::ProfileBson])?;
    let mut reader = BufReader::with_capacity(1 << 20, peeked.reader);
    let (mut document, mut offset) = (Vec::new(), 0u64);
    let damage = loop {
        if stop.load(Ordering::Relaxed) {
            break Some(input::stopped(&progress));
        }
        document.clear();
        let cut = |found: usize| format!("it ends within the document at byte {offset}, after {found} bytes");
        if let Err(error) = reader.by_ref().take(4).read_to_end(&mut document) {
            break Some(error.to_string());
        }
        let length = match document.first_chunk() {
            Some(first) => match document_length(*first) {
                Ok(Some(length)) => length,
                Ok(None) => break None,
                Err(error) if offset == 0 => bail!("{name}: not a file of diagnostic.data: {error}"),
                Err(error) => break Some(format!("{error}: byte {offset}")),
            },
            None if document.is_empty() && offset > 0 => break None,
            // A server that was just started has an empty interim file.
            None if document.is_empty() => break None,
            None => break Some(cut(document.len())),
        };
        if let Err(error) = reader.by_ref().take(length as u64 - 4).read_to_end(&mut document) {
            break Some(error.to_string());
        }
        if document.len() < length {
            break Some(cut(document.len()));
        }
        offset += length as u64;
        match parse(&document).map(|document| document.content) {
            Ok(DocumentContent::Metadata(metadata)) => sink.metadata(metadata),
            Ok(DocumentContent::Chunk(data)) => match sink.chunk(data)? {
                Ok(()) => reading.chunks += 1,
                Err(error) => {
                    reading.chunks_damaged += 1;
                    if reading.chunks_damaged == 1 {
                        let at = offset - length as u64;
                        reading.damage.push(format!("{name}: the chunk at byte {at} is lost: {error}"));
                    }
                }
            },
            Ok(DocumentContent::Parameters { .. }) => {}
            Ok(DocumentContent::Unknown) => reading.documents_unknown += 1,
            Err(error) if offset == length as u64 => bail!("{name}: {error}"),
            Err(_) => reading.documents_unknown += 1,
        }
    };
    progress.finish_and_clear();
    Ok(damage)
}

/// The exit code: files that could not be read to their end make the result partial, which standard error says too.
pub fn exit_code(reading: &FtdcReading) -> u8 {
    for damage in &reading.damage {
        eprintln!("mongosonar: {damage}");
    }
    match (exit::stopped(), reading.damage.is_empty()) {
        // The reader of the output has all that it wanted.
        _ if stop::is_abandoned() => OK,
        (Some((_, code)), _) => code,
        (None, false) => TRUNCATED,
        (None, true) => OK,
    }
}

/// A time in milliseconds since 1970: from and to, where they are given.
#[derive(Copy, Clone, Debug)]
pub struct SampleRange(Option<i64>, Option<i64>);

impl SampleRange {
    /// As the arguments say; times without an offset are of `zone`.
    ///
    /// # Errors
    /// It ends before it begins.
    pub fn of(args: &SampleRangeArgs, zone: &Zone) -> Result<Self> {
        let ms = |at: Timestamp| i64::try_from(at.unix_ns() / 1_000_000).unwrap_or(i64::MAX);
        let [from, to] = [args.from, args.to].map(|when| when.map(|when| ms(when.in_zone(zone))));
        if from.zip(to).is_some_and(|(from, to)| to <= from) {
            return Err(usage!("--to must be later than --from"));
        }
        Ok(Self(from, to))
    }

    /// Whether a sample of that time belongs to it.
    pub fn contains(&self, time_ms: i64) -> bool {
        self.0.is_none_or(|from| time_ms >= from) && self.1.is_none_or(|to| time_ms < to)
    }
}

/// Which samples are new: the same ones can stand in an interim file and in an archive.
#[derive(Default)]
pub struct Repetitions {
    seen: HashSet<(i64, i64)>,
    order: VecDeque<(i64, i64)>,
}

impl Repetitions {
    /// Whether the sample of that process and time is new.
    pub fn is_new(&mut self, pid: i64, time_ms: i64) -> bool {
        let key = (pid, time_ms);
        if !self.seen.insert(key) {
            return false;
        }
        self.order.push_back(key);
        if self.order.len() > MAX_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        true
    }
}

/// Collects the figures of samples.
struct FigureCollector {
    samples: SampleReader,
    range: SampleRange,
    repetitions: Repetitions,
    assessment: Assessment,
    server: ServerDescription,
    repeated: u64,
    outside: u64,
}

impl ChunkSink for FigureCollector {
    fn metadata(&mut self, metadata: &[u8]) {
        self.server = describe(metadata);
    }

    fn chunk(&mut self, data: &[u8]) -> Result<Result<(), ChunkError>> {
        let Self { samples, range, repetitions, assessment, repeated, outside, .. } = self;
        Ok(samples.read(data, |sample: &ServerSample| {
            let pid = sample.get(Metric::Pid).unwrap_or(0);
            match (range.contains(sample.time_ms()), repetitions.is_new(pid, sample.time_ms())) {
                (false, _) => *outside += 1,
                (_, false) => *repeated += 1,
                _ => assessment.add(sample),
            }
        }))
    }
}

/// Reads all files and makes the report.
///
/// # Errors
/// As [`read`], and if there is no sample.
pub fn report(
    paths: &[PathBuf],
    range: &SampleRangeArgs,
    zone: &Zone,
    stop: &Arc<AtomicBool>,
) -> Result<FtdcReport> {
    let range = SampleRange::of(range, zone)?;
    let files = files(paths)?;
    let mut collector = FigureCollector {
        samples: SampleReader::default(),
        range,
        repetitions: Repetitions::default(),
        assessment: Assessment::default(),
        server: ServerDescription::default(),
        repeated: 0,
        outside: 0,
    };
    let mut reading = read(&files, stop, &mut collector)?;
    (reading.samples_repeated, reading.samples_outside) = (collector.repeated, collector.outside);
    if collector.assessment.samples() == 0 {
        let names: Vec<_> = paths.iter().map(|path| input::name(path)).collect();
        let why = match (collector.outside, reading.damage.first()) {
            (1.., _) => {
                format!("none of its {} samples is in the time of --from and --to", collector.outside)
            }
            (_, Some(damage)) => damage.clone(),
            _ => "no sample".to_owned(),
        };
        bail!("{}: {why}", names.join(", "));
    }
    let sources = paths.iter().map(|path| input::name(path)).collect();
    Ok(FtdcReport::new(&collector.assessment, &collector.server, reading, (sources, zone)))
}
