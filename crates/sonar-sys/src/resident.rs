//! What the memory of this process that is in RAM consists of.

use std::fs::File;
use std::io::{self, BufRead, BufReader};

use crate::Host;

/// What this process has in RAM, in bytes, by what is mapped there. All of it together is what the kernel shows as its
/// resident memory; pages that are mapped twice count twice in both.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ResidentMemory {
    /// The program and its libraries: code, constants, variables with a value.
    pub code: u64,
    /// Stacks of its threads.
    pub stacks: u64,
    /// All else that is its own: what the allocator has from the kernel.
    pub heap: u64,
    /// Rings of packets.
    pub packet_rings: u64,
    /// eBPF maps, of which each ring is mapped twice in a row.
    pub map_views: u64,
    /// Files that it shares with other processes, like the index of a database's log.
    pub shared_files: u64,
}

/// What a mapping is.
#[derive(Copy, Clone, PartialEq, Eq)]
enum MappingKind {
    Code,
    Stack,
    Heap,
    PacketRing,
    MapView,
    SharedFile,
}

/// One mapping, as the line that begins it says.
struct ResidentMapping {
    start: u64,
    end: u64,
    kind: MappingKind,
    /// Nobody may read or write it.
    is_guard: bool,
}

/// What glibc aligns further arenas of its allocator to: no stack begins there.
const ARENA: u64 = 64 << 20;
/// Stacks are larger; what is smaller and lies above a guard is a list of musl's allocator.
const LEAST_STACK: u64 = 64 << 10;

impl ResidentMemory {
    /// The present values, from `/proc/self/smaps`: the kernel walks over all pages for it, which takes about a
    /// millisecond for 100 MB.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn now() -> io::Result<Self> {
        Self::read(BufReader::new(File::open("/proc/self/smaps")?))
    }

    /// From the text of `smaps` (proc_pid_smaps(5)).
    fn read(mut text: impl BufRead) -> io::Result<Self> {
        let (mut memory, mut line) = (Self::default(), String::new());
        let mut before: Option<ResidentMapping> = None;
        while text.read_line(&mut line)? > 0 {
            if let Some(mapping) = ResidentMapping::parse(&line, before.as_ref()) {
                before = Some(mapping);
            } else if let (Some(rest), Some(mapping)) = (line.strip_prefix("Rss:"), &before) {
                *memory.of(mapping.kind) += kilobytes(rest);
            }
            line.clear();
        }
        Ok(memory)
    }

    fn of(&mut self, kind: MappingKind) -> &mut u64 {
        match kind {
            MappingKind::Code => &mut self.code,
            MappingKind::Stack => &mut self.stacks,
            MappingKind::Heap => &mut self.heap,
            MappingKind::PacketRing => &mut self.packet_rings,
            MappingKind::MapView => &mut self.map_views,
            MappingKind::SharedFile => &mut self.shared_files,
        }
    }
}

impl ResidentMapping {
    /// From its first line, like `7f1c…-7f1d… rw-p 00000000 00:00 0   [stack]`; `before` lies below it.
    fn parse(line: &str, before: Option<&Self>) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (address(start)?, address(end)?);
        let permissions = words.next()?;
        let is_guard = permissions.starts_with("---");
        let is_above_guard =
            before.is_some_and(|below| below.is_guard && below.end == start && !start.is_multiple_of(ARENA));
        let is_stack = is_above_guard && end.saturating_sub(start) >= LEAST_STACK;
        let kind = match words.nth(3) {
            Some("[stack]") => MappingKind::Stack,
            Some(path) if path.starts_with('/') && permissions.ends_with('s') => MappingKind::SharedFile,
            Some(path) if path.starts_with("socket:") => MappingKind::PacketRing,
            Some(path) if path.starts_with("anon_inode:") => MappingKind::MapView,
            Some(path) if path != "[heap]" && !path.starts_with("[anon") => MappingKind::Code,
            _ if is_stack => MappingKind::Stack,
            _ => MappingKind::Heap,
        };
        Some(Self { start, end, kind, is_guard }).filter(|mapping| mapping.start < mapping.end)
    }
}

/// What a process has in RAM, in bytes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Memory of its own.
    pub own: u64,
    /// Pages of files, most of them those of the program, which other processes share.
    pub files: u64,
}

impl ProcessMemory {
    /// Of this process; `None` if it has ended.
    pub fn of(host: &Host, pid: u32) -> Option<Self> {
        let text = host.text(&format!("proc/{pid}/status"))?;
        let of = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map_or(0, kilobytes)
        };
        Some(Self { own: of("RssAnon"), files: of("RssFile") + of("RssShmem") })
    }
}

/// Bytes of a number like `  12 kB`.
fn kilobytes(text: &str) -> u64 {
    text.split_whitespace()
        .next()
        .and_then(|number| number.parse().ok())
        .map_or(0, |kb: u64| kb.saturating_mul(1024))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::resource::ResourceUsage;

    /// Each mapping with the kilobytes in RAM; the addresses are those of a program with glibc.
    const SMAPS: &[(&str, u64)] = &[
        ("55d0c8800000-55d0cb400000 r-xp 00000000 fe:00 1 /usr/bin/mongosonar", 1),
        ("55d0cb400000-55d0cb500000 rw-p 00000000 fe:00 1 /usr/bin/mongosonar (deleted)", 2),
        ("55d0cc000000-55d0cc100000 rw-p 00000000 00:00 0 [heap]", 4),
        ("7f0000000000-7f0000200000 rw-p 00000000 00:00 0 ", 8),
        ("7f0000200000-7f0004000000 ---p 00000000 00:00 0 ", 0),
        ("7f0004000000-7f0004200000 rw-p 00000000 00:00 0 ", 16),
        ("7f0004200000-7f0005000000 ---p 00000000 00:00 0 ", 0),
        ("7f0005000000-7f0005200000 rw-p 00000000 00:00 0 ", 32),
        ("7f0006000000-7f0006001000 ---p 00000000 00:00 0 ", 0),
        ("7f0006001000-7f0006003000 rw-p 00000000 00:00 0 ", 64),
        ("7f0007000000-7f0009000000 rw-s 00000000 00:08 9 socket:[8197939]", 128),
        ("7f000a000000-7f000b000000 r--s 00000000 00:0f 9 anon_inode:bpf-map", 256),
        ("7f000c000000-7f000c008000 rw-s 00000000 fe:00 2 /var/lib/mongosonar/2026-11-21.db-shm", 512),
        ("7ffc00000000-7ffc00100000 rw-p 00000000 00:00 0 [stack]", 1_024),
        ("7ffc00200000-7ffc00202000 r-xp 00000000 00:00 0 [vdso]", 2_048),
        ("7ffc00300000-7ffc00302000 rw-p 00000000 00:00 0 [anon: buffers]", 4_096),
    ];

    #[test]
    fn each_mapping_is_counted_once_for_what_it_is() {
        let entry = |(head, rss): &(&str, u64)| format!("{head}\nSize: 9999 kB\nRss:  {rss} kB\nPss: 9 kB\n");
        let text: String = SMAPS.iter().map(entry).collect();
        let memory = ResidentMemory::read(text.as_bytes()).unwrap();
        let kb = |number: u64| number << 10;
        assert_eq!(
            memory,
            ResidentMemory {
                code: kb(1 + 2 + 2_048),
                stacks: kb(32 + 1_024),
                heap: kb(4 + 8 + 16 + 64 + 4_096),
                packet_rings: kb(128),
                map_views: kb(256),
                shared_files: kb(512),
            }
        );
        for text in
            ["", "Rss: 7 kB\n", "zz-1 rw-p\nRss: 5 kB\n", "2-1 rw-p 0 0 0\nRss: 5 kB\n", "1-2\nRss: x\n"]
        {
            assert_eq!(ResidentMemory::read(text.as_bytes()).unwrap(), ResidentMemory::default(), "{text}");
        }
    }

    #[test]
    fn what_this_process_has_is_there() {
        // Touched: it is in RAM.
        let block = std::hint::black_box(vec![7_u8; 32 << 20]);
        let memory = ResidentMemory::now().unwrap();
        assert!(
            memory.heap >= block.len() as u64 && memory.code > 1 << 20 && memory.stacks > 0,
            "{memory:?}"
        );
        let ResidentMemory { code, stacks, heap, packet_rings, map_views, shared_files } = memory;
        let sum = code + stacks + heap + packet_rings + map_views + shared_files;
        let all = ResourceUsage::now().unwrap().resident_bytes;
        assert!(sum.abs_diff(all) < all / 5, "{sum} of {all}: {memory:?}");
        let own = ProcessMemory::of(&Host::live(), std::process::id()).unwrap();
        assert!(own.own >= block.len() as u64 && own.files > 1 << 20, "{own:?}");
        assert_eq!(ProcessMemory::of(&Host::live(), u32::MAX), None);
    }
}
