//! `stacks compare`: what threads do more and less in one run than in another, in words.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use sonar_core::significance::holm;
use sonar_core::stacks::{SampleShare, without_namespace};
use ts_rs::TS;

use super::report::{SCHEMA, StackReport, StackRow};
use crate::kit::{About, Fitting, Percent, escape, plural};

/// What the document is.
const KIND: &str = "stacks_compare";
/// The most differences to show of classes, and of functions.
const MOST: usize = 10;
/// Smaller differences of shares are of no interest.
const LEAST: f64 = 0.005;

/// The comparison of two runs.
#[derive(Clone, Debug, Serialize, TS)]
pub struct StackComparison {
    /// Version of the schema of this document.
    pub schema: u32,
    /// `stacks_compare`.
    #[ts(type = "\"stacks_compare\"")]
    pub kind: &'static str,
    /// Where it comes from: the names of the runs are its sources.
    pub about: About,
    /// Samples of A and B.
    pub samples: [u64; 2],
    /// The differences, a sentence each.
    pub words: Vec<String>,
    /// Classes with the role of the threads, the largest difference first.
    pub classes: ShareChanges,
    /// Functions, wherever they stand on a stack of a thread that is not idle.
    pub functions: ShareChanges,
}

/// What differs in one respect.
#[derive(Clone, Debug, Default, Serialize, TS)]
pub struct ShareChanges {
    /// Those that differ beyond chance.
    pub changed: Vec<ShareChange>,
    /// How many others there are.
    pub unchanged: usize,
}

/// One class or function.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct ShareChange {
    /// Its name.
    pub name: String,
    /// Its share of the samples of A and of B, from 0 to 1.
    pub share: [f64; 2],
}

impl StackComparison {
    /// Compares two runs; `about` names them.
    pub fn new(a: &StackReport, b: &StackReport, about: About) -> Self {
        let class = |row: &StackRow| {
            vec![format!("{}, {}", row.class, row.role.as_deref().unwrap_or("other threads"))]
        };
        let functions = |row: &StackRow| {
            let mut names: Vec<String> = row
                .frames
                .iter()
                .filter(|frame| frame.function != "?" && !frame.machinery)
                .map(|frame| without_namespace(&frame.function).to_owned())
                .collect();
            // A function that calls itself counts once.
            names.sort_unstable();
            names.dedup();
            names
        };
        // Where threads wait for work says nothing that their class does not say.
        let classes = changes([a, b].map(|run| rows(run, true)), &class);
        let functions = changes([a, b].map(|run| rows(run, false)), &functions);
        let words = words(&classes, &functions);
        Self { schema: SCHEMA, kind: KIND, about, samples: [a.shown, b.shown], words, classes, functions }
    }

    /// How much differs, and what most, in one sentence.
    fn answer(&self) -> String {
        // A class says what threads do; shares of functions are of the threads that are not idle.
        let largest = self.classes.changed.first().or(self.functions.changed.first());
        let Some(largest) = largest else { return "Nothing changed beyond noise.".to_owned() };
        let [a, b] = largest.share.map(|share| format!("{:.1}", Percent(share)));
        format!(
            "{} and {} changed; most of all {}: {a} of samples in A, {b} in B.",
            plural(self.classes.changed.len(), "wait class"),
            plural(self.functions.changed.len(), "function"),
            largest.name
        )
    }

    /// Writes the answer, then the differences in words.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text<W: Write>(&self, out: &mut Fitting<W>) -> io::Result<()> {
        writeln!(out, "{}", escape(&self.answer()))?;
        for ((letter, name), samples) in ["A", "B"].iter().zip(&self.about.sources).zip(self.samples) {
            writeln!(out, "{letter}  {}: {}", escape(name), plural(samples, "sample"))?;
        }
        writeln!(out)?;
        out.sentences(&self.words)?;
        out.flush()
    }
}

/// A sentence for each difference.
fn words(classes: &ShareChanges, functions: &ShareChanges) -> Vec<String> {
    let mut words = Vec::new();
    for (what, changes) in [("wait class", classes), ("function", functions)] {
        for change in changes.changed.iter().take(MOST) {
            words.push(sentence(change));
        }
        let more = changes.changed.len().saturating_sub(MOST);
        if more > 0 {
            words.push(format!("{} more changed; --json has them.", plural(more, what)));
        }
        words.push(format!("{} unchanged within noise.", plural(changes.unchanged, what)));
    }
    words
}

fn sentence(change: &ShareChange) -> String {
    let name = &change.name;
    let [a, b] = change.share.map(|share| format!("{:.1}", Percent(share)));
    match change.share {
        [0.0, _] => format!("New in B: {name}, {b} of samples."),
        [_, 0.0] => format!("Gone in B: {name}, {a} of samples in A."),
        [before, after] if after > before => format!("More in B: {name}, {a} of samples in A and {b} in B."),
        _ => format!("Less in B: {name}, {a} of samples in A and {b} in B."),
    }
}

/// The rows of a run, with those of idle threads or without.
fn rows(run: &StackReport, with_idle: bool) -> Vec<&StackRow> {
    run.stacks.iter().filter(|row| with_idle || !row.idle).collect()
}

/// The shares of everything that `names` finds in a row, in both runs.
fn changes(runs: [Vec<&StackRow>; 2], names: &dyn Fn(&StackRow) -> Vec<String>) -> ShareChanges {
    let mut parts: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (at, run) in runs.iter().enumerate() {
        for row in run {
            for name in names(row) {
                parts.entry(name).or_default()[at] += row.samples;
            }
        }
    }
    let sums = runs.map(|run| {
        run.iter().fold((0, 0), |(samples, threads), row| (samples + row.samples, threads + row.threads))
    });
    let share = |part: u64, at: usize| {
        let (all, independent) = sums[at];
        SampleShare { part, all, independent }
    };
    let shares: Vec<(String, [SampleShare; 2])> =
        parts.into_iter().map(|(name, [a, b])| (name, [share(a, 0), share(b, 1)])).collect();
    let p: Vec<f64> = shares.iter().map(|(_, [a, b])| a.p(*b)).collect();
    let count = shares.len();
    let mut changed: Vec<ShareChange> = shares
        .into_iter()
        .zip(holm(&p))
        .map(|((name, [a, b]), differs)| (ShareChange { name, share: [a.share(), b.share()] }, differs))
        .filter(|(change, differs)| *differs && difference(change) >= LEAST)
        .map(|(change, _)| change)
        .collect();
    changed.sort_by(|one, other| difference(other).total_cmp(&difference(one)));
    ShareChanges { unchanged: count - changed.len(), changed }
}

fn difference(change: &ShareChange) -> f64 {
    (change.share[0] - change.share[1]).abs()
}
