//! Processes that start and end and files that come and go, while `io record` or `io live` runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::trace::{CALLED_MONGOD, IDLE, Oracle, Recorded, Tracer};
use crate::support::{Folder, is_long, run, text};

/// A folder `db` with a collection of a mebibyte, and a mongod that has it open, so that tracing can begin.
fn server(folder: &Folder) -> (String, Oracle) {
    let db = folder.path("db").display().to_string();
    fs::create_dir(&db).unwrap();
    fs::write(folder.path("db/collection-1-2.wt"), vec![7; 1 << 20]).unwrap();
    let mut server = Oracle::new(folder, &[], &db);
    server.does(CALLED_MONGOD);
    server.does("data = os.open(db + '/collection-1-2.wt', os.O_RDONLY)");
    (db, server)
}

/// Each of these tests loads the kernel's tracing for itself, and one floods it: one after another.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Becomes a daemon as `mongod --fork` does, by forking twice: the last child has the name of its parents and reads at
/// once. Gives its id when it has read.
const DAEMON: &str = r#"
import signal
def daemonise():
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        os.waitpid(child, 0)
        daemon = int(os.read(reader, 100))
        os.close(reader)
        return daemon
    os.setsid()
    if os.fork(): os._exit(0)
    for n in range(5): os.pread(data, 100, n * 1000)
    os.write(writer, str(os.getpid()).encode())
    signal.alarm(100)
    signal.pause()
"#;

/// The kernel follows a new mongod before it runs: not one read of a process is missed that reads at once and exits.
#[test]
fn the_very_first_reads_of_a_new_mongod_are_recorded() {
    let _alone = alone();
    let folder = Folder::new("io-first");
    let (db, mut server) = server(&folder);
    // Reads exactly what it is asked to, and ends.
    let program = folder.path("mongod");
    fs::copy("/bin/dd", &program).unwrap();
    let recording = folder.path("reads.msio").display().to_string();
    let Some(mut tracer) = Tracer::start(&["record", "--dbpath", &db, &recording]) else { return };
    let starts = |words: &[&str]| {
        let mut child = Command::new(&program).args(words).stderr(Stdio::null()).spawn().unwrap();
        assert!(child.wait().unwrap().success());
        child.id()
    };
    let file = format!("if={db}/collection-1-2.wt");
    let ids: Vec<u32> = (0..20).map(|_| starts(&[&file, "of=/dev/null", "bs=4096", "count=10"])).collect();
    server.does(DAEMON);
    let daemons: Vec<u32> = (0..20)
        .map(|_| {
            server.does("daemon = daemonise()");
            let daemon: u32 = server.says("daemon").parse().unwrap();
            // It stays until it was seen to have the folder's files open.
            tracer.until_said(&format!("process {daemon} is a mongod that has started: it is followed\n"));
            server.does("os.kill(daemon, signal.SIGKILL)");
            tracer.until_said(&format!("process {daemon} has ended"));
            daemon
        })
        .collect();
    tracer.end();
    let recorded = Recorded::read(Path::new(&recording));
    let mut reads: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for (_, process, kind, offset, asked, given) in recorded.under(&db) {
        reads.entry(process).or_default().push((kind, offset, asked, given));
    }
    let of_dd: Vec<_> = (0..10).map(|n| ("read", n * 4_096, 4_096, 4_096)).collect();
    for id in ids {
        assert_eq!(reads.remove(&id), Some(of_dd.clone()), "process {id}");
    }
    let of_daemon: Vec<_> = (0..5).map(|n| ("read", n * 1_000, 100, 100)).collect();
    for daemon in daemons {
        assert_eq!(reads.remove(&daemon), Some(of_daemon.clone()), "process {daemon}");
    }
    assert!(reads.is_empty(), "{reads:?}");
}

/// What was a mongod, and runs another program now, is left.
#[test]
fn a_mongod_that_becomes_another_program_is_left() {
    let _alone = alone();
    let folder = Folder::new("io-becomes-other");
    let (db, server) = server(&folder);
    let mut other = Oracle::new(&folder, &["--dbpath", &db], &db);
    let Some(mut tracer) =
        Tracer::start(&["record", "--dbpath", &db, &folder.path("x.msio").display().to_string()])
    else {
        return;
    };
    other.does(CALLED_MONGOD);
    tracer.until_said(&format!("process {} is a mongod that has started: it is followed\n", other.id));
    // It answers nobody any more.
    other.last("os.execv('/bin/sleep', ['sleep', '100'])");
    tracer.until_said(&format!("process {} has ended\n", other.id));
    drop(server);
    tracer.end();
}

/// Two weeks of checkpoints, one a minute, each with a new turtle file, which are more files than there are numbers; a
/// month with LONG. No number is ever wanting, and what comes after them is seen.
#[test]
fn live_outlasts_more_turtle_files_than_there_are_numbers() {
    let _alone = alone();
    let days = if is_long() { 30 } else { 14 };
    let checkpoints = 60 * 24 * days;
    let folder = Folder::new("io-months");
    let (db, mut server) = server(&folder);
    let pid = server.id.to_string();
    // Files come by the time that was spent in them, and on a busy machine many a turtle's single write waits long.
    let arguments = ["live", "--json", "--limit", "1000", "--interval", "1h", "--pid", &pid, "--dbpath", &db];
    let Some(tracer) = Tracer::start(&arguments) else { return };
    let id = tracer.id();
    server.does(IDLE);
    server.does(&format!(
        r#"
for n in range({checkpoints}):
    turtle = os.open(db + "/WiredTiger.turtle.set", os.O_WRONLY | os.O_CREAT)
    os.write(turtle, b"x" * 1000)
    os.close(turtle)
    # ext4 writes a file to the disk when it replaces another one, but not when it takes a free name.
    if n: os.remove(db + "/WiredTiger.turtle")
    os.rename(db + "/WiredTiger.turtle.set", db + "/WiredTiger.turtle")
    # By then it has given numbers back.
    if n % 2000 == 1999: until_idle({id})
with open(db + "/collection-3-4.wt", "wb") as file:
    file.write(bytes(1 << 20))
late = os.open(db + "/collection-3-4.wt", os.O_RDONLY)
for n in range(20000): os.pread(late, 4096, n % 256 * 4096)
for n in range(20001): os.pread(data, 4096, n % 256 * 4096)
"#
    ));
    let output = tracer.end();
    let interval: serde_json::Value =
        serde_json::from_str(text(&output.stdout).lines().last().unwrap()).unwrap();
    assert!(interval["lost"].as_object().unwrap().values().all(|count| count == 0), "{}", interval["lost"]);
    let reads = |name: &str| {
        let file = interval["files"]
            .as_array()
            .unwrap()
            .iter()
            .find(|file| file["name"].as_str().unwrap().ends_with(name));
        file.and_then(|file| file["reads"].as_u64())
    };
    let late = reads("collection-3-4.wt");
    let said = (text(&output.stderr), &interval["totals"], interval["files"].as_array().unwrap().len());
    assert_eq!(late, Some(20_000), "it came when all numbers had been given before: {said:?}");
    assert_eq!(reads("collection-1-2.wt"), Some(20_001));
}

/// Deletes a file, and makes others until one has its inode: for the same thread, with the same descriptor.
const REUSE: &str = r#"
def read(path, times):
    file = os.open(path, os.O_RDONLY)
    for n in range(times): os.pread(file, 10, n)
    inode = os.fstat(file).st_ino
    os.close(file)
    return inode
def made(path):
    with open(path, "wb") as file: file.write(bytes(100))
made(db + "/first.wt")
inode = read(db + "/first.wt", 7)
# Of a file that is gone by the time its record is read, only the name is known.
until_idle(*tracers)
os.remove(db + "/first.wt")
found = False
for n in range(200):
    made(f"{db}/second.wt")
    found = os.stat(f"{db}/second.wt").st_ino == inode
    if found: break
    os.rename(f"{db}/second.wt", f"{db}/other-{n}")
if found: read(db + "/second.wt", 11)
"#;

#[test]
fn a_file_with_the_inode_of_a_deleted_one_is_another_file() {
    let _alone = alone();
    let folder = Folder::new("io-inode");
    let (db, mut server) = server(&folder);
    let pid = server.id.to_string();
    let recording = folder.path("reads.msio").display().to_string();
    let Some(tracer) = Tracer::start(&["record", "--pid", &pid, "--dbpath", &db, &recording]) else { return };
    let Some(live) = Tracer::start(&["live", "--json", "--interval", "1h", "--pid", &pid, "--dbpath", &db])
    else {
        return;
    };
    server.does(IDLE);
    server.does(&format!("tracers = {}, {}", tracer.id(), live.id()));
    server.does(REUSE);
    let found = server.says("found");
    tracer.end();
    let output = live.end();
    if found != "True" {
        eprintln!("skipped, as this file system gives no inode again so soon");
        return;
    }
    let recorded = Recorded::read(Path::new(&recording));
    let reads =
        |name: &str| recorded.under(&db).iter().filter(|seen| seen.0 == name && seen.2 == "read").count();
    assert_eq!((reads("first.wt"), reads("second.wt")), (7, 11));
    let interval: serde_json::Value =
        serde_json::from_str(text(&output.stdout).lines().last().unwrap()).unwrap();
    // Files that were renamed since have the name under which they were made.
    let live = |name: &str| -> u64 {
        let files = interval["files"].as_array().unwrap().iter();
        let named = files.filter(|file| file["name"].as_str().unwrap().ends_with(name));
        named.map(|file| file["reads"].as_u64().unwrap()).sum()
    };
    assert_eq!((live("/first.wt"), live("/second.wt")), (7, 11));
}

/// What a mongod's FTDC thread reads each second, and a file beside it.
const FTDC: &str = r#"
def once(path):
    file = os.open(path, os.O_RDONLY)
    os.read(file, 100)
    os.close(file)
for n in range(3):
    for path in "/proc/self/stat", "/proc/net/netstat", "/proc/diskstats", "/sys/kernel/mm/transparent_hugepage/enabled":
        once(path)
# Its path is found while it is open.
kept = os.open(db + "/collection-1-2.wt", os.O_RDONLY)
os.read(kept, 100)
"#;

#[test]
fn files_of_proc_and_sys_are_left_out_or_shown_with_their_paths() {
    let _alone = alone();
    let folder = Folder::new("io-pseudo");
    let (db, mut server) = server(&folder);
    let pid = server.id.to_string();
    let [without, with] = ["without", "with"].map(|name| folder.path(name).display().to_string());
    let Some(left_out) = Tracer::start(&["record", "--pid", &pid, &without]) else { return };
    let Some(shown) = Tracer::start(&["record", "--pseudo-filesystems", "--pid", &pid, &with]) else {
        return;
    };
    let arguments = ["live", "--json", "--interval", "1h", "--pid", &pid];
    let Some(live) = Tracer::start(&arguments) else { return };
    server.does(FTDC);
    left_out.end();
    shown.end();
    let output = live.end();
    let reads = |recording: &str| {
        let mut reads = BTreeMap::new();
        for seen in Recorded::read(Path::new(recording)).seen() {
            *reads.entry(seen.0).or_insert(0) += 1;
        }
        reads
    };
    let collection = format!("{db}/collection-1-2.wt");
    let expected = BTreeMap::from([(collection.clone(), 1)]);
    assert_eq!(reads(&without), expected);
    let mut all = expected.clone();
    for path in [
        &format!("/proc/{pid}/stat"),
        &format!("/proc/{pid}/net/netstat"),
        "/proc/diskstats",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ] {
        all.insert(path.to_string(), 3);
    }
    assert_eq!(reads(&with), all);
    let live = text(&output.stdout);
    assert!(live.contains(&collection) && !live.contains("netstat") && !live.contains("diskstats"), "{live}");

    // A report leaves them out of a recording that has them, and says so.
    let report = |flag: &str| text(&run(&format!("io report {flag} {with}")).stdout).to_string();
    let said = report("");
    assert!(said.contains("\n1 access "), "{said}");
    assert!(
        said.contains("left out: 12 accesses to files of /proc and /sys (--pseudo-filesystems shows them)"),
        "{said}"
    );
    let said = report("--pseudo-filesystems");
    assert!(
        said.contains("\n13 accesses ") && said.contains("netstat") && !said.contains("left out"),
        "{said}"
    );
}
