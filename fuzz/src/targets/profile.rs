//! Any bytes as documents of a profile, as BSON, as JSON and as a shell prints them: no panic, and every document is counted.

use sonar_core::{Execution, Identity, Operation};
use sonar_decode::entry::EntrySink;
use sonar_decode::profile::{self, Profile};
use sonar_decode::syntax::documents::{Documents, FoundDocument};

#[derive(Default)]
struct Count(u64);

impl EntrySink for Count {
    fn operation(&mut self, op: &Operation<'_>, _: Identity, _: &Execution<'_>, _: u64) {
        assert!(op.end >= op.start);
        self.0 += 1;
    }
}

/// Takes an input.
pub fn run(data: &[u8]) {
    let (mut reader, mut count, mut rest) = (Profile::default(), Count::default(), data);
    while let Ok(Some(length)) = profile::length(rest) {
        let length = length.min(rest.len());
        reader.document(&rest[..length], &mut count);
        rest = &rest[length..];
        if rest.is_empty() {
            break;
        }
    }
    for line in data.split(|byte| *byte == b'\n') {
        reader.printed(line, &mut count);
    }
    let (mut documents, mut rest) = (Documents::default(), data);
    while let Some(found) = documents.next(&mut rest) {
        match found {
            FoundDocument::Document(document) => reader.printed(document, &mut count),
            FoundDocument::Broken => reader.broken(),
        }
    }
    let reading = reader.reading();
    assert_eq!(reading.documents, reading.documents_malformed + reading.documents_other + count.0);
}
