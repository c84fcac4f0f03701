//! The join of threads and wire on what the threads of a real MongoDB 4.4 did (`fixtures/mongod-4.4-minutes`).
//!
//! The recording has the calls and switches of the threads, and no bytes of what they received and sent. Those are taken
//! from the wire: a thread reads the bytes of its connection in their order, and each of its reads must end where a header
//! or a message ends there. It has no wake-ups either: a wait lasts until the thread runs again.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use sonar_core::testing;
use sonar_core::time_split::{
    JoinCounts, JoinedOperation, ServerEvidence, ServerJoinCounts, ServerJoiner, ServerOperation,
    SplitJoiner, ThreadOperation, TimePart, TimeSplit, WireOperation,
};
use sonar_core::{Execution, Identity, LinkType, Operation, Outcome, Packet, Source, Timestamp};
use sonar_decode::entry::{EntrySink, ParsedEntry};
use sonar_decode::log::LogReader;
use sonar_decode::profile::Profile;
use sonar_decode::testing::fixtures;
use sonar_decode::{Decoder, Settings, Shared, Sink};

use super::machine::{CallKind, Divided, divide};

const PORT: u16 = 27_117;
/// The client's port of the secondary's fetch of the oplog, one long stream of replies.
const OPLOG_FETCH: u16 = 44_408;
/// The wire is stamped in microseconds, and by another clock than the threads.
const RESOLUTION_NS: u64 = 50_000;
/// Of a message, as far as the machine looks at it.
const LOOKED_AT: usize = 20;

fn text(name: &str) -> String {
    String::from_utf8(inflated(name)).unwrap()
}

fn recorded(name: &str) -> PathBuf {
    fixtures::fixture("mongod-4.4-minutes").join(name)
}

fn inflated(name: &str) -> Vec<u8> {
    fixtures::inflated(&format!("mongod-4.4-minutes/{name}"))
}

/// Time and bytes of each packet; the capture is a little-endian pcap file with microseconds.
fn packets() -> Vec<(Timestamp, Vec<u8>)> {
    let file = inflated("wire.pcap.gz");
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let (mut at, mut packets) = (24, Vec::new());
    while at < file.len() {
        let length = word(at + 8) as usize;
        let time = Timestamp::from_unix(u64::from(word(at)), word(at + 4) * 1_000);
        packets.push((time, file[at + 16..at + 16 + length].to_vec()));
        at += 16 + length;
    }
    packets
}

/// A message on the wire.
struct Message {
    length: usize,
    response_to: u32,
    request_id: u32,
    /// Of its first byte.
    time: Timestamp,
    beginning: [u8; LOOKED_AT],
}

/// The bytes of one direction of a connection, which begin with a message.
#[derive(Default)]
struct Stream {
    next: Option<u32>,
    bytes: Vec<u8>,
    /// Where packets begin.
    times: Vec<(usize, Timestamp)>,
}

impl Stream {
    fn messages(&self) -> Vec<Message> {
        let (mut at, mut messages) = (0, Vec::new());
        while let Some(header) = self.bytes.get(at..at + LOOKED_AT) {
            let word = |word: usize| u32::from_le_bytes(header[4 * word..4 * word + 4].try_into().unwrap());
            let length = word(0) as usize;
            assert!((16..48_000_000).contains(&length), "the stream begins with a message");
            let packet = self.times.partition_point(|(from, _)| *from <= at) - 1;
            messages.push(Message {
                length,
                request_id: word(1),
                response_to: word(2),
                time: self.times[packet].1,
                beginning: header.try_into().unwrap(),
            });
            at += length;
        }
        messages
    }
}

/// Streams by the ports of sender and receiver.
fn streams(packets: &[(Timestamp, Vec<u8>)]) -> HashMap<(u16, u16), Stream> {
    let mut streams: HashMap<_, Stream> = HashMap::new();
    for (time, packet) in packets {
        let at = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let (tcp, end) = match at(12) {
            0x800 => (14 + usize::from(packet[14] & 15) * 4, 14 + usize::from(at(16))),
            0x86dd => (54, 54 + usize::from(at(18))),
            other => panic!("{other:x}"),
        };
        let data = &packet[tcp + usize::from(packet[tcp + 12] >> 4) * 4..end];
        if data.is_empty() {
            continue;
        }
        let sequence = u32::from_be_bytes(packet[tcp + 4..tcp + 8].try_into().unwrap());
        let stream = streams.entry((at(tcp), at(tcp + 2))).or_default();
        assert_eq!(stream.next.unwrap_or(sequence), sequence, "a gap in the recording");
        stream.next = Some(sequence.wrapping_add(data.len() as u32));
        stream.times.push((stream.bytes.len(), *time));
        stream.bytes.extend(data);
    }
    streams
}

/// A system call of the server.
struct Call {
    enter: u64,
    exit: u64,
    number: u32,
    fd: i32,
    result: i64,
}

impl Call {
    /// By their numbers on x86-64. The server writes eight bytes to wake the poll of an operation, and more to files.
    fn kind(&self) -> CallKind {
        match self.number {
            0 | 17 => CallKind::Read,
            1 if self.result == 8 => CallKind::Other,
            1 | 18 | 20 => CallKind::Write,
            7 | 271 | 281 => CallKind::Poll,
            23 | 270 => CallKind::Backoff,
            44 | 46 => CallKind::Send,
            45 | 47 => CallKind::Receive,
            74 | 75 => CallKind::Flush,
            202 => CallKind::Futex,
            230 => CallKind::Sleep,
            _ => CallKind::Other,
        }
    }
}

/// What a thread did, in nanoseconds of the monotonic clock.
#[derive(Default)]
struct Recorded {
    name: String,
    calls: Vec<Call>,
    /// Off its processor, on one again, and the state as it left.
    switches: Vec<(u64, u64, u32)>,
}

fn threads() -> HashMap<u32, Recorded> {
    let mut threads: HashMap<u32, Recorded> = HashMap::new();
    for line in text("calls.tsv.gz").lines().skip(1) {
        let cells: Vec<_> = line.split('\t').collect();
        let thread = threads.entry(cells[0].parse().unwrap()).or_default();
        thread.name = cells[1].into();
        thread.calls.push(Call {
            enter: cells[2].parse().unwrap(),
            exit: cells[3].parse().unwrap(),
            number: cells[4].parse().unwrap(),
            // Of futexes and poll it is an address.
            fd: cells[5].parse::<i64>().unwrap() as i32,
            result: cells[7].parse().unwrap(),
        });
    }
    for line in text("switches.tsv.gz").lines().skip(1) {
        let cells: Vec<_> = line.split('\t').collect();
        let number = |cell: usize| cells[cell].parse::<u64>().unwrap();
        let thread = threads.entry(cells[0].parse().unwrap()).or_default();
        thread.switches.push((number(2), number(3), number(4) as u32));
    }
    for thread in threads.values_mut() {
        thread.calls.sort_by_key(|call| call.exit);
        thread.switches.sort();
    }
    threads
}

/// Clients by the name of the thread that serves them: the log has both.
fn clients() -> HashMap<String, SocketAddr> {
    let log = text("accepted.log.gz");
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .map(|line| {
            let remote = line["attr"]["remote"].as_str().unwrap().parse().unwrap();
            (format!("conn{}", line["attr"]["connectionId"]), remote)
        })
        .collect()
}

/// How far the time is ahead of the monotonic clock.
fn clock_offset() -> u64 {
    let clocks: Value = serde_json::from_slice(&std::fs::read(recorded("clocks.json")).unwrap()).unwrap();
    clocks["realtime"].as_u64().unwrap() - clocks["monotonic"].as_u64().unwrap()
}

/// The calls on the socket of a thread as events, with the bytes that they moved as far as the wire has them. Each request
/// must be read as a header and the rest, and each reply sent as it is on the wire.
fn socket_events(
    thread: &Recorded,
    requests: &[Message],
    replies: &[Message],
    offset: u64,
) -> HashMap<u64, String> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut events = HashMap::new();
    let Some(first) = requests.first() else { return events };
    let mut requests = requests.iter();
    let mut current: Option<&Message> = None;
    let mut rest = 0;
    for call in
        thread.calls.iter().filter(|call| call.exit + offset >= first.time.unix_ns() && call.result > 0)
    {
        let result = call.result as usize;
        let what = match call.kind() {
            CallKind::Receive if rest > 0 => {
                assert_eq!(result, rest, "{}: the rest of a request", thread.name);
                rest = 0;
                format!("receive {} {result}", call.fd)
            }
            CallKind::Receive => {
                let Some(request) = requests.next() else { break };
                assert_eq!(result, 16, "{}: a header", thread.name);
                (rest, current) = (request.length - result, Some(request));
                format!("receive {} {result} {}", call.fd, hex(&request.beginning[..result]))
            }
            CallKind::Send => {
                let answered = current.map(|request| request.request_id);
                // Before its first request on the wire, or after the end of the capture.
                let reply = replies.iter().find(|reply| Some(reply.response_to) == answered);
                let Some(reply) = reply else { continue };
                assert_eq!(result, reply.length, "{}: a reply", thread.name);
                format!("send {} {result} {}", call.fd, hex(&reply.beginning))
            }
            _ => continue,
        };
        events.insert(call.exit, what);
    }
    events
}

/// The events of a thread, in order, as lines of input for the state machine.
fn events(id: u32, thread: &Recorded, sockets: &HashMap<u64, String>) -> Vec<String> {
    let mut events: Vec<(u64, String)> = Vec::new();
    for call in &thread.calls {
        let what = match (sockets.get(&call.exit), call.kind()) {
            (Some(socket), _) => socket.clone(),
            (None, kind @ (CallKind::Read | CallKind::Write)) => {
                format!("file {} {} {} 0", kind as u8, call.result, call.fd)
            }
            (None, _) => "call 0 0".into(),
        };
        events.push((call.exit, what));
    }
    for (off, on, state) in &thread.switches {
        let during = thread.calls.partition_point(|call| call.exit < *off);
        let call = thread.calls.get(during).filter(|call| call.enter <= *off);
        let (kind, fd) = call.map_or((CallKind::None, 0), |call| (call.kind(), call.fd));
        events.push((*off, format!("out {} {} {fd} 0 0", u8::from(*state == 0), kind as u8)));
        events.push((*on, "in".into()));
    }
    events.sort_by_key(|(ns, _)| *ns);
    events.into_iter().map(|(ns, what)| format!("{id} {ns} {what}")).collect()
}

/// What the wire knows of the operations that the server served, to clients and to the other member of its set.
#[derive(Default)]
struct Served(Vec<WireOperation>);

impl Sink for Served {
    fn operation(&mut self, op: &Operation<'_>) {
        if op.server.port == PORT && op.outcome != Outcome::InFlight {
            self.0.push(op.into());
        }
    }
}

fn served(packets: &[(Timestamp, Vec<u8>)]) -> Vec<WireOperation> {
    let mut decoder = Decoder::new(Settings::default(), Arc::new(Shared::default()));
    let mut served = Served::default();
    for (time, data) in packets {
        let packet = Packet {
            time: *time,
            link: LinkType::Ethernet,
            interface: 0,
            direction: Default::default(),
            loopback: false,
            vlan_tci: None,
            wire_len: data.len() as u32,
            data,
        };
        decoder.packet(&packet, &mut served);
    }
    decoder.finish(packets.last().unwrap().0, &mut served);
    served.0
}

fn thread_operation(one: &Divided, name: &str, client: SocketAddr, offset: u64) -> ThreadOperation {
    let at = |ns: u64| Timestamp::from_unix_ns(ns + offset);
    let mut split = TimeSplit::default();
    for part in TimePart::ALL {
        split[part] = one.parts[part as usize];
    }
    ThreadOperation {
        thread: one.thread,
        thread_name: name.into(),
        connection: Some((SocketAddr::new(client.ip(), PORT).into(), client.into())),
        received_from: at(one.received_from),
        end: at(one.end),
        duration_ns: one.end - one.start,
        split,
        switches: one.switches.into(),
        request_bytes: one.request_bytes,
        reply_bytes: one.reply_bytes,
        is_exhaust: one.flags & 1 != 0,
        is_unacknowledged: one.flags & 2 != 0,
        is_pipelined: one.flags & 4 != 0,
        ..testing::thread_operation(one.request, one.start + offset)
    }
}

/// Both sides of the recording.
struct Sides {
    wire: Vec<WireOperation>,
    threads: Vec<ThreadOperation>,
    /// Threads for which the machine missed a switch, or refused what they did.
    refused: usize,
}

fn sides() -> Sides {
    let packets = packets();
    let (streams, clients, offset) = (streams(&packets), clients(), clock_offset());
    let messages = |from: u16, to: u16| streams.get(&(from, to)).map(Stream::messages).unwrap_or_default();
    let threads = threads();
    let mut all = Vec::new();
    for (id, thread) in &threads {
        let port = clients[&thread.name].port();
        let sockets = socket_events(thread, &messages(port, PORT), &messages(PORT, port), offset);
        all.extend(events(*id, thread, &sockets));
    }
    let outcome = divide(&all);
    let operation = |one: &Divided| {
        let name = &threads[&one.thread].name;
        thread_operation(one, name, clients[name], offset)
    };
    Sides {
        wire: served(&packets),
        threads: outcome.operations.iter().map(operation).collect(),
        refused: outcome.refused.len() + outcome.foreign.len() + outcome.missed.len(),
    }
}

fn join(sides: &Sides) -> (Vec<JoinedOperation>, JoinCounts) {
    let mut joiner = SplitJoiner::default();
    let mut joined = Vec::new();
    // As they end.
    let mut threads = sides.threads.clone();
    threads.sort_by_key(|operation| operation.end);
    let mut threads = threads.into_iter().peekable();
    for wire in &sides.wire {
        while let Some(thread) = threads.next_if(|thread| thread.end <= wire.end) {
            joined.extend(joiner.thread(thread));
        }
        joiner.expire(wire.end);
        joined.extend(joiner.wire(wire.clone()));
    }
    joined.extend(threads.filter_map(|thread| joiner.thread(thread)));
    (joined, joiner.finish())
}

#[test]
fn every_operation_of_a_real_server_is_joined_and_its_parts_add_up() {
    let sides = sides();
    let (joined, counts) = join(&sides);
    assert_eq!(sides.refused, 0);
    for operation in &sides.threads {
        assert_eq!(operation.split.total_ns(), operation.duration_ns, "{operation:?}");
        assert!(operation.split[TimePart::Cpu] > 0, "{operation:?}");
    }
    // None missing: only replies of streams that began before the capture have no request, which a thread would receive.
    let is_continued =
        |operation: &&WireOperation| operation.latency_ns.is_none() || operation.client.port == OPLOG_FETCH;
    let continued = sides.wire.iter().filter(is_continued).count();
    assert_eq!(continued, 302, "nine of monitoring, and the fetch of the oplog");
    let all = sides.threads.len();
    // The fetch is another server's, whose threads could be elsewhere.
    let expected = JoinCounts { joined: all as u64, without_thread: 8, ..JoinCounts::default() };
    assert_eq!((counts, joined.len()), (expected, all));
    assert_eq!(all + continued, sides.wire.len(), "none extra");
    assert_eq!(all, 1_450, "requests on the wire, each answered within the capture");
}

#[test]
fn a_thread_works_within_what_the_wire_sees() {
    let (joined, _) = join(&sides());
    for operation in &joined {
        let JoinedOperation { wire, thread } = operation;
        // The thread has the request after the wire, and the wire has the reply before the call that sent it ends.
        assert!(wire.start.since(thread.start) < RESOLUTION_NS, "{operation:?}");
        assert!(wire.end.since(thread.end) < RESOLUTION_NS, "{operation:?}");
        assert!(thread.start.since(wire.end) == 0, "{operation:?}");
        let latency = wire.latency_ns.unwrap();
        assert!(operation.total_ns() + RESOLUTION_NS >= latency, "{operation:?}");
        let sent_until = thread.end.since(wire.end);
        assert!(operation.total_ns() <= latency + sent_until + RESOLUTION_NS, "{operation:?}");
    }
}

/// The whole milliseconds in which a server gives times and durations.
const MS: u64 = 1_000_000;

#[test]
fn slow_operations_of_the_log_are_those_of_their_threads() {
    let (joined, _) = join(&sides());
    let log = text("mongod.log.gz");
    let slow = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut found = 0;
    for line in slow.filter(|line| line["id"] == 51_803) {
        let time = line["t"]["$date"].as_str().unwrap();
        let millis = line["attr"]["durationMillis"].as_u64().unwrap();
        let at = time_of_day(time);
        let of_thread = joined.iter().filter(|one| line["ctx"] == one.thread.thread_name);
        let same: Vec<_> = of_thread.filter(|one| was_in(&one.thread, at)).collect();
        let [operation] = &same[..] else {
            assert!(same.is_empty(), "{time}");
            continue;
        };
        found += 1;
        assert_eq!(line["attr"]["ns"], operation.wire.shape.namespace());
        assert!(agrees(&operation.thread, millis), "{millis} {operation:?}");
    }
    assert_eq!(found, 2, "within the capture");
}

/// What the server's log and profiler say.
#[derive(Default)]
struct Described {
    source: Option<Source>,
    connection: Option<u64>,
    operations: Vec<ServerOperation>,
}

impl EntrySink for Described {
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>, _: u64) {
        self.operations.push(ServerOperation {
            source: self.source.unwrap(),
            process: None,
            connection: self.connection,
            client: Some(op.client),
            end: op.end,
            duration_ns: op.latency_ns.unwrap(),
            shape: op.shape.clone(),
            is_exact: identity == Identity::Exact,
            class: op.class,
            app: op.app.clone(),
            evidence: ServerEvidence::of(op, execution),
        });
    }
}

#[test]
fn what_a_real_server_says_is_joined_with_its_operations() {
    let (joined, _) = join(&sides());
    let mut described = Described { source: Some(Source::Log), ..Described::default() };
    let mut log = LogReader::default();
    for line in text("mongod.log.gz").lines() {
        let mut entry = ParsedEntry::default();
        let parsed = log.reader().read(line.as_bytes(), &mut entry);
        described.connection = parsed.connection();
        log.add(line.as_bytes(), &parsed, &entry, &mut described);
    }
    (described.source, described.connection) = (Some(Source::Profile), None);
    let (profile, mut rest) = (inflated("profile.bson.gz"), Profile::default());
    let mut at = 0;
    while let Ok(Some(length)) = sonar_decode::profile::length(&profile[at..]) {
        rest.document(&profile[at..at + length], &mut described);
        at += length;
    }
    let mut joiner = ServerJoiner::default();
    for (number, operation) in joined.iter().enumerate() {
        assert!(joiner.traced(operation.into(), number).is_empty());
    }
    described.operations.into_iter().for_each(|operation| joiner.server(operation));
    let ends = || joined.iter().map(|one| one.thread.end);
    let from = joined.iter().map(|one| one.thread.start).min().unwrap();
    let result = joiner.finish(from, ends().max().unwrap(), |_, _| false);
    for (number, partner) in &result.joined {
        let operation = &joined[*number];
        assert_eq!(partner.shape.namespace(), operation.wire.shape.namespace());
        assert!(agrees(&operation.thread, partner.duration_ns / MS), "{operation:?}");
    }
    assert_eq!((result.log.joined, result.log.total()), (2, 2));
    // It has no ports of clients: some operations of two connections are alike.
    let expected = ServerJoinCounts { joined: 549, ambiguous: 30, ..ServerJoinCounts::default() };
    assert_eq!(result.profile, expected);
}

#[test]
fn profiled_operations_are_those_of_threads() {
    let (joined, _) = join(&sides());
    let profile = inflated("profile.bson.gz");
    let mut rest = &profile[..];
    let mut found = 0;
    while !rest.is_empty() {
        let document = bson::Document::from_reader(&mut rest).unwrap();
        let at = document.get_datetime("ts").unwrap().timestamp_millis().unsigned_abs() * MS % DAY;
        let millis = document.get_i32("millis").unwrap().unsigned_abs().into();
        let namespace = document.get_str("ns").unwrap();
        let is_same = |one: &&JoinedOperation| {
            one.wire.shape.namespace() == namespace && was_in(&one.thread, at) && agrees(&one.thread, millis)
        };
        assert!(joined.iter().any(|one| is_same(&one)), "{document}");
        found += 1;
    }
    assert_eq!(found, 579);
}

const DAY: u64 = 86_400_000 * MS;

/// Nanoseconds since midnight.
fn time_of_day(time: &str) -> u64 {
    let number = |from: usize, to: usize| time[from..to].parse::<u64>().unwrap();
    let seconds = (number(11, 13) * 60 + number(14, 16)) * 60 + number(17, 19);
    (seconds * 1_000 + number(20, 23)) * MS
}

/// Whether a time of day, of which the rest of the millisecond was cut, is in an operation.
fn was_in(operation: &ThreadOperation, at: u64) -> bool {
    let (start, end) = (operation.start.unix_ns() % DAY, operation.end.unix_ns() % DAY);
    at + MS > start && at <= end
}

/// Whether the server's own duration agrees: it begins after the request was read, and ends before it is written.
fn agrees(operation: &ThreadOperation, millis: u64) -> bool {
    millis * MS <= operation.duration_ns + MS
}
