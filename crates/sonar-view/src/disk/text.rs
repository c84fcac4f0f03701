//! A test as plain text: mongoperf's lines while it runs, the tables and the sentences at its end.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::run::{DeviceRates, Kind, Run, Step};
use crate::kit::{Count, Nanos, escape, fold, or_unknown, width, wrap};

/// Heads of the columns of devices: those of `iostat -x`, behind the step that they belong to.
pub(super) const DEVICE_COLUMNS: [&str; 11] = [
    "in flight",
    "device",
    "r/s",
    "w/s",
    "rkB/s",
    "wkB/s",
    "r_await",
    "w_await",
    "f_await",
    "aqu-sz",
    "%util",
];

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
pub fn options(run: &Run) -> String {
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

/// Lines of cells within `columns`, each column as wide as its widest cell; the first `left` columns begin on the
/// left. Where there is no room the columns with these titles give way, the first of them first.
pub(super) fn grid(
    rows: &[Vec<String>],
    (left, give_way): (usize, &[&str]),
    columns: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let hidden = fitting_grid(rows, (left, give_way), columns, out)?;
    if !hidden.is_empty() {
        writeln!(out, "(no room for: {}; --width shows more)", hidden.join(", "))?;
    }
    Ok(())
}

/// The same without a line that names what had no room, which it returns.
pub(super) fn fitting_grid<'a>(
    rows: &[Vec<String>],
    (left, give_way): (usize, &[&'a str]),
    columns: usize,
    out: &mut impl Write,
) -> io::Result<Vec<&'a str>> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|at| rows.iter().filter_map(|r| r.get(at)).map(|c| width(c)).max().unwrap_or(0))
        .collect();
    let mut shown: Vec<usize> = (0..count).collect();
    let mut hidden = Vec::new();
    let mut next = give_way.iter();
    while shown.iter().map(|&at| widths[at] + 2).sum::<usize>() > columns + 2 {
        let Some(title) = next.next() else { break };
        let is_it = |at: &usize| rows.first().and_then(|row| row.get(*at)).is_some_and(|cell| cell == title);
        if shown.iter().any(is_it) {
            shown.retain(|at| !is_it(at));
            hidden.push(*title);
        }
    }
    for row in rows {
        let mut line = String::new();
        for (number, &at) in shown.iter().enumerate() {
            let Some(cell) = row.get(at) else { continue };
            let fill = " ".repeat(widths[at].saturating_sub(width(cell)));
            if number > 0 {
                line.push_str("  ");
            }
            if at < left {
                line.push_str(cell);
                line.push_str(&fill);
            } else {
                line.push_str(&fill);
                line.push_str(cell);
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(hidden)
}

fn cells<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn ns(value: Option<u64>) -> String {
    or_unknown(value.map(Nanos))
}

fn latencies(kind: &Kind) -> [String; 5] {
    let l = &kind.latency_ns;
    [ns(l.p50), ns(l.p95), ns(l.p99), ns(l.p999), ns(l.max)]
}

/// Where a run took place, in lines.
pub fn place(run: &Run) -> Vec<String> {
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
    lines.push(format!(
        "{} {what} of {} KiB in a file of {} MiB{flush}, {way}, engine {}",
        escape(&settings.access),
        settings.rec_size_kb,
        settings.file_size_mb,
        escape(&run.engine)
    ));
    lines
}

/// The table of the steps.
///
/// # Errors
/// Those of `out`.
pub fn steps(run: &Run, columns: usize, out: &mut impl Write) -> io::Result<()> {
    let mut rows = vec![cells([
        "in flight",
        "ops/s",
        "MB/s",
        "cpu/op",
        "busy",
        "",
        "count",
        "p50",
        "p95",
        "p99",
        "p99.9",
        "max",
    ])];
    for step in &run.steps {
        let mut head = [
            step.in_flight.to_string(),
            Count(step.operations_per_second).to_string(),
            if run.settings.mmf { "-".into() } else { Count(step.bytes_per_second / MIB).to_string() },
            or_unknown(step.cpu.ns_per_operation.map(|ns| Nanos(ns as u64))),
            or_unknown(step.cpu.machine_busy.map(|busy| format!("{:.0}%", busy * 100.0))),
        ];
        let mut any = false;
        for (name, kind) in step.kinds() {
            let mut row: Vec<String> = head.to_vec();
            row.push(name.to_owned());
            row.push(Count(kind.count as f64).to_string());
            row.extend(latencies(kind));
            rows.push(row);
            head = Default::default();
            any = true;
        }
        if !any {
            rows.push(head.to_vec());
        }
    }
    grid(&rows, (0, &["busy", "cpu/op", "count", "p95", "p99.9", "MB/s", "max"]), columns, out)
}

fn fixed(value: f64) -> String {
    format!("{value:.2}")
}

/// The columns of the device in each step, named and rounded as `iostat -x` does.
///
/// # Errors
/// Those of `out`.
pub fn device(run: &Run, columns: usize, out: &mut impl Write) -> io::Result<()> {
    let row = |step: &Step, rates: &DeviceRates| {
        vec![
            step.in_flight.to_string(),
            escape(&rates.device).into_owned(),
            fixed(rates.r),
            fixed(rates.w),
            fixed(rates.rkb),
            fixed(rates.wkb),
            fixed(rates.r_await),
            fixed(rates.w_await),
            or_unknown(rates.f_await.map(fixed)),
            fixed(rates.aqu),
            fixed(rates.util),
        ]
    };
    let mut rows = vec![cells(DEVICE_COLUMNS)];
    for step in &run.steps {
        rows.extend(step.device.iter().chain(&step.disks).map(|rates| row(step, rates)));
    }
    if rows.len() == 1 {
        return writeln!(out, "The kernel counts no device below this file system.");
    }
    grid(&rows, (0, &["f_await", "rkB/s", "wkB/s", "aqu-sz", "in flight"]), columns, out)
}

/// The probes.
///
/// # Errors
/// Those of `out`.
pub fn probes(run: &Run, columns: usize, out: &mut impl Write) -> io::Result<()> {
    if run.probes.is_empty() {
        return Ok(());
    }
    let mut rows = vec![cells(["probe", "in flight", "ops/s", "MB/s", "p50", "p99"])];
    for probe in &run.probes {
        let order = if probe.sequential { "sequential" } else { "random" };
        rows.push(vec![
            format!("{order}, {} KiB", probe.record_bytes / 1024),
            probe.in_flight.to_string(),
            Count(probe.operations_per_second).to_string(),
            Count(probe.bytes_per_second / MIB).to_string(),
            ns(probe.latency_ns.p50),
            ns(probe.latency_ns.p99),
        ]);
    }
    grid(&rows, (1, &[]), columns, out)?;
    writeln!(out)
}

/// Sentences, each begun with a dash and broken at `columns`.
pub(super) fn sentences<'a>(
    words: impl IntoIterator<Item = &'a str>,
    columns: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    for sentence in words {
        for (number, line) in wrap_words(&escape(sentence), columns.saturating_sub(2)).into_iter().enumerate()
        {
            writeln!(out, "{}{line}", if number == 0 { "- " } else { "  " })?;
        }
    }
    Ok(())
}

/// Breaks at blanks only; a word longer than a line is broken where the line ends.
fn wrap_words(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.extend(wrap(word, columns)),
        }
    }
    lines
}

/// What stands at the end of a run.
///
/// # Errors
/// Those of `out`.
pub fn report(run: &Run, columns: usize, out: &mut impl Write) -> io::Result<()> {
    for line in place(run) {
        for part in fold(&line, columns) {
            writeln!(out, "{part}")?;
        }
    }
    writeln!(out)?;
    probes(run, columns, out)?;
    steps(run, columns, out)?;
    writeln!(out)?;
    device(run, columns, out)?;
    writeln!(out)?;
    if let Some(verdict) = &run.verdict {
        sentences(verdict.words.iter().map(String::as_str), columns, out)?;
    }
    sentences(run.notes.iter().map(String::as_str), columns, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_that_mongoperf_prints() {
        assert_eq!(second(12_558, 4_096, false), "12558 ops/sec 49 MB/sec");
        assert_eq!(second(32_093, 4_096, false), "32093 ops/sec 125 MB/sec");
        // Where mongoperf took every record for 4 KiB.
        assert_eq!(second(1_000, 65_536, false), "1000 ops/sec 62 MB/sec");
        assert_eq!(second(12_428_606, 4_096, true), "12428606 ops/sec ");
        assert_eq!(begun(4, true, false), "new thread, total running : 4\nread:1 write:0");
        assert_eq!(synced(97_400_000), format!("{}mmf sync took 97ms", " ".repeat(53)));
    }

    #[test]
    fn a_sentence_is_broken_between_words() {
        let mut out = Vec::new();
        sentences(["one two three four"], 11, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "- one two\n  three\n  four\n");
    }
}
