//! Reads the packets of a capture file, one after another.

use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use sonar_core::Packet;
use sonar_decode::capture_file::{CaptureParser, Error, Step};

use crate::input;
use crate::input::content::{self, FileContent};

/// Bytes read at once: few enough to be in the processor's cache still when they are decoded. A record longer
/// than this makes the buffer grow, up to the parser's own cap.
const BUFFER: usize = 256 << 10;

/// Takes the packets of a capture file.
pub trait PacketSink {
    /// Whether a bar shows how far the file has been read.
    const PROGRESS: bool = true;

    /// Takes the next packet; `Break` ends the reading.
    fn packet(&mut self, packet: &Packet<'_>) -> Result<ControlFlow<()>>;

    /// Takes a key log that the file brings with it, for the packets behind it.
    fn secrets(&mut self, _key_log: &[u8]) {}

    /// Called before each read of the input, which may wait long for a pipe.
    fn waiting(&mut self) -> Result<()> {
        Ok(())
    }
}

/// How the reading of a capture file ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CaptureEnd {
    /// At the end of the file, or because the sink said so; or `stop` was set while another program wrote a pipe,
    /// which need not have an end.
    Complete,
    /// `stop` was set before the end of the file; when, and how far the file was read.
    Stopped(String),
    /// The file is cut or damaged at its end, and how; all packets before were read.
    Damaged(String),
}

/// Reads the packets of `path` (`-` is standard input) into `sink`, until `stop` is set.
///
/// # Errors
/// When the file cannot be opened, holds something else, or when `sink` fails.
pub fn read<S: PacketSink>(path: &Path, stop: &Arc<AtomicBool>, sink: &mut S) -> Result<CaptureEnd> {
    let name = input::name(path);
    let opened =
        if S::PROGRESS { input::open(path, &name, stop) } else { input::open_without_bar(path, &name, stop) };
    let (mut input, progress) = match opened {
        Err(_) if stop.load(Ordering::Relaxed) => return Ok(CaptureEnd::Complete),
        opened => opened?,
    };
    let mut parser = CaptureParser::new();
    let mut buffer = vec![0; BUFFER];
    let (mut begin, mut end) = (0, 0);
    let mut any = false;
    loop {
        let step = match parser.next(&buffer[begin..end]) {
            // What came before the damage is good.
            Err(error) if any => {
                progress.finish_and_clear();
                return Ok(CaptureEnd::Damaged(error.to_string()));
            }
            Err(error) => {
                bail!(
                    "{name}: {}",
                    content::instead(&buffer[begin..end], &mut input, FileContent::Capture, &error)
                )
            }
            Ok(step) => step,
        };
        let need = match step {
            Step::Packet { packet, consumed } => {
                any = true;
                if sink.packet(&packet)?.is_break() {
                    progress.finish_and_clear();
                    return Ok(CaptureEnd::Complete);
                }
                begin += consumed;
                continue;
            }
            Step::Secrets { key_log, consumed } => {
                sink.secrets(key_log);
                begin += consumed;
                continue;
            }
            Step::Skip { consumed } => {
                begin += consumed;
                continue;
            }
            Step::Need { at_least } => at_least,
        };
        if stop.load(Ordering::Relaxed) {
            let end = match progress.length() {
                Some(_) => CaptureEnd::Stopped(input::stopped(&progress)),
                None => CaptureEnd::Complete,
            };
            progress.finish_and_clear();
            return Ok(end);
        }
        sink.waiting()?;
        buffer.copy_within(begin..end, 0);
        end -= begin;
        begin = 0;
        if buffer.len() < need {
            buffer.resize(need, 0);
        }
        let got = match input.read(&mut buffer[end..]) {
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) if stop.load(Ordering::Relaxed) => return Ok(CaptureEnd::Complete),
            // A compressed file that was cut, or is damaged further on: what came before is good.
            Err(error) => {
                progress.finish_and_clear();
                return Ok(CaptureEnd::Damaged(format!("cannot be read further: {error}")));
            }
        };
        if got == 0 {
            progress.finish_and_clear();
            return match parser.end(end - begin) {
                Ok(()) => Ok(CaptureEnd::Complete),
                Err(error @ Error::Truncated { .. }) => Ok(CaptureEnd::Damaged(error.to_string())),
                Err(error) => {
                    bail!(
                        "{name}: {}",
                        content::instead(&buffer[..end], &mut input, FileContent::Capture, &error)
                    )
                }
            };
        }
        end += got;
    }
}
