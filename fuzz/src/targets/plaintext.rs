//! What probes in TLS libraries report of sessions: parts of true conversations, lost, doubled, cut, in the wrong
//! session, before and after their connection is known: no panic, and the counters balance after each.

use crate::{CheckedDecoder, Input, conversation};
use sonar_core::{Endpoint, Plaintext, PlaintextEvent, Timestamp, TlsSuite};
use sonar_decode::TlsSource;

const SESSIONS: usize = 4;

/// Takes an input.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let streams = [conversation(1), conversation(0)];
    let mut passed = [[0_usize; 2]; SESSIONS];
    let mut time = Timestamp::from_unix(1_777_629_600, 0);
    let mut decoder = CheckedDecoder::new(TlsSource::This);
    for _ in 0..400 {
        if input.is_empty() {
            break;
        }
        let (what, how, length) = (input.byte(), input.byte(), usize::from(input.byte()));
        time = time.plus_ns(u64::from(input.byte()).pow(4));
        let number = usize::from(what >> 6);
        let received = what & 1 != 0;
        let (own, other) = (usize::from(received), usize::from(!received));
        // Sessions 0 and 1 are the two ends of one connection.
        let server = Endpoint::v4([10, 0, 0, 1], 27_017);
        let client = Endpoint::v4([10, 0, 0, 9], 50_000 + number.max(1) as u16);
        let ends = if number == 1 { [client, server] } else { [server, client] };
        let stream = &streams[if number == 1 { other } else { own }];
        let at = if how & 1 == 0 { passed[number][own] } else { usize::from(input.u16()) };
        let begin = at.min(stream.len());
        let end = (begin + length).min(stream.len());
        let skipped = if how & 2 == 0 { 0 } else { u32::from(input.u16()) };
        let event = match what >> 1 & 7 {
            0 => PlaintextEvent::Bound,
            1 if how & 4 != 0 => PlaintextEvent::Ended,
            _ => PlaintextEvent::Part { received },
        };
        let is_part = matches!(event, PlaintextEvent::Part { .. });
        let plaintext = Plaintext {
            session: (number + usize::from(how >> 6) * SESSIONS) as u64,
            process: number as u32,
            ends: (what & 0x10 == 0).then_some(ends),
            event,
            time: if how & 8 == 0 { time } else { Timestamp::from_unix(1_777_629_600, u32::from(what)) },
            offset: at as u64,
            other: passed[number][other] as u64,
            bytes: if is_part { &stream[begin..end] } else { &[] },
            skipped: if is_part { skipped } else { 0 },
            suite: TlsSuite::of_server_hello(u16::from(how), u16::from(what) << 8),
            begins: is_part && how & 16 != 0,
        };
        if is_part {
            passed[number][own] = end + skipped as usize;
        }
        decoder.take(plaintext.time, |decoder, operations| decoder.plaintext(&plaintext, operations));
    }
    decoder.finish();
}
