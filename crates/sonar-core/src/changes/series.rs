//! What the machine and the server measure of themselves: series whose level changed.

use super::change::{ChangeKind, HistoryChange, MAX_CHANGES, SeriesChange};
use super::series_columns::columns;
use super::sides::{ComparedSpan, Sides};
use crate::history::{SeriesKey, SeriesSubject, metrics};
use crate::internals::{FIGURES, Figure, FigureUnit, FigureVerdict};

/// The minimum number of windows before for judging a level.
const MIN_BEFORE: usize = 5;
/// A level must move by this share of itself.
const MIN_SHARE: f64 = 0.25;
/// Factor from the median absolute deviation to the standard deviation of a normal distribution.
const DEVIATIONS: f64 = 1.4826;

/// The level right before must lie at this share of the movement at most: what moved earlier is no part of this change.
const MAX_MOVED: f64 = 0.5;

/// A series: a value for each window that has one.
#[derive(Default)]
struct SeriesValues {
    before: Vec<f64>,
    /// Those right before.
    recent: Vec<f64>,
    after: Vec<f64>,
}

/// The series whose level changed, the largest movement first.
pub(super) fn changes(sides: &Sides<'_>) -> Vec<HistoryChange> {
    let mut levels = Vec::new();
    for (key, values) in values(sides, |subject| {
        use SeriesSubject::{Device, FileSystem, Interface, Machine, Member, Process, Server, ThreadRole};
        matches!(subject, Machine | Server | Member | Process | ThreadRole | Device | FileSystem | Interface)
    }) {
        levels.extend(level(key, values));
    }
    let is_bad = |one: &SeriesChange| one.judged.is_some_and(|(_, [before, after])| after > before);
    levels.sort_by(|a, b| is_bad(b).cmp(&is_bad(a)).then(b.score.total_cmp(&a.score)));
    levels.truncate(MAX_CHANGES);
    let since = sides.span().from;
    let change = |one: SeriesChange| HistoryChange::new(one.key.server, since, ChangeKind::Series(one));
    levels.into_iter().map(change).collect()
}

/// The means of each series of these subjects, by window.
fn values<'a>(
    sides: &Sides<'a>,
    wants: impl Fn(SeriesSubject) -> bool,
) -> Vec<(&'a SeriesKey, SeriesValues)> {
    let (before, after) = (sides.windows(ComparedSpan::Before), sides.windows(ComparedSpan::After));
    let recent = before.len() - sides.windows(ComparedSpan::Recent).len();
    columns(
        before.iter().chain(after),
        |key| wants(key.subject),
        |window, values: &mut SeriesValues, value| {
            let Some(mean) = value.mean() else { return };
            if window >= before.len() {
                return values.after.push(mean);
            }
            values.before.push(mean);
            if window >= recent {
                values.recent.push(mean);
            }
        },
    )
}

/// Whether the level of a series is outside of what it was, and by how much.
fn level(key: &SeriesKey, values: SeriesValues) -> Option<SeriesChange> {
    let SeriesValues { mut before, mut recent, after } = values;
    if before.len() < MIN_BEFORE || after.is_empty() {
        return None;
    }
    before.sort_by(f64::total_cmp);
    let at = |q: f64| before[((before.len() - 1) as f64 * q).round() as usize];
    let median = at(0.5);
    let mut off: Vec<f64> = before.iter().map(|value| (value - median).abs()).collect();
    off.sort_by(f64::total_cmp);
    let deviation = DEVIATIONS * off[off.len() / 2];
    let (low, high) = (at(0.05), at(0.95));
    let scale = (3.0 * deviation).max(high - low).max(MIN_SHARE * median.abs()).max(floor(&key.metric));
    let beyond = |values: &mut dyn Iterator<Item = f64>| values.count() * 2 > after.len();
    let is_high = beyond(&mut after.iter().copied().filter(|value| *value > high + scale));
    let is_low = beyond(&mut after.iter().copied().filter(|value| *value < low - scale));
    if !is_high && !is_low {
        return None;
    }
    let mut sorted = after;
    sorted.sort_by(f64::total_cmp);
    let now = sorted[sorted.len() / 2];
    let judged = FIGURES
        .iter()
        .find(|figure| key.subject == SeriesSubject::Server && *figure.id == *key.metric)
        .map(|figure| (figure, [verdict(figure, median), verdict(figure, now)]));
    let is_worse = judged.is_some_and(|(_, [before, after])| after > before);
    recent.sort_by(f64::total_cmp);
    let just_before = recent.get(recent.len() / 2).copied().unwrap_or(median);
    let has_moved_earlier = (just_before - median) / (now - median) > MAX_MOVED;
    if has_moved_earlier && !is_worse {
        return None;
    }
    let score = (now - median).abs() / scale;
    Some(SeriesChange {
        key: key.clone(),
        before: median,
        range: (before[0], before[before.len() - 1]),
        after: now,
        score,
        judged,
    })
}

/// The smallest movement that is worth a look, in the unit of the metric.
fn floor(metric: &str) -> f64 {
    use FigureUnit::{Bytes, BytesPerSecond, Count, Milliseconds, PerSecond, Percent, Ratio};
    match metrics::find(metric).map(|metric| metric.unit) {
        Some(Percent | Milliseconds) => 5.0,
        Some(Bytes) => 16e6,
        Some(BytesPerSecond) => 1e6,
        Some(Ratio) => 1.0,
        Some(PerSecond | Count) | None => 2.0,
    }
}

fn verdict(figure: &Figure, value: f64) -> FigureVerdict {
    match figure.limits {
        Some(limits) if limits.is_passed(limits.red, value) => FigureVerdict::Red,
        Some(limits) if limits.is_passed(limits.amber, value) => FigureVerdict::Amber,
        _ => FigureVerdict::Ok,
    }
}
