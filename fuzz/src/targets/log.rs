//! Any bytes as lines of a log: no panic, counters balance, and a reader that has read all of them before reads the
//! same operations.

use sonar_core::{Execution, Identity, Operation};
use sonar_decode::entry::{EntrySink, ParsedEntry};
use sonar_decode::log::{LogReader, LogSettings};

#[derive(Default)]
struct Operations(Vec<String>);

impl EntrySink for Operations {
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>, entries: u64) {
        assert!(op.end >= op.start);
        assert!(op.latency_ns.is_none() || entries > 0);
        self.0.push(format!("{identity:?} {:?} {} {execution:?} {entries}", op.shape, op.command));
    }
}

/// Takes an input.
pub fn run(data: &[u8]) {
    let (mut log, mut operations) = (LogReader::new(LogSettings::default()), Operations::default());
    let (mut reader, mut entry) = (log.reader(), ParsedEntry::default());
    for round in 0..2 {
        let before = std::mem::take(&mut operations.0);
        for line in data.split(|byte| *byte == b'\n') {
            // One reader for all lines, whose buffers are used again, or one for each.
            if round == 0 {
                log.line(line, &mut operations);
            } else {
                let parsed = reader.read(line, &mut entry);
                log.add(line, &parsed, &entry, &mut operations);
            }
            assert_eq!(log.reading().imbalances(), Vec::<String>::new());
        }
        log.finish(&mut operations);
        log.next_server();
        assert!(round == 0 || operations.0.len() == before.len());
    }
}
