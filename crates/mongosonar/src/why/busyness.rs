//! How many connections of a busy server are followed if nobody says so.

use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use sonar_core::time_split::ConnectionSample;
use sonar_sys::Host;

/// How long it watches a server.
const WATCHED: Duration = Duration::from_millis(250);
/// All connections are followed if threads get a processor at most this often a second.
const ALL_UP_TO: f64 = 3_000.0;
/// Otherwise, about as many as get one this often a second.
const FOLLOWED: f64 = 1_500.0;

/// How often threads of servers get a processor: at least once for each operation.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Busyness {
    /// Times a second.
    pub turns: f64,
}

impl Busyness {
    /// Of these processes now. It takes a quarter of a second.
    pub fn of(processes: &[u32], host: &Host) -> Self {
        let (begun, before) = (Instant::now(), turns(processes, host));
        std::thread::sleep(WATCHED);
        let turned = turns(processes, host).saturating_sub(before);
        Self { turns: turned as f64 / begun.elapsed().as_secs_f64() }
    }

    /// The connections to follow, so that the server loses next to nothing.
    pub fn sample(self) -> ConnectionSample {
        if self.turns <= ALL_UP_TO {
            return ConnectionSample::default();
        }
        let every = (self.turns / FOLLOWED).ceil().min(f64::from(u16::MAX)) as u16;
        ConnectionSample { every: NonZeroU16::new(every).unwrap_or(NonZeroU16::MIN) }
    }
}

/// How often all threads of these processes have got a processor so far; 0 if the kernel does not count it.
fn turns(processes: &[u32], host: &Host) -> u64 {
    let of_thread = |process: u32, thread: String| {
        let counted = host.text(&format!("proc/{process}/task/{thread}/schedstat"))?;
        counted.split_whitespace().nth(2)?.parse::<u64>().ok()
    };
    let of_process = |process: u32| {
        let threads = std::fs::read_dir(host.path(&format!("proc/{process}/task"))).into_iter().flatten();
        let threads = threads.flatten().filter_map(|thread| thread.file_name().into_string().ok());
        threads.filter_map(|thread| of_thread(process, thread)).sum::<u64>()
    };
    processes.iter().map(|process| of_process(*process)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_not_busy_is_followed_whole_and_a_busy_one_by_connection() {
        let every = |turns| Busyness { turns }.sample().every.get();
        assert_eq!([0.0, 250.0, 3_000.0].map(every), [1, 1, 1]);
        assert_eq!([3_001.0, 10_000.0, 15_000.0, 1e12].map(every), [3, 7, 10, u16::MAX]);
    }

    #[test]
    fn threads_of_a_process_are_counted_together() {
        let folder = tempfile::tempdir().expect("a folder");
        for (thread, counted) in [("7", "10 20 30\n"), ("8", "1 2 12\n"), ("9", "no figures")] {
            let task = folder.path().join("proc/7/task").join(thread);
            std::fs::create_dir_all(&task).expect("a thread");
            std::fs::write(task.join("schedstat"), counted).expect("its figures");
        }
        let host = Host::at(folder.path());
        assert_eq!((turns(&[7], &host), turns(&[7, 8], &host), turns(&[], &host)), (42, 42, 0));
    }
}
