//! Reads a sample from a document that a client got from a server, by the rules of `diagnostic.data`.

use sonar_core::internals::ServerSample;

use super::chunk::ChunkLimits;
use super::error::ChunkError;
use super::layout::SampleLayout;
use super::schema::{ReferenceScan, Schema};

/// Reads documents like `{start: DATE, serverStatus: {…}, replSetGetStatus: {…}}`. They have the layout of a sample of
/// `diagnostic.data`, so the same values give the same figures.
#[derive(Debug, Default)]
pub struct StatusReader {
    scan: ReferenceScan,
    /// That of the last document.
    layout: Option<(Schema, SampleLayout)>,
    sample: ServerSample,
}

impl StatusReader {
    /// Reads a whole BSON document.
    ///
    /// # Errors
    /// It is no BSON, is nested too deeply, or has too many numbers.
    pub fn read(&mut self, document: &[u8]) -> Result<&ServerSample, ChunkError> {
        let Self { scan, layout, sample } = self;
        scan.read(document, ChunkLimits::COMMAND.schemas)?;
        let (_, layout) = match layout.take().filter(|(schema, _)| schema.has(&scan.signature)) {
            Some(known) => layout.insert(known),
            None => {
                let schema = Schema::new(document, scan, ChunkLimits::COMMAND.schemas)?;
                let places = SampleLayout::new(&schema);
                *sample = ServerSample::default();
                layout.insert((schema, places))
            }
        };
        let wanted = scan.first.iter().zip(&layout.wanted).filter(|(_, is_wanted)| **is_wanted);
        let columns: Vec<&[i64]> = wanted.map(|(value, _)| std::slice::from_ref(value)).collect();
        layout.fill(&columns, 0, sample);
        Ok(sample)
    }
}
