//! Any bytes as BSON documents: no panic, and the same elements however the bytes are cut.

use sonar_decode::bson::{
    BsonValue, ElementKind, ElementStep, Fed, Key, MalformedBson, Opened, Skimmer, Visitor,
};

/// Writes down what it is told; enters, skips and leaves as the input says.
struct Witness<'a> {
    seen: Vec<String>,
    choices: std::iter::Cycle<std::slice::Iter<'a, u8>>,
}

impl Visitor for Witness<'_> {
    fn element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
        self.seen.push(format!("{:?} {kind:?} {value:?}", key.bytes));
        if self.choices.next() == Some(&7) { ElementStep::Leave } else { ElementStep::Next }
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        self.seen.push(format!("{:?} {array}", key.bytes));
        match self.choices.next() {
            Some(1) => Opened::Skip,
            Some(2) => Opened::Leave,
            _ => Opened::Enter,
        }
    }

    fn close(&mut self) {
        self.seen.push("close".to_owned());
    }
}

/// Takes an input.
pub fn run(input: &[u8]) {
    let [size, a, b, c, data @ ..] = input else { return };
    let choices = [*a, *b, *c];
    let whole = walk(data, data.len(), &choices);
    let in_pieces = walk(data, usize::from(*size) + 1, &choices);
    assert_eq!(whole, in_pieces);
}

/// Documents one after another, fed in pieces; what does not fit yet is presented again with more.
fn walk(data: &[u8], size: usize, choices: &[u8]) -> (Vec<String>, Option<MalformedBson>) {
    let mut witness = Witness { seen: Vec::new(), choices: choices.iter().cycle() };
    let mut skimmer = Skimmer::new();
    let (mut start, mut end) = (0, 0);
    loop {
        match skimmer.feed(&data[start..end], u64::MAX, &mut witness) {
            Ok(Fed::Done(consumed)) => {
                start += consumed;
                witness.seen.push("end".to_owned());
                if start == data.len() {
                    return (witness.seen, None);
                }
            }
            Ok(Fed::More(consumed)) => {
                start += consumed;
                if end == data.len() {
                    return (witness.seen, None);
                }
                end = (end + size.max(1)).min(data.len());
            }
            Err(malformed) => return (witness.seen, Some(malformed)),
        }
        assert!(start <= end);
    }
}
