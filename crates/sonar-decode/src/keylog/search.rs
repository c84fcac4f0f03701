//! Where does the next record begin behind a gap, and which number has it?
//!
//! A record is found where bytes look like its header and its key opens it with one of the numbers that it may have. A
//! cipher that authenticates makes that certain.

use super::cipher::{RecordCipher, RecordOpener};
use super::record::{RECORD_HEADER, TlsRecordHeader, kind};

/// The most bytes that are searched: two of the longest records.
const MAX_SEARCHED: usize = 40 << 10;
/// How often a record is tried, at most.
const MAX_TRIES: u32 = 4_096;

/// A search for the next record.
pub struct RecordSearch {
    /// Bytes in records that are lost.
    missing: u64,
    /// Plaintext that was lost before them.
    plaintext: u64,
    /// What came behind the gap.
    have: Vec<u8>,
    /// No record begins before this.
    at: usize,
    tries: u32,
}

/// A record that was found.
pub struct FoundRecord {
    /// What has come from it on.
    pub bytes: Vec<u8>,
    /// How much plaintext is missing before it, in bytes.
    pub plaintext: u64,
    /// Its number.
    pub number: u64,
}

/// How a search goes on.
pub enum SearchOutcome {
    Found(FoundRecord),
    /// More bytes are needed.
    Searching,
    /// There are too many.
    GaveUp,
}

impl RecordSearch {
    /// Behind a gap that lost so many bytes of records, and before them this much plaintext.
    pub fn new(missing: u64, plaintext: u64) -> Self {
        Self { missing, plaintext, have: Vec::new(), at: 0, tries: 0 }
    }

    /// More bytes are missing: what has come since is lost too.
    pub fn lose(&mut self, missing: u64) {
        self.missing = self.missing.saturating_add(self.have.len() as u64).saturating_add(missing);
        (self.have, self.at) = (Vec::new(), 0);
    }

    /// Whether bytes came that could not be placed.
    pub fn has_bytes(&self) -> bool {
        !self.have.is_empty()
    }

    /// The memory that it takes, in bytes.
    pub fn memory(&self) -> usize {
        self.have.capacity()
    }

    /// Searches on in these bytes.
    pub fn next(&mut self, bytes: &[u8], opener: &RecordOpener, cipher: &RecordCipher) -> SearchOutcome {
        self.have.extend_from_slice(bytes);
        let mut body = Vec::new();
        while let Some(header) = self.have.get(self.at..).and_then(<[u8]>::first_chunk) {
            if let Ok(header) = TlsRecordHeader::read(*header)
                && header.kind == kind::APPLICATION_DATA
                && header.version == 0x0303
            {
                let begin = self.at + RECORD_HEADER;
                let Some(record) = self.have.get(begin..begin + usize::from(header.length)) else { break };
                let lost = self.missing.saturating_add(self.at as u64);
                // At least one record is lost, and each takes as much as an empty one.
                let most = lost / (RECORD_HEADER as u64 + cipher.added());
                for number in 1..=most {
                    self.tries += 1;
                    if self.tries > MAX_TRIES {
                        return SearchOutcome::GaveUp;
                    }
                    body.clear();
                    body.extend_from_slice(record);
                    let (number, lost_records) = (opener.number().wrapping_add(number), number);
                    if opener.unseal(number, header, &mut body).is_some() {
                        let overhead = lost_records.saturating_mul(RECORD_HEADER as u64 + cipher.added());
                        return SearchOutcome::Found(FoundRecord {
                            bytes: self.have.split_off(self.at),
                            plaintext: self.plaintext.saturating_add(lost.saturating_sub(overhead)),
                            number,
                        });
                    }
                }
            }
            self.at += 1;
        }
        if self.have.len() > MAX_SEARCHED { SearchOutcome::GaveUp } else { SearchOutcome::Searching }
    }
}
