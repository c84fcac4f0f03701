//! Figures over time, and what is wrong with them.

use std::borrow::Cow;

use super::figure::{Figure, FigureLimits, LimitRule};
use super::sequence::{Incident, SampleSequence};
use super::server_share::ServerShare;
use super::{Distribution, FIGURES, ServerSample, Trend};

/// The most incidents that are kept.
const MAX_INCIDENTS: usize = 1_000;
/// Time over a red limit, in milliseconds, that is worth a look even if it is a small part of the whole time.
const LONG_MS: i64 = 10_000;
/// A limit counts if it is passed for this share of the time.
const LASTING_SHARE: f64 = 0.05;
/// How bad it is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FigureVerdict {
    /// Nothing to see.
    Ok,
    /// Deserves attention.
    Amber,
    /// A problem.
    Red,
}

impl FigureVerdict {
    /// As reports write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Amber => "amber",
            Self::Red => "red",
        }
    }
}

/// For how long a figure was over a limit.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Exceedance {
    /// All in all, in milliseconds.
    pub total_ms: i64,
    /// The longest time without a break, in milliseconds.
    pub longest_ms: i64,
    /// When that began, in milliseconds since 1970.
    pub longest_start_ms: i64,
    /// Since when it has been passed, and until when that is known.
    open: Option<(i64, i64)>,
}

impl Exceedance {
    fn add(&mut self, is_passed: bool, from_ms: i64, to_ms: i64) {
        // A gap ends it.
        let before = self.open.take().filter(|(_, until)| *until == from_ms);
        if !is_passed {
            return;
        }
        let since = before.map_or(from_ms, |(since, _)| since);
        self.open = Some((since, to_ms));
        self.total_ms = self.total_ms.saturating_add(to_ms - from_ms);
        if to_ms - since > self.longest_ms {
            (self.longest_ms, self.longest_start_ms) = (to_ms - since, since);
        }
    }
}

/// A figure over time.
#[derive(Clone, Debug)]
struct FigureSeries {
    distribution: Distribution,
    trend: Trend,
    amber: Exceedance,
    red: Exceedance,
    /// Whose the time over the amber limit was.
    share: ServerShare,
}

/// Collects samples, which must come by time.
#[derive(Clone, Debug)]
pub struct Assessment {
    series: Vec<FigureSeries>,
    sequence: SampleSequence,
    /// The earliest and the latest time of a sample: a clock may be set back.
    span_ms: Option<(i64, i64)>,
    incidents: Vec<Incident>,
    /// Incidents beyond those that are kept.
    incidents_other: u64,
    samples: u64,
    /// Milliseconds between samples of one process.
    covered_ms: i64,
}

impl Default for Assessment {
    fn default() -> Self {
        let series = FigureSeries {
            distribution: Distribution::default(),
            trend: Trend::default(),
            amber: Exceedance::default(),
            red: Exceedance::default(),
            share: ServerShare::default(),
        };
        Self {
            series: vec![series; FIGURES.len()],
            sequence: SampleSequence::default(),
            span_ms: None,
            incidents: Vec::new(),
            incidents_other: 0,
            samples: 0,
            covered_ms: 0,
        }
    }
}

/// A figure, and how it was over the time.
#[derive(Clone, Debug)]
pub struct Judged<'a> {
    /// Which.
    pub figure: &'static Figure,
    /// Median, 95th percentile and largest value.
    pub quantiles: [f64; 3],
    /// Number of values.
    pub count: u64,
    /// `None` for a figure without limits.
    pub verdict: Option<FigureVerdict>,
    /// For how long it was over the amber limit.
    pub amber: Exceedance,
    /// For how long it was over the red limit.
    pub red: Exceedance,
    /// Its values over time.
    pub trend: &'a Trend,
    /// Whose the time over the amber limit was.
    share: ServerShare,
}

impl Judged<'_> {
    /// What it means to be over the limit, and what to look at next; of processor time also whose it was. Empty for a
    /// figure without limits.
    pub fn meaning(&self) -> Cow<'static, str> {
        match self.share.meaning(self.figure.id) {
            Some(meaning) => meaning.into(),
            None => self.figure.limits.map_or("", |limits| limits.meaning).into(),
        }
    }
}

impl Assessment {
    /// Samples between the last one and the next one are lost, because a part of a file is damaged.
    pub fn lose(&mut self) {
        self.sequence.lose();
    }

    /// Adds a sample. One that is not later than the last is only noted; one without a possible time is left out.
    pub fn add(&mut self, sample: &ServerSample) {
        let Self { series, sequence, span_ms, incidents, incidents_other, samples, covered_ms } = self;
        let note = |incident| {
            if incidents.len() < MAX_INCIDENTS {
                incidents.push(incident);
            } else {
                *incidents_other += 1;
            }
        };
        sequence.add(sample, note, |step, length| {
            let now = step.now.time_ms();
            *samples += 1;
            *covered_ms = covered_ms.saturating_add(length);
            for (figure, series) in FIGURES.iter().zip(series.iter_mut()) {
                let value = (figure.value)(step);
                if let Some(value) = value {
                    series.distribution.add(value);
                    series.trend.add(now, value);
                }
                if let Some(limits) = figure.limits {
                    let passes = |limit| value.is_some_and(|value| limits.is_passed(limit, value));
                    if passes(limits.amber) {
                        series.share.add(figure.id, step);
                    }
                    series.amber.add(passes(limits.amber), now - length, now);
                    series.red.add(passes(limits.red), now - length, now);
                }
            }
        });
        if let Some(last) = sequence.last() {
            let now = last.time_ms();
            *span_ms = Some(span_ms.map_or((now, now), |(from, to)| (from.min(now), to.max(now))));
        }
        while series.iter().any(|series| series.trend.is_full()) {
            series.iter_mut().for_each(|series| series.trend.widen());
        }
    }

    /// Figures of which there is a value, by group.
    pub fn judged(&self) -> impl Iterator<Item = Judged<'_>> {
        FIGURES.iter().zip(&self.series).filter_map(|(figure, series)| {
            Some(Judged {
                figure,
                quantiles: series.distribution.quantiles([0.5, 0.95, 1.0])?,
                count: series.distribution.count(),
                verdict: figure.limits.map(|limits| self.verdict(series, &limits)),
                amber: series.amber,
                red: series.red,
                trend: &series.trend,
                share: series.share,
            })
        })
    }

    /// Starts of the server, gaps and the like, in the order of the samples.
    pub fn incidents(&self) -> &[Incident] {
        &self.incidents
    }

    /// Number of incidents beyond those that are kept.
    pub fn incidents_other(&self) -> u64 {
        self.incidents_other
    }

    /// Number of samples.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The earliest and the latest time of a sample, in milliseconds since 1970.
    pub fn span_ms(&self) -> Option<(i64, i64)> {
        self.span_ms
    }

    /// The sample that came last.
    pub fn last(&self) -> Option<&ServerSample> {
        self.sequence.last()
    }

    fn verdict(&self, series: &FigureSeries, limits: &FigureLimits) -> FigureVerdict {
        let counts = |exceedance: &Exceedance| match limits.rule {
            LimitRule::Lasting => {
                let least = LASTING_SHARE * self.covered_ms.max(1) as f64;
                exceedance.total_ms as f64 >= least && exceedance.total_ms > 0
            }
            LimitRule::Any => exceedance.total_ms > 0,
        };
        match () {
            () if counts(&series.red) => FigureVerdict::Red,
            () if counts(&series.amber) || series.red.longest_ms >= LONG_MS => FigureVerdict::Amber,
            () => FigureVerdict::Ok,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DiskSample, IncidentKind, Member, Metric, MountSample};
    use super::*;

    /// A sample of second `second` with an uptime to match.
    fn sample(second: i64, metrics: &[(Metric, i64)]) -> ServerSample {
        let mut sample = ServerSample::default();
        sample.set(Metric::Start, Some(second * 1_000));
        sample.set(Metric::Uptime, Some(second * 1_000));
        sample.set(Metric::Pid, Some(1));
        for (metric, value) in metrics {
            sample.set(*metric, Some(*value));
        }
        sample
    }

    fn judged<'a>(assessment: &'a Assessment, id: &str) -> Judged<'a> {
        assessment.judged().find(|judged| judged.figure.id == id).unwrap()
    }

    /// The cache is used to `used` per cent, second by second.
    fn cache(used: impl IntoIterator<Item = i64>) -> Assessment {
        let mut assessment = Assessment::default();
        for (second, used) in used.into_iter().enumerate() {
            assessment
                .add(&sample(second as i64, &[(Metric::CacheBytes, used), (Metric::CacheMaximum, 100)]));
        }
        assessment
    }

    #[test]
    fn counters_become_rates_and_latencies_means() {
        let mut assessment = Assessment::default();
        for second in 0..=10 {
            let counters = [
                (Metric::Queries, second * 50),
                (Metric::ReadLatency, second * 300_000),
                (Metric::ReadOperations, second * 10),
            ];
            assessment.add(&sample(second, &counters));
        }
        assert_eq!(judged(&assessment, "operations.queries").quantiles, [50.0; 3]);
        let latency = judged(&assessment, "latency.reads");
        assert_eq!((latency.quantiles, latency.verdict), ([30.0; 3], Some(FigureVerdict::Amber)));
        assert_eq!(
            latency.amber,
            Exceedance { total_ms: 10_000, longest_ms: 10_000, longest_start_ms: 0, open: Some((0, 10_000)) }
        );
    }

    #[test]
    fn busy_processors_are_those_of_whoever_used_them_while_they_were_busy() {
        let mut assessment = Assessment::default();
        let (mut all, mut own) = (0, 0);
        for second in 0..=100 {
            let metrics = [
                (Metric::CpuUser, all),
                (Metric::CpuIdle, 2_000 * second - all),
                (Metric::ServerUserTime, own),
            ];
            assessment.add(&sample(second, &metrics));
            // The server works alone for a while, and then something else does.
            (all, own) = if second < 50 { (all + 600, own + 600_000) } else { (all + 1_900, own + 95_000) };
        }
        let found = judged(&assessment, "processor.user");
        assert_eq!(found.verdict, Some(FigureVerdict::Red));
        assert!(found.meaning().contains("only 5 % of this time was the server's"), "{}", found.meaning());
    }

    #[test]
    fn a_limit_counts_if_it_is_passed_for_a_twentieth_of_the_time() {
        let over =
            |seconds: usize| (0..=1_000).map(move |second| if second % 100 < seconds { 96 } else { 50 });
        assert_eq!(judged(&cache(over(6)), "cache.used").verdict, Some(FigureVerdict::Red));
        assert_eq!(judged(&cache(over(4)), "cache.used").verdict, Some(FigureVerdict::Ok));
        let once = (0..=1_000).map(|second| if (500..511).contains(&second) { 96 } else { 50 });
        let assessment = cache(once);
        let found = judged(&assessment, "cache.used");
        assert_eq!(found.verdict, Some(FigureVerdict::Amber), "eleven seconds on end");
        assert_eq!((found.red.longest_ms, found.red.longest_start_ms), (11_000, 499_000));
    }

    #[test]
    fn a_restart_ends_a_counter_and_is_an_incident() {
        let mut assessment = Assessment::default();
        for (second, queries) in [(100, 5_000), (101, 5_010)] {
            assessment.add(&sample(second, &[(Metric::Queries, queries)]));
        }
        let mut restarted = sample(103, &[(Metric::Queries, 7_000), (Metric::Pid, 2)]);
        restarted.set(Metric::Uptime, Some(500));
        assessment.add(&restarted);
        assert_eq!(judged(&assessment, "operations.queries").quantiles[2], 10.0);
        assert_eq!(
            assessment.incidents(),
            [Incident { time_ms: 103_000, kind: IncidentKind::Restart(2_000) }]
        );
    }

    #[test]
    fn gaps_clock_steps_and_states_are_incidents() {
        let mut assessment = Assessment::default();
        let member = |state| Member { state, is_self: true, ..Default::default() };
        for (second, state) in [(1, 2), (2, 2), (3, 1), (9, 1), (7, 1), (8, 1)] {
            let mut sample = sample(second, &[]);
            sample.set(Metric::Uptime, None);
            sample.members.push(member(state));
            assessment.add(&sample);
        }
        let found: Vec<_> =
            assessment.incidents().iter().map(|incident| (incident.time_ms, incident.kind)).collect();
        assert_eq!(
            found,
            [
                (3_000, IncidentKind::State { from: 2, to: 1 }),
                (3_000, IncidentKind::Gap(6_000)),
                (7_000, IncidentKind::ClockBack(2_000)),
            ]
        );
        assert_eq!(assessment.samples(), 5);
    }

    #[test]
    fn what_a_server_does_not_report_is_no_figure() {
        let assessment = cache([10, 20]);
        let ids: Vec<_> = assessment.judged().map(|judged| judged.figure.id).collect();
        assert_eq!(ids, ["cache.used"]);
    }

    #[test]
    fn a_gap_is_no_time_over_a_limit() {
        let mut assessment = Assessment::default();
        for (second, queued) in [(0, 0), (1, 0), (2, 9), (3, 9), (603, 9), (604, 0)] {
            assessment.add(&sample(second, &[(Metric::QueuedTotal, queued), (Metric::Processors, 1)]));
        }
        let red = judged(&assessment, "queues.lock").red;
        assert_eq!((red.total_ms, red.longest_ms, red.longest_start_ms), (3_000, 2_000, 1_000));
        assert_eq!(assessment.incidents(), [Incident { time_ms: 3_000, kind: IncidentKind::Gap(600_000) }]);
    }

    #[test]
    fn samples_that_are_lost_are_no_stall() {
        let mut assessment = Assessment::default();
        (1..=2).for_each(|second| assessment.add(&sample(second, &[])));
        assessment.lose();
        (62..=63).for_each(|second| assessment.add(&sample(second, &[])));
        assert_eq!(assessment.incidents(), [Incident { time_ms: 2_000, kind: IncidentKind::Lost(60_000) }]);
    }

    #[test]
    fn another_period_is_noticed() {
        let mut assessment = Assessment::default();
        (0..10).chain((20..200).step_by(10)).for_each(|second| assessment.add(&sample(second, &[])));
        assert!(assessment.incidents().len() <= 3, "{:?}", assessment.incidents());
    }

    #[test]
    fn a_restart_is_seen_though_the_clock_was_set_back() {
        let mut assessment = Assessment::default();
        assessment.add(&sample(100, &[]));
        assessment.add(&sample(90, &[(Metric::Pid, 2)]));
        assert_eq!(assessment.incidents(), [Incident { time_ms: 90_000, kind: IncidentKind::Restart(0) }]);
    }

    #[test]
    fn a_clock_that_was_set_back_is_no_restart() {
        let mut assessment = Assessment::default();
        let with_uptime = |second, uptime_ms| sample(second, &[(Metric::Uptime, uptime_ms)]);
        for (second, uptime_ms) in [(100, 90_010), (101, 91_004), (41, 31_020), (42, 32_003)] {
            assessment.add(&with_uptime(second, uptime_ms));
        }
        assert_eq!(
            assessment.incidents(),
            [Incident { time_ms: 41_000, kind: IncidentKind::ClockBack(60_000) }]
        );
        // A server in a container has the same pid again.
        assessment.add(&with_uptime(50, 3_000));
        let last = assessment.incidents().last().copied();
        assert_eq!(last, Some(Incident { time_ms: 50_000, kind: IncidentKind::Restart(8_000) }));
    }

    #[test]
    fn too_short_an_oplog_is_worth_a_look() {
        let mut assessment = Assessment::default();
        for second in 0..20 {
            let now = 1_000_000 + second;
            assessment
                .add(&sample(second, &[(Metric::LatestOptime, now), (Metric::EarliestOptime, now - 7_200)]));
        }
        assert_eq!(judged(&assessment, "replication.oplog_window").verdict, Some(FigureVerdict::Amber));
    }

    #[test]
    fn trends_keep_one_width() {
        let mut assessment = Assessment::default();
        for second in 0..3_000 {
            let mut metrics = vec![(Metric::CursorsOpen, 1)];
            metrics.extend((second % 7 == 0).then_some((Metric::Connections, 1)));
            assessment.add(&sample(second, &metrics));
        }
        let widths = ["cursors.open", "connections.open"].map(|id| judged(&assessment, id).trend.width_ms());
        assert_eq!(widths, [4_000; 2]);
    }

    #[test]
    fn no_numbers_panic() {
        let extremes = [i64::MIN, -1, 0, 1, i64::MAX - 1, i64::MAX];
        let mut assessment = Assessment::default();
        for first in extremes {
            for second in extremes {
                let metrics: Vec<_> = Metric::ALL.iter().map(|metric| (*metric, second)).collect();
                let mut sample = sample(0, &metrics);
                sample.set(Metric::Start, Some(first));
                let disk = DiskSample {
                    name: "a".into(),
                    operations: second,
                    time_ms: first,
                    busy_ms: second,
                    queued_ms: first,
                    in_flight: second,
                };
                sample.disks.push(disk);
                sample.mounts.push(MountSample { path: "/".into(), capacity: first, free: second });
                let member = |state, optime_ms| Member { state, healthy: true, is_self: false, optime_ms };
                sample.members.extend([member(1, first), member(2, second)]);
                assessment.add(&sample);
            }
        }
        assert!(assessment.judged().all(|judged| judged.count > 0));
    }
}
