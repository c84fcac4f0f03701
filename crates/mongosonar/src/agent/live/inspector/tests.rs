//! What a process that calls itself a server, and an agent that was taken over, get out of the helper.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use sonar_sys::host::process::RunningProgram;
use sonar_sys::privileges::{confine, drop_capabilities};

use super::*;
use crate::servers::log_location::LogLocation;

/// Another user, who may run a program called mongod.
const USER: u32 = 65_533;
const LINE: &str = "2018-11-21T21:26:53.420+0000 I COMMAND  [conn7] command stats.daily\n";
/// Listens on a port, and ends with its standard input, or executes the program that is named there.
const LISTENS: &str = "
import os, socket
s = socket.socket()
s.bind(('127.0.0.1', 0))
s.listen()
print('listens', flush=True)
program = b''
while (byte := os.read(0, 1)) not in (b'', b'\\n'):
    program += byte
if program:
    os.execv(program, [program])
";

/// A folder for everybody, removed at the end.
struct SharedFolder(PathBuf);

impl SharedFolder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("mongosonar-inspector-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str, content: &str, (user, mode): (u32, u32)) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        if user != 0 {
            chown(&path, Some(user), Some(user)).unwrap();
        }
        path
    }

    fn link(&self, name: &str, to: &Path) -> PathBuf {
        let path = self.0.join(name);
        symlink(to, &path).unwrap();
        path
    }

    /// A program called mongod that listens.
    fn program(&self) -> PathBuf {
        let said = Command::new("python3")
            .args(["-c", "import os, sys; print(os.path.realpath(sys.executable))"])
            .output()
            .unwrap();
        let path = self.0.join("mongod");
        fs::copy(String::from_utf8(said.stdout).unwrap().trim(), &path).unwrap();
        path
    }
}

impl Drop for SharedFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An inspector of a host without any server; `proc` is an empty folder.
pub fn of_nobody(proc: &Path) -> Inspector {
    let inspection = Inspection { host: Host::of_proc(proc), ..Inspection::new(None, Vec::new()) };
    Inspector::at(AnswerPlace::Here(Mutex::new(inspection)))
}

/// An inspector that knows one server, with this log. Its process is this one.
pub fn with_log(port: u16, log: &Path) -> (Inspector, FoundServer) {
    let (host, pid) = (Host::live(), std::process::id());
    let name = fs::read_to_string("/proc/self/comm").unwrap();
    let process = host.process(pid, &[name.trim_end()]).unwrap();
    let RunningProgram { started, program, .. } = RunningProgram::now(pid).unwrap();
    let log = log.to_owned();
    let found = FoundServer { port, pid, started, log: Some(log.clone()), ..FoundServer::default() };
    let place = LogLocation::Named(log);
    let log = Some(InspectableLog { server: ServerProcess { process, started, program }, place });
    let known = vec![KnownServer { found: found.clone(), log, samples: None }];
    let inspection = Inspection { known, ..Inspection::new(None, Vec::new()) };
    (Inspector::at(AnswerPlace::Here(Mutex::new(inspection))), found)
}

/// A process that listens.
struct Listening(Child);

impl Listening {
    fn start(program: &Path, user: u32, arguments: &[&str]) -> Self {
        Self::start_in(program, user, arguments, Path::new("/"))
    }

    fn start_in(program: &Path, user: u32, arguments: &[&str], folder: &Path) -> Self {
        let mut command = Command::new(program);
        command.arg0("mongod").args(["-S", "-c", LISTENS]).args(arguments).current_dir(folder);
        let mut child =
            command.uid(user).gid(user).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "listens\n");
        Self(child)
    }

    /// Executes a copy of `cat`, and waits until that answers.
    fn execute(&mut self, program: &Path) {
        let mut input = self.0.stdin.as_ref().unwrap();
        writeln!(input, "{}", program.display()).unwrap();
        writeln!(input, "x").unwrap();
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "x\n");
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The helper's work, in a thread with the privileges and the filter of the helper.
struct ConfinedHelper(Inspector);

impl ConfinedHelper {
    /// `None` without root: then it could open nothing anyway.
    fn start(configured: &[(u16, &Path)]) -> Option<Self> {
        if !is_root() {
            println!("skipped: only root can start processes of other users");
            return None;
        }
        let table = |(port, log): &(u16, &Path)| format!("[[server]]\nport = {port}\nlog = {:?}\n", log);
        let text: String = configured.iter().map(table).collect();
        let settings: AgentSettings = toml::from_str(&text).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            drop_capabilities(INSPECTING).unwrap();
            confine(Duty::Reading).unwrap();
            let mut inspection = Inspection::new(None, settings.server);
            let _ = inspection.serve(theirs);
        });
        Some(Self(Inspector::at(AnswerPlace::There(HelperChannel::patient(ours)))))
    }

    fn server(&mut self, of: &Listening) -> Option<FoundServer> {
        self.0.servers().unwrap().into_iter().find(|server| server.pid == of.0.id())
    }

    fn open(&mut self, path: &Path) -> Result<String, io::ErrorKind> {
        read(self.0.place.open_one(&InspectorRequest::Open(path.to_owned()), |_| unreachable!()))
    }

    fn open_sample(&mut self, folder: &Path, name: &str) -> Result<String, io::ErrorKind> {
        let request = InspectorRequest::OpenSample(folder.to_owned(), name.to_owned());
        read(self.0.place.open_one(&request, |_| unreachable!()))
    }

    /// What the helper opens as the log of a server with these arguments.
    fn log_of(&mut self, program: &Path, arguments: &[&str]) -> Result<String, io::ErrorKind> {
        let process = Listening::start(program, USER, arguments);
        let server = self.server(&process).expect("it runs the program and listens");
        self.open(&server.log.ok_or(io::ErrorKind::NotFound)?)
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

fn read(opened: io::Result<File>) -> Result<String, io::ErrorKind> {
    let mut text = String::new();
    opened.map_err(|error| error.kind())?.read_to_string(&mut text).unwrap();
    Ok(text)
}

#[test]
fn a_process_that_only_calls_itself_a_server_is_none() {
    let Some(mut helper) = ConfinedHelper::start(&[]) else { return };
    let folder = SharedFolder::new("name");
    let secret = folder.file("secret", LINE, (0, 0o600));
    let path = secret.to_str().unwrap();
    // As an agent that was taken over can do it with its own arguments and name.
    let renames = format!("open('/proc/self/comm', 'w').write('mongod')\n{LISTENS}");
    let arguments = ["-S", "-c", &renames, "--port", "27017", "--logpath", path];
    let mut child = Command::new("python3")
        .arg0("mongod")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let process = Listening(child);
    let called = fs::read_to_string(format!("/proc/{}/comm", process.0.id())).unwrap();
    assert_eq!((line.as_str(), called.as_str()), ("listens\n", "mongod\n"));
    assert_eq!(helper.server(&process), None);
    assert!(helper.open(&secret).is_err());
    let inside = PathBuf::from(format!("/proc/{}/root{path}", process.0.id()));
    assert!(helper.open(&inside).is_err());
}

#[test]
fn a_server_in_a_network_of_its_own_is_reported_with_the_addresses_of_that() {
    let Some(mut helper) = ConfinedHelper::start(&[]) else { return };
    let folder = SharedFolder::new("network");
    let program = folder.program();
    let here = Listening::start(&program, USER, &[]);
    assert_eq!(helper.server(&here).expect("it runs the program and listens").network, None);
    let set_up = "ip link set lo up && ip address add 192.0.2.7/32 dev lo && exec \"$0\" -S -c \"$1\"";
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", set_up]).arg(&program).arg(LISTENS);
    let Ok(mut child) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        println!("skipped: unshare is not installed");
        return;
    };
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    // They execute each other, so it is one process.
    let there = Listening(child);
    if line != "listens\n" {
        println!("skipped: no network namespace can be made here");
        return;
    }
    let found = helper.server(&there).expect("it runs the program and listens");
    assert_eq!(found.network, Some(["192.0.2.7".parse().unwrap()].into()));
}

#[test]
fn a_server_without_a_socket_that_listens_is_none() {
    let Some(mut helper) = ConfinedHelper::start(&[]) else { return };
    let folder = SharedFolder::new("silent");
    let arguments =
        ["-S", "-c", "print('listens', flush=True); import sys; sys.stdin.read()", "--port=27017"];
    let mut child = Command::new(folder.program())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    assert_eq!(helper.server(&Listening(child)), None);
}

#[test]
fn the_log_of_a_server_is_what_its_user_may_read_and_what_looks_like_one() {
    let Some(mut helper) = ConfinedHelper::start(&[]) else { return };
    let folder = SharedFolder::new("user");
    let program = folder.program();
    let own = folder.file("own.log", LINE, (USER, 0o600));
    let secret = folder.file("secret", LINE, (0, 0o600));
    let others = folder.file("private/log", LINE, (0, 0o644));
    fs::set_permissions(others.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
    let no_log = folder.file("no-log", "root:$6$salt$hash:19000:0:99999:7:::\n", (USER, 0o600));
    let denied = Err(io::ErrorKind::PermissionDenied);
    for (path, expected) in [
        (own.clone(), Ok(LINE.to_owned())),
        (folder.link("to-own", &own), Ok(LINE.to_owned())),
        (secret.clone(), denied.clone()),
        (folder.link("to-secret", &secret), denied.clone()),
        (others, denied),
        (no_log, Err(io::ErrorKind::Other)),
        (PathBuf::from("/dev/zero"), Err(io::ErrorKind::Other)),
    ] {
        let text = path.to_str().unwrap();
        assert_eq!(helper.log_of(&program, &["--logpath", text]), expected, "{text}");
    }
    // A configuration that its user may not read names nothing.
    let config = format!("systemLog:\n  path: {}\n", own.display());
    let own_config = folder.file("own.conf", &config, (USER, 0o600));
    let secret_config = folder.file("secret.conf", &config, (0, 0o600));
    assert_eq!(helper.log_of(&program, &["-f", own_config.to_str().unwrap()]), Ok(LINE.to_owned()));
    let of_secret = helper.log_of(&program, &["-f", secret_config.to_str().unwrap()]);
    assert_eq!(of_secret, Err(io::ErrorKind::NotFound), "standard output is a pipe here");
}

#[test]
fn samples_are_files_of_the_server_s_user_that_look_like_samples() {
    let Some(mut helper) = ConfinedHelper::start(&[]) else { return };
    let folder = SharedFolder::new("samples");
    let program = folder.program();
    let sample = "\u{20}\0\0\0\u{9}_id\0and so on";
    folder.file("diagnostic.data/metrics.own", sample, (USER, 0o600));
    folder.file("diagnostic.data/metrics.other", sample, (0, 0o600));
    folder.file("diagnostic.data/metrics.text", LINE, (USER, 0o600));
    let secret = folder.file("secret", sample, (0, 0o600));
    folder.link("diagnostic.data/metrics.link", &secret);
    let process = Listening::start(&program, USER, &["--dbpath", folder.0.to_str().unwrap()]);
    let samples = helper.server(&process).unwrap().diagnostic.unwrap();
    assert_eq!(helper.open_sample(&samples, "metrics.own"), Ok(sample.to_owned()));
    let denied = Err(io::ErrorKind::PermissionDenied);
    for name in ["metrics.other", "metrics.link", "metrics./../../secret", "secret"] {
        assert_eq!(helper.open_sample(&samples, name), denied, "{name}");
    }
    assert_eq!(helper.open_sample(&samples, "metrics.text"), Err(io::ErrorKind::Other));
    let listed: Vec<DiagnosticFile> =
        helper.0.place.ask(&InspectorRequest::List(samples), |_| unreachable!()).unwrap();
    let names: Vec<_> = listed.into_iter().map(|file| file.name).collect();
    assert_eq!(names, ["metrics.other", "metrics.own", "metrics.text"]);
}

#[test]
fn for_a_server_that_has_executed_another_program_nothing_is_opened() {
    let Some(mut helper) = ConfinedHelper::start(&[]) else { return };
    let folder = SharedFolder::new("executes");
    let program = folder.program();
    let log = |name: &str, user| folder.file(name, LINE, (user, 0o600));
    let (own, secret) = (log("own", USER), log("secret", 0));
    let found = Command::new("sh").args(["-c", "readlink -f \"$(command -v cat)\""]).output().unwrap();
    let cat = String::from_utf8(found.stdout).unwrap();
    // A folder with this name: the copy may ask for its own name.
    for (mode, file) in [(0o755, &own), (0o4755, &own), (0o4755, &secret)] {
        let copy = folder.0.join(format!("{mode:o}-{}/cat", file.file_name().unwrap().display()));
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(cat.trim(), &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(mode)).unwrap();
        let mut process = Listening::start(&program, USER, &["--logpath", file.to_str().unwrap()]);
        let path = helper.server(&process).unwrap().log.unwrap();
        assert_eq!(helper.open(&path).is_ok(), *file == own);
        process.execute(&copy);
        assert!(helper.open(&path).is_err(), "{mode:o} {}", file.display());
    }
}

#[test]
fn a_server_in_a_folder_that_is_no_utf_8_has_its_files_and_hides_no_other_server() {
    let Some(mut helper) = ConfinedHelper::start(&[]) else { return };
    let folder = SharedFolder::new("latin");
    let program = folder.program();
    let latin = folder.0.join(OsStr::from_bytes(b"\xe9"));
    let samples = latin.join("db/diagnostic.data");
    fs::create_dir_all(&samples).unwrap();
    fs::write(samples.join("metrics.one"), "").unwrap();
    fs::write(latin.join("log"), LINE).unwrap();
    let strange = Listening::start_in(&program, USER, &["--dbpath", "db", "--logpath", "log"], &latin);
    let own = folder.file("own.log", LINE, (USER, 0o600));
    let plain = Listening::start(&program, USER, &["--logpath", own.to_str().unwrap()]);
    let server = helper.server(&strange).unwrap();
    assert_eq!(helper.open(&server.log.unwrap()), Ok(LINE.to_owned()));
    let list = InspectorRequest::List(server.diagnostic.unwrap());
    let listed: Vec<DiagnosticFile> = helper.0.place.ask(&list, |_| unreachable!()).unwrap();
    assert_eq!(listed.len(), 1);
    let log = helper.server(&plain).unwrap().log.unwrap();
    assert_eq!(helper.open(&log), Ok(LINE.to_owned()));
}

#[test]
fn a_server_that_says_much_hides_no_other_server() {
    let Some(mut helper) = ConfinedHelper::start(&[]) else { return };
    let folder = SharedFolder::new("much");
    let program = folder.program();
    // What may stand in a path or a name, and takes six bytes in an answer.
    let long = "\u{1}".repeat(100_000);
    let hostile: Vec<_> = (0..4)
        .map(|_| {
            Listening::start(&program, USER, &["--dbpath", &long, &format!("--{long}=1"), "--logpath", &long])
        })
        .collect();
    let plain = Listening::start(&program, USER, &["--logpath", "/var/log/mongod.log", "--quiet"]);
    assert!(hostile.iter().all(|one| helper.server(one).is_some()));
    let server = helper.server(&plain).unwrap();
    assert!(server.log.is_some_and(|log| log.ends_with("var/log/mongod.log")));
    assert_eq!(server.options["quiet"], "true");
}

#[test]
fn servers_stay_known_while_processes_cannot_be_listed() {
    let found = FoundServer { port: 27_017, pid: 7, name: "mongod".to_owned(), ..FoundServer::default() };
    let folder = SharedFolder::new("unlisted");
    let mut inspection = Inspection {
        host: Host::of_proc(folder.0.join("no-proc")),
        known: vec![KnownServer { found: found.clone(), log: None, samples: None }],
        ..Inspection::new(None, Vec::new())
    };
    assert_eq!(inspection.servers(ConfigurationUse::default()), [found]);
}

#[test]
fn servers_that_are_left_out_are_counted_once() {
    let mut inspection = Inspection::new(None, Vec::new());
    assert_eq!(inspection.leave_out(0), None);
    let said = "more than 128 servers run here: the logs and diagnostic.data of 3 others are not read";
    assert_eq!(inspection.leave_out(3).as_deref(), Some(said));
    assert_eq!(inspection.leave_out(4), None);
}

#[test]
fn the_files_of_many_servers_take_few_threads() {
    let mut inspection = Inspection::new(None, Vec::new());
    for pid in 0..MAX_SERVERS as u32 {
        for part in [InspectedPart::Log, InspectedPart::Samples] {
            assert_eq!(inspection.wait(pid, part, move || pid).unwrap(), pid);
        }
    }
    assert_eq!(inspection.threads.running(), 1, "their stacks count as memory of the helper");
}

#[test]
fn a_server_whose_file_system_has_never_answered_says_so() {
    let host = Host::live();
    let name = fs::read_to_string("/proc/self/comm").unwrap();
    let process = host.process(std::process::id(), &[name.trim_end()]).unwrap();
    let mut inspection = Inspection::new(None, Vec::new());
    let (answer, answered) = channel::<()>();
    let hangs = move || {
        let _ = answered.recv();
    };
    let place = inspection.place(process.pid, InspectedPart::Log);
    assert!(place.run_within(Duration::from_millis(1), hangs).is_err());
    let mut patience = SearchPatience::default();
    let found = inspection.describe(process, 27_017, &mut patience).found;
    let said = "its log is not known: its file system does not answer";
    assert_eq!((found.port, found.log, found.no_log.as_deref()), (27_017, None, Some(said)));
    assert!(patience.next() <= SearchPatience::default().next());
    drop(answer);
}

/// An inspector whose helper answers each request as soon as it may; it finds no server.
fn standing_still(config: &Path) -> (Inspector, Arc<Mutex<Inspection>>, Sender<()>) {
    let inspection = Arc::new(Mutex::new(Inspection {
        host: Host::of_proc(config.with_file_name("no-proc")),
        ..Inspection::new(Some(config.to_owned()), Vec::new())
    }));
    let ((ours, theirs), (go, may)) = (UnixStream::pair().unwrap(), channel());
    let helper = inspection.clone();
    std::thread::spawn(move || {
        helper_channel::serve(theirs, |request| {
            may.recv().map_err(io::Error::other)?;
            lock(&helper).answer(request)
        })
    });
    (Inspector::at(AnswerPlace::There(HelperChannel::patient(ours))), inspection, go)
}

#[test]
fn a_configuration_is_used_only_once_it_is_accepted() {
    let folder = SharedFolder::new("accepted");
    let config = folder.0.join("agent.toml");
    let (inspector, inspection, go) = standing_still(&config);
    let ports = || lock(&inspection).configured.iter().map(|table| table.port.0).collect::<Vec<_>>();
    let write = |port: &str| fs::write(&config, format!("[[server]]\nport = {port}\n")).unwrap();
    let servers = || {
        go.send(()).unwrap();
        assert_eq!(inspector.servers().unwrap(), []);
    };
    let reload = || {
        go.send(()).unwrap();
        inspector.reload().map(|files| files.len())
    };
    write("5");
    assert_eq!(reload().unwrap(), 1);
    servers();
    assert_eq!(ports(), [0; 0], "the agent may refuse it");
    // The helper may not answer now, which changes nothing.
    inspector.accept();
    servers();
    assert_eq!(ports(), [5]);
    write("6");
    reload().unwrap();
    inspector.accept();
    // Before the helper was asked for anything else, another one is read, which the agent refuses.
    write("7");
    reload().unwrap();
    servers();
    assert_eq!(ports(), [6]);
    write("0x");
    assert!(reload().is_err());
    servers();
    assert_eq!(ports(), [6]);
}

#[test]
fn the_end_of_a_process_is_known_before_anybody_asks_for_its_exit_code() {
    let inspector = Inspector::start(&[], None, false);
    let mut command = Command::new("sh");
    command.args(["-c", "read line; exit 0"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let pid = child.id();
    let started = Host::live().stat(pid).unwrap().started;
    let server = FoundServer { pid, started, ..FoundServer::default() };
    assert!(!inspector.has_ended(&server));
    assert!(inspector.has_ended(&FoundServer { started: started + 1, ..server.clone() }), "another process");
    drop(child.stdin.take());
    // The kernel closes its output after it has begun to end.
    child.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
    assert!(inspector.has_ended(&server));
    assert!(child.wait().unwrap().success());
    assert!(inspector.has_ended(&server));
}
