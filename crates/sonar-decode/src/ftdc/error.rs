//! What can be wrong with a chunk.

/// Why a chunk cannot be decoded. It is lost; those around it are not.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// zlib data or their checksum are wrong, or their length is not the one in front.
    #[error("compressed data are damaged")]
    Compression,
    /// Unpacked, it would pass the [limits](super::ChunkLimits), or it has more samples or values than may be decoded.
    #[error("too large")]
    TooLarge,
    /// The first sample is no BSON document.
    #[error("the reference document is damaged")]
    Reference,
    /// More metrics, or longer names, than any server has.
    #[error("too many metrics")]
    TooManyMetrics,
    /// The reference document has another number of metrics than the chunk.
    #[error("it counts {said} metrics, and its reference document has {found}")]
    MetricCount {
        /// In front of the numbers.
        said: u32,
        /// In the reference document.
        found: usize,
    },
    /// Too few numbers, too many, or one that is longer than 64 bits.
    #[error("the differences are damaged")]
    Differences,
}
