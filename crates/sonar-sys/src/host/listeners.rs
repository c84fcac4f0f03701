//! The TCP ports on which processes with given names listen.
//!
//! A port is found by matching the open sockets of a process with the listening sockets of its network namespace, so
//! a server in a container is found with its port there. Without permission to see the open files of another user,
//! the port is taken from the command line, and the result says so.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use super::process::{Process, ProcessShare};
use super::socket_table::{NamespaceTables, SocketTable, brief};

/// Which processes to search.
#[derive(Copy, Clone, Debug)]
pub struct ListenerSearch<'a> {
    /// Names of programs.
    pub names: &'a [&'a str],
    /// Options that are followed by a port (`--port 27018` or `--port=27018`).
    pub port_options: &'a [&'a str],
}

/// A port that a process listens on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    /// The process.
    pub pid: u32,
    /// Its name, one of those that were searched.
    pub name: String,
    /// Address and port; the unspecified address means all of the process's network namespace.
    pub address: SocketAddr,
    /// How it was found.
    pub origin: ListenerOrigin,
}

/// How a port was found.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListenerOrigin {
    /// The process has the listening socket open.
    Socket,
    /// The port is known from the command line only.
    CommandLine,
}

/// Listeners, and processes that could not be inspected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundListeners {
    /// Every listener, by process.
    pub listeners: Vec<Listener>,
    /// Processes of those names whose ports are unknown, or known from the command line only.
    pub incomplete: Vec<Incomplete>,
}

impl FoundListeners {
    /// The ports, each once, in order.
    pub fn ports(&self) -> Vec<u16> {
        let ports: BTreeSet<u16> = self.listeners.iter().map(|listener| listener.address.port()).collect();
        ports.into_iter().collect()
    }
}

/// A process that could not be inspected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} (process {pid}): {reason}; run as root to find every port it listens on")]
pub struct Incomplete {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// What could not be read, and why.
    pub reason: String,
    /// It has more open files than were looked at.
    pub is_cut: bool,
}

/// The most listening sockets of a process, and of all processes of a search together.
const MAX_OF_PROCESS: usize = 64;
const MAX_LISTENERS: usize = 8_192;

/// The ports of these processes. One that ends meanwhile is left out, and so are sockets beyond a number that no server has.
pub(super) fn find(processes: Vec<Process>, port_options: &[&str]) -> FoundListeners {
    let mut found = FoundListeners::default();
    let mut tables = NamespaceTables::default();
    let most = (MAX_LISTENERS / processes.len().max(1)).clamp(1, MAX_OF_PROCESS);
    for process in processes {
        let (pid, name, directory) = (process.pid, &process.name, process.folder());
        let own = fs::read_dir(directory.join("fd")).and_then(|entries| {
            // Processes of one network namespace share a table, which can be long.
            let namespace =
                fs::read_link(directory.join("ns/net")).unwrap_or_else(|_| format!("process {pid}").into());
            let table = tables.of(namespace, directory);
            Ok((HeldSockets::among(entries, process.share(), &table)?, table))
        });
        let (held, table) = match own {
            Ok(own) => own,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                let port = process.option(port_options).and_then(|port| port.parse().ok());
                found.listeners.extend(port.filter(|port| *port != 0).map(|port| Listener {
                    pid,
                    name: name.clone(),
                    address: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port),
                    origin: ListenerOrigin::CommandLine,
                }));
                let reason = format!("its open files cannot be read ({})", brief(&error));
                found.incomplete.push(Incomplete { pid, name: name.clone(), reason, is_cut: false });
                continue;
            }
        };
        let cut = || held.is_cut.then(|| "it has too many open files".to_owned());
        if let Some(reason) = table.problem().or_else(cut) {
            if !directory.exists() {
                continue;
            }
            found.incomplete.push(Incomplete { pid, name: name.clone(), reason, is_cut: held.is_cut });
        }
        let listener = |address| {
            let origin = ListenerOrigin::Socket;
            Listener { pid, name: name.clone(), address, origin }
        };
        found.listeners.extend(held.listening.into_values().take(most).map(listener));
    }
    found.listeners.sort();
    found.listeners.dedup();
    found
}

/// Of these processes, those that listen on a port for which `is_asked` says so, in any network namespace. Those whose
/// open files cannot be read are left out. `proc_root` is `/proc`.
pub(super) fn serving(proc_root: &Path, processes: &[u32], is_asked: &dyn Fn(u16) -> bool) -> Vec<u32> {
    let mut tables = NamespaceTables::default();
    let mut serving = Vec::new();
    let share = ProcessShare::among(processes.len());
    for &pid in processes {
        let process = proc_root.join(pid.to_string());
        let Ok(namespace) = fs::read_link(process.join("ns/net")) else { continue };
        let table = tables.of(namespace, &process);
        if !table.listening.values().any(|address| is_asked(address.port())) {
            continue;
        }
        let Ok(held) = HeldSockets::of(&process, share, &table) else { continue };
        if held.listening.values().any(|address| is_asked(address.port())) {
            serving.push(pid);
        }
    }
    serving
}

/// The ports on which these processes listen, each in its own network namespace. Those whose open files cannot be read
/// have none. `proc_root` is `/proc`.
pub(super) fn ports_of(proc_root: &Path, processes: &[u32]) -> BTreeSet<u16> {
    let mut ports = BTreeSet::new();
    let share = ProcessShare::among(processes.len());
    for pid in processes {
        let process = proc_root.join(pid.to_string());
        let table = SocketTable::read(&process.join("net"));
        let Ok(held) = HeldSockets::of(&process, share, &table) else { continue };
        ports.extend(held.listening.values().map(SocketAddr::port));
    }
    ports
}

/// Whether each of these processes accepts TCP connections, and only from this machine: all of its listening sockets are
/// bound to loopback addresses of our network namespace. `false` if that cannot be seen.
pub(super) fn are_local(proc_root: &Path, processes: &[u32]) -> bool {
    let namespace = |process: &Path| fs::read_link(process.join("ns/net")).ok();
    let Some(own) = namespace(&proc_root.join("self")) else { return false };
    let table = SocketTable::read(&proc_root.join("self/net"));
    let share = ProcessShare::among(processes.len());
    let is_local = |process: &u32| {
        let process = proc_root.join(process.to_string());
        let Ok(held) = HeldSockets::of(&process, share, &table) else { return false };
        namespace(&process).as_ref() == Some(&own)
            && !held.is_cut
            && !held.listening.is_empty()
            && held.listening.values().all(|address| address.ip().is_loopback())
    };
    table.problem().is_none() && !processes.is_empty() && processes.iter().all(is_local)
}

/// Every TCP port on which any process listens, in all network namespaces that can be read. `proc_root` is `/proc`.
/// Fails if no namespace can be read.
pub(super) fn open_ports(proc_root: &Path) -> io::Result<BTreeSet<u16>> {
    let mut namespaces = HashSet::new();
    let mut ports = BTreeSet::new();
    let mut tables_read = 0;
    for entry in fs::read_dir(proc_root)?.flatten() {
        if entry.file_name().to_str().is_none_or(|name| name.parse::<u32>().is_err()) {
            continue;
        }
        // Without permission to see which one it is, it may have been read already: then it is read again.
        let namespace = fs::read_link(entry.path().join("ns/net")).ok();
        if namespace.as_ref().is_none_or(|namespace| !namespaces.contains(namespace)) {
            let table = SocketTable::read(&entry.path().join("net"));
            if table.failure.is_none() {
                tables_read += 1;
                namespaces.extend(namespace);
            }
            ports.extend(table.listening.values().map(SocketAddr::port));
        }
    }
    if tables_read == 0 {
        return Err(io::Error::other("no table of TCP sockets could be read"));
    }
    Ok(ports)
}

/// The listening sockets that a process has open.
struct HeldSockets {
    /// By inode.
    listening: BTreeMap<u64, SocketAddr>,
    /// It has more open files than were looked at.
    is_cut: bool,
}

impl HeldSockets {
    /// Those of a process; `process` is its folder.
    fn of(process: &Path, share: ProcessShare, table: &SocketTable) -> io::Result<Self> {
        Self::among(fs::read_dir(process.join("fd"))?, share, table)
    }

    /// Those of a table that are among these open files.
    fn among(mut open: fs::ReadDir, share: ProcessShare, table: &SocketTable) -> io::Result<Self> {
        let mut listening = BTreeMap::new();
        for entry in open.by_ref().take(share.files) {
            let target = match fs::read_link(entry?.path()) {
                Ok(target) => target,
                // Closed in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let inode = target.to_str().and_then(|target| target.strip_prefix("socket:[")?.strip_suffix(']'));
            let inode = inode.and_then(|inode| inode.parse::<u64>().ok());
            listening.extend(inode.and_then(|inode| Some((inode, *table.listening.get(&inode)?))));
        }
        Ok(Self { listening, is_cut: open.next().is_some() })
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::super::Host;
    use super::*;

    const SEARCH: ListenerSearch<'_> =
        ListenerSearch { names: &["mongod", "mongos"], port_options: &["--port"] };

    /// A tree like /proc, removed at the end.
    struct SocketTree(PathBuf);

    impl SocketTree {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("sonar-sys-{name}-{}", std::process::id()));
            fs::create_dir_all(&root).unwrap();
            fs::write(root.join("uptime"), "1 1\n").unwrap();
            Self(root)
        }

        fn process(&self, pid: u32, comm: &str, arguments: &[&str]) -> PathBuf {
            let directory = self.0.join(pid.to_string());
            fs::create_dir_all(directory.join("net")).unwrap();
            fs::create_dir_all(directory.join("ns")).unwrap();
            fs::write(directory.join("comm"), format!("{comm}\n")).unwrap();
            let line: String = arguments.iter().flat_map(|argument| [argument, "\0"]).collect();
            fs::write(directory.join("cmdline"), line).unwrap();
            directory
        }
    }

    impl Drop for SocketTree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const HEADING: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    fn row(local: &str, state: &str, inode: u64) -> String {
        format!(
            "   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000   999        0 {inode} 1 0000000000000000 100 0 0 10 0\n"
        )
    }

    fn open_sockets(directory: &Path, inodes: &[u64]) {
        let fd = directory.join("fd");
        fs::create_dir_all(&fd).unwrap();
        symlink("/dev/null", fd.join("0")).unwrap();
        for (index, inode) in inodes.iter().enumerate() {
            symlink(format!("socket:[{inode}]"), fd.join((index + 1).to_string())).unwrap();
        }
    }

    fn listener(pid: u32, name: &str, address: &str, origin: ListenerOrigin) -> Listener {
        Listener { pid, name: name.into(), address: address.parse().unwrap(), origin }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn servers_are_local_if_they_listen_on_loopback_addresses_of_our_namespace_alone() {
        let tree = SocketTree::new("local");
        let table = [
            HEADING.to_string(),
            row("0100007F:6989", "0A", 100),
            row("0200007F:6989", "0A", 101),
            row("00000000:6989", "0A", 102),
            row("0100000A:6989", "01", 103),
        ];
        let ours = tree.0.join("self");
        fs::create_dir_all(ours.join("net")).unwrap();
        fs::create_dir_all(ours.join("ns")).unwrap();
        let v6 = [
            HEADING.to_string(),
            row("00000000000000000000000001000000:6989", "0A", 104),
            row("0000000000000000FFFF00000100007F:6989", "0A", 105),
            row("00000000000000000000000000000000:6989", "0A", 106),
        ];
        fs::write(ours.join("net/tcp"), table.concat()).unwrap();
        fs::write(ours.join("net/tcp6"), v6.concat()).unwrap();
        symlink("net:[1]", ours.join("ns/net")).unwrap();
        for (pid, namespace, sockets) in [
            (10, "net:[1]", &[100, 103][..]),
            (11, "net:[1]", &[100, 101]),
            (12, "net:[1]", &[100, 102]),
            (13, "net:[2]", &[100]),
            (14, "net:[1]", &[103]),
            (16, "net:[1]", &[100, 104, 105]),
            (17, "net:[1]", &[100, 106]),
        ] {
            let process = tree.process(pid, "mongod", &[]);
            open_sockets(&process, sockets);
            symlink(namespace, process.join("ns/net")).unwrap();
        }
        let host = Host::of_proc(&tree.0);
        let are_local = |processes: &[u32]| host.are_local(processes);
        assert!(are_local(&[10]) && are_local(&[10, 11]) && are_local(&[16]));
        for others in [&[12][..], &[13], &[14], &[15], &[17], &[10, 12], &[]] {
            assert!(!are_local(others), "{others:?}");
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn sockets_are_matched_with_the_listening_ones_of_their_namespace() {
        let tree = SocketTree::new("sockets");
        let server = tree.process(10, "mongod", &["/usr/bin/mongod", "--config", "/etc/mongod.conf"]);
        open_sockets(&server, &[100, 101, 102]);
        let table = [
            HEADING.to_string(),
            row("0100007F:6989", "0A", 100),
            row("0100007F:698A", "01", 101),
            row("0100007F:698B", "0A", 999),
        ];
        fs::write(server.join("net/tcp"), table.concat()).unwrap();
        let v6 = row("00000000000000000000000001000000:699A", "0A", 102);
        fs::write(server.join("net/tcp6"), HEADING.to_string() + &v6).unwrap();

        // In a container: another socket has the same inode there.
        let container = tree.process(20, "conn-handler", &["mongos"]);
        open_sockets(&container, &[100]);
        fs::write(container.join("net/tcp"), HEADING.to_string() + &row("00000000:6979", "0A", 100)).unwrap();

        let other = tree.process(30, "mongodump", &["mongodump"]);
        open_sockets(&other, &[999]);
        fs::write(other.join("net/tcp"), table.concat()).unwrap();

        let found = Host::of_proc(&tree.0).listeners(SEARCH).unwrap();
        assert_eq!(
            found.listeners,
            [
                listener(10, "mongod", "127.0.0.1:27017", ListenerOrigin::Socket),
                listener(10, "mongod", "[::1]:27034", ListenerOrigin::Socket),
                listener(20, "mongos", "0.0.0.0:27001", ListenerOrigin::Socket),
            ]
        );
        assert_eq!(found.incomplete, []);
        assert_eq!(found.ports(), [27001, 27017, 27034]);
        let ports_of = |processes: &[u32]| Host::of_proc(&tree.0).ports_of(processes);
        assert_eq!(ports_of(&[10]), [27017, 27034], "not those of others in the same namespace");
        assert_eq!(ports_of(&[20, 10]), [27001, 27017, 27034]);
        assert_eq!(ports_of(&[99]), []);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn processes_with_very_many_open_files_are_looked_at_in_part_and_said_to_be() {
        let tree = SocketTree::new("many");
        let table = HEADING.to_string() + &row("0100007F:6989", "0A", 100);
        let share = ProcessShare::among(1_024).files as u64;
        for (pid, sockets) in [(1, vec![100]), (2, (1_000..1_000 + share).collect())] {
            let process = tree.process(pid, "mongod", &[]);
            open_sockets(&process, &sockets);
            fs::write(process.join("net/tcp"), &table).unwrap();
        }
        (3..=1_024).for_each(|pid| drop(tree.process(pid, "mongod", &[])));
        let found = Host::of_proc(&tree.0).listeners(SEARCH).unwrap();
        assert_eq!(found.listeners, [listener(1, "mongod", "127.0.0.1:27017", ListenerOrigin::Socket)]);
        let said = |one: &Incomplete| (one.pid, one.reason.clone(), one.is_cut);
        let said: Vec<_> = found.incomplete.iter().map(said).collect();
        assert_eq!(said, [(2, "it has too many open files".to_owned(), true)]);
        let process = &Host::of_proc(&tree.0).processes(SEARCH.names)[1];
        assert_eq!(process.open_files().count() as u64, share);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_process_that_ends_meanwhile_hides_no_port_of_others() {
        let tree = SocketTree::new("ends");
        for pid in [10, 20] {
            let server = tree.process(pid, "mongod", &[]);
            open_sockets(&server, &[u64::from(pid)]);
            symlink("net:[1]", server.join("ns/net")).unwrap();
        }
        // The tables of the first one are gone, as those of a zombie are.
        let table = HEADING.to_string() + &row("00000000000000000000000001000000:6989", "0A", 20);
        fs::write(tree.0.join("20/net/tcp"), HEADING).unwrap();
        fs::write(tree.0.join("20/net/tcp6"), table).unwrap();
        let host = Host::of_proc(&tree.0);
        let found = host.listeners(SEARCH).unwrap();
        assert_eq!(found.listeners, [listener(20, "mongod", "[::1]:27017", ListenerOrigin::Socket)]);
        assert_eq!(found.incomplete.iter().map(|one| one.pid).collect::<Vec<_>>(), [10]);
        assert_eq!(super::open_ports(&tree.0).unwrap(), [27_017].into());
        assert_eq!(super::serving(&tree.0, &[10, 20], &|port| port == 27_017), [20]);
        // It ended after its first table had been read.
        let ended = tree.process(30, "mongod", &[]);
        assert!(SocketTable::read(&ended.join("net")).failure.is_some());
        fs::write(ended.join("net/tcp"), HEADING).unwrap();
        assert!(SocketTable::read(&ended.join("net")).failure.is_none(), "a kernel without IPv6");
    }

    #[test]
    fn without_permission_the_port_comes_from_the_command_line() {
        let tree = SocketTree::new("cmdline");
        for (pid, arguments) in [
            (1, ["mongod", "--port", "27018"].as_slice()),
            (2, &["/opt/mongod", "--replSet", "--port=27019"]),
            (3, &["mongod", "--portable", "5", "--port", "x", "--port", "0", "--port"]),
        ] {
            let directory = tree.process(pid, "mongod", arguments);
            // Root may read everything, so this stands for "cannot be listed": not a directory.
            fs::write(directory.join("fd"), "").unwrap();
        }
        let found = Host::of_proc(&tree.0).listeners(SEARCH).unwrap();
        assert_eq!(
            found.listeners,
            [
                listener(1, "mongod", "0.0.0.0:27018", ListenerOrigin::CommandLine),
                listener(2, "mongod", "0.0.0.0:27019", ListenerOrigin::CommandLine),
            ]
        );
        assert_eq!(found.incomplete.iter().map(|i| i.pid).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(found.incomplete[0].to_string().contains("run as root"), "{}", found.incomplete[0]);
    }

    #[test]
    fn broken_tables_are_skipped() {
        let tree = SocketTree::new("lies");
        let server = tree.process(10, "mongod", &[]);
        open_sockets(&server, &[1, 2, 3]);
        let lies = ["\n", "0: 1 2 0A\n", "\u{fffd}\u{fffd} 0100007F\n"].concat()
            + &row("0100007:6989", "0A", 1)
            + &row("ééé:6989", "0A", 2)
            + &row("0100007F:16989", "0A", 3);
        fs::write(server.join("net/tcp"), lies).unwrap();
        let found = Host::of_proc(&tree.0).listeners(SEARCH).unwrap();
        assert_eq!((found.listeners, found.incomplete), (vec![], vec![]));
        fs::remove_file(server.join("net/tcp")).unwrap();
        assert_eq!(
            Host::of_proc(&tree.0).listeners(SEARCH).unwrap().incomplete[0].reason.split(' ').next(),
            Some("net/tcp")
        );
    }

    #[test]
    fn this_process_is_found_with_its_real_ports() {
        let v4 = TcpListener::bind("127.0.0.1:0").unwrap();
        let v6 = TcpListener::bind("[::1]:0").ok();
        let executable = std::env::current_exe().unwrap();
        let name = executable.file_name().unwrap().to_str().unwrap();
        let found = Host::live().listeners(ListenerSearch { names: &[name], port_options: &[] }).unwrap();
        let mine: Vec<_> =
            found.listeners.iter().filter(|l| l.pid == std::process::id()).map(|l| l.address).collect();
        assert!(mine.contains(&v4.local_addr().unwrap()), "{found:?}");
        if let Some(v6) = v6 {
            assert!(mine.contains(&v6.local_addr().unwrap()), "{found:?}");
        }
    }
}
