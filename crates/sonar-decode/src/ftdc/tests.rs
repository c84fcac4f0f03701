use std::io::Write;

use proptest::prelude::*;

use sonar_core::internals::{Metric, ServerDescription, ServerSample};

use super::*;

/// What a test puts into a chunk: a reference document and the differences, column by column.
struct Plan {
    reference: bson::Document,
    columns: Vec<Vec<u64>>,
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zlib(unpacked: &[u8]) -> Vec<u8> {
    let mut data = u32::to_le_bytes(unpacked.len() as u32).to_vec();
    let mut packer = flate2::write::ZlibEncoder::new(&mut data, flate2::Compression::fast());
    packer.write_all(unpacked).unwrap();
    packer.finish().unwrap();
    data
}

impl Plan {
    fn unpacked(&self) -> Vec<u8> {
        let mut bytes = self.reference.to_vec().unwrap();
        bytes.extend((self.columns.len() as u32).to_le_bytes());
        bytes.extend((self.columns.first().map_or(0, Vec::len) as u32).to_le_bytes());
        let mut zeros = 0;
        for delta in self.columns.iter().flatten() {
            if *delta == 0 {
                zeros += 1;
                continue;
            }
            if zeros > 0 {
                bytes.push(0);
                varint(&mut bytes, zeros - 1);
                zeros = 0;
            }
            varint(&mut bytes, *delta);
        }
        if zeros > 0 {
            bytes.push(0);
            varint(&mut bytes, zeros - 1);
        }
        bytes
    }

    fn data(&self) -> Vec<u8> {
        zlib(&self.unpacked())
    }
}

/// Paths and values of a chunk.
fn decode(data: &[u8]) -> Result<Vec<(String, Vec<i64>)>, ChunkError> {
    let mut chunk = MetricChunk::default();
    chunk.read(data)?;
    let schema = chunk.schema().clone();
    let columns = chunk.columns(&vec![true; schema.metrics.len()])?;
    Ok(schema
        .metrics
        .iter()
        .map(|metric| metric.path.clone())
        .zip(columns.iter().map(<[i64]>::to_vec))
        .collect())
}

fn named(paths: &[&str], values: &[&[i64]]) -> Vec<(String, Vec<i64>)> {
    paths.iter().map(|path| path.to_string()).zip(values.iter().map(|values| values.to_vec())).collect()
}

#[test]
fn a_run_of_zeros_goes_on_in_the_next_metric() {
    let plan = Plan {
        reference: bson::doc! {"start": bson::DateTime::from_millis(1_000), "a": {"b": 7_i64, "c": 9}, "d": -1.9},
        columns: vec![vec![1_000, 1_000, 0], vec![0, 0, 0], vec![0, 5, u64::MAX], vec![0, 0, 0]],
    };
    assert_eq!(
        decode(&plan.data()).unwrap(),
        named(
            &["start", "a.b", "a.c", "d"],
            &[&[1_000, 2_000, 3_000, 3_000], &[7, 7, 7, 7], &[9, 9, 14, 13], &[-1, -1, -1, -1]]
        )
    );
}

#[test]
fn a_chunk_of_one_sample_has_no_differences() {
    let plan = Plan { reference: bson::doc! {"a": 1, "b": true, "c": "text"}, columns: vec![vec![], vec![]] };
    assert_eq!(decode(&plan.data()).unwrap(), named(&["a", "b"], &[&[1], &[1]]));
}

#[test]
fn a_timestamp_is_two_metrics_and_text_is_none() {
    let time = bson::Timestamp { time: 4_000_000_000, increment: 3 };
    let plan = Plan {
        reference: bson::doc! {"members": [{"name": "x", "optime": time}], "id": bson::oid::ObjectId::new()},
        columns: vec![vec![1], vec![u64::MAX]],
    };
    let paths = ["members.0.optime", "members.0.optime"];
    assert_eq!(decode(&plan.data()).unwrap(), named(&paths, &[&[4_000_000_000, 4_000_000_001], &[3, 2]]));
}

#[test]
fn names_that_come_twice_and_names_that_are_no_utf_8_are_kept() {
    // {"m": {"a": 1, "a": 2}, "\xe9": 3}
    let inner = [&[0x10, b'a', 0][..], &[1, 0, 0, 0], &[0x10, b'a', 0], &[2, 0, 0, 0], &[0]].concat();
    let mut reference = vec![0, 0, 0, 0, 3, b'm', 0];
    reference.extend((inner.len() as u32 + 4).to_le_bytes());
    reference.extend(inner);
    reference.extend([0x10, 0xe9, 0, 3, 0, 0, 0, 0]);
    let length = reference.len() as u32;
    reference[..4].copy_from_slice(&length.to_le_bytes());
    reference.extend([3u32.to_le_bytes(), 0u32.to_le_bytes()].concat());
    assert_eq!(decode(&zlib(&reference)).unwrap(), named(&["m.a", "m.a", "\u{fffd}"], &[&[1], &[2], &[3]]));
}

#[test]
fn each_damage_has_its_error() {
    let plan = Plan { reference: bson::doc! {"a": 1, "b": 2}, columns: vec![vec![1, 0], vec![0, 300]] };
    let (unpacked, data) = (plan.unpacked(), plan.data());
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut unpacked = unpacked.clone();
        change(&mut unpacked);
        decode(&zlib(&unpacked))
    };
    assert_eq!(changed(&|_| ()).unwrap().len(), 2);
    assert_eq!(
        changed(&|bytes| bytes.truncate(bytes.len() - 1)),
        Err(ChunkError::Differences),
        "too few numbers"
    );
    assert_eq!(changed(&|bytes| bytes.push(1)), Err(ChunkError::Differences), "too many numbers");
    assert_eq!(changed(&|bytes| bytes.truncate(10)), Err(ChunkError::Reference));
    assert_eq!(changed(&|bytes| bytes[4] = 0x70), Err(ChunkError::Reference));
    let counts = unpacked.len() - plan_numbers(&plan) - 8;
    assert_eq!(changed(&|bytes| bytes[counts] = 3), Err(ChunkError::MetricCount { said: 3, found: 2 }));
    assert_eq!(changed(&|bytes| bytes[counts + 7] = 0xff), Err(ChunkError::TooLarge));
    // A run of zeros that ends behind the last metric.
    let long = Plan { reference: bson::doc! {"a": 1}, columns: vec![vec![0]] };
    let mut bytes = long.unpacked();
    *bytes.last_mut().unwrap() = 1;
    assert_eq!(decode(&zlib(&bytes)), Err(ChunkError::Differences));
    let mut wrong = data.clone();
    *wrong.last_mut().unwrap() ^= 1;
    assert_eq!(decode(&wrong), Err(ChunkError::Compression), "the checksum");
    assert_eq!(decode(&data[..data.len() - 5]), Err(ChunkError::Compression), "cut");
    let mut said = data.clone();
    said[0] += 1;
    assert_eq!(decode(&said), Err(ChunkError::Compression), "another length");
    said[..4].copy_from_slice(&(MAX_UNPACKED as u32 + 1).to_le_bytes());
    assert_eq!(decode(&said), Err(ChunkError::TooLarge));
    said[..4].copy_from_slice(&(MAX_UNPACKED as u32).to_le_bytes());
    assert_eq!(decode(&said), Err(ChunkError::Compression), "no zlib data unpacks to this size");
}

fn plan_numbers(plan: &Plan) -> usize {
    plan.unpacked().len() - plan.reference.to_vec().unwrap().len() - 8
}

#[test]
fn chunks_of_one_schema_share_it() {
    let first = Plan { reference: bson::doc! {"a": {"b": 1}, "s": "x"}, columns: vec![vec![]] };
    let second = Plan { reference: bson::doc! {"a": {"b": 2}, "s": "longer"}, columns: vec![vec![]] };
    let moved = Plan { reference: bson::doc! {"a": {}, "b": 1}, columns: vec![vec![]] };
    let mut chunk = MetricChunk::default();
    chunk.read(&first.data()).unwrap();
    let schema = chunk.schema().clone();
    chunk.read(&second.data()).unwrap();
    assert!(std::sync::Arc::ptr_eq(&schema, chunk.schema()));
    chunk.read(&moved.data()).unwrap();
    assert_eq!(chunk.schema().metrics[0].path, "b", "the same names in another place");
    chunk.read(&first.data()).unwrap();
    assert!(std::sync::Arc::ptr_eq(&schema, chunk.schema()), "it came back");
    // Many others in between: it is forgotten, and read as well as before.
    for other in 0..100 {
        let mut reference = bson::Document::new();
        reference.insert(format!("other{other}"), other);
        chunk.read(&Plan { reference, columns: vec![vec![]] }.data()).unwrap();
    }
    chunk.read(&first.data()).unwrap();
    assert!(!std::sync::Arc::ptr_eq(&schema, chunk.schema()) && *schema == **chunk.schema());
}

#[test]
fn metrics_that_nobody_wants_are_skipped() {
    let plan = Plan {
        reference: bson::doc! {"a": 1, "b": 2, "c": 3},
        columns: vec![vec![0, 0], vec![0, 4], vec![0, 1]],
    };
    let mut chunk = MetricChunk::default();
    chunk.read(&plan.data()).unwrap();
    let columns = chunk.columns(&[false, false, true]).unwrap();
    assert_eq!(columns.iter().collect::<Vec<_>>(), [[3, 3, 4]]);
    assert_eq!(chunk.columns(&[]).unwrap().iter().len(), 0);
}

#[test]
fn documents_of_a_file() {
    let time = bson::DateTime::from_millis(5);
    let inner = bson::doc! {"x": 1};
    let document = bson::doc! {"_id": time, "type": 2, "count": 3, "doc": &inner}.to_vec().unwrap();
    assert_eq!(parse(&document), Ok(FtdcDocument { time_ms: 5, content: DocumentContent::Parameters }));
    let document = bson::doc! {"_id": time, "type": 0, "doc": &inner}.to_vec().unwrap();
    let inner = inner.to_vec().unwrap();
    assert_eq!(parse(&document).unwrap().content, DocumentContent::Metadata(&inner));
    let later = bson::doc! {"_id": time, "type": 9}.to_vec().unwrap();
    assert_eq!(parse(&later).unwrap().content, DocumentContent::Unknown);
    let no_data = bson::doc! {"_id": time, "type": 1}.to_vec().unwrap();
    assert_eq!(parse(&no_data), Err(DocumentError::Form));
    assert_eq!(document_length(0u32.to_le_bytes()), Ok(None));
    assert_eq!(document_length(4u32.to_le_bytes()), Err(DocumentError::Length));
    assert_eq!(document_length(5u32.to_le_bytes()), Ok(Some(5)));
}

/// Each limit refuses what passes it, and nothing that just fits.
#[test]
fn a_reader_refuses_what_passes_its_limits() {
    let reference = bson::doc! {"start": bson::DateTime::from_millis(1_000), "serverStatus": {"pid": 7_i64}};
    let plan = Plan { reference, columns: vec![vec![1_000; 9], vec![0; 9]] };
    let (data, unpacked) = (plan.data(), plan.unpacked().len());
    let mut whole = SampleReader::default();
    whole.read(&data, |_| ()).unwrap();
    let schemas = whole.chunk_schema_bytes();
    let exact = ChunkLimits { unpacked, values: 20, schemas };
    let read = |limits| {
        let (mut reader, mut samples) = (SampleReader::new(limits), 0);
        reader.read(&data, |_| samples += 1).map(|()| samples)
    };
    assert_eq!(read(exact), Ok(10));
    assert_eq!(read(ChunkLimits { unpacked: unpacked - 1, ..exact }), Err(ChunkError::TooLarge));
    assert_eq!(read(ChunkLimits { values: 19, ..exact }), Err(ChunkError::TooLarge));
    assert_eq!(read(ChunkLimits { schemas: schemas - 1, ..exact }), Err(ChunkError::TooManyMetrics));
    assert_eq!(
        read(ChunkLimits { schemas: 10, ..exact }),
        Err(ChunkError::TooManyMetrics),
        "a long signature"
    );
}

/// However many schemas come, those that are kept stay below the limit, with where their metrics stand.
#[test]
fn schemas_that_are_kept_stay_below_the_limit() {
    let of = |number: u32| {
        let reference = bson::doc! {"start": bson::DateTime::from_millis(1), format!("other{number}"): 1};
        Plan { reference, columns: vec![vec![]; 2] }.data()
    };
    let mut one = SampleReader::default();
    one.read(&of(0), |_| ()).unwrap();
    let limits = ChunkLimits { schemas: 3 * one.chunk_schema_bytes(), ..ChunkLimits::COMMAND };
    let mut reader = SampleReader::new(limits);
    for number in 0..9 {
        reader.read(&of(number), |_| ()).unwrap();
        assert!(reader.chunk_schema_bytes() <= limits.schemas);
    }
    assert_eq!(reader.schema_bytes(), 3 * one.schema_bytes());
    reader.release();
    assert_eq!(reader.schema_bytes(), 3 * one.schema_bytes(), "the schemas stay");
    reader.forget_schemas();
    assert_eq!(reader.schema_bytes(), 0);
    let mut samples = 0;
    reader.read(&of(3), |_| samples += 1).unwrap();
    assert_eq!(samples, 1);
}

/// The samples of a chunk of this reference document and no more.
fn samples(reference: bson::Document, metrics: usize) -> Vec<ServerSample> {
    let (mut reader, mut samples) = (SampleReader::default(), Vec::new());
    let data = Plan { reference, columns: vec![vec![]; metrics] }.data();
    reader.read(&data, |sample| samples.push(sample.clone())).unwrap();
    samples
}

#[test]
fn samples_of_sharded_servers_are_read_below_their_role() {
    let latest = bson::Timestamp { time: 77, increment: 5 };
    let [sample] = &samples(
        bson::doc! {
            "start": bson::DateTime::from_millis(1_000),
            "common": {"start": bson::DateTime::from_millis(2_000), "serverStatus": {
                "pid": 7_i64,
                "oplog": {"latestOptime": latest},
                "queues": {"execution": {"read": {"out": 3, "totalTickets": 10}}},
            }},
            "shard": {"replSetGetStatus": {"members": [
                {"state": 2, "self": true, "health": 1.0, "optimeDate": bson::DateTime::from_millis(500)},
                {"state": 1, "health": 1.0, "optimeDate": bson::DateTime::from_millis(900)},
            ]}},
        },
        14,
    )[..] else {
        panic!("one sample");
    };
    assert_eq!(sample.time_ms(), 1_000);
    assert_eq!(sample.get(Metric::Pid), Some(7));
    assert_eq!(sample.get(Metric::LatestOptime), Some(77), "seconds, not the increment");
    assert_eq!(sample.get(Metric::ReadTicketsOut), Some(3));
    assert_eq!(sample.get(Metric::CacheBytes), None);
    assert_eq!(sample.replication_lag_ms(), Some(400));
    assert_eq!(sample.state(), Some(2));
}

#[test]
fn disks_and_mounts_have_names_with_dots() {
    let disk = bson::doc! {"reads": 5, "writes": 6, "read_time_ms": 7, "write_time_ms": 8, "io_in_progress": 3, "io_time_ms": 9, "io_queued_ms": 10};
    let mount = bson::doc! {"capacity": 100, "available": 10, "free": 20};
    let [sample] = &samples(
        bson::doc! {"start": 1_i64, "systemMetrics": {
            "disks": {"nvme0n1": &disk, "dm-0.1": &disk},
            "mounts": {"/boot/efi.d": &mount, "/": &mount},
        }},
        1 + 14 + 6,
    )[..] else {
        panic!("one sample");
    };
    let disks: Vec<_> = sample
        .disks
        .iter()
        .map(|disk| (&*disk.name, disk.operations, disk.time_ms, disk.busy_ms, disk.in_flight))
        .collect();
    assert_eq!(disks, [("nvme0n1", 11, 15, 9, 3), ("dm-0.1", 11, 15, 9, 3)]);
    let mounts: Vec<_> =
        sample.mounts.iter().map(|mount| (&*mount.path, mount.capacity, mount.free)).collect();
    assert_eq!(mounts, [("/boot/efi.d", 100, 20), ("/", 100, 20)]);
}

#[test]
fn of_the_mounts_the_one_with_the_data_is_kept() {
    let mount = |free: i32| bson::doc! {"capacity": 100, "free": free};
    let reference = bson::doc! {"start": 1_i64, "systemMetrics": {
        "mounts": {"/": mount(1), "/data": mount(2), "/data2": mount(3), "/snap/core": mount(0)},
    }};
    let data = Plan { reference, columns: vec![vec![]; 9] }.data();
    for (folder, kept) in
        [("/data/db", "/data"), ("/data", "/data"), ("/database", "/"), ("/data2/db", "/data2")]
    {
        let mut reader = SampleReader::default();
        reader.set_data_folder(Some(folder.to_owned()));
        let mut mounts = Vec::new();
        reader
            .read(&data, |sample| mounts.extend(sample.mounts.iter().map(|mount| mount.path.to_string())))
            .unwrap();
        assert_eq!(mounts, [kept], "{folder}");
    }
}

#[test]
fn what_the_server_did_not_know_is_absent() {
    let reference = bson::doc! {"start": 1_i64, "serverStatus": {"pid": f64::INFINITY, "uptimeMillis": 2.9}};
    let [sample] = &samples(reference, 3)[..] else { panic!("one sample") };
    assert_eq!(sample.get(Metric::Pid), None);
    assert_eq!(sample.get(Metric::Uptime), Some(2));
}

/// Metadata of a server.
fn metadata(version: &str, architecture: &str) -> Vec<u8> {
    bson::doc! {"buildInfo": {"version": version}, "hostInfo": {"system": {"cpuArch": architecture}}}
        .to_vec()
        .unwrap()
}

/// The first value of a chunk that begins with `first`, and the one that is larger by `delta`.
fn pair(metadata: &[u8], first: bson::Bson, delta: u64) -> (i64, i64) {
    let mut chunk = MetricChunk::default();
    chunk.set_rule(number_rule(metadata));
    let plan = Plan { reference: bson::doc! {"a": first}, columns: vec![vec![delta]] };
    chunk.read(&plan.data()).unwrap();
    let columns = chunk.columns(&[true]).unwrap();
    let values = columns.iter().next().unwrap();
    (values[0], values[1])
}

#[test]
fn a_number_beyond_64_bits_at_the_head_of_a_chunk_leaves_later_values_right() {
    let ten = |first: i64| 10u64.wrapping_sub(first as u64);
    // What cvttsd2si gives on x86-64 for all of these (Intel's manual, volume 2: the indefinite integer value).
    for first in [9_223_372_036_854_775_808.0, 1e300, -1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        for version in ["3.6.8", "4.0.28", "4.4.2"] {
            let found = pair(&metadata(version, "x86_64"), first.into(), ten(i64::MIN));
            assert_eq!(found, (i64::MIN, 10), "{first} {version}");
        }
        // Arm clamps by itself, and later servers check the range; both make 0 of what is no number.
        let clamped = if first.is_nan() {
            0
        } else if first > 0.0 {
            i64::MAX
        } else {
            i64::MIN
        };
        for (version, architecture) in [("4.4.2", "aarch64"), ("7.0.12", "x86_64"), ("8.0.4", "aarch64")] {
            let found = pair(&metadata(version, architecture), first.into(), ten(clamped));
            assert_eq!(found, (clamped, 10), "{first} {version} {architecture}");
        }
    }
    for (first, whole) in [(1.9, 1), (-1.9, -1), (-9_223_372_036_854_775_808.0, i64::MIN)] {
        for architecture in ["x86_64", "aarch64"] {
            assert_eq!(pair(&metadata("4.2.0", architecture), first.into(), 0).0, whole, "{first}");
        }
    }
}

#[test]
fn a_decimal128_is_rounded_to_an_integer() {
    let of = |text: &str, version: &str| {
        let decimal: bson::Decimal128 = text.parse().unwrap();
        pair(&metadata(version, "x86_64"), decimal.into(), 0).0
    };
    for (text, whole) in [
        ("0", 0),
        ("7", 7),
        ("-7", -7),
        ("12E+3", 12_000),
        ("2.5", 2),
        ("3.5", 4),
        ("-2.5", -2),
        ("2.51", 3),
        ("0.0000000000000000000000000000001", 0),
        ("1E-6000", 0),
        ("0E+6000", 0),
        ("9223372036854775807", i64::MAX),
        ("-9223372036854775808", i64::MIN),
        ("9999999999999999.00000000000000", 9_999_999_999_999_999),
    ] {
        assert_eq!((of(text, "4.4.2"), of(text, "8.0.4")), (whole, whole), "{text}");
    }
    for (text, clamped) in [
        ("9223372036854775808", i64::MAX),
        ("1E+6000", i64::MAX),
        ("Infinity", i64::MAX),
        ("-1E+20", i64::MIN),
        ("-Infinity", i64::MIN),
        ("NaN", 0),
    ] {
        assert_eq!((of(text, "4.4.2"), of(text, "8.0.4")), (i64::MIN, clamped), "{text}");
    }
}

#[test]
fn samples_without_a_start_take_the_time_of_a_collector() {
    let date = bson::DateTime::from_millis;
    let time = |reference: bson::Document, metrics: usize| samples(reference, metrics)[0].get(Metric::Start);
    assert_eq!(
        time(bson::doc! {"serverStatus": {"start": date(7), "pid": 1_i64, "localTime": date(8)}}, 3),
        Some(7)
    );
    assert_eq!(time(bson::doc! {"serverStatus": {"pid": 1_i64, "localTime": date(8)}}, 2), Some(8));
    assert_eq!(time(bson::doc! {"serverStatus": {"pid": 1_i64, "start": 9_i64}}, 2), None, "no date");
    assert_eq!(time(bson::doc! {"common": {"start": date(5)}, "start": date(6)}, 2), Some(6));
}

#[test]
fn a_server_is_described_by_its_metadata() {
    let metadata = |role: Option<&str>| {
        let inner = bson::doc! {
            "buildInfo": {"version": "8.0.4"},
            "hostInfo": {"system": {"hostname": "db1", "numCores": 4, "numCoresAvailableToProcess": 2, "memSizeMB": 2_048_i64, "memLimitMB": 512_i64}, "os": {"name": "PRETTY_NAME=\"Debian\""}},
            "getCmdLineOpts": {"parsed": {"net": {"port": 27017}, "replication": {"replSetName": "rs0"}}},
        };
        match role {
            Some(role) => bson::doc! {"start": 1, role: inner},
            None => inner,
        }
    };
    let expected = ServerDescription {
        version: Some("8.0.4".to_owned()),
        host: Some("db1".to_owned()),
        port: Some(27_017),
        is_router: false,
        dbpath: None,
        replica_set: Some("rs0".to_owned()),
        processors: Some(4),
        processors_available: Some(2),
        memory_mib: Some(2_048),
        memory_limit_mib: Some(512),
        system: Some("Debian".to_owned()),
    };
    for role in [None, Some("common"), Some("shard")] {
        assert_eq!(describe(&metadata(role).to_vec().unwrap()), expected, "{role:?}");
    }
    assert_eq!(describe(b"nothing"), ServerDescription::default());
    assert_eq!((expected.tighter_memory_mib(), expected.fewer_processors()), (Some(512), Some(2)));
    let unlimited =
        ServerDescription { memory_limit_mib: Some(2_048), processors_available: Some(4), ..expected };
    assert_eq!((unlimited.tighter_memory_mib(), unlimited.fewer_processors()), (None, None));
}

#[test]
fn samples_have_the_limits_of_the_server_that_wrote_them() {
    let data = Plan { reference: bson::doc! {"start": 1_i64, "pid": 7_i64}, columns: vec![vec![]; 2] }.data();
    let host = |limit_mib: i64| bson::doc! {"hostInfo": {"system": {"memLimitMB": limit_mib, "numCoresAvailableToProcess": 2}}};
    let mut reader = SampleReader::default();
    let mut limits = Vec::new();
    for metadata in [None, Some(host(512)), Some(host(0))] {
        if let Some(metadata) = metadata {
            reader.metadata(&metadata.to_vec().unwrap());
        }
        reader
            .read(&data, |sample| limits.push((sample.bounds.memory_kib, sample.bounds.processors)))
            .unwrap();
    }
    assert_eq!(limits, [(None, None), (Some(512 << 10), Some(2)), (None, Some(2))]);
}

proptest! {
    #[test]
    fn what_was_packed_is_unpacked(
        metrics in 1..6usize,
        samples in 0..40usize,
        numbers in prop::collection::vec(prop_oneof![3 => Just(0u64), 1 => any::<u64>(), 1 => 0..300u64], 240),
    ) {
        let mut reference = bson::Document::new();
        for (metric, first) in numbers.iter().enumerate().take(metrics) {
            reference.insert(format!("m{metric}"), *first as i64);
        }
        let columns: Vec<Vec<u64>> = (0..metrics).map(|metric| numbers[metric * samples..][..samples].to_vec()).collect();
        let found = decode(&Plan { reference, columns: columns.clone() }.data()).unwrap();
        for (metric, (_, values)) in found.iter().enumerate() {
            let mut value = numbers[metric];
            let mut expected = vec![value as i64];
            for delta in &columns[metric] {
                value = value.wrapping_add(*delta);
                expected.push(value as i64);
            }
            prop_assert_eq!(values, &expected);
        }
    }

    #[test]
    fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode(&bytes);
        let _ = decode(&zlib(&bytes));
        let _ = parse(&bytes);
        let plan = Plan { reference: bson::doc! {"a": 1, "b": {"c": 2}}, columns: vec![vec![1, 2], vec![0, 3]] };
        let mut unpacked = plan.unpacked();
        for (at, change) in bytes.drain(..).enumerate().take(4) {
            let place = (usize::from(change) * 7 + at) % unpacked.len();
            unpacked[place] ^= change;
        }
        let _ = decode(&zlib(&unpacked));
    }
}
