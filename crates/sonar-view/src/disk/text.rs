//! `disk bench` as text: mongoperf's lines while it runs, the tables and the sentences at its end.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::run::{BenchReport, RequestsJson};
use crate::kit::{Count, Fitting, Heading, Nanos, Percent, Ratio, TextTable, escape, or_unknown};

/// MiB, which mongoperf calls MB.
const MIB: f64 = 1_048_576.0;

/// mongoperf's line of one second: `12558 ops/sec 49 MB/sec`; without the second figure for a mapped file.
pub fn second(operations: u64, record_bytes: u32, mapped: bool) -> String {
    if mapped {
        return format!("{operations} ops/sec ");
    }
    let bytes = u128::from(operations) * u128::from(record_bytes);
    format!("{operations} ops/sec {} MB/sec", bytes >> 20)
}

/// mongoperf's line of an `msync` that took `ns`.
pub fn synced(ns: u64) -> String {
    format!("{:53}mmf sync took {}ms", "", ns / 1_000_000)
}

/// mongoperf's lines when `in_flight` are reached.
pub fn begun(in_flight: u32, reads: bool, writes: bool) -> String {
    format!("new thread, total running : {in_flight}\nread:{} write:{}", u8::from(reads), u8::from(writes))
}

/// mongoperf's echo of its options.
pub fn options(run: &BenchReport) -> String {
    let s = &run.settings;
    let mut text = format!(
        "{{ nThreads: {}, fileSizeMB: {}, r: {}, w: {}, mmf: {}",
        s.n_threads, s.file_size_mb, s.r, s.w, s.mmf
    );
    let more = [
        ("sleepMicros", s.sleep_micros, 0),
        ("recSizeKB", u64::from(s.rec_size_kb), 4),
        ("syncDelay", s.sync_delay, 0),
    ];
    for (name, value, _) in more.into_iter().filter(|(_, value, default)| value != default) {
        let _ = write!(text, ", {name}: {value}");
    }
    text.push_str(" }");
    text
}

fn ns(value: Option<u64>) -> String {
    or_unknown(value.map(Nanos))
}

fn latencies(kind: &RequestsJson) -> [String; 5] {
    let l = &kind.latency_ns;
    [ns(l.p50), ns(l.p95), ns(l.p99), ns(l.p999), ns(l.max)]
}

/// Where a run took place, in lines.
pub fn place(run: &BenchReport) -> Vec<String> {
    let place = &run.place;
    let mut lines = Vec::new();
    let mut disk = String::new();
    if let Some(device) = &place.device {
        let _ = write!(disk, " on {}", escape(device));
    }
    if let Some(model) = &place.model {
        let _ = write!(disk, " ({})", escape(model));
    }
    if !place.disks.is_empty() {
        let _ = write!(disk, ", made of {}", escape(&place.disks.join(", ")));
    }
    if let Some(scheduler) = &place.scheduler {
        let _ = write!(disk, ", scheduler {}", escape(scheduler));
    }
    lines.push(format!(
        "{}: {}{disk}",
        escape(&place.dir),
        escape(place.file_system.as_deref().unwrap_or("unknown file system"))
    ));
    let settings = &run.settings;
    let what = match (settings.r, settings.w) {
        (true, true) => "reads and writes",
        (false, true) => "writes",
        _ => "reads",
    };
    let flush =
        if settings.w && settings.fdatasync && !settings.mmf { ", fdatasync after each write" } else { "" };
    let way = match (settings.mmf, settings.direct) {
        (true, _) => "mapped",
        (false, true) => "direct I/O",
        (false, false) => "through the page cache",
    };
    // Without an engine nothing was begun.
    let engine = match run.engine.as_str() {
        "" => String::new(),
        engine => format!(", engine {}", escape(engine)),
    };
    lines.push(format!(
        "{} {what} of {} KiB in a file of {} MiB{flush}, {way}{engine}",
        escape(&settings.access),
        settings.rec_size_kb,
        settings.file_size_mb,
    ));
    lines
}

/// The tables of the probes, the steps and the devices, and what they mean.
///
/// # Errors
/// Those of `out`.
pub fn text<W: Write>(run: &BenchReport, out: &mut Fitting<W>) -> io::Result<()> {
    for line in place(run) {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    if !run.probes.is_empty() {
        probes(run).write(out)?;
        writeln!(out)?;
    }
    if !run.steps.is_empty() {
        steps(run).write(out)?;
        writeln!(out)?;
        match devices(run) {
            Some(table) => table.write(out)?,
            None => writeln!(out, "The kernel counts no device below this file system.")?,
        }
        writeln!(out)?;
    }
    out.sentences(run.verdict.iter().flat_map(|verdict| &verdict.words).chain(&run.notes))?;
    out.flush()
}

fn steps(run: &BenchReport) -> TextTable {
    let mut table = TextTable::new(&[
        Heading::figure("in flight", 0),
        Heading::figure("ops/s", 0),
        Heading::figure("MB/s", 2),
        Heading::figure("cpu/op", 6),
        Heading::figure("busy", 7),
        Heading::figure("", 0),
        Heading::figure("count", 5),
        Heading::figure("p50", 0),
        Heading::figure("p95", 4),
        Heading::figure("p99", 0),
        Heading::figure("p99.9", 3),
        Heading::figure("max", 1),
    ])
    .spaced();
    for step in &run.steps {
        let mut head = [
            step.in_flight.to_string(),
            Count(step.operations_per_second).to_string(),
            or_unknown((!run.settings.mmf).then_some(Count(step.bytes_per_second / MIB))),
            or_unknown(step.cpu.ns_per_operation.map(|ns| Nanos(ns as u64))),
            or_unknown(step.cpu.machine_busy.map(Percent)),
        ];
        let mut any = false;
        for (name, kind) in step.kinds() {
            let count = Count(kind.count as f64).to_string();
            table.row(head.into_iter().chain([name.to_owned(), count]).chain(latencies(kind)));
            head = Default::default();
            any = true;
        }
        if !any {
            table.row(head);
        }
    }
    table
}

/// The columns of the devices in each step, named and rounded as `iostat -x` does; `None` where the kernel counts none.
fn devices(run: &BenchReport) -> Option<TextTable> {
    // What the test did not ask the device for gives way first.
    let (reads, writes) = match (run.settings.r, run.settings.w) {
        (true, false) => (1, 6),
        (false, true) => (6, 1),
        _ => (1, 1),
    };
    let mut table = TextTable::new(&[
        Heading::figure("in flight", 2),
        Heading::figure("device", 0),
        Heading::figure("r/s", reads),
        Heading::figure("w/s", writes),
        Heading::figure("rkB/s", reads),
        Heading::figure("wkB/s", writes),
        Heading::figure("r_await", reads),
        Heading::figure("w_await", writes),
        Heading::figure("f_await", 5),
        Heading::figure("aqu-sz", 3),
        Heading::figure("%util", 0),
    ]);
    let mut any = false;
    for step in &run.steps {
        for rates in step.device.iter().chain(&step.disks) {
            let figures = [rates.r, rates.w, rates.rkb, rates.wkb, rates.r_await, rates.w_await].map(Some);
            let figures = figures.into_iter().chain([rates.f_await, Some(rates.aqu), Some(rates.util)]);
            let figures = figures.map(|figure| or_unknown(figure.map(Ratio)));
            table.row([step.in_flight.to_string(), rates.device.clone()].into_iter().chain(figures));
            any = true;
        }
    }
    any.then_some(table)
}

fn probes(run: &BenchReport) -> TextTable {
    let mut table = TextTable::new(&[
        Heading::whole("probe", 0),
        Heading::figure("in flight", 0),
        Heading::figure("ops/s", 0),
        Heading::figure("MB/s", 0),
        Heading::figure("p50", 0),
        Heading::figure("p99", 0),
    ])
    .spaced();
    for probe in &run.probes {
        let order = if probe.sequential { "sequential" } else { "random" };
        table.row([
            format!("{order}, {} KiB", probe.record_bytes / 1024),
            probe.in_flight.to_string(),
            Count(probe.operations_per_second).to_string(),
            Count(probe.bytes_per_second / MIB).to_string(),
            ns(probe.latency_ns.p50),
            ns(probe.latency_ns.p99),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_table_of_devices_has_the_bytes_of_what_was_asked() {
        let mut run =
            BenchReport::read(include_bytes!("../../../../fixtures/disk-bench.json")).expect("a report");
        for (reads, writes, shown, hidden) in [
            (true, false, "rkB/s", "wkB/s"),
            (false, true, "wkB/s", "rkB/s"),
            (true, true, "rkB/s", "f_await"),
        ] {
            (run.settings.r, run.settings.w) = (reads, writes);
            for rates in run.steps.iter_mut().flat_map(|step| &mut step.device) {
                (rates.r, rates.rkb, rates.w, rates.wkb) = (123_456.0, 654_321.0, 123_456.0, 654_321.0);
            }
            let laid = devices(&run).unwrap().lay(Some(80));
            assert!(laid.head.contains(shown), "{laid:?}");
            assert!(laid.left_out.is_some_and(|line| line.contains(hidden)));
        }
    }

    #[test]
    fn lines_are_those_that_mongoperf_prints() {
        assert_eq!(second(12_558, 4_096, false), "12558 ops/sec 49 MB/sec");
        assert_eq!(second(32_093, 4_096, false), "32093 ops/sec 125 MB/sec");
        // mongoperf takes every record as 4 KiB.
        assert_eq!(second(1_000, 65_536, false), "1000 ops/sec 62 MB/sec");
        assert_eq!(second(12_428_606, 4_096, true), "12428606 ops/sec ");
        assert_eq!(begun(4, true, false), "new thread, total running : 4\nread:1 write:0");
        assert_eq!(synced(97_400_000), format!("{}mmf sync took 97ms", " ".repeat(53)));
    }
}
