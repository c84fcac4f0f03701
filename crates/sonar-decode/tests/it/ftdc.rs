//! Recorded diagnostic.data against what `serverStatus` answered in the same seconds.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde_json::Value;
use sonar_core::internals::{FIGURES, FigureUnit, Metric, SampleStep, ServerSample};
use sonar_decode::ftdc::{DocumentContent, MetricChunk, SampleReader, StatusReader, document_length, parse};
use sonar_decode::testing::fixtures::fixture;

fn recorded(name: &str) -> PathBuf {
    fixture("ftdc").join(name)
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
    let samples = samples(&recorded("day/metrics.2026-11-21T21-22-47Z-00000"));
    let lines = BufReader::new(flate2::read::GzDecoder::new(
        std::fs::File::open(recorded("day-status.jsonl.gz")).unwrap(),
    ));
    // Gauges rise and fall in between; what does not change from sample to sample must be equal, and what only rises must
    // lie between them.
    let rises = |path: &String| {
        samples.values().zip(samples.values().skip(1)).all(|(one, next)| {
            match (one.get(path), next.get(path)) {
                (Some(one), Some(next)) => one <= next,
                _ => true,
            }
        })
    };
    let mut rising = HashMap::<String, bool>::new();
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
            let rises = *rising.entry(path.clone()).or_insert_with_key(&rises);
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
    let [first, second] = archives.map(|name| samples(&recorded(name)));
    let interim = samples(&recorded("killed/metrics.interim"));
    assert!(!first.is_empty() && !interim.is_empty());
    assert!(interim.first_key_value().unwrap().0 > second.keys().chain(first.keys()).max().unwrap());
}

/// A JSON value as in the recording, as the BSON that a server sends.
fn bson(value: &Value) -> bson::Bson {
    match value {
        Value::Object(fields) => {
            bson::Bson::Document(fields.iter().map(|(key, value)| (key.clone(), bson(value))).collect())
        }
        Value::Array(items) => bson::Bson::Array(items.iter().map(bson).collect()),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => bson::Bson::Int64(whole),
            None => bson::Bson::Double(number.as_f64().unwrap()),
        },
        Value::Bool(set) => bson::Bson::Boolean(*set),
        Value::String(text) => date(text).unwrap_or_else(|| bson::Bson::String(text.clone())),
        Value::Null => bson::Bson::Null,
    }
}

/// `2026-11-21 21:23:11.789000`, as the recording writes dates.
fn date(text: &str) -> Option<bson::Bson> {
    let text = format!("{}Z", text.replacen(' ', "T", 1));
    bson::DateTime::parse_rfc3339_str(text).ok().map(bson::Bson::DateTime)
}

/// What `serverStatus` and `replSetGetStatus` said, by time, as samples.
fn status_samples() -> Vec<ServerSample> {
    let file = std::fs::File::open(recorded("day-status.jsonl.gz")).unwrap();
    let mut reader = StatusReader::default();
    let lines = BufReader::new(flate2::read::GzDecoder::new(file)).lines();
    lines
        .map(|line| {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let document = bson::doc! {
                "start": bson(&line["serverStatus"]["localTime"]),
                "serverStatus": bson(&line["serverStatus"]),
                "replSetGetStatus": bson(&line["replSetGetStatus"]),
            };
            reader.read(&bson::serialize_to_vec(&document).unwrap()).unwrap().clone()
        })
        .collect()
}

/// The same of `diagnostic.data`.
fn ftdc_samples() -> Vec<ServerSample> {
    let file = std::fs::read(recorded("day/metrics.2026-11-21T21-22-47Z-00000")).unwrap();
    let (mut rest, mut reader, mut samples) = (&file[..], SampleReader::default(), Vec::new());
    while let Some(length) = rest.first_chunk().and_then(|first| document_length(*first).unwrap()) {
        let (document, after) = rest.split_at(length);
        rest = after;
        if let DocumentContent::Chunk(data) = parse(document).unwrap().content {
            reader.read(data, |sample| samples.push(sample.clone())).unwrap();
        }
    }
    samples
}

#[test]
fn a_sample_of_server_status_is_one_of_diagnostic_data() {
    let (ftdc, status) = (ftdc_samples(), status_samples());
    let is_of_server = |metric: &&Metric| metric.paths().iter().all(|path| path.starts_with("serverStatus"));
    let rises = |metric| ftdc.is_sorted_by_key(|sample| sample.get(metric));
    let (mut compared, mut members) = (0, 0);
    for sample in &status {
        let at = ftdc.partition_point(|one| one.time_ms() < sample.time_ms());
        let (Some(before), Some(after)) = (at.checked_sub(1).and_then(|at| ftdc.get(at)), ftdc.get(at + 1))
        else {
            continue;
        };
        for metric in Metric::ALL.iter().filter(is_of_server) {
            let values = [before, sample, after].map(|one| one.get(*metric));
            assert_eq!(values[0].is_some(), values[1].is_some(), "{metric:?}");
            if rises(*metric) {
                assert!(values.is_sorted(), "{metric:?}: {values:?}");
                compared += 1;
            }
        }
        assert_eq!(sample.members.len(), before.members.len());
        for ((own, before), after) in sample.members.iter().zip(&before.members).zip(&after.members) {
            assert_eq!(own.is_self, before.is_self);
            assert!([before.state, after.state].contains(&own.state));
            assert!((before.optime_ms..=after.optime_ms).contains(&own.optime_ms));
            members += 1;
        }
    }
    assert!(compared > 400 && members > 10, "{compared} {members}");
}

#[test]
fn figures_of_server_status_are_those_of_the_same_seconds_of_diagnostic_data() {
    let (ftdc, status) = (ftdc_samples(), status_samples());
    let near = |sample: &ServerSample| {
        ftdc.iter().min_by_key(|one| one.time_ms().abs_diff(sample.time_ms())).unwrap()
    };
    let mut compared = BTreeMap::new();
    for pair in status.windows(2) {
        let [before, now] = pair else { unreachable!() };
        let step = |before, now: &ServerSample, start: &ServerSample| {
            let seconds = (now.time_ms() - start.time_ms()) as f64 / 1e3;
            FIGURES.iter().filter_map(|figure| (figure.value)(&SampleStep { before, now, seconds })).count()
        };
        assert!(step(Some(before), now, before) > 30);
        let (first, last) = (near(before), near(now));
        let seconds = |a: &ServerSample, b: &ServerSample| (b.time_ms() - a.time_ms()) as f64 / 1e3;
        // Half a second more or less of many.
        if seconds(first, last) < 5.0 || seconds(before, now) < 5.0 {
            continue;
        }
        let ours = SampleStep { before: Some(before), now, seconds: seconds(before, now) };
        let theirs = SampleStep { before: Some(first), now: last, seconds: seconds(first, last) };
        for figure in FIGURES.iter().filter(|figure| figure.unit == FigureUnit::PerSecond) {
            let (Some(own), Some(value)) = ((figure.value)(&ours), (figure.value)(&theirs)) else { continue };
            assert!((own - value).abs() <= 0.2 * value.abs() + 1.0, "{}: {own} for {value}", figure.id);
            *compared.entry(figure.id).or_insert(0) += 1;
        }
    }
    assert!(compared.len() >= 10, "{compared:?}");
}

#[test]
fn a_damaged_or_odd_document_is_an_error_or_an_empty_sample() {
    let mut reader = StatusReader::default();
    assert!(reader.read(b"").is_err());
    assert!(reader.read(&[9, 0, 0, 0, 16, b'a', 0, 1, 0]).is_err());
    let odd = bson::serialize_to_vec(&bson::doc! { "serverStatus": [{ "pid": "x" }], "start": 5 }).unwrap();
    assert_eq!(reader.read(&odd).unwrap().get(Metric::Pid), None);
}
