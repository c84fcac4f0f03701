//! The names of files that `io record` and `io live` find: of files that are renamed, deleted or replaced, of many, and in
//! a mount namespace.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::trace::{CALLED_MONGOD, Oracle, Recorded, Tracer, counts, live_reads, paths};
use crate::support::{Folder, run, text};

#[test]
fn files_that_are_renamed_deleted_cut_and_reopened_keep_their_accesses_and_names() {
    let folder = Folder::new("io-renamed");
    let [db, recording] = paths(&folder, ["db", "reads.msio"]);
    fs::create_dir_all(folder.path("db/journal")).unwrap();
    for name in ["renamed.wt", "deleted.wt", "gone.wt", "cut.wt", "again.wt", "said (deleted)", "mapped.wt"] {
        fs::write(folder.path("db").join(name), vec![7; 65_536]).unwrap();
    }
    let mut oracle = Oracle::new(&folder, &[], &db);
    // Deleted before anybody looks.
    oracle.does("gone = os.open(db + '/gone.wt', os.O_RDWR); os.unlink(db + '/gone.wt')");
    let pid = oracle.id.to_string();
    let Some(tracer) = Tracer::start(&["record", "--pid", &pid, "--dbpath", &db, &recording]) else { return };
    let Some(live) = Tracer::start(&["live", "--json", "--pid", &pid, "--dbpath", &db]) else { return };
    // All at once, so that nobody looks in between.
    oracle.does(
        r#"
def opened(name, flags=os.O_RDWR):
    return os.open(db + "/" + name, flags)
os.pread(gone, 100, 0)
one = opened("renamed.wt")
for n in range(10):
    os.pread(one, 100, n)
os.rename(db + "/renamed.wt", db + "/new-name.wt")
for n in range(10):
    os.pread(one, 200, n)
# As WiredTiger makes a log file ready.
log = opened("journal/WiredTigerTmplog.0000000001", os.O_RDWR | os.O_CREAT)
os.write(log, b"y" * 128)
os.rename(db + "/journal/WiredTigerTmplog.0000000001", db + "/journal/WiredTigerLog.0000000001")
os.write(log, b"y" * 128)
os.close(log)
two = opened("deleted.wt")
os.pread(two, 100, 1)
os.unlink(db + "/deleted.wt")
for n in range(20):
    os.pread(two, 100, n)
three = opened("cut.wt")
os.pread(three, 4096, 60000)
os.ftruncate(three, 100)
os.pread(three, 4096, 60000)
os.pread(three, 4096, 0)
os.pwrite(three, b"x" * 50, 200)
for n in range(30):
    four = opened("again.wt")
    if n % 3 == 0:
        other = opened("said (deleted)")
        os.pread(other, 3, n)
        os.close(other)
        os.dup2(four, 97)
        os.close(four)
        four = 97
    os.pread(four, 50, n * 1000)
    os.close(four)
"#,
    );
    tracer.end();
    let live = live_reads(&live.end().stdout);

    let recorded = Recorded::read(Path::new(&recording));
    let seen = recorded.under(&db);
    assert_eq!(seen.len(), recorded.accesses.len(), "each has its folder: {:?}", recorded.files);
    let of = |name: &str| {
        let accesses = seen.iter().filter(|access| access.0 == name);
        accesses.map(|access| (access.2, access.3, access.4, access.5)).collect::<Vec<_>>()
    };
    assert_eq!(of("gone.wt"), [("read", 0, 100, 100)]);
    let renamed: Vec<_> =
        (0..10).map(|n| ("read", n, 100, 100)).chain((0..10).map(|n| ("read", n, 200, 200))).collect();
    assert_eq!(of("renamed.wt"), renamed);
    let deleted: Vec<_> = [1].into_iter().chain(0..20).map(|n| ("read", n, 100, 100)).collect();
    assert_eq!(of("deleted.wt"), deleted);
    let cut = [
        ("read", 60_000, 4_096, 4_096),
        ("read", 60_000, 4_096, 0),
        ("read", 0, 4_096, 100),
        ("write", 200, 50, 50),
    ];
    assert_eq!(of("cut.wt"), cut);
    assert_eq!(of("again.wt"), (0..30).map(|n| ("read", n * 1_000, 50, 50)).collect::<Vec<_>>());
    assert_eq!(of("said (deleted)"), (0..10).map(|n| ("read", n * 3, 3, 3)).collect::<Vec<_>>());
    assert_eq!(of("journal/WiredTigerTmplog.0000000001"), [("write", 0, 128, 128), ("write", 128, 128, 128)]);
    assert_eq!(seen.len(), 1 + 20 + 21 + 4 + 30 + 10 + 2, "{:?}", recorded.files);
    let mut reads: HashMap<_, u64> = HashMap::new();
    for access in recorded.seen().filter(|access| access.2 == "read") {
        *reads.entry(access.0).or_default() += 1;
    }
    assert_eq!(live, reads.into_iter().collect(), "live says the same");
}

#[test]
fn files_that_replace_each_other_lose_no_access() {
    let folder = Folder::new("io-replaced");
    let [db, recording] = paths(&folder, ["db", "reads.msio"]);
    fs::create_dir(&db).unwrap();
    let mut oracle = Oracle::new(&folder, &[], &db);
    let pid = oracle.id.to_string();
    let Some(tracer) = Tracer::start(&["record", "--pid", &pid, &recording]) else { return };
    let Some(live) = Tracer::start(&["live", "--json", "--pid", &pid]) else { return };
    oracle.does(
        r#"
def opened(name, flags=os.O_RDWR):
    return os.open(db + "/" + name, flags)
# As WiredTiger replaces its turtle.
for n in range(20):
    new = opened("WiredTiger.turtle.set", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.write(new, b"x" * (1000 + n))
    os.fsync(new)
    os.close(new)
    os.rename(db + "/WiredTiger.turtle.set", db + "/WiredTiger.turtle")
    turtle = opened("WiredTiger.turtle", os.O_RDONLY)
    os.read(turtle, 4096)
    os.close(turtle)
"#,
    );
    tracer.end();
    let live = live_reads(&live.end().stdout);

    // Each is gone by the time that the next one has come, so that some have no folder any more. Which of
    // both names one has is which it was seen by first: file systems give inodes again.
    let is_turtle = |path: &str| {
        let name = path.strip_prefix(&db).map_or(path, |rest| rest.trim_start_matches('/'));
        name == "WiredTiger.turtle" || name == "WiredTiger.turtle.set"
    };
    let recorded = Recorded::read(Path::new(&recording));
    assert!(recorded.files.values().all(|path| is_turtle(path)), "{:?}", recorded.files);
    let turtle: Vec<_> = recorded.seen().map(|access| (access.2, access.4, access.5)).collect();
    let replaced = |n: u64| [("write", 1_000 + n, 1_000 + n), ("fsync", 0, 0), ("read", 4_096, 1_000 + n)];
    assert_eq!(turtle, (0..20).flat_map(replaced).collect::<Vec<_>>());
    assert!(live.keys().all(|path| is_turtle(path)), "{live:?}");
    assert_eq!(live.values().sum::<u64>(), 20);
}

#[test]
fn twelve_thousand_files_keep_their_names_and_counts() {
    let folder = Folder::new("io-many");
    let [db, recording] = paths(&folder, ["db", "reads.msio"]);
    fs::create_dir(&db).unwrap();
    let mut oracle = Oracle::new(&folder, &[], &db);
    // Half of them stay open, as a mongod's do; the others are closed at once. In folders of their own, as
    // with directoryPerDB.
    oracle.does(
        r#"
resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))
def name(n):
    return f"{db}/db{n % 40}/collection-{n}-1.wt"
for n in range(40):
    os.mkdir(f"{db}/db{n}")
for n in range(12000):
    with open(name(n), "wb") as file:
        file.write(b"x" * 100)
"#,
    );
    let pid = oracle.id.to_string();
    let Some(tracer) = Tracer::start(&["record", "--pid", &pid, "--dbpath", &db, &recording]) else { return };
    let Some(live) = Tracer::start(&["live", "--json", "--interval", "1m", "--pid", &pid, "--dbpath", &db])
    else {
        return;
    };
    oracle.does(
        r#"
for n in range(12000):
    file = os.open(name(n), os.O_RDONLY)
    os.pread(file, 10 + n % 50, n % 7)
    if n % 2:
        os.close(file)
"#,
    );
    tracer.end();
    let live = live_reads(&live.end().stdout);

    let recorded = Recorded::read(Path::new(&recording));
    let expected: BTreeSet<_> = (0..12_000u64)
        .map(|n| {
            (format!("db{}/collection-{n}-1.wt", n % 40), oracle.id, "read", n % 7, 10 + n % 50, 10 + n % 50)
        })
        .collect();
    let seen = recorded.under(&db);
    assert_eq!((recorded.accesses.len(), seen.len()), (12_000, 12_000));
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), expected);
    assert_eq!(live.len(), 12_000);
    assert!(live.iter().all(|(name, reads)| name.starts_with(&db) && *reads == 1));

    let report = text(&run(&format!("io report {recording}")).stdout).to_owned();
    assert!(report.contains("\n12,000 accesses in "), "{report}");
    assert!(report.contains("\nFiles, by time spent in reading them (20 of 12000)\n"), "{report}");
    assert_eq!(report.lines().filter(|line| line.ends_with("-1.wt")).count(), 20, "{report}");
    assert!(!report.contains("not distinguished") && !report.contains("lost"), "{report}");
    let report = run(&format!("io report --json --limit 100000 {recording}"));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let files = report["files"].as_array().unwrap();
    assert_eq!((report["files_total"].as_u64(), files.len()), (Some(12_000), 12_000));
    assert!(report["lost"].as_object().unwrap().values().all(|count| count == 0), "{}", report["lost"]);
    let bytes: u64 = files.iter().map(|file| file["reads"]["bytes"].as_u64().unwrap()).sum();
    assert_eq!(bytes, (0..12_000).map(|n| 10 + n % 50).sum::<u64>());
}

/// A reader that is late has their records still to read when it is to end.
#[test]
fn files_that_are_read_while_nobody_reads_their_records_have_their_names_and_counts() {
    let folder = Folder::new("io-late");
    let [db, recording] = paths(&folder, ["db", "reads.msio"]);
    fs::create_dir(&db).unwrap();
    let mut oracle = Oracle::new(&folder, &[], &db);
    oracle.does(
        r#"
for n in range(8000):
    with open(f"{db}/collection-{n}-1.wt", "wb") as file:
        file.write(b"x" * 100)
"#,
    );
    let pid = oracle.id.to_string();
    let Some(tracer) = Tracer::start(&["record", "--pid", &pid, "--dbpath", &db, &recording]) else { return };
    let Some(live) = Tracer::start(&["live", "--json", "--interval", "1m", "--pid", &pid, "--dbpath", &db])
    else {
        return;
    };
    tracer.suspend();
    live.suspend();
    oracle.does(
        r#"
for n in range(8000):
    file = os.open(f"{db}/collection-{n}-1.wt", os.O_RDONLY)
    os.pread(file, 10, 0)
    os.close(file)
"#,
    );
    tracer.end();
    let live = live_reads(&live.end().stdout);
    assert_eq!(Recorded::read(Path::new(&recording)).under(&db).len(), 8_000);
    assert_eq!(live.len(), 8_000);
    assert!(live.iter().all(|(name, reads)| name.starts_with(&db) && *reads == 1));
}

/// In mount namespaces of its own, and of processes: a container, as far as files go.
#[test]
fn a_mount_namespace_has_its_own_paths_and_the_folder_is_found_by_both() {
    let folder = Folder::new("io-namespace");
    let [outside, inside] = paths(&folder, ["srv", "data/db"]);
    fs::create_dir_all(&outside).unwrap();
    fs::create_dir_all(&inside).unwrap();
    fs::write(folder.path("srv/collection-1-2.wt"), vec![7; 65_536]).unwrap();
    fs::write(folder.path("beside"), vec![7; 65_536]).unwrap();
    let mount = format!("mount --bind '{outside}' '{inside}' && exec \"$@\"");
    // There this folder exists in the namespace only.
    let only = format!(
        "mount -t tmpfs none '{0}/data' && mkdir -p '{inside}/x' && {mount}",
        folder.path("").display()
    );
    for (at, (unshare, shell)) in
        [(&["--mount"] as &[&str], &mount), (&["--mount", "--pid", "--fork", "--mount-proc"], &only)]
            .into_iter()
            .enumerate()
    {
        let mut wrapper = vec!["unshare"];
        wrapper.extend(unshare.iter().chain(&["sh", "-c", shell.as_str(), "sh"]));
        let tried = Command::new(wrapper[0]).args(&wrapper[1..]).arg("true").output().unwrap();
        if !tried.status.success() {
            eprintln!("skipped, as there can be no mount namespace here: {}", text(&tried.stderr));
            return;
        }
        let mut oracle = Oracle::within(&wrapper, &folder, &[], &inside);
        // With --fork it is a child of what was started, and has another number for itself.
        let child = fs::read_to_string(format!("/proc/{0}/task/{0}/children", oracle.id)).unwrap();
        if let Some(child) = child.split_ascii_whitespace().next() {
            oracle.id = child.parse().unwrap();
            assert_eq!(oracle.says("os.getpid()"), "1");
        }
        oracle.does(CALLED_MONGOD);
        oracle.does("data = os.open(db + '/collection-1-2.wt', os.O_RDONLY)");
        let beside = folder.path("beside");
        oracle.does(&format!("beside = os.open('{}', os.O_RDONLY)", beside.display()));
        let pid = oracle.id.to_string();
        let mut recordings = Vec::new();
        let mut tracers = Vec::new();
        let arguments: [&[&str]; 5] = [
            &["--pid", &pid],
            &["--pid", &pid, "--dbpath", &outside],
            &["--pid", &pid, "--dbpath", &inside],
            &["--dbpath", &outside],
            &["--dbpath", &inside],
        ];
        for (n, arguments) in arguments.into_iter().enumerate() {
            let recording = folder.path(&format!("{at}-{n}.msio"));
            let mut words = vec!["record"];
            words.extend(arguments);
            words.push(recording.to_str().unwrap());
            let Some(tracer) = Tracer::start(&words) else { return };
            assert!(tracer.said.contains(&format!("process {pid} by")), "{arguments:?}: {}", tracer.said);
            tracers.push((tracer, !arguments.contains(&"--dbpath")));
            recordings.push(recording);
        }
        oracle.does("for n in range(40): os.pread(data, 100, n * 100)");
        oracle.does("os.pread(beside, 100, 0)");
        // A file that is closed before anybody can look.
        oracle.does("with open(db + '/new.wt', 'wb', buffering=0) as file: file.write(b'x')");
        for ((tracer, all), recording) in tracers.into_iter().zip(recordings) {
            tracer.end();
            let recorded = Recorded::read(Path::new(&recording));
            let mut expected = BTreeMap::from([
                (("collection-1-2.wt".to_string(), oracle.id), 40),
                (("new.wt".to_string(), oracle.id), 1),
            ]);
            assert_eq!(counts(&recorded, Path::new(&inside)), expected, "{at} {recording:?}");
            if all {
                expected.insert(("beside".into(), oracle.id), 1);
            }
            assert_eq!(
                recorded.accesses.len(),
                expected.values().sum::<usize>(),
                "{at} {:?}",
                recorded.files
            );
        }
    }
}

#[test]
fn a_folder_that_is_nowhere_is_said() {
    let folder = Folder::new("io-nowhere");
    let pid = std::process::id();
    let [nowhere, recording] = paths(&folder, ["nowhere", "x.msio"]);
    let output = run(&format!("io record --pid {pid} --dbpath {nowhere} {recording}"));
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains(&nowhere) && said.contains("no traced process has it"), "{said}");
    assert!(!folder.path("x.msio").exists());
}
