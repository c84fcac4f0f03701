//! `mongosonar stacks`: what the threads of a server do and wait for, without stopping it.

pub mod args;
mod collect;
mod compare;
pub mod helper;
pub mod helper_socket;
mod mapped;
pub mod symbols;

use std::fs;
use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use sonar_sys::Host;
use sonar_sys::privileges::Duty;
use sonar_sys::resource::ResourceUsage;
use sonar_view::kit::{About, Fitting};
use sonar_view::stacks::{StackProcess, StackReport, folded, pmp, svg};

pub use self::args::StacksArgs;
use self::args::{StackFormat, StacksCommand};
use self::collect::StackCollector;
use self::helper::StackSource;
use crate::exit::{OK, usage};
use crate::outfile::OutFile;
use crate::stop::{self, StopBehavior};
use crate::{page, privileges, screen, servers};

/// How long to sleep at most before checking whether to stop.
const NAP: Duration = Duration::from_millis(50);

/// Runs the command; returns the exit code.
pub fn run(args: &StacksArgs) -> Result<u8> {
    if let Some(StacksCommand::Compare(args)) = &args.command {
        return compare::run(args);
    }
    let process = choose(args.pid)?;
    // Without privileges it cannot be opened later.
    let html = args.html.as_deref().map(OutFile::open).transpose()?;
    // Before anything starts a thread, and before the kernel counts this one's time.
    let source = StackSource::start(process.pid)?;
    let begun = realtime_ns();
    let about = About::new(hostname(), vec![format!("process {}", process.pid)], Some((begun, begun)));
    let mut collector = StackCollector::new(args, source, StackReport::new(about, process))?;
    // It opens a file, which is not possible later.
    ResourceUsage::now()?;
    let stop = stop::listen_confined(StopBehavior::Prompt, || privileges::give_up(Duty::Showing, &[], &[]))?;
    let end = Instant::now() + args.duration.unwrap_or_default();
    let mut next = Instant::now();
    let mut looks = 0_u64;
    loop {
        if !collector.look()? {
            if looks == 0 {
                bail!("the process has ended");
            }
            collector.limit("the process ended before --duration was over".into());
            break;
        }
        looks += 1;
        next = (next + args.interval).max(Instant::now());
        if next >= end {
            break;
        }
        while Instant::now() < next && !stop.flag().load(Ordering::Relaxed) {
            std::thread::sleep(NAP.min(next.saturating_duration_since(Instant::now())));
        }
        if stop.flag().load(Ordering::Relaxed) {
            break;
        }
    }
    let mut report = collector.finish(ResourceUsage::now()?.processor().as_secs_f64());
    report.about.end_ns = Some(realtime_ns());
    show(args, &report)?;
    if let Some(file) = html {
        file.write(|out| page::write(out, |out| report.json(out)))?;
    }
    Ok(OK)
}

fn show(args: &StacksArgs, report: &StackReport) -> Result<()> {
    let mut out = io::stdout().lock();
    match args.format {
        StackFormat::Json => report.json(&mut out)?,
        StackFormat::Html => page::write(&mut out, |out| report.json(out))?,
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

/// The process to sample: the named one, or the only server of this machine.
fn choose(pid: Option<u32>) -> Result<StackProcess> {
    let pid = match pid {
        Some(pid) => pid,
        None => match servers::mongodb(&Host::live()).as_slice() {
            [one] => one.pid,
            [] => bail!("no mongod or mongos runs here: name another process with --pid"),
            several => {
                let list: Vec<String> =
                    several.iter().map(|server| format!("{} {}", server.name, server.pid)).collect();
                return Err(usage!("several servers run here, so --pid is needed: {}", list.join(", ")));
            }
        },
    };
    // The name of the file, which distinguishes its mappings from those of libraries.
    let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let program = program.map(|path| path.to_string_lossy().into_owned());
    let program = program.as_deref().map(|path| path.strip_suffix(" (deleted)").unwrap_or(path));
    let name = program.and_then(|path| path.rsplit('/').next()).map(str::to_owned);
    let name =
        name.or_else(|| Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned()));
    match name {
        Some(name) => Ok(StackProcess { pid, name }),
        None => bail!("there is no process {pid}"),
    }
}

fn hostname() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim_end().to_owned())
}

fn realtime_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}
