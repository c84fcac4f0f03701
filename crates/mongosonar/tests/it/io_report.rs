//! `io report` over what a real mongod read, as strace saw it.

use std::path::Path;

use crate::support::{Folder, fixture, recorded_reads, run, text};
use serde_json::Value;
use sonar_core::Timestamp;
use sonar_core::files::{AccessKind, IoAccess, IoLosses};
use sonar_decode::io_file::{FileEntry, RecordingWriter, ThreadEntry};

fn report(name: &str) -> Value {
    let folder = Folder::new(name);
    let path = folder.file("reads.msio", &recorded_reads(name));
    let output = run(&format!("io report --json {}", path.display()));
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The published figures: reads, and jumps. Of the latter one less where the first read was counted as a
/// jump from the beginning of the file (272, 297, 272 and 48,959); here it has no distance.
#[test]
fn a_real_server_s_reads_give_the_published_figures_and_verdicts() {
    for (name, reads, jumps, finding) in [
        ("createIndex-sorted", 12_489, 271, "sequential_pass"),
        ("createIndex-hashed", 12_540, 297, "sequential_pass"),
        ("sortById-sorted", 12_489, 271, "sequential_pass"),
        ("sortById-hashed", 49_559, 48_958, "index_fetch"),
    ] {
        let report = report(name);
        let collection = &report["verdict"];
        assert_eq!(collection["finding"], finding, "{name}");
        let file = report["files"]
            .as_array()
            .unwrap()
            .iter()
            .find(|file| file["file"] == collection["file"])
            .unwrap();
        assert_eq!(file["role"], "collection", "{name}");
        assert_eq!(file["reads"]["count"], reads, "{name}");
        assert_eq!(file["reads"]["jumps"], jumps, "{name}");
        assert_eq!(report["lost"]["ring_full"], 3);
    }
}

#[test]
fn the_text_says_the_verdict_and_hides_no_escape_sequence() {
    let folder = Folder::new("io-text");
    let path = folder.file("reads.msio", &recorded_reads("sortById-hashed"));
    let output = run(&format!("io report {}", path.display()));
    let said = text(&output.stdout);
    assert!(said.contains("A fetch through an index whose order is not the disk's"), "{said}");
    assert!(said.contains("index-10-4596081763205983475.wt"), "{said}");
    assert!(said.contains("49,559 reads"), "{said}");
    assert!(said.contains("lost: accesses that found the ring to the program full: 3"), "{said}");
    assert!(!said.contains("ring_full"), "{said}");
    assert!(!said.contains('\u{1b}'), "{said}");
}

#[test]
fn a_cut_recording_is_shown_up_to_there() {
    let folder = Folder::new("io-cut");
    let whole = recorded_reads("sortById-sorted");
    let path = folder.file("cut.msio", &whole[..whole.len() - 10]);
    let output = run(&format!("io report --json {}", path.display()));
    assert_eq!(output.status.code(), Some(3));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["incomplete"].as_str().unwrap().contains("cut"));
    assert!(report["accesses"].as_u64().unwrap() > 12_000);
    let output = run(&format!("io report {}", folder.file("other", b"something else").display()));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no recording"), "{output:?}");
}

#[test]
fn the_page_holds_the_report_and_its_pictures() {
    let folder = Folder::new("io-html");
    let path = folder.file("reads.msio", &recorded_reads("sortById-hashed"));
    let page = folder.path("reads.html");
    let output = run(&format!("io report --html {} {}", page.display(), path.display()));
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(&page).unwrap();
    let (_, rest) = page.split_once(r#"<script id="data" type="application/json">"#).unwrap();
    let (data, rest) = rest.split_once("</script>").unwrap();
    assert!(rest.contains("</html>") && page.contains("default-src 'none'"), "nothing is fetched");
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["verdict"]["finding"], "index_fetch");
    let picture = &data["pictures"][0];
    assert_eq!(picture["name"], "collection-9-4596081763205983475.wt");
    let sum = |of: &Value, at: usize, step: usize| -> u64 {
        of.as_array().unwrap().iter().skip(at).step_by(step).map(|count| count.as_u64().unwrap()).sum()
    };
    // Each read is in one cell, one column of time, one bucket.
    assert_eq!(sum(&picture["cells"], 2, 4), 49_559);
    let over = picture["over"].as_array().unwrap();
    assert_eq!(over.iter().filter_map(|column| column[0].as_u64()).sum::<u64>(), 49_559);
    assert_eq!(
        picture["buckets"].as_array().unwrap().iter().map(|bucket| sum(bucket, 1, 1)).sum::<u64>(),
        49_559
    );
}

#[test]
fn two_recordings_stand_side_by_side() {
    let folder = Folder::new("io-compare");
    let before = folder.file("before.msio", &recorded_reads("sortById-hashed"));
    let after = folder.file("after.msio", &recorded_reads("createIndex-hashed"));
    let both = format!("{} {}", before.display(), after.display());
    let said = text(&run(&format!("io compare {both}")).stdout).to_string();
    assert!(said.contains("A fetch through an index") && said.contains("A sequential pass"), "{said}");
    let compared: Value = serde_json::from_slice(&run(&format!("io compare --json {both}")).stdout).unwrap();
    let files = compared["files"].as_array().unwrap();
    let collection = files.iter().find(|file| file["name"] == "collection-9-4596081763205983475.wt").unwrap();
    assert_eq!((&collection["reads"]["a"], &collection["reads"]["b"]), (&49_559.into(), &12_540.into()));
    let ratio = collection["reads"]["ratio"].as_f64().unwrap();
    assert!((ratio - 12_540.0 / 49_559.0).abs() < 1e-9);
    // The first line of the text, and how each file changed.
    assert_eq!(compared["answer"].as_str(), said.lines().next());
    let changes: Vec<&str> = files.iter().filter_map(|file| file["change"].as_str()).collect();
    let changed = changes.iter().filter(|change| !["same", "not judged"].contains(change));
    assert_eq!(compared["changed"], changed.count(), "{changes:?}");
}

/// A read of ten bytes of a file.
fn read_of(file: u32) -> IoAccess {
    IoAccess {
        start: Timestamp::from_unix(1, 0),
        latency_ns: 5,
        thread: 1,
        file,
        kind: AccessKind::Read,
        offset: 0,
        asked: 10,
        given: 10,
        error: 0,
        device_bytes: Some(0),
    }
}

/// A recording made with `--uri` holds what the server said its files are.
#[test]
fn names_that_the_server_gave_are_shown() {
    let folder = Folder::new("io-names");
    let mut out = Vec::new();
    let mut writer = RecordingWriter::begin(&[("source", "a test")], &mut out);
    writer.file(&FileEntry { file: 1, device: 0, inode: 0, path: "/db/collection-1-2.wt" }, &mut out);
    writer.info(&[("holds 1", "shop.orders"), ("holds 2x", "no number")], &mut out);
    writer.access(&read_of(1), &mut out);
    writer.end(&IoLosses::default(), &mut out);
    let path = folder.file("named.msio", &out);
    let report: Value =
        serde_json::from_slice(&run(&format!("io report --json {}", path.display())).stdout).unwrap();
    assert_eq!(report["files"][0]["label"], "shop.orders");
    assert_eq!(report["info"]["holds 2x"], "no number");
    assert!(text(&run(&format!("io report {}", path.display())).stdout).contains(" shop.orders\n"));
}

/// Their device is known to be that of `/proc` only once a file on it has its folder in its name.
#[test]
fn files_without_a_folder_that_turn_out_to_be_in_proc_are_left_out_from_the_first_access_on() {
    let folder = Folder::new("io-late");
    let mut out = Vec::new();
    let mut writer = RecordingWriter::begin(&[("source", "a test")], &mut out);
    for (file, device, path) in
        [(1, 5, "netstat"), (2, 9, "/db/collection-1-2.wt"), (3, 5, "/proc/7/stat"), (4, 6, "nameless")]
    {
        writer.file(&FileEntry { file, device, inode: u64::from(file), path }, &mut out);
        writer.access(&read_of(file), &mut out);
    }
    writer.end(&IoLosses::default(), &mut out);
    let path = folder.file("late.msio", &out).display().to_string();
    let said = text(&run(&format!("io report {path}")).stdout).to_owned();
    assert!(said.contains("left out: 2 accesses to files of /proc and /sys"), "{said}");
    assert!(!said.contains("netstat") && said.contains("nameless"), "{said}");
}

/// Reads of one file, 64 KiB each at random, by threads of these names; each read's bytes from the device.
fn made(threads: &[&str], device_bytes: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let info = [("host", "db1"), ("device 264241152", "sdb1 sdb")];
    let mut writer = RecordingWriter::begin(&info, &mut out);
    let path = "/db/collection-1-2.wt";
    writer.file(&FileEntry { file: 1, device: 264_241_152, inode: 7, path }, &mut out);
    for (thread, name) in threads.iter().enumerate() {
        writer.thread(&ThreadEntry { thread: thread as u32, process: 1, name }, &mut out);
    }
    for n in 0..1_000u64 {
        let access = IoAccess {
            start: Timestamp::from_unix_ns(1_000_000_000 + n * 1_000_000),
            // As many of them overlap as there are threads.
            latency_ns: 1_000_000 * threads.len() as u64,
            thread: (n % threads.len() as u64) as u32,
            file: 1,
            kind: AccessKind::Read,
            offset: (n * 7_919 % 1_000) * 65_536,
            asked: 65_536,
            given: 65_536,
            error: 0,
            device_bytes: Some(device_bytes),
        };
        writer.access(&access, &mut out);
    }
    writer.end(&IoLosses::default(), &mut out);
    out
}

#[test]
fn a_bench_tells_what_this_disk_would_take() {
    let folder = Folder::new("io-bench");
    let path = folder.file("reads.msio", &made(&["conn1", "conn2"], 65_536));
    let bench = fixture("disk-bench.json").display().to_string();
    let run_json = |bench: &str| {
        let output = run(&format!("io report --json {} --bench {bench}", path.display()));
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["verdict"].clone()
    };
    let verdict = run_json(&bench);
    let found = &verdict["bench"];
    // The figures of the fixture, taken from it by hand: 2.68 GB/s streamed, two in flight 44,937/s.
    let measured: Value = serde_json::from_slice(&std::fs::read(&bench).unwrap()).unwrap();
    let streamed = measured["probes"][4]["bytes_per_second"].as_f64().unwrap();
    let two = measured["steps"][1]["reads"]["count"].as_f64().unwrap()
        / measured["steps"][1]["seconds"].as_f64().unwrap();
    assert_eq!(measured["probes"][4]["sequential"], true);
    let close = |found: &Value, want: f64| {
        let found = found.as_f64().unwrap();
        assert!((found / want - 1.0).abs() < 1e-3, "{found} is not {want}");
    };
    let bytes = 1_000.0 * 65_536.0;
    close(&found["depth"], 2.0);
    close(&found["in_order_ns"], bytes / streamed * 1e9);
    close(&found["random_reads_per_s"], two);
    // Each read is a place, and 15 records of 4 KiB beyond the first one.
    close(&found["random_all_ns"], (1_000.0 / two + bytes * 15.0 / 16.0 / streamed) * 1e9);
    assert_eq!(found["random_once_ns"], found["random_all_ns"]);
    assert_eq!((&found["device"], &found["same_device"]), (&"vda".into(), &false.into()));
    let said = text(&run(&format!("io report {} --bench {bench}", path.display())).stdout).to_string();
    assert!(said.contains("On vda, as disk bench measured it on 2026-11-21, reading the 65.5MB"), "{said}");
    assert!(said.contains("the bench tested vda, and the file lies on sdb1 sdb of db1"), "{said}");

    // The same on the disk below the partition; on another machine; where nothing is named.
    let with = |name: &str, device: Value, host: Value| {
        let mut measured = measured.clone();
        measured["place"]["device"] = device;
        measured["place"]["host"] = host;
        let bench = folder.file(name, measured.to_string().as_bytes());
        run_json(&bench.display().to_string())["bench"]["same_device"].clone()
    };
    assert_eq!(with("a.json", "sdb".into(), "db1".into()), true);
    assert_eq!(with("b.json", "sdb".into(), "db2".into()), false);
    assert_eq!(with("c.json", Value::Null, Value::Null), Value::Null);
}

#[test]
fn what_is_no_bench_is_refused_in_words() {
    let folder = Folder::new("io-no-bench");
    let path = folder.file("reads.msio", &made(&["conn1"], 0));
    let mut writes: Value =
        serde_json::from_slice(&std::fs::read(fixture("disk-bench.json")).unwrap()).unwrap();
    writes["settings"]["r"] = false.into();
    let writes = folder.file("writes.json", writes.to_string().as_bytes()).display().to_string();
    let recording = path.display().to_string();
    for (bench, why) in [
        (recording.as_str(), "not a result of disk bench"),
        (writes.as_str(), "only wrote"),
        ("/nowhere.json", "cannot read /nowhere.json"),
    ] {
        let output = run(&format!("io report {recording} --bench {bench}"));
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(why), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

/// Times of reads from the page cache are those of memory, and the report says so.
#[test]
fn times_of_memory_are_not_taken_for_the_disk_s() {
    let folder = Folder::new("io-memory");
    let cached = folder.file("cached.msio", &made(&["conn1"], 0));
    let cold = folder.file("cold.msio", &made(&["conn1"], 65_536));
    let words = |path: &Path| text(&run(&format!("io report {}", path.display())).stdout).to_string();
    let (cached_words, cold_words) = (words(&cached), words(&cold));
    assert!(cached_words.contains("The times are those of memory"), "{cached_words}");
    assert!(!cold_words.contains("those of memory"), "{cold_words}");
    let output = run(&format!("io report --json {}", cached.display()));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["verdict"]["of_memory"], true);
}

/// 2,000 random reads of 4 KiB among `blocks` blocks of a collection, the first `from_device` of them from the device.
fn small_reads(
    writer: &mut RecordingWriter,
    out: &mut Vec<u8>,
    (file, blocks, from_device): (u32, u64, u64),
) {
    let path = format!("/db/collection-{file}-2.wt");
    writer.file(&FileEntry { file, device: 264_241_152, inode: u64::from(file), path: &path }, out);
    for n in 0..2_000u64 {
        let access = IoAccess {
            start: Timestamp::from_unix_ns(1_000_000_000 + n * 100_000),
            latency_ns: if n < from_device { 80_000 } else { 60_000 },
            thread: file,
            file,
            kind: AccessKind::Read,
            offset: (n * 1_009 % blocks) * 4_096,
            asked: 4_096,
            given: 4_096,
            error: 0,
            device_bytes: Some(if n < from_device { 4_096 } else { 0 }),
        };
        writer.access(&access, out);
    }
}

fn small_recording(files: &[(u32, u64, u64)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = RecordingWriter::begin(&[("source", "a test")], &mut out);
    for file in files {
        small_reads(&mut writer, &mut out, *file);
    }
    writer.end(&IoLosses::default(), &mut out);
    out
}

/// A file of 400 kB that lay in the page cache: nothing is concluded, and nothing contradicts that.
#[test]
fn a_file_that_was_cached_gets_no_verdict() {
    let folder = Folder::new("io-cached");
    for (name, files, why) in [
        (
            "whole",
            &[(1, 100, 0)][..],
            "most of collection-1-2.wt, a file of the kind collection, came from the page cache, 0%",
        ),
        ("most", &[(1, 100, 40)], "came from the page cache, 40%"),
        ("few", &[(1, 50, 50)], "waited for the device: 50 of 2,000."),
    ] {
        let path = folder.file(name, &small_recording(files)).display().to_string();
        let said = text(&run(&format!("io report {path}")).stdout).to_string();
        let (verdict, _) = said.split_once("\nFiles, by time").unwrap();
        assert!(verdict.contains("No verdict: ") && verdict.contains(why), "{name}: {said}");
        for word in ["bound by I/O", "Random reads", "A fetch", "order of the disk would", "Evidence"] {
            assert!(!verdict.contains(word), "{name}, {word}: {said}");
        }
    }
    // A file that waited for the device is judged, also where more time was spent in one that was cached.
    let path = folder.file("both", &small_recording(&[(1, 100, 0), (2, 2_000, 1_500)]));
    let report: Value =
        serde_json::from_slice(&run(&format!("io report --json {}", path.display())).stdout).unwrap();
    assert_eq!(
        (&report["verdict"]["file"], &report["verdict"]["finding"]),
        (&2.into(), &"random_reads".into())
    );
    assert_eq!(report["verdict"]["device_reads"], 1_500);
}

#[test]
fn threads_are_told_apart_by_what_they_are_for() {
    let folder = Folder::new("io-roles");
    let build = folder.file("build.msio", &made(&["IndexBu.ongod-0"], 65_536));
    let said = text(&run(&format!("io report {}", build.display())).stdout).to_string();
    assert!(
        said.contains("Random reads of collection-1-2.wt") && said.contains("by an index build's thread"),
        "{said}"
    );
    assert!(said.contains("Thread IndexBu.ongod-0 (0), index build, waited"), "{said}");
    let many = folder.file("many.msio", &made(&["conn1", "conn22", "conn3", "WTCheck.tThread"], 65_536));
    let said = text(&run(&format!("io report {}", many.display())).stdout).to_string();
    assert!(said.contains("by 3 clients' connections"), "{said}");
    assert!(said.contains("75% of the reads were made by 3 clients' connections."), "{said}");
    let report: Value =
        serde_json::from_slice(&run(&format!("io report --json {}", many.display())).stdout).unwrap();
    assert_eq!(report["verdict"]["thread_role"], "client connection");
    assert_eq!(
        (&report["verdict"]["role_threads"], &report["verdict"]["role_share"]),
        (&3.into(), &0.75.into())
    );
    let threads = report["threads"].as_array().unwrap();
    assert!(
        threads.iter().any(|thread| thread["name"] == "WTCheck.tThread" && thread["role"] == "checkpoint")
    );
}
