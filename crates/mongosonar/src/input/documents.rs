//! Reads files of documents one after another: printed, or BSON.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};

use sonar_decode::profile;
use sonar_decode::syntax::documents::{Documents, FoundDocument};

/// Bytes read at once.
const BLOCK: usize = 1 << 20;

/// How far a file was read.
#[derive(Debug, PartialEq, Eq)]
pub struct DocumentsRead {
    /// Its bytes as far as they were read.
    pub bytes: u64,
    /// Why no more.
    pub end: DocumentsEnd,
}

/// Why reading ended.
#[derive(Debug, PartialEq, Eq)]
pub enum DocumentsEnd {
    /// At the end of the file.
    Whole,
    /// What is wrong with the rest.
    Damaged(String),
    /// It was asked to stop.
    Stopped,
}

impl DocumentsEnd {
    /// What is wrong with the rest of the file.
    pub fn damage(self) -> Option<String> {
        match self {
            Self::Damaged(damage) => Some(damage),
            Self::Whole | Self::Stopped => None,
        }
    }
}

/// Reads printed documents with `documents`, until `stop` is set.
pub fn printed(
    mut input: impl Read,
    documents: &mut Documents,
    stop: Option<&AtomicBool>,
    mut each: impl FnMut(FoundDocument<'_>),
) -> DocumentsRead {
    let (mut buffer, mut bytes) = (vec![0u8; BLOCK], 0);
    let end = loop {
        match read_some(&mut input, &mut buffer, stop) {
            Err(end) => break end,
            Ok(0) if documents.is_cut() => {
                break DocumentsEnd::Damaged("it ends inside a document or array".to_owned());
            }
            Ok(0) => break DocumentsEnd::Whole,
            Ok(got) => {
                bytes += got as u64;
                let mut rest = &buffer[..got];
                while let Some(found) = documents.next(&mut rest) {
                    each(found);
                }
            }
        }
    };
    DocumentsRead { bytes, end }
}

/// Reads BSON documents, until `stop` is set.
pub fn bson(mut input: impl Read, stop: Option<&AtomicBool>, mut each: impl FnMut(&[u8])) -> DocumentsRead {
    let mut buffer = vec![0u8; BLOCK];
    let (mut end, mut bytes) = (0, 0u64);
    loop {
        let mut begin = 0;
        loop {
            let rest = &buffer[begin..end];
            match profile::length(rest) {
                Err(error) => {
                    let at = bytes - rest.len() as u64;
                    let damage = format!("no BSON document at byte {at}: {error}");
                    return DocumentsRead { bytes, end: DocumentsEnd::Damaged(damage) };
                }
                Ok(Some(length)) if length <= rest.len() => {
                    each(&rest[..length]);
                    begin += length;
                }
                Ok(Some(length)) if length > buffer.len() => {
                    buffer.resize(length, 0);
                    break;
                }
                Ok(_) => break,
            }
        }
        buffer.copy_within(begin..end, 0);
        end -= begin;
        match read_some(&mut input, &mut buffer[end..], stop) {
            Err(end) => return DocumentsRead { bytes, end },
            Ok(0) if end > 0 => {
                let damage = "it ends inside a document".to_owned();
                return DocumentsRead { bytes, end: DocumentsEnd::Damaged(damage) };
            }
            Ok(0) => return DocumentsRead { bytes, end: DocumentsEnd::Whole },
            Ok(got) => {
                bytes += got as u64;
                end += got;
            }
        }
    }
}

/// Reads what there is; 0 at the end. What came before an error counts.
fn read_some(
    input: &mut impl Read,
    buffer: &mut [u8],
    stop: Option<&AtomicBool>,
) -> Result<usize, DocumentsEnd> {
    let is_stopped = || stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
    loop {
        if is_stopped() {
            return Err(DocumentsEnd::Stopped);
        }
        match input.read(buffer) {
            Ok(got) => return Ok(got),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if is_stopped() => return Err(DocumentsEnd::Stopped),
            Err(error) => return Err(DocumentsEnd::Damaged(format!("cannot be read further: {error}"))),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Gives one byte at a time, is interrupted before each, and fails at the end.
    struct Slow<'a> {
        bytes: &'a [u8],
        is_interrupted: bool,
    }

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.is_interrupted = !self.is_interrupted;
            if self.is_interrupted {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let Some((first, rest)) = self.bytes.split_first() else {
                return Err(io::Error::other("the disk is gone"));
            };
            self.bytes = rest;
            buffer[0] = *first;
            Ok(1)
        }
    }

    fn bson_lengths(input: impl Read) -> (Vec<usize>, DocumentsRead) {
        let mut lengths = Vec::new();
        let read = bson(input, None, |document| lengths.push(document.len()));
        (lengths, read)
    }

    #[test]
    fn bson_is_read_as_far_as_it_is_whole() {
        let small = bson::serialize_to_vec(&bson::doc! { "a": 1 }).unwrap();
        let large = bson::serialize_to_vec(&bson::doc! { "a": "x".repeat(BLOCK) }).unwrap();
        let both = [&small[..], &large[..], &small[..]].concat();
        let lengths = vec![small.len(), large.len(), small.len()];
        let whole = DocumentsRead { bytes: both.len() as u64, end: DocumentsEnd::Whole };
        assert_eq!(bson_lengths(&both[..]), (lengths, whole));
        let (lengths, read) = bson_lengths(&both[..both.len() - 1]);
        assert_eq!((lengths.len(), read.end.damage().unwrap()), (2, "it ends inside a document".to_owned()));
        let (lengths, read) = bson_lengths(&[&small[..], &[1, 0, 0, 0]].concat()[..]);
        assert_eq!(lengths, [small.len()]);
        assert!(read.end.damage().unwrap().starts_with("no BSON document at byte 12: "));
        let (lengths, read) = bson_lengths(Slow { bytes: &small, is_interrupted: false });
        assert_eq!(lengths, [small.len()], "what came before an error counts");
        assert_eq!(read.end.damage().unwrap(), "cannot be read further: the disk is gone");
    }

    #[test]
    fn reading_ends_where_it_is_asked_to() {
        let stop = AtomicBool::new(false);
        let mut documents = Documents::default();
        let read =
            printed(&b"{} {} {"[..], &mut documents, Some(&stop), |_| stop.store(true, Ordering::Relaxed));
        assert_eq!(read.end, DocumentsEnd::Stopped);
        let mut found = 0;
        let read = printed(&b"{} {} {"[..], &mut Documents::default(), None, |_| found += 1);
        assert_eq!((found, read.end.damage().is_some()), (2, true));
    }
}
