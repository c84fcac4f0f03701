//! The answer in words, with its evidence. It says what would help only where the figures show it.

use sonar_core::time_split::TimePart;
use sonar_core::words::processors;

use super::disks::DiskLoadJson;
use super::document::{BlockerJson, ShapeTimeJson, WhyReport};
use super::files::FileJson;
use super::limits::{self, ProcessLimitJson};
use super::parts::{PartJson, WITHOUT_STACK};
use crate::kit::{Bytes, Count, Grouped, Nanos, Percent, plural};
use crate::shown_part::ShownPart;

/// A part below this share of the time is not explained.
const NOTABLE: f64 = 0.05;
/// A part from this share on decides what would help.
const DOMINANT: f64 = 0.3;

pub(super) fn sentences(shape: &ShapeTimeJson, report: &WhyReport) -> Vec<String> {
    let is_notable = |part: TimePart| shape.share_of(part) >= NOTABLE;
    let each = |ns: u64| Nanos(ns / shape.operations.max(1));
    let mut sentences = vec![whole(shape)];
    if is_notable(TimePart::Read) {
        sentences.extend(read_evidence(shape));
        let device = shape.files.first().map(|file| file.device);
        let disk = report.disks.iter().find(|disk| Some(disk.device) == device);
        sentences.extend(disk.map(DiskLoadJson::sentence));
    }
    if is_notable(TimePart::RunQueue) {
        let throttled = report.limits.iter().filter(|limit| limit.is_throttled());
        sentences.extend(throttled.map(ProcessLimitJson::sentence));
    }
    if is_notable(TimePart::Futex) || is_notable(TimePart::Poll) {
        let first = shape.blockers.first();
        sentences.extend(first.map(|first| blocker(first, !shape.has_other_blockers)));
    }
    let unread = shape.parts.iter().find(|part| part.part == ShownPart::Unread);
    if let Some(part) = unread.filter(|part| part.share >= NOTABLE) {
        sentences.push(format!(
            "On average, {} passed before the server read the request: its thread was still busy with the previous operation.",
            each(part.ns)
        ));
    }
    if let Some(server) = &shape.server {
        sentences.extend(server.sentences(shape.operations));
    }
    sentences.extend(help(shape, report));
    sentences
}

/// How long it takes, and the parts that matter.
fn whole(shape: &ShapeTimeJson) -> String {
    let notable: Vec<&PartJson> = shape.parts.iter().filter(|part| part.share >= NOTABLE).collect();
    let spent: Vec<_> = notable
        .iter()
        .map(|part| {
            let mean = Nanos(part.ns / shape.operations.max(1));
            format!("{mean} ({}) {}{}", Percent(part.share), part.part.words(), classes(part))
        })
        .collect();
    format!("Of {} on average, {}.", Nanos(shape.mean_ns as u64), list(&spent))
}

/// What its long waits were for, where that is known.
fn classes(part: &PartJson) -> String {
    let is_known = |class: &str| class != WITHOUT_STACK;
    let notable = part.classes.iter().filter(|class| class.share >= NOTABLE && is_known(&class.class));
    let named: Vec<_> = notable.map(|class| format!("{} {}", class.class, Percent(class.share))).collect();
    if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) }
}

/// `a, b and c`.
fn list(items: &[String]) -> String {
    match items {
        [] => format!("no part takes {} or more", Percent(NOTABLE)),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The evidence for waits in reads: how many, of what size, in which files. `None` if no file is known: all reads
/// that waited failed.
fn read_evidence(shape: &ShapeTimeJson) -> Option<String> {
    let files = &shape.files;
    let sum = |of: fn(&FileJson) -> u64| files.iter().map(of).fold(0, u64::saturating_add);
    let (waited, reads, bytes) = (sum(|file| file.wait_ns), sum(|file| file.reads), sum(|file| file.bytes));
    let operations = shape.operations.max(1) as f64;
    let longest = files.iter().take(2).filter(|file| file.wait_ns > 0);
    let mut names: Vec<_> = longest
        .map(|file| {
            // Of all files, where all are known.
            let part = Percent(file.wait_ns as f64 / waited.max(1) as f64);
            if shape.has_other_files { file.label() } else { format!("{} ({part})", file.label()) }
        })
        .collect();
    if names.is_empty() {
        return None;
    }
    if files.len() > 2 || shape.has_other_files {
        names.push("others".to_owned());
    }
    let least = if shape.has_other_files { "at least " } else { "" };
    Some(format!(
        "Each operation waits for {least}{} of {} on average, {}, in {}; {} per operation came from the disk.",
        plural(Count(reads as f64 / operations), "read"),
        Bytes(bytes as f64 / reads.max(1) as f64),
        order(sum(|file| file.in_order) as f64 / reads.max(1) as f64),
        list(&names),
        Bytes(shape.device_bytes as f64 / operations)
    ))
}

/// In which order reads are, of which a `share` began where the one before had ended.
fn order(share: f64) -> String {
    match share {
        0.9.. => "in order".to_owned(),
        ..0.1 => "at random".to_owned(),
        _ => format!("{} of them in order", Percent(share)),
    }
}

fn blocker(blocker: &BlockerJson, are_all_known: bool) -> String {
    let thread = blocker.thread_name.clone().unwrap_or_else(|| format!("thread {}", blocker.thread));
    let who = match &blocker.command {
        Some(command) if blocker.has_others => format!("{command} on several connections"),
        Some(command) => format!("{thread}, which executed {command},"),
        None => thread,
    };
    let waits = plural(Grouped(blocker.waits), "wait");
    let least = if are_all_known || blocker.share > 0.99 { "" } else { "at least " };
    let share = Percent(blocker.share);
    format!("{who} ended {waits}: {least}{share} of the time spent waiting for locks and conditions.")
}

/// What would help against waits for reads.
fn help_with_reads(shape: &ShapeTimeJson, has_many: bool) -> String {
    if !has_many {
        return "What would help: more memory for the data that it reads, or a disk with a lower latency."
            .to_owned();
    }
    let known = shape.server.as_ref().and_then(|server| server.is_selective().zip(server.selectivity()));
    match known {
        Some((true, figures)) => {
            format!("What would help: a larger cache or a faster disk. An index would not help: {figures}.")
        }
        Some((false, figures)) => format!("What would help: a larger cache or a faster disk: {figures}."),
        None => "What would help: a larger cache or a faster disk. To see whether an index would help, check in the server's log or profiler how many documents an operation examines.".to_owned(),
    }
}

/// What would help against waits of one class.
const HELP_BY_CLASS: &[(&str, &str)] = &[
    (
        "execution ticket",
        "fewer operations at once, or cheaper ones: they wait for one of the storage engine's tickets, whose number is limited.",
    ),
    (
        "global lock",
        "ending what holds the global lock, for example an fsync lock (db.fsyncUnlock() releases it) or a command that locks the whole server.",
    ),
    (
        "index build",
        "building the index at a quiet time, or as a rolling build, one replica set member at a time.",
    ),
    (
        "profiler write",
        "a lower profiling level, or a higher slowms (mongosonar profiler set): each profiled operation waits to write its document.",
    ),
    (
        "write concern",
        "faster replication, or a weaker write concern: the operation is complete on this member and waits for others.",
    ),
    ("journal flush by the flusher", FASTER_FLUSHES),
    ("journal write or flush", FASTER_FLUSHES),
    (
        "cache eviction by this operation",
        "a larger cache, a faster disk, or fewer writes at once: operations must make room in the cache themselves.",
    ),
    ("write conflict backoff", "fewer operations at once that change the same document."),
];
const FASTER_FLUSHES: &str =
    "a disk that flushes faster, or fewer acknowledged writes that wait for the journal.";

fn help_with_class(shape: &ShapeTimeJson) -> Option<String> {
    let share = |class: &str| -> f64 {
        let all = shape.parts.iter().flat_map(|part| &part.classes);
        all.filter(|one| one.class == class).map(|one| one.share).sum()
    };
    let (_, help) = HELP_BY_CLASS.iter().find(|(class, _)| share(class) >= DOMINANT)?;
    Some(format!("What would help: {help}"))
}

/// What would help, as far as the figures show it.
fn help(shape: &ShapeTimeJson, report: &WhyReport) -> Option<String> {
    let share = |part| shape.share_of(part);
    // An index saves computing and reading.
    let saved = [TimePart::Cpu, TimePart::RunQueue, TimePart::Read, TimePart::Fault].map(share);
    let index = || shape.server.as_ref()?.wants_index(&shape.command, &shape.typed);
    if saved.iter().sum::<f64>() >= DOMINANT
        && let Some(reason) = index()
    {
        return Some(format!("What would help: an index that supports its filter, because {reason}."));
    }
    if share(TimePart::Read) >= DOMINANT && shape.device_bytes > 0 {
        let reads: u64 = shape.files.iter().map(|file| file.reads).sum();
        return Some(help_with_reads(shape, shape.has_other_files || reads >= 10 * shape.operations));
    }
    let running: f64 = report
        .active_parts
        .iter()
        .filter(|part| matches!(part.part, ShownPart::Measured(TimePart::Cpu | TimePart::RunQueue)))
        .map(|part| part.ns as f64 / 1e9 / report.seconds.max(f64::MIN_POSITIVE))
        .sum();
    let usable = limits::usable(&report.limits, report.processes.len(), report.processors);
    let is_throttled = report.limits.iter().any(ProcessLimitJson::is_throttled);
    if share(TimePart::RunQueue) >= DOMINANT && (is_throttled || running > usable) {
        let more = if usable < report.processors as f64 {
            "a higher limit of the control group"
        } else {
            "more processors"
        };
        return Some(format!(
            "What would help: fewer operations at once, cheaper ones, or {more}: on average, {running:.1} want to run at once on {}.",
            processors(usable)
        ));
    }
    if let Some(help) = help_with_class(shape) {
        return Some(help);
    }
    if share(TimePart::Flush) >= DOMINANT {
        return Some(format!("What would help: {FASTER_FLUSHES}"));
    }
    if share(TimePart::Send) >= DOMINANT {
        return Some("What would help: smaller replies, or a client that reads them faster.".to_owned());
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use sonar_core::disk::{DeviceCounters, DiskCounters};
    use sonar_core::time_split::{Activity, ConnectionSample, FileReads, FileTotal, ShapeSplit};
    use sonar_core::{Class, Role, ShapeInfo, Timestamp};

    use super::super::{ServerSourcesJson, SplitCoverageJson, WhyTrace};
    use super::*;
    use crate::kit::{About, Fitting};

    const MS: u64 = 1_000_000;

    /// Two operations of 100 ms that wait for reads.
    fn reading() -> ShapeSplit {
        let shape = ShapeInfo {
            command: "find".into(),
            database: "shop".into(),
            collection: "orders".into(),
            typed: "{filter: {a: ?number}}".into(),
            ..ShapeInfo::default()
        };
        let mut row = ShapeSplit::new(Arc::new(shape), Role::Served, Class::User);
        (0..2).for_each(|_| row.total.record(100 * MS));
        row.split[TimePart::Read] = 200 * MS;
        row.device_bytes = 8_200_000;
        row
    }

    fn read_from(files: u64) -> ShapeSplit {
        let mut row = reading();
        for inode in 1..=files {
            // Shorter ones come last.
            let wait_ns = MS * (files - inode + 1);
            let total = FileTotal { reads: 500, bytes: 2_050_000, wait_ns };
            row.files.insert((1, inode), FileReads { total, in_order: 10 });
        }
        row
    }

    /// The load of the disk with the files, and that of another one.
    fn disks() -> Vec<DiskLoadJson> {
        let counters = |minor, reads| {
            let counters = DiskCounters { reads, read_ms: reads, busy_ms: reads, ..DiskCounters::default() };
            DeviceCounters { number: (0, minor), name: format!("sd{minor}"), counters }
        };
        let load = |minor| {
            DiskLoadJson::new(&counters(minor, 0), &counters(minor, 500), 1_000_000_000, None).unwrap()
        };
        vec![load(2), load(1)]
    }

    fn answer(row: ShapeSplit) -> Vec<String> {
        limited(row, Vec::new())
    }

    /// The answer for a process whose control group limits it.
    fn limited(row: ShapeSplit, limits: Vec<ProcessLimitJson>) -> Vec<String> {
        report(&[row], limits).shapes.into_iter().flat_map(|shape| shape.answer).collect()
    }

    fn report(rows: &[ShapeSplit], limits: Vec<ProcessLimitJson>) -> WhyReport {
        report_with_unseen(rows, &[], limits)
    }

    fn report_with_unseen(
        rows: &[ShapeSplit],
        unseen: &[ShapeSplit],
        limits: Vec<ProcessLimitJson>,
    ) -> WhyReport {
        let started = Timestamp::from_unix_ns(0);
        let ended = started.plus_ns(1_000_000_000);
        WhyReport::new(&WhyTrace {
            about: About::new(None, Vec::new(), None),
            processes: vec![77],
            sample: ConnectionSample::default(),
            seconds: 1.0,
            processors: 2,
            limits,
            wait_weight: 1.0,
            rows,
            unseen,
            activity: &Activity::since(started).until(ended),
            ended,
            limit: 1,
            file_name: &|_, inode| Some(format!("file{inode}.wt")),
            disks: disks(),
            thread_name: &|_| None,
            threads: Vec::new(),
            unfinished: Vec::new(),
            coverage: SplitCoverageJson::default(),
            server: ServerSourcesJson::default(),
        })
    }

    #[test]
    fn the_answer_stands_first_and_above_the_parts_of_a_shape() {
        let text = |rows: &[ShapeSplit]| {
            let mut out = Vec::new();
            report(rows, Vec::new()).text(&mut Fitting::new(&mut out, None)).unwrap();
            String::from_utf8(out).unwrap()
        };
        let found = text(&[read_from(1)]);
        let lines: Vec<&str> = found.lines().collect();
        let first = "find shop.orders takes 100% of the time: of 100ms on average, 100ms (100%) waiting for reads of files.";
        assert_eq!(
            (lines[0], lines[1]),
            (first, "2 operations in 1.00s; 0.20 in progress at a time on 2 processors")
        );
        let at = |begin: &str| lines.iter().rposition(|line| line.trim_start().starts_with(begin));
        let [shape, answer, parts] =
            ["find shop.orders {", "Of 100ms on average", "waiting for reads of files  "].map(at);
        assert!(shape.is_some() && shape < answer && answer < parts, "{found}");
        let nothing = "No operation that was asked for was followed from beginning to end.\n";
        assert!(text(&[]).starts_with(nothing));
    }

    #[test]
    fn without_a_shape_the_first_line_says_only_what_is_known() {
        let first = |report: &WhyReport| {
            let mut out = Vec::new();
            report.text(&mut Fitting::new(&mut out, None)).unwrap();
            String::from_utf8(out).unwrap().lines().next().unwrap_or_default().to_owned()
        };
        let mut unseen = report_with_unseen(&[], &[reading()], Vec::new());
        let nothing =
            "No operation that was asked for was seen on the wire and followed from beginning to end";
        assert_eq!(first(&unseen), format!("{nothing}."));
        unseen.in_progress_total = 1;
        assert_eq!(first(&unseen), format!("{nothing}; 1 operation in progress when the trace ended."));
    }

    #[test]
    fn the_answer_names_operations_that_were_counted_together() {
        let mut row = read_from(1);
        row.shape = Arc::new(ShapeInfo::other());
        let mut out = Vec::new();
        report(&[row], Vec::new()).text(&mut Fitting::new(&mut out, None)).unwrap();
        let found = String::from_utf8(out).unwrap();
        assert!(found.starts_with("other takes 100% of the time: of 100ms on average"), "{found}");
    }

    #[test]
    fn reads_are_a_lower_bound_if_not_all_files_are_known() {
        let sentence = "Each operation waits for 250 reads of 4.10kB on average, at random, in file1.wt (100%); 4.10MB per operation came from the disk.";
        assert_eq!(answer(read_from(1))[1], sentence);
        let mut cut = read_from(1);
        cut.has_other_files = true;
        let sentence = "Each operation waits for at least 250 reads of 4.10kB on average, at random, in file1.wt and others; 4.10MB per operation came from the disk.";
        assert_eq!(answer(cut)[1], sentence);
        // The row knows nine files, and the document shows only eight.
        let sentence = |row| answer(row).swap_remove(1);
        let (eight, nine) = (sentence(read_from(8)), sentence(read_from(9)));
        assert!(eight.starts_with("Each operation waits for 2.00k reads of"), "{eight}");
        assert!(nine.starts_with("Each operation waits for at least 2.00k reads of"), "{nine}");
        assert!(nine.contains("in file1.wt, file2.wt and others;"), "{nine}");
    }

    #[test]
    fn the_disk_with_the_files_is_named_and_the_order_of_reads() {
        let sentence = "During the trace, sd1 served 500 reads per second (1.00ms each) for all processes; it was busy 50% of the time.";
        assert_eq!(answer(read_from(1))[2], sentence);
        let in_order = |count| {
            let mut row = read_from(1);
            row.files.values_mut().for_each(|reads| reads.in_order = count);
            answer(row).swap_remove(1)
        };
        assert!(in_order(450).contains("on average, in order, in"), "{}", in_order(450));
        assert!(in_order(200).contains("on average, 40% of them in order, in"), "{}", in_order(200));
        assert!(in_order(49).contains("on average, at random, in"), "{}", in_order(49));
    }

    #[test]
    fn throttling_by_a_control_group_is_the_cause_of_waits_for_a_processor() {
        // One operation of two computes and the other waits: 0.2 want to run on 2 processors, so nothing else explains it.
        let waiting = || {
            let mut row = reading();
            row.split = Default::default();
            row.split[TimePart::Cpu] = 40 * MS;
            row.split[TimePart::RunQueue] = 160 * MS;
            row
        };
        let help =
            |limits| limited(waiting(), limits).into_iter().find(|one| one.starts_with("What would help"));
        assert_eq!(help(Vec::new()), None);
        let limit = |throttled| ProcessLimitJson {
            process: 77,
            group: None,
            processors: 0.5,
            throttled: Some(throttled),
            throttled_ns: Some(160 * MS),
        };
        assert_eq!(help(vec![limit(0.0)]), None);
        assert_eq!(
            help(vec![limit(0.4)]).as_deref(),
            Some(
                "What would help: fewer operations at once, cheaper ones, or a higher limit of the control group: on \
                 average, 0.2 want to run at once on 0.5 processors."
            )
        );
        let cause = "The control group of process 77 allows 0.5 processors and stopped its threads in 40% of the periods";
        assert!(limited(waiting(), vec![limit(0.4)]).iter().any(|one| one.starts_with(cause)));
    }

    #[test]
    fn reads_that_all_failed_have_no_file_and_no_figures() {
        let said = answer(reading());
        assert_eq!(said[0], "Of 100ms on average, 100ms (100%) waiting for reads of files.");
        assert!(!said.iter().any(|sentence| sentence.starts_with("Each operation waits")), "{said:?}");
    }
}
