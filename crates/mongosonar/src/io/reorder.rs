//! `io reorder`: rewrites a collection in the order of an index.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use sonar_mongo::reorder::Stage;
use sonar_mongo::{Server, Stop};
use sonar_view::text::escape;
use sonar_view::units::{Count, Nanos};

use crate::cli::{IoReorderArgs, OK};

/// An order that is at most so many times slower to walk than the collection's own is as good.
const WORTH_FROM: f64 = 1.5;

/// Runs the command; gives the exit code.
pub fn run(args: &IoReorderArgs) -> Result<u8> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag)).context("cannot listen to signals")?;
    }
    let server = Server::connect(&args.uri, 2)?;
    let mut out = io::stdout().lock();
    if args.clean {
        let done = server.reorder_clean(&args.namespace)?;
        for line in &done {
            writeln!(out, "{}", escape(line))?;
        }
        if done.is_empty() {
            writeln!(out, "nothing was left")?;
        }
        return Ok(OK);
    }
    let plan = server.reorder_plan(&args.namespace, &args.index)?;
    writeln!(
        out,
        "{} on {}: {} documents, {}B, {}B on the disk, {} indexes beside _id",
        escape(&args.namespace),
        escape(&server.info().label()),
        plan.documents,
        Count(plan.bytes as f64),
        Count(plan.storage_bytes as f64),
        plan.indexes(),
    )?;
    let (index, own) = plan.sample;
    let times = index.as_secs_f64() / own.as_secs_f64().max(1e-9);
    writeln!(
        out,
        "A sample of {} documents took {} in the order of {}, {} in the collection's own: {times:.1} times as long. {}",
        plan.sampled,
        Nanos(index.as_nanos() as u64),
        escape(&args.index),
        Nanos(own.as_nanos() as u64),
        if times < WORTH_FROM {
            "Rewriting it is hardly worth it, unless the sample came from the cache: see `io record` and `io report`."
        } else {
            "Rewriting it is worth it where it is walked in that order, or the next reads of it are from the disk."
        },
    )?;
    let each = (index + own * 3).as_secs_f64() / (plan.sampled.max(1) as f64);
    writeln!(
        out,
        "It is copied in that order beside the original, which wants another {}B of space until the end, and read three more times: at the pace of the sample some {}, and the time to write it and its indexes.",
        Count(plan.storage_bytes as f64),
        Nanos((each * plan.documents as f64 * 1e9) as u64),
    )?;
    if let Some(left) = &plan.leftover {
        writeln!(out, "{}: look at it, then remove it with --clean.", escape(left))?;
    }
    if !args.apply {
        writeln!(out, "Nothing was changed; --apply --writers-stopped does it.")?;
        return Ok(OK);
    }
    if !args.writers_stopped {
        bail!(
            "nothing may write to {} meanwhile: stop what does, and say so with --writers-stopped (a write that comes all the same is detected until the moment of renaming, and stops it)",
            args.namespace
        );
    }
    out.flush()?;
    let stop = Stop::following(flag);
    let terminal = io::stderr().is_terminal();
    let mut last = None;
    let done =
        server.reorder(&plan, &stop, &mut |stage, done, total| tell(stage, done, total, terminal, &mut last));
    if terminal {
        eprintln!();
    }
    writeln!(
        out,
        "{} documents of {} lie in the order of {} now.",
        done?,
        escape(&args.namespace),
        escape(&args.index)
    )?;
    Ok(OK)
}

/// A bar on a terminal, a line for each stage elsewhere.
fn tell(stage: Stage, done: u64, total: u64, terminal: bool, last: &mut Option<Stage>) {
    const CELLS: u64 = 40;
    let new = *last != Some(stage);
    *last = Some(stage);
    if terminal {
        let full = (done.saturating_mul(CELLS) / total.max(1)).min(CELLS) as usize;
        let empty = CELLS as usize - full;
        eprint!("\r\x1b[K{:<30} [{}{}] {done} of {total}", stage.name(), "#".repeat(full), " ".repeat(empty));
    } else if new {
        eprintln!("{}", stage.name());
    }
}
