//! A capture file gives the same, to the byte, however many threads decode it.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::support::*;
use bson::{Document, doc};
use sonar_decode::testing::{Conversation, ConversationEnd, OwnedPacket, op_msg, pcap};

/// Of a server, and of a sharded cluster.
const RECORDINGS: [&str; 2] = ["mongod-4.0-mixed", "mongod-4.0-sharded"];
const MORE_RECORDINGS: [&str; 2] = ["mongod-4.4-minutes", "mongod-4.4-oplog"];

/// Asks for every kind of output.
const WAYS: [&str; 6] = [
    "--json --class all --role all --interval 1s",
    "--class all --role all --by order",
    "--csv --by client",
    "--json --digest --by namespace",
    "--json --each --show-values --class all --role all",
    "--json --duration 2s --sample 1/2 --port 27000-27999 --by app",
];

/// The numbers of threads beside one: more than there are processors is what differs most from one.
fn several() -> &'static [u32] {
    if is_long() { &[2, 3, 8] } else { &[3] }
}

/// What a command wrote, and how it ended.
fn written(output: &Output) -> (Option<i32>, &str, &str) {
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Reads a capture in all ways with one thread and with several. Returns what the first way wrote.
fn all_the_same(file: &Path, folder: &Folder) -> String {
    let html = format!("--html {}", folder.path("page.html").display());
    let ways: Vec<&str> = WAYS.into_iter().chain([&*html]).collect();
    the_same(file, folder, &ways);
    text(&read(file, WAYS[0]).stdout).to_owned()
}

/// Reads a capture in these ways with one thread and with several.
fn the_same(file: &Path, folder: &Folder, ways: &[&str]) {
    let page = folder.path("page.html");
    for way in ways {
        let by = |threads: u32| {
            let output = read(file, &format!("{way} --threads {threads}"));
            let written = std::fs::read(&page).unwrap_or_default();
            let _ = std::fs::remove_file(&page);
            (output, written)
        };
        let one = by(1);
        for &threads in several() {
            let others = by(threads);
            let name = file.display();
            assert!(written(&others.0) == written(&one.0), "{name} {way}, {threads} threads");
            assert!(others.1 == one.1, "{name}: the page by {threads} threads");
        }
    }
}

fn message(id: u32, response_to: u32, document: &Document) -> Vec<u8> {
    op_msg(id, response_to, &document.to_vec().unwrap())
}

/// Many connections, which take turns.
struct Clients {
    talks: Vec<Conversation>,
    packets: Vec<OwnedPacket>,
    id: u32,
}

impl Clients {
    fn new(count: u32) -> Self {
        let talk = |n| {
            let client = format!("10.0.{}.2:{}", n % 250, 20_000 + n);
            Conversation::new(&client, "10.0.255.1:27017").with_seq(77_777 * n, 99_999 * n)
        };
        Self { talks: (0..count).map(talk).collect(), packets: Vec::new(), id: 0 }
    }

    /// The connection `which`, counted round and round.
    fn talk(&mut self, which: u32) -> &mut Conversation {
        let at = which as usize % self.talks.len();
        &mut self.talks[at]
    }

    /// Takes over the packets of a connection, 10 µs apart.
    fn take(&mut self, which: u32) {
        let start = Conversation::new("10.0.0.1:1", "10.0.0.1:2").now();
        let packets = std::mem::take(&mut self.talk(which).packets);
        for mut packet in packets {
            packet.time = start.plus_ns(10_000 * self.packets.len() as u64);
            self.packets.push(packet);
        }
    }

    /// A command and its reply.
    fn ask(&mut self, which: u32, command: &Document, reply: &Document) {
        self.id += 1;
        let id = self.id;
        let talk = self.talk(which);
        talk.send(ConversationEnd::Client, &message(id, 0, command));
        talk.send(ConversationEnd::Server, &message(1_000_000 + id, id, reply));
        self.take(which);
    }

    fn file(&self, folder: &Folder, name: &str) -> std::path::PathBuf {
        folder.file(name, &pcap(&self.packets))
    }
}

#[test]
fn recordings_of_real_servers() {
    let folder = Folder::new("recordings-by-flow");
    let more = MORE_RECORDINGS.into_iter().filter(|_| is_long());
    for name in RECORDINGS.into_iter().chain(more) {
        let found = all_the_same(&recording(name), &folder);
        assert!(found.contains("\"kind\":\"summary\""), "{name}");
    }
}

/// Drivers send a getMore on any connection of their pool.
#[test]
fn a_cursor_is_used_on_other_connections() {
    let folder = Folder::new("cursors-by-flow");
    let mut clients = Clients::new(50);
    for n in 0..3_000_u32 {
        let id = i64::from(n / 3 % 40) + 1;
        let batch =
            |kind: &str, id: i64| doc! {"cursor": {kind: [{"a": 1}], "id": id, "ns": "s.t"}, "ok": 1.0};
        let find = doc! {"find": "t", "filter": {format!("f{}", n % 7): 1}, "$db": "s"};
        clients.ask(n, &find, &batch("firstBatch", id));
        let more = doc! {"getMore": id, "collection": "t", "$db": "s"};
        clients.ask(n * 31 + 7, &more, &batch("nextBatch", id * i64::from(n % 3)));
        clients.ask(
            n * 17 + 3,
            &doc! {"killCursors": "t", "cursors": [id + 1], "$db": "s"},
            &doc! {"ok": 1.0},
        );
    }
    let found = all_the_same(&clients.file(&folder, "cursors.pcap"), &folder);
    // Some count for a find, and others for themselves, as their cursor was used up.
    assert!(!found.contains("\"cursors_joined_late\":0"), "{found}");
}

/// More shapes than are remembered: the first ones have rows of their own.
#[test]
fn the_shapes_of_a_full_table() {
    let folder = Folder::new("shapes-by-flow");
    let mut clients = Clients::new(20);
    for n in 0..20_500_u32 {
        let find = doc! {"find": "t", "filter": {format!("f{}", n / 2 * 2): 1}, "$db": "s"};
        clients.ask(n, &find, &doc! {"ok": 1.0});
        clients.ask(n * 7, &doc! {"count": format!("c{n}"), "$db": "s"}, &doc! {"n": 1, "ok": 1.0});
    }
    let file = clients.file(&folder, "shapes.pcap");
    let more = ["--interval 100ms --limit 3", "--csv"].into_iter().filter(|_| is_long());
    the_same(&file, &folder, &["--each"].into_iter().chain(more).collect::<Vec<_>>());
    let summary = summary(&read(&file, "--json --limit 1 --threads 3"));
    assert!(summary["coverage"]["shapes_folded"].as_u64().unwrap() > 0, "{summary}");
}

/// Lost segments, segments that come twice, fragments, connections that are not MongoDB's, other VLANs and translated
/// addresses; and a file that is cut in the middle of that.
#[test]
fn what_is_lost_and_what_comes_twice() {
    let folder = Folder::new("lost-by-flow");
    let mut clients = Clients::new(60);
    for n in 0..4_000_u32 {
        let find = doc! {"find": "t", "filter": {format!("f{}", n % 50): 1}, "$db": "s"};
        let long = "x".repeat(if n % 90 == 0 { 60_000 } else { 10 });
        let batch = doc! {"cursor": {"firstBatch": [{"a": long}], "id": 0_i64, "ns": "s.t"}, "ok": 1.0};
        match n % 40 {
            3 => drop(clients.talk(n).lose(ConversationEnd::Server, 700)),
            5 => drop(clients.talk(n).lose(ConversationEnd::Client, 90)),
            7 => drop(clients.talk(n).close().handshake()),
            9 => drop(clients.talk(n * 60).send(ConversationEnd::Client, &[0x16, 3, 1, 0, 90, 1, 2, 3])),
            _ => {}
        }
        clients.take(n);
        clients.ask(n, &find, &batch);
        let last = clients.packets.last().unwrap().clone();
        let mut again = last.clone();
        match n % 11 {
            1 => again.data[14 + 6] = 0x20,
            2 => {
                again.data[14 + 14] ^= 0x80;
                again.data[14 + 18] ^= 0x80;
            }
            3 => drop(again.data.splice(12..12, [0x81, 0, 0, 7])),
            4 => {}
            _ => continue,
        }
        clients.packets.push(again);
    }
    let file = clients.file(&folder, "lost.pcap");
    let found = all_the_same(&file, &folder);
    for counter in ["gaps", "frames_ip_fragment", "frames_twin_interface", "segments_duplicate"] {
        assert!(found.lines().last().unwrap().contains(&format!("\"{counter}\":")), "{counter} in {found}");
    }
    let mut cut = std::fs::read(file).unwrap();
    cut.truncate(cut.len() / 2 + 5);
    let file = folder.file("cut.pcap", &cut);
    all_the_same(&file, &folder);
    assert_eq!(read(&file, "--threads 3").status.code(), Some(3));
}

/// Reports and comparisons use all cores for a large file; here they get one.
#[test]
fn reports_by_all_cores() {
    let folder = Folder::new("report-by-flow");
    let file = folder.file("wire.pcap", &unpacked("mongod-4.0-mixed"));
    let file = file.display();
    for words in [format!("report --json {file}"), format!("compare {file} {file} --json")] {
        let on_one = Command::new("taskset")
            .args(["-c", "0", env!("CARGO_BIN_EXE_mongosonar")])
            .args(words.split_whitespace())
            .output()
            .unwrap();
        assert!(written(&run(&words)) == written(&on_one), "{words}");
        assert_eq!(on_one.status.code(), Some(0), "{on_one:?}");
    }
}

/// Waits for the end of a program, which must come soon.
fn wait(mut child: std::process::Child) -> Option<i32> {
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not end");
        // span: between two looks
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait().unwrap().code()
}

/// Waits until no signal of a program is pending and each of its threads waits for something. One thread may wake another
/// one that was looked at before it, so two looks must see the same: no thread has run in between.
fn wait_until_all_wait(child: &std::process::Child) {
    let begun = Instant::now();
    let tasks = format!("/proc/{}/task", child.id());
    // How often it has waited, where it waits.
    let waits = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let none = |set: &str| set.chars().all(|digit| digit == '0');
        let is_waiting = field("State:").is_some_and(|state| state.starts_with('S'))
            && ["SigPnd:", "ShdPnd:"].iter().all(|name| field(name).is_some_and(none));
        let switches = ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"];
        is_waiting.then(|| (task.file_name(), switches.map(|name| field(name).map(str::to_owned))))
    };
    let look =
        || -> Option<Vec<_>> { std::fs::read_dir(&tasks).unwrap().map(Result::unwrap).map(waits).collect() };
    let mut before = None;
    loop {
        let now = look();
        if now.is_some() && now == before {
            return;
        }
        before = now;
        assert!(begun.elapsed() < Duration::from_secs(60), "it never waits");
        // span: between two looks
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn all_threads_stop_when_they_are_asked_to_or_nobody_reads() {
    let folder = Folder::new("stop-by-flow");
    let file = folder.file("wire.pcap", &unpacked("mongod-4.0-mixed"));
    for threads in [1, 2, 8] {
        let way = format!("--each --json --show-values --class all --threads {threads}");
        let mut child = queries(&file, &way).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut String::new()).unwrap();
        drop(lines);
        assert_eq!(wait(child), Some(0), "{threads} threads");

        // All queues are full, as nobody reads.
        let mut child = queries(&file, &way).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut String::new()).unwrap();
        wait_until_all_wait(&child);
        signal(&child, "INT");
        // It has seen the signal before its output is read.
        wait_until_all_wait(&child);
        out.read_to_end(&mut Vec::new()).unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(wait(child), Some(130), "{threads} threads: {said}");
        assert!(said.contains("stopped by Ctrl-C after"), "{said}");
    }
}
