//! `mongosonar stacks`: what the threads of a server do and wait for, without stopping it.

pub mod args;
mod chosen;
mod collect;
mod compare;

use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sonar_core::history::Span;
use sonar_sys::host::process::RunningProgram;
use sonar_sys::privileges::Duty;
use sonar_sys::resource::ResourceUsage;
use sonar_view::kit::json::line;
use sonar_view::kit::{About, Fitting};
use sonar_view::stacks::{StackReport, folded, pmp, svg};

pub use self::args::StacksArgs;
use self::args::{StackFormat, StacksCommand};
use self::collect::{MissingSnapshots, StackCollector};
use crate::args::when::now;
use crate::confinement::start_order;
use crate::exit::OK;
use crate::functions::helper::StackSource;
use crate::outfile::OutFile;
use crate::report_output::{page_and_print, write_opened_page};
use crate::servers::tracing::process_namespace_problem;
use crate::stop::{self, StopBehavior};
use crate::{confinement::privileges, page, screen};
use sonar_sys::Host;

/// How long to sleep at most before checking whether to stop.
const NAP: Duration = Duration::from_millis(50);

/// Runs the command; returns the exit code.
pub fn run(args: &StacksArgs) -> Result<u8> {
    if let Some(StacksCommand::Compare(args)) = &args.command {
        return compare::run(args);
    }
    // They would find no thread of the process, as if it had ended.
    if let Some(problem) = process_namespace_problem() {
        bail!("{problem}");
    }
    let process = chosen::choose(args)?;
    // Without privileges it cannot be opened later.
    let html = args.html.as_deref().map(OutFile::open).transpose()?;
    // Before anything starts a thread, and before the kernel counts this one's time.
    let source = StackSource::start(RunningProgram::now(process.pid).context("the process has ended")?)?;
    let begun = now();
    let span = Span { from: begun, to: begun };
    let about = About::new(Host::live().name(), vec![format!("process {}", process.pid)], Some(span));
    let mut collector = StackCollector::new(args, source, StackReport::new(about, process))?;
    // It opens a file, which is not possible later.
    ResourceUsage::now()?;
    let drop_all = || privileges::drop_privileges(Duty::Showing, &[], &[]);
    let stop = stop::listen_confined(StopBehavior::Prompt, || start_order::drop_privileges(true, drop_all))?;
    let begin = Instant::now();
    let end = begin + args.duration.unwrap_or_default();
    let mut next = begin;
    let mut looks = 0_u64;
    let why = loop {
        if !collector.look()? {
            if looks == 0 {
                bail!("the process has ended");
            }
            break MissingSnapshots::Ended;
        }
        looks += 1;
        next = (next + args.interval).max(Instant::now());
        if next >= end {
            break MissingSnapshots::Slow {
                mean: begin.elapsed() / u32::try_from(looks).unwrap_or(u32::MAX),
            };
        }
        while Instant::now() < next && !stop.flag().load(Ordering::Relaxed) {
            std::thread::sleep(NAP.min(next.saturating_duration_since(Instant::now())));
        }
        if stop.flag().load(Ordering::Relaxed) {
            break MissingSnapshots::Stopped;
        }
    };
    collector.missing(args.snapshots(), why);
    let mut report = collector.finish(ResourceUsage::now()?.processor().as_secs_f64());
    report.about.end_ns = Some(now().unix_ns());
    page_and_print(write_opened_page(html.as_ref(), |out| line(&report, out)), || show(args, &report))?;
    Ok(OK)
}

fn show(args: &StacksArgs, report: &StackReport) -> Result<()> {
    let mut out = io::stdout().lock();
    match args.format() {
        StackFormat::Json => line(report, &mut out)?,
        StackFormat::Html => page::write(&mut out, |out| line(report, out))?,
        StackFormat::Pmp => pmp(report, &mut out)?,
        StackFormat::Folded => folded(report, &mut out)?,
        StackFormat::Svg => svg(report, &mut out)?,
        StackFormat::Text => {
            let width = screen::reading_width();
            report.text(args.limit, width, &mut Fitting::new(&mut out, screen::width()))?;
        }
    }
    out.flush()?;
    Ok(())
}
