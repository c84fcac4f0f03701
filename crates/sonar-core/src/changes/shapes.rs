//! Query shapes that are new, gone, slower, heavier, or have another plan.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use statrs::distribution::{Binomial, DiscreteCDF};

use super::change::{
    ApplicationGrowth, ChangeKind, HistoryChange, MIN_LOAD, MIN_SHARE, ShapeChange, ShapeFigures, ShapeWay,
};
use super::holds::{Hold, Waited};
use super::sides::{ComparedSpan, SOURCES, SeenServer, Sides, first_began};
use super::stalls::LONG_NS;
use super::tracks::{BySide, Merged, ShapeStall, ShapeTrack, held_later, mean_ns, tracks};
use crate::figures::Figures;
use crate::histogram::index_of;
use crate::history::HistoryWindow;
use crate::significance::{MIN_CALLS, MIN_EFFECT, MIN_FACTOR, Rate, examined, holm_at, ranks, shift};
use crate::timeline::TimeBucket;
use crate::{Histogram, Source, Timeline, Timestamp};

/// The 75 % quantile of the square of a standard normal value.
const QUARTILE_OF_SQUARE: f64 = 1.323;
/// The smallest change of a rate that is reported, as a factor.
const MIN_RATE_FACTOR: f64 = 2.0;
/// A window in which a rate has moved by less than this share of what it moves until the next ones is one in which that
/// began.
const MIN_MOVED_SHARE: f64 = 0.75;
/// The fewest operations that were to be expected of a shape that has stopped.
pub(super) const MIN_EXPECTED: f64 = 10.0;
/// The minimum number of parts of the time before for saying which latencies are usual.
const MIN_PARTS: usize = 4;
/// The fewest operations of which most are slower than nearly all before.
const MIN_SLOW_CALLS: u64 = 5;
/// How many times as long as before few operations must take on average.
const FEW_FACTOR: f64 = 2.0;
/// A shape that had not occurred in at least this many windows, and in most of those before, is new again.
const MIN_PAUSE: usize = 6;
const MAX_ACTIVE: f64 = 0.2;
/// The minimum number of operations in the log on both sides for comparing plans.
const MIN_PLANS: u64 = 3;

/// A way in which a track may have changed: how likely it is by chance, and what it costs.
struct ShapeCandidate {
    track: usize,
    way: ShapeWay,
    p: f64,
    since: Timestamp,
}

/// All shapes that changed.
pub(super) fn changes(sides: &Sides<'_>, holds: &[Hold]) -> Vec<HistoryChange> {
    let later = held_later(sides, holds);
    let tracks = tracks(sides, later);
    let judged: Vec<Judgement<'_>> = tracks
        .iter()
        .map(|track| {
            let stall = track.stall(sides, holds, later.last());
            Judgement::new(track, sides, stall)
        })
        .collect();
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

/// A track with its figures.
struct Judgement<'a> {
    track: &'a ShapeTrack<'a>,
    /// Place in [`SOURCES`] of the source of the latencies.
    place: usize,
    before: LazyBefore<'a>,
    recent: Merged,
    after: Merged,
    /// The same without the first window, if the rate changed within it: it lies between both.
    settled: Option<Merged>,
    log: [Merged; 2],
    stall: Option<ShapeStall>,
    /// Starts of the windows after, of those with operations.
    starts: Vec<Timestamp>,
}

/// The time before, which is added up only where a test needs it: of most shapes none does.
struct LazyBefore<'a> {
    windows: &'a [(usize, &'a Figures)],
    seconds: f64,
    calls: u64,
    merged: OnceCell<Merged>,
}

impl<'a> LazyBefore<'a> {
    fn new(known: &'a BySide<'a>, seconds: f64) -> Self {
        let calls = known.before.iter().map(|(_, figures)| figures.calls).sum();
        Self { windows: &known.before, seconds, calls, merged: OnceCell::new() }
    }

    fn merged(&self) -> &Merged {
        self.merged.get_or_init(|| {
            let mut merged = Merged { seconds: self.seconds, ..Merged::default() };
            self.windows.iter().for_each(|(_, figures)| merged.figures.merge(figures));
            merged
        })
    }
}

impl<'a> Judgement<'a> {
    fn new(track: &'a ShapeTrack<'a>, sides: &Sides<'_>, stall: Option<ShapeStall>) -> Self {
        let place = track.place();
        let known = &track.sources[place];
        let seen = SeenServer { source: SOURCES[place].0, server: track.server };
        let log = [ComparedSpan::Recent, ComparedSpan::After]
            .map(|side| track.sources[1].merged(side, sides, SeenServer { source: Source::Log, ..seen }));
        let windows = sides.windows(ComparedSpan::After);
        let recent = known.merged(ComparedSpan::Recent, sides, seen);
        Self {
            track,
            place,
            before: LazyBefore::new(known, sides.seconds(ComparedSpan::Before, seen)),
            after: known.merged(ComparedSpan::After, sides, seen),
            settled: settled(known, recent.rate(), sides, seen),
            recent,
            log,
            stall,
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
    fn moved_calls(&self, slower_ns: f64) -> f64 {
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
        if self.before.calls == 0 {
            let calls = self.after.figures.calls;
            let is_long = self.after.figures.latency.max_ns() >= Some(LONG_NS);
            if is_long || self.after.load() >= least {
                let p = if is_long { 0.0 } else { sides.all_after(self.seen(), calls) };
                add(ShapeWay::New, p, self.began().unwrap_or(first));
            }
            return;
        }
        // What is held comes seldom, late, or not at all, and that is no change besides.
        let is_held = self.stall.as_ref().is_some_and(|stall| stall.is_held);
        if let Some(p) = self.again(sides, least).filter(|_| !is_held) {
            add(ShapeWay::Again, p, self.began().unwrap_or(first));
            return;
        }
        if let Some((p, since)) = self.stopped(sides).filter(|_| !is_held) {
            if self.recent.load() >= least {
                add(ShapeWay::Stopped, p, since);
            }
            return;
        }
        if let Some(ShapeStall { stall, .. }) = &self.stall {
            add(ShapeWay::Stalled, stall.p, stall.since);
        }
        let is_material = self.cost_ns().abs() >= least * self.after.seconds;
        let is_worth_a_look = is_material || self.moved_time() >= least * self.after.seconds;
        if is_worth_a_look && let Some((way, p)) = self.latency(sides) {
            add(way, p, self.onset().unwrap_or(first));
        }
        if is_material
            && !is_held
            && let Some((way, p)) = self.rate(sides)
        {
            add(way, p, self.rate_onset(way, sides).unwrap_or(first));
        }
        if let Some((way, p)) = self.examined() {
            add(way, p, first);
        }
        if let Some(p) = self.plan() {
            add(ShapeWay::Plan, p, first);
        }
    }

    /// When its first operation in the span after began. One that ended later may have begun earlier.
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
        let seconds_per_window = self.before.seconds / windows as f64;
        let share = self.after.seconds / (self.after.seconds + pause as f64 * seconds_per_window);
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
        let seconds_per_window =
            self.before.seconds / sides.windows(ComparedSpan::Before).len().max(1) as f64;
        let rate = self.before.calls as f64 / ((latest - first + 1) as f64 * seconds_per_window).max(1e-9);
        let expected = rate * silent;
        let is_unusual = silent > 2.0 * (pause - 1) as f64 * seconds_per_window;
        // What ran for a moment only has not stopped.
        let has_gone_on = last.since(self.before.merged().figures.first_seen) >= sides.width_ns;
        (has_gone_on && was_recent && is_unusual && expected >= MIN_EXPECTED)
            .then(|| ((-expected).exp(), last))
    }

    /// Latencies of the span without those of operations that stalled.
    fn latencies_without_stalls(&self) -> &Histogram {
        self.stall.as_ref().map_or(&self.after.figures.latency, |stall| &stall.stall.others)
    }

    /// How much longer an operation took on average than shortly before, in nanoseconds, and how many did: `stalled` ones
    /// apart, if there are any.
    fn slower(&self, has_stalled: bool) -> (f64, f64) {
        let latency = if has_stalled { self.latencies_without_stalls() } else { &self.after.figures.latency };
        let slower_ns = if latency.count() > 0 { mean_ns(latency) - self.usual_mean_ns() } else { 0.0 };
        let share = latency.count() as f64 / self.after.figures.latency.count().max(1) as f64;
        (slower_ns, share * self.moved_calls(slower_ns))
    }

    /// Time that operations which stalled took beyond what they took before, in nanoseconds.
    fn stalled_ns(&self) -> f64 {
        let excess = |waited: Waited| (waited.ns - waited.count as f64 * self.usual_mean_ns()).max(0.0);
        self.stall.as_ref().map_or(0.0, |stall| excess(stall.stall.waited))
    }

    /// Whether latencies changed since shortly before, and are not as usual.
    fn latency(&self, sides: &Sides<'_>) -> Option<(ShapeWay, f64)> {
        let (recent, after) = (&self.recent.figures.latency, self.latencies_without_stalls());
        let parts = self.parts();
        if parts.len() < MIN_PARTS {
            return None;
        }
        let Some(shift) = shift(recent, after, dispersion(&parts)) else {
            return self.few_are_slower(&parts).map(|p| (ShapeWay::Slower, p));
        };
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
            // The part of the time that grew may tell more than latencies that vary. Either test may find chance alone.
            let splits = self.track.splits(sides).chance_of_growth(to - from);
            let p = splits.map_or(shift.p, |grown| (2.0 * shift.p.min(grown)).min(1.0));
            // A checkpoint every minute is usual.
            (to > high).then_some((ShapeWay::Slower, p))
        } else {
            // It was slower than usual, or it is faster than ever.
            let recovers = from > MIN_FACTOR * median;
            (recovers || to < at(0.0)).then_some((ShapeWay::Faster, shift.p))
        }
    }

    /// Whether operations that are too few for a test of ranks took longer than nearly all before: the probability that so
    /// many of them do by chance.
    fn few_are_slower(&self, parts: &[Histogram]) -> Option<f64> {
        let (before, after) = (&self.before.merged().figures.latency, self.latencies_without_stalls());
        let (from, to) = (self.usual_mean_ns(), mean_ns(after));
        let is_usual = parts.iter().filter(|part| mean_ns(part) >= to).count() * 10 >= parts.len();
        if after.count() < MIN_SLOW_CALLS || to < FEW_FACTOR * from || is_usual {
            return None;
        }
        // A few slow operations before may be usual or not.
        let p = [0.9, 0.99].into_iter().filter_map(|quantile| {
            let limit = index_of(before.quantile_ns(quantile)?)?;
            let above = |one: &Histogram| {
                let above = one.buckets().filter(|(index, _)| *index > limit);
                above.map(|(_, count)| count).sum::<u64>()
            };
            let share = (above(before) + 1) as f64 / (before.count() + 1) as f64;
            let slow = above(after).checked_sub(1)?;
            Some(Binomial::new(share, after.count()).ok()?.sf(slow))
        });
        let p = p.reduce(f64::min)?;
        // Neighbouring operations are not independent.
        Some((2.0 * p).min(1.0).powf(1.0 / dispersion(parts)))
    }

    /// Mean latency shortly before, or of all the time before if nothing ran then.
    fn usual_mean_ns(&self) -> f64 {
        if self.recent.figures.calls > 0 { self.recent.mean_ns() } else { self.before.merged().mean_ns() }
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

    /// The same of the rate, also in windows without any operation; or the window before, which lies between both, if it is
    /// unlike any before that.
    fn rate_onset(&self, way: ShapeWay, sides: &Sides<'_>) -> Option<Timestamp> {
        let windows = sides.windows(ComparedSpan::After);
        let (usual, rates) = (self.recent.rate(), self.rates(ComparedSpan::After, sides));
        let is_more = way == ShapeWay::MoreOften;
        let all = rates.iter().map(|(_, rate)| *rate);
        let farthest = all.fold(usual, if is_more { f64::max } else { f64::min });
        let middle = f64::midpoint(usual, farthest);
        let is_changed = |rate: f64| if is_more { rate >= middle } else { rate <= middle };
        let place = rates.iter().position(|(_, rate)| is_changed(*rate))?;
        let before = self.rates(ComparedSpan::Before, sides).into_iter().map(|(_, rate)| rate);
        let limit = before.fold(usual, if is_more { f64::max } else { f64::min });
        let is_beyond = |rate: f64| if is_more { rate > limit } else { rate < limit };
        let at = rates[place].0;
        let between = place.checked_sub(1).map(|place| rates[place]);
        let began = between.filter(|(earlier, rate)| earlier + 1 == at && is_beyond(*rate));
        windows.get(began.map_or(at, |(earlier, _)| earlier)).map(|window| window.window.start)
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
        let seconds_per_window = observed / rates.len().max(1) as f64;
        let counts: Vec<f64> = rates.into_iter().map(|(_, rate)| rate * seconds_per_window).collect();
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
        let (before, after) = (rate(&self.recent), rate(self.settled.as_ref().unwrap_or(&self.after)));
        let way = if after.per_second >= MIN_RATE_FACTOR * before.per_second {
            ShapeWay::MoreOften
        } else if after.per_second * MIN_RATE_FACTOR <= before.per_second {
            ShapeWay::LessOften
        } else {
            return None;
        };
        // More often than ever, or less often than ever.
        let usual = |limit: fn(f64, f64) -> f64| counts.iter().copied().reduce(limit).unwrap_or(0.0);
        let now = after.per_second * seconds_per_window;
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
                let sums = &figures.server().totals.sums;
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
        // Where the others are slower, too, none stands apart, but what was held did.
        let is_held = self.stall.as_ref().is_some_and(|stall| stall.is_held);
        if !is_held && found.iter().any(|candidate| candidate.way == ShapeWay::Slower) {
            found.retain(|candidate| candidate.way != ShapeWay::Stalled);
        }
        let since = found.iter().map(|candidate| candidate.since).min().unwrap_or_default();
        let ways: Vec<ShapeWay> = found.iter().map(|candidate| candidate.way).collect();
        let side =
            if ways.first() == Some(&ShapeWay::Stopped) { ComparedSpan::Before } else { ComparedSpan::After };
        let is_again = ways.contains(&ShapeWay::Again);
        let has_stalled = ways.contains(&ShapeWay::Stalled);
        let slower_ns = self.after.mean_ns() - self.recent.mean_ns();
        let what = ShapeChange {
            shape: self.track.shape.clone(),
            source: self.source(),
            before: figures(if is_again { self.before.merged() } else { &self.recent }, &self.log[0]),
            after: self.stalled_figures(&ways),
            applications: self.applications(side),
            growth: self.growth(),
            pause_ns: is_again.then(|| since.since(self.before.merged().figures.last_seen)),
            split: self.track.splits(sides).change(slower_ns, sides.alpha()).map(Box::new),
            ways,
        };
        let is_latency = |way: &ShapeWay| matches!(way, ShapeWay::Slower | ShapeWay::Faster | ShapeWay::Plan);
        // A load that changes by chance is no part of it.
        let (each_ns, calls) = self.slower(has_stalled);
        let cost_ns = match has_stalled {
            true if what.ways.iter().any(is_latency) => self.stalled_ns() + each_ns * calls,
            true => self.stalled_ns(),
            false if what.ways.iter().all(is_latency) => each_ns * calls,
            false => self.cost_ns(),
        };
        let change = HistoryChange::new(self.track.server, since, ChangeKind::Shape(Box::new(what)));
        HistoryChange { cost_ns, ..change }
    }

    /// Figures of the span, those of operations that stalled apart where `ways` say that some did; of a rate without the
    /// window in which it changed.
    fn stalled_figures(&self, ways: &[ShapeWay]) -> ShapeFigures {
        let is_rate = matches!(ways.first(), Some(ShapeWay::MoreOften | ShapeWay::LessOften));
        let after = self.settled.as_ref().filter(|_| is_rate).unwrap_or(&self.after);
        let figures = figures(after, &self.log[1]);
        match self.stall.as_ref().filter(|_| ways.contains(&ShapeWay::Stalled)) {
            Some(ShapeStall { stall, .. }) => ShapeFigures {
                stalled: (stall.waited.count, stall.waited.ns),
                mean_of_others_ns: Some(mean_ns(&stall.others)),
                ..figures
            },
            None => figures,
        }
    }

    /// The named application that runs it more often than before by more operations a second than any other.
    fn growth(&self) -> Option<ApplicationGrowth> {
        let mut rates: BTreeMap<&str, f64> = BTreeMap::new();
        for (side, apps) in &self.track.apps {
            let (sign, seconds) = match side {
                ComparedSpan::After => (1.0, self.after.seconds),
                _ => (-1.0, self.before.seconds),
            };
            for (app, share) in apps.iter().filter(|(app, _)| !app.name.is_empty() && seconds > 0.0) {
                *rates.entry(&app.name).or_default() += sign * share.calls as f64 / seconds;
            }
        }
        let (application, per_second) = rates.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        (per_second > 0.0).then(|| ApplicationGrowth { application: application.into(), per_second })
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

/// What a source saw after without the first window, if the rate moved within it: then it lies between the rate before and
/// that of the windows after it.
fn settled(known: &BySide<'_>, usual: f64, sides: &Sides<'_>, seen: SeenServer) -> Option<Merged> {
    let windows = sides.windows(ComparedSpan::After);
    if !sides.is_adjacent || windows.len() < 2 {
        return None;
    }
    let [first, rest] = [0..1, 1..windows.len()].map(|part| {
        let seconds = windows[part.clone()].iter().map(|window| seen.seconds(window)).sum();
        let mut merged = Merged { seconds, ..Merged::default() };
        let own = known.after.iter().filter(|(at, _)| part.contains(at));
        own.for_each(|(_, figures)| merged.figures.merge(figures));
        merged
    });
    let (moved, whole) = (first.rate() - usual, rest.rate() - usual);
    let is_between = moved * whole > 0.0 && moved.abs() < MIN_MOVED_SHARE * whole.abs();
    (is_between && first.seconds > 0.0 && rest.seconds > 0.0).then_some(rest)
}

fn figures(merged: &Merged, log: &Merged) -> ShapeFigures {
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
        stalled: (0, 0.0),
        mean_of_others_ns: None,
        logged: log.figures.calls,
        plans,
        examined_per_returned: log.figures.examined_per_returned(),
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
