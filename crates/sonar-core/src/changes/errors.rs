//! Errors that began, ended or became more frequent.

use std::collections::{BTreeMap, BTreeSet};

use super::change::{ChangeKind, ErrorChange, HistoryChange};
use super::sides::{ComparedSpan, SOURCES, SeenServer, Sides, served};
use crate::significance::{Rate, holm_at};
use crate::{Endpoint, Source, Timestamp};

/// Fewer errors are not reported.
const MIN_ERRORS: u64 = 3;
/// A rate that changes by less is not reported, as a factor.
const MIN_FACTOR: f64 = 3.0;
/// The maximum number of distinct errors that are compared; further ones are left out.
const MAX_ERRORS: usize = 1_000;

/// The errors of one code in one namespace.
#[derive(Default)]
struct Errors {
    /// By window.
    before: BTreeMap<usize, u64>,
    after: BTreeMap<usize, u64>,
    commands: BTreeSet<Box<str>>,
    /// Failed operations by application, on the side with most errors.
    applications: BTreeMap<String, u64>,
    /// Sum of the latencies of failed operations after, in nanoseconds.
    time_ns: f64,
}

/// Errors whose frequency changed.
pub(super) fn changes(sides: &Sides<'_>) -> Vec<HistoryChange> {
    let Some((source, _)) = SOURCES.into_iter().find(|(source, _)| sides.knows_before(*source)) else {
        return Vec::new();
    };
    let all: Vec<_> = gather(sides, source).into_iter().collect();
    let judged: Vec<_> = all
        .iter()
        .map(|((server, ..), errors)| judge(errors, sides, SeenServer { source, server: *server }))
        .collect();
    let p: Vec<f64> = judged.iter().map(|judged| judged.map_or(1.0, |(p, ..)| p)).collect();
    let is_beyond_chance = holm_at(&p, sides.alpha());
    let found = all.into_iter().zip(judged).zip(is_beyond_chance).filter(|(_, is)| *is);
    found
        .filter_map(|(((key, errors), judged), _)| {
            let (_, since, has_ended) = judged?;
            let (server, code, namespace) = key;
            let mut applications: Vec<_> = errors.applications.into_iter().collect();
            applications.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            let count = |counts: &BTreeMap<usize, u64>, side| {
                let first = match side {
                    ComparedSpan::Recent => {
                        sides.windows(ComparedSpan::Before).len() - sides.windows(ComparedSpan::Recent).len()
                    }
                    _ => 0,
                };
                (
                    counts.range(first..).map(|(_, count)| count).sum(),
                    sides.seconds(side, SeenServer { source, server }),
                )
            };
            let what = ErrorChange {
                code,
                namespace,
                commands: errors.commands.into_iter().collect(),
                applications: applications.into_iter().map(|(name, _)| name.into()).collect(),
                counts: [
                    count(&errors.before, ComparedSpan::Recent),
                    count(&errors.after, ComparedSpan::After),
                ],
                has_ended,
            };
            let change = HistoryChange::new(server, since, ChangeKind::Errors(what));
            Some(HistoryChange { cost_ns: errors.time_ns, ..change })
        })
        .collect()
}

type ErrorKey = (Endpoint, i32, Box<str>);

fn gather(sides: &Sides<'_>, source: Source) -> BTreeMap<ErrorKey, Errors> {
    let mut all: BTreeMap<ErrorKey, Errors> = BTreeMap::new();
    for side in [ComparedSpan::Before, ComparedSpan::After] {
        for (index, window) in sides.windows(side).iter().enumerate() {
            for row in served(window) {
                let Some(observed) = row.observed_by(source) else { continue };
                for (code, count) in observed.figures.errors.iter() {
                    let key = (row.server, *code, row.shape().namespace().into());
                    if all.len() >= MAX_ERRORS && !all.contains_key(&key) {
                        continue;
                    }
                    let errors = all.entry(key).or_default();
                    let counts =
                        if side == ComparedSpan::Before { &mut errors.before } else { &mut errors.after };
                    *counts.entry(index).or_default() += count;
                    errors.commands.insert(row.shape().command.clone());
                    for (app, share) in observed.apps.iter().filter(|(_, share)| share.failed > 0) {
                        *errors.applications.entry(app.label()).or_default() += share.failed;
                    }
                    if side == ComparedSpan::After {
                        let calls = observed.figures.calls.max(1) as f64;
                        let share = (*count as f64 / calls).min(1.0);
                        errors.time_ns += observed.figures.latency.sum_ns() as f64 * share;
                    }
                }
            }
        }
    }
    all
}

/// The probability that the frequency changed by chance, when the change began, and whether they ended; `None` if it did
/// not change.
fn judge(errors: &Errors, sides: &Sides<'_>, seen: SeenServer) -> Option<(f64, Timestamp, bool)> {
    let windows = sides.windows(ComparedSpan::Before).len();
    let first = windows - sides.windows(ComparedSpan::Recent).len();
    let recent: u64 = errors.before.range(first..).map(|(_, count)| count).sum();
    let before: u64 = errors.before.values().sum();
    let after: u64 = errors.after.values().sum();
    if after.max(recent) < MIN_ERRORS {
        return None;
    }
    let start = |at: usize| sides.windows(ComparedSpan::After).get(at).map(|window| window.window.start);
    let first_after = errors.after.keys().next().and_then(|at| start(*at)).unwrap_or(sides.span().from);
    if before == 0 {
        return Some((sides.all_after(seen, after), first_after, false));
    }
    // They ended: frequent until just now, and none since the first window.
    let later: u64 = errors.after.range(1..).map(|(_, count)| count).sum();
    let until = errors.before.range(windows.saturating_sub(1)..).map(|(_, count)| count).sum::<u64>();
    if later == 0 && until > 0 && sides.windows(ComparedSpan::After).len() > 1 {
        let first = errors.after.get(&0).copied().unwrap_or(0);
        let of_window =
            sides.seconds(ComparedSpan::After, seen) / sides.windows(ComparedSpan::After).len() as f64;
        let busy = (until + first) as f64 / (of_window * if first > 0 { 2.0 } else { 1.0 }).max(1e-9);
        let expected = busy * (sides.seconds(ComparedSpan::After, seen) - of_window);
        return Some(((-expected).exp(), sides.span().from, true));
    }
    let counts = (0..windows).map(|at| errors.before.get(&at).copied().unwrap_or(0) as f64);
    let mean = before as f64 / windows.max(1) as f64;
    let variance = counts.map(|count| (count - mean).powi(2)).sum::<f64>() / (windows as f64 - 1.0).max(1.0);
    let rate = |count: u64, side, dispersion| {
        let seconds = sides.seconds(side, seen);
        Rate { per_second: count as f64 / f64::max(seconds, 1e-9), seconds, calls: count as f64, dispersion }
    };
    let dispersion = (variance / mean.max(1e-9)).max(1.0);
    let (usual, now) =
        (rate(before, ComparedSpan::Before, dispersion), rate(after, ComparedSpan::After, dispersion));
    if now.per_second >= MIN_FACTOR * usual.per_second {
        return Some((usual.p(now), first_after, false));
    }
    None
}
