//! Any bytes as lines of a log: no panic, counters balance, and a line says the same whatever came before it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sonar_core::{Execution, Identity, Operation};
use sonar_decode::entry::Sink;
use sonar_decode::log::{Log, Settings};

#[derive(Default)]
struct Operations(Vec<String>);

impl Sink for Operations {
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>, entries: u64) {
        assert!(op.end >= op.start);
        assert!(op.latency_ns.is_none() || entries > 0);
        self.0.push(format!("{identity:?} {:?} {} {execution:?} {entries}", op.shape, op.command));
    }
}

fuzz_target!(|data: &[u8]| {
    let (mut log, mut operations) = (Log::new(Settings::default()), Operations::default());
    for line in data.split(|byte| *byte == b'\n') {
        log.line(line, &mut operations);
        assert_eq!(log.reading().imbalances(), Vec::<String>::new());
    }
    log.finish(&mut operations);
    // Read again by the same reader, which knows all shapes now.
    let (mut again, before) = (Operations::default(), operations.0.len());
    log.next_server();
    for line in data.split(|byte| *byte == b'\n') {
        log.line(line, &mut again);
    }
    log.finish(&mut again);
    assert_eq!(again.0.len(), before);
});
