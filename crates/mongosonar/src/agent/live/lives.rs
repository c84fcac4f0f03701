//! What happens to the processes of servers, as events. They come from the processes themselves, so that a server that is
//! killed, or writes no log, is in the history, too.

use std::collections::BTreeMap;

use sonar_core::Timestamp;
use sonar_core::history::{Event, EventKind};
use sonar_core::time::NS_PER_S;
use sonar_core::words::plural;

use super::inspector::FoundServer;
use crate::agent::servers::local;

/// How long after the end of a process its log and the kernel may still say why it ended, in nanoseconds. Windows are
/// stored a little later.
const PATIENCE_NS: u64 = 12 * NS_PER_S;
/// How long before its process ends a server may log that it shuts down, in nanoseconds.
const SHUTDOWN_NS: u64 = 120 * NS_PER_S;
/// How far the kernel's report of a kill and the end of a process may be apart, in nanoseconds.
const KILL_NS: u64 = 15 * NS_PER_S;

/// A process that has ended.
#[derive(Clone, Debug)]
struct EndedProcess {
    port: u16,
    pid: u32,
    name: String,
    /// Whether its log is followed, which then says whether it shut down.
    is_logged: bool,
    at: Timestamp,
    /// When the process before it at this port ended: what was logged before that is not of this one.
    after: Option<Timestamp>,
}

/// The processes of the servers of this host, and what is known about how they ended.
#[derive(Debug, Default)]
pub struct ServerLives {
    /// Of which it is not known yet why they ended.
    undecided: Vec<EndedProcess>,
    /// The last one that ended, by port.
    last: BTreeMap<u16, EndedProcess>,
    /// By port, when a server last logged that it shuts down, and how.
    shutdowns: BTreeMap<u16, (Timestamp, Box<str>)>,
    /// When the kernel last killed processes for lack of memory, and how many.
    killed: Option<(Timestamp, u64)>,
}

impl ServerLives {
    /// Notes an event of any source.
    pub fn see(&mut self, event: &Event) {
        match event.kind {
            EventKind::ServerStop if event.text.starts_with("shut down") => {
                self.shutdowns.insert(event.server.port, (event.at, event.text.clone()));
            }
            EventKind::OutOfMemory => self.killed = Some((event.at, event.count)),
            _ => {}
        }
    }

    /// A process has ended. Its event follows when it is known how, or cannot be known any more; see [`Self::decided`].
    pub fn ended(&mut self, server: &FoundServer, is_logged: bool, at: Timestamp) {
        let FoundServer { port, pid, name, .. } = server;
        let after = self.last.get(port).map(|before| before.at);
        let ended = EndedProcess { port: *port, pid: *pid, name: name.clone(), is_logged, at, after };
        self.last.insert(*port, ended.clone());
        self.undecided.push(ended);
    }

    /// A process has started.
    pub fn started(&self, server: &FoundServer, at: Timestamp) -> Event {
        let mut text = process(&server.name, server.pid);
        if let Some(before) = self.last.get(&server.port) {
            let seconds = at.since(before.at) / NS_PER_S;
            text += &format!(", {} after process {} had ended", plural(seconds, "second"), before.pid);
        }
        Event::new(at, EventKind::ServerStart, local(server.port), ("", &text))
    }

    /// A server of another version than before runs at a port.
    pub fn upgraded(port: u16, [before, after]: &[String; 2], at: Timestamp) -> Event {
        let text = format!("version {after}, before {before}");
        Event::new(at, EventKind::ServerUpgrade, local(port), ("", &text))
    }

    /// The ends of processes that are decided at `now`.
    pub fn decided(&mut self, now: Timestamp) -> Vec<Event> {
        let (decided, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.undecided)
            .into_iter()
            .map(|ended| {
                let is_over = now.since(ended.at) >= PATIENCE_NS || now < ended.at;
                (self.end(&ended, is_over), ended)
            })
            .partition(|(event, _)| event.is_some());
        self.undecided = open.into_iter().map(|(_, ended)| ended).collect();
        decided.into_iter().filter_map(|(event, _)| event).collect()
    }

    /// The ends of all processes, at the end of the agent.
    pub fn rest(&mut self) -> Vec<Event> {
        self.decided(Timestamp::from_unix_ns(u64::MAX))
    }

    /// How a process ended; `None` if that may still become known.
    fn end(&self, ended: &EndedProcess, is_over: bool) -> Option<Event> {
        let process = process(&ended.name, ended.pid);
        let event = |kind, text: &str| Some(Event::new(ended.at, kind, local(ended.port), ("", text)));
        let near =
            |at: Timestamp, before_ns| ended.at.since(at) <= before_ns && at.since(ended.at) <= KILL_NS;
        match self.shutdowns.get(&ended.port) {
            Some((at, text))
                if near(*at, SHUTDOWN_NS) && ended.after.is_none_or(|before| at.since(before) > 0) =>
            {
                return event(EventKind::ServerStop, &format!("{process}, after it had {text}"));
            }
            _ if !is_over => return None,
            _ => {}
        }
        if let Some((_, count)) = self.killed.filter(|(at, _)| near(*at, KILL_NS)) {
            let processes = plural(count, "process");
            let text =
                format!("{process}; the kernel killed {processes} at that time because memory had run out");
            return event(EventKind::ServerCrash, &text);
        }
        match ended.is_logged {
            true => event(
                EventKind::ServerCrash,
                &format!("{process}; its log has no shutdown: killed, or crashed"),
            ),
            false => event(EventKind::ServerStop, &format!("{process}; without its log it is not known how")),
        }
    }
}

fn process(name: &str, pid: u32) -> String {
    format!("process {pid} ({name})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sonar_core::Endpoint;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix(1_000_000 + seconds, 0)
    }

    fn server(pid: u32) -> FoundServer {
        let (name, log) = ("mongod".to_owned(), Some("/log".into()));
        FoundServer { port: 27_017, pid, started: 1, name, log, dbpath: None, diagnostic: None }
    }

    /// How process 7 ended, which did at second 100, if these events are seen.
    fn end(is_logged: bool, events: &[Event]) -> (EventKind, String) {
        let mut lives = ServerLives::default();
        lives.ended(&server(7), is_logged, at(100));
        events.iter().for_each(|event| lives.see(event));
        let early = lives.decided(at(101));
        let late = lives.decided(at(113));
        let [event] = [early, late].concat().try_into().unwrap();
        assert_eq!(lives.rest(), [], "an end is one event");
        let event: Event = event;
        assert_eq!((event.at, event.server), (at(100), local(27_017)));
        (event.kind, event.text.into())
    }

    fn shutdown(seconds: u64, text: &str) -> Event {
        Event::new(at(seconds), EventKind::ServerStop, local(27_017), ("", text))
    }

    #[test]
    fn a_process_that_is_killed_is_told_from_one_that_shuts_down() {
        let (kind, text) = end(true, &[]);
        assert_eq!(
            (kind, &*text),
            (EventKind::ServerCrash, "process 7 (mongod); its log has no shutdown: killed, or crashed")
        );
        let (kind, text) = end(true, &[shutdown(98, "shut down, exit code 0")]);
        assert_eq!(
            (kind, &*text),
            (EventKind::ServerStop, "process 7 (mongod), after it had shut down, exit code 0")
        );
        // An earlier life, and what the next start says of this one.
        for other in [shutdown(10, "had not shut down cleanly before this start"), shutdown(0, "")] {
            assert_eq!(end(true, &[other]).0, EventKind::ServerCrash);
        }
        let mut lives = ServerLives::default();
        lives.see(&shutdown(0, "shut down"));
        lives.ended(&server(7), true, at(500));
        assert_eq!(lives.rest()[0].kind, EventKind::ServerCrash, "another life shut down");
        lives.see(&shutdown(600, "shut down"));
        lives.ended(&server(8), true, at(601));
        lives.ended(&server(9), true, at(660));
        let kinds: Vec<_> = lives.rest().iter().map(|event| event.kind).collect();
        assert_eq!(kinds, [EventKind::ServerStop, EventKind::ServerCrash], "killed soon after a restart");
    }

    #[test]
    fn a_kill_for_lack_of_memory_is_named() {
        let killed = |seconds| Event::new(at(seconds), EventKind::OutOfMemory, Endpoint::default(), ("", ""));
        let (kind, text) = end(true, &[killed(103)]);
        assert_eq!(kind, EventKind::ServerCrash);
        assert!(
            text.contains("the kernel killed 1 process at that time because memory had run out"),
            "{text}"
        );
        assert!(!end(true, &[killed(20)]).1.contains("memory"));
    }

    #[test]
    fn without_a_log_it_is_not_known_how_a_process_ended() {
        let (kind, text) = end(false, &[]);
        assert_eq!(kind, EventKind::ServerStop);
        assert!(text.ends_with("it is not known how"), "{text}");
    }

    #[test]
    fn a_restart_names_the_process_before() {
        let mut lives = ServerLives::default();
        assert_eq!(&*lives.started(&server(7), at(0)).text, "process 7 (mongod)");
        lives.ended(&server(7), true, at(100));
        let started = lives.started(&server(9), at(103));
        assert_eq!(&*started.text, "process 9 (mongod), 3 seconds after process 7 had ended");
    }
}
