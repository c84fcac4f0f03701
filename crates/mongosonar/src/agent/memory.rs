//! What holds memory in the agent, how many bytes at most, and where that is enforced.
//!
//! The unit of the service limits the memory of the agent, its helper processes, and the maps of its eBPF programs
//! together (`MemoryHigh=`). What is in this table fits into that, all of it at the same time; a test adds it up.
//! [`HeldMemory`] has what each holder has now, for `agent --status`.

use std::sync::atomic::{AtomicUsize, Ordering};

use sonar_core::observation::AssemblyLimits;
use sonar_sys::split::SplitRoom;

use crate::confinement::privileges::{
    FUNCTIONS_HELPER_BYTES, HELPER_BYTES, PAGE_HELPER_BYTES, PATHS_HELPER_BYTES, TLS_HELPER_BYTES,
};
use crate::large::LARGE_BYTES;

const MIB: usize = 1 << 20;

/// The most bytes of a window: one that a capture thread records, one that all sources have been joined in, a stored minute,
/// a stored hour. What exceeds it is counted under `other`.
pub const WINDOW_BYTES: usize = 4 * MIB;
/// While it is recorded, a window may take this much more than that until it is counted again.
pub const RECORDED_BYTES: usize = WINDOW_BYTES + WINDOW_BYTES / 4;
/// The most bytes of a window of one source.
pub const PART_BYTES: usize = MIB;
/// The most bytes of all parts that wait to be joined.
pub const WAITING_BYTES: usize = 3 * MIB;
/// The most bytes of the channel in which they wait, whose places are allocated at once.
pub const CHANNEL_BYTES: usize = MIB;
/// The most bytes of the windows of all sources that are open, however many sources there are.
pub const CUT_BYTES: usize = 7 * MIB;
/// The most bytes of the windows that are open; more store the oldest.
const OPEN_BYTES: usize = 2 * WINDOW_BYTES;
/// Both for who joins the windows of all sources.
pub const ASSEMBLY: AssemblyLimits = AssemblyLimits { window_bytes: WINDOW_BYTES, open_bytes: OPEN_BYTES };
/// Capture threads: one reads the ring, and one what passes inside servers.
pub const CAPTURES: usize = 2;
/// What all connections of a decoder may hold together is divided by this, compared with that of a command.
pub const DECODER_SHARE: usize = 16;
/// What decoders share of cursors and of clients of earlier connections is divided by this, compared with a command.
pub const NAMES_SHARE: usize = 4;
/// The most bytes of the tables of functions of all servers.
pub const SYMBOL_BYTES: usize = 36 * MIB;
/// In what memory is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum MemoryPlace {
    /// In the agent's process.
    Agent,
    /// Pages of the kernel that the agent's process maps: the kernel counts them for the process, but for the service not at
    /// all, or elsewhere.
    Mapped,
    /// In a helper process.
    Helper,
    /// In the kernel, which counts it for the service since Linux 5.11.
    Kernel,
}

impl MemoryPlace {
    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Mapped => "mapped",
            Self::Helper => "helper",
            Self::Kernel => "kernel",
        }
    }
}

/// What is fixed about a holder.
#[derive(Copy, Clone, Debug)]
pub struct HolderFacts {
    /// The stable name in output.
    pub name: &'static str,
    /// Where it is.
    pub place: MemoryPlace,
    /// The most bytes.
    pub bytes: usize,
    /// What it holds, and what happens to more.
    #[cfg_attr(not(test), expect(dead_code, reason = "docs/agent.md has it"))]
    pub what: &'static str,
    /// Where that is enforced.
    #[cfg_attr(not(test), expect(dead_code, reason = "docs/agent.md has it"))]
    pub enforced: &'static str,
}

macro_rules! holders {
    ($($(#[$doc:meta])* $holder:ident: $name:literal, $place:ident, $bytes:expr, $what:literal, $enforced:literal;)*) => {
        /// What holds memory.
        #[derive(Copy, Clone, PartialEq, Eq, Debug)]
        pub enum Holder {
            $($(#[$doc])* $holder,)*
        }

        impl Holder {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$holder,)*];

            /// What is fixed about it.
            pub const fn facts(self) -> HolderFacts {
                match self {
                    $(Self::$holder => HolderFacts {
                        name: $name,
                        place: MemoryPlace::$place,
                        bytes: $bytes,
                        what: $what,
                        enforced: $enforced,
                    },)*
                }
            }
        }
    };
}

holders! {
    /// Of both decoders.
    Decoders: "decoders", Agent, CAPTURES * 22 * MIB,
        "connections, and what waits on them, of both capture threads; the oldest give way",
        "`sonar-decode`: `Settings::share`, `FlowLimits`";
    /// What both decoders share.
    Names: "names", Agent, 20 * MIB,
        "shapes, applications, cursors and earlier clients; further ones are counted under `other`",
        "`sonar-decode`: `identity`";
    /// Windows that are recorded.
    Captured: "captured", Agent, CAPTURES * RECORDED_BYTES + 3 * WINDOW_BYTES,
        "windows of the capture threads, and those that wait for the other thread; further rows are counted under `other`",
        "`WindowSettings::max_bytes`, `Joiner`";
    /// Windows of the other sources.
    Parts: "parts", Agent, CUT_BYTES + WAITING_BYTES + CHANNEL_BYTES,
        "windows of the other sources, until they are joined; further rows are counted under `other`",
        "`WindowCutter`, `PartSender`";
    /// Windows of all sources.
    Open: "open", Agent, OPEN_BYTES + WINDOW_BYTES,
        "windows of all sources that are not stored yet; more store the oldest",
        "`Assembler::add`";
    /// Minute and hour, and what storing a window takes.
    Store: "store", Agent, 6 * WINDOW_BYTES + 12 * MIB,
        "the minute and the hour that grow, what storing a window takes, numbers of a day, SQLite's pages",
        "`StoreSettings::window_bytes`, `sonar-store`: `dictionary`";
    /// Readers of logs.
    Logs: "logs", Agent, 16 * MIB,
        "lines that are read, and shapes and connections of logs; a longer line is skipped",
        "`FileFollower`, `LogReader`";
    /// Ends of connections.
    ClientEnds: "client_ends", Agent, 3 * MIB,
        "ends of connections that logs state, until the capture takes them; if there are too many, the oldest of the servers with the most give way",
        "`ClientEnds`";
    /// Who is on connections that were open at the start.
    Lookup: "lookup", Agent, 6 * MIB,
        "at the start, the clients of open connections, from the log of one server at a time; further ones are left out, which the log says",
        "`sonar-decode`: `Remotes`";
    /// Schemas of `diagnostic.data`.
    Schemas: "schemas", Agent, 12 * MIB,
        "what was learned of the schemas of `diagnostic.data`, and the documents that are read; the largest schemas are learned again",
        "`internals`: `SCHEMAS_BYTES`; `ftdc::follow`: `MAX_DOCUMENT`";
    /// Files whose accesses are added up.
    Files: "files", Agent, 16 * MIB,
        "figures of 8,192 files and their paths; the ones idle longest give way",
        "`sonar-sys`: `TotalsRoom`";
    /// See [`LARGE`](crate::large::LARGE).
    Large: "large", Agent, LARGE_BYTES,
        "a chunk of `diagnostic.data` that is unpacked, or a file of symbols, while it is read: one at a time; a larger one is skipped",
        "`ftdc::follow`: `LIMITS`; `Image::read_within`";
    /// Operations that wait for their other side.
    SplitWaiting: "split_waiting", Agent, 27 * MIB,
        "operations of the wire that wait for those of threads, the other way round, and their waits; further ones are not divided",
        "`SplitJoiner`, `PendingWaits`";
    /// Operations that are not added up yet.
    SplitQueue: "split_queue", Agent, 12 * MIB,
        "operations of both that are not added up yet; further ones are lost, and counted",
        "`JoinedQueue`";
    /// Who ended waits.
    SplitBlockers: "split_blockers", Agent, 21 * MIB,
        "waits whose end another operation caused; the oldest are given up",
        "`RowBlockers`";
    /// Names of files.
    SplitFiles: "split_files", Agent, 9 * MIB,
        "names of the files that servers have open; further ones have none",
        "`OpenFilesRoom`";
    /// Functions of servers.
    Symbols: "symbols", Agent, SYMBOL_BYTES,
        "where functions of the servers begin and how to unwind them; functions of further files have no names",
        "`TableBudget`";
    /// Operations that run, while somebody looks.
    Running: "running", Agent, 12 * MIB,
        "while somebody looks at what runs now: the oldest 500 operations, what threads and servers say of them, and a list on its way to the page; younger ones are counted",
        "`RunningOperations`, `RunningBoard`, `running_link`";
    /// Small helpers.
    Helpers: "helpers", Helper, 4 * HELPER_BYTES,
        "the helpers for logs, folders, rings and open files: an answer and what it takes; one that needs more ends",
        "`limit_memory` (`RLIMIT_DATA`)";
    /// The helper for paths.
    PathsHelper: "paths_helper", Helper, PATHS_HELPER_BYTES,
        "the helper for paths: paths of open files; one that needs more ends",
        "`limit_memory` (`RLIMIT_DATA`)";
    /// The helper for TLS.
    TlsHelper: "tls_helper", Helper, TLS_HELPER_BYTES,
        "the helper for TLS: symbols of a library while it attaches; one that needs more ends",
        "`limit_memory` (`RLIMIT_DATA`)";
    /// The helper for functions.
    FunctionsHelper: "functions_helper", Helper, FUNCTIONS_HELPER_BYTES,
        "the helper for functions: a thread for each server",
        "`limit_memory` (`RLIMIT_DATA`)";
    /// The helper for the page.
    PageHelper: "page_helper", Helper, PAGE_HELPER_BYTES,
        "the helper for the page: two answers at a time, and what the history holds for them; one that needs more ends",
        "`limit_memory` (`RLIMIT_DATA`)";
    /// Maps of the programs for files.
    FileMaps: "file_maps", Kernel, 26 * MIB,
        "eBPF maps of `files`: figures of 8,192 files; the ones idle longest give way",
        "`sonar-sys`: `TotalsRoom`";
    /// Maps of the programs that divide time.
    SplitMaps: "split_maps", Kernel, SplitRoom::AGENT.ring_bytes as usize + 13 * MIB,
        "eBPF maps of `split`: 8,192 threads, and rings; further operations are lost, and counted",
        "`sonar-sys`: `SplitRoom`; `bpf/split.bpf.c`";
    /// Maps of the programs for TLS.
    TlsMaps: "tls_maps", Kernel, 25 * MIB,
        "eBPF maps of `queries` with TLS: 32,768 sessions, and a ring; what is lost is counted",
        "`sonar-sys`: `TlsRoom`; `bpf/tls_session.h`";
}

/// What each holder has, in bytes, as it last said; that of helper processes is measured. Those of the kernel say nothing.
#[derive(Debug)]
pub struct HeldMemory(Box<[AtomicUsize]>);

impl Default for HeldMemory {
    fn default() -> Self {
        Self(Holder::ALL.iter().map(|_| AtomicUsize::new(0)).collect())
    }
}

impl HeldMemory {
    /// A holder has so many bytes now.
    pub fn set(&self, holder: Holder, bytes: usize) {
        self.0[holder as usize].store(bytes, Ordering::Relaxed);
    }

    /// What a holder last said.
    pub fn of(&self, holder: Holder) -> usize {
        self.0[holder as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;
    use crate::agent::process_memory::{PARTS, ProcessPart};

    /// For the program's code, the stacks of its threads, and what the allocator adds.
    const MARGIN: usize = 20 * MIB;

    fn limit(name: &str) -> usize {
        let unit = include_str!("../../../../packaging/mongosonar.service");
        let value = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap();
        value.strip_suffix('M').unwrap().parse::<usize>().unwrap() * MIB
    }

    #[test]
    fn all_holders_together_fit_into_the_memory_of_the_service() {
        let sum: usize = Holder::ALL.iter().map(|holder| holder.facts().bytes).sum();
        let room = limit("MemoryHigh") - MARGIN;
        assert!(sum <= room, "{} MiB of {}", sum / MIB, room / MIB);
        assert!(limit("MemoryMax") > limit("MemoryHigh"));
    }

    #[test]
    fn each_holder_has_its_own_name_and_place() {
        for (at, holder) in Holder::ALL.iter().enumerate() {
            assert_eq!(*holder as usize, at);
            assert!(Holder::ALL[..at].iter().all(|other| other.facts().name != holder.facts().name));
        }
        let held = HeldMemory::default();
        held.set(Holder::Symbols, 7);
        assert_eq!((held.of(Holder::Symbols), held.of(Holder::Logs)), (7, 0));
    }

    const BEGIN: &str = "<!-- The table of crates/mongosonar/src/agent/memory.rs. -->\n";
    const END: &str = "<!-- End of the table. -->\n";

    /// `SNAPSHOTS=overwrite` writes the tables into the page.
    #[test]
    fn the_page_has_the_tables() {
        let mut table = String::from(
            "\n| Holder | Where | At most | What it holds, and what happens to more | Enforced by |\n",
        );
        table.push_str("| --- | --- | --- | --- | --- |\n");
        for holder in Holder::ALL {
            let HolderFacts { name, place, bytes, what, enforced } = holder.facts();
            let (place, mib) = (place.name(), bytes.div_ceil(MIB));
            writeln!(table, "| `{name}` | {place} | {mib} MiB | {what} | {enforced} |").unwrap();
        }
        let sum: usize = Holder::ALL.iter().map(|holder| holder.facts().bytes).sum();
        let (sum, high) = (sum.div_ceil(MIB), limit("MemoryHigh") / MIB);
        write!(
            table,
            "| all | | {sum} MiB | of `MemoryHigh={high}M`, which also has code and stacks | |\n\n"
        )
        .unwrap();
        table.push_str("What the processes have beside that has no limit of its own:\n\n");
        table.push_str("| Part | Where | What it is | Measured by |\n| --- | --- | --- | --- |\n");
        for ProcessPart { name, place, what, measure } in PARTS {
            writeln!(table, "| `{name}` | {} | {what} | {measure} |", place.name()).unwrap();
        }
        table.push('\n');
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/agent.md");
        let text = std::fs::read_to_string(page).unwrap();
        let (before, rest) = text.split_once(BEGIN).unwrap();
        let (found, after) = rest.split_once(END).unwrap();
        if std::env::var_os("SNAPSHOTS").is_some_and(|what| what == "overwrite") {
            std::fs::write(page, [before, BEGIN, &table, END, after].concat()).unwrap();
        } else {
            assert_eq!(found, table, "SNAPSHOTS=overwrite writes it");
        }
    }
}
