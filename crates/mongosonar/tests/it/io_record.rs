//! `io record` of a real process, whose accesses are known: the recording holds exactly that list.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::trace::{CALLED_MONGOD, IDLE, Oracle, Recorded, Tracer, counts, live_reads, paths};
use crate::support::{Folder, program, run, text};

/// What the oracle does.
const ACCESSES: &str = r#"
data = os.open(db + "/collection-1-2.wt", os.O_RDWR)
def thread():
    for n in range(50):
        os.pread(data, 512, n * 1024)
for n in range(100):
    os.pread(data, 4096, n * 4096)
for n in reversed(range(100)):
    os.pread(data, 4096, n * 8192)
os.lseek(data, 12345, os.SEEK_SET)
os.read(data, 100)
os.read(data, 1000)
os.preadv(data, [bytearray(10), bytearray(20), bytearray(30)], 7777)
os.readv(data, [bytearray(5), bytearray(6)])
os.pread(data, 4096, 1 << 40)
os.pwrite(data, b"x" * 300, 4096)
os.pwritev(data, [b"abc", b"defg"], 99)
os.fsync(data)
os.fdatasync(data)
worker = threading.Thread(target=thread)
worker.start()
worker.join()
with open(db + "/other/ignored", "rb", buffering=0) as other:
    other.read(10)
"#;

/// Kind, offset, asked, given of what the oracle does on its file.
fn expected() -> Vec<(&'static str, u64, u64, u64)> {
    let mut list: Vec<_> = (0..100).map(|n| ("read", n * 4_096, 4_096, 4_096)).collect();
    list.extend((0..100).rev().map(|n| ("read", n * 8_192, 4_096, 4_096)));
    list.push(("read", 12_345, 100, 100));
    list.push(("read", 12_445, 1_000, 1_000));
    list.push(("read", 7_777, 60, 60));
    list.push(("read", 13_445, 11, 11));
    list.push(("read", 1 << 40, 4_096, 0));
    list.push(("write", 4_096, 300, 300));
    list.push(("write", 99, 7, 7));
    list.push(("fsync", 0, 0, 0));
    list.push(("fdatasync", 0, 0, 0));
    list.extend((0..50).map(|n| ("read", n * 1_024, 512, 512)));
    list
}

/// A folder with what the oracle reads, and the oracle.
fn oracle(folder: &Folder) -> (PathBuf, Oracle) {
    let db = folder.path("db");
    fs::create_dir_all(db.join("other")).unwrap();
    fs::write(db.join("collection-1-2.wt"), vec![7; 1 << 20]).unwrap();
    fs::write(db.join("other/ignored"), [1; 100]).unwrap();
    let oracle = Oracle::new(folder, &[], &db);
    (db, oracle)
}

#[test]
fn the_recording_holds_exactly_what_the_process_did() {
    let folder = Folder::new("io-oracle");
    let (db, mut oracle) = oracle(&folder);
    let recording = folder.path("reads.msio");
    let Some(tracer) = Tracer::start(&[
        "record",
        "--pid",
        &oracle.id.to_string(),
        "--dbpath",
        db.to_str().unwrap(),
        recording.to_str().unwrap(),
    ]) else {
        return;
    };
    oracle.does(ACCESSES);
    tracer.end();

    let recorded = Recorded::read(Path::new(&recording));
    let seen = recorded.under(&db);
    assert_eq!(seen.len(), recorded.accesses.len(), "nothing of other folders: {:?}", recorded.files);
    let of = |name: &str| {
        let accesses = seen.iter().filter(|access| access.0 == name);
        accesses.map(|access| (access.2, access.3, access.4, access.5)).collect::<Vec<_>>()
    };
    assert_eq!(of("collection-1-2.wt"), expected());
    assert_eq!(of("other/ignored"), [("read", 0, 10, 10)]);
    let threads: BTreeSet<_> = recorded.accesses.iter().map(|access| access.thread).collect();
    assert!(threads.len() == 2 && threads.contains(&oracle.id), "the other thread is a thread of its own");

    let report = run(&format!("io report --json {}", recording.display()));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["accesses"].as_u64(), Some(recorded.accesses.len() as u64));
    assert_eq!(report["lost"]["ring_full"], 0);
}

/// Reads four pages at each MiB of a cold file, with the advice that it is given; gives what the kernel counted as
/// fetched from the device for it, and what it was given.
const COLD: &str = r#"
path = db + "/collection-7-8.wt"
with open(path, "wb") as file:
    file.write(os.urandom(48 << 20))
    os.fsync(file.fileno())
cold = os.open(path, os.O_RDONLY)
os.posix_fadvise(cold, 0, 0, os.POSIX_FADV_DONTNEED)
os.posix_fadvise(cold, 0, 0, ADVICE)
def fetched():
    with open("/proc/self/io") as counters:
        return next(int(line.split()[1]) for line in counters if line.startswith("read_bytes"))
fetched()
"#;
const STRIDES: &str = r#"
before, given = fetched(), 0
for mebibyte in range(48):
    for page in range(4):
        given += len(os.pread(cold, 4096, (mebibyte << 20) + page * 4096))
counted = f"{fetched() - before} {given}"
"#;

/// What readahead fetches for nothing is what the kernel fetched beyond what was read.
#[test]
fn readahead_that_nobody_reads_is_a_figure() {
    for (advice, ahead) in [("os.POSIX_FADV_NORMAL", true), ("os.POSIX_FADV_RANDOM", false)] {
        let folder = Folder::new(&format!("io-readahead-{ahead}"));
        let recording = folder.path("reads.msio").display().to_string();
        let (_, mut oracle) = oracle(&folder);
        oracle.does(&COLD.replace("ADVICE", advice));
        let pid = oracle.id.to_string();
        let Some(tracer) = Tracer::start(&["record", "--readahead", "--pid", &pid, &recording]) else {
            return;
        };
        oracle.does(STRIDES);
        let counted = oracle.says("counted");
        assert!(tracer.end().status.success());
        let counted: Vec<u64> = counted.trim().split(' ').map(|figure| figure.parse().unwrap()).collect();
        let (fetched, given) = (counted[0], counted[1]);
        assert_eq!(given, 48 * 4 * 4_096);
        if fetched == 0 {
            eprintln!("skipped, as this file system lies on no device");
            return;
        }
        let report = run(&format!("io report --json {recording}"));
        let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
        let files = report["files"].as_array().unwrap();
        let file = files.iter().find(|file| file["path"].as_str().unwrap().ends_with("8.wt")).unwrap();
        let pages = &file["page_ins"];
        let (brought, wasted) = (pages["bytes"].as_u64().unwrap(), pages["wasted_bytes"].as_u64().unwrap());
        // Blocks of the file system's own are counted by the kernel too.
        assert!(brought <= fetched && fetched - brought < 256 << 10, "{brought} of {fetched}");
        assert_eq!(wasted, brought - given, "each page was read once");
        assert_eq!(wasted > 0, ahead, "{wasted}");
        // No page that was brought in counts as a read.
        assert_eq!(file["reads"]["count"], 48 * 4);
        assert_eq!(file["reads"]["bytes"], given);
        let bound = file["reads"]["readahead_wasted_at_least_bytes"].as_u64().unwrap();
        assert!(bound <= fetched - given && bound + (256 << 10) > wasted, "{bound} for {wasted}");
        let words = report["verdict"]["words"].to_string();
        assert_eq!(words.contains("were not read while recording"), ahead, "{words}");
    }
}

#[test]
fn live_adds_up_what_the_process_did() {
    let folder = Folder::new("io-live");
    let (_, mut oracle) = oracle(&folder);
    let pid = oracle.id.to_string();
    let Some(tracer) = Tracer::start(&["live", "--json", "--interval", "300ms", "--pid", &pid]) else {
        return;
    };
    oracle.does(ACCESSES);
    let output = tracer.end();
    let mut sums = HashMap::new();
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let interval: serde_json::Value = serde_json::from_slice(line).unwrap();
        assert!(interval["lost"].as_object().unwrap().values().all(|count| count == 0), "{interval}");
        let files = interval["files"].as_array().unwrap();
        let mine = files.iter().filter(|f| f["name"].as_str().unwrap().ends_with("db/collection-1-2.wt"));
        for file in mine {
            for field in [
                "reads",
                "read_bytes",
                "writes",
                "write_bytes",
                "syncs",
                "contiguous",
                "skips",
                "jumps",
                "back",
            ] {
                *sums.entry(field).or_insert(0) += file[field].as_u64().unwrap();
            }
        }
    }
    let list = expected();
    let of = |kind: &str| list.iter().filter(|access| access.0 == kind).collect::<Vec<_>>();
    assert_eq!(sums["reads"], of("read").len() as u64);
    assert_eq!(sums["read_bytes"], of("read").iter().map(|access| access.3).sum::<u64>());
    assert_eq!(sums["writes"], 2);
    assert_eq!(sums["write_bytes"], 307);
    assert_eq!(sums["syncs"], 2);
    // Distances, of the first thread and of the second.
    let (one, other) = list.split_at(list.len() - 50);
    let (mut contiguous, mut skips, mut jumps, mut back) = (0, 0, 0, 0);
    for thread in [one, other] {
        let reads: Vec<_> = thread.iter().filter(|access| access.0 == "read").collect();
        for pair in reads.windows(2) {
            let (end, at) = (pair[0].1 + pair[0].3, pair[1].1);
            contiguous += u64::from(at == end);
            skips += u64::from(at > end && at - end <= 1 << 20);
            jumps += u64::from(at < end || at > end + (1 << 20));
            back += u64::from(at < end);
        }
    }
    assert_eq!(
        (sums["contiguous"], sums["skips"], sums["jumps"], sums["back"]),
        (contiguous, skips, jumps, back)
    );
}

#[test]
fn a_process_that_is_not_there_is_named() {
    let folder = Folder::new("io-none");
    let output = run(&format!("io record --pid 4194303 {}", folder.path("x").display()));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no process 4194303"), "{output:?}");
    assert!(!folder.path("x").exists());
}

#[test]
fn a_mongod_that_starts_again_is_followed() {
    let folder = Folder::new("io-again");
    let [db, recording] = paths(&folder, ["db", "reads.msio"]);
    fs::create_dir(&db).unwrap();
    fs::write(folder.path("db/collection-1-2.wt"), vec![7; 1 << 20]).unwrap();
    let open = "data = os.open(db + '/collection-1-2.wt', os.O_RDONLY)";
    // Known by what it has open, as one is that has its dbpath from its configuration.
    let mut first = Oracle::new(&folder, &[], &db);
    first.does(CALLED_MONGOD);
    first.does(open);
    // Another one of this machine's.
    fs::create_dir(folder.path("elsewhere")).unwrap();
    let mut other = Oracle::new(&folder, &[], folder.path("elsewhere"));
    other.does(CALLED_MONGOD);
    let Some(mut tracer) = Tracer::start(&["record", "--dbpath", &db, &recording]) else { return };
    let Some(mut live) = Tracer::start(&["live", "--json", "--interval", "200ms", "--dbpath", &db]) else {
        return;
    };
    assert!(tracer.said.contains(&format!("process {} by", first.id)), "only the one: {}", tracer.said);
    let reads = "for n in range(10): os.pread(data, 100, n * 1000)";
    first.does(reads);
    // Its parent has not collected it yet.
    first.end();
    for tracer in [&mut tracer, &mut live] {
        tracer.until_said(&format!("process {} has ended; waiting for the next mongod\n", first.id));
    }
    let first_id = first.id;
    drop(first);

    let mut second = Oracle::new(&folder, &["--dbpath", &db], &db);
    second.does(CALLED_MONGOD);
    for tracer in [&mut tracer, &mut live] {
        tracer.until_said(&format!("process {} is a mongod that has started: it is followed\n", second.id));
    }
    second.does(open);
    second.does(reads);
    second.does(reads);
    other.does("os.open(db + '/x', os.O_RDWR | os.O_CREAT)");
    tracer.end();
    let output = live.end();

    let recorded = Recorded::read(Path::new(&recording));
    let name = "collection-1-2.wt".to_string();
    let expected = BTreeMap::from([((name.clone(), first_id), 10), ((name, second.id), 20)]);
    assert_eq!(counts(&recorded, Path::new(&db)), expected);
    assert_eq!(recorded.files.len(), 1, "one file, whoever reads it: {:?}", recorded.files);
    assert_eq!(recorded.info["processes"], format!("{first_id}, {}", second.id));
    let report = run(&format!("io report --json {recording}"));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["info"]["processes"], recorded.info["processes"], "the last word on it counts");
    assert_eq!(
        live_reads(&output.stdout),
        BTreeMap::from([(format!("{db}/collection-1-2.wt"), 30)]),
        "{output:?}"
    );
}

#[test]
fn a_program_that_becomes_a_mongod_and_one_that_calls_itself_otherwise_are_found() {
    let folder = Folder::new("io-becomes");
    let [db, recording, program] = paths(&folder, ["db", "reads.msio", "mongod"]);
    fs::create_dir(&db).unwrap();
    fs::write(folder.path("db/sizeStorer.wt"), b"0123456789\n").unwrap();
    // The program of this one is called mongod, and it calls itself otherwise.
    fs::copy("/bin/sh", &program).unwrap();
    let otherwise = format!(
        "printf worker > /proc/self/comm; exec 3< {db}/sizeStorer.wt; echo; read go; read x <&3; echo; read go"
    );
    let mut shell = Command::new(&program)
        .args(["-c", &otherwise])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It ends when this goes.
    let mut input = shell.stdin.take().unwrap();
    let mut out = shell.stdout.take().unwrap();
    let mut line = || assert_eq!(out.read(&mut [0]).unwrap(), 1);
    line();
    // A shell that becomes one, as a container's entry point does.
    let mut entry = Oracle::new(&folder, &[], &db);
    let tracer = Tracer::start(&["record", "--dbpath", &db, &recording]);
    let Some(mut tracer) = tracer else {
        drop(input);
        shell.wait().unwrap();
        return;
    };
    assert_eq!(fs::read_to_string(format!("/proc/{}/comm", shell.id())).unwrap(), "worker\n");
    assert!(tracer.said.contains(&format!("process {} by", shell.id())), "{}", tracer.said);
    input.write_all(b"go\n").unwrap();
    line();
    entry.does(CALLED_MONGOD);
    entry.does("data = os.open(db + '/sizeStorer.wt', os.O_RDONLY)");
    tracer.until_said(&format!("process {} is a mongod that has started", entry.id));
    entry.does("os.pread(data, 5, 0)");
    tracer.end();
    drop(input);
    shell.wait().unwrap();

    let recorded = Recorded::read(Path::new(&recording));
    let of = |process| recorded.under(&db).into_iter().filter(move |seen| seen.1 == process);
    // The shell reads a byte at a time.
    let bytes: Vec<_> = of(shell.id()).map(|seen| (seen.3, seen.4, seen.5)).collect();
    assert_eq!(bytes, (0..11).map(|at| (at, 1, 1)).collect::<Vec<_>>());
    assert_eq!(of(entry.id).map(|seen| (seen.3, seen.5)).collect::<Vec<_>>(), [(0, 5)]);
}

#[test]
fn two_mongods_are_told_apart() {
    let folder = Folder::new("io-two");
    let [both, one, db1, db2] = paths(&folder, ["both.msio", "one.msio", "db1", "db2"]);
    let mut servers = Vec::new();
    for db in [&db1, &db2] {
        fs::create_dir(db).unwrap();
        fs::write(Path::new(db).join("collection-1-2.wt"), vec![7; 1 << 20]).unwrap();
        let mut server = Oracle::new(&folder, &["--dbpath", db], db);
        server.does(CALLED_MONGOD);
        server.does("data = os.open(db + '/collection-1-2.wt', os.O_RDWR)");
        servers.push(server);
    }
    // Each is followed, and whatever other mongod is here.
    let Some(mut tracer) = Tracer::start(&["record", &both]) else { return };
    let list = tracer.said.split_once("process ").unwrap().1.split_once(" by").unwrap().0.to_owned();
    let list: Vec<u32> = list.split(", ").map(|id| id.parse().unwrap()).collect();
    assert!(servers.iter().all(|server| list.contains(&server.id)), "{list:?}");
    let Some(of_one) = Tracer::start(&["record", "--dbpath", &db2, &one]) else { return };
    assert!(of_one.said.contains(&format!("process {} by", servers[1].id)), "{}", of_one.said);
    servers[0].does("for n in range(30): os.pread(data, 100, n * 1000)");
    servers[1].does("for n in range(50): os.pwrite(data, b'x' * 10, n * 1000)");
    servers[0].does("os.fsync(data)");
    // Also where one reads the other's.
    servers[0].does(&format!("os.pread(os.open('{db2}/collection-1-2.wt', os.O_RDONLY), 7, 7)"));
    // The folders of its files are found only while it runs, and other servers of this machine may come first.
    servers[0].does(IDLE);
    servers[0].does(&format!("until_idle({}, {})", tracer.id(), of_one.id()));
    // One ends, and its parent does not collect it: it is not taken for a new one at the looks after that.
    servers[0].end();
    tracer.until_said(&format!("process {} has ended", servers[0].id));
    let mut third = Oracle::new(&folder, &[], &db1);
    third.does(CALLED_MONGOD);
    tracer.until_said(&format!("process {} is a mongod that has started", third.id));
    assert!(!tracer.said.contains(&format!("process {} is a mongod", servers[0].id)), "{}", tracer.said);
    tracer.end();
    of_one.end();

    let name = || "collection-1-2.wt".to_string();
    let recorded = Recorded::read(Path::new(&both));
    assert_eq!(counts(&recorded, Path::new(&db1)), BTreeMap::from([((name(), servers[0].id), 31)]));
    assert_eq!(
        counts(&recorded, Path::new(&db2)),
        BTreeMap::from([((name(), servers[0].id), 1), ((name(), servers[1].id), 50)])
    );
    let recorded = Recorded::read(Path::new(&one));
    assert_eq!(counts(&recorded, Path::new(&db2)), BTreeMap::from([((name(), servers[1].id), 50)]));
    assert_eq!(recorded.accesses.len(), 50);
}

/// A copy of the program that anybody may run.
fn copy_for_all(folder: &Folder) -> PathBuf {
    let copy = folder.path("mongosonar");
    fs::copy(env!("CARGO_BIN_EXE_mongosonar"), &copy).unwrap();
    for path in [&copy, &folder.path("")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    copy
}

fn setpriv(arguments: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn without_permission_it_says_what_is_missing_and_that_is_enough() {
    let folder = Folder::new("io-nobody");
    if !setpriv(&["true"]).output().is_ok_and(|done| done.status.success()) {
        eprintln!("skipped, as another user's rights cannot be taken here");
        return;
    }
    let copy = copy_for_all(&folder);
    let copy = copy.to_str().unwrap();
    let (db, mut oracle) = oracle(&folder);
    // As a package makes it: nobody else looks into it.
    fs::set_permissions(&db, fs::Permissions::from_mode(0o700)).unwrap();
    fs::create_dir(folder.path("out")).unwrap();
    fs::set_permissions(folder.path("out"), fs::Permissions::from_mode(0o777)).unwrap();
    let [recording] = paths(&folder, ["out/x.msio"]);
    let pid = oracle.id.to_string();
    let mut named = String::new();
    for command in ["record", "live"] {
        let mut arguments = vec![copy, "io", command, "--pid", &pid];
        arguments.extend((command == "record").then_some(recording.as_str()));
        let output = setpriv(&arguments).output().unwrap();
        let said = text(&output.stderr);
        if said.contains("BTF") {
            eprintln!("skipped, as nothing can be traced here: {said}");
            return;
        }
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("no permission to trace") && said.contains("run as root, or grant"), "{said}");
        assert!(said.ends_with(&format!("+ep {copy}\n")), "{said}");
        named = said.split_once("sudo setcap ").unwrap().1.split_once("+ep ").unwrap().0.to_owned();
        assert!(!Path::new(&recording).exists(), "nothing is left behind");
    }
    let with = |granted: &str| {
        let bounded = format!("-all,{granted}");
        let capable = ["--inh-caps", granted, "--ambient-caps", granted, "--bounding-set", &bounded];
        let mut command = setpriv(&capable);
        command.args([copy, "io", "record", "--pid", &pid, "--dbpath", db.to_str().unwrap(), &recording]);
        command
    };
    // Enough to trace, but not to see whose files those are.
    let Some(mut blind) = Tracer::spawn(with("+bpf,+perfmon")) else { return };
    blind.until_said(&format!("the open files of process {pid} are not readable"));
    blind.until_said(&format!("{named}+ep {copy}\n"));
    blind.end();
    fs::remove_file(&recording).unwrap();
    // Those that it names, and no others.
    let Some(tracer) = Tracer::spawn(with(&named.replace("cap_", "+"))) else { return };
    oracle.does(ACCESSES);
    tracer.end();
    let recorded = Recorded::read(Path::new(&recording));
    let seen = recorded.under(&db);
    let accesses = seen.iter().filter(|access| access.0 == "collection-1-2.wt");
    assert_eq!(accesses.map(|a| (a.2, a.3, a.4, a.5)).collect::<Vec<_>>(), expected());
}

#[test]
fn a_port_alone_names_the_server_to_trace() {
    let folder = Folder::new("io-port");
    let [recording] = paths(&folder, ["x.msio"]);
    // Nothing listens there, or nothing is known to where a server of another test ends at this moment.
    for words in [&["io", "record", recording.as_str()][..], &["io", "live"]] {
        let output = program(words).args(["--port", "1", "--duration", "1s"]).output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("no server"), "{words:?}: {said}");
        assert!(said.contains("on port 1"), "{words:?}: {said}");
    }
    assert!(!Path::new(&recording).exists());
}

#[test]
fn without_btf_it_says_what_the_kernel_lacks() {
    let folder = Folder::new("io-btf");
    let [recording] = paths(&folder, ["x.msio"]);
    let btf = "/sys/kernel/btf";
    let hidden = format!("mount -t tmpfs none {btf} && exec \"$@\"");
    let within = |words: &[&str]| {
        Command::new("unshare").args(["--mount", "sh", "-c", &hidden, "sh"]).args(words).output().unwrap()
    };
    if Path::new(btf).exists() && !within(&["true"]).status.success() {
        eprintln!("skipped, as there can be no mount namespace here");
        return;
    }
    let pid = std::process::id().to_string();
    let output = within(&[env!("CARGO_BIN_EXE_mongosonar"), "io", "record", "--pid", &pid, &recording]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no BTF (/sys/kernel/btf/vmlinux)"), "{said}");
    assert!(said.contains("CONFIG_DEBUG_INFO_BTF=y"), "{said}");
    assert!(!Path::new(&recording).exists());
}
