//! Figures of `diagnostic.data`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use sonar_core::history::CollectorKind;
use sonar_core::internals::{SampleSequence, ServerSample};
use sonar_core::observation::WindowCutter;
use sonar_decode::ftdc::{ChunkError, SampleReader};

use super::source_end::SourceEnd;
use crate::agent::figures::SampleCutter;
use crate::agent::servers::local;
use crate::ftdc::input::{self, ChunkSink, Repetitions};

/// Reads the samples of a server.
struct InternalsReading<'a> {
    samples: SampleReader,
    repetitions: Repetitions,
    sequence: SampleSequence,
    cutter: SampleCutter<'a>,
}

impl ChunkSink for InternalsReading<'_> {
    fn metadata(&mut self, _: &Path, metadata: &[u8]) -> Result<()> {
        self.samples.metadata(metadata);
        Ok(())
    }

    fn chunk(&mut self, data: &[u8]) -> Result<Result<(), ChunkError>> {
        let Self { samples, repetitions, sequence, cutter } = self;
        let read = samples.read(data, |sample: &ServerSample| {
            if repetitions.is_new(sample.key()) {
                cutter.add(sequence, sample);
            }
        });
        if read.is_err() {
            sequence.lose();
        }
        Ok(read)
    }
}

/// Reads the files of a server.
///
/// # Errors
/// The only file cannot be read.
pub fn read(
    files: &[PathBuf],
    port: u16,
    windows: &mut WindowCutter,
    stop: &Arc<AtomicBool>,
) -> Result<SourceEnd> {
    let mut reading = InternalsReading {
        samples: SampleReader::default(),
        repetitions: Repetitions::default(),
        sequence: SampleSequence::default(),
        cutter: SampleCutter::new(windows, local(port), Some(CollectorKind::Internals)),
    };
    let read = input::read(files, stop, &mut reading)?;
    windows.finish();
    Ok(SourceEnd { damaged: read.damage, ..SourceEnd::default() })
}
