//! What was usual before: a capture, a log, a profile or a saved digest.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sonar_core::shape::RULES_VERSION;
use sonar_core::{Baseline, DigestSettings, Source};
use sonar_view::kit::Nanos;
use sonar_view::queries::ClassSet;

use crate::digest::{LoadedDigest, load};
use crate::{input, stop};

/// Reads a baseline, and prints what it cannot show.
///
/// # Errors
/// It cannot be read, or its rows are not by shape, or its shape ids follow other rules.
pub fn load_from(path: &Path, classes: ClassSet) -> Result<Arc<Baseline>> {
    let name = input::name(path);
    let settings = DigestSettings { by: Baseline::BY, points: false };
    let loaded = load(path, settings, classes, &stop::flag()?).context("--baseline")?;
    loaded.refuse_other_rules(&name, Some(RULES_VERSION)).context("--baseline")?;
    let LoadedDigest { digest, source, is_whole, .. } = loaded;
    if digest.settings.by != Baseline::BY {
        bail!(
            "the baseline {name} has its rows by {}; it must have them by shape",
            digest.settings.by.name()
        );
    }
    let baseline = Baseline::new(&digest, source == Source::Wire, is_whole);
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
