//! The state of the agent, in the file that `--status` reads.

use std::path::{Path, PathBuf};

use sonar_core::Timestamp;
use sonar_core::history::CollectorKind;
use sonar_sys::Host;
use sonar_sys::resource::{ResourceUsage, helper_time};
use sonar_view::agent::{AgentStatus, HeldBytes, WatchedServer};

use super::board::SourceId;
use super::costs::folder_bytes;
use super::inspector::FoundServer;
use super::{LiveAgent, QueriesCollector};
use crate::agent::memory::{Holder, MemoryPlace};
use crate::agent::process_memory;
use crate::agent::status_file;
use crate::agent::summed_store::summary;
use crate::history::StoreArgs;
use crate::io::process::process_namespace_problem;

/// The most servers that the first line names.
const MAX_NAMED: usize = 4;

/// What a command needs to read the history in this folder.
fn suffix(folder: &Path) -> String {
    let store = StoreArgs { store: (folder != StoreArgs::default().folder()).then(|| folder.to_path_buf()) };
    store.suffix()
}

/// What is watched, where it is stored, and how to ask for it. `hidden`: servers that run here, but of which this process
/// may not see the ports.
fn first_line(servers: &[FoundServer], hidden: Option<&str>, folder: &Path) -> String {
    let name = |server: &FoundServer| format!("{} {} on port {}", server.name, server.pid, server.port);
    let mut names: Vec<String> = servers.iter().take(MAX_NAMED).map(name).collect();
    if servers.len() > MAX_NAMED {
        names.push(format!("{} more", servers.len() - MAX_NAMED));
    }
    let what = match (names.is_empty(), hidden) {
        (true, Some(hidden)) => format!("no mongod or mongos is watched: {hidden}"),
        (true, None) => "no mongod or mongos runs on this host yet, each that starts is watched".to_owned(),
        (false, _) => format!("watching {}", names.join(", ")),
    };
    let suffix = suffix(folder);
    format!(
        "{what}; storing in {}; ask with `mongosonar what-changed{suffix}`, `mongosonar timeline{suffix}`, \
         `mongosonar agent --status{suffix}`",
        folder.display()
    )
}

impl LiveAgent<'_> {
    /// Says what is watched, where it is stored, and how to ask for it.
    pub(super) fn announce(&self) {
        eprintln!(
            "mongosonar: {}",
            first_line(&self.context.servers.all(), self.hidden_servers.as_deref(), self.plan.folder)
        );
        if let Some(address) = self.page.address() {
            let suffix = suffix(self.plan.folder);
            eprintln!("mongosonar: page at http://{address}/; `mongosonar open{suffix}` prints a link to it");
        }
    }

    /// Says that eBPF programs find no process here, if sources use them and it is so.
    pub(super) fn announce_process_namespace(&mut self) {
        let collectors = &self.plan.settings.collectors;
        if (collectors.files || collectors.split)
            && let Some(problem) = process_namespace_problem()
        {
            eprintln!("mongosonar: files, split: {problem}");
            self.note(format!("files, split: {problem}"));
        }
    }

    /// What holds memory. Shapes and applications are counted where they are shared.
    fn held(&self) -> Vec<HeldBytes> {
        // At the same moment as the others: what is free now may be a holder's next.
        let parts = process_memory::parts(&self.context.board.held);
        let held = &self.context.board.held;
        held.set(Holder::Open, self.assembler.memory());
        held.set(Holder::Store, self.assembler.store().history.memory());
        held.set(Holder::Parts, self.parts.memory() + self.parts.channel_memory());
        let told = self.queries.as_ref().map_or(0, QueriesCollector::ends_memory);
        held.set(Holder::ClientEnds, self.context.servers.clients_memory() + told);
        held.set(Holder::Running, self.context.board.running.memory() + self.page.running_memory());
        if let Some(queries) = &self.queries {
            let (decoders, windows) = queries.memory();
            held.set(Holder::Decoders, decoders);
            held.set(Holder::Captured, windows);
            held.set(Holder::Names, queries.shared_memory());
        }
        let one = |holder: &Holder| {
            let facts = holder.facts();
            let bytes = held.of(*holder);
            HeldBytes {
                name: facts.name.to_owned(),
                place: facts.place.name().to_owned(),
                bytes: (facts.place != MemoryPlace::Kernel
                    && !matches!(holder, Holder::Large | Holder::Lookup))
                .then_some(bytes as u64),
                max_bytes: Some(facts.bytes as u64),
            }
        };
        Holder::ALL.iter().map(one).chain(parts).collect()
    }

    /// Writes the status.
    pub(super) fn write_status(&mut self) {
        self.stated = Some(self.instant());
        let _waits = self.pulse.begin();
        if self.plan.confined && self.store_folder.is_gone() {
            // A start makes it again. This thread may write below the old one only.
            let folder = self.plan.folder.display();
            self.restart_reason.get_or_insert_with(|| format!("the folder {folder} was deleted"));
        }
        let usage = ResourceUsage::now().unwrap_or_default();
        let mut collectors = self.context.board.all();
        self.costs.measure(&mut collectors);
        let held = self.held();
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let board = &self.context.board;
        let problem = |collector: CollectorKind, server: &FoundServer, path: &Option<PathBuf>| {
            let source = SourceId::of_server(collector, server.endpoint());
            let is_awaited = path.is_some() && !board.is_collected(source.clone());
            board.problem(source).or_else(|| is_awaited.then(|| "nothing was read of it yet".to_owned()))
        };
        let server = |server: &FoundServer| WatchedServer {
            name: server.name.clone(),
            version: self.context.servers.version(server.endpoint()),
            pid: server.pid,
            port: server.port,
            log: path(&server.log),
            log_problem: server.no_log.clone().or_else(|| problem(CollectorKind::Log, server, &server.log)),
            diagnostic_data: path(&server.diagnostic),
            diagnostic_problem: problem(CollectorKind::Internals, server, &server.diagnostic),
        };
        let pid = std::process::id();
        let summary = summary(&self.assembler);
        let status = AgentStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid,
            started_ticks: Host::live().stat(pid).map_or(0, |stat| stat.started),
            started_ns: self.begun.time.unix_ns(),
            written_ns: self.now().unix_ns(),
            store: self.plan.folder.display().to_string(),
            store_bytes: folder_bytes(self.plan.folder),
            windows: summary.windows,
            windows_lost: summary.windows_lost,
            store_problem: self.store_problem.clone(),
            last_window_ns: self.assembler.stored_until().map(Timestamp::unix_ns),
            refused_configuration: self.refused.clone(),
            notices: self.notices.clone(),
            cpu_ns: usage.processor().as_nanos() as u64,
            helpers_cpu_ns: helper_time().as_nanos() as u64,
            memory_bytes: usage.resident_bytes,
            held,
            page: self.page.status(),
            collectors,
            servers: self.context.servers.all().iter().map(server).collect(),
        };
        match status_file::write(self.plan.folder, &status) {
            Ok(()) => self.status_problem = None,
            Err(error) => {
                let text = format!("the status cannot be written: {error}");
                if self.status_problem.replace(text.clone()).as_ref() != Some(&text) {
                    eprintln!("mongosonar: {text}");
                    self.note(text);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_what_is_watched_where_it_is_stored_and_how_to_ask() {
        let server = |port: u16| FoundServer {
            port,
            pid: u32::from(port) + 1_000,
            name: "mongod".to_owned(),
            ..FoundServer::default()
        };
        let folder = Path::new("/srv/history");
        const ASK: &str = "ask with `mongosonar what-changed --store /srv/history`, `mongosonar timeline --store \
                           /srv/history`, `mongosonar agent --status --store /srv/history`";
        assert_eq!(
            first_line(&[server(27_017), server(27_018)], None, folder),
            format!(
                "watching mongod 28017 on port 27017, mongod 28018 on port 27018; storing in /srv/history; {ASK}"
            )
        );
        let none = first_line(&[], None, folder);
        assert!(
            none.starts_with("no mongod or mongos runs on this host yet, each that starts is watched; "),
            "{none}"
        );
        // Without rights, those that run cannot be watched.
        let hidden = "mongod (25) runs here, but its ports are not known: Permission denied";
        let denied = first_line(&[], Some(hidden), folder);
        assert!(
            denied.starts_with(&format!("no mongod or mongos is watched: {hidden}; storing in")),
            "{denied}"
        );
        let many: Vec<_> = (1..=6).map(server).collect();
        assert!(
            first_line(&many, None, folder).contains("mongod 1004 on port 4, 2 more; storing"),
            "{many:?}"
        );
        // The usual folder needs no flag.
        let usual = StoreArgs::default();
        assert!(first_line(&[], None, usual.folder()).contains("ask with `mongosonar what-changed`, "));
    }
}
