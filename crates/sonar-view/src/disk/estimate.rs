//! Estimates how long reading a number of documents takes on a disk that was tested.

use std::io::{self, Write};

use serde::Serialize;
use sonar_core::disk::estimate::{Work, duration_ns};

use super::run::BenchReport;
use crate::kit::{Bytes, Count, Fitting, Heading, Nanos, TextTable, plural};

/// One way to read it all.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct ReadMethod {
    /// What is done.
    pub name: String,
    /// What it was taken from.
    pub from: String,
    /// Reads, or for a pass in order bytes, per second.
    pub per_second: f64,
    /// Whether `per_second` counts bytes.
    pub bytes: bool,
    /// How long it takes, nanoseconds.
    pub duration_ns: Option<u64>,
}

/// The ways, the slowest usually first.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Estimate {
    /// Version of the schema of this document.
    pub schema: u32,
    /// What this document is.
    pub kind: &'static str,
    /// Documents.
    pub documents: u64,
    /// Bytes of one.
    pub document_bytes: u64,
    /// Reads at random that they need.
    pub random_reads: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// What it takes.
    pub ways: Vec<ReadMethod>,
}

impl Estimate {
    fn of(work: &Work, ways: Vec<ReadMethod>) -> Self {
        Self {
            schema: super::run::SCHEMA,
            kind: "disk_estimate",
            documents: work.documents,
            document_bytes: work.document_bytes,
            random_reads: work.random_reads(),
            bytes: work.bytes(),
            ways,
        }
    }

    /// From a rate of reads alone.
    pub fn at_rate(work: &Work, per_second: f64) -> Self {
        let way = ReadMethod {
            name: "each at random".into(),
            from: format!("{} reads/s, as given", Count(per_second)),
            per_second,
            bytes: false,
            duration_ns: duration_ns(work.random_reads(), per_second),
        };
        Self::of(work, vec![way])
    }

    /// From a run. Reads are taken where it read; a run that only wrote says nothing of reading.
    pub fn from_run(work: &Work, run: &BenchReport) -> Result<Self, &'static str> {
        if !run.settings.r {
            return Err("that run only wrote: how long reading takes needs a run with r");
        }
        let mut ways = Vec::new();
        let random = |name: &str, from: String, per_second: f64| ReadMethod {
            name: name.into(),
            from,
            per_second,
            bytes: false,
            duration_ns: duration_ns(work.random_reads(), per_second),
        };
        let record = run.settings.rec_size_kb << 10;
        let one = run.probes.iter().find(|p| !p.sequential && p.in_flight == 1 && p.record_bytes == record);
        if let Some(one) = one {
            let from = "probe, 1 in flight".to_owned();
            ways.push(random("at random, one after the other", from, one.operations_per_second));
        } else if run.settings.access == "random" {
            let one = run.steps.iter().find(|step| step.in_flight == 1).and_then(reads_per_second);
            ways.extend(
                one.map(|rate| random("at random, one after the other", "step, 1 in flight".into(), rate)),
            );
        }
        if let Some((in_flight, rate)) = best_random_reads(run) {
            let from = format!("step, {in_flight} in flight");
            ways.push(random("at random, as many at once as the disk takes", from, rate));
        }
        let ordered = |name: &str, from: String, per_second: f64| ReadMethod {
            name: name.into(),
            from,
            per_second,
            bytes: true,
            duration_ns: duration_ns(work.bytes(), per_second),
        };
        let small = run.probes.iter().find(|p| p.sequential && p.in_flight == 1 && p.record_bytes == record);
        ways.extend(small.map(|p| {
            ordered("in order, one record after the other", "probe, 1 in flight".into(), p.bytes_per_second)
        }));
        let wide = run.probes.iter().filter(|p| p.sequential).max_by_key(|p| p.record_bytes);
        ways.extend(wide.filter(|p| p.record_bytes > record).map(|p| {
            let from = format!("probe, {} KiB, {} in flight", p.record_bytes >> 10, p.in_flight);
            ordered("in order, as fast as the disk streams", from, p.bytes_per_second)
        }));
        if ways.is_empty() {
            return Err("that run has no steps and no probes to judge from");
        }
        Ok(Self::of(work, ways))
    }

    /// As text.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text<W: Write>(&self, out: &mut Fitting<W>) -> io::Result<()> {
        writeln!(
            out,
            "{} of {}: {} at random, or {} in order",
            plural(Count(self.documents as f64), "document"),
            plural(self.document_bytes, "byte"),
            plural(Count(self.random_reads as f64), "read"),
            Bytes(self.bytes as f64)
        )?;
        writeln!(out)?;
        let mut table = TextTable::new(&[
            Heading::whole("how", 0),
            Heading::figure("rate", 0),
            Heading::figure("takes", 0),
            Heading::figure("from", 1),
        ])
        .spaced();
        for way in &self.ways {
            let unit = if way.bytes { "B/s" } else { " reads/s" };
            table.row([
                way.name.clone(),
                format!("{}{unit}", Count(way.per_second)),
                way.duration_ns.map_or_else(|| "never".to_owned(), |ns| Nanos(ns).to_string()),
                way.from.clone(),
            ]);
        }
        table.write(out)?;
        writeln!(out)?;
        out.sentences([
            "This is reading only. WiredTiger's cache and the page cache save reads; finding the documents in an \
             index, and whatever else uses the disk, costs more.",
        ])?;
        out.flush()
    }
}

/// Reads per second; of a step that read and wrote, the reads alone.
/// The step with the most reads at random: requests in flight, and reads per second. `None` if the run has none.
pub(crate) fn best_random_reads(run: &BenchReport) -> Option<(u32, f64)> {
    if run.settings.access != "random" {
        return None;
    }
    let steps = run.steps.iter().filter_map(|step| Some((step.in_flight, reads_per_second(step)?)));
    steps.max_by(|a, b| a.1.total_cmp(&b.1))
}

fn reads_per_second(step: &super::run::StepJson) -> Option<f64> {
    let reads = step.reads.as_ref()?;
    (step.seconds > 0.0).then(|| reads.count as f64 / step.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::run::{ProbeResult, RequestsJson, StepJson};

    const WORK: Work = Work { documents: 100_000_000, document_bytes: 1_000, record_bytes: 4_096 };

    #[test]
    fn a_hundred_a_second_are_eleven_days() {
        let estimate = Estimate::at_rate(&WORK, 100.0);
        assert_eq!(estimate.ways[0].duration_ns, Some(1_000_000_000_000_000));
        let mut out = Vec::new();
        estimate.text(&mut Fitting::new(&mut out, Some(80))).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("11d13h"));
    }

    #[test]
    fn a_run_gives_every_way_that_it_measured() {
        let mut run = BenchReport::default();
        (run.settings.r, run.settings.rec_size_kb) = (true, 4);
        run.settings.access = "random".into();
        let probe = |sequential, record_bytes, in_flight, ops: f64| ProbeResult {
            sequential,
            record_bytes,
            in_flight,
            operations_per_second: ops,
            bytes_per_second: ops * f64::from(record_bytes),
            ..Default::default()
        };
        run.probes = vec![
            probe(false, 4_096, 1, 100.0),
            probe(true, 4_096, 1, 1_000.0),
            probe(true, 1 << 20, 4, 50.0),
        ];
        for (in_flight, count) in [(1, 90), (2, 400), (4, 300)] {
            let reads = Some(RequestsJson { count, ..RequestsJson::default() });
            run.steps.push(StepJson { in_flight, seconds: 2.0, reads, ..StepJson::default() });
        }
        let ways = Estimate::from_run(&WORK, &run).unwrap().ways;
        let rates: Vec<f64> = ways.iter().map(|way| way.per_second).collect();
        assert_eq!(rates, [100.0, 200.0, 4_096_000.0, 52_428_800.0]);
        assert_eq!(ways[2].duration_ns, Some((1e11 / 4_096_000.0 * 1e9) as u64));
        run.settings.r = false;
        assert!(Estimate::from_run(&WORK, &run).is_err());
    }
}
