//! `mongosonar compare A B`.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use sonar_core::shape::RULES_VERSION;
use sonar_core::{DigestSettings, GroupBy, Source};
use sonar_view::compare;
use sonar_view::digest::saved::{self, SavedDigest};
use sonar_view::kit::Zone;
use sonar_view::past::DigestRows;
use sonar_view::past::compare::{LoadedDigest, LoadedSpan, compared, source_note};
use sonar_view::queries::ClassSet;

use super::args::{CompareArgs, span_of};
use super::captures::{self, CaptureInputs, Captured};
use super::collect::{OperationCollector, SourceDigest, TimeRange};
use super::{log_files, profiles};
use crate::args::values::ClassArg;
use crate::args::when;
use crate::exit::{Interrupted, OK, TRUNCATED, WORSE, usage};
use crate::history::{self, StoredHistory};
use crate::input;
use crate::input::content::{self, FileContent};
use crate::{screen, stop};

/// Runs the command; gives the exit code.
pub fn run(args: &CompareArgs) -> Result<u8> {
    if args.a == args.b && args.a.as_os_str() == "-" {
        return Err(usage!("only one of A and B can be standard input"));
    }
    let stop = stop::flag()?;
    let by = args.by.as_deref().and_then(GroupBy::from_name).unwrap_or_default();
    let settings = DigestSettings { by, points: false };
    let classes = ClassArg::classes(&args.class);
    let wanted = WantedDigest { settings, classes, key_log: args.tls_keylog.as_deref() };
    let side = |path: &Path| match span_of(path) {
        Some(span) => of_history(args, span, DigestRows { by, classes }),
        None => load(path, &wanted, &stop),
    };
    let (a, b) = (side(&args.a)?, side(&args.b)?);
    if args.tls_keylog.is_some() && !a.is_of_capture && !b.is_of_capture {
        return Err(usage!("--tls-keylog decrypts captures, and neither A nor B is one"));
    }
    // The message names the older one, which has to be made again.
    if a.shape_rules <= b.shape_rules {
        a.refuse_other_rules(&input::name(&args.a), b.shape_rules)?;
    } else {
        b.refuse_other_rules(&input::name(&args.b), a.shape_rules)?;
    }
    let comparison = compared(&a, &b)?;
    source_note(&a, &b).iter().for_each(|note| eprintln!("mongosonar: {note}"));
    let zone = args.zone.asked();
    let side = |loaded: &LoadedDigest, path: &Path| loaded.side(&input::name(path), zone.as_ref());
    let sides = [side(&a, &args.a), side(&b, &args.b)];
    let text = |out: &mut dyn Write| compare::text(&comparison, &sides, screen::width(), out);
    args.output.write(|out| compare::json(&comparison, &sides, out), text)?;
    // The missing part may be worse, so this exit code comes first.
    Ok(match (a.damaged || b.damaged, comparison.is_worse()) {
        (true, _) => TRUNCATED,
        (_, true) => WORSE,
        _ => OK,
    })
}

/// Which digest of a file is wanted.
#[derive(Copy, Clone)]
pub struct WantedDigest<'a> {
    /// Its rows.
    pub settings: DigestSettings,
    /// The classes of its operations.
    pub classes: ClassSet,
    /// The key log that decrypts TLS in captures.
    pub key_log: Option<&'a Path>,
}

/// The digest of a span of the history; prints what must be known of it.
fn of_history(args: &CompareArgs, text: &str, rows: DigestRows) -> Result<LoadedDigest> {
    let zone = history::zone(&args.zone);
    let span = when::parse_span(text).map_err(|why| usage!("{why}"))?.in_zone(&zone)?;
    let stored = StoredHistory::open(&args.store)?;
    let history = stored.view()?;
    let gaps = history.operations_gap_note(span, &zone)?;
    gaps.iter().for_each(|note| eprintln!("mongosonar: {text}: {note}"));
    let LoadedSpan { loaded, notes } = LoadedSpan::of(&history, span, rows, &zone)?;
    notes.iter().for_each(|note| eprintln!("mongosonar: {text}: {note}"));
    Ok(loaded)
}

/// There is no comparison with a part of a file.
fn refuse_stopped(stopped: &[String]) -> Result<()> {
    stopped.first().map_or(Ok(()), |what| Err(Interrupted(what.clone()).into()))
}

/// The digest of a file of any readable kind.
///
/// # Errors
/// It cannot be read, or contains nothing that can be compared.
pub fn load(path: &Path, wanted: &WantedDigest<'_>, stop: &Arc<AtomicBool>) -> Result<LoadedDigest> {
    let WantedDigest { settings, classes, key_log } = *wanted;
    const READABLE: [FileContent; 6] = [
        FileContent::Digest,
        FileContent::Capture,
        FileContent::ProfileBson,
        FileContent::ProfileText,
        FileContent::Log,
        FileContent::Tar,
    ];
    let files: [PathBuf; 1] = [path.to_owned()];
    let name = input::name(path);
    input::make_rereadable(path, stop)?;
    let content = content::peek(input::open(path, &name, stop)?.0, &name)?.content;
    content::refuse_foreign(&name, content, &READABLE)?;
    let shape_rules = matches!(settings.by, GroupBy::Shape | GroupBy::Order).then_some(RULES_VERSION);
    let (gathered, source) = match content {
        FileContent::Digest => {
            let saved = saved::read(&whole(path, stop)?).with_context(|| input::name(path))?;
            let SavedDigest { digest, host, source, is_whole, shape_rules } = saved;
            return Ok(LoadedDigest {
                digest,
                host,
                source,
                is_whole,
                is_of_capture: false,
                damaged: false,
                zone: Zone::utc(),
                shape_rules,
                missing: Vec::new(),
                history: None,
            });
        }
        FileContent::Capture => {
            let collect = OperationCollector::new(Source::Wire, settings, classes);
            let inputs = CaptureInputs { files: &files, logs: &[], key_log };
            let Captured { collect, coverage, damaged, stopped, notes } =
                captures::read(&inputs, collect, stop)?;
            refuse_stopped(&stopped)?;
            notes.iter().for_each(|note| eprintln!("mongosonar: {name}: {note}"));
            let (mut digest, source) = (collect.digest, Source::Wire);
            let missing = captures::in_part(&coverage);
            digest.join_applications();
            let zone = Zone::utc();
            return Ok(LoadedDigest {
                digest,
                host: None,
                source,
                is_whole: !damaged,
                is_of_capture: true,
                damaged,
                zone,
                shape_rules,
                missing,
                history: None,
            });
        }
        FileContent::ProfileBson | FileContent::ProfileText => (
            profiles::read(&files, OperationCollector::new(Source::Profile, settings, classes), stop)?,
            Source::Profile,
        ),
        _ => (
            log_files::read(
                &files,
                OperationCollector::new(Source::Log, settings, classes),
                &TimeRange::default(),
                stop,
            )?,
            Source::Log,
        ),
    };
    refuse_stopped(&gathered.stopped)?;
    gathered.refuse_nothing(&files)?;
    // A shape that is missing in a cut file is not known to be new.
    let SourceDigest { mut digest, notices, damaged, zone, .. } = gathered;
    // What is compared is a shape, whoever sent it.
    digest.unite_roles();
    let host = notices.as_ref().and_then(sonar_view::digest::hosts);
    Ok(LoadedDigest {
        digest,
        host,
        source,
        is_whole: !damaged,
        is_of_capture: false,
        damaged,
        zone,
        shape_rules,
        missing: Vec::new(),
        history: None,
    })
}

/// Reads a whole file, up to a limit.
fn whole(path: &Path, stop: &Arc<AtomicBool>) -> Result<Vec<u8>> {
    /// The largest saved digest.
    const MOST: u64 = 1 << 30;
    let name = input::name(path);
    let (reader, _) = input::open(path, &name, stop)?;
    let mut bytes = Vec::new();
    reader.take(MOST).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    Ok(bytes)
}
