//! What was usual before: a capture, a log, a profile or a saved digest.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sonar_core::history::Span;
use sonar_core::shape::RULES_VERSION;
use sonar_core::{Baseline, Digest, DigestSettings, Source, Timestamp};
use sonar_view::kit::{Nanos, Zone};
use sonar_view::past::{DigestRows, HistoryDigest};
use sonar_view::queries::{ClassSet, Selection};

use super::QueriesArgs;
use crate::digest::{self, LoadedDigest, WantedDigest};
use crate::history::{StoredHistory, between};
use crate::when::{Against, WrittenEnds, now, parse_against};
use crate::{input, stop};

/// The time around now that a baseline of the history covers without `--from` and `--to`, in nanoseconds.
const AROUND_NS: u64 = 3_600_000_000_000;

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
    let rows = DigestRows { by: Baseline::BY, classes: selection.classes };
    let HistoryDigest { digest, source, is_whole, .. } = HistoryDigest::of(&history, span, rows)?;
    let collector = history.shows_operations(span)?;
    let is_complete = is_whole && history.gaps_of(collector, span)?.is_empty();
    finish(
        &digest,
        (source, is_complete),
        &format!("{} to {}", zone.show_seconds(span.from), zone.show_seconds(span.to)),
    )
}

fn around(at: Timestamp) -> Span {
    let from = Timestamp::from_unix_ns(at.unix_ns().saturating_sub(AROUND_NS / 2));
    Span { from, to: from.plus_ns(AROUND_NS) }
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
    finish(&digest, (source, is_whole), &name)
}

/// Makes the baseline, and prints what it cannot show.
fn finish(digest: &Digest, (source, is_complete): (Source, bool), name: &str) -> Result<Arc<Baseline>> {
    let baseline = Baseline::new(digest, source == Source::Wire, is_complete);
    if baseline.is_empty() {
        bail!("the baseline {name} holds no shape of the classes asked for");
    }
    if !baseline.has_same_clock() {
        let least = match baseline.threshold_ns() {
            0 => String::new(),
            ns => format!(", where it takes {} or longer", Nanos(ns)),
        };
        eprintln!(
            "mongosonar: the baseline is of a {}: its latencies are the server's own and are not compared with \
             those of the wire; only what is new is marked{least}",
            source.name(),
        );
    }
    if !baseline.is_complete() {
        eprintln!("mongosonar: rows were left out of the baseline {name}, so nothing is marked as new");
    }
    Ok(Arc::new(baseline))
}
