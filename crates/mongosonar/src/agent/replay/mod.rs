//! `agent --replay`: captures, logs, `diagnostic.data` and recordings of the same time, through the same windows as
//! live data.
//!
//! Each source is read by a thread of its own, which cuts it into windows. The assembler always takes the next window
//! of the source that is furthest behind, so that all sources advance together, at any speed, in bounded memory.

mod accesses;
mod captured_host;
mod inputs;
mod internals;
mod logs;
mod source_end;
mod wire;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use anyhow::{Context, Result, anyhow};
use indicatif::ProgressBar;
use sonar_core::history::{Resolution, Span};
use sonar_core::observation::{Assembler, AssemblyLimits, WIDTH_NS, WindowCutter, WindowPart};
use sonar_core::{HistoryReader, HistoryWriter, Timestamp};
use sonar_view::agent::AgentSummary;
use sonar_view::kit::Zone;

use self::inputs::ReplayInputs;
use self::source_end::SourceEnd;
use super::summed_store::{SummedStore, summary};
use crate::capture::applications::CaptureLog;
use crate::exit::{self, OK, TRUNCATED};
use crate::{progress, stop};

/// Windows of a source that wait to be taken.
const AHEAD: usize = 4;
/// Later than every window.
const NEVER: Timestamp = Timestamp::from_unix_ns(u64::MAX);

/// What is replayed, and where to.
pub struct ReplayPlan<'a> {
    /// The files and folders.
    pub paths: &'a [PathBuf],
    /// The port of the server whose logs do not state it.
    pub port: Option<u16>,
    /// The folder of the store, for messages.
    pub folder: &'a Path,
}

/// Reads everything into the store; gives what was stored, and the exit code.
///
/// # Errors
/// A file cannot be read, the store has windows of that time, or it cannot store one.
pub fn run<S: HistoryReader + HistoryWriter>(plan: &ReplayPlan<'_>, store: S) -> Result<(AgentSummary, u8)> {
    let stop = stop::flag()?;
    let line = progress::line();
    progress::hide_others();
    line.set_message("looking at the files");
    let inputs = ReplayInputs::of(plan.paths, plan.port, &stop)?;
    let mut merge = SourceMerge {
        earlier: store.extent().context("cannot read the store")?,
        assembler: SummedStore::assembler(store, plan.folder, AssemblyLimits::default()),
        sources: Vec::new(),
        line,
        folder: plan.folder,
    };
    let damage = std::thread::scope(|scope| {
        let ends = merge.start(scope, &inputs, &stop)?;
        let merged = merge.run(&stop);
        if merged.is_err() {
            // The receiver of windows is gone.
            stop.store(true, Ordering::Relaxed);
        }
        merge.sources.clear();
        let mut all = SourceEnd::default();
        let mut failed = None;
        for end in ends {
            match end.join().map_err(|_| anyhow!("a thread that reads a file has failed"))? {
                Ok(end) => all.add(end),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        merged?;
        failed.map_or(Ok(all), Err)
    });
    merge.line.finish_and_clear();
    let damage = damage?;
    let mut summary = summary(&merge.assembler);
    summary.notes.extend(damage.damaged.iter().chain(&damage.stopped).chain(&damage.notes).cloned());
    let code = match exit::stopped() {
        Some((what, code)) => {
            summary.notes.push(format!("stopped by {what}; the windows that were complete are stored"));
            code
        }
        None if damage.is_cut || !damage.damaged.is_empty() => TRUNCATED,
        None => OK,
    };
    Ok((summary, code))
}

/// A source, and how far it has come.
struct ReplaySource {
    from: Receiver<WindowPart>,
    /// It hands over no window that begins earlier, except for what comes late.
    reached: Timestamp,
}

/// Takes windows from all sources.
struct SourceMerge<'a, S> {
    assembler: Assembler<SummedStore<S>>,
    sources: Vec<ReplaySource>,
    /// What was in the store before.
    earlier: Option<Span>,
    line: ProgressBar,
    folder: &'a Path,
}

/// Reads a source into windows.
type SourceReader<'env> = Box<dyn FnOnce(&mut WindowCutter) -> Result<SourceEnd> + Send + 'env>;
type SourceHandle<'scope> = ScopedJoinHandle<'scope, Result<SourceEnd>>;

impl<S: HistoryReader + HistoryWriter> SourceMerge<'_, S> {
    /// Starts a thread for each source.
    fn start<'scope, 'env>(
        &mut self,
        scope: &'scope Scope<'scope, 'env>,
        inputs: &'env ReplayInputs,
        stop: &'env Arc<AtomicBool>,
    ) -> Result<Vec<SourceHandle<'scope>>> {
        let mut handles = Vec::new();
        let mut source = |name: &str, read: SourceReader<'env>| {
            let (to, from) = sync_channel(AHEAD);
            self.sources.push(ReplaySource { from, reached: Timestamp::default() });
            let builder = std::thread::Builder::new().name(name.to_owned());
            let run = move || {
                let mut windows = WindowCutter::new(move |part| to.send(part).is_ok());
                let end = read(&mut windows);
                windows.finish();
                end
            };
            handles.push(builder.spawn_scoped(scope, run).context("cannot start a thread")?);
            Ok::<_, anyhow::Error>(())
        };
        if !inputs.captures.is_empty() {
            let log = |port: u16, path: &PathBuf| CaptureLog { path: path.clone(), server_port: Some(port) };
            let logs =
                inputs.logs.iter().flat_map(|(port, files)| files.iter().map(move |path| log(*port, path)));
            let logs: Vec<_> = logs.collect();
            source("queries", Box::new(move |windows| wire::read(inputs, &logs, windows, stop)))?;
        }
        for (port, files) in &inputs.logs {
            source("log", Box::new(|windows| logs::read(files, *port, windows, stop)))?;
        }
        for (port, files) in &inputs.internals {
            source("internals", Box::new(|windows| internals::read(files, *port, windows, stop)))?;
        }
        if !inputs.recordings.is_empty() {
            source("files", Box::new(|windows| accesses::read(inputs, windows, stop)))?;
        }
        Ok(handles)
    }

    /// Takes all windows, and stores each once every source has gone past it.
    fn run(&mut self, stop: &AtomicBool) -> Result<()> {
        // When the replay is stopped, a source may end within a window. Only complete windows are stored.
        while !stop.load(Ordering::Relaxed)
            && let Some(behind) = self.sources.iter_mut().min_by_key(|source| source.reached)
            && behind.reached < NEVER
        {
            match behind.from.recv() {
                Ok(part) => {
                    let start = part.window.window.start;
                    behind.reached = behind.reached.max(start.plus_ns(WIDTH_NS));
                    self.refuse_stored(start)?;
                    self.line.set_message(format!("replaying {}", Zone::utc().show_seconds(start)));
                    self.assembler.add(part).with_context(|| self.cannot_store())?;
                }
                Err(_) => behind.reached = NEVER,
            }
            let reached = self.sources.iter().map(|source| source.reached).min().unwrap_or(NEVER);
            if !stop.load(Ordering::Relaxed) {
                self.assembler.complete(reached).with_context(|| self.cannot_store())?;
            }
        }
        Ok(())
    }

    /// Refuses a window that was in the store before: everything in it would count twice.
    fn refuse_stored(&self, start: Timestamp) -> Result<()> {
        let span = Span { from: start, to: start.plus_ns(WIDTH_NS) };
        let Some(earlier) = self.earlier.filter(|earlier| earlier.from < span.to && span.from < earlier.to)
        else {
            return Ok(());
        };
        let mut is_stored = false;
        let store = &self.assembler.store().history;
        store
            .windows(span, Resolution::TenSeconds, &mut |window| is_stored |= window.is_observed())
            .context("cannot read the store")?;
        if !is_stored {
            return Ok(());
        }
        let zone = Zone::utc();
        let show = |at| zone.show_seconds(at);
        let folder = self.folder.display();
        Err(anyhow!(
            "{folder} has windows of {} already (it covers {} to {}), and everything in them would count twice; \
             replay into another folder (--store DIR), or remove {folder} first",
            show(start),
            show(earlier.from),
            show(earlier.to)
        ))
    }

    fn cannot_store(&self) -> String {
        format!("cannot store into {}", self.folder.display())
    }
}
