//! Random streams, compared with the bytes they were cut from.

use proptest::prelude::*;
use sonar_decode::tcp::{FlowLimits, Lost, Side, Twins};

use super::bench::{ACK, Bench, CLIENT, Event, SERVER, SYN, Send};

/// How a stream is cut and mangled.
#[derive(Clone, Debug)]
struct Plan {
    /// Initial sequence numbers.
    isn: [u32; 2],
    /// Per segment: side, length, and its fate.
    segments: Vec<(bool, usize, u8, usize)>,
    drops: bool,
}

fn plan(drops: bool) -> impl Strategy<Value = Plan> {
    let near_wrap = prop_oneof![any::<u32>(), (0u32..3_000).prop_map(|n| u32::MAX - n)];
    (
        [near_wrap.clone(), near_wrap],
        proptest::collection::vec((any::<bool>(), 1usize..60, 0u8..12, 1usize..8), 1..120),
    )
        .prop_map(move |(isn, segments)| Plan { isn, segments, drops })
}

/// Byte `at` of the stream of a side.
fn byte(side: usize, at: usize) -> u8 {
    ((at * 31 + side * 7) ^ (at >> 8)) as u8
}

fn run(plan: &Plan) -> (Bench, [usize; 2], usize) {
    let mut sent = [0usize; 2];
    // (side, offset, length), in the order in which they are captured.
    let mut wire: Vec<(usize, usize, usize)> = Vec::new();
    let mut dropped = 0;
    let mut late: Vec<(usize, (usize, usize, usize))> = Vec::new();
    for (i, &(high, len, fate, by)) in plan.segments.iter().enumerate() {
        let side = usize::from(high);
        let at = sent[side];
        sent[side] += len;
        match fate {
            0 => wire.extend([(side, at, len); 2]),
            1 => {
                let from = at.saturating_sub(by * 9);
                wire.push((side, from, at + len - from));
            }
            2 | 3 => late.push((i + by, (side, at, len))),
            4 => {
                wire.push((side, at, len));
                late.push((i + by, (side, at, len / 2 + 1)));
            }
            5 if plan.drops => dropped += 1,
            _ => wire.push((side, at, len)),
        }
        late.retain(|(when, segment)| {
            if *when == i {
                wire.push(*segment);
            }
            *when > i
        });
    }
    wire.extend(late.into_iter().map(|(_, segment)| segment));

    let mut b = Bench::new();
    let ends = [SERVER, CLIENT];
    b.flags(ends[1], plan.isn[1], 0, SYN);
    b.flags(ends[0], plan.isn[0], plan.isn[1].wrapping_add(1), SYN | ACK);
    for (side, at, len) in wire {
        let bytes: Vec<u8> = (at..at + len).map(|at| byte(side, at)).collect();
        b.data(ends[side], plan.isn[side].wrapping_add(1).wrapping_add(at as u32), &bytes);
    }
    b.finish();
    (b, sent, dropped)
}

/// Compares what was delivered of a side with what was sent; returns where it ended.
fn replay(b: &Bench, side: Side) -> usize {
    let mut at = 0;
    for event in &b.log.events {
        match event {
            Event::Data(of, _, bytes) if *of == side => {
                let expected: Vec<u8> = (at..at + bytes.len()).map(|at| byte(side.index(), at)).collect();
                assert_eq!(bytes, &expected, "at {at} of {side:?}");
                at += bytes.len();
            }
            Event::Gap(of, Lost::Bytes(lost)) if *of == side => at += *lost as usize,
            Event::Gap(_, Lost::Unknown) => panic!("lost its place"),
            _ => {}
        }
    }
    at
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_mangled_stream_comes_out_as_it_was_sent(plan in plan(false)) {
        let (b, sent, _) = run(&plan);
        prop_assert_eq!((replay(&b, SERVER), replay(&b, CLIENT)), (sent[0], sent[1]));
        prop_assert_eq!((b.coverage.gaps, b.coverage.gap_bytes), (0, 0));
    }

    #[test]
    fn what_was_lost_is_told_where_it_was(plan in plan(true)) {
        let (b, sent, dropped) = run(&plan);
        for (side, sent) in [(SERVER, sent[0]), (CLIENT, sent[1])] {
            // What was lost at the very end left no trace.
            prop_assert!(replay(&b, side) <= sent);
        }
        let told: u64 = b.log.gaps().iter().filter_map(|(_, lost)| lost.bytes()).sum();
        prop_assert_eq!(told, b.coverage.gap_bytes);
        prop_assert!(b.coverage.gaps as usize <= dropped);
    }

    /// Segments that fit nothing: no panic, no growth, and every one is counted.
    #[test]
    fn nonsense_is_counted(
        segments in proptest::collection::vec(
            (any::<bool>(), any::<u8>(), prop_oneof![0u32..400, any::<u32>()], prop_oneof![0u32..400, any::<u32>()],
             0usize..40, prop_oneof![Just(0u32), 0u32..50, any::<u32>()], 0u64..3, 0u16..3, 0u64..2_000_000_000),
            0..200,
        ),
        ignore_after in proptest::option::of(1usize..5),
    ) {
        let limits = FlowLimits { flows: 2, held_bytes: 2_000, ..FlowLimits::default() };
        let mut b = Bench::with(limits, Twins::default());
        b.log.ignore_after = ignore_after;
        for (high, flags, seq, ack, len, missing, place, client, pause) in segments {
            let side = if high { CLIENT } else { SERVER };
            let bytes = vec![1; len];
            b.send(side, seq, ack, Send { client, server: 1, place, flags, missing, bytes: &bytes });
            if pause > 1_900_000_000 {
                b.tick();
            }
            b.now = b.now.wrapping_add(pause).saturating_sub(if pause % 7 == 0 { 3 * pause } else { 0 });
            prop_assert!(b.table.len() <= 2);
        }
        b.finish();
    }
}
