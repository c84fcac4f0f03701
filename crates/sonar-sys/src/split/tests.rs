//! A server of this process, with one thread for each connection, whose commands take a known time.
#![allow(clippy::unwrap_used, clippy::panic)]
mod control;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sonar_core::Endpoint;
use sonar_core::stacks::ThreadState;
use sonar_core::time_split::{ConnectionSample, ThreadOperation, TimePart, WaitSample};

use super::*;
use crate::waiting::{own_thread, wait_until_in};

const OP_MSG: i32 = 2013;
const MORE_TO_COME: u32 = 2;
const MOMENT: Duration = Duration::from_millis(20);

/// Commands of the server: the first byte after the flags of a message.
const BURN: u8 = 1;
const SLEEP: u8 = 2;
const LOCK: u8 = 3;
const TWO_REPLIES: u8 = 4;
const NO_REPLY: u8 = 5;
const NOTHING: u8 = 6;

fn message(id: i32, response_to: i32, flags: u32, body: &[u8]) -> Vec<u8> {
    let length = 20 + i32::try_from(body.len()).unwrap();
    let mut bytes = Vec::new();
    for word in [length, id, response_to, OP_MSG] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(flags.to_le_bytes());
    bytes.extend(body);
    bytes
}

/// A lock whose holder, a thread of its own, gives it back [`MOMENT`] after somebody waits for it.
#[derive(Default)]
struct Lock {
    held: Mutex<bool>,
    released: Condvar,
    /// The holder keeps it.
    kept: AtomicBool,
}

impl Lock {
    fn wait(self: &Arc<Self>) {
        *self.held.lock().unwrap() = true;
        let (lock, waiting) = (Arc::clone(self), own_thread());
        let holder = thread::spawn(move || {
            wait_until_in(waiting, libc::SYS_futex);
            // span: how long it waits at least
            thread::sleep(MOMENT);
            while lock.kept.load(Ordering::Relaxed) {
                // span: between two looks
                thread::sleep(Duration::from_millis(1));
            }
            *lock.held.lock().unwrap() = false;
            lock.released.notify_all();
            // The waiting thread must not be woken by the exit of this one: it is woken, and waits for it, before.
            wait_until_in(waiting, libc::SYS_futex);
        });
        let held = self.held.lock().unwrap();
        drop(self.released.wait_while(held, |held| *held).unwrap());
        holder.join().unwrap();
    }
}

/// Computes for so much of its thread's processor time, however often it loses its processor.
fn burn(time: Duration) {
    let spent = || Duration::from_nanos(sys::nanoseconds(ClockId::ThreadCPUTime));
    let end = spent() + time;
    // Reading that clock takes a system call; reading the other one does not.
    while let left @ 1.. = end.saturating_sub(spent()).as_nanos() as u64 {
        let until = Instant::now() + Duration::from_nanos(left);
        while Instant::now() < until {}
    }
}

fn serve(mut stream: TcpStream, lock: &Arc<Lock>) {
    let mut header = [0; 16];
    while stream.read_exact(&mut header).is_ok() {
        let word = |at: usize| i32::from_le_bytes(*header[at..].first_chunk().unwrap());
        let mut body = vec![0; usize::try_from(word(0)).unwrap() - 16];
        if stream.read_exact(&mut body).is_err() {
            return;
        }
        let id = word(4);
        match body[4] {
            BURN => burn(MOMENT),
            // span: how long it sleeps at least
            SLEEP => thread::sleep(MOMENT),
            NOTHING => {}
            LOCK => lock.wait(),
            TWO_REPLIES => {
                stream.write_all(&message(id + 1000, id, MORE_TO_COME, b"first")).unwrap();
                // span: how long the second one takes at least
                thread::sleep(MOMENT);
                stream.write_all(&message(id + 1001, id + 1000, 0, b"second")).unwrap();
                continue;
            }
            NO_REPLY => {
                // span: how long it sleeps at least
                thread::sleep(MOMENT / 10);
                continue;
            }
            other => panic!("{other}"),
        }
        let size = u32::from_le_bytes(*body[5..].first_chunk().unwrap());
        stream.write_all(&message(id + 1000, id, 0, &vec![0; size as usize])).unwrap();
    }
}

/// A thread that serves.
struct ServerThread {
    handle: thread::JoinHandle<()>,
    id: u32,
}

impl ServerThread {
    fn spawn(serve: impl FnOnce() + Send + 'static) -> Self {
        let (say, id) = channel();
        let handle = thread::spawn(move || {
            say.send(own_thread()).unwrap();
            serve();
        });
        Self { handle, id: id.recv().unwrap() }
    }

    /// Waits until it has received all that was sent to it, and waits for more. A reply arrives before the call that sent
    /// it ends.
    fn wait_until_it_receives(&self) {
        wait_until_in(self.id, libc::SYS_recvfrom);
    }

    fn join(self) {
        self.handle.join().unwrap();
    }
}

/// A thread that serves one connection, its address, and the client's end.
fn connect() -> (ServerThread, SocketAddr, TcpStream) {
    connect_with(Arc::default())
}

fn connect_with(lock: Arc<Lock>) -> (ServerThread, SocketAddr, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = ServerThread::spawn(move || {
        // As deep as a server's thread: what a tracer copies of its stack does not reach its end.
        let deep = std::hint::black_box([0_u8; 16 << 10]);
        serve(listener.accept().unwrap().0, &lock);
        std::hint::black_box(&deep);
    });
    (server, address, TcpStream::connect(address).unwrap())
}

fn command(command: u8, reply: u32) -> Vec<u8> {
    [vec![command], reply.to_le_bytes().to_vec()].concat()
}

/// `None` without root, or where the kernel does not describe its types; a kernel that refuses the programs is a fault.
fn start() -> Option<SplitTracer> {
    start_with(ConnectionSample::default())
}

fn start_with(connections: ConnectionSample) -> Option<SplitTracer> {
    match SplitTracer::start(&[std::process::id()], connections, SplitRoom::COMMAND) {
        Ok(tracer) => Some(tracer),
        Err(error) if !rustix::process::geteuid().is_root() || matches!(error, TraceError::NoBtf) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_command_has_a_larger_ring_than_the_agent() {
    for (room, bytes) in [(SplitRoom::COMMAND, 16 << 20), (SplitRoom::AGENT, 8 << 20)] {
        match SplitTracer::start(&[], ConnectionSample::default(), room) {
            Ok(tracer) => assert_eq!(tracer.skeleton.maps.split_ring.max_entries(), bytes),
            Err(error) => return eprintln!("skipped: {error}"),
        }
    }
}

fn assert_nothing_lost(tracer: &SplitTracer) {
    // An interrupt may come while a program handles the same event on that processor, and now and then the kernel loses
    // a switch.
    let losses =
        SplitLosses { programs_skipped: 0, switches_missed: 0, stacks_skipped: 0, ..tracer.losses() };
    assert_eq!(losses, SplitLosses::default());
}

/// Runs `client` against the server and returns what the programs reported; `None` where they cannot run.
fn traced(client: impl FnOnce(&mut TcpStream, &ServerThread)) -> Option<(Vec<ThreadOperation>, SplitTracer)> {
    let tracer = start()?;
    let (server, address, mut stream) = connect();
    let client_end = Endpoint::from(stream.local_addr().unwrap());
    client(&mut stream, &server);
    drop(stream);
    server.join();
    let mut operations = operations_of(&tracer, address);
    operations.retain(|operation| operation.connection.is_some_and(|(_, client)| client == client_end));
    assert_nothing_lost(&tracer);
    Some((operations, tracer))
}

fn ask(stream: &mut TcpStream, id: i32, body: &[u8]) -> Vec<u8> {
    stream.write_all(&message(id, 0, 0, body)).unwrap();
    answer(stream)
}

fn answer(stream: &mut TcpStream) -> Vec<u8> {
    let mut header = [0; 16];
    stream.read_exact(&mut header).unwrap();
    let mut rest = vec![0; u32::from_le_bytes(*header.first_chunk().unwrap()) as usize - 16];
    stream.read_exact(&mut rest).unwrap();
    rest
}

/// The parts add up, and `part` has at least what was asked for.
fn has_mostly(operation: &ThreadOperation, part: TimePart) {
    assert_eq!(operation.split.total_ns(), operation.duration_ns, "{operation:?}");
    let ns = operation.split[part];
    assert!(Duration::from_nanos(ns) >= MOMENT * 9 / 10, "{part:?}: {operation:?}");
    let others = operation.duration_ns - ns - operation.split[TimePart::RunQueue];
    assert!(others < operation.duration_ns / 2, "{part:?}: {operation:?}");
}

#[test]
fn each_command_waits_where_it_was_asked_to() {
    let traced = traced(|stream, _| {
        ask(stream, 1, &command(SLEEP, 10));
        ask(stream, 2, &command(BURN, 10));
        ask(stream, 3, &command(LOCK, 10));
    });
    let Some((operations, tracer)) = traced else { return };
    let ids: Vec<_> = operations.iter().map(|operation| operation.request_id).collect();
    assert_eq!(ids, [1, 2, 3]);
    has_mostly(&operations[0], TimePart::Sleep);
    has_mostly(&operations[2], TimePart::Futex);
    // A busy machine takes the processor away from it.
    let burnt = &operations[1].split;
    assert!(burnt[TimePart::Cpu] + burnt[TimePart::RunQueue] >= 19_000_000, "{burnt:?}");
    assert_eq!(operations[1].split.total_ns(), operations[1].duration_ns);
    let wakers = &operations[2].wakers;
    assert!(wakers.iter().any(|waker| waker.wait_ns >= 18_000_000), "{wakers:?}");
    assert!(operations.iter().all(|operation| operation.request_bytes == 25 && operation.reply_bytes == 30));
    assert!(operations.iter().all(|operation| !operation.is_exhaust && !operation.is_unacknowledged));
    assert!(!tracer.threads().unwrap().is_empty());
}

#[test]
fn requests_in_pieces_and_large_replies_are_one_operation_each() {
    const REPLY: u32 = 24 << 20;
    let traced = traced(|stream, server| {
        for piece in message(7, 0, 0, &command(SLEEP, REPLY)).chunks(3) {
            server.wait_until_it_receives();
            // span: how long the next piece takes at least
            thread::sleep(Duration::from_millis(2));
            stream.write_all(piece).unwrap();
        }
        // The reply does not fit into the buffers of the sockets.
        wait_until_in(server.id, libc::SYS_sendto);
        assert_eq!(answer(stream).len(), REPLY as usize + 4);
        ask(stream, 8, &command(SLEEP, 10));
    });
    let Some((operations, _)) = traced else { return };
    let [first, second] = &operations[..] else { panic!("{operations:?}") };
    assert_eq!((first.request_id, second.request_id), (7, 8));
    has_mostly(second, TimePart::Sleep);
    assert_eq!(first.reply_bytes, REPLY + 20);
    assert!(first.split[TimePart::Send] > 0, "{first:?}");
    assert!(first.split[TimePart::Sleep] >= 18_000_000, "{first:?}");
    assert!(first.start.unix_ns() - first.received_from.unix_ns() >= 2_000_000, "the pieces took time");
    assert_eq!(first.split.total_ns(), first.duration_ns);
}

#[test]
fn replies_without_a_request_and_requests_without_a_reply_are_divided() {
    let traced = traced(|stream, _| {
        ask(stream, 1, &command(TWO_REPLIES, 0));
        assert!(answer(stream).ends_with(b"second"));
        stream.write_all(&message(2, 0, MORE_TO_COME, &command(NO_REPLY, 0))).unwrap();
        ask(stream, 3, &command(SLEEP, 10));
    });
    let Some((operations, _)) = traced else { return };
    let kinds: Vec<_> = operations
        .iter()
        .map(|operation| (operation.request_id, operation.is_exhaust, operation.is_unacknowledged))
        .collect();
    assert_eq!(kinds, [(1, false, false), (1001, true, false), (2, false, true), (3, false, false)]);
    for operation in [&operations[1], &operations[3]] {
        has_mostly(operation, TimePart::Sleep);
    }
    assert!(operations[2].split[TimePart::Sleep] >= 1_900_000, "{:?}", operations[2]);
}

/// The operations of the server at this address.
fn operations_of(tracer: &SplitTracer, server: SocketAddr) -> Vec<ThreadOperation> {
    events_of(tracer, server).0
}

/// The same, and their long waits.
fn events_of(tracer: &SplitTracer, server: SocketAddr) -> (Vec<ThreadOperation>, Vec<WaitSample>) {
    let (mut operations, mut waits) = (Vec::new(), Vec::new());
    let each = |event| match event {
        SplitEvent::Operation(operation) => operations.push(operation),
        SplitEvent::Wait(wait) => waits.push(wait),
    };
    tracer.run(each, || false).unwrap();
    operations.retain(|operation| operation.connection.is_some_and(|(end, _)| end == server.into()));
    waits.retain(|wait| operations.iter().any(|operation| operation.key() == wait.operation));
    (operations, waits)
}

#[test]
fn a_long_wait_is_reported_with_the_stack_of_its_thread() {
    let Some(tracer) = start() else { return };
    let (server, address, mut stream) = connect();
    ask(&mut stream, 1, &command(LOCK, 10));
    ask(&mut stream, 2, &command(BURN, 10));
    drop(stream);
    server.join();
    let (operations, waits) = events_of(&tracer, address);
    let waits: Vec<_> = waits.into_iter().filter(|wait| wait.part != TimePart::Cpu).collect();
    let wait = waits.iter().max_by_key(|wait| wait.wait_ns).unwrap();
    assert_eq!((wait.operation, wait.part), (operations[0].key(), TimePart::Futex));
    assert_eq!(wait.sample.call, Some(libc::SYS_futex as u32));
    assert!(wait.wait_ns <= operations[0].split[TimePart::Futex] && wait.wait_ns >= 18_000_000, "{waits:?}");
    let registers = wait.sample.registers.unwrap();
    let frame = usize::try_from(registers.fp.wrapping_sub(registers.sp)).unwrap_or(usize::MAX);
    assert!(wait.sample.stack.len() >= 4096 || frame < wait.sample.stack.len(), "{registers:?}");
    assert!(waits.iter().all(|wait| wait.operation == operations[0].key()), "the second one does not wait");
}

#[test]
fn operations_on_a_processor_are_sampled_with_their_stacks() {
    let Some(mut tracer) = start() else { return };
    assert!(tracer.sample_processors());
    let (server, address, mut stream) = connect();
    // 400 ms of computing, and as much of sleep.
    for id in 0..40 {
        ask(&mut stream, id, &command(if id % 2 == 0 { BURN } else { SLEEP }, 10));
    }
    drop(stream);
    server.join();
    let (operations, waits) = events_of(&tracer, address);
    let of_this = |wait: &&WaitSample| operations.iter().any(|one| one.key() == wait.operation);
    let samples: Vec<_> = waits.iter().filter(of_this).filter(|wait| wait.part == TimePart::Cpu).collect();
    let cpu_ns: u64 = operations.iter().map(|operation| operation.split[TimePart::Cpu]).sum();
    let sampled_ns: u64 = samples.iter().map(|sample| sample.wait_ns).sum();
    assert!(sampled_ns > cpu_ns / 3 && sampled_ns < cpu_ns * 3, "{sampled_ns} of {cpu_ns}");
    let burns = |sample: &&&WaitSample| {
        operations.iter().any(|one| one.key() == sample.operation && one.request_id % 2 == 0)
    };
    assert!(samples.iter().filter(burns).count() * 10 >= samples.len() * 9, "of {} samples", samples.len());
    let is_whole = |wait: &&WaitSample| wait.sample.registers.is_some() && !wait.sample.stack.is_empty();
    assert!(samples.iter().all(|sample| sample.sample.state == ThreadState::OnCpu && is_whole(sample)));
}

#[test]
fn the_first_request_of_a_connection_that_was_idle_at_the_start_is_divided() {
    let (server, address, mut stream) = connect();
    ask(&mut stream, 1, &command(BURN, 10));
    server.wait_until_it_receives();
    let tracer = start();
    ask(&mut stream, 2, &command(SLEEP, 10));
    drop(stream);
    server.join();
    let Some(tracer) = tracer else { return };
    let operations = operations_of(&tracer, address);
    let [operation] = &operations[..] else { panic!("{operations:?}") };
    assert_eq!(operation.request_id, 2);
    has_mostly(operation, TimePart::Sleep);
    assert_nothing_lost(&tracer);
}

#[test]
fn a_request_that_breaks_off_does_not_touch_the_next_connection_of_its_thread() {
    let Some(tracer) = start() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = ServerThread::spawn(move || {
        let lock = Arc::default();
        for _ in 0..2 {
            serve(listener.accept().unwrap().0, &lock);
        }
    });
    let request = message(1, 0, 0, &command(SLEEP, 10));
    let mut broken = TcpStream::connect(address).unwrap();
    broken.write_all(&request[..20]).unwrap();
    server.wait_until_it_receives();
    drop(broken);
    // The next connection has the same thread, and its socket the same number.
    let mut stream = TcpStream::connect(address).unwrap();
    ask(&mut stream, 2, &command(SLEEP, 10));
    drop(stream);
    server.join();
    let operations = operations_of(&tracer, address);
    let [operation] = &operations[..] else { panic!("{operations:?}") };
    assert_eq!((operation.request_id, operation.request_bytes), (2, 25));
    has_mostly(operation, TimePart::Sleep);
    assert_nothing_lost(&tracer);
}

#[test]
fn an_operation_in_progress_shows_what_its_thread_waits_for() {
    let Some(tracer) = start() else { return };
    let lock = Arc::new(Lock { kept: AtomicBool::new(true), ..Lock::default() });
    let (server, address, mut stream) = connect_with(lock.clone());
    let of_server = || {
        let mut operations = tracer.in_flight().unwrap();
        operations.retain(|one| one.operation.connection.is_some_and(|(end, _)| end == address.into()));
        operations
    };
    ask(&mut stream, 1, &command(NOTHING, 10));
    server.wait_until_it_receives();
    assert!(of_server().is_empty());
    stream.write_all(&message(2, 0, 0, &command(LOCK, 10))).unwrap();
    wait_until_in(server.id, libc::SYS_futex);
    // span: how long it waits at least
    thread::sleep(MOMENT);
    let [one] = &of_server()[..] else { panic!("{:?}", of_server()) };
    lock.kept.store(false, Ordering::Relaxed);
    answer(&mut stream);
    server.wait_until_it_receives();
    assert!(of_server().is_empty());
    drop(stream);
    server.join();
    assert_eq!((one.operation.request_id, one.doing), (2, TimePart::Futex));
    assert!(one.operation.duration_ns >= MOMENT.as_nanos() as u64, "{one:?}");
    assert_eq!(one.operation.split.total_ns(), one.operation.duration_ns, "{one:?}");
    assert!(one.since >= one.operation.start && one.since <= one.operation.end, "{one:?}");
}

/// To the thread, such an operation ends without a reply. [`SplitJoiner`](sonar_core::time_split::SplitJoiner) finds out.
#[test]
fn an_operation_that_another_thread_answers_ends_with_the_next_request() {
    let Some(tracer) = start() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (requests, received) = channel::<i32>();
    let server = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut answers = stream.try_clone().unwrap();
        let worker = thread::spawn(move || {
            for id in received {
                answers.write_all(&message(id + 1000, id, 0, b"reply")).unwrap();
            }
        });
        let mut request = [0; 25];
        // Reads the header alone, as servers do.
        while stream
            .read_exact(&mut request[..16])
            .and_then(|()| stream.read_exact(&mut request[16..]))
            .is_ok()
        {
            requests.send(i32::from_le_bytes(*request[4..].first_chunk().unwrap())).unwrap();
        }
        drop(requests);
        worker.join().unwrap();
    });
    let mut stream = TcpStream::connect(address).unwrap();
    for id in 1..=3 {
        ask(&mut stream, id, &command(NOTHING, 10));
    }
    drop(stream);
    server.join().unwrap();
    let operations = operations_of(&tracer, address);
    assert!(!operations.is_empty() && operations.iter().all(|operation| operation.is_unacknowledged));
    assert!(operations.iter().all(|operation| operation.reply_bytes == 0), "{operations:?}");
}

#[test]
fn a_process_that_is_left_is_not_seen_and_is_followed_again_from_nothing() {
    let Some(tracer) = start() else { return };
    let (server, address, mut stream) = connect();
    let id = std::process::id();
    ask(&mut stream, 1, &command(SLEEP, 10));
    server.wait_until_it_receives();
    tracer.leave(id).unwrap();
    ask(&mut stream, 2, &command(SLEEP, 10));
    server.wait_until_it_receives();
    assert!(tracer.threads().unwrap().is_empty());
    assert!(tracer.leave(id).is_err(), "it is not followed");
    let followed = sys::nanoseconds(ClockId::Realtime);
    tracer.follow(id).unwrap();
    ask(&mut stream, 3, &command(SLEEP, 10));
    drop(stream);
    server.join();
    let operations = operations_of(&tracer, address);
    let ids: Vec<_> = operations.iter().map(|operation| operation.request_id).collect();
    assert_eq!(ids, [1, 3]);
    operations.iter().for_each(|operation| has_mostly(operation, TimePart::Sleep));
    assert!(operations[1].start.unix_ns() >= followed, "{operations:?}");
    assert_nothing_lost(&tracer);
}

#[test]
fn of_a_sample_exactly_the_chosen_connections_are_reported() {
    serve_a_sample(|accepted| thread::spawn(move || serve(accepted, &Arc::default())));
}

#[test]
fn of_a_sample_a_thread_that_serves_one_connection_after_the_other_is_followed_again() {
    let (sockets, accepted) = channel::<(TcpStream, thread::Thread)>();
    let server = thread::spawn(move || {
        for (stream, waiting) in accepted {
            serve(stream, &Arc::default());
            waiting.unpark();
        }
    });
    serve_a_sample(move |accepted| {
        let sockets = sockets.clone();
        thread::spawn(move || {
            sockets.send((accepted, thread::current())).unwrap();
            thread::park();
        })
    });
    server.join().unwrap();
}

/// Connects clients one after the other; `begin` serves a connection until the thread that it returns ends.
fn serve_a_sample(begin: impl Fn(TcpStream) -> thread::JoinHandle<()>) {
    const CLIENTS: usize = 64;
    let sample = ConnectionSample { every: 4.try_into().unwrap() };
    let Some(tracer) = start_with(sample) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut chosen = Vec::new();
    for number in 0..CLIENTS as i32 {
        let mut stream = TcpStream::connect(address).unwrap();
        let (accepted, client) = listener.accept().unwrap();
        let server = begin(accepted);
        for id in [2 * number + 1, 2 * number + 2] {
            stream.write_all(&message(id, 0, MORE_TO_COME, &command(NO_REPLY, 0))).unwrap();
            ask(&mut stream, 1000 + id, &command(NOTHING, 10));
            if sample.has(client.into()) {
                chosen.extend([id as u32, 1000 + id as u32]);
            }
        }
        drop(stream);
        server.join().unwrap();
    }
    let ids: Vec<_> = operations_of(&tracer, address).iter().map(|operation| operation.request_id).collect();
    assert_eq!(ids, chosen);
    assert!(!chosen.is_empty() && chosen.len() < CLIENTS * 4);
    assert_nothing_lost(&tracer);
}

#[test]
fn many_connections_are_divided_independently() {
    const CLIENTS: i32 = 16;
    let Some(tracer) = start() else { return };
    let listener = TcpListener::bind("[::1]:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let lock: Arc<Lock> = Arc::default();
        let threads: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (stream, lock) = (listener.accept().unwrap().0, Arc::clone(&lock));
                thread::spawn(move || serve(stream, &lock))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let together = Arc::new(Barrier::new(CLIENTS as usize));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let together = Arc::clone(&together);
            thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                together.wait();
                for round in 0..20 {
                    ask(&mut stream, 1 + client * 100 + round, &command(SLEEP, 10));
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    server.join().unwrap();
    let operations = operations_of(&tracer, address);
    assert_eq!(operations.len(), CLIENTS as usize * 20);
    for operation in &operations {
        has_mostly(operation, TimePart::Sleep);
        // The allocator has locks of its own.
        let waited: u64 = operation.wakers.iter().map(|waker| waker.wait_ns).sum();
        assert!(waited < 10_000_000, "a timer ended its waits: {operation:?}");
    }
    assert_nothing_lost(&tracer);
}
