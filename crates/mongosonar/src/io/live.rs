//! `io live`: the files of a process as `top` shows processes, added up in the kernel.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sonar_core::disk::DiskRates;
use sonar_core::files::{FileRole, FileUsage};
use sonar_sys::Host;
use sonar_sys::ebpf::{KernelEvent, TotalsRoom, TraceMode, Tracer};
use sonar_sys::host::devices::{DeviceCounters, Devices};
use sonar_view::disk::run::DeviceRates;
use sonar_view::files::live::{ActiveFile, FileInterval, amplification};
use sonar_view::kit::Fitting;
use sonar_view::queries::live::Screen;
use sonar_view::series::{FILES, SeriesChoice};

use super::args::{IoBy, IoLiveArgs};
use super::file_trace::{FileSearch, FileTrace};
use super::finder::PathFinder;
use super::process::TracedProcesses;
use super::totals::{FileTotals, TotalsTable};
use crate::args::when::now;
use crate::exit::{OK, usage};
use crate::screen;
use crate::servers::file_names::FileNames;
use crate::stop::{self, JobState};

/// Rows by default.
const ROWS: usize = 20;

/// Runs the command; returns the exit code.
pub fn run(args: &IoLiveArgs) -> Result<u8> {
    if args.past.is_asked() {
        if args.by != IoBy::File {
            return Err(usage!("the history has files, not namespaces: leave --by out"));
        }
        let choice = SeriesChoice { columns: &FILES, wants: &|_| true };
        return args.past.show(&choice, args.limit, args.json);
    }
    let room = TotalsRoom::COMMAND;
    let trace = FileTrace::open(&args.traced, &args.server, &args.trace, TraceMode::Totals(room))?;
    let (files, disks, at) = (TotalsTable::new(room), Disks::new(), Instant::now());
    let (processes, way) = (trace.search.processes.list(), trace.tracer.way());
    let stop = trace.begin(format!("process {processes} by {way}; Ctrl-C ends it"))?;
    let FileTrace { search: FileSearch { processes: watch, mut places }, tracer, names, .. } = trace;
    let look = LiveState { files, disks, at, watch };
    let begun = Instant::now();
    let names = names.ask(&stop, args.duration.map(|duration| begun + duration))?;
    let screen = !args.json && io::stdout().is_terminal() && io::stdin().is_terminal();
    let screen = if screen { stop::unless_gone(Screen::enter())? } else { None };
    let job = if screen.is_some() { Some(JobState::listen()?) } else { None };
    let mut view = LiveTable {
        args,
        look,
        names,
        screen,
        job,
        by: args.by,
        begun,
        next: Instant::now() + args.interval,
        found: Vec::new(),
        messages: Vec::new(),
        has_last: false,
        failed: None,
    };
    tracer
        .run_with(
            &mut view,
            |view, event| view.event(event, &tracer, &mut places),
            |view| {
                // After a failure nothing more is shown; it is returned below.
                let goes_on = view.tick(&tracer, stop.load(Ordering::Relaxed));
                goes_on.unwrap_or_else(|error| {
                    view.failed = Some(error);
                    false
                })
            },
        )
        .context("cannot read the records of the kernel")?;
    if view.failed.is_none() && view.has_last {
        // Only now all records are read: a file whose record was still in the ring has figures, but no name.
        view.failed = view.show(&tracer).err();
    }
    // The terminal comes back before an error is printed.
    drop(view.screen);
    view.failed.map_or(Ok(OK), Err)
}

/// What is shown, and how.
struct LiveTable<'a> {
    args: &'a IoLiveArgs,
    look: LiveState,
    names: FileNames,
    screen: Option<Screen>,
    job: Option<JobState>,
    by: IoBy,
    begun: Instant,
    /// End of the interval.
    next: Instant,
    /// The figures of the last interval.
    found: Vec<FileTotals>,
    /// Lines about processes, not printed yet.
    messages: Vec<String>,
    /// The last interval has ended, and is not shown yet.
    has_last: bool,
    failed: Option<anyhow::Error>,
}

impl LiveTable<'_> {
    fn event(&mut self, event: KernelEvent<'_>, tracer: &Tracer, places: &mut PathFinder) {
        match event {
            KernelEvent::File(new) => self.look.files.add(tracer, places, &new),
            KernelEvent::Process { process, change } => {
                self.messages.extend(self.look.watch.event(process, change));
            }
            _ => {}
        }
    }

    /// Shows what is due; returns whether to go on.
    fn tick(&mut self, tracer: &Tracer, stopped: bool) -> Result<bool> {
        self.messages.extend(self.look.watch.look(tracer));
        for line in self.messages.drain(..) {
            // On a screen the last line shows who is followed.
            if self.screen.is_none() {
                eprintln!("mongosonar: {line}");
            }
        }
        self.look.files.release(tracer);
        let ended = stopped
            || self.args.duration.is_some_and(|duration| self.begun.elapsed() >= duration)
            || self.look.watch.is_over();
        let Some(redraw) = self.keys()? else { return Ok(false) };
        if ended {
            self.has_last = true;
        } else if Instant::now() >= self.next {
            self.next = (self.next + self.args.interval).max(Instant::now());
            self.show(tracer)?;
        } else if redraw {
            self.draw(tracer)?;
        }
        Ok(!ended)
    }

    /// Ends an interval, and shows it.
    fn show(&mut self, tracer: &Tracer) -> Result<()> {
        self.found = self.look.take(tracer)?;
        self.draw(tracer)
    }

    /// Shows the figures of the last interval.
    fn draw(&mut self, tracer: &Tracer) -> Result<()> {
        let interval = self.look.interval(tracer, &self.found, self.by, &self.names);
        show(&interval, self.args, &self.look.watch, self.screen.as_mut())
    }

    /// Does what keys and signals ask for; returns whether to draw again, `None` to end.
    fn keys(&mut self) -> Result<Option<bool>> {
        let (Some(screen), Some(job)) = (&mut self.screen, &self.job) else { return Ok(Some(false)) };
        let key = last_key();
        if key == Some(LiveFileKey::Quit) {
            return Ok(None);
        }
        if key == Some(LiveFileKey::By) {
            self.by = if self.by == IoBy::File { IoBy::Namespace } else { IoBy::File };
        }
        let followed = match key {
            Some(LiveFileKey::Suspend) => job.suspend(screen).map(|()| true),
            _ => job.follow(screen),
        };
        let changed = stop::unless_gone(followed)?;
        Ok(changed.map(|changed| changed || key.is_some()))
    }
}

fn show(
    interval: &FileInterval,
    args: &IoLiveArgs,
    watch: &TracedProcesses,
    screen: Option<&mut Screen>,
) -> Result<()> {
    if args.json {
        let mut out = io::stdout().lock();
        interval.json(args.limit.unwrap_or(usize::MAX), &mut out)?;
        out.flush()?;
    } else if let Some(screen) = screen {
        let Some((width, height)) = stop::unless_gone(screen.size())? else { return Ok(()) };
        let limit = args.limit.unwrap_or(usize::from(height));
        let mut text = Vec::new();
        interval.text(limit, &mut Fitting::new(&mut text, Some(usize::from(width))))?;
        let mut lines: Vec<String> = String::from_utf8_lossy(&text).lines().map(str::to_owned).collect();
        let who = match watch.list_running() {
            none if none.is_empty() => "waiting for a mongod".to_string(),
            some => format!("process {some}"),
        };
        lines.push(format!("{who}; q ends, n is by namespace or by file"));
        stop::unless_gone(screen.lines(&lines))?;
    } else {
        let mut out = io::stdout().lock();
        interval.text(args.limit.unwrap_or(ROWS), &mut Fitting::new(&mut out, screen::width()))?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum LiveFileKey {
    Quit,
    By,
    Suspend,
}

/// The last key pressed that has a meaning; quitting comes first.
fn last_key() -> Option<LiveFileKey> {
    use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
    let mut last = None;
    while event::poll(Duration::ZERO).unwrap_or(false) {
        let Ok(Event::Key(key)) = event::read() else { continue };
        if key.kind != KeyEventKind::Press {
            continue;
        }
        match key.code {
            _ if JobState::is_asked(&key) => last = Some(LiveFileKey::Suspend),
            KeyCode::Char('q') | KeyCode::Esc => return Some(LiveFileKey::Quit),
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Some(LiveFileKey::Quit);
            }
            KeyCode::Char('n') => last = Some(LiveFileKey::By),
            _ => {}
        }
    }
    last
}

/// What is known from interval to interval.
struct LiveState {
    files: TotalsTable,
    disks: Disks,
    at: Instant,
    watch: TracedProcesses,
}

impl LiveState {
    fn take(&mut self, tracer: &Tracer) -> Result<Vec<FileTotals>> {
        let mut found = Vec::new();
        self.files.take(tracer, |file| found.push(file))?;
        let elapsed = self.at.elapsed();
        self.at += elapsed;
        self.disks.take(self.files.devices(), elapsed);
        Ok(found)
    }

    fn interval(&self, tracer: &Tracer, found: &[FileTotals], by: IoBy, names: &FileNames) -> FileInterval {
        let rows = match by {
            IoBy::File => found
                .iter()
                .map(|file| {
                    let held = names.of(&file.path).map(|held| held.label());
                    let name = held.unwrap_or_else(|| file.path.clone());
                    ActiveFile::new(name, &file.now, file.before.as_ref())
                })
                .collect(),
            IoBy::Namespace => together(found, names),
        };
        FileInterval {
            end_ns: now().unix_ns(),
            seconds: self.disks.elapsed.as_secs_f64(),
            rows,
            what: if by == IoBy::File { "files" } else { "namespaces" },
            devices: self.disks.rates.clone(),
            losses: tracer.losses(),
        }
    }
}

/// Files of one namespace as one row; of one kind, where no namespace is known.
fn together(found: &[FileTotals], names: &FileNames) -> Vec<ActiveFile> {
    let mut groups: BTreeMap<String, Vec<&FileTotals>> = BTreeMap::new();
    for file in found {
        let name = match (names.of(&file.path), FileRole::of(&file.path).name()) {
            (Some(held), _) => held.namespace.clone(),
            (None, "") => "other files".to_string(),
            (None, "collection") => "all collections".to_string(),
            (None, "index") => "all indexes".to_string(),
            (None, role) => role.to_string(),
        };
        groups.entry(name).or_default().push(file);
    }
    let row = |(name, files): (String, Vec<&FileTotals>)| {
        let mut usage = FileUsage::default();
        for file in &files {
            usage.add(&ActiveFile::new(String::new(), &file.now, file.before.as_ref()).usage);
        }
        let now: Vec<_> = files.iter().map(|file| file.now.clone()).collect();
        ActiveFile { name, usage, amplification: amplification(&now) }
    };
    groups.into_iter().map(row).collect()
}

/// The devices below the files that are shown.
struct Disks {
    all: Option<Devices>,
    counted: Vec<DeviceCounters>,
    rates: Vec<DeviceRates>,
    elapsed: Duration,
}

impl Disks {
    fn new() -> Self {
        Self {
            all: Host::live().devices().ok(),
            counted: Host::live().disk_counters().unwrap_or_default(),
            rates: Vec::new(),
            elapsed: Duration::ZERO,
        }
    }

    /// Reads the rates of the disks below these devices.
    fn take(&mut self, devices: HashSet<(u32, u32)>, elapsed: Duration) {
        self.elapsed = elapsed;
        self.rates.clear();
        let Ok(now) = Host::live().disk_counters() else { return };
        let Some(all) = &self.all else { return };
        let mut wanted = HashSet::new();
        for device in devices.into_iter().filter_map(|(major, minor)| all.numbered(major, minor)) {
            wanted.extend(all.disks(device).into_iter().map(|disk| all.whole(disk).number));
        }
        for counted in now.iter().filter(|counted| wanted.contains(&counted.number)) {
            let earlier = self.counted.iter().find(|old| old.number == counted.number);
            let rates = earlier.and_then(|earlier| {
                DiskRates::between(&earlier.counters, &counted.counters, elapsed.as_nanos() as u64)
            });
            self.rates.extend(rates.map(|rates| DeviceRates::new(&counted.name, &rates)));
        }
        self.counted = now;
    }
}
