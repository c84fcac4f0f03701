//! Threads that are started before the others have dropped their privileges, and read nothing until then.
//!
//! Threads share their memory: whoever takes one over can make the others do its work, with the privileges that they still
//! have.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::locking::lock;

/// Where such threads wait, until it is opened and no thread keeps it closed.
#[derive(Clone, Debug, Default)]
pub struct StartGate(Arc<GateState>);

#[derive(Debug, Default)]
struct GateState {
    threads: Mutex<PrivilegedThreads>,
    changed: Condvar,
}

/// Threads that may still have privileges.
#[derive(Debug, Default)]
struct PrivilegedThreads {
    /// The thread that opens the gate has dropped its own.
    is_open: bool,
    /// How many others there are.
    others: usize,
}

impl StartGate {
    /// One that is open: all threads of the caller have dropped their privileges.
    pub fn opened() -> Self {
        let gate = Self::default();
        gate.open();
        gate
    }

    /// Keeps it closed until the result is dropped: for a thread, from before its start until it has dropped its privileges.
    pub fn hold(&self) -> GateHold {
        self.change(|threads| threads.others += 1);
        GateHold(self.clone())
    }

    /// Lets all threads go on, those that come later too, once no thread keeps it closed; waits for that.
    pub fn open(&self) {
        self.change(|threads| threads.is_open = true);
        self.wait();
    }

    /// Waits until it is open and no thread keeps it closed. If that never happens, the program ends.
    pub fn wait(&self) {
        let threads = lock(&self.0.threads);
        let is_closed = |threads: &mut PrivilegedThreads| !threads.is_open || threads.others > 0;
        drop(self.0.changed.wait_while(threads, is_closed).unwrap_or_else(PoisonError::into_inner));
    }

    fn change(&self, change: impl FnOnce(&mut PrivilegedThreads)) {
        change(&mut lock(&self.0.threads));
        self.0.changed.notify_all();
    }
}

/// Keeps a [`StartGate`] closed.
#[derive(Debug)]
pub struct GateHold(StartGate);

impl Drop for GateHold {
    fn drop(&mut self) {
        self.0.change(|threads| threads.others -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
    use std::thread::JoinHandle;
    use std::time::Duration;

    use super::*;

    /// A thread that waits, and what it says afterwards.
    fn waiting(gate: &StartGate) -> (JoinHandle<()>, Receiver<()>) {
        let (passed, has_passed) = channel();
        let gate = gate.clone();
        let thread = std::thread::spawn(move || {
            gate.wait();
            passed.send(()).unwrap();
        });
        (thread, has_passed)
    }

    const MOMENT: Duration = Duration::from_millis(20);
    const WAITS: Result<(), RecvTimeoutError> = Err(RecvTimeoutError::Timeout);

    #[test]
    fn threads_wait_until_it_is_open_and_not_after_that() {
        let gate = StartGate::default();
        let early = waiting(&gate);
        assert_eq!(early.1.recv_timeout(MOMENT), WAITS);
        gate.open();
        let late = waiting(&gate);
        for (thread, has_passed) in [early, late, waiting(&StartGate::opened())] {
            thread.join().unwrap();
            has_passed.recv().unwrap();
        }
    }

    #[test]
    fn nobody_goes_on_while_one_thread_has_not_dropped_its_privileges() {
        let gate = StartGate::default();
        let (slow, quick) = (gate.hold(), gate.hold());
        let (thread, has_passed) = waiting(&gate);
        let opener = std::thread::spawn({
            let gate = gate.clone();
            move || gate.open()
        });
        drop(quick);
        assert_eq!(has_passed.recv_timeout(MOMENT), WAITS);
        assert!(!opener.is_finished(), "who opens it reads nothing either");
        // One that fails has none any more.
        let failing = std::thread::spawn(move || {
            let _held = slow;
            panic!("a thread of the test");
        });
        assert!(failing.join().is_err());
        thread.join().unwrap();
        opener.join().unwrap();
        has_passed.recv().unwrap();
    }
}
