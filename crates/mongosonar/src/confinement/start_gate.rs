//! Threads that are started before the others have dropped their privileges, and read nothing until then.
//!
//! Threads share their memory: whoever takes one over can make the others do its work, with the privileges that they still
//! have.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use sonar_mongo::Target;

use super::privileges;
use super::thread_starter::ThreadStarter;
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

/// A thread that starts before the others have dropped their privileges, because it needs some of them.
pub struct EarlyThread<'a> {
    /// Its name in lists of threads, of 15 bytes at most.
    pub name: &'static str,
    /// What starts it.
    pub starter: &'a ThreadStarter,
    /// Whether it drops the privileges that it does not need.
    pub confined: bool,
}

impl StartGate {
    /// Starts a thread. At once it drops its privileges by `drop_privileges`, if it is confined, and keeps the gate closed
    /// until then. Once the gate is open it does its work: what that reads comes from outside.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(
        &self,
        thread: EarlyThread<'_>,
        drop_privileges: impl FnOnce() + Send + 'static,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let EarlyThread { name, starter, confined } = thread;
        let (held, gate) = (self.hold(), self.clone());
        let run = move || {
            if confined {
                drop_privileges();
            }
            drop(held);
            gate.wait();
            work();
        };
        starter.spawn(name.to_owned(), run).map(drop)
    }

    /// The same for a thread that asks this server, and keeps what that takes.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_client(
        &self,
        name: &'static str,
        server: Target,
        confined: bool,
        ask: impl FnOnce(Target) + Send + 'static,
    ) -> io::Result<()> {
        let thread = EarlyThread { name, starter: &ThreadStarter::network(confined)?, confined };
        let target = server.clone();
        let drop_privileges = move || privileges::drop_privileges_but_network([&target]);
        self.start(thread, drop_privileges, move || ask(server))
    }

    /// One that is open: all threads of the caller have dropped their privileges.
    pub fn opened() -> Self {
        let gate = Self::default();
        gate.open();
        gate
    }

    /// Keeps it closed until the result is dropped: for a thread, from before its start until it has dropped its privileges.
    fn hold(&self) -> GateHold {
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
struct GateHold(StartGate);

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
    fn a_thread_drops_its_privileges_at_once_and_works_when_all_threads_have() {
        let gate = StartGate::default();
        let other = gate.hold();
        let (say, said) = channel();
        for confined in [true, false] {
            let (drops, works) = (say.clone(), say.clone());
            let thread = EarlyThread { name: "early", starter: &ThreadStarter::Here, confined };
            let drop_privileges = move || drops.send("drops").unwrap();
            gate.start(thread, drop_privileges, move || works.send("works").unwrap()).unwrap();
        }
        assert_eq!(said.recv(), Ok("drops"));
        assert_eq!(said.recv_timeout(MOMENT), Err(RecvTimeoutError::Timeout));
        drop(other);
        gate.open();
        assert_eq!([said.recv(), said.recv()], [Ok("works"); 2]);
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
