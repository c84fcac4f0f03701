//! One run of a disk test: the JSON document that `--json` writes and `--compare` reads.

use std::io;

use serde::{Deserialize, Serialize};
use sonar_core::Timestamp;
use sonar_core::disk::verdict::{self, Limit, Volume};
use sonar_core::disk::{DiskRates, DiskStep, Requests, counters::KindRates};
use sonar_core::history::Span;
use ts_rs::TS;

use crate::kit::About;

/// Version of the schema: it grows when a field changes its meaning or goes, not when one is added.
pub const SCHEMA: u32 = 1;
/// What `kind` says.
pub const KIND: &str = "disk_bench";
/// Most bytes that are read as a run.
pub const MOST_BYTES: u64 = 64 << 20;

/// A run of `disk bench`. What is not known is `null`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, TS)]
pub struct BenchReport {
    /// Version of the schema.
    pub schema: u32,
    /// `disk_bench`.
    #[ts(type = "\"disk_bench\"")]
    pub kind: String,
    /// Version of mongosonar.
    pub version: String,
    /// When it began, nanoseconds since 1970.
    pub started_ns: u64,
    /// The settings.
    pub settings: BenchSettings,
    /// Where it ran.
    pub place: RunPlace,
    /// The engine that made the requests: `uring`, `threads` or `mmap`.
    pub engine: String,
    /// Short tests before the ramp.
    pub probes: Vec<ProbeResult>,
    /// The ramp.
    pub steps: Vec<StepJson>,
    /// What it means.
    pub verdict: Option<BenchVerdict>,
    /// What a reader should know: fallbacks, shared memory, an interrupted run.
    pub notes: Vec<String>,
}

/// A run of `disk bench`, with where it comes from.
#[derive(Serialize, TS)]
pub(crate) struct BenchDocument<'a> {
    #[serde(flatten)]
    run: &'a BenchReport,
    about: About,
}

/// Settings of a run, with mongoperf's names where it has them.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, TS)]
pub struct BenchSettings {
    /// Most requests in flight.
    #[serde(rename = "nThreads")]
    pub n_threads: u32,
    /// Size of the file in MiB.
    #[serde(rename = "fileSizeMB")]
    pub file_size_mb: u64,
    /// Pause after each round, shared by those in flight, in microseconds.
    #[serde(rename = "sleepMicros")]
    pub sleep_micros: u64,
    /// Whether the file was mapped.
    pub mmf: bool,
    /// Whether it was read.
    pub r: bool,
    /// Whether it was written.
    pub w: bool,
    /// Size of a record in KiB.
    #[serde(rename = "recSizeKB")]
    pub rec_size_kb: u32,
    /// Seconds between two `msync`.
    #[serde(rename = "syncDelay")]
    pub sync_delay: u64,
    /// Length of a step in seconds.
    pub step_seconds: f64,
    /// `random` or `sequential`.
    pub access: String,
    /// Whether each write was followed by `fdatasync`.
    pub fdatasync: bool,
    /// Whether requests went past the page cache.
    pub direct: bool,
    /// The seed of the offsets.
    pub seed: u64,
}

/// Where a run took place.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, TS)]
pub struct RunPlace {
    /// Name of the machine.
    pub host: Option<String>,
    /// The folder.
    pub dir: String,
    /// Type of the file system.
    pub file_system: Option<String>,
    /// Its options.
    pub mount_options: Vec<String>,
    /// The device that it lies on.
    pub device: Option<String>,
    /// The disks below, where they are others.
    pub disks: Vec<String>,
    /// What the disk calls itself.
    pub model: Option<String>,
    /// Scheduler of the disk's queue.
    pub scheduler: Option<String>,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Processors that the test may run on; 0 if unknown.
    pub processors: u32,
}

/// A short test beside the ramp.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, TS)]
pub struct ProbeResult {
    /// Whether records were taken in order.
    pub sequential: bool,
    /// Bytes of a record.
    pub record_bytes: u32,
    /// Requests in flight.
    pub in_flight: u32,
    /// Requests per second.
    pub operations_per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Their latency, nanoseconds.
    pub latency_ns: LatencyQuantiles,
}

/// Quantiles in nanoseconds; null when there was no request.
#[derive(Copy, Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq, TS)]
pub struct LatencyQuantiles {
    /// Mean.
    pub mean: Option<u64>,
    /// Median.
    pub p50: Option<u64>,
    /// 95th percentile.
    pub p95: Option<u64>,
    /// 99th percentile.
    pub p99: Option<u64>,
    /// 99.9th percentile.
    #[serde(rename = "p99.9")]
    pub p999: Option<u64>,
    /// The longest.
    pub max: Option<u64>,
}

impl LatencyQuantiles {
    /// Of a histogram of nanoseconds.
    pub fn new(histogram: &sonar_core::Histogram) -> Self {
        let count = u128::from(histogram.count());
        Self {
            mean: (count > 0).then(|| u64::try_from(histogram.sum_ns() / count).unwrap_or(u64::MAX)),
            p50: histogram.quantile_ns(0.5),
            p95: histogram.quantile_ns(0.95),
            p99: histogram.quantile_ns(0.99),
            p999: histogram.quantile_ns(0.999),
            max: histogram.max_ns(),
        }
    }
}

/// Requests of one kind in a step.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, TS)]
pub struct RequestsJson {
    /// How many.
    pub count: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Their latency.
    pub latency_ns: LatencyQuantiles,
    /// Histogram: `[i, n]` says that n took `(2^(i/32), 2^((i+1)/32)]` seconds.
    pub buckets: Vec<(i32, u64)>,
}

impl RequestsJson {
    fn new(requests: &Requests) -> Option<Self> {
        (requests.count() > 0).then(|| Self {
            count: requests.count(),
            bytes: requests.bytes,
            latency_ns: LatencyQuantiles::new(&requests.latency),
            buckets: requests.latency.buckets().collect(),
        })
    }
}

/// The columns of `iostat -x` for one device.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, TS)]
pub struct DeviceRates {
    /// Its name.
    pub device: String,
    /// Reads per second.
    #[serde(rename = "r/s")]
    pub r: f64,
    /// Kibibytes read per second.
    #[serde(rename = "rkB/s")]
    pub rkb: f64,
    /// Reads merged per second.
    #[serde(rename = "rrqm/s")]
    pub rrqm: f64,
    /// Share of reads that were merged, per cent.
    #[serde(rename = "%rrqm")]
    pub rrqm_percent: f64,
    /// Milliseconds of a read.
    pub r_await: f64,
    /// Kibibytes of a read.
    #[serde(rename = "rareq-sz")]
    pub rareq: f64,
    /// Writes per second.
    #[serde(rename = "w/s")]
    pub w: f64,
    /// Kibibytes written per second.
    #[serde(rename = "wkB/s")]
    pub wkb: f64,
    /// Writes merged per second.
    #[serde(rename = "wrqm/s")]
    pub wrqm: f64,
    /// Share of writes that were merged, per cent.
    #[serde(rename = "%wrqm")]
    pub wrqm_percent: f64,
    /// Milliseconds of a write.
    pub w_await: f64,
    /// Kibibytes of a write.
    #[serde(rename = "wareq-sz")]
    pub wareq: f64,
    /// Discards per second.
    #[serde(rename = "d/s")]
    pub d: Option<f64>,
    /// Kibibytes discarded per second.
    #[serde(rename = "dkB/s")]
    pub dkb: Option<f64>,
    /// Discards merged per second.
    #[serde(rename = "drqm/s")]
    pub drqm: Option<f64>,
    /// Share of discards that were merged, per cent.
    #[serde(rename = "%drqm")]
    pub drqm_percent: Option<f64>,
    /// Milliseconds of a discard.
    pub d_await: Option<f64>,
    /// Kibibytes of a discard.
    #[serde(rename = "dareq-sz")]
    pub dareq: Option<f64>,
    /// Flushes per second.
    #[serde(rename = "f/s")]
    pub f: Option<f64>,
    /// Milliseconds of a flush.
    pub f_await: Option<f64>,
    /// Requests in flight on average.
    #[serde(rename = "aqu-sz")]
    pub aqu: f64,
    /// Share of the time with a request in flight, per cent.
    #[serde(rename = "%util")]
    pub util: f64,
}

impl DeviceRates {
    /// The figures of a device under `iostat`'s names.
    pub fn new(device: &str, rates: &DiskRates) -> Self {
        let (reads, writes) = (&rates.reads, &rates.writes);
        let discard = |figure: fn(&KindRates) -> f64| rates.discards.as_ref().map(figure);
        Self {
            device: device.to_owned(),
            r: reads.per_second,
            rkb: reads.kib_per_second,
            rrqm: reads.merged_per_second,
            rrqm_percent: reads.merged_percent,
            r_await: reads.await_ms,
            rareq: reads.request_kib,
            w: writes.per_second,
            wkb: writes.kib_per_second,
            wrqm: writes.merged_per_second,
            wrqm_percent: writes.merged_percent,
            w_await: writes.await_ms,
            wareq: writes.request_kib,
            d: discard(|d| d.per_second),
            dkb: discard(|d| d.kib_per_second),
            drqm: discard(|d| d.merged_per_second),
            drqm_percent: discard(|d| d.merged_percent),
            d_await: discard(|d| d.await_ms),
            dareq: discard(|d| d.request_kib),
            f: rates.flushes.map(|f| f.0),
            f_await: rates.flushes.map(|f| f.1),
            aqu: rates.queue,
            util: rates.util_percent,
        }
    }
}

/// Processor time of a step.
#[derive(Copy, Clone, Debug, Default, Serialize, Deserialize, PartialEq, TS)]
pub struct StepCpuJson {
    /// In user mode, nanoseconds.
    pub user_ns: u64,
    /// In the kernel, nanoseconds.
    pub system_ns: u64,
    /// Of one read or write, nanoseconds.
    pub ns_per_operation: Option<f64>,
    /// Share of all processors of the machine that was busy with anything, 0 to 1.
    pub machine_busy: Option<f64>,
    /// How many processors the test was allowed to use.
    #[serde(default)]
    pub usable_processors: Option<f64>,
    /// Share of the periods in which its control group stopped it for lack of processor time, 0 to 1; null without a quota.
    #[serde(default)]
    pub throttled: Option<f64>,
}

/// One step of the ramp.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, TS)]
pub struct StepJson {
    /// Requests in flight.
    pub in_flight: u32,
    /// Threads that made them.
    pub threads: u32,
    /// From the first request to the last completion, seconds.
    pub seconds: f64,
    /// Reads and writes.
    pub operations: u64,
    /// Of them, per second.
    pub operations_per_second: f64,
    /// Bytes read and written per second.
    pub bytes_per_second: f64,
    /// Reads and writes that ended in each full second.
    pub per_second: Vec<u64>,
    /// Reads; null when there were none.
    pub reads: Option<RequestsJson>,
    /// Writes.
    pub writes: Option<RequestsJson>,
    /// Flushes: `fdatasync`, or `msync` of a mapped file.
    pub flushes: Option<RequestsJson>,
    /// Processor time.
    pub cpu: StepCpuJson,
    /// The device below, as the kernel counted.
    pub device: Option<DeviceRates>,
    /// The disks that it is made of.
    pub disks: Vec<DeviceRates>,
    /// Bytes that the kernel counted as read for this process.
    pub kernel_read_bytes: Option<u64>,
    /// Bytes that it counted as written.
    pub kernel_written_bytes: Option<u64>,
}

impl StepJson {
    /// The figures of a step; `device` is the name of the device below.
    pub fn new(step: &DiskStep, device: &str) -> Self {
        Self {
            in_flight: step.in_flight,
            threads: step.threads,
            seconds: step.elapsed_ns as f64 / 1e9,
            operations: step.operations(),
            operations_per_second: step.operations_per_second(),
            bytes_per_second: step.bytes_per_second(),
            per_second: step.per_second.clone(),
            reads: RequestsJson::new(&step.reads),
            writes: RequestsJson::new(&step.writes),
            flushes: RequestsJson::new(&step.flushes),
            cpu: StepCpuJson {
                user_ns: step.user_ns,
                system_ns: step.system_ns,
                ns_per_operation: step.cpu_ns_per_operation(),
                machine_busy: step.machine_busy,
                usable_processors: step.usable_processors,
                throttled: step.throttled,
            },
            device: step.device.as_ref().map(|rates| DeviceRates::new(device, rates)),
            disks: step.members.iter().map(|(name, rates)| DeviceRates::new(name, rates)).collect(),
            kernel_read_bytes: step.kernel.map(|kernel| kernel.read),
            kernel_written_bytes: step.kernel.map(|kernel| kernel.written),
        }
    }

    /// The kinds of requests that there were, by name.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, &RequestsJson)> {
        [("read", &self.reads), ("write", &self.writes), ("flush", &self.flushes)]
            .into_iter()
            .filter_map(|(name, kind)| Some((name, kind.as_ref()?)))
    }
}

/// What the steps mean.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, TS)]
pub struct BenchVerdict {
    /// The lowest number in flight that gives nine tenths of the best rate.
    pub knee_in_flight: u32,
    /// Its reads and writes per second.
    pub knee_per_second: f64,
    /// The best rate of any step.
    pub best_per_second: f64,
    /// Whether the last step was still better than the one before.
    pub still_scaling: bool,
    /// `not-reached`, `cap`, `processor`, `device`, `file-system`, `memory` or `unknown`.
    pub limit: String,
    /// By the probes: `capped`, `seeks`, `parallel` or `flat`; null without them, and where the processor was the limit.
    pub volume: Option<String>,
    /// The known kind of disk that comes nearest; null where the processor was the limit.
    pub class: Option<String>,
    /// All of it in sentences.
    pub words: Vec<String>,
}

impl BenchVerdict {
    /// Judges the steps of one ramp.
    pub fn new(steps: &[DiskStep], probes: &[verdict::DiskProbe], threads_each: bool) -> Option<Self> {
        let knee = verdict::knee(steps)?;
        let volume = verdict::volume(probes);
        let limit = verdict::limit(steps, volume, threads_each)?;
        let is_of_the_disk = !matches!(limit, Limit::Processor { .. });
        Some(Self {
            knee_in_flight: knee.in_flight,
            knee_per_second: knee.operations_per_second,
            best_per_second: knee.best_per_second,
            still_scaling: knee.still_scaling,
            limit: match limit {
                Limit::NotReached => "not-reached",
                Limit::Cap { .. } => "cap",
                Limit::Processor { .. } => "processor",
                Limit::Device { .. } => "device",
                Limit::FileSystem { .. } => "file-system",
                Limit::Memory => "memory",
                Limit::Unknown => "unknown",
            }
            .to_owned(),
            volume: volume.filter(|_| is_of_the_disk).map(|volume| {
                match volume {
                    Volume::Capped { .. } => "capped",
                    Volume::Seeks { .. } => "seeks",
                    Volume::Parallel { .. } => "parallel",
                    Volume::Flat => "flat",
                }
                .to_owned()
            }),
            class: is_of_the_disk.then(|| verdict::class(knee.best_per_second).name.to_owned()),
            words: super::words::verdict(steps, &knee, &limit, volume.as_ref()),
        })
    }
}

impl BenchReport {
    /// Writes it as one line of JSON.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn json(&self, out: impl io::Write) -> io::Result<()> {
        let seconds: f64 = self.steps.iter().map(|step| step.seconds).sum();
        let from = Timestamp::from_unix_ns(self.started_ns);
        let span = Span { from, to: from.plus_ns((seconds * 1e9) as u64) };
        let about = About::new(self.place.host.clone(), vec![self.place.dir.clone()], Some(span));
        crate::kit::json::line(&BenchDocument { run: self, about }, out)
    }

    /// Reads one back.
    ///
    /// # Errors
    /// What is no run, or one of a schema of the future, in words.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let run: Self = serde_json::from_slice(bytes)
            .map_err(|error| format!("this is not a result of disk bench: {error}"))?;
        if run.kind != KIND {
            return Err(format!("this is {:?}, not a result of disk bench", run.kind));
        }
        if run.schema > SCHEMA {
            return Err(format!("schema {} is newer than this program, which knows {SCHEMA}", run.schema));
        }
        Ok(run)
    }
}
