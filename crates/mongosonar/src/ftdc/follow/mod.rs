//! Follows the `diagnostic.data` of a running server: gives out each sample once, in order, soon after it is written.
//!
//! A server appends a chunk to the newest file when it has some hundred samples. Until then the samples of that chunk are
//! in `metrics.interim`, which it replaces every ten samples. The same samples come again in the chunk.

mod folder;
mod schemas;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use sonar_core::Timestamp;
use sonar_core::internals::{ServerDescription, ServerSample};
use sonar_core::observation::FileIdentity;
use sonar_decode::ftdc::{ChunkLimits, DocumentContent, DocumentError, SampleReader, document_length, parse};

pub use self::folder::{DiagnosticFile, DiagnosticFolder};
pub use self::schemas::{LearnsSchemas, forget_schemas};
use super::input::Repetitions;
use crate::input::follow::FollowedFile;
use crate::large::{LARGE, LargeMemory, MemoryInUse};

/// The file with the newest samples.
const INTERIM: &str = "metrics.interim";
/// Samples among which repetitions are found: more than the longest chunk has.
const MAX_REMEMBERED: usize = 20_000;
/// The most documents of a file that are looked at to find where to begin.
const MAX_SCANNED: usize = 100_000;
/// Documents of files that are read by one call.
const BUDGET: usize = 64;

/// The longest document that a follower reads, in bytes. Servers pack their chunks into some hundred thousand, and begin
/// another file at 10 MB.
pub const MAX_DOCUMENT: usize = 2 << 20;
/// How long a chunk waits for memory.
const MEMORY_WAIT: Duration = Duration::from_millis(500);
/// What chunks may take while they are followed. Those of the largest servers of 8.0 have some 5 MB and 6,000 metrics, of
/// which some hundred are read; the server's own reader refuses more than 10 MB.
const LIMITS: ChunkLimits = ChunkLimits { unpacked: 16 << 20, values: 1 << 20, schemas: 8 << 20 };

/// What a follower has counted.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowedSamples {
    /// Samples given out.
    pub samples: u64,
    /// Samples that had been given out before.
    pub repeated: u64,
    /// Chunks and documents that are damaged, or larger than any server writes them.
    pub damaged: u64,
}

/// Follows a folder. It waits for nothing: call [`poll`](Self::poll) about once a second.
pub struct FtdcFollower<F> {
    folder: F,
    /// At the beginning, samples up to this time are only noted as known, in milliseconds since 1970.
    after_ms: Option<i64>,
    reader: SampleReader,
    repetitions: Repetitions,
    archive: Option<Archive>,
    /// The other files, by name.
    passed: BTreeMap<String, PassedFile>,
    interim: Option<Interim>,
    document: Vec<u8>,
    server: Option<ServerDescription>,
    counts: FollowedSamples,
    /// Chunks are unpacked into it.
    large: &'static LargeMemory,
}

/// The file that the server appends to, or did before it began another one.
#[derive(Debug)]
struct Archive {
    name: String,
    identity: FileIdentity,
    file: FollowedFile,
    /// Where the next document begins.
    offset: u64,
    /// What follows cannot be read.
    is_broken: bool,
}

/// A file that was left for another one, or that was there at the start and has nothing that is asked for. The server goes on
/// with it, or with one whose name is earlier, if its clock was set back: names and dates do not tell what is new, but files
/// and positions do.
#[derive(Debug)]
struct PassedFile {
    identity: FileIdentity,
    /// Documents that end here or before are known.
    known: u64,
    /// Its size when it was left. Nothing is in it behind `known` that can be read, unless it has grown.
    size: u64,
}

/// The interim file as it was last read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interim {
    file: DiagnosticFile,
    /// The time of its first sample, and how many it has.
    first_ms: i64,
    samples: usize,
}

impl<F: DiagnosticFolder> FtdcFollower<F> {
    /// Follows a folder and gives out the samples that are not there yet at the first poll, whatever their times.
    pub fn from_now_on(folder: F) -> Self {
        Self::new(folder, i64::MAX)
    }

    /// Follows a folder and gives out samples: of those that are there at the first poll, the ones after a time, in
    /// milliseconds since 1970; of later ones all.
    pub fn new(folder: F, after_ms: i64) -> Self {
        Self {
            folder,
            after_ms: Some(after_ms),
            reader: SampleReader::new(LIMITS),
            repetitions: Repetitions::new(MAX_REMEMBERED),
            archive: None,
            passed: BTreeMap::new(),
            interim: None,
            document: Vec::new(),
            server: None,
            counts: FollowedSamples::default(),
            large: &LARGE,
        }
    }

    /// What the server is, by the metadata of the newest file; `None` before the first one was read.
    pub fn server(&self) -> Option<&ServerDescription> {
        self.server.as_ref()
    }

    /// What was counted so far.
    pub fn counts(&self) -> FollowedSamples {
        self.counts
    }

    /// Gives out the samples that are new. Returns whether more are waiting.
    ///
    /// # Errors
    /// The folder or a file in it cannot be read, or [`io::ErrorKind::ResourceBusy`]: another thread has the memory that
    /// a chunk takes. Samples may have been given out before; calling again goes on.
    pub fn poll(&mut self, each: impl FnMut(&ServerSample)) -> io::Result<bool> {
        let polled = self.poll_files(each);
        // There may be many servers, and samples come every ten seconds.
        self.document = Vec::new();
        polled
    }

    /// The bytes of what was learned of the schemas of chunks.
    pub fn schema_bytes(&self) -> usize {
        self.reader.schema_bytes()
    }

    /// Forgets the schemas, which are learned again from the next chunks.
    pub fn forget_schemas(&mut self) {
        self.reader.forget_schemas();
    }

    fn poll_files(&mut self, mut each: impl FnMut(&ServerSample)) -> io::Result<bool> {
        // The server empties the interim file only after it has appended the chunk. So a chunk that is older than the
        // interim samples is in a file when these have been read.
        let mut files = self.folder.list()?;
        let interim = self.read_interim(&files)?;
        if interim.is_some() {
            files = self.folder.list()?;
        }
        if self.read_archives(&files, &mut each)? {
            self.interim = None;
            return Ok(true);
        }
        if let Some((file, data)) = interim {
            self.give_interim(file, &data, &mut each)?;
        }
        // What comes now is new, whatever its time: clocks are set back.
        self.after_ms = None;
        Ok(false)
    }

    /// The interim file, if it changed.
    fn read_interim(&mut self, files: &[DiagnosticFile]) -> io::Result<Option<(DiagnosticFile, Vec<u8>)>> {
        let Some(found) = files.iter().find(|file| file.name == INTERIM) else {
            return Ok(None);
        };
        if self.interim.as_ref().is_some_and(|known| known.file == *found) {
            return Ok(None);
        }
        let file = match FollowedFile::open(self.folder.thread(), || self.folder.open(INTERIM)) {
            Ok(file) => file,
            // The server has just removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some((found.clone(), read_all(&file)?)))
    }

    fn give_interim(
        &mut self,
        file: DiagnosticFile,
        data: &[u8],
        each: &mut impl FnMut(&ServerSample),
    ) -> io::Result<()> {
        let mut interim = Interim { file, first_ms: 0, samples: 0 };
        let length = data.first_chunk().map(|first| document_length(*first));
        let document = match length {
            Some(Ok(Some(length))) => data.get(..length),
            // It is empty, or was closed by an old server.
            None | Some(Ok(None)) => {
                self.interim = Some(interim);
                return Ok(());
            }
            Some(Err(_)) => None,
        };
        match document.map(parse) {
            Some(Ok(found)) => {
                if let DocumentContent::Chunk(data) = found.content {
                    // Of a chunk that goes on, the first samples are known.
                    let known = self.interim.as_ref().filter(|known| known.first_ms == found.time_ms);
                    let known = known.map_or(0, |known| known.samples);
                    interim.first_ms = found.time_ms;
                    interim.samples = self.give_chunk(data, known, each)?;
                }
            }
            _ => self.counts.damaged += 1,
        }
        self.interim = Some(interim);
        Ok(())
    }

    /// Reads what was appended to files. Returns whether more is waiting.
    fn read_archives(
        &mut self,
        files: &[DiagnosticFile],
        each: &mut impl FnMut(&ServerSample),
    ) -> io::Result<bool> {
        let archives: Vec<&DiagnosticFile> =
            files.iter().filter(|file| !file.name.starts_with(INTERIM)).collect();
        if let Some(archive) = &mut self.archive
            && let Some(found) = archives.iter().find(|file| file.name == archive.name)
            && (found.identity != archive.identity || found.size < archive.offset)
        {
            // Somebody replaced it.
            self.passed.remove(&archive.name);
            self.archive = None;
        }
        self.passed.retain(|name, _| archives.iter().any(|file| file.name == *name));
        if self.archive.is_none() {
            match self.after_ms {
                Some(after_ms) => self.open_first(&archives, after_ms)?,
                None => drop(self.open_next(&archives)?),
            }
        }
        for _ in 0..BUDGET {
            let Some(archive) = &mut self.archive else { return Ok(false) };
            if archive.read_next(&mut self.document, &mut self.counts)? {
                let document = std::mem::take(&mut self.document);
                // It was counted if it is too long.
                let given = if document.is_empty() { Ok(()) } else { self.give_document(&document, each) };
                if let (Err(_), Some(archive)) = (&given, &mut self.archive) {
                    // It comes again.
                    archive.offset -= document.len() as u64;
                }
                self.document = document;
                given?;
            } else if !self.open_next(&archives)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Opens the file to begin with, at the chunk that has the samples after the time asked for.
    fn open_first(&mut self, archives: &[&DiagnosticFile], after_ms: i64) -> io::Result<()> {
        // Names have the time at which files were begun, so their order is that of time.
        let after = name_of_time(after_ms);
        let Some(found) = archives.iter().rev().find(|file| file.name <= after).or(archives.first()) else {
            return Ok(());
        };
        for file in archives.iter().filter(|file| file.name < found.name) {
            let passed = PassedFile { identity: file.identity, known: file.size, size: file.size };
            self.passed.insert(file.name.clone(), passed);
        }
        let Some(mut archive) = self.open(found)? else { return Ok(()) };
        let mut begin = 0;
        for _ in 0..MAX_SCANNED {
            let offset = archive.offset;
            if !archive.read_next(&mut self.document, &mut FollowedSamples::default())? {
                break;
            }
            match parse(&self.document).map(|found| (found.time_ms, found.content)) {
                Ok((_, DocumentContent::Metadata(metadata))) => {
                    self.server = Some(self.reader.metadata(metadata));
                }
                Ok((time_ms, DocumentContent::Chunk(_))) if time_ms <= after_ms => begin = offset,
                Ok((_, DocumentContent::Chunk(_))) => break,
                _ => {}
            }
        }
        (archive.offset, archive.is_broken) = (begin, false);
        self.archive = Some(archive);
        Ok(())
    }

    /// Goes on with another file, if there is one with something new: the next one by its name, else the first.
    fn open_next(&mut self, archives: &[&DiagnosticFile]) -> io::Result<bool> {
        let current = self.archive.as_ref().map_or("", |archive| &archive.name);
        let has_more = |file: &&&DiagnosticFile| {
            let passed = self.passed.get(&file.name);
            let is_known = |passed: &PassedFile| passed.identity == file.identity && passed.size >= file.size;
            file.name != current && !passed.is_some_and(is_known)
        };
        let mut waiting = archives.iter().filter(has_more);
        let is_later = |file: &&&DiagnosticFile| *file.name > *current;
        let Some(next) = waiting.clone().find(is_later).or_else(|| waiting.next()) else { return Ok(false) };
        let Some(mut archive) = self.open(next)? else { return Ok(false) };
        if let Some(passed) = self.passed.get(&next.name).filter(|passed| passed.identity == next.identity) {
            let known = passed.known;
            self.skip(&mut archive, known)?;
        }
        self.pass(archives);
        self.archive = Some(archive);
        Ok(true)
    }

    /// Skips the documents that are known. How to read the others is in the first one.
    fn skip(&mut self, archive: &mut Archive, known: u64) -> io::Result<()> {
        for _ in 0..MAX_SCANNED {
            let offset = archive.offset;
            if !archive.read_next(&mut self.document, &mut FollowedSamples::default())? {
                break;
            }
            if archive.offset > known {
                archive.offset = offset;
                break;
            }
            if let Ok(DocumentContent::Metadata(metadata)) = parse(&self.document).map(|found| found.content)
            {
                self.server = Some(self.reader.metadata(metadata));
            }
        }
        Ok(())
    }

    /// Leaves the current file, as it was when the files were listed.
    fn pass(&mut self, archives: &[&DiagnosticFile]) {
        let Some(Archive { name, identity, offset, is_broken, .. }) = self.archive.take() else { return };
        let Some(left) = archives.iter().find(|file| file.name == name) else { return };
        // What follows what cannot be read cannot be read either, however long it gets.
        let size = if is_broken { u64::MAX } else { left.size };
        let passed = PassedFile { identity, known: offset, size };
        let before = self.passed.insert(name, passed);
        // It ends inside a document; each is counted once.
        let is_cut = !is_broken && left.size > offset;
        let was_cut = before.is_some_and(|before| before.identity == identity && before.size == size);
        self.counts.damaged += u64::from(is_cut && !was_cut);
    }

    /// Opens a file; `None` if it was removed meanwhile.
    fn open(&mut self, found: &DiagnosticFile) -> io::Result<Option<Archive>> {
        let file = match FollowedFile::open(self.folder.thread(), || self.folder.open(&found.name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let (name, identity) = (found.name.clone(), found.identity);
        Ok(Some(Archive { name, identity, file, offset: 0, is_broken: false }))
    }

    /// Gives out the samples of a document.
    fn give_document(&mut self, document: &[u8], each: &mut impl FnMut(&ServerSample)) -> io::Result<()> {
        match parse(document).map(|found| found.content) {
            Ok(DocumentContent::Metadata(metadata)) => {
                self.server = Some(self.reader.metadata(metadata));
            }
            Ok(DocumentContent::Chunk(data)) => {
                self.give_chunk(data, 0, each)?;
            }
            Ok(DocumentContent::Parameters | DocumentContent::Unknown) => {}
            Err(_) => self.counts.damaged += 1,
        }
        Ok(())
    }

    /// Gives out the samples of a chunk, except the first ones, which are known; returns how many it has. A damaged one
    /// is counted, and has none.
    fn give_chunk(
        &mut self,
        data: &[u8],
        known: usize,
        each: &mut impl FnMut(&ServerSample),
    ) -> io::Result<usize> {
        let Self { reader, repetitions, counts, after_ms, large, .. } = self;
        let in_use = || io::Error::new(io::ErrorKind::ResourceBusy, MemoryInUse);
        let taken = large.take(MEMORY_WAIT).ok_or_else(in_use)?;
        let read = reader.read_from(data, known, |sample| {
            let is_new = repetitions.is_new(sample.key());
            if !is_new {
                counts.repeated += 1;
            } else if after_ms.is_none_or(|after| sample.time_ms() > after) {
                counts.samples += 1;
                each(sample);
            }
        });
        counts.damaged += u64::from(read.is_err());
        reader.release();
        drop(taken);
        Ok(read.unwrap_or(0))
    }
}

/// The bytes of a file, as many as a document may have.
fn read_all(file: &FollowedFile) -> io::Result<Vec<u8>> {
    let mut data = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(MAX_DOCUMENT).min(MAX_DOCUMENT)];
    let mut length = 0;
    while length < data.len() {
        match file.read_at(&mut data[length..], length as u64) {
            // It became shorter.
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    data.truncate(length);
    Ok(data)
}

/// The name of a file that is begun at this time, in milliseconds since 1970.
fn name_of_time(time_ms: i64) -> String {
    let seconds = u64::try_from(time_ms / 1_000).unwrap_or(0);
    let text = Timestamp::from_unix(seconds, 0).to_string();
    // `2026-11-21T21:22:47.000000000Z` is `metrics.2026-11-21T21-22-47Z-00000` there; later ones of that second count.
    format!("metrics.{}Z-99999", text[..19].replace(':', "-"))
}

impl Archive {
    /// Reads the next document; false if it has not been written yet, or cannot be read. Of one that is too long, nothing
    /// is in `document`.
    fn read_next(&mut self, document: &mut Vec<u8>, counts: &mut FollowedSamples) -> io::Result<bool> {
        document.clear();
        let mut first = [0; 4];
        if self.is_broken || !self.fill(&mut first)? {
            return Ok(false);
        }
        let length = match document_length(first) {
            Ok(Some(length)) => length,
            // It ends here, or is not written yet.
            Ok(None) => return Ok(false),
            Err(DocumentError::Length | DocumentError::Form) => {
                self.is_broken = true;
                counts.damaged += 1;
                return Ok(false);
            }
        };
        // The length is not believed before the bytes are there.
        if self.file.metadata()?.len() < self.offset.saturating_add(length as u64) {
            return Ok(false);
        }
        if length > MAX_DOCUMENT {
            self.offset += length as u64;
            counts.damaged += 1;
            return Ok(true);
        }
        document.resize(length, 0);
        if !self.fill(document)? {
            return Ok(false);
        }
        self.offset += length as u64;
        Ok(true)
    }

    /// Fills a buffer from the next document on; false if there are fewer bytes.
    fn fill(&self, buffer: &mut [u8]) -> io::Result<bool> {
        match self.file.read_exact_at(buffer, self.offset) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}
