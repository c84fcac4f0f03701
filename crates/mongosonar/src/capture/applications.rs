//! Who is on connections that were open before mongosonar started: from the logs of the servers on this machine,
//! from a log that was named, or from a server. Clients are identified by address and port.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use sonar_core::Timestamp;
use sonar_decode::log::{LogEnd, MAX_CONNECTIONS, Remotes};
use sonar_decode::{EndedClient, Shared};
use sonar_mongo::{Server, Target};
use sonar_sys::Host;
use sonar_sys::host::listeners::FoundListeners;
use sonar_sys::host::process::Process;
use sonar_sys::host::process_files::ProcessFiles;
use sonar_sys::host::regular;
use sonar_view::kit::{Zone, plural};

use super::notice::Notice;
use crate::confinement::privileges;
use crate::confinement::reading_apart::{MAX_READ_APART, read_each};
use crate::confinement::start_gate::{EarlyThread, StartGate};
use crate::confinement::thread_starter::ThreadStarter;
use crate::servers;
use crate::servers::log_location::{LocatedLog, is_log};

/// The most bytes to read of one server's logs, counted from the end. It is large because pools live long: they
/// identified themselves when they connected.
const MOST_BYTES: u64 = 256 << 20;
/// A longer line says nothing about a connection: what a client says of itself has at most 512 bytes.
const MOST_LINE_BYTES: u64 = 64 << 10;
/// Bytes read at once.
const PIECE: usize = 256 << 10;
/// The most logs of one server: the one that is written, and older ones beside it.
const MOST_FILES: usize = 8;
/// How long the capture waits for the answer. A later one is used from then on.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Files that hold one server's log, opened, the oldest first.
type ServerLog = Vec<File>;

/// The port of a server that listens on a single one.
fn only_port(listeners: &FoundListeners, pid: u32) -> Option<u16> {
    let mut ports = listeners.listeners.iter().filter(|one| one.pid == pid).map(|one| one.address.port());
    let port = ports.next()?;
    // With several it is not known which one a client of the log came to.
    ports.all(|other| other == port).then_some(port)
}

/// Where to look up the applications.
#[derive(Default)]
pub struct Lookup {
    logs: ClientLogs,
    server: Option<Target>,
    /// Whether the threads drop their privileges first.
    confined: bool,
    starter: ThreadStarter,
}

/// Logs of servers.
struct ClientLogs {
    /// With the port of the server, where it is known.
    logs: Vec<(Option<u16>, ServerLog)>,
    /// The logs that were named, in the order of `logs`.
    named: Vec<String>,
    /// Of the connections of a log, this share has room: a half, a third, ...; 1: all of them.
    share: usize,
}

impl Default for ClientLogs {
    fn default() -> Self {
        Self { logs: Vec::new(), named: Vec::new(), share: 1 }
    }
}

impl Lookup {
    /// Opens the logs that are named, or else those of the servers on the host, which a helper reads. If `confined`, the
    /// thread drops its privileges. Call it before any thread is started.
    ///
    /// # Errors
    /// A named log cannot be opened.
    pub fn open(named: &[PathBuf], confined: bool) -> Result<Self> {
        let mut logs = Vec::new();
        for path in named {
            let file = regular::open_no_device(path)
                .with_context(|| format!("cannot open the log {}", path.display()))?;
            logs.push((None, vec![file]));
        }
        if named.is_empty() {
            logs = logs_of_servers(&Host::live());
        }
        let named = named.iter().map(|path| crate::input::name(path)).collect();
        let logs = ClientLogs { logs, named, share: 1 };
        Ok(Self { logs, confined, ..Self::default() })
    }

    /// Whether the thread drops its privileges first.
    pub fn confined(self, confined: bool) -> Self {
        Self { confined, ..self }
    }

    /// Room for a share of the connections of a log.
    pub fn share(self, share: usize) -> Self {
        Self { logs: ClientLogs { share, ..self.logs }, ..self }
    }

    /// The most bytes that looking them up takes with such a share, besides what `Shared` keeps.
    #[cfg(test)]
    pub const fn max_memory(share: usize) -> usize {
        Remotes::max_memory(share) + PIECE + 2 * MOST_LINE_BYTES as usize
    }

    /// Adds the files that hold the log of the server on this port, the oldest first.
    pub fn add_log(&mut self, port: u16, files: Vec<File>) {
        self.logs.logs.push((Some(port), files));
    }

    /// Asks this server too.
    pub fn with_server(self, server: Option<Target>) -> Self {
        Self { server, ..self }
    }

    /// Has the thread that reads logs started by this one.
    pub fn with_starter(self, starter: ThreadStarter) -> Self {
        Self { starter, ..self }
    }

    /// Looks them up once `gate` is open, and complains of each error: in a thread that reads the logs, and in one that asks
    /// the server, which knows more than its log. The receiver disconnects when both have ended.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(
        self,
        shared: Arc<Shared>,
        complaints: Sender<Notice>,
        gate: &StartGate,
    ) -> Result<Receiver<()>> {
        let (done, is_done) = channel();
        let (all_read, reading) = channel::<()>();
        let Self { logs, server, confined, starter } = self;
        if let Some(server) = server {
            let (shared, complaints) = (shared.clone(), complaints.clone());
            let done = done.clone();
            let ask = move |server: Target| {
                let _done = done;
                // It is an error that the other one has ended.
                reading.recv().ok();
                let clients = Server::connect(server, 1).and_then(|server| server.clients());
                let complaint = match clients {
                    Ok(clients) => left_out(shared.add_clients(None, clients) as u64),
                    Err(error) => Some(format!("applications of open connections: {error}")),
                };
                complaint.map(|what| complaints.send(Notice::Complaint(what)).ok());
            };
            gate.start_client("applications", server, confined, ask).context("cannot start a thread")?;
        }
        if logs.logs.is_empty() {
            return Ok(is_done);
        }
        let read = move || {
            let (_done, _all_read) = (done, all_read);
            logs.read(&shared, &|what| drop(complaints.send(Notice::Complaint(what))));
        };
        let thread = EarlyThread { name: "client-logs", starter: &starter, confined };
        gate.start(thread, privileges::confine_follower, read).context("cannot start a thread")?;
        Ok(is_done)
    }
}

impl ClientLogs {
    /// Adds the clients that they name, and complains of each error.
    fn read(self, shared: &Shared, complain: &dyn Fn(String)) {
        for (at, (port, log)) in self.logs.into_iter().enumerate() {
            let mut remotes = Remotes::new(None).share(self.share);
            if let Err(error) = read_files(log, &mut remotes) {
                complain(format!("applications of open connections: cannot read a log: {error}"));
            }
            if let Some(name) = self.named.get(at)
                && remotes.end_of_log().span.is_none()
            {
                complain(not_a_log(name));
            }
            let refused = remotes.refused();
            if let Some(line) = left_out(refused + shared.add_clients(port, remotes.into_known()) as u64) {
                complain(line);
            }
        }
    }
}

/// A log that belongs to a capture file.
#[derive(Clone, Debug)]
pub struct CaptureLog {
    /// Where it is.
    pub path: PathBuf,
    /// The port of its server, if that is known even where no line states it.
    pub server_port: Option<u16>,
}

impl CaptureLog {
    /// Logs that were named: which servers they are of, only their lines may say.
    pub fn named(paths: &[PathBuf]) -> Vec<Self> {
        paths.iter().map(|path| Self { path: path.clone(), server_port: None }).collect()
    }
}

/// Logs that were read for a capture file.
#[derive(Debug, Default)]
pub struct ReadLogs {
    /// The name of each, and when its first and its last line were written; `None`: it is no log of a server.
    files: Vec<(String, Option<(Timestamp, Timestamp)>)>,
    /// Connections that end in the time of the capture or later.
    ended: Vec<EndedClient>,
}

impl ReadLogs {
    /// The connections that end, as the logs say, from the beginning of the capture on; once.
    pub fn take_ended(&mut self) -> Vec<EndedClient> {
        std::mem::take(&mut self.ended)
    }

    /// Why a log has named no connection of a capture from `begin` to `end`, a note for each. `late` is the number of
    /// connections that were open when the capture began.
    pub fn notes(
        &self,
        is_used: bool,
        late: u64,
        (begin, end): (Timestamp, Timestamp),
        zone: &Zone,
    ) -> Vec<String> {
        let time = |time| zone.show_seconds(time);
        let why = |(name, span): &(String, Option<(Timestamp, Timestamp)>)| {
            let Some((first, last)) = *span else { return Some(not_a_log(name)) };
            let why = if is_used {
                return None;
            } else if last < begin {
                format!("ends at {}, before the capture begins at {}", time(last), time(begin))
            } else if first > end {
                format!("begins at {}, after the capture ends at {}", time(first), time(end))
            } else if late == 0 {
                "was not needed: the capture has the beginning of every connection".to_owned()
            } else {
                return Some(format!("--log {name}: {}", names_none(late)));
            };
            Some(format!("--log {name} {why}"))
        };
        self.files.iter().filter_map(why).collect()
    }
}

/// The note about logs that did not help with any of the connections that were joined late.
pub fn names_none(late: u64) -> String {
    format!("the log names none of the clients of {} joined late", plural(late, "connection"))
}

/// The note about a file without any line of a log.
fn not_a_log(name: &str) -> String {
    format!("--log {name} is not a log of a mongod or mongos")
}

/// Reads the logs that belong to a capture file: up to the time of its first packet they name clients, and from then on
/// they say which connections end.
///
/// # Errors
/// A log cannot be opened or read.
pub fn read_logs(
    logs: &[CaptureLog],
    first: Timestamp,
    shared: &Shared,
    stop: &Arc<AtomicBool>,
) -> Result<ReadLogs> {
    let mut read = ReadLogs::default();
    // Logs of one server may be one after another.
    for of_server in logs.chunk_by(|one, next| one.server_port == next.server_port) {
        let mut remotes = Remotes::new(Some(first));
        let mut port = None;
        for CaptureLog { path, server_port } in of_server {
            let name = crate::input::name(path);
            let (input, _) = crate::input::open(path, &name, stop)?;
            read_lines(input, &mut remotes).with_context(|| format!("cannot read the log {name}"))?;
            let LogEnd { span, ended, left_out } = remotes.end_of_log();
            if left_out > 0 {
                eprintln!("mongosonar: {}", ends_left_out(&name, left_out));
            }
            let ended = ended.into_iter();
            read.ended.extend(
                ended.map(|one| EndedClient { server_port: one.server_port.or(*server_port), ..one }),
            );
            read.files.push((name, span));
            port = *server_port;
        }
        let refused = remotes.refused();
        if let Some(line) = left_out(refused + shared.add_clients(port, remotes.into_known()) as u64) {
            eprintln!("mongosonar: {line}");
        }
    }
    Ok(read)
}

/// In a line, of how many connections a log has more ends than there is room for.
fn ends_left_out(name: &str, connections: u64) -> String {
    let connections = plural(connections, "connection");
    format!("the log {name}: the ends of {connections} are left out: there is room for {MAX_CONNECTIONS}")
}

/// In a line, how many connections there was no room for.
fn left_out(connections: u64) -> Option<String> {
    (connections > 0).then(|| {
        let connections = plural(connections, "connection");
        format!("applications of open connections: the table is full, {connections} left out")
    })
}

/// The logs of the servers of this host, with the port of each, where it is known.
fn logs_of_servers(host: &Host) -> Vec<(Option<u16>, ServerLog)> {
    let listeners = servers::listeners(host).unwrap_or_default();
    let found = servers::in_order_of_places(servers::proven_to_listen(host), MAX_READ_APART);
    let read = read_each("reading who is on open connections in the logs of servers", &found, |process| {
        let server = servers::server(&Host::live(), process);
        ((), server.as_ref().map(log_of_process).unwrap_or_default())
    });
    read.into_iter().map(|one| (only_port(&listeners, one.process), one.files)).collect()
}

/// The log of a running server, with older ones beside it, the oldest first; or else a log among its open files. Empty if
/// there is none or it cannot be read.
fn log_of_process(server: &Process) -> ServerLog {
    let located = LocatedLog::of_process(&Host::live(), server);
    if let Ok(log) = &located
        && let Ok(newest) = log.open()
    {
        return log.copies(MOST_FILES - 1).into_iter().rev().chain([newest]).collect();
    }
    // Anybody may call a process mongod and have any file open, also one that only we may read.
    let Ok(files) = ProcessFiles::of(server) else { return ServerLog::new() };
    // Renamed or removed meanwhile, or never named.
    let may_be_it = |(_, target): &(u32, PathBuf)| match &located {
        Ok(log) => continues(target, &log.path()),
        Err(_) => target.extension().is_some_and(|extension| extension == "log"),
    };
    // Not a terminal, a pipe or /dev/null.
    let opened = |(number, _): (u32, PathBuf)| files.open_descriptor(server, number).ok();
    let is_one = |file: &File| is_log(file).unwrap_or(false);
    server.open_files().filter(may_be_it).filter_map(opened).find(is_one).into_iter().collect()
}

/// Whether a path is another with more at its end: `mongod.log (deleted)`, `mongod.log.1`.
fn continues(path: &Path, begin: &Path) -> bool {
    let bytes = |path: &Path| path.file_name().map(|name| name.as_bytes().to_owned());
    path.parent() == begin.parent()
        && bytes(path).zip(bytes(begin)).is_some_and(|(name, begin)| name.starts_with(&begin))
}

/// Reads the last [`MOST_BYTES`] of these files together, in order.
fn read_files(files: ServerLog, remotes: &mut Remotes) -> io::Result<()> {
    let mut room = MOST_BYTES;
    let mut parts = Vec::new();
    for mut file in files.into_iter().rev() {
        let length = file.metadata()?.len();
        let skipped = length.saturating_sub(room);
        room -= length - skipped;
        file.seek(SeekFrom::Start(skipped))?;
        // Lines appended meanwhile are about connections that are captured from their beginning.
        parts.push(file.take(length - skipped));
        if room == 0 {
            break;
        }
    }
    parts.into_iter().rev().try_for_each(|part| read_lines(part, remotes))
}

/// Reads all lines, except those that are too long.
fn read_lines(input: impl Read, remotes: &mut Remotes) -> io::Result<()> {
    let mut input = BufReader::with_capacity(PIECE, input);
    let (mut line, mut is_rest) = (Vec::new(), false);
    loop {
        line.clear();
        if input.by_ref().take(MOST_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let is_whole = line.ends_with(b"\n");
        if !is_rest {
            remotes.line(&line);
        }
        is_rest = !is_whole;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    /// A folder like `/proc`, removed at the end.
    struct ProcFixture(PathBuf);

    impl ProcFixture {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("mongosonar-apps-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            for folder in ["fd", "ns", "net", "root/var/log"] {
                fs::create_dir_all(root.join("7").join(folder)).unwrap();
            }
            fs::write(root.join("7/comm"), "mongod\n").unwrap();
            symlink("/usr/bin/mongod", root.join("7/exe")).unwrap();
            symlink("socket:[7]", root.join("7/fd/99")).unwrap();
            let row = "0: 0100007F:6989 00000000:0000 0A 0:0 00:0 0 0 0 7 1";
            fs::write(root.join("7/net/tcp"), format!("heading\n{row}\n")).unwrap();
            let own = fs::metadata(&root).unwrap();
            let ids = |id: u32| format!("{id}\t{id}\t{id}\t{id}");
            let status = format!("Uid:\t{}\nGid:\t{}\n", ids(own.uid()), ids(own.gid()));
            fs::write(root.join("7/status"), status).unwrap();
            Self(root)
        }

        fn arguments(&self, arguments: &[&str]) {
            let line: String = ["mongod"].iter().chain(arguments).flat_map(|word| [word, "\0"]).collect();
            fs::write(self.0.join("7/cmdline"), line).unwrap();
        }

        fn write(&self, path: &str, text: &str) -> PathBuf {
            let path = self.0.join("7/root").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        }

        /// The applications that are found.
        fn found(&self) -> Vec<String> {
            let mut remotes = Remotes::new(None);
            for server in servers::proven_to_listen(&Host::of_proc(&self.0)) {
                read_files(log_of_process(&server), &mut remotes).unwrap();
            }
            let mut names: Vec<_> = remotes.into_known().map(|(_, app)| app.name.to_string()).collect();
            names.sort();
            names
        }
    }

    impl Drop for ProcFixture {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn line(port: u16, app: &str) -> String {
        format!(
            "2018-05-01T10:00:01.000+0000 I NETWORK  [conn7] received client metadata from 10.0.0.9:{port} conn7: \
             {{ application: {{ name: \"{app}\" }} }}\n"
        )
    }

    #[test]
    fn a_log_is_found_by_the_arguments_by_the_configuration_and_among_open_files() {
        let tree = ProcFixture::new("ways");
        tree.write("var/log/mongod.log", &line(1, "shop"));
        tree.arguments(&["--logpath", "/var/log/mongod.log"]);
        assert_eq!(tree.found(), ["shop"]);

        tree.arguments(&["-f", "/etc/mongod.conf"]);
        assert_eq!(tree.found(), [""; 0], "no configuration and no open files");
        tree.write("etc/mongod.conf", "systemLog:\n  destination: file\n  path: \"/var/log/mongod.log\"\n");
        assert_eq!(tree.found(), ["shop"]);

        // Never named: standard output is left.
        tree.arguments(&[]);
        let log = tree.write("elsewhere/x", &line(1, "web"));
        symlink("/dev/null", tree.0.join("7/fd/0")).unwrap();
        symlink(log, tree.0.join("7/fd/1")).unwrap();
        assert_eq!(tree.found(), ["web"]);
        tree.arguments(&["--logpath", "/dev/stdout"]);
        assert_eq!(tree.found(), ["web"], "as the agent and doctor find it");
    }

    #[test]
    fn a_log_that_was_renamed_or_removed_is_found_among_open_files() {
        for name in ["mongod.log", "mongod.log.1", "mongod.log.2024-05-01T00-00-00", "mongod.log (deleted)"] {
            let tree = ProcFixture::new("renamed");
            // Not where the arguments lead inside of the root of the process.
            let working = tree.0.join("working");
            fs::create_dir_all(working.join("logs")).unwrap();
            symlink(&working, tree.0.join("7/cwd")).unwrap();
            tree.arguments(&["--logpath", "logs/mongod.log"]);
            for (number, file) in
                [(1, "output"), (4, "logs/other.log"), (5, "mongod.log"), (6, "logs/mongod")]
            {
                fs::write(working.join(file), line(1, "wrong")).unwrap();
                symlink(working.join(file), tree.0.join(format!("7/fd/{number}"))).unwrap();
            }
            assert_eq!(tree.found(), [""; 0]);
            fs::write(working.join("logs").join(name), line(1, "shop")).unwrap();
            symlink(working.join("logs").join(name), tree.0.join("7/fd/9")).unwrap();
            assert_eq!(tree.found(), ["shop"], "{name}");
        }
    }

    #[test]
    fn a_pipe_in_place_of_a_log_or_a_configuration_is_not_waited_for() {
        let tree = ProcFixture::new("pipes");
        let pipe = tree.0.join("7/root/var/log/mongod.log");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        symlink(&pipe, tree.0.join("7/fd/1")).unwrap();
        for arguments in [&["--logpath", "/var/log/mongod.log"][..], &["-f", "/var/log/mongod.log"], &[]] {
            tree.arguments(arguments);
            assert_eq!(tree.found(), [""; 0]);
        }
    }

    #[test]
    fn what_the_user_of_the_server_may_not_read_is_not_read_for_it() {
        let tree = ProcFixture::new("user");
        let log = tree.write("var/log/mongod.log", &line(1, "secret"));
        fs::set_permissions(&log, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&log, tree.0.join("7/fd/1")).unwrap();
        let status = "Uid:\t65533\t65533\t65533\t65533\nGid:\t65533\t65533\t65533\t65533\n";
        for arguments in [&["--logpath", "/var/log/mongod.log"][..], &[]] {
            tree.arguments(arguments);
            assert_eq!(tree.found(), ["secret"]);
        }
        fs::write(tree.0.join("7/status"), status).unwrap();
        for arguments in [&["--logpath", "/var/log/mongod.log"][..], &[]] {
            tree.arguments(arguments);
            assert_eq!(tree.found(), [""; 0]);
        }
    }

    #[test]
    fn older_logs_are_read_too_and_the_newest_line_counts() {
        let tree = ProcFixture::new("rotated");
        tree.arguments(&["--logpath=/var/log/mongod.log"]);
        let old =
            tree.write("var/log/mongod.log.2024-05-01T00-00-00", &(line(1, "before") + &line(2, "pool")));
        tree.write("var/log/mongod.log.2.gz", &line(3, "compressed"));
        tree.write("var/log/mongod.log", &line(1, "after"));
        File::options().append(true).open(&old).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(tree.found(), ["after", "pool"]);
    }

    #[test]
    fn only_the_end_of_a_large_log_is_read_and_long_lines_are_passed_over() {
        let tree = ProcFixture::new("large");
        tree.arguments(&["--logpath=/var/log/mongod.log"]);
        let path = tree.write("var/log/mongod.log", &line(1, "too far back"));
        let mut file = File::options().append(true).open(&path).unwrap();
        // A hole of zeros, without a line feed, up to the bound.
        file.set_len(MOST_BYTES).unwrap();
        file.write_all(format!("\n{}{}", line(2, "near"), line(3, "last").trim_end()).as_bytes()).unwrap();
        assert_eq!(tree.found(), ["last", "near"]);
    }

    #[test]
    fn a_process_that_is_merely_called_like_a_server_or_listens_on_nothing_is_not_read() {
        let found = |name: &str, change: &dyn Fn(&ProcFixture)| {
            let tree = ProcFixture::new(name);
            tree.write("var/log/mongod.log", &line(1, "shop"));
            tree.arguments(&["--logpath", "/var/log/mongod.log"]);
            change(&tree);
            tree.found()
        };
        assert_eq!(found("server", &|_| {}), ["shop"]);
        let other = |tree: &ProcFixture| {
            fs::remove_file(tree.0.join("7/exe")).unwrap();
            symlink("/usr/bin/python3", tree.0.join("7/exe")).unwrap();
        };
        assert_eq!(found("called", &other), [""; 0]);
        assert_eq!(found("deaf", &|tree| fs::remove_file(tree.0.join("7/fd/99")).unwrap()), [""; 0]);
    }

    #[test]
    fn a_log_that_was_named_must_be_there() {
        let error = Lookup::open(&["/nowhere/mongod.log".into()], true).err().unwrap();
        assert!(error.to_string().contains("/nowhere/mongod.log"), "{error}");
    }
}
