//! `profiler impact` as JSON; names and meanings are in `docs/profiler.md`.

use std::io::{self, Write};

use serde::Serialize;
use sonar_core::impact::{BUCKET_NS, Cell, ImpactRun, LongRun};
use sonar_core::time::NS_PER_S;
use ts_rs::TS;

use super::verdict::{bottleneck, long_verdict, verdicts};
use super::{ImpactReport, Site, name};
use crate::kit::{self, About};

/// Version of the JSON schema: it grows when a field changes its meaning or goes, not when one is added.
const SCHEMA: u32 = 1;

/// What profiling costs, by level and number of clients.
#[derive(Serialize, TS)]
pub(crate) struct ImpactDocument<'a> {
    schema: u32,
    #[ts(type = "\"profiler_impact\"")]
    kind: &'static str,
    about: About,
    started_ns: u64,
    server: &'a str,
    documents: u32,
    confidence: f64,
    processors: Option<u32>,
    variants: Vec<String>,
    cells: Vec<ImpactCellJson>,
    verdicts: Vec<String>,
    bottleneck: String,
    slices: Vec<LoadSliceJson<'a>>,
}

/// A variant of the profiler with a number of clients.
#[derive(Serialize, TS)]
struct ImpactCellJson {
    clients: u32,
    level: i32,
    rate_limit: Option<i64>,
    name: String,
    throughput: f64,
    operations: u64,
    measured_ns: u64,
    /// Share of the throughput without the profiler, with the ends of its interval.
    loss: Option<f64>,
    loss_low: Option<f64>,
    loss_high: Option<f64>,
    differs: Option<bool>,
    p50_ns: Option<u64>,
    p95_ns: Option<u64>,
    p99_ns: Option<u64>,
    max_ns: Option<u64>,
    server_cpu_ns: Option<u64>,
    load_cpu_ns: Option<u64>,
    host_busy_ns: Option<u64>,
    disk_busy_ns: Option<u64>,
    written_bytes: Option<u64>,
    log_bytes: Option<u64>,
    lock_waits: Option<u64>,
    lock_wait_us: Option<u64>,
}

#[derive(Serialize, TS)]
struct LoadSliceJson<'a> {
    clients: u32,
    /// Index of the variant.
    variant: usize,
    round: usize,
    start_ns: u64,
    length_ns: u64,
    operations: u64,
    bucket_ns: u64,
    buckets: &'a [u64],
}

/// The throughput of one long run, second by second.
#[derive(Serialize, TS)]
pub(crate) struct LongImpactDocument<'a> {
    schema: u32,
    #[ts(type = "\"profiler_impact_long\"")]
    kind: &'static str,
    about: About,
    started_ns: u64,
    server: &'a str,
    clients: u32,
    level: Option<i32>,
    /// Operations in each second.
    seconds: &'a [u64],
    wrapped_ns: Option<u64>,
    profile_bytes: Option<u64>,
    loss: Option<f64>,
    loss_low: Option<f64>,
    loss_high: Option<f64>,
    differs: Option<bool>,
    verdict: String,
}

/// Writes all as one JSON object.
///
/// # Errors
/// Those of `out`.
pub fn json(report: &ImpactReport<'_>, out: impl Write) -> io::Result<()> {
    let run = report.run;
    let cells = run.cells();
    let slices = run.slices.iter().map(|slice| LoadSliceJson {
        clients: slice.clients,
        variant: slice.variant,
        round: slice.round,
        start_ns: slice.start_ns,
        length_ns: slice.length_ns,
        operations: slice.operations,
        bucket_ns: BUCKET_NS,
        buckets: &slice.buckets,
    });
    let document = ImpactDocument {
        schema: SCHEMA,
        kind: "profiler_impact",
        about: report.site.about(run.slices.iter().map(|slice| slice.length_ns).sum()),
        started_ns: report.site.started_ns,
        server: report.site.server,
        documents: report.documents,
        confidence: run.confidence,
        processors: run.processors,
        variants: (0..run.variants.len()).map(|variant| name(run, variant)).collect(),
        cells: cells.iter().map(|cell| ImpactCellJson::new(run, cell)).collect(),
        verdicts: verdicts(run),
        bottleneck: bottleneck(run, &cells),
        slices: slices.collect(),
    };
    kit::json::line(&document, out)
}

impl ImpactCellJson {
    fn new(run: &ImpactRun, cell: &Cell) -> Self {
        let variant = run.variants.get(cell.variant);
        Self {
            clients: cell.clients,
            level: variant.map_or(0, |variant| variant.level),
            rate_limit: variant.and_then(|variant| variant.rate_limit),
            name: name(run, cell.variant),
            throughput: cell.throughput,
            operations: cell.operations,
            measured_ns: cell.length_ns,
            loss: cell.loss.map(|loss| loss.share),
            loss_low: cell.loss.map(|loss| loss.low),
            loss_high: cell.loss.map(|loss| loss.high),
            differs: cell.loss.map(|loss| loss.differs()),
            p50_ns: cell.latency.quantile_ns(0.5),
            p95_ns: cell.latency.quantile_ns(0.95),
            p99_ns: cell.latency.quantile_ns(0.99),
            max_ns: cell.latency.max_ns(),
            server_cpu_ns: cell.used.server_cpu_ns,
            load_cpu_ns: cell.used.client_cpu_ns,
            host_busy_ns: cell.used.host_busy_ns,
            disk_busy_ns: cell.used.disk_busy_ns,
            written_bytes: cell.used.written_bytes,
            log_bytes: cell.used.log_bytes,
            lock_waits: cell.used.lock_waits,
            lock_wait_us: cell.used.lock_wait_us,
        }
    }
}

/// Writes a long run as one JSON object.
///
/// # Errors
/// Those of `out`.
pub fn long_json(site: &Site<'_>, long: &LongRun, out: impl Write) -> io::Result<()> {
    let loss = long.loss();
    let document = LongImpactDocument {
        schema: SCHEMA,
        kind: "profiler_impact_long",
        about: site.about(long.seconds.len() as u64 * NS_PER_S),
        started_ns: site.started_ns,
        server: site.server,
        clients: long.clients,
        level: long.variant.map(|variant| variant.level),
        seconds: &long.seconds,
        wrapped_ns: long.wrapped_ns,
        profile_bytes: long.profile_bytes,
        loss: loss.map(|loss| loss.share),
        loss_low: loss.map(|loss| loss.low),
        loss_high: loss.map(|loss| loss.high),
        differs: loss.map(|loss| loss.differs()),
        verdict: long_verdict(long),
    };
    kit::json::line(&document, out)
}
