//! For tests: a process that executes another program on command.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

/// A shell that becomes `cat`.
pub struct ExecutingShell(Child);

impl ExecutingShell {
    /// Starts the shell.
    pub fn start() -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", "read line; exec cat"]);
        Self(shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Its process, by number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Has it execute the other program, and returns when that runs.
    pub fn execute(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"go on\nx").unwrap();
        // It is the other program that answers.
        self.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    }

    /// Ends it.
    pub fn end(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}
