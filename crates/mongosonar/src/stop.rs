//! When to stop: a signal came, or the terminal or the reader of the output has gone. One set-up for all commands.
//!
//! The first signal is a request, and a command ends when it next checks the flag. A thread does the rest: it silences
//! standard streams that have gone, so that nothing that still uses them fails or spins, and ends a command that does
//! not end by itself.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use sonar_sys::Host;
use sonar_sys::terminal::{Streams, StuckOutput, Woken, show_last};
use sonar_view::queries::live::{Screen, give_back_terminal, restore_terminal};

use crate::confinement::start_order::{self, StartStep};
use crate::locking::lock;

/// How long a command that has nothing to restore may take to end, once nobody sees its output any more.
const ABANDONED: Duration = Duration::from_secs(3);
/// The same where somebody may wait for its summary.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long output that nobody takes may hold up a command that was asked to stop, and how often it is looked at.
const STUCK: Duration = Duration::from_millis(500);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Signals within this time of the first one are one request: a shell or a supervisor may send several.
const ONE_REQUEST: Duration = Duration::from_millis(50);

/// What a command does once it is asked to stop.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StopBehavior {
    /// The first request ends it at once, whatever it waits for: so far it has nothing to show and nothing to restore. It
    /// changes with [`Stop::becomes`].
    Immediate,
    /// It ends. If that takes long, or it is asked again, it is ended.
    Prompt,
    /// It ends with a report of what it has seen so far, which takes its time on a busy machine, unless it is asked again
    /// or nobody can see the report any more.
    Report,
    /// It ends with what it has seen so far, as [`Self::Report`], but output that nobody takes does not hold it up.
    Summary,
    /// It has something to restore or to remove, and takes its time for that.
    Careful,
    /// It runs in the background and takes its time to store what it has, unless it is asked again. SIGHUP does not end
    /// it: it means that the configuration has changed.
    Service,
}

/// Whether the program was asked to stop, and why.
#[derive(Clone, Debug)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
    abandoned: Arc<AtomicBool>,
    requests: sonar_mongo::StopFlag,
    behavior: Arc<Mutex<StopBehavior>>,
}

impl Stop {
    fn new(behavior: StopBehavior) -> Self {
        Self {
            flag: Arc::default(),
            signal: Arc::default(),
            abandoned: Arc::default(),
            requests: sonar_mongo::StopFlag::default(),
            behavior: Arc::new(Mutex::new(behavior)),
        }
    }

    /// Set once the program was asked to stop.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.flag
    }

    /// The number of the signal that asked first, 0 before. A terminal that has gone counts as SIGHUP.
    pub fn signal(&self) -> &Arc<AtomicUsize> {
        &self.signal
    }

    /// The requests, for work on a server.
    pub fn requests(&self) -> &sonar_mongo::StopFlag {
        &self.requests
    }

    /// From now on a request ends the program in another way. Does not return if one is just ending it at once.
    pub fn set_behavior(&self, behavior: StopBehavior) {
        *self.behavior() = behavior;
    }

    fn behavior(&self) -> MutexGuard<'_, StopBehavior> {
        lock(&self.behavior)
    }

    /// Whether the terminal has gone, by its state or by a signal. It is silenced then.
    fn look(&self, streams: &Streams) -> bool {
        if streams.have_gone() {
            // Before it is silenced: whoever sees the change has to know the reason.
            self.ask(SIGHUP);
        }
        // Where this fails, what is written fails, too.
        let _ = streams.silence();
        self.abandoned.load(Ordering::Relaxed)
    }

    fn ask(&self, signal: i32) {
        let _ = self.signal.compare_exchange(0, signal as usize, Ordering::Relaxed, Ordering::Relaxed);
        if signal == SIGHUP {
            self.abandoned.store(true, Ordering::Relaxed);
        }
        if !self.flag.swap(true, Ordering::Relaxed) {
            self.requests.ask();
        }
    }

    /// How long a command may go on that has nothing to restore.
    fn patience(&self) -> Duration {
        if self.abandoned.load(Ordering::Relaxed) { ABANDONED } else { PATIENCE }
    }

    /// Whether a request `since_first` is another one. The terminal that closes and its SIGHUP are one request, and the
    /// signal may come much later on a busy machine; nobody can ask again from a terminal that has gone.
    fn is_repeated(&self, since_first: Duration) -> bool {
        !self.abandoned.load(Ordering::Relaxed) && since_first > ONE_REQUEST
    }
}

static STOP: OnceLock<(Stop, Streams)> = OnceLock::new();
/// The streams that [`prepare`] looked at.
static STREAMS: Mutex<Option<Streams>> = Mutex::new(None);

/// Opens what watching the standard streams takes, for a command that listens only once it may open no such file.
///
/// # Errors
/// It cannot be opened.
pub fn prepare() -> Result<()> {
    let streams = Streams::standard().context("cannot listen for signals")?;
    *lock(&STREAMS) = Some(streams);
    Ok(())
}

/// Whether the terminal, or the reader of the output, has gone: nobody needs to see an error then. It may be called
/// before the signal has come, and before the thread below has noticed.
pub fn is_abandoned() -> bool {
    STOP.get().is_some_and(|(stop, streams)| stop.look(streams))
}

/// The number of the signal that asked the program to stop; `None` if nothing did. A terminal or a reader of the output
/// that has gone counts as SIGHUP.
pub fn signal() -> Option<i32> {
    let signal = STOP.get()?.0.signal.load(Ordering::Relaxed) as i32;
    (signal != 0).then_some(signal)
}

/// The outcome of using the terminal, for a live view; `None` where the terminal has gone, which is no failure.
///
/// # Errors
/// Any other failure.
pub fn unless_gone<T>(outcome: std::io::Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(_) if is_abandoned() => Ok(None),
        Err(error) => Err(error).context("cannot use the terminal"),
    }
}

/// Why an answer of another thread did not come.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Unanswered {
    /// The program was asked to stop.
    Stopped,
    /// It took too long.
    Late,
    /// The thread has ended without one.
    Failed,
}

/// The answer of another thread, which may wait for a server that says nothing: until `stop` is set, or until a time.
///
/// # Errors
/// There is none.
pub fn answer_of<T>(
    thread: &Receiver<T>,
    stop: &AtomicBool,
    until: Option<Instant>,
) -> Result<T, Unanswered> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        match thread.recv_timeout(left.map_or(LOOK_INTERVAL, |left| left.min(LOOK_INTERVAL))) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Disconnected) => return Err(Unanswered::Failed),
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                return Err(Unanswered::Stopped);
            }
            Err(RecvTimeoutError::Timeout) if left.is_some_and(|left| left.is_zero()) => {
                return Err(Unanswered::Late);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Listens for signals, and for a terminal that goes away, from now on; later calls return the same.
///
/// # Errors
/// The handlers cannot be installed, or the thread cannot be started.
pub fn listen(behavior: StopBehavior) -> Result<Stop> {
    listen_confined(behavior, || {})
}

/// Listens for signals; returns the flag that the first one sets.
///
/// # Errors
/// As [`listen`].
pub fn flag() -> Result<Arc<AtomicBool>> {
    Ok(listen(StopBehavior::Prompt)?.flag)
}

/// The same as [`listen`]; `confine` gives up privileges after everything is open and before the thread starts.
///
/// # Errors
/// As [`listen`].
pub fn listen_confined(behavior: StopBehavior, confine: impl FnOnce()) -> Result<Stop> {
    match STOP.get() {
        Some((stop, _)) => Ok(stop.clone()),
        None => Signals::catch(behavior)?.watch(confine),
    }
}

/// Signals that are caught, and not handled before [`Signals::watch`].
#[derive(Debug)]
pub struct Signals {
    behavior: StopBehavior,
    caught: SignalDelivery<UnixStream, SignalOnly>,
    /// Set by the first one.
    has_come: Arc<AtomicBool>,
}

impl Signals {
    /// Catches signals from now on. No thread is started, so privileges can still be given up for all.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub fn catch(behavior: StopBehavior) -> Result<Self> {
        let mut signals = vec![SIGINT, SIGTERM];
        if matches!(behavior, StopBehavior::Immediate | StopBehavior::Careful) {
            signals.push(SIGQUIT);
        }
        // nohup has it ignored, which a handler would undo.
        if behavior != StopBehavior::Service && !is_ignored(SIGHUP) {
            signals.push(SIGHUP);
        }
        let has_come = Arc::new(AtomicBool::new(false));
        let pipe = UnixStream::pair();
        let caught =
            pipe.and_then(|(read, write)| SignalDelivery::with_pipe(read, write, SignalOnly, &signals));
        let caught = caught.context("cannot listen for signals")?;
        for signal in signals {
            signal_hook::flag::register(signal, has_come.clone()).context("cannot listen for signals")?;
        }
        Ok(Self { behavior, caught, has_come })
    }

    /// Whether one has come: a command whose start takes long ends between two steps of it.
    pub fn have_come(&self) -> bool {
        self.has_come.load(Ordering::Relaxed)
    }

    /// Calls `confine`, then handles signals and watches the standard streams.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn watch(self, confine: impl FnOnce()) -> Result<Stop> {
        let Self { behavior, caught, .. } = self;
        let prepared = lock(&STREAMS).take();
        let streams = prepared.map_or_else(Streams::standard, Ok).context("cannot listen for signals")?;
        // Before anything can go wrong that somebody asks about.
        let (stop, streams) = STOP.get_or_init(|| (Stop::new(behavior), streams));
        confine();
        start_order::take(StartStep::Thread);
        std::thread::Builder::new()
            .name("stop".to_owned())
            .spawn(move || guard(stop, streams, caught))
            .context("cannot listen for signals")?;
        Ok(stop.clone())
    }
}

/// Whether the program was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = Host::live().text("proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Passes requests on, and ends the program where it does not end by itself.
fn guard(stop: &Stop, streams: &Streams, mut caught: SignalDelivery<UnixStream, SignalOnly>) {
    let mut first: Option<Instant> = None;
    // Since when the reader of the output has taken nothing, without a break.
    let mut stuck_since: Option<Instant> = None;
    loop {
        let behavior = *stop.behavior();
        let has_deadline = match behavior {
            StopBehavior::Immediate | StopBehavior::Prompt => true,
            StopBehavior::Report | StopBehavior::Summary => stop.abandoned.load(Ordering::Relaxed),
            StopBehavior::Careful | StopBehavior::Service => false,
        };
        let deadline = first.filter(|_| has_deadline).map(|first| first + stop.patience());
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = if first.is_some() {
            Some(left.map_or(LOOK_INTERVAL, |left| left.min(LOOK_INTERVAL)))
        } else {
            None
        };
        let mut is_asked = false;
        match streams.wait(caught.get_read(), left) {
            Ok(gone @ (Woken::Gone | Woken::ErrorUnread)) => {
                stop.look(streams);
                is_asked = gone == Woken::Gone;
                // It would be seen again and again.
                if streams.silence().is_err() {
                    return;
                }
            }
            Ok(Woken::Readable) => {
                for signal in caught.pending() {
                    stop.ask(signal);
                    is_asked = true;
                }
            }
            Ok(Woken::TimedOut) => {}
            // Nothing ends the program any more but what looks at the flag.
            Err(_) => return,
        }
        let behavior = {
            // Held to the end of the program, so that it becomes nothing else in between.
            let behavior = stop.behavior();
            if is_asked && *behavior == StopBehavior::Immediate {
                leave(streams);
                std::process::exit(128 + stop.signal.load(Ordering::Relaxed) as i32);
            }
            *behavior
        };
        let Some(since) = first.map(|first| first.elapsed()) else {
            first = is_asked.then(Instant::now);
            continue;
        };
        let is_again = is_asked && stop.is_repeated(since);
        if is_again {
            stop.requests.ask();
        }
        let stuck = streams.stuck();
        stuck_since = stuck.and(stuck_since.or_else(|| Some(Instant::now())));
        let stuck = stuck.filter(|_| stuck_since.is_some_and(|begun| begun.elapsed() >= STUCK));
        let is_over = match behavior {
            StopBehavior::Immediate | StopBehavior::Prompt => {
                is_again || since >= stop.patience() || stuck.is_some()
            }
            StopBehavior::Report | StopBehavior::Summary => {
                let is_late = has_deadline && since >= stop.patience();
                // A pager takes its time to read a report; a terminal that does not read shows none.
                let waits = stuck == Some(StuckOutput::Terminal)
                    || behavior == StopBehavior::Summary && stuck.is_some();
                is_again || is_late || waits
            }
            StopBehavior::Service => is_again,
            StopBehavior::Careful => false,
        };
        if is_over {
            leave(streams);
            std::process::exit(128 + stop.signal.load(Ordering::Relaxed) as i32);
        }
        if stuck.is_some() && matches!(behavior, StopBehavior::Careful | StopBehavior::Service) {
            // What it restores or stores must not wait for what it prints.
            let _ = streams.give_up_stuck();
        }
    }
}

/// Restores the terminal, also one that does not read what is written to it.
fn leave(streams: &Streams) {
    if streams.stuck().is_none() {
        return restore_terminal();
    }
    // Whoever waits in a write would go on and end the program with another exit code, if there is nothing to restore.
    if let Some(bytes) = give_back_terminal()
        && let Ok(Some(terminal)) = streams.give_up_stuck()
    {
        show_last(&terminal, &bytes);
    }
}

/// Ctrl-Z in a live view, and what stops and continues the program otherwise.
pub struct JobState {
    stopped: Arc<AtomicBool>,
    continued: Arc<AtomicBool>,
}

impl JobState {
    /// Follows the signals from now on.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub fn listen() -> Result<Self> {
        let job = Self { stopped: Arc::default(), continued: Arc::default() };
        for (signal, flag) in [(SIGTSTP, &job.stopped), (SIGCONT, &job.continued)] {
            signal_hook::flag::register(signal, flag.clone()).context("cannot listen for signals")?;
        }
        Ok(job)
    }

    /// Whether this key is Ctrl-Z.
    pub fn is_asked(key: &KeyEvent) -> bool {
        key.code == KeyCode::Char('z') && key.modifiers.contains(KeyModifiers::CONTROL)
    }

    /// Gives the terminal back, stops, and takes the terminal again when the program goes on.
    ///
    /// # Errors
    /// The terminal has gone.
    pub fn suspend(&self, screen: &mut Screen) -> std::io::Result<()> {
        // The flags are cleared around the stop itself: a Ctrl-Z that comes once the screen is back is a new one.
        screen.suspend(|| {
            self.stopped.store(false, Ordering::Relaxed);
            let stopped = sonar_sys::terminal::stop_group();
            self.continued.store(false, Ordering::Relaxed);
            stopped
        })
    }

    /// Does what signals have asked for since the last call; returns whether the screen has to be drawn again.
    ///
    /// # Errors
    /// The terminal has gone.
    pub fn follow(&self, screen: &mut Screen) -> std::io::Result<bool> {
        if self.stopped.load(Ordering::Relaxed) {
            self.suspend(screen)?;
            return Ok(true);
        }
        if self.continued.swap(false, Ordering::Relaxed) {
            screen.resume()?;
            return Ok(true);
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn the_first_reason_stays_and_a_terminal_that_goes_later_is_noticed() {
        let stop = Stop::new(StopBehavior::Prompt);
        assert!(!stop.flag().load(Ordering::Relaxed) && !stop.requests().is_set());
        stop.ask(SIGINT);
        assert!(stop.flag().load(Ordering::Relaxed) && stop.requests().is_set());
        assert_eq!(stop.patience(), PATIENCE);
        stop.ask(SIGHUP);
        assert_eq!(stop.signal().load(Ordering::Relaxed), SIGINT as usize);
        assert_eq!(stop.patience(), ABANDONED);
        assert!(!stop.requests().later().is_set(), "one request so far");
    }

    #[test]
    fn the_late_signal_of_a_closed_terminal_is_no_second_request() {
        let stop = Stop::new(StopBehavior::Prompt);
        stop.ask(SIGTERM);
        assert!(stop.is_repeated(ONE_REQUEST * 10) && !stop.is_repeated(ONE_REQUEST / 2));
        stop.ask(SIGHUP);
        assert!(!stop.is_repeated(ONE_REQUEST * 10));
    }

    #[test]
    fn an_answer_that_does_not_come_is_not_waited_for_for_ever() {
        let (answer, answers) = channel();
        let stop = AtomicBool::new(false);
        let now = Some(Instant::now());
        assert_eq!(answer_of(&answers, &stop, now), Err(Unanswered::Late));
        answer.send(7).unwrap();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(answer_of(&answers, &stop, now), Ok(7), "it is there");
        assert_eq!(answer_of(&answers, &stop, None), Err(Unanswered::Stopped));
        drop(answer);
        assert_eq!(answer_of(&answers, &stop, None), Err(Unanswered::Failed));
    }

    #[test]
    fn a_signal_that_was_caught_is_known_before_anybody_handles_it() {
        let signals = Signals::catch(StopBehavior::Prompt).unwrap();
        assert!(!signals.have_come());
        signal_hook::low_level::raise(SIGTERM).unwrap();
        assert!(signals.have_come());
    }

    #[test]
    fn a_signal_that_is_not_ignored_is_not() {
        // Rust ignores SIGPIPE (13) at the start of every program.
        assert!(is_ignored(13));
        assert!(!is_ignored(SIGTERM));
    }
}
