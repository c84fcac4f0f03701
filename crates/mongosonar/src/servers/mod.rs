//! Finds processes that are servers; the only place that names MongoDB's programs.

pub mod at_port;
pub mod configuration;
pub mod data_folders;
pub mod file_names;
pub mod files;
pub mod log_location;
pub mod own_files;
pub mod samples;
pub mod tracing;
pub mod withheld;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;

use sonar_core::Timestamp;
use sonar_core::words::plural;
use sonar_sys::Host;
use sonar_sys::clock;
use sonar_sys::host::listeners::{FoundListeners, Incomplete, ListenerSearch};
use sonar_sys::host::placed;
use sonar_sys::host::process::{Process, RunningProgram};

use self::at_port::ServerPort;

/// The most servers of a host that are followed.
pub const MAX_SERVERS: usize = 128;
/// The program that stores data.
pub const MONGOD: &str = "mongod";
/// The programs of MongoDB that serve clients, and write its log.
const MONGODB: [&str; 2] = [MONGOD, "mongos"];
/// Programs that serve MongoDB's protocol.
const SERVING: [&str; 3] = [MONGOD, "mongos", "ferretdb"];
/// Options that name a port.
const PORT_OPTIONS: [&str; 1] = ["--port"];

/// Every running mongod.
pub fn mongods(host: &Host) -> Vec<Process> {
    host.processes(&[MONGOD])
}

/// Says that there is no place for so many servers.
pub fn not_traced(count: usize, places: usize) -> String {
    let (count, verb) = (plural(count as u64, "server"), if count == 1 { "is" } else { "are" });
    format!("{count} {verb} not traced (at most {places} can be)")
}

/// The numbers of these processes: first of those that get one of so many places, then of the others.
pub fn in_order_of_places(processes: Vec<Process>, places: usize) -> Vec<u32> {
    let all: Vec<u32> = processes.iter().map(|process| process.pid).collect();
    let mut ordered: Vec<u32> = placed(processes, places).iter().map(|process| process.pid).collect();
    let others: Vec<u32> = all.into_iter().filter(|process| !ordered.contains(process)).collect();
    ordered.extend(others);
    ordered
}

/// Those of these processes that have one of so many places: servers proven by their program file first, and each user as
/// many as any other. A process that is no server counts as what it calls itself.
pub fn with_places(host: &Host, processes: impl IntoIterator<Item = u32>, places: usize) -> Vec<u32> {
    let known = |pid| proven_to_serve(host, pid).or_else(|| whatever(host, pid));
    placed(processes.into_iter().filter_map(known), places).iter().map(|process| process.pid).collect()
}

/// The process with this number, whatever its program is.
pub fn whatever(host: &Host, pid: u32) -> Option<Process> {
    let name = host.text(&format!("proc/{pid}/comm"))?;
    host.process(pid, &[name.as_str()])
}

/// The process with this number, if it is a running mongod.
pub fn mongod(host: &Host, pid: u32) -> Option<Process> {
    host.process(pid, &[MONGOD])
}

/// Every running mongod and mongos.
pub fn mongodb(host: &Host) -> Vec<Process> {
    host.processes(&MONGODB)
}

/// The process with this number, if it is a running mongod or mongos.
pub fn server(host: &Host, pid: u32) -> Option<Process> {
    host.process(pid, &MONGODB)
}

/// Every running mongod and mongos, by its program file: what a process calls itself does not count.
pub fn proven(host: &Host) -> Vec<Process> {
    host.processes_running(&MONGODB)
}

/// Every running mongod and mongos by its program file, also one that does not listen yet. Of a process of which this one
/// may not see the program, as in most containers, the name counts.
pub fn proven_or_hidden(host: &Host) -> Vec<Process> {
    let mut servers = mongodb(host);
    servers.retain(|one| is_proven_or_hidden(host, one.pid));
    servers
}

/// Whether the process with this number, which runs, is one of [`proven_or_hidden`] by its program file.
fn is_proven_or_hidden(host: &Host, pid: u32) -> bool {
    is_proven(host, pid) || is_hidden(host, pid)
}

/// Those of these processes that run, each with its program, if [`proven_or_hidden`] has them. The program is looked at
/// before it is proven: if it is still the same one later, it is the one that was proven.
pub fn proven_again(host: &Host, processes: &[u32]) -> Vec<RunningProgram> {
    let running = processes.iter().filter_map(|process| RunningProgram::now(*process).ok());
    running.filter(|program| is_proven_or_hidden(host, program.pid)).collect()
}

/// Those of [`proven_or_hidden`] that hold a socket that listens. Where this process may not see the open files of one, it
/// counts, too.
pub fn proven_to_listen(host: &Host) -> Vec<Process> {
    let found = listeners(host).unwrap_or_default();
    let mut servers = proven_or_hidden(host);
    servers.retain(|one| ServerPort::of(one.pid, &found) != ServerPort::Closed);
    servers
}

/// Whether this process may not see which program another one runs.
fn is_hidden(host: &Host, pid: u32) -> bool {
    fs::read_link(host.path(&format!("proc/{pid}/exe"))).is_err()
}

/// Says of how many servers ports may be missing, because they have too many open files to look at; `None` if of none.
pub fn ports_missing(found: &FoundListeners) -> Option<String> {
    let cut = found.incomplete.iter().filter(|one| one.is_cut).count();
    let servers = plural(cut as u64, "server");
    (cut > 0).then(|| format!("ports of {servers} may be missing: there are too many open files to look at"))
}

/// Names the servers that run, but whose ports this process may not see, with the reasons; `None` if there are none.
pub fn ports_unknown(found: &FoundListeners) -> Option<String> {
    let said = |one: &Incomplete| {
        format!("{} ({}) runs here, but its ports are not known: {}", one.name, one.pid, one.reason)
    };
    let all: Vec<String> = found.incomplete.iter().map(said).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// A port on which a process listens.
#[derive(Copy, Clone, Debug)]
pub struct ListeningPort {
    /// The process.
    pub pid: u32,
    /// The port.
    pub port: u16,
}

/// Those of these ports on which programs listen that serve MongoDB's protocol, each once. The program file decides, or the
/// name of the process if this one may not see the file. The ports of all users come by turns, so that each user gets the
/// same share where there is room only for the first ones.
pub fn ports_of_servers(host: &Host, all: impl IntoIterator<Item = ListeningPort>) -> Vec<u16> {
    let mut of_user: HashMap<Option<u32>, usize> = HashMap::new();
    let mut ranked = BTreeSet::new();
    for ListeningPort { pid, port } in all {
        if proven_to_serve(host, pid).is_some() || is_hidden(host, pid) {
            let rank = of_user.entry(host.user(pid)).or_default();
            *rank += 1;
            ranked.insert((*rank, port));
        }
    }
    let mut seen = BTreeSet::new();
    ranked.into_iter().map(|(_, port)| port).filter(|port| seen.insert(*port)).collect()
}

/// Whether the process with this number is a running mongod or mongos, by its program file.
pub fn is_proven(host: &Host, pid: u32) -> bool {
    host.process_running(pid, &MONGODB).is_some()
}

/// The ports of all programs that serve MongoDB's protocol.
///
/// # Errors
/// Processes cannot be listed.
pub fn listeners(host: &Host) -> io::Result<FoundListeners> {
    host.listeners(ListenerSearch { names: &SERVING, port_options: &PORT_OPTIONS })
}

/// Whether the process with this number is a program that serves MongoDB's protocol.
pub fn is_serving(host: &Host, pid: u32) -> bool {
    host.process(pid, &SERVING).is_some()
}

/// The process with this number, if it is a program that serves MongoDB's protocol, by its program file.
pub fn proven_to_serve(host: &Host, pid: u32) -> Option<Process> {
    host.process_running(pid, &SERVING)
}

/// The ports on which programs that serve MongoDB's protocol listen, by their program files and by the sockets that they
/// hold: what a process says of itself does not count.
pub fn proven_ports(host: &Host) -> Vec<u16> {
    let proven: Vec<u32> = host.processes_running(&SERVING).iter().map(|process| process.pid).collect();
    host.ports_of(&proven)
}

/// The ports of every mongod.
///
/// # Errors
/// Processes cannot be listed.
pub fn mongod_listeners(host: &Host) -> io::Result<FoundListeners> {
    host.listeners(ListenerSearch { names: &[MONGOD], port_options: &PORT_OPTIONS })
}

/// Whether the process with this number that started at `started` (in clock ticks since boot) has ended. A zombie has:
/// only nobody has asked for its exit code.
pub fn has_ended(host: &Host, pid: u32, started: u64) -> bool {
    host.stat(pid).is_none_or(|stat| stat.started != started || matches!(stat.state, b'Z' | b'X'))
}

/// Whether it has ended or is about to: its files cannot be reached any more.
pub fn is_ending(host: &Host, pid: u32, started: u64) -> bool {
    has_ended(host, pid, started) || host.stat(pid).is_none_or(|stat| stat.is_ending)
}

/// When a process started, by the clock of this host; `started` is in clock ticks since boot.
pub fn started_at(started: u64, now: Timestamp) -> Timestamp {
    let ago = clock::since_boot().saturating_sub(clock::ticks(started));
    let ago = u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX);
    now.minus_ns(ago)
}

/// Before which time a connection of a server that was seen to have ended at `now` was silent: what is later may be to
/// another process at its port, which has started at one of these times.
pub fn silent_before(now: Timestamp, others: impl Iterator<Item = Timestamp>) -> Timestamp {
    others.fold(now, Timestamp::min)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_connections_of_the_next_process_at_a_port_do_not_end() {
        let at = |second| Timestamp::from_unix(second, 0);
        assert_eq!(silent_before(at(100), std::iter::empty()), at(100));
        // It had started before the end of the first one was noticed.
        assert_eq!(silent_before(at(100), [at(97)].into_iter()), at(97));
        // Another process may serve the port on another address.
        assert_eq!(silent_before(at(100), [at(97), at(5)].into_iter()), at(5));
    }

    #[test]
    fn servers_with_too_many_open_files_are_counted_and_those_that_may_not_be_seen_are_not() {
        let incomplete =
            |is_cut| Incomplete { pid: 5, name: MONGOD.to_owned(), reason: String::new(), is_cut };
        let said = |cut: &[bool]| {
            let incomplete = cut.iter().map(|is_cut| incomplete(*is_cut)).collect();
            ports_missing(&FoundListeners { listeners: Vec::new(), incomplete })
        };
        assert_eq!((said(&[]), said(&[false])), (None, None));
        assert!(said(&[true, false, true]).unwrap().starts_with("ports of 2 servers may be missing"));
    }

    #[test]
    fn a_process_has_ended_when_another_has_its_number() {
        let host = Host::live();
        let own = std::process::id();
        let started = host.stat(own).expect("this process").started;
        assert!(!has_ended(&host, own, started));
        assert!(has_ended(&host, own, started + 1));
        assert!(has_ended(&host, u32::MAX, started));
    }
}
