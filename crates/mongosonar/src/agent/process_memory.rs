//! What the processes of the agent have in RAM beside what its holders count: each part is measured on its own, so that
//! what is not accounted for shows.

use sonar_sys::resident::{ProcessMemory, ResidentMemory};
use sonar_sys::{CountedHeap, Host, helper};
use sonar_view::agent::HeldBytes;

use super::memory::{HeldMemory, Holder, MemoryPlace};

/// What is fixed about a part.
#[derive(Copy, Clone, Debug)]
pub struct ProcessPart {
    /// The stable name in output.
    pub name: &'static str,
    /// Where it is.
    pub place: MemoryPlace,
    /// What it is.
    #[cfg_attr(not(test), expect(dead_code, reason = "docs/agent.md has it"))]
    pub what: &'static str,
    /// How it is measured.
    #[cfg_attr(not(test), expect(dead_code, reason = "docs/agent.md has it"))]
    pub measure: &'static str,
}

const fn part(name: &'static str, place: MemoryPlace, texts: [&'static str; 2]) -> ProcessPart {
    ProcessPart { name, place, what: texts[0], measure: texts[1] }
}

/// All parts, in the order of [`Measured::parts`].
pub const PARTS: [ProcessPart; 7] = [
    part(
        "code",
        MemoryPlace::Agent,
        [
            "the program and its libraries; the helpers have the same pages",
            "`/proc/self/smaps`: mappings of files",
        ],
    ),
    part(
        "stacks",
        MemoryPlace::Agent,
        ["what threads have touched of their stacks", "`/proc/self/smaps`: mappings above a guard"],
    ),
    part(
        "allocator",
        MemoryPlace::Agent,
        [
            "blocks of C libraries (libbpf, SQLite, zstd), and what the allocator keeps: free blocks and heads",
            "`/proc/self/smaps`: other memory, less the blocks in use, which the program counts itself",
        ],
    ),
    part(
        "store_index",
        MemoryPlace::Agent,
        ["the index of the store's log (`-shm`)", "`/proc/self/smaps`: shared files"],
    ),
    part(
        "packet_ring",
        MemoryPlace::Mapped,
        ["the ring of `[queries] ring-mib`", "`/proc/self/smaps`: mappings of sockets"],
    ),
    part(
        "map_views",
        MemoryPlace::Mapped,
        [
            "rings of eBPF programs, whose pages are those of `file_maps`, `split_maps` and `tls_maps`; each is mapped \
             twice in a row, so it counts twice",
            "`/proc/self/smaps`: mappings of maps",
        ],
    ),
    part(
        "helpers_code",
        MemoryPlace::Helper,
        ["the program and its libraries in all helpers", "`/proc/PID/status`: `RssFile`, `RssShmem`"],
    ),
];

/// One measurement.
#[derive(Copy, Clone, Debug, Default)]
struct Measured {
    agent: Option<ResidentMemory>,
    /// Blocks that the program has from the allocator.
    in_use: Option<u64>,
    helpers_code: u64,
}

impl Measured {
    fn parts(&self) -> [Option<u64>; PARTS.len()] {
        let of = |bytes: fn(ResidentMemory) -> u64| self.agent.map(bytes);
        [
            of(|memory| memory.code),
            of(|memory| memory.stacks),
            self.agent.zip(self.in_use).map(|(memory, in_use)| memory.heap.saturating_sub(in_use)),
            of(|memory| memory.shared_files),
            of(|memory| memory.packet_rings),
            of(|memory| memory.map_views),
            Some(self.helpers_code),
        ]
    }
}

/// The holder of the memory of a helper process with this name.
fn holder(helper: &str) -> Holder {
    match helper {
        "sonar-paths" => Holder::PathsHelper,
        "sonar-tls" => Holder::TlsHelper,
        "sonar-functions" => Holder::FunctionsHelper,
        "sonar-page" => Holder::PageHelper,
        _ => Holder::Helpers,
    }
}

/// Measures what the parts have now. What helpers have of their own is theirs in `held`.
pub fn parts(held: &HeldMemory) -> Vec<HeldBytes> {
    let one = |(part, bytes): (&ProcessPart, Option<u64>)| HeldBytes {
        name: part.name.to_owned(),
        place: part.place.name().to_owned(),
        bytes,
        max_bytes: None,
    };
    PARTS.iter().zip(measure(&Host::live(), held).parts()).map(one).collect()
}

fn measure(host: &Host, held: &HeldMemory) -> Measured {
    let mut own = [0_u64; Holder::ALL.len()];
    let mut measured =
        Measured { agent: ResidentMemory::now().ok(), in_use: CountedHeap::in_use(), helpers_code: 0 };
    for pid in helper::started() {
        let Some(memory) = ProcessMemory::of(host, pid) else { continue };
        let name = host.text(&format!("proc/{pid}/comm")).unwrap_or_default();
        own[holder(&name) as usize] += memory.own;
        measured.helpers_code += memory.files;
    }
    for holder in Holder::ALL.iter().filter(|one| one.facts().place == MemoryPlace::Helper) {
        held.set(*holder, own[*holder as usize] as usize);
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_is_not_the_allocators() {
        let agent =
            ResidentMemory { code: 1, stacks: 2, heap: 30, packet_rings: 4, map_views: 5, shared_files: 6 };
        let measured = Measured { agent: Some(agent), in_use: Some(20), helpers_code: 7 };
        assert_eq!(measured.parts(), [1, 2, 10, 6, 4, 5, 7].map(Some));
        // Not all that is in use was touched.
        assert_eq!(Measured { in_use: Some(40), ..measured }.parts()[2], Some(0));
        assert_eq!(Measured { in_use: None, ..measured }.parts()[2], None, "it is not counted");
    }

    #[test]
    fn each_part_of_this_process_is_measured() {
        let parts = parts(&HeldMemory::default());
        let names: Vec<_> = parts.iter().map(|part| &*part.name).collect();
        assert_eq!(names, PARTS.map(|part| part.name));
        assert!(
            parts.iter().all(|part| part.max_bytes.is_none()) && parts[0].bytes > Some(1 << 20),
            "{parts:?}"
        );
    }
}
