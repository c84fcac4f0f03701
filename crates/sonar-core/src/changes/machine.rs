//! What the machine, the control group of a server or a member of its replica set denied a server: causes that no event
//! names, but that figures show.

use std::collections::BTreeSet;

use super::change::{
    ChangeKind, GrownTime, HistoryChange, MachineCause, MachineChange, MachineFigure, ShapeChange, ShapeWay,
};
use super::sides::{ComparedSpan, Sides};
use crate::history::{HistoryWindow, SeriesKey, SeriesMetric, SeriesSubject, SeriesValue, metrics};
use crate::internals::FigureUnit;
use crate::time_split::TimePart;
use crate::{Endpoint, Timestamp};

/// The page cache has dropped if it lost this share of itself, and as many bytes.
const MIN_DROP: f64 = 0.25;
const MIN_DROPPED_BYTES: f64 = 64e6;
/// Other processes took processors if they use this many more, or if as many more of their threads are ready to run.
const MIN_TAKEN: f64 = 0.25;
const MIN_WAITING: f64 = 1.0;
/// And if that is so many times what it was: one thread more beside ten denies a server nothing that they did not before.
const MIN_TAKEN_FACTOR: f64 = 1.1;
const MIN_WAITING_FACTOR: f64 = 1.25;
/// Nobody waits for a processor on a machine that is busy for less than this share of its time.
const MIN_BUSY: f64 = 0.7;
/// A control group throttles if it stops threads in this many per cent of its periods, and in this many more than before.
const MIN_THROTTLED: f64 = 20.0;
const MIN_MORE_THROTTLED: f64 = 10.0;
/// A machine swaps if it reads this many more pages a second from its swap space.
const MIN_SWAPPED: f64 = 50.0;
/// A member stands still if it falls this many milliseconds further behind.
const MIN_LAG_MS: f64 = 5_000.0;

/// A figure in the windows of both sides, those before it right before the span.
struct Course {
    before: Vec<f64>,
    after: Vec<(Timestamp, f64)>,
}

impl Course {
    /// The figure that `value` finds in windows; `None` if it is unknown on a side.
    fn new(sides: &Sides<'_>, value: impl Fn(&HistoryWindow) -> Option<f64>) -> Option<Self> {
        let recent = sides.windows(ComparedSpan::Recent).iter();
        let before: Vec<f64> = recent.filter_map(&value).collect();
        let windows = sides.windows(ComparedSpan::After).iter();
        let after: Vec<_> = windows.filter_map(|one| Some((one.window.start, value(one)?))).collect();
        (!before.is_empty() && !after.is_empty()).then_some(Self { before, after })
    }

    fn of(sides: &Sides<'_>, key: &SeriesKey) -> Option<Self> {
        Self::new(sides, |window| mean(window, key))
    }

    fn usual(&self) -> f64 {
        median(self.before.clone())
    }

    fn now(&self) -> f64 {
        median(self.after.iter().map(|(_, value)| *value).collect())
    }

    /// Whether it grew by at least `more`, and to at least `factor` times what it was.
    fn grew(&self, more: f64, factor: f64) -> bool {
        let (usual, now) = (self.usual(), self.now());
        now - usual >= more && now >= factor * usual
    }

    /// When it left the range that it had right before the span for more than half of the windows, upwards or not;
    /// `None` if it did not.
    fn left(&self, upwards: bool) -> Option<Timestamp> {
        let limit = self.before.iter().copied().reduce(if upwards { f64::max } else { f64::min })?;
        let is_beyond = |value: f64| if upwards { value > limit } else { value < limit };
        let beyond = self.after.iter().filter(|(_, value)| is_beyond(*value)).count();
        if beyond * 2 <= self.after.len() {
            return None;
        }
        let middle = f64::midpoint(self.usual(), self.now());
        let is_new = |value: f64| if upwards { value >= middle } else { value <= middle };
        let first = self.after.iter().position(|(_, value)| is_new(*value))?;
        // It may have begun within the window before, which then lies between both.
        let between = first.checked_sub(1).and_then(|at| self.after.get(at));
        let began = between.filter(|(_, value)| is_beyond(*value)).or_else(|| self.after.get(first))?;
        Some(began.0)
    }

    fn figure(&self, what: &'static str, unit: FigureUnit) -> MachineFigure {
        MachineFigure { what, unit, before: self.usual(), after: self.now() }
    }
}

fn mean(window: &HistoryWindow, key: &SeriesKey) -> Option<f64> {
    window.series.get(key).and_then(SeriesValue::mean)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The server of what is about none: the machine.
const MACHINE: Endpoint = Endpoint::v6([0; 16], 0);

/// What figures show of each server and of the machine, without effects yet.
pub(super) fn changes(sides: &Sides<'_>) -> Vec<HistoryChange> {
    let mut found = Vec::new();
    let mut add = |server, what: Option<(Timestamp, MachineChange)>| {
        found.extend(what.map(|(since, what)| HistoryChange::new(server, since, ChangeKind::Machine(what))));
    };
    add(MACHINE, page_cache(sides));
    add(MACHINE, swapping(sides));
    let mut without_cause = Vec::new();
    let mut taken = Vec::new();
    for server in servers(sides) {
        // A server that its own control group stops waits for that.
        match (throttled(sides, server), processors(sides, server)) {
            (Some(found), _) => add(server, Some(found)),
            (None, Some(found)) => taken.push((server, found)),
            (None, None) => without_cause.push(server),
        }
    }
    // All servers share the processors, however well the figures of each show who took them.
    without_cause.retain(|server| !takes_more(sides, *server));
    taken.sort_by_key(|(_, (since, _))| *since);
    for (number, (server, (since, what))) in taken.into_iter().enumerate() {
        let others = if number == 0 { std::mem::take(&mut without_cause) } else { Vec::new() };
        add(server, Some((since, MachineChange { others, ..what })));
    }
    // Each member may see the others.
    let mut told = BTreeSet::new();
    for key in keys(sides, &metrics::MEMBER_LAG) {
        let found = lag(sides, key).filter(|_| told.insert(&key.name));
        add(key.server, found);
    }
    found
}

/// The keys of a metric in the span.
fn keys<'a>(sides: &Sides<'a>, metric: &SeriesMetric) -> BTreeSet<&'a SeriesKey> {
    let windows = sides.windows(ComparedSpan::After).iter();
    windows.flat_map(|window| window.series.keys()).filter(|key| *key.metric == *metric.name).collect()
}

/// The servers whose processes were read.
fn servers(sides: &Sides<'_>) -> BTreeSet<Endpoint> {
    let of = [metrics::PROCESS_CPU_USER, metrics::CGROUP_THROTTLED_PERIODS];
    of.iter().flat_map(|metric| keys(sides, metric)).map(|key| key.server).collect()
}

fn shown_by(cause: MachineCause, figures: Vec<MachineFigure>) -> MachineChange {
    MachineChange { cause, name: "".into(), others: Vec::new(), figures }
}

fn page_cache(sides: &Sides<'_>) -> Option<(Timestamp, MachineChange)> {
    let cached = Course::of(sides, &metrics::MEMORY_CACHED.key(MACHINE, ""))?;
    let (usual, now) = (cached.usual(), cached.now());
    if usual - now < (MIN_DROP * usual).max(MIN_DROPPED_BYTES) {
        return None;
    }
    let figures = vec![cached.figure("page_cache_bytes", FigureUnit::Bytes)];
    Some((cached.left(false)?, shown_by(MachineCause::PageCache, figures)))
}

fn swapping(sides: &Sides<'_>) -> Option<(Timestamp, MachineChange)> {
    let pages = Course::of(sides, &metrics::MEMORY_SWAP_IN.key(MACHINE, ""))?;
    if pages.now() - pages.usual() < MIN_SWAPPED {
        return None;
    }
    let figures = vec![pages.figure("swap_in_per_second", FigureUnit::PerSecond)];
    Some((pages.left(true)?, shown_by(MachineCause::Swap, figures)))
}

/// How many processors a server uses.
fn used_by(window: &HistoryWindow, server: Endpoint) -> Option<f64> {
    let of_server = |metric: &SeriesMetric| mean(window, &metric.key(server, ""));
    Some((of_server(&metrics::PROCESS_CPU_USER)? + of_server(&metrics::PROCESS_CPU_SYSTEM)?) / 100.0)
}

/// Processors that all others used, and their threads that ran or were ready to run.
fn processors(sides: &Sides<'_>, server: Endpoint) -> Option<(Timestamp, MachineChange)> {
    let of_machine = |window: &HistoryWindow, metric: &SeriesMetric| mean(window, &metric.key(MACHINE, ""));
    let own = |window: &HistoryWindow| used_by(window, server);
    let all = |window: &HistoryWindow| {
        Some(of_machine(window, &metrics::CPU_BUSY)? / 100.0 * of_machine(window, &metrics::CPU_COUNT)?)
    };
    let count = Course::of(sides, &metrics::CPU_COUNT.key(MACHINE, ""))?.now().max(1.0);
    let busy = Course::new(sides, all)?;
    let taken = Course::new(sides, |window| Some((all(window)? - own(window)?).max(0.0)))?;
    let waiting = Course::new(sides, |window| {
        let waiting = mean(window, &metrics::PROCESS_RUN_QUEUE.key(server, "")).unwrap_or(0.0) / 100.0;
        Some((of_machine(window, &metrics::TASKS_RUNNING)? - own(window)? - waiting).max(0.0))
    });
    let has_taken = taken.grew(MIN_TAKEN, MIN_TAKEN_FACTOR);
    let has_waiting = waiting.as_ref().is_some_and(|one| one.grew(MIN_WAITING, MIN_WAITING_FACTOR));
    let is_full = busy.now() >= MIN_BUSY * count;
    let since = [
        taken.left(true).filter(|_| has_taken),
        waiting.as_ref().and_then(|one| one.left(true)).filter(|_| has_waiting),
    ];
    let since = since.into_iter().flatten().min().filter(|_| is_full)?;
    let mut figures = vec![taken.figure("processors_of_others", FigureUnit::Ratio)];
    figures.extend(waiting.map(|one| one.figure("threads_of_others", FigureUnit::Ratio)));
    figures.push(MachineFigure { what: "processors", unit: FigureUnit::Count, before: count, after: count });
    Some((since, shown_by(MachineCause::Processors, figures)))
}

/// Whether a server uses more processor time than before: then it may be who takes the processors.
fn takes_more(sides: &Sides<'_>, server: Endpoint) -> bool {
    let used = Course::new(sides, |window| used_by(window, server));
    used.is_none_or(|used| used.grew(MIN_TAKEN, MIN_TAKEN_FACTOR))
}

fn throttled(sides: &Sides<'_>, server: Endpoint) -> Option<(Timestamp, MachineChange)> {
    let periods = Course::of(sides, &metrics::CGROUP_THROTTLED_PERIODS.key(server, ""))?;
    let now = periods.now();
    if now < MIN_THROTTLED || now - periods.usual() < MIN_MORE_THROTTLED {
        return None;
    }
    let figures = vec![periods.figure("throttled_periods_percent", FigureUnit::Percent)];
    Some((periods.left(true)?, shown_by(MachineCause::Throttled, figures)))
}

fn lag(sides: &Sides<'_>, key: &SeriesKey) -> Option<(Timestamp, MachineChange)> {
    let lag = Course::of(sides, key)?;
    // It grows as long as the member stands still.
    let last = lag.after.last().map_or(0.0, |(_, value)| *value);
    let usual = lag.usual();
    if last - usual < MIN_LAG_MS || last < 2.0 * usual {
        return None;
    }
    let mut figure = lag.figure("lag_ms", FigureUnit::Milliseconds);
    figure.after = last;
    let limit = lag.before.iter().copied().fold(usual, f64::max);
    let since = lag.after.iter().find(|(_, value)| *value > limit).map(|(at, _)| *at)?;
    let what = MachineChange { name: key.name.clone(), ..shown_by(MachineCause::Lag, vec![figure]) };
    Some((since, what))
}

/// Whether it can hinder a server; `of` is the server whose figures show it.
pub(super) fn concerns(what: &MachineChange, of: Endpoint, server: Endpoint) -> bool {
    of == server || of == MACHINE || what.others.contains(&server)
}

/// How well it explains what a shape does, more is better; `None` if it cannot be the cause. Where the time of the
/// operations is known, what grew must be what the machine denied.
pub(super) fn explains(what: &MachineChange, shape: &ShapeChange) -> Option<u64> {
    let is_hindered = shape.ways.iter().any(|way| matches!(way, ShapeWay::Slower | ShapeWay::Stalled));
    if !is_hindered {
        return None;
    }
    match &shape.split {
        Some(split) => split.grown.iter().any(|grown| denies(what.cause, grown.what)).then_some(2),
        // Only writes wait for other members.
        None if what.cause == MachineCause::Lag => None,
        None => Some(1),
    }
}

/// Whether the time that grew is that of waits for what the machine denied.
fn denies(cause: MachineCause, grown: GrownTime) -> bool {
    match cause {
        MachineCause::Processors | MachineCause::Throttled => waits_for_processor(grown),
        MachineCause::PageCache | MachineCause::Swap => {
            matches!(grown, GrownTime::Part(TimePart::Read | TimePart::Fault))
        }
        MachineCause::Lag => grown == GrownTime::Part(TimePart::Poll),
    }
}

/// How much of the time of an operation of a shape grew because of it, in nanoseconds, as far as that is known; else 0.
pub(super) fn explained_ns(what: &MachineChange, change: &HistoryChange) -> u64 {
    let ChangeKind::Shape(shape) = &change.what else { return 0 };
    let Some(split) = &shape.split else { return 0 };
    let fitting = split.grown.iter().filter(|grown| denies(what.cause, grown.what));
    fitting.map(|grown| (grown.after_ns - grown.before_ns) as u64).sum()
}

/// Whether operations whose time grew so waited for a processor.
pub(super) fn waits_for_processor(grown: GrownTime) -> bool {
    matches!(grown, GrownTime::Part(TimePart::RunQueue | TimePart::Yield) | GrownTime::Unread)
}

/// Whether it is worth a line without any effect: a member that stands still will be missing.
pub(super) fn stands_alone(what: &MachineChange) -> bool {
    what.cause == MachineCause::Lag
}

/// Whether a series is what it is about, so that it is not listed a second time.
pub(super) fn is_about(what: &MachineChange, server: Endpoint, key: &SeriesKey) -> bool {
    let is_metric = |all: &[SeriesMetric]| all.iter().any(|metric| *key.metric == *metric.name);
    match what.cause {
        MachineCause::PageCache => is_metric(&[metrics::MEMORY_CACHED]),
        MachineCause::Swap => is_metric(&[metrics::MEMORY_SWAP_IN]),
        MachineCause::Processors => {
            is_metric(&[metrics::CPU_BUSY, metrics::CPU_USER, metrics::TASKS_RUNNING])
        }
        MachineCause::Throttled => {
            key.server == server && is_metric(&[metrics::CGROUP_THROTTLED, metrics::CGROUP_THROTTLED_PERIODS])
        }
        MachineCause::Lag => {
            key.subject == SeriesSubject::Member && key.name == what.name && is_metric(&[metrics::MEMBER_LAG])
        }
    }
}
