//! The two sides of a comparison: their windows, and how long each source was observed.

use crate::figures::Figures;
use crate::history::{CollectorKind, Event, HistoryWindow, Span};
use crate::{Class, Endpoint, Role, Row, Source, Timestamp};

/// Windows right before the span: what changed at its beginning is compared with these.
pub const RECENT_WINDOWS: usize = 3;
/// The fewest earlier windows that tell what is usual.
pub const MIN_WINDOWS: usize = 3;

/// What the two sides of a comparison are.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ComparisonKind {
    /// A moment and the time before it: only what began in the moment counts.
    Moment,
    /// One of the blocks of a scan, and the time before it. What happened right before the block counts too: its
    /// neighbours may show too little of it.
    Block,
    /// Any two spans.
    Spans,
}

/// What is compared: windows by time, without those that nobody observed.
#[derive(Copy, Clone, Debug)]
pub struct ChangeInput<'a> {
    /// Before.
    pub before: &'a [HistoryWindow],
    /// After.
    pub after: &'a [HistoryWindow],
    /// Windows that follow [`after`](Self::after). Only the sizes of collections in them count, which are measured every
    /// few minutes.
    pub later: &'a [HistoryWindow],
    /// Events of both, by time.
    pub events: &'a [Event],
    /// Probability of a false alarm, over all tests together.
    pub alpha: f64,
}

impl ChangeInput<'_> {
    /// What the figures after are compared with: the windows right before them, as many as they are, or all of the time
    /// before where that does not end there. The rest of it shows what is usual. `None` without any window before.
    pub fn recent(&self) -> Option<Span> {
        Sides::new(self).recent()
    }
}

/// When the first operation had begun at the latest: the first one that ended took at least as long as the shortest one.
/// Exact if there is only one, or if all took as long.
pub(super) fn first_began(figures: &Figures) -> Timestamp {
    let shortest = figures.latency.min_ns().unwrap_or(0);
    figures.first_seen.minus_ns(shortest)
}

/// A side of a comparison.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum ComparedSpan {
    Before,
    /// The end of the time before, if the span follows it directly; else all of it.
    Recent,
    After,
}

/// Both sides.
#[derive(Copy, Clone, Debug)]
pub(super) struct Sides<'a> {
    input: ChangeInput<'a>,
    /// Index of the first window of [`ComparedSpan::Recent`].
    recent: usize,
    /// Whether the span follows the time before it directly.
    pub is_adjacent: bool,
    /// Width of the widest window in nanoseconds.
    pub width_ns: u64,
}

/// The sources that are judged, with their collectors, the one with the most precise latencies first.
pub(super) const SOURCES: [(Source, CollectorKind); 2] =
    [(Source::Wire, CollectorKind::Queries), (Source::Log, CollectorKind::Log)];

/// The operations of users that servers served in a window, without those that mongosonar alone ran: what it asks is no
/// change of a server.
pub(super) fn served(window: &HistoryWindow) -> impl Iterator<Item = &Row> {
    let is_of_users = |row: &&Row| row.class == Class::User && row.role == Role::Served;
    window.window.shapes.iter().filter(is_of_users).filter(|row| !is_own(row))
}

/// Whether mongosonar ran all operations of a row, as far as their applications are known.
fn is_own(row: &Row) -> bool {
    let apps = &row.observed().apps;
    !apps.is_empty() && apps.other.calls == 0 && apps.iter().all(|(app, _)| app.is_own())
}

fn collector_of(source: Source) -> Option<CollectorKind> {
    SOURCES.iter().find(|(one, _)| *one == source).map(|(_, collector)| *collector)
}

/// A server as a source sees it.
#[derive(Copy, Clone, Debug)]
pub(super) struct SeenServer {
    pub source: Source,
    pub server: Endpoint,
}

impl SeenServer {
    /// Nanoseconds of a window in which it was observed.
    pub fn ns(self, window: &HistoryWindow) -> u64 {
        collector_of(self.source).map_or(0, |collector| window.observed_of(collector, self.server))
    }

    /// The same in seconds.
    pub fn seconds(self, window: &HistoryWindow) -> f64 {
        self.ns(window) as f64 / 1e9
    }

    /// Whether it was observed in most of a window.
    pub fn is_observed(self, window: &HistoryWindow) -> bool {
        self.ns(window).saturating_mul(2) >= window.window.length_ns()
    }
}

impl<'a> Sides<'a> {
    pub fn new(input: &ChangeInput<'a>) -> Self {
        let all = || input.before.iter().chain(input.after);
        let width_ns = all().map(|window| window.window.length_ns()).max().unwrap_or(1);
        let (last, first) = (input.before.last(), input.after.first());
        let is_adjacent = last.zip(first).is_some_and(|(last, first)| {
            first.window.start.since(last.window.end) <= width_ns.saturating_mul(2)
                && last.window.start < first.window.start
        });
        let recent = input.after.len().max(RECENT_WINDOWS);
        let recent = if is_adjacent { input.before.len().saturating_sub(recent) } else { 0 };
        Self { input: *input, recent, is_adjacent, width_ns }
    }

    pub fn windows(&self, side: ComparedSpan) -> &'a [HistoryWindow] {
        match side {
            ComparedSpan::Before => self.input.before,
            ComparedSpan::Recent => &self.input.before[self.recent..],
            ComparedSpan::After => self.input.after,
        }
    }

    /// The windows in which only the sizes of collections count.
    pub fn later(&self) -> &'a [HistoryWindow] {
        self.input.later
    }

    /// The windows right before the span with which it is compared; all of the time before if it does not follow the span
    /// directly. `None` if there are none.
    pub fn recent(&self) -> Option<Span> {
        let recent = self.windows(ComparedSpan::Recent);
        let (first, last) = (recent.first()?, recent.last()?);
        Some(Span { from: first.window.start, to: last.window.end })
    }

    pub fn events(&self) -> &'a [Event] {
        self.input.events
    }

    pub fn alpha(&self) -> f64 {
        self.input.alpha
    }

    /// Seconds in which a server was observed.
    pub fn seconds(&self, side: ComparedSpan, seen: SeenServer) -> f64 {
        self.windows(side).iter().map(|window| seen.seconds(window)).sum()
    }

    /// Seconds of the time after in which a server was observed since `at`: the last window of an agent is hardly observed.
    pub fn observed_s_since(&self, at: Timestamp, seen: SeenServer) -> f64 {
        let of = |window: &HistoryWindow| {
            let since = window.window.end.since(at.max(window.window.start));
            seen.ns(window).min(since) as f64 / 1e9
        };
        self.windows(ComparedSpan::After).iter().map(of).sum()
    }

    /// Whether enough of any server was observed before to say what is usual.
    pub fn knows_before(&self, source: Source) -> bool {
        let Some(collector) = collector_of(source) else { return false };
        self.has_enough(|window| window.observed_ns(collector))
    }

    /// Whether enough of this server was.
    pub fn knows_server_before(&self, seen: SeenServer) -> bool {
        self.has_enough(|window| seen.ns(window))
    }

    fn has_enough(&self, observed_ns: impl Fn(&HistoryWindow) -> u64) -> bool {
        let windows = self.windows(ComparedSpan::Before).iter();
        windows.filter(|window| observed_ns(window) > 0).count() >= MIN_WINDOWS
    }

    /// The probability that all of `count` things happened after, if they are as likely before.
    pub fn all_after(&self, seen: SeenServer, count: u64) -> f64 {
        let (before, after) =
            (self.seconds(ComparedSpan::Before, seen), self.seconds(ComparedSpan::After, seen));
        if before <= 0.0 || after <= 0.0 {
            return 1.0;
        }
        (after / (before + after)).powf(count as f64)
    }

    /// The span of the time after.
    pub fn span(&self) -> Span {
        let from = self.input.after.first().map_or(Timestamp::default(), |window| window.window.start);
        Span { from, to: self.input.after.last().map_or(from, |window| window.window.end) }
    }

    /// The span and a window more on both ends: how exactly the time of a change is known.
    pub fn around(&self, span: Span) -> Span {
        let from = span.from.minus_ns(self.width_ns);
        Span { from, to: span.to.plus_ns(self.width_ns) }
    }
}
