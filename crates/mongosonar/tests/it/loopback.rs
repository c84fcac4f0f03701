//! The whole program as it listens: real TCP connections on the loopback interface of a network namespace
//! that the test is alone in.
//!
//! A test that needs one runs its own test binary again inside a new namespace; where none can be made it
//! is skipped, and says so.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStderr, Command, Output};
use std::time::{Duration, Instant};

use crate::support::*;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use serde_json::Value;
use sonar_core::{Coverage, Operation, Timestamp};
use sonar_decode::capture_file::{InterfaceDescription, PcapngWriter, SectionHeader};
use sonar_decode::{Decoder, Settings, Sink};
use sonar_sys::{Ring, RingConfig};

const INSIDE: &str = "MONGOSONAR_TEST_NAMESPACE";
const PORT: u16 = 27_017;
/// Connections over IPv4 and IPv6, and finds on each.
const CONNECTIONS: [(&str, usize); 2] = [("127.0.0.1:27017", 4), ("[::1]:27017", 2)];
const FINDS: u32 = 60;

/// Whether we are in a namespace of our own. Where not, the test `name` is run again in one.
fn is_inside(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        let done = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(done.is_ok_and(|status| status.success()));
        return true;
    }
    // Without root a user namespace may give the right to it.
    let ways: [&[&str]; 2] = [&["--net"], &["--net", "--user", "--map-root-user"]];
    let unshare = |way: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(way).arg("--");
        command
    };
    let probe = |way: &&&[&str]| {
        let probe = unshare(way).args(["ip", "link", "set", "lo", "up"]).output();
        probe.is_ok_and(|output| output.status.success())
    };
    let Some(way) = ways.iter().find(probe) else {
        eprintln!(
            "skipped: no network namespace can be made; run as root, with `unshare` and `ip` installed"
        );
        return false;
    };
    let mut again = unshare(way);
    again
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("loopback::{name}"), "--nocapture"])
        .env(INSIDE, "1");
    let output = again.output().unwrap();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}

/// A message of kind OP_MSG with one document.
fn message(request_id: u32, response_to: u32, document: &RawDocument) -> Vec<u8> {
    let body = document.as_bytes();
    let mut out = ((16 + 5 + body.len()) as u32).to_le_bytes().to_vec();
    out.extend(request_id.to_le_bytes());
    out.extend(response_to.to_le_bytes());
    out.extend(2013_u32.to_le_bytes());
    out.extend([0; 5]);
    out.extend(body);
    out
}

/// Reads one message; `None` at the end.
fn receive(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut message = vec![0; 4];
    stream.read_exact(&mut message).ok()?;
    let len = u32::from_le_bytes(message[..].try_into().unwrap()) as usize;
    message.resize(len, 0);
    stream.read_exact(&mut message[4..]).unwrap();
    Some(message)
}

fn request_id(message: &[u8]) -> u32 {
    u32::from_le_bytes(message[4..8].try_into().unwrap())
}

/// Answers every request until the other end closes: a find with `limit` documents.
fn serve(mut stream: TcpStream) {
    while let Some(request) = receive(&mut stream) {
        let command = RawDocument::from_bytes(&request[21..]).unwrap();
        let reply = match command.get_i32("limit") {
            Ok(limit) => {
                let batch: bson::RawArrayBuf = (0..limit)
                    .map(|n| rawdoc! { "_id": n, "pad": "x".repeat(20 * limit as usize) })
                    .collect();
                rawdoc! { "cursor": { "firstBatch": batch, "id": 0_i64, "ns": "shop.orders" }, "ok": 1.0 }
            }
            Err(_) => rawdoc! { "ok": 1.0 },
        };
        stream.write_all(&message(1 << 20 | request_id(&request), request_id(&request), &reply)).unwrap();
    }
}

/// One client: a handshake and its finds; gives how many documents it received.
fn ask(address: &str) -> u64 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut say = |id: u32, command: RawDocumentBuf| {
        stream.write_all(&message(id, 0, &command)).unwrap();
        receive(&mut stream).unwrap()
    };
    let client =
        rawdoc! { "application": { "name": "till" }, "driver": { "name": "by hand", "version": "1" } };
    say(0, rawdoc! { "hello": 1, "client": client, "$db": "admin" });
    let mut documents = 0;
    for id in 1..=FINDS {
        let limit = (1 + id % 40) as i32;
        let filter = rawdoc! { "customer": id as i32, "open": true };
        say(id, rawdoc! { "find": "orders", "filter": filter, "limit": limit, "$db": "shop" });
        documents += limit as u64;
    }
    documents
}

/// A real exchange: every client on a connection of its own, at once. Gives (calls, documents).
fn exchange() -> (u64, u64) {
    std::thread::scope(|scope| {
        let mut clients = Vec::new();
        for (address, count) in CONNECTIONS {
            let listener = TcpListener::bind(address).unwrap();
            assert_eq!(listener.local_addr().unwrap().port(), PORT);
            for _ in 0..count {
                clients.push(scope.spawn(move || ask(address)));
            }
            for _ in 0..count {
                let (stream, _) = listener.accept().unwrap();
                scope.spawn(move || serve(stream));
            }
        }
        let count = clients.len() as u64;
        let documents = clients.into_iter().map(|client| client.join().unwrap()).sum();
        (count * u64::from(FINDS), documents)
    })
}

/// The program, once it listens.
fn listening(words: &str) -> (Child, BufReader<ChildStderr>) {
    let mut child = program(["queries", "--port", "27017"]).args(words.split_whitespace()).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("listening on") {
        let before = said.len();
        errors.read_line(&mut said).unwrap();
        assert!(said.len() > before, "it ended: {said}");
    }
    (child, errors)
}

/// Lets the program capture an exchange and ends it by a signal; gives the exchange's figures too.
fn captured(words: &str, name: &str) -> (Output, (u64, u64)) {
    let (child, errors) = listening(words);
    // Read meanwhile, so that it never waits for us.
    std::thread::scope(|scope| {
        let pid = child.id();
        let output = scope.spawn(move || child.wait_with_output().unwrap());
        let figures = exchange();
        let done = Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap();
        assert!(done.success());
        let mut output = output.join().unwrap();
        output.stderr = errors.bytes().map_while(Result::ok).collect();
        (output, figures)
    })
}

fn assert_counts(summary: &Value, calls: u64, documents: u64, words: &str) {
    let rows: Vec<_> =
        summary["rows"].as_array().unwrap().iter().filter(|row| row["command"] == "find").collect();
    // One shape of one server, whose IPv4 and IPv6 addresses are of one host.
    assert_eq!(rows.len(), 1, "{words}: {rows:?}");
    assert_eq!(rows[0]["clients"].as_array().unwrap().len(), CONNECTIONS.len(), "{words}: {rows:?}");
    let sum = |key: &str| rows.iter().map(|row| row[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("calls"), sum("docs_returned")), (calls, documents), "{words}");
    assert!(rows.iter().all(|row| row["apps"][0]["name"] == "till"), "{words}");
    let clients = CONNECTIONS.iter().map(|(_, count)| *count as u64).sum::<u64>();
    let coverage = |name: &str| summary["coverage"][name].as_u64().unwrap();
    assert_eq!(coverage("requests"), calls + clients, "{words}");
    for name in ["requests_answered", "replies", "replies_paired"] {
        assert_eq!(coverage(name), coverage("requests"), "{words}: {name}");
    }
    assert_eq!(coverage("streams"), clients, "{words}");
    for name in
        ["kernel_drops", "gaps", "streams_joined_late", "replies_orphan", "messages_damaged", "resyncs"]
    {
        assert_eq!(coverage(name), 0, "{words}: {name}");
    }
}

#[test]
fn each_operation_on_loopback_is_counted_once() {
    if !is_inside("each_operation_on_loopback_is_counted_once") {
        return;
    }
    // On lo alone by PACKET_IGNORE_OUTGOING, on all interfaces by the filter; with one ring and with two.
    for words in ["--interface lo", "", "--interface lo --threads 2", "--threads 2"] {
        for signal in ["INT", "TERM"] {
            let words = format!("--json --class all --interval 100ms {words}");
            let (output, (calls, documents)) = captured(&words, signal);
            assert!(output.stderr.is_empty(), "{words}: {}", text(&output.stderr));
            let summary = summary(&output);
            assert_counts(&summary, calls, documents, &words);
            assert_eq!(summary["coverage"]["frames_twin_loopback"], 0, "{words}");
        }
    }
}

#[derive(Default)]
struct Count(BTreeMap<String, u64>);

impl Sink for Count {
    fn operation(&mut self, op: &Operation<'_>) {
        *self.0.entry(op.command.to_owned()).or_default() += 1;
    }
}

/// What a ring captured: through a decoder, and as a capture file for the program.
#[test]
fn what_a_ring_shows_twice_is_counted_once() {
    if !is_inside("what_a_ring_shows_twice_is_counted_once") {
        return;
    }
    let folder = Folder::new("twins");
    for interfaces in [vec!["lo".to_owned()], vec![]] {
        let config = RingConfig { interfaces, loopback_twins: true, ..RingConfig::default() };
        let mut ring = Ring::open(&config).unwrap();
        let (calls, documents) = exchange();
        let (mut file, mut number, mut last) = (Vec::new(), None, Timestamp::default());
        let mut writer = PcapngWriter::begin(&SectionHeader::default(), &mut file);
        let (mut decoder, mut count) =
            (Decoder::new(Settings::default(), Default::default()), Count::default());
        ring.finish(|packet| {
            let interface = InterfaceDescription { name: "lo", link: packet.link, snap_len: 0 };
            let number = *number.get_or_insert_with(|| writer.interface(&interface, &mut file).unwrap());
            writer.packet(number, &packet, &mut file);
            decoder.packet(&packet, &mut count);
            last = packet.time;
        })
        .unwrap();
        decoder.finish(last, &mut count);
        assert_eq!(count.0["find"], calls);
        let coverage: Coverage = decoder.coverage();
        assert_eq!(coverage.frames_twin_loopback * 2, coverage.frames);
        assert!(coverage.frames > 4 * calls && coverage.losses().next().is_none(), "{coverage:?}");
        assert_eq!(ring.statistics().unwrap().drops, 0);

        let summary = summary(&read(&folder.file("twins.pcapng", &file), "--json --class all"));
        assert_counts(&summary, calls, documents, "from the file");
        assert_eq!(summary["coverage"]["frames_twin_loopback"], coverage.frames_twin_loopback);
    }
}

#[test]
fn what_is_written_is_private_and_reads_back_equally() {
    if !is_inside("what_is_written_is_private_and_reads_back_equally") {
        return;
    }
    let folder = Folder::new("write");
    let kept = folder.path("kept.pcapng");
    let words = format!("--each --json --class all --role all --write {}", kept.display());
    let (output, (calls, _)) = captured(&words, "INT");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o7777, 0o600);
    let sorted = |output: &Output| {
        let operations = text(&output.stdout);
        let operations = operations.lines().filter(|line| !line.contains("\"kind\":\"summary\""));
        let mut lines: Vec<String> = operations.map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let live = sorted(&output);
    assert!(live.len() as u64 > calls);
    // Every figure of every operation, times to the nanosecond among them.
    let again = read(&kept, "--each --json --class all --role all");
    assert!(sorted(&again) == live, "{}\n{}", sorted(&again)[0], live[0]);

    // What is there is not written over.
    let before = std::fs::read(&kept).unwrap();
    let output = program(["queries", "--duration", "100ms", "--write"]).arg(&kept).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(kept.to_str().unwrap()), "{}", text(&output.stderr));
    assert!(std::fs::read(&kept).unwrap() == before);
}

#[test]
fn a_reader_that_goes_away_ends_the_listening_without_a_word() {
    if !is_inside("a_reader_that_goes_away_ends_the_listening_without_a_word") {
        return;
    }
    for words in
        ["--each", "--each --json", "--json --interval 50ms", "--interval 50ms", "--csv --interval 50ms"]
    {
        let (mut child, mut errors) = listening(words);
        let mut output = BufReader::new(child.stdout.take().unwrap());
        exchange();
        output.read_line(&mut String::new()).unwrap();
        drop(output);
        // It learns of it when it writes.
        let mut code = None;
        let until = Instant::now() + Duration::from_secs(60);
        while code.is_none() && Instant::now() < until {
            exchange();
            // span: between two looks
            std::thread::sleep(Duration::from_millis(20));
            code = child.try_wait().unwrap();
        }
        let mut said = String::new();
        if code.is_none() {
            child.kill().unwrap();
        }
        errors.read_to_string(&mut said).unwrap();
        assert_eq!(code.and_then(|code| code.code()), Some(0), "{words}: {said}");
        assert!(said.is_empty(), "{words}: {said}");
    }
}
