//! Decodes a chunk: the first sample, and column by column the differences of those that follow.

use std::sync::Arc;

use flate2::{Decompress, FlushDecompress, Status};

use super::elements::NumberRule;
use super::error::ChunkError;
use super::schema::{ReferenceScan, Schema};

/// The most bytes of a chunk, unpacked. Chunks of large 8.0 servers have some 5 MB.
pub const MAX_UNPACKED: usize = 256 << 20;
/// The most values that are decoded from a chunk at once. A value takes 8 bytes.
pub const MAX_VALUES: usize = 1 << 24;
/// Schemas that are kept to recognize them.
const MAX_RECENT: usize = 16;
/// The most samples of a chunk. Servers write up to 300, unless they were told otherwise.
const MAX_SAMPLES: usize = 1 << 14;

/// How much memory chunks may take. One that needs more is refused as too large.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// The most bytes of a chunk, unpacked.
    pub unpacked: usize,
    /// The most values that are decoded at once. A value takes 8 bytes.
    pub values: usize,
    /// The most bytes of all schemas that are kept, the current one included.
    pub schemas: usize,
}

impl ChunkLimits {
    /// For a command that reads files and ends: whatever a server may have written.
    pub const COMMAND: Self = Self { unpacked: MAX_UNPACKED, values: MAX_VALUES, schemas: 128 << 20 };

    /// The most bytes that a [`SampleReader`](super::SampleReader) takes while it reads: the unpacked chunk, its values, the
    /// schemas, and what recognizes the schema of the chunk, which may take twice its length while it grows. What the
    /// layouts of the schemas take comes on top, at most 320 KiB each.
    pub const fn bytes(&self) -> usize {
        self.unpacked + self.values * size_of::<i64>() + self.schemas + 2 * self.schemas
    }
}

impl Default for ChunkLimits {
    fn default() -> Self {
        Self::COMMAND
    }
}

/// A chunk. It keeps its buffers, so read one after another with the same.
#[derive(Debug)]
pub struct MetricChunk {
    limits: ChunkLimits,
    inflater: Decompress,
    unpacked: Vec<u8>,
    scan: ReferenceScan,
    schema: Arc<Schema>,
    /// The schemas of the last chunks, the newest at the end: servers go to and fro between a few.
    recent: Vec<Arc<Schema>>,
    samples: usize,
    /// Where the differences begin in `unpacked`.
    differences: usize,
    columns: MetricColumns,
}

/// Values of the metrics that were asked for.
#[derive(Clone, Debug, Default)]
pub struct MetricColumns {
    samples: usize,
    values: Vec<i64>,
}

impl MetricColumns {
    /// The samples of each metric that was asked for, in the order of the schema.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[i64]> {
        self.values.chunks_exact(self.samples.max(1))
    }
}

impl Default for MetricChunk {
    fn default() -> Self {
        Self::new(ChunkLimits::default())
    }
}

impl MetricChunk {
    /// With these limits.
    pub fn new(limits: ChunkLimits) -> Self {
        Self {
            limits,
            inflater: Decompress::new(true),
            unpacked: Vec::new(),
            scan: ReferenceScan::default(),
            schema: Arc::default(),
            recent: Vec::new(),
            samples: 0,
            differences: 0,
            columns: MetricColumns::default(),
        }
    }

    /// Gives back the buffers. The schemas stay.
    pub fn release(&mut self) {
        (self.unpacked, self.columns) = (Vec::new(), MetricColumns::default());
        let rule = self.scan.rule;
        self.scan = ReferenceScan::default();
        self.scan.rule = rule;
        (self.samples, self.differences) = (0, 0);
    }

    /// Forgets all schemas; the next chunks bring theirs again.
    pub fn forget_schemas(&mut self) {
        (self.schema, self.recent) = (Arc::default(), Vec::new());
    }

    /// The bytes of the schemas that are kept.
    pub fn schema_bytes(&self) -> usize {
        self.recent.iter().map(|schema| schema.bytes()).sum()
    }

    /// Whether a schema is among those that are kept.
    pub(super) fn keeps(&self, schema: &Arc<Schema>) -> bool {
        self.recent.iter().any(|kept| Arc::ptr_eq(kept, schema))
    }

    /// How the server that wrote the next chunks made integers of floating-point numbers.
    pub fn set_rule(&mut self, rule: NumberRule) {
        self.scan.rule = rule;
    }

    /// Unpacks the data of a chunk and reads its first sample.
    ///
    /// # Errors
    /// If it is damaged or passes the [limits](ChunkLimits). The chunk is empty then.
    pub fn read(&mut self, data: &[u8]) -> Result<(), ChunkError> {
        self.samples = 0;
        self.inflate(data)?;
        let length = self.unpacked.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
        let (reference, rest) = self.unpacked.split_at_checked(length).ok_or(ChunkError::Reference)?;
        self.scan.read(reference, self.limits.schemas)?;
        let (counts, _) = rest.split_first_chunk::<8>().ok_or(ChunkError::Differences)?;
        let [metrics, deltas] =
            [[counts[0], counts[1], counts[2], counts[3]], [counts[4], counts[5], counts[6], counts[7]]]
                .map(u32::from_le_bytes);
        if metrics as usize != self.scan.first.len() {
            return Err(ChunkError::MetricCount { said: metrics, found: self.scan.first.len() });
        }
        if deltas as usize >= MAX_SAMPLES {
            return Err(ChunkError::TooLarge);
        }
        self.differences = length + 8;
        self.find_schema()?;
        self.samples = deltas as usize + 1;
        Ok(())
    }

    /// Takes a sample that was saved by itself as a chunk of one sample: a BSON document.
    ///
    /// # Errors
    /// It is no BSON, is nested too deeply, or has too many numbers. The chunk is empty then.
    pub fn read_sample(&mut self, document: &[u8]) -> Result<(), ChunkError> {
        self.samples = 0;
        self.unpacked.clear();
        self.unpacked.extend_from_slice(document);
        // Where a chunk has the counts of metrics and differences.
        self.unpacked.extend_from_slice(&[0; 8]);
        self.scan.read(document, self.limits.schemas)?;
        self.differences = self.unpacked.len();
        self.find_schema()?;
        self.samples = 1;
        Ok(())
    }

    /// Finds or makes the schema of the first sample, which has been scanned.
    fn find_schema(&mut self) -> Result<(), ChunkError> {
        if self.schema.has(&self.scan.signature) {
            return Ok(());
        }
        let known = self.recent.iter().position(|schema| schema.has(&self.scan.signature));
        self.schema = match known {
            Some(at) => self.recent.remove(at),
            None => Arc::new(Schema::new(self.reference(), &self.scan, self.limits.schemas)?),
        };
        self.recent.push(self.schema.clone());
        while self.recent.len() > MAX_RECENT || self.schema_bytes() > self.limits.schemas {
            self.recent.remove(0);
        }
        Ok(())
    }

    /// What the chunk lists. Chunks that list the same share it.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Number of samples: at least 1, or 0 if nothing was read.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// The reference document, which also has the strings of the first sample.
    pub fn reference(&self) -> &[u8] {
        self.unpacked.get(..self.differences.saturating_sub(8)).unwrap_or_default()
    }

    /// Decodes the metrics for which `wanted` is true, by their place in the schema. Metrics beyond its end are not.
    ///
    /// # Errors
    /// If the differences are damaged, and if more are wanted than the [limits](ChunkLimits::values) allow.
    pub fn columns(&mut self, wanted: &[bool]) -> Result<&MetricColumns, ChunkError> {
        let count = wanted.iter().filter(|wanted| **wanted).count();
        if count.checked_mul(self.samples).is_none_or(|values| values > self.limits.values) {
            return Err(ChunkError::TooLarge);
        }
        self.columns.values.clear();
        self.columns.samples = self.samples;
        self.columns.values.reserve_exact(count * self.samples);
        let Some(deltas) = self.samples.checked_sub(1) else { return Ok(&self.columns) };
        let mut numbers =
            DeltaReader { rest: self.unpacked.get(self.differences..).unwrap_or_default(), zeros: 0 };
        for (metric, first) in self.scan.first.iter().enumerate() {
            if wanted.get(metric).copied().unwrap_or(false) {
                numbers.decode(*first, deltas, &mut self.columns.values)?;
            } else {
                numbers.skip(deltas)?;
            }
        }
        if numbers.zeros == 0 && numbers.rest.is_empty() {
            Ok(&self.columns)
        } else {
            Err(ChunkError::Differences)
        }
    }

    fn inflate(&mut self, data: &[u8]) -> Result<(), ChunkError> {
        let (length, data) = data.split_first_chunk::<4>().ok_or(ChunkError::Compression)?;
        let length = u32::from_le_bytes(*length) as usize;
        if length > self.limits.unpacked {
            return Err(ChunkError::TooLarge);
        }
        // zlib packs at most 1,032 to 1: a short chunk cannot make us reserve much.
        if length / 1_032 > data.len() {
            return Err(ChunkError::Compression);
        }
        self.unpacked.clear();
        self.unpacked.reserve_exact(length);
        self.inflater.reset(true);
        let status = self.inflater.decompress_vec(data, &mut self.unpacked, FlushDecompress::Finish);
        match status {
            Ok(Status::StreamEnd) if self.unpacked.len() == length => Ok(()),
            _ => Err(ChunkError::Compression),
        }
    }
}

/// The differences of all metrics, one metric after another. Runs of zeros go across metrics.
struct DeltaReader<'a> {
    rest: &'a [u8],
    /// Zeros that are left of a run.
    zeros: u64,
}

impl DeltaReader<'_> {
    /// Decodes one metric into `values`: `first` and as many more as there are differences.
    fn decode(&mut self, first: i64, deltas: usize, values: &mut Vec<i64>) -> Result<(), ChunkError> {
        let (mut value, mut left) = (first, deltas);
        values.push(value);
        while left > 0 {
            let run = self.run(left);
            values.extend(std::iter::repeat_n(value, run));
            left -= run;
            if left > 0
                && let Some(delta) = self.nonzero()?
            {
                value = value.wrapping_add(delta as i64);
                values.push(value);
                left -= 1;
            }
        }
        Ok(())
    }

    fn skip(&mut self, deltas: usize) -> Result<(), ChunkError> {
        let mut left = deltas;
        while left > 0 {
            left -= self.run(left);
            if left > 0 && self.nonzero()?.is_some() {
                left -= 1;
            }
        }
        Ok(())
    }

    /// Takes up to `most` zeros of the open run.
    fn run(&mut self, most: usize) -> usize {
        let run = usize::try_from(self.zeros).unwrap_or(usize::MAX).min(most);
        self.zeros -= run as u64;
        run
    }

    /// The next difference; `None` if that opens a run of zeros.
    #[inline]
    fn nonzero(&mut self) -> Result<Option<u64>, ChunkError> {
        let delta = self.varint()?;
        if delta != 0 {
            return Ok(Some(delta));
        }
        self.zeros = self.varint()?.checked_add(1).ok_or(ChunkError::Differences)?;
        Ok(None)
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, ChunkError> {
        let (mut value, mut shift) = (0u64, 0);
        for (at, byte) in self.rest.iter().take(10).enumerate() {
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
            shift += 7;
        }
        Err(ChunkError::Differences)
    }
}
