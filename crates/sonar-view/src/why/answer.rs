//! The answer in words, with its evidence. It says what would help only where the figures show it.

use sonar_core::time_split::TimePart;

use super::document::{BlockerJson, ShapeTimeJson, WhyReport};
use super::files::FileJson;
use super::parts::{PartJson, ShownPart, WITHOUT_STACK};
use crate::kit::{Bytes, Count, Nanos, Percent, plural};

/// A part below this share of the time is not explained.
const NOTABLE: f64 = 0.05;
/// A part from this share on decides what would help.
const DOMINANT: f64 = 0.3;

pub(super) fn sentences(shape: &ShapeTimeJson, report: &WhyReport) -> Vec<String> {
    let is_notable = |part: TimePart| shape.share_of(part) >= NOTABLE;
    let each = |ns: u64| Nanos(ns / shape.operations.max(1));
    let mut sentences = vec![whole(shape)];
    if is_notable(TimePart::Read) {
        sentences.push(read_evidence(&shape.files, shape.operations, shape.device_bytes));
    }
    if is_notable(TimePart::Futex) || is_notable(TimePart::Poll) {
        let first = shape.blockers.first();
        sentences.extend(first.map(|first| blocker(first, !shape.has_other_blockers)));
    }
    let unread = shape.parts.iter().find(|part| part.part == ShownPart::Unread);
    if let Some(part) = unread.filter(|part| part.share >= NOTABLE) {
        sentences.push(format!(
            "{} of each operation passed before the server read the request: its thread had not finished the operation before.",
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
        [] => "no part has a notable share".to_owned(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The evidence for waits in reads: how many, of what size, in which files.
fn read_evidence(files: &[FileJson], operations: u64, device_bytes: u64) -> String {
    let sum = |of: fn(&FileJson) -> u64| files.iter().map(of).sum::<u64>();
    let (waited, reads, bytes) = (sum(|file| file.wait_ns), sum(|file| file.reads), sum(|file| file.bytes));
    let operations = operations.max(1) as f64;
    let longest = files.iter().take(2).filter(|file| file.wait_ns > 0);
    let mut names: Vec<_> = longest
        .map(|file| {
            let part = Percent(file.wait_ns as f64 / waited.max(1) as f64);
            format!("{} ({part})", file.label())
        })
        .collect();
    if files.len() > 2 {
        names.push("others".to_owned());
    }
    format!(
        "Each operation waits {} times for reads, of {} on average, in {}; {} came from the disk for each.",
        Count(reads as f64 / operations),
        Bytes(bytes as f64 / reads.max(1) as f64),
        list(&names),
        Bytes(device_bytes as f64 / operations)
    )
}

fn blocker(blocker: &BlockerJson, are_all_known: bool) -> String {
    let thread = blocker.thread_name.clone().unwrap_or_else(|| format!("thread {}", blocker.thread));
    let who = match &blocker.command {
        Some(command) if blocker.has_others => format!("{command} on several connections"),
        Some(command) => format!("{thread}, which executed {command},"),
        None => thread,
    };
    let waits = plural(blocker.waits, "wait");
    let least = if are_all_known || blocker.share > 0.99 { "" } else { "at least " };
    format!("{who} ended {waits}: {least}{} of the time in locks and conditions.", Percent(blocker.share))
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
            format!("What would help: a larger cache or a faster disk, but no index: {figures}.")
        }
        Some((false, figures)) => format!("What would help: a larger cache or a faster disk: {figures}."),
        None => "What would help: a larger cache or a faster disk. Whether an index would, the server's log or profiler shows: they say how many documents an operation examines.".to_owned(),
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
        "ending what holds the global lock: fsync with lock until db.fsyncUnlock(), for example, or a command for the whole server.",
    ),
    (
        "index build",
        "building the index at a quiet time, or on one member of the replica set after the other.",
    ),
    (
        "profiler write",
        "a lower level of the profiler, or a higher slowms (mongosonar profiler set): each profiled operation waits to write its document.",
    ),
    (
        "write concern",
        "members that replicate faster, or a weaker write concern: the operation is done here and waits for other members.",
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
        return Some(format!("What would help: an index for its condition, because {reason}."));
    }
    if share(TimePart::Read) >= DOMINANT && shape.device_bytes > 0 {
        let reads: u64 = shape.files.iter().map(|file| file.reads).sum();
        return Some(help_with_reads(shape, reads >= 10 * shape.operations));
    }
    let running: f64 = report
        .active_parts
        .iter()
        .filter(|part| matches!(part.part, ShownPart::Measured(TimePart::Cpu | TimePart::RunQueue)))
        .map(|part| part.ns as f64 / 1e9 / report.seconds.max(f64::MIN_POSITIVE))
        .sum();
    if share(TimePart::RunQueue) >= DOMINANT && running > report.processors as f64 {
        return Some(format!(
            "What would help: fewer operations at once, cheaper ones, or more processors: {running:.1} want to run on {} on average.",
            plural(report.processors as u64, "processor")
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
