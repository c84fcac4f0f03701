//! `io report` as text.

use std::fmt::Write as _;
use std::io::{self, Write};

use sonar_core::files::FilePattern;

use super::Recording;
use super::verdict::readahead;
use crate::kit::{
    Bytes, Count, Fitting, Grouped, Heading, Nanos, Percent, Ratio, TextTable, UNKNOWN, escape, or_unknown,
    plural,
};

/// The figures of a file.
pub(super) const FIGURES: [Heading; 13] = [
    Heading::figure("reads", 0),
    Heading::figure("bytes", 1),
    Heading::figure("time", 0),
    Heading::figure("p50", 6),
    Heading::figure("p99", 3),
    Heading::figure("cached", 2),
    Heading::figure("seq", 5),
    Heading::figure("random", 4),
    Heading::figure("run", 9),
    Heading::figure("amplif", 7),
    Heading::figure("dev/B", 8),
    Heading::figure("writes", 10),
    Heading::figure("syncs", 11),
];

/// The cells below [`FIGURES`].
pub(super) fn figures(file: &FilePattern) -> [String; 13] {
    let (reads, latency) = (&file.reads, file.reads.latency());
    [
        Count(reads.count as f64).to_string(),
        Count(reads.given as f64).to_string(),
        Nanos(time_ns(file)).to_string(),
        or_unknown(latency.quantile_ns(0.5).map(Nanos)),
        or_unknown(latency.quantile_ns(0.99).map(Nanos)),
        or_unknown(reads.cached_share().map(Percent)),
        or_unknown(reads.distances.sequential_share().map(Percent)),
        or_unknown(reads.distances.randomness().map(Ratio)),
        or_unknown(reads.runs.mean().map(Count)),
        or_unknown(reads.amplification().map(Ratio)),
        or_unknown(reads.device_per_byte().map(Ratio)),
        Count(file.writes.as_ref().map_or(0, |flow| flow.count) as f64).to_string(),
        Count(file.syncs.count() as f64).to_string(),
    ]
}

/// Nanoseconds that reads of a file took together.
pub(super) fn time_ns(file: &FilePattern) -> u64 {
    u64::try_from(file.reads.latency().sum_ns()).unwrap_or(u64::MAX)
}

/// Writes the report as text, with at most `limit` files and threads.
///
/// # Errors
/// Those of `out`.
pub fn text<W: Write>(recording: &Recording<'_>, limit: usize, out: &mut Fitting<W>) -> io::Result<()> {
    for line in recording.verdict().1 {
        writeln!(out, "{line}")?;
    }
    head(recording, out)?;
    files(recording, limit, out)?;
    distances(recording, out)?;
    threads(recording, limit, out)?;
    out.flush()
}

/// What was recorded, and what of it is missing.
fn head(recording: &Recording<'_>, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{}", plural(Grouped(recording.analysis.accesses()), "access"))?;
    if let Some((first, last)) = recording.analysis.span() {
        write!(out, " in {}: {first} to {last}", Nanos(last.since(first)))?;
    }
    writeln!(out)?;
    for (what, count) in recording.losses.in_words() {
        writeln!(out, "  lost: {what}: {}", Grouped(count))?;
    }
    for (what, count) in recording.not_distinguished_in_words() {
        writeln!(out, "  not distinguished: {what}: {}", Grouped(count))?;
    }
    if recording.left_out > 0 {
        let count = plural(Grouped(recording.left_out), "access");
        writeln!(out, "  left out: {count} to files of /proc and /sys (--pseudo-filesystems shows them)")?;
    }
    if let Some(damage) = recording.damage {
        writeln!(out, "  incomplete: {}", escape(damage))?;
    }
    Ok(())
}

fn files<W: Write>(recording: &Recording<'_>, limit: usize, out: &mut Fitting<W>) -> io::Result<()> {
    let files = recording.ranked();
    let shown = files.len().min(limit);
    writeln!(out, "\nFiles, by time spent in reading them ({shown} of {})", files.len())?;
    let mut table = TextTable::new(&[&FIGURES[..], &[Heading::text("file", 0, 20)]].concat());
    for (id, file) in files.iter().take(limit) {
        table.row(figures(file).into_iter().chain([recording.name(*id)]));
    }
    let laid = table.lay(out.width());
    writeln!(out, "{}", laid.head)?;
    for ((id, file), line) in files.iter().zip(&laid.rows) {
        writeln!(out, "{line}")?;
        phases(recording, *id, out)?;
        if let Some((words, _)) = readahead(file) {
            writeln!(out, "        {}", words.replacen('R', "r", 1))?;
        }
    }
    laid.left_out.iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// How a file was read one phase after the other, where there are several.
fn phases(recording: &Recording<'_>, file: u32, out: &mut impl Write) -> io::Result<()> {
    const SHOWN: usize = 6;
    let (phases, slice_ns) = (recording.analysis.phases(file), recording.analysis.slice_ns());
    if phases.len() < 2 {
        return Ok(());
    }
    let mut line = String::new();
    for phase in phases.iter().take(SHOWN) {
        let _ = write!(
            line,
            "{} at {} for {} ({}); ",
            phase.path.name(),
            Nanos(phase.first as u64 * slice_ns),
            Nanos((phase.last - phase.first + 1) as u64 * slice_ns),
            plural(Count(phase.total.reads as f64), "read")
        );
    }
    if phases.len() > SHOWN {
        let _ = write!(line, "{} more; ", phases.len() - SHOWN);
    }
    writeln!(out, "        phases: {}", line.trim_end_matches("; "))
}

/// A histogram of the file on which most time was spent.
fn distances(recording: &Recording<'_>, out: &mut impl Write) -> io::Result<()> {
    let files = recording.ranked();
    let Some((id, file)) = files.first().filter(|(_, file)| file.reads.distances.count() > 0) else {
        return Ok(());
    };
    writeln!(out, "\nDistances between consecutive reads of {}", recording.name(*id))?;
    let most = file.reads.distances.buckets().map(|(_, count)| count).max().unwrap_or(1);
    for (low, count) in file.reads.distances.buckets() {
        let what = match low {
            0 => "0".to_string(),
            low => format!("{}{}", if low < 0 { "-" } else { "+" }, Bytes(low.unsigned_abs() as f64)),
        };
        let bar = "#".repeat((count as f64 / most as f64 * 40.0).ceil() as usize);
        writeln!(out, "{what:>9} {:>10} {bar}", Grouped(count))?;
    }
    Ok(())
}

fn threads<W: Write>(recording: &Recording<'_>, limit: usize, out: &mut Fitting<W>) -> io::Result<()> {
    let threads = recording.threads_ranked();
    writeln!(out, "\nThreads, by time spent in reads ({} of {})", threads.len().min(limit), threads.len())?;
    let mut table = TextTable::new(&[
        Heading::figure("reads", 0),
        Heading::figure("bytes", 0),
        Heading::figure("time", 0),
        Heading::figure("waits", 0),
        Heading::text("what for", 0, 10),
        Heading::text("thread", 0, 10),
    ]);
    for (id, thread) in threads.iter().take(limit) {
        let role = recording.thread_role(*id).name();
        table.row([
            Count(thread.reads as f64).to_string(),
            Count(thread.read_bytes as f64).to_string(),
            Nanos(thread.read_ns).to_string(),
            or_unknown(thread.read_share().map(Percent)),
            (if role.is_empty() { UNKNOWN } else { role }).to_owned(),
            recording.thread(*id),
        ]);
    }
    table.write(out)
}
