//! Which numbers a sample holds, and their names.

use super::elements::{Element, Elements, NumberRule};
use super::error::ChunkError;
use crate::bson::ElementKind;

/// Deepest nesting of a sample. The server allows itself 10.
const MAX_DEPTH: usize = 32;
/// The most metrics of a sample. Servers of large clusters have some 20,000.
pub const MAX_METRICS: usize = 1 << 18;
/// The most bytes of all names of a sample.
const MAX_NAMES: usize = 64 << 20;
/// What a metric takes in a schema, without its name: with what the allocator needs for the name.
const METRIC_BYTES: usize = size_of::<SchemaMetric>() + 16;

/// What the integer of a metric stands for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum MetricKind {
    /// An integer.
    Integer,
    /// A floating-point number; the server kept only its integer part.
    Double,
    /// 0 or 1.
    Boolean,
    /// Milliseconds since 1970.
    Date,
    /// Seconds since 1970 of a timestamp.
    TimestampSeconds,
    /// The ordinal of a timestamp within its second.
    TimestampIncrement,
}

impl MetricKind {
    /// False for what a floating-point number beyond 64 bits was cut to: the server did not know the value.
    pub const fn is_known(self, value: i64) -> bool {
        !matches!((self, value), (Self::Double, i64::MIN | i64::MAX))
    }
}

/// One number of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaMetric {
    /// Names from the outside in, joined by dots. Names hold dots themselves, and two metrics can have the same path.
    /// Bytes that are not UTF-8 are replaced.
    pub path: String,
    /// What the number stands for.
    pub kind: MetricKind,
}

/// The metrics of a sample in their order. Chunks of one schema list the same names in the same places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// In the order of the reference document, depth first.
    pub metrics: Vec<SchemaMetric>,
    /// Kinds and names of all elements, to recognize the schema in another reference document.
    signature: Vec<u8>,
}

impl Schema {
    /// Reads the metrics of a reference document that `scan` has accepted. Takes at most `limit` bytes.
    pub(super) fn new(document: &[u8], scan: &ReferenceScan, limit: usize) -> Result<Self, ChunkError> {
        let fixed = scan.signature.len() + scan.first.len() * METRIC_BYTES;
        let limit = limit.checked_sub(fixed).ok_or(ChunkError::TooManyMetrics)?.min(MAX_NAMES);
        let metrics = Vec::with_capacity(scan.first.len());
        let mut schema = Self { metrics, signature: scan.signature.clone() };
        let mut names = PathWalk { path: String::new(), bytes: 0, limit };
        schema.name(Elements::new(document), &mut names)?;
        Ok(schema)
    }

    /// The place of the metric that says when a sample was taken: `start`, or where a file has none, the time at which
    /// the first of its collectors began, or the server's own clock. `None` if its samples have no time.
    pub fn time_place(&self) -> Option<usize> {
        let last = |path: &str, name: &str| path.rsplit('.').next() == Some(name);
        let dated = |name: &str| {
            let is_it = |metric: &SchemaMetric| metric.kind == MetricKind::Date && last(&metric.path, name);
            self.metrics.iter().position(is_it)
        };
        let own = self.metrics.iter().position(|metric| metric.path == "start");
        own.or_else(|| dated("start")).or_else(|| dated("localTime"))
    }

    /// The bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        let names: usize = self.metrics.iter().map(|metric| metric.path.len()).sum();
        self.signature.len() + self.metrics.len() * METRIC_BYTES + names
    }

    /// Whether a reference document of that signature has this schema.
    pub(super) fn has(&self, signature: &[u8]) -> bool {
        self.signature == signature
    }

    fn name(&mut self, elements: Elements<'_>, names: &mut PathWalk) -> Result<(), ChunkError> {
        for element in elements {
            let outer = names.path.len();
            if outer > 0 {
                names.path.push('.');
            }
            names.path.push_str(&String::from_utf8_lossy(element.key));
            for kind in kinds(element.kind) {
                names.bytes += names.path.len();
                if names.bytes > names.limit {
                    return Err(ChunkError::TooManyMetrics);
                }
                self.metrics.push(SchemaMetric { path: names.path.clone(), kind: *kind });
            }
            self.name(element.elements(), names)?;
            names.path.truncate(outer);
        }
        Ok(())
    }
}

/// The path to where a walk is.
struct PathWalk {
    path: String,
    /// Length of all paths so far.
    bytes: usize,
    /// The most of it.
    limit: usize,
}

/// Numbers and signature of a reference document.
#[derive(Debug, Default)]
pub(super) struct ReferenceScan {
    /// The numbers of the first sample.
    pub first: Vec<i64>,
    /// Kinds and names, without names that have no numbers.
    pub signature: Vec<u8>,
    /// How the server made integers of floating-point numbers.
    pub rule: NumberRule,
    /// The most bytes of the signature.
    limit: usize,
}

impl ReferenceScan {
    /// Reads a whole document. Its signature may have `limit` bytes.
    pub fn read(&mut self, document: &[u8], limit: usize) -> Result<(), ChunkError> {
        self.first.clear();
        self.signature.clear();
        self.limit = limit;
        self.elements(Elements::new(document), 0)
    }

    fn elements(&mut self, mut elements: Elements<'_>, depth: usize) -> Result<(), ChunkError> {
        for element in &mut elements {
            let nested = matches!(element.kind, ElementKind::Document | ElementKind::Array);
            if !nested && kinds(element.kind).is_empty() {
                continue;
            }
            // With the two bytes around the name, and the one that ends what is nested.
            if self.signature.len() + element.key.len() + 3 > self.limit {
                return Err(ChunkError::TooManyMetrics);
            }
            self.signature.push(element.kind.number());
            self.signature.extend_from_slice(element.key);
            self.signature.push(0);
            if nested {
                if depth == MAX_DEPTH {
                    return Err(ChunkError::Reference);
                }
                self.elements(element.elements(), depth + 1)?;
                // No kind has this number.
                self.signature.push(0);
            } else {
                if self.first.len() >= MAX_METRICS {
                    return Err(ChunkError::TooManyMetrics);
                }
                self.numbers(element);
            }
        }
        if elements.is_broken() { Err(ChunkError::Reference) } else { Ok(()) }
    }

    fn numbers(&mut self, element: Element<'_>) {
        match (element.kind, element.value) {
            (ElementKind::Timestamp, value) => {
                let half = |at: usize| {
                    value.get(at..at + 4).and_then(|half| half.try_into().ok()).map_or(0, u32::from_le_bytes)
                };
                self.first.extend([i64::from(half(4)), i64::from(half(0))]);
            }
            _ => self.first.push(element.integer_by(self.rule).unwrap_or(0)),
        }
    }
}

/// The numbers of a value of that kind, in the order in which a chunk lists them.
fn kinds(kind: ElementKind) -> &'static [MetricKind] {
    match kind {
        ElementKind::Int32 | ElementKind::Int64 => &[MetricKind::Integer],
        ElementKind::Double | ElementKind::Decimal128 => &[MetricKind::Double],
        ElementKind::Boolean => &[MetricKind::Boolean],
        ElementKind::DateTime => &[MetricKind::Date],
        ElementKind::Timestamp => &[MetricKind::TimestampSeconds, MetricKind::TimestampIncrement],
        _ => &[],
    }
}
