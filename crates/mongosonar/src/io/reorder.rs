//! `io reorder`: rewrites a collection in the order of an index.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use indicatif::ProgressBar;
use sonar_core::files::verdict::Finding;
use sonar_core::files::worth::{MIN_DOCUMENTS, WORTH_FROM};
use sonar_core::files::{FileRole, FilesVerdict, SampleRead, Worth, judge_file, worth};
use sonar_mongo::files::has_ident;
use sonar_mongo::reorder::{ReorderPlan, ReorderStage, Sample};
use sonar_mongo::{Server, Target};
use sonar_view::kit::{Count, Nanos, escape, plural};

use super::args::IoReorderArgs;
use super::device_reads::ReadsHelper;
use super::report::{LoadedRecording, load};
use crate::confinement::{privileges, start_order};
use crate::exit::OK;
use crate::stop::{self, StopBehavior};
use crate::{input, progress};

/// Runs the command; returns the exit code.
pub fn run(args: &IoReorderArgs) -> Result<u8> {
    let target = args.server.target()?;
    // Before any thread is started.
    let reads = if args.clean { None } else { ReadsHelper::start() };
    drop_privileges(args, &target)?;
    let signals = stop::listen(StopBehavior::Immediate)?;
    let stop = signals.requests().clone();
    let server = Server::connect(target, 2)?;
    let mut shown = StageProgress { stage: None, bar: ProgressBar::hidden() };
    let mut progress = |stage: ReorderStage, done: u64, total: u64| shown.show(stage, done, total);
    let mut out = io::stdout().lock();
    if args.clean {
        signals.set_behavior(StopBehavior::Careful);
        let cleaned = server.reorder_clean(&args.namespace, &stop, &mut progress)?;
        for line in cleaned.done.iter().chain(&cleaned.kept) {
            writeln!(out, "{}", escape(line))?;
        }
        if cleaned.done.is_empty() && cleaned.kept.is_empty() {
            writeln!(out, "nothing was left")?;
        }
        return Ok(OK);
    }
    let reads = reads.and_then(|reads| reads.of(&server.info().address));
    let device_bytes = || reads.as_ref()?.bytes();
    let mut plan = server.reorder_plan(&args.namespace, &args.index, &device_bytes)?;
    if let Some(documents) = args.batch_documents {
        plan.batch = documents;
    }
    for line in describe(&plan, args, &server.info().label()) {
        writeln!(out, "{}", escape(&line))?;
    }
    if let Some(path) =
        args.recording.as_ref().filter(|_| !matches!(judged(&plan), Worth::Empty | Worth::Small))
    {
        for line in recorded(path, &plan, &args.namespace)? {
            writeln!(out, "{}", escape(&line))?;
        }
    }
    if !args.apply {
        let stopped = if plan.unwatched.is_some() { " --writers-stopped" } else { "" };
        // escaped: it is a fixed text
        writeln!(out, "Nothing was changed; --apply{stopped} does it.")?;
        return Ok(OK);
    }
    out.flush()?;
    signals.set_behavior(StopBehavior::Careful);
    let done = server.reorder(&plan, args.writers_stopped, &stop, &mut progress);
    shown.bar.finish_and_clear();
    // escaped: the last one is a number and a noun
    writeln!(
        out,
        "{} lies in the order of {} now: {}.",
        escape(&args.namespace),
        escape(&args.index),
        plural(done?, "document")
    )?;
    Ok(OK)
}

/// Drops all privileges but those that asking the server takes, and reading a recording. It writes to the server only.
fn drop_privileges(args: &IoReorderArgs, server: &Target) -> Result<()> {
    stop::prepare()?;
    start_order::drop_privileges(true, || match args.recording.as_deref() {
        None => privileges::drop_privileges_but_asking(server),
        Some(recording) => {
            input::prepare_copies([recording]);
            privileges::drop_privileges_but_reading(&[recording], Some(server));
        }
    });
    Ok(())
}

fn nanos(time: std::time::Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// What the samples show.
fn judged(plan: &ReorderPlan) -> Worth {
    let read = |sample: &Sample| SampleRead {
        documents: sample.documents,
        time: sample.time,
        device_bytes: sample.device_bytes,
    };
    let (index, own) = &plan.sample;
    worth(&read(index), &read(own), plan.documents, plan.storage_bytes)
}

/// What reading the samples took.
fn sampled(index: &Sample, own: &Sample, args: &IoReorderArgs) -> Option<String> {
    let from = |sample: &Sample| {
        sample
            .device_bytes
            .map_or(String::new(), |bytes| format!(" ({}B from the device)", Count(bytes as f64)))
    };
    (own.documents > 0).then(|| {
        format!(
            "A sample of {} took {}{} in the order of {}, {}{} in the collection's own.",
            plural(own.documents, "document"),
            nanos(index.time),
            from(index),
            escape(&args.index),
            nanos(own.time),
            from(own),
        )
    })
}

/// What follows from the samples, in a line.
fn advised(worth: Worth, args: &IoReorderArgs) -> String {
    let how = format!(
        "To find out, record the reads of the server while they are slow: mongosonar io record reads.msio --duration 10m on its host; then mongosonar io reorder {} --index {} --uri URI --recording reads.msio.",
        escape(&args.namespace),
        escape(&args.index)
    );
    match worth {
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
fn describe(plan: &ReorderPlan, args: &IoReorderArgs, server: &str) -> Vec<String> {
    let mut lines = vec![format!(
        "{} on {}: {}, {}B, {}B on the disk, {} beside _id, {}B all indexes",
        escape(&args.namespace),
        escape(server),
        plural(plan.documents, "document"),
        Count(plan.bytes as f64),
        Count(plan.storage_bytes as f64),
        plural(plan.indexes(), "index"),
        Count(plan.index_bytes as f64),
    )];
    lines.extend(sampled(&plan.sample.0, &plan.sample.1, args));
    lines.push(advised(judged(plan), args));
    let space = match (plan.fits(), plan.free_bytes) {
        (Some(true), Some(free)) => format!("{}B are free.", Count(free as f64)),
        (Some(false), Some(free)) => {
            format!("Only {}B are free: it does not fit, and --apply is refused.", Count(free as f64))
        }
        _ => "Free space is unknown; check it first.".to_owned(),
    };
    lines.push(format!(
        "The copy takes about {}B more until the original is dropped, on each member of a replica set. {space}",
        Count(plan.needed_bytes() as f64),
    ));
    let (least, most) = plan.reading();
    let range = if most.as_secs_f64() < least.as_secs_f64() * 1.1 {
        format!("about {}", nanos(least))
    } else {
        format!("{} to {}", nanos(least), nanos(most))
    };
    let passes = plan.passes();
    lines.push(format!(
        "Reading it takes {range}, estimated from the fastest and slowest parts of the sample (once in the order of {}, {} in its own); longer if the sample came from the cache. Writing it and its indexes takes additional time, which a sample cannot show.",
        escape(&args.index),
        plural(passes, "more time"),
    ));
    lines.push(match &plan.unwatched {
        None => "A change stream watches for writes during the copy; a write stops it.".to_owned(),
        Some(why) => format!(
            "Writes during the copy cannot be watched ({}): stop everything that writes to it. A write is still found, because it changes the content, and stops the copy.",
            escape(why)
        ),
    });
    if plan.expires {
        lines.push(
            "Its documents expire (expireAfterSeconds): each removal is a write, and stops the copy."
                .to_owned(),
        );
    }
    if let Some(left) = &plan.leftover {
        lines.push(format!("{}: look at it, then remove it with --clean.", escape(left)));
    }
    lines
}

/// Whether it is worth it, from a recording: each sentence is a line.
fn recorded(path: &Path, plan: &ReorderPlan, namespace: &str) -> Result<Vec<String>> {
    let loaded = load(path)?;
    let name = path.display().to_string();
    let name = escape(&name);
    let Some(file) = file_of(&loaded, namespace, plan.ident.as_deref()) else {
        let why = match (&plan.ident, loaded.labels.is_empty()) {
            (None, true) => {
                "neither does the recording name collections (record it with --uri), nor does the server say which file it is"
                    .to_owned()
            }
            (None, false) => "no file in it goes by that name, and the server does not say which it is".to_owned(),
            (Some(ident), _) => format!("the server keeps it in {}.wt, of which nothing was read", escape(ident)),
        };
        return Ok(vec![format!("{name} says nothing of it: {why}.")]);
    };
    let Some(mut lines) = advice(&loaded, file, namespace, &plan.key()) else {
        return Ok(vec![format!("{name} says nothing of it: nothing of its file was read.")]);
    };
    lines[0].insert_str(0, &format!("{name}: "));
    if let Some(damage) = &loaded.damage {
        lines.push(format!("The recording is incomplete: {}.", escape(damage)));
    }
    Ok(lines)
}

/// The collection's file: by the name that it was given when it was recorded, else by the server's ident.
fn file_of(loaded: &LoadedRecording, namespace: &str, ident: Option<&str>) -> Option<u32> {
    let labelled = loaded.labels.iter().filter(|(_, label)| *label == namespace).map(|(file, _)| *file);
    let is_ident = |path: &str| ident.is_some_and(|ident| has_ident(path, ident));
    let by_ident = loaded.files.iter().filter(|(_, path)| is_ident(path)).map(|(file, _)| *file);
    let reads = |file: &u32| loaded.analysis.file(*file).map_or(0, |file| file.reads.count);
    // A collection that was rewritten while it was recorded has had two files.
    labelled.chain(by_ident).filter(|file| reads(file) > 0).max_by_key(reads)
}

/// What the reads of one file say of another order; `None` where there are none.
fn advice(loaded: &LoadedRecording, file: u32, namespace: &str, key: &str) -> Option<Vec<String>> {
    let role = |file: u32| FileRole::of(loaded.files.get(&file).map_or("", String::as_str));
    let thread_role = |thread| loaded.recording().thread_role(thread);
    let verdict = judge_file(&loaded.analysis, file, |_| FileRole::Collection, thread_role)?;
    let index = loaded
        .analysis
        .readers()
        .filter(|&(thread, other, _)| Some(thread) == verdict.thread && role(other) == FileRole::Index)
        .max_by_key(|&(_, other, reads)| (reads, other))
        .map(|(_, other, _)| other);
    let waited = u64::try_from(verdict.read_ns).unwrap_or(u64::MAX);
    let mut evidence = format!(
        "{} of {} for {}",
        plural(verdict.reads, "read"),
        escape(namespace),
        plural(verdict.blocks, "different block")
    );
    if let (Some(times), Some(randomness)) = (verdict.amplification, verdict.randomness) {
        let _ = write!(evidence, ", {times:.1} bytes read for each byte touched, randomness {randomness:.2}");
    }
    let _ = write!(evidence, "; {} waited in them", Nanos(waited));
    let wanted = format!("{namespace} index {key}");
    let walked = index.map(|index| loaded.recording().name(index));
    let through = walked.as_deref().map_or(String::new(), |name| format!(" through {name}"));
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
    let labelled = index.and_then(|index| loaded.labels.get(&index));
    let slow =
        verdict.is_evident() && !matches!(verdict.finding, Finding::SequentialPass | Finding::ReadAgain);
    if let Some(label) = labelled.filter(|label| slow && **label != wanted) {
        lines.push(format!(
            "The order asked for is that of {}; what was walked is {}: --index names another.",
            escape(&wanted),
            escape(label)
        ));
    }
    Some(lines)
}

/// Whether enough reads waited for the device: each is of a document at least.
fn is_measured(verdict: &FilesVerdict) -> bool {
    verdict.device_reads.is_some_and(|reads| reads >= MIN_DOCUMENTS)
}

/// A bar on a terminal, a line for each stage elsewhere.
struct StageProgress {
    stage: Option<ReorderStage>,
    bar: ProgressBar,
}

impl StageProgress {
    fn show(&mut self, stage: ReorderStage, done: u64, total: u64) {
        if self.stage.replace(stage) != Some(stage) {
            self.bar.finish_and_clear();
            self.bar = progress::bar(total, "{msg:30} [{bar:40}] {pos} of {len}").with_message(stage.name());
            if self.bar.is_hidden() {
                eprintln!("{}", stage.name());
            }
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
    }
}
