//! What the programs in the kernel report.

use std::mem::offset_of;

use sonar_core::Timestamp;
use sonar_core::files::{AccessKind, FileUsage};

use crate::clock_offsets::ClockOffsets;
use crate::skeletons::io::types;
use crate::sys_bpf;

/// A file as the kernel identifies it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct FileKey {
    /// Inode.
    pub inode: u64,
    /// Device, in the kernel's own encoding.
    pub device: u64,
    /// Distinguishes the files that have had this inode; 0 on file systems that do not number them.
    pub generation: u32,
}

impl FileKey {
    /// Major and minor number of the device.
    pub fn device_number(self) -> (u32, u32) {
        // The kernel keeps 20 bits of minor number.
        ((self.device >> 20) as u32, (self.device & 0xf_ffff) as u32)
    }

    /// A device as `stat` gives it, in the kernel's encoding.
    pub fn device_of_stat(dev: u64) -> u64 {
        u64::from(rustix::fs::major(dev)) << 20 | u64::from(rustix::fs::minor(dev))
    }
}

impl From<&types::file_key> for FileKey {
    fn from(key: &types::file_key) -> Self {
        Self { inode: key.inode, device: key.device, generation: key.generation }
    }
}

impl From<FileKey> for types::file_key {
    fn from(key: FileKey) -> Self {
        Self { inode: key.inode, device: key.device, generation: key.generation, unused: 0 }
    }
}

/// The folders above a file of a pseudo file system (`/proc`, `/sys` and their like), which may be closed before its
/// path is looked up.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PseudoFolders<'a>(&'a [u8]);

impl<'a> PseudoFolders<'a> {
    /// Their names below the root of the file system, the topmost first. At most the six nearest ones; long names are
    /// cut.
    pub fn names(self) -> impl Iterator<Item = &'a [u8]> {
        let folders = self.0.chunks_exact(PARENT_NAME);
        folders.rev().map(until_zero).filter(|name| !name.is_empty())
    }
}

/// What happened to a process.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ProcessChange {
    /// It started with the requested name, and is followed.
    Started,
    /// It exited, or runs another program now; it is no longer followed.
    Ended,
    /// It started, but the kernel's table of processes has no room for it.
    Refused,
}

/// A file that the kernel has seen for the first time.
#[derive(Copy, Clone, Debug)]
pub struct FirstSeenFile<'a> {
    /// Its number, which its accesses use until [`Tracer::release`](super::Tracer::release) frees it: later
    /// another file has it.
    pub file: u32,
    /// Which.
    pub key: FileKey,
    /// Process that uses it.
    pub process: u32,
    /// The descriptor by which that process has it open; -1 if unknown.
    pub fd: i32,
    /// Last part of its path.
    pub name: &'a [u8],
    /// The folders above it, on a pseudo file system.
    pub pseudo: Option<PseudoFolders<'a>>,
}

/// What the kernel reports.
#[derive(Copy, Clone, Debug)]
pub enum KernelEvent<'a> {
    /// A new file.
    File(FirstSeenFile<'a>),
    /// A process started or ended.
    Process {
        /// Which.
        process: u32,
        /// What happened to it.
        change: ProcessChange,
    },
    /// A thread that is new, or may have a new name.
    Thread {
        /// Which.
        thread: u32,
        /// Its process.
        process: u32,
        /// Its name.
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
        /// Bytes transferred, or the negated error number.
        result: i64,
        /// Bytes that the thread caused to be read from the device meanwhile.
        device_bytes: Option<u64>,
        /// Thread.
        thread: u32,
    },
}

/// The figures of a file.
pub(super) fn usage(bytes: &[u8]) -> Option<FileUsage> {
    let sums: types::usage = sys_bpf::read(bytes)?;
    // A read that is added during the copy may be in one figure and not yet in another.
    let known = sums.reads.saturating_sub(sums.unknown);
    Some(FileUsage {
        reads: sums.reads,
        read_bytes: sums.read_bytes,
        read_ns: sums.read_ns,
        known,
        cached: known.saturating_sub(sums.fetches),
        known_bytes: sums.read_bytes.saturating_sub(sums.unknown_bytes),
        device_bytes: sums.device_bytes,
        contiguous: sums.contiguous,
        near: sums.near,
        jumps: sums.ahead.saturating_add(sums.back),
        back: sums.back,
        faults: sums.faults,
        errors: sums.errors,
        writes: sums.writes,
        write_bytes: sums.write_bytes,
        write_ns: sums.write_ns,
        syncs: sums.syncs,
        sync_ns: sums.sync_ns,
        latency: sums.latency,
        places: sums.places,
    })
}

/// Length of a folder's name in `struct file_record`.
const PARENT_NAME: usize = 32;

fn until_zero(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or(field)
}

/// The text in a field of a record, up to a zero.
macro_rules! text {
    ($bytes:expr, $record:ty, $field:ident, $length:expr) => {
        until_zero($bytes.get(offset_of!($record, $field)..)?.get(..$length)?)
    };
}

/// A record of the ring.
pub(super) fn parse<'a>(bytes: &'a [u8], clock: &ClockOffsets) -> Option<KernelEvent<'a>> {
    match u32::from_ne_bytes(*bytes.first_chunk()?) {
        0 => {
            let access: types::access_record = sys_bpf::read(bytes)?;
            Some(KernelEvent::Access {
                kind: AccessKind::from_code(u8::try_from(access.kind).ok()?)?,
                file: access.file,
                thread: access.thread,
                start: clock.time(access.ns),
                latency_ns: access.latency_ns,
                offset: access.offset,
                asked: access.asked,
                result: access.result,
                device_bytes: (access.device_bytes != u64::MAX).then_some(access.device_bytes),
            })
        }
        1 => {
            let file: types::file_record = sys_bpf::read(bytes)?;
            let folders = bytes.get(offset_of!(types::file_record, parents)..size_of_val(&file))?;
            Some(KernelEvent::File(FirstSeenFile {
                fd: file.fd,
                key: FileKey::from(&file.key),
                file: file.file,
                process: file.process,
                name: text!(bytes, types::file_record, name, file.name.len()),
                pseudo: (file.magic != 0).then_some(PseudoFolders(folders)),
            }))
        }
        2 => {
            let thread: types::thread_record = sys_bpf::read(bytes)?;
            let name = text!(bytes, types::thread_record, name, thread.name.len());
            Some(KernelEvent::Thread { thread: thread.thread, process: thread.process, name })
        }
        3 => {
            let process: types::process_record = sys_bpf::read(bytes)?;
            let change = match process.what {
                0 => ProcessChange::Started,
                1 => ProcessChange::Ended,
                2 => ProcessChange::Refused,
                _ => return None,
            };
            Some(KernelEvent::Process { process: process.process, change })
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use crate::sys_bpf::bytes_of;

    #[test]
    fn a_record_that_is_cut_is_refused() {
        let clock = ClockOffsets::new(0);
        let file = types::file_record { record: 1, ..types::file_record::default() };
        for record in [
            bytes_of(&types::access_record::default()),
            bytes_of(&file),
            bytes_of(&types::thread_record { record: 2, ..types::thread_record::default() }),
            bytes_of(&types::process_record { record: 3, ..types::process_record::default() }),
        ] {
            assert!(parse(record, &clock).is_some(), "{record:?}");
            assert!(parse(&record[..record.len() - 1], &clock).is_none(), "{record:?}");
        }
        assert!(parse(bytes_of(&types::file_record { record: 4, ..file }), &clock).is_none());
        assert!(usage(&bytes_of(&types::usage::default())[1..]).is_none());
    }

    #[test]
    fn an_access_is_read_field_by_field() {
        let record = types::access_record {
            record: 0,
            kind: 4,
            file: 7,
            thread: 99,
            ns: 1_000,
            latency_ns: 50,
            offset: 4_096,
            asked: 8_192,
            result: -5,
            device_bytes: u64::MAX,
        };
        let Some(KernelEvent::Access {
            file,
            kind,
            start,
            latency_ns,
            offset,
            asked,
            result,
            device_bytes,
            thread,
        }) = parse(bytes_of(&record), &ClockOffsets::new(5))
        else {
            panic!("no access")
        };
        assert_eq!((file, kind, thread), (7, AccessKind::Fault, 99));
        assert_eq!((start.unix_ns(), latency_ns, offset, asked), (1_005, 50, 4_096, 8_192));
        assert_eq!((result, device_bytes), (-5, None));
    }

    #[test]
    fn an_access_after_the_clock_was_set_has_the_new_time() {
        const HOUR: u64 = 3_600_000_000_000;
        let mut clock = ClockOffsets::new(10 * HOUR);
        clock.note(2_000, 11 * HOUR);
        let start = |ns| match parse(bytes_of(&types::access_record { ns, ..Default::default() }), &clock) {
            Some(KernelEvent::Access { start, .. }) => start.unix_ns() - ns,
            other => panic!("{other:?}"),
        };
        assert_eq!([1_999, 2_000].map(start), [10 * HOUR, 11 * HOUR]);
    }

    #[test]
    fn other_figures_follow_from_those_that_the_kernel_counts() {
        let sums = types::usage {
            reads: 10,
            read_bytes: 1_000,
            contiguous: 1,
            near: 2,
            ahead: 3,
            back: 4,
            fetches: 6,
            device_bytes: 700,
            unknown: 1,
            unknown_bytes: 50,
            ..types::usage::default()
        };
        let usage = usage(bytes_of(&sums)).unwrap();
        assert_eq!((usage.reads, usage.known, usage.cached), (10, 9, 3));
        assert_eq!((usage.known_bytes, usage.device_bytes), (950, 700));
        assert_eq!((usage.contiguous, usage.near, usage.jumps, usage.back), (1, 2, 7, 4));
    }

    #[test]
    fn folders_of_a_pseudo_file_system_come_topmost_first() {
        let mut record = types::file_record { record: 1, ..types::file_record::default() };
        record.name[..7].copy_from_slice(b"netstat");
        record.parents[0][..3].copy_from_slice(b"net");
        record.parents[1][..4].copy_from_slice(b"4711");
        let folders = |record: &types::file_record| match parse(bytes_of(record), &ClockOffsets::new(0)) {
            Some(KernelEvent::File(FirstSeenFile { name, pseudo, .. })) => {
                assert_eq!(name, b"netstat");
                pseudo.map(|pseudo| pseudo.names().map(<[u8]>::to_vec).collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(folders(&record), None, "of a file system on a device");
        record.magic = 0x9fa0;
        assert_eq!(folders(&record), Some(vec![b"4711".to_vec(), b"net".to_vec()]));
    }

    #[test]
    fn devices_are_numbered_as_in_the_kernel() {
        // 8:1, and both numbers longer than a byte: gnu_dev_makedev(3).
        assert_eq!(FileKey::device_of_stat(0x801), 8 << 20 | 1);
        let device = FileKey::device_of_stat(0x12300 << 12 | 0xabc << 8 | 0x45);
        assert_eq!(device, 0xabc << 20 | 0x12345);
        assert_eq!(FileKey { inode: 1, device, generation: 0 }.device_number(), (0xabc, 0x12345));
    }

    #[test]
    fn a_key_survives_the_round_trip_to_the_kernel() {
        let key = FileKey { inode: 7, device: 8 << 20 | 1, generation: 0xdead_beef };
        assert_eq!(FileKey::from(&types::file_key::from(key)), key);
    }
}
