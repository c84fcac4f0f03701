//! Finds the files of `diagnostic.data` and reads their documents.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use indicatif::ProgressBar;
use sonar_core::files::naming::{DIAGNOSTIC_DATA, is_sample_file};
use sonar_core::internals::{Assessment, Metric, SampleKey, ServerDescription, ServerSample};
use sonar_core::{OldestFirst, Timestamp};
use sonar_decode::ftdc::{
    ChunkError, DocumentContent, SampleReader, StatusReader, describe, document_length, parse,
};
use sonar_view::ftdc::{FtdcReading, FtdcReport};
use sonar_view::kit::{Zone, plural};

use super::args::SampleRangeArgs;
use super::saved::{self, SavedLosses};
use crate::args::when;
use crate::exit::{self, OK, TRUNCATED, usage};
use crate::input::content::{self, FileContent};
use crate::input::tar::{self, ArchivedFiles};
use crate::{input, stop};

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
        let inner = path.join(DIAGNOSTIC_DATA);
        let folder = if inner.is_dir() { &inner } else { path };
        let cannot = || format!("cannot read {}", folder.display());
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).with_context(cannot)? {
            let entry = entry.with_context(cannot)?;
            if is_sample_file(&entry.file_name().to_string_lossy()) {
                found.push(entry.path());
            }
        }
        if found.is_empty() {
            bail!(
                "{}: no file of diagnostic.data (metrics.*); name the folder {DIAGNOSTIC_DATA} of a mongod, or \
                 LOGNAME.{DIAGNOSTIC_DATA} beside the log of a mongos",
                folder.display()
            );
        }
        files.append(&mut found);
    }
    input::refuse_repeated(&files)?;
    // Files of several folders, or that were named one by one: their names hold their time.
    files.sort_by_key(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        name.filter(|name| is_sample_file(name)).unwrap_or_default()
    });
    Ok(files)
}

/// What takes the documents of files.
pub trait ChunkSink {
    /// The metadata of a file, as BSON.
    ///
    /// # Errors
    /// The reading stops.
    fn metadata(&mut self, file: &Path, metadata: &[u8]) -> Result<()>;

    /// The data of a chunk.
    ///
    /// # Errors
    /// The outer one stops the reading; the inner one says that the chunk is damaged.
    fn chunk(&mut self, data: &[u8]) -> Result<Result<(), ChunkError>>;

    /// A sample that was saved by itself, as `getDiagnosticData` returns it: a BSON document.
    ///
    /// # Errors
    /// As of [`chunk`](Self::chunk).
    fn sample(&mut self, _: &[u8]) -> Result<Result<(), ChunkError>> {
        bail!("this is the output of getDiagnosticData, which `mongosonar ftdc report` reads")
    }
}

/// Reads all files. Damage costs no more than its own document, or what follows it in the file.
///
/// # Errors
/// The only file cannot be read, or the sink fails.
pub fn read(files: &[PathBuf], stop: &Arc<AtomicBool>, sink: &mut impl ChunkSink) -> Result<FtdcReading> {
    let mut reading = FtdcReading::default();
    for path in files {
        match open(path, stop) {
            Ok(opened) => {
                for part in opened.parts {
                    read_part(
                        part,
                        path,
                        &mut reading,
                        &mut PartReading { stop, progress: &opened.progress, sink },
                    )?;
                }
                // What is missing of an archive comes behind what is in it.
                if let Some(damage) = opened.damage {
                    reading.damage.push(format!("{}: {damage}; all before that is shown", input::name(path)));
                }
                opened.progress.finish_and_clear();
            }
            Err(error) if files.len() == 1 => return Err(error),
            Err(error) => reading.damage.push(exit::message(&error)),
        }
        reading.files += 1;
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(reading)
}

/// What a part is read with.
struct PartReading<'a, S> {
    stop: &'a Arc<AtomicBool>,
    progress: &'a ProgressBar,
    sink: &'a mut S,
}

/// Reads one file, or one in an archive. Damage in it costs what follows it there.
fn read_part(
    part: DocumentFile,
    path: &Path,
    reading: &mut FtdcReading,
    with: &mut PartReading<'_, impl ChunkSink>,
) -> Result<()> {
    let DocumentFile { name, documents } = part;
    if saved::is_saved(&documents) {
        let SavedLosses { broken, damage } = saved::read(documents, |sample| with.sink.sample(sample))?;
        if broken > 0 {
            let what = plural(broken, "document");
            reading.damage.push(format!("{name}: {what} could not be read"));
        }
        if let Some(what) = damage {
            reading.damage.push(format!("{name}: {what}; all before that is shown"));
        }
        return Ok(());
    }
    let mut reader = FileReader { path, name, documents, offset: 0, reading };
    let end = reader.read(with.stop, with.sink)?;
    let stopped = with.stop.load(Ordering::Relaxed).then(|| input::stopped(with.progress));
    if let Some(what) = stopped.or(end) {
        let what = if reader.offset > 0 { format!("{what}; all before that is shown") } else { what };
        let damage = format!("{}: {what}", reader.name);
        reader.reading.damage.push(damage);
    }
    Ok(())
}

/// The server of these files, by the first metadata that can be read; nothing is known without any.
pub fn server(files: &[PathBuf], stop: &Arc<AtomicBool>) -> ServerDescription {
    let of_part = |path: &PathBuf, part: DocumentFile| {
        let DocumentFile { name, documents } = part;
        let mut reading = FtdcReading::default();
        let mut reader = FileReader { path, name, documents, offset: 0, reading: &mut reading };
        let mut document = Vec::new();
        // They come first.
        reader.next(&mut document).ok().filter(|is_one| *is_one)?;
        match parse(&document).ok()?.content {
            DocumentContent::Metadata(metadata) => Some(describe(metadata)),
            _ => None,
        }
    };
    let of_file =
        |path: &PathBuf| open(path, stop).ok()?.parts.into_iter().find_map(|part| of_part(path, part));
    files.iter().find_map(of_file).unwrap_or_default()
}

/// A file of `diagnostic.data`, or one in an archive.
struct DocumentFile {
    /// Its name; in an archive behind the name of that.
    name: String,
    documents: BufReader<Box<dyn Read>>,
}

/// A file, or what is in an archive.
struct OpenedInput {
    parts: Vec<DocumentFile>,
    progress: ProgressBar,
    /// Why an archive was not read to its end.
    damage: Option<String>,
}

/// Opens a file, if it can be one of `diagnostic.data`.
fn open(path: &Path, stop: &Arc<AtomicBool>) -> Result<OpenedInput> {
    let name = input::name(path);
    let (reader, progress) = input::open(path, &name, stop)?;
    let single = |documents, name, progress| OpenedInput {
        parts: vec![DocumentFile { name, documents }],
        progress,
        damage: None,
    };
    let peeked = content::peek(reader, &name)?;
    let is_empty = peeked.content == FileContent::Empty;
    if peeked.content == FileContent::DiagnosticText {
        let mut documents = BufReader::with_capacity(1 << 20, peeked.reader);
        // Its first bytes say that it is a text.
        documents.fill_buf().with_context(|| format!("cannot read {name}"))?;
        return Ok(single(documents, name, progress));
    }
    if peeked.content == FileContent::Tar {
        let (parts, damage) = archived(peeked.reader, &name)?;
        return Ok(OpenedInput { parts, progress, damage });
    }
    if !is_empty && peeked.content != FileContent::Diagnostic {
        content::refuse_foreign(&name, peeked.content, &[FileContent::Diagnostic])?;
        bail!("{name}: not a file of diagnostic.data");
    }
    Ok(single(BufReader::with_capacity(1 << 20, peeked.reader), name, progress))
}

/// The most bytes of the files of one archive, which are kept in memory: `diagnostic.data` has 200 MB unless a server was
/// told otherwise.
const MAX_ARCHIVED: u64 = 2 << 30;

/// The files of `diagnostic.data` in an archive, in the order of their time, and why it was not read to its end.
fn archived(archive: Box<dyn Read>, name: &str) -> Result<(Vec<DocumentFile>, Option<String>)> {
    let file_name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let is_wanted = |path: &str| path.rsplit('/').next().is_some_and(is_sample_file);
    let ArchivedFiles { mut files, damage } = tar::files(archive, is_wanted, MAX_ARCHIVED);
    if let Some(error) = damage.as_ref().filter(|_| files.is_empty()) {
        bail!("cannot read {name}: {error}");
    }
    if files.is_empty() {
        bail!("{name}: no file of diagnostic.data (metrics.*) is in this archive");
    }
    let folders: HashSet<String> = files
        .iter()
        .map(|(path, _)| path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned())
        .collect();
    if folders.len() > 1 {
        bail!("{name}: it holds the files of {} folders; unpack it and name one of them", folders.len());
    }
    files.sort_by_key(|(path, _)| file_name(path));
    let part = |(file, content): (String, Vec<u8>)| DocumentFile {
        name: format!("{name}/{file}"),
        documents: BufReader::new(Box::new(std::io::Cursor::new(content))),
    };
    Ok((files.into_iter().map(part).collect(), damage.map(|error| error.to_string())))
}

/// Reads one file.
struct FileReader<'a> {
    path: &'a Path,
    name: String,
    documents: BufReader<Box<dyn Read>>,
    /// Where the next document begins.
    offset: u64,
    reading: &'a mut FtdcReading,
}

impl FileReader<'_> {
    /// Reads its documents; returns why it could not be read to its end.
    fn read(&mut self, stop: &Arc<AtomicBool>, sink: &mut impl ChunkSink) -> Result<Option<String>> {
        let mut document = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            match self.next(&mut document) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(what) => return Ok(Some(what)),
            }
            let problem = match parse(&document).map(|document| document.content) {
                Ok(DocumentContent::Metadata(metadata)) => {
                    sink.metadata(self.path, metadata)?;
                    None
                }
                Ok(DocumentContent::Chunk(data)) => {
                    let damage = sink.chunk(data)?.err();
                    match damage {
                        None => self.reading.chunks += 1,
                        Some(_) => self.reading.chunks_damaged += 1,
                    }
                    damage.map(|error| format!("the chunk at byte {} is lost: {error}", self.offset))
                }
                Ok(DocumentContent::Parameters) => None,
                Ok(DocumentContent::Unknown) => {
                    self.reading.documents_unknown += 1;
                    None
                }
                Err(error) => {
                    self.reading.chunks_damaged += 1;
                    Some(format!("the document at byte {} is lost: {error}", self.offset))
                }
            };
            // One is enough to know where; all are counted.
            if let Some(problem) = problem.filter(|_| self.reading.chunks_damaged == 1) {
                self.reading.damage.push(format!("{}: {problem}", self.name));
            }
            self.offset += document.len() as u64;
        }
        Ok(None)
    }

    /// Reads the next document; false at the end of the file.
    fn next(&mut self, document: &mut Vec<u8>) -> Result<bool, String> {
        let offset = self.offset;
        document.clear();
        self.take(4, document)?;
        let Some(first) = document.first_chunk() else {
            return match document.len() {
                0 => Ok(false),
                found => Err(format!("it ends within the document at byte {offset}, after {found} bytes")),
            };
        };
        let length = document_length(*first).map_err(|error| format!("{error}: byte {offset}"))?;
        let Some(length) = length else {
            // Old interim files end with zeros.
            let rest = self.documents.by_ref().bytes().map_while(Result::ok).any(|byte| byte != 0);
            return if rest {
                Err(format!("zeros instead of a document at byte {offset}"))
            } else {
                Ok(false)
            };
        };
        self.take(length - 4, document)?;
        match document.len() {
            found if found < length => {
                Err(format!("it ends within the document at byte {offset}, after {found} bytes"))
            }
            _ => Ok(true),
        }
    }

    fn take(&mut self, count: usize, document: &mut Vec<u8>) -> Result<(), String> {
        let read = self.documents.by_ref().take(count as u64).read_to_end(document);
        read.map(drop).map_err(|error| format!("{error} at byte {}", self.offset))
    }
}

/// The exit code: files that could not be read to their end make the result partial, which standard error says too.
pub fn exit_code(reading: &FtdcReading) -> u8 {
    // The reader of the output has all that it wanted.
    if stop::is_abandoned() {
        return OK;
    }
    for damage in &reading.damage {
        eprintln!("mongosonar: {damage}");
    }
    match (exit::stopped(), reading.damage.is_empty()) {
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
        let (from, to) = when::ends(args.from, args.to, zone);
        let (from, to) = (from.map(Timestamp::unix_ms), to.map(Timestamp::unix_ms));
        if from.zip(to).is_some_and(|(from, to)| to <= from) {
            return Err(usage!("--to must be later than --from"));
        }
        Ok(Self(from, to))
    }

    /// Whether it has neither a beginning nor an end.
    pub fn is_all(&self) -> bool {
        self.0.is_none() && self.1.is_none()
    }

    /// Whether a sample of that time belongs to it.
    pub fn contains(&self, time_ms: i64) -> bool {
        self.0.is_none_or(|from| time_ms >= from) && self.1.is_none_or(|to| time_ms < to)
    }
}

/// Which samples are new: the same ones can stand in an interim file and in an archive.
pub struct Repetitions {
    seen: OldestFirst<SampleKey, ()>,
    capacity: usize,
}

impl Default for Repetitions {
    fn default() -> Self {
        Self::new(MAX_REMEMBERED)
    }
}

impl Repetitions {
    /// Remembers the last `capacity` samples.
    pub fn new(capacity: usize) -> Self {
        Self { seen: OldestFirst::default(), capacity }
    }

    /// Whether the sample with that key is new.
    pub fn is_new(&mut self, key: SampleKey) -> bool {
        let is_new = self.seen.insert(key, ()).is_none();
        if self.seen.count() > self.capacity {
            self.seen.pop_oldest();
        }
        is_new
    }
}

/// Collects the figures of samples.
struct FigureCollector {
    samples: SampleReader,
    /// Reads samples that were saved one by one.
    saved: StatusReader,
    range: SampleRange,
    repetitions: Repetitions,
    assessment: Assessment,
    /// What the metadata say, and the folder that they are from.
    server: Option<(PathBuf, ServerDescription)>,
    stop: Arc<AtomicBool>,
    repeated: u64,
    outside: u64,
    /// Samples without a time.
    undated: u64,
}

impl ChunkSink for FigureCollector {
    fn metadata(&mut self, file: &Path, metadata: &[u8]) -> Result<()> {
        let server = self.samples.metadata(metadata);
        let folder = file.parent().unwrap_or(file).to_path_buf();
        if let Some((other, known)) = &self.server
            && *other != folder
            && is_other(known, &server)
        {
            return Err(usage!(
                "{} and {} are of two servers: name the files of one, or use `mongosonar ftdc compare`",
                other.display(),
                folder.display()
            ));
        }
        self.server = Some((folder, server));
        Ok(())
    }

    fn chunk(&mut self, data: &[u8]) -> Result<Result<(), ChunkError>> {
        let Self { samples, range, repetitions, assessment, stop, repeated, outside, undated, .. } = self;
        let read = samples.read(data, |sample: &ServerSample| {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            match (range.contains(sample.time_ms()), repetitions.is_new(sample.key())) {
                _ if sample.get(Metric::Start).is_none() => *undated += 1,
                (false, _) => *outside += 1,
                (_, false) => *repeated += 1,
                _ => assessment.add(sample),
            }
        });
        if read.is_err() {
            assessment.lose();
        }
        Ok(read)
    }

    fn sample(&mut self, document: &[u8]) -> Result<Result<(), ChunkError>> {
        let Self { saved, range, repetitions, assessment, repeated, outside, undated, .. } = self;
        let sample = match saved.read(document) {
            Ok(sample) => sample,
            Err(error) => return Ok(Err(error)),
        };
        match (range.contains(sample.time_ms()), repetitions.is_new(sample.key())) {
            _ if sample.get(Metric::Start).is_none() => *undated += 1,
            (false, _) => *outside += 1,
            (_, false) => *repeated += 1,
            _ => assessment.add(sample),
        }
        Ok(Ok(()))
    }
}

/// Whether both are certainly two servers.
fn is_other(a: &ServerDescription, b: &ServerDescription) -> bool {
    let identity = |server: &ServerDescription| (server.host.clone(), server.port, server.dbpath.clone());
    identity(a) != identity(b)
}

/// Why there is nothing to show.
pub fn no_sample(paths: &[PathBuf], reading: &FtdcReading) -> anyhow::Error {
    let names = paths.iter().map(|path| input::name(path)).collect::<Vec<_>>().join(", ");
    match (reading.samples_outside, reading.damage.first()) {
        (outside @ 1.., _) => {
            anyhow!("{names}: none of its {outside} samples is in the time of --from and --to")
        }
        (_, Some(damage)) => anyhow!("{damage}"),
        _ => anyhow!("{names}: no sample"),
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
        saved: StatusReader::default(),
        range,
        repetitions: Repetitions::default(),
        assessment: Assessment::default(),
        server: None,
        stop: stop.clone(),
        repeated: 0,
        outside: 0,
        undated: 0,
    };
    let mut reading = read(&files, stop, &mut collector)?;
    (reading.samples_repeated, reading.samples_outside) = (collector.repeated, collector.outside);
    if collector.undated > 0 {
        let count = plural(collector.undated as usize, "sample");
        reading
            .damage
            .push(format!("{count} without a time cannot be placed; `ftdc export` shows their values"));
    }
    if collector.assessment.samples() == 0 {
        return Err(no_sample(paths, &reading));
    }
    let server = collector.server.map(|(_, server)| server).unwrap_or_default();
    reading.sources = paths.iter().map(|path| input::name(path)).collect();
    Ok(FtdcReport::new(&collector.assessment, &server, reading, zone))
}
