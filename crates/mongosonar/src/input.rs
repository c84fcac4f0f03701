//! Opens files, pipes and standard input, compressed or not.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::ProgressBar;

use crate::progress;

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
                    return Err(io::Error::other("stopped"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
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
    let (inner, size): (Box<dyn Read>, u64) = if path == Path::new("-") {
        (Box::new(Pipe::new(io::stdin(), stop.clone())?), 0)
    } else {
        let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
        let metadata = file.metadata().with_context(|| format!("cannot read {name}"))?;
        if metadata.is_file() || metadata.is_dir() {
            (Box::new(file), metadata.len())
        } else {
            (Box::new(Pipe::new(file, stop.clone())?), 0)
        }
    };
    let progress = match size {
        0 => ProgressBar::hidden(),
        size => bar(size),
    };
    let mut input = progress.wrap_read(inner);
    let mut head = Vec::new();
    input.by_ref().take(4).read_to_end(&mut head).with_context(|| format!("cannot read {name}"))?;
    let whole = io::Cursor::new(head.clone()).chain(input);
    let input: Box<dyn Read> = match head.as_slice() {
        [0x1f, 0x8b, ..] => {
            Box::new(flate2::read::MultiGzDecoder::new(io::BufReader::with_capacity(256 * 1024, whole)))
        }
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::Decoder::new(whole)?),
        _ => Box::new(whole),
    };
    Ok((input, progress))
}
