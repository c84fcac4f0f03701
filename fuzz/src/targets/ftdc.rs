//! Any bytes as documents and chunks of diagnostic.data: no panic, bounded needs, and the same values whether all metrics
//! are decoded or only some.

use std::io::Write;

use sonar_core::internals::Assessment;
use sonar_decode::ftdc::{DocumentContent, MetricChunk, SampleReader, describe, parse};

/// Takes an input.
pub fn run(input: &[u8]) {
    if let Ok(document) = parse(input) {
        match document.content {
            DocumentContent::Metadata(metadata) => drop(describe(metadata)),
            DocumentContent::Chunk(data) => chunk(data),
            _ => {}
        }
    }
    // Hardly any input is good zlib data: so the rest is taken for what they unpack to.
    let mut data = u32::to_le_bytes(input.len() as u32).to_vec();
    let mut packer = flate2::write::ZlibEncoder::new(&mut data, flate2::Compression::fast());
    packer.write_all(input).expect("memory takes every write");
    packer.finish().expect("memory takes every write");
    chunk(&data);
}

fn chunk(data: &[u8]) {
    let mut chunk = MetricChunk::default();
    if chunk.read(data).is_err() {
        return;
    }
    let metrics = chunk.schema().metrics.len();
    let every_third: Vec<bool> = (0..metrics).map(|metric| metric % 3 == 0).collect();
    let some =
        chunk.columns(&every_third).map(|columns| columns.iter().map(<[i64]>::to_vec).collect::<Vec<_>>());
    let all = chunk
        .columns(&vec![true; metrics])
        .map(|columns| columns.iter().map(<[i64]>::to_vec).collect::<Vec<_>>());
    if let (Ok(all), Ok(some)) = (&all, &some) {
        let expected: Vec<_> = all.iter().step_by(3).collect();
        assert_eq!(some.iter().collect::<Vec<_>>(), expected);
    }
    let mut assessment = Assessment::default();
    let _ = SampleReader::default().read(data, |sample| assessment.add(sample));
    assert!(assessment.judged().all(|judged| judged.count > 0));
}
