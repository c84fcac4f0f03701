//! `profiler impact` as JSON; names and meanings are in `docs/profiler.md`.

use std::io::{self, Write};

use serde_json::{Value, json};
use sonar_core::impact::{BUCKET_NS, Cell, LongRun};
use sonar_core::time::NS_PER_S;

use super::verdict::{bottleneck, long_verdict, verdicts};
use super::{ImpactReport, Site, name};
use crate::kit;

/// Version of the JSON schema: it grows when a field changes its meaning or goes, not when one is added.
const SCHEMA: u32 = 1;

/// Writes all as one JSON object.
///
/// # Errors
/// Those of `out`.
pub fn json(report: &ImpactReport<'_>, out: impl Write) -> io::Result<()> {
    let run = report.run;
    let cells = run.cells();
    let cell = |cell: &Cell| {
        let variant = run.variants.get(cell.variant);
        json!({
            "clients": cell.clients,
            "level": variant.map_or(0, |variant| variant.level),
            "rate_limit": variant.and_then(|variant| variant.rate_limit),
            "name": name(run, cell.variant),
            "throughput": cell.throughput,
            "operations": cell.operations,
            "measured_ns": cell.length_ns,
            "loss": cell.loss.map(|loss| loss.share),
            "loss_low": cell.loss.map(|loss| loss.low),
            "loss_high": cell.loss.map(|loss| loss.high),
            "differs": cell.loss.map(|loss| loss.differs()),
            "p50_ns": cell.latency.quantile_ns(0.5),
            "p95_ns": cell.latency.quantile_ns(0.95),
            "p99_ns": cell.latency.quantile_ns(0.99),
            "max_ns": cell.latency.max_ns(),
            "server_cpu_ns": cell.used.server_cpu_ns,
            "load_cpu_ns": cell.used.client_cpu_ns,
            "host_busy_ns": cell.used.host_busy_ns,
            "disk_busy_ns": cell.used.disk_busy_ns,
            "written_bytes": cell.used.written_bytes,
            "log_bytes": cell.used.log_bytes,
            "lock_waits": cell.used.lock_waits,
            "lock_wait_us": cell.used.lock_wait_us,
        })
    };
    let slices = run.slices.iter().map(|slice| {
        json!({
            "clients": slice.clients,
            "variant": slice.variant,
            "round": slice.round,
            "start_ns": slice.start_ns,
            "length_ns": slice.length_ns,
            "operations": slice.operations,
            "bucket_ns": BUCKET_NS,
            "buckets": slice.buckets,
        })
    });
    let document = json!({
        "schema": SCHEMA,
        "kind": "profiler_impact",
        "about": report.site.about(run.slices.iter().map(|slice| slice.length_ns).sum()),
        "started_ns": report.site.started_ns,
        "server": report.site.server,
        "documents": report.documents,
        "confidence": run.confidence,
        "processors": run.processors,
        "variants": (0..run.variants.len()).map(|variant| name(run, variant)).collect::<Vec<_>>(),
        "cells": cells.iter().map(cell).collect::<Vec<_>>(),
        "verdicts": verdicts(run),
        "bottleneck": bottleneck(run, &cells),
        "slices": slices.collect::<Vec<Value>>(),
    });
    kit::json::line(&document, out)
}

/// Writes a long run as one JSON object.
///
/// # Errors
/// Those of `out`.
pub fn long_json(site: &Site<'_>, long: &LongRun, out: impl Write) -> io::Result<()> {
    let loss = long.loss();
    let document = json!({
        "schema": SCHEMA,
        "kind": "profiler_impact_long",
        "about": site.about(long.seconds.len() as u64 * NS_PER_S),
        "started_ns": site.started_ns,
        "server": site.server,
        "clients": long.clients,
        "level": long.variant.map(|variant| variant.level),
        "seconds": long.seconds,
        "wrapped_ns": long.wrapped_ns,
        "profile_bytes": long.profile_bytes,
        "loss": loss.map(|loss| loss.share),
        "loss_low": loss.map(|loss| loss.low),
        "loss_high": loss.map(|loss| loss.high),
        "differs": loss.map(|loss| loss.differs()),
        "verdict": long_verdict(long),
    });
    kit::json::line(&document, out)
}
