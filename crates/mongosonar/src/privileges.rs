//! What a command that listens gives up once all is open that needs privileges.
//!
//! It drops every capability, can gain none again, and may no longer start programs, open sockets or open files
//! (`io` reads on in `/proc` and `/sys`). What goes on to need more is done by a helper process that was started
//! before, does one thing, and gets nothing from the threads that decode but the question.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use sonar_sys::helper::Helper;
use sonar_sys::privileges::{self, Duty};

/// Says once what cannot be given up here, and why.
fn lacking(what: &str, error: &io::Error) {
    eprintln!("mongosonar: privileges are given up in part only: {what}: {error}");
}

/// Gives up what a command does not need any more, for this thread and those it starts from now on. `read` are the
/// folders in which it goes on to read files; `keep` the capabilities without which it cannot go on.
pub fn give_up(duty: Duty, read: &[&str], keep: &[u32]) {
    if let Err(error) = privileges::drop_capabilities(keep) {
        lacking("capabilities", &error);
        return;
    }
    let read: Vec<&Path> = read.iter().map(Path::new).collect();
    if let Err(error) = privileges::limit_files(&read, &[]) {
        lacking("files, by Landlock", &error);
    }
    if let Err(error) = privileges::confine(duty) {
        lacking("system calls, by seccomp", &error);
    }
}

/// Gives up every capability and the system calls that lead to more, for this thread and those it starts, but not
/// the network: for a thread that asks a server something.
pub fn give_up_but_network() {
    if let Err(error) = privileges::drop_capabilities(&[]) {
        lacking("capabilities", &error);
    } else if let Err(error) = privileges::confine(Duty::General) {
        lacking("system calls, by seccomp", &error);
    }
}

/// Confines a thread that decodes what others have sent to the few system calls that this takes.
pub fn confine_decoder() {
    if let Err(error) = privileges::confine(Duty::Decoding) {
        lacking("system calls of a capture thread, by seccomp", &error);
    }
}

/// Starts a helper that answers over its end of the socket, with these capabilities alone, as far as the program has
/// them. `None`, with a word about what does not work then, where there can be none.
pub fn helper(
    what: &str,
    keep: &'static [u32],
    duty: Duty,
    serve: impl FnOnce(UnixStream) -> io::Result<()>,
) -> Option<Helper> {
    let started = Helper::start(|socket| {
        if privileges::drop_capabilities(keep).is_ok() && privileges::confine(duty).is_ok() {
            // It ends with the other side.
            let _ = serve(socket);
        }
    });
    started.inspect_err(|error| eprintln!("mongosonar: {what} is not possible: {error}")).ok()
}
