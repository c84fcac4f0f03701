//! Requests and replies with any body and a true header: no panic, the counters balance, and the same
//! operations are seen however the bytes are cut into packets.

use crate::{Input, decode, message};
use sonar_decode::testing::{Conversation, ConversationEnd};

const OPCODES: [i32; 14] = [2013, 2004, 1, 2012, 2002, 2001, 2006, 2005, 2007, 2010, 2011, 1000, 2003, 2269];

/// Takes an input.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let mss = usize::from(input.byte()) + 1;
    let mut turns = Vec::new();
    for n in 1..=8 {
        if input.is_empty() {
            break;
        }
        let choice = input.byte();
        let opcode = OPCODES[usize::from(choice & 0x0f) % OPCODES.len()];
        let from = if choice & 0x80 == 0 { ConversationEnd::Client } else { ConversationEnd::Server };
        let response_to = if from == ConversationEnd::Server { n - 1 } else { 0 };
        let len = usize::from(input.u16() & 0x07ff);
        turns.push((from, message(n, response_to, opcode, input.take(len))));
    }
    let in_packets_of = |mss: usize| {
        let mut talk = Conversation::new("10.0.0.9:51234", "10.0.0.1:27017").with_mss(mss);
        talk.handshake();
        for (from, bytes) in &turns {
            talk.send(*from, bytes);
        }
        talk.close();
        decode(&talk.packets)
    };
    assert_eq!(in_packets_of(4_096), in_packets_of(mss));
}
