//! The cost of a profiler setting: how it is measured and how the measurement is evaluated.
//!
//! A machine's speed drifts (caches fill, other guests come and go). Settings are therefore measured
//! alternately, in short slices, and only slices of the same round are compared. The order within a
//! round is random and the next round reverses it, so that a steady drift affects all settings equally.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::Histogram;
use crate::counter::growth;
use crate::time::NS_PER_S;

/// One setting that is measured.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    /// Profiling level, 0 to 2.
    pub level: i32,
    /// Percona Server's `rateLimit`; `None` leaves it alone.
    pub rate_limit: Option<i64>,
}

impl std::fmt::Display for Variant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.rate_limit {
            Some(limit) => write!(f, "{} 1/{limit}", self.level),
            None => write!(f, "{}", self.level),
        }
    }
}

/// A random order of `variants` settings for each of `rounds` rounds; every second round is the reverse of the
/// one before it. The same `seed` gives the same orders.
pub fn alternation(variants: usize, rounds: usize, seed: u64) -> Vec<Vec<usize>> {
    let mut random = SplitMix64(seed);
    let mut plan: Vec<Vec<usize>> = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..variants).collect();
        match plan.last() {
            Some(last) if round % 2 == 1 => order = last.iter().rev().copied().collect(),
            _ => {
                for at in (1..order.len()).rev() {
                    order.swap(at, (random.next() % (at as u64 + 1)) as usize);
                }
            }
        }
        plan.push(order);
    }
    plan
}

/// A small generator of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// The next number.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Counters of server and host at one moment; `None` if unknown.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct ImpactCounters {
    /// Processor time of the server, in nanoseconds.
    pub server_cpu_ns: Option<u64>,
    /// Processor time of this program, which makes the load, in nanoseconds.
    pub client_cpu_ns: Option<u64>,
    /// Busy time of all processors of this host together, in nanoseconds.
    pub host_busy_ns: Option<u64>,
    /// Bytes that the server's storage engine wrote to its data files and journal.
    pub written_bytes: Option<u64>,
    /// Busy time of the busiest disk of this host, in nanoseconds.
    pub disk_busy_ns: Option<u64>,
    /// Sum of the times of all requests of that disk, in nanoseconds; `None` if the kernel does not count it.
    pub disk_queue_ns: Option<u64>,
    /// Size of the server's log file in bytes.
    pub log_bytes: Option<u64>,
    /// Time that the server's operations waited for locks, in microseconds.
    pub lock_wait_us: Option<u64>,
    /// How many times they waited.
    pub lock_waits: Option<u64>,
}

impl ImpactCounters {
    /// The growth since `before`; `None` for a counter that fell (a restart, a rotated log).
    pub fn since(&self, before: &Self) -> Self {
        Self {
            server_cpu_ns: growth(self.server_cpu_ns, before.server_cpu_ns),
            client_cpu_ns: growth(self.client_cpu_ns, before.client_cpu_ns),
            host_busy_ns: growth(self.host_busy_ns, before.host_busy_ns),
            written_bytes: growth(self.written_bytes, before.written_bytes),
            disk_busy_ns: possible_busy(
                growth(self.disk_busy_ns, before.disk_busy_ns),
                growth(self.disk_queue_ns, before.disk_queue_ns),
            ),
            disk_queue_ns: growth(self.disk_queue_ns, before.disk_queue_ns),
            log_bytes: growth(self.log_bytes, before.log_bytes),
            lock_wait_us: growth(self.lock_wait_us, before.lock_wait_us),
            lock_waits: growth(self.lock_waits, before.lock_waits),
        }
    }

    /// The sum of both; `None` for a counter that either does not know.
    pub fn plus(&self, other: &Self) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        Self {
            server_cpu_ns: sum(self.server_cpu_ns, other.server_cpu_ns),
            client_cpu_ns: sum(self.client_cpu_ns, other.client_cpu_ns),
            host_busy_ns: sum(self.host_busy_ns, other.host_busy_ns),
            written_bytes: sum(self.written_bytes, other.written_bytes),
            disk_busy_ns: sum(self.disk_busy_ns, other.disk_busy_ns),
            disk_queue_ns: sum(self.disk_queue_ns, other.disk_queue_ns),
            log_bytes: sum(self.log_bytes, other.log_bytes),
            lock_wait_us: sum(self.lock_wait_us, other.lock_wait_us),
            lock_waits: sum(self.lock_waits, other.lock_waits),
        }
    }
}

/// The busy time of a disk, at most the sum of the times of its requests: kernels from 5.0 on exaggerate it
/// ([`possible_busy_ms`](crate::disk::possible_busy_ms)).
fn possible_busy(busy_ns: Option<u64>, queue_ns: Option<u64>) -> Option<u64> {
    busy_ns.map(|busy| busy.min(queue_ns.unwrap_or(u64::MAX)))
}

/// One measurement with one setting and one number of clients.
#[derive(Clone, Debug)]
pub struct LoadSlice {
    /// Concurrent clients.
    pub clients: u32,
    /// Index of the setting in [`ImpactRun::variants`].
    pub variant: usize,
    /// Number of the round, from 0.
    pub round: usize,
    /// Start of the slice, in nanoseconds since the start of the measurement.
    pub start_ns: u64,
    /// Its length in nanoseconds, without the settling time before it.
    pub length_ns: u64,
    /// Operations that began and ended in it.
    pub operations: u64,
    /// Operations that ended in each [`BUCKET_NS`] of it.
    pub buckets: Vec<u64>,
    /// Their latencies.
    pub latency: Histogram,
    /// Resources used during the slice.
    pub used: ImpactCounters,
}

/// Width of a bucket of throughput over time, in nanoseconds.
pub const BUCKET_NS: u64 = NS_PER_S / 4;

impl LoadSlice {
    /// Operations per second.
    pub fn throughput(&self) -> f64 {
        self.operations as f64 * NS_PER_S as f64 / self.length_ns.max(1) as f64
    }
}

/// A loss of throughput as a share: 0.2 is a fifth less; negative is a gain.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Loss {
    /// The estimate.
    pub share: f64,
    /// The lower end of the confidence interval.
    pub low: f64,
    /// The upper end of the confidence interval.
    pub high: f64,
    /// The number of pairs that it was computed from.
    pub pairs: usize,
}

impl Loss {
    /// From pairs of throughputs `(without, with)`, both above 0: Student's t on the logarithms of their
    /// ratios. `confidence` is that of the interval, for example 0.95. `None` for fewer than three pairs.
    pub fn of(pairs: &[(f64, f64)], confidence: f64) -> Option<Self> {
        let ratios: Vec<f64> = pairs
            .iter()
            .filter(|(without, with)| *without > 0.0 && *with > 0.0)
            .map(|(without, with)| (with / without).ln())
            .collect();
        if ratios.len() < 3 {
            return None;
        }
        let n = ratios.len() as f64;
        let mean = ratios.iter().sum::<f64>() / n;
        let variance = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let half = students_t(confidence, n - 1.0)? * (variance / n).sqrt();
        let share = |log: f64| 1.0 - log.exp();
        Some(Self {
            share: share(mean),
            low: share(mean + half),
            high: share(mean - half),
            pairs: ratios.len(),
        })
    }

    /// From two unpaired samples: Welch's t on the logarithms.
    pub fn between(without: &[f64], with: &[f64], confidence: f64) -> Option<Self> {
        let (mean_a, square_a) = mean_and_square_error(without)?;
        let (mean_b, square_b) = mean_and_square_error(with)?;
        let (n_a, n_b) = (without.len() as f64, with.len() as f64);
        let square = square_a + square_b;
        let freedom = if square > 0.0 {
            square.powi(2) / (square_a.powi(2) / (n_a - 1.0) + square_b.powi(2) / (n_b - 1.0))
        } else {
            n_a + n_b - 2.0
        };
        let half = students_t(confidence, freedom)? * square.sqrt();
        let difference = mean_b - mean_a;
        let share = |log: f64| 1.0 - log.exp();
        Some(Self {
            share: share(difference),
            low: share(difference + half),
            high: share(difference - half),
            pairs: without.len().min(with.len()),
        })
    }

    /// Whether the interval excludes 0: the loss or gain is significant.
    pub fn differs(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// Mean of the logarithms and the square of its standard error; `None` for fewer than three values above 0.
fn mean_and_square_error(sample: &[f64]) -> Option<(f64, f64)> {
    let logs: Vec<f64> = sample.iter().filter(|x| **x > 0.0).map(|x| x.ln()).collect();
    if logs.len() < 3 {
        return None;
    }
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0);
    Some((mean, variance / n))
}

/// Two-sided quantile of Student's t.
pub(crate) fn students_t(confidence: f64, freedom: f64) -> Option<f64> {
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(t.inverse_cdf(0.5 + confidence.clamp(0.0, 0.999_999) / 2.0))
}

/// Probability of a value of Student's t at least this far from 0, in both directions.
pub(crate) fn beyond_t(t: f64, freedom: f64) -> Option<f64> {
    Some(2.0 * StudentsT::new(0.0, 1.0, freedom).ok()?.cdf(-t.abs()))
}

/// A whole measurement.
#[derive(Clone, Debug, Default)]
pub struct ImpactRun {
    /// The settings; the others are compared with the first.
    pub variants: Vec<Variant>,
    /// All slices, in the order in which they were measured.
    pub slices: Vec<LoadSlice>,
    /// Confidence in all its verdicts together, for example 0.95.
    pub confidence: f64,
    /// Processors of the host, if the server runs on this host.
    pub processors: Option<u32>,
}

/// One setting with one number of clients.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Clients.
    pub clients: u32,
    /// Index of the setting.
    pub variant: usize,
    /// Mean operations per second.
    pub throughput: f64,
    /// Latencies of all its slices.
    pub latency: Histogram,
    /// The loss against the first setting; `None` for the first setting itself, or with too few rounds.
    pub loss: Option<Loss>,
    /// Resources used in all slices together.
    pub used: ImpactCounters,
    /// Length of all slices together in nanoseconds.
    pub length_ns: u64,
    /// Operations in all of them.
    pub operations: u64,
}

impl ImpactRun {
    /// The numbers of clients, ascending.
    pub fn clients(&self) -> Vec<u32> {
        let mut clients: Vec<u32> = self.slices.iter().map(|slice| slice.clients).collect();
        clients.sort_unstable();
        clients.dedup();
        clients
    }

    /// One cell for each number of clients and each setting. The confidence intervals hold together
    /// (Bonferroni): with the confidence of the run, all of them contain the true value.
    pub fn cells(&self) -> Vec<Cell> {
        let clients = self.clients();
        let comparisons = clients.len() * self.variants.len().saturating_sub(1);
        let confidence = 1.0 - (1.0 - self.confidence) / comparisons.max(1) as f64;
        let mut cells = Vec::new();
        for clients in clients {
            for variant in 0..self.variants.len() {
                let mine = |slice: &&LoadSlice| slice.clients == clients && slice.variant == variant;
                let slices: Vec<&LoadSlice> = self.slices.iter().filter(mine).collect();
                let Some(first) = slices.first() else { continue };
                let mut cell = Cell {
                    clients,
                    variant,
                    throughput: 0.0,
                    latency: Histogram::new(),
                    loss: None,
                    used: first.used,
                    length_ns: 0,
                    operations: 0,
                };
                for (at, slice) in slices.iter().enumerate() {
                    cell.latency.merge(&slice.latency);
                    cell.length_ns += slice.length_ns;
                    cell.operations += slice.operations;
                    if at > 0 {
                        cell.used = cell.used.plus(&slice.used);
                    }
                }
                cell.throughput = cell.operations as f64 * NS_PER_S as f64 / cell.length_ns.max(1) as f64;
                if variant > 0 {
                    cell.loss = Loss::of(&self.pairs(clients, variant), confidence);
                }
                cells.push(cell);
            }
        }
        cells
    }

    /// Throughput of the first setting and of `variant`, round by round.
    fn pairs(&self, clients: u32, variant: usize) -> Vec<(f64, f64)> {
        let of = |round: usize, variant: usize| {
            let mut all = self.slices.iter();
            all.find(|s| s.clients == clients && s.round == round && s.variant == variant)
                .map(LoadSlice::throughput)
        };
        let rounds = self.slices.iter().map(|slice| slice.round + 1).max().unwrap_or(0);
        (0..rounds).filter_map(|round| Some((of(round, 0)?, of(round, variant)?))).collect()
    }

    /// The verdict on a setting, over all numbers of clients.
    pub fn verdict(&self, variant: usize) -> ImpactVerdict {
        let losses: Vec<Loss> =
            self.cells().iter().filter(|cell| cell.variant == variant).filter_map(|cell| cell.loss).collect();
        let Some(worst) = losses.iter().copied().max_by(|a, b| a.share.total_cmp(&b.share)) else {
            return ImpactVerdict::Unknown;
        };
        let unseen = losses.iter().map(|loss| loss.high).fold(0.0, f64::max);
        match losses.iter().filter(|loss| loss.low > 0.0).max_by(|a, b| a.share.total_cmp(&b.share)) {
            Some(loss) => ImpactVerdict::Loss(*loss),
            None if losses.iter().any(|loss| loss.high < 0.0) => ImpactVerdict::Gain(worst),
            None => ImpactVerdict::NoDifference { unseen },
        }
    }
}

/// The cost of a setting, over all numbers of clients.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum ImpactVerdict {
    /// Too few rounds.
    Unknown,
    /// No significant difference; a loss larger than `unseen` (a share) would have been detected.
    NoDifference {
        /// The largest upper end of all intervals.
        unseen: f64,
    },
    /// The largest significant loss.
    Loss(Loss),
    /// It was faster. Profiling cannot cause that, so something else changed.
    Gain(Loss),
}

/// A long run with one setting: throughput over time, and the moment when `system.profile` wrapped.
#[derive(Clone, Debug, Default)]
pub struct LongRun {
    /// Clients.
    pub clients: u32,
    /// The setting.
    pub variant: Option<Variant>,
    /// Operations that ended in each second.
    pub seconds: Vec<u64>,
    /// Nanoseconds from the start until the collection was first seen to overwrite its oldest document;
    /// `None` if it did not.
    pub wrapped_ns: Option<u64>,
    /// Size of the collection in bytes.
    pub profile_bytes: Option<u64>,
    /// Confidence of the comparison.
    pub confidence: f64,
}

/// Seconds on either side of the wrap that are left out.
const AROUND_S: usize = 1;
/// The minimum number of blocks of seconds on each side.
const BLOCKS: usize = 6;

impl LongRun {
    /// Compares throughput before and after the wrap; `None` if it did not wrap, or too early or too late for
    /// a comparison. Consecutive seconds are correlated, so means of blocks of seconds are compared, at least
    /// `BLOCKS` on each side.
    pub fn loss(&self) -> Option<Loss> {
        let at = usize::try_from(self.wrapped_ns? / NS_PER_S).ok()?;
        let before = self.seconds.get(..at.saturating_sub(AROUND_S))?;
        let after = self.seconds.get((at + 1 + AROUND_S)..)?;
        let block = (before.len().min(after.len()) / BLOCKS).clamp(1, 10);
        let means = |seconds: &[u64]| -> Vec<f64> {
            let of = |block: &[u64]| block.iter().sum::<u64>() as f64 / block.len() as f64;
            seconds.chunks_exact(block).map(of).collect()
        };
        Loss::between(&means(before), &means(after), self.confidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A standard normal number (Irwin-Hall of twelve).
    fn normal(random: &mut SplitMix64) -> f64 {
        (0..12).map(|_| random.next() as f64 / u64::MAX as f64).sum::<f64>() - 6.0
    }

    /// A machine whose speed wanders and drifts, and a second setting that costs `loss`.
    fn measure(loss: f64, noise: f64, seed: u64, clients: &[u32], rounds: usize) -> ImpactRun {
        let mut random = SplitMix64(seed);
        let variants = vec![Variant { level: 0, rate_limit: None }, Variant { level: 2, rate_limit: None }];
        let mut run = ImpactRun { variants, confidence: 0.95, ..ImpactRun::default() };
        let mut wander = 0.0;
        let mut time = 0;
        for clients in clients {
            for (round, order) in alternation(2, rounds, random.next()).into_iter().enumerate() {
                for variant in order {
                    wander = 0.7 * wander + noise * normal(&mut random);
                    let drift = time as f64 * 0.002;
                    let share = if variant == 1 { 1.0 - loss } else { 1.0 };
                    let operations = 10_000.0 * share * (wander - drift).exp();
                    run.slices.push(LoadSlice {
                        clients: *clients,
                        variant,
                        round,
                        start_ns: time * NS_PER_S,
                        length_ns: NS_PER_S,
                        operations: operations as u64,
                        buckets: Vec::new(),
                        latency: Histogram::new(),
                        used: ImpactCounters::default(),
                    });
                    time += 1;
                }
            }
        }
        run
    }

    #[test]
    fn the_busiest_disk_is_not_busier_than_its_requests_allow() {
        let at = |busy, queue| ImpactCounters {
            disk_busy_ns: Some(busy),
            disk_queue_ns: queue,
            ..ImpactCounters::default()
        };
        let busy = |before, now: ImpactCounters| now.since(&before).disk_busy_ns;
        assert_eq!(busy(at(1_000, Some(500)), at(2_000, Some(700))), Some(200));
        assert_eq!(busy(at(1_000, Some(500)), at(2_000, Some(9_000))), Some(1_000));
        assert_eq!(busy(at(1_000, None), at(2_000, None)), Some(1_000));
    }

    #[test]
    fn equal_settings_show_no_difference() {
        let alarms = (0..1_000)
            .filter(|seed| {
                let run = measure(0.0, 0.05, *seed, &[1, 4, 16], 8);
                !matches!(run.verdict(1), ImpactVerdict::NoDifference { .. })
            })
            .count();
        // The confidence is 95 % for the whole run: 50 of 1,000, with a standard deviation of 7.
        assert!(alarms <= 70, "{alarms} false alarms of 1,000");
    }

    #[test]
    fn a_loss_of_a_fifth_is_found_and_its_interval_contains_it() {
        let (mut found, mut held) = (0, 0);
        for seed in 0..300 {
            let run = measure(0.2, 0.03, seed, &[1, 4, 16], 8);
            found += u32::from(matches!(run.verdict(1), ImpactVerdict::Loss(_)));
            let all = run.cells().iter().filter_map(|cell| cell.loss).all(|l| l.low <= 0.2 && 0.2 <= l.high);
            held += u32::from(all);
        }
        assert!(found >= 297, "found in {found} of 300");
        assert!(held >= 276, "held in {held} of 300");
    }

    #[test]
    fn every_round_has_each_setting_once_and_pairs_of_rounds_cancel_drift() {
        let plan = alternation(4, 10, 7);
        assert_eq!(plan.len(), 10);
        for pair in plan.chunks(2) {
            for variant in 0..4 {
                let at = |order: &[usize]| order.iter().position(|v| *v == variant).unwrap();
                assert_eq!(at(&pair[0]) + at(&pair[1]), 3, "all settings have the same mean position");
            }
        }
        assert!(plan.iter().step_by(2).any(|order| *order != plan[0]), "the order is random");
        assert_eq!(plan, alternation(4, 10, 7), "the same seed gives the same order");
    }

    #[test]
    fn intervals_agree_with_published_tables() {
        // Student's t, two-sided 95 %: 2.776 for 4 degrees of freedom, 2.262 for 9 (any table).
        assert!((students_t(0.95, 4.0).unwrap() - 2.776).abs() < 0.001);
        assert!((students_t(0.95, 9.0).unwrap() - 2.262).abs() < 0.001);
        // Ratios 0.8, 0.8, 0.8: no spread, so the interval is a single point.
        let exact = Loss::of(&[(10.0, 8.0), (20.0, 16.0), (5.0, 4.0)], 0.95).unwrap();
        assert!((exact.share - 0.2).abs() < 1e-9 && (exact.low - 0.2).abs() < 1e-9 && exact.differs());
        assert_eq!(Loss::of(&[(10.0, 8.0), (20.0, 16.0)], 0.95), None);
        assert_eq!(Loss::of(&[(10.0, 0.0), (0.0, 16.0), (1.0, 1.0)], 0.95), None);
    }

    #[test]
    fn a_wrap_that_costs_a_tenth_is_detected_and_a_free_one_is_not() {
        let mut random = SplitMix64(3);
        let mut run = |after: f64| LongRun {
            seconds: (0..120)
                .map(|s| {
                    ((if s < 60 { 1_000.0 } else { 1_000.0 * after }) * (1.0 + 0.02 * normal(&mut random)))
                        as u64
                })
                .collect(),
            wrapped_ns: Some(60 * NS_PER_S),
            confidence: 0.95,
            ..LongRun::default()
        };
        let loss = run(0.9).loss().unwrap();
        assert!(loss.differs() && (0.08..0.12).contains(&loss.share), "{loss:?}");
        assert!(!run(1.0).loss().unwrap().differs());
        assert_eq!(LongRun { wrapped_ns: None, ..run(1.0) }.loss(), None);
        assert_eq!(LongRun { wrapped_ns: Some(u64::MAX), ..run(1.0) }.loss(), None);
        assert_eq!(LongRun { wrapped_ns: Some(0), ..run(1.0) }.loss(), None);
    }

    #[test]
    fn unknown_counters_stay_unknown() {
        let known =
            ImpactCounters { server_cpu_ns: Some(5), log_bytes: Some(100), ..ImpactCounters::default() };
        let later =
            ImpactCounters { server_cpu_ns: Some(9), log_bytes: Some(20), ..ImpactCounters::default() };
        let used = later.since(&known);
        assert_eq!(used.server_cpu_ns, Some(4));
        assert_eq!((used.log_bytes, used.lock_waits), (None, None), "rotated; not known");
        assert_eq!(used.plus(&used).server_cpu_ns, Some(8));
    }
}
