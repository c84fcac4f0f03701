//! Requests and replies, each whole: a message that a template recognises says what a walk of it says, whatever
//! messages the templates were made of.

use crate::Input;
use sonar_decode::testing::templates::{ReplyChecker, RequestChecker};

/// Takes an input.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let (mut requests, mut replies) = (RequestChecker::default(), ReplyChecker::default());
    while !input.is_empty() {
        // A message, and the same with some bytes changed, as another of the same layout would have.
        let length = usize::from(input.u16() & 0x07ff);
        let body = input.take(length);
        let mut changed = body.to_vec();
        for _ in 0..input.byte() % 4 {
            let (at, byte) = (usize::from(input.u16()), input.byte());
            if let Some(place) = changed.get_mut(at) {
                *place = byte;
            }
        }
        for body in [body, &changed, body] {
            requests.check(body);
            replies.check(body);
        }
    }
}
