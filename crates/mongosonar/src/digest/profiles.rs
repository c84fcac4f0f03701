//! Reading profiles: dumps, JSON in every layout, and what a shell prints.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use sonar_core::Reading;
use sonar_decode::profile::{self, Profile};
use sonar_decode::syntax::documents::{Documents, FoundDocument};
use sonar_view::kit::Zone;

use super::collect::{OperationCollector, SourceDigest};
use crate::input;
use crate::input::content::{self, FileContent, Peeked};

/// Bytes read at once.
const BLOCK: usize = 1 << 20;

/// Why reading ended before the end of a file.
enum EarlyDocument {
    /// What was wrong with the rest.
    Damaged(String),
    Stopped,
}

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
        let (read, early) = match content {
            FileContent::ProfileText | FileContent::Text => printed(reader, &mut profile, &mut collect, stop),
            _ => documents(reader, &mut profile, &mut collect, stop),
        };
        bytes += read;
        match early {
            None if read > 0 && entries(profile.reading()) == before => foreign.push(name),
            None => {}
            Some(EarlyDocument::Damaged(wrong)) => {
                damaged += 1;
                eprintln!("mongosonar: {name}: {wrong}; all before it has been read");
            }
            Some(EarlyDocument::Stopped) => stopped.push(format!("{name}: {}", input::stopped(&progress))),
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

/// Reads documents that were printed. Returns how many bytes, and why no more.
fn printed(
    mut input: impl Read,
    profile: &mut Profile,
    sink: &mut OperationCollector,
    stop: &Arc<AtomicBool>,
) -> (u64, Option<EarlyDocument>) {
    let (mut buffer, mut bytes, mut documents) = (vec![0u8; BLOCK], 0u64, Documents::default());
    while !stop.load(Ordering::Relaxed) {
        match input.read(&mut buffer) {
            Ok(0) if documents.is_cut() => {
                return (
                    bytes,
                    Some(EarlyDocument::Damaged("it ends inside a document or array".to_owned())),
                );
            }
            Ok(0) => return (bytes, None),
            Ok(got) => {
                bytes += got as u64;
                let mut rest = &buffer[..got];
                while let Some(found) = documents.next(&mut rest) {
                    match found {
                        FoundDocument::Document(document) => profile.printed(document, sink),
                        FoundDocument::Broken => profile.broken(),
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if stop.load(Ordering::Relaxed) => return (bytes, Some(EarlyDocument::Stopped)),
            Err(error) => {
                return (bytes, Some(EarlyDocument::Damaged(format!("cannot be read further: {error}"))));
            }
        }
    }
    (bytes, Some(EarlyDocument::Stopped))
}

/// Reads BSON documents one after another. Returns how many bytes, and why no more.
fn documents(
    mut input: impl Read,
    profile: &mut Profile,
    sink: &mut OperationCollector,
    stop: &Arc<AtomicBool>,
) -> (u64, Option<EarlyDocument>) {
    let mut buffer = vec![0u8; 1 << 20];
    let (mut begin, mut end, mut bytes) = (0, 0, 0u64);
    loop {
        loop {
            let rest = &buffer[begin..end];
            match profile::length(rest) {
                Err(error) => {
                    let at = bytes - rest.len() as u64;
                    return (
                        bytes,
                        Some(EarlyDocument::Damaged(format!("no BSON document at byte {at}: {error}"))),
                    );
                }
                Ok(Some(length)) if length <= rest.len() => {
                    profile.document(&rest[..length], sink);
                    begin += length;
                }
                Ok(Some(length)) if length > buffer.len() => {
                    buffer.resize(length, 0);
                    break;
                }
                Ok(_) => break,
            }
        }
        if stop.load(Ordering::Relaxed) {
            return (bytes, Some(EarlyDocument::Stopped));
        }
        buffer.copy_within(begin..end, 0);
        (begin, end) = (0, end - begin);
        match input.read(&mut buffer[end..]) {
            Ok(0) if end > 0 => {
                return (bytes, Some(EarlyDocument::Damaged("it ends inside a document".to_owned())));
            }
            Ok(0) => return (bytes, None),
            Ok(got) => {
                bytes += got as u64;
                end += got;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if stop.load(Ordering::Relaxed) => return (bytes, Some(EarlyDocument::Stopped)),
            Err(error) => {
                return (bytes, Some(EarlyDocument::Damaged(format!("cannot be read further: {error}"))));
            }
        }
    }
}
