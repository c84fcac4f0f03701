//! How many connections of a busy server are followed if nobody says so.

use std::collections::HashMap;
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
/// But at least about this many of those that do something: the one that blocks the others may be a single one.
const FEWEST: f64 = 8.0;

/// How often threads of servers get a processor: at least once for each operation.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Busyness {
    /// Times a second.
    pub turns: f64,
    /// Threads that serve a connection, and got one.
    pub connections: usize,
}

impl Busyness {
    /// Of these processes now. It takes a quarter of a second.
    pub fn of(processes: &[u32], host: &Host) -> Self {
        let (begun, before) = (Instant::now(), turns(processes, host));
        std::thread::sleep(WATCHED);
        let after = turns(processes, host);
        let seconds = begun.elapsed().as_secs_f64();
        let turned = after.iter().map(|(thread, count)| {
            (*thread, count.saturating_sub(before.get(thread).copied().unwrap_or_default()))
        });
        let turned: Vec<(TaskId, u64)> = turned.filter(|(_, count)| *count > 0).collect();
        let named = turned.iter().filter(|(thread, _)| serves_connection(*thread, host)).count();
        Self {
            turns: turned.iter().map(|(_, count)| count).sum::<u64>() as f64 / seconds,
            // Of another server, whose threads have other names, any may serve one.
            connections: if named > 0 { named } else { turned.len() },
        }
    }

    /// The connections to follow, so that the server loses next to nothing.
    pub fn sample(self) -> ConnectionSample {
        if self.turns <= ALL_UP_TO {
            return ConnectionSample::default();
        }
        let most = (self.connections as f64 / FEWEST).min(f64::from(u16::MAX));
        let every = (self.turns / FOLLOWED).ceil().min(most) as u16;
        ConnectionSample { every: NonZeroU16::new(every).unwrap_or(NonZeroU16::MIN) }
    }
}

/// The ids of a process and of one of its threads.
type TaskId = (u32, u32);

/// How often each thread of these processes has got a processor so far; none if the kernel does not count it.
fn turns(processes: &[u32], host: &Host) -> HashMap<TaskId, u64> {
    let mut turns = HashMap::new();
    for process in processes {
        let threads = std::fs::read_dir(host.path(&format!("proc/{process}/task"))).into_iter().flatten();
        for thread in threads.flatten().filter_map(|thread| thread.file_name().to_str()?.parse::<u32>().ok())
        {
            let counted = host.text(&format!("proc/{process}/task/{thread}/schedstat"));
            let count = counted.and_then(|counted| counted.split_whitespace().nth(2)?.parse().ok());
            turns.extend(count.map(|count| ((*process, thread), count)));
        }
    }
    turns
}

/// By its name, which is `conn41` for example.
fn serves_connection((process, thread): TaskId, host: &Host) -> bool {
    host.text(&format!("proc/{process}/task/{thread}/comm")).is_some_and(|name| name.starts_with("conn"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_not_busy_is_followed_whole_and_a_busy_one_by_connection() {
        let every = |turns, connections| Busyness { turns, connections }.sample().every.get();
        assert_eq!([0.0, 250.0, 3_000.0].map(|turns| every(turns, 500)), [1, 1, 1]);
        assert_eq!([3_001.0, 10_000.0, 15_000.0].map(|turns| every(turns, 500)), [3, 7, 10]);
        assert_eq!(every(1e12, usize::MAX), u16::MAX);
    }

    #[test]
    fn of_few_connections_enough_are_followed() {
        let every = |connections| Busyness { turns: 15_000.0, connections }.sample().every.get();
        assert_eq!([0, 7, 8, 15, 16, 64, 80, 500].map(every), [1, 1, 1, 1, 2, 8, 10, 10]);
    }

    #[test]
    fn the_threads_of_all_processes_are_read_and_those_of_connections_are_known_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        for (thread, name, counted) in [
            ("7/task/7", "mongod", "10 20 30\n"),
            ("7/task/8", "conn12", "1 2 12\n"),
            ("9/task/9", "conn1", "no figures"),
        ] {
            let task = folder.path().join("proc").join(thread);
            std::fs::create_dir_all(&task).expect("a thread");
            std::fs::write(task.join("comm"), name).expect("its name");
            std::fs::write(task.join("schedstat"), counted).expect("its figures");
        }
        let host = Host::at(folder.path());
        assert_eq!(turns(&[7, 9, 11], &host), HashMap::from([((7, 7), 30), ((7, 8), 12)]));
        let serving = |thread| serves_connection(thread, &host);
        assert_eq!([(7, 7), (7, 8), (9, 9), (11, 11)].map(serving), [false, true, true, false]);
    }
}
