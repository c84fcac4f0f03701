//! What a figure is.

use super::{Metric, ServerSample};
use crate::disk::possible_busy_ms;

/// What a figure belongs to, in the order in which reports show them.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum FigureGroup {
    Operations,
    Latency,
    Queries,
    Cache,
    Tickets,
    Checkpoints,
    Connections,
    Replication,
    Memory,
    Processor,
    Disk,
    Network,
    Errors,
    Collector,
}

impl FigureGroup {
    /// As reports write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operations => "operations",
            Self::Latency => "latency",
            Self::Queries => "queries",
            Self::Cache => "cache",
            Self::Tickets => "tickets and queues",
            Self::Checkpoints => "checkpoints and journal",
            Self::Connections => "connections and cursors",
            Self::Replication => "replication",
            Self::Memory => "memory",
            Self::Processor => "processor",
            Self::Disk => "disk",
            Self::Network => "network",
            Self::Errors => "errors",
            Self::Collector => "diagnostic data itself",
        }
    }
}

/// What a figure counts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FigureUnit {
    Count,
    PerSecond,
    Bytes,
    BytesPerSecond,
    Milliseconds,
    Percent,
    /// How many of one for each of another.
    Ratio,
}

impl FigureUnit {
    /// As JSON and CSV name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::PerSecond => "per_second",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes_per_second",
            Self::Milliseconds => "milliseconds",
            Self::Percent => "percent",
            Self::Ratio => "ratio",
        }
    }
}

/// How long a limit must be passed to count.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum LimitRule {
    /// For 5 % of the time; a red limit also for ten seconds on end.
    Lasting,
    /// At any moment.
    Any,
}

/// From where on a figure is worth a look, and why.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct FigureLimits {
    /// From here on it deserves attention.
    pub amber: f64,
    /// From here on it is a problem.
    pub red: f64,
    /// Smaller values are worse.
    pub below: bool,
    /// For how long.
    pub rule: LimitRule,
    /// What it means to be over the limit, and what to look at next.
    pub meaning: &'static str,
    /// Who judges so.
    pub source: &'static str,
}

impl FigureLimits {
    /// Whether a value passes `limit`, which is one of the two.
    pub fn is_passed(&self, limit: f64, value: f64) -> bool {
        if self.below { value <= limit } else { value >= limit }
    }
}

/// A value that is derived from the metrics of one or two samples.
#[derive(Copy, Clone, Debug)]
pub struct Figure {
    /// Stable name for programs.
    pub id: &'static str,
    /// What it belongs to.
    pub group: FigureGroup,
    /// Name for people.
    pub title: &'static str,
    /// What it counts.
    pub unit: FigureUnit,
    /// `None` where the server does not report what it needs, and where it says nothing, as a ratio to none.
    pub value: fn(&SampleStep<'_>) -> Option<f64>,
    /// `None` for a figure that has no good or bad.
    pub limits: Option<FigureLimits>,
}

/// Two consecutive samples of one process, or one sample alone.
#[derive(Copy, Clone, Debug)]
pub struct SampleStep<'a> {
    /// `None` after a start of the server.
    pub before: Option<&'a ServerSample>,
    /// The later sample.
    pub now: &'a ServerSample,
    /// Seconds between them; 0 without an earlier one.
    pub seconds: f64,
}

impl SampleStep<'_> {
    /// A metric of the later sample.
    pub fn gauge(&self, metric: Metric) -> Option<f64> {
        self.now.get(metric).map(|value| value as f64)
    }

    /// By how much a counter grew; `None` if it fell, which it does when it is reset.
    pub fn growth(&self, metric: Metric) -> Option<f64> {
        growth(self.now.get(metric)?, self.before?.get(metric)?)
    }

    /// By how much counters grew together. Counters that the server does not report count as 0; `None` if it reports
    /// none of them.
    pub fn growth_of(&self, metrics: &[Metric]) -> Option<f64> {
        metrics.iter().filter_map(|metric| self.growth(*metric)).reduce(|sum, growth| sum + growth)
    }

    /// By how much a counter grew each second.
    pub fn rate(&self, metric: Metric) -> Option<f64> {
        Some(self.growth(metric)? / self.positive_seconds()?)
    }

    /// Per cent of one gauge in another.
    pub fn percent(&self, part: Metric, whole: Metric) -> Option<f64> {
        over(100.0 * self.gauge(part)?, self.gauge(whole)?)
    }

    /// Growth of one counter for each of another.
    pub fn per(&self, sum: Metric, count: Metric) -> Option<f64> {
        over(self.growth(sum)?, self.growth(count)?)
    }

    /// The seconds between the samples, if there are any.
    pub fn positive_seconds(&self) -> Option<f64> {
        (self.seconds > 0.0).then_some(self.seconds)
    }

    /// Per cent of the time of all processors.
    pub fn processor(&self, of: &[Metric]) -> Option<f64> {
        use Metric::{CpuIdle, CpuIoWait, CpuIrq, CpuNice, CpuSoftIrq, CpuSteal, CpuSystem, CpuUser};
        let all = [CpuUser, CpuNice, CpuSystem, CpuIdle, CpuIoWait, CpuIrq, CpuSoftIrq, CpuSteal];
        over(100.0 * self.growth_of(of)?, self.growth_of(&all)?)
    }

    /// Processors that the server may run on; those of the machine if it does not say so.
    pub fn usable_processors(&self) -> Option<f64> {
        let available = self.gauge(Metric::ProcessorsAvailable);
        let available = available.or(self.now.bounds.processors.map(|count| count as f64));
        let machine = self.gauge(Metric::Processors);
        available.into_iter().chain(machine).filter(|count| *count > 0.0).min_by(f64::total_cmp)
    }

    /// Memory in KiB that the server may use: that of the machine, at most what its control group allows.
    pub fn usable_memory_kib(&self) -> Option<f64> {
        let limit = self.now.bounds.memory_kib.map(|kib| kib as f64);
        limit
            .into_iter()
            .chain(self.gauge(Metric::MemoryTotal))
            .filter(|kib| *kib > 0.0)
            .min_by(f64::total_cmp)
    }

    /// The largest value of all disks, from their counters before and now.
    pub fn worst_disk(&self, value: impl Fn(DiskGrowth) -> Option<f64>) -> Option<f64> {
        let before = self.before?;
        let growths = self.now.disks.iter().enumerate().filter_map(|(place, now)| {
            // Disks hardly ever change their places, and a machine can have very many.
            let same_place = before.disks.get(place).filter(|disk| disk.name == now.name);
            let before = same_place.or_else(|| before.disks.iter().find(|disk| disk.name == now.name))?;
            let growth = |of: fn(&super::DiskSample) -> i64| growth(of(now), of(before));
            let (queued_ms, elapsed_ms) = (growth(|disk| disk.queued_ms)?, self.seconds * 1e3);
            // One that was never counted is not counted.
            let known_queue_ms = (now.queued_ms > 0).then_some(queued_ms);
            let in_flight = now.in_flight.max(0) as f64;
            let busy_ms = growth(|disk| disk.busy_ms)?;
            Some(DiskGrowth {
                operations: growth(|disk| disk.operations)?,
                time_ms: growth(|disk| disk.time_ms)?,
                busy_ms: possible_busy_ms(busy_ms, known_queue_ms, in_flight, elapsed_ms),
                queued_ms,
            })
        });
        growths.filter_map(value).reduce(f64::max)
    }
}

/// What the counters of a disk grew by; see [`DiskSample`](super::DiskSample). `busy_ms` is at most what its requests
/// allow ([`possible_busy_ms`]).
#[derive(Copy, Clone, Debug)]
#[allow(missing_docs)]
pub struct DiskGrowth {
    pub operations: f64,
    pub time_ms: f64,
    pub busy_ms: f64,
    pub queued_ms: f64,
}

/// By how much a counter of a server grew; `None` if it fell, as in [`counter`](crate::counter).
fn growth(now: i64, before: i64) -> Option<f64> {
    now.checked_sub(before).filter(|growth| *growth >= 0).map(|growth| growth as f64)
}

/// A quotient; `None` if it has no value.
pub(crate) fn over(dividend: f64, divisor: f64) -> Option<f64> {
    (divisor > 0.0).then(|| dividend / divisor)
}
