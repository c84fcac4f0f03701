//! Figures over time, and what is wrong with them.

use super::figure::{Figure, FigureLimits, LimitRule, SampleStep};
use super::{Distribution, FIGURES, Metric, ServerSample, Trend};

/// The most incidents that are kept.
const MAX_INCIDENTS: usize = 1_000;
/// A gap is longer than so many periods, and than [`MIN_GAP_MS`].
const GAP_PERIODS: i64 = 3;
const MIN_GAP_MS: i64 = 3_000;
/// Over a red limit for so long, in milliseconds, it is worth a look even if that is a small part of the time.
const LONG_MS: i64 = 10_000;
/// The 95th percentile is over a limit if it is passed for this share of the time.
const P95_SHARE: f64 = 0.05;

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
    /// Since when it has been over the limit.
    since: Option<i64>,
}

impl Exceedance {
    fn add(&mut self, is_over: bool, (from_ms, to_ms): (i64, i64)) {
        if !is_over {
            self.since = None;
            return;
        }
        let since = *self.since.get_or_insert(from_ms);
        self.total_ms += to_ms - from_ms;
        if to_ms - since > self.longest_ms {
            (self.longest_ms, self.longest_start_ms) = (to_ms - since, since);
        }
    }
}

/// What happened at one moment.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// In milliseconds since 1970.
    pub time_ms: i64,
    /// What it was.
    pub kind: IncidentKind,
}

/// What can happen at one moment.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum IncidentKind {
    /// Another process of the server.
    Restart,
    /// No sample for so many milliseconds: the server stalled, or the machine slept.
    Gap(i64),
    /// The server's state in its replica set changed, as `replSetGetStatus` numbers them.
    State {
        /// The state before.
        from: i64,
        /// The state after.
        to: i64,
    },
    /// The clock was set back by so many milliseconds.
    ClockBack(i64),
}

/// A figure over time.
#[derive(Clone, Debug)]
struct FigureSeries {
    distribution: Distribution,
    trend: Trend,
    amber: Exceedance,
    red: Exceedance,
}

/// Collects samples, which must come by time.
#[derive(Clone, Debug)]
pub struct Assessment {
    series: Vec<FigureSeries>,
    last: Option<ServerSample>,
    /// Milliseconds from one sample to the next, as it was last without a gap.
    period_ms: Option<i64>,
    first_ms: Option<i64>,
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
        };
        Self {
            series: vec![series; FIGURES.len()],
            last: None,
            period_ms: None,
            first_ms: None,
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
}

impl Assessment {
    /// Adds a sample. One that is not later than the last is only noted; one without a time is left out.
    pub fn add(&mut self, sample: &ServerSample) {
        let Some(now) = sample.get(Metric::Start) else { return };
        let before = self.last.take();
        let step_ms = before.as_ref().map(|before| now - before.time_ms());
        if let Some(back) = step_ms.filter(|step| *step <= 0) {
            if back < 0 {
                self.incident(now, IncidentKind::ClockBack(-back));
            }
            self.last = Some(sample.clone());
            return;
        }
        self.samples += 1;
        self.first_ms.get_or_insert(now);
        let same = before.filter(|before| self.is_same_process(before, sample));
        if let (Some(before), Some(step_ms)) = (&same, step_ms) {
            self.covered_ms += step_ms;
            match self.period_ms {
                Some(period) if step_ms > GAP_PERIODS * period && step_ms > MIN_GAP_MS => {
                    self.incident(before.time_ms(), IncidentKind::Gap(step_ms));
                }
                _ => self.period_ms = Some(step_ms),
            }
            if let (Some(from), Some(to)) = (before.state(), sample.state())
                && from != to
            {
                self.incident(now, IncidentKind::State { from, to });
            }
        }
        let span = (now - same.as_ref().and(step_ms).unwrap_or(0), now);
        let step = SampleStep { before: same.as_ref(), now: sample, seconds: (span.1 - span.0) as f64 / 1e3 };
        for (figure, series) in FIGURES.iter().zip(&mut self.series) {
            let value = (figure.value)(&step);
            if let Some(value) = value {
                series.distribution.add(value);
                series.trend.add(now, value);
            }
            if let Some(limits) = figure.limits {
                series.amber.add(value.is_some_and(|value| value >= limits.amber), span);
                series.red.add(value.is_some_and(|value| value >= limits.red), span);
            }
        }
        self.last = Some(sample.clone());
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

    /// Time of the first and of the last sample, in milliseconds since 1970.
    pub fn span_ms(&self) -> Option<(i64, i64)> {
        Some((self.first_ms?, self.last.as_ref()?.time_ms()))
    }

    /// The sample that came last.
    pub fn last(&self) -> Option<&ServerSample> {
        self.last.as_ref()
    }

    fn verdict(&self, series: &FigureSeries, limits: &FigureLimits) -> FigureVerdict {
        let is_over = |exceedance: &Exceedance| match limits.rule {
            LimitRule::P95 => exceedance.total_ms as f64 >= P95_SHARE * self.covered_ms.max(1) as f64,
            LimitRule::Any => exceedance.total_ms > 0,
        };
        match () {
            () if is_over(&series.red) => FigureVerdict::Red,
            () if is_over(&series.amber) || series.red.longest_ms >= LONG_MS => FigureVerdict::Amber,
            () => FigureVerdict::Ok,
        }
    }

    /// Whether both samples are of one process; otherwise it notes the restart.
    fn is_same_process(&mut self, before: &ServerSample, now: &ServerSample) -> bool {
        let changed = |metric| before.get(metric).zip(now.get(metric));
        let restarted = changed(Metric::Pid).is_some_and(|(before, now)| before != now)
            || changed(Metric::Uptime).is_some_and(|(before, now)| now < before);
        if restarted {
            self.incident(now.time_ms(), IncidentKind::Restart);
        }
        !restarted
    }

    fn incident(&mut self, time_ms: i64, kind: IncidentKind) {
        if self.incidents.len() < MAX_INCIDENTS {
            self.incidents.push(Incident { time_ms, kind });
        } else {
            self.incidents_other += 1;
        }
    }
}

#[cfg(test)]
mod tests {
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
            Exceedance { total_ms: 10_000, longest_ms: 10_000, longest_start_ms: 0, since: Some(0) }
        );
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
        assert_eq!(assessment.incidents(), [Incident { time_ms: 103_000, kind: IncidentKind::Restart }]);
    }

    #[test]
    fn gaps_clock_steps_and_states_are_incidents() {
        let mut assessment = Assessment::default();
        let member = |state| super::super::Member { state, is_self: true, ..Default::default() };
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
}
