//! The answer in words, with its evidence. It says what would help only where the figures show it.

use super::document::{BlockerJson, PartJson, ShapeTimeJson, UNEXPLAINED, UNREAD, WhyReport};
use crate::kit::{Bytes, Count, Nanos, Percent, plural};

/// A part below this share of the time is not explained.
const NOTABLE: f64 = 0.05;
/// A part from this share on decides what would help.
const DOMINANT: f64 = 0.3;

/// A part in words: what the operation did meanwhile.
pub(super) fn doing(part: &str) -> &'static str {
    match part {
        "cpu" => "on a processor",
        "run_queue" => "waiting for a processor",
        "yield" => "giving way to other threads",
        "file_read" => "waiting for reads of files",
        "page_fault" => "waiting for pages of memory",
        "file_write" => "waiting for writes to files",
        "flush" => "waiting for flushes to disk",
        "futex" => "waiting for a mutex, a ticket or a condition",
        "poll" => "waiting for a lock, replication or another server",
        "backoff" => "pausing for a busy page (WiredTiger)",
        "sleep" => "pausing after a write conflict",
        "send" => "waiting for the client to take the reply",
        "other_server" => "waiting for a socket of another server",
        UNREAD => "not yet read by the server",
        UNEXPLAINED => "unexplained: events were lost",
        _ => "waiting in other system calls",
    }
}

pub(super) fn sentences(shape: &ShapeTimeJson, report: &WhyReport) -> Vec<String> {
    let part = |name: &str| shape.parts.iter().find(|part| part.part == name);
    let is = |name: &str, least: f64| part(name).is_some_and(|part| part.share >= least);
    let each = |ns: u64| Nanos(ns / shape.operations.max(1));
    let mut sentences = vec![whole(shape)];
    if is("file_read", NOTABLE) {
        sentences.push(reads(shape));
    }
    if is("futex", NOTABLE) || is("poll", NOTABLE) {
        sentences.extend(shape.blockers.first().map(blocker));
    }
    if let Some(part) = part(UNREAD).filter(|part| part.share >= NOTABLE) {
        sentences.push(format!(
            "{} of each operation passed before the server read the request: its thread was busy with an earlier request of the connection, or had no processor.",
            each(part.ns)
        ));
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
            format!("{mean} ({}) {}", Percent(part.share), doing(part.part))
        })
        .collect();
    format!("Of {} on average, {}.", Nanos(shape.mean_ns as u64), list(&spent))
}

/// `a, b and c`.
fn list(items: &[String]) -> String {
    match items {
        [] => "no part has a notable share".to_owned(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn reads(shape: &ShapeTimeJson) -> String {
    let waited: u64 = shape.files.iter().map(|file| file.wait_ns).sum();
    let reads: u64 = shape.files.iter().map(|file| file.reads).sum();
    let bytes: u64 = shape.files.iter().map(|file| file.bytes).sum();
    let operations = shape.operations.max(1) as f64;
    let mut names: Vec<_> = shape
        .files
        .iter()
        .take(2)
        .filter(|file| file.wait_ns > 0)
        .map(|file| {
            let name = file.name.clone().unwrap_or_else(|| format!("inode {}", file.inode));
            format!("{name} ({})", Percent(file.wait_ns as f64 / waited.max(1) as f64))
        })
        .collect();
    if shape.files.len() > 2 {
        names.push("others".to_owned());
    }
    let size = Bytes(bytes as f64 / reads.max(1) as f64);
    format!(
        "Each operation waits {} times for reads, of {size} on average, in {}; {} came from the disk for each.",
        Count(reads as f64 / operations),
        list(&names),
        Bytes(shape.device_bytes as f64 / operations)
    )
}

fn blocker(blocker: &BlockerJson) -> String {
    let thread = blocker.thread_name.clone().unwrap_or_else(|| format!("thread {}", blocker.thread));
    let who = match &blocker.command {
        Some(command) => format!("{thread}, which executed {command}"),
        None => thread,
    };
    let waits = plural(blocker.waits, "wait");
    format!("{} of the time in its waits was ended by {who} ({waits}).", Percent(blocker.share))
}

/// What would help, as far as the figures show it.
fn help(shape: &ShapeTimeJson, report: &WhyReport) -> Option<String> {
    let share = |name: &str| shape.parts.iter().find(|part| part.part == name).map_or(0.0, |part| part.share);
    if share("file_read") >= DOMINANT && shape.device_bytes > 0 {
        let reads: u64 = shape.files.iter().map(|file| file.reads).sum();
        return Some(match reads >= 10 * shape.operations {
            true => "What would help: an index with which it examines fewer documents, if it examines many more than it returns; otherwise a larger cache or a faster disk.".to_owned(),
            false => "What would help: more memory for the data that it reads, or a disk with a lower latency.".to_owned(),
        });
    }
    let running: f64 = report
        .active_parts
        .iter()
        .filter(|part| matches!(part.part, "cpu" | "run_queue"))
        .map(|part| part.ns as f64 / 1e9 / report.seconds.max(f64::MIN_POSITIVE))
        .sum();
    if share("run_queue") >= DOMINANT && running > report.processors as f64 {
        return Some(format!(
            "What would help: fewer operations at once, cheaper ones, or more processors: {running:.1} want to run on {} on average.",
            plural(report.processors as u64, "processor")
        ));
    }
    if share("flush") >= DOMINANT {
        return Some("What would help: a disk that flushes faster, or fewer acknowledged writes that wait for the journal.".to_owned());
    }
    if share("send") >= DOMINANT {
        return Some("What would help: smaller replies, or a client that reads them faster.".to_owned());
    }
    None
}
