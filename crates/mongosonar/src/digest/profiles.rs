//! Reading profiles: dumps, JSON in every layout, and what a shell prints.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use sonar_core::Reading;
use sonar_decode::profile::Profile;
use sonar_decode::syntax::documents::{Documents, FoundDocument};
use sonar_view::kit::Zone;

use super::collect::{OperationCollector, SourceDigest};
use crate::input;
use crate::input::content::{self, FileContent, Peeked};
use crate::input::documents::{self, DocumentsEnd};

/// Reads the documents of `system.profile` in these files.
///
/// # Errors
/// A file cannot be opened, or holds something else.
pub fn read(
    files: &[PathBuf],
    mut collect: OperationCollector,
    stop: &Arc<AtomicBool>,
) -> Result<SourceDigest> {
    let mut profile = Profile::default();
    if collect.shows_values {
        profile.show_values();
    }
    let (mut bytes, mut damaged, mut stopped) = (0, 0, Vec::new());
    // Files in which not one document is of a profile.
    let mut foreign = Vec::new();
    for path in files {
        let name = input::name(path);
        let (reader, progress) = input::open(path, &name, stop)?;
        let Peeked { content, reader, .. } = content::peek(reader, &name)?;
        content::refuse_foreign(&name, content, &[FileContent::ProfileBson, FileContent::ProfileText])?;
        let before = entries(profile.reading());
        let read = match content {
            FileContent::ProfileText | FileContent::Text => {
                documents::printed(reader, &mut Documents::default(), Some(stop), |found| match found {
                    FoundDocument::Document(document) => profile.printed(document, &mut collect),
                    FoundDocument::Broken => profile.broken(),
                })
            }
            _ => documents::bson(reader, Some(stop), |document| profile.document(document, &mut collect)),
        };
        bytes += read.bytes;
        match read.end {
            DocumentsEnd::Whole if read.bytes > 0 && entries(profile.reading()) == before => {
                foreign.push(name);
            }
            DocumentsEnd::Whole => {}
            DocumentsEnd::Damaged(wrong) => {
                damaged += 1;
                eprintln!("mongosonar: {name}: {wrong}; all before it has been read");
            }
            DocumentsEnd::Stopped => stopped.push(format!("{name}: {}", input::stopped(&progress))),
        }
        progress.finish_and_clear();
    }
    // Without any document of a profile there is no result, and an error says so.
    if entries(profile.reading()) > 0 {
        damaged += foreign.len() as u64;
        for name in foreign {
            eprintln!(
                "mongosonar: {name}: it has no document of system.profile; the result covers the other files"
            );
        }
    }
    let (files, files_stopped) = (files.len() as u64, stopped.len() as u64);
    let reading = Reading { files, bytes, files_damaged: damaged, files_stopped, ..profile.reading() };
    Ok(SourceDigest { damaged: damaged > 0, stopped, ..collect.gathered(reading, Zone::utc()) })
}

/// The documents that are of a profile.
fn entries(reading: Reading) -> u64 {
    reading.documents.saturating_sub(reading.documents_malformed + reading.documents_other)
}
