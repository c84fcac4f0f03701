//! What the state machine makes of single cases.

use sonar_core::time_split::TimePart;

use super::machine::{CallKind, Divided, Outcome, divide, header};

const EXHAUST: u32 = 1;
const NO_REPLY: u32 = 2;
const PIPELINED: u32 = 4;
const FILES_CUT: u32 = 8;
const WAKERS_CUT: u32 = 16;
const WOKE: u32 = 32;
const MORE_TO_COME: u32 = 2;

/// Events of threads that receive on descriptor 7.
#[derive(Default)]
struct Events(Vec<String>);

impl Events {
    fn add(&mut self, thread: u32, ns: u64, what: &str) -> &mut Self {
        self.0.push(format!("{thread} {ns} {what}"));
        self
    }

    /// A request of 100 bytes has been received.
    fn request(&mut self, thread: u32, ns: u64, id: u32) -> &mut Self {
        self.add(thread, ns - 5, &format!("receive 7 16 {}", header(100, id, 0, 0)));
        self.add(thread, ns, "receive 7 84")
    }

    /// A reply of 50 bytes has been sent.
    fn reply(&mut self, thread: u32, ns: u64, to: u32, flags: u32) -> &mut Self {
        self.add(thread, ns, &format!("send 7 50 {}", header(50, 9_000 + to, to, flags)))
    }

    /// The thread is blocked in a call that has ended a nanosecond after it runs again.
    fn blocked(&mut self, thread: u32, (from, until): (u64, u64), kind: CallKind) -> &mut Self {
        self.add(thread, from, &format!("out 0 {} 3 0 0", kind as u8));
        self.add(thread, until, "in").add(thread, until + 1, "call 0 0")
    }

    fn divide(&self) -> Outcome {
        divide(&self.0)
    }
}

fn part(operation: &Divided, part: TimePart) -> u64 {
    operation.parts[part as usize]
}

fn adds_up(operation: &Divided) {
    assert_eq!(operation.parts.iter().sum::<u64>(), operation.end - operation.start, "{operation:?}");
}

#[test]
fn each_nanosecond_of_an_operation_is_in_one_part() {
    let mut events = Events::default();
    events.request(3, 1_000, 1);
    let kinds = [
        (CallKind::None, TimePart::Fault),
        (CallKind::Other, TimePart::Other),
        (CallKind::Read, TimePart::Read),
        (CallKind::Write, TimePart::Write),
        (CallKind::Flush, TimePart::Flush),
        (CallKind::Futex, TimePart::Futex),
        (CallKind::Poll, TimePart::Poll),
        (CallKind::Backoff, TimePart::Backoff),
        (CallKind::Sleep, TimePart::Sleep),
        (CallKind::Receive, TimePart::Peer),
        (CallKind::Send, TimePart::Peer),
    ];
    for (number, (kind, _)) in kinds.into_iter().enumerate() {
        let from = 2_000 + 1_000 * number as u64;
        events.blocked(3, (from, from + 100 + number as u64), kind);
    }
    // It could run, but had to wait; it was woken, and had to wait.
    events.add(3, 20_000, "out 1 0 0 0 0").add(3, 20_030, "in");
    events
        .add(3, 21_000, "out 0 5 0 0 0")
        .add(3, 21_500, "wake 0")
        .add(3, 21_540, "in")
        .add(3, 21_541, "call 0 0");
    events.add(3, 22_000, "out 0 10 7 0 0").add(3, 22_060, "in");
    events.reply(3, 22_100, 1, 0);
    let outcome = events.divide();
    let [operation] = &outcome.operations[..] else { panic!("{outcome:?}") };
    adds_up(operation);
    assert_eq!((operation.received_from, operation.start, operation.end), (995, 1_000, 22_100));
    assert_eq!((operation.request_bytes, operation.reply_bytes, operation.flags), (100, 50, 0));
    assert_eq!(operation.switches, kinds.len() as u32 + 3);
    for (number, (_, expected)) in kinds.into_iter().enumerate() {
        let more = match expected {
            TimePart::Futex => 500,
            TimePart::Peer => 219 - number as u64 - 100,
            _ => 0,
        };
        assert_eq!(part(operation, expected), 100 + number as u64 + more, "{expected:?}");
    }
    assert_eq!(part(operation, TimePart::RunQueue), 30 + 40);
    assert_eq!(part(operation, TimePart::Send), 60);
    assert!(outcome.missed.is_empty());
}

#[test]
fn what_a_thread_does_between_operations_is_outside_them() {
    let mut events = Events::default();
    events.request(3, 1_000, 1).reply(3, 1_500, 1, 0);
    events.add(3, 1_600, "out 0 9 7 0 0").add(3, 5_000, "in").request(3, 5_100, 2).reply(3, 5_400, 2, 0);
    let outcome = events.divide();
    assert_eq!(outcome.operations.len(), 2);
    outcome.operations.iter().for_each(adds_up);
    let (_, outside) = outcome.outside[0];
    assert_eq!(outside[14], 3_400, "idle");
    assert_eq!(outside[0], 100, "on a processor");
}

#[test]
fn a_wake_up_before_an_unseen_switch_begins_no_operation() {
    let mut events = Events::default();
    events.request(3, 1_000, 1).reply(3, 1_500, 1, 0);
    events.add(3, 2_000, "out 0 9 7 0 0").add(3, 3_000, "wake 0").add(3, 3_050, "in");
    // It left its processor unseen, perhaps to wait for the next request.
    events.add(3, 900_000, "in").request(3, 900_100, 2).reply(3, 900_400, 2, 0);
    let outcome = events.divide();
    assert_eq!(outcome.missed, [3]);
    outcome.operations.iter().for_each(adds_up);
    assert_eq!((outcome.operations[1].start, outcome.operations[1].end), (900_100, 900_400));
}

#[test]
fn an_operation_knows_when_its_thread_lost_its_processor_before() {
    let mut events = Events::default();
    events.request(3, 1_000, 1).reply(3, 1_500, 1, 0);
    // Twice after the reply: the second time is the one that a request has to wait for.
    events.add(3, 1_600, "out 1 9 7 0 0").add(3, 1_700, "in");
    events.add(3, 1_800, "out 1 9 7 0 0").add(3, 4_000, "in").request(3, 4_100, 2).reply(3, 4_500, 2, 0);
    // Not if it has waited for a request since, nor within an operation.
    events.add(3, 4_600, "out 1 9 7 0 0").add(3, 4_700, "in");
    events.add(3, 4_800, "out 0 9 7 0 0").add(3, 5_000, "in").request(3, 5_100, 3);
    events.add(3, 5_200, "out 1 9 7 0 0").add(3, 5_300, "in").reply(3, 5_400, 3, 0);
    events.request(3, 5_500, 4).reply(3, 5_600, 4, 0);
    let outcome = events.divide();
    outcome.operations.iter().for_each(adds_up);
    let preempted: Vec<_> = outcome.operations.iter().map(|one| one.preempted).collect();
    assert_eq!(preempted[1], (1_800, 4_000));
    assert_eq!([preempted[0].0, preempted[2].0, preempted[3].0], [0, 0, 0]);
}

#[test]
fn the_wait_for_a_processor_to_receive_a_request_is_part_of_its_operation() {
    let mut events = Events::default();
    events.request(3, 1_000, 1).reply(3, 1_500, 1, 0);
    events.add(3, 1_600, "out 0 9 7 0 0").add(3, 4_000, "wake 0").add(3, 4_700, "in");
    events.request(3, 4_750, 2).reply(3, 5_000, 2, 0);
    // It has to leave its processor before it receives: only what follows belongs to the operation.
    events.add(3, 5_100, "out 0 9 7 0 0").add(3, 6_000, "wake 0").add(3, 6_100, "in");
    events.add(3, 6_110, "out 1 9 7 0 0").add(3, 6_500, "in").request(3, 6_600, 3).reply(3, 7_000, 3, 0);
    let outcome = events.divide();
    outcome.operations.iter().for_each(adds_up);
    let second = &outcome.operations[1];
    assert_eq!((second.received_from, second.start, second.end), (4_000, 4_000, 5_000));
    assert_eq!((part(second, TimePart::RunQueue), part(second, TimePart::Cpu)), (700, 300));
    assert_eq!(outcome.operations[2].start, 6_600);
    let (_, outside) = outcome.outside[0];
    assert_eq!(outside[14], 2_400 + 900, "idle");
    assert_eq!(outside[TimePart::RunQueue as usize], 100 + 390);
    assert_eq!(outside[0], 100 + 100 + 10 + 100, "on a processor");
}

#[test]
fn a_reply_that_continues_begins_the_next_one() {
    let mut events = Events::default();
    events.request(3, 1_000, 1).reply(3, 1_100, 1, MORE_TO_COME);
    events.blocked(3, (1_200, 1_800), CallKind::Futex);
    // It answers the reply before it.
    events.reply(3, 2_000, 9_001, MORE_TO_COME).reply(3, 2_500, 18_001, 0);
    let operations = events.divide().operations;
    let spans: Vec<_> =
        operations.iter().map(|one| (one.start, one.end, one.flags, one.request_bytes)).collect();
    assert_eq!(spans, [(1_000, 1_100, 0, 100), (1_100, 2_000, EXHAUST, 0), (2_000, 2_500, EXHAUST, 0)]);
    operations.iter().for_each(adds_up);
    assert_eq!(part(&operations[1], TimePart::Futex), 600);
}

#[test]
fn a_request_without_a_reply_ends_when_the_thread_receives_again() {
    let mut events = Events::default();
    events.request(3, 1_000, 1).add(3, 1_700, "out 0 9 7 0 0").add(3, 4_000, "in").request(3, 4_100, 2);
    // It finds the next request at once.
    events.request(3, 4_800, 3).reply(3, 5_000, 3, 0);
    let operations = events.divide().operations;
    let spans: Vec<_> = operations.iter().map(|one| (one.request, one.start, one.end, one.flags)).collect();
    assert_eq!(spans, [(1, 1_000, 1_700, NO_REPLY), (2, 4_000, 4_795, NO_REPLY), (3, 4_800, 5_000, 0)]);
    operations.iter().for_each(adds_up);
}

#[test]
fn a_request_that_comes_with_the_next_one_is_marked() {
    let mut events = Events::default();
    events.add(3, 1_000, &format!("receive 7 150 {}", header(100, 1, 0, 0))).reply(3, 1_200, 1, 0);
    let operations = events.divide().operations;
    assert_eq!((operations.len(), operations[0].flags), (1, PIPELINED));
}

#[test]
fn requests_and_replies_in_pieces_are_one_operation() {
    let mut events = Events::default();
    let request = header(70_000, 1, 0, 0);
    events.add(3, 1_000, &format!("receive 7 6 {}", &request[..12]));
    events.add(3, 1_100, &format!("receive 7 10 {}", &request[12..32]));
    events.add(3, 1_200, "receive 7 65536").add(3, 1_300, "receive 7 -4").add(3, 1_400, "receive 7 4448");
    events.add(3, 2_000, &format!("send 7 65536 {}", header(100_000, 5, 1, 0)));
    events.blocked(3, (2_100, 2_600), CallKind::Send).add(3, 2_700, "send 7 -11").add(
        3,
        2_800,
        "send 7 34464",
    );
    let outcome = events.divide();
    let [operation] = &outcome.operations[..] else { panic!("{outcome:?}") };
    assert_eq!((operation.received_from, operation.start, operation.end), (1_000, 1_400, 2_800));
    assert_eq!((operation.request_bytes, operation.reply_bytes), (70_000, 100_000));
    adds_up(operation);
}

#[test]
fn a_connection_that_ends_is_forgotten() {
    let mut events = Events::default();
    events.request(3, 1_000, 1).add(3, 1_100, "receive 7 16 00").reply(3, 1_200, 1, 0);
    events.request(4, 1_000, 1).add(4, 1_100, "send 7 0").reply(4, 1_200, 1, 0);
    // No request, and a reply to something else.
    events.add(5, 1_000, &format!("receive 7 16 {}", header(100, 1, 77, 0)));
    events.request(6, 1_000, 1).reply(6, 1_100, 2, 0).reply(6, 1_200, 1, 0);
    let outcome = events.divide();
    let ended: Vec<_> = outcome.operations.iter().map(|one| (one.thread, one.flags)).collect();
    assert_eq!(ended, [(3, NO_REPLY)], "its next message is no request");
    assert_eq!((outcome.refused, outcome.foreign), (vec![3, 5], vec![6]));
}

#[test]
fn who_ends_the_last_slice_of_a_wait_has_ended_all_of_it() {
    const SLICE: u64 = 500_000_000;
    let mut events = Events::default();
    events.request(3, 1_000, 1);
    // Two slices of a poll run out, one of a futex is another wait, and so is a short time-out.
    let waits = [(6, SLICE, "0"), (5, SLICE, "-110"), (6, SLICE, "0"), (6, SLICE, "0"), (6, 1_000_000, "0")];
    let mut at = 2_000;
    for (kind, ns, result) in waits {
        events.add(3, at, &format!("out 0 {kind} 0 0 0")).add(3, at + ns, "wake 0").add(3, at + ns, "in");
        events.add(3, at + ns, &format!("call 0 0 {result}"));
        at += ns + 1_000;
    }
    for _ in 0..2 {
        events.add(3, at, "out 0 6 0 0 0").add(3, at + 300, "wake 41").add(3, at + 320, "in");
        events.add(3, at + 330, "call 0 0 1");
        at += 1_000;
    }
    events.reply(3, at, 1, 0);
    let operations = events.divide().operations;
    assert_eq!(operations[0].wakers, [[41, 0, 2, 2 * SLICE + 600]]);
    adds_up(&operations[0]);
}

#[test]
fn who_ended_a_wait_is_a_thread_and_its_operation() {
    let mut events = Events::default();
    events.request(41, 500, 7).request(3, 1_000, 1);
    for number in 0..2 {
        let from = 1_100 + 1_000 * number;
        events.add(3, from, "out 0 5 0 0 0").add(3, from + 300, "wake 41").add(3, from + 320, "in");
        events.add(3, from + 330, "call 0 0");
    }
    // Nobody ends a read on purpose.
    events
        .add(3, 4_000, "out 0 2 0 0 0")
        .add(3, 4_100, "wake 41")
        .add(3, 4_100, "in")
        .add(3, 4_101, "call 0 0");
    for waker in 50..54_u32 {
        let from = 6_000 + 100 * u64::from(waker);
        events.add(3, from, "out 0 6 0 0 0").add(3, from + 10, &format!("wake {waker}"));
        events.add(3, from + 10, "in").add(3, from + 10, "call 0 0");
    }
    events.reply(3, 90_000, 1, 0).reply(41, 90_000, 7, 0);
    let operations = events.divide().operations;
    let [waited, woke] = &operations[..] else { panic!("{operations:?}") };
    assert_eq!(waited.wakers, [[41, 500, 2, 600], [50, 0, 1, 10], [51, 0, 1, 10], [52, 0, 1, 10]]);
    assert_eq!((waited.flags, woke.flags), (WAKERS_CUT, WOKE));
    adds_up(waited);
}

#[test]
fn files_are_kept_with_what_was_waited_for_them() {
    let mut events = Events::default();
    events.request(3, 1_000, 1);
    for (number, inode) in [11, 12, 11, 13, 14, 15].into_iter().enumerate() {
        let from = 2_000 + 100 * number as u64;
        events.add(3, from, "out 0 2 5 0 0").add(3, from + 20, "in");
        events.add(3, from + 21, &format!("file 2 4096 {inode} 8"));
    }
    // From the page cache.
    events.add(3, 3_000, "file 2 4096 11 8").reply(3, 3_100, 1, 0);
    let operations = events.divide().operations;
    let files = &operations[0].files;
    let one = |inode| [inode, 1, 4096, 20, 0];
    assert_eq!(*files, [[11, 2, 8192, 40, 0], one(12), one(13), one(14)]);
    assert_eq!(operations[0].flags, FILES_CUT);
}

#[test]
fn a_read_is_in_order_if_it_begins_where_the_last_one_of_its_thread_ended() {
    let mut events = Events::default();
    events.request(3, 1_000, 1);
    let mut at = 2_000;
    let mut read = |events: &mut Events, waits: bool, place: &str| {
        at += 100;
        if waits {
            events.add(3, at, "out 0 2 5 0 0").add(3, at + 20, "in");
        }
        events.add(3, at + 21, &format!("file 2 4096 11 8 {place}"));
    };
    // The second one, and the fourth, which follows one from the page cache. Another file in between does not matter.
    for (waits, place) in [
        (true, "5 0"),
        (true, "5 4096"),
        (false, "5 8192"),
        (true, "6 0"),
        (true, "5 12288"),
        (true, "5 4096"),
    ] {
        read(&mut events, waits, place);
    }
    // Without an offset it goes on; not after a read of another file at the same place of the table.
    read(&mut events, true, "5 18446744073709551615");
    read(&mut events, true, "9 8192");
    read(&mut events, true, "5 18446744073709551615");
    events.reply(3, 9_000, 1, 0);
    let operations = events.divide().operations;
    assert_eq!(operations[0].files, [[11, 8, 8 * 4096, 160, 3]]);
}

/// The scheduler's clock is that much behind.
const BEHIND: u64 = 100;

#[test]
fn an_arrival_that_was_not_seen_is_taken_from_the_scheduler() {
    let mut events = Events::default();
    events.request(3, 1_000, 1);
    // Seen: it gives the offset of the clocks.
    events.add(3, 1_100, "out 0 5 0 0 0").add(3, 1_200, "in").add(3, 1_210, "call 0 0");
    events.add(3, 1_300, &format!("out 0 5 0 70 {}", 1_200 - BEHIND));
    // Not seen: the thread had its processor from 2,000 on, after 30 in the queue.
    events.add(3, 2_400, &format!("call 100 {}", 2_000 - BEHIND)).reply(3, 2_500, 1, 0);
    let outcome = events.divide();
    let operation = &outcome.operations[0];
    adds_up(operation);
    assert_eq!(outcome.missed, [3]);
    assert_eq!(part(operation, TimePart::Futex), 100 + 670);
    assert_eq!(part(operation, TimePart::RunQueue), 30);
    assert_eq!(part(operation, TimePart::Cpu), 100 + 100 + 500);
}

#[test]
fn an_arrival_that_nobody_knows_counts_as_waiting_until_now() {
    let mut events = Events::default();
    // No arrival was seen before, so the clocks cannot be compared.
    events
        .request(3, 1_000, 1)
        .add(3, 1_100, "out 0 5 0 0 0")
        .add(3, 2_000, "call 0 1500")
        .reply(3, 2_100, 1, 0);
    // The scheduler's figures contradict what was seen: nothing is beyond the wait.
    events.request(4, 1_000, 1).add(4, 1_100, "out 0 5 0 0 0").add(4, 1_200, "in").add(4, 1_210, "call 0 0");
    events.add(4, 1_300, &format!("out 0 5 0 0 {}", 1_200 - BEHIND));
    events.add(4, 2_000, "call 99999 3").reply(4, 2_100, 1, 0);
    let outcome = events.divide();
    outcome.operations.iter().for_each(adds_up);
    let found: Vec<_> = outcome.operations.iter().map(|one| part(one, TimePart::Futex)).collect();
    assert_eq!(found, [900, 100]);
    assert_eq!(part(&outcome.operations[0], TimePart::Cpu), 200);
}

#[test]
fn a_departure_that_was_not_seen_leaves_its_time_unexplained() {
    let mut events = Events::default();
    events.request(3, 1_000, 1).add(3, 1_400, "in").reply(3, 1_500, 1, 0);
    let outcome = events.divide();
    let operation = &outcome.operations[0];
    assert_eq!(outcome.missed, [3]);
    assert_eq!(operation.parts.iter().sum::<u64>(), 100, "of 500");
}

/// Bytes of the records that hold this many.
fn encrypted_bytes(content: u32) -> u32 {
    content + 22 * content.div_ceil(16_384)
}

#[test]
fn an_encrypted_reply_ends_when_its_last_record_was_sent() {
    let long = |at: u64| format!("encrypted {at} 0 {}", header(20_000, 9_001, 1, 0));
    let mut events = Events::default();
    // Each record is sent as soon as there is one.
    events.request(3, 1_000, 1).add(3, 1_100, &long(16_384));
    events.add(3, 1_200, &format!("records {}", encrypted_bytes(16_384)));
    events.add(3, 1_300, "encrypted 3616 0").add(3, 1_400, &format!("records {}", encrypted_bytes(3_616)));
    // Everything is encrypted first, and sent in parts.
    events.request(4, 1_000, 1).add(4, 1_100, &long(16_384)).add(4, 1_200, "encrypted 3616 0");
    events.add(4, 1_300, "records 10000").add(4, 1_400, "records 9990").add(4, 1_500, "records 54");
    // The library sends what it encrypts itself.
    let sent = format!("encrypted 16384 1 {}", header(20_000, 9_001, 1, 0));
    events.request(5, 1_000, 1).add(5, 1_250, &sent).add(5, 1_450, "encrypted 3616 1");
    let outcome = events.divide();
    let ends: Vec<_> = outcome.operations.iter().map(|one| (one.thread, one.end, one.reply_bytes)).collect();
    assert_eq!(ends, [(3, 1_400, 20_000), (4, 1_500, 20_000), (5, 1_450, 20_000)]);
    outcome.operations.iter().for_each(adds_up);
}

#[test]
fn the_excess_of_records_over_their_content_does_not_end_a_reply_early() {
    let mut events = Events::default();
    events.request(3, 1_000, 1);
    for number in 0..40 {
        let begin = if number == 0 { header(40 * 16_384, 9_001, 1, 0) } else { String::new() };
        events.add(3, 1_100 + 10 * number, &format!("encrypted 16384 0 {begin}"));
        // Each has 22 bytes more than its content, which are no part of what is still to be sent. The last one goes in
        // two parts.
        let parts: &[u32] = if number == 39 { &[16_000, 406] } else { &[16_406] };
        for (part, bytes) in parts.iter().enumerate() {
            events.add(3, 1_105 + 10 * number + part as u64, &format!("records {bytes}"));
        }
    }
    let outcome = events.divide();
    let [operation] = &outcome.operations[..] else { panic!("{outcome:?}") };
    assert_eq!(operation.end, 1_105 + 390 + 1);
}

#[test]
fn an_encrypted_reply_to_another_request_is_no_end() {
    let mut events = Events::default();
    events.request(3, 1_000, 1).add(3, 1_100, &format!("encrypted 50 0 {}", header(50, 9_001, 2, 0)));
    events.add(3, 1_200, "records 72");
    // One that announces another: exhaust.
    events.request(4, 1_000, 1);
    events.add(4, 1_100, &format!("encrypted 50 0 {}", header(50, 9_001, 1, MORE_TO_COME)));
    events.add(4, 1_200, "records 72");
    events.add(4, 1_900, &format!("encrypted 50 0 {}", header(50, 9_002, 9_001, 0))).add(
        4,
        2_000,
        "records 72",
    );
    let outcome = events.divide();
    assert_eq!(outcome.foreign, [3]);
    let found: Vec<_> = outcome.operations.iter().map(|one| (one.thread, one.flags, one.end)).collect();
    assert_eq!(found, [(4, 0, 1_200), (4, EXHAUST, 2_000)]);
}

#[test]
fn a_session_has_the_only_socket_from_which_its_thread_received_while_it_wanted_bytes() {
    let sockets = |events: &[&str]| {
        let mut all = Events::default();
        for event in events {
            all.add(3, 1_000, event);
        }
        all.divide().sockets
    };
    assert_eq!(sockets(&["read 11 0", "got 7 38", "read 11 16", "read 11 100"]), [0, 7, 0]);
    // In several pieces.
    assert_eq!(sockets(&["read 11 0", "got 7 5", "read 11 0", "got 7 200", "read 11 100"]), [0, 0, 7]);
    // From two sockets: which one is unknown, until it wants bytes again.
    assert_eq!(sockets(&["read 11 0", "got 7 90", "got 8 90", "read 11 16"]), [0, 0]);
    assert_eq!(
        sockets(&["read 11 0", "got 7 90", "got 8 90", "read 11 16", "read 11 0", "got 7 90", "read 11 16"]),
        [0, 0, 0, 7]
    );
    // Too short for a record of that many bytes.
    assert_eq!(sockets(&["read 11 0", "got 7 90", "read 11 70"]), [0, 0]);
    // Received before it wanted any, or while another one did.
    assert_eq!(sockets(&["got 7 90", "read 11 16"]), [0]);
    assert_eq!(sockets(&["read 11 0", "got 7 90", "read 12 0", "read 11 16"]), [0, 0, 0]);
    // With the end of the handshake came the first message.
    assert_eq!(sockets(&["got 6 900", "handshake 11 1", "got 7 500", "handshake 11 0", "read 11 16"]), [7]);
    // The thread has done something else in between.
    assert_eq!(
        sockets(&["handshake 11 1", "got 7 500", "read 12 0", "handshake 11 0", "read 11 16"]),
        [0, 0]
    );
}
