//! Threads that are started before the others have dropped their privileges, and read nothing until then.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Where such threads wait, until it is opened for all of them.
#[derive(Clone, Debug, Default)]
pub struct StartGate(Arc<(Mutex<bool>, Condvar)>);

impl StartGate {
    /// One that is open: all threads of the caller have dropped their privileges.
    pub fn opened() -> Self {
        let gate = Self::default();
        gate.open();
        gate
    }

    /// Lets all threads go on, those that come later too.
    pub fn open(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// Waits until it is open. If that never happens, the program ends.
    pub fn wait(&self) {
        let is_open = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = self.0.1.wait_while(is_open, |is_open| !*is_open);
        drop(is_open.unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    use super::*;

    #[test]
    fn threads_wait_until_it_is_open_and_not_after_that() {
        let gate = StartGate::default();
        let (passed, has_passed) = channel();
        let start = |gate: StartGate| {
            let passed = passed.clone();
            std::thread::spawn(move || {
                gate.wait();
                passed.send(()).unwrap();
            })
        };
        let early = start(gate.clone());
        assert_eq!(has_passed.recv_timeout(Duration::from_millis(20)), Err(RecvTimeoutError::Timeout));
        gate.open();
        let late = start(gate);
        for thread in [early, late, start(StartGate::opened())] {
            thread.join().unwrap();
            has_passed.recv().unwrap();
        }
    }
}
