use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use sonar_core::internals::Metric;
use sonar_decode::ftdc::MetricChunk;
use sonar_decode::testing::fixtures;
use sonar_sys::host::regular;

use super::*;

/// A folder that may be read.
#[derive(Clone, Debug)]
struct DiagnosticPath(PathBuf);

impl DiagnosticFolder for DiagnosticPath {
    fn list(&mut self) -> io::Result<Vec<DiagnosticFile>> {
        let entries = fs::read_dir(&self.0)?.collect::<io::Result<Vec<_>>>()?;
        // One that has just been removed is not there.
        let about = |entry: fs::DirEntry| Some((entry.file_name(), entry.metadata().ok()?));
        Ok(DiagnosticFile::among(entries.into_iter().filter_map(about)))
    }

    fn open(&mut self, name: &str) -> io::Result<File> {
        regular::open(&self.0.join(name))
    }
}

/// A folder that a server writes; removed when dropped.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mongosonar-ftdc-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn append(&self, name: &str, bytes: &[u8]) {
        fs::File::options()
            .append(true)
            .create(true)
            .open(self.0.join(name))
            .unwrap()
            .write_all(bytes)
            .unwrap();
    }

    /// As servers do: a file beside it, and a rename.
    fn replace_interim(&self, document: &[u8]) {
        let temp = self.0.join("metrics.interim.temp");
        fs::write(&temp, document).unwrap();
        fs::rename(temp, self.0.join(INTERIM)).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.0.join(name)).unwrap();
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn fixture(name: &str) -> Vec<u8> {
    fs::read(fixtures::fixture("ftdc").join(name)).unwrap()
}

const DAY: &str = "metrics.2026-11-21T21-22-47Z-00000";

/// The documents of a file.
fn documents(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut rest, mut found) = (bytes, Vec::new());
    while let Some(length) = rest.first_chunk().and_then(|first| document_length(*first).unwrap()) {
        found.push(rest[..length].to_vec());
        rest = &rest[length..];
    }
    found
}

/// The samples of a chunk, by another way than the follower's: pid and time.
fn samples(document: &[u8]) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    if let DocumentContent::Chunk(data) = parse(document).unwrap().content {
        let mut reader = SampleReader::default();
        reader.read(data, |sample| found.push((sample.get(Metric::Pid).unwrap(), sample.time_ms()))).unwrap();
    }
    found
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The document of a chunk with its first samples only, as an interim file has it.
fn beginning(document: &[u8], count: usize) -> Vec<u8> {
    let DocumentContent::Chunk(data) = parse(document).unwrap().content else { panic!("no chunk") };
    let mut chunk = MetricChunk::default();
    chunk.read(data).unwrap();
    let reference = chunk.reference().to_vec();
    let wanted = vec![true; chunk.schema().metrics.len()];
    let mut unpacked = reference;
    unpacked.extend((wanted.len() as u32).to_le_bytes());
    unpacked.extend((count as u32 - 1).to_le_bytes());
    let mut zeros = 0u64;
    for column in chunk.columns(&wanted).unwrap().iter() {
        for pair in column[..count].windows(2) {
            match pair[1].wrapping_sub(pair[0]) as u64 {
                0 => zeros += 1,
                delta => {
                    if zeros > 0 {
                        unpacked.push(0);
                        varint(zeros - 1, &mut unpacked);
                        zeros = 0;
                    }
                    varint(delta, &mut unpacked);
                }
            }
        }
    }
    if zeros > 0 {
        unpacked.push(0);
        varint(zeros - 1, &mut unpacked);
    }
    let mut packed = ZlibEncoder::new((unpacked.len() as u32).to_le_bytes().to_vec(), Compression::fast());
    packed.write_all(&unpacked).unwrap();
    let packed = packed.finish().unwrap();
    // `_id` and `type` stay; the data is the last element.
    let head = &document[4..document.len() - data.len() - 1 - 5];
    let mut out = Vec::new();
    out.extend((4 + head.len() as u32 + 5 + packed.len() as u32 + 1).to_le_bytes());
    out.extend(head);
    out.extend((packed.len() as u32).to_le_bytes());
    out.push(0);
    out.extend(packed);
    out.push(0);
    out
}

/// The metadata and the long chunks of the recorded day: after a start, schemas live for a second or two.
fn day() -> Vec<Vec<u8>> {
    let mut documents = documents(&fixture(&format!("day/{DAY}")));
    let mut number = 0;
    documents.retain(|document| {
        number += 1;
        number == 1 || samples(document).len() > 40
    });
    assert!(documents.len() > 4);
    documents
}

/// Polls until nothing is waiting: the samples that are given out.
fn poll(follower: &mut FtdcFollower<DiagnosticPath>) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    while follower.poll(|sample| found.push((sample.get(Metric::Pid).unwrap(), sample.time_ms()))).unwrap() {}
    found
}

fn follower(folder: &TempFolder, after_ms: i64) -> FtdcFollower<DiagnosticPath> {
    // Each has its own memory: tests wait for no others.
    let large = Box::leak(Box::new(LargeMemory::new()));
    FtdcFollower { large, ..FtdcFollower::new(DiagnosticPath(folder.0.clone()), after_ms) }
}

#[test]
fn a_chunk_for_which_there_is_no_memory_now_comes_later() {
    for is_interim in [false, true] {
        let folder = TempFolder::new("memory");
        fs::write(folder.0.join(if is_interim { INTERIM } else { DAY }), &day()[1]).unwrap();
        let mut follower = follower(&folder, 0);
        let taken = follower.large.take(Duration::ZERO).unwrap();
        for _ in 0..2 {
            let refused = follower.poll(|_| panic!("there is no memory")).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
        }
        drop(taken);
        assert!(!poll(&mut follower).is_empty());
        assert_eq!((follower.counts().damaged, follower.counts().repeated), (0, 0));
        assert!(follower.large.take(Duration::ZERO).is_some(), "it is given back");
    }
}

#[test]
fn a_shortened_chunk_has_the_first_samples() {
    let chunk = &day()[1];
    let all = samples(chunk);
    for count in [1, 2, 11, all.len()] {
        assert_eq!(samples(&beginning(chunk, count)), all[..count]);
    }
}

/// A recorded server, written as a server writes: each sample is given out once, in order, at the first poll after it is in
/// a file.
#[test]
fn each_sample_is_given_out_once_when_it_is_written() {
    let folder = TempFolder::new("day");
    let mut follower = follower(&folder, 0);
    let (mut given, mut expected) = (Vec::new(), Vec::new());
    for document in documents(&fixture(&format!("day/{DAY}"))) {
        let all = samples(&document);
        for count in (11..=all.len()).step_by(10) {
            folder.replace_interim(&beginning(&document, count));
            given.extend(poll(&mut follower));
            assert_eq!(given.len(), expected.len() + count, "all that the interim file has");
            assert_eq!(poll(&mut follower), []);
        }
        // The chunk first, then the interim file goes; somebody may look in between.
        folder.append(DAY, &document[..document.len() / 2]);
        given.extend(poll(&mut follower));
        folder.append(DAY, &document[document.len() / 2..]);
        given.extend(poll(&mut follower));
        expected.extend(all);
        assert_eq!(given, expected);
        if folder.0.join(INTERIM).exists() {
            folder.remove(INTERIM);
        }
        assert_eq!(poll(&mut follower), []);
    }
    assert!(expected.len() > 200, "{}", expected.len());
    let counts = follower.counts();
    assert_eq!((counts.samples as usize, counts.damaged), (expected.len(), 0));
    assert!(counts.repeated > 0, "those of interim files came again");
    assert_eq!(follower.server().unwrap().version.as_deref(), Some("4.4.6-8"));
}

/// The next interim file is written before anybody looked at the chunk before it: that one still comes first.
#[test]
fn a_chunk_that_was_missed_comes_before_the_next_interim_file() {
    let folder = TempFolder::new("order");
    let documents = day();
    let mut follower = follower(&folder, 0);
    folder.append(DAY, &documents[0]);
    folder.replace_interim(&beginning(&documents[1], 11));
    let mut given = poll(&mut follower);
    folder.append(DAY, &documents[1]);
    folder.replace_interim(&beginning(&documents[2], 11));
    given.extend(poll(&mut follower));
    let expected = [samples(&documents[1]), samples(&documents[2])[..11].to_vec()].concat();
    assert_eq!(given, expected);
}

/// A server that was killed: the samples of the interim file come again at the beginning of the next file.
#[test]
fn a_killed_server_begins_its_next_file_with_its_interim_samples() {
    let folder = TempFolder::new("killed");
    let names = ["metrics.2026-11-21T21-33-14Z-00000", "metrics.2026-11-21T21-36-48Z-00000"];
    let interim = fixture("killed/metrics.interim");
    let mut follower = follower(&folder, 0);
    let mut given = Vec::new();
    for name in names {
        folder.append(name, &fixture(&format!("killed/{name}")));
        given.extend(poll(&mut follower));
    }
    folder.replace_interim(&interim);
    given.extend(poll(&mut follower));
    let all: Vec<_> = names
        .iter()
        .flat_map(|name| documents(&fixture(&format!("killed/{name}"))))
        .chain([interim.clone()])
        .flat_map(|document| samples(&document))
        .collect();
    let mut unique = all.clone();
    unique.dedup();
    assert_eq!(given, unique);
    // The next start: a new file with the interim samples, and a later process.
    let metadata = &documents(&fixture(&format!("killed/{}", names[1])))[0];
    let next = "metrics.2026-11-22T08-00-00Z-00000";
    folder.append(next, &[metadata.clone(), interim].concat());
    folder.remove(INTERIM);
    folder.remove(names[0]);
    assert_eq!(poll(&mut follower), []);
    let other = &day()[1];
    folder.append(next, other);
    assert_eq!(poll(&mut follower), samples(other), "another process");
    assert_eq!(follower.counts().damaged, 0);
}

#[test]
fn it_begins_after_a_time_and_reads_no_more_than_it_must() {
    let folder = TempFolder::new("after");
    let recorded = day();
    let all: Vec<_> = recorded.iter().flat_map(|document| samples(document)).collect();
    let (last, archived) = recorded.split_last().unwrap();
    folder.append(DAY, &archived.concat());
    folder.replace_interim(&beginning(last, 11));
    let written = all.len() - samples(last).len() + 11;
    for at in [0, 1, 77, written - 12, written - 5, written - 1] {
        let mut follower = follower(&folder, all[at].1);
        assert_eq!(poll(&mut follower), all[at + 1..written], "after sample {at}");
        assert!(follower.counts().samples + follower.counts().repeated <= written as u64);
    }
    // From now on: what was written before is not given out, even when it comes again.
    let mut follower = follower(&folder, i64::MAX);
    assert_eq!(poll(&mut follower), []);
    assert!(follower.server().is_some());
    folder.append(DAY, last);
    assert_eq!(poll(&mut follower), all[written..]);
}

/// Servers name a file by the time at which they begin it, and go on with it whatever the clock shows later.
#[test]
fn what_is_written_after_the_clock_was_set_back_is_new_and_what_was_there_is_not() {
    let folder = TempFolder::new("clock");
    let later = "metrics.2026-11-21T21-33-14Z-00000";
    let recorded = day();
    let before = documents(&fixture(&format!("killed/{later}")));
    assert!(samples(&before[1])[0].1 > samples(recorded.last().unwrap())[0].1);
    // Nobody looked while the clock was set back and the server started again: the last file by its name is not the last one.
    folder.append(later, &before.concat());
    folder.append(DAY, &recorded[..2].concat());
    folder.replace_interim(&beginning(&recorded[2], 11));
    let mut follower = FtdcFollower {
        large: Box::leak(Box::new(LargeMemory::new())),
        ..FtdcFollower::from_now_on(DiagnosticPath(folder.0.clone()))
    };
    assert_eq!(poll(&mut follower), [], "it was there, whatever its times");
    // A chunk that is being written is read once it is whole.
    let (half, rest) = recorded[2].split_at(recorded[2].len() / 2);
    folder.append(DAY, half);
    assert_eq!(poll(&mut follower), []);
    folder.append(DAY, rest);
    folder.remove(INTERIM);
    assert_eq!(poll(&mut follower), samples(&recorded[2])[11..]);
    assert_eq!(follower.server().unwrap().version.as_deref(), Some("4.4.6-8"));
    // The next file by time stands between the two by name.
    let next = "metrics.2026-11-21T21-25-00Z-00000";
    folder.append(next, &[recorded[0].clone(), recorded[3].clone()].concat());
    assert_eq!(poll(&mut follower), samples(&recorded[3]));
    // The clock is set back again while it is followed.
    let last = "metrics.2026-11-20T09-00-00Z-00000";
    folder.append(last, &[recorded[0].clone(), recorded[4].clone()].concat());
    assert_eq!(poll(&mut follower), samples(&recorded[4]));
    // The server goes on with a file that was left.
    folder.append(next, &before[1]);
    assert_eq!(poll(&mut follower), samples(&before[1]));
    assert_eq!(follower.counts().damaged, 0);
}

#[test]
fn damage_costs_no_more_than_it_must() {
    let folder = TempFolder::new("damage");
    let recorded = day();
    let mut broken = recorded[1].clone();
    let middle = broken.len() / 2;
    broken[middle..middle + 8].fill(0xff);
    folder.append(DAY, &[recorded[0].clone(), broken, recorded[2].clone()].concat());
    let mut follower = follower(&folder, 0);
    assert_eq!(poll(&mut follower), samples(&recorded[2]));
    assert_eq!(follower.counts().damaged, 1);
    // Nothing can be a document here: the rest of the file is lost, the next file is not.
    folder.append(DAY, &[0xff; 64]);
    folder.replace_interim(b"not a document");
    assert_eq!(poll(&mut follower), []);
    assert_eq!(follower.counts().damaged, 3);
    folder.append("metrics.2026-11-21T22-00-00Z-00000", &recorded[3]);
    folder.replace_interim(b"");
    assert_eq!(poll(&mut follower), samples(&recorded[3]));
    // A file that ends within a document, because the server was killed.
    folder.append("metrics.2026-11-21T22-00-00Z-00000", &recorded[4][..50]);
    assert_eq!(poll(&mut follower), []);
    folder.append("metrics.2026-11-21T23-00-00Z-00000", &recorded[4]);
    assert_eq!(poll(&mut follower), samples(&recorded[4]));
    assert_eq!(follower.counts().damaged, 4);
}

/// A chunk document with this data.
fn chunk_document(unpacked: &[u8]) -> Vec<u8> {
    let mut packed = ZlibEncoder::new((unpacked.len() as u32).to_le_bytes().to_vec(), Compression::fast());
    packed.write_all(unpacked).unwrap();
    let data = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: packed.finish().unwrap() };
    bson::doc! {"_id": bson::DateTime::from_millis(1), "type": 1, "data": data}.to_vec().unwrap()
}

/// Somebody may write whatever is unpacked to hundreds of megabytes: it is refused and counted, and what follows is read.
#[test]
fn what_no_server_writes_is_refused_and_counted() {
    let folder = TempFolder::new("hostile");
    let recorded = day();
    let bomb = chunk_document(&vec![0; LIMITS.unpacked + 1]);
    assert!(bomb.len() < MAX_DOCUMENT / 10);
    let mut long = vec![0; MAX_DOCUMENT + 1];
    long[..4].copy_from_slice(&(MAX_DOCUMENT as u32 + 1).to_le_bytes());
    folder.append(DAY, &[&recorded[0], &bomb, &long, &recorded[1]].map(Vec::as_slice).concat());
    folder.replace_interim(&bomb);
    let mut follower = follower(&folder, 0);
    assert_eq!(poll(&mut follower), samples(&recorded[1]));
    assert_eq!(follower.counts().damaged, 3);
    folder.replace_interim(&long);
    assert_eq!(poll(&mut follower), []);
    assert_eq!(follower.counts().damaged, 4);
}

/// The agent polls one folder after the other. A chunk may come while the interim file is held.
#[test]
fn a_poll_takes_at_most_a_quarter_of_the_memory_of_the_service() {
    let unit = include_str!("../../../../../packaging/mongosonar.service");
    let high = unit.lines().find_map(|line| line.strip_prefix("MemoryHigh=")?.strip_suffix('M')).unwrap();
    let high = high.parse::<usize>().unwrap() << 20;
    let most = 2 * MAX_DOCUMENT + LIMITS.bytes();
    assert!(most <= high / 4, "{most} bytes of {high}");
}

/// The recorded chunks are far below the limits, also in servers with ten times as many metrics.
#[test]
fn recorded_chunks_are_far_below_the_limits() {
    let (mut unpacked, mut metrics) = (0, 0);
    for name in [&*format!("day/{DAY}"), "killed/metrics.2026-11-21T21-33-14Z-00000"] {
        for document in documents(&fixture(name)) {
            let DocumentContent::Chunk(data) = parse(&document).unwrap().content else { continue };
            let mut reader = SampleReader::new(LIMITS);
            reader.read(data, |_| ()).unwrap();
            assert!(reader.schema_bytes() < LIMITS.schemas / 10);
            unpacked = unpacked.max(u32::from_le_bytes(*data.first_chunk().unwrap()));
            let mut chunk = MetricChunk::default();
            chunk.read(data).unwrap();
            metrics = metrics.max(chunk.schema().metrics.len());
            assert!(document.len() < MAX_DOCUMENT / 10);
        }
    }
    assert!(metrics > 1_000, "{metrics}");
    assert!((unpacked as usize) < LIMITS.unpacked / 10, "{unpacked}");
    // All metrics of a chunk of 300 samples, not just those that are read.
    assert!(metrics * 300 < LIMITS.values, "{metrics}");
}

#[test]
fn a_folder_may_be_empty_and_must_be_there() {
    let folder = TempFolder::new("empty");
    assert_eq!(poll(&mut follower(&folder, 0)), []);
    let missing = DiagnosticPath(folder.0.join("missing"));
    assert!(FtdcFollower::new(missing, 0).poll(|_| {}).is_err());
}

/// Measures what following costs: a server writes a sample each second, and a poll each second sees all of them.
/// `bench/ftdc.py` runs it as a test, because the program has no library through which to reach the follower.
#[test]
#[ignore = "bench/ftdc.py runs it"]
fn cost_of_following() {
    let folder = TempFolder::new("cost");
    let recorded = day();
    folder.append(DAY, &recorded[0]);
    let mut follower = follower(&folder, 0);
    let (mut seconds, mut used) = (0, std::time::Duration::ZERO);
    let mut timed = |follower: &mut FtdcFollower<DiagnosticPath>| {
        let cpu = || sonar_sys::resource::ResourceUsage::now().unwrap().processor();
        let before = cpu();
        poll(follower);
        used += cpu() - before;
    };
    for document in &recorded[1..] {
        let count = samples(document).len();
        for second in 1..=count {
            if second > 1 && second % 10 == 1 {
                folder.replace_interim(&beginning(document, second));
            }
            timed(&mut follower);
            seconds += 1;
        }
        folder.append(DAY, document);
    }
    println!("{:.4} % of a processor", 100.0 * used.as_secs_f64() / f64::from(seconds));
}
