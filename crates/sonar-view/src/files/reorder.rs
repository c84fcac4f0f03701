//! What `io reorder` says before it rewrites a collection. A sentence is a line.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use sonar_core::files::verdict::Finding;
use sonar_core::files::worth::{MIN_DOCUMENTS, WORTH_FROM};
use sonar_core::files::{FileRole, FilesVerdict, RewriteEstimate, SampleRead, Worth, is_file_of, judge_file};

use super::Recording;
use crate::kit::{Count, Nanos, escape, plural};

/// Writes what rewriting a collection takes, and whether the samples show that it is worth it.
///
/// # Errors
/// Those of `out`.
pub fn text(estimate: &RewriteEstimate, server: &str, out: &mut impl Write) -> io::Result<()> {
    write(&described(estimate, server), out)
}

/// Writes what a recording shows of it.
///
/// # Errors
/// Those of `out`.
pub fn recorded(
    estimate: &RewriteEstimate,
    recording: &Recording<'_>,
    out: &mut impl Write,
) -> io::Result<()> {
    write(&found(estimate, recording), out)
}

fn write(lines: &[String], out: &mut impl Write) -> io::Result<()> {
    lines.iter().try_for_each(|line| writeln!(out, "{}", escape(line)))
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// What reading the samples took.
fn sampled(estimate: &RewriteEstimate) -> Option<String> {
    let RewriteEstimate { asked, own, index, .. } = estimate;
    let from = |sample: &SampleRead| {
        sample
            .device_bytes
            .map_or(String::new(), |bytes| format!(" ({}B from the device)", Count(bytes as f64)))
    };
    (own.documents > 0).then(|| {
        format!(
            "A sample of {} took {}{} in the order of {index}, {}{} in the collection's own.",
            plural(own.documents, "document"),
            nanos(asked.time),
            from(asked),
            nanos(own.time),
            from(own),
        )
    })
}

/// What follows from the samples.
fn advised(estimate: &RewriteEstimate) -> String {
    let RewriteEstimate { namespace, index, .. } = estimate;
    let how = format!(
        "To find out, record the reads of the server while they are slow: mongosonar io record reads.msio --duration 10m on its host; then mongosonar io reorder {namespace} --index {index} --uri URI --recording reads.msio."
    );
    match estimate.worth() {
        Worth::Empty => "It is empty: there is nothing to rewrite.".to_owned(),
        Worth::Small => {
            "It is so small that a cache holds all of it: its order on the disk makes no difference."
                .to_owned()
        }
        Worth::NotMeasured => format!(
            "Cannot tell whether rewriting it is worth it: it is unknown how much of the sample came from the device (that needs a mongod on this host, and root). {how}"
        ),
        Worth::FromCache => format!(
            "Cannot tell whether rewriting it is worth it: too little of the sample came from the device, so that its times are those of memory. {how}"
        ),
        Worth::Yes(times) => format!(
            "That is {times:.1} times as long, from the device: rewriting it is worth it where it is walked in that order."
        ),
        Worth::No(times) => {
            format!("That is {times:.1} times as long, from the device: rewriting it is hardly worth it.")
        }
    }
}

/// What it would do and take.
fn described(estimate: &RewriteEstimate, server: &str) -> Vec<String> {
    let mut lines = vec![format!(
        "{} on {server}: {}, {}B, {}B on the disk, {} beside _id, {}B all indexes",
        estimate.namespace,
        plural(estimate.documents, "document"),
        Count(estimate.bytes as f64),
        Count(estimate.storage_bytes as f64),
        plural(estimate.indexes, "index"),
        Count(estimate.index_bytes as f64),
    )];
    lines.extend(sampled(estimate));
    lines.push(advised(estimate));
    let space = match (estimate.fits(), estimate.free_bytes) {
        (Some(true), Some(free)) => format!("{}B are free.", Count(free as f64)),
        (Some(false), Some(free)) => {
            format!("Only {}B are free: it does not fit, and --apply is refused.", Count(free as f64))
        }
        _ => "Free space is unknown; check it first.".to_owned(),
    };
    lines.push(format!(
        "The copy takes about {}B more until the original is dropped, on each member of a replica set. {space}",
        Count(estimate.needed_bytes() as f64),
    ));
    let (least, most) = estimate.reading();
    let range = if most.as_secs_f64() < least.as_secs_f64() * 1.1 {
        format!("about {}", nanos(least))
    } else {
        format!("{} to {}", nanos(least), nanos(most))
    };
    lines.push(format!(
        "Reading it takes {range}, estimated from the fastest and slowest parts of the sample (once in the order of {}, {} in its own); longer if the sample came from the cache. Writing it and its indexes takes additional time, which a sample cannot show.",
        estimate.index,
        plural(estimate.passes(), "more time"),
    ));
    lines.push(match &estimate.unwatched {
        None => "A change stream watches for writes during the copy; a write stops it.".to_owned(),
        Some(why) => format!(
            "Writes during the copy cannot be watched ({why}): stop everything that writes to it. A write is still found, because it changes the content, and stops the copy."
        ),
    });
    if estimate.expires {
        lines.push(
            "Its documents expire (expireAfterSeconds): each removal is a write, and stops the copy."
                .to_owned(),
        );
    }
    if let Some(left) = &estimate.leftover {
        lines.push(format!("{left}: look at it, then remove it with --clean."));
    }
    lines
}

/// Whether it is worth it, from a recording.
fn found(estimate: &RewriteEstimate, recording: &Recording<'_>) -> Vec<String> {
    let name = recording.source;
    let Some(file) = file_of(estimate, recording) else {
        let why = match (&estimate.ident, recording.labels.is_empty()) {
            (None, true) => {
                "neither does the recording name collections (record it with --uri), nor does the server say which file it is"
                    .to_owned()
            }
            (None, false) => "no file in it goes by that name, and the server does not say which it is".to_owned(),
            (Some(ident), _) => format!("the server keeps it in {ident}.wt, of which nothing was read"),
        };
        return vec![format!("{name} says nothing of it: {why}.")];
    };
    let Some(mut lines) = advice(estimate, recording, file) else {
        return vec![format!("{name} says nothing of it: nothing of its file was read.")];
    };
    lines[0].insert_str(0, &format!("{name}: "));
    lines.extend(recording.damage.map(|damage| format!("The recording is incomplete: {damage}.")));
    lines
}

/// The collection's file: by the name that it was given when it was recorded, else by the server's ident.
fn file_of(estimate: &RewriteEstimate, recording: &Recording<'_>) -> Option<u32> {
    let RewriteEstimate { namespace, ident, .. } = estimate;
    let labelled = recording.labels.iter().filter(|(_, label)| *label == namespace).map(|(file, _)| *file);
    let is_ident = |path: &str| ident.as_deref().is_some_and(|ident| is_file_of(path, ident));
    let by_ident = recording.files.iter().filter(|(_, path)| is_ident(path)).map(|(file, _)| *file);
    let reads = |file: &u32| recording.analysis.file(*file).map_or(0, |file| file.reads.count);
    // A collection that was rewritten while it was recorded has had two files.
    labelled.chain(by_ident).filter(|file| reads(file) > 0).max_by_key(reads)
}

/// What the reads of one file say of another order; `None` where there are none.
fn advice(estimate: &RewriteEstimate, recording: &Recording<'_>, file: u32) -> Option<Vec<String>> {
    let thread_role = |thread| recording.thread_role(thread);
    let verdict = judge_file(recording.analysis, file, |_| FileRole::Collection, thread_role)?;
    let index = recording
        .analysis
        .readers()
        .filter(|&(thread, other, _)| {
            Some(thread) == verdict.thread && recording.role(other) == FileRole::Index
        })
        .max_by_key(|&(_, other, reads)| (reads, other))
        .map(|(_, other, _)| other);
    let waited = u64::try_from(verdict.read_ns).unwrap_or(u64::MAX);
    let mut evidence = format!(
        "{} of {} for {}",
        plural(verdict.reads, "read"),
        estimate.namespace,
        plural(verdict.blocks, "different block")
    );
    if let (Some(times), Some(randomness)) = (verdict.amplification, verdict.randomness) {
        let _ = write!(evidence, ", {times:.1} bytes read for each byte touched, randomness {randomness:.2}");
    }
    let _ = write!(evidence, "; {} waited in them", Nanos(waited));
    let wanted = format!("{} index {}", estimate.namespace, estimate.key);
    let through = index.map_or(String::new(), |index| format!(" through {}", recording.name(index)));
    let what = match (verdict.finding, verdict.in_order_ns) {
        (Finding::FromCache, _) => {
            "Cannot tell whether rewriting it is worth it: most of it came from the page cache. Record it again when more of it is read from the device: with more data in use than memory, or after a restart of the host.".to_owned()
        }
        (Finding::TooFewReads, _) => "That is too little to tell whether rewriting it is worth it: record for longer.".to_owned(),
        (Finding::SequentialPass, _) => {
            "It was read in the order in which it lies: rewriting it does not help what was recorded.".to_owned()
        }
        (Finding::ReadAgain, _) => "It was read in the order in which it lies, and again and again: a larger cache helps, another order does not.".to_owned(),
        _ if !is_measured(&verdict) => format!(
            "Cannot tell whether rewriting it is worth it: only {} known to have waited for the device, and it takes {MIN_DOCUMENTS}. Record for longer.",
            match verdict.device_reads.unwrap_or(0) {
                1 => "1 read is".to_owned(),
                reads => format!("{} are", plural(reads, "read")),
            }
        ),
        (_, Some(ns)) if (ns as f64) * WORTH_FROM < waited as f64 => format!(
            "It was fetched{through} in an order that is not the disk's: in order the same bytes would take about {}, at the {}B/s of this recording's own reads in order. Rewriting it is worth it.",
            Nanos(ns),
            Count(verdict.in_order_rate.unwrap_or_default()),
        ),
        (_, Some(ns)) => format!(
            "It was fetched{through} in an order that is not the disk's; but in order the same bytes would take about {} too, at the rate of this recording's own reads in order: rewriting it is hardly worth it.",
            Nanos(ns)
        ),
        (_, None) => format!(
            "It was fetched{through} in an order that is not the disk's; what reading in order would take is not known, as the recording holds too few reads in order that came from the device."
        ),
    };
    let mut lines = vec![format!("{evidence}."), what];
    let walked = index.and_then(|index| recording.label(index));
    let slow =
        verdict.is_evident() && !matches!(verdict.finding, Finding::SequentialPass | Finding::ReadAgain);
    if let Some(label) = walked.filter(|label| slow && *label != wanted) {
        lines.push(format!(
            "The order asked for is that of {wanted}; what was walked is {label}: --index names another."
        ));
    }
    Some(lines)
}

/// Whether enough reads waited for the device: each is of a document at least.
fn is_measured(verdict: &FilesVerdict) -> bool {
    verdict.device_reads.is_some_and(|reads| reads >= MIN_DOCUMENTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_takes_and_whether_it_is_worth_it_are_lines_that_no_name_breaks() {
        let sample = |millis, pace| SampleRead {
            documents: 2_000,
            time: Duration::from_millis(millis),
            pace,
            device_bytes: Some(2 << 20),
        };
        let estimate = RewriteEstimate {
            namespace: "shop.orders\u{1b}[2J".to_owned(),
            index: "by\ncustomer".to_owned(),
            documents: 100_000,
            storage_bytes: 100_000 << 10,
            index_bytes: 1 << 20,
            indexes: 1,
            free_bytes: Some(1 << 20),
            asked: sample(500, (0.001, 0.002)),
            own: sample(100, (0.001, 0.002)),
            unwatched: Some("a standalone has no change streams".to_owned()),
            ..RewriteEstimate::default()
        };
        let mut out = Vec::new();
        text(&estimate, "db1\u{9b}", &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out.lines().count(), 6, "{out}");
        assert!(!out.contains(['\u{1b}', '\u{9b}']), "{out:?}");
        for part in [
            "5.0 times as long",
            "it does not fit",
            "6m40s to 13m20s",
            "in the order of by\\u{a}customer, 3 more times in its own",
            "cannot be watched (a standalone",
        ] {
            assert!(out.contains(part), "{part}: {out}");
        }
    }
}
