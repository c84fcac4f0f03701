//! Query shapes that are new, gone, slower, heavier, or have another plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::change::{
    ChangeKind, HistoryChange, MIN_LOAD, MIN_SHARE, ShapeChange, ShapeFigures, ShapeWay, SplitChange,
};
use super::commands;
use super::sides::{ComparedSpan, SOURCES, SeenServer, Sides, first_began, served};
use super::splits::ShapeSplits;
use crate::compare::{MIN_CALLS, MIN_EFFECT, MIN_FACTOR, Rate, examined, holm_at, ranks, shift};
use crate::figures::{Apps, Figures};
use crate::histogram::upper_bound_ns;
use crate::history::HistoryWindow;
use crate::time_split::RowSplit;
use crate::timeline::TimeBucket;
use crate::{Endpoint, Histogram, Identity, ShapeId, ShapeInfo, Source, Subject, Timeline, Timestamp};

/// The 75 % quantile of the square of a standard normal value.
const QUARTILE_OF_SQUARE: f64 = 1.323;
/// A rate that changes by less is not reported, as a factor.
const MIN_RATE_FACTOR: f64 = 2.0;
/// The time from which on a single operation of a new shape is reported.
pub(super) const LONG_NS: u64 = 500_000_000;
/// How many times as long as the longest one before an operation must take to be stalled, besides [`LONG_NS`].
const STALL_FACTOR: u64 = 10;
/// At most one operation in this number is stalled; where there are more, the shape is slower.
const MAX_STALLED: u64 = 5;
/// The fewest operations that were to be expected of a shape that has stopped.
pub(super) const MIN_EXPECTED: f64 = 10.0;
/// The minimum number of parts of the time before for saying which latencies are usual.
const MIN_PARTS: usize = 4;
/// A shape that had not occurred in at least this many windows, and in most of those before, is new again.
const MIN_PAUSE: usize = 6;
const MAX_ACTIVE: f64 = 0.2;
/// The minimum number of operations in the log on both sides for comparing plans.
const MIN_PLANS: u64 = 3;

/// One shape on one server, as one source saw it: figures by side, with the index of the window.
struct ShapeTrack<'a> {
    server: Endpoint,
    shape: &'a Arc<ShapeInfo>,
    /// By place in [`SOURCES`].
    sources: [BySide<'a>; SOURCES.len()],
    apps: Vec<(ComparedSpan, &'a Apps)>,
    /// Where the time of its operations went, with the index of the window.
    splits: Vec<(ComparedSpan, usize, &'a RowSplit)>,
}

#[derive(Default)]
struct BySide<'a> {
    before: Vec<(usize, &'a Figures)>,
    after: Vec<(usize, &'a Figures)>,
}

/// One side of a track, merged.
#[derive(Default)]
struct Merged {
    figures: Figures,
    seconds: f64,
}

impl Merged {
    fn load(&self) -> f64 {
        if self.seconds > 0.0 { self.figures.latency.sum_ns() as f64 / self.seconds } else { 0.0 }
    }

    fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.figures.calls as f64 / self.seconds } else { 0.0 }
    }

    fn mean_ns(&self) -> f64 {
        mean_ns(&self.figures.latency)
    }
}

fn mean_ns(latency: &Histogram) -> f64 {
    if latency.count() > 0 { latency.sum_ns() as f64 / latency.count() as f64 } else { 0.0 }
}

/// A way in which a track may have changed: how likely it is by chance, and what it costs.
struct ShapeCandidate {
    track: usize,
    way: ShapeWay,
    p: f64,
    since: Timestamp,
}

/// All shapes that changed.
pub(super) fn changes(sides: &Sides<'_>) -> Vec<HistoryChange> {
    let tracks = tracks(sides);
    let judged: Vec<Judgement<'_>> = tracks.iter().map(|track| Judgement::new(track, sides)).collect();
    let total = judged.iter().map(|one| one.after.load().max(one.recent.load())).sum::<f64>();
    let least = (total * MIN_SHARE).max(MIN_LOAD);
    let mut candidates = Vec::new();
    for (at, one) in judged.iter().enumerate() {
        one.candidates(sides, least, |way, p, since| {
            candidates.push(ShapeCandidate { track: at, way, p, since })
        });
    }
    let p: Vec<f64> = candidates.iter().map(|candidate| candidate.p).collect();
    let mut found: BTreeMap<usize, Vec<ShapeCandidate>> = BTreeMap::new();
    for (candidate, is_beyond_chance) in candidates.into_iter().zip(holm_at(&p, sides.alpha())) {
        if is_beyond_chance {
            found.entry(candidate.track).or_default().push(candidate);
        }
    }
    found.into_iter().map(|(at, found)| judged[at].change(found, sides)).collect()
}

/// The shapes of users' operations that servers served.
fn tracks<'a>(sides: &Sides<'a>) -> Vec<ShapeTrack<'a>> {
    let mut tracks: BTreeMap<(Endpoint, ShapeId), ShapeTrack<'a>> = BTreeMap::new();
    for side in [ComparedSpan::Before, ComparedSpan::After] {
        for (index, window) in sides.windows(side).iter().enumerate() {
            for row in served(window) {
                let Subject::Shape { shape, identity: Identity::Exact, .. } = &row.subject else { continue };
                if shape.id == ShapeId(0) || commands::kind(&shape.command).is_some() {
                    continue;
                }
                let track = tracks.entry((row.server, shape.id)).or_insert_with(|| ShapeTrack {
                    server: row.server,
                    shape,
                    sources: Default::default(),
                    apps: Vec::new(),
                    splits: Vec::new(),
                });
                for (known, (source, _)) in track.sources.iter_mut().zip(SOURCES) {
                    if let Some(observed) = row.observed_by(source) {
                        let place =
                            if side == ComparedSpan::Before { &mut known.before } else { &mut known.after };
                        place.push((index, &observed.figures));
                    }
                }
                track.apps.push((side, &row.observed().apps));
                track.splits.extend(row.split.iter().map(|split| (side, index, &**split)));
            }
        }
    }
    tracks.into_values().collect()
}

/// The index of the first window of [`ComparedSpan::Recent`] among those before.
fn first_recent(sides: &Sides<'_>) -> usize {
    sides.windows(ComparedSpan::Before).len() - sides.windows(ComparedSpan::Recent).len()
}

impl ShapeTrack<'_> {
    fn split(&self, slower_ns: f64, sides: &Sides<'_>) -> Option<SplitChange> {
        let of = |side: ComparedSpan, from: usize| {
            let known = self.splits.iter().filter(|(one, at, _)| *one == side && *at >= from);
            known.map(|(_, _, split)| *split).collect()
        };
        let splits = ShapeSplits {
            before: of(ComparedSpan::Before, 0),
            recent: of(ComparedSpan::Before, first_recent(sides)),
            after: of(ComparedSpan::After, 0),
        };
        splits.change(slower_ns, sides.alpha())
    }
}

impl BySide<'_> {
    fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }

    fn merged(&self, side: ComparedSpan, sides: &Sides<'_>, seen: SeenServer) -> Merged {
        let first = first_recent(sides);
        let (all, from) = match side {
            ComparedSpan::Before => (&self.before, 0),
            ComparedSpan::Recent => (&self.before, first),
            ComparedSpan::After => (&self.after, 0),
        };
        let mut merged = Merged { seconds: sides.seconds(side, seen), ..Merged::default() };
        all.iter().filter(|(at, _)| *at >= from).for_each(|(_, figures)| merged.figures.merge(figures));
        merged
    }
}

/// A track with its figures.
struct Judgement<'a> {
    track: &'a ShapeTrack<'a>,
    /// Place in [`SOURCES`] of the source of the latencies.
    place: usize,
    before: Merged,
    recent: Merged,
    after: Merged,
    log: [Merged; 2],
    /// Starts of the windows after, of those with operations.
    starts: Vec<Timestamp>,
}

impl<'a> Judgement<'a> {
    fn new(track: &'a ShapeTrack<'a>, sides: &Sides<'_>) -> Self {
        let place = track.sources.iter().position(|known| !known.is_empty()).unwrap_or(0);
        let known = &track.sources[place];
        let seen = SeenServer { source: SOURCES[place].0, server: track.server };
        let log = [ComparedSpan::Recent, ComparedSpan::After]
            .map(|side| track.sources[1].merged(side, sides, SeenServer { source: Source::Log, ..seen }));
        let windows = sides.windows(ComparedSpan::After);
        Self {
            track,
            place,
            before: known.merged(ComparedSpan::Before, sides, seen),
            recent: known.merged(ComparedSpan::Recent, sides, seen),
            after: known.merged(ComparedSpan::After, sides, seen),
            log,
            starts: known.after.iter().map(|(at, _)| windows[*at].window.start).collect(),
        }
    }

    fn known(&self) -> &BySide<'a> {
        &self.track.sources[self.place]
    }

    fn source(&self) -> Source {
        SOURCES[self.place].0
    }

    fn seen(&self) -> SeenServer {
        SeenServer { source: self.source(), server: self.track.server }
    }

    /// Time beyond what it took before, in nanoseconds.
    fn cost_ns(&self) -> f64 {
        self.after.figures.latency.sum_ns() as f64 - self.recent.load() * self.after.seconds
    }

    /// How many operations took `slower_ns` longer than before. Operations that became faster save no more than they took:
    /// clients that wait less often ask more often.
    fn calls_that_were_slower_or_faster(&self, slower_ns: f64) -> f64 {
        let calls = self.after.figures.calls as f64;
        if slower_ns >= 0.0 || self.recent.seconds <= 0.0 {
            return calls;
        }
        calls.min(self.recent.figures.calls as f64 / self.recent.seconds * self.after.seconds)
    }

    /// Tests each way in which it may have changed, if that makes a difference of at least `least` nanoseconds per
    /// second.
    fn candidates(&self, sides: &Sides<'_>, least: f64, mut add: impl FnMut(ShapeWay, f64, Timestamp)) {
        if !sides.knows_server_before(self.seen()) || self.after.seconds <= 0.0 {
            return;
        }
        let first = self.starts.first().copied().unwrap_or(sides.span().from);
        if self.before.figures.calls == 0 {
            let calls = self.after.figures.calls;
            let is_long = self.after.figures.latency.max_ns() >= Some(LONG_NS);
            if is_long || self.after.load() >= least {
                let p = if is_long { 0.0 } else { sides.all_after(self.seen(), calls) };
                add(ShapeWay::New, p, self.began().unwrap_or(first));
            }
            return;
        }
        if let Some(p) = self.again(sides, least) {
            add(ShapeWay::Again, p, self.began().unwrap_or(first));
            return;
        }
        if let Some((p, since)) = self.stopped(sides) {
            if self.recent.load() >= least {
                add(ShapeWay::Stopped, p, since);
            }
            return;
        }
        if let Some((p, since)) = self.stalled(sides) {
            add(ShapeWay::Stalled, p, since);
        }
        let is_material = self.cost_ns().abs() >= least * self.after.seconds;
        let is_worth_a_look = is_material || self.moved_time() >= least * self.after.seconds;
        if is_worth_a_look && let Some((way, p)) = self.latency() {
            add(way, p, self.onset().unwrap_or(first));
        }
        if is_material && let Some((way, p)) = self.rate(sides) {
            add(way, p, self.rate_onset(way, sides).unwrap_or(first));
        }
        if let Some((way, p)) = self.examined() {
            add(way, p, first);
        }
        if let Some(p) = self.plan() {
            add(ShapeWay::Plan, p, first);
        }
    }

    /// When its first operation after began. One that ended later may have begun earlier.
    fn began(&self) -> Option<Timestamp> {
        let known = self.known().after.iter().filter(|(_, figures)| figures.first_seen.is_known());
        known.map(|(_, figures)| first_began(figures)).min()
    }

    /// Whether it had not occurred for a long time, with the probability that it occurs now by chance.
    fn again(&self, sides: &Sides<'_>, least: f64) -> Option<f64> {
        let windows = sides.windows(ComparedSpan::Before).len();
        let active = &self.known().before;
        let pause = windows.saturating_sub(active.last()?.0 + 1);
        let is_rare = active.len() as f64 <= MAX_ACTIVE * windows as f64;
        let is_long = self.after.figures.latency.max_ns() >= Some(LONG_NS);
        if pause < MIN_PAUSE || !is_rare || self.after.figures.calls == 0 {
            return None;
        }
        let of_window = self.before.seconds / windows as f64;
        let share = self.after.seconds / (self.after.seconds + pause as f64 * of_window);
        match is_long {
            true => Some(0.0),
            false => (self.after.load() >= least).then(|| share.powf(self.after.figures.calls as f64)),
        }
    }

    /// The time in nanoseconds that the change of its mean latency makes, whichever way.
    fn moved_time(&self) -> f64 {
        (self.after.mean_ns() - self.recent.mean_ns()).abs() * self.after.figures.calls as f64
    }

    /// Whether it occurred all the time and now no more, with the probability of that by chance, and the time of its
    /// last operation.
    fn stopped(&self, sides: &Sides<'_>) -> Option<(f64, Timestamp)> {
        let windows = sides.windows(ComparedSpan::After);
        let is_silent = self.known().after.iter().all(|(at, figures)| *at == 0 || figures.calls == 0);
        if !is_silent || self.recent.figures.calls == 0 || windows.len() < 2 {
            return None;
        }
        let last = self.recent.figures.last_seen.max(self.after.figures.last_seen);
        let silent = sides.observed_s_since(last, self.seen());
        // The rate while it occurred, and the longest pause before.
        let active = &self.known().before;
        let (first, latest) = (active.first()?.0, active.last()?.0);
        let pause = active.windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap_or(1);
        let was_recent = latest + 1 >= sides.windows(ComparedSpan::Before).len();
        let of_window = self.before.seconds / sides.windows(ComparedSpan::Before).len().max(1) as f64;
        let rate = self.before.figures.calls as f64 / ((latest - first + 1) as f64 * of_window).max(1e-9);
        let expected = rate * silent;
        let is_unusual = silent > 2.0 * (pause - 1) as f64 * of_window;
        // What ran for a moment only has not stopped.
        let has_gone_on = last.since(self.before.figures.first_seen) >= sides.width_ns;
        (has_gone_on && was_recent && is_unusual && expected >= MIN_EXPECTED)
            .then(|| ((-expected).exp(), last))
    }

    /// Operations that took longer than any before: how many, and the sum of their latencies in nanoseconds.
    fn beyond(&self, figures: &Figures) -> (u64, f64) {
        let longest = self.before.figures.latency.max_ns().unwrap_or(u64::MAX);
        let far = |&(index, _): &(i32, u64)| upper_bound_ns(index) > longest.saturating_mul(2);
        let slow = figures.latency.buckets().filter(far);
        slow.fold((0, 0.0), |(count, ns), (index, more)| {
            (count + more, ns + upper_bound_ns(index) as f64 * more as f64)
        })
    }

    fn stalled(&self, sides: &Sides<'_>) -> Option<(f64, Timestamp)> {
        let (count, _) = self.beyond(&self.after.figures);
        let longest = self.before.figures.latency.max_ns()?;
        let now = self.after.figures.latency.max_ns()?;
        // Where many are slow, the shape is slower.
        let is_common = count.saturating_mul(MAX_STALLED) > self.after.figures.calls;
        if self.before.figures.calls < MIN_CALLS || count == 0 || is_common || now < LONG_NS / 5 {
            return None;
        }
        let is_extreme = now >= LONG_NS && now >= longest.saturating_mul(STALL_FACTOR);
        let share = self.after.figures.calls as f64
            / (self.after.figures.calls + self.before.figures.calls).max(1) as f64;
        let p = if is_extreme { 0.0 } else { share.powf(count as f64) };
        let windows = sides.windows(ComparedSpan::After);
        let first = self.known().after.iter().find(|(_, figures)| self.beyond(figures).0 > 0)?;
        Some((p, windows[first.0].window.start))
    }

    /// Whether latencies changed since shortly before, and are not as usual.
    fn latency(&self) -> Option<(ShapeWay, f64)> {
        let (recent, after) = (&self.recent.figures.latency, &self.after.figures.latency);
        let parts = self.parts();
        if parts.len() < MIN_PARTS {
            return None;
        }
        let shift = shift(recent, after, dispersion(&parts))?;
        let (from, to) = (mean_ns(recent), mean_ns(after));
        let factor = (to / from.max(1.0)).max(from / to.max(1.0));
        if shift.effect.abs() < MIN_EFFECT || factor < MIN_FACTOR || (to > from) != (shift.effect > 0.0) {
            return None;
        }
        let mut usual: Vec<f64> = parts.iter().map(mean_ns).collect();
        usual.sort_by(f64::total_cmp);
        let at = |q: f64| usual[((usual.len() - 1) as f64 * q).round() as usize];
        let (median, high) = (at(0.5), at(0.9));
        if to > from {
            // A checkpoint every minute is usual.
            (to > high).then_some((ShapeWay::Slower, shift.p))
        } else {
            // It was slower than usual, or it is faster than ever.
            let recovers = from > MIN_FACTOR * median;
            (recovers || to < at(0.0)).then_some((ShapeWay::Faster, shift.p))
        }
    }

    /// The latencies before, in parts of at least [`MIN_CALLS`] operations.
    fn parts(&self) -> Vec<Histogram> {
        let mut parts: Vec<Histogram> = Vec::new();
        for (_, figures) in &self.known().before {
            match parts.last_mut() {
                Some(last) if last.count() < MIN_CALLS => last.merge(&figures.latency),
                _ => parts.push(figures.latency.clone()),
            }
        }
        parts
    }

    /// The first window after whose mean is nearer to the one farthest from the mean before than to that: the first
    /// windows may be as before.
    fn onset(&self) -> Option<Timestamp> {
        let (from, to) = (self.recent.mean_ns(), self.after.mean_ns());
        let means = self.known().after.iter().map(|(_, figures)| mean_ns(&figures.latency));
        let farthest = means.filter(|mean| *mean > 0.0).fold(to, if to > from { f64::max } else { f64::min });
        let middle = f64::midpoint(from, farthest);
        let is_changed = |mean: f64| if to > from { mean >= middle } else { mean <= middle };
        let mut windows = self.known().after.iter().zip(&self.starts);
        windows.find(|((_, figures), _)| is_changed(mean_ns(&figures.latency))).map(|(_, start)| *start)
    }

    /// The same of the rate, also in windows without any operation.
    fn rate_onset(&self, way: ShapeWay, sides: &Sides<'_>) -> Option<Timestamp> {
        let windows = sides.windows(ComparedSpan::After);
        let (usual, rates) = (self.recent.rate(), self.rates(ComparedSpan::After, sides));
        let is_more = way == ShapeWay::MoreOften;
        let all = rates.iter().map(|(_, rate)| *rate);
        let farthest = all.fold(usual, if is_more { f64::max } else { f64::min });
        let middle = f64::midpoint(usual, farthest);
        let is_changed = |rate: f64| if is_more { rate >= middle } else { rate <= middle };
        let (at, _) = rates.into_iter().find(|(_, rate)| is_changed(*rate))?;
        windows.get(at).map(|window| window.window.start)
    }

    /// Operations per second of the windows that were observed for the most part, with the indexes of these; if none was,
    /// of those that were observed at all.
    fn rates(&self, side: ComparedSpan, sides: &Sides<'_>) -> Vec<(usize, f64)> {
        let windows = sides.windows(side);
        let (known, seen) = (self.known(), self.seen());
        let of_side = if side == ComparedSpan::After { &known.after } else { &known.before };
        let mut counts = vec![0.0; windows.len()];
        of_side.iter().for_each(|(at, figures)| counts[*at] += figures.calls as f64);
        let rates = |is_enough: &dyn Fn(&HistoryWindow) -> bool| -> Vec<(usize, f64)> {
            let enough = windows.iter().enumerate().filter(|(_, window)| is_enough(window));
            enough.map(|(at, one)| (at, counts[at] / seen.seconds(one))).collect()
        };
        let mostly = rates(&|window| seen.is_observed(window));
        match mostly.is_empty() {
            true => rates(&|window| seen.ns(window) > 0),
            false => mostly,
        }
    }

    fn rate(&self, sides: &Sides<'_>) -> Option<(ShapeWay, f64)> {
        let (rates, seen) = (self.rates(ComparedSpan::Before, sides), self.seen());
        // As if each of these windows had been observed for the same time.
        let windows = sides.windows(ComparedSpan::Before);
        let observed: f64 = rates.iter().map(|(at, _)| seen.seconds(&windows[*at])).sum();
        let of_window = observed / rates.len().max(1) as f64;
        let counts: Vec<f64> = rates.into_iter().map(|(_, rate)| rate * of_window).collect();
        let windows = counts.len();
        let mean = counts.iter().sum::<f64>() / windows.max(1) as f64;
        let variance =
            counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / (windows as f64 - 1.0).max(1.0);
        let dispersion = if mean > 0.0 { (variance / mean).max(1.0) } else { 1.0 };
        let rate = |merged: &Merged| Rate {
            per_second: merged.rate(),
            seconds: merged.seconds,
            calls: merged.figures.calls as f64,
            dispersion,
        };
        let (before, after) = (rate(&self.recent), rate(&self.after));
        let way = if after.per_second >= MIN_RATE_FACTOR * before.per_second {
            ShapeWay::MoreOften
        } else if after.per_second * MIN_RATE_FACTOR <= before.per_second {
            ShapeWay::LessOften
        } else {
            return None;
        };
        // More often than ever, or less often than ever.
        let usual = |limit: fn(f64, f64) -> f64| counts.iter().copied().reduce(limit).unwrap_or(0.0);
        let now = after.per_second * of_window;
        let is_unusual = match way {
            ShapeWay::MoreOften => now > usual(f64::max),
            _ => now < usual(f64::min),
        };
        is_unusual.then(|| (way, before.p(after)))
    }

    fn examined(&self) -> Option<(ShapeWay, f64)> {
        let line = |figures: &[(usize, &Figures)]| {
            let mut line = Timeline::default();
            for (_, figures) in figures {
                let sums = &figures.server().sums;
                let bucket = TimeBucket {
                    calls: figures.calls,
                    latency_ns: 0,
                    examined: sums.docs_examined.get().max(sums.keys_examined.get()).unwrap_or(0),
                    returned: figures.returned.get().max(figures.affected.get()).unwrap_or(0),
                };
                line.add(figures.first_seen, bucket);
            }
            line
        };
        let log = &self.track.sources[1];
        let (before, after) = (examined(&line(&log.before))?, examined(&line(&log.after))?);
        let p = before.p(after);
        if after.ratio >= before.ratio * MIN_FACTOR {
            Some((ShapeWay::Heavier, p))
        } else if after.ratio * MIN_FACTOR <= before.ratio {
            Some((ShapeWay::Lighter, p))
        } else {
            None
        }
    }

    /// Whether the log shows another plan on each side: the probability that a plan that is on one side only got there
    /// by chance.
    fn plan(&self) -> Option<f64> {
        let [before, after] = [&self.log[0].figures, &self.log[1].figures];
        if before.calls < MIN_PLANS || after.calls < MIN_PLANS {
            return None;
        }
        let all = (before.calls + after.calls) as f64;
        let only_on = |one: &Figures, other: &Figures| {
            let plans = one.server().plans.iter();
            let new = plans.filter(|(plan, _)| !other.server().plans.iter().any(|(known, _)| known == plan));
            let count: u64 = new.map(|(_, used)| used.calls).sum();
            (one.calls as f64 / all).powf(count as f64)
        };
        let p = only_on(after, before).min(only_on(before, after));
        (p < 1.0).then_some(p)
    }

    fn change(&self, mut found: Vec<ShapeCandidate>, sides: &Sides<'_>) -> HistoryChange {
        found.sort_by_key(|candidate| candidate.way);
        let since = found.iter().map(|candidate| candidate.since).min().unwrap_or_default();
        let ways: Vec<ShapeWay> = found.iter().map(|candidate| candidate.way).collect();
        let side =
            if ways.first() == Some(&ShapeWay::Stopped) { ComparedSpan::Before } else { ComparedSpan::After };
        let is_again = ways.contains(&ShapeWay::Again);
        let slower_ns = self.after.mean_ns() - self.recent.mean_ns();
        let what = ShapeChange {
            shape: self.track.shape.clone(),
            source: self.source(),
            before: self.figures(if is_again { &self.before } else { &self.recent }, &self.log[0]),
            after: self.figures(&self.after, &self.log[1]),
            applications: self.applications(side),
            pause_ns: is_again.then(|| since.since(self.before.figures.last_seen)),
            split: self.track.split(slower_ns, sides).map(Box::new),
            ways,
        };
        let is_latency = |way: &ShapeWay| matches!(way, ShapeWay::Slower | ShapeWay::Faster | ShapeWay::Plan);
        let cost_ns = match what.ways.iter().all(is_latency) {
            // A load that changes by chance is no part of it.
            true => slower_ns * self.calls_that_were_slower_or_faster(slower_ns),
            false => self.cost_ns(),
        };
        let change = HistoryChange::new(self.track.server, since, ChangeKind::Shape(Box::new(what)));
        HistoryChange { cost_ns, ..change }
    }

    fn figures(&self, merged: &Merged, log: &Merged) -> ShapeFigures {
        let latency = &merged.figures.latency;
        let quantile = |q| latency.quantile_ns(q).unwrap_or(0);
        let server = log.figures.server();
        let mut plans: Vec<_> = server.plans.iter().map(|(plan, used)| (plan.clone(), used.calls)).collect();
        plans.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        ShapeFigures {
            calls: merged.figures.calls,
            seconds: merged.seconds,
            time_ns: latency.sum_ns() as f64,
            latency: latency.max_ns().map(|max| [quantile(0.5), quantile(0.99), max]),
            stalled: self.beyond(&merged.figures),
            logged: log.figures.calls,
            plans,
            examined_per_returned: log.figures.examined_per_returned(),
        }
    }

    fn applications(&self, side: ComparedSpan) -> Vec<Box<str>> {
        let mut calls: BTreeMap<String, u64> = BTreeMap::new();
        for (_, apps) in self.track.apps.iter().filter(|(one, _)| *one == side) {
            for (app, share) in apps.iter() {
                *calls.entry(app.label()).or_default() += share.calls;
            }
        }
        let mut apps: Vec<_> = calls.into_iter().collect();
        apps.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        apps.into_iter().map(|(name, _)| name.into()).collect()
    }
}

/// How much more the latencies of neighbouring parts differ than those of independent operations, as a ratio of
/// variances; at least 1. It is a quartile, so that a few parts in which something happened do not count.
fn dispersion(parts: &[Histogram]) -> f64 {
    let mut squares: Vec<f64> =
        parts.windows(2).filter_map(|pair| ranks(&pair[0], &pair[1])).map(|(_, z)| z * z).collect();
    if squares.len() < 2 {
        return 1.0;
    }
    squares.sort_by(f64::total_cmp);
    let at = ((squares.len() - 1) as f64 * 0.75).round() as usize;
    (squares[at] / QUARTILE_OF_SQUARE).max(1.0)
}
