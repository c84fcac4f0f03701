//! Which servers are traced: the question to the helper that decides, and how it decides.
//!
//! Whoever asks decodes what others send, and may be taken over. So the helper does not trust it: beyond the servers that
//! were there at the start, only a mongod or mongos is traced, and if ports were named, only one that listens on them.

use sonar_sys::Host;
use sonar_sys::split::{FollowedProcess, MAX_PROCESSES, SplitTracer};

use crate::args::values::PortRange;
use crate::servers;

/// The most processes of a question. The agent knows half as many servers at most.
const MAX_ASKED: usize = 256;

/// What is traced now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowedServers {
    /// The servers.
    pub followed: Vec<FollowedProcess>,
    /// How many others there is no room for.
    pub turned_away: u32,
}

impl FollowedServers {
    fn to_bytes(&self) -> Vec<u8> {
        let pairs = self.followed.iter().flat_map(|one| [one.process, one.since]);
        std::iter::once(self.turned_away).chain(pairs).flat_map(u32::to_ne_bytes).collect()
    }

    /// From the answer of the helper; `None` if it is none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (turned_away, rest) = bytes.split_first_chunk()?;
        let (pairs, []) = rest.as_chunks::<8>() else { return None };
        let followed = pairs.iter().map(|[a, b, c, d, since @ ..]| FollowedProcess {
            process: u32::from_ne_bytes([*a, *b, *c, *d]),
            since: u32::from_ne_bytes(*since),
        });
        Some(Self { followed: followed.collect(), turned_away: u32::from_ne_bytes(*turned_away) })
    }
}

/// The question that names the processes that are to be traced from now on, instead of others.
pub fn question(kind: u8, processes: &[u32]) -> Vec<u8> {
    let processes = &processes[..processes.len().min(MAX_ASKED)];
    std::iter::once(kind).chain(processes.iter().flat_map(|process| process.to_ne_bytes())).collect()
}

/// In the helper: answers the question, without its kind, for servers that listen on these ports; all if there are none.
pub fn answer(tracer: &SplitTracer, ports: &[PortRange], question: &[u8]) -> Vec<u8> {
    let (asked, _) = question.as_chunks();
    let (host, asked) = (Host::live(), asked.iter().take(MAX_ASKED));
    let servers = asked.filter_map(|process| servers::server(&host, u32::from_ne_bytes(*process))).collect();
    let mut asked = servers::in_order_of_places(servers, MAX_PROCESSES);
    if !ports.is_empty() {
        keep_listening(&mut asked, ports, |process| tracer.follows(process));
    }
    follow(tracer, &asked, |process| servers::is_proven(&host, process)).to_bytes()
}

/// Leaves those that listen on one of these ports, and those that are followed already: before it ends, a server closes
/// its port.
fn keep_listening(processes: &mut Vec<u32>, ports: &[PortRange], is_followed: impl Fn(u32) -> bool) {
    let listening = Host::live().serving(processes, &|port| ports.iter().any(|range| range.has(port)));
    processes.retain(|process| listening.contains(process) || is_followed(*process));
}

/// Follows those of the processes that are followed already, and those that are proven to be servers, and no others. If
/// there are too many, the first ones have the places.
fn follow(tracer: &SplitTracer, asked: &[u32], is_proven: impl Fn(u32) -> bool) -> FollowedServers {
    let (asked, others) = asked.split_at(asked.len().min(MAX_PROCESSES));
    for FollowedProcess { process, .. } in tracer.followed() {
        if !asked.contains(&process) || !tracer.follows(process) {
            // Its number may soon be that of another one.
            tracer.leave(process).ok();
        }
    }
    let mut turned_away = others.iter().filter(|process| is_proven(**process)).count() as u32;
    for process in asked {
        if tracer.follows(*process) || !is_proven(*process) {
            continue;
        }
        // It may have become another program since it was looked at. From now on the kernel takes care of that.
        if tracer.follow_if(*process, || is_proven(*process)).is_err() {
            turned_away += 1;
        }
    }
    FollowedServers { followed: tracer.followed(), turned_away }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::process::{Child, Command, Stdio};

    use sonar_core::time_split::ConnectionSample;
    use sonar_sys::ebpf::TraceError;
    use sonar_sys::split::SplitRoom;

    use super::*;

    /// `None` without the privileges, or where the kernel does not describe its types.
    fn tracer() -> Option<SplitTracer> {
        match SplitTracer::start(&[], ConnectionSample::default(), SplitRoom::AGENT) {
            Ok(tracer) => Some(tracer),
            Err(error @ (TraceError::NoBtf | TraceError::Permission(_))) => {
                println!("skipped: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn child() -> Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    fn ids(answer: &FollowedServers) -> Vec<u32> {
        answer.followed.iter().map(|one| one.process).collect()
    }

    #[test]
    fn only_servers_are_followed_and_only_those_that_are_asked_for() {
        let Some(tracer) = tracer() else { return };
        let mut children = [child(), child()];
        let [server, stranger] = [&children[0], &children[1]].map(Child::id);
        let is_proven = |process| process == server;
        assert_eq!(ids(&follow(&tracer, &[server, stranger], is_proven)), [server]);
        let first = tracer.followed();
        // It goes on.
        assert_eq!(follow(&tracer, &[stranger, server], |_| false).followed, first);
        assert!(follow(&tracer, &[], |_| true).followed.is_empty());
        // It became another program while it was looked at.
        let looks = Cell::new(0);
        let at_first = |_| looks.replace(looks.get() + 1) == 0;
        assert!(follow(&tracer, &[stranger], at_first).followed.is_empty());
        assert!(looks.get() > 1 && !tracer.follows(stranger));
        // Nothing of a process is recorded until it is proven.
        let followed_early = Cell::new(false);
        let proof = |process| {
            followed_early.set(followed_early.get() || tracer.follows(process));
            true
        };
        assert_eq!(ids(&follow(&tracer, &[stranger], proof)), [stranger]);
        assert!(!followed_early.get());
        let again = follow(&tracer, &[server], is_proven);
        assert!(again.followed[0].since > first[0].since, "it began from nothing");
        for child in &mut children {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        assert!(follow(&tracer, &[server], |_| false).followed.is_empty(), "it has ended");
    }

    #[test]
    fn no_program_of_ours_is_a_server_for_the_helper() {
        let Some(tracer) = tracer() else { return };
        let question = question(b'x', &[1, std::process::id()]);
        let answered = FollowedServers::from_bytes(&answer(&tracer, &[], &question[1..])).unwrap();
        assert!(!ids(&answered).contains(&std::process::id()), "{answered:?}");
    }

    #[test]
    fn only_servers_at_the_named_ports_are_followed() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let own = std::process::id();
        let left = |port: u16, is_followed: bool| {
            let mut processes = vec![own];
            keep_listening(&mut processes, &[PortRange(port, port)], |_| is_followed);
            processes
        };
        assert_eq!(left(port, false), [own]);
        assert_eq!(left(1, false), [0; 0]);
        assert_eq!(left(1, true), [own], "it has closed its port, and ends");
    }

    #[test]
    fn servers_without_room_are_counted() {
        let Some(tracer) = tracer() else { return };
        // Nobody has these numbers.
        let many: Vec<u32> = (5_000_000..5_000_070).collect();
        let full = follow(&tracer, &many, |_| true);
        assert_eq!((full.followed.len(), full.turned_away), (64, 6));
        assert_eq!(FollowedServers::from_bytes(&full.to_bytes()), Some(full));
    }

    #[test]
    fn a_server_that_has_a_place_gets_it_though_others_are_followed_already() {
        let Some(tracer) = tracer() else { return };
        // Nobody has these numbers.
        let many: Vec<u32> = (5_000_000..5_000_064).collect();
        assert_eq!(follow(&tracer, &many, |_| true).followed.len(), 64);
        let mut child = child();
        let asked: Vec<u32> = std::iter::once(child.id()).chain(many).collect();
        let answer = follow(&tracer, &asked, |_| true);
        assert!(ids(&answer).contains(&child.id()) && tracer.follows(child.id()));
        assert_eq!((answer.followed.len(), answer.turned_away), (64, 1));
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        assert_eq!(FollowedServers::from_bytes(&[0; 4]), Some(FollowedServers::default()));
        for length in [0, 3, 5, 8] {
            assert_eq!(FollowedServers::from_bytes(&vec![0; length]), None);
        }
    }
}
