//! Any bytes as a recording of accesses: no panic, bounded needs, the same accesses and the same end
//! however the file comes in, and an analysis of whatever it holds.

use sonar_core::files::{Analysis, FileRole, IoAccess, ThreadRole, judge};
use sonar_decode::io_file::{MAX_PAYLOAD, RecordingBlock, RecordingError, RecordingParser, RecordingStep};

/// Takes an input.
pub fn run(input: &[u8]) {
    let [size, file @ ..] = input else { return };
    let whole = read(file, file.len());
    assert_eq!(whole, read(file, usize::from(*size) + 1));
    let mut analysis = Analysis::new();
    whole.0.iter().for_each(|access| analysis.record(access));
    analysis.finish();
    let name = String::from_utf8_lossy(&file[..file.len().min(20)]);
    let _ = judge(&analysis, |_| FileRole::Collection, |_| ThreadRole::of(&name));
}

fn read(file: &[u8], size: usize) -> (Vec<IoAccess>, Result<(), RecordingError>) {
    let mut parser = RecordingParser::new();
    let mut accesses = Vec::new();
    let (mut start, mut end) = (0, 0);
    loop {
        match parser.next(&file[start..end]) {
            Ok(RecordingStep::Block { block, consumed }) => {
                match block {
                    RecordingBlock::Accesses(mut block) => {
                        accesses.extend(&mut block);
                        let _ = block.is_damaged();
                    }
                    RecordingBlock::Files(block) => assert!(block.count() <= MAX_PAYLOAD),
                    RecordingBlock::Threads(block) => assert!(block.count() <= MAX_PAYLOAD),
                    RecordingBlock::Info(block) => assert!(block.count() <= MAX_PAYLOAD),
                    RecordingBlock::Lost(block) => {
                        assert!(block.losses().total() < u64::MAX || file.len() > 10)
                    }
                    RecordingBlock::End { .. } | RecordingBlock::Other => {}
                }
                assert!(consumed > 0);
                start += consumed;
            }
            Ok(RecordingStep::Need { at_least }) => {
                assert!(at_least > end - start && at_least <= MAX_PAYLOAD + 12);
                if end == file.len() {
                    return (accesses, parser.finish(end - start));
                }
                end = (end + size.max(1)).min(file.len());
            }
            Err(error) => return (accesses, Err(error)),
        }
    }
}
