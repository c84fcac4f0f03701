//! Inflation of one long message in pieces of 64 KiB, beside the libraries, which get all of it at once; and of a
//! small message, with a new decoder and with a reused one.

use std::hint::black_box;
use std::io::Write;
use std::ops::ControlFlow;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use sonar_core::operation::Compressor;
use sonar_decode::compress::{InflateStatus, Inflater, Inflaters};

const LONG: usize = 8 << 20;
const SMALL: usize = 600;

/// Similar to documents: repeated keys, different values.
fn documents(len: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252u64;
    let mut data = Vec::with_capacity(len + 200);
    while data.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data.extend_from_slice(b"\x5a\0\0\0\x07_id\0");
        data.extend_from_slice(&state.to_le_bytes());
        data.extend_from_slice(b"\x02name\0\x12\0\0\0");
        data.extend_from_slice(format!("customer {:08}\0", state % 100_000_000).as_bytes());
        data.extend_from_slice(b"\x10quantity\0");
        data.extend_from_slice(&(state as u32 % 100).to_le_bytes());
        data.extend_from_slice(b"\x02country\0\x03\0\0\0RU\0\0");
    }
    data.truncate(len);
    data
}

fn deflate(compressor: Compressor, data: &[u8]) -> Vec<u8> {
    match compressor {
        Compressor::Noop => data.to_vec(),
        Compressor::Snappy => snap::raw::Encoder::new().compress_vec(data).expect("compresses"),
        Compressor::Zlib => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(data).expect("compresses");
            encoder.finish().expect("compresses")
        }
        Compressor::Zstd => zstd::bulk::compress(data, 3).expect("compresses"),
    }
}

fn run(inflater: &mut Inflater, packed: &[u8]) {
    let mut sum = 0;
    let mut status = InflateStatus::More;
    for piece in packed.chunks(64 * 1024) {
        status = inflater
            .inflate(piece, &mut |bytes| {
                sum += black_box(bytes).len();
                ControlFlow::Continue(())
            })
            .expect("inflates");
    }
    assert_eq!(status, InflateStatus::Done);
    black_box(sum);
}

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .without_plots()
        .configure_from_args();
    let pool = Inflaters::default();
    for len in [LONG, SMALL] {
        let data = documents(len);
        let mut group = criterion.benchmark_group(format!("inflate {len} bytes"));
        group.throughput(Throughput::Bytes(len as u64));
        for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
            let packed = deflate(compressor, &data);
            let name = compressor.name();
            group.bench_function(format!("{name}, used again"), |bencher| {
                bencher.iter(|| {
                    let mut inflater =
                        pool.take(compressor, len as u32, packed.len() as u32).expect("there is room");
                    run(&mut inflater, &packed);
                });
            });
            group.bench_function(format!("{name}, made anew"), |bencher| {
                bencher.iter(|| {
                    let mut inflater =
                        Inflater::new(compressor, len as u32, packed.len() as u32).expect("sets up");
                    run(&mut inflater, &packed);
                });
            });
        }
        let packed = deflate(Compressor::Snappy, &data);
        let mut out = vec![0; len];
        group.bench_function("snappy, crate snap, all at once", |bencher| {
            bencher.iter(|| {
                let made = snap::raw::Decoder::new().decompress(black_box(&packed), &mut out);
                black_box(made.expect("inflates"));
            });
        });
        group.finish();
    }
}
