//! What encloses a window: version, packing, checksum.

/// The version that is written. Version 1 had no splits of rows, version 2 not what ended their waits.
pub(super) const VERSION: u8 = 3;
/// The oldest version that is read.
const OLDEST: u8 = 1;
pub(super) const PLAIN: u8 = 0;
pub(super) const ZSTD: u8 = 1;
/// Bytes before the body.
pub(super) const HEADER: usize = 6;
/// The maximum size of an unpacked body, in bytes.
pub(super) const MAX_BODY: usize = 256 << 20;

/// Why a blob cannot be read.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlobError {
    /// It ends too early.
    #[error("a window is cut")]
    Cut,
    /// Its checksum is wrong.
    #[error("the checksum of a window is wrong")]
    Checksum,
    /// A version that is not known.
    #[error("a window has version {0}; this program reads versions up to {VERSION}")]
    Version(u8),
    /// A value that cannot be.
    #[error("{0} of a window is impossible")]
    Impossible(&'static str),
    /// It names something that the file does not have.
    #[error("{0} of a window is missing")]
    Missing(&'static str),
    /// It is larger than any window.
    #[error("a window is larger than {MAX_BODY} bytes")]
    TooLarge,
}

/// A blob with this packing and body.
pub(super) fn seal(packing: u8, body: &[u8]) -> Vec<u8> {
    let mut blob = Vec::with_capacity(HEADER + body.len());
    blob.extend_from_slice(&[VERSION, packing]);
    blob.extend_from_slice(&checksum([VERSION, packing], body).to_le_bytes());
    blob.extend_from_slice(body);
    blob
}

/// The body of a blob whose checksum is right.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct OpenedBlob<'a> {
    pub version: u8,
    pub packing: u8,
    pub body: &'a [u8],
}

/// Opens a blob of any version that is read.
pub(super) fn open(blob: &[u8]) -> Result<OpenedBlob<'_>, BlobError> {
    let (header, body) = blob.split_first_chunk::<HEADER>().ok_or(BlobError::Cut)?;
    let [version, packing, crc @ ..] = *header;
    if !(OLDEST..=VERSION).contains(&version) {
        return Err(BlobError::Version(version));
    }
    if checksum([version, packing], body) != u32::from_le_bytes(crc) {
        return Err(BlobError::Checksum);
    }
    Ok(OpenedBlob { version, packing, body })
}

/// A blob with these bytes in place of an encoded window, for tests of [`decode`](super::decode).
pub fn blob_of(body: &[u8]) -> Vec<u8> {
    seal(PLAIN, body)
}

fn checksum(head: [u8; 2], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&head), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_bit_is_noticed() {
        let blob = seal(ZSTD, b"body");
        let body = &b"body"[..];
        assert_eq!(open(&blob), Ok(OpenedBlob { version: VERSION, packing: ZSTD, body }));
        for bit in 0..blob.len() * 8 {
            let mut changed = blob.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&changed).is_err(), "bit {bit}");
        }
        assert_eq!(open(&blob[..5]), Err(BlobError::Cut));
        let mut older = vec![OLDEST, PLAIN];
        older.extend(checksum([OLDEST, PLAIN], b"body").to_le_bytes());
        older.extend(b"body");
        assert_eq!(open(&older), Ok(OpenedBlob { version: OLDEST, packing: PLAIN, body }));
        assert_eq!(open(&[9, 0, 0, 0, 0, 0, 0]), Err(BlobError::Version(9)));
    }
}
