//! Capture files: reads packets from pcap and pcapng, and writes pcapng.
//!
//! [`CaptureParser`] does no I/O: it takes the bytes that are there and returns what to do next. The caller reads,
//! decompresses gzip or zstd, and keeps a buffer; no packet needs more of it than [`MAX_BLOCK_LEN`].
//!
//! Formats: [pcap](https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-05.html) and
//! [pcapng](https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-03.html).
//!
//! Why not the crate pcap-parser: reading a recording through its buffer took 3.8 times as long per packet as this
//! module takes from memory (one run on a busy machine). It leaves most of this module to its caller: times,
//! interfaces, directions, limits, offsets of damage.

mod pcap;
mod pcapng;
mod step;
mod write;

pub use step::{Beginning, Error, MAX_BLOCK_LEN, MAX_INTERFACES, MAX_PACKET_LEN, Step};
pub use write::{InterfaceDescription, PacketCounts, PcapngWriter, SectionHeader};

/// Parses a capture file of either format. After an error it returns the same error again.
#[derive(Debug)]
pub struct CaptureParser {
    /// Where in the file the buffer begins, in bytes.
    offset: u64,
    format: CaptureFormat,
    failed: Option<Error>,
}

#[derive(Debug)]
enum CaptureFormat {
    /// The bytes so far, fewer than four.
    Unknown(Beginning),
    Pcap(pcap::PcapReader),
    Pcapng(pcapng::PcapngReader),
}

impl Default for CaptureParser {
    fn default() -> Self {
        Self::new()
    }
}

impl CaptureParser {
    /// A parser for a file from its first byte on.
    pub fn new() -> Self {
        Self { offset: 0, format: CaptureFormat::Unknown(Beginning::new(&[])), failed: None }
    }

    /// Looks at the beginning of `buf`, which must be where the last step's `consumed` bytes ended.
    ///
    /// # Errors
    /// When the file is of no known format or damaged.
    #[inline]
    pub fn next<'a>(&mut self, buf: &'a [u8]) -> Result<Step<'a>, Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let step = match &mut self.format {
            CaptureFormat::Pcap(reader) => reader.next(buf, self.offset),
            CaptureFormat::Pcapng(reader) => reader.next(buf, self.offset),
            CaptureFormat::Unknown(beginning) => {
                *beginning = Beginning::new(buf);
                match recognise(buf) {
                    Ok(Recognised::Section) => {
                        // A section header is a block like any other: nothing is consumed yet.
                        self.format = CaptureFormat::Pcapng(pcapng::PcapngReader::default());
                        return self.next(buf);
                    }
                    Ok(Recognised::Pcap(reader)) => {
                        self.format = CaptureFormat::Pcap(reader);
                        Ok(Step::Skip { consumed: pcap::FILE_HEADER_LEN })
                    }
                    Ok(Recognised::TooShort { at_least }) => Ok(Step::Need { at_least }),
                    Err(error) => Err(error),
                }
            }
        };
        match step {
            Ok(Step::Packet { consumed, .. } | Step::Secrets { consumed, .. } | Step::Skip { consumed }) => {
                self.offset += consumed as u64
            }
            Ok(Step::Need { .. }) => {}
            Err(error) => self.failed = Some(error),
        }
        step
    }

    /// Checks whether the file may end here, where [`next`](Self::next) needs more than the `rest` bytes that are
    /// left.
    ///
    /// # Errors
    /// [`Error::Truncated`], or [`Error::NotACapture`] for an empty file.
    pub fn end(&self, rest: usize) -> Result<(), Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let unfinished = match &self.format {
            CaptureFormat::Unknown(beginning) if !may_be_a_capture(beginning.bytes()) => {
                return Err(Error::NotACapture(*beginning));
            }
            CaptureFormat::Pcapng(reader) => reader.unfinished(),
            _ => None,
        };
        match unfinished {
            Some(offset) => Err(Error::Truncated { offset }),
            None if rest > 0 => Err(Error::Truncated { offset: self.offset }),
            None => Ok(()),
        }
    }

    /// Where in the file the buffer begins, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Packets that were dropped while capturing, if the file states it (pcapng interface statistics).
    pub fn dropped(&self) -> u64 {
        match &self.format {
            CaptureFormat::Pcapng(reader) => reader.dropped(),
            _ => 0,
        }
    }
}

enum Recognised {
    Section,
    Pcap(pcap::PcapReader),
    TooShort { at_least: usize },
}

/// Whether a file that is shorter than any magic may be the beginning of a capture file.
fn may_be_a_capture(beginning: &[u8]) -> bool {
    let mut magics = pcap::MAGICS.iter().chain([&pcapng::SECTION_HEADER]);
    !beginning.is_empty() && magics.any(|magic| magic.starts_with(beginning))
}

/// The format by the first bytes.
fn recognise(buf: &[u8]) -> Result<Recognised, Error> {
    let Some(magic) = buf.first_chunk::<4>() else { return Ok(Recognised::TooShort { at_least: 4 }) };
    if *magic == pcapng::SECTION_HEADER {
        return Ok(Recognised::Section);
    }
    if !pcap::MAGICS.contains(magic) {
        return Err(Error::NotACapture(Beginning::new(buf)));
    }
    match buf.first_chunk() {
        Some(header) => Ok(Recognised::Pcap(pcap::PcapReader::new(header)?)),
        None => Ok(Recognised::TooShort { at_least: pcap::FILE_HEADER_LEN }),
    }
}
