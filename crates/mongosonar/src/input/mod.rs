//! Opens files, pipes and standard input, compressed or not.

pub mod colours;
pub mod content;
pub mod documents;
pub mod follow;
pub mod foreign;
pub mod journal_export;
pub mod log_container;
pub mod made_lines;
pub mod table_lines;
pub mod tar;
pub mod utf16;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use sonar_sys::host::regular;
use sonar_view::kit::Count;

use crate::args::when::now;
use crate::exit::{Interrupted, usage};
use crate::input::colours::{PlainReader, has_colours};
use crate::input::utf16::{ByteOrder, Utf8Reader};
use crate::locking::lock;
use crate::{exit, progress};

/// The name of an input for people.
pub fn name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

/// The output of another program, like `tcpdump -w -`: it may take long, so a thread waits for it, and we wait for that
/// thread or for a signal.
struct Pipe {
    from: Receiver<io::Result<Vec<u8>>>,
    chunk: io::Cursor<Vec<u8>>,
    stop: Arc<AtomicBool>,
}

impl Pipe {
    /// Bytes read at once.
    const CHUNK: usize = 64 * 1024;
    /// Chunks that wait to be decoded.
    const WAITING: usize = 16;
    /// How long it may take to notice a signal.
    const NAP: Duration = Duration::from_millis(100);

    fn new(mut input: impl Read + Send + 'static, stop: Arc<AtomicBool>) -> io::Result<Self> {
        let (to, from) = sync_channel(Self::WAITING);
        std::thread::Builder::new().name("read".to_owned()).spawn(move || {
            loop {
                let mut chunk = vec![0; Self::CHUNK];
                let got = match input.read(&mut chunk) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    got => got,
                };
                let over = !matches!(got, Ok(1..));
                let chunk = got.map(|got| {
                    chunk.truncate(got);
                    chunk
                });
                if to.send(chunk).is_err() || over {
                    return;
                }
            }
        })?;
        Ok(Self { from, chunk: io::Cursor::default(), stop })
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let got = self.chunk.read(buffer)?;
            if got > 0 {
                return Ok(got);
            }
            match self.from.recv_timeout(Self::NAP) {
                Ok(chunk) => {
                    self.chunk = io::Cursor::new(chunk?);
                    if self.chunk.get_ref().is_empty() {
                        return Ok(0);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
                Err(RecvTimeoutError::Timeout) if self.stop.load(Ordering::Relaxed) => {
                    return Err(io::Error::other(Interrupted(by_what())));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// Refuses a file that is named more than once, under whatever name: everything in it would count twice.
///
/// # Errors
/// A file is named more than once.
pub fn refuse_repeated(files: &[PathBuf]) -> Result<()> {
    let mut seen = BTreeMap::new();
    for path in files {
        let stands_for = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
        // What cannot be read says so when it is opened.
        let Ok(metadata) = std::fs::metadata(stands_for) else { continue };
        if let Some(other) = seen.insert((metadata.dev(), metadata.ino()), path) {
            let (one, other) = (name(other), name(path));
            let names = match one == other {
                true => format!("{one} is named twice"),
                false => format!("{one} and {other} are the same file"),
            };
            return Err(usage!("{names}: everything in it would count twice"));
        }
    }
    Ok(())
}

fn by_what() -> String {
    format!("stopped by {}", exit::stopped().map_or("a signal", |(name, _)| name))
}

/// Why a file was not read to its end when the command was stopped: what stopped it, and how far the file was read.
pub fn stopped(progress: &ProgressBar) -> String {
    let bytes = |count: u64| {
        let count = Count(count as f64).to_string();
        let (number, prefix) = count.split_at(count.trim_end_matches(char::is_alphabetic).len());
        format!("{number} {prefix}B")
    };
    let read = progress.position();
    match progress.length() {
        Some(size @ 1..) => {
            let percent = read.saturating_mul(100) / size;
            format!("{} after {} of {} ({percent} %)", by_what(), bytes(read), bytes(size))
        }
        _ => format!("{} after {}", by_what(), bytes(read)),
    }
}

/// Copies of pipes, by the path that names the pipe.
static COPIES: Mutex<BTreeMap<PathBuf, Arc<File>>> = Mutex::new(BTreeMap::new());

/// Files for copies of pipes that are still to be made.
static FILES_FOR_COPIES: Mutex<Vec<io::Result<File>>> = Mutex::new(Vec::new());

/// Makes the files into which [`make_rereadable`] copies the pipes among these paths, while the command still may.
pub fn prepare_copies<'a>(paths: impl IntoIterator<Item = &'a Path>) {
    let pipes = paths.into_iter().filter(|path| is_pipe(path));
    let files = pipes.map(|_| unnamed_file(&std::env::temp_dir()));
    lock(&FILES_FOR_COPIES).extend(files);
}

/// Whether there is something to read that can be read only once.
fn is_pipe(path: &Path) -> bool {
    path == Path::new("-") || path.exists() && !is_rereadable(path) && !path.is_dir()
}

/// Reads a copy of a pipe from its beginning.
struct Copy {
    file: Arc<File>,
    position: u64,
}

impl Read for Copy {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read_at(buffer, self.position)?;
        self.position += got as u64;
        Ok(got)
    }
}

/// The copy of a pipe, if [`make_rereadable`] made one.
fn copy_of(path: &Path) -> Option<Copy> {
    let copies = lock(&COPIES);
    copies.get(path).map(|file| Copy { file: file.clone(), position: 0 })
}

/// Whether [`open`] reads it from its beginning each time.
pub fn is_rereadable(path: &Path) -> bool {
    copy_of(path).is_some() || path != Path::new("-") && path.is_file()
}

/// Lets a command [`open`] each input as often as it needs: a pipe can be read only once, so it copies the pipe to an
/// unnamed temporary file first.
///
/// # Errors
/// The pipe cannot be read, or there is no room for the copy.
pub fn make_rereadable(path: &Path, stop: &Arc<AtomicBool>) -> Result<()> {
    if is_rereadable(path) || path.is_dir() {
        return Ok(());
    }
    let name = name(path);
    let mut pipe = open_raw(path, &name, stop)?.0;
    let folder = std::env::temp_dir();
    let cannot = || format!("cannot copy {name} to a temporary file in {}", folder.display());
    let prepared = lock(&FILES_FOR_COPIES).pop();
    let mut file = prepared.unwrap_or_else(|| unnamed_file(&folder)).with_context(cannot)?;
    io::copy(&mut pipe, &mut file).with_context(cannot)?;
    lock(&COPIES).insert(path.to_owned(), Arc::new(file));
    Ok(())
}

/// A saved result of a command, of `most` bytes at most; - is standard input.
///
/// # Errors
/// It cannot be read, or is longer.
pub fn result_of(command: &str, path: &Path, most: u64) -> Result<Vec<u8>> {
    let name = name(path);
    let mut bytes = Vec::new();
    let read = if path.as_os_str() == "-" {
        io::stdin().take(most + 1).read_to_end(&mut bytes)
    } else {
        regular::open_no_device(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes))
    };
    read.with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > most {
        bail!("{name}: longer than {} MiB, which no result of {command} is", most >> 20);
    }
    Ok(bytes)
}

/// A file in `folder` that has no name any more, and so is gone with the process.
fn unnamed_file(folder: &Path) -> io::Result<File> {
    let nanos = now().unix_ns();
    // Whoever guesses the name only keeps it from being created.
    let path = folder.join(format!("mongosonar-{}-{}.tmp", std::process::id(), nanos));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Opens a file or standard input, still compressed. Gives its size too, 0 for a pipe.
fn open_raw(path: &Path, name: &str, stop: &Arc<AtomicBool>) -> Result<(Box<dyn Read>, u64)> {
    if let Some(copy) = copy_of(path) {
        let size = copy.file.metadata().map_or(0, |metadata| metadata.len());
        return Ok((Box::new(copy), size));
    }
    if path == Path::new("-") {
        return Ok((Box::new(Pipe::new(io::stdin(), stop.clone())?), 0));
    }
    let file = regular::open_no_device(path).with_context(|| format!("cannot open {name}"))?;
    let metadata = file.metadata().with_context(|| format!("cannot read {name}"))?;
    if metadata.is_dir() {
        bail!("{name}: {}", foreign::folder(path));
    }
    Ok(if metadata.is_file() {
        (Box::new(file), metadata.len())
    } else {
        (Box::new(Pipe::new(file, stop.clone())?), 0)
    })
}

/// Opens a file or standard input, and decompresses gzip and zstd. The bar shows how far a file has been read.
pub fn open(path: &Path, name: &str, stop: &Arc<AtomicBool>) -> Result<(Box<dyn Read>, ProgressBar)> {
    let bar = |size| progress::bar(size, "reading {percent:>3} %  {decimal_bytes_per_sec}");
    open_with(path, name, stop, bar)
}

/// As [`open`], without a bar: it would spoil a live view.
pub fn open_without_bar(
    path: &Path,
    name: &str,
    stop: &Arc<AtomicBool>,
) -> Result<(Box<dyn Read>, ProgressBar)> {
    open_with(path, name, stop, |_| ProgressBar::hidden())
}

fn open_with(
    path: &Path,
    name: &str,
    stop: &Arc<AtomicBool>,
    bar: impl FnOnce(u64) -> ProgressBar,
) -> Result<(Box<dyn Read>, ProgressBar)> {
    let (inner, size) = open_raw(path, name, stop)?;
    let progress = match size {
        0 => ProgressBar::hidden(),
        size => bar(size),
    };
    let input = decompressed(progress.wrap_read(inner)).with_context(|| format!("cannot read {name}"))?;
    Ok((input, progress))
}

/// A reader that fails once, with an error from an earlier read.
pub struct Failing(Option<io::Error>);

impl Failing {
    /// Fails with `error`, then ends.
    pub fn new(error: io::Error) -> Self {
        Self(Some(error))
    }
}

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// The most layers of compression.
const MAX_LAYERS: usize = 4;

/// The content of what may be compressed (gzip, zstd), as plain text in UTF-8: a text may be in UTF-16, or have colours.
///
/// # Errors
/// Its first bytes cannot be read.
pub fn decompressed(input: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let mut content: Box<dyn Read> = Box::new(input);
    for layer in 0..MAX_LAYERS {
        let mut head = Vec::new();
        match content.by_ref().take(4).read_to_end(&mut head) {
            Ok(_) => {}
            Err(error) if layer == 0 => return Err(error),
            // The reader of the content gets the error.
            Err(error) => return Ok(Box::new(io::Cursor::new(head).chain(Failing::new(error)))),
        }
        let whole = io::Cursor::new(head.clone()).chain(content);
        content = match head.as_slice() {
            [0x1f, 0x8b, ..] => {
                Box::new(flate2::read::MultiGzDecoder::new(io::BufReader::with_capacity(256 * 1024, whole)))
            }
            [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::Decoder::new(whole)?),
            head if let Some(order) = ByteOrder::of(head) => Box::new(Utf8Reader::new(whole, order)),
            head if has_colours(head) => return Ok(Box::new(PlainReader::new(whole))),
            _ => return Ok(Box::new(whole)),
        };
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn only_what_can_be_read_once_is_copied() {
        let folder = tempfile::tempdir().unwrap();
        let (file, missing) = (folder.path().join("file"), folder.path().join("missing"));
        std::fs::write(&file, "").unwrap();
        let (reader, _writer) = io::pipe().unwrap();
        let pipe = PathBuf::from(format!("/proc/self/fd/{}", reader.as_raw_fd()));
        assert!(is_pipe(Path::new("-")) && is_pipe(&pipe));
        for path in [folder.path(), &file, &missing] {
            assert!(!is_pipe(path), "{}", path.display());
        }
    }
}
