//! What was usual before: a capture, a log, a profile or a saved digest.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sonar_core::shape::RULES_VERSION;
use sonar_core::{Baseline, DigestSettings};
use sonar_view::kit::Zone;
use sonar_view::past::baseline::{BaselineInput, NotedBaseline, around};
use sonar_view::past::compare::LoadedDigest;
use sonar_view::queries::{ClassSet, Selection};

use super::QueriesArgs;
use crate::args::when::{Against, WrittenEnds, now, parse_against};
use crate::digest::{self, WantedDigest};
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
        _ => load_from(path, selection.classes),
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
fn load_from(path: &Path, classes: ClassSet) -> Result<Arc<Baseline>> {
    let name = input::name(path);
    let settings = DigestSettings { by: Baseline::BY, points: false };
    let wanted = WantedDigest { settings, classes, key_log: None };
    let loaded = digest::load(path, &wanted, &stop::flag()?).context("--baseline")?;
    loaded.refuse_other_rules(&name, Some(RULES_VERSION)).context("--baseline")?;
    let LoadedDigest { digest, source, is_whole, .. } = loaded;
    if digest.settings.by != Baseline::BY {
        bail!(
            "the baseline {name} has its rows by {}; it must have them by shape",
            digest.settings.by.name()
        );
    }
    finish(&BaselineInput { digest, source, is_complete: is_whole, name })
}

/// Makes the baseline, and prints what it cannot show.
fn finish(input: &BaselineInput) -> Result<Arc<Baseline>> {
    let NotedBaseline { baseline, notes } = NotedBaseline::new(input)?;
    notes.iter().for_each(|note| eprintln!("mongosonar: {note}"));
    Ok(Arc::new(baseline))
}
