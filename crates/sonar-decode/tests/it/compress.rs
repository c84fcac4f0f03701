//! Inflation, compared with the compressors of the libraries.

use std::io::Write;
use std::ops::ControlFlow;

use proptest::prelude::*;
use sonar_core::operation::Compressor;
use sonar_decode::compress::{
    CHUNK, InflateError, InflateStatus, Inflater, Inflaters, MAX_LIVE, WIDE_WINDOWS,
};

const ALL: [Compressor; 4] = [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];

fn deflate(compressor: Compressor, data: &[u8]) -> Vec<u8> {
    match compressor {
        Compressor::Noop => data.to_vec(),
        Compressor::Snappy => snap::raw::Encoder::new().compress_vec(data).unwrap(),
        Compressor::Zlib => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
        Compressor::Zstd => zstd::bulk::compress(data, 3).unwrap(),
    }
}

/// Feeds `data` in pieces whose lengths are `cuts`, again and again.
fn feed(
    inflater: &mut Inflater,
    data: &[u8],
    cuts: &[usize],
) -> (Result<InflateStatus, InflateError>, Vec<u8>) {
    let mut out = Vec::new();
    let mut status = Ok(InflateStatus::More);
    let (mut at, mut cuts) = (0, cuts.iter().cycle());
    while at < data.len() || data.is_empty() {
        let end = (at + cuts.next().unwrap()).min(data.len());
        status = inflater.inflate(&data[at..end], &mut |bytes| {
            assert!(!bytes.is_empty() && bytes.len() <= CHUNK);
            out.extend_from_slice(bytes);
            ControlFlow::Continue(())
        });
        at = end;
        if at < data.len() {
            assert_ne!(status, Ok(InflateStatus::Done));
        }
        if status.is_err() || data.is_empty() {
            break;
        }
    }
    (status, out)
}

fn inflate(
    compressor: Compressor,
    data: &[u8],
    said: usize,
) -> (Result<InflateStatus, InflateError>, Vec<u8>) {
    feed(&mut Inflater::new(compressor, said as u32, data.len() as u32).unwrap(), data, &[data.len().max(1)])
}

/// Bytes with near and far repetitions, and stretches without any.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (any::<u8>(), 1usize..3_000).prop_map(|(byte, len)| vec![byte; len]),
        proptest::collection::vec(any::<u8>(), 1..300),
        (proptest::collection::vec(any::<u8>(), 1..20), 1usize..200).prop_map(|(word, n)| word.repeat(n)),
        (any::<u64>(), 1usize..30_000).prop_map(|(seed, len)| noise(seed, len)),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| {
        let mut all = pieces.concat();
        // Something to refer back to, from farther away.
        all.extend_from_within(..all.len() / 2);
        all
    })
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let byte = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    });
    byte.take(len).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_was_compressed_comes_back(
        data in content(),
        cuts in proptest::collection::vec(prop_oneof![1usize..20, 1_000usize..3_000, 1usize..100_000], 1..10),
    ) {
        let pool = Inflaters::default();
        for compressor in ALL {
            let packed = deflate(compressor, &data);
            for _ in 0..2 {
                let mut inflater =
                    pool.take(compressor, data.len() as u32, packed.len() as u32).unwrap();
                let (status, out) = feed(&mut inflater, &packed, &cuts);
                prop_assert_eq!(status, Ok(InflateStatus::Done), "{:?}", compressor);
                prop_assert!(out == data, "{:?}", compressor);
            }
        }
        prop_assert_eq!(pool.live(), 0);
    }

    #[test]
    fn a_false_size_is_found_out(data in content(), by in 1usize..5_000, cut in 1usize..5_000) {
        for compressor in ALL {
            let packed = deflate(compressor, &data);
            for said in [data.len() + by, data.len().saturating_sub(by)] {
                if said == data.len() {
                    continue;
                }
                let mut inflater = Inflater::new(compressor, said as u32, packed.len() as u32).unwrap();
                let (status, out) = feed(&mut inflater, &packed, &[cut]);
                prop_assert!(matches!(status, Err(InflateError::SizeMismatch { stated, found })
                    if stated as usize == said && (found as usize > said || found as usize == data.len())),
                    "{compressor:?} {status:?}");
                prop_assert!(out.len() <= said && data.starts_with(&out));
                prop_assert_eq!(inflater.inflate(&packed, &mut |_| unreachable!()), status);
            }
        }
    }

    /// No panic, no more bytes than stated, and snappy agrees with the library on valid data.
    #[test]
    fn rubbish_does_no_harm(data in proptest::collection::vec(any::<u8>(), 0..400), said in 0usize..2_000) {
        for compressor in ALL {
            let (_, out) = inflate(compressor, &data, said);
            prop_assert!(out.len() <= said);
        }
        let mut block = vec![said as u8 | 0x80, (said >> 7) as u8];
        block.extend_from_slice(&data);
        let (status, out) = inflate(Compressor::Snappy, &block, said);
        match snap::raw::Decoder::new().decompress_vec(&block) {
            Ok(expected) => {
                prop_assert_eq!(status, Ok(InflateStatus::Done));
                prop_assert_eq!(out, expected);
            }
            Err(_) => prop_assert!(status.is_err()),
        }
    }
}

#[test]
fn every_flipped_byte_gives_an_answer() {
    let data: Vec<u8> = [b"{name: 1, city: 'Moscow'}".repeat(20), noise(7, 200), vec![0; 500]].concat();
    for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let packed = deflate(compressor, &data);
        for at in 0..packed.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = packed.clone();
                damaged[at] ^= flip;
                let (status, out) = inflate(compressor, &damaged, data.len());
                assert!(out.len() <= data.len());
                if compressor == Compressor::Zlib {
                    // It has a checksum over everything but the padding of its last bits.
                    assert!(status.is_err() || out == data, "byte {at} ^ {flip}");
                }
                if compressor == Compressor::Snappy {
                    let library = snap::raw::Decoder::new().decompress_vec(&damaged);
                    let library = library.ok().filter(|out| out.len() == data.len());
                    assert_eq!(status.ok().map(|_| out), library, "byte {at} ^ {flip}");
                }
            }
        }
    }
}

#[test]
fn every_cut_message_is_truncated() {
    let data = [b"abcabcabcabc".repeat(30), noise(3, 100)].concat();
    for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let packed = deflate(compressor, &data);
        for len in 0..packed.len() {
            let (status, out) = inflate(compressor, &packed[..len], data.len());
            assert!(
                matches!(status, Err(InflateError::Truncated | InflateError::SizeMismatch { .. })),
                "{compressor:?} {len} {status:?}"
            );
            assert!(data.starts_with(&out));
        }
    }
}

#[test]
fn a_bomb_stops_at_its_stated_size() {
    for compressor in [Compressor::Zlib, Compressor::Zstd] {
        let bomb = deflate(compressor, &vec![0; 50 << 20]);
        let (status, out) = inflate(compressor, &bomb, 1_000);
        assert!(matches!(status, Err(InflateError::SizeMismatch { stated: 1_000, .. })));
        assert!(out.len() <= 1_000);
    }
}

#[test]
fn only_wanted_bytes_are_inflated() {
    let data = vec![7; 1 << 20];
    for compressor in ALL {
        let packed = deflate(compressor, &data);
        let mut inflater = Inflater::new(compressor, data.len() as u32, packed.len() as u32).unwrap();
        let mut given = 0;
        let mut output = |bytes: &[u8]| {
            given += bytes.len();
            ControlFlow::Break(())
        };
        assert_eq!(inflater.inflate(&packed, &mut output), Ok(InflateStatus::Stopped));
        assert_eq!(inflater.inflate(&packed, &mut output), Ok(InflateStatus::Stopped));
        assert!(
            given <= if compressor == Compressor::Noop { CHUNK } else { 8 * 1024 },
            "{compressor:?} gave {given}"
        );
    }
}

#[test]
fn a_large_message_in_small_pieces() {
    let data = [noise(1, 3 << 20), b"0123456789".repeat(1 << 18), noise(1, 1 << 20)].concat();
    for compressor in ALL {
        let packed = deflate(compressor, &data);
        let mut inflater = Inflater::new(compressor, data.len() as u32, packed.len() as u32).unwrap();
        let (status, out) = feed(&mut inflater, &packed, &[1_448]);
        assert_eq!(status, Ok(InflateStatus::Done));
        assert!(out == data);
    }
}

#[test]
fn a_snappy_reference_beyond_the_window_is_refused_however_it_is_fed() {
    // 70,000 literal bytes, then four from 66,000 bytes back.
    let data = noise(9, 70_000);
    let mut block = vec![0xf4, 0xa2, 0x04, 61 << 2, 0xff, 0xff];
    block.extend_from_slice(&data[..65_536]);
    block.extend_from_slice(&[61 << 2, 0x6f, 0x11]);
    block.extend_from_slice(&data[65_536..]);
    block.extend_from_slice(&[3 << 2 | 3, 0xd0, 0x01, 0x01, 0]);
    assert_eq!(snap::raw::Decoder::new().decompress_vec(&block).unwrap().len(), 70_004);
    for cut in [1, 999, 1 << 20] {
        let mut inflater = Inflater::new(Compressor::Snappy, 70_004, block.len() as u32).unwrap();
        assert_eq!(feed(&mut inflater, &block, &[cut]).0, Err(InflateError::Window(66_000)));
    }
}

#[test]
fn bytes_of_the_next_message_are_left_alone() {
    for compressor in ALL {
        let mut packed = deflate(compressor, b"hello hello hello");
        let len = packed.len();
        packed.extend_from_slice(b"next");
        let mut inflater = Inflater::new(compressor, 17, len as u32).unwrap();
        assert_eq!(
            feed(&mut inflater, &packed, &[1_000]),
            (Ok(InflateStatus::Done), b"hello hello hello".to_vec())
        );
    }
}

#[test]
fn a_pool_limits_the_inflaters_in_use() {
    let pool = Inflaters::default();
    let packed = deflate(Compressor::Snappy, b"abc");
    let mut taken: Vec<Inflater> =
        (0..MAX_LIVE).map(|_| pool.take(Compressor::Snappy, 3, packed.len() as u32).unwrap()).collect();
    assert!(pool.take(Compressor::Noop, 3, 3).is_none());
    taken.pop();
    assert!(pool.take(Compressor::Noop, 3, 3).is_some());
    // An inflater that was dropped in the middle is as good as new.
    for inflater in &mut taken {
        inflater.inflate(&packed[..2], &mut |_| ControlFlow::Continue(())).unwrap();
    }
    drop(taken);
    assert_eq!(pool.live(), 0);
    let mut again = pool.take(Compressor::Snappy, 3, packed.len() as u32).unwrap();
    assert_eq!(feed(&mut again, &packed, &[2]), (Ok(InflateStatus::Done), b"abc".to_vec()));
}

#[test]
fn only_a_few_may_have_a_wide_window() {
    // Four MiB with a window of that size: without a stated size the whole window is needed.
    let data = noise(5, 4 << 20);
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(22).unwrap();
    encoder.write_all(&data).unwrap();
    let packed = encoder.finish().unwrap();
    let pool = Inflaters::default();
    let mut taken: Vec<Inflater> = (0..=WIDE_WINDOWS)
        .map(|_| pool.take(Compressor::Zstd, data.len() as u32, packed.len() as u32).unwrap())
        .collect();
    for (i, inflater) in taken.iter_mut().enumerate() {
        let expected = if i < WIDE_WINDOWS { Ok(InflateStatus::Done) } else { Err(InflateError::Damaged) };
        assert_eq!(feed(inflater, &packed, &[1 << 30]).0, expected, "inflater {i}");
    }
}
