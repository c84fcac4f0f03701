//! Processes that the kernel killed for lack of memory, and which ones they were.

use super::{Event, EventKind};
use crate::time::NS_PER_S;

/// How far the end of a server and the kernel's count of the processes that it killed may be apart, in nanoseconds: both are
/// looked at every few seconds.
pub const KILL_REACH_NS: u64 = 15 * NS_PER_S;

/// How the end of a server says that the kernel killed it: by the kernel's line, or by its count at that time.
const OF_SERVER: [&str; 3] = ["; the kernel says: ", "; the kernel killed ", "; the kernel killed it: "];
/// How the text of a kill ends if only a control group had run out of memory.
const OF_GROUP: &str = " in a control group that had run out of memory";

/// Which process the kernel's line about a kill names: `process 7 (mongod)`; `None` if it names none.
pub fn killed_process(line: &str) -> Option<String> {
    let (before, after) = line.split_once("Killed process ")?;
    let digits = after.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(after.len());
    let number: u32 = after[..digits].parse().ok()?;
    let name = after.split(" total-vm").next().and_then(|one| one.split_once('('));
    let name = name.map_or_else(String::new, |(_, name)| format!(" ({name}"));
    let group = if before.starts_with("Memory cgroup") { OF_GROUP } else { "" };
    Some(format!("process {number}{name}{group}"))
}

/// Whether an event is that the kernel killed processes, of which no server is known, because memory had run out in their
/// control group.
pub fn is_kill_of_other_group(event: &Event) -> bool {
    let is_of_group = |text: &str| text.split(", ").all(|one| one.ends_with(OF_GROUP));
    event.kind == EventKind::OutOfMemory && event.server.port == 0 && is_of_group(&event.text)
}

/// The events without the kills that the ends of servers among them explain: of a kill that is counted for the whole machine
/// the end of the server tells more.
pub fn without_explained_kills(events: Vec<Event>) -> Vec<Event> {
    let is_end = |event: &&Event| {
        event.kind == EventKind::ServerCrash && OF_SERVER.iter().any(|said| event.text.contains(said))
    };
    let mut ends: Vec<_> = events.iter().filter(is_end).map(|event| event.at).collect();
    let mut left = Vec::with_capacity(events.len());
    for mut event in events {
        if event.kind == EventKind::OutOfMemory && event.server.port == 0 {
            let mut open = event.count;
            ends.retain(|end| {
                let is_its = open > 0 && end.since(event.at).max(event.at.since(*end)) <= KILL_REACH_NS;
                open -= u64::from(is_its);
                !is_its
            });
            if open == 0 {
                continue;
            }
            event.count = open;
        }
        left.push(event);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, Timestamp};

    const LINE: &str = "Memory cgroup out of memory: Killed process 11053 (mongod) total-vm:1588360kB";

    fn event(second: u64, kind: EventKind, (port, text): (u16, &str)) -> Event {
        Event::new(Timestamp::from_unix(second, 0), kind, Endpoint::v4([0; 4], port), text)
    }

    fn kills(count: u64) -> Event {
        Event { count, ..event(1_000, EventKind::OutOfMemory, (0, "")) }
    }

    #[test]
    fn the_kernels_line_names_the_process_and_whether_its_group_ran_out_of_memory() {
        let named = |line| killed_process(line).unwrap_or_default();
        assert_eq!(named(LINE), "process 11053 (mongod) in a control group that had run out of memory");
        assert_eq!(
            named("Out of memory: Killed process 7 (java (x)) total-vm:5kB, anon-rss:4kB"),
            "process 7 (java (x))"
        );
        assert_eq!(named("Killed process 7, UID 999, (java) total-vm:5kB"), "process 7 (java)");
        assert_eq!(named("Killed process 7"), "process 7");
        for other in ["", "Killed process ", "Killed process x (java)", "Killed process 99999999999 (java)"] {
            assert_eq!(killed_process(other), None, "{other}");
        }
        let of_group = event(1, EventKind::OutOfMemory, (0, &named(LINE)));
        assert!(is_kill_of_other_group(&of_group));
        assert!(!is_kill_of_other_group(&Event { server: Endpoint::v4([0; 4], 27_017), ..of_group }));
        assert!(!is_kill_of_other_group(&kills(1)));
    }

    #[test]
    fn the_end_of_a_server_explains_the_kernels_count() {
        let counts = |events: &[Event]| -> Vec<u64> {
            let left = without_explained_kills(events.to_vec());
            left.iter().filter(|one| one.kind == EventKind::OutOfMemory).map(|one| one.count).collect()
        };
        let said = format!("process 11053 (mongod); the kernel says: {LINE}");
        let counted =
            "process 5 (mongod), killed by signal 9 (SIGKILL); the kernel killed 1 process at that time";
        let end = |second, text| event(second, EventKind::ServerCrash, (27_017, text));
        // The end is seen before the count, or after it.
        for second in [996, 1_000, 1_012] {
            for text in [&*said, counted] {
                assert_eq!(counts(&[end(second, text), kills(1)]), [0; 0], "{second} {text}");
                assert_eq!(counts(&[end(second, text), kills(3)]), [2], "others were killed as well");
            }
        }
        assert_eq!(counts(&[end(999, &said), end(1_001, counted), kills(2)]), [0; 0]);
        assert_eq!(counts(&[kills(1), kills(1), end(1_001, &said)]), [1], "each end explains one");
        assert_eq!(counts(&[end(900, &said), kills(1)]), [1], "at another time");
        let killed = "process 5 (mongod), killed by signal 9 (SIGKILL)";
        assert_eq!(counts(&[end(999, killed), kills(1)]), [1], "somebody else killed it");
        // A kill in a server's own control group stays.
        let own = event(1_000, EventKind::OutOfMemory, (27_017, "its control group had reached its limit"));
        assert_eq!(counts(&[end(999, &said), own]), [1]);
    }
}
