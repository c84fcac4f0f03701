//! Recorded diagnostic.data against what `serverStatus` answered in the same seconds.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde_json::Value;
use sonar_decode::ftdc::{DocumentContent, MetricChunk, document_length, parse};

fn fixtures(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/ftdc").join(name)
}

/// Every sample of a file, by its time in milliseconds: path to value, the first of each path.
fn samples(path: &Path) -> BTreeMap<i64, BTreeMap<String, i64>> {
    let file = std::fs::read(path).unwrap();
    let (mut rest, mut chunk, mut samples) = (&file[..], MetricChunk::default(), BTreeMap::new());
    while let Some(length) = rest.first_chunk().and_then(|first| document_length(*first).unwrap()) {
        let (document, after) = rest.split_at(length);
        rest = after;
        let DocumentContent::Chunk(data) = parse(document).unwrap().content else { continue };
        chunk.read(data).unwrap();
        let schema = chunk.schema().clone();
        let count = chunk.samples();
        let columns = chunk.columns(&vec![true; schema.metrics.len()]).unwrap();
        let mut rows = vec![BTreeMap::new(); count];
        for (metric, values) in schema.metrics.iter().zip(columns.iter()) {
            for (row, value) in rows.iter_mut().zip(values) {
                row.entry(metric.path.clone()).or_insert(*value);
            }
        }
        samples.extend(rows.into_iter().map(|row| (row["start"], row)));
    }
    samples
}

/// The numbers of a document by their path.
fn numbers(value: &Value, path: &str, out: &mut BTreeMap<String, i64>) {
    let join = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| numbers(value, &join(key), out)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, value)| numbers(value, &join(&at.to_string()), out))
        }
        Value::Number(number) => drop(
            out.insert(path.to_owned(), number.as_i64().unwrap_or_else(|| number.as_f64().unwrap() as i64)),
        ),
        Value::Bool(set) => drop(out.insert(path.to_owned(), i64::from(*set))),
        _ => {}
    }
}

#[test]
fn series_equal_server_status_of_the_same_second() {
    let samples = samples(&fixtures("day/metrics.2026-11-21T21-22-47Z-00000"));
    let lines = BufReader::new(flate2::read::GzDecoder::new(
        std::fs::File::open(fixtures("day-status.jsonl.gz")).unwrap(),
    ));
    let (mut lines_compared, mut compared) = (0, 0);
    for line in lines.lines() {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let at = (line["t"].as_f64().unwrap() * 1000.0) as i64;
        // The time is when the client asked: a busy server may have answered after its next sample.
        let Some(((_, before), (_, after))) = samples.range(..at).next_back().zip(samples.range(at..).nth(1))
        else {
            continue;
        };
        let mut status = BTreeMap::new();
        numbers(&line["serverStatus"], "serverStatus", &mut status);
        lines_compared += 1;
        for (path, value) in status {
            let Some((low, high)) = before.get(&path).zip(after.get(&path)) else { continue };
            // Gauges rise and fall in between; what does not change from sample to sample must be equal, and what only
            // rises must lie between them.
            let rises = samples.values().zip(samples.values().skip(1)).all(|(one, next)| {
                match (one.get(&path), next.get(&path)) {
                    (Some(one), Some(next)) => one <= next,
                    _ => true,
                }
            });
            if rises {
                assert!((*low..=*high).contains(&value), "{path}: {value} is not in {low}..={high} at {at}");
                compared += 1;
            }
        }
    }
    assert!(lines_compared > 12, "{lines_compared}");
    assert!(compared > 5_000, "{compared}");
}

#[test]
fn the_newest_samples_of_a_killed_server_are_in_the_interim_file() {
    let archives = ["killed/metrics.2026-11-21T21-33-14Z-00000", "killed/metrics.2026-11-21T21-36-48Z-00000"];
    let [first, second] = archives.map(|name| samples(&fixtures(name)));
    let interim = samples(&fixtures("killed/metrics.interim"));
    assert!(!first.is_empty() && !interim.is_empty());
    assert!(interim.first_key_value().unwrap().0 > second.keys().chain(first.keys()).max().unwrap());
}
