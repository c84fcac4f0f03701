//! Where does a record begin and end (RFC 8446, section 5.1)?

/// Type, version and length.
pub const RECORD_HEADER: usize = 5;
/// The longest body: 16 KiB of plaintext, and the most that any version allows encryption to add.
const MAX_BODY: usize = (1 << 14) + 2_048;

/// What records are for.
pub mod kind {
    pub const CHANGE_CIPHER_SPEC: u8 = 20;
    pub const ALERT: u8 = 21;
    pub const HANDSHAKE: u8 = 22;
    pub const APPLICATION_DATA: u8 = 23;
    pub const HEARTBEAT: u8 = 24;
}

/// The header of a record.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TlsRecordHeader {
    /// See [`kind`].
    pub kind: u8,
    pub version: u16,
    /// Of the body, in bytes.
    pub length: u16,
}

/// The bytes are no record.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NoRecord;

impl TlsRecordHeader {
    pub fn read(bytes: [u8; RECORD_HEADER]) -> Result<Self, NoRecord> {
        let [kind, major, minor, high, low] = bytes;
        let header = Self {
            kind,
            version: u16::from_be_bytes([major, minor]),
            length: u16::from_be_bytes([high, low]),
        };
        let is_known = matches!(kind, kind::CHANGE_CIPHER_SPEC..=kind::HEARTBEAT) && major == 3;
        if is_known && usize::from(header.length) <= MAX_BODY { Ok(header) } else { Err(NoRecord) }
    }

    /// The header as it was sent.
    pub fn bytes(self) -> [u8; RECORD_HEADER] {
        let ([major, minor], [high, low]) = (self.version.to_be_bytes(), self.length.to_be_bytes());
        [self.kind, major, minor, high, low]
    }

    /// What TLS 1.2 authenticates beside the content: the number of the record, and its header.
    pub fn numbered(self, number: u64) -> [u8; 8 + RECORD_HEADER] {
        let mut about = [0; 8 + RECORD_HEADER];
        about[..8].copy_from_slice(&number.to_be_bytes());
        about[8..].copy_from_slice(&self.bytes());
        about
    }
}

/// What a gap cost.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PassedRecord {
    /// Of a record that had begun.
    pub header: Option<TlsRecordHeader>,
    /// Bytes behind it that are lost: if there are any, it is unknown where the next record begins.
    pub beyond: u64,
}

/// Puts the records of one direction together.
#[derive(Default)]
pub struct RecordAssembler {
    /// Of the record that has begun: its header, then its body.
    have: Vec<u8>,
    /// Bytes to pass over: the rest of a record that has a gap.
    skip: usize,
}

impl RecordAssembler {
    /// Takes the next record out of `bytes` and puts its body into `body`; `None` once all bytes have been used.
    pub fn next(
        &mut self,
        bytes: &mut &[u8],
        body: &mut Vec<u8>,
    ) -> Result<Option<TlsRecordHeader>, NoRecord> {
        let skipped = self.skip.min(bytes.len());
        *bytes = &bytes[skipped..];
        self.skip -= skipped;
        body.clear();
        if self.have.is_empty()
            && let Some((header, rest)) = bytes.split_first_chunk()
        {
            let header = TlsRecordHeader::read(*header)?;
            if let Some((whole, rest)) = rest.split_at_checked(usize::from(header.length)) {
                body.extend_from_slice(whole);
                *bytes = rest;
                return Ok(Some(header));
            }
        }
        self.fill(RECORD_HEADER, bytes);
        let Some(header) = self.header()? else { return Ok(None) };
        let length = RECORD_HEADER + usize::from(header.length);
        self.fill(length, bytes);
        if self.have.len() < length {
            return Ok(None);
        }
        body.extend_from_slice(&self.have[RECORD_HEADER..]);
        // Most connections are idle: the room is not kept.
        self.have = Vec::new();
        Ok(Some(header))
    }

    /// Puts a record back, which is the next one again.
    pub fn put_back(&mut self, header: TlsRecordHeader, body: &[u8]) {
        self.have = [&header.bytes(), body].concat();
    }

    /// Passes over `missing` bytes. What has come of a record is lost, and its rest is passed over.
    pub fn pass(&mut self, missing: u64) -> PassedRecord {
        let before = std::mem::take(&mut self.have);
        if self.skip as u64 >= missing {
            self.skip -= missing as usize;
            return PassedRecord { header: None, beyond: 0 };
        }
        let missing = missing - std::mem::take(&mut self.skip) as u64;
        let header = before.first_chunk().and_then(|header| TlsRecordHeader::read(*header).ok());
        let Some(header) = header else {
            // Of its header, too, something may have come.
            return PassedRecord { header: None, beyond: missing + before.len() as u64 };
        };
        let left = (RECORD_HEADER + usize::from(header.length) - before.len()) as u64;
        self.skip = left.saturating_sub(missing) as usize;
        PassedRecord { header: Some(header), beyond: missing.saturating_sub(left) }
    }

    /// The memory that it takes, in bytes.
    pub fn memory(&self) -> usize {
        self.have.capacity()
    }

    fn header(&self) -> Result<Option<TlsRecordHeader>, NoRecord> {
        self.have.first_chunk().map(|header| TlsRecordHeader::read(*header)).transpose()
    }

    /// Takes bytes until there are `length`.
    fn fill(&mut self, length: usize, bytes: &mut &[u8]) {
        let want = length.saturating_sub(self.have.len()).min(bytes.len());
        self.have.reserve_exact(want);
        self.have.extend_from_slice(&bytes[..want]);
        *bytes = &bytes[want..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind, 3, 3], &(body.len() as u16).to_be_bytes()[..], body].concat()
    }

    fn all(pieces: &[&[u8]]) -> Result<Vec<(u8, Vec<u8>)>, NoRecord> {
        let (mut assembler, mut body, mut found) = (RecordAssembler::default(), Vec::new(), Vec::new());
        for piece in pieces {
            let mut bytes = *piece;
            while let Some(header) = assembler.next(&mut bytes, &mut body)? {
                found.push((header.kind, body.clone()));
            }
            assert!(bytes.is_empty());
        }
        Ok(found)
    }

    #[test]
    fn records_are_the_same_however_segments_cut_them() {
        let bodies: [(u8, &[u8]); 4] = [(22, b"hello"), (20, &[1]), (23, &[]), (23, &[7; 300])];
        let stream: Vec<u8> = bodies.iter().flat_map(|(kind, body)| record(*kind, body)).collect();
        for size in 1..stream.len() {
            let pieces: Vec<_> = stream.chunks(size).collect();
            let found = all(&pieces).unwrap();
            assert!(found.iter().map(|(kind, body)| (*kind, &**body)).eq(bodies), "{size}");
        }
    }

    #[test]
    fn what_is_no_record_is_refused_at_its_header() {
        for bytes in [[19, 3, 3, 0, 1], [25, 3, 3, 0, 1], [22, 2, 0, 0, 1], [23, 3, 3, 0x48, 1]] {
            assert_eq!(all(&[&bytes]), Err(NoRecord), "{bytes:?}");
            assert_eq!(all(&[&bytes[..4], &bytes[4..]]), Err(NoRecord), "{bytes:?}");
        }
        assert!(all(&[&[23, 3, 3, 0x48, 0]]).unwrap().is_empty(), "the longest one");
    }

    #[test]
    fn a_gap_inside_a_record_ends_with_it_and_a_longer_one_loses_what_is_behind() {
        let (mut assembler, mut body) = (RecordAssembler::default(), Vec::new());
        let stream = [record(23, &[1; 100]), record(23, &[2; 10])].concat();
        let passed = |passed: PassedRecord| (passed.header.map(|header| header.length), passed.beyond);
        for (from, first, second) in [(50, 55, 0), (50, 20, 35), (6, 1, 0)] {
            assert_eq!(assembler.next(&mut &stream[..from], &mut body), Ok(None));
            assert_eq!(passed(assembler.pass(first)), (Some(100), 0));
            assert_eq!(passed(assembler.pass(second)), (None, 0));
            let at = from + (first + second) as usize;
            let header = assembler.next(&mut &stream[at..], &mut body).unwrap().unwrap();
            assert_eq!((header.length, &*body), (10, &[2; 10][..]));
        }
        assert_eq!(assembler.next(&mut &stream[..50], &mut body), Ok(None));
        assert_eq!(passed(assembler.pass(58)), (Some(100), 3));
        assert_eq!(assembler.next(&mut &stream[..3], &mut body), Ok(None));
        assert_eq!(passed(assembler.pass(9)), (None, 12));
        assert_eq!(passed(RecordAssembler::default().pass(1)), (None, 1));
    }
}
