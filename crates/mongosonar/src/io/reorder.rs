//! `io reorder`: rewrites a collection in the order of an index.

use std::io::{self, Write};

use anyhow::Result;
use indicatif::ProgressBar;
use sonar_core::files::Worth;
use sonar_mongo::reorder::ReorderStage;
use sonar_mongo::{Server, Target};
use sonar_view::files::reorder;
use sonar_view::kit::{escape, plural};

use super::args::IoReorderArgs;
use super::device_reads::ReadsHelper;
use super::report::load;
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
    let estimate = &plan.estimate;
    reorder::text(estimate, &server.info().label(), &mut out)?;
    if let Some(path) =
        args.recording.as_ref().filter(|_| !matches!(estimate.worth(), Worth::Empty | Worth::Small))
    {
        reorder::recorded(estimate, &load(path)?.recording(), &mut out)?;
    }
    if !args.apply {
        let stopped = if estimate.unwatched.is_some() { " --writers-stopped" } else { "" };
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
