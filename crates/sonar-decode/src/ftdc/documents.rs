//! The documents of a file.

use super::elements::Elements;

/// The longest document of a file in bytes. Servers write far shorter ones.
pub const MAX_DOCUMENT: usize = 64 << 20;

/// What a document holds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum DocumentContent<'a> {
    /// What the server is: build, host, options, as a BSON document. One at the beginning of each file but the interim.
    Metadata(&'a [u8]),
    /// The data of a [`MetricChunk`](super::MetricChunk).
    Chunk(&'a [u8]),
    /// Parameters of the server, or what changed of them.
    Parameters,
    /// A document of a later server.
    Unknown,
}

/// A document of a file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FtdcDocument<'a> {
    /// When it was begun, in milliseconds since 1970: of a chunk, the time of its first sample.
    pub time_ms: i64,
    /// What it holds.
    pub content: DocumentContent<'a>,
}

/// Why a document cannot be read.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// Its length cannot be right, so the rest of the file is lost.
    #[error("no document begins here")]
    Length,
    /// It is no FTDC document; the next one begins after it.
    #[error("not a document of diagnostic.data")]
    Form,
}

/// Length in bytes of the document that begins with these four, which are part of it. `None` where the file ends: old
/// servers end an interim file with a length of 0.
///
/// # Errors
/// [`DocumentError::Length`] if no document can have this length.
pub fn document_length(first: [u8; 4]) -> Result<Option<usize>, DocumentError> {
    match u32::from_le_bytes(first) as usize {
        0 => Ok(None),
        length @ 5..=MAX_DOCUMENT => Ok(Some(length)),
        _ => Err(DocumentError::Length),
    }
}

/// Reads a whole document.
///
/// # Errors
/// [`DocumentError::Form`].
pub fn parse(document: &[u8]) -> Result<FtdcDocument<'_>, DocumentError> {
    let elements = Elements::new(document);
    let find = |key: &[u8]| elements.clone().find(key);
    let number = |key: &[u8]| find(key).and_then(|element| element.integer());
    let inner = || find(b"doc").map(|element| element.value);
    let (time_ms, kind) = number(b"_id").zip(number(b"type")).ok_or(DocumentError::Form)?;
    let content = match kind {
        0 => inner().map(DocumentContent::Metadata),
        1 => find(b"data").and_then(|element| element.binary()).map(DocumentContent::Chunk),
        2 => Some(DocumentContent::Parameters),
        _ => Some(DocumentContent::Unknown),
    };
    Ok(FtdcDocument { time_ms, content: content.ok_or(DocumentError::Form)? })
}
