//! Shows the windows as they come: the live view, or a table or an object for each interval.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::Result;
use crossterm::event::{self, Event};
use sonar_core::Window;
use sonar_sys::resource::ResourceUsage;
use sonar_view::queries::live::{App, Cost, LiveAction, LiveSettings, Screen};
use sonar_view::queries::{PacketOrigin, PastWindow, Selection};

use super::super::args::{ColorArg, QueriesArgs};
use super::split::RunningSplits;
use crate::args::when::now;
use crate::capture::notice::{INTERFACE_DOWN, Notice};
use crate::capture::{Joiner, OperationListener};
use crate::history::{HistoryStep, HistorySteps, SteppedWindow};
use crate::locking::lock;
use crate::queries::output::QueriesOutput;
use crate::queries::server_names::ServerNames;
use crate::stop::{self, JobState};

/// The longest sleep of the main thread, so that it ends soon after Ctrl-C.
const NAP: Duration = Duration::from_millis(250);
/// How long a window waits for the records of the threads, which are read ten times a second.
const MOST_HELD: Duration = Duration::from_millis(500);
/// How long to sleep meanwhile.
const HELD_NAP: Duration = Duration::from_millis(20);
/// How long the view waits for a window of the history.
const PATIENCE: Duration = Duration::from_millis(300);

/// Adds a window to the sum of those before.
fn add(total: &mut Option<Window>, window: Window) {
    match total {
        Some(total) => total.merge(&window),
        None => *total = Some(window),
    }
}

/// The windows of the capture threads, and their messages.
pub struct WindowFeed {
    joiner: Joiner,
    news: Receiver<Notice>,
    stop: Arc<AtomicBool>,
    until: Option<Instant>,
    steps: Option<HistorySteps>,
    splits: Option<RunningSplits>,
    /// A window that waits for what the threads did in it, and since when.
    held: Option<(Window, Instant)>,
    servers: ServerNames,
}

impl WindowFeed {
    /// Windows of the capture threads, until `stop` is set or, if there is one, after `duration`.
    pub fn new(
        joiner: Joiner,
        news: Receiver<Notice>,
        stop: Arc<AtomicBool>,
        duration: Option<Duration>,
    ) -> Self {
        Self {
            joiner,
            news,
            stop,
            until: duration.map(|duration| Instant::now() + duration),
            steps: None,
            splits: None,
            held: None,
            servers: ServerNames::default(),
        }
    }

    /// The same, with what is known of the addresses of servers.
    pub fn with_servers(self, servers: ServerNames) -> Self {
        Self { servers, ..self }
    }

    /// The same, with a history that the live view can step through.
    pub fn with_steps(self, steps: Option<HistorySteps>) -> Self {
        Self { steps, ..self }
    }

    /// The same, with where the time of operations went.
    pub fn with_splits(self, splits: Option<RunningSplits>) -> Self {
        Self { splits, ..self }
    }

    /// The next complete window, if there is one in time.
    fn next(&mut self, wait: Duration) -> Option<Window> {
        let mut window = self.next_divided(wait)?;
        self.servers.apply(&mut window);
        Some(window)
    }

    /// The same, with servers by all of their addresses: so the threads know them.
    fn next_divided(&mut self, wait: Duration) -> Option<Window> {
        let Some(splits) = &self.splits else { return self.joiner.next(wait) };
        let (mut window, since) = match self.held.take() {
            Some(held) => held,
            None => (self.joiner.next(wait)?, Instant::now()),
        };
        if !splits.has_read(&window) && since.elapsed() < MOST_HELD {
            std::thread::sleep(wait.min(HELD_NAP));
            self.held = Some((window, since));
            return None;
        }
        splits.complete(&mut window);
        Some(window)
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.joiner.ended
            || self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// The windows until all threads have ended, by time. It waits two seconds for each.
    pub fn rest(&mut self) -> Vec<Window> {
        let mut rest = Vec::new();
        if let Some(splits) = &mut self.splits
            && let Err(error) = splits.finish()
        {
            eprintln!("mongosonar: where the time went is not known to the end: {error:#}");
        }
        // The threads that have ended may have said more since the last window was shown.
        for notice in self.news.try_iter() {
            if let Notice::Complaint(what) = notice {
                eprintln!("mongosonar: {what}");
            }
        }
        rest.extend(std::iter::from_fn(|| self.next(Duration::from_secs(2))));
        // Where a thread does not end.
        while let Some(mut window) = self.joiner.incomplete() {
            self.servers.apply(&mut window);
            rest.push(window);
        }
        if let (Some(splits), Some(last)) = (&self.splits, rest.last_mut()) {
            splits.complete_last(last);
        }
        rest
    }

    /// Prints a table, or an object, for each interval, if they are wanted; returns the sum of all windows.
    pub fn print(&mut self, mut output: Option<&mut QueriesOutput>) -> Result<Option<Window>> {
        let mut total = None;
        while !self.is_over() {
            for notice in self.news.try_iter() {
                match notice {
                    Notice::Source { news, .. } => eprintln!("mongosonar: listening on {news}"),
                    Notice::Servers(servers) => {
                        if let Some(output) = &mut output {
                            output.servers(servers);
                        }
                    }
                    Notice::InterfaceDown => eprintln!("mongosonar: {INTERFACE_DOWN}"),
                    Notice::Complaint(what) | Notice::WritingEnded(what) => eprintln!("mongosonar: {what}"),
                }
            }
            if let Some(window) = self.next(NAP) {
                if let Some(output) = &mut output {
                    output.interval(&window)?;
                }
                add(&mut total, window);
            }
        }
        Ok(total)
    }

    /// Shows the live view until the user quits; returns the sum of all windows.
    pub fn show(
        &mut self,
        args: &QueriesArgs,
        selection: &Selection,
        source: &str,
        origin: PacketOrigin,
    ) -> Result<Option<Window>> {
        let has_past = self.steps.is_some();
        let mut app = App::new(LiveSettings { has_past, ..settings(args, selection, source, origin) });
        let job = JobState::listen()?;
        let Some(mut screen) = stop::unless_gone(Screen::enter())? else { return Ok(app.into_total()) };
        let mut usage: Option<(ResourceUsage, Instant)> = None;
        // They would spoil the screen.
        let mut complaints: Vec<String> = Vec::new();
        let mut drawn = stop::unless_gone(screen.draw(&mut app))?;
        while drawn.is_some() && !self.is_over() {
            let mut changed = false;
            for notice in self.news.try_iter() {
                match notice {
                    Notice::Source { source, origin, .. } => app.source(source, origin),
                    Notice::Servers(servers) => app.servers(servers),
                    Notice::InterfaceDown => complaints.push(INTERFACE_DOWN.to_owned()),
                    Notice::Complaint(what) => complaints.push(what),
                    Notice::WritingEnded(what) => app.problem(what),
                }
                changed = true;
            }
            while let Some(window) = self.next(Duration::ZERO) {
                app.window(window);
                changed = true;
            }
            if let Some(steps) = &self.steps {
                changed |= take_answers(&mut app, steps);
            }
            if changed {
                let last = usage.replace((ResourceUsage::now()?, Instant::now()));
                if let (Some((before, then)), Some((after, at))) = (last, &usage) {
                    let spent = after.processor().saturating_sub(before.processor()).as_secs_f64();
                    let passed = at.duration_since(then).as_secs_f64().max(0.001);
                    app.cost(Cost {
                        cpu_percent: Some(100.0 * spent / passed),
                        rss_bytes: Some(after.resident_bytes),
                    });
                }
            }
            drawn = match stop::unless_gone(keys(&mut app, self.steps.as_ref(), &job, &mut screen))? {
                Some(Keys::Quit) | None => None,
                Some(Keys::Unchanged) if !changed => Some(()),
                Some(Keys::Changed | Keys::Unchanged) => stop::unless_gone(screen.draw(&mut app))?,
            };
        }
        drop(screen);
        complaints.iter().for_each(|what| eprintln!("mongosonar: {what}"));
        Ok(app.into_total())
    }
}

/// Whether to show the live view rather than a text for each interval.
pub fn on_screen(args: &QueriesArgs) -> bool {
    !args.each
        && !args.makes_digest()
        && !args.json
        && !args.csv
        && std::io::stdout().is_terminal()
        && std::io::stdin().is_terminal()
}

/// The settings of a live view that cannot step through a history.
fn settings(args: &QueriesArgs, selection: &Selection, source: &str, origin: PacketOrigin) -> LiveSettings {
    let color = match args.color.unwrap_or(ColorArg::Auto) {
        ColorArg::Always => true,
        ColorArg::Never => false,
        ColorArg::Auto => std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    };
    LiveSettings {
        selection: selection.clone(),
        source: source.to_owned(),
        origin,
        split_by_order: args.window_settings().split_by_order,
        color,
        ..Default::default()
    }
}

/// Asks for a window of the history, and shows it if it comes soon.
fn take_step(app: &mut App, steps: Option<&HistorySteps>, step: HistoryStep) {
    if let Some(steps) = steps {
        steps.ask(step);
        show_answer(app, steps.answer(PATIENCE));
    }
}

/// Shows what came later; returns whether there was anything.
fn take_answers(app: &mut App, steps: &HistorySteps) -> bool {
    let mut changed = false;
    while let Some(answer) = steps.answer(Duration::ZERO) {
        show_answer(app, Some(answer));
        changed = true;
    }
    changed
}

fn show_answer(app: &mut App, answer: Option<SteppedWindow>) {
    match answer {
        Some(Ok(window)) => app.show_past(window),
        Some(Err(why)) => app.notify(why),
        None => {}
    }
}

/// Where a capture is shown.
pub struct CaptureView<'a> {
    args: &'a QueriesArgs,
    selection: &'a Selection,
    /// Where the packets come from, in words.
    source: String,
    origin: PacketOrigin,
    /// It is a live view, not a text for each interval.
    screen: bool,
    /// It shows single operations, not intervals.
    shows_each: bool,
    output: Arc<Mutex<QueriesOutput>>,
}

impl<'a> CaptureView<'a> {
    /// Shows packets of this source.
    ///
    /// # Errors
    /// As [`QueriesOutput::new`].
    pub fn new(
        args: &'a QueriesArgs,
        selection: &'a Selection,
        source: String,
        origin: PacketOrigin,
    ) -> Result<Self> {
        let output = QueriesOutput::new(args, selection, origin.clone())?;
        let (screen, shows_each) = (on_screen(args), output.wants_each());
        Ok(Self { args, selection, source, origin, screen, shows_each, output: Arc::new(Mutex::new(output)) })
    }

    /// Receives single operations, if they are shown.
    pub fn listener(&self) -> Option<Arc<Mutex<dyn OperationListener>>> {
        self.shows_each.then(|| -> Arc<Mutex<dyn OperationListener>> { self.output.clone() })
    }

    /// Where intervals are written to, if they are.
    fn intervals(&self) -> Option<MutexGuard<'_, QueriesOutput>> {
        (!self.screen && !self.shows_each).then(|| lock(&self.output))
    }

    /// Shows windows until the capture is to end; returns their sum.
    ///
    /// # Errors
    /// They cannot be shown.
    pub fn show(&self, feed: &mut WindowFeed) -> Result<Option<Window>> {
        if self.screen {
            return feed.show(self.args, self.selection, &self.source, self.origin.clone());
        }
        feed.print(self.intervals().as_deref_mut())
    }

    /// Shows the last windows as intervals, if it shows any, and adds them to the sum of those before. The last one is not
    /// whole, unless the capture ended with it.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn show_rest(&self, rest: Vec<Window>, total: &mut Option<Window>) -> Result<()> {
        let mut output = self.intervals();
        for window in rest {
            // The capture may end just when an interval begins.
            let is_empty = window.end <= window.start && window.shapes.is_empty();
            if let Some(output) = output.as_deref_mut().filter(|_| !is_empty) {
                output.interval(&window)?;
            }
            add(total, window);
        }
        Ok(())
    }

    /// Shows the sum of all windows, with notes.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn summary(&self, total: &Window, notes: impl IntoIterator<Item = String>) -> Result<()> {
        let mut output = lock(&self.output);
        notes.into_iter().for_each(|note| output.note(note));
        Ok(output.summary(total)?)
    }
}

/// What is shown of a history.
pub struct PastViews<'a> {
    /// Its name.
    pub source: &'a str,
    /// Steps to the windows before and after.
    pub steps: HistorySteps,
    /// The whole span that was asked for: it is shown first.
    pub whole: PastWindow,
    /// What was not observed of it.
    pub notes: Vec<String>,
}

/// Shows a span of the history, and the windows before and after it, until the user quits.
pub fn show_past(args: &QueriesArgs, selection: &Selection, views: PastViews<'_>) -> Result<()> {
    let PastViews { source, steps, whole, notes } = views;
    let settings = settings(args, selection, source, PacketOrigin::History);
    let mut app = App::new(LiveSettings { has_past: true, ..settings });
    app.show_past(whole);
    if !notes.is_empty() {
        app.notify(notes.join(" "));
    }
    let job = JobState::listen()?;
    let Some(mut screen) = stop::unless_gone(Screen::enter())? else { return Ok(()) };
    let stop = stop::flag()?;
    let mut drawn = stop::unless_gone(screen.draw(&mut app))?;
    while drawn.is_some() && !stop.load(Ordering::Relaxed) {
        let changed = take_answers(&mut app, &steps);
        drawn = match stop::unless_gone(keys(&mut app, Some(&steps), &job, &mut screen))? {
            Some(Keys::Quit) | None => None,
            Some(Keys::Unchanged) if !changed => Some(()),
            Some(Keys::Changed | Keys::Unchanged) => stop::unless_gone(screen.draw(&mut app))?,
        };
    }
    Ok(())
}

/// The result of handling keys and job control.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Keys {
    Quit,
    /// The view must be redrawn.
    Changed,
    Unchanged,
}

/// Waits a moment for a key, and handles it and job control.
fn keys(
    app: &mut App,
    steps: Option<&HistorySteps>,
    job: &JobState,
    screen: &mut Screen,
) -> std::io::Result<Keys> {
    let mut keys = if job.follow(screen)? { Keys::Changed } else { Keys::Unchanged };
    if !event::poll(Duration::from_millis(100))? {
        return Ok(keys);
    }
    match event::read()? {
        Event::Key(key) if JobState::is_asked(&key) => {
            job.suspend(screen)?;
            keys = Keys::Changed;
        }
        Event::Key(key) => match app.key(key) {
            LiveAction::Quit => return Ok(Keys::Quit),
            LiveAction::Redraw => screen.redraw(app)?,
            LiveAction::Copy(text) => {
                screen.copy(&text, std::env::var_os("TMUX").is_some())?;
                keys = Keys::Changed;
            }
            LiveAction::Earlier => {
                let from = app.past().map_or_else(now, |past| past.from);
                take_step(app, steps, HistoryStep::Before(from));
                keys = Keys::Changed;
            }
            LiveAction::Later => {
                if let Some(past) = app.past() {
                    take_step(app, steps, HistoryStep::From(past.to));
                    keys = Keys::Changed;
                }
            }
            LiveAction::Latest => {
                take_step(app, steps, HistoryStep::Before(now()));
                keys = Keys::Changed;
            }
            LiveAction::Continue => keys = Keys::Changed,
        },
        Event::Resize(..) => keys = Keys::Changed,
        _ => {}
    }
    Ok(keys)
}
