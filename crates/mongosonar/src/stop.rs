//! Being asked to stop: by a signal, or because the terminal or the reader of the output has gone. One set-up for
//! all commands.
//!
//! The first signal asks, and a command ends at its next look at the flag. A thread sees to the rest: it silences
//! standard streams that have gone, so that nothing fails or spins that still uses them, and ends what does not
//! end by itself.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use sonar_sys::terminal::{Streams, Woken};
use sonar_view::queries::live::Screen;

/// How long a command may take to end that has nothing to put back, once nobody sees what it says any more.
const ABANDONED: Duration = Duration::from_secs(3);
/// The same where somebody may wait for its summary.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a command does once it is asked to stop.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It ends. If it takes long, or is asked again, it is ended.
    Prompt,
    /// It has something to put back or to remove, and takes the time that this takes.
    Careful,
}

/// Whether the program was asked to stop, and how.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// Set as soon as it was asked.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.flag
    }

    /// The number of the last signal, 0 before the first one. A terminal that has gone counts as SIGHUP.
    pub fn signal(&self) -> &Arc<AtomicUsize> {
        &self.signal
    }

    /// Whether the terminal has gone, by now or as a signal has said; it is silenced then.
    fn look(&self, streams: &Streams) -> bool {
        if streams.have_gone() {
            // Before it is silenced: whoever sees that it is not what it was has to know why.
            self.ask(SIGHUP);
        }
        // Where this fails, what is written fails, too.
        let _ = streams.silence();
        self.signal.load(Ordering::Relaxed) as i32 == SIGHUP
    }

    fn ask(&self, signal: i32) {
        let _ = self.signal.compare_exchange(0, signal as usize, Ordering::Relaxed, Ordering::Relaxed);
        self.flag.store(true, Ordering::Relaxed);
    }
}

static STOP: OnceLock<(Stop, Streams)> = OnceLock::new();

/// Whether the terminal, or the reader of the output, has gone: an error is no news to anybody then. Whoever sees an
/// error of the terminal may ask before the signal has come, and before the thread below has looked.
pub fn is_abandoned() -> bool {
    STOP.get().is_some_and(|(stop, streams)| stop.look(streams))
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

/// Listens for signals, and for a terminal that goes away, from now on; later calls give the same.
///
/// # Errors
/// When a handler or the thread cannot be had.
pub fn listen(ending: Ending) -> Result<Stop> {
    listen_confined(ending, || {})
}

/// The same; `confine` gives up privileges once all is open that listening needs, and before its thread starts.
///
/// # Errors
/// When a handler or the thread cannot be had.
pub fn listen_confined(ending: Ending, confine: impl FnOnce()) -> Result<Stop> {
    match STOP.get() {
        Some((stop, _)) => Ok(stop.clone()),
        None => Signals::catch(ending)?.watch(confine),
    }
}

/// Signals that are caught, while nothing is done about them but to set the flag.
#[derive(Debug)]
pub struct Signals {
    stop: Stop,
    ending: Ending,
    woken: UnixStream,
}

impl Signals {
    /// Catches signals from now on. No thread is started, so privileges can still be given up for all.
    ///
    /// # Errors
    /// When a handler cannot be had.
    pub fn catch(ending: Ending) -> Result<Self> {
        Self::register(ending).context("cannot listen for signals")
    }

    fn register(ending: Ending) -> std::io::Result<Self> {
        let stop = Stop::default();
        let (woken, wakes) = UnixStream::pair()?;
        wakes.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let mut signals = vec![SIGINT, SIGTERM];
        if ending == Ending::Careful {
            signals.push(SIGQUIT);
        }
        // nohup has it ignored, which a handler would undo.
        if !is_ignored(SIGHUP) {
            signals.push(SIGHUP);
        }
        for signal in signals {
            signal_hook::flag::register_usize(signal, stop.signal.clone(), signal as usize)?;
            signal_hook::flag::register(signal, stop.flag.clone())?;
            signal_hook::low_level::pipe::register(signal, wakes.try_clone()?)?;
        }
        Ok(Self { stop, ending, woken })
    }

    /// Calls `confine`, and then watches the standard streams too, and ends what does not end by itself.
    ///
    /// # Errors
    /// When the thread cannot be had.
    pub fn watch(self, confine: impl FnOnce()) -> Result<Stop> {
        let Self { stop, ending, woken } = self;
        let streams = Streams::standard().context("cannot listen for signals")?;
        // Before anything can go wrong that somebody asks about.
        let (stop, streams) = STOP.get_or_init(|| (stop, streams));
        confine();
        std::thread::Builder::new()
            .name("stop".to_owned())
            .spawn(move || guard(stop, ending, streams, woken))
            .context("cannot listen for signals")?;
        Ok(stop.clone())
    }
}

/// Whether the program was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

fn guard(stop: &Stop, ending: Ending, streams: &Streams, mut woken: UnixStream) {
    let mut asked = 0usize;
    let (mut first, mut until): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        match streams.wait(&woken, left) {
            Ok(gone @ (Woken::Gone | Woken::ErrorUnread)) => {
                stop.look(streams);
                if gone == Woken::Gone {
                    asked = asked.max(1);
                }
                // It would be seen again and again.
                if streams.silence().is_err() {
                    return;
                }
            }
            Ok(Woken::Readable) => {
                let mut bytes = [0; 64];
                asked += woken.read(&mut bytes).unwrap_or(0);
            }
            Ok(Woken::TimedOut) => {}
            // Without it the flags still work.
            Err(_) => return,
        }
        if ending == Ending::Careful || asked == 0 {
            continue;
        }
        let now = Instant::now();
        let since = *first.get_or_insert(now);
        let abandoned = stop.signal.load(Ordering::Relaxed) as i32 == SIGHUP;
        let deadline = since + if abandoned { ABANDONED } else { PATIENCE };
        until = Some(deadline);
        let again = is_repeated(asked, now.duration_since(since), abandoned);
        if again || now >= deadline {
            sonar_view::queries::live::restore_terminal();
            std::process::exit(128 + stop.signal.load(Ordering::Relaxed) as i32);
        }
        asked = 1;
    }
}

/// Whether the program was asked once more, after the signals that belong to the first request. The terminal that
/// closes and its SIGHUP are one request, and the signal may come much later on a busy machine; nobody can ask again
/// from a terminal that has gone.
fn is_repeated(asked: usize, since_first: Duration, abandoned: bool) -> bool {
    asked > 1 && !abandoned && since_first > MOMENT
}

/// Ctrl-Z in a live view, and what stops and continues the program otherwise.
pub struct Job {
    stopped: Arc<AtomicBool>,
    continued: Arc<AtomicBool>,
}

impl Job {
    /// Follows the signals from now on.
    ///
    /// # Errors
    /// When a handler cannot be had.
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
    /// When the terminal has gone.
    pub fn suspend(&self, screen: &mut Screen) -> std::io::Result<()> {
        let suspended = screen.suspend(sonar_sys::terminal::stop_group);
        self.stopped.store(false, Ordering::Relaxed);
        self.continued.store(false, Ordering::Relaxed);
        suspended
    }

    /// Does what a signal has asked for since the last call; gives whether the screen is to be drawn again.
    ///
    /// # Errors
    /// When the terminal has gone.
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

/// Signals that come within this time of the first one are one request: a shell or a supervisor may send several.
const MOMENT: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays() {
        let stop = Stop::default();
        assert!(!stop.flag().load(Ordering::Relaxed));
        stop.ask(SIGHUP);
        stop.ask(SIGTERM);
        assert!(stop.flag().load(Ordering::Relaxed));
        assert_eq!(stop.signal().load(Ordering::Relaxed), SIGHUP as usize);
    }

    #[test]
    fn the_late_signal_of_a_closed_terminal_is_no_second_request() {
        let late = MOMENT * 10;
        assert!(is_repeated(2, late, false));
        assert!(!is_repeated(2, late, true));
        assert!(!is_repeated(2, MOMENT / 2, false));
        assert!(!is_repeated(1, late, false));
    }

    #[test]
    fn a_signal_that_is_not_ignored_is_not() {
        // Rust ignores SIGPIPE (13) at the start of every program.
        assert!(is_ignored(13));
        assert!(!is_ignored(SIGTERM));
    }
}
