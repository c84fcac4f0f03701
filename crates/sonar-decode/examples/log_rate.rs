//! Reads a log from memory to its final digest, on one thread, and prints how quickly: `bench/logs.py` compares this
//! with other programs. `log_rate FILE [TIMES]`; with `serde` after that, serde_json parses each line into a value
//! instead, and the durations are added up.

use std::time::Instant;

use sonar_core::{Digest, Execution, Identity, Operation, Record, Source};
use sonar_decode::entry::{EntrySink, ParsedEntry};
use sonar_decode::log::{LogReader, LogSettings};

struct Collect(Digest);

impl EntrySink for Collect {
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>, entries: u64) {
        self.0.record(&Record::server(Source::Log, op, execution).read_as(identity, entries));
    }
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or_else(|| std::io::Error::other("log_rate FILE [TIMES]"))?;
    let times: u32 = arguments.next().and_then(|times| times.parse().ok()).unwrap_or(3);
    let plain = arguments.next().as_deref() == Some("serde");
    let bytes = std::fs::read(path)?;
    for _ in 0..if plain { times } else { 0 } {
        let (begin, mut lines, mut millis) = (Instant::now(), 0u64, 0u64);
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let value: serde_json::Value = serde_json::from_slice(line)?;
            millis += value["attr"]["durationMillis"].as_u64().unwrap_or(0);
            lines += 1;
        }
        let seconds = begin.elapsed().as_secs_f64();
        println!("{:.0} MB/s, {lines} lines, {millis} ms", bytes.len() as f64 / seconds / 1e6);
    }
    if plain {
        return Ok(());
    }
    for _ in 0..times {
        let begin = Instant::now();
        let (mut log, mut collect) = (LogReader::new(LogSettings::default()), Collect(Digest::default()));
        let (mut reader, mut entry, mut from) = (log.reader(), ParsedEntry::default(), 0);
        for end in memchr::memchr_iter(b'\n', &bytes) {
            let parsed = reader.read(&bytes[from..end], &mut entry);
            log.add(&bytes[from..end], &parsed, &entry, &mut collect);
            from = end + 1;
        }
        log.finish(&mut collect);
        let seconds = begin.elapsed().as_secs_f64();
        println!(
            "{:.0} MB/s, {:.0} lines/s, {} operations, {} rows",
            bytes.len() as f64 / seconds / 1e6,
            log.reading().lines as f64 / seconds,
            collect.0.totals().calls,
            collect.0.rows().len()
        );
    }
    Ok(())
}
