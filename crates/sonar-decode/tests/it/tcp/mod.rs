//! TCP streams: a table of scenarios (here), and random streams (`random`).

mod bench;
mod random;

use sonar_core::{Endpoint, Timestamp};
use sonar_decode::frame::{Segment, TcpFlags};
use sonar_decode::tcp::{Close, FlowLimits, Lost, Twins};

use self::bench::{ACK, Bench, CLIENT, Event, FIN, MS, PLAIN, RST, S, SERVER, SYN, Send};

#[test]
fn a_connection_from_syn_to_fin() {
    let mut b = Bench::new();
    b.handshake();
    b.data(CLIENT, 1_001, b"request");
    b.data(SERVER, 5_001, b"reply");
    b.flags(CLIENT, 1_008, 5_006, FIN | ACK);
    b.flags(SERVER, 5_006, 1_009, FIN | ACK);
    b.flags(CLIENT, 1_009, 5_007, ACK);
    assert_eq!(
        b.log.events,
        [
            Event::Open(Some(CLIENT)),
            Event::Data(CLIENT, 1_000 * S + 4_000, b"request".to_vec()),
            Event::Data(SERVER, 1_000 * S + 5_000, b"reply".to_vec()),
            Event::Close(Close::Finished),
        ]
    );
    let c = &b.coverage;
    assert_eq!((c.streams, c.streams_joined_late, c.segments_data, c.segments_empty), (1, 0, 2, 6));
    assert!(b.table.is_empty());
}

#[test]
fn a_connection_joined_in_the_middle_begins_with_an_unknown_gap() {
    let mut b = Bench::new();
    b.data(SERVER, 77, b"ly");
    b.data(CLIENT, 1_001, b"request");
    assert_eq!(b.log.gaps(), [(SERVER, Lost::Unknown), (CLIENT, Lost::Unknown)]);
    assert_eq!((b.coverage.streams, b.coverage.streams_joined_late, b.coverage.gaps), (1, 1, 0));
    // A stray acknowledgement opens no stream.
    b.send(CLIENT, 5, 5, Send { client: 50_001, ..PLAIN });
    assert_eq!((b.coverage.streams, b.table.len()), (1, 1));
}

#[test]
fn a_handshake_with_a_lost_part_is_still_one() {
    for lost in 0..3 {
        let mut b = Bench::new();
        if lost != 0 {
            b.flags(CLIENT, 1_000, 0, SYN);
        }
        if lost != 1 {
            b.flags(SERVER, 5_000, 1_001, SYN | ACK);
        }
        if lost != 2 {
            b.flags(CLIENT, 1_001, 5_001, ACK);
        }
        b.send(CLIENT, 1_001, 5_001, Send { bytes: b"request", ..PLAIN });
        b.data(SERVER, 5_001, b"reply");
        assert_eq!(b.log.gaps(), [], "without part {lost}");
        assert_eq!((b.coverage.streams, b.coverage.streams_joined_late), (1, 0));
    }
}

#[test]
fn data_in_the_syn_are_data() {
    let mut b = Bench::new();
    b.send(CLIENT, 1_000, 0, Send { flags: SYN, bytes: b"early", ..PLAIN });
    b.flags(SERVER, 5_000, 1_006, SYN | ACK);
    b.data(CLIENT, 1_006, b"late");
    assert_eq!(b.log.bytes(CLIENT), b"earlylate");
    assert_eq!(b.log.gaps(), []);
}

#[test]
fn retransmitted_bytes_are_delivered_once() {
    let mut b = Bench::new();
    b.handshake();
    b.data(CLIENT, 1_001, b"abcdef");
    b.data(CLIENT, 1_001, b"abcdef");
    b.data(CLIENT, 1_001, b"abc");
    b.data(CLIENT, 1_004, b"defghi");
    // Keepalive with and without its byte of garbage.
    b.data(CLIENT, 1_009, b"\0");
    b.flags(CLIENT, 1_009, 5_001, ACK);
    assert_eq!(b.log.bytes(CLIENT), b"abcdefghi");
    assert_eq!((b.coverage.segments_data, b.coverage.segments_duplicate), (2, 3));
}

#[test]
fn order_is_restored_and_time_does_not_run_back() {
    let mut b = Bench::new();
    b.handshake();
    b.data(CLIENT, 1_004, b"def");
    b.data(CLIENT, 1_007, b"ghi");
    assert_eq!(b.table.in_progress_segments(), 2);
    b.data(CLIENT, 1_001, b"abc");
    assert_eq!(b.log.bytes(CLIENT), b"abcdefghi");
    let filled = 1_000 * S + 6_000;
    assert!(
        b.log.events[1..].iter().all(|event| matches!(event, Event::Data(_, time, _) if *time == filled))
    );
    assert_eq!((b.coverage.segments_data, b.coverage.segments_reordered, b.coverage.gaps), (3, 2, 0));
}

#[test]
fn held_segments_may_overlap_each_other() {
    let mut b = Bench::new();
    b.handshake();
    b.data(CLIENT, 1_006, b"fg");
    b.data(CLIENT, 1_004, b"defghi");
    b.data(CLIENT, 1_005, b"efg");
    b.data(CLIENT, 1_003, b"cde");
    b.data(CLIENT, 1_001, b"ab");
    assert_eq!(b.log.bytes(CLIENT), b"abcdefghi");
    assert_eq!(b.coverage.segments_duplicate, 2);
}

#[test]
fn a_gap_that_was_acknowledged_is_lost() {
    let mut b = Bench::new();
    b.handshake();
    b.data(CLIENT, 1_101, b"xyz");
    b.flags(SERVER, 5_001, 1_104, ACK);
    // The bytes may still arrive.
    assert_eq!(b.log.gaps(), []);
    b.data(CLIENT, 1_104, b"u");
    assert_eq!(b.log.gaps(), []);
    b.data(CLIENT, 1_105, b"v");
    assert_eq!(b.log.gaps(), [(CLIENT, Lost::Bytes(100))]);
    assert_eq!(b.log.bytes(CLIENT), b"xyzuv");
    assert_eq!((b.coverage.gaps, b.coverage.gap_bytes, b.coverage.segments_reordered), (1, 100, 0));
}

#[test]
fn a_gap_that_was_acknowledged_is_lost_after_a_moment() {
    let mut b = Bench::new();
    b.handshake();
    b.data(CLIENT, 1_101, b"xyz");
    b.flags(SERVER, 5_001, 1_104, ACK);
    b.now += 49 * MS;
    b.tick();
    assert_eq!(b.log.gaps(), []);
    b.now += 2 * MS;
    b.tick();
    assert_eq!(b.log.gaps(), [(CLIENT, Lost::Bytes(100))]);
}

#[test]
fn a_gap_that_was_not_acknowledged_is_waited_for() {
    let mut b = Bench::new();
    b.handshake();
    for i in 0..20 {
        b.data(CLIENT, 1_101 + i, b"x");
        b.flags(SERVER, 5_001, 1_001, ACK);
    }
    b.now += 2 * S;
    b.tick();
    assert_eq!(b.log.events, []);
    b.data(CLIENT, 1_001, &[b'-'; 100]);
    assert_eq!((b.log.bytes(CLIENT).len(), b.coverage.gaps), (120, 0));
}

#[test]
fn a_gap_is_not_waited_for_for_ever() {
    let mut b = Bench::new();
    b.handshake();
    b.data(CLIENT, 1_101, b"x");
    b.now += 4 * S;
    b.tick();
    assert_eq!(b.log.gaps(), [(CLIENT, Lost::Bytes(100))]);
    assert_eq!(b.log.bytes(CLIENT), b"x");
}

#[test]
fn bytes_lost_at_the_end_are_reported_when_the_answer_acknowledges_them() {
    let mut b = Bench::new();
    b.handshake();
    b.data(CLIENT, 1_001, b"half of");
    b.send(SERVER, 5_001, 1_108, Send { bytes: b"reply", ..PLAIN });
    b.now += S;
    b.tick();
    assert_eq!(b.log.gaps(), [(CLIENT, Lost::Bytes(100))]);
    // Too late.
    b.data(CLIENT, 1_008, &[0; 100]);
    b.data(CLIENT, 1_108, b"next");
    assert_eq!(b.log.bytes(CLIENT), b"half ofnext");
    assert_eq!(b.coverage.segments_duplicate, 1);
}

#[test]
fn a_lost_fin_is_no_gap() {
    let mut b = Bench::new();
    b.handshake();
    b.data(CLIENT, 1_001, b"abc");
    b.flags(SERVER, 5_001, 1_005, ACK);
    b.now += S;
    b.tick();
    b.finish();
    assert_eq!(b.log.gaps(), []);
}

#[test]
fn a_fin_that_came_too_early_waits_for_its_turn() {
    let mut b = Bench::new();
    b.handshake();
    b.send(CLIENT, 1_004, 5_001, Send { flags: FIN | ACK, bytes: b"def", ..PLAIN });
    b.flags(SERVER, 5_001, 1_001, FIN | ACK);
    assert_eq!(b.log.closes(), []);
    b.data(CLIENT, 1_001, b"abc");
    assert_eq!(b.log.bytes(CLIENT), b"abcdef");
    assert_eq!(b.log.closes(), [Close::Finished]);
}

#[test]
fn a_fin_inside_of_delivered_bytes_ends_nothing() {
    let mut b = Bench::new();
    b.handshake();
    b.data(CLIENT, 1_001, b"abcdef");
    b.send(CLIENT, 1_001, 5_001, Send { flags: FIN | ACK, bytes: b"ab", ..PLAIN });
    b.data(CLIENT, 1_007, b"ghi");
    assert_eq!(b.log.bytes(CLIENT), b"abcdefghi");
}

#[test]
fn the_end_of_a_connection_gives_up_its_gaps() {
    for (flags, how) in [(RST | ACK, Close::Reset), (0, Close::EndOfCapture)] {
        let mut b = Bench::new();
        b.handshake();
        b.data(CLIENT, 1_003, b"c");
        b.data(CLIENT, 1_005, b"e");
        if flags != 0 {
            b.flags(CLIENT, 1_006, 5_001, flags);
        }
        b.finish();
        assert_eq!(b.log.gaps(), [(CLIENT, Lost::Bytes(2)), (CLIENT, Lost::Bytes(1))]);
        assert_eq!(b.log.bytes(CLIENT), b"ce");
        assert_eq!(b.log.closes(), [how]);
    }
}

#[test]
fn a_full_buffer_gives_up_its_first_gap() {
    let mut b = Bench::new();
    b.handshake();
    for i in 0..64 {
        b.data(CLIENT, 1_011 + 10 * i, b"x");
    }
    assert_eq!(b.table.in_progress_segments(), 64);
    b.data(CLIENT, 1_011 + 10 * 64, b"x");
    assert_eq!(b.table.in_progress_segments(), 64);
    assert_eq!(b.log.gaps(), [(CLIENT, Lost::Bytes(10))]);
    b.finish();
    assert_eq!(b.coverage.gap_bytes, 10 + 9 * 64);
}

#[test]
fn all_flows_together_hold_back_no_more_than_the_budget() {
    let limits = FlowLimits { held_bytes: 100_000, ..FlowLimits::default() };
    let mut b = Bench::with(limits, Twins::default());
    for client in 40_000..41_000 {
        b.send(CLIENT, 0, 0, Send { client, flags: SYN, ..PLAIN });
        b.send(CLIENT, 11, 0, Send { client, flags: 0, bytes: &[7; 1_000], ..PLAIN });
    }
    assert!(b.table.in_progress_segments() < 100);
    assert_eq!(b.coverage.gaps, 1_000 - b.table.in_progress_segments());
    b.finish();
    assert_eq!((b.coverage.segments_data, b.coverage.gap_bytes), (1_000, 10_000));
}

#[test]
fn bytes_cut_by_a_snap_length_are_an_exact_gap() {
    let mut b = Bench::new();
    b.handshake();
    b.send(CLIENT, 1_001, 0, Send { bytes: b"abc", missing: 97, ..PLAIN });
    b.data(CLIENT, 1_101, b"def");
    b.send(CLIENT, 1_104, 0, Send { missing: 10, ..PLAIN });
    b.data(CLIENT, 1_114, b"g");
    assert_eq!(b.log.gaps(), [(CLIENT, Lost::Cut(97)), (CLIENT, Lost::Cut(10))]);
    assert_eq!(b.log.bytes(CLIENT), b"abcdefg");
    let c = &b.coverage;
    assert_eq!((c.segments_snapped, c.segments_data, c.gaps, c.gap_bytes), (2, 4, 0, 0));
}

#[test]
fn sequence_numbers_wrap_around() {
    let mut b = Bench::new();
    b.flags(CLIENT, u32::MAX - 4, 0, SYN);
    b.data(CLIENT, u32::MAX - 3, b"abc");
    b.data(CLIENT, 2, b"ghi");
    b.data(CLIENT, u32::MAX, b"def");
    b.data(CLIENT, 5, b"jkl");
    assert_eq!(b.log.bytes(CLIENT), b"abcdefghijkl");
}

#[test]
fn one_stray_segment_is_dropped_and_three_that_fit_are_followed() {
    let mut b = Bench::new();
    b.handshake();
    b.data(CLIENT, 1_001, b"abc");
    b.data(CLIENT, 900_000_000, b"?");
    b.data(CLIENT, 1_004, b"def");
    b.data(CLIENT, 3_000_000_000, b"uv");
    b.data(CLIENT, 3_000_000_002, b"wx");
    b.data(CLIENT, 3_000_000_004, b"yz");
    b.data(CLIENT, 3_000_000_006, b"!");
    assert_eq!(b.log.bytes(CLIENT), b"abcdefyz!");
    assert_eq!(b.log.gaps(), [(CLIENT, Lost::Unknown)]);
    assert_eq!(b.coverage.segments_out_of_window, 3);
}

#[test]
fn a_new_connection_between_the_same_ends() {
    let mut b = Bench::new();
    b.handshake();
    b.data(CLIENT, 1_001, b"one");
    b.flags(CLIENT, 1_000, 0, SYN); // the first SYN again
    b.flags(CLIENT, 900_000, 0, SYN);
    b.flags(SERVER, 800_000, 900_001, SYN | ACK);
    b.data(CLIENT, 900_001, b"two");
    assert_eq!(b.log.closes(), [Close::Reused]);
    assert_eq!(b.log.bytes(CLIENT), b"onetwo");
    assert_eq!((b.coverage.streams, b.coverage.streams_joined_late), (2, 0));
    assert_eq!(b.log.gaps(), []);
}

#[test]
fn a_syn_that_was_overtaken_is_no_new_connection() {
    let mut b = Bench::new();
    b.flags(SERVER, 5_000, 1_001, SYN | ACK);
    b.data(CLIENT, 1_001, b"abc");
    b.flags(CLIENT, 1_000, 0, SYN);
    b.data(CLIENT, 1_004, b"def");
    assert_eq!(b.log.closes(), []);
    assert_eq!(b.log.bytes(CLIENT), b"abcdef");
}

#[test]
fn strays_after_the_end_open_nothing() {
    let mut b = Bench::new();
    b.handshake();
    b.data(CLIENT, 1_001, b"abc");
    b.flags(CLIENT, 1_004, 5_001, RST);
    b.data(SERVER, 5_001, b"in flight");
    b.flags(SERVER, 5_010, 1_004, FIN | ACK);
    assert_eq!((b.coverage.streams, b.coverage.segments_duplicate), (1, 1));
    // A SYN does.
    b.flags(CLIENT, 70_000, 0, SYN);
    b.data(CLIENT, 70_001, b"def");
    assert_eq!(b.coverage.streams, 2);
}

#[test]
fn a_reset_from_somewhere_else_breaks_nothing() {
    let mut b = Bench::new();
    b.handshake();
    b.data(CLIENT, 1_001, b"abc");
    b.flags(CLIENT, 2_000_000_000, 0, RST);
    b.data(CLIENT, 1_004, b"def");
    assert_eq!(b.log.bytes(CLIENT), b"abcdef");
    assert_eq!(b.coverage.streams, 1);
}

#[test]
fn a_flow_that_is_not_for_us_is_dropped_until_its_ends_connect_anew() {
    let mut b = Bench::new();
    b.log.ignore_after = Some(1);
    b.handshake();
    b.data(CLIENT, 1_101, b"held");
    b.data(SERVER, 5_001, b"GET /");
    assert_eq!(b.table.in_progress_segments(), 0);
    b.data(CLIENT, 1_001, b"more");
    b.flags(CLIENT, 1_105, 5_006, ACK);
    assert_eq!(b.coverage.segments_ignored, 3);
    assert_eq!(b.log.closes(), [Close::Ignored]);
    b.flags(CLIENT, 88_000, 0, SYN);
    b.data(CLIENT, 88_001, b"hello");
    assert_eq!(b.log.bytes(CLIENT), b"hello");
}

#[test]
fn each_direction_is_read_at_one_place() {
    let mut b = Bench::new();
    b.data(CLIENT, 1_001, b"abc");
    b.send(CLIENT, 1_001, 0, Send { place: 2, bytes: b"abc", ..PLAIN });
    // The other direction may pass elsewhere.
    b.send(SERVER, 5_001, 0, Send { place: 3, bytes: b"xyz", ..PLAIN });
    b.send(SERVER, 5_001, 0, Send { place: 4, bytes: b"xyz", ..PLAIN });
    assert_eq!(b.coverage.frames_twin_interface, 2);
    assert_eq!((b.log.bytes(CLIENT), b.log.bytes(SERVER)), (b"abc".to_vec(), b"xyz".to_vec()));
    // Fail-over: the first place is silent, the second brings new bytes.
    b.now += 2 * S;
    b.send(CLIENT, 1_001, 0, Send { place: 2, bytes: b"abc", ..PLAIN });
    b.send(CLIENT, 1_004, 0, Send { place: 2, bytes: b"def", ..PLAIN });
    b.send(CLIENT, 1_007, 0, Send { place: 1, bytes: b"ghi", ..PLAIN });
    b.send(CLIENT, 1_007, 0, Send { place: 2, bytes: b"ghi", ..PLAIN });
    assert_eq!(b.log.bytes(CLIENT), b"abcdefghi");
    assert_eq!(b.coverage.frames_twin_interface, 4);
}

#[test]
fn another_place_may_fill_a_gap() {
    let mut b = Bench::new();
    b.handshake();
    b.data(CLIENT, 1_001, b"abc");
    b.data(CLIENT, 1_007, b"ghi");
    b.send(CLIENT, 1_004, 0, Send { place: 2, bytes: b"def", ..PLAIN });
    assert_eq!(b.log.bytes(CLIENT), b"abcdefghi");
    assert_eq!((b.coverage.frames_twin_interface, b.coverage.gaps), (0, 0));
}

/// The address that docker0 shows in place of the host's.
const BEHIND: Send<'static> = Send { server: 7, place: 9, ..PLAIN };

#[test]
fn the_twin_behind_address_translation_is_found_by_its_handshake() {
    let mut b = Bench::new();
    for (from, seq, ack, flags) in
        [(CLIENT, 1_000, 0, SYN), (SERVER, 5_000, 1_001, SYN | ACK), (CLIENT, 1_001, 5_001, ACK)]
    {
        b.send(from, seq, ack, Send { flags, ..PLAIN });
        b.send(from, seq, ack, Send { flags, ..BEHIND });
    }
    for i in 0..30 {
        b.send(CLIENT, 1_001 + 2 * i, 5_001 + 3 * i, Send { bytes: b"ab", ..PLAIN });
        b.send(CLIENT, 1_001 + 2 * i, 5_001 + 3 * i, Send { bytes: b"ab", ..BEHIND });
        b.send(SERVER, 5_001 + 3 * i, 1_003 + 2 * i, Send { bytes: b"xyz", ..BEHIND });
        b.send(SERVER, 5_001 + 3 * i, 1_003 + 2 * i, Send { bytes: b"xyz", ..PLAIN });
    }
    assert_eq!((b.coverage.streams, b.log.bytes(CLIENT).len(), b.log.bytes(SERVER).len()), (1, 60, 90));
    assert_eq!(b.coverage.frames_twin_nat, 62);
    for (from, seq, ack) in [(CLIENT, 1_061, 5_091), (SERVER, 5_091, 1_062)] {
        b.send(from, seq, ack, Send { flags: FIN | ACK, ..PLAIN });
        b.send(from, seq, ack, Send { flags: FIN | ACK, ..BEHIND });
    }
    b.send(CLIENT, 1_062, 5_092, PLAIN);
    b.send(CLIENT, 1_062, 5_092, BEHIND);
    assert_eq!((b.coverage.streams, b.table.len(), b.coverage.frames_twin_nat), (1, 0, 65));
}

#[test]
fn the_twin_of_a_connection_joined_late_is_found_by_its_bytes() {
    let mut b = Bench::new();
    let long = [5; 100];
    b.send(CLIENT, 1_001, 77, Send { bytes: &long, ..PLAIN });
    b.send(CLIENT, 1_001, 77, Send { bytes: &long, ..BEHIND });
    b.send(SERVER, 77, 1_101, Send { bytes: &long, ..BEHIND });
    b.send(SERVER, 77, 1_101, Send { bytes: &long, ..PLAIN });
    assert_eq!((b.coverage.streams, b.coverage.frames_twin_nat), (1, 2));
    assert_eq!((b.log.bytes(CLIENT).len(), b.log.bytes(SERVER).len()), (100, 100));
    // The first sight ends; after a while only the second one is left.
    b.send(CLIENT, 1_101, 177, Send { flags: RST, ..PLAIN });
    for i in 0..6 {
        b.now += S;
        b.send(CLIENT, 1_101 + 100 * i, 177, Send { bytes: &long, ..BEHIND });
    }
    assert_eq!(b.coverage.streams, 2);
    assert_eq!(b.log.bytes(CLIENT).len(), 100 + 3 * 100);
}

#[test]
fn twins_are_found_across_tables_and_equal_bytes_alone_are_no_evidence() {
    let twins = Twins::default();
    let mut a = Bench::with(FlowLimits::default(), twins.clone());
    let mut b = Bench::with(FlowLimits::default(), twins);
    let hello = [5; 100];
    a.send(CLIENT, 1_001, 77, Send { bytes: &hello, ..PLAIN });
    b.send(CLIENT, 1_001, 77, Send { bytes: &hello, ..BEHIND });
    assert_eq!((b.coverage.streams, b.coverage.frames_twin_nat), (0, 1));
    for client in 50_001..50_100 {
        b.send(CLIENT, 1_001, u32::from(client), Send { client, bytes: &hello, ..PLAIN });
        b.send(CLIENT, u32::from(client), 77, Send { client: client + 1_000, bytes: &hello, ..PLAIN });
    }
    assert_eq!((b.coverage.streams, b.coverage.frames_twin_nat), (198, 1));
}

#[test]
fn idle_flows_are_forgotten() {
    let mut b = Bench::with(FlowLimits { idle_ns: 60 * S, ..FlowLimits::default() }, Twins::default());
    b.data(CLIENT, 1, b"a");
    b.send(CLIENT, 1, 1, Send { client: 50_001, bytes: b"b", ..PLAIN });
    b.now += 50 * S;
    b.data(CLIENT, 2, b"c");
    b.now += 20 * S;
    b.tick();
    assert_eq!((b.table.len(), b.coverage.streams_idle), (1, 1));
    assert_eq!(b.log.ports[&50_001].last(), Some(&Event::Close(Close::Idle)));
    b.now += 60 * S;
    b.tick();
    assert!(b.table.is_empty());
}

#[test]
fn a_flood_of_syns_stays_within_the_caps_and_drops_no_connection() {
    let mut b = Bench::with(FlowLimits { flows: 1_000, ..FlowLimits::default() }, Twins::default());
    b.handshake();
    b.data(CLIENT, 1_001, b"abc");
    for i in 0..1_000_000u32 {
        let segment = Segment {
            time: Timestamp::from_unix_ns(b.now),
            place: 1,
            source: Endpoint::v4((0x0b00_0000 + i).to_be_bytes(), 999),
            destination: Endpoint::v4([10, 0, 0, 1], 27017),
            seq: i,
            ack: 0,
            flags: TcpFlags::from_byte(SYN),
            payload: &[],
            missing: 0,
        };
        b.coverage.frames += 1;
        b.table.segment(&segment, &mut b.coverage, &mut b.log);
    }
    b.balance();
    assert_eq!(b.table.len(), 1_000);
    assert!(b.table.heap_bytes() < 1 << 20, "{}", b.table.heap_bytes());
    b.data(CLIENT, 1_004, b"def");
    assert_eq!(b.log.bytes(CLIENT), b"abcdef");
    assert_eq!((b.coverage.streams, b.coverage.streams_evicted), (1, 0));
}

#[test]
fn a_million_connections_stay_within_the_caps() {
    let mut b = Bench::with(FlowLimits { flows: 500, ..FlowLimits::default() }, Twins::default());
    for i in 0..100_000u32 {
        let client = (i % 60_000) as u16;
        let server = (i / 60_000) as u8;
        b.send(CLIENT, i, 1, Send { client, server, bytes: b"abcdefghijklmnopqrst", ..PLAIN });
        b.send(CLIENT, i + 30, 1, Send { client, server, bytes: b"gap before", ..PLAIN });
        b.log.events.clear();
        b.log.ports.clear();
    }
    assert_eq!((b.table.len(), b.log.most_open), (500, 500));
    assert_eq!(b.coverage.streams_evicted, 100_000 - 500);
    assert!(b.table.in_progress_segments() <= 500);
    b.finish();
}
