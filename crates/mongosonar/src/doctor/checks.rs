//! Checks what commands need in addition to packets: eBPF, other users' processes, logs, servers, io_uring.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use sonar_sys::Host;
use sonar_sys::capabilities::{inspection_remedy, tracing_remedy};
use sonar_sys::disk::Uring;
use sonar_sys::ebpf::{
    OWN_PROCESS_NAMESPACE, PROCESS_NAMESPACE_REMEDY, TotalsRoom, Trace, TraceError, TraceMode, Tracer,
    is_in_own_process_namespace,
};
use sonar_sys::host::listeners::Listener;
use sonar_sys::host::process::Process;
use sonar_sys::privileges::{self, RootObstacle};
use sonar_sys::tls::{PlaintextSource, TlsRoom, TlsTracer};
use sonar_view::doctor::DoctorLine;

use crate::capture::tls::TlsLibrary;
use crate::servers;
use crate::servers::configuration::ServerSetting;
use crate::servers::log_location::{self, LocatedLog};
use crate::servers::withheld::WithheldReader;

/// What reads the log of a server that writes it into no file.
const WITHOUT_FILE: &str =
    "journalctl -u mongod -o cat | mongosonar logs report -, or the same with docker logs";
/// What reads a log that is not where the server says it is.
const OTHER_FILE: &str = "name the file of the log: mongosonar logs report FILE, mongosonar queries --log FILE, or log in agent.toml";
/// How long a server may take to accept a connection.
const PATIENCE: Duration = Duration::from_millis(500);

/// What is tried with all privileges, before anything is read that others may have chosen.
pub struct PrivilegedChecks {
    tracing: DoctorLine,
    disk: DoctorLine,
    confinement: DoctorLine,
    /// Whether the programs can be loaded that read encrypted connections.
    tls: Result<(), TraceError>,
}

impl PrivilegedChecks {
    /// Tries it.
    pub fn run(host: &Host) -> Self {
        Self {
            tracing: tracing(),
            disk: disk(host),
            confinement: confinement(host),
            tls: TlsTracer::load(PlaintextSource::Library, TlsRoom::COMMAND).map(drop),
        }
    }

    /// All checks. `between` gives up the network, before files are read that servers name.
    pub fn with_servers(
        self,
        host: &Host,
        listeners: &[Listener],
        between: impl FnOnce(),
    ) -> Vec<DoctorLine> {
        let mut servers = servers::mongodb(host);
        let (processes, profiler) = (processes(&servers), profiler(listeners));
        between();
        for silent in WithheldReader::default().read_arguments(&mut servers) {
            eprintln!("mongosonar: {silent}");
        }
        let (logs, tls) = (logs(&servers), tls(&servers, &self.tls));
        vec![self.tracing, processes, logs, tls, profiler, self.disk, self.confinement]
    }
}

/// `io live`, `io record`: tried on this process.
pub fn tracing() -> DoctorLine {
    let line = DoctorLine::new("ebpf", "io live, io record");
    let trace = Trace {
        processes: &[std::process::id()],
        program: None,
        mode: TraceMode::Totals(TotalsRoom::COMMAND),
        way: None,
        pseudo: false,
    };
    match Tracer::start(&trace) {
        // The programs run, but find no process.
        Ok(_) if is_in_own_process_namespace() => {
            line.warning(OWN_PROCESS_NAMESPACE.to_owned(), PROCESS_NAMESPACE_REMEDY.to_owned())
        }
        Ok(tracer) => line.ok(format!("accesses to files can be traced, by {}", tracer.way())),
        Err(TraceError::Permission(why)) => {
            line.problem(format!("no permission to load eBPF programs: {why}"), tracing_remedy())
        }
        Err(error) => DoctorLine { verdict: "problem", found: error.to_string(), ..line },
    }
}

/// Which ports and files another user's process has open.
fn processes(servers: &[Process]) -> DoctorLine {
    let line = DoctorLine::new("processes", "queries without --port, io live, io record");
    let hidden = |server: &&Process| {
        let open = fs::read_dir(server.folder().join("fd"));
        open.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    };
    let hidden: Vec<_> =
        servers.iter().filter(hidden).map(|server| format!("{} ({})", server.name, server.pid)).collect();
    match (servers.len(), hidden.is_empty()) {
        (0, _) => line.ok("no mongod or mongos runs here".to_owned()),
        (_, true) => line.ok("what mongod and mongos have open can be seen".to_owned()),
        _ => {
            let found = format!(
                "{}: this user may not see their sockets and files, so ports, logs and data folders may be unknown",
                hidden.join(", ")
            );
            line.warning(found, inspection_remedy())
        }
    }
}

/// `logs report`: the log of each server.
fn logs(servers: &[Process]) -> DoctorLine {
    let line = DoctorLine::new("log", "logs report");
    if servers.is_empty() {
        return line.ok("no mongod or mongos runs here; any log can be named".to_owned());
    }
    let (mut readable, mut unread, mut remedies) = (Vec::new(), Vec::new(), Vec::new());
    let mut withheld = WithheldReader::default();
    for server in servers {
        // Its file system may not answer, neither when the log is opened nor when it is closed.
        let opened = withheld.read(server, |server| {
            let log = LocatedLog::of_process(&Host::live(), server);
            let path = log.as_ref().map(LocatedLog::path).unwrap_or_default();
            (path, log.map(|log| log.open().map(drop)))
        });
        let (path, opened) = match opened {
            Ok(found) => found,
            Err(_) => {
                unread.push(format!("{} ({}): its log does not answer", server.name, server.pid));
                remedies.push(OTHER_FILE.to_owned());
                continue;
            }
        };
        match opened {
            Ok(Ok(())) => readable.push(path.display().to_string()),
            Ok(Err(error)) => {
                unread.push(log_location::unreadable(&path, &error));
                remedies.push(match error.kind() {
                    ErrorKind::PermissionDenied => format!("sudo mongosonar logs report {}", path.display()),
                    _ => OTHER_FILE.to_owned(),
                });
            }
            Err(reason) => {
                unread.push(format!("{} ({}): {reason}", server.name, server.pid));
                remedies.push(WITHOUT_FILE.to_owned());
            }
        }
    }
    remedies.dedup();
    let readable = (!readable.is_empty()).then(|| format!("can be read: {}", readable.join(", ")));
    if unread.is_empty() {
        return line.ok(readable.unwrap_or_default());
    }
    let found: Vec<String> = unread.into_iter().chain(readable).collect();
    let remedy = (!remedies.is_empty()).then(|| remedies.join("; "));
    DoctorLine { verdict: "warning", found: found.join("; "), remedy, ..line }
}

/// `queries`: whether encrypted connections can be read inside the servers, if the programs can be loaded that do it.
fn tls(servers: &[Process], loaded: &Result<(), TraceError>) -> DoctorLine {
    let line = DoctorLine::new("tls", "queries, why");
    let mut withheld = WithheldReader::default();
    let mut mode = |server: &Process| {
        let read = |server: &Process| ServerSetting::TLS_MODE.read(&Host::live(), server);
        let argument = ServerSetting::TLS_MODE.argument(server).map(str::to_owned);
        argument.or_else(|| withheld.read(server, read).ok().flatten())
    };
    let encrypted: Vec<(&Process, String)> = servers
        .iter()
        .filter_map(|server| Some((server, mode(server)?)))
        .filter(|(_, mode)| mode.starts_with("require") || mode.starts_with("prefer"))
        .map(|(server, mode)| (server, format!("{} ({}): {mode}", server.name, server.pid)))
        .collect();
    if encrypted.is_empty() {
        return line.ok("no server here is known to encrypt".to_owned());
    }
    let refused = loaded.as_ref().err();
    let (mut read, mut unread) = (Vec::new(), Vec::new());
    for (server, said) in &encrypted {
        // Its mappings tell which library it is.
        let library = withheld.read(server, |server| {
            TlsLibrary::of(server.pid)
                .map(|library| (library.name().to_owned(), library.sites(false).map(drop)))
        });
        match (refused, library) {
            (Some(error), _) => unread.push(format!("{said}: {error}")),
            (None, Err(_)) => unread.push(format!("{said}: it does not answer")),
            (None, Ok(None)) => unread.push(format!("{said}: no OpenSSL was found in it")),
            (None, Ok(Some((name, sites)))) => match sites {
                Ok(()) => read.push(format!("{said}, in {name}")),
                Err(error) => unread.push(format!("{said}: {error:#}")),
            },
        }
    }
    let read = (!read.is_empty())
        .then(|| format!("encrypted connections can be read inside the server: {}", read.join(", ")));
    if unread.is_empty() {
        return line.ok(read.unwrap_or_default());
    }
    let unread = format!("encrypted connections cannot be read: {}", unread.join(", "));
    let found: Vec<String> = [Some(unread), read].into_iter().flatten().collect();
    let others =
        "mongosonar queries --tls-keylog FILE, mongosonar profiler tail, or mongosonar logs report FILE";
    let remedy = match refused {
        Some(TraceError::Permission(_)) => format!("{}; or {others}", tracing_remedy()),
        _ => others.to_owned(),
    };
    line.warning(found.join("; "), remedy)
}

/// `profiler …`, `io reorder`, `--uri`: whether the servers here accept connections.
fn profiler(listeners: &[Listener]) -> DoctorLine {
    let line = DoctorLine::new("connection", "profiler, io reorder, --uri");
    let here = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), address.port()),
        _ => address,
    };
    if listeners.is_empty() {
        return line.ok("no server to connect to is known here; name one with --uri".to_owned());
    }
    let (mut taken, mut refused, mut remedies) = (Vec::new(), Vec::new(), Vec::new());
    for listener in listeners {
        let address = here(listener.address);
        let named = format!("mongodb://{address} ({} {})", listener.name, listener.pid);
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(_) => taken.push(named),
            Err(_) => {
                refused.push(named);
                remedies.push(format!("mongosonar profiler status --uri mongodb://{address}"));
            }
        }
    }
    let taken = (!taken.is_empty()).then(|| format!("connections are taken: {}", taken.join(", ")));
    if refused.is_empty() {
        return line.ok(taken.unwrap_or_default());
    }
    let refused = format!("no connection within {} ms: {}", PATIENCE.as_millis(), refused.join(", "));
    let found: Vec<String> = [Some(refused), taken].into_iter().flatten().collect();
    line.warning(found.join("; "), remedies.join("; "))
}

/// `disk bench`: its first engine, and what `disk check` and `disk stat` read.
fn disk(host: &Host) -> DoctorLine {
    let line = DoctorLine::new("disk", "disk bench, check, stat");
    let unreadable = ["/proc/diskstats", "/proc/self/mountinfo", "/sys/block"];
    if let Some(path) = unreadable.iter().find(|path| fs::metadata(host.path(path)).is_err()) {
        return line
            .warning(format!("{path} cannot be read"), "mount /proc and /sys into the container".to_owned());
    }
    match Uring::available() {
        Ok(()) => line.ok("io_uring works; /proc and /sys can be read".to_owned()),
        Err(error) => line.warning(error.to_string(), "mongosonar disk bench --engine threads".to_owned()),
    }
}

/// Which privileges can be dropped.
fn confinement(host: &Host) -> DoctorLine {
    let line = DoctorLine::new("confinement", "queries, io live, io record");
    let seccomp = host.path("proc/sys/kernel/seccomp/actions_avail").exists();
    match (seccomp, privileges::landlock()) {
        (true, Some(_)) if let Some(missing) = privileges::missing_to_leave_root() => line.warning(
            format!("as root it cannot become nobody, because {missing}: it stays root without capabilities"),
            match missing {
                RootObstacle::Capability(_) => {
                    "add the capabilities SETUID and SETGID: --cap-add SETUID --cap-add SETGID".to_owned()
                }
                RootObstacle::Nobody => {
                    "give the user namespace the ids up to 65534, in /etc/subuid and /etc/subgid, \
                                         or run it outside"
                        .to_owned()
                }
            },
        ),
        (true, Some(version)) => {
            line.ok(format!("privileges are dropped after the start: seccomp, Landlock version {version}"))
        }
        (seccomp, landlock) => {
            let lacks = [(seccomp, "seccomp"), (landlock.is_some(), "Landlock")];
            let lacks: Vec<_> = lacks.iter().filter(|one| !one.0).map(|one| one.1).collect();
            DoctorLine {
                verdict: "warning",
                found: format!("this kernel offers no {}", lacks.join(", no ")),
                ..line
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use sonar_sys::host::listeners::ListenerOrigin;

    use super::*;

    #[test]
    fn every_command_is_among_those_that_are_checked() {
        let host = Host::live();
        let lines = PrivilegedChecks::run(&host).with_servers(&host, &[], || {});
        for command in [
            "queries",
            "io live",
            "io record",
            "io reorder",
            "logs report",
            "profiler",
            "disk bench",
            "check",
            "stat",
        ] {
            assert!(lines.iter().any(|line| line.commands.contains(command)), "{command}");
        }
        assert!(
            lines
                .iter()
                .all(|line| line.verdict == "ok" || line.verdict == "warning" || line.verdict == "problem")
        );
    }

    #[test]
    fn what_a_server_encrypts_is_read_in_its_library() {
        let loaded = PrivilegedChecks::run(&Host::live()).tls;
        let line_of = |command: &mut Command| {
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
            if command.get_program() == "openssl" {
                // It has its library once it says something.
                let _ = child.stdout.as_mut()?.read(&mut [0]);
            }
            let mut server = Host::live().process(child.id(), &["sleep", "openssl"])?;
            server.set_arguments(["mongod", "--tlsMode", "requireTLS"].map(str::to_owned).to_vec());
            let line = tls(&[server], &loaded);
            child.kill().ok()?;
            child.wait().ok()?;
            Some(line)
        };
        let without = line_of(Command::new("sleep").arg("600")).unwrap();
        assert_eq!(without.verdict, "warning");
        assert!(without.remedy.unwrap().contains("--tls-keylog"));
        let Some(with) =
            line_of(Command::new("openssl").args(["s_server", "-nocert", "-accept", "127.0.0.1:0"]))
        else {
            println!("skipped: openssl is not installed");
            return;
        };
        if tracing().verdict == "ok" {
            assert!(without.found.contains("no OpenSSL was found"), "{}", without.found);
            assert_eq!(with.verdict, "ok", "{}", with.found);
            assert!(with.found.contains("requireTLS, in libssl"), "{}", with.found);
        } else {
            assert_eq!(with.verdict, "warning", "{}", with.found);
        }
    }

    #[test]
    fn a_log_that_is_no_file_gets_a_remedy() {
        let folder = std::env::temp_dir().join(format!("mongosonar-doctor-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("out");
        fs::write(&path, "2018-11-21T21:26:53.420+0000 I COMMAND\n").unwrap();
        let log_of = |output: std::process::Stdio| {
            let mut command = std::process::Command::new("sleep");
            let mut child = command.arg("60").stdout(output).spawn().unwrap();
            let mut server = Host::live().process(child.id(), &["sleep"]).unwrap();
            server.set_arguments(["mongod", "--logpath", "/proc/self/fd/1"].map(str::to_owned).to_vec());
            let line = logs(&[server]);
            child.kill().unwrap();
            child.wait().unwrap();
            line
        };
        let piped = log_of(std::process::Stdio::piped());
        assert_eq!(piped.verdict, "warning");
        assert!(piped.found.contains("standard output, which is a pipe"), "{}", piped.found);
        assert!(piped.remedy.unwrap().contains("mongosonar logs report -"));
        let file = log_of(fs::File::options().append(true).open(&path).unwrap().into());
        assert!(file.verdict == "ok" && file.found.starts_with("can be read: /proc/"), "{}", file.found);
        fs::write(&path, "hello\n").unwrap();
        let other = log_of(fs::File::options().append(true).open(&path).unwrap().into());
        assert!(other.found.contains("does not look like a log"), "{}", other.found);
        assert!(other.remedy.unwrap().contains("--log FILE"), "what to do with a file that is none");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_server_that_takes_no_connection_is_named() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listener =
            |address| Listener { pid: 1, name: "mongod".into(), address, origin: ListenerOrigin::Socket };
        let line = profiler(&[listener(free)]);
        assert_eq!(line.verdict, "warning");
        assert!(line.remedy.unwrap().ends_with(&format!("mongodb://{free}")));
        let [one, other] = [(), ()].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let [one, other] = [&one, &other].map(|taken| taken.local_addr().unwrap());
        let everywhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), one.port());
        let line = profiler(&[listener(everywhere), listener(other)]);
        assert_eq!(line.verdict, "ok");
        let each = format!("connections are taken: mongodb://{one} (mongod 1), mongodb://{other} (mongod 1)");
        assert_eq!(line.found, each, "each server is named");
        let line = profiler(&[listener(other), listener(free)]);
        let both = format!(
            "no connection within 500 ms: mongodb://{free} (mongod 1); connections are taken: \
                            mongodb://{other} (mongod 1)"
        );
        assert_eq!((line.verdict, line.found), ("warning", both));
    }
}
