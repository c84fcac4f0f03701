//! The order in which a command with privileges starts. Each of them states its steps here as it takes them; in a debug
//! build one that comes too late ends the program.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use anyhow::{Context, Result};

use crate::locking::lock;

/// The steps, in their order. A command may take one of them several times, and leave some out.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StartStep {
    /// A helper process starts, and gets what was opened for it: no thread may run yet.
    Helper,
    /// What takes privileges is opened. Threads start that need more of them than the others: they drop the rest by
    /// themselves, and read nothing from outside until the others have dropped theirs.
    Opened,
    /// This thread drops its privileges, and with it all that it starts later.
    Dropped,
    /// A thread starts that needs none: one that decodes what comes from outside, or shows it.
    Thread,
}

/// Shows each step that is new, in a debug build.
const SHOWN: &str = "MONGOSONAR_START_STEPS";

/// The last step of this process.
static REACHED: Mutex<Option<StartStep>> = Mutex::new(None);

/// Whether this process is a helper, whose steps nobody asks for.
static IS_HELPER: AtomicBool = AtomicBool::new(false);

/// What is done before privileges are dropped.
static ENDING: Mutex<Vec<Box<dyn FnOnce() + Send>>> = Mutex::new(Vec::new());

/// What is done once privileges are dropped.
static WAITING: Mutex<Vec<Box<dyn FnOnce() + Send>>> = Mutex::new(Vec::new());

/// States that this process takes a step now.
pub fn take(step: StartStep) {
    // Tests of a part take its steps in any order.
    if cfg!(test) {
        return;
    }
    let mut reached = lock(&REACHED);
    debug_assert!(may_follow(*reached, step), "{step:?} after {reached:?}");
    let is_new = reached.replace(step) != Some(step);
    if cfg!(debug_assertions)
        && is_new
        && !IS_HELPER.load(Ordering::Relaxed)
        && std::env::var_os(SHOWN).is_some()
    {
        eprintln!("mongosonar: start: {step:?}");
    }
}

/// States in a helper process that it has dropped its privileges. The other one has an order of its own.
pub fn helper_has_dropped() {
    *lock(&REACHED) = Some(StartStep::Dropped);
    IS_HELPER.store(true, Ordering::Relaxed);
}

/// Whether a thread of this process has dropped its privileges, so that threads may start that need none.
pub fn has_dropped() -> bool {
    cfg!(test) || *lock(&REACHED) >= Some(StartStep::Dropped)
}

/// Does this now if a thread of this process has dropped its privileges, else as soon as one has: it may start threads that
/// need none.
pub fn once_dropped(work: impl FnOnce() + Send + 'static) {
    if has_dropped() {
        work();
    } else {
        lock(&WAITING).push(Box::new(work));
    }
}

/// Does this before the main thread of a command drops its privileges.
pub fn before_dropping(work: impl FnOnce() + Send + 'static) {
    lock(&ENDING).push(Box::new(work));
}

/// Whether a step comes in time.
fn may_follow(reached: Option<StartStep>, step: StartStep) -> bool {
    reached.is_none_or(|reached| reached <= step)
}

/// Drops the privileges of this thread by `drop`, unless they are to be kept.
pub fn drop_privileges(confined: bool, drop: impl FnOnce()) {
    take(StartStep::Dropped);
    let ending = std::mem::take(&mut *lock(&ENDING));
    ending.into_iter().for_each(|work| work());
    if confined {
        drop();
    }
    let waiting = std::mem::take(&mut *lock(&WAITING));
    waiting.into_iter().for_each(|work| work());
}

/// Takes this step, and starts a thread.
///
/// # Errors
/// It cannot be started.
pub fn start_thread<T: Send + 'static>(
    step: StartStep,
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    take(step);
    Builder::new().name(name.to_owned()).spawn(run).context("cannot start a thread")
}

#[cfg(test)]
mod tests {
    use super::StartStep::{Dropped, Helper, Opened, Thread};
    use super::*;

    #[test]
    fn steps_may_be_repeated_and_left_out_but_not_taken_too_late() {
        let is_in_order = |steps: &[StartStep]| {
            let mut reached = None;
            steps.iter().all(|step| may_follow(reached.replace(*step), *step))
        };
        assert!(is_in_order(&[Helper, Helper, Opened, Dropped, Thread, Thread]));
        assert!(is_in_order(&[Dropped, Thread]));
        for late in [[Opened, Helper], [Dropped, Helper], [Dropped, Opened], [Thread, Dropped]] {
            assert!(!is_in_order(&late), "{late:?}");
        }
    }
}
