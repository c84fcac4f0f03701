//! What was usual before: a capture, a log, a profile or a saved digest.

use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use sonar_core::shape::RULES_VERSION;
use sonar_core::{Baseline, DigestSettings};
use sonar_sys::helper::InheritedDescriptors;
use sonar_view::digest::saved::{self, SavedDigest};
use sonar_view::digest::{self, DigestView, ViewOptions};
use sonar_view::kit::Zone;
use sonar_view::past::baseline::{BaselineInput, NotedBaseline, around};
use sonar_view::past::compare::LoadedDigest;
use sonar_view::queries::{ClassSet, Selection};

use super::QueriesArgs;
use crate::args::when::{Against, WrittenEnds, now, parse_against};
use crate::confinement::file_reading::FileReading;
use crate::confinement::privileges::start_helper;
use crate::digest::{WantedDigest, load as load_digest};
use crate::exit::{self, usage};
use crate::history::{StoredHistory, between};
use crate::{input, stop};

/// Reads a baseline: a file or, if there is none of this name, a span of the history.
///
/// # Errors
/// It cannot be read, or holds nothing to compare with.
pub fn load(args: &QueriesArgs, path: &Path, selection: &Selection) -> Result<Arc<Baseline>> {
    let written = path.to_str().filter(|_| !path.exists()).map(parse_against);
    match written {
        Some(Ok(against)) => of_history(args, against, selection).context("--baseline"),
        _ => load_from(args, path, selection.classes),
    }
}

/// A span of the history as a baseline: of what `--from` and `--to` show, or of the time around now.
fn of_history(args: &QueriesArgs, against: Against, selection: &Selection) -> Result<Arc<Baseline>> {
    let stored = StoredHistory::open(&args.store)?;
    let history = stored.view()?;
    let zone = args.zone.asked().unwrap_or_else(Zone::local);
    let span = match (args.at, args.is_past()) {
        (Some(at), _) => around(at.in_zone(&zone)),
        (None, true) => between(&history, WrittenEnds { from: args.from, to: args.to }, &zone)?,
        (None, false) => around(now()),
    };
    let span = against.in_zone(&zone)?.of(span, &zone);
    finish(&BaselineInput::of(&history, span, selection.classes, &zone)?)
}

/// Reads a baseline from a file, and prints what it cannot show.
///
/// # Errors
/// It cannot be read, or its rows are not by shape, or its shape ids follow other rules.
fn load_from(args: &QueriesArgs, path: &Path, classes: ClassSet) -> Result<Arc<Baseline>> {
    let input = match args.captures_live() {
        true => read_apart(path, classes, args.privileges.are_dropped()),
        false => read(path, classes, &stop::flag()?),
    };
    finish(&input.context("--baseline")?)
}

/// The rows of a file.
fn read(path: &Path, classes: ClassSet, stop: &Arc<AtomicBool>) -> Result<BaselineInput> {
    let name = input::name(path);
    let settings = DigestSettings { by: Baseline::BY, points: false };
    let loaded = load_digest(path, &WantedDigest { settings, classes, key_log: None }, stop)?;
    loaded.refuse_other_rules(&name, Some(RULES_VERSION))?;
    let LoadedDigest { digest, source, is_whole, .. } = loaded;
    if digest.settings.by != Baseline::BY {
        bail!(
            "the baseline {name} has its rows by {}; it must have them by shape",
            digest.settings.by.name()
        );
    }
    Ok(BaselineInput { digest, source, is_complete: is_whole, name })
}

/// What the process that reads a baseline says first.
const WHOLE: u8 = b'W';
const PARTIAL: u8 = b'P';
const FAILED: u8 = b'F';
const USAGE: u8 = b'U';
/// The most bytes of its answer.
const MAX_ANSWER: u64 = 1 << 30;

/// The rows of a file, read by a process that does nothing else and drops its privileges first, as this one still needs
/// its own. It hands them back as a saved report.
fn read_apart(path: &Path, classes: ClassSet, confined: bool) -> Result<BaselineInput> {
    let helper = start_helper("sonar-baseline", &InheritedDescriptors::Nothing, |socket| {
        let begun = if confined { FileReading::of(&[path]).begin() } else { Ok(()) };
        let read = begun.and_then(|()| read(path, classes, &Arc::default()));
        // It ends with the other side.
        let _ = answer(read, BufWriter::new(socket));
    })?;
    let socket = helper.socket()?;
    // A large file takes long.
    socket.set_read_timeout(None)?;
    let mut bytes = Vec::new();
    socket.take(MAX_ANSWER).read_to_end(&mut bytes)?;
    answered(&bytes, input::name(path))
}

/// What that process has answered about the file of this name.
fn answered(bytes: &[u8], name: String) -> Result<BaselineInput> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match bytes.split_first() {
        Some((first @ (&WHOLE | &PARTIAL), saved)) => {
            let SavedDigest { digest, source, .. } = saved::read(saved)?;
            Ok(BaselineInput { digest, source, is_complete: *first == WHOLE, name })
        }
        Some((&USAGE, why)) => Err(usage!("{}", text(why))),
        Some((_, why)) => bail!("{}", text(why)),
        None => bail!("{name}: the process that reads it has ended"),
    }
}

/// In that process: hands back what was read.
fn answer(read: Result<BaselineInput>, mut out: impl Write) -> io::Result<()> {
    match read {
        Ok(BaselineInput { digest, source, is_complete, .. }) => {
            out.write_all(&[if is_complete { WHOLE } else { PARTIAL }])?;
            digest::json(&DigestView::new(&digest, source, &ViewOptions::default()), &mut out)?;
        }
        Err(error) => {
            out.write_all(&[if exit::code(&error) == exit::USAGE { USAGE } else { FAILED }])?;
            out.write_all(exit::message(&error).as_bytes())?;
        }
    }
    out.flush()
}

/// Makes the baseline, and prints what it cannot show.
fn finish(input: &BaselineInput) -> Result<Arc<Baseline>> {
    let NotedBaseline { baseline, notes } = NotedBaseline::new(input)?;
    notes.iter().for_each(|note| eprintln!("mongosonar: {note}"));
    Ok(Arc::new(baseline))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sonar_core::{Row, Subject};
    use sonar_decode::testing::fixtures::fixture;

    use super::*;

    #[test]
    fn what_another_process_has_read_arrives_as_it_was() {
        let root = fixture("mongod-4.0-mixed");
        let path = root.join("wire.pcap.gz");
        // What a baseline compares: calls, errors and latencies of each shape.
        let rows = |input: &BaselineInput| {
            let of_row = |row: &Row| {
                let figures = row.figures();
                let (latency, errors) = (format!("{:?}", figures.latency), format!("{:?}", figures.errors));
                let Subject::Shape { shape, .. } = &row.subject else { panic!("{row:?}") };
                (format!("{} {:?}", shape.id, row.class), figures.calls, latency, errors)
            };
            input.digest.rows().iter().map(of_row).collect::<BTreeSet<_>>()
        };
        let sent = |read: Result<BaselineInput>| {
            let mut bytes = Vec::new();
            answer(read, &mut bytes).unwrap();
            answered(&bytes, "monday".to_owned())
        };
        for is_complete in [true, false] {
            let read = || {
                let read = read(&path, ClassSet::default(), &Arc::default()).unwrap();
                BaselineInput { is_complete, ..read }
            };
            let received = sent(Ok(read())).unwrap();
            assert_eq!(rows(&received), rows(&read()));
            assert!(rows(&received).len() > 40);
            assert_eq!((received.is_complete, received.source), (is_complete, read().source));
        }
        let error = sent(Err(usage!("no such form"))).err().unwrap();
        assert_eq!((error.to_string().as_str(), exit::code(&error)), ("no such form", exit::USAGE));
        let error = sent(read(&root.join("nothing"), ClassSet::default(), &Arc::default())).err().unwrap();
        assert!(error.to_string().contains("nothing") && exit::code(&error) == exit::FAILED, "{error}");
        assert!(answered(&[], "monday".to_owned()).is_err());
    }
}
