//! Threads of this process that wait in a known system call, for tests.
#![allow(clippy::unwrap_used)]

use std::thread;
use std::time::{Duration, Instant};

/// The id of this thread.
pub fn own_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// Waits until a thread of this process is blocked in this system call. After proc(5): syscall.
pub fn wait_until_in(thread: u32, call: libc::c_long) {
    let path = format!("/proc/self/task/{thread}/syscall");
    let until = Instant::now() + Duration::from_secs(60);
    while std::fs::read_to_string(&path).unwrap().split(' ').next() != Some(&call.to_string()) {
        assert!(Instant::now() < until, "thread {thread} is not in call {call}");
        thread::sleep(Duration::from_millis(1));
    }
}
