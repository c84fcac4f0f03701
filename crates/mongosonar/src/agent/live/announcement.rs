//! What the agent says first.

use std::path::Path;

use sonar_serve::PageUrl;

use super::inspector::FoundServer;
use crate::agent::settings::CollectorTable;
use crate::history::StoreArgs;
use crate::servers::tracing::process_namespace_problem;

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

/// Says what is watched, where it is stored, and how to ask for it.
pub fn announce(servers: &[FoundServer], hidden: Option<&str>, folder: &Path, page: Option<PageUrl>) {
    eprintln!("mongosonar: {}", first_line(servers, hidden, folder));
    if let Some(url) = page {
        let suffix = suffix(folder);
        eprintln!("mongosonar: page at {url}; `mongosonar open{suffix}` prints a link to it");
    }
}

/// That eBPF programs find no process here, if sources use them and it is so.
pub fn unseen_processes(collectors: &CollectorTable) -> Option<String> {
    let uses_ebpf = collectors.files || collectors.split;
    let problem = uses_ebpf.then(process_namespace_problem).flatten();
    problem.map(|problem| format!("files, split: {problem}"))
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
