//! Recordings: what is written is read, and a damaged file never counts as complete.

use proptest::prelude::*;
use sonar_core::Timestamp;
use sonar_core::files::{AccessKind, IoAccess, IoLosses};
use sonar_decode::io_file::{
    FileEntry, RecordingBlock, RecordingError, RecordingParser, RecordingStep, RecordingWriter, ThreadEntry,
};

#[derive(Default, Debug, PartialEq)]
struct Content {
    info: Vec<(String, String)>,
    files: Vec<(u32, u64, u64, String)>,
    threads: Vec<(u32, u32, String)>,
    accesses: Vec<IoAccess>,
    losses: IoLosses,
    said: Option<u64>,
    damaged: bool,
}

fn read(file: &[u8], piece: usize) -> (Content, Result<(), RecordingError>) {
    let mut parser = RecordingParser::new();
    let mut content = Content::default();
    let (mut start, mut end) = (0, 0);
    loop {
        match parser.next(&file[start..end]) {
            Ok(RecordingStep::Block { block, consumed }) => {
                start += consumed;
                match block {
                    RecordingBlock::Other => {}
                    RecordingBlock::Info(info) => {
                        content.info.extend(info.map(|(k, v)| (k.into(), v.into())))
                    }
                    RecordingBlock::Files(files) => {
                        content.files.extend(files.map(|f| (f.file, f.device, f.inode, f.path.into())));
                    }
                    RecordingBlock::Threads(threads) => {
                        content.threads.extend(threads.map(|t| (t.thread, t.process, t.name.into())));
                    }
                    RecordingBlock::Accesses(mut accesses) => {
                        content.accesses.extend(&mut accesses);
                        content.damaged |= accesses.is_damaged();
                    }
                    RecordingBlock::Lost(lost) => content.losses = lost.losses(),
                    RecordingBlock::End { accesses } => content.said = Some(accesses),
                }
            }
            Ok(RecordingStep::Need { at_least }) => {
                assert!(at_least > end - start);
                if end == file.len() {
                    return (content, parser.finish(end - start));
                }
                end = (end + piece).min(file.len());
            }
            Err(error) => return (content, Err(error)),
        }
    }
}

prop_compose! {
    fn access()(
        numbers in any::<[u64; 4]>(),
        (thread, file) in any::<(u32, u32)>(),
        kind in 0u8..6,
        (same, small) in any::<(bool, bool)>(),
        error in prop_oneof![Just(0u16), any::<u16>()],
        device_bytes in prop_oneof![Just(None), Just(Some(0)), any::<u64>().prop_map(Some)],
    ) -> IoAccess {
        let kind = AccessKind::from_code(kind).unwrap();
        let [start, latency_ns, offset, mut asked] = if small { numbers.map(|n| n % 100_000) } else { numbers };
        let mut given = if same { asked } else { asked / 3 };
        if kind.is_sync() {
            (asked, given) = (0, 0);
        }
        IoAccess {
            start: Timestamp::from_unix_ns(start),
            latency_ns,
            thread,
            file,
            kind,
            offset: if kind.is_sync() { 0 } else { offset },
            asked,
            given,
            error,
            device_bytes,
        }
    }
}

fn write(accesses: &[IoAccess], losses: &IoLosses) -> Vec<u8> {
    let mut out = Vec::new();
    let pages = accesses.iter().any(|access| access.kind == AccessKind::PageIn);
    let begin = if pages { RecordingWriter::begin_with_pages } else { RecordingWriter::begin };
    let mut writer = begin(&[("host", "db1"), ("empty", "")], &mut out);
    writer.file(&FileEntry { file: 7, device: 2_049, inode: u64::MAX, path: "/data/é.wt" }, &mut out);
    writer.thread(&ThreadEntry { thread: 12, process: 10, name: "conn4" }, &mut out);
    for (n, access) in accesses.iter().enumerate() {
        writer.access(access, &mut out);
        if n % 50 == 49 {
            writer.flush(&mut out);
        }
    }
    assert_eq!(writer.accesses(), accesses.len() as u64);
    writer.end(losses, &mut out);
    out
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        accesses in proptest::collection::vec(access(), 0..200),
        lost in any::<[u64; 7]>(),
        piece in 1usize..5_000,
    ) {
        let mut losses = IoLosses::default();
        for (number, count) in lost.into_iter().enumerate() {
            prop_assert!(losses.set(number as u8 + 1, count));
        }
        let file = write(&accesses, &losses);
        let (content, end) = read(&file, piece);
        prop_assert_eq!(end, Ok(()));
        prop_assert!(!content.damaged);
        prop_assert_eq!(content.said, Some(accesses.len() as u64));
        prop_assert_eq!(content.losses, losses);
        prop_assert_eq!(content.info, [("host".into(), "db1".into()), ("empty".into(), String::new())]);
        prop_assert_eq!(content.files, [(7, 2_049, u64::MAX, "/data/é.wt".into())]);
        prop_assert_eq!(content.threads, [(12, 10, "conn4".into())]);
        prop_assert_eq!(content.accesses, accesses);
    }

    /// Blocks with a right checksum and any content.
    #[test]
    fn any_payload_is_read_or_refused(kind in 0u8..8, payload in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut file = b"MSONARIO\x01\0\0\0".to_vec();
        let mut header = vec![kind, 0, 0, 0];
        header.extend((payload.len() as u32).to_le_bytes());
        let mut sum = crc32fast::Hasher::new();
        sum.update(&header);
        sum.update(&payload);
        file.extend(header);
        file.extend(sum.finalize().to_le_bytes());
        file.extend(&payload);
        let (content, _) = read(&file, 64);
        prop_assert!(content.accesses.len() <= payload.len());
    }
}

fn some() -> Vec<IoAccess> {
    let access = |n: u64| IoAccess {
        start: Timestamp::from_unix_ns(1_795_221_584_000_000_000 + n * 1_000),
        latency_ns: 80_000 + n,
        thread: 31_012,
        file: 3,
        kind: AccessKind::Read,
        offset: n * 4_096,
        asked: 4_096,
        given: 4_096,
        error: 0,
        device_bytes: Some(4_096),
    };
    (0..120).map(access).collect()
}

#[test]
fn every_cut_and_every_flipped_bit_is_reported() {
    let file = write(&some(), &IoLosses { ring_full: 5, ..IoLosses::default() });
    for length in 0..file.len() {
        let (content, end) = read(&file[..length], 1_000);
        assert!(end.is_err(), "{length}");
        assert!(some().starts_with(&content.accesses), "{length}");
    }
    for bit in 0..file.len() * 8 {
        let mut file = file.clone();
        file[bit / 8] ^= 1 << (bit % 8);
        let (content, end) = read(&file, 1_000);
        // Only the two spare bytes of the header have no checksum.
        assert!(end.is_err() || (10..12).contains(&(bit / 8)), "{bit}");
        assert!(some().starts_with(&content.accesses), "{bit}");
    }
}

#[test]
fn a_later_version_and_another_file_are_distinguished() {
    assert_eq!(read(b"MSONARIO\x03\0\0\0", 99).1, Err(RecordingError::Version(3)));
    // Older programs can read a recording without pages that were brought in; they refuse one with them by its
    // version.
    let page_in = IoAccess { kind: AccessKind::PageIn, ..some()[0] };
    assert_eq!(write(&some(), &IoLosses::default())[8], 1);
    assert_eq!(write(&[page_in], &IoLosses::default())[8], 2);
    assert_eq!(read(b"MSONARIX", 1).1, Err(RecordingError::Foreign));
    assert_eq!(read(b"", 1).1, Err(RecordingError::Cut { offset: 0, inside: false }));
    assert_eq!(read(b"MSON", 1).1, Err(RecordingError::Cut { offset: 4, inside: true }));
}

#[test]
fn a_common_access_takes_few_bytes() {
    let empty = write(&[], &IoLosses::default()).len();
    let bytes = (write(&some(), &IoLosses::default()).len() - empty) as f64 / 120.0;
    assert!(bytes < 16.0, "{bytes}");
}

#[test]
fn an_access_of_an_unknown_kind_is_damage() {
    let mut file = write(&some()[..1], &IoLosses::default());
    let at = file.windows(2).rposition(|two| two == [1, 0x20]).unwrap() + 1;
    file[at] = 0x27;
    let start = at - 1 - 12;
    let length = u32::from_le_bytes(file[start + 4..start + 8].try_into().unwrap()) as usize;
    let mut sum = crc32fast::Hasher::new();
    sum.update(&file[start..start + 8]);
    sum.update(&file[start + 12..start + 12 + length]);
    let sum = sum.finalize().to_le_bytes();
    file[start + 8..start + 12].copy_from_slice(&sum);
    let (content, end) = read(&file, 99);
    assert!(content.damaged && content.accesses.is_empty() && end.is_ok(), "{content:?}");
}
