//! What the programs hand on, as `bpf/io.bpf.c` lays it out.

use sonar_core::Timestamp;
use sonar_core::files::{AccessKind, Usage};

/// A file as the kernel knows it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct FileKey {
    /// Inode.
    pub inode: u64,
    /// Device, in the kernel's own encoding.
    pub device: u64,
    /// Which of the files that this inode has been; 0 on file systems that do not number them.
    pub generation: u32,
}

impl FileKey {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let generation = u32::from_ne_bytes(*bytes.get(16..)?.first_chunk()?);
        Some(Self { inode: word(0)?, device: word(8)?, generation })
    }

    pub(super) fn bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.inode.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.device.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.generation.to_ne_bytes());
        bytes
    }
}

/// The folders above a file of a pseudo file system (`/proc`, `/sys` and their like), which may be closed before
/// its path can be looked up.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PseudoFolders<'a>(&'a [u8]);

impl<'a> PseudoFolders<'a> {
    /// Their names below the root of the file system, the topmost first. At most six, the nearest; a long name
    /// comes cut.
    pub fn names(self) -> impl Iterator<Item = &'a [u8]> {
        let folders = self.0.chunks_exact(PARENT_NAME);
        folders.rev().map(until_zero).filter(|name| !name.is_empty())
    }
}

/// What became of a process.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ProcessChange {
    /// It started under the name that was asked for, and is followed.
    Started,
    /// It exited, or runs another program now; it is no longer followed.
    Ended,
    /// It started, and the kernel's table of processes has no room for it.
    Refused,
}

/// What the kernel hands on.
#[derive(Copy, Clone, Debug)]
pub enum Event<'a> {
    /// A file that was not seen before.
    File {
        /// Its number, by which accesses name it until [`Tracer::release`](super::Tracer::release) gives it
        /// back: later another file has it.
        file: u32,
        /// Which.
        key: FileKey,
        /// Process that uses it.
        process: u32,
        /// By which number it has it open; -1 where that is not known.
        fd: i32,
        /// Last part of its path.
        name: &'a [u8],
        /// The folders above it, where it is of a pseudo file system.
        pseudo: Option<PseudoFolders<'a>>,
    },
    /// A process started or ended.
    Process {
        /// Which.
        process: u32,
        /// What became of it.
        change: ProcessChange,
    },
    /// A thread that was not seen before, or may have another name since.
    Thread {
        /// Which.
        thread: u32,
        /// Its process.
        process: u32,
        /// What it is called.
        name: &'a [u8],
    },
    /// An access that has ended.
    Access {
        /// Which file.
        file: u32,
        /// What was done.
        kind: AccessKind,
        /// When it began.
        start: Timestamp,
        /// How long it took, in nanoseconds.
        latency_ns: u64,
        /// Where in the file, in bytes.
        offset: u64,
        /// Bytes asked for.
        asked: u64,
        /// Bytes that came of it, or the negated error number.
        result: i64,
        /// Bytes that the thread caused to be fetched from the device meanwhile.
        device_bytes: Option<u64>,
        /// Thread.
        thread: u32,
    },
}

/// Length of `struct usage` of `bpf/io.bpf.c`.
pub(super) const USAGE_BYTES: usize = 1_424;

/// `struct usage` of `bpf/io.bpf.c`.
pub(super) fn usage(bytes: &[u8]) -> Option<Usage> {
    let (counters, rest) = bytes.split_first_chunk::<{ 18 * 8 }>()?;
    let mut words = counters.chunks_exact(8).filter_map(|word| word.first_chunk());
    let mut next = || words.next().map(|word| u64::from_ne_bytes(*word));
    let (reads, read_bytes, read_ns) = (next()?, next()?, next()?);
    let (contiguous, near, ahead, back) = (next()?, next()?, next()?, next()?);
    let (fetches, device_bytes, unknown, unknown_bytes) = (next()?, next()?, next()?, next()?);
    // A read that is added while this is copied may be in one figure and not yet in another.
    let known = reads.saturating_sub(unknown);
    let mut usage = Usage {
        reads,
        read_bytes,
        read_ns,
        known,
        cached: known.saturating_sub(fetches),
        known_bytes: read_bytes.saturating_sub(unknown_bytes),
        device_bytes,
        contiguous,
        near,
        jumps: ahead.saturating_add(back),
        back,
        faults: next()?,
        errors: next()?,
        writes: next()?,
        write_bytes: next()?,
        write_ns: next()?,
        syncs: next()?,
        sync_ns: next()?,
        ..Usage::default()
    };
    let mut rest = rest;
    for count in &mut usage.latency {
        let (word, after) = rest.split_first_chunk()?;
        *count = u32::from_ne_bytes(*word);
        rest = after;
    }
    usage.places = *rest.first_chunk()?;
    Some(usage)
}

/// Lengths of names in `struct file_record`.
const NAME: usize = 96;
const PARENT_NAME: usize = 32;
const PARENTS: usize = 6;

fn until_zero(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or(field)
}

/// The records of `bpf/io.bpf.c`.
pub(super) fn parse(bytes: &[u8], clock_offset_ns: u64) -> Option<Event<'_>> {
    let u32_at = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let u64_at = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let name = |at: usize, length: usize| bytes.get(at..at + length).map(until_zero);
    match u32_at(0)? {
        0 => Some(Event::Access {
            kind: AccessKind::from_code(u8::try_from(u32_at(4)?).ok()?)?,
            file: u32_at(8)?,
            thread: u32_at(12)?,
            start: Timestamp::from_unix_ns(u64_at(16)?.wrapping_add(clock_offset_ns)),
            latency_ns: u64_at(24)?,
            offset: u64_at(32)?,
            asked: u64_at(40)?,
            result: u64_at(48)? as i64,
            device_bytes: u64_at(56).map(|bytes| (bytes != u64::MAX).then_some(bytes))?,
        }),
        1 => Some(Event::File {
            fd: u32_at(4)? as i32,
            key: FileKey::parse(bytes.get(8..32)?)?,
            file: u32_at(32)?,
            process: u32_at(36)?,
            name: name(40, NAME)?,
            pseudo: {
                let folders = bytes.get(144..144 + PARENTS * PARENT_NAME)?;
                (u64_at(136)? != 0).then_some(PseudoFolders(folders))
            },
        }),
        3 => Some(Event::Process {
            process: u32_at(4)?,
            change: match (u32_at(8)?, u32_at(12)?) {
                (0, _) => ProcessChange::Started,
                (1, _) => ProcessChange::Ended,
                (2, _) => ProcessChange::Refused,
                _ => return None,
            },
        }),
        2 => Some(Event::Thread { thread: u32_at(4)?, process: u32_at(8)?, name: name(16, 16)? }),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    /// Lengths as `bpf/io.bpf.c` asserts them; shorter ones are no records.
    #[test]
    fn records_are_as_long_as_the_programs_make_them() {
        let record = |kind: u8, length: usize| {
            let mut bytes = vec![0; length];
            bytes[0] = kind;
            bytes
        };
        for (kind, length) in [(0, 64), (1, 336), (2, 32), (3, 16)] {
            assert!(parse(&record(kind, length), 0).is_some(), "{kind}");
            assert!(parse(&record(kind, length - 1), 0).is_none(), "{kind}");
        }
        assert!(parse(&record(4, 336), 0).is_none());
        assert!(usage(&[0; 1424]).is_some());
        assert!(usage(&[0; 1423]).is_none());
    }

    #[test]
    fn an_access_is_read_field_by_field() {
        let mut bytes = Vec::new();
        for word in [0u32, 4, 7, 99] {
            bytes.extend(word.to_ne_bytes());
        }
        for word in [1_000u64, 50, 4_096, 8_192, -5i64 as u64, u64::MAX] {
            bytes.extend(word.to_ne_bytes());
        }
        let Some(Event::Access {
            file,
            kind,
            start,
            latency_ns,
            offset,
            asked,
            result,
            device_bytes,
            thread,
        }) = parse(&bytes, 5)
        else {
            panic!("no access")
        };
        assert_eq!((file, kind, thread), (7, AccessKind::Fault, 99));
        assert_eq!((start.unix_ns(), latency_ns, offset, asked), (1_005, 50, 4_096, 8_192));
        assert_eq!((result, device_bytes), (-5, None));
    }

    /// What is not counted by the kernel's side follows from what is.
    #[test]
    fn figures_that_follow() {
        let mut bytes = vec![0; 1424];
        for (at, value) in [10u64, 1_000, 5, 1, 2, 3, 4, 6, 700, 1, 50].into_iter().enumerate() {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&value.to_ne_bytes());
        }
        let usage = usage(&bytes).unwrap();
        assert_eq!((usage.reads, usage.known, usage.cached), (10, 9, 3));
        assert_eq!((usage.known_bytes, usage.device_bytes), (950, 700));
        assert_eq!((usage.contiguous, usage.near, usage.jumps, usage.back), (1, 2, 7, 4));
    }

    #[test]
    fn folders_of_a_pseudo_file_system_come_topmost_first() {
        let mut bytes = vec![0; 336];
        bytes[0] = 1;
        bytes[40..47].copy_from_slice(b"netstat");
        bytes[144..147].copy_from_slice(b"net");
        bytes[176..180].copy_from_slice(b"4711");
        let folders = |bytes: &[u8]| match parse(bytes, 0) {
            Some(Event::File { name, pseudo, .. }) => {
                assert_eq!(name, b"netstat");
                pseudo.map(|pseudo| pseudo.names().map(<[u8]>::to_vec).collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(folders(&bytes), None, "of a file system on a device");
        bytes[136..144].copy_from_slice(&0x9fa0u64.to_ne_bytes());
        assert_eq!(folders(&bytes), Some(vec![b"4711".to_vec(), b"net".to_vec()]));
    }

    #[test]
    fn a_key_survives_the_way_to_the_kernel_and_back() {
        let key = FileKey { inode: 7, device: 8 << 20 | 1, generation: 0xdead_beef };
        assert_eq!(FileKey::parse(&key.bytes()), Some(key));
    }
}
